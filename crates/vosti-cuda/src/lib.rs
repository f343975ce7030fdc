//! The CUDA device: launches the cubins that `vosti-cubin` made and checked.
//!
//! `docs/gpu.md` says what has run on a GPU, and what on a stand-in driver only.
//! Building and testing needs neither CUDA nor a driver: libcuda is loaded at run time.
//! Read next: [`mod@device`], [`mod@launch`].

pub mod bandwidth;
pub mod cuda;
pub mod device;
pub mod driver;
pub mod error;
pub mod host;
pub mod launch;
mod outputs;
pub mod probe;
pub mod step;
pub mod uniform;
pub mod weights;

pub use cuda::Cuda;
pub use device::{Config, CudaDevice, Pages};
pub use driver::{Driver, DriverError};
pub use error::CudaError;
pub use vosti_wiring::{TensorData, Uniform, WeightError, Weights};
pub use weights::WeightCache;
