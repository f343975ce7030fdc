//! The compiler's view of a value: symbolic, or a tile in scratch memory and the part of its shape that is spelled out there.

use std::rc::Rc;

use vosti_tile::{Literal, Padding, Scalar, Value};

use super::{Compiler, Result, all_stored};
use crate::plan::code::{Fill, Instr, Int, Ints, MapCode, Place};
use crate::plan::scratch::Allocation;
use vosti_simd::vector::{Versions, ops, ops::size};

/// The axes of a shape that have more than one lane.
pub(crate) fn wide(shape: &[usize]) -> Vec<usize> {
    (0..shape.len()).filter(|i| shape[*i] > 1).collect()
}

/// Which lanes of a tile are stored; the others repeat them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoredLanes {
    /// One element for all.
    Cell,
    /// One element per lane of an axis.
    Vector(usize),
    /// Every lane. The last wide axis is the columns, those before it are the rows.
    Matrix,
}

/// A tile in scratch memory.
#[derive(Clone, Debug)]
pub(crate) struct Tile {
    pub memory: Rc<Allocation>,
    pub elem: Scalar,
    pub stored: StoredLanes,
    /// A vector whose lanes count upwards by one.
    pub consecutive: bool,
}

/// A pointer value: a parameter and the sum of offsets.
#[derive(Clone, Debug)]
pub(crate) struct Pointer {
    pub param: usize,
    pub parts: Vec<Part>,
}

/// A term of a sum or conjunction.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    Const(i64),
    Tile(Tile),
}

/// A scalar integer: a constant, or a place in scratch memory.
#[derive(Clone, Debug)]
pub(crate) enum Whole {
    Const(i64),
    Cell(Tile),
}

impl Whole {
    pub fn int(&self) -> Int {
        match self {
            Whole::Const(value) => Int::Const(*value),
            Whole::Cell(tile) if tile.elem == Scalar::I64 => Int::I64(tile.memory.at),
            Whole::Cell(tile) => Int::I32(tile.memory.at),
        }
    }
}

/// A block pointer. All windows that are advanced from it share its array.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub array: Rc<Array>,
    pub offsets: Vec<Whole>,
}

#[derive(Debug)]
pub(crate) struct Array {
    pub param: usize,
    pub base: Vec<Whole>,
    pub shape: Vec<Whole>,
    pub strides: Vec<Whole>,
    pub extents: Vec<usize>,
}

/// The compiler's knowledge of a value.
#[derive(Clone, Debug)]
pub(crate) enum Sym {
    Const(Literal),
    Tile(Tile),
    /// Integers, added lane by lane.
    Sum(Vec<Part>),
    /// Truth values, all of which must hold.
    And(Vec<Part>),
    Pointer(Pointer),
    /// A difference of floats that only an exponential reads.
    Difference(Tile, Tile),
    /// A matrix that is read by halves: chunks of so many rows, of the one half and of the other in turn.
    InTurn(Tile, usize),
    Block(Block),
    /// A block load that only dots read.
    Pending {
        block: Block,
        check: Vec<usize>,
        padding: Padding,
    },
}

/// The bits of a literal as an element.
pub(crate) fn literal_bits(literal: Literal, elem: Scalar) -> u64 {
    match (literal, elem) {
        (Literal::Int(value), Scalar::I64) => value as u64,
        (Literal::Int(value), _) => u64::from(value as u32),
        (Literal::Float(bits), Scalar::Bf16) => u64::from(bits >> 16),
        (Literal::Float(bits), _) => u64::from(bits),
    }
}

impl Tile {
    pub fn ints(&self) -> Ints {
        Ints { at: self.memory.at, wide: self.elem == Scalar::I64 }
    }
}

impl Compiler<'_> {
    /// Bytes between the rows of a matrix of this value's shape.
    pub(super) fn row_bytes(&self, value: Value) -> u32 {
        let shape = self.kernel.ty(value).shape();
        let columns = wide(shape).last().map_or(1, |axis| shape[*axis]);
        (columns.next_multiple_of(16) * size(self.elem(value))) as u32
    }

    /// Scratch bytes of a value with these stored lanes.
    pub(super) fn bytes(&self, value: Value, stored: StoredLanes) -> usize {
        let shape = self.kernel.ty(value).shape();
        match stored {
            StoredLanes::Cell => 16 * size(self.elem(value)),
            StoredLanes::Vector(axis) => shape[axis].next_multiple_of(16) * size(self.elem(value)),
            StoredLanes::Matrix => {
                let axes = wide(shape);
                let rows: usize = axes[..axes.len().saturating_sub(1)].iter().map(|i| shape[*i]).product();
                rows * self.row_bytes(value) as usize
            }
        }
    }

    /// A new place for a value with these stored lanes.
    pub(super) fn fresh_stored(&mut self, value: Value, stored: StoredLanes) -> Tile {
        let memory = self.scratch.take(self.bytes(value, stored));
        Tile { memory, elem: self.elem(value), stored, consecutive: false }
    }

    /// A new place for all lanes of a value.
    pub(super) fn fresh(&mut self, value: Value) -> Tile {
        self.fresh_stored(value, all_stored(self.kernel.ty(value).shape()))
    }

    /// A constant in scratch memory, set once per launch.
    pub(super) fn constant(&mut self, literal: Literal, elem: Scalar) -> Tile {
        let (bits, bytes) = (literal_bits(literal, elem), size(elem));
        let scratch = self.constant_scratch.clone();
        let memory = self.constants.entry((bits, bytes)).or_insert_with(|| scratch.take(16 * bytes)).clone();
        Tile { memory, elem, stored: StoredLanes::Cell, consecutive: false }
    }

    /// A value as a tile, with the lanes that it has stored; a lazy value is spelled out.
    pub(super) fn tile(&mut self, value: Value) -> Result<Tile> {
        match self.env.get(&value) {
            Some(Sym::Tile(tile)) => Ok(tile.clone()),
            Some(Sym::Const(literal)) => {
                let literal = *literal;
                Ok(self.constant(literal, self.elem(value)))
            }
            Some(Sym::Sum(parts)) => {
                let parts = parts.clone();
                self.spell_out(value, parts, true)
            }
            Some(Sym::And(parts)) => {
                let parts = parts.clone();
                self.spell_out(value, parts, false)
            }
            Some(Sym::Pending { block, check, padding }) => {
                let (block, check, padding) = (block.clone(), check.clone(), *padding);
                let tile = self.emit_load_block(value, value, &block, &check, padding)?;
                self.define(value, Sym::Tile(tile.clone()));
                Ok(tile)
            }
            Some(Sym::Difference(a, b)) => {
                let tiles = [a.clone(), b.clone()];
                let Some(f) = ops::binary(vosti_tile::Binary::SubF, Scalar::F32) else {
                    return self.unsupported("a difference");
                };
                let tile = self.map_tiles(value, f, &tiles, &[])?;
                self.define(value, Sym::Tile(tile.clone()));
                Ok(tile)
            }
            Some(Sym::Pointer(_) | Sym::Block(_)) => self.unsupported("arithmetic on pointers"),
            Some(Sym::InTurn(..)) => self.unsupported("a transposition of this rank"),
            None => self.unsupported("a value from outside its region"),
        }
    }

    /// Adds (or conjoins) the parts of a lazy value, and remembers the result.
    fn spell_out(&mut self, value: Value, parts: Vec<Part>, add: bool) -> Result<Tile> {
        let elem = self.elem(value);
        let mut parts = parts.into_iter();
        let mut total = match parts.next() {
            Some(part) => self.part_tile(part, elem),
            None => self.constant(Literal::Int(i64::from(!add)), elem),
        };
        for part in parts {
            let part = self.part_tile(part, elem);
            let f = ops::add_or_and(elem, add);
            total = self.map_tiles(value, f, &[total, part], &[])?;
        }
        self.define(value, Sym::Tile(total.clone()));
        Ok(total)
    }

    fn part_tile(&mut self, part: Part, elem: Scalar) -> Tile {
        match part {
            Part::Tile(tile) => tile,
            Part::Const(value) => self.constant(Literal::Int(value), elem),
        }
    }

    /// A scalar integer.
    pub(super) fn whole(&mut self, value: Value) -> Result<Whole> {
        if let Some(Sym::Const(Literal::Int(value))) = self.env.get(&value) {
            return Ok(Whole::Const(*value));
        }
        Ok(Whole::Cell(self.tile(value)?))
    }

    /// The place of a tile for an operation over the lanes `stored` of a value.
    pub(super) fn place(&self, value: Value, tile: &Tile, stored: StoredLanes) -> Result<Place> {
        let at = tile.memory.at;
        let axes = wide(self.kernel.ty(value).shape());
        let bytes = size(tile.elem) as u32;
        match (stored, tile.stored) {
            (_, StoredLanes::Cell) => Ok(Place { at, row: 0, lanes: false }),
            (StoredLanes::Vector(a), StoredLanes::Vector(b)) if a == b => Ok(Place { at, row: 0, lanes: true }),
            (StoredLanes::Matrix, StoredLanes::Matrix) => {
                let shape = self.kernel.ty(value).shape();
                let columns = axes.last().map_or(1, |axis| shape[*axis]);
                Ok(Place { at, row: columns.next_multiple_of(16) as u32 * bytes, lanes: true })
            }
            (StoredLanes::Matrix, StoredLanes::Vector(axis)) if axes.len() == 2 && axis == axes[0] => {
                Ok(Place { at, row: bytes, lanes: false })
            }
            (StoredLanes::Matrix, StoredLanes::Vector(axis)) if axes.last() == Some(&axis) => {
                Ok(Place { at, row: 0, lanes: true })
            }
            _ => self.unsupported("a broadcast of this rank"),
        }
    }

    /// Every lane of a value spelled out.
    pub(super) fn full(&mut self, value: Value) -> Result<Tile> {
        let tile = self.tile(value)?;
        if tile.stored == all_stored(self.kernel.ty(value).shape()) {
            return Ok(tile);
        }
        let target = self.fresh(value);
        self.copy(value, &tile, &target)?;
        Ok(target)
    }

    /// Copies a tile into a place that stores the same lanes or more.
    pub(super) fn copy(&mut self, value: Value, from: &Tile, to: &Tile) -> Result<()> {
        let f: Versions<vosti_simd::vector::MapFn> = ops::copy(size(to.elem));
        let source = self.place(value, from, to.stored)?;
        self.emit_map(value, f, to, &[source]);
        Ok(())
    }

    /// Emits a map over all lanes of `dst`.
    pub(super) fn emit_map(
        &mut self,
        value: Value,
        f: Versions<vosti_simd::vector::MapFn>,
        dst: &Tile,
        from: &[Place],
    ) {
        let mut args = [Place::default(); 3];
        args[..from.len()].copy_from_slice(from);
        let axes = wide(self.kernel.ty(value).shape());
        let one = self.count(1);
        let shape = self.kernel.ty(value).shape().to_vec();
        let (rows, groups) = match dst.stored {
            StoredLanes::Cell => (one, one),
            StoredLanes::Vector(axis) => (one, self.groups(value, axis)),
            StoredLanes::Matrix => {
                let (last, leading) = axes.split_last().expect("a matrix has axes");
                let rows = match leading {
                    [axis] => self.lanes(value, *axis).count,
                    _ => self.count(leading.iter().map(|i| shape[*i]).product()),
                };
                (rows, self.groups(value, *last))
            }
        };
        let columns = axes.last().map_or(1, |axis| shape[*axis]).next_multiple_of(16);
        let row = if dst.stored == StoredLanes::Matrix { (columns * size(dst.elem)) as u32 } else { 0 };
        let dst = Place { at: dst.memory.at, row, lanes: true };
        self.code.push(Instr::Map(MapCode { f: f.of(self.isa), dst, args, rows, groups }));
    }

    /// The contents of lanes that a load does not read.
    pub(super) fn fill(&mut self, value: Value, other: Option<Value>) -> Result<Fill> {
        let Some(other) = other else { return Ok(Fill::Undefined) };
        if let Some(Sym::Const(literal)) = self.env.get(&other) {
            return Ok(Fill::Bits(literal_bits(*literal, self.elem(other))));
        }
        let tile = self.tile(other)?;
        let stored = all_stored(self.kernel.ty(value).shape());
        Ok(Fill::Tile(self.place(value, &tile, stored)?))
    }
}
