//! The metadata that kernels read in a step: tokens, positions, slots, page tables and query tiles, as one array of integers
//! in which each part has its place.
//!
//! The memory belongs to a device; this module keeps none, and a step allocates nothing. No kernel takes a scalar that
//! changes from step to step, so a recorded or compiled launch stays right as long as the places do.
//!
//! Read next: `premises.rs` (what the array says), `layout.rs` (where), `fill.rs` and `put.rs` (how it is written).

use crate::ids::PAGE;
use crate::layout::*;
use crate::plan::StepPlan;
use crate::premises::*;
use crate::program::*;
use crate::proof::image::*;
use crate::seam::*;
use crate::views::*;
use vstd::prelude::*;

verus! {

/// Why an array cannot be laid out, or a step cannot be filled in.
#[allow(missing_docs, reason = "each line names its fields")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImageError {
    /// More rows, positions, tokens, tilings or entries of page tables than kernels are proved for.
    TooLarge,
    /// The device's array has fewer integers than `Image::len`.
    Memory,
    /// More rows or selected rows than there is room for.
    Rows { rows: usize, selected: usize },
    /// A sequence's rows are not packed, or its page tables are too short.
    Sequence { index: usize },
}

/// The layout of a step's metadata in a device's array of integers.
pub struct Image {
    /// None only while a step is filled in.
    layout: Option<Layout>,
}

impl Image {
    #[verifier::type_invariant]
    pub closed spec fn sound(self) -> bool {
        self.layout matches Some(layout) ==> layout.wf()
    }

    pub closed spec fn spec_layout(self) -> Option<Layout> {
        self.layout
    }

    /// Room for steps of `rows_max` rows of which `selected_max` are selected.
    pub fn new(program: &Program, tilings: &[Tiling], rows_max: usize, selected_max: usize) -> (out: Result<Image, ImageError>)
        ensures
            out is Ok <==> array_fits(*program, tilings@, rows_max, selected_max),
            out matches Ok(image) ==> image.made_for(*program) && image.takes(rows_max, selected_max),
    {
        match Layout::new(program, tilings, rows_max, selected_max) {
            Ok(layout) => Ok(Image { layout: Some(layout) }),
            Err(error) => Err(error),
        }
    }

    /// Integers that the array must have.
    pub fn len(&self) -> (n: usize)
        ensures self.says_len(n),
    {
        match &self.layout {
            Some(layout) => layout.len,
            None => 0,
        }
    }

    /// The place of an array: that of the largest step, unless a step was packed. Empty if there is no such array.
    pub fn place(&self, meta: Meta) -> (place: Place)
        ensures self.says_place(meta, place),
    {
        proof { use_type_invariant(self); }
        let nowhere = Place { start: 0, len: 0 };
        let Some(layout) = &self.layout else { return nowhere };
        let (groups, tilings) = (layout.groups, layout.tilings.len());
        let there = match meta {
            Meta::Slots { group } => group < groups,
            Meta::TileTable { tiling } | Meta::TileRow { tiling } | Meta::TileRows { tiling } | Meta::TilePos { tiling } => tiling < tilings,
            _ => true,
        };
        if there { layout.place(meta) } else { nowhere }
    }

    /// The rows and selected rows that launches are made for: at least those of the step.
    pub fn launched(&self) -> (out: (usize, usize))
        ensures self.says_launched(out.0, out.1),
    {
        match &self.layout {
            Some(layout) => (layout.rows, layout.selected),
            None => (0, 0),
        }
    }

    /// The number of tiles of the step, including those without rows.
    pub fn tiles(&self, tiling: usize) -> (n: usize)
        ensures self.says_tiles(tiling, n),
    {
        match &self.layout {
            Some(layout) => if tiling < layout.counts.len() { layout.counts[tiling] } else { 0 },
            None => 0,
        }
    }

    /// The positions of the longest sequence of the step.
    pub fn length(&self) -> (n: usize)
        ensures self.says_length(n),
    {
        match &self.layout {
            Some(layout) => layout.length,
            None => 0,
        }
    }

    /// Gives each array its place in the largest step, as in a new image.
    pub fn widen(&mut self)
        ensures final(self).spread_out(*old(self)),
    {
        proof { use_type_invariant(&*self); }
        if let Some(mut layout) = self.open() {
            let (rows, selected) = (layout.rows_max, layout.selected_max);
            layout.lay_out(rows, selected);
            self.layout = Some(layout);
        }
    }

    /// Fills in a step, each array at its place in the largest step. On an error the array is unchanged.
    pub fn fill(&mut self, cells: &mut [i32], plan: &StepPlan) -> (out: Result<(), ImageError>)
        ensures
            out is Err ==> final(cells)@ == old(cells)@,
            forall|limits: Limits, program: Program| #[trigger] plan_ok(limits, program, *plan) && program.wf() && old(self).made_for(program)
                && pages_small(limits, program) ==> {
                &&& old(self).takes(limits.rows, limits.selected) && old(self).has_room(old(cells)@) ==> out is Ok
                &&& out is Ok ==> final(self).told(final(cells)@, *plan)
            },
    {
        proof { use_type_invariant(&*self); }
        let Some(mut layout) = self.open() else { return Err(ImageError::Memory) };
        let ghost before = layout;
        let out = layout.fill(cells, plan);
        proof { lemma_filled(before, layout, cells@, *plan, out is Ok); }
        self.layout = Some(layout);
        out
    }

    /// As `fill`, but with places no larger than the step's launches need, so that little of the array is used. Places depend
    /// only on the number of rows that the launches are made for.
    ///
    /// With a `room`, launches are as large as for a step with `room` rows of one request each, all selected. No row is added
    /// as padding: kernels read the number of rows from the array, and spare tiles have no rows, as the proofs about spare
    /// programs assume. A room that does not hold the plan is an error too.
    pub fn pack(&mut self, cells: &mut [i32], plan: &StepPlan, room: Option<usize>) -> (out: Result<(), ImageError>)
        ensures
            out is Err ==> final(cells)@ == old(cells)@,
            forall|limits: Limits, program: Program| #[trigger] plan_ok(limits, program, *plan) && program.wf() && old(self).made_for(program)
                && pages_small(limits, program) ==> {
                &&& old(self).takes(limits.rows, limits.selected) && old(self).has_room(old(cells)@)
                        && old(self).room_holds(*plan, room) ==> out is Ok
                &&& out is Ok ==> final(self).told(final(cells)@, *plan)
            },
    {
        proof { use_type_invariant(&*self); }
        let Some(mut layout) = self.open() else { return Err(ImageError::Memory) };
        let ghost before = layout;
        let out = layout.pack(cells, plan, room);
        proof { lemma_filled(before, layout, cells@, *plan, out is Ok); }
        self.layout = Some(layout);
        out
    }

    /// Takes the layout out while a step is filled in.
    fn open(&mut self) -> (out: Option<Layout>)
        ensures *final(self) == (Image { layout: None }), out == old(self).layout, old(self).sound(),
    {
        proof { use_type_invariant(&*self); }
        let mut layout: Option<Layout> = None;
        core::mem::swap(&mut self.layout, &mut layout);
        layout
    }

}

/// An array's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The array's first integer.
    pub start: usize,
    /// The most integers of the array.
    pub len: usize,
}

} // verus!
