//! Tries to break each assumption that certificates list, with every executor of this machine: the plain interpreter, and the
//! CPU device's compiled plans with each instruction set, packed and row-major. No probe has run on a GPU, and certificates
//! say so.

#[path = "../../vosti-cpu/tests/common/mod.rs"]
mod common;

use common::{fast, plan};
use vosti_cpu::isa::Isa;
use vosti_tile::interp::{Buffer, Options, run};
use vosti_tile::numerics::{from_bf16, to_bf16};
use vosti_tile::{Kernel, lift};
use vosti_verify::Assumption;
use vosti_verify::replay::Random;

const ROUNDS: usize = 60;

/// A way to execute a kernel.
#[derive(Clone, Copy, Debug)]
enum Executor {
    Interpreter,
    Compiled { isa: Isa, packed: bool },
}

fn executors() -> Vec<Executor> {
    let compiled = |isa: &Isa| [true, false].map(|packed| Executor::Compiled { isa: *isa, packed });
    let all: Vec<Executor> =
        [Executor::Interpreter].into_iter().chain(Isa::tried().iter().flat_map(compiled)).collect();
    assert!(all.len() >= 3, "portable code runs everywhere");
    all
}

impl Executor {
    /// Runs one program and returns the last buffer: the result.
    fn run(self, kernel: &Kernel, mut buffers: Vec<Buffer>) -> Vec<f32> {
        match self {
            Executor::Interpreter => run(kernel, &mut buffers, [1, 1, 1], &Options::default()).unwrap(),
            Executor::Compiled { isa, packed } => {
                buffers = fast(kernel, &plan(kernel, isa), &buffers, [1, 1, 1], isa, packed, Some(3)).unwrap();
            }
        }
        match buffers.pop() {
            Some(Buffer::F32(values)) => values,
            other => panic!("{other:?} is no result"),
        }
    }
}

/// A kernel of one program: `tiles` are loaded as `%t0`, `%t1`, ..; `body` makes `%result`.
fn kernel(tiles: &[(&str, &[usize])], body: &str, result: &[usize]) -> Kernel {
    let ty = |elem: &str, shape: &[usize]| {
        let extents: Vec<String> = shape.iter().map(|n| n.to_string()).collect();
        format!("tensor<{}x{elem}>", extents.join("x"))
    };
    let (mut params, mut loads) = (vec![], String::new());
    let pointer = |name: &str, param: &str, elem: &str, shape: &[usize]| {
        let extents: Vec<String> = shape.iter().map(|n| format!("%c{n}")).collect();
        let strides = if shape.len() == 2 { format!("%c{}, %c1", shape[1]) } else { "%c1".into() };
        let (zeros, order) = if shape.len() == 2 { ("%zero, %zero", "1, 0") } else { ("%zero", "0") };
        let list = extents.join(", ");
        format!(
            "    %{name} = tt.make_tensor_ptr %{param}, [{list}], [{strides}], [{zeros}] {{order = array<i32: {order}>}} : <{}>\n",
            ty(elem, shape)
        )
    };
    for (i, (elem, shape)) in tiles.iter().enumerate() {
        params.push(format!("%p{i}: !tt.ptr<{elem}>"));
        loads += &pointer(&format!("a{i}"), &format!("p{i}"), elem, shape);
        loads += &format!("    %t{i} = tt.load %a{i} : !tt.ptr<{}>\n", ty(elem, shape));
    }
    params.push("%out: !tt.ptr<f32>".into());
    let mut extents: Vec<usize> = tiles.iter().flat_map(|(_, shape)| shape.to_vec()).chain(result.to_vec()).collect();
    extents.push(1);
    extents.sort_unstable();
    extents.dedup();
    let constants: String = extents.iter().map(|n| format!("    %c{n} = arith.constant {n} : i64\n")).collect();
    let store =
        pointer("to", "out", "f32", result) + &format!("    tt.store %to, %result : !tt.ptr<{}>\n", ty("f32", result));
    let text = format!(
        "module {{\n  tt.func public @kernel({}) attributes {{noinline = false}} {{\n    %zero = arith.constant 0 : i32\n{constants}{loads}{body}{store}    tt.return\n  }}\n}}\n",
        params.join(", ")
    );
    lift(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn dot_kernel(rows: usize, depth: usize, columns: usize, bf16: bool) -> Kernel {
    let elem = if bf16 { "bf16" } else { "f32" };
    let body = format!(
        "    %result = tt.dot %t0, %t1, %t2 : tensor<{rows}x{depth}x{elem}> * tensor<{depth}x{columns}x{elem}> -> tensor<{rows}x{columns}xf32>\n"
    );
    kernel(&[(elem, &[rows, depth]), (elem, &[depth, columns]), ("f32", &[rows, columns])], &body, &[rows, columns])
}

fn reduce_kernel(rows: usize, length: usize, operation: &str) -> Kernel {
    let body = format!(
        "    %result = \"tt.reduce\"(%t0) <{{axis = 1 : i32}}> ({{\n    ^bb0(%x: f32, %y: f32):\n      %z = {operation} %x, %y : f32\n      tt.reduce.return %z : f32\n    }}) : (tensor<{rows}x{length}xf32>) -> tensor<{rows}xf32>\n"
    );
    kernel(&[("f32", &[rows, length])], &body, &[rows])
}

fn map_kernel(operation: &str, length: usize) -> Kernel {
    let body = format!("    %result = {operation} %t0 : tensor<{length}xf32>\n");
    kernel(&[("f32", &[length])], &body, &[length])
}

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

fn buffer(values: Vec<f32>, bf16: bool) -> Buffer {
    match bf16 {
        true => Buffer::Bf16(values.into_iter().map(to_bf16).collect()),
        false => Buffer::F32(values),
    }
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

#[test]
fn dot_is_lane_local_row_uniform_and_height_independent() {
    for executor in executors() {
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
}

#[test]
fn dot_is_column_uniform_and_width_independent() {
    for executor in executors() {
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
}

#[test]
fn masked_lanes_of_a_dot_change_at_most_the_sign_of_a_zero() {
    for executor in executors() {
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
        }
        assert!(signs > 0, "{executor:?}: the probe never saw a sign differ: it probes nothing");
    }
}

#[test]
fn adding_plus_zero_forgets_the_sign_of_a_zero() {
    let body = "    %zeros = arith.constant dense<0.000000e+00> : tensor<16xf32>\n    %result = arith.addf %t0, %zeros : tensor<16xf32>\n";
    let kernel = kernel(&[("f32", &[16])], body, &[16]);
    for executor in executors() {
        let zeros: Vec<f32> = (0..16).map(|i| if i % 2 == 0 { 0.0 } else { -0.0 }).collect();
        let sums = executor.run(&kernel, vec![Buffer::F32(zeros), Buffer::F32(vec![1.0; 16])]);
        assert!(sums.iter().all(|x| x.to_bits() == 0), "{executor:?}: {sums:?}");
    }
}

#[test]
fn reduce_is_lane_local_row_uniform_and_height_independent() {
    for executor in executors() {
        let mut random = Random::new(3);
        for round in 0..ROUNDS {
            let n = [16, 64, 128, 32][round % 4];
            let operation = ["arith.addf", "arith.maxnumf"][round / 4 % 2];
            let row = numbers(&mut random, n, false);
            let mut result = |rows: usize, at: usize| {
                let mut tile: Vec<f32> = (0..rows * n).map(|_| wild(&mut random)).collect();
                tile[at * n..][..n].copy_from_slice(&row);
                let buffers = vec![Buffer::F32(tile), Buffer::F32(vec![0.0; rows])];
                executor.run(&reduce_kernel(rows, n, operation), buffers)[at]
            };
            let (x, y) = (result(4, 1), result(64, 50));
            assert!(same(x, y), "{executor:?}: {operation} over {n}: {x:e} and {y:e}");
        }
    }
}

#[test]
fn elementwise_operations_give_the_same_bits_in_every_lane_of_every_tile() {
    let operations = ["math.exp2", "math.exp", "math.sqrt", "math.rsqrt"];
    for (executor, operation) in executors().into_iter().flat_map(|e| operations.map(|o| (e, o))) {
        let mut random = Random::new(4);
        for _ in 0..ROUNDS / 4 {
            let x = number(&mut random).abs();
            let mut result = |lanes: usize, at: usize| {
                let mut tile: Vec<f32> = (0..lanes).map(|_| wild(&mut random)).collect();
                tile[at] = x;
                let buffers = vec![Buffer::F32(tile), Buffer::F32(vec![0.0; lanes])];
                executor.run(&map_kernel(operation, lanes), buffers)[at]
            };
            let values = [(4, 3), (16, 0), (16, 15), (128, 77)].map(|(lanes, at)| result(lanes, at));
            assert!(values.iter().all(|y| same(*y, values[0])), "{executor:?}: {operation} {x:e}: {values:?}");
        }
    }
}

#[test]
fn exponentials_of_minus_infinity_are_plus_zero() {
    for executor in executors() {
        for operation in ["math.exp", "math.exp2"] {
            for lanes in [4, 16, 64] {
                let buffers = vec![Buffer::F32(vec![f32::NEG_INFINITY; lanes]), Buffer::F32(vec![1.0; lanes])];
                let results = executor.run(&map_kernel(operation, lanes), buffers);
                assert!(results.iter().all(|x| x.to_bits() == 0), "{executor:?}: {operation}: {results:?}");
            }
        }
    }
}

#[test]
fn exponentials_of_minus_infinity_less_anything_are_plus_zero_or_nan() {
    let body = "    %d = arith.subf %t0, %t1 : tensor<16xf32>\n    %result = math.exp2 %d : tensor<16xf32>\n";
    let kernel = kernel(&[("f32", &[16]), ("f32", &[16])], body, &[16]);
    let anything = [f32::INFINITY, f32::NAN, 0.0, 1e38, f32::NEG_INFINITY, -1e38, f32::MIN_POSITIVE / 2.0, -0.0];
    for executor in executors() {
        let right: Vec<f32> = (0..16).map(|i| anything[i % 8]).collect();
        let buffers = vec![Buffer::F32(vec![f32::NEG_INFINITY; 16]), Buffer::F32(right), Buffer::F32(vec![1.0; 16])];
        let results = executor.run(&kernel, buffers);
        assert!(results.iter().all(|x| x.to_bits() == 0 || x.is_nan()), "{executor:?}: {results:?}");
    }
}

#[test]
fn nan_payloads_are_not_observed() {
    let nans = [0x7fc0_0000u32, 0xffc0_0001, 0x7f80_0001, 0x7fff_ffff].map(f32::from_bits);
    let body = "    %zeros = arith.constant dense<0.000000e+00> : tensor<16xf32>\n    %result = arith.mulf %t0, %zeros : tensor<16xf32>\n";
    let kernel = kernel(&[("f32", &[16])], body, &[16]);
    for executor in executors() {
        let values: Vec<f32> = (0..16).map(|i| nans[i % 4]).collect();
        let results = executor.run(&kernel, vec![Buffer::F32(values), Buffer::F32(vec![1.0; 16])]);
        let first = results[0].to_bits();
        assert!(results[0].is_nan() && results.iter().all(|x| x.to_bits() == first), "{executor:?}: {results:?}");
    }
}

/// The probe that tries to break an assumption: a new assumption does not compile without one.
fn probe_of(assumption: Assumption) -> &'static str {
    match assumption {
        Assumption::ElementwiseUniform => "elementwise_operations_give_the_same_bits_in_every_lane_of_every_tile",
        Assumption::DotLaneLocal | Assumption::DotRowUniform => "dot_is_lane_local_row_uniform_and_height_independent",
        Assumption::DotColumnUniform | Assumption::DotHeightIndependent => {
            "dot_is_column_uniform_and_width_independent"
        }
        Assumption::DotMaskedLanes => "masked_lanes_of_a_dot_change_at_most_the_sign_of_a_zero",
        Assumption::ReduceLaneLocal | Assumption::ReduceRowUniform | Assumption::ReduceHeightIndependent => {
            "reduce_is_lane_local_row_uniform_and_height_independent"
        }
        Assumption::ExpOfMinusInfinity => "exponentials_of_minus_infinity_are_plus_zero",
        Assumption::NanPayload => "nan_payloads_are_not_observed",
    }
}

#[test]
fn every_assumption_of_a_certificate_has_a_probe() {
    let certificates = vosti_verify::record::checked_in().unwrap();
    for assumed in certificates.values().flat_map(|c| &c.assumptions) {
        let probe = format!("#[test]\nfn {}()", probe_of(assumed.name));
        assert!(include_str!("probes.rs").contains(&probe), "{probe}");
    }
}
