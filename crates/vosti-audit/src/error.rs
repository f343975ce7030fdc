//! What ends an audit before there is a verdict, and how a file is read.

use std::io::{Error, ErrorKind};
use std::path::Path;

/// Wrong input, or a tool that failed. Each message is one line and names its place.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum AuditError {
    /// A file that cannot be read.
    #[error("cannot read {path}: {error}{hint}")]
    Read { path: String, error: Error, hint: &'static str },
    /// A contract or a file that is no text.
    #[error("{path}:{line}: {why}")]
    Contract { path: String, line: usize, why: String },
    /// A contract that says of a kernel what does not fit it.
    #[error("{path}:{line}: [{function}]: {why}")]
    Claim { path: String, line: usize, function: String, why: String },
    /// A function without a contract, or none at all.
    #[error("{path}:1: no contract for `{function}`; it has {known}")]
    NoClaim { path: String, function: String, known: String },
    /// A kernel that Triton does not compile, or a file that is no Python.
    #[error("{path}:{line}: {why}")]
    Python { path: String, line: u64, why: String },
    /// The front end failed as a program.
    #[error("{python} cannot render {path}: {why}; name a Python that has Triton 3.6.0 in VOSTI_PYTHON")]
    FrontEnd { python: String, path: String, why: String },
    /// Z3 is missing or died.
    #[error(transparent)]
    Solver(#[from] vosti_verify::SolverError),
}

/// The text of a file; an error that ends with `hint`. A pipe or a device has no text: reading it may never end.
pub(crate) fn text_of(path: &Path, hint: &'static str) -> Result<String, AuditError> {
    let shown = path.display().to_string();
    let read = || {
        let kind = std::fs::metadata(path)?.file_type();
        if !kind.is_file() && !kind.is_dir() {
            return Err(Error::new(ErrorKind::InvalidInput, "it is no file"));
        }
        std::fs::read(path)
    };
    let bytes = read().map_err(|error| AuditError::Read { path: shown.clone(), error, hint })?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        AuditError::Contract { path: shown, line, why: "this is no UTF-8".into() }
    })
}
