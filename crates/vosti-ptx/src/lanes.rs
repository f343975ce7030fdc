//! Instructions that work thread by thread on registers: one row of a table each.
//!
//! Each group of rows names the section of the PTX ISA (8.7, chapter 9.7) that defines it. A value is 64 bits, of which a
//! register of fewer has the low ones. What the ISA leaves open (`approx`, `full`) is what tile IR's own function gives: so a
//! text is compared in everything else, bit for bit. A NaN that arithmetic makes is the ISA's canonical one.
//! Subnormal numbers are kept unless the name says `.ftz`, as the ISA has it; tile IR flushes them, so cases have none.

use crate::decode::GENERIC;
use crate::matrix::Lanes;
use crate::text::Width::{self, Bits16 as H, Bits32 as W, Bits64 as D, Predicate as P};
use std::cmp::Ordering;
use vosti_tile::numerics::{self, FloatMode, math};

/// What the threads of a warp compute, each of up to three operands of its own.
pub(crate) type Lane = fn([&Lanes; 3], &mut Lanes);

/// An instruction: its name, the width of its result, those of its operands, and what it computes.
pub(crate) struct Row(pub &'static str, pub Width, pub &'static [Width], pub Lane);

/// The ISA's canonical NaN ("Floating Point Instructions").
const NAN: u32 = 0x7fff_ffff;

fn s32(x: u64) -> i32 {
    x as u32 as i32
}

fn float(x: u64) -> f32 {
    f32::from_bits(x as u32)
}

fn bits(x: f32) -> u64 {
    u64::from(if x.is_nan() { NAN } else { x.to_bits() })
}

fn word(x: i32) -> u64 {
    u64::from(x as u32)
}

/// One thread's function, for all threads of a warp. With `tile` it is a function of the tile IR, in its floating-point mode.
macro_rules! all {
    (tile $one:expr) => {
        |from, to| {
            let one: fn([u64; 3]) -> f32 = $one;
            FloatMode::with(|| (0..32).for_each(|i| to[i] = bits(one([from[0][i], from[1][i], from[2][i]]))));
        }
    };
    ($one:expr) => {
        |from, to| {
            let one: fn([u64; 3]) -> u64 = $one;
            (0..32).for_each(|i| to[i] = one([from[0][i], from[1][i], from[2][i]]));
        }
    };
}

/// Rounds to BF16, to nearest even, and keeps subnormal numbers.
fn bf16(x: u64) -> u64 {
    let x = x as u32;
    match float(x.into()).is_nan() {
        true => 0x7fff,
        false => u64::from(x.wrapping_add(0x7fff + ((x >> 16) & 1)) >> 16),
    }
}

/// The number that FP16 bits are.
fn of_f16(x: u64) -> f32 {
    let (power, fraction) = ((x >> 10 & 0x1f) as i32, (x & 0x3ff) as f32);
    let size = match power {
        0 => fraction * f32::powi(2.0, -24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1024.0 + fraction) * f32::powi(2.0, power - 25),
    };
    if x >> 15 & 1 == 1 { -size } else { size }
}

/// Rounds to a format of `fraction` bits behind the point, whose smallest normal number is 2^`least`: to nearest even, keeps subnormal
/// numbers, and gives no bits above `most`. The sign is not part of it.
fn narrow(x: u64, fraction: i32, least: i32, most: u64) -> u64 {
    let power = ((x >> 23 & 0xff) as i32 - 127).max(least);
    // Units of the last place.
    let units = (float(x).abs() * f32::powi(2.0, fraction - power)).round_ties_even() as u64;
    (((power - least) as u64) << fraction).saturating_add(units).min(most)
}

/// Rounds to FP16.
fn f16(x: u64) -> u64 {
    if float(x).is_nan() { 0x7fff } else { x >> 16 & 0x8000 | narrow(x, 10, -14, 0x7c00) }
}

/// Rounds to FP8 E4M3, whose largest number stands for all larger ones.
fn e4m3(x: u64) -> u64 {
    if float(x).is_nan() { 0x7f } else { x >> 24 & 0x80 | narrow(x, 3, -6, 0x7e) }
}

/// The larger (`sign` 1) or smaller (-1) number; of two zeros, +0 is larger. One NaN counts for nothing.
fn extreme(a: f32, b: f32, largest: bool) -> f32 {
    match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if a == b => {
            if (a.is_sign_positive()) == largest {
                a
            } else {
                b
            }
        }
        _ => {
            if (a > b) == largest {
                a
            } else {
                b
            }
        }
    }
}

/// The larger or smaller of two registers' floats.
pub(crate) fn extreme_float(a: u64, b: u64, largest: bool) -> u64 {
    bits(extreme(float(a), float(b), largest))
}

/// A comparison that is true if one of the two is no number.
fn unordered(a: u64, b: u64, is: fn(Ordering) -> bool) -> u64 {
    float(a).partial_cmp(&float(b)).is_none_or(is).into()
}

/// Bits `from` to `from + many` of a word.
fn field([a, from, many]: [u64; 3]) -> u32 {
    let (from, many) = ((from & 0xff) as u32, (many & 0xff) as u32);
    let moved = (a as u32).checked_shr(from).unwrap_or(0);
    if many >= 32 { moved } else { moved & ((1 << many) - 1) }
}

/// The field of a number of so many bits with its sign, which is the number's if the field reaches beyond it.
fn signed_field(bits: u32, [a, from, many]: [u64; 3]) -> u64 {
    let (from, many) = ((from & 0xff) as u32, (many & 0xff) as u32);
    if many == 0 {
        return 0;
    }
    let sign = a >> (from + many - 1).min(bits - 1) & 1;
    let inside = bits.saturating_sub(from).min(many);
    let ones = |many: u32| u64::MAX.checked_shr(64 - many).unwrap_or(0);
    let value = a.checked_shr(from).unwrap_or(0) & ones(inside);
    if sign == 1 { value | (ones(bits) & !ones(inside)) } else { value }
}

/// Four bytes of eight, each chosen by four bits; the highest of them copies the byte's sign over it.
fn permute([a, b, selector]: [u64; 3]) -> u64 {
    let all = ((b as u32 as u64) << 32 | a as u32 as u64).to_le_bytes();
    let byte = |at: u64| {
        let nibble = selector >> (4 * at) & 0xf;
        let byte = all[(nibble & 7) as usize];
        if nibble & 8 != 0 { ((byte as i8) >> 7) as u8 } else { byte }
    };
    u32::from_le_bytes([byte(0), byte(1), byte(2), byte(3)]).into()
}

/// The tile IR's `exp`, if the second operand is the first one times log2(e), and else `exp2` of it.
pub(crate) const EXP: Lane = all!(
    tile | [a, scaled, _]
        | match bits(float(a) * std::f32::consts::LOG2_E) == scaled {
            true => math::exp(float(a)),
            false => math::exp2(float(scaled)),
        }
);

/// All of them.
pub(crate) const ROWS: &[Row] = &[
    // Integer Arithmetic Instructions: add, sub, mul, mad, neg, min, max, bfe.
    Row("add.s32", W, &[W, W], all!(|[a, b, _]| word(s32(a).wrapping_add(s32(b))))),
    Row("add.u32", W, &[W, W], all!(|[a, b, _]| word(s32(a).wrapping_add(s32(b))))),
    Row("add.s64", D, &[D, D], all!(|[a, b, _]| a.wrapping_add(b))),
    Row("sub.s32", W, &[W, W], all!(|[a, b, _]| word(s32(a).wrapping_sub(s32(b))))),
    Row("sub.s64", D, &[D, D], all!(|[a, b, _]| a.wrapping_sub(b))),
    Row("mul.lo.s32", W, &[W, W], all!(|[a, b, _]| word(s32(a).wrapping_mul(s32(b))))),
    Row("mul.lo.s64", D, &[D, D], all!(|[a, b, _]| a.wrapping_mul(b))),
    // Of a division by zero the ISA says nothing: all bits are one here.
    Row("div.s32", W, &[W, W], all!(|[a, b, _]| if b == 0 { word(-1) } else { word(s32(a).wrapping_div(s32(b))) })),
    Row("rem.s32", W, &[W, W], all!(|[a, b, _]| if b == 0 { word(-1) } else { word(s32(a).wrapping_rem(s32(b))) })),
    Row("div.u32", W, &[W, W], all!(|[a, b, _]| a.checked_div(b).unwrap_or(word(-1)))),
    Row("rem.u32", W, &[W, W], all!(|[a, b, _]| a.checked_rem(b).unwrap_or(word(-1)))),
    Row("mul.hi.u64", D, &[D, D], all!(|[a, b, _]| ((u128::from(a) * u128::from(b)) >> 64) as u64)),
    Row("mul.wide.u32", D, &[W, W], all!(|[a, b, _]| a * b)),
    Row("mul.wide.u16", W, &[H, H], all!(|[a, b, _]| a * b)),
    Row("mul.wide.s32", D, &[W, W], all!(|[a, b, _]| (i64::from(s32(a)) * i64::from(s32(b))) as u64)),
    Row("mad.lo.s32", W, &[W, W, W], all!(|[a, b, c]| word(s32(a).wrapping_mul(s32(b)).wrapping_add(s32(c))))),
    Row("mad.lo.s64", D, &[D, D, D], all!(|[a, b, c]| a.wrapping_mul(b).wrapping_add(c))),
    Row("mad.wide.u32", D, &[W, W, D], all!(|[a, b, c]| (a * b).wrapping_add(c))),
    Row(
        "mad.wide.s32",
        D,
        &[W, W, D],
        all!(|[a, b, c]| { (i64::from(s32(a)) * i64::from(s32(b))).wrapping_add(c as i64) as u64 }),
    ),
    Row("neg.s32", W, &[W], all!(|[a, ..]| word(s32(a).wrapping_neg()))),
    Row("min.s32", W, &[W, W], all!(|[a, b, _]| word(s32(a).min(s32(b))))),
    Row("max.s32", W, &[W, W], all!(|[a, b, _]| word(s32(a).max(s32(b))))),
    Row("min.u32", W, &[W, W], all!(|[a, b, _]| a.min(b))),
    Row("max.u32", W, &[W, W], all!(|[a, b, _]| a.max(b))),
    Row("min.s64", D, &[D, D], all!(|[a, b, _]| (a as i64).min(b as i64) as u64)),
    Row("max.s64", D, &[D, D], all!(|[a, b, _]| (a as i64).max(b as i64) as u64)),
    Row("bfe.u32", W, &[W, W, W], all!(|abc| field(abc).into())),
    Row("bfe.s32", W, &[W, W, W], all!(|abc| signed_field(32, abc))),
    Row("bfe.s64", D, &[D, W, W], all!(|abc| signed_field(64, abc))),
    // Logic and Shift Instructions: and, or, xor, not, shl, shr. Shifts by more than the width shift all bits out.
    Row("and.pred", P, &[P, P], all!(|[a, b, _]| a & b)),
    Row("or.pred", P, &[P, P], all!(|[a, b, _]| a | b)),
    Row("xor.pred", P, &[P, P], all!(|[a, b, _]| a ^ b)),
    Row("not.pred", P, &[P], all!(|[a, ..]| a ^ 1)),
    Row("and.b16", H, &[H, H], all!(|[a, b, _]| a & b)),
    Row("or.b16", H, &[H, H], all!(|[a, b, _]| a | b)),
    Row("and.b32", W, &[W, W], all!(|[a, b, _]| a & b)),
    Row("or.b32", W, &[W, W], all!(|[a, b, _]| a | b)),
    Row("xor.b32", W, &[W, W], all!(|[a, b, _]| a ^ b)),
    Row("not.b32", W, &[W], all!(|[a, ..]| word(!s32(a)))),
    Row("and.b64", D, &[D, D], all!(|[a, b, _]| a & b)),
    Row("or.b64", D, &[D, D], all!(|[a, b, _]| a | b)),
    Row("xor.b64", D, &[D, D], all!(|[a, b, _]| a ^ b)),
    Row("shl.b16", H, &[H, W], all!(|[a, b, _]| if b > 15 { 0 } else { a << b & 0xffff })),
    Row("shl.b32", W, &[W, W], all!(|[a, b, _]| if b > 31 { 0 } else { a << b & 0xffff_ffff })),
    Row("shl.b64", D, &[D, W], all!(|[a, b, _]| if b > 63 { 0 } else { a << b })),
    Row("shr.u16", H, &[H, W], all!(|[a, b, _]| if b > 15 { 0 } else { a >> b })),
    Row("shr.s16", H, &[H, W], all!(|[a, b, _]| u64::from(((a as u16 as i16) >> b.min(15)) as u16))),
    Row("shr.u32", W, &[W, W], all!(|[a, b, _]| if b > 31 { 0 } else { a >> b })),
    Row("shr.s32", W, &[W, W], all!(|[a, b, _]| word(s32(a) >> b.min(31)))),
    Row("shr.u64", D, &[D, W], all!(|[a, b, _]| if b > 63 { 0 } else { a >> b })),
    Row("shr.s64", D, &[D, W], all!(|[a, b, _]| ((a as i64) >> b.min(63)) as u64)),
    // Floating Point Instructions: add, sub, mul, fma, abs, min, max, and the approximations div, rsqrt, ex2.
    Row("add.rn.f32", W, &[W, W], all!(|[a, b, _]| bits(float(a) + float(b)))),
    Row("sub.rn.f32", W, &[W, W], all!(|[a, b, _]| bits(float(a) - float(b)))),
    Row("mul.rn.f32", W, &[W, W], all!(|[a, b, _]| bits(float(a) * float(b)))),
    Row("fma.rn.f32", W, &[W, W, W], all!(|[a, b, c]| bits(float(a).mul_add(float(b), float(c))))),
    Row("abs.f32", W, &[W], all!(|[a, ..]| a & 0x7fff_ffff)),
    Row("neg.f32", W, &[W], all!(|[a, ..]| a ^ 0x8000_0000)),
    Row("min.f32", W, &[W, W], all!(|[a, b, _]| extreme_float(a, b, false))),
    Row("max.f32", W, &[W, W], all!(|[a, b, _]| extreme_float(a, b, true))),
    Row(
        "min.xorsign.abs.f32",
        W,
        &[W, W],
        all!(|[a, b, _]| {
            let [x, y] = [a, b].map(|x| float(x).abs());
            let sign = if x.is_nan() && y.is_nan() { 0 } else { (a ^ b) & 0x8000_0000 };
            bits(extreme(x, y, false)) | sign
        }),
    ),
    Row(
        "max.NaN.f32",
        W,
        &[W, W],
        all!(|[a, b, _]| match float(a).is_nan() || float(b).is_nan() {
            true => NAN.into(),
            false => extreme_float(a, b, true),
        }),
    ),
    Row("div.full.f32", W, &[W, W], all!(tile | [a, b, _] | numerics::div(float(a), float(b)))),
    Row("rsqrt.approx.ftz.f32", W, &[W], all!(tile | [a, ..] | math::rsqrt(float(a)))),
    Row("ex2.approx.ftz.f32", W, &[W], all!(tile | [a, ..] | math::exp2(float(a)))),
    Row("ex2.approx.f32", W, &[W], all!(tile | [a, ..] | math::exp2(float(a)))),
    Row("abs.ftz.f32", W, &[W], all!(|[a, ..]| if a & 0x7f80_0000 == 0 { 0 } else { a & 0x7fff_ffff })),
    Row("sqrt.rn.f32", W, &[W], all!(|[a, ..]| bits(float(a).sqrt()))),
    Row("div.rn.f32", W, &[W, W], all!(|[a, b, _]| bits(float(a) / float(b)))),
    // Half Precision Floating Point Instructions: add, sub, mul, abs. FP32 holds such a product exactly, and a sum closely enough to
    // round it once more.
    Row("add.rn.bf16", H, &[H, H], all!(|[a, b, _]| bf16(bits(float(a << 16) + float(b << 16))))),
    Row("sub.rn.bf16", H, &[H, H], all!(|[a, b, _]| bf16(bits(float(a << 16) - float(b << 16))))),
    Row("mul.rn.bf16", H, &[H, H], all!(|[a, b, _]| bf16(bits(float(a << 16) * float(b << 16))))),
    Row("add.rn.f16", H, &[H, H], all!(|[a, b, _]| f16(bits(of_f16(a) + of_f16(b))))),
    Row("sub.rn.f16", H, &[H, H], all!(|[a, b, _]| f16(bits(of_f16(a) - of_f16(b))))),
    Row("mul.rn.f16", H, &[H, H], all!(|[a, b, _]| f16(bits(of_f16(a) * of_f16(b))))),
    Row("abs.bf16", H, &[H], all!(|[a, ..]| a & 0x7fff)),
    Row("abs.bf16x2", W, &[W], all!(|[a, ..]| a & 0x7fff_7fff)),
    // Comparison and Selection Instructions: setp. A comparison with NaN is false; one of floats whose name ends in `u` is
    // true ("Floating Point Comparisons").
    Row("setp.eq.b16", P, &[H, H], all!(|[a, b, _]| (a == b).into())),
    Row("setp.ne.b16", P, &[H, H], all!(|[a, b, _]| (a != b).into())),
    Row("setp.eq.b32", P, &[W, W], all!(|[a, b, _]| (a == b).into())),
    Row("setp.ne.b32", P, &[W, W], all!(|[a, b, _]| (a != b).into())),
    Row("setp.eq.s32", P, &[W, W], all!(|[a, b, _]| (a == b).into())),
    Row("setp.ne.s32", P, &[W, W], all!(|[a, b, _]| (a != b).into())),
    Row("setp.lt.s32", P, &[W, W], all!(|[a, b, _]| (s32(a) < s32(b)).into())),
    Row("setp.le.s32", P, &[W, W], all!(|[a, b, _]| (s32(a) <= s32(b)).into())),
    Row("setp.gt.s32", P, &[W, W], all!(|[a, b, _]| (s32(a) > s32(b)).into())),
    Row("setp.ge.s32", P, &[W, W], all!(|[a, b, _]| (s32(a) >= s32(b)).into())),
    Row("setp.lt.u32", P, &[W, W], all!(|[a, b, _]| (a < b).into())),
    Row("setp.le.u32", P, &[W, W], all!(|[a, b, _]| (a <= b).into())),
    Row("setp.gt.u32", P, &[W, W], all!(|[a, b, _]| (a > b).into())),
    Row("setp.ge.u32", P, &[W, W], all!(|[a, b, _]| (a >= b).into())),
    Row("setp.eq.b64", P, &[D, D], all!(|[a, b, _]| (a == b).into())),
    Row("setp.ne.b64", P, &[D, D], all!(|[a, b, _]| (a != b).into())),
    Row("setp.ne.u64", P, &[D, D], all!(|[a, b, _]| (a != b).into())),
    Row("setp.lt.s64", P, &[D, D], all!(|[a, b, _]| ((a as i64) < b as i64).into())),
    Row("setp.le.s64", P, &[D, D], all!(|[a, b, _]| (a as i64 <= b as i64).into())),
    Row("setp.gt.s64", P, &[D, D], all!(|[a, b, _]| (a as i64 > b as i64).into())),
    Row("setp.ge.s64", P, &[D, D], all!(|[a, b, _]| (a as i64 >= b as i64).into())),
    Row("setp.lt.u64", P, &[D, D], all!(|[a, b, _]| (a < b).into())),
    Row("setp.ge.u64", P, &[D, D], all!(|[a, b, _]| (a >= b).into())),
    Row("setp.eq.f32", P, &[W, W], all!(|[a, b, _]| (float(a) == float(b)).into())),
    Row("setp.lt.f32", P, &[W, W], all!(|[a, b, _]| (float(a) < float(b)).into())),
    Row("setp.le.f32", P, &[W, W], all!(|[a, b, _]| (float(a) <= float(b)).into())),
    Row("setp.gt.f32", P, &[W, W], all!(|[a, b, _]| (float(a) > float(b)).into())),
    Row("setp.ge.f32", P, &[W, W], all!(|[a, b, _]| (float(a) >= float(b)).into())),
    Row("setp.equ.f32", P, &[W, W], all!(|[a, b, _]| unordered(a, b, Ordering::is_eq))),
    Row("setp.neu.f32", P, &[W, W], all!(|[a, b, _]| unordered(a, b, Ordering::is_ne))),
    Row("setp.ltu.f32", P, &[W, W], all!(|[a, b, _]| unordered(a, b, Ordering::is_lt))),
    Row("setp.leu.f32", P, &[W, W], all!(|[a, b, _]| unordered(a, b, Ordering::is_le))),
    Row("setp.gtu.f32", P, &[W, W], all!(|[a, b, _]| unordered(a, b, Ordering::is_gt))),
    Row("setp.geu.f32", P, &[W, W], all!(|[a, b, _]| unordered(a, b, Ordering::is_ge))),
    Row("setp.lt.bf16", P, &[H, H], all!(|[a, b, _]| (float(a << 16) < float(b << 16)).into())),
    Row("setp.le.bf16", P, &[H, H], all!(|[a, b, _]| (float(a << 16) <= float(b << 16)).into())),
    Row("setp.gt.bf16", P, &[H, H], all!(|[a, b, _]| (float(a << 16) > float(b << 16)).into())),
    Row("setp.ge.bf16", P, &[H, H], all!(|[a, b, _]| (float(a << 16) >= float(b << 16)).into())),
    Row("setp.lt.f16", P, &[H, H], all!(|[a, b, _]| (of_f16(a) < of_f16(b)).into())),
    Row("setp.le.f16", P, &[H, H], all!(|[a, b, _]| (of_f16(a) <= of_f16(b)).into())),
    Row("setp.gt.f16", P, &[H, H], all!(|[a, b, _]| (of_f16(a) > of_f16(b)).into())),
    Row("setp.ge.f16", P, &[H, H], all!(|[a, b, _]| (of_f16(a) >= of_f16(b)).into())),
    // Whether both are numbers, or one is none.
    Row("setp.num.f32", P, &[W, W], all!(|[a, b, _]| (!float(a).is_nan() && !float(b).is_nan()).into())),
    Row("setp.nan.f32", P, &[W, W], all!(|[a, b, _]| (float(a).is_nan() || float(b).is_nan()).into())),
    // Data Movement and Conversion Instructions: mov of a register or number, cvta, prmt, cvt.
    Row("mov.pred", P, &[P], all!(|[a, ..]| a)),
    Row("mov.b16", H, &[H], all!(|[a, ..]| a)),
    Row("mov.u16", H, &[H], all!(|[a, ..]| a)),
    Row("mov.b32", W, &[W], all!(|[a, ..]| a)),
    Row("mov.u32", W, &[W], all!(|[a, ..]| a)),
    Row("mov.b64", D, &[D], all!(|[a, ..]| a)),
    Row("mov.u64", D, &[D], all!(|[a, ..]| a)),
    Row("cvta.to.global.u64", D, &[D], all!(|[a, ..]| a)),
    Row("cvta.param.u64", D, &[D], all!(|[a, ..]| a | GENERIC)),
    Row("prmt.b32", W, &[W, W, W], all!(permute)),
    Row("cvt.u64.u32", D, &[W], all!(|[a, ..]| a)),
    Row("cvt.s64.s32", D, &[W], all!(|[a, ..]| i64::from(s32(a)) as u64)),
    Row("cvt.u32.u64", W, &[D], all!(|[a, ..]| a & 0xffff_ffff)),
    Row("cvt.u32.u16", W, &[H], all!(|[a, ..]| a)),
    Row("cvt.u16.u32", H, &[W], all!(|[a, ..]| a & 0xffff)),
    Row("cvt.rn.f32.s32", W, &[W], all!(|[a, ..]| bits(s32(a) as f32))),
    Row("cvt.rn.f32.u32", W, &[W], all!(|[a, ..]| bits(a as u32 as f32))),
    Row("cvt.rn.f32.u64", W, &[D], all!(|[a, ..]| bits(a as f32))),
    // NaN becomes 0, and what does not fit the nearest integer that does.
    Row("cvt.rzi.s32.f32", W, &[W], all!(|[a, ..]| word(float(a) as i32))),
    Row("cvt.f32.bf16", W, &[H], all!(|[a, ..]| a << 16)),
    Row("cvt.f32.f16", W, &[H], all!(|[a, ..]| bits(of_f16(a)))),
    Row("cvt.rn.f16.f32", H, &[W], all!(|[a, ..]| f16(a))),
    Row("cvt.rn.satfinite.e4m3x2.f32", H, &[W, W], all!(|[a, b, _]| e4m3(a) << 8 | e4m3(b))),
    Row("cvt.rn.bf16.f32", H, &[W], all!(|[a, ..]| bf16(a))),
    // The first operand becomes the upper half.
    Row("cvt.rn.bf16x2.f32", W, &[W, W], all!(|[a, b, _]| bf16(a) << 16 | bf16(b))),
];
