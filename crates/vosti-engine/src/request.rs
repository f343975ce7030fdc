//! The engine's input and output, as plain data.

use crate::Token;
use crate::sampling::Sampling;

/// One prompt, and how many answers to it are wanted.
#[derive(Clone, Debug)]
pub struct Request {
    /// Token ids, at least one. If the model needs BOS, the caller adds it.
    pub prompt: Vec<Token>,
    /// How tokens are drawn, and where an answer ends.
    pub sampling: Sampling,
    /// Answers to this prompt; choice `c` draws with (seed, c, position). They share the prompt's pages.
    pub choices: u32,
    /// Report the row of logits that each token was chosen from (`Event::Token`). If false, a row leaves the device only if the
    /// sampler reads it. The tokens are the same.
    pub token_logits: bool,
    /// Report the logits after every prompt position too (`Event::Prompt`). The request then takes nothing from the
    /// prefix cache, so that every row is computed and can be shown.
    pub prompt_logits: bool,
    /// Report the experts that each position chose (`Event::Routed`), of the prompt and of the answer. The request then takes
    /// nothing from the prefix cache, so that every position is computed.
    pub routed_experts: bool,
    /// May take pages from the prefix cache (it registers its own in any case).
    pub use_prefix_cache: bool,
    /// Separates prefix caches between tenants: blocks are shared only under equal salts.
    pub salt: u64,
    /// For each choice, the tokens that its answer probably begins with; a missing entry means none. They are drafts: one step
    /// checks many of them, and wrong ones change no bit.
    pub foreseen: Vec<Vec<Token>>,
}

impl Request {
    /// A request with one choice, using the prefix cache and reporting its tokens' logits.
    pub fn new(prompt: Vec<Token>, sampling: Sampling) -> Self {
        Self {
            prompt,
            sampling,
            choices: 1,
            token_logits: true,
            prompt_logits: false,
            routed_experts: false,
            use_prefix_cache: true,
            salt: 0,
            foreseen: Vec::new(),
        }
    }
}

/// Identifies a submitted request. An engine never reuses an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Why a choice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FinishReason {
    /// A stop token was sampled; it is the last token reported.
    StopToken(Token),
    /// The text contains stop string number `.0`; the token that completed it is the last one reported.
    StopString(usize),
    /// The constraint (grammar) is complete.
    Constraint,
    /// `tokens_max` tokens were generated.
    Length,
    /// The deployment's context holds no further token.
    ContextFull,
    /// `Engine::abort` ended it.
    Aborted,
}

impl FinishReason {
    /// The `finish_reason` of the OpenAI API.
    pub fn as_api(self) -> &'static str {
        match self {
            Self::StopToken(_) | Self::StopString(_) | Self::Constraint => "stop",
            Self::Length | Self::ContextFull => "length",
            Self::Aborted => "abort",
        }
    }
}

/// Token counts of one choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Prompt tokens that came from the prefix cache when the choice was first scheduled.
    pub cached_tokens: usize,
    /// Tokens of the answer, its last one (a stop token, for example) included.
    pub generated_tokens: usize,
}

/// One event of a step. `logits` is the device's own row: FP32, one per token of the vocabulary, before any change by the
/// sampler. The callback must copy what it keeps. The row is canonical: a function of the tokens up to `position` alone.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the fields are those of the request: its id, the choice, its token at a position")]
pub enum Event<'a> {
    /// The choice's first event: its prompt is about to be computed.
    Started { request: RequestId, choice: u32 },
    /// Only with `Request::prompt_logits`: the row after prompt position `position`, which predicts
    /// prompt token `position + 1`. Reported once for every position but the prompt's last, in ascending order.
    Prompt { request: RequestId, choice: u32, position: usize, logits: &'a [f32] },
    /// Only with `Request::routed_experts`: the experts that the token at `position` chose in each mixture of experts, each layer's
    /// in the order of its choice. Reported once for every position but the sequence's last, in ascending order, before the token at
    /// the next position.
    Routed { request: RequestId, choice: u32, position: usize, experts: &'a [Vec<i32>] },
    /// A generated token, in order. `logits` is the row at `position` that it was sampled from, so the token itself is at
    /// `position + 1` of the sequence. It is `Some` exactly with `Request::token_logits`.
    Token {
        request: RequestId,
        choice: u32,
        /// 0 for the first generated token.
        index: usize,
        position: usize,
        token: Token,
        logits: Option<&'a [f32]>,
    },
    /// The choice's last event.
    Finished { request: RequestId, choice: u32, reason: FinishReason, usage: Usage },
}

impl Event<'_> {
    /// The request that the event belongs to.
    pub fn request(&self) -> RequestId {
        match self {
            Event::Started { request, .. }
            | Event::Prompt { request, .. }
            | Event::Routed { request, .. }
            | Event::Token { request, .. }
            | Event::Finished { request, .. } => *request,
        }
    }

    /// The choice of the request, from 0.
    pub fn choice(&self) -> u32 {
        match self {
            Event::Started { choice, .. }
            | Event::Prompt { choice, .. }
            | Event::Routed { choice, .. }
            | Event::Token { choice, .. }
            | Event::Finished { choice, .. } => *choice,
        }
    }
}
