//! Compares the kernels of products in integers on the interpreter with their formulas.

mod common;

use common::formulas::*;
use common::{Launch, Sequences, int, launch};
use vosti_contract::{Const, Role};
use vosti_tile::interp::Buffer;
use vosti_tile::numerics::{FloatMode, div, mul};

const BATCH: &Sequences = &[(3, 61), (1, 200), (67, 0)];

/// `sum over blocks of scale * scales * (q . codes) + offset * scale * sums` in FP64, by row and column.
fn product_in_integers(l: &Launch) -> Vec<f64> {
    let flag = |name: &str| int(&l.spec, name) == 1;
    let [hi, lo, scale, sums] = [0, 1, 2, 3].map(|i| wide(l, Role::In(i)));
    let [codes, scales, offsets] = [0, 1, 2].map(|i| wide(l, Role::Weight(i)));
    let k = 32 * int(&l.spec, "BLOCKS");
    let q = |t: usize, k: usize| if flag("WIDE") { 256.0 * hi[t + k] + lo[t + k] } else { hi[t + k] };
    let cell = |t: usize, n: usize| {
        let half = |h: usize| {
            // Without halves a block has the scale and the offset of its first half.
            let group = if flag("HALVES") { h } else { h / 2 * 2 };
            let sum: f64 = (16 * h..16 * h + 16).map(|i| q(t * k, i) * codes[n * k + i]).sum();
            let (x, at) = (scale[t * k / 32 + h / 2], n * k / 16 + group);
            x * (sum * scales[at] + if flag("OFFSETS") { sums[t * k / 16 + h] * offsets[at] } else { 0.0 })
        };
        (0..k / 16).map(half).sum::<f64>()
    };
    let (rows, columns) = (hi.len() / k, codes.len() / k);
    (0..rows).flat_map(|t| (0..columns).map(move |n| (t, n))).map(|(t, n)| cell(t, n)).collect()
}

#[test]
fn products_in_integers_are_matrix_products() {
    for name in ["linear_int", "linear_int_bias", "linear_int_add", "linear_int_logits", "linear_int_glu"] {
        for spec in small(name) {
            let mut l = launch(&spec, BATCH, 21);
            let n = int(&spec, "N");
            // Results of the size of activations.
            let at = l.roles.iter().position(|role| *role == Role::In(2)).unwrap();
            let Buffer::F32(scale) = &mut l.buffers[at] else { panic!("scales are FP32") };
            scale.iter_mut().for_each(|x| *x *= 4e-7);
            let mut y = product_in_integers(&l);
            match name {
                "linear_int_add" => {
                    let scale = float(&spec, "SCALE");
                    y.iter_mut().zip(wide(&l, Role::In(4))).for_each(|(y, r)| *y = r + *y * scale);
                }
                "linear_int_bias" => {
                    let bias = wide(&l, Role::Weight(3));
                    y.iter_mut().enumerate().for_each(|(i, y)| *y += bias[i % n]);
                }
                "linear_int_logits" if int(&spec, "CAPPED") == 1 => {
                    let [cap, span, slope] = ["CAP", "SPAN", "SLOPE"].map(|name| float(&spec, name));
                    y.iter_mut().for_each(|y| *y = cap - span / ((*y * slope).exp() + 1.0));
                }
                "linear_int_glu" => y = gated(&spec, &y, n),
                _ => {}
            }
            execute(&mut l);
            close(&spec, &wide(&l, Role::Out(0)), &y);
        }
    }
}

#[test]
fn an_expert_in_integers_multiplies_the_rows_that_chose_it() {
    for spec in small("expert_int_glu").into_iter().chain(small("expert_int_down")) {
        let mut l = launch(&spec, BATCH, 23);
        let (n, e, topk) = (int(&spec, "N"), int(&spec, "E"), int(&spec, "TOPK"));
        let at = l.roles.iter().position(|role| *role == Role::In(2)).unwrap();
        let Buffer::F32(scale) = &mut l.buffers[at] else { panic!("scales are FP32") };
        scale.iter_mut().for_each(|x| *x *= 4e-7);
        let Buffer::I32(ids) = buffer(&l, Role::In(4)).clone() else { panic!("experts are integers") };
        let chosen = |entry: usize| ids[entry].clamp(0, e as i32 - 1) as usize;
        // Every row times the matrices of all experts, of which its own are taken.
        let y = product_in_integers(&l);
        let glu = spec.kernel == "expert_int_glu";
        let height = if glu { 2 * n } else { n };
        let own = |entry: usize| {
            let row = if glu { entry / topk } else { entry };
            y[(row * e + chosen(entry)) * height..][..height].to_vec()
        };
        let wanted: Vec<f64> = (0..ids.len()).flat_map(own).collect();
        let wanted = match (glu, spec.constants.get("ACT")) {
            (true, Some(Const::Int(2))) => {
                let bias = wide(&l, Role::Weight(3));
                let own = |(i, row): (usize, &[f64])| clamped(row, &bias[chosen(i) * height..][..height]);
                wanted.chunks(height).enumerate().flat_map(own).collect()
            }
            (true, _) => gated(&spec, &wanted, n),
            _ => wanted,
        };
        execute(&mut l);
        close(&spec, &wide(&l, Role::Out(0)), &wanted);
    }
}

/// The integers of a row of blocks, as `quantise` defines them.
fn quantised(x: &[f32], wide: bool) -> (Vec<i32>, Vec<f32>) {
    let top: f32 = if wide { 32639.0 } else { 127.0 };
    let (mut q, mut scales) = (vec![], vec![]);
    for block in x.chunks(32) {
        let nan = block.iter().any(|x| x.is_nan());
        let absmax = if nan { f32::NAN } else { block.iter().fold(0f32, |most, x| most.max(x.abs())) };
        let inverse = if absmax <= 1e-30 { 0.0 } else { div(top, absmax) };
        scales.push(div(absmax, top));
        q.extend(block.iter().map(|x| {
            // NaN becomes 0.
            mul(*x, inverse).round_ties_even() as i32
        }));
    }
    (q, scales)
}

#[test]
fn rows_become_integers_of_16_or_8_bits() {
    let _mode = FloatMode::set();
    for spec in small("quantise") {
        let mut l = launch(&spec, BATCH, 22);
        let at = l.roles.iter().position(|role| *role == Role::In(0)).unwrap();
        let Buffer::F32(x) = &mut l.buffers[at] else { continue };
        // Zeros, denormals, blocks at the threshold, the largest numbers, ties, a block that is one number, and no numbers.
        let one = |value: f32| [value; 32];
        let ties: [f32; 32] = std::array::from_fn(|i| if i == 0 { 127.0 } else { i as f32 + 0.5 });
        let mut last = one(0.25);
        last[31] = -8.0;
        let special = [one(0.0), one(-0.0), one(1e-40), one(1e-30), one(-2e-30), one(f32::MAX), ties, last];
        let none = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY].map(|value| {
            let mut block = one(1.0);
            block[7] = value;
            block
        });
        for (block, special) in x.chunks_exact_mut(32).zip(special.into_iter().chain(none)) {
            block.copy_from_slice(&special);
        }
        let (x, wide) = (x.clone(), int(&spec, "WIDE") == 1);
        execute(&mut l);
        let [Buffer::I8(hi), Buffer::I8(lo), Buffer::F32(scale), Buffer::F32(sums)] =
            [0, 1, 2, 3].map(|i| buffer(&l, Role::Out(i)))
        else {
            panic!("types of the contract")
        };
        let (q, scales) = quantised(&x, wide);
        for (block, wanted) in q.chunks(32).enumerate() {
            assert_eq!(
                scale[block].to_bits(),
                vosti_tile::numerics::stored_f32(scales[block]),
                "{spec}: block {block}"
            );
            let found: Vec<i32> =
                (32 * block..32 * block + 32)
                    .map(|i| {
                        if wide {
                            256 * i32::from(hi[i]) + i32::from(lo[i])
                        } else {
                            i32::from(hi[i]) + i32::from(lo[i])
                        }
                    })
                    .collect();
            assert_eq!(found, wanted, "{spec}: block {block}, {:?}", &x[32 * block..32 * block + 32]);
            assert!(wide || lo[32 * block..32 * block + 32].iter().all(|x| *x == 0), "{spec}");
            for half in 0..2 {
                let sum: i32 = wanted[16 * half..16 * half + 16].iter().sum();
                assert_eq!(sums[2 * block + half], sum as f32, "{spec}: block {block}");
            }
        }
    }
}
