//! Full queues, slow and absent clients, time limits, starts and ends: the right requests are refused, and all resources are
//! freed.

use crate::common::{
    Options, Toyserver, chat, completion, config, eventually, get, metric, post, read, serve, service, toy, with,
};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tower::ServiceExt;
use tracing_subscriber::fmt::MakeWriter;
use vosti_engine::Policy;
use vosti_server::Limits;
use vosti_server::app::{App, router};

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";

fn gated(limits: Limits) -> Toyserver {
    let policy = Policy { running_max: 2, ..Policy::default() };
    serve(&Options { limits, policy, gated: true, ..Options::default() })
}

/// Sends without waiting for the answer.
fn begin(server: &Toyserver, body: serde_json::Value) -> tokio::task::JoinHandle<crate::common::Answer> {
    let router = server.router.clone();
    tokio::spawn(async move { read(router.oneshot(post(TEXT, &body)).await.unwrap()).await })
}

#[tokio::test]
async fn a_full_queue_refuses_with_a_time_and_takes_again_later() {
    let server = gated(Limits { answers_max: 4, ..Limits::default() });
    let three = begin(&server, with(completion("a"), json!({"n": 3, "max_tokens": 2})));
    eventually("three places are taken", || server.app.places_taken() == 3).await;
    let refused = server.post(TEXT, with(completion("b"), json!({"n": 2}))).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.json()["error"]["type"], "rate_limit_error");
    let seconds: u64 = refused.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=30).contains(&seconds));
    let too_many = server.post(TEXT, with(completion("b"), json!({"prompt": vec!["a"; 5]}))).await;
    assert_eq!(too_many.error().0, 400, "it would never fit");
    server.step(50);
    assert_eq!(three.await.unwrap().status, 200);
    server.settles().await;
    let one = begin(&server, with(completion("b"), json!({"max_tokens": 1})));
    server.step(50);
    assert_eq!(one.await.unwrap().status, 200);
}

#[tokio::test]
async fn status_and_metrics_wait_for_no_step() {
    let server = gated(Limits::default());
    let asked = begin(&server, with(completion("a"), json!({"max_tokens": 2})));
    eventually("the engine has the request", || {
        let (status, _) = server.engine.seen();
        status.running + status.waiting == 1
    })
    .await;
    // The step does not end before these answers: a server that waits for it says one step.
    let status = server.send(get("/status")).await.json();
    assert_eq!(
        (&status["steps"], status["running"].as_u64().unwrap() + status["waiting"].as_u64().unwrap()),
        (&json!(0), 1)
    );
    let group = &status["page_groups"][0];
    assert_eq!(
        (&group["total"], &group["page_bytes"], &group["state_bytes"]),
        (&status["pages_total"], &json!(4096), &json!(1024))
    );
    assert_eq!(metric(&server.send(get("/metrics")).await.text, "vosti:steps_total{"), 0.0);
    server.step(50);
    assert_eq!(asked.await.unwrap().status, 200);
}

#[tokio::test]
async fn a_client_that_leaves_gives_everything_back_within_a_step() {
    let server = gated(Limits::default());
    let body = |n: u32| json!({"stream": true, "max_tokens": 500, "n": n, "ignore_eos": true});
    let ask = async |body| server.router.clone().oneshot(post(TEXT, &body)).await.unwrap();
    // Two run and stream; the third, taken between two steps, waits for them.
    let mut running = ask(with(completion("runs"), body(2))).await;
    server.step(5);
    running.body_mut().frame().await.unwrap().unwrap();
    let mut waiting = std::pin::pin!(ask(with(completion("waits"), body(1))));
    let mut steps = 5;
    let waiting = loop {
        match tokio::time::timeout(Duration::from_millis(20), &mut waiting).await {
            Ok(response) => break response,
            Err(_) => server.step(1),
        }
        steps += 1;
        assert!(steps < 400, "the engine does not take it");
    };
    drop((running, waiting));
    // One step to notice, one to report.
    server.step(2);
    server.settles().await;
    let (_, counters) = server.engine.report().unwrap();
    assert_eq!(counters.aborted, 3);
    assert!(counters.tokens <= 2 * (steps + 2), "{} tokens in {steps} steps and two", counters.tokens);
}

#[tokio::test]
async fn answers_that_lose_their_pages_under_load_are_what_they_are_alone() {
    // All prompts fit into the pool at once, but at most two whole answers.
    let small = serve(&Options { pages: 9, ..Options::default() });
    let body = |i: usize| {
        let own = json!({"stream": i.is_multiple_of(3), "n": 1 + i % 2, "temperature": 0.9, "max_tokens": 200 + 7 * i,
            "ignore_eos": true, "vosti_digest": true});
        with(completion(&"preempt ".repeat(1 + i)), own)
    };
    let digests = async |server: &Toyserver, i: usize| -> Vec<serde_json::Value> {
        let answer = server.post(TEXT, body(i)).await;
        assert_eq!(answer.status, 200, "{i}: {}", answer.text);
        let chunks = if i.is_multiple_of(3) { answer.chunks() } else { vec![answer.json()] };
        let choices = chunks.iter().flat_map(|chunk| chunk["choices"].as_array().unwrap());
        let ends = choices.filter(|choice| choice["vosti_receipt"].is_object());
        let mut ends: Vec<_> = ends.map(|c| (c["index"].as_u64(), c["vosti_receipt"]["digest"].clone())).collect();
        ends.sort_unstable_by_key(|(index, _)| *index);
        ends.into_iter().map(|(_, digest)| digest).collect()
    };
    let crowd = futures_util::future::join_all((0..8).map(|i| digests(&small, i))).await;
    small.settles().await;
    let text = small.metrics().await;
    assert!(metric(&text, "vllm:num_preemptions_total{") > 0.0, "nobody lost pages: nothing was shown");
    let roomy = toy();
    for (i, under_load) in crowd.iter().enumerate() {
        assert_eq!(under_load.len(), 1 + i % 2);
        assert_eq!(*under_load, digests(&roomy, i).await, "{i}");
    }
    assert_eq!(metric(&roomy.metrics().await, "vllm:num_preemptions_total{"), 0.0, "alone nobody does");
}

#[tokio::test]
async fn a_time_limit_ends_the_request_and_says_not_to_try_again() {
    let limits = Limits { request_time_max: Duration::from_secs(2), ..Limits::default() };
    let server = gated(limits);
    let body = with(completion("slow"), json!({"stream": true}));
    let streamed = server.router.clone().oneshot(post(TEXT, &body)).await.unwrap();
    // The engine is in a step that does not end, so it does not even begin this request.
    let answer = server.post(TEXT, completion("slow")).await;
    assert_eq!(answer.status, 408, "{}", answer.text);
    assert_eq!(answer.headers["x-should-retry"], "false");
    let streamed = read(streamed).await;
    assert_eq!(streamed.status, 200, "its head went out before");
    let last = streamed.text.lines().rev().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let error: serde_json::Value = serde_json::from_str(last).unwrap();
    assert_eq!(error["error"]["code"], "timeout");
    server.step(10);
    server.settles().await;
}

#[tokio::test]
async fn a_reader_that_does_not_read_holds_up_nobody() {
    let server = toy();
    let body = with(chat("never read"), json!({"stream": true, "max_tokens": 300, "ignore_eos": true}));
    let unread = server.router.clone().oneshot(post(CHAT, &body)).await.unwrap();
    // The engine finishes both; the place of the first is free though its client took nothing.
    server.ok(CHAT, chat("read")).await;
    server.settles().await;
    let late = read(unread).await;
    let whole = server.ok(CHAT, with(body, json!({"stream": false}))).await;
    let parts = late.chunks();
    let text: String = parts.iter().filter_map(|c| c["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(whole["choices"][0]["message"]["content"], text, "and nothing of it is lost");
}

#[tokio::test]
async fn a_server_answers_before_its_model_is_there_and_refuses_while_it_drains() {
    let options = Options { gated: true, ..Options::default() };
    let app = App::new(config(&options));
    let router = router(app.clone());
    let ask = async |request| read(router.clone().oneshot(request).await.unwrap()).await;
    let phase = async |path: &str| {
        let answer = ask(get(path)).await;
        (answer.status.as_u16(), answer.json()["status"].as_str().unwrap().to_string())
    };
    assert_eq!(phase("/health").await, (200, "loading".into()));
    assert_eq!(phase("/ready").await, (503, "loading".into()));
    let early = ask(post(TEXT, &completion("x"))).await;
    assert_eq!((early.status.as_u16(), early.headers.contains_key("retry-after")), (503, true));
    assert_eq!(ask(get("/v1/models")).await.status, 503);

    let (service, engine, gate) = service(&options);
    app.ready(service);
    assert_eq!(phase("/ready").await, (200, "ready".into()));
    let server = Toyserver { app: app.clone(), router: router.clone(), engine, gate };
    let running = begin(&server, completion("x"));
    eventually("it runs", || app.places_taken() == 1).await;

    app.drain();
    assert_eq!(phase("/health").await, (200, "draining".into()));
    assert_eq!(phase("/ready").await, (503, "draining".into()));
    assert_eq!(ask(post(TEXT, &completion("y"))).await.status, 503);
    let drained = tokio::time::timeout(Duration::from_millis(20), app.drained()).await;
    assert!(drained.is_err(), "someone still waits for an answer");
    server.step(100);
    assert_eq!(running.await.unwrap().status, 200, "what runs is finished");
    app.drained().await;
}

#[tokio::test]
async fn an_engine_that_ends_is_an_error_and_not_a_hang() {
    let server = gated(Limits::default());
    let cut = begin(&server, completion("cut"));
    eventually("it runs", || server.app.places_taken() == 1).await;
    server.engine.stop();
    server.step(1);
    assert_eq!(cut.await.unwrap().status, 500);
    assert_eq!(server.post(TEXT, completion("after")).await.status, 500);
    assert_eq!(server.send(get("/metrics")).await.status, 200);
}

/// The log of this whole program, kept while a test asks for it.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Option<Vec<u8>>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if let Some(log) = &mut *self.0.lock().unwrap() {
            log.extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Log;
    fn make_writer(&'a self) -> Log {
        self.clone()
    }
}

const SECRET: &str = "xyzzySECRETxyzzy";

/// The token ids of the secret, so many of them as `count` says: a token is a byte here.
fn ids(count: usize) -> Vec<u8> {
    SECRET.bytes().take(count).collect()
}

/// The forms of a prompt besides a text.
fn secret_prompts() -> [Value; 3] {
    [json!([format!("first {SECRET}"), format!("second {SECRET}")]), json!(ids(7)), json!([ids(8), ids(9)])]
}

/// Sends requests with the secret in every place; gives what the server's open endpoints answer afterwards.
async fn secrets(log_prompts: bool) -> String {
    let server = serve(&Options { log_prompts, ..Options::default() });
    for more in [
        json!({}),
        json!({"stream": true}),
        json!({"stop": SECRET, "user": SECRET, "cache_salt": SECRET}),
        json!({SECRET: 1}),
        json!({"temperature": SECRET}),
        json!({"model": SECRET}),
    ] {
        server.post(CHAT, with(chat(SECRET), more.clone())).await;
        server.post(TEXT, with(completion(SECRET), more)).await;
    }
    for prompt in secret_prompts() {
        server.ok(TEXT, with(completion(""), json!({"prompt": prompt}))).await;
    }
    server.send(get(&format!("/{SECRET}"))).await;
    server.send(get(&format!("/v1/models/{SECRET}"))).await;
    let left = server.router.clone().oneshot(post(TEXT, &with(completion(SECRET), json!({"stream": true})))).await;
    drop(left);
    let mut open = String::new();
    for path in ["/health", "/ready", "/metrics", "/status", "/openapi.json"] {
        open += &server.send(get(path)).await.text;
    }
    open
}

#[tokio::test]
async fn neither_the_log_nor_an_open_endpoint_holds_text_of_a_request() {
    let log = Log::default();
    // The log is the whole program's, because requests are prepared on other threads. No other test's lines hold the secret.
    let lines = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_ansi(false);
    tracing::subscriber::set_global_default(lines.with_writer(log.clone()).finish()).unwrap();
    let logged = async |log_prompts| {
        *log.0.lock().unwrap() = Some(Vec::new());
        let open = secrets(log_prompts).await;
        let bytes = log.0.lock().unwrap().take().unwrap();
        (String::from_utf8(bytes).unwrap(), open)
    };
    let (text, open) = logged(false).await;
    assert!(text.contains("answered") && text.contains("/v1/chat/completions"), "the log is on: {text}");
    let shown_ids = [7, 8, 9].map(|count| format!("prompt_token_ids={:?}", ids(count)));
    let told = text.lines().find(|line| line.contains(SECRET) || line.contains("prompt_token_ids"));
    assert!(told.is_none(), "{told:?}");
    assert!(!open.contains(SECRET));
    let (text, open) = logged(true).await;
    let told = text.lines().find(|line| line.contains(SECRET)).expect("it can be asked for, so this test can see it");
    assert!(told.contains("request{id="), "and says whose it is: {told}");
    for part in [format!("first {SECRET}"), format!("second {SECRET}")].iter().chain(&shown_ids) {
        assert!(text.contains(part), "{part} is not logged");
    }
    assert!(!open.contains(SECRET));
}

#[tokio::test]
async fn metrics_count_what_happened() {
    let server = toy();
    let prompt = "m".repeat(130);
    server.ok(TEXT, completion(&prompt)).await;
    server.ok(TEXT, with(completion(&prompt), json!({"n": 2}))).await;
    server.post(TEXT, with(completion("x"), json!({"n": 0}))).await;
    server.settles().await;
    let text = server.metrics().await;
    let value = |name: &str| metric(&text, name);
    assert_eq!(value("vllm:prompt_tokens_total{"), 260.0);
    assert_eq!(value("vllm:generation_tokens_total{"), 72.0);
    assert_eq!(value("vllm:num_requests_running{"), 0.0);
    assert!(value("vllm:prefix_cache_hits_total{") >= 256.0);
    assert!(value("vllm:prefix_cache_queries_total{") >= 390.0);
    assert_eq!(value("vllm:time_to_first_token_seconds_count{"), 3.0);
    assert_eq!(value("vllm:kv_cache_usage_perc{"), 0.0, "what is only cached is not in use");
    assert_eq!(value("vllm:cache_config_info{model_name=\"toy\",block_size=\"64\",num_gpu_blocks="), 1.0);
    assert!(text.contains("vosti:requests_refused_total{model_name=\"toy\",reason=\"invalid\"} 1"));
    assert!(text.ends_with("# EOF\n"));
}

#[tokio::test]
async fn each_response_has_a_name_of_its_own() {
    let server = toy();
    let a = server.send(get("/health")).await.headers["x-request-id"].clone();
    let b = server.send(get("/health")).await.headers["x-request-id"].clone();
    assert_ne!(a, b);
}
