//! The HTTP surface: one file per family of endpoints, and the code that they share.
//!
//! `body.rs` turns bytes into a request type, `fields.rs` has the fields that both kinds of completion take, `prepare.rs`
//! turns them into a job for the engine, and `foreign.rs` is the table of the fields that clients of other engines send.

pub mod anthropic;
pub mod blocks;
pub mod body;
pub mod chat;
pub mod completions;
pub mod conversation;
mod error;
pub mod fields;
pub mod foreign;
pub mod logprobs;
pub mod messages;
pub mod models;
pub mod ollama;
pub mod prepare;
pub mod responses;
pub mod resume;
pub mod state;
pub mod tokenize;
pub mod turn;
pub mod usage;

pub use error::{ApiError, ErrorBody, ErrorObject};
