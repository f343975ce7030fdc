//! The Python that tests of compiled kernels use.

use std::path::{Path, PathBuf};
use std::process::Command;
use vosti_cuda::toolchain::REQUIREMENT;

/// One with the pinned Triton: `VOSTI_PYTHON`, what `cargo xtask python` made, or python3.
pub fn python() -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let folders = [std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from), Some(own)];
    let made = folders.into_iter().flatten().map(|target| target.join("python/bin/python"));
    let given = std::env::var_os("VOSTI_PYTHON").map(PathBuf::from);
    let (package, version) = REQUIREMENT.split_once("==").unwrap();
    let check = format!("import {package}; assert {package}.__version__ == '{version}'");
    let fits = |python: &PathBuf| Command::new(python).args(["-c", &check]).output().is_ok_and(|o| o.status.success());
    let found = given.into_iter().chain(made).chain(["python3".into()]).find(fits);
    if found.is_none() {
        println!("skipped: no Python with {REQUIREMENT}; run `cargo xtask python`");
    }
    found
}
