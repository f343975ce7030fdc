//! A device and a sampler that meet the contracts of `seam.rs`, verified: so the contracts do not contradict each other,
//! for any program that passes its check and any plan that the core makes.
//!
//! The device's rows are ghost values: it executes nothing. Its sampler counts down. `scenario` drives the core over
//! both through admission, chunks, drafts, records, publication, attachment, preemption and eviction; a test runs it.

use super::canonical::*;
use super::forward::*;
use super::reference::*;
use super::trace::*;
use crate::core::Core;
use crate::error::CoreError;
use crate::ids::{BlockId, NO_PAGE, PAGE, RequestId, Token};
use crate::ops::commit::*;
use crate::plan::*;
use crate::program::*;
use crate::seam::*;
use crate::spec::*;
use crate::state::*;
use vstd::prelude::*;

verus! {

/// A device whose rows are ghost values.
pub struct Symbolic {
    pub(crate) rows_max: usize,
    pub(crate) pages: usize,
    pub(crate) w: Ghost<Kernels>,
    pub(crate) cache: Ghost<spec_fn(u32, int, int) -> Bits>,
    /// Room for as many rows of logits as a step may select, and how many there are.
    pub(crate) logits: Vec<Ghost<Bits>>,
    pub(crate) count: usize,
    /// What of each is on the host.
    pub(crate) brought: Ghost<spec_fn(int, Reads) -> bool>,
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
        Op::StoreKv { k, ins, layer } => Memory {
            rows: a.rows,
            cache: |l: u32, page: int, offset: int| if l == layer && written_slot(plan, group_of(program, layer), page, offset) {
                let (q, i) = writer(plan, group_of(program, layer), page, offset);
                (w.store)(k, ins_at(a, ins@, plan.sequences@[q].row(i)), plan.sequences@[q].position(i))
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

proof fn lemma_rows_ascend(s: Seq<SeqPlan>, a: int, b: int)
    requires 0 <= a < b <= s.len(),
    ensures rows_before(s, a) + s[a].rows <= rows_before(s, b),
    decreases b - a,
{
    if a + 1 < b {
        lemma_rows_ascend(s, a, b - 1);
    }
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
    let x = plan.sequences@[m];
    let y = plan.sequences@[n];
    if m < n {
        lemma_rows_ascend(plan.sequences@, m, n);
    } else if n < m {
        lemma_rows_ascend(plan.sequences@, n, m);
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
        Op::Rowwise { k, ins, outs, rows } => {
            assert forall|o: int| 0 <= o < outs@.len() implies outs@.index_of(#[trigger] outs@[o]) == o by {
                assert(outs@.contains(outs@[o]));
            }
        },
        Op::StoreKv { k, ins, layer } => {
            let g = group_of(program, layer);
            assert(program.layers@[layer as int].group < program.groups@.len());
            assert forall|q: int, i: int, page: int, offset: int| #[trigger] writes_slot(plan, g, q, i, page, offset)
                implies (b.cache)(layer, page, offset) == (w.store)(k, ins_at(a, ins@, plan.sequences@[q].row(i)), plan.sequences@[q].position(i)) by {
                assert(written_slot(plan, g, page, offset));
                let (q2, i2) = writer(plan, g, page, offset);
                assert(writes_slot(plan, g, q2, i2, page, offset));
                assert(q == q2 && i == i2);
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
        let ms = memories(w, program, plan, start, n);
        lemma_apply(limits, w, program, plan, m as int, before.last());
        assert forall|i: int| 0 <= i < n implies #[trigger] op_ran(w, program, plan, program.ops@[i], ms[i], ms[i + 1]) by {
            assert(ms[i] == before[i]);
            if i < m {
                assert(op_ran(w, program, plan, program.ops@[i], before[i], before[i + 1]));
            }
        }
    }
}

impl Symbolic {
    /// A device with so many pages per group. Any kernels will do whose rows are all finite.
    pub fn new(rows_max: usize, pages: usize) -> Self {
        let ghost w = Kernels {
            embed: |k: u32, token: Token| Bits { code: token as int },
            rowwise: |k: u32, ins: Seq<Bits>, out: int, position: int| Bits { code: position },
            store: |k: u32, ins: Seq<Bits>, position: int| Bits { code: position },
            attend: |k: u32, q: Bits, kv: Seq<Bits>, position: int| q,
            finite: |kv: Bits| true,
        };
        Symbolic {
            rows_max,
            pages,
            w: Ghost(w),
            cache: Ghost(|layer: u32, page: int, offset: int| Bits { code: 0 }),
            logits: blank_rows(rows_max),
            count: 0,
            brought: Ghost(|i: int, what: Reads| false),
        }
    }

    /// The kernels, made finite.
    spec fn kernels(self) -> Kernels {
        Kernels { finite: |kv: Bits| true, ..self.w@ }
    }
}

impl Device for Symbolic {
    type Logits = Ghost<Bits>;

    type Top = Ghost<Bits>;

    closed spec fn w(&self) -> Kernels {
        self.kernels()
    }

    closed spec fn limits(&self) -> Limits {
        Limits { rows: self.rows_max, selected: self.logits.len(), pages: |g: int| self.pages, top: 1 }
    }

    closed spec fn cache(&self) -> spec_fn(u32, int, int) -> Bits {
        self.cache@
    }

    closed spec fn logits_rows(&self) -> Seq<Bits> {
        Seq::new(if self.count <= self.logits@.len() { self.count as nat } else { 0 }, |t: int| self.logits@[t]@)
    }

    closed spec fn logits_of<'a>(bits: Bits) -> &'a Ghost<Bits> {
        &Ghost(bits)
    }

    closed spec fn best_of(bits: Bits) -> Token {
        0
    }

    closed spec fn top_of<'a>(bits: Bits) -> &'a Ghost<Bits> {
        &Ghost(bits)
    }

    closed spec fn brought(&self) -> spec_fn(int, Reads) -> bool {
        self.brought@
    }

    fn rows_max(&self) -> usize {
        self.rows_max
    }

    fn selected_max(&self) -> usize {
        self.logits.len()
    }

    fn pages(&self, group: usize) -> usize {
        self.pages
    }

    fn top_max(&self) -> usize {
        1
    }

    fn clear(&mut self) {
    }

    fn run(&mut self, program: &Program, plan: &StepPlan) -> Result<(), DeviceError> {
        let ghost w = self.kernels();
        let ghost limits = self.limits();
        let ghost start = Memory { rows: |b: u32, t: int| Bits { code: 0 }, cache: self.cache@ };
        let ghost ms = memories(w, *program, *plan, start, program.ops@.len());
        let ghost last = ms[ms.len() - 1];
        let ghost rows = Seq::new(plan.selected@.len(), |t: int| (last.rows)(program.logits, t));
        let ghost before = self.cache@;
        proof {
            lemma_memories(limits, w, *program, *plan, start, program.ops@.len());
        }
        self.cache = Ghost(last.cache);
        let n = plan.selected.len();
        let capacity = self.logits.len();
        proof { reveal(plan_packed); }
        let mut i: usize = 0;
        while i < n
            invariant
                i <= n <= self.logits@.len(), n == rows.len(), self.logits@.len() == capacity,
                *self == (Symbolic { logits: self.logits, cache: Ghost(last.cache), ..*old(self) }),
                forall|j: int| 0 <= j < i ==> (#[trigger] self.logits@[j])@ == rows[j],
            decreases n - i,
        {
            self.logits[i] = Ghost(rows[i as int]);
            i += 1;
        }
        self.count = n;
        // No more than is promised.
        self.brought = Ghost(|row: int, what: Reads| exists|q: int, i: int| 0 <= q < plan.sequences@.len()
            && plan.sequences@[q].brings(what) && 0 <= i < plan.sequences@[q].selected
            && row == #[trigger] plan.sequences@[q].compact(i));
        proof {
            assert(self.logits_rows() =~= rows);
            assert(chain_ran(w, *program, *plan, ms));
        }
        Ok(())
    }

    fn logits(&self, selected: usize) -> &Ghost<Bits> {
        proof { assert(self.logits_rows()[selected as int] == self.logits@[selected as int]@); }
        &self.logits[selected]
    }

    fn best(&self, selected: usize) -> Token {
        0
    }

    fn top(&self, selected: usize) -> &Ghost<Bits> {
        proof { assert(self.logits_rows()[selected as int] == self.logits@[selected as int]@); }
        &self.logits[selected]
    }
}

/// Room for so many rows.
fn blank_rows(n: usize) -> Vec<Ghost<Bits>> {
    let mut out: Vec<Ghost<Bits>> = Vec::with_capacity(n);
    let mut i: usize = 0;
    while i < n
        invariant i <= n,
        decreases n - i,
    {
        out.push(Ghost(Bits { code: 0 }));
        i += 1;
    }
    out
}

/// What the scenario saw.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scene {
    pub records: usize,
    pub published: usize,
    pub attached: usize,
    pub evicted: usize,
}

/// A program of every kind of op over one group.
fn small_program() -> (program: Program)
    ensures program.groups@.len() == 1,
{
    let row = BufferDecl { width: 1, dtype: Dtype::Act, rows: RowSet::All };
    let mut buffers = Vec::new();
    buffers.push(row);
    buffers.push(row);
    buffers.push(BufferDecl { width: 9, dtype: Dtype::F32, rows: RowSet::Selected });
    let mut groups = Vec::new();
    groups.push(GroupDecl { window: None, kv_heads: 1, head_dim: 1 });
    let mut layers = Vec::new();
    layers.push(LayerDecl { group: 0 });
    let mut ops = Vec::new();
    ops.push(Op::Embed { k: 0, out: 0 });
    ops.push(Op::StoreKv { k: 0, ins: one(0), layer: 0 });
    ops.push(Op::Attend { k: 0, q: 0, layer: 0, out: 1, window: None });
    ops.push(Op::Rowwise { k: 0, ins: one(1), outs: one(2), rows: RowSet::Selected });
    Program { ops, buffers, groups, layers, logits: 2, vocab: 9, context: 200, kernels: 1 }
}

fn one(x: u32) -> (list: Vec<u32>)
    ensures list@ == seq![x],
{
    let mut list = Vec::new();
    list.push(x);
    proof { assert(list@ =~= seq![x]); }
    list
}

fn zeros(n: usize) -> Vec<Token> {
    let mut prompt: Vec<Token> = Vec::new();
    let mut i: usize = 0;
    while i < n
        invariant i <= n,
        decreases n - i,
    {
        prompt.push(0);
        i += 1;
    }
    prompt
}

/// One step of one request with these rows and drafts; how many records it gave.
fn step(core: &mut Core<Symbolic, Countdown>, id: RequestId, rows: usize, drafts: &[Token]) -> Result<usize, CoreError> {
    core.plan_begin()?;
    core.plan_rows(id, rows, drafts, Select::Last)?;
    core.run()?;
    let records = core.commit()?;
    Ok(records.len())
}

/// Admit, chunk, emit, draft, publish; admit again, attach, emit; preempt, attach again, emit; evict. `Err` would be a
/// refusal.
pub fn scenario() -> Result<Scene, CoreError> {
    let mut core = Core::new(Symbolic::new(128, 8), Countdown { vocab: 9 }, small_program())?;
    let first = core.admit(zeros(70), 0, 5)?;
    core.take_page(first, 0)?;
    core.take_page(first, 0)?;
    let mut records = step(&mut core, first, 40, zeros(0).as_slice())?;
    records = records.saturating_add(step(&mut core, first, 30, zeros(0).as_slice())?);
    // The sampler counts down from 5: the next tokens are 4 and 3, so the second draft is wrong.
    let mut drafts: Vec<Token> = Vec::new();
    drafts.push(4);
    drafts.push(8);
    records = records.saturating_add(step(&mut core, first, 1, drafts.as_slice())?);
    let block = match core.publish(first)? {
        Some(block) => block,
        None => return Err(CoreError::BlockMismatch),
    };
    let second = core.admit(zeros(70), 0, 1)?;
    core.attach(second, block)?;
    core.take_page(second, 0)?;
    records = records.saturating_add(step(&mut core, second, 6, zeros(0).as_slice())?);
    core.finish(second)?;
    // The first loses its pages, finds its own block again, and computes the rest: 73 tokens, 64 of them attached.
    core.preempt(first)?;
    core.attach(first, block)?;
    core.take_page(first, 0)?;
    records = records.saturating_add(step(&mut core, first, 9, zeros(0).as_slice())?);
    core.abort(first)?;
    core.evict(block)?;
    Ok(Scene { records, published: 1, attached: 2, evicted: 1 })
}

/// A sampler that counts down: its state is how many tokens are left. It reads rows while more than three are, and a
/// list when two are.
pub struct Countdown {
    pub(crate) vocab: u32,
}

impl Sampler for Countdown {
    type Logits = Ghost<Bits>;

    type Top = Ghost<Bits>;

    type State = u32;

    closed spec fn w(&self) -> Bits {
        Bits { code: self.vocab as int }
    }

    closed spec fn state_bits(state: &u32) -> Bits {
        Bits { code: *state as int }
    }

    closed spec fn choice(w: Bits, state: Bits, logits: &Ghost<Bits>) -> (Token, Bits, bool) {
        (
            if state.code < w.code { state.code as u32 } else { 0 },
            Bits { code: if state.code > 0 { state.code - 1 } else { 0 } },
            state.code <= 1,
        )
    }

    closed spec fn choice_best(w: Bits, state: Bits, best: Token) -> (Token, Bits, bool) {
        Self::choice(w, state, &Ghost(state))
    }

    closed spec fn choice_top(w: Bits, state: Bits, top: &Ghost<Bits>) -> (Token, Bits, bool) {
        Self::choice(w, state, top)
    }

    closed spec fn reads_of(state: Bits) -> Reads {
        if state.code > 3 { Reads::Row } else if state.code == 2 { Reads::Top } else { Reads::Best }
    }

    closed spec fn vocab_limit(&self) -> u32 {
        if self.vocab == 0 { 1 } else { self.vocab }
    }

    fn vocab(&self) -> u32 {
        if self.vocab == 0 { 1 } else { self.vocab }
    }

    fn sample(&self, state: &mut u32, logits: &Ghost<Bits>) -> (Token, bool) {
        let n = *state;
        if n > 0 {
            *state = n - 1;
        }
        (if n < self.vocab { n } else { 0 }, n <= 1)
    }

    fn reads(&self, state: &u32) -> Reads {
        if *state > 3 { Reads::Row } else if *state == 2 { Reads::Top } else { Reads::Best }
    }

    fn sample_best(&self, state: &mut u32, best: Token) -> (Token, bool) {
        self.sample(state, &Ghost(Bits { code: 0 }))
    }

    fn sample_top(&self, state: &mut u32, top: &Ghost<Bits>) -> (Token, bool) {
        self.sample(state, top)
    }
}

} // verus!
