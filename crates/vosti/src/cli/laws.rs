//! `vosti laws`: checks on a device the assumptions that the engine's proof makes about it.

use super::arguments::Laws;
use super::bar::{Bar, Unit};
use super::output::{verdict, whole};
use super::{Outcome, open};
use crate::laws;
use anyhow::Result;

pub fn run(arguments: &Laws) -> Result<Outcome> {
    let named = laws::named(&arguments.only)?;
    let deployment = open::load(&arguments.on.model, &open::options(&arguments.on.hardware)?)?;
    let bar = Bar::new(Unit::Count);
    let report = laws::run(deployment, named, &bar)?;
    drop(bar);
    if arguments.on.json {
        let found = verdict(&format!("{}\n", serde_json::to_string_pretty(&report)?), report.passed);
        return whole(found, report.interrupted);
    }
    let mut out = format!("{}, {}\n", report.model, report.device);
    for watched in &report.laws {
        let told = if watched.broken.is_none() { "holds" } else { "BROKEN" };
        out += &format!("{told:<6}  {}\n", watched.law);
        for why in watched.broken.as_deref().into_iter().chain(watched.untried) {
            out += &format!("        {why}\n");
        }
    }
    let found = verdict(&out, report.passed);
    whole(found, report.interrupted)
}
