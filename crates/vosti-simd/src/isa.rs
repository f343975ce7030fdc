//! Instruction sets the executor can use.
//!
//! Every instruction set computes the same bits; the choice changes only the speed.
//! Read next: [`crate::micro`], [`crate::vector`].

/// An instruction set with its own build of the register kernels and the vector loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// Plain Rust, in the compiler's code.
    Portable,
    /// 256-bit vectors with fused multiply-add.
    Avx2,
    /// 512-bit vectors.
    Avx512,
    /// 512-bit vectors with the BF16 pair dot product.
    Avx512Bf16,
    /// 128-bit vectors, which every AArch64 processor has. The compiler vectorises the loops over tiles.
    Neon,
}

impl Isa {
    /// Every set.
    pub const ALL: [Isa; 5] = [Isa::Portable, Isa::Avx2, Isa::Avx512, Isa::Avx512Bf16, Isa::Neon];

    /// The common name.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Avx512Bf16 => "avx512-bf16",
            Isa::Neon => "neon",
        }
    }

    /// The fastest set this machine has.
    pub fn detect() -> Self {
        Self::available().last().copied().unwrap_or(Isa::Portable)
    }

    /// [`Isa::available`], for tests: prints one line for each other set, which the test does not try.
    pub fn tried() -> &'static [Isa] {
        for isa in Self::ALL.iter().filter(|isa| !Self::available().contains(isa)) {
            println!("not tried: this machine lacks {}", isa.name());
        }
        Self::available()
    }

    /// Every set this machine has, slowest first.
    pub fn available() -> &'static [Isa] {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 =
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
            let avx512 = avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512dq");
            if avx512 && is_x86_feature_detected!("avx512bf16") {
                return &[Isa::Portable, Isa::Avx2, Isa::Avx512, Isa::Avx512Bf16];
            }
            if avx512 {
                return &[Isa::Portable, Isa::Avx2, Isa::Avx512];
            }
            if avx2 {
                return &[Isa::Portable, Isa::Avx2];
            }
        }
        if cfg!(target_arch = "aarch64") { &[Isa::Portable, Isa::Neon] } else { &[Isa::Portable] }
    }
}
