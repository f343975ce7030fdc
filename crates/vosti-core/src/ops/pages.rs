//! A request's own pages: take one, release those behind the window, release all.

use crate::effects::*;
use crate::error::CoreError;
use crate::ids::{NO_PAGE, PAGE, RequestId};
use crate::invariant::*;
use crate::legal::*;
use crate::pages::{Page, Pool};
use crate::program::*;
use crate::proof::canonical::*;
use crate::proof::forward::*;
use crate::proof::frame::*;
use crate::proof::reference::*;
use crate::request::Request;
use crate::seam::*;
use crate::spec::*;
use crate::state::*;
use crate::views::*;
use vstd::prelude::*;

verus! {

impl<S: Sampler> State<S> {
    pub(crate) fn take_page(&mut self, fixed: &Fixed<S>, id: RequestId, group: usize) -> (out: Result<(), CoreError>)
        requires old(self).inv(*fixed),
        ensures
            final(self).inv(*fixed), final(self).dev@ == old(self).dev@,
            out is Ok <==> old(self).legal_take_page(*fixed, id, group),
            out is Err ==> *final(self) == *old(self),
            out is Ok ==> old(self).did_take_page(*final(self), id, group),
    {
        proof {
            reveal(State::inv_shape);
            reveal(State::inv_tables);
            reveal(State::inv_chains);
            reveal(State::inv_kv);
            reveal(State::inv_log);
            reveal(State::inv_blocks);
        }
        let ghost before = *self;
        let request = self.mutable(id)?;
        let ghost r = *request;
        proof {
            assert(before.requests@[id.slot as int]->0 == r);
            assert(request_shape(fixed.program, r));
        }
        if group >= self.pools.len() {
            return Err(CoreError::GroupOutOfRange { group });
        }
        proof {
            assert(before.pools@[group as int].wf());
            assert(r.tables@[group as int]@.len() <= COUNT_MAX);
        }
        let index = request.tables[group].len();
        if index >= pages_for(fixed.program.context) {
            return Err(CoreError::TableFull { group });
        }
        if self.pools[group].free.len() == 0 {
            return Err(CoreError::NoFreePage { group });
        }
        let page = self.pools[group].take(id.slot, index);
        if let Some(mut request) = self.requests[id.slot].take() {
            request.tables[group].push(page as i32);
            self.requests[id.slot] = Some(request);
        }
        proof {
            let slot = id.slot as int;
            let r2 = self.requests@[slot]->0;
            assert(r2.tables@[group as int]@.drop_last() =~= r.tables@[group as int]@);
            assert(0 <= r2.tables@[group as int]@.last());
            assert(table_ok(before.pools@, before.blocks@, r, slot));
            assert(request_shape(fixed.program, r2)) by {
                assert forall|g: int| 0 <= g < r2.tables@.len() implies r2.chain@.len() <= (#[trigger] r2.tables@[g])@.len()
                    && r2.cached <= r2.tables@[g]@.len() * PAGE && r2.tables@[g]@.len() <= COUNT_MAX by {
                    assert(r.chain@.len() <= r.tables@[g]@.len());
                }
            }
            assert(table_ok(self.pools@, self.blocks@, r2, slot)) by {
                assert forall|g: int, i: int| 0 <= g < r2.tables@.len() && 0 <= i < r2.tables@[g]@.len()
                    implies #[trigger] entry_ok(self.pools@, self.blocks@, r2, slot, g, i) by {
                    if i < r.tables@[g]@.len() {
                        assert(entry_ok(before.pools@, before.blocks@, r, slot, g, i));
                    }
                }
            }
            assert(chain_ok(self.prefixes@, self.salts@, r2));
            assert(owners_told(before, *self, slot)) by {
                reveal(State::inv_owners);
                assert forall|g: int, p: int| 0 <= g < self.pools@.len() && 0 <= p < self.pools@[g].pages@.len()
                    && (self.pools@[g].pages@[p] != before.pools@[g].pages@[p] || names_slot(self.pools@[g].pages@[p], slot))
                    implies owner_has(self.requests@, self.blocks@, #[trigger] self.pools@[g].pages@[p], g, p) by {
                    if self.pools@[g].pages@[p] == before.pools@[g].pages@[p] {
                        assert(owner_has(before.requests@, before.blocks@, before.pools@[g].pages@[p], g, p));
                    }
                    assert(r.tables@[g]@.len() <= r2.tables@[g]@.len());
                }
            }
            assert(request_kv_ok(self.world(*fixed), self.dev@.cache, r2)) by {
                assert forall|layer: u32, j: int| fixed.program.keeps(layer) && 0 <= j < r2.cached
                    implies #[trigger] kv_at_ok(self.world(*fixed), self.dev@.cache, r2, layer, j) by {
                    assert(kv_at_ok(before.world(*fixed), before.dev@.cache, r, layer, j));
                    let g = group_of(fixed.program, layer);
                    assert(fixed.program.layers@[layer as int].group < fixed.program.groups@.len());
                    assert(r.cached <= r.tables@[g]@.len() * PAGE);
                }
            }
            lemma_frame(*fixed, before, *self, slot);
        }
        Ok(())
    }

    pub(crate) fn release_behind(&mut self, fixed: &Fixed<S>, id: RequestId, group: usize) -> (out: Result<usize, CoreError>)
        requires old(self).inv(*fixed),
        ensures
            final(self).inv(*fixed), final(self).dev@ == old(self).dev@,
            out is Ok <==> old(self).legal_release_behind(id, group),
            out is Err ==> *final(self) == *old(self),
            out matches Ok(pages) ==> old(self).did_release_behind(*final(self), fixed.program, id, group, pages),
    {
        proof {
            reveal(State::inv_shape);
            reveal(State::inv_tables);
            reveal(State::inv_chains);
            reveal(State::inv_kv);
            reveal(State::inv_log);
            reveal(State::inv_blocks);
        }
        let ghost before = *self;
        let ghost slot = id.slot as int;
        let request = self.mutable(id)?;
        let ghost r = *request;
        proof {
            assert(before.requests@[id.slot as int]->0 == r);
            assert(request_shape(fixed.program, r));
            assert(table_ok(before.pools@, before.blocks@, r, slot));
        }
        if group >= self.pools.len() {
            return Err(CoreError::GroupOutOfRange { group });
        }
        proof {
            assert(fixed.program.groups@[group as int].window != Some(0u32));
            assert(r.cached <= r.tables@[group as int]@.len() * PAGE);
        }
        let end = request.first_page(&fixed.program.groups[group]);
        let mut released: usize = 0;
        proof { before.lemma_listed(*fixed, slot); }
        if let Some(mut request) = self.requests[id.slot].take() {
            let mut page: usize = 0;
            while page < end && page < request.tables[group].len()
                invariant
                    page <= end, released == held(r.tables@[group as int]@, page as int), released <= page, group < before.pools@.len() == r.tables@.len(),
                    *self == (State { requests: self.requests, pools: self.pools, ..before }),
                    self.requests@ == before.requests@.update(slot, None),
                    0 <= slot < before.requests@.len(), slot == id.slot,
                    request == (Request { tables: request.tables, ..r }),
                    before.inv(*fixed), request_shape(fixed.program, r), table_ok(before.pools@, before.blocks@, r, slot),
                    behind_released(r.tables@, request.tables@, group as int, page as int),
                    pools_touch(before.pools@, self.pools@, slot),
                    table_ok(self.pools@, before.blocks@, request, slot),
                    freed_only(before.pools@, self.pools@),
                    entries_listed(self.pools@, request, slot, 0),
                decreases end - page,
            {
                let ghost pools = self.pools@;
                let ghost tables = request.tables@;
                let ghost held = request;
                proof {
                    assert(entry_ok(self.pools@, before.blocks@, request, slot, group as int, page as int));
                }
                if request.tables[group][page] != NO_PAGE {
                    if page >= request.chain.len() {
                        self.pools[group].release(request.tables[group][page] as usize);
                    }
                    request.tables[group][page] = NO_PAGE;
                    released += 1;
                }
                proof {
                    assert forall|g: int, i: int| 0 <= g < request.tables@.len() && 0 <= i < request.tables@[g]@.len()
                        implies #[trigger] entry_ok(self.pools@, before.blocks@, request, slot, g, i) by {
                        assert(entry_ok(pools, before.blocks@, held, slot, g, i));
                    }
                    assert forall|g: int, p: int| 0 <= g < self.pools@.len() && 0 <= p < self.pools@[g].pages@.len()
                        implies #[trigger] entry_listed(self.pools@[g].pages@[p], request, slot, 0, g, p) by {
                        assert(entry_listed(pools[g].pages@[p], held, slot, 0, g, p));
                    }
                    assert forall|g: int, p: int| 0 <= g < self.pools@.len() && 0 <= p < self.pools@[g].pages@.len()
                        implies #[trigger] self.pools@[g].pages@[p] == before.pools@[g].pages@[p] || self.pools@[g].pages@[p] is Free by {
                        assert(pools[g].pages@[p] == before.pools@[g].pages@[p] || pools[g].pages@[p] is Free);
                    }
                    assert forall|g: int, p: int| 0 <= g < self.pools@.len() && 0 <= p < self.pools@[g].pages@.len()
                        implies #[trigger] self.pools@[g].pages@[p] == before.pools@[g].pages@[p] || touchable(before.pools@[g].pages@[p], slot) by {
                        assert(pools[g].pages@[p] == before.pools@[g].pages@[p] || touchable(before.pools@[g].pages@[p], slot));
                    }
                }
                page += 1;
            }
            self.requests[id.slot] = Some(request);
        }
        proof {
            let r2 = self.requests@[slot]->0;
            assert(owners_told(before, *self, slot)) by {
                assert forall|g: int, p: int| 0 <= g < self.pools@.len() && 0 <= p < self.pools@[g].pages@.len()
                    && (self.pools@[g].pages@[p] != before.pools@[g].pages@[p] || names_slot(self.pools@[g].pages@[p], slot))
                    implies owner_has(self.requests@, self.blocks@, #[trigger] self.pools@[g].pages@[p], g, p) by {
                    assert(entry_listed(self.pools@[g].pages@[p], r2, slot, 0, g, p));
                }
            }
            assert(request_shape(fixed.program, r2)) by {
                assert forall|g: int| 0 <= g < r2.tables@.len() implies r2.chain@.len() <= (#[trigger] r2.tables@[g])@.len()
                    && r2.cached <= r2.tables@[g]@.len() * PAGE && r2.tables@[g]@.len() <= COUNT_MAX by {
                    assert(r.chain@.len() <= r.tables@[g]@.len());
                }
            }
            assert(chain_ok(self.prefixes@, self.salts@, r2));
            assert(request_kv_ok(self.world(*fixed), self.dev@.cache, r2)) by {
                assert forall|layer: u32, j: int| fixed.program.keeps(layer) && 0 <= j < r2.cached
                    implies #[trigger] kv_at_ok(self.world(*fixed), self.dev@.cache, r2, layer, j) by {
                    assert(kv_at_ok(before.world(*fixed), before.dev@.cache, r, layer, j));
                    let g = group_of(fixed.program, layer);
                    assert(fixed.program.layers@[layer as int].group < fixed.program.groups@.len());
                    assert(r.cached <= r.tables@[g]@.len() * PAGE);
                }
            }
            lemma_frame(*fixed, before, *self, slot);
        }
        Ok(released)
    }
}

/// If the page is the request's, its table has it, at an index that is at least `from`.
pub open(crate) spec fn entry_listed<T>(page: Page, r: Request<T>, slot: int, from: int, g: int, p: int) -> bool {
    names_slot(page, slot) ==> page->Owned_index >= from && has_entry(r, g, page->Owned_index as int, p)
}

pub open(crate) spec fn entries_listed<T>(pools: Seq<Pool>, r: Request<T>, slot: int, from: int) -> bool {
    forall|g: int, p: int| 0 <= g < pools.len() && 0 <= p < pools[g].pages@.len()
        ==> #[trigger] entry_listed(pools[g].pages@[p], r, slot, from, g, p)
}

impl<S: Sampler> State<S> {
    /// A request's own pages stand in its table, after its chain.
    pub(crate) proof fn lemma_listed(self, fixed: Fixed<S>, slot: int)
        requires self.inv_static(fixed), live(self.requests@, slot),
        ensures
            entries_listed(self.pools@, self.requests@[slot]->0, slot, 0),
            entries_listed(self.pools@, self.requests@[slot]->0, slot, self.requests@[slot]->0.chain@.len() as int),
    {
        reveal(State::inv_owners);
        reveal(State::inv_tables);
        let r = self.requests@[slot]->0;
        assert(table_ok(self.pools@, self.blocks@, r, slot));
        assert forall|g: int, p: int| 0 <= g < self.pools@.len() && 0 <= p < self.pools@[g].pages@.len()
            implies #[trigger] entry_listed(self.pools@[g].pages@[p], r, slot, r.chain@.len() as int, g, p) by {
            let page = self.pools@[g].pages@[p];
            assert(owner_has(self.requests@, self.blocks@, self.pools@[g].pages@[p], g, p));
            if names_slot(page, slot) {
                assert(entry_ok(self.pools@, self.blocks@, r, slot, g, page->Owned_index as int));
            }
        }
        assert forall|g: int, p: int| 0 <= g < self.pools@.len() && 0 <= p < self.pools@[g].pages@.len()
            implies #[trigger] entry_listed(self.pools@[g].pages@[p], r, slot, 0, g, p) by {
            assert(entry_listed(self.pools@[g].pages@[p], r, slot, r.chain@.len() as int, g, p));
        }
    }
}

/// Frees the pages of tables that are the request's own: those from `from` on.
pub(crate) fn release_own<T>(pools: &mut Vec<Pool>, request: &Request<T>, from: usize, slot: Ghost<int>)
    requires
        request.tables@.len() == old(pools)@.len(),
        entries_listed(old(pools)@, *request, slot@, from as int),
        forall|g: int| 0 <= g < old(pools)@.len() ==> (#[trigger] old(pools)@[g]).wf(),
        forall|g: int, i: int| 0 <= g < request.tables@.len() && from <= i < request.tables@[g]@.len()
            ==> #[trigger] own_entry(old(pools)@, request.tables@, slot@, g, i),
    ensures
        pools_touch(old(pools)@, final(pools)@, slot@),
        freed_only(old(pools)@, final(pools)@),
        // None of the request's pages is left.
        forall|g: int, p: int| 0 <= g < final(pools)@.len() && 0 <= p < final(pools)@[g].pages@.len()
            ==> !names_slot(#[trigger] final(pools)@[g].pages@[p], slot@),
{
    let ghost before = pools@;
    let tables = &request.tables;
    let mut group: usize = 0;
    proof {
        assert forall|g: int, p: int| 0 <= g < pools@.len() && 0 <= p < pools@[g].pages@.len()
            implies #[trigger] left(pools@[g].pages@[p], *request, slot@, 0, from as int, from as int, g, p) by {
            assert(entry_listed(pools@[g].pages@[p], *request, slot@, from as int, g, p));
        }
    }
    while group < tables.len()
        invariant
            tables@.len() == pools@.len(), group <= tables@.len(), *tables == request.tables,
            pools_touch(before, pools@, slot@), freed_only(before, pools@),
            forall|g: int, p: int| 0 <= g < pools@.len() && 0 <= p < pools@[g].pages@.len()
                ==> #[trigger] left(pools@[g].pages@[p], *request, slot@, group as int, from as int, from as int, g, p),
            forall|g: int, i: int| group <= g < tables@.len() && from <= i < tables@[g]@.len()
                ==> #[trigger] own_entry(pools@, tables@, slot@, g, i),
        decreases tables.len() - group,
    {
        let mut i = from;
        while i < tables[group].len()
            invariant
                tables@.len() == pools@.len(), group < tables@.len(), from <= i, *tables == request.tables,
                pools_touch(before, pools@, slot@), freed_only(before, pools@),
                forall|g: int, p: int| 0 <= g < pools@.len() && 0 <= p < pools@[g].pages@.len()
                    ==> #[trigger] left(pools@[g].pages@[p], *request, slot@, group as int, i as int, from as int, g, p),
                forall|j: int| i <= j < tables@[group as int]@.len() ==> #[trigger] own_entry(pools@, tables@, slot@, group as int, j),
                forall|g: int, j: int| group < g < tables@.len() && from <= j < tables@[g]@.len()
                    ==> #[trigger] own_entry(pools@, tables@, slot@, g, j),
            decreases tables@[group as int]@.len() - i,
        {
            let ghost now = pools@;
            proof { assert(own_entry(pools@, tables@, slot@, group as int, i as int)); }
            if tables[group][i] != NO_PAGE {
                pools[group].release(tables[group][i] as usize);
            }
            proof {
                assert forall|j: int| i + 1 <= j < tables@[group as int]@.len()
                    implies #[trigger] own_entry(pools@, tables@, slot@, group as int, j) by {
                    assert(own_entry(now, tables@, slot@, group as int, j));
                }
                assert forall|g: int, j: int| group < g < tables@.len() && from <= j < tables@[g]@.len()
                    implies #[trigger] own_entry(pools@, tables@, slot@, g, j) by {
                    assert(own_entry(now, tables@, slot@, g, j));
                }
                assert forall|g: int, p: int| 0 <= g < pools@.len() && 0 <= p < pools@[g].pages@.len()
                    implies #[trigger] left(pools@[g].pages@[p], *request, slot@, group as int, i + 1, from as int, g, p) by {
                    assert(left(now[g].pages@[p], *request, slot@, group as int, i as int, from as int, g, p));
                }
                assert forall|g: int, p: int| 0 <= g < pools@.len() && 0 <= p < pools@[g].pages@.len()
                    implies #[trigger] pools@[g].pages@[p] == before[g].pages@[p] || pools@[g].pages@[p] is Free by {
                    assert(now[g].pages@[p] == before[g].pages@[p] || now[g].pages@[p] is Free);
                }
                assert forall|g: int, p: int| 0 <= g < pools@.len() && 0 <= p < pools@[g].pages@.len()
                    implies #[trigger] pools@[g].pages@[p] == before[g].pages@[p] || touchable(before[g].pages@[p], slot@) by {
                    assert(now[g].pages@[p] == before[g].pages@[p] || touchable(before[g].pages@[p], slot@));
                }
            }
            i += 1;
        }
        proof {
            assert forall|g: int, p: int| 0 <= g < pools@.len() && 0 <= p < pools@[g].pages@.len()
                implies #[trigger] left(pools@[g].pages@[p], *request, slot@, group + 1, from as int, from as int, g, p) by {
                assert(left(pools@[g].pages@[p], *request, slot@, group as int, i as int, from as int, g, p));
            }
        }
        group += 1;
    }
    proof {
        assert forall|g: int, p: int| 0 <= g < pools@.len() && 0 <= p < pools@[g].pages@.len()
            implies !names_slot(#[trigger] pools@[g].pages@[p], slot@) by {
            assert(left(pools@[g].pages@[p], *request, slot@, group as int, from as int, from as int, g, p));
        }
    }
}

/// If the page is the request's, its table has it at or after this place: later groups from `from` on, this one from i on.
pub open(crate) spec fn left<T>(page: Page, r: Request<T>, slot: int, group: int, i: int, from: int, g: int, p: int) -> bool {
    names_slot(page, slot) ==> group <= g && page->Owned_index >= (if g == group { i } else { from })
        && has_entry(r, g, page->Owned_index as int, p)
}

/// Entry i of group g is nothing or the request's own page.
pub open(crate) spec fn own_entry(pools: Seq<Pool>, tables: Seq<Vec<i32>>, slot: int, g: int, i: int) -> bool {
    let page = tables[g]@[i];
    page != NO_PAGE ==> 0 <= page < pools[g].pages@.len() && owned_by(pools[g].pages@[page as int], slot, i)
}

/// Pages that cover a context.
pub(crate) fn pages_for(context: u32) -> (n: usize)
    requires context > 0,
    ensures n == context_pages(context),
{
    (context as usize - 1) / PAGE + 1
}

} // verus!
