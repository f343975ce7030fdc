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
    /// Names that requests may give the model; the first is the one that answers carry.
    pub model_names: Vec<String>,
    /// Bearer tokens that open the API; none: it is open to whoever reaches the port.
    pub api_keys: Vec<String>,
    /// Serve HTTPS; `None`: HTTP.
    pub tls: Option<TlsFiles>,
    /// Sizes, times and counts that requests may not exceed.
    pub limits: Limits,
    /// Write prompts and answers to the log. Otherwise no text of a request is ever logged.
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

/// What is done with a request that has a field which this server has not, and which could change its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownFields {
    /// 400 that names the field.
    #[default]
    Refuse,
    /// The field is ignored, and named in the response's header `x-vosti-ignored` and in the log.
    Warn,
}

/// A certificate chain and its private key, both PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The chain, the server's own certificate first.
    pub certificates: PathBuf,
    /// Of the first certificate.
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
    /// From the request's arrival to its answer's end.
    pub request_time_max: Duration,
    /// A client that takes nothing for this long, or sends no request, loses its connection.
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
