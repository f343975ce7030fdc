//! Register kernels of up to 4 rows by 16 columns with 256-bit vectors. Two fused multiply-adds compute one BF16 pair; the
//! control register flushes denormals as the BF16 instruction does by itself.

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
    ($name:ident, $block:ident, $element:ty) => {
        #[target_feature(enable = "avx2,fma")]
        unsafe fn $name(dot: &Dot<$element>) {
            for j in (0..dot.columns).step_by(LANES) {
                let mut r = 0;
                // SAFETY: each block lies within the product; operands are the caller's.
                unsafe {
                    while r + 4 <= dot.rows {
                        $block::<4>(dot, r, j);
                        r += 4;
                    }
                    match dot.rows - r {
                        3 => $block::<3>(dot, r, j),
                        2 => $block::<2>(dot, r, j),
                        1 => $block::<1>(dot, r, j),
                        _ => {}
                    }
                }
            }
        }
    };
}

split!(split_bf16, block_bf16, u16);
split!(split_f32, block_f32, f32);

#[target_feature(enable = "avx2,fma")]
#[inline]
unsafe fn block_bf16<const R: usize>(dot: &Dot<u16>, r: usize, j: usize) {
    // SAFETY: rows r..r+R and columns j..j+16 are within the product, whose operands the caller vouches for.
    unsafe {
        let (a, b, c) = dot.part(r, j, 2);
        let mut acc = [[_mm256_setzero_ps(); 2]; R];
        if dot.accumulate {
            for (r, row) in acc.iter_mut().enumerate() {
                *row = std::array::from_fn(|g| _mm256_loadu_ps(c.add(r * dot.c_row + 8 * g)));
            }
        }
        let odd = _mm256_set1_epi32(0xffff_0000_u32 as i32);
        for step in 0..dot.steps {
            let column = b.add(step * dot.b_step);
            let words: [__m256i; 2] = std::array::from_fn(|g| _mm256_loadu_si256(column.add(16 * g).cast()));
            for (r, row) in acc.iter_mut().enumerate() {
                let pair = a.add(r * dot.a_row + 2 * step).cast::<u32>().read_unaligned();
                let high = _mm256_set1_ps(f32::from_bits(pair & 0xffff_0000));
                let low = _mm256_set1_ps(f32::from_bits(pair << 16));
                for (acc, word) in row.iter_mut().zip(words) {
                    let column_high = _mm256_castsi256_ps(_mm256_and_si256(word, odd));
                    let column_low = _mm256_castsi256_ps(_mm256_slli_epi32::<16>(word));
                    *acc = _mm256_fmadd_ps(low, column_low, _mm256_fmadd_ps(high, column_high, *acc));
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
