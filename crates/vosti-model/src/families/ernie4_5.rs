//! ERNIE 4.5, dense: Llama's layer. In the checkpoints the two halves of a head are interleaved, as in llama.cpp's files of
//! Llama.
//!
//! Source: transformers `models/ernie4_5`; llama.cpp's `ernie4_5`, which keeps the order of the checkpoints.

use super::{Family, llama, refuse_flag};
use crate::config::Fields;
use crate::decoder::Decoder;
use crate::error::Result;
use crate::gguf::Metadata;

pub(super) const FAMILY: Family = Family {
    name: "ERNIE 4.5",
    model_types: &["ernie4_5"],
    architecture: "ernie4_5",
    examples: &["baidu/ERNIE-4.5-0.3B-PT"],
    head_max: super::HEAD_MAX,
    from_config,
    from_gguf,
};

fn from_config(fields: &Fields) -> Result<Decoder> {
    refuse_flag(fields, FAMILY.name, "use_bias")?;
    Ok(Decoder { permuted: true, tied: true, ..llama::read_config(fields, FAMILY.name, 500_000.0)? })
}

fn from_gguf(metadata: &Metadata) -> Result<Decoder> {
    Ok(Decoder { permuted: true, ..llama::read_gguf(metadata, FAMILY.name, FAMILY.architecture, 500_000.0)? })
}
