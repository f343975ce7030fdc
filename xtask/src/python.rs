//! A Python environment with the pinned packages of `xtask/requirements.txt`, made under `target/`.
//!
//! Only developer commands and tests need it (TTIR from Triton's front end, reference values). Packages come from the index
//! for which the user's pip is configured.

use crate::{root, run_command, target_folder};
use anyhow::{Context, Result};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// The environment's interpreter; makes the environment first if it is missing or its requirements changed.
pub fn interpreter() -> Result<PathBuf> {
    let wanted = fs::read_to_string(root().join("xtask/requirements.txt")).context("xtask/requirements.txt")?;
    let target = target_folder();
    let folder = target.join("python");
    let python = folder.join("bin/python");
    let stamp = folder.join("installed.txt");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(python);
    }
    fs::create_dir_all(&target)?;
    run_command(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))
        .context("making a Python environment needs python3 with its venv module")?;
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", "xtask/requirements.txt"];
    run_command(Command::new(&python).args(install))?;
    fs::write(stamp, wanted)?;
    Ok(python)
}
