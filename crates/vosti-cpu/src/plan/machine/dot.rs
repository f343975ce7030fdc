//! Dots: operands are read in place if layout, alignment and bounds allow it, otherwise from a copy.

use vosti_tile::Scalar;

use super::{Expanded, Machine, Param};
use crate::layout::{Layout, PANEL, block_columns};
use crate::memory::Region;
use crate::micro::{Dot, DotFn, Stored, dot_stored};
use crate::plan::code::{BlockAccess, DotCode, Int, Operand};
use crate::storage::{self, Form};

/// A right operand in stored panels: its first panel and k.
struct Panels {
    weight: *const u8,
    panel: usize,
    k: usize,
}

/// Where a right operand's columns start: address, elements between steps, columns that follow on.
struct Right {
    at: *const u8,
    step: usize,
    /// Columns per panel, and bytes between panels.
    panel: usize,
    next: usize,
}

impl Machine {
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

    /// The right operand in stored panels, if it is, lies at their edges and is wholly inside.
    #[inline(always)]
    unsafe fn stored(&self, params: &[Param], code: &DotCode) -> Option<Panels> {
        let Operand::Memory(access) = &code.b else { return None };
        let Layout::StoredPanels { row_len } = params[access.window.param].layout else { return None };
        let plain = Param { layout: Layout::RowPanels { row_len, pair: 2 }, ..params[access.window.param] };
        // SAFETY: numbers of the plan.
        let (row, k) = unsafe { self.panels(&plain, row_len, access, code, 2)? };
        let panels = Panels { weight: plain.base, panel: row / PANEL, k };
        let granular = (0..code.columns.div_ceil(PANEL)).all(|i| {
            // SAFETY: the operand is inside the weight.
            let granule = unsafe { storage::panel(panels.weight, panels.panel + i) }.form.granule();
            k.is_multiple_of(granule) && code.depth.is_multiple_of(granule)
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
            let (a, a_row) = self.left::<u16>(params, code, rows);
            let c = self.base.add(code.dst as usize).cast::<f32>();
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
                match panel.form {
                    Form::Bf16 => (self.kernels.bf16)(&dot),
                    _ => self.dot_panel(dot, Stored { panel, step: right.k / 2, keep: std::ptr::null_mut() }),
                }
            }
        }
    }

    /// A panel that is not in BF16. What more than a few rows expand is there for the programs that follow.
    unsafe fn dot_panel(&mut self, dot: Dot<u16>, mut stored: Stored) {
        if dot.rows > (self.kernels.few)(stored.panel.form) {
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

    /// Room for a panel that will be expanded now; none if there is no memory for it.
    fn room(&mut self, panel: *const u8, step: usize, steps: usize) -> Option<*mut u16> {
        self.expanded.swap(0, 1);
        let [_, oldest] = &mut self.expanded;
        // Large pages begin with this.
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
            let (a, a_row) = self.left::<T>(params, code, rows);
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
            let c = self.base.add(code.dst as usize).cast::<f32>();
            let mut column = 0;
            while column < code.columns {
                // Lanes past the last column are padding of the result's rows.
                let columns = right.panel.min(code.columns - column).next_multiple_of(16);
                kernel(&Dot {
                    a,
                    a_row,
                    b: right.at.add(column / right.panel * right.next).cast(),
                    b_step: right.step,
                    c: c.add(column),
                    c_row: code.dst_row as usize / 4,
                    rows,
                    columns,
                    steps: code.depth / pair,
                    accumulate: code.accumulate,
                });
                column += columns;
            }
        }
    }

    /// The left operand's rows: address and elements between rows.
    unsafe fn left<T: Copy>(&mut self, params: &[Param], code: &DotCode, rows: usize) -> (*const T, usize) {
        // SAFETY: places of the plan; a memory operand is used only if all of it is inside its buffer.
        unsafe {
            let access = match &code.a {
                Operand::Scratch { at, row } => {
                    return (self.base.add(*at as usize).cast(), *row as usize / size_of::<T>());
                }
                Operand::Memory(access) => access,
            };
            let param = &params[access.window.param];
            let [row, column] = [access.window.axes[0], access.window.axes[1]];
            let base = access.window.base.iter().map(|int| self.int(*int)).sum::<i64>();
            let (row_offset, column_offset) = (self.int(row.offset), self.int(column.offset));
            let stride = self.int(row.stride);
            let end = column_offset + code.depth as i64;
            let columns_inside = !column.check || column_offset >= 0 && end <= self.int(column.shape);
            let first = base + row_offset * stride + column_offset;
            let last = first + (rows as i64 - 1) * stride + code.depth as i64 - 1;
            let in_place = param.layout == Layout::RowMajor
                && column.stride == Int::Const(1)
                && stride >= 0
                && columns_inside
                && self.rows_inside(access, code.rows)
                && first >= 0
                && last < param.len as i64;
            if in_place {
                return (param.base.cast::<T>().add(first as usize), stride as usize);
            }
            self.load_block(params, access);
            (self.base.add(access.tile.at as usize).cast(), access.tile.row as usize / size_of::<T>())
        }
    }

    /// The first row and k of a right operand in panels, if it begins at their edges and is wholly inside.
    #[inline(always)]
    unsafe fn panels(
        &self,
        param: &Param,
        row_len: usize,
        access: &BlockAccess,
        code: &DotCode,
        pair: usize,
    ) -> Option<(usize, usize)> {
        let [deep, wide] = [access.window.axes[0], access.window.axes[1]];
        // SAFETY: numbers of the plan.
        let (base, deep_offset, wide_offset) = unsafe { self.inside_at(access, code)? };
        let matches = deep.stride == Int::Const(1) && wide.stride == Int::Const(row_len as i64);
        let (row, within) = (base / row_len + wide_offset, base % row_len);
        let aligned = within == 0 && row % PANEL == 0 && deep_offset % pair == 0;
        let fits = deep_offset + code.depth <= row_len && (row + code.columns) * row_len <= param.len;
        (matches && aligned && fits).then_some((row, deep_offset))
    }

    /// Base and offsets of a right operand's window, if all of it is inside and its columns are whole groups of lanes.
    #[inline(always)]
    unsafe fn inside_at(&self, access: &BlockAccess, code: &DotCode) -> Option<(usize, usize, usize)> {
        let [deep, wide] = [access.window.axes[0], access.window.axes[1]];
        // SAFETY: numbers of the plan.
        let (base, deep_offset, wide_offset) = unsafe {
            let base = access.window.base.iter().map(|int| self.int(*int)).sum::<i64>();
            (base, self.int(deep.offset), self.int(wide.offset))
        };
        let inside = |axis: &crate::plan::code::WindowAxis, offset: i64, extent: usize| {
            // SAFETY: as above.
            !axis.check || offset >= 0 && offset + extent as i64 <= unsafe { self.int(axis.shape) }
        };
        if !inside(&deep, deep_offset, code.depth) || !inside(&wide, wide_offset, code.columns) || base < 0 {
            return None;
        }
        if deep_offset < 0 || wide_offset < 0 || !code.columns.is_multiple_of(16) {
            return None;
        }
        Some((base as usize, deep_offset as usize, wide_offset as usize))
    }

    /// The right operand where it lies, if it lies packed and wholly inside.
    #[inline(always)]
    unsafe fn right(&self, params: &[Param], access: &BlockAccess, code: &DotCode, pair: usize) -> Option<Right> {
        let param = &params[access.window.param];
        let [deep, wide] = [access.window.axes[0], access.window.axes[1]];
        // SAFETY: numbers of the plan.
        let (base, deep_offset, wide_offset) = unsafe { self.inside_at(access, code)? };
        let bytes = 4 / pair;
        match param.layout {
            Layout::RowPanels { row_len, pair: p } if p == pair => {
                // SAFETY: as above.
                let (row, k) = unsafe { self.panels(param, row_len, access, code, pair)? };
                Some(Right {
                    // SAFETY: the panel and everything after it that is read lies inside the buffer.
                    at: unsafe { param.base.add((row * row_len + k * PANEL) * bytes) },
                    step: PANEL * pair,
                    panel: PANEL,
                    next: PANEL * row_len * bytes,
                })
            }
            Layout::RowPanels { .. } | Layout::StoredPanels { .. } => None,
            Layout::RowPairs { row_len, pair: p } => {
                let matches = p == pair && wide.stride == Int::Const(1) && deep.stride == Int::Const(row_len as i64);
                let (row, column) = (base / row_len + deep_offset, base % row_len + wide_offset);
                let block = block_columns(row_len);
                // Rows go on at one distance inside a block, and from block to block if there is one block in a row.
                let even = row % pair == 0 && (row % PANEL + code.depth <= PANEL || block == row_len);
                let fits = column + code.columns <= row_len && (row + code.depth) * row_len <= param.len;
                let whole = column % block == 0 || column % block + code.columns <= block;
                (matches && even && fits && whole).then(|| Right {
                    // SAFETY: the blocks that are read lie inside the buffer.
                    at: unsafe { param.base.add(param.layout.position(row * row_len + column) * bytes) },
                    step: block * pair,
                    panel: block.min(code.columns),
                    next: PANEL * block * bytes,
                })
            }
            Layout::RowMajor => {
                let stride = match deep.stride {
                    Int::Const(stride) if stride >= 0 => stride as usize,
                    _ => return None,
                };
                let first = base + deep_offset * stride + wide_offset;
                let fits = first + (code.depth - 1) * stride + code.columns <= param.len;
                (pair == 1 && wide.stride == Int::Const(1) && fits).then(|| Right {
                    // SAFETY: as above.
                    at: unsafe { param.base.add(first * bytes) },
                    step: stride,
                    panel: code.columns,
                    next: 0,
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
            Right { at: to, step: padded * pair, panel: padded, next: 0 }
        }
    }
}
