//! Compares the kernels of short convolutions on the interpreter with their formulas in FP64.

mod common;

use common::formulas::*;
use common::{Sequences, int, launch};
use vosti_contract::{Dtype, Role};
use vosti_tile::interp::Buffer;

fn ints(buffer: &Buffer) -> Vec<usize> {
    match buffer {
        Buffer::I32(v) => v.iter().map(|x| *x as usize).collect(),
        other => panic!("{:?}", other.elem()),
    }
}

/// What a store of a convolution's inputs leaves in the cache: `input` gives a channel's input from its row of the buffer.
fn check_store(kernel: &str, parts: usize, input: impl Fn(&[f64], usize, usize) -> f64) {
    for spec in small(kernel) {
        let mut l = launch(&spec, &[(2, 61), (1, 200), (4, 0)], 31);
        let [pairs, d, page] = ["KV_HEADS", "D", "PAGE"].map(|n| int(&spec, n));
        let channels = 2 * pairs * d;
        let x = l.roles.iter().position(|r| *r == Role::In(0)).unwrap();
        // The third row has an infinity and a NaN.
        let row = 2 * parts * channels;
        l.buffers[x].set_bits(row, if spec.act == Dtype::Bf16 { 0x7f80 } else { 0x7f80_0000 });
        let nan = row + (parts - 1) * channels + d;
        l.buffers[x].set_bits(nan, if spec.act == Dtype::Bf16 { 0x7fc0 } else { 0x7fc0_0000 });
        let (x, mut keys, mut values) = (wide(&l, Role::In(0)), wide(&l, Role::CacheK), wide(&l, Role::CacheV));
        for (row, slot) in ints(buffer(&l, Role::Slots)).into_iter().enumerate() {
            for c in 0..channels {
                let input = input(&x[row * parts * channels..][..parts * channels], channels, c);
                let cell = ((slot / page * pairs + c / (2 * d)) * page + slot % page) * d + c % d;
                let half = if c / d % 2 == 0 { &mut keys } else { &mut values };
                half[cell] = if input.is_finite() { input } else { 0.0 };
            }
        }
        execute(&mut l);
        close(&spec, &wide(&l, Role::CacheK), &keys);
        close(&spec, &wide(&l, Role::CacheV), &values);
    }
}

#[test]
fn stores_of_inputs_write_them_finite_and_nothing_else() {
    check_store("store_gated", 3, |row, channels, c| row[c] * row[2 * channels + c]);
    check_store("store_conv", 1, |row, _, c| row[c]);
}

/// The sums of each channel's last inputs, through `end`, which also gets the channel's numbers of the row.
fn check_sums(kernel: &str, parts: usize, end: impl Fn(f64, &[f64], usize, usize) -> f64) {
    for spec in small(kernel) {
        let sequences: &Sequences = &[(3, 63), (1, 200), (19, 0)];
        let mut l = launch(&spec, sequences, 32);
        let [pairs, group, d, page, width] = ["KV_HEADS", "GROUP", "D", "PAGE", "WINDOW"].map(|n| int(&spec, n));
        let channels = pairs * group * d;
        let (x, taps) = (wide(&l, Role::In(0)), wide(&l, Role::Weight(0)));
        let bias = l.roles.contains(&Role::Weight(1)).then(|| wide(&l, Role::Weight(1)));
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
                    let sum = sum + bias.as_ref().map_or(0.0, |bias| bias[c]);
                    y.push(end(sum, &x[(row + t) * parts * channels..][..parts * channels], channels, c));
                }
            }
            row += count;
            start += (first + count).div_ceil(page);
        }
        execute(&mut l);
        close(&spec, &wide(&l, Role::Out(0)), &y);
    }
}

#[test]
fn a_convolution_sums_each_channels_last_inputs_and_gates_the_sum() {
    check_sums("short_conv", 3, |sum, row, channels, c| row[channels + c] * sum);
    for kernel in ["conv_silu", "conv_silu_bias"] {
        check_sums(kernel, 1, |sum, _, _, _| sum / (1.0 + (-sum).exp()));
    }
}
