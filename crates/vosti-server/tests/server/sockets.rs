//! Real sockets: bytes that are not HTTP, connections that hang, drains, TLS.

use crate::common::{Options, PATIENCE, completion, config, service, with};
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use vosti_engine::EngineHandle;
use vosti_server::{Limits, Server, ServerConfig, ServerHandle, TlsFiles};

struct Listening {
    address: SocketAddr,
    handle: ServerHandle,
    engine: EngineHandle,
    running: JoinHandle<()>,
}

async fn listen(options: &Options, config: ServerConfig) -> Listening {
    let server = Server::bind(config).await.unwrap();
    let (address, handle) = (server.address().unwrap(), server.handle());
    let (service, engine, _) = service(options);
    let running = tokio::spawn(server.run());
    handle.ready(service);
    Listening { address, handle, engine, running }
}

async fn listening(limits: Limits) -> Listening {
    let options = Options { limits, ..Options::default() };
    listen(&options, config(&options)).await
}

fn http(body: &serde_json::Value) -> String {
    let body = body.to_string();
    let length = body.len();
    format!(
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

/// One response, or all bytes until the server closes the connection.
async fn response<S: AsyncReadExt + Unpin>(stream: &mut S) -> String {
    let mut all = Vec::new();
    let mut piece = [0; 4096];
    while !is_whole(&all) {
        let read = tokio::time::timeout(PATIENCE, stream.read(&mut piece)).await;
        let read = read.unwrap_or_else(|_| panic!("neither an answer nor an end after {all:?}"));
        match read {
            Ok(0) | Err(_) => break,
            Ok(n) => all.extend_from_slice(&piece[..n]),
        }
    }
    String::from_utf8_lossy(&all).into_owned()
}

fn is_whole(bytes: &[u8]) -> bool {
    let Some(head) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return false };
    let text = String::from_utf8_lossy(&bytes[..head]);
    match text.lines().find_map(|line| line.strip_prefix("content-length: ")) {
        Some(length) => bytes.len() >= head + 4 + length.parse::<usize>().unwrap(),
        None => bytes.ends_with(b"\r\n0\r\n\r\n"),
    }
}

async fn ask(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let _ = stream.write_all(bytes).await;
    response(&mut stream).await
}

#[tokio::test]
async fn a_client_talks_over_a_socket() {
    let server = listening(Limits::default()).await;
    let answer = ask(server.address, http(&completion("socket")).as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("text_completion"), "{answer}");
    let streamed = http(&with(completion("socket"), json!({"stream": true})));
    let answer = ask(server.address, streamed.as_bytes()).await;
    assert!(answer.contains("data: [DONE]"), "{answer}");
}

#[tokio::test]
async fn bytes_that_are_no_http_end_their_connection_and_nothing_else() {
    let limits = Limits { idle_time_max: Duration::from_secs(2), ..Limits::default() };
    let server = listening(limits).await;
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(100_000));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(5_000));
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"[..],
        b"\0\0\0\0\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n",
        b"POST /v1/completions HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"GET /%ff%00 HTTP/1.1\r\nHost: \xff\r\n\r\n",
        long.as_bytes(),
        many.as_bytes(),
    ] {
        let answer = ask(server.address, bytes).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4") || answer.starts_with("HTTP/1.0 4"), "{answer}");
    }
    let answer = ask(server.address, http(&completion("after")).as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
}

#[tokio::test]
async fn connections_that_say_nothing_are_closed_and_make_room() {
    let limits = Limits { connections_max: 2, idle_time_max: Duration::from_millis(150), ..Limits::default() };
    let server = listening(limits).await;
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    let mut half = TcpStream::connect(server.address).await.unwrap();
    let whole = http(&completion("half"));
    half.write_all(&whole.as_bytes()[..whole.len() - 5]).await.unwrap();
    // A third connection waits until one of those two is closed.
    let answer = ask(server.address, http(&completion("third")).as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert_eq!(response(&mut silent).await, "", "closed without a word");
    let refused = response(&mut half).await;
    assert!(refused.is_empty() || refused.starts_with("HTTP/1.1 408"), "{refused}");
}

#[tokio::test]
async fn a_client_that_goes_away_in_mid_answer_is_aborted() {
    let server = listening(Limits::default()).await;
    let body = with(completion("gone"), json!({"stream": true, "max_tokens": 900, "n": 8, "ignore_eos": true}));
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(http(&body).as_bytes()).await.unwrap();
    let mut first = [0; 200];
    stream.read_exact(&mut first).await.unwrap();
    drop(stream);
    let handle = server.handle.clone();
    crate::common::eventually("nobody is busy", move || handle.busy() == 0).await;
    let engine = server.engine.clone();
    crate::common::eventually("the engine is empty", move || {
        let (status, _) = engine.report().unwrap();
        status.running == 0 && status.waiting == 0
    })
    .await;
    let (_, counters) = server.engine.report().unwrap();
    assert!(counters.aborted > 0 && counters.finished == 0, "{counters:?}");
}

#[tokio::test]
async fn a_drain_finishes_streams_and_ends_the_server() {
    let server = listening(Limits::default()).await;
    let body = with(completion("last"), json!({"stream": true, "max_tokens": 400, "ignore_eos": true}));
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(http(&body).as_bytes()).await.unwrap();
    let mut first = [0; 300];
    stream.read_exact(&mut first).await.unwrap();
    let idle = TcpStream::connect(server.address).await.unwrap();
    server.handle.drain();
    let rest = response(&mut stream).await;
    assert!(rest.contains("data: [DONE]"), "{rest}");
    tokio::time::timeout(PATIENCE, server.running).await.expect("it ends").unwrap();
    drop(idle);
    assert!(TcpStream::connect(server.address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn a_drain_leads_clients_with_kept_connections_elsewhere() {
    let server = listening(Limits::default()).await;
    let mut kept = TcpStream::connect(server.address).await.unwrap();
    for number in ["one", "two"] {
        kept.write_all(http(&completion(number)).as_bytes()).await.unwrap();
        let answer = response(&mut kept).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    }
    let body = with(completion("last"), json!({"stream": true, "max_tokens": 900, "n": 8, "ignore_eos": true}));
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(http(&body).as_bytes()).await.unwrap();
    let mut first = [0; 300];
    stream.read_exact(&mut first).await.unwrap();
    server.handle.drain();
    // The stream runs on, and no request can be lost on the connection that waits for one.
    assert_eq!(response(&mut kept).await, "", "closed without a word");
    assert_eq!(server.handle.busy(), 1);
    let mut late = TcpStream::connect(server.address).await.unwrap();
    late.write_all(b"GET /ready HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let answer = response(&mut late).await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("connection: close"), "{answer}");
    let rest = response(&mut stream).await;
    assert!(rest.contains("data: [DONE]"), "{rest}");
    tokio::time::timeout(PATIENCE, server.running).await.expect("it ends").unwrap();
}

#[tokio::test]
async fn https_is_served_and_wrong_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_string()]).unwrap();
    let files = TlsFiles { certificates: folder.path().join("cert.pem"), key: folder.path().join("key.pem") };
    std::fs::write(&files.certificates, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    let options = Options::default();
    let secure = ServerConfig { tls: Some(files.clone()), ..config(&options) };
    let server = listen(&options, secure.clone()).await;

    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let client = client.with_root_certificates(roots).with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(client));
    let secretly = async || {
        let tcp = TcpStream::connect(server.address).await.unwrap();
        let mut stream = connector.connect("localhost".try_into().unwrap(), tcp).await.unwrap();
        stream.write_all(http(&completion("tls")).as_bytes()).await.unwrap();
        response(&mut stream).await
    };
    let answer = secretly().await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    // Plain HTTP to the same port gets no answer of 200, and HTTPS is served afterwards too.
    assert!(!ask(server.address, http(&completion("plain")).as_bytes()).await.contains("200 OK"));
    let answer = secretly().await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");

    std::fs::write(&files.key, "no key").unwrap();
    let Err(error) = Server::bind(secure).await else { panic!("it took a wrong key") };
    assert!(error.to_string().contains("key.pem"), "{error}");
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let server = listening(Limits::default()).await;
    let again = ServerConfig { port: server.address.port(), ..config(&Options::default()) };
    let Err(error) = Server::bind(again).await else { panic!("two servers on one port") };
    assert!(error.to_string().contains(&server.address.port().to_string()), "{error}");
}
