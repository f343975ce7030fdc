//! Tokenizers of Hugging Face folders: `tokenizer.json`, with the end tokens that the configurations name.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::bytes::{ByteTable, Kind, Writing, byte_of};
use super::gap::{Gap, Named};
use super::{HARMONY, Tokenizer, ends_of_turn, marks};
use crate::error::{ModelError, Result};
use crate::files::read_json;

impl Tokenizer {
    /// Reads `tokenizer.json` of a folder, and the end tokens of `config.json`, `generation_config.json` and
    /// `tokenizer_config.json`. Errors: a file is missing or damaged, or the tokenizer is not supported.
    pub fn from_folder(folder: &Path) -> Result<Self> {
        let json = read_json(&folder.join("tokenizer.json"))?;
        let optional = |name: &str| {
            let path = folder.join(name);
            if path.exists() { read_json(&path) } else { Ok(Value::Null) }
        };
        let settings = optional("tokenizer_config.json")?;
        let configs = [optional("config.json")?, optional("generation_config.json")?];
        Self::from_json(json, &settings, &configs)
    }

    /// Builds a tokenizer from parsed files: `tokenizer.json`, `tokenizer_config.json`, and the
    /// configurations that may name end tokens by id.
    pub fn from_json(mut json: Value, settings: &Value, configs: &[Value]) -> Result<Self> {
        let writing = writing(&json)?;
        forget_training(&mut json);
        check_model(&json)?;
        let failed = |e: serde_json::Error| ModelError::Tokenizer(format!("tokenizer.json: {e}"));
        let inner: tokenizers::Tokenizer = serde_json::from_value(json).map_err(failed)?;
        let table = byte_table(&inner, writing)?;
        let named = |key: &str| token_text(settings.get(key)).and_then(|text| inner.token_to_id(text));
        let bos = named("bos_token");
        let mut eos: BTreeSet<u32> = named("eos_token").into_iter().collect();
        for config in configs {
            eos.extend(ids(config.get("eos_token_id")).chain(ids(config.pointer("/text_config/eos_token_id"))));
        }
        let special = inner.get_added_tokens_decoder();
        let ends = ends_of_turn(inner.token_to_id(HARMONY).is_some());
        eos.extend(ends.filter_map(|name| inner.token_to_id(name)).filter(|id| special.contains_key(id)));
        eos.retain(|id| (*id as usize) < table.len());
        let add_bos = settings.get("add_bos_token").and_then(Value::as_bool).unwrap_or(false);
        let gap = Gap::find(|name| inner.token_to_id(name), Named::default());
        Ok(Self { inner, table, bos, eos, add_bos, gap })
    }
}

/// Removes the settings that shorten, fill or vary texts for training: a prompt is encoded whole, and always alike.
fn forget_training(json: &mut Value) {
    for (place, name) in [("", "truncation"), ("", "padding"), ("/model", "dropout")] {
        if let Some(members) = json.pointer_mut(place).and_then(Value::as_object_mut) {
            members.remove(name);
        }
    }
}

/// A token given as a string or as `{"content": ...}`.
pub(crate) fn token_text(value: Option<&Value>) -> Option<&str> {
    let value = value?;
    value.as_str().or_else(|| value.get("content")?.as_str())
}

fn ids(value: Option<&Value>) -> impl Iterator<Item = u32> {
    let list = match value {
        Some(Value::Array(list)) => list.clone(),
        Some(single) => vec![single.clone()],
        None => Vec::new(),
    };
    list.into_iter().filter_map(|v| v.as_u64().and_then(|n| u32::try_from(n).ok()))
}

/// The vocabulary's writing of bytes, from the decoder.
fn writing(json: &Value) -> Result<Writing> {
    let decoder = json.get("decoder").map(Value::to_string).unwrap_or_default();
    if decoder.contains("\"ByteLevel\"") {
        Ok(Writing::ByteLevel)
    } else if decoder.contains('\u{2581}') {
        Ok(Writing::Sentencepiece)
    } else {
        Err(ModelError::Tokenizer("tokenizer.json has neither a byte-level nor a sentencepiece decoder".into()))
    }
}

/// Checks a BPE model: the library panics if an id is too large or a merge is not in the vocabulary.
fn check_model(json: &Value) -> Result<()> {
    let bad = |why: String| Err(ModelError::Tokenizer(format!("tokenizer.json: {why}")));
    let Some(model) = json.get("model").filter(|m| m.get("type").is_none_or(|t| t == "BPE")) else {
        return bad("its model is not BPE".into());
    };
    let Some(vocab) = model.get("vocab").and_then(Value::as_object) else {
        return bad("its model has no vocabulary".into());
    };
    let prefix = model.get("continuing_subword_prefix").and_then(Value::as_str).unwrap_or("");
    if !prefix.is_empty() {
        return bad("it has a continuing_subword_prefix".into());
    }
    if let Some(id) = vocab.values().find(|id| id.as_u64().is_none_or(|id| id >= 1 << 21)) {
        return bad(format!("its vocabulary has the id {id}"));
    }
    let mut joined = String::new();
    for merge in model.get("merges").and_then(Value::as_array).into_iter().flatten() {
        let pair = match merge {
            Value::String(text) => text.split_once(' '),
            _ => merge.get(0).and_then(Value::as_str).zip(merge.get(1).and_then(Value::as_str)),
        };
        let Some((a, b)) = pair else { return bad(format!("{merge} is not a pair")) };
        joined.clear();
        joined.push_str(a);
        joined.push_str(b);
        if ![a, b, &joined].iter().all(|part| vocab.contains_key(*part)) {
            return bad(format!("the merge {merge} is not in the vocabulary"));
        }
    }
    Ok(())
}

fn byte_table(inner: &tokenizers::Tokenizer, writing: Writing) -> Result<ByteTable> {
    let vocab = inner.get_vocab(true);
    let length = vocab.values().max().map_or(0, |id| *id as usize + 1);
    if length == 0 || length > 1 << 21 {
        return Err(ModelError::Tokenizer(format!("tokenizer.json has {length} tokens")));
    }
    let added = inner.get_added_tokens_decoder();
    let harmony = vocab.contains_key(HARMONY);
    let mut tokens: Vec<Option<(&str, Kind)>> = vec![None; length];
    for (text, id) in &vocab {
        let kind = match added.get(id) {
            Some(token) if token.special && !marks(text, harmony) => Kind::Control,
            Some(_) => Kind::Verbatim,
            None if writing == Writing::Sentencepiece && byte_of(text).is_some() => Kind::Byte,
            None => Kind::Piece,
        };
        tokens[*id as usize] = Some((text, kind));
    }
    Ok(ByteTable::new(writing, tokens.into_iter()))
}
