//! Register kernels of up to 6 rows by 64 columns with 512-bit vectors.

use std::arch::x86_64::*;

use super::{Dot, LANES};

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

/// Bytes between a read of the right operand and its prefetch, with few rows: enough to hide the latency of memory.
pub(super) const AHEAD: usize = 4096;

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
