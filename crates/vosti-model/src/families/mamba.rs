//! Reading Mamba 2 layers, which families name in their own ways.

use super::{even, refuse_flag};
use crate::config::Fields;
use crate::decoder::{Decoder, Mamba, Mixer};
use crate::error::{ModelError, Result};
use crate::gguf::Metadata;

/// A family's names of the fields of a `config.json`, each with its value if it is missing.
pub(super) struct Keys {
    pub heads: (&'static str, u32),
    /// Values of a head; a size that is missing, or `auto`, is an even part of all values.
    pub size: &'static str,
    pub groups: (&'static str, u32),
    pub state: (&'static str, u32),
    pub expand: (&'static str, u32),
    pub taps: (&'static str, u32),
    pub bias: &'static str,
    pub conv_bias: &'static str,
}

impl Keys {
    /// Granite 4's and Falcon H1's.
    pub const USUAL: Keys = Keys {
        heads: ("mamba_n_heads", 128),
        size: "mamba_d_head",
        groups: ("mamba_n_groups", 1),
        state: ("mamba_d_state", 256),
        expand: ("mamba_expand", 2),
        taps: ("mamba_d_conv", 4),
        bias: "mamba_proj_bias",
        conv_bias: "mamba_conv_bias",
    };
}

/// Reads a `config.json` whose heads are even parts of all values, which are some times the residual stream's.
pub(super) fn read_config(fields: &Fields, family: &'static str, keys: &Keys) -> Result<Mamba> {
    let inner = fields.u32("hidden_size")?.saturating_mul(fields.u32_or(keys.expand.0, keys.expand.1)?);
    read_parts(fields, family, keys, inner)
}

/// Reads a `config.json` whose heads are even parts of `inner` values.
pub(super) fn read_parts(fields: &Fields, family: &'static str, keys: &Keys, inner: u32) -> Result<Mamba> {
    let heads = fields.u32_or(keys.heads.0, keys.heads.1)?;
    let size = even(inner, heads)
        .ok_or_else(|| fields.bad(keys.heads.0, format!("is {heads}, not a divisor of {inner} values")))?;
    let given = match fields.str_opt(keys.size) {
        Ok(Some("auto")) => None,
        _ => fields.u32_opt(keys.size)?,
    };
    if given.is_some_and(|given| given != size) {
        return Err(fields.bad(keys.size, format!("is not {size}, a part of {inner} values for each of {heads} heads")));
    }
    read_sized(fields, family, keys, size)
}

/// Reads a `config.json` with heads of this size.
pub(super) fn read_sized(fields: &Fields, family: &'static str, keys: &Keys, head_dim: u32) -> Result<Mamba> {
    let refuse = |feature: String| Err(ModelError::Feature { family, feature });
    let number = |(key, default)| fields.u32_or(key, default);
    refuse_flag(fields, family, keys.bias)?;
    if !fields.bool_or(keys.conv_bias, true)? {
        return refuse(format!("{} = false", keys.conv_bias));
    }
    // The reference implementations bound a step in different phases, or never.
    if !fields.unbounded("time_step_limit") {
        return refuse("a time_step_limit other than [0, Infinity]".into());
    }
    let (heads, groups) = (number(keys.heads)?, number(keys.groups)?);
    Ok(Mamba {
        groups,
        members: even(heads, groups).ok_or_else(|| fields.bad(keys.groups.0, uneven(groups, heads)))?,
        state: number(keys.state)?,
        head_dim,
        taps: number(keys.taps)?,
        normed: true,
    })
}

/// Reads a GGUF file of this architecture.
pub(super) fn read_gguf(metadata: &Metadata, architecture: &str) -> Result<Mamba> {
    let key = |name: &str| format!("{architecture}.ssm.{name}");
    let (heads, groups) = (metadata.u32(&key("time_step_rank"))?, metadata.u32(&key("group_count"))?);
    let inner = metadata.u32(&key("inner_size"))?;
    let uneven_values = || metadata.bad(&key("inner_size"), format!("is {inner}, not a multiple of {heads} heads"));
    Ok(Mamba {
        groups,
        members: even(heads, groups).ok_or_else(|| metadata.bad(&key("group_count"), uneven(groups, heads)))?,
        state: metadata.u32(&key("state_size"))?,
        head_dim: even(inner, heads).ok_or_else(uneven_values)?,
        taps: metadata.u32(&key("conv_kernel"))?,
        normed: true,
    })
}

/// The decoder with Mamba in these layers.
pub(super) fn put(mut decoder: Decoder, mamba: Mamba, recurrent: &[bool]) -> Decoder {
    for (layer, _) in decoder.layers.iter_mut().zip(recurrent).filter(|(_, recurrent)| **recurrent) {
        layer.mixer = Mixer::Mamba(mamba);
    }
    decoder
}

fn uneven(groups: u32, heads: u32) -> String {
    format!("is {groups}, not a divisor of {heads} heads")
}
