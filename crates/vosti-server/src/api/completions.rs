//! `/v1/completions`: text or tokens to continue, or to score.

use super::body::{Body, Payload, Told};
use super::chat::{receipt, wants_stream};
use super::conversation::encode;
use super::fields::{Seed, Shared, UsageIn, request};
use super::foreign::Place;
use super::logprobs::{PromptLogprobs, TextLogprobs, prompt_entry};
use super::prepare::{self, Ask, Prepared};
use super::usage::{Usage, id, now};
use super::{ApiError, ErrorBody};
use crate::answer::{Answers, Delta};
use crate::app::App;
use crate::flow::{Flow, Step};
use crate::job::Experts;
use crate::receipt::Receipt;
use crate::service::Service;
use crate::{stream, submit};
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::ToSchema;
use vosti_engine::Token;
use vosti_engine::logprobs::Logprobs;

request! {
    /// Text to be continued.
    #[derive(Default)]
    pub struct CompletionRequest {
        /// A text, several, a list of token ids, or several such lists.
        pub prompt: Prompt,
        /// The text after the answer: the model fills the gap between the prompt and this text. Only with a prompt of one
        /// text, and a model whose vocabulary has tokens for it (Qwen, StarCoder, Granite, DeepSeek Coder, Code Llama, Codestral, GLM 4.5).
        pub suffix: Option<String>,
        /// Begin the answer's text with the prompt's. With `max_tokens` 0 the prompt is only scored. Default false.
        pub echo: Option<bool>,
        /// Log-probabilities of the answer's tokens (with `echo`, the prompt's too) and of this many of the most likely tokens.
        #[schema(minimum = 0, maximum = 20)]
        pub logprobs: Option<usize>,
    }
}

/// One prompt, or several.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a text, a list of texts, a list of token ids, or a list of such lists")]
pub enum Prompt {
    Text(String),
    Tokens(Vec<Token>),
    Texts(Vec<String>),
    TokenLists(Vec<Vec<Token>>),
}

impl Default for Prompt {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

impl Prompt {
    fn count(&self) -> usize {
        match self {
            Self::Text(_) | Self::Tokens(_) => 1,
            Self::Texts(texts) => texts.len(),
            Self::TokenLists(lists) => lists.len(),
        }
    }

    /// Writes each prompt to the log, as it was sent: a text, or token ids.
    fn log(&self) {
        let text = |text: &String| tracing::info!(prompt = text, "prompt");
        let tokens = |tokens: &Vec<Token>| tracing::info!(prompt_token_ids = ?tokens, "prompt");
        match self {
            Self::Text(one) => text(one),
            Self::Texts(texts) => texts.iter().for_each(text),
            Self::Tokens(one) => tokens(one),
            Self::TokenLists(lists) => lists.iter().for_each(tokens),
        }
    }

    fn into_tokens(self, service: &Service, special: bool, suffix: &str) -> Result<Vec<Vec<Token>>, ApiError> {
        let wrong = |why: String| Err(ApiError::field("suffix", why));
        match self {
            _ if suffix.is_empty() => {}
            Self::Text(before) => match service.tokenizer().encode_gap(&before, suffix, special) {
                Ok(Some(tokens)) => return Ok(vec![tokens]),
                Ok(None) => {
                    return wrong(
                        "suffix needs a model that fills gaps, and this one's vocabulary has no tokens for it".into(),
                    );
                }
                Err(error) => return wrong(error.to_string()),
            },
            _ => return wrong("suffix needs a prompt of one text".into()),
        }
        let encode = |text: String| encode(service, &text, special, "prompt");
        match self {
            Self::Text(text) => Ok(vec![encode(text)?]),
            Self::Texts(texts) => texts.into_iter().map(encode).collect(),
            Self::Tokens(tokens) => Ok(vec![tokens]),
            Self::TokenLists(lists) => Ok(lists),
        }
    }
}

impl Body for CompletionRequest {
    const PLACES: &'static [Place] = &[Place::Completion, Place::Text, Place::StreamOptions, Place::StructuredOutputs];
}

/// A whole answer, or a part of a streamed one.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Completion {
    pub id: String,
    /// `text_completion`.
    pub object: &'static str,
    pub created: u64,
    pub model: String,
    /// The deployment's fingerprint: equal fingerprints, requests and seeds give equal answers.
    pub system_fingerprint: String,
    /// Prompt by prompt, choice by choice.
    pub choices: Vec<CompletionChoice>,
    /// In a stream, only with `stream_options.include_usage`: null except in the last chunk; with `continuous_usage_stats` every
    /// chunk has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Usage>)]
    pub usage: Option<Option<Usage>>,
    /// The seed that was used, the request's or a fresh one. A text if JavaScript could not read it as a number.
    #[schema(value_type = i64)]
    pub vosti_seed: Seed,
}

/// One answer, or more of it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct CompletionChoice {
    pub index: usize,
    pub text: String,
    pub logprobs: Option<TextLogprobs>,
    /// `stop` or `length`; null before the end.
    pub finish_reason: Option<&'static str>,
    /// If asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    pub prompt_logprobs: Option<PromptLogprobs>,
    /// If asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<Token>>,
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

/// Continues text.
#[utoipa::path(post, path = "/v1/completions", tag = "completions", request_body = CompletionRequest,
    security(("key" = [])), responses(
        (status = 200, description = "The answer; with `stream`, server-sent events of Completion and [DONE]",
            content((Completion = "application/json"), (Completion = "text/event-stream"))),
        (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub async fn complete(
    State(app): State<Arc<App>>,
    Payload(request, told): Payload<CompletionRequest>,
) -> Result<Response, ApiError> {
    let Begun { service, prepared, flow, stream, usage_in, echo } = begin(app, request, &told).await?;
    let writer = TextWriter::new(service, prepared, echo, usage_in);
    if stream {
        return Ok(stream::respond(flow, writer));
    }
    Ok(Json(writer.collect(flow).await?).into_response())
}

/// A request that the engine has, and the form of its answer.
pub struct Begun {
    pub service: Arc<Service>,
    pub prepared: Prepared,
    pub flow: Flow,
    pub stream: bool,
    usage_in: UsageIn,
    echo: bool,
}

/// Checks a request and hands it to the engine.
pub async fn begin(app: Arc<App>, mut request: CompletionRequest, told: &Told) -> Result<Begun, ApiError> {
    let arrival = app.arrive();
    let service = app.service()?;
    let shared = request.shared();
    prepare::check_model(&app, shared.model.as_deref())?;
    let (prompts, choices) = (request.prompt.count(), prepare::choices(&app, &shared)?);
    if prompts == 0 {
        return Err(ApiError::field("prompt", "prompt is empty: give at least one token"));
    }
    let places = app.places.take(prompts.saturating_mul(choices as usize), service.identity.running_max)?;
    let (stream, usage_in) = wants_stream(&shared)?;
    let echo = request.echo.unwrap_or(false);
    if stream && echo && request.logprobs.is_some() {
        return Err(ApiError::field("stream", "echo with logprobs cannot be combined with stream"));
    }

    let (of, with) = (app.clone(), service.clone());
    let begin = async {
        let kind = prepare::work(&shared, false);
        let prepared = app.prepare(kind, move || prepare(&of, &with, request, shared)).await?;
        let running = submit::submit(&service, &prepared.job, places).await?;
        Ok((prepared, running))
    };
    let (mut prepared, running) = arrival.within(&app.config.limits, begin).await?;
    told.warn(prepared.warnings.drain(..));
    let answers = Answers::new(&prepared.job, &service.text);
    let mut flow = Flow::new(app.clone(), running, answers, &prepared.job, arrival);
    flow.repeat().await?;
    Ok(Begun { service, prepared, flow, stream, usage_in, echo })
}

/// Tokenizes and checks.
fn prepare(app: &App, service: &Service, request: CompletionRequest, mut shared: Shared) -> Result<Prepared, ApiError> {
    let echo = request.echo.unwrap_or(false);
    prepare::check_top("logprobs", request.logprobs)?;
    if app.config.log_prompts {
        request.prompt.log();
    }
    // The prompt's log-probabilities, wherever they are shown.
    let of_prompt = shared.prompt_logprobs.max(request.logprobs.filter(|_| echo));
    let suffix = request.suffix.unwrap_or_default();
    let ends = if suffix.is_empty() { &[] } else { service.tokenizer().gap_ends() };
    let ask = Ask {
        prompts: request.prompt.into_tokens(service, shared.add_special_tokens.unwrap_or(true), &suffix)?,
        tokens_default: Some(16),
        may_score: echo || shared.prompt_logprobs.is_some(),
        logprobs: request.logprobs,
        prompt_logprobs: of_prompt,
        held: prepare::held(&mut shared)?,
        ends: ends.to_vec(),
        thinking: None,
        date: None,
        source: "prompt",
        tokens_name: "max_tokens",
    };
    prepare::check_top("prompt_logprobs", shared.prompt_logprobs)?;
    prepare::request(app, service, shared, ask)
}

/// Writes answers.
struct TextWriter {
    service: Arc<Service>,
    prepared: Prepared,
    echo: bool,
    usage_in: UsageIn,
    id: String,
    created: u64,
    /// Whether an answer's first chunk is written.
    begun: Vec<bool>,
    /// Characters of each prompt, if it is part of the text.
    bases: Vec<usize>,
}

impl TextWriter {
    fn new(service: Arc<Service>, prepared: Prepared, echo: bool, usage_in: UsageIn) -> Self {
        let chars = |prompt: &Arc<[Token]>| if echo { service.tokenizer().decode(prompt).chars().count() } else { 0 };
        let bases = prepared.job.prompts.iter().map(chars).collect();
        let begun = vec![false; prepared.job.answers()];
        Self { service, prepared, echo, usage_in, id: id("cmpl"), created: now(), begun, bases }
    }

    fn prompt_of(&self, index: usize) -> usize {
        index / self.prepared.job.choices as usize
    }

    /// The part of an answer before its first token (`begin`), or an empty part.
    fn part(&self, index: usize, begin: bool) -> CompletionChoice {
        let prompt = &self.prepared.job.prompts[self.prompt_of(index)];
        let ids = self.prepared.return_token_ids;
        CompletionChoice {
            index,
            text: if begin && self.echo { self.service.tokenizer().decode(prompt) } else { String::new() },
            logprobs: self.prepared.job.logprobs.map(|_| TextLogprobs::default()),
            finish_reason: None,
            prompt_logprobs: None,
            prompt_token_ids: (begin && ids).then(|| prompt.to_vec()),
            token_ids: ids.then(Vec::new),
            routed_experts: None,
            vosti_receipt: None,
        }
    }

    /// What one update adds to its answer. The only place where this is decided.
    fn choice(&mut self, answers: &Answers, delta: &Delta) -> CompletionChoice {
        let begun = std::mem::replace(&mut self.begun[delta.index], true);
        let mut choice = self.part(delta.index, !begun);
        choice.finish_reason = delta.end.as_ref().map(|end| end.reason.as_api());
        choice.routed_experts = delta.end.as_ref().and_then(|end| end.experts.clone());
        if self.prepared.score_only {
            // The engine's one token is not part of the answer.
            return choice;
        }
        choice.text += &delta.text;
        let base = self.bases[self.prompt_of(delta.index)];
        if let Some(generated) = &delta.token {
            if let Some(columns) = &mut choice.logprobs {
                columns.push_generated(&self.service, generated, base);
            }
            if let Some(ids) = &mut choice.token_ids {
                ids.push(generated.token);
            }
        }
        let reason = choice.finish_reason.unwrap_or_default();
        choice.vosti_receipt = receipt(&self.service, &self.prepared, answers, delta, reason);
        choice
    }

    fn completion(&self, choices: Vec<CompletionChoice>, usage: Option<Option<Usage>>) -> Completion {
        Completion {
            id: self.id.clone(),
            object: "text_completion",
            created: self.created,
            model: self.prepared.model.clone(),
            system_fingerprint: self.service.identity.fingerprint.clone(),
            choices,
            usage,
            vosti_seed: self.prepared.seed,
        }
    }

    fn shown(&self, mut usage: vosti_engine::Usage) -> Usage {
        if self.prepared.score_only {
            usage.generated_tokens = 0;
        }
        usage.into()
    }

    /// The whole answer.
    async fn collect(mut self, mut flow: Flow) -> Result<Completion, ApiError> {
        let mut choices: Vec<Option<CompletionChoice>> = vec![None; self.begun.len()];
        let mut rows: Vec<Vec<Logprobs>> = vec![Vec::new(); self.prepared.job.prompts.len()];
        while let Some(step) = flow.next().await? {
            match step {
                // In order, from position 1 on.
                Step::Prompt { prompt, logprobs, .. } => rows[prompt].push(logprobs),
                Step::Answer(delta) => {
                    let mut more = self.choice(&flow.answers, &delta);
                    if delta.repeated {
                        let CompletionChoice { finish_reason, routed_experts, vosti_receipt, .. } = more;
                        let none = self.part(delta.index, false);
                        more = CompletionChoice { finish_reason, routed_experts, vosti_receipt, ..none };
                    }
                    match &mut choices[delta.index] {
                        Some(choice) => choice.append(more),
                        none => *none = Some(more),
                    }
                }
            }
        }
        let mut choices: Vec<CompletionChoice> = choices.into_iter().flatten().collect();
        if self.prepared.job.prompt_logprobs.is_some() {
            choices.iter_mut().for_each(|choice| self.put_prompt(choice, &rows[self.prompt_of(choice.index)]));
        }
        let usage = self.shown(flow.answers.usage());
        Ok(self.completion(choices, Some(Some(usage))))
    }

    /// Puts the prompt's log-probabilities where they were asked for.
    fn put_prompt(&self, choice: &mut CompletionChoice, rows: &[Logprobs]) {
        let prompt = &self.prepared.job.prompts[self.prompt_of(choice.index)];
        let tokens = || prompt.iter().copied().zip(std::iter::once(None).chain(rows.iter().map(Some)));
        if let Some(top) = self.prepared.prompt_logprobs {
            let entry = |(token, row): (Token, Option<&Logprobs>)| {
                row.map(|row| prompt_entry(&self.service, token, &cut(row, top)))
            };
            choice.prompt_logprobs = Some(tokens().map(entry).collect());
        }
        if let (true, Some(top), Some(answer)) = (self.echo, self.prepared.job.logprobs, choice.logprobs.take()) {
            let mut columns = TextLogprobs::default();
            let mut stream = vosti_engine::text::TextStream::new(self.service.text.clone(), &[]);
            let mut offset = 0;
            for (token, row) in tokens() {
                columns.push(&self.service, token, offset, row.map(|row| cut(row, top)).as_ref());
                offset += stream.push(token).chars().count();
            }
            columns.append(answer);
            choice.logprobs = Some(columns);
        }
    }
}

/// The first `top` of the most likely tokens: `logprobs` and `prompt_logprobs` may ask for different numbers.
fn cut(row: &Logprobs, top: usize) -> Logprobs {
    Logprobs { top: row.top.iter().take(top).copied().collect(), ..*row }
}

impl CompletionChoice {
    fn append(&mut self, more: Self) {
        self.text += &more.text;
        if let (Some(all), Some(more)) = (&mut self.logprobs, more.logprobs) {
            all.append(more);
        }
        if let (Some(all), Some(more)) = (&mut self.token_ids, more.token_ids) {
            all.extend(more);
        }
        self.finish_reason = self.finish_reason.or(more.finish_reason);
        self.routed_experts = self.routed_experts.take().or(more.routed_experts);
        self.vosti_receipt = self.vosti_receipt.take().or(more.vosti_receipt);
    }
}

impl stream::Writer for TextWriter {
    type Chunk = Completion;

    fn step(&mut self, flow: &Flow, step: Step) -> Vec<Completion> {
        let Step::Answer(delta) = step else { return Vec::new() };
        let mut choice = self.choice(&flow.answers, &delta);
        // A chunk leaves out empty lists.
        choice.logprobs = choice.logprobs.filter(|columns| !columns.tokens.is_empty());
        choice.token_ids = choice.token_ids.filter(|ids| !ids.is_empty());
        let says = !choice.text.is_empty() || choice.logprobs.is_some() || choice.finish_reason.is_some();
        if !says && choice.token_ids.is_none() && choice.prompt_token_ids.is_none() {
            return Vec::new();
        }
        let usage = match self.usage_in {
            UsageIn::None => None,
            UsageIn::Last => Some(None),
            UsageIn::Each => Some(Some(self.shown(flow.answers.usage_so_far(&self.prepared.job)))),
        };
        vec![self.completion(vec![choice], usage)]
    }

    fn end(&mut self, flow: &Flow) -> Vec<Completion> {
        let usage = self.shown(flow.answers.usage());
        if self.usage_in != UsageIn::None { vec![self.completion(Vec::new(), Some(Some(usage)))] } else { Vec::new() }
    }
}
