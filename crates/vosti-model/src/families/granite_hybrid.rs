//! Granite 4 without experts: Granite's factors, and in most layers of the models called H a Mamba 2 layer in the place of attention.
//!
//! Source: transformers `models/granitemoehybrid`; llama.cpp's `granitehybrid`. The perceptron is called a shared expert and has gate
//! and up in one tensor, and layers may have no rotation. Experts are refused by name. What goes into a state is in FP32 from the
//! convolution on, its sums go page by page, and a norm's result is rounded once: that is the definition here.

use super::granite::{configured, scaled, stored_factors};
use super::rotary::gguf_rope;
use super::{Family, llama, members, refuse_bias, refuse_flag};
use crate::config::Fields;
use crate::decoder::{Decoder, Mamba, Mixer, Naming, Rope};
use crate::error::{ModelError, Result};
use crate::gguf::Metadata;

pub(super) const FAMILY: Family = Family {
    name: "Granite 4",
    model_types: &["granitemoehybrid"],
    architecture: "granitehybrid",
    examples: &["ibm-granite/granite-4.0-1b", "ibm-granite/granite-4.0-h-1b", "ibm-granite/granite-4.0-h-micro"],
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
    if fields.u32_or("num_local_experts", 0)? != 0 {
        return refuse("a mixture of experts (num_local_experts)");
    }
    let recurrent = kinds(fields, decoder.layers.len())?;
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
    let decoder = scaled(decoder, &configured(fields)?);
    match recurrent.contains(&true) {
        true => Ok(mixed(decoder, mamba(fields)?, &recurrent)),
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

fn mamba(fields: &Fields) -> Result<Mamba> {
    refuse_flag(fields, FAMILY.name, "mamba_proj_bias")?;
    if !fields.bool_or("mamba_conv_bias", true)? {
        return refuse("mamba_conv_bias = false");
    }
    // The reference implementations bound a step in different phases, or never.
    if !fields.unbounded("time_step_limit") {
        return refuse("a time_step_limit other than [0, Infinity]");
    }
    let heads = fields.u32_or("mamba_n_heads", 128)?;
    let groups = fields.u32_or("mamba_n_groups", 1)?;
    let inner = fields.u32("hidden_size")?.saturating_mul(fields.u32_or("mamba_expand", 2)?);
    let even = inner.checked_div(heads).filter(|size| size * heads == inner);
    let size =
        even.ok_or_else(|| fields.bad("mamba_n_heads", format!("is {heads}, not a divisor of {inner} values")))?;
    let given = match fields.str_opt("mamba_d_head") {
        Ok(Some("auto")) => None,
        _ => fields.u32_opt("mamba_d_head")?,
    };
    if given.is_some_and(|given| given != size) {
        return Err(
            fields.bad("mamba_d_head", format!("is not {size}, a part of {inner} values for each of {heads} heads"))
        );
    }
    Ok(Mamba {
        groups,
        members: members(heads, groups).ok_or_else(|| fields.bad("mamba_n_groups", uneven(groups, heads)))?,
        state: fields.u32_or("mamba_d_state", 256)?,
        head_dim: size,
        taps: fields.u32_or("mamba_d_conv", 4)?,
    })
}

fn from_gguf(metadata: &Metadata) -> Result<Decoder> {
    let key = |name: &str| format!("{}.{name}", FAMILY.architecture);
    if metadata.u32_or(&key("expert_count"), 0)? != 0 {
        return refuse("a mixture of experts (expert_count)");
    }
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
        family: FAMILY.name,
        vocab: metadata.vocabulary()?,
        hidden,
        context: metadata.u32(&key("context_length"))?,
        eps: metadata.eps(&key("attention.layer_norm_rms_epsilon"))?,
        embed_scale: 1.0,
        final_softcap: 0.0,
        logits_divisor: 1.0,
        tied: false,
        naming: Naming::Gguf,
        norm_offset: 0.0,
        permuted: true,
        layers: kv_heads.iter().zip(&widths).map(layer).collect(),
    };
    let recurrent: Vec<bool> = kv_heads.iter().map(|heads| *heads == 0).collect();
    Ok(mixed(scaled(decoder, &stored_factors(metadata, FAMILY.architecture)?), stored(metadata)?, &recurrent))
}

fn stored(metadata: &Metadata) -> Result<Mamba> {
    let key = |name: &str| format!("{}.ssm.{name}", FAMILY.architecture);
    let (heads, groups) = (metadata.u32(&key("time_step_rank"))?, metadata.u32(&key("group_count"))?);
    let inner = metadata.u32(&key("inner_size"))?;
    let even = inner.checked_div(heads).filter(|size| size * heads == inner);
    Ok(Mamba {
        groups,
        members: members(heads, groups).ok_or_else(|| metadata.bad(&key("group_count"), uneven(groups, heads)))?,
        state: metadata.u32(&key("state_size"))?,
        head_dim: even
            .ok_or_else(|| metadata.bad(&key("inner_size"), format!("is {inner}, not a multiple of {heads} heads")))?,
        taps: metadata.u32(&key("conv_kernel"))?,
    })
}

fn uneven(groups: u32, heads: u32) -> String {
    format!("is {groups}, not a divisor of {heads} heads")
}

/// The decoder with Mamba in these layers.
fn mixed(mut decoder: Decoder, mamba: Mamba, recurrent: &[bool]) -> Decoder {
    for (layer, _) in decoder.layers.iter_mut().zip(recurrent).filter(|(_, recurrent)| **recurrent) {
        layer.mixer = Mixer::Mamba(mamba);
    }
    decoder
}
