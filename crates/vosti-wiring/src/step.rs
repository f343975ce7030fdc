//! A step's metadata, as the kernels read it: tokens, positions, slots, page tables and query tiles.
//!
//! All of it is one array of integers of the device's, as long as the largest step needs, in which each array has its
//! place: the counts first, the page tables of all groups last, so that a step uses its beginning. It is filled in place: a
//! step allocates nothing. No kernel takes a scalar that changes from step to step, so what was recorded or compiled before
//! stays right while places do.

use crate::wiring::{Size, Tiling};
use std::ops::Range;
use vosti_core::{PAGE, Program, SeqPlan, StepPlan};
use vosti_kernels::Extent;

/// Places begin at a multiple of this many integers, 64 bytes: more than any kernel's premise of an address.
const ALIGN: usize = 16;

/// Which metadata a parameter reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Meta {
    Rows,
    Selected,
    Tokens,
    Positions,
    RowIndex,
    Slots {
        group: usize,
    },
    /// Of all groups: a tile's table says where in it its group's begins.
    PageTables,
    TileTable {
        tiling: usize,
    },
    TileRow {
        tiling: usize,
    },
    TileRows {
        tiling: usize,
    },
    TilePos {
        tiling: usize,
    },
}

/// A device's array of integers, or its image in host memory.
pub trait Ints {
    /// All of it.
    fn cells(&mut self) -> &mut [i32];
}

impl Ints for Vec<i32> {
    fn cells(&mut self) -> &mut [i32] {
        self
    }
}

/// Query tiles of one height over one group's page tables.
#[derive(Debug)]
struct Tiles {
    of: Tiling,
    count: usize,
    table: Range<usize>,
    row: Range<usize>,
    rows: Range<usize>,
    pos: Range<usize>,
}

/// Where each array is, a function of the rows and selected rows that there is room for.
#[derive(Debug)]
struct Places {
    rows: Range<usize>,
    selected: Range<usize>,
    tokens: Range<usize>,
    positions: Range<usize>,
    row_index: Range<usize>,
    slots: Vec<Range<usize>>,
    tiles: Vec<Tiles>,
    /// To the end.
    tables: usize,
}

impl Places {
    /// Room for the largest step.
    fn new(groups: usize, tilings: &[Tiling], rows: usize, selected: usize) -> Places {
        let tiles = |of: &Tiling| Tiles { of: *of, count: 0, table: 0..0, row: 0..0, rows: 0..0, pos: 0..0 };
        let mut places = Places {
            rows: 0..0,
            selected: 0..0,
            tokens: 0..0,
            positions: 0..0,
            row_index: 0..0,
            slots: vec![0..0; groups],
            tiles: tilings.iter().map(tiles).collect(),
            tables: 0,
        };
        places.lay_out(rows, selected);
        places
    }

    /// One behind the other, with room for so many rows of which so many are selected.
    fn lay_out(&mut self, rows: usize, selected: usize) {
        let mut end = 0;
        let mut place = |len: usize| {
            let start = end;
            end = (start + len).next_multiple_of(ALIGN);
            start..start + len
        };
        (self.rows, self.selected) = (place(1), place(1));
        (self.tokens, self.positions, self.row_index) = (place(rows), place(rows), place(selected));
        self.slots.iter_mut().for_each(|slots| *slots = place(rows));
        for tiles in &mut self.tiles {
            // A tile has at least one row.
            let most = rows.min(tiles.of.end).saturating_sub(tiles.of.first);
            (tiles.table, tiles.row) = (place(most), place(most));
            (tiles.rows, tiles.pos) = (place(most), place(most));
        }
        self.tables = end;
    }
}

/// Filled before each step.
#[derive(Debug)]
pub struct Metadata<A> {
    image: A,
    /// Integers of the image.
    len: usize,
    places: Places,
    /// Entries of one group's page tables, at most.
    entries_max: usize,
    rows_max: usize,
    selected_max: usize,
    /// Integers that the step that was filled uses, from the first.
    used: usize,
    /// Rows and selected rows that launches are made for: those of the step, or more.
    launched: (usize, usize),
    /// The step wants lists of largest logits.
    listed: bool,
    /// Positions that the longest sequence of the step reaches.
    length: usize,
    /// Per sequence of the step: where its table starts, from the start of its group's.
    starts: Vec<i32>,
}

impl<A: Ints> Metadata<A> {
    /// Room for steps of `rows_max` rows of which `selected_max` are selected. `make` makes an array of so many integers.
    pub fn new<E>(
        program: &Program,
        tilings: &[Tiling],
        rows_max: usize,
        selected_max: usize,
        make: impl FnOnce(usize) -> Result<A, E>,
    ) -> Result<Self, E> {
        // Tables are as long as the context at most, one per row at most.
        let entries_max = rows_max * (program.context as usize).div_ceil(PAGE).max(1);
        let places = Places::new(program.groups.len(), tilings, rows_max, selected_max);
        let len = places.tables + program.groups.len() * entries_max;
        Ok(Self {
            image: make(len)?,
            len,
            places,
            entries_max,
            rows_max,
            selected_max,
            used: 0,
            launched: (0, 0),
            listed: false,
            length: 0,
            starts: Vec::with_capacity(rows_max),
        })
    }

    /// All of it.
    pub fn image(&self) -> &A {
        &self.image
    }

    /// Where an array is in it: as in the largest step, unless a step was packed.
    pub fn place(&self, meta: Meta) -> Range<usize> {
        let places = &self.places;
        match meta {
            Meta::Rows => places.rows.clone(),
            Meta::Selected => places.selected.clone(),
            Meta::Tokens => places.tokens.clone(),
            Meta::Positions => places.positions.clone(),
            Meta::RowIndex => places.row_index.clone(),
            Meta::Slots { group } => places.slots[group].clone(),
            Meta::PageTables => places.tables..self.len,
            Meta::TileTable { tiling } => places.tiles[tiling].table.clone(),
            Meta::TileRow { tiling } => places.tiles[tiling].row.clone(),
            Meta::TileRows { tiling } => places.tiles[tiling].rows.clone(),
            Meta::TilePos { tiling } => places.tiles[tiling].pos.clone(),
        }
    }

    /// How many integers of it, from the first, the step that was filled uses.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Positions that the longest sequence of the step that was filled reaches.
    pub fn length(&self) -> usize {
        self.length
    }

    /// How much there is to do for a launch of the step that was filled, or, if it was padded, what there is room for.
    pub fn extent(&self, size: Size) -> Extent {
        let (rows, selected) = self.launched;
        match size {
            Size::Rows => Extent { rows, tiles: 0, length: 0 },
            Size::Selected => Extent { rows: selected, tiles: 0, length: 0 },
            Size::Listed => Extent { rows: if self.listed { selected } else { 0 }, tiles: 0, length: 0 },
            Size::Tiles(tiling) => Extent { rows, tiles: self.places.tiles[tiling].count, length: self.length },
        }
    }

    /// Fills everything from a plan, each array at its place in the largest step; a plan that does not fit is an error, and
    /// nothing was filled.
    pub fn fill(&mut self, plan: &StepPlan) -> Result<(), String> {
        self.check(plan)?;
        self.spread();
        self.write(plan);
        Ok(())
    }

    /// Gives each array the place that it has in the largest step, as it had to begin with.
    pub fn spread(&mut self) {
        self.places.lay_out(self.rows_max, self.selected_max);
    }

    /// As [`Metadata::fill`], with no more room for each array than the step's launches need, so that little is used. Places
    /// depend on how many rows the launches are made for and on nothing else.
    ///
    /// With a `room` they are made as large as those of a step of so many rows of one request each, all selected. There are
    /// no rows to pad with: the kernels read how many there are, and tiles to spare have none, which is what their proofs say
    /// of programs to spare. A room that does not hold the plan is an error too.
    pub fn pack(&mut self, plan: &StepPlan, room: Option<usize>) -> Result<(), String> {
        self.check(plan)?;
        let own = (plan.rows(), plan.selected().len());
        let launched = room.map_or(own, |room| (room, room));
        if own.0 > launched.0 || own.1 > launched.1 || launched.0 > self.rows_max || launched.1 > self.selected_max {
            return Err(format!("a step of {own:?} rows in a room for {launched:?}: this is a bug, report it"));
        }
        self.places.lay_out(launched.0, launched.1);
        self.write(plan);
        if room.is_some() {
            self.launched = launched;
            let cells = self.image.cells();
            self.places.tiles.iter_mut().for_each(|tiles| tiles.pad(cells));
        }
        Ok(())
    }

    fn write(&mut self, plan: &StepPlan) {
        let (rows, selected) = (plan.rows(), plan.selected().len());
        let (cells, places) = (self.image.cells(), &mut self.places);
        put(&mut cells[places.rows.clone()], [rows as i32]);
        put(&mut cells[places.selected.clone()], [selected as i32]);
        put(&mut cells[places.tokens.clone()], plan.tokens().iter().map(|t| *t as i32));
        put(&mut cells[places.positions.clone()], plan.positions().iter().map(|p| *p as i32));
        put(&mut cells[places.row_index.clone()], plan.selected().iter().map(|r| *r as i32));
        let mut entries = 0;
        self.starts.clear();
        for sequence in plan.sequences() {
            self.starts.push(entries as i32);
            entries += pages(sequence);
        }
        let (front, tables) = cells.split_at_mut(places.tables);
        for (group, slots) in places.slots.iter().enumerate() {
            fill_group(plan, group, &self.starts, &mut front[slots.clone()], &mut tables[group * entries..]);
        }
        places.tiles.iter_mut().for_each(|tiles| tiles.fill(plan, &self.starts, entries, front));
        self.used = places.tables + places.slots.len() * entries;
        self.launched = (rows, selected);
        self.listed = listed(plan);
        self.length = plan.sequences().iter().map(end).max().unwrap_or(0);
    }

    fn check(&self, plan: &StepPlan) -> Result<(), String> {
        let (rows, selected) = (plan.rows(), plan.selected().len());
        if rows > self.rows_max || selected > self.selected_max {
            return Err(format!(
                "a step of {rows} rows, {selected} selected, on a device made for {} and {}: plan smaller steps",
                self.rows_max, self.selected_max
            ));
        }
        let mut entries = 0;
        for sequence in plan.sequences() {
            let used = pages(sequence);
            entries += used;
            let shortest = sequence.tables.iter().map(Vec::len).min().unwrap_or(0);
            if sequence.tables.len() != self.places.slots.len() || used > shortest || entries > self.entries_max {
                return Err(format!("a page table of {shortest} pages for {used}: plan within the context"));
            }
        }
        Ok(())
    }
}

/// Whether a step wants lists of largest logits.
pub fn listed(plan: &StepPlan) -> bool {
    plan.sequences().iter().any(|s| s.top && s.selected > 0)
}

/// The position after a sequence's last row's.
fn end(sequence: &SeqPlan) -> usize {
    sequence.first_position + sequence.rows
}

/// Pages up to a sequence's last row.
fn pages(sequence: &SeqPlan) -> usize {
    end(sequence).div_ceil(PAGE)
}

fn fill_group(plan: &StepPlan, group: usize, starts: &[i32], slots: &mut [i32], flat: &mut [i32]) {
    for (sequence, start) in plan.sequences().iter().zip(starts) {
        let table = &sequence.tables[group][..pages(sequence)];
        flat[*start as usize..][..table.len()].copy_from_slice(table);
        for (i, slot) in slots[sequence.first_row..][..sequence.rows].iter_mut().enumerate() {
            let position = sequence.first_position + i;
            *slot = table[position / PAGE] * PAGE as i32 + (position % PAGE) as i32;
        }
    }
}

impl Tiles {
    /// A group's page tables have so many `entries` in this step.
    fn fill(&mut self, plan: &StepPlan, starts: &[i32], entries: usize, cells: &mut [i32]) {
        let tables = (self.of.group * entries) as i32;
        self.count = 0;
        for (sequence, start) in plan.sequences().iter().zip(starts) {
            let from = sequence.first_row.max(self.of.first);
            let to = (sequence.first_row + sequence.rows).min(self.of.end);
            for first in (from..to).step_by(self.of.height) {
                cells[self.table.clone()][self.count] = tables + *start;
                cells[self.row.clone()][self.count] = (first - self.of.first) as i32;
                cells[self.rows.clone()][self.count] = (to - first).min(self.of.height) as i32;
                cells[self.pos.clone()][self.count] = (sequence.first_position + first - sequence.first_row) as i32;
                self.count += 1;
            }
        }
    }

    /// As many as there is room for.
    fn pad(&mut self, cells: &mut [i32]) {
        for (array, value) in [(&self.table, -1), (&self.row, 0), (&self.rows, 0), (&self.pos, 0)] {
            cells[array.clone()][self.count..].fill(value);
        }
        self.count = self.table.len();
    }
}

fn put(cells: &mut [i32], values: impl IntoIterator<Item = i32>) {
    for (cell, value) in cells.iter_mut().zip(values) {
        *cell = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(places: &Places) -> Vec<Range<usize>> {
        let tiles = places.tiles.iter().flat_map(|t| [&t.table, &t.row, &t.rows, &t.pos]);
        let fixed = [&places.rows, &places.selected, &places.tokens, &places.positions, &places.row_index];
        fixed.into_iter().chain(&places.slots).chain(tiles).cloned().collect()
    }

    /// Two groups, one of them in parts of 512 rows, as scratch has room for.
    #[test]
    fn arrays_are_apart_and_aligned_and_small_where_launches_are() {
        let tiling = |group, first, end| Tiling { height: 16, group, first, end };
        let tilings = [tiling(0, 0, 512), tiling(0, 512, 1024), tiling(1, 0, usize::MAX)];
        let mut places = Places::new(2, &tilings, 700, 600);
        let largest = (all(&places), places.tables);
        for (rows, selected) in [(700, 600), (513, 1), (512, 512), (64, 64), (5, 0), (1, 1)] {
            places.lay_out(rows, selected);
            let mut end = 0;
            for place in all(&places) {
                assert!(
                    place.start >= end && place.start < end + ALIGN && place.start.is_multiple_of(ALIGN),
                    "{place:?}"
                );
                end = place.end;
            }
            assert!(places.tables >= end && places.tables < end + ALIGN && places.tables.is_multiple_of(ALIGN));
            let lens: Vec<usize> = places.tiles.iter().map(|tiles| tiles.pos.len()).collect();
            assert_eq!(lens, [rows.min(512), rows.saturating_sub(512), rows]);
            assert_eq!((places.tokens.len(), places.row_index.len(), places.slots[1].len()), (rows, selected, rows));
        }
        assert_eq!(places.tables, (7 + 2 * 4) * ALIGN, "a line each for one row, and none where no row can be");
        places.lay_out(700, 600);
        assert_eq!((all(&places), places.tables), largest, "places are a function of the room");
    }
}
