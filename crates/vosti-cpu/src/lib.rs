//! The CPU device: executes tile IR on worker threads, and knows no kernel by name.
//!
//! A kernel's tile IR is compiled once into a plan that reads weights and caches in place from layouts chosen
//! here; a plain mode runs the interpreter of `vosti-tile` instead, and both give the same bits.
//! Read next: [`device`], then [`layout`] and [`micro`].

#[cfg(test)]
mod arithmetic;
mod blueprint;
mod ceilings;
pub mod device;
pub mod isa;
mod launch;
pub mod layout;
mod memory;
pub mod micro;
pub mod plan;
mod pool;
pub mod storage;
mod vector;
mod weights;
mod wiring;

pub use blueprint::Needs;
pub use ceilings::{Ceilings, ceilings};
pub use device::{Config, CpuDevice, CpuError, Mode, Storage};
pub use pool::THREADS_MAX;
pub use weights::{Quantised, TensorData, WeightCache, WeightError, Weights};
