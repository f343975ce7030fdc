//! One logits vector: its bits, and whether its values are plausible as logits.

use std::fmt::Write;

/// A recorded logits vector.
#[derive(Clone, Debug)]
pub struct Row {
    /// Position of the last token it depends on.
    pub position: usize,
    /// BLAKE3 of its bits.
    pub digest: blake3::Hash,
    /// Its values, if they are kept to describe a difference.
    pub logits: Option<Vec<f32>>,
    /// Why its values are not plausible as logits; none if they are.
    pub insane: Option<String>,
}

impl Row {
    /// Records one row. With `keep` all of its logits are kept, so that a difference can be described.
    pub fn new(position: usize, logits: &[f32], keep: bool) -> Self {
        let mut hash = blake3::Hasher::new();
        let mut bytes = Vec::with_capacity(4096);
        for block in logits.chunks(1024) {
            bytes.clear();
            block.iter().for_each(|x| bytes.extend_from_slice(&x.to_bits().to_le_bytes()));
            hash.update(&bytes);
        }
        let digest = hash.finalize();
        Row { position, digest, logits: keep.then(|| logits.to_vec()), insane: insane(logits) }
    }

    /// None if both are equal bit for bit, otherwise how many values differ and by how much at most.
    pub fn difference(&self, other: &Row) -> Option<String> {
        if self.digest == other.digest {
            return None;
        }
        let (Some(a), Some(b)) = (&self.logits, &other.logits) else {
            return Some("digests differ".into());
        };
        if a.len() != b.len() {
            return Some(format!("{} values against {}", a.len(), b.len()));
        }
        let mut count = 0;
        let mut largest = 0f32;
        for (x, y) in a.iter().zip(b) {
            if x.to_bits() != y.to_bits() {
                count += 1;
                largest = largest.max((x - y).abs());
            }
        }
        let mut text = format!("{count} of {} values differ", a.len());
        let _ = write!(text, ", by at most {largest:.3e}");
        Some(text)
    }
}

/// Bounds of the spread (largest minus smallest value) of plausible logits. A constant or exploded vector is no evidence, because
/// it would be equal in any run.
const SPREAD_MIN: f32 = 1e-2;
const SPREAD_MAX: f32 = 1e4;
/// Highest entropy of plausible logits, as a share of the uniform distribution's.
const ENTROPY_SHARE_MAX: f64 = 0.9999;

fn insane(logits: &[f32]) -> Option<String> {
    if logits.is_empty() {
        return Some("no logits".into());
    }
    if let Some(i) = logits.iter().position(|x| !x.is_finite()) {
        return Some(format!("value {i} is {}", logits[i]));
    }
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let min = logits.iter().copied().fold(f32::INFINITY, f32::min);
    if !(SPREAD_MIN..=SPREAD_MAX).contains(&(max - min)) {
        return Some(format!("spread {:e} is outside {SPREAD_MIN:e} to {SPREAD_MAX:e}", max - min));
    }
    // Entropy of softmax: ln sum(e^(x - max)) - sum((x - max) e^(x - max)) / sum.
    let (mut sum, mut weighted) = (0f64, 0f64);
    for x in logits {
        let d = f64::from(x - max);
        let e = d.exp();
        sum += e;
        weighted += d * e;
    }
    let entropy = sum.ln() - weighted / sum;
    let uniform = (logits.len() as f64).ln();
    if entropy > ENTROPY_SHARE_MAX * uniform {
        return Some(format!("entropy {entropy:.4} is that of the uniform distribution, {uniform:.4}"));
    }
    if entropy <= 0.0 {
        return Some("entropy 0: one token has all the probability".into());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn varied() -> Vec<f32> {
        (0..500).map(|i| ((i * 37) % 101) as f32 / 20.0).collect()
    }

    #[test]
    fn equal_bits_are_equal_and_one_bit_is_a_difference() {
        let a = varied();
        let mut b = a.clone();
        assert_eq!(Row::new(0, &a, true).difference(&Row::new(0, &b, true)), None);
        b[7] = f32::from_bits(b[7].to_bits() ^ 1);
        let difference = Row::new(0, &a, true).difference(&Row::new(0, &b, true)).unwrap();
        assert!(difference.starts_with("1 of 500 values differ"), "{difference}");
        let zeros = (Row::new(0, &[0.0, 1.0], true), Row::new(0, &[-0.0, 1.0], true));
        assert!(zeros.0.difference(&zeros.1).is_some(), "-0 is not 0");
    }

    #[test]
    fn missing_constant_infinite_and_saturated_vectors_are_no_evidence() {
        assert_eq!(insane(&varied()), None);
        assert!(insane(&[]).is_some());
        assert!(insane(&[1.5; 100]).is_some());
        assert!(insane(&[0.0, f32::NAN, 1.0]).is_some());
        assert!(insane(&[0.0, 1e9]).is_some());
        assert!(insane(&[0.0, 5e3, 0.0]).is_some());
    }
}
