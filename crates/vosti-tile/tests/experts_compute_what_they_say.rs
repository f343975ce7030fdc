//! The kernels of mixtures of experts on the interpreter, against the formulas of their docstrings in FP64.

mod common;

use common::formulas::clamped;
use common::{Launch, int, launch, some_of_each};
use vosti_contract::{Const, Dtype, Role};
use vosti_kernels::Spec;
use vosti_tile::interp::{Buffer, Options, Order, Undefined, run};

const BATCH: &common::Sequences = &[(3, 61), (1, 200), (67, 0)];

fn execute(launch: &mut Launch) {
    let options = Options { undefined: Undefined::Poison(3), order: Order::Shuffled(5), operations_max: None };
    run(&launch.kernel, &mut launch.buffers, launch.grid, &options).unwrap_or_else(|error| panic!("{error}"));
}

fn at(launch: &Launch, role: Role) -> usize {
    launch.roles.iter().position(|r| *r == role).unwrap()
}

fn floats(launch: &Launch, role: Role) -> Vec<f64> {
    match &launch.buffers[at(launch, role)] {
        Buffer::F32(v) => v.iter().map(|x| f64::from(*x)).collect(),
        Buffer::Bf16(v) => v.iter().map(|x| f64::from(half::bf16::from_bits(*x).to_f32())).collect(),
        other => panic!("{:?}", other.elem()),
    }
}

fn ints(launch: &Launch, role: Role) -> Vec<i32> {
    match &launch.buffers[at(launch, role)] {
        Buffer::I32(v) => v.clone(),
        other => panic!("{:?}", other.elem()),
    }
}

fn specs(kernel: &str) -> Vec<Spec> {
    let specs: Vec<Spec> = some_of_each(24).into_iter().filter(|s| s.kernel == kernel).collect();
    assert!(specs.len() >= 4, "{kernel}: {}", specs.len());
    specs
}

#[track_caller]
fn close(spec: &Spec, got: &[f64], wanted: &[f64]) {
    assert_eq!(got.len(), wanted.len(), "{spec}");
    let tolerance = if spec.act == Dtype::Bf16 { 2e-2 } else { 2e-5 };
    for (i, (g, w)) in got.iter().zip(wanted).enumerate() {
        assert!((g - w).abs() <= tolerance * (1.0 + w.abs()), "{spec}: element {i} is {g}, should be {w}");
    }
}

/// A row times the first `n` rows of a matrix.
fn product(row: &[f64], w: &[f64], n: usize) -> Vec<f64> {
    w.chunks(row.len()).take(n).map(|own| row.iter().zip(own).map(|(a, b)| a * b).sum()).collect()
}

#[test]
fn an_expert_multiplies_the_rows_that_chose_it() {
    for spec in specs("expert_glu").into_iter().chain(specs("expert_down")) {
        let mut l = launch(&spec, BATCH, 21);
        let (k, n, e, topk) = (int(&spec, "K"), int(&spec, "N"), int(&spec, "E"), int(&spec, "TOPK"));
        let (x, w, ids) = (floats(&l, Role::In(0)), floats(&l, Role::Weight(0)), ints(&l, Role::In(1)));
        let chosen = |entry: usize| ids[entry].clamp(0, e as i32 - 1) as usize;
        let wanted: Vec<f64> = match spec.kernel.as_str() {
            "expert_down" => {
                // Whole tiles read one choice of a row for each expert: the last one of equal ones.
                let last = |i: usize| {
                    let row = i / topk * topk;
                    (row..row + topk).rev().find(|other| chosen(*other) == chosen(i)).unwrap()
                };
                let read = |i: usize| if int(&spec, "WHOLE") == 1 { last(i) } else { i };
                let entry = |i: usize| product(&x[read(i) * k..][..k], &w[chosen(i) * n * k..], n);
                (0..ids.len()).flat_map(entry).collect()
            }
            _ => {
                let gelu = |g: f64| 0.5 * g * (1.0 + (0.797_884_560_802_865_4 * (g + 0.044715 * g * g * g)).tanh());
                let act = |g: f64| if int(&spec, "ACT") == 1 { gelu(g) } else { g / (1.0 + (-g).exp()) };
                let bias = floats(&l, Role::Weight(1));
                let entry = |i: usize| {
                    let both = product(&x[i / topk * k..][..k], &w[chosen(i) * 2 * n * k..], 2 * n);
                    match int(&spec, "ACT") {
                        2 => clamped(&both, &bias[chosen(i) * 2 * n..][..2 * n]),
                        _ => (0..n).map(|j| act(both[j]) * both[n + j]).collect::<Vec<_>>(),
                    }
                };
                (0..ids.len()).flat_map(entry).collect()
            }
        };
        execute(&mut l);
        close(&spec, &floats(&l, Role::Out(0)), &wanted);
    }
}

#[test]
fn choices_are_added_in_the_order_of_their_shares() {
    for spec in specs("combine").into_iter().chain(specs("combine_bias")) {
        let mut l = launch(&spec, BATCH, 22);
        let biased = spec.kernel == "combine_bias";
        let (ids, bias) =
            if biased { (ints(&l, Role::In(3)), floats(&l, Role::Weight(0))) } else { Default::default() };
        let (h, topk) = (int(&spec, "H"), int(&spec, "TOPK"));
        let Const::Float(scale) = spec.constants["SCALE"] else { panic!("a factor") };
        let [y, shares, residual] = [0, 1, 2].map(|i| floats(&l, Role::In(i)));
        let own = |entry: usize, c: usize| match biased {
            true => bias[ids[entry].clamp(0, int(&spec, "E") as i32 - 1) as usize * h + c],
            false => 0.0,
        };
        let sum = |t: usize, c: usize| -> f64 {
            (t * topk..(t + 1) * topk).map(|entry| shares[entry] * (y[entry * h + c] + own(entry, c))).sum()
        };
        let wanted: Vec<f64> = residual.iter().enumerate().map(|(i, r)| r + scale * sum(i / h, i % h)).collect();
        execute(&mut l);
        close(&spec, &floats(&l, Role::Out(0)), &wanted);
    }
}

#[test]
fn choices_have_the_factors_of_their_experts() {
    for spec in specs("combine_scaled") {
        let mut l = launch(&spec, BATCH, 24);
        let (ids, factor) = (ints(&l, Role::In(2)), floats(&l, Role::Weight(0)));
        let (h, topk) = (int(&spec, "H"), int(&spec, "TOPK"));
        let [y, shares] = [0, 1].map(|i| floats(&l, Role::In(i)));
        let own = |entry: usize| factor[ids[entry].clamp(0, int(&spec, "E") as i32 - 1) as usize];
        let sum = |t: usize, c: usize| -> f64 {
            (t * topk..(t + 1) * topk).map(|entry| shares[entry] * own(entry) * y[entry * h + c]).sum()
        };
        let wanted: Vec<f64> = (0..shares.len() / topk * h).map(|i| sum(i / h, i % h)).collect();
        execute(&mut l);
        close(&spec, &floats(&l, Role::Out(0)), &wanted);
    }
}

/// The experts of a row in order, and their shares.
fn routed(spec: &Spec, row: &[f32], bias: &[f32]) -> (Vec<i32>, Vec<f64>) {
    let sigmoid = int(spec, "SIGMOID") == 1;
    let clean: Vec<f64> = row.iter().map(|v| if v.is_nan() { f64::NEG_INFINITY } else { f64::from(*v) }).collect();
    let largest = clean.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let score = |v: f64| if sigmoid { 1.0 / (1.0 + (-v).exp()) } else { (v - largest).exp() };
    // Keys are compared in FP32, where the kernel computes them.
    let own = |i: usize| if sigmoid { score(clean[i]) as f32 + bias[i] } else { clean[i] as f32 };
    let groups = kept(spec, row.len(), own);
    let key = |i: usize| {
        if groups.is_empty() || groups.contains(&(i / int(spec, "MEMBERS"))) { own(i) } else { f32::NEG_INFINITY }
    };
    let mut order: Vec<usize> = (0..row.len()).collect();
    // A stable sort keeps the lowest of equal ones first.
    order.sort_by(|a, b| key(*b).partial_cmp(&key(*a)).unwrap());
    let scores: Vec<f64> = order.iter().map(|i| score(clean[*i])).collect();
    let topk = int(spec, "TOPK");
    let total: f64 = match (int(spec, "NORMED"), sigmoid) {
        (1, _) => scores[..topk].iter().sum(),
        (_, true) => 1.0,
        _ => scores.iter().sum(),
    };
    let Const::Float(scale) = spec.constants["SCALE"] else { panic!("a factor") };
    let shares = scores[..topk].iter().map(|score| score / total * scale).collect();
    (order[..topk].iter().map(|i| *i as i32).collect(), shares)
}

/// The groups that are kept; none if there are no groups.
fn kept(spec: &Spec, e: usize, key: impl Fn(usize) -> f32) -> Vec<usize> {
    let members = int(spec, "MEMBERS");
    let worth = |g: usize| {
        let mut own: Vec<f32> = (g * members..(g + 1) * members).filter(|i| *i < e).map(&key).collect();
        own.sort_by(|a, b| b.total_cmp(a));
        own.into_iter().chain([f32::NEG_INFINITY; 2]).take(2).sum::<f32>()
    };
    let worths: Vec<f32> = (0..int(spec, "GROUPS")).map(worth).collect();
    let mut order: Vec<usize> = (0..worths.len()).collect();
    order.sort_by(|a, b| worths[*b].partial_cmp(&worths[*a]).unwrap());
    order.truncate(int(spec, "KEPT"));
    order
}

fn is_routed(spec: &Spec, mut l: Launch) {
    let (e, topk) = (int(spec, "E"), int(spec, "TOPK"));
    let Buffer::F32(logits) = l.buffers[at(&l, Role::In(0))].clone() else { panic!("FP32") };
    let Buffer::F32(bias) = l.buffers[at(&l, Role::Weight(0))].clone() else { panic!("FP32") };
    execute(&mut l);
    let (ids, shares) = (ints(&l, Role::Out(0)), floats(&l, Role::Out(1)));
    for (t, row) in logits.chunks(e).enumerate() {
        let (wanted, of) = routed(spec, row, &bias);
        assert_eq!(ids[t * topk..][..topk], wanted, "{spec}: row {t}, {row:?}");
        if row.iter().any(|v| v.is_finite()) {
            let close = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-5;
            assert!(shares[t * topk..][..topk].iter().zip(&of).all(close), "{spec}: row {t}: {of:?}");
        }
    }
}

/// Both scores, normed and not, a few of many experts, without groups, with four of six and with one of eight.
fn routes() -> Vec<Spec> {
    let first = specs("route").swap_remove(0);
    let flags = (0..4).map(|i| [("SIGMOID", i / 2), ("NORMED", i % 2), ("E", 24), ("TOPK", 3)]);
    let groups = [(0, 1, 0), (6, 4, 4), (8, 3, 1)];
    let groups = groups.map(|(groups, members, kept)| [("GROUPS", groups), ("MEMBERS", members), ("KEPT", kept)]);
    let with = |numbers: Vec<(&str, i64)>| {
        let mut spec = first.clone();
        let numbers = numbers.into_iter().map(|(name, value)| (name.to_string(), Const::Int(value)));
        spec.constants.extend(numbers);
        spec
    };
    flags.flat_map(|flags| groups.map(|groups| with([&flags[..], &groups].concat()))).collect()
}

#[test]
fn a_row_goes_to_the_experts_of_its_largest_logits() {
    routes().into_iter().chain(specs("route")).for_each(|spec| is_routed(&spec, launch(&spec, BATCH, 23)));
}

#[test]
fn of_equal_logits_the_first_is_chosen_and_a_nan_is_the_lowest() {
    for spec in routes() {
        let mut l = launch(&spec, BATCH, 24);
        let (logits, bias) = (at(&l, Role::In(0)), at(&l, Role::Weight(0)));
        let Buffer::F32(values) = &mut l.buffers[logits] else { panic!("FP32") };
        // Many equal numbers, some NaN, rows of NaN alone and of -inf alone.
        let strange = [f32::NAN, f32::NEG_INFINITY, 0.5, 0.5, -1.0];
        values.iter_mut().for_each(|v| *v = strange[(v.to_bits() >> 3) as usize % 5]);
        values[..24].fill(f32::NAN);
        values[24..48].fill(f32::NEG_INFINITY);
        let Buffer::F32(values) = &mut l.buffers[bias] else { panic!("FP32") };
        values.fill(0.25);
        is_routed(&spec, l);
    }
}
