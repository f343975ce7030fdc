//! The same operations without a flushing floating-point unit, in integer and FP64 arithmetic.
//!
//! This is the semantics written out: flush the operands, compute the exact result, round once to 24
//! bits, and flush what is then below the smallest normal number. FP64 holds sums, products, quotients
//! and roots of FP32 closely enough that a second rounding changes nothing; `fma` rounds to odd first.

use super::flush;

/// Half an ulp under the smallest normal FP32: what rounds up to it is kept.
const TINY: f64 = f64::from_bits(0x3810_0000_0000_0000 - (1 << 27));

/// Rounds to FP32 and flushes what is tiny after rounding with an unbounded exponent.
fn round(x: f64) -> f32 {
    if x.abs() < TINY { 0f32.copysign(x as f32) } else { x as f32 }
}

fn wide(x: f32) -> f64 {
    f64::from(flush(x))
}

pub fn add(a: f32, b: f32) -> f32 {
    round(wide(a) + wide(b))
}

pub fn sub(a: f32, b: f32) -> f32 {
    round(wide(a) - wide(b))
}

pub fn mul(a: f32, b: f32) -> f32 {
    round(wide(a) * wide(b))
}

pub fn div(a: f32, b: f32) -> f32 {
    round(wide(a) / wide(b))
}

pub fn sqrt(x: f32) -> f32 {
    round(wide(x).sqrt())
}

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
