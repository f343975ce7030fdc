//! Phi 3, 3.5 and 4, and Phi 4 mini: Llama's layer with one tensor for queries, keys and values and one for gate and up. In
//! some models only a part of each head rotates. The number of positions that a deployment serves chooses longrope's factors.
//!
//! If a part of a head rotates, its rows are in the order that [`crate::recipe::HeadRows`] describes, and scores are summed in
//! that order. Source: transformers `models/phi3`; llama.cpp's `phi3`. The files name a window, which transformers uses and
//! llama.cpp does not.

use super::rotary::{longrope, rope_type};
use super::{Family, llama, refuse_bias};
use crate::config::Fields;
use crate::decoder::{Decoder, Rope, RopeScaling};
use crate::error::Result;
use crate::gguf::Metadata;

pub(super) const FAMILY: Family = Family {
    name: "Phi 3",
    model_types: &["phi3"],
    architecture: "phi3",
    examples: &[
        "microsoft/Phi-3-mini-4k-instruct",
        "microsoft/Phi-3.5-mini-instruct",
        "microsoft/Phi-4-mini-instruct",
        "microsoft/phi-4",
    ],
    head_max: super::HEAD_MAX,
    from_config,
    from_gguf,
};

fn from_config(fields: &Fields) -> Result<Decoder> {
    refuse_bias(fields, FAMILY.name)?;
    // The scaling is read below, so it is hidden from the shared reader.
    let mut decoder = llama::read_config(&fields.without(&["rope_scaling", "rope_parameters"]), FAMILY.name, 10_000.0)?;
    let first = decoder.attentions().next().expect("Llama's layers have attention");
    let head_dim = first.head_dim;
    let parameters = fields.object("rope_parameters").or_else(|| fields.object("rope_scaling"));
    let old = parameters.unwrap_or(*fields);
    let share = old.f64_or("partial_rotary_factor", fields.f64_or("partial_rotary_factor", 1.0)?)?;
    let rotary = (f64::from(head_dim) * share.clamp(0.0, 2.0)) as u32;
    let theta = old.f64_or("rope_theta", fields.f64_or("rope_theta", 10_000.0)?)?;
    let scaling = match parameters {
        // Early files call longrope `su` or `yarn`.
        Some(p) if ["longrope", "su", "yarn"].contains(&rope_type(&p)?) => {
            longrope(fields, &p, rotary, decoder.context)?
        }
        Some(p) => super::rotary::rope_scaling(&p)?,
        None => RopeScaling::None,
    };
    let rope = Rope { rotary, scaling, ..Rope::plain(theta, head_dim) };
    let window = fields.u32_opt("sliding_window")?;
    fuse(&mut decoder, rope, window);
    Ok(decoder)
}

fn from_gguf(metadata: &Metadata) -> Result<Decoder> {
    let mut decoder = llama::read_gguf(metadata, FAMILY.name, FAMILY.architecture, 10_000.0)?;
    let first = decoder.attentions().next().expect("Llama's layers have attention");
    let rope = first.rope.clone();
    let rotary = metadata.u32_or("phi3.rope.dimension_count", rope.head_dim)?;
    let window = metadata.u32_opt("phi3.attention.sliding_window")?.filter(|window| *window > 0);
    fuse(&mut decoder, Rope { rotary, ..rope }, window);
    Ok(decoder)
}

fn fuse(decoder: &mut Decoder, rope: Rope, window: Option<u32>) {
    // A window as long as the model's context hides nothing.
    let window = window.filter(|window| *window < decoder.context);
    for attention in decoder.attentions_mut() {
        attention.fused_qkv = true;
        attention.rope = rope.clone();
        attention.window = window;
    }
    decoder.gated_mut().for_each(|gated| gated.fused = true);
}
