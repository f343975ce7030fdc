//! Runs Triton's front end on a file: `render.py`, in a Python that has Triton.
//!
//! The process has a time limit and no input but the request; what it prints on standard error is shown only if it fails.

use crate::error::AuditError;
use crate::normal::Line;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SCRIPT: &str = include_str!("render.py");
const TTIR: &str = include_str!("../../../kernels/ttir.py");

/// The longest that a file's own statements and the front end may take together.
const LIMIT: Duration = Duration::from_secs(60);

/// One text to make.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Request {
    pub function: String,
    pub constants: BTreeMap<String, serde_json::Value>,
    pub types: BTreeMap<String, String>,
    /// Names of the contract: a constant among them may be of the contract alone.
    pub words: Vec<String>,
}

/// A kernel of the file.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Kernel {
    pub name: String,
    pub line: u64,
}

/// A statement of the file that could not be executed, and why.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub struct Skipped {
    /// 1-based.
    pub line: u64,
    /// In words.
    pub why: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Text {
    Made {
        lines: Vec<String>,
        python: Vec<Option<u32>>,
    },
    Failed {
        error: String,
        line: u64,
        /// Triton was asked and refused.
        #[serde(default)]
        refused: bool,
    },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    Made {
        kernels: Vec<Kernel>,
        texts: Vec<Text>,
        skipped: Vec<Skipped>,
    },
    Failed {
        error: String,
        #[serde(default)]
        line: u64,
    },
}

/// Why there is no text, and the line of the file.
pub(crate) struct NoText {
    pub line: u64,
    pub why: String,
    /// Whether Triton was asked and refused; else the request does not fit the file.
    pub refused: bool,
}

/// The kernels of a file, and for each request the lines of its text or the line and the reason why there is none.
pub(crate) struct Rendered {
    pub kernels: Vec<Kernel>,
    pub texts: Vec<Result<Vec<Line>, NoText>>,
    pub skipped: Vec<Skipped>,
}

pub(crate) fn render(python: &Path, path: &Path, requests: &[Request]) -> Result<Rendered, AuditError> {
    let fail = |why: String| AuditError::FrontEnd {
        python: python.display().to_string(),
        path: path.display().to_string(),
        why: why.trim().lines().last().unwrap_or("it said nothing").to_string(),
    };
    let folder = tempfile::tempdir().map_err(|error| fail(error.to_string()))?;
    for (name, text) in [("render.py", SCRIPT), ("ttir.py", TTIR)] {
        std::fs::write(folder.path().join(name), text).map_err(|error| fail(error.to_string()))?;
    }
    let request = serde_json::json!({ "path": path, "launches": requests });
    let mut command = Command::new(python);
    command.arg("-B").arg(folder.path().join("render.py"));
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.map_err(|error| fail(error.to_string()))?;
    let said = finish(child, &request.to_string()).map_err(fail)?;
    match serde_json::from_str(&said).map_err(|error| fail(format!("its answer cannot be read: {error}")))? {
        Answer::Failed { error, line: 0 } => Err(fail(error)),
        Answer::Failed { error, line } => {
            Err(AuditError::Python { path: path.display().to_string(), line, why: error })
        }
        Answer::Made { kernels, texts, skipped } => {
            let text = |text| match text {
                Text::Made { lines, python } => {
                    Ok(lines.into_iter().zip(python).map(|(text, python)| Line::new(text, python)).collect())
                }
                Text::Failed { error: why, line, refused } => Err(NoText { line, why, refused }),
            };
            Ok(Rendered { kernels, texts: texts.into_iter().map(text).collect(), skipped })
        }
    }
}

/// Standard output of a process that ends well in time; else why not.
fn finish(mut child: Child, input: &str) -> Result<String, String> {
    // A process that ends before it has read its input says itself why.
    child.stdin.take().map(|mut pipe| pipe.write_all(input.as_bytes()));
    let reader = |pipe: Option<Box<dyn std::io::Read + Send>>| {
        std::thread::spawn(move || {
            let mut text = vec![];
            pipe.map(|mut pipe| pipe.read_to_end(&mut text));
            String::from_utf8_lossy(&text).into_owned()
        })
    };
    let out = reader(child.stdout.take().map(|pipe| Box::new(pipe) as _));
    let err = reader(child.stderr.take().map(|pipe| Box::new(pipe) as _));
    let start = Instant::now();
    let status = loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) => break status,
            None if start.elapsed() > LIMIT => {
                // It may have ended by itself meanwhile.
                _ = child.kill();
                _ = child.wait();
                return Err(format!("it did not end within {} s", LIMIT.as_secs()));
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    let said = |thread: std::thread::JoinHandle<String>| thread.join().unwrap_or_default();
    match status.success() {
        true => Ok(said(out)),
        false => Err(said(err)),
    }
}
