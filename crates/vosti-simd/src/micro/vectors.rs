//! Vectors of 256 and 512 bits: words of 32 bits, and as many FP32.
//!
//! Read next: `fused`, `integers`.

#![allow(unsafe_op_in_unsafe_fn, clippy::missing_safety_doc)]

use std::arch::x86_64::*;

/// A vector. Methods are inlined into functions that enable the instruction set.
///
/// # Safety
/// For every method: the instruction set is present, and pointers are valid for what is read or written.
pub trait Vector: Copy {
    type Floats: Copy;
    /// Words of 32 bits.
    const WORDS: usize;
    unsafe fn zero() -> Self;
    unsafe fn splat(word: i32) -> Self;
    /// The same 16 bytes again and again.
    unsafe fn splat_table(table: &[u8; 16]) -> Self;
    unsafe fn load(at: *const u8) -> Self;
    unsafe fn store(self, at: *mut u8);
    unsafe fn and(self, other: Self) -> Self;
    unsafe fn or(self, other: Self) -> Self;
    /// Shifts words. The number of bits is a constant once the method is inlined.
    unsafe fn left(self, bits: usize) -> Self;
    /// Shifts words, and zeros come in. As [`Vector::left`].
    unsafe fn right(self, bits: usize) -> Self;
    /// The bytes of a table of 16, which bytes below 16 select.
    unsafe fn look_up(self, table: Self) -> Self;
    /// Adds words.
    unsafe fn add(self, other: Self) -> Self;
    /// Words as FP32, to nearest even.
    unsafe fn floats(self) -> Self::Floats;
    unsafe fn splat_float(x: f32) -> Self::Floats;
    unsafe fn load_floats(at: *const f32) -> Self::Floats;
    unsafe fn store_floats(x: Self::Floats, at: *mut f32);
    /// FP16 as FP32.
    unsafe fn load_halves(at: *const u8) -> Self::Floats;
    /// Signed bytes as FP32.
    unsafe fn load_bytes(at: *const u8) -> Self::Floats;
    unsafe fn mul(x: Self::Floats, y: Self::Floats) -> Self::Floats;
    /// The odd and the even elements of pairs of BF16, one pair for each word.
    unsafe fn pairs(at: *const u16) -> [Self::Floats; 2];
    /// `x y + z`.
    unsafe fn fma(x: Self::Floats, y: Self::Floats, z: Self::Floats) -> Self::Floats;
    /// `-x y + z`.
    unsafe fn fma_negative(x: Self::Floats, y: Self::Floats, z: Self::Floats) -> Self::Floats;
}

/// A vector with `vpdpbusd`.
pub trait Vnni: Vector {
    /// To each word, the products of its four bytes: unsigned codes by signed `x`.
    unsafe fn dot(self, codes: Self, x: Self) -> Self;
}

/// Methods that are inlined into functions with the instruction set.
macro_rules! methods {
    ($($name:ident($($argument:tt)*) $(-> $result:ty)? = $body:expr;)*) => {$(
        #[inline(always)]
        unsafe fn $name($($argument)*) $(-> $result)? {
            $body
        }
    )*};
}

impl Vector for __m256i {
    type Floats = __m256;
    const WORDS: usize = 8;
    methods! {
        zero() -> Self = _mm256_setzero_si256();
        splat(word: i32) -> Self = _mm256_set1_epi32(word);
        splat_table(table: &[u8; 16]) -> Self = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
        load(at: *const u8) -> Self = _mm256_loadu_si256(at.cast());
        store(self, at: *mut u8) = _mm256_storeu_si256(at.cast(), self);
        and(self, other: Self) -> Self = _mm256_and_si256(self, other);
        or(self, other: Self) -> Self = _mm256_or_si256(self, other);
        left(self, bits: usize) -> Self = _mm256_sll_epi32(self, _mm_cvtsi32_si128(bits as i32));
        right(self, bits: usize) -> Self = _mm256_srl_epi32(self, _mm_cvtsi32_si128(bits as i32));
        look_up(self, table: Self) -> Self = _mm256_shuffle_epi8(table, self);
        add(self, other: Self) -> Self = _mm256_add_epi32(self, other);
        floats(self) -> __m256 = _mm256_cvtepi32_ps(self);
        splat_float(x: f32) -> __m256 = _mm256_set1_ps(x);
        load_floats(at: *const f32) -> __m256 = _mm256_loadu_ps(at);
        store_floats(x: __m256, at: *mut f32) = _mm256_storeu_ps(at, x);
        load_halves(at: *const u8) -> __m256 = _mm256_cvtph_ps(_mm_loadu_si128(at.cast()));
        load_bytes(at: *const u8) -> __m256 = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(at.cast())));
        pairs(at: *const u16) -> [__m256; 2] = {
            let words = _mm256_loadu_si256(at.cast());
            let odd = _mm256_and_si256(words, _mm256_set1_epi32(0xffff_0000_u32 as i32));
            [_mm256_castsi256_ps(odd), _mm256_castsi256_ps(_mm256_slli_epi32::<16>(words))]
        };
        mul(x: __m256, y: __m256) -> __m256 = _mm256_mul_ps(x, y);
        fma(x: __m256, y: __m256, z: __m256) -> __m256 = _mm256_fmadd_ps(x, y, z);
        fma_negative(x: __m256, y: __m256, z: __m256) -> __m256 = _mm256_fnmadd_ps(x, y, z);
    }
}

impl Vnni for __m256i {
    methods! {
        dot(self, codes: Self, x: Self) -> Self = _mm256_dpbusd_avx_epi32(self, codes, x);
    }
}

impl Vector for __m512i {
    type Floats = __m512;
    const WORDS: usize = 16;
    methods! {
        zero() -> Self = _mm512_setzero_si512();
        splat(word: i32) -> Self = _mm512_set1_epi32(word);
        splat_table(table: &[u8; 16]) -> Self = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
        load(at: *const u8) -> Self = _mm512_loadu_si512(at.cast());
        store(self, at: *mut u8) = _mm512_storeu_si512(at.cast(), self);
        and(self, other: Self) -> Self = _mm512_and_si512(self, other);
        or(self, other: Self) -> Self = _mm512_or_si512(self, other);
        left(self, bits: usize) -> Self = _mm512_sll_epi32(self, _mm_cvtsi32_si128(bits as i32));
        right(self, bits: usize) -> Self = _mm512_srl_epi32(self, _mm_cvtsi32_si128(bits as i32));
        look_up(self, table: Self) -> Self = _mm512_shuffle_epi8(table, self);
        add(self, other: Self) -> Self = _mm512_add_epi32(self, other);
        floats(self) -> __m512 = _mm512_cvtepi32_ps(self);
        splat_float(x: f32) -> __m512 = _mm512_set1_ps(x);
        load_floats(at: *const f32) -> __m512 = _mm512_loadu_ps(at);
        store_floats(x: __m512, at: *mut f32) = _mm512_storeu_ps(at, x);
        load_halves(at: *const u8) -> __m512 = _mm512_cvtph_ps(_mm256_loadu_si256(at.cast()));
        load_bytes(at: *const u8) -> __m512 = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(at.cast())));
        pairs(at: *const u16) -> [__m512; 2] = {
            let words = _mm512_loadu_si512(at.cast());
            let odd = _mm512_and_si512(words, _mm512_set1_epi32(0xffff_0000_u32 as i32));
            [_mm512_castsi512_ps(odd), _mm512_castsi512_ps(_mm512_slli_epi32::<16>(words))]
        };
        mul(x: __m512, y: __m512) -> __m512 = _mm512_mul_ps(x, y);
        fma(x: __m512, y: __m512, z: __m512) -> __m512 = _mm512_fmadd_ps(x, y, z);
        fma_negative(x: __m512, y: __m512, z: __m512) -> __m512 = _mm512_fnmadd_ps(x, y, z);
    }
}

impl Vnni for __m512i {
    methods! {
        dot(self, codes: Self, x: Self) -> Self = dpbusd(self, codes, x);
    }
}

/// `vpdpbusd` in the order in which the code has it. The compiler would move the words of `x` in front of a loop, into more
/// registers than there are.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn dpbusd(mut sum: __m512i, codes: __m512i, x: __m512i) -> __m512i {
    std::arch::asm!(
        "vpdpbusd {sum}, {codes}, {x}",
        sum = inout(zmm_reg) sum,
        codes = in(zmm_reg) codes,
        x = in(zmm_reg) x,
        options(nomem, nostack, preserves_flags)
    );
    sum
}
