//! The views for policy: the device, the step, requests, blocks and pages, and the rows of logits of records. Each view's
//! contract defines its result.

use super::Core;
use crate::block::Block;
use crate::ids::{BlockId, RequestId, Token};
use crate::invariant::*;
use crate::next::*;
use crate::ops::commit::*;
use crate::pages::Pool;
use crate::plan::{Reads, StepPlan};
use crate::program::Program;
use crate::proof::trace::*;
use crate::request::Request;
use crate::seam::*;
use crate::spec::*;
use crate::state::*;
use vstd::prelude::*;

verus! {

/// Views, for policy.
impl<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>> Core<D, S> {
    /// The row of logits that a record's token was chosen from: the row at the record's position in its request's view.
    /// None if the row was not brought to the host, or if a step has run since.
    pub fn row(&self, record: &Record) -> (row: Option<&D::Logits>)
        ensures
            row is Some <==> self.holds(*record),
            row matches Some(row) ==> {
                let view = views(self.log())[record.request.serial];
                &&& views(self.log()).contains_key(record.request.serial)
                &&& 0 <= record.position - view.prompt.len() < view.entries.len()
                &&& row == D::logits_of(view.entries[record.position - view.prompt.len()].logits)
            },
    {
        proof { use_type_invariant(&*self); }
        if record.index >= self.records.len() {
            return None;
        }
        let kept = &self.records[record.index];
        if !kept.whole || kept.request.serial != record.request.serial || kept.position != record.position {
            return None;
        }
        proof { assert(record_ok(self.world(), self.seen@, self.device.logits_rows(), self.device.brought(), self.records@[record.index as int])); }
        Some(self.device.logits(kept.selected))
    }

    /// The `selected`-th selected row of a sequence of the step, once the device has run it: the cold-forward row of the
    /// request's history and drafts at that position. None if it was not brought to the host.
    pub fn step_row(&self, sequence: usize, selected: usize) -> (row: Option<&D::Logits>)
        ensures
            row is Some <==> self.step_shows(sequence as int, selected as int),
            row matches Some(row) ==> row == D::logits_of(self.step_logits(sequence as int, selected as int)),
    {
        proof { use_type_invariant(&*self); }
        let state = match &self.state {
            Some(state) => state,
            None => return None,
        };
        match state.phase {
            Phase::Ran => {},
            _ => return None,
        }
        if sequence >= state.plan.sequences.len() {
            return None;
        }
        let s = &state.plan.sequences[sequence];
        if !s.whole || selected >= s.selected {
            return None;
        }
        proof {
            theorem_step(*self, sequence as int, selected as int);
            lemma_brought(self.fixed, *state, sequence as int, selected as int, Reads::Row);
        }
        Some(self.device.logits(s.first_selected + selected))
    }

    /// The device that runs every step.
    pub fn device(&self) -> (device: &D)
        ensures *device == self.spec_device(),
    {
        &self.device
    }

    /// The sampler that draws every token.
    pub fn sampler(&self) -> (sampler: &S)
        ensures *sampler == self.spec_sampler(),
    {
        &self.fixed.sampler
    }

    /// The forward pass that every step runs.
    pub fn program(&self) -> (program: &Program)
        ensures *program == self.world().program,
    {
        &self.fixed.program
    }

    /// The step in flight, empty when there is none.
    pub fn plan(&self) -> (plan: &StepPlan)
        ensures self.shows_plan(*plan),
    {
        proof { use_type_invariant(&*self); }
        match &self.state {
            Some(state) => &state.plan,
            None => &self.idle,
        }
    }

    /// Whether the core has lost its state (the device lost its cache): every operation is refused.
    pub fn poisoned(&self) -> (yes: bool)
        ensures yes <==> self.spec_state() is None,
    {
        self.state.is_none()
    }

    /// Free pages of a group; 0 if there is no such group.
    pub fn free_pages(&self, group: usize) -> (pages: usize)
        ensures pages == self.spec_free(group as int),
    {
        match self.pool(group) {
            Some(pool) => pool.free.len(),
            None => 0,
        }
    }

    /// All pages of a group; 0 if there is no such group.
    pub fn pages(&self, group: usize) -> (pages: usize)
        ensures pages == self.spec_pages(group as int),
    {
        match self.pool(group) {
            Some(pool) => pool.pages.len(),
            None => 0,
        }
    }

    fn pool(&self, group: usize) -> (pool: Option<&Pool>)
        ensures
            pool is Some <==> self.spec_pool(group as int) is Some,
            pool matches Some(pool) ==> *pool == self.spec_pool(group as int)->0,
    {
        match &self.state {
            Some(state) => if group < state.pools.len() { Some(&state.pools[group]) } else { None },
            None => None,
        }
    }

    /// A live request; None if the identity is unknown.
    pub fn request(&self, id: RequestId) -> (request: Option<&Request<S::State>>)
        ensures
            request is Some <==> self.spec_request(id) is Some,
            request matches Some(request) ==> *request == self.spec_request(id)->0,
    {
        match &self.state {
            Some(state) => state.request(id),
            None => None,
        }
    }

    /// Whether nothing is left to emit: `finish` is legal once the request is in no step.
    pub fn complete(&self, id: RequestId) -> (yes: bool)
        ensures yes <==> self.spec_complete(id),
    {
        match self.request(id) {
            Some(request) => request.complete(self.fixed.program.context),
            None => false,
        }
    }

    /// A published block; None if the identity is unknown.
    pub fn block(&self, id: BlockId) -> (block: Option<&Block>)
        ensures
            block is Some <==> self.spec_block(id) is Some,
            block matches Some(block) ==> *block == self.spec_block(id)->0,
    {
        match &self.state {
            Some(state) => state.block(id),
            None => None,
        }
    }

    /// The references of the block's page of a group: the number of request tables that hold it.
    pub fn references(&self, id: BlockId, group: usize) -> (count: usize)
        ensures count == self.spec_references(id, group as int),
    {
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
