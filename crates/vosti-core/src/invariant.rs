//! The invariant of the state, one conjunct per `inv_`. Every operation preserves every conjunct.
//!
//! Isolation and liveness are local: a page names its owner, a sequence of the step names its request and the request
//! names the sequence, and what a step reads is checked to be there when the step is planned.

use crate::block::{Block, Parent};
use crate::ids::{BlockId, NO_PAGE, PAGE, Token};
use crate::meaning::*;
use crate::pages::{Page, Pool};
use crate::program::*;
use crate::proof::forward::*;
use crate::proof::reference::*;
use crate::request::Request;
use crate::seam::*;
use crate::spec::*;
use crate::state::*;
use crate::views::*;
use vstd::prelude::*;

verus! {

/// The page belongs to entry i of the table of the request in slot s.
pub open(crate) spec fn owned_by(page: Page, s: int, i: int) -> bool {
    match page {
        Page::Owned { request, index } => request == s && index == i,
        _ => false,
    }
}

/// The page belongs to the block in this slot.
pub open(crate) spec fn registered_by(page: Page, slot: int) -> bool {
    match page {
        Page::Registered { block } => block == slot,
        _ => false,
    }
}

/// A request's own shape: lengths, ranges, its prefix.
pub open(crate) spec fn request_shape<T>(program: Program, r: Request<T>) -> bool {
    &&& r.tables@.len() == program.groups@.len()
    &&& 1 <= r.prompt <= r.history@.len() <= program.context
    &&& r.chain@.len() * PAGE <= r.cached < r.history@.len()
    &&& forall|i: int| 0 <= i < r.history@.len() ==> #[trigger] r.history@[i] < program.vocab
    &&& forall|g: int| 0 <= g < r.tables@.len() ==> r.chain@.len() <= (#[trigger] r.tables@[g])@.len()
            && r.cached <= r.tables@[g]@.len() * PAGE && r.tables@[g]@.len() <= COUNT_MAX
}

/// A block's own shape, and its prefix among the prefixes ever published.
pub open(crate) spec fn block_shape(program: Program, prefixes: Map<u64, Seq<Token>>, salts: Map<u64, u64>, b: Block) -> bool {
    &&& b.tokens@.len() == PAGE && b.pages@.len() == program.groups@.len()
    &&& prefixes.contains_key(b.serial)
    &&& prefixes[b.serial].len() == (b.depth + 1) * PAGE
    &&& prefixes[b.serial].subrange(b.depth * PAGE, (b.depth + 1) * PAGE) == b.tokens@
    &&& match b.parent {
        Parent::Root { salt } => b.depth == 0 && salts[b.serial] == salt,
        Parent::Block { serial } => b.depth > 0 && prefixes.contains_key(serial)
            && prefixes[serial] == prefixes[b.serial].subrange(0, b.depth * PAGE) && salts[serial] == salts[b.serial],
    }
}

/// The page of a chained entry of a table is registered by the block of the chain.
pub open(crate) spec fn chained(pools: Seq<Pool>, blocks: Seq<Option<Block>>, id: BlockId, g: int, i: int, page: int) -> bool {
    &&& registered_by(pools[g].pages@[page], id.slot as int)
    &&& registered(blocks, id.slot as int)
    &&& blocks[id.slot as int]->0.serial == id.serial
    &&& blocks[id.slot as int]->0.depth == i
    &&& blocks[id.slot as int]->0.pages@[g] == page
}

/// Entry i of group g of the table of the request in slot s: nothing, a block's page, or a page of its own.
pub open(crate) spec fn entry_ok<T>(pools: Seq<Pool>, blocks: Seq<Option<Block>>, r: Request<T>, s: int, g: int, i: int) -> bool {
    let page = r.tables@[g]@[i];
    page != NO_PAGE ==> {
        &&& 0 <= page < pools[g].pages@.len()
        &&& if i < r.chain@.len() {
            chained(pools, blocks, r.chain@[i], g, i, page as int)
        } else {
            owned_by(pools[g].pages@[page as int], s, i)
        }
    }
}

pub open(crate) spec fn table_ok<T>(pools: Seq<Pool>, blocks: Seq<Option<Block>>, r: Request<T>, s: int) -> bool {
    forall|g: int, i: int| 0 <= g < r.tables@.len() && 0 <= i < r.tables@[g]@.len()
        ==> #[trigger] entry_ok(pools, blocks, r, s, g, i)
}

/// Each block of the chain stands for the beginning of the history, and is of the request's tenant.
pub open(crate) spec fn chain_ok<T>(prefixes: Map<u64, Seq<Token>>, salts: Map<u64, u64>, r: Request<T>) -> bool {
    forall|i: int| 0 <= i < r.chain@.len() ==> prefixes.contains_key((#[trigger] r.chain@[i]).serial)
        && prefixes[r.chain@[i].serial] == r.history@.subrange(0, (i + 1) * PAGE) && salts[r.chain@[i].serial] == r.salt
}

/// A block's pages are registered by it.
pub open(crate) spec fn block_page_ok(pools: Seq<Pool>, b: Block, slot: int, g: int) -> bool {
    b.pages@[g] != NO_PAGE ==> 0 <= b.pages@[g] < pools[g].pages@.len()
        && registered_by(pools[g].pages@[b.pages@[g] as int], slot)
}

pub open(crate) spec fn block_pages_ok(pools: Seq<Pool>, b: Block, slot: int) -> bool {
    forall|g: int| 0 <= g < b.pages@.len() ==> #[trigger] block_page_ok(pools, b, slot, g)
}

/// Entry `index` of group g of the request's table is this page.
pub open(crate) spec fn has_entry<T>(r: Request<T>, g: int, index: int, p: int) -> bool {
    0 <= g < r.tables@.len() && 0 <= index < r.tables@[g]@.len() && r.tables@[g]@[index] == p
}

/// Whoever page p of group g names has it: no page is lost.
pub open(crate) spec fn owner_has<T>(requests: Slots<T>, blocks: Seq<Option<Block>>, page: Page, g: int, p: int) -> bool {
    match page {
        Page::Free { .. } => true,
        Page::Owned { request, index } => live(requests, request as int) && has_entry(requests[request as int]->0, g, index as int, p),
        Page::Registered { block } => registered(blocks, block as int) && blocks[block as int]->0.pages@[g] == p,
    }
}

/// Position j of a request is canonical in the cache if it has a page.
pub open(crate) spec fn kv_at_ok<T>(world: World, cache: spec_fn(u32, int, int) -> Bits, r: Request<T>, layer: u32, j: int) -> bool {
    let g = group_of(world.program, layer);
    let page = r.tables@[g]@[j / PAGE as int];
    page != NO_PAGE ==> cache(layer, page as int, j % (PAGE as int)) == kv_row(world.w, world.program, r.history@, j, layer)
}

pub open(crate) spec fn request_kv_ok<T>(world: World, cache: spec_fn(u32, int, int) -> Bits, r: Request<T>) -> bool {
    forall|layer: u32, j: int| world.program.keeps(layer) && 0 <= j < r.cached ==> #[trigger] kv_at_ok(world, cache, r, layer, j)
}

/// Offset o of a block's page is canonical for the prefix it stands for.
pub open(crate) spec fn block_kv_at_ok(world: World, cache: spec_fn(u32, int, int) -> Bits, b: Block, prefix: Seq<Token>, layer: u32, o: int) -> bool {
    let page = b.pages@[group_of(world.program, layer)];
    page != NO_PAGE ==> cache(layer, page as int, o) == kv_row(world.w, world.program, prefix, b.depth * PAGE + o, layer)
}

pub open(crate) spec fn block_kv_ok(world: World, cache: spec_fn(u32, int, int) -> Bits, b: Block, prefix: Seq<Token>) -> bool {
    forall|layer: u32, o: int| world.program.keeps(layer) && 0 <= o < PAGE ==> #[trigger] block_kv_at_ok(world, cache, b, prefix, layer, o)
}

/// A live request stands where its reference run stands after its view's records.
pub open(crate) spec fn run_ok<S: Sampler>(world: World, seen: Seen<Bits, Bits>, r: Request<S::State>) -> bool {
    let at = reference(world, seen.prompt, seen.initial, seen.entries.len());
    &&& r.history@ == at.history
    &&& S::state_bits(&r.state) == at.state
    &&& r.done == at.done
    &&& r.prompt == seen.prompt.len()
    &&& !seen.completed
}

impl<S: Sampler> State<S> {
    /// Shapes, ranges, identities.
    #[verifier::opaque]
    pub open(crate) spec fn inv_shape(self, program: Program) -> bool {
        &&& self.pools@.len() == program.groups@.len()
        &&& forall|g: int| 0 <= g < self.pools@.len() ==> (#[trigger] self.pools@[g]).wf()
                && self.pools@[g].pages@.len() == (self.dev@.limits.pages)(g) && self.pools@[g].pages@.len() <= COUNT_MAX / PAGE
        &&& forall|s: int| live(self.requests@, s) ==> request_shape(program, #[trigger] self.requests@[s]->0)
                && self.requests@[s]->0.serial < self.next_request
        &&& forall|s: int, t: int| live(self.requests@, s) && live(self.requests@, t)
                && (#[trigger] self.requests@[s])->0.serial == (#[trigger] self.requests@[t])->0.serial ==> s == t
    }

    /// Blocks' shapes, and prefixes of all identities given out.
    #[verifier::opaque]
    pub open(crate) spec fn inv_blocks(self, program: Program) -> bool {
        &&& forall|k: u64| #[trigger] self.prefixes@.contains_key(k) ==> k < self.next_block
        &&& forall|b: int| registered(self.blocks@, b) ==> block_shape(program, self.prefixes@, self.salts@, #[trigger] self.blocks@[b]->0)
    }

    /// Every table entry is nothing, a block's page, or a page that only this entry has.
    #[verifier::opaque]
    pub open(crate) spec fn inv_tables(self) -> bool {
        forall|s: int| live(self.requests@, s) ==> table_ok(self.pools@, self.blocks@, #[trigger] self.requests@[s]->0, s)
    }

    /// Chains stand for beginnings of histories.
    #[verifier::opaque]
    pub open(crate) spec fn inv_chains(self) -> bool {
        forall|s: int| live(self.requests@, s) ==> chain_ok(self.prefixes@, self.salts@, #[trigger] self.requests@[s]->0)
    }

    /// Blocks' pages are registered by them.
    #[verifier::opaque]
    pub open(crate) spec fn inv_block_pages(self) -> bool {
        forall|b: int| registered(self.blocks@, b) ==> block_pages_ok(self.pools@, #[trigger] self.blocks@[b]->0, b)
    }

    /// Whoever a page names has it.
    #[verifier::opaque]
    pub open(crate) spec fn inv_owners(self) -> bool {
        forall|g: int, p: int| 0 <= g < self.pools@.len() && 0 <= p < self.pools@[g].pages@.len()
            ==> owner_has(self.requests@, self.blocks@, #[trigger] self.pools@[g].pages@[p], g, p)
    }

    /// What is cached is canonical.
    #[verifier::opaque]
    pub open(crate) spec fn inv_kv(self, world: World) -> bool {
        &&& forall|s: int| live(self.requests@, s) ==> request_kv_ok(world, self.dev@.cache, #[trigger] self.requests@[s]->0)
        &&& forall|b: int| registered(self.blocks@, b)
                ==> block_kv_ok(world, self.dev@.cache, #[trigger] self.blocks@[b]->0, self.prefixes@[self.blocks@[b]->0.serial])
    }

    /// Every view is a prefix of its reference run, and live requests stand where their views end.
    #[verifier::opaque]
    pub open(crate) spec fn inv_log(self, world: World) -> bool {
        &&& views_ok(world, self.log@)
        &&& forall|k: u64| #[trigger] views(self.log@).contains_key(k) <==> k < self.next_request
        &&& forall|s: int| live(self.requests@, s)
                ==> run_ok::<S>(world, views(self.log@)[self.requests@[s]->0.serial], #[trigger] self.requests@[s]->0)
    }

    /// Sequence q of the step is what its request has.
    pub open(crate) spec fn seq_linked(self, program: Program, q: int) -> bool {
        let s = self.plan.sequences@[q];
        let r = self.requests@[s.request.slot as int]->0;
        &&& live(self.requests@, s.request.slot as int)
        &&& r.serial == s.request.serial
        &&& r.planned == Some(q as usize)
        &&& s.tables@.len() == r.tables@.len()
        &&& forall|g: int| 0 <= g < s.tables@.len() ==> (#[trigger] s.tables@[g])@ == r.tables@[g]@
        &&& s.first_position == r.cached
        &&& s.drafts < s.rows && s.first_position + s.rows - s.drafts <= r.history@.len()
        &&& s.emits <==> s.first_position + s.rows - s.drafts == r.history@.len()
        &&& s.drafts > 0 ==> s.emits
        &&& s.emits ==> s.selected > s.drafts && r.history@.len() + s.drafts < program.context && !r.done
        // What the sampler reads is brought to the host.
        &&& s.emits ==> s.brings(s.end(), S::reads_of(S::state_bits(&r.state)))
    }

    pub open(crate) spec fn histories(self) -> Seq<Seq<Token>> {
        Seq::new(self.plan.sequences@.len(), |q: int| self.seq_history(q))
    }

    /// The step and its requests name each other; its rows are theirs.
    #[verifier::opaque]
    pub open(crate) spec fn inv_step(self, program: Program) -> bool {
        &&& plan_packed(self.dev@.limits, program, self.plan)
        &&& forall|q: int| #![trigger self.plan.sequences@[q]] 0 <= q < self.plan.sequences@.len() ==> self.seq_linked(program, q)
        &&& forall|s: int| live(self.requests@, s) && (#[trigger] self.requests@[s]->0).planned is Some ==> {
            let q = self.requests@[s]->0.planned->0;
            q < self.plan.sequences@.len() && self.plan.sequences@[q as int].request.slot == s
        }
        &&& self.phase is Idle ==> self.plan.sequences@.len() == 0
    }

    /// The step's rows hold the histories' tokens.
    #[verifier::opaque]
    pub open(crate) spec fn inv_rows(self, program: Program) -> bool {
        batch_ok(program, self.plan, self.histories())
    }

    /// After the run, logits and new slots are canonical, and what is wanted of rows of logits is on the host.
    #[verifier::opaque]
    pub open(crate) spec fn inv_ran(self, world: World) -> bool {
        self.phase is Ran ==> {
            &&& logits_ok(world.w, world.program, self.plan, self.histories(), self.dev@.logits)
            &&& stored_ok(world.w, world.program, self.plan, self.histories(), self.dev@.cache)
            &&& wanted_brought(self.plan, self.dev@.brought)
        }
    }

    /// What the deployment fixes.
    pub open(crate) spec fn world(self, fixed: Fixed<S>) -> World {
        World { w: self.dev@.w, program: fixed.program, choice: fixed.choice@ }
    }

    /// What does not depend on the step.
    pub open(crate) spec fn inv_static(self, fixed: Fixed<S>) -> bool {
        &&& fixed.ok(self.dev@)
        &&& self.inv_shape(fixed.program)
        &&& self.inv_blocks(fixed.program)
        &&& self.inv_tables()
        &&& self.inv_chains()
        &&& self.inv_block_pages()
        &&& self.inv_owners()
        &&& self.inv_kv(self.world(fixed))
        &&& self.inv_log(self.world(fixed))
    }

    /// The whole invariant.
    pub open(crate) spec fn inv(self, fixed: Fixed<S>) -> bool {
        &&& self.inv_static(fixed)
        &&& self.inv_step(fixed.program)
        &&& self.inv_rows(fixed.program)
        &&& self.inv_ran(self.world(fixed))
    }
}

} // verus!
