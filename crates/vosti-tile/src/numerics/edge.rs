//! Products, quotients and fused multiply-adds on AArch64, which flushes a result that is tiny before rounding. This module
//! restores a result that rounds up to the smallest normal number (see `super::mode`).
//!
//! Each operation is done a second time with its exact result multiplied by 2^64, where no result near 2^-126 is tiny. The
//! scaled operation rounds to 2^-62 exactly when the unscaled one rounds to 2^-126 with an unbounded exponent. If the scaled
//! operation overflows, the other is far from the edge: a quotient or product near 2^-126 has a dividend or one factor below
//! 8, and a sum of a product of 48 bits and an addend that nearly cancel has an addend below 2^-70. A denormal operand is a
//! zero in both. So the result does not depend on whether the processor decides before or after rounding.
//! On x86-64 the hardware has the definition, and this module is compiled for tests only.
//! Read next: [`super::soft`].

pub(super) const UP: f32 = f32::from_bits((127 + 64) << 23);
const EDGE: f32 = f32::from_bits((127 - 62) << 23);

/// `result`, or the smallest normal number if the scaled result shows that it rounds up to that.
#[inline(always)]
pub(super) fn kept(result: f32, scaled: f32) -> f32 {
    if scaled.abs() == EDGE { f32::MIN_POSITIVE.copysign(scaled) } else { result }
}

#[inline(always)]
pub fn mul(a: f32, b: f32) -> f32 {
    kept(a * b, a * UP * b)
}

#[inline(always)]
pub fn div(a: f32, b: f32) -> f32 {
    kept(a / b, a * UP / b)
}

#[inline(always)]
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    kept(a.mul_add(b, c), (a * UP).mul_add(b, c * UP))
}
