//! Exponentials, roots, logarithms, sines and rounding. Exponentials are polynomials of IEEE operations, the same for one
//! lane as for sixteen.

use super::{add, div, fma, mul, sqrt, sub};

/// `2^f - 1` over `f`, lowest power first, on [-0.5, 0.5]: minimax in relative error (2e-9).
pub const EXP2: [f32; 6] = [
    f32::from_bits(0x3f31_7218),
    f32::from_bits(0x3e75_fdee),
    f32::from_bits(0x3d63_5774),
    f32::from_bits(0x3c1d_96a6),
    f32::from_bits(0x3aaf_9f29),
    f32::from_bits(0x3920_fdde),
];

/// `e^r - 1` over `r`, lowest power first, on [-0.3468, 0.3468]: minimax in relative error (2e-9).
pub const EXP: [f32; 6] = [
    f32::from_bits(0x3f80_0000),
    f32::from_bits(0x3eff_fffe),
    f32::from_bits(0x3e2a_aa0c),
    f32::from_bits(0x3d2a_ac12),
    f32::from_bits(0x3c09_33f9),
    f32::from_bits(0x3ab5_7363),
];

/// Added to a number of magnitude below 2^22, leaves its nearest integer in the low bits.
const ROUND: f32 = 12_582_912.0;
/// log2(e).
const LOG2_E: f32 = f32::from_bits(0x3fb8_aa3b);
/// ln(2) in two parts; the first has few enough bits that its multiples by small integers are exact.
const LN_2_HIGH: f32 = f32::from_bits(0x3f31_8000);
const LN_2_LOW: f32 = f32::from_bits(0xb95e_8083);

/// `x` limited to `[low, high]`; NaN stays NaN.
#[inline(always)]
fn clamp(x: f32, low: f32, high: f32) -> f32 {
    let x = if high < x { high } else { x };
    if x < low { low } else { x }
}

/// The nearest integer, as a float and as an integer; the integer is arbitrary for NaN.
#[inline(always)]
fn nearest(x: f32) -> (f32, i32) {
    let shifted = add(x, ROUND);
    (sub(shifted, ROUND), (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32))
}

/// `1 + f * polynomial(f)`, Horner.
#[inline(always)]
fn one_plus(f: f32, polynomial: &[f32; 6]) -> f32 {
    let [c0, c1, c2, c3, c4, c5] = *polynomial;
    let p = fma(c5, f, c4);
    let p = fma(p, f, c3);
    let p = fma(p, f, c2);
    let p = fma(p, f, c1);
    let p = fma(p, f, c0);
    fma(p, f, 1.0)
}

/// `x * 2^n` for n in [-252, 254], in two steps of which only the last rounds, overflows or flushes.
#[inline(always)]
fn scale(x: f32, n: i32) -> f32 {
    let half = n >> 1;
    let power = |n: i32| f32::from_bits((n.wrapping_add(127) << 23) as u32);
    mul(mul(x, power(half)), power(n.wrapping_sub(half)))
}

/// `2^x` within 1 ulp; exact on integers; 0 below -126, infinity from 128.
#[inline(always)]
pub fn exp2(x: f32) -> f32 {
    let x = clamp(x, -128.0, 129.0);
    let (whole, n) = nearest(x);
    scale(one_plus(sub(x, whole), &EXP2), n)
}

/// `e^x` within 1 ulp; 0 below -87.34, infinity from 88.73.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let x = clamp(x, -89.0, 90.0);
    let (whole, n) = nearest(mul(x, LOG2_E));
    let r = fma(whole, -LN_2_LOW, fma(whole, -LN_2_HIGH, x));
    scale(one_plus(r, &EXP), n)
}

/// `1 / sqrt(x)`, as two IEEE operations.
#[inline(always)]
pub fn rsqrt(x: f32) -> f32 {
    div(1.0, sqrt(x))
}

/// The natural logarithm, rounded from FP64.
pub fn log(x: f32) -> f32 {
    super::soft::round(libm::log(super::flush(x).into()))
}

/// The logarithm to base 2, rounded from FP64.
pub fn log2(x: f32) -> f32 {
    super::soft::round(libm::log2(super::flush(x).into()))
}

/// The sine of x radians, rounded from FP64.
pub fn sin(x: f32) -> f32 {
    super::soft::round(libm::sin(super::flush(x).into()))
}

/// The cosine of x radians, rounded from FP64.
pub fn cos(x: f32) -> f32 {
    super::soft::round(libm::cos(super::flush(x).into()))
}

/// The largest integer not above x.
pub fn floor(x: f32) -> f32 {
    libm::floorf(super::flush(x))
}

/// The smallest integer not below x.
pub fn ceil(x: f32) -> f32 {
    libm::ceilf(super::flush(x))
}
