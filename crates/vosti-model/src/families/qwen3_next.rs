//! Qwen 3 Next: the layers and the mixture of Qwen 3.5, of which the files have the delta rule's projections in two tensors.
//!
//! A Hugging Face file has all rows of a key head together: in one tensor its query, its key, its values and its gates, in another one
//! its strengths and its decays. llama.cpp's files have only the latter so, and older ones both. Layers that guess further tokens are not
//! read. Source: transformers `models/qwen3_next`; llama.cpp's `qwen3next`.

use super::experts::{self, Keys};
use super::{Family, qwen3, qwen3_5};
use crate::config::Fields;
use crate::decoder::{Decoder, DeltaTensors, ExpertTensors, Naming};
use crate::error::Result;
use crate::gguf::Metadata;

pub(super) const FAMILY: Family = Family {
    name: "Qwen 3 Next",
    model_types: &["qwen3_next"],
    architecture: "qwen3next",
    examples: &["Qwen/Qwen3-Next-80B-A3B-Instruct", "Qwen/Qwen3-Next-80B-A3B-Thinking", "Qwen/Qwen3-Coder-Next"],
    head_max: super::HEAD_MAX,
    from_config,
    from_gguf,
};

fn from_config(fields: &Fields) -> Result<Decoder> {
    let mut decoder = qwen3_5::read_config(fields, FAMILY.name, DeltaTensors::Fused)?;
    decoder.naming = Naming::SharedExpert;
    let keys = Keys::USUAL;
    let mixture = experts::read_config(fields, keys, fields.bool_or("norm_topk_prob", true)?, ExpertTensors::Each)?;
    let width = fields.u32_or("shared_expert_intermediate_size", 512)?;
    qwen3::put(fields, decoder, &qwen3_5::with_shared(mixture, width))
}

fn from_gguf(metadata: &Metadata) -> Result<Decoder> {
    let fused = (0..4).any(|i| metadata.has_tensor(&format!("blk.{i}.ssm_in.weight")));
    let tensors = if fused { DeltaTensors::Fused } else { DeltaTensors::Paired };
    qwen3_5::read_mixture(metadata, &FAMILY, tensors)
}
