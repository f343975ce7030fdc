//! Dots: operands are read in place if layout, alignment and bounds allow it, otherwise from a copy.

use vosti_tile::{Padding, Scalar};

use super::{Expanded, Machine, Param};
use crate::memory::Region;
use crate::plan::code::{BlockAccess, DotCode, Int, IntDotCode, Operand, Place, WindowAxis};
use vosti_simd::layout::{Layout, PANEL, block_columns};
use vosti_simd::micro::{Dot, DotFn, Stored, dot_stored};
use vosti_simd::storage::{self, Form};

/// A right operand in stored panels: the weight, the first panel, the first k, and the number of k in memory.
struct Panels {
    weight: *const u8,
    panel: usize,
    k: usize,
    depth: usize,
}

/// A right operand in memory: address of its first column, and elements between steps.
struct Right {
    at: *const u8,
    step: usize,
    /// Columns per panel.
    panel: usize,
    /// Bytes between panels.
    next: usize,
    /// The number of k in memory; beyond it the operand is +0.
    depth: usize,
    /// The number of columns in memory; beyond it the operand is +0.
    columns: usize,
}

/// The number of k of each operand that are in memory, and of the whole dot. Beyond it an operand is +0. The left operand is
/// readable over the whole depth, or ends where the right one does.
#[derive(Clone, Copy)]
struct Depth {
    left: usize,
    right: usize,
    whole: usize,
}

/// Zeros for an operand beyond its end: one step of 64 columns of FP32 or of pairs of BF16.
#[repr(align(64))]
struct Zeros([u8; 4 * PANEL]);
static ZEROS: Zeros = Zeros([0; 4 * PANEL]);

/// Runs a dot whose operands may end before the dot does, as if zeros followed them. `run` runs the steps of a dot that the
/// right operand has in memory, from a step number on.
///
/// A product of two zeros is +0. Adding it twice is the same as adding it once, so one step of zeros replaces all.
///
/// # Safety
/// As for [`DotFn`], of the operands as far as they lie in memory.
unsafe fn product<T: Copy>(
    kernel: DotFn<T>,
    dot: &Dot<T>,
    depth: Depth,
    pair: usize,
    mut run: impl FnMut(&Dot<T>, usize),
) {
    let whole = depth.whole / pair;
    // A right operand is padded to whole steps.
    let readable = depth.left > depth.right;
    let mut done = if readable { depth.right.div_ceil(pair) } else { depth.right / pair };
    if done > 0 {
        run(&Dot { steps: done, ..*dot }, 0);
    }
    if !readable && !depth.right.is_multiple_of(pair) {
        for first in (0..dot.rows).step_by(PANEL) {
            let rows = PANEL.min(dot.rows - first);
            let mut last = [0u32; PANEL];
            // SAFETY: the last element of rows of the left operand; a pair has room for it; rows of the product.
            unsafe {
                for (row, pair) in last[..rows].iter_mut().enumerate() {
                    *std::ptr::from_mut(pair).cast::<T>() = *dot.a.add((first + row) * dot.a_row + depth.right - 1);
                }
                let (a, c) = (last.as_ptr().cast(), dot.c.add(first * dot.c_row));
                let accumulate = dot.accumulate || done > 0;
                // The right operand has this step at number `done`.
                run(&Dot { a, a_row: pair, c, rows, steps: 1, accumulate, ..*dot }, done);
            }
        }
        done += 1;
    }
    if done < whole {
        let zeros = ZEROS.0.as_ptr().cast();
        let rest = match readable {
            // SAFETY: the left operand has them.
            true => Dot { a: unsafe { dot.a.add(done * pair) }, steps: whole - done, ..*dot },
            false => Dot { a: zeros, a_row: 0, steps: 1, ..*dot },
        };
        let rest = Dot { b: zeros, b_step: 0, accumulate: dot.accumulate || done > 0, ..rest };
        // SAFETY: as above, and of zeros.
        unsafe { in_zeros(kernel, &rest) }
    }
}

/// A dot whose right operand is zeros, 64 columns at a time.
///
/// # Safety
/// As for [`DotFn`].
unsafe fn in_zeros<T: Copy>(kernel: DotFn<T>, dot: &Dot<T>) {
    for column in (0..dot.columns).step_by(PANEL) {
        let columns = PANEL.min(dot.columns - column);
        // SAFETY: columns of the product.
        unsafe { kernel(&Dot { c: dot.c.add(column), columns, ..*dot }) }
    }
}

impl Machine {
    /// A dot of integers that no register kernel takes. Its sum wraps.
    pub(super) unsafe fn int_dot(&mut self, code: &IntDotCode) {
        let row = |place: Place, row: usize| place.at as usize + row * place.row as usize;
        for t in 0..self.n(code.rows) {
            // SAFETY: places of the plan, with as many lanes; `dst` is no operand's place.
            unsafe {
                let lanes = |place: Place, t: usize| self.base.add(row(place, t)).cast::<i32>();
                let dst = std::slice::from_raw_parts_mut(lanes(code.dst, t), code.columns);
                dst.copy_from_slice(std::slice::from_raw_parts(lanes(code.start, t), code.columns));
                for k in 0..code.depth {
                    let x = *lanes(code.a, t).add(k);
                    let weights = std::slice::from_raw_parts(lanes(code.b, k), code.columns);
                    dst.iter_mut().zip(weights).for_each(|(sum, w)| *sum = sum.wrapping_add(x.wrapping_mul(*w)));
                }
            }
        }
    }

    pub(super) unsafe fn dot(&mut self, params: &[Param], code: &DotCode) {
        // SAFETY: the caller's; element types of the operands are the code's.
        unsafe {
            match code.elem {
                Scalar::F32 => self.dot_of::<f32>(params, code, self.kernels.f32, 1),
                _ => match self.stored(params, code) {
                    Some(panels) => self.dot_stored(params, code, panels),
                    None => self.dot_of::<u16>(params, code, self.kernels.bf16, 2),
                },
            }
        }
    }

    /// The right operand, if it is in stored panels and begins at a panel's edge and at a multiple of the granule.
    #[inline(always)]
    unsafe fn stored(&self, params: &[Param], code: &DotCode) -> Option<Panels> {
        let Operand::Memory(access) = &code.b else { return None };
        let Layout::StoredPanels { row_len, cut, part: None } = params[access.window.param].layout else { return None };
        let plain = Param { layout: Layout::RowPanels { row_len, pair: 2, cut }, ..params[access.window.param] };
        // SAFETY: numbers of the plan.
        let (row, k, depth) = unsafe { self.panels(&plain, row_len, access, (code.depth, code.columns), 2)? };
        let panels = Panels { weight: plain.base, panel: row / PANEL, k, depth };
        let granular = (0..code.columns.div_ceil(PANEL)).all(|i| {
            // SAFETY: the operand is inside the weight.
            let granule = unsafe { storage::panel(panels.weight, panels.panel + i) }.form.granule();
            // An odd number of k is padded with a zero to a whole pair.
            k.is_multiple_of(granule) && (granule == 2 || depth.is_multiple_of(granule))
        });
        granular.then_some(panels)
    }

    unsafe fn dot_stored(&mut self, params: &[Param], code: &DotCode, right: Panels) {
        let rows = self.n(code.rows.count);
        if rows == 0 {
            return;
        }
        // SAFETY: as in `dot_of`.
        unsafe {
            let (a, a_row, left) = self.left::<u16>(params, code, rows, right.depth);
            let depth = Depth { left, right: right.depth, whole: code.depth };
            let c = self.base.add(code.dst as usize).cast::<f32>();
            let bf16 = self.kernels.bf16;
            for column in (0..code.columns).step_by(PANEL) {
                let panel = storage::panel(right.weight, right.panel + column / PANEL);
                let dot = Dot {
                    a,
                    a_row,
                    b: panel.at.cast::<u16>().add(right.k * PANEL),
                    b_step: 2 * PANEL,
                    c: c.add(column),
                    c_row: code.dst_row as usize / 4,
                    rows,
                    columns: PANEL.min(code.columns - column),
                    steps: code.depth / 2,
                    accumulate: code.accumulate,
                };
                product(bf16, &dot, depth, 2, |dot, first| match panel.form {
                    Form::Bf16 => bf16(&Dot { b: dot.b.add(first * dot.b_step), ..*dot }),
                    _ => {
                        let step = right.k / 2 + first;
                        self.dot_panel(*dot, Stored { panel, step, keep: std::ptr::null_mut() });
                    }
                });
            }
        }
    }

    /// A dot with a panel that is not in BF16. If more than a few rows expand the panel, the next programs read the expanded one.
    unsafe fn dot_panel(&mut self, dot: Dot<u16>, mut stored: Stored) {
        if dot.steps > 1 && dot.rows > (self.kernels.few)(stored.panel.form) {
            let known = |known: &&Expanded| {
                known.panel == stored.panel.at && known.step == stored.step && known.steps == dot.steps
            };
            if let Some(known) = self.expanded.iter().find(known) {
                // SAFETY: the caller's; all of the dot's steps were expanded.
                return unsafe { (self.kernels.bf16)(&Dot { b: known.elements.base().cast(), ..dot }) };
            }
            stored.keep = self.room(stored.panel.at, stored.step, dot.steps).unwrap_or(std::ptr::null_mut());
        }
        // SAFETY: the caller's.
        unsafe { dot_stored(&self.kernels, &dot, &stored) }
    }

    /// Room to expand a panel, in place of the panel that was expanded first; `None` if there is no memory.
    fn room(&mut self, panel: *const u8, step: usize, steps: usize) -> Option<*mut u16> {
        self.expanded.swap(0, 1);
        let [_, oldest] = &mut self.expanded;
        // At least the size of a large page.
        let bytes = (steps * 2 * PANEL * 2).max(2 << 20);
        oldest.panel = std::ptr::null();
        if oldest.elements.len() < bytes {
            oldest.elements = Region::zeroed(bytes).ok()?;
        }
        (oldest.panel, oldest.step, oldest.steps) = (panel, step, steps);
        Some(oldest.elements.base().cast())
    }

    unsafe fn dot_of<T: Copy>(&mut self, params: &[Param], code: &DotCode, kernel: DotFn<T>, pair: usize) {
        let rows = self.n(code.rows.count);
        if rows == 0 {
            return;
        }
        // SAFETY: places of the plan; memory operands were checked when they were located.
        unsafe {
            let right = match &code.b {
                Operand::Memory(access) => match self.right(params, access, code, pair) {
                    Some(right) => right,
                    None => {
                        self.load_block(params, access);
                        self.pack::<T>(code, access.tile.at, access.tile.row, pair)
                    }
                },
                Operand::Scratch { at, row } => self.pack::<T>(code, *at, *row, pair),
            };
            let (a, a_row, left) = self.left::<T>(params, code, rows, right.depth);
            let depth = Depth { left, right: right.depth, whole: code.depth };
            let c = self.base.add(code.dst as usize).cast::<f32>();
            let mut column = 0;
            while column < code.columns {
                // Lanes past the last column are padding of the result's rows.
                let (there, columns) = match right.columns.saturating_sub(column) {
                    0 => (false, (code.columns - column).min(PANEL)),
                    more => (true, right.panel.min(more).min(code.columns - column)),
                };
                let columns = columns.next_multiple_of(16);
                let dot = Dot {
                    a,
                    a_row,
                    b: if there {
                        right.at.add(column / right.panel * right.next).cast()
                    } else {
                        ZEROS.0.as_ptr().cast()
                    },
                    b_step: if there { right.step } else { 0 },
                    c: c.add(column),
                    c_row: code.dst_row as usize / 4,
                    rows,
                    columns,
                    steps: code.depth / pair,
                    accumulate: code.accumulate,
                };
                product(kernel, &dot, depth, pair, |dot, first| {
                    kernel(&Dot { b: dot.b.add(first * dot.b_step), ..*dot });
                });
                column += columns;
            }
        }
    }

    /// The left operand: address, elements between rows, and the number of a row's elements in memory. That is the whole depth,
    /// or that of the right operand if zeros follow.
    unsafe fn left<T: Copy>(
        &mut self,
        params: &[Param],
        code: &DotCode,
        rows: usize,
        right: usize,
    ) -> (*const T, usize, usize) {
        // SAFETY: places of the plan; a memory operand is used only if all of it is inside its buffer.
        unsafe {
            let access = match &code.a {
                Operand::Scratch { at, row } => {
                    return (self.base.add(*at as usize).cast(), *row as usize / size_of::<T>(), code.depth);
                }
                Operand::Memory(access) => access,
            };
            let param = &params[access.window.param];
            let [row, column] = [access.window.axes[0], access.window.axes[1]];
            let base = access.window.base.iter().map(|int| self.int(*int)).sum::<i64>();
            let (row_offset, column_offset) = (self.int(row.offset), self.int(column.offset));
            let stride = self.int(row.stride);
            let depth = self.reach(access, &column, column_offset, code.depth);
            let first = base + row_offset * stride + column_offset;
            let last = first + (rows as i64 - 1) * stride + depth as i64 - 1;
            let in_place = param.layout == Layout::RowMajor
                && column.stride == Int::Const(1)
                && stride >= 0
                && (depth == code.depth || depth == right && depth > 0)
                && self.rows_inside(access, code.rows)
                && first >= 0
                && last < param.len as i64;
            if in_place {
                return (param.base.cast::<T>().add(first as usize), stride as usize, depth);
            }
            self.load_block(params, access);
            (self.base.add(access.tile.at as usize).cast(), access.tile.row as usize / size_of::<T>(), code.depth)
        }
    }

    /// The number of lanes of an axis that are inside, counted from its first lane: `extent` if all are, fewer if +0 follows
    /// them, and 0 if the operand must be copied.
    #[inline(always)]
    unsafe fn reach(&self, access: &BlockAccess, axis: &WindowAxis, offset: i64, extent: usize) -> usize {
        if !axis.check {
            return extent;
        }
        // SAFETY: a number of the plan.
        let inside = unsafe { self.int(axis.shape) }.saturating_sub(offset);
        match inside >= extent as i64 {
            _ if offset < 0 => 0,
            true => extent,
            false if access.padding == Padding::Zero => inside.max(0) as usize,
            false => 0,
        }
    }

    /// Of a right operand in panels: the place of its first row, its first k, and the number of k. `None` unless it begins at a
    /// panel's edge and ends inside the matrix or where the padding begins. `whole` has the k and the columns of the dot.
    #[inline(always)]
    pub(super) unsafe fn panels(
        &self,
        param: &Param,
        row_len: usize,
        access: &BlockAccess,
        whole: (usize, usize),
        pair: usize,
    ) -> Option<(usize, usize, usize)> {
        let [deep, wide] = [access.window.axes[0], access.window.axes[1]];
        // SAFETY: numbers of the plan.
        let (base, k, column) = unsafe { self.origin(access, whole.1)? };
        // SAFETY: as above.
        let (depth, columns) = unsafe {
            let depth = self.reach(access, &deep, k as i64, whole.0);
            (depth, self.reach(access, &wide, column as i64, whole.1))
        };
        let matches = deep.stride == Int::Const(1) && wide.stride == Int::Const(row_len as i64);
        if !matches || depth == 0 || columns == 0 || base % row_len != 0 || k % pair != 0 || k + depth > row_len {
            return None;
        }
        let row = base / row_len + column;
        let place = param.layout.place(row);
        // The places of the rows that are inside are consecutive.
        let follows = param.layout.place(row + columns - 1) == place + columns - 1;
        // Zeros follow the last k of a row, and the last row of each stacked matrix.
        let ends = |all: bool, end: bool| all || end;
        let (rows, next) = (param.len / row_len, row + columns);
        let last = next == rows || next < rows && param.layout.place(next) > place + columns;
        let padded = place % PANEL + whole.1 <= (place % PANEL + columns).next_multiple_of(PANEL);
        let fits =
            next <= rows && ends(depth == whole.0, k + depth == row_len) && ends(columns == whole.1, last && padded);
        (fits && follows && place.is_multiple_of(PANEL)).then_some((place, k, depth))
    }

    /// Base and offsets (k, column) of a right operand's window, if its columns are whole groups of lanes.
    #[inline(always)]
    pub(super) unsafe fn origin(&self, access: &BlockAccess, columns: usize) -> Option<(usize, usize, usize)> {
        let [deep, wide] = [access.window.axes[0], access.window.axes[1]];
        // SAFETY: numbers of the plan.
        let (base, deep_offset, wide_offset) = unsafe {
            let base = access.window.base.iter().map(|int| self.int(*int)).sum::<i64>();
            (base, self.int(deep.offset), self.int(wide.offset))
        };
        if base < 0 || deep_offset < 0 || wide_offset < 0 || !columns.is_multiple_of(16) {
            return None;
        }
        Some((base as usize, deep_offset as usize, wide_offset as usize))
    }

    /// The right operand in place, if it is packed in memory and inside, or followed by zeros.
    #[inline(always)]
    unsafe fn right(&self, params: &[Param], access: &BlockAccess, code: &DotCode, pair: usize) -> Option<Right> {
        let param = &params[access.window.param];
        let [deep, wide] = [access.window.axes[0], access.window.axes[1]];
        // SAFETY: numbers of the plan.
        let (base, deep_offset, wide_offset) = unsafe { self.origin(access, code.columns)? };
        // SAFETY: as above.
        let (depth, columns) = unsafe {
            let depth = self.reach(access, &deep, deep_offset as i64, code.depth);
            (depth, self.reach(access, &wide, wide_offset as i64, code.columns))
        };
        let bytes = 4 / pair;
        match param.layout {
            Layout::RowPanels { row_len, pair: p, .. } if p == pair => {
                // SAFETY: as above.
                let (place, k, depth) =
                    unsafe { self.panels(param, row_len, access, (code.depth, code.columns), pair)? };
                let padded = row_len.next_multiple_of(pair);
                Some(Right {
                    // SAFETY: the panel and everything after it that is read lies inside the buffer.
                    at: unsafe { param.base.add((place * padded + k * PANEL) * bytes) },
                    step: PANEL * pair,
                    panel: PANEL,
                    next: PANEL * padded * bytes,
                    depth,
                    columns: code.columns,
                })
            }
            Layout::RowPanels { .. } | Layout::StoredPanels { .. } => None,
            Layout::RowPairs { row_len, pair: p } => {
                let matches = p == pair && wide.stride == Int::Const(1) && deep.stride == Int::Const(row_len as i64);
                let (row, column) = (base / row_len + deep_offset, base % row_len + wide_offset);
                let block = block_columns(row_len);
                // Steps are at one distance inside a block, and across blocks if a row has one block.
                let even = row % pair == 0 && (row % PANEL + code.depth <= PANEL || block >= row_len);
                // Zeros follow the last column of a row.
                let end = column + columns == row_len && column % 16 == 0;
                let fits = depth == code.depth
                    && (columns == code.columns || columns > 0 && end)
                    && column + columns <= row_len
                    && (row + code.depth) * row_len <= param.len;
                let there = columns.next_multiple_of(16);
                let whole = column % block == 0 || column % block + there <= block;
                (matches && even && fits && whole).then(|| Right {
                    // SAFETY: the blocks that are read lie inside the buffer.
                    at: unsafe { param.base.add(param.layout.position(row * row_len + column) * bytes) },
                    step: block * pair,
                    panel: block.min(there),
                    next: PANEL * block * bytes,
                    depth,
                    columns: there,
                })
            }
            Layout::RowMajor => {
                let stride = match deep.stride {
                    Int::Const(stride) if stride >= 0 => stride as usize,
                    _ => return None,
                };
                let first = base + deep_offset * stride + wide_offset;
                let inside = depth == code.depth && columns == code.columns;
                let fits = inside && first + (code.depth - 1) * stride + code.columns <= param.len;
                (pair == 1 && wide.stride == Int::Const(1) && fits).then(|| Right {
                    // SAFETY: as above.
                    at: unsafe { param.base.add(first * bytes) },
                    step: stride,
                    panel: code.columns,
                    next: 0,
                    depth,
                    columns,
                })
            }
        }
    }

    /// Packs a right operand from row-major scratch.
    unsafe fn pack<T: Copy>(&mut self, code: &DotCode, at: u32, row: u32, pair: usize) -> Right {
        let bytes = size_of::<T>();
        let padded = code.columns.next_multiple_of(16);
        // SAFETY: the operand has `depth` rows of `columns`; the packed place has room for padded ones.
        unsafe {
            let to = self.base.add(code.b_packed as usize);
            for k in 0..code.depth {
                let from = self.base.add(at as usize + k * row as usize).cast::<T>();
                let to = to.cast::<T>().add(k / pair * padded * pair + k % pair);
                for c in 0..code.columns {
                    *to.add(c * pair) = *from.add(c);
                }
            }
            debug_assert_eq!(bytes, 4 / pair);
            Right { at: to, step: padded * pair, panel: padded, next: 0, depth: code.depth, columns: code.columns }
        }
    }
}
