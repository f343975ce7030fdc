//! A step's metadata, as the kernels read it: tokens, positions, slots, page tables and query tiles.
//!
//! `vosti-core` decides and proves the contents and the place of each part (`image.rs`, `premises.rs`). This module holds the
//! device's array; it lets the core fill it and must never write to it itself.

use crate::error::WiringError;
use crate::wiring::Size;
use std::ops::Range;
use vosti_contract::Extent;
use vosti_core::{Draw, Image, ImageError, Meta, Program, StepPlan, Tiling};

/// A device's array of integers, or its image in host memory.
pub trait Ints {
    /// The whole array: the same memory at each call.
    fn cells(&mut self) -> &mut [i32];
}

impl Ints for Vec<i32> {
    fn cells(&mut self) -> &mut [i32] {
        self
    }
}

/// Where each part of the array is, with room for steps of `rows_max` rows of which `selected_max` are selected.
/// [`WiringError::TooLarge`] if the core has no image of that size.
pub fn image(
    program: &Program,
    tilings: &[Tiling],
    rows_max: usize,
    selected_max: usize,
) -> Result<Image, WiringError> {
    let context = program.context;
    let tables = program.groups.len();
    let error = |_| WiringError::TooLarge { rows: rows_max, selected: selected_max, context, tables };
    Image::new(program, tilings, rows_max, selected_max).map_err(error)
}

/// A step's metadata in a device's array. A device fills it before each step.
pub struct Metadata<A> {
    array: A,
    /// Integers of the array.
    len: usize,
    image: Image,
    /// The step that was filled wants lists of largest logits.
    listed: bool,
    /// The step that was filled draws tokens.
    drawn: bool,
}

impl<A: Ints> Metadata<A> {
    /// `array` must have [`Image::len`] integers, or [`Metadata::fill`] fails.
    pub fn new(image: Image, array: A) -> Self {
        Self { array, len: image.len(), image, listed: false, drawn: false }
    }

    /// The device's array.
    pub fn array(&self) -> &A {
        &self.array
    }

    /// Where a part of the array is: its place in the largest step, unless a step was packed. Page tables come last and have the
    /// rest of the array, so that their place has room for every step.
    pub fn place(&self, meta: Meta) -> Range<usize> {
        let place = self.image.place(meta);
        let end = if meta == Meta::PageTables { self.len } else { place.start + place.len };
        place.start..end
    }

    /// How many integers of the array, from the first, the step that was filled uses.
    pub fn used(&self) -> usize {
        let tables = self.image.place(Meta::PageTables);
        tables.start + tables.len
    }

    /// Positions that the longest sequence of the step that was filled reaches.
    pub fn length(&self) -> usize {
        self.image.length()
    }

    /// The amount of work of a launch in the step that was filled; if the step was padded, the amount that there is room for.
    pub fn extent(&self, size: Size) -> Extent {
        let (rows, selected) = self.image.launched();
        match size {
            Size::Rows => Extent { rows, tiles: 0, length: 0 },
            Size::Selected => Extent { rows: selected, tiles: 0, length: 0 },
            Size::Listed => Extent { rows: if self.listed { selected } else { 0 }, tiles: 0, length: 0 },
            Size::Drawn => Extent { rows: if self.drawn { selected } else { 0 }, tiles: 0, length: 0 },
            Size::Tiles(tiling) => Extent { rows, tiles: self.image.tiles(tiling), length: self.image.length() },
        }
    }

    /// Fills every part from a plan, each at its place in the largest step. If the plan does not fit, the error says so in
    /// words and no part is filled.
    pub fn fill(&mut self, plan: &StepPlan) -> Result<(), String> {
        self.image.fill(self.array.cells(), plan).map_err(refused)?;
        (self.listed, self.drawn) = (listed(plan), drawn(plan));
        Ok(())
    }

    /// Gives each part its place in the largest step again, after [`Metadata::pack`] moved it.
    pub fn widen(&mut self) {
        self.image.widen();
    }

    /// As [`Metadata::fill`], with no more room for each part than the step's launches need ([`Image::pack`]). With a `room`
    /// launches are as large as those of a step of so many rows.
    pub fn pack(&mut self, plan: &StepPlan, room: Option<usize>) -> Result<(), String> {
        self.image.pack(self.array.cells(), plan, room).map_err(refused)?;
        (self.listed, self.drawn) = (listed(plan), drawn(plan));
        Ok(())
    }
}

fn refused(error: ImageError) -> String {
    match error {
        ImageError::Rows { rows, selected } => {
            format!("a step of {rows} rows, {selected} selected, is more than there is room for: plan smaller steps")
        }
        ImageError::Sequence { index } => {
            format!("sequence {index} of the step has rows or pages outside the context: this is a bug, report it")
        }
        ImageError::TooLarge | ImageError::Memory => {
            "the array of a step's metadata is too short: this is a bug, report it".into()
        }
    }
}

/// Whether attention that folds its own splits keeps a device busy: no program works on more than twice as many pages of keys as
/// each of `places` blocks at once would have if all were shared out evenly. `pages` has those of each query tile, and `programs`
/// work through each.
pub fn evenly(pages: impl Iterator<Item = usize>, programs: usize, places: usize) -> bool {
    let (longest, all) = pages.fold((0, 0), |(longest, all), pages| (pages.max(longest), all + pages));
    longest <= 2 * (all * programs).div_ceil(places.max(1))
}

/// Whether a step wants lists of largest logits.
pub fn listed(plan: &StepPlan) -> bool {
    plan.sequences().iter().any(|s| s.top && s.selected > 0)
}

/// Whether a step draws tokens.
pub fn drawn(plan: &StepPlan) -> bool {
    plan.sequences().iter().any(|s| !s.draws.is_empty())
}

/// Writes one of a draw's numbers for each selected row, as [`vosti_kernels::Draws::numbers`] orders them; zero, by which anything may be
/// drawn, for rows of which nobody wants a token.
pub fn fill_numbers(plan: &StepPlan, number: usize, rows: &mut [f32]) {
    for s in plan.sequences() {
        let rows = &mut rows[s.first_selected..s.first_selected + s.selected];
        rows.fill(0.0);
        for (row, Draw { scale, part, within }) in rows.iter_mut().zip(&s.draws) {
            *row = f32::from_bits([scale, part, within].map(|bits| *bits)[number]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_shared_out_evenly_unless_a_few_rows_see_many_keys() {
        let tiles = |rows: usize, depth: usize| (0..rows).step_by(16).map(move |row| (depth + row + 16).div_ceil(64));
        // Eight KV heads on 132 multiprocessors with two blocks each: parts of a prefill, whatever is before them.
        for depth in [0, 512, 14_336] {
            assert!(evenly(tiles(512, depth), 8, 264), "{depth}");
        }
        assert!(!evenly(tiles(64, 14_336), 8, 264));
        // A row behind 32,768 keys, alone or beside a short prompt; and 64 of them.
        let row = || std::iter::once(513);
        assert!(!evenly(row(), 8, 264) && !evenly(row().chain(tiles(511, 0)), 8, 264));
        assert!(evenly(std::iter::repeat_n(513, 64), 8, 264));
        assert!(evenly(std::iter::empty(), 8, 264) && evenly(row(), 8, 1));
    }
}
