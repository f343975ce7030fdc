//! Where proofs and engine meet: which certificate discharges which op of a model, and so which kernels may run.
//!
//! A [`Bundle`] holds kernels' texts and certificates; [`Bundle::admit`] refuses a model's plan unless every op's launch has a
//! fresh certificate whose contract is what the op needs, and [`limits`] refuses steps that are larger than what was proved.
//! A device must run the text that was admitted and no other. The engine's theorem is only as good as this crate, so what
//! decides here is on the list of what must be audited (`docs/trust.md`); [`manifest`] and the reading and writing of folders
//! are not: what they read is admitted or refused. This crate runs no kernel and knows none by name.
//! Read next: [`mod@bundle`], then [`op_contract`] and [`launch_pair`].

pub mod bundle;
mod error;
mod folder;
pub mod launch_pair;
pub mod limits;
pub mod manifest;
pub mod op_contract;

pub use bundle::Bundle;
pub use error::BundleError;
