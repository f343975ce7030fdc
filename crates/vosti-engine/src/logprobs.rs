//! Log-probabilities for the API, of the logits row as the model gave it: before temperature, penalties and bias.
//!
//! log p = (logit - max) - ln(sum of e^(x - max)). `math::sum_exp` defines the sum, the logarithm is libm's in f64, and the
//! result is rounded to f32 once. It is a function of the row's bits: equal rows give equal log-probabilities.

use crate::{Token, math};

/// Log-probability of one token, its rank, and the most likely tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct Logprobs {
    /// Natural logarithm of the token's probability, at most 0.
    pub logprob: f32,
    /// The token's place in the row, from 1 for the most likely; ties by id.
    pub rank: usize,
    /// The most likely tokens, most likely first, ties by id.
    pub top: Vec<(Token, f32)>,
}

/// The row's largest logit, and ln(sum of e^(x - max)).
fn normaliser(logits: &[f32]) -> (f32, f64) {
    let max = math::max(logits);
    (max, libm::log(math::sum_exp(logits, max)))
}

/// The log-probabilities of `token` and of the `top` most likely tokens. Panics if `token` is outside the row.
pub fn logprobs(logits: &[f32], token: Token, top: usize) -> Logprobs {
    let (max, log_sum) = normaliser(logits);
    let of = |logit: f32| ((f64::from(logit) - f64::from(max)) - log_sum) as f32;
    let own = logits[token as usize];
    let above = logits.iter().filter(|x| **x > own).count();
    let equal_before = logits[..token as usize].iter().filter(|x| **x == own).count();
    Logprobs {
        logprob: of(own),
        rank: 1 + above + equal_before,
        top: math::largest(logits, top).into_iter().map(|t| (t, of(logits[t as usize]))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_sum_to_one() {
        let logits: Vec<f32> = (0..100).map(|i| ((i * 31 % 17) as f32) * 0.5).collect();
        let sum: f64 = (0..100).map(|t| libm::exp(f64::from(logprobs(&logits, t, 0).logprob))).sum();
        assert!((sum - 1.0).abs() < 1e-5, "{sum}");
    }

    #[test]
    fn ties_rank_by_token_id() {
        let row = [1.0, 3.0, 3.0, 0.0];
        assert_eq!(logprobs(&row, 2, 3).rank, 2);
        assert_eq!(math::largest(&row, 3), [1, 2, 0]);
    }
}
