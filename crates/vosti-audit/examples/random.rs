//! Kernels at random (`tests/kernels/random_kernels.py`): what is proved also runs as Triton compiles it, and must not differ.
//!
//! `cargo run -p vosti-audit --example random -- SEED COUNT`; `VOSTI_PYTHON` names a Python with Triton. Exit code 1 and the kernel's text
//! if a proved kernel ran differently.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use vosti_audit::{AuditError, Finding, Request, audit};

/// Kernels of one file: Triton compiles them in one process.
const FILE: u64 = 20;

fn main() -> ExitCode {
    let number = |at: usize| std::env::args().nth(at).and_then(|text| text.parse::<u64>().ok());
    let (Some(seed), Some(count)) = (number(1), number(2)) else {
        eprintln!("usage: random SEED COUNT");
        return ExitCode::from(2);
    };
    let python = PathBuf::from(std::env::var_os("VOSTI_PYTHON").unwrap_or("python3".into()));
    let mut counts = BTreeMap::new();
    let mut wrong = 0;
    for file in 0..count.div_ceil(FILE) {
        let many = FILE.min(count - file * FILE);
        match tried(&python, seed.wrapping_mul(1 << 20).wrapping_add(file), many, &mut counts) {
            Ok(found) => wrong += found,
            Err(why) => {
                eprintln!("seed {seed}, file {file}: {why}");
                wrong += 1;
            }
        }
    }
    for (what, number) in &counts {
        println!("{number:7}  {what}");
    }
    println!("{:7}  proved, and ran differently", wrong);
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn tried(python: &Path, seed: u64, many: u64, counts: &mut BTreeMap<String, u64>) -> Result<u64, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let path = folder.path().join("kernels.py");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels/random_kernels.py");
    let made =
        Command::new(python).arg("-B").arg(script).args([seed.to_string(), many.to_string()]).arg(&path).status();
    if !made.map_err(|error| error.to_string())?.success() {
        return Err(format!("{script} failed"));
    }
    let request = Request { path: path.clone(), run_all: true, ..Request::default() };
    let audit = audit(&request, || Ok::<_, AuditError>(python.to_path_buf())).map_err(|error| error.to_string())?;
    let mut wrong = 0;
    for report in &audit.reports {
        let compiled = report.compiled.as_deref().unwrap_or("");
        let ran = if compiled.contains("equal bits") { "and ran the same" } else { "and did not run" };
        let stop = report.why.as_deref().unwrap_or("").split(':').next().unwrap_or("").to_string();
        let what = match report.verdict {
            Finding::Proved => format!("proved, {ran}"),
            Finding::Unknown => format!("unknown ({stop}), {ran}"),
            Finding::Refuted if report.obligation.as_deref() == Some("compiled") => {
                wrong += 1;
                println!("{report}\n{}", std::fs::read_to_string(&path).unwrap_or_default());
                continue;
            }
            Finding::Refuted => "refuted".into(),
        };
        *counts.entry(what).or_default() += 1;
    }
    Ok(wrong)
}
