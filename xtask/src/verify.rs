//! `cargo xtask verify`: checks the core's proof with Verus where it is installed, and compares the proof receipt with the
//! sources. Read next: `mutants.rs`, which measures the proof's worth.
//!
//! Cargo's cache does not see Verus' arguments, and an unchanged crate prints nothing. So this command keeps a target folder
//! for one set of arguments, deletes the core's part of it before each run, and demands the core's own result line with
//! exactly as many obligations as the sources have. An exit code of 0 alone proves nothing.
//!
//! This command notices an edited receipt with or without the verifier, because every field follows from the sources,
//! `Cargo.lock` and this file. A machine without Verus must believe that Verus verified these sources, and how many clauses
//! `verify-statement` found to be used.

use crate::statement::Tried;
use crate::{root, target_folder};
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use std::{env, fmt, fs};

/// The release that users install; its vstd is pinned in Cargo.toml.
pub const VERUS: &str = "0.2026.06.07.cd03505";
const ARGUMENTS: [&str; 2] = ["--no-cheating", "--no-external-by-default"];
/// The theorems. Another proof or the statement suite uses each of them, so a hollow theorem makes that fail.
const THEOREMS: [&str; 15] = [
    "theorem_deterministic",
    "corollary_one_execution",
    "corollary_resumed",
    "corollary_read_alike",
    "theorem_step",
    "corollary_step_rows_alike",
    "theorem_tenants_apart",
    "theorem_progress",
    "theorem_completes",
    "corollary_first_record",
    "theorem_preemption_heals",
    "theorem_prefix_attaches",
    "corollary_first_block_is_shared",
    "theorem_forward",
    "theorem_told",
];
const GAVE_UP: &str = "Resource limit (rlimit) exceeded";
const RECEIPT: &str = "crates/vosti-core/proof-receipt.json";

/// The proof receipt: which sources were verified, with how many obligations.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Receipt {
    made_by: String,
    verus: String,
    /// The version of the verifier's library, whose proofs and assumptions the proof uses.
    vstd: String,
    arguments: Vec<String>,
    /// BLAKE3 of the core's manifest and sources.
    sources: String,
    /// The number of obligations of the sources, all of them verified.
    verified: usize,
    errors: usize,
    lines: Lines,
    /// How far `verify-statement` came with this statement, by its notes.
    statement: Tried,
}

/// Lines of the core by folder, without comments and blank lines.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Lines {
    /// `trusted/` except the seam: the promises to clients and to kernels, and their terms.
    spec: usize,
    /// `trusted/seam.rs`: the assumptions.
    trusted: usize,
    /// `proof/` and `invariant.rs`.
    proof: usize,
    /// The code that runs, with its contracts.
    exec: usize,
}

/// Verifies the core if Verus is installed, and writes the receipt. With `check` the receipt is compared instead of written.
/// Without Verus only the receipt is compared, and `prove` makes that an error.
pub fn run(check: bool, prove: bool) -> Result<()> {
    let core = root().join("crates/vosti-core");
    let expected = expected(&core)?;
    if !installed()? {
        ensure!(!prove, "Verus {VERUS} is not on PATH: install it, or leave out --prove to compare the receipt alone");
        check_receipt(&expected)?;
        println!(
            "core proof: Verus {VERUS} is not on PATH, so only the receipt was compared; it is of these sources: {} \
             obligations, all verified",
            expected.verified
        );
        return Ok(());
    }
    let start = Instant::now();
    let outcome = verify(&root(), &target(), &[])?;
    let Outcome::Verified { verified, errors, .. } = outcome else { bail!("the core does not verify: {outcome:?}") };
    println!("core proof: {verified} verified, {errors} errors in {:.0} s", start.elapsed().as_secs_f64());
    let Lines { spec, trusted, proof, exec } = &expected.lines;
    println!("core lines: {spec} spec, {trusted} trusted, {proof} proof, {exec} exec with contracts");
    println!("statement: {}", expected.statement);
    ensure!(errors == 0, "expected 0 errors");
    let counted = expected.verified;
    ensure!(verified == counted, "the sources have {counted} obligations, and Verus verified {verified}");
    if check { check_receipt(&expected) } else { write(&expected) }
}

fn write(receipt: &Receipt) -> Result<()> {
    Ok(fs::write(root().join(RECEIPT), serde_json::to_string_pretty(receipt)? + "\n")?)
}

/// Notes in the receipt how far the statement of these sources was tried.
pub fn note_tried(survivors: Vec<String>) -> Result<()> {
    write(&Receipt { statement: Tried::of_these_sources(survivors)?, ..noted()? })
}

/// The receipt as it is.
fn noted() -> Result<Receipt> {
    let text = fs::read_to_string(root().join(RECEIPT)).context(RECEIPT)?;
    serde_json::from_str(&text).context(RECEIPT)
}

/// The receipt that these sources have if all their obligations are verified. An error if a theorem is missing.
fn expected(core: &Path) -> Result<Receipt> {
    let texts = texts(core)?;
    for theorem in THEOREMS {
        let stated = format!("proof fn {theorem}");
        ensure!(texts.iter().any(|(_, text)| text.contains(&stated)), "{theorem} is gone");
    }
    Ok(Receipt {
        made_by: "cargo xtask verify".into(),
        verus: VERUS.into(),
        vstd: vstd(&fs::read_to_string(root().join("Cargo.lock"))?)?,
        arguments: ARGUMENTS.map(String::from).into(),
        sources: digest(core)?,
        verified: texts.iter().map(|(_, text)| obligations(text)).sum(),
        errors: 0,
        lines: count(&texts),
        statement: Tried::of_these_sources(noted()?.statement.survivors())?,
    })
}

fn check_receipt(expected: &Receipt) -> Result<()> {
    let receipt = noted()?;
    ensure!(receipt == *expected, "{RECEIPT} is not of these sources; run `cargo xtask verify` with Verus {VERUS}");
    Ok(())
}

/// The version of vstd that the workspace is locked to.
fn vstd(lock: &str) -> Result<String> {
    let found = lock.split("[[package]]").find(|package| package.contains("name = \"vstd\"\n"));
    let version = found.and_then(|package| package.lines().find_map(|line| line.strip_prefix("version = ")));
    Ok(version.context("Cargo.lock has no vstd")?.trim_matches('"').into())
}

/// How many obligations a source has, as Verus counts them: functions and proofs with a body, recursive specifications, loops,
/// constants, derived clones, and assertions `by (nonlinear_arith)`, which a solver of their own proves.
fn obligations(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.starts_with("//")).collect();
    let of = |(i, line): (usize, &&str)| {
        let mut item = *line;
        for prefix in ["pub(crate) ", "pub ", "open(crate) ", "open ", "closed "] {
            item = item.strip_prefix(prefix).unwrap_or(item);
        }
        let ends = |line: &&&str| line.ends_with('{') || line.ends_with(';');
        let length = lines[i..].iter().take_while(|line| !ends(line)).count() + 1;
        let signature = &lines[i..lines.len().min(i + length)];
        if item.starts_with("spec fn ") {
            signature.iter().any(|line| line.starts_with("decreases"))
        } else if item.starts_with("fn ") || item.starts_with("proof fn ") {
            signature.last().is_some_and(|line| line.ends_with('{'))
        } else {
            item.starts_with("while ")
                || item.starts_with("const ")
                || item.contains("derive(Clone")
                || item.contains("by (nonlinear_arith)")
        }
    };
    lines.iter().enumerate().filter(|line| of(*line)).count()
}

/// The outcome of running Verus on the core.
#[derive(Debug)]
pub enum Outcome {
    Verified {
        verified: usize,
        errors: usize,
        failures: Vec<Failure>,
    },
    /// The solver gave up at an obligation; these others fail.
    GaveUp {
        failures: Vec<Failure>,
    },
    Broken(String),
}

/// An obligation that does not hold: the verifier's message, and the line of source that it points at.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    message: String,
    source: String,
    /// The file, from the workspace's root, and the line of the function that has not been proved.
    place: (String, usize),
}

impl Failure {
    pub fn place(&self) -> (&str, usize) {
        (&self.place.0, self.place.1)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.message, self.source)
    }
}

/// The failures that Verus printed: `error: MESSAGE`, then `--> FILE:LINE:COLUMN` with a file of the workspace. If that is a
/// postcondition that a trait asks for in another file, `::: FILE:LINE:COLUMN` is the function that does not hold it.
fn failures(workspace: &Path, text: &str) -> Vec<Failure> {
    let lines: Vec<&str> = text.lines().collect();
    let place = |line: &str, arrow: &str| {
        let mut parts = line.trim().strip_prefix(arrow)?.split(':');
        Some((parts.next()?.to_string(), parts.next()?.parse::<usize>().ok()?))
    };
    let failure = |at: usize| {
        let message = lines[at].strip_prefix("error: ")?;
        let (file, line) = place(lines.get(at + 1)?, "--> ")?;
        let text = fs::read_to_string(workspace.join(&file)).ok()?;
        let rest = lines[at + 2..].iter().take_while(|line| !line.starts_with("error") && !line.starts_with("note: "));
        let asked = message.starts_with("postcondition");
        let body = rest.filter(|_| asked).find_map(|line| place(line, "::: "));
        let source = named(&text, line)?;
        Some(Failure { message: message.into(), source, place: body.unwrap_or((file, line)) })
    };
    (0..lines.len()).filter_map(failure).collect()
}

/// A line of a source. A line that only opens a block says nothing by itself, so the function in which it stands comes first.
fn named(text: &str, line: usize) -> Option<String> {
    let upto: Vec<&str> = text.lines().take(line).collect();
    let last = upto.get(line.checked_sub(1)?)?.trim();
    if last.contains(char::is_alphanumeric) {
        return Some(last.into());
    }
    let signature = upto.iter().rev().find_map(|line| line.split_once("fn "))?.1;
    Some(format!("{}: {last}", signature.split(['<', '(']).next()?))
}

/// Where Verus keeps what it made of vstd and the core.
pub fn target() -> PathBuf {
    target_folder().join("verus")
}

/// Runs Verus on the core of a workspace, whatever cargo's cache believes.
pub fn verify(workspace: &Path, target: &Path, extra: &[&str]) -> Result<Outcome> {
    forget(target)?;
    // One stream, so that a result line stands after the crate it is of: vstd has a line of its own.
    let mut command = Command::new("sh");
    command.args(["-c", "exec cargo verus verify --fwd-verus-args-to roots -- \"$@\" 2>&1", "verus"]);
    command.args(ARGUMENTS).args(extra);
    command.current_dir(workspace.join("crates/vosti-core")).env("CARGO_TARGET_DIR", target);
    let result = command.output().context("cargo verus")?;
    let text = String::from_utf8_lossy(&result.stdout).into_owned();
    let own = text.rfind("Checking vosti-core ").map_or("", |at| &text[at..]);
    let line = own.lines().find_map(|line| line.trim().strip_prefix("verification results::"));
    let gave_up = text.contains(GAVE_UP);
    let Some(line) = line else {
        forget(target)?;
        return Ok(Outcome::Broken(text));
    };
    let number = |word: usize| line.split_whitespace().nth(word).and_then(|n| n.parse::<usize>().ok());
    let (Some(verified), Some(errors)) = (number(0), number(2)) else { bail!("unknown result line: {line}") };
    let mut failures = failures(workspace, &text);
    if gave_up {
        failures.retain(|failure| !failure.message.contains(GAVE_UP));
        return Ok(Outcome::GaveUp { failures });
    }
    if errors > 0 && workspace == root() {
        eprintln!("{text}");
    }
    ensure!(errors > 0 || result.status.success(), "cargo verus failed:\n{text}");
    Ok(Outcome::Verified { verified, errors, failures })
}

/// Makes cargo verify the core again: removes cargo's fingerprints of it.
fn forget(target: &Path) -> Result<()> {
    for profile in fs::read_dir(target).into_iter().flatten().flatten() {
        for entry in fs::read_dir(profile.path().join(".fingerprint")).into_iter().flatten() {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vosti-core-")) {
                fs::remove_dir_all(path)?;
            }
        }
    }
    Ok(())
}

pub fn installed() -> Result<bool> {
    let found = env::split_paths(&env::var_os("PATH").unwrap_or_default()).any(|dir| dir.join("cargo-verus").is_file());
    if !found {
        return Ok(false);
    }
    let version = Command::new("verus").arg("--version").output();
    let text = version.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default();
    ensure!(text.contains(VERUS), "cargo-verus on PATH is not Verus {VERUS}: {}", text.trim());
    Ok(true)
}

/// The core's manifest and sources, by path, as one hash.
fn digest(core: &Path) -> Result<String> {
    let mut files = vec![core.join("Cargo.toml")];
    rust_files(&core.join("src"), &mut files)?;
    files.sort();
    let mut hash = blake3::Hasher::new();
    for file in files {
        let name = file.strip_prefix(core)?.to_string_lossy().into_owned();
        let text = fs::read(&file)?;
        hash.update(name.as_bytes()).update(&[0]).update(&(text.len() as u64).to_le_bytes()).update(&text);
    }
    Ok(hash.finalize().to_hex().to_string())
}

pub fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            rust_files(&path, files)?;
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// The sources below `src`, by path.
fn texts(core: &Path) -> Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    rust_files(&core.join("src"), &mut files)?;
    let text = |file: &PathBuf| {
        let name = file.strip_prefix(core.join("src"))?.to_string_lossy().into_owned();
        Ok((name, fs::read_to_string(file)?))
    };
    files.iter().map(text).collect()
}

fn count(texts: &[(String, String)]) -> Lines {
    let mut lines = Lines { spec: 0, trusted: 0, proof: 0, exec: 0 };
    for (name, text) in texts {
        let code = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count();
        let room = match name.as_str() {
            "trusted/seam.rs" => &mut lines.trusted,
            name if name.starts_with("trusted/") => &mut lines.spec,
            "invariant.rs" => &mut lines.proof,
            name if name.starts_with("proof/") => &mut lines.proof,
            _ => &mut lines.exec,
        };
        *room += code;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// This tests the counting on a small text. With Verus, `run` compares the count with Verus' own.
    #[test]
    fn obligations_are_counted_as_the_verifier_counts_them() {
        let text = "pub const A: u32 = 1;\n#[derive(Clone, Copy)]\nstruct S;\npub open(crate) spec fn flat(x: int) -> int {\n    x\n}\n\
            spec fn deep(n: nat) -> nat\n    decreases n,\n{\n    n\n}\nproof fn lemma(x: int)\n    ensures true,\n{\n}\n\
            trait T {\n    fn promised(&self)\n        ensures true;\n    spec fn named(&self) -> int;\n}\n\
            // fn spoken_of() {\npub(crate) fn runs() -> u32 {\n    while false\n        decreases 0int,\n    {\n    }\n    \
            assert(x * y >= 0) by (nonlinear_arith)\n        requires x >= 0, y >= 0;\n    1\n}\n";
        assert_eq!(obligations(text), 7);
    }

    #[test]
    fn an_obligation_is_named_by_its_line_or_by_its_function() {
        let text = "proof fn lemma_a<S: Sampler>(x: int)\n    ensures\n        x == x,\n        ({\n            true\n        }),\n{\n}\n";
        assert_eq!(named(text, 3).unwrap(), "x == x,");
        assert_eq!(named(text, 4).unwrap(), "lemma_a: ({");
        assert!(named(text, 0).is_none() && named(text, 99).is_none());
    }

    #[test]
    fn a_postcondition_of_a_trait_fails_in_the_function_that_does_not_hold_it() {
        let [seam, device] =
            ["trusted/seam.rs", "proof/symbolic.rs"].map(|file| format!("crates/vosti-core/src/{file}"));
        let said = |message: &str| {
            format!("error: {message}\n   --> {seam}:90:13\n    |\n   ::: {device}:91:10\n    |\n\nerror: another\n")
        };
        let places =
            |message| failures(&root(), &said(message)).iter().map(|f| f.place().0.to_string()).collect::<Vec<_>>();
        assert_eq!(places("postcondition not satisfied"), std::slice::from_ref(&device));
        assert_eq!(places("precondition not satisfied"), std::slice::from_ref(&seam));
    }

    #[test]
    fn a_receipt_that_was_edited_is_noticed() {
        let receipt = expected(&root().join("crates/vosti-core")).unwrap();
        check_receipt(&receipt).unwrap();
        let text = serde_json::to_value(&receipt).unwrap();
        let mut pointers = vec![String::new()];
        let mut edited = 0;
        while let Some(pointer) = pointers.pop() {
            let mut edit = text.clone();
            match edit.pointer_mut(&pointer).unwrap() {
                Value::Object(fields) => pointers.extend(fields.keys().map(|name| format!("{pointer}/{name}"))),
                Value::Array(items) => pointers.extend((0..items.len()).map(|i| format!("{pointer}/{i}"))),
                leaf => {
                    *leaf = leaf.as_u64().map_or(json!("another"), |n| json!(n + 1));
                    let edit: Receipt = serde_json::from_value(edit).unwrap();
                    assert!(check_receipt(&edit).is_err(), "{pointer}");
                    edited += 1;
                }
            }
        }
        assert_eq!(edited, 15, "a field was not edited");
        let mut short = receipt;
        short.arguments.pop();
        assert!(check_receipt(&short).is_err());
    }

    #[test]
    fn the_lock_names_vstd() {
        let lock =
            "[[package]]\nname = \"vstd_x\"\nversion = \"1\"\n\n[[package]]\nname = \"vstd\"\nversion = \"0.2\"\n";
        assert_eq!(vstd(lock).unwrap(), "0.2");
        assert!(vstd("").is_err());
    }
}
