//! Running a well-formed program on any packed, paged batch gives each row its canonical value: one induction over the
//! list of ops.

use crate::ids::{PAGE, Token};
use crate::meaning::*;
use crate::plan::StepPlan;
use crate::program::*;
use crate::seam::*;
use crate::views::*;
use vstd::prelude::*;

verus! {

/// What the step runs on: `hs[q]` is the history of sequence q, its drafts included.
#[verifier::opaque]
pub open(crate) spec fn batch_ok(program: Program, plan: StepPlan, hs: Seq<Seq<Token>>) -> bool {
    &&& hs.len() == plan.sequences@.len()
    &&& forall|q: int| #![trigger plan.sequences@[q]] 0 <= q < hs.len() ==> plan.sequences@[q].position(plan.sequences@[q].rows as int) <= hs[q].len()
    &&& forall|q: int, i: int| 0 <= q < hs.len() && 0 <= i < plan.sequences@[q].rows
            ==> plan.tokens@[#[trigger] plan.sequences@[q].row(i)] == hs[q][plan.sequences@[q].position(i)]
}

/// The slot of position j of sequence q holds canonical KV.
pub open(crate) spec fn cached_slot(
    w: Kernels,
    program: Program,
    plan: StepPlan,
    cache: spec_fn(u32, int, int) -> Bits,
    q: int,
    h: Seq<Token>,
    layer: u32,
    j: int,
) -> bool {
    let s = plan.sequences@[q];
    cache(layer, s.page(group_of(program, layer), j), j % (PAGE as int)) == kv_row(w, program, h, j, layer)
}

/// Everything that the sequences have cached is as it should be.
#[verifier::opaque]
pub open(crate) spec fn cached_ok(
    w: Kernels,
    program: Program,
    plan: StepPlan,
    cache: spec_fn(u32, int, int) -> Bits,
    hs: Seq<Seq<Token>>,
) -> bool {
    forall|q: int, layer: u32, j: int| 0 <= q < hs.len() && program.keeps(layer) && 0 <= j < plan.sequences@[q].first_position
        && plan.sequences@[q].has_page(group_of(program, layer), j)
        ==> #[trigger] cached_slot(w, program, plan, cache, q, hs[q], layer, j)
}

/// Buffers of all rows that have been written hold canonical values.
#[verifier::opaque]
pub open(crate) spec fn inv_all(w: Kernels, prog: Program, n: nat, plan: StepPlan, hs: Seq<Seq<Token>>, m: Memory) -> bool {
    forall|b: u32, q: int, i: int| b < prog.buffers@.len() && prog.buffers@[b as int].rows is All && prog.written(n as int, b)
        && 0 <= q < hs.len() && 0 <= i < plan.sequences@[q].rows
        ==> #[trigger] (m.rows)(b, plan.sequences@[q].row(i)) == canon(w, prog, n, hs[q], plan.sequences@[q].position(i), b)
}

/// Buffers of selected rows that have been written hold canonical values.
#[verifier::opaque]
pub open(crate) spec fn inv_selected(w: Kernels, prog: Program, n: nat, plan: StepPlan, hs: Seq<Seq<Token>>, m: Memory) -> bool {
    forall|b: u32, q: int, i: int| b < prog.buffers@.len() && prog.buffers@[b as int].rows is Selected && prog.written(n as int, b)
        && 0 <= q < hs.len() && 0 <= i < plan.sequences@[q].selected
        ==> #[trigger] (m.rows)(b, plan.sequences@[q].compact(i))
            == canon(w, prog, n, hs[q], plan.sequences@[q].position(plan.sequences@[q].unselected() + i), b)
}

/// Stored layers hold the step's canonical KV.
#[verifier::opaque]
pub open(crate) spec fn inv_new(w: Kernels, prog: Program, n: nat, plan: StepPlan, hs: Seq<Seq<Token>>, m: Memory) -> bool {
    forall|layer: u32, q: int, i: int, page: int, offset: int| layer < prog.layers@.len() && prog.stored(n as int, layer)
        && #[trigger] writes_slot(plan, group_of(prog, layer), q, i, page, offset)
        ==> #[trigger] (m.cache)(layer, page, offset) == canon_kv(w, prog, n, hs[q], plan.sequences@[q].position(i), layer)
}

/// Slots outside the write set are as they were before the step.
pub open(crate) spec fn inv_frame(prog: Program, plan: StepPlan, before: spec_fn(u32, int, int) -> Bits, m: Memory) -> bool {
    kept_outside(prog, plan, before, m.cache)
}

pub open(crate) spec fn inv_forward(
    w: Kernels,
    prog: Program,
    n: nat,
    plan: StepPlan,
    hs: Seq<Seq<Token>>,
    before: spec_fn(u32, int, int) -> Bits,
    m: Memory,
) -> bool {
    &&& inv_all(w, prog, n, plan, hs, m)
    &&& inv_selected(w, prog, n, plan, hs, m)
    &&& inv_new(w, prog, n, plan, hs, m)
    &&& inv_frame(prog, plan, before, m)
}

pub open(crate) spec fn given(
    limits: Limits,
    w: Kernels,
    prog: Program,
    plan: StepPlan,
    hs: Seq<Seq<Token>>,
    before: spec_fn(u32, int, int) -> Bits,
) -> bool {
    &&& prog.wf()
    &&& plan_ok(limits, prog, plan)
    &&& batch_ok(prog, plan, hs)
    &&& cached_ok(w, prog, plan, before, hs)
}

proof fn lemma_op_wf(prog: Program, n: int)
    requires prog.wf(), 0 <= n < prog.ops@.len(),
    ensures prog.op_wf(n),
{
    reveal(Program::ops_wf);
}

/// Once a layer is stored, its canonical KV no longer changes with the number of ops.
pub proof fn lemma_kv_stable(w: Kernels, prog: Program, n: nat, m: nat, h: Seq<Token>, j: int, l: u32)
    requires prog.wf(), n <= m <= prog.ops@.len(), prog.stored(n as int, l),
    ensures canon_kv(w, prog, n, h, j, l) == canon_kv(w, prog, m, h, j, l), prog.stored(m as int, l),
    decreases m - n,
{
    reveal(Program::stored);
    if n < m {
        let k = (m - 1) as nat;
        lemma_op_wf(prog, k as int);
        lemma_kv_stable(w, prog, n, k, h, j, l);
    }
}

/// Facts about one sequence.
proof fn lemma_seq(limits: Limits, prog: Program, plan: StepPlan, q: int)
    requires plan_ok(limits, prog, plan), 0 <= q < plan.sequences@.len(),
    ensures seq_ok(limits, prog, plan, q), plan.positions@.len() == plan.tokens@.len(),
{
    reveal(plan_packed);
}

/// The KV row of a position that earlier steps cached is canonical all through the step.
proof fn lemma_read_cached(
    limits: Limits, w: Kernels, prog: Program, n: nat, plan: StepPlan, hs: Seq<Seq<Token>>,
    before: spec_fn(u32, int, int) -> Bits, m: Memory, q: int, layer: u32, j: int)
    requires
        given(limits, w, prog, plan, hs, before), n <= prog.ops@.len(), inv_frame(prog, plan, before, m),
        prog.stored(n as int, layer), layer < prog.layers@.len(), 0 <= q < hs.len(),
        window_lo(prog.groups@[group_of(prog, layer)].window, plan.sequences@[q].first_position as int) <= j < plan.sequences@[q].first_position,
    ensures kv_at(prog, plan.sequences@[q], m, layer, j) == canon_kv(w, prog, n, hs[q], j, layer),
{
    let g = group_of(prog, layer);
    assert(hs.len() == plan.sequences@.len()) by { reveal(batch_ok); }
    lemma_seq(limits, prog, plan, q);
    lemma_kv_stable(w, prog, n, prog.ops@.len(), hs[q], j, layer);
    reveal(cached_ok);
    assert(cached_slot(w, prog, plan, before, q, hs[q], layer, j));
    assert(!written_slot(plan, g, plan.sequences@[q].page(g, j), j % (PAGE as int))) by { reveal(earlier_kept); }
}

/// The KV row that attention reads for position j of sequence q is canonical.
proof fn lemma_read_kv(
    limits: Limits, w: Kernels, prog: Program, n: nat, plan: StepPlan, hs: Seq<Seq<Token>>,
    before: spec_fn(u32, int, int) -> Bits, m: Memory, q: int, i: int, layer: u32, j: int)
    requires
        given(limits, w, prog, plan, hs, before), n <= prog.ops@.len(), inv_new(w, prog, n, plan, hs, m), inv_frame(prog, plan, before, m),
        prog.stored(n as int, layer), layer < prog.layers@.len(), 0 <= q < hs.len(), 0 <= i < plan.sequences@[q].rows,
        window_lo(prog.groups@[group_of(prog, layer)].window, plan.sequences@[q].first_position as int) <= j <= plan.sequences@[q].position(i),
    ensures kv_at(prog, plan.sequences@[q], m, layer, j) == canon_kv(w, prog, n, hs[q], j, layer),
{
    let s = plan.sequences@[q];
    let g = group_of(prog, layer);
    assert(hs.len() == plan.sequences@.len()) by { reveal(batch_ok); }
    if j < s.first_position {
        lemma_read_cached(limits, w, prog, n, plan, hs, before, m, q, layer, j);
    } else {
        reveal(inv_new);
        let i2 = j - s.first_position;
        assert(writes_slot(plan, g, q, i2, s.page(g, j), j % (PAGE as int)));
    }
}

proof fn lemma_read_kvs(
    limits: Limits, w: Kernels, prog: Program, n: nat, plan: StepPlan, hs: Seq<Seq<Token>>,
    before: spec_fn(u32, int, int) -> Bits, m: Memory, q: int, i: int, layer: u32, window: Option<u32>)
    requires
        given(limits, w, prog, plan, hs, before), n <= prog.ops@.len(), inv_new(w, prog, n, plan, hs, m), inv_frame(prog, plan, before, m),
        prog.stored(n as int, layer), layer < prog.layers@.len(), 0 <= q < hs.len(), 0 <= i < plan.sequences@[q].rows,
        window_within(window, prog.groups@[group_of(prog, layer)].window),
    ensures
        kv_seen(prog, plan.sequences@[q], m, layer, window, plan.sequences@[q].position(i))
            == canon_kvs(w, prog, n, hs[q], plan.sequences@[q].position(i), layer, window),
{
    let s = plan.sequences@[q];
    let p = s.position(i);
    let a = kv_seen(prog, s, m, layer, window, p);
    let c = canon_kvs(w, prog, n, hs[q], p, layer, window);
    assert forall|x: int| 0 <= x < window_span(window, p) implies a[x] == c[x] by {
        lemma_read_kv(limits, w, prog, n, plan, hs, before, m, q, i, layer, window_lo(window, p) + x);
    }
}

/// The inputs at a row of sequence q are canonical.
proof fn lemma_ins_all(w: Kernels, prog: Program, n: nat, plan: StepPlan, hs: Seq<Seq<Token>>, m: Memory, ins: Seq<u32>, q: int, i: int)
    requires
        inv_all(w, prog, n, plan, hs, m), prog.all_readable(n as int, ins, RowSet::All), 0 <= q < hs.len(), 0 <= i < plan.sequences@[q].rows,
    ensures
        ins_at(m, ins, plan.sequences@[q].row(i)) == canon_ins(w, prog, n, hs[q], plan.sequences@[q].position(i), ins),
{
    reveal(inv_all);
}

/// The gathered inputs at a selected row of sequence q are canonical.
proof fn lemma_ins_selected(limits: Limits, w: Kernels, prog: Program, n: nat, plan: StepPlan, hs: Seq<Seq<Token>>, m: Memory, ins: Seq<u32>, q: int, i: int)
    requires
        plan_ok(limits, prog, plan), batch_ok(prog, plan, hs),
        inv_all(w, prog, n, plan, hs, m), inv_selected(w, prog, n, plan, hs, m),
        prog.all_readable(n as int, ins, RowSet::Selected), 0 <= q < hs.len(), 0 <= i < plan.sequences@[q].selected,
    ensures
        ins_selected(prog, plan, m, ins, plan.sequences@[q].compact(i))
            == canon_ins(w, prog, n, hs[q], plan.sequences@[q].position(plan.sequences@[q].unselected() + i), ins),
        plan.positions@[plan.selected@[plan.sequences@[q].compact(i)] as int] == plan.sequences@[q].position(plan.sequences@[q].unselected() + i),
{
    reveal(inv_all);
    reveal(inv_selected);
    assert(hs.len() == plan.sequences@.len()) by { reveal(batch_ok); }
    lemma_seq(limits, prog, plan, q);
    let s = plan.sequences@[q];
    let r = s.unselected() + i;
    assert(plan.selected@[s.compact(i)] == s.row(r));
    assert(plan.positions@[s.row(r)] == s.position(r));
    let a = ins_selected(prog, plan, m, ins, s.compact(i));
    let c = canon_ins(w, prog, n, hs[q], s.position(r), ins);
    assert forall|x: int| 0 <= x < ins.len() implies a[x] == c[x] by {
        assert(prog.readable(n as int, ins[x], RowSet::Selected));
        match prog.buffers@[ins[x] as int].rows {
            RowSet::All => {
                assert((m.rows)(ins[x], plan.sequences@[q].row(r)) == canon(w, prog, n, hs[q], s.position(r), ins[x]));
            },
            RowSet::Selected => {
                assert((m.rows)(ins[x], plan.sequences@[q].compact(i)) == canon(w, prog, n, hs[q], s.position(r), ins[x]));
            },
        }
    }
    assert(a =~= c);
}

/// What an op does not write was written before it, and stays.
proof fn lemma_written_before(prog: Program, n: nat, b: u32)
    requires prog.written(n as int + 1, b), !prog.ops@[n as int].writes(b),
    ensures prog.written(n as int, b),
{
    reveal(Program::written);
}

proof fn lemma_stored_before(prog: Program, n: nat, l: u32)
    requires prog.stored(n as int + 1, l), !prog.ops@[n as int].stores(l),
    ensures prog.stored(n as int, l),
{
    reveal(Program::stored);
}

/// The one output of an op that has no list of them.
pub(crate) proof fn lemma_output(op: Op, x: u32)
    requires !op.writes(x),
    ensures op matches Op::Embed { out, .. } ==> out != x, op matches Op::Attend { out, .. } ==> out != x,
{
    if op is Embed || op is Attend {
        assert(op.outputs()[0] == op.outputs().first());
    }
}

/// What an op writes has its row set.
proof fn lemma_writes(prog: Program, n: nat, x: u32)
    requires prog.op_wf(n as int), prog.ops@[n as int].writes(x),
    ensures
        prog.writable(x, prog.ops@[n as int].rows()),
        prog.ops@[n as int] matches Op::Embed { out, .. } ==> out == x,
        prog.ops@[n as int] matches Op::Attend { q, out, .. } ==> out == x && prog.readable(n as int, q, RowSet::All),
{
    let op = prog.ops@[n as int];
    if op is Attend {
        assert(prog.readable(n as int, op.inputs()[0], op.rows()));
    }
}

proof fn lemma_step_all(
    limits: Limits, w: Kernels, prog: Program, n: nat, plan: StepPlan, hs: Seq<Seq<Token>>,
    before: spec_fn(u32, int, int) -> Bits, a: Memory, b: Memory, x: u32, q: int, i: int)
    requires
        given(limits, w, prog, plan, hs, before), n < prog.ops@.len(), inv_forward(w, prog, n, plan, hs, before, a),
        op_ran(w, prog, plan, prog.ops@[n as int], a, b),
        x < prog.buffers@.len(), prog.buffers@[x as int].rows is All, prog.written(n as int + 1, x),
        0 <= q < hs.len(), 0 <= i < plan.sequences@[q].rows,
    ensures
        (b.rows)(x, plan.sequences@[q].row(i)) == canon(w, prog, n + 1, hs[q], plan.sequences@[q].position(i), x),
{
    let s = plan.sequences@[q];
    assert(hs.len() == plan.sequences@.len()) by { reveal(batch_ok); }
    lemma_seq(limits, prog, plan, q);
    lemma_op_wf(prog, n as int);
    let op = prog.ops@[n as int];
    let t = s.row(i);
    if op.writes(x) {
        lemma_writes(prog, n, x);
        match op {
            Op::Embed { k, out } => {
                reveal(batch_ok);
            },
            Op::Rowwise { k, ins, outs, rows } => {
                let o = outs@.index_of(x);
                assert(outs@[o] == x);
                assert(rows is All);
                lemma_ins_all(w, prog, n, plan, hs, a, ins@, q, i);
                assert((b.rows)(outs@[o], t) == (w.rowwise)(k, ins_at(a, ins@, t), o, plan.positions@[t] as int));
                assert(plan.positions@[s.row(i)] == s.position(i));
            },
            Op::Attend { k, q: qb, layer, out, window } => {
                lemma_read_kvs(limits, w, prog, n, plan, hs, before, a, q, i, layer, window);
                reveal(inv_all);
                assert((a.rows)(qb, plan.sequences@[q].row(i)) == canon(w, prog, n, hs[q], s.position(i), qb));
                assert((b.rows)(out, plan.sequences@[q].row(i)) == (w.attend)(k, (a.rows)(qb, plan.sequences@[q].row(i)),
                    kv_seen(prog, plan.sequences@[q], a, layer, window, plan.sequences@[q].position(i)), plan.sequences@[q].position(i)));
            },
            Op::StoreKv { .. } => {},
        }
    } else {
        lemma_written_before(prog, n, x);
        lemma_output(op, x);
        lemma_rows_kept(w, prog, plan, op, a, b, x, t);
        reveal(inv_all);
        assert((a.rows)(x, plan.sequences@[q].row(i)) == canon(w, prog, n, hs[q], s.position(i), x));
    }
}

proof fn lemma_rows_kept(w: Kernels, prog: Program, plan: StepPlan, op: Op, a: Memory, b: Memory, x: u32, t: int)
    requires op_ran(w, prog, plan, op, a, b), !op.writes(x),
    ensures (b.rows)(x, t) == (a.rows)(x, t),
{
    match op {
        Op::Embed { k, out } => { assert(!seq![out].contains(x)); },
        Op::Attend { out, .. } => { assert(!seq![out].contains(x)); },
        Op::Rowwise { k, ins, outs, rows } => {},
        Op::StoreKv { .. } => {},
    }
}

proof fn lemma_step_selected(
    limits: Limits, w: Kernels, prog: Program, n: nat, plan: StepPlan, hs: Seq<Seq<Token>>,
    before: spec_fn(u32, int, int) -> Bits, a: Memory, b: Memory, x: u32, q: int, i: int)
    requires
        given(limits, w, prog, plan, hs, before), n < prog.ops@.len(), inv_forward(w, prog, n, plan, hs, before, a),
        op_ran(w, prog, plan, prog.ops@[n as int], a, b),
        x < prog.buffers@.len(), prog.buffers@[x as int].rows is Selected, prog.written(n as int + 1, x),
        0 <= q < hs.len(), 0 <= i < plan.sequences@[q].selected,
    ensures
        (b.rows)(x, plan.sequences@[q].compact(i))
            == canon(w, prog, n + 1, hs[q], plan.sequences@[q].position(plan.sequences@[q].unselected() + i), x),
{
    let s = plan.sequences@[q];
    assert(hs.len() == plan.sequences@.len()) by { reveal(batch_ok); }
    lemma_seq(limits, prog, plan, q);
    lemma_op_wf(prog, n as int);
    let op = prog.ops@[n as int];
    let t = s.compact(i);
    if op.writes(x) {
        match op {
            Op::Rowwise { k, ins, outs, rows } => {
                let o = outs@.index_of(x);
                lemma_ins_selected(limits, w, prog, n, plan, hs, a, ins@, q, i);
                assert((b.rows)(outs@[o], t) == (w.rowwise)(k, ins_selected(prog, plan, a, ins@, t), o,
                    plan.positions@[plan.selected@[t] as int] as int));
            },
            _ => {},
        }
    } else {
        lemma_written_before(prog, n, x);
        lemma_output(op, x);
        lemma_rows_kept(w, prog, plan, op, a, b, x, t);
        reveal(inv_selected);
        assert((a.rows)(x, plan.sequences@[q].compact(i)) == canon(w, prog, n, hs[q], s.position(s.unselected() + i), x));
    }
}

/// The KV row that a store makes of the i-th row of sequence q is canonical: by induction, so are those before it.
proof fn lemma_stored_row(
    limits: Limits, w: Kernels, prog: Program, n: nat, plan: StepPlan, hs: Seq<Seq<Token>>,
    before: spec_fn(u32, int, int) -> Bits, a: Memory, b: Memory, layer: u32, q: int, i: int)
    requires
        given(limits, w, prog, plan, hs, before), n < prog.ops@.len(), inv_forward(w, prog, n, plan, hs, before, a),
        op_ran(w, prog, plan, prog.ops@[n as int], a, b), prog.ops@[n as int].stores(layer),
        0 <= q < hs.len(), 0 <= i < plan.sequences@[q].rows,
    ensures
        kv_at(prog, plan.sequences@[q], b, layer, plan.sequences@[q].position(i))
            == canon_kv(w, prog, n + 1, hs[q], plan.sequences@[q].position(i), layer),
    decreases i,
{
    let s = plan.sequences@[q];
    let (g, p) = (group_of(prog, layer), s.position(i));
    assert(hs.len() == plan.sequences@.len()) by { reveal(batch_ok); }
    lemma_op_wf(prog, n as int);
    assert(prog.stored(n as int + 1, layer)) by { reveal(Program::stored); }
    if let Op::StoreKv { k, ins, layer: l, back } = prog.ops@[n as int] {
        lemma_ins_all(w, prog, n, plan, hs, a, ins@, q, i);
        let x = kv_before(prog, s, b, layer, back, p);
        let c = canon_before(w, prog, n + 1, hs[q], p, layer, back);
        assert forall|y: int| 0 <= y < back_span(back, p) implies x[y] == c[y] by {
            let j = p - back_span(back, p) + y;
            if j < s.first_position {
                lemma_read_cached(limits, w, prog, n + 1, plan, hs, before, b, q, layer, j);
            } else {
                lemma_stored_row(limits, w, prog, n, plan, hs, before, a, b, layer, q, j - s.first_position);
            }
        }
        assert(x =~= c);
        assert(writes_slot(plan, g, q, i, s.page(g, p), p % (PAGE as int)));
    }
}

proof fn lemma_step_new(
    limits: Limits, w: Kernels, prog: Program, n: nat, plan: StepPlan, hs: Seq<Seq<Token>>,
    before: spec_fn(u32, int, int) -> Bits, a: Memory, b: Memory, layer: u32, q: int, i: int, page: int, offset: int)
    requires
        given(limits, w, prog, plan, hs, before), n < prog.ops@.len(), inv_forward(w, prog, n, plan, hs, before, a),
        op_ran(w, prog, plan, prog.ops@[n as int], a, b),
        layer < prog.layers@.len(), prog.stored(n as int + 1, layer), writes_slot(plan, group_of(prog, layer), q, i, page, offset),
    ensures
        (b.cache)(layer, page, offset) == canon_kv(w, prog, n + 1, hs[q], plan.sequences@[q].position(i), layer),
{
    assert(hs.len() == plan.sequences@.len()) by { reveal(batch_ok); }
    let op = prog.ops@[n as int];
    if op.stores(layer) {
        lemma_stored_row(limits, w, prog, n, plan, hs, before, a, b, layer, q, i);
    } else {
        lemma_stored_before(prog, n, layer);
        reveal(inv_new);
    }
}

proof fn lemma_step_frame(w: Kernels, prog: Program, plan: StepPlan, op: Op, before: spec_fn(u32, int, int) -> Bits, a: Memory, b: Memory)
    requires inv_frame(prog, plan, before, a), op_ran(w, prog, plan, op, a, b),
    ensures inv_frame(prog, plan, before, b),
{
}

/// One op keeps the invariant.
proof fn lemma_op(
    limits: Limits, w: Kernels, prog: Program, n: nat, plan: StepPlan, hs: Seq<Seq<Token>>,
    before: spec_fn(u32, int, int) -> Bits, a: Memory, b: Memory)
    requires
        given(limits, w, prog, plan, hs, before), n < prog.ops@.len(), inv_forward(w, prog, n, plan, hs, before, a),
        op_ran(w, prog, plan, prog.ops@[n as int], a, b),
    ensures inv_forward(w, prog, n + 1, plan, hs, before, b),
{
    assert(inv_all(w, prog, n + 1, plan, hs, b)) by {
        reveal(inv_all);
        assert forall|x: u32, q: int, i: int| x < prog.buffers@.len() && prog.buffers@[x as int].rows is All && prog.written((n + 1) as int, x)
            && 0 <= q < hs.len() && 0 <= i < plan.sequences@[q].rows
            implies #[trigger] (b.rows)(x, plan.sequences@[q].row(i)) == canon(w, prog, n + 1, hs[q], plan.sequences@[q].position(i), x) by {
            lemma_step_all(limits, w, prog, n, plan, hs, before, a, b, x, q, i);
        }
    }
    assert(inv_selected(w, prog, n + 1, plan, hs, b)) by {
        reveal(inv_selected);
        assert forall|x: u32, q: int, i: int| x < prog.buffers@.len() && prog.buffers@[x as int].rows is Selected && prog.written((n + 1) as int, x)
            && 0 <= q < hs.len() && 0 <= i < plan.sequences@[q].selected
            implies #[trigger] (b.rows)(x, plan.sequences@[q].compact(i))
                == canon(w, prog, n + 1, hs[q], plan.sequences@[q].position(plan.sequences@[q].unselected() + i), x) by {
            lemma_step_selected(limits, w, prog, n, plan, hs, before, a, b, x, q, i);
        }
    }
    assert(inv_new(w, prog, n + 1, plan, hs, b)) by {
        reveal(inv_new);
        assert forall|layer: u32, q: int, i: int, page: int, offset: int| layer < prog.layers@.len() && prog.stored((n + 1) as int, layer)
            && #[trigger] writes_slot(plan, group_of(prog, layer), q, i, page, offset)
            implies #[trigger] (b.cache)(layer, page, offset) == canon_kv(w, prog, n + 1, hs[q], plan.sequences@[q].position(i), layer) by {
            lemma_step_new(limits, w, prog, n, plan, hs, before, a, b, layer, q, i, page, offset);
        }
    }
    lemma_step_frame(w, prog, plan, prog.ops@[n as int], before, a, b);
}

proof fn lemma_upto(limits: Limits, w: Kernels, prog: Program, plan: StepPlan, hs: Seq<Seq<Token>>, ms: Seq<Memory>, n: nat)
    requires given(limits, w, prog, plan, hs, ms[0].cache), chain_ran(w, prog, plan, ms), n <= prog.ops@.len(),
    ensures inv_forward(w, prog, n, plan, hs, ms[0].cache, ms[n as int]),
    decreases n,
{
    if n == 0 {
        reveal(Program::written);
        reveal(Program::stored);
        reveal(inv_all);
        reveal(inv_selected);
        reveal(inv_new);
    } else {
        let m = (n - 1) as nat;
        lemma_upto(limits, w, prog, plan, hs, ms, m);
        assert(op_ran(w, prog, plan, prog.ops@[m as int], ms[m as int], ms[m as int + 1]));
        lemma_op(limits, w, prog, m, plan, hs, ms[0].cache, ms[m as int], ms[n as int]);
    }
}

/// Selected rows of logits are canonical.
#[verifier::opaque]
pub open(crate) spec fn logits_ok(w: Kernels, prog: Program, plan: StepPlan, hs: Seq<Seq<Token>>, logits: Seq<Bits>) -> bool {
    &&& logits.len() == plan.selected@.len()
    &&& forall|q: int, i: int| 0 <= q < hs.len() && 0 <= i < plan.sequences@[q].selected
        ==> #[trigger] logits[plan.sequences@[q].compact(i)]
            == canon_logits(w, prog, hs[q], plan.sequences@[q].position(plan.sequences@[q].unselected() + i))
}

/// Slots written by the step hold canonical KV.
#[verifier::opaque]
pub open(crate) spec fn stored_ok(w: Kernels, prog: Program, plan: StepPlan, hs: Seq<Seq<Token>>, cache: spec_fn(u32, int, int) -> Bits) -> bool {
    forall|layer: u32, q: int, i: int, page: int, offset: int| prog.keeps(layer) && #[trigger] writes_slot(plan, group_of(prog, layer), q, i, page, offset)
        ==> #[trigger] cache(layer, page, offset) == kv_row(w, prog, hs[q], plan.sequences@[q].position(i), layer)
}

/// The step theorem: a run leaves canonical logits and canonical KV, and touches no slot outside its write set.
pub proof fn theorem_forward(
    limits: Limits, w: Kernels, prog: Program, plan: StepPlan, hs: Seq<Seq<Token>>,
    before: spec_fn(u32, int, int) -> Bits, after: spec_fn(u32, int, int) -> Bits, logits: Seq<Bits>)
    requires given(limits, w, prog, plan, hs, before), ran(w, prog, plan, before, after, logits),
    ensures
        logits_ok(w, prog, plan, hs, logits),
        stored_ok(w, prog, plan, hs, after),
        kept_outside(prog, plan, before, after),
{
    let ms = choose|ms: Seq<Memory>| #[trigger] chain_ran(w, prog, plan, ms) && ms[0].cache == before
        && ms[ms.len() - 1].cache == after && logits.len() == plan.selected@.len()
        && forall|t: int| 0 <= t < logits.len() ==> #[trigger] logits[t] == (ms[ms.len() - 1].rows)(prog.logits, t);
    let n = prog.ops@.len();
    let m = ms[n as int];
    lemma_upto(limits, w, prog, plan, hs, ms, n);
    assert(stored_ok(w, prog, plan, hs, after)) by {
        reveal(stored_ok);
        reveal(inv_new);
    }
    assert(logits_ok(w, prog, plan, hs, logits)) by {
        reveal(logits_ok);
        reveal(inv_selected);
        reveal(batch_ok);
        assert forall|q: int, i: int| 0 <= q < hs.len() && 0 <= i < plan.sequences@[q].selected
            implies #[trigger] logits[plan.sequences@[q].compact(i)]
                == canon_logits(w, prog, hs[q], plan.sequences@[q].position(plan.sequences@[q].unselected() + i)) by {
            lemma_seq(limits, prog, plan, q);
            assert((m.rows)(prog.logits, plan.sequences@[q].compact(i))
                == canon(w, prog, n, hs[q], plan.sequences@[q].position(plan.sequences@[q].unselected() + i), prog.logits));
        }
    }
}

} // verus!
