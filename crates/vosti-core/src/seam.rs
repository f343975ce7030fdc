//! What is assumed: the contracts of a device and of a sampler. Beside `spec.rs` the only file to be audited.

use crate::ids::Token;
use crate::plan::StepPlan;
use crate::program::Program;
use vstd::prelude::*;

verus! {

/// A failed step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceError {
    /// What failed and what to do, one line.
    pub message: String,
    /// Whether every cache slot outside the step's write set is as it was. If not, the core refuses everything after.
    pub intact: bool,
}

/// Runs steps: owns weights, buffers and the KV pages.
pub trait Device: Sized {
    /// One row of logits; `[f32]` in real devices.
    type Logits: ?Sized;

    /// Rows that one step may have. Never changes.
    fn rows_max(&self) -> usize;

    /// Selected rows that one step may have. Never changes.
    fn selected_max(&self) -> usize;

    /// Pages of a cache group. Never changes.
    fn pages(&self, group: usize) -> usize;

    /// Makes every slot of every layer zero. The core calls it once, when it is built.
    fn clear(&mut self);

    /// Runs the program over the plan's packed rows. Logits rows stay until the next run.
    fn run(&mut self, program: &Program, plan: &StepPlan) -> Result<(), DeviceError>;

    /// The logits of the step's `selected`-th selected row.
    fn logits(&self, selected: usize) -> &Self::Logits;
}

/// Chooses tokens. Penalties, grammars, stop and length conditions are part of a request's state.
pub trait Sampler: Sized {
    type Logits: ?Sized;

    type State;

    /// The sampler gives tokens below this.
    fn vocab(&self) -> u32;

    /// The next token, and whether the request is done with it.
    fn sample(&self, state: &mut Self::State, logits: &Self::Logits) -> (Token, bool);
}

} // verus!
