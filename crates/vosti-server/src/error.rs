//! Reasons why a server could not start or ended. A client's mistake is an `api::error`.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a server could not start or ended.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum ServerError {
    #[error("cannot listen on {address}: {error}; choose another --port, or stop the program that uses this one")]
    Bind { address: SocketAddr, error: io::Error },
    #[error("--tls-cert {}: {why}; give a PEM file with the certificate chain", path.display())]
    Certificates { path: PathBuf, why: String },
    #[error("--tls-key {}: {why}; give a PEM file with the private key", path.display())]
    Key { path: PathBuf, why: String },
    #[error("the certificate and the key cannot be used together: {0}")]
    Tls(String),
    #[error("the tokenizer cannot guide structured output: {0}")]
    Grammar(#[from] crate::grammar::GrammarError),
    #[error(
        "{source_file} has sampling defaults out of range: {why}; correct it, or serve with --generation-config none"
    )]
    Defaults { source_file: &'static str, why: vosti_engine::SamplingError },
    #[error("the engine ended: {0}")]
    Engine(String),
    /// An origin that no browser sends.
    #[error(
        "{0:?} is not an origin: write scheme, host and port as in https://app.example or http://localhost:3000, or *"
    )]
    Origin(String),
}
