//! The subject of a check: it makes engines of one deployment.

use super::CheckError;
use vosti_core::Program;
use vosti_engine::{Engine, FloatDevice, Policy, Request, Token};

/// The facts about a model and its deployment that the suite needs.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Shown in the report.
    pub model: String,
    /// Names the deployment: equal for equal answers.
    pub fingerprint: String,
    /// Tokens of the vocabulary: the width of a row of logits.
    pub vocab: u32,
    /// First token of every prompt, where the model has one.
    pub bos: Option<Token>,
    /// Tokens that random prompts leave out, ascending.
    pub special: Vec<Token>,
    /// Positions a request may have.
    pub context: usize,
    /// The smallest sliding window, where the model has one.
    pub window: Option<usize>,
}

/// One engine to be made. The deployment (weights, kernels, page size) is the subject's; this is what may vary.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The scheduler's settings.
    pub policy: Policy,
    /// Tokens for which the page pool has room.
    pub pool_tokens: usize,
    /// Rows of one step that the device must hold.
    pub rows_max: usize,
    /// Worker threads; none: the subject's own choice.
    pub threads: Option<usize>,
    /// Instruction set, one of [`Subject::instruction_sets`]; none: the best.
    pub instruction_set: Option<String>,
    /// Weights in BF16, where the subject keeps them in less.
    pub expanded: bool,
}

/// Makes engines, and says what it makes them of.
pub trait Subject {
    /// What the engines run on.
    type Device: FloatDevice;

    /// What the report and the prompts need to know.
    fn facts(&self) -> &Facts;

    /// The forward pass that the engines run.
    fn program(&self) -> &Program;

    /// A device with an empty pool.
    fn device(&self, setup: &Setup) -> Result<Self::Device, CheckError>;

    /// A fresh engine: empty pool, empty cache.
    fn engine(&self, setup: &Setup) -> Result<Engine<Self::Device>, CheckError> {
        Ok(Engine::new(self.device(setup)?, self.program().clone(), setup.policy)?)
    }

    /// Thread counts to compare; empty where threads mean nothing.
    fn thread_counts(&self) -> Vec<usize> {
        Vec::new()
    }

    /// Instruction sets of this machine to compare.
    fn instruction_sets(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether weights are kept in another form than the dots', so that both can be compared.
    fn stores(&self) -> bool {
        false
    }

    /// Digests of [`super::prompts::reproduced`]'s rows, computed by another process; none where that cannot be.
    fn restarted(&self, _seed: u64) -> Option<Result<Vec<String>, CheckError>> {
        None
    }

    /// A chance to spoil a request on its way in: for faults only.
    fn tamper(&self, _request: &mut Request) {}
}
