//! What every number in Vosti is: the one scalar definition of each operation on floats.
//!
//! The interpreter calls these; the CPU executor's vector code equals them bit for bit, NaN payloads
//! aside, which are never observed: stores and bit casts write one NaN. Denormals are zeros, of
//! operands and of results (tiny after rounding), at every single step. The hardware does that under
//! [`FloatMode`]; every worker holds one. Where AArch64 differs, `edge` mends it.
//!
//! Functions are `inline(always)` and free of branches, so that repeated over lanes in a function that
//! enables AVX they become vector code of the same bits. Nothing here may call a function of the
//! platform's mathematics library, `fma` aside, which IEEE defines to the last bit.
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

/// `x`, or the zero of its sign if it is denormal.
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

/// The larger; the other if one is NaN; `b` if equal, which tells zeros apart.
#[inline(always)]
pub fn max_num(a: f32, b: f32) -> f32 {
    let (a, b) = (flush(a), flush(b));
    let larger = if a > b { a } else { b };
    if b.is_nan() { a } else { larger }
}

/// The smaller; the other if one is NaN; `b` if equal.
#[inline(always)]
pub fn min_num(a: f32, b: f32) -> f32 {
    let (a, b) = (flush(a), flush(b));
    let smaller = if a < b { a } else { b };
    if b.is_nan() { a } else { smaller }
}

/// The larger; NaN if one is NaN; `b` if equal.
#[inline(always)]
pub fn maximum(a: f32, b: f32) -> f32 {
    let (a, b) = (flush(a), flush(b));
    let larger = if a > b { a } else { b };
    if a.is_nan() { a } else { larger }
}

/// The smaller; NaN if one is NaN; `b` if equal.
#[inline(always)]
pub fn minimum(a: f32, b: f32) -> f32 {
    let (a, b) = (flush(a), flush(b));
    let smaller = if a < b { a } else { b };
    if a.is_nan() { a } else { smaller }
}

/// The absolute value; denormals stay, for nothing is computed.
#[inline(always)]
pub fn abs(x: f32) -> f32 {
    f32::from_bits(x.to_bits() & 0x7fff_ffff)
}

/// The other sign; denormals stay.
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

/// BF16 to FP32: the bits, shifted. Denormals stay; what computes with them flushes them.
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
