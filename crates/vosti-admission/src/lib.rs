//! Where proofs meet the engine: this crate decides which certificate discharges which op of a model, and so which kernels
//! may run.
//!
//! A [`Bundle`] holds kernels' texts and certificates. [`Bundle::admit`] refuses a model's plan unless every op's launch has
//! a fresh certificate whose contract is the one that the op needs, and [`limits`] refuses steps that are larger than the
//! proofs cover. A device must run the text that was admitted and no other. The engine's theorem rests on this crate, so the
//! deciding files are on the list of files to audit (`docs/trust.md`). [`manifest`] and the reading and writing of folders
//! are not on it, because [`Bundle::admit`] checks every bundle that was read. This crate runs no kernel and knows none by name.
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
