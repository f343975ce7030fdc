//! Register kernels without the BF16 instruction, with vectors of 256 or 512 bits. Two fused multiply-adds compute one BF16 pair; the
//! control register flushes denormals as the BF16 instruction does by itself.
//!
//! A sum waits four cycles for each of its multiply-adds, so a block has many vectors of sums. Sixteen registers hold eight: four
//! rows by 16 columns, two by 32, or one by 64, which also reads a panel from front to back. Thirty-two hold eight rows by 32
//! columns, or up to four by 64.

use std::arch::x86_64::*;

use super::vectors::Vector;
use super::{Dot, LANES};

/// The most rows of a block of 256 bits.
pub(super) const ROWS: usize = 4;
/// The most rows of a block of 512 bits.
const ROWS_OF_512: usize = 8;
/// Steps for which the left operand is widened at once. The same steps of a panel fit into the first-level cache.
const STEPS: usize = 64;

/// `N` steps of a left operand's row in FP32: the odd elements, then the even ones.
pub(super) type Wide<const N: usize> = [[f32; N]; 2];

/// Room for the widened rows of a block.
type Widened = [Wide<STEPS>; ROWS_OF_512];

/// # Safety
/// See [`super::DotFn`].
pub unsafe fn bf16_256(dot: &Dot<u16>) {
    #[target_feature(enable = "avx2,fma")]
    unsafe fn rows<const R: usize, const G: usize>(part: &Dot<u16>, r: usize, wide: &mut Widened) -> usize {
        // SAFETY: the caller's.
        unsafe { rows_bf16::<__m256i, R, G>(part, r, wide) }
    }
    // SAFETY: the caller vouches for the instruction set and the operands.
    unsafe {
        by_rows(dot, |part, r, wide| match part.rows - r {
            1 => rows::<1, 8>(part, r, wide),
            2 => rows::<2, 4>(part, r, wide),
            3 => rows::<3, 2>(part, r, wide),
            _ => rows::<ROWS, 2>(part, r, wide),
        })
    }
}

/// # Safety
/// See [`super::DotFn`].
pub unsafe fn bf16_512(dot: &Dot<u16>) {
    #[target_feature(enable = "avx512f")]
    unsafe fn rows<const R: usize, const G: usize>(part: &Dot<u16>, r: usize, wide: &mut Widened) -> usize {
        // SAFETY: the caller's.
        unsafe { rows_bf16::<__m512i, R, G>(part, r, wide) }
    }
    // SAFETY: the caller vouches for the instruction set and the operands.
    unsafe {
        by_rows(dot, |part, r, wide| match part.rows - r {
            1 => rows::<1, 4>(part, r, wide),
            2 => rows::<2, 4>(part, r, wide),
            3 => rows::<3, 4>(part, r, wide),
            4..ROWS_OF_512 => rows::<4, 4>(part, r, wide),
            _ => rows::<ROWS_OF_512, 2>(part, r, wide),
        })
    }
}

/// # Safety
/// See [`super::DotFn`].
pub unsafe fn f32(dot: &Dot<f32>) {
    // SAFETY: the caller vouches for the instruction set and the operands.
    unsafe { split_f32(dot) }
}

/// Cuts the product into parts of [`STEPS`] steps. `rows` multiplies some rows of a part, from one on, and says how many.
#[inline(always)]
unsafe fn by_rows(dot: &Dot<u16>, rows: impl Fn(&Dot<u16>, usize, &mut Widened) -> usize) {
    let mut wide: Widened = [[[0.0; STEPS]; 2]; ROWS_OF_512];
    for first in (0..dot.steps).step_by(STEPS) {
        let part = Dot {
            a: dot.a.wrapping_add(2 * first),
            b: dot.b.wrapping_add(first * dot.b_step),
            steps: STEPS.min(dot.steps - first),
            accumulate: dot.accumulate || first > 0,
            ..*dot
        };
        let mut r = 0;
        while r < dot.rows {
            r += rows(&part, r, &mut wide);
        }
    }
}

/// All columns of `R` rows, in blocks of `G` vectors, and at the end in blocks of [`LANES`].
#[inline(always)]
unsafe fn rows_bf16<V: Vector, const R: usize, const G: usize>(dot: &Dot<u16>, r: usize, wide: &mut Widened) -> usize {
    // SAFETY: the caller's.
    unsafe {
        for (i, wide) in wide.iter_mut().enumerate().take(R) {
            widen(dot.a.add((r + i) * dot.a_row), dot.steps, wide);
        }
        let mut j = 0;
        while j + G * V::WORDS <= dot.columns {
            block_bf16::<V, R, G>(dot, r, j, wide);
            j += G * V::WORDS;
        }
        while j < dot.columns {
            match LANES / V::WORDS {
                1 => block_bf16::<V, R, 1>(dot, r, j, wide),
                _ => block_bf16::<V, R, 2>(dot, r, j, wide),
            }
            j += LANES;
        }
    }
    R
}

/// Widens pairs of BF16.
///
/// # Safety
/// `pairs` pairs are readable at `from`, and `pairs` is at most `N`.
#[inline(always)]
pub(super) unsafe fn widen<const N: usize>(from: *const u16, pairs: usize, [odd, even]: &mut Wide<N>) {
    for (i, (odd, even)) in odd.iter_mut().zip(even).enumerate().take(pairs) {
        // SAFETY: the caller's.
        let pair = unsafe { from.add(2 * i).cast::<u32>().read_unaligned() };
        (*odd, *even) = (f32::from_bits(pair & 0xffff_0000), f32::from_bits(pair << 16));
    }
}

/// A row's two elements of a step, in every lane.
#[inline(always)]
unsafe fn at_step<V: Vector>([odd, even]: &Wide<STEPS>, step: usize) -> [V::Floats; 2] {
    // SAFETY: the caller's.
    unsafe { [V::splat_float(odd[step]), V::splat_float(even[step])] }
}

#[inline(always)]
unsafe fn block_bf16<V: Vector, const R: usize, const G: usize>(dot: &Dot<u16>, r: usize, j: usize, wide: &Widened) {
    // SAFETY: rows r..r+R and the columns of G vectors from j on are within the product, whose operands the caller vouches for.
    unsafe {
        let (_, b, c) = dot.part(r, j, 2);
        let zero = V::splat_float(0.0);
        let mut acc = [[zero; G]; R];
        if dot.accumulate {
            for (r, row) in acc.iter_mut().enumerate() {
                for (g, acc) in row.iter_mut().enumerate() {
                    *acc = V::load_floats(c.add(r * dot.c_row + V::WORDS * g));
                }
            }
        }
        for step in 0..dot.steps {
            let column = b.add(step * dot.b_step);
            if r == 0 {
                // Of the next part; other rows find it in the cache.
                for g in (0..G).step_by(LANES / V::WORDS) {
                    _mm_prefetch::<_MM_HINT_T0>(column.wrapping_add(STEPS * dot.b_step + 2 * V::WORDS * g).cast());
                }
            }
            // Of rows and vectors, the fewer are held in registers over the inner loop.
            if R < G {
                let mut left = [[zero; 2]; R];
                for (left, wide) in left.iter_mut().zip(wide) {
                    *left = at_step::<V>(wide, step);
                }
                for g in 0..G {
                    let [high, low] = V::pairs(column.add(2 * V::WORDS * g));
                    for (row, left) in acc.iter_mut().zip(left) {
                        row[g] = V::fma(left[1], low, V::fma(left[0], high, row[g]));
                    }
                }
            } else {
                let mut right = [[zero; 2]; G];
                for (g, right) in right.iter_mut().enumerate() {
                    *right = V::pairs(column.add(2 * V::WORDS * g));
                }
                for (row, wide) in acc.iter_mut().zip(wide) {
                    let left = at_step::<V>(wide, step);
                    for (acc, [high, low]) in row.iter_mut().zip(right) {
                        *acc = V::fma(left[1], low, V::fma(left[0], high, *acc));
                    }
                }
            }
        }
        for (r, row) in acc.iter().enumerate() {
            for (g, acc) in row.iter().enumerate() {
                V::store_floats(*acc, c.add(r * dot.c_row + V::WORDS * g));
            }
        }
    }
}

#[target_feature(enable = "avx2,fma")]
unsafe fn split_f32(dot: &Dot<f32>) {
    for j in (0..dot.columns).step_by(LANES) {
        let mut r = 0;
        // SAFETY: each block lies within the product; operands are the caller's.
        unsafe {
            while r + 4 <= dot.rows {
                block_f32::<4>(dot, r, j);
                r += 4;
            }
            match dot.rows - r {
                3 => block_f32::<3>(dot, r, j),
                2 => block_f32::<2>(dot, r, j),
                1 => block_f32::<1>(dot, r, j),
                _ => {}
            }
        }
    }
}

#[target_feature(enable = "avx2,fma")]
#[inline]
unsafe fn block_f32<const R: usize>(dot: &Dot<f32>, r: usize, j: usize) {
    // SAFETY: as in `block_bf16`.
    unsafe {
        let (a, b, c) = dot.part(r, j, 1);
        let mut acc = [[_mm256_setzero_ps(); 2]; R];
        if dot.accumulate {
            for (r, row) in acc.iter_mut().enumerate() {
                *row = std::array::from_fn(|g| _mm256_loadu_ps(c.add(r * dot.c_row + 8 * g)));
            }
        }
        for step in 0..dot.steps {
            let column = b.add(step * dot.b_step);
            let columns: [__m256; 2] = std::array::from_fn(|g| _mm256_loadu_ps(column.add(8 * g)));
            for (r, row) in acc.iter_mut().enumerate() {
                let value = _mm256_set1_ps(*a.add(r * dot.a_row + step));
                for (acc, column) in row.iter_mut().zip(columns) {
                    *acc = _mm256_fmadd_ps(value, column, *acc);
                }
            }
        }
        for (r, row) in acc.iter().enumerate() {
            for (g, acc) in row.iter().enumerate() {
                _mm256_storeu_ps(c.add(r * dot.c_row + 8 * g), *acc);
            }
        }
    }
}
