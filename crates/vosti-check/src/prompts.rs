//! Seeded random prompts: ordinary token ids, BOS first where the model has one, no special ids.

use super::Facts;
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use vosti_engine::{Request, Sampling, SamplingParams, Token};

/// Seeded random numbers, the same everywhere.
#[derive(Clone, Debug)]
pub struct Random(SplitMix64);

impl Random {
    /// Random numbers that depend on `seed` and `label` only.
    pub fn new(seed: u64, label: &str) -> Self {
        let mut hash = blake3::Hasher::new();
        hash.update(&seed.to_le_bytes()).update(label.as_bytes());
        let bytes = hash.finalize();
        Random(SplitMix64::from_seed(bytes.as_bytes()[..8].try_into().expect("eight bytes")))
    }

    /// The next 64 random bits.
    pub fn draw(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`, which is at least 1.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.draw() % bound as u64) as usize
    }

    /// A shuffle of 0..n (Fisher-Yates).
    pub fn order(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        for i in (1..n).rev() {
            order.swap(i, self.below(i + 1));
        }
        order
    }
}

/// `n` ordinary tokens.
pub fn tokens(facts: &Facts, random: &mut Random, n: usize) -> Vec<Token> {
    let mut tokens = Vec::with_capacity(n);
    while tokens.len() < n {
        let token = random.below(facts.vocab as usize) as Token;
        // If all tokens are special, any token is taken: otherwise the loop would not end.
        let ordinary = facts.special.len() >= facts.vocab as usize;
        if ordinary || facts.special.binary_search(&token).is_err() {
            tokens.push(token);
        }
    }
    tokens
}

/// A prompt of `len` tokens, a function of (seed, label, len).
pub fn prompt(facts: &Facts, seed: u64, label: &str, len: usize) -> Vec<Token> {
    let mut random = Random::new(seed, &format!("{label}/{len}"));
    let mut prompt: Vec<Token> = facts.bos.into_iter().take(len).collect();
    prompt.extend(tokens(facts, &mut random, len - prompt.len()));
    prompt
}

/// Requests that a restarted process answers again.
pub fn reproduced(facts: &Facts, seed: u64) -> Vec<Request> {
    short(facts, seed, "probe", &[17, 64, 130])
}

/// Greedy requests of [`SHORT_ANSWER`] tokens each, without those too long for the model.
pub fn short(facts: &Facts, seed: u64, label: &str, lengths: &[usize]) -> Vec<Request> {
    let fitting = lengths.iter().filter(|len| *len + SHORT_ANSWER < facts.context);
    fitting.map(|len| Request::new(prompt(facts, seed, label, *len), Sampling::greedy(SHORT_ANSWER))).collect()
}

/// Tokens that [`short`] requests generate.
pub const SHORT_ANSWER: usize = 4;

/// A mix of requests of different lengths, `answer` tokens each: greedy, sampled from whole rows, from the largest logits of a row,
/// which a GPU lists, and by temperature alone, which a GPU draws.
pub fn workload(facts: &Facts, seed: u64, lengths: &[usize], answer: usize) -> Vec<Request> {
    let requests = lengths.iter().enumerate().map(|(i, &len)| {
        let params = drawn(answer, seed.wrapping_add(i as u64));
        let sampling = match i % 4 {
            0 => Sampling::greedy(answer),
            1 => valid(params),
            2 => valid(SamplingParams { top_k: 40, ..params }),
            _ => valid(SamplingParams { top_p: 1.0, ..params }),
        };
        Request::new(prompt(facts, seed, &format!("workload {i}"), len), sampling)
    });
    requests.collect()
}

/// Sampling with a temperature, so that the answer depends on the random numbers.
pub fn sampled(answer: usize, seed: u64) -> Sampling {
    valid(drawn(answer, seed))
}

/// Sampling at the highest temperature, so that answers differ however sure a model is of its next token.
pub fn scattered(answer: usize, seed: u64) -> Sampling {
    valid(SamplingParams { temperature: 100.0, seed, tokens_max: answer, ..SamplingParams::default() })
}

fn drawn(answer: usize, seed: u64) -> SamplingParams {
    SamplingParams { temperature: 0.9, top_p: 0.95, seed, tokens_max: answer, ..SamplingParams::default() }
}

fn valid(params: SamplingParams) -> Sampling {
    Sampling::new(params).expect("the suite's own sampling parameters are valid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_are_reproducible_begin_with_bos_and_hold_no_special_token() {
        let facts = Facts { vocab: 50, bos: Some(1), special: vec![0, 1, 2, 7], ..Facts::default() };
        let a = prompt(&facts, 3, "x", 200);
        assert_eq!(a, prompt(&facts, 3, "x", 200));
        assert_ne!(a, prompt(&facts, 4, "x", 200));
        assert_eq!(a[0], 1);
        assert!(a[1..].iter().all(|t| *t < 50 && !facts.special.contains(t)));
    }
}
