//! The exponential that sampling uses: plain f32 multiplications and additions in a fixed order, so it gives the same bits on
//! every platform, with every vector width. `f32::exp` is never used: its bits depend on the platform.

use vosti_core::Draw;

/// Below this, `exp_negative` is 0: the weight is less than 2^-57 of the largest and cannot move a draw of 53 bits.
pub const CUTOFF: f32 = -40.0;

/// e^x for x <= 0 (0 below `CUTOFF`), within 2e-7 relative. x = n ln 2 + r with |r| <= ln 2 / 2; e^r by the
/// polynomial of Cephes' `expf` (S. Moshier), n by the exponent bits.
#[inline(always)]
pub fn exp_negative(x: f32) -> f32 {
    // Adding and subtracting 1.5 * 2^23 rounds to the nearest integer.
    const ROUND: f32 = 12_582_912.0;
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let clamped = if x > CUTOFF { x } else { CUTOFF };
    let rounded = clamped * std::f32::consts::LOG2_E + ROUND;
    let n = rounded - ROUND;
    let r = (clamped - n * LN2_HIGH) - n * LN2_LOW;
    let mut p = 1.987_569_1e-4;
    p = p * r + 1.398_199_9e-3;
    p = p * r + 8.333_452e-3;
    p = p * r + 4.166_579_6e-2;
    p = p * r + 0.166_666_66;
    p = p * r + 0.500_000_06;
    let e_r = p * (r * r) + r + 1.0;
    // The integer is in the low bits of `rounded`. A cast from float would not be vectorised.
    let exponent = rounded.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127);
    let scale = f32::from_bits(exponent << 23);
    // Also false for NaN: a NaN has no weight.
    if x >= CUTOFF { e_r * scale } else { 0.0 }
}

/// Compiles a function for each vector unit of x86-64 too, and calls the version for the widest unit of this machine. Each
/// version does the same multiplications and additions in the same order, so all give the same bits.
macro_rules! widest {
    ($(#[$about:meta])* $access:vis fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block) => {
        $(#[$about])*
        $access fn $name($($argument: $type),*) $(-> $result)? {
            #[inline(always)]
            fn plain($($argument: $type),*) $(-> $result)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f")]
                fn avx512($($argument: $type),*) $(-> $result)? {
                    plain($($argument),*)
                }
                #[target_feature(enable = "avx2")]
                fn avx2($($argument: $type),*) $(-> $result)? {
                    plain($($argument),*)
                }
                if is_x86_feature_detected!("avx512f") {
                    // SAFETY: the machine has what the function is compiled for.
                    return unsafe { avx512($($argument),*) };
                }
                if is_x86_feature_detected!("avx2") {
                    // SAFETY: the machine has what the function is compiled for.
                    return unsafe { avx2($($argument),*) };
                }
            }
            plain($($argument),*)
        }
    };
}

/// Lanes of the sums below. They are part of the sums' definition, and enough for every vector unit.
const LANES: usize = 16;

/// Folds the lanes 8, 4, 2, 1.
#[inline(always)]
fn fold<T: Copy>(mut lanes: [T; LANES], f: impl Fn(T, T) -> T) -> T {
    let mut half = LANES / 2;
    while half > 0 {
        for l in 0..half {
            lanes[l] = f(lanes[l], lanes[l + half]);
        }
        half /= 2;
    }
    lanes[0]
}

widest! {
    /// The largest value, NaN ignored; -inf if there is none.
    pub fn max(values: &[f32]) -> f32 {
        let larger = |a: f32, b: f32| if b > a { b } else { a };
        let mut lanes = [f32::NEG_INFINITY; LANES];
        let (blocks, rest) = values.as_chunks::<LANES>();
        for block in blocks {
            for l in 0..LANES {
                lanes[l] = larger(lanes[l], block[l]);
            }
        }
        for (l, value) in rest.iter().enumerate() {
            lanes[l] = larger(lanes[l], *value);
        }
        fold(lanes, larger)
    }
}

/// A logit as choices compare it: a denormal or -0 is +0, so that processors and GPUs agree in every denormal mode.
fn seen(x: f32) -> f32 {
    if x.abs() < f32::MIN_POSITIVE { 0.0 } else { x }
}

/// The first index whose value is the largest; 0 if every value is NaN. NaN is ignored, and a denormal or -0 counts as +0. This
/// is the rule of greedy choice, here and in the kernel that devices run (`kernels/argmax.py`).
pub fn first_largest(values: &[f32]) -> u32 {
    let largest = seen(max(values));
    values.iter().position(|x| seen(*x) == largest).unwrap_or(0) as u32
}

/// Sum of f(value) in f64: lane l takes values l, l + 16, ..., then the lanes fold 8, 4, 2, 1.
#[inline(always)]
fn sum_of(values: &[f32], f: impl Fn(f32) -> f32) -> f64 {
    let mut lanes = [0.0f64; LANES];
    let (blocks, rest) = values.as_chunks::<LANES>();
    for block in blocks {
        for l in 0..LANES {
            lanes[l] += f64::from(f(block[l]));
        }
    }
    for (l, value) in rest.iter().enumerate() {
        lanes[l] += f64::from(f(*value));
    }
    fold(lanes, |a, b| a + b)
}

widest! {
    /// Sum of e^(x - max) over the values.
    pub fn sum_exp(values: &[f32], max: f32) -> f64 {
        sum_of(values, |x| exp_negative(x - max))
    }
}

/// Logits per sum of [`weigh`]: a part of a draw in two levels, here and in the kernels that devices run (`kernels/draw_part.py`).
pub const PART: usize = 2048;

widest! {
    /// The weight of each logit, e^((logit - largest) * inverse), or 0 if that is less than `least`; and the sum of each
    /// [`PART`] of them.
    pub fn weigh(logits: &[f32], largest: f32, inverse: f32, least: f32, weights: &mut Vec<f32>, sums: &mut Vec<f64>) {
        weights.resize(logits.len(), 0.0);
        sums.clear();
        for (weights, logits) in weights.chunks_mut(PART).zip(logits.chunks(PART)) {
            for (weight, logit) in weights.iter_mut().zip(logits) {
                let e = exp_negative((*logit - largest) * inverse);
                *weight = if e >= least { e } else { 0.0 };
            }
            sums.push(sum_of(weights, |x| x));
        }
    }
}

/// The first token at which the running sum of weights exceeds `target`. If rounding keeps the sum at or below it, the last token with
/// a positive weight.
pub fn walk(tokens: impl Iterator<Item = (u32, f32)>, target: f64) -> Option<u32> {
    let (mut sum, mut last) = (0.0, None);
    for (token, weight) in tokens {
        if weight > 0.0 {
            sum += f64::from(weight);
            last = Some(token);
            if sum > target {
                break;
            }
        }
    }
    last
}

/// Draws in two levels, by two numbers in [0, 1): the first picks a part by the sums that [`weigh`] gives, the second a token in it by
/// its weights. None if no weight is positive.
pub fn walk_parts(weights: &[f32], sums: &[f64], [pick, within]: [f64; 2]) -> Option<u32> {
    let parts = sums.iter().enumerate().map(|(part, sum)| (part as u32, *sum as f32));
    let part = walk(parts, pick * sums.iter().sum::<f64>())? as usize;
    let tokens = weights.iter().enumerate().skip(part * PART).take(PART);
    walk(tokens.map(|(token, weight)| (token as u32, *weight)), within * sums[part])
}

/// The token that a device draws of a row, up to the rounding of its sums. If the largest logit is infinite, it is the first of them.
pub fn drawn_by(row: &[f32], Draw { scale, part, within }: Draw) -> u32 {
    drawn(row, [scale, part, within].map(f32::from_bits))
}

/// The same by numbers.
pub fn drawn(row: &[f32], [scale, pick, within]: [f32; 3]) -> u32 {
    let (mut weights, mut sums) = (Vec::new(), Vec::new());
    weigh(row, max(row), scale * std::f32::consts::LN_2, 0.0, &mut weights, &mut sums);
    walk_parts(&weights, &sums, [pick, within].map(f64::from)).unwrap_or_else(|| first_largest(row))
}

/// The `count` largest values, each with its index: largest first, ties by index. NaN is ignored, and a denormal or -0 is
/// +0. This is the rule of top-k, here and in the kernels that devices run (`kernels/selection.py`).
pub fn top(values: &[f32], count: usize) -> Vec<(u32, f32)> {
    largest(values, count).into_iter().map(|i| (i, seen(values[i as usize]))).collect()
}

/// Values per stretch. `largest` skips a stretch if its maximum is not large enough.
const STRETCH: usize = 256;

/// Indices of the `count` largest values, as [`top`] has them.
pub fn largest(values: &[f32], count: usize) -> Vec<u32> {
    let mut kept: Vec<u32> = Vec::new();
    if count == 0 {
        return kept;
    }
    let value = |i: u32| seen(values[i as usize]);
    let before = |a: &u32, b: &u32| value(*b).total_cmp(&value(*a)).then(a.cmp(b));
    let limit = count.saturating_mul(2).max(64);
    // `count` kept values are at least this, so a later value must be larger: an equal one has a higher index.
    let mut floor: Option<f32> = None;
    for (stretch, some) in values.chunks(STRETCH).enumerate() {
        // Most stretches of a long row have no value above the floor.
        if floor.is_some_and(|floor| seen(max(some)) <= floor) {
            continue;
        }
        for (i, x) in some.iter().enumerate() {
            if x.is_nan() || floor.is_some_and(|floor| seen(*x) <= floor) {
                continue;
            }
            kept.push((stretch * STRETCH + i) as u32);
            if kept.len() >= limit {
                kept.select_nth_unstable_by(count - 1, before);
                kept.truncate(count);
                floor = Some(value(kept[count - 1]));
            }
        }
    }
    kept.sort_unstable_by(before);
    kept.truncate(count);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_close_to_the_real_one_and_never_rises_above_one() {
        let mut worst = 0.0f64;
        for i in 0..=4_000_000u32 {
            let x = -(i as f32) * 1e-5;
            let exact = libm::exp(f64::from(x));
            worst = worst.max((f64::from(exp_negative(x)) - exact).abs() / exact);
            assert!(exp_negative(x) <= 1.0);
        }
        assert!(worst < 2e-7, "relative error {worst}");
    }

    #[test]
    fn exp_has_its_edges() {
        assert_eq!(exp_negative(0.0), 1.0);
        assert_eq!(exp_negative(-0.0), 1.0);
        assert_eq!(exp_negative(CUTOFF - 1.0), 0.0);
        assert_eq!(exp_negative(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp_negative(f32::NAN), 0.0);
    }

    #[test]
    fn max_ignores_nan_and_sees_the_ragged_end() {
        let mut values = vec![-1.0f32; 37];
        values[3] = f32::NAN;
        values[36] = 2.0;
        assert_eq!(max(&values), 2.0);
        assert_eq!(max(&[]), f32::NEG_INFINITY);
    }

    #[test]
    fn the_first_largest_is_that_of_a_plain_walk() {
        const STRANGE: [f32; 8] =
            [f32::NAN, f32::NEG_INFINITY, f32::INFINITY, -0.0, 0.0, 1e-45, -1e-45, f32::MIN_POSITIVE];
        let seen = |x: f32| if x.is_subnormal() { 0.0 } else { x };
        let walk = |values: &[f32]| {
            let mut best = 0;
            for (i, x) in values.iter().enumerate() {
                // False for NaN on the right; a NaN on the left gives way to any number.
                if seen(*x) > seen(values[best]) || values[best].is_nan() && !x.is_nan() {
                    best = i;
                }
            }
            best as u32
        };
        for len in [1, 2, 15, 16, 17, 100] {
            for seed in 0..200usize {
                let value = |i: usize| match (i * 31 + seed * 17 + i * i) % (9 + seed % 7) {
                    n @ 0..8 => STRANGE[n],
                    n => n as f32 - 11.0,
                };
                let values: Vec<f32> = (0..len).map(value).collect();
                assert_eq!(first_largest(&values), walk(&values), "{values:?}");
            }
        }
        assert_eq!(first_largest(&[f32::NAN; 20]), 0);
        assert_eq!(first_largest(&[f32::NAN, f32::NEG_INFINITY]), 1);
        assert_eq!(first_largest(&[-1.0, -1e-45, 0.0, 1e-45]), 1);
        assert_eq!(first_largest(&[0.0, f32::MIN_POSITIVE]), 1);
    }

    #[test]
    fn the_largest_are_those_of_a_sort_with_ties_by_index() {
        for count in [0, 1, 5, 64, 200, 999, 2_000] {
            let mut values: Vec<f32> = (0..1_000).map(|i| ((i * 7919) % 83) as f32 - 40.0).collect();
            (values[10], values[20], values[30], values[31]) = (f32::NAN, -0.0, f32::NEG_INFINITY, -1e-45);
            let mut sorted: Vec<u32> = (0..1_000).filter(|i| *i != 10).collect();
            sorted.sort_by(|a, b| seen(values[*b as usize]).total_cmp(&seen(values[*a as usize])));
            sorted.truncate(count);
            assert_eq!(largest(&values, count), sorted, "count {count}");
        }
    }

    #[test]
    fn the_sum_is_that_of_a_plain_loop() {
        let values: Vec<f32> = (0..1003).map(|i| ((i * 37 % 101) as f32) * 0.1).collect();
        let top = max(&values);
        let plain: f64 = values.iter().map(|v| libm::exp(f64::from(*v - top))).sum();
        assert!((sum_exp(&values, top) - plain).abs() < 1e-5 * plain);
    }

    #[test]
    fn weights_are_those_of_a_plain_loop_and_sums_those_of_their_blocks() {
        for len in [0, 1, 15, 1023, 1024, 1025, 5000] {
            let logits: Vec<f32> = (0..len).map(|i| ((i * 37 % 1009) as f32) * 0.02 - 9.0).collect();
            let (mut weights, mut sums) = (vec![7.0; 3], vec![1.0]);
            weigh(&logits, 11.2, 0.7, 0.01, &mut weights, &mut sums);
            let weight = |x: &f32| Some(exp_negative((x - 11.2) * 0.7)).filter(|e| *e >= 0.01).unwrap_or(0.0);
            let plain: Vec<f32> = logits.iter().map(weight).collect();
            assert_eq!(weights, plain, "the same bits, by whatever vector unit");
            let of = |block: &[f32]| block.iter().map(|w| f64::from(*w)).sum::<f64>();
            let blocks: Vec<f64> = plain.chunks(PART).map(of).collect();
            assert_eq!(sums.len(), blocks.len());
            assert!(sums.iter().zip(blocks).all(|(a, b)| (a - b).abs() <= 1e-12 * b), "{sums:?}");
        }
    }

    /// The largest number that stands in a draw.
    const LAST: f32 = 1.0 - 1.0 / (1u32 << 24) as f32;

    #[test]
    fn a_draw_at_the_ends_of_its_numbers_is_of_the_first_or_the_last_token_with_a_weight() {
        let none = f32::NEG_INFINITY;
        let mut row = vec![none; 3 * PART + 5];
        for token in [PART + 3, PART + 7, 2 * PART, 3 * PART - 1] {
            row[token] = 1.0;
        }
        row[2 * PART + 1] = f32::NAN;
        let ends = |row: &[f32]| {
            let at = |pick: f32, within: f32| drawn(row, [1.0, pick, within]) as usize;
            [at(0.0, 0.0), at(0.0, LAST), at(LAST, 0.0), at(LAST, LAST)]
        };
        assert_eq!(ends(&row), [PART + 3, PART + 7, 2 * PART, 3 * PART - 1]);
        row[3 * PART + 4] = 1.0;
        assert_eq!(ends(&row)[3], 3 * PART + 4, "the last part is shorter");
        assert_eq!(ends(&[7.0]), [0; 4]);
        assert_eq!(ends(&[f32::NAN, 7.0]), [1; 4]);
        assert_eq!(ends(&[f32::NAN, none, -7.0, none]), [2; 4]);
        assert_eq!(ends(&[0.0, f32::INFINITY, f32::INFINITY]), [1; 4], "the first of the largest");
        for row in [&[][..], &[f32::NAN; 3], &[none; 3]] {
            assert_eq!(ends(row), [0; 4]);
        }
        assert_eq!(walk_parts(&[0.0; 9], &[0.0], [0.5, 0.5]), None, "no token has a weight");
    }

    #[test]
    fn the_first_number_picks_a_part_and_the_second_a_token_in_it() {
        let mut row = vec![f32::NEG_INFINITY; 2 * PART];
        // A quarter and three quarters of the weight; in the second part a third and two.
        (row[5], row[PART], row[PART + 9]) = (0.0, 0.0, libm::logf(2.0));
        let at = |pick, within| drawn(&row, [std::f32::consts::LOG2_E, pick, within]) as usize;
        for within in [0.0, 0.5, LAST] {
            assert_eq!((at(0.0, within), at(0.2499, within)), (5, 5));
        }
        for pick in [0.2501, 0.7, LAST] {
            assert_eq!((at(pick, 0.0), at(pick, 0.3332)), (PART, PART));
            assert_eq!((at(pick, 0.3335), at(pick, LAST)), (PART + 9, PART + 9));
        }
    }

    #[test]
    fn draws_by_a_grid_of_numbers_follow_the_softmax() {
        const N: usize = 256;
        let noise = |i: usize| (i as u32).wrapping_mul(2_654_435_761) >> 8;
        let row: Vec<f32> = (0..2 * PART + 900).map(|i| noise(i) as f32 / (1 << 21) as f32).collect();
        let temperature = 0.7;
        let (mut weights, mut sums) = (Vec::new(), Vec::new());
        weigh(&row, max(&row), 1.0 / temperature, 0.0, &mut weights, &mut sums);
        let mut counts = vec![0usize; row.len()];
        let number = |i: usize| (i as f64 + 0.5) / N as f64;
        for (i, j) in (0..N).flat_map(|i| (0..N).map(move |j| (i, j))) {
            counts[walk_parts(&weights, &sums, [number(i), number(j)]).unwrap() as usize] += 1;
        }
        let exact: Vec<f64> = row.iter().map(|x| libm::exp(f64::from(*x) / f64::from(temperature))).collect();
        let all: f64 = exact.iter().sum();
        for (part, (weights, counts)) in exact.chunks(PART).zip(counts.chunks(PART)).enumerate() {
            let sum: f64 = weights.iter().sum();
            for (token, (weight, count)) in weights.iter().zip(counts).enumerate() {
                // Both numbers of a grid are right to one step.
                let (of_part, of_token, step) = (sum / all, weight / sum, 1.0 / N as f64);
                let near = (of_part + of_token + step) * step;
                let (share, expected) = (*count as f64 / (N * N) as f64, of_part * of_token);
                assert!((share - expected).abs() <= near, "part {part}, token {token}: {share} for {expected}");
            }
        }
    }
}
