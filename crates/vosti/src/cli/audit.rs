//! `vosti verify FILE.py`: kernels of a file that Vosti does not know, under the contracts beside it.

use super::Outcome;
use super::arguments::Verify;
use super::output::print;
use crate::fetch::Cache;
use anyhow::Result;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use vosti_audit::{Audit, Finding, Request};
use vosti_cubin::Toolchain;
use vosti_cubin::toolchain::REQUIREMENT;

/// Whether a file is audited: it has no contract of its own, with the TTIR beside it.
pub fn wanted(arguments: &Verify) -> bool {
    let [path] = &arguments.kernel[..] else { return false };
    let own = std::fs::read_to_string(path).is_ok_and(|text| text.lines().any(|line| line.trim() == "# /// contract"));
    arguments.contract.is_some() || !own || Path::new(path).with_extension("toml").exists()
}

pub fn run(arguments: &Verify) -> Result<Outcome> {
    let request = Request {
        path: PathBuf::from(&arguments.kernel[0]),
        contract: arguments.contract.clone(),
        functions: arguments.function.clone(),
        launches: arguments.launch.clone(),
    };
    let audit = vosti_audit::audit(&request, python)?;
    let text = if arguments.json { serde_json::to_string_pretty(&audit)? + "\n" } else { words(&audit)? };
    print(&text)?;
    Ok(match audit.finding() {
        Finding::Proved => Outcome::Done,
        Finding::Refuted => Outcome::Failed,
        Finding::Unknown => Outcome::Unknown,
    })
}

/// A Python with Triton: the user's own, or the environment that `vosti prepare` makes too.
fn python() -> Result<PathBuf> {
    if let Some(python) = std::env::var_os("VOSTI_PYTHON") {
        return Ok(python.into());
    }
    let folder = Cache::of_user()?.tool(REQUIREMENT);
    if !folder.join("installed.txt").exists() {
        eprintln!("Triton       {REQUIREMENT}, in an environment of its own (the first time takes minutes)");
    }
    Ok(Toolchain::install(&folder)?.python().to_path_buf())
}

fn words(audit: &Audit) -> Result<String> {
    let mut out = String::new();
    for report in &audit.reports {
        writeln!(out, "{report}")?;
    }
    let all: BTreeSet<(&str, &str)> = audit
        .reports
        .iter()
        .flat_map(|report| {
            let own = report.assumptions.iter().map(|(name, words)| (name.as_str(), *words));
            own.chain(report.premises.iter().map(|premise| (premise.name(), premise.words())))
        })
        .collect();
    if !all.is_empty() {
        writeln!(out, "it rests on:")?;
    }
    for (name, words) in all {
        writeln!(out, "  {name}: {words}")?;
    }
    let proved = audit.reports.iter().any(|report| report.verdict == Finding::Proved);
    if proved {
        writeln!(out, "{}", super::verify::FRONT_END)?;
    }
    if !audit.skipped.is_empty() {
        let lines: Vec<String> = audit.skipped.iter().map(|skipped| skipped.line.to_string()).collect();
        writeln!(out, "not executed (--json says why): the statements of lines {}", lines.join(", "))?;
    }
    if !audit.without_contract.is_empty() {
        let names: Vec<String> =
            audit.without_contract.iter().map(|(name, line)| format!("{name} (line {line})")).collect();
        writeln!(out, "without a contract: {}", names.join(", "))?;
    }
    Ok(out)
}
