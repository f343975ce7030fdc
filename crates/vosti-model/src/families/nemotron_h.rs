//! Nemotron H and Nemotron 3 Nano: each layer has one part, which is a Mamba 2 layer, attention without rotation, a perceptron, or a
//! mixture of experts beside a perceptron. Perceptrons and experts have no gate: their units are squares of positive numbers.
//!
//! Source: transformers `models/nemotron_h`; llama.cpp's `nemotron_h` and `nemotron_h_moe`. Shares are GLM's: a sigmoid, and a bias that
//! joins it for the choice alone. Vosti defines that units are rounded before they are squared and after, as a product and an activation
//! would be, and that the shared perceptron is added after the experts. Sums of states are those of Granite 4, and
//! no step is bounded: transformers bounds them by `time_step_min` from below, llama.cpp and `mamba_ssm` do not. Layers that predict a
//! second token are left out.

use super::experts::{self, Keys};
use super::{Family, expect_activation, llama, mamba, refuse_bias, refuse_flag};
use crate::config::Fields;
use crate::decoder::{
    Activation, Attention, Decoder, ExpertTensors, Experts, Gated, Layer, Mamba, Mixer, Mlp, Naming, Rope, Score,
};
use crate::error::{ModelError, Result};
use crate::gguf::Metadata;

pub(super) const FAMILY: Family = Family {
    name: "Nemotron H",
    model_types: &["nemotron_h"],
    architecture: "nemotron_h",
    examples: &[
        "nvidia/Nemotron-H-8B-Base-8K",
        "nvidia/NVIDIA-Nemotron-Nano-9B-v2",
        "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    ],
    head_max: super::HEAD_MAX,
    from_config,
    from_gguf,
};

/// In GGUF files the models with experts have an architecture of their own.
pub(super) const MIXTURE: Family = Family {
    name: "Nemotron 3",
    model_types: &[],
    architecture: "nemotron_h_moe",
    examples: &["nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"],
    from_gguf: mixture_from_gguf,
    ..FAMILY
};

const MAMBA: mamba::Keys = mamba::Keys {
    heads: ("mamba_num_heads", 128),
    size: "mamba_head_dim",
    groups: ("n_groups", 8),
    state: ("ssm_state_size", 128),
    expand: ("expand", 2),
    taps: ("conv_kernel", 4),
    bias: "use_bias",
    conv_bias: "use_conv_bias",
};

/// Names that transformers still reads instead of these. No published file has them.
const OLD_NAMES: [(&str, &str); 4] = [
    ("mamba_n_groups", "n_groups"),
    ("mamba_d_conv", "conv_kernel"),
    ("mamba_conv_bias", "use_conv_bias"),
    ("mamba_dt_limit", "time_step_limit"),
];

/// The part of a layer.
#[derive(Clone, Copy)]
enum Part {
    Mamba,
    Attention,
    Mlp,
    Experts,
}

/// What layers with each part have.
struct Parts {
    mamba: Mamba,
    attention: Attention,
    experts: Option<Experts>,
}

impl Parts {
    /// A layer of this part; `width` is a perceptron's.
    fn layer(&self, part: Part, width: u32) -> Layer {
        let mixer = match part {
            Part::Mamba => Mixer::Mamba(self.mamba),
            Part::Attention => Mixer::Attention(self.attention.clone()),
            Part::Mlp | Part::Experts => Mixer::None,
        };
        let mlp = match (part, &self.experts) {
            (Part::Experts, Some(experts)) => Mlp::Experts(experts.clone()),
            (Part::Mlp | Part::Experts, _) => Mlp::Gated(plain(width)),
            _ => Mlp::None,
        };
        Layer { mixer, mlp, ..llama::layer(self.attention.clone(), plain(width)) }
    }
}

/// A perceptron without a gate.
fn plain(width: u32) -> Gated {
    Gated { activation: Activation::ReluSquared, ..llama::gated(width) }
}

fn refuse<T>(feature: impl Into<String>) -> Result<T> {
    Err(ModelError::Feature { family: FAMILY.name, feature: feature.into() })
}

fn from_config(fields: &Fields) -> Result<Decoder> {
    if let Some((old, new)) = OLD_NAMES.iter().find(|(old, _)| fields.get(old).is_some()) {
        return Err(fields.bad(old, format!("is an old name of `{new}`")));
    }
    refuse_bias(fields, FAMILY.name)?;
    refuse_flag(fields, FAMILY.name, "mamba_proj_bias")?;
    expect_activation(fields, FAMILY.name, "mlp_hidden_act", &["relu2"])?;
    expect_activation(fields, FAMILY.name, "mamba_hidden_act", &["silu"])?;
    let parts = layers(fields)?;
    let head_dim = fields.u32_or("head_dim", fields.u32_or("attention_head_dim", 128)?)?;
    let (heads, kv_heads) = (fields.u32_or("num_attention_heads", 32)?, fields.u32_or("num_key_value_heads", 8)?);
    let size = fields.u32_or(MAMBA.size, 64)?;
    let has_experts = parts.iter().any(|part| matches!(part, Part::Experts));
    let of = Parts {
        mamba: mamba::read_sized(fields, FAMILY.name, &MAMBA, size)?,
        attention: llama::attention(heads, kv_heads, Rope::still(head_dim)),
        experts: has_experts.then(|| configured(fields)).transpose()?,
    };
    let width = fields.u32_or("intermediate_size", 21504)?;
    Ok(Decoder {
        vocab: fields.u32("vocab_size")?,
        hidden: fields.u32("hidden_size")?,
        context: fields.u32_or("max_position_embeddings", 4096)?,
        eps: fields.f64_or("layer_norm_epsilon", 1e-5)?,
        layers: parts.iter().map(|part| of.layer(*part, width)).collect(),
        ..Decoder::neutral(FAMILY.name, Naming::NemotronH)
    })
}

/// The mixture of a `config.json`.
fn configured(fields: &Fields) -> Result<Experts> {
    if fields.u32_opt("moe_latent_size")?.is_some() {
        return refuse("experts of another width than the residual stream's (moe_latent_size)");
    }
    let keys = Keys { count: "n_routed_experts", ..Keys::USUAL };
    let normed = fields.bool_or("norm_topk_prob", true)?;
    let mixture = experts::read_config(fields, keys, normed, ExpertTensors::Each)?;
    let shared = fields.u32_or("moe_shared_expert_intermediate_size", 7688)?;
    Ok(mixed(mixture, fields.f64_or("routed_scaling_factor", 1.0)?, shared))
}

/// The router's function, and the perceptron beside the experts.
fn mixed(mixture: Experts, scale: f64, shared: u32) -> Experts {
    experts::sigmoids(Experts { activation: Activation::ReluSquared, ..mixture }, scale, Some(plain(shared)))
}

/// The part of each layer: a letter in published files, a word in those of transformers.
fn layers(fields: &Fields) -> Result<Vec<Part>> {
    let key = ["layers_block_type", "layer_types"].into_iter().find(|key| fields.get(key).is_some());
    let kinds: Vec<&str> = match (key, fields.str_opt("hybrid_override_pattern")?) {
        (Some(key), _) => fields.strings_opt(key)?.unwrap_or_default(),
        (None, Some(pattern)) => pattern.split("").filter(|letter| !letter.is_empty()).collect(),
        (None, None) => return Err(fields.bad("layers_block_type", "is missing")),
    };
    if kinds.is_empty() || kinds.len() > 1024 {
        return Err(fields.bad("layers_block_type", format!("lists {} layers, not between 1 and 1024", kinds.len())));
    }
    let part = |kind: &str| match kind {
        "M" | "mamba" | "linear_attention" => Ok(Part::Mamba),
        "*" | "attention" | "full_attention" => Ok(Part::Attention),
        "-" | "mlp" => Ok(Part::Mlp),
        "E" | "moe" => Ok(Part::Experts),
        other => refuse(format!("a layer of the kind `{other}`")),
    };
    kinds.into_iter().map(part).collect()
}

fn from_gguf(metadata: &Metadata) -> Result<Decoder> {
    stored(metadata, &FAMILY, None)
}

fn mixture_from_gguf(metadata: &Metadata) -> Result<Decoder> {
    let key = |name: &str| format!("{}.{name}", MIXTURE.architecture);
    if metadata.u32_opt(&key("moe_latent_size"))?.is_some_and(|size| size > 0) {
        return refuse("experts of another width than the residual stream's (moe_latent_size)");
    }
    // Files that do not say the width of an expert have that of the perceptrons, which is a list here.
    let count = metadata.layers(&key("block_count"))? as usize;
    let widths = metadata.u32_each(&key("feed_forward_length"), count)?;
    let width = widths.into_iter().max().unwrap_or(0);
    let mixture = Experts {
        count: metadata.u32(&key("expert_count"))?,
        chosen: metadata.u32(&key("expert_used_count"))?,
        width: metadata.u32_or(&key("expert_feed_forward_length"), width)?,
        activation: Activation::ReluSquared,
        score: Score::Sigmoid,
        groups: experts::stored_groups(metadata, MIXTURE.architecture)?,
        normed: metadata.bool_or(&key("expert_weights_norm"), false)?,
        scale: 1.0,
        shared: None,
        tensors: ExpertTensors::Apart,
    };
    let scale = metadata.f64_or(&key("expert_weights_scale"), 1.0)?;
    let shared = metadata.u32_or(&key("expert_shared_feed_forward_length"), 0)?;
    stored(metadata, &MIXTURE, Some(mixed(mixture, scale, shared)))
}

/// Reads what the architectures share. A layer without KV heads and without a perceptron's width has a state.
fn stored(metadata: &Metadata, family: &Family, experts: Option<Experts>) -> Result<Decoder> {
    let key = |name: &str| format!("{}.{name}", family.architecture);
    let all = metadata.layers(&key("block_count"))? as usize;
    let kv_heads = metadata.u32_each(&key("attention.head_count_kv"), all)?;
    let widths = metadata.u32_each(&key("feed_forward_length"), all)?;
    let count = all.saturating_sub(metadata.u32_or(&key("nextn_predict_layers"), 0)? as usize).max(1);
    let hidden = metadata.u32(&key("embedding_length"))?;
    let heads = metadata.u32(&key("attention.head_count"))?;
    let head_dim = metadata.u32_or(&key("attention.key_length"), hidden.checked_div(heads).unwrap_or(0))?;
    let mamba = mamba::read_gguf(metadata, family.architecture)?;
    let of = |kv_heads: u32| Parts {
        mamba,
        attention: llama::attention(heads, kv_heads, Rope::still(head_dim)),
        experts: experts.clone(),
    };
    let layer = |i: usize| {
        let part = match (kv_heads[i], widths[i]) {
            (0, 0) => Part::Mamba,
            (_, 0) => Part::Attention,
            _ if experts::routes(metadata, i) => Part::Experts,
            _ => Part::Mlp,
        };
        of(kv_heads[i]).layer(part, widths[i])
    };
    Ok(Decoder {
        vocab: metadata.vocabulary()?,
        hidden,
        context: metadata.u32(&key("context_length"))?,
        eps: metadata.eps(&key("attention.layer_norm_rms_epsilon"))?,
        permuted: true,
        layers: (0..count).map(layer).collect(),
        ..Decoder::neutral(family.name, Naming::GgufNemotronH)
    })
}
