//! Pointers, windows, loads and stores.

use std::rc::Rc;
use vosti_simd::vector::ops::size;

use vosti_tile::{OpKind, Padding, Value};

use super::tile::{Array, Block, Part, Pointer, StoredLanes, Sym, Tile, Whole, wide};
use super::{Compiler, Result};
use crate::plan::code::{BlockAccess, Fill, Instr, IntOp, Lanes, Place, PointerAccess, Window, WindowAxis};

impl<'k> Compiler<'k> {
    pub(super) fn add_pointer(&mut self, result: Value, ptr: Value, offset: Value) -> Result<()> {
        let Some(Sym::Pointer(pointer)) = self.env.get(&ptr).cloned() else {
            return self.unsupported("a computed pointer");
        };
        let mut parts = pointer.parts;
        parts.extend(self.parts(offset, true)?);
        self.define(result, Sym::Pointer(Pointer { param: pointer.param, parts }));
        Ok(())
    }

    pub(super) fn make_block(
        &mut self,
        result: Value,
        base: Value,
        shape: &[Value],
        strides: &[Value],
        offsets: &[Value],
    ) -> Result<()> {
        let Some(Sym::Pointer(pointer)) = self.env.get(&base).cloned() else {
            return self.unsupported("a window at a computed pointer");
        };
        let base = pointer.parts.into_iter().map(|part| match part {
            Part::Const(value) => Whole::Const(value),
            Part::Tile(tile) => Whole::Cell(tile),
        });
        let base = base.collect();
        let mut wholes = |values: &[Value]| values.iter().map(|v| self.whole(*v)).collect::<Result<Vec<_>>>();
        let (shape, strides, offsets) = (wholes(shape)?, wholes(strides)?, wholes(offsets)?);
        let extents = self.kernel.ty(result).shape().to_vec();
        let array = Rc::new(Array { param: pointer.param, base, shape, strides, extents });
        self.define(result, Sym::Block(Block { array, offsets }));
        Ok(())
    }

    pub(super) fn advance(&mut self, result: Value, ptr: Value, by: &[Value]) -> Result<()> {
        let Some(Sym::Block(mut block)) = self.env.get(&ptr).cloned() else {
            return self.unsupported("an advance of a computed window");
        };
        for (offset, by) in block.offsets.iter_mut().zip(by) {
            let by = self.whole(*by)?;
            *offset = match (&*offset, by) {
                (Whole::Const(a), Whole::Const(b)) => Whole::Const(i64::from((*a as i32).wrapping_add(b as i32))),
                (_, Whole::Const(0)) => continue,
                (offset, by) => {
                    let (a, b) = (offset.int(), by.int());
                    let memory = self.scratch.take(64);
                    let sum =
                        Tile { memory, elem: vosti_tile::Scalar::I32, stored: StoredLanes::Cell, consecutive: false };
                    self.code.push(Instr::Int { at: sum.memory.at, wide: false, op: IntOp::Add, a, b });
                    Whole::Cell(sum)
                }
            };
        }
        self.define(result, Sym::Block(block));
        Ok(())
    }

    /// Rows and columns of a value: its last wide axis is the columns.
    pub(super) fn rows_and_columns(&mut self, value: Value) -> (Lanes, Lanes) {
        let shape = self.kernel.ty(value).shape().to_vec();
        let one = Lanes { count: self.count(1), live: None };
        match wide(&shape)[..] {
            [] => (one, one),
            [axis] => (one, self.lanes(value, axis)),
            [row, column] => (self.lanes(value, row), self.lanes(value, column)),
            [ref rows @ .., column] => {
                let rows = rows.iter().map(|i| shape[*i]).product();
                (Lanes { count: self.count(rows), live: None }, self.lanes(value, column))
            }
        }
    }

    fn pointer_access(&mut self, value: Value, ptr: Value, mask: Option<Value>, tile: &Tile) -> Result<PointerAccess> {
        let Some(Sym::Pointer(pointer)) = self.env.get(&ptr).cloned() else {
            return self.unsupported("a computed pointer");
        };
        let (rows, columns) = self.rows_and_columns(value);
        let axes = wide(self.kernel.ty(value).shape());
        let row = if tile.stored == StoredLanes::Matrix { self.row_bytes(value) } else { 0 };
        let mut access = PointerAccess {
            param: pointer.param,
            elem: self.elem(value),
            rows,
            columns,
            tile: Place { at: tile.memory.at, row, lanes: true },
            cells: Vec::new(),
            row_terms: Vec::new(),
            column_terms: Vec::new(),
            consecutive: false,
            lane_terms: Vec::new(),
            all_masks: Vec::new(),
            row_masks: Vec::new(),
            column_masks: Vec::new(),
            lane_masks: Vec::new(),
            fill: Fill::Undefined,
        };
        let mut rising = 0;
        for part in &pointer.parts {
            let tile = match part {
                Part::Const(value) => {
                    access.cells.push(super::super::code::Int::Const(*value));
                    continue;
                }
                Part::Tile(tile) => tile,
            };
            match tile.stored {
                StoredLanes::Cell => access.cells.push(Whole::Cell(tile.clone()).int()),
                StoredLanes::Vector(axis) if axes.last() == Some(&axis) => {
                    rising += if tile.consecutive { 1 } else { 2 };
                    access.column_terms.push(tile.ints());
                }
                StoredLanes::Vector(axis) if axes.len() == 2 && axis == axes[0] => access.row_terms.push(tile.ints()),
                StoredLanes::Matrix => {
                    let row = axes.last().map_or(1, |a| self.kernel.ty(value).shape()[*a]).next_multiple_of(16);
                    access.lane_terms.push((tile.ints(), (row * size(tile.elem)) as u32));
                }
                StoredLanes::Vector(_) => return self.unsupported("an address of this rank"),
            }
        }
        access.consecutive = rising == 1;
        if let Some(mask) = mask {
            self.masks(value, mask, &mut access)?;
        }
        Ok(access)
    }

    fn masks(&mut self, value: Value, mask: Value, access: &mut PointerAccess) -> Result<()> {
        let axes = wide(self.kernel.ty(value).shape());
        let scalar = self.kernel.ty(mask).shape().is_empty();
        for part in self.parts(mask, false)? {
            let tile = match part {
                Part::Const(value) if value != 0 => continue,
                Part::Const(_) => self.constant(vosti_tile::Literal::Int(0), vosti_tile::Scalar::I1),
                Part::Tile(tile) => tile,
            };
            let at = tile.memory.at;
            match tile.stored {
                StoredLanes::Cell => access.all_masks.push(at),
                _ if scalar => return self.unsupported("a mask of this rank"),
                StoredLanes::Vector(axis) if axes.last() == Some(&axis) => access.column_masks.push(at),
                StoredLanes::Vector(axis) if axes.len() == 2 && axis == axes[0] => access.row_masks.push(at),
                StoredLanes::Matrix => {
                    let row = axes.last().map_or(1, |a| self.kernel.ty(value).shape()[*a]).next_multiple_of(16);
                    access.lane_masks.push((at, (row * 4) as u32));
                }
                StoredLanes::Vector(_) => return self.unsupported("a mask of this rank"),
            }
        }
        Ok(())
    }

    pub(super) fn load(&mut self, result: Value, ptr: Value, mask: Option<Value>, other: Option<Value>) -> Result<()> {
        let fill = self.fill(result, other)?;
        let tile = self.fresh(result);
        let mut access = self.pointer_access(result, ptr, mask, &tile)?;
        access.fill = fill;
        self.code.push(Instr::Load(Box::new(access)));
        self.define(result, Sym::Tile(tile));
        Ok(())
    }

    pub(super) fn store(&mut self, ptr: Value, value: Value, mask: Option<Value>) -> Result<()> {
        let tile = self.full(value)?;
        let access = self.pointer_access(value, ptr, mask, &tile)?;
        self.written[access.param] = true;
        self.code.push(Instr::Store(Box::new(access)));
        Ok(())
    }

    /// A window's numbers.
    pub(super) fn window(&self, block: &Block, check: &[usize]) -> Window {
        let array = &block.array;
        let axis = |i: usize| WindowAxis {
            extent: array.extents[i],
            shape: array.shape[i].int(),
            stride: array.strides[i].int(),
            offset: block.offsets[i].int(),
            check: check.contains(&i),
        };
        Window {
            param: array.param,
            base: array.base.iter().map(Whole::int).collect(),
            axes: (0..array.extents.len()).map(axis).collect(),
        }
    }

    pub(super) fn load_block(&mut self, result: Value, ptr: Value, check: &[usize], padding: Padding) -> Result<()> {
        let Some(Sym::Block(block)) = self.env.get(&ptr).cloned() else {
            return self.unsupported("a load from a computed window");
        };
        let merged = self.axes.merges.values().any(|v| *v == result);
        if merged || self.elem(result).is_float() && self.only_dots_read(result) {
            self.deferred[block.array.param] = Some(self.line);
            self.define(result, Sym::Pending { block, check: check.to_vec(), padding });
            return Ok(());
        }
        let tile = self.emit_load_block(result, result, &block, check, padding)?;
        self.define(result, Sym::Tile(tile));
        Ok(())
    }

    /// True if every reader is a dot, so that the dot may read memory in place of the load. No other parameter of a launch
    /// writes that memory: the wiring refuses such a launch (`broken_premise`). The kernel does not write it by this one
    /// either (`check_deferred`).
    fn only_dots_read(&self, value: Value) -> bool {
        let mut readers = 0;
        let mut dots = 0;
        self.kernel.walk(&mut |op| {
            let times = op.kind.operands().iter().filter(|v| **v == value).count();
            readers += times + op.kind.regions().iter().flat_map(|r| &r.yields).filter(|v| **v == value).count();
            if let OpKind::Dot { a, b, .. } = &op.kind {
                dots += usize::from(*a == value) + usize::from(*b == value);
            }
        });
        readers > 0 && readers == dots
    }

    /// Loads a window that a reshape merges into rows.
    pub(super) fn merged_load(&mut self, result: Value, x: Value) -> Result<()> {
        let Some(Sym::Pending { block, check, padding }) = self.env.get(&x).cloned() else {
            return self.unsupported("a reshape of a computed load");
        };
        let tile = self.emit_load_block(result, x, &block, &check, padding)?;
        self.define(result, Sym::Tile(tile));
        Ok(())
    }

    /// Emits the load of a window as `value`, whose rows are the window's leading axes merged.
    pub(super) fn emit_load_block(
        &mut self,
        value: Value,
        _window: Value,
        block: &Block,
        check: &[usize],
        padding: Padding,
    ) -> Result<Tile> {
        let tile = self.fresh(value);
        let access = self.block_access(value, block, check, padding, &tile);
        self.code.push(Instr::LoadBlock(Box::new(access)));
        Ok(tile)
    }

    fn block_access(
        &mut self,
        value: Value,
        block: &Block,
        check: &[usize],
        padding: Padding,
        tile: &Tile,
    ) -> BlockAccess {
        let shape = self.kernel.ty(value).shape().to_vec();
        let mut window = self.window(block, check);
        // Of a window with one wide axis, that axis is the columns.
        if let ([axis], [_]) = (&wide(&block.array.extents)[..], &wide(&shape)[..]) {
            window.axes[*axis..].rotate_left(1);
        }
        let columns_extent = window.axes.last().map_or(1, |axis| axis.extent);
        let (rows, columns) = match (wide(&shape)[..].split_last(), columns_extent) {
            (Some((last, leading)), n) if n > 1 => {
                let rows = match leading {
                    [axis] => self.lanes(value, *axis),
                    _ => Lanes { count: self.count(leading.iter().map(|i| shape[*i]).product()), live: None },
                };
                (rows, self.lanes(value, *last))
            }
            (axes, _) => {
                let one = Lanes { count: self.count(1), live: None };
                match axes {
                    Some((axis, [])) => (self.lanes(value, *axis), one),
                    _ => (Lanes { count: self.count(shape.iter().product()), live: None }, one),
                }
            }
        };
        let row = match tile.stored {
            StoredLanes::Matrix if columns_extent > 1 => self.row_bytes(value),
            _ => size(tile.elem) as u32,
        };
        BlockAccess {
            window,
            elem: tile.elem,
            rows,
            columns,
            tile: Place { at: tile.memory.at, row, lanes: true },
            padding,
        }
    }

    pub(super) fn store_block(&mut self, ptr: Value, value: Value, check: &[usize]) -> Result<()> {
        let Some(Sym::Block(block)) = self.env.get(&ptr).cloned() else {
            return self.unsupported("a store to a computed window");
        };
        let source = self.axes.merges.get(&value).copied().unwrap_or(value);
        let tile = if source == value { self.full(value)? } else { self.tile(value)? };
        if tile.stored == StoredLanes::Matrix && block.array.extents.last() == Some(&1) {
            return self.unsupported("a store of this rank");
        }
        let access = self.block_access(source, &block, check, Padding::Undefined, &tile);
        self.written[access.window.param] = true;
        self.code.push(Instr::StoreBlock(Box::new(access)));
        Ok(())
    }

    /// A window's access for a dot's operand of the given extents, with scratch to copy it to.
    pub(super) fn operand_access(
        &mut self,
        block: &Block,
        check: &[usize],
        padding: Padding,
        rows: Lanes,
        extents: [usize; 2],
        elem: vosti_tile::Scalar,
    ) -> (BlockAccess, Rc<super::Allocation>) {
        let row = (extents[1].next_multiple_of(16) * size(elem)) as u32;
        let memory = self.scratch.take(extents[0] * row as usize);
        let mut window = self.window(block, check);
        // Several leading axes are the rows, merged, and keep their extents.
        if let Some((last, leading)) = window.axes.split_last_mut() {
            last.extent = extents[1];
            if let [row] = leading {
                row.extent = extents[0];
            }
        }
        let columns = Lanes { count: self.count(extents[1]), live: None };
        let tile = Place { at: memory.at, row, lanes: true };
        (BlockAccess { window, elem, rows, columns, tile, padding }, memory)
    }
}
