//! Malformed requests: by schemathesis from the document that the server publishes, and by hand below HTTP. No answer may be
//! a 5xx, and the server must stay ready. `bench/server/malformed.sh` can send more of the former.

mod serve;

use serve::{Server, script, succeeds};
use std::process::Command;
use vosti_test_tools::python;

#[test]
fn requests_made_from_the_published_document_never_break_the_server() {
    let Some(python) = python("schemathesis") else { return };
    // Some of the requests leave the answer's length open: a short context bounds what each of them costs.
    let mut server = Server::start(&["--context", "128"]);
    succeeds(
        Command::new("bash")
            .arg(script("bench/server/malformed.sh"))
            .arg(&server.url)
            .env("PYTHON", python)
            .env("EXAMPLES", "5"),
    );
    assert!(server.runs());
    assert_eq!(server.get("/ready").map(|(status, _)| status), Some(200));
}

#[test]
fn bytes_that_are_no_request_never_break_the_server() {
    let mut server = Server::start(&[]);
    let post = |body: &[u8]| {
        let head =
            "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n";
        [format!("{head}Content-Length: {}\r\n\r\n", body.len()).as_bytes(), body].concat()
    };
    let deep = [b"{\"prompt\": ".to_vec(), vec![b'['; 100_000]].concat();
    let no_http: Vec<Vec<u8>> = vec![
        b"\0\0\0\0\r\n\r\n".to_vec(),
        b"GET\r\n\r\n".to_vec(),
        b"GET / HTTP/9.9\r\n\r\n".to_vec(),
        [b"GET /".to_vec(), vec![b'a'; 200_000], b" HTTP/1.1\r\n\r\n".to_vec()].concat(),
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".to_vec(),
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n".to_vec(),
    ];
    let bodies = [
        post(b"{"),
        post(b"\xff\xfe{}"),
        post(&deep),
        post(b"{\"prompt\": \"x\", \"max_tokens\": 1e400}"),
        post(b"{\"prompt\": \"x\", \"temperature\": NaN}"),
        post(b"{\"prompt\": \"\\ud800\"}"),
        post(b"{\"prompt\": [4294967295], \"max_tokens\": 1}"),
        post(b"{\"prompt\": \"x\", \"prompt\": \"y\"}"),
    ];
    let mut refused = |bytes: &[u8], must_answer: bool| {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
        match server.raw(bytes) {
            Some((status, body)) => assert!((400..500).contains(&status), "{shown}: {status} {body}"),
            None => assert!(!must_answer, "no answer: {shown}"),
        }
        assert!(server.runs(), "{shown}");
    };
    // To bytes that are no HTTP the server may close the connection without an answer.
    no_http.iter().for_each(|bytes| refused(bytes, false));
    bodies.iter().for_each(|bytes| refused(bytes, true));
    assert_eq!(server.get("/ready").map(|(status, _)| status), Some(200));
}
