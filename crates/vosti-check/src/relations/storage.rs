//! Compares weights expanded to BF16 with weights in the file's own form, for each request alone and for all together.

use super::{Relation, Suite, demand, pairs_of_rows, prompts};
use crate::{CheckError, Setup, Subject};

const ROWS: usize = 256;

/// The meaning of a pass.
pub const CLAIM: &str = "Weights expanded to BF16 change no logits vector.";

/// Runs the relation; false if the subject keeps weights in BF16 only.
pub fn run<S: Subject>(suite: &Suite<'_, S>, relation: &mut Relation) -> Result<bool, CheckError> {
    if !suite.subject.stores() {
        return Ok(false);
    }
    let asked = &suite.profile().machine;
    let lengths: Vec<usize> = asked.iter().copied().filter(|len| suite.fits(*len, prompts::SHORT_ANSWER)).collect();
    let requests = prompts::short(suite.facts(), suite.seed(), "storage", &lengths);
    relation.dropped = asked.len() - lengths.len();
    if requests.is_empty() {
        return Ok(true);
    }
    let setup = Setup { pool_tokens: demand(&requests), ..suite.plain(&[], ROWS) };
    let expanded = Setup { expanded: true, ..setup.clone() };
    let instruction_sets = suite.subject.instruction_sets();
    suite.progress.stage("storage", instruction_sets.len() as u64 + 1);
    let mut reference = suite.runner(&expanded, false)?;
    let alone: Vec<_> = requests.iter().map(|request| reference.alone(request)).collect::<Result<_, _>>()?;
    drop(reference);
    suite.progress.done(1);
    for (done, set) in instruction_sets.iter().enumerate() {
        let setup = Setup { instruction_set: Some(set.clone()), ..setup.clone() };
        let mut runner = suite.runner(&setup, false)?;
        for (reference, request) in alone.iter().zip(&requests) {
            let label = format!("{set}, len {}", reference.usage.prompt_tokens);
            pairs_of_rows(relation, &label, reference, &runner.alone(request)?, false);
        }
        // Steps with more rows, for which the device expands a panel first.
        let mut runner = suite.runner(&setup, false)?;
        let together = runner.run(&requests)?;
        for (i, reference) in alone.iter().enumerate() {
            let answer = together.answer(i);
            let label = format!("{set}, together, len {}", reference.usage.prompt_tokens);
            pairs_of_rows(relation, &label, reference, answer, false);
        }
        suite.progress.done(done as u64 + 2);
    }
    relation.seen.push(("instruction sets", instruction_sets.len() as u64));
    Ok(true)
}
