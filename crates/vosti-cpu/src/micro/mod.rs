//! Register kernels: a few rows of a dot product at a time, the right operand read in place from its packed
//! layout.
//!
//! All compute, for every output element and from its accumulator, k ascending by pairs,
//! `acc = fma(lo, lo', fma(hi, hi', acc))` with lo the even and hi the odd k (BF16), or k ascending
//! `acc = fma(a, b, acc)` (FP32), denormals flushed. Rows, columns and instruction sets do not change the bits.
//! Read next: [`crate::layout`].

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

use crate::isa::Isa;

/// Columns that one vector register group of a packed operand holds.
pub const LANES: usize = 16;

/// One dot product: `c[r][j] = start + sum_k a[r][k] * b[k][j]`, counted in elements.
///
/// `a` is row-major. `b` holds, for each step along k (a pair of k for BF16), `columns` columns as they lie in
/// a [`crate::layout::Layout`]: `[columns][pair]`, successive steps `b_step` elements apart.
#[derive(Clone, Copy, Debug)]
pub struct Dot<T> {
    pub a: *const T,
    pub a_row: usize,
    pub b: *const T,
    pub b_step: usize,
    pub c: *mut f32,
    pub c_row: usize,
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
    /// They lie within this one's.
    #[inline(always)]
    unsafe fn part(&self, r: usize, j: usize, pair: usize) -> (*const T, *const T, *mut f32) {
        // SAFETY: the caller's promise; the offsets are within the operands.
        unsafe { (self.a.add(r * self.a_row), self.b.add(j * pair), self.c.add(r * self.c_row + j)) }
    }
}

/// # Safety
/// For every row, column and step, the elements named in [`Dot`] are readable (`a`, `b`) and writable (`c`),
/// nobody else writes them meanwhile, and the instruction set is present.
pub type DotFn<T> = unsafe fn(&Dot<T>);

/// What an instruction set does with a panel in code ([`crate::coded`]).
#[derive(Clone, Copy, Debug)]
pub struct CodedFns {
    /// A dot with at most a panel's columns, whose `b` is the panel's first step and whose `b_step` nobody reads; and
    /// the panel's table.
    ///
    /// # Safety
    /// As for [`DotFn`].
    pub dot: unsafe fn(&Dot<u16>, *const u8),
    /// Decodes so many steps, with the panel's table, into the order of [`crate::layout::Layout::RowPanels`].
    ///
    /// # Safety
    /// The steps are readable, and the result has room for 128 elements of each.
    pub expand: unsafe fn(*const u8, *const u8, usize, *mut u16),
    /// Codes a panel; false if it has too many exponents.
    pub encode: fn(&[u16], &mut [u8]) -> bool,
}

/// The register kernels of one instruction set.
#[derive(Clone, Copy, Debug)]
pub struct Kernels {
    pub bf16: DotFn<u16>,
    pub f32: DotFn<f32>,
    /// None: weights are kept as they are.
    pub coded: Option<CodedFns>,
}

/// The register kernels for `isa`, which the machine must have.
pub fn kernels(isa: Isa) -> Kernels {
    assert!(Isa::available().contains(&isa), "{isa:?} is not available on this machine");
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => {
            // SAFETY: the instruction set is there, as asserted.
            let encode = |panel: &[u16], out: &mut [u8]| unsafe { avx512::encode(panel, out) };
            let coded = CodedFns { dot: avx512::coded_bf16, expand: avx512::expand, encode };
            Kernels { bf16: avx512::bf16, f32: avx512::f32, coded: Some(coded) }
        }
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => Kernels { bf16: avx2::bf16, f32: avx2::f32, coded: None },
        _ => Kernels { bf16: portable::bf16, f32: portable::f32, coded: None },
    }
}

#[cfg(test)]
mod tests;
