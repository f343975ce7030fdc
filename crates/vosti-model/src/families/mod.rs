//! Model families: each is one file that reads a configuration into a [`Decoder`].
//!
//! To add a family of dense decoders: write its file and add one line to [`FAMILIES`]. No other crate
//! knows the families.

mod gemma3;
mod gemma4;
mod llama;
mod qwen3;

use serde_json::Value;

use crate::config::Fields;
use crate::decoder::{Decoder, Rope, RopeScaling};
use crate::error::{ModelError, Result};
use crate::gguf::Metadata;
use crate::plan::check_dimensions;

/// A family: the names under which its configurations come, and how each kind is read.
struct Family {
    /// `model_type` values of `config.json` (of its `text_config`, if there is one).
    model_types: &'static [&'static str],
    /// `general.architecture` of a GGUF file.
    architecture: &'static str,
    from_config: fn(&Fields) -> Result<Decoder>,
    from_gguf: fn(&Metadata) -> Result<Decoder>,
}

const FAMILIES: [Family; 4] = [llama::FAMILY, qwen3::FAMILY, gemma3::FAMILY, gemma4::FAMILY];

/// Reads a `config.json`. `file` is its name for messages.
pub fn from_config(file: &str, config: &Value) -> Result<Decoder> {
    let root = Fields::new(file, config)?;
    let fields = root.object("text_config").unwrap_or(root);
    let name = match fields.str_opt("model_type")? {
        Some(name) => name,
        None => root.str_opt("model_type")?.ok_or_else(|| root.bad("model_type", "is missing"))?,
    };
    let family = FAMILIES.iter().find(|f| f.model_types.contains(&name));
    let known = || FAMILIES.iter().flat_map(|f| f.model_types.iter().copied()).collect();
    let family = family.ok_or_else(|| ModelError::Architecture { name: name.into(), known: known() })?;
    let mut decoder = (family.from_config)(&fields)?;
    // A multimodal checkpoint may say it at its root only.
    decoder.tied = fields.bool_or("tie_word_embeddings", root.bool_or("tie_word_embeddings", decoder.tied)?)?;
    check_dimensions(&decoder, file)?;
    Ok(decoder)
}

/// Reads the metadata of a GGUF file.
pub fn from_gguf(metadata: &Metadata) -> Result<Decoder> {
    let name = metadata.str("general.architecture")?;
    let family = FAMILIES.iter().find(|f| f.architecture == name);
    let known = || FAMILIES.iter().map(|f| f.architecture).collect();
    let family = family.ok_or_else(|| ModelError::Architecture { name: name.into(), known: known() })?;
    let mut decoder = (family.from_gguf)(metadata)?;
    decoder.tied = !metadata.has_tensor("output.weight");
    check_dimensions(&decoder, metadata.file())?;
    Ok(decoder)
}

/// The rotary embedding that a `config.json` asks for, in the old form (`rope_theta`, `rope_scaling`) or
/// the new (`rope_parameters`).
fn rope_of(fields: &Fields, head_dim: u32, default_theta: f64) -> Result<Rope> {
    let parameters = fields.object("rope_parameters");
    let theta = match parameters {
        Some(p) => p.f64_or("rope_theta", fields.f64_or("rope_theta", default_theta)?)?,
        None => fields.f64_or("rope_theta", default_theta)?,
    };
    let scaling = match parameters.or_else(|| fields.object("rope_scaling")) {
        Some(p) => rope_scaling(&p)?,
        None => RopeScaling::None,
    };
    Ok(Rope { theta, head_dim, scaling })
}

/// The scaling that one set of rope parameters asks for.
fn rope_scaling(p: &Fields) -> Result<RopeScaling> {
    let kind = match p.str_opt("rope_type")? {
        Some(kind) => kind,
        None => p.str_opt("type")?.unwrap_or("default"),
    };
    let scaling = match kind {
        "default" => RopeScaling::None,
        "linear" => RopeScaling::Linear { factor: p.f64("factor")? },
        "llama3" => RopeScaling::Llama3 {
            factor: p.f64("factor")?,
            low: p.f64("low_freq_factor")?,
            high: p.f64("high_freq_factor")?,
            original: p.f64("original_max_position_embeddings")?,
        },
        "proportional" => RopeScaling::Proportional {
            fraction: p.f64_or("partial_rotary_factor", 1.0)?,
            factor: p.f64_or("factor", 1.0)?,
        },
        other => return Err(p.bad("rope_type", format!("is `{other}`, which is not supported"))),
    };
    check_scaling(&scaling).map_err(|why| p.bad("factor", why))?;
    Ok(scaling)
}

fn check_scaling(scaling: &RopeScaling) -> std::result::Result<(), String> {
    let positive = |values: &[f64]| values.iter().all(|v| v.is_finite() && *v > 0.0);
    let good = match scaling {
        RopeScaling::None | RopeScaling::Divisors { .. } => true,
        RopeScaling::Linear { factor } => positive(&[*factor]),
        RopeScaling::Llama3 { factor, low, high, original } => {
            positive(&[*factor, *low, *high, *original]) && high > low
        }
        RopeScaling::Proportional { fraction, factor } => positive(&[*factor]) && (0.0..=1.0).contains(fraction),
    };
    if good { Ok(()) } else { Err(format!("and its neighbours are out of range: {scaling:?}")) }
}

/// The divisors of a GGUF file, if it has them: llama.cpp's way to store scaled frequencies.
fn gguf_scaling(metadata: &Metadata, architecture: &str) -> Result<RopeScaling> {
    if metadata.has_tensor("rope_freqs.weight") {
        return Ok(RopeScaling::Divisors { tensor: "rope_freqs.weight".into() });
    }
    let kind = metadata.str_opt(&format!("{architecture}.rope.scaling.type"))?.unwrap_or("none");
    match kind {
        "none" => Ok(RopeScaling::None),
        "linear" => {
            let factor = metadata.f64(&format!("{architecture}.rope.scaling.factor"))?;
            let scaling = RopeScaling::Linear { factor };
            check_scaling(&scaling).map_err(|why| metadata.bad(&format!("{architecture}.rope.scaling.factor"), why))?;
            Ok(scaling)
        }
        other => {
            Err(metadata.bad(&format!("{architecture}.rope.scaling.type"), format!("is `{other}`, not supported")))
        }
    }
}

/// Refuses a configuration whose projections have biases, which no family here has.
fn refuse_bias(fields: &Fields, family: &'static str) -> Result<()> {
    for key in ["attention_bias", "mlp_bias"] {
        if fields.bool_or(key, false)? {
            return Err(ModelError::Feature { family, feature: format!("{key} = true") });
        }
    }
    Ok(())
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
