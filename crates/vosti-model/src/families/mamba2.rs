//! Mamba 2: every layer is a Mamba 2 layer, and none has a perceptron.
//!
//! Source: transformers `models/mamba2`; llama.cpp's `mamba2`. Checkpoints in the form of the package `mamba_ssm` are not read. The
//! files have no longest sequence: as llama.cpp's converter does, this takes 2^20 tokens. Sums and roundings are those of Granite 4's
//! Mamba 2 layers.

use super::mamba::{self, Keys};
use super::{Family, expect_activation};
use crate::config::{Fields, layer_count};
use crate::decoder::{Decoder, Layer, Mamba, Mixer, Mlp, Naming};
use crate::error::Result;
use crate::gguf::Metadata;

pub(super) const FAMILY: Family = Family {
    name: "Mamba 2",
    model_types: &["mamba2"],
    architecture: "mamba2",
    examples: &["mistralai/Mamba-Codestral-7B-v0.1"],
    head_max: super::HEAD_MAX,
    from_config,
    from_gguf,
};

const KEYS: Keys = Keys {
    heads: ("num_heads", 128),
    size: "head_dim",
    groups: ("n_groups", 8),
    state: ("state_size", 128),
    expand: ("expand", 2),
    taps: ("conv_kernel", 4),
    bias: "use_bias",
    conv_bias: "use_conv_bias",
};

/// The longest sequence, in tokens.
const CONTEXT: u32 = 1 << 20;

fn from_config(fields: &Fields) -> Result<Decoder> {
    expect_activation(fields, FAMILY.name, "hidden_act", &["silu"])?;
    let mamba = mamba::read_config(fields, FAMILY.name, &KEYS)?;
    let count = layer_count(fields, "num_hidden_layers")?;
    let eps = fields.f64_or("layer_norm_epsilon", 1e-5)?;
    let decoder = decoder(mamba, count, eps, [fields.u32("vocab_size")?, fields.u32("hidden_size")?, CONTEXT]);
    Ok(Decoder { naming: Naming::Mamba2, ..decoder })
}

fn from_gguf(metadata: &Metadata) -> Result<Decoder> {
    let key = |name: &str| format!("{}.{name}", FAMILY.architecture);
    let mamba = mamba::read_gguf(metadata, FAMILY.architecture)?;
    let count = metadata.layers(&key("block_count"))?;
    let eps = metadata.eps(&key("attention.layer_norm_rms_epsilon"))?;
    let [hidden, context] = [metadata.u32(&key("embedding_length"))?, metadata.u32(&key("context_length"))?];
    Ok(decoder(mamba, count, eps, [metadata.vocabulary()?, hidden, context]))
}

/// The decoder, with llama.cpp's names.
fn decoder(mamba: Mamba, count: u32, eps: f64, [vocab, hidden, context]: [u32; 3]) -> Decoder {
    let layer = Layer {
        mixer: Mixer::Mamba(mamba),
        mlp: Mlp::None,
        pre_norms: true,
        post_norms: false,
        residual_scale: 1.0,
        scaled: false,
    };
    Decoder {
        vocab,
        hidden,
        context,
        eps,
        layers: vec![layer; count as usize],
        ..Decoder::neutral(FAMILY.name, Naming::Gguf)
    }
}
