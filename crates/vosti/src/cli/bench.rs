//! `vosti bench`: a table of tokens per second.

use super::arguments::Bench;
use super::bar::{Bar, Unit};
use super::output::{print, whole};
use super::{Outcome, open};
use crate::bench::agentic::{self, Trace};
use crate::bench::{self, BenchOptions, BenchReport, Case, Draw};
use crate::deployment::Deployment;
use anyhow::{Result, ensure};

pub fn run(arguments: &Bench) -> Result<Outcome> {
    ensure!(arguments.prefill + arguments.decode > 0, "--prefill 0 and --decode 0 leave nothing to measure");
    let deployment = open::load(&arguments.on.model, &open::options(&arguments.on.hardware)?)?;
    if let Some(trace) = arguments.agentic {
        return agents(&deployment, trace, arguments.on.json);
    }
    let mut cases = Vec::new();
    for &depth in &arguments.depth {
        if arguments.prefill > 0 {
            cases.push(Case::Prefill { tokens: arguments.prefill, depth });
        }
        if arguments.decode > 0 {
            cases.extend(arguments.batch.iter().map(|&batch| Case::Decode { tokens: arguments.decode, batch, depth }));
        }
    }
    let draw = Draw { temperature: arguments.temperature, top_k: arguments.top_k };
    let options = BenchOptions { draw, repeat: arguments.repeat, kernels: arguments.profile };
    let bar = Bar::new(Unit::Count);
    let report = bench::run(&deployment, &cases, options, &bar)?;
    drop(bar);
    match arguments.on.json {
        true => print(&format!("{}\n", serde_json::to_string_pretty(&report)?))?,
        false => table(&deployment, &report, arguments.profile)?,
    }
    whole(Ok(Outcome::Done), report.interrupted)
}

fn table(deployment: &Deployment, report: &BenchReport, profile: bool) -> Result<()> {
    let bits = 8.0 * deployment.element_bytes();
    print(&format!("{}, {}, {bits:.2} bits a weight\n", deployment.describe(), deployment.device_name()))?;
    let dot = report.dot_flops_per_s.map_or("not measured".into(), |flops| format!("{:.0} GFLOP/s", flops * 1e-9));
    let moves = if report.read_alone { "reads" } else { "copies" };
    print(&format!("at most      {moves} {:.1} GB/s, BF16 dots {dot}\n", report.read_bytes_per_s * 1e-9))?;
    print(&format!(
        "{:<10} {:>6} {:>6} {:>6} {:>12} {:>10} {:>10}\n",
        "what", "tokens", "batch", "depth", "tokens/s", "spread", "of bound"
    ))?;
    for result in &report.cases {
        print(&format!("{result}\n"))?;
        let all: f64 = result.kernels.iter().map(|kernel| kernel.seconds).sum();
        for kernel in result.kernels.iter().filter(|_| profile) {
            let (ms, share) = (kernel.seconds * 1e3, 100.0 * kernel.seconds / all.max(1e-9));
            print(&format!("  {share:5.1}% {ms:9.2} ms  {}\n", kernel.name))?;
        }
    }
    Ok(())
}

fn agents(deployment: &Deployment, trace: Trace, json: bool) -> Result<Outcome> {
    let bar = Bar::new(Unit::Count);
    let played = agentic::play(deployment, trace, &bar)?;
    drop(bar);
    if json {
        print(&format!("{}\n", serde_json::to_string_pretty(&played)?))?;
        return Ok(Outcome::Done);
    }
    let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len().max(1) as f64;
    print(&format!("{}, {}\n", deployment.describe(), deployment.device_name()))?;
    print(&format!(
        "{} sessions of {} turns: {:.1} s a session, first token after {:.2} s, {:.1} tokens/s\n",
        trace.sessions,
        trace.turns,
        mean(&played.session_s),
        mean(&played.first_token_s),
        played.tokens_per_s
    ))?;
    Ok(Outcome::Done)
}
