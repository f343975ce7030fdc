//! Reads rotary embeddings from configurations: `rope_theta`, `rope_scaling` or `rope_parameters` of a `config.json`, `rope.*`
//! of a GGUF file.
//!
//! A scaling that depends on a request's length is always refused: a token would get other logits in a longer request.
//! Read next: `rope.rs`, which makes the tables.

use crate::config::Fields;
use crate::decoder::{Factors, Rope, RopeScaling};
use crate::error::Result;
use crate::gguf::Metadata;

/// The rotary embedding that a `config.json` asks for, in the old form (`rope_theta`, `rope_scaling`) or
/// the new (`rope_parameters`).
pub(super) fn rope_of(fields: &Fields, head_dim: u32, default_theta: f64) -> Result<Rope> {
    let parameters = fields.object("rope_parameters");
    let theta = match parameters {
        Some(p) => p.f64_or("rope_theta", fields.f64_or("rope_theta", default_theta)?)?,
        None => fields.f64_or("rope_theta", default_theta)?,
    };
    let scaling = match parameters.or_else(|| fields.object("rope_scaling")) {
        Some(p) => rope_scaling(&p)?,
        None => RopeScaling::None,
    };
    Ok(Rope { scaling, ..Rope::plain(theta, head_dim) })
}

/// The kind of scaling that one set of rope parameters asks for.
pub(super) fn rope_type<'a>(p: &Fields<'a>) -> Result<&'a str> {
    Ok(match p.str_opt("rope_type")? {
        Some(kind) => kind,
        None => p.str_opt("type")?.unwrap_or("default"),
    })
}

/// The scaling that one set of rope parameters asks for.
pub(super) fn rope_scaling(p: &Fields) -> Result<RopeScaling> {
    let scaling = match rope_type(p)? {
        "default" => RopeScaling::None,
        "linear" => RopeScaling::Linear { factor: p.f64("factor")? },
        "llama3" => RopeScaling::Llama3 {
            factor: p.f64("factor")?,
            low: p.f64("low_freq_factor")?,
            high: p.f64("high_freq_factor")?,
            original: p.f64("original_max_position_embeddings")?,
        },
        "yarn" => yarn(p)?,
        "proportional" => RopeScaling::Proportional {
            fraction: p.f64_or("partial_rotary_factor", 1.0)?,
            factor: p.f64_or("factor", 1.0)?,
        },
        kind => return Err(p.bad("rope_type", refusal(kind))),
    };
    check_scaling(&scaling).map_err(|why| p.bad("factor", why))?;
    Ok(scaling)
}

/// The reason to refuse a kind of scaling.
fn refusal(kind: &str) -> String {
    match kind {
        "dynamic" | "ntk" | "dynamic_ntk" => format!(
            "is `{kind}`, which rotates by how long a request is: its tokens would get other logits as it grows, and Vosti \
             promises that they never do; choose a model with `default`, `linear`, `llama3`, `yarn` or `longrope`"
        ),
        _ => format!(
            "is `{kind}`; supported are default, linear, llama3, yarn, longrope (Phi 3), proportional (Gemma 4)"
        ),
    }
}

/// YaRN's parameters, with transformers' defaults.
fn yarn(p: &Fields) -> Result<RopeScaling> {
    let factor = p.f64("factor")?;
    let amplitude = match (p.f64_opt("attention_factor")?, p.f64_opt("mscale")?, p.f64_opt("mscale_all_dim")?) {
        (Some(given), ..) => given,
        (None, Some(one), Some(all)) if one != 0.0 && all != 0.0 => magnitude(factor, one) / magnitude(factor, all),
        _ => magnitude(factor, 1.0),
    };
    Ok(RopeScaling::Yarn {
        factor,
        original: p.f64("original_max_position_embeddings")?,
        fast: p.f64_or("beta_fast", 32.0)?,
        slow: p.f64_or("beta_slow", 1.0)?,
        truncate: p.bool_or("truncate", true)?,
        amplitude,
    })
}

/// YaRN's factor of cosines and sines.
fn magnitude(factor: f64, scale: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * scale * libm::log(factor) + 1.0 }
}

/// Longrope's parameters; `context` is the model's own limit.
pub(super) fn longrope(fields: &Fields, p: &Fields, rotary: u32, context: u32) -> Result<RopeScaling> {
    let original = match p.u32_opt("original_max_position_embeddings")? {
        Some(original) => original,
        None => fields.u32("original_max_position_embeddings")?,
    };
    let factors = |key: &str| {
        let list = p.floats(key)?;
        let good = list.len() == rotary as usize / 2 && list.iter().all(|f| f.is_finite() && *f > 0.0);
        if good {
            Ok(Factors::Listed(list))
        } else {
            Err(p.bad(key, format!("is not {} positive numbers", rotary / 2)))
        }
    };
    let factor = p.f64_or("factor", f64::from(context) / f64::from(original.max(1)))?;
    let amplitude = p.f64_or("attention_factor", long_amplitude(factor, original))?;
    let scaling =
        RopeScaling::Long { short: factors("short_factor")?, long: factors("long_factor")?, original, amplitude };
    check_scaling(&scaling).map_err(|why| p.bad("original_max_position_embeddings", why))?;
    Ok(scaling)
}

fn long_amplitude(factor: f64, original: u32) -> f64 {
    if factor <= 1.0 { 1.0 } else { libm::sqrt(1.0 + libm::log(factor) / libm::log(f64::from(original))) }
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
        RopeScaling::Yarn { factor, original, fast, slow, amplitude, .. } => {
            positive(&[*factor, *original, *fast, *slow, *amplitude]) && fast > slow
        }
        RopeScaling::Long { original, amplitude, .. } => *original > 1 && positive(&[*amplitude]),
    };
    if good { Ok(()) } else { Err(format!("and its neighbours are out of range: {scaling:?}")) }
}

/// The rotary embedding of a GGUF file.
pub(super) fn gguf_rope(metadata: &Metadata, architecture: &str, head_dim: u32, default_theta: f64) -> Result<Rope> {
    let theta = metadata.f64_or(&format!("{architecture}.rope.freq_base"), default_theta)?;
    Ok(Rope { scaling: gguf_scaling(metadata, architecture)?, ..Rope::plain(theta, head_dim) })
}

/// The scaling of a GGUF file: divisors in a tensor, which is how llama.cpp stores scaled frequencies, or parameters.
pub(super) fn gguf_scaling(metadata: &Metadata, architecture: &str) -> Result<RopeScaling> {
    if metadata.has_tensor("rope_freqs.weight") {
        return Ok(RopeScaling::Divisors { tensor: "rope_freqs.weight".into() });
    }
    let key = |name: &str| format!("{architecture}.rope.scaling.{name}");
    if metadata.has_tensor("rope_factors_long.weight") {
        let scaling = RopeScaling::Long {
            short: Factors::Tensor("rope_factors_short.weight".into()),
            long: Factors::Tensor("rope_factors_long.weight".into()),
            original: metadata.u32(&key("original_context_length"))?,
            amplitude: metadata.f64_or(&key("attn_factor"), 1.0)?,
        };
        check_scaling(&scaling).map_err(|why| metadata.bad(&key("original_context_length"), why))?;
        return Ok(scaling);
    }
    let scaling = match metadata.str_opt(&key("type"))?.unwrap_or("none") {
        "none" => RopeScaling::None,
        "linear" => RopeScaling::Linear { factor: metadata.f64(&key("factor"))? },
        "yarn" => gguf_yarn(metadata, &key)?,
        other => return Err(metadata.bad(&key("type"), refusal(other))),
    };
    check_scaling(&scaling).map_err(|why| metadata.bad(&key("factor"), why))?;
    Ok(scaling)
}

fn gguf_yarn(metadata: &Metadata, key: &dyn Fn(&str) -> String) -> Result<RopeScaling> {
    let factor = metadata.f64(&key("factor"))?;
    let all = metadata.f64_or(&key("yarn_log_multiplier"), 0.0)?;
    let inferred = magnitude(factor, 1.0) / if all == 0.0 { 1.0 } else { magnitude(factor, all) };
    let amplitude = metadata.f64_or(&key("yarn_attn_factor"), inferred)? * metadata.f64_or(&key("attn_factor"), 1.0)?;
    Ok(RopeScaling::Yarn {
        factor,
        original: metadata.f64(&key("original_context_length"))?,
        fast: metadata.f64_or(&key("yarn_beta_fast"), 32.0)?,
        slow: metadata.f64_or(&key("yarn_beta_slow"), 1.0)?,
        truncate: true,
        amplitude,
    })
}
