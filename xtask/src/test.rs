//! `cargo xtask test`: everything that a change must pass, in one command. CI runs this and nothing else.

use crate::{
    book, helm, llama_cpp, packages, python, root, run_command, target_folder, test_programs, tidy, verify, wheel,
};
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

/// The Python package is tested alone, because Ray gives its parts a minute to start.
const WITH_TOOLS: &[Step] = &[("tests", test_programs::run), (DAY, rehearse), ("python package", wheel::test)];

/// A step that takes one processor for most of its time. In a whole run it goes beside the tests, in a process of its own, and what it
/// says is printed at its turn.
const DAY: &str = "day with a GPU";

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
    let known: Vec<&str> = WITHOUT_TOOLS.iter().chain(WITH_TOOLS).map(|(name, _)| *name).collect();
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
    let fetching = WITH_TOOLS.iter().any(|step| wanted(&step)).then(|| thread::spawn(fetch_tools));
    outcomes.extend(WITHOUT_TOOLS.iter().filter(wanted).map(|(name, step)| take(name, step)));
    if let Some(fetching) = fetching {
        let fetched = || fetching.join().map_err(|_| anyhow!("fetching the tools ended without a reason"))?;
        outcomes.push(take("tools", fetched));
    }
    // The path is asked for before anything is built: a build may put another program in this one's place.
    let own = std::env::current_exe().context("this program's own path")?;
    let mut day = names.is_empty().then(|| thread::spawn(move || apart(&own, DAY)));
    for (name, step) in WITH_TOOLS.iter().filter(wanted) {
        let beside = if *name == DAY { day.take() } else { None };
        outcomes.push(match beside {
            Some(day) => {
                let (said, outcome) = day.join().map_err(|_| anyhow!("{DAY} ended without a reason"))?;
                println!("{said}");
                outcome
            }
            None => take(name, step),
        });
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
