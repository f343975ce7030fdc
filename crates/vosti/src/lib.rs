//! Vosti: language-model inference whose logits do not depend on the other work of the server.
//!
//! The command consists of the [`catalogue`] of pinned models and the code that [`fetch`]es them, the [`deployment`] of a
//! model on this machine, the measurements and checks of it, and the command line ([`cli`]). This crate decides nothing that
//! is trusted: `vosti-admission` says which kernels may run. The engine itself is `vosti-engine`, on top of the verified
//! `vosti-core`.
//!
//! # Where to read
//!
//! The book explains all of it: `cargo xtask book` builds it under `target/book`, from the pages of `docs/`. Its first pages
//! are README.md and `docs/start.md`; ARCHITECTURE.md is the map of the crates, `docs/proof-tour.md` the way through the
//! proof, and CONTRIBUTING.md says where a model family, a kernel, an op and a sampling parameter go.

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
