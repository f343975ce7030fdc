//! `cargo xtask verify`: checks the core's proof with Verus where it is installed, and that the proof receipt is of
//! these sources. Read next: `mutants.rs`, what this proof is worth.
//!
//! Cargo's cache does not see Verus' arguments and an unchanged crate prints nothing, so this command keeps a
//! target folder for one set of arguments, forgets the core's part of it before each run, and wants the core's own
//! result line with a floor on its count: an exit code of 0 alone proves nothing.

use crate::bench::target_folder;
use crate::root;
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use std::{env, fmt, fs};

/// The release that users install; its vstd is pinned in Cargo.toml.
pub const VERUS: &str = "0.2026.06.07.cd03505";
const ARGUMENTS: [&str; 2] = ["--no-cheating", "--no-external-by-default"];
/// Fewer obligations than this and something was not verified.
const VERIFIED_MIN: usize = 200;
const RECEIPT: &str = "crates/vosti-core/proof-receipt.json";

/// What was proved of which sources.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Receipt {
    made_by: String,
    verus: String,
    arguments: Vec<String>,
    /// BLAKE3 of the core's manifest and sources.
    sources: String,
    verified: usize,
    errors: usize,
    lines: Lines,
}

/// Lines of the core by the room they stand in, comments and blank lines not counted.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Lines {
    /// `spec.rs` and `premises.rs`: what is promised to clients, and to kernels.
    spec: usize,
    /// `seam.rs`: what is assumed.
    trusted: usize,
    /// `proof/` and `invariant.rs`.
    proof: usize,
    /// The code that runs, with its contracts.
    exec: usize,
}

/// Verifies if Verus is there and writes the receipt (`check`: compares it instead).
pub fn run(check: bool) -> Result<()> {
    let core = root().join("crates/vosti-core");
    let sources = digest(&core)?;
    if !installed()? {
        let receipt = read_receipt()?;
        ensure!(
            receipt.sources == sources,
            "{RECEIPT} is of other sources; run `cargo xtask verify` with Verus {VERUS}"
        );
        let Receipt { verified, errors, .. } = receipt;
        println!(
            "core proof: Verus {VERUS} is not on PATH, so only the receipt was compared; it is of these sources: \
             {verified} verified, {errors} errors"
        );
        return Ok(());
    }
    let start = Instant::now();
    let outcome = verify(&root(), &[])?;
    let Outcome::Verified { verified, errors, .. } = outcome else { bail!("the core does not verify: {outcome:?}") };
    let lines = count(&core)?;
    println!("core proof: {verified} verified, {errors} errors in {:.0} s", start.elapsed().as_secs_f64());
    let Lines { spec, trusted, proof, exec } = &lines;
    println!("core lines: {spec} spec, {trusted} trusted, {proof} proof, {exec} exec with contracts");
    ensure!(errors == 0 && verified >= VERIFIED_MIN, "expected 0 errors and at least {VERIFIED_MIN} verified");
    ensure!(
        fs::read_to_string(core.join("src/proof/trace.rs"))?.contains("proof fn theorem_deterministic"),
        "theorem_deterministic is gone"
    );
    let receipt = Receipt {
        made_by: "cargo xtask verify".into(),
        verus: VERUS.into(),
        arguments: ARGUMENTS.map(String::from).into(),
        sources,
        verified,
        errors,
        lines,
    };
    if check {
        ensure!(read_receipt()? == receipt, "{RECEIPT} is stale; run `cargo xtask verify` and commit it");
    } else {
        fs::write(root().join(RECEIPT), serde_json::to_string_pretty(&receipt)? + "\n")?;
    }
    Ok(())
}

/// What Verus said of the core.
#[derive(Debug)]
pub enum Outcome {
    Verified { verified: usize, errors: usize, failures: Vec<Failure> },
    GaveUp,
    Broken(String),
}

/// An obligation that does not hold: the verifier's message, and the line of source that it points at.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    message: String,
    source: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.message, self.source)
    }
}

/// The failures that Verus printed: `error: MESSAGE`, then `--> FILE:LINE:COLUMN` with a file of the workspace.
fn failures(workspace: &Path, text: &str) -> Vec<Failure> {
    let lines: Vec<&str> = text.lines().collect();
    let failure = |pair: &[&str]| {
        let message = pair[0].strip_prefix("error: ")?;
        let mut place = pair[1].trim().strip_prefix("--> ")?.split(':');
        let (file, line) = (place.next()?, place.next()?.parse::<usize>().ok()?);
        let source = fs::read_to_string(workspace.join(file)).ok()?;
        let source = source.lines().nth(line - 1)?.trim().to_string();
        Some(Failure { message: message.into(), source })
    };
    lines.windows(2).filter_map(failure).collect()
}

/// Runs Verus on the core of a workspace, whatever cargo's cache believes.
pub fn verify(workspace: &Path, extra: &[&str]) -> Result<Outcome> {
    let target = target_folder().join("verus");
    forget(&target)?;
    // One stream, so that a result line stands after the crate it is of: vstd has a line of its own.
    let mut command = Command::new("sh");
    command.args(["-c", "exec cargo verus verify --fwd-verus-args-to roots -- \"$@\" 2>&1", "verus"]);
    command.args(ARGUMENTS).args(extra);
    command.current_dir(workspace.join("crates/vosti-core")).env("CARGO_TARGET_DIR", &target);
    let result = command.output().context("cargo verus")?;
    let text = String::from_utf8_lossy(&result.stdout).into_owned();
    let own = text.rfind("Checking vosti-core ").map_or("", |at| &text[at..]);
    let line = own.lines().find_map(|line| line.trim().strip_prefix("verification results::"));
    let gave_up = text.contains("Resource limit (rlimit) exceeded");
    let Some(line) = line else {
        forget(&target)?;
        return Ok(Outcome::Broken(text));
    };
    let number = |word: usize| line.split_whitespace().nth(word).and_then(|n| n.parse::<usize>().ok());
    let (Some(verified), Some(errors)) = (number(0), number(2)) else { bail!("unknown result line: {line}") };
    if gave_up {
        return Ok(Outcome::GaveUp);
    }
    if errors > 0 && workspace == root() {
        eprintln!("{text}");
    }
    ensure!(errors > 0 || result.status.success(), "cargo verus failed:\n{text}");
    Ok(Outcome::Verified { verified, errors, failures: failures(workspace, &text) })
}

/// Makes cargo verify the core again: removes what it remembers of it.
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

fn read_receipt() -> Result<Receipt> {
    let text = fs::read_to_string(root().join(RECEIPT)).context(RECEIPT)?;
    Ok(serde_json::from_str(&text)?)
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

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
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

fn count(core: &Path) -> Result<Lines> {
    let mut files = Vec::new();
    rust_files(&core.join("src"), &mut files)?;
    let mut lines = Lines { spec: 0, trusted: 0, proof: 0, exec: 0 };
    for file in files {
        let text = fs::read_to_string(&file)?;
        let code = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count();
        let room = match file.strip_prefix(core.join("src"))?.to_string_lossy().as_ref() {
            "spec.rs" | "premises.rs" => &mut lines.spec,
            "seam.rs" => &mut lines.trusted,
            "invariant.rs" => &mut lines.proof,
            name if name.starts_with("proof/") => &mut lines.proof,
            _ => &mut lines.exec,
        };
        *room += code;
    }
    Ok(lines)
}
