//! Requests that arrive and are aborted at random while others decode, under several policies.

use super::super::prompts::Random;
use super::{Relation, Suite, demand, pairs_of_rows};
use crate::{CheckError, Subject};
use vosti_core::PAGE;
use vosti_engine::{FinishReason, Order, Policy, Request};

/// Requests arrive within so many steps.
const ARRIVAL_STEPS: usize = 24;

/// The meaning of a pass.
pub const CLAIM: &str = "Arrivals, aborts and scheduling policy change no logits vector of any request.";

/// Runs the relation.
pub fn run<S: Subject>(suite: &Suite<'_, S>, relation: &mut Relation) -> Result<bool, CheckError> {
    let workload = suite.workload()?;
    relation.dropped = workload.dropped;
    if workload.requests.is_empty() {
        return Ok(true);
    }
    let policies = [
        ("default", Policy { rows_step_max: 128, rows_mixed_max: 80, ..Policy::default() }),
        ("newest first", Policy { rows_step_max: 64, order: Order::Lifo, decode_first: false, ..Policy::default() }),
        ("random order", Policy { rows_step_max: 100, order: Order::Random(suite.seed()), ..Policy::default() }),
        ("few at a time", Policy { running_max: 3, rows_sequence_max: 48, prefix_cache: false, ..Policy::default() }),
    ];
    suite.progress.stage("arrivals", policies.len() as u64);
    let (mut aborted, mut into_decode, mut together) = (0, 0, 0);
    for (done, (name, policy)) in policies.into_iter().enumerate() {
        let mut setup = suite.plain(&[], policy.rows_step_max);
        setup.policy = policy;
        setup.pool_tokens = demand(&workload.requests) / PAGE * PAGE;
        let mut runner = suite.runner(&setup, false)?;
        let (requests, arrivals, aborts) = timetable(suite, &workload.requests, name);
        let outcome = runner.run_meddled(&requests, &arrivals, &mut |engine, step, run| {
            let running = engine.status().running;
            into_decode += arrivals.iter().filter(|at| **at == step && step > 0 && running > 1).count() as u64;
            for (i, at) in aborts.iter().enumerate() {
                if *at == Some(step) {
                    run.id(i).into_iter().for_each(|id| _ = engine.abort(id));
                }
            }
            Ok(())
        })?;
        for (i, alone) in workload.alone.iter().enumerate() {
            let answer = outcome.answer(i);
            let gone = answer.reason == Some(FinishReason::Aborted);
            aborted += u64::from(gone);
            let label = format!("{name}, len {}", requests[i].prompt.len());
            pairs_of_rows(relation, &label, alone, answer, gone);
        }
        together = together.max(runner.counters().sequences_step_max);
        suite.progress.done(done as u64 + 1);
    }
    relation.saw("aborts", aborted, 2);
    relation.saw("arrivals among others", into_decode, 2);
    relation.saw("sequences in a step", together, 2);
    Ok(true)
}

/// When each request arrives and, for a third of them, when it is aborted.
type Timetable = (Vec<Request>, Vec<usize>, Vec<Option<usize>>);

fn timetable<S: Subject>(suite: &Suite<'_, S>, requests: &[Request], name: &str) -> Timetable {
    let mut random = Random::new(suite.seed(), &format!("arrivals {name}"));
    let mut arrivals: Vec<usize> = requests.iter().map(|_| random.below(ARRIVAL_STEPS)).collect();
    arrivals[0] = 0;
    let answer = suite.profile().answer;
    let abort = |i: usize| (i % 3 == 2).then(|| arrivals[i] + 1 + random.below(answer));
    let aborts = (0..requests.len()).map(abort).collect();
    (requests.to_vec(), arrivals, aborts)
}
