//! A request as a span, by OpenTelemetry's conventions for HTTP servers and generative AI, with a child for each of its phases:
//! `queue`, `prefill` and `decode`.
//!
//! Spans go to the process's global tracer; there is none unless the operator asks for traces. A span contains no text of a
//! request, only names of fields, numbers and the operator's own names.
//! <https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/>

use crate::job::Job;
use axum::extract::Request;
use axum::http::HeaderMap;
use opentelemetry::propagation::Extractor;
use opentelemetry::trace::{Span, SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Array, Context, KeyValue, StringValue, Value, global};
use std::time::{Instant, SystemTime};
use vosti_engine::Usage;

/// The name of this instrumentation.
const SCOPE: &str = "vosti";

/// The span of a request, inside the one that the client's `traceparent` names. `None` for a route that generates nothing.
pub fn begin(request: &Request, route: &str, model: &str, id: &str) -> Option<Context> {
    let operation = match route {
        "/v1/completions" => "text_completion",
        "/v1/chat/completions" | "/v1/responses" | "/v1/messages" => "chat",
        _ => return None,
    };
    let parent = global::get_text_map_propagator(|propagator| propagator.extract(&Headers(request.headers())));
    let tracer = global::tracer(SCOPE);
    let attributes = [
        KeyValue::new("gen_ai.operation.name", operation),
        KeyValue::new("gen_ai.provider.name", "vosti"),
        KeyValue::new("gen_ai.request.model", model.to_string()),
        KeyValue::new("gen_ai.response.model", model.to_string()),
        KeyValue::new("http.request.method", request.method().to_string()),
        KeyValue::new("http.route", route.to_string()),
        KeyValue::new("vosti.request.id", id.to_string()),
    ];
    let span = tracer.span_builder(format!("{operation} {model}")).with_kind(SpanKind::Server);
    let span = span.with_attributes(attributes).start_with_context(&tracer, &parent);
    Some(parent.with_span(span))
}

/// Records the status of the response's head; a stream continues after it.
pub fn respond(trace: &Context, status: u16) {
    let span = trace.span();
    span.set_attribute(KeyValue::new("http.response.status_code", i64::from(status)));
    if status >= 400 {
        span.set_attribute(KeyValue::new("error.type", status.to_string()));
    }
    if status >= 500 {
        span.set_status(Status::error(""));
    }
}

/// A request that is being answered.
pub struct Trace {
    /// The context of the request's span, which ends when its last copy is dropped.
    request: Context,
    arrival: Instant,
    started: Option<Instant>,
    first_token: Option<Instant>,
    reasons: Vec<StringValue>,
}

impl Trace {
    /// A trace of the current request; `None` if its span is not recorded.
    pub fn of_current_request(job: &Job, arrival: Instant) -> Option<Self> {
        let request = Context::current();
        if !request.span().is_recording() {
            return None;
        }
        let sampling = &job.sampling;
        let number = |name: &'static str, value: f32| KeyValue::new(name, f64::from(value));
        request.span().set_attributes([
            KeyValue::new("gen_ai.request.choice.count", i64::from(job.choices)),
            KeyValue::new("gen_ai.request.max_tokens", whole(sampling.tokens_max)),
            KeyValue::new("gen_ai.request.seed", sampling.seed.cast_signed()),
            KeyValue::new("gen_ai.request.top_k", i64::from(sampling.top_k)),
            number("gen_ai.request.temperature", sampling.temperature),
            number("gen_ai.request.top_p", sampling.top_p),
            number("gen_ai.request.frequency_penalty", sampling.frequency_penalty),
            number("gen_ai.request.presence_penalty", sampling.presence_penalty),
        ]);
        Some(Self { request, arrival, started: None, first_token: None, reasons: Vec::new() })
    }

    /// Records when the first of its prompts begins to be computed.
    pub fn started(&mut self, at: Instant) {
        self.started.get_or_insert(at);
    }

    pub fn first_token(&mut self, at: Instant) {
        self.first_token.get_or_insert(at);
    }

    pub fn answered(&mut self, reason: &'static str) {
        self.reasons.push(reason.into());
    }

    pub fn failed(&mut self, why: &'static str) {
        self.request.span().set_attribute(KeyValue::new("error.type", why));
        self.request.span().set_status(Status::error(why));
    }

    /// Writes the phases and the counts at the end; `outcome` says why the request ended early, if it did.
    pub fn end(self, usage: &Usage, outcome: Option<&'static str>) {
        let (now, clock) = (Instant::now(), SystemTime::now());
        let time = |at: Instant| clock - now.saturating_duration_since(at);
        let span = self.request.span();
        span.set_attributes([
            KeyValue::new("gen_ai.usage.input_tokens", whole(usage.prompt_tokens)),
            KeyValue::new("gen_ai.usage.output_tokens", whole(usage.generated_tokens)),
            KeyValue::new("gen_ai.usage.cache_read.input_tokens", whole(usage.cached_tokens)),
            KeyValue::new("gen_ai.response.finish_reasons", Value::Array(Array::String(self.reasons.clone()))),
        ]);
        if let Some(outcome) = outcome {
            span.set_attribute(KeyValue::new("error.type", outcome));
        }
        let tracer = global::tracer(SCOPE);
        let phase = |name: &'static str, from: Option<Instant>, to: Option<Instant>| {
            let Some(from) = from else { return };
            let builder = tracer.span_builder(name).with_kind(SpanKind::Internal).with_start_time(time(from));
            builder.start_with_context(&tracer, &self.request).end_with_timestamp(time(to.unwrap_or(now)));
        };
        phase("queue", Some(self.arrival), self.started);
        phase("prefill", self.started, self.first_token);
        phase("decode", self.first_token, None);
    }
}

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The headers that a propagator reads.
struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(axum::http::HeaderName::as_str).collect()
    }
}
