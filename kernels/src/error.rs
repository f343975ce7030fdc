//! Errors in a kernel's description or in a request for a specialisation.

use thiserror::Error;
use vosti_contract::ContractError;

/// An error of this crate.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum KernelError {
    #[error("there is no kernel `{kernel}`; kernels/*.py are: {known}")]
    Kernel { kernel: String, known: String },
    #[error("there is no target `{target}`; there are {known}")]
    Target { target: String, known: String },
    #[error("specialisations.toml does not say how target `{target}` tiles kernel `{kernel}`: add a line there")]
    Untiled { target: String, kernel: String },
    #[error(
        "kernel `{kernel}` needs the constant {name}: pass it as a dimension or compute it in specialisations.toml"
    )]
    Missing { kernel: String, name: String },
    #[error("specialisations.toml: {0}")]
    Table(String),
    #[error(
        "specialisations.toml: kernel `{kernel}` of `{target}` takes its tiles from `{of}`: num_warps, num_stages and heights, \
         not {name}, may be its own, for another tile is another TTIR and another proof"
    )]
    Override { target: String, of: String, kernel: String, name: String },
    #[error("kernel `{kernel}` has no constant {name}; it takes {takes}")]
    Unknown { kernel: String, name: String, takes: String },
    #[error("specialisations.toml does not give `{spec}` for target `{target}`: nothing says how it is compiled")]
    Foreign { spec: String, target: String },
    #[error("{spec} was not admitted: the bundle has no text for it")]
    NotAdmitted { spec: String },
    #[error(transparent)]
    Contract(#[from] ContractError),
}
