//! The register kernels in plain Rust: the definition that all others equal.

use vosti_tile::numerics::{dot_bf16_step, dot_f32_step};

use super::{Dot, LANES, Stored, by_units};
use crate::layout::PANEL;
use crate::storage::blocks::{PAIRS, Shape};
use crate::storage::{Form, Panel, exponents, integers};

/// # Safety
/// See [`super::DotFn`].
pub unsafe fn bf16(dot: &Dot<u16>) {
    for r in 0..dot.rows {
        for j in (0..dot.columns).step_by(LANES) {
            // SAFETY: r and j are in range; every access below is one the caller vouched for.
            unsafe {
                let (a, b, c) = dot.part(r, j, 2);
                let mut acc = start(c, dot.accumulate);
                for step in 0..dot.steps {
                    let pair = [*a.add(2 * step), *a.add(2 * step + 1)];
                    let column = b.add(step * dot.b_step);
                    for (lane, acc) in acc.iter_mut().enumerate() {
                        let other = [*column.add(2 * lane), *column.add(2 * lane + 1)];
                        *acc = dot_bf16_step(*acc, pair, other);
                    }
                }
                c.cast::<[f32; LANES]>().write_unaligned(acc);
            }
        }
    }
}

/// # Safety
/// See [`super::DotFn`].
pub unsafe fn f32(dot: &Dot<f32>) {
    for r in 0..dot.rows {
        for j in (0..dot.columns).step_by(LANES) {
            // SAFETY: as above.
            unsafe {
                let (a, b, c) = dot.part(r, j, 1);
                let mut acc = start(c, dot.accumulate);
                for step in 0..dot.steps {
                    let column = b.add(step * dot.b_step).cast::<[f32; LANES]>().read_unaligned();
                    let value = *a.add(step);
                    for (acc, other) in acc.iter_mut().zip(column) {
                        *acc = dot_f32_step(*acc, value, other);
                    }
                }
                c.cast::<[f32; LANES]>().write_unaligned(acc);
            }
        }
    }
}

/// # Safety
/// See [`super::StoredFn`].
pub unsafe fn stored(dot: &Dot<u16>, stored: &Stored) {
    // SAFETY: the caller's.
    unsafe { by_units(dot, stored, bf16, expand) }
}

/// Expands steps of a panel, element by element.
///
/// # Safety
/// See [`super::ExpandFn`].
pub(super) unsafe fn expand(panel: &Panel, first: usize, steps: usize, out: *mut u16) {
    // SAFETY: the caller's: elements of the panel, and as much room.
    unsafe {
        match panel.form {
            Form::Blocks(format) if steps == PAIRS => {
                let out = std::slice::from_raw_parts_mut(out, PAIRS * 2 * PANEL);
                Shape::of(format).expand(panel.at, first / PAIRS, out);
            }
            form => {
                for i in 0..steps * 2 * PANEL {
                    let (row, k) = (i % (2 * PANEL) / 2, 2 * (first + i / (2 * PANEL)) + i % 2);
                    *out.add(i) = match form {
                        Form::Bf16 => unreachable!("a panel in BF16 is read as it is"),
                        Form::Exponents => exponents::element(panel.at, row, k),
                        Form::Blocks(format) => Shape::of(format).element(panel.at, row, k),
                        Form::Integers(format) => integers::element(format, panel.at, row, k).bf16(),
                    };
                }
            }
        }
    }
}

/// # Safety
/// If `accumulate`, 16 values are readable at `c`.
unsafe fn start(c: *const f32, accumulate: bool) -> [f32; LANES] {
    if accumulate {
        // SAFETY: the caller's promise.
        unsafe { c.cast::<[f32; LANES]>().read_unaligned() }
    } else {
        [0.0; LANES]
    }
}
