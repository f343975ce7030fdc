//! `cargo xtask filetests`: makes the TTIR of the verifier's file tests that have none, or one of another source, and keeps
//! all texts in `filetests/texts.ttir`.
//!
//! A broken kernel is written out as `filetests/broken/NAME.py` with its text beside it, which git ignores, so that
//! `vosti verify` can take it. Read next: `vosti_test_tools::filetests`.

use anyhow::{Context, Result, anyhow, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use vosti_test_tools::filetests::{self, FileTest, TEXTS};
use vosti_verify::{Case, ProblemError};
use xtask::{python, root, run_command};

/// Makes the texts that are missing or stale and those of the named kernels. If one cannot be made, no text is kept.
pub fn run(names: &[String]) -> Result<()> {
    let tests = filetests::read().map_err(|why| anyhow!(why))?;
    let unknown: Vec<&String> = names.iter().filter(|name| tests.iter().all(|test| test.name != **name)).collect();
    ensure!(unknown.is_empty(), "filetests/ has no kernel named {unknown:?}");
    let wanted = |test: &&FileTest| stale(test) || names.contains(&test.name);
    let made = make(tests.iter().filter(wanted).collect())?;
    let kept = tests.iter().map(|test| (test.key(), test.ttir.clone()));
    let texts: BTreeMap<String, String> = kept.chain(made.iter().cloned()).collect();
    let (file, new) = (root().join(TEXTS), root().join(format!("{TEXTS}.new")));
    fs::write(&new, filetests::packed(&texts))?;
    fs::rename(new, file)?;
    println!("{TEXTS} has {} texts, {} of them made now", texts.len(), made.len());
    made.iter().take(SHOWN).for_each(|(key, _)| println!("  vosti verify filetests/{key}"));
    Ok(())
}

/// So many kernels are printed.
const SHOWN: usize = 20;

fn stale(test: &FileTest) -> bool {
    let case = Case::of(&test.path(), test.source.clone(), test.ttir.clone());
    matches!(case.problem, Err(ProblemError::Untied { .. }))
}

/// The key and the text of each of these, from Triton's front end.
fn make(tests: Vec<&FileTest>) -> Result<Vec<(String, String)>> {
    if tests.is_empty() {
        return Ok(vec![]);
    }
    for test in tests.iter().filter(|test| test.folder == "broken") {
        fs::write(test.path(), &test.source)?;
    }
    let mut script = Command::new(python::interpreter()?);
    script.arg("-B").arg(root().join("filetests/make.py")).args(tests.iter().map(|test| test.path()));
    run_command(&mut script)?;
    let text = |test: &FileTest| {
        let path = test.path().with_extension("ttir");
        Ok((test.key(), fs::read_to_string(&path).with_context(|| path.display().to_string())?))
    };
    tests.into_iter().map(text).collect()
}
