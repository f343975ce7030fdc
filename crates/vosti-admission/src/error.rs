//! Errors of bundles, and of plans that need one.

use std::io;
use std::path::PathBuf;
use thiserror::Error;
use vosti_kernels::CPU;
use vosti_verify::{CertificateError, ProblemError};

/// Why a program may not run on a bundle, or a bundle cannot be read or written.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum BundleError {
    #[error("{origin}: there is no certificate for kernel {kernel}; {remedy}")]
    Missing { origin: String, kernel: String, remedy: &'static str },
    #[error("{origin}: {error}; {remedy}")]
    Certificate { origin: String, error: Box<CertificateError>, remedy: &'static str },
    #[error("{origin}: {error}; {remedy}")]
    Kernel { origin: String, error: Box<ProblemError>, remedy: &'static str },
    #[error("{origin}: kernel {kernel} does not fit op {index} ({op}): {why}")]
    Misfit { origin: String, kernel: String, op: &'static str, index: usize, why: String },
    #[error("what draws tokens writes a buffer of the program or a page: this is a bug, report it")]
    Draws,
    #[error("op {index} ({op}) has no launch, and that of the op before it cannot do its work")]
    Unlaunched { op: &'static str, index: usize },
    #[error("op {index} ({op}) runs {launches} launches; an op has one launch, and attention one or two")]
    Launches { op: &'static str, index: usize, launches: usize },
    #[error("{folder}: it was prepared for another {what} ({found}, here {wanted}); run `vosti prepare` for this one")]
    Foreign { folder: String, what: &'static str, found: String, wanted: String },
    #[error("{folder} is no bundle: it has no {file}; run `vosti prepare`")]
    NoBundle { folder: String, file: &'static str },
    #[error("{folder} is a damaged bundle: {why}; run `vosti prepare`")]
    Damaged { folder: String, why: String },
    #[error("{folder} was prepared for {found}, and this device is {wanted}; {}", instead(wanted))]
    Target { folder: String, found: String, wanted: String },
    #[error("{kernel} is not compiled for {target}")]
    Uncompiled { kernel: String, target: String },
    #[error("{} exists; give another folder, or --force to replace a bundle", path.display())]
    Exists { path: PathBuf },
    #[error("{} exists and is not a bundle; give another folder", path.display())]
    NotABundle { path: PathBuf },
    #[error("{} is no name for a bundle; give a folder that does not exist yet", path.display())]
    Unnamed { path: PathBuf },
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
}

/// What to do with a bundle for another target.
fn instead(wanted: &str) -> String {
    let prepare = format!("run `vosti prepare --target {wanted}`");
    if wanted == CPU { format!("give --device cuda to run it on a GPU, or {prepare}") } else { prepare }
}
