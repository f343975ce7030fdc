//! Ways to sum codes times activations: which instructions take a quad of codes (unsigned bytes) and four activations of a row.
//!
//! Codes are taken with their format's offset, so that none is negative; a sum starts from -offset times the sum of q. That is
//! exact: no sum here comes near 2^31.
//! Read next: `x86`.

#![allow(unsafe_op_in_unsafe_fn, clippy::missing_safety_doc)]

use std::arch::x86_64::*;
use std::marker::PhantomData;

use crate::micro::vectors::{Vector, Vnni};
use crate::storage::integers::QUADS as ALL;

/// Where the activations of a row and a block are: the bytes hi and lo; or, if the way joins them, pairs of 16 bits of the even k
/// of each quad, and of its odd k.
#[derive(Clone, Copy)]
pub struct Row {
    pub hi: *const u8,
    pub lo: *const u8,
}

impl Row {
    /// The word of a quad in every word of a vector.
    #[inline(always)]
    unsafe fn splat<V: Vector>(at: *const u8, quad: usize) -> V {
        V::splat(at.cast::<i32>().add(quad).read_unaligned())
    }
}

/// # Safety
/// For every method: the instruction set is present, and pointers are valid for what is read or written.
pub trait Way {
    type V: Vector;
    /// A quad, ready to be multiplied.
    type Codes: Copy;
    /// A sum under way.
    type Sum: Copy;
    /// Whether the activations of a block are joined to pairs of 16 bits.
    const JOINS: bool;
    unsafe fn ready(quad: Self::V) -> Self::Codes;
    unsafe fn start(from: i32) -> Self::Sum;
    /// Adds a quad, whose number is constant once the method is inlined. Quads come in order, and none is left out.
    unsafe fn step(sum: Self::Sum, codes: Self::Codes, x: Row, quad: usize) -> Self::Sum;
    /// The sum, after a multiple of four quads.
    unsafe fn total(sum: Self::Sum) -> Self::V;
}

/// Bytes by bytes with `vpdpbusd`: activations of 16 bits as two planes.
pub struct Bytes16<V>(PhantomData<V>);

impl<V: Vnni> Way for Bytes16<V> {
    type V = V;
    type Codes = V;
    /// Of the high and of the low bytes.
    type Sum = [V; 2];
    const JOINS: bool = false;
    #[inline(always)]
    unsafe fn ready(quad: V) -> V {
        quad
    }
    #[inline(always)]
    unsafe fn start(from: i32) -> [V; 2] {
        [V::zero(), V::splat(from)]
    }
    #[inline(always)]
    unsafe fn step([hi, lo]: [V; 2], codes: V, x: Row, quad: usize) -> [V; 2] {
        [hi.dot(codes, Row::splat(x.hi, quad)), lo.dot(codes, Row::splat(x.lo, quad))]
    }
    #[inline(always)]
    unsafe fn total([hi, lo]: [V; 2]) -> V {
        hi.left(8).add(lo)
    }
}

/// Bytes by bytes with `vpdpbusd`, for activations of 8 bits.
pub struct Bytes8<V>(PhantomData<V>);

impl<V: Vnni> Way for Bytes8<V> {
    type V = V;
    type Codes = V;
    type Sum = V;
    const JOINS: bool = false;
    #[inline(always)]
    unsafe fn ready(quad: V) -> V {
        quad
    }
    #[inline(always)]
    unsafe fn start(from: i32) -> V {
        V::splat(from)
    }
    #[inline(always)]
    unsafe fn step(sum: V, codes: V, x: Row, quad: usize) -> V {
        sum.dot(codes, Row::splat(x.hi, quad))
    }
    #[inline(always)]
    unsafe fn total(sum: V) -> V {
        sum
    }
}

/// 16 bits by 16 bits with `vpmaddwd`, for activations of 16 or 8 bits.
pub struct Pairs;

impl Way for Pairs {
    type V = __m256i;
    /// The even codes of a quad, and the odd ones.
    type Codes = [__m256i; 2];
    type Sum = __m256i;
    const JOINS: bool = true;
    #[inline(always)]
    unsafe fn ready(quad: __m256i) -> [__m256i; 2] {
        [_mm256_and_si256(quad, _mm256_set1_epi16(0xff)), _mm256_srli_epi16::<8>(quad)]
    }
    #[inline(always)]
    unsafe fn start(from: i32) -> __m256i {
        _mm256_set1_epi32(from)
    }
    #[inline(always)]
    unsafe fn step(sum: __m256i, [even, odd]: [__m256i; 2], x: Row, quad: usize) -> __m256i {
        let sum = sum.add(_mm256_madd_epi16(even, Row::splat(x.hi, quad)));
        sum.add(_mm256_madd_epi16(odd, Row::splat(x.lo, quad)))
    }
    #[inline(always)]
    unsafe fn total(sum: __m256i) -> __m256i {
        sum
    }
}

/// Writes a block's activations as pairs of 16 bits: the even k of each quad, then the odd ones.
#[inline(always)]
pub unsafe fn join(hi: *const i8, lo: Option<*const i8>, to: &mut [[u8; 4 * ALL]; 2]) {
    let hi = _mm256_loadu_si256(hi.cast());
    let (even, odd) = match lo {
        Some(lo) => {
            let lo = _mm256_loadu_si256(lo.cast());
            let of_even = _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(lo));
            let even = _mm256_add_epi16(_mm256_slli_epi16::<8>(hi), of_even);
            let odd = _mm256_andnot_si256(_mm256_set1_epi16(0xff), hi);
            (even, _mm256_add_epi16(odd, _mm256_srai_epi16::<8>(lo)))
        }
        None => (_mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(hi)), _mm256_srai_epi16::<8>(hi)),
    };
    even.store(to[0].as_mut_ptr());
    odd.store(to[1].as_mut_ptr());
}

/// Bytes by bytes with `vpmaddubsw`, for activations of 8 bits: the sums of `QUADS` quads have 16 bits, so the largest code times
/// 2 * 127 * `QUADS` must be below 2^15.
pub struct Sixteen<const QUADS: usize>;

impl<const QUADS: usize> Way for Sixteen<QUADS> {
    type V = __m256i;
    type Codes = __m256i;
    /// In 16 bits and in 32.
    type Sum = [__m256i; 2];
    const JOINS: bool = false;
    #[inline(always)]
    unsafe fn ready(quad: __m256i) -> __m256i {
        quad
    }
    #[inline(always)]
    unsafe fn start(from: i32) -> [__m256i; 2] {
        [_mm256_setzero_si256(), _mm256_set1_epi32(from)]
    }
    #[inline(always)]
    unsafe fn step([short, long]: [__m256i; 2], codes: __m256i, x: Row, quad: usize) -> [__m256i; 2] {
        let short = _mm256_add_epi16(short, _mm256_maddubs_epi16(codes, Row::splat(x.hi, quad)));
        if QUADS < ALL && (quad + 1).is_multiple_of(QUADS) {
            return [_mm256_setzero_si256(), widened(short, long)];
        }
        [short, long]
    }
    #[inline(always)]
    unsafe fn total([short, long]: [__m256i; 2]) -> __m256i {
        if QUADS < ALL { long } else { widened(short, long) }
    }
}

/// Adds pairs of 16 bits to sums of 32.
#[inline(always)]
unsafe fn widened(short: __m256i, long: __m256i) -> __m256i {
    long.add(_mm256_madd_epi16(short, _mm256_set1_epi16(1)))
}
