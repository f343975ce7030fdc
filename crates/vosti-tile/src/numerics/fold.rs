//! The order of every sum: `dot` along k, `reduce` along an axis.

use super::{fma, from_bf16};

/// Lanes that a reduction keeps apart until its end.
pub const LANES: usize = 16;

/// Two terms of a BF16 dot: element 0 has the even k, element 1 the odd k, which is added first.
#[inline(always)]
pub fn dot_bf16_step(acc: f32, a: [u16; 2], b: [u16; 2]) -> f32 {
    fma(from_bf16(a[0]), from_bf16(b[0]), fma(from_bf16(a[1]), from_bf16(b[1]), acc))
}

/// One term of an FP32 dot.
#[inline(always)]
pub fn dot_f32_step(acc: f32, a: f32, b: f32) -> f32 {
    fma(a, b, acc)
}

/// `acc += a b` for row-major tiles `a[m, k]`, `b[k, n]`, `acc[m, n]`. With `pairs` (BF16), k must be even
/// and ascends by two, the odd k first; otherwise k ascends by one. Panics if a length does not fit.
pub fn dot(acc: &mut [f32], a: &[f32], b: &[f32], [m, k, n]: [usize; 3], pairs: bool) {
    assert!(acc.len() == m * n && a.len() == m * k && b.len() == k * n && (!pairs || k % 2 == 0));
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("fma") {
        // SAFETY: the feature was detected.
        return unsafe { dot_with_fma(acc, a, b, [m, k, n], pairs) };
    }
    dot_in_order(acc, a, b, [m, k, n], pairs)
}

/// The same code, compiled for hardware FMA, which rounds once as the portable function does.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "fma")]
fn dot_with_fma(acc: &mut [f32], a: &[f32], b: &[f32], sizes: [usize; 3], pairs: bool) {
    dot_in_order(acc, a, b, sizes, pairs)
}

#[inline(always)]
fn dot_in_order(acc: &mut [f32], a: &[f32], b: &[f32], [m, k, n]: [usize; 3], pairs: bool) {
    for i in 0..m {
        let (a, acc) = (&a[i * k..][..k], &mut acc[i * n..][..n]);
        if !pairs {
            for (t, x) in a.iter().enumerate() {
                for (c, y) in acc.iter_mut().zip(&b[t * n..][..n]) {
                    *c = fma(*x, *y, *c);
                }
            }
            continue;
        }
        for t in (0..k).step_by(2) {
            let (low, high) = (&b[t * n..][..n], &b[(t + 1) * n..][..n]);
            for ((c, lo), hi) in acc.iter_mut().zip(low).zip(high) {
                *c = fma(a[t], *lo, fma(a[t + 1], *hi, *c));
            }
        }
    }
}

/// Folds `x(0), .. x(n - 1)` with `op`; n is at least 1. Lane l folds `x(l), x(l + 16), ..` in order. Then
/// lane l folds lane l + 8, then l + 4, l + 2, l + 1. Lanes without elements are left out.
#[inline(always)]
pub fn reduce<T: Copy>(n: usize, x: impl Fn(usize) -> T, op: impl Fn(T, T) -> T) -> T {
    let mut lanes = [x(0); LANES];
    let live = n.min(LANES);
    for (l, lane) in lanes[..live].iter_mut().enumerate() {
        *lane = x(l);
        let mut i = l + LANES;
        while i < n {
            *lane = op(*lane, x(i));
            i += LANES;
        }
    }
    for step in [8, 4, 2, 1] {
        for l in 0..step {
            if l + step < live {
                lanes[l] = op(lanes[l], lanes[l + step]);
            }
        }
    }
    lanes[0]
}
