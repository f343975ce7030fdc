//! Mistral, Ministral and the text part of Mistral Small: Llama's layer with a head size of its own and, in some models, a
//! window in all layers or in those that `layer_types` names. Ministral 3 multiplies queries by a factor that depends on their
//! position; Vosti defines that this factor is part of the queries' cosines and sines.
//!
//! Mixtral has a mixture of experts in each layer. Source: transformers `models/mistral`, `models/ministral`, `models/ministral3` and
//! `models/mixtral`. GGUF files call all of them except Ministral 3 `llama`, and do not give the window.

use super::experts::{self, Keys};
use super::{Family, llama, refuse_bias};
use crate::config::{Fields, sliding_types};
use crate::decoder::{Decoder, ExpertTensors};
use crate::error::Result;
use crate::gguf::Metadata;

pub(super) const FAMILY: Family = Family {
    name: "Mistral",
    model_types: &["mistral", "ministral", "ministral3", "mixtral"],
    architecture: "mistral3",
    examples: &[
        "mistralai/Mistral-7B-Instruct-v0.3",
        "mistralai/Ministral-8B-Instruct-2410",
        "mistralai/Ministral-3-8B-Instruct-2512",
        "mistralai/Mistral-Nemo-Instruct-2407",
        "mistralai/Mixtral-8x7B-Instruct-v0.1",
    ],
    head_max: super::HEAD_MAX,
    from_config,
    from_gguf,
};

fn from_config(fields: &Fields) -> Result<Decoder> {
    refuse_bias(fields, FAMILY.name)?;
    let mut decoder = llama::read_config(fields, FAMILY.name, 10_000.0)?;
    let count = decoder.layers.len();
    // A window as long as the model's context hides nothing.
    let window = fields.u32_opt("sliding_window")?.filter(|window| *window < decoder.context);
    let sliding = sliding_types(fields, count)?.unwrap_or(vec![true; count]);
    let parameters = fields.object("rope_parameters").or_else(|| fields.object("rope_scaling"));
    let temperature = match parameters {
        Some(p) => p.f64_opt("llama_4_scaling_beta")?.map(|beta| (p, beta)),
        None => None,
    };
    let temperature = match temperature {
        Some((p, beta)) => Some((beta, positive(p.f64("original_max_position_embeddings")?))),
        None => None,
    };
    for (attention, sliding) in decoder.attentions_mut().zip(sliding) {
        attention.window = window.filter(|_| sliding);
        attention.rope.temperature = temperature;
    }
    if fields.str_opt("model_type")? == Some("mixtral") {
        let keys = Keys::LOCAL;
        let mixture = experts::read_config(fields, keys, true, ExpertTensors::Mixtral)?;
        decoder = experts::put(decoder, &mixture, |_| true);
    }
    Ok(decoder)
}

fn from_gguf(metadata: &Metadata) -> Result<Decoder> {
    let mut decoder = llama::read_gguf(metadata, FAMILY.name, FAMILY.architecture, 10_000.0)?;
    let beta = metadata.f64_or("mistral3.attention.temperature_scale", 0.0)?;
    if beta != 0.0 {
        let original = positive(metadata.f64("mistral3.rope.scaling.original_context_length")?);
        decoder.attentions_mut().for_each(|attention| attention.rope.temperature = Some((beta, original)));
    }
    Ok(Decoder { permuted: true, ..decoder })
}

/// A divisor of positions, at least 1.
fn positive(original: f64) -> f64 {
    original.max(1.0)
}
