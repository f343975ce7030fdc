//! Gemma 2: four norms a layer, soft caps of scores and logits, a window in every other layer, scaled embeddings. The
//! checkpoints store norm weights as `w` for a factor of `1 + w`; GGUF files store the factor.
//!
//! Source: transformers `models/gemma2`; 27B's scale in GGUF is llama.cpp's.

use super::{Family, expect_activation, llama, refuse_bias, refuse_flag};
use crate::config::{Fields, sliding_types};
use crate::decoder::{Activation, Attention, Decoder};
use crate::error::Result;
use crate::gguf::Metadata;

pub(super) const FAMILY: Family = Family {
    name: "Gemma 2",
    model_types: &["gemma2"],
    architecture: "gemma2",
    examples: &["google/gemma-2-2b-it"],
    head_max: super::HEAD_MAX,
    from_config,
    from_gguf,
};

fn from_config(fields: &Fields) -> Result<Decoder> {
    refuse_bias(fields, FAMILY.name)?;
    refuse_flag(fields, FAMILY.name, "use_bidirectional_attention")?;
    expect_activation(fields, FAMILY.name, "hidden_activation", &["gelu_pytorch_tanh"])?;
    // Early files also have `hidden_act`, which transformers ignores.
    let mut decoder = llama::read_config(&fields.without(&["hidden_act"]), FAMILY.name, 10_000.0)?;
    let (count, window) = (decoder.layers.len(), fields.u32_or("sliding_window", 4096)?);
    let sliding = sliding_types(fields, count)?.unwrap_or((0..count).map(|i| i % 2 == 0).collect());
    let scale = fields.f64_or("query_pre_attn_scalar", 256.0)?.powf(-0.5);
    let softcap = fields.f64_or("attn_logit_softcapping", 50.0)?;
    decoder.final_softcap = fields.f64_or("final_logit_softcapping", 30.0)?;
    decoder.norm_offset = 1.0;
    decoder.tied = true;
    Ok(gemma(decoder, &sliding, window, scale, softcap))
}

fn from_gguf(metadata: &Metadata) -> Result<Decoder> {
    let mut decoder = llama::read_gguf(metadata, FAMILY.name, FAMILY.architecture, 10_000.0)?;
    let count = decoder.layers.len();
    let Attention { heads, head_dim, .. } = *decoder.attentions().next().expect("Llama's layers have attention");
    // The file does not have `query_pre_attn_scalar`. It is the head size, except for 27B, which has 46 layers.
    let scalar = if count == 46 { decoder.hidden / heads.max(1) } else { head_dim };
    let window = metadata.u32_or("gemma2.attention.sliding_window", 4096)?;
    let softcap = metadata.f64_or("gemma2.attn_logit_softcapping", 50.0)?;
    decoder.final_softcap = metadata.f64_or("gemma2.final_logit_softcapping", 30.0)?;
    let sliding: Vec<bool> = (0..count).map(|i| i % 2 == 0).collect();
    Ok(gemma(decoder, &sliding, window, f64::from(scalar).powf(-0.5), softcap))
}

fn gemma(mut decoder: Decoder, sliding: &[bool], window: u32, scale: f64, softcap: f64) -> Decoder {
    decoder.embed_scale = f64::from(decoder.hidden).sqrt();
    for (attention, sliding) in decoder.attentions_mut().zip(sliding) {
        attention.window = sliding.then_some(window);
        attention.scale = scale;
        attention.softcap = softcap;
    }
    decoder.gated_mut().for_each(|gated| gated.activation = Activation::GeluTanh);
    decoder.layers.iter_mut().for_each(|layer| layer.post_norms = true);
    decoder
}
