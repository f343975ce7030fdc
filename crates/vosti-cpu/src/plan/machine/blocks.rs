//! Products in integers, block by block: in place from a weight's panels, or from copies of all operands.
//!
//! A register kernel adds an offset to codes and takes it off again with the sum of the activations' integers. That sum is made
//! here, from the integers themselves and once for all programs of a launch: what the kernel's own `sums` hold is for minima.
//! Read next: [`vosti_simd::micro::integers`].

use std::collections::HashMap;

use vosti_kernels::Part;
use vosti_kernels::quantised::BLOCK;
use vosti_tile::numerics::{add, fma, mul};

use super::{Machine, Param};
use crate::plan::code::{BlockAccess, BlocksCode, Int};
use vosti_simd::Isa;
use vosti_simd::layout::{Layout, PANEL};
use vosti_simd::micro::integers::{IntDot, IntDotFn, Set};
use vosti_simd::storage;

/// Halves of a block.
const HALVES: usize = 2;

/// The register kernels of products in integers, and the sums of the activations of the launch under way.
pub(super) struct Integers {
    fast: IntDotFn,
    /// For integers beyond what a product of 16 bits takes, which no kernel makes.
    any: IntDotFn,
    /// By the addresses of a tile's integers: no launch writes what it reads. Buffers are few, so entries are kept for their memory.
    sums: HashMap<(usize, usize), Sums>,
    /// The number of the launch.
    launch: u64,
    collected: Collected,
}

/// Rows of a left factor that do not follow one another in memory, copied together. Programs of a launch that follow one another
/// often have the same ones: then the copy is kept.
#[derive(Default)]
struct Collected {
    hi: Copied<i8>,
    lo: Copied<i8>,
    scale: Copied<f32>,
    sums: Copied<f32>,
}

/// Rows of one array.
#[derive(Default)]
struct Copied<T> {
    /// The launch for which they were copied, the address of their array, and their columns.
    of: (u64, usize, usize),
    /// The flat index of each row's first element.
    rows: Vec<usize>,
    data: Vec<T>,
}

/// The sums of q over each half of a block, `[row][2 * block]`.
#[derive(Default)]
struct Sums {
    /// The launch for which they were made, and its rows and blocks.
    of: (u64, usize, usize),
    q: Vec<i32>,
    /// Whether each q is a number of 16 bits.
    fits: bool,
}

impl Integers {
    pub fn new(isa: Isa) -> Self {
        Self {
            fast: Set::of(isa).dot(),
            any: Set::Portable.dot(),
            sums: HashMap::new(),
            launch: 0,
            collected: Collected::default(),
        }
    }

    /// Before another launch, which may have other integers in the same place.
    pub fn forget(&mut self) {
        self.launch += 1;
    }

    /// The sums of some rows, and the register kernel for them.
    ///
    /// # Safety
    /// `rows` rows of `blocks` blocks can be read, `stride` bytes from one to the next.
    unsafe fn sums(&mut self, left: &Left, rows: usize, blocks: usize) -> (*const i32, IntDotFn) {
        let (hi, lo) = (left.hi.at, left.lo.map(|lo| lo.at));
        let known = self.sums.entry((hi as usize, lo.map_or(0, |lo| lo as usize))).or_default();
        let of = (self.launch, rows, blocks);
        if left.fresh || known.of != of {
            (known.of, known.fits) = (of, true);
            known.q.clear();
            for half in 0..rows * HALVES * blocks {
                let at = half / (HALVES * blocks) * left.hi.row + half % (HALVES * blocks) * (BLOCK / HALVES);
                // SAFETY: the caller's.
                unsafe {
                    let hi = *hi.add(at).cast::<[i8; BLOCK / HALVES]>();
                    let mut sum = hi.iter().map(|x| i32::from(*x)).sum();
                    if let Some(lo) = lo {
                        let lo = *lo.add(at).cast::<[i8; BLOCK / HALVES]>();
                        sum = 256 * sum + lo.iter().map(|x| i32::from(*x)).sum::<i32>();
                        known.fits &= !hi.iter().zip(lo).any(|(hi, lo)| (*hi == i8::MIN) & (lo < 0));
                    }
                    known.q.push(sum);
                }
            }
        }
        (known.q.as_ptr(), if known.fits { self.fast } else { self.any })
    }
}

/// Rows of an array in memory: the first element, and bytes or elements from one row to the next.
#[derive(Clone, Copy)]
struct Rows<T> {
    at: *const T,
    row: usize,
}

/// The left factor in memory.
struct Left {
    hi: Rows<i8>,
    lo: Option<Rows<i8>>,
    scale: Rows<f32>,
    sums: Option<Rows<f32>>,
    /// Whether it was just copied to where other rows were before.
    fresh: bool,
}

/// What came of copying rows together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Collect {
    Anew,
    Kept,
    /// A row is not inside its array and its buffer.
    NotWhole,
}

impl Machine {
    pub(super) unsafe fn blocks(&mut self, params: &[Param], code: &BlocksCode) {
        let rows = self.n(code.rows.count);
        if rows == 0 {
            return;
        }
        // SAFETY: the caller's.
        unsafe {
            let Some(right) = self.right_in_place(params, code) else { return self.copied_blocks(params, code, rows) };
            let left = self.left_in_place(params, code, rows).or_else(|| self.collected(params, code, rows));
            match left {
                Some(left) => self.panels_of_blocks(code, rows, &left, right),
                None => self.copied_blocks(params, code, rows),
            }
        }
    }

    /// Multiplies with the panels of a weight, from the panel `panel` and the block `first` on.
    unsafe fn panels_of_blocks(
        &mut self,
        code: &BlocksCode,
        rows: usize,
        left: &Left,
        (weight, panel, first): (*const u8, usize, usize),
    ) {
        // SAFETY: the operands are inside their buffers, and the result has these rows and columns.
        unsafe {
            let (qsum, kernel) = self.integers.sums(left, rows, code.blocks);
            let c = self.base.add(code.dst as usize).cast::<f32>();
            for column in (0..code.columns).step_by(PANEL) {
                kernel(&IntDot {
                    hi: left.hi.at,
                    lo: left.lo.map_or(std::ptr::null(), |lo| lo.at),
                    q_row: left.hi.row,
                    sx: left.scale.at,
                    sx_row: left.scale.row,
                    qsum,
                    qsum_row: HALVES * code.blocks,
                    sums: left.sums.map_or(std::ptr::null(), |sums| sums.at),
                    panel: storage::panel(weight, panel + column / PANEL),
                    first,
                    blocks: code.blocks,
                    c: c.add(column),
                    c_row: code.dst_row as usize / 4,
                    rows,
                    columns: PANEL.min(code.columns - column),
                    accumulate: code.accumulate,
                    halves: code.halves,
                    minima: code.minima.is_some(),
                    wide: code.lo.is_some(),
                });
            }
        }
    }

    /// The left factor, if all of it is in memory, row after row.
    unsafe fn left_in_place(&self, params: &[Param], code: &BlocksCode, rows: usize) -> Option<Left> {
        // SAFETY: numbers of the plan; operands are used only if they are inside their buffers.
        unsafe {
            let depth = BLOCK * code.blocks;
            let hi = self.rows_in_place(params, &code.hi, rows, depth)?;
            let lo = match &code.lo {
                Some(lo) => Some(self.rows_in_place(params, lo, rows, depth)?),
                None => None,
            };
            let sums = match &code.minima {
                Some((sums, _)) => Some(self.rows_in_place(params, sums, rows, HALVES * code.blocks)?),
                None => None,
            };
            let scale = self.rows_in_place(params, &code.scale, rows, code.blocks)?;
            let same = lo.is_none_or(|lo: Rows<i8>| lo.row == hi.row)
                && sums.is_none_or(|sums: Rows<f32>| sums.row == HALVES * code.blocks);
            same.then_some(Left { hi, lo, scale, sums, fresh: false })
        }
    }

    /// The rows of a window, if all of its `columns` columns are inside its array and its buffer.
    unsafe fn rows_in_place<T>(
        &self,
        params: &[Param],
        access: &BlockAccess,
        rows: usize,
        columns: usize,
    ) -> Option<Rows<T>> {
        let param = &params[access.window.param];
        let [row, column] = access.window.axes[..] else { return None };
        // SAFETY: numbers of the plan.
        unsafe {
            let base = access.window.base.iter().map(|int| self.int(*int)).sum::<i64>();
            let (from, at, stride) = (self.int(row.offset), self.int(column.offset), self.int(row.stride));
            let first = base + from * stride + at;
            let last = first + (rows as i64 - 1) * stride + columns as i64;
            let inside = param.layout == Layout::RowMajor
                && column.stride == Int::Const(1)
                && stride >= 0
                && at >= 0
                && at + columns as i64 <= self.int(column.shape)
                && self.rows_inside(access, access.rows)
                && first >= 0
                && last <= param.len as i64;
            inside.then(|| Rows { at: param.base.cast::<T>().add(first as usize), row: stride as usize })
        }
    }

    /// A copy of the left factor's rows, one after the other; None if they are not whole.
    unsafe fn collected(&mut self, params: &[Param], code: &BlocksCode, rows: usize) -> Option<Left> {
        let mut room = std::mem::take(&mut self.integers.collected);
        // SAFETY: the caller's.
        let copied = unsafe {
            let hi = self.collect_rows(params, &code.hi, rows, BLOCK * code.blocks, &mut room.hi);
            let lo = code.lo.as_ref().map(|lo| self.collect_rows(params, lo, rows, BLOCK * code.blocks, &mut room.lo));
            let scale = self.collect_rows(params, &code.scale, rows, code.blocks, &mut room.scale);
            let sums = code.minima.as_ref();
            let sums =
                sums.map(|(sums, _)| self.collect_rows(params, sums, rows, HALVES * code.blocks, &mut room.sums));
            [Some(hi), lo, Some(scale), sums]
        };
        let left = Left {
            hi: Rows { at: room.hi.data.as_ptr(), row: BLOCK * code.blocks },
            lo: code.lo.as_ref().map(|_| Rows { at: room.lo.data.as_ptr(), row: BLOCK * code.blocks }),
            scale: Rows { at: room.scale.data.as_ptr(), row: code.blocks },
            sums: code.minima.as_ref().map(|_| Rows { at: room.sums.data.as_ptr(), row: HALVES * code.blocks }),
            fresh: copied.contains(&Some(Collect::Anew)),
        };
        if copied.contains(&Some(Collect::NotWhole)) {
            return None;
        }
        self.integers.collected = room;
        Some(left)
    }

    /// Copies the rows of a window, unless they are those that were copied last.
    unsafe fn collect_rows<T: Copy>(
        &self,
        params: &[Param],
        access: &BlockAccess,
        rows: usize,
        columns: usize,
        to: &mut Copied<T>,
    ) -> Collect {
        let param = &params[access.window.param];
        if param.layout != Layout::RowMajor {
            return Collect::NotWhole;
        }
        let of = (self.integers.launch, param.base as usize, columns);
        let mut same = to.of == of && to.rows.len() == rows;
        to.rows.resize(rows, 0);
        for r in 0..rows {
            // SAFETY: numbers of the plan.
            let first = unsafe { self.whole_row(access, r, columns) }.and_then(|first| usize::try_from(first).ok());
            match first.filter(|first| first.saturating_add(columns) <= param.len) {
                Some(first) => same &= std::mem::replace(&mut to.rows[r], first) == first,
                None => return Collect::NotWhole,
            }
        }
        if same {
            return Collect::Kept;
        }
        to.of = of;
        to.data.clear();
        for first in &to.rows {
            // SAFETY: the row is inside the buffer, as checked.
            let row = unsafe { std::slice::from_raw_parts(param.base.cast::<T>().add(*first), columns) };
            to.data.extend_from_slice(row);
        }
        Collect::Anew
    }

    /// The right factor, if it is in panels and begins at a panel's edge: the weight, its first panel and block.
    unsafe fn right_in_place(&self, params: &[Param], code: &BlocksCode) -> Option<(*const u8, usize, usize)> {
        // SAFETY: numbers of the plan.
        unsafe {
            let codes = self.part_in_place(params, code, &code.codes, Part::Codes)?;
            let scales = self.part_in_place(params, code, &code.scales, Part::Scales)?;
            let offsets = match &code.minima {
                Some((_, offsets)) => self.part_in_place(params, code, offsets, Part::Offsets)?,
                None => scales,
            };
            (codes == scales && codes == offsets).then_some(codes)
        }
    }

    /// A part of the right factor in panels: the weight, its first panel and block.
    unsafe fn part_in_place(
        &self,
        params: &[Param],
        code: &BlocksCode,
        access: &BlockAccess,
        part: Part,
    ) -> Option<(*const u8, usize, usize)> {
        let param = &params[access.window.param];
        let Layout::StoredPanels { row_len, cut, part: Some(own) } = param.layout else { return None };
        // Elements of the part for each block.
        let each = part.columns(BLOCK);
        let width = param.layout.row(row_len);
        let plain = Param { layout: Layout::RowPanels { row_len: width, pair: 1, cut }, ..*param };
        // SAFETY: numbers of the plan.
        let (place, at, depth) = unsafe { self.panels(&plain, width, access, (each * code.blocks, code.columns), 1)? };
        let whole = own == part && at % each == 0 && depth == each * code.blocks;
        whole.then_some((param.base.cast_const(), place / PANEL, at / each))
    }

    /// Multiplies copies of the operands, one number at a time.
    unsafe fn copied_blocks(&mut self, params: &[Param], code: &BlocksCode, rows: usize) {
        // SAFETY: the caller's; places of the plan have room for the windows.
        unsafe {
            let windows = [&code.hi, &code.scale, &code.codes, &code.scales];
            for access in windows.into_iter().chain(&code.lo) {
                self.load_block(params, access);
            }
            for access in code.minima.iter().flat_map(|(sums, offsets)| [sums, offsets]) {
                self.load_block(params, access);
            }
            for (t, n) in (0..rows).flat_map(|t| (0..code.columns).map(move |n| (t, n))) {
                let to = self.base.add(code.dst as usize + t * code.dst_row as usize).cast::<f32>().add(n);
                let mut acc = if code.accumulate { *to } else { 0.0 };
                for block in 0..code.blocks {
                    acc = self.copied_block(code, (t, n), block, acc);
                }
                *to = acc;
            }
        }
    }

    /// Adds a block to an accumulator.
    unsafe fn copied_block(&self, code: &BlocksCode, (t, n): (usize, usize), block: usize, mut acc: f32) -> f32 {
        let at = |access: &BlockAccess, row: usize, column: usize| {
            // SAFETY: the tile has the row and the column, each of four bytes.
            unsafe { self.base.add(access.tile.at as usize + row * access.tile.row as usize + 4 * column) }
        };
        // SAFETY: as above.
        let int = |access: &BlockAccess, row, column| unsafe { *at(access, row, column).cast::<i32>() };
        // SAFETY: as above.
        let number = |access: &BlockAccess, row, column| unsafe { *at(access, row, column).cast::<f32>() };
        let parts = if code.halves { HALVES } else { 1 };
        let x = number(&code.scale, t, block);
        for part in 0..parts {
            let k = BLOCK * block + part * BLOCK / parts..BLOCK * block + (part + 1) * BLOCK / parts;
            let dot = |left: &BlockAccess| {
                let products = k.clone().map(|k| int(left, t, k).wrapping_mul(int(&code.codes, k, n)));
                products.fold(0i32, i32::wrapping_add)
            };
            let mut sum = dot(&code.hi);
            if let Some(lo) = &code.lo {
                sum = sum.wrapping_mul(256).wrapping_add(dot(lo));
            }
            let half = HALVES * block + part;
            acc = fma(sum as f32, mul(number(&code.scales, half, n), x), acc);
            if let Some((sums, offsets)) = &code.minima {
                let sums = match code.halves {
                    true => number(sums, t, half),
                    false => add(number(sums, t, half), number(sums, t, half + 1)),
                };
                acc = fma(number(offsets, half, n), mul(x, sums), acc);
            }
        }
        acc
    }
}
