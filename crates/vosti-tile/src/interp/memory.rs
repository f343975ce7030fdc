//! The memory of kernels: one buffer for each parameter, with elements as raw bits.

use crate::ir::Scalar;
use crate::numerics;

/// The buffers bound to a kernel's parameters. Elements are bits, zero extended.
pub trait Memory {
    /// Element type of a parameter's buffer; None if there is no such buffer.
    fn elem(&self, param: usize) -> Option<Scalar>;
    /// Number of elements of a parameter's buffer.
    fn len(&self, param: usize) -> usize;
    /// The bits of an element; `index` is in range.
    fn load(&self, param: usize, index: usize) -> u64;
    /// Writes an element's bits; `index` is in range.
    fn store(&mut self, param: usize, index: usize, bits: u64);
}

/// A buffer as a typed array. BF16 numbers are bit patterns.
#[derive(Clone, Debug, PartialEq)]
pub enum Buffer {
    /// One `bool` for each element.
    I1(Vec<bool>),
    /// Two's complement.
    I8(Vec<i8>),
    /// Two's complement.
    I32(Vec<i32>),
    /// Two's complement.
    I64(Vec<i64>),
    /// Bit patterns.
    Bf16(Vec<u16>),
    /// Values; denormals are stored unchanged.
    F32(Vec<f32>),
}

impl Buffer {
    /// A buffer of zeros.
    pub fn zeros(elem: Scalar, len: usize) -> Buffer {
        match elem {
            Scalar::I1 => Buffer::I1(vec![false; len]),
            Scalar::I8 => Buffer::I8(vec![0; len]),
            Scalar::I32 => Buffer::I32(vec![0; len]),
            Scalar::I64 => Buffer::I64(vec![0; len]),
            Scalar::Bf16 => Buffer::Bf16(vec![0; len]),
            Scalar::F32 => Buffer::F32(vec![0.0; len]),
        }
    }
    /// The element type.
    pub fn elem(&self) -> Scalar {
        match self {
            Buffer::I1(_) => Scalar::I1,
            Buffer::I8(_) => Scalar::I8,
            Buffer::I32(_) => Scalar::I32,
            Buffer::I64(_) => Scalar::I64,
            Buffer::Bf16(_) => Scalar::Bf16,
            Buffer::F32(_) => Scalar::F32,
        }
    }
    /// How many elements it has.
    pub fn len(&self) -> usize {
        match self {
            Buffer::I1(v) => v.len(),
            Buffer::I8(v) => v.len(),
            Buffer::I32(v) => v.len(),
            Buffer::I64(v) => v.len(),
            Buffer::Bf16(v) => v.len(),
            Buffer::F32(v) => v.len(),
        }
    }
    /// Whether it has no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The bits of an element, zero extended. Panics if `index` is outside the buffer.
    pub fn bits(&self, index: usize) -> u64 {
        match self {
            Buffer::I1(v) => v[index].into(),
            Buffer::I8(v) => u64::from(v[index] as u8),
            Buffer::I32(v) => u64::from(v[index] as u32),
            Buffer::I64(v) => v[index] as u64,
            Buffer::Bf16(v) => v[index].into(),
            Buffer::F32(v) => v[index].to_bits().into(),
        }
    }
    /// Overwrites an element with the low bits of `bits`. Panics if `index` is outside the buffer.
    pub fn set_bits(&mut self, index: usize, bits: u64) {
        match self {
            Buffer::I1(v) => v[index] = bits & 1 != 0,
            Buffer::I8(v) => v[index] = bits as i8,
            Buffer::I32(v) => v[index] = bits as u32 as i32,
            Buffer::I64(v) => v[index] = bits as i64,
            Buffer::Bf16(v) => v[index] = bits as u16,
            Buffer::F32(v) => v[index] = f32::from_bits(bits as u32),
        }
    }
    /// Whether both have the same element type, length and bits.
    pub fn same_bits(&self, other: &Buffer) -> bool {
        self.elem() == other.elem()
            && self.len() == other.len()
            && (0..self.len()).all(|i| self.bits(i) == other.bits(i))
    }
}

/// One buffer for each parameter, in order.
impl Memory for Vec<Buffer> {
    fn elem(&self, param: usize) -> Option<Scalar> {
        self.get(param).map(Buffer::elem)
    }
    fn len(&self, param: usize) -> usize {
        self[param].len()
    }
    fn load(&self, param: usize, index: usize) -> u64 {
        self[param].bits(index)
    }
    fn store(&mut self, param: usize, index: usize, bits: u64) {
        self[param].set_bits(index, bits)
    }
}

/// A float from an element's bits.
pub(crate) fn float_of(bits: u64, elem: Scalar) -> f32 {
    match elem {
        Scalar::Bf16 => numerics::from_bf16(bits as u16),
        _ => f32::from_bits(bits as u32),
    }
}

/// An integer from an element's bits, sign extended; `I1` is 0 or 1.
pub(crate) fn int_of(bits: u64, elem: Scalar) -> i64 {
    match elem {
        Scalar::I1 => (bits & 1) as i64,
        Scalar::I8 => i64::from(bits as i8),
        Scalar::I32 => i64::from(bits as u32 as i32),
        _ => bits as i64,
    }
}

/// The bits that a store of a float writes; all NaNs become one. A BF16 held as FP32 has its bits in the upper half.
pub(crate) fn float_bits(x: f32, elem: Scalar) -> u64 {
    match elem {
        Scalar::Bf16 => numerics::stored_bf16((x.to_bits() >> 16) as u16).into(),
        _ => numerics::stored_f32(x).into(),
    }
}

pub(crate) fn int_bits(x: i64, elem: Scalar) -> u64 {
    match elem {
        Scalar::I1 => (x & 1) as u64,
        Scalar::I8 => u64::from(x as u8),
        Scalar::I32 => u64::from(x as u32),
        _ => x as u64,
    }
}
