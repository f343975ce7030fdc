//! `vosti probe`: tries on a GPU the assumptions of its kernels' certificates.

use super::arguments::{Device, Probe};
use super::bar::{Bar, Unit};
use super::output::{verdict, whole};
use super::{Outcome, open};
use crate::probe::{self, ProbeError};
use anyhow::Result;
use vosti_cuda::probe::ProbeOptions;

pub fn run(arguments: &Probe) -> Result<Outcome> {
    // Before the model is fetched and loaded.
    anyhow::ensure!(arguments.on.hardware.device != Device::Cpu, ProbeError::NoGpu);
    let deployment = open::load(&arguments.on.model, &open::options(&arguments.on.hardware)?)?;
    let options = ProbeOptions { cases: arguments.cases, references: arguments.references, seed: arguments.seed };
    let bar = Bar::new(Unit::Count);
    let report = probe::run(&deployment, options, arguments.dump.as_deref(), &bar)?;
    drop(bar);
    if arguments.on.json {
        let found = verdict(&format!("{}\n", serde_json::to_string_pretty(&report)?), report.passed);
        return whole(found, report.interrupted);
    }
    let mut out = format!("{}, {}\n", report.model, report.device);
    out += &format!("{:<6} {:>6} {:>9} {:>10}  kernel\n", "", "cases", "compared", "error");
    for kernel in &report.kernels {
        let told = if kernel.passed() { "ok" } else { "FAILED" };
        let (cases, compared, error) = (kernel.cases, kernel.compared, kernel.error_max);
        out += &format!("{told:<6} {cases:>6} {compared:>9} {error:>10.1e}  {}\n", kernel.kernel);
        if let Some(why) = &kernel.differs {
            out += &format!("       {why}\n");
        }
    }
    let found = verdict(&out, report.passed);
    whole(found, report.interrupted)
}
