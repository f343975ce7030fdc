//! The assumptions: the contracts of a device and of a sampler. No other file assumes anything.
//!
//! Each clause has an English sentence, and names the kernel contract that discharges it and the law that checks it on real
//! devices (`vosti-check/src/laws.rs`, run by each device's `tests/laws.rs`). The functions of weights and deployment are
//! associated spec functions indexed by `w()`, so no global axiom says that two devices agree. `proof/symbolic.rs` shows that
//! the contracts can be met.

use crate::ids::{NO_PAGE, PAGE, Token};
use crate::plan::{Draw, Reads, SeqPlan, StepPlan};
use crate::program::*;
use vstd::prelude::*;

verus! {

/// A finite bit string, coded as an integer: a row of a buffer, a KV row, a row of logits, a sampler's state, or the
/// identity of weights and deployment.
pub ghost struct Bits {
    pub code: int,
}

/// What ops read and write: `rows(buffer, row)` and `cache(layer, page, offset)`.
pub ghost struct Memory {
    pub rows: spec_fn(u32, int) -> Bits,
    pub cache: spec_fn(u32, int, int) -> Bits,
}

/// The functions of weights and deployment that the kernels compute. Two devices need not agree on them.
pub ghost struct Kernels {
    /// Row-wise: the embedding of a token under binding k: `embed(k, token)`.
    pub embed: spec_fn(u32, Token) -> Bits,
    /// Row-wise: one output of binding k for one row of inputs at a position: `rowwise(k, ins, out, position)`.
    pub rowwise: spec_fn(u32, Seq<Bits>, int, int) -> Bits,
    /// Store: the KV row of binding k for one row of inputs, the KV rows before it that it sees, in logical order (none of a store
    /// that does not look back), and its position: `store(k, ins, earlier, position)`.
    pub store: spec_fn(u32, Seq<Bits>, Seq<Bits>, int) -> Bits,
    /// Attention: the output of binding k for a query row, the KV rows that it sees in logical order, and its position:
    /// `attend(k, q, kv, position)`.
    pub attend: spec_fn(u32, Bits, Seq<Bits>, int) -> Bits,
    /// Whether a KV row holds only finite numbers.
    pub finite: spec_fn(Bits) -> bool,
}

/// The limits of a device.
pub ghost struct Limits {
    pub rows: usize,
    pub selected: usize,
    /// Pages of a group.
    pub pages: spec_fn(int) -> usize,
    /// Logits of a list.
    pub top: usize,
    /// Whether it draws tokens.
    pub draws: bool,
}

/// A failed step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceError {
    /// What failed and what to do, one line.
    pub message: String,
    /// Whether every cache slot outside the step's write set is unchanged. If not, the core refuses every later operation.
    pub intact: bool,
}

/// Runs steps: owns weights, buffers and the KV pages.
pub trait Device: Sized {
    /// One row of logits; `[f32]` in real devices.
    type Logits: ?Sized;

    /// A row's largest logits in order, each with its token; `[(Token, f32)]` in real devices.
    type Top: ?Sized;

    /// What weights and deployment fix: the functions that the kernels compute.
    spec fn w(&self) -> Kernels;

    /// What one step may have, and how many pages there are.
    spec fn limits(&self) -> Limits;

    /// The KV row of each slot: (layer, page, offset).
    spec fn cache(&self) -> spec_fn(u32, int, int) -> Bits;

    /// The rows of logits that the last step left.
    spec fn logits_rows(&self) -> Seq<Bits>;

    /// The row of logits with these contents.
    spec fn logits_of<'a>(bits: Bits) -> &'a Self::Logits;

    /// The best token of a row with these contents: the first of its largest logits.
    spec fn best_of(bits: Bits) -> Token;

    /// The largest logits of a row with these contents.
    spec fn top_of<'a>(bits: Bits) -> &'a Self::Top;

    /// The token that is drawn by these numbers from a row with these contents.
    spec fn drawn_of(bits: Bits, draw: Draw) -> Token;

    /// The parts of the last step's selected rows that are on the host.
    spec fn brought(&self) -> spec_fn(int, Reads) -> bool;

    /// The errors of all runs that failed, in order.
    spec fn errors(&self) -> Seq<DeviceError>;

    /// The most rows of one step. Never changes.
    fn rows_max(&self) -> (n: usize)
        // Says the limit. (Configuration; no kernel. Law: rows_max_is_what_a_step_takes.)
        ensures n == self.limits().rows;

    /// The most selected rows of one step. Never changes.
    fn selected_max(&self) -> (n: usize)
        // Says the limit. (Configuration; no kernel. Law: selected_max_is_what_a_step_takes.)
        ensures n == self.limits().selected;

    /// The number of pages of a cache group. Never changes.
    fn pages(&self, group: usize) -> (n: usize)
        // Says the count. (Configuration; no kernel. Law: pages_are_what_there_is.)
        ensures n == (self.limits().pages)(group as int);

    /// The number of a row's largest logits in its list (fewer if the vocabulary has fewer tokens). 0 if this device makes no
    /// lists; a plan that wants one is then an error. Never changes.
    fn top_max(&self) -> (n: usize)
        // Says the limit. (Configuration; no kernel. Law: lists_are_as_long_as_is_said.)
        ensures n == self.limits().top;

    /// Whether this device draws tokens. If not, a plan that wants one drawn is an error. Never changes.
    fn draws(&self) -> (yes: bool)
        // Says so. (Configuration; no kernel. Law: tokens_are_drawn_if_it_is_said.)
        ensures yes == self.limits().draws;

    /// Makes every slot of every layer zero. The core calls it once, when it is built.
    fn clear(&mut self)
        ensures
            // Weights, deployment and limits stay as they are. (No kernel. Law: clearing_keeps_the_weights.)
            final(self).w() == old(self).w() && final(self).limits() == old(self).limits(),
            // Zero is finite. (The pool is zeroed. Law: clearing_leaves_finite_slots.)
            all_finite(final(self).w(), final(self).cache());

    /// Runs the program over the plan's packed rows. Logits rows stay until the next run.
    fn run(&mut self, program: &Program, plan: &StepPlan) -> (out: Result<(), DeviceError>)
        requires
            // The program has passed its check.
            program.wf(),
            // Rows are packed, each request once and contiguous, everything is in range, write slots are distinct and none is one that
            // a sequence has from earlier steps.
            plan_ok(old(self).limits(), *program, *plan),
            // Masked lanes are multiplied by zero, so nothing in the pool may be infinite.
            all_finite(old(self).w(), old(self).cache()),
        ensures
            // Weights, deployment and limits stay as they are. (No kernel. Law: running_keeps_the_weights.)
            final(self).w() == old(self).w() && final(self).limits() == old(self).limits(),
            // Each op did what its contract says: shapes rowwise, store_kv, attend. (Laws: each
            // op's, in `op_ran`.)
            out is Ok ==> ran(old(self).w(), *program, *plan, old(self).cache(), final(self).cache(), final(self).logits_rows()),
            // Rows, lists and drawn tokens that the plan wants are on the host. (The device's own promise.
            // Law: whole_rows_are_brought. Law: lists_are_brought. Law: drawn_tokens_are_brought.)
            out is Ok ==> wanted_brought(*plan, final(self).brought()),
            // Store kernels map what is not finite to something finite. (Shape store_kv. Law: what_is_stored_is_finite.)
            out is Ok ==> all_finite(final(self).w(), final(self).cache()),
            // A failure that says so has changed no slot outside the step's write set, and left all of them finite. (The
            // device's own promise. Law: an_intact_failure_keeps_the_rest.)
            out matches Err(e) ==> (e.intact ==> kept_outside(*program, *plan, old(self).cache(), final(self).cache()) && all_finite(final(self).w(), final(self).cache())),
            // Its errors are those that it gave. (By definition: any device has this list.)
            final(self).errors() == match out { Ok(()) => old(self).errors(), Err(e) => old(self).errors().push(e) },
        // It does not panic: what goes wrong is an Err. (The device's own promise. Law: running_does_not_panic.)
        no_unwind;

    /// The logits of the step's `selected`-th selected row.
    fn logits(&self, selected: usize) -> (row: &Self::Logits)
        requires
            // Only rows that the last step selected and brought to the host.
            selected < self.logits_rows().len(), (self.brought())(selected as int, Reads::Row),
        ensures
            // They are the row that the last step left. (No kernel: a view. Law: logits_are_what_the_step_left.)
            row == Self::logits_of(self.logits_rows()[selected as int]);

    /// The best token of the step's `selected`-th selected row, whether or not the row is on the host.
    fn best(&self, selected: usize) -> (token: Token)
        requires
            // Only rows that the last step selected.
            selected < self.logits_rows().len(),
        ensures
            // It is a function of the row that the last step left: where its first largest logit stands, NaN counting as
            // nothing. (Shape rowwise. Law: the_best_token_is_the_rows_first_largest.)
            token == Self::best_of(self.logits_rows()[selected as int]);

    /// The largest logits of the step's `selected`-th selected row, whether or not the row is on the host.
    fn top(&self, selected: usize) -> (top: &Self::Top)
        requires
            // Only lists of rows that the last step selected and brought to the host.
            selected < self.logits_rows().len(), (self.brought())(selected as int, Reads::Top),
        ensures
            // They are a function of the row that the last step left: largest first, of equal ones the first, NaN counting
            // as nothing. (Shape rowwise, twice. Law: a_list_has_the_rows_largest_in_order.)
            top == Self::top_of(self.logits_rows()[selected as int]);

    /// The token that was drawn by `draw` from the step's `selected`-th selected row, whether or not the row is on the host.
    fn drawn(&self, selected: usize, draw: Draw) -> (token: Token)
        requires
            // Only tokens of rows that the last step selected, drawn by the numbers that its plan said.
            selected < self.logits_rows().len(), (self.brought())(selected as int, Reads::Drawn(draw)),
        ensures
            // It is a function of the row that the last step left and of the numbers. (Shape rowwise, twice.
            // Law: a_drawn_token_depends_on_its_row_and_numbers.)
            token == Self::drawn_of(self.logits_rows()[selected as int], draw);
}

/// Chooses tokens. Penalties, grammars, stop and length conditions are part of a request's state.
pub trait Sampler: Sized {
    /// One row of logits.
    type Logits: ?Sized;

    /// A row's largest logits with their tokens.
    type Top: ?Sized;

    /// What a request carries from token to token: its seed, its penalties, its grammar.
    type State;

    /// The sampler's identity: its code and fixed parameters.
    spec fn w(&self) -> Bits;

    /// The contents of a state.
    spec fn state_bits(state: &Self::State) -> Bits;

    /// The token, the next state and whether the request is done: a function of state and logits.
    spec fn choice(w: Bits, state: Bits, logits: &Self::Logits) -> (Token, Bits, bool);

    /// The same, for states whose choice reads only the row's best token.
    spec fn choice_best(w: Bits, state: Bits, best: Token) -> (Token, Bits, bool);

    /// The same, for states whose choice reads only the list of the row's largest logits.
    spec fn choice_top(w: Bits, state: Bits, top: &Self::Top) -> (Token, Bits, bool);

    /// The same, for states whose choice reads only a token that the device drew.
    spec fn choice_drawn(w: Bits, state: Bits, drawn: Token) -> (Token, Bits, bool);

    /// What the choice in this state reads.
    spec fn reads_of(state: Bits) -> Reads;

    spec fn vocab_limit(&self) -> u32;

    /// The sampler gives tokens below this.
    fn vocab(&self) -> (n: u32)
        // Says the limit. (Configuration. Law: the_vocabulary_is_what_it_says.)
        ensures n == self.vocab_limit();

    /// The next token, and whether the request is done with it.
    fn sample(&self, state: &mut Self::State, logits: &Self::Logits) -> (out: (Token, bool))
        ensures
            // Token, state and done are the function of state and logits: no clock, no order of calls.
            // (The sampler's own promise. Law: a_choice_depends_on_state_and_logits.)
            Self::choice(self.w(), Self::state_bits(old(state)), logits)
                == (out.0, Self::state_bits(final(state)), out.1),
            // The token is in the vocabulary. (The sampler's own promise. Law: tokens_are_in_the_vocabulary.)
            out.0 < self.vocab_limit();

    /// What the next choice reads.
    fn reads(&self, state: &Self::State) -> (what: Reads)
        // A function of the state. (The sampler's own promise. Law: what_a_choice_reads_depends_on_the_state.)
        ensures what == Self::reads_of(Self::state_bits(state));

    /// A guess: by what numbers the choice after `ahead` more tokens has a token drawn, if it does. No clause speaks of it; a draft
    /// behind which the numbers are others is computed again.
    fn guess(&self, state: &Self::State, ahead: usize) -> (draw: Draw);

    /// The next token, and whether the request is done with it, where the choice reads no more than the row's best token.
    fn sample_best(&self, state: &mut Self::State, best: Token) -> (out: (Token, bool))
        ensures
            // Token, state and done are the function of state and best token.
            // (The sampler's own promise. Law: a_best_choice_depends_on_state_and_token.)
            Self::choice_best(self.w(), Self::state_bits(old(state)), best)
                == (out.0, Self::state_bits(final(state)), out.1),
            // The token is in the vocabulary, whatever the best is. (The sampler's own promise. Law: best_choices_are_in_the_vocabulary.)
            out.0 < self.vocab_limit();

    /// The next token, and whether the request is done with it, where the choice reads no more than the row's largest logits.
    fn sample_top(&self, state: &mut Self::State, top: &Self::Top) -> (out: (Token, bool))
        ensures
            // Token, state and done are the function of state and list.
            // (The sampler's own promise. Law: a_listed_choice_depends_on_state_and_list.)
            Self::choice_top(self.w(), Self::state_bits(old(state)), top)
                == (out.0, Self::state_bits(final(state)), out.1),
            // The token is in the vocabulary, whatever is listed. (The sampler's own promise. Law: listed_choices_are_in_the_vocabulary.)
            out.0 < self.vocab_limit();

    /// The next token, and whether the request is done with it, where the choice reads no more than a token that the device drew.
    fn sample_drawn(&self, state: &mut Self::State, drawn: Token) -> (out: (Token, bool))
        ensures
            // Token, state and done are the function of state and drawn token.
            // (The sampler's own promise. Law: a_drawn_choice_depends_on_state_and_token.)
            Self::choice_drawn(self.w(), Self::state_bits(old(state)), drawn)
                == (out.0, Self::state_bits(final(state)), out.1),
            // The token is in the vocabulary, whatever is drawn. (The sampler's own promise. Law: drawn_choices_are_in_the_vocabulary.)
            out.0 < self.vocab_limit();
}

/// Every slot of every layer is finite.
pub open(crate) spec fn all_finite(w: Kernels, cache: spec_fn(u32, int, int) -> Bits) -> bool {
    forall|layer: u32, page: int, offset: int| (w.finite)(#[trigger] cache(layer, page, offset))
}

impl SeqPlan {
    /// So much of its i-th selected row is brought to the host.
    pub open(crate) spec fn brings(self, i: int, what: Reads) -> bool {
        match what {
            Reads::Best => true,
            Reads::Top => self.top,
            Reads::Drawn(draw) => 0 <= i < self.draws@.len() && self.draws@[i] == draw,
            Reads::Row => self.whole,
        }
    }

    /// Of its selected rows, the last row of the history; drafts follow it.
    pub open(crate) spec fn end(self) -> int {
        self.selected - self.drafts - 1
    }

    /// The packed row of its i-th row.
    pub open(crate) spec fn row(self, i: int) -> int {
        self.first_row + i
    }

    /// The position of its i-th row.
    pub open(crate) spec fn position(self, i: int) -> int {
        self.first_position + i
    }

    /// The first of its rows that is selected, counted in its rows.
    pub open(crate) spec fn unselected(self) -> int {
        self.rows - self.selected
    }

    /// The compact row of its i-th selected row.
    pub open(crate) spec fn compact(self, i: int) -> int {
        self.first_selected + i
    }

    /// The physical page of a position in a group.
    pub open(crate) spec fn page(self, group: int, position: int) -> int {
        self.tables@[group]@[position / PAGE as int] as int
    }

    /// Whether a position has a physical page in a group.
    pub open(crate) spec fn has_page(self, group: int, position: int) -> bool {
        0 <= group < self.tables@.len() && 0 <= position && position / (PAGE as int) < self.tables@[group]@.len()
            && self.tables@[group]@[position / PAGE as int] != NO_PAGE
    }
}

/// The cache group of a layer.
pub open(crate) spec fn group_of(program: Program, layer: u32) -> int {
    program.layers@[layer as int].group as int
}

/// Sequence q of the plan writes this slot in this group, with its i-th row.
pub open(crate) spec fn writes_slot(plan: StepPlan, group: int, q: int, i: int, page: int, offset: int) -> bool {
    &&& 0 <= q < plan.sequences@.len()
    &&& 0 <= i < plan.sequences@[q].rows
    &&& plan.sequences@[q].page(group, plan.sequences@[q].position(i)) == page
    &&& plan.sequences@[q].position(i) % (PAGE as int) == offset
}

/// The slot is in the step's write set.
pub open(crate) spec fn written_slot(plan: StepPlan, group: int, page: int, offset: int) -> bool {
    exists|q: int, i: int| #[trigger] writes_slot(plan, group, q, i, page, offset)
}

/// The sequence's rows and metadata, and its pages in range.
pub open(crate) spec fn seq_ok(limits: Limits, program: Program, plan: StepPlan, q: int) -> bool {
    let s = plan.sequences@[q];
    &&& s.first_row + s.rows <= plan.tokens@.len() && 1 <= s.rows
    &&& s.first_selected + s.selected <= plan.selected@.len() && s.selected <= s.rows
    &&& s.first_position + s.rows <= program.context
    &&& forall|i: int| 0 <= i < s.rows ==> #[trigger] plan.positions@[s.row(i)] == s.position(i)
    &&& forall|i: int| 0 <= i < s.selected ==> #[trigger] plan.selected@[s.compact(i)] == s.row(s.unselected() + i)
    &&& s.tables@.len() == program.groups@.len()
    &&& forall|g: int, j: int| 0 <= g < program.groups@.len() && #[trigger] s.has_page(g, j)
            ==> 0 <= s.page(g, j) < (limits.pages)(g)
    &&& forall|g: int, j: int| 0 <= g < program.groups@.len()
            && window_lo(program.groups@[g].window, s.first_position as int) <= j < s.first_position + s.rows
            ==> #[trigger] s.has_page(g, j)
}

/// Rows are packed, in range and within capacity.
#[verifier::opaque]
pub open(crate) spec fn plan_packed(limits: Limits, program: Program, plan: StepPlan) -> bool {
    let n = plan.sequences@.len();
    // Row capacity, tokens and positions in range.
    &&& plan.tokens@.len() <= limits.rows && plan.selected@.len() <= limits.selected
    &&& plan.positions@.len() == plan.tokens@.len()
    &&& forall|t: int| 0 <= t < plan.tokens@.len() ==> #[trigger] plan.tokens@[t] < program.vocab
    // Sequences are contiguous, in order, and cover all rows.
    &&& forall|q: int| #![trigger plan.sequences@[q]] 0 <= q < n ==> seq_ok(limits, program, plan, q)
            && plan.sequences@[q].first_row == rows_before(plan.sequences@, q)
            && plan.sequences@[q].first_selected == selected_before(plan.sequences@, q)
    &&& plan.tokens@.len() == rows_before(plan.sequences@, n as int)
    &&& plan.selected@.len() == selected_before(plan.sequences@, n as int)
}

/// Each request stands once in the plan.
pub open(crate) spec fn requests_once(plan: StepPlan) -> bool {
    forall|a: int, b: int| #![trigger plan.sequences@[a], plan.sequences@[b]] 0 <= a < plan.sequences@.len()
        && 0 <= b < plan.sequences@.len() && plan.sequences@[a].request.slot == plan.sequences@[b].request.slot ==> a == b
}

/// No two rows write one slot.
pub open(crate) spec fn writes_distinct(program: Program, plan: StepPlan) -> bool {
    forall|g: int, a: int, i: int, b: int, j: int, page: int, offset: int| 0 <= g < program.groups@.len()
        && #[trigger] writes_slot(plan, g, a, i, page, offset) && #[trigger] writes_slot(plan, g, b, j, page, offset)
        ==> a == b && i == j
}

/// No row writes a slot that a sequence has from earlier steps.
#[verifier::opaque]
pub open(crate) spec fn earlier_kept(program: Program, plan: StepPlan) -> bool {
    forall|g: int, q: int, j: int| 0 <= g < program.groups@.len() && 0 <= q < plan.sequences@.len() && j < plan.sequences@[q].first_position
        && plan.sequences@[q].has_page(g, j)
        ==> !written_slot(plan, g, #[trigger] plan.sequences@[q].page(g, j), j % (PAGE as int))
}

/// What the plan wants of each sequence's selected rows is brought to the host.
pub open(crate) spec fn wanted_brought(plan: StepPlan, brought: spec_fn(int, Reads) -> bool) -> bool {
    forall|q: int, i: int, what: Reads| 0 <= q < plan.sequences@.len() && plan.sequences@[q].brings(i, what)
        && 0 <= i < plan.sequences@[q].selected ==> #[trigger] brought(plan.sequences@[q].compact(i), what)
}

/// What a device may rely on.
pub open(crate) spec fn plan_ok(limits: Limits, program: Program, plan: StepPlan) -> bool {
    &&& plan.sequences@.len() >= 1
    &&& plan_packed(limits, program, plan)
    &&& requests_once(plan)
    &&& writes_distinct(program, plan)
    &&& earlier_kept(program, plan)
}

/// Rows of the first q sequences.
pub open(crate) spec fn rows_before(sequences: Seq<SeqPlan>, q: int) -> int
    decreases q,
{
    if q <= 0 { 0 } else { rows_before(sequences, q - 1) + sequences[q - 1].rows }
}

/// Selected rows of the first q sequences.
pub open(crate) spec fn selected_before(sequences: Seq<SeqPlan>, q: int) -> int
    decreases q,
{
    if q <= 0 { 0 } else { selected_before(sequences, q - 1) + sequences[q - 1].selected }
}

/// The inputs of an op at packed row t.
pub open(crate) spec fn ins_at(m: Memory, ins: Seq<u32>, t: int) -> Seq<Bits> {
    Seq::new(ins.len(), |x: int| (m.rows)(ins[x], t))
}

/// The inputs of a Selected op at compact row t: All buffers are read at the packed row, Selected ones at the compact.
pub open(crate) spec fn ins_selected(program: Program, plan: StepPlan, m: Memory, ins: Seq<u32>, t: int) -> Seq<Bits> {
    Seq::new(ins.len(), |x: int| (m.rows)(ins[x], read_row(program, plan, ins[x], t)))
}

pub open(crate) spec fn read_row(program: Program, plan: StepPlan, buffer: u32, t: int) -> int {
    match program.buffers@[buffer as int].rows {
        RowSet::All => plan.selected@[t] as int,
        RowSet::Selected => t,
    }
}

/// The KV rows that a position of a sequence sees through a window, in logical order.
pub open(crate) spec fn kv_seen(program: Program, s: SeqPlan, m: Memory, layer: u32, window: Option<u32>, p: int) -> Seq<Bits> {
    Seq::new(window_span(window, p), |x: int| kv_at(program, s, m, layer, window_lo(window, p) + x))
}

/// The KV rows before a position of a sequence that a store sees, in logical order.
pub open(crate) spec fn kv_before(program: Program, s: SeqPlan, m: Memory, layer: u32, back: u32, p: int) -> Seq<Bits> {
    Seq::new(back_span(back, p), |x: int| kv_at(program, s, m, layer, p - back_span(back, p) + x))
}

pub open(crate) spec fn kv_at(program: Program, s: SeqPlan, m: Memory, layer: u32, j: int) -> Bits {
    (m.cache)(layer, s.page(group_of(program, layer), j), j % (PAGE as int))
}

/// Every buffer but these stays as it was.
pub open(crate) spec fn rows_kept(a: Memory, b: Memory, outs: Seq<u32>) -> bool {
    forall|x: u32, t: int| !outs.contains(x) ==> #[trigger] (b.rows)(x, t) == (a.rows)(x, t)
}

/// The contract of one op's kernels: memory goes from `a` to `b`.
pub open(crate) spec fn op_ran(w: Kernels, program: Program, plan: StepPlan, op: Op, a: Memory, b: Memory) -> bool {
    match op {
        // Each output row is the token's embedding. (Shape rowwise. Law: embedding_depends_on_its_token.)
        Op::Embed { k, out } => {
            &&& b.cache == a.cache && rows_kept(a, b, seq![out])
            &&& forall|t: int| 0 <= t < plan.tokens@.len() ==> #[trigger] (b.rows)(out, t) == (w.embed)(k, plan.tokens@[t])
        },
        // Each output row depends on its input rows, the weights and its position.
        // (Shape rowwise. Law: rowwise_depends_on_its_row.)
        Op::Rowwise { k, ins, outs, rows: RowSet::All } => {
            &&& b.cache == a.cache && rows_kept(a, b, outs@)
            &&& forall|o: int, t: int| 0 <= o < outs@.len() && 0 <= t < plan.tokens@.len()
                    ==> #[trigger] (b.rows)(outs@[o], t) == (w.rowwise)(k, ins_at(a, ins@, t), o, plan.positions@[t] as int)
        },
        // The same for the selected rows, gathered. (Shape rowwise with a row index. Law: selected_rows_are_gathered.)
        Op::Rowwise { k, ins, outs, rows: RowSet::Selected } => {
            &&& b.cache == a.cache && rows_kept(a, b, outs@)
            &&& forall|o: int, t: int| 0 <= o < outs@.len() && 0 <= t < plan.selected@.len()
                    ==> #[trigger] (b.rows)(outs@[o], t) == (w.rowwise)(k, ins_selected(program, plan, a, ins@, t), o,
                            plan.positions@[plan.selected@[t] as int] as int)
        },
        Op::StoreKv { k, ins, layer, back } => {
            &&& b.rows == a.rows
            // The step's slots of this layer take their rows. (Shape store_kv. Law: stored_rows_are_found_again.)
            &&& forall|q: int, i: int, page: int, offset: int| #[trigger] writes_slot(plan, group_of(program, layer), q, i, page, offset)
                    ==> (b.cache)(layer, page, offset) == (w.store)(k, ins_at(a, ins@, plan.sequences@[q].row(i)),
                            // A store that looks back sees the rows before a row's own, of its sequence and as they are after the op:
                            // those of this step as the op stores them. (Shape recur_store for a page; a kernel of shape store_kv
                            // sees none of them. Law: a_store_sees_the_entries_before_it.)
                            kv_before(program, plan.sequences@[q], b, layer, back, plan.sequences@[q].position(i)),
                            plan.sequences@[q].position(i))
            // Every other slot is untouched. (Shape store_kv. Law: other_slots_are_untouched.)
            &&& forall|l: u32, page: int, offset: int| l != layer || !written_slot(plan, group_of(program, layer), page, offset)
                    ==> #[trigger] (b.cache)(l, page, offset) == (a.cache)(l, page, offset)
        },
        // Each output row depends on its query row, its position and the KV rows that it sees, in order.
        // (Shape attend. Law: attention_sees_its_window_in_order.)
        Op::Attend { k, q, layer, out, window } => {
            &&& b.cache == a.cache && rows_kept(a, b, seq![out])
            &&& forall|n: int, i: int| 0 <= n < plan.sequences@.len() && 0 <= i < plan.sequences@[n].rows
                    ==> #[trigger] (b.rows)(out, plan.sequences@[n].row(i)) == (w.attend)(k, (a.rows)(q, plan.sequences@[n].row(i)),
                            kv_seen(program, plan.sequences@[n], a, layer, window, plan.sequences@[n].position(i)),
                            plan.sequences@[n].position(i))
        },
    }
}

/// The ops ran one after the other through these memories.
pub open(crate) spec fn chain_ran(w: Kernels, program: Program, plan: StepPlan, ms: Seq<Memory>) -> bool {
    &&& ms.len() == program.ops@.len() + 1
    &&& forall|i: int| 0 <= i < program.ops@.len() ==> #[trigger] op_ran(w, program, plan, program.ops@[i], ms[i], ms[i + 1])
}

/// The program ran, from the cache before to the cache after, and the logits are its logits buffer.
pub open(crate) spec fn ran(
    w: Kernels,
    program: Program,
    plan: StepPlan,
    before: spec_fn(u32, int, int) -> Bits,
    after: spec_fn(u32, int, int) -> Bits,
    logits: Seq<Bits>,
) -> bool {
    exists|ms: Seq<Memory>| #[trigger] chain_ran(w, program, plan, ms) && ms[0].cache == before
        && ms[ms.len() - 1].cache == after && logits.len() == plan.selected@.len()
        && forall|t: int| 0 <= t < logits.len() ==> #[trigger] logits[t] == (ms[ms.len() - 1].rows)(program.logits, t)
}

/// No slot outside the write set changed.
pub open(crate) spec fn kept_outside(
    program: Program,
    plan: StepPlan,
    before: spec_fn(u32, int, int) -> Bits,
    after: spec_fn(u32, int, int) -> Bits,
) -> bool {
    forall|layer: u32, page: int, offset: int| !written_slot(plan, group_of(program, layer), page, offset)
        ==> #[trigger] after(layer, page, offset) == before(layer, page, offset)
}

} // verus!
