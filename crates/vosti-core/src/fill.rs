//! Fills in a step: its arrays are written in the order of their places, and no write changes an earlier array. So each array
//! keeps its contents until all are written.
//!
//! Nothing may write a plan's array before `check` accepted the plan. Read next: `put.rs`.

use crate::ids::PAGE;
use crate::image::ImageError;
use crate::layout::*;
use crate::plan::{SeqPlan, StepPlan};
use crate::premises::*;
use crate::program::*;
use crate::proof::image::*;
use crate::put::*;
use crate::seam::*;
use vstd::prelude::*;

verus! {

impl Layout {
    /// Writes a plan that fits, and tiles without rows up to what there is room for if `spare`.
    pub(crate) fn write(&mut self, cells: &mut [i32], plan: &StepPlan, entries: usize, spare: bool)
        requires
            old(self).wf(), old(self).fits(*plan), plan.tokens@.len() <= old(self).room, plan.selected@.len() <= old(self).room_selected,
            entries == entries_before(plan.sequences@, plan.sequences@.len() as int), old(self).len <= old(cells)@.len(),
        ensures
            final(self).wf(), final(self).same_make(*old(self)), final(cells)@.len() == old(cells)@.len(),
            final(self).written(final(cells)@, *plan),
            final(self).rows == if spare { old(self).room } else { plan.tokens@.len() as usize },
            final(self).selected == if spare { old(self).room_selected } else { plan.selected@.len() as usize },
    {
        self.entries = entries;
        proof { self.lemma_ready(*plan); }
        self.length = longest(plan);
        self.rows = if spare { self.room } else { plan.tokens.len() };
        self.selected = if spare { self.room_selected } else { plan.selected.len() };
        self.write_rows(cells, plan);
        let ghost a = cells@;
        self.write_slots(cells, plan);
        let ghost (b, before) = (cells@, *self);
        self.write_tiles(cells, plan, spare);
        let ghost c = cells@;
        self.write_tables(cells, plan);
        proof {
            assert(self.start_of(Meta::Tokens) == before.start_of(Meta::Tokens));
            assert(self.start_of(Meta::Positions) == before.start_of(Meta::Positions));
            assert(self.start_of(Meta::RowIndex) == before.start_of(Meta::RowIndex));
        }
        proof { self.lemma_written(a, b, c, cells@, *plan); }
    }

    /// Fills in a step with each array at its place in the largest step. On an error nothing changed.
    pub(crate) fn fill(&mut self, cells: &mut [i32], plan: &StepPlan) -> (out: Result<(), ImageError>)
        requires old(self).wf(),
        ensures
            final(self).wf(), final(self).same_make(*old(self)), final(cells)@.len() == old(cells)@.len(),
            out is Err ==> *final(self) == *old(self) && final(cells)@ == old(cells)@,
            out is Ok <==> old(self).fits(*plan) && old(self).len <= old(cells)@.len(),
            out is Ok ==> final(self).written(final(cells)@, *plan),
    {
        let entries = self.check(plan)?;
        if cells.len() < self.len {
            return Err(ImageError::Memory);
        }
        let (rows, selected) = (self.rows_max, self.selected_max);
        self.lay_out(rows, selected);
        self.write(cells, plan, entries, false);
        Ok(())
    }

    /// The same in places no larger than its launches need: with a `room`, launches as of so many rows, all selected.
    pub(crate) fn pack(&mut self, cells: &mut [i32], plan: &StepPlan, room: Option<usize>) -> (out: Result<(), ImageError>)
        requires old(self).wf(),
        ensures
            final(self).wf(), final(self).same_make(*old(self)), final(cells)@.len() == old(cells)@.len(),
            out is Err ==> *final(self) == *old(self) && final(cells)@ == old(cells)@,
            out is Ok <==> old(self).fits(*plan) && old(self).len <= old(cells)@.len() && old(self).room_holds(*plan, room),
            out is Ok ==> final(self).written(final(cells)@, *plan),
    {
        let entries = self.check(plan)?;
        if cells.len() < self.len {
            return Err(ImageError::Memory);
        }
        let (own, own_selected) = (plan.tokens.len(), plan.selected.len());
        let (rows, selected) = match room {
            Some(room) => (room, room),
            None => (own, own_selected),
        };
        if own > rows || own_selected > selected || rows > self.rows_max || selected > self.selected_max {
            return Err(ImageError::Rows { rows: own, selected: own_selected });
        }
        self.lay_out(rows, selected);
        self.write(cells, plan, entries, room.is_some());
        Ok(())
    }

    fn write_rows(&self, cells: &mut [i32], plan: &StepPlan)
        requires self.ready(*plan), self.len <= old(cells)@.len(),
        ensures kept(old(cells)@, final(cells)@, 0), self.rows_written(final(cells)@, *plan),
    {
        let all = Layout::line(self.room);
        proof { self.lemma_front(); }
        let ghost a = cells@;
        cells[0] = plan.tokens.len() as i32;
        let ghost b = cells@;
        cells[LINE] = plan.selected.len() as i32;
        proof {
            lemma_put(a, b, 0);
            lemma_put(b, cells@, LINE as int);
            assert(at(cells@, 0, 0) == plan.tokens@.len());
            assert(at(cells@, LINE as int, 0) == plan.selected@.len());
        }
        put_all(cells, 2 * LINE, plan.tokens.as_slice());
        put_all(cells, 2 * LINE + all, plan.positions.as_slice());
        put_all(cells, 2 * LINE + 2 * all, plan.selected.as_slice());
    }

    fn write_slots(&self, cells: &mut [i32], plan: &StepPlan)
        requires self.ready(*plan), self.len <= old(cells)@.len(),
        ensures
            kept(old(cells)@, final(cells)@, slots_at(self.room as int, self.room_selected as int, 0)),
            self.slots_written(final(cells)@, *plan, self.groups as int),
    {
        hide(rows_before);
        hide(entries_before);
        let each = Layout::line(self.room);
        proof { self.lemma_front(); }
        let mut next = 2 * LINE + 2 * each + Layout::line(self.room_selected);
        let mut g: usize = 0;
        while g < self.groups
            invariant
                g <= self.groups, self.ready(*plan), self.len <= cells@.len(), each == line(self.room as int),
                next == slots_at(self.room as int, self.room_selected as int, g as int), next <= self.len,
                kept(old(cells)@, cells@, slots_at(self.room as int, self.room_selected as int, 0)),
                self.slots_written(cells@, *plan, g as int),
            decreases self.groups - g,
        {
            let ghost now = cells@;
            proof {
                self.lemma_slots_end(g as int);
                self.lemma_ready(*plan);
            }
            put_slots(cells, next, plan, g);
            proof { self.lemma_slots_frame(now, cells@, *plan, g as int, next as int); }
            next += each;
            g += 1;
        }
    }

    fn write_tiles(&mut self, cells: &mut [i32], plan: &StepPlan, spare: bool)
        requires old(self).ready(*plan), old(self).len <= old(cells)@.len(),
        ensures
            *final(self) == (Layout { counts: final(self).counts, ..*old(self) }), final(self).ready(*plan),
            kept(old(cells)@, final(cells)@, old(self).tiles_start(0)),
            final(self).tiles_written(final(cells)@, *plan, final(self).tilings@.len() as int),
    {
        let mut x: usize = 0;
        while x < self.tilings.len()
            invariant
                x <= self.tilings@.len(), self.ready(*plan), self.len <= cells@.len(),
                *self == (Layout { counts: self.counts, ..*old(self) }),
                kept(old(cells)@, cells@, self.tiles_start(0)),
                self.tiles_written(cells@, *plan, x as int),
            decreases self.tilings@.len() - x,
        {
            let ghost (now, before) = (cells@, *self);
            proof {
                self.lemma_tiles_end(x as int);
                self.lemma_ready(*plan);
            }
            let most = Layout::rows_of(&self.tilings[x], self.room);
            let (start, stride) = (self.starts[x], Layout::line(most));
            let (count, by) = put_tiles(cells, start, stride, &self.tilings[x], plan, self.entries);
            let ghost then = cells@;
            if spare {
                put_spare(cells, start, stride, count, most);
            }
            self.counts[x] = if spare { most } else { count };
            proof { self.lemma_tiles_more(before, now, then, cells@, *plan, x as int, count as int, by@); }
            x += 1;
        }
    }

    fn write_tables(&self, cells: &mut [i32], plan: &StepPlan)
        requires self.ready(*plan), self.len <= old(cells)@.len(),
        ensures
            kept(old(cells)@, final(cells)@, self.tables as int),
            self.tables_written(final(cells)@, *plan, self.groups as int),
    {
        let mut next = self.tables;
        let mut g: usize = 0;
        while g < self.groups
            invariant
                g <= self.groups, self.ready(*plan), self.len <= cells@.len(), next == self.tables + g * self.entries,
                kept(old(cells)@, cells@, self.tables as int),
                self.tables_written(cells@, *plan, g as int),
            decreases self.groups - g,
        {
            let ghost now = cells@;
            proof {
                self.lemma_tables_end(g as int);
                self.lemma_ready(*plan);
            }
            put_tables(cells, next, plan, g);
            proof { self.lemma_tables_more(now, cells@, *plan, g as int); }
            next += self.entries;
            g += 1;
        }
    }
}

/// Positions that the longest sequence reaches.
fn longest(plan: &StepPlan) -> (n: usize)
    requires within(*plan),
    ensures n <= CONTEXT_MAX, forall|q: int| 0 <= q < plan.sequences@.len() ==> (#[trigger] plan.sequences@[q]).first_position + plan.sequences@[q].rows <= n,
{
    let mut n: usize = 0;
    let mut q: usize = 0;
    while q < plan.sequences.len()
        invariant
            q <= plan.sequences@.len(), within(*plan), n <= CONTEXT_MAX,
            forall|p: int| 0 <= p < q ==> (#[trigger] plan.sequences@[p]).first_position + plan.sequences@[p].rows <= n,
        decreases plan.sequences@.len() - q,
    {
        proof { assert(within_context(plan.sequences@[q as int])); }
        let end = plan.sequences[q].first_position + plan.sequences[q].rows;
        if end > n {
            n = end;
        }
        q += 1;
    }
    n
}

} // verus!
