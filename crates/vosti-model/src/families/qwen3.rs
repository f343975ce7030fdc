//! Qwen 3, dense: Llama's layer with an RMS norm on each query and key head.
//!
//! Source: transformers `models/qwen3`.

use super::{Family, expect_activation, gguf_scaling, llama, refuse_bias, rope_of};
use crate::config::{Fields, layer_count};
use crate::decoder::{Decoder, Layer, Naming, Rope};
use crate::error::{ModelError, Result};
use crate::gguf::Metadata;

pub(super) const FAMILY: Family = Family { model_types: &["qwen3"], architecture: "qwen3", from_config, from_gguf };

fn from_config(fields: &Fields) -> Result<Decoder> {
    refuse_bias(fields, "Qwen 3")?;
    expect_activation(fields, "Qwen 3", "hidden_act", &["silu"])?;
    if fields.bool_or("use_sliding_window", false)? {
        return Err(ModelError::Feature { family: "Qwen 3", feature: "use_sliding_window".into() });
    }
    let heads = fields.u32("num_attention_heads")?;
    let head_dim = fields.u32_or("head_dim", 128)?;
    let kv_heads = fields.u32_or("num_key_value_heads", heads)?;
    let layer = Layer {
        rope: rope_of(fields, head_dim, 10_000.0)?,
        qk_norm: true,
        ..llama::layer(heads, kv_heads, head_dim, fields.u32("intermediate_size")?)
    };
    Ok(Decoder {
        family: "Qwen 3",
        vocab: fields.u32("vocab_size")?,
        hidden: fields.u32("hidden_size")?,
        context: fields.u32("max_position_embeddings")?,
        eps: fields.f64_or("rms_norm_eps", 1e-6)?,
        embed_scale: 1.0,
        final_softcap: 0.0,
        tied: false,
        naming: Naming::HuggingFace,
        norm_offset: 0.0,
        permuted: false,
        layers: vec![layer; layer_count(fields, "num_hidden_layers")? as usize],
    })
}

fn from_gguf(metadata: &Metadata) -> Result<Decoder> {
    let heads = metadata.u32("qwen3.attention.head_count")?;
    let head_dim = metadata.u32("qwen3.attention.key_length")?;
    let kv_heads = metadata.u32_or("qwen3.attention.head_count_kv", heads)?;
    let theta = metadata.f64_or("qwen3.rope.freq_base", 1_000_000.0)?;
    let layer = Layer {
        rope: Rope { theta, head_dim, scaling: gguf_scaling(metadata, "qwen3")? },
        qk_norm: true,
        ..llama::layer(heads, kv_heads, head_dim, metadata.u32("qwen3.feed_forward_length")?)
    };
    Ok(Decoder {
        family: "Qwen 3",
        vocab: metadata.vocabulary()?,
        hidden: metadata.u32("qwen3.embedding_length")?,
        context: metadata.u32("qwen3.context_length")?,
        eps: metadata.eps("qwen3.attention.layer_norm_rms_epsilon")?,
        embed_scale: 1.0,
        final_softcap: 0.0,
        tied: false,
        naming: Naming::Gguf,
        norm_offset: 0.0,
        permuted: false,
        layers: vec![layer; metadata.layers("qwen3.block_count")? as usize],
    })
}
