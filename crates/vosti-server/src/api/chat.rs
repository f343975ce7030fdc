//! `/v1/chat/completions`.

use super::body::{Body, Payload};
use super::conversation::{self, Begun};
use super::fields::{Seed, Shared, UsageIn, request};
use super::foreign::Place;
use super::logprobs::{ChatLogprob, ChatLogprobs, PromptLogprobs, prompt_entry};
use super::messages::{CalledFunction, FunctionKind, Message, Tool, ToolCall, ToolChoice};
use super::prepare::Prepared;
use super::turn::{Turn, TurnPart};
use super::usage::{Usage, id, now};
use super::{ApiError, ErrorBody};
use crate::answer::{Answers, Delta, End};
use crate::app::App;
use crate::flow::{Flow, Step};
use crate::job::Experts;
use crate::receipt::Receipt;
use crate::service::Service;
use crate::stream;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value};
use std::sync::Arc;
use utoipa::ToSchema;
use vosti_engine::Token;
use vosti_engine::random::prompt_seed;

request! {
    /// A conversation to be continued.
    #[derive(Default)]
    pub struct ChatRequest {
        pub messages: Vec<Message>,
        /// The same as `max_tokens`; give one of them. Default: what the context leaves.
        #[schema(minimum = -1, value_type = Option<i64>)]
        #[serde(default, deserialize_with = "crate::api::fields::tokens")]
        pub max_completion_tokens: Option<usize>,
        /// Log-probabilities of the answer's tokens. Default false.
        pub logprobs: Option<bool>,
        /// Log-probabilities of this many of the most likely tokens too. Needs `logprobs`.
        #[schema(minimum = 0, maximum = 20)]
        pub top_logprobs: Option<usize>,
        /// Functions that the model may call.
        pub tools: Option<Vec<Tool>>,
        /// Whether the model calls them. Default: the model decides.
        pub tool_choice: Option<ToolChoice>,
        /// Allow more than one call in an answer. Default true.
        pub parallel_tool_calls: Option<bool>,
        /// End the prompt with the header of the assistant's turn. Default true.
        pub add_generation_prompt: Option<bool>,
        /// Leave the last message open, so that the answer continues it. Default false; not with `add_generation_prompt`.
        pub continue_final_message: Option<bool>,
        /// Show the thoughts of a reasoning model in `reasoning_content`. Default true.
        pub include_reasoning: Option<bool>,
        /// Separate thoughts from the answer. Default true; otherwise both are in `content`, as the model wrote them.
        pub separate_reasoning: Option<bool>,
        /// A chat template instead of the model's own. Only on servers that run with `--trust-request-chat-template`.
        pub chat_template: Option<String>,
        /// Further variables of the chat template, such as `enable_thinking`.
        #[schema(value_type = Option<Object>)]
        pub chat_template_kwargs: Option<Map<String, Value>>,
        /// How much a reasoning model thinks. The chat template sees the value as `reasoning_effort`, and `enable_thinking` as
        /// false for `none` and true for any other value. It changes nothing if the template uses neither.
        pub reasoning_effort: Option<String>,
        /// The date, YYYY-MM-DD, that the chat template sees. The default is always 2024-07-26, so that equal requests have equal
        /// answers on any day.
        pub vosti_date: Option<String>,
    }
}

impl Body for ChatRequest {
    const PLACES: &'static [Place] = &[
        Place::Completion,
        Place::Chat,
        Place::StreamOptions,
        Place::Message,
        Place::Part,
        Place::Call,
        Place::Tool,
        Place::Function,
        Place::StructuredOutputs,
    ];
}

/// A whole answer.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ChatCompletion {
    pub id: String,
    /// `chat.completion`.
    pub object: &'static str,
    pub created: u64,
    pub model: String,
    /// The deployment's fingerprint: equal fingerprints, requests and seeds give equal answers.
    pub system_fingerprint: String,
    pub choices: Vec<ChatChoice>,
    pub usage: Usage,
    /// Log-probabilities of the prompt's tokens, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    pub prompt_logprobs: Option<PromptLogprobs>,
    /// If asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<Token>>,
    /// The seed that was used, the request's or a fresh one. A text if JavaScript could not read it as a number.
    #[schema(value_type = i64)]
    pub vosti_seed: Seed,
}

/// One answer.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ChatChoice {
    pub index: usize,
    pub message: AssistantMessage,
    pub logprobs: Option<ChatLogprobs>,
    /// `stop`, `length` or `tool_calls`.
    pub finish_reason: &'static str,
    /// If asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<Token>>,
    /// The experts that each token chose, if asked for: by position of prompt and answer but the last, by layer with a mixture,
    /// in the order of the choice. It comes with the answer's end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Vec<Vec<i32>>>>)]
    pub routed_experts: Option<Experts>,
    /// If asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub vosti_receipt: Option<Receipt>,
}

/// The model's message.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct AssistantMessage {
    /// `assistant`.
    pub role: &'static str,
    /// Null if the model only called functions.
    pub content: Option<String>,
    /// Always null.
    pub refusal: Option<String>,
    /// The thoughts of a reasoning model before its answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
}

/// A part of a streamed answer.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ChatChunk {
    pub id: String,
    /// `chat.completion.chunk`.
    pub object: &'static str,
    pub created: u64,
    pub model: String,
    pub system_fingerprint: String,
    /// Empty in the chunk with the usage.
    pub choices: Vec<ChatChunkChoice>,
    /// Only with `stream_options.include_usage`: null except in the last chunk; with `continuous_usage_stats` every chunk has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Usage>)]
    pub usage: Option<Option<Usage>>,
    #[schema(value_type = i64)]
    pub vosti_seed: Seed,
}

/// The next part of one answer.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ChatChunkChoice {
    pub index: usize,
    pub delta: ChatDelta,
    pub logprobs: Option<ChatLogprobs>,
    pub finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<Token>>,
    /// The experts that each token chose, if asked for: by position of prompt and answer but the last, by layer with a mixture,
    /// in the order of the choice. It comes with the answer's end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Vec<Vec<i32>>>>)]
    pub routed_experts: Option<Experts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub vosti_receipt: Option<Receipt>,
}

/// The next part of a message.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct ChatDelta {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// More of the thoughts of a reasoning model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCallDelta>,
}

/// A call, or more of its arguments.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ToolCallDelta {
    /// The call's number in its answer, from 0.
    pub index: usize,
    /// Only in the first part of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// `function`; only in the first part of the call.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<FunctionKind>,
    pub function: FunctionDelta,
}

/// Name and arguments, or more of the arguments.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct FunctionDelta {
    /// Only in the first part of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// More of the JSON.
    pub arguments: String,
}

/// Continues a conversation.
#[utoipa::path(post, path = "/v1/chat/completions", tag = "completions", request_body = ChatRequest,
    security(("key" = [])), responses(
        (status = 200, description = "The answer; with `stream`, server-sent events of ChatChunk and [DONE]",
            content((ChatCompletion = "application/json"), (ChatChunk = "text/event-stream"))),
        (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub async fn complete(
    State(app): State<Arc<App>>,
    Payload(request, told): Payload<ChatRequest>,
) -> Result<Response, ApiError> {
    let Begun { service, prepared, flow, stream, usage_in } = conversation::begin(app, request, &told).await?;
    let writer = ChatWriter::new(service, prepared, usage_in);
    if stream {
        return Ok(stream::respond(flow, writer));
    }
    Ok(Json(writer.collect(flow).await?).into_response())
}

/// Whether to stream, and which chunks have the usage.
pub fn wants_stream(shared: &Shared) -> Result<(bool, UsageIn), ApiError> {
    let stream = shared.stream.unwrap_or(false);
    if stream && shared.prompt_logprobs.is_some() {
        return Err(ApiError::field("prompt_logprobs", "prompt_logprobs cannot be combined with stream"));
    }
    let options = shared.stream_options.clone().unwrap_or_default();
    let usage = match (options.include_usage.unwrap_or(false), options.continuous_usage_stats.unwrap_or(false)) {
        (true, true) => UsageIn::Each,
        (true, false) => UsageIn::Last,
        (false, _) => UsageIn::None,
    };
    if usage != UsageIn::None && !stream {
        return Err(ApiError::field("stream_options", "stream_options.include_usage needs stream"));
    }
    Ok((stream, usage))
}

/// The receipt of one answer, if it has a chain.
pub fn receipt(
    service: &Service,
    prepared: &Prepared,
    answers: &Answers,
    delta: &Delta,
    finish: &str,
) -> Option<Receipt> {
    let End { chain, .. } = delta.end.as_ref()?;
    let chain = chain.as_ref()?;
    let choices = prepared.job.choices as usize;
    let prompt = delta.index / choices;
    Some(Receipt {
        version: Receipt::VERSION,
        fingerprint: service.identity.fingerprint.clone(),
        model: prepared.model.clone(),
        created: now(),
        date: prepared.date.clone(),
        prompt: prepared.job.prompts[prompt].to_vec(),
        parameters: prepared.parameters.clone()?,
        seed: prompt_seed(prepared.seed.bits(), prompt as u64),
        choice: (delta.index % choices) as u32,
        tokens: answers.tokens(delta.index).to_vec(),
        finish_reason: finish.to_string(),
        links: chain.links().to_vec(),
        digest: chain.finish(),
    })
}

/// Writes chunks, and joins them into one answer if the request does not stream.
struct ChatWriter {
    service: Arc<Service>,
    prepared: Prepared,
    usage_in: UsageIn,
    id: String,
    created: u64,
    /// Per answer.
    choices: Vec<Writing>,
}

/// One answer as it is written.
struct Writing {
    begun: bool,
    turn: Turn,
    calls: usize,
}

impl ChatWriter {
    fn new(service: Arc<Service>, prepared: Prepared, usage_in: UsageIn) -> Self {
        let id = id("chatcmpl");
        let writing = |answer| Writing { begun: false, turn: Turn::new(&prepared, &id, answer), calls: 0 };
        let choices = (0..prepared.job.choices as usize).map(writing).collect();
        Self { service, prepared, usage_in, id, created: now(), choices }
    }

    /// What one update adds to its answer, as the API shows it. The only place where this is decided.
    fn choice(&mut self, answers: &Answers, delta: &Delta) -> ChatChunkChoice {
        let writing = &mut self.choices[delta.index];
        let role = (!std::mem::replace(&mut writing.begun, true)).then_some("assistant");
        let mut more = ChatDelta { role, ..ChatDelta::default() };
        for part in writing.turn.take(delta) {
            match part {
                TurnPart::Thought(text) => more.reasoning_content.get_or_insert_default().push_str(&text),
                TurnPart::Text(text) => more.content.get_or_insert_default().push_str(&text),
                TurnPart::Call { id, name } => {
                    let function = FunctionDelta { name: Some(name), arguments: String::new() };
                    let (id, kind) = (Some(id), Some(FunctionKind::Function));
                    more.tool_calls.push(ToolCallDelta { index: writing.calls, id, kind, function });
                    writing.calls += 1;
                }
                TurnPart::Arguments(json) => match more.tool_calls.last_mut() {
                    Some(call) => call.function.arguments += &json,
                    None => {
                        let function = FunctionDelta { name: None, arguments: json };
                        let index = writing.calls - 1;
                        more.tool_calls.push(ToolCallDelta { index, id: None, kind: None, function });
                    }
                },
            }
        }
        let finish_reason = delta.end.as_ref().map(|end| match writing.turn.called(end) {
            true => "tool_calls",
            false => end.reason.as_api(),
        });
        let logprobs = delta.token.as_ref().and_then(|generated| {
            let of = ChatLogprob::of(&self.service, generated.token, generated.logprobs.as_ref()?);
            Some(ChatLogprobs { content: vec![of] })
        });
        let token = delta.token.as_ref().filter(|_| self.prepared.return_token_ids);
        ChatChunkChoice {
            index: delta.index,
            delta: more,
            logprobs,
            finish_reason,
            token_ids: token.map(|generated| vec![generated.token]),
            routed_experts: delta.end.as_ref().and_then(|end| end.experts.clone()),
            vosti_receipt: receipt(&self.service, &self.prepared, answers, delta, finish_reason.unwrap_or_default()),
        }
    }

    fn usage(&self, usage: vosti_engine::Usage) -> Usage {
        Usage::from(usage).with_thoughts(self.choices.iter().map(|writing| writing.turn.thought_tokens()).sum())
    }

    fn chunk(&self, choices: Vec<ChatChunkChoice>, usage: Option<Usage>) -> ChatChunk {
        ChatChunk {
            id: self.id.clone(),
            object: "chat.completion.chunk",
            created: self.created,
            model: self.prepared.model.clone(),
            system_fingerprint: self.service.identity.fingerprint.clone(),
            choices,
            usage: (self.usage_in != UsageIn::None).then_some(usage),
            vosti_seed: self.prepared.seed,
        }
    }

    /// The whole answer.
    async fn collect(mut self, mut flow: Flow) -> Result<ChatCompletion, ApiError> {
        let mut choices: Vec<ChatChoice> = (0..self.choices.len()).map(|index| self.empty(index)).collect();
        let prompt = self.prepared.job.prompts[0].clone();
        let mut prompt_logprobs: Option<PromptLogprobs> = self.prepared.job.prompt_logprobs.map(|_| vec![None]);
        while let Some(step) = flow.next().await? {
            match step {
                Step::Prompt { position, logprobs, .. } => {
                    let entry = prompt_entry(&self.service, prompt[position], &logprobs);
                    prompt_logprobs.get_or_insert_default().push(Some(entry));
                }
                Step::Answer(delta) => {
                    let mut more = self.choice(&flow.answers, &delta);
                    if delta.repeated {
                        more = ChatChunkChoice { delta: ChatDelta::default(), logprobs: None, token_ids: None, ..more };
                    }
                    choices[more.index].append(more);
                }
            }
        }
        let usage = self.usage(flow.answers.usage());
        Ok(ChatCompletion {
            id: self.id,
            object: "chat.completion",
            created: self.created,
            system_fingerprint: self.service.identity.fingerprint.clone(),
            choices,
            usage,
            prompt_logprobs,
            prompt_token_ids: self.prepared.return_token_ids.then(|| prompt.to_vec()),
            vosti_seed: self.prepared.seed,
            model: self.prepared.model,
        })
    }

    fn empty(&self, index: usize) -> ChatChoice {
        ChatChoice {
            index,
            message: AssistantMessage {
                role: "assistant",
                content: None,
                refusal: None,
                reasoning_content: None,
                tool_calls: Vec::new(),
            },
            logprobs: self.prepared.job.logprobs.map(|_| ChatLogprobs::default()),
            finish_reason: "length",
            token_ids: self.prepared.return_token_ids.then(Vec::new),
            routed_experts: None,
            vosti_receipt: None,
        }
    }
}

impl ChatChoice {
    fn append(&mut self, more: ChatChunkChoice) {
        if let Some(text) = more.delta.reasoning_content {
            self.message.reasoning_content.get_or_insert_default().push_str(&text);
        }
        if let Some(text) = more.delta.content {
            self.message.content.get_or_insert_default().push_str(&text);
        }
        for delta in more.delta.tool_calls {
            let FunctionDelta { name, arguments } = delta.function;
            match (delta.id, self.message.tool_calls.last_mut()) {
                (None, Some(call)) => call.function.arguments += &arguments,
                (id, _) => self.message.tool_calls.push(ToolCall {
                    id: id.unwrap_or_default(),
                    kind: FunctionKind::Function,
                    function: CalledFunction { name: name.unwrap_or_default(), arguments },
                }),
            }
        }
        if let (Some(all), Some(more)) = (&mut self.logprobs, more.logprobs) {
            all.content.extend(more.content);
        }
        if let (Some(all), Some(more)) = (&mut self.token_ids, more.token_ids) {
            all.extend(more);
        }
        if let Some(reason) = more.finish_reason {
            self.finish_reason = reason;
            self.routed_experts = more.routed_experts;
            self.vosti_receipt = more.vosti_receipt;
            // An empty answer has an empty text; an answer with calls only has no text.
            if self.message.tool_calls.is_empty() {
                self.message.content.get_or_insert_default();
            }
        }
    }
}

impl stream::Writer for ChatWriter {
    type Chunk = ChatChunk;

    fn step(&mut self, flow: &Flow, step: Step) -> Vec<ChatChunk> {
        let Step::Answer(delta) = step else { return Vec::new() };
        let choice = self.choice(&flow.answers, &delta);
        let d = &choice.delta;
        let says = d.role.is_some() || d.content.is_some() || d.reasoning_content.is_some() || !d.tool_calls.is_empty();
        let shows = choice.logprobs.is_some() || choice.token_ids.is_some() || choice.finish_reason.is_some();
        let usage = (self.usage_in == UsageIn::Each).then(|| self.usage(flow.answers.usage_so_far(&self.prepared.job)));
        if says || shows { vec![self.chunk(vec![choice], usage)] } else { Vec::new() }
    }

    fn end(&mut self, flow: &Flow) -> Vec<ChatChunk> {
        let usage = self.usage(flow.answers.usage());
        if self.usage_in != UsageIn::None { vec![self.chunk(Vec::new(), Some(usage))] } else { Vec::new() }
    }
}
