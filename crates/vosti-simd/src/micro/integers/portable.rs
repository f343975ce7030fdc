//! The product in plain Rust: the definition that all instruction sets equal.

use vosti_tile::numerics::{add as plus, fma, mul};

use super::IntDot;
use crate::layout::PANEL;
use crate::storage::blocks::UNIT;
use crate::storage::integers::{Element, element};

/// The scale and minimum of the two halves of a block, for one column.
type Scales = [(f32, f32); 2];

/// # Safety
/// See [`super::IntDotFn`].
pub unsafe fn dot(dot: &IntDot) {
    let format = dot.format();
    for block in 0..dot.blocks {
        let mut codes = [[0i32; UNIT]; PANEL];
        let mut scales: [Scales; PANEL] = [[(0.0, 0.0); 2]; PANEL];
        for (column, (codes, scales)) in codes.iter_mut().zip(&mut scales).enumerate().take(dot.columns) {
            for (k, code) in codes.iter_mut().enumerate() {
                // SAFETY: the panel has the block.
                let element = unsafe { element(format, dot.panel.at, column, (dot.first + block) * UNIT + k) };
                let Element { value, scale, minimum } = element;
                *code = i32::from(value);
                scales[k / (UNIT / 2)] = (scale, minimum);
            }
        }
        for row in 0..dot.rows {
            // SAFETY: the caller's.
            unsafe { one_row(dot, row, block, &codes, &scales) }
        }
    }
}

/// Adds a block to a row of the result.
///
/// # Safety
/// See [`super::IntDotFn`]; the product has the row and the block.
pub(super) unsafe fn one_row(
    dot: &IntDot,
    row: usize,
    block: usize,
    codes: &[[i32; UNIT]; PANEL],
    scales: &[Scales; PANEL],
) {
    // SAFETY: the caller's.
    unsafe {
        let at = row * dot.q_row + block * UNIT;
        let q: [i32; UNIT] = std::array::from_fn(|k| {
            let hi = i32::from(*dot.hi.add(at + k));
            if dot.wide { 256 * hi + i32::from(*dot.lo.add(at + k)) } else { hi }
        });
        let sx = *dot.sx.add(row * dot.sx_row + block);
        let sums = dot.sums_of(row, block);
        let c = dot.c.add(row * dot.c_row);
        for (column, (codes, scales)) in codes.iter().zip(scales).enumerate().take(dot.columns) {
            let mut acc = if dot.accumulate || block > 0 { *c.add(column) } else { 0.0 };
            let mut add = |sum: i32, (scale, minimum): (f32, f32), sums: f32| {
                acc = fma(sum as f32, mul(scale, sx), acc);
                if dot.minima {
                    acc = fma(-minimum, mul(sx, sums), acc);
                }
            };
            let sum = |from: usize, to: usize| (from..to).map(|k| codes[k] * q[k]).sum::<i32>();
            if dot.halves {
                add(sum(0, UNIT / 2), scales[0], sums[0]);
                add(sum(UNIT / 2, UNIT), scales[1], sums[1]);
            } else {
                add(sum(0, UNIT), scales[0], plus(sums[0], sums[1]));
            }
            *c.add(column) = acc;
        }
    }
}
