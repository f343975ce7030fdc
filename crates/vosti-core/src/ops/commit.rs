//! The end of a step: sample where histories end, accept drafts that came true, cache the computed rows.

use super::lifecycle::*;
use crate::effects::*;
use crate::error::CoreError;
use crate::ids::{NO_PAGE, PAGE, RequestId, Token};
use crate::invariant::*;
use crate::meaning::*;
use crate::next::*;
use crate::pages::{Page, Pool};
use crate::plan::{Reads, StepPlan};
use crate::program::*;
use crate::program::*;
use crate::proof::canonical::*;
use crate::proof::committing::*;
use crate::proof::forward::*;
use crate::proof::frame::*;
use crate::proof::reference::*;
use crate::proof::stepping::*;
use crate::request::Request;
use crate::seam::*;
use crate::spec::*;
use crate::state::*;
use crate::views::*;
use vstd::prelude::*;

verus! {

/// One token that the core gave out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// The request that it belongs to.
    pub request: RequestId,
    /// The token that was chosen.
    pub token: Token,
    /// Whether the request is done with this token.
    pub done: bool,
    /// The index of its row of logits among the step's selected rows. The device holds the row until the next run.
    pub selected: usize,
    /// The token's position in the history.
    pub position: usize,
    /// Whether its row of logits is on the host, for `Core::row`.
    pub whole: bool,
    /// Its index among the records of its commit.
    pub index: usize,
}

/// It stays so, whatever is seen after it.
pub(crate) proof fn lemma_record_kept(world: World, log: Seq<Event<Bits, Bits>>, event: Event<Bits, Bits>, logits: Seq<Bits>, brought: spec_fn(int, Reads) -> bool, r: Record)
    requires record_ok(world, log, logits, brought, r), follows(views(log), event),
    ensures record_ok(world, log.push(event), logits, brought, r),
{
    lemma_event(log, event);
}

pub(crate) proof fn lemma_records_kept<D: Device>(world: World, log: Seq<Event<Bits, Bits>>, event: Event<Bits, Bits>, device: D, records: Seq<Record>)
    requires records_ok(world, log, device.logits_rows(), device.brought(), records), orderly(log.push(event)),
    ensures records_ok(world, log.push(event), device.logits_rows(), device.brought(), records),
{
    lemma_event(log, event);
    assert forall|i: int| 0 <= i < records.len() implies (#[trigger] records[i]).index == i
        && record_ok(world, log.push(event), device.logits_rows(), device.brought(), records[i]) by {
        lemma_record_kept(world, log, event, device.logits_rows(), device.brought(), records[i]);
    }
}

/// The world's choice is the sampler's, of the device's rows.
pub open(crate) spec fn chooses<D: Device<Logits = S::Logits, Top = S::Top>, S: Sampler>(fixed: Fixed<S>) -> bool {
    forall|state: Bits, row: Bits| #[trigger] (fixed.choice@)(state, row) == chosen::<D, S>(fixed.sampler.w(), state, row)
}

impl<S: Sampler> State<S> {
    pub(crate) fn commit<D: Device<Logits = S::Logits, Top = S::Top>>(&mut self, fixed: &Fixed<S>, device: &D) -> (out: Result<Vec<Record>, CoreError>)
        requires old(self).inv(*fixed), old(self).dev@ == device_view(*device), chooses::<D, S>(*fixed),
        ensures
            final(self).inv(*fixed), final(self).dev@ == old(self).dev@,
            out is Ok <==> old(self).legal_commit(),
            out is Err ==> *final(self) == *old(self),
            out matches Ok(records) ==> {
                &&& final(self).log@ == old(self).log@ + record_events(device.logits_rows(), records@)
                &&& old(self).did_commit(*final(self))
                &&& records_ok(final(self).world(*fixed), final(self).log@, device.logits_rows(), device.brought(), records@)
                &&& forall|i: int| 0 <= i < records@.len() ==> final(self).known((#[trigger] records@[i]).request) && of_step(old(self).plan, records@[i])
            },
    {
        match self.phase {
            Phase::Ran => {},
            _ => return Err(CoreError::NoStep),
        }
        let ghost before = *self;
        let ghost logits = device.logits_rows();
        let mut records: Vec<Record> = Vec::new();
        let mut i: usize = 0;
        proof { assert(self.log@ =~= before.log@ + record_events(logits, records@)); }
        while i < self.plan.sequences.len()
            invariant
                before.inv(*fixed), before.phase is Ran, before.dev@ == device_view(*device), logits == device.logits_rows(),
                chooses::<D, S>(*fixed),
                self.inv_static(*fixed),
                *self == (State { requests: self.requests, log: self.log, ..before }),
                i <= before.plan.sequences@.len(),
                self.requests@.len() == before.requests@.len(),
                forall|s: int| 0 <= s < before.requests@.len() ==> #[trigger] pending::<S>(before.plan, before.requests@[s], self.requests@[s], i as int),
                self.log@ == before.log@ + record_events(logits, records@),
                records_ok(before.world(*fixed), self.log@, logits, device.brought(), records@),
                forall|j: int| 0 <= j < records@.len() ==> self.known((#[trigger] records@[j]).request) && of_step(before.plan, records@[j]),
            decreases self.plan.sequences.len() - i,
        {
            let slot = self.plan.sequences[i].request.slot;
            let ghost now = *self;
            let ghost records0 = records@;
            proof {
                reveal(State::inv_step);
                assert(before.seq_linked(fixed.program, i as int)) by { let _ = before.plan.sequences@[i as int]; }
                assert(pending::<S>(before.plan, before.requests@[slot as int], self.requests@[slot as int], i as int));
                lemma_ready(*fixed, before, now, i as int);
            }
            if let Some(mut request) = self.requests[slot].take() {
                let ghost r = request;
                commit_sequence(device, fixed, &self.plan, i, &mut request, &mut records, &mut self.log, Ghost(before.log@), Ghost(before.world(*fixed)));
                self.requests[slot] = Some(request);
            }
            proof {
                lemma_committed(*fixed, before, now, *self, i as int);
                assert forall|j: int| 0 <= j < records@.len() implies self.known((#[trigger] records@[j]).request) && of_step(before.plan, records@[j]) by {
                    if j < records0.len() {
                        assert(now.known(records0[j].request) && of_step(before.plan, records0[j]));
                    } else {
                        assert(of_sequence(before.plan, i as int, records@[j]));
                    }
                }
                assert forall|s: int| 0 <= s < before.requests@.len() implies #[trigger] pending::<S>(before.plan, before.requests@[s], self.requests@[s], i + 1) by {
                    assert(pending::<S>(before.plan, before.requests@[s], now.requests@[s], i as int));
                    if s != slot && live(before.requests@, s) && before.requests@[s]->0.planned == Some(i) {
                        assert(before.plan.sequences@[i as int].request.slot == s);
                    }
                }
            }
            i += 1;
        }
        proof {
            reveal(State::inv_step);
            assert forall|s: int| live(self.requests@, s) implies (#[trigger] self.requests@[s]->0).planned is None by {
                assert(pending::<S>(before.plan, before.requests@[s], self.requests@[s], i as int));
                assert(live(before.requests@, s));
                assert(before.requests@[s]->0.planned is Some ==> before.requests@[s]->0.planned->0 < i);
            }
        }
        let ghost last = *self;
        self.plan.clear();
        self.phase = Phase::Idle;
        proof {
            lemma_static_ignores_step(*fixed, last, *self);
            lemma_idle(*fixed, *self);
        }
        Ok(records)
    }
}

/// Commits one sequence: caches its rows and, where they reach the end of the history, emits.
fn commit_sequence<D: Device<Logits = S::Logits, Top = S::Top>, S: Sampler>(
    device: &D,
    fixed: &Fixed<S>,
    plan: &StepPlan,
    index: usize,
    request: &mut Request<S::State>,
    records: &mut Vec<Record>,
    log: &mut Ghost<Seq<Event<Bits, Bits>>>,
    base: Ghost<Seq<Event<Bits, Bits>>>,
    world: Ghost<World>,
)
    requires
        index < plan.sequences@.len(),
        chooses::<D, S>(*fixed), world@.choice == fixed.choice@, world@.program == fixed.program,
        fixed.sampler.vocab_limit() == fixed.program.vocab,
        ready(world@, *plan, index as int, *old(request), device.logits_rows()),
        readable::<S>(*plan, index as int, *old(request), device.brought()),
        views(old(log)@).contains_key(old(request).serial),
        view_ok(world@, views(old(log)@)[old(request).serial]),
        run_ok::<S>(world@, views(old(log)@)[old(request).serial], *old(request)),
        old(log)@ == base@ + record_events(device.logits_rows(), old(records)@),
        records_ok(world@, old(log)@, device.logits_rows(), device.brought(), old(records)@),
    ensures
        records_ok(world@, final(log)@, device.logits_rows(), device.brought(), final(records)@),
        // What it adds is of its own request.
        old(records)@.len() <= final(records)@.len(),
        forall|i: int| 0 <= i < old(records)@.len() ==> final(records)@[i] == old(records)@[i],
        forall|i: int| old(records)@.len() <= i < final(records)@.len() ==> of_sequence(*plan, index as int, #[trigger] final(records)@[i]),
        committed::<S>(*plan, index as int, *old(request), *final(request)),
        request_shape(fixed.program, *final(request)),
        logged(old(log)@, final(log)@, old(request).serial),
        view_ok(world@, views(final(log)@)[old(request).serial]),
        run_ok::<S>(world@, views(final(log)@)[old(request).serial], *final(request)),
        final(log)@ == base@ + record_events(device.logits_rows(), final(records)@),
{
    let ghost r0 = *request;
    let ghost serial = request.serial;
    let ghost log0 = log@;
    let ghost first = records@;
    let ghost logits = device.logits_rows();
    let sequence = &plan.sequences[index];
    let ghost s = plan.sequences@[index as int];
    let ghost ext = r0.history@ + drafts_of(*plan, index as int);
    let ghost h = r0.history@.len();
    proof {
        assert(views(log0) =~= views(log0).insert(serial, views(log0)[serial]));
    }
    request.planned = None;
    request.cached = sequence.first_position + sequence.rows - sequence.drafts;
    if !sequence.emits {
        proof {
            assert(agree_before(r0.history@ + drafts_of(*plan, index as int), request.history@, request.cached as int));
            assert forall|g: int| 0 <= g < request.tables@.len() implies request.chain@.len() <= (#[trigger] request.tables@[g])@.len()
                && request.cached <= request.tables@[g]@.len() * PAGE && request.tables@[g]@.len() <= COUNT_MAX by {
                assert(r0.chain@.len() <= r0.tables@[g]@.len());
            }
        }
        return;
    }
    let first_draft = sequence.first_row + sequence.rows - sequence.drafts;
    let first_selected = sequence.first_selected + sequence.selected - sequence.drafts - 1;
    let mut accepted: usize = 0;
    let mut go = true;
    proof {
        assert(ext.take(h as int) =~= r0.history@);
    }
    while go
        invariant
            chooses::<D, S>(*fixed), world@.choice == fixed.choice@, world@.program == fixed.program,
            fixed.sampler.vocab_limit() == fixed.program.vocab,
            ready(world@, *plan, index as int, r0, logits), logits == device.logits_rows(),
            readable::<S>(*plan, index as int, r0, device.brought()),
            go ==> s.brings(s.end() + accepted, S::reads_of(S::state_bits(&request.state))),
            s == plan.sequences@[index as int], *sequence == s, s.emits, h == r0.history@.len(),
            ext == r0.history@ + drafts_of(*plan, index as int),
            first_draft == s.first_row + s.rows - s.drafts,
            first_selected == s.first_selected + s.selected - s.drafts - 1,
            accepted <= s.drafts,
            *request == (Request { history: request.history, cached: request.cached, done: request.done, planned: None, state: request.state, ..r0 }),
            request.cached == h + accepted,
            request.history@.len() == h + accepted + (if go { 0int } else { 1 }),
            request.history@.take(h + accepted) == ext.take(h + accepted),
            forall|i: int| 0 <= i < request.history@.len() ==> #[trigger] request.history@[i] < fixed.program.vocab,
            go ==> !request.done,
            logged(log0, log@, serial), serial == r0.serial,
            view_ok(world@, views(log@)[serial]),
            run_ok::<S>(world@, views(log@)[serial], *request),
            log@ == base@ + record_events(logits, records@),
            records_ok(world@, log@, logits, device.brought(), records@),
            first.len() <= records@.len(), forall|i: int| 0 <= i < first.len() ==> records@[i] == first[i],
            forall|i: int| first.len() <= i < records@.len() ==> of_sequence(*plan, index as int, #[trigger] records@[i]),
            !go ==> ended::<S>(*plan, index as int, r0, *request),
        decreases s.drafts + 1 - accepted, (if go { 1int } else { 0int }),
    {
        let selected = first_selected + accepted;
        let ghost state = S::state_bits(&request.state);
        let ghost history = request.history@;
        let ghost seen = views(log@)[serial];
        proof { assert(s.compact(s.selected - s.drafts - 1 + accepted) == selected); }
        let (token, done) = match fixed.sampler.reads(&request.state) {
            Reads::Best => fixed.sampler.sample_best(&mut request.state, device.best(selected)),
            Reads::Top => fixed.sampler.sample_top(&mut request.state, device.top(selected)),
            Reads::Drawn(draw) => fixed.sampler.sample_drawn(&mut request.state, device.drawn(selected, draw)),
            Reads::Row => fixed.sampler.sample(&mut request.state, device.logits(selected)),
        };
        let position = request.history.len();
        let record = Record { request: sequence.request, token, done, selected, position, whole: sequence.whole, index: records.len() };
        let ghost records0 = records@;
        let ghost log1 = log@;
        records.push(record);
        request.history.push(token);
        request.done = done;
        proof {
            let event = record_event(logits, record);
            lemma_event(log@, event);
            *log = Ghost(log@.push(event));
            // The row that was sampled is the canonical one for this history.
            let i = s.selected - s.drafts - 1 + accepted;
            assert(s.compact(i) == selected);
            let p = s.position(s.unselected() + i);
            assert(p == h + accepted - 1);
            assert(history =~= ext.take(h + accepted));
            assert(logits[s.compact(i)] == canon_logits(world@.w, world@.program, ext, p));
            assert(agree(ext, history, p)) by {
                assert forall|x: int| 0 <= x <= p implies #[trigger] ext[x] == history[x] by {
                    assert(ext.take(h + accepted)[x] == ext[x]);
                }
            }
            lemma_logits_causal(world@.w, world@.program, ext, history, p);
            assert((fixed.choice@)(state, logits[selected as int]) == chosen::<D, S>(fixed.sampler.w(), state, logits[selected as int]));
            lemma_emitted(world@, seen, history, state, logits[selected as int], token, S::state_bits(&request.state), done);
            lemma_reference(world@, seen.prompt, seen.initial, seen.entries.len(), seen.entries.len());
            assert(records_ok(world@, log@, logits, device.brought(), records@)) by {
                assert forall|i: int| 0 <= i < records@.len() implies (#[trigger] records@[i]).index == i
                    && record_ok(world@, log@, logits, device.brought(), records@[i]) by {
                    if i < records0.len() {
                        assert(records@[i] == records0[i]);
                        lemma_record_kept(world@, log1, event, logits, device.brought(), records0[i]);
                    } else {
                        assert(s.whole ==> s.brings(s.end() + accepted, Reads::Row));
                        assert(device.brought()(s.compact(s.selected - s.drafts - 1 + accepted), Reads::Row) || !s.whole);
                    }
                }
            }
            assert(logged(log0, log@, serial)) by {
                assert(views(log@) =~= views(log0).insert(serial, views(log@)[serial]));
            }
            assert(record_events(logits, records@) =~= record_events(logits, records0).push(event));
            assert(log@ =~= base@ + record_events(logits, records@));
            assert(request.history@.take(h + accepted) =~= ext.take(h + accepted));
            assert forall|x: int| 0 <= x < request.history@.len() implies #[trigger] request.history@[x] < fixed.program.vocab by {
                if x < history.len() {
                    assert(history[x] < fixed.program.vocab);
                }
            }
        }
        // A sampler that now reads more than was brought gets it in the next step.
        let readable = sequence.has(sequence.selected - sequence.drafts + accepted, fixed.sampler.reads(&request.state));
        if !done && accepted < sequence.drafts && plan.tokens[first_draft + accepted] == token && readable {
            request.cached += 1;
            accepted += 1;
            proof {
                assert(drafts_of(*plan, index as int)[accepted - 1] == token);
                assert(ext[h + accepted - 1] == token);
                assert(request.history@.take(h + accepted) =~= ext.take(h + accepted)) by {
                    assert(request.history@.take(h + accepted - 1) == ext.take(h + accepted - 1));
                    assert forall|x: int| 0 <= x < h + accepted implies request.history@[x] == ext[x] by {
                        if x < h + accepted - 1 {
                            assert(request.history@.take(h + accepted - 1)[x] == ext.take(h + accepted - 1)[x]);
                        }
                    }
                }
            }
        } else {
            go = false;
        }
    }
    proof {
        assert(agree_before(ext, request.history@, request.cached as int)) by {
            assert forall|x: int| 0 <= x < request.cached implies #[trigger] ext[x] == request.history@[x] by {
                assert(request.history@.take(h + accepted)[x] == ext.take(h + accepted)[x]);
            }
        }
        assert forall|g: int| 0 <= g < request.tables@.len() implies request.chain@.len() <= (#[trigger] request.tables@[g])@.len()
            && request.cached <= request.tables@[g]@.len() * PAGE && request.tables@[g]@.len() <= COUNT_MAX by {
            assert(r0.chain@.len() <= r0.tables@[g]@.len());
        }
        assert forall|x: int| 0 <= x < h implies #[trigger] request.history@[x] == r0.history@[x] by {
            assert(request.history@.take(h + accepted)[x] == ext.take(h + accepted)[x]);
        }
    }
}

} // verus!
