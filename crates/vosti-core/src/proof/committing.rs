//! Committing a step preserves the invariant: what is cached is what was computed, and what is emitted is the next
//! record of the reference run.

use super::canonical::*;
use super::forward::*;
use super::frame::*;
use super::reference::*;
use crate::effects::*;
use crate::ids::{PAGE, Token};
use crate::invariant::*;
use crate::meaning::*;
use crate::next::*;
use crate::plan::*;
use crate::request::Request;
use crate::seam::*;
use crate::spec::*;
use crate::state::*;
use crate::views::*;
use vstd::prelude::*;

verus! {

/// What committing sequence q starts from.
pub open(crate) spec fn ready<T>(world: World, plan: StepPlan, q: int, r: Request<T>, logits: Seq<Bits>) -> bool {
    let s = plan.sequences@[q];
    let ext = r.history@ + drafts_of(plan, q);
    &&& 0 <= q < plan.sequences@.len()
    &&& request_shape(world.program, r)
    &&& s.request.serial == r.serial
    &&& s.first_position == r.cached && s.drafts < s.rows && s.first_row + s.rows <= plan.tokens@.len()
    &&& s.first_row + s.rows <= usize::MAX && s.first_selected + s.selected <= usize::MAX && s.first_position + s.rows <= usize::MAX
    &&& s.first_position + s.rows - s.drafts <= r.history@.len()
    &&& s.emits <==> s.first_position + s.rows - s.drafts == r.history@.len()
    &&& s.drafts > 0 ==> s.emits
    &&& s.emits ==> s.selected > s.drafts && r.history@.len() + s.drafts < world.program.context && !r.done
    &&& forall|g: int| 0 <= g < r.tables@.len() ==> s.first_position + s.rows <= (#[trigger] r.tables@[g])@.len() * PAGE
    &&& s.selected <= s.rows && s.first_selected + s.selected <= logits.len()
    &&& forall|i: int| 0 <= i < s.selected ==> #[trigger] logits[s.compact(i)]
            == canon_logits(world.w, world.program, ext, s.position(s.unselected() + i))
}

/// What sequence q's sampler reads, or what was asked for, is on the host.
pub open(crate) spec fn readable<S: Sampler>(plan: StepPlan, q: int, r: Request<S::State>, brought: spec_fn(int, Reads) -> bool) -> bool {
    let s = plan.sequences@[q];
    &&& s.emits ==> s.brings(s.end(), S::reads_of(S::state_bits(&r.state)))
    &&& forall|i: int, what: Reads| 0 <= i < s.selected && s.brings(i, what) ==> #[trigger] brought(s.compact(i), what)
}

/// Only this request's view has changed.
pub open(crate) spec fn logged(a: Seq<Event<Bits, Bits>>, b: Seq<Event<Bits, Bits>>, serial: u64) -> bool {
    &&& orderly(a) ==> orderly(b)
    &&& views(b) == views(a).insert(serial, views(b)[serial])
}

/// One more record is one more step of the reference run.
pub(crate) proof fn lemma_emitted(world: World, seen: Seen<Bits, Bits>, history: Seq<Token>, state: Bits, logits: Bits, token: Token, next: Bits, done: bool)
    requires
        view_ok(world, seen), !seen.completed,
        ({
            let at = reference(world, seen.prompt, seen.initial, seen.entries.len());
            history == at.history && state == at.state && !at.done
        }),
        history.len() < world.program.context,
        logits == canon_logits(world.w, world.program, history, history.len() - 1),
        (world.choice)(state, logits) == (token, next, done),
    ensures
        ({
            let seen2 = Seen { entries: seen.entries.push(Entry { logits, token }), ..seen };
            let at = reference(world, seen.prompt, seen.initial, seen2.entries.len());
            &&& view_ok(world, seen2)
            &&& at.history == history.push(token) && at.state == next && at.done == done
        }),
{
    let n = seen.entries.len();
    lemma_reference(world, seen.prompt, seen.initial, n, n);
}

/// A sequence of a step that has run is ready to be committed.
pub(crate) proof fn lemma_ready<S: Sampler>(fixed: Fixed<S>, a: State<S>, now: State<S>, q: int)
    requires
        a.inv(fixed), a.phase is Ran, 0 <= q < a.plan.sequences@.len(), now.inv_static(fixed),
        now == (State { requests: now.requests, log: now.log, ..a }),
        live(now.requests@, a.plan.sequences@[q].request.slot as int),
        now.requests@[a.plan.sequences@[q].request.slot as int] == a.requests@[a.plan.sequences@[q].request.slot as int],
    ensures
        ({
            let r = now.requests@[a.plan.sequences@[q].request.slot as int]->0;
            &&& ready(a.world(fixed), a.plan, q, r, a.dev@.logits)
            &&& readable::<S>(a.plan, q, r, a.dev@.brought)
            &&& views(now.log@).contains_key(r.serial)
            &&& view_ok(a.world(fixed), views(now.log@)[r.serial])
            &&& run_ok::<S>(a.world(fixed), views(now.log@)[r.serial], r)
        }),
{
    let s = a.plan.sequences@[q];
    let slot = s.request.slot as int;
    let r = now.requests@[slot]->0;
    assert(a.seq_linked(fixed.program, q) && plan_packed(a.dev@.limits, fixed.program, a.plan)) by { reveal(State::inv_step); }
    assert(seq_ok(a.dev@.limits, fixed.program, a.plan, q)) by { reveal(plan_packed); }
    assert(request_shape(fixed.program, r) && r.serial < now.next_request) by { reveal(State::inv_shape); }
    assert(run_ok::<S>(a.world(fixed), views(now.log@)[r.serial], r)) by { reveal(State::inv_log); }
    assert(views(now.log@).contains_key(r.serial)) by { reveal(State::inv_log); }
    assert(view_ok(a.world(fixed), views(now.log@)[r.serial])) by { reveal(State::inv_log); }
    assert(logits_ok(a.dev@.w, fixed.program, a.plan, a.histories(), a.dev@.logits)) by { reveal(State::inv_ran); }
    assert(wanted_brought(a.plan, a.dev@.brought)) by { reveal(State::inv_ran); }
    reveal(logits_ok);
    assert(a.histories()[q] == a.seq_history(q));
    assert(a.seq_history(q) == r.history@ + drafts_of(a.plan, q));
    assert forall|g: int| 0 <= g < r.tables@.len() implies s.first_position + s.rows <= (#[trigger] r.tables@[g])@.len() * PAGE by {
        assert(fixed.program.groups@[g].window != Some(0u32));
        assert(s.has_page(g, s.first_position + s.rows - 1));
        assert(s.tables@[g]@ == r.tables@[g]@);
    }
    let n = a.plan.tokens.len();
    let m = a.plan.selected.len();
    assert(n == a.plan.tokens@.len() && m == a.plan.selected@.len());
}

/// Committing one sequence keeps what does not depend on the step.
pub(crate) proof fn lemma_committed<S: Sampler>(fixed: Fixed<S>, a: State<S>, now: State<S>, b: State<S>, q: int)
    requires
        a.inv(fixed), a.phase is Ran, 0 <= q < a.plan.sequences@.len(), now.inv_static(fixed),
        now == (State { requests: now.requests, log: now.log, ..a }),
        b == (State { requests: b.requests, log: b.log, ..a }),
        ({
            let slot = a.plan.sequences@[q].request.slot as int;
            let r = now.requests@[slot]->0;
            let r2 = b.requests@[slot]->0;
            &&& live(now.requests@, slot) && now.requests@[slot] == a.requests@[slot]
            &&& b.requests@[slot] is Some
            &&& b.requests@ =~= now.requests@.update(slot, b.requests@[slot])
            &&& committed::<S>(a.plan, q, r, r2)
            &&& request_shape(fixed.program, r2)
            &&& logged(now.log@, b.log@, r.serial)
            &&& view_ok(a.world(fixed), views(b.log@)[r.serial])
            &&& run_ok::<S>(a.world(fixed), views(b.log@)[r.serial], r2)
        }),
    ensures b.inv_static(fixed),
{
    let world = a.world(fixed);
    let s = a.plan.sequences@[q];
    let slot = s.request.slot as int;
    let r = now.requests@[slot]->0;
    let r2 = b.requests@[slot]->0;
    let ext = r.history@ + drafts_of(a.plan, q);
    assert(a.seq_linked(fixed.program, q) && plan_packed(a.dev@.limits, fixed.program, a.plan)) by { reveal(State::inv_step); }
    assert(seq_ok(a.dev@.limits, fixed.program, a.plan, q)) by { reveal(plan_packed); }
    assert(request_shape(fixed.program, r) && r.serial < now.next_request) by { reveal(State::inv_shape); }
    assert(table_ok(now.pools@, now.blocks@, r, slot)) by { reveal(State::inv_tables); }
    assert(chain_ok(now.prefixes@, now.salts@, r)) by { reveal(State::inv_chains); }
    assert(request_kv_ok(world, now.dev@.cache, r)) by { reveal(State::inv_kv); }
    assert(stored_ok(world.w, world.program, a.plan, a.histories(), a.dev@.cache)) by { reveal(State::inv_ran); }
    assert(a.histories()[q] == ext);
    assert(request_ok(world, b, slot)) by {
        assert(table_ok(b.pools@, b.blocks@, r2, slot)) by {
            assert forall|g: int, i: int| 0 <= g < r2.tables@.len() && 0 <= i < r2.tables@[g]@.len()
                implies #[trigger] entry_ok(b.pools@, b.blocks@, r2, slot, g, i) by {
                assert(entry_ok(now.pools@, now.blocks@, r, slot, g, i));
            }
        }
        assert(chain_ok(b.prefixes@, b.salts@, r2)) by {
            assert forall|i: int| 0 <= i < r2.chain@.len() implies b.prefixes@.contains_key((#[trigger] r2.chain@[i]).serial)
                && b.prefixes@[r2.chain@[i].serial] == r2.history@.subrange(0, (i + 1) * PAGE) && b.salts@[r2.chain@[i].serial] == r2.salt by {
                assert(r.chain@[i] == r2.chain@[i]);
                assert((i + 1) * PAGE <= r.chain@.len() * PAGE);
                assert(r.history@.subrange(0, (i + 1) * PAGE) =~= r2.history@.subrange(0, (i + 1) * PAGE));
            }
        }
        assert(request_kv_ok(world, b.dev@.cache, r2)) by {
            assert forall|layer: u32, j: int| fixed.program.keeps(layer) && 0 <= j < r2.cached
                implies #[trigger] kv_at_ok(world, b.dev@.cache, r2, layer, j) by {
                let g = group_of(fixed.program, layer);
                assert(fixed.program.layers@[layer as int].group < fixed.program.groups@.len());
                let page = r.tables@[g]@[j / PAGE as int] as int;
                if j < r.cached {
                    assert(kv_at_ok(world, a.dev@.cache, r, layer, j));
                    assert(agree(r.history@, r2.history@, j));
                    lemma_kv_causal(world.w, world.program, r.history@, r2.history@, j, layer);
                } else {
                    reveal(stored_ok);
                    let i = j - s.first_position;
                    assert(s.tables@[g]@ == r.tables@[g]@);
                    assert(writes_slot(a.plan, g, q, i, page, j % (PAGE as int)));
                    assert((a.dev@.cache)(layer, page, j % (PAGE as int)) == kv_row(world.w, world.program, ext, j, layer));
                    assert(agree(ext, r2.history@, j));
                    lemma_kv_causal(world.w, world.program, ext, r2.history@, j, layer);
                }
            }
        }
    }
    assert(owners_told(now, b, slot)) by {
        reveal(State::inv_owners);
        assert forall|g: int, p: int| 0 <= g < b.pools@.len() && 0 <= p < b.pools@[g].pages@.len() && names_slot(b.pools@[g].pages@[p], slot)
            implies owner_has(b.requests@, b.blocks@, #[trigger] b.pools@[g].pages@[p], g, p) by {
            assert(owner_has(now.requests@, now.blocks@, now.pools@[g].pages@[p], g, p));
        }
    }
    assert(framed(fixed, now, b, slot)) by {
        reveal(State::inv_shape);
        reveal(State::inv_blocks);
        reveal(State::inv_log);
    }
    lemma_frame_static(fixed, now, b, slot);
}

} // verus!
