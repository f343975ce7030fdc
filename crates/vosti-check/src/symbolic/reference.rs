//! The values that the symbolic device must compute, from a token history alone: no batch, no pages, no schedule.

use super::{Functions, Row};
use std::convert::Infallible;
use std::ops::Range;
use vosti_core::{Program, Reads, Sampler, Token};
use vosti_engine::math::drawn_by;
use vosti_engine::sampler::{SamplerState, TokenSampler};
use vosti_engine::{FinishReason, Request};

/// The canonical values of one history, position by position.
#[derive(Clone)]
pub struct Reference<'p> {
    program: &'p Program,
    functions: Functions,
    /// Per layer, the canonical KV hash of each position.
    caches: Vec<Vec<u64>>,
    len: usize,
}

impl<'p> Reference<'p> {
    /// The empty history under the weights that `seed` stands for.
    pub fn new(program: &'p Program, seed: u64) -> Self {
        let caches = vec![Vec::new(); program.layers.len()];
        Self { program, functions: Functions { seed }, caches, len: 0 }
    }

    /// Tokens so far.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the history has no token.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The canonical KV hash of a position in a layer.
    pub fn cached(&self, layer: usize, position: usize) -> u64 {
        self.caches[layer][position]
    }

    /// Appends a token; gives the canonical logits after it.
    pub fn push(&mut self, token: Token) -> Vec<f32> {
        let mut row = History { values: vec![0; self.program.buffers.len()], caches: &mut self.caches };
        for op in &self.program.ops {
            let Ok(()) = self.functions.compute(&op.uses(), token, self.len, &mut row);
        }
        self.len += 1;
        self.functions.logits(row.values[self.program.logits as usize], token, self.program.vocab)
    }
}

/// The last position of a history: a value for each buffer, and a cache without pages.
struct History<'a> {
    values: Vec<u64>,
    caches: &'a mut [Vec<u64>],
}

impl Row for History<'_> {
    type Error = Infallible;

    fn read(&self, buffer: u32) -> u64 {
        self.values[buffer as usize]
    }

    fn write(&mut self, buffer: u32, value: u64) {
        self.values[buffer as usize] = value;
    }

    fn entries(&self, layer: u32, positions: Range<usize>) -> Result<impl Iterator<Item = u64>, Infallible> {
        Ok(self.caches[layer as usize][positions].iter().copied())
    }

    fn store(&mut self, layer: u32, position: usize, entry: u64) -> Result<(), Infallible> {
        let cache = &mut self.caches[layer as usize];
        assert_eq!(cache.len(), position, "a store of each position, once");
        cache.push(entry);
        Ok(())
    }
}

/// The one right answer to a choice of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The answer's tokens.
    pub tokens: Vec<Token>,
    /// The logits after each position of prompt and answer, the last token's excepted.
    pub logits: Vec<Vec<f32>>,
    /// Why it ends there.
    pub reason: FinishReason,
}

/// The answer to one choice by the reference run: one sequence, no pool. The request and the program's context decide where it
/// ends.
pub fn answer(program: &Program, seed: u64, request: &Request, choice: u32) -> Answer {
    let sampler = TokenSampler::new(program.vocab);
    let mut state = SamplerState::new(&request.sampling, &request.prompt, choice).on_device(0, true);
    let mut reference = Reference::new(program, seed);
    let mut logits: Vec<Vec<f32>> = request.prompt.iter().map(|t| reference.push(*t)).collect();
    let mut tokens = Vec::new();
    loop {
        let row = &logits[logits.len() - 1];
        let (token, _) = match sampler.reads(&state) {
            // Of the whole row it is the same up to rounding.
            Reads::Drawn(draw) => sampler.sample_drawn(&mut state, drawn_by(row, draw)),
            _ => sampler.sample(&mut state, row),
        };
        tokens.push(token);
        let full = request.prompt.len() + tokens.len() >= program.context as usize;
        let reason = state.finish().or(full.then_some(FinishReason::ContextFull));
        if let Some(reason) = reason {
            return Answer { tokens, logits, reason };
        }
        logits.push(reference.push(token));
    }
}
