//! Register kernels of up to 6 rows by 64 columns with 512-bit vectors.

use std::arch::x86_64::*;

use super::{Dot, LANES};
use crate::coded;

/// # Safety
/// See [`super::DotFn`].
pub unsafe fn bf16(dot: &Dot<u16>) {
    // SAFETY: the caller vouches for the instruction set and the operands.
    unsafe { split_bf16(dot) }
}

/// # Safety
/// See [`super::DotFn`].
pub unsafe fn f32(dot: &Dot<f32>) {
    // SAFETY: as above.
    unsafe { split_f32(dot) }
}

macro_rules! split {
    ($name:ident, $block:ident, $element:ty, $features:literal) => {
        /// Cuts the product into blocks that fit the registers: 64 columns, then 6 rows.
        #[target_feature(enable = $features)]
        unsafe fn $name(dot: &Dot<$element>) {
            let mut j = 0;
            while j < dot.columns {
                let groups = ((dot.columns - j) / LANES).min(4);
                // SAFETY: j + 16 * groups <= columns; operands are the caller's.
                unsafe {
                    match groups {
                        4 => split!(@rows $block, dot, j, 4),
                        3 => split!(@rows $block, dot, j, 3),
                        2 => split!(@rows $block, dot, j, 2),
                        _ => split!(@rows $block, dot, j, 1),
                    }
                }
                j += groups.max(1) * LANES;
            }
        }
    };
    (@rows $block:ident, $dot:ident, $j:ident, $groups:literal) => {{
        let mut r = 0;
        while r + 6 <= $dot.rows {
            $block::<6, $groups>($dot, r, $j);
            r += 6;
        }
        match $dot.rows - r {
            5 => $block::<5, $groups>($dot, r, $j),
            4 => $block::<4, $groups>($dot, r, $j),
            3 => $block::<3, $groups>($dot, r, $j),
            2 => $block::<2, $groups>($dot, r, $j),
            1 => $block::<1, $groups>($dot, r, $j),
            _ => {}
        }
    }};
}

split!(split_bf16, block_bf16, u16, "avx512f,avx512bw,avx512vl,avx512bf16");
split!(split_f32, block_f32, f32, "avx512f");

/// How far ahead of a few rows' reads the operand is fetched: enough to hide memory, bytes.
const AHEAD: usize = 4096;

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
#[inline]
unsafe fn block_bf16<const R: usize, const G: usize>(dot: &Dot<u16>, r: usize, j: usize) {
    // SAFETY: rows r..r+R and columns j..j+16G are within the product, whose operands the caller vouches for;
    // prefetches may point anywhere.
    unsafe {
        let (a, b, c) = dot.part(r, j, 2);
        let mut acc = [[_mm512_setzero_ps(); G]; R];
        if dot.accumulate {
            for (r, row) in acc.iter_mut().enumerate() {
                for (g, acc) in row.iter_mut().enumerate() {
                    *acc = _mm512_loadu_ps(c.add(r * dot.c_row + LANES * g));
                }
            }
        }
        for step in 0..dot.steps {
            let column = b.add(step * dot.b_step);
            let columns: [__m512bh; G] =
                std::array::from_fn(|g| std::mem::transmute(_mm512_loadu_si512(column.add(32 * g).cast())));
            if R <= 2 {
                for g in 0..G {
                    _mm_prefetch::<_MM_HINT_T0>(column.wrapping_byte_add(AHEAD).wrapping_add(32 * g).cast());
                }
            }
            for (r, row) in acc.iter_mut().enumerate() {
                let pair = a.add(r * dot.a_row + 2 * step).cast::<i32>().read_unaligned();
                let pair: __m512bh = std::mem::transmute(_mm512_set1_epi32(pair));
                for (acc, column) in row.iter_mut().zip(columns) {
                    *acc = _mm512_dpbf16_ps(*acc, pair, column);
                }
            }
        }
        for (r, row) in acc.iter().enumerate() {
            for (g, acc) in row.iter().enumerate() {
                _mm512_storeu_ps(c.add(r * dot.c_row + LANES * g), *acc);
            }
        }
    }
}

#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn block_f32<const R: usize, const G: usize>(dot: &Dot<f32>, r: usize, j: usize) {
    // SAFETY: as in `block_bf16`.
    unsafe {
        let (a, b, c) = dot.part(r, j, 1);
        let mut acc = [[_mm512_setzero_ps(); G]; R];
        if dot.accumulate {
            for (r, row) in acc.iter_mut().enumerate() {
                for (g, acc) in row.iter_mut().enumerate() {
                    *acc = _mm512_loadu_ps(c.add(r * dot.c_row + LANES * g));
                }
            }
        }
        for step in 0..dot.steps {
            let column = b.add(step * dot.b_step);
            let columns: [__m512; G] = std::array::from_fn(|g| _mm512_loadu_ps(column.add(LANES * g)));
            for (r, row) in acc.iter_mut().enumerate() {
                let value = _mm512_set1_ps(*a.add(r * dot.a_row + step));
                for (acc, column) in row.iter_mut().zip(columns) {
                    *acc = _mm512_fmadd_ps(value, column, *acc);
                }
            }
        }
        for (r, row) in acc.iter().enumerate() {
            for (g, acc) in row.iter().enumerate() {
                _mm512_storeu_ps(c.add(r * dot.c_row + LANES * g), *acc);
            }
        }
    }
}

/// What decoding a panel takes.
struct Decoder {
    /// The panel's exponents, in each quarter.
    table: __m512i,
    four_bits: __m512i,
    sign: __m512i,
}

impl Decoder {
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    #[inline]
    unsafe fn new(table: *const u8) -> Self {
        // SAFETY: the caller's table.
        let table = unsafe { _mm512_broadcast_i32x4(_mm_loadu_si128(table.cast())) };
        Self { table, four_bits: _mm512_set1_epi8(15), sign: _mm512_set1_epi8(-128) }
    }

    /// A step's four registers.
    ///
    /// # Safety
    /// The step is readable.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    #[inline]
    unsafe fn step(&self, step: *const u8) -> [__m512i; 4] {
        // SAFETY: every part lies within the step.
        unsafe {
            let fours = _mm512_loadu_si512(step.add(coded::FOURS).cast());
            let signs = step.add(coded::SIGNS).cast::<u64>();
            let [a, b] = self.two(step, fours, signs.read_unaligned());
            let [c, d] = self.two(step.add(64), _mm512_srli_epi16::<4>(fours), signs.add(1).read_unaligned());
            [a, b, c, d]
        }
    }

    /// Two registers of their lower bytes, of bytes whose lowest four bits are codes, and signs.
    ///
    /// # Safety
    /// The lower bytes are readable.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    #[inline]
    unsafe fn two(&self, lower: *const u8, codes: __m512i, signs: u64) -> [__m512i; 2] {
        // SAFETY: the caller's.
        let lower = unsafe { _mm512_loadu_si512(lower.cast()) };
        let upper = _mm512_shuffle_epi8(self.table, _mm512_and_si512(codes, self.four_bits));
        let upper = _mm512_mask_add_epi8(upper, signs, upper, self.sign);
        [_mm512_unpacklo_epi8(lower, upper), _mm512_unpackhi_epi8(lower, upper)]
    }
}

/// As [`bf16`], of a panel in code.
///
/// # Safety
/// See [`super::CodedFns`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
pub unsafe fn coded_bf16(dot: &Dot<u16>, table: *const u8) {
    let mut r = 0;
    while r < dot.rows {
        // As even as can be: eight rows are four and four.
        let left = dot.rows - r;
        let rows = left.div_ceil(left.div_ceil(6));
        // SAFETY: the caller's; the rows are within the product.
        unsafe {
            match rows {
                1 => coded_block::<1>(dot, r, table),
                2 => coded_block::<2>(dot, r, table),
                3 => coded_block::<3>(dot, r, table),
                4 => coded_block::<4>(dot, r, table),
                5 => coded_block::<5>(dot, r, table),
                _ => coded_block::<6>(dot, r, table),
            }
        }
        r += rows;
    }
}

/// `R` rows by a panel, or as many of its registers as there are columns for.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
#[inline]
unsafe fn coded_block<const R: usize>(dot: &Dot<u16>, r: usize, table: *const u8) {
    // SAFETY: rows r..r+R are within the product, and so are the registers below `there`.
    unsafe {
        let decoder = Decoder::new(table);
        let (a, b, c) = dot.part(r, 0, 2);
        let there = (dot.columns / LANES).min(4);
        let mut acc = [[_mm512_setzero_ps(); 4]; R];
        if dot.accumulate {
            for (r, row) in acc.iter_mut().enumerate() {
                for (g, acc) in row.iter_mut().enumerate().take(there) {
                    *acc = _mm512_loadu_ps(c.add(r * dot.c_row + LANES * g));
                }
            }
        }
        for step in 0..dot.steps {
            let at = b.cast::<u8>().add(step * coded::STEP);
            if r == 0 {
                for line in 0..coded::STEP.div_ceil(64) {
                    _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(AHEAD + 64 * line).cast());
                }
            }
            let columns = decoder.step(at);
            for (r, row) in acc.iter_mut().enumerate() {
                let pair = a.add(r * dot.a_row + 2 * step).cast::<i32>().read_unaligned();
                let pair: __m512bh = std::mem::transmute(_mm512_set1_epi32(pair));
                for (acc, column) in row.iter_mut().zip(columns) {
                    *acc = _mm512_dpbf16_ps(*acc, pair, std::mem::transmute::<__m512i, __m512bh>(column));
                }
            }
        }
        for (r, row) in acc.iter().enumerate() {
            for (g, acc) in row.iter().enumerate().take(there) {
                _mm512_storeu_ps(c.add(r * dot.c_row + LANES * g), *acc);
            }
        }
    }
}

/// Decodes steps of a panel into the order of `RowPanels`.
///
/// # Safety
/// See [`super::CodedFns`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub unsafe fn expand(steps: *const u8, table: *const u8, count: usize, out: *mut u16) {
    // SAFETY: the caller's.
    unsafe {
        let decoder = Decoder::new(table);
        for step in 0..count {
            let at = steps.add(step * coded::STEP);
            for (g, register) in decoder.step(at).into_iter().enumerate() {
                _mm512_storeu_si512(out.add(128 * step + 32 * g).cast(), register);
            }
        }
    }
}

/// Codes a panel that is in the order of `RowPanels`; false if it has too many exponents, and then nothing is written.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub fn encode(panel: &[u16], out: &mut [u8]) -> bool {
    assert!(panel.len().is_multiple_of(128) && out.len() >= coded::TABLE + panel.len() / 128 * coded::STEP);
    let (exponent, one) = (_mm512_set1_epi8(0x7f), _mm512_set1_epi8(1));
    // Zero becomes the largest.
    let (mut most, mut least) = (_mm512_setzero_si512(), _mm512_set1_epi8(-1));
    for elements in panel.chunks_exact(64) {
        // SAFETY: two registers of words.
        let upper = unsafe { packed(elements.as_ptr()) }[1];
        let upper = _mm512_and_si512(upper, exponent);
        most = _mm512_max_epu8(most, upper);
        least = _mm512_min_epu8(least, _mm512_sub_epi8(upper, one));
    }
    let bytes = |register: __m512i| {
        let mut bytes = [0u8; 64];
        // SAFETY: as many bytes.
        unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), register) };
        bytes
    };
    let most = bytes(most).into_iter().max().unwrap_or(0);
    let least = bytes(least).into_iter().min().unwrap_or(0).wrapping_add(1);
    let Some(below) = coded::below(most, least) else { return false };
    coded::write_table(below, out);
    let below = _mm512_set1_epi8(below as i8);
    for (elements, step) in panel.chunks_exact(128).zip(out[coded::TABLE..].chunks_exact_mut(coded::STEP)) {
        // SAFETY: four registers of words; every part lies within the step.
        unsafe {
            let pairs = [packed(elements.as_ptr()), packed(elements.as_ptr().add(64))];
            let codes = pairs.map(|[_, upper]| _mm512_subs_epu8(_mm512_and_si512(upper, exponent), below));
            let fours = _mm512_or_si512(codes[0], _mm512_slli_epi16::<4>(codes[1]));
            let step = step.as_mut_ptr();
            _mm512_storeu_si512(step.add(coded::FOURS).cast(), fours);
            for (i, [lower, upper]) in pairs.into_iter().enumerate() {
                _mm512_storeu_si512(step.add(64 * i).cast(), lower);
                step.add(coded::SIGNS).cast::<u64>().add(i).write_unaligned(_mm512_movepi8_mask(upper));
            }
        }
    }
    true
}

/// Two registers of words as one of their lower and one of their upper bytes: what [`Decoder::two`] interleaves.
///
/// # Safety
/// 64 words are readable.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
unsafe fn packed(words: *const u16) -> [__m512i; 2] {
    // SAFETY: the caller's.
    let (a, b) = unsafe { (_mm512_loadu_si512(words.cast()), _mm512_loadu_si512(words.add(32).cast())) };
    let low = _mm512_set1_epi16(0xff);
    let lower = _mm512_packus_epi16(_mm512_and_si512(a, low), _mm512_and_si512(b, low));
    [lower, _mm512_packus_epi16(_mm512_srli_epi16::<8>(a), _mm512_srli_epi16::<8>(b))]
}
