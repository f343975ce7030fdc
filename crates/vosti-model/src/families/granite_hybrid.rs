//! Granite 4: Granite's factors, in most layers of the models called H a Mamba 2 layer in the place of attention, and in some models a
//! mixture of experts beside each perceptron.
//!
//! Source: transformers `models/granitemoehybrid`; llama.cpp's `granitehybrid`. The perceptron is called a shared expert, with a mixture
//! or without, and has gate and up in one tensor; layers may have no rotation. What goes into a state is in FP32 from the convolution on,
//! its sums go page by page, a norm's result is rounded once, and the perceptron is added after the experts: that is the definition here.

use super::experts::{self, Keys};
use super::granite::{configured, scaled, stored_factors, stored_mixture};
use super::rotary::gguf_rope;
use super::{Family, llama, mamba, refuse_bias};
use crate::config::Fields;
use crate::decoder::{Decoder, ExpertTensors, Experts, Gated, Naming, Rope, Shared};
use crate::error::{ModelError, Result};
use crate::gguf::Metadata;

pub(super) const FAMILY: Family = Family {
    name: "Granite 4",
    model_types: &["granitemoehybrid"],
    architecture: "granitehybrid",
    examples: &[
        "ibm-granite/granite-4.0-1b",
        "ibm-granite/granite-4.0-h-micro",
        "ibm-granite/granite-4.0-h-tiny",
        "ibm-granite/granite-4.0-h-small",
    ],
    head_max: super::HEAD_MAX,
    from_config,
    from_gguf,
};

fn refuse<T>(feature: impl Into<String>) -> Result<T> {
    Err(ModelError::Feature { family: FAMILY.name, feature: feature.into() })
}

fn from_config(fields: &Fields) -> Result<Decoder> {
    refuse_bias(fields, FAMILY.name)?;
    let mut decoder = llama::read_config(fields, FAMILY.name, 10_000.0)?;
    let recurrent = kinds(fields, decoder.layers.len())?;
    let rotates = match fields.str_opt("position_embedding_type")? {
        Some("rope") => true,
        Some("nope") | None => false,
        Some(other) => return refuse(format!("position_embedding_type = {other}")),
    };
    decoder.naming = Naming::GraniteHybrid;
    let width = fields.u32_or("shared_intermediate_size", 1024)?;
    let perceptron = Gated { fused: true, ..llama::gated(width) };
    decoder.gated_mut().for_each(|gated| *gated = perceptron.clone());
    if fields.u32_or("num_local_experts", 8)? != 0 {
        let keys = Keys::LOCAL;
        let mixture = experts::read_config(fields, keys, true, ExpertTensors::Stacked)?;
        let shared = Some(Shared { mlp: perceptron, gated: false });
        decoder = experts::put(decoder, &Experts { shared, ..mixture }, |_| true);
    }
    if !rotates {
        decoder.attentions_mut().for_each(|attention| attention.rope = Rope::still(attention.head_dim));
    }
    let decoder = scaled(decoder, &configured(fields)?);
    match recurrent.contains(&true) {
        true => Ok(mamba::put(decoder, mamba::read_config(fields, FAMILY.name, &mamba::Keys::USUAL)?, &recurrent)),
        false => Ok(decoder),
    }
}

/// Which layers are Mamba's. transformers writes `linear_attention` for what published files call `mamba`.
fn kinds(fields: &Fields, layers: usize) -> Result<Vec<bool>> {
    let key = if fields.get("layer_types").is_some() { "layer_types" } else { "layers_block_type" };
    let kinds = fields.strings_opt(key)?.unwrap_or_default();
    if kinds.len() != layers {
        return refuse(format!("{key} that does not name the kind of each layer"));
    }
    let recurrent = |kind: &str| match kind {
        "mamba" | "linear_attention" => Ok(true),
        "attention" | "full_attention" => Ok(false),
        other => refuse(format!("{key} with {other}")),
    };
    kinds.into_iter().map(recurrent).collect()
}

fn from_gguf(metadata: &Metadata) -> Result<Decoder> {
    let key = |name: &str| format!("{}.{name}", FAMILY.architecture);
    let hidden = metadata.u32(&key("embedding_length"))?;
    let count = metadata.layers(&key("block_count"))? as usize;
    let heads = metadata.u32(&key("attention.head_count"))?;
    let head_dim = metadata.u32_or(&key("attention.key_length"), hidden.checked_div(heads).unwrap_or(0))?;
    let rope = match metadata.bool_or(&key("rope.scaling.finetuned"), true)? {
        true => gguf_rope(metadata, FAMILY.architecture, head_dim, 10_000.0)?,
        false => Rope::still(head_dim),
    };
    // Layers without attention have no KV head.
    let kv_heads = metadata.u32_each(&key("attention.head_count_kv"), count)?;
    let widths = metadata.u32_each(&key("feed_forward_length"), count)?;
    let layer = |(kv_heads, width): (&u32, &u32)| {
        llama::layer(llama::attention(heads, *kv_heads, rope.clone()), llama::gated(*width))
    };
    let decoder = Decoder {
        vocab: metadata.vocabulary()?,
        hidden,
        context: metadata.u32(&key("context_length"))?,
        eps: metadata.eps(&key("attention.layer_norm_rms_epsilon"))?,
        permuted: true,
        layers: kv_heads.iter().zip(&widths).map(layer).collect(),
        ..Decoder::neutral(FAMILY.name, Naming::Gguf)
    };
    let recurrent: Vec<bool> = kv_heads.iter().map(|heads| *heads == 0).collect();
    let mut decoder = scaled(decoder, &stored_factors(metadata, FAMILY.architecture)?);
    if metadata.u32_or(&key("expert_count"), 0)? != 0 {
        decoder = experts::put_stored(decoder, metadata, &stored_mixture(metadata, FAMILY.architecture)?);
    }
    Ok(mamba::put(decoder, mamba::read_gguf(metadata, FAMILY.architecture)?, &recurrent))
}
