//! How a server ends: killed while it streams, drained by one signal, and ended by a second one.

mod serve;

use serve::Server;

const TEXT: &str = "/v1/completions";
const ENDLESS: &str = r#"{"prompt": "The river", "max_tokens": 4000, "stream": true, "ignore_eos": true}"#;

#[test]
fn after_kill_nine_while_it_streams_a_new_server_gives_the_same_answer() {
    let ask = r#"{"prompt": "The river", "max_tokens": 12, "temperature": 1, "seed": 3, "vosti_digest": true}"#;
    let digest = |server: &Server| {
        let (status, body) = server.post(TEXT, ask).expect("an answer");
        assert_eq!(status, 200, "{body}");
        let answer: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        answer["choices"][0]["vosti_receipt"]["digest"].as_str().expect("a digest").to_string()
    };
    let mut server = Server::start(&[]);
    let before = digest(&server);
    let cut = server.stream(TEXT, ENDLESS);
    server.signal("KILL");
    let cut = cut.all();
    assert!(!cut.contains("[DONE]"), "the stream was cut off: {cut}");
    assert_eq!(server.ends(), None);
    drop(server);
    assert_eq!(digest(&Server::start(&[])), before);
}

#[test]
fn the_first_signal_drains_and_the_second_ends_at_once() {
    let mut server = Server::start(&[]);
    let last = r#"{"prompt": "The river", "max_tokens": 40, "stream": true, "ignore_eos": true}"#;
    let last = server.stream(TEXT, last);
    server.signal("TERM");
    let last = last.all();
    assert!(last.contains("data: [DONE]"), "what runs is finished: {last}");
    assert_eq!(server.ends(), Some(0));
    drop(server);

    let mut server = Server::start(&[]);
    let cut = server.stream(TEXT, ENDLESS);
    server.signal("TERM");
    server.wait("/ready", 503);
    assert_eq!(server.get("/health").map(|(status, _)| status), Some(200));
    assert_eq!(server.post(TEXT, r#"{"prompt": "x"}"#).map(|(status, _)| status), Some(503), "nothing new is taken");
    server.signal("TERM");
    assert_eq!(server.ends(), Some(130));
    assert!(!cut.all().contains("[DONE]"));
}
