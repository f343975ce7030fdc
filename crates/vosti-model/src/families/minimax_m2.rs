//! MiniMax M2: a mixture of experts in each layer, one norm of all query heads and one of all key heads, and the first half of each head
//! rotates.
//!
//! A share is the sigmoid of the router's logit, and a bias of each expert joins it for the choice alone. Layers that predict further
//! tokens are left out. Source: transformers `models/minimax_m2`; llama.cpp's `minimax-m2`.

use super::experts::{self, Keys};
use super::{Family, llama, refuse_bias};
use crate::config::Fields;
use crate::decoder::{Decoder, ExpertTensors, Experts, QkNorm};
use crate::error::{ModelError, Result};
use crate::gguf::Metadata;

pub(super) const FAMILY: Family = Family {
    name: "MiniMax M2",
    model_types: &["minimax_m2"],
    architecture: "minimax-m2",
    examples: &["MiniMaxAI/MiniMax-M2"],
    head_max: super::HEAD_MAX,
    from_config,
    from_gguf,
};

const THETA: f64 = 5_000_000.0;

fn refuse<T>(feature: impl Into<String>) -> Result<T> {
    Err(ModelError::Feature { family: FAMILY.name, feature: feature.into() })
}

fn from_config(fields: &Fields) -> Result<Decoder> {
    refuse_bias(fields, FAMILY.name)?;
    for (key, expected) in [("scoring_func", "sigmoid"), ("qk_norm_type", "per_layer")] {
        if let Some(other) = fields.str_opt(key)?.filter(|value| *value != expected) {
            return refuse(format!("{key} = {other}"));
        }
    }
    for key in ["use_qk_norm", "use_routing_bias"] {
        if !fields.bool_or(key, true)? {
            return refuse(format!("{key} = false"));
        }
    }
    if fields.u32_or("shared_intermediate_size", 0)? > 0 {
        return refuse("a perceptron beside the experts (shared_intermediate_size)");
    }
    if fields.u32s_opt("attn_type_list")?.is_some_and(|kinds| kinds.contains(&0)) {
        return refuse("layers without softmax attention (attn_type_list)");
    }
    let decoder = llama::read_config(fields, FAMILY.name, THETA)?;
    let head_dim = decoder.attentions().next().map_or(0, |attention| attention.head_dim);
    let parameters = fields.object("rope_parameters").unwrap_or(*fields);
    let share = parameters.f64_or("partial_rotary_factor", fields.f64_or("partial_rotary_factor", 1.0)?)?;
    let rotary = match fields.u32_opt("rotary_dim")? {
        Some(rotary) => rotary,
        None => (f64::from(head_dim) * share.clamp(0.0, 1.0)) as u32,
    };
    let mixture = experts::read_config(fields, Keys::LOCAL, true, ExpertTensors::Mixtral)?;
    Ok(experts::put(normed(decoder, rotary), &scored(mixture), |_| true))
}

fn from_gguf(metadata: &Metadata) -> Result<Decoder> {
    let key = |name: &str| format!("{}.{name}", FAMILY.architecture);
    experts::expect_sigmoid(metadata, FAMILY.name, FAMILY.architecture)?;
    let decoder = llama::read_gguf(metadata, FAMILY.name, FAMILY.architecture, THETA)?;
    let rotary = metadata.u32(&key("rope.dimension_count"))?;
    let mixture = scored(experts::read_gguf(metadata, FAMILY.architecture, true)?);
    Ok(experts::put_stored(normed(decoder, rotary), metadata, &mixture))
}

/// The decoder with norms of all heads, of which so many numbers each rotate.
fn normed(mut decoder: Decoder, rotary: u32) -> Decoder {
    for attention in decoder.attentions_mut() {
        attention.qk_norm = QkNorm::Whole;
        attention.rope.rotary = rotary;
    }
    decoder
}

fn scored(mixture: Experts) -> Experts {
    experts::sigmoids(mixture, 1.0, None)
}
