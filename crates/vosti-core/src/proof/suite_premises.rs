//! The tests of `trusted/premises.rs`: for each clause of `told`, an array that it accepts and what it refuses; and that what
//! the kernel verifier takes (`World` of `vosti-verify`, fact by fact) follows from `told`. A clause that is weakened dies here;
//! one that is too strong dies in `theorem_told`, for nobody can fill in such an array. See `suite.rs`.

use super::image::*;
use super::trace::*;
use crate::core::Core;
use crate::ids::PAGE;
use crate::layout::*;
use crate::next::*;
use crate::plan::StepPlan;
use crate::premises::*;
use crate::program::*;
use crate::seam::*;
use crate::state::*;
use crate::views::*;
use vstd::prelude::*;

verus! {

/// Whatever a core plans, `Image::fill` takes and `told` is said of: its contract's premises are those of a sound core.
proof fn lemma_accepts_every_step<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(core: Core<D, S>)
    requires core.sound(), legal(core, Call::Run),
    ensures
        plan_ok(core.spec_device().limits(), core.world().program, core.spec_state()->0.plan), core.world().program.wf(),
        pages_small(core.spec_device().limits(), core.world().program),
{
    core.lemma_state();
    let s = core.spec_state()->0;
    lemma_run_ok(core.spec_fixed(), s);
    assert forall|g: int| 0 <= g < core.world().program.groups@.len() implies #[trigger] (core.spec_device().limits().pages)(g) <= COUNT_MAX / PAGE by {
        reveal(State::inv_shape);
        assert(s.pools@[g].pages@.len() == (s.dev@.limits.pages)(g));
    }
}

/// What the code writes is told, of any array.
proof fn uses_told(layout: Layout, limits: Limits, program: Program, cells: Seq<i32>, plan: StepPlan)
    requires layout.written(cells, plan), layout.made_for(program), program.wf(), plan_ok(limits, program, plan), pages_small(limits, program),
    ensures layout.told(cells, plan),
{
    hide(Layout::told);
    hide(Layout::written);
    layout.theorem_told(limits, program, cells, plan);
}

/// What a step's array may depend on is known: no other program, and no larger vocabulary or page than 31 bits number.
proof fn lemma_refuses_another_program(layout: Layout, program: Program, limits: Limits, g: int)
    ensures
        layout.made_for(program) ==> layout.groups == program.groups@.len() && layout.context == program.context && program.vocab <= 0x7fff_ffff,
        pages_small(limits, program) && 0 <= g < program.groups@.len() ==> (limits.pages)(g) * PAGE <= 0x7fff_ffff,
{
}

/// Counts, tokens, positions and gathered rows: the plan's, each of them.
proof fn lemma_refuses_other_rows(layout: Layout, cells: Seq<i32>, plan: StepPlan, t: int)
    requires layout.told(cells, plan),
    ensures
        layout.read(cells, Meta::Rows, 0) == plan.tokens@.len(), layout.read(cells, Meta::Selected, 0) == plan.selected@.len(),
        0 <= t < plan.tokens@.len() ==> layout.read(cells, Meta::Tokens, t) == plan.tokens@[t],
        0 <= t < plan.tokens@.len() ==> layout.read(cells, Meta::Positions, t) == plan.positions@[t],
        0 <= t < plan.selected@.len() ==> layout.read(cells, Meta::RowIndex, t) == plan.selected@[t],
{
}

/// A row writes the slot that the seam says: the page of its position, and there its place.
proof fn lemma_refuses_another_slot(layout: Layout, cells: Seq<i32>, plan: StepPlan, g: int, q: int, i: int)
    requires layout.told(cells, plan), 0 <= g < layout.groups, 0 <= q < plan.sequences@.len(), 0 <= i < plan.sequences@[q].rows,
    ensures
        ({
            let slot = layout.read(cells, Meta::Slots { group: g as usize }, plan.sequences@[q].row(i));
            writes_slot(plan, g, q, i, slot / PAGE as int, slot % (PAGE as int))
        }),
{
    assert(layout.slot_told(cells, plan, g, q, i));
    let s = plan.sequences@[q];
    let (page, offset) = (s.page(g, s.position(i)), s.position(i) % (PAGE as int));
    assert(layout.slot_told(cells, plan, g, q, i) && slot_of(s, g, i) == page * PAGE + offset);
    assert((page * PAGE + offset) / PAGE as int == page && (page * PAGE + offset) % (PAGE as int) == offset) by (nonlinear_arith)
        requires 0 <= offset < PAGE, PAGE == 64 {}
}

/// Every row of a tiling is in a tile, and in one.
proof fn lemma_refuses_a_row_without_a_tile(layout: Layout, cells: Seq<i32>, plan: StepPlan, x: int, t: int, k: int, lane: int, k2: int, lane2: int)
    requires layout.told(cells, plan), 0 <= x < layout.tilings@.len(),
    ensures
        layout.tilings@[x].first <= t < layout.tilings@[x].end && t < plan.tokens@.len()
            ==> exists|k: int, lane: int| #[trigger] layout.lane_of(cells, x, t, k, lane),
        layout.lane_of(cells, x, t, k, lane) && layout.lane_of(cells, x, t, k2, lane2) ==> k == k2 && lane == lane2,
{
    assert(layout.tiles_cover(cells, plan, x));
    assert(layout.tilings@[x].first <= t < layout.tilings@[x].end && t < plan.tokens@.len() ==> layout.in_a_tile(cells, x, t));
}

/// What a lane of a tile is: a tile of the step, a lane of its rows, and that row.
proof fn lemma_refuses_lanes(layout: Layout, cells: Seq<i32>, x: int, t: int, k: int, lane: int)
    ensures
        layout.lane_of(cells, x, t, k, lane) ==> 0 <= k < layout.counts@[x] && 0 <= lane < layout.read(cells, Meta::TileRows { tiling: x as usize }, k)
            && layout.tilings@[x].first + layout.read(cells, Meta::TileRow { tiling: x as usize }, k) + lane == t,
{
}

/// A tile with rows is of one sequence, which its lanes' rows, positions and pages are: what attention's contract calls the request.
proof fn lemma_refuses_tiles_of_many(layout: Layout, cells: Seq<i32>, plan: StepPlan, x: int, k: int, lane: int) -> (q: int)
    requires
        layout.told(cells, plan), 0 <= x < layout.tilings@.len(), 0 <= k < layout.counts@[x],
        0 <= lane < layout.tile(cells, x, k).rows,
    ensures
        0 <= q < plan.sequences@.len(),
        ({
            let (s, of, tile) = (plan.sequences@[q], layout.tilings@[x], layout.tile(cells, x, k));
            let i = of.first + tile.row + lane - s.first_row;
            &&& 0 <= i < s.rows && s.position(i) == tile.pos + lane
            &&& tile.rows <= of.height && 0 <= tile.row && of.first + tile.row + lane < of.end
            // The entry of each position up to the row's own, in its group's tables.
            &&& 0 <= tile.table && tile.table + s.position(i) / (PAGE as int) < layout.table_len()
            &&& forall|j: int| 0 <= j <= s.position(i) ==> layout.read(cells, Meta::PageTables, tile.table + j / PAGE as int) == #[trigger] s.page(of.group as int, j)
        }),
{
    assert(layout.tile_told(cells, plan, x, k));
    let tile = layout.tile(cells, x, k);
    let q = choose|q: int| layout.tile_of(cells, plan, x, tile, q);
    let (s, of) = (plan.sequences@[q], layout.tilings@[x]);
    assert(layout.table_told(cells, s, of.group as int, tile.table));
    let i = of.first + tile.row + lane - s.first_row;
    assert(s.position(i) / (PAGE as int) < pages_of(s));
    assert forall|j: int| 0 <= j <= s.position(i) implies layout.read(cells, Meta::PageTables, tile.table + j / PAGE as int) == #[trigger] s.page(of.group as int, j) by {
        assert(j / (PAGE as int) <= s.position(i) / PAGE as int);
    }
    q
}

/// Where tiles have room for a sequence, it is one tile: all its rows, from the first position of the step on.
proof fn lemma_refuses_cut_sequences(layout: Layout, cells: Seq<i32>, plan: StepPlan, x: int, tile: Tile, q: int)
    requires
        layout.tile_of(cells, plan, x, tile, q), layout.tilings@[x].first <= plan.sequences@[q].first_row,
        plan.sequences@[q].first_row + plan.sequences@[q].rows <= layout.tilings@[x].end, plan.sequences@[q].rows <= layout.tilings@[x].height,
    ensures
        layout.tilings@[x].first + tile.row == plan.sequences@[q].first_row, tile.rows == plan.sequences@[q].rows,
        tile.pos == plan.sequences@[q].first_position,
{
}

/// A tile without rows has nothing: no row, no position, no table.
proof fn lemma_refuses_padding_with_a_table(layout: Layout, cells: Seq<i32>, plan: StepPlan, x: int, k: int)
    requires layout.told(cells, plan), 0 <= x < layout.tilings@.len(), 0 <= k < layout.counts@[x], layout.tile(cells, x, k).rows <= 0,
    ensures layout.tile(cells, x, k) == (Tile { row: 0, rows: 0, pos: 0, table: -1 }),
{
    assert(layout.tile_told(cells, plan, x, k));
}

/// Launches are for all rows, tiles and positions, and for no more than kernels are proved for.
proof fn lemma_refuses_short_and_long_launches(layout: Layout, cells: Seq<i32>, plan: StepPlan, q: int, x: int)
    requires layout.told(cells, plan),
    ensures
        plan.tokens@.len() <= layout.rows <= 0x10_0000, plan.selected@.len() <= layout.selected <= 0x10_0000,
        0 <= q < plan.sequences@.len() ==> plan.sequences@[q].first_position + plan.sequences@[q].rows <= layout.length <= 0x40_0000,
        layout.context <= 0x40_0000, layout.table_len() <= 0x1000_0000,
        0 <= x < layout.tilings@.len() ==> layout.counts@[x] <= 0x10_0000,
{
}

/// No array is shorter than what is read of it.
proof fn lemma_refuses_short_places(layout: Layout, cells: Seq<i32>, plan: StepPlan, x: int)
    requires layout.told(cells, plan),
    ensures
        plan.tokens@.len() <= layout.len_of(Meta::Tokens), plan.tokens@.len() <= layout.len_of(Meta::Positions),
        plan.tokens@.len() <= layout.len_of(Meta::Slots { group: 0 }), plan.selected@.len() <= layout.len_of(Meta::RowIndex),
        layout.len_of(Meta::Rows) == 1, layout.len_of(Meta::Selected) == 1, layout.len_of(Meta::PageTables) == layout.table_len(),
        0 <= x < layout.tilings@.len() ==> layout.counts@[x] <= layout.len_of(Meta::TileTable { tiling: x as usize })
            && layout.counts@[x] <= layout.len_of(Meta::TileRow { tiling: x as usize })
            && layout.counts@[x] <= layout.len_of(Meta::TileRows { tiling: x as usize })
            && layout.counts@[x] <= layout.len_of(Meta::TilePos { tiling: x as usize }),
{
    assert(layout.tilings.len() == layout.tilings@.len());
}

/// Arrays are those of the layout's groups and tilings.
proof fn lemma_refuses_arrays_of_nobody(layout: Layout, group: usize, tiling: usize)
    ensures
        layout.has(Meta::Rows) && layout.has(Meta::Selected) && layout.has(Meta::Tokens) && layout.has(Meta::Positions)
            && layout.has(Meta::RowIndex) && layout.has(Meta::PageTables),
        layout.has(Meta::Slots { group }) <==> group < layout.groups,
        layout.has(Meta::TileTable { tiling }) <==> tiling < layout.tilings@.len(),
        layout.has(Meta::TileRow { tiling }) <==> tiling < layout.tilings@.len(),
        layout.has(Meta::TileRows { tiling }) <==> tiling < layout.tilings@.len(),
        layout.has(Meta::TilePos { tiling }) <==> tiling < layout.tilings@.len(),
{
}

// ---- World's facts. `L` and `R` are two such arrays.

/// A plan's positions are within the context, and its tokens within the vocabulary.
proof fn lemma_rows_in_range(limits: Limits, program: Program, plan: StepPlan, i: int)
    requires plan_packed(limits, program, plan), packed(plan), 0 <= i < plan.tokens@.len(),
    ensures plan.positions@[i] < program.context, plan.tokens@[i] < program.vocab,
{
    hide(rows_before);
    hide(selected_before);
    let q = lemma_owner(plan, i, plan.sequences@.len() as int);
    let s = plan.sequences@[q];
    assert(seq_ok(limits, program, plan, q) && plan.tokens@[i] < program.vocab) by { reveal(plan_packed); }
    assert(plan.positions@[s.row(i - s.first_row)] == s.position(i - s.first_row));
}

/// `facts`: positions are within the context, tokens within the vocabulary, gathered rows among the packed.
proof fn lemma_facts_of_rows(layout: Layout, limits: Limits, program: Program, cells: Seq<i32>, plan: StepPlan, i: int)
    requires layout.told(cells, plan), plan_ok(limits, program, plan), layout.made_for(program),
    ensures
        0 <= i < layout.read(cells, Meta::Rows, 0) ==> 0 <= layout.read(cells, Meta::Positions, i) < program.context
            && 0 <= layout.read(cells, Meta::Tokens, i) < program.vocab,
        0 <= i < layout.read(cells, Meta::Selected, 0) ==> 0 <= layout.read(cells, Meta::RowIndex, i) < layout.read(cells, Meta::Rows, 0),
        1 <= layout.read(cells, Meta::Rows, 0) <= ROWS_MAX, layout.read(cells, Meta::Selected, 0) <= ROWS_MAX,
{
    lemma_packed_of(limits, program, plan);
    lemma_refuses_other_rows(layout, cells, plan, i);
    assert(1 <= plan.tokens@.len()) by {
        reveal(plan_packed);
        assert(seq_ok(limits, program, plan, 0));
    }
    if 0 <= i < plan.tokens@.len() {
        lemma_rows_in_range(limits, program, plan, i);
    }
    if 0 <= i < plan.selected@.len() {
        lemma_selected_in_range(limits, program, plan, i);
    }
}

/// A row's slot is the one of a sequence's row, in the group's pages.
proof fn lemma_slot(layout: Layout, limits: Limits, program: Program, cells: Seq<i32>, plan: StepPlan, g: int, t: int) -> (of: (int, int))
    requires
        layout.told(cells, plan), plan_ok(limits, program, plan), layout.made_for(program), program.wf(), 0 <= g < layout.groups,
        0 <= t < plan.tokens@.len(),
    ensures
        0 <= of.0 < plan.sequences@.len(), plan.sequences@[of.0].row(of.1) == t,
        ({
            let slot = layout.read(cells, Meta::Slots { group: g as usize }, t);
            0 <= slot < (limits.pages)(g) * PAGE && writes_slot(plan, g, of.0, of.1, slot / PAGE as int, slot % (PAGE as int))
        }),
{
    hide(Layout::told);
    hide(Layout::read);
    hide(rows_before);
    lemma_packed_of(limits, program, plan);
    let q = lemma_owner(plan, t, plan.sequences@.len() as int);
    let s = plan.sequences@[q];
    let i = t - s.first_row;
    let (slot, page) = (layout.read(cells, Meta::Slots { group: g as usize }, t), s.page(g, s.position(i)));
    lemma_refuses_another_slot(layout, cells, plan, g, q, i);
    assert(0 <= page < (limits.pages)(g)) by {
        assert(seq_ok(limits, program, plan, q)) by { reveal(plan_packed); }
        assert(s.has_page(g, s.position(i)));
    }
    let n = (limits.pages)(g) as int;
    assert(0 <= slot < n * 64) by (nonlinear_arith) requires slot / 64 == page, 0 <= page < n {}
    (q, i)
}

/// `slot_facts`: slots of rows are in the group's pages, and no two rows have one.
proof fn lemma_facts_of_slots(layout: Layout, limits: Limits, program: Program, cells: Seq<i32>, plan: StepPlan, g: int, t: int, u: int)
    requires
        layout.told(cells, plan), plan_ok(limits, program, plan), layout.made_for(program), program.wf(), pages_small(limits, program), 0 <= g < layout.groups,
        0 <= t < layout.read(cells, Meta::Rows, 0), 0 <= u < layout.read(cells, Meta::Rows, 0),
    ensures
        0 <= layout.read(cells, Meta::Slots { group: g as usize }, t) < (limits.pages)(g) * PAGE <= 0x7fff_ffff,
        t != u ==> layout.read(cells, Meta::Slots { group: g as usize }, t) != layout.read(cells, Meta::Slots { group: g as usize }, u),
{
    lemma_slot(layout, limits, program, cells, plan, g, t);
    lemma_slot(layout, limits, program, cells, plan, g, u);
    lemma_refuses_another_program(layout, program, limits, g);
}

/// `tile_facts` and `page_facts`: a tile's rows are packed rows of no other tile, its positions within the context and the length that
/// launches are made for, its table within the tables, and what its rows see of it, through the group's window or a narrower one, are pages.
proof fn lemma_facts_of_tiles(layout: Layout, limits: Limits, program: Program, cells: Seq<i32>, plan: StepPlan, x: int, k: int, other: int, window: Option<u32>, l: int)
    requires
        layout.told(cells, plan), plan_ok(limits, program, plan), layout.made_for(program), program.wf(),
        0 <= x < layout.tilings@.len(), 0 <= k < layout.counts@[x], 0 <= other < layout.counts@[x], layout.tilings@[x].group < layout.groups,
        window_within(window, program.groups@[layout.tilings@[x].group as int].window),
    ensures
        ({
            let (of, tile, next) = (layout.tilings@[x], layout.tile(cells, x, k), layout.tile(cells, x, other));
            let last = tile.pos + tile.rows;
            &&& 0 <= tile.row && 0 <= tile.rows <= of.height && tile.row + tile.rows <= rows_of(of, plan.tokens@.len() as int)
            &&& 0 <= tile.pos && last <= program.context
            &&& 0 < tile.rows ==> last <= layout.length && 0 <= tile.table && tile.table + (last - 1) / (PAGE as int) < layout.table_len()
            &&& k == other || tile.row + tile.rows <= next.row || next.row + next.rows <= tile.row || tile.rows == 0 || next.rows == 0
            &&& 0 < tile.rows && window_lo(window, tile.pos) / (PAGE as int) <= l <= (last - 1) / PAGE as int
                    ==> 0 <= layout.read(cells, Meta::PageTables, tile.table + l) < (limits.pages)(of.group as int)
        }),
{
    hide(rows_before);
    hide(selected_before);
    hide(Layout::tiles_cover);
    let (of, tile) = (layout.tilings@[x], layout.tile(cells, x, k));
    assert(layout.tile_told(cells, plan, x, k) && layout.tile_told(cells, plan, x, other));
    if tile.rows > 0 {
        let q = choose|q: int| layout.tile_of(cells, plan, x, tile, q);
        let s = plan.sequences@[q];
        assert(layout.table_told(cells, s, of.group as int, tile.table));
        assert(seq_ok(limits, program, plan, q)) by { reveal(plan_packed); }
        lemma_packed_of(limits, program, plan);
        lemma_rows_apart(plan, q, plan.sequences@.len() as int);
        let last = tile.pos + tile.rows;
        if window_lo(window, tile.pos) / (PAGE as int) <= l <= (last - 1) / PAGE as int {
            // A position of that page which some row of the tile sees.
            let lo = window_lo(window, tile.pos);
            let j = if l * PAGE < lo { lo } else { l * PAGE };
            assert(j / PAGE as int == l && lo <= j < last);
            assert(window_lo(program.groups@[of.group as int].window, s.first_position as int) <= lo);
            assert(s.has_page(of.group as int, j));
            assert(0 <= l < pages_of(s) && s.tables@[of.group as int]@[l] == s.page(of.group as int, j));
            assert(layout.read(cells, Meta::PageTables, tile.table + l) == s.tables@[of.group as int]@[l]);
        }
    }
    lemma_tiles_apart(layout, cells, plan, x, k, other);
}

/// No two tiles have a row in common.
proof fn lemma_tiles_apart(layout: Layout, cells: Seq<i32>, plan: StepPlan, x: int, k: int, other: int)
    requires layout.told(cells, plan), 0 <= x < layout.tilings@.len(), 0 <= k < layout.counts@[x], 0 <= other < layout.counts@[x],
    ensures
        ({
            let (tile, next) = (layout.tile(cells, x, k), layout.tile(cells, x, other));
            k == other || tile.row + tile.rows <= next.row || next.row + next.rows <= tile.row || tile.rows <= 0 || next.rows <= 0
        }),
{
    let (of, tile, next) = (layout.tilings@[x], layout.tile(cells, x, k), layout.tile(cells, x, other));
    assert(layout.tiles_cover(cells, plan, x));
    let t = if tile.row > next.row { of.first + tile.row } else { of.first + next.row };
    if t < of.first + tile.row + tile.rows && t < of.first + next.row + next.rows {
        assert(layout.lane_of(cells, x, t, k, t - of.first - tile.row));
        assert(layout.lane_of(cells, x, t, other, t - of.first - next.row));
    }
}

/// The sequence that a tile is all of, where tiles have room for all rows of the step.
proof fn lemma_whole(layout: Layout, cells: Seq<i32>, plan: StepPlan, x: int, k: int) -> (q: int)
    requires
        layout.told(cells, plan), packed(plan), 0 <= x < layout.tilings@.len(), 0 <= k < layout.counts@[x], layout.tile(cells, x, k).rows > 0,
        layout.tilings@[x].first == 0, plan.tokens@.len() <= layout.tilings@[x].end, plan.tokens@.len() <= layout.tilings@[x].height,
    ensures
        0 <= q < plan.sequences@.len(), layout.tile(cells, x, k).pos == plan.sequences@[q].first_position,
        layout.table_told(cells, plan.sequences@[q], layout.tilings@[x].group as int, layout.tile(cells, x, k).table),
{
    assert(layout.tile_told(cells, plan, x, k));
    let tile = layout.tile(cells, x, k);
    let q = choose|q: int| layout.tile_of(cells, plan, x, tile, q);
    lemma_rows_apart(plan, q, plan.sequences@.len() as int);
    lemma_refuses_cut_sequences(layout, cells, plan, x, tile, q);
    q
}

/// What a kernel takes that stores entries which depend on earlier ones, a whole sequence in a tile: the slot of a position before the
/// tile's first, through the tile's table, is no row's, so nobody writes it while it is read.
proof fn lemma_facts_of_earlier_slots(layout: Layout, limits: Limits, program: Program, cells: Seq<i32>, plan: StepPlan, x: int, k: int, j: int, t: int)
    requires
        layout.told(cells, plan), plan_ok(limits, program, plan), layout.made_for(program), program.wf(),
        0 <= x < layout.tilings@.len(), 0 <= k < layout.counts@[x], layout.tilings@[x].group < layout.groups, layout.tile(cells, x, k).rows > 0,
        layout.tilings@[x].first == 0, plan.tokens@.len() <= layout.tilings@[x].end, plan.tokens@.len() <= layout.tilings@[x].height,
        window_lo(program.groups@[layout.tilings@[x].group as int].window, layout.tile(cells, x, k).pos) <= j < layout.tile(cells, x, k).pos,
        0 <= t < layout.read(cells, Meta::Rows, 0),
    ensures
        layout.read(cells, Meta::Slots { group: layout.tilings@[x].group }, t)
            != layout.read(cells, Meta::PageTables, layout.tile(cells, x, k).table + j / PAGE as int) * PAGE + j % (PAGE as int),
{
    hide(Layout::told);
    hide(Layout::read);
    hide(rows_before);
    assert(layout.rows_told(cells, plan)) by { reveal(Layout::told); }
    let (g, tile) = (layout.tilings@[x].group as int, layout.tile(cells, x, k));
    lemma_packed_of(limits, program, plan);
    let q = lemma_whole(layout, cells, plan, x, k);
    let s = plan.sequences@[q];
    assert(seq_ok(limits, program, plan, q)) by { reveal(plan_packed); }
    assert(s.has_page(g, j));
    assert(0 <= j / (PAGE as int) < pages_of(s) && s.tables@[g]@[j / PAGE as int] == s.page(g, j));
    assert(layout.read(cells, Meta::PageTables, tile.table + j / PAGE as int) == s.tables@[g]@[j / PAGE as int]);
    lemma_slot(layout, limits, program, cells, plan, g, t);
    let (page, offset) = (s.page(g, j), j % (PAGE as int));
    assert((page * PAGE + offset) / PAGE as int == page && (page * PAGE + offset) % (PAGE as int) == offset) by (nonlinear_arith)
        requires 0 <= offset < PAGE, PAGE == 64 {}
    assert(!written_slot(plan, g, page, offset)) by { reveal(earlier_kept); }
}

proof fn lemma_packed_of(limits: Limits, program: Program, plan: StepPlan)
    requires plan_ok(limits, program, plan),
    ensures packed(plan),
{
    reveal(plan_packed);
    assert forall|q: int| 0 <= q < plan.sequences@.len() implies
        (#[trigger] plan.sequences@[q]).first_row == rows_before(plan.sequences@, q) && 1 <= plan.sequences@[q].rows by {
        assert(seq_ok(limits, program, plan, q));
    }
}

} // verus!
