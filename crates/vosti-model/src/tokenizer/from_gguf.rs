//! Tokenizers rebuilt from GGUF metadata: byte-level BPE with llama.cpp's pre-tokenizers, and sentencepiece's BPE (Llama 2,
//! Mistral, Phi 3, Gemma), whose merges follow from the scores or, from Gemma 4 on, are in the file.
//!
//! Files are untrusted: every index from a file is checked before use. Read next: `pre.rs`.

use rayon::iter::{IntoParallelIterator as _, ParallelIterator as _};
use rayon::slice::ParallelSliceMut as _;
use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::{Prepend, Replace, Sequence};
use tokenizers::{AddedToken, NormalizerWrapper};

use super::bytes::{ByteTable, Kind, Writing};
use super::gap::{Gap, Named};
use super::pre::{self, unknown};
use super::{HARMONY, Tokenizer, ends_of_turn, marks};
use crate::error::{ModelError, Result};
use crate::gguf::{Metadata, Strings};

// Token types of the GGUF specification.
const NORMAL: i64 = 1;
const CONTROL: i64 = 3;
const USER_DEFINED: i64 = 4;
const BYTE: i64 = 6;

type Vocab = ahash::AHashMap<String, u32>;

/// The vocabulary of a file.
struct Words<'a> {
    tokens: &'a Strings,
    kinds: &'a [i64],
    ids: Vocab,
}

impl Tokenizer {
    /// Rebuilds the tokenizer of a GGUF file.
    pub fn from_gguf(metadata: &Metadata) -> Result<Self> {
        let mut words = Words::read(metadata)?;
        let eos = words.eos(metadata)?;
        let gap = words.gap(metadata)?;
        let model = metadata.str("tokenizer.ggml.model")?;
        let (inner, writing, add_bos) = match model {
            "gpt2" => {
                let pre = pre::find(metadata.str_opt("tokenizer.ggml.pre")?.unwrap_or("default"))?;
                (byte_level(metadata, &mut words, pre)?, Writing::ByteLevel, pre.add_bos)
            }
            "llama" => {
                let merges = splits(&words, scores(metadata, &words)?);
                (sentencepiece(metadata, &mut words, merges)?, Writing::Sentencepiece, true)
            }
            "gemma4" => {
                let merges = merges(metadata, &words)?;
                (sentencepiece(metadata, &mut words, merges)?, Writing::Sentencepiece, true)
            }
            other => return Err(unknown(&format!("{other} (tokenizer.ggml.model)"))),
        };
        let inner = words.add_special(inner, strips_after(metadata)?)?;
        let harmony = inner.token_to_id(HARMONY).is_some();
        let kind = |text: &str, kind: i64| match kind_of(kind) {
            Kind::Control if marks(text, harmony) => Kind::Verbatim,
            kind => kind,
        };
        let pieces = words.tokens.iter().zip(words.kinds).map(|(text, own)| Some((text, kind(text, *own))));
        let default_bos = (model == "llama").then_some(1).filter(|_| words.tokens.len() > 1);
        Ok(Self {
            inner,
            table: ByteTable::new(writing, pieces),
            bos: words.id(metadata, "tokenizer.ggml.bos_token_id")?.or(default_bos),
            eos,
            // As llama.cpp, Gemma 4 always adds it: early files wrongly have `false`.
            add_bos: model == "gemma4" || metadata.bool_or("tokenizer.ggml.add_bos_token", add_bos)?,
            gap,
        })
    }
}

/// Whether a control token absorbs the white space after it, as in the `tokenizer.json` files of Phi 3 and 3.5. GGUF files have
/// no field for this.
fn strips_after(metadata: &Metadata) -> Result<bool> {
    let phi3 = metadata.str_opt("general.architecture")? == Some("phi3");
    Ok(phi3 && metadata.str("tokenizer.ggml.model")? == "llama")
}

fn failed(error: impl std::fmt::Display) -> ModelError {
    ModelError::Tokenizer(error.to_string())
}

fn kind_of(kind: i64) -> Kind {
    match kind {
        CONTROL => Kind::Control,
        USER_DEFINED => Kind::Verbatim,
        BYTE => Kind::Byte,
        _ => Kind::Piece,
    }
}

impl<'a> Words<'a> {
    fn read(metadata: &'a Metadata) -> Result<Self> {
        let tokens = metadata.strs("tokenizer.ggml.tokens")?;
        let kinds = metadata.ints("tokenizer.ggml.token_type")?;
        if kinds.len() != tokens.len() {
            let why = format!("has {} entries for {} tokens", kinds.len(), tokens.len());
            return Err(metadata.bad("tokenizer.ggml.token_type", why));
        }
        if tokens.is_empty() || tokens.len() > 1 << 21 {
            return Err(metadata.bad("tokenizer.ggml.tokens", format!("has {} entries", tokens.len())));
        }
        // Of two tokens with equal text, encoding gives the first.
        let ids = tokens.iter().enumerate().rev().map(|(id, text)| (text.to_string(), id as u32)).collect();
        Ok(Self { tokens, kinds, ids })
    }

    fn id(&self, metadata: &Metadata, key: &str) -> Result<Option<u32>> {
        let id = metadata.u32_opt(key)?;
        if let Some(id) = id.filter(|id| *id as usize >= self.tokens.len()) {
            return Err(metadata.bad(key, format!("is {id}, outside the vocabulary")));
        }
        Ok(id)
    }

    fn eos(&self, metadata: &Metadata) -> Result<std::collections::BTreeSet<u32>> {
        let mut ends = std::collections::BTreeSet::new();
        for key in ["eos", "eot", "eom"] {
            ends.extend(self.id(metadata, &format!("tokenizer.ggml.{key}_token_id"))?);
        }
        let by_name = ends_of_turn(self.ids.contains_key(HARMONY)).filter_map(|name| self.ids.get(name));
        ends.extend(by_name.filter(|id| self.kinds[**id as usize] == CONTROL));
        Ok(ends)
    }

    /// The tokens around a gap. Files of 2023 and early 2024 have the keys without `fim`.
    fn gap(&self, metadata: &Metadata) -> Result<Option<Gap>> {
        let by_key = |key: &str| self.id(metadata, &format!("tokenizer.ggml.{key}_token_id"));
        let mut named = Named::default();
        for (place, keys) in [["fim_pre", "prefix"], ["fim_suf", "suffix"], ["fim_mid", "middle"]].iter().enumerate() {
            named.places[place] = by_key(keys[0])?.or(by_key(keys[1])?);
        }
        for key in ["fim_pad", "fim_rep", "fim_sep"] {
            named.ends.extend(by_key(key)?);
        }
        Ok(Gap::find(|name| self.ids.get(name).copied(), named))
    }

    /// Moves the ids by text to the library. They are not used here afterwards.
    fn take_ids(&mut self) -> Vocab {
        std::mem::take(&mut self.ids)
    }

    /// Adds the control and user-defined tokens, which are matched before anything else. With `strip`, they absorb the white
    /// space after them, except those that begin and end a text.
    fn add_special(&self, mut inner: tokenizers::Tokenizer, strip: bool) -> Result<tokenizers::Tokenizer> {
        const PLAIN: [&str; 3] = ["<unk>", "<s>", "<|endoftext|>"];
        let of = |kind: i64| {
            let chosen = self.tokens.iter().zip(self.kinds).filter(move |(text, k)| **k == kind && !text.is_empty());
            chosen.map(move |(text, _)| {
                let token = AddedToken::from(text, kind == CONTROL).normalized(false);
                token.rstrip(strip && !PLAIN.contains(&text))
            })
        };
        inner.add_special_tokens(of(CONTROL)).map_err(failed)?;
        inner.add_tokens(of(USER_DEFINED)).map_err(failed)?;
        Ok(inner)
    }
}

fn byte_level(metadata: &Metadata, words: &mut Words, pre: &pre::Pre) -> Result<tokenizers::Tokenizer> {
    let merges = merges(metadata, words)?;
    let bpe = BPE::builder().vocab_and_merges(words.take_ids(), merges).ignore_merges(pre.whole_words);
    let mut inner = tokenizers::Tokenizer::new(bpe.build().map_err(failed)?);
    pre.apply(&mut inner)?;
    Ok(inner)
}

type Merges = Vec<(String, String)>;

/// The merges that a file lists, best first, a space between the two parts.
fn merges(metadata: &Metadata, words: &Words) -> Result<Merges> {
    let key = "tokenizer.ggml.merges";
    let pair = |merge: &str| merge.split_once(' ').map(|(a, b)| (a.to_string(), b.to_string()));
    let merges: Option<Merges> = metadata.strs(key)?.iter().map(pair).collect();
    let merges = merges.ok_or_else(|| metadata.bad(key, "has an entry that is not a pair"))?;
    check_merges(&words.ids, &merges).map_err(|why| metadata.bad(key, why))?;
    Ok(merges)
}

/// Checks that the parts and results of all merges are in the vocabulary: the library panics if one is not.
pub(super) fn check_merges(ids: &Vocab, merges: &[(String, String)]) -> std::result::Result<(), String> {
    let mut joined = String::new();
    for (a, b) in merges {
        joined.clear();
        joined.push_str(a);
        joined.push_str(b);
        for part in [a, b, &joined] {
            if !ids.contains_key(part.as_str()) {
                return Err(format!("names `{part}`, which is not in the vocabulary"));
            }
        }
    }
    Ok(())
}

/// A tokenizer like sentencepiece's: it does not split a text into words, writes spaces as `▁`, and encodes a character outside
/// the vocabulary by its bytes. A text between control tokens begins with a space, unless the file says no (Llama 2; not Gemma).
fn sentencepiece(metadata: &Metadata, words: &mut Words, merges: Merges) -> Result<tokenizers::Tokenizer> {
    let unknown_token = words.id(metadata, "tokenizer.ggml.unknown_token_id")?.unwrap_or(0);
    let unknown_token = words.tokens.get(unknown_token as usize).unwrap_or_default();
    let bpe = BPE::builder()
        .vocab_and_merges(words.take_ids(), merges)
        .byte_fallback(true)
        .fuse_unk(true)
        .unk_token(unknown_token.to_string());
    let mut inner = tokenizers::Tokenizer::new(bpe.build().map_err(failed)?);
    let mut steps = vec![NormalizerWrapper::from(Replace::new(" ", "\u{2581}").map_err(failed)?)];
    if metadata.bool_or("tokenizer.ggml.add_space_prefix", true)? {
        steps.insert(0, Prepend::new("\u{2581}".into()).into());
    }
    inner.with_normalizer(Some(NormalizerWrapper::from(Sequence::new(steps)))).map_err(failed)?;
    Ok(inner)
}

fn scores<'a>(metadata: &'a Metadata, words: &Words) -> Result<&'a [f32]> {
    let key = "tokenizer.ggml.scores";
    let scores = metadata.floats(key)?;
    if scores.len() != words.tokens.len() || scores.iter().any(|s| s.is_nan()) {
        return Err(metadata.bad(key, "is not one number for each token"));
    }
    Ok(scores)
}

/// The merges that follow from scores: every split of a normal token into two tokens, best score first, then lowest ids.
fn splits(words: &Words, scores: &[f32]) -> Merges {
    /// The longest token that is split, in bytes. The cost is the length squared, and a hostile file may have long tokens.
    const BYTES_MAX: usize = 512;
    let mergeable = |id: &&u32| matches!(words.kinds[**id as usize], NORMAL | USER_DEFINED);
    let part = |text: &str| words.ids.get(text).filter(mergeable);
    let text = |id: u32| words.tokens.get(id as usize).unwrap_or_default();
    let split = |id: u32| {
        let (text, normal) = (text(id), words.kinds[id as usize] == NORMAL);
        let places = text.char_indices().skip(1).filter(move |_| normal && text.len() <= BYTES_MAX);
        places.filter_map(move |(at, _)| {
            let (before, after) = text.split_at(at);
            let (a, b) = (part(before)?, part(after)?);
            Some((scores[id as usize], *a, *b))
        })
    };
    let mut found: Vec<(f32, u32, u32)> = (0..words.tokens.len() as u32).into_par_iter().flat_map_iter(split).collect();
    found.par_sort_unstable_by(|x, y| y.0.total_cmp(&x.0).then(x.1.cmp(&y.1)).then(x.2.cmp(&y.2)));
    found.into_par_iter().map(|(_, a, b)| (text(a).to_string(), text(b).to_string())).collect()
}
