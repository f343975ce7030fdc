//! Gemma 3: four norms a layer, normed queries and keys, windowed layers with their own rotary base,
//! scaled embeddings. The checkpoints store norm weights as `w` for a factor of `1 + w`; GGUF files store
//! the factor.
//!
//! Source: transformers `models/gemma3`; the GGUF window pattern and 27B's scale are llama.cpp's.

use super::rotary::{gguf_scaling, rope_scaling};
use super::{Family, expect_activation, llama, refuse_bias};
use crate::config::{Fields, layer_count, sliding_layers};
use crate::decoder::{Activation, Attention, Decoder, Gated, Layer, Naming, QkNorm, Rope, RopeScaling};
use crate::error::{ModelError, Result};
use crate::gguf::Metadata;

pub(super) const FAMILY: Family = Family {
    name: "Gemma 3",
    model_types: &["gemma3_text", "gemma3"],
    architecture: "gemma3",
    examples: &["google/gemma-3-4b-it"],
    head_max: super::HEAD_MAX,
    from_config,
    from_gguf,
};

const GLOBAL_THETA: f64 = 1_000_000.0;
const LOCAL_THETA: f64 = 10_000.0;

fn from_config(fields: &Fields) -> Result<Decoder> {
    refuse_bias(fields, "Gemma 3")?;
    expect_activation(fields, "Gemma 3", "hidden_activation", &["gelu_pytorch_tanh"])?;
    if fields.bool_or("use_bidirectional_attention", false)? {
        return Err(ModelError::Feature { family: "Gemma 3", feature: "use_bidirectional_attention".into() });
    }
    if fields.get("attn_logit_softcapping").is_some() {
        return Err(ModelError::Feature { family: "Gemma 3", feature: "attn_logit_softcapping".into() });
    }
    let hidden = fields.u32_or("hidden_size", 2304)?;
    let heads = fields.u32_or("num_attention_heads", 8)?;
    let head_dim = fields.u32_or("head_dim", 256)?;
    let count = layer_count(fields, "num_hidden_layers")?;
    let kinds = Kinds {
        heads,
        kv_heads: fields.u32_or("num_key_value_heads", 4)?,
        scale: fields.f64_or("query_pre_attn_scalar", 256.0)?.powf(-0.5),
        width: fields.u32_or("intermediate_size", 9216)?,
        window: fields.u32_or("sliding_window", 4096)?,
        local: local_rope(fields, head_dim)?,
        global: global_rope(fields, head_dim)?,
    };
    let layers = sliding_layers(fields, count)?.into_iter().map(|sliding| kinds.layer(sliding));
    Ok(Decoder {
        vocab: fields.u32_or("vocab_size", 262_208)?,
        hidden,
        context: fields.u32_or("max_position_embeddings", 131_072)?,
        eps: fields.f64_or("rms_norm_eps", 1e-6)?,
        embed_scale: f64::from(hidden).sqrt(),
        final_softcap: fields.f64_or("final_logit_softcapping", 0.0)?,
        tied: true,
        norm_offset: 1.0,
        layers: layers.collect(),
        ..Decoder::neutral("Gemma 3", Naming::HuggingFace)
    })
}

/// The rotary embedding of layers without a window. Only these have the scaling.
fn global_rope(fields: &Fields, head_dim: u32) -> Result<Rope> {
    let theta = fields.f64_or("rope_theta", GLOBAL_THETA)?;
    let (theta, scaling) = match fields.object("rope_parameters").and_then(|p| p.object("full_attention")) {
        Some(p) => (p.f64_or("rope_theta", theta)?, rope_scaling(&p)?),
        None => match fields.object("rope_scaling") {
            Some(p) => (theta, rope_scaling(&p)?),
            None => (theta, RopeScaling::None),
        },
    };
    Ok(Rope { scaling, ..Rope::plain(theta, head_dim) })
}

fn local_rope(fields: &Fields, head_dim: u32) -> Result<Rope> {
    let theta = fields.f64_or("rope_local_base_freq", LOCAL_THETA)?;
    let (theta, scaling) = match fields.object("rope_parameters").and_then(|p| p.object("sliding_attention")) {
        Some(p) => (p.f64_or("rope_theta", theta)?, rope_scaling(&p)?),
        None => (theta, RopeScaling::None),
    };
    Ok(Rope { scaling, ..Rope::plain(theta, head_dim) })
}

fn from_gguf(metadata: &Metadata) -> Result<Decoder> {
    let hidden = metadata.u32("gemma3.embedding_length")?;
    let heads = metadata.u32("gemma3.attention.head_count")?;
    let head_dim = metadata.u32_or("gemma3.attention.key_length", 256)?;
    let kv_heads = metadata.u32_or("gemma3.attention.head_count_kv", heads)?;
    let count = metadata.layers("gemma3.block_count")?;
    let window = metadata.u32("gemma3.attention.sliding_window")?;
    let pattern = metadata.u32_or("gemma3.attention.sliding_window_pattern", 6)?.max(1);
    let theta = metadata.f64_or("gemma3.rope.freq_base", GLOBAL_THETA)?;
    let local_theta = metadata.f64_or("gemma3.rope.freq_base_swa", LOCAL_THETA)?;
    let global = Rope { scaling: gguf_scaling(metadata, "gemma3")?, ..Rope::plain(theta, head_dim) };
    let local = Rope::plain(local_theta, head_dim);
    // The file does not have `query_pre_attn_scalar`. It is the head size, except for 27B, which has 62 layers.
    let scalar = if count == 62 { f64::from(hidden) / f64::from(heads.max(1)) } else { f64::from(head_dim) };
    let kinds = Kinds {
        heads,
        kv_heads,
        scale: scalar.powf(-0.5),
        width: metadata.u32("gemma3.feed_forward_length")?,
        window,
        local,
        global,
    };
    Ok(Decoder {
        vocab: metadata.vocabulary()?,
        hidden,
        context: metadata.u32("gemma3.context_length")?,
        eps: metadata.eps("gemma3.attention.layer_norm_rms_epsilon")?,
        embed_scale: f64::from(hidden).sqrt(),
        final_softcap: metadata.f64_or("gemma3.final_logit_softcapping", 0.0)?,
        tied: true,
        layers: (0..count).map(|i| kinds.layer((i + 1) % pattern != 0)).collect(),
        ..Decoder::neutral("Gemma 3", Naming::Gguf)
    })
}

/// The two kinds of layers: with a window and the local embedding, and without a window and with the global one.
struct Kinds {
    heads: u32,
    kv_heads: u32,
    scale: f64,
    width: u32,
    window: u32,
    local: Rope,
    global: Rope,
}

impl Kinds {
    fn layer(&self, sliding: bool) -> Layer {
        let rope = if sliding { &self.local } else { &self.global };
        let attention = Attention {
            window: sliding.then_some(self.window),
            scale: self.scale,
            qk_norm: QkNorm::Heads,
            ..llama::attention(self.heads, self.kv_heads, rope.clone())
        };
        let gated = Gated { activation: Activation::GeluTanh, ..llama::gated(self.width) };
        Layer { post_norms: true, ..llama::layer(attention, gated) }
    }
}
