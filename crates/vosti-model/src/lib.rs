//! See the crate's place in ARCHITECTURE.md.
