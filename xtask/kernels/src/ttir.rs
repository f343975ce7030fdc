//! `cargo xtask ttir`: makes the TTIR texts that models of the supported families need.
//!
//! The list comes from the model families, the texts from Triton's front end (`kernels/ttir.py`). With `--check` the command
//! compares fresh texts with the checked-in ones and writes none.

use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use vosti_kernels::Spec;
use vosti_kernels::inventory::TEXT_OF;
use xtask::{python, root};

/// Targets whose TTIR is checked in. All GPU targets share the TTIR of one (`specialisations.toml`).
const TARGETS: [&str; 2] = ["cpu", "cuda-sm90"];

/// Texts by their stems, or files by their names.
type Texts = BTreeMap<String, String>;

/// Writes `kernels/ttir/`, or compares it.
pub fn run(check: bool) -> Result<()> {
    let mut specs = BTreeSet::new();
    for target in TARGETS {
        specs.extend(vosti_model::inventory(target)?);
    }
    let specs: Vec<Spec> = specs.into_iter().collect();
    let fresh = generate(&specs)?;
    let stems = vosti_kernels::ttir_stems().into_iter();
    let old = stems.filter_map(|stem| Some((stem.into(), vosti_kernels::ttir_by_stem(stem)?.into()))).collect();
    let stale = differences(&old, &fresh);
    if check {
        ensure!(
            stale.is_empty(),
            "kernels/ttir is not what its sources give: run `cargo xtask ttir`\n{}",
            stale.join("\n")
        );
        println!("{} specialisations are fresh", specs.len());
        return Ok(());
    }
    replace(&files(&fresh), &root().join("kernels/ttir"))?;
    println!("{} specialisations, {} of them new or changed or removed", specs.len(), stale.len());
    Ok(())
}

/// A file for each kernel, with the texts of its specialisations.
fn files(texts: &Texts) -> Texts {
    let mut files = Texts::new();
    for (stem, text) in texts {
        let kernel = stem.split('-').next().unwrap_or(stem);
        *files.entry(format!("{kernel}.ttir")).or_default() += &format!("{TEXT_OF}{stem}\n{text}");
    }
    files
}

/// Makes `folder` hold exactly these files. An interruption leaves each file whole, old or new, and the next run does the rest.
fn replace(files: &Texts, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    for (name, text) in files {
        let new = folder.join(format!("{name}.new"));
        fs::write(&new, text)?;
        fs::rename(new, folder.join(name))?;
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !files.contains_key(entry.file_name().to_string_lossy().as_ref()) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// The texts that Triton's front end gives.
fn generate(specs: &[Spec]) -> Result<Texts> {
    let into = root().join("target/ttir");
    fs::remove_dir_all(&into).ok();
    fs::create_dir_all(&into)?;
    let request = vosti_kernels::request(specs)?;
    let mut child = Command::new(python::interpreter()?)
        .arg("-B")
        .arg(root().join("kernels/ttir.py"))
        .arg(&into)
        .stdin(Stdio::piped())
        .spawn()
        .context("starting Python")?;
    child.stdin.take().context("the pipe to Python")?.write_all(request.as_bytes())?;
    ensure!(child.wait()?.success(), "kernels/ttir.py failed");
    let text = |spec: &Spec| Ok((spec.to_string(), fs::read_to_string(into.join(format!("{spec}.ttir")))?));
    specs.iter().map(text).collect()
}

/// Stems of texts that are missing, differ or are not needed.
fn differences(old: &Texts, fresh: &Texts) -> Vec<String> {
    let changed = fresh.iter().filter(|(stem, text)| old.get(*stem) != Some(text)).map(|(stem, _)| format!("  {stem}"));
    let gone = old.keys().filter(|stem| !fresh.contains_key(*stem)).map(|stem| format!("  {stem} (no model needs it)"));
    changed.chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(list: &[(&str, &str)]) -> Texts {
        list.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect()
    }

    #[test]
    fn a_file_holds_the_texts_of_one_kernel() {
        let made = files(&texts(&[("a-bf16-K2", "2\n"), ("a-bf16-K4", "4\n"), ("b-f32-K2", "b\n")]));
        let a = "// text of a-bf16-K2\n2\n// text of a-bf16-K4\n4\n";
        assert_eq!(made, texts(&[("a.ttir", a), ("b.ttir", "// text of b-f32-K2\nb\n")]));
        let all = vosti_kernels::ttir_stems().into_iter();
        let all: Texts = all.map(|stem| (stem.into(), vosti_kernels::ttir_by_stem(stem).unwrap().into())).collect();
        for (name, text) in files(&all) {
            assert!(fs::read_to_string(root().join("kernels/ttir").join(&name)).unwrap() == text, "{name}");
        }
    }

    #[test]
    fn what_is_missing_differs_or_is_not_needed_is_named() {
        let old = texts(&[("a", "1"), ("b", "1"), ("c", "1")]);
        let stale = differences(&old, &texts(&[("a", "1"), ("b", "2"), ("d", "1")]));
        assert_eq!(stale, ["  b", "  d", "  c (no model needs it)"]);
    }

    #[test]
    fn files_are_replaced_and_stale_ones_removed() {
        let folder = std::env::temp_dir().join(format!("vosti-xtask-ttir-{}", std::process::id()));
        let there = || {
            let all = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
            all.map(|name| (fs::read_to_string(folder.join(&name)).unwrap(), name)).collect::<BTreeSet<_>>()
        };
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in [("a.ttir", "1"), ("b.ttir", "1"), ("b.ttir.new", "half")] {
            fs::write(folder.join(name), text).unwrap();
        }
        replace(&texts(&[("a.ttir", "2")]), &folder).unwrap();
        assert_eq!(there(), BTreeSet::from([("2".to_string(), "a.ttir".to_string())]));
        fs::remove_dir_all(folder).unwrap();
    }
}
