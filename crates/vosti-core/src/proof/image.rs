//! That the array of a step's metadata says what its plan says, and that the premises of kernels follow.

use crate::ids::PAGE;
use crate::layout::*;
use crate::plan::{SeqPlan, StepPlan};
use crate::premises::*;
use crate::program::*;
use crate::put::*;
use crate::seam::*;
use vstd::prelude::*;

verus! {

/// One integer was written.
pub(crate) proof fn lemma_put(a: Seq<i32>, b: Seq<i32>, index: int)
    requires 0 <= index < a.len(), b == a.update(index, b[index]),
    ensures forall|start: int, i: int| 0 <= start + i < a.len() ==> #[trigger] at(b, start, i) == if start + i == index { b[index] as int } else { at(a, start, i) },
{
}

/// Sequences have rows, one sequence's behind the other's, and cover all.
pub open(crate) spec fn packed(plan: StepPlan) -> bool {
    let n = plan.sequences@.len() as int;
    &&& forall|q: int| 0 <= q < n ==> (#[trigger] plan.sequences@[q]).first_row == rows_before(plan.sequences@, q) && 1 <= plan.sequences@[q].rows
    &&& plan.tokens@.len() == rows_before(plan.sequences@, n)
}

/// Each table has a page for each row.
pub open(crate) spec fn tables_long(plan: StepPlan) -> bool {
    forall|q: int| 0 <= q < plan.sequences@.len() ==> #[trigger] table_long(plan.sequences@[q])
}

pub open(crate) spec fn table_long(s: SeqPlan) -> bool {
    &&& s.first_position + s.rows + PAGE <= usize::MAX
    &&& forall|g: int| 0 <= g < s.tables@.len() ==> pages_of(s) <= (#[trigger] s.tables@[g])@.len()
}

/// Rows and positions are no more than kernels are proved for.
pub open(crate) spec fn within(plan: StepPlan) -> bool {
    &&& plan.tokens@.len() <= ROWS_MAX
    &&& forall|q: int| 0 <= q < plan.sequences@.len() ==> #[trigger] within_context(plan.sequences@[q])
}

pub open(crate) spec fn within_context(s: SeqPlan) -> bool {
    s.first_position + s.rows <= CONTEXT_MAX
}

pub(crate) proof fn lemma_packed(plan: StepPlan, q: int)
    requires packed(plan), tables_long(plan), 0 <= q < plan.sequences@.len(),
    ensures
        plan.sequences@[q].first_row + plan.sequences@[q].rows <= plan.tokens@.len(),
        table_long(plan.sequences@[q]),
{
    lemma_rows_apart(plan, q, plan.sequences@.len() as int);
}

/// A later sequence's rows are behind an earlier one's.
pub(crate) proof fn lemma_rows_apart(plan: StepPlan, p: int, q: int)
    requires 0 <= p <= q <= plan.sequences@.len(),
    ensures
        p < q ==> rows_before(plan.sequences@, p) + plan.sequences@[p].rows <= rows_before(plan.sequences@, q),
        0 <= rows_before(plan.sequences@, p) <= rows_before(plan.sequences@, q),
    decreases q,
{
    if p < q {
        lemma_rows_apart(plan, p, q - 1);
    } else if p > 0 {
        lemma_rows_apart(plan, p - 1, p - 1);
    }
}

/// A later sequence's tables are behind an earlier one's.
pub(crate) proof fn lemma_entries_apart(plan: StepPlan, p: int, q: int)
    requires 0 <= p <= q <= plan.sequences@.len(),
    ensures
        p < q ==> entries_before(plan.sequences@, p) + pages_of(plan.sequences@[p]) <= entries_before(plan.sequences@, q),
        0 <= entries_before(plan.sequences@, p) <= entries_before(plan.sequences@, q),
    decreases q,
{
    if p < q {
        lemma_entries_apart(plan, p, q - 1);
    } else if p > 0 {
        lemma_entries_apart(plan, p - 1, p - 1);
    }
}

impl Layout {
    /// What every part of `write` may rely on.
    pub open(crate) spec fn ready(self, plan: StepPlan) -> bool {
        &&& self.wf() && self.fits(plan)
        &&& plan.tokens@.len() <= self.room && plan.selected@.len() <= self.room_selected
        &&& self.entries == entries_before(plan.sequences@, plan.sequences@.len() as int)
    }

    pub open(crate) spec fn rows_written(self, cells: Seq<i32>, plan: StepPlan) -> bool {
        &&& at(cells, 0, 0) == plan.tokens@.len() && at(cells, LINE as int, 0) == plan.selected@.len()
        &&& forall|t: int| 0 <= t < plan.tokens@.len() ==> #[trigger] at(cells, self.start_of(Meta::Tokens), t) == plan.tokens@[t] as i32
        &&& forall|t: int| 0 <= t < plan.tokens@.len() ==> #[trigger] at(cells, self.start_of(Meta::Positions), t) == plan.positions@[t] as i32
        &&& forall|t: int| 0 <= t < plan.selected@.len() ==> #[trigger] at(cells, self.start_of(Meta::RowIndex), t) == plan.selected@[t] as i32
    }

    pub open(crate) spec fn slots_written(self, cells: Seq<i32>, plan: StepPlan, n: int) -> bool {
        forall|g: int, q: int, i: int| 0 <= g < n && 0 <= q < plan.sequences@.len() && 0 <= i < plan.sequences@[q].rows
            ==> #[trigger] slot_put(cells, slots_at(self.room as int, self.room_selected as int, g), plan, g, q, i)
    }

    pub open(crate) spec fn tiling_written(self, cells: Seq<i32>, plan: StepPlan, x: int, count: int, by: Tiled) -> bool {
        &&& tiled(cells, self.starts@[x] as int, self.stride(x), self.tilings@[x], plan, self.entries as int, count,
                rows_of(self.tilings@[x], plan.tokens@.len() as int), by)
        &&& count <= self.counts@[x] <= self.most_tiles(x)
        &&& forall|k: int| count <= k < self.counts@[x] ==> #[trigger] tile_at(cells, self.starts@[x] as int, self.stride(x), k) == spare_tile()
    }

    pub open(crate) spec fn some_tiles_written(self, cells: Seq<i32>, plan: StepPlan, x: int) -> bool {
        exists|count: int, by: Tiled| #[trigger] self.tiling_written(cells, plan, x, count, by)
    }

    pub open(crate) spec fn tiles_written(self, cells: Seq<i32>, plan: StepPlan, n: int) -> bool {
        forall|x: int| 0 <= x < n ==> #[trigger] self.some_tiles_written(cells, plan, x)
    }

    pub open(crate) spec fn tables_written(self, cells: Seq<i32>, plan: StepPlan, n: int) -> bool {
        forall|g: int, q: int, l: int| 0 <= g < n && 0 <= q < plan.sequences@.len() && 0 <= l < pages_of(plan.sequences@[q])
            ==> #[trigger] table_put(cells, self.tables + g * self.entries, plan, g, q, l)
    }

    /// The whole step stands in the array.
    pub open(crate) spec fn written(self, cells: Seq<i32>, plan: StepPlan) -> bool {
        &&& self.ready(plan)
        &&& self.rows_written(cells, plan)
        &&& self.slots_written(cells, plan, self.groups as int)
        &&& self.tiles_written(cells, plan, self.tilings@.len() as int)
        &&& self.tables_written(cells, plan, self.groups as int)
        &&& self.len <= cells.len() && self.measured(plan)
    }

    /// What launches are made for holds the step, and is no more than there is room for.
    pub open(crate) spec fn measured(self, plan: StepPlan) -> bool {
        &&& plan.tokens@.len() <= self.rows <= self.room && plan.selected@.len() <= self.selected <= self.room_selected
        &&& self.length <= CONTEXT_MAX
        &&& forall|q: int| 0 <= q < plan.sequences@.len() ==> (#[trigger] plan.sequences@[q]).first_position + plan.sequences@[q].rows <= self.length
    }

    pub(crate) proof fn lemma_ready(self, plan: StepPlan)
        requires self.ready(plan),
        ensures
            packed(plan), tables_long(plan), within(plan),
            forall|q: int| 0 <= q < plan.sequences@.len() ==> (#[trigger] plan.sequences@[q]).tables@.len() == self.groups,
            forall|x: int| 0 <= x < self.tilings@.len() ==> (#[trigger] self.tilings@[x]).group * self.entries + self.entries <= TABLE_MAX,
    {
        assert forall|q: int| 0 <= q < plan.sequences@.len() implies #[trigger] table_long(plan.sequences@[q]) by {
            assert(seq_fits(self.groups, self.context, plan.sequences@[q]));
        }
        assert forall|q: int| 0 <= q < plan.sequences@.len() implies #[trigger] within_context(plan.sequences@[q]) by {
            assert(seq_fits(self.groups, self.context, plan.sequences@[q]));
        }
        assert forall|q: int| 0 <= q < plan.sequences@.len() implies (#[trigger] plan.sequences@[q]).tables@.len() == self.groups by {
            assert(seq_fits(self.groups, self.context, plan.sequences@[q]));
        }
        assert forall|x: int| 0 <= x < self.tilings@.len() implies (#[trigger] self.tilings@[x]).group * self.entries + self.entries <= TABLE_MAX by {
            let (g, n, e, m) = (self.tilings@[x].group as int, self.groups as int, self.entries as int, self.entries_max as int);
            assert(g * e + e <= n * m) by (nonlinear_arith) requires 0 <= g < n, 0 <= e <= m {}
        }
    }

    /// The arrays before the slots are in the array.
    pub(crate) proof fn lemma_front(self)
        requires self.wf(),
        ensures
            slots_at(self.room as int, self.room_selected as int, 0) <= self.tables <= self.len,
            self.tables + self.groups * self.entries <= self.len,
            self.tiles_start(0) == slots_at(self.room as int, self.room_selected as int, self.groups as int),
            slots_at(self.room as int, self.room_selected as int, 0) <= self.tiles_start(0) <= self.tables,
    {
        let n = self.tilings@.len() as int;
        let (g, e, m) = (self.groups as int, self.entries as int, self.entries_max as int);
        lemma_tiles_grow(self.tilings@, g, self.room as int, self.room_selected as int, self.rows_max as int, self.selected_max as int, n);
        lemma_tiles_order(self.tilings@, g, self.room as int, self.room_selected as int, 0, n);
        assert(0 <= g * e <= g * m) by (nonlinear_arith) requires 0 <= g, 0 <= e <= m {}
    }

    pub(crate) proof fn lemma_slots_end(self, g: int)
        requires self.wf(), 0 <= g < self.groups,
        ensures slots_at(self.room as int, self.room_selected as int, g) + line(self.room as int)
            == slots_at(self.room as int, self.room_selected as int, g + 1) <= self.tiles_start(0) <= self.len,
    {
        self.lemma_front();
        let each = line(self.room as int);
        assert((g + 1) * each == g * each + each) by (nonlinear_arith) {}
        lemma_slots_order(self.room as int, self.room_selected as int, g + 1, self.groups as int);
    }

    pub(crate) proof fn lemma_tiles_end(self, x: int)
        requires self.wf(), 0 <= x < self.tilings@.len(),
        ensures
            self.starts@[x] == self.tiles_start(x), self.tiles_start(0) <= self.starts@[x],
            self.starts@[x] + 4 * self.stride(x) == self.tiles_start(x + 1) <= self.tables <= self.len,
            rows_of(self.tilings@[x], self.room as int) <= self.stride(x),
    {
        self.lemma_front();
        let n = self.tilings@.len() as int;
        lemma_tiles_order(self.tilings@, self.groups as int, self.room as int, self.room_selected as int, x + 1, n);
        lemma_tiles_order(self.tilings@, self.groups as int, self.room as int, self.room_selected as int, 0, x);
    }

    pub(crate) proof fn lemma_tables_end(self, g: int)
        requires self.wf(), 0 <= g < self.groups,
        ensures
            self.tables <= self.tables + g * self.entries,
            self.tables + g * self.entries + self.entries == self.tables + (g + 1) * self.entries <= self.len,
    {
        self.lemma_front();
        let (n, e) = (self.groups as int, self.entries as int);
        assert(0 <= g * e && g * e + e == (g + 1) * e && (g + 1) * e <= n * e) by (nonlinear_arith) requires 0 <= g < n, 0 <= e {}
    }

    pub(crate) proof fn lemma_slots_frame(self, a: Seq<i32>, b: Seq<i32>, plan: StepPlan, n: int, lo: int)
        requires
            self.ready(plan), 0 <= n <= self.groups, kept(a, b, lo), self.slots_written(a, plan, n),
            slots_at(self.room as int, self.room_selected as int, n) <= lo,
        ensures self.slots_written(b, plan, n),
    {
        hide(rows_before);
        hide(entries_before);
        assert forall|g: int, q: int, i: int| 0 <= g < n && 0 <= q < plan.sequences@.len() && 0 <= i < plan.sequences@[q].rows
            implies #[trigger] slot_put(b, slots_at(self.room as int, self.room_selected as int, g), plan, g, q, i) by {
            let start = slots_at(self.room as int, self.room_selected as int, g);
            assert(slot_put(a, start, plan, g, q, i));
            self.lemma_slots_end(g);
            self.lemma_ready(plan);
            lemma_packed(plan, q);
            lemma_slots_order(self.room as int, self.room_selected as int, g + 1, n);
        }
    }

    pub(crate) proof fn lemma_tiling_frame(self, a: Seq<i32>, b: Seq<i32>, plan: StepPlan, x: int, lo: int)
        requires
            self.ready(plan), 0 <= x < self.tilings@.len(), kept(a, b, lo), self.tiles_start(x + 1) <= lo,
            self.some_tiles_written(a, plan, x),
        ensures self.some_tiles_written(b, plan, x),
    {
        let (count, by) = choose|count: int, by: Tiled| #[trigger] self.tiling_written(a, plan, x, count, by);
        let (start, stride) = (self.starts@[x] as int, self.stride(x));
        lemma_tiled_frame(a, b, start, stride, self.tilings@[x], plan, self.entries as int, count, rows_of(self.tilings@[x], plan.tokens@.len() as int), by);
        assert(self.tiling_written(b, plan, x, count, by));
    }

    pub(crate) proof fn lemma_tiles_more(self, before: Layout, a: Seq<i32>, then: Seq<i32>, b: Seq<i32>, plan: StepPlan, x: int, count: int, by: Tiled)
        requires
            before.ready(plan), self.ready(plan), 0 <= x < self.tilings@.len(), before.tiles_written(a, plan, x),
            self == (Layout { counts: self.counts, ..before }), self.counts@ == before.counts@.update(x, self.counts@[x]),
            count <= self.counts@[x] <= self.most_tiles(x),
            kept(a, then, self.starts@[x] as int), kept(then, b, self.starts@[x] as int),
            tiled(then, self.starts@[x] as int, self.stride(x), self.tilings@[x], plan, self.entries as int, count,
                rows_of(self.tilings@[x], plan.tokens@.len() as int), by),
            forall|k: int| 0 <= k < count ==> #[trigger] tile_at(b, self.starts@[x] as int, self.stride(x), k) == tile_at(then, self.starts@[x] as int, self.stride(x), k),
            forall|k: int| count <= k < self.counts@[x] ==> #[trigger] tile_at(b, self.starts@[x] as int, self.stride(x), k) == spare_tile(),
        ensures
            self.tiles_written(b, plan, x + 1),
    {
        let (start, stride) = (self.starts@[x] as int, self.stride(x));
        assert forall|k: int| 0 <= k < count implies #[trigger] tile_is(b, start, stride, self.tilings@[x], plan, self.entries as int, k, by) by {
            assert(tile_is(then, start, stride, self.tilings@[x], plan, self.entries as int, k, by));
        }
        assert(self.tiling_written(b, plan, x, count, by));
        assert forall|y: int| 0 <= y < x + 1 implies #[trigger] self.some_tiles_written(b, plan, y) by {
            if y < x {
                assert(before.some_tiles_written(a, plan, y));
                let (n, w) = choose|n: int, w: Tiled| #[trigger] before.tiling_written(a, plan, y, n, w);
                assert(self.tiling_written(a, plan, y, n, w));
                lemma_tiles_order(self.tilings@, self.groups as int, self.room as int, self.room_selected as int, y + 1, x);
                self.lemma_tiling_frame(a, b, plan, y, start);
            }
        }
    }

    pub(crate) proof fn lemma_tables_more(self, a: Seq<i32>, b: Seq<i32>, plan: StepPlan, g: int)
        requires
            self.ready(plan), 0 <= g < self.groups, self.tables_written(a, plan, g), kept(a, b, self.tables + g * self.entries),
            forall|q: int, l: int| 0 <= q < plan.sequences@.len() && 0 <= l < pages_of(plan.sequences@[q])
                ==> #[trigger] table_put(b, self.tables + g * self.entries, plan, g, q, l),
        ensures self.tables_written(b, plan, g + 1),
    {
        assert forall|h: int, q: int, l: int| 0 <= h < g + 1 && 0 <= q < plan.sequences@.len() && 0 <= l < pages_of(plan.sequences@[q])
            implies #[trigger] table_put(b, self.tables + h * self.entries, plan, h, q, l) by {
            if h < g {
                let e = self.entries as int;
                assert(table_put(a, self.tables + h * e, plan, h, q, l));
                lemma_entries_apart(plan, q, plan.sequences@.len() as int);
                assert(0 <= h * e && h * e + e <= g * e) by (nonlinear_arith) requires 0 <= h < g, 0 <= e {}
            }
        }
    }

    /// What the parts of `write` left is there at the end: after rows `a`, slots `b`, tiles `c` and tables `d`.
    pub(crate) proof fn lemma_written(self, a: Seq<i32>, b: Seq<i32>, c: Seq<i32>, d: Seq<i32>, plan: StepPlan)
        requires
            self.ready(plan), self.measured(plan), self.len <= d.len(),
            self.rows_written(a, plan), self.slots_written(b, plan, self.groups as int),
            self.tiles_written(c, plan, self.tilings@.len() as int), self.tables_written(d, plan, self.groups as int),
            kept(a, b, slots_at(self.room as int, self.room_selected as int, 0)), kept(b, c, self.tiles_start(0)), kept(c, d, self.tables as int),
        ensures self.written(d, plan),
    {
        self.lemma_front();
        let n = self.tilings@.len() as int;
        self.lemma_slots_frame(b, d, plan, self.groups as int, self.tiles_start(0));
        assert forall|x: int| 0 <= x < n implies #[trigger] self.some_tiles_written(d, plan, x) by {
            lemma_tiles_order(self.tilings@, self.groups as int, self.room as int, self.room_selected as int, x + 1, n);
            self.lemma_tiling_frame(c, d, plan, x, self.tables as int);
        }
    }
}

/// What the core plans fits, and what was written of it says what the plan says.
pub(crate) proof fn lemma_filled(before: Layout, after: Layout, cells: Seq<i32>, plan: StepPlan, ok: bool)
    requires before.wf(), after.same_make(before), ok ==> after.written(cells, plan),
    ensures
        forall|limits: Limits, program: Program| #[trigger] plan_ok(limits, program, plan) && program.wf() && before.made_for(program) && pages_small(limits, program) ==> {
            &&& limits.rows <= before.rows_max && limits.selected <= before.selected_max ==> before.fits(plan)
            &&& ok ==> after.told(cells, plan)
        },
{
    assert forall|limits: Limits, program: Program| #[trigger] plan_ok(limits, program, plan) && program.wf() && before.made_for(program) && pages_small(limits, program) implies {
            &&& limits.rows <= before.rows_max && limits.selected <= before.selected_max ==> before.fits(plan)
            &&& ok ==> after.told(cells, plan)
        } by {
        if limits.rows <= before.rows_max && limits.selected <= before.selected_max {
            before.lemma_fits(limits, program, plan);
        }
        if ok {
            after.theorem_told(limits, program, cells, plan);
        }
    }
}

impl Layout {
    /// Whatever the core plans can be filled in.
    pub(crate) proof fn lemma_fits(self, limits: Limits, program: Program, plan: StepPlan)
        requires
            self.wf(), self.made_for(program), program.wf(), plan_ok(limits, program, plan),
            limits.rows <= self.rows_max, limits.selected <= self.selected_max,
        ensures self.fits(plan),
    {
        let n = plan.sequences@.len() as int;
        reveal(plan_packed);
        assert forall|q: int| 0 <= q < n implies #[trigger] seq_fits(self.groups, self.context, plan.sequences@[q]) by {
            lemma_seq_fits(limits, program, plan, q, self.groups, self.context);
        }
        lemma_entries_bound(self.groups, self.context, plan, n);
        let each = (self.context + PAGE - 1) / (PAGE as int);
        let rows = plan.tokens@.len() as int;
        assert(n * each <= self.rows_max * each) by (nonlinear_arith) requires n <= rows <= self.rows_max, 0 <= each {}
    }

    /// The array says what the plan says.
    pub(crate) proof fn theorem_told(self, limits: Limits, program: Program, cells: Seq<i32>, plan: StepPlan)
        requires self.written(cells, plan), self.made_for(program), program.wf(), plan_ok(limits, program, plan), pages_small(limits, program),
        ensures self.told(cells, plan),
    {
        self.lemma_rows_told(limits, program, cells, plan);
        assert forall|g: int, q: int, i: int| 0 <= g < self.groups && 0 <= q < plan.sequences@.len() && 0 <= i < plan.sequences@[q].rows
            implies #[trigger] self.slot_told(cells, plan, g, q, i) by {
            self.lemma_slot_told(limits, program, cells, plan, g, q, i);
        }
        assert forall|x: int| 0 <= x < self.tilings@.len() implies #[trigger] self.tiles_cover(cells, plan, x) by {
            self.lemma_cover(cells, plan, x);
        }
        assert forall|x: int, k: int| 0 <= x < self.tilings@.len() && 0 <= k < self.counts@[x] implies #[trigger] self.tile_told(cells, plan, x, k) by {
            self.lemma_tile_told(cells, plan, x, k);
        }
        self.lemma_launched(cells, plan);
    }

    proof fn lemma_launched(self, cells: Seq<i32>, plan: StepPlan)
        requires self.written(cells, plan),
        ensures self.launched(plan), self.placed(plan),
    {
        let (g, e, m) = (self.groups as int, self.entries as int, self.entries_max as int);
        assert(g * e <= g * m) by (nonlinear_arith) requires 0 <= g, e <= m {}
        assert forall|x: int| 0 <= x < self.tilings@.len() implies #[trigger] self.counts@[x] <= self.most_tiles(x) by {
            assert(self.some_tiles_written(cells, plan, x));
        }
    }

    proof fn lemma_rows_told(self, limits: Limits, program: Program, cells: Seq<i32>, plan: StepPlan)
        requires self.written(cells, plan), self.made_for(program), program.wf(), plan_ok(limits, program, plan),
        ensures self.rows_told(cells, plan),
    {
        hide(rows_before);
        hide(selected_before);
        hide(entries_before);
        reveal(plan_packed);
        let n = plan.sequences@.len() as int;
        assert forall|t: int| 0 <= t < plan.tokens@.len() implies #[trigger] self.read(cells, Meta::Positions, t) == plan.positions@[t] by {
            let q = lemma_owner(plan, t, n);
            let s = plan.sequences@[q];
            assert(plan.positions@[s.row(t - s.first_row)] == s.position(t - s.first_row));
        }
        assert forall|t: int| 0 <= t < plan.selected@.len() implies #[trigger] self.read(cells, Meta::RowIndex, t) == plan.selected@[t] by {
            let q = lemma_selected_owner(plan, t, n);
            let s = plan.sequences@[q];
            assert(plan.selected@[s.compact(t - s.first_selected)] == s.row(s.unselected() + (t - s.first_selected)));
            assert(at(cells, self.start_of(Meta::RowIndex), t) == plan.selected@[t] as i32);
        }
    }

    proof fn lemma_slot_told(self, limits: Limits, program: Program, cells: Seq<i32>, plan: StepPlan, g: int, q: int, i: int)
        requires
            self.written(cells, plan), self.made_for(program), program.wf(), plan_ok(limits, program, plan), pages_small(limits, program),
            0 <= g < self.groups, 0 <= q < plan.sequences@.len(), 0 <= i < plan.sequences@[q].rows,
        ensures self.slot_told(cells, plan, g, q, i),
    {
        hide(rows_before);
        hide(selected_before);
        hide(entries_before);
        reveal(plan_packed);
        let s = plan.sequences@[q];
        assert(slot_put(cells, slots_at(self.room as int, self.room_selected as int, g), plan, g, q, i));
        assert(s.has_page(g, s.position(i)));
    }

    proof fn lemma_tile_told(self, cells: Seq<i32>, plan: StepPlan, x: int, k: int)
        requires self.written(cells, plan), 0 <= x < self.tilings@.len(), 0 <= k < self.counts@[x],
        ensures self.tile_told(cells, plan, x, k),
    {
        hide(rows_before);
        assert(self.some_tiles_written(cells, plan, x));
        let (count, by) = choose|count: int, by: Tiled| #[trigger] self.tiling_written(cells, plan, x, count, by);
        let (of, start, stride) = (self.tilings@[x], self.starts@[x] as int, self.stride(x));
        let tile = self.tile(cells, x, k);
        assert(self.tilings.len() == self.tilings@.len());
        assert(tile == tile_at(cells, start, stride, k));
        if k < count {
            let q = by.owners[k];
            assert(tile_is(cells, start, stride, of, plan, self.entries as int, k, by));
            let (s, g, e) = (plan.sequences@[q], of.group as int, self.entries as int);
            let ahead = entries_before(plan.sequences@, q);
            lemma_entries_apart(plan, q, plan.sequences@.len() as int);
            assert(0 <= g * e && g * e + e <= self.groups * e) by (nonlinear_arith) requires 0 <= g < self.groups, 0 <= e {}
            assert forall|l: int| 0 <= l < pages_of(s) implies #[trigger] self.read(cells, Meta::PageTables, tile.table + l) == s.tables@[g]@[l] by {
                assert(table_put(cells, self.tables + g * e, plan, g, q, l));
                assert(at(cells, self.tables + g * e, ahead + l) == at(cells, self.tables as int, tile.table + l));
            }
            assert(self.table_told(cells, s, g, tile.table));
            assert(self.tile_of(cells, plan, x, tile, q));
        }
    }

    proof fn lemma_cover(self, cells: Seq<i32>, plan: StepPlan, x: int)
        requires self.written(cells, plan), 0 <= x < self.tilings@.len(),
        ensures self.tiles_cover(cells, plan, x),
    {
        assert(self.some_tiles_written(cells, plan, x));
        let (count, by) = choose|count: int, by: Tiled| #[trigger] self.tiling_written(cells, plan, x, count, by);
        let (of, start, stride) = (self.tilings@[x], self.starts@[x] as int, self.stride(x));
        assert forall|k: int| 0 <= k < count implies by.edges[k] < #[trigger] by.edges[k + 1] by {
            assert(tile_is(cells, start, stride, of, plan, self.entries as int, k, by));
        }
        assert(self.tilings.len() == self.tilings@.len());
        assert forall|t: int| of.first <= t < of.first + rows_of(of, plan.tokens@.len() as int)
            implies #[trigger] self.in_a_tile(cells, x, t) by {
            let k = lemma_edge(by.edges, count, t - of.first);
            assert(tile_is(cells, start, stride, of, plan, self.entries as int, k, by));
            assert(self.lane_of(cells, x, t, k, t - of.first - by.edges[k]));
        }
        assert forall|t: int, k: int, lane: int, k2: int, lane2: int| #[trigger] self.lane_of(cells, x, t, k, lane)
            && #[trigger] self.lane_of(cells, x, t, k2, lane2) implies k == k2 && lane == lane2 by {
            assert(tile_is(cells, start, stride, of, plan, self.entries as int, k, by));
            assert(tile_is(cells, start, stride, of, plan, self.entries as int, k2, by));
            if k < k2 {
                lemma_edges_rise(by.edges, count, k + 1, k2);
            } else if k2 < k {
                lemma_edges_rise(by.edges, count, k2 + 1, k);
            }
        }
    }
}

/// The tile whose rows have this one.
proof fn lemma_edge(edges: Seq<int>, count: int, r: int) -> (k: int)
    requires
        0 <= count, edges.len() > count, edges[0] == 0, 0 <= r < edges[count],
        forall|k: int| 0 <= k < count ==> edges[k] < #[trigger] edges[k + 1],
    ensures 0 <= k < count, edges[k] <= r < edges[k + 1],
    decreases count,
{
    if r >= edges[count - 1] {
        count - 1
    } else {
        lemma_edge(edges, count - 1, r)
    }
}

proof fn lemma_edges_rise(edges: Seq<int>, count: int, a: int, b: int)
    requires 0 <= a <= b <= count, edges.len() > count, forall|k: int| 0 <= k < count ==> edges[k] < #[trigger] edges[k + 1],
    ensures edges[a] <= edges[b],
    decreases b,
{
    if a < b {
        lemma_edges_rise(edges, count, a, b - 1);
        assert(edges[b - 1] < edges[b - 1 + 1]);
    }
}

/// The sequence of a packed row.
pub(crate) proof fn lemma_owner(plan: StepPlan, t: int, n: int) -> (q: int)
    requires packed(plan), 0 <= n <= plan.sequences@.len(), 0 <= t < rows_before(plan.sequences@, n),
    ensures 0 <= q < n, plan.sequences@[q].first_row <= t < plan.sequences@[q].first_row + plan.sequences@[q].rows,
    decreases n,
{
    if t >= rows_before(plan.sequences@, n - 1) { n - 1 } else { lemma_owner(plan, t, n - 1) }
}

/// The sequence of a selected row.
pub(crate) proof fn lemma_selected_owner(plan: StepPlan, t: int, n: int) -> (q: int)
    requires
        0 <= n <= plan.sequences@.len(), 0 <= t < selected_before(plan.sequences@, n),
        forall|q: int| 0 <= q < plan.sequences@.len() ==> (#[trigger] plan.sequences@[q]).first_selected == selected_before(plan.sequences@, q),
    ensures 0 <= q < n, plan.sequences@[q].first_selected <= t < plan.sequences@[q].first_selected + plan.sequences@[q].selected,
    decreases n,
{
    if t >= selected_before(plan.sequences@, n - 1) { n - 1 } else { lemma_selected_owner(plan, t, n - 1) }
}

/// A plan's gathered rows are among the packed.
pub(crate) proof fn lemma_selected_in_range(limits: Limits, program: Program, plan: StepPlan, i: int)
    requires plan_packed(limits, program, plan), 0 <= i < plan.selected@.len(),
    ensures plan.selected@[i] < plan.tokens@.len(),
{
    hide(rows_before);
    hide(selected_before);
    assert(plan.selected@.len() == selected_before(plan.sequences@, plan.sequences@.len() as int)
        && forall|q: int| 0 <= q < plan.sequences@.len() ==> (#[trigger] plan.sequences@[q]).first_selected == selected_before(plan.sequences@, q)) by {
        reveal(plan_packed);
    }
    let q = lemma_selected_owner(plan, i, plan.sequences@.len() as int);
    let s = plan.sequences@[q];
    assert(seq_ok(limits, program, plan, q)) by { reveal(plan_packed); }
    assert(plan.selected@[s.compact(i - s.first_selected)] == s.row(s.unselected() + (i - s.first_selected)));
}

proof fn lemma_seq_fits(limits: Limits, program: Program, plan: StepPlan, q: int, groups: usize, context: usize)
    requires seq_ok(limits, program, plan, q), program.groups_wf(), groups == program.groups@.len(), context == program.context,
    ensures seq_fits(groups, context, plan.sequences@[q]),
{
    let s = plan.sequences@[q];
    let last = s.first_position + s.rows - 1;
    assert forall|g: int| 0 <= g < s.tables@.len() implies pages_of(s) <= (#[trigger] s.tables@[g])@.len() by {
        assert(program.groups@[g].window != Some(0u32));
        assert(s.has_page(g, last));
    }
}

/// A sequence has a row, and no more pages than the context.
proof fn lemma_entries_bound(groups: usize, context: usize, plan: StepPlan, n: int)
    requires
        0 <= n <= plan.sequences@.len(),
        forall|q: int| 0 <= q < plan.sequences@.len() ==> #[trigger] seq_fits(groups, context, plan.sequences@[q]),
        forall|q: int| 0 <= q < plan.sequences@.len() ==> 1 <= (#[trigger] plan.sequences@[q]).rows,
    ensures
        entries_before(plan.sequences@, n) <= n * ((context + PAGE - 1) / (PAGE as int)),
        n <= rows_before(plan.sequences@, n),
    decreases n,
{
    if n > 0 {
        lemma_entries_bound(groups, context, plan, n - 1);
        assert(seq_fits(groups, context, plan.sequences@[n - 1]));
        let each = (context + PAGE - 1) / (PAGE as int);
        assert(n * each == (n - 1) * each + each) by (nonlinear_arith) {}
    }
}

proof fn lemma_tiled_frame(a: Seq<i32>, b: Seq<i32>, start: int, stride: int, of: Tiling, plan: StepPlan, entries: int, count: int, rows: int, by: Tiled)
    requires
        0 <= start, count <= stride, kept(a, b, start + 4 * stride), tiled(a, start, stride, of, plan, entries, count, rows, by),
    ensures
        tiled(b, start, stride, of, plan, entries, count, rows, by),
        forall|k: int| 0 <= k < stride ==> #[trigger] tile_at(b, start, stride, k) == tile_at(a, start, stride, k),
{
    assert forall|k: int| 0 <= k < count implies #[trigger] tile_is(b, start, stride, of, plan, entries, k, by) by {
        assert(tile_is(a, start, stride, of, plan, entries, k, by));
    }
}

pub(crate) proof fn lemma_slots_order(room: int, selected: int, g: int, h: int)
    requires 0 <= room, 0 <= selected, 0 <= g <= h,
    ensures 0 <= slots_at(room, selected, g) <= slots_at(room, selected, h), room <= line(room),
{
    let each = line(room);
    assert(0 <= g * each <= h * each) by (nonlinear_arith) requires 0 <= each, 0 <= g <= h {}
}

pub(crate) proof fn lemma_tiles_order(tilings: Seq<Tiling>, groups: int, room: int, selected: int, x: int, y: int)
    requires 0 <= x <= y <= tilings.len(), 0 <= room,
    ensures tiles_at(tilings, groups, room, selected, x) <= tiles_at(tilings, groups, room, selected, y),
    decreases y,
{
    if x < y {
        lemma_tiles_order(tilings, groups, room, selected, x, y - 1);
    }
}

/// Room for fewer rows is no more room.
pub(crate) proof fn lemma_tiles_grow(tilings: Seq<Tiling>, groups: int, room: int, selected: int, room_max: int, selected_max: int, x: int)
    requires 0 <= room <= room_max, 0 <= selected <= selected_max, 0 <= groups, 0 <= x <= tilings.len(),
    ensures tiles_at(tilings, groups, room, selected, x) <= tiles_at(tilings, groups, room_max, selected_max, x),
    decreases x,
{
    if x > 0 {
        lemma_tiles_grow(tilings, groups, room, selected, room_max, selected_max, x - 1);
    } else {
        let (a, b) = (line(room), line(room_max));
        assert(groups * a <= groups * b) by (nonlinear_arith) requires 0 <= groups, a <= b {}
    }
}

pub(crate) proof fn lemma_tiles_prefix(a: Seq<Tiling>, b: Seq<Tiling>, groups: int, room: int, selected: int, x: int)
    requires 0 <= x <= a.len() <= b.len(), forall|i: int| 0 <= i < a.len() ==> a[i] == b[i],
    ensures tiles_at(a, groups, room, selected, x) == tiles_at(b, groups, room, selected, x),
    decreases x,
{
    if x > 0 {
        lemma_tiles_prefix(a, b, groups, room, selected, x - 1);
    }
}

} // verus!
