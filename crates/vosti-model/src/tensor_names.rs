//! Names of a decoder's tensors in Hugging Face checkpoints and in GGUF files.

use crate::decoder::Naming;

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
    LayerScalar,
}

/// The name of a tensor in the files. `post_norms`: in Hugging Face checkpoints the norm named
/// `post_attention_layernorm` precedes the perceptron, unless the family has both.
pub(crate) fn tensor_name(naming: Naming, slot: Slot, layer: usize, post_norms: bool) -> String {
    match naming {
        Naming::HuggingFace => hugging_face(slot, layer, post_norms),
        Naming::GraniteHybrid => match slot {
            Slot::GateUp => format!("layers.{layer}.shared_mlp.input_linear.weight"),
            Slot::Down => format!("layers.{layer}.shared_mlp.output_linear.weight"),
            _ => hugging_face(slot, layer, post_norms),
        },
        Naming::Gguf => gguf(slot, layer),
    }
}

fn hugging_face(slot: Slot, layer: usize, post_norms: bool) -> String {
    let part = match slot {
        Slot::Embed => return "embed_tokens.weight".into(),
        Slot::FinalNorm => return "norm.weight".into(),
        Slot::Head => return "lm_head.weight".into(),
        Slot::AttentionNorm => "input_layernorm.weight",
        Slot::Qkv => "self_attn.qkv_proj.weight",
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
        Slot::LayerScalar => "layer_scalar",
    };
    format!("layers.{layer}.{part}")
}

fn gguf(slot: Slot, layer: usize) -> String {
    let part = match slot {
        Slot::Embed => return "token_embd.weight".into(),
        Slot::FinalNorm => return "output_norm.weight".into(),
        Slot::Head => return "output.weight".into(),
        Slot::AttentionNorm => "attn_norm",
        Slot::QueryBias => return format!("blk.{layer}.attn_q.bias"),
        Slot::KeyBias => return format!("blk.{layer}.attn_k.bias"),
        Slot::ValueBias => return format!("blk.{layer}.attn_v.bias"),
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
        Slot::LayerScalar => "layer_output_scale",
    };
    format!("blk.{layer}.{part}.weight")
}
