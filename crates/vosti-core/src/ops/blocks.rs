//! The prefix cache's mechanism: publish a committed block, attach one, evict one. Policy chooses which blocks to try and to
//! drop; this file decides which blocks may be shared.

use super::pages::*;
use crate::block::{Block, Parent};
use crate::effects::*;
use crate::error::CoreError;
use crate::ids::{BlockId, NO_PAGE, PAGE, RequestId, Token};
use crate::invariant::*;
use crate::legal::*;
use crate::pages::{Page, Pool};
use crate::program::*;
use crate::proof::canonical::*;
use crate::proof::forward::*;
use crate::proof::frame::*;
use crate::proof::reference::*;
use crate::proof::sharing::*;
use crate::request::Request;
use crate::seam::*;
use crate::spec::*;
use crate::state::*;
use crate::views::*;
use vstd::prelude::*;

verus! {

impl<S: Sampler> State<S> {
    pub(crate) fn publish(&mut self, fixed: &Fixed<S>, id: RequestId) -> (out: Result<Option<BlockId>, CoreError>)
        requires old(self).inv(*fixed),
        ensures
            final(self).inv(*fixed), final(self).dev@ == old(self).dev@,
            out is Ok <==> old(self).legal_publish(id),
            out is Err ==> *final(self) == *old(self),
            out matches Ok(block) ==> old(self).did_publish(*final(self), id, block),
    {
        let ghost before = *self;
        let ghost rslot = id.slot as int;
        let request = self.mutable(id)?;
        let ghost r = *request;
        proof {
            reveal(State::inv_shape);
            reveal(State::inv_tables);
            reveal(State::inv_chains);
            reveal(State::inv_blocks);
            assert(before.requests@[rslot]->0 == r);
            assert(request_shape(fixed.program, r));
            assert(table_ok(before.pools@, before.blocks@, r, rslot));
            assert(chain_ok(before.prefixes@, before.salts@, r));
        }
        let depth = request.chain.len();
        if request.cached / PAGE <= depth {
            return Ok(None);
        }
        if self.next_block == u64::MAX {
            return Err(CoreError::IdentitiesExhausted);
        }
        let slot = self.vacant_block();
        let ghost vacant = self.blocks@;
        let serial = self.next_block;
        self.next_block = serial + 1;
        let block = BlockId { slot, serial };
        if let Some(mut request) = self.requests[id.slot].take() {
            proof {
                before.lemma_own(*fixed, rslot);
                assert forall|g: int| 0 <= g < r.tables@.len() implies depth < (#[trigger] r.tables@[g])@.len() by {
                    assert(r.cached <= r.tables@[g]@.len() * PAGE);
                }
                assert forall|g: int| 0 <= g < r.tables@.len() implies #[trigger] own_entry(self.pools@, r.tables@, rslot, g, depth as int) by {
                    assert(depth < r.tables@[g]@.len());
                    assert(own_entry(before.pools@, r.tables@, rslot, g, depth as int));
                }
            }
            let pages = register_pages(&mut self.pools, &request.tables, depth, slot, Ghost(rslot));
            let ghost prefix = request.history@.subrange(0, (depth + 1) * PAGE);
            self.blocks[slot] = Some(Block {
                serial,
                parent: request.parent(),
                depth,
                tokens: block_tokens(&request.history, depth),
                pages,
            });
            request.chain.push(block);
            self.requests[id.slot] = Some(request);
            self.prefixes = Ghost(self.prefixes@.insert(serial, prefix));
            self.salts = Ghost(self.salts@.insert(serial, r.salt));
        }
        proof {
            let r2 = self.requests@[rslot]->0;
            let n = self.blocks@[slot as int]->0;
            assert(self.requests@ =~= before.requests@.update(rslot, Some(r2)));
            assert(self.blocks@ =~= vacant.update(slot as int, self.blocks@[slot as int]));
            assert(r2 == (Request { chain: r2.chain, ..r }));
            assert(n.tokens@ == r.history@.subrange(depth * PAGE, (depth + 1) * PAGE));
            assert(pools_touch(before.pools@, self.pools@, rslot));
            lemma_publish(*fixed, before, *self, id, block, vacant);
        }
        Ok(Some(block))
    }

    pub(crate) fn attach(&mut self, fixed: &Fixed<S>, id: RequestId, block_id: BlockId) -> (out: Result<(), CoreError>)
        requires old(self).inv(*fixed),
        ensures
            final(self).inv(*fixed), final(self).dev@ == old(self).dev@,
            out is Ok <==> old(self).legal_attach(id, block_id),
            out is Err ==> *final(self) == *old(self),
            out is Ok ==> old(self).did_attach(*final(self), id, block_id),
    {
        let ghost before = *self;
        let ghost rslot = id.slot as int;
        let request = self.mutable(id)?;
        let ghost r = *request;
        let block = match self.block(block_id) {
            None => return Err(CoreError::UnknownBlock { block: block_id }),
            Some(block) => block,
        };
        let ghost held = *block;
        proof {
            reveal(State::inv_shape);
            reveal(State::inv_tables);
            reveal(State::inv_chains);
            reveal(State::inv_blocks);
            reveal(State::inv_block_pages);
            assert(before.requests@[rslot]->0 == r);
            assert(before.blocks@[block_id.slot as int]->0 == held);
            assert(request_shape(fixed.program, r));
            assert(table_ok(before.pools@, before.blocks@, r, rslot));
            assert(chain_ok(before.prefixes@, before.salts@, r));
            assert(block_shape(fixed.program, before.prefixes@, before.salts@, held));
            assert(block_pages_ok(before.pools@, held, block_id.slot as int));
        }
        let depth = request.chain.len();
        if !at_block_boundary(request) {
            return Err(CoreError::NotAtBlockBoundary { cached: request.cached });
        }
        if (request.history.len() - 1) / PAGE <= depth {
            return Err(CoreError::NothingLeftToCompute);
        }
        if block.depth != depth || !same_parent(block.parent, request.parent())
            || !same_tokens(&request.history, depth * PAGE, &block.tokens) {
            return Err(CoreError::BlockMismatch);
        }
        if let Some(mut request) = self.requests[id.slot].take() {
            if let Some(block) = &self.blocks[block_id.slot] {
                let mut group: usize = 0;
                while group < request.tables.len()
                    invariant
                        group <= request.tables@.len() == r.tables@.len(), *block == held,
                        request == (Request { tables: request.tables, ..r }),
                        held.pages@.len() == r.tables@.len(),
                        forall|g: int| 0 <= g < r.tables@.len() ==> (#[trigger] request.tables@[g])@
                            == if g < group { r.tables@[g]@.push(held.pages@[g]) } else { r.tables@[g]@ },
                    decreases request.tables.len() - group,
                {
                    request.tables[group].push(block.pages[group]);
                    group += 1;
                }
            }
            request.chain.push(block_id);
            request.cached = (depth + 1) * PAGE;
            self.requests[id.slot] = Some(request);
        }
        proof {
            let r2 = self.requests@[rslot]->0;
            assert(self.requests@ =~= before.requests@.update(rslot, Some(r2)));
            assert(r2 == (Request { tables: r2.tables, chain: r2.chain, cached: r2.cached, ..r }));
            assert(r2.cached == r.cached + PAGE);
            assert(r2.tables@.len() == r.tables@.len());
            assert forall|g: int| 0 <= g < r.tables@.len() implies (#[trigger] r2.tables@[g])@ == r.tables@[g]@.push(held.pages@[g]) by {}
            lemma_attach(*fixed, before, *self, id, block_id);
        }
        Ok(())
    }

    pub(crate) fn evict(&mut self, fixed: &Fixed<S>, id: BlockId) -> (out: Result<(), CoreError>)
        requires old(self).inv(*fixed),
        ensures
            final(self).inv(*fixed), final(self).dev@ == old(self).dev@,
            out is Ok <==> old(self).legal_evict(id),
            out is Err ==> *final(self) == *old(self),
            out is Ok ==> old(self).did_evict(*final(self), id),
    {
        let ghost before = *self;
        let block = match self.block(id) {
            None => return Err(CoreError::UnknownBlock { block: id }),
            Some(block) => block,
        };
        let ghost held = *block;
        if self.block_in_use(id, block.depth) {
            return Err(CoreError::BlockInUse { block: id });
        }
        proof {
            reveal(State::inv_shape);
            reveal(State::inv_blocks);
            reveal(State::inv_block_pages);
            assert(before.blocks@[id.slot as int]->0 == held);
            assert(block_shape(fixed.program, before.prefixes@, before.salts@, held));
            assert(block_pages_ok(before.pools@, held, id.slot as int));
        }
        if let Some(block) = self.blocks[id.slot].take() {
            proof {
                assert forall|g: int| 0 <= g < held.pages@.len() implies #[trigger] page_registered(self.pools@, held.pages@, id.slot as int, g) by {
                    assert(block_page_ok(before.pools@, held, id.slot as int, g));
                }
            }
            release_pages(&mut self.pools, &block.pages, Ghost(id.slot as int));
        }
        self.block_slots.push(id.slot);
        proof {
            lemma_evict(*fixed, before, *self, id);
        }
        Ok(())
    }

    pub(crate) fn evict_page(&mut self, fixed: &Fixed<S>, id: BlockId, group: usize) -> (out: Result<(), CoreError>)
        requires old(self).inv(*fixed),
        ensures
            final(self).inv(*fixed), final(self).dev@ == old(self).dev@,
            out is Ok <==> old(self).legal_evict_page(id, group),
            out is Err ==> *final(self) == *old(self),
            out is Ok ==> old(self).did_evict_page(*final(self), id, group),
    {
        let ghost before = *self;
        let block = match self.block(id) {
            None => return Err(CoreError::UnknownBlock { block: id }),
            Some(block) => block,
        };
        let ghost held = *block;
        if group >= self.pools.len() {
            return Err(CoreError::GroupOutOfRange { group });
        }
        proof {
            reveal(State::inv_shape);
            reveal(State::inv_blocks);
            reveal(State::inv_block_pages);
            assert(before.blocks@[id.slot as int]->0 == held);
            assert(block_shape(fixed.program, before.prefixes@, before.salts@, held));
            assert(block_pages_ok(before.pools@, held, id.slot as int));
            assert(block_page_ok(before.pools@, held, id.slot as int, group as int));
        }
        if block.pages[group] == NO_PAGE {
            return Err(CoreError::BlockPageMissing { block: id, group });
        }
        if self.page_in_use(id, block.depth, group) {
            return Err(CoreError::BlockInUse { block: id });
        }
        if let Some(mut block) = self.blocks[id.slot].take() {
            self.pools[group].release(block.pages[group] as usize);
            block.pages[group] = NO_PAGE;
            self.blocks[id.slot] = Some(block);
        }
        proof {
            lemma_evict(*fixed, before, *self, id);
        }
        Ok(())
    }

    /// Whether a request's table has one of the block's pages.
    fn block_in_use(&self, id: BlockId, depth: usize) -> (yes: bool)
        ensures yes <==> exists|g: int| 0 <= g < self.pools@.len() && #[trigger] self.in_use(id, depth as int, g),
    {
        let mut group: usize = 0;
        while group < self.pools.len()
            invariant
                group <= self.pools@.len(),
                forall|g: int| 0 <= g < group ==> !#[trigger] self.in_use(id, depth as int, g),
            decreases self.pools.len() - group,
        {
            if self.page_in_use(id, depth, group) {
                return true;
            }
            group += 1;
        }
        false
    }
}

/// Registers the request's page of this depth in every group, and lists them.
fn register_pages(pools: &mut Vec<Pool>, tables: &Vec<Vec<i32>>, depth: usize, block: usize, slot: Ghost<int>) -> (pages: Vec<i32>)
    requires
        tables@.len() == old(pools)@.len(),
        forall|g: int| 0 <= g < old(pools)@.len() ==> (#[trigger] old(pools)@[g]).wf(),
        forall|g: int| 0 <= g < tables@.len() ==> depth < (#[trigger] tables@[g])@.len(),
        forall|g: int| 0 <= g < tables@.len() ==> #[trigger] own_entry(old(pools)@, tables@, slot@, g, depth as int),
    ensures
        pages@.len() == tables@.len(),
        forall|g: int| 0 <= g < tables@.len() ==> #[trigger] pages@[g] == tables@[g]@[depth as int],
        pools_touch(old(pools)@, final(pools)@, slot@),
        forall|g: int, p: int| 0 <= g < tables@.len() && 0 <= p < final(pools)@[g].pages@.len() ==>
            #[trigger] final(pools)@[g].pages@[p] == if p == tables@[g]@[depth as int] && p != NO_PAGE {
                Page::Registered { block }
            } else {
                old(pools)@[g].pages@[p]
            },
{
    let ghost before = pools@;
    let mut pages: Vec<i32> = Vec::with_capacity(tables.len());
    let mut group: usize = 0;
    while group < tables.len()
        invariant
            tables@.len() == pools@.len() == before.len(), group <= tables@.len(), pages@.len() == group,
            forall|g: int| 0 <= g < group ==> #[trigger] pages@[g] == tables@[g]@[depth as int],
            forall|g: int| 0 <= g < pools@.len() ==> (#[trigger] pools@[g]).wf() && pools@[g].pages@.len() == before[g].pages@.len(),
            forall|g: int| 0 <= g < tables@.len() ==> depth < (#[trigger] tables@[g])@.len(),
            forall|g: int| 0 <= g < tables@.len() ==> #[trigger] own_entry(before, tables@, slot@, g, depth as int),
            forall|g: int| group <= g < pools@.len() ==> #[trigger] pools@[g] == before[g],
            forall|g: int, p: int| 0 <= g < group && 0 <= p < pools@[g].pages@.len() ==>
                #[trigger] pools@[g].pages@[p] == if p == tables@[g]@[depth as int] && p != NO_PAGE {
                    Page::Registered { block }
                } else {
                    before[g].pages@[p]
                },
        decreases tables.len() - group,
    {
        let ghost now = pools@;
        let page = tables[group][depth];
        proof {
            assert(own_entry(before, tables@, slot@, group as int, depth as int));
            assert(pools@[group as int] == before[group as int]);
        }
        if page != NO_PAGE {
            pools[group].register(page as usize, block);
        }
        pages.push(page);
        proof {
            assert forall|g: int, p: int| 0 <= g < group + 1 && 0 <= p < pools@[g].pages@.len() implies
                #[trigger] pools@[g].pages@[p] == (if p == tables@[g]@[depth as int] && p != NO_PAGE {
                    Page::Registered { block }
                } else {
                    before[g].pages@[p]
                }) by {
                if g < group {
                    assert(pools@[g] == now[g]);
                    assert(now[g].pages@[p] == if p == tables@[g]@[depth as int] && p != NO_PAGE {
                        Page::Registered { block }
                    } else {
                        before[g].pages@[p]
                    });
                }
            }
        }
        group += 1;
    }
    proof {
        assert forall|g: int, p: int| 0 <= g < pools@.len() && 0 <= p < pools@[g].pages@.len()
            implies #[trigger] pools@[g].pages@[p] == before[g].pages@[p] || touchable(before[g].pages@[p], slot@) by {
            assert(own_entry(before, tables@, slot@, g, depth as int));
        }
    }
    pages
}

/// Frees a block's pages.
fn release_pages(pools: &mut Vec<Pool>, pages: &Vec<i32>, slot: Ghost<int>)
    requires
        pages@.len() == old(pools)@.len(),
        forall|g: int| 0 <= g < old(pools)@.len() ==> (#[trigger] old(pools)@[g]).wf(),
        forall|g: int| 0 <= g < pages@.len() ==> #[trigger] page_registered(old(pools)@, pages@, slot@, g),
    ensures pools_released(old(pools)@, final(pools)@, pages@),
{
    let ghost before = pools@;
    let mut group: usize = 0;
    while group < pages.len()
        invariant
            pages@.len() == pools@.len() == before.len(), group <= pages@.len(),
            forall|g: int| 0 <= g < pools@.len() ==> (#[trigger] pools@[g]).wf() && pools@[g].pages@.len() == before[g].pages@.len(),
            forall|g: int| 0 <= g < pages@.len() ==> #[trigger] page_registered(before, pages@, slot@, g),
            forall|g: int| group <= g < pools@.len() ==> #[trigger] pools@[g] == before[g],
            forall|g: int, p: int| 0 <= g < pools@.len() && 0 <= p < pools@[g].pages@.len() && p != pages@[g]
                ==> #[trigger] pools@[g].pages@[p] == before[g].pages@[p],
            forall|g: int, p: int| 0 <= g < group && 0 <= p < pools@[g].pages@.len() && p == pages@[g]
                ==> (#[trigger] pools@[g].pages@[p]) is Free,
        decreases pages.len() - group,
    {
        let ghost now = pools@;
        proof {
            assert(page_registered(before, pages@, slot@, group as int));
            assert(pools@[group as int] == before[group as int]);
        }
        if pages[group] != NO_PAGE {
            pools[group].release(pages[group] as usize);
        }
        proof {
            assert forall|g: int, p: int| 0 <= g < pools@.len() && 0 <= p < pools@[g].pages@.len() && p != pages@[g]
                implies #[trigger] pools@[g].pages@[p] == before[g].pages@[p] by {
                assert(now[g].pages@[p] == before[g].pages@[p]);
            }
            assert forall|g: int, p: int| 0 <= g < group + 1 && 0 <= p < pools@[g].pages@.len() && p == pages@[g]
                implies (#[trigger] pools@[g].pages@[p]) is Free by {
                if g < group {
                    assert(pools@[g] == now[g]);
                    assert(now[g].pages@[p] is Free);
                }
            }
        }
        group += 1;
    }
}

/// Whether everything that the request has cached came from its chain, and it has no page of its own.
fn at_block_boundary<T>(request: &Request<T>) -> (yes: bool)
    requires request.chain@.len() * PAGE <= request.cached,
    ensures yes == only_chained(*request),
{
    if request.cached != request.chain.len() * PAGE {
        return false;
    }
    let mut group: usize = 0;
    while group < request.tables.len()
        invariant
            group <= request.tables@.len(),
            forall|g: int| 0 <= g < group ==> (#[trigger] request.tables@[g])@.len() == request.chain@.len(),
        decreases request.tables.len() - group,
    {
        if request.tables[group].len() != request.chain.len() {
            return false;
        }
        group += 1;
    }
    true
}

/// Whether two parents are one.
fn same_parent(a: Parent, b: Parent) -> (yes: bool)
    ensures yes == (a == b),
{
    match (a, b) {
        (Parent::Root { salt: x }, Parent::Root { salt: y }) => x == y,
        (Parent::Block { serial: x }, Parent::Block { serial: y }) => x == y,
        _ => false,
    }
}

/// Whether the history goes on with these tokens at `from`.
fn same_tokens(history: &Vec<Token>, from: usize, tokens: &Vec<Token>) -> (yes: bool)
    requires from + tokens@.len() <= history@.len(),
    ensures yes == (tokens@ == history@.subrange(from as int, from + tokens@.len())),
{
    let length = history.len();
    let mut i: usize = 0;
    while i < tokens.len()
        invariant
            i <= tokens@.len(), from + tokens@.len() <= history@.len(), length == history@.len(),
            forall|j: int| 0 <= j < i ==> #[trigger] tokens@[j] == history@[from + j],
        decreases tokens.len() - i,
    {
        if history[from + i] != tokens[i] {
            proof { assert(tokens@[i as int] != history@.subrange(from as int, from + tokens@.len())[i as int]); }
            return false;
        }
        i += 1;
    }
    proof { assert(tokens@ =~= history@.subrange(from as int, from + tokens@.len())); }
    true
}

/// The history's tokens of the page of this depth.
fn block_tokens(history: &Vec<Token>, depth: usize) -> (tokens: Vec<Token>)
    requires (depth + 1) * PAGE <= history@.len(),
    ensures tokens@ == history@.subrange(depth * PAGE, (depth + 1) * PAGE),
{
    let mut tokens: Vec<Token> = Vec::with_capacity(PAGE);
    let length = history.len();
    let mut i: usize = 0;
    while i < PAGE
        invariant
            i <= PAGE, tokens@.len() == i, (depth + 1) * PAGE <= history@.len(), length == history@.len(),
            forall|j: int| 0 <= j < i ==> #[trigger] tokens@[j] == history@[depth * PAGE + j],
        decreases PAGE - i,
    {
        tokens.push(history[depth * PAGE + i]);
        i += 1;
    }
    proof { assert(tokens@ =~= history@.subrange(depth * PAGE, (depth + 1) * PAGE)); }
    tokens
}

} // verus!
