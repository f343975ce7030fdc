//! The contents of answers: streams, choices, batches, log-probabilities, stops, seeds, caches.

use crate::common::{Answer, CONTEXT, Options, Toyserver, VOCAB, chat, completion, serve, toy, with};
use serde_json::{Value, json};
use std::ops::RangeInclusive;
use vosti_engine::{Policy, Speculation};

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";

/// Joins the chunks of a chat's stream as a client does.
fn joined_chat(answer: &Answer) -> Vec<Value> {
    let mut choices: Vec<Value> = Vec::new();
    for chunk in answer.chunks() {
        for part in chunk["choices"].as_array().unwrap() {
            let index = part["index"].as_u64().unwrap() as usize;
            while choices.len() <= index {
                choices.push(json!({"content": "", "logprobs": [], "finish_reason": null, "token_ids": []}));
            }
            let choice = &mut choices[index];
            let more = part["delta"]["content"].as_str().unwrap_or_default();
            choice["content"] = format!("{}{more}", choice["content"].as_str().unwrap()).into();
            for (all, more) in [("logprobs", &part["logprobs"]["content"]), ("token_ids", &part["token_ids"])] {
                let more = more.as_array().cloned().unwrap_or_default();
                choice[all].as_array_mut().unwrap().extend(more);
            }
            if !part["finish_reason"].is_null() {
                assert!(choice["finish_reason"].is_null(), "two ends");
                choice["finish_reason"] = part["finish_reason"].clone();
                choice["digest"] = part["vosti_receipt"]["digest"].clone();
            }
        }
    }
    choices
}

fn whole_chat(body: &Value) -> Vec<Value> {
    let choice = |choice: &Value| {
        json!({"content": choice["message"]["content"], "logprobs": choice["logprobs"]["content"],
            "finish_reason": choice["finish_reason"], "token_ids": choice["token_ids"],
            "digest": choice["vosti_receipt"]["digest"]})
    };
    body["choices"].as_array().unwrap().iter().map(choice).collect()
}

#[tokio::test]
async fn a_streamed_chat_is_the_whole_one_in_parts() {
    let server = toy();
    let body = with(
        chat("Hello"),
        json!({"n": 3, "logprobs": true, "top_logprobs": 2, "return_token_ids": true,
        "vosti_digest": true, "temperature": 0.8}),
    );
    let whole = server.ok(CHAT, body.clone()).await;
    let streamed = server.post(CHAT, with(body, json!({"stream": true}))).await;
    assert_eq!(streamed.headers["content-type"], "text/event-stream");
    assert_eq!(joined_chat(&streamed), whole_chat(&whole));
    assert_eq!(whole["choices"].as_array().unwrap().len(), 3);
    assert_eq!(whole["system_fingerprint"], "vosti-toy");
    assert_eq!(whole["choices"][0]["logprobs"]["content"].as_array().unwrap().len(), 24);
    assert_ne!(whole["choices"][0]["message"], whole["choices"][1]["message"], "choices draw differently");
}

/// The toy's rows choose their best next token.
#[tokio::test]
async fn routed_experts_are_those_of_each_position() {
    let server = serve(&Options { experts: true, ..Options::default() });
    let more =
        json!({"temperature": 0, "ignore_eos": true, "return_token_ids": true, "return_routed_experts": true, "n": 2});
    for (path, body) in [(CHAT, chat("Hello")), (TEXT, completion("abc"))] {
        let whole = server.ok(path, with(body.clone(), more.clone())).await;
        for choice in whole["choices"].as_array().unwrap() {
            let ids = choice["token_ids"].as_array().unwrap();
            let prompt = whole["usage"]["prompt_tokens"].as_u64().unwrap() as usize;
            let experts = choice["routed_experts"].as_array().unwrap();
            assert_eq!(experts.len(), prompt + ids.len() - 1, "{whole}");
            for (row, id) in experts[prompt - 1..].iter().zip(ids) {
                assert_eq!(*row, json!([[id], [id]]), "a row of two layers");
            }
        }
        let streamed = server.post(path, with(body.clone(), with(more.clone(), json!({"stream": true})))).await;
        let last =
            |chunk: &Value| chunk["choices"].as_array().unwrap().iter().find_map(|c| c.get("routed_experts").cloned());
        let streamed: Vec<Value> = streamed.chunks().iter().filter_map(last).collect();
        let both = [0, 1].map(|choice| whole["choices"][choice]["routed_experts"].clone());
        assert_eq!(streamed, both, "in the last chunk of each choice");
        let refused = toy().post(path, with(body, more.clone())).await;
        assert_eq!(
            (refused.status.as_u16(), &refused.json()["error"]["param"]),
            (400, &json!("return_routed_experts"))
        );
    }
}

#[tokio::test]
async fn a_streamed_completion_is_the_whole_one_in_parts() {
    let server = toy();
    let body = with(completion("abc"), json!({"prompt": ["abc", "xyz"], "n": 2, "logprobs": 2, "ignore_eos": true}));
    let whole = server.ok(TEXT, body.clone()).await;
    let options = json!({"stream": true, "stream_options": {"include_usage": true}});
    let streamed = server.post(TEXT, with(body, options)).await;
    let mut texts = vec![String::new(); 4];
    let mut offsets: Vec<Vec<Value>> = vec![Vec::new(); 4];
    for chunk in streamed.chunks() {
        for part in chunk["choices"].as_array().unwrap() {
            let index = part["index"].as_u64().unwrap() as usize;
            texts[index] += part["text"].as_str().unwrap();
            offsets[index].extend(part["logprobs"]["text_offset"].as_array().cloned().unwrap_or_default());
        }
    }
    for (index, choice) in whole["choices"].as_array().unwrap().iter().enumerate() {
        assert_eq!(choice["text"], texts[index], "{index}");
        assert_eq!(choice["logprobs"]["text_offset"], Value::from(offsets[index].clone()), "{index}");
    }
    let chunks = streamed.chunks();
    let last = chunks.last().unwrap();
    assert_eq!((&last["usage"], &last["choices"]), (&whole["usage"], &json!([])));
    assert!(chunks[0]["usage"].is_null() && chunks[0].as_object().unwrap().contains_key("usage"));
    assert_eq!(whole["usage"]["prompt_tokens"], 6, "prompts count once");
    assert_eq!(whole["usage"]["completion_tokens"], 4 * 24);
}

#[tokio::test]
async fn each_of_a_batch_is_what_it_is_alone() {
    let server = toy();
    let prompts = ["one", "two", "three"];
    let body = json!({"prompt": prompts, "n": 2, "vosti_digest": true});
    let batch = server.ok(TEXT, with(completion(""), body)).await;
    for (i, prompt) in prompts.iter().enumerate() {
        // The receipt has the prompt's own seed; the first prompt's is the request's.
        let seed = &batch["choices"][2 * i]["vosti_receipt"]["seed"];
        assert_eq!(*seed == batch["vosti_seed"], i == 0);
        let alone = server.ok(TEXT, with(completion(prompt), json!({"n": 2, "seed": seed}))).await;
        for c in 0..2 {
            assert_eq!(batch["choices"][2 * i + c]["text"], alone["choices"][c]["text"], "{prompt} {c}");
        }
    }
}

#[tokio::test]
async fn equal_prompts_of_one_request_draw_numbers_of_their_own() {
    let server = toy();
    let body = with(completion(""), json!({"prompt": ["one", "one", "one"], "ignore_eos": true}));
    let texts = |whole: Value| -> Vec<String> {
        whole["choices"].as_array().unwrap().iter().map(|choice| choice["text"].to_string()).collect()
    };
    let first = texts(server.ok(TEXT, body.clone()).await);
    assert!(first[0] != first[1] && first[1] != first[2] && first[0] != first[2], "{first:?}");
    assert_eq!(texts(server.ok(TEXT, body.clone()).await), first, "a seed repeats them");
    let mut unseeded = body;
    unseeded.as_object_mut().unwrap().remove("seed");
    let drawn = texts(server.ok(TEXT, unseeded).await);
    assert!(drawn[0] != drawn[1] && drawn[1] != drawn[2], "{drawn:?}");
}

#[tokio::test]
async fn token_ids_and_text_are_one_prompt() {
    let server = toy();
    let text = server.ok(TEXT, completion("AB\n")).await;
    let ids = server.ok(TEXT, with(completion(""), json!({"prompt": [65, 66, 10]}))).await;
    let lists = server.ok(TEXT, with(completion(""), json!({"prompt": [[65, 66, 10], [67]]}))).await;
    assert_eq!(text["choices"][0]["text"], ids["choices"][0]["text"]);
    assert_eq!(text["choices"][0]["text"], lists["choices"][0]["text"]);
}

#[tokio::test]
async fn the_seed_is_told_and_repeats_the_answer() {
    let server = toy();
    let mut body = completion("seed");
    body.as_object_mut().unwrap().remove("seed");
    let first = server.ok(TEXT, body.clone()).await;
    let seed = first["vosti_seed"].as_u64().unwrap();
    let again = server.ok(TEXT, with(body.clone(), json!({"seed": seed}))).await;
    assert_eq!(first["choices"][0]["text"], again["choices"][0]["text"]);
    let other = server.ok(TEXT, body).await;
    assert_ne!(first["vosti_seed"], other["vosti_seed"], "fresh seeds are fresh");
    for seed in [json!(-1), json!(u64::MAX), json!(0)] {
        server.ok(TEXT, with(completion("seed"), json!({"seed": seed}))).await;
    }
}

#[tokio::test]
async fn a_stop_string_ends_the_answer_and_never_shows() {
    let server = toy();
    // Printable text only, so that pieces of it can be stop strings.
    let base = with(completion("stop"), json!({"logit_bias": only(LETTERS), "max_tokens": 40, "ignore_eos": true}));
    let free = server.ok(TEXT, base.clone()).await;
    let text = free["choices"][0]["text"].as_str().unwrap();
    assert_eq!(text.len(), 40);
    for (from, to) in [(5, 6), (7, 10), (0, 3), (30, 40)] {
        let stop = &text[from..to];
        let before = &text[..text.find(stop).unwrap()];
        let body = with(base.clone(), json!({"stop": [stop, "\u{1}"]}));
        let stopped = server.ok(TEXT, body.clone()).await;
        assert_eq!(stopped["choices"][0]["text"], before, "{stop}");
        assert_eq!(stopped["choices"][0]["finish_reason"], "stop");
        let streamed = server.post(TEXT, with(body, json!({"stream": true}))).await;
        let parts: String =
            streamed.chunks().iter().map(|c| c["choices"][0]["text"].as_str().unwrap().to_string()).collect();
        assert_eq!(parts, before, "streamed: no piece of {stop} goes out before it is whole");
    }
}

const LETTERS: RangeInclusive<u32> = b'a' as u32..=b'z' as u32;

/// A bias that leaves only these tokens.
fn only(wanted: RangeInclusive<u32>) -> Value {
    let unwanted = (0..VOCAB).filter(|token| !wanted.contains(token));
    unwanted.map(|t| (t.to_string(), json!(-100))).collect::<serde_json::Map<_, _>>().into()
}

#[tokio::test]
async fn a_stop_token_ends_the_answer_and_does_not_show() {
    let server = toy();
    let base = with(completion("stop"), json!({"logit_bias": only(LETTERS), "return_token_ids": true}));
    let free = server.ok(TEXT, base.clone()).await;
    let ids: Vec<u64> =
        free["choices"][0]["token_ids"].as_array().unwrap().iter().map(|t| t.as_u64().unwrap()).collect();
    let at = 10;
    let first = ids.iter().position(|id| *id == ids[at]).unwrap();
    let stopped = server.ok(TEXT, with(base, json!({"stop_token_ids": [ids[at]]}))).await;
    let choice = &stopped["choices"][0];
    assert_eq!(choice["text"].as_str().unwrap(), &free["choices"][0]["text"].as_str().unwrap()[..first]);
    assert_eq!(choice["token_ids"].as_array().unwrap().len(), first + 1, "it was generated and counts");
    assert_eq!(choice["finish_reason"], "stop");
}

#[tokio::test]
async fn echo_puts_the_prompt_and_its_logprobs_first() {
    let server = toy();
    let body = with(completion("prompt"), json!({"echo": true, "logprobs": 1}));
    let echoed = server.ok(TEXT, body.clone()).await;
    let plain = server.ok(TEXT, with(completion("prompt"), json!({"logprobs": 1}))).await;
    let choice = &echoed["choices"][0];
    assert_eq!(choice["text"], format!("prompt{}", plain["choices"][0]["text"].as_str().unwrap()));
    let columns = &choice["logprobs"];
    assert_eq!(columns["tokens"].as_array().unwrap().len(), 6 + 24);
    assert!(columns["token_logprobs"][0].is_null() && columns["top_logprobs"][0].is_null());
    assert!(columns["token_logprobs"][1].as_f64().unwrap() < 0.0);
    for i in 1..30 {
        let token = columns["tokens"][i].as_str().unwrap();
        assert_eq!(columns["top_logprobs"][i][token], columns["token_logprobs"][i], "one number, written one way");
    }
    assert_eq!(columns["text_offset"].as_array().unwrap()[..8], [0, 1, 2, 3, 4, 5, 6, 7].map(Value::from));
    // A prompt of the same tokens has the same numbers.
    let scored = with(body, json!({"prompt": "promp", "max_tokens": 0}));
    let scored = server.ok(TEXT, scored).await;
    let s = &scored["choices"][0]["logprobs"]["token_logprobs"];
    assert_eq!(s.as_array().unwrap().len(), 5, "max_tokens 0 looks at the prompt only");
    assert_eq!(s[4], columns["token_logprobs"][4]);
    assert_eq!((&scored["choices"][0]["text"], &scored["usage"]["completion_tokens"]), (&json!("promp"), &json!(0)));
}

#[tokio::test]
async fn prompt_logprobs_are_the_logprobs_of_generating_the_prompt() {
    let server = toy();
    let greedy = json!({"temperature": 0, "logprobs": 3, "return_token_ids": true, "ignore_eos": true});
    let generated = server.ok(TEXT, with(completion("p"), greedy)).await;
    let choice = &generated["choices"][0];
    let mut prompt = vec![json!(u64::from(b'p'))];
    prompt.extend(choice["token_ids"].as_array().unwrap().iter().cloned());
    let body = json!({"prompt": prompt, "max_tokens": 0, "prompt_logprobs": 3});
    let scored = server.ok(TEXT, body).await;
    let entries = scored["choices"][0]["prompt_logprobs"].as_array().unwrap().clone();
    assert_eq!(entries.len(), 25);
    for (i, entry) in entries.iter().enumerate().skip(1) {
        let own = &entry[prompt[i].to_string()];
        assert_eq!(own["logprob"], choice["logprobs"]["token_logprobs"][i - 1], "bit for bit at {i}");
        assert_eq!(own["rank"], 1, "greedy takes the most likely");
    }
}

#[tokio::test]
async fn logprobs_are_raw() {
    let server = toy();
    let ask = |more: Value| with(with(completion("raw"), json!({"logprobs": 5, "max_tokens": 1})), more);
    let plain = server.ok(TEXT, ask(json!({"temperature": 0}))).await;
    let pushed = json!({"temperature": 2.0, "logit_bias": {"7": 50}, "repetition_penalty": 1.5, "top_k": 3});
    let pushed = server.ok(TEXT, ask(pushed)).await;
    let top = |body: &Value| body["choices"][0]["logprobs"]["top_logprobs"][0].as_object().unwrap().clone();
    let (a, b) = (top(&plain), top(&pushed));
    assert!(a.iter().all(|(token, logprob)| b[token] == *logprob), "{a:?} {b:?}");
}

#[tokio::test]
async fn cached_tokens_are_reported_and_salts_separate() {
    let server = toy();
    let prompt = "x".repeat(200);
    let cached = |body: &Value| body["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    assert_eq!(cached(&server.ok(TEXT, completion(&prompt)).await), 0);
    assert_eq!(cached(&server.ok(TEXT, completion(&prompt)).await), 192);
    let salted = |salt: &str| with(completion(&prompt), json!({"cache_salt": salt}));
    assert_eq!(cached(&server.ok(TEXT, salted("a")).await), 0);
    assert_eq!(cached(&server.ok(TEXT, salted("b")).await), 0);
    let again = server.ok(TEXT, salted("a")).await;
    assert_eq!(cached(&again), 192);
    assert_eq!(again["choices"][0]["text"], server.ok(TEXT, completion(&prompt)).await["choices"][0]["text"]);
}

#[tokio::test]
async fn answers_do_not_change_with_drafts_or_load() {
    let plain = toy();
    let speculation = Policy { speculation: Speculation::NGRAM, running_max: 3, rows_step_max: 9, ..Policy::default() };
    let other = serve(&Options { policy: speculation, ..Options::default() });
    // Only two letters are possible, so drafts are often accepted.
    let bias = only(u32::from(b'a')..=u32::from(b'b'));
    let more = json!({"vosti_digest": true, "max_tokens": 60, "logit_bias": bias});
    let body = |i: usize| with(completion(&"ab ".repeat(i + 1)), more.clone());
    let digests = async |server: &Toyserver| -> Vec<Value> {
        let asked = (0..12).map(|i| server.ok(TEXT, body(i)));
        let answers = futures_util::future::join_all(asked).await;
        answers.iter().map(|a| a["choices"][0]["vosti_receipt"]["digest"].clone()).collect()
    };
    let together = digests(&other).await;
    for (i, digest) in together.iter().enumerate() {
        let alone = plain.ok(TEXT, body(i)).await;
        assert_eq!(*digest, alone["choices"][0]["vosti_receipt"]["digest"], "{i}");
        assert_eq!(digest.as_str().unwrap().len(), 64);
    }
    let (_, counters) = other.engine.report().unwrap();
    assert!(counters.drafts_accepted > 0, "drafts were at work");
}

#[tokio::test]
async fn drafts_take_fewer_steps_on_text_that_repeats() {
    let body = with(completion("aaaa"), json!({"max_tokens": 60, "logit_bias": only(97..=97), "ignore_eos": true}));
    let mut steps = Vec::new();
    for speculation in [Speculation::Off, Speculation::NGRAM] {
        let server = serve(&Options { policy: Policy { speculation, ..Policy::default() }, ..Options::default() });
        let answer = server.ok(TEXT, body.clone()).await;
        assert_eq!(answer["choices"][0]["text"], "a".repeat(60));
        steps.push(server.engine.report().unwrap().1.steps);
    }
    assert!(2 * steps[1] <= steps[0], "without and with drafts: {steps:?}");
}

#[tokio::test]
async fn the_context_bounds_prompt_and_answer() {
    let server = toy();
    let context = CONTEXT as usize;
    let long = server.post(TEXT, completion(&"x".repeat(context))).await;
    let (status, param, message) = long.error();
    assert_eq!((status, param.as_str()), (400, "prompt"), "{message}");
    assert_eq!(long.json()["error"]["code"], "context_length_exceeded");
    // A fixed large limit is cut to what is left, and the client is told.
    let asks =
        server.post(TEXT, with(completion(&"x".repeat(990)), json!({"max_tokens": 11, "ignore_eos": true}))).await;
    assert_eq!(asks.json()["usage"]["completion_tokens"], 10);
    assert!(
        asks.headers["x-vosti-warning"].to_str().unwrap().starts_with("max_tokens is 11 and the context leaves 10")
    );
    // A chat without max_tokens takes what is left.
    let mut body = with(chat(&"x".repeat(900)), json!({"ignore_eos": true}));
    body.as_object_mut().unwrap().remove("max_tokens");
    let filled = server.ok(CHAT, body).await;
    assert_eq!(filled["usage"]["total_tokens"], context);
    assert_eq!(filled["choices"][0]["finish_reason"], "length");
}

#[tokio::test]
async fn json_and_tools_come_through_both_ways() {
    let server = toy();
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}},
        "required": ["a"], "additionalProperties": false});
    let format = json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}});
    let answer = server.ok(CHAT, with(chat("JSON"), format)).await;
    let said: Value = serde_json::from_str(answer["choices"][0]["message"]["content"].as_str().unwrap()).unwrap();
    assert!(said["a"].as_u64().unwrap() <= 9);
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");

    let tools = json!({"tools": [{"type": "function", "function": {"name": "look", "parameters": schema}}],
        "tool_choice": "required", "parallel_tool_calls": false, "max_tokens": 200});
    let body = with(chat("call"), tools);
    let whole = server.ok(CHAT, body.clone()).await;
    let choice = &whole["choices"][0];
    assert_eq!((&choice["finish_reason"], &choice["message"]["content"]), (&json!("tool_calls"), &Value::Null));
    let call = &choice["message"]["tool_calls"][0]["function"];
    assert_eq!(call["name"], "look");
    let streamed = server.post(CHAT, with(body, json!({"stream": true}))).await.chunks();
    assert_eq!(streamed_calls(&streamed), std::slice::from_ref(call));
    assert_eq!(streamed.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
}

/// The model decides whether it calls a function: text must follow the format, and a call is not held to it.
#[tokio::test]
async fn text_beside_tools_keeps_to_the_format_and_calls_are_allowed() {
    let server = toy();
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}},
        "required": ["a"], "additionalProperties": false});
    let ask = json!({"tools": [{"type": "function", "function": {"name": "look", "parameters": schema}}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}, "max_tokens": 200});
    for (first, called) in [("{", false), ("<", true)] {
        let bias = json!({"logit_bias": {first.as_bytes()[0].to_string(): 100}});
        let body = with(with(chat("x"), ask.clone()), bias);
        let whole = server.ok(CHAT, body.clone()).await;
        let choice = &whole["choices"][0];
        let streamed = server.post(CHAT, with(body, json!({"stream": true}))).await.chunks();
        if called {
            assert_eq!(choice["finish_reason"], "tool_calls", "{choice}");
            let call = &choice["message"]["tool_calls"][0]["function"];
            assert_eq!(&streamed_calls(&streamed)[0], call);
        } else {
            assert_eq!(choice["finish_reason"], "stop", "{choice}");
            let text = choice["message"]["content"].as_str().unwrap();
            let said: Value = serde_json::from_str(text).unwrap();
            assert!(said["a"].as_u64().unwrap() <= 9, "{text}");
            let parts: String = streamed.iter().filter_map(|c| c["choices"][0]["delta"]["content"].as_str()).collect();
            assert_eq!(parts, text);
        }
    }
    let must = server.ok(CHAT, with(with(chat("x"), ask.clone()), json!({"tool_choice": "required"}))).await;
    assert!(must["choices"][0]["message"]["tool_calls"].is_array(), "{must}");
    let never = server.ok(CHAT, with(with(chat("x"), ask.clone()), json!({"tool_choice": "none"}))).await;
    assert!(never["choices"][0]["message"]["content"].as_str().unwrap().starts_with("{\"a\": "), "{never}");
    let wrong = json!({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "no"}}}});
    let (status, param, message) = server.post(CHAT, with(with(chat("x"), ask), wrong)).await.error();
    assert_eq!((status, param.as_str()), (400, "response_format.json_schema.schema"), "{message}");
}

/// The functions that a stream calls, its parts joined as a client does.
fn streamed_calls(chunks: &[Value]) -> Vec<Value> {
    let mut calls: Vec<Value> = Vec::new();
    for part in chunks.iter().flat_map(|c| c["choices"][0]["delta"]["tool_calls"].as_array()).flatten() {
        let index = part["index"].as_u64().unwrap() as usize;
        if part["id"].is_string() {
            assert_eq!((index, &part["type"]), (calls.len(), &json!("function")));
            calls.push(part["function"].clone());
        } else {
            let all = format!(
                "{}{}",
                calls[index]["arguments"].as_str().unwrap(),
                part["function"]["arguments"].as_str().unwrap()
            );
            calls[index]["arguments"] = all.into();
        }
    }
    calls
}

#[tokio::test]
async fn a_call_that_max_tokens_cuts_comes_once_and_only_as_a_call() {
    let server = toy();
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}},
        "required": ["a"], "additionalProperties": false});
    let tools = json!({"tools": [{"type": "function", "function": {"name": "look", "parameters": schema}}],
        "tool_choice": "required"});
    let ask = |tokens: usize| with(with(chat("call"), tools.clone()), json!({"max_tokens": tokens}));
    let mut names = 0;
    // Up to a little more than two calls: every token is a byte.
    for tokens in 1..150 {
        let whole = server.ok(CHAT, ask(tokens)).await;
        let message = &whole["choices"][0]["message"];
        let calls: Vec<Value> =
            message["tool_calls"].as_array().into_iter().flatten().map(|call| call["function"].clone()).collect();
        let streamed = server.post(CHAT, with(ask(tokens), json!({"stream": true}))).await.chunks();
        assert_eq!(streamed_calls(&streamed), calls, "{tokens} tokens");
        let text = message["content"].as_str().unwrap_or_default();
        let parts: String = streamed.iter().filter_map(|c| c["choices"][0]["delta"]["content"].as_str()).collect();
        assert_eq!((text, parts.as_str()), ("", ""), "{tokens} tokens");
        assert!(calls.len() >= names && calls.iter().all(|call| call["name"] == "look"), "{calls:?}");
        names = calls.len();
        if let Some(arguments) = calls.last().and_then(|call| call["arguments"].as_str()) {
            assert!("{\"a\": 0}".starts_with(&arguments.replace(|c: char| c.is_ascii_digit(), "0")), "{arguments}");
        }
    }
    assert!(names >= 1);
}

#[tokio::test]
async fn text_becomes_tokens_and_text_again() {
    let server = toy();
    let tokens = server.ok("/tokenize", json!({"prompt": "Hé", "return_token_strs": true})).await;
    assert_eq!(tokens["tokens"], json!([72, 195, 169]));
    assert_eq!((&tokens["count"], &tokens["max_model_len"]), (&json!(3), &json!(CONTEXT)));
    let text = server.ok("/detokenize", json!({"tokens": tokens["tokens"]})).await;
    assert_eq!(text, json!({"prompt": "Hé"}));
    let chat = server.ok("/tokenize", json!({"messages": [{"role": "user", "content": "x"}]})).await;
    assert_eq!(chat["tokens"][0], 256, "the template's own control tokens");
}

/// Load generators ask for this.
#[tokio::test]
async fn every_chunk_has_the_usage_so_far_if_that_is_asked_for() {
    let server = toy();
    let more = json!({"stream": true, "stream_options": {"include_usage": true, "continuous_usage_stats": true}, "n": 2,
        "ignore_eos": true, "max_tokens": 9});
    for (path, base) in [("/v1/chat/completions", chat("hi")), ("/v1/completions", completion("hi"))] {
        let chunks = server.post(path, with(base, more.clone())).await.chunks();
        let of = |chunk: &Value, name: &str| chunk["usage"][name].as_u64().expect("a count");
        let counts: Vec<u64> = chunks.iter().map(|chunk| of(chunk, "completion_tokens")).collect();
        assert!(counts.is_sorted() && counts[0] <= 2 && *counts.last().unwrap() == 18, "{path}: {counts:?}");
        for chunk in &chunks {
            assert_eq!(of(chunk, "prompt_tokens"), of(&chunks[0], "prompt_tokens"));
            assert_eq!(of(chunk, "total_tokens"), of(chunk, "prompt_tokens") + of(chunk, "completion_tokens"));
        }
    }
}

#[tokio::test]
async fn processed_log_probabilities_are_those_of_the_distribution_that_was_drawn_from() {
    let server = toy();
    let ask = |more: Value| {
        let body =
            json!({"logprobs": true, "top_logprobs": 5, "top_k": 3, "temperature": 0.5, "n": 2, "ignore_eos": true});
        server.ok(CHAT, with(with(chat("x"), body), more))
    };
    let (raw, processed) = (ask(json!({})).await, ask(json!({"logprobs_mode": "processed"})).await);
    for (raw, processed) in raw["choices"].as_array().unwrap().iter().zip(processed["choices"].as_array().unwrap()) {
        assert_eq!(raw["message"], processed["message"]);
        let rows = |choice: &Value| choice["logprobs"]["content"].as_array().unwrap().clone();
        for (raw, processed) in rows(raw).iter().zip(rows(processed)) {
            let top: Vec<f64> = processed["top_logprobs"]
                .as_array()
                .unwrap()
                .iter()
                .map(|one| one["logprob"].as_f64().unwrap())
                .collect();
            let sum: f64 = top[..3].iter().map(|logprob| logprob.exp()).sum();
            assert!((sum - 1.0).abs() < 1e-4 && top[3] == -9999.0, "{top:?}");
            assert_ne!(raw["logprob"], processed["logprob"]);
        }
    }
}
