//! Logits to token: the `Sampler` that the core calls at commit.
//!
//! The token is a function of the request's state and the logits row, and of nothing else: no clock, no call count,
//! no other request. Everything that decides (penalty counts, position, stop strings, grammar) is in the explicit
//! `SamplerState`; ties go to the lower token id; the arithmetic is `math.rs`. The order of the transformations: logit
//! bias, constraint, repetition, presence and frequency penalties; then greedy, or temperature, min-p, top-k, top-p, draw.

use crate::sampling::{Sampling, SamplingParams};
use crate::text::StopMatcher;
use crate::{FinishReason, Token, math, random};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// Restricts which token may come next: a grammar, a JSON schema. Must be a function of the tokens accepted so far.
pub trait Constraint: Send {
    /// Sets the logits of tokens that may not come next to `f32::NEG_INFINITY`.
    fn mask(&mut self, logits: &mut [f32]);

    /// Takes the sampled token; true when nothing may follow it.
    fn accept(&mut self, token: Token) -> bool;
}

/// All that a choice's next token depends on besides the logits.
pub struct SamplerState {
    sampling: Sampling,
    choice: u32,
    /// Position of the next token in the sequence.
    position: u64,
    generated: usize,
    /// Tokens of the prompt, if the repetition penalty wants them.
    prompt: BTreeSet<Token>,
    /// Occurrences in the answer, if a penalty wants them.
    counts: BTreeMap<Token, u32>,
    stops: Option<StopMatcher>,
    constraint: Option<Box<dyn Constraint>>,
    finish: Option<FinishReason>,
}

impl SamplerState {
    /// The state before the first token after `prompt`.
    pub fn new(sampling: &Sampling, prompt: &[Token], choice: u32) -> Self {
        let repetition = sampling.repetition_penalty != 1.0;
        let prompt_tokens = if repetition { prompt } else { &[] };
        let text = sampling.text.as_ref().filter(|_| !sampling.stop_strings.is_empty());
        Self {
            choice,
            position: prompt.len() as u64,
            generated: 0,
            prompt: prompt_tokens.iter().copied().collect(),
            counts: BTreeMap::new(),
            stops: text.map(|text| StopMatcher::new(text.clone(), &sampling.stop_strings)),
            constraint: sampling.constraint.as_ref().map(|make| make()),
            finish: None,
            sampling: sampling.clone(),
        }
    }

    /// Why the sampler ended the sequence, once it did.
    pub fn finish(&self) -> Option<FinishReason> {
        self.finish
    }

    /// Tokens that may still come.
    pub fn tokens_left(&self) -> usize {
        self.sampling.tokens_max - self.generated
    }

    fn counts_tokens(&self) -> bool {
        let p = &self.sampling;
        p.repetition_penalty != 1.0 || p.presence_penalty != 0.0 || p.frequency_penalty != 0.0
    }

    fn changes_logits(&self) -> bool {
        self.counts_tokens() || !self.sampling.logit_bias.is_empty() || self.constraint.is_some()
    }

    /// Bias, constraint and penalties, in place.
    fn transform(&mut self, logits: &mut [f32]) {
        let p = &self.sampling;
        for &(token, bias) in &p.logit_bias {
            if let Some(logit) = logits.get_mut(token as usize) {
                *logit += bias;
            }
        }
        if let Some(constraint) = &mut self.constraint {
            constraint.mask(logits);
        }
        if p.repetition_penalty != 1.0 {
            let answer = self.counts.keys().filter(|token| !self.prompt.contains(token));
            for token in self.prompt.iter().chain(answer) {
                let logit = &mut logits[*token as usize];
                let penalty = p.repetition_penalty;
                *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
            }
        }
        for (token, count) in &self.counts {
            let penalty = p.presence_penalty + p.frequency_penalty * *count as f32;
            logits[*token as usize] -= penalty;
        }
    }

    /// Takes the sampled token into the state; true if it is the last.
    fn accept(&mut self, token: Token) -> bool {
        self.position += 1;
        self.generated += 1;
        if self.counts_tokens() {
            *self.counts.entry(token).or_insert(0) += 1;
        }
        // Every part takes the token, whichever of them ends the sequence.
        let complete = self.constraint.as_mut().is_some_and(|c| c.accept(token));
        let stop = self.stops.as_mut().and_then(|stops| stops.push(token));
        self.finish = if self.sampling.stop_tokens.binary_search(&token).is_ok() {
            Some(FinishReason::StopToken(token))
        } else if let Some(stop) = stop {
            Some(FinishReason::StopString(stop))
        } else if complete {
            Some(FinishReason::Constraint)
        } else if self.generated >= self.sampling.tokens_max {
            Some(FinishReason::Length)
        } else {
            None
        };
        self.finish.is_some()
    }
}

/// A token that may be drawn.
#[derive(Clone, Copy)]
struct Candidate {
    token: Token,
    /// Logit after the transformations.
    logit: f32,
    /// e^((logit - largest) / temperature).
    weight: f32,
}

impl Candidate {
    /// More likely first; of equals, the lower id.
    fn before(&self, other: &Self) -> std::cmp::Ordering {
        other.logit.total_cmp(&self.logit).then(self.token.cmp(&other.token))
    }
}

/// Memory reused between calls; its contents never reach a result.
#[derive(Default)]
struct Scratch {
    logits: Vec<f32>,
    candidates: Vec<Candidate>,
}

/// The sampler. Holds no state of any request.
pub struct TokenSampler {
    vocab: u32,
    scratch: RefCell<Scratch>,
}

impl TokenSampler {
    /// For logits rows of this width.
    pub fn new(vocab: u32) -> Self {
        Self { vocab, scratch: RefCell::default() }
    }
}

impl vosti_core::Sampler for TokenSampler {
    type Logits = [f32];
    type State = SamplerState;

    fn vocab(&self) -> u32 {
        self.vocab
    }

    fn sample(&self, state: &mut SamplerState, logits: &[f32]) -> (Token, bool) {
        let mut scratch = self.scratch.borrow_mut();
        let Scratch { logits: changed, candidates } = &mut *scratch;
        // Whatever the device's rows look like, the token is in the vocabulary.
        let logits = &logits[..logits.len().min(self.vocab as usize)];
        let row = if state.changes_logits() {
            changed.clear();
            changed.extend_from_slice(logits);
            state.transform(changed);
            &*changed
        } else {
            logits
        };
        let largest = math::max(row);
        let token = if state.sampling.temperature == 0.0 || largest == f32::NEG_INFINITY {
            first_equal(row, largest)
        } else {
            let unit = random::uniform(state.sampling.seed, state.choice, state.position);
            draw(&state.sampling, row, largest, unit, candidates)
        };
        (token, state.accept(token))
    }
}

/// The lowest token whose logit is `largest`; 0 if nothing is, which only a row of NaN gives.
fn first_equal(logits: &[f32], largest: f32) -> Token {
    logits.iter().position(|x| *x == largest).unwrap_or(0) as Token
}

/// Draws with `unit` in [0, 1). The result is a function of the arguments but `candidates`, which is memory.
fn draw(p: &SamplingParams, logits: &[f32], largest: f32, unit: f64, candidates: &mut Vec<Candidate>) -> Token {
    collect(p, logits, largest, candidates);
    let k = p.top_k as usize;
    if k > 0 && k < candidates.len() {
        candidates.select_nth_unstable_by(k - 1, Candidate::before);
        candidates.truncate(k);
        candidates.sort_unstable_by_key(|c| c.token);
    }
    if p.top_p < 1.0 {
        keep_nucleus(candidates, f64::from(p.top_p));
    }
    let target = unit * total(candidates);
    let mut sum = 0.0;
    for candidate in candidates.iter() {
        sum += f64::from(candidate.weight);
        if sum > target {
            return candidate.token;
        }
    }
    candidates.last().map_or_else(|| first_equal(logits, largest), |last| last.token)
}

/// Candidates by ascending token id: weight above 0 and at least `min_p` (the largest weight is 1).
fn collect(p: &SamplingParams, logits: &[f32], largest: f32, candidates: &mut Vec<Candidate>) {
    candidates.clear();
    let inverse = 1.0 / p.temperature;
    let floor = p.min_p.max(f32::MIN_POSITIVE);
    for (token, &logit) in logits.iter().enumerate() {
        // An infinite or NaN difference has weight 0, but for the largest logit itself, which has weight 1.
        let below = if logit == largest { 0.0 } else { (logit - largest) * inverse };
        let weight = math::exp_negative(below);
        if weight >= floor {
            candidates.push(Candidate { token: token as Token, logit, weight });
        }
    }
}

/// Sum of the weights, in the order of the list.
fn total(candidates: &[Candidate]) -> f64 {
    candidates.iter().map(|c| f64::from(c.weight)).sum()
}

/// Keeps the shortest run of most likely candidates whose weight reaches `top_p` of the total.
fn keep_nucleus(candidates: &mut Vec<Candidate>, top_p: f64) {
    let total = total(candidates);
    // Candidates this light have less than 1 - top_p among them all, so they are outside; dropping them before the
    // sort keeps it short.
    let light = (1.0 - top_p) * total / candidates.len() as f64;
    candidates.retain(|c| f64::from(c.weight) >= light * 0.999);
    candidates.sort_unstable_by(Candidate::before);
    let mut sum = 0.0;
    let inside = candidates.iter().position(|c| {
        sum += f64::from(c.weight);
        sum >= top_p * total
    });
    candidates.truncate(inside.map_or(candidates.len(), |last| last + 1));
}

#[cfg(test)]
mod tests;
