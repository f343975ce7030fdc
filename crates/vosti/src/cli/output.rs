//! Standard output, and the files that a command was asked to write.
//!
//! Standard output may be a pager that its user left, or a full disk. The first ends a command quietly, as it ends other
//! filters; the second is an error. Neither can hide a check's verdict.

use super::Outcome;
use anyhow::{Context, Result, ensure};
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// How many of something, as people say it: `1 page`, `2 pages`.
pub fn counted(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// Prints and flushes. If the reader has closed the pipe, the process ends with exit code 0.
pub fn print(text: &str) -> Result<()> {
    match write(text) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {
            super::silent::restore();
            std::process::exit(0)
        }
        written => written.context("cannot write to standard output"),
    }
}

/// Prints a check's report and returns its verdict as the outcome. If the report cannot be written, a check that passed becomes
/// an error; a check that failed stays failed.
pub fn verdict(text: &str, passed: bool) -> Result<Outcome> {
    judged(write(text).context("cannot write the report to standard output"), passed)
}

/// The outcome of a check whose report was written, or was not.
pub fn judged(reported: Result<()>, passed: bool) -> Result<Outcome> {
    match reported {
        Ok(()) if passed => Ok(Outcome::Done),
        Ok(()) => Ok(Outcome::Failed),
        Err(error) if passed => Err(error),
        Err(error) => {
            tell!("vosti: the check FAILED; {error:#}");
            Ok(Outcome::Failed)
        }
    }
}

/// The outcome of work whose report was written, and which may have been ended early.
pub fn whole(outcome: Result<Outcome>, interrupted: bool) -> Result<Outcome> {
    if interrupted && outcome.is_ok() {
        tell!("vosti: interrupted: the report covers the work done so far");
        return Ok(Outcome::Interrupted);
    }
    outcome
}

fn write(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
}

/// A file that is written when its content is known, which may take hours. That it can be written was checked.
pub struct Promised {
    path: PathBuf,
    /// A file beside it that is renamed when it is complete; none if the path is a device or a pipe.
    temporary: Option<PathBuf>,
}

impl Promised {
    /// Checks that the file can be written, and changes nothing.
    pub fn new(path: &Path) -> Result<Self> {
        let cannot = || format!("cannot write {}", path.display());
        ensure!(!path.is_dir(), "cannot write {}: it is a folder, name a file", path.display());
        if path.exists() && !path.is_file() {
            OpenOptions::new().write(true).open(path).with_context(cannot)?;
            return Ok(Promised { path: path.to_path_buf(), temporary: None });
        }
        // The target of a symbolic link, so that the link stays.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let name = path.file_name().with_context(cannot)?.to_string_lossy();
        let temporary = path.with_file_name(format!(".{name}.{}", std::process::id()));
        fs::write(&temporary, "").and_then(|()| fs::remove_file(&temporary)).with_context(cannot)?;
        Ok(Promised { path, temporary: Some(temporary) })
    }

    /// Writes the file, completely or not at all.
    pub fn keep(self, text: &str) -> Result<()> {
        let written = match &self.temporary {
            None => fs::write(&self.path, text),
            Some(temporary) => fs::write(temporary, text).and_then(|()| fs::rename(temporary, &self.path)),
        };
        if written.is_err() {
            self.temporary.iter().for_each(|temporary| drop(fs::remove_file(temporary)));
        }
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promised_file_is_not_there_before_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let names = || fs::read_dir(folder.path()).unwrap().count();
        let path = folder.path().join("report.json");
        let promised = Promised::new(&path).unwrap();
        assert_eq!(names(), 0);
        promised.keep("{}").unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), names()), ("{}", 1));
        assert!(Promised::new(folder.path()).is_err(), "a folder");
        assert!(Promised::new(&folder.path().join("nowhere/report.json")).is_err());
        assert!(Promised::new(Path::new("/dev/null")).is_ok_and(|null| null.keep("x").is_ok()));
        assert!(Path::new("/dev/null").exists() && !Path::new("/dev/null").is_file(), "it was not replaced");
    }

    #[test]
    fn a_report_that_cannot_be_written_never_makes_a_failed_check_pass() {
        let broken = || Err(anyhow::anyhow!("the disk is full"));
        assert!(matches!(judged(broken(), false), Ok(Outcome::Failed)));
        assert!(judged(broken(), true).is_err());
        assert!(matches!(judged(Ok(()), false), Ok(Outcome::Failed)));
        assert!(matches!(judged(Ok(()), true), Ok(Outcome::Done)));
    }
}
