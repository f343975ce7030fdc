//! `cargo xtask test`: everything that a change must pass, in one command. CI runs this and nothing else.

use crate::{book, helm, llama_cpp, python, root, run_command, target_folder, tests, tidy, verify, wheel};
use anyhow::{Result, anyhow, ensure};
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

const WITH_TOOLS: &[Step] = &[("tests", tests::run), ("day with a GPU", rehearse), ("python package", wheel::test)];

/// Fetches the tools of tests: the Python environment, Helm (which renders the chart) and llama.cpp's source (whose
/// vocabularies and chat templates tests read).
fn fetch_tools() -> Result<()> {
    python::interpreter()?;
    helm::program()?;
    llama_cpp::source().map(drop)
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
    let mut failed = Vec::new();
    let (mut passed, mut took) = (0, Vec::new());
    let mut take = |name: &'static str, step: Box<dyn FnOnce() -> Result<()>>| {
        println!("== {name}");
        let begun = Instant::now();
        match step() {
            Ok(()) => passed += 1,
            Err(error) => {
                println!("== {name} failed: {error:#}");
                failed.push(name);
            }
        }
        took.push(format!("{name} {:.0} s", begun.elapsed().as_secs_f64()));
    };
    let fetching = WITH_TOOLS.iter().any(|step| wanted(&step)).then(|| thread::spawn(fetch_tools));
    for (name, step) in WITHOUT_TOOLS.iter().filter(wanted) {
        take(name, Box::new(step));
    }
    if let Some(fetching) = fetching {
        take("tools", Box::new(|| fetching.join().map_err(|_| anyhow!("fetching the tools ended without a reason"))?));
    }
    for (name, step) in WITH_TOOLS.iter().filter(wanted) {
        take(name, Box::new(step));
    }
    println!("cargo xtask test took {:.0} s: {}", start.elapsed().as_secs_f64(), took.join(", "));
    println!("{passed} passed, {} failed", failed.len());
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
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
