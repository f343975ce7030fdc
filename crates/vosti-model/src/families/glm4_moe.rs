//! GLM 4.5 to 4.7 and Air: Llama's layer with biases of queries, keys and values, of which the first half of each head rotates; in all
//! layers but the first few a mixture of experts beside a perceptron that every row has; and but for Air norms of query and key heads.
//!
//! A share is the sigmoid of the router's logit, and a bias of each expert joins it for the choice alone. Vosti defines that the shared
//! perceptron is added after the experts. A layer that predicts a second token is left out. Source: transformers `models/glm4_moe`; llama.cpp's `glm4moe`.

use super::experts::{self, Keys};
use super::{Family, llama};
use crate::config::Fields;
use crate::decoder::{Decoder, ExpertTensors, Experts, Naming, QkNorm};
use crate::error::Result;
use crate::gguf::Metadata;

pub(super) const FAMILY: Family = Family {
    name: "GLM 4.5",
    model_types: &["glm4_moe"],
    architecture: "glm4moe",
    examples: &["zai-org/GLM-4.5-Air", "zai-org/GLM-4.7"],
    head_max: super::HEAD_MAX,
    from_config,
    from_gguf,
};

fn from_config(fields: &Fields) -> Result<Decoder> {
    let mut decoder = llama::read_config(fields, FAMILY.name, 10_000.0)?;
    let parameters = fields.object("rope_parameters").unwrap_or(*fields);
    let share = parameters.f64_or("partial_rotary_factor", fields.f64_or("partial_rotary_factor", 0.5)?)?;
    let biased = fields.bool_or("attention_bias", false)?;
    let qk_norm = norms(fields.bool_or("use_qk_norm", false)?);
    for attention in decoder.attentions_mut() {
        attention.qkv_bias = biased;
        attention.qk_norm = qk_norm;
        attention.rope.rotary = (f64::from(attention.head_dim) * share.clamp(0.0, 1.0)) as u32;
    }
    let keys = Keys { count: "n_routed_experts", width: "moe_intermediate_size", ..Keys::USUAL };
    let mixture = experts::read_config(fields, keys, fields.bool_or("norm_topk_prob", true)?, ExpertTensors::Each)?;
    let scale = fields.f64_or("routed_scaling_factor", 1.0)?;
    let mixture = mixed(mixture, scale, fields.u32_or("n_shared_experts", 1)?);
    let first = fields.u32_or("first_k_dense_replace", 1)? as usize;
    Ok(experts::put(decoder, &mixture, |i| i >= first))
}

fn from_gguf(metadata: &Metadata) -> Result<Decoder> {
    let key = |name: &str| format!("{}.{name}", FAMILY.architecture);
    experts::expect_sigmoid(metadata, FAMILY.name, FAMILY.architecture)?;
    let mut decoder = llama::read_gguf(metadata, FAMILY.name, FAMILY.architecture, 10_000.0)?;
    decoder.naming = Naming::GgufPostAttention;
    let more = metadata.u32_or(&key("nextn_predict_layers"), 0)? as usize;
    decoder.layers.truncate(decoder.layers.len().saturating_sub(more).max(1));
    let biased = metadata.has_tensor("blk.0.attn_q.bias");
    let qk_norm = norms(metadata.has_tensor("blk.0.attn_q_norm.weight"));
    for attention in decoder.attentions_mut() {
        attention.qkv_bias = biased;
        attention.qk_norm = qk_norm;
        attention.rope.rotary = metadata.u32_or(&key("rope.dimension_count"), attention.head_dim / 2)?;
    }
    let normed = metadata.bool_or(&key("expert_weights_norm"), false)?;
    let mixture = experts::read_gguf(metadata, FAMILY.architecture, normed)?;
    let scale = metadata.f64_or(&key("expert_weights_scale"), 1.0)?;
    let mixture = mixed(mixture, scale, metadata.u32_or(&key("expert_shared_count"), 0)?);
    Ok(experts::put_stored(decoder, metadata, &mixture))
}

fn norms(of_heads: bool) -> QkNorm {
    if of_heads { QkNorm::Heads } else { QkNorm::None }
}

/// GLM's router, and so many experts' widths in one perceptron beside the others.
fn mixed(mixture: Experts, scale: f64, shared: u32) -> Experts {
    let mlp = llama::gated(mixture.width.saturating_mul(shared));
    experts::sigmoids(mixture, scale, Some(mlp))
}
