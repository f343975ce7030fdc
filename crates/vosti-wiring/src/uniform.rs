//! Random numbers in place of a weight. They are a function of the weight's name and the element's index, so each device makes
//! the same numbers, in parts of any size.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use vosti_tile::numerics::to_bf16;

/// Numbers spread evenly over -scale..scale: the counter `seed + index * 0x9e3779b97f4a7c15` through SplitMix64, of whose output
/// the upper 24 bits count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Uniform {
    /// Another seed gives other numbers.
    pub seed: u64,
    /// The largest magnitude.
    pub scale: f32,
}

impl Uniform {
    /// The numbers of the weight of this name; the seed is its FNV-1a hash (64 bits).
    pub fn named(name: &str, scale: f32) -> Uniform {
        let seed =
            name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |s, b| (s ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        Uniform { seed, scale }
    }

    /// The number at an index: one in -1..1 exactly, times the scale, rounded once.
    pub fn at(&self, index: usize) -> f32 {
        let seed = self.seed.wrapping_add((index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let unit = (SplitMix64::seed_from_u64(seed).next_u64() >> 40) as f32 / (1 << 23) as f32 - 1.0;
        self.scale * unit
    }

    /// The number at an index, rounded to BF16, as bits.
    pub fn bf16(&self, index: usize) -> u16 {
        to_bf16(self.at(index))
    }
}
