//! An operator's settings, as plain data: the command line makes it, and nothing here reads the environment.

use crate::cors::Origins;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Where and how to serve.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The address to listen on.
    pub host: IpAddr,
    /// 0 lets the system choose.
    pub port: u16,
    /// Names of the model in requests; answers have the first one.
    pub model_names: Vec<String>,
    /// API keys; none: the API is open to every client that reaches the port.
    pub api_keys: Vec<String>,
    /// Serve HTTPS; `None`: HTTP.
    pub tls: Option<TlsFiles>,
    /// Sizes, times and counts that requests may not exceed.
    pub limits: Limits,
    /// Write prompts to the log. Otherwise no text of a request is ever logged.
    pub log_prompts: bool,
    /// What to do with fields of a request that no API has.
    pub unknown_fields: UnknownFields,
    /// Requests may bring a chat template. It is a program: it ends, but may take a core and memory until then.
    pub trust_chat_template: bool,
    /// Sites whose pages may use the API from a browser.
    pub cors_origins: Origins,
    /// Requests become spans of the process's tracer (`opentelemetry::global`).
    pub traces: bool,
}

/// How to treat a request with an unknown field, or with an unsupported field that could change the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownFields {
    /// 400 that names the field.
    #[default]
    Refuse,
    /// The field is ignored. The response's header `x-vosti-ignored` names it; the log has the number of ignored fields.
    Warn,
}

/// A certificate chain and its private key, both PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The chain, the server's own certificate first.
    pub certificates: PathBuf,
    /// The private key of the first certificate.
    pub key: PathBuf,
}

/// Bounds on everything that a client can make the server hold.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Answers (prompts times choices) in the engine, running or waiting; more are refused with 429.
    pub answers_max: usize,
    /// Open connections; more wait in the system's backlog.
    pub connections_max: usize,
    /// Bytes of a request's body.
    pub body_bytes_max: usize,
    /// Choices per prompt.
    pub choices_max: u32,
    /// Longest time from the request's arrival to its answer's end.
    pub request_time_max: Duration,
    /// A client that reads nothing for this long, or sends no request, loses its connection.
    pub idle_time_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            answers_max: 64 + 256,
            connections_max: 1024,
            body_bytes_max: 4 << 20,
            choices_max: 128,
            request_time_max: Duration::from_secs(600),
            idle_time_max: Duration::from_secs(60),
        }
    }
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            host: IpAddr::from([127, 0, 0, 1]),
            port: 8000,
            model_names: vec!["model".into()],
            api_keys: Vec::new(),
            tls: None,
            limits: Limits::default(),
            log_prompts: false,
            unknown_fields: UnknownFields::default(),
            trust_chat_template: false,
            cors_origins: Origins::default(),
            traces: false,
        }
    }
}
