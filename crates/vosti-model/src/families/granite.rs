//! Granite 3: Llama's layer, with factors of the embeddings, of the scores and of each addition to the residual stream, and a divisor
//! of the logits. Vosti defines that this divisor divides the final norm's weights.
//!
//! Models of the type `granitemoe` have a mixture of experts in each layer. Granite 4 is in `granite_hybrid.rs`; in GGUF files its
//! models without Mamba layers have the architecture that is read here. Source: transformers `models/granite` and `models/granitemoe`;
//! llama.cpp's `granite` and `granitemoe`.

use super::experts::{self, Keys};
use super::{Family, llama, refuse_bias};
use crate::config::Fields;
use crate::decoder::{Decoder, ExpertTensors, Experts, Shared};
use crate::error::Result;
use crate::gguf::Metadata;

pub(super) const FAMILY: Family = Family {
    name: "Granite",
    model_types: &["granite"],
    architecture: "granite",
    examples: &["ibm-granite/granite-3.3-2b-instruct"],
    head_max: super::HEAD_MAX,
    from_config,
    from_gguf,
};

pub(super) const MIXTURE: Family = Family {
    name: "Granite MoE",
    model_types: &["granitemoe"],
    architecture: "granitemoe",
    examples: &["ibm-granite/granite-3.1-3b-a800m-instruct"],
    from_config: mixture_from_config,
    from_gguf: mixture_from_gguf,
    ..FAMILY
};

/// The four factors.
pub(super) struct Factors {
    embeddings: f64,
    scores: Option<f64>,
    residual: f64,
    logits: f64,
}

fn from_config(fields: &Fields) -> Result<Decoder> {
    refuse_bias(fields, FAMILY.name)?;
    Ok(scaled(llama::read_config(fields, FAMILY.name, 10_000.0)?, &configured(fields)?))
}

fn mixture_from_config(fields: &Fields) -> Result<Decoder> {
    refuse_bias(fields, MIXTURE.name)?;
    let decoder = llama::read_config(fields, MIXTURE.name, 10_000.0)?;
    let keys = Keys::LOCAL;
    // A softmax of the chosen logits alone.
    let mixture = experts::read_config(fields, keys, true, ExpertTensors::Stacked)?;
    Ok(scaled(experts::put(decoder, &mixture, |_| true), &configured(fields)?))
}

/// The factors of a `config.json`.
pub(super) fn configured(fields: &Fields) -> Result<Factors> {
    Ok(Factors {
        embeddings: fields.f64_or("embedding_multiplier", 1.0)?,
        scores: Some(fields.f64_or("attention_multiplier", 1.0)?),
        residual: fields.f64_or("residual_multiplier", 1.0)?,
        logits: fields.f64_or("logits_scaling", 1.0)?,
    })
}

fn from_gguf(metadata: &Metadata) -> Result<Decoder> {
    stored(metadata, &FAMILY)
}

fn mixture_from_gguf(metadata: &Metadata) -> Result<Decoder> {
    let mixture = stored_mixture(metadata, MIXTURE.architecture)?;
    Ok(experts::put_stored(stored(metadata, &MIXTURE)?, metadata, &mixture))
}

/// The mixture of a GGUF file, with the perceptron beside it if there is one.
pub(super) fn stored_mixture(metadata: &Metadata, architecture: &str) -> Result<Experts> {
    let width = metadata.u32_or(&format!("{architecture}.expert_shared_feed_forward_length"), 0)?;
    let shared = (width > 0).then(|| Shared { mlp: llama::gated(width), gated: false });
    Ok(Experts { shared, ..experts::read_gguf(metadata, architecture, true)? })
}

/// Reads what the architectures share.
fn stored(metadata: &Metadata, family: &Family) -> Result<Decoder> {
    let decoder = llama::read_gguf(metadata, family.name, family.architecture, 10_000.0)?;
    Ok(scaled(Decoder { permuted: true, ..decoder }, &stored_factors(metadata, family.architecture)?))
}

/// The factors of a GGUF file.
pub(super) fn stored_factors(metadata: &Metadata, architecture: &str) -> Result<Factors> {
    let key = |name: &str| format!("{architecture}.{name}");
    // The files have f32 for a decimal number: 0.22 is stored as 0.219999999.
    let decimal = |stored: f64| format!("{}", stored as f32).parse().unwrap_or(stored);
    Ok(Factors {
        embeddings: decimal(metadata.f64_or(&key("embedding_scale"), 1.0)?),
        scores: metadata.f64_opt(&key("attention.scale"))?.filter(|scale| *scale != 0.0).map(decimal),
        residual: decimal(metadata.f64_or(&key("residual_scale"), 1.0)?),
        logits: metadata.f64(&key("logit_scale"))?,
    })
}

/// The decoder with these factors.
pub(super) fn scaled(mut decoder: Decoder, factors: &Factors) -> Decoder {
    decoder.embed_scale = factors.embeddings;
    decoder.logits_divisor = factors.logits as f32;
    decoder.attentions_mut().for_each(|attention| attention.scale = factors.scores.unwrap_or(attention.scale));
    decoder.layers.iter_mut().for_each(|layer| layer.residual_scale = factors.residual);
    decoder
}
