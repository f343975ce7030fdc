//! The effect of each operation when it is legal, one predicate per operation; `legal.rs` says when it is legal. Together
//! they are `next` in `next.rs`: without effects, a core that plans nothing and commits nothing would keep every promise. The
//! predicates speak of what policy sees: requests, blocks, free pages, the step.

use super::legal::*;
use super::seam::*;
use super::spec::*;
use super::views::*;
use crate::block::{Block, Parent};
use crate::ids::{BlockId, NO_PAGE, PAGE, RequestId, Token};
use crate::invariant::*;
use crate::pages::{Page, Pool};
use crate::plan::{Reads, Select, SeqPlan, StepPlan};
use crate::program::*;
use crate::request::Request;
use crate::state::*;
use vstd::prelude::*;

verus! {

/// Two histories agree on the first n tokens.
pub open(crate) spec fn agree_before(a: Seq<Token>, b: Seq<Token>, n: int) -> bool {
    n <= a.len() && n <= b.len() && forall|i: int| 0 <= i < n ==> #[trigger] a[i] == b[i]
}

/// The drafts of a sequence.
pub open(crate) spec fn drafts_of(plan: StepPlan, q: int) -> Seq<Token> {
    let s = plan.sequences@[q];
    plan.tokens@.subrange(s.first_row + s.rows - s.drafts, s.first_row + s.rows)
}

/// It went on as long as it could: the request is done, the drafts are used up, the next draft is not the token that came, or the
/// sampler now reads what was not brought to the host, or a token drawn by other numbers.
pub open(crate) spec fn ended<S: Sampler>(plan: StepPlan, q: int, r: Request<S::State>, r2: Request<S::State>) -> bool {
    let s = plan.sequences@[q];
    let drafts = drafts_of(plan, q);
    let n = r2.history@.len() - r.history@.len();
    ||| r2.done
    ||| n == s.drafts + 1
    ||| 1 <= n <= s.drafts && drafts[n - 1] != r2.history@.last()
    ||| !s.brings(s.end() + n, S::reads_of(S::state_bits(&r2.state)))
}

/// What committing a sequence does to its request.
pub open(crate) spec fn committed<S: Sampler>(plan: StepPlan, q: int, r: Request<S::State>, r2: Request<S::State>) -> bool {
    let s = plan.sequences@[q];
    &&& r2 == (Request { history: r2.history, cached: r2.cached, done: r2.done, state: r2.state, planned: None, ..r })
    &&& forall|i: int| 0 <= i < r.history@.len() ==> #[trigger] r2.history@[i] == r.history@[i]
    // All rows are cached, but drafts only as far as they were emitted: the last token emitted is yet to be computed.
    &&& r2.cached == if s.emits { r2.history@.len() - 1 } else { s.first_position + s.rows }
    &&& r2.cached <= s.first_position + s.rows
    &&& s.emits <==> r.history@.len() < r2.history@.len()
    &&& agree_before(r.history@ + drafts_of(plan, q), r2.history@, r2.cached as int)
    &&& s.emits ==> ended::<S>(plan, q, r, r2)
    // Without a choice there is no other state.
    &&& !s.emits ==> r2.done == r.done && r2.state == r.state && r2.history == r.history
}

/// The tokens, positions and selected rows that a sequence adds to the plan.
pub open(crate) spec fn row_tokens(s: SeqPlan, history: Seq<Token>, drafts: Seq<Token>) -> Seq<Token> {
    history.subrange(s.first_position as int, s.first_position + s.rows - s.drafts) + drafts
}

pub open(crate) spec fn row_positions(s: SeqPlan) -> Seq<u32> {
    Seq::new(s.rows as nat, |i: int| s.position(i) as u32)
}

pub open(crate) spec fn row_selected(s: SeqPlan) -> Seq<u32> {
    Seq::new(s.selected as nat, |i: int| s.row(s.unselected() + i) as u32)
}

/// A request as it was if its sequence is not among the first n, else committed.
pub open(crate) spec fn pending<S: Sampler>(plan: StepPlan, was: Option<Request<S::State>>, is: Option<Request<S::State>>, n: int) -> bool {
    match (was, is) {
        (None, None) => true,
        (Some(r), Some(r2)) => if r.planned is Some && r.planned->0 < n {
            committed::<S>(plan, r.planned->0 as int, r, r2)
        } else {
            r2 == r
        },
        _ => false,
    }
}

/// The page names the request in this slot.
pub open(crate) spec fn names_slot(page: Page, slot: int) -> bool {
    page matches Page::Owned { request, .. } && request == slot
}

/// Every other slot holds what it held.
pub open(crate) spec fn others_same<T>(a: Slots<T>, b: Slots<T>, slot: int) -> bool {
    forall|t: int| t != slot ==> (live(a, t) <==> #[trigger] live(b, t)) && (live(b, t) ==> b[t] == a[t])
}

/// Only these pages changed hands.
pub open(crate) spec fn pools_released(a: Seq<Pool>, b: Seq<Pool>, pages: Seq<i32>) -> bool {
    &&& b.len() == a.len()
    &&& forall|g: int| 0 <= g < b.len() ==> (#[trigger] b[g]).wf() && b[g].pages@.len() == a[g].pages@.len()
    &&& forall|g: int, p: int| 0 <= g < b.len() && 0 <= p < b[g].pages@.len() && p != pages[g]
            ==> #[trigger] b[g].pages@[p] == a[g].pages@[p]
    &&& forall|g: int, p: int| 0 <= g < b.len() && 0 <= p < b[g].pages@.len() && p == pages[g] ==> (#[trigger] b[g].pages@[p]) is Free
}

/// A request as it was, out of the step if its sequence is among the first n.
pub open(crate) spec fn unpinned<T>(was: Option<Request<T>>, is: Option<Request<T>>, n: int) -> bool {
    match (was, is) {
        (None, None) => true,
        (Some(r), Some(r2)) => r2 == (Request { planned: r2.planned, ..r })
            && r2.planned == (if r.planned is Some && r.planned->0 < n { None } else { r.planned }),
        _ => false,
    }
}

/// One more sequence in the step: its request names it, and its rows are the request's.
pub open(crate) spec fn sequence_added<S: Sampler>(a: State<S>, b: State<S>, id: RequestId, rows: int, drafts: Seq<Token>, selected: int) -> bool {
    let slot = id.slot as int;
    let r = a.requests@[slot]->0;
    let r2 = b.requests@[slot]->0;
    let n = a.plan.sequences@.len() as int;
    let s = b.plan.sequences@[n];
    &&& b == (State { requests: b.requests, plan: b.plan, ..a })
    &&& b.requests@ == a.requests@.update(slot, Some(r2))
    &&& r2 == (Request { planned: Some(n as usize), ..r })
    &&& b.plan.sequences@ == a.plan.sequences@.push(s)
    &&& b.plan.tokens@ == a.plan.tokens@ + row_tokens(s, r.history@, drafts)
    &&& b.plan.positions@ == a.plan.positions@ + row_positions(s)
    &&& b.plan.selected@ == a.plan.selected@ + row_selected(s)
    &&& s.request == id && s.first_row == a.plan.tokens@.len() && s.rows == rows + drafts.len()
    &&& s.first_position == r.cached && s.drafts == drafts.len() && s.first_selected == a.plan.selected@.len()
    &&& s.selected == selected && s.emits == (r.cached + rows == r.history@.len())
    &&& s.tables@.len() == r.tables@.len()
    &&& forall|g: int| 0 <= g < s.tables@.len() ==> (#[trigger] s.tables@[g])@ == r.tables@[g]@
    &&& s.emits ==> s.brings(s.end(), S::reads_of(S::state_bits(&r.state)))
    &&& n <= usize::MAX
}

/// The tables differ in one group only, where the entries before `end` are gone and the others stay.
pub open(crate) spec fn behind_released(a: Seq<Vec<i32>>, b: Seq<Vec<i32>>, group: int, end: int) -> bool {
    &&& b.len() == a.len()
    &&& forall|g: int| 0 <= g < a.len() ==> (#[trigger] b[g])@.len() == a[g]@.len()
    &&& forall|g: int, i: int| 0 <= g < a.len() && 0 <= i < a[g]@.len()
            ==> #[trigger] b[g]@[i] == if g == group && i < end { NO_PAGE } else { a[g]@[i] }
}

/// Pages changed hands only by becoming free.
pub open(crate) spec fn freed_only(a: Seq<Pool>, b: Seq<Pool>) -> bool {
    forall|g: int, p: int| 0 <= g < b.len() && 0 <= p < b[g].pages@.len() ==> #[trigger] b[g].pages@[p] == a[g].pages@[p] || b[g].pages@[p] is Free
}

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
        &&& s.draws@.len() == if reads is Drawn { s.selected as int } else { 0 }
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
