//! Random numbers for probes, among them values that break kernels.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use std::sync::{Mutex, PoisonError};
use std::thread;
use vosti_tile::Scalar;
use vosti_tile::numerics::{from_bf16, to_bf16};

/// Seeded random numbers.
pub struct Random(SplitMix64);

impl Random {
    /// A generator that the seed fixes.
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed))
    }

    /// The next 64 random bits.
    pub fn draw(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number in `0..n`; 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.draw() % n.max(1) as u64) as usize
    }

    /// A number in `lo..=hi`.
    pub fn between(&mut self, lo: usize, hi: usize) -> usize {
        lo + self.below(hi.saturating_sub(lo) + 1)
    }

    /// The numbers below `n` in random order.
    pub fn shuffled(&mut self, n: usize) -> Vec<usize> {
        let mut list: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            list.swap(i, self.below(i + 1));
        }
        list
    }

    /// A value of a chosen row: mostly moderate, sometimes a zero of either sign or small enough that products underflow.
    pub fn number(&mut self) -> f32 {
        let bits = self.draw();
        let x = (bits >> 40) as f32 / (1u64 << 22) as f32 - 2.0;
        match bits % 64 {
            0 => 0.0,
            1 => -0.0,
            2 => x * 1e-25,
            3 => f32::MIN_POSITIVE * x,
            4 => x * 8.0,
            _ => x,
        }
    }

    /// A value of a row that no chosen row may see: NaN, infinity or huge.
    pub fn wild(&mut self) -> f32 {
        let bits = self.draw();
        match bits % 4 {
            0 => [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0][(bits >> 8) as usize % 4],
            _ => self.finite(),
        }
    }

    /// A value of a cache that no chosen row sees: of any size, but finite, as every stored value is.
    pub fn finite(&mut self) -> f32 {
        match self.below(4) {
            0 => [3e38, -3e38, 0.0, -0.0][self.below(4)],
            _ => self.number() * 100.0,
        }
    }
}

/// Numbers that one thread makes at a time.
const PART: usize = 1 << 15;

/// Fills a buffer with numbers, on all cores. The numbers do not depend on the number of cores.
pub fn fill(bytes: &mut [u8], elem: Scalar, random: &mut Random, next: fn(&mut Random) -> f32) {
    let seed = random.draw();
    let threads = thread::available_parallelism().map_or(1, usize::from).min(bytes.len() / (PART * elem.bytes()));
    let parts = Mutex::new(bytes.chunks_mut(PART * elem.bytes()).enumerate());
    let work = || {
        loop {
            let part = parts.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((index, part)) = part else { return };
            let mut random = Random::new(seed.wrapping_add(index as u64));
            (0..part.len() / elem.bytes()).for_each(|i| put(part, elem, i, next(&mut random)));
        }
    };
    thread::scope(|scope| {
        (1..threads).for_each(|_| drop(scope.spawn(work)));
        work();
    });
}

/// Writes a number to a buffer, rounded to its element type.
pub fn put(bytes: &mut [u8], elem: Scalar, index: usize, x: f32) {
    match elem {
        Scalar::Bf16 => bytes[2 * index..][..2].copy_from_slice(&to_bf16(x).to_le_bytes()),
        // Small indices, and some that are none.
        Scalar::I32 => bytes[4 * index..][..4].copy_from_slice(&((x * 4.0) as i32).to_le_bytes()),
        _ => bytes[4 * index..][..4].copy_from_slice(&x.to_le_bytes()),
    }
}

pub fn get(bytes: &[u8], elem: Scalar, index: usize) -> f32 {
    match elem {
        Scalar::Bf16 => from_bf16(u16::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]])),
        Scalar::I32 => {
            i32::from_le_bytes([bytes[4 * index], bytes[4 * index + 1], bytes[4 * index + 2], bytes[4 * index + 3]])
                as f32
        }
        _ => f32::from_le_bytes([bytes[4 * index], bytes[4 * index + 1], bytes[4 * index + 2], bytes[4 * index + 3]]),
    }
}

/// The first lane in which two rows differ. NaNs are alike.
pub fn differ(a: &[u8], b: &[u8], elem: Scalar) -> Option<usize> {
    if a == b {
        return None;
    }
    (0..a.len() / elem.bytes()).find(|i| {
        let (x, y) = (get(a, elem, *i), get(b, elem, *i));
        x.to_bits() != y.to_bits() && !(x.is_nan() && y.is_nan())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A buffer of several parts and a ragged end.
    #[test]
    fn every_number_of_a_buffer_is_made_and_follows_from_the_seed() {
        let made = |seed: u64| {
            let mut bytes = vec![0xff; (3 * PART + 5) * 2];
            fill(&mut bytes, Scalar::Bf16, &mut Random::new(seed), Random::number);
            bytes
        };
        let bytes = made(1);
        assert!(bytes == made(1) && bytes != made(2));
        let parts: Vec<&[u8]> = bytes.chunks(PART * 2).collect();
        assert!(parts.len() == 4 && parts[0] != parts[1] && parts[1] != parts[2]);
        assert!((0..bytes.len() / 2).all(|i| get(&bytes, Scalar::Bf16, i).is_finite()), "one was not made");
    }
}
