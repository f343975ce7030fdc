//! Random numbers as a pure function of (seed, choice, position): Philox4x32-10. Of several prompts with one seed, each has a
//! seed of its own.
//!
//! Philox is the counter-based generator of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). It has no
//! state to advance, so a draw cannot depend on time, on the batch or on the order of calls. This module must never hold
//! state. Read next: `sampler.rs`.

/// Multipliers and key increments of the paper's table 2 and section 4.3.
const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// One block of Philox4x32-10: four 32-bit words for a 128-bit counter under a 64-bit key.
pub fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let mut c = counter;
    let mut k = key;
    for _ in 0..ROUNDS {
        let p0 = u64::from(MULTIPLIERS[0]) * u64::from(c[0]);
        let p1 = u64::from(MULTIPLIERS[1]) * u64::from(c[2]);
        c = [(p1 >> 32) as u32 ^ c[1] ^ k[0], p1 as u32, (p0 >> 32) as u32 ^ c[3] ^ k[1], p0 as u32];
        k = [k[0].wrapping_add(WEYL[0]), k[1].wrapping_add(WEYL[1])];
    }
    c
}

/// A number in [0, 1) with 53 random bits, for the token at `position` of choice `choice` under `seed`.
pub fn uniform(seed: u64, choice: u32, position: u64) -> f64 {
    // Sampling uses the stream whose last counter word is 0.
    let counter = [position as u32, (position >> 32) as u32, choice, 0];
    let words = philox(counter, [seed as u32, (seed >> 32) as u32]);
    let bits = (u64::from(words[0]) << 32 | u64::from(words[1])) >> 11;
    bits as f64 * (1.0 / (1u64 << 53) as f64)
}

/// Two numbers in [0, 1) with 24 random bits each, for a draw in two levels of the token at `position`.
pub fn pair(seed: u64, choice: u32, position: u64) -> [f32; 2] {
    let counter = [position as u32, (position >> 32) as u32, choice, 0];
    let [_, _, first, second] = philox(counter, [seed as u32, (seed >> 32) as u32]);
    [first, second].map(|word| (word >> 8) as f32 * (1.0 / (1u32 << 24) as f32))
}

/// The seed of prompt number `prompt` of several that are answered with one seed: its draws are those of a request of its own
/// with this seed. Number 0 has `seed` itself; the others have 53 bits, so that every JSON reader keeps them.
pub fn prompt_seed(seed: u64, prompt: u64) -> u64 {
    if prompt == 0 {
        return seed;
    }
    // A stream apart from sampling's: the last counter word is 1.
    let words = philox([prompt as u32, (prompt >> 32) as u32, 0, 1], [seed as u32, (seed >> 32) as u32]);
    (u64::from(words[0]) << 32 | u64::from(words[1])) >> 11
}

/// The largest whole number that JavaScript, and every other reader of JSON with 64-bit floats, keeps as it is.
pub const JSON_MAX: u64 = (1 << 53) - 1;

/// How a seed stands in JSON: as a number, or as a text with the digits of a greater one. Every JSON that this program writes has seeds
/// so, and whatever takes a seed takes both.
pub fn in_json(seed: i128) -> Result<i64, String> {
    match i64::try_from(seed) {
        Ok(number) if number.unsigned_abs() <= JSON_MAX => Ok(number),
        _ => Err(seed.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers published with the authors' Random123 library.
    #[test]
    fn philox_gives_the_published_answers() {
        let ones = u32::MAX;
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([ones; 4], [ones; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn draws_are_in_range_and_differ_by_seed_choice_and_position() {
        let base = uniform(1, 0, 0);
        for draw in [uniform(2, 0, 0), uniform(1, 1, 0), uniform(1, 0, 1)] {
            assert!((0.0..1.0).contains(&draw));
            assert_ne!(draw, base);
        }
        let mean = (0..10_000).map(|p| uniform(7, 3, p)).sum::<f64>() / 10_000.0;
        assert!((mean - 0.5).abs() < 0.02, "mean {mean}");
    }

    #[test]
    fn pairs_are_in_range_and_differ_by_seed_choice_and_position() {
        let base = pair(1, 0, 0);
        let whole = |x: f32| x * (1 << 24) as f32;
        for drawn in [pair(2, 0, 0), pair(1, 1, 0), pair(1, 0, 1), pair(1, 0, 1 << 32), pair(1 << 32, 0, 0)] {
            for (x, other) in drawn.into_iter().zip(base) {
                assert!((0.0..1.0).contains(&x) && whole(x).fract() == 0.0 && x != other);
            }
        }
        let finest = (0..1_000).flat_map(|p| pair(1, 0, p)).filter(|x| whole(*x) as u32 % 2 == 1).count();
        assert!((900..1_100).contains(&finest), "{finest} of 2000 have the last of 24 bits");
    }

    #[test]
    fn the_numbers_of_a_pair_and_the_single_one_say_nothing_of_each_other() {
        let n = 10_000;
        let of = |p: u64| {
            let [a, b] = pair(7, 3, p).map(f64::from);
            [a, b, uniform(7, 3, p)].map(|x| x - 0.5)
        };
        for (i, j) in [(0, 1), (0, 2), (1, 2)] {
            // The variance of a uniform number is 1/12; a sum of n products has sqrt(n) / 12 around 0.
            let products: f64 = (0..n).map(|p| of(p)[i] * of(p)[j]).sum();
            assert!(products.abs() < 4.0 * (n as f64).sqrt() / 12.0, "{i} and {j}: {products}");
        }
        for i in 0..3 {
            let mean = (0..n).map(|p| of(p)[i]).sum::<f64>() / n as f64;
            assert!(mean.abs() < 0.01, "{i}: {mean}");
        }
    }

    #[test]
    fn prompts_have_seeds_of_their_own_that_every_json_reader_keeps() {
        assert_eq!(prompt_seed(u64::MAX, 0), u64::MAX);
        let seeds: std::collections::BTreeSet<u64> =
            (0..4).flat_map(|seed| (1..1_000).map(move |prompt| prompt_seed(seed, prompt))).collect();
        assert!(seeds.len() == 4 * 999 && seeds.iter().all(|seed| *seed <= JSON_MAX));
    }

    #[test]
    fn a_seed_stands_in_json_as_a_number_that_every_reader_keeps_or_as_its_digits() {
        let most = i128::from(JSON_MAX);
        for seed in [0, -1, most, -most] {
            assert_eq!(in_json(seed), Ok(seed as i64));
            assert_eq!(in_json(seed).map(|number| number as f64 as i128), Ok(seed));
        }
        for seed in [most + 1, -most - 1, i128::from(u64::MAX), i128::from(i64::MIN)] {
            assert_eq!(in_json(seed), Err(seed.to_string()));
        }
    }
}
