//! `cargo xtask wheel`: builds the Python package as a wheel, and tests it in an environment that has only the wheel.

use crate::{root, run_command, target_folder};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGE: &str = "crates/vosti-python";
/// Packages that the tests need; for users they are optional.
const TOOLS: [&str; 1] = ["httpx"];

#[derive(clap::Args)]
pub struct Wheel {
    /// Builds with the profile of tests, and runs the package's tests in an environment of its own
    #[arg(long)]
    test: bool,
}

pub fn run(options: &Wheel) -> Result<()> {
    if options.test {
        return test();
    }
    println!("{}", build("wheels", &[])?.display());
    Ok(())
}

/// Builds the wheel with the profile of the other tests, and runs the package's tests.
pub fn test() -> Result<()> {
    let wheel = build("wheels-dev", &["--config-settings=build-args=--profile dev"])?;
    let folder = target_folder().join("wheel-python");
    run_command(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
    let python = folder.join("bin/python");
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    run_command(Command::new(&python).args(install).arg(&wheel).args(TOOLS))?;
    // The tests of `vosti.client` start this server.
    run_command(Command::new(env!("CARGO")).args(["build", "--package", "vosti"]))?;
    let command = target_folder().join("debug/vosti");
    // Away from the sources, so that the tests import the installed package.
    let tests = root().join(PACKAGE).join("tests");
    let mut unittest = Command::new(&python);
    unittest.args(["-m", "unittest", "discover", "-v", "-s"]).arg(tests);
    run_command(unittest.env("VOSTI_BIN", command).current_dir(&folder))
}

/// Builds the wheel into a folder of its own and returns its path. pip fetches maturin for that.
fn build(name: &str, settings: &[&str]) -> Result<PathBuf> {
    let folder = target_folder().join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    // Without its cache, in which pip may have the wheel of an earlier build.
    let arguments = ["-m", "pip", "wheel", "--no-cache-dir", "--disable-pip-version-check", "--no-deps", "--wheel-dir"];
    let mut pip = Command::new("python3");
    run_command(pip.args(arguments).arg(&folder).args(settings).arg(root().join(PACKAGE)))
        .context("a wheel is built by python3 with pip")?;
    only_wheel(&folder)
}

fn only_wheel(folder: &Path) -> Result<PathBuf> {
    let files = fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    let wheels: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == "whl")).collect();
    match &wheels[..] {
        [wheel] => Ok(wheel.clone()),
        _ => bail!("{} holds {} wheels", folder.display(), wheels.len()),
    }
}
