//! The state of the core. Only `ops/` changes it; `core.rs` keeps it behind a type invariant.

use crate::block::Block;
use crate::effects::*;
use crate::error::CoreError;
use crate::ids::{BlockId, NO_PAGE, PAGE, RequestId, Token};
use crate::invariant::*;
use crate::pages::Page;
use crate::pages::Pool;
use crate::plan::{Reads, StepPlan};
use crate::program::*;
use crate::proof::canonical::*;
use crate::proof::forward::*;
use crate::proof::frame::*;
use crate::proof::reference::*;
use crate::request::Request;
use crate::seam::*;
use crate::spec::*;
use crate::views::*;
use vstd::prelude::*;

verus! {

/// The phase of the one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// No step.
    Idle,
    /// Rows are being added.
    Planning,
    /// The device has run the step, and holds its logits.
    Ran,
}

/// What the device is, for proofs.
pub ghost struct DeviceView {
    pub w: Kernels,
    pub limits: Limits,
    pub cache: spec_fn(u32, int, int) -> Bits,
    pub logits: Seq<Bits>,
    pub brought: spec_fn(int, Reads) -> bool,
}

pub open(crate) spec fn device_view<D: Device>(d: D) -> DeviceView {
    DeviceView { w: d.w(), limits: d.limits(), cache: d.cache(), logits: d.logits_rows(), brought: d.brought() }
}

/// What never changes once the core is built.
pub struct Fixed<S: Sampler> {
    pub(crate) program: Program,
    pub(crate) sampler: S,
    pub(crate) rows_max: usize,
    pub(crate) selected_max: usize,
    /// The sampler's choice for a state and the contents of a row of logits.
    pub(crate) choice: Ghost<spec_fn(Bits, Bits) -> (Token, Bits, bool)>,
}

impl<S: Sampler> Fixed<S> {
    /// The program has passed its check and the device's limits fit.
    pub open(crate) spec fn ok(self, dev: DeviceView) -> bool {
        &&& self.program.wf()
        &&& self.sampler.vocab_limit() == self.program.vocab
        &&& self.rows_max == dev.limits.rows && self.selected_max == dev.limits.selected
        &&& self.rows_max <= u32::MAX && self.selected_max <= u32::MAX
        &&& all_finite(dev.w, dev.cache)
    }
}

pub struct State<S: Sampler> {
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
    pub(crate) dev: Ghost<DeviceView>,
    /// What clients have seen.
    pub(crate) log: Ghost<Seq<Event<Bits, Bits>>>,
    /// The prefix that each block ever published stands for.
    pub(crate) prefixes: Ghost<Map<u64, Seq<Token>>>,
    /// And its tenant.
    pub(crate) salts: Ghost<Map<u64, u64>>,
}

impl<S: Sampler> State<S> {
    /// What a core may be built from.
    pub open(crate) spec fn legal_new(fixed: Fixed<S>, limits: Limits) -> bool {
        &&& fixed.program.wf()
        &&& fixed.sampler.vocab_limit() == fixed.program.vocab
        &&& fixed.rows_max <= u32::MAX && fixed.selected_max <= u32::MAX
        &&& forall|g: int| 0 <= g < fixed.program.groups@.len() ==> 0 < #[trigger] (limits.pages)(g) <= COUNT_MAX / PAGE
    }

    /// No request, no block, all pages free, the device's cache cleared.
    pub(crate) fn new<D: Device>(fixed: &Fixed<S>, device: &mut D) -> (out: Result<Self, CoreError>)
        requires
            fixed.rows_max == old(device).limits().rows, fixed.selected_max == old(device).limits().selected,
        ensures
            final(device).w() == old(device).w(), final(device).limits() == old(device).limits(),
            out is Ok <==> Self::legal_new(*fixed, old(device).limits()),
            out matches Ok(state) ==> {
                &&& state.inv(*fixed) && state.dev@ == device_view(*final(device)) && state.log@.len() == 0
                &&& state.phase is Idle && state.requests@.len() == 0 && state.blocks@.len() == 0 && state.next_request == 0
                &&& state.pools@.len() == fixed.program.groups@.len()
                &&& forall|g: int| 0 <= g < state.pools@.len() ==> (#[trigger] state.pools@[g]).free@.len() == (old(device).limits().pages)(g)
                        && state.pools@[g].pages@.len() == (old(device).limits().pages)(g)
            },
    {
        if let Err(error) = fixed.program.check() {
            return Err(CoreError::Program { error });
        }
        let vocab = fixed.sampler.vocab();
        if vocab != fixed.program.vocab {
            return Err(CoreError::VocabularyMismatch { program: fixed.program.vocab, sampler: vocab });
        }
        if fixed.rows_max > u32::MAX as usize || fixed.selected_max > u32::MAX as usize {
            return Err(CoreError::DeviceTooLarge);
        }
        let mut pools: Vec<Pool> = Vec::new();
        let mut group: usize = 0;
        while group < fixed.program.groups.len()
            invariant
                group <= fixed.program.groups@.len(), pools@.len() == group, *device == *old(device),
                forall|g: int| 0 <= g < group ==> (#[trigger] pools@[g]).wf() && pools@[g].pages@.len() == (device.limits().pages)(g)
                    && pools@[g].free@.len() == pools@[g].pages@.len(),
                forall|g: int, p: int| 0 <= g < group && 0 <= p < pools@[g].pages@.len() ==> (#[trigger] pools@[g].pages@[p]) is Free,
                forall|g: int| 0 <= g < group ==> 0 < #[trigger] (device.limits().pages)(g) <= COUNT_MAX / PAGE,
            decreases fixed.program.groups.len() - group,
        {
            let pages = device.pages(group);
            if pages == 0 || pages > COUNT_MAX / PAGE {
                return Err(CoreError::DeviceTooLarge);
            }
            pools.push(Pool::new(pages));
            group += 1;
        }
        device.clear();
        let state = State {
            pools,
            requests: Vec::new(),
            request_slots: Vec::new(),
            next_request: 0,
            blocks: Vec::new(),
            block_slots: Vec::new(),
            next_block: 0,
            phase: Phase::Idle,
            plan: StepPlan::empty(),
            dev: Ghost(device_view(*device)),
            log: Ghost(Seq::empty()),
            prefixes: Ghost(Map::empty()),
            salts: Ghost(Map::empty()),
        };
        proof {
            reveal(State::inv_shape);
            reveal(State::inv_blocks);
            reveal(State::inv_tables);
            reveal(State::inv_chains);
            reveal(State::inv_block_pages);
            reveal(State::inv_owners);
            reveal(State::inv_kv);
            reveal(State::inv_log);
            assert(views(state.log@) =~= Map::empty());
            assert forall|g: int| 0 <= g < state.pools@.len() implies (#[trigger] state.pools@[g]).wf()
                && state.pools@[g].pages@.len() == (state.dev@.limits.pages)(g) && state.pools@[g].pages@.len() <= COUNT_MAX / PAGE by {
                let n = (old(device).limits().pages)(g);
            }
            lemma_idle(*fixed, state);
        }
        Ok(state)
    }

    /// The request of this identity.
    pub(crate) fn request(&self, id: RequestId) -> (out: Option<&Request<S::State>>)
        ensures
            out is Some <==> self.known(id),
            out matches Some(r) ==> *r == self.requests@[id.slot as int]->0,
    {
        if id.slot >= self.requests.len() {
            return None;
        }
        match &self.requests[id.slot] {
            Some(request) => if request.serial == id.serial { Some(request) } else { None },
            None => None,
        }
    }

    /// The block of this identity.
    pub(crate) fn block(&self, id: BlockId) -> (out: Option<&Block>)
        ensures
            out is Some <==> self.published(id),
            out matches Some(b) ==> *b == self.blocks@[id.slot as int]->0,
    {
        if id.slot >= self.blocks.len() {
            return None;
        }
        match &self.blocks[id.slot] {
            Some(block) => if block.serial == id.serial { Some(block) } else { None },
            None => None,
        }
    }

    /// The request of this identity, if it may change now: it is not in the step.
    pub(crate) fn mutable(&self, id: RequestId) -> (out: Result<&Request<S::State>, CoreError>)
        ensures
            out is Ok <==> self.free_to_change(id),
            out matches Ok(r) ==> *r == self.requests@[id.slot as int]->0,
    {
        match self.request(id) {
            None => Err(CoreError::UnknownRequest { request: id }),
            Some(request) => if request.planned.is_some() {
                Err(CoreError::RequestInStep { request: id })
            } else {
                Ok(request)
            },
        }
    }

    /// Whether a request's table has the block's page in this group.
    pub(crate) fn page_in_use(&self, id: BlockId, depth: usize, group: usize) -> (yes: bool)
        ensures yes == self.in_use(id, depth as int, group as int),
    {
        let mut slot: usize = 0;
        while slot < self.requests.len()
            invariant
                slot <= self.requests@.len(),
                forall|s: int| s < slot && live(self.requests@, s)
                    ==> !(#[trigger] self.requests@[s])->0.holds_page(id, depth as int, group as int),
            decreases self.requests.len() - slot,
        {
            if let Some(request) = &self.requests[slot] {
                if request.holds(id, depth, group) {
                    proof { assert(self.requests@[slot as int]->0.holds_page(id, depth as int, group as int)); }
                    return true;
                }
            }
            slot += 1;
        }
        false
    }

    /// How many requests' tables have the block's page in this group.
    pub(crate) fn references(&self, id: BlockId, depth: usize, group: usize) -> (count: usize)
        ensures count == readers(self.requests@, id, depth as int, group as int, self.requests@.len() as int),
    {
        let mut count: usize = 0;
        let mut slot: usize = 0;
        while slot < self.requests.len()
            invariant
                count <= slot <= self.requests@.len(), count == readers(self.requests@, id, depth as int, group as int, slot as int),
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

    /// An error if a token is outside the vocabulary.
    pub(crate) fn check_tokens(&self, fixed: &Fixed<S>, tokens: &[Token]) -> (out: Result<(), CoreError>)
        ensures out is Ok <==> tokens_in(tokens@, fixed.program.vocab),
    {
        proof { reveal(tokens_in); }
        let mut i: usize = 0;
        while i < tokens.len()
            invariant
                i <= tokens@.len(),
                forall|j: int| 0 <= j < i ==> #[trigger] tokens@[j] < fixed.program.vocab,
            decreases tokens.len() - i,
        {
            if tokens[i] >= fixed.program.vocab {
                proof { reveal(tokens_in); }
                return Err(CoreError::TokenOutOfRange { token: tokens[i], vocab: fixed.program.vocab });
            }
            i += 1;
        }
        Ok(())
    }

    /// A slot of `requests` that holds none.
    pub(crate) fn vacant_request(&mut self) -> (slot: usize)
        ensures
            slot < final(self).requests@.len(), final(self).requests@[slot as int] is None,
            others_same(old(self).requests@, final(self).requests@, slot as int), !live(old(self).requests@, slot as int),
            *final(self) == (State { requests: final(self).requests, request_slots: final(self).request_slots, ..*old(self) }),
    {
        if let Some(slot) = self.request_slots.pop() {
            if slot < self.requests.len() && self.requests[slot].is_none() {
                return slot;
            }
        }
        self.requests.push(None);
        self.requests.len() - 1
    }

    /// A slot of `blocks` that holds none.
    pub(crate) fn vacant_block(&mut self) -> (slot: usize)
        ensures
            slot < final(self).blocks@.len(), final(self).blocks@[slot as int] is None, !registered(old(self).blocks@, slot as int),
            forall|x: int| #![trigger final(self).blocks@[x]] #![trigger registered(final(self).blocks@, x)]
                (registered(old(self).blocks@, x) <==> registered(final(self).blocks@, x))
                && (registered(old(self).blocks@, x) ==> final(self).blocks@[x] == old(self).blocks@[x]),
            forall|x: int| #[trigger] registered(old(self).blocks@, x) ==> registered(final(self).blocks@, x),
            *final(self) == (State { blocks: final(self).blocks, block_slots: final(self).block_slots, ..*old(self) }),
    {
        if let Some(slot) = self.block_slots.pop() {
            if slot < self.blocks.len() && self.blocks[slot].is_none() {
                return slot;
            }
        }
        self.blocks.push(None);
        self.blocks.len() - 1
    }

}

} // verus!
