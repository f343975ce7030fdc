//! ollama's API for its clients: `/api/chat`, `/api/generate`, `/api/tags`, `/api/ps`, `/api/show` and `/api/version`.
//!
//! A request becomes a chat or text completion of the other APIs, so one seed gives one answer in all of them. Streams are lines
//! of JSON, and an answer streams unless `stream` is false. A call comes when its arguments are complete. Nothing here pulls,
//! copies or unloads models.

mod input;

use super::blocks::{Block, Blocks, Change};
use super::body::Payload;
use super::error::Said;
use super::prepare::{Prepared, check_model};
use super::turn::{Turn, TurnPart};
use super::usage::id;
use super::{ApiError, completions, conversation};
use crate::answer::{Answers, Delta};
use crate::app::App;
use crate::flow::{Flow, Step};
use crate::service::Service;
use crate::stream;
use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_LENGTH;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use input::Load;
pub use input::{OllamaChat, OllamaGenerate, OllamaShow};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Instant;

/// This API's names for the fields of a chat or text completion.
const NAMES: [(&str, &str); 4] = [
    ("max_tokens", "options.num_predict"),
    ("stop", "options.stop"),
    ("response_format.json_schema.schema", "format"),
    ("response_format", "format"),
];

/// Gives every error below `/api/` ollama's shape, a text, whoever refused: a route, a wrong path, or a missing key.
pub async fn shape(request: Request, next: Next) -> Response {
    let ours = request.uri().path().starts_with("/api/");
    let mut response = next.run(request).await;
    match response.extensions_mut().remove::<Said>() {
        Some(Said(message)) if ours => {
            let (mut parts, _) = response.into_parts();
            parts.headers.remove(CONTENT_LENGTH);
            Response::from_parts(parts, Body::from(json!({ "error": message }).to_string()))
        }
        _ => response,
    }
}

/// Continues a conversation, as ollama does.
#[utoipa::path(post, path = "/api/chat", tag = "ollama", request_body = OllamaChat, security(("key" = [])), responses(
    (status = 200, description = "The answer; unless `stream` is false, lines of JSON", body = Object),
    (status = "4XX", body = Object), (status = 503, body = Object)))]
pub async fn chat(
    State(app): State<Arc<App>>,
    Payload(request, told): Payload<OllamaChat>,
) -> Result<Response, ApiError> {
    if let Some(load) = request.load() {
        return loaded(&app, &load, Shape::Chat);
    }
    let streamed = request.stream.unwrap_or(true);
    let begun = conversation::begin(app, request.into_chat()?, &told).await.map_err(|error| error.renamed(&NAMES))?;
    told.rename(&NAMES);
    answer(begun.service, begun.prepared, begun.flow, streamed, Shape::Chat).await
}

/// Answers or continues a text, as ollama does.
#[utoipa::path(post, path = "/api/generate", tag = "ollama", request_body = OllamaGenerate, security(("key" = [])),
    responses(
        (status = 200, description = "The answer; unless `stream` is false, lines of JSON", body = Object),
        (status = "4XX", body = Object), (status = 503, body = Object)))]
pub async fn generate(
    State(app): State<Arc<App>>,
    Payload(request, told): Payload<OllamaGenerate>,
) -> Result<Response, ApiError> {
    if let Some(load) = request.load() {
        return loaded(&app, &load, Shape::Generate);
    }
    let streamed = request.stream.unwrap_or(true);
    let plain = request.is_plain() || app.service()?.language.chat().is_err();
    if plain {
        let begun = completions::begin(app, request.into_completion()?, &told).await;
        let begun = begun.map_err(|error| error.renamed(&NAMES))?;
        told.rename(&NAMES);
        return answer(begun.service, begun.prepared, begun.flow, streamed, Shape::Generate).await;
    }
    let begun = conversation::begin(app, request.into_chat()?, &told).await.map_err(|error| error.renamed(&NAMES))?;
    told.rename(&NAMES);
    answer(begun.service, begun.prepared, begun.flow, streamed, Shape::Generate).await
}

/// The answer to a request without a text: the model is loaded as long as the server runs.
fn loaded(app: &App, load: &Load, shape: Shape) -> Result<Response, ApiError> {
    app.service()?;
    check_model(app, load.model.as_deref())?;
    let mut line = line(app.model_name(), shape, "", "", Vec::new());
    line.extend([("done".to_string(), true.into()), ("done_reason".into(), load.done_reason.into())]);
    Ok(Json(line).into_response())
}

async fn answer(
    service: Arc<Service>,
    prepared: Prepared,
    mut flow: Flow,
    streamed: bool,
    shape: Shape,
) -> Result<Response, ApiError> {
    let mut writer = OllamaWriter::new(service, prepared, shape);
    if streamed {
        return Ok(stream::lines(flow, writer));
    }
    while let Some(step) = flow.next().await? {
        stream::Writer::step(&mut writer, &flow, step);
    }
    Ok(Json(writer.whole(&flow.answers)).into_response())
}

/// The one model, under each of its names.
#[utoipa::path(get, path = "/api/tags", tag = "ollama", security(("key" = [])),
    responses((status = 200, body = Object), (status = 503, body = Object)))]
pub async fn tags(State(app): State<Arc<App>>) -> Result<Json<Value>, ApiError> {
    let service = app.service()?;
    let digest = service.identity.fingerprint.rsplit('-').next().unwrap_or_default().to_string();
    let model = |name: &String| {
        json!({ "name": name, "model": name, "modified_at": rfc3339(app.started), "size": 0, "digest": digest,
            "details": details(), "context_length": service.identity.context })
    };
    Ok(Json(json!({ "models": app.config.model_names.iter().map(model).collect::<Vec<_>>() })))
}

/// What is known of the model.
#[utoipa::path(post, path = "/api/show", tag = "ollama", request_body = OllamaShow, security(("key" = [])),
    responses((status = 200, body = Object), (status = "4XX", body = Object), (status = 503, body = Object)))]
pub async fn show(
    State(app): State<Arc<App>>,
    Payload(request, _): Payload<OllamaShow>,
) -> Result<Json<Value>, ApiError> {
    let service = app.service()?;
    check_model(&app, request.name().as_deref())?;
    let template = service.language.chat().map_or("", |template| template.source());
    let mut able = vec!["completion"];
    able.extend((!template.is_empty()).then_some("tools"));
    able.extend(template.contains("</think>").then_some("thinking"));
    able.extend(matches!(service.tokenizer().encode_gap("", "", false), Ok(Some(_))).then_some("insert"));
    // ollama's name for one of them.
    let named = |name: &'static str| if name == "repetition_penalty" { "repeat_penalty" } else { name };
    let all = service.defaults.numbers.all();
    let parameters = all.map(|(name, value)| format!("{} {value}", named(name))).collect::<Vec<_>>().join("\n");
    let info = json!({ "general.architecture": "vosti", "vosti.context_length": service.identity.context,
        "vosti.vocab_size": service.identity.vocab, "vosti.system_fingerprint": service.identity.fingerprint });
    Ok(Json(json!({ "modelfile": "", "parameters": parameters, "template": template, "details": details(),
        "model_info": info, "capabilities": able, "modified_at": rfc3339(app.started) })))
}

fn details() -> Value {
    json!({ "parent_model": "", "format": "", "family": "", "families": [], "parameter_size": "", "quantization_level": "" })
}

/// Vosti's version: clients ask for it to see that the server is there.
#[utoipa::path(get, path = "/api/version", tag = "ollama", responses((status = 200, body = Object)))]
pub async fn version() -> Json<Value> {
    Json(json!({ "version": env!("CARGO_PKG_VERSION") }))
}

/// Where an answer's text stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Chat,
    Generate,
}

/// An object with a part of an answer.
fn line(model: &str, shape: Shape, text: &str, thought: &str, calls: Vec<Value>) -> Map<String, Value> {
    let mut message = Map::new();
    match shape {
        Shape::Chat => message.extend([("role".into(), "assistant".into()), ("content".into(), text.into())]),
        Shape::Generate => message.extend([("response".into(), text.into())]),
    }
    message.extend((!thought.is_empty()).then(|| ("thinking".into(), thought.into())));
    message.extend((!calls.is_empty()).then(|| ("tool_calls".into(), calls.into())));
    let mut line = Map::new();
    line.insert("model".into(), model.into());
    line.insert("created_at".into(), rfc3339(super::usage::now()).into());
    match shape {
        Shape::Chat => _ = line.insert("message".into(), message.into()),
        Shape::Generate => line.extend(message),
    }
    line.insert("done".into(), false.into());
    line
}

/// Writes lines, and the object that they add up to.
struct OllamaWriter {
    service: Arc<Service>,
    prepared: Prepared,
    shape: Shape,
    turn: Turn,
    blocks: Blocks,
    begun: Instant,
    first: Option<Instant>,
    done_reason: &'static str,
}

impl OllamaWriter {
    fn new(service: Arc<Service>, prepared: Prepared, shape: Shape) -> Self {
        let turn = Turn::new(&prepared, &id("ollama"), 0);
        let (begun, blocks) = (Instant::now(), Blocks::default());
        Self { service, prepared, shape, turn, blocks, begun, first: None, done_reason: "stop" }
    }

    fn line(&self, text: &str, thought: &str, calls: Vec<Value>) -> Map<String, Value> {
        line(&self.prepared.model, self.shape, text, thought, calls)
    }

    fn call(name: &str, arguments: &str) -> Value {
        // Arguments that the answer's end cut off are not JSON, and the API has no field for a part of them.
        let arguments: Value = serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
        json!({ "function": { "name": name, "arguments": arguments } })
    }

    fn ended(&self, mut line: Map<String, Value>, answers: &Answers) -> Value {
        let usage = answers.usage();
        let first = self.first.unwrap_or_else(Instant::now);
        let nanos = |duration: std::time::Duration| Value::from(duration.as_nanos() as u64);
        line.extend([
            ("done".to_string(), true.into()),
            ("done_reason".into(), self.done_reason.into()),
            ("total_duration".into(), nanos(self.begun.elapsed())),
            ("load_duration".into(), 0.into()),
            ("prompt_eval_count".into(), usage.prompt_tokens.into()),
            ("prompt_eval_duration".into(), nanos(first - self.begun)),
            ("eval_count".into(), usage.generated_tokens.into()),
            ("eval_duration".into(), nanos(first.elapsed())),
            ("system_fingerprint".into(), self.service.identity.fingerprint.as_str().into()),
            ("vosti_seed".into(), json!(self.prepared.seed)),
        ]);
        line.into()
    }

    /// The whole answer.
    fn whole(&self, answers: &Answers) -> Value {
        let (mut text, mut thought, mut calls) = (String::new(), String::new(), Vec::new());
        for block in &self.blocks.all {
            match block {
                Block::Text(more) => text += more,
                Block::Thought(more) => thought += more,
                Block::Call { name, arguments, .. } => calls.push(Self::call(name, arguments)),
            }
        }
        self.ended(self.line(&text, &thought, calls), answers)
    }

    fn changed(&self, index: usize, change: Change) -> Option<Value> {
        let line = match (&self.blocks.all[index], change) {
            (Block::Text(_), Change::More(more)) => self.line(&more, "", Vec::new()),
            (Block::Thought(_), Change::More(more)) => self.line("", &more, Vec::new()),
            (Block::Call { name, arguments, .. }, Change::End) => self.line("", "", vec![Self::call(name, arguments)]),
            _ => return None,
        };
        Some(line.into())
    }

    fn take(&mut self, delta: &Delta) -> Vec<(usize, Change)> {
        if delta.token.is_some() {
            self.first.get_or_insert_with(Instant::now);
        }
        if let Some(end) = &delta.end {
            self.done_reason = end.reason.as_api();
        }
        let parts: Vec<TurnPart> = self.turn.take(delta);
        let mut changes = self.blocks.take(parts);
        if delta.end.is_some() {
            changes.extend(self.blocks.finish());
        }
        changes
    }
}

impl stream::Writer for OllamaWriter {
    type Chunk = Value;

    const END: Option<&'static str> = None;

    fn step(&mut self, _: &Flow, step: Step) -> Vec<Value> {
        let Step::Answer(delta) = step else { return Vec::new() };
        let changes = self.take(&delta);
        changes.into_iter().filter_map(|(index, change)| self.changed(index, change)).collect()
    }

    fn end(&mut self, flow: &Flow) -> Vec<Value> {
        vec![self.ended(self.line("", "", Vec::new()), &flow.answers)]
    }

    fn failed(&mut self, error: &ApiError) -> Value {
        json!({ "error": error.object.message })
    }
}

/// Seconds since 1970 as `2026-11-27T03:52:11Z` (Howard Hinnant's `civil_from_days`).
fn rfc3339(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let (day, month) = (day_of_year - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_time_is_written_as_the_calendar_has_it() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_795_751_531, "2026-11-27T03:52:11Z"),
        ] {
            assert_eq!(super::rfc3339(seconds), text);
        }
    }
}
