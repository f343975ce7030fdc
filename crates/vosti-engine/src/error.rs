//! The engine's errors. Each message says what to do.

use crate::sampling::SamplingError;

/// Errors of `Engine`.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum EngineError {
    #[error("the prompt is empty: give at least one token")]
    EmptyPrompt,
    #[error(
        "the prompt has {prompt} tokens and the model's context is {context}: shorten the prompt to at most {}",
        context - 1
    )]
    PromptExceedsContext { prompt: usize, context: usize },
    #[error(
        "the prompt has {prompt} tokens and the sequence may reach {tokens}, but the KV pool holds at most {pool} of one \
         sequence: ask for fewer tokens, or give the engine more memory (--kv-memory or --kv-pages)"
    )]
    ExceedsPool { prompt: usize, tokens: usize, pool: usize },
    #[error("token {token} at position {position} of the prompt is outside the vocabulary of {vocab}")]
    TokenOutsideVocabulary { token: u32, position: usize, vocab: u32 },
    #[error("no layer of this deployment reports experts: its model has no mixture of experts, or it runs on a GPU")]
    NoRouting,
    #[error("a request needs at least one choice")]
    NoChoices,
    #[error("{waiting} requests are waiting, and the limit is {limit}: try again later")]
    QueueFull { waiting: usize, limit: usize },
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    #[error("the policy's {what} must be at least 1")]
    PolicyZero { what: &'static str },
    #[error("the device cannot serve: {0}")]
    Device(String),
    #[error(
        "no progress: {setbacks} setbacks in a row ({running} running, {waiting} waiting, {pages_free:?} pages free): this is a bug in \
         the engine, please report it; a larger pool (--kv-memory, --kv-pages) may help until then"
    )]
    Stuck { setbacks: u32, running: usize, waiting: usize, pages_free: Vec<usize> },
    #[error("the engine's thread has ended; start a new engine")]
    Gone,
    #[error("the core refused {operation}: {detail}; this is a bug in the engine, please report it")]
    Core { operation: &'static str, detail: String },
}
