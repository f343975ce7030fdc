//! `cargo xtask test`: everything that a change must pass, in one command. CI runs this and nothing else.

use crate::{book, helm, llama_cpp, python, run_command, tidy, verify, wheel};
use anyhow::Result;
use std::process::Command;
use std::time::Instant;

type Step = (&'static str, fn() -> Result<()>);

const STEPS: &[Step] = &[
    ("tidy", tidy::run),
    ("format", || cargo(&["fmt", "--all", "--check"])),
    ("clippy", || cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])),
    ("python", || python::interpreter().map(drop)),
    // Vocabularies and chat templates that tests read.
    ("llama.cpp's source", || llama_cpp::source().map(drop)),
    // Renders the chart that tests read.
    ("helm", || helm::program().map(drop)),
    ("book", book::run),
    ("core proof", || verify::run(true)),
    // Tests that compare with Python tools look for them in target/python. A missing tool fails its test here.
    ("tests", || {
        let mut tests = Command::new(env!("CARGO"));
        run_command(tests.args(["test", "--workspace", "--no-fail-fast"]).env(vosti_test_tools::REQUIRED, "1"))
    }),
    ("python package", wheel::test),
    // The executor's bits as users build it: an optimiser that tries harder knows nothing of the floating-point mode.
    ("release bits", || cargo(&["test", "--release", "-p", "vosti-tile", "-p", "vosti-cpu"])),
];

/// Runs every step, all of them even if one fails, and says which failed.
pub fn run() -> Result<()> {
    let start = Instant::now();
    let mut failed = Vec::new();
    for (name, step) in STEPS {
        println!("== {name}");
        if let Err(error) = step() {
            println!("== {name} failed: {error:#}");
            failed.push(*name);
        }
    }
    let passed = STEPS.len() - failed.len();
    println!("cargo xtask test took {:.0} s; its steps:", start.elapsed().as_secs_f64());
    println!("{passed} passed, {} failed", failed.len());
    anyhow::ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

fn cargo(arguments: &[&str]) -> Result<()> {
    run_command(Command::new(env!("CARGO")).args(arguments))
}
