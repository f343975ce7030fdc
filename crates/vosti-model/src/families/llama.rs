//! Llama and models with its architecture: grouped heads, SiLU, rotary embeddings, two norms a layer.
//!
//! Source: transformers `models/llama`; llama.cpp's conversion interleaves the rows of Q and K. Other families read the
//! fields that they share with Llama by [`read_config`] and [`read_gguf`], and change the rest.

use super::rotary::{gguf_rope, rope_of};
use super::{Family, expect_activation, experts, refuse_bias};
use crate::config::{Fields, layer_count};
use crate::decoder::{Activation, Attention, Decoder, Gated, Layer, Mixer, Mlp, Naming, QkNorm, Rope};
use crate::error::Result;
use crate::gguf::Metadata;

pub(super) const FAMILY: Family = Family {
    name: "Llama",
    model_types: &["llama"],
    architecture: "llama",
    examples: &[
        "meta-llama/Llama-3.1-8B-Instruct",
        "meta-llama/Llama-2-7b-chat-hf",
        "HuggingFaceTB/SmolLM2-1.7B-Instruct",
        "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
        "tiiuae/Falcon3-7B-Instruct",
        "deepseek-ai/DeepSeek-R1-Distill-Llama-8B",
    ],
    head_max: super::HEAD_MAX,
    from_config,
    from_gguf,
};

fn from_config(fields: &Fields) -> Result<Decoder> {
    refuse_bias(fields, FAMILY.name)?;
    read_config(fields, FAMILY.name, 10_000.0)
}

fn from_gguf(metadata: &Metadata) -> Result<Decoder> {
    let decoder = Decoder { permuted: true, ..read_gguf(metadata, FAMILY.name, FAMILY.architecture, 10_000.0)? };
    // Mixtral has Llama's architecture in GGUF files.
    match metadata.u32_or("llama.expert_count", 0)? {
        0 => Ok(decoder),
        _ => Ok(experts::put_stored(decoder, metadata, &experts::read_gguf(metadata, FAMILY.architecture, true)?)),
    }
}

/// Reads a `config.json` with Llama's fields and equal layers. The caller handles biases.
pub(super) fn read_config(fields: &Fields, family: &'static str, theta: f64) -> Result<Decoder> {
    expect_activation(fields, family, "hidden_act", &["silu"])?;
    let hidden = fields.u32("hidden_size")?;
    let heads = fields.u32("num_attention_heads")?;
    let head_dim = match fields.u32_opt("head_dim")? {
        Some(head_dim) => head_dim,
        None => hidden.checked_div(heads).filter(|d| d * heads == hidden).ok_or_else(|| {
            fields.bad("num_attention_heads", format!("is {heads}, not a divisor of hidden_size {hidden}"))
        })?,
    };
    let kv_heads = fields.u32_or("num_key_value_heads", heads)?;
    let attention = attention(heads, kv_heads, rope_of(fields, head_dim, theta)?);
    // Files of which every layer has experts may give an expert's width only.
    let width = match fields.u32_opt("moe_intermediate_size")? {
        Some(expert) => fields.u32_or("intermediate_size", expert)?,
        None => fields.u32("intermediate_size")?,
    };
    let layer = layer(attention, gated(width));
    Ok(Decoder {
        vocab: fields.u32("vocab_size")?,
        hidden,
        context: fields.u32("max_position_embeddings")?,
        eps: fields.f64_or("rms_norm_eps", 1e-6)?,
        layers: vec![layer; layer_count(fields, "num_hidden_layers")? as usize],
        ..Decoder::neutral(family, Naming::HuggingFace)
    })
}

/// Reads GGUF metadata with Llama's fields and equal layers, with rows of Q and K in Hugging Face's order.
pub(super) fn read_gguf(metadata: &Metadata, family: &'static str, architecture: &str, theta: f64) -> Result<Decoder> {
    let key = |name: &str| format!("{architecture}.{name}");
    let hidden = metadata.u32(&key("embedding_length"))?;
    let heads = metadata.u32(&key("attention.head_count"))?;
    let head_dim = metadata.u32_or(&key("attention.key_length"), hidden.checked_div(heads).unwrap_or(0))?;
    let kv_heads = metadata.u32_or(&key("attention.head_count_kv"), heads)?;
    let attention = attention(heads, kv_heads, gguf_rope(metadata, architecture, head_dim, theta)?);
    let width = match metadata.u32_opt(&key("expert_feed_forward_length"))? {
        Some(expert) => metadata.u32_or(&key("feed_forward_length"), expert)?,
        None => metadata.u32(&key("feed_forward_length"))?,
    };
    let layer = layer(attention, gated(width));
    Ok(Decoder {
        vocab: metadata.vocabulary()?,
        hidden,
        context: metadata.u32(&key("context_length"))?,
        eps: metadata.eps(&key("attention.layer_norm_rms_epsilon"))?,
        layers: vec![layer; metadata.layers(&key("block_count"))? as usize],
        ..Decoder::neutral(family, Naming::Gguf)
    })
}

/// A layer of these parts, with Llama's norms.
pub(super) fn layer(attention: Attention, gated: Gated) -> Layer {
    Layer {
        mixer: Mixer::Attention(attention),
        mlp: Mlp::Gated(gated),
        pre_norms: true,
        post_norms: false,
        residual_scale: 1.0,
        scaled: false,
    }
}

/// Attention with heads of the embedding's size.
pub(super) fn attention(heads: u32, kv_heads: u32, rope: Rope) -> Attention {
    Attention {
        heads,
        kv_heads,
        head_dim: rope.head_dim,
        window: None,
        scale: f64::from(rope.head_dim).powf(-0.5),
        softcap: 0.0,
        qk_norm: QkNorm::None,
        qkv_bias: false,
        output_bias: false,
        sinks: false,
        fused_qkv: false,
        output_gate: false,
        v_norm: false,
        keys_as_values: false,
        cache_of: None,
        rope,
    }
}

/// A perceptron of this width.
pub(super) fn gated(width: u32) -> Gated {
    Gated { width, activation: Activation::Silu, fused: false }
}
