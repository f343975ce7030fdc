//! The bytes that each token of a vocabulary stands for, in one allocation.

use std::collections::HashMap;
use std::sync::LazyLock;

/// The vocabulary's writing of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writing {
    /// GPT-2: each byte is one printable character.
    ByteLevel,
    /// Sentencepiece: `▁` is a space, `<0x0A>` a byte.
    Sentencepiece,
}

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A piece of text in the vocabulary's writing.
    Piece,
    /// A byte, written as `<0x0A>`.
    Byte,
    /// Added text, which stands for itself.
    Verbatim,
    /// A token without text.
    Control,
}

/// Bytes by token id.
pub(super) struct ByteTable {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl ByteTable {
    /// The table of `tokens`, in order of their ids; `None` for an id without a token.
    pub fn new<'a>(writing: Writing, tokens: impl Iterator<Item = Option<(&'a str, Kind)>>) -> Self {
        let mut table = Self { bytes: Vec::new(), ends: Vec::new() };
        for token in tokens {
            if let Some((text, kind)) = token {
                table.push(writing, text, kind);
            }
            table.ends.push(table.bytes.len());
        }
        table
    }

    fn push(&mut self, writing: Writing, text: &str, kind: Kind) {
        match (kind, writing) {
            (Kind::Control, _) => {}
            (Kind::Byte, _) => match byte_of(text) {
                Some(byte) => self.bytes.push(byte),
                None => self.bytes.extend_from_slice(text.as_bytes()),
            },
            (Kind::Piece, Writing::ByteLevel) => {
                for c in text.chars() {
                    match BYTE_OF_CHAR.get(&c) {
                        Some(byte) => self.bytes.push(*byte),
                        None => self.bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
                    }
                }
            }
            (Kind::Verbatim, Writing::ByteLevel) => self.bytes.extend_from_slice(text.as_bytes()),
            (Kind::Piece | Kind::Verbatim, Writing::Sentencepiece) => {
                let mut parts = text.split('\u{2581}');
                self.bytes.extend_from_slice(parts.next().unwrap_or("").as_bytes());
                for part in parts {
                    self.bytes.push(b' ');
                    self.bytes.extend_from_slice(part.as_bytes());
                }
            }
        }
    }

    /// The bytes of a token; empty for an id outside the vocabulary.
    pub fn get(&self, token: u32) -> &[u8] {
        let token = token as usize;
        let Some(end) = self.ends.get(token) else { return &[] };
        let begin = if token == 0 { 0 } else { self.ends[token - 1] };
        &self.bytes[begin..*end]
    }

    /// One more than the largest token id.
    pub fn len(&self) -> usize {
        self.ends.len()
    }
}

/// The byte that `<0x0A>` names.
pub(super) fn byte_of(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() == 2 { u8::from_str_radix(digits, 16).ok() } else { None }
}

/// The byte of each of GPT-2's characters: printable Latin-1 stands for itself, the other bytes for U+0100 and up.
static BYTE_OF_CHAR: LazyLock<HashMap<char, u8>> = LazyLock::new(|| {
    let mut next = 0x100;
    (0..=255u8)
        .map(|byte| {
            let printable = matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
            let code = if printable { u32::from(byte) } else { next };
            next += u32::from(!printable);
            (char::from_u32(code).unwrap_or('\u{fffd}'), byte)
        })
        .collect()
});
