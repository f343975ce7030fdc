//! Register kernels with 256-bit vectors. Two fused multiply-adds compute one BF16 pair; the control register flushes denormals
//! as the BF16 instruction does by itself.
//!
//! A sum waits four cycles for each of its multiply-adds, so a block has eight vectors of sums: four rows by 16 columns, two by
//! 32, or one by 64, which also reads a panel from front to back.

use std::arch::x86_64::*;

use super::{Dot, LANES};

/// Elements of a vector.
const WIDTH: usize = 8;
/// The most rows of a block.
pub(super) const ROWS: usize = 4;
/// Steps for which the left operand is widened at once. The same steps of a panel fit into the first-level cache.
const STEPS: usize = 64;

/// `N` steps of a left operand's row in FP32: the odd elements, then the even ones.
pub(super) type Wide<const N: usize> = [[f32; N]; 2];

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

#[target_feature(enable = "avx2,fma")]
unsafe fn split_bf16(dot: &Dot<u16>) {
    let mut wide: [Wide<STEPS>; ROWS] = [[[0.0; STEPS]; 2]; ROWS];
    for first in (0..dot.steps).step_by(STEPS) {
        // SAFETY: steps, and below rows and columns, lie within the product; operands are the caller's.
        unsafe {
            let part = Dot {
                a: dot.a.add(2 * first),
                b: dot.b.add(first * dot.b_step),
                steps: STEPS.min(dot.steps - first),
                accumulate: dot.accumulate || first > 0,
                ..*dot
            };
            for r in (0..dot.rows).step_by(ROWS) {
                match dot.rows - r {
                    1 => rows_bf16::<1, 8>(&part, r, &mut wide),
                    2 => rows_bf16::<2, 4>(&part, r, &mut wide),
                    3 => rows_bf16::<3, 2>(&part, r, &mut wide),
                    _ => rows_bf16::<4, 2>(&part, r, &mut wide),
                }
            }
        }
    }
}

/// All columns of `R` rows, in blocks of `G` vectors, and at the end in blocks of two.
#[target_feature(enable = "avx2,fma")]
unsafe fn rows_bf16<const R: usize, const G: usize>(dot: &Dot<u16>, r: usize, wide: &mut [Wide<STEPS>; ROWS]) {
    // SAFETY: the caller's.
    unsafe {
        for (i, wide) in wide.iter_mut().enumerate().take(R) {
            widen(dot.a.add((r + i) * dot.a_row), dot.steps, wide);
        }
        let mut j = 0;
        while j + G * WIDTH <= dot.columns {
            block_bf16::<R, G>(dot, r, j, wide);
            j += G * WIDTH;
        }
        while j < dot.columns {
            block_bf16::<R, 2>(dot, r, j, wide);
            j += LANES;
        }
    }
}

/// Widens pairs of BF16.
///
/// # Safety
/// `pairs` pairs are readable at `from`, and `pairs` is at most `N`.
#[target_feature(enable = "avx2,fma")]
#[inline]
pub(super) unsafe fn widen<const N: usize>(from: *const u16, pairs: usize, [odd, even]: &mut Wide<N>) {
    for (i, (odd, even)) in odd.iter_mut().zip(even).enumerate().take(pairs) {
        // SAFETY: the caller's.
        let pair = unsafe { from.add(2 * i).cast::<u32>().read_unaligned() };
        (*odd, *even) = (f32::from_bits(pair & 0xffff_0000), f32::from_bits(pair << 16));
    }
}

/// A row's two elements of a step, in every lane.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn at_step([odd, even]: &Wide<STEPS>, step: usize) -> [__m256; 2] {
    [_mm256_broadcast_ss(&odd[step]), _mm256_broadcast_ss(&even[step])]
}

/// The odd and the even elements of eight columns.
///
/// # Safety
/// Sixteen elements are readable at `at`.
#[target_feature(enable = "avx2,fma")]
#[inline]
unsafe fn pairs(at: *const u16) -> [__m256; 2] {
    // SAFETY: the caller's.
    let words = unsafe { _mm256_loadu_si256(at.cast()) };
    let odd = _mm256_and_si256(words, _mm256_set1_epi32(0xffff_0000_u32 as i32));
    [_mm256_castsi256_ps(odd), _mm256_castsi256_ps(_mm256_slli_epi32::<16>(words))]
}

#[target_feature(enable = "avx2,fma")]
#[inline]
unsafe fn block_bf16<const R: usize, const G: usize>(dot: &Dot<u16>, r: usize, j: usize, wide: &[Wide<STEPS>; ROWS]) {
    // SAFETY: rows r..r+R and columns j..j+8G are within the product, whose operands the caller vouches for.
    unsafe {
        let (_, b, c) = dot.part(r, j, 2);
        let mut acc = [[_mm256_setzero_ps(); G]; R];
        if dot.accumulate {
            for (r, row) in acc.iter_mut().enumerate() {
                for (g, acc) in row.iter_mut().enumerate() {
                    *acc = _mm256_loadu_ps(c.add(r * dot.c_row + WIDTH * g));
                }
            }
        }
        for step in 0..dot.steps {
            let column = b.add(step * dot.b_step);
            if r == 0 {
                // Of the next part; other rows find it in the cache.
                for g in (0..G).step_by(2) {
                    _mm_prefetch::<_MM_HINT_T0>(column.wrapping_add(STEPS * dot.b_step + 2 * WIDTH * g).cast());
                }
            }
            // Eight of sixteen registers are sums. Of rows and vectors, the fewer are held in registers over the inner loop.
            if R < G {
                let mut left = [[_mm256_setzero_ps(); 2]; R];
                for (left, wide) in left.iter_mut().zip(wide) {
                    *left = at_step(wide, step);
                }
                for g in 0..G {
                    let [high, low] = pairs(column.add(2 * WIDTH * g));
                    for (row, left) in acc.iter_mut().zip(left) {
                        row[g] = _mm256_fmadd_ps(left[1], low, _mm256_fmadd_ps(left[0], high, row[g]));
                    }
                }
            } else {
                let mut right = [[_mm256_setzero_ps(); 2]; G];
                for (g, right) in right.iter_mut().enumerate() {
                    *right = pairs(column.add(2 * WIDTH * g));
                }
                for (row, wide) in acc.iter_mut().zip(wide) {
                    let left = at_step(wide, step);
                    for (acc, [high, low]) in row.iter_mut().zip(right) {
                        *acc = _mm256_fmadd_ps(left[1], low, _mm256_fmadd_ps(left[0], high, *acc));
                    }
                }
            }
        }
        for (r, row) in acc.iter().enumerate() {
            for (g, acc) in row.iter().enumerate() {
                _mm256_storeu_ps(c.add(r * dot.c_row + WIDTH * g), *acc);
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
