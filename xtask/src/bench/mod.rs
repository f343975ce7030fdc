//! `cargo xtask bench cpu`: this engine and llama.cpp in turn on the same machine, the same models in BF16.
//!
//! Each cell (a prompt length or batch, at a depth) is measured in pairs: ours, theirs, ours, theirs. What is
//! reported is each side's median and the median of the pairs' ratios, which holds when the machine's speed
//! drifts. Nothing here asserts a time.

mod memory;
mod peer;

use crate::{root, run_command};
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// `cargo xtask bench`
#[derive(Args)]
pub struct Bench {
    /// What to measure: cpu
    #[arg(value_parser = ["cpu"])]
    target: String,
    /// Pairs of runs in each cell
    #[arg(long, default_value_t = 5)]
    pairs: usize,
    /// Depths (tokens already cached)
    #[arg(long, value_delimiter = ',', default_value = "0,4096")]
    depth: Vec<usize>,
    /// Sequences that decode together
    #[arg(long, value_delimiter = ',', default_value = "1,4,8")]
    batch: Vec<usize>,
    /// Models of the catalogue
    #[arg(long, value_delimiter = ',', default_value = "smollm2-135m,gemma3-270m")]
    model: Vec<String>,
    /// Threads of both engines
    #[arg(long, default_value_t = std::thread::available_parallelism().map_or(2, |n| n.get()))]
    threads: usize,
    /// Where to write the measurements
    #[arg(long, default_value = "target/bench-cpu.json")]
    out: PathBuf,
}

const PREFILL: usize = 512;
const DECODE: usize = 64;

/// One thing that is measured.
#[derive(Clone, Copy)]
pub enum Cell {
    /// 512 prompt tokens after `depth` cached ones.
    Prefill { depth: usize },
    /// 64 tokens for each of `batch` sequences of `depth` cached tokens.
    Decode { batch: usize, depth: usize },
}

impl Cell {
    fn name(self) -> String {
        match self {
            Cell::Prefill { depth } => format!("prefill {PREFILL} at depth {depth}"),
            Cell::Decode { batch, depth } => format!("decode {DECODE}, batch {batch}, at depth {depth}"),
        }
    }
}

pub fn run(bench: &Bench) -> Result<()> {
    run_command(Command::new(env!("CARGO")).args(["build", "--release", "--package", "vosti"]))?;
    let ours = target_folder().join("release/vosti");
    let peer = peer::build()?;
    let mut report = Vec::new();
    for name in &bench.model {
        let downloaded = pull(&ours, name)?;
        let model = peer.bf16(&downloaded, name)?;
        for depth in &bench.depth {
            report.push(measure(bench, &ours, &peer, name, &model, Cell::Prefill { depth: *depth })?);
            for batch in &bench.batch {
                let cell = Cell::Decode { batch: *batch, depth: *depth };
                report.push(measure(bench, &ours, &peer, name, &model, cell)?);
            }
        }
        report.push(start_up(bench, &ours, &peer, name, &model)?);
        report.push(memory(bench, &ours, &peer, name, &model)?);
    }
    if let Some(folder) = bench.out.parent() {
        fs::create_dir_all(root().join(folder))?;
    }
    fs::write(root().join(&bench.out), serde_json::to_string_pretty(&report)?)?;
    println!("\nwritten to {}", bench.out.display());
    Ok(())
}

/// The folder that cargo builds into.
pub fn target_folder() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Pairs of runs of one cell.
fn measure(bench: &Bench, ours: &Path, peer: &peer::Peer, name: &str, model: &Path, cell: Cell) -> Result<Value> {
    let (mut us, mut them, mut of_bound) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.pairs {
        let (rate, bound) = vosti(ours, model, bench.threads, cell)?;
        us.push(rate);
        of_bound.push(rate / bound);
        them.push(peer.tokens_per_second(model, bench.threads, cell)?);
    }
    let mut row = row(name, &cell.name(), "tokens/s", &us, &them);
    println!("|  | of the machine's bound | {:.0}% | | |", 100.0 * median(&of_bound));
    row["of_bound"] = json!(of_bound);
    Ok(row)
}

/// Seconds from the start of the process to the end of its first token, loading included.
fn start_up(bench: &Bench, ours: &Path, peer: &peer::Peer, name: &str, model: &Path) -> Result<Value> {
    let (mut us, mut them) = (Vec::new(), Vec::new());
    for _ in 0..bench.pairs {
        let mut generate = Command::new(ours);
        generate.args(["generate", "The three laws of robotics are", "-n", "1", "--threads"]);
        generate.arg(bench.threads.to_string()).arg("--model").arg(model);
        us.push(seconds(&mut generate)?);
        them.push(seconds(&mut peer.first_token(model, bench.threads))?);
    }
    Ok(row(name, "process start to first token", "s", &us, &them))
}

/// Peak memory of a process, in MiB: of ours, that answers with 64 tokens; of theirs, that prefills 8 and decodes one.
fn memory(bench: &Bench, ours: &Path, peer: &peer::Peer, name: &str, model: &Path) -> Result<Value> {
    let mut generate = Command::new(ours);
    generate.args(["generate", "The three laws of robotics are", "-n", "64", "--threads"]);
    generate.arg(bench.threads.to_string()).arg("--model").arg(model);
    let us = memory::peak(&mut generate)?;
    let them = memory::peak(&mut peer.first_token(model, bench.threads))?;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!("| {name} | peak anonymous memory | {:.0} MiB | {:.0} MiB | |", mib(us.anonymous), mib(them.anonymous));
    println!("| {name} | peak resident memory | {:.0} MiB | {:.0} MiB | |", mib(us.resident), mib(them.resident));
    Ok(json!({ "model": name, "cell": "peak memory", "unit": "bytes",
               "vosti": [us.anonymous, us.resident], "llama.cpp": [them.anonymous, them.resident] }))
}

fn row(model: &str, cell: &str, unit: &str, us: &[f64], them: &[f64]) -> Value {
    let ratios: Vec<f64> = us.iter().zip(them).map(|(a, b)| a / b).collect();
    let (a, b, ratio) = (median(us), median(them), median(&ratios));
    println!("| {model} | {cell} | {a:.3} {unit} | {b:.3} {unit} | {ratio:.2} |");
    json!({ "model": model, "cell": cell, "unit": unit, "vosti": us, "llama.cpp": them,
            "median_vosti": a, "median_llama.cpp": b, "median_ratio": ratio })
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

/// One run of `vosti bench`: its rate, and what the machine's ceilings would allow.
fn vosti(binary: &Path, model: &Path, threads: usize, cell: Cell) -> Result<(f64, f64)> {
    let mut command = Command::new(binary);
    command.args(["bench", "--json", "--repeat", "1", "--threads", &threads.to_string(), "--model"]).arg(model);
    let (test, batch, depth) = match cell {
        Cell::Prefill { depth } => ("prefill", 1, depth),
        Cell::Decode { batch, depth } => ("decode", batch, depth),
    };
    let tokens = if test == "prefill" { [PREFILL, 0] } else { [0, DECODE] };
    command.args(["--prefill", &tokens[0].to_string(), "--decode", &tokens[1].to_string()]);
    command.args(["--batch", &batch.to_string(), "--depth", &depth.to_string()]);
    let printed: Value = serde_json::from_str(&output(&mut command)?).context("vosti bench --json")?;
    let rows = printed["cases"].as_array().context("vosti bench --json has no cases")?;
    let found = rows.iter().find(|row| row["what"] == test).context("vosti bench --json lacks the case")?;
    let number = |name: &str| found[name].as_f64().with_context(|| format!("vosti bench --json lacks {name}"));
    Ok((number("tokens_per_s")?, number("bound_tokens_per_s")?))
}

fn pull(binary: &Path, name: &str) -> Result<PathBuf> {
    let printed = output(Command::new(binary).args(["pull", name]))?;
    let path = printed.lines().last().unwrap_or_default().trim();
    ensure!(Path::new(path).exists(), "vosti pull {name} did not print the model's path, but: {printed}");
    Ok(path.into())
}

/// Runs a command and returns what it printed; its error output is shown if it fails.
pub fn output(command: &mut Command) -> Result<String> {
    let result = command.current_dir(root()).output().with_context(|| format!("{command:?}"))?;
    if !result.status.success() {
        bail!("{command:?} failed:\n{}", String::from_utf8_lossy(&result.stderr));
    }
    Ok(String::from_utf8(result.stdout)?)
}

fn seconds(command: &mut Command) -> Result<f64> {
    let start = std::time::Instant::now();
    output(command)?;
    Ok(start.elapsed().as_secs_f64())
}
