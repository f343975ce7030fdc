//! Turns a stream of tokens into a stream of text, in whole UTF-8 characters.

use super::Tokenizer;

/// Turns tokens into text as they come.
pub struct Detokenizer<'a> {
    tokenizer: &'a Tokenizer,
    /// The bytes of an incomplete character; at most three.
    held: Vec<u8>,
}

impl<'a> Detokenizer<'a> {
    /// A stream that begins with the next token.
    pub fn new(tokenizer: &'a Tokenizer) -> Self {
        Self { tokenizer, held: Vec::new() }
    }

    /// The text that this token completes. Bytes that cannot become UTF-8 give U+FFFD.
    pub fn push(&mut self, token: u32) -> String {
        self.tokenizer.append_bytes(token, &mut self.held);
        let mut text = String::new();
        while let Err(error) = std::str::from_utf8(&self.held) {
            let valid = error.valid_up_to();
            text.push_str(&String::from_utf8_lossy(&self.held[..valid]));
            let Some(broken) = error.error_len() else {
                self.held.drain(..valid);
                return text;
            };
            text.push('\u{fffd}');
            self.held.drain(..valid + broken);
        }
        text.push_str(&String::from_utf8_lossy(&self.held));
        self.held.clear();
        text
    }

    /// The rest of the text: U+FFFD if a character is incomplete, else nothing.
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.held).into_owned()
    }
}
