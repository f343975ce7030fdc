//! What each operation does when it is legal, one predicate an operation, beside the `legal_*` predicates in `ops/` that say
//! when. Together they are `next` in `proof/trace.rs`: without them a core that plans nothing and commits nothing would keep
//! every promise. They speak of what policy sees: requests, blocks, free pages, the step.

use crate::block::{Block, Parent};
use crate::ids::{BlockId, NO_PAGE, PAGE, RequestId, Token};
use crate::invariant::*;
use crate::ops::pages::*;
use crate::pages::{Page, Pool};
use crate::plan::{Reads, Select, SeqPlan, StepPlan};
use crate::program::*;
use crate::proof::committing::*;
use crate::proof::frame::*;
use crate::proof::sharing::*;
use crate::proof::stepping::*;
use crate::request::Request;
use crate::seam::*;
use crate::spec::*;
use crate::state::*;
use vstd::prelude::*;

verus! {

/// The pages of the request in this slot are free, and every other page has the owner that it had.
pub open(crate) spec fn let_go(a: Seq<Pool>, b: Seq<Pool>, slot: int) -> bool {
    &&& b.len() == a.len()
    &&& forall|g: int| 0 <= g < b.len() ==> (#[trigger] b[g]).pages@.len() == a[g].pages@.len()
    &&& forall|g: int, p: int| 0 <= g < b.len() && 0 <= p < b[g].pages@.len() ==> if names_slot(a[g].pages@[p], slot) {
            (#[trigger] b[g].pages@[p]) is Free
        } else {
            b[g].pages@[p] == a[g].pages@[p] || (a[g].pages@[p] is Free && b[g].pages@[p] is Free)
        }
}

/// How many of the first n entries of a table hold a page.
pub open(crate) spec fn held(table: Seq<i32>, n: int) -> nat
    decreases n,
{
    if n <= 0 {
        0
    } else {
        held(table, n - 1) + if n <= table.len() && table[n - 1] != NO_PAGE { 1nat } else { 0 }
    }
}

/// Every other block is as it was.
pub open(crate) spec fn other_blocks_same(a: Seq<Option<Block>>, b: Seq<Option<Block>>, slot: int) -> bool {
    forall|x: int| x != slot ==> (registered(a, x) <==> #[trigger] registered(b, x)) && (registered(b, x) ==> b[x] == a[x])
}

impl<S: Sampler> State<S> {
    /// Only this request has changed.
    pub open(crate) spec fn others_kept(self, new: State<S>, id: RequestId) -> bool {
        others_same(self.requests@, new.requests@, id.slot as int)
    }

    /// A new request, with nothing cached, stands where none stood.
    pub open(crate) spec fn did_admit(self, new: State<S>, id: RequestId, prompt: Seq<Token>, salt: u64, initial: Bits) -> bool {
        let r = new.requests@[id.slot as int]->0;
        &&& new == (State { requests: new.requests, request_slots: new.request_slots, next_request: new.next_request, log: new.log, ..self })
        &&& new.known(id) && !live(self.requests@, id.slot as int) && self.others_kept(new, id)
        &&& id.serial == self.next_request
        &&& r.history@ == prompt && r.prompt == prompt.len() && r.salt == salt && S::state_bits(&r.state) == initial
        &&& r.cached == 0 && r.chain@.len() == 0 && !r.done && r.planned is None
        &&& forall|g: int| 0 <= g < r.tables@.len() ==> (#[trigger] r.tables@[g])@.len() == 0
    }

    /// The block is the next of the request's chain, its pages are the next of its tables, and its tokens are cached.
    pub open(crate) spec fn did_attach(self, new: State<S>, id: RequestId, block: BlockId) -> bool {
        let r = self.requests@[id.slot as int]->0;
        let r2 = new.requests@[id.slot as int]->0;
        let b = self.blocks@[block.slot as int]->0;
        &&& new == (State { requests: new.requests, ..self })
        &&& new.known(id) && self.others_kept(new, id)
        &&& r2 == (Request { tables: r2.tables, chain: r2.chain, cached: r2.cached, ..r })
        &&& r2.chain@ == r.chain@.push(block) && r2.cached == r.cached + PAGE
        &&& r2.tables@.len() == r.tables@.len()
        &&& forall|g: int| 0 <= g < r.tables@.len() ==> (#[trigger] r2.tables@[g])@ == r.tables@[g]@.push(b.pages@[g])
    }

    /// The request's table of the group has one page more, and the group one free page less.
    pub open(crate) spec fn did_take_page(self, new: State<S>, id: RequestId, group: usize) -> bool {
        let r = self.requests@[id.slot as int]->0;
        let r2 = new.requests@[id.slot as int]->0;
        let table = r2.tables@[group as int]@;
        &&& new == (State { requests: new.requests, pools: new.pools, ..self })
        &&& new.known(id) && self.others_kept(new, id)
        &&& r2 == (Request { tables: r2.tables, ..r })
        &&& r2.tables@.len() == r.tables@.len()
        &&& table.len() > 0 && table.last() != NO_PAGE && table.drop_last() == r.tables@[group as int]@
        &&& new.pools@.len() == self.pools@.len() && new.pools@[group as int].free@ == self.pools@[group as int].free@.drop_last()
        &&& forall|g: int| 0 <= g < r.tables@.len() && g != group ==> (#[trigger] r2.tables@[g])@ == r.tables@[g]@
        &&& forall|g: int| 0 <= g < self.pools@.len() && g != group ==> #[trigger] new.pools@[g] == self.pools@[g]
    }

    /// Exactly the pages wholly behind the window of the next position are let go, and so many are told.
    pub open(crate) spec fn did_release_behind(self, new: State<S>, program: Program, id: RequestId, group: usize, pages: usize) -> bool {
        let r = self.requests@[id.slot as int]->0;
        let r2 = new.requests@[id.slot as int]->0;
        let end = r.window_page(program.groups@[group as int]);
        &&& new == (State { requests: new.requests, pools: new.pools, ..self })
        &&& new.known(id) && self.others_kept(new, id)
        &&& r2 == (Request { tables: r2.tables, ..r })
        &&& behind_released(r.tables@, r2.tables@, group as int, end)
        &&& pages == held(r.tables@[group as int]@, end)
        &&& freed_only(self.pools@, new.pools@)
    }

    /// The page after the request's chain is a block, if it is full and cached. Else nothing.
    pub open(crate) spec fn did_publish(self, new: State<S>, id: RequestId, block: Option<BlockId>) -> bool {
        let r = self.requests@[id.slot as int]->0;
        let r2 = new.requests@[id.slot as int]->0;
        let depth = r.chain@.len() as int;
        &&& block is Some <==> self.publishable(id)
        &&& block is None ==> new == self
        &&& block matches Some(block) ==> {
            let b = new.blocks@[block.slot as int]->0;
            &&& new == (State { requests: new.requests, pools: new.pools, blocks: new.blocks, block_slots: new.block_slots,
                    next_block: new.next_block, prefixes: new.prefixes, salts: new.salts, ..self })
            &&& new.known(id) && self.others_kept(new, id)
            &&& r2 == (Request { chain: r2.chain, ..r }) && r2.chain@ == r.chain@.push(block)
            &&& new.published(block) && block.serial == self.next_block
            &&& !registered(self.blocks@, block.slot as int) && other_blocks_same(self.blocks@, new.blocks@, block.slot as int)
            &&& b.parent == r.chain_parent() && b.depth == depth && b.tokens@ == r.history@.subrange(depth * PAGE, (depth + 1) * PAGE)
            &&& b.pages@.len() == r.tables@.len()
            &&& forall|g: int| 0 <= g < r.tables@.len() ==> #[trigger] b.pages@[g] == r.tables@[g]@[depth]
        }
    }

    /// The block is gone and its pages are free.
    pub open(crate) spec fn did_evict(self, new: State<S>, block: BlockId) -> bool {
        &&& new == (State { pools: new.pools, blocks: new.blocks, block_slots: new.block_slots, ..self })
        &&& !registered(new.blocks@, block.slot as int) && other_blocks_same(self.blocks@, new.blocks@, block.slot as int)
        &&& pools_released(self.pools@, new.pools@, self.blocks@[block.slot as int]->0.pages@)
    }

    /// The block is without a page in this group, the page that it had is free, and it keeps the others.
    pub open(crate) spec fn did_evict_page(self, new: State<S>, block: BlockId, group: usize) -> bool {
        let b = self.blocks@[block.slot as int]->0;
        let b2 = new.blocks@[block.slot as int]->0;
        &&& new == (State { pools: new.pools, blocks: new.blocks, ..self })
        &&& new.published(block) && other_blocks_same(self.blocks@, new.blocks@, block.slot as int)
        &&& b2 == (Block { pages: b2.pages, ..b }) && b2.pages@ == b.pages@.update(group as int, NO_PAGE) && b2.pages@[group as int] == NO_PAGE
        &&& new.pools@.len() == self.pools@.len()
        &&& new.pools@[group as int].pages@[b.pages@[group as int] as int] is Free
        &&& forall|g: int| 0 <= g < self.pools@.len() && g != group ==> #[trigger] new.pools@[g] == self.pools@[g]
    }

    /// Nothing of the request is cached, its own pages are free; history and sampler state stay.
    pub open(crate) spec fn did_preempt(self, new: State<S>, id: RequestId) -> bool {
        let r = self.requests@[id.slot as int]->0;
        let r2 = new.requests@[id.slot as int]->0;
        &&& new == (State { requests: new.requests, pools: new.pools, ..self })
        &&& new.known(id) && self.others_kept(new, id)
        &&& r2 == (Request { tables: r2.tables, chain: r2.chain, cached: 0, ..r }) && r2.chain@.len() == 0
        &&& r2.tables@.len() == r.tables@.len()
        &&& forall|g: int| 0 <= g < r2.tables@.len() ==> (#[trigger] r2.tables@[g])@.len() == 0
        &&& let_go(self.pools@, new.pools@, id.slot as int)
    }

    /// The request is gone and its own pages are free.
    pub open(crate) spec fn did_remove(self, new: State<S>, id: RequestId) -> bool {
        &&& new == (State { requests: new.requests, request_slots: new.request_slots, pools: new.pools, log: new.log, ..self })
        &&& !live(new.requests@, id.slot as int) && self.others_kept(new, id)
        &&& let_go(self.pools@, new.pools@, id.slot as int)
    }

    /// A step is being planned.
    pub open(crate) spec fn did_plan_begin(self, new: State<S>) -> bool {
        new == (State { phase: Phase::Planning, ..self })
    }

    /// The step has one sequence more: these rows of the request, after those that it had.
    pub open(crate) spec fn did_plan_rows(self, new: State<S>, id: RequestId, rows: usize, drafts: Seq<Token>, select: Select) -> bool {
        let r = self.requests@[id.slot as int]->0;
        let s = new.plan.sequences@.last();
        let reads = S::reads_of(S::state_bits(&r.state));
        &&& sequence_added(self, new, id, rows as int, drafts, selected_rows(rows, drafts.len(), r.history@.len() - r.cached, select))
        // What the sampler reads is brought to the host, and what is to be seen; nothing else.
        &&& s.top <==> reads is Top
        &&& s.whole <==> reads is Row || !(select is Last)
    }

    /// The step is forgotten: its requests may change again, and stand where they stood.
    pub open(crate) spec fn did_drop_step(self, new: State<S>) -> bool {
        &&& new == (State { requests: new.requests, plan: new.plan, phase: Phase::Idle, dev: new.dev, ..self })
        &&& new.plan.sequences@.len() == 0
        &&& new.requests@.len() == self.requests@.len()
        &&& forall|s: int| 0 <= s < self.requests@.len() ==> #[trigger] unpinned(
                self.requests@[s], new.requests@[s], self.plan.sequences@.len() as int)
    }

    /// The device has run the step.
    pub open(crate) spec fn did_run(self, new: State<S>) -> bool {
        new == (State { phase: Phase::Ran, dev: new.dev, ..self })
    }

    /// Every request of the step is committed, every other is as it was, and the step is over.
    pub open(crate) spec fn did_commit(self, new: State<S>) -> bool {
        &&& new == (State { requests: new.requests, plan: new.plan, phase: Phase::Idle, log: new.log, ..self })
        &&& new.plan.sequences@.len() == 0
        &&& new.requests@.len() == self.requests@.len()
        &&& forall|s: int| 0 <= s < self.requests@.len() ==> #[trigger] pending::<S>(
                self.plan, self.requests@[s], new.requests@[s], self.plan.sequences@.len() as int)
    }
}

} // verus!
