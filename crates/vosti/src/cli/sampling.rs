//! Sampling flags to the engine's checked parameters.

use super::arguments::Sampling;
use crate::deployment::Deployment;
use anyhow::{Result, bail};
use std::sync::Arc;
use vosti_engine::SamplingParams;
use vosti_engine::text::TokenText;
use vosti_model::{SamplingDefaults, Text};

/// The seed: the user's, or a fresh one.
pub fn seed(arguments: &Sampling) -> u64 {
    // `RandomState` is seeded by the operating system; 32 bits are easier to type again.
    arguments.seed.unwrap_or_else(|| {
        use std::hash::{BuildHasher, Hasher};
        std::collections::hash_map::RandomState::new().build_hasher().finish() & 0xffff_ffff
    })
}

/// The defaults, overridden by the flags.
pub fn effective(arguments: &Sampling, own: &Text) -> SamplingDefaults {
    let defaults = arguments.defaults.of(own);
    let numbers = [arguments.temperature, arguments.top_p, arguments.min_p, arguments.repetition_penalty];
    let source = match (arguments.top_k.is_some() || numbers.iter().any(Option::is_some), defaults.source) {
        (false, source) => source,
        (true, Some(_)) => Some("flags, then the model's"),
        (true, None) => Some("flags, then OpenAI's"),
    };
    SamplingDefaults {
        temperature: arguments.temperature.unwrap_or(defaults.temperature),
        top_k: arguments.top_k.unwrap_or(defaults.top_k),
        top_p: arguments.top_p.unwrap_or(defaults.top_p),
        min_p: arguments.min_p.unwrap_or(defaults.min_p),
        repetition_penalty: arguments.repetition_penalty.unwrap_or(defaults.repetition_penalty),
        source,
    }
}

/// Checked parameters of one request.
pub fn checked(arguments: &Sampling, seed: u64, deployment: &Deployment) -> Result<vosti_engine::Sampling> {
    let (vocabulary, own) = (deployment.program().vocab, deployment.text()?);
    if let Some((token, _)) = arguments.logit_bias.iter().find(|(token, _)| *token >= vocabulary) {
        bail!("--logit-bias names token {token}, but the vocabulary ends at {}", vocabulary - 1);
    }
    if let Some(token) = arguments.stop_token.iter().find(|token| **token >= vocabulary) {
        bail!("--stop-token names token {token}, but the vocabulary ends at {}", vocabulary - 1);
    }
    let effective = effective(arguments, own);
    let own_ends = own.tokenizer.eos().filter(|_| !arguments.ignore_eos);
    let stop_tokens = own_ends.chain(arguments.stop_token.iter().copied()).collect();
    let checked = vosti_engine::Sampling::new(SamplingParams {
        temperature: effective.temperature,
        top_k: effective.top_k,
        top_p: effective.top_p,
        min_p: effective.min_p,
        repetition_penalty: effective.repetition_penalty,
        presence_penalty: arguments.presence_penalty,
        frequency_penalty: arguments.frequency_penalty,
        logit_bias: arguments.logit_bias.clone(),
        stop_tokens,
        stop_strings: arguments.stop.clone(),
        text: Some(text(own)),
        tokens_max: arguments.max_tokens,
        seed,
        ..SamplingParams::default()
    })?;
    Ok(checked)
}

/// The tokenizer as the engine sees it.
pub fn text(own: &Arc<Text>) -> Arc<dyn TokenText> {
    let own = own.clone();
    Arc::new(move |token: u32, out: &mut Vec<u8>| own.tokenizer.append_bytes(token, out))
}
