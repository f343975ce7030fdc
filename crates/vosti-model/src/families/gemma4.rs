//! Gemma 4, text: dense models (E2B, E4B, 12B and 31B), and 26B-A4B, which has a mixture of experts beside each perceptron. Against Gemma 3: norm
//! weights are plain factors; full layers have their own head size and KV heads, may take the raw keys as values, and rotate a share of
//! each head; values are normed; scores are not scaled; each layer's output is multiplied by a learned scalar; the last layers may attend
//! to an earlier layer's cache; logits are softly capped.
//!
//! The experts' shares are the softmax of the chosen logits, each times a factor of its expert. E2B and E4B have per-layer embeddings, and of
//! E2B the layers that share a cache have perceptrons of twice the width. Source: transformers `models/gemma4` and `models/gemma4_unified`,
//! version 5.23.0; llama.cpp's `gemma4`.

use super::experts;
use super::rotary::{gguf_scaling, rope_scaling};
use super::{Family, expect_activation, llama, refuse_bias};
use crate::config::{Fields, layer_count, sliding_layers};
use crate::decoder::{
    Activation, Attention, Decoder, ExpertTensors, Experts, Gated, Layer, Mlp, Naming, QkNorm, Rope, RopeScaling,
};
use crate::error::{ModelError, Result};
use crate::gguf::Metadata;

pub(super) const FAMILY: Family = Family {
    name: NAME,
    examples: &["google/gemma-4-31b-it", "google/gemma-4-26b-a4b-it", "google/gemma-4-e2b-it"],
    model_types: &["gemma4_text", "gemma4_unified_text", "gemma4", "gemma4_unified"],
    architecture: "gemma4",
    head_max: 512,
    from_config,
    from_gguf,
};

const NAME: &str = "Gemma 4";
const FULL_FRACTION: f64 = 0.25;

fn from_config(fields: &Fields) -> Result<Decoder> {
    refuse_bias(fields, NAME)?;
    refuse_features(fields)?;
    expect_activation(fields, NAME, "hidden_activation", &["gelu_pytorch_tanh"])?;
    let hidden = fields.u32_or("hidden_size", 2304)?;
    let count = layer_count(fields, "num_hidden_layers")?;
    let mut sliding = sliding_layers(fields, count)?;
    if let Some(last) = sliding.last_mut() {
        *last = false; // transformers forces it
    }
    let unified = is_unified(fields)?;
    let heads = fields.u32_or("num_attention_heads", 8)?;
    let keys_as_values = fields.bool_or("attention_k_eq_v", false)?;
    let width = fields.u32_or("intermediate_size", 9216)?;
    let window = fields.u32_or("sliding_window", if unified { 1024 } else { 512 })?;
    let mut attentions = Vec::with_capacity(sliding.len());
    for (&sliding, (head_dim, kv_heads)) in sliding.iter().zip(shapes(fields, &sliding, keys_as_values)?) {
        let rope = rope(fields, if sliding { "sliding_attention" } else { "full_attention" }, head_dim)?;
        attentions.push(Attention {
            window: sliding.then_some(window),
            keys_as_values: keys_as_values && !sliding,
            ..attention(heads, kv_heads, rope)
        });
    }
    let shared = fields.u32_or("num_kv_shared_layers", 0)?;
    share_caches(&mut attentions, shared).map_err(|why| fields.bad("num_kv_shared_layers", why))?;
    let double = fields.bool_or("use_double_wide_mlp", false)?;
    let layers = attentions.into_iter().map(|attention| {
        let wide = double && attention.cache_of.is_some();
        layer(attention, if wide { width.saturating_mul(2) } else { width })
    });
    let vocab = fields.u32_or("vocab_size", 262_144)?;
    let decoder = Decoder {
        vocab,
        per_layer: per_layer(fields, vocab)?,
        hidden,
        context: fields.u32_or("max_position_embeddings", if unified { 262_144 } else { 131_072 })?,
        eps: fields.f64_or("rms_norm_eps", 1e-6)?,
        embed_scale: f64::from(hidden).sqrt(),
        final_softcap: fields.f64_or("final_logit_softcapping", 0.0)?,
        tied: true,
        layers: layers.collect(),
        ..Decoder::neutral(NAME, Naming::HuggingFace)
    };
    match fields.bool_or("enable_moe_block", false)? {
        true => Ok(beside(decoder, &mixture(fields)?, |_| true)),
        false => Ok(decoder),
    }
}

fn mixture(fields: &Fields) -> Result<Experts> {
    let keys = experts::Keys { count: "num_experts", chosen: "top_k_experts", width: "moe_intermediate_size" };
    experts::read_config(fields, keys, true, ExpertTensors::Gemma)
}

/// The decoder with this mixture beside the perceptrons of the layers for which `sparse` is true.
fn beside(mut decoder: Decoder, mixture: &Experts, sparse: impl Fn(usize) -> bool) -> Decoder {
    let mixture = Experts { activation: Activation::GeluTanh, ..mixture.clone() };
    for (_, layer) in decoder.layers.iter_mut().enumerate().filter(|(i, _)| sparse(*i)) {
        if let Mlp::Gated(gated) = &layer.mlp {
            layer.mlp = Mlp::Both(gated.clone(), mixture.clone());
        }
    }
    decoder
}

/// Whether the configuration is of 12B's kind, whose defaults differ from those of the other sizes.
fn is_unified(fields: &Fields) -> Result<bool> {
    Ok(fields.str_opt("model_type")?.is_some_and(|t| t.starts_with("gemma4_unified")))
}

/// Head size and KV heads of each layer. Published files give those of full layers (`global_head_dim`,
/// `num_global_key_value_heads`); files that transformers saved again list the values that each layer overrides.
fn shapes(fields: &Fields, sliding: &[bool], keys_as_values: bool) -> Result<Vec<(u32, u32)>> {
    let local = (fields.u32_or("head_dim", 256)?, fields.u32_or("num_key_value_heads", 4)?);
    let Some(overrides) = fields.object("per_layer_config") else {
        let kv_heads = if keys_as_values { fields.u32_or("num_global_key_value_heads", local.1)? } else { local.1 };
        let full = (fields.u32_or("global_head_dim", 512)?, kv_heads);
        return Ok(sliding.iter().map(|s| if *s { local } else { full }).collect());
    };
    let mut shapes = vec![local; sliding.len()];
    for index in overrides.keys() {
        let shape = index.parse::<usize>().ok().and_then(|i| shapes.get_mut(i));
        let shape = shape.ok_or_else(|| overrides.bad(index, "names no layer"))?;
        let layer = overrides.object(index).ok_or_else(|| overrides.bad(index, "is not an object"))?;
        if let Some(key) = layer.keys().find(|key| !["head_dim", "num_key_value_heads"].contains(key)) {
            return Err(ModelError::Feature { family: NAME, feature: format!("per_layer_config with {key}") });
        }
        *shape = (layer.u32_or("head_dim", local.0)?, layer.u32_or("num_key_value_heads", local.1)?);
    }
    Ok(shapes)
}

fn refuse_features(fields: &Fields) -> Result<()> {
    let refuse = |feature: &str| Err(ModelError::Feature { family: NAME, feature: feature.into() });
    // The mode "vision" changes attention between image tokens only.
    if fields.str_opt("use_bidirectional_attention")?.is_some_and(|mode| mode != "vision") {
        return refuse("use_bidirectional_attention");
    }
    Ok(())
}

/// Numbers of its own that each layer gets of a token, if it gets any. The second table must have a row for each token.
fn per_layer(fields: &Fields, vocab: u32) -> Result<Option<u32>> {
    const KEY: &str = "hidden_size_per_layer_input";
    // transformers' defaults: null is none, and so is a missing key of 12B's kind.
    let none = is_unified(fields)? || fields.keys().any(|key| key == KEY);
    let width = fields.u32_or(KEY, if none { 0 } else { 256 })?;
    if width == 0 {
        return Ok(None);
    }
    match fields.u32_or("vocab_size_per_layer_input", 262_144)? {
        rows if rows == vocab => Ok(Some(width)),
        rows => {
            let why = format!("is {rows}, and the vocabulary has {vocab} tokens");
            Err(fields.bad("vocab_size_per_layer_input", why))
        }
    }
}

fn rope(fields: &Fields, kind: &str, head_dim: u32) -> Result<Rope> {
    if let Some(p) = fields.object("rope_parameters").and_then(|p| p.object(kind)) {
        return Ok(Rope { scaling: rope_scaling(&p)?, ..Rope::plain(p.f64("rope_theta")?, head_dim) });
    }
    Ok(match kind {
        "full_attention" => {
            let scaling = RopeScaling::Proportional { fraction: FULL_FRACTION, factor: 1.0 };
            Rope { scaling, ..Rope::plain(1_000_000.0, head_dim) }
        }
        _ => Rope::plain(10_000.0, head_dim),
    })
}

fn from_gguf(metadata: &Metadata) -> Result<Decoder> {
    let hidden = metadata.u32("gemma4.embedding_length")?;
    let count = metadata.layers("gemma4.block_count")? as usize;
    let heads = metadata.u32("gemma4.attention.head_count")?;
    let sliding = metadata.bools("gemma4.attention.sliding_window_pattern", count)?;
    let kv_heads = metadata.u32_each("gemma4.attention.head_count_kv", count)?;
    let widths = metadata.u32_each("gemma4.feed_forward_length", count)?;
    let global_head_dim = metadata.u32("gemma4.attention.key_length")?;
    let head_dim = metadata.u32_or("gemma4.attention.key_length_swa", global_head_dim)?;
    let window = metadata.u32("gemma4.attention.sliding_window")?;
    let theta = metadata.f64_or("gemma4.rope.freq_base", 1_000_000.0)?;
    let local_theta = metadata.f64_or("gemma4.rope.freq_base_swa", 10_000.0)?;
    let local_rope = Rope::plain(local_theta, head_dim);
    let global_rope = Rope { scaling: gguf_scaling(metadata, "gemma4")?, ..Rope::plain(theta, global_head_dim) };
    let mut attentions: Vec<Attention> = (0..count)
        .map(|i| {
            let (window, rope) = if sliding[i] { (Some(window), &local_rope) } else { (None, &global_rope) };
            let keys_as_values = !metadata.has_tensor(&format!("blk.{i}.attn_v.weight"));
            Attention { window, keys_as_values, ..attention(heads, kv_heads[i], rope.clone()) }
        })
        .collect();
    let shared = metadata.u32_or("gemma4.attention.shared_kv_layers", 0)?;
    share_caches(&mut attentions, shared).map_err(|why| metadata.bad("gemma4.attention.shared_kv_layers", why))?;
    let layers = attentions.into_iter().zip(widths).enumerate().map(|(i, (attention, width))| Layer {
        scaled: metadata.has_tensor(&format!("blk.{i}.layer_output_scale.weight")),
        ..layer(attention, width)
    });
    let decoder = Decoder {
        vocab: metadata.vocabulary()?,
        per_layer: metadata.u32_opt("gemma4.embedding_length_per_layer_input")?.filter(|width| *width > 0),
        hidden,
        context: metadata.u32("gemma4.context_length")?,
        eps: metadata.eps("gemma4.attention.layer_norm_rms_epsilon")?,
        embed_scale: f64::from(hidden).sqrt(),
        final_softcap: metadata.f64_or("gemma4.final_logit_softcapping", 0.0)?,
        tied: true,
        layers: layers.collect(),
        ..Decoder::neutral(NAME, Naming::Gguf)
    };
    if metadata.u32_or("gemma4.expert_count", 0)? == 0 {
        return Ok(decoder);
    }
    let mixture = experts::read_gguf(metadata, FAMILY.architecture, true)?;
    Ok(beside(decoder, &mixture, |i| experts::routes(metadata, i)))
}

fn attention(heads: u32, kv_heads: u32, rope: Rope) -> Attention {
    Attention { scale: 1.0, qk_norm: QkNorm::Heads, v_norm: true, ..llama::attention(heads, kv_heads, rope) }
}

fn layer(attention: Attention, width: u32) -> Layer {
    let gated = Gated { activation: Activation::GeluTanh, ..llama::gated(width) };
    Layer { post_norms: true, scaled: true, ..llama::layer(attention, gated) }
}

/// The last `shared` layers attend to the cache of the last earlier layer of their kind.
fn share_caches(layers: &mut [Attention], shared: u32) -> std::result::Result<(), String> {
    let shared = shared as usize;
    if shared >= layers.len() {
        return if shared == 0 { Ok(()) } else { Err(format!("is {shared} of {} layers", layers.len())) };
    }
    let first = layers.len() - shared;
    let (own, sharing) = layers.split_at_mut(first);
    for layer in sharing {
        let source = own.iter().rposition(|l| l.window.is_some() == layer.window.is_some());
        layer.cache_of = Some(source.ok_or("leaves a kind of layer without a cache to share")?);
    }
    Ok(())
}
