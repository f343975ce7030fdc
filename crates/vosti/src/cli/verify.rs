//! `vosti verify`: proves every kernel specialisation, tells a proof, or names what stays trusted.

use super::Outcome;
use super::arguments::Verify;
use anyhow::Context;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Instant;
use vosti_verify::{Options, Report, tcb, verify_all};

pub fn run(arguments: &Verify) -> anyhow::Result<Outcome> {
    if arguments.tcb {
        print(&tcb::text());
        return Ok(Outcome::Done);
    }
    let options = Options {
        prefix: arguments.kernel.clone().unwrap_or_default(),
        no_cache: arguments.no_cache || arguments.record.is_some(),
        read_only: arguments.read_only,
        recheck_percent: if arguments.read_only { 5 } else { 0 },
        seed: arguments.seed,
        ..Options::default()
    };
    let start = Instant::now();
    let inventory = verify_all(&options)?;
    anyhow::ensure!(
        !inventory.entries.is_empty(),
        "no kernel specialisation starts with `{}`; `vosti verify` lists all",
        options.prefix
    );
    let mut out = String::new();
    for (report, _) in &inventory.entries {
        line(&mut out, report)?;
        if arguments.explain {
            explain(&mut out, report)?;
        }
    }
    let proved = inventory.entries.iter().filter(|(r, _)| r.verdict.is_proved()).count();
    let total = inventory.entries.len();
    let counts = inventory.counts;
    writeln!(
        out,
        "{proved} of {total} proved in {:.1} s; {} questions to {}, {} from the checked-in answers, {} of those solved again",
        start.elapsed().as_secs_f64(),
        counts.asked,
        if inventory.solver.is_empty() { "no solver" } else { &inventory.solver },
        counts.cached,
        counts.rechecked
    )?;
    let assumed: BTreeSet<_> = inventory.entries.iter().flat_map(|(r, _)| r.assumptions.iter().copied()).collect();
    writeln!(out, "assumptions (probed on cpu; untested on cuda-sm90):")?;
    for assumption in assumed {
        writeln!(out, "  {assumption}: {}", assumption.words())?;
    }
    print(&out);
    if let Some(folder) = &arguments.certificates {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        for certificate in inventory.entries.iter().filter_map(|(_, c)| c.as_ref()) {
            let path = folder.join(format!("{}.json", certificate.kernel));
            std::fs::write(&path, certificate.to_json()).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    if let Some(path) = &arguments.record {
        let text = inventory.answers.to_text();
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(if proved == total && counts.disagreed == 0 { Outcome::Done } else { Outcome::Failed })
}

fn line(out: &mut String, report: &Report) -> std::fmt::Result {
    let seconds = report.time.as_secs_f64();
    let n = report.assumptions.len();
    writeln!(out, "{seconds:6.2} s  {:18} {}  {n} assumptions  {}", report.contract, report.verdict, report.name)
}

fn explain(out: &mut String, report: &Report) -> std::fmt::Result {
    for step in &report.story {
        writeln!(out, "    {}{}", "  ".repeat(step.depth), step.text)?;
    }
    Ok(())
}

/// A closed pipe (`| head`) is no error of ours.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}
