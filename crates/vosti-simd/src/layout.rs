//! The layout of a buffer's elements in memory: a bijection from the flat index that a kernel sees to a position.
//!
//! Kernels address a buffer as if it were row-major. The executor keeps a matrix that a `dot` reads in the order of the
//! register kernel's reads, padded where a dimension is ragged. Every other access goes through the bijection.
//! Read next: [`crate::micro`].

use std::ops::Range;

use crate::micro::LANES;
use crate::storage;
use vosti_kernels::Part;

/// Columns of the dot's output per packed panel, and rows of a block of [`Layout::RowPairs`].
pub const PANEL: usize = 64;

/// A buffer's memory order. `row_len` is the length of the contiguous axis in the kernel's view, `k` steps
/// along the contracted axis, and `pair` is how many successive `k` lie side by side (2 for BF16, 1 for FP32).
///
/// A ragged dimension is padded: a dot reads +0 beyond a row's last `k` and beyond the last row, as the kernel's own bounds
/// say, and no element has a position there. If a weight is several matrices of `cut` rows each, a new panel begins after
/// every `cut` rows; `cut` is 0 for a single matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the head says what `row_len`, `pair` and `cut` are")]
pub enum Layout {
    /// The kernel's own order.
    RowMajor,
    /// Contracted along the contiguous axis: rows in panels of 64, `[row / 64][k / pair][64][pair]`.
    RowPanels { row_len: usize, pair: usize, cut: usize },
    /// Contracted along rows, pairs of rows interleaved, in blocks of 64 rows by 64 columns (or all, padded to a multiple of 16,
    /// if 64 does not divide them) that a dot reads from one end to the other:
    /// `[row / 64][column / 64][row % 64 / pair][column % 64][pair]`.
    RowPairs { row_len: usize, pair: usize },
    /// As `RowPanels` of BF16 pairs, but each panel in one of the forms of [`crate::storage`]. Elements have no position and are
    /// read-only: BF16 numbers, or a part of the blocks of rows of `row_len` elements.
    StoredPanels { row_len: usize, cut: usize, part: Option<Part> },
}

/// Columns of a block of [`Layout::RowPairs`].
pub fn block_columns(row_len: usize) -> usize {
    if row_len.is_multiple_of(PANEL) { PANEL } else { row_len.next_multiple_of(LANES) }
}

/// The columns of a row of [`Layout::RowPairs`] with its padding.
pub fn padded_columns(row_len: usize) -> usize {
    row_len.next_multiple_of(LANES)
}

/// The place of a row among rows and padding, where a new panel begins after every `cut` rows.
#[inline(always)]
fn placed(row: usize, cut: usize) -> usize {
    match row.checked_div(cut) {
        Some(whole) => whole * cut.next_multiple_of(PANEL) + row % cut,
        None => row,
    }
}

impl Layout {
    /// `wanted` if it accepts a buffer of `len` elements, else row-major.
    pub fn chosen(wanted: Option<Layout>, len: usize) -> Layout {
        wanted.filter(|layout| layout.accepts(len)).unwrap_or(Layout::RowMajor)
    }

    /// The elements of a row in the kernel's view, of a matrix with rows of `row_len`.
    pub fn row(&self, row_len: usize) -> usize {
        match *self {
            Layout::StoredPanels { part: Some(part), .. } => part.columns(row_len),
            _ => row_len,
        }
    }

    /// The place of a row among the rows of all panels.
    #[inline(always)]
    pub fn place(&self, row: usize) -> usize {
        match *self {
            Layout::RowPanels { cut, .. } | Layout::StoredPanels { cut, .. } => placed(row, cut),
            Layout::RowMajor | Layout::RowPairs { .. } => row,
        }
    }

    /// The number of panels for `rows` rows.
    pub fn panels(&self, rows: usize) -> usize {
        rows.checked_sub(1).map_or(0, |last| self.place(last) / PANEL + 1)
    }

    /// The rows of a panel, if the weight has `rows` rows.
    pub fn panel_rows(&self, panel: usize, rows: usize) -> Range<usize> {
        let (first, cut) = match *self {
            Layout::RowPanels { cut, .. } | Layout::StoredPanels { cut, .. } if cut > 0 => {
                let each = cut.div_ceil(PANEL);
                (panel / each * cut + panel % each * PANEL, panel / each * cut + cut)
            }
            _ => (panel * PANEL, rows),
        };
        first..(first + PANEL).min(cut).min(rows)
    }

    /// The position in memory, in elements, of the element with flat index `index`. Panics for `StoredPanels`.
    #[inline(always)]
    pub fn position(&self, index: usize) -> usize {
        match *self {
            Layout::RowMajor => index,
            Layout::RowPanels { row_len, pair, cut } => {
                let (row, k) = (placed(index / row_len, cut), index % row_len);
                let padded = row_len.next_multiple_of(pair);
                (row / PANEL) * PANEL * padded + (k / pair) * PANEL * pair + (row % PANEL) * pair + k % pair
            }
            Layout::RowPairs { row_len, pair } => {
                let (row, column) = (index / row_len, index % row_len);
                let wide = block_columns(row_len);
                let block = (row / PANEL) * PANEL * padded_columns(row_len) + (column / wide) * PANEL * wide;
                block + (row % PANEL / pair) * wide * pair + (column % wide) * pair + row % pair
            }
            Layout::StoredPanels { .. } => unreachable!("an element of a stored panel has no position"),
        }
    }

    /// Elements of memory that `len` elements take: panels and blocks are rounded up.
    pub fn footprint(&self, len: usize) -> usize {
        match *self {
            Layout::RowMajor => len,
            Layout::RowPanels { row_len, pair, .. } => {
                self.panels(len.div_ceil(row_len)) * PANEL * row_len.next_multiple_of(pair)
            }
            Layout::StoredPanels { row_len, .. } => {
                self.panels(len.div_ceil(self.row(row_len))) * PANEL * row_len.next_multiple_of(2)
            }
            Layout::RowPairs { row_len, .. } => len.div_ceil(row_len).next_multiple_of(PANEL) * padded_columns(row_len),
        }
    }

    /// Bytes of memory that `len` elements of `element` bytes take; for `StoredPanels` the most that they can take.
    pub fn bytes(&self, len: usize, element: usize) -> usize {
        match *self {
            Layout::StoredPanels { row_len, .. } => {
                storage::bytes_max(self.panels(len.div_ceil(self.row(row_len))), row_len)
            }
            _ => self.footprint(len) * element,
        }
    }

    /// Whether a buffer of `len` elements can have this layout: it must have whole rows.
    pub fn accepts(&self, len: usize) -> bool {
        match *self {
            Layout::RowMajor => true,
            Layout::RowPanels { row_len, .. } | Layout::StoredPanels { row_len, .. } => {
                row_len > 0 && len.is_multiple_of(self.row(row_len))
            }
            Layout::RowPairs { row_len, pair } => {
                row_len > 0 && PANEL.is_multiple_of(pair) && len.is_multiple_of(row_len)
            }
        }
    }

    /// Copies row-major `source`, whose first element has the flat index `first`, into `target` in this order.
    /// Positions that no element maps to are not written.
    pub fn pack<T: Copy>(&self, first: usize, source: &[T], target: &mut [T]) {
        assert!(target.len() >= self.footprint(first + source.len()));
        match *self {
            Layout::RowMajor => target[first..][..source.len()].copy_from_slice(source),
            Layout::RowPanels { row_len, pair: 2, .. } if first.is_multiple_of(row_len) => {
                for (row, values) in (first / row_len..).zip(source.chunks(row_len)) {
                    let start = self.position(row * row_len);
                    for (cell, two) in target[start..].chunks_mut(PANEL * 2).zip(values.chunks(2)) {
                        cell[..two.len()].copy_from_slice(two);
                    }
                }
            }
            _ => (first..).zip(source).for_each(|(i, value)| target[self.position(i)] = *value),
        }
    }
}
