//! Makes kernels operation by operation and checks the type of each: the typing rules of the tile IR.
//!
//! The lifting and the program generator make kernels with [`Builder`], so every kernel that they give is well typed.

use std::collections::HashMap;

use crate::ir::*;
use thiserror::Error;

/// Why an operation is ill typed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TypeError {
    #[error("{op} takes {wants}, not {found}")]
    Operand { op: &'static str, wants: &'static str, found: Type },
    #[error("{op} takes operands of one type, not {a} and {b}")]
    Mismatch { op: &'static str, a: Type, b: Type },
    #[error("{op}: shape {found:?} does not follow from {from:?}")]
    Shape { op: &'static str, from: Shape, found: Shape },
    #[error("{op}: axis {axis} is outside rank {rank}")]
    Axis { op: &'static str, axis: usize, rank: usize },
    #[error("{op} needs {wants} values, got {found}")]
    Count { op: &'static str, wants: usize, found: usize },
    #[error(
        "an integer division needs a constant divisor other than 0 and -1, because nothing defines what it is by those: \
         make the divisor a tl.constexpr"
    )]
    Divisor,
    #[error(
        "a shift of {bits} bits needs a constant amount from 0 to {}, because nothing defines what it is by more: make \
         the amount a tl.constexpr", bits - 1
    )]
    Shift { bits: u32 },
}

type Result<T> = std::result::Result<T, TypeError>;

/// A kernel under construction. Operations go to the innermost open region.
pub struct Builder {
    name: String,
    params: Vec<Param>,
    scalars: Vec<ScalarParam>,
    values: Vec<ValueInfo>,
    /// How many operations stand above each value, one on the result of the other.
    depths: Vec<usize>,
    /// The integer in every lane of a value, where it is known.
    known: HashMap<Value, i64>,
    open: Vec<Vec<Op>>,
    /// The source line of the operations that are added next.
    pub line: Line,
}

/// A loop whose body is open.
pub struct OpenFor {
    lo: Value,
    hi: Value,
    step: Value,
    inits: Vec<Value>,
    /// The iteration's index, for the body.
    pub index: Value,
    /// The carried values, for the body.
    pub args: Vec<Value>,
    line: Line,
}

impl Builder {
    /// An empty kernel of this name.
    pub fn new(name: &str) -> Builder {
        Builder {
            name: name.to_string(),
            params: vec![],
            scalars: vec![],
            values: vec![],
            depths: vec![],
            known: HashMap::new(),
            open: vec![vec![]],
            line: Line::default(),
        }
    }

    /// Adds a pointer parameter.
    pub fn param(&mut self, name: &str, elem: Scalar, divisibility: u32) -> Value {
        let value = self.value(Type::Pointers { shape: vec![], elem }, name);
        self.params.push(Param { name: name.to_string(), value, elem, divisibility });
        value
    }

    /// Adds a number parameter, which is bound before the kernel runs.
    pub fn scalar(&mut self, name: &str, elem: Scalar) -> Value {
        let value = self.value(Type::scalar(elem), name);
        self.scalars.push(ScalarParam { name: name.to_string(), value, elem });
        value
    }

    /// The type of a value that this builder made.
    pub fn ty(&self, value: Value) -> &Type {
        &self.values[value.index()].ty
    }

    /// Names a value, for people; a value keeps its first name.
    pub fn name_value(&mut self, value: Value, name: &str) {
        let info = &mut self.values[value.index()];
        if info.name.is_empty() {
            info.name = name.to_string();
        }
    }

    fn value(&mut self, ty: Type, name: &str) -> Value {
        self.values.push(ValueInfo { ty, name: name.to_string() });
        self.depths.push(0);
        Value(self.values.len() as u32 - 1)
    }

    /// How many operations stand above a value, one on the result of the other: a bound of the recursion of whoever follows
    /// operands. The result of a loop or a branch stands below what its bodies yield.
    pub fn depth(&self, value: Value) -> usize {
        self.depths[value.index()]
    }

    fn below<'a>(&self, values: impl IntoIterator<Item = &'a Value>) -> usize {
        values.into_iter().map(|value| self.depth(*value) + 1).max().unwrap_or(0)
    }

    fn emit(&mut self, kind: OpKind, results: Vec<Value>, line: Line) {
        let yields = kind.regions().into_iter().flat_map(|region| &region.yields);
        let depth = self.below(&kind.operands()).max(self.below(yields));
        results.iter().for_each(|value| self.depths[value.index()] = depth);
        self.open.last_mut().expect("the body is open").push(Op { kind, results, line });
    }

    /// Adds an operation without regions; returns its result if it has one. An error if it is ill typed.
    pub fn push(&mut self, kind: OpKind) -> Result<Option<Value>> {
        let ty = self.infer(&kind)?;
        let constant = self.constant(&kind);
        let result = ty.map(|ty| self.value(ty, ""));
        self.known.extend(result.zip(constant));
        self.emit(kind, result.into_iter().collect(), self.line);
        Ok(result)
    }

    /// The integer in every lane of the operation's result, where constants alone show it.
    fn constant(&self, kind: &OpKind) -> Option<i64> {
        match kind {
            OpKind::Constant { value: Literal::Int(value), .. } => Some(*value),
            OpKind::Splat { x, .. }
            | OpKind::Broadcast { x, .. }
            | OpKind::Reshape { x, .. }
            | OpKind::ExpandDims { x, .. } => self.known.get(x).copied(),
            // Sign extension makes a true i1 into -1.
            OpKind::Cast { op: Cast::ExtS, x, .. } if self.ty(*x).elem() != Scalar::I1 => self.known.get(x).copied(),
            _ => None,
        }
    }

    /// Refuses an integer operation that is undefined for some operands, where processors and compilers differ.
    fn defined(&self, op: Binary, elem: Scalar, b: Value) -> Result<()> {
        let known = self.known.get(&b).copied();
        let numbers = elem != Scalar::I1;
        match op {
            Binary::DivS | Binary::RemS | Binary::DivU | Binary::RemU => match known {
                Some(divisor) if numbers && divisor != 0 && divisor != -1 => Ok(()),
                _ => Err(TypeError::Divisor),
            },
            Binary::Shl | Binary::ShrS | Binary::ShrU => match known {
                Some(by) if numbers && (0..i64::from(elem.bits())).contains(&by) => Ok(()),
                _ => Err(TypeError::Shift { bits: elem.bits() }),
            },
            _ => Ok(()),
        }
    }

    /// As [`Builder::push`] for an operation that has a result.
    pub fn op(&mut self, kind: OpKind) -> Result<Value> {
        Ok(self.push(kind)?.expect("the operation has a result"))
    }

    /// Opens a region: a branch, or a reduction's body.
    pub fn begin(&mut self) {
        self.open.push(vec![]);
    }

    /// Closes the innermost region.
    pub fn end(&mut self, yields: Vec<Value>) -> Region {
        let ops = self.open.pop().expect("a region is open");
        Region { ops, yields }
    }

    /// A fresh value that no operation defines: a region's argument.
    pub fn argument(&mut self, ty: Type) -> Value {
        self.value(ty, "")
    }

    /// Opens a loop over `lo..hi` by `step`. `inits` are the carried values of the first iteration; [`Builder::end_for`] refuses
    /// a body that yields other types.
    pub fn begin_for(&mut self, lo: Value, hi: Value, step: Value, inits: Vec<Value>) -> Result<OpenFor> {
        let index = self.ty(lo).clone();
        if !index.shape().is_empty() || !index.is_tile() || !matches!(index.elem(), Scalar::I32 | Scalar::I64) {
            return Err(TypeError::Operand { op: "for", wants: "i32 or i64 scalar bounds", found: index });
        }
        self.same("for", lo, hi)?;
        self.same("for", lo, step)?;
        let index = self.value(index, "");
        let args = inits.iter().map(|v| self.ty(*v).clone()).collect::<Vec<_>>();
        let args: Vec<Value> = args.into_iter().map(|ty| self.value(ty, "")).collect();
        let depth = self.below([&lo, &hi, &step].into_iter().chain(&inits));
        args.iter().chain([&index]).for_each(|value| self.depths[value.index()] = depth);
        self.begin();
        Ok(OpenFor { lo, hi, step, inits, index, args, line: self.line })
    }

    /// Closes the loop. `yields` are the carried values of the next iteration; after the last one they are the results.
    pub fn end_for(&mut self, open: OpenFor, yields: Vec<Value>) -> Result<Vec<Value>> {
        let OpenFor { lo, hi, step, inits, index, args, line } = open;
        self.same_list("for", &inits, &yields)?;
        let body = self.end(yields);
        let types: Vec<Type> = inits.iter().map(|v| self.ty(*v).clone()).collect();
        let results: Vec<Value> = types.into_iter().map(|ty| self.value(ty, "")).collect();
        self.emit(OpKind::For { lo, hi, step, index, args, inits, body }, results.clone(), line);
        Ok(results)
    }

    /// Adds a branch from two closed regions.
    pub fn branch(&mut self, cond: Value, then: Region, otherwise: Region, line: Line) -> Result<Vec<Value>> {
        if *self.ty(cond) != Type::scalar(Scalar::I1) {
            return self.bad("if", "an i1 scalar", cond);
        }
        self.same_list("if", &then.yields, &otherwise.yields)?;
        let types: Vec<Type> = then.yields.iter().map(|v| self.ty(*v).clone()).collect();
        let results: Vec<Value> = types.into_iter().map(|ty| self.value(ty, "")).collect();
        self.emit(OpKind::If { cond, then, otherwise }, results.clone(), line);
        Ok(results)
    }

    /// The finished kernel, without unused operations.
    pub fn finish(mut self) -> Kernel {
        let body = self.open.pop().expect("the body is open");
        assert!(self.open.is_empty(), "a region is still open");
        swept(Kernel { name: self.name, params: self.params, scalars: self.scalars, values: self.values, body })
    }

    fn bad<T>(&self, op: &'static str, wants: &'static str, found: Value) -> Result<T> {
        Err(TypeError::Operand { op, wants, found: self.ty(found).clone() })
    }

    fn same(&self, op: &'static str, a: Value, b: Value) -> Result<()> {
        if self.ty(a) == self.ty(b) {
            return Ok(());
        }
        Err(TypeError::Mismatch { op, a: self.ty(a).clone(), b: self.ty(b).clone() })
    }

    fn same_list(&self, op: &'static str, a: &[Value], b: &[Value]) -> Result<()> {
        if a.len() != b.len() {
            return Err(TypeError::Count { op, wants: a.len(), found: b.len() });
        }
        a.iter().zip(b).try_for_each(|(a, b)| self.same(op, *a, *b))
    }

    fn tile(&self, op: &'static str, wants: &'static str, v: Value, fits: fn(Scalar) -> bool) -> Result<Type> {
        let ty = self.ty(v);
        if ty.is_tile() && fits(ty.elem()) { Ok(ty.clone()) } else { self.bad(op, wants, v) }
    }

    /// Refuses `list` unless it has `rank` scalars of type `elem`.
    fn scalars(&self, op: &'static str, list: &[Value], elem: Scalar, rank: usize) -> Result<()> {
        if list.len() != rank {
            return Err(TypeError::Count { op, wants: rank, found: list.len() });
        }
        for v in list {
            if *self.ty(*v) != Type::scalar(elem) {
                return self.bad(op, if elem == Scalar::I32 { "i32 scalars" } else { "i64 scalars" }, *v);
            }
        }
        Ok(())
    }

    /// Refuses a mask that is no `I1` tile of `shape`.
    fn mask(&self, op: &'static str, mask: Option<Value>, shape: &[usize]) -> Result<()> {
        match mask {
            Some(m) if *self.ty(m) != Type::tile(shape, Scalar::I1) => {
                self.bad(op, "an i1 mask of the pointers' shape", m)
            }
            _ => Ok(()),
        }
    }

    fn axes(op: &'static str, axes: &[usize], rank: usize) -> Result<()> {
        match axes.iter().find(|a| **a >= rank) {
            Some(axis) => Err(TypeError::Axis { op, axis: *axis, rank }),
            None => Ok(()),
        }
    }

    /// The type of the operation's result, if it has one.
    fn infer(&self, kind: &OpKind) -> Result<Option<Type>> {
        use OpKind::*;
        let float: fn(Scalar) -> bool = Scalar::is_float;
        let int: fn(Scalar) -> bool = Scalar::is_int;
        Ok(Some(match kind {
            ProgramId { .. } | NumPrograms { .. } => Type::scalar(Scalar::I32),
            Constant { ty, .. } | Poison { ty } => ty.clone(),
            Unary { x, .. } => self.tile("a math function", "a float tile", *x, float)?,
            Binary { op, a, b } => {
                self.same("arithmetic", *a, *b)?;
                let (wants, fits) = if op.is_float() { ("float tiles", float) } else { ("integer tiles", int) };
                let ty = self.tile("arithmetic", wants, *a, fits)?;
                self.defined(*op, ty.elem(), *b)?;
                ty
            }
            Fma { a, b, c } => {
                self.same("fma", *a, *b)?;
                self.same("fma", *a, *c)?;
                self.tile("fma", "float tiles", *a, float)?
            }
            CmpInt { a, b, .. } => {
                self.same("comparison", *a, *b)?;
                Type::tile(self.tile("comparison", "integer tiles", *a, int)?.shape(), Scalar::I1)
            }
            CmpFloat { a, b, .. } => {
                self.same("comparison", *a, *b)?;
                Type::tile(self.tile("comparison", "float tiles", *a, float)?.shape(), Scalar::I1)
            }
            Select { cond, a, b } => {
                self.same("select", *a, *b)?;
                let c = self.tile("select", "an i1 condition", *cond, |e| e == Scalar::I1)?;
                let shape = self.ty(*a).shape();
                if !c.shape().is_empty() && c.shape() != shape {
                    return Err(TypeError::Shape { op: "select", from: shape.to_vec(), found: c.shape().to_vec() });
                }
                if matches!(self.ty(*a), Type::Block { .. }) {
                    return self.bad("select", "tiles or pointers", *a);
                }
                self.ty(*a).clone()
            }
            Cast { op, x, to } => self.infer_cast(*op, *x, *to)?,
            Splat { x, shape } => {
                let ty = self.ty(*x);
                if !ty.shape().is_empty() || matches!(ty, Type::Block { .. }) {
                    return self.bad("splat", "a scalar", *x);
                }
                ty.with_shape(shape.clone())
            }
            Broadcast { x, shape } => {
                let from = self.ty(*x).shape();
                let fits = from.len() == shape.len() && from.iter().zip(shape).all(|(f, t)| f == t || *f == 1);
                self.reshaped("broadcast", *x, shape, fits)?
            }
            Reshape { x, shape } => {
                let fits = self.ty(*x).lanes() == shape.iter().product::<usize>();
                self.reshaped("reshape", *x, shape, fits)?
            }
            ExpandDims { x, axis } => {
                let mut shape = self.ty(*x).shape().to_vec();
                Self::axes("expand_dims", &[*axis], shape.len() + 1)?;
                shape.insert(*axis, 1);
                self.reshaped("expand_dims", *x, &shape, true)?
            }
            Transpose { x, perm } => {
                let from = self.ty(*x).shape();
                Self::axes("transpose", perm, from.len())?;
                let fits = perm.len() == from.len() && (0..perm.len()).all(|a| perm.contains(&a));
                let shape: Shape = perm.iter().map(|p| from[*p]).collect();
                self.reshaped("transpose", *x, &shape, fits)?
            }
            Half { x, which } => {
                let from = self.ty(*x).shape();
                let fits = from.last() == Some(&2) && *which < 2;
                self.reshaped("split", *x, &from[..from.len().saturating_sub(1)], fits)?
            }
            Range { start, end } => {
                let lanes = i64::from(*end) - i64::from(*start);
                if lanes <= 0 {
                    return Err(TypeError::Shape { op: "range", from: vec![], found: vec![] });
                }
                Type::tile([lanes as usize], Scalar::I32)
            }
            AddPtr { ptr, offset } => {
                let o =
                    self.tile("addptr", "an i32 or i64 offset", *offset, |e| matches!(e, Scalar::I32 | Scalar::I64))?;
                match self.ty(*ptr) {
                    ty @ Type::Pointers { shape, .. } if *shape == o.shape() => ty.clone(),
                    _ => return self.bad("addptr", "pointers of the offset's shape", *ptr),
                }
            }
            MakeBlock { base, shape, strides, offsets, order, block } => {
                let op = "make_tensor_ptr";
                self.scalars(op, shape, Scalar::I64, block.len())?;
                self.scalars(op, strides, Scalar::I64, block.len())?;
                self.scalars(op, offsets, Scalar::I32, block.len())?;
                Self::axes(op, order, block.len())?;
                match self.ty(*base) {
                    Type::Pointers { shape, elem } if shape.is_empty() => {
                        Type::Block { shape: block.clone(), elem: *elem }
                    }
                    _ => return self.bad(op, "a scalar pointer", *base),
                }
            }
            Advance { ptr, offsets } => match self.ty(*ptr) {
                ty @ Type::Block { shape, .. } => {
                    self.scalars("advance", offsets, Scalar::I32, shape.len())?;
                    ty.clone()
                }
                _ => return self.bad("advance", "a block pointer", *ptr),
            },
            Load { ptr, mask, other } => match self.ty(*ptr) {
                Type::Pointers { shape, elem } => {
                    self.mask("load", *mask, shape)?;
                    let ty = Type::tile(shape.clone(), *elem);
                    match other {
                        Some(o) if *self.ty(*o) != ty => {
                            return self.bad("load", "`other` of the loaded type", *o);
                        }
                        _ => ty,
                    }
                }
                _ => return self.bad("load", "pointers", *ptr),
            },
            LoadBlock { ptr, check, .. } => match self.ty(*ptr) {
                Type::Block { shape, elem } => {
                    Self::axes("load", check, shape.len())?;
                    Type::tile(shape.clone(), *elem)
                }
                _ => return self.bad("load", "a block pointer", *ptr),
            },
            Store { ptr, value, mask } => match self.ty(*ptr) {
                Type::Pointers { shape, elem } if *self.ty(*value) == Type::tile(shape.clone(), *elem) => {
                    self.mask("store", *mask, shape)?;
                    return Ok(None);
                }
                _ => return self.bad("store", "pointers to the value's type", *ptr),
            },
            StoreBlock { ptr, value, check } => match self.ty(*ptr) {
                Type::Block { shape, elem } if *self.ty(*value) == Type::tile(shape.clone(), *elem) => {
                    Self::axes("store", check, shape.len())?;
                    return Ok(None);
                }
                _ => return self.bad("store", "a block pointer to the value's type", *ptr),
            },
            Dot { a, b, acc } => self.infer_dot(*a, *b, *acc)?,
            Reduce { op, x, axis } => {
                let fits = if op.is_float() { float } else { int };
                let ty = self.tile("reduce", "a tile of the operation's kind", *x, fits)?;
                let mut shape = ty.shape().to_vec();
                Self::axes("reduce", &[*axis], shape.len())?;
                shape.remove(*axis);
                ty.with_shape(shape)
            }
            For { .. } | If { .. } => unreachable!("regions have their own functions"),
        }))
    }

    fn reshaped(&self, op: &'static str, x: Value, shape: &[usize], fits: bool) -> Result<Type> {
        let ty = self.ty(x);
        if matches!(ty, Type::Block { .. }) {
            return self.bad(op, "a tile or pointers", x);
        }
        if !fits {
            return Err(TypeError::Shape { op, from: ty.shape().to_vec(), found: shape.to_vec() });
        }
        Ok(ty.with_shape(shape))
    }

    fn infer_cast(&self, op: Cast, x: Value, to: Scalar) -> Result<Type> {
        use Scalar::*;
        let ty = self.tile("a cast", "a tile", x, |_| true)?;
        let from = ty.elem();
        let fits = match op {
            Cast::ExtF => (from, to) == (Bf16, F32),
            Cast::TruncF => (from, to) == (F32, Bf16),
            Cast::ExtS | Cast::ExtU => from.is_int() && to.is_int() && from.bits() < to.bits(),
            Cast::Trunc => from.is_int() && to.is_int() && from.bits() > to.bits(),
            Cast::IntToFloatS | Cast::IntToFloatU => from.is_int() && to.is_float(),
            // What a conversion to fewer bits gives outside their range differs between processors.
            Cast::FloatToIntS => from.is_float() && to.is_int() && to != I8,
            Cast::Bits => from.bits() == to.bits(),
        };
        if !fits {
            return self.bad("a cast", "an element type that the cast is defined on", x);
        }
        Ok(Type::tile(ty.shape(), to))
    }

    fn infer_dot(&self, a: Value, b: Value, acc: Value) -> Result<Type> {
        let (ta, tb, tc) = (self.ty(a), self.ty(b), self.ty(acc));
        let sum = match ta.elem() {
            Scalar::Bf16 | Scalar::F32 => Some(Scalar::F32),
            Scalar::I8 => Some(Scalar::I32),
            _ => None,
        };
        let (true, true, true, Some(sum)) = (ta.is_tile(), tb.is_tile(), ta.elem() == tb.elem(), sum) else {
            return Err(TypeError::Mismatch { op: "dot", a: ta.clone(), b: tb.clone() });
        };
        let ([m, k], [k2, n]) = (ta.shape(), tb.shape()) else {
            return self.bad("dot", "tiles of rank 2", a);
        };
        if k != k2 || *tc != Type::tile([*m, *n], sum) {
            return self.bad("dot", "an accumulator of shape [m, n], i32 for i8 and f32 for floats, and equal k", acc);
        }
        if ta.elem() == Scalar::Bf16 && k % 2 != 0 {
            return self.bad("dot", "an even k, for BF16 is summed by pairs", a);
        }
        Ok(tc.clone())
    }
}

/// The kernel without unused operations.
pub(crate) fn swept(mut kernel: Kernel) -> Kernel {
    let mut used = vec![false; kernel.values.len()];
    sweep(&mut kernel.body, &mut used);
    kernel
}

/// Removes, from the last on, operations that write nothing and whose results have no use.
fn sweep(ops: &mut Vec<Op>, used: &mut [bool]) {
    let mut kept = Vec::with_capacity(ops.len());
    while let Some(mut op) = ops.pop() {
        let live = op.results.iter().any(|r| used[r.index()]) || writes(&op.kind);
        if !live {
            continue;
        }
        match &mut op.kind {
            OpKind::For { body, .. } => sweep_region(body, used),
            OpKind::If { then, otherwise, .. } => {
                sweep_region(then, used);
                sweep_region(otherwise, used);
            }
            _ => {}
        }
        for v in op.kind.operands() {
            used[v.index()] = true;
        }
        kept.push(op);
    }
    kept.reverse();
    *ops = kept;
}

fn sweep_region(region: &mut Region, used: &mut [bool]) {
    for v in &region.yields {
        used[v.index()] = true;
    }
    sweep(&mut region.ops, used);
}

/// True if the operation or a region of it writes or reads memory. An unused load stays, because it may be out of bounds.
fn writes(kind: &OpKind) -> bool {
    kind.touches_memory() || kind.regions().iter().any(|r| r.ops.iter().any(|op| writes(&op.kind)))
}
