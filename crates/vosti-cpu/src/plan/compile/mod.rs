//! Compiles tile IR to a plan, in one pass in program order.
//!
//! Values stay symbolic as long as that is exact and cheap: constants, sums and conjunctions that become address terms,
//! pointers, windows, and block loads that only a dot reads. An operation that cannot be compiled is reported, never
//! approximated; the device then interprets that kernel.
//! Read next: [`tile`], [`elementwise`], [`memory`], [`control`].

mod blocks;
mod control;
mod dot;
mod elementwise;
mod live;
mod memory;
pub(crate) mod tile;

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use vosti_tile::{Kernel, Literal, Op, OpKind, Region, Scalar, Value};

use super::axes::Axes;
use super::code::{Count, Instr, Lanes, Plan};
use super::fusion;
use super::scratch::{Allocation, ScratchAllocator};
use super::unswitch::{Unmasked, unmasked};
use tile::{Pointer, StoredLanes, Sym, Tile, wide};
use vosti_simd::Isa;

/// Why a kernel has no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("TTIR line {line}: {what} has no compiled form; the kernel is interpreted")]
pub struct Unsupported {
    /// 1-based line of the TTIR.
    pub line: u32,
    /// The operation, or the form of the operation.
    pub what: &'static str,
}

/// Bytes at the start of scratch for constants.
const CONSTANTS_MAX: usize = 16 << 10;

type Result<T> = std::result::Result<T, Unsupported>;

/// Compiles a kernel for an instruction set. Error: an operation has no compiled form.
pub fn compile(kernel: &Kernel, isa: Isa) -> Result<Plan> {
    let unmasked = unmasked(kernel);
    let mut compiler = Compiler::new(kernel, isa, &unmasked);
    compiler.parameters();
    compiler.find_live()?;
    compiler.region(&kernel.body, &[], &[])?;
    compiler.check_deferred()?;
    if compiler.constant_scratch.peak() > CONSTANTS_MAX {
        return compiler.unsupported("a kernel with this many constants");
    }
    Ok(compiler.finish())
}

struct Compiler<'k> {
    kernel: &'k Kernel,
    isa: Isa,
    /// Bodies of loops without their masks.
    unmasked: &'k HashMap<Value, Unmasked>,
    /// The number of reads of each value.
    uses: HashMap<Value, usize>,
    axes: Axes,
    made: HashMap<Value, &'k Op>,
    scratch: ScratchAllocator,
    code: Vec<Instr>,
    env: HashMap<Value, Sym>,
    /// Values whose last use is the operation being compiled.
    dying: HashSet<Value>,
    /// Per yielded value of a loop: the tile of the argument that it replaces, and the argument.
    hints: HashMap<Value, (Tile, Value)>,
    counts: Vec<u32>,
    fixed: HashMap<u32, Count>,
    /// Per class of axes: its number among the live axes.
    live: HashMap<usize, u16>,
    live_axes: Vec<(Count, usize)>,
    /// The grid axes that the live lanes depend on.
    live_by: [bool; 3],
    /// Scalars that were computed with the live lanes: their places are not used again.
    kept: Vec<Sym>,
    constants: HashMap<(u64, usize), Rc<Allocation>>,
    /// Constants have their own scratch, so that no place that is freed and reused overwrites them.
    constant_scratch: ScratchAllocator,
    wanted: Vec<Option<vosti_simd::layout::Layout>>,
    written: Vec<bool>,
    read_in_place: Vec<bool>,
    /// Per parameter: the line of a load that is left to its reader.
    deferred: Vec<Option<u32>>,
    line: u32,
}

impl<'k> Compiler<'k> {
    fn new(kernel: &'k Kernel, isa: Isa, unmasked: &'k HashMap<Value, Unmasked>) -> Self {
        let mut made = HashMap::new();
        kernel.walk(&mut |op| op.results.iter().for_each(|r| _ = made.insert(*r, op)));
        let params = kernel.params.len();
        Self {
            kernel,
            isa,
            unmasked,
            uses: uses(kernel),
            axes: Axes::of(kernel),
            made,
            scratch: ScratchAllocator::starting_at(CONSTANTS_MAX),
            code: Vec::new(),
            env: HashMap::new(),
            dying: HashSet::new(),
            hints: HashMap::new(),
            counts: Vec::new(),
            fixed: HashMap::new(),
            live: HashMap::new(),
            live_axes: Vec::new(),
            live_by: [false; 3],
            kept: Vec::new(),
            constants: HashMap::new(),
            constant_scratch: ScratchAllocator::default(),
            wanted: vec![None; params],
            written: vec![false; params],
            read_in_place: vec![false; params],
            deferred: vec![None; params],
            line: 0,
        }
    }

    fn parameters(&mut self) {
        for (index, param) in self.kernel.params.iter().enumerate() {
            self.env.insert(param.value, Sym::Pointer(Pointer { param: index, parts: Vec::new() }));
        }
    }

    /// Refuses a kernel that writes a parameter whose load is left to its reader: the write may come before that reader.
    fn check_deferred(&self) -> Result<()> {
        let both = self.deferred.iter().zip(&self.written).find_map(|(line, written)| line.filter(|_| *written));
        match both {
            Some(line) => {
                Err(Unsupported { line, what: "a load for a dot or a reshape from memory that the kernel writes" })
            }
            None => Ok(()),
        }
    }

    fn finish(self) -> Plan {
        let mut constants = vec![0; self.constant_scratch.peak()];
        for ((bits, bytes), memory) in &self.constants {
            for lane in constants[memory.at as usize..].chunks_exact_mut(*bytes).take(16) {
                lane.copy_from_slice(&bits.to_le_bytes()[..*bytes]);
            }
        }
        let most = |count: Count| {
            let live = |(entry, extent): &(Count, usize)| match count {
                _ if count == *entry => Some(*extent),
                _ if count == *entry + 1 => Some(extent.div_ceil(16)),
                _ => None,
            };
            self.live_axes.iter().find_map(live).unwrap_or(self.counts[usize::from(count)] as usize)
        };
        let sweep = dot::sweep(self.kernel, &self.made);
        let code = fusion::fuse(self.code, most);
        Plan {
            body: code.iter().rposition(|instr| matches!(instr, Instr::Live(_))).map_or(0, |last| last + 1),
            live_by: self.live_by,
            chosen: code.iter().position(|instr| matches!(instr, Instr::Chosen(_))),
            sweep,
            code,
            constants,
            scratch: self.scratch.peak() + 256,
            counts: self.counts,
            live: self.live_axes,
            wanted: self.wanted,
            written: self.written,
            read_in_place: self.read_in_place,
        }
    }

    fn unsupported<T>(&self, what: &'static str) -> Result<T> {
        Err(Unsupported { line: self.line, what })
    }

    /// An entry of the table of counts that always holds `n`.
    fn count(&mut self, n: usize) -> Count {
        let n = n as u32;
        *self.fixed.entry(n).or_insert_with(|| {
            self.counts.push(n);
            (self.counts.len() - 1) as Count
        })
    }

    /// The lanes of one axis of a value.
    fn lanes(&mut self, value: Value, axis: usize) -> Lanes {
        let class = self.axes.class(value, axis);
        match self.live.get(&class) {
            Some(live) => Lanes { count: self.live_axes[usize::from(*live)].0, live: Some(*live) },
            None => Lanes { count: self.count(self.kernel.ty(value).shape()[axis]), live: None },
        }
    }

    /// The number of groups of lanes of one axis.
    fn groups(&mut self, value: Value, axis: usize) -> Count {
        let lanes = self.lanes(value, axis);
        match lanes.live {
            Some(_) => lanes.count + 1,
            None => self.count(self.kernel.ty(value).shape()[axis].div_ceil(16)),
        }
    }

    /// Compiles a body. `own`: values besides the results of its operations that end with it.
    fn region(&mut self, ops: &'k [Op], yields: &[Value], own: &[Value]) -> Result<()> {
        let mut owned: HashSet<Value> = own.iter().copied().collect();
        ops.iter().for_each(|op| owned.extend(&op.results));
        let mut last: HashMap<Value, usize> = HashMap::new();
        for (i, op) in ops.iter().enumerate() {
            reads(op, &mut |v| _ = last.insert(v, i));
        }
        yields.iter().for_each(|v| _ = last.insert(*v, ops.len()));
        for (i, op) in ops.iter().enumerate() {
            let dying = last.iter().filter(|(v, at)| **at == i && owned.contains(v)).map(|(v, _)| *v).collect();
            let outer = std::mem::replace(&mut self.dying, dying);
            self.line = op.line.ttir;
            if op.results.is_empty() || op.results.iter().any(|r| !self.env.contains_key(r)) {
                self.op(op)?;
            }
            for value in std::mem::replace(&mut self.dying, outer) {
                self.env.remove(&value);
            }
            // Results that are never read are kept until the region ends: they cost memory, but no time.
        }
        Ok(())
    }

    fn op(&mut self, op: &'k Op) -> Result<()> {
        use OpKind::*;
        let result = op.results.first().copied().unwrap_or(Value(u32::MAX));
        match &op.kind {
            ProgramId { axis } => {
                let tile = self.fresh(result);
                self.code.push(Instr::ProgramId { at: tile.memory.at, axis: *axis });
                self.define(result, Sym::Tile(tile));
            }
            NumPrograms { axis } => {
                let tile = self.fresh(result);
                self.code.push(Instr::NumPrograms { at: tile.memory.at, axis: *axis });
                self.define(result, Sym::Tile(tile));
            }
            Constant { value, .. } => self.define(result, Sym::Const(*value)),
            Poison { ty } => match ty.elem() {
                // The value is arbitrary; the plan uses zero.
                _ if !ty.is_tile() => return self.unsupported("an arbitrary pointer"),
                elem if elem.is_float() => self.define(result, Sym::Const(Literal::Float(0))),
                _ => self.define(result, Sym::Const(Literal::Int(0))),
            },
            Unary { .. } | Fma { .. } | CmpInt { .. } | CmpFloat { .. } | Cast { .. } => self.elementwise(op)?,
            Binary { op: binary, a, b } => self.binary(op, *binary, *a, *b)?,
            Select { cond, a, b } => self.select(op, *cond, *a, *b)?,
            Splat { x, .. } => {
                let sym = self.env[x].clone();
                self.define(result, sym);
            }
            Broadcast { x, .. } => self.view(result, *x, |axis| axis)?,
            ExpandDims { x, axis } => self.view(result, *x, |i| i + usize::from(i >= *axis))?,
            Reshape { x, .. } => self.reshape(result, *x)?,
            Transpose { x, perm } => self.transpose(result, *x, perm)?,
            Half { x, which } => self.half(result, *x, *which)?,
            Range { start, .. } => {
                let mut tile = self.fresh(result);
                let lanes = self.lanes(result, 0);
                self.code.push(Instr::Range { at: tile.memory.at, lanes, start: *start });
                tile.consecutive = true;
                self.define(result, Sym::Tile(tile));
            }
            AddPtr { ptr, offset } => self.add_pointer(result, *ptr, *offset)?,
            MakeBlock { base, shape, strides, offsets, .. } => {
                self.make_block(result, *base, shape, strides, offsets)?;
            }
            Advance { ptr, offsets } => self.advance(result, *ptr, offsets)?,
            Load { ptr, mask, other } => self.load(result, *ptr, *mask, *other)?,
            LoadBlock { ptr, check, padding } => self.load_block(result, *ptr, check, *padding)?,
            Store { ptr, value, mask } => self.store(*ptr, *value, *mask)?,
            StoreBlock { ptr, value, check } => self.store_block(*ptr, *value, check)?,
            Dot { a, b, acc } => self.dot(result, *a, *b, *acc)?,
            Reduce { op: binary, x, axis } => self.reduce(result, *binary, *x, *axis)?,
            For { .. } => self.for_loop(op)?,
            If { cond, then, otherwise } => self.branch(op, *cond, then, otherwise)?,
        }
        Ok(())
    }

    fn define(&mut self, value: Value, sym: Sym) {
        self.env.insert(value, sym);
    }

    fn elem(&self, value: Value) -> Scalar {
        self.kernel.ty(value).elem()
    }
}

/// The number of reads of each value.
fn uses(kernel: &Kernel) -> HashMap<Value, usize> {
    let mut uses = HashMap::new();
    kernel.body.iter().for_each(|op| reads(op, &mut |v| *uses.entry(v).or_default() += 1));
    uses
}

/// Every value that an operation or a region of it reads.
fn reads(op: &Op, visit: &mut impl FnMut(Value)) {
    op.kind.operands().into_iter().for_each(&mut *visit);
    for region in op.kind.regions() {
        region_reads(region, visit);
    }
}

fn region_reads(region: &Region, visit: &mut impl FnMut(Value)) {
    for op in &region.ops {
        reads(op, visit);
    }
    region.yields.iter().copied().for_each(visit);
}

/// The form in which every lane of a value of this shape is stored.
fn all_stored(shape: &[usize]) -> StoredLanes {
    match wide(shape)[..] {
        [] => StoredLanes::Cell,
        [axis] => StoredLanes::Vector(axis),
        _ => StoredLanes::Matrix,
    }
}
