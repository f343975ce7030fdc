//! The part of a device that is the same for every kind of memory: which kernel each op runs, which buffer each parameter is
//! bound to, the contents of a step's metadata, and the reading of weights.
//!
//! The crate holds no memory and launches nothing: a device gives it kernels and an array of integers. It knows no kernel by
//! name, and no choice here depends on a batch.
//! Read next: [`wiring`], then [`step`].

pub mod caches;
pub mod error;
pub mod outputs;
pub mod step;
pub mod uniform;
pub mod weights;
pub mod wiring;

pub use caches::{caches, most_pages, page_bytes, pages_in, pool, pool_bytes, state_bytes};
pub use error::WiringError;
pub use outputs::{Lists, Outputs, outputs};
pub use step::{Ints, Metadata, drawn, evenly, fill_numbers, image, listed};
pub use uniform::Uniform;
pub use vosti_core::{Image, Meta, Tiling};
pub use vosti_kernels::{Quantised, TensorData};
pub use weights::{WeightError, Weights};
pub use wiring::{Bound, Kernel, Size, Way, Wired, Wiring, signature, wire};
