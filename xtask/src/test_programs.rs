//! The workspace's tests. `cargo test` runs one test program after the other, and one long test keeps the other processors idle; here a few
//! programs run at a time. What is built, the folder that a test starts in and its variables are cargo's.

use crate::root;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

/// The programs that take the longest: they begin first, so that none of them is alone at the end.
const LONG: [&str; 13] = [
    "check_quick",
    "interpreter_equals_numpy",
    "serve_malformed",
    "fast_equals_plain",
    "any_shape",
    "gpu_stand_in",
    "filetests",
    "laws",
    "proved_text_becomes_sound_machine_code",
    "goldens",
    "same_bits_as_the_cpu",
    "serve_openai",
    "xtask-kernels",
];
/// How many programs run at a time at most. Each has as many threads as there are processors.
const AT_A_TIME: usize = 4;

/// A line of what cargo says of its work.
#[derive(Deserialize)]
struct Message {
    reason: String,
    #[serde(default)]
    manifest_path: PathBuf,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// A test program, and the folder of its package.
struct Program {
    name: String,
    folder: PathBuf,
    path: PathBuf,
}

/// Builds all test programs and runs them, and the examples in the documentation; the error names those that failed.
pub fn run() -> Result<()> {
    let mut programs = build()?;
    let missing: Vec<_> = LONG.iter().filter(|long| !programs.iter().any(|program| program.name == **long)).collect();
    ensure!(missing.is_empty(), "no test program is named {missing:?}");
    programs.sort_by_key(|program| LONG.iter().position(|long| *long == program.name).unwrap_or(LONG.len()));
    let count = programs.len();
    let jobs = thread::available_parallelism().map_or(1, usize::from).min(AT_A_TIME);
    let (queue, failed) = (Mutex::new(VecDeque::from(programs)), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(program) = take(&queue) {
                    if let Err(error) = program.run() {
                        println!("{error:#}");
                        failed.lock().unwrap_or_else(PoisonError::into_inner).push(program.name);
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut examples = cargo();
    if crate::run_command(examples.args(["--doc", "--no-fail-fast"])).is_err() {
        failed.push("examples in the documentation".into());
    }
    ensure!(failed.is_empty(), "of {count} test programs and the documentation, these failed: {}", failed.join(", "));
    Ok(())
}

fn take(queue: &Mutex<VecDeque<Program>>) -> Option<Program> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
}

/// `cargo test` of the workspace. Tests find their tools in `target/python`; the variable makes a missing tool fail its test.
fn cargo() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--workspace"]).env(vosti_test_tools::REQUIRED, "1").current_dir(root());
    cargo
}

fn build() -> Result<Vec<Program>> {
    let mut build = cargo();
    build.args(["--no-run", "--message-format=json-render-diagnostics"]).stderr(Stdio::inherit());
    let said = build.output().context("cargo test --no-run")?;
    ensure!(said.status.success(), "the tests do not build");
    let mut programs = Vec::new();
    for line in String::from_utf8_lossy(&said.stdout).lines() {
        let message: Message = serde_json::from_str(line).with_context(|| format!("cargo said {line}"))?;
        if message.reason != "compiler-artifact" || !message.profile.is_some_and(|profile| profile.test) {
            continue;
        }
        if let (Some(target), Some(path)) = (message.target, message.executable) {
            let folder = message.manifest_path.parent().unwrap_or(Path::new("")).to_path_buf();
            programs.push(Program { name: target.name, folder, path });
        }
    }
    Ok(programs)
}

impl Program {
    /// Says how it went when it has ended, and what it printed if it failed.
    fn run(&self) -> Result<()> {
        let start = Instant::now();
        let mut test = Command::new(&self.path);
        test.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder).env(vosti_test_tools::REQUIRED, "1");
        let ended = test.stdin(Stdio::null()).output().with_context(|| self.path.display().to_string())?;
        let seconds = start.elapsed().as_secs_f64();
        let name = format!("{} of {}", self.name, self.folder.strip_prefix(root()).unwrap_or(&self.folder).display());
        let said = String::from_utf8_lossy(&ended.stdout);
        let result = said.lines().rev().find(|line| line.starts_with("test result: ")).unwrap_or("no result");
        println!("{name}, {seconds:.0} s: {result}");
        ensure!(ended.status.success(), "{said}{}{name}: {}", String::from_utf8_lossy(&ended.stderr), ended.status);
        Ok(())
    }
}
