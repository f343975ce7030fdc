//! Vosti: language-model inference whose logits do not depend on what else the server is doing.
//!
//! This is what the command is made of: the [`catalogue`] of pinned models and how they are [`fetch`]ed, the [`deployment`]
//! of one on this machine, what is measured and watched there, and the command line ([`cli`]). It must decide nothing that is
//! trusted: which kernels may run is `vosti-admission`'s to say. The engine itself is `vosti-engine`, on top of the verified
//! `vosti-core`.
//! Read ARCHITECTURE.md next.

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
