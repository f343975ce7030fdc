//! Errors in the API's shape: `{"error": {"message", "type", "param", "code"}}`, with the status that clients act on.

use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;
use vosti_engine::EngineError;

/// The body of every answer that is not a success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ErrorBody {
    /// `error`: Anthropic's clients look for it.
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub error: ErrorObject,
}

/// The problem, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ErrorObject {
    /// For people.
    pub message: String,
    /// `invalid_request_error`, `authentication_error`, `rate_limit_error`, `timeout_error`, `server_error`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The request's field that is wrong, if it is one.
    pub param: Option<String>,
    /// For programs.
    pub code: Option<&'static str>,
}

/// A request that was refused or failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    pub status: StatusCode,
    pub object: ErrorObject,
    /// Seconds after which trying again makes sense.
    pub retry_after: Option<u64>,
}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, code: &'static str, message: impl Into<String>) -> Self {
        let object = ErrorObject { message: message.into(), kind, param: None, code: Some(code) };
        Self { status, object, retry_after: None }
    }

    /// 400: the request as a whole.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", "invalid_request", message)
    }

    /// 400: one field of it.
    pub fn field(param: impl Into<String>, message: impl Into<String>) -> Self {
        let mut error = Self::invalid(message);
        error.object.code = Some("invalid_value");
        error.object.param = Some(param.into());
        error
    }

    /// 400: a field that this server does not have.
    pub fn unsupported(param: impl Into<String>, message: impl Into<String>) -> Self {
        let mut error = Self::field(param, message);
        error.object.code = Some("unsupported_parameter");
        error
    }

    /// The same error for an API with other names for fields: `(here, there)`, whole paths or, behind a dot, steps of them.
    pub fn renamed(mut self, names: &[(&str, &str)]) -> Self {
        let Some(param) = self.object.param.take() else { return self };
        let renamed = renamed(&param, names);
        self.object.message = self.object.message.replace(&param, &renamed);
        self.object.param = Some(renamed);
        self
    }

    /// 400: prompt and answer are longer than the context.
    pub fn context_length(param: &str, message: impl Into<String>) -> Self {
        let mut error = Self::field(param, message);
        error.object.code = Some("context_length_exceeded");
        error
    }

    /// 409: the answer to continue is another deployment's.
    pub fn conflict(param: &str, message: impl Into<String>) -> Self {
        let mut error = Self::new(StatusCode::CONFLICT, "invalid_request_error", "wrong_fingerprint", message);
        error.object.param = Some(param.into());
        error
    }

    /// 401: no key, or one that is not served.
    pub fn unauthorized(message: &str) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "authentication_error", "invalid_api_key", message)
    }

    /// 404: a model by another name.
    pub fn unknown_model(name: &str, served: &str) -> Self {
        let message = format!("the model {name:?} is not served here; {served:?} is");
        let mut error = Self::new(StatusCode::NOT_FOUND, "invalid_request_error", "model_not_found", message);
        error.object.param = Some("model".into());
        error
    }

    /// 404: no such path; the message names a path that was probably meant.
    pub fn not_found(path: &str) -> Self {
        let meant = path.trim_end_matches('/').trim_start_matches('/');
        let paths = crate::openapi::document().paths.paths;
        let near = [format!("/{meant}"), format!("/v1/{meant}")].into_iter().find(|near| paths.contains_key(near));
        let hint = near.map_or("/openapi.json lists all".to_string(), |near| format!("did you mean {near}?"));
        let message = format!("there is no endpoint {path}: {hint}");
        Self::new(StatusCode::NOT_FOUND, "invalid_request_error", "not_found", message)
    }

    /// 404: an endpoint that servers of other models have.
    pub fn no_embeddings() -> Self {
        let message = "this server has no embeddings: its models generate text";
        Self::new(StatusCode::NOT_FOUND, "invalid_request_error", "not_found", message)
    }

    /// 405: the path is there, for another method.
    pub fn method_not_allowed() -> Self {
        let message = "this path takes another method; /openapi.json says which";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error", "method_not_allowed", message)
    }

    /// 415: the body is not announced as JSON.
    pub fn media_type() -> Self {
        let message = "send JSON with the header 'Content-Type: application/json'";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid_request_error", "unsupported_media_type", message)
    }

    /// 413: the body is larger than `limit` bytes.
    pub fn too_large(limit: usize) -> Self {
        let message = format!("the body is larger than {limit} bytes, the server's --max-body-size");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", "body_too_large", message)
    }

    /// 429: the queue is full; try again after `retry_after` seconds.
    pub fn too_many(message: impl Into<String>, retry_after: u64) -> Self {
        let error = Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", "queue_full", message);
        Self { retry_after: Some(retry_after), ..error }
    }

    /// 408; clients are told not to try again by themselves: it would take as long.
    pub fn timeout(message: impl Into<String>) -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "timeout_error", "timeout", message)
    }

    /// 503, for a server that is not ready yet or not any more.
    pub fn unavailable(message: impl Into<String>, retry_after: u64) -> Self {
        let error = Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", "unavailable", message);
        Self { retry_after: Some(retry_after), ..error }
    }

    /// 500. The message contains nothing of the request.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", "internal_error", message)
    }

    /// The JSON that clients get.
    pub fn body(&self) -> ErrorBody {
        ErrorBody { kind: "error", error: self.object.clone() }
    }
}

/// A field's path by the names of another API, see [`ApiError::renamed`].
pub(super) fn renamed(param: &str, names: &[(&str, &str)]) -> String {
    let fits = |here: &str| match param.strip_prefix(here) {
        Some(rest) => rest.is_empty() || rest.starts_with(['.', '[']),
        None => here.starts_with('.') && param.contains(here),
    };
    let (here, there) = names.iter().find(|(here, _)| fits(here)).copied().unwrap_or_default();
    if here.is_empty() { param.to_string() } else { param.replacen(here, there, 1) }
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        let message = error.to_string();
        match error {
            EngineError::PromptExceedsContext { .. } | EngineError::ExceedsPool { .. } => {
                Self::context_length("prompt", message)
            }
            EngineError::EmptyPrompt | EngineError::TokenOutsideVocabulary { .. } => Self::field("prompt", message),
            EngineError::NoChoices => Self::field("n", message),
            EngineError::NoRouting => Self::field("return_routed_experts", message),
            EngineError::Sampling(_) => Self::invalid(message),
            EngineError::QueueFull { .. } => Self::too_many(message, 1),
            EngineError::Gone => Self::internal("the engine has ended; the server needs a restart"),
            // Not the client's mistake.
            _ => Self::internal(message),
        }
    }
}

/// An error's message, which its response has beside the body, for an API whose errors have another shape.
#[derive(Clone)]
pub(super) struct Said(pub String);

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, axum::Json(self.body())).into_response();
        response.extensions_mut().insert(Said(self.object.message.clone()));
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        match self.status {
            StatusCode::UNAUTHORIZED => drop(headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
            // OpenAI's own clients look at this before they repeat a request.
            StatusCode::REQUEST_TIMEOUT => drop(headers.insert("x-should-retry", HeaderValue::from_static("false"))),
            _ => {}
        }
        response
    }
}
