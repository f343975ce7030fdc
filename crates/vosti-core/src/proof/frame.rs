//! One request changes and the rest stays: the invariant is preserved if it holds for the new part. Every operation on a
//! request outside the step uses this.

use super::forward::*;
use super::reference::*;
use crate::effects::*;
use crate::ids::{NO_PAGE, PAGE};
use crate::invariant::*;
use crate::meaning::*;
use crate::pages::{Page, Pool};
use crate::program::*;
use crate::seam::*;
use crate::spec::*;
use crate::state::*;
use crate::views::*;
use vstd::prelude::*;

verus! {

/// Pages changed hands only if they were free or belonged to the request in this slot.
pub open(crate) spec fn pools_touch(a: Seq<Pool>, b: Seq<Pool>, slot: int) -> bool {
    &&& b.len() == a.len()
    &&& forall|g: int| 0 <= g < b.len() ==> (#[trigger] b[g]).wf() && b[g].pages@.len() == a[g].pages@.len()
    &&& forall|g: int, p: int| 0 <= g < b.len() && 0 <= p < b[g].pages@.len()
            ==> #[trigger] b[g].pages@[p] == a[g].pages@[p] || touchable(a[g].pages@[p], slot)
}

pub open(crate) spec fn touchable(page: Page, slot: int) -> bool {
    match page {
        Page::Free { .. } => true,
        Page::Owned { request, .. } => request == slot,
        Page::Registered { .. } => false,
    }
}

/// Every block stays, and every prefix.
pub open(crate) spec fn blocks_kept<S: Sampler>(a: State<S>, b: State<S>) -> bool {
    &&& forall|x: int| #[trigger] registered(a.blocks@, x) ==> registered(b.blocks@, x) && b.blocks@[x] == a.blocks@[x]
    &&& forall|k: u64| #[trigger] a.prefixes@.contains_key(k) ==> b.prefixes@.contains_key(k) && b.prefixes@[k] == a.prefixes@[k]
            && b.salts@[k] == a.salts@[k]
    &&& forall|k: u64| #[trigger] b.prefixes@.contains_key(k) ==> k < b.next_block
}

/// What must hold of a block that is new.
pub open(crate) spec fn block_ok<S: Sampler>(world: World, b: State<S>, x: int) -> bool {
    let block = b.blocks@[x]->0;
    &&& block_shape(world.program, b.prefixes@, b.salts@, block)
    &&& block_pages_ok(b.pools@, block, x)
    &&& block_kv_ok(world, b.dev@.cache, block, b.prefixes@[block.serial])
}

/// What must hold of the request in this slot.
pub open(crate) spec fn request_ok<S: Sampler>(world: World, b: State<S>, slot: int) -> bool {
    let r = b.requests@[slot]->0;
    &&& request_shape(world.program, r)
    &&& r.serial < b.next_request
    &&& table_ok(b.pools@, b.blocks@, r, slot)
    &&& chain_ok(b.prefixes@, b.salts@, r)
    &&& request_kv_ok(world, b.dev@.cache, r)
    &&& run_ok::<S>(world, views(b.log@)[r.serial], r)
}

/// The views of the other requests stay.
pub open(crate) spec fn log_kept<S: Sampler>(world: World, a: State<S>, b: State<S>, slot: int) -> bool {
    &&& views_ok(world, b.log@)
    &&& forall|k: u64| #[trigger] views(b.log@).contains_key(k) <==> k < b.next_request
    &&& a.next_request <= b.next_request
    &&& forall|t: int| t != slot && live(b.requests@, t) ==>
            views(b.log@)[(#[trigger] b.requests@[t])->0.serial] == views(a.log@)[b.requests@[t]->0.serial]
}

pub open(crate) spec fn step_same<S: Sampler>(a: State<S>, b: State<S>) -> bool {
    b.plan == a.plan && b.phase == a.phase
}

/// Pages that changed hands, or are the request's, are where they say.
pub open(crate) spec fn owners_told<S: Sampler>(a: State<S>, b: State<S>, slot: int) -> bool {
    forall|g: int, p: int| 0 <= g < b.pools@.len() && 0 <= p < b.pools@[g].pages@.len()
        && (b.pools@[g].pages@[p] != a.pools@[g].pages@[p] || names_slot(b.pools@[g].pages@[p], slot))
        ==> owner_has(b.requests@, b.blocks@, #[trigger] b.pools@[g].pages@[p], g, p)
}

pub open(crate) spec fn framed<S: Sampler>(fixed: Fixed<S>, a: State<S>, b: State<S>, slot: int) -> bool {
    &&& a.inv_static(fixed)
    &&& b.dev@ == a.dev@
    &&& others_same(a.requests@, b.requests@, slot)
    &&& live(b.requests@, slot) ==> request_ok(a.world(fixed), b, slot)
    &&& forall|t: int| t != slot && live(b.requests@, t) && live(b.requests@, slot)
            ==> (#[trigger] b.requests@[t])->0.serial != b.requests@[slot]->0.serial
    &&& blocks_kept(a, b)
    &&& forall|x: int| #[trigger] registered(b.blocks@, x) && !registered(a.blocks@, x) ==> block_ok(a.world(fixed), b, x)
    &&& pools_touch(a.pools@, b.pools@, slot)
    &&& log_kept(a.world(fixed), a, b, slot)
    &&& owners_told(a, b, slot)
}

proof fn lemma_frame_owners<S: Sampler>(fixed: Fixed<S>, a: State<S>, b: State<S>, slot: int)
    requires framed(fixed, a, b, slot),
    ensures b.inv_owners(),
{
    reveal(State::inv_owners);
    assert forall|g: int, p: int| 0 <= g < b.pools@.len() && 0 <= p < b.pools@[g].pages@.len()
        implies owner_has(b.requests@, b.blocks@, #[trigger] b.pools@[g].pages@[p], g, p) by {
        let page = b.pools@[g].pages@[p];
        if page == a.pools@[g].pages@[p] && !names_slot(page, slot) {
            match page {
                Page::Owned { .. } => {},
                Page::Registered { block } => {
                    assert(registered(a.blocks@, block as int));
                },
                Page::Free { .. } => {},
            }
        }
    }
}

proof fn lemma_frame_shape<S: Sampler>(fixed: Fixed<S>, a: State<S>, b: State<S>, slot: int)
    requires framed(fixed, a, b, slot),
    ensures b.inv_shape(fixed.program),
{
    reveal(State::inv_shape);
}

proof fn lemma_frame_blocks<S: Sampler>(fixed: Fixed<S>, a: State<S>, b: State<S>, slot: int)
    requires framed(fixed, a, b, slot),
    ensures b.inv_blocks(fixed.program),
{
    reveal(State::inv_blocks);
}

proof fn lemma_frame_tables<S: Sampler>(fixed: Fixed<S>, a: State<S>, b: State<S>, slot: int)
    requires framed(fixed, a, b, slot),
    ensures b.inv_tables(),
{
    reveal(State::inv_tables);
    reveal(State::inv_shape);
    assert forall|s: int| live(b.requests@, s) implies table_ok(b.pools@, b.blocks@, #[trigger] b.requests@[s]->0, s) by {
        if s != slot {
            let r = b.requests@[s]->0;
            assert(a.requests@[s]->0 == r);
            assert(table_ok(a.pools@, a.blocks@, a.requests@[s]->0, s));
            assert(request_shape(fixed.program, a.requests@[s]->0));
            assert forall|g: int, i: int| 0 <= g < r.tables@.len() && 0 <= i < r.tables@[g]@.len()
                implies #[trigger] entry_ok(b.pools@, b.blocks@, r, s, g, i) by {
                assert(entry_ok(a.pools@, a.blocks@, r, s, g, i));
            }
        }
    }
}

proof fn lemma_frame_chains<S: Sampler>(fixed: Fixed<S>, a: State<S>, b: State<S>, slot: int)
    requires framed(fixed, a, b, slot),
    ensures b.inv_chains(),
{
    reveal(State::inv_chains);
}

proof fn lemma_frame_block_pages<S: Sampler>(fixed: Fixed<S>, a: State<S>, b: State<S>, slot: int)
    requires framed(fixed, a, b, slot),
    ensures b.inv_block_pages(),
{
    reveal(State::inv_block_pages);
    reveal(State::inv_blocks);
    reveal(State::inv_shape);
    assert forall|x: int| registered(b.blocks@, x) implies block_pages_ok(b.pools@, #[trigger] b.blocks@[x]->0, x) by {
        if registered(a.blocks@, x) {
            let block = a.blocks@[x]->0;
            assert(block_shape(fixed.program, a.prefixes@, a.salts@, a.blocks@[x]->0));
            assert forall|g: int| 0 <= g < block.pages@.len() implies #[trigger] block_page_ok(b.pools@, block, x, g) by {
                assert(block_page_ok(a.pools@, block, x, g));
            }
        } else {
            assert(block_ok(a.world(fixed), b, x));
        }
    }
}

proof fn lemma_frame_kv<S: Sampler>(fixed: Fixed<S>, a: State<S>, b: State<S>, slot: int)
    requires framed(fixed, a, b, slot),
    ensures b.inv_kv(b.world(fixed)),
{
    reveal(State::inv_kv);
    reveal(State::inv_blocks);
}

proof fn lemma_frame_log<S: Sampler>(fixed: Fixed<S>, a: State<S>, b: State<S>, slot: int)
    requires framed(fixed, a, b, slot),
    ensures b.inv_log(b.world(fixed)),
{
    reveal(State::inv_log);
}

/// Requests outside a slot that is not in the step: the step's requests are among them.
proof fn lemma_frame_links<S: Sampler>(fixed: Fixed<S>, a: State<S>, b: State<S>, slot: int)
    requires
        framed(fixed, a, b, slot), a.inv(fixed), step_same(a, b),
        live(a.requests@, slot) ==> a.requests@[slot]->0.planned is None,
        live(b.requests@, slot) ==> b.requests@[slot]->0.planned is None,
    ensures b.inv_step(fixed.program), b.histories() == a.histories(),
{
    reveal(State::inv_step);
    assert forall|q: int| #![trigger b.plan.sequences@[q]] 0 <= q < b.plan.sequences@.len()
        implies b.seq_linked(fixed.program, q) && b.plan.sequences@[q].request.slot != slot by {
        let t = a.plan.sequences@[q].request.slot as int;
        assert(live(b.requests@, t));
        assert(b.requests@[t] == a.requests@[t]);
    }
}

/// What does not depend on the step is preserved by a change to one request.
pub(crate) proof fn lemma_frame_static<S: Sampler>(fixed: Fixed<S>, a: State<S>, b: State<S>, slot: int)
    requires framed(fixed, a, b, slot),
    ensures b.inv_static(fixed),
{
    lemma_frame_shape(fixed, a, b, slot);
    lemma_frame_blocks(fixed, a, b, slot);
    lemma_frame_tables(fixed, a, b, slot);
    lemma_frame_chains(fixed, a, b, slot);
    lemma_frame_block_pages(fixed, a, b, slot);
    lemma_frame_owners(fixed, a, b, slot);
    lemma_frame_kv(fixed, a, b, slot);
    lemma_frame_log(fixed, a, b, slot);
}

/// The invariant is preserved by a change to one request outside the step.
pub(crate) proof fn lemma_frame<S: Sampler>(fixed: Fixed<S>, a: State<S>, b: State<S>, slot: int)
    requires
        framed(fixed, a, b, slot), a.inv(fixed), step_same(a, b),
        live(a.requests@, slot) ==> a.requests@[slot]->0.planned is None,
        live(b.requests@, slot) ==> b.requests@[slot]->0.planned is None,
    ensures b.inv(fixed),
{
    lemma_frame_static(fixed, a, b, slot);
    lemma_frame_links(fixed, a, b, slot);
    reveal(State::inv_rows);
    reveal(State::inv_ran);
}

/// With no step there is nothing more to hold.
pub(crate) proof fn lemma_idle<S: Sampler>(fixed: Fixed<S>, b: State<S>)
    requires
        b.inv_static(fixed), b.phase is Idle,
        b.plan.tokens@.len() == 0, b.plan.positions@.len() == 0, b.plan.selected@.len() == 0, b.plan.sequences@.len() == 0,
        forall|s: int| live(b.requests@, s) ==> (#[trigger] b.requests@[s]->0).planned is None,
    ensures b.inv(fixed),
{
    reveal(State::inv_step);
    reveal(State::inv_rows);
    reveal(State::inv_ran);
    reveal(plan_packed);
    reveal(batch_ok);
}

} // verus!
