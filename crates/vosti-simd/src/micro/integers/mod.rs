//! Products of a quantised weight in integers: exact sums over blocks of 32 along k, added in FP32 with k ascending.
//!
//! Activations are integers too: q = 256 hi + lo, two planes of bytes, with an FP32 scale for each row and block, and the sums
//! of q over 16 k. With activations of 8 bits there is no plane lo and q = hi. A weight has the number c of its code, and a scale and
//! minimum for each group. For row t, column n and each block b, with k ascending ([`IntDot::halves`] = false):
//!
//! ```text
//! acc = fma(f32(sum of c q), scale[n][b] * s[t][b], acc)
//! acc = fma(-minimum[n][b], s[t][b] * sums[t][b], acc)      if minima; sums has the sum of q
//! ```
//!
//! With `halves`, each half of a block has these two steps. f32() rounds to nearest even, and denormals are flushed. A sum of
//! integers has no order, so every instruction set may take its own way to it: rows, columns and ways do not change the bits.
//! `halves` and `minima` belong to a matrix: a panel whose format needs neither computes with them all the same.
//! Read next: [`crate::storage::integers`], then `portable`, which is the definition.

#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
#[cfg(target_arch = "x86_64")]
mod ways;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::Isa;
use crate::storage::blocks::UNIT;
use crate::storage::{Form, Panel};
use vosti_kernels::Format;

/// One product: `c[t][n]` for some rows and up to a panel's columns.
#[derive(Clone, Copy, Debug)]
pub struct IntDot {
    /// The high bytes of the first row's activations, at the product's first block.
    pub hi: *const i8,
    /// The low bytes; not read unless `wide`.
    pub lo: *const i8,
    /// Bytes from one row of a plane to the next.
    pub q_row: usize,
    /// The activations' scales: one for each block.
    pub sx: *const f32,
    /// Scales from one row to the next.
    pub sx_row: usize,
    /// The sums of q: two for each block, each over 16 k. They are not above 32,768 in magnitude times 16.
    pub qsum: *const i32,
    /// Sums from one row to the next.
    pub qsum_row: usize,
    /// What minima are multiplied by, in the places of the sums of q: the same sums, unless whoever made them made a mistake.
    /// Not read unless `minima`.
    pub sums: *const f32,
    /// The weight's panel, in the form [`Form::Integers`].
    pub panel: Panel,
    /// The panel's first block that is read.
    pub first: usize,
    /// Blocks of 32 along k.
    pub blocks: usize,
    /// Accumulators, row-major.
    pub c: *mut f32,
    /// Elements from one row of `c` to the next.
    pub c_row: usize,
    /// Rows of the activations and of `c`.
    pub rows: usize,
    /// A multiple of [`super::LANES`], at most a panel's.
    pub columns: usize,
    /// Start from `c` rather than from zero.
    pub accumulate: bool,
    /// Sums are over halves of a block. Must be set if the format has groups of 16.
    pub halves: bool,
    /// Minima are subtracted. Must be set if the format has minima.
    pub minima: bool,
    /// Activations have 16 bits (|q| at most 32,639) rather than 8 (at most 127).
    pub wide: bool,
}

impl IntDot {
    /// The format of the panel.
    #[inline(always)]
    fn format(&self) -> &'static Format {
        let Form::Integers(format) = self.panel.form else { unreachable!("a panel for products in integers") };
        debug_assert!(self.halves || format.group == UNIT, "a group of 16 needs sums of halves");
        debug_assert!(self.minima || !format.minimum, "a minimum that is not subtracted");
        debug_assert!(self.columns.is_multiple_of(super::LANES) && self.columns <= crate::layout::PANEL);
        format
    }

    /// The sums of a block's halves of a row, for minima; zeros if none is subtracted.
    ///
    /// # Safety
    /// See [`IntDotFn`]; the product has the row and the block.
    #[inline(always)]
    unsafe fn sums_of(&self, row: usize, block: usize) -> [f32; 2] {
        if !self.minima {
            return [0.0; 2];
        }
        // SAFETY: the caller's.
        unsafe { self.sums.add(row * self.qsum_row + 2 * block).cast::<[f32; 2]>().read_unaligned() }
    }
}

/// # Safety
/// For every row, column and block, the elements named in [`IntDot`] are readable, and writable in `c`; no other thread writes
/// them meanwhile. The instruction set is present.
pub type IntDotFn = unsafe fn(&IntDot);

/// The instructions that multiply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// Plain Rust, in the compiler's code.
    Portable,
    /// AVX2: products of 16 bits; of bytes for activations of 8 bits.
    Avx2,
    /// AVX2 with `vpdpbusd` on 256 bits.
    AvxVnni,
    /// `vpdpbusd` on 512 bits.
    Avx512Vnni,
    /// NEON: products of 16 bits.
    Neon,
    /// NEON with `sdot`.
    NeonDot,
}

impl Set {
    /// Every set that this machine has, slowest first.
    pub fn available() -> Vec<Set> {
        let mut sets = vec![Set::Portable];
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c") {
            sets.push(Set::Avx2);
            if is_x86_feature_detected!("avxvnni") {
                sets.push(Set::AvxVnni);
            }
            let avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
            if avx512 && is_x86_feature_detected!("avx512vl") && is_x86_feature_detected!("avx512vnni") {
                sets.push(Set::Avx512Vnni);
            }
        }
        #[cfg(target_arch = "aarch64")]
        {
            sets.push(Set::Neon);
            if std::arch::is_aarch64_feature_detected!("dotprod") {
                sets.push(Set::NeonDot);
            }
        }
        sets
    }

    /// The fastest set for `isa`. If `isa` is the fastest of this machine, that is the fastest set of all; else it is the
    /// fastest one that every machine with `isa` has.
    pub fn of(isa: Isa) -> Set {
        let sets = Set::available();
        if isa == Isa::detect() {
            return sets.last().copied().unwrap_or(Set::Portable);
        }
        let wanted = match isa {
            Isa::Portable => Set::Portable,
            Isa::Avx2 | Isa::Avx512 => Set::Avx2,
            Isa::Avx512Bf16 => Set::Avx512Vnni,
            Isa::Neon => Set::Neon,
        };
        if sets.contains(&wanted) { wanted } else { Set::Portable }
    }

    /// The common name of its instructions.
    pub fn name(self) -> &'static str {
        match self {
            Set::Portable => "portable",
            Set::Avx2 => "avx2",
            Set::AvxVnni => "avx-vnni",
            Set::Avx512Vnni => "avx512-vnni",
            Set::Neon => "neon",
            Set::NeonDot => "neon-dotprod",
        }
    }

    /// The product by these instructions. Panics if the machine does not have them.
    pub fn dot(self) -> IntDotFn {
        assert!(Set::available().contains(&self), "{self:?} is not available on this machine");
        match self {
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => x86::avx2,
            #[cfg(target_arch = "x86_64")]
            Set::AvxVnni => x86::avx_vnni,
            #[cfg(target_arch = "x86_64")]
            Set::Avx512Vnni => x86::avx512_vnni,
            #[cfg(target_arch = "aarch64")]
            Set::Neon => neon::plain,
            #[cfg(target_arch = "aarch64")]
            Set::NeonDot => neon::dot_product,
            _ => portable::dot,
        }
    }
}
