//! A device and a sampler that meet the contracts of `seam.rs`, verified. So the contracts do not contradict each other, for
//! any program that passes its check and any plan that the core makes.
//!
//! Both are as contrary as the contracts allow, so that a contract which asks for more than it says is not met: pools differ
//! by group, slots begin infinite, runs fail on demand with the cache intact or not, a failed run changes everything that it
//! may change and so does clearing, only requested rows reach the host, and tokens, lists and rows vary. Most values are ghosts,
//! but rows of logits exist: by the device's kernels, the contents of a row are its position.
//!
//! `Abstract` is a device of any kernels, which only proofs have. `witness.rs` runs the core over the other one.

use super::forward::*;
use super::image::*;
use crate::ids::{PAGE, Token};
use crate::plan::*;
use crate::program::*;
use crate::seam::*;
use crate::spec::*;
use crate::views::*;
use vstd::prelude::*;

verus! {

/// A contrary device.
pub struct Symbolic {
    pub(crate) rows_max: usize,
    /// Pages of each group; other groups have none.
    pub(crate) pages: Vec<usize>,
    /// Logits of a list; 0 if it makes none.
    pub(crate) lists: usize,
    /// Whether it draws tokens.
    pub(crate) draws: bool,
    /// What the next runs end with, and which of them is next.
    pub(crate) failures: Vec<Option<DeviceError>>,
    pub(crate) next: usize,
    pub(crate) cache: Ghost<spec_fn(u32, int, int) -> Bits>,
    /// Room for as many rows of logits as a step may select, and how many there are.
    pub(crate) logits: Vec<Shown>,
    pub(crate) count: usize,
    /// What of each is on the host.
    pub(crate) brought: Ghost<spec_fn(int, Reads) -> bool>,
    pub(crate) errors: Ghost<Seq<DeviceError>>,
}

/// A row of logits: its contents, those of its copy on the host, and those of its list.
#[derive(Clone, Copy)]
pub struct Shown {
    pub(crate) row: u64,
    pub(crate) copy: u64,
    pub(crate) list: u64,
}

/// Its kernels. Rows may hold anything, slots only what is finite.
pub open(crate) spec fn kernels() -> Kernels {
    Kernels {
        embed: |k: u32, token: Token| Bits { code: token - 7 },
        rowwise: |k: u32, ins: Seq<Bits>, out: int, position: int| Bits { code: position },
        store: |k: u32, ins: Seq<Bits>, earlier: Seq<Bits>, position: int| {
            let code = ins.first().code - if earlier.len() > 0 { earlier.first().code } else { 0 };
            Bits { code: if code > 0 { code } else { 0 } }
        },
        attend: |k: u32, q: Bits, kv: Seq<Bits>, position: int| Bits { code: if kv.len() > 0 { q.code - kv.last().code } else { q.code } },
        finite: |kv: Bits| kv.code >= 0,
    }
}

/// One op, as a function of memory.
pub open(crate) spec fn apply(w: Kernels, program: Program, plan: StepPlan, op: Op, a: Memory) -> Memory {
    match op {
        Op::Embed { k, out } => Memory {
            rows: |b: u32, t: int| if b == out { (w.embed)(k, plan.tokens@[t]) } else { (a.rows)(b, t) },
            cache: a.cache,
        },
        Op::Rowwise { k, ins, outs, rows: RowSet::All } => Memory {
            rows: |b: u32, t: int| if outs@.contains(b) {
                (w.rowwise)(k, ins_at(a, ins@, t), outs@.index_of(b), plan.positions@[t] as int)
            } else {
                (a.rows)(b, t)
            },
            cache: a.cache,
        },
        Op::Rowwise { k, ins, outs, rows: RowSet::Selected } => Memory {
            rows: |b: u32, t: int| if outs@.contains(b) {
                (w.rowwise)(k, ins_selected(program, plan, a, ins@, t), outs@.index_of(b), plan.positions@[plan.selected@[t] as int] as int)
            } else {
                (a.rows)(b, t)
            },
            cache: a.cache,
        },
        Op::StoreKv { k, ins, layer, back } => Memory {
            rows: a.rows,
            cache: |l: u32, page: int, offset: int| if l == layer && written_slot(plan, group_of(program, layer), page, offset) {
                let (q, i) = writer(plan, group_of(program, layer), page, offset);
                stored_row(w, program, plan, op, a, q, i)
            } else {
                (a.cache)(l, page, offset)
            },
        },
        Op::Attend { k, q, layer, out, window } => Memory {
            rows: |b: u32, t: int| if b == out {
                let (n, i) = row_of(plan, t);
                (w.attend)(k, (a.rows)(q, t), kv_seen(program, plan.sequences@[n], a, layer, window, plan.sequences@[n].position(i)),
                    plan.sequences@[n].position(i))
            } else {
                (a.rows)(b, t)
            },
            cache: a.cache,
        },
    }
}

/// The KV row that a store makes of the i-th row of sequence q. Those of the step that it sees are made before it.
pub open(crate) spec fn stored_row(w: Kernels, program: Program, plan: StepPlan, op: Op, a: Memory, q: int, i: int) -> Bits
    decreases i, 1nat,
{
    match op {
        Op::StoreKv { k, ins, layer, back } =>
            (w.store)(k, ins_at(a, ins@, plan.sequences@[q].row(i)), rows_seen(w, program, plan, op, a, q, i), plan.sequences@[q].position(i)),
        _ => Bits { code: 0 },
    }
}

/// The KV rows that this row sees.
pub open(crate) spec fn rows_seen(w: Kernels, program: Program, plan: StepPlan, op: Op, a: Memory, q: int, i: int) -> Seq<Bits>
    decreases i, 0nat,
{
    let (s, p) = (plan.sequences@[q], plan.sequences@[q].position(i));
    match op {
        Op::StoreKv { k, ins, layer, back } => Seq::new(back_span(back, p), |x: int| {
            let j = p - back_span(back, p) + x;
            if s.first_position <= j < p { stored_row(w, program, plan, op, a, q, j - s.first_position) } else { kv_at(program, s, a, layer, j) }
        }),
        _ => Seq::empty(),
    }
}

/// The row that writes a slot.
pub open(crate) spec fn writer(plan: StepPlan, g: int, page: int, offset: int) -> (int, int) {
    choose|q: int, i: int| #[trigger] writes_slot(plan, g, q, i, page, offset)
}

/// Packed row t is the i-th row of sequence n.
pub open(crate) spec fn is_row(plan: StepPlan, t: int, n: int, i: int) -> bool {
    0 <= n < plan.sequences@.len() && 0 <= i < plan.sequences@[n].rows && plan.sequences@[n].row(i) == t
}

pub open(crate) spec fn row_of(plan: StepPlan, t: int) -> (int, int) {
    choose|n: int, i: int| #[trigger] is_row(plan, t, n, i)
}

/// A packed row is one row of one sequence.
proof fn lemma_row_of(limits: Limits, program: Program, plan: StepPlan, n: int, i: int)
    requires plan_packed(limits, program, plan), is_row(plan, plan.sequences@[n].row(i), n, i),
    ensures row_of(plan, plan.sequences@[n].row(i)) == (n, i),
{
    reveal(plan_packed);
    let t = plan.sequences@[n].row(i);
    let (m, j) = row_of(plan, t);
    assert(is_row(plan, t, m, j));
    if m < n {
        lemma_rows_apart(plan, m, n);
    } else if n < m {
        lemma_rows_apart(plan, n, m);
    }
}

/// The slot of a sequence's row takes what the store makes of that row.
proof fn lemma_writer(limits: Limits, w: Kernels, program: Program, plan: StepPlan, n: int, a: Memory, q: int, i: int)
    requires
        program.wf(), plan_ok(limits, program, plan), 0 <= n < program.ops@.len(), program.ops@[n] is StoreKv,
        0 <= q < plan.sequences@.len(), 0 <= i < plan.sequences@[q].rows,
    ensures
        kv_at(program, plan.sequences@[q], apply(w, program, plan, program.ops@[n], a), program.ops@[n]->StoreKv_layer, plan.sequences@[q].position(i))
            == stored_row(w, program, plan, program.ops@[n], a, q, i),
{
    let (s, g) = (plan.sequences@[q], group_of(program, program.ops@[n]->StoreKv_layer));
    let (page, offset) = (s.page(g, s.position(i)), s.position(i) % (PAGE as int));
    assert(program.op_wf(n)) by { reveal(Program::ops_wf); }
    assert(writes_slot(plan, g, q, i, page, offset));
    let (q2, i2) = writer(plan, g, page, offset);
    assert(q == q2 && i == i2);
}

/// The rows that a row sees are those before it as they are after the op.
proof fn lemma_apply_store(limits: Limits, w: Kernels, program: Program, plan: StepPlan, n: int, a: Memory, q: int, i: int)
    requires
        program.wf(), plan_ok(limits, program, plan), 0 <= n < program.ops@.len(),
        0 <= q < plan.sequences@.len(), 0 <= i < plan.sequences@[q].rows,
    ensures
        program.ops@[n] matches Op::StoreKv { k, ins, layer, back } ==> rows_seen(w, program, plan, program.ops@[n], a, q, i)
            == kv_before(program, plan.sequences@[q], apply(w, program, plan, program.ops@[n], a), layer, back, plan.sequences@[q].position(i)),
{
    if let Op::StoreKv { k, ins, layer, back } = program.ops@[n] {
        let (s, g) = (plan.sequences@[q], group_of(program, layer));
        let (p, b) = (s.position(i), apply(w, program, plan, program.ops@[n], a));
        assert(program.op_wf(n)) by { reveal(Program::ops_wf); }
        assert(seq_ok(limits, program, plan, q)) by { reveal(plan_packed); }
        let earlier = rows_seen(w, program, plan, program.ops@[n], a, q, i);
        let after = kv_before(program, s, b, layer, back, p);
        assert forall|x: int| 0 <= x < back_span(back, p) implies earlier[x] == after[x] by {
            let j = p - back_span(back, p) + x;
            if s.first_position <= j {
                lemma_writer(limits, w, program, plan, n, a, q, j - s.first_position);
            } else {
                assert(!written_slot(plan, g, plan.sequences@[q].page(g, j), j % (PAGE as int))) by { reveal(earlier_kept); }
            }
        }
    }
}

/// The function does what the contract says.
proof fn lemma_apply(limits: Limits, w: Kernels, program: Program, plan: StepPlan, n: int, a: Memory)
    requires program.wf(), plan_ok(limits, program, plan), 0 <= n < program.ops@.len(),
    ensures op_ran(w, program, plan, program.ops@[n], a, apply(w, program, plan, program.ops@[n], a)),
{
    assert(program.op_wf(n)) by { reveal(Program::ops_wf); }
    let op = program.ops@[n];
    let b = apply(w, program, plan, op, a);
    match op {
        Op::Embed { k, out } => {
            assert forall|x: u32, t: int| !seq![out].contains(x) implies #[trigger] (b.rows)(x, t) == (a.rows)(x, t) by {
                if x == out {
                    assert(seq![out][0] == x);
                }
            }
        },
        Op::Rowwise { .. } => {},
        Op::StoreKv { k, ins, layer, back } => {
            let g = group_of(program, layer);
            assert forall|q: int, i: int, page: int, offset: int| #[trigger] writes_slot(plan, g, q, i, page, offset)
                implies (b.cache)(layer, page, offset) == (w.store)(k, ins_at(a, ins@, plan.sequences@[q].row(i)),
                    kv_before(program, plan.sequences@[q], b, layer, back, plan.sequences@[q].position(i)), plan.sequences@[q].position(i)) by {
                lemma_apply_store(limits, w, program, plan, n, a, q, i);
            }
        },
        Op::Attend { k, q, layer, out, window } => {
            assert forall|x: u32, t: int| !seq![out].contains(x) implies #[trigger] (b.rows)(x, t) == (a.rows)(x, t) by {
                if x == out {
                    assert(seq![out][0] == x);
                }
            }
            assert forall|m: int, i: int| 0 <= m < plan.sequences@.len() && 0 <= i < plan.sequences@[m].rows
                implies #[trigger] (b.rows)(out, plan.sequences@[m].row(i)) == (w.attend)(k, (a.rows)(q, plan.sequences@[m].row(i)),
                    kv_seen(program, plan.sequences@[m], a, layer, window, plan.sequences@[m].position(i)), plan.sequences@[m].position(i)) by {
                assert(is_row(plan, plan.sequences@[m].row(i), m, i));
                lemma_row_of(limits, program, plan, m, i);
            }
        },
    }
}

/// The memories that the first n ops go through.
pub open(crate) spec fn memories(w: Kernels, program: Program, plan: StepPlan, start: Memory, n: nat) -> Seq<Memory>
    decreases n,
{
    if n == 0 {
        seq![start]
    } else {
        let before = memories(w, program, plan, start, (n - 1) as nat);
        before.push(apply(w, program, plan, program.ops@[n - 1], before.last()))
    }
}

proof fn lemma_memories(limits: Limits, w: Kernels, program: Program, plan: StepPlan, start: Memory, n: nat)
    requires program.wf(), plan_ok(limits, program, plan), n <= program.ops@.len(),
    ensures
        ({
            let ms = memories(w, program, plan, start, n);
            &&& ms.len() == n + 1 && ms[0] == start
            &&& forall|i: int| 0 <= i < n ==> #[trigger] op_ran(w, program, plan, program.ops@[i], ms[i], ms[i + 1])
        }),
    decreases n,
{
    if n > 0 {
        let m = (n - 1) as nat;
        lemma_memories(limits, w, program, plan, start, m);
        let before = memories(w, program, plan, start, m);
        lemma_apply(limits, w, program, plan, m as int, before.last());
    }
}

/// Rows of a Selected buffer that was written hold their positions: only row-wise ops write such a buffer.
proof fn lemma_positions(limits: Limits, program: Program, plan: StepPlan, start: Memory, n: nat, b: u32, t: int)
    requires
        program.wf(), plan_ok(limits, program, plan), n <= program.ops@.len(), 0 <= t < plan.selected@.len(),
        b < program.buffers@.len(), program.buffers@[b as int].rows is Selected, program.written(n as int, b),
    ensures (memories(kernels(), program, plan, start, n).last().rows)(b, t).code == plan.positions@[plan.selected@[t] as int],
    decreases n,
{
    reveal(Program::written);
    if n > 0 {
        let m = (n - 1) as nat;
        assert(program.op_wf(m as int)) by { reveal(Program::ops_wf); }
        if !program.ops@[m as int].writes(b) {
            lemma_output(program.ops@[m as int], b);
            lemma_positions(limits, program, plan, start, m, b, t);
        }
    }
}

/// Slots stay finite: store kernels store what is finite, and nothing else writes.
proof fn lemma_stays_finite(w: Kernels, program: Program, plan: StepPlan, start: Memory, n: nat)
    requires
        n <= program.ops@.len(), all_finite(w, start.cache),
        forall|k: u32, ins: Seq<Bits>, earlier: Seq<Bits>, p: int| (w.finite)(#[trigger] (w.store)(k, ins, earlier, p)),
    ensures all_finite(w, memories(w, program, plan, start, n).last().cache),
    decreases n,
{
    if n > 0 {
        lemma_stays_finite(w, program, plan, start, (n - 1) as nat);
    }
}

/// A finite row, of no use, that depends on its slot.
pub open(crate) spec fn any_finite(layer: u32, page: int, offset: int) -> Bits {
    Bits { code: if offset > page + layer { offset - page - layer } else { 0 } }
}

/// The row of logits of a position.
pub open(crate) spec fn shown(position: u32) -> Shown {
    Shown { row: position as u64, copy: position as u64, list: (position / 2) as u64 }
}

/// Room for so many rows.
fn blank_rows(n: usize) -> (rows: Vec<Shown>)
    ensures rows@.len() == n,
{
    let mut rows: Vec<Shown> = Vec::with_capacity(n);
    let mut i: usize = 0;
    while i < n
        invariant i <= n, rows@.len() == i,
        decreases n - i,
    {
        rows.push(Shown { row: 0, copy: 0, list: 0 });
        i += 1;
    }
    rows
}

impl Symbolic {
    /// A device with so many rows, selected rows, pages of each group and logits of a list, that draws tokens or not, whose runs end like this, one after the other;
    /// those after them are fine.
    pub fn new(rows_max: usize, selected_max: usize, pages: Vec<usize>, lists: usize, draws: bool, failures: Vec<Option<DeviceError>>) -> (device: Self)
        ensures
            device.w() == kernels(), device.limits().rows == rows_max, device.limits().selected == selected_max, device.limits().top == lists,
            device.limits().draws == draws,
            forall|g: int| #[trigger] (device.limits().pages)(g) == pages_of(pages@, g),
    {
        Symbolic {
            rows_max,
            pages,
            lists,
            draws,
            failures,
            next: 0,
            cache: Ghost(|layer: u32, page: int, offset: int| Bits { code: -1 }),
            logits: blank_rows(selected_max),
            count: 0,
            brought: Ghost(|i: int, what: Reads| false),
            errors: Ghost(Seq::empty()),
        }
    }

    /// No row of logits survives; if there is none, there are some.
    fn forget_rows(&mut self)
        ensures *final(self) == (Symbolic { count: final(self).count, ..*old(self) }), final(self).count != old(self).count || old(self).logits@.len() == 0,
        no_unwind
    {
        self.count = if self.count == 0 { self.logits.len() } else { 0 };
    }
}

/// Pages of a group.
pub open(crate) spec fn pages_of(pages: Seq<usize>, group: int) -> usize {
    if 0 <= group < pages.len() { pages[group] } else { 0 }
}

impl Device for Symbolic {
    type Logits = u64;

    type Top = u64;

    closed spec fn w(&self) -> Kernels {
        kernels()
    }

    closed spec fn limits(&self) -> Limits {
        Limits { rows: self.rows_max, selected: self.logits.len(), pages: |g: int| pages_of(self.pages@, g), top: self.lists, draws: self.draws }
    }

    closed spec fn cache(&self) -> spec_fn(u32, int, int) -> Bits {
        self.cache@
    }

    closed spec fn logits_rows(&self) -> Seq<Bits> {
        Seq::new(if self.count <= self.logits@.len() { self.count as nat } else { 0 }, |t: int| Bits { code: self.logits@[t].row as int })
    }

    closed spec fn logits_of<'a>(bits: Bits) -> &'a u64 {
        &(bits.code as u64)
    }

    closed spec fn best_of(bits: Bits) -> Token {
        (bits.code % 7) as u32
    }

    closed spec fn top_of<'a>(bits: Bits) -> &'a u64 {
        &((bits.code / 2) as u64)
    }

    closed spec fn drawn_of(bits: Bits, draw: Draw) -> Token {
        ((bits.code + draw.scale + draw.part + draw.within) % 11) as u32
    }

    closed spec fn brought(&self) -> spec_fn(int, Reads) -> bool {
        |i: int, what: Reads| (self.brought@)(i, what)
            && (what is Row || what is Drawn ==> self.logits@[i].copy == self.logits@[i].row)
            && (what is Top ==> self.logits@[i].list == self.logits@[i].row / 2)
    }

    closed spec fn errors(&self) -> Seq<DeviceError> {
        self.errors@
    }

    fn rows_max(&self) -> usize {
        self.rows_max
    }

    fn selected_max(&self) -> usize {
        self.logits.len()
    }

    fn pages(&self, group: usize) -> usize {
        if group < self.pages.len() { self.pages[group] } else { 0 }
    }

    fn top_max(&self) -> usize {
        self.lists
    }

    fn draws(&self) -> bool {
        self.draws
    }

    fn clear(&mut self) {
        self.cache = Ghost(|layer: u32, page: int, offset: int| any_finite(layer, page, offset));
        self.errors = Ghost(Seq::empty().push(arbitrary()));
        self.brought = Ghost(|i: int, what: Reads| i % 2 == 0);
        self.forget_rows();
    }

    fn run(&mut self, program: &Program, plan: &StepPlan) -> Result<(), DeviceError> {
        let ghost before = self.cache@;
        let mut failure: Option<DeviceError> = None;
        if self.next < self.failures.len() {
            core::mem::swap(&mut self.failures[self.next], &mut failure);
            self.next += 1;
        }
        if let Some(error) = failure {
            self.errors = Ghost(self.errors@.push(error));
            self.brought = Ghost(|i: int, what: Reads| i % 2 == 0);
            self.forget_rows();
            if error.intact {
                self.cache = Ghost(|layer: u32, page: int, offset: int| if written_slot(*plan, group_of(*program, layer), page, offset) {
                    any_finite(layer, page, offset)
                } else {
                    before(layer, page, offset)
                });
            } else {
                self.cache = Ghost(|layer: u32, page: int, offset: int| Bits { code: page - offset - layer });
            }
            return Err(error);
        }
        let ghost start = Memory { rows: |b: u32, t: int| Bits { code: t - b }, cache: before };
        let ghost ms = memories(kernels(), *program, *plan, start, program.ops@.len());
        let ghost last = ms[ms.len() - 1];
        proof {
            lemma_memories(self.limits(), kernels(), *program, *plan, start, program.ops@.len());
            reveal(plan_packed);
        }
        self.cache = Ghost(last.cache);
        let ghost now = *self;
        proof {
            assert forall|t: int| 0 <= t < plan.selected@.len() implies (#[trigger] plan.selected@[t]) < plan.positions@.len() by {
                lemma_selected_in_range(old(self).limits(), *program, *plan, t);
            }
        }
        let n = plan.selected.len();
        let capacity = self.logits.len();
        let mut i: usize = 0;
        while i < n
            invariant
                i <= n <= capacity, n == plan.selected@.len(), self.logits@.len() == capacity,
                forall|j: int| 0 <= j < n ==> (#[trigger] plan.selected@[j]) < plan.positions@.len(),
                *self == (Symbolic { logits: self.logits, ..now }),
                forall|j: int| 0 <= j < i ==> #[trigger] self.logits@[j] == shown(plan.positions@[plan.selected@[j] as int]),
            decreases n - i,
        {
            let position = plan.positions[plan.selected[i] as usize] as u64;
            self.logits[i] = Shown { row: position, copy: position, list: position / 2 };
            i += 1;
        }
        self.count = n;
        // No more than is promised.
        self.brought = Ghost(|row: int, what: Reads| exists|q: int, i: int| 0 <= q < plan.sequences@.len()
            && plan.sequences@[q].brings(i, what) && 0 <= i < plan.sequences@[q].selected
            && row == #[trigger] plan.sequences@[q].compact(i));
        proof {
            assert(chain_ran(kernels(), *program, *plan, ms));
            assert forall|t: int| 0 <= t < self.logits_rows().len() implies #[trigger] self.logits_rows()[t] == (last.rows)(program.logits, t) by {
                lemma_positions(old(self).limits(), *program, *plan, start, program.ops@.len(), program.logits, t);
            }
            lemma_stays_finite(kernels(), *program, *plan, start, program.ops@.len());
            assert forall|q: int, i: int, what: Reads| 0 <= q < plan.sequences@.len() && plan.sequences@[q].brings(i, what)
                && 0 <= i < plan.sequences@[q].selected implies #[trigger] (self.brought())(plan.sequences@[q].compact(i), what) by {
                assert(seq_ok(old(self).limits(), *program, *plan, q)) by { let _ = plan.sequences@[q]; }
            }
        }
        Ok(())
    }

    fn logits(&self, selected: usize) -> &u64 {
        &self.logits[selected].copy
    }

    fn best(&self, selected: usize) -> Token {
        (self.logits[selected].row % 7) as u32
    }

    fn top(&self, selected: usize) -> &u64 {
        &self.logits[selected].list
    }

    fn drawn(&self, selected: usize, draw: Draw) -> Token {
        let numbers = draw.scale as u128 + draw.part as u128 + draw.within as u128;
        ((self.logits[selected].copy as u128 + numbers) % 11) as u32
    }
}

/// A device of any kernels: the seam asks nothing of them but that what they store is finite.
pub(crate) struct Abstract {
    pub(crate) rows: usize,
    pub(crate) kernels: Ghost<Kernels>,
    pub(crate) cache: Ghost<spec_fn(u32, int, int) -> Bits>,
    pub(crate) logits: Ghost<Seq<Bits>>,
}

/// These kernels, where they store what is finite; otherwise a zero.
pub open(crate) spec fn finite_stores(w: Kernels) -> Kernels {
    let finite = |kv: Bits| kv.code == 0 || (w.finite)(kv);
    Kernels {
        store: |k: u32, ins: Seq<Bits>, earlier: Seq<Bits>, p: int| if finite((w.store)(k, ins, earlier, p)) {
            (w.store)(k, ins, earlier, p)
        } else {
            Bits { code: 0 }
        },
        finite,
        ..w
    }
}

impl Device for Abstract {
    type Logits = ();

    type Top = ();

    closed spec fn w(&self) -> Kernels {
        finite_stores(self.kernels@)
    }

    closed spec fn limits(&self) -> Limits {
        Limits { rows: self.rows, selected: 1, pages: |g: int| self.rows, top: 0, draws: false }
    }

    closed spec fn cache(&self) -> spec_fn(u32, int, int) -> Bits {
        self.cache@
    }

    closed spec fn logits_rows(&self) -> Seq<Bits> {
        self.logits@
    }

    closed spec fn logits_of<'a>(bits: Bits) -> &'a () {
        &()
    }

    closed spec fn best_of(bits: Bits) -> Token {
        u32::MAX
    }

    closed spec fn top_of<'a>(bits: Bits) -> &'a () {
        &()
    }

    closed spec fn drawn_of(bits: Bits, draw: Draw) -> Token {
        draw.part
    }

    closed spec fn brought(&self) -> spec_fn(int, Reads) -> bool {
        |i: int, what: Reads| true
    }

    closed spec fn errors(&self) -> Seq<DeviceError> {
        Seq::empty()
    }

    fn rows_max(&self) -> usize {
        self.rows
    }

    fn selected_max(&self) -> usize {
        1
    }

    fn pages(&self, group: usize) -> usize {
        self.rows
    }

    fn top_max(&self) -> usize {
        0
    }

    fn draws(&self) -> bool {
        false
    }

    fn clear(&mut self) {
        self.cache = Ghost(|layer: u32, page: int, offset: int| Bits { code: 0 });
    }

    fn run(&mut self, program: &Program, plan: &StepPlan) -> Result<(), DeviceError> {
        let ghost w = finite_stores(self.kernels@);
        let ghost start = Memory { rows: |b: u32, t: int| Bits { code: t - b }, cache: self.cache@ };
        let ghost ms = memories(w, *program, *plan, start, program.ops@.len());
        let ghost last = ms[ms.len() - 1];
        proof {
            lemma_memories(self.limits(), w, *program, *plan, start, program.ops@.len());
            lemma_stays_finite(w, *program, *plan, start, program.ops@.len());
        }
        self.cache = Ghost(last.cache);
        self.logits = Ghost(Seq::new(plan.selected@.len(), |t: int| (last.rows)(program.logits, t)));
        proof { assert(chain_ran(w, *program, *plan, ms)); }
        Ok(())
    }

    fn logits(&self, selected: usize) -> &() {
        &()
    }

    fn best(&self, selected: usize) -> Token {
        u32::MAX
    }

    fn top(&self, selected: usize) -> &() {
        &()
    }

    fn drawn(&self, selected: usize, draw: Draw) -> Token {
        draw.part
    }
}

} // verus!
