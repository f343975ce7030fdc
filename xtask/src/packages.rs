//! Python packages whose kernels are audited: `audits/packages.txt` pins them, pip fetches them once, and their Python files are kept
//! under `target/`. Nothing of them is checked in.

use crate::{python, root, run_command, target_folder};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, process};

/// The requirements for pip: a version and the hash of its wheel.
const PINNED: &str = "audits/packages.txt";

/// A package by pip's name, and its version.
pub struct Package {
    /// As pip and the folders have it.
    pub name: String,
    /// The one that is pinned.
    pub version: String,
}

/// The packages in the order of their names.
pub fn packages() -> Result<Vec<Package>> {
    let text = fs::read_to_string(root().join(PINNED)).context(PINNED)?;
    let package = |line: &str| {
        let (name, rest) = line.split_once("==")?;
        Some(Package { name: name.to_string(), version: rest.split_whitespace().next()?.to_string() })
    };
    Ok(text.lines().filter_map(package).collect())
}

/// Writes the Python files of a wheel to a folder.
const UNPACK: &str = "import sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
wheel.extractall(sys.argv[2], [name for name in wheel.namelist() if name.endswith('.py')])";

/// The folder with a folder for each package; fetches them first if one is missing or the list changed.
pub fn sources() -> Result<PathBuf> {
    let folder = target_folder().join("audits");
    let wanted = fs::read_to_string(root().join(PINNED)).context(PINNED)?;
    if fs::read_to_string(folder.join("fetched.txt")).is_ok_and(|fetched| fetched == wanted) {
        return Ok(folder);
    }
    // A folder of this process's own, because another process may fetch at the same time.
    let partial = folder.with_extension(format!("partial-{}", process::id()));
    for stale in [&folder, &partial] {
        fs::remove_dir_all(stale).ok();
    }
    let wheels = partial.join("wheels");
    fs::create_dir_all(&wheels).with_context(|| wheels.display().to_string())?;
    let python = python::interpreter()?;
    let mut download = Command::new(&python);
    download.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    download.args(["--only-binary", ":all:", "--python-version", "3.11"]);
    download.args(["--platform", "manylinux_2_34_x86_64", "--platform", "manylinux_2_28_x86_64"]);
    run_command(download.args(["--require-hashes", "-r", PINNED, "--dest"]).arg(&wheels))?;
    for package in packages()? {
        let wheel = wheel(&wheels, &package)?;
        run_command(Command::new(&python).args(["-c", UNPACK]).arg(&wheel).arg(partial.join(&package.name)))?;
    }
    fs::remove_dir_all(&wheels)?;
    fs::write(partial.join("fetched.txt"), wanted)?;
    fs::rename(&partial, &folder).with_context(|| format!("{} to {}", partial.display(), folder.display()))?;
    Ok(folder)
}

fn wheel(folder: &Path, package: &Package) -> Result<PathBuf> {
    let start = format!("{}-{}-", package.name.replace('-', "_"), package.version);
    let mut files = fs::read_dir(folder)?.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    files
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&start)))
        .with_context(|| format!("pip downloaded no {start}"))
}
