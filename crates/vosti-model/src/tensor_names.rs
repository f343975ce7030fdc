//! Names of a decoder's tensors in Hugging Face checkpoints and in GGUF files.

use crate::decoder::{ExpertTensors, Naming};

/// The role of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Embed,
    FinalNorm,
    Head,
    AttentionNorm,
    /// Queries, keys and values in one tensor, stacked by rows.
    Qkv,
    Query,
    Key,
    Value,
    QueryBias,
    KeyBias,
    ValueBias,
    OutputBias,
    /// A score for each query head.
    Sinks,
    QueryNorm,
    KeyNorm,
    Output,
    PostAttentionNorm,
    MlpNorm,
    /// Gate and up in one tensor, stacked by rows.
    GateUp,
    Gate,
    Up,
    Down,
    PostMlpNorm,
    /// Of a perceptron and a mixture beside each other: the norms of the mixture's input, and of the two outputs.
    MixtureNorm,
    PostGatedNorm,
    PostMixtureNorm,
    LayerScalar,
    /// Per-layer embeddings: the second table, the projection of the first embedding and its norm.
    PerLayerTable,
    PerLayerModel,
    PerLayerModelNorm,
    /// The same in a layer: the gate, the projection of its result and its norm.
    PerLayerGate,
    PerLayerProjection,
    PostPerLayerNorm,
    /// Gate of the input, gate of the output and input of a short convolution, stacked by rows.
    ConvIn,
    /// The convolution's weights: a row for each channel, oldest input first.
    ConvTaps,
    ConvOut,
    /// Queries, keys and values of a gated delta rule, stacked by rows.
    DeltaQkv,
    /// The gate of its results.
    DeltaGate,
    /// Queries, keys, values and gates of a gated delta rule, key head by key head.
    DeltaQkvz,
    /// Its strengths, before the sigmoid.
    DeltaStrength,
    /// Its decays, before the softplus.
    DeltaDecay,
    /// Both, key head by key head.
    DeltaPairs,
    /// Added to the decays.
    DeltaBias,
    /// The factors of decays: logarithms of their sizes in Hugging Face files, the factors in GGUF files.
    DeltaRates,
    /// The weights of its convolution.
    DeltaTaps,
    DeltaNorm,
    DeltaOut,
    /// Gate, values, keys, queries and steps of a Mamba 2 layer, stacked by rows.
    MambaIn,
    /// The weights of its convolution, and what is added to its sums.
    MambaTaps,
    MambaTapsBias,
    /// Added to the steps before the softplus.
    MambaBias,
    /// The factors of decays, as of a delta rule.
    MambaRates,
    /// What each head's values are multiplied by and added to its results.
    MambaSkip,
    MambaNorm,
    MambaOut,
    /// Of the perceptron beside a mixture of experts.
    SharedGate,
    SharedUp,
    SharedDown,
    /// The vector whose product decides how much of that perceptron a row has.
    SharedShare,
}

/// The name of a tensor in the files. `post_norms`: in Hugging Face checkpoints the norm named
/// `post_attention_layernorm` precedes the perceptron, unless the family has both.
pub(crate) fn tensor_name(naming: Naming, slot: Slot, layer: usize, post_norms: bool) -> String {
    match naming {
        Naming::HuggingFace => hugging_face(slot, layer, post_norms),
        Naming::GraniteHybrid => match slot {
            Slot::GateUp => format!("layers.{layer}.shared_mlp.input_linear.weight"),
            Slot::Down | Slot::SharedDown => format!("layers.{layer}.shared_mlp.output_linear.weight"),
            _ => hugging_face(slot, layer, post_norms),
        },
        Naming::Lfm2 => lfm2(slot, layer),
        Naming::Ling => ling(slot, layer),
        Naming::SharedExpert => match slot {
            Slot::SharedGate => format!("layers.{layer}.mlp.shared_expert.gate_proj.weight"),
            Slot::SharedUp => format!("layers.{layer}.mlp.shared_expert.up_proj.weight"),
            Slot::SharedDown => format!("layers.{layer}.mlp.shared_expert.down_proj.weight"),
            _ => hugging_face(slot, layer, post_norms),
        },
        Naming::Mamba2 => match slot {
            Slot::Embed => "embeddings.weight".into(),
            Slot::FinalNorm => "norm_f.weight".into(),
            Slot::AttentionNorm => format!("layers.{layer}.norm.weight"),
            _ => hugging_face(slot, layer, post_norms).replace(".mamba.", ".mixer."),
        },
        Naming::FalconH1 => match slot {
            Slot::FinalNorm => "final_layernorm.weight".into(),
            Slot::MlpNorm => format!("layers.{layer}.pre_ff_layernorm.weight"),
            _ => hugging_face(slot, layer, post_norms).replace(".mlp.", ".feed_forward."),
        },
        Naming::NemotronH => match slot {
            Slot::Embed => "embeddings.weight".into(),
            Slot::FinalNorm => "norm_f.weight".into(),
            Slot::AttentionNorm | Slot::MlpNorm => format!("layers.{layer}.norm.weight"),
            _ => of_one_part(&hugging_face(slot, layer, post_norms)),
        },
        Naming::Gguf => gguf(slot, layer),
        Naming::GgufNemotronH => match slot {
            Slot::MlpNorm => gguf(Slot::AttentionNorm, layer),
            _ => gguf(slot, layer),
        },
        Naming::GgufPostAttention => match slot {
            Slot::MlpNorm => format!("blk.{layer}.post_attention_norm.weight"),
            Slot::DeltaBias => format!("blk.{layer}.ssm_dt.bias"),
            Slot::DeltaRates => format!("blk.{layer}.ssm_a"),
            _ => gguf(slot, layer),
        },
        Naming::GgufLfm2 => match slot {
            Slot::FinalNorm => "token_embd_norm.weight".into(),
            _ => gguf(slot, layer),
        },
    }
}

/// The name in a layer whose only part is called its mixer, whatever it is.
fn of_one_part(name: &str) -> String {
    [".mamba.", ".self_attn.", ".mlp."].iter().fold(name.to_string(), |name, part| name.replacen(part, ".mixer.", 1))
}

fn lfm2(slot: Slot, layer: usize) -> String {
    let part = match slot {
        Slot::FinalNorm => return "embedding_norm.weight".into(),
        Slot::AttentionNorm => "operator_norm",
        Slot::QueryNorm => "self_attn.q_layernorm",
        Slot::KeyNorm => "self_attn.k_layernorm",
        Slot::Output => "self_attn.out_proj",
        Slot::MlpNorm => "ffn_norm",
        Slot::Gate => "feed_forward.w1",
        Slot::Up => "feed_forward.w3",
        Slot::Down => "feed_forward.w2",
        _ => return hugging_face(slot, layer, false),
    };
    format!("layers.{layer}.{part}.weight")
}

fn ling(slot: Slot, layer: usize) -> String {
    let part = match slot {
        Slot::Embed => return "word_embeddings.weight".into(),
        Slot::Qkv => "query_key_value",
        Slot::QueryNorm => "query_layernorm",
        Slot::KeyNorm => "key_layernorm",
        Slot::Output => "dense",
        _ => return hugging_face(slot, layer, false),
    };
    format!("layers.{layer}.attention.{part}.weight")
}

/// A matrix of a mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpertSlot {
    /// A row of logits' weights for each expert.
    Router,
    /// What joins each expert's score for the choice.
    Bias,
    Gate,
    Up,
    /// Gate and up of each expert, in one tensor.
    GateUp,
    Down,
    /// What joins each expert's logit, and the results of its matrices.
    RouterBias,
    GateBias,
    UpBias,
    GateUpBias,
    DownBias,
    /// The factors of the norm of the router's input.
    RouterNorm,
    /// A factor of each expert's share.
    Factor,
}

/// The name of a mixture's tensor. Where an expert has tensors of its own, it is that of `expert`.
pub(crate) fn expert_name(
    naming: Naming,
    tensors: ExpertTensors,
    slot: ExpertSlot,
    layer: usize,
    expert: usize,
) -> String {
    use ExpertSlot::{
        Bias, Down, DownBias, Factor, Gate, GateBias, GateUp, GateUpBias, Router, RouterBias, RouterNorm, Up, UpBias,
    };
    if naming == Naming::NemotronH {
        return of_one_part(&expert_name(Naming::HuggingFace, tensors, slot, layer, expert));
    }
    if (naming, slot) == (Naming::Ling, Bias) {
        return format!("layers.{layer}.mlp.gate.expert_bias");
    }
    if naming == Naming::Lfm2 {
        let name = expert_name(Naming::HuggingFace, tensors, slot, layer, expert);
        return match slot {
            Bias => format!("layers.{layer}.feed_forward.expert_bias"),
            _ => name.replacen("block_sparse_moe", "feed_forward", 1),
        };
    }
    if naming.is_gguf() {
        let part = match slot {
            Router => "ffn_gate_inp.weight",
            RouterBias => "ffn_gate_inp.bias",
            Bias => "exp_probs_b.bias",
            Gate => "ffn_gate_exps.weight",
            GateBias => "ffn_gate_exps.bias",
            Up => "ffn_up_exps.weight",
            GateUp => "ffn_gate_up_exps.weight",
            RouterNorm => "ffn_gate_inp.scale",
            Factor => "ffn_down_exps.scale",
            UpBias | GateUpBias => "ffn_up_exps.bias",
            Down => "ffn_down_exps.weight",
            DownBias => "ffn_down_exps.bias",
        };
        return format!("blk.{layer}.{part}");
    }
    let part = match (tensors, slot) {
        (ExpertTensors::Mixtral, Bias) => return format!("layers.{layer}.block_sparse_moe.e_score_correction_bias"),
        (_, Bias) => return format!("layers.{layer}.mlp.gate.e_score_correction_bias"),
        (_, RouterBias) => return format!("layers.{layer}.mlp.router.bias"),
        (_, RouterNorm) => return format!("layers.{layer}.router.scale"),
        (_, Factor) => return format!("layers.{layer}.router.per_expert_scale"),
        (_, GateBias | UpBias | GateUpBias) => return format!("layers.{layer}.mlp.experts.gate_up_proj_bias"),
        (_, DownBias) => return format!("layers.{layer}.mlp.experts.down_proj_bias"),
        (ExpertTensors::Each, Router) => "mlp.gate".into(),
        (ExpertTensors::Each, Gate) => format!("mlp.experts.{expert}.gate_proj"),
        (ExpertTensors::Each, Up | GateUp) => format!("mlp.experts.{expert}.up_proj"),
        (ExpertTensors::Each, Down) => format!("mlp.experts.{expert}.down_proj"),
        (ExpertTensors::Mixtral, Router) => "block_sparse_moe.gate".into(),
        (ExpertTensors::Mixtral, Gate) => format!("block_sparse_moe.experts.{expert}.w1"),
        (ExpertTensors::Mixtral, Up | GateUp) => format!("block_sparse_moe.experts.{expert}.w3"),
        (ExpertTensors::Mixtral, Down) => format!("block_sparse_moe.experts.{expert}.w2"),
        (ExpertTensors::Stacked, Router) => "block_sparse_moe.router.layer".into(),
        (ExpertTensors::Stacked, Gate | Up | GateUp) => "block_sparse_moe.input_linear".into(),
        (ExpertTensors::Stacked, Down) => "block_sparse_moe.output_linear".into(),
        (ExpertTensors::Gemma, Router) => "router.proj".into(),
        (ExpertTensors::Gemma, Gate | Up | GateUp) => return format!("layers.{layer}.experts.gate_up_proj"),
        (ExpertTensors::Gemma, Down) => return format!("layers.{layer}.experts.down_proj"),
        (ExpertTensors::Fused | ExpertTensors::Apart, Router) => "mlp.gate".into(),
        (ExpertTensors::Alternating, Router) => "mlp.router".into(),
        (ExpertTensors::Fused | ExpertTensors::Apart | ExpertTensors::Alternating, Gate | Up | GateUp) => {
            return format!("layers.{layer}.mlp.experts.gate_up_proj");
        }
        (ExpertTensors::Fused | ExpertTensors::Apart | ExpertTensors::Alternating, Down) => {
            return format!("layers.{layer}.mlp.experts.down_proj");
        }
    };
    format!("layers.{layer}.{part}.weight")
}

fn hugging_face(slot: Slot, layer: usize, post_norms: bool) -> String {
    let part = match slot {
        Slot::Embed => return "embed_tokens.weight".into(),
        Slot::FinalNorm => return "norm.weight".into(),
        Slot::Head => return "lm_head.weight".into(),
        Slot::PerLayerTable => return "embed_tokens_per_layer.weight".into(),
        Slot::PerLayerModel => return "per_layer_model_projection.weight".into(),
        Slot::PerLayerModelNorm => return "per_layer_projection_norm.weight".into(),
        Slot::AttentionNorm => "input_layernorm.weight",
        Slot::Qkv => "self_attn.qkv_proj.weight",
        Slot::OutputBias => "self_attn.o_proj.bias",
        Slot::Sinks => "self_attn.sinks",
        Slot::QueryBias => "self_attn.q_proj.bias",
        Slot::KeyBias => "self_attn.k_proj.bias",
        Slot::ValueBias => "self_attn.v_proj.bias",
        Slot::Query => "self_attn.q_proj.weight",
        Slot::Key => "self_attn.k_proj.weight",
        Slot::Value => "self_attn.v_proj.weight",
        Slot::QueryNorm => "self_attn.q_norm.weight",
        Slot::KeyNorm => "self_attn.k_norm.weight",
        Slot::Output => "self_attn.o_proj.weight",
        Slot::PostAttentionNorm => "post_attention_layernorm.weight",
        Slot::MlpNorm if post_norms => "pre_feedforward_layernorm.weight",
        Slot::MlpNorm => "post_attention_layernorm.weight",
        Slot::GateUp => "mlp.gate_up_proj.weight",
        Slot::Gate => "mlp.gate_proj.weight",
        Slot::Up => "mlp.up_proj.weight",
        Slot::Down => "mlp.down_proj.weight",
        Slot::PostMlpNorm => "post_feedforward_layernorm.weight",
        Slot::MixtureNorm => "pre_feedforward_layernorm_2.weight",
        Slot::PostGatedNorm => "post_feedforward_layernorm_1.weight",
        Slot::PostMixtureNorm => "post_feedforward_layernorm_2.weight",
        Slot::LayerScalar => "layer_scalar",
        Slot::PerLayerGate => "per_layer_input_gate.weight",
        Slot::PerLayerProjection => "per_layer_projection.weight",
        Slot::PostPerLayerNorm => "post_per_layer_input_norm.weight",
        Slot::ConvIn => "conv.in_proj.weight",
        Slot::ConvTaps => "conv.conv.weight",
        Slot::ConvOut => "conv.out_proj.weight",
        Slot::DeltaQkv => "linear_attn.in_proj_qkv.weight",
        Slot::DeltaGate => "linear_attn.in_proj_z.weight",
        Slot::DeltaQkvz => "linear_attn.in_proj_qkvz.weight",
        Slot::DeltaPairs => "linear_attn.in_proj_ba.weight",
        Slot::DeltaStrength => "linear_attn.in_proj_b.weight",
        Slot::DeltaDecay => "linear_attn.in_proj_a.weight",
        Slot::DeltaBias => "linear_attn.dt_bias",
        Slot::DeltaRates => "linear_attn.A_log",
        Slot::DeltaTaps => "linear_attn.conv1d.weight",
        Slot::DeltaNorm => "linear_attn.norm.weight",
        Slot::DeltaOut => "linear_attn.out_proj.weight",
        Slot::MambaIn => "mamba.in_proj.weight",
        Slot::MambaTaps => "mamba.conv1d.weight",
        Slot::MambaTapsBias => "mamba.conv1d.bias",
        Slot::MambaBias => "mamba.dt_bias",
        Slot::MambaRates => "mamba.A_log",
        Slot::MambaSkip => "mamba.D",
        Slot::MambaNorm => "mamba.norm.weight",
        Slot::MambaOut => "mamba.out_proj.weight",
        Slot::SharedGate => "mlp.shared_experts.gate_proj.weight",
        Slot::SharedUp => "mlp.shared_experts.up_proj.weight",
        Slot::SharedDown => "mlp.shared_experts.down_proj.weight",
        Slot::SharedShare => "mlp.shared_expert_gate.weight",
    };
    format!("layers.{layer}.{part}")
}

fn gguf(slot: Slot, layer: usize) -> String {
    let part = match slot {
        Slot::Embed => return "token_embd.weight".into(),
        Slot::FinalNorm => return "output_norm.weight".into(),
        Slot::Head => return "output.weight".into(),
        Slot::PerLayerTable => return "per_layer_token_embd.weight".into(),
        Slot::PerLayerModel => return "per_layer_model_proj.weight".into(),
        Slot::PerLayerModelNorm => return "per_layer_proj_norm.weight".into(),
        Slot::AttentionNorm => "attn_norm",
        Slot::QueryBias => return format!("blk.{layer}.attn_q.bias"),
        Slot::KeyBias => return format!("blk.{layer}.attn_k.bias"),
        Slot::ValueBias => return format!("blk.{layer}.attn_v.bias"),
        Slot::OutputBias => return format!("blk.{layer}.attn_output.bias"),
        Slot::Sinks => "attn_sinks",
        Slot::Qkv => "attn_qkv",
        Slot::Query => "attn_q",
        Slot::Key => "attn_k",
        Slot::Value => "attn_v",
        Slot::QueryNorm => "attn_q_norm",
        Slot::KeyNorm => "attn_k_norm",
        Slot::Output => "attn_output",
        Slot::PostAttentionNorm => "post_attention_norm",
        Slot::MlpNorm => "ffn_norm",
        Slot::Gate => "ffn_gate",
        Slot::GateUp => "ffn_up",
        Slot::Up => "ffn_up",
        Slot::Down => "ffn_down",
        Slot::PostMlpNorm => "post_ffw_norm",
        Slot::MixtureNorm => "pre_ffw_norm_2",
        Slot::PostGatedNorm => "post_ffw_norm_1",
        Slot::PostMixtureNorm => "post_ffw_norm_2",
        Slot::LayerScalar => "layer_output_scale",
        Slot::PerLayerGate => "inp_gate",
        Slot::PerLayerProjection => "proj",
        Slot::PostPerLayerNorm => "post_norm",
        Slot::ConvIn => "shortconv.in_proj",
        Slot::ConvTaps => "shortconv.conv",
        Slot::ConvOut => "shortconv.out_proj",
        Slot::DeltaQkv => "attn_qkv",
        Slot::DeltaGate => "attn_gate",
        Slot::DeltaQkvz => "ssm_in",
        Slot::DeltaPairs => "ssm_ba",
        Slot::DeltaStrength => "ssm_beta",
        Slot::DeltaDecay => "ssm_alpha",
        Slot::DeltaBias => "ssm_dt",
        Slot::DeltaRates => "ssm_a",
        Slot::DeltaTaps => "ssm_conv1d",
        Slot::DeltaNorm => "ssm_norm",
        Slot::DeltaOut => "ssm_out",
        Slot::MambaIn => "ssm_in",
        Slot::MambaTaps => "ssm_conv1d",
        Slot::MambaTapsBias => return format!("blk.{layer}.ssm_conv1d.bias"),
        Slot::MambaBias => return format!("blk.{layer}.ssm_dt.bias"),
        Slot::MambaRates => return format!("blk.{layer}.ssm_a"),
        Slot::MambaSkip => return format!("blk.{layer}.ssm_d"),
        Slot::MambaNorm => "ssm_norm",
        Slot::MambaOut => "ssm_out",
        Slot::SharedGate => "ffn_gate_shexp",
        Slot::SharedUp => "ffn_up_shexp",
        Slot::SharedDown => "ffn_down_shexp",
        Slot::SharedShare => "ffn_gate_inp_shexp",
    };
    format!("blk.{layer}.{part}.weight")
}
