//! The state of the core. Only `ops/` changes it; `core.rs` keeps it behind a type invariant.

use crate::block::Block;
use crate::error::CoreError;
use crate::ids::{BlockId, NO_PAGE, PAGE, RequestId, Token};
use crate::pages::Pool;
use crate::plan::StepPlan;
use crate::program::Program;
use crate::request::Request;
use crate::seam::{Device, Sampler};
use vstd::prelude::*;

verus! {

/// Where the one step is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// No step.
    Idle,
    /// Rows are being put in.
    Planning,
    /// The device has run it; its logits are there.
    Ran,
}

pub struct State<D: Device, S: Sampler<Logits = D::Logits>> {
    pub(crate) device: D,
    pub(crate) sampler: S,
    pub(crate) program: Program,
    pub(crate) rows_max: usize,
    pub(crate) selected_max: usize,
    /// One per group.
    pub(crate) pools: Vec<Pool>,
    pub(crate) requests: Vec<Option<Request<S::State>>>,
    pub(crate) request_slots: Vec<usize>,
    pub(crate) next_request: u64,
    pub(crate) blocks: Vec<Option<Block>>,
    pub(crate) block_slots: Vec<usize>,
    pub(crate) next_block: u64,
    pub(crate) phase: Phase,
    pub(crate) plan: StepPlan,
    /// The device failed and may have changed anything.
    pub(crate) poisoned: bool,
}

impl<D: Device, S: Sampler<Logits = D::Logits>> State<D, S> {
    pub(crate) fn new(mut device: D, sampler: S, program: Program) -> Result<Self, CoreError> {
        if let Err(error) = program.check() {
            return Err(CoreError::Program { error });
        }
        if sampler.vocab() != program.vocab {
            return Err(CoreError::VocabularyMismatch { program: program.vocab, sampler: sampler.vocab() });
        }
        let rows_max = device.rows_max();
        let selected_max = device.selected_max();
        if rows_max > u32::MAX as usize || selected_max > u32::MAX as usize {
            return Err(CoreError::DeviceTooLarge);
        }
        let mut pools: Vec<Pool> = Vec::new();
        let mut group: usize = 0;
        while group < program.groups.len()
            decreases program.groups.len() - group,
        {
            let pages = device.pages(group);
            if pages == 0 || pages > 0x7fff_ffff / PAGE {
                return Err(CoreError::DeviceTooLarge);
            }
            pools.push(Pool::new(pages));
            group += 1;
        }
        device.clear();
        Ok(State {
            device,
            sampler,
            program,
            rows_max,
            selected_max,
            pools,
            requests: Vec::new(),
            request_slots: Vec::new(),
            next_request: 0,
            blocks: Vec::new(),
            block_slots: Vec::new(),
            next_block: 0,
            phase: Phase::Idle,
            plan: StepPlan::empty(),
            poisoned: false,
        })
    }

    /// The request of this identity.
    pub(crate) fn request(&self, id: RequestId) -> Option<&Request<S::State>> {
        if id.slot >= self.requests.len() {
            return None;
        }
        match &self.requests[id.slot] {
            Some(request) => if request.serial == id.serial { Some(request) } else { None },
            None => None,
        }
    }

    /// The block of this identity.
    pub(crate) fn block(&self, id: BlockId) -> Option<&Block> {
        if id.slot >= self.blocks.len() {
            return None;
        }
        match &self.blocks[id.slot] {
            Some(block) => if block.serial == id.serial { Some(block) } else { None },
            None => None,
        }
    }

    /// The request of this identity, if it may change now: the core is sound and the request is not in the step.
    pub(crate) fn mutable(&self, id: RequestId) -> Result<&Request<S::State>, CoreError> {
        if self.poisoned {
            return Err(CoreError::Poisoned);
        }
        match self.request(id) {
            None => Err(CoreError::UnknownRequest { request: id }),
            Some(request) => if request.planned.is_some() {
                Err(CoreError::RequestInStep { request: id })
            } else {
                Ok(request)
            },
        }
    }

    /// An error if a token is outside the vocabulary.
    pub(crate) fn check_tokens(&self, tokens: &[Token]) -> Result<(), CoreError> {
        let mut i: usize = 0;
        while i < tokens.len()
            decreases tokens.len() - i,
        {
            if tokens[i] >= self.program.vocab {
                return Err(CoreError::TokenOutOfRange { token: tokens[i], vocab: self.program.vocab });
            }
            i += 1;
        }
        Ok(())
    }

    /// Whether a request's table has the block's page in this group.
    pub(crate) fn page_in_use(&self, id: BlockId, depth: usize, group: usize) -> bool {
        let mut slot: usize = 0;
        while slot < self.requests.len()
            decreases self.requests.len() - slot,
        {
            if let Some(request) = &self.requests[slot] {
                if request.holds(id, depth, group) {
                    return true;
                }
            }
            slot += 1;
        }
        false
    }

    /// How many requests' tables have the block's page in this group.
    pub(crate) fn references(&self, id: BlockId, depth: usize, group: usize) -> usize {
        let mut count: usize = 0;
        let mut slot: usize = 0;
        while slot < self.requests.len()
            decreases self.requests.len() - slot,
        {
            if let Some(request) = &self.requests[slot] {
                if request.holds(id, depth, group) {
                    count += 1;
                }
            }
            slot += 1;
        }
        count
    }

    /// A slot of `requests` that holds none.
    pub(crate) fn vacant_request(&mut self) -> usize {
        if let Some(slot) = self.request_slots.pop() {
            if slot < self.requests.len() && self.requests[slot].is_none() {
                return slot;
            }
        }
        self.requests.push(None);
        self.requests.len() - 1
    }

    /// A slot of `blocks` that holds none.
    pub(crate) fn vacant_block(&mut self) -> usize {
        if let Some(slot) = self.block_slots.pop() {
            if slot < self.blocks.len() && self.blocks[slot].is_none() {
                return slot;
            }
        }
        self.blocks.push(None);
        self.blocks.len() - 1
    }

    /// Frees the pages of a table that are the request's own: those from `from` on.
    pub(crate) fn release_own(&mut self, group: usize, table: &Vec<i32>, from: usize) {
        let mut i = from;
        while i < table.len()
            decreases table.len() - i,
        {
            if table[i] != NO_PAGE {
                self.pools[group].release(table[i] as usize);
            }
            i += 1;
        }
    }
}

} // verus!
