//! The plain interpreter: one operation at a time, no operations fused, every access checked.
//!
//! It defines the meaning of a kernel. Tests compare the CPU executor's fast paths with it bit for bit, and the verifier
//! replays counterexamples on it. It is slow and simple on purpose.
//! Read next: [`memory`], then `elementwise.rs`.

mod elementwise;
pub mod memory;

use crate::ir::*;
use crate::numerics::{self, FloatMode};
pub use memory::{Buffer, Memory};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use thiserror::Error;

/// The value of undefined lanes: masked lanes without `other`, and unpadded lanes outside a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Undefined {
    /// Zero.
    #[default]
    Zero,
    /// NaN, infinities, huge and random numbers, drawn from this seed: no result may depend on them.
    Poison(u64),
}

/// The order in which the programs of a grid run: no result may depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Order {
    /// In the order of launchers: axis 0 varies fastest.
    #[default]
    Ascending,
    /// The last program first.
    Descending,
    /// A permutation drawn from this seed.
    Shuffled(u64),
}

/// Options of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// What undefined lanes hold.
    pub undefined: Undefined,
    /// Which program runs first.
    pub order: Order,
    /// Stop with an error after this many operations.
    pub operations_max: Option<u64>,
}

/// Why a run stopped, and where. Buffers keep the values that were written before.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{kernel}, TTIR line {}{}, program {program:?}: {reason}", .line.ttir, .line.python.map(|l| format!(" (Python line {l})")).unwrap_or_default())]
pub struct RunError {
    /// The kernel's name in the TTIR.
    pub kernel: String,
    /// The operation that failed.
    pub line: Line,
    /// The program's index on each axis of the grid.
    pub program: [usize; 3],
    /// What went wrong there.
    pub reason: Fault,
}

/// Why a run stopped.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum Fault {
    #[error("element {index} of `{param}`, which has {len}")]
    OutOfBounds { param: String, index: i64, len: usize },
    #[error("integer division by zero")]
    DivisionByZero,
    #[error("shift by {by}, outside the type's width")]
    Shift { by: i64 },
    #[error("a loop with step {step}")]
    Step { step: i64 },
    #[error("more operations than the limit of {max}")]
    Operations { max: u64 },
    #[error("the kernel takes {wants} buffers of the parameters' types, got something else at {at}")]
    Buffers { wants: usize, at: usize },
    #[error("`{name}` is not bound")]
    Unbound { name: String },
    #[error("a grid of {grid:?} has more than 2^31 - 1 programs")]
    Grid { grid: [usize; 3] },
}

/// Address of an element: a parameter and an element offset.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Address {
    pub param: u32,
    pub offset: i64,
}

/// A block pointer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Window {
    pub base: Address,
    pub shape: Vec<i64>,
    pub strides: Vec<i64>,
    pub offsets: Vec<i64>,
}

/// A value while it is computed. Integers are sign extended (`I1`: 0 or 1); BF16 are held as FP32.
#[derive(Clone, Debug)]
pub(crate) enum Data {
    Int(Vec<i64>),
    Float(Vec<f32>),
    Pointers(Vec<Address>),
    Block(Window),
}

impl Data {
    pub fn ints(&self) -> &[i64] {
        let Data::Int(v) = self else { unreachable!("typed as integers") };
        v
    }
    pub fn floats(&self) -> &[f32] {
        let Data::Float(v) = self else { unreachable!("typed as floats") };
        v
    }
    pub fn pointers(&self) -> &[Address] {
        let Data::Pointers(v) = self else { unreachable!("typed as pointers") };
        v
    }
    pub fn window(&self) -> &Window {
        let Data::Block(w) = self else { unreachable!("typed as a block pointer") };
        w
    }
    /// Lane `from(i)` of `self` at lane i, for `n` lanes.
    pub fn gather(&self, n: usize, from: impl Fn(usize) -> usize) -> Data {
        match self {
            Data::Int(v) => Data::Int((0..n).map(|i| v[from(i)]).collect()),
            Data::Float(v) => Data::Float((0..n).map(|i| v[from(i)]).collect()),
            Data::Pointers(v) => Data::Pointers((0..n).map(|i| v[from(i)]).collect()),
            Data::Block(_) => unreachable!("block pointers have no lanes"),
        }
    }
}

/// Called with each operation that has a float result, and the result's lanes (BF16 as FP32).
pub type Observer<'a> = &'a mut dyn FnMut(&Op, &[f32]);

/// Runs every program of the grid. `memory` holds one buffer for each parameter, of its element type. An error if the buffers
/// do not fit, the kernel is not bound, an access is out of bounds, or the limit of operations is reached.
pub fn run<M: Memory>(kernel: &Kernel, memory: &mut M, grid: [usize; 3], options: &Options) -> Result<(), RunError> {
    run_observed(kernel, memory, grid, options, &mut |_, _| ())
}

/// As [`run`], and calls an observer with each float result.
pub fn run_observed<M: Memory>(
    kernel: &Kernel,
    memory: &mut M,
    grid: [usize; 3],
    options: &Options,
    observer: Observer,
) -> Result<(), RunError> {
    let fault = |reason| RunError { kernel: kernel.name.clone(), line: Line::default(), program: [0; 3], reason };
    let wrong = kernel.params.iter().enumerate().position(|(i, p)| memory.elem(i) != Some(p.elem));
    if let Some(at) = wrong {
        return Err(fault(Fault::Buffers { wants: kernel.params.len(), at }));
    }
    if let Some(scalar) = kernel.scalars.first() {
        return Err(fault(Fault::Unbound { name: scalar.name.clone() }));
    }
    // A program's index on an axis is an `I32`.
    let count = grid.iter().try_fold(1usize, |count, axis| count.checked_mul(*axis));
    if grid.iter().any(|n| *n > i32::MAX as usize) || count.is_none_or(|count| count > i32::MAX as usize) {
        return Err(fault(Fault::Grid { grid }));
    }
    FloatMode::with(|| {
        let mut machine = Machine {
            kernel,
            memory,
            grid,
            program: [0; 3],
            values: vec![None; kernel.values.len()],
            random: match options.undefined {
                Undefined::Zero => None,
                Undefined::Poison(seed) => Some(Random::new(seed)),
            },
            operations_left: options.operations_max.unwrap_or(u64::MAX),
            operations_max: options.operations_max.unwrap_or(u64::MAX),
            line: Line::default(),
            observer,
        };
        for program in programs(grid, options.order) {
            machine.program = program;
            machine.program().map_err(|reason| RunError {
                kernel: kernel.name.clone(),
                line: machine.line,
                program,
                reason,
            })?;
        }
        Ok(())
    })
}

/// The programs in order; axis 0 is fastest. Only a shuffle makes a list of them, because a limit of operations may end a run
/// long before the last program.
fn programs([x, y, z]: [usize; 3], order: Order) -> impl Iterator<Item = [usize; 3]> {
    let count = x * y * z;
    let mut list = vec![];
    if let Order::Shuffled(seed) = order {
        let mut random = Random::new(seed);
        list = (0..count as u32).collect();
        for i in (1..count).rev() {
            list.swap(i, (random.next() % (i as u64 + 1)) as usize);
        }
    }
    (0..count).map(move |i| {
        let i = match order {
            Order::Ascending => i,
            Order::Descending => count - 1 - i,
            Order::Shuffled(_) => list[i] as usize,
        };
        [i % x, i / x % y, i / x / y]
    })
}

/// Seeded random numbers.
pub(crate) struct Random(SplitMix64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed))
    }

    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }
}

/// One program's state.
pub(crate) struct Machine<'a, M> {
    pub kernel: &'a Kernel,
    memory: &'a mut M,
    grid: [usize; 3],
    program: [usize; 3],
    values: Vec<Option<Data>>,
    random: Option<Random>,
    operations_left: u64,
    operations_max: u64,
    line: Line,
    observer: Observer<'a>,
}

type Step<T> = Result<T, Fault>;

/// The result of an operation on two integers; None if it is not defined.
pub(crate) fn scalar_int(op: Binary, a: i64, b: i64, elem: Scalar) -> Option<i64> {
    elementwise::binary_int(op, a, b, elem).ok()
}

pub(crate) use elementwise::cmp_int;

impl<M: Memory> Machine<'_, M> {
    fn program(&mut self) -> Step<()> {
        for (i, param) in self.kernel.params.iter().enumerate() {
            let address = Address { param: i as u32, offset: 0 };
            self.values[param.value.index()] = Some(Data::Pointers(vec![address]));
        }
        let kernel = self.kernel;
        self.ops(&kernel.body)
    }

    pub(crate) fn get(&self, value: Value) -> &Data {
        self.values[value.index()].as_ref().expect("defined before it is used")
    }

    fn set(&mut self, value: Value, data: Data) {
        self.values[value.index()] = Some(data);
    }

    fn scalar(&self, value: Value) -> i64 {
        self.get(value).ints()[0]
    }

    fn ops(&mut self, ops: &[Op]) -> Step<()> {
        for op in ops {
            self.line = op.line;
            self.operations_left =
                self.operations_left.checked_sub(1).ok_or(Fault::Operations { max: self.operations_max })?;
            match &op.kind {
                OpKind::For { .. } => self.for_loop(op)?,
                OpKind::If { cond, then, otherwise } => {
                    let region = if self.scalar(*cond) != 0 { then } else { otherwise };
                    self.ops(&region.ops)?;
                    self.hand_on(&region.yields, &op.results);
                }
                OpKind::Store { .. } | OpKind::StoreBlock { .. } => self.store(&op.kind)?,
                kind => {
                    let data = self.evaluate(kind, op.results[0])?;
                    if let Data::Float(lanes) = &data {
                        (self.observer)(op, lanes);
                    }
                    self.set(op.results[0], data);
                }
            }
        }
        Ok(())
    }

    /// `to = from`, all at once.
    fn hand_on(&mut self, from: &[Value], to: &[Value]) {
        let data: Vec<Data> = from.iter().map(|v| self.get(*v).clone()).collect();
        for (value, data) in to.iter().zip(data) {
            self.set(*value, data);
        }
    }

    fn for_loop(&mut self, op: &Op) -> Step<()> {
        let OpKind::For { lo, hi, step, index, args, inits, body } = &op.kind else { unreachable!("called on a loop") };
        let (mut i, hi, step) = (self.scalar(*lo), self.scalar(*hi), self.scalar(*step));
        if step <= 0 {
            return Err(Fault::Step { step });
        }
        self.hand_on(inits, args);
        while i < hi {
            self.set(*index, Data::Int(vec![i]));
            self.ops(&body.ops)?;
            self.hand_on(&body.yields, args);
            i = i.saturating_add(step);
        }
        self.hand_on(args, &op.results);
        Ok(())
    }

    /// The result of an operation without regions.
    fn evaluate(&mut self, kind: &OpKind, result: Value) -> Step<Data> {
        let kernel = self.kernel;
        let ty = kernel.ty(result);
        let lanes = ty.lanes();
        Ok(match kind {
            OpKind::ProgramId { axis } => Data::Int(vec![self.program[*axis] as i64]),
            OpKind::NumPrograms { axis } => Data::Int(vec![self.grid[*axis] as i64]),
            OpKind::Constant { value: Literal::Int(v), .. } => Data::Int(vec![*v; lanes]),
            OpKind::Constant { value: Literal::Float(bits), .. } => Data::Float(vec![f32::from_bits(*bits); lanes]),
            OpKind::Poison { .. } => self.undefined(ty),
            OpKind::Range { start, end } => Data::Int((*start..*end).map(i64::from).collect()),
            OpKind::Splat { x, .. } => self.get(*x).gather(lanes, |_| 0),
            OpKind::ExpandDims { x, .. } | OpKind::Reshape { x, .. } => self.get(*x).clone(),
            OpKind::Broadcast { x, shape } => {
                let from = kernel.ty(*x).shape();
                let strides: Vec<usize> =
                    strides(from).iter().zip(from).map(|(s, n)| if *n == 1 { 0 } else { *s }).collect();
                self.get(*x).gather(lanes, |i| along(i, shape, &strides))
            }
            OpKind::Transpose { x, perm } => {
                let from = strides(kernel.ty(*x).shape());
                let permuted: Vec<usize> = perm.iter().map(|p| from[*p]).collect();
                self.get(*x).gather(lanes, |i| along(i, ty.shape(), &permuted))
            }
            OpKind::Half { x, which } => self.get(*x).gather(lanes, |i| 2 * i + which),
            OpKind::AddPtr { ptr, offset } => {
                let pairs = self.get(*ptr).pointers().iter().zip(self.get(*offset).ints());
                Data::Pointers(
                    pairs.map(|(p, o)| Address { param: p.param, offset: p.offset.wrapping_add(*o) }).collect(),
                )
            }
            OpKind::MakeBlock { base, shape, strides, offsets, .. } => {
                let list = |values: &[Value]| values.iter().map(|v| self.scalar(*v)).collect::<Vec<_>>();
                Data::Block(Window {
                    base: self.get(*base).pointers()[0],
                    shape: list(shape),
                    strides: list(strides),
                    offsets: list(offsets),
                })
            }
            OpKind::Advance { ptr, offsets } => {
                let mut window = self.get(*ptr).window().clone();
                for (offset, by) in window.offsets.iter_mut().zip(offsets) {
                    // Offsets are 32 bits wide, as their operands are.
                    *offset = i64::from((*offset as i32).wrapping_add(self.scalar(*by) as i32));
                }
                Data::Block(window)
            }
            OpKind::Load { ptr, mask, other } => self.load(*ptr, *mask, *other, ty)?,
            OpKind::LoadBlock { ptr, check, padding } => self.load_block(*ptr, check, *padding, ty)?,
            OpKind::Dot { a, b, acc } => self.dot(*a, *b, *acc),
            OpKind::Reduce { op, x, axis } => self.reduce(*op, *x, *axis)?,
            kind => self.elementwise(kind, ty)?,
        })
    }

    /// Undefined lanes.
    fn undefined(&mut self, ty: &Type) -> Data {
        let lanes = ty.lanes();
        match ty {
            Type::Tile { elem, .. } if elem.is_float() => {
                Data::Float((0..lanes).map(|_| memory::float_of(self.undefined_bits(*elem), *elem)).collect())
            }
            Type::Tile { elem, .. } => {
                Data::Int((0..lanes).map(|_| memory::int_of(self.undefined_bits(*elem), *elem)).collect())
            }
            // An address of nothing: any access through it is out of bounds.
            _ => Data::Pointers(vec![Address { param: 0, offset: i64::MIN }; lanes]),
        }
    }

    /// Bits of one undefined element.
    fn undefined_bits(&mut self, elem: Scalar) -> u64 {
        let Some(random) = &mut self.random else {
            return 0;
        };
        let bits = random.next();
        if !elem.is_float() {
            return bits;
        }
        let float = match bits % 5 {
            0 => f32::NAN,
            1 => f32::INFINITY,
            2 => f32::NEG_INFINITY,
            3 => 3e38,
            _ => f32::from_bits((bits >> 32) as u32),
        };
        let float = float.to_bits();
        u64::from(if elem == Scalar::Bf16 { float >> 16 } else { float })
    }

    fn element(&self, address: Address) -> Step<(usize, usize)> {
        let param = address.param as usize;
        let len = self.memory.len(param);
        match usize::try_from(address.offset) {
            Ok(index) if index < len => Ok((param, index)),
            _ => Err(Fault::OutOfBounds { param: self.kernel.params[param].name.clone(), index: address.offset, len }),
        }
    }

    fn read(&mut self, address: Option<Address>, elem: Scalar) -> Step<u64> {
        match address {
            Some(address) => {
                let (param, index) = self.element(address)?;
                Ok(self.memory.load(param, index))
            }
            None => Ok(self.undefined_bits(elem)),
        }
    }

    fn load(&mut self, ptr: Value, mask: Option<Value>, other: Option<Value>, ty: &Type) -> Step<Data> {
        let addresses = self.get(ptr).pointers().to_vec();
        let mask = mask.map(|m| self.get(m).ints().to_vec());
        let live = |i: usize| mask.as_ref().is_none_or(|m| m[i] != 0);
        let elem = ty.elem();
        let mut bits = Vec::with_capacity(addresses.len());
        for (i, address) in addresses.iter().enumerate() {
            bits.push(match (live(i), other) {
                (false, Some(_)) => 0,
                (live, _) => self.read(live.then_some(*address), elem)?,
            });
        }
        Ok(if elem.is_float() {
            let other = other.map(|o| self.get(o).floats());
            let lane = |(i, b): (usize, u64)| match other {
                Some(other) if !live(i) => other[i],
                _ => memory::float_of(b, elem),
            };
            Data::Float(bits.into_iter().enumerate().map(lane).collect())
        } else {
            let other = other.map(|o| self.get(o).ints());
            let lane = |(i, b): (usize, u64)| match other {
                Some(other) if !live(i) => other[i],
                _ => memory::int_of(b, elem),
            };
            Data::Int(bits.into_iter().enumerate().map(lane).collect())
        })
    }

    fn load_block(&mut self, ptr: Value, check: &[usize], padding: Padding, ty: &Type) -> Step<Data> {
        let window = self.get(ptr).window().clone();
        let elem = ty.elem();
        let pad = match (padding, elem) {
            (Padding::Undefined, _) => None,
            (Padding::Nan, Scalar::Bf16) => Some(u64::from(numerics::NAN_BF16)),
            (Padding::Nan, Scalar::F32) => Some(u64::from(numerics::NAN_F32)),
            _ => Some(0),
        };
        let mut bits = Vec::with_capacity(ty.lanes());
        for lane in 0..ty.lanes() {
            bits.push(match (window.address(lane, ty.shape(), check), pad) {
                (None, Some(pad)) => pad,
                (address, _) => self.read(address, elem)?,
            });
        }
        Ok(if elem.is_float() {
            Data::Float(bits.into_iter().map(|b| memory::float_of(b, elem)).collect())
        } else {
            Data::Int(bits.into_iter().map(|b| memory::int_of(b, elem)).collect())
        })
    }

    fn store(&mut self, kind: &OpKind) -> Step<()> {
        let kernel = self.kernel;
        let (ptr, value) = match kind {
            OpKind::Store { ptr, value, .. } | OpKind::StoreBlock { ptr, value, .. } => (*ptr, *value),
            _ => unreachable!("called on a store"),
        };
        let ty = kernel.ty(value);
        let addresses: Vec<Option<Address>> = match kind {
            OpKind::StoreBlock { check, .. } => {
                let window = self.get(ptr).window();
                (0..ty.lanes()).map(|lane| window.address(lane, ty.shape(), check)).collect()
            }
            OpKind::Store { mask, .. } => {
                let mask = mask.map(|m| self.get(m).ints());
                let live = |i: usize| mask.is_none_or(|m| m[i] != 0);
                self.get(ptr).pointers().iter().enumerate().map(|(i, a)| live(i).then_some(*a)).collect()
            }
            _ => unreachable!("called on a store"),
        };
        for (lane, address) in addresses.into_iter().enumerate() {
            let Some(address) = address else { continue };
            let (param, index) = self.element(address)?;
            let bits = match self.get(value) {
                Data::Float(v) => memory::float_bits(v[lane], ty.elem()),
                data => memory::int_bits(data.ints()[lane], ty.elem()),
            };
            self.memory.store(param, index, bits);
        }
        Ok(())
    }

    fn dot(&self, a: Value, b: Value, acc: Value) -> Data {
        let (ta, tb) = (self.kernel.ty(a), self.kernel.ty(b));
        let sizes = [ta.shape()[0], ta.shape()[1], tb.shape()[1]];
        if ta.elem() == Scalar::I8 {
            return Data::Int(integer_dot(self.get(acc).ints(), self.get(a).ints(), self.get(b).ints(), sizes));
        }
        let mut out = self.get(acc).floats().to_vec();
        numerics::dot(&mut out, self.get(a).floats(), self.get(b).floats(), sizes, ta.elem() == Scalar::Bf16);
        Data::Float(out)
    }

    fn reduce(&self, op: Binary, x: Value, axis: usize) -> Step<Data> {
        let ty = self.kernel.ty(x);
        let n = ty.shape()[axis];
        let inner: usize = ty.shape()[axis + 1..].iter().product();
        let outer: usize = ty.shape()[..axis].iter().product();
        let starts = (0..outer).flat_map(|o| (0..inner).map(move |i| o * n * inner + i));
        let elem = ty.elem();
        if let Data::Float(v) = self.get(x) {
            let op = |a, b| elementwise::round_to(elementwise::binary_float(op, a, b), elem);
            return Ok(Data::Float(starts.map(|s| numerics::reduce(n, |i| v[s + i * inner], op)).collect()));
        }
        let v = self.get(x).ints();
        // Integer folds do not depend on the order.
        let fold = |s: usize| (1..n).try_fold(v[s], |acc, i| elementwise::binary_int(op, acc, v[s + i * inner], elem));
        starts.map(fold).collect::<Step<Vec<_>>>().map(Data::Int)
    }
}

/// `acc + a b` in `I32`, which wraps, for row-major tiles.
fn integer_dot(acc: &[i64], a: &[i64], b: &[i64], [m, k, n]: [usize; 3]) -> Vec<i64> {
    let lane = |i: usize, j: usize| {
        let products = (0..k).map(|t| (a[i * k + t] * b[t * n + j]) as i32);
        i64::from(products.fold(acc[i * n + j] as i32, i32::wrapping_add))
    };
    (0..m * n).map(|at| lane(at / n, at % n)).collect()
}

impl Window {
    /// The address of a lane, or none if it lies outside the array on a checked axis.
    fn address(&self, lane: usize, block: &[usize], check: &[usize]) -> Option<Address> {
        let mut rest = lane;
        let mut offset = self.base.offset;
        let mut inside = true;
        for axis in (0..block.len()).rev() {
            let at = self.offsets[axis] + (rest % block[axis]) as i64;
            rest /= block[axis];
            inside &= !check.contains(&axis) || (0..self.shape[axis]).contains(&at);
            offset = offset.wrapping_add(at.wrapping_mul(self.strides[axis]));
        }
        inside.then_some(Address { param: self.base.param, offset })
    }
}

/// Row-major strides of a shape.
fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    strides
}

/// Where lane `i` of `shape` lies under other strides.
fn along(mut i: usize, shape: &[usize], strides: &[usize]) -> usize {
    let mut at = 0;
    for axis in (0..shape.len()).rev() {
        at += i % shape[axis] * strides[axis];
        i /= shape[axis];
    }
    at
}
