//! AVX2 has no instruction that rounds to BF16: two multiply-adds do.

#![cfg(target_arch = "x86_64")]

use half::bf16;
use std::arch::x86_64::{_mm256_set1_ps, _mm256_storeu_ps};
use vosti_simd::Isa;
use vosti_simd::micro::rounded;
use vosti_tile::numerics::FloatMode;

#[target_feature(enable = "avx2,fma")]
fn rounded_bits(x: f32) -> u32 {
    let mut out = [0.0f32; 8];
    // SAFETY: there is room for eight.
    unsafe { _mm256_storeu_ps(out.as_mut_ptr(), rounded(_mm256_set1_ps(x))) };
    out[7].to_bits()
}

/// Checks every significand of both signs, at the smallest exponents of blocks, at 1 and at the largest, and both zeros.
#[test]
fn two_multiply_adds_round_as_bf16_does() {
    if !Isa::tried().contains(&Isa::Avx2) {
        return; // No dot uses them here.
    }
    let _mode = FloatMode::set();
    let exponents = [127 - 50, 127, 127 + 31];
    let numbers = exponents.into_iter().flat_map(|exponent: u32| (0..1 << 23).map(move |m| exponent << 23 | m));
    for bits in numbers.chain([0]).flat_map(|bits| [bits, bits | 1 << 31]) {
        let want = u32::from(bf16::from_f32(f32::from_bits(bits)).to_bits()) << 16;
        // SAFETY: the instruction set is there.
        assert_eq!(unsafe { rounded_bits(f32::from_bits(bits)) }, want, "{bits:x}");
    }
}
