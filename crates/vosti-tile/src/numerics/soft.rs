//! The same operations in integer and FP64 arithmetic: what tests compare the processor with, and how FP64 becomes FP32.
//!
//! They depend on no mode but rounding to nearest, and no kernel runs them.
//! This is the semantics written out: flush the operands, compute the exact result, round once to 24
//! bits, and flush what is then below the smallest normal number. FP64 holds sums, products, quotients
//! and roots of FP32 closely enough that a second rounding changes nothing; `fma` rounds to odd first.

use super::flush;

/// The smallest normal FP32.
const NORMAL: f64 = f32::MIN_POSITIVE as f64;
/// Half an ulp of the numbers under it below it: from there on, 24 bits round up to it, and it is kept.
const TINY: f64 = f64::from_bits(NORMAL.to_bits() - (1 << 28));

/// Rounds to FP32 and flushes what is tiny after rounding with an unbounded exponent.
pub fn round(x: f64) -> f32 {
    // Nothing below the smallest normal number is left to the processor, which may flush it before rounding.
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
