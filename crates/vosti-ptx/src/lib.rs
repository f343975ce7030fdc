//! Executes PTX on a processor: the part that Triton makes of Vosti's kernels, as strictly as the PTX ISA says.
//!
//! [`Kernel::read`] decodes a text once; [`Kernel::run`] runs a launch's threads, warps and blocks. An instruction that is not
//! known, an address outside a buffer, a race, a barrier that not all reach, a wait without an end, a copy that is used before its
//! wait and a number that was never written are errors, where a GPU would compute something.
//!
//! It says nothing about ptxas, about what a tensor core adds inside one instruction, or about time. Read next:
//! [`decode`], [`warp`], [`shared`]; then [`compare`], which compares with the tile interpreter, [`edits`], which
//! breaks texts, and [`counted`], which counts what a launch of a step asks of a GPU.

mod buffers;
mod bulk;
mod case;
mod compare;
mod counted;
mod counts;
mod decode;
mod descriptor;
mod edits;
mod fault;
mod group;
mod keys;
mod lanes;
mod launch;
mod matrix;
mod numbers;
mod shared;
mod states;
mod step;
mod stop;
mod tensor;
mod text;
mod tile;
mod warp;

pub use buffers::Buffers;
pub use case::Case;
pub use compare::{Cases, Compiled, Difference, Seen, bytes, compare, stored};
pub use counted::{Counted, count};
pub use counts::{BANKS, Banks, Class, Counts, LINE, SECTOR, Traffic, WORD};
pub use decode::Kernel;
pub use descriptor::{Descriptor, Map};
pub use edits::{Edit, Kind};
pub use fault::{Fault, ReadError, RunError};
pub use launch::{Global, Launch};
