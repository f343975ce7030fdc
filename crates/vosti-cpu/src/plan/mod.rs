//! Plans: a kernel's tile IR compiled once into a short list of vector, access and dot instructions.
//!
//! A plan computes exactly what the interpreter computes, bit for bit. It skips work: lanes of a row axis that no store
//! writes, copies of tiles that a dot can read in place, and loops that only feed a dot.
//! Read next: [`code`], then [`compile()`], then [`machine`].

mod axes;
#[allow(missing_docs, reason = "an instruction's line says what it does with its places in scratch, counts and bounds")]
pub mod code;
mod compile;
mod fusion;
pub mod machine;
mod scratch;
mod unswitch;

pub use code::Plan;
pub use compile::{Unsupported, compile};
