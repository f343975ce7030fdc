//! Policy over the core: continuous batching, prefix cache, speculation, sampling.
//!
//! `vosti-core` is the mechanism and is proved: whatever the engine asks of it, every logits row that leaves it is the
//! canonical one. This crate decides *what* to ask, and is free to be clever. It must never compute a token or a logits row
//! by itself.
//!
//! Read `engine.rs` first: `plan -> launch -> commit`. Then `schedule.rs` (who runs, with which pages), `prefix.rs` (which
//! blocks are cached and evicted), `sampler.rs` (logits to token). `handle.rs` puts an engine on its own thread for servers.
//! `progress.rs` is how long work says how far it is.

pub mod capacity;
pub mod counters;
mod device;
pub mod drafts;
pub mod engine;
pub mod error;
pub mod handle;
pub mod logprobs;
pub mod math;
pub mod numbers;
pub mod policy;
mod prefix;
pub mod progress;
pub mod random;
pub mod request;
pub mod routing;
pub mod sampler;
pub mod sampling;
mod schedule;
mod sequence;
pub mod text;

pub use counters::Counters;
pub use device::FloatDevice;
pub use drafts::Drafter;
pub use engine::{Engine, Status, StepReport};
pub use error::EngineError;
pub use handle::EngineHandle;
pub use numbers::{Defaults, Given, Numbers};
pub use policy::{Order, Policy, Speculation};
pub use request::{Event, FinishReason, Request, RequestId, Usage};
pub use routing::Routing;
pub use sampling::{Sampling, SamplingError, SamplingParams};
pub use vosti_core::Token;
