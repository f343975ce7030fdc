//! Runs the same requests on three page pools: their answers must be equal to the end, with the same reason for the end.
//!
//! The smallest pool has exactly the pages of the workload's longest request, so requests take pages from one another.
//! One more request is longer than that pool holds: the pool must refuse it, and must not answer a part of it. If every cache has a
//! window, a pool that holds one request holds requests of any length.

use super::{Relation, Suite, demand, need, pairs_of_rows, prompts};
use crate::runner::Answer;
use crate::{CheckError, Pair, Subject};
use vosti_core::PAGE;
use vosti_engine::capacity::tokens_in;
use vosti_engine::{Counters, Policy, Request};

const ROWS: usize = 128;

/// The meaning of a pass.
pub const CLAIM: &str = "The size of the page pool changes no logits vector and no end of any answer: a request that a pool cannot \
                 hold to its end is refused.";

/// Runs the relation.
pub fn run<S: Subject>(suite: &Suite<'_, S>, relation: &mut Relation) -> Result<bool, CheckError> {
    let workload = suite.workload()?;
    relation.dropped = workload.dropped;
    let Some(small) = workload.requests.iter().map(need).max() else {
        return Ok(true);
    };
    let (mut requests, mut alone) = (workload.requests.clone(), workload.alone.clone());
    let longer = longer(suite, small);
    let grows = suite.subject.program().groups.iter().any(|group| group.window.is_none());
    relation.dropped += usize::from(longer.is_none());
    if let Some(request) = &longer {
        let roomy = suite.plain(std::slice::from_ref(request), ROWS);
        alone.push(suite.runner(&roomy, false)?.alone(request)?);
        requests.push(request.clone());
    }
    let all = demand(&requests);
    let pools = [small, (all / 2 / PAGE * PAGE).max(small + PAGE), all];
    suite.progress.stage("pools", pools.len() as u64);
    for (done, tokens) in pools.into_iter().enumerate() {
        let (refused, counters) = compare(suite, relation, tokens / PAGE, &requests, &alone)?;
        if done == 0 {
            relation.saw("preemptions in the smallest", counters.preemptions, 1);
            relation.saw("evictions in it", counters.evictions, 1);
            relation.saw("requests refused by it", refused, u64::from(longer.is_some() && grows));
        }
        suite.progress.done(done as u64 + 1);
    }
    Ok(true)
}

/// Runs the requests that a pool admits together, and compares each with itself alone. Returns how many requests the pool refused,
/// and the engine's counters.
fn compare<S: Subject>(
    suite: &Suite<'_, S>,
    relation: &mut Relation,
    pages: usize,
    requests: &[Request],
    alone: &[Answer],
) -> Result<(u64, Counters), CheckError> {
    let mut setup = suite.plain(&[], ROWS);
    setup.policy = Policy { rows_step_max: ROWS, ..Policy::default() };
    setup.pool_tokens = pages * PAGE;
    let mut runner = suite.runner(&setup, false)?;
    let program = suite.subject.program();
    let held = tokens_in(program, &vec![pages; program.groups.len()]);
    let (mut taken, mut refused) = (Vec::new(), 0);
    for (i, request) in requests.iter().enumerate() {
        let fits = request.prompt.len() + request.sampling.tokens_max <= held;
        match (runner.admits(request)?, fits) {
            (true, _) => taken.push(i),
            (false, false) => refused += 1,
            (false, true) => relation.pairs.push(unequal(pages, request, "it fits, and was refused".into())),
        }
    }
    let together: Vec<Request> = taken.iter().map(|&i| requests[i].clone()).collect();
    let outcome = runner.run(&together)?;
    for (place, &i) in taken.iter().enumerate() {
        let label = format!("{pages} pages, len {}", requests[i].prompt.len());
        pairs_of_rows(relation, &label, &alone[i], outcome.answer(place), false);
        let end = end_of(&alone[i], outcome.answer(place));
        relation.pairs.extend(end.map(|difference| unequal(pages, &requests[i], difference)));
    }
    Ok((refused, runner.counters()))
}

/// A request that begins within a pool of so many tokens and ends outside it.
fn longer<S: Subject>(suite: &Suite<'_, S>, pool_tokens: usize) -> Option<Request> {
    let answer = suite.profile().answer;
    let prompt = pool_tokens - answer / 2;
    suite.fits(prompt, answer).then(|| {
        let sampling = prompts::sampled(answer, suite.seed());
        Request::new(suite.prompt("longer than the pool", prompt), sampling)
    })
}

/// How two answers end differently, if they do.
fn end_of(alone: &Answer, answer: &Answer) -> Option<String> {
    let end = |answer: &Answer| format!("{} tokens, {:?}", answer.tokens.len(), answer.reason);
    let differ = alone.tokens.len() != answer.tokens.len() || alone.reason != answer.reason;
    differ.then(|| format!("alone it ends after {}, here after {}", end(alone), end(answer)))
}

fn unequal(pages: usize, request: &Request, difference: String) -> Pair {
    let label = format!("{pages} pages, len {}, the end", request.prompt.len());
    Pair { label, equal: false, difference: Some(difference), missing: None }
}
