//! Sampling flags to the engine's checked parameters.

use super::arguments::Sampling;
use super::values::Seed;
use crate::deployment::Deployment;
use anyhow::{Result, bail};
use std::sync::Arc;
use vosti_engine::text::{Thoughts, TokenText};
use vosti_engine::{Defaults, Given, SamplingParams};
use vosti_model::prompt::Prompt;
use vosti_model::{ChatTemplate, Text};
use vosti_server::grammar::thought::{CLOSE, Thinking};

/// The seed: the user's, or a fresh one.
pub fn seed(arguments: &Sampling) -> u64 {
    match arguments.seed {
        Some(Seed::Given(seed)) => seed,
        // 32 bits are easier to type again.
        None | Some(Seed::Fresh) => getrandom::u32().expect("an operating system has random numbers").into(),
    }
}

/// The defaults, overridden by the flags.
pub fn effective(arguments: &Sampling, deployment: &Deployment) -> Result<Defaults> {
    let defaults = arguments.defaults.of(deployment)?;
    let flags = Given::from(&arguments.numbers);
    let source = match (flags == Given::default(), defaults.source) {
        (true, source) => source,
        (false, Some(_)) => Some("flags, then the model's"),
        (false, None) => Some("flags, then OpenAI's"),
    };
    Ok(Defaults { numbers: flags.over(&defaults.numbers)?, source })
}

/// The thoughts of an answer to this prompt, in which stop strings sleep; none if the model does not think.
pub fn thoughts(own: &Text, template: &ChatTemplate, prompt: &Prompt) -> Option<Thoughts> {
    let thinking = Thinking::of(template.source(), |end| prompt.ends_with(end))?;
    Some(thinking.sleep(own.tokenizer.token_id(CLOSE)))
}

/// Checked parameters of one request.
pub fn checked(arguments: &Sampling, seed: u64, deployment: &Deployment) -> Result<vosti_engine::Sampling> {
    checked_with(arguments, seed, deployment, None)
}

/// The same for an answer that may begin with thoughts.
pub fn checked_with(
    arguments: &Sampling,
    seed: u64,
    deployment: &Deployment,
    thoughts: Option<Thoughts>,
) -> Result<vosti_engine::Sampling> {
    let (vocabulary, own) = (deployment.program().vocab, deployment.text()?);
    if let Some((token, _)) = arguments.logit_bias.iter().find(|(token, _)| *token >= vocabulary) {
        bail!("--logit-bias names token {token}, but the vocabulary ends at {}", vocabulary - 1);
    }
    if let Some(token) = arguments.stop_token.iter().find(|token| **token >= vocabulary) {
        bail!("--stop-token names token {token}, but the vocabulary ends at {}", vocabulary - 1);
    }
    let own_ends = own.tokenizer.eos().filter(|_| !arguments.ignore_eos);
    let stop_tokens = own_ends.chain(arguments.stop_token.iter().copied()).collect();
    let checked = vosti_engine::Sampling::new(SamplingParams {
        logit_bias: arguments.logit_bias.clone(),
        stop_tokens,
        stop_strings: arguments.stop.clone(),
        thoughts,
        text: Some(text(own)),
        tokens_max: arguments.max_tokens.unwrap_or(usize::MAX),
        seed,
        ..SamplingParams::of(effective(arguments, deployment)?.numbers)
    })?;
    Ok(checked)
}

/// The tokenizer as the engine sees it.
pub fn text(own: &Arc<Text>) -> Arc<dyn TokenText> {
    let own = own.clone();
    Arc::new(move |token: u32, out: &mut Vec<u8>| own.tokenizer.append_bytes(token, out))
}
