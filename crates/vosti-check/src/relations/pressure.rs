//! Runs all requests at once in a pool that holds less than a third of them: evictions and preemptions change no bit.
//!
//! This relation also forces preemptions at random moments, where the scheduler would not preempt. Only preemptions that the
//! scheduler made because pages ran out count as evidence.

use super::super::prompts::Random;
use super::{Relation, Suite, demand, need, pairs_of_rows};
use crate::{CheckError, Subject};
use vosti_core::PAGE;
use vosti_engine::{Policy, Request};

/// Most runs of the workload, each in another order, until there are enough evictions and preemptions.
const ROUNDS_MAX: usize = 40;
const ROWS: usize = 128;
/// Steps between two preemptions of a random request, beside those of the scheduler.
const PREEMPT_EVERY: usize = 8;

/// The meaning of a pass.
pub const CLAIM: &str = "Evictions and preemptions change no logits vector of any request.";

/// Runs the relation.
pub fn run<S: Subject>(suite: &Suite<'_, S>, relation: &mut Relation) -> Result<bool, CheckError> {
    let workload = suite.workload()?;
    relation.dropped = workload.dropped;
    let Some(largest) = workload.requests.iter().map(need).max() else {
        return Ok(true);
    };
    let all = demand(&workload.requests);
    let mut setup = suite.plain(&[], ROWS);
    setup.policy = Policy { rows_step_max: ROWS, ..Policy::default() };
    // A page more than the largest request: any two run out of pages.
    setup.pool_tokens = ((all / 3).saturating_sub(1) / PAGE * PAGE).min(largest + PAGE);
    if setup.pool_tokens < largest {
        relation.missing.push(format!("the largest request needs {largest} of {all} tokens, more than a third"));
        setup.pool_tokens = largest;
    }
    suite.progress.stage("pressure", ROUNDS_MAX as u64);
    let profile = suite.profile();
    let mut runner = suite.runner(&setup, false)?;
    let mut asked = 0;
    for round in 0..ROUNDS_MAX {
        let mut random = Random::new(suite.seed(), &format!("pressure {round}"));
        let order = random.order(workload.requests.len());
        let requests: Vec<Request> = order.iter().map(|&i| workload.requests[i].clone()).collect();
        let at_once = vec![0; requests.len()];
        let outcome = runner.run_meddled(&requests, &at_once, &mut |engine, step, run| {
            if step % PREEMPT_EVERY == PREEMPT_EVERY - 1 {
                let before = engine.counters().preemptions;
                // A request that does not run has no pages, and is not preempted.
                if let Some(id) = run.id(random.below(requests.len())) {
                    engine.preempt(id);
                }
                asked += engine.counters().preemptions - before;
            }
            Ok(())
        })?;
        for (place, &i) in order.iter().enumerate() {
            let label = format!("round {round}, len {}", workload.requests[i].prompt.len());
            pairs_of_rows(relation, &label, &workload.alone[i], outcome.answer(place), false);
        }
        suite.progress.done(round as u64 + 1);
        let counters = runner.counters();
        if counters.evictions >= profile.evictions_min && counters.preemptions - asked >= profile.preemptions_min {
            break;
        }
    }
    let counters = runner.counters();
    relation.saw("evictions", counters.evictions, profile.evictions_min);
    relation.saw("preemptions", counters.preemptions - asked, profile.preemptions_min);
    relation.seen.push(("more asked for", asked));
    relation.seen.push(("positions computed again", counters.positions_lost));
    relation.saw("cache hits", counters.prefix_hits, 1);
    if suite.facts().states {
        relation.saw("states attached", counters.states_attached, 1);
        relation.saw("states evicted", counters.states_evicted, 1);
    }
    Ok(true)
}
