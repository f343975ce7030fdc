//! TLS: a certificate chain and a key from PEM files.

use crate::config::TlsFiles;
use crate::error::ServerError;
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// Reads both files; HTTP/1.1 is the only protocol offered.
pub fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, ServerError> {
    let path = || files.certificates.clone();
    let bad = |why: String| ServerError::Certificates { path: path(), why };
    let chain = CertificateDer::pem_file_iter(&files.certificates).map_err(|error| bad(error.to_string()))?;
    let chain: Vec<_> = chain.collect::<Result<_, _>>().map_err(|error| bad(error.to_string()))?;
    if chain.is_empty() {
        return Err(bad("it contains no certificate".into()));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key);
    let key = key.map_err(|error| ServerError::Key { path: files.key.clone(), why: error.to_string() })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let failed = |error: rustls::Error| ServerError::Tls(error.to_string());
    let builder =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(failed)?;
    let mut config = builder.with_no_client_auth().with_single_cert(chain, key).map_err(failed)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
