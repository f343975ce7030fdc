//! The premises of kernel contracts, as the core ensures them: what a step's array of integers says (`told`, about the plan),
//! and what follows from it in the terms of the kernel verifier (`vosti-verify`'s `World`). Its bounds stand only here.
//!
//! This file is the joint between the seam and the kernel verifier. It must never say less than `World::facts` assumes:
//! `tests/premises.rs` of `vosti-wiring` evaluates both on the same filled arrays. Read next: `image.rs` (the code that fills
//! the array).

use super::views::*;
use crate::ids::{NO_PAGE, PAGE};
use crate::image::{Image, Place};
use crate::layout::*;
use crate::plan::{SeqPlan, StepPlan};
use crate::program::*;
use crate::seam::*;
use vstd::prelude::*;

verus! {

/// The most packed rows of a step that kernels are proved for.
pub const ROWS_MAX: usize = 0x10_0000;

/// The most positions of a request that kernels are proved for.
pub const CONTEXT_MAX: usize = 0x40_0000;

/// The most entries of the page tables of all groups in a step.
pub const TABLE_MAX: usize = 0x1000_0000;

/// An array of a step's metadata.
#[allow(missing_docs, reason = "`group` and `tiling` are indices")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Meta {
    /// The number of packed rows.
    Rows,
    /// The number of selected rows.
    Selected,
    /// The token of each row.
    Tokens,
    /// The position of each row in its own sequence.
    Positions,
    /// The packed row of each selected row.
    RowIndex,
    /// The slot of each row in a group's pages.
    Slots { group: usize },
    /// The page tables of all groups, one after the other.
    PageTables,
    /// The index in the page tables at which the table of each tile's sequence begins.
    TileTable { tiling: usize },
    /// The first packed row of each tile.
    TileRow { tiling: usize },
    /// The number of rows of each tile.
    TileRows { tiling: usize },
    /// The position of each tile's first row.
    TilePos { tiling: usize },
}

/// Query tiles of one height over one group's page tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiling {
    /// The most rows of a tile.
    pub height: usize,
    /// The cache group whose page tables its tiles read.
    pub group: usize,
    /// The first packed row that has a tile. Tiles count rows from it.
    pub first: usize,
    /// The packed row after the last one that has a tile.
    pub end: usize,
}

/// The i-th integer of an array that begins at `start`.
pub open(crate) spec fn at(cells: Seq<i32>, start: int, i: int) -> int {
    cells[start + i] as int
}

/// Pages up to a sequence's last row.
pub open(crate) spec fn pages_of(s: SeqPlan) -> int {
    (s.first_position + s.rows + PAGE - 1) / (PAGE as int)
}

/// Entries of one group's page tables of the first q sequences.
pub open(crate) spec fn entries_before(sequences: Seq<SeqPlan>, q: int) -> int
    decreases q,
{
    if q <= 0 { 0 } else { entries_before(sequences, q - 1) + pages_of(sequences[q - 1]) }
}

/// The slot of a sequence's i-th row in a group.
pub open(crate) spec fn slot_of(s: SeqPlan, group: int, i: int) -> int {
    s.page(group, s.position(i)) * PAGE + s.position(i) % (PAGE as int)
}

/// Rows of a step of so many that are a tiling's.
pub open(crate) spec fn rows_of(of: Tiling, rows: int) -> int {
    let end = if rows < of.end { rows } else { of.end as int };
    if of.first < end { end - of.first } else { 0 }
}

/// Every slot of a group has a number that an `i32` holds: the core takes no other device.
pub open(crate) spec fn pages_small(limits: Limits, program: Program) -> bool {
    forall|g: int| 0 <= g < program.groups@.len() ==> #[trigger] (limits.pages)(g) <= COUNT_MAX / PAGE
}

/// Steps of so many rows and selected rows of this program have an array: all is within the bounds of the proofs, and its length is a
/// number.
pub open(crate) spec fn array_fits(program: Program, tilings: Seq<Tiling>, rows: usize, selected: usize) -> bool {
    let (groups, entries) = (program.groups@.len() as int, rows * ((program.context + PAGE - 1) / (PAGE as int)));
    &&& rows <= ROWS_MAX && selected <= ROWS_MAX
    &&& program.context <= CONTEXT_MAX && program.vocab <= COUNT_MAX && groups <= COUNT_MAX
    &&& entries <= TABLE_MAX && groups * entries <= TABLE_MAX
    &&& forall|x: int| 0 <= x < tilings.len() ==> 0 < (#[trigger] tilings[x]).height && tilings[x].group < groups
    &&& tiles_at(tilings, groups, rows as int, selected as int, tilings.len() as int) + groups * entries <= usize::MAX
}

impl Layout {
    pub open(crate) spec fn read(self, cells: Seq<i32>, meta: Meta, i: int) -> int {
        at(cells, self.start_of(meta), i)
    }

    /// There is such an array.
    pub open(crate) spec fn has(self, meta: Meta) -> bool {
        match meta {
            Meta::Slots { group } => group < self.groups,
            Meta::TileTable { tiling } => tiling < self.tilings@.len(),
            Meta::TileRow { tiling } => tiling < self.tilings@.len(),
            Meta::TileRows { tiling } => tiling < self.tilings@.len(),
            Meta::TilePos { tiling } => tiling < self.tilings@.len(),
            _ => true,
        }
    }

    /// It was laid out for this program, whose sizes are within the bounds of the proofs.
    pub open(crate) spec fn made_for(self, program: Program) -> bool {
        self.groups == program.groups@.len() && self.context == program.context && program.vocab <= COUNT_MAX
    }

    /// Entries of the page tables of all groups.
    pub open(crate) spec fn table_len(self) -> int {
        self.groups * self.entries
    }

    /// Tiles that there is room for: each has a row.
    pub open(crate) spec fn most_tiles(self, x: int) -> int {
        rows_of(self.tilings@[x], self.room as int)
    }

    /// Integers of an array.
    pub open(crate) spec fn len_of(self, meta: Meta) -> int {
        match meta {
            Meta::Rows => 1,
            Meta::Selected => 1,
            Meta::RowIndex => self.room_selected as int,
            Meta::PageTables => self.table_len(),
            Meta::TileTable { tiling } => self.most_tiles(tiling as int),
            Meta::TileRow { tiling } => self.most_tiles(tiling as int),
            Meta::TileRows { tiling } => self.most_tiles(tiling as int),
            Meta::TilePos { tiling } => self.most_tiles(tiling as int),
            _ => self.room as int,
        }
    }

    /// Every array has as many integers as the step has rows, selected rows or tiles.
    pub open(crate) spec fn placed(self, plan: StepPlan) -> bool {
        &&& plan.tokens@.len() <= self.room && plan.selected@.len() <= self.room_selected
        &&& forall|x: int| 0 <= x < self.tilings@.len() ==> #[trigger] self.counts@[x] <= self.most_tiles(x)
    }

    /// Launches are made for all of the step, and for no more than kernels are proved for.
    pub open(crate) spec fn launched(self, plan: StepPlan) -> bool {
        &&& plan.tokens@.len() <= self.rows <= ROWS_MAX && plan.selected@.len() <= self.selected <= ROWS_MAX
        &&& forall|q: int| 0 <= q < plan.sequences@.len() ==> (#[trigger] plan.sequences@[q]).first_position + plan.sequences@[q].rows <= self.length
        &&& self.length <= CONTEXT_MAX && self.context <= CONTEXT_MAX && self.table_len() <= TABLE_MAX
        &&& forall|x: int| 0 <= x < self.tilings@.len() ==> #[trigger] self.counts@[x] <= ROWS_MAX
    }

    /// Counts, tokens, positions and gathered rows are the plan's.
    pub open(crate) spec fn rows_told(self, cells: Seq<i32>, plan: StepPlan) -> bool {
        &&& self.read(cells, Meta::Rows, 0) == plan.tokens@.len()
        &&& self.read(cells, Meta::Selected, 0) == plan.selected@.len()
        &&& forall|t: int| 0 <= t < plan.tokens@.len() ==> #[trigger] self.read(cells, Meta::Tokens, t) == plan.tokens@[t]
        &&& forall|t: int| 0 <= t < plan.tokens@.len() ==> #[trigger] self.read(cells, Meta::Positions, t) == plan.positions@[t]
        &&& forall|t: int| 0 <= t < plan.selected@.len() ==> #[trigger] self.read(cells, Meta::RowIndex, t) == plan.selected@[t]
    }

    /// Each row's slot is the one that it writes.
    pub open(crate) spec fn slot_told(self, cells: Seq<i32>, plan: StepPlan, g: int, q: int, i: int) -> bool {
        self.read(cells, Meta::Slots { group: g as usize }, plan.sequences@[q].row(i)) == slot_of(plan.sequences@[q], g, i)
    }

    /// Tile k of a tiling: the packed row at which it begins, how many it has, the position of the first, its table.
    pub open(crate) spec fn tile(self, cells: Seq<i32>, x: int, k: int) -> Tile {
        let tiling = x as usize;
        Tile {
            row: self.read(cells, Meta::TileRow { tiling }, k),
            rows: self.read(cells, Meta::TileRows { tiling }, k),
            pos: self.read(cells, Meta::TilePos { tiling }, k),
            table: self.read(cells, Meta::TileTable { tiling }, k),
        }
    }

    /// Packed row t is this lane of this tile.
    pub open(crate) spec fn lane_of(self, cells: Seq<i32>, x: int, t: int, k: int, lane: int) -> bool {
        let tile = self.tile(cells, x, k);
        0 <= k < self.counts@[x] && 0 <= lane < tile.rows && self.tilings@[x].first + tile.row + lane == t
    }

    pub open(crate) spec fn in_a_tile(self, cells: Seq<i32>, x: int, t: int) -> bool {
        exists|k: int, lane: int| #[trigger] self.lane_of(cells, x, t, k, lane)
    }

    /// Every row of the tiling is in a tile, and in one only.
    pub open(crate) spec fn tiles_cover(self, cells: Seq<i32>, plan: StepPlan, x: int) -> bool {
        let first = self.tilings@[x].first;
        &&& forall|t: int| first <= t < first + rows_of(self.tilings@[x], plan.tokens@.len() as int)
                ==> #[trigger] self.in_a_tile(cells, x, t)
        &&& forall|t: int, k: int, lane: int, k2: int, lane2: int| #[trigger] self.lane_of(cells, x, t, k, lane)
                && #[trigger] self.lane_of(cells, x, t, k2, lane2) ==> k == k2 && lane == lane2
    }

    /// A tile has no rows, or is of one sequence.
    pub open(crate) spec fn tile_told(self, cells: Seq<i32>, plan: StepPlan, x: int, k: int) -> bool {
        let tile = self.tile(cells, x, k);
        tile == spare_tile() || exists|q: int| self.tile_of(cells, plan, x, tile, q)
    }

    /// The tile's rows are this sequence's, at its positions, and its table is the sequence's.
    pub open(crate) spec fn tile_of(self, cells: Seq<i32>, plan: StepPlan, x: int, tile: Tile, q: int) -> bool {
        let s = plan.sequences@[q];
        let of = self.tilings@[x];
        &&& 0 <= q < plan.sequences@.len()
        &&& 1 <= tile.rows <= of.height && 0 <= tile.row
        &&& s.first_row <= of.first + tile.row && of.first + tile.row + tile.rows <= s.first_row + s.rows
        &&& of.first + tile.row + tile.rows <= of.end
        // A sequence that fits in a tile is not cut.
        &&& s.rows <= of.height && of.first <= s.first_row && s.first_row + s.rows <= of.end ==> of.first + tile.row == s.first_row && tile.rows == s.rows
        &&& tile.pos == s.position(of.first + tile.row - s.first_row)
        &&& self.table_told(cells, s, of.group as int, tile.table)
    }

    /// From `table` on stand the sequence's pages in the group, up to its last row's.
    pub open(crate) spec fn table_told(self, cells: Seq<i32>, s: SeqPlan, g: int, table: int) -> bool {
        &&& 0 <= table && table + pages_of(s) <= self.table_len()
        &&& forall|l: int| 0 <= l < pages_of(s) ==> #[trigger] self.read(cells, Meta::PageTables, table + l) == s.tables@[g]@[l]
    }

    /// The array holds the plan's step.
    pub open(crate) spec fn told(self, cells: Seq<i32>, plan: StepPlan) -> bool {
        &&& self.rows_told(cells, plan)
        &&& forall|g: int, q: int, i: int| 0 <= g < self.groups && 0 <= q < plan.sequences@.len() && 0 <= i < plan.sequences@[q].rows
                ==> #[trigger] self.slot_told(cells, plan, g, q, i)
        &&& forall|x: int| 0 <= x < self.tilings@.len() ==> #[trigger] self.tiles_cover(cells, plan, x)
        &&& forall|x: int, k: int| 0 <= x < self.tilings@.len() && 0 <= k < self.counts@[x] ==> #[trigger] self.tile_told(cells, plan, x, k)
        &&& self.placed(plan) && self.launched(plan)
    }

    /// The room holds the plan, and the array the room.
    pub open(crate) spec fn room_holds(self, plan: StepPlan, room: Option<usize>) -> bool {
        room matches Some(room) ==> plan.tokens@.len() <= room && plan.selected@.len() <= room
            && room <= self.rows_max && room <= self.selected_max
    }
}

/// What the image says of itself and of the step that was filled in.
impl Image {
    pub open(crate) spec fn says_len(self, n: usize) -> bool {
        self.spec_layout() matches Some(layout) ==> n == layout.len
    }

    pub open(crate) spec fn says_place(self, meta: Meta, place: Place) -> bool {
        self.spec_layout() matches Some(layout) ==> (layout.has(meta) ==> place.start == layout.start_of(meta) && place.len == layout.len_of(meta))
    }

    pub open(crate) spec fn says_launched(self, rows: usize, selected: usize) -> bool {
        self.spec_layout() matches Some(layout) ==> rows == layout.rows && selected == layout.selected
    }

    pub open(crate) spec fn says_tiles(self, tiling: usize, n: usize) -> bool {
        self.spec_layout() matches Some(layout) ==> (tiling < layout.counts@.len() ==> n == layout.counts@[tiling as int])
    }

    pub open(crate) spec fn says_length(self, n: usize) -> bool {
        self.spec_layout() matches Some(layout) ==> n == layout.length
    }

    /// The room holds the plan, and the array the room.
    pub open(crate) spec fn room_holds(self, plan: StepPlan, room: Option<usize>) -> bool {
        self.spec_layout() matches Some(layout) && layout.room_holds(plan, room)
    }

    /// It was made for this program, whose sizes are within the bounds of the proofs.
    pub open(crate) spec fn made_for(self, program: Program) -> bool {
        self.spec_layout() matches Some(layout) && layout.made_for(program)
    }

    /// Steps of so many rows and selected rows fit.
    pub open(crate) spec fn takes(self, rows: usize, selected: usize) -> bool {
        self.spec_layout() matches Some(layout) && rows <= layout.rows_max && selected <= layout.selected_max
    }

    /// The array is as long as `len` says.
    pub open(crate) spec fn has_room(self, cells: Seq<i32>) -> bool {
        self.spec_layout() matches Some(layout) && layout.len <= cells.len()
    }

    /// The array holds the plan's step.
    pub open(crate) spec fn told(self, cells: Seq<i32>, plan: StepPlan) -> bool {
        self.spec_layout() matches Some(layout) && layout.told(cells, plan)
    }

    /// It has the places of the largest step, and is else the layout that it was.
    pub open(crate) spec fn spread_out(self, was: Image) -> bool {
        was.spec_layout() matches Some(old) ==> (self.spec_layout() matches Some(layout) && layout.same_make(old)
            && layout.room == layout.rows_max && layout.room_selected == layout.selected_max)
    }
}

/// The tile of no rows.
pub open(crate) spec fn spare_tile() -> Tile {
    Tile { row: 0, rows: 0, pos: 0, table: -1 }
}

/// A query tile.
pub ghost struct Tile {
    pub row: int,
    pub rows: int,
    pub pos: int,
    pub table: int,
}

} // verus!
