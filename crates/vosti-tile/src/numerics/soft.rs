//! The same operations in integer and FP64 arithmetic, with which tests compare the processor's; and [`round`], by which
//! FP64 becomes FP32.
//!
//! They depend on no mode but rounding to nearest. Kernels use [`round`] only, for logarithms and sines.
//! The semantics are: flush the operands, compute the exact result, round it once to 24 bits, and flush a
//! rounded result below the smallest normal number. FP64 has sums, products, quotients and roots of FP32
//! closely enough that the second rounding changes nothing; `fma` rounds to odd first.

use super::flush;

/// The smallest normal FP32.
const NORMAL: f64 = f32::MIN_POSITIVE as f64;
/// The smallest normal number less half an ulp of the numbers below it: from here on, 24 bits round up to that number.
const TINY: f64 = f64::from_bits(NORMAL.to_bits() - (1 << 28));

/// Rounds to FP32 and flushes what is tiny after rounding with an unbounded exponent.
pub fn round(x: f64) -> f32 {
    // The processor may flush before rounding, so it rounds no number below the smallest normal one.
    match x.abs() {
        tiny if tiny < TINY => 0f32.copysign(sign(x)),
        below if below < NORMAL => f32::MIN_POSITIVE.copysign(sign(x)),
        _ => x as f32,
    }
}

/// One, with the sign of x.
fn sign(x: f64) -> f32 {
    if x.is_sign_negative() { -1.0 } else { 1.0 }
}

fn wide(x: f32) -> f64 {
    f64::from(flush(x))
}

/// A sum of two FP32, without the thread's floating-point mode.
pub fn add(a: f32, b: f32) -> f32 {
    round(wide(a) + wide(b))
}

/// A difference of two FP32, without the thread's floating-point mode.
pub fn sub(a: f32, b: f32) -> f32 {
    round(wide(a) - wide(b))
}

/// A product of two FP32, without the thread's floating-point mode.
pub fn mul(a: f32, b: f32) -> f32 {
    round(wide(a) * wide(b))
}

/// A quotient of two FP32, without the thread's floating-point mode.
pub fn div(a: f32, b: f32) -> f32 {
    round(wide(a) / wide(b))
}

/// The square root of an FP32, without the thread's floating-point mode.
pub fn sqrt(x: f32) -> f32 {
    round(wide(x).sqrt())
}

/// `a * b + c` in FP32, rounded once, without the thread's floating-point mode.
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    let (product, c) = (wide(a) * wide(b), wide(c)); // the product is exact
    let sum = product + c;
    let back = sum - product;
    let lost = (product - (sum - back)) + (c - back);
    if lost == 0.0 || !sum.is_finite() || !lost.is_finite() {
        return round(sum);
    }
    // Round to odd: a value between two FP64 numbers becomes the odd one, which no tie can be.
    let bits = sum.to_bits();
    let odd = match bits & 1 {
        1 => bits,
        _ if (lost > 0.0) == (sum > 0.0) => bits + 1,
        _ => bits - 1,
    };
    round(f64::from_bits(odd))
}
