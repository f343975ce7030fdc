//! What every developer command needs: the repository's folders, other programs, and a Python with the tools.

pub mod packages;
pub mod python;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository").to_path_buf()
}

/// Refuses a program of another checkout. Cargo takes a copied target folder for its own and builds nothing, but what is in it has the
/// paths of the checkout that it was built in, and would read and write that one's files.
pub fn of_this_checkout() -> anyhow::Result<()> {
    same_checkout(env!("CARGO_MANIFEST_DIR"), std::env::var("CARGO_MANIFEST_DIR").ok().as_deref())
}

fn same_checkout(built: &str, runs: Option<&str>) -> anyhow::Result<()> {
    let Some(runs) = runs.filter(|runs| *runs != built) else { return Ok(()) };
    anyhow::bail!("this program was built in {built} and runs in {runs}: run `cargo clean`, and copy no target folder")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_another_checkout_is_refused() {
        of_this_checkout().unwrap();
        same_checkout("/a/xtask", None).unwrap();
        same_checkout("/a/xtask", Some("/a/xtask")).unwrap();
        let error = same_checkout("/a/xtask", Some("/b/xtask")).unwrap_err().to_string();
        assert!(error.contains("built in /a/xtask and runs in /b/xtask"), "{error}");
    }
}
