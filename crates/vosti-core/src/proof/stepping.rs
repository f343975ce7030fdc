//! Planning and running a step preserve the invariant.

use super::canonical::*;
use super::forward::*;
use super::frame::*;
use crate::effects::*;
use crate::ids::{NO_PAGE, PAGE, RequestId, Token};
use crate::invariant::*;
use crate::legal::*;
use crate::plan::*;
use crate::program::*;
use crate::request::Request;
use crate::seam::*;
use crate::spec::*;
use crate::state::*;
use crate::views::*;
use vstd::prelude::*;

verus! {

/// A request's place in the step matters to nothing else.
pub(crate) proof fn lemma_repin<S: Sampler>(fixed: Fixed<S>, a: State<S>, b: State<S>, slot: int)
    requires
        a.inv_static(fixed), live(a.requests@, slot), b == (State { requests: b.requests, plan: b.plan, phase: b.phase, ..a }),
        b.requests@ =~= a.requests@.update(slot, b.requests@[slot]), b.requests@[slot] is Some,
        b.requests@[slot]->0 == (Request { planned: b.requests@[slot]->0.planned, ..a.requests@[slot]->0 }),
    ensures b.inv_static(fixed),
{
    let world = a.world(fixed);
    let r = a.requests@[slot]->0;
    let r2 = b.requests@[slot]->0;
    assert(request_ok(world, b, slot)) by {
        assert(request_shape(fixed.program, r) && r.serial < a.next_request) by { reveal(State::inv_shape); }
        assert(table_ok(a.pools@, a.blocks@, r, slot)) by { reveal(State::inv_tables); }
        assert(chain_ok(a.prefixes@, a.salts@, r)) by { reveal(State::inv_chains); }
        assert(request_kv_ok(world, a.dev@.cache, r)) by { reveal(State::inv_kv); }
        assert(run_ok::<S>(world, views(a.log@)[r.serial], r)) by { reveal(State::inv_log); }
        assert(table_ok(b.pools@, b.blocks@, r2, slot)) by {
            assert forall|g: int, i: int| 0 <= g < r2.tables@.len() && 0 <= i < r2.tables@[g]@.len()
                implies #[trigger] entry_ok(b.pools@, b.blocks@, r2, slot, g, i) by {
                assert(entry_ok(a.pools@, a.blocks@, r, slot, g, i));
            }
        }
        assert(request_kv_ok(world, b.dev@.cache, r2)) by {
            assert forall|layer: u32, j: int| fixed.program.keeps(layer) && 0 <= j < r2.cached
                implies #[trigger] kv_at_ok(world, b.dev@.cache, r2, layer, j) by {
                assert(kv_at_ok(world, a.dev@.cache, r, layer, j));
            }
        }
    }
    assert(owners_told(a, b, slot)) by {
        reveal(State::inv_owners);
    }
    assert(framed(fixed, a, b, slot)) by {
        reveal(State::inv_shape);
        reveal(State::inv_blocks);
        reveal(State::inv_log);
    }
    lemma_frame_static(fixed, a, b, slot);
}

pub(crate) proof fn lemma_static_ignores_step<S: Sampler>(fixed: Fixed<S>, a: State<S>, b: State<S>)
    requires a.inv_static(fixed), b == (State { plan: b.plan, phase: b.phase, ..a }),
    ensures b.inv_static(fixed),
{
    reveal(State::inv_shape);
    reveal(State::inv_blocks);
    reveal(State::inv_tables);
    reveal(State::inv_chains);
    reveal(State::inv_block_pages);
    reveal(State::inv_owners);
    reveal(State::inv_kv);
    reveal(State::inv_log);
}

/// Beginning a step.
pub(crate) proof fn lemma_phase<S: Sampler>(fixed: Fixed<S>, a: State<S>, b: State<S>)
    requires a.inv(fixed), b == (State { phase: Phase::Planning, ..a }),
    ensures b.inv(fixed),
{
    lemma_static_ignores_step(fixed, a, b);
    reveal(State::inv_step);
    reveal(State::inv_rows);
    reveal(State::inv_ran);
    assert(b.histories() =~= a.histories());
}

proof fn lemma_before_push(sequences: Seq<SeqPlan>, s: SeqPlan, q: int)
    requires q <= sequences.len(),
    ensures
        rows_before(sequences.push(s), q) == rows_before(sequences, q),
        selected_before(sequences.push(s), q) == selected_before(sequences, q),
    decreases q,
{
    if q > 0 {
        lemma_before_push(sequences, s, q - 1);
    }
}

/// What planning looks at: a request's own shape, and that the step so far is within the device's limits.
pub(crate) proof fn lemma_room<S: Sampler>(fixed: Fixed<S>, a: State<S>, slot: int)
    requires a.inv(fixed), live(a.requests@, slot),
    ensures
        request_shape(fixed.program, a.requests@[slot]->0), a.pools@.len() == fixed.program.groups@.len(),
        a.plan.tokens@.len() <= fixed.rows_max, a.plan.selected@.len() <= fixed.selected_max,
{
    reveal(State::inv_shape);
    reveal(State::inv_step);
    reveal(plan_packed);
}

/// The pages of a sequence are there and in range.
proof fn lemma_seq_pages<S: Sampler>(fixed: Fixed<S>, a: State<S>, slot: int, s: SeqPlan)
    requires
        a.inv_static(fixed), live(a.requests@, slot),
        s.tables@.len() == a.requests@[slot]->0.tables@.len(), s.first_position == a.requests@[slot]->0.cached,
        forall|g: int| 0 <= g < s.tables@.len() ==> (#[trigger] s.tables@[g])@ == a.requests@[slot]->0.tables@[g]@,
        forall|g: int| 0 <= g < a.pools@.len() ==> #[trigger] a.requests@[slot]->0.covers(g, fixed.program.groups@[g], s.first_position + s.rows),
    ensures
        forall|g: int, j: int| 0 <= g < fixed.program.groups@.len() && #[trigger] s.has_page(g, j)
            ==> 0 <= s.page(g, j) < (a.dev@.limits.pages)(g),
        forall|g: int, j: int| 0 <= g < fixed.program.groups@.len()
            && window_lo(fixed.program.groups@[g].window, s.first_position as int) <= j < s.first_position + s.rows
            ==> #[trigger] s.has_page(g, j),
{
    let r = a.requests@[slot]->0;
    reveal(State::inv_shape);
    assert(table_ok(a.pools@, a.blocks@, r, slot)) by { reveal(State::inv_tables); }
    assert forall|g: int, j: int| 0 <= g < fixed.program.groups@.len() && #[trigger] s.has_page(g, j)
        implies 0 <= s.page(g, j) < (a.dev@.limits.pages)(g) by {
        assert(entry_ok(a.pools@, a.blocks@, r, slot, g, j / PAGE as int));
    }
    assert forall|g: int, j: int| 0 <= g < fixed.program.groups@.len()
        && window_lo(fixed.program.groups@[g].window, s.first_position as int) <= j < s.first_position + s.rows
        implies #[trigger] s.has_page(g, j) by {
        assert(r.covers(g, fixed.program.groups@[g], s.first_position + s.rows));
        let lo = window_lo(fixed.program.groups@[g].window, s.first_position as int);
        assert(0 <= lo);
        assert(lo / PAGE as int <= j / PAGE as int <= (s.first_position + s.rows - 1) / PAGE as int);
        assert(r.has_page(g, j / PAGE as int));
        assert(s.tables@[g]@ == r.tables@[g]@);
    }
}

proof fn lemma_planned_packed<S: Sampler>(fixed: Fixed<S>, a: State<S>, b: State<S>, id: RequestId, rows: int, drafts: Seq<Token>, selected: int)
    requires
        a.inv(fixed), sequence_added(a, b, id, rows, drafts, selected), live(a.requests@, id.slot as int),
        1 <= rows, a.requests@[id.slot as int]->0.cached + rows <= a.requests@[id.slot as int]->0.history@.len(),
        a.requests@[id.slot as int]->0.history@.len() + drafts.len() < fixed.program.context,
        0 <= selected <= rows + drafts.len(), tokens_in(drafts, fixed.program.vocab),
        a.plan.tokens@.len() + rows + drafts.len() <= fixed.rows_max, a.plan.selected@.len() + selected <= fixed.selected_max,
        forall|g: int| 0 <= g < a.pools@.len() ==> #[trigger] a.requests@[id.slot as int]->0.covers(
            g, fixed.program.groups@[g], a.requests@[id.slot as int]->0.cached + rows + drafts.len()),
    ensures plan_packed(b.dev@.limits, fixed.program, b.plan),
{
    let slot = id.slot as int;
    let r = a.requests@[slot]->0;
    let n = a.plan.sequences@.len() as int;
    let s = b.plan.sequences@[n];
    let limits = a.dev@.limits;
    assert(plan_packed(limits, fixed.program, a.plan)) by { reveal(State::inv_step); }
    assert(request_shape(fixed.program, r)) by { reveal(State::inv_shape); }
    assert forall|g: int| 0 <= g < a.pools@.len() implies #[trigger] r.covers(g, fixed.program.groups@[g], s.first_position + s.rows) by {}
    lemma_seq_pages(fixed, a, slot, s);
    reveal(tokens_in);
    reveal(plan_packed);
    lemma_before_push(a.plan.sequences@, s, n);
    let tokens = row_tokens(s, r.history@, drafts);
    assert(tokens.len() == s.rows);
    assert forall|q: int| #![trigger b.plan.sequences@[q]] 0 <= q < b.plan.sequences@.len() implies seq_ok(limits, fixed.program, b.plan, q)
        && b.plan.sequences@[q].first_row == rows_before(b.plan.sequences@, q)
        && b.plan.sequences@[q].first_selected == selected_before(b.plan.sequences@, q) by {
        lemma_before_push(a.plan.sequences@, s, q);
    }
    assert(rows_before(b.plan.sequences@, n + 1) == rows_before(b.plan.sequences@, n) + s.rows);
    assert(selected_before(b.plan.sequences@, n + 1) == selected_before(b.plan.sequences@, n) + s.selected);
}

/// Planning rows preserves the invariant.
#[verifier::spinoff_prover]
pub(crate) proof fn lemma_planned<S: Sampler>(fixed: Fixed<S>, a: State<S>, b: State<S>, id: RequestId, rows: int, drafts: Seq<Token>, select: Select)
    requires
        a.inv(fixed), 0 <= rows <= usize::MAX, a.legal_plan_rows(fixed, id, rows as usize, drafts, select),
        sequence_added(a, b, id, rows, drafts, selected_rows(rows as usize, drafts.len(),
            a.requests@[id.slot as int]->0.history@.len() - a.requests@[id.slot as int]->0.cached, select)),
    ensures b.inv(fixed),
{
    let slot = id.slot as int;
    let r = a.requests@[slot]->0;
    let n = a.plan.sequences@.len() as int;
    let s = b.plan.sequences@[n];
    let selected = selected_rows(rows as usize, drafts.len(), r.history@.len() - r.cached, select);
    assert(request_shape(fixed.program, r)) by { reveal(State::inv_shape); }
    lemma_repin(fixed, a, b, slot);
    lemma_planned_packed(fixed, a, b, id, rows, drafts, selected);
    assert(plan_packed(a.dev@.limits, fixed.program, a.plan)) by { reveal(State::inv_step); }
    assert forall|q: int| #![trigger b.plan.sequences@[q]] 0 <= q < n implies b.plan.sequences@[q] == a.plan.sequences@[q]
        && a.seq_linked(fixed.program, q) && a.plan.sequences@[q].request.slot != slot by {
        reveal(State::inv_step);
        let _ = a.plan.sequences@[q];
    }
    assert(b.inv_step(fixed.program)) by {
        reveal(State::inv_step);
        assert forall|q: int| #![trigger b.plan.sequences@[q]] 0 <= q < b.plan.sequences@.len() implies b.seq_linked(fixed.program, q) by {
            if q < n {
                let t = a.plan.sequences@[q].request.slot as int;
                assert(b.plan.sequences@[q] == a.plan.sequences@[q]);
                assert(b.requests@[t] == a.requests@[t]);
            }
        }
        assert forall|t: int| live(b.requests@, t) && (#[trigger] b.requests@[t]->0).planned is Some implies ({
            let q = b.requests@[t]->0.planned->0;
            q < b.plan.sequences@.len() && b.plan.sequences@[q as int].request.slot == t
        }) by {
            if t != slot {
                assert(b.requests@[t] == a.requests@[t]);
                assert(live(a.requests@, t));
                assert(a.requests@[t]->0.planned is Some);
                let q = a.requests@[t]->0.planned->0;
                assert(b.plan.sequences@[q as int] == a.plan.sequences@[q as int]);
            }
        }
    }
    assert(b.inv_rows(fixed.program)) by {
        reveal(State::inv_rows);
        reveal(batch_ok);
        reveal(plan_packed);
        let hs = b.histories();
        assert forall|q: int| 0 <= q < n implies #[trigger] hs[q] == a.histories()[q] by {
            let old = a.plan.sequences@[q];
            assert(b.plan.sequences@[q] == old);
            assert(seq_ok(a.dev@.limits, fixed.program, a.plan, q));
            assert(b.requests@[old.request.slot as int] == a.requests@[old.request.slot as int]);
            let end = old.first_row + old.rows;
            assert(b.plan.tokens@.subrange(end - old.drafts, end) =~= a.plan.tokens@.subrange(end - old.drafts, end));
        }
        let tokens = row_tokens(s, r.history@, drafts);
        let end = s.first_row + s.rows;
        assert(b.plan.tokens@.subrange(end - s.drafts, end) =~= drafts);
        assert(hs[n] == r.history@ + drafts);
        assert forall|q: int| #![trigger b.plan.sequences@[q]] 0 <= q < hs.len()
            implies b.plan.sequences@[q].position(b.plan.sequences@[q].rows as int) <= hs[q].len() by {
            if q < n {
                assert(b.plan.sequences@[q] == a.plan.sequences@[q]);
                assert(hs[q] == a.histories()[q]);
            }
        }
        assert forall|q: int, i: int| 0 <= q < hs.len() && 0 <= i < b.plan.sequences@[q].rows
            implies b.plan.tokens@[#[trigger] b.plan.sequences@[q].row(i)] == hs[q][b.plan.sequences@[q].position(i)] by {
            if q < n {
                let old = a.plan.sequences@[q];
                assert(b.plan.sequences@[q] == old);
                assert(seq_ok(a.dev@.limits, fixed.program, a.plan, q));
                assert(hs[q] == a.histories()[q]);
                assert(a.plan.tokens@[a.plan.sequences@[q].row(i)] == a.histories()[q][a.plan.sequences@[q].position(i)]);
            } else {
                assert(b.plan.tokens@[s.row(i)] == tokens[i]);
                if i < rows {
                    assert(tokens[i] == r.history@[s.first_position + i]);
                } else {
                    assert(tokens[i] == drafts[i - rows]);
                    assert(r.cached + rows == r.history@.len());
                }
            }
        }
    }
    reveal(State::inv_ran);
}

/// A slot that the step writes is on a page that its request owns, at or after its cached positions.
proof fn lemma_written_owned<S: Sampler>(fixed: Fixed<S>, a: State<S>, g: int, q: int, i: int, page: int, offset: int)
    requires a.inv(fixed), 0 <= g < fixed.program.groups@.len(), writes_slot(a.plan, g, q, i, page, offset),
    ensures
        a.seq_linked(fixed.program, q),
        0 <= page < a.pools@[g].pages@.len(),
        owned_by(a.pools@[g].pages@[page], a.plan.sequences@[q].request.slot as int, a.plan.sequences@[q].position(i) / PAGE as int),
{
    let s = a.plan.sequences@[q];
    let slot = s.request.slot as int;
    let r = a.requests@[slot]->0;
    let p = s.position(i);
    assert(plan_packed(a.dev@.limits, fixed.program, a.plan) && a.seq_linked(fixed.program, q)) by { reveal(State::inv_step); }
    assert(seq_ok(a.dev@.limits, fixed.program, a.plan, q)) by { reveal(plan_packed); }
    assert(request_shape(fixed.program, r)) by { reveal(State::inv_shape); }
    assert(table_ok(a.pools@, a.blocks@, r, slot)) by { reveal(State::inv_tables); }
    assert(s.has_page(g, p));
    assert(entry_ok(a.pools@, a.blocks@, r, slot, g, p / PAGE as int));
}

/// No step writes a slot of a page that holds a cached position.
proof fn lemma_unwritten_request<S: Sampler>(fixed: Fixed<S>, a: State<S>, t: int, g: int, j: int)
    requires
        a.inv(fixed), live(a.requests@, t), 0 <= g < fixed.program.groups@.len(), 0 <= j < a.requests@[t]->0.cached,
        a.requests@[t]->0.tables@[g]@[j / PAGE as int] != NO_PAGE,
    ensures !written_slot(a.plan, g, a.requests@[t]->0.tables@[g]@[j / PAGE as int] as int, j % (PAGE as int)),
{
    let r = a.requests@[t]->0;
    let page = r.tables@[g]@[j / PAGE as int] as int;
    let offset = j % (PAGE as int);
    assert(request_shape(fixed.program, r)) by { reveal(State::inv_shape); }
    assert(table_ok(a.pools@, a.blocks@, r, t)) by { reveal(State::inv_tables); }
    assert(entry_ok(a.pools@, a.blocks@, r, t, g, j / PAGE as int));
    if written_slot(a.plan, g, page, offset) {
        let (q, i) = choose|q: int, i: int| #[trigger] writes_slot(a.plan, g, q, i, page, offset);
        lemma_written_owned(fixed, a, g, q, i, page, offset);
    }
}

/// No step writes a slot of a registered page.
proof fn lemma_unwritten_block<S: Sampler>(fixed: Fixed<S>, a: State<S>, x: int, g: int, o: int)
    requires
        a.inv(fixed), registered(a.blocks@, x), 0 <= g < fixed.program.groups@.len(),
        a.blocks@[x]->0.pages@[g] != NO_PAGE,
    ensures !written_slot(a.plan, g, a.blocks@[x]->0.pages@[g] as int, o),
{
    let b = a.blocks@[x]->0;
    let page = b.pages@[g] as int;
    assert(block_pages_ok(a.pools@, b, x)) by { reveal(State::inv_block_pages); }
    assert(block_shape(fixed.program, a.prefixes@, a.salts@, b)) by { reveal(State::inv_blocks); }
    assert(block_page_ok(a.pools@, b, x, g));
    if written_slot(a.plan, g, page, o) {
        let (q, i) = choose|q: int, i: int| #[trigger] writes_slot(a.plan, g, q, i, page, o);
        lemma_written_owned(fixed, a, g, q, i, page, o);
    }
}

/// The plan is what the device may rely on.
pub(crate) proof fn lemma_plan_ok<S: Sampler>(fixed: Fixed<S>, a: State<S>)
    requires a.inv(fixed), a.plan.sequences@.len() > 0,
    ensures plan_ok(a.dev@.limits, fixed.program, a.plan),
{
    assert(plan_packed(a.dev@.limits, fixed.program, a.plan)) by { reveal(State::inv_step); }
    assert(requests_once(a.plan)) by {
        reveal(State::inv_step);
        assert forall|x: int, y: int| #![trigger a.plan.sequences@[x], a.plan.sequences@[y]] 0 <= x < a.plan.sequences@.len()
            && 0 <= y < a.plan.sequences@.len() && a.plan.sequences@[x].request.slot == a.plan.sequences@[y].request.slot implies x == y by {
            assert(x as usize as int == x && y as usize as int == y) by {
                let n = a.plan.sequences.len();
                assert(n == a.plan.sequences@.len());
            }
        }
    }
    assert(writes_distinct(fixed.program, a.plan)) by {
        assert forall|g: int, x: int, i: int, y: int, j: int, page: int, offset: int| 0 <= g < fixed.program.groups@.len()
            && #[trigger] writes_slot(a.plan, g, x, i, page, offset) && #[trigger] writes_slot(a.plan, g, y, j, page, offset)
            implies x == y && i == j by {
            lemma_written_owned(fixed, a, g, x, i, page, offset);
            lemma_written_owned(fixed, a, g, y, j, page, offset);
            assert(a.plan.sequences@[x].request.slot == a.plan.sequences@[y].request.slot);
            assert(x == y);
            let p = a.plan.sequences@[x].position(i);
            let p2 = a.plan.sequences@[x].position(j);
            assert(p / PAGE as int == p2 / PAGE as int && p % (PAGE as int) == p2 % (PAGE as int));
        }
    }
    lemma_earlier_kept(fixed, a);
}

/// No row writes a slot that a sequence has from earlier steps.
proof fn lemma_earlier_kept<S: Sampler>(fixed: Fixed<S>, a: State<S>)
    requires a.inv(fixed),
    ensures earlier_kept(fixed.program, a.plan),
{
    reveal(earlier_kept);
    assert forall|g: int, q: int, j: int| 0 <= g < fixed.program.groups@.len() && 0 <= q < a.plan.sequences@.len()
        && j < a.plan.sequences@[q].first_position && a.plan.sequences@[q].has_page(g, j)
        implies !written_slot(a.plan, g, #[trigger] a.plan.sequences@[q].page(g, j), j % (PAGE as int)) by {
        let s = a.plan.sequences@[q];
        assert(a.seq_linked(fixed.program, q)) by { reveal(State::inv_step); }
        lemma_unwritten_request(fixed, a, s.request.slot as int, g, j);
    }
}

/// The step starts from canonical KV.
proof fn lemma_given<S: Sampler>(fixed: Fixed<S>, a: State<S>)
    requires a.inv(fixed), a.plan.sequences@.len() > 0,
    ensures given(a.dev@.limits, a.dev@.w, fixed.program, a.plan, a.histories(), a.dev@.cache),
{
    lemma_plan_ok(fixed, a);
    reveal(State::inv_rows);
    let world = a.world(fixed);
    let hs = a.histories();
    assert(cached_ok(a.dev@.w, fixed.program, a.plan, a.dev@.cache, hs)) by {
        reveal(cached_ok);
        assert forall|q: int, layer: u32, j: int| 0 <= q < hs.len() && fixed.program.keeps(layer) && 0 <= j < a.plan.sequences@[q].first_position
            && a.plan.sequences@[q].has_page(group_of(fixed.program, layer), j)
            implies #[trigger] cached_slot(a.dev@.w, fixed.program, a.plan, a.dev@.cache, q, hs[q], layer, j) by {
            let s = a.plan.sequences@[q];
            let slot = s.request.slot as int;
            let r = a.requests@[slot]->0;
            let g = group_of(fixed.program, layer);
            assert(a.seq_linked(fixed.program, q)) by { reveal(State::inv_step); }
            assert(request_kv_ok(world, a.dev@.cache, r)) by { reveal(State::inv_kv); }
            assert(kv_at_ok(world, a.dev@.cache, r, layer, j));
            assert(s.tables@[g]@ == r.tables@[g]@);
            assert(hs[q] == a.seq_history(q));
            assert(agree(r.history@, hs[q], j));
            lemma_kv_causal(world.w, world.program, r.history@, hs[q], j, layer);
        }
    }
}

/// A device that kept everything outside the write set kept everything that is cached.
pub(crate) proof fn lemma_kept<S: Sampler>(fixed: Fixed<S>, a: State<S>, b: State<S>)
    requires
        a.inv(fixed), b == (State { dev: b.dev, phase: b.phase, ..a }), b.dev@.w == a.dev@.w, b.dev@.limits == a.dev@.limits,
        kept_outside(fixed.program, a.plan, a.dev@.cache, b.dev@.cache), all_finite(b.dev@.w, b.dev@.cache),
        a.phase is Planning, !(b.phase is Idle),
    ensures b.inv_static(fixed), b.inv_step(fixed.program), b.inv_rows(fixed.program), b.phase is Planning ==> b.inv(fixed),
{
    let world = a.world(fixed);
    reveal(State::inv_shape);
    reveal(State::inv_blocks);
    reveal(State::inv_tables);
    reveal(State::inv_chains);
    reveal(State::inv_block_pages);
    reveal(State::inv_owners);
    reveal(State::inv_log);
    assert(b.inv_kv(world)) by {
        reveal(State::inv_kv);
        assert forall|s: int| live(b.requests@, s) implies request_kv_ok(world, b.dev@.cache, #[trigger] b.requests@[s]->0) by {
            let r = a.requests@[s]->0;
            assert(request_kv_ok(world, a.dev@.cache, a.requests@[s]->0));
            assert(request_shape(fixed.program, a.requests@[s]->0));
            assert forall|layer: u32, j: int| fixed.program.keeps(layer) && 0 <= j < r.cached
                implies #[trigger] kv_at_ok(world, b.dev@.cache, r, layer, j) by {
                let g = group_of(fixed.program, layer);
                assert(fixed.program.layers@[layer as int].group < fixed.program.groups@.len());
                assert(kv_at_ok(world, a.dev@.cache, r, layer, j));
                if r.tables@[g]@[j / PAGE as int] != NO_PAGE {
                    lemma_unwritten_request(fixed, a, s, g, j);
                }
            }
        }
        assert forall|x: int| registered(b.blocks@, x)
            implies block_kv_ok(world, b.dev@.cache, #[trigger] b.blocks@[x]->0, b.prefixes@[b.blocks@[x]->0.serial]) by {
            let k = a.blocks@[x]->0;
            let prefix = a.prefixes@[k.serial];
            assert(block_kv_ok(world, a.dev@.cache, a.blocks@[x]->0, prefix));
            assert forall|layer: u32, o: int| fixed.program.keeps(layer) && 0 <= o < PAGE
                implies #[trigger] block_kv_at_ok(world, b.dev@.cache, k, prefix, layer, o) by {
                let g = group_of(fixed.program, layer);
                assert(fixed.program.layers@[layer as int].group < fixed.program.groups@.len());
                assert(block_kv_at_ok(world, a.dev@.cache, k, prefix, layer, o));
                if k.pages@[g] != NO_PAGE {
                    lemma_unwritten_block(fixed, a, x, g, o);
                }
            }
        }
    }
    assert(b.inv_step(fixed.program)) by {
        reveal(State::inv_step);
    }
    assert(b.histories() =~= a.histories());
    assert(b.inv_rows(fixed.program)) by { reveal(State::inv_rows); }
    reveal(State::inv_ran);
}

/// After the run, logits and new slots are canonical: the step theorem, of the core's own state.
pub(crate) proof fn lemma_ran<S: Sampler>(fixed: Fixed<S>, a: State<S>, b: State<S>)
    requires
        a.inv(fixed), b == (State { dev: b.dev, phase: Phase::Ran, ..a }), b.dev@.w == a.dev@.w, b.dev@.limits == a.dev@.limits,
        a.phase is Planning, a.plan.sequences@.len() > 0,
        ran(a.dev@.w, fixed.program, a.plan, a.dev@.cache, b.dev@.cache, b.dev@.logits), all_finite(b.dev@.w, b.dev@.cache),
        wanted_brought(a.plan, b.dev@.brought),
    ensures b.inv(fixed),
{
    lemma_given(fixed, a);
    theorem_forward(a.dev@.limits, a.dev@.w, fixed.program, a.plan, a.histories(), a.dev@.cache, b.dev@.cache, b.dev@.logits);
    lemma_kept(fixed, a, b);
    assert(b.histories() =~= a.histories());
    reveal(State::inv_ran);
}

} // verus!
