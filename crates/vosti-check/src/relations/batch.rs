//! Compares a prompt's last logits when it runs alone with those in batches of several sizes and orders.

use super::super::profile::Arrangement;
use super::super::prompts::Random;
use super::{Pair, Relation, Suite, demand, last_logits};
use crate::evidence::Row;
use crate::{CheckError, Subject};
use std::collections::HashSet;
use vosti_engine::Request;

/// Rows of one sequence in one step, alone and in a batch, so that only the batch differs.
const CHUNK: usize = 1024;

/// The meaning of a pass.
pub const CLAIM: &str = "A prompt's last logits are the same alone and in a batch.";

/// Runs the relation.
pub fn run<S: Subject>(suite: &Suite<'_, S>, relation: &mut Relation) -> Result<bool, CheckError> {
    let profile = suite.profile();
    let lengths: Vec<usize> = profile.batch_lengths.iter().copied().filter(|len| suite.fits(*len, 1)).collect();
    relation.dropped = (profile.batch_lengths.len() - lengths.len()) * profile.batches.len();
    if lengths.is_empty() {
        relation.dropped += profile.repeats;
        return Ok(true);
    }
    let requests: Vec<Request> = lengths.iter().map(|len| last_logits(suite.prompt("batch", *len))).collect();
    let total = requests.len() * profile.batches.len() + profile.repeats;
    suite.progress.stage("batch", total as u64);
    let chunk = CHUNK.min(*lengths.iter().max().expect("there are lengths"));

    let mut alone = Vec::new();
    let mut runner = suite.runner(&suite.plain(&requests, chunk), true)?;
    for request in &requests {
        alone.push(runner.alone(request)?.rows.into_iter().next());
    }
    let distinct: HashSet<_> = alone.iter().flatten().map(|row| row.digest).collect();
    relation.saw("distinct logits", distinct.len() as u64, requests.len() as u64);

    let mut largest = 0;
    for &(size, arrangement) in &profile.batches {
        largest = largest.max(batches(suite, relation, &requests, &alone, size, arrangement, chunk)?);
    }
    relation.saw("sequences in a step", largest, profile.batches.iter().map(|b| b.0 as u64).max().unwrap_or(0));

    let mut fresh = suite.runner(&suite.plain(&requests, chunk), true)?;
    for i in 0..profile.repeats {
        let i = i * requests.len() / profile.repeats.max(1);
        let again = fresh.alone(&requests[i])?;
        let label = format!("len {}, alone again", lengths[i]);
        relation.pairs.push(Pair::new(label, alone[i].as_ref(), again.rows.first(), None));
        suite.progress.done(relation.pairs.len() as u64);
    }
    Ok(true)
}

/// Runs all requests in batches of `size`; returns the largest number of sequences in one step.
fn batches<S: Subject>(
    suite: &Suite<'_, S>,
    relation: &mut Relation,
    requests: &[Request],
    alone: &[Option<Row>],
    size: usize,
    arrangement: Arrangement,
    chunk: usize,
) -> Result<u64, CheckError> {
    let order = match arrangement {
        Arrangement::Natural => (0..requests.len()).collect(),
        Arrangement::Reversed => (0..requests.len()).rev().collect(),
        Arrangement::Shuffled => Random::new(suite.seed(), &format!("batch {size}")).order(requests.len()),
    };
    // The last batch is filled up with the first requests, so that every batch has its size.
    let size = size.min(requests.len());
    let mut batches: Vec<Vec<usize>> = order.chunks(size).map(<[usize]>::to_vec).collect();
    let fill = batches.len() * size - order.len();
    batches.last_mut().expect("there are requests").extend(&order[..fill]);
    let batch_of = |batch: &[usize]| -> Vec<Request> { batch.iter().map(|i| requests[*i].clone()).collect() };

    let mut setup = suite.plain(requests, chunk * size);
    setup.pool_tokens = batches.iter().map(|batch| demand(&batch_of(batch))).max().unwrap_or(0);
    setup.policy.rows_sequence_max = chunk;
    let mut runner = suite.runner(&setup, true)?;
    let mut largest = 0;
    for (b, batch) in batches.iter().enumerate() {
        let outcome = runner.run(&batch_of(batch))?;
        let together = outcome.steps.iter().find(|step| step.rows > 0).map_or(0, |step| step.sequences);
        largest = largest.max(together as u64);
        let missing = (together < size).then(|| format!("{together} sequences ran together, not {size}"));
        let counted = if b + 1 == batches.len() { size - fill } else { size };
        for (place, &i) in batch.iter().enumerate().take(counted) {
            let len = requests[i].prompt.len();
            let label = format!("len {len}, batch of {size} {}, place {place}", arrangement.name());
            let row = outcome.answer(place).rows.first();
            relation.pairs.push(Pair::new(label, alone[i].as_ref(), row, missing.clone()));
        }
        suite.progress.done(relation.pairs.len() as u64);
    }
    Ok(largest)
}
