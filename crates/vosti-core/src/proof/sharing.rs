//! Blocks: publishing, attaching and evicting them preserve the invariant.

use super::canonical::*;
use super::frame::*;
use crate::block::{Block, Parent};
use crate::effects::*;
use crate::ids::{BlockId, NO_PAGE, PAGE, RequestId};
use crate::invariant::*;
use crate::pages::{Page, Pool};
use crate::program::*;
use crate::request::Request;
use crate::seam::*;
use crate::spec::*;
use crate::state::*;
use crate::views::*;
use vstd::prelude::*;

verus! {

/// A block's page in group g is nothing or registered by it.
pub open(crate) spec fn page_registered(pools: Seq<Pool>, pages: Seq<i32>, slot: int, g: int) -> bool {
    pages[g] != NO_PAGE ==> 0 <= pages[g] < pools[g].pages@.len() && registered_by(pools[g].pages@[pages[g] as int], slot)
}

/// Attaching a block that continues the chain with the history's own tokens.
pub(crate) proof fn lemma_attach<S: Sampler>(fixed: Fixed<S>, a: State<S>, b: State<S>, id: RequestId, block_id: BlockId)
    requires
        a.inv(fixed),
        a.legal_attach(id, block_id),
        b == (State { requests: b.requests, ..a }),
        ({
            let slot = id.slot as int;
            let r = a.requests@[slot]->0;
            let r2 = b.requests@[slot]->0;
            let held = a.blocks@[block_id.slot as int]->0;
            &&& b.requests@ == a.requests@.update(slot, Some(r2))
            &&& r2 == (Request { tables: r2.tables, chain: r2.chain, cached: r2.cached, ..r })
            &&& r2.chain@ == r.chain@.push(block_id)
            &&& r2.cached == r.cached + PAGE
            &&& r2.tables@.len() == r.tables@.len()
            &&& forall|g: int| 0 <= g < r.tables@.len() ==> (#[trigger] r2.tables@[g])@ == r.tables@[g]@.push(held.pages@[g])
        }),
    ensures b.inv(fixed),
{
    let slot = id.slot as int;
    let world = a.world(fixed);
    let r = a.requests@[slot]->0;
    let r2 = b.requests@[slot]->0;
    let held = a.blocks@[block_id.slot as int]->0;
    let depth = r.chain@.len() as int;
    let prefix = a.prefixes@[held.serial];
    assert(request_shape(fixed.program, r) && r.serial < a.next_request) by { reveal(State::inv_shape); }
    assert(table_ok(a.pools@, a.blocks@, r, slot)) by { reveal(State::inv_tables); }
    assert(chain_ok(a.prefixes@, a.salts@, r)) by { reveal(State::inv_chains); }
    assert(request_kv_ok(world, a.dev@.cache, r) && block_kv_ok(world, a.dev@.cache, held, prefix)) by { reveal(State::inv_kv); }
    assert(block_shape(fixed.program, a.prefixes@, a.salts@, held)) by { reveal(State::inv_blocks); }
    assert(block_pages_ok(a.pools@, held, block_id.slot as int)) by { reveal(State::inv_block_pages); }
    assert(run_ok::<S>(world, views(a.log@)[r.serial], r)) by { reveal(State::inv_log); }
    // The block's prefix is the history's.
    assert(prefix =~= r.history@.subrange(0, (depth + 1) * PAGE)) by {
        assert forall|i: int| 0 <= i < (depth + 1) * PAGE implies prefix[i] == r.history@[i] by {
            if i >= depth * PAGE {
                assert(held.tokens@[i - depth * PAGE] == prefix[i]);
                assert(held.tokens@[i - depth * PAGE] == r.history@[i]);
            } else {
                let last = r.chain@[depth - 1];
                assert(a.prefixes@[last.serial] == r.history@.subrange(0, (depth - 1 + 1) * PAGE));
                assert(held.parent == Parent::Block { serial: last.serial });
                assert(a.prefixes@[last.serial][i] == prefix.subrange(0, depth * PAGE)[i]);
            }
        }
    }
    assert(table_ok(b.pools@, b.blocks@, r2, slot)) by {
        assert forall|g: int, i: int| 0 <= g < r2.tables@.len() && 0 <= i < r2.tables@[g]@.len()
            implies #[trigger] entry_ok(b.pools@, b.blocks@, r2, slot, g, i) by {
            assert(r.tables@[g]@.len() == depth);
            if i < depth {
                assert(entry_ok(a.pools@, a.blocks@, r, slot, g, i));
                assert(r2.chain@[i] == r.chain@[i]);
            } else {
                assert(block_page_ok(a.pools@, held, block_id.slot as int, g));
            }
        }
    }
    assert(request_kv_ok(world, b.dev@.cache, r2)) by {
        assert forall|layer: u32, j: int| fixed.program.keeps(layer) && 0 <= j < r2.cached
            implies #[trigger] kv_at_ok(world, b.dev@.cache, r2, layer, j) by {
            let g = group_of(fixed.program, layer);
            assert(fixed.program.layers@[layer as int].group < fixed.program.groups@.len());
            assert(r.tables@[g]@.len() == depth);
            if j < r.cached {
                assert(kv_at_ok(world, a.dev@.cache, r, layer, j));
            } else {
                let o = j - depth * PAGE;
                assert(j / (PAGE as int) == depth && j % (PAGE as int) == o);
                assert(block_kv_at_ok(world, a.dev@.cache, held, prefix, layer, o));
                assert(agree(prefix, r.history@, j));
                lemma_kv_causal(world.w, world.program, prefix, r.history@, j, layer);
            }
        }
    }
    assert(owners_told(a, b, slot)) by {
        reveal(State::inv_owners);
        assert forall|g: int, p: int| 0 <= g < b.pools@.len() && 0 <= p < b.pools@[g].pages@.len() && names_slot(b.pools@[g].pages@[p], slot)
            implies owner_has(b.requests@, b.blocks@, #[trigger] b.pools@[g].pages@[p], g, p) by {
            assert(owner_has(a.requests@, a.blocks@, a.pools@[g].pages@[p], g, p));
        }
    }
    assert(framed(fixed, a, b, slot)) by {
        reveal(State::inv_shape);
        reveal(State::inv_blocks);
        reveal(State::inv_log);
    }
    lemma_frame(fixed, a, b, slot);
}

/// Publishing the next full cached page.
pub(crate) proof fn lemma_publish<S: Sampler>(fixed: Fixed<S>, a: State<S>, b: State<S>, id: RequestId, block: BlockId, vacant: Seq<Option<Block>>)
    requires
        a.inv(fixed),
        a.free_to_change(id), a.publishable(id), a.next_block < u64::MAX,
        b == (State { requests: b.requests, blocks: b.blocks, block_slots: b.block_slots, pools: b.pools, next_block: b.next_block, prefixes: b.prefixes, salts: b.salts, ..a }),
        b.next_block == a.next_block + 1, block.serial == a.next_block,
        block.slot < vacant.len(), b.blocks@ == vacant.update(block.slot as int, b.blocks@[block.slot as int]),
        !registered(a.blocks@, block.slot as int), registered(b.blocks@, block.slot as int),
        forall|x: int| #![trigger vacant[x]] #![trigger registered(vacant, x)]
                (registered(a.blocks@, x) <==> registered(vacant, x)) && (registered(a.blocks@, x) ==> vacant[x] == a.blocks@[x]),
        ({
            let slot = id.slot as int;
            let r = a.requests@[slot]->0;
            let r2 = b.requests@[slot]->0;
            let n = b.blocks@[block.slot as int]->0;
            let depth = r.chain@.len() as int;
            &&& b.requests@ == a.requests@.update(slot, Some(r2))
            &&& r2 == (Request { chain: r2.chain, ..r })
            &&& r2.chain@ == r.chain@.push(block)
            &&& b.prefixes@ == a.prefixes@.insert(block.serial, r.history@.subrange(0, (depth + 1) * PAGE))
            &&& b.salts@ == a.salts@.insert(block.serial, r.salt)
            &&& n.serial == block.serial && n.parent == r.chain_parent() && n.depth == depth
            &&& n.tokens@ == r.history@.subrange(depth * PAGE, (depth + 1) * PAGE)
            &&& n.pages@.len() == r.tables@.len()
            &&& forall|g: int| 0 <= g < r.tables@.len() ==> #[trigger] n.pages@[g] == r.tables@[g]@[depth]
            &&& pools_touch(a.pools@, b.pools@, slot)
            &&& forall|g: int, p: int| 0 <= g < r.tables@.len() && 0 <= p < b.pools@[g].pages@.len() ==>
                #[trigger] b.pools@[g].pages@[p] == if p == r.tables@[g]@[depth] && p != NO_PAGE {
                    Page::Registered { block: block.slot }
                } else {
                    a.pools@[g].pages@[p]
                }
        }),
    ensures b.inv(fixed),
{
    let slot = id.slot as int;
    let world = a.world(fixed);
    let r = a.requests@[slot]->0;
    let r2 = b.requests@[slot]->0;
    let n = b.blocks@[block.slot as int]->0;
    let depth = r.chain@.len() as int;
    let prefix = b.prefixes@[block.serial];
    assert(request_shape(fixed.program, r) && r.serial < a.next_request) by { reveal(State::inv_shape); }
    assert(table_ok(a.pools@, a.blocks@, r, slot)) by { reveal(State::inv_tables); }
    assert(chain_ok(a.prefixes@, a.salts@, r)) by { reveal(State::inv_chains); }
    assert(request_kv_ok(world, a.dev@.cache, r)) by { reveal(State::inv_kv); }
    assert(run_ok::<S>(world, views(a.log@)[r.serial], r)) by { reveal(State::inv_log); }
    assert(a.pools@.len() == fixed.program.groups@.len()) by { reveal(State::inv_shape); }
    assert(!a.prefixes@.contains_key(block.serial)) by { reveal(State::inv_blocks); }
    assert forall|x: int| #[trigger] registered(a.blocks@, x) implies registered(b.blocks@, x) && b.blocks@[x] == a.blocks@[x] by {
        assert(registered(vacant, x));
    }
    assert(blocks_kept(a, b)) by { reveal(State::inv_blocks); }
    assert(request_shape(fixed.program, r2)) by {
        assert forall|g: int| 0 <= g < r2.tables@.len() implies r2.chain@.len() <= (#[trigger] r2.tables@[g])@.len()
            && r2.cached <= r2.tables@[g]@.len() * PAGE && r2.tables@[g]@.len() <= COUNT_MAX by {
            assert(r.cached <= r.tables@[g]@.len() * PAGE);
        }
    }
    assert(table_ok(b.pools@, b.blocks@, r2, slot)) by {
        assert forall|g: int, i: int| 0 <= g < r2.tables@.len() && 0 <= i < r2.tables@[g]@.len()
            implies #[trigger] entry_ok(b.pools@, b.blocks@, r2, slot, g, i) by {
            assert(entry_ok(a.pools@, a.blocks@, r, slot, g, i));
            assert(r.cached <= r.tables@[g]@.len() * PAGE);
            assert(entry_ok(a.pools@, a.blocks@, r, slot, g, depth));
            let page = r.tables@[g]@[i];
            assert(b.pools@[g].pages@.len() == a.pools@[g].pages@.len());
        }
    }
    assert(request_kv_ok(world, b.dev@.cache, r2)) by {
        assert forall|layer: u32, j: int| fixed.program.keeps(layer) && 0 <= j < r2.cached
            implies #[trigger] kv_at_ok(world, b.dev@.cache, r2, layer, j) by {
            assert(kv_at_ok(world, a.dev@.cache, r, layer, j));
        }
    }
    assert(block_ok(world, b, block.slot as int)) by {
        assert(block_shape(fixed.program, b.prefixes@, b.salts@, n)) by {
            assert(prefix.subrange(depth * PAGE, (depth + 1) * PAGE) =~= n.tokens@);
            if depth > 0 {
                let last = r.chain@[depth - 1];
                assert(a.prefixes@.contains_key(last.serial));
                assert(b.prefixes@[last.serial] =~= prefix.subrange(0, depth * PAGE));
            }
        }
        assert(block_pages_ok(b.pools@, n, block.slot as int)) by {
            assert forall|g: int| 0 <= g < n.pages@.len() implies #[trigger] block_page_ok(b.pools@, n, block.slot as int, g) by {
                assert(r.cached <= r.tables@[g]@.len() * PAGE);
                assert(entry_ok(a.pools@, a.blocks@, r, slot, g, depth));
                assert(n.pages@[g] == r.tables@[g]@[depth]);
                assert(b.pools@[g].pages@.len() == a.pools@[g].pages@.len());
                let page = n.pages@[g];
                if page != NO_PAGE {
                    assert(b.pools@[g].pages@[page as int] == Page::Registered { block: block.slot });
                }
            }
        }
        assert(block_kv_ok(world, b.dev@.cache, n, prefix)) by {
            assert forall|layer: u32, o: int| fixed.program.keeps(layer) && 0 <= o < PAGE
                implies #[trigger] block_kv_at_ok(world, b.dev@.cache, n, prefix, layer, o) by {
                let j = depth * PAGE + o;
                assert(j / (PAGE as int) == depth && j % (PAGE as int) == o);
                assert(fixed.program.layers@[layer as int].group < fixed.program.groups@.len());
                assert(kv_at_ok(world, a.dev@.cache, r, layer, j));
                assert(agree(prefix, r.history@, j));
                lemma_kv_causal(world.w, world.program, prefix, r.history@, j, layer);
            }
        }
    }
    assert(owners_told(a, b, slot)) by {
        reveal(State::inv_owners);
        assert forall|g: int, p: int| 0 <= g < b.pools@.len() && 0 <= p < b.pools@[g].pages@.len()
            && (b.pools@[g].pages@[p] != a.pools@[g].pages@[p] || names_slot(b.pools@[g].pages@[p], slot))
            implies owner_has(b.requests@, b.blocks@, #[trigger] b.pools@[g].pages@[p], g, p) by {
            assert(b.pools@[g].pages@.len() == a.pools@[g].pages@.len());
            assert(n.pages@[g] == r.tables@[g]@[depth]);
            if b.pools@[g].pages@[p] == a.pools@[g].pages@[p] {
                assert(owner_has(a.requests@, a.blocks@, a.pools@[g].pages@[p], g, p));
            }
        }
    }
    assert(framed(fixed, a, b, slot)) by {
        reveal(State::inv_shape);
        reveal(State::inv_log);
        assert forall|x: int| #[trigger] registered(b.blocks@, x) && !registered(a.blocks@, x) implies block_ok(world, b, x) by {
            if x != block.slot {
                assert(registered(vacant, x));
            }
        }
    }
    lemma_frame(fixed, a, b, slot);
}

/// Dropping a block's pages, or one of them, that no request's table has.
pub(crate) proof fn lemma_evict<S: Sampler>(fixed: Fixed<S>, a: State<S>, b: State<S>, id: BlockId)
    requires
        a.inv(fixed),
        a.published(id),
        b == (State { blocks: b.blocks, block_slots: b.block_slots, pools: b.pools, ..a }),
        b.blocks@.len() == a.blocks@.len(),
        forall|x: int| 0 <= x < a.blocks@.len() && x != id.slot ==> #[trigger] b.blocks@[x] == a.blocks@[x],
        ({
            let old_block = a.blocks@[id.slot as int]->0;
            let new_block = b.blocks@[id.slot as int]->0;
            // What remains of the block is what it was, less the pages let go.
            &&& b.blocks@[id.slot as int] is Some ==> new_block == (Block { pages: new_block.pages, ..old_block })
                && new_block.pages@.len() == old_block.pages@.len()
                && forall|g: int| 0 <= g < old_block.pages@.len() ==> #[trigger] new_block.pages@[g] == NO_PAGE || new_block.pages@[g] == old_block.pages@[g]
            &&& forall|g: int| 0 <= g < old_block.pages@.len() && (b.blocks@[id.slot as int] is None || new_block.pages@[g] != old_block.pages@[g])
                ==> !#[trigger] a.in_use(id, old_block.depth as int, g)
            &&& b.pools@.len() == a.pools@.len()
            &&& forall|g: int| 0 <= g < b.pools@.len() ==> (#[trigger] b.pools@[g]).wf() && b.pools@[g].pages@.len() == a.pools@[g].pages@.len()
            &&& forall|g: int, p: int| 0 <= g < b.pools@.len() && 0 <= p < b.pools@[g].pages@.len()
                && (p != old_block.pages@[g] || (b.blocks@[id.slot as int] is Some && new_block.pages@[g] == old_block.pages@[g]))
                ==> #[trigger] b.pools@[g].pages@[p] == a.pools@[g].pages@[p]
            // The pages let go are free.
            &&& forall|g: int, p: int| 0 <= g < b.pools@.len() && 0 <= p < b.pools@[g].pages@.len()
                && p == old_block.pages@[g] && !(b.blocks@[id.slot as int] is Some && new_block.pages@[g] == old_block.pages@[g])
                ==> (#[trigger] b.pools@[g].pages@[p]) is Free
        }),
    ensures b.inv(fixed),
{
    let x0 = id.slot as int;
    let old_block = a.blocks@[x0]->0;
    let new_block = b.blocks@[x0]->0;
    let world = a.world(fixed);
    assert(block_shape(fixed.program, a.prefixes@, a.salts@, old_block)) by { reveal(State::inv_blocks); }
    assert(block_pages_ok(a.pools@, old_block, x0)) by { reveal(State::inv_block_pages); }
    assert(block_kv_ok(world, a.dev@.cache, old_block, a.prefixes@[old_block.serial])) by { reveal(State::inv_kv); }
    assert(a.pools@.len() == fixed.program.groups@.len()) by { reveal(State::inv_shape); }
    // A page let go was registered by this block.
    assert forall|g: int, p: int| 0 <= g < b.pools@.len() && 0 <= p < b.pools@[g].pages@.len()
        && b.pools@[g].pages@[p] != a.pools@[g].pages@[p]
        implies p == old_block.pages@[g] && registered_by(#[trigger] a.pools@[g].pages@[p], x0)
            && (b.blocks@[x0] is None || new_block.pages@[g] != old_block.pages@[g]) by {
        assert(block_page_ok(a.pools@, old_block, x0, g));
    }
    assert(b.inv_shape(fixed.program)) by {
        reveal(State::inv_shape);
        assert forall|g: int| 0 <= g < b.pools@.len() implies (#[trigger] b.pools@[g]).wf()
            && b.pools@[g].pages@.len() == (b.dev@.limits.pages)(g) && b.pools@[g].pages@.len() <= COUNT_MAX / PAGE by {
            assert(a.pools@[g].wf());
        }
    }
    assert(b.inv_blocks(fixed.program)) by {
        reveal(State::inv_blocks);
        assert forall|x: int| registered(b.blocks@, x) implies block_shape(fixed.program, b.prefixes@, b.salts@, #[trigger] b.blocks@[x]->0) by {
            if x != x0 {
                assert(b.blocks@[x] == a.blocks@[x]);
                assert(registered(a.blocks@, x));
                assert(block_shape(fixed.program, a.prefixes@, a.salts@, a.blocks@[x]->0));
            }
        }
    }
    assert(b.inv_tables()) by {
        reveal(State::inv_tables);
        reveal(State::inv_shape);
        assert forall|s: int| live(b.requests@, s) implies table_ok(b.pools@, b.blocks@, #[trigger] b.requests@[s]->0, s) by {
            let r = a.requests@[s]->0;
            assert(table_ok(a.pools@, a.blocks@, r, s));
            assert(request_shape(fixed.program, r));
            assert forall|g: int, i: int| 0 <= g < r.tables@.len() && 0 <= i < r.tables@[g]@.len()
                implies #[trigger] entry_ok(b.pools@, b.blocks@, r, s, g, i) by {
                assert(entry_ok(a.pools@, a.blocks@, r, s, g, i));
                let page = r.tables@[g]@[i];
                if page != NO_PAGE && i < r.chain@.len() && r.chain@[i].slot == x0 {
                    assert(r.chain@[i] == id);
                    assert(a.requests@[s]->0.holds_page(id, old_block.depth as int, g));
                    assert(a.in_use(id, old_block.depth as int, g));
                }
                if page != NO_PAGE && b.pools@[g].pages@[page as int] != a.pools@[g].pages@[page as int] {
                    assert(registered_by(a.pools@[g].pages@[page as int], x0));
                }
            }
        }
    }
    assert(b.inv_chains()) by { reveal(State::inv_chains); }
    assert(b.inv_block_pages()) by {
        reveal(State::inv_block_pages);
        reveal(State::inv_blocks);
        assert forall|x: int| registered(b.blocks@, x) implies block_pages_ok(b.pools@, #[trigger] b.blocks@[x]->0, x) by {
            let block = b.blocks@[x]->0;
            let was = a.blocks@[x]->0;
            if x != x0 {
                assert(b.blocks@[x] == a.blocks@[x]);
            }
            assert(registered(a.blocks@, x));
            assert(block_pages_ok(a.pools@, a.blocks@[x]->0, x));
            assert(block_shape(fixed.program, a.prefixes@, a.salts@, a.blocks@[x]->0));
            assert forall|g: int| 0 <= g < block.pages@.len() implies #[trigger] block_page_ok(b.pools@, block, x, g) by {
                assert(block_page_ok(a.pools@, was, x, g));
                let page = block.pages@[g];
                if page != NO_PAGE && b.pools@[g].pages@[page as int] != a.pools@[g].pages@[page as int] {
                    assert(registered_by(a.pools@[g].pages@[page as int], x0));
                }
            }
        }
    }
    assert(b.inv_owners()) by {
        reveal(State::inv_owners);
    }
    assert(b.inv_kv(world)) by {
        reveal(State::inv_kv);
        assert forall|x: int| registered(b.blocks@, x)
            implies block_kv_ok(world, b.dev@.cache, #[trigger] b.blocks@[x]->0, b.prefixes@[b.blocks@[x]->0.serial]) by {
            if x == x0 {
                assert forall|layer: u32, o: int| fixed.program.keeps(layer) && 0 <= o < PAGE
                    implies #[trigger] block_kv_at_ok(world, b.dev@.cache, new_block, b.prefixes@[new_block.serial], layer, o) by {
                    assert(block_kv_at_ok(world, a.dev@.cache, old_block, a.prefixes@[old_block.serial], layer, o));
                    assert(fixed.program.layers@[layer as int].group < fixed.program.groups@.len());
                }
            } else {
                assert(b.blocks@[x] == a.blocks@[x]);
                assert(registered(a.blocks@, x));
                assert(block_kv_ok(world, a.dev@.cache, a.blocks@[x]->0, a.prefixes@[a.blocks@[x]->0.serial]));
            }
        }
    }
    assert(b.inv_log(world)) by { reveal(State::inv_log); }
    assert(b.inv_step(fixed.program)) by { reveal(State::inv_step); }
    assert(b.histories() =~= a.histories());
    assert(b.inv_rows(fixed.program)) by { reveal(State::inv_rows); }
    assert(b.inv_ran(world)) by { reveal(State::inv_ran); }
}

} // verus!
