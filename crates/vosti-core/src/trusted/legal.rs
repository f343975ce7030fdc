//! When each operation is legal, one predicate an operation: it is `Ok` exactly then, and changes nothing otherwise. The
//! predicates speak of what policy sees: requests, blocks, free pages, the step. Read next: `effects.rs` (what each does).

use super::seam::*;
use super::views::*;
use crate::block::{Block, Parent};
use crate::core::Core;
use crate::error::CoreError;
use crate::ids::{BlockId, NO_PAGE, PAGE, RequestId, Token};
use crate::invariant::*;
use crate::pages::{Page, Pool};
use crate::plan::{Reads, Select, SeqPlan, StepPlan};
use crate::program::*;
use crate::request::Request;
use crate::state::*;
use vstd::prelude::*;

verus! {

/// What a core may be built from.
pub open(crate) spec fn legal_new<D: Device, S: Sampler>(device: D, sampler: S, program: Program) -> bool {
    let limits = device.limits();
    &&& program.wf()
    &&& sampler.vocab_limit() == program.vocab
    &&& limits.rows <= u32::MAX && limits.selected <= u32::MAX
    &&& forall|g: int| 0 <= g < program.groups@.len() ==> 0 < #[trigger] (limits.pages)(g) <= COUNT_MAX / PAGE
}

/// Pages that cover a context.
pub open(crate) spec fn context_pages(context: u32) -> int {
    (context - 1) / PAGE as int + 1
}

/// Everything that the request has cached came from its chain, and it has no page of its own.
pub open(crate) spec fn only_chained<T>(r: Request<T>) -> bool {
    &&& r.cached == r.chain@.len() * PAGE
    &&& forall|g: int| 0 <= g < r.tables@.len() ==> (#[trigger] r.tables@[g])@.len() == r.chain@.len()
}

/// How many rows of a sequence are selected.
pub open(crate) spec fn selected_rows(rows: usize, drafts: nat, left: int, select: Select) -> int {
    match select {
        Select::All => rows + drafts as int,
        Select::Last | Select::Shown => if rows == left { 1 + drafts as int } else { 0 },
    }
}

impl<S: Sampler> State<S> {
    /// The prompt has tokens, all in the vocabulary, and leaves room for one more; identities are left.
    pub open(crate) spec fn legal_admit(self, fixed: Fixed<S>, prompt: Seq<Token>) -> bool {
        &&& 0 < prompt.len() < fixed.program.context
        &&& tokens_in(prompt, fixed.program.vocab)
        &&& self.next_request < u64::MAX
    }

    /// The request is live, in no step, has no page of its own and nothing cached but its chain; the block is
    /// registered, continues the chain (depth, parent, tokens), and leaves a position to compute.
    pub open(crate) spec fn legal_attach(self, id: RequestId, block_id: BlockId) -> bool {
        let r = self.requests@[id.slot as int]->0;
        let b = self.blocks@[block_id.slot as int]->0;
        let depth = r.chain@.len();
        &&& self.free_to_change(id)
        &&& self.published(block_id)
        &&& only_chained(r)
        &&& (depth + 1) * PAGE < r.history@.len()
        &&& b.depth == depth
        &&& b.parent == r.chain_parent()
        &&& b.tokens@ == r.history@.subrange(depth * PAGE, (depth + 1) * PAGE)
    }

    /// The request is live and in no step, its table does not yet cover the context, and the group has a free page.
    pub open(crate) spec fn legal_take_page(self, fixed: Fixed<S>, id: RequestId, group: usize) -> bool {
        &&& self.free_to_change(id)
        &&& group < self.pools@.len()
        &&& self.requests@[id.slot as int]->0.tables@[group as int]@.len() < context_pages(fixed.program.context)
        &&& self.pools@[group as int].free@.len() > 0
    }

    /// The request is live and in no step, and the group exists.
    pub open(crate) spec fn legal_release_behind(self, id: RequestId, group: usize) -> bool {
        self.free_to_change(id) && group < self.pools@.len()
    }

    /// The request is live and in no step; if there is a full cached page to publish, identities are left.
    pub open(crate) spec fn legal_publish(self, id: RequestId) -> bool {
        self.free_to_change(id) && (self.publishable(id) ==> self.next_block < u64::MAX)
    }

    /// The page after the request's chain is full and cached.
    pub open(crate) spec fn publishable(self, id: RequestId) -> bool {
        let r = self.requests@[id.slot as int]->0;
        (r.chain@.len() + 1) * PAGE <= r.cached
    }

    /// The block is registered, and no request's table has a page of it.
    pub open(crate) spec fn legal_evict(self, id: BlockId) -> bool {
        &&& self.published(id)
        &&& forall|g: int| 0 <= g < self.pools@.len() ==> !#[trigger] self.in_use(id, self.blocks@[id.slot as int]->0.depth as int, g)
    }

    /// The block is registered and has a page in this group, which no request's table has.
    pub open(crate) spec fn legal_evict_page(self, id: BlockId, group: usize) -> bool {
        &&& self.published(id)
        &&& group < self.pools@.len()
        &&& self.blocks@[id.slot as int]->0.pages@[group as int] != NO_PAGE
        &&& !self.in_use(id, self.blocks@[id.slot as int]->0.depth as int, group as int)
    }

    /// The request is live and in no step.
    pub open(crate) spec fn legal_preempt(self, id: RequestId) -> bool {
        self.free_to_change(id)
    }

    /// The request is live and in no step.
    pub open(crate) spec fn legal_abort(self, id: RequestId) -> bool {
        self.free_to_change(id)
    }

    /// The request is live, in no step, and complete: its sampler ended it, or its history fills the context.
    pub open(crate) spec fn legal_finish(self, fixed: Fixed<S>, id: RequestId) -> bool {
        self.free_to_change(id) && self.requests@[id.slot as int]->0.is_complete(fixed.program.context)
    }

    /// No step is in flight.
    pub open(crate) spec fn legal_plan_begin(self) -> bool {
        self.phase is Idle
    }

    /// These rows may join the step.
    pub open(crate) spec fn legal_plan_rows(self, fixed: Fixed<S>, id: RequestId, rows: usize, drafts: Seq<Token>, select: Select) -> bool {
        let r = self.requests@[id.slot as int]->0;
        let left = r.history@.len() - r.cached;
        let total = rows + drafts.len();
        // A step is being planned, and the request is live, not in it, and not complete.
        &&& self.phase is Planning
        &&& self.free_to_change(id)
        &&& !r.is_complete(fixed.program.context)
        // Rows of the history, and drafts only after its last.
        &&& 1 <= rows <= left
        &&& drafts.len() > 0 ==> rows == left
        &&& r.history@.len() + drafts.len() < fixed.program.context
        &&& tokens_in(drafts, fixed.program.vocab)
        // The device has room.
        &&& self.plan.tokens@.len() + total <= fixed.rows_max
        &&& self.plan.selected@.len() + selected_rows(rows, drafts.len(), left, select) <= fixed.selected_max
        // Every page that the rows read or write is there.
        &&& forall|g: int| 0 <= g < self.pools@.len() ==> #[trigger] r.covers(g, fixed.program.groups@[g], r.cached + total)
    }

    /// A step is in flight, run or not.
    pub open(crate) spec fn legal_plan_cancel(self) -> bool {
        !(self.phase is Idle)
    }

    /// A step with rows has been planned and not run.
    pub open(crate) spec fn legal_run(self) -> bool {
        self.phase is Planning && self.plan.sequences@.len() > 0
    }

    /// The step in flight has been run.
    pub open(crate) spec fn legal_commit(self) -> bool {
        self.phase is Ran
    }
}

} // verus!
