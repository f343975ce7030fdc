//! ollama's API: the chat's answers, in the shape that ollama's clients read.

use crate::common::{Answer, Options, TEMPLATE, chat, completion, get, serve, toy, with};
use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";

fn lines(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.headers["content-type"], "application/x-ndjson", "{}", answer.text);
    answer.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn user(more: Value) -> Value {
    let options = json!({"seed": 5, "num_predict": 24, "repeat_penalty": 1.1, "num_ctx": 4096});
    with(json!({"model": "toy:latest", "messages": [{"role": "user", "content": "x"}], "options": options}), more)
}

#[tokio::test]
async fn a_chat_has_the_chats_text_streamed_or_not() {
    let server = toy();
    let own = server.ok(CHAT, with(chat("x"), json!({"repetition_penalty": 1.1}))).await;
    let streamed = server.post("/api/chat", user(json!({"keep_alive": "5m"}))).await;
    assert_eq!(streamed.headers["x-vosti-ignored"], "options.num_ctx");
    let lines = lines(&streamed);
    let text: String = lines.iter().map(|line| line["message"]["content"].as_str().unwrap()).collect();
    assert_eq!(own["choices"][0]["message"]["content"], text);
    let (last, before) = lines.split_last().unwrap();
    assert!(before.iter().all(|line| line["done"] == false) && last["done"] == true, "{last}");
    assert_eq!(
        (&last["eval_count"], &last["prompt_eval_count"]),
        (&own["usage"]["completion_tokens"], &own["usage"]["prompt_tokens"])
    );
    let whole = server.ok("/api/chat", user(json!({"stream": false}))).await;
    assert_eq!(whole["message"], json!({"role": "assistant", "content": text}));
    assert_eq!((&whole["done_reason"], &whole["vosti_seed"]), (&json!("length"), &json!(5)));
}

#[tokio::test]
async fn a_text_is_answered_by_the_template_and_continued_if_raw() {
    let server = toy();
    let ask = json!({"prompt": "x", "stream": false, "options": {"seed": 5, "num_predict": 24}});
    let answered = server.ok("/api/generate", ask.clone()).await;
    assert_eq!(answered["response"], server.ok(CHAT, chat("x")).await["choices"][0]["message"]["content"]);
    let raw = server.ok("/api/generate", with(ask.clone(), json!({"raw": true}))).await;
    assert_eq!(raw["response"], server.ok("/v1/completions", completion("x")).await["choices"][0]["text"]);
    let base = serve(&Options { chat: false, ..Options::default() });
    assert_eq!(base.ok("/api/generate", ask.clone()).await["response"], raw["response"]);
    let gap = server.post("/api/generate", with(ask, json!({"suffix": "y"}))).await.error();
    assert!(gap.0 == 400 && gap.2.contains("no tokens for"), "{gap:?}");
}

#[tokio::test]
async fn calls_come_whole_and_schemas_hold() {
    let server = serve(&Options { template: format!("{{# <tool_call> #}}{TEMPLATE}"), ..Options::default() });
    let schema = json!({"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": false});
    let held = server.ok("/api/chat", user(json!({"format": schema, "stream": false}))).await;
    let object: Value = serde_json::from_str(held["message"]["content"].as_str().unwrap()).unwrap();
    assert!([1, 2].contains(&object["a"].as_u64().unwrap()));
    let call = json!({"function": {"name": "f", "arguments": {"a": 1}}});
    let messages = json!([{"role": "user", "content": "x"}, {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "2", "tool_name": "f"}]);
    let tools = json!([{"type": "function", "function": {"name": "f", "description": "F", "parameters": schema}}]);
    server.ok("/api/chat", user(json!({"messages": messages, "tools": tools, "stream": false}))).await;
}

#[tokio::test]
async fn the_model_is_listed_shown_and_refused_by_another_name() {
    let server = toy();
    let tags = server.send(get("/api/tags")).await.json();
    assert_eq!(tags["models"][0]["name"], "toy");
    let shown = server.ok("/api/show", json!({"model": "toy"})).await;
    assert_eq!(shown["model_info"]["vosti.context_length"], crate::common::CONTEXT);
    assert!(shown["capabilities"].as_array().unwrap().contains(&json!("completion")));
    assert!(server.send(get("/api/version")).await.json()["version"].is_string());
    let (status, _, message) = server.post("/api/chat", user(json!({"model": "other"}))).await.error();
    assert!(status == 404 && message.contains("other"), "{message}");
    let wrong = server.post("/api/chat", user(json!({"format": "yaml"}))).await.error();
    assert!(wrong.0 == 400 && wrong.2.contains("format"), "{wrong:?}");
}

/// ollama's client for JavaScript shows an error's object as `[object Object]`.
#[tokio::test]
async fn every_error_is_a_text_whoever_refuses() {
    let keyed = serve(&Options { api_keys: vec!["secret".into()], ..Options::default() });
    let server = toy();
    for (answer, status, says) in [
        (keyed.post("/api/chat", user(json!({}))).await, 401, "key"),
        (server.post("/api/pull", json!({"model": "toy"})).await, 404, "/api/pull"),
        (server.send(get("/api/chat")).await, 405, "method"),
        (server.post("/api/chat", json!([1])).await, 400, "object"),
        (server.post("/api/chat", user(json!({"keep_alive": true}))).await, 400, "number of seconds"),
        (server.post("/api/generate", json!({"prompt": "x", "keep_alive": [5]})).await, 400, "number of seconds"),
    ] {
        let text = answer.json()["error"].as_str().unwrap_or_else(|| panic!("{}", answer.text)).to_string();
        assert!(answer.status == status && text.contains(says), "{}: {text}", answer.status);
        assert_eq!(answer.headers["content-type"], "application/json");
    }
    let other = server.post("/v1/nothing", json!({})).await;
    assert!(other.json()["error"]["message"].is_string(), "{}", other.text);
}

/// ollama's clients load a model so, to be quick later, and unload it.
#[tokio::test]
async fn a_request_without_a_text_is_answered_at_once() {
    let server = toy();
    for (reason, more) in [
        ("load", json!({})),
        ("load", json!({"keep_alive": "10m", "stream": true, "options": {"num_ctx": 4096}})),
        ("unload", json!({"keep_alive": 0})),
        ("unload", json!({"keep_alive": "0s"})),
    ] {
        let mut generated =
            server.ok("/api/generate", with(json!({"model": "toy:latest", "prompt": ""}), more.clone())).await;
        let mut chatted = server.ok("/api/chat", with(json!({"model": "toy", "messages": []}), more)).await;
        for answer in [&mut generated, &mut chatted] {
            assert!(answer.as_object_mut().unwrap().remove("created_at").unwrap().is_string());
        }
        assert_eq!(generated, json!({"model": "toy", "response": "", "done": true, "done_reason": reason}));
        let message = json!({"role": "assistant", "content": ""});
        assert_eq!(chatted, json!({"model": "toy", "message": message, "done": true, "done_reason": reason}));
    }
    for path in ["/api/generate", "/api/chat"] {
        server.ok(path, json!({})).await;
        assert_eq!(server.post(path, json!({"model": "other"})).await.error().0, 404);
    }
}

/// The commands of ollama's documentation: curl's `-d` says that a body is a form. A page of another site could say so too, but not
/// without its `Origin`.
#[tokio::test]
async fn a_body_need_not_be_announced_as_json_unless_a_page_sends_it() {
    let server = toy();
    let ask = |path: &str, media: Option<&str>, origin: Option<&str>| {
        let named = |name, value: Option<&str>| value.map(|value| (name, value.to_string()));
        let request = [named("content-type", media), named("origin", origin)].into_iter().flatten();
        let request = request.fold(Request::post(path), |request, (name, value)| request.header(name, value));
        request.body(Body::from(json!({"model": "toy"}).to_string())).unwrap()
    };
    let form = Some("application/x-www-form-urlencoded");
    for path in ["/api/chat", "/api/generate", "/api/show"] {
        for media in [None, form, Some("text/plain")] {
            assert_eq!(server.send(ask(path, media, None)).await.status, 200, "{path} {media:?}");
            for origin in ["https://elsewhere.example", "null"] {
                let page = server.send(ask(path, media, Some(origin))).await.error();
                assert!(page.0 == 415 && page.2.contains("Content-Type"), "{path} {media:?}: {page:?}");
            }
        }
        assert_eq!(server.send(ask(path, Some("application/json"), Some("http://own"))).await.status, 200);
    }
    assert_eq!(server.send(ask(CHAT, form, None)).await.status, 415);
}

#[tokio::test]
async fn every_sampling_number_is_an_option() {
    let server = toy();
    for name in vosti_engine::Numbers::NAMES {
        // A value that every number may have, and that changes most answers.
        let number = if *name == "top_k" { json!(2) } else { json!(0.3) };
        let own = server.ok(CHAT, with(chat("x"), json!({(*name): number}))).await;
        let name = if *name == "repetition_penalty" { "repeat_penalty" } else { name };
        let options = json!({"seed": 5, "num_predict": 24, (name): number});
        let same = server.ok("/api/chat", user(json!({"options": options, "stream": false}))).await;
        assert_eq!(same["message"]["content"], own["choices"][0]["message"]["content"], "{name}");
        let ask = json!({"prompt": "x", "raw": true, "stream": false, "options": options});
        let raw = server.ok("/v1/completions", with(completion("x"), json!({(name): number}))).await;
        assert_eq!(server.ok("/api/generate", ask).await["response"], raw["choices"][0]["text"], "{name}");
    }
}
