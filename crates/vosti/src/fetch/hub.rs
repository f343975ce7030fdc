//! A file of a Hugging Face hub, by plain ranged GET: one of the catalogue, or one of a repository (`repository.rs`).
//!
//! `HF_ENDPOINT` and `HF_TOKEN` mean what they mean to Hugging Face's own client. A partial file is
//! continued from its end with a `Range` request; the finished file must have the hash of the catalogue or of the hub's listing.
//!
//! Every wait for the hub is on a thread of its own ([`Body`]), so an interrupted command never waits for a server that is silent.

use super::{FetchError, OWN_CACHE, copy_hashed, hex, room};
use crate::catalogue::Model;
use sha2::{Digest, Sha256};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use vosti_engine::progress::Progress;

/// A hub's address, and the user's token for it.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Without a slash at its end.
    pub url: String,
    /// Sent as `Authorization: Bearer TOKEN`.
    pub token: Option<String>,
    /// The longest wait for an answer, and for its next bytes.
    pub silence_max: Duration,
}

impl Endpoint {
    /// A hub that may be silent for a minute and a half.
    pub fn new(url: String, token: Option<String>) -> Self {
        Endpoint { url, token, silence_max: Duration::from_secs(90) }
    }

    /// `HF_ENDPOINT` (or the public hub) and `HF_TOKEN`.
    pub fn of_user() -> Self {
        let var = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let url = var("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".into());
        Endpoint::new(url.trim_end_matches('/').to_string(), var("HF_TOKEN"))
    }

    /// Requests the file at this address, from this byte on. Errors: the outer one is an interruption.
    pub(crate) fn get<'a>(
        &self,
        url: &str,
        from: u64,
        progress: &'a dyn Progress,
    ) -> Result<Result<Answer<'a>, ureq::Error>, FetchError> {
        let (say, heard) = sync_channel(1);
        let (endpoint, address) = (self.clone(), url.to_string());
        // The thread of a call that was given up ends with the process, or when the hub sends something.
        std::thread::spawn(move || endpoint.ask(&address, from, &say));
        let body = Body { heard, rest: io::Cursor::default(), silence_max: self.silence_max, progress };
        match body.next() {
            Ok(Some(Heard::Head(head))) => Ok(Ok(Answer { head, body })),
            Ok(Some(Heard::Failed(error))) => Ok(Err(error)),
            Ok(_) => Err(FetchError::Http { url: url.into(), reason: "the request ended without an answer".into() }),
            Err(_) if progress.cancelled() => Err(FetchError::Interrupted),
            Err(error) => Err(FetchError::Http { url: url.into(), reason: error.to_string() }),
        }
    }

    /// Makes the request, and tells all that comes.
    fn ask(&self, url: &str, from: u64, say: &SyncSender<Heard>) {
        let mut request =
            agent(self.silence_max).get(url).header("user-agent", concat!("vosti/", env!("CARGO_PKG_VERSION")));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if from > 0 {
            request = request.header("range", format!("bytes={from}-"));
        }
        let (head, mut body) = match request.call() {
            Ok(answer) => {
                let (head, body) = answer.into_parts();
                (head, body.into_reader())
            }
            Err(error) => {
                _ = say.send(Heard::Failed(error));
                return;
            }
        };
        let mut goes_on = say.send(Heard::Head(head)).is_ok();
        while goes_on {
            let mut block = vec![0; BLOCK];
            let heard = match io::Read::read(&mut body, &mut block) {
                Ok(0) => return,
                Ok(read) => {
                    block.truncate(read);
                    Heard::Block(block)
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => Heard::Cut(error),
            };
            goes_on = !matches!(heard, Heard::Cut(_));
            goes_on &= say.send(heard).is_ok();
        }
    }
}

/// Bytes that are read at a time.
const BLOCK: usize = 1 << 16;

/// What comes of a request: a head, then blocks of the body; or a failure.
enum Heard {
    Head(ureq::http::response::Parts),
    Block(Vec<u8>),
    Failed(ureq::Error),
    Cut(io::Error),
}

/// The hub's answer.
pub(crate) struct Answer<'a> {
    pub head: ureq::http::response::Parts,
    pub body: Body<'a>,
}

/// The bytes of an answer as they come. A read fails if the work is cancelled, and after a long silence.
pub(crate) struct Body<'a> {
    heard: Receiver<Heard>,
    rest: io::Cursor<Vec<u8>>,
    silence_max: Duration,
    progress: &'a dyn Progress,
}

impl Body<'_> {
    /// What comes next; none at the end.
    fn next(&self) -> io::Result<Option<Heard>> {
        let start = Instant::now();
        loop {
            match self.heard.recv_timeout(Duration::from_millis(50)) {
                Ok(heard) => return Ok(Some(heard)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) if self.progress.cancelled() => {
                    return Err(io::Error::other("cancelled"));
                }
                Err(RecvTimeoutError::Timeout) if start.elapsed() > self.silence_max => {
                    let why = format!("the server sent nothing for {} s", self.silence_max.as_secs());
                    return Err(io::Error::new(io::ErrorKind::TimedOut, why));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

impl io::Read for Body<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match io::Read::read(&mut self.rest, into)? {
                0 => match self.next()? {
                    Some(Heard::Block(block)) => self.rest = io::Cursor::new(block),
                    Some(Heard::Cut(error)) => return Err(error),
                    Some(Heard::Head(_) | Heard::Failed(_)) | None => return Ok(0),
                },
                read => return Ok(read),
            }
        }
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
    let (mut hash, have) = resume(partial, bytes, progress)?;
    if have == bytes && partial.exists() {
        return Ok(hex(hash));
    }
    let Answer { head, body } = endpoint.get(url, have, progress)?.map_err(|error| http(error.to_string()))?;
    let continued = have > 0 && head.status == 206;
    if continued {
        let range = head.headers.get("content-range").and_then(|v| v.to_str().ok()).unwrap_or("");
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
    let mut body = io::Read::take(body, bytes - start + 1);
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

/// Hash and length of the partial file that an earlier try left; a partial file that is too long or cannot be read is deleted.
fn resume(partial: &Path, bytes_max: u64, progress: &dyn Progress) -> Result<(Sha256, u64), FetchError> {
    let mut hash = Sha256::new();
    let Ok(mut file) = File::open(partial) else {
        return Ok((hash, 0));
    };
    match copy_hashed(&mut file, &mut io::sink(), &mut hash, 0, progress) {
        Ok(have) if have <= bytes_max => Ok((hash, have)),
        Err(_) if progress.cancelled() => Err(FetchError::Interrupted),
        _ => {
            let _ = fs::remove_file(partial);
            Ok((Sha256::new(), 0))
        }
    }
}

/// Its waits end the thread of a request that was given up; that of [`Body`], which is shorter, is the one that a user sees.
fn agent(silence_max: Duration) -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        .timeout_connect(Some(Duration::from_secs(15)))
        .timeout_recv_response(Some(silence_max * 2))
        .build();
    ureq::Agent::new_with_config(config)
}
