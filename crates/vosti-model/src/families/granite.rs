//! Granite 3 and 4, dense: Llama's layer, with factors of the embeddings, of the scores and of each addition to the residual
//! stream, and a divisor of the logits. Vosti defines that this divisor divides the final norm's weights.
//!
//! Granite 4's dense models have the type `granitemoehybrid`, with attention in every layer and no experts. Their perceptron is
//! called a shared expert and has gate and up in one tensor, and their layers may have no rotation. Layers of other kinds and
//! their experts are refused by name. Granite 3's models of the type `granitemoe` have a mixture of experts in each layer. Source:
//! transformers `models/granite`, `models/granitemoe` and `models/granitemoehybrid`; llama.cpp's `granite` and `granitemoe`.

use super::experts::{self, Keys};
use super::{Family, llama, refuse_bias};
use crate::config::{Fields, layer_count};
use crate::decoder::{Decoder, ExpertTensors, Naming, Rope};
use crate::error::{ModelError, Result};
use crate::gguf::Metadata;

pub(super) const FAMILY: Family = Family {
    name: "Granite",
    model_types: &["granite", "granitemoehybrid"],
    architecture: "granite",
    examples: &["ibm-granite/granite-3.3-2b-instruct", "ibm-granite/granite-4.0-1b"],
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
struct Factors {
    embeddings: f64,
    scores: Option<f64>,
    residual: f64,
    logits: f64,
}

fn from_config(fields: &Fields) -> Result<Decoder> {
    refuse_bias(fields, FAMILY.name)?;
    let mut decoder = llama::read_config(fields, FAMILY.name, 10_000.0)?;
    if fields.str_opt("model_type")? == Some("granitemoehybrid") {
        hybrid(fields, &mut decoder)?;
    }
    Ok(scaled(decoder, &configured(fields)?))
}

fn mixture_from_config(fields: &Fields) -> Result<Decoder> {
    refuse_bias(fields, MIXTURE.name)?;
    let decoder = llama::read_config(fields, MIXTURE.name, 10_000.0)?;
    let keys = Keys { count: "num_local_experts", width: "intermediate_size" };
    // A softmax of the chosen logits alone.
    let mixture = experts::read_config(fields, keys, true, ExpertTensors::Stacked)?;
    Ok(scaled(experts::put(decoder, &mixture, |_| true), &configured(fields)?))
}

fn configured(fields: &Fields) -> Result<Factors> {
    Ok(Factors {
        embeddings: fields.f64_or("embedding_multiplier", 1.0)?,
        scores: Some(fields.f64_or("attention_multiplier", 1.0)?),
        residual: fields.f64_or("residual_multiplier", 1.0)?,
        logits: fields.f64_or("logits_scaling", 1.0)?,
    })
}

/// Reads the fields that Granite 4 has in other places.
fn hybrid(fields: &Fields, decoder: &mut Decoder) -> Result<()> {
    let refuse = |feature: String| Err(ModelError::Feature { family: FAMILY.name, feature });
    if fields.u32_or("num_local_experts", 0)? != 0 {
        return refuse("a mixture of experts (num_local_experts)".into());
    }
    let key = if fields.get("layer_types").is_some() { "layer_types" } else { "layers_block_type" };
    let kinds = fields.strings_opt(key)?.unwrap_or_default();
    if let Some(kind) = kinds.iter().find(|kind| !["attention", "full_attention"].contains(kind)) {
        return refuse(format!("{key} with {kind}"));
    }
    if kinds.len() != layer_count(fields, "num_hidden_layers")? as usize {
        return refuse(format!("{key} that does not name attention for each layer"));
    }
    let rotates = match fields.str_opt("position_embedding_type")? {
        Some("rope") => true,
        Some("nope") | None => false,
        Some(other) => return refuse(format!("position_embedding_type = {other}")),
    };
    decoder.naming = Naming::GraniteHybrid;
    let width = fields.u32_or("shared_intermediate_size", 1024)?;
    decoder.gated_mut().for_each(|gated| (gated.width, gated.fused) = (width, true));
    if !rotates {
        decoder.attentions_mut().for_each(|attention| attention.rope = Rope::still(attention.head_dim));
    }
    Ok(())
}

fn from_gguf(metadata: &Metadata) -> Result<Decoder> {
    stored(metadata, &FAMILY)
}

fn mixture_from_gguf(metadata: &Metadata) -> Result<Decoder> {
    let mixture = experts::read_gguf(metadata, MIXTURE.architecture, true)?;
    Ok(experts::put_stored(stored(metadata, &MIXTURE)?, metadata, &mixture))
}

/// Reads what the architectures share.
fn stored(metadata: &Metadata, family: &Family) -> Result<Decoder> {
    let key = |name: &str| format!("{}.{name}", family.architecture);
    // The files have f32 for a decimal number: 0.22 is stored as 0.219999999.
    let decimal = |stored: f64| format!("{}", stored as f32).parse().unwrap_or(stored);
    let factors = Factors {
        embeddings: decimal(metadata.f64_or(&key("embedding_scale"), 1.0)?),
        scores: metadata.f64_opt(&key("attention.scale"))?.filter(|scale| *scale != 0.0).map(decimal),
        residual: decimal(metadata.f64_or(&key("residual_scale"), 1.0)?),
        logits: metadata.f64(&key("logit_scale"))?,
    };
    let decoder = llama::read_gguf(metadata, family.name, family.architecture, 10_000.0)?;
    Ok(scaled(Decoder { permuted: true, ..decoder }, &factors))
}

fn scaled(mut decoder: Decoder, factors: &Factors) -> Decoder {
    decoder.embed_scale = factors.embeddings;
    decoder.logits_divisor = factors.logits as f32;
    decoder.attentions_mut().for_each(|attention| attention.scale = factors.scores.unwrap_or(attention.scale));
    decoder.layers.iter_mut().for_each(|layer| layer.residual_scale = factors.residual);
    decoder
}
