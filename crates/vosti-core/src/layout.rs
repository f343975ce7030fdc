//! The places of a step's metadata: the counts first, the page tables of all groups last, so that a step uses the beginning
//! of the array. Places follow one another, and depend only on how many rows there is room for.
//!
//! A plan for which kernels are not proved must never be accepted. Read next: `fill.rs`.

use crate::ids::PAGE;
use crate::image::{ImageError, Place};
use crate::plan::{SeqPlan, StepPlan};
use crate::premises::*;
use crate::program::*;
use crate::proof::image::*;
use crate::put::pages;
use crate::seam::*;
use crate::views::*;
use vstd::prelude::*;

verus! {

/// Places begin at a multiple of this many integers, 64 bytes: more than any kernel's premise of an address.
pub const LINE: usize = 16;

/// Where each array is, and what of it the last step has.
pub struct Layout {
    pub(crate) groups: usize,
    pub(crate) context: usize,
    pub(crate) tilings: Vec<Tiling>,
    pub(crate) rows_max: usize,
    pub(crate) selected_max: usize,
    /// Entries of one group's page tables, at most.
    pub(crate) entries_max: usize,
    /// Integers of the array.
    pub(crate) len: usize,
    /// Rows and selected rows that places have room for.
    pub(crate) room: usize,
    pub(crate) room_selected: usize,
    /// Per tiling, where its first array begins.
    pub(crate) starts: Vec<usize>,
    /// Where the page tables begin.
    pub(crate) tables: usize,
    /// Per tiling, its tiles in the step.
    pub(crate) counts: Vec<usize>,
    /// Entries of one group's page tables in the step.
    pub(crate) entries: usize,
    /// Rows and selected rows that launches are made for: those of the step, or more.
    pub(crate) rows: usize,
    pub(crate) selected: usize,
    /// Positions that the longest sequence of the step reaches.
    pub(crate) length: usize,
}

/// So many integers, in whole lines.
pub open(crate) spec fn line(n: int) -> int {
    (n + LINE - 1) / (LINE as int) * LINE
}

/// Where the slots of group g begin.
pub open(crate) spec fn slots_at(room: int, selected: int, g: int) -> int {
    2 * LINE + 2 * line(room) + line(selected) + g * line(room)
}

/// Where the tiles of tiling x begin.
pub open(crate) spec fn tiles_at(tilings: Seq<Tiling>, groups: int, room: int, selected: int, x: int) -> int
    decreases x,
{
    if x <= 0 { slots_at(room, selected, groups) } else { tiles_at(tilings, groups, room, selected, x - 1) + 4 * line(rows_of(tilings[x - 1], room)) }
}

/// A sequence within the context, with a page in each table for its last row.
pub open(crate) spec fn seq_fits(groups: usize, context: usize, s: SeqPlan) -> bool {
    &&& s.first_position + s.rows <= context && s.tables@.len() == groups
    &&& forall|g: int| 0 <= g < s.tables@.len() ==> pages_of(s) <= (#[trigger] s.tables@[g])@.len()
}

impl Layout {
    /// Where an array begins.
    pub open(crate) spec fn start_of(self, meta: Meta) -> int {
        match meta {
            Meta::Rows => 0,
            Meta::Selected => LINE as int,
            Meta::Tokens => 2 * LINE,
            Meta::Positions => 2 * LINE + line(self.room as int),
            Meta::RowIndex => 2 * LINE + 2 * line(self.room as int),
            Meta::Slots { group } => slots_at(self.room as int, self.room_selected as int, group as int),
            Meta::PageTables => self.tables as int,
            Meta::TileTable { tiling } => self.starts@[tiling as int] as int,
            Meta::TileRow { tiling } => self.starts@[tiling as int] + self.stride(tiling as int),
            Meta::TileRows { tiling } => self.starts@[tiling as int] + 2 * self.stride(tiling as int),
            Meta::TilePos { tiling } => self.starts@[tiling as int] + 3 * self.stride(tiling as int),
        }
    }

    /// From one array of a tiling to the next.
    pub open(crate) spec fn stride(self, x: int) -> int {
        line(rows_of(self.tilings@[x], self.room as int))
    }

    pub open(crate) spec fn tiles_start(self, x: int) -> int {
        tiles_at(self.tilings@, self.groups as int, self.room as int, self.room_selected as int, x)
    }

    /// What never changes is within the bounds of the proofs, and there is room for the largest step.
    pub open(crate) spec fn made(self) -> bool {
        &&& self.rows_max <= ROWS_MAX && self.selected_max <= ROWS_MAX && self.context <= CONTEXT_MAX
        &&& self.groups * self.entries_max <= TABLE_MAX
        &&& self.entries_max >= self.rows_max * ((self.context + PAGE - 1) / (PAGE as int))
        &&& tiles_at(self.tilings@, self.groups as int, self.rows_max as int, self.selected_max as int, self.tilings@.len() as int)
                + self.groups * self.entries_max <= self.len
        &&& forall|x: int| 0 <= x < self.tilings@.len() ==> (#[trigger] self.tilings@[x]).height >= 1 && self.tilings@[x].group < self.groups
    }

    /// Places are one behind the other.
    pub open(crate) spec fn laid_out(self) -> bool {
        &&& self.room <= self.rows_max && self.room_selected <= self.selected_max
        &&& self.starts@.len() == self.tilings@.len() && self.counts@.len() == self.tilings@.len()
        &&& forall|x: int| 0 <= x < self.tilings@.len() ==> #[trigger] self.starts@[x] == self.tiles_start(x)
        &&& self.tables == self.tiles_start(self.tilings@.len() as int)
    }

    pub open(crate) spec fn wf(self) -> bool {
        self.made() && self.laid_out() && self.entries <= self.entries_max
    }

    /// Only the step and the places differ.
    pub open(crate) spec fn same_make(self, other: Layout) -> bool {
        &&& self.groups == other.groups && self.context == other.context && self.tilings == other.tilings
        &&& self.rows_max == other.rows_max && self.selected_max == other.selected_max
        &&& self.entries_max == other.entries_max && self.len == other.len
    }

    /// A plan that this code can fill in: what `check` decides.
    pub open(crate) spec fn fits(self, plan: StepPlan) -> bool {
        &&& packed(plan) && plan.positions@.len() == plan.tokens@.len()
        &&& plan.tokens@.len() <= self.rows_max && plan.selected@.len() <= self.selected_max
        &&& forall|q: int| 0 <= q < plan.sequences@.len() ==> #[trigger] seq_fits(self.groups, self.context, plan.sequences@[q])
        &&& entries_before(plan.sequences@, plan.sequences@.len() as int) <= self.entries_max
    }

    pub(crate) fn line(n: usize) -> (out: usize)
        requires n <= ROWS_MAX,
        ensures out == line(n as int), n <= out < n + LINE,
    {
        (n + (LINE - 1)) / LINE * LINE
    }

    pub(crate) fn rows_of(of: &Tiling, rows: usize) -> (n: usize)
        ensures n == rows_of(*of, rows as int), n <= rows,
    {
        let end = if rows < of.end { rows } else { of.end };
        if of.first < end { end - of.first } else { 0 }
    }

    /// Room for steps of `rows_max` rows of which `selected_max` are selected, in places for the largest.
    pub(crate) fn new(program: &Program, tilings: &[Tiling], rows_max: usize, selected_max: usize) -> (out: Result<Layout, ImageError>)
        ensures
            out is Ok <==> array_fits(*program, tilings@, rows_max, selected_max),
            out matches Ok(layout) ==> layout.wf() && layout.made_for(*program) && layout.rows_max == rows_max && layout.selected_max == selected_max,
    {
        let groups = program.groups.len();
        let context = program.context as usize;
        if rows_max > ROWS_MAX || selected_max > ROWS_MAX || context > CONTEXT_MAX || program.vocab as usize > COUNT_MAX
            || groups > COUNT_MAX {
            return Err(ImageError::TooLarge);
        }
        // Tables are as long as the context at most, one per row at most.
        proof {
            assert(rows_max * ((context + (PAGE - 1)) / (PAGE as int)) <= 0x10_0000 * 0x1_0000) by (nonlinear_arith)
                requires rows_max <= 0x10_0000, 0 <= (context + (PAGE - 1)) / (PAGE as int) <= 0x1_0000 {}
        }
        let all = rows_max as u128 * ((context + (PAGE - 1)) / PAGE) as u128;
        if all > TABLE_MAX as u128 {
            return Err(ImageError::TooLarge);
        }
        let entries_max = all as usize;
        proof { assert(0 <= groups * entries_max <= 0x7fff_ffff * 0x1000_0000) by (nonlinear_arith) requires groups <= 0x7fff_ffff, entries_max <= 0x1000_0000 {} }
        if groups as u128 * entries_max as u128 > TABLE_MAX as u128 {
            return Err(ImageError::TooLarge);
        }
        let mut end = room_needed(groups, rows_max, selected_max);
        let mut copies: Vec<Tiling> = Vec::with_capacity(tilings.len());
        let mut starts: Vec<usize> = Vec::with_capacity(tilings.len());
        let mut counts: Vec<usize> = Vec::with_capacity(tilings.len());
        let mut x: usize = 0;
        while x < tilings.len()
            invariant
                x <= tilings@.len(), copies@ =~= tilings@.take(x as int), starts@.len() == x, counts@.len() == x,
                rows_max <= ROWS_MAX, groups == program.groups@.len(),
                end == tiles_at(copies@, groups as int, rows_max as int, selected_max as int, x as int),
                end <= 0x1_0000_0000_0000_0000_0000 + x * 0x100_0000,
                forall|y: int| 0 <= y < x ==> (#[trigger] copies@[y]).height >= 1 && copies@[y].group < groups,
            decreases tilings@.len() - x,
        {
            let of = tilings[x];
            if of.height == 0 || of.group >= groups {
                return Err(ImageError::TooLarge);
            }
            let ghost before = copies@;
            copies.push(of);
            starts.push(0);
            counts.push(0);
            proof { lemma_tiles_prefix(before, copies@, groups as int, rows_max as int, selected_max as int, x as int); }
            end = end + 4 * Layout::line(Layout::rows_of(&of, rows_max)) as u128;
            x += 1;
        }
        proof { assert(copies@ =~= tilings@); }
        let len = end + (groups * entries_max) as u128;
        if len > usize::MAX as u128 {
            return Err(ImageError::TooLarge);
        }
        let mut layout = Layout {
            groups, context, tilings: copies, rows_max, selected_max, entries_max, len: len as usize,
            room: rows_max, room_selected: selected_max, starts, tables: 0, counts, entries: 0, rows: 0, selected: 0, length: 0,
        };
        layout.lay_out(rows_max, selected_max);
        Ok(layout)
    }

    /// Places one behind the other, with room for so many rows of which so many are selected: a function of these alone.
    pub(crate) fn lay_out(&mut self, rows: usize, selected: usize)
        requires
            old(self).made(), old(self).starts@.len() == old(self).tilings@.len() == old(self).counts@.len(),
            rows <= old(self).rows_max, selected <= old(self).selected_max,
        ensures
            final(self).made(), final(self).laid_out(), final(self).same_make(*old(self)), final(self).entries == old(self).entries,
            final(self).room == rows, final(self).room_selected == selected,
    {
        let ghost (groups, tilings) = (self.groups as int, self.tilings@);
        let n = self.tilings.len();
        proof {
            lemma_tiles_grow(tilings, groups, rows as int, selected as int, self.rows_max as int, self.selected_max as int, n as int);
            lemma_tiles_order(tilings, groups, rows as int, selected as int, 0, n as int);
            lemma_slots_order(rows as int, selected as int, 0, groups);
        }
        self.room = rows;
        self.room_selected = selected;
        let each = Layout::line(rows);
        let mut next = 2 * LINE + 2 * each + Layout::line(selected) + self.groups * each;
        let mut x: usize = 0;
        while x < n
            invariant
                x <= n == self.tilings@.len(), self.tilings@ == tilings, self.groups == groups, self.same_make(*old(self)), self.made(),
                self.entries == old(self).entries,
                self.room == rows, self.room_selected == selected, rows <= self.rows_max, selected <= self.selected_max,
                self.starts@.len() == n, self.counts@.len() == n,
                next == self.tiles_start(x as int), self.tiles_start(n as int) <= self.len,
                forall|y: int| 0 <= y < x ==> #[trigger] self.starts@[y] == self.tiles_start(y),
            decreases n - x,
        {
            proof { lemma_tiles_order(tilings, groups, rows as int, selected as int, x as int + 1, n as int); }
            self.starts[x] = next;
            next = next + 4 * Layout::line(Layout::rows_of(&self.tilings[x], rows));
            x += 1;
        }
        self.tables = next;
    }
}

/// Integers before the tiles.
fn room_needed(groups: usize, rows: usize, selected: usize) -> (n: u128)
    requires groups <= COUNT_MAX, rows <= ROWS_MAX, selected <= ROWS_MAX,
    ensures n == slots_at(rows as int, selected as int, groups as int), n <= 0x1_0000_0000_0000_0000_0000,
{
    let each = Layout::line(rows);
    proof { assert(groups * each <= 0x7fff_ffff * 0x10_0010) by (nonlinear_arith) requires groups <= 0x7fff_ffff, each <= 0x10_0010 {} }
    (2 * LINE) as u128 + 2 * each as u128 + Layout::line(selected) as u128 + groups as u128 * each as u128
}

impl Layout {
    /// Where an array is, and how much room it has.
    pub(crate) fn place(&self, meta: Meta) -> (place: Place)
        requires self.wf(), self.has(meta),
        ensures place.start == self.start_of(meta), place.len == self.len_of(meta),
    {
        let (all, selected) = (Layout::line(self.room), Layout::line(self.room_selected));
        proof {
            lemma_tiles_grow(self.tilings@, self.groups as int, self.room as int, self.room_selected as int, self.rows_max as int, self.selected_max as int, self.tilings@.len() as int);
            lemma_tiles_order(self.tilings@, self.groups as int, self.room as int, self.room_selected as int, 0, self.tilings@.len() as int);
            lemma_slots_order(self.room as int, self.room_selected as int, 0, self.groups as int);
            self.lemma_front();
        }
        match meta {
            Meta::Rows => Place { start: 0, len: 1 },
            Meta::Selected => Place { start: LINE, len: 1 },
            Meta::Tokens => Place { start: 2 * LINE, len: self.room },
            Meta::Positions => Place { start: 2 * LINE + all, len: self.room },
            Meta::RowIndex => Place { start: 2 * LINE + 2 * all, len: self.room_selected },
            Meta::Slots { group } => {
                proof { lemma_slots_order(self.room as int, self.room_selected as int, group as int, self.groups as int); }
                Place { start: 2 * LINE + 2 * all + selected + group * all, len: self.room }
            },
            Meta::PageTables => Place { start: self.tables, len: self.groups * self.entries },
            Meta::TileTable { tiling } => self.tile_place(tiling, 0),
            Meta::TileRow { tiling } => self.tile_place(tiling, 1),
            Meta::TileRows { tiling } => self.tile_place(tiling, 2),
            Meta::TilePos { tiling } => self.tile_place(tiling, 3),
        }
    }

    /// The tiling's i-th array.
    fn tile_place(&self, tiling: usize, i: usize) -> (place: Place)
        requires self.wf(), tiling < self.tilings@.len(), i <= 3,
        ensures
            place.start == self.starts@[tiling as int] + i * self.stride(tiling as int), place.len == self.most_tiles(tiling as int),
    {
        let most = Layout::rows_of(&self.tilings[tiling], self.room);
        proof { self.lemma_tiles_end(tiling as int); }
        let stride = Layout::line(most);
        let ahead = if i == 0 { 0 } else if i == 1 { stride } else if i == 2 { 2 * stride } else { 3 * stride };
        Place { start: self.starts[tiling] + ahead, len: most }
    }

    /// Entries of one group's page tables, if the plan can be filled in.
    pub(crate) fn check(&self, plan: &StepPlan) -> (out: Result<usize, ImageError>)
        requires self.made(),
        ensures
            out is Ok <==> self.fits(*plan),
            out matches Ok(n) ==> n == entries_before(plan.sequences@, plan.sequences@.len() as int),
    {
        hide(rows_before);
        hide(entries_before);
        let (all, selected) = (plan.tokens.len(), plan.selected.len());
        if all > self.rows_max || selected > self.selected_max || plan.positions.len() != all {
            return Err(ImageError::Rows { rows: all, selected });
        }
        let mut rows: usize = 0;
        let mut entries: usize = 0;
        let mut q: usize = 0;
        proof { assert(rows_before(plan.sequences@, 0) == 0 && entries_before(plan.sequences@, 0) == 0) by { reveal(rows_before); reveal(entries_before); } }
        while q < plan.sequences.len()
            invariant
                q <= plan.sequences@.len(), self.made(), all == plan.tokens@.len(), rows <= all,
                rows == rows_before(plan.sequences@, q as int), entries == entries_before(plan.sequences@, q as int),
                entries <= self.entries_max,
                forall|p: int| 0 <= p < q ==> (#[trigger] plan.sequences@[p]).first_row == rows_before(plan.sequences@, p)
                    && 1 <= plan.sequences@[p].rows,
                forall|p: int| 0 <= p < q ==> #[trigger] seq_fits(self.groups, self.context, plan.sequences@[p]),
            decreases plan.sequences@.len() - q,
        {
            let s = &plan.sequences[q];
            let refused = Err(ImageError::Sequence { index: q });
            proof {
                if self.fits(*plan) {
                    assert(seq_fits(self.groups, self.context, plan.sequences@[q as int]));
                    lemma_rows_apart(*plan, q as int, plan.sequences@.len() as int);
                    lemma_entries_apart(*plan, q as int, plan.sequences@.len() as int);
                }
            }
            if s.first_row != rows || s.rows == 0 || s.rows > all - rows || s.first_position > self.context
                || s.rows > self.context - s.first_position || !self.reaches(s) {
                return refused;
            }
            let n = pages(s);
            if n > self.entries_max - entries {
                return refused;
            }
            proof {
                let next = q + 1;
                assert(rows_before(plan.sequences@, next) == rows + s.rows) by { reveal(rows_before); }
                assert(entries_before(plan.sequences@, next) == entries + n) by { reveal(entries_before); }
            }
            rows += s.rows;
            entries += n;
            q += 1;
        }
        if rows != all {
            return Err(ImageError::Rows { rows: all, selected });
        }
        Ok(entries)
    }

    /// Whether each of a sequence's tables has a page for its last row.
    fn reaches(&self, s: &SeqPlan) -> (yes: bool)
        requires s.first_position + s.rows <= self.context <= CONTEXT_MAX,
        ensures yes <==> seq_fits(self.groups, self.context, *s),
    {
        if s.tables.len() != self.groups {
            return false;
        }
        let n = pages(s);
        let mut g: usize = 0;
        while g < s.tables.len()
            invariant
                g <= s.tables@.len(), n == pages_of(*s),
                forall|h: int| 0 <= h < g ==> n <= (#[trigger] s.tables@[h])@.len(),
            decreases s.tables@.len() - g,
        {
            if s.tables[g].len() < n {
                return false;
            }
            g += 1;
        }
        true
    }
}

} // verus!
