//! Model families: each is one file that reads a configuration into a [`Decoder`].
//!
//! To add a family of dense decoders: write its file and add one line to [`FAMILIES`] (`docs/add-a-family.md`). No other crate
//! knows the families.

mod ernie4_5;
mod experts;
mod falcon_h1;
mod gemma2;
mod gemma3;
mod gemma4;
mod glm4_moe;
mod gpt_oss;
mod granite;
mod granite_hybrid;
mod lfm2;
mod ling;
mod llama;
mod mamba;
mod mamba2;
mod minimax_m2;
mod mistral;
mod nemotron_h;
mod olmo;
mod phi3;
mod qwen2;
mod qwen3;
mod qwen3_5;
mod qwen3_next;
mod rotary;
mod smollm3;

use serde_json::Value;

use crate::config::Fields;
use crate::decoder::Decoder;
use crate::dimensions::check_dimensions;
use crate::error::{ModelError, Result};
use crate::gguf::Metadata;
use crate::scaled::Method;

/// A family: the names in its configurations, and the functions that read them.
pub struct Family {
    /// The family's name in messages.
    pub name: &'static str,
    /// `model_type` values of `config.json` (of its `text_config`, if there is one).
    pub model_types: &'static [&'static str],
    /// `general.architecture` of a GGUF file.
    pub architecture: &'static str,
    /// Published models, by their names on the Hugging Face hub.
    pub examples: &'static [&'static str],
    /// The largest size of a head.
    pub head_max: u32,
    from_config: fn(&Fields) -> Result<Decoder>,
    from_gguf: fn(&Metadata) -> Result<Decoder>,
}

/// The largest size of a head, except for Gemma 4.
const HEAD_MAX: u32 = 256;

/// Every family, in the order of the README.
pub static FAMILIES: [Family; 29] = [
    llama::FAMILY,
    qwen2::FAMILY,
    qwen3::FAMILY,
    qwen3::MIXTURE,
    qwen3_5::FAMILY,
    qwen3_5::MIXTURE,
    qwen3_next::FAMILY,
    mistral::FAMILY,
    phi3::FAMILY,
    gemma2::FAMILY,
    gemma3::FAMILY,
    gemma4::FAMILY,
    olmo::FAMILY,
    olmo::MIXTURE,
    granite::FAMILY,
    granite::MIXTURE,
    granite_hybrid::FAMILY,
    glm4_moe::FAMILY,
    ling::FAMILY,
    minimax_m2::FAMILY,
    gpt_oss::FAMILY,
    smollm3::FAMILY,
    lfm2::FAMILY,
    lfm2::MIXTURE,
    ernie4_5::FAMILY,
    mamba2::FAMILY,
    nemotron_h::FAMILY,
    nemotron_h::MIXTURE,
    falcon_h1::FAMILY,
];

/// The family with this `model_type`.
pub(crate) fn of_model_type(name: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.model_types.contains(&name))
}

/// Reads a `config.json`. `file` is its name for messages. Errors: an unknown architecture, an unsupported feature, a key that is
/// missing or out of range.
pub fn from_config(file: &str, config: &Value) -> Result<Decoder> {
    let (root, fields, family) = family_of(file, config)?;
    // Refuses an unsupported method before a missing tensor gives a less clear message.
    Method::of(&root, &fields, family.name)?;
    let mut decoder = (family.from_config)(&fields)?;
    // A multimodal checkpoint may have this key at its root only.
    decoder.tied = fields.bool_or("tie_word_embeddings", root.bool_or("tie_word_embeddings", decoder.tied)?)?;
    check_dimensions(&decoder, family.head_max, file)?;
    Ok(decoder)
}

/// The method by which a `config.json` stores weights; `None` for plain numbers. Error: an unsupported method.
pub fn method(file: &str, config: &Value) -> Result<Option<Method>> {
    let (root, fields, family) = family_of(file, config)?;
    Method::of(&root, &fields, family.name)
}

/// A configuration, its part for the text model, and the family that this part names.
fn family_of<'a>(file: &'a str, config: &'a Value) -> Result<(Fields<'a>, Fields<'a>, &'static Family)> {
    let root = Fields::new(file, config)?;
    let fields = root.object("text_config").unwrap_or(root);
    let name = match fields.str_opt("model_type")? {
        Some(name) => name,
        None => root.str_opt("model_type")?.ok_or_else(|| root.bad("model_type", "is missing"))?,
    };
    let known = || FAMILIES.iter().flat_map(|f| f.model_types.iter().copied()).collect();
    let family = of_model_type(name).ok_or_else(|| ModelError::Architecture { name: name.into(), known: known() })?;
    Ok((root, fields, family))
}

/// Reads the metadata of a GGUF file. Errors: an unknown architecture, a missing key, a number out of range.
pub fn from_gguf(metadata: &Metadata) -> Result<Decoder> {
    let name = metadata.str("general.architecture")?;
    let family = FAMILIES.iter().find(|f| f.architecture == name);
    let known = || FAMILIES.iter().map(|f| f.architecture).collect();
    let family = family.ok_or_else(|| ModelError::Architecture { name: name.into(), known: known() })?;
    let mut decoder = (family.from_gguf)(metadata)?;
    decoder.tied = !metadata.has_tensor("output.weight");
    check_dimensions(&decoder, family.head_max, metadata.file())?;
    Ok(decoder)
}

/// The size of each of so many equal parts; none if they cannot be equal.
fn even(whole: u32, parts: u32) -> Option<u32> {
    whole.checked_div(parts).filter(|part| part * parts == whole)
}

/// Refuses a configuration whose projections have biases.
fn refuse_bias(fields: &Fields, family: &'static str) -> Result<()> {
    refuse_flag(fields, family, "attention_bias")?;
    refuse_flag(fields, family, "mlp_bias")
}

/// Refuses an activation other than the family's.
fn expect_activation(fields: &Fields, family: &'static str, key: &str, expected: &[&str]) -> Result<()> {
    match fields.str_opt(key)? {
        Some(name) if !expected.contains(&name) => {
            Err(ModelError::Feature { family, feature: format!("{key} = {name}") })
        }
        _ => Ok(()),
    }
}

/// Refuses a flag that is on.
fn refuse_flag(fields: &Fields, family: &'static str, key: &str) -> Result<()> {
    match fields.bool_or(key, false)? {
        true => Err(ModelError::Feature { family, feature: format!("{key} = true") }),
        false => Ok(()),
    }
}
