//! LFM2: most layers mix rows by a short gated convolution, the others by attention with an RMS norm on each query and key head. LFM2 MoE
//! has a mixture of experts in all layers but the first few: a share is the sigmoid of the router's logit, and a bias of each expert joins
//! it for the choice alone.
//!
//! Source: transformers `models/lfm2` and `models/lfm2_moe`; llama.cpp's `lfm2` and `lfm2moe`. The gated inputs of a convolution are cached in the activations' type, as
//! transformers caches them, and its sum is in FP32, oldest input first: that is the definition here.

use super::experts::{self, Keys};
use super::rotary::{gguf_rope, rope_of};
use super::{Family, llama, refuse_flag};
use crate::config::{Fields, layer_count, layers_of_kind};
use crate::decoder::{Attention, Decoder, ExpertTensors, Experts, Layer, Mixer, Naming, QkNorm, ShortConv};
use crate::error::{ModelError, Result};
use crate::gguf::Metadata;

pub(super) const FAMILY: Family = Family {
    name: "LFM2",
    model_types: &["lfm2"],
    architecture: "lfm2",
    examples: &["LiquidAI/LFM2-350M", "LiquidAI/LFM2-1.2B", "LiquidAI/LFM2-2.6B"],
    head_max: super::HEAD_MAX,
    from_config,
    from_gguf,
};

pub(super) const MIXTURE: Family = Family {
    name: "LFM2 MoE",
    model_types: &["lfm2_moe"],
    architecture: "lfm2moe",
    examples: &["LiquidAI/LFM2-8B-A1B", "LiquidAI/LFM2-24B-A2B"],
    from_config: mixture_from_config,
    from_gguf: mixture_from_gguf,
    ..FAMILY
};

fn refuse<T>(family: &Family, feature: &str) -> Result<T> {
    Err(ModelError::Feature { family: family.name, feature: feature.into() })
}

fn from_config(fields: &Fields) -> Result<Decoder> {
    configured(fields, &FAMILY, width(fields)?)
}

fn mixture_from_config(fields: &Fields) -> Result<Decoder> {
    if !fields.bool_or("use_expert_bias", true)? {
        return refuse(&MIXTURE, "use_expert_bias = false");
    }
    let decoder = configured(fields, &MIXTURE, fields.u32("intermediate_size")?)?;
    let normed = fields.bool_or("norm_topk_prob", true)?;
    let mixture = experts::read_config(fields, Keys::USUAL, normed, ExpertTensors::Mixtral)?;
    let mixture = mixed_by(mixture, fields.f64_or("routed_scaling_factor", 1.0)?);
    let first = fields.u32_or("num_dense_layers", 2)? as usize;
    Ok(experts::put(decoder, &mixture, |i| i >= first))
}

/// LFM2's router.
fn mixed_by(mixture: Experts, scale: f64) -> Experts {
    experts::sigmoids(mixture, scale, None)
}

/// What the families share; `width` is a perceptron's.
fn configured(fields: &Fields, family: &Family, width: u32) -> Result<Decoder> {
    refuse_flag(fields, family.name, "conv_bias")?;
    let hidden = fields.u32("hidden_size")?;
    let heads = fields.u32_or("num_attention_heads", 32)?;
    let head_dim = hidden.checked_div(heads).filter(|d| d * heads == hidden).ok_or_else(|| {
        fields.bad("num_attention_heads", format!("is {heads}, not a divisor of hidden_size {hidden}"))
    })?;
    let kv_heads = fields.u32_or("num_key_value_heads", 8)?;
    let count = layer_count(fields, "num_hidden_layers")?;
    let attention = normed(llama::attention(heads, kv_heads, rope_of(fields, head_dim, 1_000_000.0)?));
    let conv = ShortConv { taps: fields.u32_or("conv_L_cache", 3)? };
    let layer = llama::layer(attention, llama::gated(width));
    Ok(Decoder {
        vocab: fields.u32("vocab_size")?,
        hidden,
        context: fields.u32_or("max_position_embeddings", 128_000)?,
        eps: fields.f64_or("norm_eps", 1e-5)?,
        tied: fields.bool_or("tie_embedding", true)?,
        layers: mixed(vec![layer; count as usize], &convolutions(fields, count)?, conv),
        ..Decoder::neutral(family.name, Naming::Lfm2)
    })
}

/// Which layers have a convolution.
fn convolutions(fields: &Fields, count: u32) -> Result<Vec<bool>> {
    if let Some(kinds) = layers_of_kind(fields, count as usize, "conv")? {
        return Ok(kinds);
    }
    let full = fields.u32s_opt("full_attn_idxs")?;
    Ok((0..count).map(|i| full.as_ref().is_some_and(|full| !full.contains(&i))).collect())
}

/// Columns of gate and up: `block_ff_dim` or `intermediate_size`, or two thirds of it rounded up, unless the configuration says no.
fn width(fields: &Fields) -> Result<u32> {
    let given = fields.u32_opt("block_ff_dim")?.map_or_else(|| fields.u32("intermediate_size"), Ok)?;
    if !fields.bool_or("block_auto_adjust_ff_dim", true)? {
        return Ok(given);
    }
    let (factor, multiple) =
        (fields.f64_or("block_ffn_dim_multiplier", 1.0)?, fields.u32_or("block_multiple_of", 256)?);
    let scaled = factor * (u64::from(given) * 2 / 3) as f64;
    let width = if (0.0..f64::from(1 << 30)).contains(&scaled) { scaled as u32 } else { u32::MAX };
    Ok(width.checked_next_multiple_of(multiple.max(1)).unwrap_or(u32::MAX))
}

fn from_gguf(metadata: &Metadata) -> Result<Decoder> {
    stored(metadata, &FAMILY)
}

fn mixture_from_gguf(metadata: &Metadata) -> Result<Decoder> {
    let key = |name: &str| format!("{}.{name}", MIXTURE.architecture);
    // 2 is the sigmoid.
    if metadata.u32(&key("expert_gating_func"))? != 2 {
        return refuse(&MIXTURE, "a router whose scores are no sigmoid (expert_gating_func)");
    }
    let mixture = experts::read_gguf(metadata, MIXTURE.architecture, true)?;
    let mixture = mixed_by(mixture, metadata.f64_or(&key("expert_weights_scale"), 1.0)?);
    Ok(experts::put_stored(stored(metadata, &MIXTURE)?, metadata, &mixture))
}

/// Reads what the architectures share.
fn stored(metadata: &Metadata, family: &Family) -> Result<Decoder> {
    let key = |name: &str| format!("{}.{name}", family.architecture);
    if metadata.u32_or(&key("attention.sliding_window"), 0)? != 0 {
        return refuse(family, "a sliding window");
    }
    let hidden = metadata.u32(&key("embedding_length"))?;
    let count = metadata.layers(&key("block_count"))? as usize;
    let heads = metadata.u32(&key("attention.head_count"))?;
    let head_dim = metadata.u32_or(&key("attention.key_length"), hidden.checked_div(heads).unwrap_or(0))?;
    // Layers without attention have no KV head.
    let kv_heads = metadata.u32_each(&key("attention.head_count_kv"), count)?;
    let widths = metadata.u32_each(&key("feed_forward_length"), count)?;
    let rope = gguf_rope(metadata, family.architecture, head_dim, 1_000_000.0)?;
    let conv = ShortConv { taps: metadata.u32(&key("shortconv.l_cache"))? };
    let layer = |(kv_heads, width): (&u32, &u32)| {
        llama::layer(normed(llama::attention(heads, *kv_heads, rope.clone())), llama::gated(*width))
    };
    let layers = kv_heads.iter().zip(&widths).map(layer).collect();
    let convolutions: Vec<bool> = kv_heads.iter().map(|heads| *heads == 0).collect();
    Ok(Decoder {
        vocab: metadata.vocabulary()?,
        hidden,
        context: metadata.u32(&key("context_length"))?,
        eps: metadata.eps(&key("attention.layer_norm_rms_epsilon"))?,
        tied: true,
        layers: mixed(layers, &convolutions, conv),
        ..Decoder::neutral(family.name, Naming::GgufLfm2)
    })
}

fn normed(attention: Attention) -> Attention {
    Attention { qk_norm: QkNorm::Heads, ..attention }
}

/// The layers, with a convolution in these.
fn mixed(mut layers: Vec<Layer>, convolutions: &[bool], conv: ShortConv) -> Vec<Layer> {
    for (layer, _) in layers.iter_mut().zip(convolutions).filter(|(_, convolves)| **convolves) {
        layer.mixer = Mixer::ShortConv(conv);
    }
    layers
}
