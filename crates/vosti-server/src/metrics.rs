//! Numbers for Prometheus. A name that begins with `vllm:` means the same as in vLLM, so vLLM's dashboards work; other
//! numbers begin with `vosti:`. Nothing here holds text of a request.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::sync::{Arc, Mutex, PoisonError};
use vosti_core::PAGE;
use vosti_engine::handle::EngineHandle;
use vosti_engine::{Counters, Status};

type Labelled = Family<[(&'static str, String); 1], Counter>;

/// The server's own counters. The engine's counters are read when the metrics are asked for.
pub struct Metrics {
    registry: Registry,
    snapshot: Arc<Mutex<Snapshot>>,
    pub prompt_tokens: Counter,
    pub generation_tokens: Counter,
    pub answers: Labelled,
    pub refused: Labelled,
    pub responses: Labelled,
    pub first_token_seconds: Histogram,
    pub between_tokens_seconds: Histogram,
    pub answer_seconds: Histogram,
    pub queue_seconds: Histogram,
    pub prefill_seconds: Histogram,
    pub decode_seconds: Histogram,
    pub prompt_length: Histogram,
    pub answer_length: Histogram,
}

/// The engine's state when it was last asked for.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub status: Status,
    pub counters: Counters,
    /// Requests whose answers are not complete.
    pub busy: usize,
    /// Connections that are open.
    pub connections: usize,
}

impl Metrics {
    /// All numbers at zero, labelled with the model's name.
    pub fn new(model: &str) -> Self {
        let mut registry = Registry::default();
        let snapshot = Arc::new(Mutex::new(Snapshot::default()));
        let labelled = registry.sub_registry_with_label(("model_name".into(), model.to_string().into()));
        labelled.register_collector(Box::new(OfEngine(snapshot.clone())));
        let seconds = |steps: i32, least: f64| Histogram::new((0..steps).map(move |i| least * 2f64.powi(i)));
        let lengths = || Histogram::new((0..18).map(|i| 2f64.powi(i)));
        let metrics = Self {
            snapshot,
            prompt_tokens: Counter::default(),
            generation_tokens: Counter::default(),
            answers: Labelled::default(),
            refused: Labelled::default(),
            responses: Labelled::default(),
            first_token_seconds: seconds(17, 0.001),
            between_tokens_seconds: seconds(14, 0.001),
            answer_seconds: seconds(17, 0.01),
            queue_seconds: seconds(20, 0.001),
            prefill_seconds: seconds(17, 0.001),
            decode_seconds: seconds(17, 0.01),
            prompt_length: lengths(),
            answer_length: lengths(),
            registry: Registry::default(),
        };
        let mut add = |name: &str, help: &str, metric: &Counter| labelled.register(name, help, metric.clone());
        add("vllm:prompt_tokens", "Prompt tokens of accepted requests", &metrics.prompt_tokens);
        add("vllm:generation_tokens", "Tokens generated", &metrics.generation_tokens);
        let mut add = |name: &str, help: &str, metric: &Labelled| labelled.register(name, help, metric.clone());
        add("vllm:request_success", "Answers that ended, by finish reason", &metrics.answers);
        add("vosti:requests_refused", "Requests refused, by reason", &metrics.refused);
        add("vosti:http_responses", "Responses, by status", &metrics.responses);
        let mut add = |name: &str, help: &str, metric: &Histogram| labelled.register(name, help, metric.clone());
        add(
            "vllm:time_to_first_token_seconds",
            "From arrival to an answer's first token",
            &metrics.first_token_seconds,
        );
        add(
            "vllm:inter_token_latency_seconds",
            "From one token of an answer to the next",
            &metrics.between_tokens_seconds,
        );
        add("vllm:e2e_request_latency_seconds", "From arrival to an answer's end", &metrics.answer_seconds);
        add(
            "vllm:request_queue_time_seconds",
            "From arrival to when an answer's prompt is computed",
            &metrics.queue_seconds,
        );
        add(
            "vllm:request_prefill_time_seconds",
            "From when an answer's prompt is computed to its first token",
            &metrics.prefill_seconds,
        );
        add("vllm:request_decode_time_seconds", "From an answer's first token to its last", &metrics.decode_seconds);
        add("vllm:request_prompt_tokens", "Prompt tokens per answer", &metrics.prompt_length);
        add("vllm:request_generation_tokens", "Generated tokens per answer", &metrics.answer_length);
        Self { registry, ..metrics }
    }

    /// The engine's state before its current step. If the engine has ended, its last state.
    pub fn read(&self, engine: Option<&EngineHandle>) -> Snapshot {
        if let Some(engine) = engine {
            let mut snapshot = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
            (snapshot.status, snapshot.counters) = engine.seen();
        }
        self.snapshot()
    }

    /// Records the server's own gauges.
    pub fn note(&self, busy: usize, connections: usize) {
        let mut snapshot = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
        (snapshot.busy, snapshot.connections) = (busy, connections);
    }

    fn snapshot(&self) -> Snapshot {
        self.snapshot.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// All metrics in the OpenMetrics text format.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a String does not fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }
}

impl Snapshot {
    /// The share of pages in use, of the fullest group. Pages that only the prefix cache holds do not count, as in vLLM: they can be
    /// taken at any time.
    pub fn pages_used(&self) -> f64 {
        let groups = self.status.pages_used.iter().zip(&self.status.pages_total);
        groups.map(|(used, total)| *used as f64 / (*total).max(1) as f64).fold(0.0, f64::max)
    }

    /// Pages that only the prefix cache holds, of all groups.
    pub fn pages_cached_unused(&self) -> usize {
        let sum = |pages: &[usize]| pages.iter().sum::<usize>();
        sum(&self.status.pages_total)
            .saturating_sub(sum(&self.status.pages_free))
            .saturating_sub(sum(&self.status.pages_used))
    }
}

/// Encodes the snapshot.
#[derive(Debug)]
struct OfEngine(Arc<Mutex<Snapshot>>);

impl Collector for OfEngine {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let c = &seen.counters;
        let counters = [
            ("vllm:prefix_cache_queries", "Prompt tokens looked up in the prefix cache", c.prefix_query_tokens),
            ("vllm:prefix_cache_hits", "Prompt tokens found in the prefix cache", c.prefix_hit_tokens),
            ("vllm:num_preemptions", "Answers that lost their pages and were computed again", c.preemptions),
            ("vllm:spec_decode_num_draft_tokens", "Drafted tokens", c.drafts_proposed),
            ("vllm:spec_decode_num_accepted_tokens", "Drafted tokens that were accepted", c.drafts_accepted),
            ("vosti:steps", "Steps of the engine", c.steps),
            ("vosti:rows", "Rows computed", c.rows),
            ("vosti:prefill_rows", "Rows computed for prompts", c.prefill_rows),
            ("vosti:aborted", "Answers aborted", c.aborted),
            ("vosti:evictions", "Evictions of a cached block, or of its page in one group with a window", c.evictions),
        ];
        for (name, help, value) in counters {
            let metric = ConstCounter::new(value);
            metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)?;
        }
        let sum = |pages: &[usize]| pages.iter().sum::<usize>() as f64;
        let gauges = [
            ("vllm:num_requests_running", "Answers that hold pages", seen.status.running as f64),
            ("vllm:num_requests_waiting", "Answers that wait for pages", seen.status.waiting as f64),
            ("vllm:kv_cache_usage_perc", "Share of pages in use, 1 is all", seen.pages_used()),
            ("vosti:pages_free", "Free pages", sum(&seen.status.pages_free)),
            ("vosti:pages", "Pages", sum(&seen.status.pages_total)),
            ("vosti:cached_blocks", "Blocks in the prefix cache", seen.status.blocks as f64),
            ("vosti:cached_blocks_unused", "Cached blocks that no answer uses", seen.status.blocks_unused as f64),
            ("vosti:requests_in_progress", "Requests not answered to the end", seen.busy as f64),
            ("vosti:connections", "Open connections", seen.connections as f64),
        ];
        for (name, help, value) in gauges {
            let metric = ConstGauge::new(value);
            metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)?;
        }
        // Balancers that track cached prefixes read the size and the number of blocks here.
        let pages: usize = seen.status.pages_total.iter().sum();
        let cache = [("block_size", PAGE.to_string()), ("num_gpu_blocks", pages.to_string())];
        let metric = ConstGauge::new(1.0);
        let help = "The KV pool, by its labels";
        let mut info = encoder.encode_descriptor("vllm:cache_config_info", help, None, metric.metric_type())?;
        metric.encode(info.encode_family(&cache)?)
    }
}
