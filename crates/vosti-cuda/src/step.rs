//! A step's metadata, as the kernels read it: tokens, positions, slots, page tables and query tiles.
//!
//! One allocation on the device and its image in host memory; the used part of each array is uploaded. No kernel takes a
//! scalar that changes from step to step, so recorded launches stay right. Read next: [`crate::wiring`].

use crate::driver::{Address, Driver, DriverError};
use vosti_core::{PAGE, Program, StepPlan};

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

/// Arrays before those of the groups; and of a group; and of a tiling.
const FIXED: usize = 5;
const OF_GROUP: usize = 2;
const OF_TILING: usize = 4;
/// Arrays start at a multiple of this, in bytes: more than any kernel's premise.
const ALIGN: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Array {
    /// In bytes.
    start: usize,
    capacity: usize,
    used: usize,
}

/// Query tiles of one height over one group's page tables.
#[derive(Debug)]
struct Tiling {
    height: usize,
    group: usize,
    tiles: usize,
}

/// Filled before each step.
#[derive(Debug)]
pub struct Metadata {
    arrays: Vec<Array>,
    groups: usize,
    tilings: Vec<Tiling>,
    rows_max: usize,
    bytes: Vec<u8>,
    /// Per sequence of the step: where its table starts; of the group being filled.
    starts: Vec<i32>,
}

impl Metadata {
    /// Room for steps of `rows_max` rows of which `selected_max` are selected.
    pub fn new(program: &Program, rows_max: usize, selected_max: usize) -> Metadata {
        let groups = program.groups.len();
        // Tables are as long as the context at most, one per row at most.
        let entries = rows_max * (program.context as usize).div_ceil(PAGE).max(1);
        let mut metadata =
            Metadata { arrays: vec![], groups, tilings: vec![], rows_max, bytes: vec![], starts: vec![] };
        [1, 1, rows_max, rows_max, selected_max].into_iter().for_each(|capacity| metadata.array(capacity));
        (0..groups).for_each(|_| [rows_max, entries].into_iter().for_each(|capacity| metadata.array(capacity)));
        metadata
    }

    fn array(&mut self, capacity: usize) {
        let start = self.bytes.len();
        self.arrays.push(Array { start, capacity, used: 0 });
        self.bytes.resize(start + (capacity.max(1) * 4).next_multiple_of(ALIGN), 0);
    }

    /// The query tiles of a height over a group, made on first use.
    pub fn tiling(&mut self, height: usize, group: usize) -> usize {
        if let Some(found) = self.tilings.iter().position(|t| t.height == height && t.group == group) {
            return found;
        }
        self.tilings.push(Tiling { height, group, tiles: 0 });
        (0..OF_TILING).for_each(|_| self.array(self.rows_max));
        self.tilings.len() - 1
    }

    /// Bytes that it takes on the device.
    pub fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// How many tiles the step has.
    pub fn tiles(&self, tiling: usize) -> usize {
        self.tilings[tiling].tiles
    }

    /// Where an array is, in bytes from the start of all.
    pub fn start(&self, meta: Meta) -> u64 {
        self.arrays[self.index(meta)].start as u64
    }

    fn index(&self, meta: Meta) -> usize {
        let of_tiling = |tiling: usize, i: usize| FIXED + OF_GROUP * self.groups + OF_TILING * tiling + i;
        match meta {
            Meta::Rows => 0,
            Meta::Selected => 1,
            Meta::Tokens => 2,
            Meta::Positions => 3,
            Meta::RowIndex => 4,
            Meta::Slots { group } => FIXED + OF_GROUP * group,
            Meta::PageTable { group } => FIXED + OF_GROUP * group + 1,
            Meta::TileTable { tiling } => of_tiling(tiling, 0),
            Meta::TileRow { tiling } => of_tiling(tiling, 1),
            Meta::TileRows { tiling } => of_tiling(tiling, 2),
            Meta::TilePos { tiling } => of_tiling(tiling, 3),
        }
    }

    /// Fills everything from a plan; a plan that does not fit is an error.
    pub fn fill(&mut self, plan: &StepPlan) -> Result<(), String> {
        let (rows, selected) = (plan.rows(), plan.selected().len());
        let capacity = |meta| self.arrays[self.index(meta)].capacity;
        let most = (capacity(Meta::Tokens), capacity(Meta::RowIndex));
        if rows > most.0 || selected > most.1 {
            return Err(format!(
                "a step of {rows} rows, {selected} selected, on a device made for {} and {}: plan smaller steps",
                most.0, most.1
            ));
        }
        self.put(Meta::Rows, [rows as i32]);
        self.put(Meta::Selected, [selected as i32]);
        self.put(Meta::Tokens, plan.tokens().iter().map(|t| *t as i32));
        self.put(Meta::Positions, plan.positions().iter().map(|p| *p as i32));
        self.put(Meta::RowIndex, plan.selected().iter().map(|r| *r as i32));
        (0..self.groups).try_for_each(|group| self.fill_group(plan, group))
    }

    fn fill_group(&mut self, plan: &StepPlan, group: usize) -> Result<(), String> {
        let entries = self.arrays[self.index(Meta::PageTable { group })].capacity;
        let mut next = 0;
        self.starts.clear();
        for sequence in plan.sequences() {
            let table = &sequence.tables[group];
            let used = (sequence.first_position + sequence.rows).div_ceil(PAGE);
            if used > table.len() || next + used > entries {
                return Err(format!("a page table of {} pages for {used}: plan within the context", table.len()));
            }
            self.starts.push(next as i32);
            next += used;
        }
        let used = |s: &vosti_core::SeqPlan| (s.first_position + s.rows).div_ceil(PAGE);
        let tables = plan.sequences().iter().flat_map(|s| s.tables[group][..used(s)].iter().copied());
        self.put(Meta::PageTable { group }, tables);
        let slots = plan.sequences().iter().flat_map(|sequence| {
            (sequence.first_position..sequence.first_position + sequence.rows)
                .map(move |position| sequence.tables[group][position / PAGE] * PAGE as i32 + (position % PAGE) as i32)
        });
        self.put(Meta::Slots { group }, slots);
        for tiling in (0..self.tilings.len()).filter(|t| self.tilings[*t].group == group).collect::<Vec<_>>() {
            self.fill_tiling(plan, tiling);
        }
        Ok(())
    }

    fn fill_tiling(&mut self, plan: &StepPlan, tiling: usize) {
        let height = self.tilings[tiling].height;
        // Table, first row, rows and position of each tile.
        let starts = std::mem::take(&mut self.starts);
        let tiles = || {
            plan.sequences().iter().zip(&starts).flat_map(|(sequence, start)| {
                (0..sequence.rows).step_by(height).map(move |first| {
                    let rows = (sequence.rows - first).min(height);
                    [*start as usize, sequence.first_row + first, rows, sequence.first_position + first]
                })
            })
        };
        let arrays =
            [Meta::TileTable { tiling }, Meta::TileRow { tiling }, Meta::TileRows { tiling }, Meta::TilePos { tiling }];
        for (i, meta) in arrays.into_iter().enumerate() {
            self.put(meta, tiles().map(|tile| tile[i] as i32));
        }
        self.tilings[tiling].tiles = tiles().count();
        self.starts = starts;
    }

    fn put(&mut self, meta: Meta, values: impl IntoIterator<Item = i32>) {
        let index = self.index(meta);
        let Array { start, capacity, .. } = self.arrays[index];
        let cells = self.bytes[start..start + capacity * 4].chunks_exact_mut(4);
        let mut used = 0;
        for (cell, value) in cells.zip(values) {
            cell.copy_from_slice(&value.to_le_bytes());
            used += 1;
        }
        self.arrays[index].used = used;
    }

    /// Brings what the step uses to the device.
    pub fn upload(&self, driver: &mut dyn Driver, base: Address) -> Result<(), DriverError> {
        for array in self.arrays.iter().filter(|array| array.used > 0) {
            driver.upload(base + array.start as u64, &self.bytes[array.start..][..array.used * 4])?;
        }
        Ok(())
    }
}
