//! gpt-oss: Llama's layer with biases, attention sinks, a window in every second layer, and a mixture of experts of clamped units.
//!
//! Its router's shares are the softmax of the chosen logits. Source: transformers `models/gpt_oss`; llama.cpp's `gpt-oss`.

use super::experts::{self, Keys};
use super::{Family, llama, refuse_flag};
use crate::config::{Fields, sliding_types};
use crate::decoder::{Activation, Decoder, ExpertTensors, Experts, Naming, RopeScaling};
use crate::error::{ModelError, Result};
use crate::gguf::Metadata;

pub(super) const FAMILY: Family = Family {
    name: "gpt-oss",
    model_types: &["gpt_oss"],
    architecture: "gpt-oss",
    examples: &["openai/gpt-oss-20b", "openai/gpt-oss-120b"],
    head_max: super::HEAD_MAX,
    from_config,
    from_gguf,
};

const THETA: f64 = 150_000.0;
const WINDOW: u32 = 128;
/// The most that a gate may be, and the farthest from zero that what it multiplies may be. The kernels have it as a number.
const LIMIT: f64 = 7.0;

fn from_config(fields: &Fields) -> Result<Decoder> {
    refuse_flag(fields, FAMILY.name, "mlp_bias")?;
    let limit = fields.f64_or("swiglu_limit", LIMIT)?;
    if limit != LIMIT {
        return Err(ModelError::Feature { family: FAMILY.name, feature: format!("swiglu_limit = {limit}") });
    }
    let decoder = llama::read_config(fields, FAMILY.name, THETA)?;
    let layers = decoder.layers.len();
    let sliding = sliding_types(fields, layers)?.unwrap_or_else(|| alternate(layers));
    let keys = Keys::LOCAL;
    let mixture = experts::read_config(fields, keys, true, ExpertTensors::Alternating)?;
    let (bias, window) = (fields.bool_or("attention_bias", true)?, fields.u32_or("sliding_window", WINDOW)?);
    Ok(assembled(decoder, mixture, &sliding, (bias, window)))
}

fn from_gguf(metadata: &Metadata) -> Result<Decoder> {
    let mut decoder = llama::read_gguf(metadata, FAMILY.name, FAMILY.architecture, THETA)?;
    decoder.naming = Naming::GgufPostAttention;
    let window = metadata.u32_or("gpt-oss.attention.sliding_window", WINDOW)?;
    let (layers, pattern) = (decoder.layers.len(), "gpt-oss.attention.sliding_window_pattern");
    let sliding = match metadata.get(pattern) {
        Some(_) => metadata.bools(pattern, layers)?,
        None => alternate(layers),
    };
    let mixture = experts::read_gguf(metadata, FAMILY.architecture, true)?;
    // llama.cpp's files do not say that the ramp's ends are no whole indices; the model's configuration does.
    for attention in decoder.attentions_mut() {
        if let RopeScaling::Yarn { truncate, .. } = &mut attention.rope.scaling {
            *truncate = false;
        }
    }
    Ok(assembled(decoder, mixture, &sliding, (true, window)))
}

/// A window in the first layer and in every second one from there.
fn alternate(layers: usize) -> Vec<bool> {
    (0..layers).map(|i| i % 2 == 0).collect()
}

/// A decoder with gpt-oss's attention and experts. `bias`: whether attention's projections have one.
fn assembled(mut decoder: Decoder, mixture: Experts, sliding: &[bool], (bias, window): (bool, u32)) -> Decoder {
    for (attention, sliding) in decoder.attentions_mut().zip(sliding) {
        attention.window = sliding.then_some(window);
        (attention.qkv_bias, attention.output_bias, attention.sinks) = (bias, bias, true);
    }
    let mixture = Experts { activation: Activation::Clamped, ..mixture };
    experts::put(decoder, &mixture, |_| true)
}
