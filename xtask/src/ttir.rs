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
    replace(&specs.iter().map(|spec| format!("{spec}.ttir")).collect(), &folder, &fresh)?;
    println!("{} specialisations, {} of them new or changed or removed", specs.len(), stale.len());
    Ok(())
}

/// Makes `folder` hold exactly these files of `fresh`. An interruption leaves each file whole, old or new, and the next run
/// does the rest.
fn replace(names: &BTreeSet<String>, folder: &Path, fresh: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    for name in names {
        let new = folder.join(format!("{name}.new"));
        fs::copy(fresh.join(name), &new)?;
        fs::rename(new, folder.join(name))?;
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !names.contains(entry.file_name().to_string_lossy().as_ref()) {
            fs::remove_file(entry.path())?;
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_replaced_and_stale_ones_removed_and_all_stay_if_a_new_one_is_missing() {
        let base = std::env::temp_dir().join(format!("vosti-xtask-ttir-{}", std::process::id()));
        let (folder, fresh) = (base.join("ttir"), base.join("fresh"));
        let names = |list: &[&str]| list.iter().map(|name| name.to_string()).collect::<BTreeSet<String>>();
        let there = || {
            let all = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
            all.map(|name| (fs::read_to_string(folder.join(&name)).unwrap(), name)).collect::<BTreeSet<_>>()
        };
        let pairs = |list: &[(&str, &str)]| list.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
        fs::create_dir_all(&folder).unwrap();
        fs::create_dir_all(&fresh).unwrap();
        for (name, text) in [("a.ttir", "1"), ("b.ttir", "1"), ("b.ttir.new", "half")] {
            fs::write(folder.join(name), text).unwrap();
        }
        fs::write(fresh.join("a.ttir"), "2").unwrap();
        let outcome = replace(&names(&["a.ttir", "c.ttir"]), &folder, &fresh);
        assert!(outcome.is_err(), "c.ttir is missing");
        let kept: BTreeSet<(String, String)> = pairs(&[("2", "a.ttir"), ("1", "b.ttir"), ("half", "b.ttir.new")]);
        assert_eq!(there(), kept);
        replace(&names(&["a.ttir"]), &folder, &fresh).unwrap();
        assert_eq!(there(), pairs(&[("2", "a.ttir")]));
        fs::remove_dir_all(base).unwrap();
    }
}
