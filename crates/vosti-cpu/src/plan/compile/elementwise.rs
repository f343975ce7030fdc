//! Arithmetic lane by lane, views, reshapes and reductions.

use std::rc::Rc;
use vosti_simd::vector::ops::size;

use vosti_tile::{Binary, Cast, Literal, Op, OpKind, Scalar, Value};

use super::tile::{Part, StoredLanes, Sym, Tile, wide};
use super::{Compiler, Result, all_stored};
use crate::plan::code::{Instr, Int, IntOp, Lanes, MapCode, Place};
use vosti_simd::micro::LANES;
use vosti_simd::vector::{MapFn, Versions, ops, reduce};

impl<'k> Compiler<'k> {
    /// Compiles an elementwise operation.
    pub(super) fn elementwise(&mut self, op: &'k Op) -> Result<()> {
        let operands = op.kind.operands();
        let elem = self.elem(operands[0]);
        if let (OpKind::Cast { op: Cast::ExtS, .. }, Some(Sym::Const(Literal::Int(value)))) =
            (&op.kind, self.env.get(&operands[0]))
            && elem != Scalar::I1
        {
            let value = *value;
            self.define(op.results[0], Sym::Const(Literal::Int(value)));
            return Ok(());
        }
        if let (OpKind::Cast { op: Cast::ExtS, .. }, Some(Sym::Tile(tile))) = (&op.kind, self.env.get(&operands[0]))
            && tile.stored == StoredLanes::Cell
            && elem == Scalar::I32
        {
            let a = Int::I32(tile.memory.at);
            let wide = self.fresh_stored(op.results[0], StoredLanes::Cell);
            self.code.push(Instr::Int { at: wide.memory.at, wide: true, op: IntOp::Add, a, b: Int::Const(0) });
            self.define(op.results[0], Sym::Tile(wide));
            return Ok(());
        }
        if let OpKind::Unary { op: unary, x } = &op.kind
            && let Some(Sym::Difference(..)) = self.env.get(x)
            && let Some(f) = ops::of_difference(*unary)
        {
            return self.difference(op.results[0], *x, f);
        }
        let f = match &op.kind {
            OpKind::Unary { op, .. } => ops::unary(*op, elem),
            OpKind::Fma { .. } => ops::fma(elem),
            OpKind::CmpInt { op, .. } => ops::cmp_int(*op, elem),
            OpKind::CmpFloat { op, .. } => ops::cmp_float(*op, elem),
            OpKind::Cast { op, to, .. } => ops::cast(*op, elem, *to),
            _ => None,
        };
        let Some(f) = f else { return self.unsupported("this operation on this element type") };
        let mut consecutive = false;
        if let OpKind::Cast { op: Cast::ExtS | Cast::ExtU, x, .. } = &op.kind
            && let Some(Sym::Tile(tile)) = self.env.get(x)
        {
            consecutive = tile.consecutive;
        }
        let mut tile = self.map(op.results[0], f, &operands)?;
        tile.consecutive = consecutive && matches!(tile.stored, StoredLanes::Vector(_));
        self.define(op.results[0], Sym::Tile(tile));
        Ok(())
    }

    /// Compiles a function of a difference as one map, which overwrites the minuend if no other operation reads it.
    fn difference(&mut self, result: Value, x: Value, f: Versions<MapFn>) -> Result<()> {
        let Some(Sym::Difference(a, b)) = self.env.remove(&x) else {
            return self.unsupported("a difference");
        };
        let stored = all_stored(self.kernel.ty(result).shape());
        let own = Rc::strong_count(&a.memory) == 1 && !Rc::ptr_eq(&a.memory, &b.memory) && a.stored == stored;
        let tile = match self.hinted(result, stored) {
            None if own => {
                let places = [self.place(result, &a, stored)?, self.place(result, &b, stored)?];
                self.emit_map(result, f, &a, &places);
                Tile { consecutive: false, ..a }
            }
            _ => self.map_tiles(result, f, &[a, b], &[])?,
        };
        self.define(result, Sym::Tile(tile));
        Ok(())
    }

    /// True if the only reader of a value is an exponential of this body.
    fn feeds_exponential(&self, value: Value) -> bool {
        let mut reader = false;
        self.kernel.walk(&mut |op| {
            if let OpKind::Unary { op, x } = &op.kind {
                reader |= *x == value && ops::of_difference(*op).is_some();
            }
        });
        reader && self.uses.get(&value) == Some(&1)
    }

    /// Compiles a binary operation. Integer sums and conjunctions stay lazy if their operands spell out different axes.
    pub(super) fn binary(&mut self, op: &'k Op, binary: Binary, a: Value, b: Value) -> Result<()> {
        let result = op.results[0];
        let elem = self.elem(a);
        if let Some(value) = self.fold(binary, a, b) {
            self.define(result, Sym::Const(Literal::Int(value)));
            return Ok(());
        }
        let adds = binary == Binary::Add && matches!(elem, Scalar::I32 | Scalar::I64);
        let ands = binary == Binary::And && elem == Scalar::I1;
        if adds || ands {
            let (x, y) = (self.parts(a, adds)?, self.parts(b, adds)?);
            if x.len() + y.len() > 2 || self.stored_differ(&x, &y) {
                let parts = x.into_iter().chain(y).collect();
                self.define(result, if adds { Sym::Sum(parts) } else { Sym::And(parts) });
                return Ok(());
            }
        }
        if let Some(tile) = self.scalar_int(result, binary, a, b)? {
            self.define(result, Sym::Tile(tile));
            return Ok(());
        }
        let Some(f) = ops::binary(binary, elem) else {
            return self.unsupported("this operation on this element type");
        };
        if binary == Binary::SubF && elem == Scalar::F32 && self.feeds_exponential(result) {
            let (x, y) = (self.tile(a)?, self.tile(b)?);
            self.define(result, Sym::Difference(x, y));
            return Ok(());
        }
        let is_consecutive = |c: &Self, v: &Value| matches!(c.env.get(v), Some(Sym::Tile(t)) if t.consecutive);
        let is_cell = |c: &Self, v: &Value| match c.env.get(v) {
            Some(Sym::Tile(tile)) => tile.stored == StoredLanes::Cell,
            Some(Sym::Const(_)) => true,
            _ => false,
        };
        let consecutive =
            adds && (is_consecutive(self, &a) && is_cell(self, &b) || is_cell(self, &a) && is_consecutive(self, &b));
        let mut tile = self.map(result, f, &[a, b])?;
        tile.consecutive = consecutive;
        self.define(result, Sym::Tile(tile));
        Ok(())
    }

    /// Integer arithmetic on scalars, or on tiles that repeat one.
    fn scalar_int(&mut self, result: Value, binary: Binary, a: Value, b: Value) -> Result<Option<Tile>> {
        let op = match binary {
            Binary::Add => IntOp::Add,
            Binary::Sub => IntOp::Sub,
            Binary::Mul => IntOp::Mul,
            Binary::DivS => IntOp::DivS,
            Binary::RemS => IntOp::RemS,
            Binary::MaxS => IntOp::MaxS,
            Binary::MinS => IntOp::MinS,
            _ => return Ok(None),
        };
        let cell = |c: &Self, v: &Value| match c.env.get(v) {
            Some(Sym::Const(Literal::Int(_))) => true,
            Some(Sym::Tile(tile)) => tile.stored == StoredLanes::Cell,
            _ => false,
        };
        let elem = self.elem(a);
        if !matches!(elem, Scalar::I32 | Scalar::I64) || !cell(self, &a) || !cell(self, &b) {
            return Ok(None);
        }
        let (a, b) = (self.whole(a)?.int(), self.whole(b)?.int());
        let tile = self.fresh_stored(result, StoredLanes::Cell);
        self.code.push(Instr::Int { at: tile.memory.at, wide: elem == Scalar::I64, op, a, b });
        Ok(Some(tile))
    }

    /// Integer arithmetic on constants.
    fn fold(&self, binary: Binary, a: Value, b: Value) -> Option<i64> {
        let constant = |v: &Value| match self.env.get(v) {
            Some(Sym::Const(Literal::Int(value))) => Some(*value),
            _ => None,
        };
        let (x, y) = (constant(&a)?, constant(&b)?);
        let value = match binary {
            Binary::Add => x.wrapping_add(y),
            Binary::Sub => x.wrapping_sub(y),
            Binary::Mul => x.wrapping_mul(y),
            _ => return None,
        };
        match self.elem(a) {
            Scalar::I64 => Some(value),
            Scalar::I32 => Some(i64::from(value as i32)),
            _ => None,
        }
    }

    /// The terms of an integer sum or conjunction.
    pub(super) fn parts(&mut self, value: Value, add: bool) -> Result<Vec<Part>> {
        Ok(match self.env.get(&value) {
            Some(Sym::Sum(parts)) if add => parts.clone(),
            Some(Sym::And(parts)) if !add => parts.clone(),
            Some(Sym::Const(Literal::Int(value))) => vec![Part::Const(*value)],
            _ => vec![Part::Tile(self.tile(value)?)],
        })
    }

    fn stored_differ(&self, x: &[Part], y: &[Part]) -> bool {
        match (x, y) {
            ([Part::Tile(a)], [Part::Tile(b)]) => {
                a.stored != b.stored && a.stored != StoredLanes::Cell && b.stored != StoredLanes::Cell
            }
            _ => false,
        }
    }

    pub(super) fn select(&mut self, op: &'k Op, cond: Value, a: Value, b: Value) -> Result<()> {
        let elem = self.elem(a);
        if !self.kernel.ty(a).is_tile() {
            return self.unsupported("a choice between pointers");
        }
        let tile = self.map(op.results[0], ops::select(size(elem)), &[cond, a, b])?;
        self.define(op.results[0], Sym::Tile(tile));
        Ok(())
    }

    /// Emits `result = f(operands)` over the lanes that any operand spells out.
    pub(super) fn map(&mut self, result: Value, f: Versions<MapFn>, operands: &[Value]) -> Result<Tile> {
        let tiles: Vec<Tile> = operands.iter().map(|v| self.tile(*v)).collect::<Result<_>>()?;
        self.map_tiles(result, f, &tiles, operands)
    }

    /// As [`Compiler::map`], with the operands' tiles; `operands` names those that may be overwritten if dying.
    pub(super) fn map_tiles(
        &mut self,
        result: Value,
        f: Versions<MapFn>,
        tiles: &[Tile],
        operands: &[Value],
    ) -> Result<Tile> {
        let full = all_stored(self.kernel.ty(result).shape());
        let stored = tiles.iter().fold(StoredLanes::Cell, |stored, tile| match (stored, tile.stored) {
            (StoredLanes::Cell, other) => other,
            (stored, StoredLanes::Cell) => stored,
            (a, b) if a == b => a,
            _ => StoredLanes::Matrix,
        });
        let stored = if stored == StoredLanes::Matrix { full } else { stored };
        let places: Vec<Place> = tiles.iter().map(|t| self.place(result, t, stored)).collect::<Result<_>>()?;
        let dst = self.target(result, stored, tiles, operands);
        self.emit_map(result, f, &dst, &places);
        Ok(dst)
    }

    /// The place of a result: that of the loop argument it replaces, of a dying operand with the same stored lanes, or a new one.
    fn target(&mut self, result: Value, stored: StoredLanes, tiles: &[Tile], operands: &[Value]) -> Tile {
        let elem = self.elem(result);
        if let Some(target) = self.hinted(result, stored) {
            return target;
        }
        for (tile, value) in tiles.iter().zip(operands) {
            // Only the environment and `tiles` hold the place, so no other operation reads it. Constants are shared.
            let alone = Rc::strong_count(&tile.memory) == 2
                && tiles.iter().filter(|t| t.memory.at == tile.memory.at).count() == 1;
            let own = matches!(self.env.get(value), Some(Sym::Tile(_)));
            if alone && own && self.dying.contains(value) && tile.stored == stored && size(tile.elem) == size(elem) {
                return Tile { elem, consecutive: false, ..tile.clone() };
            }
        }
        self.fresh_stored(result, stored)
    }

    /// The loop argument's place for a yielded value, if the argument is not read after this operation.
    pub(super) fn hinted(&mut self, result: Value, stored: StoredLanes) -> Option<Tile> {
        self.hinted_over(result, stored, None)
    }

    /// As [`Compiler::hinted`], for an operation that may overwrite its operand `over` in that place as it reads it.
    pub(super) fn hinted_over(&mut self, result: Value, stored: StoredLanes, over: Option<Value>) -> Option<Tile> {
        let (target, argument) = self.hints.get(&result)?;
        let free = match self.env.get(argument) {
            Some(Sym::Tile(held)) => self.dying.contains(argument) && Rc::ptr_eq(&held.memory, &target.memory),
            Some(_) => false,
            None => true,
        };
        let over = over.filter(|v| self.dying.contains(v));
        let views = self.env.iter().any(|(v, sym)| v != argument && Some(*v) != over && sym.holds(&target.memory));
        (free && !views && target.stored == stored).then(|| target.clone())
    }

    /// Defines `result` as `x` with moved axes; axes of extent 1 may be added or removed.
    pub(super) fn view(&mut self, result: Value, x: Value, moved: impl Fn(usize) -> usize) -> Result<()> {
        let rename = |part: &Part| match part {
            Part::Tile(tile) => Part::Tile(Tile {
                stored: match tile.stored {
                    StoredLanes::Vector(axis) => StoredLanes::Vector(moved(axis)),
                    stored => stored,
                },
                ..tile.clone()
            }),
            other => other.clone(),
        };
        let sym = match self.env.get(&x) {
            Some(Sym::Tile(tile)) => match rename(&Part::Tile(tile.clone())) {
                Part::Tile(tile) => Sym::Tile(tile),
                Part::Const(_) => unreachable!("tiles stay tiles"),
            },
            Some(Sym::Sum(parts)) => Sym::Sum(parts.iter().map(rename).collect()),
            Some(Sym::And(parts)) => Sym::And(parts.iter().map(rename).collect()),
            Some(Sym::Const(literal)) => Sym::Const(*literal),
            Some(Sym::Pointer(p)) => {
                Sym::Pointer(super::tile::Pointer { param: p.param, parts: p.parts.iter().map(rename).collect() })
            }
            _ => Sym::Tile(self.tile(x)?),
        };
        if let Sym::Tile(tile) = &sym
            && tile.stored == StoredLanes::Matrix
            && wide(self.kernel.ty(x).shape()).len() != wide(self.kernel.ty(result).shape()).len()
        {
            return self.unsupported("a broadcast of this rank");
        }
        self.define(result, sym);
        Ok(())
    }

    pub(super) fn reshape(&mut self, result: Value, x: Value) -> Result<()> {
        if let Some(source) = self.axes.merges.get(&result).copied() {
            if source == x && matches!(self.env.get(&x), Some(Sym::Pending { .. })) {
                return self.merged_load(result, x);
            }
            // Only a store reads `result`, by the rows of `source`.
            let tile = self.full(x)?;
            self.define(result, Sym::Tile(tile));
            return Ok(());
        }
        let kernel = self.kernel;
        let (from, to) = (kernel.ty(x).shape(), kernel.ty(result).shape());
        let (wide_from, wide_to) = (wide(from), wide(to));
        let lengths = |shape: &[usize], axes: &[usize]| axes.iter().map(|i| shape[*i]).collect::<Vec<_>>();
        if lengths(from, &wide_from) == lengths(to, &wide_to) {
            return self.view(result, x, |axis| wide_from.iter().position(|a| *a == axis).map_or(axis, |i| wide_to[i]));
        }
        if let Some(Sym::Const(literal)) = self.env.get(&x) {
            let literal = *literal;
            self.define(result, Sym::Const(literal));
            return Ok(());
        }
        let tile = self.full(x)?;
        let columns = |shape: &[usize]| wide(shape).last().map_or(1, |axis| shape[*axis]);
        if columns(from) % 16 == 0 && columns(to) % 16 == 0 {
            // Neither shape has padding, so the bytes are the same.
            self.define(result, Sym::Tile(Tile { stored: all_stored(to), consecutive: false, ..tile }));
            return Ok(());
        }
        let target = self.fresh(result);
        self.code.push(Instr::Reshape {
            dst: Place { at: target.memory.at, row: self.row_bytes(result), lanes: true },
            src: Place { at: tile.memory.at, row: self.row_bytes(x), lanes: true },
            from: columns(from),
            to: columns(to),
            count: from.iter().product(),
            bytes: size(tile.elem),
        });
        self.define(result, Sym::Tile(target));
        Ok(())
    }

    pub(super) fn transpose(&mut self, result: Value, x: Value, perm: &[usize]) -> Result<()> {
        let back = |axis: usize| perm.iter().position(|p| *p == axis).unwrap_or(axis);
        let kernel = self.kernel;
        let axes = wide(kernel.ty(x).shape());
        let tile = match self.env.get(&x) {
            Some(Sym::Const(_) | Sym::Sum(_) | Sym::And(_)) => None,
            _ => Some(self.tile(x)?),
        };
        let ordered = axes.windows(2).all(|w| back(w[0]) < back(w[1]));
        match tile {
            Some(tile) if tile.stored == StoredLanes::Matrix && !ordered => {
                let shape = kernel.ty(x).shape();
                let [rows, columns] = axes[..] else {
                    let Some(rows) = in_turn(shape, perm) else {
                        return self.unsupported("a transposition of this rank");
                    };
                    self.define(result, Sym::InTurn(tile, rows));
                    return Ok(());
                };
                let target = self.fresh(result);
                let bytes = size(tile.elem);
                self.code.push(Instr::Transpose {
                    dst: Place { at: target.memory.at, row: self.row_bytes(result), lanes: true },
                    src: Place { at: tile.memory.at, row: self.row_bytes(x), lanes: true },
                    rows: shape[rows],
                    columns: shape[columns],
                    bytes,
                });
                self.define(result, Sym::Tile(target));
                Ok(())
            }
            _ => self.view(result, x, back),
        }
    }

    pub(super) fn half(&mut self, result: Value, x: Value, which: usize) -> Result<()> {
        let kernel = self.kernel;
        let (shape, lanes) = (kernel.ty(result).shape(), kernel.ty(result).lanes());
        let place = |at: usize, row: usize| Place { at: at as u32, row: row as u32, lanes: true };
        if let Some(Sym::InTurn(tile, rows)) = self.env.get(&x).cloned() {
            let target = self.fresh(result);
            let bytes = rows * self.row_bytes(result) as usize;
            let (dst, src) = (target.memory.at as usize, tile.memory.at as usize + which * bytes);
            let count = self.bytes(result, target.stored) / bytes;
            let (dst, src) = (place(dst, bytes), place(src, 2 * bytes));
            self.code.push(Instr::Reshape { dst, src, from: 1, to: 1, count, bytes });
            self.define(result, Sym::Tile(target));
            return Ok(());
        }
        let tile = self.tile(x)?;
        let (target, count) = match tile.stored {
            StoredLanes::Matrix => (self.fresh(result), lanes),
            StoredLanes::Vector(axis) if axis == shape.len() => (self.fresh_stored(result, StoredLanes::Cell), 1),
            _ => return self.view(result, x, |axis| axis),
        };
        let bytes = size(tile.elem);
        let columns = wide(shape).last().map_or(1, |axis| shape[*axis]);
        self.code.push(Instr::Reshape {
            dst: place(target.memory.at as usize, self.row_bytes(result) as usize),
            src: place(tile.memory.at as usize + which * bytes, self.row_bytes(x) as usize),
            from: 1,
            to: columns,
            count,
            bytes,
        });
        self.define(result, Sym::Tile(target));
        Ok(())
    }

    pub(super) fn reduce(&mut self, result: Value, binary: Binary, x: Value, axis: usize) -> Result<()> {
        let elem = self.elem(x);
        let Some(f) = reduce::of(binary, elem, self.kernel.ty(x).shape()[axis]) else {
            return self.unsupported("a reduction with this operation");
        };
        let mut source = self.full(x)?;
        let kernel = self.kernel;
        let shape = kernel.ty(x).shape();
        let axes = wide(shape);
        if shape[axis] == 1 {
            return self.view(result, x, |i| i - usize::from(i > axis));
        }
        let (kept, last) = match axes[..] {
            [only] => (None, only),
            [first, last] => (Some(if axis == first { last } else { first }), last),
            _ => return self.unsupported("a reduction of this rank"),
        };
        let mut row = self.row_bytes(x);
        if axis != last
            && elem == Scalar::F32
            && shape[axis].is_multiple_of(LANES)
            && let Some(f) = ops::binary(binary, elem)
        {
            let dst = self.fresh(result);
            self.fold_down(f.of(self.isa), dst.memory.at, Place { at: source.memory.at, row, lanes: true }, shape);
            self.define(result, Sym::Tile(dst));
            return Ok(());
        }
        if axis != last {
            // To fold along rows, transpose first.
            let (rows, columns) = (shape[axis], shape[last]);
            let row_bytes = (rows.next_multiple_of(16) * size(elem)) as u32;
            let memory = self.scratch.take(columns * row_bytes as usize);
            self.code.push(Instr::Transpose {
                dst: Place { at: memory.at, row: row_bytes, lanes: true },
                src: Place { at: source.memory.at, row, lanes: true },
                rows,
                columns,
                bytes: size(elem),
            });
            source = Tile { memory, ..source };
            row = row_bytes;
        }
        let rows = match kept {
            None => Lanes { count: self.count(1), live: None },
            Some(axis) => self.lanes(x, axis),
        };
        let length = self.count(shape[axis]);
        let dst = self.fresh(result);
        let src = Place { at: source.memory.at, row, lanes: true };
        self.code.push(Instr::Reduce { f: f.of(self.isa), dst: dst.memory.at, src, rows: rows.count, length });
        self.define(result, Sym::Tile(dst));
        Ok(())
    }

    /// Folds the rows of a matrix, all columns side by side, in the order of [`reduce`]: rows 16 apart, then a tree.
    fn fold_down(&mut self, f: MapFn, dst: u32, src: Place, shape: &[usize]) {
        let memory = self.scratch.take(LANES * src.row as usize);
        let groups = self.count(shape[shape.len() - 1].div_ceil(LANES));
        let below = |place: Place, rows: usize| Place { at: place.at + rows as u32 * src.row, ..place };
        let mut folded = src;
        let mut emit = |dst: Place, a: Place, b: Place, rows: usize| {
            let rows = self.count(rows);
            self.code.push(Instr::Map(MapCode { f, dst, args: [a, b, Place::default()], rows, groups }));
        };
        let own = Place { at: memory.at, ..src };
        for first in (LANES..shape[0]).step_by(LANES) {
            emit(own, folded, below(src, first), LANES);
            folded = own;
        }
        for rows in [8, 4, 2] {
            emit(own, folded, below(folded, rows), rows);
            folded = own;
        }
        emit(Place { at: dst, row: 0, lanes: true }, folded, below(folded, 1), 1);
    }
}

/// The rows of a chunk if this transposition of a matrix of `shape` moves an axis of two lanes, which is neither its columns'
/// nor behind them, behind all others.
fn in_turn(shape: &[usize], perm: &[usize]) -> Option<usize> {
    let (halves, others) = perm.split_last()?;
    let columns = others.iter().rev().find(|axis| shape[**axis] > 1)?;
    let rows = others.iter().filter(|axis| (*halves + 1..*columns).contains(*axis)).map(|axis| shape[*axis]);
    (shape[*halves] == 2 && halves < columns && others.is_sorted()).then(|| rows.product())
}

impl Sym {
    /// True if the value lives in this place.
    fn holds(&self, memory: &Rc<crate::plan::scratch::Allocation>) -> bool {
        let part = |part: &Part| matches!(part, Part::Tile(tile) if Rc::ptr_eq(&tile.memory, memory));
        match self {
            Sym::Tile(tile) | Sym::InTurn(tile, _) => Rc::ptr_eq(&tile.memory, memory),
            Sym::Sum(parts) | Sym::And(parts) => parts.iter().any(part),
            Sym::Pointer(pointer) => pointer.parts.iter().any(part),
            Sym::Block(block) | Sym::Pending { block, .. } => {
                let whole = |w: &super::tile::Whole| matches!(w, super::tile::Whole::Cell(tile) if Rc::ptr_eq(&tile.memory, memory));
                let array = &block.array;
                block.offsets.iter().chain(&array.base).chain(&array.shape).chain(&array.strides).any(whole)
            }
            Sym::Difference(a, b) => [a, b].iter().any(|tile| Rc::ptr_eq(&tile.memory, memory)),
            Sym::Const(_) => false,
        }
    }
}
