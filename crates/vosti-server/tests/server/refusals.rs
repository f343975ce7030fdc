//! Refusals name the field and have a status that clients act on, and come before anything is queued.

use crate::common::{Answer, Options, TEMPLATE, chat, completion, get, serve, toy, with};
use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use vosti_server::Limits;
use vosti_server::cors::Origins;

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";

#[tokio::test]
async fn a_field_that_is_not_there_is_refused_by_name() {
    let server = toy();
    for (path, base) in [(CHAT, chat("x")), (TEXT, completion("x"))] {
        for (field, value) in [
            ("best_of", json!(2)),
            ("temperatur", json!(1)),
            ("use_beam_search", json!(true)),
            ("ebnf", json!("root ::= x")),
        ] {
            let (status, param, message) = server.post(path, with(base.clone(), json!({field: value}))).await.error();
            assert_eq!((status, param.as_str()), (400, field), "{message}");
            assert!(message.contains(field), "{message}");
        }
    }
    let nested = with(chat("x"), json!({"stream": true, "stream_options": {"include_usages": true}}));
    assert_eq!(server.post(CHAT, nested).await.error().1, "stream_options.include_usages");
    let message = json!({"messages": [{"role": "user", "content": "x", "weight": 1}]});
    assert_eq!(server.post(CHAT, with(chat("x"), message)).await.error().1, "messages[0].weight");
}

#[tokio::test]
async fn a_field_that_asks_for_nothing_is_let_pass() {
    let server = toy();
    let nothing = json!({"best_of": null, "store": false, "metadata": null, "service_tier": "auto", "functions": [],
        "logprobs": null, "tools": null, "response_format": null, "seed": null, "min_tokens": 0, "user": "me"});
    server.ok(CHAT, with(chat("x"), nothing)).await;
    server.ok(TEXT, with(completion("x"), json!({"suffix": null, "best_of": null, "echo": null}))).await;
}

#[tokio::test]
async fn each_wrong_value_names_its_field() {
    let server = toy();
    let wrong = [
        ("temperature", json!(-1)),
        ("temperature", json!("warm")),
        ("temperature", json!(1e300)),
        ("top_p", json!(0)),
        ("top_k", json!(-2)),
        ("min_p", json!(2)),
        ("presence_penalty", json!(3)),
        ("frequency_penalty", json!(-3)),
        ("repetition_penalty", json!(0)),
        ("n", json!(0)),
        ("n", json!(129)),
        ("n", json!(-1)),
        ("max_tokens", json!(0)),
        ("max_tokens", json!(1.5)),
        ("seed", json!(1.5)),
        ("stop", json!(3)),
        ("stop", json!([""])),
        ("stop", json!(vec!["x"; 33])),
        ("stop_token_ids", json!([258])),
        ("logit_bias", json!({"258": 1})),
        ("logit_bias", json!({"x": 1})),
        ("logit_bias", json!({"1": 101})),
        ("prompt_logprobs", json!(21)),
        ("model", json!("other")),
        ("stream_options", json!({"include_usage": true})),
        ("response_format", json!({"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "no"}}})),
    ];
    for (path, base) in [(CHAT, chat("x")), (TEXT, completion("x"))] {
        for (field, value) in &wrong {
            let answer = server.post(path, with(base.clone(), json!({*field: value}))).await;
            let (status, param, message) = answer.error();
            assert!(status == 400 || (status == 404 && *field == "model"), "{field}: {status} {message}");
            assert!(param.starts_with(field), "{field} {value}: {param:?}, {message}");
        }
    }
    for (field, value) in [
        ("messages", json!([])),
        ("messages[0].role", json!([{"role": "robot", "content": "x"}])),
        ("messages[0].content", json!([{"role": "user"}])),
        ("messages[0].content", json!([{"role": "user", "content": 3}])),
        ("messages[0].content[0].type", json!([{"role": "user", "content": [{"text": "x"}]}])),
        ("messages[0].content[1]", json!([{"role": "user", "content": [{"type": "text", "text": "x"}, 3]}])),
        ("top_logprobs", json!(3)),
        ("tool_choice", json!("required")),
        ("vosti_date", json!("tomorrow")),
        ("max_completion_tokens", json!(3)),
    ] {
        let name = field.split('[').next().unwrap();
        let (status, param, message) = server.post(CHAT, with(chat("x"), json!({name: value}))).await.error();
        assert_eq!((status, param.as_str()), (400, field), "{message}");
    }
    for prompt in [json!(""), json!([]), json!([[]]), json!([258]), json!([-1]), json!({"a": 1}), Value::Null] {
        let (status, param, message) = server.post(TEXT, json!({"prompt": prompt})).await.error();
        assert_eq!((status, param.as_str()), (400, "prompt"), "{prompt}: {message}");
    }
    server.settles().await;
}

#[tokio::test]
async fn what_is_no_request_at_all_is_refused_in_the_same_shape() {
    let limits = Limits { body_bytes_max: 1000, ..Limits::default() };
    let server = serve(&Options { limits, ..Options::default() });
    let body = |text: &str| Body::from(text.to_string());
    let json = |text: &str| Request::post(TEXT).header("content-type", "application/json").body(body(text)).unwrap();
    let deep = format!("{{\"prompt\": {}1{}}}", "[".repeat(400), "]".repeat(400));
    for text in
        ["", "{", "null", "[]", "\"x\"", "{\"prompt\": NaN}", "{\"prompt\": \"\\ud800\"}", "\u{0}", &deep, "{} {}"]
    {
        let answer = server.send(json(text)).await;
        assert_eq!(answer.status, 400, "{text:?}: {}", answer.text);
        assert!(answer.json()["error"]["message"].is_string());
    }
    let twice = server.send(json("{\"prompt\": \"a\", \"prompt\": \"b\"}")).await;
    assert_eq!(twice.status, 400, "a field twice is ambiguous: {}", twice.text);
    assert_eq!(server.send(json(&"x".repeat(1001))).await.status, 413);
    let plain = Request::post(TEXT).header("content-type", "text/plain").body(body("{}")).unwrap();
    assert_eq!(server.send(plain).await.status, 415, "another site's page cannot send JSON unasked");
    assert_eq!(server.send(get("/v1/nothing")).await.error().0, 404);
    for near in ["/completions", "/v1/completions/", "//v1/completions"] {
        let (status, _, message) = server.send(get(near)).await.error();
        assert!(status == 404 && message.ends_with("did you mean /v1/completions?"), "{message}");
    }
    let list = server.send(json(r#"["x"]"#)).await.error();
    assert_eq!((list.0, list.2.as_str()), (400, "the body is not a JSON object"));
    assert_eq!(server.send(get(TEXT)).await.error().0, 405);
}

#[tokio::test]
async fn no_other_site_is_let_in() {
    let server = toy();
    let ask = |method: &str, path: &str| {
        let request = Request::builder().method(method).uri(path).header("origin", "https://elsewhere.example");
        request.header("access-control-request-method", "POST").body(Body::empty()).unwrap()
    };
    for (method, path) in [("OPTIONS", CHAT), ("GET", "/v1/models"), ("GET", "/health"), ("GET", "/")] {
        let answer = server.send(ask(method, path)).await;
        let told = answer.headers.keys().find(|name| name.as_str().starts_with("access-control"));
        assert_eq!(told, None, "{method} {path}");
    }
    assert_eq!(server.send(ask("OPTIONS", CHAT)).await.status, 405);
}

#[tokio::test]
async fn the_sites_that_are_named_are_let_in() {
    let site = "https://app.example";
    let origins = Origins::parse(&[site.to_string()]).unwrap();
    let server = serve(&Options { api_keys: vec!["secret".into()], cors_origins: origins, ..Options::default() });
    let ask = |method: &str, origin: &str| {
        let request = Request::builder().method(method).uri(CHAT).header("origin", origin);
        let request = request.header("content-type", "application/json").header("authorization", "Bearer secret");
        let request = request.header("access-control-request-method", "POST");
        let request = request.header("access-control-request-headers", "authorization,content-type,x-stainless-os");
        request.body(Body::from(chat("x").to_string())).unwrap()
    };
    let told = |answer: &Answer, name: &str| answer.headers.get(name).map(|value| value.to_str().unwrap().to_string());
    let preflight = server.send(ask("OPTIONS", site)).await;
    assert_eq!(preflight.status, 200, "a browser asks without a key");
    assert_eq!(told(&preflight, "access-control-allow-origin").as_deref(), Some(site));
    let headers = told(&preflight, "access-control-allow-headers").unwrap();
    assert!(headers.contains("authorization") && headers.contains("x-stainless-os"), "{headers}");
    let answer = server.send(ask("POST", site)).await;
    assert_eq!((answer.status.as_u16(), told(&answer, "access-control-allow-origin").as_deref()), (200, Some(site)));
    let shown = told(&answer, "access-control-expose-headers").unwrap();
    for header in ["x-request-id", "x-vosti-ignored", "x-vosti-warning", "retry-after"] {
        assert!(shown.split(',').any(|name| name.trim() == header), "{shown}");
    }
    for method in ["OPTIONS", "POST"] {
        let other = server.send(ask(method, "https://elsewhere.example")).await;
        assert_eq!(told(&other, "access-control-allow-origin"), None, "{method}");
    }
    let open = serve(&Options { cors_origins: Origins::All, ..Options::default() });
    let anyone = open.send(ask("OPTIONS", "https://elsewhere.example")).await;
    assert_eq!(told(&anyone, "access-control-allow-origin").as_deref(), Some("*"));
}

#[tokio::test]
async fn a_requests_name_is_echoed_if_it_can_be_shown() {
    let server = toy();
    let named = |id: &str| Request::get("/health").header("x-request-id", id).body(Body::empty()).unwrap();
    for good in ["a-1", "trace/7:x=y", &"x".repeat(128)] {
        assert_eq!(server.send(named(good)).await.headers["x-request-id"], good);
    }
    for bad in ["", "a b", "<b>", &"x".repeat(129)] {
        let told = server.send(named(bad)).await.headers["x-request-id"].to_str().unwrap().to_string();
        assert!(told.starts_with("req-"), "{bad:?}: {told}");
    }
}

#[tokio::test]
async fn a_base_model_says_that_it_does_not_chat_and_what_to_do() {
    let server = serve(&Options { chat: false, ..Options::default() });
    let (status, param, message) = server.post(CHAT, chat("x")).await.error();
    assert_eq!((status, param.as_str()), (400, "messages"));
    for part in ["chat template", "/v1/completions", "`vosti models`"] {
        assert!(message.contains(part), "{message}");
    }
    let tool = json!({"type": "function", "function": {"name": "f"}});
    let (status, param, same) = server.post(CHAT, with(chat("x"), json!({"tools": [tool]}))).await.error();
    assert_eq!((status, param.as_str(), same), (400, "tools", message), "the tools are what does not fit");
}

#[tokio::test]
async fn keys_guard_the_api_and_nothing_else_needs_one() {
    let server = serve(&Options { api_keys: vec!["secret".into()], ..Options::default() });
    let ask = |header: Option<&str>| {
        let request = Request::post(TEXT).header("content-type", "application/json");
        let request = header.into_iter().fold(request, |request, header| request.header("authorization", header));
        request.body(Body::from(completion("x").to_string())).unwrap()
    };
    for wrong in
        [None, Some("secret"), Some("Bearer"), Some("Bearer wrong"), Some("Basic secret"), Some("Bearer secrets")]
    {
        let answer = server.send(ask(wrong)).await;
        assert_eq!(answer.status, 401, "{wrong:?}");
        assert_eq!(answer.json()["error"]["code"], "invalid_api_key");
        assert_eq!(answer.headers["www-authenticate"], "Bearer");
    }
    for path in ["/v1/models", "/v1/models/toy"] {
        assert_eq!(server.send(get(path)).await.status, 401, "{path}");
    }
    for path in ["/tokenize", "/detokenize", CHAT] {
        assert_eq!(server.post(path, json!({})).await.status, 401, "{path}");
    }
    assert_eq!(server.send(ask(Some("Bearer secret"))).await.status, 200);
    assert_eq!(server.send(ask(Some("bearer secret"))).await.status, 200);
    for path in ["/health", "/ready", "/metrics", "/status", "/openapi.json"] {
        assert_eq!(server.send(get(path)).await.status, 200, "{path}");
    }
}

/// The error names the field by the name that the request's API has for it.
#[tokio::test]
async fn what_is_wrong_is_named_as_the_request_names_it() {
    let server = toy();
    let (long, image) = ("x".repeat(2000), json!({"type": "input_image", "image_url": "data:"}));
    let (bad, many) = (json!({"type": "no"}), json!(vec!["x"; 33]));
    let tool =
        |name: &str, schema: &Value| json!({"type": "function", "function": {"name": name, "parameters": schema}});
    let strict =
        |schema: &Value| json!({"type": "function", "function": {"name": "g", "parameters": schema, "strict": true}});
    let own =
        |name: &str, schema: &Value| json!({"type": "function", "name": name, "parameters": schema, "strict": true});
    let good = json!({"type": "object"});
    let format = json!({"type": "json_schema", "name": "x", "schema": bad});
    let user = |content: Value| json!([{"role": "user", "content": content}]);
    for (path, base, cases) in [
        (
            CHAT,
            chat("x"),
            vec![
                (json!({"messages": user(json!(long))}), "messages"),
                (json!({"messages": user(json!([{"type": "text", "text": long}]))}), "messages"),
                (json!({"structured_outputs": {"regex": "("}}), "structured_outputs.regex"),
                (json!({"structured_outputs": {"choice": []}}), "structured_outputs.choice"),
                (json!({"guided_json": bad}), "guided_json"),
                (json!({"guided_json": "{"}), "guided_json"),
                (json!({"guided_regex": "a", "structured_outputs": {"choice": ["a"]}}), "structured_outputs.choice"),
                (json!({"tools": [tool("f", &good), strict(&bad)]}), "tools[1].function.parameters"),
                (json!({"tools": [tool("f g", &good)]}), "tools[0].function.name"),
                (json!({"tools": [tool("f", &good), tool("f", &good)]}), "tools[1].function.name"),
                (
                    json!({"tools": [tool("f", &good)], "tool_choice": {"type": "function", "function": {"name": "g"}}}),
                    "tool_choice",
                ),
                (json!({"tools": [tool("f", &good)], "guided_regex": "("}), "guided_regex"),
            ],
        ),
        (
            "/v1/responses",
            json!({"input": "x"}),
            vec![
                (json!({"input": null}), "input"),
                (json!({"input": 3}), "input"),
                (json!({"input": long, "max_output_tokens": 1}), "input"),
                (json!({"max_output_tokens": 0}), "max_output_tokens"),
                (json!({"stop": many}), "stop"),
                (json!({"temperature": -1}), "temperature"),
                (json!({"text": {"format": format}}), "text.format.schema"),
                (json!({"input": user(json!([image]))}), "input[0].content[0].image_url"),
                (json!({"input": [{"role": "user", "content": "x", "odd": 1}]}), "input[0].odd"),
                (json!({"input": [{"role": "robot", "content": "x"}]}), "input[0].role"),
                (json!({"tools": [own("f g", &good)]}), "tools[0].name"),
                (json!({"tools": [own("f", &bad)]}), "tools[0].parameters"),
                (json!({"include": ["message.output_text.logprobs"]}), "include"),
            ],
        ),
        (
            "/v1/messages",
            json!({"messages": user(json!("x")), "max_tokens": 3}),
            vec![
                (json!({"messages": []}), "messages"),
                (json!({"messages": user(json!(long))}), "messages"),
                (json!({"stop_sequences": many}), "stop_sequences"),
                (json!({"messages": [{"role": "tool", "content": "x"}]}), "messages[0].role"),
                (
                    json!({"messages": user(json!([{"type": "text", "text": "x"}, {"type": "image", "source": {}}]))}),
                    "messages[0].content[1].source",
                ),
                (json!({"messages": user(json!([{"type": "video"}]))}), "messages[0].content[0].type"),
                (json!({"tools": [{"name": "f", "input_schema": bad, "strict": true}]}), "tools[0].input_schema"),
                (json!({"tools": [{"name": "f g", "input_schema": good}]}), "tools[0].name"),
                (
                    json!({"output_config": {"format": {"type": "json_schema", "schema": bad}}}),
                    "output_config.format.schema",
                ),
            ],
        ),
        (TEXT, completion("x"), vec![(json!({"prompt": long}), "prompt"), (json!({"prompt": ["x", ""]}), "prompt")]),
    ] {
        for (more, field) in cases {
            let (status, param, message) = server.post(path, with(base.clone(), more.clone())).await.error();
            assert_eq!((status, param.as_str()), (400, field), "{path} {more}: {message}");
            assert!(!message.contains('\n'), "{message}");
        }
    }
    for (path, field) in
        [(CHAT, "messages"), (TEXT, "prompt"), ("/v1/responses", "input"), ("/v1/messages", "messages")]
    {
        let (status, param, message) = server.post(path, json!({"model": "toy"})).await.error();
        assert_eq!((status, param.as_str(), message), (400, field, format!("{field} is missing")));
    }
    for (more, says) in [
        (json!({"min_tokens": -1}), "min_tokens: invalid value: integer `-1`, expected a whole number of at least 0"),
        (json!({"temperature": "warm"}), "temperature: invalid type: string \"warm\", expected a number"),
        (json!({"messages": "x"}), "messages: invalid type: string \"x\", expected a list"),
        (json!({"chat_template_kwargs": []}), "chat_template_kwargs: invalid type: list, expected an object"),
        (json!({"response_format": "json"}), "response_format: invalid type: string \"json\", expected an object"),
        (json!({"guided_regex": "("}), "guided_regex cannot be turned into a grammar: "),
        (json!({"guided_json": {"not": {}}}), "guided_json cannot be turned into a grammar: "),
        (
            json!({"guided_json": endless()}),
            "guided_json cannot be turned into a grammar: too many or too long expressions",
        ),
    ] {
        let (_, _, message) = server.post(CHAT, with(chat("x"), more)).await.error();
        assert!(message.starts_with(says) && !message.contains(';') && message.len() < 200, "{message}");
    }
    server.settles().await;
}

/// So does a warning.
#[tokio::test]
async fn what_differs_from_the_request_is_named_as_the_request_names_it() {
    let server = serve(&Options { template: format!("{{# <tool_call> #}}{TEMPLATE}"), ..Options::default() });
    let odd = json!({"type": "object", "properties": {"a": {"type": "string", "format": "semver"}}});
    let function = json!({"name": "f", "parameters": odd});
    let messages = json!([{"role": "user", "content": "x"}]);
    for (path, body, field, limit) in [
        (
            CHAT,
            json!({"messages": messages, "max_tokens": 5000, "tools": [{"type": "function", "function": function}]}),
            "tools[0].function.parameters.properties.a.format",
            "max_tokens is 5000 ",
        ),
        (
            "/v1/responses",
            json!({"input": "x", "max_output_tokens": 5000, "tools": [with(json!({"type": "function"}), function.clone())]}),
            "tools[0].parameters.properties.a.format",
            "max_output_tokens is 5000 ",
        ),
        (
            "/v1/messages",
            json!({"messages": messages, "max_tokens": 5000, "tools": [{"name": "f", "input_schema": odd}]}),
            "tools[0].input_schema.properties.a.format",
            "max_tokens is 5000 ",
        ),
        (
            "/api/chat",
            json!({"messages": messages, "stream": false, "options": {"num_predict": 5000},
                "tools": [{"type": "function", "function": function}]}),
            "tools[0].function.parameters.properties.a.format",
            "options.num_predict is 5000 ",
        ),
    ] {
        let answer = server.post(path, body).await;
        let warning = answer.headers["x-vosti-warning"].to_str().unwrap();
        assert!(warning.contains(&format!("no grammar says {field}:")) && warning.contains(limit), "{path}: {warning}");
    }
}

/// A small schema that would take all memory to compile.
fn endless() -> Value {
    let pattern = |i| json!({"type": "string", "pattern": format!("^[\\s\\S]*a{i}[\\s\\S]{{{i}}}$")});
    json!({"allOf": (0..20).map(pattern).collect::<Vec<_>>()})
}
