//! Register kernels of up to 4 rows by 16 columns with 128-bit vectors. Two fused multiply-adds compute one BF16 pair.
//!
//! AArch64 flushes a result that is below the smallest normal number before rounding; the definition flushes after rounding
//! (`vosti_tile::numerics`, `mode.rs`). The processor sets FPSR.UFC when it flushes a result. So a block is first computed
//! with plain instructions. If nothing was flushed, the result stands; otherwise the portable kernel computes the block
//! again. A block is never written before that is known.

use std::arch::aarch64::*;

use super::{Dot, LANES, Stored, by_units, portable};

/// Rows of a block.
const ROWS: usize = 4;
/// Vectors of a row of a block.
const VECTORS: usize = LANES / 4;

/// Results of a block, row by row.
type Block = [[float32x4_t; VECTORS]; ROWS];

/// # Safety
/// See [`super::DotFn`].
pub unsafe fn bf16(dot: &Dot<u16>) {
    // SAFETY: the caller's.
    unsafe { blocks(dot, 2, [rows_bf16::<1>, rows_bf16::<2>, rows_bf16::<3>, rows_bf16::<4>], portable::bf16) }
}

/// # Safety
/// See [`super::DotFn`].
pub unsafe fn f32(dot: &Dot<f32>) {
    // SAFETY: the caller's.
    unsafe { blocks(dot, 1, [rows_f32::<1>, rows_f32::<2>, rows_f32::<3>, rows_f32::<4>], portable::f32) }
}

/// # Safety
/// See [`super::StoredFn`].
pub unsafe fn stored(dot: &Dot<u16>, stored: &Stored) {
    // SAFETY: the caller's.
    unsafe { by_units(dot, stored, bf16, portable::expand) }
}

/// Computes a product of one block into `Block`, without writing to the product's `c`.
type RowsFn<T> = unsafe fn(&Dot<T>, &mut Block);

/// # Safety
/// As for [`super::DotFn`].
#[inline(always)]
unsafe fn blocks<T>(dot: &Dot<T>, pair: usize, rows: [RowsFn<T>; ROWS], definition: super::DotFn<T>) {
    // SAFETY: each block lies within the product, whose operands the caller vouches for.
    unsafe {
        for j in (0..dot.columns).step_by(LANES) {
            for r in (0..dot.rows).step_by(ROWS) {
                let (a, b, c) = dot.part(r, j, pair);
                let block = Dot { a, b, c, rows: ROWS.min(dot.rows - r), columns: LANES, ..*dot };
                let mut results = [[vdupq_n_f32(0.0); VECTORS]; ROWS];
                forget_flushes();
                rows[block.rows - 1](&block, &mut results);
                if flushed_before(&results) {
                    definition(&block);
                    continue;
                }
                for (r, row) in results[..block.rows].iter().enumerate() {
                    for (g, vector) in row.iter().enumerate() {
                        vst1q_f32(c.add(r * dot.c_row + 4 * g), *vector);
                    }
                }
            }
        }
    }
}

/// Clears the processor's exception flags. Operands are read after it, because the compiler assumes that it writes memory.
#[inline(always)]
pub(super) fn forget_flushes() {
    // SAFETY: the flags are read in this function's callers only.
    unsafe { std::arch::asm!("msr fpsr, xzr", options(nostack)) }
}

/// Whether a result was flushed since the flags were cleared. The results are in memory that the compiler assumes to be read
/// here, so that all of them are computed before.
#[inline(always)]
pub(super) fn flushed_before<T>(results: &T) -> bool {
    const UFC: u64 = 1 << 3;
    let flags: u64;
    // SAFETY: reads a register.
    unsafe { std::arch::asm!("mrs {}, fpsr", "/* {} */", out(reg) flags, in(reg) results, options(nostack)) }
    flags & UFC != 0
}

/// The accumulators from which R rows of a block start.
///
/// # Safety
/// As for [`super::DotFn`].
#[inline(always)]
unsafe fn start<const R: usize, T>(dot: &Dot<T>) -> [[float32x4_t; VECTORS]; R] {
    // SAFETY: the caller's.
    unsafe {
        let mut acc = [[vdupq_n_f32(0.0); VECTORS]; R];
        if dot.accumulate {
            for (r, row) in acc.iter_mut().enumerate() {
                for (g, vector) in row.iter_mut().enumerate() {
                    *vector = vld1q_f32(dot.c.add(r * dot.c_row + 4 * g));
                }
            }
        }
        acc
    }
}

/// # Safety
/// As for [`super::DotFn`]; the product has R rows and 16 columns.
#[inline(never)]
unsafe fn rows_bf16<const R: usize>(dot: &Dot<u16>, results: &mut Block) {
    // SAFETY: the caller's.
    unsafe {
        let mut acc = start::<R, u16>(dot);
        let odd = vdupq_n_u32(0xffff_0000);
        for step in 0..dot.steps {
            let column = dot.b.add(step * dot.b_step).cast::<u32>();
            let mut words = [odd; VECTORS];
            for (g, word) in words.iter_mut().enumerate() {
                *word = vreinterpretq_u32_u8(vld1q_u8(column.add(4 * g).cast()));
            }
            for (r, row) in acc.iter_mut().enumerate() {
                let pair = dot.a.add(r * dot.a_row + 2 * step).cast::<u32>().read_unaligned();
                let high = vdupq_n_f32(f32::from_bits(pair & 0xffff_0000));
                let low = vdupq_n_f32(f32::from_bits(pair << 16));
                for (acc, word) in row.iter_mut().zip(words) {
                    let column_high = vreinterpretq_f32_u32(vandq_u32(word, odd));
                    let column_low = vreinterpretq_f32_u32(vshlq_n_u32::<16>(word));
                    *acc = vfmaq_f32(vfmaq_f32(*acc, high, column_high), low, column_low);
                }
            }
        }
        results[..R].copy_from_slice(&acc);
    }
}

/// # Safety
/// As for [`rows_bf16`].
#[inline(never)]
unsafe fn rows_f32<const R: usize>(dot: &Dot<f32>, results: &mut Block) {
    // SAFETY: the caller's.
    unsafe {
        let mut acc = start::<R, f32>(dot);
        for step in 0..dot.steps {
            let column = dot.b.add(step * dot.b_step);
            let mut columns = [vdupq_n_f32(0.0); VECTORS];
            for (g, vector) in columns.iter_mut().enumerate() {
                *vector = vld1q_f32(column.add(4 * g));
            }
            for (r, row) in acc.iter_mut().enumerate() {
                let value = *dot.a.add(r * dot.a_row + step);
                for (acc, column) in row.iter_mut().zip(columns) {
                    *acc = vfmaq_n_f32(*acc, column, value);
                }
            }
        }
        results[..R].copy_from_slice(&acc);
    }
}
