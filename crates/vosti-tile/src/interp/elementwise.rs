//! Operations that work lane by lane.

use super::{Data, Fault, Machine, Memory, Step};
use crate::ir::*;
use crate::numerics::{self, math};

impl<M: Memory> Machine<'_, M> {
    pub(super) fn elementwise(&self, kind: &OpKind, ty: &Type) -> Step<Data> {
        let elem = ty.elem();
        Ok(match kind {
            OpKind::Unary { op, x } => {
                // A change of sign neither rounds nor flushes.
                let elem = if matches!(op, Unary::Abs | Unary::Neg) { Scalar::F32 } else { elem };
                Data::Float(self.get(*x).floats().iter().map(|x| round_to(unary(*op, *x), elem)).collect())
            }
            OpKind::Binary { op, a, b } if op.is_float() => {
                let pairs = self.get(*a).floats().iter().zip(self.get(*b).floats());
                Data::Float(pairs.map(|(a, b)| round_to(binary_float(*op, *a, *b), elem)).collect())
            }
            OpKind::Binary { op, a, b } => {
                let pairs = self.get(*a).ints().iter().zip(self.get(*b).ints());
                Data::Int(pairs.map(|(a, b)| binary_int(*op, *a, *b, elem)).collect::<Step<_>>()?)
            }
            OpKind::Fma { a, b, c } => {
                let pairs = self.get(*a).floats().iter().zip(self.get(*b).floats()).zip(self.get(*c).floats());
                Data::Float(pairs.map(|((a, b), c)| round_to(numerics::fma(*a, *b, *c), elem)).collect())
            }
            OpKind::CmpInt { op, a, b } => {
                let from = self.kernel.ty(*a).elem();
                let pairs = self.get(*a).ints().iter().zip(self.get(*b).ints());
                Data::Int(pairs.map(|(a, b)| cmp_int(*op, *a, *b, from).into()).collect())
            }
            OpKind::CmpFloat { op, a, b } => {
                let pairs = self.get(*a).floats().iter().zip(self.get(*b).floats());
                Data::Int(pairs.map(|(a, b)| cmp_float(*op, *a, *b).into()).collect())
            }
            OpKind::Select { cond, a, b } => self.select(*cond, *a, *b),
            OpKind::Cast { op, x, to } => self.cast(*op, *x, *to),
            _ => unreachable!("handled by `evaluate`"),
        })
    }

    fn select(&self, cond: Value, a: Value, b: Value) -> Data {
        let cond = self.get(cond).ints();
        let chosen = |i: usize| cond[if cond.len() == 1 { 0 } else { i }] != 0;
        fn pick<T: Copy>(a: &[T], b: &[T], chosen: impl Fn(usize) -> bool) -> Vec<T> {
            (0..a.len()).map(|i| if chosen(i) { a[i] } else { b[i] }).collect()
        }
        match (self.get(a), self.get(b)) {
            (Data::Int(a), Data::Int(b)) => Data::Int(pick(a, b, chosen)),
            (Data::Float(a), Data::Float(b)) => Data::Float(pick(a, b, chosen)),
            (Data::Pointers(a), Data::Pointers(b)) => Data::Pointers(pick(a, b, chosen)),
            _ => unreachable!("typed alike"),
        }
    }

    fn cast(&self, op: Cast, x: Value, to: Scalar) -> Data {
        let from = self.kernel.ty(x).elem();
        match self.get(x) {
            Data::Float(v) => match op {
                Cast::FloatToIntS => Data::Int(v.iter().map(|x| float_to_int(*x, to)).collect()),
                Cast::Bits if to.is_int() => {
                    Data::Int(v.iter().map(|x| i64::from(numerics::stored_f32(*x) as i32)).collect())
                }
                // ExtF holds the same FP32; TruncF rounds.
                _ => Data::Float(v.iter().map(|x| round_to(*x, to)).collect()),
            },
            data => {
                let v = data.ints();
                match op {
                    Cast::ExtS => Data::Int(v.iter().map(|x| signed(*x, from)).collect()),
                    Cast::ExtU => Data::Int(v.iter().map(|x| unsigned(*x, from) as i64).collect()),
                    Cast::IntToFloatS => {
                        Data::Float(v.iter().map(|x| round_to(numerics::from_int(signed(*x, from)), to)).collect())
                    }
                    Cast::IntToFloatU => {
                        let float = |x: &i64| round_to(numerics::from_unsigned(unsigned(*x, from)), to);
                        Data::Float(v.iter().map(float).collect())
                    }
                    Cast::Bits if to.is_float() => Data::Float(v.iter().map(|x| f32::from_bits(*x as u32)).collect()),
                    _ => Data::Int(v.iter().map(|x| wrap(*x, to)).collect()),
                }
            }
        }
    }
}

/// A float rounded to its type: BF16 arithmetic is FP32 arithmetic, rounded once more.
pub(super) fn round_to(x: f32, elem: Scalar) -> f32 {
    match elem {
        Scalar::Bf16 => numerics::from_bf16(numerics::to_bf16(x)),
        _ => x,
    }
}

fn unary(op: Unary, x: f32) -> f32 {
    match op {
        Unary::Abs => numerics::abs(x),
        Unary::Neg => numerics::neg(x),
        Unary::Exp => math::exp(x),
        Unary::Exp2 => math::exp2(x),
        Unary::Log => math::log(x),
        Unary::Log2 => math::log2(x),
        Unary::Sqrt => numerics::sqrt(x),
        Unary::Rsqrt => math::rsqrt(x),
        Unary::Sin => math::sin(x),
        Unary::Cos => math::cos(x),
        Unary::Floor => math::floor(x),
        Unary::Ceil => math::ceil(x),
    }
}

pub(super) fn binary_float(op: Binary, a: f32, b: f32) -> f32 {
    match op {
        Binary::AddF => numerics::add(a, b),
        Binary::SubF => numerics::sub(a, b),
        Binary::MulF => numerics::mul(a, b),
        Binary::DivF => numerics::div(a, b),
        Binary::MaxNumF => numerics::max_num(a, b),
        Binary::MinNumF => numerics::min_num(a, b),
        Binary::MaximumF => numerics::maximum(a, b),
        Binary::MinimumF => numerics::minimum(a, b),
        _ => unreachable!("an integer operation"),
    }
}

/// The value modulo the type's width, sign extended; `I1` stays 0 or 1.
fn wrap(x: i64, elem: Scalar) -> i64 {
    match elem {
        Scalar::I1 => x & 1,
        Scalar::I8 => i64::from(x as i8),
        Scalar::I32 => i64::from(x as i32),
        _ => x,
    }
}

/// As a signed number: a true `I1` is -1.
fn signed(x: i64, elem: Scalar) -> i64 {
    if elem == Scalar::I1 { -x } else { x }
}

/// As an unsigned number.
fn unsigned(x: i64, elem: Scalar) -> u64 {
    match elem {
        Scalar::I8 => u64::from(x as u8),
        Scalar::I32 => u64::from(x as u32),
        _ => x as u64,
    }
}

pub(super) fn binary_int(op: Binary, a: i64, b: i64, elem: Scalar) -> Step<i64> {
    let (sa, sb) = (signed(a, elem), signed(b, elem));
    let (ua, ub) = (unsigned(a, elem), unsigned(b, elem));
    // The builder refuses these two; an edited kernel may have them.
    let divides = matches!(op, Binary::DivS | Binary::RemS | Binary::DivU | Binary::RemU);
    if divides && b == 0 {
        return Err(Fault::DivisionByZero);
    }
    let shifts = matches!(op, Binary::Shl | Binary::ShrS | Binary::ShrU);
    if shifts && ub >= elem.bits().into() {
        return Err(Fault::Shift { by: b });
    }
    let result = match op {
        Binary::Add => a.wrapping_add(b),
        Binary::Sub => a.wrapping_sub(b),
        Binary::Mul => a.wrapping_mul(b),
        Binary::DivS => sa.wrapping_div(sb),
        Binary::RemS => sa.wrapping_rem(sb),
        Binary::DivU => (ua / ub) as i64,
        Binary::RemU => (ua % ub) as i64,
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::Xor => a ^ b,
        Binary::Shl => a.wrapping_shl(ub as u32),
        Binary::ShrS => sa >> ub,
        Binary::ShrU => (ua >> ub) as i64,
        Binary::MaxS => sa.max(sb),
        Binary::MinS => sa.min(sb),
        Binary::MaxU => ua.max(ub) as i64,
        Binary::MinU => ua.min(ub) as i64,
        _ => unreachable!("a float operation"),
    };
    Ok(wrap(result, elem))
}

pub(crate) fn cmp_int(op: CmpInt, a: i64, b: i64, elem: Scalar) -> bool {
    let (sa, sb) = (signed(a, elem), signed(b, elem));
    let (ua, ub) = (unsigned(a, elem), unsigned(b, elem));
    match op {
        CmpInt::Eq => a == b,
        CmpInt::Ne => a != b,
        CmpInt::Slt => sa < sb,
        CmpInt::Sle => sa <= sb,
        CmpInt::Sgt => sa > sb,
        CmpInt::Sge => sa >= sb,
        CmpInt::Ult => ua < ub,
        CmpInt::Ule => ua <= ub,
        CmpInt::Ugt => ua > ub,
        CmpInt::Uge => ua >= ub,
    }
}

fn cmp_float(op: CmpFloat, a: f32, b: f32) -> bool {
    let unordered = a.is_nan() || b.is_nan();
    let (less, equal, greater) = (numerics::less(a, b), numerics::equal(a, b), numerics::less(b, a));
    match op {
        CmpFloat::Oeq => equal,
        CmpFloat::Ogt => greater,
        CmpFloat::Oge => greater || equal,
        CmpFloat::Olt => less,
        CmpFloat::Ole => less || equal,
        CmpFloat::One => less || greater,
        CmpFloat::Ord => !unordered,
        CmpFloat::Ueq => unordered || equal,
        CmpFloat::Ugt => unordered || greater,
        CmpFloat::Uge => unordered || greater || equal,
        CmpFloat::Ult => unordered || less,
        CmpFloat::Ule => unordered || less || equal,
        CmpFloat::Une => !equal,
        CmpFloat::Uno => unordered,
    }
}

/// Rounds towards zero and saturates; NaN becomes 0.
fn float_to_int(x: f32, to: Scalar) -> i64 {
    match to {
        Scalar::I1 => (x as i64) & 1,
        Scalar::I8 => i64::from(x as i8),
        Scalar::I32 => i64::from(x as i32),
        _ => x as i64,
    }
}
