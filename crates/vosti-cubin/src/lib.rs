//! GPU kernels without a GPU: proved TTIR becomes a cubin, the texts on its way are checked, and its PTX is executed here.
//!
//! Building and testing needs no CUDA; Python and Triton are tools of [`mod@toolchain`] only, and [`mod@kept`] keeps
//! what they made. `vosti-cuda` launches what passed.
//! Read next: [`mod@start`], [`mod@inspect`], [`mod@execute`], [`mod@cubin`].

pub mod arch;
pub mod artifact;
pub mod cubin;
pub mod error;
pub mod execute;
pub mod inspect;
pub mod kept;
pub mod start;
pub mod toolchain;
mod unused;

pub use arch::Arch;
pub use artifact::{Artifact, Hashes, Metadata};
pub use cubin::{Cubin, Record, alike};
pub use error::{CubinError, Refusal};
pub use execute::{Counter, Executed, execute};
pub use inspect::{Facts, inspect};
pub use kept::Kept;
pub use toolchain::{Copies, Toolchain};
pub use vosti_ptx::Descriptor;
