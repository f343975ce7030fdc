//! A step's metadata, as the kernels read it: tokens, positions, slots, page tables and query tiles.
//!
//! Arrays are the device's, as long as the largest step needs, and are filled in place: a step allocates nothing. No kernel
//! takes a scalar that changes from step to step, so what was recorded or compiled before stays right.

use crate::wiring::{Size, Tiling};
use vosti_core::{PAGE, Program, SeqPlan, StepPlan};
use vosti_kernels::Extent;

/// Which metadata a parameter reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Meta {
    Rows,
    Selected,
    Tokens,
    Positions,
    RowIndex,
    Slots { group: usize },
    PageTable { group: usize },
    TileTable { tiling: usize },
    TileRow { tiling: usize },
    TileRows { tiling: usize },
    TilePos { tiling: usize },
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
struct Tiles<A> {
    of: Tiling,
    count: usize,
    table: A,
    row: A,
    rows: A,
    pos: A,
}

/// Filled before each step.
#[derive(Debug)]
pub struct Metadata<A> {
    rows: A,
    selected: A,
    tokens: A,
    positions: A,
    row_index: A,
    slots: Vec<A>,
    tables: Vec<A>,
    tiles: Vec<Tiles<A>>,
    /// Elements of a page table's array.
    entries_max: usize,
    rows_max: usize,
    selected_max: usize,
    /// Of the step that was filled: rows, selected rows, entries of a page table's array.
    now: (usize, usize, usize),
    /// Rows and selected rows that launches are made for: those of the step, or more.
    launched: (usize, usize),
    /// Positions that the longest sequence of the step reaches.
    length: usize,
    /// Per sequence of the step: where its table starts.
    starts: Vec<i32>,
}

impl<A: Ints> Metadata<A> {
    /// Room for steps of `rows_max` rows of which `selected_max` are selected. `make` makes an array of so many integers.
    pub fn new<E>(
        program: &Program,
        tilings: &[Tiling],
        rows_max: usize,
        selected_max: usize,
        mut make: impl FnMut(usize) -> Result<A, E>,
    ) -> Result<Self, E> {
        // Tables are as long as the context at most, one per row at most.
        let entries_max = rows_max * (program.context as usize).div_ceil(PAGE).max(1);
        let mut ints = |len: usize| make(len.max(1));
        let (rows, selected) = (ints(1)?, ints(1)?);
        let (tokens, positions, row_index) = (ints(rows_max)?, ints(rows_max)?, ints(selected_max)?);
        let (mut slots, mut tables, mut tiles) = (vec![], vec![], vec![]);
        for _ in &program.groups {
            slots.push(ints(rows_max)?);
            tables.push(ints(entries_max)?);
        }
        for of in tilings {
            let [table, row, rows, pos] = [ints(rows_max)?, ints(rows_max)?, ints(rows_max)?, ints(rows_max)?];
            tiles.push(Tiles { of: *of, count: 0, table, row, rows, pos });
        }
        let starts = Vec::with_capacity(rows_max);
        let now = (0, 0, 0);
        Ok(Self {
            rows,
            selected,
            tokens,
            positions,
            row_index,
            slots,
            tables,
            tiles,
            entries_max,
            rows_max,
            selected_max,
            now,
            launched: (0, 0),
            length: 0,
            starts,
        })
    }

    /// An array.
    pub fn array(&self, meta: Meta) -> &A {
        match meta {
            Meta::Rows => &self.rows,
            Meta::Selected => &self.selected,
            Meta::Tokens => &self.tokens,
            Meta::Positions => &self.positions,
            Meta::RowIndex => &self.row_index,
            Meta::Slots { group } => &self.slots[group],
            Meta::PageTable { group } => &self.tables[group],
            Meta::TileTable { tiling } => &self.tiles[tiling].table,
            Meta::TileRow { tiling } => &self.tiles[tiling].row,
            Meta::TileRows { tiling } => &self.tiles[tiling].rows,
            Meta::TilePos { tiling } => &self.tiles[tiling].pos,
        }
    }

    /// Every array, with how many of its integers the step that was filled uses.
    pub fn used(&self) -> impl Iterator<Item = (&A, usize)> {
        let (rows, selected, entries) = self.now;
        let fixed = [(&self.rows, 1), (&self.selected, 1), (&self.tokens, rows), (&self.positions, rows)];
        let groups = self.slots.iter().map(move |a| (a, rows)).chain(self.tables.iter().map(move |a| (a, entries)));
        let tiles = self.tiles.iter().flat_map(|t| [&t.table, &t.row, &t.rows, &t.pos].map(|a| (a, t.count)));
        fixed.into_iter().chain([(&self.row_index, selected)]).chain(groups).chain(tiles)
    }

    /// How much there is to do for a launch of the step that was filled, or, if it was padded, what there is room for.
    pub fn extent(&self, size: Size) -> Extent {
        let (rows, selected) = self.launched;
        match size {
            Size::Rows => Extent { rows, tiles: 0, length: 0 },
            Size::Selected => Extent { rows: selected, tiles: 0, length: 0 },
            Size::Tiles(tiling) => Extent { rows, tiles: self.tiles[tiling].count, length: self.length },
        }
    }

    /// Fills everything from a plan; a plan that does not fit is an error, and nothing was filled.
    pub fn fill(&mut self, plan: &StepPlan) -> Result<(), String> {
        self.check(plan)?;
        let (rows, selected) = (plan.rows(), plan.selected().len());
        put(&mut self.rows, [rows as i32]);
        put(&mut self.selected, [selected as i32]);
        put(&mut self.tokens, plan.tokens().iter().map(|t| *t as i32));
        put(&mut self.positions, plan.positions().iter().map(|p| *p as i32));
        put(&mut self.row_index, plan.selected().iter().map(|r| *r as i32));
        let mut entries = 0;
        self.starts.clear();
        for sequence in plan.sequences() {
            self.starts.push(entries as i32);
            entries += pages(sequence);
        }
        for (group, (slots, table)) in self.slots.iter_mut().zip(&mut self.tables).enumerate() {
            fill_group(plan, group, &self.starts, slots.cells(), table.cells());
        }
        self.tiles.iter_mut().for_each(|tiles| tiles.fill(plan, &self.starts));
        self.now = (rows, selected, entries);
        self.launched = (rows, selected);
        self.length = plan.sequences().iter().map(end).max().unwrap_or(0);
        Ok(())
    }

    /// Makes the launches of the step that was filled as large as those of a step of `room` rows of one request each, all
    /// selected. There are no rows to pad with: the kernels read how many there are, and tiles to spare have none, which is
    /// what their proofs say of programs to spare. False, and nothing changed, if such a step does not hold this one.
    pub fn pad(&mut self, room: usize) -> bool {
        let (rows, selected, _) = self.now;
        let most = self.rows_max.min(self.selected_max);
        let fits = rows.max(selected) <= room && room <= most && self.tiles.iter().all(|tiles| tiles.count <= room);
        if fits {
            self.launched = (room, room);
            self.tiles.iter_mut().filter(|tiles| tiles.of.first < room).for_each(|tiles| tiles.pad(room));
        }
        fits
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
            if sequence.tables.len() != self.slots.len() || used > shortest || entries > self.entries_max {
                return Err(format!("a page table of {shortest} pages for {used}: plan within the context"));
            }
        }
        Ok(())
    }
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

impl<A: Ints> Tiles<A> {
    fn fill(&mut self, plan: &StepPlan, starts: &[i32]) {
        let (table, row) = (self.table.cells(), self.row.cells());
        let (rows, pos) = (self.rows.cells(), self.pos.cells());
        self.count = 0;
        for (sequence, start) in plan.sequences().iter().zip(starts) {
            let from = sequence.first_row.max(self.of.first);
            let to = (sequence.first_row + sequence.rows).min(self.of.end);
            for first in (from..to).step_by(self.of.height) {
                table[self.count] = *start;
                row[self.count] = (first - self.of.first) as i32;
                rows[self.count] = (to - first).min(self.of.height) as i32;
                pos[self.count] = (sequence.first_position + first - sequence.first_row) as i32;
                self.count += 1;
            }
        }
    }

    fn pad(&mut self, count: usize) {
        let spare = self.count..count;
        self.table.cells()[spare.clone()].fill(-1);
        for array in [&mut self.row, &mut self.rows, &mut self.pos] {
            array.cells()[spare.clone()].fill(0);
        }
        self.count = count;
    }
}

fn put<A: Ints>(array: &mut A, values: impl IntoIterator<Item = i32>) {
    for (cell, value) in array.cells().iter_mut().zip(values) {
        *cell = value;
    }
}
