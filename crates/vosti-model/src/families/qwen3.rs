//! Qwen 3: Llama's layer with an RMS norm on each query and key head; and its models with a mixture of experts in the place of
//! most perceptrons.
//!
//! Source: transformers `models/qwen3` and `models/qwen3_moe`; llama.cpp's `qwen3moe`.

use super::experts::{self, Keys};
use super::{Family, llama, refuse_bias, refuse_flag};
use crate::config::Fields;
use crate::decoder::{Decoder, ExpertTensors, Experts, QkNorm};
use crate::error::Result;
use crate::gguf::Metadata;

pub(super) const FAMILY: Family = Family {
    name: "Qwen 3",
    model_types: &["qwen3"],
    architecture: "qwen3",
    examples: &["Qwen/Qwen3-4B"],
    head_max: super::HEAD_MAX,
    from_config,
    from_gguf,
};

pub(super) const MIXTURE: Family = Family {
    name: "Qwen 3 MoE",
    model_types: &["qwen3_moe"],
    architecture: "qwen3moe",
    examples: &["Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-Coder-30B-A3B-Instruct", "Qwen/Qwen3-235B-A22B"],
    from_config: mixture_from_config,
    from_gguf: mixture_from_gguf,
    ..FAMILY
};

fn from_config(fields: &Fields) -> Result<Decoder> {
    refuse_bias(fields, FAMILY.name)?;
    refuse_flag(fields, FAMILY.name, "use_sliding_window")?;
    Ok(normed(llama::read_config(fields, FAMILY.name, 10_000.0)?))
}

fn from_gguf(metadata: &Metadata) -> Result<Decoder> {
    Ok(normed(llama::read_gguf(metadata, FAMILY.name, FAMILY.architecture, 1_000_000.0)?))
}

fn mixture_from_config(fields: &Fields) -> Result<Decoder> {
    refuse_bias(fields, MIXTURE.name)?;
    refuse_flag(fields, MIXTURE.name, "use_sliding_window")?;
    let decoder = normed(llama::read_config(fields, MIXTURE.name, 10_000.0)?);
    let keys = Keys::USUAL;
    let mixture = experts::read_config(fields, keys, fields.bool_or("norm_topk_prob", false)?, ExpertTensors::Each)?;
    put(fields, decoder, &mixture)
}

/// Replaces the perceptrons of the layers that the configuration says.
pub(super) fn put(fields: &Fields, decoder: Decoder, mixture: &Experts) -> Result<Decoder> {
    let (step, dense) =
        (fields.u32_or("decoder_sparse_step", 1)?, fields.u32s_opt("mlp_only_layers")?.unwrap_or_default());
    if step == 0 {
        return Err(fields.bad("decoder_sparse_step", "is 0"));
    }
    Ok(experts::put(decoder, mixture, |i| (i + 1).is_multiple_of(step as usize) && !dense.contains(&(i as u32))))
}

fn mixture_from_gguf(metadata: &Metadata) -> Result<Decoder> {
    let decoder = normed(llama::read_gguf(metadata, MIXTURE.name, MIXTURE.architecture, 1_000_000.0)?);
    Ok(experts::put_stored(decoder, metadata, &experts::read_gguf(metadata, MIXTURE.architecture, true)?))
}

fn normed(mut decoder: Decoder) -> Decoder {
    decoder.attentions_mut().for_each(|attention| attention.qk_norm = QkNorm::Heads);
    decoder
}
