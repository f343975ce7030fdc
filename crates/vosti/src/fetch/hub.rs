//! A file of a Hugging Face hub, by plain ranged GET: one of the catalogue, or one of a repository (`repository.rs`).
//!
//! `HF_ENDPOINT` and `HF_TOKEN` mean what they mean to Hugging Face's own client. A partial file is
//! continued from its end with a `Range` request; the finished file must have the hash of the catalogue or of the hub's listing.

use super::{FetchError, OWN_CACHE, copy_hashed, hex, room};
use crate::catalogue::Model;
use sha2::{Digest, Sha256};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;
use std::time::Duration;
use vosti_engine::progress::Progress;

/// A hub's address, and the user's token for it.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Without a slash at its end.
    pub url: String,
    /// Sent as `Authorization: Bearer TOKEN`.
    pub token: Option<String>,
}

impl Endpoint {
    /// `HF_ENDPOINT` (or the public hub) and `HF_TOKEN`.
    pub fn of_user() -> Self {
        let var = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let url = var("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".into());
        Endpoint { url: url.trim_end_matches('/').to_string(), token: var("HF_TOKEN") }
    }

    /// Requests the file at this address, from this byte on.
    pub(crate) fn get(&self, url: &str, from: u64) -> Result<ureq::http::Response<ureq::Body>, ureq::Error> {
        let mut request = agent().get(url).header("user-agent", concat!("vosti/", env!("CARGO_PKG_VERSION")));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if from > 0 {
            request = request.header("range", format!("bytes={from}-"));
        }
        request.call()
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
    let hub = &model.hub;
    let url = format!("{}/{}/resolve/{}/{}", endpoint.url, hub.repository, hub.revision, hub.path);
    let have = fs::metadata(&partial).map_or(0, |partial| partial.len());
    room(staging, model.bytes.saturating_sub(have), OWN_CACHE)?;
    let found = match download(&url, endpoint, model.bytes, &partial, progress) {
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

/// Downloads the rest of `partial`, `bytes` in all, and returns the SHA-256 of the whole.
pub(crate) fn download(
    url: &str,
    endpoint: &Endpoint,
    bytes: u64,
    partial: &Path,
    progress: &dyn Progress,
) -> Result<String, FetchError> {
    let http = |reason: String| FetchError::Http { url: url.to_string(), reason };
    let (mut hash, have) = resume(partial, bytes, progress);
    if have == bytes && partial.exists() {
        return Ok(hex(hash));
    }
    let response = endpoint.get(url, have).map_err(|error| http(error.to_string()))?;
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
    let mut body = io::Read::take(response.into_body().into_reader(), bytes - start + 1);
    let copied = copy_hashed(&mut body, &mut out, &mut hash, start, progress);
    out.sync_all().map_err(FetchError::io(partial))?;
    let have = fs::metadata(partial).map_err(FetchError::io(partial))?.len();
    let ended =
        |why: String| http(format!("the connection ended at byte {have} of {bytes}{why}: try again to continue"));
    copied.map_err(|error| match error.kind() {
        io::ErrorKind::StorageFull => FetchError::io(partial)(error),
        _ => ended(format!(" ({error})")),
    })?;
    if have < bytes {
        return Err(ended(String::new()));
    }
    Ok(hex(hash))
}

/// Hash and length of the partial file that an earlier try left; a partial file that is too long is deleted.
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
