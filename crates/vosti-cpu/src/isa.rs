//! Instruction sets the executor can use, and the floating-point control register.
//!
//! Every instruction set computes the same bits; which one runs is a matter of speed only.
//! Read next: [`crate::micro`], [`crate::vector`].

/// An instruction set with its own build of the register kernels and the vector loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// Plain Rust; what the compiler makes of it.
    Portable,
    /// 256-bit vectors with fused multiply-add.
    Avx2,
    /// 512-bit vectors with the BF16 pair dot product.
    Avx512,
}

impl Isa {
    /// The fastest set this machine has.
    pub fn detect() -> Self {
        Self::available().last().copied().unwrap_or(Isa::Portable)
    }

    /// Every set this machine has, slowest first.
    pub fn available() -> &'static [Isa] {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            let avx512 = avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512bf16");
            if avx512 {
                return &[Isa::Portable, Isa::Avx2, Isa::Avx512];
            }
            if avx2 {
                return &[Isa::Portable, Isa::Avx2];
            }
        }
        &[Isa::Portable]
    }
}

/// While it lives, this thread flushes denormal results to zero and reads denormal inputs as zero,
/// rounds to nearest and traps nothing. Dropping it restores what was there.
pub struct FlushDenormals {
    saved: u64,
    _this_thread: std::marker::PhantomData<*const ()>,
}

impl FlushDenormals {
    /// Sets the control register of the calling thread.
    pub fn enter() -> Self {
        let saved = control::read();
        control::write(control::FLUSHING);
        Self { saved, _this_thread: std::marker::PhantomData }
    }
}

impl Drop for FlushDenormals {
    fn drop(&mut self) {
        control::write(self.saved);
    }
}

#[cfg(target_arch = "x86_64")]
mod control {
    /// All exceptions masked, round to nearest, flush to zero, denormals are zero.
    pub const FLUSHING: u64 = 0x1f80 | 0x8040;
    pub fn read() -> u64 {
        let mut word = 0u32;
        // SAFETY: stores the 32-bit MXCSR to a valid, aligned local.
        unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &mut word, options(nostack, preserves_flags)) };
        u64::from(word)
    }
    pub fn write(word: u64) {
        let word = word as u32;
        // SAFETY: loads MXCSR from a valid local; the value keeps every exception masked.
        unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &word, options(nostack, preserves_flags)) };
    }
}

#[cfg(target_arch = "aarch64")]
mod control {
    /// Flush to zero (FZ), round to nearest.
    pub const FLUSHING: u64 = 1 << 24;
    pub fn read() -> u64 {
        let word: u64;
        // SAFETY: reads FPCR.
        unsafe { std::arch::asm!("mrs {}, fpcr", out(reg) word, options(nomem, nostack, preserves_flags)) };
        word
    }
    pub fn write(word: u64) {
        // SAFETY: writes FPCR with traps disabled.
        unsafe { std::arch::asm!("msr fpcr, {}", in(reg) word, options(nomem, nostack, preserves_flags)) };
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod control {
    pub const FLUSHING: u64 = 0;
    pub fn read() -> u64 {
        0
    }
    pub fn write(_: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    #[test]
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    fn denormals_are_flushed_inside_and_restored_outside() {
        let half = |x: f32| black_box(x) * black_box(0.5);
        assert_ne!(half(f32::MIN_POSITIVE), 0.0);
        {
            let _guard = FlushDenormals::enter();
            assert_eq!(half(f32::MIN_POSITIVE).to_bits(), 0);
            assert_eq!((black_box(f32::from_bits(1)) + black_box(0.0)).to_bits(), 0);
        }
        assert_ne!(half(f32::MIN_POSITIVE), 0.0);
    }
}
