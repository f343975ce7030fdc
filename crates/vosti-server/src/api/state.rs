//! A server's reports on itself: alive, ready, how busy. They are open to everyone, so nothing here holds a request's text.

use crate::app::{App, Phase};
use crate::service::PageBytes;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use utoipa::ToSchema;
use vosti_engine::Status;

/// The server's phase.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Health {
    /// `loading`, `ready` or `draining`.
    pub status: &'static str,
}

fn phase(app: &App) -> Health {
    let status = match app.phase() {
        Phase::Loading => "loading",
        Phase::Ready(_) => "ready",
        Phase::Draining => "draining",
    };
    Health { status }
}

/// Alive: answers as soon as the port is open, until the process ends.
#[utoipa::path(get, path = "/health", tag = "state", responses((status = 200, body = Health)))]
pub async fn health(State(app): State<Arc<App>>) -> Json<Health> {
    Json(phase(&app))
}

/// Ready to serve: 200 once the model is loaded, 503 before and while the server drains.
#[utoipa::path(get, path = "/ready", tag = "state",
    responses((status = 200, body = Health), (status = 503, body = Health)))]
pub async fn ready(State(app): State<Arc<App>>) -> Response {
    let health = phase(&app);
    let status = if health.status == "ready" { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(health)).into_response()
}

/// Pages of layers that share a cache: those of attention that sees everything, those with one window, those with a state.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct PageGroup {
    /// Pages of the pool.
    pub total: usize,
    /// Pages that neither an answer nor the prefix cache holds.
    pub free: usize,
    /// Pages that answers use.
    pub used: usize,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// How many of them are the states at the page's end; 0 for attention.
    pub state_bytes: u64,
}

/// The engine at this moment, and what it has done since its start.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct EngineState {
    /// `loading`, `ready` or `draining`.
    pub status: &'static str,
    /// The model's name, as requests give it.
    pub model: String,
    /// The deployment's fingerprint; null while loading.
    pub system_fingerprint: Option<String>,
    /// How the model's matrices are multiplied, in integers or in BF16; null while loading.
    pub arithmetic: Option<String>,
    /// Answers that hold pages.
    pub running: usize,
    /// Answers that wait for pages.
    pub waiting: usize,
    /// Requests that are not answered to the end.
    pub requests_in_progress: usize,
    /// Open connections.
    pub connections: usize,
    /// Places for answers.
    pub places: usize,
    /// Places that are taken.
    pub places_taken: usize,
    /// KV pages of 64 tokens. Each group of layers with its own cache has its pages, and all counts of pages here are sums over
    /// the groups.
    pub pages_total: usize,
    /// KV pages that neither an answer nor the prefix cache holds.
    pub pages_free: usize,
    /// KV pages that only the prefix cache holds: an answer can take them at any time.
    pub pages_cached_unused: usize,
    /// The same for each group, with the bytes of a page; empty while loading.
    pub page_groups: Vec<PageGroup>,
    /// Steps of the engine since its start.
    pub steps: u64,
    /// Rows computed since the start: tokens of prompts and of answers, drafts included.
    pub rows: u64,
    /// Tokens of answers since the start.
    pub tokens: u64,
    /// Prompt tokens looked up in the prefix cache since the start.
    pub prefix_query_tokens: u64,
    /// Prompt tokens found in the prefix cache since the start.
    pub prefix_hit_tokens: u64,
    /// Drafted tokens since the start.
    pub drafts_proposed: u64,
    /// Drafted tokens that the model accepted, since the start.
    pub drafts_accepted: u64,
    /// Answers that lost their pages and were computed again, since the start.
    pub preemptions: u64,
    /// Answers that were aborted, since the start.
    pub aborted: u64,
}

/// The engine's state, for people and for the page.
#[utoipa::path(get, path = "/status", tag = "state", responses((status = 200, body = EngineState)))]
pub async fn status(State(app): State<Arc<App>>) -> Json<EngineState> {
    let service = app.service().ok();
    let seen = app.metrics.read(service.as_ref().map(|s| &s.engine));
    let (s, c) = (&seen.status, &seen.counters);
    Json(EngineState {
        status: phase(&app).status,
        model: app.model_name().to_string(),
        arithmetic: service.as_ref().map(|s| s.identity.arithmetic.clone()),
        page_groups: service.as_ref().map_or(Vec::new(), |service| page_groups(s, &service.identity.pages)),
        system_fingerprint: service.map(|s| s.identity.fingerprint.clone()),
        running: s.running,
        waiting: s.waiting,
        requests_in_progress: app.busy.count(),
        connections: app.connections.load(Ordering::Relaxed),
        places: app.config.limits.answers_max,
        places_taken: app.places.taken(),
        pages_total: s.pages_total.iter().sum(),
        pages_free: s.pages_free.iter().sum(),
        pages_cached_unused: seen.pages_cached_unused(),
        steps: c.steps,
        rows: c.rows,
        tokens: c.tokens,
        prefix_query_tokens: c.prefix_query_tokens,
        prefix_hit_tokens: c.prefix_hit_tokens,
        drafts_proposed: c.drafts_proposed,
        drafts_accepted: c.drafts_accepted,
        preemptions: c.preemptions,
        aborted: c.aborted,
    })
}

fn page_groups(status: &Status, bytes: &[PageBytes]) -> Vec<PageGroup> {
    let counts = status.pages_total.iter().zip(&status.pages_free).zip(&status.pages_used);
    let group = |(((total, free), used), bytes): (((&usize, &usize), &usize), &PageBytes)| PageGroup {
        total: *total,
        free: *free,
        used: *used,
        page_bytes: bytes.all,
        state_bytes: bytes.state,
    };
    counts.zip(bytes).map(group).collect()
}

/// Numbers for Prometheus, in the OpenMetrics text format.
#[utoipa::path(get, path = "/metrics", tag = "state",
    responses((status = 200, body = String, content_type = "application/openmetrics-text")))]
pub async fn metrics(State(app): State<Arc<App>>) -> Response {
    app.metrics.note(app.busy.count(), app.connections.load(Ordering::Relaxed));
    app.metrics.read(app.service().ok().as_ref().map(|s| &s.engine));
    let media = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(CONTENT_TYPE, media)], app.metrics.encode()).into_response()
}

/// This document.
#[utoipa::path(get, path = "/openapi.json", tag = "state", responses((status = 200, body = Object)))]
pub async fn openapi() -> Json<utoipa::openapi::OpenApi> {
    Json(crate::openapi::document())
}
