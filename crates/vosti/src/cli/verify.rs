//! `vosti verify`: proves every kernel specialisation, prints a proof in words, or lists what stays trusted.

use super::Outcome;
use super::arguments::Verify;
use super::interrupt::without_steps;
use super::output::{print, verdict};
use anyhow::Context;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;
use vosti_admission::Bundle;
use vosti_verify::{
    Assumption, Cache, Case, Inventory, Solver, Verification, VerifyOptions, find_cvc5, find_z3, tcb, verify_all,
    verify_or_refute, verify_texts,
};

/// Pairs of runs that search for a counterexample if a user's own kernel is not proved.
const REPLAYS: u64 = 60;

pub fn run(arguments: &Verify) -> anyhow::Result<Outcome> {
    if arguments.tcb {
        print(&tcb::text())?;
        return Ok(Outcome::Done);
    }
    let file = arguments.kernel.iter().any(|kernel| kernel.ends_with(".py"));
    if file && super::audit::wanted(arguments) {
        return super::audit::run(arguments);
    }
    only_audits(
        arguments,
        if file { "a file with its contract and `.ttir` has one kernel" } else { "it takes a Triton file" },
    )?;
    if file {
        return own(arguments);
    }
    anyhow::ensure!(arguments.kernel.len() < 2, "a pair is two files: vosti verify A.py B.py");
    let options = VerifyOptions {
        prefix: arguments.kernel.first().cloned().unwrap_or_default(),
        no_cache: arguments.no_cache,
        read_only: arguments.read_only,
        recheck_percent: if arguments.read_only { 5 } else { 0 },
        seed: arguments.seed,
        ..VerifyOptions::default()
    };
    if let Some(folder) = &arguments.certificates {
        // Before the proof, which takes minutes.
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let start = Instant::now();
    let bundle = Bundle::open(arguments.bundle.as_deref())?;
    let inventory = match bundle.manifest() {
        None => without_steps(|| verify_all(&options))?,
        Some(_) => {
            let kernels = bundle.certificates().keys().filter(|kernel| kernel.starts_with(&options.prefix));
            let texts: Vec<_> = kernels.map(|kernel| (kernel.as_str(), bundle.ttir(kernel).unwrap_or(""))).collect();
            without_steps(|| verify_texts(&texts, &|kernel| bundle.ttir(kernel), &options))?
        }
    };
    anyhow::ensure!(
        !inventory.entries.is_empty(),
        "no kernel specialisation starts with `{}`; `vosti verify` lists all",
        options.prefix
    );
    let stale = inventory.not_as_recorded(bundle.certificates());
    let mut out = String::new();
    for (index, (verification, _)) in inventory.entries.iter().enumerate() {
        // An explanation fits one screen: other kernels have a line only if they failed.
        if arguments.explain && !arguments.all && index > 0 && verification.verdict.is_proved() {
            continue;
        }
        line(&mut out, verification)?;
        let kernel = vosti_kernels::kernel(verification.name.split('-').next().unwrap_or_default());
        source_line(&mut out, verification, kernel.map_or("", |kernel| kernel.source))?;
        if arguments.explain && (arguments.all || index == 0) {
            explain(&mut out, verification, arguments.all)?;
        }
    }
    totals(&mut out, &inventory, start.elapsed().as_secs_f64())?;
    certified(&mut out, &inventory, &stale, arguments)?;
    let fresh = stale.is_empty() || arguments.record.is_some();
    let outcome = verdict(&out, inventory.proved() && fresh);
    write(&inventory, arguments)?;
    outcome
}

/// An error if there is an option that only an audit has; `why` says why this is none.
fn only_audits(arguments: &Verify, why: &str) -> anyhow::Result<()> {
    let given = [
        ("--function", !arguments.function.is_empty()),
        ("--launch", !arguments.launch.is_empty()),
        ("--contract", arguments.contract.is_some()),
        ("--json", arguments.json),
        ("--suggest", arguments.suggest),
        ("--html", arguments.html.is_some()),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((option, _)) => anyhow::bail!(
            "{option} is for one Triton file with contracts beside it, `vosti verify FILE.py` (docs/verify-your-kernel.md): {why}"
        ),
    }
}

/// A kernel in a file of its own, or two that must give the same bits.
fn own(arguments: &Verify) -> anyhow::Result<Outcome> {
    anyhow::ensure!(
        arguments.bundle.is_none() && arguments.certificates.is_none() && !arguments.read_only,
        "a kernel of your own has no bundle, no certificate and no checked-in answers: leave out --bundle, --certificates and --read-only"
    );
    let mut cases = vec![];
    for path in &arguments.kernel {
        let wants = "a kernel is a .py with its contract and the .ttir beside it (filetests/make.py writes that)";
        cases.push(Case::read(Path::new(path)).with_context(|| format!("cannot read {path}; {wants}"))?);
    }
    let (left, right) = (&cases[0], cases.last().unwrap_or(&cases[0]));
    let mut out = String::new();
    let verification = match (&left.problem, &right.problem) {
        (Ok(left), Ok(right)) => {
            let mut solver = Solver::new(find_z3(), Cache::none()).with_second(find_cvc5());
            without_steps(|| verify_or_refute(left, right, REPLAYS, &mut solver))?
        }
        (Err(error), _) | (_, Err(error)) => Verification::refused(&left.name, error),
    };
    line(&mut out, &verification)?;
    source_line(&mut out, &verification, &left.source)?;
    if arguments.explain {
        explain(&mut out, &verification, arguments.all)?;
    }
    assumptions(&mut out, verification.assumptions.iter().copied())?;
    if verification.verdict.is_proved() {
        writeln!(out, "{}", vosti_audit::FRONT_END)?;
    }
    verdict(&out, verification.verdict.is_proved())
}

/// The line of the Triton source at which a proof failed.
fn source_line(out: &mut String, verification: &Verification, source: &str) -> std::fmt::Result {
    let at = verification.verdict.failure().and_then(|failure| failure.python_line).unwrap_or(0) as usize;
    match source.lines().nth(at.wrapping_sub(1)) {
        Some(text) => writeln!(out, "          line {at}: {}", text.trim()),
        None => Ok(()),
    }
}

fn totals(out: &mut String, inventory: &Inventory, seconds: f64) -> std::fmt::Result {
    let proved = inventory.entries.iter().filter(|(r, _)| r.verdict.is_proved()).count();
    let (total, counts) = (inventory.entries.len(), inventory.counts);
    writeln!(
        out,
        "{proved} of {total} proved in {seconds:.1} s; {} questions to {}, {} from the checked-in answers ({} of those solved again), {} repeated",
        counts.asked,
        if inventory.solver.is_empty() { "no solver" } else { &inventory.solver },
        counts.cached,
        counts.rechecked,
        counts.repeated
    )?;
    if counts.seconded > 0 {
        writeln!(out, "a second solver gave the same answer to {} questions", counts.seconded)?;
    }
    if counts.disagreed > 0 {
        writeln!(out, "{} CHECKED-IN ANSWERS ARE WRONG: the solver now says otherwise", counts.disagreed)?;
    }
    assumptions(out, inventory.entries.iter().flat_map(|(r, _)| r.assumptions.iter().copied()))
}

fn assumptions(out: &mut String, used: impl Iterator<Item = Assumption>) -> std::fmt::Result {
    let used: BTreeSet<_> = used.collect();
    if used.is_empty() {
        return Ok(());
    }
    let untested: Vec<_> = vosti_kernels::targets().filter(|target| *target != vosti_kernels::CPU).collect();
    writeln!(out, "assumptions (probed on cpu; untested on {}):", untested.join(", "))?;
    for assumption in used {
        writeln!(out, "  {assumption}: {}", assumption.words())?;
    }
    Ok(())
}

/// Whether the recorded certificates, which a deployment relies on, equal the ones that this run made.
fn certified(out: &mut String, inventory: &Inventory, stale: &[&str], arguments: &Verify) -> std::fmt::Result {
    let origin = arguments.bundle.as_ref().map_or("this binary".to_string(), |folder| folder.display().to_string());
    let total = inventory.certificates().count();
    writeln!(out, "certificates in {origin}: {} of {total} are fresh", total - stale.len())?;
    if arguments.record.is_some() || stale.is_empty() {
        return Ok(());
    }
    for kernel in stale.iter().take(8) {
        writeln!(out, "  STALE or missing: {kernel}")?;
    }
    match arguments.bundle {
        Some(_) => writeln!(out, "run `vosti prepare` again"),
        None => writeln!(out, "run `vosti verify --record` in the source tree, commit the files, and build again"),
    }
}

fn write(inventory: &Inventory, arguments: &Verify) -> anyhow::Result<()> {
    if let Some(folder) = &arguments.certificates {
        for certificate in inventory.certificates() {
            let path = folder.join(format!("{}.json", certificate.kernel));
            std::fs::write(&path, certificate.to_json()).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    if let Some(folder) = &arguments.record {
        let hint = "--record takes the folder of answers.txt, crates/vosti-verify/cache in the source tree";
        inventory.record(folder).with_context(|| format!("cannot write to {}; {hint}", folder.display()))?;
    }
    Ok(())
}

fn line(out: &mut String, verification: &Verification) -> std::fmt::Result {
    let seconds = verification.time.as_secs_f64();
    let n = verification.assumptions.len();
    writeln!(
        out,
        "{seconds:6.2} s  {:18} {}  {n} assumptions  {}",
        verification.contract, verification.verdict, verification.name
    )
}

/// Lines of a proof that fit on a screen together with the other output.
const SCREEN: usize = 30;

fn explain(out: &mut String, verification: &Verification, all: bool) -> std::fmt::Result {
    let shown = if all { verification.story.len() } else { SCREEN };
    for step in verification.story.iter().take(shown) {
        writeln!(out, "    {}{}", "  ".repeat(step.depth), step.text)?;
    }
    match verification.story.len().saturating_sub(shown) {
        0 => Ok(()),
        more => {
            writeln!(out, "    ... and {more} more steps: --explain --all prints them, and those of every other kernel")
        }
    }
}
