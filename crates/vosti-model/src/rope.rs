//! Rotary tables in f32, computed as transformers does: f32 frequencies, f32 angles, then cosine and sine.
//!
//! Powers, sines, cosines and logarithms are libm's, so a table has the same bits on every platform. A table depends on the
//! model and on the number of positions that the deployment serves, never on a request.

use std::ops::Range;

use crate::decoder::{Factors, Rope, RopeScaling};

/// The name of the tensor with the embedding's factors, if a file's tensor holds them.
pub(crate) fn tensor(rope: &Rope, positions: usize) -> Option<&str> {
    match &rope.scaling {
        RopeScaling::Divisors { tensor } => Some(tensor),
        RopeScaling::Long { short, long, original, .. } => {
            match if positions > *original as usize { long } else { short } {
                Factors::Tensor(name) => Some(name),
                Factors::Listed(_) => None,
            }
        }
        _ => None,
    }
}

/// The frequency of each pair of columns, for a deployment of `positions` positions. `factors` are the elements of the tensor
/// that [`tensor`] names, one for each pair that rotates.
pub(crate) fn frequencies(rope: &Rope, positions: usize, factors: &[f32]) -> Vec<f32> {
    let mut all = rotating(rope, positions, factors);
    all.resize(rope.head_dim as usize / 2, 0.0);
    all
}

fn rotating(rope: &Rope, positions: usize, factors: &[f32]) -> Vec<f32> {
    let half = rope.rotary as usize / 2;
    let power = |i: usize| {
        let exponent = (2 * i) as f32 / rope.rotary as f32;
        libm::pow(rope.theta, f64::from(exponent)) as f32
    };
    let plain = |i: usize| 1.0 / power(i);
    match &rope.scaling {
        RopeScaling::None => (0..half).map(plain).collect(),
        RopeScaling::Linear { factor } => (0..half).map(|i| plain(i) / *factor as f32).collect(),
        RopeScaling::Llama3 { factor, low, high, original } => {
            (0..half).map(|i| llama3(plain(i), *factor as f32, *low as f32, *high as f32, *original as f32)).collect()
        }
        RopeScaling::Proportional { fraction, factor } => {
            let rotating = (fraction * f64::from(rope.rotary) / 2.0) as usize;
            (0..half).map(|i| if i < rotating { plain(i) / *factor as f32 } else { 0.0 }).collect()
        }
        RopeScaling::Divisors { .. } => (0..half).map(|i| plain(i) / factors[i]).collect(),
        RopeScaling::Yarn { factor, .. } => {
            let kept = kept(rope);
            let mix = |i: usize| 1.0 / (*factor as f32 * power(i)) * (1.0 - kept[i]) + plain(i) * kept[i];
            (0..half).map(mix).collect()
        }
        RopeScaling::Long { short, long, original, .. } => {
            let factors = match if positions > *original as usize { long } else { short } {
                Factors::Listed(listed) => listed,
                Factors::Tensor(_) => factors,
            };
            (0..half).map(|i| 1.0 / (factors[i] * power(i))).collect()
        }
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

/// The share of each frequency that YaRN keeps, from 0 to 1 (transformers `_compute_yarn_parameters`).
fn kept(rope: &Rope) -> Vec<f32> {
    let RopeScaling::Yarn { original, fast, slow, truncate, .. } = &rope.scaling else { return Vec::new() };
    let dim = f64::from(rope.rotary);
    let index = |rotations: f64| {
        dim * libm::log(original / (rotations * std::f64::consts::TAU)) / (2.0 * libm::log(rope.theta))
    };
    let (mut low, mut high) = (index(*fast), index(*slow));
    if *truncate {
        (low, high) = (libm::floor(low), libm::ceil(high));
    }
    let (low, mut high) = (low.max(0.0), high.min(dim - 1.0));
    if low == high {
        high += 0.001;
    }
    let ramp = |i: u32| ((i as f32 - low as f32) / (high - low) as f32).clamp(0.0, 1.0);
    (0..rope.rotary / 2).map(|i| 1.0 - ramp(i)).collect()
}

/// Rows of the table `[positions, head_dim / 2]` of cosines or sines.
pub(crate) fn table(rope: &Rope, frequencies: &[f32], positions: Range<usize>, sine: bool) -> Vec<f32> {
    let function = if sine { libm::sinf } else { libm::cosf };
    let amplitude = match &rope.scaling {
        RopeScaling::Yarn { amplitude, .. } | RopeScaling::Long { amplitude, .. } => *amplitude as f32,
        _ => 1.0,
    };
    // The amplitude applies only to pairs that rotate; the others are multiplied by one.
    let rotating = rope.rotary as usize / 2;
    let mut out = Vec::with_capacity(positions.len() * frequencies.len());
    for position in positions {
        let temperature = rope.temperature.map_or(1.0, |(beta, original)| {
            (1.0 + beta * libm::log(1.0 + libm::floor(position as f64 / original))) as f32
        });
        out.extend(frequencies.iter().enumerate().map(|(i, f)| {
            let amplitude = if i < rotating { amplitude } else { 1.0 };
            function(position as f32 * f) * amplitude * temperature
        }));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longrope_takes_its_factors_by_the_positions_that_are_served() {
        let (short, long) = (Factors::Listed(vec![1.0; 4]), Factors::Tensor("long".into()));
        let scaling = RopeScaling::Long { short, long, original: 64, amplitude: 1.5 };
        let rope = Rope { rotary: 8, scaling, ..Rope::plain(10_000.0, 16) };
        assert_eq!((tensor(&rope, 64), tensor(&rope, 65)), (None, Some("long")));
        let (near, far) = (frequencies(&rope, 64, &[]), frequencies(&rope, 65, &[2.0; 4]));
        assert!(near.iter().zip(&far).all(|(n, f)| *f == n / 2.0));
        assert_eq!((near.len(), &near[4..]), (8, &[0.0; 4][..]));
        // A position has the same numbers in every range of rows.
        let whole = table(&rope, &far, 0..65, false);
        assert_eq!(whole[3 * 8..4 * 8], table(&rope, &far, 3..4, false));
        assert_eq!((whole[0], whole[4]), (1.5, 1.0));
    }
}
