//! See the crate's place in ARCHITECTURE.md.

pub mod grammar;
pub mod receipt;
