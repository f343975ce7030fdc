//! Sends the traces of `vosti serve` to a collector, if one is named: OTLP over HTTP, in protobuf.
//!
//! Environment variables mean what OpenTelemetry's specification says, also those of the sampler, the batches and the resource.
//! Spans that cannot be delivered are dropped, and the log says so; no request waits for them.

use anyhow::{Context, Result, bail};
use opentelemetry::{KeyValue, global};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use std::env;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Sends spans until it is dropped, and the remaining ones at the drop.
pub struct Traces(Option<SdkTracerProvider>);

/// Longest time to send a batch of spans.
const SEND_MAX: Duration = Duration::from_secs(10);
/// Longest time to send the remaining spans at the end.
const END_MAX: Duration = Duration::from_secs(3);
const RESPONSE_BYTES_MAX: u64 = 1 << 20;

impl Traces {
    /// Sets the process's tracer, if `flag` or the environment names a collector.
    pub fn start(flag: Option<&str>) -> Result<Self> {
        let Some(url) = endpoint(flag, |name| env::var(name).ok().filter(|value| !value.is_empty()))? else {
            return Ok(Self(None));
        };
        let exporter = SpanExporter::builder().with_http().with_http_client(Client::new());
        let exporter = exporter.with_endpoint(&url).build().with_context(|| format!("traces to {url}"))?;
        let mut resource = Resource::builder();
        let named = |name| env::var(name).is_ok_and(|value| !value.is_empty());
        if !named("OTEL_SERVICE_NAME") && !named("OTEL_RESOURCE_ATTRIBUTES") {
            resource = resource.with_service_name("vosti");
        }
        let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
        let provider = SdkTracerProvider::builder().with_resource(resource.with_attribute(version).build());
        let provider = provider.with_batch_exporter(exporter).build();
        global::set_tracer_provider(provider.clone());
        global::set_text_map_propagator(TraceContextPropagator::new());
        tell!("traces       to {url}");
        Ok(Self(Some(provider)))
    }

    pub fn are_sent(&self) -> bool {
        self.0.is_some()
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        if let Some(provider) = &self.0 {
            // What a collector does not take in time is lost, and that was logged.
            let _ = provider.shutdown_with_timeout(END_MAX);
        }
    }
}

/// The whole URL for traces, or none: <https://opentelemetry.io/docs/specs/otel/protocol/exporter/>.
fn endpoint(flag: Option<&str>, variable: impl Fn(&str) -> Option<String>) -> Result<Option<String>> {
    let off = variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
        || variable("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none");
    let base = |name: &str, base: String| (name.to_string(), format!("{}/v1/traces", base.trim_end_matches('/')));
    let from_environment = || {
        let whole = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
        let of_all = "OTEL_EXPORTER_OTLP_ENDPOINT";
        variable(whole).map(|url| (whole.to_string(), url)).or_else(|| Some(base(of_all, variable(of_all)?)))
    };
    let given = match flag {
        Some(flag) => Some(base("--otlp-endpoint", flag.to_string())),
        None if off => None,
        None => from_environment(),
    };
    let Some((name, url)) = given else { return Ok(None) };
    let parsed = url.parse::<ureq::http::Uri>().ok();
    if parsed.is_none_or(|parsed| parsed.host().is_none() || !matches!(parsed.scheme_str(), Some("http" | "https"))) {
        bail!("{name}: write a URL like http://localhost:4318");
    }
    for name in ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"] {
        if let Some(protocol) = variable(name) {
            if protocol != "http/protobuf" {
                bail!("{name} is {protocol}: traces are sent by http/protobuf alone, to port 4318 of most collectors");
            }
            break;
        }
    }
    Ok(Some(url))
}

/// HTTP for the exporter's own thread.
#[derive(Debug)]
struct Client {
    agent: ureq::Agent,
    failing: AtomicBool,
}

impl Client {
    fn new() -> Self {
        let config = ureq::Agent::config_builder().timeout_global(Some(SEND_MAX)).http_status_as_error(false);
        Self { agent: ureq::Agent::new_with_config(config.build()), failing: AtomicBool::new(false) }
    }

    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ureq::Error> {
        let (head, mut body) = self.agent.run(request.map(|bytes| bytes.to_vec()))?.into_parts();
        let bytes = body.with_config().limit(RESPONSE_BYTES_MAX).read_to_vec()?;
        Ok(Response::from_parts(head, bytes.into()))
    }
}

#[async_trait::async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sent = self.send(request);
        let trouble = match &sent {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("the collector answered {}", response.status())),
            Err(error) => Some(error.to_string()),
        };
        // Logged once, until delivery works again.
        if self.failing.swap(trouble.is_some(), Ordering::Relaxed) != trouble.is_some() {
            match trouble {
                Some(why) => tracing::warn!(why, "traces are not delivered"),
                None => tracing::info!("traces are delivered again"),
            }
        }
        Ok(sent?)
    }
}

#[cfg(test)]
mod tests {
    use super::endpoint;

    fn told(flag: Option<&str>, environment: &[(&str, &str)]) -> Result<Option<String>, String> {
        let find = |name: &str| environment.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string());
        endpoint(flag, find).map_err(|error| error.to_string())
    }

    #[test]
    fn traces_go_where_the_flag_or_the_environment_says() {
        let all = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4318/");
        let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://b/spans");
        assert_eq!(told(None, &[]), Ok(None));
        assert_eq!(told(None, &[all]), Ok(Some("http://a:4318/v1/traces".into())));
        assert_eq!(told(None, &[all, traces]), Ok(Some("https://b/spans".into())));
        assert_eq!(told(Some("http://c:1"), &[all, traces]), Ok(Some("http://c:1/v1/traces".into())));
        for off in [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")] {
            assert_eq!(told(None, &[all, off]), Ok(None));
        }
    }

    #[test]
    fn what_is_no_collector_is_refused_by_name() {
        for wrong in ["", "localhost:4318", "ftp://a", "http://", "http:// a"] {
            let error = told(Some(wrong), &[]).unwrap_err();
            assert!(error.contains("--otlp-endpoint"), "{wrong}: {error}");
        }
        let grpc = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
        let error = told(None, &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4317"), grpc]).unwrap_err();
        assert!(error.contains("OTEL_EXPORTER_OTLP_PROTOCOL is grpc"), "{error}");
    }
}
