//! Receipts: the record of an answer, with which anyone who has the same deployment can run the request again and compare.
//!
//! The digest is a chain over the model's logits and the sampled tokens: h(0) is the BLAKE3 hash of the prompt's token ids,
//! little-endian u32; h(i+1) is that of h(i), token i (little-endian u32) and the bits of the row of logits that it was
//! sampled from (little-endian f32, the whole vocabulary, raw). The last one is the digest. A receipt also keeps the first
//! four bytes of every h, so a replay can say at which token it diverged. Nothing here may depend on anything but (prompt,
//! tokens, logits).

use crate::grammar::Grammar;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use vosti_engine::sampling::MakeConstraint;
use vosti_engine::text::{Thoughts, TokenText};
use vosti_engine::{Numbers, Sampling, SamplingError, SamplingParams, Token};

/// The chain, link by link.
#[derive(Clone, Debug)]
pub struct Chain {
    head: blake3::Hash,
    links: Vec<String>,
}

/// Hexadecimal digits kept of each link.
const LINK_DIGITS: usize = 8;

impl Chain {
    /// The chain before the first token of an answer to `prompt`.
    pub fn new(prompt: &[Token]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hash_words(&mut hasher, prompt.iter().copied());
        Self { head: hasher.finalize(), links: Vec::new() }
    }

    /// Adds a sampled token and the row of logits that it was sampled from.
    pub fn push(&mut self, token: Token, logits: &[f32]) {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.head.as_bytes()).update(&token.to_le_bytes());
        hash_words(&mut hasher, logits.iter().map(|logit| logit.to_bits()));
        self.head = hasher.finalize();
        self.links.push(self.head.to_hex()[..LINK_DIGITS].to_string());
    }

    /// The digest of the prompt and of all tokens and rows so far.
    pub fn finish(&self) -> String {
        self.head.to_hex().to_string()
    }

    /// The beginning of the digest after each token.
    pub fn links(&self) -> &[String] {
        &self.links
    }
}

/// Hashes 32-bit words, little-endian, a few kilobytes at a time: a row of logits is hundreds of them.
fn hash_words(hasher: &mut blake3::Hasher, words: impl Iterator<Item = u32>) {
    let mut buffer = [0u8; 8192];
    let mut filled = 0;
    for word in words {
        buffer[filled..filled + 4].copy_from_slice(&word.to_le_bytes());
        filled += 4;
        if filled == buffer.len() {
            hasher.update(&buffer);
            filled = 0;
        }
    }
    hasher.update(&buffer[..filled]);
}

macro_rules! parameters {
    ({} $($(#[$doc:meta])* $name:ident: $type:ident as $given:ident = $neutral:literal, $range:tt, $key:literal;)*) => {
        /// The engine's sampling parameters as plain data. With the deployment, the prompt, the seed and the choice they decide an
        /// answer. A number that a receipt lacks is newer than the receipt, and was neutral.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        #[expect(missing_docs, reason = "the fields are those of `vosti_engine::SamplingParams`")]
        pub struct Parameters {
            $(pub $name: Option<$type>,)*
            pub logit_bias: Vec<(Token, f32)>,
            pub stop: Vec<String>,
            /// What opens (none: the prompt does) and closes the thoughts in which `stop` does not count, and the token that closes them.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub thoughts: Option<(Option<String>, String, Option<Token>)>,
            pub stop_tokens: Vec<Token>,
            #[serde(default)]
            pub min_tokens: usize,
            pub max_tokens: usize,
            /// The grammar that constrained the answer, if any: a schema or tools, for example.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub grammar: Option<Grammar>,
        }

        impl Parameters {
            /// The parameters of a request's sampling; its constraint was compiled from `grammar`.
            pub fn of(sampling: &Sampling, grammar: Option<Grammar>) -> Self {
                Self {
                    $($name: Some(sampling.$name),)*
                    logit_bias: sampling.logit_bias.clone(),
                    stop: sampling.stop_strings.clone(),
                    thoughts: sampling.thoughts.clone().map(|Thoughts { open, close, token }| (open, close, token)),
                    stop_tokens: sampling.stop_tokens.clone(),
                    min_tokens: sampling.tokens_min,
                    max_tokens: sampling.tokens_max,
                    grammar,
                }
            }

            fn numbers(&self) -> Numbers {
                let neutral = Numbers::default();
                Numbers { $($name: self.$name.unwrap_or(neutral.$name),)* }
            }
        }
    };
}
vosti_engine::sampling_numbers!([parameters] {});

impl Parameters {
    /// The sampling with this seed; `constraint` is the compiled `grammar`. An error if a value is out of range.
    pub fn sampling(
        &self,
        seed: u64,
        text: Arc<dyn TokenText>,
        constraint: Option<MakeConstraint>,
    ) -> Result<Sampling, SamplingError> {
        Sampling::new(SamplingParams {
            logit_bias: self.logit_bias.clone(),
            stop_tokens: self.stop_tokens.clone(),
            stop_strings: self.stop.clone(),
            thoughts: self.thoughts.clone().map(|(open, close, token)| Thoughts { open, close, token }),
            text: Some(text),
            constraint,
            tokens_min: self.min_tokens,
            tokens_max: self.max_tokens,
            seed,
            ..SamplingParams::of(self.numbers())
        })
    }
}

/// The record of one choice that a client keeps; `vosti replay RECEIPT` runs it again and compares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// The version of this format: 1.
    pub version: u32,
    /// The deployment: only one with the same fingerprint promises the same bits.
    pub fingerprint: String,
    /// The model's name in the server; `vosti replay --model` overrides it.
    pub model: String,
    /// Time of the answer's end, in seconds since 1970.
    pub created: u64,
    /// The day that the chat template saw, YYYY-MM-DD. It is in the prompt already; this is for the reader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub date: Option<String>,
    /// The prompt's token ids.
    pub prompt: Vec<Token>,
    /// How tokens were drawn, and where the answer had to end.
    pub parameters: Parameters,
    /// The seed of the draws.
    #[serde(with = "crate::api::fields::seed_bits")]
    pub seed: u64,
    /// The number of the choice among the prompt's answers, from 0.
    pub choice: u32,
    /// The answer, its last token included.
    pub tokens: Vec<Token>,
    /// The reason in the API: `stop`, `length`, `tool_calls`.
    pub finish_reason: String,
    /// The beginning of the chain's value after each token.
    pub links: Vec<String>,
    /// The chain's last value.
    pub digest: String,
}

/// Why a receipt is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum ReceiptError {
    #[error("it has format version {0}, and this program reads version {known}", known = Receipt::VERSION)]
    Version(u32),
    #[error("it has {tokens} tokens and {links} links; it must have one link for each token")]
    Links { tokens: usize, links: usize },
    #[error("its digest does not begin with its last link: the receipt was changed")]
    Digest,
}

/// The first place where a replay differs from its receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "an index of a token, and what each side has there")]
pub enum Divergence {
    /// Another token was sampled.
    Token { index: usize, receipt: Token, replay: Token },
    /// The same token was sampled from other logits.
    Logits { index: usize, token: Token },
    /// One answer ended and the other did not.
    Length { receipt: usize, replay: usize },
    /// Every link agrees, and the digest of the whole does not.
    Digest,
}

impl Receipt {
    /// The only version there is.
    pub const VERSION: u32 = 1;

    /// The checks that need no model: version, number of links, and that the digest begins with the last link.
    pub fn check(&self) -> Result<(), ReceiptError> {
        if self.version != Self::VERSION {
            return Err(ReceiptError::Version(self.version));
        }
        if self.tokens.len() != self.links.len() {
            return Err(ReceiptError::Links { tokens: self.tokens.len(), links: self.links.len() });
        }
        if self.links.last().is_some_and(|last| !self.digest.starts_with(last.as_str())) {
            return Err(ReceiptError::Digest);
        }
        Ok(())
    }

    /// Where an answer with these tokens and this chain first differs from the receipt; `None` if it does not.
    pub fn diverges(&self, tokens: &[Token], chain: &Chain) -> Option<Divergence> {
        let both = self.tokens.iter().zip(tokens).zip(self.links.iter().zip(chain.links()));
        for (index, ((receipt, replay), (link, again))) in both.enumerate() {
            if receipt != replay {
                return Some(Divergence::Token { index, receipt: *receipt, replay: *replay });
            }
            if link != again {
                return Some(Divergence::Logits { index, token: *receipt });
            }
        }
        if self.tokens.len() != tokens.len() {
            return Some(Divergence::Length { receipt: self.tokens.len(), replay: tokens.len() });
        }
        (self.digest != chain.finish()).then_some(Divergence::Digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMPT: [Token; 2] = [1, 2];

    fn chain(rows: &[(Token, [f32; 3])]) -> Chain {
        let mut chain = Chain::new(&PROMPT);
        rows.iter().for_each(|(token, logits)| chain.push(*token, logits));
        chain
    }

    fn receipt(rows: &[(Token, [f32; 3])]) -> Receipt {
        let chain = chain(rows);
        Receipt {
            version: Receipt::VERSION,
            fingerprint: "vosti-0".into(),
            model: "toy".into(),
            created: 0,
            date: None,
            prompt: PROMPT.to_vec(),
            parameters: Parameters::of(&Sampling::greedy(2), None),
            seed: u64::MAX,
            choice: 0,
            tokens: rows.iter().map(|(token, _)| *token).collect(),
            finish_reason: "length".into(),
            links: chain.links().to_vec(),
            digest: chain.finish(),
        }
    }

    const ROWS: [(Token, [f32; 3]); 2] = [(0, [3.0, 1.0, 2.0]), (2, [0.5, 0.25, 8.0])];

    #[test]
    fn the_chain_is_the_documented_one() {
        let first = blake3::hash(&[1, 0, 0, 0, 2, 0, 0, 0]);
        let mut bytes = first.as_bytes().to_vec();
        bytes.extend([0u8; 4]);
        ROWS[0].1.iter().for_each(|logit| bytes.extend(logit.to_le_bytes()));
        assert_eq!(chain(&ROWS[..1]).finish(), blake3::hash(&bytes).to_hex().to_string());
    }

    #[test]
    fn a_row_longer_than_the_buffer_is_hashed_whole() {
        let row: Vec<f32> = (0..5000).map(|i| i as f32).collect();
        let mut bytes = blake3::hash(&[]).as_bytes().to_vec();
        bytes.extend(7u32.to_le_bytes());
        row.iter().for_each(|logit| bytes.extend(logit.to_le_bytes()));
        let mut chain = Chain::new(&[]);
        chain.push(7, &row);
        assert_eq!(chain.finish(), blake3::hash(&bytes).to_hex().to_string());
    }

    #[test]
    fn one_bit_of_one_logit_is_found_at_its_token() {
        let receipt = receipt(&ROWS);
        assert_eq!(receipt.diverges(&[0, 2], &chain(&ROWS)), None);
        let mut other = ROWS;
        other[1].1[1] = f32::from_bits(other[1].1[1].to_bits() ^ 1);
        assert_eq!(receipt.diverges(&[0, 2], &chain(&other)), Some(Divergence::Logits { index: 1, token: 2 }));
        // The sign of a zero is a bit as well.
        let (plus, minus) = ([(1, [0.0, 1.0, 2.0])], [(1, [-0.0, 1.0, 2.0])]);
        assert_ne!(chain(&plus).finish(), chain(&minus).finish());
    }

    #[test]
    fn another_token_and_another_length_are_told_apart() {
        let receipt = receipt(&ROWS);
        let other = [ROWS[0], (1, ROWS[1].1)];
        let found = receipt.diverges(&[0, 1], &chain(&other));
        assert_eq!(found, Some(Divergence::Token { index: 1, receipt: 2, replay: 1 }));
        let found = receipt.diverges(&[0], &chain(&ROWS[..1]));
        assert_eq!(found, Some(Divergence::Length { receipt: 2, replay: 1 }));
    }

    #[test]
    fn a_receipt_survives_json_and_a_changed_one_is_refused() {
        let receipt = receipt(&ROWS);
        let text = serde_json::to_string(&receipt).unwrap();
        let read: Receipt = serde_json::from_str(&text).unwrap();
        assert_eq!(read, receipt);
        assert_eq!(read.check(), Ok(()));
        // JavaScript would read this number as another one.
        assert!(text.contains("\"seed\":\"18446744073709551615\""), "{text}");
        let number = text.replace("\"18446744073709551615\"", "18446744073709551615");
        assert_eq!(serde_json::from_str::<Receipt>(&number).unwrap(), receipt);
        assert_eq!(Receipt { version: 9, ..read.clone() }.check(), Err(ReceiptError::Version(9)));
        assert_eq!(Receipt { digest: "00".into(), ..read.clone() }.check(), Err(ReceiptError::Digest));
        assert!(matches!(Receipt { links: vec![], ..read }.check(), Err(ReceiptError::Links { .. })));
    }
}
