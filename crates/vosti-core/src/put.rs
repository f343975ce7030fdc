//! Writes each array of a step's metadata, from `start` on and never before it.
//!
//! Nothing here knows where arrays are. Because no write goes before its `start`, arrays that are written in the order of
//! their places keep their contents. Read next: `image.rs`.

use crate::ids::PAGE;
use crate::plan::{SeqPlan, StepPlan};
use crate::premises::*;
use crate::program::*;
use crate::proof::image::*;
use crate::seam::*;
use crate::views::*;
use vstd::prelude::*;

verus! {

/// Nothing before `lo` changed.
pub open(crate) spec fn kept(a: Seq<i32>, b: Seq<i32>, lo: int) -> bool {
    &&& a.len() == b.len()
    &&& forall|start: int, i: int| 0 <= start + i < lo ==> #[trigger] at(b, start, i) == at(a, start, i)
}

/// The values one after the other.
pub(crate) fn put_all(cells: &mut [i32], start: usize, values: &[u32])
    requires start + values@.len() <= old(cells)@.len(),
    ensures
        kept(old(cells)@, final(cells)@, start as int),
        forall|i: int| 0 <= i < values@.len() ==> #[trigger] at(final(cells)@, start as int, i) == values@[i] as i32,
{
    let len = cells.len();
    let mut i: usize = 0;
    while i < values.len()
        invariant
            i <= values@.len(), start + values@.len() <= cells@.len() == len,
            kept(old(cells)@, cells@, start as int),
            forall|j: int| 0 <= j < i ==> #[trigger] at(cells@, start as int, j) == values@[j] as i32,
        decreases values@.len() - i,
    {
        let ghost now = cells@;
        cells[start + i] = values[i] as i32;
        proof { lemma_put(now, cells@, start + i); }
        i += 1;
    }
}

/// The slot that row i of a sequence writes in a group, as an `i32`.
pub open(crate) spec fn slot_put(cells: Seq<i32>, start: int, plan: StepPlan, g: int, q: int, i: int) -> bool {
    at(cells, start, plan.sequences@[q].row(i)) == slot_of(plan.sequences@[q], g, i) as i32
}

/// Slots of all rows in a group.
pub(crate) fn put_slots(cells: &mut [i32], start: usize, plan: &StepPlan, group: usize)
    requires
        packed(*plan), tables_long(*plan), start + plan.tokens@.len() <= old(cells)@.len(),
        forall|q: int| 0 <= q < plan.sequences@.len() ==> group < (#[trigger] plan.sequences@[q]).tables@.len(),
    ensures
        kept(old(cells)@, final(cells)@, start as int),
        forall|q: int, i: int| 0 <= q < plan.sequences@.len() && 0 <= i < plan.sequences@[q].rows
            ==> #[trigger] slot_put(final(cells)@, start as int, *plan, group as int, q, i),
{
    hide(rows_before);
    let len = cells.len();
    let mut q: usize = 0;
    while q < plan.sequences.len()
        invariant
            q <= plan.sequences@.len(), packed(*plan), tables_long(*plan), start + plan.tokens@.len() <= cells@.len() == len,
            forall|q: int| 0 <= q < plan.sequences@.len() ==> group < (#[trigger] plan.sequences@[q]).tables@.len(),
            kept(old(cells)@, cells@, start as int),
            forall|p: int, i: int| 0 <= p < q && 0 <= i < plan.sequences@[p].rows
                ==> #[trigger] slot_put(cells@, start as int, *plan, group as int, p, i),
        decreases plan.sequences@.len() - q,
    {
        let s = &plan.sequences[q];
        let table = s.tables[group].as_slice();
        proof { lemma_packed(*plan, q as int); }
        let mut i: usize = 0;
        while i < s.rows
            invariant
                i <= s.rows, q < plan.sequences@.len(), *s == plan.sequences@[q as int], packed(*plan),
                start + plan.tokens@.len() <= cells@.len() == len, s.first_row + s.rows <= plan.tokens@.len(),
                group < s.tables@.len(), table@ == s.tables@[group as int]@,
                pages_of(*s) <= table@.len(), s.first_position + s.rows <= usize::MAX,
                s.first_row == rows_before(plan.sequences@, q as int),
                kept(old(cells)@, cells@, start as int),
                forall|p: int, j: int| 0 <= p < q && 0 <= j < plan.sequences@[p].rows
                    ==> #[trigger] slot_put(cells@, start as int, *plan, group as int, p, j),
                forall|j: int| 0 <= j < i ==> #[trigger] slot_put(cells@, start as int, *plan, group as int, q as int, j),
            decreases s.rows - i,
        {
            let ghost now = cells@;
            let position = s.first_position + i;
            proof { assert(position / PAGE < pages_of(*s)); }
            let slot = table[position / PAGE] as i64 * PAGE as i64 + (position % PAGE) as i64;
            cells[start + s.first_row + i] = slot as i32;
            proof {
                lemma_put(now, cells@, start + s.first_row + i);
                assert forall|p: int, j: int| 0 <= p < q && 0 <= j < plan.sequences@[p].rows
                    implies #[trigger] slot_put(cells@, start as int, *plan, group as int, p, j) by {
                    assert(slot_put(now, start as int, *plan, group as int, p, j));
                    lemma_rows_apart(*plan, p, q as int);
                }
                assert forall|j: int| 0 <= j < i + 1 implies #[trigger] slot_put(cells@, start as int, *plan, group as int, q as int, j) by {
                    if j < i { assert(slot_put(now, start as int, *plan, group as int, q as int, j)); }
                }
            }
            i += 1;
        }
        q += 1;
    }
}

/// Sequence q's table of a group, from where it begins in its group's.
pub open(crate) spec fn table_put(cells: Seq<i32>, start: int, plan: StepPlan, g: int, q: int, l: int) -> bool {
    at(cells, start, entries_before(plan.sequences@, q) + l) == plan.sequences@[q].tables@[g]@[l]
}

/// A group's page tables, one sequence's after the other's.
pub(crate) fn put_tables(cells: &mut [i32], start: usize, plan: &StepPlan, group: usize)
    requires
        tables_long(*plan), start + entries_before(plan.sequences@, plan.sequences@.len() as int) <= old(cells)@.len(),
        forall|q: int| 0 <= q < plan.sequences@.len() ==> group < (#[trigger] plan.sequences@[q]).tables@.len(),
    ensures
        kept(old(cells)@, final(cells)@, start as int),
        forall|q: int, l: int| 0 <= q < plan.sequences@.len() && 0 <= l < pages_of(plan.sequences@[q])
            ==> #[trigger] table_put(final(cells)@, start as int, *plan, group as int, q, l),
{
    let len = cells.len();
    let mut q: usize = 0;
    let mut next = start;
    proof { lemma_entries_apart(*plan, 0, plan.sequences@.len() as int); }
    while q < plan.sequences.len()
        invariant
            q <= plan.sequences@.len(), tables_long(*plan),
            start + entries_before(plan.sequences@, plan.sequences@.len() as int) <= cells@.len() == len,
            next == start + entries_before(plan.sequences@, q as int), next <= cells@.len(),
            forall|q: int| 0 <= q < plan.sequences@.len() ==> group < (#[trigger] plan.sequences@[q]).tables@.len(),
            kept(old(cells)@, cells@, start as int),
            forall|p: int, l: int| 0 <= p < q && 0 <= l < pages_of(plan.sequences@[p])
                ==> #[trigger] table_put(cells@, start as int, *plan, group as int, p, l),
        decreases plan.sequences@.len() - q,
    {
        let s = &plan.sequences[q];
        let ghost now = cells@;
        proof {
            assert(table_long(plan.sequences@[q as int]));
            lemma_entries_apart(*plan, 0, q as int);
            lemma_entries_apart(*plan, q as int, plan.sequences@.len() as int);
        }
        let n = pages(s);
        put_ints(cells, next, s.tables[group].as_slice(), n);
        proof {
            assert forall|p: int, l: int| 0 <= p < q + 1 && 0 <= l < pages_of(plan.sequences@[p])
                implies #[trigger] table_put(cells@, start as int, *plan, group as int, p, l) by {
                let e = entries_before(plan.sequences@, p);
                if p < q {
                    assert(table_put(now, start as int, *plan, group as int, p, l));
                    assert(table_long(plan.sequences@[p]));
                    lemma_entries_apart(*plan, p, q as int);
                    lemma_entries_apart(*plan, 0, p);
                    assert(at(cells@, start as int, e + l) == at(now, start as int, e + l));
                } else {
                    assert(at(cells@, next as int, l) == at(cells@, start as int, e + l));
                }
            }
        }
        next += n;
        q += 1;
    }
}

/// The first n integers of `from`, one after the other.
fn put_ints(cells: &mut [i32], start: usize, from: &[i32], n: usize)
    requires start + n <= old(cells)@.len(), n <= from@.len(),
    ensures
        kept(old(cells)@, final(cells)@, start as int),
        forall|i: int| 0 <= i < n ==> #[trigger] at(final(cells)@, start as int, i) == from@[i],
{
    let len = cells.len();
    let mut i: usize = 0;
    while i < n
        invariant
            i <= n <= from@.len(), start + n <= cells@.len() == len, kept(old(cells)@, cells@, start as int),
            forall|j: int| 0 <= j < i ==> #[trigger] at(cells@, start as int, j) == from@[j],
        decreases n - i,
    {
        let ghost now = cells@;
        cells[start + i] = from[i];
        proof { lemma_put(now, cells@, start + i); }
        i += 1;
    }
}

/// Tile k of a tiling whose four arrays are `stride` apart.
pub open(crate) spec fn tile_at(cells: Seq<i32>, start: int, stride: int, k: int) -> Tile {
    Tile {
        table: at(cells, start, k),
        row: at(cells, start + stride, k),
        rows: at(cells, start + 2 * stride, k),
        pos: at(cells, start + 3 * stride, k),
    }
}

/// The tile's rows are sequence q's, at its positions, and its table is the sequence's.
pub open(crate) spec fn tile_put(of: Tiling, plan: StepPlan, entries: int, tile: Tile, q: int) -> bool {
    let s = plan.sequences@[q];
    &&& 0 <= q < plan.sequences@.len()
    &&& 1 <= tile.rows <= of.height && 0 <= tile.row
    &&& s.first_row <= of.first + tile.row && of.first + tile.row + tile.rows <= s.first_row + s.rows
    &&& of.first + tile.row + tile.rows <= of.end
    &&& s.rows <= of.height && of.first <= s.first_row && s.first_row + s.rows <= of.end ==> of.first + tile.row == s.first_row && tile.rows == s.rows
    &&& tile.pos == s.position(of.first + tile.row - s.first_row)
    &&& tile.table == of.group * entries + entries_before(plan.sequences@, q)
}

/// Whose tiles they are, and the rows at which they begin, and at which the last ends.
pub ghost struct Tiled {
    pub owners: Seq<int>,
    pub edges: Seq<int>,
}

/// The first `count` tiles are sequences', each begins where the one before it ends, and all rows up to `rows` are in them.
pub open(crate) spec fn tiled(cells: Seq<i32>, start: int, stride: int, of: Tiling, plan: StepPlan, entries: int, count: int, rows: int, by: Tiled) -> bool {
    &&& 0 <= count && by.owners.len() == count && by.edges.len() == count + 1
    &&& by.edges[0] == 0 && by.edges[count] == rows && count <= rows
    &&& forall|k: int| 0 <= k < count ==> #[trigger] tile_is(cells, start, stride, of, plan, entries, k, by)
}

pub open(crate) spec fn tile_is(cells: Seq<i32>, start: int, stride: int, of: Tiling, plan: StepPlan, entries: int, k: int, by: Tiled) -> bool {
    let tile = tile_at(cells, start, stride, k);
    &&& tile_put(of, plan, entries, tile, by.owners[k])
    &&& tile.row == by.edges[k] && tile.row + tile.rows == by.edges[k + 1]
}

/// Tiles of each sequence's rows, in the order of rows; how many they are.
pub(crate) fn put_tiles(cells: &mut [i32], start: usize, stride: usize, of: &Tiling, plan: &StepPlan, entries: usize) -> (out: (usize, Ghost<Tiled>))
    requires
        packed(*plan), tables_long(*plan), within(*plan), of.height >= 1,
        entries == entries_before(plan.sequences@, plan.sequences@.len() as int),
        of.group * entries + entries <= TABLE_MAX, start + 4 * stride <= old(cells)@.len(),
        rows_of(*of, plan.tokens@.len() as int) <= stride,
    ensures
        kept(old(cells)@, final(cells)@, start as int),
        tiled(final(cells)@, start as int, stride as int, *of, *plan, entries as int, out.0 as int, rows_of(*of, plan.tokens@.len() as int), out.1@),
{
    hide(rows_before);
    let len = cells.len();
    let mut count: usize = 0;
    let mut table = of.group * entries;
    let mut q: usize = 0;
    let ghost mut by = Tiled { owners: Seq::empty(), edges: seq![0int] };
    proof { assert(rows_before(plan.sequences@, 0) == 0) by { reveal(rows_before); } }
    while q < plan.sequences.len()
        invariant
            q <= plan.sequences@.len(), packed(*plan), tables_long(*plan), within(*plan), of.height >= 1,
            entries == entries_before(plan.sequences@, plan.sequences@.len() as int),
            of.group * entries + entries <= TABLE_MAX, start + 4 * stride <= cells@.len() == len,
            rows_of(*of, plan.tokens@.len() as int) <= stride,
            table == of.group * entries + entries_before(plan.sequences@, q as int),
            kept(old(cells)@, cells@, start as int),
            tiled(cells@, start as int, stride as int, *of, *plan, entries as int, count as int, rows_of(*of, rows_before(plan.sequences@, q as int)), by),
        decreases plan.sequences@.len() - q,
    {
        let s = &plan.sequences[q];
        proof {
            lemma_packed(*plan, q as int);
            lemma_rows_apart(*plan, q as int + 1, plan.sequences@.len() as int);
            lemma_entries_apart(*plan, q as int, plan.sequences@.len() as int);
            lemma_entries_apart(*plan, 0, q as int);
            assert(within_context(*s));
            assert(rows_before(plan.sequences@, q + 1) == s.first_row + s.rows) by { reveal(rows_before); }
        }
        let from = if s.first_row > of.first { s.first_row } else { of.first };
        let end = s.first_row + s.rows;
        let to = if end < of.end { end } else { of.end };
        let mut first = from;
        while first < to
            invariant
                q < plan.sequences@.len(), *s == plan.sequences@[q as int], of.height >= 1,
                start + 4 * stride <= cells@.len() == len, table <= TABLE_MAX,
                table == of.group * entries + entries_before(plan.sequences@, q as int),
                s.first_row == rows_before(plan.sequences@, q as int),
                end == s.first_row + s.rows, end <= plan.tokens@.len() <= ROWS_MAX, s.first_position + s.rows <= CONTEXT_MAX,
                to == if end < of.end { end } else { of.end },
                from == if s.first_row > of.first { s.first_row } else { of.first },
                from <= first, from < to ==> first <= to, first == from || first == to || to - from > of.height,
                rows_of(*of, plan.tokens@.len() as int) <= stride,
                kept(old(cells)@, cells@, start as int),
                tiled(cells@, start as int, stride as int, *of, *plan, entries as int, count as int,
                    if from < to { first - of.first } else { rows_of(*of, s.first_row as int) }, by),
            decreases to - first,
        {
            let ghost (now, then) = (cells@, by);
            let left = to - first;
            let rows = if left < of.height { left } else { of.height };
            put_tile(cells, start, stride, count, table as i32, (first - of.first) as i32, rows as i32, (s.first_position + (first - s.first_row)) as i32);
            proof {
                by = Tiled { owners: by.owners.push(q as int), edges: by.edges.push(first - of.first + rows) };
                assert forall|k: int| 0 <= k < count + 1 implies
                    #[trigger] tile_is(cells@, start as int, stride as int, *of, *plan, entries as int, k, by) by {
                    if k < count {
                        assert(tile_is(now, start as int, stride as int, *of, *plan, entries as int, k, then));
                        assert(tile_at(cells@, start as int, stride as int, k) == tile_at(now, start as int, stride as int, k));
                    }
                }
            }
            count += 1;
            first += rows;
        }
        table += pages(s);
        q += 1;
    }
    (count, Ghost(by))
}

/// Tiles without rows, up to `to`.
pub(crate) fn put_spare(cells: &mut [i32], start: usize, stride: usize, from: usize, to: usize)
    requires from <= to <= stride, start + 4 * stride <= old(cells)@.len(),
    ensures
        kept(old(cells)@, final(cells)@, start as int),
        forall|k: int| 0 <= k < from ==> #[trigger] tile_at(final(cells)@, start as int, stride as int, k) == tile_at(old(cells)@, start as int, stride as int, k),
        forall|k: int| from <= k < to ==> #[trigger] tile_at(final(cells)@, start as int, stride as int, k) == spare_tile(),
{
    let len = cells.len();
    let mut k = from;
    while k < to
        invariant
            from <= k <= to <= stride, start + 4 * stride <= cells@.len() == len,
            kept(old(cells)@, cells@, start as int),
            forall|j: int| 0 <= j < from ==> #[trigger] tile_at(cells@, start as int, stride as int, j) == tile_at(old(cells)@, start as int, stride as int, j),
            forall|j: int| from <= j < k ==> #[trigger] tile_at(cells@, start as int, stride as int, j) == spare_tile(),
        decreases to - k,
    {
        let ghost now = cells@;
        put_tile(cells, start, stride, k, -1, 0, 0, 0);
        k += 1;
    }
}

fn put_tile(cells: &mut [i32], start: usize, stride: usize, k: usize, table: i32, row: i32, rows: i32, pos: i32)
    requires k < stride, start + 4 * stride <= old(cells)@.len(),
    ensures
        kept(old(cells)@, final(cells)@, start as int),
        forall|j: int| 0 <= j < k ==> #[trigger] tile_at(final(cells)@, start as int, stride as int, j) == tile_at(old(cells)@, start as int, stride as int, j),
        tile_at(final(cells)@, start as int, stride as int, k as int) == (Tile { table: table as int, row: row as int, rows: rows as int, pos: pos as int }),
{
    let len = cells.len();
    let ghost a = cells@;
    cells[start + k] = table;
    let ghost b = cells@;
    cells[start + stride + k] = row;
    let ghost c = cells@;
    cells[start + 2 * stride + k] = rows;
    let ghost d = cells@;
    cells[start + 3 * stride + k] = pos;
    proof {
        lemma_put(a, b, start + k);
        lemma_put(b, c, start + stride + k);
        lemma_put(c, d, start + 2 * stride + k);
        lemma_put(d, cells@, start + 3 * stride + k);
    }
}

/// Pages up to a sequence's last row.
pub(crate) fn pages(s: &SeqPlan) -> (n: usize)
    requires s.first_position + s.rows + PAGE <= usize::MAX,
    ensures n == pages_of(*s),
{
    (s.first_position + s.rows + (PAGE - 1)) / PAGE
}

} // verus!
