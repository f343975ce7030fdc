//! Dots with panels that are kept in another form: a unit at a time is expanded by 256-bit vectors into the nearest cache, and
//! read from there.
//!
//! Read next: [`crate::storage`].

use std::arch::x86_64::*;

use super::{Dot, Stored, avx2, by_units, portable};
use crate::storage::blocks::{PAIRS, REGISTER, STRIPE, STRIPES, Shape};
use crate::storage::{Form, Panel};
use vosti_kernels::Values;

/// # Safety
/// See [`super::StoredFn`].
pub unsafe fn dot(dot: &Dot<u16>, stored: &Stored) {
    // SAFETY: the caller's.
    unsafe { by_units(dot, stored, avx2::bf16, expand) }
}

/// # Safety
/// See [`super::ExpandFn`]; the instruction set is present.
unsafe fn expand(panel: &Panel, first: usize, steps: usize, out: *mut u16) {
    // SAFETY: the caller's.
    unsafe {
        match panel.form {
            Form::Blocks(format) if steps == PAIRS => {
                let shape = &Shape::of(format);
                let table = matches!(format.values, Values::Table(_));
                match (shape.low, shape.high) {
                    (2, 0) => unit::<2, 0, false>(panel.at, shape, first / PAIRS, out),
                    (2, _) => unit::<2, 1, false>(panel.at, shape, first / PAIRS, out),
                    (4, 0) if table => unit::<4, 0, true>(panel.at, shape, first / PAIRS, out),
                    (4, 0) => unit::<4, 0, false>(panel.at, shape, first / PAIRS, out),
                    (4, 1) => unit::<4, 1, false>(panel.at, shape, first / PAIRS, out),
                    (4, _) => unit::<4, 2, false>(panel.at, shape, first / PAIRS, out),
                    _ => unit::<8, 0, false>(panel.at, shape, first / PAIRS, out),
                }
            }
            _ => portable::expand(panel, first, steps, out),
        }
    }
}

/// Expands a unit, half a stripe's registers at a time: rows 0 to 3 and 8 to 11, then the others.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn unit<const LOW: i32, const HIGH: i32, const TABLE: bool>(
    panel: *const u8,
    shape: &Shape,
    unit: usize,
    out: *mut u16,
) {
    // SAFETY: places of the shape, and as much room as a unit's elements take.
    unsafe {
        let (chunk, place) = shape.places(unit);
        let (chunk, place) = (panel.add(chunk), panel.add(place));
        let table = shape.table();
        let table = [_mm256_loadu_ps(table.as_ptr()), _mm256_loadu_ps(table.as_ptr().add(8))];
        let excess = [0, 1, 2].map(|byte| _mm256_set1_ps((1 << (23 - 8 * byte)) as f32 - shape.first()));
        for stripe in 0..STRIPES {
            let codes = place.add(shape.unit_head + stripe * shape.stripe);
            for half in 0..2 {
                // Bytes of the half in a register.
                let at = half * 32;
                let load = |register: usize| _mm256_loadu_si256(codes.add(register * REGISTER + at).cast());
                let mut scales = [_mm256_setzero_ps(); 2];
                let mut minima = scales;
                let mut low = _mm256_setzero_si256();
                let mut high = low;
                for four in 0..PAIRS / 4 {
                    if four % (shape.format.group / 8) == 0 {
                        let group = four * 8 / shape.format.group;
                        (scales, minima) = self::scales(shape, chunk, place, stripe, half, group);
                    }
                    if LOW < 8 && four % (4 / LOW.min(4) as usize) == 0 {
                        low = load(four / (4 / LOW.min(4) as usize));
                    }
                    if HIGH > 0 && four % (4 / HIGH.max(1) as usize) == 0 {
                        high = load(LOW as usize + four / (4 / HIGH.max(1) as usize));
                    }
                    let mut words = [low; 2];
                    if LOW == 8 {
                        words = [load(2 * four), load(2 * four + 1)];
                    } else {
                        words = words.map(|_| next::<LOW, HIGH>(&mut low, &mut high));
                    }
                    for i in 0..4 {
                        let values: [__m256; 2] = if TABLE {
                            let [x, y] = words.map(|word| looked_up(word, table));
                            words = words.map(|word| _mm256_srli_epi32::<8>(word));
                            [x, y]
                        } else if LOW == 8 {
                            let word = if i % 2 == 0 { words[i / 2] } else { _mm256_srli_epi32::<16>(words[i / 2]) };
                            [0, 1].map(|byte| value::<LOW, HIGH>(word, byte, excess))
                        } else {
                            words.map(|word| value::<LOW, HIGH>(word, i, excess))
                        };
                        let elements =
                            [0, 1].map(|half| rounded(_mm256_fmsub_ps(values[half], scales[half], minima[half])));
                        // Of each half of the register, four words of the first, and of the second.
                        let packed = _mm256_packus_epi32(elements[0], elements[1]);
                        let packed = _mm256_permute4x64_epi64::<0b11_01_10_00>(packed);
                        let to = out.add((4 * four + i) * 128 + stripe * 32 + half * 8);
                        _mm_storeu_si128(to.cast(), _mm256_castsi256_si128(packed));
                        _mm_storeu_si128(to.add(16).cast(), _mm256_extracti128_si256::<1>(packed));
                    }
                }
            }
        }
    }
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

/// What the code in a byte of each word stands for: the mantissa of a float, less what that has besides.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn value<const LOW: i32, const HIGH: i32>(word: __m256i, byte: usize, excess: [__m256; 3]) -> __m256 {
    let (word, byte) = if byte == 3 { (_mm256_srli_epi32::<8>(word), 2) } else { (word, byte) };
    let mask = _mm256_set1_epi32(((1 << (LOW + HIGH)) - 1) << (8 * byte));
    let exponent = _mm256_set1_epi32((127 + 23 - 8 * byte as i32) << 23);
    let float = _mm256_or_si256(_mm256_and_si256(word, mask), exponent);
    _mm256_sub_ps(_mm256_castsi256_ps(float), excess[byte])
}

/// What the lowest four bits of each word stand for.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn looked_up(word: __m256i, table: [__m256; 2]) -> __m256 {
    let [below, above] = table.map(|table| _mm256_permutevar8x32_ps(table, word));
    _mm256_blendv_ps(below, above, _mm256_castsi256_ps(_mm256_slli_epi32::<28>(word)))
}

/// FP32 rounded to BF16, nearest and ties to even, in the lower halves of lanes. Nothing is NaN.
#[target_feature(enable = "avx2")]
#[inline]
fn rounded(x: __m256) -> __m256i {
    let bits = _mm256_castps_si256(x);
    let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
    let up = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    _mm256_srli_epi32::<16>(_mm256_add_epi32(bits, up))
}

/// What half a stripe's values are multiplied by, and what is subtracted: rows 0 to 3 and 8 to 11, or the four after each,
/// each row twice.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
unsafe fn scales(
    shape: &Shape,
    chunk: *const u8,
    unit: *const u8,
    stripe: usize,
    half: usize,
    group: usize,
) -> ([__m256; 2], [__m256; 2]) {
    let twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    // SAFETY: places of the shape.
    unsafe {
        let all = |level: usize| {
            let rows = [0, 8].map(|first| (level * STRIPES + stripe) * STRIPE + first + 4 * half);
            rows.map(|row| {
                let whole = _mm_cvtph_ps(_mm_loadl_epi64(chunk.add(2 * row).cast()));
                let four = if shape.unit_head == 0 {
                    whole
                } else {
                    let row = row + (level * shape.groups + group - level) * STRIPES * STRIPE;
                    let bytes = _mm_cvtsi32_si128(unit.add(row).cast::<i32>().read_unaligned());
                    _mm_mul_ps(whole, _mm_cvtepi32_ps(_mm_cvtepi8_epi32(bytes)))
                };
                _mm256_permutevar8x32_ps(_mm256_castps128_ps256(four), twice)
            })
        };
        let minima = if shape.format.minimum { all(1) } else { [_mm256_setzero_ps(); 2] };
        (all(0), minima)
    }
}
