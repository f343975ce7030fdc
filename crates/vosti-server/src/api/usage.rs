//! Token counts, and the parts of a response that every kind has.

use serde::Serialize;
use std::time::{SystemTime, UNIX_EPOCH};
use utoipa::ToSchema;

/// Tokens of a whole request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Usage {
    /// Each prompt once, however many answers it got.
    pub prompt_tokens: usize,
    /// All answers together.
    pub completion_tokens: usize,
    pub total_tokens: usize,
    pub prompt_tokens_details: PromptTokensDetails,
    /// Only for conversations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_tokens_details: Option<CompletionTokensDetails>,
}

/// Where prompt tokens came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct PromptTokensDetails {
    /// Prompt tokens that came from the prefix cache.
    pub cached_tokens: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct CompletionTokensDetails {
    /// Tokens of thoughts, without their tags, if thoughts are separated from the answer.
    pub reasoning_tokens: usize,
}

impl Usage {
    /// With so many tokens of thoughts among the answers'.
    pub fn with_thoughts(self, reasoning_tokens: usize) -> Self {
        Self { completion_tokens_details: Some(CompletionTokensDetails { reasoning_tokens }), ..self }
    }
}

impl From<vosti_engine::Usage> for Usage {
    fn from(usage: vosti_engine::Usage) -> Self {
        Self {
            prompt_tokens: usage.prompt_tokens,
            completion_tokens: usage.generated_tokens,
            total_tokens: usage.prompt_tokens + usage.generated_tokens,
            prompt_tokens_details: PromptTokensDetails { cached_tokens: usage.cached_tokens },
            completion_tokens_details: None,
        }
    }
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// `PREFIX-` and 16 hex digits, fresh with every call.
pub fn id(prefix: &str) -> String {
    format!("{prefix}-{:016x}", fresh())
}

/// A random number of the operating system.
pub fn fresh() -> u64 {
    getrandom::u64().expect("an operating system has random numbers")
}
