//! Answers that continue after the part that the client has: the rest is the same as without a break, and a part that the
//! request cannot have given is refused.

use crate::common::{Options, Toyserver, chat, completion, serve, toy, with};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use vosti_engine::{Policy, Speculation};

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";

/// The choices in a stream's chunks, in their order.
fn parts(chunks: &[Value]) -> Vec<Value> {
    chunks.iter().flat_map(|chunk| chunk["choices"].as_array().unwrap().clone()).collect()
}

/// The parts by choice, without a receipt's time and a call's id, which differ between responses.
fn by_choice(parts: &[Value]) -> BTreeMap<u64, Vec<Value>> {
    let mut all: BTreeMap<u64, Vec<Value>> = BTreeMap::new();
    for part in parts {
        let mut part = part.clone();
        part.get_mut("vosti_receipt").and_then(Value::as_object_mut).map(|receipt| receipt.remove("created"));
        for call in part["delta"]["tool_calls"].as_array_mut().into_iter().flatten() {
            call.as_object_mut().unwrap().remove("id");
        }
        all.entry(part["index"].as_u64().unwrap()).or_default().push(part);
    }
    all
}

/// The `vosti_resume` of a client that got these parts.
fn given(parts: &[Value]) -> Value {
    let mut all: BTreeMap<u64, (Vec<Value>, bool)> = BTreeMap::new();
    for part in parts {
        let (tokens, finished) = all.entry(part["index"].as_u64().unwrap()).or_default();
        tokens.extend(part["token_ids"].as_array().into_iter().flatten().cloned());
        *finished |= !part["finish_reason"].is_null();
    }
    let choice = |(index, (tokens, finished))| json!({"index": index, "token_ids": tokens, "finished": finished});
    json!({"fingerprint": "vosti-toy", "choices": all.into_iter().map(choice).collect::<Vec<_>>()})
}

/// Streams the request, and resumes it after every part.
async fn every_cut(server: &Toyserver, path: &str, body: Value) {
    let body = with(body, json!({"stream": true, "return_token_ids": true}));
    let whole = parts(&server.post(path, body.clone()).await.chunks());
    assert!(whole.len() > 5, "{body} gave {whole:?}");
    for cut in 0..=whole.len() {
        let (head, tail) = whole.split_at(cut);
        let rest = server.post(path, with(body.clone(), json!({"vosti_resume": given(head)}))).await;
        assert_eq!(rest.status, 200, "{body} at {cut}: {}", rest.text);
        assert_eq!(by_choice(&parts(&rest.chunks())), by_choice(tail), "{body} at {cut}");
    }
}

fn kinds() -> Vec<Value> {
    vec![
        json!({"temperature": 0}),
        json!({"temperature": 0.9, "top_k": 20}),
        json!({"temperature": 1, "n": 3}),
        json!({"temperature": 0.8, "repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.5}),
        json!({"temperature": 1, "stop": ["e", "\u{e9}", "q "], "min_tokens": 6}),
        json!({"temperature": 1, "structured_outputs": {"regex": "[a-z]{3,9}( [0-9]{2,4}){2,5}"}}),
        json!({"temperature": 1, "n": 2, "vosti_digest": true}),
        json!({"temperature": 1, "logit_bias": {"257": 4}, "max_tokens": 60}),
    ]
}

#[tokio::test]
async fn the_rest_of_a_stream_is_what_would_have_come() {
    let fast = Policy { speculation: Speculation::NGRAM, ..Policy::default() };
    for options in [Options::default(), Options { policy: fast, ..Options::default() }] {
        let server = serve(&options);
        for kind in kinds() {
            every_cut(&server, TEXT, with(with(completion("abc abc "), json!({"logprobs": 2})), kind.clone())).await;
            every_cut(&server, CHAT, with(with(chat("abc"), json!({"logprobs": true, "top_logprobs": 2})), kind)).await;
        }
        server.settles().await;
    }
}

#[tokio::test]
async fn the_rest_of_calls_is_what_would_have_come() {
    let server = serve(&Options {
        template: crate::common::TEMPLATE.replace("{{", "{# <tool_call> #}{{"),
        ..Options::default()
    });
    let tools = json!([{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
        "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false}}}]);
    let body =
        with(chat("abc"), json!({"tools": tools, "tool_choice": "required", "max_tokens": 90, "temperature": 1}));
    every_cut(&server, CHAT, body).await;
}

#[tokio::test]
async fn the_rest_of_a_whole_answer_is_the_tail_of_its_text_and_tokens() {
    let server = toy();
    let more = json!({"temperature": 0.9, "logprobs": 1, "return_token_ids": true, "n": 2, "ignore_eos": true});
    let body = with(completion("abc "), more);
    let whole = server.ok(TEXT, body.clone()).await;
    let tokens = |answer: &Value, i: usize| answer["choices"][i]["token_ids"].as_array().unwrap().clone();
    for cut in [0, 1, 7, 23, 24] {
        let given = json!([{"index": 1, "token_ids": tokens(&whole, 1)[..cut]}]);
        let resume = json!({"vosti_resume": {"fingerprint": "vosti-toy", "choices": given}});
        let rest = server.ok(TEXT, with(body.clone(), resume)).await;
        assert_eq!(rest["choices"][0], whole["choices"][0]);
        assert_eq!(tokens(&rest, 1), tokens(&whole, 1)[cut..]);
        assert!(whole["choices"][1]["text"].as_str().unwrap().ends_with(rest["choices"][1]["text"].as_str().unwrap()));
        assert_eq!(rest["choices"][1]["logprobs"]["tokens"].as_array().unwrap().len(), 24 - cut);
        assert_eq!(rest["choices"][1]["finish_reason"], "length");
        assert_eq!(rest["usage"]["completion_tokens"], 48);
    }
}

#[tokio::test]
async fn what_the_request_cannot_have_given_is_refused_by_its_position() {
    let server = toy();
    let body = with(completion("abc "), json!({"temperature": 0, "return_token_ids": true, "max_tokens": 8}));
    let whole = server.ok(TEXT, body.clone()).await;
    let tokens: Vec<u64> = serde_json::from_value(whole["choices"][0]["token_ids"].clone()).unwrap();
    assert_eq!(tokens.len(), 8);
    let mut other = tokens.clone();
    other[5] = (other[5] + 1) % 256;
    let longer = [&tokens[..], &[1]].concat();
    let refused = |choices: Value, more: Value| {
        let resume = json!({"vosti_resume": {"fingerprint": "vosti-toy", "choices": choices}});
        server.post(TEXT, with(with(body.clone(), resume), more))
    };
    for stream in [false, true] {
        let more = json!({"stream": stream});
        for (choices, says) in [
            (json!([{"index": 0, "token_ids": other}]), "at position 5"),
            (json!([{"index": 0, "token_ids": longer}]), "at position 8"),
            (json!([{"index": 0, "token_ids": [tokens[0], 258]}]), "token 258 at position 1"),
            (json!([{"index": 1, "token_ids": []}]), "choice 1"),
            (json!([{"index": 0, "token_ids": []}, {"index": 0, "token_ids": []}]), "twice"),
            (json!([{"index": 0, "token_ids": tokens[..3], "finished": true}]), "ended after 3"),
        ] {
            let (status, param, message) = refused(choices, more.clone()).await.error();
            assert_eq!((status, param.as_str()), (400, "vosti_resume"), "{message}");
            assert!(message.contains(says), "{message}");
        }
    }
    // Tokens after a stop, and tokens that a grammar does not allow.
    let stop = json!({"stop_token_ids": [tokens[4]]});
    let (status, _, message) = refused(json!([{"index": 0, "token_ids": tokens}]), stop).await.error();
    assert!(status == 400 && message.contains("at position 5"), "{message}");
    let grammar = json!({"structured_outputs": {"regex": "[0-9]+"}});
    let (status, _, message) = refused(json!([{"index": 0, "token_ids": [200]}]), grammar).await.error();
    assert!(status == 400 && message.contains("at position 0"), "{message}");
    server.settles().await;
}

#[tokio::test]
async fn another_fingerprint_is_refused_and_says_which_is_wanted() {
    let server = toy();
    let resume = json!({"fingerprint": "vosti-other", "choices": []});
    let answer = server.post(CHAT, with(chat("abc"), json!({"vosti_resume": resume}))).await;
    let (status, param, message) = answer.error();
    assert_eq!((status, param.as_str()), (409, "vosti_resume"));
    assert!(message.contains("vosti-other") && message.contains("vosti-toy"), "{message}");
    assert_eq!(answer.json()["error"]["code"], "wrong_fingerprint");
    let resume = json!({"fingerprint": "vosti-toy", "choices": []});
    let mut body = with(chat("abc"), json!({"vosti_resume": resume, "temperature": 1}));
    body.as_object_mut().unwrap().remove("seed");
    assert_eq!(server.post(CHAT, body).await.error().1, "seed");
}
