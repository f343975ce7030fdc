//! The values that the symbolic device must compute, from a token history alone: no batch, no pages, no schedule.

use super::{Functions, before, visible};
use vosti_core::{Op, Program, Sampler, Token};
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
        let (f, position) = (self.functions, self.len);
        let mut values = vec![0u64; self.program.buffers.len()];
        for op in &self.program.ops {
            match op {
                Op::Embed { k, out } => values[*out as usize] = f.embed(*k, token),
                Op::Rowwise { k, ins, outs, .. } => {
                    for (o, out) in outs.iter().enumerate() {
                        let ins = ins.iter().map(|b| values[*b as usize]);
                        values[*out as usize] = f.rowwise(*k, o, position, ins);
                    }
                }
                Op::StoreKv { k, ins, layer, back } => {
                    let ins = ins.iter().map(|b| values[*b as usize]);
                    let cache = &mut self.caches[*layer as usize];
                    let entry = f.store(*k, position, ins, cache[before(*back, position)].iter().copied());
                    cache.push(entry);
                }
                Op::Attend { k, q, layer, out, window } => {
                    let cache = &self.caches[*layer as usize];
                    let keys = visible(*window, position).map(|p| cache[p]);
                    values[*out as usize] = f.attend(*k, values[*q as usize], position, keys);
                }
            }
        }
        self.len += 1;
        f.logits(values[self.program.logits as usize], token, self.program.vocab)
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
    let mut state = SamplerState::new(&request.sampling, &request.prompt, choice);
    let mut reference = Reference::new(program, seed);
    let mut logits: Vec<Vec<f32>> = request.prompt.iter().map(|t| reference.push(*t)).collect();
    let mut tokens = Vec::new();
    loop {
        let (token, _) = sampler.sample(&mut state, &logits[logits.len() - 1]);
        tokens.push(token);
        let full = request.prompt.len() + tokens.len() >= program.context as usize;
        let reason = state.finish().or(full.then_some(FinishReason::ContextFull));
        if let Some(reason) = reason {
            return Answer { tokens, logits, reason };
        }
        logits.push(reference.push(token));
    }
}
