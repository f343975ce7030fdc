//! Vosti: language-model inference whose logits do not depend on what else the server is doing.
//!
//! This is the library facade and the parts of the command line that others may want to call: the
//! [`catalogue`] of pinned models and how they are [`fetch`]ed. The engine itself is `vosti-engine`, on top
//! of the verified `vosti-core`. Read ARCHITECTURE.md next.

pub mod bench;
pub mod catalogue;
pub mod deployment;
pub mod device;
pub mod fetch;
pub mod laws;
pub mod model_source;
pub mod pool;
pub mod probe;
mod weights;
