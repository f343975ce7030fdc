//! A step's metadata, as the kernels read it: tokens, positions, slots, page tables and query tiles.
//!
//! Read next: [`crate::wiring`].

use vosti_core::{PAGE, Program, StepPlan};
use vosti_tile::Scalar;

use crate::memory::Arena;
use crate::weights::Buffer;

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

/// Query tiles of one height over one group's page tables.
#[derive(Debug)]
struct Tiling {
    height: usize,
    group: usize,
    tiles: usize,
    table: Buffer,
    row: Buffer,
    rows: Buffer,
    pos: Buffer,
}

/// Metadata buffers, filled before each step.
#[derive(Debug)]
pub struct Metadata {
    rows: Buffer,
    selected: Buffer,
    tokens: Buffer,
    positions: Buffer,
    row_index: Buffer,
    slots: Vec<Buffer>,
    tables: Vec<Buffer>,
    tilings: Vec<Tiling>,
    /// Per sequence of the step: where its table starts; of the group being filled.
    starts: Vec<i32>,
}

fn ints(arena: &mut Arena, len: usize) -> std::io::Result<Buffer> {
    Buffer::zeroed(arena, Scalar::I32, len.max(1), None)
}

impl Metadata {
    /// Room for steps of `rows_max` rows of which `selected_max` are selected.
    pub fn new(arena: &mut Arena, program: &Program, rows_max: usize, selected_max: usize) -> std::io::Result<Self> {
        let groups = program.groups.len();
        // Tables are as long as the context at most, one per row at most; untouched memory is free.
        let entries = rows_max * (program.context as usize).div_ceil(PAGE).max(1);
        let mut many = |len| (0..groups).map(|_| ints(arena, len)).collect::<std::io::Result<Vec<_>>>();
        let (slots, tables) = (many(rows_max)?, many(entries)?);
        Ok(Self {
            rows: ints(arena, 1)?,
            selected: ints(arena, 1)?,
            tokens: ints(arena, rows_max)?,
            positions: ints(arena, rows_max)?,
            row_index: ints(arena, selected_max)?,
            slots,
            tables,
            tilings: Vec::new(),
            starts: Vec::with_capacity(rows_max),
        })
    }

    /// The query tiles of a height over a group, made on first use.
    pub fn tiling(
        &mut self,
        arena: &mut Arena,
        height: usize,
        group: usize,
        rows_max: usize,
    ) -> std::io::Result<usize> {
        if let Some(found) = self.tilings.iter().position(|t| t.height == height && t.group == group) {
            return Ok(found);
        }
        let mut ints = || ints(arena, rows_max);
        let (table, row, rows, pos) = (ints()?, ints()?, ints()?, ints()?);
        self.tilings.push(Tiling { height, group, tiles: 0, table, row, rows, pos });
        Ok(self.tilings.len() - 1)
    }

    /// How many tiles the step has.
    pub fn tiles(&self, tiling: usize) -> usize {
        self.tilings[tiling].tiles
    }

    pub fn buffer(&self, meta: Meta) -> &Buffer {
        match meta {
            Meta::Rows => &self.rows,
            Meta::Selected => &self.selected,
            Meta::Tokens => &self.tokens,
            Meta::Positions => &self.positions,
            Meta::RowIndex => &self.row_index,
            Meta::Slots { group } => &self.slots[group],
            Meta::PageTable { group } => &self.tables[group],
            Meta::TileTable { tiling } => &self.tilings[tiling].table,
            Meta::TileRow { tiling } => &self.tilings[tiling].row,
            Meta::TileRows { tiling } => &self.tilings[tiling].rows,
            Meta::TilePos { tiling } => &self.tilings[tiling].pos,
        }
    }

    /// Fills everything from a plan; a plan that does not fit is an error, and nothing was filled.
    pub fn fill(&mut self, plan: &StepPlan) -> Result<(), String> {
        let (rows, selected) = (plan.rows(), plan.selected().len());
        if rows > self.tokens.len || selected > self.row_index.len {
            return Err(format!(
                "a step of {rows} rows, {selected} selected, on a device made for {} and {}: plan smaller steps",
                self.tokens.len, self.row_index.len
            ));
        }
        put(&mut self.rows, [rows as i32]);
        put(&mut self.selected, [selected as i32]);
        put(&mut self.tokens, plan.tokens().iter().map(|t| *t as i32));
        put(&mut self.positions, plan.positions().iter().map(|p| *p as i32));
        put(&mut self.row_index, plan.selected().iter().map(|r| *r as i32));
        for group in 0..self.slots.len() {
            self.fill_group(plan, group)?;
        }
        Ok(())
    }

    fn fill_group(&mut self, plan: &StepPlan, group: usize) -> Result<(), String> {
        self.starts.clear();
        let entries = self.tables[group].len;
        let slots = self.slots[group].region.as_mut_slice::<i32>(plan.rows());
        let flat = self.tables[group].region.as_mut_slice::<i32>(entries);
        let mut next = 0;
        for sequence in plan.sequences() {
            let table = &sequence.tables[group];
            let used = (sequence.first_position + sequence.rows).div_ceil(PAGE);
            if used > table.len() || next + used > entries {
                return Err(format!("a page table of {} pages for {used}: plan within the context", table.len()));
            }
            flat[next..next + used].copy_from_slice(&table[..used]);
            self.starts.push(next as i32);
            next += used;
            for i in 0..sequence.rows {
                let position = sequence.first_position + i;
                slots[sequence.first_row + i] = table[position / PAGE] * PAGE as i32 + (position % PAGE) as i32;
            }
        }
        for tiling in self.tilings.iter_mut().filter(|t| t.group == group) {
            tiling.fill(plan, &self.starts);
        }
        Ok(())
    }
}

impl Tiling {
    fn fill(&mut self, plan: &StepPlan, starts: &[i32]) {
        let capacity = self.row.len;
        let table = self.table.region.as_mut_slice::<i32>(capacity);
        let row = self.row.region.as_mut_slice::<i32>(capacity);
        let rows = self.rows.region.as_mut_slice::<i32>(capacity);
        let pos = self.pos.region.as_mut_slice::<i32>(capacity);
        self.tiles = 0;
        for (sequence, start) in plan.sequences().iter().zip(starts) {
            for first in (0..sequence.rows).step_by(self.height) {
                table[self.tiles] = *start;
                row[self.tiles] = (sequence.first_row + first) as i32;
                rows[self.tiles] = (sequence.rows - first).min(self.height) as i32;
                pos[self.tiles] = (sequence.first_position + first) as i32;
                self.tiles += 1;
            }
        }
    }
}

fn put(buffer: &mut Buffer, values: impl IntoIterator<Item = i32>) {
    let len = buffer.len;
    let cells = buffer.region.as_mut_slice::<i32>(len);
    for (cell, value) in cells.iter_mut().zip(values) {
        *cell = value;
    }
}
