//! What every developer command needs: the repository's folders, other programs, and a Python with the tools.

pub mod packages;
pub mod python;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository").to_path_buf()
}

/// The folder in which cargo builds.
pub fn target_folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |given| root().join(given))
}

/// Runs a command in the repository's root and shows its output. An error, which names the command, if it does not start or
/// does not succeed.
pub fn run_command(command: &mut Command) -> anyhow::Result<()> {
    let shown = format!("{:?}", command).replace('"', "");
    let status = command.current_dir(root()).status().map_err(|e| anyhow::anyhow!("{shown}: {e}"))?;
    anyhow::ensure!(status.success(), "{shown}: {status}");
    Ok(())
}

/// How a command of a person ends: an error is one line.
pub fn ended(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}
