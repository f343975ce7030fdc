//! The core: a state behind its invariant, and the operations that policy may call in any order with any arguments.

use crate::block::Block;
use crate::error::CoreError;
use crate::ids::{BlockId, RequestId, Token};
use crate::ops::commit::Record;
use crate::plan::{Select, StepPlan};
use crate::program::Program;
use crate::request::Request;
use crate::seam::{Device, Sampler};
use crate::state::State;
use vstd::prelude::*;

verus! {

/// Pages, requests, blocks and the one step over a device. Each operation is `Ok` exactly when it is legal; on `Err`
/// nothing has changed, except that a step whose device failed is abandoned.
pub struct Core<D: Device, S: Sampler<Logits = D::Logits>> {
    state: State<D, S>,
}

/// Operations.
impl<D: Device, S: Sampler<Logits = D::Logits>> Core<D, S> {
    /// A core with no request. Checks the program and clears the device's cache.
    pub fn new(device: D, sampler: S, program: Program) -> Result<Self, CoreError> {
        match State::new(device, sampler, program) {
            Ok(state) => Ok(Core { state }),
            Err(error) => Err(error),
        }
    }

    /// Takes in a request: a prompt of at least one token that leaves room for one more, the tenant's salt (requests of
    /// different salts never share a block) and the sampler's initial state.
    pub fn admit(&mut self, prompt: Vec<Token>, salt: u64, state: S::State) -> Result<RequestId, CoreError> {
        self.state.admit(prompt, salt, state)
    }

    /// Attaches a published block as the next page of the request's prefix, instead of computing it. The block must
    /// continue the request's chain: same parent, same depth, same tokens. At least one position stays to compute.
    pub fn attach(&mut self, request: RequestId, block: BlockId) -> Result<(), CoreError> {
        self.state.attach(request, block)
    }

    /// Appends a private page to the request's table of a group.
    pub fn take_page(&mut self, request: RequestId, group: usize) -> Result<(), CoreError> {
        self.state.take_page(request, group)
    }

    /// Lets go of the request's pages wholly behind the group's window of its next position; how many they were. Own
    /// pages become free, blocks' pages stay registered.
    pub fn release_behind(&mut self, request: RequestId, group: usize) -> Result<usize, CoreError> {
        self.state.release_behind(request, group)
    }

    /// Publishes the request's next full cached page as an immutable block. None if there is none yet.
    pub fn publish(&mut self, request: RequestId) -> Result<Option<BlockId>, CoreError> {
        self.state.publish(request)
    }

    /// Drops a block that no request's table reads, and frees its pages.
    pub fn evict(&mut self, block: BlockId) -> Result<(), CoreError> {
        self.state.evict(block)
    }

    /// Frees a block's page of one group, if no request's table reads it; the block stays for the other groups.
    pub fn evict_page(&mut self, block: BlockId, group: usize) -> Result<(), CoreError> {
        self.state.evict_page(block, group)
    }

    /// Lets go of all pages of a request: nothing of it is cached. Its history and sampler state stay.
    pub fn preempt(&mut self, request: RequestId) -> Result<(), CoreError> {
        self.state.preempt(request)
    }

    /// Forgets a request that is not complete.
    pub fn abort(&mut self, request: RequestId) -> Result<(), CoreError> {
        self.state.abort(request)
    }

    /// Forgets a complete request: its sampler ended it, or its history fills the context.
    pub fn finish(&mut self, request: RequestId) -> Result<(), CoreError> {
        self.state.finish(request)
    }

    /// Begins a step.
    pub fn plan_begin(&mut self) -> Result<(), CoreError> {
        self.state.plan_begin()
    }

    /// Puts rows of a request into the step: `rows` tokens of its history from its first uncached position on, then
    /// the drafts. Drafts are allowed where the rows reach the end of the history. A request may join a step once; the
    /// pages that the rows read and write must be there.
    pub fn plan_rows(&mut self, request: RequestId, rows: usize, drafts: &[Token], select: Select) -> Result<(), CoreError> {
        self.state.plan_rows(request, rows, drafts, select)
    }

    /// Abandons the step, run or not: nothing of it is cached or sampled.
    pub fn plan_cancel(&mut self) -> Result<(), CoreError> {
        self.state.plan_cancel()
    }

    /// Runs the step on the device. If the device fails, the step is abandoned; if its cache is lost too, the core
    /// refuses everything after.
    pub fn run(&mut self) -> Result<(), CoreError> {
        self.state.run()
    }

    /// Ends the step: samples for every request whose rows reached the end of its history, and on through the drafts
    /// that came true. The records of one request are in order and together.
    pub fn commit(&mut self) -> Result<Vec<Record>, CoreError> {
        self.state.commit()
    }
}

/// Views, for policy.
impl<D: Device, S: Sampler<Logits = D::Logits>> Core<D, S> {
    /// The device: read a record's logits from it.
    pub fn device(&self) -> &D {
        &self.state.device
    }

    pub fn sampler(&self) -> &S {
        &self.state.sampler
    }

    pub fn program(&self) -> &Program {
        &self.state.program
    }

    /// The step in flight, empty when there is none.
    pub fn plan(&self) -> &StepPlan {
        &self.state.plan
    }

    /// Whether the device has failed for good.
    pub fn poisoned(&self) -> bool {
        self.state.poisoned
    }

    /// Free pages of a group; 0 if there is no such group.
    pub fn free_pages(&self, group: usize) -> usize {
        if group < self.state.pools.len() { self.state.pools[group].free.len() } else { 0 }
    }

    /// All pages of a group; 0 if there is no such group.
    pub fn pages(&self, group: usize) -> usize {
        if group < self.state.pools.len() { self.state.pools[group].pages.len() } else { 0 }
    }

    /// A live request.
    pub fn request(&self, id: RequestId) -> Option<&Request<S::State>> {
        self.state.request(id)
    }

    /// Whether nothing is left to emit: `finish` is legal once the request is in no step.
    pub fn complete(&self, id: RequestId) -> bool {
        match self.state.request(id) {
            Some(request) => request.complete(self.state.program.context),
            None => false,
        }
    }

    /// A published block.
    pub fn block(&self, id: BlockId) -> Option<&Block> {
        self.state.block(id)
    }

    /// How many request tables hold the block's page of a group: the page's references.
    pub fn references(&self, id: BlockId, group: usize) -> usize {
        match self.state.block(id) {
            Some(block) => self.state.references(id, block.depth, group),
            None => 0,
        }
    }
}

} // verus!
