//! Compares a prompt's last logits after one unchunked prefill with those after a prefill in chunks.

use super::{Pair, Relation, Suite, last_logits};
use crate::{CheckError, Subject};
use vosti_engine::Request;

/// The meaning of a pass.
pub const CLAIM: &str = "A prompt's last logits do not depend on the chunks its prefill was cut into.";

/// Runs the relation.
pub fn run<S: Subject>(suite: &Suite<'_, S>, relation: &mut Relation) -> Result<bool, CheckError> {
    let profile = suite.profile();
    let lengths: Vec<usize> = profile.chunk_lengths.iter().copied().filter(|len| suite.fits(*len, 1)).collect();
    relation.dropped = (profile.chunk_lengths.len() - lengths.len()) * profile.chunk_budgets.len();
    if lengths.is_empty() {
        return Ok(true);
    }
    let requests: Vec<Request> = lengths.iter().map(|len| last_logits(suite.prompt("chunk", *len))).collect();
    suite.progress.stage("chunk", (requests.len() * profile.chunk_budgets.len()) as u64);
    let longest = requests.iter().max_by_key(|r| r.prompt.len()).expect("there are requests").clone();

    let mut whole = suite.runner(&suite.plain(std::slice::from_ref(&longest), longest.prompt.len()), true)?;
    let mut references = Vec::new();
    for request in &requests {
        let outcome = whole.run(std::slice::from_ref(request))?;
        let chunks = chunks(&outcome.steps);
        let missing = (chunks.len() != 1).then(|| format!("the reference ran in chunks of {chunks:?}"));
        references.push((outcome.answer(0).rows.first().cloned(), missing));
    }
    let mut chunked = 0;
    for &budget in &profile.chunk_budgets {
        let mut runner = suite.runner(&suite.plain(std::slice::from_ref(&longest), budget), true)?;
        for (request, (reference, unchunked)) in requests.iter().zip(&references) {
            let outcome = runner.run(std::slice::from_ref(request))?;
            let seen = chunks(&outcome.steps);
            let expected = expected(request.prompt.len(), budget);
            let missing = (seen != expected).then(|| format!("chunks of {seen:?}, not {expected:?}"));
            chunked += u64::from(seen.len() > 1);
            let label = format!("len {}, chunks of {budget}", request.prompt.len());
            let row = outcome.answer(0).rows.first();
            relation.pairs.push(Pair::new(label, reference.as_ref(), row, unchunked.clone().or(missing)));
            suite.progress.done(relation.pairs.len() as u64);
        }
    }
    relation.saw("prefills in several chunks", chunked, 1);
    Ok(true)
}

fn chunks(steps: &[vosti_engine::StepReport]) -> Vec<usize> {
    steps.iter().map(|step| step.rows).filter(|rows| *rows > 0).collect()
}

fn expected(len: usize, budget: usize) -> Vec<usize> {
    let mut chunks = vec![budget; len / budget];
    if !len.is_multiple_of(budget) {
        chunks.push(len % budget);
    }
    chunks
}
