//! A core whose plans alone matter: a device and a sampler that do nothing.

use vosti_core::*;

/// A device that computes nothing.
pub struct Idle {
    /// Of a step, selected ones too.
    pub rows: usize,
    /// Of each group.
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
}

/// Says 7 whatever it is shown.
pub struct Seven {
    /// Tokens that there are.
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

    fn sample_best(&self, _: &mut (), _: Token) -> (Token, bool) {
        (7, false)
    }

    fn sample_top(&self, _: &mut (), _: &()) -> (Token, bool) {
        (7, false)
    }
}
