//! Rotary tables in f32, computed as transformers does: f32 frequencies, f32 angles, then cosine and sine.
//!
//! Powers, sines and cosines are libm's, so that a table is the same bits on every platform.

use std::ops::Range;

use crate::decoder::{Rope, RopeScaling};

/// The frequency of each pair of columns. `divisors`: for [`RopeScaling::Divisors`], one for each.
pub(crate) fn frequencies(rope: &Rope, divisors: &[f32]) -> Vec<f32> {
    let half = rope.head_dim as usize / 2;
    let plain = |i: usize| {
        let exponent = (2 * i) as f32 / rope.head_dim as f32;
        1.0 / libm::pow(rope.theta, f64::from(exponent)) as f32
    };
    match &rope.scaling {
        RopeScaling::None => (0..half).map(plain).collect(),
        RopeScaling::Linear { factor } => (0..half).map(|i| plain(i) / *factor as f32).collect(),
        RopeScaling::Llama3 { factor, low, high, original } => {
            (0..half).map(|i| llama3(plain(i), *factor as f32, *low as f32, *high as f32, *original as f32)).collect()
        }
        RopeScaling::Proportional { fraction, factor } => {
            let rotating = (fraction * f64::from(rope.head_dim) / 2.0) as usize;
            (0..half).map(|i| if i < rotating { plain(i) / *factor as f32 } else { 0.0 }).collect()
        }
        RopeScaling::Divisors { .. } => (0..half).map(|i| plain(i) / divisors[i]).collect(),
    }
}

/// Llama 3.1's scaling of one frequency (transformers `_compute_llama3_parameters`).
fn llama3(frequency: f32, factor: f32, low: f32, high: f32, original: f32) -> f32 {
    let wavelength = std::f32::consts::TAU / frequency;
    if wavelength > original / low {
        return frequency / factor;
    }
    if wavelength < original / high {
        return frequency;
    }
    let smooth = (original / wavelength - low) / (high - low);
    (1.0 - smooth) * frequency / factor + smooth * frequency
}

/// Rows of the table `[positions, head_dim / 2]` of cosines or sines.
pub(crate) fn table(frequencies: &[f32], positions: Range<usize>, sine: bool) -> Vec<f32> {
    let function = if sine { libm::sinf } else { libm::cosf };
    let mut out = Vec::with_capacity(positions.len() * frequencies.len());
    for position in positions {
        out.extend(frequencies.iter().map(|f| function(position as f32 * f)));
    }
    out
}
