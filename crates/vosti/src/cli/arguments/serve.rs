//! The flags of `vosti serve`.

use super::{Defaults, Engine};
use crate::cli::values::{address, size, whole};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// The form of the server's log.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
    Off,
}

/// What the server does with unknown fields.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum UnknownFields {
    /// 400 that names the field
    Refuse,
    /// Answer without the field; the response's header x-vosti-ignored names it
    Warn,
}

/// `vosti serve`
#[derive(Args)]
pub struct Serve {
    /// The address to listen on, or localhost; 0.0.0.0 listens on every address of this machine
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS", value_parser = address)]
    pub host: std::net::IpAddr,

    /// The port; 0 takes a free one
    #[arg(long, default_value_t = 8000)]
    pub port: u16,

    /// Serve only clients with this key; may be given several times [also: $VOSTI_API_KEY]
    #[arg(long, value_name = "KEY")]
    pub api_key: Vec<String>,

    /// The model's name in the API; may be given several times [default: the model's own name]
    #[arg(long, value_name = "NAME")]
    pub served_model_name: Vec<String>,

    /// How many answers may wait; more are refused with 429
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = whole::<usize>, allow_negative_numbers = true)]
    pub max_queue: usize,

    /// How many connections to serve; more wait until one closes
    #[arg(long, default_value_t = 1024, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub max_connections: u32,

    /// Largest request body
    #[arg(long, default_value = "4M", value_name = "SIZE", value_parser = size)]
    pub max_body_size: u64,

    /// Most choices (n) of one request
    #[arg(long, default_value_t = 128, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub max_choices: u32,

    /// Longest time from a request's arrival to the end of its answer
    #[arg(long, default_value_t = 600, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub request_timeout: u64,

    /// Close a connection when its client is idle for this long
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub idle_timeout: u64,

    /// PEM file with the certificate chain: serve https
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,

    /// PEM file with its private key
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,

    /// Pages of this site may use the API from a browser: https://app.example, or * for every site; may be given several times
    #[arg(long, value_name = "ORIGIN")]
    pub cors_origin: Vec<String>,

    /// What to do with a request that has an unknown field, or an unsupported one that could change the answer
    #[arg(long, value_enum, default_value = "refuse")]
    pub unknown_fields: UnknownFields,

    /// Accept chat templates in requests: they are programs, which may use a core and memory until they are stopped
    #[arg(long)]
    pub trust_request_chat_template: bool,

    /// Form of the log, which goes to standard error
    #[arg(long, value_enum, default_value = "text")]
    pub log_format: LogFormat,

    /// Write prompts to the log; otherwise no text of a request is ever logged
    #[arg(long)]
    pub log_prompts: bool,

    /// Send traces to this collector: OTLP over HTTP, to URL/v1/traces [also: $OTEL_EXPORTER_OTLP_ENDPOINT]
    #[arg(long, value_name = "URL")]
    pub otlp_endpoint: Option<String>,

    #[command(flatten)]
    pub defaults: Defaults,
    #[command(flatten)]
    pub engine: Engine,
}
