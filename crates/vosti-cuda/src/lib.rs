//! The CUDA target, as far as it exists: checked-in TTIR becomes cubins, and the cubins are checked without a GPU.
//!
//! There is no device yet: nothing here launches anything, and nothing that is made here has run on a GPU. What was
//! checked and what was not is in `docs/gpu.md`. This crate needs neither CUDA nor a driver; Python and Triton are
//! build-time tools, of [`mod@toolchain`] only. Read next: [`mod@toolchain`], [`mod@inspect`].

pub mod arch;
pub mod artifact;
pub mod error;
pub mod inspect;
pub mod toolchain;

pub use arch::Arch;
pub use artifact::{Artifact, Hashes, Metadata};
pub use error::{CudaError, Refusal};
pub use inspect::{Facts, inspect};
pub use toolchain::Toolchain;
