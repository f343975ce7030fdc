//! Tries to break each assumption that certificates list, with every executor of this machine: the plain interpreter, and the
//! CPU device's compiled plans with each instruction set, packed and row-major. No probe has run on a GPU, and certificates
//! say so.

mod probe;

use probe::{
    Executor, Flaw, Map, REDUCTIONS, buffer, dot_kernel, element, elements, executors, kernel, maps, nans, number,
    numbers, operations, reduce_kernel, same, wild,
};
use std::collections::BTreeSet;
use std::panic::catch_unwind;
use vosti_tile::interp::Buffer;
use vosti_tile::lift;
use vosti_verify::Assumption;
use vosti_verify::replay::Random;

const ROUNDS: usize = 60;

/// Each probe is a test that runs it with every executor; [`PROBES`] has all of them by name.
macro_rules! probes {
    ($($name:ident,)*) => {
        mod every_executor {
            $(#[test]
            fn $name() {
                super::executors().into_iter().for_each(super::$name);
            })*
        }
        const PROBES: &[(&str, fn(Executor))] = &[$((stringify!($name), $name)),*];
    };
}

probes! {
    dot_is_lane_local_row_uniform_and_height_independent,
    dot_is_column_uniform_and_width_independent,
    masked_lanes_of_a_dot_change_at_most_the_sign_of_a_zero,
    adding_plus_zero_forgets_the_sign_of_a_zero,
    reduce_is_lane_local_row_uniform_and_height_independent,
    elementwise_operations_give_the_same_bits_in_every_lane_of_every_tile,
    exponentials_of_minus_infinity_are_plus_zero,
    exponentials_of_minus_infinity_less_anything_are_plus_zero_or_nan,
    nan_payloads_are_not_observed,
}

/// One lane of a dot: the row of a, the column of b, and the accumulator's value.
struct Lane<'a> {
    a: &'a [f32],
    b: &'a [f32],
    acc: f32,
    bf16: bool,
}

/// The lane computed in row `at` of a tile of `rows` rows and 16 columns, everything else wild.
fn dot_lane(executor: Executor, random: &mut Random, lane: &Lane, row: [usize; 2], column: usize) -> f32 {
    dot_lane_of(executor, random, lane, row, [16, column])
}

/// The same in a tile of `n` columns.
fn dot_lane_of(
    executor: Executor,
    random: &mut Random,
    lane: &Lane,
    [rows, at]: [usize; 2],
    [n, column]: [usize; 2],
) -> f32 {
    let k = lane.a.len();
    let mut left: Vec<f32> = (0..rows * k).map(|_| wild(random)).collect();
    left[at * k..][..k].copy_from_slice(lane.a);
    let mut right: Vec<f32> = (0..k * n).map(|_| wild(random)).collect();
    (0..k).for_each(|i| right[i * n + column] = lane.b[i]);
    let mut sums: Vec<f32> = (0..rows * n).map(|_| wild(random)).collect();
    sums[at * n + column] = lane.acc;
    let kernel = dot_kernel(rows, k, n, lane.bf16);
    let buffers =
        vec![buffer(left, lane.bf16), buffer(right, lane.bf16), Buffer::F32(sums), Buffer::F32(vec![0.0; rows * n])];
    executor.run(&kernel, buffers)[at * n + column]
}

fn dot_is_lane_local_row_uniform_and_height_independent(executor: Executor) {
    let mut random = Random::new(1);
    for round in 0..ROUNDS {
        let bf16 = round % 2 == 0;
        let (a, b) = (numbers(&mut random, 64, bf16), numbers(&mut random, 64, bf16));
        let acc = number(&mut random);
        let (row, column, other) = (random.below(16), random.below(16), random.below(64));
        let lane = Lane { a: &a, b: &b, acc, bf16 };
        let x = dot_lane(executor, &mut random, &lane, [16, row], column);
        let y = dot_lane(executor, &mut random, &lane, [64, other], column);
        assert!(same(x, y), "{executor:?}: {x:e} in row {row} of 16, {y:e} in row {other} of 64");
    }
}

fn dot_is_column_uniform_and_width_independent(executor: Executor) {
    let mut random = Random::new(6);
    for round in 0..ROUNDS {
        let bf16 = round % 2 == 0;
        let (a, b) = (numbers(&mut random, 64, bf16), numbers(&mut random, 64, bf16));
        let lane = Lane { a: &a, b: &b, acc: number(&mut random), bf16 };
        let (column, other) = (random.below(16), random.below(64));
        let x = dot_lane_of(executor, &mut random, &lane, [16, 5], [16, column]);
        let y = dot_lane_of(executor, &mut random, &lane, [16, 11], [64, other]);
        assert!(same(x, y), "{executor:?}: {x:e} in column {column} of 16, {y:e} in column {other} of 64");
    }
}

fn masked_lanes_of_a_dot_change_at_most_the_sign_of_a_zero(executor: Executor) {
    let mut random = Random::new(2);
    let mut signs = 0;
    for round in 0..ROUNDS * 4 {
        let bf16 = round % 2 == 0;
        let (mut a, mut b) = (numbers(&mut random, 32, bf16), numbers(&mut random, 32, bf16));
        // The accumulator is -0, a negative denormal (which counts as -0), or any number.
        let acc = [-0.0, -1e-42, number(&mut random)][random.below(3)];
        if random.below(2) == 0 {
            a.iter_mut().for_each(|x| *x *= 1e-25);
            b.iter_mut().for_each(|x| *x *= 1e-25);
        }
        if round % 8 == 0 {
            // A sum stays -0 only if every product is -0, which random numbers do not give.
            a.fill(0.0);
            b.iter_mut().for_each(|x| *x = -x.abs());
        }
        let mut other = b.clone();
        for i in 0..32 {
            if random.below(2) == 0 {
                a[i] = 0.0;
                other[i] = numbers(&mut random, 1, bf16)[0];
            }
        }
        let x = dot_lane(executor, &mut random, &Lane { a: &a, b: &b, acc, bf16 }, [16, 3], 5);
        let y = dot_lane(executor, &mut random, &Lane { a: &a, b: &other, acc, bf16 }, [16, 9], 5);
        assert!(same(x, y) || (x == 0.0 && y == 0.0), "{executor:?}: {x:e} and {y:e}");
        signs += usize::from(!same(x, y));
        // Of masked lanes alone the result is the accumulator.
        let z = dot_lane(executor, &mut random, &Lane { a: &[0.0; 32], b: &other, acc, bf16 }, [16, 4], 5);
        assert!(same(z, acc) || (z == 0.0 && acc.abs() < f32::MIN_POSITIVE), "{executor:?}: {z:e} for {acc:e}");
    }
    assert!(signs > 0, "{executor:?}: the probe never saw a sign differ: it probes nothing");
}

fn adding_plus_zero_forgets_the_sign_of_a_zero(executor: Executor) {
    let body = "    %zeros = arith.constant dense<0.000000e+00> : tensor<16xf32>\n    %result = arith.addf %t0, %zeros : tensor<16xf32>\n";
    let kernel = kernel(&[("f32", &[16])], body, ("f32", &[16]));
    let zeros: Vec<f32> = (0..16).map(|i| if i % 2 == 0 { 0.0 } else { -0.0 }).collect();
    let sums = executor.run(&kernel, vec![Buffer::F32(zeros), Buffer::F32(vec![1.0; 16])]);
    assert!(sums.iter().all(|x| x.to_bits() == 0), "{executor:?}: {sums:?}");
}

fn reduce_is_lane_local_row_uniform_and_height_independent(executor: Executor) {
    let mut random = Random::new(3);
    for round in 0..ROUNDS * 2 {
        let n = [16, 64, 128, 32][round % 4];
        let operation = REDUCTIONS[round / 4 % REDUCTIONS.len()];
        let (row, row_of) = (numbers(&mut random, n, false), [random.below(4), random.below(64)]);
        let mut result = |rows: usize, at: usize| {
            let mut tile: Vec<f32> = (0..rows * n).map(|_| wild(&mut random)).collect();
            tile[at * n..][..n].copy_from_slice(&row);
            let buffers = vec![Buffer::F32(tile), Buffer::F32(vec![0.0; rows])];
            executor.run(&reduce_kernel(rows, n, operation), buffers)[at]
        };
        let (x, y) = (result(4, row_of[0]), result(64, row_of[1]));
        assert!(same(x, y), "{executor:?}: {operation} over {n}: {x:e} and {y:e}");
    }
}

fn elementwise_operations_give_the_same_bits_in_every_lane_of_every_tile(executor: Executor) {
    let mut random = Random::new(4);
    let places: [(&[usize], usize); 6] =
        [(&[4], 3), (&[16], 0), (&[16], 15), (&[128], 76), (&[4, 32], 37), (&[16, 4], 2)];
    for map in maps() {
        let kernels = places.map(|(shape, _)| map.kernel(shape));
        for _ in 0..ROUNDS / 4 {
            let operands: Vec<u64> = map.operands.iter().map(|elem| element(&mut random, elem)).collect();
            let values: Vec<f32> = (kernels.iter().zip(places))
                .map(|(kernel, (shape, at))| {
                    let lanes = shape.iter().product();
                    let mut buffers: Vec<Buffer> = (map.operands.iter().zip(&operands))
                        .map(|(elem, own)| {
                            elements(elem, lanes, |lane| if lane == at { *own } else { element(&mut random, elem) })
                        })
                        .collect();
                    buffers.push(elements(map.result, lanes, |_| 0));
                    executor.run(kernel, buffers)[at]
                })
                .collect();
            let equal = values.iter().all(|y| same(*y, values[0]));
            assert!(equal, "{executor:?}: {} of {operands:x?}: {values:?}", map.body);
        }
    }
}

fn exponentials_of_minus_infinity_are_plus_zero(executor: Executor) {
    for operation in ["math.exp", "math.exp2"] {
        let body = format!("    %result = {operation} %t0 : tensor<#f32>\n");
        let map = Map { operands: vec!["f32"], body, result: "f32" };
        for lanes in [4, 16, 64] {
            let buffers = vec![Buffer::F32(vec![f32::NEG_INFINITY; lanes]), Buffer::F32(vec![1.0; lanes])];
            let results = executor.run(&map.kernel(&[lanes]), buffers);
            assert!(results.iter().all(|x| x.to_bits() == 0), "{executor:?}: {operation}: {results:?}");
        }
    }
}

fn exponentials_of_minus_infinity_less_anything_are_plus_zero_or_nan(executor: Executor) {
    let body = "    %d = arith.subf %t0, %t1 : tensor<16xf32>\n    %result = math.exp2 %d : tensor<16xf32>\n";
    let kernel = kernel(&[("f32", &[16]), ("f32", &[16])], body, ("f32", &[16]));
    let anything = [f32::INFINITY, f32::NAN, 0.0, 1e38, f32::NEG_INFINITY, -1e38, f32::MIN_POSITIVE / 2.0, -0.0];
    let right: Vec<f32> = (0..16).map(|i| anything[i % 8]).collect();
    let buffers = vec![Buffer::F32(vec![f32::NEG_INFINITY; 16]), Buffer::F32(right), Buffer::F32(vec![1.0; 16])];
    let results = executor.run(&kernel, buffers);
    assert!(results.iter().all(|x| x.to_bits() == 0 || x.is_nan()), "{executor:?}: {results:?}");
}

/// Each operand is a NaN of another payload in each lane, and the other operand is the same in all lanes: the results are the
/// same, up to payload. So are sums of rows and dots with such NaNs, and the values that a store leaves.
fn nan_payloads_are_not_observed(executor: Executor) {
    let mut random = Random::new(5);
    let lanes = 16;
    let payload = |elem: &str, lane: usize| nans(elem)[lane % nans(elem).len()];
    for map in maps() {
        let kernel = map.kernel(&[lanes]);
        for (at, elem) in map.operands.iter().enumerate().filter(|(_, elem)| !nans(elem).is_empty()) {
            for round in 0..8 {
                let mut buffers: Vec<Buffer> = vec![];
                for (i, other) in map.operands.iter().enumerate() {
                    // The other operand is a number, or a NaN too.
                    let own = if round == 0 { nans(other)[0] } else { element(&mut random, other) };
                    buffers.push(elements(other, lanes, |lane| if i == at { payload(elem, lane) } else { own }));
                }
                buffers.push(elements(map.result, lanes, |_| 0));
                let results = executor.run(&kernel, buffers);
                let equal = results.iter().all(|x| same(*x, results[0]));
                assert!(equal, "{executor:?}: operand {at} of {}: {results:?}", map.body);
            }
        }
    }
    for elem in ["f32", "bf16"] {
        let values = |lane: usize| {
            if lane.is_multiple_of(3) { element(&mut Random::new(lane as u64), elem) } else { payload(elem, lane) }
        };
        let given = elements(elem, lanes, values);
        let own = |lane: usize| match given.bits(lane) as u32 {
            bits if elem == "bf16" => f32::from_bits(bits << 16),
            bits => f32::from_bits(bits),
        };
        let zeros = elements(elem, lanes, |_| 0);
        let stored = executor.run(&kernel(&[(elem, &[lanes])], "", (elem, &[lanes])), vec![given.clone(), zeros]);
        let kept = stored.iter().enumerate().all(|(lane, x)| same(*x, own(lane)));
        assert!(kept, "{executor:?}: {given:?} was stored as {stored:?}");
    }
    for operation in REDUCTIONS {
        let row = numbers(&mut random, lanes, false);
        let cell = |i: usize| if i % lanes == 5 { payload("f32", i / lanes) } else { row[i % lanes].to_bits().into() };
        let buffers = vec![elements("f32", lanes * lanes, cell), Buffer::F32(vec![0.0; lanes])];
        let results = executor.run(&reduce_kernel(lanes, lanes, operation), buffers);
        assert!(results.iter().all(|x| same(*x, results[0])), "{executor:?}: {operation}: {results:?}");
    }
    for bf16 in [true, false] {
        let elem = if bf16 { "bf16" } else { "f32" };
        let cell = |i: usize| if i % lanes == 5 { payload(elem, i / lanes) } else { 0 };
        let right = buffer(vec![1.0; lanes * lanes], bf16);
        let sums = Buffer::F32(vec![0.0; lanes * lanes]);
        let buffers = vec![elements(elem, lanes * lanes, cell), right, sums.clone(), sums];
        let results = executor.run(&dot_kernel(lanes, lanes, lanes, bf16), buffers);
        assert!(results.iter().all(|x| x.is_nan()), "{executor:?}: dot of {elem}: {results:?}");
    }
}

/// The probe that tries to break an assumption, and a flaw that breaks it: a new assumption does not compile without them.
fn probe_of(assumption: Assumption) -> (&'static str, Flaw) {
    let (lanes, columns) =
        ("dot_is_lane_local_row_uniform_and_height_independent", "dot_is_column_uniform_and_width_independent");
    let reduce = "reduce_is_lane_local_row_uniform_and_height_independent";
    match assumption {
        Assumption::ElementwiseUniform => {
            ("elementwise_operations_give_the_same_bits_in_every_lane_of_every_tile", Flaw::Lanes)
        }
        Assumption::DotLaneLocal => (lanes, Flaw::Inputs),
        Assumption::DotRowUniform => (lanes, Flaw::Lanes),
        Assumption::DotColumnUniform => (columns, Flaw::Lanes),
        Assumption::DotHeightIndependent => (columns, Flaw::Above(16 * 16)),
        Assumption::DotMaskedLanes => ("masked_lanes_of_a_dot_change_at_most_the_sign_of_a_zero", Flaw::Inputs),
        Assumption::ReduceLaneLocal => (reduce, Flaw::Inputs),
        Assumption::ReduceRowUniform => (reduce, Flaw::Lanes),
        Assumption::ReduceHeightIndependent => (reduce, Flaw::Above(4)),
        // The probe's two kernels differ in constants and extents, and nobody but an executor lays them out.
        Assumption::TextsLaidOutAlike => (reduce, Flaw::Above(4)),
        Assumption::ExpOfMinusInfinity => ("exponentials_of_minus_infinity_are_plus_zero", Flaw::Lanes),
        Assumption::NanPayload => ("nan_payloads_are_not_observed", Flaw::Payload),
    }
}

#[test]
fn every_assumption_of_a_certificate_has_a_probe_that_notices_when_it_is_broken() {
    let certificates = vosti_verify::record::checked_in().unwrap();
    let assumed: BTreeSet<Assumption> =
        certificates.values().flat_map(|c| &c.assumptions).map(|assumed| assumed.name).collect();
    assert!(assumed.len() >= 10, "{assumed:?}");
    for assumption in assumed {
        let (name, flaw) = probe_of(assumption);
        let (_, probe) = PROBES.iter().find(|(own, _)| *own == name).unwrap_or_else(|| panic!("{name} is no probe"));
        let outcome = catch_unwind(|| probe(Executor::Flawed(flaw)));
        assert!(outcome.is_err(), "{name} does not notice {flaw:?}, which breaks {assumption}");
    }
}

#[test]
fn every_elementwise_operation_and_reduction_of_a_shipped_kernel_is_probed() {
    let mut probed: BTreeSet<String> = maps().iter().flat_map(|map| operations(&map.kernel(&[16]))).collect();
    probed.extend(REDUCTIONS.iter().flat_map(|operation| operations(&reduce_kernel(4, 16, operation))));
    for stem in vosti_kernels::ttir_stems() {
        let shipped = operations(&lift(vosti_kernels::ttir_by_stem(stem).unwrap()).unwrap());
        let missing: Vec<&String> = shipped.difference(&probed).collect();
        assert!(missing.is_empty(), "{stem} has {missing:?}, which no probe has: add it to `maps` or `REDUCTIONS`");
    }
}
