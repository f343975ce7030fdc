//! Rows of a quantised file at random, and their elements by the formulas of their formats.

#![allow(dead_code, reason = "no test program uses all of it")]

use half::bf16;
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use vosti_kernels::{Format, Quantised};

/// Random rows of a format: any finite scales, denormal, zero and negative ones among them.
pub fn random(format: &'static Format, rows: usize, columns: usize, seed: u64) -> Quantised {
    let mut random = SplitMix64::seed_from_u64(seed);
    let mut next = || random.next_u64() >> 11;
    let mut out = Quantised::new(format, columns);
    let half = |bits: u64| match bits % 16 {
        0 => (bits >> 8) as u16 & 0x83ff,
        1 => 0x8000,
        2 => (bits >> 8) as u16 & 0xfbff,
        _ => 0x2000 | (bits >> 8) as u16 & 0x8fff,
    };
    out.scales = (0..rows * columns / format.chunk).map(|_| half(next())).collect();
    out.codes = (0..rows * columns).map(|_| (next() & ((1 << format.bits) - 1)) as u8).collect();
    let groups = if format.two_levels() { rows * columns / format.group } else { 0 };
    out.group_scales = (0..groups).map(|_| if format.minimum { next() as i8 & 63 } else { next() as i8 }).collect();
    if format.minimum {
        out.minima = out.scales.iter().map(|_| half(next())).collect();
        out.group_minima = (0..groups).map(|_| next() as i8 & 63).collect();
    }
    out
}

/// The BF16 bits of an element by the formula of its format.
pub fn value(rows: &Quantised, row: usize, k: usize) -> u16 {
    let format = rows.format;
    let at = |every: usize| (row * rows.columns + k) / every;
    let half = |bits: u16| half::f16::from_bits(bits).to_f32();
    let (mut scale, mut minimum) = (half(rows.scales[at(format.chunk)]), 0.0);
    if format.minimum {
        minimum = half(rows.minima[at(format.chunk)]);
    }
    if format.two_levels() {
        scale *= f32::from(rows.group_scales[at(format.group)]);
        if format.minimum {
            minimum *= f32::from(rows.group_minima[at(format.group)]);
        }
    }
    bf16::from_f32(scale * format.value(rows.codes[at(1)]) - minimum).to_bits()
}
