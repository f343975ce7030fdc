//! Sampling parameters as a user gives them, checked once: a `Sampling` that exists is valid.

use crate::Token;
use crate::numbers::{Numbers, Value};
use crate::sampler::Constraint;
use crate::sampling_numbers;
use crate::text::{Thoughts, TokenText};
use std::sync::Arc;

/// Makes a constraint in its initial state.
pub type MakeConstraint = Arc<dyn Fn() -> Box<dyn Constraint> + Send + Sync>;

macro_rules! params {
    ({} $($(#[$doc:meta])* $name:ident: $type:ident as $given:ident = $neutral:literal, $range:tt, $key:literal;)*) => {
        /// Sampling parameters as they arrive; `Sampling::new` checks them. `Default` is greedy without penalties.
        #[derive(Clone)]
        pub struct SamplingParams {
            $($(#[$doc])* pub $name: $type,)*
            /// Added to these tokens' logits. In [-100, 100] each.
            pub logit_bias: Vec<(Token, f32)>,
            /// The answer ends with (and includes) any of these: usually the model's end-of-sequence tokens.
            pub stop_tokens: Vec<Token>,
            /// The answer ends when its text contains one of these. Needs `text`.
            pub stop_strings: Vec<String>,
            /// Thoughts at the beginning of the answer, in which stop strings do not count.
            pub thoughts: Option<Thoughts>,
            /// Bytes of tokens, for stop strings.
            pub text: Option<Arc<dyn TokenText>>,
            /// Makes a constraint (a grammar, a schema) for each choice.
            pub constraint: Option<MakeConstraint>,
            /// No stop token is sampled among the first `tokens_min` tokens, unless a constraint leaves nothing else. A stop string
            /// ends the answer from token number `tokens_min` on. A complete constraint ends the answer at any length.
            pub tokens_min: usize,
            /// The most tokens of the answer, at least 1. The context limits the answer too.
            pub tokens_max: usize,
            /// Draws are a function of (seed, choice index, position) and of nothing else.
            pub seed: u64,
        }

        impl SamplingParams {
            /// These numbers; nothing else ends or changes an answer.
            pub fn of(numbers: Numbers) -> Self {
                Self {
                    $($name: numbers.$name,)*
                    logit_bias: Vec::new(),
                    stop_tokens: Vec::new(),
                    stop_strings: Vec::new(),
                    thoughts: None,
                    text: None,
                    constraint: None,
                    tokens_min: 0,
                    tokens_max: usize::MAX,
                    seed: 0,
                }
            }

            /// The numbers.
            pub fn numbers(&self) -> Numbers {
                Numbers { $($name: self.$name,)* }
            }
        }
    };
}
sampling_numbers!([params] {});

impl Default for SamplingParams {
    fn default() -> Self {
        Self::of(Numbers { temperature: 0.0, ..Numbers::default() })
    }
}

impl std::fmt::Debug for SamplingParams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SamplingParams")
            .field("numbers", &self.numbers())
            .field("logit_bias", &self.logit_bias)
            .field("stop_tokens", &self.stop_tokens)
            .field("stop_strings", &self.stop_strings)
            .field("thoughts", &self.thoughts)
            .field("tokens_min", &self.tokens_min)
            .field("tokens_max", &self.tokens_max)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

/// A sampling parameter out of range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum SamplingError {
    #[error("{name} is {value}; it must be {range}")]
    OutOfRange { name: &'static str, value: Value, range: &'static str },
    #[error("tokens_max is 0: ask for at least one token")]
    NoTokens,
    #[error("stop string number {0} is empty: remove it")]
    EmptyStop(usize),
    #[error("stop strings need the model's tokenizer: pass it in `text`")]
    StopsWithoutText,
    #[error("logit_bias for token {token} is {value}; it must be between -100 and 100")]
    Bias { token: Token, value: f32 },
    #[error("logit_bias names token {0} twice: give each token one value")]
    BiasTwice(Token),
}

/// Checked sampling parameters. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Sampling(Arc<SamplingParams>);

impl std::ops::Deref for Sampling {
    type Target = SamplingParams;
    fn deref(&self) -> &SamplingParams {
        &self.0
    }
}

impl Sampling {
    /// Greedy, at most `tokens_max` tokens (1 if it is 0), no stop tokens, for tests and checks.
    pub fn greedy(tokens_max: usize) -> Self {
        Self(Arc::new(SamplingParams { tokens_max: tokens_max.max(1), ..SamplingParams::default() }))
    }

    /// The same parameters for prompt number `prompt` of several: see [`crate::random::prompt_seed`].
    pub fn for_prompt(&self, prompt: u64) -> Self {
        match crate::random::prompt_seed(self.seed, prompt) {
            seed if seed == self.seed => self.clone(),
            seed => Self(Arc::new(SamplingParams { seed, ..(*self.0).clone() })),
        }
    }

    /// Checks every parameter; sorts stop tokens and biases by token. Errors: a value out of range, an empty stop string, stop
    /// strings without `text`, two biases for one token.
    pub fn new(mut params: SamplingParams) -> Result<Self, SamplingError> {
        params.numbers().check()?;
        if params.tokens_max == 0 {
            return Err(SamplingError::NoTokens);
        }
        if let Some(empty) = params.stop_strings.iter().position(String::is_empty) {
            return Err(SamplingError::EmptyStop(empty));
        }
        if !params.stop_strings.is_empty() && params.text.is_none() {
            return Err(SamplingError::StopsWithoutText);
        }
        params.stop_tokens.sort_unstable();
        params.stop_tokens.dedup();
        params.logit_bias.sort_by_key(|(token, _)| *token);
        for pair in params.logit_bias.windows(2) {
            if pair[0].0 == pair[1].0 {
                return Err(SamplingError::BiasTwice(pair[0].0));
            }
        }
        for &(token, value) in &params.logit_bias {
            if !(-100.0..=100.0).contains(&value) {
                return Err(SamplingError::Bias { token, value });
            }
        }
        Ok(Self(Arc::new(params)))
    }
}
