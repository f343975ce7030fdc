//! Qwen 2 and 2.5, dense, and the Qwens that DeepSeek R1 was distilled to: Llama's layer with a bias of queries, keys and
//! values, which is added in FP32 before the projection's one rounding. The last layers may have a window.
//!
//! Source: transformers `models/qwen2`; llama.cpp's `qwen2` (which has no window).

use super::{Family, llama, refuse_flag};
use crate::config::{Fields, sliding_types};
use crate::decoder::Decoder;
use crate::error::Result;
use crate::gguf::Metadata;

pub(super) const FAMILY: Family = Family {
    name: "Qwen 2",
    model_types: &["qwen2"],
    architecture: "qwen2",
    examples: &["Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2-1.5B", "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"],
    head_max: super::HEAD_MAX,
    from_config,
    from_gguf,
};

fn from_config(fields: &Fields) -> Result<Decoder> {
    refuse_flag(fields, FAMILY.name, "mlp_bias")?;
    let mut decoder = biased(llama::read_config(fields, FAMILY.name, 10_000.0)?);
    if fields.bool_or("use_sliding_window", false)? {
        let (window, first) = (fields.u32("sliding_window")?, fields.u32_or("max_window_layers", 28)?);
        let count = decoder.layers.len();
        let sliding = match sliding_types(fields, count)? {
            Some(sliding) => sliding,
            None => (0..count).map(|i| i >= first as usize).collect(),
        };
        for (attention, _) in decoder.attentions_mut().zip(sliding).filter(|(_, sliding)| *sliding) {
            attention.window = Some(window);
        }
    }
    Ok(decoder)
}

fn from_gguf(metadata: &Metadata) -> Result<Decoder> {
    Ok(biased(llama::read_gguf(metadata, FAMILY.name, FAMILY.architecture, 1_000_000.0)?))
}

fn biased(mut decoder: Decoder) -> Decoder {
    decoder.attentions_mut().for_each(|attention| attention.qkv_bias = true);
    decoder
}
