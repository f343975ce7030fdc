//! Compares the row-wise kernels around layers with a state, and the gates of attention, on the interpreter with their formulas in FP64.

mod common;

use common::formulas::*;
use common::{Sequences, int, launch};
use std::iter;
use vosti_contract::Role;

const BATCH: &Sequences = &[(3, 61), (1, 200), (17, 0)];

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

#[test]
fn heads_are_multiplied_by_the_sigmoids_of_their_gates() {
    for spec in small("gate_heads") {
        let mut l = launch(&spec, BATCH, 41);
        let [heads, d, packed, first] = ["HEADS", "D", "PACKED", "FIRST"].map(|n| int(&spec, n));
        let (x, fused) = (wide(&l, Role::In(0)), wide(&l, Role::In(1)));
        let gate = |i: usize| fused[(i / (heads * d) * packed + first) * d + i % (heads * d)];
        let y: Vec<f64> = x.iter().enumerate().map(|(i, v)| v * sigmoid(gate(i))).collect();
        execute(&mut l);
        close(&spec, &wide(&l, Role::Out(0)), &y);
    }
}

#[test]
fn rows_are_multiplied_by_the_sigmoids_of_their_gates() {
    for spec in small("gate_rows") {
        let mut l = launch(&spec, BATCH, 44);
        let (x, gates) = (wide(&l, Role::In(0)), wide(&l, Role::In(1)));
        let y: Vec<f64> = x.iter().enumerate().map(|(i, v)| v * sigmoid(gates[i / int(&spec, "N")])).collect();
        execute(&mut l);
        close(&spec, &wide(&l, Role::Out(0)), &y);
    }
}

#[test]
fn units_without_a_gate_are_squares_of_positive_numbers() {
    for spec in small("relu_squared") {
        let mut l = launch(&spec, BATCH, 45);
        let y: Vec<f64> = wide(&l, Role::In(0)).iter().map(|v| v.max(0.0) * v.max(0.0)).collect();
        execute(&mut l);
        close(&spec, &wide(&l, Role::Out(0)), &y);
    }
}

#[test]
fn rows_are_copied_for_each_of_their_experts() {
    for spec in small("spread") {
        let mut l = launch(&spec, BATCH, 46);
        let x = wide(&l, Role::In(0));
        let y: Vec<f64> = x.chunks(int(&spec, "N")).flat_map(|row| row.repeat(int(&spec, "TOPK"))).collect();
        execute(&mut l);
        close(&spec, &wide(&l, Role::Out(0)), &y);
    }
}

#[test]
fn heads_are_normed_and_multiplied_by_the_silus_of_their_gates_in_the_gates_order() {
    for spec in small("norm_gated") {
        let mut l = launch(&spec, BATCH, 42);
        let [heads, group, d] = ["KEY_HEADS", "GROUP", "D"].map(|n| int(&spec, n));
        let (x, z, w) = (wide(&l, Role::In(0)), wide(&l, Role::In(1)), wide(&l, Role::Weight(0)));
        let mut y = vec![];
        for (x, z) in x.chunks(heads * group * d).zip(z.chunks(heads * group * d)) {
            for (own, z) in z.chunks(d).enumerate() {
                let from = &x[(own % heads * group + own / heads) * d..][..d];
                let scale = (from.iter().map(|v| v * v).sum::<f64>() / d as f64 + float(&spec, "EPS")).sqrt();
                y.extend((0..d).map(|i| from[i] / scale * w[i] * z[i] * sigmoid(z[i])));
            }
        }
        execute(&mut l);
        close(&spec, &wide(&l, Role::Out(0)), &y);
    }
}

#[test]
fn a_delta_rule_takes_unit_queries_and_keys_values_decays_and_strengths() {
    for spec in small("delta_inputs") {
        let mut l = launch(&spec, BATCH, 43);
        let [heads, group, parts, d, copies] = ["KEY_HEADS", "GROUP", "PARTS", "D", "COPIES"].map(|n| int(&spec, n));
        let (qkv, ba) = (wide(&l, Role::In(0)), wide(&l, Role::In(1)));
        let (rate, bias) = (wide(&l, Role::Weight(0)), wide(&l, Role::Weight(1)));
        let mut y: [Vec<f64>; 5] = Default::default();
        for (row, ba) in qkv.chunks(parts * heads * d).zip(ba.chunks(2 * group * heads)) {
            let head = |part: usize, head: usize| &row[(part * heads + head) * d..][..d];
            let unit = |x: &[f64], scale: f64| {
                let length = (x.iter().map(|v| v * v).sum::<f64>() + 1e-6).sqrt();
                x.iter().map(|v| v / length * scale).collect::<Vec<f64>>()
            };
            for h in 0..heads {
                y[0].extend(unit(head(0, h), float(&spec, "SCALE")));
                y[1].extend(unit(head(1, h), 1.0));
                for m in 0..group {
                    let own = m * heads + h;
                    y[2].extend(head(2 + m, h));
                    let decay = rate[own] * (ba[group * heads + own] + bias[own]).exp().ln_1p();
                    y[3].extend(iter::repeat_n(decay, copies));
                    y[4].extend(iter::repeat_n(sigmoid(ba[own]), copies));
                }
            }
        }
        execute(&mut l);
        for (i, y) in y.iter().enumerate() {
            close(&spec, &wide(&l, Role::Out(i)), y);
        }
    }
}

#[test]
fn a_mamba_layer_takes_queries_keys_values_decays_and_steps() {
    for spec in small("mamba_inputs") {
        let mut l = launch(&spec, BATCH, 44);
        let [heads, inner, keys, width] = ["HEADS", "INNER", "KEYS", "WIDTH"].map(|n| int(&spec, n));
        let (xbc, steps) = (wide(&l, Role::In(0)), wide(&l, Role::In(1)));
        let (rate, bias) = (wide(&l, Role::Weight(0)), wide(&l, Role::Weight(1)));
        let part = |first: usize, own: usize| xbc.chunks(width).flat_map(|row| row[first..][..own].to_vec()).collect();
        let steps: Vec<f64> = steps.iter().enumerate().map(|(i, v)| (v + bias[i % heads]).exp().ln_1p()).collect();
        let decays = steps.iter().enumerate().map(|(i, step)| rate[i % heads] * step).collect();
        let y: [Vec<f64>; 5] = [part(inner + keys, keys), part(inner, keys), part(0, inner), decays, steps];
        execute(&mut l);
        for (i, y) in y.iter().enumerate() {
            close(&spec, &wide(&l, Role::Out(i)), y);
        }
    }
}

#[test]
fn results_and_skipped_values_are_multiplied_by_the_silus_of_their_gates() {
    for spec in small("skip_gated") {
        let mut l = launch(&spec, BATCH, 45);
        let [heads, d] = ["HEADS", "D"].map(|n| int(&spec, n));
        let [y, x, z] = [0, 1, 2].map(|i| wide(&l, Role::In(i)));
        let skip = wide(&l, Role::Weight(0));
        let total = |i: usize| (y[i] + skip[i / d % heads] * x[i]) * z[i] * sigmoid(z[i]);
        let expected: Vec<f64> = (0..y.len()).map(total).collect();
        execute(&mut l);
        close(&spec, &wide(&l, Role::Out(0)), &expected);
    }
}

#[test]
fn each_group_of_a_row_has_a_norm_of_its_own() {
    for spec in small("rmsnorm_groups") {
        let mut l = launch(&spec, BATCH, 46);
        let [groups, h] = ["GROUPS", "H"].map(|n| int(&spec, n));
        let (x, w) = (wide(&l, Role::In(0)), wide(&l, Role::Weight(0)));
        let mut y = vec![];
        for (at, group) in x.chunks(h).enumerate() {
            let scale = (group.iter().map(|v| v * v).sum::<f64>() / h as f64 + float(&spec, "EPS")).sqrt();
            y.extend(group.iter().zip(&w[at % groups * h..]).map(|(v, w)| v / scale * w));
        }
        execute(&mut l);
        close(&spec, &wide(&l, Role::Out(0)), &y);
    }
}

#[test]
fn a_layers_own_input_is_multiplied_by_the_gelu_of_its_gate() {
    for spec in small("per_layer_gate") {
        let mut l = launch(&spec, BATCH, 47);
        let [layers, layer, h] = ["LAYERS", "LAYER", "H"].map(|n| int(&spec, n));
        let [gate, projected, embedded] = [0, 1, 2].map(|i| wide(&l, Role::In(i)));
        let w = wide(&l, Role::Weight(0));
        let mut y = vec![];
        for (row, gates) in gate.chunks(h).enumerate() {
            let own = |all: &[f64]| all[(row * layers + layer) * h..][..h].to_vec();
            let (p, e) = (own(&projected), own(&embedded));
            let scale = (p.iter().map(|v| v * v).sum::<f64>() / h as f64 + float(&spec, "EPS")).sqrt();
            let gelu =
                |g: f64| 0.5 * g * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (g + 0.044715 * g.powi(3))).tanh());
            y.extend((0..h).map(|i| gelu(gates[i]) * (e[i] + p[i] / scale * w[i])));
        }
        execute(&mut l);
        close(&spec, &wide(&l, Role::Out(0)), &y);
    }
}
