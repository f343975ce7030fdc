//! Qwen 3.5 and 3.6, dense and as mixtures of experts: most layers have a gated delta rule; the others have attention whose results are gated, with an RMS norm
//! on each query and key head, and a part of each head rotates.
//!
//! Source: transformers `models/qwen3_5`; llama.cpp's `qwen35`. The vision part of the files is not read. The rotary embedding has three
//! numbers for a position, which are equal in text, so it is the plain one. Norm weights are stored as `w` for a factor of `1 + w`,
//! except for the delta rule's own norm; GGUF files store the factor. What goes into the delta rule is in FP32 from the convolution on,
//! and its sums go page by page: that is the definition here. A mixture's shared expert has a gate for each row; it multiplies the units
//! here, before the product that follows them, and not that product's result.

use super::experts::{self, Keys};
use super::{Family, even, llama, refuse_bias};
use crate::config::{Fields, layers_of_kind};
use crate::decoder::{Decoder, DeltaRule, DeltaTensors, ExpertTensors, Experts, Mixer, Naming, QkNorm, Shared};
use crate::error::{ModelError, Result};
use crate::gguf::Metadata;

pub(super) const FAMILY: Family = Family {
    name: "Qwen 3.5",
    model_types: &["qwen3_5_text", "qwen3_5"],
    architecture: "qwen35",
    examples: &["Qwen/Qwen3.5-4B", "Qwen/Qwen3.5-9B", "Qwen/Qwen3.5-27B"],
    head_max: super::HEAD_MAX,
    from_config: |fields| read_config(fields, FAMILY.name, DeltaTensors::Apart),
    from_gguf: |metadata| read_gguf(metadata, &FAMILY, DeltaTensors::Turned),
};

pub(super) const MIXTURE: Family = Family {
    name: "Qwen 3.5 MoE",
    model_types: &["qwen3_5_moe_text", "qwen3_5_moe"],
    architecture: "qwen35moe",
    examples: &["Qwen/Qwen3.5-35B-A3B", "Qwen/Qwen3.6-35B-A3B"],
    head_max: super::HEAD_MAX,
    from_config: mixture_from_config,
    from_gguf: |metadata| read_mixture(metadata, &MIXTURE, DeltaTensors::Turned),
};

/// A layer of this many has attention, where no list says which.
const INTERVAL: u32 = 4;

/// Reads a `config.json` of a model without experts; `tensors` is how the files have the projections.
pub(super) fn read_config(fields: &Fields, family: &'static str, tensors: DeltaTensors) -> Result<Decoder> {
    refuse_bias(fields, family)?;
    if !fields.bool_or("attn_output_gate", true)? {
        return Err(ModelError::Feature { family, feature: "attn_output_gate = false".into() });
    }
    let head_dim = fields.u32("head_dim")?;
    let share = fields.f64_or("partial_rotary_factor", 0.25)?;
    let share = match fields.object("rope_parameters") {
        Some(p) => p.f64_or("partial_rotary_factor", share)?,
        None => share,
    };
    let rotary = (f64::from(head_dim) * share.clamp(0.0, 2.0)) as u32;
    let (size, values) = (fields.u32_or("linear_key_head_dim", 128)?, fields.u32_or("linear_value_head_dim", 128)?);
    if size != values {
        let why = format!("is {values}, and there are kernels for heads of linear_key_head_dim, {size}");
        return Err(fields.bad("linear_value_head_dim", why));
    }
    let heads = fields.u32_or("linear_num_value_heads", 32)?;
    let key_heads = fields.u32_or("linear_num_key_heads", 16)?;
    let rule = DeltaRule {
        key_heads,
        group: even(heads, key_heads).ok_or_else(|| fields.bad("linear_num_value_heads", uneven(heads, key_heads)))?,
        head_dim: size,
        taps: fields.u32_or("linear_conv_kernel_dim", 4)?,
        tensors,
    };
    let mut decoder = llama::read_config(fields, family, 10_000.0)?;
    decoder.norm_offset = 1.0;
    let count = decoder.layers.len();
    let kinds = match layers_of_kind(fields, count, "linear_attention")? {
        Some(kinds) => kinds,
        None => every(fields.u32_or("full_attention_interval", INTERVAL)?, count)
            .ok_or_else(|| fields.bad("full_attention_interval", "is 0, not a positive number"))?,
    };
    Ok(mixed(decoder, rotary, rule, &kinds))
}

fn mixture_from_config(fields: &Fields) -> Result<Decoder> {
    let keys = Keys::USUAL;
    let mixture = experts::read_config(fields, keys, true, ExpertTensors::Fused)?;
    let width = fields.u32_or("shared_expert_intermediate_size", 512)?;
    let mut decoder = read_config(fields, MIXTURE.name, DeltaTensors::Apart)?;
    decoder.naming = Naming::SharedExpert;
    Ok(experts::put(decoder, &with_shared(mixture, width), |_| true))
}

/// Reads a GGUF file of a model with experts.
pub(super) fn read_mixture(metadata: &Metadata, family: &Family, tensors: DeltaTensors) -> Result<Decoder> {
    let mixture = experts::read_gguf(metadata, family.architecture, true)?;
    let key = format!("{}.expert_shared_feed_forward_length", family.architecture);
    let width = metadata.u32_or(&key, mixture.width)?;
    let decoder = read_gguf(metadata, family, tensors)?;
    Ok(experts::put_stored(decoder, metadata, &with_shared(mixture, width)))
}

/// The mixture beside a gated perceptron of this width.
pub(super) fn with_shared(mixture: Experts, width: u32) -> Experts {
    Experts { shared: Some(Shared { mlp: llama::gated(width), gated: true }), ..mixture }
}

fn read_gguf(metadata: &Metadata, family: &Family, tensors: DeltaTensors) -> Result<Decoder> {
    let key = |name: &str| format!("{}.{name}", family.architecture);
    let mut decoder = llama::read_gguf(metadata, family.name, family.architecture, 10_000_000.0)?;
    decoder.naming = Naming::GgufPostAttention;
    let stored = decoder.layers.len();
    // The last blocks guess further tokens and are no layers.
    let guessing = metadata.u32_or(&key("nextn_predict_layers"), 0)? as usize;
    decoder.layers.truncate(stored.saturating_sub(guessing));
    let kinds = match metadata.get(&key("attention.recurrent_layers")) {
        Some(_) => metadata.bools(&key("attention.recurrent_layers"), stored)?,
        None => every(metadata.u32_or(&key("full_attention_interval"), INTERVAL)?, stored)
            .ok_or_else(|| metadata.bad(&key("full_attention_interval"), "is 0, not a positive number"))?,
    };
    let (heads, key_heads) = (metadata.u32(&key("ssm.time_step_rank"))?, metadata.u32(&key("ssm.group_count"))?);
    let size = metadata.u32(&key("ssm.state_size"))?;
    let inner = metadata.u32(&key("ssm.inner_size"))?;
    if heads.checked_mul(size) != Some(inner) {
        let why = format!("is {inner}, and there are kernels for {heads} heads of ssm.state_size, {size}");
        return Err(metadata.bad(&key("ssm.inner_size"), why));
    }
    let rule = DeltaRule {
        key_heads,
        group: even(heads, key_heads)
            .ok_or_else(|| metadata.bad(&key("ssm.time_step_rank"), uneven(heads, key_heads)))?,
        head_dim: size,
        taps: metadata.u32(&key("ssm.conv_kernel"))?,
        tensors,
    };
    let rotary = metadata.u32(&key("rope.dimension_count"))?;
    Ok(mixed(decoder, rotary, rule, &kinds))
}

fn uneven(heads: u32, key_heads: u32) -> String {
    format!("is {heads}, not a multiple of {key_heads} key heads")
}

/// Which layers have a delta rule, if every `interval`-th one has attention. `None` if the interval is 0.
fn every(interval: u32, layers: usize) -> Option<Vec<bool>> {
    (interval > 0).then(|| (1..=layers).map(|i| !i.is_multiple_of(interval as usize)).collect())
}

/// The decoder with a delta rule in these layers and gated attention in the others.
fn mixed(mut decoder: Decoder, rotary: u32, rule: DeltaRule, kinds: &[bool]) -> Decoder {
    for attention in decoder.attentions_mut() {
        attention.qk_norm = QkNorm::Heads;
        attention.output_gate = true;
        attention.rope.rotary = rotary;
    }
    for (layer, _) in decoder.layers.iter_mut().zip(kinds).filter(|(_, recurs)| **recurs) {
        layer.mixer = Mixer::DeltaRule(rule);
    }
    decoder
}
