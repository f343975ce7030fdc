//! What tests against formulas in FP64 share.

use super::{Launch, int, some_of_each};
use vosti_contract::{Const, Dtype, Role};
use vosti_kernels::Spec;
use vosti_tile::interp::{Buffer, Options, Order, Undefined, run};

pub fn execute(launch: &mut Launch) {
    let options = Options { undefined: Undefined::Poison(3), order: Order::Shuffled(5), operations_max: None };
    run(&launch.kernel, &mut launch.buffers, launch.grid, &options).unwrap_or_else(|error| panic!("{error}"));
}

/// A float buffer as FP64.
pub fn wide(launch: &Launch, role: Role) -> Vec<f64> {
    match buffer(launch, role) {
        Buffer::F32(v) => v.iter().map(|x| f64::from(*x)).collect(),
        Buffer::Bf16(v) => v.iter().map(|x| f64::from(half::bf16::from_bits(*x).to_f32())).collect(),
        Buffer::I8(v) => v.iter().map(|x| f64::from(*x)).collect(),
        other => panic!("{:?}", other.elem()),
    }
}

pub fn buffer(launch: &Launch, role: Role) -> &Buffer {
    &launch.buffers[launch.roles.iter().position(|r| *r == role).unwrap()]
}

pub fn float(spec: &Spec, name: &str) -> f64 {
    match spec.constants[name] {
        Const::Float(v) => v,
        Const::Int(v) => v as f64,
    }
}

/// Specialisations of a kernel for the smallest models.
pub fn small(kernel: &str) -> Vec<Spec> {
    let specs: Vec<Spec> = some_of_each(8).into_iter().filter(|s| s.kernel == kernel && small_enough(s)).collect();
    assert!(!specs.is_empty(), "no small specialisation of {kernel} is checked in");
    specs
}

pub fn small_enough(spec: &Spec) -> bool {
    ["N", "K", "V", "H"].iter().all(|n| spec.constants.get(*n).is_none_or(|c| matches!(c, Const::Int(v) if *v <= 600)))
}

#[track_caller]
pub fn close(spec: &Spec, got: &[f64], wanted: &[f64]) {
    assert_eq!(got.len(), wanted.len(), "{spec}");
    let tolerance = if spec.act == Dtype::Bf16 { 2e-2 } else { 2e-5 };
    for (i, (g, w)) in got.iter().zip(wanted).enumerate() {
        assert!((g - w).abs() <= tolerance * (1.0 + w.abs()), "{spec}: element {i} is {g}, should be {w}");
    }
}

/// Rows of `n` numbers of gate and `n` of up, multiplied.
pub fn gated(spec: &Spec, y: &[f64], n: usize) -> Vec<f64> {
    let gelu = |g: f64| 0.5 * g * (1.0 + (0.797_884_560_802_865_4 * (g + 0.044715 * g * g * g)).tanh());
    let act = |g: f64| if int(spec, "ACT") == 1 { gelu(g) } else { g / (1.0 + (-g).exp()) };
    y.chunks(2 * n).flat_map(|row| (0..n).map(move |j| act(row[j]) * row[n + j])).collect()
}

/// gpt-oss's units: gates and ups, each with its bias.
pub fn clamped(both: &[f64], bias: &[f64]) -> Vec<f64> {
    let unit = |(gate, up): (f64, f64)| gate / (1.0 + (-1.702 * gate).exp()) * (up + 1.0);
    let sums: Vec<f64> = both.iter().zip(bias).map(|(sum, bias)| sum + bias).collect();
    let (gates, ups) = sums.split_at(both.len() / 2);
    gates.iter().zip(ups).map(|(gate, up)| unit((gate.min(7.0), up.clamp(-7.0, 7.0)))).collect()
}
