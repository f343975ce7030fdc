//! Other thread counts, other instruction sets, another process: the same bits.

use super::{Relation, Suite, demand, pairs_of_rows, prompts};
use crate::check::runner::Answer;
use crate::check::{CheckError, Pair, Setup, Subject};

const ROWS: usize = 256;

pub fn run<S: Subject>(suite: &Suite<'_, S>) -> Result<Option<Relation>, CheckError> {
    let claim = "Threads, instruction set and a restart change no logits vector.";
    let mut relation = Relation::new("machine", claim);
    let requests = prompts::probe(suite.facts(), suite.seed());
    let (threads, sets) = (suite.subject.thread_counts(), suite.subject.instruction_sets());
    let restarted = suite.subject.restarted(suite.seed()).transpose()?;
    if requests.is_empty() || (threads.is_empty() && sets.is_empty() && restarted.is_none()) {
        return Ok(None);
    }
    suite.watch.stage("machine", (threads.len() + sets.len()) as u64);
    let setup = setup(suite);
    let reference = answers(suite, &setup)?;
    let mut done = 0;
    let mut compare = |relation: &mut Relation, what: String, setup: &Setup| -> Result<(), CheckError> {
        for (alone, answer) in reference.iter().zip(answers(suite, setup)?) {
            let label = format!("{what}, len {}", alone.usage.prompt_tokens);
            pairs_of_rows(relation, &label, alone, &answer, false);
        }
        done += 1;
        suite.watch.done(done);
        Ok(())
    };
    for n in &threads {
        compare(&mut relation, format!("{n} threads"), &Setup { threads: Some(*n), ..setup.clone() })?;
    }
    for set in &sets {
        compare(&mut relation, set.clone(), &Setup { instruction_set: Some(set.clone()), ..setup.clone() })?;
    }
    relation.seen.push(("thread counts", threads.len() as u64));
    relation.seen.push(("instruction sets", sets.len() as u64));
    if let Some(digests) = restarted {
        let rows: Vec<_> = reference.iter().flat_map(|answer| &answer.rows).collect();
        for (i, row) in rows.iter().enumerate() {
            let equal = digests.get(i).is_some_and(|digest| *digest == row.digest.to_hex().as_str());
            let difference = (!equal).then(|| "the restarted process gave another digest".to_string());
            let label = format!("another process, row {i}");
            relation.pairs.push(Pair { label, equal, difference, missing: row.insane.clone() });
        }
        relation.saw("rows of another process", digests.len() as u64, rows.len() as u64);
    }
    Ok(Some(relation))
}

/// What another process computes again.
pub fn probe<S: Subject>(suite: &Suite<'_, S>) -> Result<Vec<Answer>, CheckError> {
    answers(suite, &setup(suite))
}

fn setup<S: Subject>(suite: &Suite<'_, S>) -> Setup {
    let mut setup = suite.plain(&[], ROWS);
    setup.pool_tokens = demand(&prompts::probe(suite.facts(), suite.seed()));
    setup
}

/// The probe requests, one after the other in one engine.
fn answers<S: Subject>(suite: &Suite<'_, S>, setup: &Setup) -> Result<Vec<Answer>, CheckError> {
    let mut runner = suite.runner(setup, false)?;
    prompts::probe(suite.facts(), suite.seed()).iter().map(|request| runner.alone(request)).collect()
}
