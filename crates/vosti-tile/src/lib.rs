//! Tile IR: TTIR text read into typed operations on tiles.
//!
//! [`lift()`] reads the text that Triton's front end wrote, and refuses operations that it does not know. The result, a
//! [`Kernel`], has three consumers: the verifier, the CPU executor and the interpreter of this crate. The crate knows no
//! kernel by name and depends on no other crate of the workspace. Read next: [`ir`], then [`numerics`].

pub mod bind;
#[allow(missing_docs, reason = "the messages of `TypeError` name its fields")]
pub mod build;
pub mod error;
pub mod generate;
pub mod interp;
#[allow(missing_docs, reason = "operations and their operands have the names of MLIR; the operation's line says more")]
pub mod ir;
pub mod lift;
pub mod numerics;
mod operands;
mod parse;
pub mod print;
mod whole;

pub use bind::{BindError, bind, fold};
pub use error::{LiftError, Reason};
pub use ir::*;
pub use lift::lift;
