//! Compares answers with draft tokens, right and wrong ones, with answers without drafts.

use super::super::prompts::Random;
use super::{Relation, Suite, demand, pairs_of_rows};
use crate::{CheckError, Subject};
use vosti_engine::{Drafter, Policy, Speculation, Token};

const ROWS: usize = 256;

/// The meaning of a pass.
pub const CLAIM: &str = "Drafts, accepted or rejected, change no logits vector and no token.";

/// Runs the relation.
pub fn run<S: Subject>(suite: &Suite<'_, S>, relation: &mut Relation) -> Result<bool, CheckError> {
    let workload = suite.workload()?;
    relation.dropped = workload.dropped;
    if workload.requests.is_empty() {
        return Ok(true);
    }
    let drafters = ["the answer with errors", "prompt lookup"];
    suite.progress.stage("speculation", drafters.len() as u64);
    let (mut proposed, mut accepted) = (0, 0);
    for (done, name) in drafters.into_iter().enumerate() {
        let mut setup = suite.plain(&[], ROWS);
        setup.policy = Policy { rows_step_max: ROWS, speculation: Speculation::NGRAM, ..Policy::default() };
        setup.pool_tokens = demand(&workload.requests);
        let mut runner = suite.runner(&setup, false)?;
        if done == 0 {
            let histories = workload.requests.iter().zip(&workload.alone);
            let histories = histories.map(|(r, a)| [r.prompt.as_slice(), &a.tokens].concat()).collect();
            let random = Random::new(suite.seed(), "drafts");
            let vocab = suite.facts().vocab;
            runner.engine.set_drafter(Some(Box::new(Erring { histories, random, vocab })));
        }
        let outcome = runner.run(&workload.requests)?;
        for (i, alone) in workload.alone.iter().enumerate() {
            let label = format!("{name}, len {}", workload.requests[i].prompt.len());
            pairs_of_rows(relation, &label, alone, outcome.answer(i), false);
        }
        proposed += runner.counters().drafts_proposed;
        accepted += runner.counters().drafts_accepted;
        suite.progress.done(done as u64 + 1);
    }
    relation.saw("drafts accepted", accepted, 10);
    relation.saw("drafts rejected", proposed.saturating_sub(accepted), 10);
    Ok(true)
}

/// A drafter that knows every answer and replaces a third of its tokens by wrong ones.
struct Erring {
    histories: Vec<Vec<Token>>,
    random: Random,
    vocab: u32,
}

impl Drafter for Erring {
    fn draft(&mut self, _sequence: u64, history: &[Token], drafts_max: usize) -> Vec<Token> {
        let known = self.histories.iter().find(|known| known.len() > history.len() && known.starts_with(history));
        let Some(known) = known else {
            return Vec::new();
        };
        let mut drafts = known[history.len()..].to_vec();
        drafts.truncate(drafts_max.min(4));
        for draft in &mut drafts {
            if self.random.below(3) == 0 {
                let other = 1 + self.random.below(self.vocab as usize - 1) as Token;
                *draft = (*draft + other) % self.vocab;
            }
        }
        drafts
    }

    fn forget(&mut self, _sequence: u64) {}
}
