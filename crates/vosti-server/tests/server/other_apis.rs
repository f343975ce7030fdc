//! The Responses and Messages APIs: the same answers as the chat API's, in the form of each API.

use crate::common::{Answer, Options, TEMPLATE, Toyserver, chat, get, serve, toy, with};
use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";

/// The events of a stream; the name of each must be its `type`.
fn events(answer: &Answer) -> Vec<Value> {
    let blocks = answer.text.split("\n\n").filter(|block| !block.is_empty());
    let event = |block: &str| {
        let name = block.lines().find_map(|line| line.strip_prefix("event: ")).expect("a name");
        let data = block.lines().find_map(|line| line.strip_prefix("data: ")).expect("data");
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["type"], name);
        data
    };
    blocks.map(event).collect()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    let mut kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    kinds.dedup();
    kinds
}

fn schema() -> Value {
    json!({"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["a"],
        "additionalProperties": false})
}

/// The body without what differs from one response to the next.
fn same(mut body: Value) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(members) => {
                for name in ["id", "call_id", "created_at", "cached_tokens", "usage"] {
                    members.shift_remove(name);
                }
                members.values_mut().for_each(strip);
            }
            Value::Array(list) => list.iter_mut().for_each(strip),
            _ => {}
        }
    }
    strip(&mut body);
    body
}

#[tokio::test]
async fn a_response_has_the_chats_text_streamed_or_not() {
    let server = toy();
    let system = json!([{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}]);
    let wanted = server.ok(CHAT, with(chat(""), json!({"messages": system}))).await;
    let ask = json!({"model": "toy", "input": "hi", "instructions": "s", "max_output_tokens": 24, "seed": 5,
        "metadata": {"a": "b"}, "store": true, "include": ["reasoning.encrypted_content"]});
    let whole = server.ok(RESPONSES, ask.clone()).await;
    assert_eq!(whole["output"][0]["content"][0]["text"], wanted["choices"][0]["message"]["content"]);
    assert_eq!(
        (&whole["status"], &whole["incomplete_details"]["reason"]),
        (&json!("incomplete"), &json!("max_output_tokens"))
    );
    assert_eq!(whole["usage"]["output_tokens"], 24);
    assert_eq!(whole["vosti_seed"], 5);
    let events = events(&server.post(RESPONSES, with(ask, json!({"stream": true}))).await);
    assert_eq!(
        kinds(&events),
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.incomplete"
        ]
    );
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
    }
    let text: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
    assert_eq!(whole["output"][0]["content"][0]["text"], text);
    assert_eq!(same(events.last().unwrap()["response"].clone()), same(whole));
}

#[tokio::test]
async fn a_response_calls_functions_and_takes_their_outputs() {
    let server = toy();
    let tool = json!({"type": "function", "name": "look", "description": "d", "parameters": schema(), "strict": true});
    let ask = json!({"input": [{"role": "user", "content": [{"type": "input_text", "text": "go"}]}], "tools": [tool],
        "tool_choice": "required", "parallel_tool_calls": false, "seed": 5, "max_output_tokens": 200});
    let whole = server.ok(RESPONSES, ask.clone()).await;
    let call = &whole["output"][0];
    assert_eq!(
        (&call["type"], &call["name"], &whole["status"]),
        (&json!("function_call"), &json!("look"), &json!("completed"))
    );
    let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
    assert!(arguments["a"].as_u64().unwrap() <= 9);
    let events = events(&server.post(RESPONSES, with(ask.clone(), json!({"stream": true}))).await);
    let parts: String = events.iter().filter_map(|event| event["delta"].as_str()).collect();
    assert_eq!(call["arguments"], parts);
    assert_eq!(same(events.last().unwrap()["response"].clone()), same(whole.clone()));
    // The client sends the output back unchanged, with the call's result.
    let mut input = ask["input"].as_array().unwrap().clone();
    input.push(call.clone());
    input.push(json!({"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}));
    server.ok(RESPONSES, with(ask, json!({"input": input, "tool_choice": "none"}))).await;
}

#[tokio::test]
async fn a_response_keeps_to_a_schema_and_refuses_by_name() {
    let server = toy();
    let format = json!({"format": {"type": "json_schema", "name": "x", "schema": schema(), "strict": true}});
    let answer = server.ok(RESPONSES, json!({"input": "x", "text": format, "max_output_tokens": 50})).await;
    let text = answer["output"][0]["content"][0]["text"].as_str().unwrap();
    assert!(serde_json::from_str::<Value>(text).unwrap()["a"].is_u64(), "{text}");
    for (more, field) in [
        (json!({"previous_response_id": "resp_1"}), "previous_response_id"),
        (json!({"background": true}), "background"),
        (json!({"frobnicate": 1}), "frobnicate"),
        (json!({"input": []}), "input"),
        (json!({"input": [{"type": "web_search_call"}]}), "input[0].type"),
        (json!({"input": [{"role": "user"}]}), "input[0].content"),
        (json!({"tools": [{"type": "web_search"}]}), "tools[0].type"),
    ] {
        let (status, param, message) = server.post(RESPONSES, with(json!({"input": "x"}), more)).await.error();
        assert_eq!((status, param.as_str()), (400, field), "{message}");
    }
}

#[tokio::test]
async fn a_message_has_the_chats_text_streamed_or_not() {
    let server = toy();
    let conversation = json!([{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}]);
    let wanted = server.ok(CHAT, with(chat(""), json!({"messages": conversation}))).await;
    let ask = json!({"model": "toy", "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}], "max_tokens": 24, "seed": 5,
        "metadata": {"user_id": "u"}});
    let whole = server.ok(MESSAGES, ask.clone()).await;
    assert_eq!(whole["content"][0]["text"], wanted["choices"][0]["message"]["content"]);
    assert_eq!((&whole["stop_reason"], &whole["usage"]["output_tokens"]), (&json!("max_tokens"), &json!(24)));
    let events = events(&server.post(MESSAGES, with(ask.clone(), json!({"stream": true}))).await);
    assert_eq!(
        kinds(&events),
        [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop"
        ]
    );
    let text: String = events.iter().filter_map(|event| event["delta"]["text"].as_str()).collect();
    assert_eq!(whole["content"][0]["text"], text);
    let counted = json!({"messages": ask["messages"], "system": ask["system"]});
    let count = server.ok("/v1/messages/count_tokens", counted).await["input_tokens"].as_u64();
    assert_eq!(count, wanted["usage"]["prompt_tokens"].as_u64());
    // A message that the assistant has begun is continued, and the answer names the stop sequence that ended it.
    let first = text.chars().find(|c| c.is_ascii()).expect("an ASCII character").to_string();
    let stopped = server.ok(MESSAGES, with(ask.clone(), json!({"stop_sequences": [first]}))).await;
    assert_eq!(
        (&stopped["stop_reason"], &stopped["stop_sequence"]),
        (&json!("stop_sequence"), &json!(first)),
        "{text}"
    );
    let open = json!([{"role": "user", "content": "x"}, {"role": "assistant", "content": "Well, "}]);
    let open = server.ok(MESSAGES, with(ask, json!({"messages": open}))).await;
    let same = json!({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "x"},
        {"role": "assistant", "content": "Well, "}], "continue_final_message": true});
    assert_eq!(
        open["content"][0]["text"],
        server.ok(CHAT, with(chat(""), same)).await["choices"][0]["message"]["content"]
    );
}

#[tokio::test]
async fn a_message_uses_tools_and_takes_their_results() {
    let server = toy();
    let tool = json!({"name": "look", "description": "d", "input_schema": schema(), "type": "custom"});
    let user = json!({"role": "user", "content": "go"});
    let ask = json!({"messages": [user], "tools": [tool], "max_tokens": 200, "seed": 5,
        "tool_choice": {"type": "any", "disable_parallel_tool_use": true}});
    let whole = server.ok(MESSAGES, ask.clone()).await;
    let call = &whole["content"][0];
    assert_eq!(
        (&call["type"], &call["name"], &whole["stop_reason"]),
        (&json!("tool_use"), &json!("look"), &json!("tool_use"))
    );
    let events = events(&server.post(MESSAGES, with(ask.clone(), json!({"stream": true}))).await);
    let parts: String = events.iter().filter_map(|event| event["delta"]["partial_json"].as_str()).collect();
    assert_eq!(serde_json::from_str::<Value>(&parts).unwrap(), call["input"]);
    let result =
        json!({"type": "tool_result", "tool_use_id": call["id"], "content": [{"type": "text", "text": "sunny"}]});
    let told = json!([user, {"role": "assistant", "content": whole["content"]}, {"role": "user", "content": [result]}]);
    server.ok(MESSAGES, with(ask.clone(), json!({"messages": told, "tool_choice": {"type": "none"}}))).await;
    for (more, field) in [
        (json!({"messages": [{"role": "tool", "content": "x"}]}), "messages[0].role"),
        (json!({"messages": [{"role": "assistant", "content": [result]}]}), "messages[0].content[0]"),
        (json!({"container": "c"}), "container"),
        (json!({"frobnicate": 1}), "frobnicate"),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}),
            "messages[0].content[0].source",
        ),
    ] {
        let (status, param, message) = server.post(MESSAGES, with(ask.clone(), more)).await.error();
        assert_eq!((status, param.as_str()), (400, field), "{message}");
    }
    let refused = server.post(MESSAGES, json!({"messages": []})).await.json();
    assert_eq!(refused["type"], "error", "Anthropic's clients look for it: {refused}");
}

#[tokio::test]
async fn thoughts_are_blocks_of_their_own() {
    let template = format!("{TEMPLATE}{{% if add_generation_prompt %}}<think>\n{{% endif %}}{{# </think> #}}");
    let server = serve(&Options { template, ..Options::default() });
    let message = server.ok(MESSAGES, json!({"messages": [{"role": "user", "content": "x"}], "max_tokens": 20})).await;
    assert_eq!(message["content"][0]["type"], "thinking");
    let response = server.ok(RESPONSES, json!({"input": "x", "max_output_tokens": 20})).await;
    assert_eq!(response["output"][0]["type"], "reasoning");
    assert_eq!(response["output"][0]["content"][0]["type"], "reasoning_text");
    // The client sends them back unchanged.
    let told = json!([{"role": "user", "content": "x"}, {"role": "assistant", "content": message["content"]},
        {"role": "user", "content": "y"}]);
    server.ok(MESSAGES, json!({"messages": told, "max_tokens": 2})).await;
    let items = json!([{"role": "user", "content": "x"}, response["output"][0], {"role": "assistant", "content": "z"},
        {"role": "user", "content": "y"}]);
    server.ok(RESPONSES, json!({"input": items, "max_output_tokens": 2})).await;
}

#[tokio::test]
async fn anthropics_header_opens_the_api() {
    let server = serve(&Options { api_keys: vec!["secret".into()], ..Options::default() });
    let ask = |key: &str| {
        let body = json!({"messages": [{"role": "user", "content": "x"}], "max_tokens": 1});
        let request = Request::post(MESSAGES).header("content-type", "application/json").header("x-api-key", key);
        request.body(Body::from(body.to_string())).unwrap()
    };
    assert_eq!(server.send(ask("secret")).await.status, 200);
    assert_eq!(server.send(ask("wrong")).await.status, 401);
}

#[tokio::test]
async fn the_tokenizer_describes_itself_and_embeddings_are_refused_as_such() {
    let server = toy();
    let info = server.send(get("/tokenizer_info")).await.json();
    assert_eq!((&info["eos_token"], &info["bos_token"]), (&json!("<|im_end|>"), &Value::Null));
    assert_eq!((&info["chat_template"], &info["vocab_size"]), (&json!(TEMPLATE), &json!(crate::common::VOCAB)));
    let (status, _, message) = server.post("/v1/embeddings", json!({"input": "x"})).await.error();
    assert_eq!(status, 404);
    assert!(message.contains("embeddings"), "{message}");
}

/// The tokens of a conversation, from `/tokenize`.
async fn tokens(server: &Toyserver, more: Value) -> Value {
    server.ok("/tokenize", more).await["tokens"].clone()
}

async fn prompt_of(server: &Toyserver, path: &str, body: Value) -> Value {
    let body = with(body, json!({"vosti_digest": true, "seed": 5}));
    let answer = server.ok(path, body).await;
    answer["vosti_receipt"]["prompt"].clone()
}

/// Everything that the assistant said in several items is in the prompt, and encrypted thoughts add nothing.
#[tokio::test]
async fn no_item_of_a_conversation_is_lost() {
    let server = toy();
    let said = |role: &str, text: &str| json!({"role": role, "content": text});
    let items = json!([said("user", "x"), {"type": "reasoning", "summary": [], "encrypted_content": "e"}, said("user", "y"),
        said("assistant", "a"), said("assistant", "b"), said("user", "z")]);
    let prompt = prompt_of(&server, RESPONSES, json!({"input": items, "max_output_tokens": 1})).await;
    let plain = json!([
        said("user", "x"),
        said("user", "y"),
        said("assistant", "a"),
        said("assistant", "b"),
        said("user", "z")
    ]);
    assert_eq!(prompt, tokens(&server, json!({"messages": plain})).await);
}

#[tokio::test]
async fn a_response_is_sampled_as_it_says() {
    let server = toy();
    let sampled = json!({"seed": 5, "min_p": 0.001, "repetition_penalty": 1.2, "presence_penalty": 0.5, "frequency_penalty": 0.1,
        "logit_bias": {"65": 20, "66": 20, "67": 20}, "ignore_eos": true, "temperature": 1.5});
    let wanted = server.ok(CHAT, with(with(chat("hi"), sampled.clone()), json!({"max_tokens": 20}))).await;
    let ask = with(json!({"input": "hi", "max_output_tokens": 20}), sampled);
    let response = server.ok(RESPONSES, ask.clone()).await;
    assert_eq!(response["output"][0]["content"][0]["text"], wanted["choices"][0]["message"]["content"]);
    let held = with(ask.clone(), json!({"structured_outputs": {"choice": ["yes", "no"]}, "ignore_eos": false}));
    let text = server.ok(RESPONSES, held.clone()).await["output"][0]["content"][0]["text"].clone();
    assert!(text == "yes" || text == "no", "{text}");
    let stopped = server.ok(RESPONSES, with(held.clone(), json!({"stop": ["e", "o"]}))).await;
    assert_ne!(stopped["output"][0]["content"][0]["text"], text);
    let twice = with(held, json!({"text": {"format": {"type": "json_object"}}}));
    assert_eq!(server.post(RESPONSES, twice).await.error().1, "structured_outputs.choice");
}

#[tokio::test]
async fn a_message_keeps_to_its_output_config() {
    let server = toy();
    let user = json!([{"role": "user", "content": "x"}]);
    let format = json!({"type": "json_schema", "schema": schema()});
    let ask = json!({"messages": user, "max_tokens": 50, "output_config": {"format": format, "effort": "high"}});
    let message = server.ok(MESSAGES, ask).await;
    let text = message["content"][0]["text"].as_str().unwrap();
    assert!(serde_json::from_str::<Value>(text).unwrap()["a"].is_u64(), "{text}");
    // The template gets the effort; other servers' thoughts are left out, and a system message stays in its place.
    let template = format!("{{{{ reasoning_effort }}}}{{{{ enable_thinking }}}}{{{{ odd }}}}{TEMPLATE}");
    let server = serve(&Options { template, ..Options::default() });
    let said = json!([{"role": "user", "content": "x"},
        {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "d"}, {"type": "text", "text": "y"}]},
        {"role": "system", "content": "z"}, {"role": "user", "content": "w"}]);
    let more = json!({"messages": said, "output_config": {"effort": "low"}, "thinking": {"type": "adaptive"},
        "chat_template_kwargs": {"odd": 7}});
    let prompt = prompt_of(&server, MESSAGES, with(more.clone(), json!({"max_tokens": 1}))).await;
    let plain = json!([{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}, {"role": "system", "content": "z"},
        {"role": "user", "content": "w"}]);
    let variables = json!({"odd": 7, "enable_thinking": true, "reasoning_effort": "low"});
    let wanted = tokens(&server, json!({"messages": plain, "chat_template_kwargs": variables})).await;
    assert_eq!(prompt, wanted);
    let counted = server.ok("/v1/messages/count_tokens", more).await["input_tokens"].as_u64().unwrap();
    assert_eq!(counted as usize, wanted.as_array().unwrap().len());
}

#[tokio::test]
async fn what_is_tokenized_is_what_a_chat_sees() {
    let server = toy();
    let ask = json!({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "Well, "}],
        "continue_final_message": true, "tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "none"});
    let chat = server.ok(CHAT, with(ask.clone(), json!({"max_tokens": 1, "return_token_ids": true}))).await;
    assert_eq!(tokens(&server, ask).await, chat["prompt_token_ids"]);
}
