//! Register kernels and vector loops for each instruction set, and the layouts in memory that they read.
//!
//! Every instruction set computes the same bits, those of [`vosti_tile::numerics`]; the choice changes only the speed. Nothing
//! here knows a plan, a thread or a model.
//! Read next: [`layout`], then [`micro`] and [`vector`].

mod isa;
pub mod layout;
pub mod micro;
pub mod storage;
pub mod vector;

pub use isa::Isa;
