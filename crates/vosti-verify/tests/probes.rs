//! Tries to break, on the CPU's numbers, each assumption that certificates list. What the plain
//! interpreter computes is what the CPU device computes, bit for bit; on a GPU these have not run.

use vosti_tile::numerics::{FloatMode, add, dot, fma, from_bf16, math, mul, reduce, to_bf16};
use vosti_verify::replay::Random;

const ROUNDS: usize = 300;

fn number(random: &mut Random) -> f32 {
    let x = (random.draw() >> 40) as f32 / (1u64 << 24) as f32 * 4.0 - 2.0;
    match random.below(12) {
        0 => 0.0,
        1 => -0.0,
        2 => x * 1e-30,
        3 => x * 1e30,
        4 => f32::MIN_POSITIVE * x,
        _ => x,
    }
}

fn numbers(random: &mut Random, n: usize, bf16: bool) -> Vec<f32> {
    (0..n).map(|_| number(random)).map(|x| if bf16 { from_bf16(to_bf16(x)) } else { x }).collect()
}

fn wild(random: &mut Random) -> f32 {
    [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 3e38, -0.0][random.below(5)]
}

fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

/// One lane of a dot: its row, its column, and what it starts from.
struct Lane<'a> {
    a: &'a [f32],
    b: &'a [f32],
    acc: f32,
    pairs: bool,
}

/// The lane computed in row `at` of a tile of `rows` rows, everything else wild.
fn dot_lane(random: &mut Random, lane: &Lane, rows: usize, at: usize, column: usize) -> f32 {
    let (k, n) = (lane.a.len(), 16);
    let mut left: Vec<f32> = (0..rows * k).map(|_| wild(random)).collect();
    left[at * k..][..k].copy_from_slice(lane.a);
    let mut right: Vec<f32> = (0..k * n).map(|_| wild(random)).collect();
    (0..k).for_each(|i| right[i * n + column] = lane.b[i]);
    let mut sums: Vec<f32> = (0..rows * n).map(|_| wild(random)).collect();
    sums[at * n + column] = lane.acc;
    dot(&mut sums, &left, &right, [rows, k, n], lane.pairs);
    sums[at * n + column]
}

#[test]
fn dot_is_lane_local_row_uniform_and_height_independent() {
    FloatMode::with(|| {
        let mut random = Random(1);
        for round in 0..ROUNDS {
            let pairs = round % 2 == 0;
            let (a, b) = (numbers(&mut random, 64, pairs), numbers(&mut random, 64, pairs));
            let acc = number(&mut random);
            let (row, column, other) = (random.below(16), random.below(16), random.below(64));
            let lane = Lane { a: &a, b: &b, acc, pairs };
            let x = dot_lane(&mut random, &lane, 16, row, column);
            let y = dot_lane(&mut random, &lane, 64, other, column);
            assert!(same(x, y), "{x:e} in row {row} of 16, {y:e} in row {other} of 64");
        }
    });
}

#[test]
fn masked_lanes_of_a_dot_change_at_most_the_sign_of_a_zero() {
    FloatMode::with(|| {
        let mut random = Random(2);
        let mut signs = 0;
        for round in 0..ROUNDS * 4 {
            let pairs = round % 2 == 0;
            let (mut a, mut b) = (numbers(&mut random, 32, pairs), numbers(&mut random, 32, pairs));
            // The accumulator underflowed to -0, is -0, or is anything.
            let acc = [-0.0, mul(-1e-30, 1e-30), number(&mut random)][random.below(3)];
            if random.below(2) == 0 {
                a.iter_mut().for_each(|x| *x *= 1e-25);
                b.iter_mut().for_each(|x| *x *= 1e-25);
            }
            let mut other = b.clone();
            for i in 0..32 {
                if random.below(2) == 0 {
                    a[i] = 0.0;
                    other[i] = numbers(&mut random, 1, pairs)[0];
                }
            }
            let x = dot_lane(&mut random, &Lane { a: &a, b: &b, acc, pairs }, 16, 3, 5);
            let y = dot_lane(&mut random, &Lane { a: &a, b: &other, acc, pairs }, 16, 9, 5);
            assert!(same(x, y) || (x == 0.0 && y == 0.0), "{x:e} and {y:e}");
            signs += usize::from(!same(x, y));
            assert!(same(add(x, 0.0), add(y, 0.0)), "adding +0 makes them one");
        }
        assert!(signs > 0, "the probe never saw a sign differ: it probes nothing");
    });
}

#[test]
fn reduce_is_lane_local_and_row_uniform() {
    FloatMode::with(|| {
        let mut random = Random(3);
        for round in 0..ROUNDS {
            let n = [16, 40, 64, 7][round % 4];
            let row = numbers(&mut random, n, false);
            let tile = |random: &mut Random, rows: usize, at: usize| {
                let mut tile: Vec<f32> = (0..rows * n).map(|_| wild(random)).collect();
                tile[at * n..][..n].copy_from_slice(&row);
                reduce(n, |i| tile[at * n + i], add)
            };
            let (x, y) = (tile(&mut random, 4, 1), tile(&mut random, 64, 50));
            assert!(same(x, y), "{x:e} and {y:e}");
        }
    });
}

#[test]
fn exponentials_of_minus_infinity_are_plus_zero() {
    FloatMode::with(|| {
        // Hidden from the compiler, which folds constants without flushing.
        let low = std::hint::black_box(f32::NEG_INFINITY);
        for x in [math::exp(low), math::exp2(low)] {
            assert_eq!(x.to_bits(), 0);
        }
        for y in [f32::INFINITY, f32::NAN, 0.0, 1e38, f32::NEG_INFINITY] {
            let x = math::exp2(vosti_tile::numerics::sub(low, y));
            assert!(x.to_bits() == 0 || x.is_nan());
        }
    });
}

#[test]
fn nan_payloads_are_not_observed() {
    FloatMode::with(|| {
        let nans = [0x7fc0_0000u32, 0xffc0_0001, 0x7f80_0001].map(f32::from_bits);
        for x in nans {
            assert!(fma(x, 1.0, 0.0).is_nan() && x.partial_cmp(&1.0).is_none());
            assert_eq!(vosti_tile::numerics::stored_f32(x), vosti_tile::numerics::NAN_F32);
        }
    });
}
