//! Proves checked-in specialisations whose file stem starts with the argument. `-v` prints the proof in words, `--record
//! FOLDER` writes answers and certificates, `--no-cache` asks the solver everything. The exit code is 1 if a kernel is not
//! proved, or on an error.

use std::process::ExitCode;
use std::time::Instant;
use vosti_verify::{VerifyOptions, verify_all};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| args.iter().any(|a| a == flag);
    let record = args.iter().position(|a| a == "--record").and_then(|i| args.get(i + 1));
    let options = VerifyOptions {
        prefix: args.first().filter(|a| !a.starts_with('-')).cloned().unwrap_or_default(),
        no_cache: has("--no-cache"),
        ..VerifyOptions::default()
    };
    let start = Instant::now();
    let inventory = match verify_all(&options) {
        Ok(inventory) => inventory,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    for (report, _) in &inventory.entries {
        let seconds = report.time.as_secs_f64();
        println!("{seconds:6.3}s {:4} queries  {}: {}", report.queries, report.name, report.verdict);
        if has("-v") {
            report.story.iter().for_each(|s| println!("{}{}", "  ".repeat(s.depth + 1), s.text));
        }
    }
    let proved = inventory.entries.iter().filter(|(r, _)| r.verdict.is_proved()).count();
    let (n, s) = (inventory.entries.len(), start.elapsed().as_secs_f64());
    println!("{proved} of {n} proved in {s:.1} s; {:?}; {}", inventory.counts, inventory.solver);
    if let Some(path) = record
        && let Err(error) = inventory.record(path.as_ref())
    {
        eprintln!("{path}: {error}");
        return ExitCode::FAILURE;
    }
    if n > 0 && inventory.proved() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
