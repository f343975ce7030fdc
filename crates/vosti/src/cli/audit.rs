//! `vosti verify FILE.py`: kernels of a file that Vosti does not know, under the contracts beside it.

use super::Outcome;
use super::arguments::Verify;
use super::interrupt::without_steps;
use super::output::{Promised, print};
use crate::fetch::Cache;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use vosti_audit::{Finding, Request};

/// Whether a file is audited: it has no contract of its own, with the TTIR beside it.
pub fn wanted(arguments: &Verify) -> bool {
    let [path] = &arguments.kernel[..] else { return false };
    let own = std::fs::read_to_string(path).is_ok_and(|text| text.lines().any(|line| line.trim() == "# /// contract"));
    arguments.contract.is_some() || arguments.suggest || !own || Path::new(path).with_extension("toml").exists()
}

pub fn run(arguments: &Verify) -> Result<Outcome> {
    let request = Request {
        path: PathBuf::from(&arguments.kernel[0]),
        contract: arguments.contract.clone(),
        functions: arguments.function.clone(),
        launches: arguments.launch.clone(),
        run_all: false,
    };
    if arguments.suggest {
        let draft = || Ok(vosti_audit::suggestion(&python()?, &request.path, &request.functions)?);
        print(&without_steps::<Result<_>>(draft)?)?;
        return Ok(Outcome::Done);
    }
    // Before the work, which may take minutes.
    let page = arguments.html.as_deref().map(Promised::new).transpose()?;
    let audit = without_steps(|| vosti_audit::audit(&request, python))?;
    let text = if arguments.json { serde_json::to_string_pretty(&audit)? + "\n" } else { audit.to_string() };
    print(&text)?;
    if let Some(page) = page {
        let source = std::fs::read_to_string(&request.path).with_context(|| request.path.display().to_string())?;
        page.keep(&vosti_audit::page(&audit, &source))?;
    }
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
    Ok(super::prepare::triton(&Cache::of_user()?)?.python().to_path_buf())
}
