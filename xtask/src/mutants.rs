//! `cargo xtask verify-mutants`: tests the core's proof itself. A prover that accepts everything proves nothing, so wrong
//! versions of the core must fail the proof, each at the obligation that it names and not by the solver's limit. Versions
//! with the same meaning in other words (`neutral.patch`) must still pass. With `--run` the command runs tests instead of the
//! verifier: a wrong version must fail the suites that it names, or pass all of them if it says that no test can see it.
//!
//! A file `mutants/FILE.patch` holds the versions that change this file of the core first, `=== NAME` above each. A version begins
//! with its fields, one on each line, and a patch in the form of `diff -u` follows:
//!
//! ```text
//! === name
//! story: what is wrong, in a sentence
//! dies in: the module whose obligation fails
//! fails: the verifier's message, and the line of source that it points at
//! seen by: simulator, core tests (one of them or both), or else not visible: why
//! ```
//!
//! Read next: `verify.rs`.

use crate::verify::{self, Failure, Outcome, VERUS, installed};
use crate::{root, run_command, target_folder};
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use std::{env, fs, thread};

const FOLDER: &str = "crates/vosti-core/mutants";
/// The time limit of a suite, far above the time that any takes. A mutant that makes a suite hang does not count as seen.
const SECONDS_MAX: &str = "600";

#[derive(clap::Args)]
pub struct Mutants {
    /// Names of the versions to try; all if none is given
    names: Vec<String>,
    /// Run the tests that must fail for each wrong version, instead of the verifier
    #[arg(long)]
    run: bool,
    /// How many versions to verify at a time; one for each processor if not given
    #[arg(long)]
    jobs: Option<usize>,
}

/// The suites that must fail for a wrong version; empty if its patch says why none can.
type Seen = Vec<&'static Suite>;

/// Tests that run on a wrong version.
#[derive(Debug, PartialEq, Eq)]
struct Suite {
    name: &'static str,
    /// Arguments of `cargo test`.
    arguments: &'static [&'static str],
}

const SUITES: [Suite; 2] = [
    // Any operations in any order, also those that no engine would ask for.
    Suite {
        name: "core tests",
        arguments: &["-p", "vosti-core", "--test", "operations", "--test", "any_order", "--test", "programs"],
    },
    // Random schedules of the engine.
    Suite { name: "simulator", arguments: &["-p", "vosti-engine", "--test", "simulator"] },
];

/// A version: its fields and its patch.
struct Patch {
    name: String,
    text: String,
}

/// What stands above each version in a file, before its name.
const NAMED: &str = "=== ";
/// The file of the versions that mean the same.
const NEUTRAL: &str = "neutral.patch";

impl Patch {
    fn field(&self, name: &str) -> Result<&str> {
        let found = self.text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        found.map(str::trim).filter(|value| !value.is_empty()).with_context(|| format!("the patch has no `{name}:`"))
    }

    fn seen(&self) -> Result<Seen> {
        let field = self.field("seen by")?;
        if field.strip_prefix("not visible:").is_some_and(|why| why.trim().len() > 10) {
            return Ok(Vec::new());
        }
        let suite = |name: &str| SUITES.iter().find(|suite| suite.name == name.trim());
        let found: Option<Seen> = field.split(',').map(suite).collect();
        found.with_context(|| format!("`seen by: {field}`: say `simulator`, `core tests`, or `not visible: why`"))
    }
}

/// The wrong versions and the neutral ones, by name.
fn patches() -> Result<[Vec<Patch>; 2]> {
    let folder = root().join(FOLDER);
    let mut patches = [vec![], vec![]];
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_none_or(|end| end != "patch") {
            continue;
        }
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let kind = usize::from(path.file_name().is_some_and(|name| name == NEUTRAL));
        patches[kind].extend(versions(&text).with_context(|| path.display().to_string())?);
    }
    patches.iter_mut().for_each(|list| list.sort_by(|a, b| a.name.cmp(&b.name)));
    Ok(patches)
}

/// The versions of one file. A name may stand once.
fn versions(text: &str) -> Result<Vec<Patch>> {
    let mut all: Vec<Patch> = vec![];
    for line in text.split_inclusive('\n') {
        match (line.strip_prefix(NAMED), all.last_mut()) {
            (Some(name), _) => {
                let name = name.trim().to_string();
                ensure!(all.iter().all(|patch| patch.name != name), "two versions are called {name}");
                all.push(Patch { name, text: String::new() });
            }
            (None, Some(patch)) => patch.text.push_str(line),
            (None, None) => bail!("it does not begin with `{NAMED}NAME`"),
        }
    }
    Ok(all)
}

/// The patches of these names in each folder, or all if there are no names. An error names those that no patch has.
fn chosen(folders: [Vec<Patch>; 2], names: &[String]) -> Result<[Vec<Patch>; 2]> {
    let known = |name: &&String| folders.iter().flatten().any(|patch| patch.name == **name);
    let unknown: Vec<&str> = names.iter().filter(|name| !known(name)).map(String::as_str).collect();
    ensure!(unknown.is_empty(), "{FOLDER} has no patch named {}", unknown.join(", "));
    let wanted = |patch: &Patch| names.is_empty() || names.contains(&patch.name);
    Ok(folders.map(|folder| folder.into_iter().filter(wanted).collect()))
}

/// Checks every patch, or the named ones, even if one fails; the error names those that failed.
pub fn run(options: &Mutants) -> Result<()> {
    ensure!(options.run || installed()?, "this needs Verus {VERUS} on PATH");
    let start = Instant::now();
    let [wrong, neutral] = chosen(patches()?, &options.names)?;
    // The longest first: a neutral version needs the proof of the whole core.
    let all: Vec<(&Patch, bool)> = neutral.iter().map(|p| (p, false)).chain(wrong.iter().map(|p| (p, true))).collect();
    let queue = Mutex::new((all.iter(), Vec::new()));
    let jobs = options.jobs.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    // Test suites run one at a time.
    let jobs = if options.run { 1 } else { jobs.clamp(1, all.len()) };
    let places = (0..jobs).map(|job| Place::new(job, !options.run)).collect::<Result<Vec<_>>>()?;
    thread::scope(|scope| {
        for place in &places {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().unwrap_or_else(PoisonError::into_inner).0.next();
                    let Some((patch, is_wrong)) = next else { return };
                    let outcome = match (options.run, is_wrong) {
                        (false, true) => must_die(patch, place),
                        (false, false) => must_verify(patch, place),
                        (true, true) => must_be_seen(patch, place),
                        (true, false) => must_pass(patch, place),
                    };
                    let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
                    match outcome {
                        Ok(what) => println!("{:32} {what}", patch.name),
                        Err(error) => {
                            println!("{:32} NOT AS IT SHOULD BE: {error:#}", patch.name);
                            queue.1.push(patch.name.clone());
                        }
                    }
                }
            });
        }
    });
    let failed = queue.into_inner().unwrap_or_else(PoisonError::into_inner).1;
    let (all, seconds) = (all.len(), start.elapsed().as_secs());
    println!("{} wrong and {} neutral versions in {seconds} s", wrong.len(), neutral.len());
    println!("{} passed, {} failed", all - failed.len(), failed.len());
    ensure!(failed.is_empty(), "not as they should be: {}", failed.join(", "));
    Ok(())
}

/// A copy of the workspace on which versions are tried one after the other, and the target folder of their proofs.
pub struct Place {
    copy: PathBuf,
    target: PathBuf,
}

impl Place {
    pub fn new(job: usize, proofs: bool) -> Result<Place> {
        let copy = target_folder().join(format!("mutant-{job}"));
        if copy.exists() {
            fs::remove_dir_all(&copy)?;
        }
        fs::create_dir_all(&copy)?;
        // Cargo needs every member of the workspace. TTIR is large, and neither proof nor suites read it.
        let files =
            "Cargo.toml Cargo.lock rust-toolchain.toml crates kernels/Cargo.toml kernels/src kernels/build.rs xtask";
        let script = format!("git ls-files -z {files} | grep -zv ttir/ | xargs -0 cp --parents -t \"$0\"");
        run_command(Command::new("sh").args(["-c", &script]).arg(&copy))?;
        let first = verify::target();
        let place =
            Place { target: if job == 0 { first.clone() } else { first.with_extension(job.to_string()) }, copy };
        // A copied target folder spares each job the verification of vstd.
        if job > 0 && proofs && first.exists() && !place.target.exists() {
            run_command(Command::new("cp").arg("-a").args([&first, &place.target]))?;
        }
        Ok(place)
    }

    /// Where Verus keeps what it made of the copy.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Runs `check` on the copy with other texts in these files; then restores the files.
    pub fn edited<T>(&self, files: &[(PathBuf, String)], check: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
        for (file, text) in files {
            fs::write(self.copy.join(file), text)?;
        }
        let outcome = check(&self.copy);
        for (file, _) in files {
            fs::copy(root().join(file), self.copy.join(file))?;
        }
        outcome
    }

    /// Runs `check` on the copy with the patch, which must apply and change each file that it names; then restores these files.
    fn with<T>(&self, patch: &Patch, check: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
        let changed: Vec<&str> = patch.text.lines().filter_map(|line| line.strip_prefix("+++ b/")).collect();
        let written = self.copy.with_extension("patch");
        fs::write(&written, &patch.text)?;
        let mut apply = Command::new("patch");
        apply.args(["--silent", "--no-backup-if-mismatch", "-p1", "-d"]).arg(&self.copy).arg("-i").arg(&written);
        let applied = run_command(&mut apply).context("the patch does not apply");
        let differs =
            |file: &&str| Ok::<_, std::io::Error>(fs::read(root().join(file))? != fs::read(self.copy.join(file))?);
        let outcome = applied.and_then(|()| {
            let all = changed.iter().map(differs).collect::<Result<Vec<_>, _>>()?;
            ensure!(!all.is_empty() && all.iter().all(|differs| *differs), "it changes nothing");
            check(&self.copy)
        });
        for file in changed {
            fs::copy(root().join(file), self.copy.join(file))?;
        }
        outcome
    }
}

/// The proof must fail at the obligation that the patch names.
fn must_die(patch: &Patch, place: &Place) -> Result<String> {
    let (story, module, named) = (patch.field("story")?, patch.field("dies in")?, patch.field("fails")?);
    patch.seen()?;
    match place.with(patch, |copy| verify::verify(copy, &place.target, &["--verify-only-module", module]))? {
        Outcome::Verified { errors: 0, .. } => bail!("every obligation of module {module} still holds"),
        Outcome::Verified { failures, .. } => {
            let found: Vec<String> = failures.iter().map(Failure::to_string).collect();
            ensure!(found.iter().any(|f| f == named), "it fails elsewhere than it says:\n  {}", found.join("\n  "));
            Ok(format!("died: {story}"))
        }
        Outcome::GaveUp { .. } => bail!("the solver gave up: that is no refutation"),
        Outcome::Broken(text) => bail!("it does not compile:\n{text}"),
    }
}

/// The whole proof of a neutral version must pass.
fn must_verify(patch: &Patch, place: &Place) -> Result<String> {
    let story = patch.field("story")?;
    match place.with(patch, |copy| verify::verify(copy, &place.target, &[]))? {
        Outcome::Verified { verified, errors: 0, .. } => Ok(format!("verified ({verified}): {story}")),
        Outcome::Verified { failures, .. } => {
            let found: Vec<String> = failures.iter().map(Failure::to_string).collect();
            bail!("it says the same in other words, and its proof fails:\n  {}", found.join("\n  "))
        }
        Outcome::GaveUp { .. } => bail!("it says the same in other words, and the solver gave up"),
        Outcome::Broken(text) => bail!("it does not compile:\n{text}"),
    }
}

/// A wrong version must compile as plain Rust, and the suites that it names must fail; if it names none, all must pass.
fn must_be_seen(patch: &Patch, place: &Place) -> Result<String> {
    let (story, seen) = (patch.field("story")?, patch.seen()?);
    place.with(patch, |copy| {
        for suite in &seen {
            ensure!(!passes(copy, suite)?, "not seen by: {}", suite.name);
        }
        for suite in SUITES.iter().filter(|_| seen.is_empty()) {
            ensure!(passes(copy, suite)?, "it says that nobody sees it, and it is seen by: {}", suite.name);
        }
        Ok(())
    })?;
    Ok(format!("{}: {story}", if seen.is_empty() { "runs unseen, as it says" } else { "seen" }))
}

/// A neutral version must pass all suites.
fn must_pass(patch: &Patch, place: &Place) -> Result<String> {
    let story = patch.field("story")?;
    place.with(patch, |copy| {
        for suite in &SUITES {
            ensure!(passes(copy, suite)?, "it does not pass: {}", suite.name);
        }
        Ok(())
    })?;
    Ok(format!("runs alike: {story}"))
}

/// Whether a suite passes on a copy. An error if it does not compile or does not end in time.
fn passes(copy: &Path, suite: &Suite) -> Result<bool> {
    let target = target_folder().join("mutants");
    let cargo = |command: &mut Command| -> Result<_> {
        command.current_dir(copy).env("CARGO_TARGET_DIR", &target);
        // The suites are built often and run briefly.
        command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1").env("CARGO_PROFILE_DEV_DEBUG", "0");
        command.output().context("cargo test")
    };
    let built = cargo(Command::new(env!("CARGO")).args(["test", "--quiet", "--no-run"]).args(suite.arguments))?;
    ensure!(built.status.success(), "it does not compile:\n{}", String::from_utf8_lossy(&built.stderr));
    let mut limited = Command::new("timeout");
    limited.args([SECONDS_MAX, env!("CARGO"), "test", "--quiet", "--no-fail-fast"]).args(suite.arguments);
    let ran = cargo(&mut limited)?;
    ensure!(ran.status.code() != Some(124), "the tests hang: they must end with an error");
    Ok(ran.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::Stdio;

    #[test]
    fn every_patch_says_what_it_must() {
        let [wrong, neutral] = patches().unwrap();
        for patch in &wrong {
            for field in ["story", "dies in", "fails"] {
                patch.field(field).map_err(|e| format!("{}: {e}", patch.name)).unwrap();
            }
            patch.seen().map_err(|e| format!("{}: {e}", patch.name)).unwrap();
        }
        assert!(neutral.iter().all(|patch| patch.field("story").is_ok()));
        for patch in wrong.iter().chain(&neutral) {
            let mut apply = Command::new("patch");
            apply.args(["--dry-run", "--force", "-p1", "-d"]).arg(root()).stdin(Stdio::piped()).stdout(Stdio::null());
            let mut child = apply.spawn().unwrap();
            child.stdin.take().unwrap().write_all(patch.text.as_bytes()).unwrap();
            assert!(child.wait().unwrap().success(), "{} does not apply", patch.name);
        }
        let tour = fs::read_to_string(root().join("docs/proof-tour.md")).unwrap();
        let counted = format!("{} wrong and {} neutral versions", wrong.len(), neutral.len());
        assert!(tour.contains(&counted), "docs/proof-tour.md does not say that there are {counted}");
    }

    #[test]
    fn a_name_of_no_patch_is_refused_also_among_known_ones() {
        let patch = |name: &str| Patch { name: name.into(), text: String::new() };
        let names = |list: &[&str]| {
            let given: Vec<String> = list.iter().map(|name| name.to_string()).collect();
            let found = chosen([vec![patch("a"), patch("b")], vec![patch("c")]], &given)?;
            Ok::<_, anyhow::Error>(found.map(|folder| folder.into_iter().map(|patch| patch.name).collect::<String>()))
        };
        assert_eq!(names(&[]).unwrap(), ["ab", "c"]);
        assert_eq!(names(&["c", "b"]).unwrap(), ["b", "c"]);
        assert!(names(&["a", "d", "e"]).unwrap_err().to_string().ends_with("has no patch named d, e"));
    }

    #[test]
    fn a_file_holds_versions_by_name() {
        let names = |text: &str| versions(text).map(|all| all.into_iter().map(|patch| patch.name).collect::<Vec<_>>());
        assert_eq!(names("=== a\nstory: x\n\n--- a/f\n=== b\n").unwrap(), ["a", "b"]);
        assert!(names("story: x\n=== a\n").unwrap_err().to_string().contains("does not begin"));
        assert!(names("=== a\n=== a\n").unwrap_err().to_string().contains("two versions are called a"));
    }

    #[test]
    fn an_unseen_mutant_says_why() {
        let text = |seen: &str| format!("story: x\nseen by: {seen}\n");
        let patch = |seen: &str| Patch { name: "a".into(), text: text(seen) };
        assert_eq!(patch("simulator").seen().unwrap(), [&SUITES[1]]);
        assert_eq!(patch("simulator, core tests").seen().unwrap().len(), 2);
        assert!(patch("not visible: the engine never asks for it").seen().unwrap().is_empty());
        assert!(patch("not visible:").seen().is_err() && patch("nobody").seen().is_err());
        assert!(patch("").seen().is_err() && patch("simulator").field("fails").is_err());
    }
}
