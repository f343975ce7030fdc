//! Register kernels: a few rows of a dot product at a time; the right operand is read in place from its packed layout.
//!
//! Every kernel starts an output element from its accumulator and adds, denormals flushed: in BF16 pairs with k ascending,
//! `acc = fma(lo, lo', fma(hi, hi', acc))` with lo the even and hi the odd k; in FP32 `acc = fma(a, b, acc)` with k
//! ascending. Rows, columns and instruction sets do not change the bits.
//! Read next: [`crate::layout`].

#[cfg(target_arch = "x86_64")]
mod avx2_stored;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx512_stored;
#[cfg(target_arch = "x86_64")]
mod fused;
pub mod integers;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
#[cfg(target_arch = "x86_64")]
mod vectors;

#[cfg(target_arch = "x86_64")]
pub use avx2_stored::rounded;

use crate::Isa;
use crate::storage::{Form, Panel};

/// Columns of a group: the unit in which kernels process columns.
pub const LANES: usize = 16;

/// One dot product: `c[r][j] = start + sum_k a[r][k] * b[k][j]`, counted in elements.
///
/// `a` is row-major. `b` holds, for each step along k (a pair of k for BF16), `columns` columns as they lie in
/// a [`crate::layout::Layout`]: `[columns][pair]`, successive steps `b_step` elements apart.
#[derive(Clone, Copy, Debug)]
pub struct Dot<T> {
    /// The left operand, row-major.
    pub a: *const T,
    /// Elements from one row of `a` to the next.
    pub a_row: usize,
    /// The right operand, at its first step.
    pub b: *const T,
    /// Elements from one step of `b` to the next.
    pub b_step: usize,
    /// Accumulators, row-major; the product is added to them.
    pub c: *mut f32,
    /// Elements from one row of `c` to the next.
    pub c_row: usize,
    /// Rows of `a` and `c`.
    pub rows: usize,
    /// A multiple of [`LANES`].
    pub columns: usize,
    /// Pairs of k for BF16, single k for FP32.
    pub steps: usize,
    /// Start from `c` rather than from zero.
    pub accumulate: bool,
}

impl<T> Dot<T> {
    /// The same product for rows `r..r+rows` and columns `j..j+columns`.
    ///
    /// # Safety
    /// These rows and columns are within the product.
    #[inline(always)]
    unsafe fn part(&self, r: usize, j: usize, pair: usize) -> (*const T, *const T, *mut f32) {
        // SAFETY: the caller's promise; the offsets are within the operands.
        unsafe { (self.a.add(r * self.a_row), self.b.add(j * pair), self.c.add(r * self.c_row + j)) }
    }
}

/// # Safety
/// For every row, column and step, the elements named in [`Dot`] are readable (`a`, `b`) and writable (`c`),
/// no other thread writes them meanwhile, and the instruction set is present.
pub type DotFn<T> = unsafe fn(&Dot<T>);

/// A right operand in a stored form: a panel, the first step that is read, and room for the expanded elements.
#[derive(Clone, Copy, Debug)]
pub struct Stored {
    /// The panel and its form.
    pub panel: Panel,
    /// The first step along k that is read.
    pub step: usize,
    /// Where expanded elements are stored, in the order of [`crate::layout::Layout::RowPanels`]; null if they are not stored.
    pub keep: *mut u16,
}

/// A dot over a stored panel, with at most a panel's columns; `b` and `b_step` are not read. Expanded elements are stored only
/// if the dot has [`Kernels::leave`] rows.
///
/// # Safety
/// As for [`DotFn`]. The panel is not in BF16 and has the steps; in elements, the first step and the number of steps are
/// multiples of its form's granule. If not null, `keep` has room for 128 elements a step.
pub type StoredFn = unsafe fn(&Dot<u16>, &Stored);

/// Writes a panel of BF16 in 13 bits; false if it has too many exponents.
pub type EncodeFn = fn(&[u16], &mut [u8]) -> bool;

/// The register kernels of one instruction set.
#[derive(Clone, Copy, Debug)]
pub struct Kernels {
    /// Both operands BF16.
    pub bf16: DotFn<u16>,
    /// Both operands FP32.
    pub f32: DotFn<f32>,
    /// The left operand BF16, the right one in a stored form.
    pub stored: StoredFn,
    /// The most rows for which a panel in this form is expanded during the dot and not stored.
    pub few: fn(Form) -> usize,
    /// With more rows, the number of first rows that store the expanded panel for the others.
    pub leave: fn(Form) -> usize,
    /// Encodes a panel in 13 bits. If `None`, weights in BF16 stay in BF16.
    pub encode: Option<EncodeFn>,
}

/// The register kernels for `isa`. Panics if the machine does not have it.
pub fn kernels(isa: Isa) -> Kernels {
    assert!(Isa::available().contains(&isa), "{isa:?} is not available on this machine");
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512Bf16 => {
            // SAFETY: the instruction set is there, as asserted.
            let encode = |panel: &[u16], out: &mut [u8]| unsafe { avx512_stored::encode(panel, out) };
            let (stored, few, leave) = (avx512_stored::dot, avx512_stored::few, avx512_stored::leave);
            Kernels { bf16: avx512::bf16, f32: avx512::f32, stored, few, leave, encode: Some(encode) }
        }
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => {
            let stored = avx2_stored::dot;
            Kernels { bf16: fused::bf16_256, f32: fused::f32, stored, few: |_| 4, leave: |_| 4, encode: None }
        }
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => {
            let stored = avx2_stored::dot_512;
            Kernels { bf16: fused::bf16_512, f32: avx512::f32, stored, few: |_| 4, leave: |_| 4, encode: None }
        }
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => {
            Kernels { bf16: neon::bf16, f32: neon::f32, stored: neon::stored, few: |_| 4, leave: |_| 4, encode: None }
        }
        _ => {
            let stored = portable::stored;
            Kernels { bf16: portable::bf16, f32: portable::f32, stored, few: |_| 4, leave: |_| 4, encode: None }
        }
    }
}

/// Expands steps of a panel into the order of `RowPanels`. Arguments: the panel, the first step, the number of steps (at most a
/// unit's), the result.
type ExpandFn = unsafe fn(&Panel, usize, usize, *mut u16);

/// A dot with a stored panel and any number of rows. A few rows expand the panel as they multiply. With more, the first few
/// store it in BF16 for the others; without room for that, all rows expand it.
///
/// # Safety
/// As for [`StoredFn`].
pub unsafe fn dot_stored(kernels: &Kernels, dot: &Dot<u16>, stored: &Stored) {
    // SAFETY: the caller's; what was expanded has all of the dot's steps.
    unsafe {
        if dot.rows <= (kernels.few)(stored.panel.form) || stored.keep.is_null() {
            return (kernels.stored)(dot, &Stored { keep: std::ptr::null_mut(), ..*stored });
        }
        let leave = (kernels.leave)(stored.panel.form);
        (kernels.stored)(&Dot { rows: leave, ..*dot }, stored);
        (kernels.bf16)(&Dot {
            a: dot.a.add(leave * dot.a_row),
            b: stored.keep,
            b_step: 2 * crate::layout::PANEL,
            c: dot.c.add(leave * dot.c_row),
            rows: dot.rows - leave,
            ..*dot
        });
    }
}

/// A dot that expands the panel a unit at a time.
///
/// # Safety
/// As for [`StoredFn`]; `dot` and `expand` may be run.
#[inline(always)]
unsafe fn by_units(dot: &Dot<u16>, stored: &Stored, bf16: DotFn<u16>, expand: ExpandFn) {
    use crate::storage::blocks::PAIRS;
    let mut buffer = [0u16; PAIRS * 2 * crate::layout::PANEL];
    for first in (0..dot.steps).step_by(PAIRS) {
        // SAFETY: the caller's.
        unsafe {
            let steps = PAIRS.min(dot.steps - first);
            let b = if stored.keep.is_null() { buffer.as_mut_ptr() } else { stored.keep.add(first * 128) };
            expand(&stored.panel, stored.step + first, steps, b);
            let accumulate = dot.accumulate || first > 0;
            bf16(&Dot { a: dot.a.add(2 * first), b, b_step: 128, steps, accumulate, ..*dot });
        }
    }
}
