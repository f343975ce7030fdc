//! The application: its state, its phases and its routes. It has no sockets (`listen.rs` has them), so tests call it directly.

use crate::api::body::{TOLD, Told};
use crate::api::{ApiError, anthropic, chat, completions, models, ollama, responses, state, tokenize};
use crate::auth::{self, Keys};
use crate::config::ServerConfig;
use crate::flow::Arrival;
use crate::limits::{Busy, Places};
use crate::metrics::Metrics;
use crate::page;
use crate::service::Service;
use crate::trace;
use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use opentelemetry::context::FutureExt;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;
use tokio::sync::{Semaphore, watch};
use tower_http::catch_panic::CatchPanicLayer;

/// The server's phase.
#[derive(Clone)]
pub enum Phase {
    /// Listening; the model is being loaded.
    Loading,
    /// Serving.
    Ready(Arc<Service>),
    /// New requests are refused; running requests are answered to their end.
    Draining,
}

/// Shared by all handlers.
pub struct App {
    /// Addresses, keys, limits.
    pub config: ServerConfig,
    pub(crate) keys: Keys,
    pub(crate) metrics: Metrics,
    pub(crate) places: Places,
    pub(crate) busy: Busy,
    /// Open connections, as `listen.rs` counts them.
    pub connections: AtomicUsize,
    /// When the server started, in seconds since 1970.
    pub started: u64,
    phase: watch::Sender<Phase>,
    /// Permits for [`Work::Text`]; `compiling` has those for [`Work::Grammar`].
    preparing: Arc<Semaphore>,
    compiling: Arc<Semaphore>,
}

/// Work on a core before a request runs. A grammar may take seconds, so text never waits for a grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Rendering and tokenizing.
    Text,
    /// The same, and compiling a grammar.
    Grammar,
}

/// Requests that are prepared at the same time, for each kind of work.
const PREPARING_MAX: usize = 2;

impl App {
    /// An application that is loading: it has no model yet.
    pub fn new(config: ServerConfig) -> Arc<Self> {
        Arc::new(Self {
            keys: Keys::new(&config.api_keys),
            metrics: Metrics::new(config.model_names.first().map_or("model", String::as_str)),
            places: Places::new(config.limits.answers_max),
            busy: Busy::default(),
            connections: AtomicUsize::new(0),
            started: crate::api::usage::now(),
            phase: watch::Sender::new(Phase::Loading),
            preparing: Arc::new(Semaphore::new(PREPARING_MAX)),
            compiling: Arc::new(Semaphore::new(PREPARING_MAX)),
            config,
        })
    }

    /// The model's name in answers.
    pub fn model_name(&self) -> &str {
        self.config.model_names.first().map_or("model", String::as_str)
    }

    /// Loading, ready or draining.
    pub fn phase(&self) -> Phase {
        self.phase.borrow().clone()
    }

    /// Serves requests from this call on. A draining server keeps draining.
    pub fn ready(&self, service: Arc<Service>) {
        self.phase.send_if_modified(|phase| {
            let loading = matches!(phase, Phase::Loading);
            if loading {
                *phase = Phase::Ready(service);
            }
            loading
        });
    }

    /// Refuses new requests from this call on.
    pub fn drain(&self) {
        self.phase.send_replace(Phase::Draining);
    }

    /// Returns when the server drains and every request is answered.
    pub async fn drained(&self) {
        self.closing(true).await;
    }

    /// Returns when the server drains and, if so asked, every request is answered.
    pub async fn closing(&self, answered: bool) {
        let mut phase = self.phase.subscribe();
        // The sender is in `self`: waiting cannot fail.
        let _ = phase.wait_for(|phase| matches!(phase, Phase::Draining)).await;
        if answered {
            self.busy.idle().await;
        }
    }

    /// The model; 503 while it is loaded and while the server drains.
    pub fn service(&self) -> Result<Arc<Service>, ApiError> {
        match self.phase() {
            Phase::Ready(service) => Ok(service),
            Phase::Loading => Err(ApiError::unavailable("the model is being loaded: try again soon", 2)),
            Phase::Draining => Err(ApiError::unavailable("the server is shutting down: use another server", 5)),
        }
    }

    /// Places for answers that are taken, of `Limits::answers_max`.
    pub fn places_taken(&self) -> usize {
        self.places.taken()
    }

    /// Notes a request's arrival, and counts it as busy.
    pub(crate) fn arrive(&self) -> Arrival {
        Arrival { at: Instant::now(), busy: self.busy.enter() }
    }

    /// Runs `work` on a thread of its own, so that it delays no other request.
    pub(crate) async fn prepare<T: Send + 'static>(
        &self,
        kind: Work,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let failed =
            |_| ApiError::internal("the server failed to prepare this request; other requests are not affected");
        // The semaphore is never closed.
        let turns = if kind == Work::Grammar { &self.compiling } else { &self.preparing };
        let turn = turns.clone().acquire_owned().await.map_err(|_| ApiError::internal("the server ends"))?;
        // The work's log lines belong to the request.
        let span = tracing::Span::current();
        // The work runs to its end even if the client leaves, and keeps its permit until then.
        let work = move || {
            let _turn = turn;
            span.in_scope(work)
        };
        tokio::task::spawn_blocking(work).await.map_err(failed)?
    }
}

/// Every route.
pub fn router(app: Arc<App>) -> Router {
    let guarded = Router::new()
        .route("/v1/chat/completions", post(chat::complete))
        .route("/v1/completions", post(completions::complete))
        .route("/v1/responses", post(responses::respond))
        .route("/v1/messages", post(anthropic::create))
        .route("/v1/messages/count_tokens", post(anthropic::count))
        .route("/v1/embeddings", post(|| async { ApiError::no_embeddings() }))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*name}", get(models::one))
        .route("/api/chat", post(ollama::chat))
        .route("/api/generate", post(ollama::generate))
        .route("/api/tags", get(ollama::tags))
        .route("/api/ps", get(ollama::tags))
        .route("/api/show", post(ollama::show))
        .route("/tokenize", post(tokenize::tokenize))
        .route("/detokenize", post(tokenize::detokenize))
        .route("/tokenizer_info", get(tokenize::info))
        .route_layer(middleware::from_fn_with_state(app.clone(), auth::check));
    let open = Router::new()
        .route("/", get(page::show))
        .route("/api/version", get(ollama::version))
        .route("/health", get(state::health))
        .route("/ready", get(state::ready))
        .route("/status", get(state::status))
        .route("/metrics", get(state::metrics))
        .route("/openapi.json", get(state::openapi));
    let all = guarded
        .merge(open)
        .fallback(|uri: Uri| async move { ApiError::not_found(uri.path()) })
        .method_not_allowed_fallback(|| async { ApiError::method_not_allowed() })
        .layer(CatchPanicLayer::custom(panicked))
        .layer(middleware::from_fn(ollama::shape));
    // Browsers ask before they send a key, with a method that no route has.
    let all = match app.config.cors_origins.layer() {
        Some(cors) => all.layer(cors),
        None => all,
    };
    all.layer(middleware::from_fn_with_state(app.clone(), observe)).with_state(app)
}

/// Answers 500 without the panic's message, which may contain text of the request.
fn panicked(_: Box<dyn Any + Send>) -> Response {
    ApiError::internal("the server failed at this request; other requests are not affected").into_response()
}

/// Counts and logs each request under its id: the client's `x-request-id`, or a new one. The response has the id.
async fn observe(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let start = Instant::now();
    let id = request_id(request.headers()).unwrap_or_else(|| crate::api::usage::id("req"));
    let told = Told::default();
    request.extensions_mut().insert(told.clone());
    let method = request.method().clone();
    let path = request.extensions().get::<MatchedPath>().map_or("(none)", MatchedPath::as_str).to_string();
    let trace = if app.config.traces { trace::begin(&request, &path, app.model_name(), &id) } else { None };
    let mut response = {
        let span = tracing::info_span!("request", id);
        let answer = next.run(request).with_context(trace.clone().unwrap_or_default());
        tracing::Instrument::instrument(answer, span).await
    };
    let status = response.status().as_u16();
    if let Some(trace) = trace {
        trace::respond(&trace, status);
    }
    app.metrics.responses.get_or_create(&[("status", status.to_string())]).inc();
    if let Some(reason) = refusal(status) {
        app.metrics.refused.get_or_create(&[("reason", reason.to_string())]).inc();
    }
    let seconds = start.elapsed().as_secs_f64();
    // Probes come every few seconds; they are logged at a lower level.
    if ["/health", "/ready", "/status", "/metrics"].contains(&path.as_str()) {
        tracing::debug!(id, %method, path, status, seconds, "response");
    } else {
        tracing::info!(id, %method, path, status, seconds, "response");
    }
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert("x-request-id", value);
    }
    for (header, told) in TOLD.into_iter().zip(told.take()).filter(|(_, told)| !told.is_empty()) {
        // The names are the client's text, which is not logged.
        tracing::warn!(id, count = told.len(), header, "the answer is not to all that was asked for");
        if let Ok(value) = HeaderValue::from_str(&as_header(&told.join(", "))) {
            response.headers_mut().insert(header, value);
        }
    }
    response
}

/// Longest header of warnings.
const TOLD_MAX: usize = 4096;

/// A text as a header may have it.
fn as_header(text: &str) -> String {
    text.chars().take(TOLD_MAX).map(|c| if (' '..='~').contains(&c) { c } else { '?' }).collect()
}

/// Most characters of a client's request id.
const REQUEST_ID_MAX: usize = 128;

/// The client's request id, if it has only characters that can be logged unchanged.
fn request_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get("x-request-id")?.to_str().ok()?;
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_.:/+=".contains(c);
    (!id.is_empty() && id.len() <= REQUEST_ID_MAX && id.chars().all(legal)).then(|| id.to_string())
}

/// The `reason` label of a refusal by status, for metrics; none if the status refuses nothing.
fn refusal(status: u16) -> Option<&'static str> {
    match status {
        401 => Some("unauthorized"),
        408 => Some("timeout"),
        429 => Some("queue_full"),
        503 => Some("unavailable"),
        400..500 => Some("invalid"),
        _ => None,
    }
}
