//! `/tokenize` and `/detokenize`, as vLLM has them.

use super::body::{Body, Payload};
use super::chat::ChatRequest;
use super::foreign::Place;
use super::messages::{Message, Tool, ToolChoice};
use super::{ApiError, ErrorBody, conversation};
use crate::app::{App, Work};
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;
use utoipa::ToSchema;

/// A text, or a conversation.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenizeRequest {
    pub model: Option<String>,
    /// The text; this or `messages`.
    pub prompt: Option<String>,
    /// The conversation, rendered with the model's chat template.
    pub messages: Option<Vec<Message>>,
    /// Begin with the model's beginning-of-text token. Default: true for a text, false for a conversation.
    pub add_special_tokens: Option<bool>,
    /// End with the header of the assistant's turn. Default true.
    pub add_generation_prompt: Option<bool>,
    /// See ChatRequest.
    pub continue_final_message: Option<bool>,
    pub tools: Option<Vec<Tool>>,
    /// See ChatRequest.
    pub tool_choice: Option<ToolChoice>,
    /// See ChatRequest.
    pub chat_template: Option<String>,
    /// See ChatRequest.
    #[schema(value_type = Option<Object>)]
    pub chat_template_kwargs: Option<Map<String, Value>>,
    /// See ChatRequest.
    pub reasoning_effort: Option<String>,
    /// See ChatRequest.
    pub vosti_date: Option<String>,
    /// Add the tokens' texts. Default false.
    pub return_token_strs: Option<bool>,
}

impl Body for TokenizeRequest {
    const PLACES: &'static [Place] =
        &[Place::Tokenize, Place::Message, Place::Part, Place::Call, Place::Tool, Place::Function];
}

/// A text's tokens.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct TokenizeResponse {
    pub count: usize,
    /// Most tokens of prompt and answer together.
    pub max_model_len: usize,
    pub tokens: Vec<u32>,
    /// As the vocabulary writes them.
    pub token_strs: Option<Vec<String>>,
}

/// Tokens that are turned into text.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DetokenizeRequest {
    pub model: Option<String>,
    pub tokens: Vec<u32>,
}

impl Body for DetokenizeRequest {
    const PLACES: &'static [Place] = &[Place::Detokenize];
}

/// The text of tokens.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct DetokenizeResponse {
    pub prompt: String,
}

/// Text to tokens.
#[utoipa::path(post, path = "/tokenize", tag = "tokens", request_body = TokenizeRequest, security(("key" = [])),
    responses((status = 200, body = TokenizeResponse), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub async fn tokenize(
    State(app): State<Arc<App>>,
    Payload(request, _): Payload<TokenizeRequest>,
) -> Result<Json<TokenizeResponse>, ApiError> {
    let arrival = app.arrive();
    let service = app.service()?;
    super::prepare::check_model(&app, request.model.as_deref())?;
    let tokens = match (request.prompt, request.messages) {
        (Some(text), None) => {
            let (service, special) = (service.clone(), request.add_special_tokens.unwrap_or(true));
            app.prepare(Work::Text, move || conversation::encode(&service, &text, special, "prompt")).await?
        }
        (None, Some(messages)) => {
            let conversation = ChatRequest {
                messages,
                tools: request.tools,
                tool_choice: request.tool_choice,
                add_generation_prompt: request.add_generation_prompt,
                continue_final_message: request.continue_final_message,
                add_special_tokens: request.add_special_tokens,
                chat_template: request.chat_template,
                chat_template_kwargs: request.chat_template_kwargs,
                reasoning_effort: request.reasoning_effort,
                vosti_date: request.vosti_date,
                ..ChatRequest::default()
            };
            conversation::prompt(app.clone(), conversation).await?
        }
        _ => return Err(ApiError::field("prompt", "give either prompt or messages")),
    };
    drop(arrival);
    let name = |token: &u32| service.tokenizer().token_name(*token).unwrap_or_default();
    let token_strs = request.return_token_strs.unwrap_or(false).then(|| tokens.iter().map(name).collect());
    Ok(Json(TokenizeResponse { count: tokens.len(), max_model_len: service.identity.context, tokens, token_strs }))
}

/// The facts that a client needs to tokenize and render as this server does.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct TokenizerInfo {
    /// `TokenizersBackend`: Hugging Face's name for the class that reads a `tokenizer.json`.
    pub tokenizer_class: &'static str,
    /// The token that begins a text, if the model has one.
    pub bos_token: Option<String>,
    /// The token that ends a text.
    pub eos_token: Option<String>,
    /// The same as `eos_token`: answers are never padded.
    pub pad_token: Option<String>,
    /// The chat template's text; a base model has none.
    pub chat_template: Option<String>,
    /// Most tokens of prompt and answer together.
    pub model_max_length: usize,
    pub vocab_size: u32,
}

/// The tokenizer's special tokens and the chat template.
#[utoipa::path(get, path = "/tokenizer_info", tag = "tokens", security(("key" = [])),
    responses((status = 200, body = TokenizerInfo), (status = 503, body = ErrorBody)))]
pub async fn info(State(app): State<Arc<App>>) -> Result<Json<TokenizerInfo>, ApiError> {
    let service = app.service()?;
    let (tokenizer, template) = (service.tokenizer(), service.language.chat().ok());
    let name = |token: Option<u32>| token.and_then(|token| tokenizer.token_name(token));
    // Several tokens may end an answer; the template knows which one the model was trained with.
    let own = template.map(|template| template.special_tokens().1.to_string()).filter(|text| !text.is_empty());
    let eos_token = own.or_else(|| name(tokenizer.eos().next()));
    Ok(Json(TokenizerInfo {
        tokenizer_class: "TokenizersBackend",
        bos_token: name(tokenizer.bos()),
        pad_token: eos_token.clone(),
        eos_token,
        chat_template: template.map(|template| template.source().to_string()),
        model_max_length: service.identity.context,
        vocab_size: service.identity.vocab,
    }))
}

/// Tokens to text. Control tokens have no text; bytes that are not UTF-8 are replaced.
#[utoipa::path(post, path = "/detokenize", tag = "tokens", request_body = DetokenizeRequest, security(("key" = [])),
    responses((status = 200, body = DetokenizeResponse), (status = "4XX", body = ErrorBody), (status = 503, body = ErrorBody)))]
pub async fn detokenize(
    State(app): State<Arc<App>>,
    Payload(request, _): Payload<DetokenizeRequest>,
) -> Result<Json<DetokenizeResponse>, ApiError> {
    let service = app.service()?;
    super::prepare::check_model(&app, request.model.as_deref())?;
    let vocab = service.identity.vocab;
    if let Some(token) = request.tokens.iter().find(|token| **token >= vocab) {
        return Err(ApiError::field(
            "tokens",
            format!("token {token} is not in the vocabulary, which ends before {vocab}"),
        ));
    }
    Ok(Json(DetokenizeResponse { prompt: service.tokenizer().decode(&request.tokens) }))
}
