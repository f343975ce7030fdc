//! The core: a state behind its invariant, and the operations that policy may call in any order with any arguments.

use crate::block::Block;
use crate::error::CoreError;
use crate::ids::{BlockId, RequestId, Token};
use crate::invariant::*;
use crate::ops::commit::Record;
use crate::pages::Pool;
use crate::plan::{Select, StepPlan};
use crate::program::Program;
use crate::request::Request;
use crate::seam::*;
use crate::spec::*;
use crate::state::*;
use vstd::prelude::*;

verus! {

/// Pages, requests, blocks and the one step over a device. Each operation is `Ok` exactly when it is legal; on `Err`
/// nothing has changed, except that a step whose device failed is abandoned.
pub struct Core<D: Device, S: Sampler<Logits = D::Logits>> {
    device: D,
    fixed: Fixed<S>,
    /// None once the device has failed for good, or an operation panicked in the device or the sampler.
    state: Option<State<S>>,
    /// An empty plan, to show when there is no state.
    idle: StepPlan,
}

/// Operations.
impl<D: Device, S: Sampler<Logits = D::Logits>> Core<D, S> {
    /// A core with no request. Checks the program and clears the device's cache.
    pub fn new(device: D, sampler: S, program: Program) -> Result<Self, CoreError> {
        let mut device = device;
        let rows_max = device.rows_max();
        let selected_max = device.selected_max();
        let fixed = Fixed { program, sampler, rows_max, selected_max, choice: Ghost(arbitrary()) };
        match State::new(&fixed, &mut device) {
            Ok(state) => Ok(Core { device, fixed, state: Some(state), idle: StepPlan::empty() }),
            Err(error) => Err(error),
        }
    }

    /// Takes in a request: a prompt of at least one token that leaves room for one more, the tenant's salt (requests of
    /// different salts never share a block) and the sampler's initial state.
    pub fn admit(&mut self, prompt: Vec<Token>, salt: u64, state: S::State) -> Result<RequestId, CoreError> {
        let mut core = self.open()?;
        let out = core.admit(&self.fixed, prompt, salt, state);
        self.state = Some(core);
        out
    }

    /// Attaches a published block as the next page of the request's prefix, instead of computing it. The block must
    /// continue the request's chain: same parent, same depth, same tokens. At least one position stays to compute.
    pub fn attach(&mut self, request: RequestId, block: BlockId) -> Result<(), CoreError> {
        let mut core = self.open()?;
        let out = core.attach(&self.fixed, request, block);
        self.state = Some(core);
        out
    }

    /// Appends a private page to the request's table of a group.
    pub fn take_page(&mut self, request: RequestId, group: usize) -> Result<(), CoreError> {
        let mut core = self.open()?;
        let out = core.take_page(&self.fixed, request, group);
        self.state = Some(core);
        out
    }

    /// Lets go of the request's pages wholly behind the group's window of its next position; how many they were. Own
    /// pages become free, blocks' pages stay registered.
    pub fn release_behind(&mut self, request: RequestId, group: usize) -> Result<usize, CoreError> {
        let mut core = self.open()?;
        let out = core.release_behind(&self.fixed, request, group);
        self.state = Some(core);
        out
    }

    /// Publishes the request's next full cached page as an immutable block. None if there is none yet.
    pub fn publish(&mut self, request: RequestId) -> Result<Option<BlockId>, CoreError> {
        let mut core = self.open()?;
        let out = core.publish(&self.fixed, request);
        self.state = Some(core);
        out
    }

    /// Drops a block that no request's table reads, and frees its pages.
    pub fn evict(&mut self, block: BlockId) -> Result<(), CoreError> {
        let mut core = self.open()?;
        let out = core.evict(&self.fixed, block);
        self.state = Some(core);
        out
    }

    /// Frees a block's page of one group, if no request's table reads it; the block stays for the other groups.
    pub fn evict_page(&mut self, block: BlockId, group: usize) -> Result<(), CoreError> {
        let mut core = self.open()?;
        let out = core.evict_page(&self.fixed, block, group);
        self.state = Some(core);
        out
    }

    /// Lets go of all pages of a request: nothing of it is cached. Its history and sampler state stay.
    pub fn preempt(&mut self, request: RequestId) -> Result<(), CoreError> {
        let mut core = self.open()?;
        let out = core.preempt(&self.fixed, request);
        self.state = Some(core);
        out
    }

    /// Forgets a request that is not complete.
    pub fn abort(&mut self, request: RequestId) -> Result<(), CoreError> {
        let mut core = self.open()?;
        let out = core.abort(&self.fixed, request);
        self.state = Some(core);
        out
    }

    /// Forgets a complete request: its sampler ended it, or its history fills the context.
    pub fn finish(&mut self, request: RequestId) -> Result<(), CoreError> {
        let mut core = self.open()?;
        let out = core.finish(&self.fixed, request);
        self.state = Some(core);
        out
    }

    /// Begins a step.
    pub fn plan_begin(&mut self) -> Result<(), CoreError> {
        let mut core = self.open()?;
        let out = core.plan_begin(&self.fixed);
        self.state = Some(core);
        out
    }

    /// Puts rows of a request into the step: `rows` tokens of its history from its first uncached position on, then
    /// the drafts. Drafts are allowed where the rows reach the end of the history. A request may join a step once; the
    /// pages that the rows read and write must be there.
    pub fn plan_rows(&mut self, request: RequestId, rows: usize, drafts: &[Token], select: Select) -> Result<(), CoreError> {
        let mut core = self.open()?;
        let out = core.plan_rows(&self.fixed, request, rows, drafts, select);
        self.state = Some(core);
        out
    }

    /// Abandons the step, run or not: nothing of it is cached or sampled.
    pub fn plan_cancel(&mut self) -> Result<(), CoreError> {
        let mut core = self.open()?;
        let out = core.plan_cancel(&self.fixed);
        self.state = Some(core);
        out
    }

    /// Runs the step on the device. If the device fails, the step is abandoned; if its cache is lost too, the core
    /// refuses everything after.
    pub fn run(&mut self) -> Result<(), CoreError> {
        let mut core = self.open()?;
        let out = core.run(&self.fixed, &mut self.device);
        let lost = match &out {
            Err(CoreError::Device { error }) => !error.intact,
            _ => false,
        };
        if !lost {
            self.state = Some(core);
        }
        out
    }

    /// Ends the step: samples for every request whose rows reached the end of its history, and on through the drafts
    /// that came true. The records of one request are in order and together.
    pub fn commit(&mut self) -> Result<Vec<Record>, CoreError> {
        let mut core = self.open()?;
        let out = core.commit(&self.fixed, &self.device);
        self.state = Some(core);
        out
    }

    /// Takes the state out while an operation works on it: should a device or sampler panic, the core stays without.
    fn open(&mut self) -> Result<State<S>, CoreError> {
        let mut state: Option<State<S>> = None;
        core::mem::swap(&mut self.state, &mut state);
        match state {
            Some(state) => Ok(state),
            None => Err(CoreError::Poisoned),
        }
    }
}

/// Views, for policy.
impl<D: Device, S: Sampler<Logits = D::Logits>> Core<D, S> {
    /// The device: read a record's logits from it.
    pub fn device(&self) -> &D {
        &self.device
    }

    pub fn sampler(&self) -> &S {
        &self.fixed.sampler
    }

    pub fn program(&self) -> &Program {
        &self.fixed.program
    }

    /// The step in flight, empty when there is none.
    pub fn plan(&self) -> &StepPlan {
        match &self.state {
            Some(state) => &state.plan,
            None => &self.idle,
        }
    }

    /// Whether the device has failed for good: every operation is refused.
    pub fn poisoned(&self) -> bool {
        self.state.is_none()
    }

    /// Free pages of a group; 0 if there is no such group.
    pub fn free_pages(&self, group: usize) -> usize {
        match self.pool(group) {
            Some(pool) => pool.free.len(),
            None => 0,
        }
    }

    /// All pages of a group; 0 if there is no such group.
    pub fn pages(&self, group: usize) -> usize {
        match self.pool(group) {
            Some(pool) => pool.pages.len(),
            None => 0,
        }
    }

    fn pool(&self, group: usize) -> Option<&Pool> {
        match &self.state {
            Some(state) if group < state.pools.len() => Some(&state.pools[group]),
            _ => None,
        }
    }

    /// A live request.
    pub fn request(&self, id: RequestId) -> Option<&Request<S::State>> {
        match &self.state {
            Some(state) => state.request(id),
            None => None,
        }
    }

    /// Whether nothing is left to emit: `finish` is legal once the request is in no step.
    pub fn complete(&self, id: RequestId) -> bool {
        match self.request(id) {
            Some(request) => request.complete(self.fixed.program.context),
            None => false,
        }
    }

    /// A published block.
    pub fn block(&self, id: BlockId) -> Option<&Block> {
        match &self.state {
            Some(state) => state.block(id),
            None => None,
        }
    }

    /// How many request tables hold the block's page of a group: the page's references.
    pub fn references(&self, id: BlockId, group: usize) -> usize {
        match &self.state {
            Some(state) => match state.block(id) {
                Some(block) => state.references(id, block.depth, group),
                None => 0,
            },
            None => 0,
        }
    }
}

} // verus!
