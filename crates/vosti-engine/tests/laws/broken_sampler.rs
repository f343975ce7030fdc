//! The sampler, which breaks one of its laws, or none.

use std::cell::Cell;
use vosti_core::{Draw, Reads, Sampler, Token};
use vosti_engine::sampler::{SamplerState, TokenSampler};

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    VocabularyOneLess,
    /// Every fourth choice from a row is another token.
    RowsByCallOrder,
    RowsOneTooFar,
    /// Every third question reads the whole row.
    ReadsByCallOrder,
    /// At every third question a token is drawn by other numbers.
    NumbersByCallOrder,
    BestByCallOrder,
    /// A best token is not compared with the vocabulary.
    BestUnchecked,
    ListsByCallOrder,
    /// A listed token is not compared with the vocabulary.
    ListsUnchecked,
    DrawnByCallOrder,
    /// A drawn token is not compared with the vocabulary.
    DrawnUnchecked,
}

pub struct BrokenSampler {
    inner: TokenSampler,
    flaw: Option<Flaw>,
    calls: Cell<u32>,
}

impl BrokenSampler {
    pub fn new(vocab: u32, flaw: Option<Flaw>) -> Self {
        Self { inner: TokenSampler::new(vocab), flaw, calls: Cell::new(0) }
    }

    /// True at every `n`-th call of a sampler with this flaw.
    fn slips(&self, flaw: Flaw, n: u32) -> bool {
        if self.flaw == Some(flaw) {
            self.calls.set(self.calls.get() + 1);
        }
        self.flaw == Some(flaw) && self.calls.get().is_multiple_of(n)
    }

    /// The choice, or the next token where the flaw slips.
    fn by_call_order(&self, flaw: Flaw, (token, done): (Token, bool)) -> (Token, bool) {
        ((token + u32::from(self.slips(flaw, 4))) % self.inner.vocab(), done)
    }
}

impl Sampler for BrokenSampler {
    type Logits = [f32];
    type Top = [(Token, f32)];
    type State = SamplerState;

    fn vocab(&self) -> u32 {
        self.inner.vocab() - u32::from(self.flaw == Some(Flaw::VocabularyOneLess))
    }

    fn sample(&self, state: &mut SamplerState, logits: &[f32]) -> (Token, bool) {
        let (token, done) = self.by_call_order(Flaw::RowsByCallOrder, self.inner.sample(state, logits));
        (token + u32::from(self.flaw == Some(Flaw::RowsOneTooFar)), done)
    }

    fn reads(&self, state: &SamplerState) -> Reads {
        match self.inner.reads(state) {
            _ if self.slips(Flaw::ReadsByCallOrder, 3) => Reads::Row,
            Reads::Drawn(draw) if self.slips(Flaw::NumbersByCallOrder, 3) => {
                Reads::Drawn(Draw { within: draw.within ^ 1, ..draw })
            }
            reads => reads,
        }
    }

    fn guess(&self, state: &SamplerState, ahead: usize) -> Draw {
        self.inner.guess(state, ahead)
    }

    fn sample_best(&self, state: &mut SamplerState, best: Token) -> (Token, bool) {
        let (token, done) = self.by_call_order(Flaw::BestByCallOrder, self.inner.sample_best(state, best));
        (if self.flaw == Some(Flaw::BestUnchecked) { best } else { token }, done)
    }

    fn sample_top(&self, state: &mut SamplerState, top: &[(Token, f32)]) -> (Token, bool) {
        let (token, done) = self.by_call_order(Flaw::ListsByCallOrder, self.inner.sample_top(state, top));
        let first = top.first().map_or(0, |(token, _)| *token);
        (if self.flaw == Some(Flaw::ListsUnchecked) { first } else { token }, done)
    }

    fn sample_drawn(&self, state: &mut SamplerState, drawn: Token) -> (Token, bool) {
        let (token, done) = self.by_call_order(Flaw::DrawnByCallOrder, self.inner.sample_drawn(state, drawn));
        (if self.flaw == Some(Flaw::DrawnUnchecked) { drawn } else { token }, done)
    }
}
