//! `cargo xtask test`: everything that a change must pass, in one command. CI runs this and nothing else.

use crate::{book, helm, llama_cpp, packages, python, root, run_command, target_folder, tests, tidy, verify, wheel};
use anyhow::{Context, Result, anyhow, ensure};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Instant;

type Step = (&'static str, fn() -> Result<()>);

/// Steps that need no tool from outside: they run while the tools are fetched.
const WITHOUT_TOOLS: &[Step] = &[
    ("tidy", tidy::run),
    ("format", || cargo(&["fmt", "--all", "--check"])),
    ("clippy", || cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])),
    ("rustdoc", || {
        let mut doc = Command::new(env!("CARGO"));
        run_command(doc.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))
    }),
    ("book", book::run),
    ("core proof", || verify::run(true, false)),
];

const WITH_TOOLS: &[Step] = &[("tests", tests::run)];

/// Steps that need tools, and one processor each for most of their time: they run one after the other beside the tests, in processes of
/// their own, and are printed when all have ended.
const BESIDE: &[Step] = &[("day with a GPU", rehearse), ("python package", wheel::test)];

/// Fetches the tools of tests: the Python environment, Helm (which renders the chart), llama.cpp's source (whose
/// vocabularies and chat templates tests read), and the packages whose kernels are audited.
fn fetch_tools() -> Result<()> {
    python::interpreter()?;
    helm::program()?;
    llama_cpp::source()?;
    packages::sources().map(drop)
}

/// Runs every step, or those that are named, even if one fails; the error names those that failed.
pub fn run(names: &[String]) -> Result<()> {
    let known: Vec<&str> = WITHOUT_TOOLS.iter().chain(WITH_TOOLS).chain(BESIDE).map(|(name, _)| *name).collect();
    let unknown = names.iter().find(|name| !known.contains(&name.as_str()));
    ensure!(
        unknown.is_none(),
        "no step is named {}; the steps are: {}",
        unknown.map_or("", String::as_str),
        known.join(", ")
    );
    let wanted = |step: &&Step| names.is_empty() || names.iter().any(|name| name == step.0);
    let start = Instant::now();
    let mut outcomes = Vec::new();
    let fetching = WITH_TOOLS.iter().chain(BESIDE).any(|step| wanted(&step)).then(|| thread::spawn(fetch_tools));
    outcomes.extend(WITHOUT_TOOLS.iter().filter(wanted).map(|(name, step)| take(name, step)));
    if let Some(fetching) = fetching {
        let fetched = || fetching.join().map_err(|_| anyhow!("fetching the tools ended without a reason"))?;
        outcomes.push(take("tools", fetched));
    }
    let beside: Vec<Step> = BESIDE.iter().filter(wanted).copied().collect();
    match WITH_TOOLS.iter().filter(wanted).collect::<Vec<_>>() {
        none if none.is_empty() => outcomes.extend(beside.iter().map(|(name, step)| take(name, step))),
        steps => {
            // Asked before anything is built: a build may put another program in this one's place.
            let own = std::env::current_exe().context("this program's own path")?;
            let beside =
                thread::spawn(move || beside.into_iter().map(|(name, _)| apart(&own, name)).collect::<Vec<_>>());
            outcomes.extend(steps.into_iter().map(|(name, step)| take(name, step)));
            let beside = beside.join().map_err(|_| anyhow!("the steps beside the tests ended without a reason"))?;
            outcomes.extend(beside.into_iter().map(|(said, outcome)| {
                println!("{said}");
                outcome
            }));
        }
    }
    let took: Vec<String> = outcomes.iter().map(|one| format!("{} {:.0} s", one.name, one.seconds)).collect();
    let failed: Vec<&str> = outcomes.iter().filter(|one| !one.passed).map(|one| one.name).collect();
    println!("cargo xtask test took {:.0} s: {}", start.elapsed().as_secs_f64(), took.join(", "));
    println!("{} passed, {} failed", outcomes.len() - failed.len(), failed.len());
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

/// How a step went.
struct Outcome {
    name: &'static str,
    seconds: f64,
    passed: bool,
}

/// Runs a step here, and says what was wrong.
fn take(name: &'static str, step: impl FnOnce() -> Result<()>) -> Outcome {
    println!("== {name}");
    let begun = Instant::now();
    let result = step();
    if let Err(error) = &result {
        println!("== {name} failed: {error:#}");
    }
    Outcome { name, seconds: begun.elapsed().as_secs_f64(), passed: result.is_ok() }
}

/// Runs a step in a process of its own; what it said, and how it went.
fn apart(own: &Path, name: &'static str) -> (String, Outcome) {
    let begun = Instant::now();
    let (said, passed) = match Command::new(own).args(["test", name]).output() {
        Ok(ended) => {
            let said = [&ended.stdout[..], &ended.stderr[..]].concat();
            (String::from_utf8_lossy(&said).into_owned(), ended.status.success())
        }
        Err(error) => (format!("== {name} failed: {error}"), false),
    };
    (said, Outcome { name, seconds: begun.elapsed().as_secs_f64(), passed })
}

/// Rehearses the commands of a day with a GPU, on a driver that executes TTIR. Its times mean nothing, so the time limits are
/// high.
fn rehearse() -> Result<()> {
    let python = python::interpreter()?;
    let folder = target_folder().join("gpu-day");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    cargo(&["build", "--package", "vosti"])?;
    // The script compares with NumPy where `python3` has it.
    let own = python.parent().into_iter().map(Path::to_path_buf);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(own.chain(std::env::split_paths(&path)))?;
    let mut script = Command::new(root().join("bench/gpu/rehearse.sh"));
    script.arg(target_folder().join("debug/vosti")).arg(&folder).arg(&python);
    run_command(script.env("PATH", path).env("LIMIT", "1800").env("TOTAL", "5400"))
}

fn cargo(arguments: &[&str]) -> Result<()> {
    run_command(Command::new(env!("CARGO")).args(arguments))
}
