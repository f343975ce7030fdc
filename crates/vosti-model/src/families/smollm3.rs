//! SmolLM 3: Llama's layer; every fourth layer has no rotation.
//!
//! A layer without rotation has cosines of one and sines of zero, so queries and keys are unchanged. Source: transformers
//! `models/smollm3`; llama.cpp's `smollm3`, which assumes every fourth layer for all models.

use super::{Family, llama, refuse_bias, refuse_flag};
use crate::config::Fields;
use crate::decoder::{Decoder, Rope};
use crate::error::Result;
use crate::gguf::Metadata;

pub(super) const FAMILY: Family = Family {
    name: "SmolLM 3",
    model_types: &["smollm3"],
    architecture: "smollm3",
    examples: &["HuggingFaceTB/SmolLM3-3B"],
    head_max: super::HEAD_MAX,
    from_config,
    from_gguf,
};

fn from_config(fields: &Fields) -> Result<Decoder> {
    refuse_bias(fields, FAMILY.name)?;
    refuse_flag(fields, FAMILY.name, "use_sliding_window")?;
    let decoder = Decoder { tied: true, ..llama::read_config(fields, FAMILY.name, 2_000_000.0)? };
    let interval = fields.u32_or("no_rope_layer_interval", 4)?;
    let count = decoder.layers.len();
    let rotates = match fields.u32s_opt("no_rope_layers")? {
        Some(list) if list.len() >= count => list.iter().map(|flag| *flag != 0).collect(),
        Some(list) => {
            return Err(fields.bad("no_rope_layers", format!("lists {} layers of {count}", list.len())));
        }
        None if interval == 0 => return Err(fields.bad("no_rope_layer_interval", "is 0, not a positive number")),
        None => every(interval, count),
    };
    Ok(with_rotation(decoder, &rotates))
}

fn from_gguf(metadata: &Metadata) -> Result<Decoder> {
    let decoder = llama::read_gguf(metadata, FAMILY.name, FAMILY.architecture, 2_000_000.0)?;
    let rotates = every(4, decoder.layers.len());
    Ok(with_rotation(Decoder { permuted: true, ..decoder }, &rotates))
}

/// For each layer, whether it rotates. Every `interval`-th layer does not.
fn every(interval: u32, count: usize) -> Vec<bool> {
    (1..=count).map(|layer| layer % interval as usize != 0).collect()
}

fn with_rotation(mut decoder: Decoder, rotates: &[bool]) -> Decoder {
    for (attention, _) in decoder.attentions_mut().zip(rotates).filter(|(_, rotates)| !**rotates) {
        attention.rope = Rope::still(attention.head_dim);
    }
    decoder
}
