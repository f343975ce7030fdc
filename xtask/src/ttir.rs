//! `cargo xtask ttir`: makes the TTIR texts that models of the supported families need.
//!
//! The list comes from the model families, the texts from Triton's front end (`kernels/ttir.py`). With `--check` the command
//! compares fresh texts with the checked-in ones and writes none.

use crate::{python, root};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use vosti_kernels::Spec;

/// Targets whose TTIR is checked in. All GPU targets share the TTIR of one (`specialisations.toml`).
const TARGETS: [&str; 2] = ["cpu", "cuda-sm90"];

/// Writes `kernels/ttir/`, or compares it.
pub fn run(check: bool) -> Result<()> {
    let mut specs = BTreeSet::new();
    for target in TARGETS {
        specs.extend(vosti_model::inventory(target)?);
    }
    let specs: Vec<Spec> = specs.into_iter().collect();
    let folder = root().join("kernels/ttir");
    let fresh = root().join("target/ttir");
    fs::remove_dir_all(&fresh).ok();
    fs::create_dir_all(&fresh)?;
    generate(&specs, &fresh)?;
    let (stale, kept) = differences(&specs, &folder, &fresh)?;
    if check {
        ensure!(
            stale.is_empty(),
            "kernels/ttir is not what its sources give: run `cargo xtask ttir`\n{}",
            stale.join("\n")
        );
        println!("{kept} specialisations are fresh");
        return Ok(());
    }
    fs::remove_dir_all(&folder).ok();
    fs::create_dir_all(&folder)?;
    for spec in &specs {
        let name = format!("{spec}.ttir");
        fs::copy(fresh.join(&name), folder.join(&name))?;
    }
    println!("{} specialisations, {} of them new or changed or removed", specs.len(), stale.len());
    Ok(())
}

/// Runs Triton's front end.
fn generate(specs: &[Spec], into: &Path) -> Result<()> {
    let request = vosti_kernels::request(specs)?;
    let mut child = Command::new(python::interpreter()?)
        .arg("-B")
        .arg(root().join("kernels/ttir.py"))
        .arg(into)
        .stdin(Stdio::piped())
        .spawn()
        .context("starting Python")?;
    child.stdin.take().context("the pipe to Python")?.write_all(request.as_bytes())?;
    ensure!(child.wait()?.success(), "kernels/ttir.py failed");
    Ok(())
}

/// Names of files that are missing, differ or are not needed, and the number of files that are fresh.
fn differences(specs: &[Spec], folder: &Path, fresh: &Path) -> Result<(Vec<String>, usize)> {
    let names: BTreeSet<String> = specs.iter().map(|s| format!("{s}.ttir")).collect();
    let mut stale = vec![];
    for name in &names {
        if fs::read(folder.join(name)).ok() != Some(fs::read(fresh.join(name))?) {
            stale.push(format!("  {name}"));
        }
    }
    let kept = names.len() - stale.len();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".ttir") && !names.contains(&name) {
            stale.push(format!("  {name} (no model needs it)"));
        }
    }
    Ok((stale, kept))
}
