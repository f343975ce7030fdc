//! The CUDA target: checked-in TTIR becomes cubins, the cubins are checked without a GPU, and a device launches them.
//!
//! `docs/gpu.md` says what has run on a GPU, and what on a stand-in driver only.
//! Building and testing needs neither CUDA nor a driver. libcuda is loaded at run time; Python and Triton are build-time
//! tools of [`mod@toolchain`] only.
//! Read next: [`mod@inspect`] and [`mod@execute`] for the build's side, [`mod@device`] for the run's.

pub mod arch;
pub mod artifact;
pub mod bandwidth;
pub mod cuda;
pub mod device;
pub mod driver;
pub mod error;
pub mod execute;
pub mod host;
pub mod image;
pub mod inspect;
pub mod launch;
pub mod probe;
pub mod step;
pub mod toolchain;
pub mod uniform;
pub mod weights;

pub use arch::Arch;
pub use artifact::{Artifact, Hashes, Metadata};
pub use cuda::Cuda;
pub use device::{Config, CudaDevice, Pages};
pub use driver::{Driver, DriverError};
pub use error::{CudaError, Refusal};
pub use execute::{Executed, execute};
pub use image::{Image, Record, alike};
pub use inspect::{Facts, inspect};
pub use toolchain::Toolchain;
pub use vosti_wiring::{TensorData, Uniform, WeightError, Weights};
pub use weights::WeightCache;
