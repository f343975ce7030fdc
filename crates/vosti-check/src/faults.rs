//! `vosti check --self-test`: the engine broken on purpose, one fault at a time. The suite must notice each one.
//!
//! A suite that has never failed shows nothing. Each fault is a mistake that a real engine has made or could make. The faults
//! of [`Fault`] are inside a device, so they break the toy device; those of `crate::faulty` wrap a device, so they
//! break the model's own.

use super::{CheckError, Facts, Profile, Setup, Subject, SuiteOptions, SuiteReport, toy::Toy};
use crate::faulty::{self, FaultyDevice};
use serde::Serialize;
use std::collections::BTreeSet;
use vosti_core::Program;
use vosti_engine::progress::{CancelOnly, Progress};

/// A mistake inside a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "`name` and the list below say what each does")]
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
    StateOnePageOld,
    StateOfAnUnfinishedPage,
    StateOfTheNeighbour,
    ChunksOfTheStep,
    DraftStays,
    SelectedRowOff,
    NumbersOfTheNeighbour,
    SamplerAdvanced,
    EndsWithPool,
    ConstantLogits,
    NotANumber,
}

impl Fault {
    /// Every fault, in the order of the self-test.
    pub const ALL: [Fault; 21] = [
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
        Fault::StateOnePageOld,
        Fault::StateOfAnUnfinishedPage,
        Fault::StateOfTheNeighbour,
        Fault::ChunksOfTheStep,
        Fault::DraftStays,
        Fault::SelectedRowOff,
        Fault::NumbersOfTheNeighbour,
        Fault::SamplerAdvanced,
        Fault::EndsWithPool,
        Fault::ConstantLogits,
        Fault::NotANumber,
    ];

    /// The fault's name in the self-test's table.
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
            Fault::StateOnePageOld => "a page's first step takes an older page's state",
            Fault::StateOfAnUnfinishedPage => "a state is taken before its page is full",
            Fault::StateOfTheNeighbour => "a sequence takes its neighbour's state",
            Fault::ChunksOfTheStep => "a recurrence's chunks begin where steps do",
            Fault::DraftStays => "the entry of a rejected draft stays",
            Fault::SelectedRowOff => "the logits of the wrong row are returned",
            Fault::NumbersOfTheNeighbour => "a token is drawn by its neighbour's numbers",
            Fault::SamplerAdvanced => "random numbers depend on the order of requests",
            Fault::EndsWithPool => "an answer ends where the page pool does",
            Fault::ConstantLogits => "every logits vector is the same constant",
            Fault::NotANumber => "every logit is NaN",
        }
    }
}

/// Whether one fault was caught, and by what.
#[derive(Clone, Debug, Serialize)]
pub struct Caught {
    /// The fault's name.
    pub fault: &'static str,
    /// Relations that failed; if empty, the suite did not notice the fault.
    pub failed: Vec<&'static str>,
    /// Pairs that differ.
    pub different: usize,
    /// Pairs that were compared.
    pub pairs: usize,
}

/// The suite against a whole device, then against each fault.
#[derive(Clone, Debug, Serialize)]
pub struct SelfTest {
    /// The model, as its facts name it.
    pub subject: String,
    /// True if the suite passed on the unbroken device.
    pub whole_passed: bool,
    /// In the order of [`Fault`].
    pub caught: Vec<Caught>,
}

impl SelfTest {
    /// Whether the suite noticed every fault, and passed without one.
    pub fn passed(&self) -> bool {
        self.whole_passed && self.caught.iter().all(|caught| !caught.failed.is_empty())
    }

    /// The table for a terminal.
    pub fn table(&self) -> String {
        let whole = if self.whole_passed { "passed" } else { "FAILED" };
        let mut out = format!("{}\n{:<52} {whole}\n", self.subject, "nothing broken");
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

/// Breaks the toy device in every way.
pub fn self_test(progress: &dyn Progress) -> Result<SelfTest, CheckError> {
    progress.stage("breaking the toy device", Fault::ALL.len() as u64);
    let profile = |toy: &Toy| Profile::quick(toy.facts().window);
    let whole = Toy::new(None);
    let mut result = SelfTest {
        subject: whole.facts().model.clone(),
        whole_passed: check(&whole, profile(&whole), &[], progress)?.passed,
        caught: Vec::new(),
    };
    for fault in Fault::ALL {
        let toy = Toy::new(Some(fault));
        let report = check(&toy, profile(&toy), &[], progress)?;
        result.caught.push(Caught::new(fault.name(), &report));
        progress.done(result.caught.len() as u64);
    }
    Ok(result)
}

/// The relation that must notice a fault around a device. The self-test runs this relation only, so that it takes a minute.
fn made_for(fault: faulty::Fault) -> &'static str {
    use faulty::Fault;
    match fault {
        Fault::ReductionByBatch | Fault::RowsSwapped | Fault::BatchIndex => "batch",
        Fault::StalePages => "chunk",
        Fault::TileByRows | Fault::DecodeKernelDiffers | Fault::StaleLogits | Fault::Race => "prefill-decode",
        Fault::NanInMixedSteps => "arrivals",
        Fault::StateKeepsDrafts => "speculation",
    }
}

/// Breaks a subject's own device in every way that is possible from outside it.
pub fn self_test_of<S: Subject>(subject: &S, progress: &dyn Progress) -> Result<SelfTest, CheckError> {
    progress.stage("breaking the engine", faulty::Fault::ALL.len() as u64);
    let all: BTreeSet<&str> = faulty::Fault::ALL.into_iter().map(made_for).collect();
    let whole = Broken { inner: subject, fault: None };
    let mut result = SelfTest {
        subject: subject.facts().model.clone(),
        whole_passed: check(&whole, Profile::brief(), &Vec::from_iter(all), progress)?.passed,
        caught: Vec::new(),
    };
    for fault in faulty::Fault::ALL {
        let broken = Broken { inner: subject, fault: Some(fault) };
        let report = check(&broken, Profile::brief(), &[made_for(fault)], progress)?;
        result.caught.push(Caught::new(fault.name(), &report));
        progress.done(result.caught.len() as u64);
    }
    Ok(result)
}

impl Caught {
    fn new(fault: &'static str, report: &SuiteReport) -> Self {
        let failed = report.relations.iter().filter(|r| r.failed()).map(|r| r.name).collect();
        Caught { fault, failed, different: report.pairs - report.pairs_equal, pairs: report.pairs }
    }
}

/// Runs these relations; all if the list is empty.
fn check<S: Subject>(
    subject: &S,
    profile: Profile,
    only: &[&str],
    progress: &dyn Progress,
) -> Result<SuiteReport, CheckError> {
    let only = only.iter().map(|name| name.to_string()).collect();
    let options = SuiteOptions { profile, prompt_max: None, only, seed: 7 };
    let report = super::run(subject, &options, &CancelOnly(progress))?;
    // An interrupted suite lacks evidence; that is not a noticed fault.
    if report.interrupted { Err(CheckError::Interrupted) } else { Ok(report) }
}

/// A subject with a fault around its device.
struct Broken<'a, S> {
    inner: &'a S,
    fault: Option<faulty::Fault>,
}

impl<S: Subject> Subject for Broken<'_, S> {
    type Device = FaultyDevice<S::Device>;

    fn facts(&self) -> &Facts {
        self.inner.facts()
    }

    fn program(&self) -> &Program {
        self.inner.program()
    }

    fn device(&self, setup: &Setup) -> Result<Self::Device, CheckError> {
        Ok(FaultyDevice::new(self.inner.device(setup)?, self.fault))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
    use vosti_engine::progress::NoProgress;

    /// Cancels from the n-th call of `cancelled` on, and records the number of finished faults.
    struct Impatient(AtomicU64, AtomicU64);

    impl Progress for Impatient {
        fn stage(&self, _label: &str, _total: u64) {}
        fn done(&self, units: u64) {
            self.1.store(units, Relaxed);
        }
        fn cancelled(&self) -> bool {
            let left = self.0.load(Relaxed).saturating_sub(1);
            self.0.store(left, Relaxed);
            left == 0
        }
    }

    #[test]
    fn a_self_test_ends_at_the_next_step_and_not_at_the_next_fault() {
        let progress = Impatient(AtomicU64::new(5), AtomicU64::new(0));
        assert!(matches!(self_test(&progress), Err(CheckError::Interrupted)));
        assert_eq!(progress.1.load(Relaxed), 0, "the fifth question comes long before the first fault");
        let progress = Impatient(AtomicU64::new(5), AtomicU64::new(0));
        assert!(matches!(self_test_of(&Toy::new(None), &progress), Err(CheckError::Interrupted)));
        assert_eq!(progress.1.load(Relaxed), 0);
    }

    /// Ends the work when so many units of a stage of this name are done.
    struct Until {
        stage: &'static str,
        units: u64,
        in_stage: AtomicBool,
        ended: AtomicBool,
    }

    impl Progress for Until {
        fn stage(&self, label: &str, _total: u64) {
            self.in_stage.store(label == self.stage, Relaxed);
            self.done(0);
        }
        fn done(&self, units: u64) {
            self.ended.fetch_or(self.in_stage.load(Relaxed) && units >= self.units, Relaxed);
        }
        fn cancelled(&self) -> bool {
            self.ended.load(Relaxed)
        }
    }

    #[test]
    fn a_suite_that_is_ended_reports_what_was_compared_and_is_no_pass() {
        let toy = Toy::new(None);
        let profile = Profile::quick(toy.facts().window);
        let options = SuiteOptions { profile, prompt_max: None, only: vec![], seed: 7 };
        let until = |stage, units| {
            let (in_stage, ended) = (AtomicBool::new(false), AtomicBool::new(false));
            crate::run(&toy, &options, &Until { stage, units, in_stage, ended })
        };
        let report = until("chunk", 0).unwrap();
        assert!(report.interrupted && !report.passed && report.relations.len() == 1, "{report:?}");
        assert!(report.relations[0].passed() && report.table().contains("interrupted: no verdict"), "{report:?}");
        assert!(matches!(until("batch", 0), Err(CheckError::Interrupted)));
        // In the middle of a relation: its pairs until then, and no verdict of it.
        let report = until("chunk", 2).unwrap();
        let [whole, cut] = &report.relations[..] else { panic!("{report:?}") };
        assert!(whole.passed() && !whole.interrupted && cut.interrupted && cut.undecided() && !cut.passed());
        assert_eq!((cut.name, cut.pairs.len()), ("chunk", 2));
        assert_eq!((report.interrupted, report.passed, report.pairs), (true, false, whole.pairs.len() + 2));
        let table = report.table();
        assert!(table.contains("(ended early)") && table.contains("interrupted: no verdict"), "{table}");
    }

    #[test]
    fn a_difference_that_was_found_before_the_end_is_a_failure() {
        let toy = Toy::new(Some(Fault::SplitByLength));
        let profile = Profile::quick(toy.facts().window);
        let options = SuiteOptions { profile, prompt_max: None, only: vec![], seed: 7 };
        let all = crate::run(&toy, &options, &NoProgress).unwrap();
        let first = all.relations.iter().find(|relation| relation.pairs.iter().any(|pair| !pair.equal)).unwrap();
        let units = 1 + first.pairs.iter().position(|pair| !pair.equal).unwrap() as u64;
        let (in_stage, ended) = (AtomicBool::new(false), AtomicBool::new(false));
        let progress = Until { stage: first.name, units, in_stage, ended };
        let report = crate::run(&toy, &options, &progress).unwrap();
        let cut = report.relations.last().unwrap();
        assert!(cut.name == first.name && cut.failed() && !cut.undecided(), "{report:?}");
        assert!(report.interrupted && report.table().contains("FAILED"), "{}", report.table());
    }

    #[test]
    fn the_whole_engine_passes() {
        let toy = Toy::new(None);
        let report = check(&toy, Profile::quick(toy.facts().window), &[], &NoProgress).unwrap();
        assert!(report.passed, "\n{}", report.table());
    }

    #[test]
    fn every_fault_is_caught() {
        let result = self_test(&NoProgress).unwrap();
        assert!(result.passed(), "\n{}", result.table());
    }

    #[test]
    fn an_answer_that_ends_with_the_pool_is_caught_by_the_relation_of_pools_alone() {
        let toy = Toy::new(Some(Fault::EndsWithPool));
        let report = check(&toy, Profile::quick(toy.facts().window), &[], &NoProgress).unwrap();
        assert_eq!(Caught::new(Fault::EndsWithPool.name(), &report).failed, ["pools"], "\n{}", report.table());
    }

    #[test]
    fn every_fault_around_a_device_is_caught() {
        let result = self_test_of(&Toy::new(None), &NoProgress).unwrap();
        assert!(result.passed(), "\n{}", result.table());
    }
}
