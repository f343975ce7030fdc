//! The list of checked-in kernel texts. It has every text that a model of a supported family needs.
//!
//! A model's dimensions are parameters of a text. Only the room for a head, the number of query heads for each KV head, and the
//! family's layer shape the text. So the list has every family with every room and group, and a new model adds nothing to it.
//! `cargo xtask ttir` makes the TTIR of exactly these. Read next: `plan/mod.rs`, `kernels/specialisations.toml`.

use std::collections::BTreeSet;

use vosti_contract::{Const, Dtype};
use vosti_core::PAGE;
use vosti_kernels::quantised::FORMATS;
use vosti_kernels::{CPU, Spec};

use crate::decoder::{Decoder, Mixer, Mlp};
use crate::error::{ModelError, Result};
use crate::families;
use crate::plan::{Arithmetic, LIST_PART, ModelPlan, Target, plan_with, specs};
use crate::specialise::specialise;

macro_rules! texts {
    ($($name:literal in $path:literal),* $(,)?) => { &[$(($name, include_str!($path))),*] };
}

/// Tiny models of every family. Tests run them in BF16, and in FP32 to compare with transformers.
const TINY: &[(&str, &str)] = texts![
    "llama" in "../tests/tiny/llama/config.json",
    "llama-untied" in "../tests/tiny/llama-untied/config.json",
    "qwen2" in "../tests/tiny/qwen2/config.json",
    "qwen3" in "../tests/tiny/qwen3/config.json",
    "qwen3-ragged" in "../tests/tiny/qwen3-ragged/config.json",
    "ministral" in "../tests/tiny/ministral/config.json",
    "ministral3" in "../tests/tiny/ministral3/config.json",
    "phi3" in "../tests/tiny/phi3/config.json",
    "gemma2" in "../tests/tiny/gemma2/config.json",
    "gemma3" in "../tests/tiny/gemma3/config.json",
    "gemma4" in "../tests/tiny/gemma4/config.json",
    "gemma4-e2b" in "../tests/tiny/gemma4-e2b/config.json",
    "gemma4-e4b" in "../tests/tiny/gemma4-e4b/config.json",
    "gemma4-shared" in "../tests/tiny/gemma4-shared/config.json",
    "gemma4-moe" in "../tests/tiny/gemma4-moe/config.json",
    "olmo2" in "../tests/tiny/olmo2/config.json",
    "olmo3" in "../tests/tiny/olmo3/config.json",
    "granite" in "../tests/tiny/granite/config.json",
    "granite4" in "../tests/tiny/granite4/config.json",
    "granite4-h" in "../tests/tiny/granite4-h/config.json",
    "granite4-moe" in "../tests/tiny/granite4-moe/config.json",
    "smollm3" in "../tests/tiny/smollm3/config.json",
    "qwen3-moe" in "../tests/tiny/qwen3-moe/config.json",
    "olmoe" in "../tests/tiny/olmoe/config.json",
    "mixtral" in "../tests/tiny/mixtral/config.json",
    "granite-moe" in "../tests/tiny/granite-moe/config.json",
    "gpt-oss" in "../tests/tiny/gpt-oss/config.json",
    "lfm2" in "../tests/tiny/lfm2/config.json",
    "lfm2-moe" in "../tests/tiny/lfm2-moe/config.json",
    "qwen3_5" in "../tests/tiny/qwen3_5/config.json",
    "qwen3_5-moe" in "../tests/tiny/qwen3_5-moe/config.json",
    "qwen3-next" in "../tests/tiny/qwen3-next/config.json",
    "glm4-moe" in "../tests/tiny/glm4-moe/config.json",
    "ling" in "../tests/tiny/ling/config.json",
    "ernie4_5" in "../tests/tiny/ernie4_5/config.json",
    "mamba2" in "../tests/tiny/mamba2/config.json",
    "nemotron-h" in "../tests/tiny/nemotron-h/config.json",
    "nemotron-nano" in "../tests/tiny/nemotron-nano/config.json",
    "nemotron3" in "../tests/tiny/nemotron3/config.json",
    "falcon-h1" in "../tests/tiny/falcon-h1/config.json",
    "minimax-m2" in "../tests/tiny/minimax-m2/config.json",
];

/// Models whose weights the tests fetch. They run in FP32 too, to compare with transformers.
const FETCHED: &[(&str, &str)] = texts![
    "smollm2-135m" in "../configs/smollm2-135m.json",
    "gemma-3-270m" in "../configs/gemma-3-270m.json",
];

/// Rooms for a head. A head uses the smallest room that holds it.
const ROOMS: [u32; 6] = [16, 32, 64, 128, 256, 512];

/// Query heads for each KV head, rounded up to a power of two.
const GROUPS: [u32; 5] = [1, 2, 4, 8, 16];
/// The most query heads for each KV head.
pub(crate) const GROUP_MAX: u32 = 16;

/// The most groups of experts in a layer.
pub(crate) const GROUPS_MAX: u32 = 64;

/// Inputs of a channel that a short convolution sees.
pub(crate) const TAPS: [u32; 2] = [3, 4];

/// Sizes of the heads of a gated delta rule. Published models have 128.
pub(crate) const RULES: [u32; 2] = [32, 128];
/// Inputs of a channel that its convolution sees, and that of a Mamba 2 layer.
pub(crate) const RULE_TAPS: u32 = 4;

/// Sizes of a Mamba 2 layer's states: numbers of a key and of a value. Published models have the last five.
pub(crate) const MAMBAS: [(u32, u32); 6] = [(32, 16), (128, 32), (128, 64), (128, 80), (256, 64), (256, 128)];
/// The most columns of a state that a program of a GPU has registers for.
pub(crate) const COLUMNS_MAX_GPU: u32 = 64;

/// Numbers of a key and of a value of a delta rule's state that only tests of its kernel have.
const STATE: (u32, u32) = (32, 16);

/// Experts that a row may choose.
pub(crate) const CHOICES: [u32; 6] = [1, 2, 4, 6, 8, 10];
/// Rooms for a layer's experts: the most experts of each.
const EXPERTS: [u32; 3] = [128, 256, 512];
/// The most experts of a layer.
pub(crate) const EXPERTS_MAX: u32 = 512;

/// Rooms for the stretches of a vocabulary from which a row's list is made: the most stretches of each.
const STRETCHES: [u32; 4] = [1, 16, 64, 128];
/// The most tokens of a vocabulary.
pub(crate) const VOCABULARY_MAX: u32 = 128 * LIST_PART;

/// The texts of a target. Error: the target is unknown.
pub fn inventory(target: &str) -> Result<BTreeSet<Spec>> {
    let mut texts = BTreeSet::new();
    for (name, text) in TINY {
        let (decoder, largest) = read(name, text)?;
        for room in ROOMS.into_iter().filter(|room| *room <= largest) {
            for group in GROUPS {
                texts.extend(needed(&with_heads(&decoder, room, group), target, Dtype::Bf16)?);
            }
        }
    }
    for (name, text) in TINY {
        let decoder = read(name, text)?.0;
        for (chosen, count) in CHOICES.into_iter().zip(EXPERTS.into_iter().cycle()) {
            texts.extend(needed(&with_experts(&decoder, chosen, count), target, Dtype::Bf16)?);
        }
    }
    for taps in TAPS {
        for (name, text) in TINY {
            texts.extend(needed(&with_taps(&read(name, text)?.0, taps), target, Dtype::Bf16)?);
        }
    }
    for size in RULES {
        for (name, text) in TINY {
            texts.extend(needed(&with_rules(&read(name, text)?.0, size), target, Dtype::Bf16)?);
        }
    }
    for size in MAMBAS {
        for (name, text) in TINY {
            texts.extend(needed(&with_mambas(&read(name, text)?.0, size), target, Dtype::Bf16)?);
        }
    }
    let dims = [("KEY_HEADS", 1), ("GROUP", 1), ("DK", STATE.0), ("DV", STATE.1), ("PAGE", PAGE as u32)];
    let dims = dims.map(|(name, value)| (name, Const::Int(value.into())));
    texts.insert(specialise(target, "store_delta", Dtype::F32, &dims)?.text());
    let (name, text) = TINY[0];
    for stretches in STRETCHES {
        let decoder = Decoder { vocab: stretches * LIST_PART, ..read(name, text)?.0 };
        texts.extend(needed(&decoder, target, Dtype::Bf16)?);
    }
    if target == CPU {
        for (name, text) in TINY.iter().chain(FETCHED) {
            texts.extend(needed(&read(name, text)?.0, target, Dtype::F32)?);
        }
    } else {
        let most = i64::from(COLUMNS_MAX_GPU);
        texts.retain(|text| !matches!(text.constants.get("DV"), Some(Const::Int(size)) if *size > most));
    }
    Ok(texts)
}

/// A model, and the largest head size of its family.
fn read(name: &str, text: &str) -> Result<(Decoder, u32)> {
    let config: serde_json::Value = serde_json::from_str(text)
        .map_err(|e| ModelError::Damaged { file: format!("{name}.json"), why: e.to_string() })?;
    let family = config["model_type"].as_str().and_then(families::of_model_type);
    Ok((families::from_config(name, &config)?, family.map_or(0, |family| family.head_max)))
}

/// The model with one KV head and `group` query heads in each layer, all of one size.
fn with_heads(decoder: &Decoder, head_dim: u32, group: u32) -> Decoder {
    let mut changed = decoder.clone();
    for attention in changed.attentions_mut() {
        let turning = attention.rope.rotary == attention.head_dim;
        (attention.heads, attention.kv_heads, attention.head_dim) = (group, 1, head_dim);
        attention.rope.head_dim = head_dim;
        attention.rope.rotary = if turning { head_dim } else { attention.rope.rotary.min(head_dim) };
    }
    changed
}

/// The model with this many experts in each layer that has some, and so many of them for a row.
fn with_experts(decoder: &Decoder, chosen: u32, count: u32) -> Decoder {
    let mut changed = decoder.clone();
    for layer in &mut changed.layers {
        if let Mlp::Experts(experts) | Mlp::Both(_, experts) = &mut layer.mlp {
            (experts.chosen, experts.count) = (chosen, count);
        }
    }
    changed
}

/// The model with convolutions over this many inputs.
fn with_taps(decoder: &Decoder, taps: u32) -> Decoder {
    let mut changed = decoder.clone();
    for layer in &mut changed.layers {
        if let Mixer::ShortConv(conv) = &mut layer.mixer {
            conv.taps = taps;
        }
    }
    changed
}

/// The model with heads of this size in each gated delta rule.
fn with_rules(decoder: &Decoder, size: u32) -> Decoder {
    let mut changed = decoder.clone();
    for layer in &mut changed.layers {
        if let Mixer::DeltaRule(rule) = &mut layer.mixer {
            rule.head_dim = size;
        }
    }
    changed
}

/// The model with states of this size in each Mamba 2 layer.
fn with_mambas(decoder: &Decoder, (state, head_dim): (u32, u32)) -> Decoder {
    let mut changed = decoder.clone();
    for layer in &mut changed.layers {
        if let Mixer::Mamba(mamba) | Mixer::Beside(_, mamba) = &mut layer.mixer {
            (mamba.state, mamba.head_dim) = (state, head_dim);
        }
    }
    changed
}

/// The texts of a model: with its matrices in the activations' type, and with its matrices in blocks.
fn needed(decoder: &Decoder, target: &str, act: Dtype) -> Result<BTreeSet<Spec>> {
    let target = Target::named(target).with_act(act).with_choices().with_arithmetic(Arithmetic::Integers16);
    let mut texts = BTreeSet::new();
    for format in [None, Some(&FORMATS[0])] {
        let plan = plan_with(decoder, &target, Some(1), &|_| format)?;
        texts.extend(specs(&plan).into_iter().map(|spec| spec.text()));
    }
    Ok(texts)
}

/// Checks that the TTIR of every kernel of a plan is built in. Error: the first kernel without TTIR.
pub fn check_kernels(plan: &ModelPlan) -> Result<()> {
    let missing = specs(plan).into_iter().find(|spec| vosti_kernels::ttir(spec).is_none());
    missing.map_or(Ok(()), |spec| Err(ModelError::NoKernel { spec: spec.to_string() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A new constant of a kernel multiplies the number of its texts, so this number is limited.
    #[test]
    fn a_target_has_at_most_two_hundred_texts() {
        for target in vosti_kernels::targets() {
            let texts = inventory(target).unwrap();
            let [bf16, fp32] = [Dtype::Bf16, Dtype::F32].map(|act| texts.iter().filter(|text| text.act == act).count());
            println!("{target}: {bf16} in BF16, {fp32} in FP32");
            assert!((40..=200).contains(&bf16), "{target}: {bf16}");
        }
    }
}
