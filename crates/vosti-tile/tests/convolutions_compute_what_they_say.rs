//! Compares the kernels of short convolutions on the interpreter with their formulas in FP64.

mod common;

use common::formulas::*;
use common::{Sequences, int, launch};
use vosti_kernels::{Dtype, Role};
use vosti_tile::interp::Buffer;

fn ints(buffer: &Buffer) -> Vec<usize> {
    match buffer {
        Buffer::I32(v) => v.iter().map(|x| *x as usize).collect(),
        other => panic!("{:?}", other.elem()),
    }
}

#[test]
fn store_gated_writes_products_of_gates_and_inputs_finite_and_nothing_else() {
    for spec in small("store_gated") {
        let mut l = launch(&spec, &[(2, 61), (1, 200), (4, 0)], 31);
        let [pairs, d, page] = ["KV_HEADS", "D", "PAGE"].map(|n| int(&spec, n));
        let channels = 2 * pairs * d;
        let fused = l.roles.iter().position(|r| *r == Role::In(0)).unwrap();
        // The third row has an infinite gate and an input of NaN.
        l.buffers[fused].set_bits(2 * 3 * channels, if spec.act == Dtype::Bf16 { 0x7f80 } else { 0x7f80_0000 });
        l.buffers[fused]
            .set_bits(2 * 3 * channels + 2 * channels + d, if spec.act == Dtype::Bf16 { 0x7fc0 } else { 0x7fc0_0000 });
        let (x, mut keys, mut values) = (wide(&l, Role::In(0)), wide(&l, Role::CacheK), wide(&l, Role::CacheV));
        for (row, slot) in ints(buffer(&l, Role::Slots)).into_iter().enumerate() {
            for c in 0..channels {
                let product = x[row * 3 * channels + c] * x[row * 3 * channels + 2 * channels + c];
                let cell = ((slot / page * pairs + c / (2 * d)) * page + slot % page) * d + c % d;
                let half = if c / d % 2 == 0 { &mut keys } else { &mut values };
                half[cell] = if product.is_finite() { product } else { 0.0 };
            }
        }
        execute(&mut l);
        close(&spec, &wide(&l, Role::CacheK), &keys);
        close(&spec, &wide(&l, Role::CacheV), &values);
    }
}

#[test]
fn a_short_convolution_sums_each_channels_last_inputs_and_gates_the_sum() {
    for spec in small("short_conv") {
        let sequences: &Sequences = &[(3, 63), (1, 200), (19, 0)];
        let mut l = launch(&spec, sequences, 32);
        let [pairs, group, d, page, width] = ["KV_HEADS", "GROUP", "D", "PAGE", "WINDOW"].map(|n| int(&spec, n));
        let channels = pairs * group * d;
        let (x, taps) = (wide(&l, Role::In(0)), wide(&l, Role::Weight(0)));
        let halves = [wide(&l, Role::CacheK), wide(&l, Role::CacheV)];
        let table = ints(buffer(&l, Role::PageTable));
        let (mut y, mut row, mut start) = (vec![], 0, 0);
        for (count, first) in sequences {
            for t in 0..*count {
                let p = first + t;
                for c in 0..channels {
                    let input = |at: usize| {
                        let line = (table[start + at / page] * pairs + c / (group * d)) * page + at % page;
                        halves[c / d % group][line * d + c % d]
                    };
                    let seen = (0..width).filter(|w| p + 1 + w >= width);
                    let sum: f64 = seen.map(|w| taps[c * width + w] * input(p + 1 + w - width)).sum();
                    y.push(x[(row + t) * 3 * channels + channels + c] * sum);
                }
            }
            row += count;
            start += (first + count).div_ceil(page);
        }
        execute(&mut l);
        close(&spec, &wide(&l, Role::Out(0)), &y);
    }
}
