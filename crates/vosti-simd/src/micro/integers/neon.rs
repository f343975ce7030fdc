//! The product with 128-bit vectors: `sdot` on bytes if the processor has it, otherwise products of 16 bits.
//!
//! The codes of a block are written as signed bytes first, and up to 16 rows read them. As in `micro::neon`, a result that the
//! processor flushed before rounding shows in FPSR; the portable code then computes these rows again, and nothing is written before
//! that is known.
//! Read next: `portable`.

#![allow(unsafe_op_in_unsafe_fn, clippy::missing_safety_doc)]

use std::arch::aarch64::*;
use std::arch::asm;

use vosti_kernels::Values;

use super::{IntDot, portable};
use crate::layout::PANEL;
use crate::micro::neon::{flushed_before, forget_flushes};
use crate::storage::blocks::{REGISTER, STRIPE, Shape, UNIT};
use crate::storage::integers::{QUAD, QUADS, offset, place, value};

/// Rows for which a block's codes are written once.
const ROWS: usize = 16;
/// Rows that are multiplied together.
const TOGETHER: usize = 4;
/// Columns of a vector.
const WORDS: usize = 4;
/// Vectors of columns that are multiplied together.
const VECTORS: usize = 4;

/// # Safety
/// See [`super::IntDotFn`].
pub unsafe fn plain(dot: &IntDot) {
    product::<Shorts>(dot)
}

/// # Safety
/// See [`super::IntDotFn`].
pub unsafe fn dot_product(dot: &IntDot) {
    #[target_feature(enable = "dotprod")]
    unsafe fn run(dot: &IntDot) {
        product::<Bytes>(dot)
    }
    run(dot)
}

/// A block of a panel: signed bytes by vector of columns and quad, and the scales and minima of its halves.
#[repr(align(64))]
struct Block {
    codes: [[[i8; WORDS * QUAD]; QUADS]; PANEL / WORDS],
    scales: [[f32; PANEL]; 2],
    minima: [[f32; PANEL]; 2],
}

/// A row's activations of a block: its two planes, and both as 16 bits.
#[derive(Clone, Copy)]
struct Row {
    hi: [i8; UNIT],
    lo: [i8; UNIT],
    q: [i16; UNIT],
    sx: f32,
    sums: [f32; 2],
}

/// Sums of `R` rows by [`VECTORS`] vectors of columns.
type Sums<const R: usize> = [[int32x4_t; VECTORS]; R];

/// How codes are multiplied by activations.
trait Way {
    /// Sums over some quads, from the vector `v` on.
    unsafe fn sums<const R: usize>(block: &Block, rows: &[Row; R], v: usize, quads: [usize; 2], wide: bool) -> Sums<R>;
}

/// Bytes by bytes.
struct Bytes;

impl Way for Bytes {
    #[inline(always)]
    unsafe fn sums<const R: usize>(
        block: &Block,
        rows: &[Row; R],
        v: usize,
        [first, end]: [usize; 2],
        wide: bool,
    ) -> Sums<R> {
        let mut sums = [[vdupq_n_s32(0); VECTORS]; R];
        for plane in 0..1 + usize::from(wide) {
            if plane > 0 {
                // So far these are sums over the high bytes.
                for sum in sums.iter_mut().flatten() {
                    *sum = vshlq_n_s32::<8>(*sum);
                }
            }
            for quad in first..end {
                for (sums, row) in sums.iter_mut().zip(rows) {
                    let plane = if plane == 0 { row.hi.as_ptr() } else { row.lo.as_ptr() };
                    let x = plane.cast::<i32>().add(quad).read_unaligned();
                    let x = vreinterpretq_s8_s32(vdupq_n_s32(x));
                    for (sum, codes) in sums.iter_mut().zip(&block.codes[v..v + VECTORS]) {
                        let codes = vld1q_s8(codes[quad].as_ptr());
                        asm!("sdot {0:v}.4s, {1:v}.16b, {2:v}.16b", inout(vreg) *sum, in(vreg) codes, in(vreg) x,
                            options(pure, nomem, nostack, preserves_flags));
                    }
                }
            }
        }
        sums
    }
}

/// 16 bits by 16 bits.
struct Shorts;

impl Way for Shorts {
    #[inline(always)]
    unsafe fn sums<const R: usize>(
        block: &Block,
        rows: &[Row; R],
        v: usize,
        [first, end]: [usize; 2],
        _wide: bool,
    ) -> Sums<R> {
        let mut sums = [[vdupq_n_s32(0); VECTORS]; R];
        for (v, codes) in block.codes[v..v + VECTORS].iter().enumerate() {
            // A sum for each k of a quad, by column.
            let mut by_k = [[vdupq_n_s32(0); WORDS]; R];
            for quad in first..end {
                let codes = vld1q_s8(codes[quad].as_ptr());
                let (low, high) = (vmovl_s8(vget_low_s8(codes)), vmovl_high_s8(codes));
                for (sums, row) in by_k.iter_mut().zip(rows) {
                    let x = vld1_s16(row.q.as_ptr().add(QUAD * quad));
                    sums[0] = vmlal_s16(sums[0], vget_low_s16(low), x);
                    sums[1] = vmlal_s16(sums[1], vget_high_s16(low), x);
                    sums[2] = vmlal_s16(sums[2], vget_low_s16(high), x);
                    sums[3] = vmlal_s16(sums[3], vget_high_s16(high), x);
                }
            }
            for (sums, [a, b, c, d]) in sums.iter_mut().zip(by_k) {
                sums[v] = vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d));
            }
        }
        sums
    }
}

#[inline(always)]
unsafe fn product<W: Way>(dot: &IntDot) {
    let shape = Shape::of(dot.format());
    for r in (0..dot.rows).step_by(ROWS) {
        let part = IntDot {
            hi: dot.hi.add(r * dot.q_row),
            lo: dot.lo.wrapping_add(r * dot.q_row),
            sx: dot.sx.add(r * dot.sx_row),
            qsum: dot.qsum.add(r * dot.qsum_row),
            sums: dot.sums.wrapping_add(r * dot.qsum_row),
            c: dot.c.add(r * dot.c_row),
            rows: ROWS.min(dot.rows - r),
            ..*dot
        };
        let mut acc = [[0.0; PANEL]; ROWS];
        if dot.accumulate {
            for (i, acc) in acc.iter_mut().enumerate().take(part.rows) {
                std::ptr::copy_nonoverlapping(part.c.add(i * dot.c_row), acc.as_mut_ptr(), dot.columns);
            }
        }
        forget_flushes();
        for block in 0..dot.blocks {
            let codes = expanded(&part, &shape, block);
            for r in (0..part.rows).step_by(TOGETHER) {
                match part.rows - r {
                    1 => rows::<W, 1>(&part, r, block, &codes, &mut acc),
                    2 => rows::<W, 2>(&part, r, block, &codes, &mut acc),
                    3 => rows::<W, 3>(&part, r, block, &codes, &mut acc),
                    _ => rows::<W, TOGETHER>(&part, r, block, &codes, &mut acc),
                }
            }
        }
        if flushed_before(&acc) {
            portable::dot(&part);
            continue;
        }
        for (i, acc) in acc.iter().enumerate().take(part.rows) {
            std::ptr::copy_nonoverlapping(acc.as_ptr(), part.c.add(i * dot.c_row), dot.columns);
        }
    }
}

/// The bits of a plane for a quad, from bit `to` of each byte on.
#[inline(always)]
unsafe fn bits(plane: *const u8, bits: usize, quad: usize, to: usize) -> uint8x16_t {
    let (register, bit) = place(bits, quad);
    let shifted = vshlq_u8(vld1q_u8(plane.add(REGISTER * register)), vdupq_n_s8(to as i8 - bit as i8));
    vandq_u8(shifted, vdupq_n_u8((((1 << bits) - 1) << to) as u8))
}

/// A block of the product's panel.
#[inline(always)]
unsafe fn expanded(dot: &IntDot, shape: &Shape, block: usize) -> Block {
    let mut out = Block {
        codes: [[[0; WORDS * QUAD]; QUADS]; PANEL / WORDS],
        scales: [[0.0; PANEL]; 2],
        minima: [[0.0; PANEL]; 2],
    };
    let format = shape.format;
    let (chunk, unit) = shape.places(dot.first + block);
    let (chunk, unit) = (dot.panel.at.add(chunk), dot.panel.at.add(unit));
    let table: [i8; 16] = std::array::from_fn(|code| value(format, code as u8));
    let (table, offset) = (vld1q_s8(table.as_ptr()), vdupq_n_s8(offset(format) as i8));
    for (v, codes) in out.codes.iter_mut().enumerate().take(dot.columns / WORDS) {
        let row = v * WORDS;
        let at = unit.add(shape.unit_head + row / STRIPE * shape.stripe + QUAD * (row % STRIPE));
        for (quad, to) in codes.iter_mut().enumerate() {
            let mut code = bits(at, shape.low, quad, 0);
            if shape.high > 0 {
                code = vorrq_u8(code, bits(at.add(REGISTER * shape.low), shape.high, quad, shape.low));
            }
            let value = match format.values {
                Values::Table(_) => vqtbl1q_s8(table, code),
                Values::From(_) => vsubq_s8(vreinterpretq_s8_u8(code), offset),
            };
            vst1q_s8(to.as_mut_ptr(), value);
        }
        for half in 0..2 {
            let scales = |level: usize| {
                let scales = halves(chunk.add(2 * (level * PANEL + row)));
                if shape.unit_head == 0 {
                    return scales;
                }
                let group = half * (shape.groups - 1);
                vmulq_f32(scales, bytes(unit.add((level * shape.groups + group) * PANEL + row)))
            };
            vst1q_f32(out.scales[half].as_mut_ptr().add(row), scales(0));
            if format.minimum {
                vst1q_f32(out.minima[half].as_mut_ptr().add(row), scales(1));
            }
        }
    }
    out
}

/// Four FP16 as FP32.
#[inline(always)]
unsafe fn halves(at: *const u8) -> float32x4_t {
    let mut out = vdupq_n_f32(0.0);
    let halves = vld1_u8(at);
    asm!("fcvtl {0:v}.4s, {1:v}.4h", inout(vreg) out, in(vreg) halves, options(pure, nomem, nostack, preserves_flags));
    out
}

/// Four signed bytes as FP32.
#[inline(always)]
unsafe fn bytes(at: *const u8) -> float32x4_t {
    let four = vreinterpret_s8_u32(vdup_n_u32(at.cast::<u32>().read_unaligned()));
    vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(four))))
}

/// Adds a block of `R` rows to their accumulators.
#[inline(always)]
unsafe fn rows<W: Way, const R: usize>(
    dot: &IntDot,
    r: usize,
    block: usize,
    codes: &Block,
    acc: &mut [[f32; PANEL]; ROWS],
) {
    let rows: [Row; R] = std::array::from_fn(|i| row(dot, r + i, block));
    for v in (0..dot.columns / WORDS).step_by(VECTORS) {
        for half in 0..1 + usize::from(dot.halves) {
            let quads = if dot.halves { [half * QUADS / 2, (half + 1) * QUADS / 2] } else { [0, QUADS] };
            let sums = W::sums::<R>(codes, &rows, v, quads, dot.wide);
            for (i, (sums, row)) in sums.iter().zip(&rows).enumerate() {
                let minimum = row.sx * if dot.halves { row.sums[half] } else { row.sums[0] + row.sums[1] };
                for (g, sum) in sums.iter().enumerate() {
                    let column = WORDS * (v + g);
                    let at = acc[r + i].as_mut_ptr().add(column);
                    let scales = vmulq_n_f32(vld1q_f32(codes.scales[half].as_ptr().add(column)), row.sx);
                    let mut acc = vfmaq_f32(vld1q_f32(at), vcvtq_f32_s32(*sum), scales);
                    if dot.minima {
                        let minima = vld1q_f32(codes.minima[half].as_ptr().add(column));
                        acc = vfmsq_f32(acc, minima, vdupq_n_f32(minimum));
                    }
                    vst1q_f32(at, acc);
                }
            }
        }
    }
}

/// A row's activations of a block.
#[inline(always)]
unsafe fn row(dot: &IntDot, r: usize, block: usize) -> Row {
    let at = r * dot.q_row + UNIT * block;
    let hi = dot.hi.add(at).cast::<[i8; UNIT]>().read_unaligned();
    let (mut lo, mut q) = ([0; UNIT], hi.map(i16::from));
    if dot.wide {
        lo = dot.lo.add(at).cast::<[i8; UNIT]>().read_unaligned();
        for (q, lo) in q.iter_mut().zip(lo) {
            *q = 256 * *q + i16::from(lo);
        }
    }
    Row { hi, lo, q, sx: *dot.sx.add(r * dot.sx_row + block), sums: dot.sums_of(r, block) }
}
