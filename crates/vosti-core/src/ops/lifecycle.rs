//! Requests come and go: admit, preempt, abort, finish.

use super::pages::*;
use crate::effects::*;
use crate::error::CoreError;
use crate::ids::{NO_PAGE, PAGE, RequestId, Token};
use crate::invariant::*;
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

/// One more event.
pub(crate) proof fn lemma_event(log: Seq<Event<Bits, Bits>>, event: Event<Bits, Bits>)
    ensures
        views(log.push(event)) == after(views(log), event),
        orderly(log.push(event)) <==> orderly(log) && follows(views(log), event),
{
    assert(log.push(event).drop_last() =~= log);
}

impl<S: Sampler> State<S> {
    pub(crate) fn admit(&mut self, fixed: &Fixed<S>, prompt: Vec<Token>, salt: u64, state: S::State) -> (out: Result<RequestId, CoreError>)
        requires old(self).inv(*fixed),
        ensures
            final(self).inv(*fixed), final(self).dev@ == old(self).dev@,
            out is Ok <==> old(self).legal_admit(*fixed, prompt@),
            out is Err ==> *final(self) == *old(self),
            out matches Ok(id) ==> {
                &&& old(self).did_admit(*final(self), id, prompt@, salt, S::state_bits(&state))
                &&& final(self).log@ == old(self).log@.push(
                    Event::Admitted { request: id.serial, prompt: prompt@, initial: S::state_bits(&state) })
            },
    {
        if prompt.len() == 0 {
            return Err(CoreError::EmptyPrompt);
        }
        if prompt.len() >= fixed.program.context as usize {
            return Err(CoreError::PromptTooLong { tokens: prompt.len(), context: fixed.program.context });
        }
        if self.next_request == u64::MAX {
            return Err(CoreError::IdentitiesExhausted);
        }
        self.check_tokens(fixed, prompt.as_slice())?;
        let ghost before = *self;
        let ghost event: Event<Bits, Bits> = Event::Admitted { request: self.next_request, prompt: prompt@, initial: S::state_bits(&state) };
        let serial = self.next_request;
        self.next_request = serial + 1;
        let slot = self.vacant_request();
        let ghost vacant = self.requests@;
        let tables = no_tables(fixed.program.groups.len());
        self.requests[slot] = Some(Request {
            serial,
            salt,
            prompt: prompt.len(),
            history: prompt,
            cached: 0,
            tables,
            chain: Vec::new(),
            done: false,
            planned: None,
            state,
        });
        self.log = Ghost(self.log@.push(event));
        proof {
            reveal(State::inv_shape);
            reveal(State::inv_log);
            reveal(State::inv_blocks);
            lemma_event(before.log@, event);
            let world = before.world(*fixed);
            let r = self.requests@[slot as int]->0;
            assert(request_ok(world, *self, slot as int)) by {
                reveal(tokens_in);
            }
            assert(log_kept(world, before, *self, slot as int)) by {
                assert forall|k: u64| #[trigger] views(self.log@).contains_key(k) implies view_ok(world, views(self.log@)[k]) by {
                    if k != serial {
                        assert(views(before.log@).contains_key(k));
                    }
                }
                assert forall|t: int| t != slot && live(self.requests@, t) implies
                    views(self.log@)[(#[trigger] self.requests@[t])->0.serial] == views(before.log@)[self.requests@[t]->0.serial] by {
                    assert(live(vacant, t));
                    assert(live(before.requests@, t));
                    assert(before.requests@[t]->0.serial < before.next_request);
                }
            }
            assert forall|t: int| t != slot && live(self.requests@, t) implies (#[trigger] self.requests@[t])->0.serial != serial by {
                assert(live(vacant, t));
                assert(live(before.requests@, t));
                assert(before.requests@[t]->0.serial < before.next_request);
            }
            assert(pools_touch(before.pools@, self.pools@, slot as int));
            assert(owners_told(before, *self, slot as int)) by {
                reveal(State::inv_owners);
                assert forall|g: int, p: int| 0 <= g < self.pools@.len() && 0 <= p < self.pools@[g].pages@.len()
                    && names_slot(self.pools@[g].pages@[p], slot as int)
                    implies owner_has(self.requests@, self.blocks@, #[trigger] self.pools@[g].pages@[p], g, p) by {
                    assert(owner_has(before.requests@, before.blocks@, before.pools@[g].pages@[p], g, p));
                }
            }
            assert(others_same(before.requests@, self.requests@, slot as int)) by {
                assert forall|t: int| t != slot implies (live(before.requests@, t) <==> #[trigger] live(self.requests@, t))
                    && (live(self.requests@, t) ==> self.requests@[t] == before.requests@[t]) by {
                    assert(live(vacant, t) <==> live(before.requests@, t));
                }
            }
            lemma_frame(*fixed, before, *self, slot as int);
        }
        Ok(RequestId { slot, serial })
    }

    pub(crate) fn preempt(&mut self, fixed: &Fixed<S>, id: RequestId) -> (out: Result<(), CoreError>)
        requires old(self).inv(*fixed),
        ensures
            final(self).inv(*fixed), final(self).dev@ == old(self).dev@,
            out is Ok <==> old(self).legal_preempt(id),
            out is Err ==> *final(self) == *old(self),
            out is Ok ==> old(self).did_preempt(*final(self), id),
    {
        self.mutable(id)?;
        let ghost before = *self;
        let ghost slot = id.slot as int;
        let groups = fixed.program.groups.len();
        if let Some(mut request) = self.requests[id.slot].take() {
            proof {
                before.lemma_own(*fixed, slot);
                before.lemma_listed(*fixed, slot);
            }
            release_own(&mut self.pools, &request, request.chain.len(), Ghost(slot));
            request.tables = no_tables(groups);
            request.chain.clear();
            request.cached = 0;
            self.requests[id.slot] = Some(request);
        }
        proof {
            reveal(State::inv_shape);
            reveal(State::inv_log);
            reveal(State::inv_blocks);
            let r = before.requests@[slot]->0;
            assert(request_shape(fixed.program, r));
            assert(request_ok(before.world(*fixed), *self, slot));
            lemma_frame(*fixed, before, *self, slot);
        }
        Ok(())
    }

    pub(crate) fn abort(&mut self, fixed: &Fixed<S>, id: RequestId) -> (out: Result<(), CoreError>)
        requires old(self).inv(*fixed),
        ensures
            final(self).inv(*fixed), final(self).dev@ == old(self).dev@,
            out is Ok <==> old(self).legal_abort(id),
            out is Err ==> *final(self) == *old(self),
            out is Ok ==> old(self).did_remove(*final(self), id) && final(self).log@ == old(self).log@,
    {
        self.mutable(id)?;
        let ghost before = *self;
        self.remove(fixed, id);
        proof {
            reveal(State::inv_log);
            reveal(State::inv_blocks);
            lemma_frame(*fixed, before, *self, id.slot as int);
        }
        Ok(())
    }

    pub(crate) fn finish(&mut self, fixed: &Fixed<S>, id: RequestId) -> (out: Result<(), CoreError>)
        requires old(self).inv(*fixed),
        ensures
            final(self).inv(*fixed), final(self).dev@ == old(self).dev@,
            out is Ok <==> old(self).legal_finish(*fixed, id),
            out is Err ==> *final(self) == *old(self),
            out is Ok ==> old(self).did_remove(*final(self), id)
                && final(self).log@ == old(self).log@.push(Event::Completed { request: id.serial }),
    {
        let request = self.mutable(id)?;
        if !request.complete(fixed.program.context) {
            return Err(CoreError::RequestNotComplete { request: id });
        }
        let ghost before = *self;
        let ghost event: Event<Bits, Bits> = Event::Completed { request: id.serial };
        self.remove(fixed, id);
        self.log = Ghost(self.log@.push(event));
        proof {
            reveal(State::inv_shape);
            reveal(State::inv_log);
            reveal(State::inv_blocks);
            lemma_event(before.log@, event);
            let slot = id.slot as int;
            let world = before.world(*fixed);
            let r = before.requests@[slot]->0;
            assert(request_shape(fixed.program, r));
            let seen = views(before.log@)[r.serial];
            assert(run_ok::<S>(world, seen, r));
            assert(views(before.log@).contains_key(r.serial));
            lemma_reference(world, seen.prompt, seen.initial, seen.entries.len(), seen.entries.len());
            assert(log_kept(world, before, *self, slot)) by {
                assert forall|k: u64| #[trigger] views(self.log@).contains_key(k) implies view_ok(world, views(self.log@)[k]) by {
                    assert(views(before.log@).contains_key(k));
                    assert(view_ok(world, views(before.log@)[k]));
                }
                assert forall|t: int| t != slot && live(self.requests@, t) implies
                    views(self.log@)[(#[trigger] self.requests@[t])->0.serial] == views(before.log@)[self.requests@[t]->0.serial] by {
                    assert(live(before.requests@, t));
                    assert(before.requests@[t] == self.requests@[t]);
                    assert(before.requests@[t]->0.serial != before.requests@[slot]->0.serial);
                }
            }
            lemma_frame(*fixed, before, *self, slot);
        }
        Ok(())
    }

    fn remove(&mut self, fixed: &Fixed<S>, id: RequestId)
        requires old(self).inv(*fixed), old(self).free_to_change(id),
        ensures
            final(self).requests@ == old(self).requests@.update(id.slot as int, None),
            pools_touch(old(self).pools@, final(self).pools@, id.slot as int),
            freed_only(old(self).pools@, final(self).pools@),
            forall|g: int, p: int| 0 <= g < final(self).pools@.len() && 0 <= p < final(self).pools@[g].pages@.len()
                ==> !names_slot(#[trigger] final(self).pools@[g].pages@[p], id.slot as int),
            *final(self) == (State { pools: final(self).pools, requests: final(self).requests, request_slots: final(self).request_slots, ..*old(self) }),
    {
        let ghost before = *self;
        if let Some(request) = self.requests[id.slot].take() {
            proof {
                before.lemma_own(*fixed, id.slot as int);
                before.lemma_listed(*fixed, id.slot as int);
            }
            release_own(&mut self.pools, &request, request.chain.len(), Ghost(id.slot as int));
        }
        self.request_slots.push(id.slot);
    }

    /// Entries after the chain are the request's own.
    pub(crate) proof fn lemma_own(self, fixed: Fixed<S>, slot: int)
        requires self.inv(fixed), live(self.requests@, slot),
        ensures
            ({
                let r = self.requests@[slot]->0;
                &&& r.tables@.len() == self.pools@.len()
                &&& forall|g: int| 0 <= g < self.pools@.len() ==> (#[trigger] self.pools@[g]).wf()
                &&& forall|g: int, i: int| 0 <= g < r.tables@.len() && r.chain@.len() <= i < r.tables@[g]@.len()
                    ==> #[trigger] own_entry(self.pools@, r.tables@, slot, g, i)
            }),
    {
        reveal(State::inv_shape);
        reveal(State::inv_tables);
        let r = self.requests@[slot]->0;
        assert(request_shape(fixed.program, r));
        assert(table_ok(self.pools@, self.blocks@, r, slot));
        assert forall|g: int, i: int| 0 <= g < r.tables@.len() && r.chain@.len() <= i < r.tables@[g]@.len()
            implies #[trigger] own_entry(self.pools@, r.tables@, slot, g, i) by {
            assert(entry_ok(self.pools@, self.blocks@, r, slot, g, i));
        }
    }
}

/// One empty page table per group.
fn no_tables(groups: usize) -> (tables: Vec<Vec<i32>>)
    ensures
        tables@.len() == groups,
        forall|g: int| 0 <= g < groups ==> (#[trigger] tables@[g])@.len() == 0,
{
    let mut tables: Vec<Vec<i32>> = Vec::with_capacity(groups);
    let mut group: usize = 0;
    while group < groups
        invariant
            group <= groups, tables@.len() == group,
            forall|g: int| 0 <= g < group ==> (#[trigger] tables@[g])@.len() == 0,
        decreases groups - group,
    {
        tables.push(Vec::new());
        group += 1;
    }
    tables
}

} // verus!
