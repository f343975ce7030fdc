//! Sixteen FP32 lanes in vector registers: the operations in which tiles spend their time.
//!
//! Each operation equals the scalar definition of [`vosti_tile::numerics`] under its floating-point mode; tests compare them.
//! Where a definition says "denormals flushed" and no arithmetic follows that would flush them, integer operations do it: the
//! compiler would remove a product by one, because it knows nothing of the floating-point mode.
//! Read next: [`super::simd`].

#![allow(unsafe_op_in_unsafe_fn, clippy::missing_safety_doc)]

use std::arch::x86_64::*;

/// Sixteen lanes of 32 bits. Methods are inlined into functions that enable the instruction set.
///
/// # Safety
/// For every method: the instruction set is present, and pointers are valid for the lanes that are read or written.
pub trait Lanes: Copy {
    type Mask: Copy;
    unsafe fn load(at: *const f32) -> Self;
    unsafe fn store(self, at: *mut f32);
    unsafe fn splat(x: f32) -> Self;
    unsafe fn load_bf16(at: *const u16) -> Self;
    unsafe fn store_bf16(self, at: *mut u16);
    /// The same with the processor's BF16 instruction.
    #[inline(always)]
    unsafe fn store_bf16_natively(self, at: *mut u16) {
        unsafe { self.store_bf16(at) }
    }
    /// Copies sixteen BF16.
    #[inline(always)]
    unsafe fn copy_bf16(from: *const u16, to: *mut u16) {
        unsafe { _mm256_storeu_si256(to.cast(), _mm256_loadu_si256(from.cast())) }
    }
    /// Copies sixteen BF16, every NaN as the one NaN.
    #[inline(always)]
    unsafe fn store_one_nan(from: *const u16, to: *mut u16) {
        unsafe {
            let bits = _mm256_loadu_si256(from.cast());
            let magnitude = _mm256_and_si256(bits, _mm256_set1_epi16(0x7fff));
            let nan = _mm256_cmpgt_epi16(magnitude, _mm256_set1_epi16(0x7f80));
            _mm256_storeu_si256(to.cast(), _mm256_blendv_epi8(bits, _mm256_set1_epi16(0x7fc0), nan));
        }
    }
    unsafe fn add(self, b: Self) -> Self;
    unsafe fn sub(self, b: Self) -> Self;
    unsafe fn mul(self, b: Self) -> Self;
    unsafe fn div(self, b: Self) -> Self;
    unsafe fn sqrt(self) -> Self;
    /// `self * b + c`.
    unsafe fn fma(self, b: Self, c: Self) -> Self;
    /// `if self > b { self } else { b }`.
    unsafe fn greater_or(self, b: Self) -> Self;
    /// `if self < b { self } else { b }`.
    unsafe fn less_or(self, b: Self) -> Self;
    unsafe fn is_nan(self) -> Self::Mask;
    /// [`vosti_tile::numerics::flush`].
    unsafe fn flush(self) -> Self;
    unsafe fn at_most(self, b: Self) -> Self::Mask;
    unsafe fn xor(self, bits: u32) -> Self;
    unsafe fn and(self, bits: u32) -> Self;
    /// `self * 2^n` for integers n in [-252, 254], rounded (or flushed, or infinite) once.
    unsafe fn scale(self, n: Self) -> Self;
    unsafe fn int_at_most(self, b: Self) -> Self::Mask;
    unsafe fn int_less(self, b: Self) -> Self::Mask;
    unsafe fn int_nonzero(self) -> Self::Mask;
    /// Adds integers; the sums wrap.
    unsafe fn int_add(self, b: Self) -> Self;
    /// Numbers as integers, towards zero; NaN as 0, and what does not fit as the nearest that does.
    unsafe fn to_int(self) -> Self;
    /// `if mask { a } else { b }`.
    unsafe fn choose(mask: Self::Mask, a: Self, b: Self) -> Self;
    /// 1 where the mask holds, else 0, as integers.
    unsafe fn truth(mask: Self::Mask) -> Self;
    /// Folds lanes l and l + 8, then l and l + 4, 2 and 1, down to one lane.
    unsafe fn tree<F: super::simd::Function<Self>>(self) -> f32;
}

/// 512-bit vectors.
#[derive(Clone, Copy)]
pub struct Wide(__m512);

/// Pairs of 256-bit vectors.
#[derive(Clone, Copy)]
pub struct Pair(__m256, __m256);

macro_rules! ints {
    ($x:expr) => {
        _mm512_castps_si512($x)
    };
}

impl Lanes for Wide {
    type Mask = __mmask16;
    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self {
        unsafe { Wide(_mm512_loadu_ps(at)) }
    }
    #[inline(always)]
    unsafe fn store(self, at: *mut f32) {
        unsafe { _mm512_storeu_ps(at, self.0) }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        unsafe { Wide(_mm512_set1_ps(x)) }
    }
    #[inline(always)]
    unsafe fn load_bf16(at: *const u16) -> Self {
        unsafe {
            let words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(at.cast()));
            Wide(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(words)))
        }
    }
    #[inline(always)]
    unsafe fn store_bf16(self, at: *mut u16) {
        unsafe {
            let x = self.flush();
            let bits = ints!(x.0);
            let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x.0, x.0);
            let chosen = _mm512_mask_mov_epi32(rounded, nan, _mm512_set1_epi32(f32::NAN.to_bits() as i32));
            _mm256_storeu_si256(at.cast(), _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(chosen)));
        }
    }
    #[inline(always)]
    unsafe fn store_bf16_natively(self, at: *mut u16) {
        unsafe {
            let words: __m256i = std::mem::transmute(_mm512_cvtneps_pbh(self.0));
            _mm256_storeu_si256(at.cast(), words);
        }
    }
    #[inline(always)]
    unsafe fn add(self, b: Self) -> Self {
        unsafe { Wide(_mm512_add_ps(self.0, b.0)) }
    }
    #[inline(always)]
    unsafe fn sub(self, b: Self) -> Self {
        unsafe { Wide(_mm512_sub_ps(self.0, b.0)) }
    }
    #[inline(always)]
    unsafe fn mul(self, b: Self) -> Self {
        unsafe { Wide(_mm512_mul_ps(self.0, b.0)) }
    }
    #[inline(always)]
    unsafe fn div(self, b: Self) -> Self {
        unsafe { Wide(_mm512_div_ps(self.0, b.0)) }
    }
    #[inline(always)]
    unsafe fn sqrt(self) -> Self {
        unsafe { Wide(_mm512_sqrt_ps(self.0)) }
    }
    #[inline(always)]
    unsafe fn fma(self, b: Self, c: Self) -> Self {
        unsafe { Wide(_mm512_fmadd_ps(self.0, b.0, c.0)) }
    }
    #[inline(always)]
    unsafe fn greater_or(self, b: Self) -> Self {
        unsafe { Wide(_mm512_max_ps(self.0, b.0)) }
    }
    #[inline(always)]
    unsafe fn less_or(self, b: Self) -> Self {
        unsafe { Wide(_mm512_min_ps(self.0, b.0)) }
    }
    #[inline(always)]
    unsafe fn is_nan(self) -> Self::Mask {
        unsafe { _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(self.0, self.0) }
    }
    #[inline(always)]
    unsafe fn at_most(self, b: Self) -> Self::Mask {
        unsafe { _mm512_cmp_ps_mask::<_CMP_LE_OQ>(self.0, b.0) }
    }
    #[inline(always)]
    unsafe fn xor(self, bits: u32) -> Self {
        unsafe { Wide(_mm512_castsi512_ps(_mm512_xor_si512(ints!(self.0), _mm512_set1_epi32(bits as i32)))) }
    }
    #[inline(always)]
    unsafe fn and(self, bits: u32) -> Self {
        unsafe { Wide(_mm512_castsi512_ps(_mm512_and_si512(ints!(self.0), _mm512_set1_epi32(bits as i32)))) }
    }
    #[inline(always)]
    unsafe fn flush(self) -> Self {
        unsafe {
            let bits = ints!(self.0);
            let tiny = _mm512_testn_epi32_mask(bits, _mm512_set1_epi32(0x7f80_0000));
            Wide(_mm512_castsi512_ps(_mm512_mask_and_epi32(bits, tiny, bits, _mm512_set1_epi32(i32::MIN))))
        }
    }
    #[inline(always)]
    unsafe fn scale(self, n: Self) -> Self {
        unsafe { Wide(_mm512_scalef_ps(self.0, n.0)) }
    }
    #[inline(always)]
    unsafe fn int_at_most(self, b: Self) -> Self::Mask {
        unsafe { _mm512_cmple_epi32_mask(ints!(self.0), ints!(b.0)) }
    }
    #[inline(always)]
    unsafe fn int_less(self, b: Self) -> Self::Mask {
        unsafe { _mm512_cmplt_epi32_mask(ints!(self.0), ints!(b.0)) }
    }
    #[inline(always)]
    unsafe fn int_nonzero(self) -> Self::Mask {
        unsafe { _mm512_test_epi32_mask(ints!(self.0), ints!(self.0)) }
    }
    #[inline(always)]
    unsafe fn int_add(self, b: Self) -> Self {
        unsafe { Wide(_mm512_castsi512_ps(_mm512_add_epi32(ints!(self.0), ints!(b.0)))) }
    }
    #[inline(always)]
    unsafe fn to_int(self) -> Self {
        unsafe {
            // What does not fit becomes the least integer, which is right below.
            let above = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(self.0, _mm512_set1_ps(2_147_483_648.0));
            let number = _mm512_cmp_ps_mask::<_CMP_ORD_Q>(self.0, self.0);
            let ints = _mm512_maskz_cvttps_epi32(number, self.0);
            Wide(_mm512_castsi512_ps(_mm512_mask_mov_epi32(ints, above, _mm512_set1_epi32(i32::MAX))))
        }
    }
    #[inline(always)]
    unsafe fn choose(mask: Self::Mask, a: Self, b: Self) -> Self {
        unsafe { Wide(_mm512_mask_blend_ps(mask, b.0, a.0)) }
    }
    #[inline(always)]
    unsafe fn truth(mask: Self::Mask) -> Self {
        unsafe { Wide(_mm512_castsi512_ps(_mm512_maskz_set1_epi32(mask, 1))) }
    }
    #[inline(always)]
    unsafe fn tree<F: super::simd::Function<Self>>(self) -> f32 {
        unsafe {
            // Folds the upper half into the lower one, and so on. Lanes above are ignored.
            let x = self;
            let x = F::call(x, Wide(_mm512_shuffle_f32x4::<0b00_00_11_10>(x.0, x.0)));
            let x = F::call(x, Wide(_mm512_shuffle_f32x4::<0b00_00_00_01>(x.0, x.0)));
            let x = F::call(x, Wide(_mm512_permute_ps::<0b00_00_11_10>(x.0)));
            let x = F::call(x, Wide(_mm512_permute_ps::<0b00_00_00_01>(x.0)));
            _mm512_cvtss_f32(x.0)
        }
    }
}

macro_rules! both {
    ($f:ident, $a:expr $(, $b:expr)*) => { unsafe { Pair($f($a.0 $(, $b.0)*), $f($a.1 $(, $b.1)*)) } };
}

/// Applies an operation on 256-bit integers to both halves.
macro_rules! both_ints {
    ($f:expr, $a:expr) => {
        unsafe {
            Pair(_mm256_castsi256_ps($f(_mm256_castps_si256($a.0))), _mm256_castsi256_ps($f(_mm256_castps_si256($a.1))))
        }
    };
}

impl Lanes for Pair {
    type Mask = (__m256, __m256);
    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self {
        unsafe { Pair(_mm256_loadu_ps(at), _mm256_loadu_ps(at.add(8))) }
    }
    #[inline(always)]
    unsafe fn store(self, at: *mut f32) {
        unsafe {
            _mm256_storeu_ps(at, self.0);
            _mm256_storeu_ps(at.add(8), self.1);
        }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        unsafe { Pair(_mm256_set1_ps(x), _mm256_set1_ps(x)) }
    }
    #[inline(always)]
    unsafe fn load_bf16(at: *const u16) -> Self {
        unsafe {
            let half = |at: *const u16| {
                let words = _mm256_cvtepu16_epi32(_mm_loadu_si128(at.cast()));
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(words))
            };
            Pair(half(at), half(at.add(8)))
        }
    }
    #[inline(always)]
    unsafe fn store_bf16(self, at: *mut u16) {
        unsafe {
            let half = |x: __m256| {
                let bits = _mm256_castps_si256(x);
                let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
                let rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
                let nan = _mm256_cmp_ps::<_CMP_UNORD_Q>(x, x);
                let one_nan = _mm256_set1_ps(f32::NAN);
                let chosen = _mm256_blendv_ps(_mm256_castsi256_ps(rounded), one_nan, nan);
                _mm256_srli_epi32::<16>(_mm256_castps_si256(chosen))
            };
            let x = self.flush();
            let packed = _mm256_packus_epi32(half(x.0), half(x.1));
            _mm256_storeu_si256(at.cast(), _mm256_permute4x64_epi64::<0b11_01_10_00>(packed));
        }
    }
    #[inline(always)]
    unsafe fn add(self, b: Self) -> Self {
        both!(_mm256_add_ps, self, b)
    }
    #[inline(always)]
    unsafe fn sub(self, b: Self) -> Self {
        both!(_mm256_sub_ps, self, b)
    }
    #[inline(always)]
    unsafe fn mul(self, b: Self) -> Self {
        both!(_mm256_mul_ps, self, b)
    }
    #[inline(always)]
    unsafe fn div(self, b: Self) -> Self {
        both!(_mm256_div_ps, self, b)
    }
    #[inline(always)]
    unsafe fn sqrt(self) -> Self {
        both!(_mm256_sqrt_ps, self)
    }
    #[inline(always)]
    unsafe fn fma(self, b: Self, c: Self) -> Self {
        both!(_mm256_fmadd_ps, self, b, c)
    }
    #[inline(always)]
    unsafe fn greater_or(self, b: Self) -> Self {
        both!(_mm256_max_ps, self, b)
    }
    #[inline(always)]
    unsafe fn less_or(self, b: Self) -> Self {
        both!(_mm256_min_ps, self, b)
    }
    #[inline(always)]
    unsafe fn is_nan(self) -> Self::Mask {
        unsafe { (_mm256_cmp_ps::<_CMP_UNORD_Q>(self.0, self.0), _mm256_cmp_ps::<_CMP_UNORD_Q>(self.1, self.1)) }
    }
    #[inline(always)]
    unsafe fn at_most(self, b: Self) -> Self::Mask {
        unsafe { (_mm256_cmp_ps::<_CMP_LE_OQ>(self.0, b.0), _mm256_cmp_ps::<_CMP_LE_OQ>(self.1, b.1)) }
    }
    #[inline(always)]
    unsafe fn xor(self, bits: u32) -> Self {
        both_ints!(|x| _mm256_xor_si256(x, _mm256_set1_epi32(bits as i32)), self)
    }
    #[inline(always)]
    unsafe fn and(self, bits: u32) -> Self {
        both_ints!(|x| _mm256_and_si256(x, _mm256_set1_epi32(bits as i32)), self)
    }
    #[inline(always)]
    unsafe fn flush(self) -> Self {
        unsafe {
            let half = |x: __m256| {
                let exponent = _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7f80_0000));
                let tiny = _mm256_castsi256_ps(_mm256_cmpeq_epi32(exponent, _mm256_setzero_si256()));
                _mm256_blendv_ps(x, _mm256_and_ps(x, _mm256_set1_ps(-0.0)), tiny)
            };
            Pair(half(self.0), half(self.1))
        }
    }
    #[inline(always)]
    unsafe fn scale(self, n: Self) -> Self {
        unsafe {
            let power = |n| _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(n, _mm256_set1_epi32(127))));
            let half = |x, n| {
                let n = _mm256_cvtps_epi32(n);
                let first = _mm256_srai_epi32::<1>(n);
                _mm256_mul_ps(_mm256_mul_ps(x, power(first)), power(_mm256_sub_epi32(n, first)))
            };
            Pair(half(self.0, n.0), half(self.1, n.1))
        }
    }
    #[inline(always)]
    unsafe fn int_at_most(self, b: Self) -> Self::Mask {
        unsafe {
            let ones = _mm256_castsi256_ps(_mm256_set1_epi32(-1));
            let (low, high) = b.int_less(self);
            (_mm256_xor_ps(low, ones), _mm256_xor_ps(high, ones))
        }
    }
    #[inline(always)]
    unsafe fn int_less(self, b: Self) -> Self::Mask {
        unsafe {
            let half = |a, b| _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_castps_si256(b), _mm256_castps_si256(a)));
            (half(self.0, b.0), half(self.1, b.1))
        }
    }
    #[inline(always)]
    unsafe fn int_nonzero(self) -> Self::Mask {
        unsafe {
            let half = |x: __m256| {
                let zero = _mm256_cmpeq_epi32(_mm256_castps_si256(x), _mm256_setzero_si256());
                _mm256_castsi256_ps(_mm256_xor_si256(zero, _mm256_set1_epi32(-1)))
            };
            (half(self.0), half(self.1))
        }
    }
    #[inline(always)]
    unsafe fn int_add(self, b: Self) -> Self {
        unsafe {
            let half = |a, b| _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
            Pair(half(self.0, b.0), half(self.1, b.1))
        }
    }
    #[inline(always)]
    unsafe fn to_int(self) -> Self {
        unsafe {
            let half = |x: __m256| {
                // What does not fit becomes the least integer, which is right below; above, its complement is.
                let above = _mm256_cmp_ps::<_CMP_GE_OQ>(x, _mm256_set1_ps(2_147_483_648.0));
                let number = _mm256_cmp_ps::<_CMP_ORD_Q>(x, x);
                let ints = _mm256_castsi256_ps(_mm256_cvttps_epi32(x));
                _mm256_and_ps(_mm256_xor_ps(ints, above), number)
            };
            Pair(half(self.0), half(self.1))
        }
    }
    #[inline(always)]
    unsafe fn choose(mask: Self::Mask, a: Self, b: Self) -> Self {
        unsafe { Pair(_mm256_blendv_ps(b.0, a.0, mask.0), _mm256_blendv_ps(b.1, a.1, mask.1)) }
    }
    #[inline(always)]
    unsafe fn truth(mask: Self::Mask) -> Self {
        unsafe {
            let one = _mm256_castsi256_ps(_mm256_set1_epi32(1));
            Pair(_mm256_and_ps(mask.0, one), _mm256_and_ps(mask.1, one))
        }
    }
    #[inline(always)]
    unsafe fn tree<F: super::simd::Function<Self>>(self) -> f32 {
        unsafe {
            let x = F::call(self, Pair(self.1, self.1));
            let x = F::call(x, Pair(_mm256_permute2f128_ps::<0x11>(x.0, x.0), x.1));
            let x = F::call(x, Pair(_mm256_permute_ps::<0b00_00_11_10>(x.0), x.1));
            let x = F::call(x, Pair(_mm256_permute_ps::<0b00_00_00_01>(x.0), x.1));
            _mm256_cvtss_f32(x.0)
        }
    }
}
