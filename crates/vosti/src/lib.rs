//! Vosti: language-model inference whose logits do not depend on the other work of the server.
//!
//! The command consists of the [`catalogue`] of models and the code that [`fetch`]es them, the [`deployment`] of a
//! model on this machine, the measurements and checks of it, and the command line ([`cli`]). This crate decides nothing that
//! is trusted: `vosti-admission` says which kernels may run. The engine itself is `vosti-engine`, on top of the verified
//! `vosti-core`.
//!
//! # The book
//!
//! [The book](../../book/index.html) explains all of it; `cargo xtask book` builds it, under `target/book`, beside this
//! documentation. It begins with README.md and [ten minutes](../../book/docs/start.html). [The
//! map](../../book/ARCHITECTURE.html) shows the crates, [the tour of the proof](../../book/docs/proof-tour.html) what is
//! proved, and [Contributing](../../book/CONTRIBUTING.html) where a model family, a kernel, an op and a sampling parameter
//! go.

#[macro_use]
mod tell;

pub mod bench;
pub mod catalogue;
pub mod cli;
pub mod deployment;
pub mod device;
pub mod estimate;
pub mod fetch;
pub mod laws;
pub mod memory;
pub mod model_source;
pub mod pool;
pub mod probe;
mod weights;

/// Chat templates come with files that nobody has read.
#[global_allocator]
static ALLOCATOR: vosti_model::Bounded = vosti_model::Bounded;
