//! Tokenizers: from `tokenizer.json`, or rebuilt from a GGUF file's metadata.
//!
//! The `tokenizers` library encodes. Decoding uses a table of each token's bytes, so that a stream of tokens is
//! a stream of bytes; [`Detokenizer`] holds back an incomplete UTF-8 character.
//! Read next: `from_gguf.rs` for the rebuilt tokenizers.

mod bytes;
mod detokenizer;
mod from_gguf;
mod from_json;
mod gap;
mod pre;

use std::collections::BTreeSet;
use std::sync::Arc;

use tokenizers::{Encoding, Model as _, OffsetType, PreTokenizer as _};

use crate::error::{ModelError, Result};
use crate::prompt::{AddedTokens, Controls, Marks, Prompt};

pub use detokenizer::Detokenizer;
pub(crate) use from_json::token_text;
use gap::Gap;

/// A model's tokenizer.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    table: bytes::ByteTable,
    bos: Option<u32>,
    eos: BTreeSet<u32>,
    add_bos: bool,
    gap: Option<Gap>,
}

impl Tokenizer {
    /// The tokens of a text. Control tokens in the text are recognised, as in Hugging Face's library. `with_bos`
    /// adds the token that begins a text, if the model expects one.
    pub fn encode(&self, text: &str, with_bos: bool) -> Result<Vec<u32>> {
        self.with_bos(self.inner.encode_fast(text, with_bos).map_err(failed)?, with_bos)
    }

    /// The tokens of a rendered conversation, in which only the template's own text becomes control tokens. The template usually
    /// writes the token that begins a text.
    pub fn encode_prompt(&self, prompt: &Prompt, with_bos: bool) -> Result<Vec<u32>> {
        match prompt.marks() {
            None => self.encode(prompt.marked(), with_bos),
            Some(marks) => {
                self.with_bos(self.encode_marked(prompt.marked(), marks, with_bos).map_err(failed)?, with_bos)
            }
        }
    }

    /// The library's own steps. Between them, when added tokens are found and before words are, the marks are taken out.
    fn encode_marked(&self, text: &str, marks: &Marks, with_bos: bool) -> tokenizers::Result<Encoding> {
        let inner = &self.inner;
        let mut pieces = inner.get_added_vocabulary().extract_and_normalize(inner.get_normalizer(), text);
        pieces.normalize(|piece| {
            piece.filter(|letter| !marks.is_mark(letter));
            Ok(())
        })?;
        if let Some(words) = inner.get_pre_tokenizer() {
            words.pre_tokenize(&mut pieces)?;
        }
        pieces.tokenize(|piece| inner.get_model().tokenize(piece.get()))?;
        inner.post_process(pieces.into_encoding(None, 0, OffsetType::None)?, None, with_bos)
    }

    /// The tokens of a prompt whose gap between `before` and `after` the model is to fill; none if the vocabulary has no tokens for
    /// this. Control tokens in both texts are text.
    pub fn encode_gap(&self, before: &str, after: &str, with_bos: bool) -> Result<Option<Vec<u32>>> {
        let Some(gap) = &self.gap else { return Ok(None) };
        let controls = Controls::new(&self.added(), "")?;
        let encode = |text: &str| self.encode_prompt(&Prompt::of_text(text, &controls), false);
        // Where each text begins with a space (Llama 2), the text before the gap has one, and the text after it goes on within a
        // line: it is encoded behind a letter that joins no other, whose tokens are taken away again.
        const APART: &str = "\u{263a}";
        let after = match self.decode(&encode("a")?).starts_with(' ') {
            true => {
                let (apart, ids) = (encode(APART)?, encode(&format!("{APART}{after}"))?);
                ids.strip_prefix(&apart[..]).map_or_else(|| encode(after), |ids| Ok(ids.to_vec()))?
            }
            false => encode(after)?,
        };
        Ok(Some(gap.write(self.encode("", with_bos)?, encode(before)?, after)))
    }

    /// Tokens that end a text in a gap, besides [`Self::eos`].
    pub fn gap_ends(&self) -> &[u32] {
        self.gap.as_ref().map_or(&[], Gap::ends)
    }

    fn with_bos(&self, encoding: Encoding, with_bos: bool) -> Result<Vec<u32>> {
        let mut ids = encoding.get_ids().to_vec();
        if let Some(bos) = self.bos.filter(|bos| with_bos && self.add_bos && ids.first() != Some(bos)) {
            ids.insert(0, bos);
        }
        Ok(ids)
    }

    /// The texts that the tokenizer takes for tokens before it looks at words. Control tokens are those that the file calls so, and
    /// those that look like `<|this|>`.
    pub fn added(&self) -> Arc<AddedTokens> {
        let mut added = AddedTokens::default();
        for token in self.inner.get_added_tokens_decoder().into_values() {
            let within = |start: &str, end: &str| token.content.starts_with(start) && token.content.ends_with(end);
            if token.special || within("<|", "|>") || within("<\u{ff5c}", "\u{ff5c}>") {
                added.control.push(token.content);
            } else if (within("<", ">") || within("[", "]")) && !token.content.contains(char::is_whitespace) {
                added.markup.push(token.content);
            }
        }
        added.into()
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

    /// What the files ask for and do not say, one line each.
    pub fn warnings(&self) -> Vec<String> {
        let missing = self.add_bos && self.bos.is_none();
        let why =
            "the tokenizer says that texts begin with a token (add_bos_token) and names none: they begin without it";
        missing.then(|| why.to_string()).into_iter().collect()
    }

    /// Every token that ends a generation.
    pub fn eos(&self) -> impl Iterator<Item = u32> + '_ {
        self.eos.iter().copied()
    }
}

fn failed(error: tokenizers::Error) -> ModelError {
    ModelError::Tokenizer(error.to_string())
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
const MARKS: [&str; 17] = [
    "[TOOL_CALLS]",
    "[ARGS]",
    "<tool_call>",
    "</tool_call>",
    "<|tool_call|>",
    "<|/tool_call|>",
    "<|tool_call_start|>",
    "<|tool_call_end|>",
    "<|tool_call>",
    "<tool_call|>",
    "<|\"|>",
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
