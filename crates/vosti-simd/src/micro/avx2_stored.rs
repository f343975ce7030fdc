//! Dots over panels in a stored form, with 256-bit vectors. With few rows, elements are expanded in registers and multiplied at
//! once. With more, the first rows expand the panel into BF16, a unit at a time, for themselves and the others.
//!
//! Read next: [`crate::storage`].

use std::arch::x86_64::*;

use super::fused::{self, ROWS, Wide};
use super::{Dot, DotFn, LANES, Stored, by_units, portable};
use crate::storage::blocks::{PAIRS, REGISTER, STRIPE, STRIPES, Shape};
use crate::storage::{Form, Panel};
use vosti_kernels::Values;

/// # Safety
/// See [`super::StoredFn`].
pub unsafe fn dot(dot: &Dot<u16>, stored: &Stored) {
    // SAFETY: the caller's.
    unsafe { dot_by(dot, stored, fused::bf16_256) }
}

/// Panels that are expanded first are multiplied with 512 bits.
///
/// # Safety
/// See [`super::StoredFn`].
pub unsafe fn dot_512(dot: &Dot<u16>, stored: &Stored) {
    // SAFETY: the caller's.
    unsafe { dot_by(dot, stored, fused::bf16_512) }
}

/// # Safety
/// See [`super::StoredFn`]; `bf16` may be run.
unsafe fn dot_by(dot: &Dot<u16>, stored: &Stored, bf16: DotFn<u16>) {
    // SAFETY: the caller's; rows are within the product.
    unsafe {
        match stored.panel.form {
            Form::Blocks(format) if stored.keep.is_null() => {
                let shape = &Shape::of(format);
                for r in (0..dot.rows).step_by(ROWS) {
                    match dot.rows - r {
                        1 => rows::<1>(dot, r, stored, shape),
                        2 => rows::<2>(dot, r, stored, shape),
                        3 => rows::<3>(dot, r, stored, shape),
                        _ => rows::<ROWS>(dot, r, stored, shape),
                    }
                }
            }
            _ => by_units(dot, stored, bf16, expand),
        }
    }
}

/// `R` rows by all units of a panel in blocks.
///
/// # Safety
/// See [`super::StoredFn`]; rows r..r+R are within the product.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn rows<const R: usize>(dot: &Dot<u16>, r: usize, stored: &Stored, shape: &Shape) {
    let mut left = [[[0.0; PAIRS]; 2]; R];
    for first in (0..dot.steps).step_by(PAIRS) {
        // SAFETY: the caller's.
        unsafe {
            for (i, left) in left.iter_mut().enumerate() {
                fused::widen(dot.a.add((r + i) * dot.a_row + 2 * first), PAIRS, left);
            }
            let accumulate = dot.accumulate || first > 0;
            let (c, stripes) = (dot.c.add(r * dot.c_row), dot.columns / LANES);
            let out = std::ptr::null_mut();
            let product = Product { left: &left, c, c_row: dot.c_row, accumulate, stripes, out };
            unit(stored.panel.at, shape, (stored.step + first) / PAIRS, &product);
        }
    }
}

/// # Safety
/// See [`super::ExpandFn`]; the instruction set is present.
unsafe fn expand(panel: &Panel, first: usize, steps: usize, out: *mut u16) {
    // SAFETY: the caller's.
    unsafe {
        match panel.form {
            Form::Blocks(format) if steps == PAIRS => {
                let c = std::ptr::null_mut();
                let nothing = Product { left: &[], c, c_row: 0, accumulate: false, stripes: STRIPES, out };
                unit(panel.at, &Shape::of(format), first / PAIRS, &nothing);
            }
            _ => portable::expand(panel, first, steps, out),
        }
    }
}

/// The left operand of a unit's weights, and their sums. If `R` is 0, the weights are written in BF16 instead.
struct Product<'a, const R: usize> {
    left: &'a [Wide<PAIRS>; R],
    c: *mut f32,
    c_row: usize,
    accumulate: bool,
    /// The number of the panel's stripes for which `c` has columns.
    stripes: usize,
    /// Room for a unit in the order of `RowPanels`.
    out: *mut u16,
}

/// # Safety
/// The unit is the panel's, and the product's operands are there; the instruction set is present.
unsafe fn unit<const R: usize>(panel: *const u8, shape: &Shape, unit: usize, product: &Product<R>) {
    // SAFETY: the caller's.
    unsafe {
        match (shape.low, shape.high, codes(shape)) {
            (2, 0, PLAIN) => unit_of::<2, 0, PLAIN, R>(panel, shape, unit, product),
            (2, 0, _) => unit_of::<2, 0, SHIFTED, R>(panel, shape, unit, product),
            (2, ..) => unit_of::<2, 1, SHIFTED, R>(panel, shape, unit, product),
            (4, 0, TABLE) => unit_of::<4, 0, TABLE, R>(panel, shape, unit, product),
            (4, 0, PLAIN) => unit_of::<4, 0, PLAIN, R>(panel, shape, unit, product),
            (4, 0, _) => unit_of::<4, 0, SHIFTED, R>(panel, shape, unit, product),
            (4, 1, PLAIN) => unit_of::<4, 1, PLAIN, R>(panel, shape, unit, product),
            (4, 1, _) => unit_of::<4, 1, SHIFTED, R>(panel, shape, unit, product),
            (4, ..) => unit_of::<4, 2, SHIFTED, R>(panel, shape, unit, product),
            _ => unit_of::<8, 0, SHIFTED, R>(panel, shape, unit, product),
        }
    }
}

/// A code stands for itself.
const PLAIN: u8 = 0;
/// A code stands for itself less a number.
const SHIFTED: u8 = 1;
/// A code stands for a number of a table.
const TABLE: u8 = 2;

/// One of the three.
fn codes(shape: &Shape) -> u8 {
    match shape.format.values {
        Values::Table(_) => TABLE,
        Values::From(0) => PLAIN,
        Values::From(_) => SHIFTED,
    }
}

/// Half a stripe's registers at a time: rows 0 to 3 and 8 to 11, then the others.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn unit_of<const LOW: i32, const HIGH: i32, const CODES: u8, const R: usize>(
    panel: *const u8,
    shape: &Shape,
    unit: usize,
    product: &Product<R>,
) {
    // SAFETY: places of the shape; the operands are the caller's.
    unsafe {
        let (chunk, place) = shape.places(unit);
        let (chunk, place) = (panel.add(chunk), panel.add(place));
        let table = shape.table();
        let table = [_mm256_loadu_ps(table.as_ptr()), _mm256_loadu_ps(table.as_ptr().add(8))];
        let mut excess = [_mm256_setzero_ps(); 3];
        for (byte, excess) in excess.iter_mut().enumerate() {
            *excess = _mm256_set1_ps((1 << (23 - 8 * byte)) as f32 - shape.first());
        }
        let (per_low, per_high) = (4 / LOW.min(4) as usize, 4 / HIGH.max(1) as usize);
        for stripe in 0..product.stripes {
            let codes = place.add(shape.unit_head + stripe * shape.stripe);
            for half in 0..2 {
                // Bytes of the half in a register.
                let at = codes.add(half * 32);
                let c = product.c.wrapping_add(stripe * STRIPE + 4 * half);
                let mut sums = [_mm256_setzero_ps(); R];
                if product.accumulate {
                    for (r, sums) in sums.iter_mut().enumerate() {
                        *sums = load_sums(c.add(r * product.c_row));
                    }
                }
                let mut scales = Scales::of(shape, chunk, place, stripe, half, 0);
                let mut by_byte = scales.by_byte();
                let mut low = _mm256_setzero_si256();
                let mut high = low;
                for four in 0..PAIRS / 4 {
                    if four == 2 && shape.groups > 1 {
                        scales = Scales::of(shape, chunk, place, stripe, half, 1);
                        by_byte = scales.by_byte();
                    }
                    // A macro, because a closure that is not inlined is compiled without the instruction set.
                    macro_rules! put {
                        ($pair:literal, $x:expr, $y:expr) => {
                            let scale = if CODES == PLAIN { &by_byte[$pair] } else { &scales.scale };
                            let x = rounded(_mm256_fmsub_ps($x, scale[0], scales.minimum[0]));
                            let y = rounded(_mm256_fmsub_ps($y, scale[1], scales.minimum[1]));
                            let pair = 4 * four + $pair;
                            if R == 0 {
                                let x = _mm256_srli_epi32::<16>(_mm256_castps_si256(x));
                                let y = _mm256_srli_epi32::<16>(_mm256_castps_si256(y));
                                let packed = in_order(_mm256_packus_epi32(x, y));
                                let to = product.out.add(pair * 128 + stripe * 32 + half * 8);
                                _mm_storeu_si128(to.cast(), _mm256_castsi256_si128(packed));
                                _mm_storeu_si128(to.add(16).cast(), _mm256_extracti128_si256::<1>(packed));
                            } else {
                                let even = _mm256_shuffle_ps::<0b10_00_10_00>(x, y);
                                let odd = _mm256_shuffle_ps::<0b11_01_11_01>(x, y);
                                for (sums, [of_odd, of_even]) in sums.iter_mut().zip(product.left) {
                                    let of_odd = _mm256_broadcast_ss(&of_odd[pair]);
                                    let of_even = _mm256_broadcast_ss(&of_even[pair]);
                                    *sums = _mm256_fmadd_ps(of_even, even, _mm256_fmadd_ps(of_odd, odd, *sums));
                                }
                            }
                        };
                    }
                    if LOW == 8 {
                        let first = load(at, 2 * four);
                        put!(0, value::<8, 0>(first, 0, &excess), value::<8, 0>(first, 1, &excess));
                        let first = _mm256_srli_epi32::<16>(first);
                        put!(1, value::<8, 0>(first, 0, &excess), value::<8, 0>(first, 1, &excess));
                        let second = load(at, 2 * four + 1);
                        put!(2, value::<8, 0>(second, 0, &excess), value::<8, 0>(second, 1, &excess));
                        let second = _mm256_srli_epi32::<16>(second);
                        put!(3, value::<8, 0>(second, 0, &excess), value::<8, 0>(second, 1, &excess));
                        continue;
                    }
                    if four % per_low == 0 {
                        low = load(at, four / per_low);
                    }
                    if HIGH > 0 && four % per_high == 0 {
                        high = load(at, LOW as usize + four / per_high);
                    }
                    let x = next::<LOW, HIGH>(&mut low, &mut high);
                    let y = next::<LOW, HIGH>(&mut low, &mut high);
                    if CODES == PLAIN {
                        put!(0, code::<LOW, HIGH>(x, 0), code::<LOW, HIGH>(y, 0));
                        put!(1, code::<LOW, HIGH>(x, 1), code::<LOW, HIGH>(y, 1));
                        put!(2, code::<LOW, HIGH>(x, 2), code::<LOW, HIGH>(y, 2));
                        put!(3, code::<LOW, HIGH>(x, 3), code::<LOW, HIGH>(y, 3));
                    } else if CODES == TABLE {
                        put!(0, looked_up::<0>(x, &table), looked_up::<0>(y, &table));
                        put!(1, looked_up::<8>(x, &table), looked_up::<8>(y, &table));
                        put!(2, looked_up::<16>(x, &table), looked_up::<16>(y, &table));
                        put!(3, looked_up::<24>(x, &table), looked_up::<24>(y, &table));
                    } else {
                        put!(0, value::<LOW, HIGH>(x, 0, &excess), value::<LOW, HIGH>(y, 0, &excess));
                        put!(1, value::<LOW, HIGH>(x, 1, &excess), value::<LOW, HIGH>(y, 1, &excess));
                        put!(2, value::<LOW, HIGH>(x, 2, &excess), value::<LOW, HIGH>(y, 2, &excess));
                        put!(3, value::<LOW, HIGH>(x, 3, &excess), value::<LOW, HIGH>(y, 3, &excess));
                    }
                }
                for (r, sums) in sums.into_iter().enumerate() {
                    store_sums(c.add(r * product.c_row), sums);
                }
            }
        }
    }
}

/// Rows 0 and 1, 8 and 9, 2 and 3, 10 and 11 of a half in the order of rows, or back.
#[target_feature(enable = "avx2")]
#[inline]
fn in_order(x: __m256i) -> __m256i {
    _mm256_permute4x64_epi64::<0b11_01_10_00>(x)
}

/// The sums of half a stripe, in the order in which two shuffled registers have its rows.
///
/// # Safety
/// The sums of its first row and of the eleven rows after it are readable.
#[target_feature(enable = "avx2,fma")]
#[inline]
unsafe fn load_sums(at: *const f32) -> __m256 {
    // SAFETY: the caller's.
    let sums = unsafe { _mm256_loadu2_m128(at.add(8), at) };
    _mm256_castsi256_ps(in_order(_mm256_castps_si256(sums)))
}

/// # Safety
/// As [`load_sums`], and they are writable.
#[target_feature(enable = "avx2,fma")]
#[inline]
unsafe fn store_sums(at: *mut f32, sums: __m256) {
    let sums = _mm256_castsi256_ps(in_order(_mm256_castps_si256(sums)));
    // SAFETY: the caller's.
    unsafe { _mm256_storeu2_m128(at.add(8), at, sums) };
}

/// Half of a stripe's register: 32 bytes.
///
/// # Safety
/// They are readable.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn load(at: *const u8, register: usize) -> __m256i {
    // SAFETY: the caller's.
    unsafe { _mm256_loadu_si256(at.add(register * REGISTER).cast()) }
}

/// The next codes of four pairs, for the stripe's first rows or its last: one in each byte of the words.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn next<const LOW: i32, const HIGH: i32>(low: &mut __m256i, high: &mut __m256i) -> __m256i {
    let mut words = *low;
    *low = if LOW == 4 { _mm256_srli_epi32::<4>(*low) } else { _mm256_srli_epi32::<2>(*low) };
    if HIGH > 0 {
        let mask = _mm256_set1_epi8((1 << LOW.min(4)) - 1);
        words = _mm256_or_si256(_mm256_and_si256(words, mask), _mm256_andnot_si256(mask, *high));
        *high = if HIGH == 1 {
            _mm256_or_si256(_mm256_srli_epi32::<1>(*high), _mm256_slli_epi32::<31>(*high))
        } else {
            _mm256_or_si256(_mm256_srli_epi32::<2>(*high), _mm256_slli_epi32::<30>(*high))
        };
    }
    words
}

/// The value of the code in a byte of each word. The code becomes part of a float's mantissa, and `excess` is subtracted.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn value<const LOW: i32, const HIGH: i32>(word: __m256i, byte: usize, excess: &[__m256; 3]) -> __m256 {
    let (word, byte) = if byte == 3 { (_mm256_srli_epi32::<8>(word), 2) } else { (word, byte) };
    let mask = _mm256_set1_epi32(((1 << (LOW + HIGH)) - 1) << (8 * byte));
    let exponent = _mm256_set1_epi32((127 + 23 - 8 * byte as i32) << 23);
    let float = _mm256_or_si256(_mm256_and_si256(word, mask), exponent);
    _mm256_sub_ps(_mm256_castsi256_ps(float), excess[byte])
}

/// The code in a byte of each word, times 256 for each byte below. A code has at most five bits, so none reaches the sign.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn code<const LOW: i32, const HIGH: i32>(word: __m256i, byte: usize) -> __m256 {
    let mask = _mm256_set1_epi32(((1 << (LOW + HIGH)) - 1) << (8 * byte));
    _mm256_cvtepi32_ps(_mm256_and_si256(word, mask))
}

/// The value of four bits of each word, from a table.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn looked_up<const BIT: i32>(word: __m256i, table: &[__m256; 2]) -> __m256 {
    let word = _mm256_srli_epi32::<BIT>(word);
    let below = _mm256_permutevar8x32_ps(table[0], word);
    let above = _mm256_permutevar8x32_ps(table[1], word);
    _mm256_blendv_ps(below, above, _mm256_castsi256_ps(_mm256_slli_epi32::<28>(word)))
}

/// FP32 rounded to BF16, nearest and ties to even, and still in FP32. Nothing is as large as 2^111, or NaN.
///
/// Let x lie in [2^e, 2^(e + 1)) and u = 2^(e - 7), a unit of BF16. Then 2^16 x = m u where m is an integer, x's significand. The first
/// instruction rounds m u - x to a multiple of u, so t = (m - n) u, and the second gives n u, exactly. n is x / u rounded to the nearest; in a
/// tie the lower 16 bits of m are 0x8000, so m is even, and n is even because m - n is. If m u - x is below 2^(e + 16), which only x
/// from 2^e to 2^e (1 + 2^-15) makes it, it is rounded to half of u; 2 n is then the nearest integer to a number from 256 to 256.01:
/// n is 128, as it should be. A negative number is the mirror image, and zeros keep their sign: -0 - (-0) is 0, and -0 - 0 is -0.
///
/// # Safety
/// The processor has AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
#[inline]
pub fn rounded(x: __m256) -> __m256 {
    let shift = _mm256_set1_ps(65536.0);
    _mm256_fmsub_ps(x, shift, _mm256_fmsub_ps(x, shift, x))
}

/// The scales and minima of half a stripe: of rows 0 to 3 and 8 to 11, or of 4 to 7 and 12 to 15, each row twice.
struct Scales {
    scale: [__m256; 2],
    minimum: [__m256; 2],
}

impl Scales {
    /// The scales and minima of one of a unit's groups.
    ///
    /// # Safety
    /// `chunk` and `unit` point to a chunk and a unit of this shape.
    #[target_feature(enable = "avx2,fma,f16c")]
    #[inline]
    unsafe fn of(shape: &Shape, chunk: *const u8, unit: *const u8, stripe: usize, half: usize, group: usize) -> Self {
        let twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
        let mut levels = [[_mm256_setzero_ps(); 2]; 2];
        for (level, both) in levels.iter_mut().enumerate().take(if shape.format.minimum { 2 } else { 1 }) {
            for (i, numbers) in both.iter_mut().enumerate() {
                let row = (level * STRIPES + stripe) * STRIPE + 8 * i + 4 * half;
                // SAFETY: the caller's; places of the shape.
                unsafe {
                    let mut four = _mm_cvtph_ps(_mm_loadl_epi64(chunk.add(2 * row).cast()));
                    if shape.unit_head > 0 {
                        let row = row + (level * shape.groups + group - level) * STRIPES * STRIPE;
                        let bytes = _mm_cvtsi32_si128(unit.add(row).cast::<i32>().read_unaligned());
                        four = _mm_mul_ps(four, _mm_cvtepi32_ps(_mm_cvtepi8_epi32(bytes)));
                    }
                    *numbers = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(four), twice);
                }
            }
        }
        Self { scale: levels[0], minimum: levels[1] }
    }

    /// The scales for the numbers of [`code`], byte by byte: divided by the same power of two, so each product is scale times code.
    #[target_feature(enable = "avx2,fma")]
    #[inline]
    fn by_byte(&self) -> [[__m256; 2]; 4] {
        let of = |byte: i32| {
            let factor = _mm256_set1_ps(1.0 / (1u32 << (8 * byte)) as f32);
            [_mm256_mul_ps(self.scale[0], factor), _mm256_mul_ps(self.scale[1], factor)]
        };
        [self.scale, of(1), of(2), of(3)]
    }
}
