//! Tests of the statement: for each clause of the promise, of W, of `next` and of the seam, what it accepts and what it
//! refuses. A statement that is weakened or made impossible would still verify everywhere else; it fails here.
//! `lemma_accepts_*` shows an example that must be allowed, `lemma_refuses_*` one that must not be.
//!
//! `symbolic.rs` also shows what the seam accepts, `witness.rs` what `next` accepts, and `progress.rs` that the calls of a
//! policy that makes progress are legal. `suite_legal.rs` has what each `legal_*` accepts and refuses.

use super::canonical::*;
use crate::core::Core;
use crate::effects::*;
use crate::ids::PAGE;
use crate::meaning::*;
use crate::next::*;
use crate::ops::commit::*;
use crate::plan::*;
use crate::program::*;
use crate::request::Request;
use crate::seam::*;
use crate::spec::*;
use crate::state::*;
use crate::views::*;
use vstd::prelude::*;

verus! {

// ---- spec.rs

type E = Event<Bits, Bits>;

/// `views` and `orderly` of no event, and of a trace and one more.
proof fn lemma_push(trace: Seq<E>, event: E)
    ensures
        views(Seq::<E>::empty()) == Map::<u64, Seen<Bits, Bits>>::empty(), orderly(Seq::<E>::empty()),
        views(trace.push(event)) == after(views(trace), event),
        orderly(trace.push(event)) <==> orderly(trace) && follows(views(trace), event),
{
    assert(trace.push(event).drop_last() =~= trace);
}

/// An admission makes a view, a record adds to its end, a completion marks it, other views stay; events of a request that was never
/// admitted make none. An identity is admitted once; a request gets records and ends after its admission and before its end.
proof fn lemma_any_event(v: Map<u64, Seen<Bits, Bits>>, request: u64, prompt: Seq<u32>, initial: Bits, entry: Entry<Bits>)
    ensures
        after(v, Event::Admitted { request, prompt, initial }) == v.insert(request, Seen { prompt, initial, entries: Seq::empty(), completed: false }),
        v.contains_key(request) ==> after(v, Event::Emitted { request, entry })
            == v.insert(request, Seen { entries: v[request].entries.push(entry), ..v[request] }),
        v.contains_key(request) ==> after(v, Event::Completed { request }) == v.insert(request, Seen { completed: true, ..v[request] }),
        !v.contains_key(request) ==> after(v, Event::Emitted { request, entry }) == v && after(v, Event::Completed { request }) == v,
        follows(v, Event::Admitted { request, prompt, initial }) <==> !v.contains_key(request),
        follows(v, Event::Emitted { request, entry }) <==> v.contains_key(request) && !v[request].completed,
        follows(v, Event::<Bits, Bits>::Completed { request }) <==> v.contains_key(request) && !v[request].completed,
{
}

/// Records are comparable if logits and tokens are the same as far as both have come.
proof fn lemma_comparable(x: Seq<Entry<Bits>>, y: Seq<Entry<Bits>>)
    ensures comparable(x, y) <==> forall|i: int| 0 <= i < x.len() && i < y.len() ==> (#[trigger] x[i]).logits == y[i].logits && x[i].token == y[i].token,
{
    if x.is_prefix_of(y) {
        assert forall|i: int| 0 <= i < x.len() && i < y.len() implies #[trigger] x[i] == y[i] by { assert(y.subrange(0, x.len() as int)[i] == y[i]); }
    } else if y.is_prefix_of(x) {
        assert forall|i: int| 0 <= i < x.len() && i < y.len() implies #[trigger] x[i] == y[i] by { assert(x.subrange(0, y.len() as int)[i] == x[i]); }
    } else if forall|i: int| 0 <= i < x.len() && i < y.len() ==> (#[trigger] x[i]).logits == y[i].logits && x[i].token == y[i].token {
        assert(x.len() <= y.len() ==> x =~= y.subrange(0, x.len() as int));
        assert(y.len() <= x.len() ==> y =~= x.subrange(0, y.len() as int));
    }
}

/// Of requests that ask the same the answers are comparable, and a completed one is not behind. Of requests that ask different things
/// nothing is said.
proof fn lemma_answers(a: Seen<Bits, Bits>, b: Seen<Bits, Bits>)
    ensures
        answered_alike(a, b) <==> (a.prompt == b.prompt && a.initial == b.initial ==> comparable(a.entries, b.entries)
            && (a.completed ==> b.entries.len() <= a.entries.len()) && (b.completed ==> a.entries.len() <= b.entries.len())),
{
    if comparable(a.entries, b.entries) && a.entries.len() == b.entries.len() {
        assert(a.entries =~= b.entries);
    }
}

/// Any request of the one trace and any of the other; identities need not agree.
proof fn lemma_deterministic(one: Seq<E>, other: Seq<E>)
    ensures
        deterministic(one, other) <==> {
            &&& orderly(one) && orderly(other)
            &&& forall|a: u64, b: u64| views(one).contains_key(a) && views(other).contains_key(b) ==> #[trigger] answered_alike(views(one)[a], views(other)[b])
        },
{
}

// ---- W

/// W is the kernels' functions, what the program means, its context, and the sampler's choice. Nothing else need be shared.
proof fn lemma_shares<D: Device, F: Device<Logits = D::Logits>>(a: World, b: World)
    ensures
        share_w(a, b) <==> a.w == b.w && same_program(a.program, b.program) && forall|state: Bits, row: Bits| #[trigger] (a.choice)(state, row) == (b.choice)(state, row),
        same_program(a.program, b.program) <==> a.program.context == b.program.context && a.program.logits == b.program.logits
            && a.program.ops@.len() == b.program.ops@.len() && forall|n: int| 0 <= n < a.program.ops@.len() ==> #[trigger] same_op(a.program.ops@[n], b.program.ops@[n]),
        read_alike::<D, F>() <==> forall|bits: Bits| #[trigger] D::logits_of(bits) == F::logits_of(bits),
{
    if forall|n: int| 0 <= n < a.program.ops@.len() ==> #[trigger] same_op(a.program.ops@[n], b.program.ops@[n]) {
        assert forall|n: int| 0 <= n < a.program.ops@.len() implies same_op(#[trigger] a.program.ops@[n], b.program.ops@[n]) by {}
    }
}

/// Ops are the same that have the same kind, kernel, inputs, outputs, row set, layer and windows.
proof fn lemma_same_op(a: Op, b: Op)
    ensures
        same_op(a, b) <==> match a {
            Op::Embed { k, out } => b matches Op::Embed { k: k2, out: out2 } && k == k2 && out == out2,
            Op::Rowwise { k, ins, outs, rows } => b matches Op::Rowwise { k: k2, ins: ins2, outs: outs2, rows: rows2 }
                && k == k2 && ins@ == ins2@ && outs@ == outs2@ && rows == rows2,
            Op::StoreKv { k, ins, layer, back } => b matches Op::StoreKv { k: k2, ins: ins2, layer: layer2, back: back2 }
                && k == k2 && ins@ == ins2@ && layer == layer2 && back == back2,
            Op::Attend { k, q, layer, out, window } => b matches Op::Attend { k: k2, q: q2, layer: layer2, out: out2, window: window2 }
                && k == k2 && q == q2 && layer == layer2 && out == out2 && window == window2,
        },
{
}

// ---- next

/// What is refused changes nothing and is not told; what is legal is not refused.
proof fn lemma_refuses_wrong_refusals<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(old: Core<D, S>, call: Call, answer: Answer, new: Core<D, S>)
    requires next(old, call, answer, new),
    ensures
        answer is Refused ==> !legal(old, call) && new == old && new.log() == old.log(),
        !legal(old, call) ==> answer is Refused,
        old.spec_state() is None ==> answer is Refused,
{
    assert(old.log() + Seq::<E>::empty() =~= old.log());
}

/// W does not change under way, nor the device's limits, and what runs on it is what `run` runs.
proof fn lemma_refuses_another_world<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(old: Core<D, S>, call: Call, answer: Answer, new: Core<D, S>)
    requires next(old, call, answer, new),
    ensures
        new.world() == old.world(), new.spec_device().limits() == old.spec_device().limits(), new.sound(),
        !(call is Run) ==> new.spec_device() == old.spec_device(),
{
}

/// The client sees admissions, records and completions, and of nothing else anything.
proof fn lemma_refuses_invented_events<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(old: Core<D, S>, call: Call, answer: Answer, new: Core<D, S>)
    requires next(old, call, answer, new),
    ensures
        !(call is Admit) && !(call is Commit) && !(call is Finish) ==> new.log() == old.log(),
        call is Abort ==> new.log() == old.log(), answer is Committed ==> call is Commit,
        (call matches Call::Admit { prompt, state, .. } && answer matches Answer::Admitted { request }
            && new.log() != old.log().push(Event::Admitted { request: request.serial, prompt, initial: state })) ==> false,
        (call matches Call::Finish { request } && answer is Done && new.log() != old.log().push(Event::Completed { request: request.serial })) ==> false,
{
    assert(old.log() + Seq::<E>::empty() =~= old.log());
    if let Call::Admit { prompt, state, .. } = call {
        if let Answer::Admitted { request } = answer {
            let event = Event::Admitted { request: request.serial, prompt, initial: state };
            assert(old.log() + seq![event] =~= old.log().push(event));
        }
    }
    if let Call::Finish { request } = call {
        let event: E = Event::Completed { request: request.serial };
        assert(old.log() + seq![event] =~= old.log().push(event));
    }
}

/// A record's place in its request's view.
spec fn place<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(core: Core<D, S>, r: Record) -> int {
    r.position - views(core.log())[r.request.serial].prompt.len()
}

/// Its request's view.
spec fn view_of<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(core: Core<D, S>, r: Record) -> Seen<Bits, Bits> {
    views(core.log())[r.request.serial]
}

/// Each record of a commit is told, in order, with the row of logits that the device holds, and what it says is so.
proof fn lemma_refuses_other_records<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(old: Core<D, S>, records: Seq<Record>, logits: Seq<Bits>, new: Core<D, S>, i: int)
    requires next(old, Call::Commit, Answer::Committed { records, logits }, new), 0 <= i < records.len(),
    ensures
        new.log().len() == old.log().len() + records.len(),
        new.log()[old.log().len() + i] == (Event::Emitted { request: records[i].request.serial,
            entry: Entry { logits: new.spec_device().logits_rows()[records[i].selected as int], token: records[i].token } }),
        0 <= place(new, records[i]) < view_of(new, records[i]).entries.len(),
        view_of(new, records[i]).entries[place(new, records[i])].token == records[i].token,
        view_of(new, records[i]).entries[place(new, records[i])].logits == new.spec_device().logits_rows()[records[i].selected as int],
        // `done` is the reference run's, not the core's.
        records[i].done == reference(
            new.world(), view_of(new, records[i]).prompt, view_of(new, records[i]).initial, (place(new, records[i]) + 1) as nat).done,
        new.spec_request(records[i].request) is Some,
        records[i].whole ==> new.holds(records[i]) && (new.spec_device().brought())(records[i].selected as int, Reads::Row),
        // Rows that are to be shown are on the host, and the record is of a sequence of the step.
        exists|q: int| 0 <= q < old.spec_state()->0.plan.sequences@.len() && (#[trigger] old.spec_state()->0.plan.sequences@[q]).request == records[i].request
            && records[i].whole == old.spec_state()->0.plan.sequences@[q].whole,
        records[i].index == i,
{
    let plan = old.spec_state()->0.plan;
    let q = choose|q: int| of_sequence(plan, q, records[i]);
    assert(of_step(plan, records[i]) && plan.sequences@[q].request == records[i].request);
    assert(new.log()[old.log().len() + i] == record_events(logits, records)[i]);
    assert(record_ok(new.world(), new.log(), logits, new.spec_device().brought(), records[i]));
}

/// A failure is one that the device gave, with the device's own words; and what it gave is told.
proof fn lemma_refuses_fabricated_failures<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(old: Core<D, S>, call: Call, answer: Answer, new: Core<D, S>)
    requires next(old, call, answer, new),
    ensures
        new.spec_device().errors() == old.spec_device().errors() ==> !(answer is Failed),
        answer matches Answer::Failed { error } ==> new.spec_device().errors() == old.spec_device().errors().push(error),
        !(answer is Failed) ==> new.spec_device().errors() == old.spec_device().errors(),
{
    if let Answer::Failed { error } = answer {
        assert(old.spec_device().errors().push(error).len() == old.spec_device().errors().len() + 1);
    }
}

/// Only a device that lost its cache leaves the core without a state.
proof fn lemma_refuses_poisoning<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(old: Core<D, S>, call: Call, answer: Answer, new: Core<D, S>)
    requires next(old, call, answer, new), old.spec_state() is Some,
    ensures new.spec_state() is None <==> (answer matches Answer::Failed { error } && !error.intact),
{
}

/// The request of sequence q, before and after a commit.
spec fn was<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(old: Core<D, S>, q: int) -> Request<S::State> {
    old.spec_request(old.spec_state()->0.plan.sequences@[q].request)->0
}

spec fn is_now<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(old: Core<D, S>, q: int, new: Core<D, S>) -> Request<S::State> {
    new.spec_request(old.spec_state()->0.plan.sequences@[q].request)->0
}

/// Nothing stopped the taking of drafts: the last token came true if a draft stood there, can be followed, and ended nothing.
spec fn all_went_well<S: Sampler>(plan: StepPlan, q: int, r: Request<S::State>, r2: Request<S::State>) -> bool {
    let (s, n) = (plan.sequences@[q], r2.history@.len() - r.history@.len());
    &&& !r2.done && s.brings(s.end() + n, S::reads_of(S::state_bits(&r2.state)))
    &&& 1 <= n <= s.drafts ==> drafts_of(plan, q)[n - 1] == r2.history@.last()
}

/// A commit that discards is none: what the step computed of a request is cached, its sampler's token is in its history, and drafts
/// that came true are in it too.
proof fn lemma_refuses_a_discarding_commit<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(old: Core<D, S>, answer: Answer, new: Core<D, S>, q: int)
    requires
        old.sound(), next(old, Call::Commit, answer, new), !(answer is Refused),
        old.spec_state() matches Some(s) && 0 <= q < s.plan.sequences@.len(),
    ensures
        new.spec_request(old.spec_state()->0.plan.sequences@[q].request) is Some,
        was(old, q).history@.len() <= is_now(old, q, new).history@.len(),
        !old.spec_state()->0.plan.sequences@[q].emits ==> is_now(old, q, new).history == was(old, q).history
            && is_now(old, q, new).cached == was(old, q).cached + old.spec_state()->0.plan.sequences@[q].rows,
        old.spec_state()->0.plan.sequences@[q].emits ==> is_now(old, q, new).history@.len() > was(old, q).history@.len()
            && is_now(old, q, new).cached == is_now(old, q, new).history@.len() - 1,
        // All drafts are right, what comes of them can be read, and nobody is done: then all are taken.
        old.spec_state()->0.plan.sequences@[q].emits && all_went_well::<S>(old.spec_state()->0.plan, q, was(old, q), is_now(old, q, new))
            ==> is_now(old, q, new).history@.len() == was(old, q).history@.len() + old.spec_state()->0.plan.sequences@[q].drafts + 1,
{
    old.lemma_state();
    let (a, b) = (old.spec_state()->0, new.spec_state()->0);
    reveal(State::inv_step);
    assert(a.seq_linked(old.spec_fixed().program, q)) by { let _ = a.plan.sequences@[q]; }
    let slot = a.plan.sequences@[q].request.slot as int;
    let n = a.plan.sequences.len();
    assert(n == a.plan.sequences@.len());
    assert(live(a.requests@, slot));
    assert(pending::<S>(a.plan, a.requests@[slot], b.requests@[slot], a.plan.sequences@.len() as int));
}

/// A newly built core consists of what it was given, and has no request, no block, no step, and every page free.
proof fn lemma_refuses_another_core<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(core: Core<D, S>, device: D, sampler: S, program: Program, state: Bits, row: Bits, g: int)
    requires built(core, device, sampler, program),
    ensures
        core.sound(), core.log().len() == 0, core.world().w == device.w(), core.world().program == program,
        (core.world().choice)(state, row) == chosen::<D, S>(sampler.w(), state, row),
        core.spec_device().limits() == device.limits(), core.spec_state() is Some,
        ({
            let s = core.spec_state()->0;
            &&& s.phase is Idle && s.requests@ =~= Seq::empty() && s.blocks@ =~= Seq::empty() && s.next_request == 0
            &&& s.pools@.len() == program.groups@.len()
            &&& 0 <= g < s.pools@.len() ==> s.pools@[g].free@.len() == (device.limits().pages)(g) && s.pools@[g].pages@.len() == (device.limits().pages)(g)
        }),
{
}

// ---- seam.rs: what a device did

/// An op's outputs are its kernel's: another value at one row, and it did not run.
proof fn lemma_refuses_another_value(w: Kernels, program: Program, plan: StepPlan, op: Op, a: Memory, b: Memory, t: int, n: int, i: int, o: int)
    requires op_ran(w, program, plan, op, a, b), 0 <= t, 0 <= o,
    ensures
        op matches Op::Embed { k, out } ==> t < plan.tokens@.len() ==> (b.rows)(out, t) == (w.embed)(k, plan.tokens@[t]),
        op matches Op::Rowwise { k, ins, outs, rows: RowSet::All } ==> o < outs@.len() && t < plan.tokens@.len()
            ==> (b.rows)(outs@[o], t) == (w.rowwise)(k, ins_at(a, ins@, t), o, plan.positions@[t] as int),
        op matches Op::Rowwise { k, ins, outs, rows: RowSet::Selected } ==> o < outs@.len() && t < plan.selected@.len()
            ==> (b.rows)(outs@[o], t) == (w.rowwise)(k, ins_selected(program, plan, a, ins@, t), o, plan.positions@[plan.selected@[t] as int] as int),
        op matches Op::Attend { k, q, layer, out, window } ==> 0 <= n < plan.sequences@.len() && 0 <= i < plan.sequences@[n].rows
            ==> (b.rows)(out, plan.sequences@[n].row(i)) == (w.attend)(k, (a.rows)(q, plan.sequences@[n].row(i)),
                kv_seen(program, plan.sequences@[n], a, layer, window, plan.sequences@[n].position(i)), plan.sequences@[n].position(i)),
{
}

/// Stores write the step's slots, and nothing else writes any slot or any other buffer.
proof fn lemma_refuses_stray_writes(w: Kernels, program: Program, plan: StepPlan, op: Op, a: Memory, b: Memory, x: u32, t: int, layer: u32, page: int, offset: int, q: int, i: int)
    requires op_ran(w, program, plan, op, a, b),
    ensures
        !op.writes(x) ==> (b.rows)(x, t) == (a.rows)(x, t),
        !op.stores(layer) || !written_slot(plan, group_of(program, layer), page, offset) ==> (b.cache)(layer, page, offset) == (a.cache)(layer, page, offset),
        op matches Op::StoreKv { k, ins, layer: l, back } ==> (l == layer && writes_slot(plan, group_of(program, layer), q, i, page, offset)
            ==> (b.cache)(layer, page, offset) == (w.store)(k, ins_at(a, ins@, plan.sequences@[q].row(i)),
                kv_before(program, plan.sequences@[q], b, layer, back, plan.sequences@[q].position(i)), plan.sequences@[q].position(i))),
{
    match op {
        Op::Embed { out, .. } => assert(seq![out].contains(x) ==> x == out),
        Op::Attend { out, .. } => assert(seq![out].contains(x) ==> x == out),
        _ => {},
    }
}

/// A program ran from its first op to its last, on the cache as it was, and the logits are its logits buffer.
proof fn lemma_refuses_half_a_run(w: Kernels, program: Program, plan: StepPlan, before: spec_fn(u32, int, int) -> Bits, after: spec_fn(u32, int, int) -> Bits, logits: Seq<Bits>)
    requires ran(w, program, plan, before, after, logits),
    ensures
        logits.len() == plan.selected@.len(),
        exists|ms: Seq<Memory>| #[trigger] chain_ran(w, program, plan, ms) && ms[0].cache == before && ms.last().cache == after
            && ms.len() == program.ops@.len() + 1
            && (forall|t: int| 0 <= t < logits.len() ==> #[trigger] logits[t] == (ms.last().rows)(program.logits, t)),
{
    let ms = choose|ms: Seq<Memory>| #[trigger] chain_ran(w, program, plan, ms) && ms[0].cache == before
        && ms[ms.len() - 1].cache == after && logits.len() == plan.selected@.len()
        && forall|t: int| 0 <= t < logits.len() ==> #[trigger] logits[t] == (ms[ms.len() - 1].rows)(program.logits, t);
    assert(chain_ran(w, program, plan, ms));
}

/// What is kept is kept in every slot outside the write set, and what is finite is finite everywhere.
proof fn lemma_refuses_lost_slots(program: Program, plan: StepPlan, w: Kernels, before: spec_fn(u32, int, int) -> Bits, after: spec_fn(u32, int, int) -> Bits, layer: u32, page: int, offset: int)
    ensures
        kept_outside(program, plan, before, after) && !written_slot(plan, group_of(program, layer), page, offset)
            ==> after(layer, page, offset) == before(layer, page, offset),
        all_finite(w, after) ==> (w.finite)(after(layer, page, offset)),
{
}

/// What a plan wants is brought, of every selected row of every sequence; the best token always is.
proof fn lemma_refuses_less_than_wanted(plan: StepPlan, brought: spec_fn(int, Reads) -> bool, q: int, i: int)
    requires wanted_brought(plan, brought), 0 <= q < plan.sequences@.len(), 0 <= i < plan.sequences@[q].selected,
    ensures
        brought(plan.sequences@[q].compact(i), Reads::Best),
        plan.sequences@[q].whole ==> brought(plan.sequences@[q].compact(i), Reads::Row),
        plan.sequences@[q].top ==> brought(plan.sequences@[q].compact(i), Reads::Top),
        i < plan.sequences@[q].draws@.len() ==> brought(plan.sequences@[q].compact(i), Reads::Drawn(plan.sequences@[q].draws@[i])),
{
    let s = plan.sequences@[q];
    assert(s.brings(i, Reads::Best) && s.brings(i, Reads::Row) == s.whole && s.brings(i, Reads::Top) == s.top);
    assert(i < s.draws@.len() ==> s.brings(i, Reads::Drawn(s.draws@[i])));
}

/// What a device may rely on: rows packed and in range, each request once, each slot written once, each page there.
proof fn lemma_refuses_wrong_plans(limits: Limits, program: Program, plan: StepPlan, q: int, i: int, g: int, j: int)
    requires plan_ok(limits, program, plan), 0 <= q < plan.sequences@.len(), 0 <= i < plan.sequences@[q].rows, 0 <= g < program.groups@.len(),
    ensures
        ({
            let s = plan.sequences@[q];
            let t = s.row(i);
            &&& 1 <= plan.tokens@.len() <= limits.rows && plan.selected@.len() <= limits.selected
            &&& 0 <= t < plan.tokens@.len() && plan.tokens@[t] < program.vocab && plan.positions@[t] == s.position(i) && s.position(i) < program.context
            // The page of its own position, and every page that it sees.
            &&& window_lo(program.groups@[g].window, s.first_position as int) <= j <= s.position(i) ==> s.has_page(g, j) && 0 <= s.page(g, j) < (limits.pages)(g)
            // No other row writes there, and its request is in no other sequence.
            &&& forall|p: int| 0 <= p < plan.sequences@.len() && (#[trigger] plan.sequences@[p]).request.slot == s.request.slot ==> p == q
            &&& forall|p: int, x: int| #[trigger] writes_slot(plan, g, p, x, s.page(g, s.position(i)), s.position(i) % (PAGE as int)) ==> p == q && x == i
            // No row writes what the sequence has from earlier steps.
            &&& j < s.first_position && s.has_page(g, j) ==> !written_slot(plan, g, s.page(g, j), j % (PAGE as int))
        }),
{
    reveal(plan_packed);
    reveal(earlier_kept);
    let s = plan.sequences@[q];
    assert(seq_ok(limits, program, plan, q));
    assert(writes_slot(plan, g, q, i, s.page(g, s.position(i)), s.position(i) % (PAGE as int)));
    assert(plan.positions@[s.row(i)] == s.position(i));
}

/// And each row is of one sequence: they follow each other and leave none over.
proof fn lemma_refuses_loose_rows(limits: Limits, program: Program, plan: StepPlan)
    requires plan_packed(limits, program, plan), plan.sequences@.len() == 2,
    ensures
        plan.sequences@[0].first_row == 0 && plan.sequences@[1].first_row == plan.sequences@[0].rows,
        plan.tokens@.len() == plan.sequences@[0].rows + plan.sequences@[1].rows,
        plan.sequences@[0].first_selected == 0 && plan.sequences@[1].first_selected == plan.sequences@[0].selected,
        plan.selected@.len() == plan.sequences@[0].selected + plan.sequences@[1].selected,
{
    reveal(plan_packed);
    let (a, b) = (plan.sequences@[0], plan.sequences@[1]);
    reveal_with_fuel(rows_before, 3);
    reveal_with_fuel(selected_before, 3);
}

} // verus!
