//! Compares the logits of each decoded token with those of a prefill of all tokens before it, in a separate engine.

use super::{Pair, Relation, Suite, last_logits};
use crate::{CheckError, Subject};
use std::collections::HashSet;
use vosti_engine::{Request, Sampling};

/// The meaning of a pass.
pub const CLAIM: &str = "Decoding a token gives the logits that a prefill of the same tokens gives.";

/// Runs the relation.
pub fn run<S: Subject>(suite: &Suite<'_, S>, relation: &mut Relation) -> Result<bool, CheckError> {
    let profile = suite.profile();
    let n = profile.decode_tokens;
    let lengths: Vec<usize> = profile.decode_lengths.iter().copied().filter(|len| suite.fits(*len, n)).collect();
    relation.dropped = (profile.decode_lengths.len() - lengths.len()) * n;
    suite.progress.stage("prefill-decode", (lengths.len() * n) as u64);
    let mut distinct = HashSet::new();
    let mut decode_steps = 0;
    for &len in &lengths {
        let request = Request::new(suite.prompt("decode", len), Sampling::greedy(n));
        let setup = suite.plain(std::slice::from_ref(&request), len + n);
        let decoded = {
            let mut runner = suite.runner(&setup, true)?;
            let outcome = runner.run(std::slice::from_ref(&request))?;
            decode_steps += outcome.steps.iter().filter(|step| step.rows == 1).count() as u64;
            outcome.answers.into_iter().flatten().next().unwrap_or_default()
        };
        let mut prefill = suite.runner(&setup, true)?;
        let mut history = request.prompt.clone();
        for i in 0..n {
            let again = prefill.alone(&last_logits(history.clone()))?;
            let label = format!("len {len}, token {i}");
            relation.pairs.push(Pair::new(label, decoded.rows.get(i), again.rows.first(), None));
            distinct.extend(decoded.rows.get(i).map(|row| row.digest));
            suite.progress.done(relation.pairs.len() as u64);
            let Some(token) = decoded.tokens.get(i) else {
                continue;
            };
            history.push(*token);
        }
    }
    if !lengths.is_empty() {
        let pairs = relation.pairs.len() as u64;
        relation.saw("single-row steps", decode_steps, (lengths.len() * (n - 1)) as u64);
        relation.saw("distinct logits", distinct.len() as u64, pairs / 2);
    }
    Ok(true)
}
