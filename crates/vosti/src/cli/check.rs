//! `vosti check`: runs the determinism suite and shows what it found.

use super::arguments::{Check, Device, ProfileName};
use super::bar::{Bar, Unit};
use super::stream::print;
use super::{Outcome, open};
use anyhow::{Context, Result};
use std::path::Path;
use vosti::check::{self, Profile, Subject, endpoint, faults, html};
use vosti::deployment::Real;

pub fn run(arguments: &Check) -> Result<Outcome> {
    if let Some(url) = &arguments.endpoint {
        return measure(arguments, url);
    }
    let deployment = open::load(&arguments.model, &open::options(&arguments.hardware, None))?;
    let program = std::env::current_exe().ok();
    let subject = Real::new(deployment, program.map(|path| (path, again(arguments))));
    if arguments.probe {
        check::probe(&subject, arguments.seed)?.iter().for_each(|digest| print(&format!("{digest}\n")));
        return Ok(Outcome::Done);
    }
    if arguments.self_test {
        return self_test(arguments, &subject);
    }
    let profile = match arguments.profile {
        ProfileName::Quick => Profile::quick(subject.facts().window),
        ProfileName::Paper => Profile::paper(subject.facts().window),
    };
    let options = check::Options {
        profile,
        prompt_max: arguments.max_prompt,
        only: arguments.only.clone(),
        seed: arguments.seed,
    };
    let report = check::run(&subject, &options, &Bar::new(Unit::Count))?;
    if let Some(path) = &arguments.html {
        std::fs::write(path, html::page(&report)).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let json = serde_json::to_string_pretty(&report)?;
    finish(arguments.json.as_deref(), &json, &report.table(), report.passed)
}

/// The flags by which another process opens the same deployment.
fn again(arguments: &Check) -> Vec<String> {
    let hardware = &arguments.hardware;
    let mut flags = vec!["--model".into(), arguments.model.clone()];
    if hardware.device == Device::Cuda {
        flags.extend(["--device".into(), "cuda".into()]);
    }
    if let Some(folder) = &hardware.bundle {
        flags.extend(["--bundle".into(), folder.display().to_string()]);
    }
    flags
}

/// Another server, from outside.
fn measure(arguments: &Check, url: &str) -> Result<Outcome> {
    let key = arguments.api_key.clone().or_else(|| std::env::var("OPENAI_API_KEY").ok());
    let options = endpoint::Options {
        url: url.to_string(),
        key: key.filter(|key| !key.is_empty()),
        model: arguments.endpoint_model.clone(),
        prompts: arguments.prompts.max(1),
        tokens: arguments.answer.max(1),
        together: arguments.together.iter().map(|n| (*n).max(1)).collect(),
        seed: arguments.seed,
    };
    let report = endpoint::run(&options, &Bar::new(Unit::Count))?;
    finish(arguments.json.as_deref(), &serde_json::to_string_pretty(&report)?, &report.table(), report.passed)
}

fn self_test(arguments: &Check, subject: &Real) -> Result<Outcome> {
    let bar = Bar::new(Unit::Count);
    let results = [faults::self_test(&bar)?, faults::self_test_of(subject, &bar)?];
    drop(bar);
    let tables: Vec<String> = results.iter().map(faults::SelfTest::table).collect();
    let passed = results.iter().all(faults::SelfTest::passed);
    finish(arguments.json.as_deref(), &serde_json::to_string_pretty(&results)?, &tables.join("\n"), passed)
}

/// JSON where it was asked for; the table on standard output unless the JSON went there.
fn finish(json_to: Option<&Path>, json: &str, table: &str, passed: bool) -> Result<Outcome> {
    match json_to {
        Some(path) if path == Path::new("-") => print(&format!("{json}\n")),
        Some(path) => {
            std::fs::write(path, json).with_context(|| format!("cannot write {}", path.display()))?;
            print(table);
        }
        None => print(table),
    }
    Ok(if passed { Outcome::Done } else { Outcome::Failed })
}
