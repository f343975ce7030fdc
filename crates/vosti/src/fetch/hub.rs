//! A file of a Hugging Face hub, by plain ranged GET.
//!
//! `HF_ENDPOINT` and `HF_TOKEN` mean what they mean to Hugging Face's own client. A partial file is
//! continued from its end with a `Range` request; the finished file must have the catalogue's SHA-256.

use super::{FetchError, copy_hashed, hex};
use crate::catalogue::Model;
use sha2::{Digest, Sha256};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;
use std::time::Duration;
use vosti_progress::Progress;

/// Which hub, as whom.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub url: String,
    pub token: Option<String>,
}

impl Endpoint {
    /// `HF_ENDPOINT` (or the public hub) and `HF_TOKEN`.
    pub fn of_user() -> Self {
        let var = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let url = var("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".into());
        Endpoint { url: url.trim_end_matches('/').to_string(), token: var("HF_TOKEN") }
    }
}

/// Puts the model's verified bytes at `whole`; `staging` keeps the partial file between tries.
pub fn fetch(
    model: &Model,
    endpoint: &Endpoint,
    staging: &Path,
    whole: &Path,
    progress: &dyn Progress,
) -> Result<(), FetchError> {
    let partial = staging.join("hub.partial");
    progress.stage(&format!("fetching {}", model.name), model.bytes);
    let found = match download(model, endpoint, &partial, progress) {
        Ok(found) => found,
        Err(_) if progress.cancelled() => return Err(FetchError::Interrupted),
        Err(error) => return Err(error),
    };
    if found != model.sha256 {
        let _ = fs::remove_file(&partial);
        return Err(FetchError::WrongHash { what: model.file.clone(), expected: model.sha256.clone(), found });
    }
    fs::rename(&partial, whole).map_err(FetchError::io(whole))
}

/// Downloads the rest of `partial` and returns the hash of the whole.
fn download(model: &Model, endpoint: &Endpoint, partial: &Path, progress: &dyn Progress) -> Result<String, FetchError> {
    let hub = &model.hub;
    let url = format!("{}/{}/resolve/{}/{}", endpoint.url, hub.repository, hub.revision, hub.path);
    let http = |reason: String| FetchError::Http { url: url.clone(), reason };
    let (mut hash, have) = resume(partial, model.bytes, progress);
    let mut request = agent().get(&url).header("user-agent", concat!("vosti/", env!("CARGO_PKG_VERSION")));
    if let Some(token) = &endpoint.token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    if have == model.bytes {
        return Ok(hex(hash));
    }
    if have > 0 {
        request = request.header("range", format!("bytes={have}-"));
    }
    let response = request.call().map_err(|error| http(error.to_string()))?;
    let continued = have > 0 && response.status() == 206;
    if continued {
        let range = response.headers().get("content-range").and_then(|v| v.to_str().ok()).unwrap_or("");
        if !range.starts_with(&format!("bytes {have}-")) {
            return Err(http(format!("asked for bytes from {have}, got {range:?}")));
        }
    } else {
        hash = Sha256::new(); // the server sends the whole file
    }
    let start = if continued { have } else { 0 };
    let mut out = OpenOptions::new()
        .create(true)
        .append(continued)
        .write(true)
        .truncate(!continued)
        .open(partial)
        .map_err(FetchError::io(partial))?;
    // One byte more than expected is enough to know that this is not the file.
    let mut body = io::Read::take(response.into_body().into_reader(), model.bytes - start + 1);
    let copied = copy_hashed(&mut body, &mut out, &mut hash, start, progress).map_err(|e| http(e.to_string()))?;
    out.sync_all().map_err(FetchError::io(partial))?;
    if start + copied < model.bytes {
        return Err(http(format!("the connection ended at byte {} of {}", start + copied, model.bytes)));
    }
    Ok(hex(hash))
}

/// Hash and length of what an earlier try left; an over-long leftover is thrown away.
fn resume(partial: &Path, bytes_max: u64, progress: &dyn Progress) -> (Sha256, u64) {
    let mut hash = Sha256::new();
    let Ok(mut file) = File::open(partial) else {
        return (hash, 0);
    };
    match copy_hashed(&mut file, &mut io::sink(), &mut hash, 0, progress) {
        Ok(have) if have <= bytes_max => (hash, have),
        _ => {
            let _ = fs::remove_file(partial);
            (Sha256::new(), 0)
        }
    }
}

fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        .timeout_connect(Some(Duration::from_secs(15)))
        .timeout_recv_response(Some(Duration::from_secs(60)))
        .build();
    ureq::Agent::new_with_config(config)
}
