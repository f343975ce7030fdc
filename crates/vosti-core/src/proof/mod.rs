//! The proofs. They state nothing that a reader must trust: the files of `trusted/` do.

pub(crate) mod canonical;
pub(crate) mod committing;
pub(crate) mod forward;
pub(crate) mod frame;
pub(crate) mod image;
pub(crate) mod progress;
pub(crate) mod reference;
pub(crate) mod sharing;
pub(crate) mod stepping;
pub(crate) mod suite;
pub(crate) mod suite_effects;
pub(crate) mod suite_legal;
pub(crate) mod suite_premises;
pub(crate) mod suite_words;
pub(crate) mod symbolic;
pub(crate) mod trace;
pub(crate) mod users;
pub(crate) mod witness;
