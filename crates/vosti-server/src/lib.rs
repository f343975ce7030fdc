//! An OpenAI-compatible server over the engine.
//!
//! It listens before the model is loaded, bounds everything that a client can make it hold, and logs no text. Nothing here
//! decides an answer: requests are checked and turned into the engine's plain data, and the engine's tokens are turned into
//! text and counts. No request may bring the engine down.
//!
//! Read `app.rs` (state and routes), `api/chat.rs` (one endpoint from end to end), `job.rs` (into the engine and out of it),
//! `answer.rs` (tokens to text). `listen.rs` has the sockets. The book (`docs/`, built by `cargo xtask book`) has a page for
//! operators, `docs/server.md`.

pub mod answer;
#[allow(
    missing_docs,
    reason = "fields have the names and the meaning of OpenAI's and Anthropic's; docs/api.md is made of them"
)]
pub mod api;
pub mod api_page;
pub mod app;
mod auth;
pub mod config;
pub mod cors;
pub mod error;
mod flow;
pub mod grammar;
pub mod job;
mod limits;
pub mod listen;
mod metrics;
pub mod openapi;
mod page;
pub mod receipt;
pub mod service;
mod stream;
mod submit;
mod tls;
mod trace;

pub use config::{Limits, ServerConfig, TlsFiles, UnknownFields};
pub use error::ServerError;
pub use listen::{Server, ServerHandle};
pub use service::{Identity, Language, PageBytes, Service};
