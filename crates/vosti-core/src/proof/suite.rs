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

spec fn bits(code: int) -> Bits {
    Bits { code }
}

spec fn entry(logits: int, token: u32) -> Entry<Bits> {
    Entry { logits: bits(logits), token }
}

spec fn came(request: u64) -> E {
    Event::Admitted { request, prompt: seq![3u32, 4], initial: bits(5) }
}

spec fn told(request: u64, logits: int, token: u32) -> E {
    Event::Emitted { request, entry: entry(logits, token) }
}

spec fn over(request: u64) -> E {
    Event::Completed { request }
}

/// A request that asks what `came` asks, with these records.
spec fn seen(entries: Seq<Entry<Bits>>, completed: bool) -> Seen<Bits, Bits> {
    Seen { prompt: seq![3u32, 4], initial: bits(5), entries, completed }
}

/// `views` and `orderly` of a trace and one more event.
proof fn lemma_push(trace: Seq<E>, event: E)
    ensures
        views(trace.push(event)) == after(views(trace), event),
        orderly(trace.push(event)) <==> orderly(trace) && follows(views(trace), event),
{
    assert(trace.push(event).drop_last() =~= trace);
}

/// An admission makes a view; a record adds to its end; a completion marks it; other views stay.
proof fn lemma_accepts_after(v: Map<u64, Seen<Bits, Bits>>, a: u64, b: u64, entries: Seq<Entry<Bits>>)
    requires a != b, v.contains_key(a), v.contains_key(b), v[a] == seen(entries, false),
    ensures
        after(v, told(a, 1, 2))[a] == seen(entries.push(entry(1, 2)), false), after(v, told(a, 1, 2))[b] == v[b],
        after(v, over(a))[a] == seen(entries, true), after(v, over(a))[b] == v[b],
        after(v.remove(a), came(a))[a] == seen(Seq::empty(), false), after(v.remove(a), came(a))[b] == v[b],
{
}

/// Events of a request that was never admitted make no view.
proof fn lemma_refuses_views_from_nothing(v: Map<u64, Seen<Bits, Bits>>, a: u64)
    requires !v.contains_key(a),
    ensures after(v, told(a, 1, 2)) == v, after(v, over(a)) == v,
{
}

/// A request's whole trace is orderly: admitted, records, completed. So is a trace of two requests at once.
proof fn lemma_accepts_orderly()
    ensures orderly(seq![came(1), told(1, 1, 2), came(2), told(2, 1, 2), told(1, 3, 4), over(1)]),
{
    let t: Seq<E> = Seq::empty();
    lemma_push(t, came(1));
    lemma_push(t.push(came(1)), told(1, 1, 2));
    lemma_push(t.push(came(1)).push(told(1, 1, 2)), came(2));
    lemma_push(t.push(came(1)).push(told(1, 1, 2)).push(came(2)), told(2, 1, 2));
    lemma_push(t.push(came(1)).push(told(1, 1, 2)).push(came(2)).push(told(2, 1, 2)), told(1, 3, 4));
    lemma_push(t.push(came(1)).push(told(1, 1, 2)).push(came(2)).push(told(2, 1, 2)).push(told(1, 3, 4)), over(1));
    assert(seq![came(1), told(1, 1, 2), came(2), told(2, 1, 2), told(1, 3, 4), over(1)]
        =~= t.push(came(1)).push(told(1, 1, 2)).push(came(2)).push(told(2, 1, 2)).push(told(1, 3, 4)).push(over(1)));
}

/// An identity is admitted once; a request gets records only after its admission and before its end; and it ends once.
proof fn lemma_refuses_disorder(v: Map<u64, Seen<Bits, Bits>>, a: u64)
    ensures
        v.contains_key(a) ==> !follows(v, came(a)),
        !v.contains_key(a) ==> !follows(v, told(a, 1, 2)) && !follows(v, over(a)),
        v.contains_key(a) && v[a].completed ==> !follows(v, told(a, 1, 2)) && !follows(v, over(a)),
{
}

/// Disorder is not forgotten, whatever comes after it.
proof fn lemma_refuses_early_disorder(last: E)
    ensures !orderly(seq![told(1, 1, 2), last]),
{
    let t: Seq<E> = Seq::empty();
    lemma_push(t, told(1, 1, 2));
    lemma_push(t.push(told(1, 1, 2)), last);
    assert(seq![told(1, 1, 2), last] =~= t.push(told(1, 1, 2)).push(last));
}

/// One sequence of records may be longer than the other.
proof fn lemma_accepts_comparable(a: Seq<Entry<Bits>>, more: Seq<Entry<Bits>>)
    ensures comparable(a, a + more), comparable(a + more, a), comparable(a, a), comparable(Seq::empty(), a),
{
    assert(a.is_prefix_of(a + more)) by { assert((a + more).subrange(0, a.len() as int) =~= a); }
}

/// A difference in one bit of one row of logits, or in one token, makes them incomparable.
proof fn lemma_refuses_another_row(a: Seq<Entry<Bits>>, b: Seq<Entry<Bits>>, i: int)
    requires 0 <= i < a.len(), i < b.len(), a[i].logits != b[i].logits || a[i].token != b[i].token,
    ensures !comparable(a, b),
{
    if a.is_prefix_of(b) {
        assert(a[i] == b.subrange(0, a.len() as int)[i]);
    }
    if b.is_prefix_of(a) {
        assert(b[i] == a.subrange(0, b.len() as int)[i]);
    }
}

/// Requests that ask different things may have different answers, and a request that is not complete may be behind.
proof fn lemma_accepts_answers(a: Seen<Bits, Bits>, b: Seen<Bits, Bits>, x: Seq<Entry<Bits>>, more: Seq<Entry<Bits>>)
    ensures
        a.prompt != b.prompt || a.initial != b.initial ==> answered_alike(a, b),
        answered_alike(seen(x, false), seen(x + more, true)), answered_alike(seen(x + more, false), seen(x, false)),
        answered_alike(seen(x, true), seen(x, true)),
{
    lemma_accepts_comparable(x, more);
}

/// Requests that ask the same do not have different answers, and a completed request is not behind.
proof fn lemma_refuses_answers(x: Seq<Entry<Bits>>, y: Seq<Entry<Bits>>, p: bool, q: bool)
    ensures
        !comparable(x, y) ==> !answered_alike(seen(x, p), seen(y, q)),
        x != y ==> !answered_alike(seen(x, true), seen(y, true)),
        x.len() < y.len() ==> !answered_alike(seen(x, true), seen(y, q)) && !answered_alike(seen(y, q), seen(x, true)),
{
    if x.is_prefix_of(y) && y.is_prefix_of(x) {
        assert(x =~= y);
    }
}

/// One request, one record.
spec fn life(request: u64, logits: int, token: u32) -> Seq<E> {
    Seq::empty().push(came(request)).push(told(request, logits, token))
}

proof fn lemma_life(request: u64, logits: int, token: u32)
    ensures
        orderly(life(request, logits, token)), views(life(request, logits, token)).contains_key(request),
        views(life(request, logits, token))[request] == seen(seq![entry(logits, token)], false),
        forall|a: u64| #[trigger] views(life(request, logits, token)).contains_key(a) ==> a == request,
{
    let t: Seq<E> = Seq::empty();
    lemma_push(t, came(request));
    lemma_push(t.push(came(request)), told(request, logits, token));
    assert(Seq::<Entry<Bits>>::empty().push(entry(logits, token)) =~= seq![entry(logits, token)]);
    assert(views(t) =~= Map::empty());
}

/// Two executions with the same records are deterministic; identities need not agree.
proof fn lemma_accepts_two_traces()
    ensures deterministic(life(1, 1, 2), life(7, 1, 2)),
{
    lemma_life(1, 1, 2);
    lemma_life(7, 1, 2);
}

/// Two executions that differ in one record are not, although each of them alone is.
proof fn lemma_refuses_two_traces(x: int, y: int, token: u32)
    requires x != y,
    ensures !deterministic(life(1, x, token), life(1, y, token)), deterministic(life(1, x, token), life(1, x, token)),
{
    lemma_life(1, x, token);
    lemma_life(1, y, token);
    let (one, other) = (life(1, x, token), life(1, y, token));
    lemma_refuses_another_row(seq![entry(x, token)], seq![entry(y, token)], 0);
    assert(!answered_alike(views(one)[1u64], views(other)[1u64]));
}

/// Nothing is special in the examples above: whatever the prompt, the state and the records, an event does this and may come then.
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

/// For all prompts and states: requests that ask the same are answered the same.
proof fn lemma_refuses_any_answers(a: Seen<Bits, Bits>, b: Seen<Bits, Bits>)
    requires
        a.prompt == b.prompt, a.initial == b.initial,
        !comparable(a.entries, b.entries) || a.completed && b.entries.len() > a.entries.len() || b.completed && a.entries.len() > b.entries.len(),
    ensures !answered_alike(a, b),
{
}

/// For all traces and any two requests in them.
proof fn lemma_refuses_any_traces(one: Seq<E>, other: Seq<E>, a: u64, b: u64)
    requires views(one).contains_key(a), views(other).contains_key(b), !answered_alike(views(one)[a], views(other)[b]),
    ensures !deterministic(one, other),
{
}

/// A trace that is out of order is no part of a deterministic pair, on neither side.
proof fn lemma_refuses_disorderly_traces(one: Seq<E>, other: Seq<E>)
    requires !orderly(one) || !orderly(other),
    ensures !deterministic(one, other),
{
}

// ---- W

/// W is the kernels' functions, what the program means, its context, and the sampler's choice: who shares W shares each.
proof fn lemma_refuses_another_w(a: World, b: World, n: int, state: Bits, row: Bits)
    requires share_w(a, b),
    ensures
        a.w == b.w, a.program.context == b.program.context, a.program.logits == b.program.logits, a.program.ops@.len() == b.program.ops@.len(),
        0 <= n < a.program.ops@.len() ==> same_op(a.program.ops@[n], b.program.ops@[n]),
        (a.choice)(state, row) == (b.choice)(state, row),
{
}

/// Ops of other kinds, kernels, inputs, outputs, layers or windows are not the same.
proof fn lemma_refuses_another_op(a: Op, b: Op)
    requires same_op(a, b),
    ensures
        a.binding() == b.binding(), forall|x: u32| a.writes(x) == b.writes(x), forall|l: u32| a.stores(l) == b.stores(l),
        a matches Op::Rowwise { ins, outs, rows, .. } ==> b matches Op::Rowwise { ins: ins2, outs: outs2, rows: rows2, .. } && ins@ == ins2@ && outs@ == outs2@ && rows == rows2,
        a matches Op::StoreKv { ins, back, .. } ==> b matches Op::StoreKv { ins: ins2, back: back2, .. } && ins@ == ins2@ && back == back2,
        a matches Op::Attend { q, layer, window, .. } ==> b matches Op::Attend { q: q2, layer: layer2, window: window2, .. } && q == q2 && layer == layer2 && window == window2,
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
        call is Abort ==> new.log() == old.log(),
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
        records[i].whole ==> new.holds(records[i]),
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
    &&& !r2.done && s.brings(S::reads_of(S::state_bits(&r2.state)))
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
{
    let s = plan.sequences@[q];
    assert(s.brings(Reads::Best) && s.brings(Reads::Row) == s.whole && s.brings(Reads::Top) == s.top);
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
