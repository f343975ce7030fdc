//! Loads and stores between parameters and scratch, through a buffer's layout.

use std::ops::Range;

use vosti_tile::{Padding, Scalar};

use super::bytes::{load_bytes, load_truth, store_bytes, store_truth};
use super::{Fault, Machine, Param};
use crate::plan::code::{BlockAccess, Fill, Int, Ints, Lanes, PointerAccess, WindowAxis};
use vosti_simd::layout::{Layout, PANEL, block_columns};
use vosti_simd::storage;
use vosti_simd::vector::ops::size;
use vosti_simd::vector::{Arg, LANES, Map};

/// A run of elements of one row: the flat index of the first, the distance between flat indices, the number of elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub index: i64,
    pub stride: i64,
    pub count: usize,
}

/// A row of a window: the flat index of its first column, the distance between columns, and the columns that are inside.
pub(super) struct WindowRow {
    index: i64,
    stride: i64,
    /// Columns `from..to` are inside.
    from: usize,
    to: usize,
}

/// The direction of a move between a parameter and scratch.
#[derive(Clone, Copy)]
enum Direction {
    Load,
    Store,
}

impl Machine {
    pub(super) unsafe fn load_block(&mut self, params: &[Param], access: &BlockAccess) {
        let param = params[access.window.param];
        let (rows, columns) = (self.n(access.rows.count), self.n(access.columns.count));
        // SAFETY: windows and tiles are places of the plan.
        if unsafe { self.whole_rows(&param, access, rows, columns, Direction::Load) } {
            return;
        }
        for r in 0..rows {
            let at = access.tile.at as usize + r * access.tile.row as usize;
            // SAFETY: as above.
            unsafe {
                let row = self.window_row(access, r, columns);
                match self.in_order(access.columns) && row.from < row.to {
                    true => {
                        self.pad(access, at, 0..row.from);
                        self.pad(access, at, row.to..columns);
                    }
                    false if row.from > 0 || row.to < columns => self.pad(access, at, 0..columns),
                    false => {}
                }
                self.window_lanes(&param, access, row, at, Direction::Load);
            }
        }
    }

    pub(super) unsafe fn store_block(&mut self, params: &[Param], access: &BlockAccess) {
        let param = params[access.window.param];
        let (rows, columns) = (self.n(access.rows.count), self.n(access.columns.count));
        // SAFETY: windows and tiles are places of the plan.
        if unsafe { self.whole_rows(&param, access, rows, columns, Direction::Store) } {
            return;
        }
        for r in 0..rows {
            let at = access.tile.at as usize + r * access.tile.row as usize;
            // SAFETY: as above.
            unsafe {
                let row = self.window_row(access, r, columns);
                self.window_lanes(&param, access, row, at, Direction::Store);
            }
        }
    }

    /// Moves a row-major window of whole groups of columns that lies inside its array. Moves nothing and returns false if the
    /// window is not of this kind.
    #[inline(always)]
    unsafe fn whole_rows(
        &mut self,
        param: &Param,
        access: &BlockAccess,
        rows: usize,
        columns: usize,
        direction: Direction,
    ) -> bool {
        let bytes = match access.elem {
            Scalar::I8 => 1,
            Scalar::Bf16 => 2,
            Scalar::F32 | Scalar::I32 => 4,
            _ => return false,
        };
        let [leading @ .., row, column] = &access.window.axes[..] else { return false };
        if leading.iter().any(|axis| axis.extent > 1) {
            return false;
        }
        let plain = param.layout == Layout::RowMajor && column.stride == Int::Const(1) && columns.is_multiple_of(16);
        if !plain || rows == 0 || !self.in_order(access.columns) {
            return false;
        }
        // SAFETY: numbers of the plan.
        unsafe {
            let offset = self.int(column.offset);
            let inside = !column.check || offset >= 0 && offset + columns as i64 <= self.int(column.shape);
            let stride = self.int(row.stride);
            if !inside || stride < 0 || !self.lanes_inside(row, access.rows) {
                return false;
            }
            let mut base = access.window.base.iter().map(|int| self.int(*int)).sum::<i64>();
            for axis in leading {
                let at = self.int(axis.offset);
                if axis.check && !(0..self.int(axis.shape)).contains(&at) {
                    return false;
                }
                base += at * self.int(axis.stride);
            }
            let first = base + self.int(row.offset) * stride + offset;
            let last = first + (rows as i64 - 1) * stride + columns as i64;
            if first < 0 || last > param.len as i64 {
                return false;
            }
            let memory = param.base.add(first as usize * bytes);
            let memory_row = stride as usize * bytes;
            let tile = self.base.add(access.tile.at as usize);
            let tile_row = access.tile.row as usize;
            let (src, src_row, dst, dst_row, f) = match (direction, access.elem) {
                (Direction::Load, Scalar::I8) => (memory, memory_row, tile, tile_row, self.moves.from_bytes),
                (Direction::Store, Scalar::I8) => (tile, tile_row, memory, memory_row, self.moves.to_bytes),
                (Direction::Load, Scalar::Bf16) => (memory, memory_row, tile, tile_row, self.moves.copy16),
                (Direction::Load, _) => (memory, memory_row, tile, tile_row, self.moves.copy32),
                (Direction::Store, Scalar::Bf16) => (tile, tile_row, memory, memory_row, self.moves.stored_bf16),
                (Direction::Store, Scalar::F32) => (tile, tile_row, memory, memory_row, self.moves.stored_f32),
                (Direction::Store, _) => (tile, tile_row, memory, memory_row, self.moves.copy32),
            };
            let none = Arg { at: src, row: 0, lanes: false };
            let args = [Arg { at: src, row: src_row, lanes: true }, none, none];
            f(&Map { dst, dst_row, args, rows, groups: columns / 16 });
        }
        true
    }

    /// Moves the inside columns of a window's row.
    #[inline(always)]
    unsafe fn window_lanes(
        &mut self,
        param: &Param,
        access: &BlockAccess,
        row: WindowRow,
        at: usize,
        direction: Direction,
    ) {
        let bytes = size(access.elem);
        // SAFETY: the caller's.
        unsafe {
            if self.in_order(access.columns) {
                if row.from < row.to {
                    let index = row.index + row.from as i64 * row.stride;
                    let run = Run { index, stride: row.stride, count: row.to - row.from };
                    self.run_lanes(param, access.window.param, access.elem, run, at + row.from * bytes, direction);
                }
                return;
            }
            for c in row.from..row.to {
                let lane = self.lane(access.columns, c) as i64;
                let run = Run { index: row.index + lane * row.stride, stride: 1, count: 1 };
                self.run_lanes(param, access.window.param, access.elem, run, at + c * bytes, direction);
            }
        }
    }

    /// Row `r` of a window. If the held columns have gaps, `from..to` counts held columns.
    #[inline(always)]
    pub(super) unsafe fn window_row(&self, access: &BlockAccess, r: usize, columns: usize) -> WindowRow {
        let axes = &access.window.axes;
        // SAFETY: numbers of the plan.
        unsafe {
            let mut index = access.window.base.iter().map(|int| self.int(*int)).sum::<i64>();
            let mut inside = true;
            let (last, leading) = axes.split_last().expect("a window has an axis");
            let rank1 = leading.is_empty();
            let mut rest = if rank1 { 0 } else { self.lane(access.rows, r) };
            for axis in leading.iter().rev() {
                // Extents of tiles are powers of two, which avoids a division: it would take most of a short row's time.
                let (coordinate, above) = match axis.extent.is_power_of_two() {
                    true => (rest & (axis.extent - 1), rest >> axis.extent.trailing_zeros()),
                    false => (rest % axis.extent, rest / axis.extent),
                };
                let at = self.int(axis.offset) + coordinate as i64;
                rest = above;
                inside &= !axis.check || at >= 0 && at < self.int(axis.shape);
                index += at * self.int(axis.stride);
            }
            let offset = self.int(last.offset);
            let stride = self.int(last.stride);
            // A one-column window of several rows with a single axis walks its rows.
            index += offset * stride;
            if !inside {
                return WindowRow { index, stride, from: 0, to: 0 };
            }
            if !last.check {
                return WindowRow { index, stride, from: 0, to: columns };
            }
            let bound = self.int(last.shape) - offset;
            if self.in_order(access.columns) {
                let from = (-offset).clamp(0, columns as i64) as usize;
                let to = bound.clamp(0, columns as i64) as usize;
                return WindowRow { index, stride, from: from.min(to), to };
            }
            let lane = |c: &usize| self.lane(access.columns, *c) as i64;
            let from = (0..columns).find(|c| lane(c) >= -offset).unwrap_or(columns);
            let to = (0..columns).rfind(|c| lane(c) < bound).map_or(0, |c| c + 1);
            WindowRow { index, stride, from: from.min(to), to }
        }
    }

    /// The flat index of the first column of row `r` of a window, if all columns are inside and follow one another.
    pub(super) unsafe fn whole_row(&self, access: &BlockAccess, r: usize, columns: usize) -> Option<i64> {
        // SAFETY: the caller's.
        let row = unsafe { self.window_row(access, r, columns) };
        (row.stride == 1 && (row.from, row.to) == (0, columns)).then_some(row.index)
    }

    unsafe fn pad(&mut self, access: &BlockAccess, at: usize, columns: Range<usize>) {
        let bytes = size(access.elem);
        for c in columns {
            let bits = match (access.padding, access.elem) {
                (Padding::Zero, _) => 0,
                (Padding::Nan, Scalar::Bf16) => 0x7fc0,
                (Padding::Nan, Scalar::F32) => 0x7fc0_0000,
                (Padding::Nan, _) => 0,
                (Padding::Undefined, _) => self.undefined(bytes),
            };
            // SAFETY: the tile's row has room for its columns.
            unsafe { self.put(at + c * bytes, bits, bytes) }
        }
    }

    #[inline(always)]
    unsafe fn put(&mut self, at: usize, bits: u64, bytes: usize) {
        // A copy of a number of bytes that is known when this is compiled is no call.
        // SAFETY: a place of the plan.
        unsafe {
            let to = self.base.add(at);
            match bytes {
                2 => to.cast::<u16>().write_unaligned(bits as u16),
                4 => to.cast::<u32>().write_unaligned(bits as u32),
                _ => to.cast::<u64>().write_unaligned(bits),
            }
        }
    }

    /// Moves one run. If the run leaves the buffer, nothing moves and the launch fails.
    #[inline(always)]
    unsafe fn run_lanes(
        &mut self,
        param: &Param,
        number: usize,
        elem: Scalar,
        run: Run,
        at: usize,
        direction: Direction,
    ) {
        let last = run.index + (run.count as i64 - 1) * run.stride;
        let (low, high) = (run.index.min(last), run.index.max(last));
        if low < 0 || high >= param.len as i64 {
            self.fault = Some(Fault { param: number });
            return;
        }
        // SAFETY: every index is within the buffer; the layout keeps it there; the tile has room.
        unsafe {
            let tile = self.base.add(at);
            match (direction, elem) {
                (Direction::Load, _) if let Layout::StoredPanels { .. } = param.layout => {
                    load_stored(param, elem, run, tile)
                }
                (Direction::Load, Scalar::I1) => load_truth(param, run, tile),
                (Direction::Store, Scalar::I1) => store_truth(param, run, tile),
                (Direction::Load, Scalar::I8) => load_bytes(param, run, tile.cast()),
                (Direction::Store, Scalar::I8) => store_bytes(param, run, tile.cast()),
                (Direction::Load, Scalar::Bf16) => load_run::<u16>(param, run, tile.cast()),
                (Direction::Load, Scalar::I64) => load_run::<u64>(param, run, tile.cast()),
                (Direction::Load, _) => load_run::<u32>(param, run, tile.cast()),
                (Direction::Store, Scalar::Bf16 | Scalar::F32) if self.stored_lanes(param, elem, run, tile) => {}
                (Direction::Store, Scalar::Bf16) => store_run(param, run, tile.cast(), canonical16),
                (Direction::Store, Scalar::F32) => store_run(param, run, tile.cast(), canonical32),
                (Direction::Store, Scalar::I64) => store_run(param, run, tile.cast(), |v: u64| v),
                (Direction::Store, _) => store_run(param, run, tile.cast(), |v: u32| v),
            }
        }
    }

    /// Stores a run of whole groups of lanes to a row-major buffer. Stores nothing and returns false if the run is not of this
    /// kind.
    #[inline(always)]
    unsafe fn stored_lanes(&self, param: &Param, elem: Scalar, run: Run, tile: *const u8) -> bool {
        if param.layout != Layout::RowMajor || run.stride != 1 || !run.count.is_multiple_of(LANES) {
            return false;
        }
        let (f, bytes) = match elem {
            Scalar::Bf16 => (self.moves.stored_bf16, 2),
            _ => (self.moves.stored_f32, 4),
        };
        let none = Arg { at: tile, row: 0, lanes: false };
        let args = [Arg { at: tile, row: 0, lanes: true }, none, none];
        // SAFETY: the caller checked every index; the tile has as many lanes.
        unsafe {
            let dst = param.base.add(run.index as usize * bytes);
            f(&Map { dst, dst_row: 0, args, rows: 1, groups: run.count / LANES });
        }
        true
    }

    pub(super) unsafe fn load(&mut self, params: &[Param], access: &PointerAccess) {
        // SAFETY: the caller's.
        unsafe { self.pointer_rows(params, access, Direction::Load) }
    }

    pub(super) unsafe fn store(&mut self, params: &[Param], access: &PointerAccess) {
        // SAFETY: the caller's.
        unsafe { self.pointer_rows(params, access, Direction::Store) }
    }

    #[inline(always)]
    unsafe fn pointer_rows(&mut self, params: &[Param], access: &PointerAccess, direction: Direction) {
        let param = params[access.param];
        let bytes = size(access.elem);
        let (rows, columns) = (self.n(access.rows.count), self.n(access.columns.count));
        // SAFETY: terms, masks and tiles are places of the plan with a lane for each row or column.
        unsafe {
            let all = access.all_masks.iter().all(|at| self.get32(*at) != 0);
            let base = access.cells.iter().map(|int| self.int(*int)).sum::<i64>();
            let whole_rows = all
                && access.lane_terms.is_empty()
                && access.lane_masks.is_empty()
                && (access.consecutive && self.in_order(access.columns) || columns == 1);
            let (from, to) = if whole_rows { self.inside(access, columns) } else { (0, 0) };
            for r in 0..rows {
                let at = access.tile.at as usize + r * access.tile.row as usize;
                let live = all && access.row_masks.iter().all(|m| self.get32(m + 4 * r as u32) != 0);
                let start = base + access.row_terms.iter().map(|t| self.term(*t, r)).sum::<i64>();
                if !live || !whole_rows || from > 0 || to < columns {
                    if let Direction::Load = direction {
                        self.fill(access, r, at, columns);
                    }
                    if !live {
                        continue;
                    }
                }
                if whole_rows && from <= to {
                    if from < to {
                        let first = access.column_terms.iter().map(|t| self.term(*t, 0)).sum::<i64>();
                        let run = Run { index: start + first + from as i64, stride: 1, count: to - from };
                        self.run_lanes(&param, access.param, access.elem, run, at + from * bytes, direction);
                    }
                    continue;
                }
                for c in 0..columns {
                    if !self.lane_live(access, r, c) {
                        continue;
                    }
                    let column = access.column_terms.iter().map(|t| self.term(*t, c)).sum::<i64>();
                    let lane = access.lane_terms.iter().map(|(t, row)| self.lane_term(*t, *row, r, c)).sum::<i64>();
                    let run = Run { index: start + column + lane, stride: 1, count: 1 };
                    self.run_lanes(&param, access.param, access.elem, run, at + c * bytes, direction);
                }
            }
        }
    }

    /// The columns `from..to` that the column masks leave, if they are one run; else `from > to`.
    unsafe fn inside(&self, access: &PointerAccess, columns: usize) -> (usize, usize) {
        if access.column_masks.is_empty() {
            return (0, columns);
        }
        // SAFETY: masks have a lane for each column.
        let live = |c: &usize| unsafe { access.column_masks.iter().all(|m| self.get32(m + 4 * *c as u32) != 0) };
        let from = (0..columns).find(live).unwrap_or(0);
        let to = (0..columns).rfind(live).map_or(0, |c| c + 1);
        if (from..to).all(|c| live(&c)) { (from, to) } else { (1, 0) }
    }

    #[inline(always)]
    pub(super) unsafe fn term(&self, ints: Ints, i: usize) -> i64 {
        // SAFETY: a lane of a vector of the plan.
        unsafe { self.get_int(ints.at + (i << if ints.wide { 3 } else { 2 }) as u32, ints.wide) }
    }

    unsafe fn lane_term(&self, ints: Ints, row: u32, r: usize, c: usize) -> i64 {
        // SAFETY: a lane of a tile of the plan.
        unsafe { self.term(Ints { at: ints.at + r as u32 * row, ..ints }, c) }
    }

    unsafe fn lane_live(&self, access: &PointerAccess, r: usize, c: usize) -> bool {
        // SAFETY: lanes of masks of the plan.
        unsafe {
            access.column_masks.iter().all(|m| self.get32(m + 4 * c as u32) != 0)
                && access.lane_masks.iter().all(|(m, row)| self.get32(m + r as u32 * row + 4 * c as u32) != 0)
        }
    }

    /// Writes the fill to a row.
    unsafe fn fill(&mut self, access: &PointerAccess, r: usize, at: usize, columns: usize) {
        let bytes = size(access.elem);
        for c in 0..columns {
            // SAFETY: places of the plan.
            unsafe {
                let bits = match access.fill {
                    Fill::Bits(bits) => bits,
                    Fill::Undefined => self.undefined(bytes),
                    Fill::Tile(place) => {
                        let from = place.at as usize + r * place.row as usize + if place.lanes { c * bytes } else { 0 };
                        let mut bits = [0; 8];
                        std::ptr::copy_nonoverlapping(self.base.add(from), bits.as_mut_ptr(), bytes);
                        u64::from_le_bytes(bits)
                    }
                };
                self.put(at + c * bytes, bits, bytes);
            }
        }
    }

    /// True if the lanes of the rows are held in order and all rows are inside, so that rows are one stride apart.
    pub(super) unsafe fn rows_inside(&self, access: &BlockAccess, rows: Lanes) -> bool {
        // SAFETY: numbers of the plan.
        unsafe { self.lanes_inside(&access.window.axes[0], rows) }
    }

    /// The same of an axis of a window, whose lanes are the rows.
    unsafe fn lanes_inside(&self, axis: &WindowAxis, rows: Lanes) -> bool {
        // SAFETY: numbers of the plan.
        unsafe {
            let offset = self.int(axis.offset);
            self.in_order(rows)
                && (!axis.check || offset >= 0 && offset + self.n(rows.count) as i64 <= self.int(axis.shape))
        }
    }
}

#[inline(always)]
fn canonical16(bits: u16) -> u16 {
    if bits & 0x7fff > 0x7f80 { 0x7fc0 } else { bits }
}

#[inline(always)]
fn canonical32(bits: u32) -> u32 {
    if bits & 0x7fff_ffff > 0x7f80_0000 { 0x7fc0_0000 } else { bits }
}

/// The position of a run's first element and the distance between positions, if all distances are equal.
#[inline(always)]
fn pattern(layout: Layout, run: Run) -> Option<(usize, isize)> {
    let index = run.index as usize;
    match layout {
        Layout::RowMajor => Some((index, run.stride as isize)),
        Layout::RowPairs { row_len, pair } if run.stride == 1 => {
            let (column, block) = (index % row_len, block_columns(row_len));
            (column % block + run.count <= block).then(|| (layout.position(index), pair as isize))
        }
        _ => None,
    }
}

/// The first position of a run of whole pairs within a row of panels. Pairs are `2 * PANEL` apart.
#[inline(always)]
fn paired_panel(layout: Layout, run: Run) -> Option<usize> {
    let Layout::RowPanels { row_len, pair: 2, .. } = layout else { return None };
    let index = run.index as usize;
    let whole = run.stride == 1 && index.is_multiple_of(2) && run.count.is_multiple_of(2);
    (whole && row_len.is_multiple_of(2) && index % row_len + run.count <= row_len).then(|| layout.position(index))
}

/// Calls `f` with the number and the position of each element of a run of consecutive indices. If the run stays in a row of a
/// packed layout, it divides only once, or once a block.
#[inline(always)]
fn each_panel_position(layout: Layout, run: Run, mut f: impl FnMut(usize, usize)) {
    let index = run.index as usize;
    match layout {
        Layout::RowPanels { row_len, pair, .. } if index % row_len + run.count <= row_len => {
            let start = layout.position(index - index % row_len);
            let first = index % row_len;
            for i in 0..run.count {
                let k = first + i;
                f(i, start + (k / pair) * (PANEL * pair) + k % pair);
            }
        }
        Layout::RowPairs { row_len, pair } if index % row_len + run.count <= row_len => {
            let block = block_columns(row_len);
            let mut done = 0;
            while done < run.count {
                let start = layout.position(index + done);
                let count = (run.count - done).min(block - (index + done) % row_len % block);
                (0..count).for_each(|i| f(done + i, start + i * pair));
                done += count;
            }
        }
        _ => (0..run.count).for_each(|i| f(i, layout.position(index + i))),
    }
}

#[inline(always)]
unsafe fn load_run<T: Copy>(param: &Param, run: Run, tile: *mut T) {
    let base: *const T = param.base.cast();
    // SAFETY: the caller checked every index.
    unsafe {
        match pattern(param.layout, run) {
            Some((at, 1)) => std::ptr::copy_nonoverlapping(base.add(at), tile, run.count),
            Some((at, by)) => (0..run.count).for_each(|i| *tile.add(i) = *base.offset(at as isize + i as isize * by)),
            None if run.stride == 1 => each_panel_position(param.layout, run, |i, at| *tile.add(i) = *base.add(at)),
            None => {
                for i in 0..run.count {
                    *tile.add(i) = *base.add(param.layout.position((run.index + i as i64 * run.stride) as usize));
                }
            }
        }
    }
}

unsafe fn load_stored(param: &Param, elem: Scalar, run: Run, tile: *mut u8) {
    for i in 0..run.count {
        // SAFETY: the caller checked every index; the tile has room.
        unsafe {
            let bits = storage::load(param.base, param.layout, (run.index + i as i64 * run.stride) as usize);
            match elem {
                Scalar::Bf16 => *tile.cast::<u16>().add(i) = bits as u16,
                Scalar::I8 => *tile.cast::<i32>().add(i) = i32::from(bits as u8 as i8),
                _ => *tile.cast::<u32>().add(i) = bits,
            }
        }
    }
}

#[inline(always)]
unsafe fn store_run<T: Copy>(param: &Param, run: Run, tile: *const T, canonical: impl Fn(T) -> T) {
    let base: *mut T = param.base.cast();
    // SAFETY: the caller checked every index.
    unsafe {
        if let Some(start) = paired_panel(param.layout, run) {
            for i in 0..run.count / 2 {
                let pair = [canonical(*tile.add(2 * i)), canonical(*tile.add(2 * i + 1))];
                base.add(start + i * (PANEL * 2)).cast::<[T; 2]>().write_unaligned(pair);
            }
            return;
        }
        match pattern(param.layout, run) {
            Some((at, 1)) => (0..run.count).for_each(|i| *base.add(at + i) = canonical(*tile.add(i))),
            Some((at, by)) => {
                (0..run.count).for_each(|i| *base.offset(at as isize + i as isize * by) = canonical(*tile.add(i)));
            }
            None if run.stride == 1 => {
                each_panel_position(param.layout, run, |i, at| *base.add(at) = canonical(*tile.add(i)));
            }
            None => {
                for i in 0..run.count {
                    let at = param.layout.position((run.index + i as i64 * run.stride) as usize);
                    *base.add(at) = canonical(*tile.add(i));
                }
            }
        }
    }
}
