//! `/v1/responses`: OpenAI's Responses, of one turn. Nothing is kept between turns: a client sends the whole conversation.

mod input;

use super::blocks::{Block, Blocks, Change};
use super::body::Payload;
use super::chat::receipt;
use super::conversation::{self, Begun};
use super::prepare::Prepared;
use super::turn::Turn;
use super::usage::{id, now};
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
pub use input::ResponsesRequest;
use serde_json::{Value, json};
use std::sync::Arc;

/// Answers as OpenAI's Responses do.
#[utoipa::path(post, path = "/v1/responses", tag = "completions", request_body = ResponsesRequest,
    security(("key" = [])), responses(
        (status = 200, description = "The response; with `stream`, its events, the last of which has it whole", body = Object),
        (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub async fn respond(
    State(app): State<Arc<App>>,
    Payload(request, told): Payload<ResponsesRequest>,
) -> Result<Response, ApiError> {
    let echo = request.echo();
    let begun = conversation::begin(app, request.into_chat()?, &told).await;
    let Begun { service, prepared, mut flow, stream, .. } = begun.map_err(|error| error.renamed(&NAMES))?;
    told.rename(&NAMES);
    let mut writer = ResponsesWriter::new(service, prepared, echo);
    if stream {
        return Ok(stream::respond(flow, writer));
    }
    while let Some(step) = flow.next().await? {
        stream::Writer::step(&mut writer, &flow, step);
    }
    Ok(Json(writer.response(&flow.answers)).into_response())
}

/// This API's names for the fields of a chat request.
const NAMES: [(&str, &str); 7] = [
    (".function", ""),
    ("max_tokens", "max_output_tokens"),
    ("max_completion_tokens", "max_output_tokens"),
    ("messages", "input"),
    ("response_format.json_schema", "text.format"),
    ("response_format", "text.format"),
    ("reasoning_effort", "reasoning.effort"),
];

/// Writes events, and the response they add up to.
struct ResponsesWriter {
    service: Arc<Service>,
    prepared: Prepared,
    /// The request's fields that a response repeats.
    echo: Value,
    id: String,
    created: u64,
    turn: Turn,
    blocks: Blocks,
    /// Events so far.
    events: usize,
    status: &'static str,
    receipt: Option<Receipt>,
}

impl ResponsesWriter {
    fn new(service: Arc<Service>, prepared: Prepared, echo: Value) -> Self {
        let id = id("resp");
        let turn = Turn::new(&prepared, &id, 0);
        Self {
            service,
            prepared,
            echo,
            id,
            created: now(),
            turn,
            blocks: Blocks::default(),
            events: 0,
            status: "in_progress",
            receipt: None,
        }
    }

    fn event(&mut self, kind: &str, members: Value) -> Value {
        let mut event = json!({ "type": kind, "sequence_number": self.events });
        if let (Some(event), Value::Object(members)) = (event.as_object_mut(), members) {
            event.extend(members);
        }
        self.events += 1;
        event
    }

    fn item_id(&self, index: usize) -> String {
        let kind = match self.blocks.all[index] {
            Block::Thought(_) => "rs",
            Block::Text(_) => "msg",
            Block::Call { .. } => "fc",
        };
        let suffix = self.id.rsplit('-').next().unwrap_or_default();
        format!("{kind}_{suffix}_{index}")
    }

    /// A block as an item of the output: as it began, or as far as it came.
    fn item(&self, index: usize, status: &str, begun: bool) -> Value {
        let id = self.item_id(index);
        let content = if begun { json!([]) } else { json!([self.part(index, false)]) };
        match &self.blocks.all[index] {
            Block::Thought(_) => {
                json!({ "type": "reasoning", "id": id, "summary": [], "content": content, "status": status })
            }
            Block::Text(_) => {
                json!({ "type": "message", "id": id, "role": "assistant", "status": status, "content": content })
            }
            Block::Call { id: call, name, arguments } => {
                let arguments = if begun { "" } else { arguments };
                json!({ "type": "function_call", "id": id, "call_id": call, "name": name, "arguments": arguments,
                    "status": status })
            }
        }
    }

    /// The content of a text or a thought.
    fn part(&self, index: usize, begun: bool) -> Value {
        match &self.blocks.all[index] {
            Block::Thought(text) => json!({ "type": "reasoning_text", "text": if begun { "" } else { text } }),
            Block::Text(text) => {
                json!({ "type": "output_text", "text": if begun { "" } else { text }, "annotations": [], "logprobs": [] })
            }
            Block::Call { .. } => Value::Null,
        }
    }

    /// The events of a change.
    fn changed(&mut self, index: usize, change: Change) -> Vec<Value> {
        let call = matches!(self.blocks.all[index], Block::Call { .. });
        let kind = match self.blocks.all[index] {
            Block::Thought(_) => "response.reasoning_text",
            Block::Text(_) => "response.output_text",
            Block::Call { .. } => "response.function_call_arguments",
        };
        let place = |more: Value| {
            let mut place = json!({ "item_id": self.item_id(index), "output_index": index });
            if let (Some(place), Value::Object(more)) = (place.as_object_mut(), more) {
                if !call {
                    place.insert("content_index".into(), 0.into());
                }
                place.extend(more);
            }
            place
        };
        let text = matches!(self.blocks.all[index], Block::Text(_));
        let done = match &self.blocks.all[index] {
            Block::Thought(all) => json!({ "text": all }),
            Block::Text(all) => json!({ "text": all, "logprobs": [] }),
            Block::Call { name, arguments, .. } => json!({ "name": name, "arguments": arguments }),
        };
        let events: Vec<(String, Value)> = match change {
            Change::Begin => {
                let item = json!({ "output_index": index, "item": self.item(index, "in_progress", true) });
                let part =
                    ("response.content_part.added".to_string(), place(json!({ "part": self.part(index, true) })));
                [("response.output_item.added".to_string(), item)].into_iter().chain((!call).then_some(part)).collect()
            }
            Change::More(delta) => {
                let delta = if text { json!({ "delta": delta, "logprobs": [] }) } else { json!({ "delta": delta }) };
                vec![(format!("{kind}.delta"), place(delta))]
            }
            Change::End => {
                // The last item is incomplete if the answer was cut off.
                let last = index + 1 == self.blocks.all.len();
                let status = if last && self.status == "incomplete" { "incomplete" } else { "completed" };
                let item = json!({ "output_index": index, "item": self.item(index, status, false) });
                let part =
                    ("response.content_part.done".to_string(), place(json!({ "part": self.part(index, false) })));
                [(format!("{kind}.done"), place(done))]
                    .into_iter()
                    .chain((!call).then_some(part))
                    .chain([("response.output_item.done".to_string(), item)])
                    .collect()
            }
        };
        events.into_iter().map(|(kind, members)| self.event(&kind, members)).collect()
    }

    /// The response so far.
    fn response(&self, answers: &Answers) -> Value {
        let ended = self.status != "in_progress";
        let last = self.blocks.all.len().saturating_sub(1);
        let status = |index: usize| if index == last { self.status } else { "completed" };
        let output: Vec<Value> =
            (0..self.blocks.all.len()).map(|index| self.item(index, status(index), false)).collect();
        let usage = answers.usage();
        let usage = json!({
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": { "cached_tokens": usage.cached_tokens },
            "output_tokens": usage.generated_tokens,
            "output_tokens_details": { "reasoning_tokens": self.turn.thought_tokens() },
            "total_tokens": usage.prompt_tokens + usage.generated_tokens,
        });
        let mut response = json!({
            "id": self.id, "object": "response", "created_at": self.created, "status": self.status, "error": null,
            "incomplete_details": (self.status == "incomplete").then(|| json!({ "reason": "max_output_tokens" })),
            "model": self.prepared.model, "output": output, "previous_response_id": null, "store": false,
            "truncation": "disabled", "background": false, "usage": ended.then_some(usage),
            "temperature": self.prepared.job.sampling.temperature, "top_p": self.prepared.job.sampling.top_p,
            "system_fingerprint": self.service.identity.fingerprint, "vosti_seed": self.prepared.seed,
        });
        let more = [("vosti_receipt".to_string(), json!(self.receipt))].into_iter().filter(|_| self.receipt.is_some());
        if let (Some(response), Some(echo)) = (response.as_object_mut(), self.echo.as_object()) {
            response.extend(echo.clone().into_iter().chain(more));
        }
        response
    }

    fn end(&mut self, answers: &Answers, delta: &Delta) {
        let Some(end) = &delta.end else { return };
        self.status = if end.reason.as_api() == "length" { "incomplete" } else { "completed" };
        self.receipt = receipt(&self.service, &self.prepared, answers, delta, end.reason.as_api());
    }
}

impl stream::Writer for ResponsesWriter {
    type Chunk = Value;

    const END: Option<&'static str> = None;

    fn name(chunk: &Value) -> Option<&str> {
        chunk["type"].as_str()
    }

    fn begin(&mut self, flow: &Flow) -> Vec<Value> {
        let response = json!({ "response": self.response(&flow.answers) });
        ["response.created", "response.in_progress"].map(|kind| self.event(kind, response.clone())).into()
    }

    fn step(&mut self, flow: &Flow, step: Step) -> Vec<Value> {
        let Step::Answer(delta) = step else { return Vec::new() };
        self.end(&flow.answers, &delta);
        let mut changes = self.blocks.take(self.turn.take(&delta));
        if delta.end.is_some() {
            changes.extend(self.blocks.finish());
        }
        changes.into_iter().flat_map(|(index, change)| self.changed(index, change)).collect()
    }

    fn end(&mut self, flow: &Flow) -> Vec<Value> {
        let response = json!({ "response": self.response(&flow.answers) });
        let kind = format!("response.{}", self.status);
        vec![self.event(&kind, response)]
    }

    fn failed(&mut self, error: &ApiError) -> Value {
        let object = &error.object;
        let members = json!({ "code": object.code, "message": object.message, "param": object.param });
        self.event("error", members)
    }
}
