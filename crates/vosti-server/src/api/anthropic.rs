//! `/v1/messages`: Anthropic's Messages, and their token counts.

mod input;

use super::blocks::{Block, Blocks, Change};
use super::body::Payload;
use super::chat::receipt;
use super::conversation::{self, Begun};
use super::prepare::Prepared;
use super::turn::Turn;
use super::usage::id;
use super::{ApiError, ErrorBody};
use crate::answer::{Answers, Delta};
use crate::app::App;
use crate::flow::{Flow, Step};
use crate::receipt::Receipt;
use crate::service::Service;
use crate::stream;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
pub use input::{CountRequest, MessagesRequest};
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;
use utoipa::ToSchema;
use vosti_engine::FinishReason;

/// Answers as Anthropic's Messages do.
#[utoipa::path(post, path = "/v1/messages", tag = "completions", request_body = MessagesRequest,
    security(("key" = [])), responses(
        (status = 200, description = "The message; with `stream`, its events", body = Object),
        (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub async fn create(
    State(app): State<Arc<App>>,
    Payload(request, told): Payload<MessagesRequest>,
) -> Result<Response, ApiError> {
    let begun = conversation::begin(app, request.into_chat()?, &told).await;
    let Begun { service, prepared, mut flow, stream, .. } = begun.map_err(|error| error.renamed(&NAMES))?;
    told.rename(&NAMES);
    let mut writer = MessagesWriter::new(service, prepared);
    if stream {
        return Ok(stream::respond(flow, writer));
    }
    while let Some(step) = flow.next().await? {
        stream::Writer::step(&mut writer, &flow, step);
    }
    Ok(Json(writer.message(&flow.answers)).into_response())
}

/// Tokens of a conversation.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct TokenCount {
    pub input_tokens: usize,
}

/// Counts the tokens of a conversation, rendered as an answer to it would see it.
#[utoipa::path(post, path = "/v1/messages/count_tokens", tag = "tokens", request_body = CountRequest,
    security(("key" = [])), responses(
        (status = 200, body = TokenCount), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub async fn count(
    State(app): State<Arc<App>>,
    Payload(request, _): Payload<CountRequest>,
) -> Result<Json<TokenCount>, ApiError> {
    let tokens = conversation::prompt(app, request.into_chat()?).await.map_err(|error| error.renamed(&NAMES))?;
    Ok(Json(TokenCount { input_tokens: tokens.len() }))
}

/// This API's names for the fields of a chat request.
const NAMES: [(&str, &str); 6] = [
    (".function.parameters", ".input_schema"),
    (".function", ""),
    ("stop", "stop_sequences"),
    ("response_format.json_schema", "output_config.format"),
    ("response_format", "output_config.format"),
    ("continue_final_message", "messages"),
];

/// Writes events, and the message they add up to.
struct MessagesWriter {
    service: Arc<Service>,
    prepared: Prepared,
    id: String,
    turn: Turn,
    blocks: Blocks,
    stop_reason: Option<&'static str>,
    stop_sequence: Option<String>,
    receipt: Option<Receipt>,
}

impl MessagesWriter {
    fn new(service: Arc<Service>, prepared: Prepared) -> Self {
        let id = id("msg");
        let turn = Turn::new(&prepared, &id, 0);
        let blocks = Blocks::default();
        Self { service, prepared, id, turn, blocks, stop_reason: None, stop_sequence: None, receipt: None }
    }

    /// A block as it began, or as far as it came.
    fn block(&self, index: usize, begun: bool) -> Value {
        match &self.blocks.all[index] {
            // A signature lets a server check thoughts that a client sends back; this server needs none.
            Block::Thought(text) => {
                json!({ "type": "thinking", "thinking": if begun { "" } else { text }, "signature": "" })
            }
            Block::Text(text) => json!({ "type": "text", "text": if begun { "" } else { text } }),
            Block::Call { id, name, arguments } => {
                // Arguments that the answer's end cut off are not JSON, and the API has no field for a part of them.
                let input = Some(arguments).filter(|_| !begun).and_then(|text| serde_json::from_str(text).ok());
                json!({ "type": "tool_use", "id": id, "name": name, "input": input.unwrap_or_else(|| json!({})) })
            }
        }
    }

    fn usage(answers: &Answers) -> Value {
        let usage = answers.usage();
        json!({
            "input_tokens": usage.prompt_tokens - usage.cached_tokens, "output_tokens": usage.generated_tokens,
            "cache_read_input_tokens": usage.cached_tokens, "cache_creation_input_tokens": 0,
        })
    }

    fn message(&self, answers: &Answers) -> Value {
        let content: Vec<Value> = (0..self.blocks.all.len()).map(|index| self.block(index, false)).collect();
        let mut message = json!({
            "id": self.id, "type": "message", "role": "assistant", "model": self.prepared.model, "content": content,
            "stop_reason": self.stop_reason, "stop_sequence": self.stop_sequence, "usage": Self::usage(answers),
            "system_fingerprint": self.service.identity.fingerprint, "vosti_seed": self.prepared.seed,
        });
        if let Some(receipt) = &self.receipt {
            message["vosti_receipt"] = json!(receipt);
        }
        message
    }

    fn end(&mut self, answers: &Answers, delta: &Delta) {
        let Some(end) = &delta.end else { return };
        if let FinishReason::StopString(index) = end.reason {
            self.stop_sequence = self.prepared.job.sampling.stop_strings.get(index).cloned();
        }
        self.stop_reason = Some(match end.reason.as_api() {
            _ if self.turn.called(end) => "tool_use",
            "length" => "max_tokens",
            _ if self.stop_sequence.is_some() => "stop_sequence",
            _ => "end_turn",
        });
        self.receipt = receipt(&self.service, &self.prepared, answers, delta, end.reason.as_api());
    }

    fn changed(&self, index: usize, change: Change) -> Value {
        match change {
            Change::Begin => {
                json!({ "type": "content_block_start", "index": index, "content_block": self.block(index, true) })
            }
            Change::More(more) => {
                let delta = match &self.blocks.all[index] {
                    Block::Thought(_) => json!({ "type": "thinking_delta", "thinking": more }),
                    Block::Text(_) => json!({ "type": "text_delta", "text": more }),
                    Block::Call { .. } => json!({ "type": "input_json_delta", "partial_json": more }),
                };
                json!({ "type": "content_block_delta", "index": index, "delta": delta })
            }
            Change::End => json!({ "type": "content_block_stop", "index": index }),
        }
    }
}

impl stream::Writer for MessagesWriter {
    type Chunk = Value;

    const END: Option<&'static str> = None;

    fn name(chunk: &Value) -> Option<&str> {
        chunk["type"].as_str()
    }

    fn begin(&mut self, flow: &Flow) -> Vec<Value> {
        let mut message = self.message(&flow.answers);
        let prompt = self.prepared.job.prompts.iter().map(|prompt| prompt.len()).sum::<usize>();
        message["usage"]["input_tokens"] = prompt.into();
        vec![json!({ "type": "message_start", "message": message })]
    }

    fn step(&mut self, flow: &Flow, step: Step) -> Vec<Value> {
        let Step::Answer(delta) = step else { return Vec::new() };
        let parts = self.turn.take(&delta);
        self.end(&flow.answers, &delta);
        let mut changes = self.blocks.take(parts);
        if delta.end.is_some() {
            changes.extend(self.blocks.finish());
        }
        changes.into_iter().map(|(index, change)| self.changed(index, change)).collect()
    }

    fn end(&mut self, flow: &Flow) -> Vec<Value> {
        let mut delta = json!({ "stop_reason": self.stop_reason, "stop_sequence": self.stop_sequence });
        if let Some(receipt) = &self.receipt {
            delta["vosti_receipt"] = json!(receipt);
        }
        let usage = Self::usage(&flow.answers);
        vec![json!({ "type": "message_delta", "delta": delta, "usage": usage }), json!({ "type": "message_stop" })]
    }
}
