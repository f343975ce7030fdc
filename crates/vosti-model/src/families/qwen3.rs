//! Qwen 3, dense: Llama's layer with an RMS norm on each query and key head.
//!
//! Source: transformers `models/qwen3`.

use super::{Family, llama, refuse_bias, refuse_flag};
use crate::config::Fields;
use crate::decoder::{Decoder, QkNorm};
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

fn from_config(fields: &Fields) -> Result<Decoder> {
    refuse_bias(fields, FAMILY.name)?;
    refuse_flag(fields, FAMILY.name, "use_sliding_window")?;
    Ok(normed(llama::read_config(fields, FAMILY.name, 10_000.0)?))
}

fn from_gguf(metadata: &Metadata) -> Result<Decoder> {
    Ok(normed(llama::read_gguf(metadata, FAMILY.name, FAMILY.architecture, 1_000_000.0)?))
}

fn normed(mut decoder: Decoder) -> Decoder {
    decoder.attentions_mut().for_each(|attention| attention.qk_norm = QkNorm::Heads);
    decoder
}
