//! `cargo xtask ttir`: the TTIR texts of every specialisation that any model configuration needs.
//!
//! The list comes from the model families, the text from Triton's front end (`kernels/ttir.py`). With
//! `--check` nothing is written: what would be is compared with what is checked in.

use crate::{python, root};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use vosti_kernels::Spec;

/// Targets whose TTIR is checked in, and the configurations of each; none named: all of the inventory.
///
/// Each specialisation is proved in CI, so a GPU target has the models that `docs/gpu.md` is about, and the one that tests run.
const TARGETS: [(&str, &[&str]); 2] = [
    ("cpu", &[]),
    (
        "cuda-sm90",
        &[
            "gemma-3-12b-bf16",
            "gemma-3-27b-bf16",
            "gemma-3-4b-bf16",
            "gemma-4-12b-bf16",
            "gemma-4-31b-bf16",
            "llama-3.1-8b-bf16",
            "llama-3.2-3b-bf16",
            "smollm2-135m-bf16",
        ],
    ),
];

/// Writes `kernels/ttir/`, or compares it.
pub fn run(check: bool) -> Result<()> {
    let mut specs = BTreeSet::new();
    for (target, names) in TARGETS {
        let mut inventory = vosti_model::inventory(target)?;
        let known: BTreeSet<String> = inventory.iter().map(|(name, _)| name.clone()).collect();
        let missing = names.iter().find(|name| !known.contains(**name));
        ensure!(missing.is_none(), "{target}: no configuration is called {missing:?}");
        inventory.retain(|(name, _)| names.is_empty() || names.contains(&name.as_str()));
        specs.extend(inventory.into_iter().flat_map(|(_, list)| list).map(|spec| spec.text()));
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

/// Files that are missing, differ or are no longer needed; and how many are as they should be.
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
