//! What families with mixtures of experts share: reading the numbers of a mixture, and putting it into a decoder's layers.
//!
//! A router's logits are a product with a matrix of its own; a row's shares are a softmax. Vosti defines that experts are chosen by their
//! logits, the first of equal ones, and that a NaN counts as the lowest. transformers and llama.cpp choose by the softmax, which
//! may make two logits equal. Read next: `plan/mlp.rs`.

use crate::config::Fields;
use crate::decoder::{Activation, Decoder, ExpertTensors, Experts, Gated, Groups, Mlp, Score, Shared};
use crate::error::{ModelError, Result};
use crate::gguf::Metadata;

/// The names of a mixture's numbers in a `config.json`.
pub(super) struct Keys {
    pub count: &'static str,
    pub chosen: &'static str,
    pub width: &'static str,
}

impl Keys {
    /// Those of most families.
    pub const USUAL: Keys =
        Keys { count: "num_experts", chosen: "num_experts_per_tok", width: "moe_intermediate_size" };
    /// Those of families that call experts local, and whose perceptrons are experts.
    pub const LOCAL: Keys = Keys { count: "num_local_experts", width: "intermediate_size", ..Keys::USUAL };
}

/// Reads a mixture. `normed`: whether shares are divided by their sum.
pub(super) fn read_config(fields: &Fields, keys: Keys, normed: bool, tensors: ExpertTensors) -> Result<Experts> {
    Ok(Experts {
        count: fields.u32(keys.count)?,
        chosen: fields.u32(keys.chosen)?,
        width: fields.u32(keys.width)?,
        activation: Activation::Silu,
        score: Score::Softmax,
        groups: groups(fields.u32_or("n_group", 1)?, fields.u32_or("topk_group", 1)?),
        normed,
        scale: 1.0,
        shared: None,
        tensors,
    })
}

/// One group is none.
fn groups(count: u32, kept: u32) -> Option<Groups> {
    (count > 1).then_some(Groups { count, kept })
}

/// The groups of a GGUF file.
pub(super) fn stored_groups(metadata: &Metadata, architecture: &str) -> Result<Option<Groups>> {
    let number = |name: &str| metadata.u32_or(&format!("{architecture}.{name}"), 1);
    Ok(groups(number("expert_group_count")?, number("expert_group_used_count")?))
}

/// A mixture whose shares are sigmoids times a factor, beside a perceptron of so many units that every row has.
pub(super) fn sigmoids(mixture: Experts, scale: f64, shared: Option<Gated>) -> Experts {
    let shared = shared.filter(|mlp| mlp.width > 0).map(|mlp| Shared { mlp, gated: false });
    Experts { score: Score::Sigmoid, scale, shared, ..mixture }
}

/// Refuses a GGUF file whose router has scores that are no sigmoid.
pub(super) fn expect_sigmoid(metadata: &Metadata, family: &'static str, architecture: &str) -> Result<()> {
    // 0 is llama.cpp's default, and 2 the sigmoid.
    if [0, 2].contains(&metadata.u32_or(&format!("{architecture}.expert_gating_func"), 0)?) {
        return Ok(());
    }
    let feature = "a router whose scores are no sigmoid (expert_gating_func)".into();
    Err(ModelError::Feature { family, feature })
}

/// Reads a mixture of a GGUF file, which may have gates and ups in one tensor. A file that does not give an expert's width means the
/// perceptron's.
pub(super) fn read_gguf(metadata: &Metadata, architecture: &str, normed: bool) -> Result<Experts> {
    let key = |name: &str| format!("{architecture}.{name}");
    let width = match metadata.u32_opt(&key("expert_feed_forward_length"))? {
        Some(width) => width,
        None => metadata.u32(&key("feed_forward_length"))?,
    };
    let layers = metadata.layers(&key("block_count"))?;
    let fused = (0..layers).any(|i| metadata.has_tensor(&format!("blk.{i}.ffn_gate_up_exps.weight")));
    Ok(Experts {
        count: metadata.u32(&key("expert_count"))?,
        chosen: metadata.u32(&key("expert_used_count"))?,
        width,
        activation: Activation::Silu,
        score: Score::Softmax,
        groups: stored_groups(metadata, architecture)?,
        normed,
        scale: 1.0,
        shared: None,
        tensors: if fused { ExpertTensors::Fused } else { ExpertTensors::Apart },
    })
}

/// Replaces the perceptron of each layer of a GGUF file that has a router.
pub(super) fn put_stored(decoder: Decoder, metadata: &Metadata, experts: &Experts) -> Decoder {
    put(decoder, experts, |i| routes(metadata, i))
}

/// Whether a layer of a GGUF file has a router.
pub(super) fn routes(metadata: &Metadata, layer: usize) -> bool {
    metadata.has_tensor(&format!("blk.{layer}.ffn_gate_inp.weight"))
}

/// Replaces the perceptron of each layer for which `sparse` is true.
pub(super) fn put(mut decoder: Decoder, experts: &Experts, sparse: impl Fn(usize) -> bool) -> Decoder {
    let layers = decoder.layers.iter_mut().enumerate();
    layers.filter(|(i, _)| sparse(*i)).for_each(|(_, layer)| layer.mlp = Mlp::Experts(experts.clone()));
    decoder
}
