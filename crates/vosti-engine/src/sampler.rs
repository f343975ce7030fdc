//! Logits to token: the `Sampler` that the core calls at commit.
//!
//! The token is a function of the request's state and the logits row, and of nothing else: no clock, no call count, no other
//! request. The explicit `SamplerState` holds everything that decides (penalty counts, position, stop strings, grammar); ties
//! go to the lower token id; the arithmetic is `math.rs`. The transformations come in this order: logit bias, constraint,
//! repetition, presence and frequency penalties, stop tokens ruled out before `tokens_min`; then greedy, or temperature,
//! min-p, top-k, typical-p, top-p, draw.
//!
//! A choice reads no more of its row than it needs. A greedy choice reads the best token; a draw among the k largest reads
//! the device's list of largest logits, if that list is long enough; a draw by temperature alone reads the token that the device
//! draws by the random numbers of the position, if it draws. The token is the one that the whole row would give; that of the
//! device's draw is, up to the rounding of sums.

use crate::sampling::{Sampling, SamplingParams};
use crate::text::StopMatcher;
use crate::{FinishReason, Token, math, random};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use vosti_core::{Draw, Reads};

/// Counts up when a seed gives other tokens of the same logits. A deployment's fingerprint has it.
pub const VERSION: u32 = 2;

/// Restricts which token may come next: a grammar, a JSON schema. Must be a function of the tokens accepted so far.
pub trait Constraint: Send {
    /// Sets the logits of tokens that may not come next to `f32::NEG_INFINITY`.
    fn mask(&mut self, logits: &mut [f32]);

    /// Takes the sampled token; true when nothing may follow it.
    fn accept(&mut self, token: Token) -> bool;
}

/// Everything besides the logits that a choice's next token depends on.
pub struct SamplerState {
    sampling: Sampling,
    choice: u32,
    /// Logits in each of the device's lists; 0 if it makes none.
    listed: usize,
    /// Whether the device draws tokens.
    drawn: bool,
    /// Position of the next token in the sequence.
    position: u64,
    generated: usize,
    /// Tokens of the prompt, kept for the repetition penalty only.
    prompt: BTreeSet<Token>,
    /// Occurrences of tokens in the answer, kept for penalties only.
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
            listed: 0,
            drawn: false,
            position: prompt.len() as u64,
            generated: 0,
            prompt: prompt_tokens.iter().copied().collect(),
            counts: BTreeMap::new(),
            stops: text.map(|text| {
                let stops = StopMatcher::new(text.clone(), &sampling.stop_strings);
                stops.with_tokens_min(sampling.tokens_min).with_thoughts(sampling.thoughts.as_ref())
            }),
            constraint: sampling.constraint.as_ref().map(|make| make()),
            finish: None,
            sampling: sampling.clone(),
        }
    }

    /// The same, on a device whose lists have `listed` logits (0: it makes no lists), and that draws tokens or not. A choice among at
    /// most that many tokens reads the list instead of the row, and a draw from the whole row is the device's.
    pub fn on_device(self, listed: usize, drawn: bool) -> Self {
        Self { listed, drawn, ..self }
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
        let p = &self.sampling;
        self.counts_tokens() || !p.logit_bias.is_empty() || self.constraint.is_some() || self.generated < p.tokens_min
    }

    /// The part of the row that the choice reads.
    fn reads(&self) -> Reads {
        let p = &self.sampling;
        match self.changes_logits() {
            true => Reads::Row,
            false if p.temperature == 0.0 => Reads::Best,
            false if p.top_k > 0 && p.top_k as usize <= self.listed => Reads::Top,
            false if self.drawn && p.top_k == 0 && p.min_p == 0.0 && !narrows(p) => Reads::Drawn(self.numbers(0)),
            false => Reads::Row,
        }
    }

    /// The random number of this position, in [0, 1).
    fn unit(&self) -> f64 {
        random::uniform(self.sampling.seed, self.choice, self.position)
    }

    /// By what a device draws the token that comes `ahead` tokens after the next one.
    fn numbers(&self, ahead: usize) -> Draw {
        let [part, within] = random::pair(self.sampling.seed, self.choice, self.position + ahead as u64);
        let scale = (inverse(&self.sampling) * std::f32::consts::LOG2_E).min(f32::MAX);
        let [scale, part, within] = [scale, part, within].map(f32::to_bits);
        Draw { scale, part, within }
    }

    /// Bias, constraint and penalties, in place. Tokens beyond a row that is narrower than the vocabulary have no logit.
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
                let Some(logit) = logits.get_mut(*token as usize) else { continue };
                let penalty = p.repetition_penalty;
                *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
            }
        }
        for (token, count) in &self.counts {
            let penalty = p.presence_penalty + p.frequency_penalty * *count as f32;
            if let Some(logit) = logits.get_mut(*token as usize) {
                *logit -= penalty;
            }
        }
        if self.generated < p.tokens_min {
            forbid(&p.stop_tokens, logits);
        }
    }

    /// The logits of the distribution that the next token is drawn from: after bias, constraint and penalties, and unless the draw
    /// is greedy also divided by the temperature, with -inf for what min-p, top-k and top-p drop. `logits` is the model's row.
    pub fn processed(&mut self, logits: &[f32]) -> Vec<f32> {
        let mut row = logits.to_vec();
        if self.changes_logits() {
            self.transform(&mut row);
        }
        let (p, largest) = (&self.sampling, math::max(&row));
        if p.temperature == 0.0 || !largest.is_finite() {
            return row;
        }
        let kept = kept(p, &row, largest);
        let mut drawn = vec![f32::NEG_INFINITY; row.len()];
        for (token, _) in kept.into_iter().filter(|(_, weight)| *weight > 0.0) {
            drawn[token as usize] = (row[token as usize] - largest) * inverse(p);
        }
        drawn
    }

    /// Takes the sampled token into the state; true if it is the last.
    pub fn accept(&mut self, token: Token) -> bool {
        self.position += 1;
        self.generated += 1;
        if self.counts_tokens() {
            *self.counts.entry(token).or_insert(0) += 1;
        }
        // Constraint and stop matcher both take the token, even if one of them ends the sequence.
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

/// Sets the logits of `tokens` (sorted) to -inf, unless every other token is ruled out already.
fn forbid(tokens: &[Token], logits: &mut [f32]) {
    let listed = |token: usize| tokens.binary_search(&(token as Token)).is_ok();
    if !logits.iter().enumerate().any(|(token, logit)| *logit > f32::NEG_INFINITY && !listed(token)) {
        return;
    }
    for token in tokens {
        if let Some(logit) = logits.get_mut(*token as usize) {
            *logit = f32::NEG_INFINITY;
        }
    }
}

/// Memory reused between calls; its contents never reach a result.
#[derive(Default)]
struct Scratch {
    logits: Vec<f32>,
    weights: Vec<f32>,
    sums: Vec<f64>,
}

/// The sampler. Holds no state of any request.
pub struct TokenSampler {
    vocab: u32,
    scratch: RefCell<Scratch>,
}

impl TokenSampler {
    /// A sampler for rows of `vocab` logits.
    pub fn new(vocab: u32) -> Self {
        Self { vocab, scratch: RefCell::default() }
    }
}

impl vosti_core::Sampler for TokenSampler {
    type Logits = [f32];
    type Top = [(Token, f32)];
    type State = SamplerState;

    fn vocab(&self) -> u32 {
        self.vocab
    }

    fn sample(&self, state: &mut SamplerState, logits: &[f32]) -> (Token, bool) {
        let mut scratch = self.scratch.borrow_mut();
        let Scratch { logits: changed, weights, sums } = &mut *scratch;
        // The token must be in the vocabulary even if a row is too wide.
        let logits = &logits[..logits.len().min(self.vocab as usize)];
        let row = if state.changes_logits() {
            changed.clear();
            changed.extend_from_slice(logits);
            state.transform(changed);
            &*changed
        } else {
            logits
        };
        let p = &state.sampling;
        let token = if p.temperature == 0.0 {
            math::first_largest(row)
        } else if p.top_k > 0 {
            draw_listed(p, &math::top(row, p.top_k as usize), state.unit())
        } else {
            draw(state, row, (weights, sums))
        };
        (token, state.accept(token))
    }

    fn reads(&self, state: &SamplerState) -> Reads {
        state.reads()
    }

    fn guess(&self, state: &SamplerState, ahead: usize) -> Draw {
        state.numbers(ahead)
    }

    fn sample_drawn(&self, state: &mut SamplerState, drawn: Token) -> (Token, bool) {
        let token = drawn.min(self.vocab.saturating_sub(1));
        (token, state.accept(token))
    }

    fn sample_best(&self, state: &mut SamplerState, best: Token) -> (Token, bool) {
        // The token must be in the vocabulary even if the device's is not.
        let token = best.min(self.vocab.saturating_sub(1));
        (token, state.accept(token))
    }

    fn sample_top(&self, state: &mut SamplerState, top: &[(Token, f32)]) -> (Token, bool) {
        let listed = &top[..top.len().min(state.sampling.top_k as usize)];
        let token = draw_listed(&state.sampling, listed, state.unit()).min(self.vocab.saturating_sub(1));
        (token, state.accept(token))
    }
}

/// Draws from a whole row. The result is a function of the arguments other than `memory`.
fn draw(state: &SamplerState, logits: &[f32], memory: (&mut Vec<f32>, &mut Vec<f64>)) -> Token {
    let p = &state.sampling;
    let largest = math::max(logits);
    if !largest.is_finite() {
        return math::first_largest(logits);
    }
    let (weights, sums) = memory;
    math::weigh(logits, largest, inverse(p), p.min_p, weights, sums);
    let all = sums.iter().sum();
    let drawn = if narrows(p) {
        let kept = kept_of_weights(p, weights, all);
        math::walk(kept.iter().copied(), state.unit() * total(&kept))
    } else {
        let numbers = random::pair(p.seed, state.choice, state.position);
        math::walk_parts(weights, sums, numbers.map(f64::from))
    };
    drawn.unwrap_or_else(|| math::first_largest(logits))
}

/// Draws among the listed tokens: the largest logits of a row, largest first. Token 0 if the list is empty.
fn draw_listed(p: &SamplingParams, top: &[(Token, f32)], unit: f64) -> Token {
    let Some(&(first, largest)) = top.first() else { return 0 };
    if !largest.is_finite() {
        return first;
    }
    let kept = kept_of_list(p, top, largest);
    math::walk(kept.iter().copied(), unit * total(&kept)).unwrap_or(first)
}

/// The tokens that a draw chooses among, with their weights.
fn kept(p: &SamplingParams, row: &[f32], largest: f32) -> Vec<(Token, f32)> {
    if p.top_k > 0 {
        return kept_of_list(p, &math::top(row, p.top_k as usize), largest);
    }
    let (mut weights, mut sums) = (Vec::new(), Vec::new());
    math::weigh(row, largest, inverse(p), p.min_p, &mut weights, &mut sums);
    if !narrows(p) {
        return weights.into_iter().enumerate().map(|(token, weight)| (token as Token, weight)).collect();
    }
    kept_of_weights(p, &weights, sums.iter().sum())
}

/// The tokens that typical-p and top-p keep of a whole row, most likely first; `all` is the sum of its weights.
fn kept_of_weights(p: &SamplingParams, weights: &[f32], all: f64) -> Vec<(Token, f32)> {
    // Which tokens are typical depends on all of them.
    let share = if p.typical_p < 1.0 { 1.0 } else { f64::from(p.top_p) };
    let mut kept = nucleus_candidates(weights, share, all);
    keep_typical(&mut kept, p.typical_p);
    let all = if p.typical_p < 1.0 { total(&kept) } else { all };
    keep_nucleus(&mut kept, f64::from(p.top_p) * all);
    kept
}

/// The same of the largest logits of a row, largest first.
fn kept_of_list(p: &SamplingParams, top: &[(Token, f32)], largest: f32) -> Vec<(Token, f32)> {
    let inverse = inverse(p);
    let weight = |logit: f32| Some(math::exp_negative((logit - largest) * inverse)).filter(|e| *e >= p.min_p);
    let mut kept: Vec<(Token, f32)> =
        top.iter().map(|(token, logit)| (*token, weight(*logit).unwrap_or(0.0))).collect();
    keep_typical(&mut kept, p.typical_p);
    if p.top_p < 1.0 {
        let mass = f64::from(p.top_p) * total(&kept);
        keep_nucleus(&mut kept, mass);
    }
    kept
}

/// Whether a draw is from fewer tokens than those of the row that `top_k` and `min_p` leave.
fn narrows(p: &SamplingParams) -> bool {
    p.top_p < 1.0 || p.typical_p < 1.0
}

/// The factor of logits, 1 / temperature. It is finite for every temperature, so that the weight of the largest logit is 1.
fn inverse(p: &SamplingParams) -> f32 {
    (1.0 / p.temperature).min(f32::MAX)
}

fn total(kept: &[(Token, f32)]) -> f64 {
    kept.iter().map(|(_, weight)| f64::from(*weight)).sum()
}

/// Tokens that can be in the nucleus, most likely first. Lighter tokens are left out to keep the sort short: all of them
/// together have less than 1 - top_p of the weight.
fn nucleus_candidates(weights: &[f32], top_p: f64, all: f64) -> Vec<(Token, f32)> {
    let light = 0.999 * (1.0 - top_p) * all / weights.len() as f64;
    let heavy = |(token, w): (usize, &f32)| (*w > 0.0 && f64::from(*w) >= light).then_some((token as Token, *w));
    let mut tokens: Vec<(Token, f32)> = weights.iter().enumerate().filter_map(heavy).collect();
    tokens.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    tokens
}

/// Keeps the tokens whose surprise, -ln of their probability, is nearest to the expected surprise: as few as have `share` of the weight.
/// Their order stays. Meister et al., "Locally Typical Sampling" (arXiv 2202.00666).
fn keep_typical(tokens: &mut Vec<(Token, f32)>, share: f32) {
    if share >= 1.0 {
        return;
    }
    tokens.retain(|(_, weight)| *weight > 0.0);
    let all = total(tokens);
    let surprise = |weight: f32| libm::log(all / f64::from(weight));
    let expected: f64 = tokens.iter().map(|(_, weight)| f64::from(*weight) / all * surprise(*weight)).sum();
    let distance = |(place, (_, weight)): (usize, &(Token, f32))| ((surprise(*weight) - expected).abs(), place);
    let mut nearest: Vec<(f64, usize)> = tokens.iter().enumerate().map(distance).collect();
    nearest.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let (mut sum, mut kept) = (0.0, vec![false; tokens.len()]);
    for (_, place) in nearest {
        kept[place] = true;
        sum += f64::from(tokens[place].1);
        if sum >= f64::from(share) * all {
            break;
        }
    }
    let mut kept = kept.into_iter();
    tokens.retain(|_| kept.next().unwrap_or(false));
}

/// Keeps the shortest run of `tokens`, which are most likely first, whose weights reach `mass`.
fn keep_nucleus(tokens: &mut Vec<(Token, f32)>, mass: f64) {
    let mut sum = 0.0;
    let reached = tokens.iter().position(|(_, weight)| {
        sum += f64::from(*weight);
        sum >= mass
    });
    tokens.truncate(reached.map_or(tokens.len(), |last| last + 1));
}

#[cfg(test)]
mod tests;
