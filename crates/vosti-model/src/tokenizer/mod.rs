//! Tokenizers: from `tokenizer.json`, or rebuilt from a GGUF file's metadata.
//!
//! The `tokenizers` library encodes. Decoding uses a table of each token's bytes, so that a stream of tokens is
//! a stream of bytes; [`Detokenizer`] holds back an incomplete UTF-8 character.
//! Read next: `from_gguf.rs` for the rebuilt tokenizers.

mod bytes;
mod detokenizer;
mod from_gguf;
mod from_json;
mod pre;

use std::collections::BTreeSet;

use crate::error::{ModelError, Result};

pub use detokenizer::Detokenizer;
pub(crate) use from_json::token_text;

/// A model's tokenizer.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    table: bytes::ByteTable,
    bos: Option<u32>,
    eos: BTreeSet<u32>,
    add_bos: bool,
}

impl Tokenizer {
    /// The tokens of a text. Special tokens in the text are recognised, as in Hugging Face's library. `with_bos`
    /// adds the token that begins a text, if the model expects one; a rendered chat template has its own.
    pub fn encode(&self, text: &str, with_bos: bool) -> Result<Vec<u32>> {
        let encoding = self.inner.encode_fast(text, with_bos).map_err(|e| ModelError::Tokenizer(e.to_string()))?;
        let mut ids = encoding.get_ids().to_vec();
        if let Some(bos) = self.bos.filter(|bos| with_bos && self.add_bos && ids.first() != Some(bos)) {
            ids.insert(0, bos);
        }
        Ok(ids)
    }

    /// The text of tokens. Control tokens add nothing, and invalid UTF-8 is replaced. A space that encoding added at the
    /// beginning (Llama 2) is kept.
    pub fn decode(&self, tokens: &[u32]) -> String {
        let mut bytes = Vec::new();
        for token in tokens {
            self.append_bytes(*token, &mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Appends the bytes of a token; none for control tokens and unknown ids.
    pub fn append_bytes(&self, token: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(self.table.get(token));
    }

    /// The vocabulary's text of a token.
    pub fn token_name(&self, token: u32) -> Option<String> {
        self.inner.id_to_token(token)
    }

    /// The id of a token by the vocabulary's text of it.
    pub fn token_id(&self, name: &str) -> Option<u32> {
        self.inner.token_to_id(name)
    }

    /// One more than the largest token id.
    pub fn vocabulary(&self) -> usize {
        self.table.len()
    }

    /// The token that begins a text, if the model has one.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// Every token that ends a generation.
    pub fn eos(&self) -> impl Iterator<Item = u32> + '_ {
        self.eos.iter().copied()
    }
}

/// Control tokens that end a turn, even if the files do not declare them: chat models end with one of these.
const END_OF_TURN: [&str; 9] = [
    "<|im_end|>",
    "<end_of_turn>",
    "<|eot_id|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<turn|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
];

/// Control tokens that mark calls and thoughts in an answer. They have text, so that a client can find the marks.
const MARKS: [&str; 10] = [
    "[TOOL_CALLS]",
    "[ARGS]",
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
    HARMONY,
    "<|message|>",
    "<|constrain|>",
    "<|start|>",
];

/// In a vocabulary with this token, `<|end|>` ends one message of an answer, and not the answer.
const HARMONY: &str = "<|channel|>";
const END_OF_MESSAGE: &str = "<|end|>";

/// Whether a control token has text.
fn marks(token: &str, harmony: bool) -> bool {
    MARKS.contains(&token) || (harmony && token == END_OF_MESSAGE)
}

/// The texts of tokens that end a turn.
fn ends_of_turn(harmony: bool) -> impl Iterator<Item = &'static str> {
    END_OF_TURN.into_iter().filter(move |end| !(harmony && *end == END_OF_MESSAGE))
}
