//! The typed tile IR: what a kernel does, one SSA operation at a time, close to TTIR.
//!
//! A scalar is a tile of rank 0. Values are defined once, before their uses; loops and branches are
//! structured, and calls are inlined. [`crate::numerics`] defines the operations on floats, and
//! [`crate::interp`] the others. Integers wrap as two's complement, `DivS`/`RemS` truncate towards
//! zero, and divisors and shift amounts are constants for which the result is defined.
//! [`crate::build::Builder`] checks each type as it makes a kernel; code that edits a kernel must
//! keep it well typed. Read next: [`crate::lift()`].

/// Element type of a tile or of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scalar {
    I1,
    I8,
    I32,
    I64,
    Bf16,
    F32,
}

impl Scalar {
    /// Whether it is a floating-point type.
    pub fn is_float(self) -> bool {
        matches!(self, Scalar::Bf16 | Scalar::F32)
    }
    /// Whether it is an integer type, `I1` among them.
    pub fn is_int(self) -> bool {
        !self.is_float()
    }
    /// Width in bits: 1 for `I1`.
    pub fn bits(self) -> u32 {
        match self {
            Scalar::I1 => 1,
            Scalar::I8 => 8,
            Scalar::Bf16 => 16,
            Scalar::I32 | Scalar::F32 => 32,
            Scalar::I64 => 64,
        }
    }
    /// Bytes of one element in memory.
    pub fn bytes(self) -> usize {
        self.bits().div_ceil(8) as usize
    }
}

impl From<vosti_core::Dtype> for Scalar {
    /// A type of memory is a type of values.
    fn from(dtype: vosti_core::Dtype) -> Scalar {
        match dtype {
            vosti_core::Dtype::I8 => Scalar::I8,
            vosti_core::Dtype::I32 => Scalar::I32,
            vosti_core::Dtype::Bf16 => Scalar::Bf16,
            vosti_core::Dtype::F32 => Scalar::F32,
        }
    }
}

/// Extents of a tile, outermost axis first; empty for a scalar. Row-major element order throughout.
pub type Shape = Vec<usize>;

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// Numbers.
    Tile { shape: Shape, elem: Scalar },
    /// Addresses of single elements: a parameter plus an element offset for each lane.
    Pointers { shape: Shape, elem: Scalar },
    /// A block pointer: a window of `shape` into a strided array in memory.
    Block { shape: Shape, elem: Scalar },
}

impl Type {
    /// The type of a single number.
    pub fn scalar(elem: Scalar) -> Type {
        Type::Tile { shape: vec![], elem }
    }
    /// The type of a tile of numbers.
    pub fn tile(shape: impl Into<Shape>, elem: Scalar) -> Type {
        Type::Tile { shape: shape.into(), elem }
    }
    /// Extents, outermost axis first; empty for a scalar.
    pub fn shape(&self) -> &[usize] {
        match self {
            Type::Tile { shape, .. } | Type::Pointers { shape, .. } | Type::Block { shape, .. } => shape,
        }
    }
    /// The element type; for pointers that of the elements they point at.
    pub fn elem(&self) -> Scalar {
        match self {
            Type::Tile { elem, .. } | Type::Pointers { elem, .. } | Type::Block { elem, .. } => *elem,
        }
    }
    /// Number of lanes.
    pub fn lanes(&self) -> usize {
        self.shape().iter().product()
    }
    /// Whether it holds numbers, not addresses.
    pub fn is_tile(&self) -> bool {
        matches!(self, Type::Tile { .. })
    }
    /// The same kind and element type with another shape.
    pub fn with_shape(&self, shape: impl Into<Shape>) -> Type {
        let shape = shape.into();
        match self {
            Type::Tile { elem, .. } => Type::Tile { shape, elem: *elem },
            Type::Pointers { elem, .. } => Type::Pointers { shape, elem: *elem },
            Type::Block { elem, .. } => Type::Block { shape, elem: *elem },
        }
    }
}

/// An SSA value: an index into [`Kernel::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value(pub u32);

impl Value {
    /// Its place in [`Kernel::values`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A constant element. Floats are held as the bits of an FP32 that the element type represents exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Literal {
    /// Sign extended; 0 or 1 for `I1`.
    Int(i64),
    /// The bits of an FP32.
    Float(u32),
}

impl Literal {
    /// A float constant of exactly this FP32.
    pub fn float(value: f32) -> Literal {
        Literal::Float(value.to_bits())
    }
}

/// Elementwise functions of one float tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unary {
    Abs,
    Neg,
    Exp,
    Exp2,
    Log,
    Log2,
    Sqrt,
    Rsqrt,
    Sin,
    Cos,
    Floor,
    Ceil,
}

/// Elementwise functions of two tiles of one type. Names ending in F take floats, the others integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binary {
    AddF,
    SubF,
    MulF,
    DivF,
    /// The other operand if one is NaN, as [`Binary::MinNumF`].
    MaxNumF,
    MinNumF,
    /// NaN if an operand is NaN, as [`Binary::MinimumF`].
    MaximumF,
    MinimumF,
    Add,
    Sub,
    Mul,
    /// Truncates towards zero. The divisor is a constant other than 0 and -1.
    DivS,
    /// The remainder has the sign of the dividend.
    RemS,
    DivU,
    RemU,
    And,
    Or,
    Xor,
    /// Shifts by a constant from 0 to the type's bits less one; so do the next two.
    Shl,
    ShrS,
    ShrU,
    MaxS,
    MinS,
    MaxU,
    MinU,
}

impl Binary {
    /// Whether the operands are floats.
    pub fn is_float(self) -> bool {
        use Binary::*;
        matches!(self, AddF | SubF | MulF | DivF | MaxNumF | MinNumF | MaximumF | MinimumF)
    }
}

/// Integer comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CmpInt {
    Eq,
    Ne,
    Slt,
    Sle,
    Sgt,
    Sge,
    Ult,
    Ule,
    Ugt,
    Uge,
}

/// Float comparisons: `O` is false on NaN, `U` is true on NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CmpFloat {
    Oeq,
    Ogt,
    Oge,
    Olt,
    Ole,
    One,
    Ord,
    Ueq,
    Ugt,
    Uge,
    Ult,
    Ule,
    Une,
    Uno,
}

/// Changes of element type, lane by lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cast {
    /// BF16 to FP32: the bits, shifted.
    ExtF,
    /// FP32 to BF16, to nearest even.
    TruncF,
    ExtS,
    ExtU,
    Trunc,
    /// Integer to float, to nearest even.
    IntToFloatS,
    IntToFloatU,
    /// Float to integer, towards zero, saturating, NaN to 0.
    FloatToIntS,
    /// Same bits, same width.
    Bits,
}

/// The value of a block load's lanes outside its array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Padding {
    Undefined,
    Zero,
    Nan,
}

/// A body of a loop or branch, and the values that it yields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// In program order.
    pub ops: Vec<Op>,
    /// The values, of this region or of one around it, that the loop or branch gives.
    pub yields: Vec<Value>,
}

/// An operation with its operands. Operands are values; all other fields are fixed when the kernel is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// This program's index on a grid axis, `I32`.
    ProgramId {
        axis: usize,
    },
    /// The grid's extent on an axis, `I32`.
    NumPrograms {
        axis: usize,
    },
    /// Every lane is `value`.
    Constant {
        value: Literal,
        ty: Type,
    },
    /// Every lane has an arbitrary value.
    Poison {
        ty: Type,
    },
    Unary {
        op: Unary,
        x: Value,
    },
    Binary {
        op: Binary,
        a: Value,
        b: Value,
    },
    /// `a * b + c` rounded once.
    Fma {
        a: Value,
        b: Value,
        c: Value,
    },
    CmpInt {
        op: CmpInt,
        a: Value,
        b: Value,
    },
    CmpFloat {
        op: CmpFloat,
        a: Value,
        b: Value,
    },
    /// `cond` is an `I1` tile of the operands' shape, or an `I1` scalar. Operands may be pointers.
    Select {
        cond: Value,
        a: Value,
        b: Value,
    },
    Cast {
        op: Cast,
        x: Value,
        to: Scalar,
    },
    /// A scalar (number or pointer) in every lane.
    Splat {
        x: Value,
        shape: Shape,
    },
    /// Axes of extent 1 repeated; the rank stays.
    Broadcast {
        x: Value,
        shape: Shape,
    },
    /// A new axis of extent 1 at `axis`.
    ExpandDims {
        x: Value,
        axis: usize,
    },
    /// The same elements in row-major order under another shape.
    Reshape {
        x: Value,
        shape: Shape,
    },
    /// Result axis i is operand axis `perm[i]`.
    Transpose {
        x: Value,
        perm: Vec<usize>,
    },
    /// Lane `which` of the last axis, whose extent is 2, without that axis. A `tt.split` is two of these.
    Half {
        x: Value,
        which: usize,
    },
    /// `start, start + 1, .. end - 1`, `I32`.
    Range {
        start: i32,
        end: i32,
    },
    /// Pointer plus `offset` elements, lane by lane; `offset` is `I32` or `I64`, sign extended.
    AddPtr {
        ptr: Value,
        offset: Value,
    },
    /// A window of `block` at `offsets` (`I32` scalars) into the array at `base` (a scalar pointer) with
    /// extents `shape` and element `strides` (`I64` scalars). `order` only affects layout on a GPU.
    MakeBlock {
        base: Value,
        shape: Vec<Value>,
        strides: Vec<Value>,
        offsets: Vec<Value>,
        order: Vec<usize>,
        block: Shape,
    },
    /// The window moved by `offsets` (`I32` scalars) elements along each axis.
    Advance {
        ptr: Value,
        offsets: Vec<Value>,
    },
    /// Lanes whose mask is false are not read: they have the value of `other`, or an arbitrary one without it.
    Load {
        ptr: Value,
        mask: Option<Value>,
        other: Option<Value>,
    },
    /// Lanes outside the array on an axis in `check` are not read: they have the value of `padding`.
    LoadBlock {
        ptr: Value,
        check: Vec<usize>,
        padding: Padding,
    },
    /// Lanes whose mask is false are not written.
    Store {
        ptr: Value,
        value: Value,
        mask: Option<Value>,
    },
    /// Lanes outside the array on an axis in `check` are not written.
    StoreBlock {
        ptr: Value,
        value: Value,
        check: Vec<usize>,
    },
    /// `acc[m, n] + sum_k a[m, k] * b[k, n]`: of floats in FP32, in the order of [`crate::numerics::dot`]; of `I8` in `I32`, which
    /// wraps, so that no order changes a bit.
    Dot {
        a: Value,
        b: Value,
        acc: Value,
    },
    /// Folds an axis away with `op` in the order of [`crate::numerics::reduce`].
    Reduce {
        op: Binary,
        x: Value,
        axis: usize,
    },
    /// `for (index = lo; index < hi; index += step)`, signed; `args` are `inits` on entry, then the
    /// body's yields; the results are what `args` would be next. `step` must be positive.
    For {
        lo: Value,
        hi: Value,
        step: Value,
        index: Value,
        args: Vec<Value>,
        inits: Vec<Value>,
        body: Region,
    },
    /// `cond` is an `I1` scalar.
    If {
        cond: Value,
        then: Region,
        otherwise: Region,
    },
}

/// The place in the sources that an operation comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Line {
    /// 1-based line of the TTIR file.
    pub ttir: u32,
    /// Line of the kernel's Python file, if the TTIR has it; for library helpers the line of the call.
    pub python: Option<u32>,
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    /// The operation and its operands.
    pub kind: OpKind,
    /// The values that it defines, in order.
    pub results: Vec<Value>,
    /// Its place in the TTIR and in the Python source.
    pub line: Line,
}

/// A kernel parameter: always a pointer to the start of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// As in the TTIR's signature.
    pub name: String,
    /// The address of the buffer's first element.
    pub value: Value,
    /// The buffer's element type.
    pub elem: Scalar,
    /// The address is a multiple of this many bytes: a premise that launchers check.
    pub divisibility: u32,
}

/// A parameter that is a number: an `I32` dimension, or an `F32`. It has one value for as long as a device lives, and
/// [`crate::bind()`] puts a constant in its place before the kernel runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalarParam {
    /// As in the TTIR's signature.
    pub name: String,
    /// The number, in the body.
    pub value: Value,
    /// `I32` or `F32`.
    pub elem: Scalar,
}

/// Type and name of a value; the name is for people and need not be unique.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueInfo {
    /// The value's type.
    pub ty: Type,
    /// As in the TTIR, if it has a name there.
    pub name: String,
}

/// A kernel specialisation: every program of the grid runs `body`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// As in the TTIR.
    pub name: String,
    /// In signature order.
    pub params: Vec<Param>,
    /// In signature order; empty in a kernel that is bound.
    pub scalars: Vec<ScalarParam>,
    /// Type and name of each value, by [`Value::index`].
    pub values: Vec<ValueInfo>,
    /// In program order; operands come before their uses.
    pub body: Vec<Op>,
}

impl Kernel {
    /// The type of a value of this kernel.
    pub fn ty(&self, value: Value) -> &Type {
        &self.values[value.index()].ty
    }
    /// Index of a parameter by name.
    pub fn param(&self, name: &str) -> Option<usize> {
        self.params.iter().position(|p| p.name == name)
    }
    /// Visits every operation in program order, a loop or branch before its body.
    pub fn walk<'a>(&'a self, visit: &mut impl FnMut(&'a Op)) {
        walk(&self.body, visit)
    }
}

fn walk<'a>(ops: &'a [Op], visit: &mut impl FnMut(&'a Op)) {
    for op in ops {
        visit(op);
        for region in op.kind.regions() {
            walk(&region.ops, visit);
        }
    }
}
