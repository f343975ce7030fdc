//! The kernels as data: their names, their contracts, and the TTIR of every specialisation.
//!
//! A kernel is one Triton source `kernels/<name>.py` with its contract in a comment block above it. A [`Spec`] names one
//! specialisation of it (activation type and constants); its TTIR is checked in as a part of
//! `kernels/ttir/<name>.ttir` and embedded here. A [`Binding`] is the value that an op's `k` stands for: specialisations bound to weights.
//!
//! This crate must never launch a kernel, and no choice here may depend on a batch. Where a kernel has row tiles of several
//! heights, each is proved to give the bits of the lowest ([`stands_for`]), and the device chooses.
//! Read next: `kernels/linear.py`, then [`mod@spec`].

pub mod admitted;
pub mod draws;
pub mod error;
pub mod heights;
pub mod inventory;
pub mod quantised;
pub mod request;
pub mod scores;
pub mod spec;
pub mod specialise;
pub mod together;

pub use admitted::{Admitted, Proved};
pub use draws::Draws;
pub use error::KernelError;
pub use heights::cost;
pub use inventory::{
    Kernel, bind, contract, examples, kernel, kernels, parse_stem, ttir, ttir_by_stem, ttir_hash, ttir_stems,
};
pub use quantised::{Format, Part, Quantised, Values};
pub use request::request;
pub use scores::{capped, scores, window};
pub use spec::{Binding, Launch, Scratch, Spec, TensorData};
pub use specialise::{
    CPU, CompileOptions, check_target, compile_options, folds, higher, second_of, specialise, stands_for, targets,
};
