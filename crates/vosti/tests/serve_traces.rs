//! Traces of a server, as a collector gets them: a request's parent, its phases, its numbers, and no text.

mod serve;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use serve::Server;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Stands in for a collector: its URL, and the bodies that are sent to /v1/traces.
fn collector() -> (String, Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let (sender, bodies) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let sender = sender.clone();
            std::thread::spawn(move || take(&stream, &sender));
        }
    });
    (url, bodies)
}

/// Every request of a connection.
fn take(stream: &std::net::TcpStream, bodies: &Sender<Vec<u8>>) {
    let (mut reader, mut writer) = (BufReader::new(stream), stream);
    loop {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                head.push(line.trim_end().to_ascii_lowercase());
            } else {
                break;
            }
        }
        if head.is_empty() {
            return;
        }
        assert!(head[0].starts_with("post /v1/traces "), "{head:?}");
        assert!(head.contains(&"content-type: application/x-protobuf".to_string()), "{head:?}");
        let length = head.iter().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
        let mut body = vec![0; length.parse().expect("a number")];
        reader.read_exact(&mut body).expect("a body");
        let _ = bodies.send(body);
        writer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").expect("answered");
    }
}

fn value(attributes: &[KeyValue], name: &str) -> Option<Value> {
    let found = attributes.iter().find(|attribute| attribute.key == name)?;
    found.value.clone().and_then(|value| value.value)
}

fn text(span: &Span, name: &str) -> String {
    match value(&span.attributes, name) {
        Some(Value::StringValue(text)) => text,
        other => panic!("{name} is {other:?}"),
    }
}

fn number(span: &Span, name: &str) -> i64 {
    match value(&span.attributes, name) {
        Some(Value::IntValue(number)) => number,
        other => panic!("{name} is {other:?}"),
    }
}

#[test]
fn a_request_is_a_span_with_its_phases_and_no_text() {
    let (url, bodies) = collector();
    let mut server = Server::start(&["--otlp-endpoint", &url]);
    let post = |path: &str, headers: &str, body: &str| {
        let head =
            format!("POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n");
        let request = format!("{head}{headers}Content-Length: {}\r\n\r\n{body}", body.len());
        server.raw(request.as_bytes()).expect("an answer")
    };
    let parent = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\nx-request-id: mine\r\n";
    let asked = r#"{"prompt": "Zanzibar xylophones", "max_tokens": 5, "seed": 9, "temperature": 0.5, "stream": true,
        "ignore_eos": true, "stop": ["Quixotic"], "user": "Ebenezer"}"#;
    let (status, _) = post("/v1/completions", parent, asked);
    assert_eq!(status, 200);
    let chat = r#"{"messages": [{"role": "user", "content": "Zanzibar"}], "max_tokens": 3, "n": 2}"#;
    assert_eq!(post("/v1/chat/completions", "", chat).0, 200);
    assert_eq!(post("/v1/completions", "", r#"{"prompt": "Zanzibar", "temperature": -1}"#).0, 400);
    assert_eq!(server.get("/health").map(|(status, _)| status), Some(200));
    // At the end the server sends what it has not sent yet.
    server.signal("TERM");
    assert_eq!(server.ends(), Some(0));

    let sent: Vec<Vec<u8>> = bodies.try_iter().collect();
    let mut spans = Vec::new();
    for body in &sent {
        for secret in ["Zanzibar", "xylophones", "Quixotic", "Ebenezer"] {
            assert!(!body.windows(secret.len()).any(|bytes| bytes == secret.as_bytes()), "{secret} was sent");
        }
        for resource in ExportTraceServiceRequest::decode(&body[..]).expect("a message").resource_spans {
            let named = value(&resource.resource.expect("a resource").attributes, "service.name");
            assert_eq!(named, Some(Value::StringValue("vosti".into())));
            spans.extend(resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
        }
    }
    let requests: Vec<&Span> = spans.iter().filter(|span| span.name.ends_with(" smollm2-135m")).collect();
    assert_eq!(requests.len(), 3, "{spans:?}");

    let of_client = requests.iter().find(|span| !span.parent_span_id.is_empty()).expect("the client's child");
    assert_eq!(of_client.name, "text_completion smollm2-135m");
    assert_eq!(of_client.trace_id, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes());
    assert_eq!(of_client.parent_span_id, 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes());
    assert_eq!(text(of_client, "vosti.request.id"), "mine");
    assert_eq!(number(of_client, "gen_ai.usage.output_tokens"), 5);
    assert_eq!(number(of_client, "gen_ai.request.max_tokens"), 5);
    assert_eq!(number(of_client, "gen_ai.request.seed"), 9);
    assert!(number(of_client, "gen_ai.usage.input_tokens") > 1);
    let reasons = value(&of_client.attributes, "gen_ai.response.finish_reasons");
    let Some(Value::ArrayValue(reasons)) = reasons else { panic!("{reasons:?}") };
    assert_eq!(reasons.values, [AnyValue { value: Some(Value::StringValue("length".into())) }]);

    let mut phases: Vec<&Span> = spans.iter().filter(|span| span.parent_span_id == of_client.span_id).collect();
    phases.sort_by_key(|span| span.start_time_unix_nano);
    assert_eq!(phases.iter().map(|span| &span.name[..]).collect::<Vec<_>>(), ["queue", "prefill", "decode"]);
    assert!(phases.iter().all(|span| span.trace_id == of_client.trace_id));
    for pair in phases.windows(2) {
        // A phase ends where the next begins, except for the clocks' rounding.
        assert!(pair[0].end_time_unix_nano.abs_diff(pair[1].start_time_unix_nano) < 1_000, "{phases:?}");
    }

    let chat = requests.iter().find(|span| span.name.starts_with("chat ")).expect("a chat");
    assert_eq!((number(chat, "gen_ai.request.choice.count"), number(chat, "http.response.status_code")), (2, 200));
    let refused = requests.iter().find(|span| number(span, "http.response.status_code") == 400).expect("a refusal");
    assert_eq!(text(refused, "error.type"), "400");
}

#[test]
fn a_collector_that_is_gone_holds_nothing_up() {
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").port();
    let mut server = Server::start(&["--otlp-endpoint", &format!("http://127.0.0.1:{port}")]);
    let asked = r#"{"prompt": "x", "max_tokens": 2}"#;
    assert_eq!(server.post("/v1/completions", asked).map(|(status, _)| status), Some(200));
    server.signal("TERM");
    assert_eq!(server.ends(), Some(0));
}
