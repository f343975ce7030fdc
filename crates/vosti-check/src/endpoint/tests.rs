//! The suite against a server of a few lines: one that answers by prompt alone passes, one that counts does not.

use super::*;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use vosti_engine::progress::NoProgress;

/// What a server answers to (prompt, requests in flight, requests so far); a log-probability that is NaN is left out.
type Say = fn(&str, usize, usize) -> (String, f64);

/// A server on a free port, for as long as the test runs.
fn serve(say: Say, completions: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (flying, asked) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (flying, asked) = (flying.clone(), asked.clone());
            std::thread::spawn(move || {
                let _ = answer(stream, |path, body| {
                    let now = flying.fetch_add(1, Ordering::SeqCst) + 1;
                    let count = asked.fetch_add(1, Ordering::SeqCst);
                    std::thread::sleep(std::time::Duration::from_millis(2));
                    let reply = reply(path, body, completions, |prompt| say(prompt, now, count));
                    flying.fetch_sub(1, Ordering::SeqCst);
                    reply
                });
            });
        }
    });
    url
}

fn reply(path: &str, body: &Value, completions: bool, say: impl Fn(&str) -> (String, f64)) -> (u16, Value) {
    if path == "/v1/models" {
        return (200, json!({ "data": [{ "id": "toy" }] }));
    }
    let chat = path == "/v1/chat/completions";
    if !chat && !completions {
        return (404, json!({ "error": { "message": "chats only" } }));
    }
    let prompt = if chat { &body["messages"][0]["content"] } else { &body["prompt"] };
    let (text, logprob) = say(prompt.as_str().unwrap_or_default());
    let token = json!({ "token": text, "logprob": logprob, "top_logprobs": [] });
    let logprobs = if logprob.is_nan() { Value::Null } else { json!({ "content": [token] }) };
    (200, json!({ "choices": [{ "text": text, "message": { "content": text }, "logprobs": logprobs }] }))
}

fn answer(stream: TcpStream, mut reply: impl FnMut(&str, &Value) -> (u16, Value)) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    loop {
        let mut first = String::new();
        if reader.read_line(&mut first)? == 0 {
            return Ok(());
        }
        let path = first.split(' ').nth(1).unwrap_or("").to_string();
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let lower = line.trim().to_ascii_lowercase();
            if let Some(n) = lower.strip_prefix("content-length:") {
                length = n.trim().parse().unwrap_or(0);
            }
            if lower.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let (status, value) = reply(&path, &serde_json::from_slice(&body).unwrap_or_default());
        let text = value.to_string();
        write!(
            writer,
            "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{text}",
            text.len()
        )?;
    }
}

fn measure(say: Say, completions: bool) -> EndpointReport {
    let options = EndpointOptions {
        url: serve(say, completions),
        prompts: 3,
        together: vec![2, 4],
        ..EndpointOptions::default()
    };
    run(&options, &NoProgress).expect("measured")
}

#[test]
fn a_server_that_answers_by_prompt_alone_passes() {
    let report = measure(|prompt, _, _| (format!("{} characters", prompt.len()), -0.5), true);
    assert!(report.passed, "{}", report.table());
    assert_eq!((report.model.as_str(), report.route), ("toy", "/v1/completions"));
    let company = report.courses.iter().find(|c| c.name == "4 at once").expect("the course");
    assert!(company.in_flight_max > 1, "{}", report.table());
    assert!(report.courses.iter().all(|c| c.answers > 0));
}

#[test]
fn a_server_with_chats_only_is_measured_through_them() {
    let report = measure(|prompt, _, _| (prompt.to_uppercase(), -0.5), false);
    assert_eq!(report.route, "/v1/chat/completions");
    assert!(report.passed, "{}", report.table());
}

#[test]
fn a_text_that_depends_on_the_company_fails() {
    let report = measure(|_, flying, _| ((if flying > 1 { "busy" } else { "free" }).into(), -0.5), true);
    assert!(!report.passed, "{}", report.table());
    assert!(report.courses[0].passed(), "alone it is the same");
}

#[test]
fn one_bit_of_a_logprob_that_depends_on_the_past_fails() {
    let next = f64::from_bits((0.5f64).to_bits() + 1);
    let report = measure(
        |_, _, asked| ("same".into(), if asked % 2 == 0 { -0.5 } else { -f64::from_bits((0.5f64).to_bits() + 1) }),
        true,
    );
    assert!(!report.passed, "{}", report.table());
    assert!(report.courses.iter().all(|c| c.texts_equal == c.answers));
    let largest = report.courses.iter().map(|c| c.difference_max).fold(0.0, f64::max);
    assert_eq!(largest, next - 0.5);
}

#[test]
fn logprobs_that_only_some_answers_have_fail() {
    let report = measure(|_, flying, _| ("same".into(), if flying > 1 { f64::NAN } else { -0.5 }), true);
    assert!(!report.passed, "{}", report.table());
    assert!(report.courses.iter().all(|c| c.texts_equal == c.answers && c.logprobs_equal == c.with_logprobs));
    assert!(report.table().contains("  MISSING\n"), "{}", report.table());
    assert!(report.table().contains(" 0 other log-probabilities"), "{}", report.table());

    // Every other prompt has none, alone and in company.
    let report = measure(|prompt, _, _| ("same".into(), if prompt.len() < 500 { f64::NAN } else { -0.5 }), true);
    assert!(!report.passed, "{}", report.table());
}

#[test]
fn a_server_without_logprobs_passes_by_its_texts_and_the_report_says_so() {
    let report = measure(|_, _, _| ("same".into(), f64::NAN), true);
    assert!(report.passed, "{}", report.table());
    let last = report.table().trim_end().lines().last().map(String::from).unwrap_or_default();
    assert!(last.contains("only texts were compared"), "{last}");
    let report = measure(|_, flying, _| ((if flying > 1 { "busy" } else { "free" }).into(), f64::NAN), true);
    assert!(!report.passed, "{}", report.table());
}

#[test]
fn what_cannot_be_measured_is_said() {
    let wrong = |url: &str| {
        run(&EndpointOptions { url: url.into(), ..EndpointOptions::default() }, &NoProgress).unwrap_err().to_string()
    };
    assert!(wrong("localhost:80").contains("http://"));
    assert!(wrong("http://127.0.0.1:9").contains("127.0.0.1:9"));
}
