//! `cargo xtask bench cpu`: measures this engine and llama.cpp in turn, on the same machine and the same file.
//!
//! Both engines run the file as people download it, and llama.cpp also its own fastest form of the same size (Q4_0, which it
//! rearranges as it loads); or both run BF16. Each cell (a prompt length or batch, at a depth) is measured in rounds: ours,
//! theirs, ours, theirs. The report has each side's median, and the median of the rounds' ratios, which stays stable when the
//! machine's speed drifts. No time is asserted. `--peer DIR` takes another build that has a `llama-bench`, for what that
//! program measures everywhere: prefill, and decode of one sequence, both without a past.

mod memory;
mod peer;

use crate::{llama_cpp, root, run_command, target_folder};
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

/// `cargo xtask bench`
#[derive(Args)]
pub struct Bench {
    /// What to measure: cpu
    #[arg(value_parser = ["cpu"])]
    target: String,
    /// Pairs of runs in each cell
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Depths (tokens already cached)
    #[arg(long, value_delimiter = ',', default_value = "0,4096")]
    depth: Vec<usize>,
    /// Sequences that decode together
    #[arg(long, value_delimiter = ',', default_value = "1,4,8")]
    batch: Vec<usize>,
    /// Models of the catalogue, or `random-1.7b`, `random-8b`, `random-30b-a3b` and `random-qwen3.5-4b`: Q4_K_M files of a Llama, of Qwen 3's
    /// mixture or of Qwen 3.5, of that size with random weights (`random-30b-a3b:12`: with 12 of its layers)
    #[arg(long, value_delimiter = ',', default_value = "smollm2-135m,gemma3-270m,random-1.7b")]
    model: Vec<String>,
    /// `file`: both engines on the file, and llama.cpp on its Q4_0; `bf16`: both engines on the same weights in BF16
    #[arg(long, value_delimiter = ',', value_parser = ["file", "bf16"], default_value = "file,bf16")]
    weights: Vec<String>,
    /// Threads of both engines
    #[arg(long, default_value_t = std::thread::available_parallelism().map_or(2, |n| n.get()))]
    threads: usize,
    /// Limit both engines to AVX2, on a machine that has more
    #[arg(long)]
    avx2: bool,
    /// The folder of another build's `llama-bench`, instead of llama.cpp: prefill and batch 1 at depth 0, of the file
    #[arg(long, value_name = "DIR", conflicts_with_all = ["depth", "batch", "weights"])]
    peer: Option<PathBuf>,
    /// Flags for that `llama-bench`, for example `-rtr 1`
    #[arg(long, value_name = "FLAGS", requires = "peer", allow_hyphen_values = true, default_value = "")]
    peer_flags: String,
    /// Bits of our activations, on quantised weights
    #[arg(long, value_parser = ["8", "16"])]
    activations: Option<String>,
    /// Where to write the measurements
    #[arg(long, default_value = "target/bench-cpu.json")]
    out: PathBuf,
}

impl Bench {
    /// The arguments of our commands that say how they compute.
    fn options(&self) -> Vec<&str> {
        let isa = self.avx2.then_some(["--isa", "avx2"]);
        let activations = self.activations.as_ref().map(|bits| ["--activations", bits]);
        isa.into_iter().chain(activations).flatten().collect()
    }
}

const PREFILL: usize = 512;
const DECODE: usize = 64;

/// A case that is measured.
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

/// Our file, and the peer's files by their names in the report.
struct Contest {
    name: String,
    ours: PathBuf,
    theirs: Vec<(&'static str, PathBuf)>,
}

pub fn run(bench: &Bench) -> Result<()> {
    run_command(Command::new(env!("CARGO")).args(["build", "--release", "--package", "vosti"]))?;
    let peer = match &bench.peer {
        Some(folder) => peer::named(folder, bench.peer_flags.split_whitespace().map(String::from).collect())?,
        None => peer::build(bench.avx2)?,
    };
    let engines = Engines { vosti: target_folder().join("release/vosti"), peer };
    let mut report = Vec::new();
    for name in &bench.model {
        let file = engines.file(name)?;
        if engines.peer.is_named() {
            report.extend(compare_named(bench, &engines, name, file)?);
            continue;
        }
        for weights in &bench.weights {
            let contest = engines.contest(name, &file, weights)?;
            report.extend(compare(bench, &engines, &contest)?);
        }
    }
    if let Some(folder) = bench.out.parent() {
        fs::create_dir_all(root().join(folder))?;
    }
    fs::write(root().join(&bench.out), serde_json::to_string_pretty(&report)?)?;
    println!("\nwritten to {}", bench.out.display());
    Ok(())
}

/// What the `llama-bench` of every build measures.
fn compare_named(bench: &Bench, engines: &Engines, name: &str, file: PathBuf) -> Result<Vec<Value>> {
    let contest = Contest { name: name.into(), ours: file.clone(), theirs: vec![("peer", file)] };
    heading(&contest);
    let cells = [Cell::Prefill { depth: 0 }, Cell::Decode { batch: 1, depth: 0 }];
    cells.into_iter().map(|cell| measure(bench, engines, &contest, cell)).collect()
}

fn heading(contest: &Contest) {
    let peers: Vec<&str> = contest.theirs.iter().map(|(label, _)| *label).collect();
    println!("\n| {} | Vosti | {} | ratio |", contest.name, peers.join(" | "));
    println!("| --- | --- | {} --- |", "--- | ".repeat(peers.len()));
}

/// Measures every cell of one contest, and prints a table.
fn compare(bench: &Bench, engines: &Engines, contest: &Contest) -> Result<Vec<Value>> {
    heading(contest);
    let mut report = vec![];
    for depth in &bench.depth {
        report.push(measure(bench, engines, contest, Cell::Prefill { depth: *depth })?);
        for batch in &bench.batch {
            report.push(measure(bench, engines, contest, Cell::Decode { batch: *batch, depth: *depth })?);
        }
    }
    report.push(start_up(bench, engines, contest)?);
    report.push(memory(bench, engines, contest)?);
    Ok(report)
}

struct Engines {
    vosti: PathBuf,
    peer: peer::Peer,
}

impl Engines {
    /// The model's file: downloaded, or made with random weights.
    fn file(&self, name: &str) -> Result<PathBuf> {
        match name.strip_prefix("random-") {
            Some(shape) if shape == "1.7b" || shape.starts_with("30b-a3b") => {
                self.peer.random(shape, &pull(&self.vosti, "smollm2-135m")?)
            }
            Some(shape) if shape.starts_with("qwen3.5-4b") => {
                self.peer.random(shape, &llama_cpp::source()?.join("models/ggml-vocab-qwen35.gguf"))
            }
            Some("8b") => self.peer.random("8b", &llama_cpp::source()?.join("models/ggml-vocab-llama-bpe.gguf")),
            Some(_) => {
                bail!(
                    "{name} is not a model of this benchmark; it has random-1.7b, random-8b, random-30b-a3b and random-qwen3.5-4b"
                )
            }
            None => pull(&self.vosti, name),
        }
    }

    fn contest(&self, name: &str, file: &Path, weights: &str) -> Result<Contest> {
        let (ours, theirs) = if weights == "bf16" {
            let same = self.peer.quantised(file, name, "BF16")?;
            (same.clone(), vec![("llama.cpp", same)])
        } else {
            let rearranged = self.peer.quantised(file, name, "Q4_0")?;
            (file.into(), vec![("llama.cpp", file.into()), ("llama.cpp, Q4_0", rearranged)])
        };
        Ok(Contest { name: format!("{name}, {weights}"), ours, theirs })
    }

    /// Our command that generates `tokens` tokens.
    fn generate(&self, bench: &Bench, model: &Path, tokens: usize) -> Command {
        let mut generate = Command::new(&self.vosti);
        generate.stdin(Stdio::null()).args([
            "generate",
            "--raw",
            "The three laws of robotics are",
            "-n",
            &tokens.to_string(),
            "--threads",
        ]);
        generate.arg(bench.threads.to_string()).args(bench.options()).arg("--model").arg(model);
        generate
    }
}

/// Measures one cell in rounds, in tokens per second.
fn measure(bench: &Bench, engines: &Engines, contest: &Contest, cell: Cell) -> Result<Value> {
    let mut of_bound = Vec::new();
    let us = || {
        let (rate, bound) = vosti(&engines.vosti, &contest.ours, bench, cell)?;
        of_bound.push(rate / bound);
        Ok(rate)
    };
    let them = |model: &Path| engines.peer.tokens_per_second(model, bench.threads, cell);
    let mut row = rounds(bench, contest, &cell.name(), "tokens/s", us, them)?;
    println!("| of the machine's bound | {:.0}% | | |", 100.0 * median(&of_bound));
    row["of_bound"] = json!(of_bound);
    Ok(row)
}

/// Seconds from the start of the process to the end of its first token, loading included.
fn start_up(bench: &Bench, engines: &Engines, contest: &Contest) -> Result<Value> {
    let us = || seconds(&mut engines.generate(bench, &contest.ours, 1));
    let them = |model: &Path| seconds(&mut engines.peer.first_token(model, bench.threads));
    rounds(bench, contest, "process start to first token", "s", us, them)
}

/// Runs ours and then each of theirs, `bench.pairs` times, and prints medians and ratios.
fn rounds(
    bench: &Bench,
    contest: &Contest,
    cell: &str,
    unit: &str,
    mut us: impl FnMut() -> Result<f64>,
    them: impl Fn(&Path) -> Result<f64>,
) -> Result<Value> {
    let mut ours = vec![];
    let mut theirs = vec![vec![]; contest.theirs.len()];
    for _ in 0..bench.pairs {
        ours.push(us()?);
        for ((_, model), rates) in contest.theirs.iter().zip(&mut theirs) {
            rates.push(them(model)?);
        }
    }
    let mut row =
        json!({ "model": contest.name, "cell": cell, "unit": unit, "vosti": ours, "median_vosti": median(&ours) });
    let mut line = format!("| {cell} | {:.3} {unit} |", median(&ours));
    let mut ratios = vec![];
    for ((label, _), rates) in contest.theirs.iter().zip(&theirs) {
        let each: Vec<f64> = ours.iter().zip(rates).map(|(a, b)| a / b).collect();
        let [low, high] = [f64::INFINITY, 0.0];
        let (low, high) = each.iter().fold((low, high), |(low, high), r| (low.min(*r), high.max(*r)));
        line += &format!(" {:.3} |", median(rates));
        ratios.push(format!("{:.2} ({low:.2} to {high:.2})", median(&each)));
        row[*label] = json!({ "runs": rates, "median": median(rates), "median_ratio": median(&each) });
    }
    println!("{line} {} |", ratios.join(", "));
    Ok(row)
}

/// Peak memory: of our process, which generates 64 tokens, and of theirs, which prefills 8 tokens and decodes one. Printed in
/// MiB, reported in bytes.
fn memory(bench: &Bench, engines: &Engines, contest: &Contest) -> Result<Value> {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let us = memory::peak(&mut engines.generate(bench, &contest.ours, 64))?;
    let mut row = json!({ "model": contest.name, "cell": "peak memory", "unit": "bytes",
                          "file": fs::metadata(&contest.ours)?.len(), "vosti": [us.anonymous, us.resident] });
    let mut lines = [us.anonymous, us.resident].map(|bytes| format!("{:.0} MiB |", mib(bytes)));
    for (label, model) in &contest.theirs {
        let them = memory::peak(&mut engines.peer.first_token(model, bench.threads))?;
        row[*label] = json!([them.anonymous, them.resident]);
        for (line, bytes) in lines.iter_mut().zip([them.anonymous, them.resident]) {
            *line += &format!(" {:.0} MiB |", mib(bytes));
        }
    }
    println!("| peak anonymous memory | {} |", lines[0]);
    println!("| peak resident memory | {} file: {:.0} MiB |", lines[1], mib(fs::metadata(&contest.ours)?.len()));
    Ok(row)
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

/// One run of `vosti bench`: its rate, and the bound by the machine's ceilings, both in tokens per second.
fn vosti(binary: &Path, model: &Path, bench: &Bench, cell: Cell) -> Result<(f64, f64)> {
    let mut command = Command::new(binary);
    command.args(["bench", "--json", "--repeat", "1", "--threads", &bench.threads.to_string(), "--model"]).arg(model);
    command.args(bench.options());
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

/// Runs a command and returns its standard output. If it fails, the error has its error output.
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        bench: Bench,
    }

    #[test]
    fn a_folder_without_a_llama_bench_is_refused_and_a_relative_one_is_found() {
        let named = |folder: &str| peer::named(Path::new(folder), vec![]).map(|_| ()).unwrap_err();
        assert!(format!("{:#}", named("no/such/folder")).starts_with("no/such/folder: "));
        assert!(named("src").to_string().ends_with("xtask/src has no llama-bench"), "{}", named("src"));
    }

    #[test]
    fn no_pairs_are_refused() {
        let pairs =
            |n: &str| Command::try_parse_from(["bench", "cpu", "--pairs", n]).map(|command| command.bench.pairs);
        assert_eq!(pairs("3").unwrap(), 3);
        let error = pairs("0").err().unwrap().to_string();
        assert!(
            error.contains("invalid value '0' for '--pairs <PAIRS>'") && error.contains("is not in 1.."),
            "{error}"
        );
    }
}
