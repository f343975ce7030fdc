//! Chooses the loop that computes an operation of the tile IR: the scalar definition, repeated over lanes.
//!
//! Truth values are 32-bit lanes of 0 or 1. BF16 arithmetic is FP32 arithmetic rounded once more.
//! Read next: [`vosti_tile::numerics`].

use vosti_tile::numerics::{self, from_bf16, math, to_bf16};
use vosti_tile::{Binary, Cast, CmpFloat, CmpInt, Scalar, Unary};

use super::{Map, MapFn, Versions, map1, map2, map3, versions};

type F = Versions<MapFn>;

/// Bytes of a lane: truth values and integers of 8 bits take four.
pub fn size(elem: Scalar) -> usize {
    match elem {
        Scalar::Bf16 => 2,
        Scalar::I1 | Scalar::I8 | Scalar::I32 | Scalar::F32 => 4,
        Scalar::I64 => 8,
    }
}

/// The plain loop, and hand-written versions if there are any.
macro_rules! simd {
    ($plain:expr, $($simd:tt)*) => {{
        let plain = $plain;
        #[cfg(target_arch = "x86_64")]
        let plain = plain.map(|f| f.with(super::simd::$($simd)*));
        plain
    }};
}

macro_rules! one {
    ($a:ty, $d:ty, $f:expr) => {{
        #[inline(always)]
        fn f(a: $a) -> $d {
            $f(a)
        }
        versions!(Map, |map| map1::<$a, $d>(map, f))
    }};
}

macro_rules! two {
    ($a:ty, $b:ty, $d:ty, $f:expr) => {{
        #[inline(always)]
        fn f(a: $a, b: $b) -> $d {
            $f(a, b)
        }
        versions!(Map, |map| map2::<$a, $b, $d>(map, f))
    }};
}

macro_rules! three {
    ($a:ty, $b:ty, $c:ty, $d:ty, $f:expr) => {{
        #[inline(always)]
        fn f(a: $a, b: $b, c: $c) -> $d {
            $f(a, b, c)
        }
        versions!(Map, |map| map3::<$a, $b, $c, $d>(map, f))
    }};
}

/// A function of FP32: for FP32, or for BF16 with the result rounded.
macro_rules! float1 {
    ($elem:expr, $f:expr) => {
        match $elem {
            Scalar::F32 => Some(one!(f32, f32, $f)),
            Scalar::Bf16 => Some(one!(u16, u16, |a| to_bf16($f(from_bf16(a))))),
            _ => None,
        }
    };
}

macro_rules! float2 {
    ($elem:expr, $f:expr) => {
        match $elem {
            Scalar::F32 => Some(two!(f32, f32, f32, $f)),
            Scalar::Bf16 => Some(two!(u16, u16, u16, |a, b| to_bf16($f(from_bf16(a), from_bf16(b))))),
            _ => None,
        }
    };
}

/// A function of signed integers that wrap; truth values keep their lowest bit.
macro_rules! int2 {
    ($elem:expr, $i32:expr, $i64:expr, $i1:expr) => {
        match $elem {
            Scalar::I32 => Some(two!(i32, i32, i32, $i32)),
            Scalar::I64 => Some(two!(i64, i64, i64, $i64)),
            Scalar::I1 => Some(two!(i32, i32, i32, |a: i32, b: i32| $i1(a, b) & 1)),
            _ => None,
        }
    };
}

/// The map of a unary operation, or `None` if the type has none.
pub fn unary(op: Unary, elem: Scalar) -> Option<F> {
    simd!(plain_unary(op, elem), unary(op, elem))
}

fn plain_unary(op: Unary, elem: Scalar) -> Option<F> {
    match op {
        Unary::Abs => match elem {
            Scalar::F32 => Some(one!(f32, f32, numerics::abs)),
            Scalar::Bf16 => Some(one!(u16, u16, |a| a & 0x7fff)),
            _ => None,
        },
        Unary::Neg => match elem {
            Scalar::F32 => Some(one!(f32, f32, numerics::neg)),
            Scalar::Bf16 => Some(one!(u16, u16, |a| a ^ 0x8000)),
            _ => None,
        },
        Unary::Exp => float1!(elem, math::exp),
        Unary::Exp2 => float1!(elem, math::exp2),
        Unary::Log => float1!(elem, math::log),
        Unary::Log2 => float1!(elem, math::log2),
        Unary::Sqrt => float1!(elem, numerics::sqrt),
        Unary::Rsqrt => float1!(elem, math::rsqrt),
        Unary::Sin => float1!(elem, math::sin),
        Unary::Cos => float1!(elem, math::cos),
        Unary::Floor => float1!(elem, math::floor),
        Unary::Ceil => float1!(elem, math::ceil),
    }
}

/// Division by zero gives 0. No kernel divides by zero: the lifting accepts only constant divisors other than 0 and -1.
macro_rules! divide {
    ($a:expr, $b:expr, $wrapping:ident) => {
        if $b == 0 { 0 } else { $a.$wrapping($b) }
    };
}

/// The map of a binary operation, or `None` if the type has none.
pub fn binary(op: Binary, elem: Scalar) -> Option<F> {
    simd!(plain_binary(op, elem), binary(op, elem))
}

fn plain_binary(op: Binary, elem: Scalar) -> Option<F> {
    match op {
        Binary::AddF => float2!(elem, numerics::add),
        Binary::SubF => float2!(elem, numerics::sub),
        Binary::MulF => float2!(elem, numerics::mul),
        Binary::DivF => float2!(elem, numerics::div),
        Binary::MaxNumF => float2!(elem, numerics::max_num),
        Binary::MinNumF => float2!(elem, numerics::min_num),
        Binary::MaximumF => float2!(elem, numerics::maximum),
        Binary::MinimumF => float2!(elem, numerics::minimum),
        Binary::Add => int2!(elem, i32::wrapping_add, i64::wrapping_add, i32::wrapping_add),
        Binary::Sub => int2!(elem, i32::wrapping_sub, i64::wrapping_sub, i32::wrapping_sub),
        Binary::Mul => int2!(elem, i32::wrapping_mul, i64::wrapping_mul, i32::wrapping_mul),
        Binary::And => int2!(elem, |a, b| a & b, |a, b| a & b, |a, b| a & b),
        Binary::Or => int2!(elem, |a, b| a | b, |a, b| a | b, |a, b| a | b),
        Binary::Xor => int2!(elem, |a, b| a ^ b, |a, b| a ^ b, |a, b| a ^ b),
        _ if elem == Scalar::I1 => None,
        Binary::DivS => int2!(
            elem,
            |a: i32, b: i32| divide!(a, b, wrapping_div),
            |a: i64, b: i64| divide!(a, b, wrapping_div),
            |a, _| a
        ),
        Binary::RemS => int2!(
            elem,
            |a: i32, b: i32| divide!(a, b, wrapping_rem),
            |a: i64, b: i64| divide!(a, b, wrapping_rem),
            |a, _| a
        ),
        Binary::DivU => int2!(
            elem,
            |a: i32, b: i32| divide!((a as u32), b as u32, wrapping_div) as i32,
            |a: i64, b: i64| divide!((a as u64), b as u64, wrapping_div) as i64,
            |a, _| a
        ),
        Binary::RemU => int2!(
            elem,
            |a: i32, b: i32| divide!((a as u32), b as u32, wrapping_rem) as i32,
            |a: i64, b: i64| divide!((a as u64), b as u64, wrapping_rem) as i64,
            |a, _| a
        ),
        Binary::Shl => {
            int2!(elem, |a: i32, b: i32| a.wrapping_shl(b as u32), |a: i64, b: i64| a.wrapping_shl(b as u32), |a, _| a)
        }
        Binary::ShrS => {
            int2!(elem, |a: i32, b: i32| a.wrapping_shr(b as u32), |a: i64, b: i64| a.wrapping_shr(b as u32), |a, _| a)
        }
        Binary::ShrU => int2!(
            elem,
            |a: i32, b: i32| (a as u32).wrapping_shr(b as u32) as i32,
            |a: i64, b: i64| (a as u64).wrapping_shr(b as u32) as i64,
            |a, _| a
        ),
        Binary::MaxS => int2!(elem, |a: i32, b: i32| a.max(b), |a: i64, b: i64| a.max(b), |a, _| a),
        Binary::MinS => int2!(elem, |a: i32, b: i32| a.min(b), |a: i64, b: i64| a.min(b), |a, _| a),
        Binary::MaxU => int2!(
            elem,
            |a: i32, b: i32| (a as u32).max(b as u32) as i32,
            |a: i64, b: i64| (a as u64).max(b as u64) as i64,
            |a, _| a
        ),
        Binary::MinU => int2!(
            elem,
            |a: i32, b: i32| (a as u32).min(b as u32) as i32,
            |a: i64, b: i64| (a as u64).min(b as u64) as i64,
            |a, _| a
        ),
    }
}

/// The operation that joins the terms of a lazy sum or conjunction.
pub fn add_or_and(elem: Scalar, add: bool) -> F {
    match (elem, add) {
        (Scalar::I64, true) => two!(i64, i64, i64, i64::wrapping_add),
        (_, true) => two!(i32, i32, i32, i32::wrapping_add),
        _ => two!(i32, i32, i32, |a, b| a & b),
    }
}

/// Multiplication and addition with one rounding, or `None` for integers.
pub fn fma(elem: Scalar) -> Option<F> {
    match elem {
        Scalar::F32 => Some(three!(f32, f32, f32, f32, numerics::fma)),
        Scalar::Bf16 => Some(three!(u16, u16, u16, u16, |a, b, c| {
            to_bf16(numerics::fma(from_bf16(a), from_bf16(b), from_bf16(c)))
        })),
        _ => None,
    }
}

macro_rules! compare {
    ($elem:expr, $op:tt, signed) => {
        match $elem {
            Scalar::I32 => Some(two!(i32, i32, i32, |a: i32, b: i32| i32::from(a $op b))),
            Scalar::I64 => Some(two!(i64, i64, i32, |a: i64, b: i64| i32::from(a $op b))),
            // A true truth value is -1 as a signed number.
            Scalar::I1 => Some(two!(i32, i32, i32, |a: i32, b: i32| i32::from(-a $op -b))),
            _ => None,
        }
    };
    ($elem:expr, $op:tt, unsigned) => {
        match $elem {
            Scalar::I32 | Scalar::I1 => Some(two!(i32, i32, i32, |a: i32, b: i32| i32::from((a as u32) $op b as u32))),
            Scalar::I64 => Some(two!(i64, i64, i32, |a: i64, b: i64| i32::from((a as u64) $op b as u64))),
            _ => None,
        }
    };
}

/// A comparison of integers as lanes of `I32`, or `None` if the type has none.
pub fn cmp_int(op: CmpInt, elem: Scalar) -> Option<F> {
    simd!(plain_cmp_int(op, elem), cmp_int(op, elem))
}

fn plain_cmp_int(op: CmpInt, elem: Scalar) -> Option<F> {
    match op {
        CmpInt::Eq => compare!(elem, ==, signed),
        CmpInt::Ne => compare!(elem, !=, signed),
        CmpInt::Slt => compare!(elem, <, signed),
        CmpInt::Sle => compare!(elem, <=, signed),
        CmpInt::Sgt => compare!(elem, >, signed),
        CmpInt::Sge => compare!(elem, >=, signed),
        CmpInt::Ult => compare!(elem, <, unsigned),
        CmpInt::Ule => compare!(elem, <=, unsigned),
        CmpInt::Ugt => compare!(elem, >, unsigned),
        CmpInt::Uge => compare!(elem, >=, unsigned),
    }
}

macro_rules! compare_float {
    ($elem:expr, $f:expr) => {
        match $elem {
            Scalar::F32 => Some(two!(f32, f32, i32, |a: f32, b: f32| i32::from($f(a, b)))),
            Scalar::Bf16 => Some(two!(u16, u16, i32, |a: u16, b: u16| i32::from($f(from_bf16(a), from_bf16(b))))),
            _ => None,
        }
    };
}

/// A comparison of floats as lanes of `I32`, or `None` if the type has none.
pub fn cmp_float(op: CmpFloat, elem: Scalar) -> Option<F> {
    simd!(plain_cmp_float(op, elem), cmp_float(op, elem))
}

fn plain_cmp_float(op: CmpFloat, elem: Scalar) -> Option<F> {
    use numerics::{equal, less};
    #[inline(always)]
    fn unordered(a: f32, b: f32) -> bool {
        a.is_nan() | b.is_nan()
    }
    match op {
        CmpFloat::Oeq => compare_float!(elem, equal),
        CmpFloat::Ogt => compare_float!(elem, |a, b| less(b, a)),
        CmpFloat::Oge => compare_float!(elem, |a, b| less(b, a) | equal(a, b)),
        CmpFloat::Olt => compare_float!(elem, less),
        CmpFloat::Ole => compare_float!(elem, |a, b| less(a, b) | equal(a, b)),
        CmpFloat::One => compare_float!(elem, |a, b| less(a, b) | less(b, a)),
        CmpFloat::Ord => compare_float!(elem, |a, b| !unordered(a, b)),
        CmpFloat::Ueq => compare_float!(elem, |a, b| unordered(a, b) | equal(a, b)),
        CmpFloat::Ugt => compare_float!(elem, |a, b| unordered(a, b) | less(b, a)),
        CmpFloat::Uge => compare_float!(elem, |a, b| unordered(a, b) | less(b, a) | equal(a, b)),
        CmpFloat::Ult => compare_float!(elem, |a, b| unordered(a, b) | less(a, b)),
        CmpFloat::Ule => compare_float!(elem, |a, b| unordered(a, b) | less(a, b) | equal(a, b)),
        CmpFloat::Une => compare_float!(elem, |a, b| !equal(a, b)),
        CmpFloat::Uno => compare_float!(elem, unordered),
    }
}

/// A function of the difference of two FP32 tiles, in one pass.
pub fn of_difference(op: Unary) -> Option<F> {
    let plain: Option<F> = match op {
        Unary::Exp => Some(two!(f32, f32, f32, |a, b| math::exp(numerics::sub(a, b)))),
        Unary::Exp2 => Some(two!(f32, f32, f32, |a, b| math::exp2(numerics::sub(a, b)))),
        _ => None,
    };
    simd!(plain, of_difference(op))
}

/// The map that chooses between elements of `bytes` bytes.
pub fn select(bytes: usize) -> F {
    simd!(Some(plain_select(bytes)), select(bytes)).expect("there is one")
}

fn plain_select(bytes: usize) -> F {
    match bytes {
        2 => three!(i32, u16, u16, u16, |c: i32, a, b| if c != 0 { a } else { b }),
        8 => three!(i32, u64, u64, u64, |c: i32, a, b| if c != 0 { a } else { b }),
        _ => three!(i32, u32, u32, u32, |c: i32, a, b| if c != 0 { a } else { b }),
    }
}

/// The map of a store: floats are unchanged, and every NaN becomes the one NaN.
pub fn stored(elem: Scalar) -> F {
    match elem {
        Scalar::Bf16 | Scalar::F32 => simd!(plain_stored(elem), stored(size(elem))).expect("there is one"),
        other => copy(size(other)),
    }
}

fn plain_stored(elem: Scalar) -> Option<F> {
    match elem {
        Scalar::Bf16 => Some(one!(u16, u16, numerics::stored_bf16)),
        _ => Some(one!(f32, u32, numerics::stored_f32)),
    }
}

/// The map that copies elements of `bytes` bytes.
pub fn copy(bytes: usize) -> F {
    simd!(Some(plain_copy(bytes)), copies(bytes)).expect("there is one")
}

fn plain_copy(bytes: usize) -> F {
    match bytes {
        2 => one!(u16, u16, |a| a),
        8 => one!(u64, u64, |a| a),
        _ => one!(u32, u32, |a| a),
    }
}

/// The map of a load of integers of 8 bits, which take a byte in memory.
pub fn from_bytes() -> F {
    one!(i8, i32, |a: i8| i32::from(a))
}

/// The map of their store: the lowest 8 bits.
pub fn to_bytes() -> F {
    one!(i32, u8, |a: i32| a as u8)
}

/// A change of element type, or `None` if the tile IR has no such change.
pub fn cast(op: Cast, from: Scalar, to: Scalar) -> Option<F> {
    simd!(plain_cast(op, from, to), cast(op, from, to))
}

fn plain_cast(op: Cast, from: Scalar, to: Scalar) -> Option<F> {
    use Scalar::*;
    match (op, from, to) {
        (Cast::ExtF, Bf16, F32) => Some(one!(u16, f32, from_bf16)),
        (Cast::TruncF, F32, Bf16) => Some(one!(f32, u16, to_bf16)),
        (Cast::ExtS, I1, I32) => Some(one!(i32, i32, |a: i32| -a)),
        (Cast::ExtS, I1, I64) => Some(one!(i32, i64, |a: i32| i64::from(-a))),
        (Cast::ExtS, I8, I32) => Some(copy(4)),
        (Cast::ExtS, I8 | I32, I64) => Some(one!(i32, i64, |a: i32| i64::from(a))),
        (Cast::ExtU, I1, I32) => Some(one!(i32, i32, |a| a)),
        (Cast::ExtU, I1 | I32, I64) => Some(one!(u32, i64, |a: u32| i64::from(a))),
        (Cast::Trunc, I64, I32) => Some(one!(i64, i32, |a: i64| a as i32)),
        (Cast::Trunc, I64, I1) => Some(one!(i64, i32, |a: i64| (a & 1) as i32)),
        (Cast::Trunc, I32, I8) => Some(one!(i32, i32, |a: i32| i32::from(a as i8))),
        (Cast::Trunc, I64, I8) => Some(one!(i64, i32, |a: i64| i32::from(a as i8))),
        (Cast::Trunc, I32 | I8, I1) => Some(one!(i32, i32, |a: i32| a & 1)),
        (Cast::IntToFloatS, I1, F32) => Some(one!(i32, f32, |a: i32| numerics::from_int(i64::from(-a)))),
        (Cast::IntToFloatS, I8 | I32, F32) => Some(one!(i32, f32, |a: i32| numerics::from_int(i64::from(a)))),
        (Cast::IntToFloatS, I64, F32) => Some(one!(i64, f32, |a: i64| numerics::from_int(a))),
        (Cast::IntToFloatS, I1, Bf16) => Some(one!(i32, u16, |a: i32| to_bf16(numerics::from_int(i64::from(-a))))),
        (Cast::IntToFloatS, I8 | I32, Bf16) => Some(one!(i32, u16, |a: i32| to_bf16(numerics::from_int(i64::from(a))))),
        (Cast::IntToFloatS, I64, Bf16) => Some(one!(i64, u16, |a: i64| to_bf16(numerics::from_int(a)))),
        (Cast::IntToFloatU, I1 | I32, F32) => Some(one!(u32, f32, |a: u32| numerics::from_unsigned(u64::from(a)))),
        (Cast::IntToFloatU, I64, F32) => Some(one!(u64, f32, |a: u64| numerics::from_unsigned(a))),
        (Cast::IntToFloatU, I1 | I32, Bf16) => {
            Some(one!(u32, u16, |a: u32| to_bf16(numerics::from_unsigned(u64::from(a)))))
        }
        (Cast::IntToFloatU, I64, Bf16) => Some(one!(u64, u16, |a: u64| to_bf16(numerics::from_unsigned(a)))),
        (Cast::FloatToIntS, F32, I32) => Some(one!(f32, i32, |a: f32| a as i32)),
        (Cast::FloatToIntS, F32, I64) => Some(one!(f32, i64, |a: f32| a as i64)),
        (Cast::FloatToIntS, F32, I1) => Some(one!(f32, i32, |a: f32| (a as i64 & 1) as i32)),
        (Cast::FloatToIntS, Bf16, I32) => Some(one!(u16, i32, |a: u16| from_bf16(a) as i32)),
        (Cast::FloatToIntS, Bf16, I64) => Some(one!(u16, i64, |a: u16| from_bf16(a) as i64)),
        (Cast::FloatToIntS, Bf16, I1) => Some(one!(u16, i32, |a: u16| (from_bf16(a) as i64 & 1) as i32)),
        (Cast::Bits, F32, I32) => Some(one!(f32, i32, |a: f32| numerics::stored_f32(a) as i32)),
        (Cast::Bits, I32, F32) => Some(copy(4)),
        (Cast::Bits, from, to) if from == to => Some(copy(size(to))),
        _ => None,
    }
}
