//! Log-probabilities as the API shows them: raw, of the model's own logits, before temperature, bias, penalties and grammar.

use crate::answer::Generated;
use crate::service::Service;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use utoipa::ToSchema;
use vosti_engine::Token;
use vosti_engine::logprobs::Logprobs;

/// Most of the most likely tokens that a request may ask for.
pub const TOP_MAX: usize = 20;

/// A chat answer's log-probabilities.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct ChatLogprobs {
    pub content: Vec<ChatLogprob>,
}

/// Of one generated token.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ChatLogprob {
    pub token: String,
    pub logprob: f32,
    /// The token's own bytes; part of a character, perhaps.
    pub bytes: Vec<u8>,
    pub top_logprobs: Vec<TopLogprob>,
}

/// Of one of the most likely tokens.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct TopLogprob {
    pub token: String,
    pub logprob: f32,
    pub bytes: Vec<u8>,
}

/// A text completion's log-probabilities, a column each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct TextLogprobs {
    pub tokens: Vec<String>,
    /// Null for a text's first token, which nothing predicts.
    pub token_logprobs: Vec<Option<f32>>,
    /// The most likely tokens, most likely first.
    #[schema(value_type = Vec<Option<BTreeMap<String, f32>>>)]
    pub top_logprobs: Vec<Option<TopMap>>,
    /// Where each token's text begins, in characters.
    pub text_offset: Vec<usize>,
}

/// Log-probabilities by the token's text, in this order, written as JSON numbers like all others.
#[derive(Clone, Debug, PartialEq)]
pub struct TopMap(Vec<(String, f32)>);

impl Serialize for TopMap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(text, logprob)| (text, logprob)))
    }
}

/// A prompt token's log-probability.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct PromptLogprob {
    pub logprob: f32,
    /// 1 for the most likely.
    pub rank: usize,
    pub decoded_token: String,
}

/// Per prompt token: null for the first, then token ids to log-probabilities.
pub type PromptLogprobs = Vec<Option<BTreeMap<Token, PromptLogprob>>>;

/// Stands for -inf, which JSON has not; other servers write the same number.
const LEAST: f32 = -9999.0;

/// A number that JSON has.
fn finite(logprob: f32) -> f32 {
    if logprob.is_finite() { logprob } else { LEAST }
}

/// A token as text: its own, a control token's name, or `bytes:\xe2` where it is no text.
pub fn token_text(service: &Service, token: Token) -> String {
    let bytes = service.bytes(token);
    if bytes.is_empty() {
        return service.tokenizer().token_name(token).unwrap_or_else(|| format!("token_id:{token}"));
    }
    String::from_utf8(bytes).unwrap_or_else(|error| {
        let escaped: String = error.as_bytes().iter().map(|byte| format!("\\x{byte:02x}")).collect();
        format!("bytes:{escaped}")
    })
}

impl ChatLogprob {
    /// One token with the most likely ones beside it, as text and bytes.
    pub fn of(service: &Service, token: Token, logprobs: &Logprobs) -> Self {
        let top = logprobs.top.iter().map(|(token, logprob)| TopLogprob {
            token: token_text(service, *token),
            logprob: finite(*logprob),
            bytes: service.bytes(*token),
        });
        Self {
            token: token_text(service, token),
            logprob: finite(logprobs.logprob),
            bytes: service.bytes(token),
            top_logprobs: top.collect(),
        }
    }
}

impl TextLogprobs {
    /// Adds a token; `logprobs` is none for a text's first.
    pub fn push(&mut self, service: &Service, token: Token, offset: usize, logprobs: Option<&Logprobs>) {
        self.tokens.push(token_text(service, token));
        self.text_offset.push(offset);
        self.token_logprobs.push(logprobs.map(|l| finite(l.logprob)));
        self.top_logprobs.push(logprobs.map(|l| top_map(service, token, l)));
    }

    /// Adds a generated token; `base` is where the answer's text begins, in characters.
    pub fn push_generated(&mut self, service: &Service, generated: &Generated, base: usize) {
        self.push(service, generated.token, base + generated.offset, generated.logprobs.as_ref());
    }

    /// Adds the tokens of `more` behind these.
    pub fn append(&mut self, more: Self) {
        self.tokens.extend(more.tokens);
        self.token_logprobs.extend(more.token_logprobs);
        self.top_logprobs.extend(more.top_logprobs);
        self.text_offset.extend(more.text_offset);
    }
}

/// The most likely tokens, and the generated one, by text. The second token of an equal text is named by its id.
fn top_map(service: &Service, own: Token, logprobs: &Logprobs) -> TopMap {
    let mut map: Vec<(String, f32)> = Vec::new();
    let shown = logprobs.top.iter().copied();
    let absent = !logprobs.top.is_empty() && !logprobs.top.iter().any(|(token, _)| *token == own);
    for (token, logprob) in shown.chain(absent.then_some((own, logprobs.logprob))) {
        let text = token_text(service, token);
        let there = map.iter().any(|(other, _)| *other == text);
        map.push((if there { format!("token_id:{token}") } else { text }, finite(logprob)));
    }
    TopMap(map)
}

/// One entry of `prompt_logprobs`.
pub fn prompt_entry(service: &Service, token: Token, logprobs: &Logprobs) -> BTreeMap<Token, PromptLogprob> {
    let entry = |token: Token, logprob: f32, rank: usize| {
        (token, PromptLogprob { logprob: finite(logprob), rank, decoded_token: token_text(service, token) })
    };
    let top = logprobs.top.iter().enumerate().map(|(i, (token, logprob))| entry(*token, *logprob, i + 1));
    let mut entries: BTreeMap<Token, PromptLogprob> = top.collect();
    entries.extend([entry(token, logprobs.logprob, logprobs.rank)]);
    entries
}
