//! Why a program cannot be wired, or its weights not be read.

use crate::weights::WeightError;
use thiserror::Error;
use vosti_tile::Scalar;

/// An error of this crate.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum WiringError {
    #[error("{pages} page counts for {groups} cache groups: give one for each group of the program")]
    Groups { pages: usize, groups: usize },
    #[error("kernel {k} of {bindings} bindings: the program and its bindings are from different models")]
    Binding { k: u32, bindings: usize },
    #[error("{spec} has a parameter of role {role}, which its op does not have")]
    Role { spec: String, role: String },
    #[error("parameter `{param}` of {spec} has another element type than the buffer it shares")]
    Element { spec: String, param: String },
    #[error("{spec}: the TTIR takes `{found}` where the contract has `{wanted}`: run `cargo xtask ttir`")]
    Signature { spec: String, found: String, wanted: String },
    #[error("{spec} has other parameters than the kernel that it may replace")]
    Unlike { spec: String },
    #[error(
        "the program's logits must be read by one op that reads nothing else and writes one number for each selected row, and besides it only by an op that makes lists"
    )]
    Outputs,
    #[error("op {index} has no launches, and the launch before it cannot do its work: this is a bug, report it")]
    Together { index: usize },
    #[error("what draws tokens writes a buffer of the program or a page: this is a bug, report it")]
    Draws,
    #[error(
        "steps of {rows} rows ({selected} selected) over contexts of {context} tokens in {tables} page tables are more than kernels are proved for: choose fewer rows or a shorter context"
    )]
    TooLarge { rows: usize, selected: usize, context: u32, tables: usize },
    #[error("weight `{name}`: {error}")]
    Weight { name: String, error: WeightError },
    #[error("weight `{name}` is not {elem}, which its kernels read")]
    WeightType { name: String, elem: Scalar },
}
