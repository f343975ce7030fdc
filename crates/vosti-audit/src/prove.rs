//! From a problem, or from the reason why there is none, to a report.

use crate::error::AuditError;
use crate::report::{Difference, Finding, Premise, Report};
use std::collections::{BTreeMap, BTreeSet};
use vosti_verify::{Cache, Failure, Obligation, Problem, Solver, Verdict, find_cvc5, find_z3, verify_or_refute};

/// Pairs of runs that search for a counterexample if a kernel is not proved.
const REPLAYS: u64 = 60;

/// A kernel and one launch of it.
pub(crate) struct Subject {
    /// Or why there is nothing to prove.
    pub problem: Result<Problem, Failure>,
    /// What the problem is the kernel under.
    pub premises: BTreeSet<Premise>,
    /// The function that stands for each that the verifier does not have, and the type that each buffer has where BF16 stands for it.
    /// A word of two problems has one meaning only if the two agree in all of them.
    pub stands: BTreeMap<String, String>,
    /// A buffer that each batch fills in another way. Its extents are no part of the problem, so nothing is proved of a kernel with one.
    pub of_batch: Option<String>,
}

/// A kernel that is outside of what the verifier reads, at this line of its file.
pub(crate) fn unread(why: String, python_line: Option<u32>) -> Failure {
    Failure { obligation: Obligation::Subset, ttir_line: None, python_line, why }
}

/// Proves the launches of one function.
pub(crate) struct Prover<'a> {
    pub function: &'a str,
    /// The file, for the text of lines.
    pub source: &'a str,
}

impl Prover<'_> {
    /// A row of a run of `left` and a row of a run of `right` have equal outputs if their inputs are equal; the two may be one.
    pub fn report(&self, launch: &str, left: &Subject, right: &Subject) -> Result<Report, AuditError> {
        let mut report = Report {
            function: self.function.to_string(),
            launch: launch.to_string(),
            verdict: Finding::Unknown,
            why: None,
            obligation: None,
            line: None,
            source: None,
            counterexample: None,
            differences: vec![],
            compiled: None,
            assumptions: vec![],
            premises: left.premises.union(&right.premises).copied().collect(),
            seconds: 0.0,
        };
        let (a, b) = match (&left.problem, &right.problem) {
            (Ok(a), Ok(b)) => (a, b),
            (Err(failure), _) | (_, Err(failure)) => {
                self.failed(&mut report, failure);
                return Ok(report);
            }
        };
        if left.stands != right.stands {
            let apart = left.stands.iter().find(|(name, by)| right.stands.get(*name) != Some(*by));
            let apart = apart.or_else(|| right.stands.iter().find(|(name, by)| left.stands.get(*name) != Some(*by)));
            let what = apart.map_or("", |(name, _)| name.lines().next().unwrap_or(name));
            self.failed(
                &mut report,
                &unread(format!("one of the two has `{what}`, and the other has another in its place"), None),
            );
            return Ok(report);
        }
        let mut solver = Solver::new(find_z3(), Cache::none()).with_second(find_cvc5());
        let verification = verify_or_refute(a, b, REPLAYS, &mut solver)?;
        report.seconds = verification.time.as_secs_f64();
        report.assumptions = verification.assumptions.iter().map(|a| (a.to_string(), a.words())).collect();
        match &verification.verdict {
            Verdict::Proved => match left.of_batch.as_ref().or(right.of_batch.as_ref()) {
                None => report.verdict = Finding::Proved,
                Some(name) => {
                    let why = format!("nothing is proved of a kernel that has a buffer of the batch, `{name}`");
                    self.failed(&mut report, &unread(why, None));
                }
            },
            Verdict::Unknown(failure) => self.failed(&mut report, failure),
            Verdict::Refuted { failure, counterexample } => {
                self.failed(&mut report, failure);
                // Runs of a kernel with another function in it are not runs of the kernel.
                if !report.premises.contains(&Premise::StandIn) {
                    report.verdict = Finding::Refuted;
                    report.counterexample = Some(counterexample.clone());
                    report.differences = Difference::read(counterexample).into_iter().collect();
                }
            }
        }
        Ok(report)
    }

    fn failed(&self, report: &mut Report, failure: &Failure) {
        let line = failure.python_line;
        let text = line.and_then(|line| self.source.lines().nth((line as usize).wrapping_sub(1)));
        report.why = Some(format!("{}: {}", failure.obligation, failure.why));
        report.obligation = Some(failure.obligation.to_string());
        report.line = line;
        report.source = text.map(|text| text.trim().to_string());
    }
}
