//! Compares the definitions with FP64 and with hardware, and checks their edges.

use super::*;

/// A small deterministic generator.
struct Bits(u64);

impl Bits {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }
    /// Any float; denormals, infinities, NaN and the like often.
    fn float(&mut self) -> f32 {
        let bits = self.next();
        f32::from_bits(match self.next() % 8 {
            0 => bits & 0x807f_ffff,                          // denormal or zero
            1 => (bits & 0x80ff_ffff) | (bits & 0x0080_0000), // smallest normals
            2 => bits | 0x7f00_0000,                          // largest, infinity, NaN
            3 => (bits & 0x8000_0000) | 0x3f80_0000,          // one
            _ => bits,
        })
    }
}

fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

#[test]
fn hardware_in_flushing_mode_equals_the_soft_definition() {
    FloatMode::with(|| {
        let mut bits = Bits(1);
        for _ in 0..2_000_000 {
            let [a, b, c] = [bits.float(), bits.float(), bits.float()];
            // Products and sums near the smallest normal number, where flushing decides.
            let near = f32::from_bits((bits.next() & 0x8000_0fff) | 0x0080_0000);
            let pairs = [(a, b, c), (near, b, c), (near, f32::from_bits(0x3f7f_ff00 | bits.next() & 0xff), c)];
            for (a, b, c) in pairs {
                assert!(same(add(a, b), soft::add(a, b)), "{a:e} + {b:e}");
                assert!(same(sub(a, b), soft::sub(a, b)), "{a:e} - {b:e}");
                assert!(same(mul(a, b), soft::mul(a, b)), "{a:e} * {b:e}: {:e}", mul(a, b));
                assert!(same(div(a, b), soft::div(a, b)), "{a:e} / {b:e}");
                assert!(same(fma(a, b, c), soft::fma(a, b, c)), "{a:e} * {b:e} + {c:e}");
                assert!(same(sqrt(a), soft::sqrt(a)), "sqrt {a:e}");
            }
        }
    });
}

#[test]
fn a_result_that_rounds_to_the_smallest_normal_is_kept() {
    let (smallest, one) = (f32::MIN_POSITIVE, f32::from_bits);
    // Exactly 2^-126 - 2^-152 and the like: in the last half ulp below the smallest normal number.
    let (a, b) = (one(0x0080_0001), one(0x3f7f_fffe));
    FloatMode::with(|| {
        let [a, b, smallest] = [a, b, smallest].map(std::hint::black_box);
        for (result, soft) in [
            (mul(a, b), soft::mul(a, b)),
            (mul(-b, a), soft::mul(-b, a)),
            (fma(a, b, 0.0), soft::fma(a, b, 0.0)),
            (fma(-b, a, -0.0), soft::fma(-b, a, -0.0)),
            (fma(smallest, one(0x3280_0000), -smallest), soft::fma(smallest, one(0x3280_0000), -smallest)),
            (dot_bf16_step(-smallest, [0x3300, 0], [0x0080, 0]), -smallest),
        ] {
            assert_eq!(result.to_bits(), soft.to_bits(), "{result:e} {soft:e}");
            assert_eq!(result.abs(), smallest);
        }
        assert_eq!(mul(smallest, 0.5), 0.0);
        assert_eq!(mul(-smallest, 0.5).to_bits(), 0x8000_0000);
    });
}

#[test]
fn what_aarch64_puts_back_is_what_the_definition_keeps() {
    // The result of a processor that flushes before rounding: zero for every exact result below the smallest normal number.
    let before = |result: f32, exact: f64| if exact.abs() < f32::MIN_POSITIVE.into() { 0.0 } else { result };
    let smallest = f64::from(f32::MIN_POSITIVE);
    FloatMode::with(|| {
        let (mut bits, mut kept) = (Bits(3), 0);
        for _ in 0..2_000_000 {
            // Factors whose product is within a few ulp of the smallest normal number.
            let exponent = bits.next() % 125 + 1;
            let a = f32::from_bits(exponent << 23 | bits.next() & 0x007f_ffff | bits.next() & 0x8000_0000);
            let b = soft::round(smallest / f64::from(a)).to_bits().wrapping_add(bits.next() % 3).wrapping_sub(1);
            let b = f32::from_bits(b);
            let exact = f64::from(a) * f64::from(b);
            assert!(same(mul(a, b), soft::mul(a, b)), "{a:e} * {b:e}: {:e}", mul(a, b));
            assert!(same(fma(a, b, 0.0), soft::fma(a, b, 0.0)), "{a:e} * {b:e}: {:e}", fma(a, b, 0.0));
            let product = before(a * b, exact);
            let mended = edge::kept(product, a * edge::UP * b);
            assert!(same(mended, soft::mul(a, b)), "{a:e} * {b:e}: {mended:e}");
            assert!(same(edge::mul(a, b), soft::mul(a, b)) && same(edge::fma(a, b, 0.0), soft::fma(a, b, 0.0)));
            kept += usize::from(mended != product);
            let any = [bits.float(), bits.float(), bits.float()];
            assert!(same(edge::mul(any[0], any[1]), soft::mul(any[0], any[1])), "{any:?}");
            assert!(same(edge::div(any[0], any[1]), soft::div(any[0], any[1])), "{any:?}");
            assert!(same(edge::fma(any[0], any[1], any[2]), soft::fma(any[0], any[1], any[2])), "{any:?}");
        }
        assert!(kept > 10_000, "{kept} products needed it");
    });
}

/// The error of `f` in units of the last place of the exact value.
fn ulps(got: f32, exact: f64) -> f64 {
    let ulp = 2f64.powi((exact.abs().log2().floor() as i32).max(-126) - 23);
    (f64::from(got) - exact).abs() / ulp
}

fn worst(low: f32, high: f32, f: fn(f32) -> f32, exact: fn(f64) -> f64) -> f64 {
    FloatMode::with(|| {
        let steps = 2_000_000;
        let at = |i: i32| low + (high - low) * (i as f32 / steps as f32);
        let errors = (0..=steps).map(|i| ulps(f(at(i)), exact(at(i).into())));
        // NaN stays, and is below no bound.
        errors.fold(0.0, |worst, error| if error > worst || error.is_nan() { error } else { worst })
    })
}

#[test]
fn exponentials_are_within_one_and_a_half_ulp() {
    for (low, high) in [(-87.3, 88.7), (-1.0, 1.0), (-10.0, 0.0)] {
        let error = worst(low, high, math::exp, f64::exp);
        assert!(error < 1.5, "exp on [{low}, {high}]: {error}");
    }
    for (low, high) in [(-125.9, 127.9), (-1.0, 1.0), (-20.0, 0.0)] {
        let error = worst(low, high, math::exp2, f64::exp2);
        assert!(error < 1.5, "exp2 on [{low}, {high}]: {error}");
    }
}

#[test]
fn rsqrt_and_logarithms_are_within_one_ulp() {
    assert!(worst(1e-6, 1e6, math::rsqrt, |x| 1.0 / x.sqrt()) < 1.5);
    assert!(worst(1e-6, 1e6, math::log2, f64::log2) < 0.51);
    assert!(worst(-50.0, 50.0, math::cos, f64::cos) < 0.51);
}

#[test]
fn exponentials_keep_their_exact_values_and_ends() {
    FloatMode::with(|| {
        for n in -126..128 {
            assert_eq!(math::exp2(n as f32), 2f32.powi(n));
        }
        for (f, low, high) in [(math::exp2 as fn(f32) -> f32, -126.01, 128.0), (math::exp, -87.34, 88.73)] {
            // Constants folded by the compiler would not be flushed.
            let f = |x: f32| f(std::hint::black_box(x));
            assert_eq!(f(0.0), 1.0);
            assert_eq!(f(-0.0), 1.0);
            assert_eq!(f(low).to_bits(), 0);
            assert_eq!(f(high), f32::INFINITY);
            assert_eq!(f(f32::NEG_INFINITY).to_bits(), 0);
            assert_eq!(f(f32::INFINITY), f32::INFINITY);
            assert_eq!(f(f32::MAX), f32::INFINITY);
            assert_eq!(f(f32::MIN).to_bits(), 0);
            assert!(f(f32::NAN).is_nan());
            assert_eq!(f(f32::from_bits(1)), 1.0);
        }
    });
}

#[test]
fn bf16_rounds_to_nearest_even_and_flushes() {
    FloatMode::with(|| {
        for bits in 0..=u16::MAX {
            let x = from_bf16(bits);
            let expected = match x {
                _ if x.is_nan() => NAN_BF16,
                _ if bits & 0x7f80 == 0 => bits & 0x8000,
                _ => bits,
            };
            assert_eq!(to_bf16(x), expected);
        }
        let mut random = Bits(7);
        for _ in 0..1_000_000 {
            let x = random.float();
            if x.is_normal() {
                assert_eq!(to_bf16(x), half::bf16::from_f32(x).to_bits(), "{x:e}");
            }
        }
    });
}

#[test]
fn maxima_prefer_numbers_and_then_the_second_operand() {
    let (zero, nan) = (0.0f32, f32::NAN);
    assert_eq!(max_num(zero, -zero).to_bits(), (-zero).to_bits());
    assert_eq!(max_num(-zero, zero).to_bits(), zero.to_bits());
    assert_eq!((max_num(nan, 1.0), max_num(1.0, nan), min_num(nan, 1.0), min_num(1.0, nan)), (1.0, 1.0, 1.0, 1.0));
    assert!(maximum(nan, 1.0).is_nan() && maximum(1.0, nan).is_nan() && minimum(1.0, nan).is_nan());
    assert_eq!(max_num(f32::from_bits(1), -1.0).to_bits(), 0);
}

#[test]
fn a_reduction_folds_sixteen_lanes_and_then_a_tree() {
    let text = |n: usize| reduce(n, |i| i as u32 + 1, |a, b| a.wrapping_mul(1000) ^ b.wrapping_mul(7));
    let by_hand = |n: usize| {
        let op = |a: u32, b: u32| a.wrapping_mul(1000) ^ b.wrapping_mul(7);
        let mut lanes: Vec<u32> =
            (0..n.min(16)).map(|l| (l..n).step_by(16).map(|i| i as u32 + 1).reduce(op).unwrap()).collect();
        for step in [8, 4, 2, 1] {
            for l in 0..lanes.len().saturating_sub(step).min(step) {
                lanes[l] = op(lanes[l], lanes[l + step]);
            }
        }
        lanes[0]
    };
    for n in 1..80 {
        assert_eq!(text(n), by_hand(n), "{n}");
    }
}

#[test]
fn dot_adds_the_odd_k_of_a_pair_first() {
    FloatMode::with(|| {
        let (a, b) = ([1.0, 1.0], [1.0, 1e8]);
        let mut acc = [-1e8];
        dot(&mut acc, &a, &b, [1, 2, 1], true);
        assert_eq!(acc, [1.0]);
        let mut acc = [-1e8];
        dot(&mut acc, &a, &b, [1, 2, 1], false);
        assert_eq!(acc, [0.0]); // -1e8 + 1 rounds back to -1e8
    });
}

#[test]
fn the_mode_ends_with_its_guard() {
    let half_of = |x: f32| std::hint::black_box(x) * std::hint::black_box(0.5);
    let before = half_of(f32::MIN_POSITIVE);
    assert_eq!(FloatMode::with(|| half_of(f32::MIN_POSITIVE)), 0.0);
    assert!(before > 0.0 && half_of(f32::MIN_POSITIVE) == before);
}
