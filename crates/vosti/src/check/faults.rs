//! `vosti check --self-test`: the engine broken on purpose, one fault at a time, and the suite must see each one.
//!
//! A suite that has never failed shows nothing. Each fault is a mistake that a real engine has made or could make.

use super::{CheckError, Options, Profile, Report, toy::Toy};
use crate::watch::{Silent, Watch};
use serde::Serialize;

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    ReductionOrder,
    SplitByLength,
    BatchScale,
    StalePage,
    UnguardedTile,
    WindowByTile,
    WrongPosition,
    WrongPageTable,
    RowMixing,
    CachedTooLong,
    SelectedRowOff,
    SamplerAdvanced,
    ConstantLogits,
    NotANumber,
}

impl Fault {
    pub const ALL: [Fault; 14] = [
        Fault::ReductionOrder,
        Fault::SplitByLength,
        Fault::BatchScale,
        Fault::StalePage,
        Fault::UnguardedTile,
        Fault::WindowByTile,
        Fault::WrongPosition,
        Fault::WrongPageTable,
        Fault::RowMixing,
        Fault::CachedTooLong,
        Fault::SelectedRowOff,
        Fault::SamplerAdvanced,
        Fault::ConstantLogits,
        Fault::NotANumber,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Fault::ReductionOrder => "reduction order depends on the batch",
            Fault::SplitByLength => "decode splits the keys that prefill does not",
            Fault::BatchScale => "a scale depends on the number of rows",
            Fault::StalePage => "a reused page keeps its old owner's keys",
            Fault::UnguardedTile => "masked keys of a tile enter the sum",
            Fault::WindowByTile => "the window starts where the tile's first row's does",
            Fault::WrongPosition => "positions count from the start of the chunk",
            Fault::WrongPageTable => "a sequence reads its neighbour's pages",
            Fault::RowMixing => "a row reads its neighbour in the tile",
            Fault::CachedTooLong => "a page's first key is believed to be cached",
            Fault::SelectedRowOff => "the logits of the wrong row are returned",
            Fault::SamplerAdvanced => "random numbers depend on the order of requests",
            Fault::ConstantLogits => "every logits vector is the same constant",
            Fault::NotANumber => "every logit is NaN",
        }
    }
}

/// Whether one fault was caught, and by what.
#[derive(Clone, Debug, Serialize)]
pub struct Caught {
    pub fault: &'static str,
    /// Relations that failed; none means that the fault got through.
    pub failed: Vec<&'static str>,
    /// Pairs that differ, of all.
    pub different: usize,
    pub pairs: usize,
}

/// The suite against the whole toy device, then against each fault.
#[derive(Clone, Debug, Serialize)]
pub struct SelfTest {
    /// Nothing is broken, and nothing may fail.
    pub whole_passed: bool,
    pub caught: Vec<Caught>,
}

impl SelfTest {
    pub fn passed(&self) -> bool {
        self.whole_passed && self.caught.iter().all(|caught| !caught.failed.is_empty())
    }

    /// The table for a terminal.
    pub fn table(&self) -> String {
        let whole = if self.whole_passed { "passed" } else { "FAILED" };
        let mut out = format!("{:<52} {whole}\n", "nothing broken");
        for caught in &self.caught {
            let by = match caught.failed.is_empty() {
                true => "NOT CAUGHT".to_string(),
                false => format!(
                    "caught: {} of {} pairs differ; {}",
                    caught.different,
                    caught.pairs,
                    caught.failed.join(", ")
                ),
            };
            out += &format!("{:<52} {by}\n", caught.fault);
        }
        let count = self.caught.iter().filter(|caught| !caught.failed.is_empty()).count();
        out += &format!("\n{count} of {} faults caught\n", self.caught.len());
        out
    }
}

/// Breaks the engine in every way.
pub fn self_test(watch: &dyn Watch) -> Result<SelfTest, CheckError> {
    watch.stage("breaking the engine", Fault::ALL.len() as u64);
    let whole_passed = check(None)?.passed;
    let mut caught = Vec::new();
    for fault in Fault::ALL {
        if watch.cancelled() {
            return Err(CheckError::Interrupted);
        }
        let report = check(Some(fault))?;
        let failed = report.relations.iter().filter(|r| !r.passed() && !r.skipped()).map(|r| r.name).collect();
        let different = report.pairs - report.pairs_equal;
        caught.push(Caught { fault: fault.name(), failed, different, pairs: report.pairs });
        watch.done(caught.len() as u64);
    }
    Ok(SelfTest { whole_passed, caught })
}

fn check(fault: Option<Fault>) -> Result<Report, CheckError> {
    let toy = Toy::new(fault);
    let profile = Profile::quick(super::Subject::facts(&toy).window);
    super::run(&toy, &Options { profile, prompt_max: None, only: Vec::new(), seed: 7 }, &Silent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_engine_passes() {
        let report = check(None).unwrap();
        assert!(report.passed, "\n{}", report.table());
    }

    #[test]
    fn every_fault_is_caught() {
        let result = self_test(&Silent).unwrap();
        assert!(result.passed(), "\n{}", result.table());
    }
}
