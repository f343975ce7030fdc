//! OLMo 2 and 3: attention and perceptron normalise their outputs instead of their inputs, and queries and keys are
//! normalised whole, all heads together. OLMo 3 has windows in most layers, and YaRN in those without.
//!
//! Attention and perceptron read the residual stream rounded to the activations' type. OLMoE is Llama's layer with the same norms
//! of queries and keys and a mixture of experts. Source: transformers `models/olmo2`, `models/olmo3` and `models/olmoe`; llama.cpp's
//! `olmo2` and `olmoe`.

use super::experts::{self, Keys};
use super::rotary::{rope_of, rope_scaling};
use super::{Family, llama, refuse_bias};
use crate::config::{Fields, sliding_types};
use crate::decoder::{Decoder, ExpertTensors, QkNorm, RopeScaling};
use crate::error::{ModelError, Result};
use crate::gguf::Metadata;

pub(super) const FAMILY: Family = Family {
    name: "OLMo 2",
    model_types: &["olmo2", "olmo3"],
    architecture: "olmo2",
    examples: &["allenai/OLMo-2-1124-7B-Instruct", "allenai/Olmo-3-7B-Instruct"],
    head_max: super::HEAD_MAX,
    from_config,
    from_gguf,
};

pub(super) const MIXTURE: Family = Family {
    name: "OLMoE",
    model_types: &["olmoe"],
    architecture: "olmoe",
    examples: &["allenai/OLMoE-1B-7B-0125-Instruct"],
    from_config: mixture_from_config,
    from_gguf: mixture_from_gguf,
    ..FAMILY
};

fn from_config(fields: &Fields) -> Result<Decoder> {
    refuse_bias(fields, FAMILY.name)?;
    if fields.str_opt("model_type")? != Some("olmo3") {
        return Ok(outer_norms(llama::read_config(fields, FAMILY.name, 10_000.0)?));
    }
    let plain = fields.without(&["rope_scaling", "rope_parameters"]);
    let mut decoder = outer_norms(llama::read_config(&plain, "OLMo 3", 500_000.0)?);
    let (count, window) = (decoder.layers.len(), fields.u32_or("sliding_window", 4096)?);
    let sliding = match sliding_types(fields, count)? {
        Some(sliding) => sliding,
        None => (0..count).map(|i| (i + 1) % 4 != 0).collect(),
    };
    for (attention, sliding) in decoder.attentions_mut().zip(sliding) {
        attention.window = sliding.then_some(window);
        let kind = if sliding { "sliding_attention" } else { "full_attention" };
        match fields.object("rope_parameters").and_then(|p| p.object(kind)) {
            Some(p) => {
                attention.rope.theta = p.f64_or("rope_theta", attention.rope.theta)?;
                attention.rope.scaling = rope_scaling(&p)?;
            }
            None if sliding => {}
            None => attention.rope = rope_of(fields, attention.head_dim, 500_000.0)?,
        }
    }
    Ok(decoder)
}

fn from_gguf(metadata: &Metadata) -> Result<Decoder> {
    let mut decoder = outer_norms(llama::read_gguf(metadata, FAMILY.name, FAMILY.architecture, 500_000.0)?);
    if let Some(window) = metadata.u32_opt("olmo2.attention.sliding_window")?.filter(|window| *window > 0) {
        decoder.family = "OLMo 3";
        let key = "olmo2.attention.sliding_window_pattern";
        let sliding = match metadata.get(key) {
            Some(_) => metadata.bools(key, decoder.layers.len())?,
            None => (0..decoder.layers.len()).map(|i| (i + 1) % 4 != 0).collect(),
        };
        for (attention, _) in decoder.attentions_mut().zip(sliding).filter(|(_, sliding)| *sliding) {
            attention.window = Some(window);
            attention.rope.theta = metadata.f64_or("olmo2.rope.freq_base_swa", attention.rope.theta)?;
            attention.rope.scaling = RopeScaling::None;
        }
    }
    Ok(decoder)
}

fn mixture_from_config(fields: &Fields) -> Result<Decoder> {
    refuse_bias(fields, MIXTURE.name)?;
    if fields.get("clip_qkv").is_some() {
        return Err(ModelError::Feature { family: MIXTURE.name, feature: "clip_qkv".into() });
    }
    let decoder = whole_norms(llama::read_config(fields, MIXTURE.name, 10_000.0)?);
    let keys = Keys { count: "num_experts", width: "intermediate_size", ..Keys::USUAL };
    let mixture = experts::read_config(fields, keys, fields.bool_or("norm_topk_prob", false)?, ExpertTensors::Each)?;
    Ok(experts::put(decoder, &mixture, |_| true))
}

fn mixture_from_gguf(metadata: &Metadata) -> Result<Decoder> {
    let decoder = whole_norms(llama::read_gguf(metadata, MIXTURE.name, MIXTURE.architecture, 10_000.0)?);
    Ok(experts::put_stored(decoder, metadata, &experts::read_gguf(metadata, MIXTURE.architecture, false)?))
}

fn whole_norms(mut decoder: Decoder) -> Decoder {
    decoder.attentions_mut().for_each(|attention| attention.qk_norm = QkNorm::Whole);
    decoder
}

fn outer_norms(mut decoder: Decoder) -> Decoder {
    decoder.layers.iter_mut().for_each(|layer| (layer.pre_norms, layer.post_norms) = (false, true));
    whole_norms(decoder)
}
