//! Ling 2.0 and Ring 2.0: GLM 4.5's layer with norms of query and key heads, one tensor for queries, keys and values, and a router that
//! chooses groups of experts before experts.
//!
//! Vosti defines that experts outside of the chosen groups count as minus infinity, as in llama.cpp and vLLM. Layers that predict further
//! tokens are left out. Source: the published `modeling_bailing_moe_v2.py` as llama.cpp's `bailingmoe2` and vLLM's `bailing_moe` read it.

use super::experts::{self, Keys};
use super::{Family, llama, refuse_flag};
use crate::config::Fields;
use crate::decoder::{Decoder, ExpertTensors, Experts, Naming, QkNorm};
use crate::error::{ModelError, Result};
use crate::gguf::Metadata;

pub(super) const FAMILY: Family = Family {
    name: "Ling 2.0",
    model_types: &["bailing_moe", "bailing_moe_v2"],
    architecture: "bailingmoe2",
    examples: &["inclusionAI/Ling-mini-2.0", "inclusionAI/Ring-mini-2.0", "inclusionAI/Ling-flash-2.0"],
    head_max: super::HEAD_MAX,
    from_config,
    from_gguf,
};

const THETA: f64 = 600_000.0;

fn refuse<T>(feature: impl Into<String>) -> Result<T> {
    Err(ModelError::Feature { family: FAMILY.name, feature: feature.into() })
}

fn from_config(fields: &Fields) -> Result<Decoder> {
    for flag in ["use_bias", "use_qkv_bias", "norm_head", "use_sliding_window"] {
        refuse_flag(fields, FAMILY.name, flag)?;
    }
    if fields.str_opt("score_function")? != Some("sigmoid") {
        return refuse("a router whose scores are no sigmoid (score_function), as of Ling 1");
    }
    for key in ["use_qk_norm", "moe_router_enable_expert_bias"] {
        if !fields.bool_or(key, true)? {
            return refuse(format!("{key} = false"));
        }
    }
    let mut decoder = Decoder { naming: Naming::Ling, ..llama::read_config(fields, FAMILY.name, THETA)? };
    let parameters = fields.object("rope_parameters").unwrap_or(*fields);
    let share = parameters.f64_or("partial_rotary_factor", fields.f64_or("partial_rotary_factor", 0.5)?)?;
    change(&mut decoder, |head_dim| (f64::from(head_dim) * share.clamp(0.0, 1.0)) as u32);
    let mixture =
        experts::read_config(fields, Keys::USUAL, fields.bool_or("norm_topk_prob", true)?, ExpertTensors::Each)?;
    let width = fields.u32_or("moe_shared_expert_intermediate_size", mixture.width)?;
    let shared = width.saturating_mul(fields.u32_or("num_shared_experts", 0)?);
    let mixture = mixed(mixture, fields.f64_or("routed_scaling_factor", 1.0)?, shared);
    let first = fields.u32_or("first_k_dense_replace", 0)? as usize;
    Ok(experts::put(decoder, &mixture, |i| i >= first))
}

fn from_gguf(metadata: &Metadata) -> Result<Decoder> {
    let key = |name: &str| format!("{}.{name}", FAMILY.architecture);
    experts::expect_sigmoid(metadata, FAMILY.name, FAMILY.architecture)?;
    let mut decoder = llama::read_gguf(metadata, FAMILY.name, FAMILY.architecture, THETA)?;
    let more = metadata.u32_or(&key("nextn_predict_layers"), 0)? as usize;
    decoder.layers.truncate(decoder.layers.len().saturating_sub(more).max(1));
    let rotary = metadata.u32_opt(&key("rope.dimension_count"))?;
    change(&mut decoder, |head_dim| rotary.unwrap_or(head_dim));
    let normed = metadata.bool_or(&key("expert_weights_norm"), false)?;
    let mixture = experts::read_gguf(metadata, FAMILY.architecture, normed)?;
    // A file gives the width of one, and their number.
    let width = metadata.u32_or(&key("expert_shared_feed_forward_length"), mixture.width)?;
    let shared = width.saturating_mul(metadata.u32_or(&key("expert_shared_count"), 0)?);
    let mixture = mixed(mixture, metadata.f64_or(&key("expert_weights_scale"), 1.0)?, shared);
    Ok(experts::put_stored(decoder, metadata, &mixture))
}

/// Llama's attention as Ling has it; `rotary` numbers of a head of this size rotate.
fn change(decoder: &mut Decoder, rotary: impl Fn(u32) -> u32) {
    for attention in decoder.attentions_mut() {
        attention.fused_qkv = true;
        attention.qk_norm = QkNorm::Heads;
        attention.rope.rotary = rotary(attention.head_dim);
    }
}

fn mixed(mixture: Experts, scale: f64, shared: u32) -> Experts {
    experts::sigmoids(mixture, scale, Some(llama::gated(shared)))
}
