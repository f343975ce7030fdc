//! Runs one request again, alone or beside others, so that a caller can compare it with an earlier run.
//!
//! The other requests are fixed: a third of them share a beginning of the prompt, half come before the request and half while it
//! runs, and their prompts are cut into small chunks. This module does not decide whether two runs agree; `vosti replay` does, with
//! a receipt.

use crate::{CheckError, Facts, Setup, Subject, prompts};
use vosti_core::PAGE;
use vosti_engine::progress::Progress;
use vosti_engine::{Engine, Event, FloatDevice, Policy, Request, RequestId, Token};

/// Runs `request` and calls `note` with each token of its choice number `choice` and the row of logits that it was chosen from.
/// Returns the largest number of other sequences in a step; 0 without load.
pub fn again<S: Subject>(
    subject: &S,
    request: Request,
    choice: u32,
    under_load: bool,
    progress: &dyn Progress,
    note: &mut dyn FnMut(Token, &[f32]),
) -> Result<usize, CheckError> {
    let others = if under_load { company(subject.facts(), &request) } else { Vec::new() };
    let mut engine = subject.engine(&setup(subject.facts(), &request, &others))?;

    // Half of the others run already when the request arrives, and half arrive while it runs.
    let (before, mut after) = (others.len() / 2, others);
    let mut beside = 0;
    for other in after.drain(..before) {
        engine.submit(other)?;
    }
    engine.step(&mut |_| {})?;
    let id = engine.submit(request)?;
    while runs(&engine, id, choice) {
        if progress.cancelled() {
            return Err(CheckError::Interrupted);
        }
        if let Some(other) = after.pop() {
            engine.submit(other)?;
        }
        let step = engine.step(&mut |event| {
            if let Event::Token { request, choice: of, token, logits: Some(logits), .. } = event
                && (request, of) == (id, choice)
            {
                note(token, logits);
            }
        })?;
        beside = beside.max(step.sequences.saturating_sub(1));
    }
    Ok(if under_load { beside } else { 0 })
}

/// Whether the choice is still in the engine.
fn runs<D: FloatDevice>(engine: &Engine<D>, id: RequestId, choice: u32) -> bool {
    engine.core_requests().iter().any(|(request, of, _)| (*request, *of) == (id, choice))
}

/// Other requests: of many lengths, greedy and sampled, some with a beginning of the request's prompt.
fn company(facts: &Facts, request: &Request) -> Vec<Request> {
    let lengths = [9usize, 200, 33, 64, 130, 17, 90, 300, 50, 71, 128, 12];
    let fitting: Vec<usize> = lengths.into_iter().filter(|len| len + 40 < facts.context).collect();
    let mut others = prompts::workload(facts, 1, &fitting, 32);
    for (i, other) in others.iter_mut().enumerate().filter(|(i, _)| i % 3 == 0) {
        let shared = request.prompt.len() * (i % 4 + 1) / 4;
        other.prompt = [&request.prompt[..shared], other.prompt.as_slice()].concat();
        other.prompt.truncate(facts.context - 40);
    }
    others
}

/// An engine with room for all requests; if there are others, prompts are cut into small chunks.
fn setup(facts: &Facts, request: &Request, others: &[Request]) -> Setup {
    let longest = |r: &Request| r.prompt.len().saturating_add(r.sampling.tokens_max).min(facts.context) + PAGE;
    let pool_tokens = others.iter().map(longest).sum::<usize>() + longest(request) * request.choices as usize;
    let policy = match others {
        [] => Policy::default(),
        _ => Policy { rows_step_max: 96, rows_sequence_max: 40, ..Policy::default() },
    };
    let rows_max = policy.rows_step_max;
    Setup { policy, pool_tokens, rows_max, threads: None, instruction_set: None, expanded: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy::Toy;
    use vosti_engine::Sampling;
    use vosti_engine::progress::NoProgress;

    #[test]
    fn a_request_beside_others_gives_the_rows_that_it_gives_alone() {
        let toy = Toy::new(None);
        let run = |under_load: bool| {
            let prompt = prompts::prompt(toy.facts(), 3, "replay", 70);
            let mut rows = vec![];
            let mut note = |token: Token, logits: &[f32]| {
                rows.push((token, logits.iter().map(|x| x.to_bits()).collect::<Vec<_>>()));
            };
            let request = Request::new(prompt, Sampling::greedy(9));
            let beside = again(&toy, request, 0, under_load, &NoProgress, &mut note).unwrap();
            (rows, beside)
        };
        let (alone, none) = run(false);
        let (beside, some) = run(true);
        assert_eq!((alone.len(), none), (9, 0));
        assert!(some > 0);
        assert_eq!(alone, beside);
    }
}
