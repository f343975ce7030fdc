//! `cargo xtask wheel`: builds the Python package as a wheel, and tests it in an environment of its own.

use crate::{root, run_command, target_folder};
use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGE: &str = "crates/vosti-python";
/// The kernel verifier alone, as a program.
const VERIFIER: &str = "crates/vosti-audit";
/// Packages that the tests need; for users they are optional.
const TOOLS: [&str; 2] = ["httpx", "ray[serve]==2.60.0; python_version >= '3.10'"];
/// The linker of a wheel for other machines.
pub const LINKER: &str = "ziglang==0.17.1";

#[derive(clap::Args)]
pub struct Wheel {
    /// For any Linux with glibc 2.28 or newer and not for this machine's alone; installs the linker zig under target/
    #[arg(long, conflicts_with = "test")]
    manylinux: bool,
    /// Builds with the profile of tests, and runs the package's tests in an environment of its own
    #[arg(long)]
    test: bool,
    /// Builds `vosti-verify`, the kernel verifier without the engine, under target/wheels-verify
    #[arg(long, conflicts_with_all = ["test", "manylinux"])]
    verifier: bool,
}

pub fn run(options: &Wheel) -> Result<()> {
    if options.test {
        return test();
    }
    let wheel = match options {
        Wheel { verifier: true, .. } => build(VERIFIER, "wheels-verify", "", &[])?,
        Wheel { manylinux: true, .. } => manylinux()?,
        _ => own()?,
    };
    println!("{}", wheel.display());
    Ok(())
}

/// Builds a wheel for this machine.
pub fn own() -> Result<PathBuf> {
    build(PACKAGE, "wheels", "", &[])
}

/// Builds a wheel that needs no newer symbol than those of glibc 2.28. maturin checks it.
pub fn manylinux() -> Result<PathBuf> {
    let python = environment("zig-python", &[LINKER.as_ref()])?;
    build(PACKAGE, "wheels", "--zig --compatibility manylinux_2_28", &[("CARGO_ZIGBUILD_PYTHON_PATH", &python)])
}

/// Builds the wheel with the profile of the other tests, and runs the package's tests.
pub fn test() -> Result<()> {
    let wheel = build(PACKAGE, "wheels-dev", "--profile dev", &[])?;
    let packages: Vec<&OsStr> = [wheel.as_os_str()].into_iter().chain(TOOLS.map(OsStr::new)).collect();
    let python = environment("wheel-python", &packages)?;
    // The tests of `vosti.client` start this server.
    run_command(Command::new(env!("CARGO")).args(["build", "--package", "vosti"]))?;
    let command = target_folder().join("debug/vosti");
    let tests = root().join(PACKAGE).join("tests");
    let mut unittest = Command::new(&python);
    unittest.args(["-m", "unittest", "discover", "-v", "-s"]).arg(tests);
    run_command(unittest.env("VOSTI_BIN", command))
}

/// A new Python environment under `target/` with these packages: its interpreter.
pub fn environment(name: &str, packages: &[&OsStr]) -> Result<PathBuf> {
    let folder = target_folder().join(name);
    run_command(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
    let python = folder.join("bin/python");
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    run_command(Command::new(&python).args(install).args(packages))?;
    Ok(python)
}

/// Builds a package into a folder under `target/` that holds the wheel alone, and returns the wheel's path. pip fetches maturin, which gets `flags`.
fn build(package: &str, name: &str, flags: &str, variables: &[(&str, &Path)]) -> Result<PathBuf> {
    let folder = target_folder().join(name);
    // Where maturin writes before pip copies. Its default is `target/wheels`, for the wheel of any profile.
    let written = target_folder().join("wheels-written");
    let settings = format!("--config-settings=build-args=--out '{}' {flags}", written.display());
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    // Without its cache, in which pip may have the wheel of an earlier build.
    let arguments = ["-m", "pip", "wheel", "--no-cache-dir", "--disable-pip-version-check", "--no-deps", "--wheel-dir"];
    let mut pip = Command::new("python3");
    run_command(
        pip.args(arguments).arg(&folder).arg(settings).arg(root().join(package)).envs(variables.iter().copied()),
    )
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
