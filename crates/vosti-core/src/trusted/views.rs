//! The words in which the promise speaks of a core: which requests and blocks there are, what they have, and what each view shows.
//! `legal.rs`, `effects.rs` and `next.rs` are written in them, and the contracts of the core's views are.

use super::meaning::*;
use super::next::*;
use super::seam::*;
use crate::block::{Block, Parent};
use crate::core::Core;
use crate::ids::{BlockId, NO_PAGE, PAGE, RequestId, Token};
use crate::invariant::*;
use crate::ops::commit::Record;
use crate::pages::Pool;
use crate::plan::StepPlan;
use crate::program::*;
use crate::request::Request;
use crate::state::*;
use vstd::prelude::*;

verus! {

pub type Slots<T> = Seq<Option<Request<T>>>;

/// A request is live in this slot.
pub open(crate) spec fn live<T>(requests: Slots<T>, s: int) -> bool {
    0 <= s < requests.len() && requests[s] is Some
}

/// A block is registered in this slot.
pub open(crate) spec fn registered(blocks: Seq<Option<Block>>, b: int) -> bool {
    0 <= b < blocks.len() && blocks[b] is Some
}

/// Every token is in the vocabulary.
#[verifier::opaque]
pub open(crate) spec fn tokens_in(tokens: Seq<Token>, vocab: u32) -> bool {
    forall|i: int| 0 <= i < tokens.len() ==> #[trigger] tokens[i] < vocab
}

/// How many of the first n slots have a request whose table has the block's page in this group.
pub open(crate) spec fn readers<T>(requests: Slots<T>, id: BlockId, depth: int, group: int, n: int) -> nat
    decreases n,
{
    if n <= 0 {
        0
    } else {
        readers(requests, id, depth, group, n - 1) + if live(requests, n - 1) && requests[n - 1]->0.holds_page(id, depth, group) { 1nat } else { 0 }
    }
}

impl<T> Request<T> {
    /// What a block must name as its parent to come next in this request's chain.
    pub open(crate) spec fn chain_parent(self) -> Parent {
        if self.chain@.len() == 0 {
            Parent::Root { salt: self.salt }
        } else {
            Parent::Block { serial: self.chain@.last().serial }
        }
    }

    /// Nothing is left to emit.
    pub open(crate) spec fn is_complete(self, context: u32) -> bool {
        self.done || self.history@.len() >= context
    }

    /// The first logical page that positions from `cached` on may read in a group.
    pub open(crate) spec fn window_page(self, decl: GroupDecl) -> int {
        window_lo(decl.window, self.cached as int) / PAGE as int
    }

    /// The table of a group has this logical page.
    pub open(crate) spec fn has_page(self, group: int, page: int) -> bool {
        0 <= page < self.tables@[group]@.len() && self.tables@[group]@[page] != NO_PAGE
    }

    /// Every logical page from the window's first to the one of position `end - 1` is there in a group.
    pub open(crate) spec fn covers(self, group: int, decl: GroupDecl, end: int) -> bool {
        forall|page: int| self.window_page(decl) <= page <= (end - 1) / PAGE as int ==> #[trigger] self.has_page(group, page)
    }

    /// The table of a group has the page of this index, and `block` stands at this place of the chain.
    pub open(crate) spec fn holds_page(self, block: BlockId, depth: int, group: int) -> bool {
        0 <= depth < self.chain@.len() && self.chain@[depth] == block && 0 <= group < self.tables@.len() && self.has_page(group, depth)
    }
}

impl<S: Sampler> State<S> {
    /// A live request has this identity.
    pub open(crate) spec fn known(self, id: RequestId) -> bool {
        live(self.requests@, id.slot as int) && self.requests@[id.slot as int]->0.serial == id.serial
    }

    /// A live request has this identity, and it is not in the step.
    pub open(crate) spec fn free_to_change(self, id: RequestId) -> bool {
        self.known(id) && self.requests@[id.slot as int]->0.planned is None
    }

    /// A registered block has this identity.
    pub open(crate) spec fn published(self, id: BlockId) -> bool {
        registered(self.blocks@, id.slot as int) && self.blocks@[id.slot as int]->0.serial == id.serial
    }

    /// The history of sequence q, its drafts included.
    pub open(crate) spec fn seq_history(self, q: int) -> Seq<Token> {
        let s = self.plan.sequences@[q];
        let end = s.first_row + s.rows;
        self.requests@[s.request.slot as int]->0.history@ + self.plan.tokens@.subrange(end - s.drafts, end)
    }

    /// A request's table has the block's page in this group.
    pub open(crate) spec fn in_use(self, id: BlockId, depth: int, group: int) -> bool {
        exists|s: int| live(self.requests@, s) && (#[trigger] self.requests@[s])->0.holds_page(id, depth, group)
    }
}

impl<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>> Core<D, S> {
    /// The row of logits of this record is still there, on the host.
    pub open(crate) spec fn holds(self, r: Record) -> bool {
        &&& r.index < self.held().len() && self.held()[r.index as int].whole
        &&& self.held()[r.index as int].request.serial == r.request.serial && self.held()[r.index as int].position == r.position
    }

    pub open(crate) spec fn spec_sampler(self) -> S {
        self.spec_fixed().sampler
    }

    /// It is the plan of the step in flight; an empty one if there is no state.
    pub open(crate) spec fn shows_plan(self, plan: StepPlan) -> bool {
        match self.spec_state() { Some(state) => plan == state.plan, None => plan.sequences@.len() == 0 }
    }

    /// The live request of this identity.
    pub open(crate) spec fn spec_request(self, id: RequestId) -> Option<Request<S::State>> {
        match self.spec_state() {
            Some(state) => if state.known(id) { state.requests@[id.slot as int] } else { None },
            None => None,
        }
    }

    /// The registered block of this identity.
    pub open(crate) spec fn spec_block(self, id: BlockId) -> Option<Block> {
        match self.spec_state() {
            Some(state) => if state.published(id) { state.blocks@[id.slot as int] } else { None },
            None => None,
        }
    }

    /// The pages of a group.
    pub open(crate) spec fn spec_pool(self, group: int) -> Option<Pool> {
        match self.spec_state() {
            Some(state) => if 0 <= group < state.pools@.len() { Some(state.pools@[group]) } else { None },
            None => None,
        }
    }

    pub open(crate) spec fn spec_free(self, group: int) -> nat {
        match self.spec_pool(group) { Some(pool) => pool.free@.len(), None => 0 }
    }

    pub open(crate) spec fn spec_pages(self, group: int) -> nat {
        match self.spec_pool(group) { Some(pool) => pool.pages@.len(), None => 0 }
    }

    /// The request is live, and nothing of it is left to emit.
    pub open(crate) spec fn spec_complete(self, id: RequestId) -> bool {
        self.spec_request(id) is Some && self.spec_request(id)->0.is_complete(self.world().program.context)
    }

    /// How many requests' tables have the block's page of a group.
    pub open(crate) spec fn spec_references(self, id: BlockId, group: int) -> nat {
        match self.spec_block(id) {
            Some(block) => readers(self.spec_state()->0.requests@, id, block.depth as int, group, self.spec_state()->0.requests@.len() as int),
            None => 0,
        }
    }

    /// The step has run, and has this selected row.
    pub open(crate) spec fn has_run(self, q: int, i: int) -> bool {
        self.spec_state() matches Some(s) && s.phase is Ran && 0 <= q < s.plan.sequences@.len() && 0 <= i < s.plan.sequences@[q].selected
    }

    /// And it is on the host.
    pub open(crate) spec fn step_shows(self, q: int, i: int) -> bool {
        self.has_run(q, i) && self.spec_state()->0.plan.sequences@[q].whole
    }

    /// That row's position in its request's history.
    pub open(crate) spec fn step_position(self, q: int, i: int) -> int {
        let sequence = self.spec_state()->0.plan.sequences@[q];
        sequence.position(sequence.unselected() + i)
    }

    /// The cold-forward row of logits at that row's position.
    pub open(crate) spec fn step_logits(self, q: int, i: int) -> Bits {
        canon_logits(self.world().w, self.world().program, self.spec_state()->0.seq_history(q), self.step_position(q, i))
    }
}

} // verus!
