//! `vosti check`: runs the determinism suite and shows its results.

use super::arguments::{Check, Device, ProfileName};
use super::bar::{Bar, Unit};
use super::interrupt::without_steps;
use super::output::{Promised, judged, print, verdict, whole};
use super::{Outcome, open};
use crate::deployment::DeploymentSubject;
use anyhow::{Result, bail};
use clap::ValueEnum;
use std::path::{Path, PathBuf};
use vosti_check::endpoint::{self, EndpointOptions};
use vosti_check::{self as suite, Profile, Subject, SuiteOptions, faults, html};

pub fn run(arguments: &Check, program: Option<PathBuf>) -> Result<Outcome> {
    // Before the work, which may take hours: a file that cannot be written is reported at once.
    let files = Files::new(arguments)?;
    if let Some(url) = &arguments.endpoint {
        return measure(arguments, url, files);
    }
    if program.is_none() && compares_restart(arguments) {
        bail!(
            "the system does not tell where this program is, so the relation `machine` cannot start it again: choose \
             others with --only"
        );
    }
    let deployment = open::load(&arguments.model, &open::options(&arguments.hardware)?)?;
    let subject = DeploymentSubject::new(&deployment, program.map(|path| (path, again(arguments))));
    if arguments.digests {
        let digests = suite::digests(&subject, arguments.seed, &Bar::new(Unit::Count))?;
        print(&digests.iter().map(|digest| format!("{digest}\n")).collect::<String>())?;
        return Ok(Outcome::Done);
    }
    if arguments.self_test {
        return self_test(&subject, files);
    }
    let profile = match arguments.profile {
        ProfileName::Quick => Profile::quick(subject.facts().window),
        ProfileName::Paper => Profile::paper(subject.facts().window),
    };
    let options =
        SuiteOptions { profile, prompt_max: arguments.max_prompt, only: arguments.only.clone(), seed: arguments.seed };
    let report = suite::run(&subject, &options, &Bar::new(Unit::Count))?;
    let page = files.html.is_some().then(|| html::page(&report));
    let json = serde_json::to_string_pretty(&report)?;
    let found = files.finish(&json, page.as_deref(), &report.table(), report.passed);
    whole(found, report.interrupted)
}

/// Whether the relation that starts this program once more is run.
fn compares_restart(arguments: &Check) -> bool {
    let only = &arguments.only;
    !arguments.digests && !arguments.self_test && (only.is_empty() || only.iter().any(|name| name == "machine"))
}

/// Flags with which another process opens a deployment of the same fingerprint.
fn again(arguments: &Check) -> Vec<String> {
    let hardware = &arguments.hardware;
    let mut flags = vec!["--model".into(), arguments.model.clone()];
    if let Device::Cuda(index) = hardware.device {
        flags.extend(["--device".into(), format!("cuda:{index}")]);
    }
    if let Some(context) = hardware.context {
        flags.extend(["--context".into(), context.to_string()]);
    }
    if let Some(folder) = &hardware.bundle {
        flags.extend(["--bundle".into(), folder.display().to_string()]);
    }
    if let Some(value) = hardware.arithmetic.and_then(|value| value.to_possible_value()) {
        flags.extend(["--arithmetic".into(), value.get_name().into()]);
    }
    if let Some(value) = hardware.activations.and_then(|value| value.to_possible_value()) {
        flags.extend(["--activations".into(), value.get_name().into()]);
    }
    if let Some(value) = hardware.weights.to_possible_value() {
        flags.extend(["--weights".into(), value.get_name().into()]);
    }
    flags
}

/// Measures a server through its API.
fn measure(arguments: &Check, url: &str, files: Files) -> Result<Outcome> {
    let key = arguments.api_key.clone().or_else(|| std::env::var("OPENAI_API_KEY").ok());
    let options = EndpointOptions {
        url: url.to_string(),
        key: key.filter(|key| !key.is_empty()),
        model: arguments.endpoint_model.clone(),
        prompts: arguments.prompts,
        tokens: arguments.answer,
        together: arguments.together.clone(),
        seed: arguments.seed,
    };
    // A server may be silent, and an unfinished measurement has no report.
    let report = without_steps(|| endpoint::run(&options, &Bar::new(Unit::Count)))?;
    files.finish(&serde_json::to_string_pretty(&report)?, None, &report.table(), report.passed)
}

fn self_test(subject: &DeploymentSubject, files: Files) -> Result<Outcome> {
    let bar = Bar::new(Unit::Count);
    let results = [faults::self_test(&bar)?, faults::self_test_of(subject, &bar)?];
    drop(bar);
    let tables: Vec<String> = results.iter().map(faults::SelfTest::table).collect();
    let passed = results.iter().all(faults::SelfTest::passed);
    files.finish(&serde_json::to_string_pretty(&results)?, None, &tables.join("\n"), passed)
}

/// The files that the result is written to.
struct Files {
    /// `--json -`.
    json_on_stdout: bool,
    json: Option<Promised>,
    html: Option<Promised>,
}

impl Files {
    fn new(arguments: &Check) -> Result<Self> {
        let json_on_stdout = arguments.json.as_deref() == Some(Path::new("-"));
        let json = arguments.json.as_deref().filter(|_| !json_on_stdout);
        let (json, html) =
            (json.map(Promised::new).transpose()?, arguments.html.as_deref().map(Promised::new).transpose()?);
        Ok(Files { json_on_stdout, json, html })
    }

    /// Writes JSON and page where they were asked for, and the table to standard output unless the JSON goes there.
    fn finish(self, json: &str, page: Option<&str>, table: &str, passed: bool) -> Result<Outcome> {
        let kept = self.json.map_or(Ok(()), |file| file.keep(json));
        let kept = kept.and(self.html.map_or(Ok(()), |file| file.keep(page.unwrap_or_default())));
        let outcome = match self.json_on_stdout {
            true => verdict(&format!("{json}\n"), passed),
            false => verdict(table, passed),
        };
        match kept {
            Ok(()) => outcome,
            Err(error) => judged(Err(error), passed),
        }
    }
}

#[cfg(test)]
mod tests {
    /// The check ends before the model is looked for: there is none of this name.
    #[test]
    fn without_its_own_path_a_check_of_restarts_is_refused() {
        let check = |more: &[&str]| {
            let words = ["vosti", "check", "--model", "/there/is/none"].iter().chain(more);
            let Ok(parsed) = <crate::cli::arguments::Vosti as clap::Parser>::try_parse_from(words) else {
                panic!("{more:?}")
            };
            let crate::cli::arguments::Command::Check(arguments) = parsed.command else { panic!("{more:?}") };
            super::run(&arguments, None).map(drop).expect_err("no model").to_string()
        };
        for more in [&[][..], &["--only", "batch,machine"]] {
            assert!(check(more).contains("cannot start it again"), "{more:?}: {}", check(more));
        }
        for more in [&["--only", "batch"][..], &["--digests"], &["--self-test"]] {
            assert!(check(more).contains("/there/is/none"), "{more:?}: {}", check(more));
        }
    }
}
