//! The CPU device: executes tile IR on worker threads, and knows no kernel by name.
//!
//! A kernel's tile IR is compiled once into a plan of loops of `vosti-simd`, which reads weights and caches in place from
//! layouts chosen here; a plain mode runs the interpreter of `vosti-tile` instead, and both give the same bits.
//! Read next: [`device`], then [`vosti_simd`].

mod blueprint;
mod ceilings;
pub mod device;
mod launch;
mod memory;
pub mod plan;
mod pool;
mod weights;
mod wiring;

pub use blueprint::Needs;
pub use ceilings::{Ceilings, ceilings};
pub use device::{Config, CpuDevice, CpuError, Mode, Storage};
pub use pool::THREADS_MAX;
pub use vosti_simd::{Isa, layout::Layout};
pub use weights::{Quantised, TensorData, WeightCache, WeightError, Weights};
