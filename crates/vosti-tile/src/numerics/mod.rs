//! The one scalar definition of each operation on floats.
//!
//! The interpreter calls these functions; the CPU executor's vector code gives the same bits, except
//! for NaN payloads, which are never observed because stores and bit casts write one NaN. Denormal
//! operands and results (tiny after rounding) count as zeros at every step. The hardware does that
//! under [`FloatMode`]; every worker holds one. Where AArch64 differs, `edge` corrects the result.
//!
//! Most functions are `inline(always)` and free of branches, so that a loop over lanes in a function
//! that enables AVX becomes vector code with the same bits. No function here may call the platform's
//! mathematics library, except for `fma`, which IEEE defines to the last bit.
//! Read next: [`math`], [`fold`].

#[cfg(any(test, target_arch = "aarch64"))]
mod edge;
pub mod fold;
pub mod math;
mod mode;
pub mod soft;

pub use fold::{dot, dot_bf16_step, dot_f32_step, reduce};
pub use mode::FloatMode;

/// The one NaN that stores write.
pub const NAN_F32: u32 = 0x7fc0_0000;
/// The one NaN that stores write.
pub const NAN_BF16: u16 = 0x7fc0;

/// `x`, or a zero of its sign if it is denormal.
#[inline(always)]
pub fn flush(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits(if bits & 0x7f80_0000 == 0 { bits & 0x8000_0000 } else { bits })
}

/// `a + b`.
#[inline(always)]
pub fn add(a: f32, b: f32) -> f32 {
    a + b
}

/// `a - b`.
#[inline(always)]
pub fn sub(a: f32, b: f32) -> f32 {
    a - b
}

/// The square root.
#[inline(always)]
pub fn sqrt(x: f32) -> f32 {
    x.sqrt()
}

/// Operations whose result may round up to the smallest normal number.
macro_rules! near_the_edge {
    ($(#[$doc:meta] $name:ident($($x:ident),*) = $native:expr;)*) => {$(
        #[$doc]
        #[inline(always)]
        pub fn $name($($x: f32),*) -> f32 {
            #[cfg(target_arch = "x86_64")]
            return $native;
            #[cfg(target_arch = "aarch64")]
            return edge::$name($($x),*);
        }
    )*};
}

near_the_edge! {
    /// `a * b`.
    mul(a, b) = a * b;
    /// `a / b`.
    div(a, b) = a / b;
    /// `a * b + c`, rounded once.
    fma(a, b, c) = a.mul_add(b, c);
}

/// `a < b`, false on NaN.
#[inline(always)]
pub fn less(a: f32, b: f32) -> bool {
    a < b
}

/// `a == b`, false on NaN.
#[inline(always)]
pub fn equal(a: f32, b: f32) -> bool {
    a == b
}

/// The larger, with denormals as zeros. If one is NaN, the other; if the two are equal, `b`, which decides the sign of a zero.
#[inline(always)]
pub fn max_num(a: f32, b: f32) -> f32 {
    let (a, b) = (flush(a), flush(b));
    let larger = if a > b { a } else { b };
    if b.is_nan() { a } else { larger }
}

/// The smaller, with denormals as zeros. If one is NaN, the other; if the two are equal, `b`.
#[inline(always)]
pub fn min_num(a: f32, b: f32) -> f32 {
    let (a, b) = (flush(a), flush(b));
    let smaller = if a < b { a } else { b };
    if b.is_nan() { a } else { smaller }
}

/// The larger, with denormals as zeros. If one is NaN, NaN; if the two are equal, `b`.
#[inline(always)]
pub fn maximum(a: f32, b: f32) -> f32 {
    let (a, b) = (flush(a), flush(b));
    let larger = if a > b { a } else { b };
    if a.is_nan() { a } else { larger }
}

/// The smaller, with denormals as zeros. If one is NaN, NaN; if the two are equal, `b`.
#[inline(always)]
pub fn minimum(a: f32, b: f32) -> f32 {
    let (a, b) = (flush(a), flush(b));
    let smaller = if a < b { a } else { b };
    if a.is_nan() { a } else { smaller }
}

/// The absolute value: clears the sign bit. Denormals stay.
#[inline(always)]
pub fn abs(x: f32) -> f32 {
    f32::from_bits(x.to_bits() & 0x7fff_ffff)
}

/// The negated number: flips the sign bit. Denormals stay.
#[inline(always)]
pub fn neg(x: f32) -> f32 {
    f32::from_bits(x.to_bits() ^ 0x8000_0000)
}

/// FP32 to BF16, to nearest even, denormals flushed, one NaN.
#[inline(always)]
pub fn to_bf16(x: f32) -> u16 {
    let bits = flush(x).to_bits();
    let rounded = (bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16) as u16;
    if x.is_nan() { NAN_BF16 } else { rounded }
}

/// BF16 to FP32: the bits, shifted. Denormals stay until an operation flushes them.
#[inline(always)]
pub fn from_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The bits that a store of an FP32 writes.
#[inline(always)]
pub fn stored_f32(x: f32) -> u32 {
    if x.is_nan() { NAN_F32 } else { x.to_bits() }
}

/// The bits that a store of a BF16 writes.
#[inline(always)]
pub fn stored_bf16(bits: u16) -> u16 {
    if bits & 0x7fff > 0x7f80 { NAN_BF16 } else { bits }
}

/// A signed integer to FP32, to nearest even.
#[inline(always)]
pub fn from_int(x: i64) -> f32 {
    x as f32
}

/// An unsigned integer to FP32, to nearest even.
#[inline(always)]
pub fn from_unsigned(x: u64) -> f32 {
    x as f32
}

#[cfg(test)]
mod tests;
