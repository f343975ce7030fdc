//! Compares other thread counts, other instruction sets and another process with this one.

use super::{Relation, Suite, demand, pairs_of_rows, prompts};
use crate::runner::Answer;
use crate::{CheckError, Pair, Setup, Subject};
use vosti_engine::Request;

const ROWS: usize = 256;
const ROWS_THERE: &str = "rows of another process";

/// The meaning of a pass.
pub const CLAIM: &str = "Threads, instruction set and a restart change no logits vector.";

/// Runs the relation over the thread counts, instruction sets and restarts that the subject has.
pub fn run<S: Subject>(suite: &Suite<'_, S>, relation: &mut Relation) -> Result<bool, CheckError> {
    let asked = &suite.profile().machine;
    let lengths: Vec<usize> = asked.iter().copied().filter(|len| suite.fits(*len, prompts::SHORT_ANSWER)).collect();
    let requests = prompts::short(suite.facts(), suite.seed(), "machine", &lengths);
    let (threads, sets) = (suite.subject.thread_counts(), suite.subject.instruction_sets());
    relation.dropped = (asked.len() - lengths.len()) * (threads.len() + sets.len());
    if requests.is_empty() {
        return Ok(true);
    }
    let restarted = suite.subject.restarted(suite.seed()).transpose()?;
    if threads.is_empty() && sets.is_empty() && restarted.is_none() {
        return Ok(false);
    }
    suite.progress.stage("machine", (threads.len() + sets.len()) as u64);
    let setup = setup(suite, &requests);
    let reference = answers(suite, &setup, &requests)?;
    let mut done = 0;
    let mut compare = |relation: &mut Relation, what: String, setup: &Setup| -> Result<(), CheckError> {
        for (alone, answer) in reference.iter().zip(answers(suite, setup, &requests)?) {
            let label = format!("{what}, len {}", alone.usage.prompt_tokens);
            pairs_of_rows(relation, &label, alone, &answer, false);
        }
        done += 1;
        suite.progress.done(done);
        Ok(())
    };
    for n in &threads {
        compare(relation, format!("{n} threads"), &Setup { threads: Some(*n), ..setup.clone() })?;
    }
    for set in &sets {
        compare(relation, set.clone(), &Setup { instruction_set: Some(set.clone()), ..setup.clone() })?;
    }
    relation.seen.push(("thread counts", threads.len() as u64));
    relation.seen.push(("instruction sets", sets.len() as u64));
    match restarted {
        Some(digests) => restart(relation, &reproduced(suite)?, &digests),
        // The claim speaks of a restart, so a run without one lacks evidence.
        None => relation.saw(ROWS_THERE, 0, 1),
    }
    Ok(true)
}

/// Compares this process's answers with another process's digests.
fn restart(relation: &mut Relation, here: &[Answer], there: &[String]) {
    let rows: Vec<_> = here.iter().flat_map(|answer| &answer.rows).collect();
    for (i, row) in rows.iter().enumerate() {
        let equal = there.get(i).is_some_and(|digest| *digest == row.digest.to_hex().as_str());
        let difference = (!equal).then(|| "the restarted process gave another digest".to_string());
        let label = format!("another process, row {i}");
        relation.pairs.push(Pair { label, equal, difference, missing: row.insane.clone() });
    }
    relation.saw(ROWS_THERE, there.len() as u64, rows.len() as u64);
}

/// The answers to the requests that another process runs too.
pub fn reproduced<S: Subject>(suite: &Suite<'_, S>) -> Result<Vec<Answer>, CheckError> {
    let requests = prompts::reproduced(suite.facts(), suite.seed());
    answers(suite, &setup(suite, &requests), &requests)
}

fn setup<S: Subject>(suite: &Suite<'_, S>, requests: &[Request]) -> Setup {
    let mut setup = suite.plain(&[], ROWS);
    setup.pool_tokens = demand(requests);
    setup
}

/// Answers the requests one after the other in one engine.
fn answers<S: Subject>(suite: &Suite<'_, S>, setup: &Setup, requests: &[Request]) -> Result<Vec<Answer>, CheckError> {
    let mut runner = suite.runner(setup, false)?;
    requests.iter().map(|request| runner.alone(request)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy::{Toy, ToyDevice};
    use crate::{Facts, Profile, SuiteOptions};
    use vosti_core::Program;
    use vosti_engine::progress::NoProgress;

    /// A toy that has a thread count to compare, and perhaps another process.
    struct Threaded {
        toy: Toy,
        there: Option<Vec<String>>,
    }

    impl Subject for Threaded {
        type Device = ToyDevice;

        fn facts(&self) -> &Facts {
            self.toy.facts()
        }

        fn program(&self) -> &Program {
            self.toy.program()
        }

        fn device(&self, setup: &Setup) -> Result<ToyDevice, CheckError> {
            self.toy.device(setup)
        }

        fn thread_counts(&self) -> Vec<usize> {
            vec![1]
        }

        fn restarted(&self, _seed: u64) -> Option<Result<Vec<String>, CheckError>> {
            self.there.clone().map(Ok)
        }
    }

    #[test]
    fn a_restart_that_was_not_compared_is_missing_evidence() {
        let only = vec!["machine".to_string()];
        let options = SuiteOptions { profile: Profile::brief(), prompt_max: None, only, seed: 1 };
        let run = |there: Option<Vec<String>>| {
            let subject = Threaded { toy: Toy::new(None), there };
            crate::run(&subject, &options, &NoProgress).expect("it runs").relations.remove(0)
        };
        let digests = crate::digests(&Toy::new(None), 1, &NoProgress).expect("digests");
        let passed = run(Some(digests.clone()));
        assert!(passed.passed(), "{:?}", passed.missing);
        let alone = run(None);
        assert!(!alone.passed() && alone.missing[0].contains(ROWS_THERE), "{:?}", alone.missing);
        assert!(alone.pairs.iter().all(Pair::passed));
        assert!(!run(Some(digests[1..].to_vec())).passed());
    }
}
