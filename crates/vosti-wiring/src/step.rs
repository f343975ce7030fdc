//! A step's metadata, as the kernels read it: tokens, positions, slots, page tables and query tiles.
//!
//! `vosti-core` decides and proves the contents and the place of each part (`image.rs`, `premises.rs`). This module holds the
//! device's array, and must never write to it.

use crate::error::WiringError;
use crate::wiring::Size;
use std::ops::Range;
use vosti_core::{Image, ImageError, Meta, Program, StepPlan, Tiling};
use vosti_kernels::Extent;

/// A device's array of integers, or its image in host memory.
pub trait Ints {
    /// All of it: the same memory at each call.
    fn cells(&mut self) -> &mut [i32];
}

impl Ints for Vec<i32> {
    fn cells(&mut self) -> &mut [i32] {
        self
    }
}

/// Where each part of the array is: room for steps of `rows_max` rows of which `selected_max` are selected.
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

/// Filled before each step.
pub struct Metadata<A> {
    array: A,
    /// Integers of the array.
    len: usize,
    image: Image,
    /// The step wants lists of largest logits.
    listed: bool,
}

impl<A: Ints> Metadata<A> {
    /// The array has as many integers as the image needs, [`Image::len`].
    pub fn new(image: Image, array: A) -> Self {
        Self { array, len: image.len(), image, listed: false }
    }

    /// All of it.
    pub fn array(&self) -> &A {
        &self.array
    }

    /// Where a part of the array is: as in the largest step, unless a step was packed. Page tables stand last and have the rest:
    /// a device that asks once must find room for every step's.
    pub fn place(&self, meta: Meta) -> Range<usize> {
        let place = self.image.place(meta);
        let end = if meta == Meta::PageTables { self.len } else { place.start + place.len };
        place.start..end
    }

    /// How many integers of it, from the first, the step that was filled uses.
    pub fn used(&self) -> usize {
        let tables = self.image.place(Meta::PageTables);
        tables.start + tables.len
    }

    /// Positions that the longest sequence of the step that was filled reaches.
    pub fn length(&self) -> usize {
        self.image.length()
    }

    /// How much there is to do for a launch of the step that was filled, or, if it was padded, what there is room for.
    pub fn extent(&self, size: Size) -> Extent {
        let (rows, selected) = self.image.launched();
        match size {
            Size::Rows => Extent { rows, tiles: 0, length: 0 },
            Size::Selected => Extent { rows: selected, tiles: 0, length: 0 },
            Size::Listed => Extent { rows: if self.listed { selected } else { 0 }, tiles: 0, length: 0 },
            Size::Tiles(tiling) => Extent { rows, tiles: self.image.tiles(tiling), length: self.image.length() },
        }
    }

    /// Fills everything from a plan, each array at its place in the largest step; a plan that does not fit is an error, and
    /// nothing was filled.
    pub fn fill(&mut self, plan: &StepPlan) -> Result<(), String> {
        self.image.fill(self.array.cells(), plan).map_err(refused)?;
        self.listed = listed(plan);
        Ok(())
    }

    /// Gives each array the place that it has in the largest step, as it had to begin with.
    pub fn spread(&mut self) {
        self.image.spread();
    }

    /// As [`Metadata::fill`], with no more room for each array than the step's launches need ([`Image::pack`]).
    pub fn pack(&mut self, plan: &StepPlan, room: Option<usize>) -> Result<(), String> {
        self.image.pack(self.array.cells(), plan, room).map_err(refused)?;
        self.listed = listed(plan);
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

/// Whether a step wants lists of largest logits.
pub fn listed(plan: &StepPlan) -> bool {
    plan.sequences().iter().any(|s| s.top && s.selected > 0)
}
