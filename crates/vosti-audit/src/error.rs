//! What ends an audit before there is a verdict.

use thiserror::Error;

/// Wrong input, or a tool that failed. Each message is one line and names its place.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum AuditError {
    /// A file that cannot be read.
    #[error("cannot read {path}: {error}{hint}")]
    Read { path: String, error: std::io::Error, hint: &'static str },
    /// A contract that cannot be read.
    #[error("{path}:{line}: {why}")]
    Contract { path: String, line: usize, why: String },
    /// A contract that says of a kernel what does not fit it.
    #[error("{path}: [{function}]: {why}")]
    Claim { path: String, function: String, why: String },
    /// A function without a contract, or none at all.
    #[error("{path}: no contract for `{function}`; it has {known}")]
    NoClaim { path: String, function: String, known: String },
    /// A kernel that Triton does not compile, or a file that is no Python.
    #[error("{path}:{line}: {why}")]
    Python { path: String, line: u64, why: String },
    /// The front end failed as a program.
    #[error("{python} cannot render {path}: {why}")]
    FrontEnd { python: String, path: String, why: String },
    /// Z3 is missing or died.
    #[error(transparent)]
    Solver(#[from] vosti_verify::SolverError),
}
