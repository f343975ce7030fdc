//! The words of the promise, said once more: each lemma says what a word of `trusted/` means as an equivalence, so a word that says less
//! or more dies here. The theorems are said once more too, with their premises spelled out: a theorem that asks for more or ensures less
//! than its text here fails. See `suite.rs`.

use super::progress::*;
use super::trace::*;
use crate::core::Core;
use crate::ids::{BlockId, NO_PAGE, PAGE, RequestId, Token};
use crate::image::{Image, Place};
use crate::legal::*;
use crate::meaning::*;
use crate::next::*;
use crate::ops::commit::Record;
use crate::plan::*;
use crate::premises::*;
use crate::program::*;
use crate::progress::*;
use crate::request::Request;
use crate::seam::*;
use crate::spec::*;
use crate::views::*;
use vstd::prelude::*;

verus! {

// ---- meaning.rs and seam.rs: a store that looks back

/// The KV rows that a store sees are those right before a row's own, oldest first, and no more than there are.
proof fn lemma_before(w: Kernels, program: Program, n: nat, h: Seq<Token>, s: SeqPlan, m: Memory, layer: u32, back: u32, p: int, x: int)
    requires 0 <= p,
    ensures
        back == 0 ==> canon_before(w, program, n, h, p, layer, back) =~= Seq::empty() && kv_before(program, s, m, layer, back, p) =~= Seq::empty(),
        back >= p ==> canon_before(w, program, n, h, p, layer, back) =~= Seq::new(p as nat, |j: int| canon_kv(w, program, n, h, j, layer)),
        back >= p ==> kv_before(program, s, m, layer, back, p) =~= Seq::new(p as nat, |j: int| kv_at(program, s, m, layer, j)),
        back <= p ==> canon_before(w, program, n, h, p, layer, back).len() == back && kv_before(program, s, m, layer, back, p).len() == back,
        back <= p && 0 <= x < back ==> canon_before(w, program, n, h, p, layer, back)[x] == canon_kv(w, program, n, h, p - back + x, layer),
        back <= p && 0 <= x < back ==> kv_before(program, s, m, layer, back, p)[x] == kv_at(program, s, m, layer, p - back + x),
        kv_at(program, s, m, layer, p) == (m.cache)(layer, s.page(group_of(program, layer), p), p % (PAGE as int)),
{
}

/// What a store means: of its inputs after the ops before it, and of the layer's rows as it itself means them.
proof fn lemma_stores(w: Kernels, program: Program, n: nat, h: Seq<Token>, p: int, layer: u32)
    requires 0 < n <= program.ops@.len(),
    ensures
        program.ops@[n - 1] matches Op::StoreKv { k, ins, layer: l, back } ==> l == layer ==> canon_kv(w, program, n, h, p, layer)
            == (w.store)(k, canon_ins(w, program, (n - 1) as nat, h, p, ins@), canon_before(w, program, n, h, p, layer, back), p),
        !program.ops@[n - 1].stores(layer) ==> canon_kv(w, program, n, h, p, layer) == canon_kv(w, program, (n - 1) as nat, h, p, layer),
        canon_kv(w, program, 0, h, p, layer) == (Bits { code: 0 }),
{
}

/// The slot that a sequence's row writes: the page of its position, and there its place.
proof fn lemma_writes(plan: StepPlan, g: int, q: int, i: int, page: int, offset: int)
    ensures
        writes_slot(plan, g, q, i, page, offset) <==> {
            let s = plan.sequences@[q];
            0 <= q < plan.sequences@.len() && 0 <= i < s.rows && s.page(g, s.position(i)) == page && s.position(i) % (PAGE as int) == offset
        },
{
}

/// A position of a sequence has a page where the table of the group has one.
proof fn lemma_has_page(s: SeqPlan, g: int, p: int)
    ensures
        s.has_page(g, p) <==> 0 <= g < s.tables@.len() && 0 <= p && p / (PAGE as int) < s.tables@[g]@.len()
            && s.tables@[g]@[p / PAGE as int] != NO_PAGE,
{
}

// ---- program.rs

/// A core takes every program of these sizes whose ops are well-formed, one after the other.
proof fn lemma_wf(program: Program)
    ensures
        program.wf() <==> {
            let (ops, buffers, groups, layers) = (program.ops@, program.buffers@, program.groups@, program.layers@);
            &&& 1 <= ops.len() < 0x8000_0000 && 1 <= buffers.len() < 0x8000_0000 && 1 <= groups.len() < 0x8000_0000 && 1 <= layers.len() < 0x8000_0000
            &&& 1 <= program.vocab && 1 <= program.kernels && 1 <= program.context < 0x8000_0000
            &&& forall|g: int| 0 <= g < groups.len() ==> (#[trigger] groups[g]).window != Some(0u32)
            &&& forall|l: int| 0 <= l < layers.len() ==> (#[trigger] layers[l]).group < groups.len()
            &&& forall|b: int| 0 <= b < buffers.len() ==> (#[trigger] buffers[b]).width != 0
            &&& program.logits < buffers.len() && buffers[program.logits as int].rows is Selected && buffers[program.logits as int].dtype is F32
            &&& buffers[program.logits as int].width == program.vocab && program.written(ops.len() as int, program.logits)
            &&& forall|n: int| 0 <= n < ops.len() ==> #[trigger] program.op_wf(n)
        },
{
    reveal(Program::ops_wf);
}

/// An op names a kernel, has what it needs, reads what ops before it wrote or stored, and writes what exists and it does not read.
proof fn lemma_op_wf(program: Program, n: int, x: u32, rows: RowSet, ins: Seq<u32>, outs: Seq<u32>, read: CacheRead, write: CacheWrite)
    ensures
        program.op_wf(n) <==> {
            let op = program.ops@[n];
            &&& op.binding() < program.kernels && (op is Embed || op.inputs().len() != 0) && (op is StoreKv || op.outputs().len() != 0)
            &&& program.all_readable(n, op.inputs(), op.rows()) && program.all_writable(op.inputs(), op.outputs(), op.rows())
            &&& op matches Op::StoreKv { layer, back, .. } ==> program.cache_writable(n, CacheWrite { layer, back })
            &&& op matches Op::Attend { layer, window, .. } ==> program.cache_readable(n, CacheRead { layer, window })
        },
        program.readable(n, x, rows) <==> x < program.buffers@.len() && program.written(n, x) && (rows is Selected || program.buffers@[x as int].rows is All),
        program.writable(x, rows) <==> x < program.buffers@.len() && program.buffers@[x as int].rows == rows,
        program.all_readable(n, ins, rows) <==> forall|i: int| 0 <= i < ins.len() ==> program.readable(n, #[trigger] ins[i], rows),
        program.all_writable(ins, outs, rows) <==> outs.no_duplicates()
            && forall|i: int| 0 <= i < outs.len() ==> program.writable(#[trigger] outs[i], rows) && !ins.contains(outs[i]),
        program.written(n, x) <==> exists|i: int| 0 <= i < n && (#[trigger] program.ops@[i]).outputs().contains(x),
        program.stored(n, x) <==> exists|i: int| 0 <= i < n && (#[trigger] program.ops@[i]).cache_written() is Some && program.ops@[i].cache_written()->0.layer == x,
        program.cache_readable(n, read) <==> read.layer < program.layers@.len() && program.stored(n, read.layer)
            && match (read.window, program.groups@[program.layers@[read.layer as int].group as int].window) {
                (Some(window), Some(kept)) => 1 <= window <= kept,
                (Some(window), None) => 1 <= window,
                (None, kept) => kept is None,
            },
        program.cache_writable(n, write) <==> write.layer < program.layers@.len() && !program.stored(n, write.layer)
            && (program.groups@[program.layers@[write.layer as int].group as int].window matches Some(kept) ==> write.back < kept),
{
    reveal(Program::written);
    reveal(Program::stored);
}

// ---- next.rs

/// An execution is any newly built core, any calls on it, and what each ensures.
proof fn lemma_execution<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(e: Execution<D, S>, n: int)
    ensures
        e.ok() <==> {
            &&& e.cores.len() == e.calls.len() + 1 && e.answers.len() == e.calls.len() && e.cores[0].sound() && e.cores[0].log().len() == 0
            &&& forall|i: int| 0 <= i < e.calls.len() ==> #[trigger] next(e.cores[i], e.calls[i], e.answers[i], e.cores[i + 1])
        },
        e.world() == e.cores[0].world(), e.trace() == e.events(e.calls.len() as int),
        n <= 0 ==> e.events(n).len() == 0,
        n > 0 ==> e.events(n) == e.events(n - 1) + events(e.calls[n - 1], e.answers[n - 1]),
{
}

/// A core without a state refuses; one with a state does what its own predicate allows.
proof fn lemma_legal<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(core: Core<D, S>, call: Call)
    ensures
        legal(core, call) <==> core.spec_state() is Some && {
            let (s, fixed) = (core.spec_state()->0, core.spec_fixed());
            match call {
                Call::Admit { prompt, .. } => s.legal_admit(fixed, prompt),
                Call::Attach { request, block } => s.legal_attach(request, block),
                Call::TakePage { request, group } => s.legal_take_page(fixed, request, group),
                Call::ReleaseBehind { request, group } => s.legal_release_behind(request, group),
                Call::Publish { request } => s.legal_publish(request),
                Call::Evict { block } => s.legal_evict(block),
                Call::EvictPage { block, group } => s.legal_evict_page(block, group),
                Call::Preempt { request } => s.legal_preempt(request),
                Call::Abort { request } => s.legal_abort(request),
                Call::Finish { request } => s.legal_finish(fixed, request),
                Call::PlanBegin => s.legal_plan_begin(),
                Call::PlanRows { request, rows, drafts, select } => s.legal_plan_rows(fixed, request, rows, drafts, select),
                Call::PlanCancel => s.legal_plan_cancel(),
                Call::Run => s.legal_run(),
                Call::Commit => s.legal_commit(),
            }
        },
{
}

// ---- views.rs

/// What the views of a core show.
proof fn lemma_shown<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(core: Core<D, S>, r: Record, id: RequestId, block: BlockId, group: int, q: int, i: int)
    requires core.sound(),
    ensures
        core.holds(r) <==> r.index < core.held().len() && core.held()[r.index as int].whole
            && core.held()[r.index as int].request.serial == r.request.serial && core.held()[r.index as int].position == r.position,
        core.spec_state() is None ==> core.spec_request(id) is None && core.spec_block(block) is None && !core.step_shows(q, i)
            && core.spec_free(group) == 0 && core.spec_pages(group) == 0,
        core.spec_complete(id) <==> core.spec_request(id) is Some && core.spec_request(id)->0.is_complete(core.world().program.context),
        core.spec_state() matches Some(s) ==> {
            let (sequence, request) = (s.plan.sequences@[q], s.requests@[s.plan.sequences@[q].request.slot as int]->0);
            let end = sequence.first_row + sequence.rows;
            &&& core.spec_request(id) == if s.known(id) { s.requests@[id.slot as int] } else { None }
            &&& core.spec_block(block) == if s.published(block) { s.blocks@[block.slot as int] } else { None }
            &&& core.spec_free(group) == if 0 <= group < s.pools@.len() { s.pools@[group].free@.len() } else { 0 }
            &&& core.spec_pages(group) == if 0 <= group < s.pools@.len() { s.pools@[group].pages@.len() } else { 0 }
            &&& core.spec_references(block, group) == if s.published(block) {
                    readers(s.requests@, block, s.blocks@[block.slot as int]->0.depth as int, group, s.requests@.len() as int)
                } else {
                    0
                }
            &&& core.has_run(q, i) <==> s.phase is Ran && 0 <= q < s.plan.sequences@.len() && 0 <= i < sequence.selected
            &&& core.step_shows(q, i) <==> core.has_run(q, i) && sequence.whole
            &&& core.step_position(q, i) == sequence.first_position + sequence.rows - sequence.selected + i
            &&& core.step_logits(q, i) == canon_logits(core.world().w, core.world().program,
                    request.history@ + s.plan.tokens@.subrange(end - sequence.drafts, end), sequence.first_position + sequence.rows - sequence.selected + i)
        },
{
}

/// Readers are counted: none of no slots, and one for each request whose table has the page.
proof fn lemma_readers<T>(requests: Slots<T>, id: BlockId, depth: int, group: int, n: int)
    ensures
        n <= 0 ==> readers(requests, id, depth, group, n) == 0,
        n > 0 ==> readers(requests, id, depth, group, n) == readers(requests, id, depth, group, n - 1)
            + if live(requests, n - 1) && requests[n - 1]->0.holds_page(id, depth, group) { 1int } else { 0 },
{
}

// ---- premises.rs

/// What an image says is its layout's, and the array of a step is told by it.
proof fn lemma_said(image: Image, cells: Seq<i32>, plan: StepPlan, program: Program, meta: Meta, place: Place, a: usize, b: usize, room: Option<usize>)
    requires image.spec_layout() is Some,
    ensures
        ({
            let layout = image.spec_layout()->0;
            &&& image.says_place(meta, place) <==> (layout.has(meta) ==> place.start == layout.start_of(meta) && place.len == layout.len_of(meta))
            &&& image.says_len(a) <==> a == layout.len
            &&& image.says_launched(a, b) <==> a == layout.rows && b == layout.selected
            &&& image.says_tiles(a, b) <==> (a < layout.counts@.len() ==> b == layout.counts@[a as int])
            &&& image.says_length(a) <==> a == layout.length
            &&& image.takes(a, b) <==> a <= layout.rows_max && b <= layout.selected_max
            &&& image.has_room(cells) <==> layout.len <= cells.len()
            &&& image.made_for(program) <==> layout.groups == program.groups@.len() && layout.context == program.context && program.vocab <= COUNT_MAX
            &&& image.room_holds(plan, room) <==> (room is None || plan.tokens@.len() <= room->0 && plan.selected@.len() <= room->0
                    && room->0 <= layout.rows_max && room->0 <= layout.selected_max)
            &&& image.told(cells, plan) <==> layout.told(cells, plan)
        }),
{
}

// ---- progress.rs

proof fn lemma_script<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(core: Core<D, S>, calls: Seq<Call>, id: RequestId, rows: usize, groups: Seq<usize>)
    ensures
        is_script(calls, id, rows, groups) <==> {
            let n = groups.len() as int;
            &&& calls.len() == n + 4 && forall|i: int| 0 <= i < n ==> #[trigger] calls[i] == (Call::TakePage { request: id, group: groups[i] })
            &&& calls[n] == Call::PlanBegin && calls[n + 2] == Call::Run && calls[n + 3] == Call::Commit
            &&& calls[n + 1] == (Call::PlanRows { request: id, rows, drafts: Seq::empty(), select: Select::Last })
        },
        enough(core, id, rows, groups) <==> {
            let (r, end) = (core.spec_request(id)->0, core.spec_request(id)->0.cached + rows);
            &&& forall|i: int| 0 <= i < groups.len() ==> (#[trigger] groups[i]) < r.tables@.len()
            &&& forall|g: int| 0 <= g < r.tables@.len() ==> #[trigger] taken(groups, groups.len() as int, g) == short(r, g, end)
                    && short(r, g, end) <= core.spec_state()->0.pools@[g].free@.len()
        },
        may_go_on(core, id, rows) <==> {
            let (s, r) = (core.spec_state()->0, core.spec_request(id)->0);
            &&& core.sound() && core.spec_state() is Some && s.phase is Idle && core.spec_request(id) is Some
            &&& !r.is_complete(core.world().program.context) && 1 <= rows <= r.history@.len() - r.cached
            &&& rows <= core.spec_device().limits().rows && 1 <= core.spec_device().limits().selected
            &&& forall|g: int| 0 <= g < r.tables@.len() ==> #[trigger] unbroken(r, g, core.world().program.groups@[g])
        },
{
}

proof fn lemma_turn<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(turn: Turn<D, S>, id: RequestId, context: int)
    ensures
        serves(turn, id, context) <==> {
            let (cores, calls) = (turn.cores, turn.calls);
            &&& ran_through(cores, calls, turn.answers) && is_script(calls, id, turn.rows, turn.groups)
            &&& may_go_on(cores[0], id, turn.rows) && enough(cores[0], id, turn.rows, turn.groups)
            &&& cores[turn.groups.len() as int + 3].spec_device().errors() == cores[0].spec_device().errors()
            &&& cores[0].world().program.context == context
        },
        ran_through(turn.cores, turn.calls, turn.answers) <==> {
            let (cores, calls, answers) = (turn.cores, turn.calls, turn.answers);
            &&& cores.len() == calls.len() + 1 && answers.len() == calls.len()
            &&& forall|i: int| 0 <= i < calls.len() ==> #[trigger] next(cores[i], calls[i], answers[i], cores[i + 1])
        },
{
}

/// A policy can make these calls: the missing pages of each group, as often as they are missing.
proof fn lemma_counts<T>(r: Request<T>, g: int, end: int, decl: GroupDecl, groups: Seq<usize>, n: int)
    requires 0 < end,
    ensures
        short(r, g, end) == if r.tables@[g]@.len() * PAGE < end { (end + PAGE - 1) / PAGE as int - r.tables@[g]@.len() } else { 0 },
        unbroken(r, g, decl) <==> forall|page: int| r.window_page(decl) <= page < r.tables@[g]@.len() ==> #[trigger] r.has_page(g, page),
        n <= 0 ==> taken(groups, n, g) == 0,
        n > 0 ==> taken(groups, n, g) == taken(groups, n - 1, g) + if groups[n - 1] == g { 1int } else { 0 },
{
}

// ---- The theorems

/// The two devices and samplers are of any types.
proof fn uses_deterministic<
    D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>, E: Device, T: Sampler<Logits = E::Logits, Top = E::Top>,
>(one: Execution<D, S>, other: Execution<E, T>, a: u64, b: u64)
    requires
        one.ok(), other.ok(), share_w(one.world(), other.world()), views(one.trace()).contains_key(a), views(other.trace()).contains_key(b),
        views(one.trace())[a].prompt == views(other.trace())[b].prompt, views(one.trace())[a].initial == views(other.trace())[b].initial,
    ensures
        orderly(one.trace()), orderly(other.trace()),
        ({
            let (x, y) = (views(one.trace())[a], views(other.trace())[b]);
            &&& forall|i: int| 0 <= i < x.entries.len() && i < y.entries.len() ==> #[trigger] x.entries[i] == y.entries[i]
            &&& x.completed ==> y.entries.len() <= x.entries.len()
            &&& y.completed ==> x.entries.len() <= y.entries.len()
        }),
{
    theorem_deterministic(one, other);
    let (x, y) = (views(one.trace())[a], views(other.trace())[b]);
    assert(answered_alike(x, y));
    lemma_common(x.entries, y.entries);
}

proof fn lemma_common<L>(x: Seq<Entry<L>>, y: Seq<Entry<L>>)
    requires comparable(x, y),
    ensures forall|i: int| 0 <= i < x.len() && i < y.len() ==> #[trigger] x[i] == y[i],
{
    assert forall|i: int| 0 <= i < x.len() && i < y.len() implies #[trigger] x[i] == y[i] by {
        if x.is_prefix_of(y) {
            assert(y.subrange(0, x.len() as int)[i] == y[i]);
        } else {
            assert(x.subrange(0, y.len() as int)[i] == x[i]);
        }
    }
}

proof fn uses_one_execution<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(one: Execution<D, S>, a: u64, b: u64)
    requires one.ok(), views(one.trace()).contains_key(a), views(one.trace()).contains_key(b),
    ensures orderly(one.trace()), answered_alike(views(one.trace())[a], views(one.trace())[b]),
{
    corollary_one_execution(one);
}

/// What a client has and what the resumed answer gives behind it are one answer.
proof fn uses_resumed<
    D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>, E: Device, T: Sampler<Logits = E::Logits, Top = E::Top>,
>(one: Execution<D, S>, other: Execution<E, T>, a: u64, b: u64, had: int)
    requires
        one.ok(), other.ok(), share_w(one.world(), other.world()), views(one.trace()).contains_key(a), views(other.trace()).contains_key(b),
        views(one.trace())[a].prompt == views(other.trace())[b].prompt, views(one.trace())[a].initial == views(other.trace())[b].initial,
        0 <= had <= views(one.trace())[a].entries.len(), had <= views(other.trace())[b].entries.len(),
    ensures
        ({
            let (x, y) = (views(one.trace())[a].entries, views(other.trace())[b].entries);
            &&& forall|i: int| 0 <= i < had ==> #[trigger] x[i] == y[i]
            &&& forall|i: int| had <= i < x.len() && i < y.len() ==> #[trigger] x[i] == y[i]
            &&& views(one.trace())[a].completed ==> y.len() <= x.len()
            &&& views(other.trace())[b].completed ==> x.len() <= y.len()
        }),
{
    corollary_resumed(one, other, a, b, had);
    let (x, y) = (views(one.trace())[a].entries, views(other.trace())[b].entries);
    assert forall|i: int| 0 <= i < had implies #[trigger] x[i] == y[i] by {
        assert(x.take(had)[i] == y.take(had)[i]);
    }
    lemma_common(x.skip(had), y.skip(had));
    assert forall|i: int| had <= i < x.len() && i < y.len() implies #[trigger] x[i] == y[i] by {
        assert(x.skip(had)[i - had] == y.skip(had)[i - had]);
    }
}

/// Every selected row that the device holds, of any sequence, once any step has run.
proof fn uses_step<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(core: Core<D, S>, q: int, i: int)
    requires
        core.sound(), core.spec_state() is Some, core.spec_state()->0.phase is Ran, 0 <= q < core.spec_state()->0.plan.sequences@.len(),
        0 <= i < core.spec_state()->0.plan.sequences@[q].selected,
    ensures
        core.spec_device().logits_rows()[core.spec_state()->0.plan.sequences@[q].first_selected + i] == core.step_logits(q, i),
{
    theorem_step(core, q, i);
}

/// A client that reads two devices alike reads one row.
proof fn uses_read_alike<
    D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>, E: Device<Logits = D::Logits>, T: Sampler<Logits = E::Logits, Top = E::Top>,
>(one: Execution<D, S>, other: Execution<E, T>, a: u64, b: u64, k: int)
    requires
        one.ok(), other.ok(), share_w(one.world(), other.world()), forall|bits: Bits| #[trigger] D::logits_of(bits) == E::logits_of(bits),
        views(one.trace()).contains_key(a), views(other.trace()).contains_key(b),
        views(one.trace())[a].prompt == views(other.trace())[b].prompt, views(one.trace())[a].initial == views(other.trace())[b].initial,
        0 <= k < views(one.trace())[a].entries.len(), k < views(other.trace())[b].entries.len(),
    ensures
        D::logits_of(views(one.trace())[a].entries[k].logits) == E::logits_of(views(other.trace())[b].entries[k].logits),
        views(one.trace())[a].entries[k].token == views(other.trace())[b].entries[k].token,
{
    corollary_read_alike(one, other, a, b, k);
}

/// Rows at one position of one history are equal on any two devices that have them.
proof fn uses_step_rows<
    D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>, E: Device, T: Sampler<Logits = E::Logits, Top = E::Top>,
>(one: Core<D, S>, other: Core<E, T>, q: int, i: int, p: int, j: int, at: int)
    requires
        one.sound(), other.sound(), share_w(one.world(), other.world()), one.has_run(q, i), other.has_run(p, j),
        at == one.step_position(q, i), at == other.step_position(p, j), 0 <= at < one.spec_state()->0.seq_history(q).len(),
        at < other.spec_state()->0.seq_history(p).len(),
        forall|x: int| 0 <= x <= at ==> #[trigger] one.spec_state()->0.seq_history(q)[x] == other.spec_state()->0.seq_history(p)[x],
    ensures
        one.spec_device().logits_rows()[one.spec_state()->0.plan.sequences@[q].first_selected + i]
            == other.spec_device().logits_rows()[other.spec_state()->0.plan.sequences@[p].first_selected + j],
{
    corollary_step_rows_alike(one, other, q, i, p, j);
}

proof fn uses_progress<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(
    cores: Seq<Core<D, S>>, calls: Seq<Call>, answers: Seq<Answer>, id: RequestId, rows: usize, groups: Seq<usize>, i: int, more: usize)
    requires
        cores.len() == calls.len() + 1, answers.len() == calls.len(), is_script(calls, id, rows, groups),
        forall|i: int| 0 <= i < calls.len() ==> #[trigger] next(cores[i], calls[i], answers[i], cores[i + 1]),
        may_go_on(cores[0], id, rows), enough(cores[0], id, rows, groups), 0 <= i < calls.len(),
        cores[groups.len() as int + 3].spec_device().errors() == cores[0].spec_device().errors(),
    ensures
        !(answers[i] is Refused), !(answers[i] is Failed), cores.last().spec_request(id) is Some, cores.last().world() == cores[0].world(),
        ({
            let (r, r2) = (cores[0].spec_request(id)->0, cores.last().spec_request(id)->0);
            let (views, views2) = (views(cores[0].log()), views(cores.last().log()));
            // A chunk is cached; the end of a history gives one token, and all before it is cached.
            &&& r.cached + rows < r.history@.len() ==> r2.cached == r.cached + rows && r2.history@ == r.history@
            &&& r.cached + rows == r.history@.len() ==> r2.cached == r.history@.len() && r2.history@.len() == r.history@.len() + 1
                    && views2[id.serial].entries.len() == views[id.serial].entries.len() + 1
            // And it may go on.
            &&& !r2.is_complete(cores.last().world().program.context) && 1 <= more <= r2.history@.len() - r2.cached
                    && more <= cores.last().spec_device().limits().rows ==> may_go_on(cores.last(), id, more)
        }),
{
    hide(next);
    theorem_progress(cores, calls, answers, id, rows, groups, more);
}

/// So often is a request served at most; then it is complete.
proof fn uses_completes<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(turns: Seq<Turn<D, S>>, id: RequestId, context: int)
    requires
        turns.len() > 0, forall|i: int| 0 <= i < turns.len() ==> #[trigger] serves(turns[i], id, context),
        forall|i: int| 0 <= i < turns.len() - 1 ==> (#[trigger] turns[i]).cores.last().spec_request(id) == turns[i + 1].cores[0].spec_request(id),
    ensures turns.len() <= 2 * context,
{
    theorem_completes(turns, id, context);
}

proof fn uses_first_record<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(
    before: Core<D, S>, prompt: Seq<Token>, salt: u64, state: Bits, id: RequestId,
    cores: Seq<Core<D, S>>, calls: Seq<Call>, answers: Seq<Answer>, groups: Seq<usize>, i: int)
    requires
        before.sound(), before.spec_state() is Some, before.spec_state()->0.phase is Idle, prompt.len() <= usize::MAX,
        next(before, Call::Admit { prompt, salt, state }, Answer::Admitted { request: id }, cores[0]), 0 <= i < calls.len(),
        prompt.len() <= before.spec_device().limits().rows, 1 <= before.spec_device().limits().selected,
        ran_through(cores, calls, answers), is_script(calls, id, prompt.len() as usize, groups), enough(cores[0], id, prompt.len() as usize, groups),
        cores[groups.len() as int + 3].spec_device().errors() == cores[0].spec_device().errors(),
    ensures !(answers[i] is Refused), views(cores.last().log())[id.serial].entries.len() > 0,
{
    corollary_first_record(before, prompt, salt, state, id, cores, calls, answers, groups);
}

/// A prefix of any length is attached block by block.
proof fn uses_prefix<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(core: Core<D, S>, id: RequestId, block: BlockId, answer: Answer, new: Core<D, S>)
    requires
        core.sound(), core.spec_state() is Some, core.spec_state()->0.phase is Idle, core.spec_request(id) is Some, core.spec_block(block) is Some,
        only_chained(core.spec_request(id)->0),
        ({
            let (s, r, b) = (core.spec_state()->0, core.spec_request(id)->0, core.spec_block(block)->0);
            let prefix = s.prefixes@[b.serial];
            &&& b.depth == r.chain@.len() && b.parent == r.chain_parent() && prefix.len() < r.history@.len() && prefix == r.history@.take(prefix.len() as int)
        }),
        next(core, Call::Attach { request: id, block }, answer, new),
    ensures
        answer is Done, new.spec_request(id) is Some, new.spec_request(id)->0.cached == core.spec_request(id)->0.cached + PAGE,
        new.spec_request(id)->0.chain@ == core.spec_request(id)->0.chain@.push(block),
{
    hide(next);
    theorem_prefix_attaches(core, id, block, answer, new);
}

/// Preemption leaves a request of an idle core its history, and nothing that could be broken.
proof fn uses_preemption<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(core: Core<D, S>, id: RequestId, answer: Answer, new: Core<D, S>, g: int, decl: GroupDecl)
    requires
        core.sound(), core.spec_state() is Some, core.spec_state()->0.phase is Idle, core.spec_request(id) is Some,
        next(core, Call::Preempt { request: id }, answer, new),
    ensures
        answer is Done, new.spec_request(id) is Some, new.spec_request(id)->0.cached == 0,
        new.spec_request(id)->0.history == core.spec_request(id)->0.history,
        0 <= g < new.spec_request(id)->0.tables@.len() ==> unbroken(new.spec_request(id)->0, g, decl),
{
    hide(next);
    hide(unbroken);
    theorem_preemption_heals(core, id, answer, new);
}

proof fn uses_shared_block<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(core: Core<D, S>, one: RequestId, other: RequestId, answer: Answer, new: Core<D, S>)
    requires
        core.sound(), core.spec_state() is Some, core.spec_state()->0.phase is Idle, core.spec_request(one) is Some, core.spec_request(other) is Some,
        ({
            let (a, b) = (core.spec_request(one)->0, core.spec_request(other)->0);
            &&& a.chain@.len() > 0 && core.spec_block(a.chain@[0]) is Some && core.spec_block(a.chain@[0])->0.depth == 0
            &&& only_chained(b) && b.chain@.len() == 0 && a.salt == b.salt
            &&& PAGE < b.history@.len() && a.history@.take(PAGE as int) == b.history@.take(PAGE as int)
        }),
        next(core, Call::Attach { request: other, block: core.spec_request(one)->0.chain@[0] }, answer, new),
    ensures answer is Done, new.spec_request(other)->0.cached == PAGE,
{
    hide(next);
    corollary_first_block_is_shared(core, one, other, answer, new);
}

} // verus!
