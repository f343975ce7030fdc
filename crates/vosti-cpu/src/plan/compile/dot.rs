//! Dot products: operands are read in place, and a loop that only feeds a dot becomes one dot.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use vosti_simd::vector::ops::size;

use vosti_tile::{Kernel, Literal, Op, OpKind, Scalar, Value};

use super::tile::{Block, Sym, Tile, Whole};
use super::{Allocation, Compiler, Result, all_stored};
use crate::plan::code::{DotCode, Instr, IntDotCode, Lanes, Operand, Place};
use vosti_simd::layout::{Layout, PANEL};

/// A loaded operand: its window and the axes checked, with the type's padding.
struct Loaded {
    block: Block,
    check: Vec<usize>,
    padding: vosti_tile::Padding,
}

impl<'k> Compiler<'k> {
    pub(super) fn dot(&mut self, result: Value, a: Value, b: Value, acc: Value) -> Result<()> {
        let depth = self.kernel.ty(a).shape()[1];
        if self.elem(a).is_int() {
            return self.int_dot(result, a, b, acc, depth);
        }
        let (dst, accumulate) = self.accumulator(result, acc, &[a, b])?;
        let left = match self.pending(a) {
            Some(loaded) => Source::Memory(loaded),
            None => Source::Tile(self.dot_tile(a)?),
        };
        let right = match self.pending(b) {
            Some(loaded) => Source::Memory(loaded),
            None => Source::Tile(self.dot_tile(b)?),
        };
        self.emit_dot([result, a, b], left, right, depth, &dst, accumulate)?;
        self.define(result, Sym::Tile(dst));
        Ok(())
    }

    fn int_dot(&mut self, result: Value, a: Value, b: Value, acc: Value, depth: usize) -> Result<()> {
        let tiles = [self.full(a)?, self.full(b)?, self.full(acc)?];
        let target = self.fresh(result);
        let place = |value: Value, tile: &Tile| {
            // The only column of a tile is a vector.
            let one = self.kernel.ty(value).shape()[1] == 1;
            Place { at: tile.memory.at, row: if one { 4 } else { self.row_bytes(value) }, lanes: true }
        };
        let [a, b, start] = [place(a, &tiles[0]), place(b, &tiles[1]), place(acc, &tiles[2])];
        let dst = place(result, &target);
        let columns = self.kernel.ty(result).shape()[1];
        let rows = self.lanes(result, 0).count;
        self.code.push(Instr::IntDot(Box::new(IntDotCode { rows, columns, depth, a, b, start, dst })));
        self.define(result, Sym::Tile(target));
        Ok(())
    }

    fn pending(&self, value: Value) -> Option<Loaded> {
        match self.env.get(&value) {
            Some(Sym::Pending { block, check, padding }) => {
                Some(Loaded { block: block.clone(), check: check.clone(), padding: *padding })
            }
            _ => None,
        }
    }

    fn dot_tile(&mut self, value: Value) -> Result<Tile> {
        // A single row is stored as a vector.
        self.full(value)
    }

    /// The place of a dot's sums: that of a dying accumulator or of the loop argument that the result replaces, else a
    /// copy. An accumulator of zeros is neither written nor read.
    pub(super) fn accumulator(&mut self, result: Value, acc: Value, others: &[Value]) -> Result<(Tile, bool)> {
        if self.kernel.ty(result).shape()[1] < 2 {
            return self.unsupported("a dot with one column");
        }
        let full = all_stored(self.kernel.ty(result).shape());
        let uses_hint = |c: &Self, tile: &Tile| {
            others.iter().any(|v| matches!(c.env.get(v), Some(Sym::Tile(t)) if Rc::ptr_eq(&t.memory, &tile.memory)))
        };
        let hinted = self.hinted_over(result, full, Some(acc)).filter(|tile| !uses_hint(self, tile));
        if let Some(Sym::Const(Literal::Float(0))) = self.env.get(&acc) {
            let dst = hinted.unwrap_or_else(|| self.fresh(result));
            return Ok((dst, false));
        }
        let start = self.tile(acc)?;
        if let Some(target) = hinted {
            if !Rc::ptr_eq(&target.memory, &start.memory) {
                self.copy(result, &start, &target)?;
            }
            return Ok((target, true));
        }
        let own = matches!(self.env.get(&acc), Some(Sym::Tile(_)));
        let alone = own && Rc::strong_count(&start.memory) == 2 && self.dying.contains(&acc) && !others.contains(&acc);
        if alone && start.stored == full {
            return Ok((start, true));
        }
        let target = self.fresh(result);
        self.copy(result, &start, &target)?;
        Ok((target, true))
    }

    fn emit_dot(
        &mut self,
        [result, a, b]: [Value; 3],
        left: Source,
        right: Source,
        depth: usize,
        dst: &Tile,
        accumulate: bool,
    ) -> Result<()> {
        let elem = self.elem(a);
        let (height, columns) = (self.kernel.ty(result).shape()[0], self.kernel.ty(result).shape()[1]);
        if depth < 2 || elem == Scalar::Bf16 && !depth.is_multiple_of(2) {
            return self.unsupported("a dot of this shape");
        }
        let rows = self.lanes(result, 0);
        let all = Lanes { count: self.count(depth), live: None };
        let mut held: Vec<Rc<Allocation>> = Vec::new();
        let a = match left {
            Source::Tile(tile) => {
                let row = self.row_bytes(a);
                held.push(tile.memory.clone());
                Operand::Scratch { at: tile.memory.at, row }
            }
            Source::Memory(loaded) => {
                self.read_in_place[loaded.block.array.param] = true;
                let extents = [height, depth];
                let (access, memory) =
                    self.operand_access(&loaded.block, &loaded.check, loaded.padding, rows, extents, elem);
                held.push(memory);
                Operand::Memory(access)
            }
        };
        let b = match right {
            Source::Tile(tile) => {
                let row = self.row_bytes(b);
                held.push(tile.memory.clone());
                Operand::Scratch { at: tile.memory.at, row }
            }
            Source::Memory(loaded) => {
                self.want(&loaded.block, elem);
                let extents = [depth, columns];
                let (access, memory) =
                    self.operand_access(&loaded.block, &loaded.check, loaded.padding, all, extents, elem);
                held.push(memory);
                Operand::Memory(access)
            }
        };
        let packed = self.scratch.take(depth * columns.next_multiple_of(16) * size(elem));
        let code = DotCode {
            elem,
            rows,
            columns,
            depth,
            a,
            b,
            dst: dst.memory.at,
            dst_row: self.row_bytes(result),
            accumulate,
            b_packed: packed.at,
        };
        self.code.push(Instr::Dot(Box::new(code)));
        Ok(())
    }

    /// Notes the layout in which a right operand would be read in place.
    fn want(&mut self, block: &Block, elem: Scalar) {
        let param = block.array.param;
        self.read_in_place[param] = true;
        let pair = if elem == Scalar::Bf16 { 2 } else { 1 };
        let layout = match (&block.array.strides[0], &block.array.strides[1]) {
            (Whole::Const(1), Whole::Const(row)) => {
                // Another matrix may begin after the rows that this dot reads.
                let cut = match &block.array.shape[1] {
                    Whole::Const(rows) if *rows > 0 && rows % PANEL as i64 != 0 => *rows as usize,
                    _ => 0,
                };
                Layout::RowPanels { row_len: *row as usize, pair, cut }
            }
            (Whole::Const(row), Whole::Const(1)) if pair == 2 => Layout::RowPairs { row_len: *row as usize, pair },
            _ => Layout::RowMajor,
        };
        self.wanted[param].get_or_insert(layout);
    }

    /// Compiles a loop of loads, dots and advances as one dot per accumulator; false if it is something else.
    pub(super) fn fuse(&mut self, op: &'k Op) -> Result<bool> {
        let OpKind::For { lo, hi, step, index, args, inits, body } = &op.kind else { return Ok(false) };
        let constant = |c: &Self, v: &Value| match c.env.get(v) {
            Some(Sym::Const(Literal::Int(value))) => Some(*value),
            _ => None,
        };
        let (Some(lo), Some(hi), Some(step)) = (constant(self, lo), constant(self, hi), constant(self, step)) else {
            return Ok(false);
        };
        if step <= 0 || hi <= lo {
            return Ok(false);
        }
        let trips = ((hi - lo + step - 1) / step) as usize;
        let Some(pattern) = Pattern::find(self.kernel, &self.made, args, *index, body) else { return Ok(false) };
        let mut blocks = HashMap::new();
        for (arg, init) in args.iter().zip(inits) {
            if let Some(Sym::Block(block)) = self.env.get(init) {
                blocks.insert(*arg, block.clone());
            }
        }
        for (position, dot) in &pattern.dots {
            let OpKind::Dot { a, b, .. } = &dot.kind else { unreachable!("a dot") };
            let result = op.results[*position];
            let depth = self.kernel.ty(*a).shape()[1] * trips;
            let (dst, accumulate) = self.accumulator(result, inits[*position], &[])?;
            let load = |value: &Value| {
                let (arg, check, padding) = &pattern.loads[value];
                Loaded { block: blocks[arg].clone(), check: check.clone(), padding: *padding }
            };
            let (left, right) = (Source::Memory(load(a)), Source::Memory(load(b)));
            self.emit_dot([result, *a, *b], left, right, depth, &dst, accumulate)?;
            self.define(result, Sym::Tile(dst));
        }
        for (i, arg) in args.iter().enumerate() {
            let Some(block) = blocks.get(arg) else { continue };
            let mut block = block.clone();
            for (axis, by) in pattern.moves[arg].iter().enumerate() {
                let by = by * trips as i64;
                block.offsets[axis] = match &block.offsets[axis] {
                    Whole::Const(value) => Whole::Const(value + by),
                    other if by == 0 => other.clone(),
                    // No kernel reads a window after such a loop at a computed offset that moves.
                    _ => return self.unsupported("a window that a fused loop leaves at a computed offset"),
                };
            }
            self.define(op.results[i], Sym::Block(block));
        }
        Ok(true)
    }
}

enum Source {
    Memory(Loaded),
    Tile(Tile),
}

/// A loop body that only loads windows, feeds dots and advances the windows along the contracted axis.
struct Pattern<'k> {
    /// Argument position of each accumulator, and its dot.
    dots: Vec<(usize, &'k Op)>,
    /// Per loaded value: the argument it is loaded through.
    loads: HashMap<Value, (Value, Vec<usize>, vosti_tile::Padding)>,
    /// Per window argument: elements it moves along each axis.
    moves: HashMap<Value, Vec<i64>>,
}

impl<'k> Pattern<'k> {
    fn find(
        kernel: &Kernel,
        made: &HashMap<Value, &'k Op>,
        args: &[Value],
        index: Value,
        body: &'k vosti_tile::Region,
    ) -> Option<Self> {
        let mut found = Pattern { dots: Vec::new(), loads: HashMap::new(), moves: HashMap::new() };
        for op in &body.ops {
            match &op.kind {
                OpKind::Constant { .. } | OpKind::Advance { .. } => {}
                OpKind::LoadBlock { ptr, check, padding } if args.contains(ptr) => {
                    found.loads.insert(op.results[0], (*ptr, check.clone(), *padding));
                }
                OpKind::Dot { a, b, acc } => {
                    let position = args.iter().position(|arg| arg == acc)?;
                    let used = |v: &Value| body.ops.iter().filter(|op| op.kind.operands().contains(v)).count();
                    let carried = body.yields[position] == op.results[0] && used(acc) == 1 && used(&op.results[0]) == 0;
                    if !carried || body.yields.iter().filter(|y| **y == op.results[0]).count() != 1 {
                        return None;
                    }
                    if !found.loads.contains_key(a) || !found.loads.contains_key(b) {
                        return None;
                    }
                    found.dots.push((position, op));
                }
                _ => return None,
            }
            if op.kind.operands().contains(&index) {
                return None;
            }
        }
        for (position, arg) in args.iter().enumerate() {
            if found.dots.iter().any(|(p, _)| *p == position) {
                continue;
            }
            let OpKind::Advance { ptr, offsets } = &made.get(&body.yields[position])?.kind else { return None };
            let constant = |v: &Value| match made.get(v).map(|op| &op.kind) {
                Some(OpKind::Constant { value: Literal::Int(value), .. }) => Some(*value),
                _ => None,
            };
            if ptr != arg {
                return None;
            }
            found.moves.insert(*arg, offsets.iter().map(constant).collect::<Option<_>>()?);
        }
        let along = |value: &Value, axis: usize| {
            let (arg, _, padding) = &found.loads[value];
            let extent = kernel.ty(*value).shape()[axis] as i64;
            let want = |i: usize| if i == axis { extent } else { 0 };
            // Elements outside the window must be zero in every iteration.
            *padding != vosti_tile::Padding::Nan
                && found.moves.get(arg).is_some_and(|m| m.iter().enumerate().all(|(i, by)| *by == want(i)))
        };
        let all = found.dots.iter().all(|(_, dot)| match &dot.kind {
            OpKind::Dot { a, b, .. } => along(a, 1) && along(b, 0),
            _ => false,
        });
        (all && !found.dots.is_empty()).then_some(found)
    }
}

/// The grid axis that no right operand's address depends on, if these addresses depend on another axis.
pub(super) fn sweep(kernel: &Kernel, made: &HashMap<Value, &Op>) -> Option<usize> {
    let mut inits = HashMap::new();
    kernel.walk(&mut |op| {
        if let OpKind::For { args, inits: from, body, lo, .. } = &op.kind {
            for (i, arg) in args.iter().enumerate() {
                inits.insert(*arg, vec![from[i], body.yields[i], *lo]);
            }
        }
    });
    let (mut used, mut seen, mut todo) = (HashSet::new(), HashSet::new(), Vec::new());
    let mut axes = 1;
    kernel.walk(&mut |op| match &op.kind {
        OpKind::Dot { b, .. } => todo.push(*b),
        OpKind::ProgramId { axis } => axes = axes.max(axis + 1),
        _ => {}
    });
    while let Some(value) = todo.pop() {
        if !seen.insert(value) {
            continue;
        }
        todo.extend(inits.get(&value).into_iter().flatten());
        let Some(op) = made.get(&value) else { continue };
        if let OpKind::ProgramId { axis } = op.kind {
            used.insert(axis);
        }
        todo.extend(op.kind.operands());
        todo.extend(op.kind.regions().iter().flat_map(|r| &r.yields));
    }
    if used.is_empty() { None } else { (0..axes).find(|axis| !used.contains(axis)) }
}
