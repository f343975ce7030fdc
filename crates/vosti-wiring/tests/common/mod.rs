//! A device and a sampler that do nothing, for tests that look only at a core's plans.

use vosti_core::*;

/// A device that computes nothing.
pub struct Idle {
    /// The most rows of a step, and the most selected rows.
    pub rows: usize,
    /// Pages of each group.
    pub pages: usize,
}

impl Device for Idle {
    type Logits = ();
    type Top = ();

    fn rows_max(&self) -> usize {
        self.rows
    }

    fn selected_max(&self) -> usize {
        self.rows
    }

    fn pages(&self, _: usize) -> usize {
        self.pages
    }

    fn top_max(&self) -> usize {
        1
    }

    fn draws(&self) -> bool {
        true
    }

    fn clear(&mut self) {}

    fn run(&mut self, _: &Program, _: &StepPlan) -> Result<(), DeviceError> {
        Ok(())
    }

    fn logits(&self, _: usize) -> &() {
        &()
    }

    fn best(&self, _: usize) -> Token {
        7
    }

    fn top(&self, _: usize) -> &() {
        &()
    }

    fn drawn(&self, _: usize, _: Draw) -> Token {
        7
    }
}

/// A sampler that always gives token 7.
pub struct Seven {
    /// Tokens of the vocabulary.
    pub vocab: u32,
}

impl Sampler for Seven {
    type Logits = ();
    type Top = ();
    type State = ();

    fn vocab(&self) -> u32 {
        self.vocab
    }

    fn sample(&self, _: &mut (), _: &()) -> (Token, bool) {
        (7, false)
    }

    fn reads(&self, _: &()) -> Reads {
        Reads::Best
    }

    fn guess(&self, _: &(), _: usize) -> Draw {
        unreachable!("nothing is drawn")
    }

    fn sample_best(&self, _: &mut (), _: Token) -> (Token, bool) {
        (7, false)
    }

    fn sample_drawn(&self, _: &mut (), _: Token) -> (Token, bool) {
        (7, false)
    }

    fn sample_top(&self, _: &mut (), _: &()) -> (Token, bool) {
        (7, false)
    }
}
