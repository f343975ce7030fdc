//! The subject of a check: it makes engines of one deployment.

use super::CheckError;
use vosti_core::Program;
use vosti_engine::{Engine, FloatDevice, Policy, Request, Token};

/// The facts about a model and its deployment that the suite needs.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The model's name, for the report.
    pub model: String,
    /// Names the deployment: deployments with one fingerprint give the same answers.
    pub fingerprint: String,
    /// Tokens of the vocabulary: the width of a row of logits.
    pub vocab: u32,
    /// First token of every prompt, where the model has one.
    pub bos: Option<Token>,
    /// Tokens that random prompts leave out, ascending.
    pub special: Vec<Token>,
    /// Most positions of a request.
    pub context: usize,
    /// The smallest sliding window, where the model has one.
    pub window: Option<usize>,
    /// Whether layers have a state, so that a cached prefix is continued from one.
    pub states: bool,
}

/// The settings of one engine, which may vary. The deployment (weights, kernels, page size) is the subject's.
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
    /// Instruction set, one of [`Subject::instruction_sets`]; none: the subject's own choice.
    pub instruction_set: Option<String>,
    /// Weights expanded to BF16, if the subject keeps them in a smaller form.
    pub expanded: bool,
}

/// Makes engines of one deployment, and says which variations it offers.
pub trait Subject {
    /// The device that the engines run on.
    type Device: FloatDevice;

    /// The facts that the report and the prompts need.
    fn facts(&self) -> &Facts;

    /// The forward pass that the engines run.
    fn program(&self) -> &Program;

    /// A device with an empty pool.
    fn device(&self, setup: &Setup) -> Result<Self::Device, CheckError>;

    /// A fresh engine: empty pool, empty cache.
    fn engine(&self, setup: &Setup) -> Result<Engine<Self::Device>, CheckError> {
        Ok(Engine::new(self.device(setup)?, self.program().clone(), setup.policy)?)
    }

    /// Thread counts to compare; empty if the device has no threads.
    fn thread_counts(&self) -> Vec<usize> {
        Vec::new()
    }

    /// Instruction sets of this machine to compare.
    fn instruction_sets(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether weights are kept in a smaller form than BF16, so that both forms can be compared.
    fn stores(&self) -> bool {
        false
    }

    /// Digests of [`super::prompts::reproduced`]'s rows, computed by another process; none if no other process can be started. The
    /// relation `machine` then fails, unless there are no thread counts and no instruction sets to compare either.
    fn restarted(&self, _seed: u64) -> Option<Result<Vec<String>, CheckError>> {
        None
    }

    /// Changes a request before it is submitted: only faults do so.
    fn tamper(&self, _request: &mut Request) {}
}
