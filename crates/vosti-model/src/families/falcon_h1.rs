//! Falcon H1: each layer has attention and a Mamba 2 layer beside each other, then a perceptron.
//!
//! Source: transformers `models/falcon_h1`; llama.cpp's `falcon-h1`. Both mixers read one norm, and both outputs are added. A
//! `config.json` has factors of projections, which llama.cpp's converter multiplies into the matrices: so does Vosti, in f32, and rounds
//! the products to the matrix's type. Vosti defines that Mamba's output is added first. Sums of states are those of Granite 4.

use super::mamba::{self, Keys};
use super::{Family, llama, refuse_bias, refuse_flag};
use crate::config::Fields;
use crate::decoder::{Decoder, Mamba, Mixer, Naming, Scales};
use crate::error::{ModelError, Result};
use crate::gguf::Metadata;

pub(super) const FAMILY: Family = Family {
    name: "Falcon H1",
    model_types: &["falcon_h1"],
    architecture: "falcon-h1",
    examples: &["tiiuae/Falcon-H1-0.5B-Instruct", "tiiuae/Falcon-H1-7B-Instruct", "tiiuae/Falcon-H1-34B-Instruct"],
    head_max: super::HEAD_MAX,
    from_config,
    from_gguf,
};

fn from_config(fields: &Fields) -> Result<Decoder> {
    refuse_bias(fields, FAMILY.name)?;
    refuse_flag(fields, FAMILY.name, "projectors_bias")?;
    let normed = fields.bool_or("mamba_rms_norm", false)?;
    if normed && fields.bool_or("mamba_norm_before_gate", true)? {
        let feature = "mamba_rms_norm with mamba_norm_before_gate".into();
        return Err(ModelError::Feature { family: FAMILY.name, feature });
    }
    let mamba = match fields.u32_opt("mamba_d_ssm")? {
        Some(values) => mamba::read_parts(fields, FAMILY.name, &Keys::USUAL, values)?,
        None => mamba::read_config(fields, FAMILY.name, &Keys::USUAL)?,
    };
    let decoder = llama::read_config(fields, FAMILY.name, 10_000.0)?;
    let one = |key: &str| factor(fields, key, fields.f64_or(key, 1.0)?);
    let [gate, down] = factors(fields, "mlp_multipliers")?;
    let (attended, into) = (one("attention_in_multiplier")?, one("ssm_in_multiplier")? as f32);
    let scales = Scales {
        query: attended as f32,
        key: (attended * one("key_multiplier")?) as f32,
        value: attended as f32,
        output: one("attention_out_multiplier")? as f32,
        mamba: factors(fields, "ssm_multipliers")?.map(|own| into * own),
        mamba_out: one("ssm_out_multiplier")? as f32,
        gate,
        down,
    };
    Ok(Decoder {
        naming: Naming::FalconH1,
        embed_scale: one("embedding_multiplier")?,
        logits_divisor: (1.0 / one("lm_head_multiplier")?) as f32,
        scales,
        ..beside(decoder, Mamba { normed, ..mamba })
    })
}

/// A factor that f32 holds, also multiplied by another. Error: it is none.
fn factor(fields: &Fields, key: &str, value: f64) -> Result<f64> {
    let good = (1e-9..=1e9).contains(&value);
    good.then_some(value).ok_or_else(|| fields.bad(key, format!("has the factor {value}, not one from 1e-9 to 1e9")))
}

/// A list of factors; ones if the file has none.
fn factors<const N: usize>(fields: &Fields, key: &str) -> Result<[f32; N]> {
    if fields.get(key).is_none() {
        return Ok([1.0; N]);
    }
    let numbers = fields.floats(key)?;
    for number in &numbers {
        factor(fields, key, f64::from(*number))?;
    }
    <[f32; N]>::try_from(&numbers[..]).map_err(|_| fields.bad(key, format!("has {} numbers, not {N}", numbers.len())))
}

fn from_gguf(metadata: &Metadata) -> Result<Decoder> {
    let mamba = mamba::read_gguf(metadata, FAMILY.architecture)?;
    let decoder = llama::read_gguf(metadata, FAMILY.name, FAMILY.architecture, 10_000.0)?;
    let normed = metadata.has_tensor("blk.0.ssm_norm.weight");
    Ok(beside(decoder, Mamba { normed, ..mamba }))
}

/// The decoder with Mamba beside each layer's attention.
fn beside(mut decoder: Decoder, mamba: Mamba) -> Decoder {
    for layer in &mut decoder.layers {
        if let Mixer::Attention(attention) = &layer.mixer {
            layer.mixer = Mixer::Beside(attention.clone(), mamba);
        }
    }
    decoder
}
