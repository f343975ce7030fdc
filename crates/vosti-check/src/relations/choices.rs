//! Compares several choices of one prompt that run together with the same choices one at a time.

use super::{Relation, Suite, demand, pairs_of_rows, prompts};
use crate::{CheckError, Subject};
use std::collections::HashSet;
use vosti_engine::{Policy, Request};

const ROWS: usize = 256;

/// The meaning of a pass.
pub const CLAIM: &str = "Choices that share a prompt's pages have the logits and tokens that each has alone.";

/// Runs the relation.
pub fn run<S: Subject>(suite: &Suite<'_, S>, relation: &mut Relation) -> Result<bool, CheckError> {
    let profile = suite.profile();
    let lengths = [40usize, 130].into_iter().filter(|len| suite.fits(*len, profile.answer));
    let lengths: Vec<usize> = lengths.collect();
    relation.dropped = 2 - lengths.len();
    suite.progress.stage("choices", lengths.len() as u64);
    let (mut distinct, mut together, mut shared) = (0, 0, 0);
    for (done, &len) in lengths.iter().enumerate() {
        let mut request = Request::new(suite.prompt("choices", len), prompts::scattered(profile.answer, suite.seed()));
        request.choices = profile.choices;
        let mut setup = suite.plain(&[], ROWS);
        setup.pool_tokens = demand(std::slice::from_ref(&request));
        // One sequence at a time and no cache: each choice is alone and cold.
        setup.policy.running_max = 1;
        let alone = suite.runner(&setup, false)?.run(std::slice::from_ref(&request))?;
        setup.policy = Policy { rows_step_max: ROWS, ..Policy::default() };
        let mut runner = suite.runner(&setup, false)?;
        let outcome = runner.run(std::slice::from_ref(&request))?;
        for (c, (alone, answer)) in alone.answers[0].iter().zip(&outcome.answers[0]).enumerate() {
            pairs_of_rows(relation, &format!("len {len}, choice {c}"), alone, answer, false);
        }
        let answers: HashSet<_> = outcome.answers[0].iter().map(|answer| &answer.tokens).collect();
        distinct = distinct.max(answers.len() as u64);
        together = together.max(runner.counters().sequences_step_max);
        shared += outcome.answers[0].iter().map(|answer| answer.usage.cached_tokens as u64).sum::<u64>();
        suite.progress.done(done as u64 + 1);
    }
    if !lengths.is_empty() {
        relation.saw("different answers", distinct, 2);
        relation.saw("choices in a step", together, 2);
        let least = if lengths.contains(&130) { 1 } else { 0 };
        relation.saw("tokens shared", shared, least);
    }
    Ok(true)
}
