//! Llama 3.x and what shares its architecture: SmolLM2. Grouped heads, SiLU, rotary embeddings with
//! Llama 3.1's scaling, two norms a layer.
//!
//! Source: transformers `models/llama`; llama.cpp's conversion interleaves the rows of Q and K.

use super::{Family, expect_activation, gguf_scaling, refuse_bias, rope_of};
use crate::config::{Fields, layer_count};
use crate::decoder::{Activation, Decoder, Layer, Naming, Rope};
use crate::error::Result;
use crate::gguf::Metadata;

pub(super) const FAMILY: Family = Family { model_types: &["llama"], architecture: "llama", from_config, from_gguf };

fn from_config(fields: &Fields) -> Result<Decoder> {
    refuse_bias(fields, "Llama")?;
    expect_activation(fields, "Llama", "hidden_act", &["silu"])?;
    let hidden = fields.u32("hidden_size")?;
    let heads = fields.u32("num_attention_heads")?;
    let head_dim = fields.u32_or("head_dim", hidden / heads.max(1))?;
    let layer = Layer {
        rope: rope_of(fields, head_dim, 10_000.0)?,
        ..layer(heads, fields.u32_or("num_key_value_heads", heads)?, head_dim, fields.u32("intermediate_size")?)
    };
    Ok(Decoder {
        family: "Llama",
        vocab: fields.u32("vocab_size")?,
        hidden,
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
    let hidden = metadata.u32("llama.embedding_length")?;
    let heads = metadata.u32("llama.attention.head_count")?;
    let head_dim = metadata.u32_or("llama.attention.key_length", hidden / heads.max(1))?;
    let theta = metadata.f64_or("llama.rope.freq_base", 10_000.0)?;
    let kv_heads = metadata.u32_or("llama.attention.head_count_kv", heads)?;
    let layer = Layer {
        rope: Rope { theta, head_dim, scaling: gguf_scaling(metadata, "llama")? },
        ..layer(heads, kv_heads, head_dim, metadata.u32("llama.feed_forward_length")?)
    };
    Ok(Decoder {
        family: "Llama",
        vocab: metadata.vocabulary()?,
        hidden,
        context: metadata.u32("llama.context_length")?,
        eps: metadata.eps("llama.attention.layer_norm_rms_epsilon")?,
        embed_scale: 1.0,
        final_softcap: 0.0,
        tied: false,
        naming: Naming::Gguf,
        norm_offset: 0.0,
        permuted: true,
        layers: vec![layer; metadata.layers("llama.block_count")? as usize],
    })
}

/// A layer of this shape, before its rotary embedding is known.
pub(super) fn layer(heads: u32, kv_heads: u32, head_dim: u32, intermediate: u32) -> Layer {
    Layer {
        heads,
        kv_heads,
        head_dim,
        window: None,
        scale: f64::from(head_dim).powf(-0.5),
        softcap: 0.0,
        qk_norm: false,
        v_norm: false,
        keys_as_values: false,
        cache_of: None,
        rope: Rope { theta: 10_000.0, head_dim, scaling: crate::decoder::RopeScaling::None },
        intermediate,
        activation: Activation::Silu,
        post_norms: false,
        scaled: false,
    }
}
