//! Model files, tokenizers, chat templates, and model families as programs.
//!
//! A family is a function from a configuration to a [`decoder::Decoder`], which [`plan::plan`] compiles to
//! a program for `vosti-core`, kernel bindings for a device, and a recipe for each weight. This crate
//! knows no device, and nothing in it depends on a batch.
//!
//! Files are untrusted: every loader gives one error for a damaged file, never a panic.
//!
//! Read next: [`decoder`], `families/llama.rs`, [`mod@plan`], [`gguf`].

mod bounded;
pub mod chat;
mod config;
pub mod decoder;
mod deep;
mod defaults;
pub mod dequantise;
mod dimensions;
mod error;
pub mod families;
mod files;
pub mod gguf;
pub mod inventory;
pub mod json;
mod matrix;
mod model;
mod mxfp4;
pub mod plan;
pub mod prompt;
mod recipe;
mod replacement;
mod rope;
mod scaled;
mod specialise;
mod tensor_names;
mod tokenizer;
mod weights;

pub use bounded::Bounded;
pub use chat::{ChatOptions, ChatTemplate, Date};
pub use deep::on_deep_stack;
pub use defaults::GenerationConfig;
pub use error::{ModelError, Result};
pub use files::{RawTensor, TensorFiles};
pub use inventory::{check_kernels, inventory};
pub use model::{Model, Text};
pub use plan::{Arithmetic, ModelPlan, Target, plan};
pub use prompt::Prompt;
pub use recipe::{Order, Recipe, Weight};
pub use replacement::{Replacement, Wanted};
pub use scaled::Method;
pub use tokenizer::{Detokenizer, Tokenizer};
pub use vosti_kernels::TensorData;
pub use weights::{Tensor, WeightSource, Weights, rotary};
