//! `vosti bench`: a table of tokens per second.

use super::arguments::Bench;
use super::bar::{Bar, Unit};
use super::stream::print;
use super::{Outcome, open};
use anyhow::{Result, ensure};
use vosti::bench::{self, Case};
use vosti::deployment::Options;

pub fn run(arguments: &Bench) -> Result<Outcome> {
    ensure!(arguments.prefill + arguments.decode > 0, "--prefill 0 and --decode 0 leave nothing to measure");
    let options = Options { threads: arguments.threads, ..Options::default() };
    let deployment = open::load(&arguments.model, &options)?;
    let mut cases = Vec::new();
    for &depth in &arguments.depth {
        if arguments.prefill > 0 {
            cases.push(Case::Prefill { tokens: arguments.prefill, depth });
        }
        if arguments.decode > 0 {
            cases.extend(arguments.batch.iter().map(|&batch| Case::Decode { tokens: arguments.decode, batch, depth }));
        }
    }
    let bar = Bar::new(Unit::Count);
    let report = bench::run(&deployment, &cases, arguments.repeat.max(1), &bar)?;
    drop(bar);
    if arguments.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&report)?));
        return Ok(Outcome::Done);
    }
    print(&format!("{}, {}\n", deployment.describe(), deployment.device_name()));
    let (read, dot) = (report.read_bytes_per_s * 1e-9, report.dot_flops_per_s * 1e-9);
    print(&format!("at most      reads {read:.1} GB/s, BF16 dots {dot:.0} GFLOP/s\n"));
    print(&format!(
        "{:<10} {:>6} {:>6} {:>6} {:>12} {:>10} {:>10}\n",
        "what", "tokens", "batch", "depth", "tokens/s", "spread", "of bound"
    ));
    for result in &report.cases {
        print(&format!("{result}\n"));
        let all: f64 = result.kernels.iter().map(|kernel| kernel.seconds).sum();
        for kernel in result.kernels.iter().filter(|_| arguments.profile) {
            let (ms, share) = (kernel.seconds * 1e3, 100.0 * kernel.seconds / all.max(1e-9));
            print(&format!("  {share:5.1}% {ms:9.2} ms  {}\n", kernel.name));
        }
    }
    Ok(Outcome::Done)
}
