//! Request bodies of every kind, 100,000 wrong ones: none ends in a 5xx or a panic, and afterwards the engine is empty.

use crate::common::{Options, serve};
use axum::body::Body;
use axum::http::Request;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};
use tower::ServiceExt;
use vosti_server::Limits;

/// How many bodies must be refused; others are accepted.
const REFUSED: usize = 100_000;

/// Values of all kinds, valid ones among them.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-3i64..300).prop_map(Value::from),
        any::<f64>().prop_map(|x| json!(x)),
        (-2.0f64..3.0).prop_map(|x| json!(x)),
        ".{0,12}".prop_map(Value::from),
        prop_oneof![
            Just("user"),
            Just("assistant"),
            Just("tool"),
            Just("text"),
            Just("json_object"),
            Just("json_schema"),
            Just("function"),
            Just("auto"),
            Just("required"),
            Just("none"),
            Just("toy"),
            Just("f"),
            Just("object"),
        ]
        .prop_map(Value::from),
        prop_oneof![Just(i64::MAX), Just(i64::MIN), Just(0), Just(1 << 53)].prop_map(Value::from),
        Just(json!(1e308)),
    ];
    leaf.prop_recursive(4, 24, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((name(), inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Names of fields, at any depth, and others.
fn name() -> impl Strategy<Value = String> {
    let known = [
        "model",
        "messages",
        "prompt",
        "role",
        "content",
        "type",
        "text",
        "max_tokens",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "n",
        "seed",
        "stop",
        "stop_token_ids",
        "logit_bias",
        "logprobs",
        "top_logprobs",
        "echo",
        "stream",
        "stream_options",
        "include_usage",
        "response_format",
        "json_schema",
        "schema",
        "name",
        "tools",
        "tool_choice",
        "function",
        "parameters",
        "properties",
        "required",
        "items",
        "enum",
        "pattern",
        "$ref",
        "anyOf",
        "tool_calls",
        "tool_call_id",
        "arguments",
        "id",
        "prompt_logprobs",
        "repetition_penalty",
        "presence_penalty",
        "cache_salt",
        "frequency_penalty",
        "ignore_eos",
        "vosti_digest",
        "vosti_date",
        "chat_template_kwargs",
        "best_of",
        "tokens",
        "max_completion_tokens",
        "add_generation_prompt",
        "return_token_ids",
        "strict",
        "minimum",
        "maxLength",
        "input",
        "instructions",
        "max_output_tokens",
        "system",
        "thinking",
        "call_id",
        "output",
        "tool_use_id",
        "input_schema",
        "stop_sequences",
        "min_tokens",
        "structured_outputs",
        "guided_regex",
        "guided_choice",
        "guided_grammar",
        "continue_final_message",
    ];
    prop_oneof![9 => prop::sample::select(known.to_vec()).prop_map(String::from), 1 => ".{0,6}"]
}

/// A valid request, with up to two fields added or replaced.
fn nearly() -> impl Strategy<Value = Value> {
    let base = prop_oneof![
        Just(json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3})),
        Just(json!({"prompt": "hi", "max_tokens": 3})),
        Just(json!({"prompt": [[1, 2], [3]], "max_tokens": 2, "n": 2})),
        Just(json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3,
            "tools": [{"type": "function", "function": {"name": "f"}}]})),
        Just(json!({"tokens": [1, 2]})),
        Just(json!({"input": "hi", "max_output_tokens": 3})),
        Just(json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}], "max_tokens": 3,
            "system": "s"})),
    ];
    (base, prop::collection::vec((name(), value()), 0..3)).prop_map(|(mut base, more)| {
        base.as_object_mut().unwrap().extend(more);
        base
    })
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    let text = prop_oneof![6 => nearly(), 1 => value()].prop_map(|value| value.to_string().into_bytes());
    let cut = (text.clone_boxed(), any::<prop::sample::Index>(), any::<u8>()).prop_map(|(mut bytes, at, byte)| {
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            if byte < 64 { bytes.truncate(at) } else { bytes[at] = byte }
        }
        bytes
    });
    prop_oneof![6 => text, 3 => cut, 1 => prop::collection::vec(any::<u8>(), 0..64)]
}

/// `Strategy` values are not `Clone` in general.
trait CloneBoxed: Strategy + Clone + 'static {
    fn clone_boxed(&self) -> BoxedStrategy<Self::Value> {
        self.clone().boxed()
    }
}

impl<S: Strategy + Clone + 'static> CloneBoxed for S {}

#[test]
fn no_body_ends_in_a_server_error() {
    // A failure prints the body; the seed is fixed, so that it can be repeated.
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let strategy = body();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let limits = Limits { answers_max: 10_000, ..Limits::default() };
        let server = serve(&Options { limits, ..Options::default() });
        let paths = [
            "/v1/chat/completions",
            "/v1/completions",
            "/tokenize",
            "/detokenize",
            "/v1/responses",
            "/v1/messages",
            "/v1/messages/count_tokens",
        ];
        let (mut taken, mut refused) = (0, 0);
        while refused < REFUSED {
            let body = strategy.new_tree(&mut runner).unwrap().current();
            let path = if body.starts_with(b"{\"prompt\"") { paths[1] } else { paths[(taken + refused) % paths.len()] };
            let request = Request::post(path).header("content-type", "application/json");
            let request = request.body(Body::from(body.clone())).unwrap();
            let answer = server.router.clone().oneshot(request).await.unwrap();
            let status = answer.status().as_u16();
            assert!(status < 500, "{path} gave {status} for {}", String::from_utf8_lossy(&body));
            *if status == 200 { &mut taken } else { &mut refused } += 1;
            assert!(taken <= REFUSED, "{taken} were right, {refused} wrong: the bodies are too tame");
            crate::common::read_any(answer).await;
        }
        assert!(taken > REFUSED / 50, "only {taken} were right: the bodies are too wild to reach the engine");
        println!("{refused} refused, {taken} taken");
        server.settles().await;
    });
}
