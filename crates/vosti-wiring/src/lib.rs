//! The part that every device shares, whatever its memory is: which kernel each op is, which buffer each parameter is bound
//! to, the contents of a step's metadata, the reading of weights.
//!
//! It holds no memory and launches nothing: a device gives it kernels and arrays of integers, and keeps both. It knows no
//! kernel by name and chooses nothing from a batch.
//! Read next: [`wiring`], then [`step`].

pub mod error;
pub mod step;
pub mod uniform;
pub mod weights;
pub mod wiring;

pub use error::WiringError;
pub use step::{Ints, Metadata, image, listed};
pub use uniform::Uniform;
pub use vosti_core::{Image, Meta, Tiling};
pub use vosti_kernels::{Quantised, TensorData};
pub use weights::{WeightError, Weights};
pub use wiring::{Bound, Kernel, Lists, Outputs, Size, Wired, Wiring, caches, outputs, signature, wire};
