//! Runs Triton's front end on a file: `render.py`, in a Python that has Triton.
//!
//! The process has a time limit and no input but the request; what it prints on standard error is shown only if it fails.

use crate::error::AuditError;
use crate::normal::Line;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use vosti_child::Program;

const SCRIPT: &str = include_str!("render.py");
const TTIR: &str = include_str!("../../../kernels/ttir.py");

/// The longest that a file's own statements and the front end may take together.
const LIMIT: Duration = Duration::from_secs(180);

/// Texts to make of one launch.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Request {
    pub function: String,
    pub constants: BTreeMap<String, serde_json::Value>,
    pub types: BTreeMap<String, String>,
    /// Names of the contract: a constant among them may be of the contract alone.
    pub words: Vec<String>,
    /// The parameter with the number of rows.
    pub rows: Option<String>,
    /// Integer parameters that 16 divides in every launch.
    pub divisible: Vec<String>,
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

/// A launch that the decorators choose where the contract leaves constants open; the one launch if it leaves none.
#[derive(Deserialize)]
pub(crate) struct Choice {
    /// One choice of a group may be taken for one batch, and another for another batch.
    pub group: usize,
    /// The constants that the contract leaves open, and options of the compiler.
    pub chosen: BTreeMap<String, serde_json::Value>,
    text: Made<Text>,
}

impl Choice {
    /// The lines of the text; or why there is none.
    pub fn lines(self) -> Result<Vec<Line>, NoText> {
        let text = self.text.given()?;
        Ok(text.lines.into_iter().zip(text.python).map(|(text, python)| Line::new(text, python)).collect())
    }
}

#[derive(Deserialize)]
struct Text {
    lines: Vec<String>,
    python: Vec<Option<u32>>,
}

#[derive(Deserialize)]
struct Choices {
    launches: Vec<Choice>,
}

/// A launch as Triton compiles it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Code {
    pub ptx: String,
    /// Of a block.
    pub threads: u32,
    /// Bytes of dynamic shared memory of a block.
    pub shared: usize,
    /// Name and Triton's type.
    pub parameters: Vec<(String, String)>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Made<T> {
    Given(T),
    Not(NoText),
}

impl<T> Made<T> {
    fn given(self) -> Result<T, NoText> {
        match self {
            Made::Given(text) => Ok(text),
            Made::Not(why) => Err(why),
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Answer<T> {
    Made {
        kernels: Vec<Kernel>,
        texts: Vec<Made<T>>,
        skipped: Vec<Skipped>,
    },
    Failed {
        error: String,
        #[serde(default)]
        line: u64,
    },
}

/// Why there is no text, and the line of the file.
#[derive(Deserialize)]
pub(crate) struct NoText {
    #[serde(rename = "error")]
    pub why: String,
    pub line: u64,
    /// Whether Triton was asked and refused; else the request does not fit the file.
    #[serde(default)]
    pub refused: bool,
}

/// The kernels of a file, and what was made for each request.
pub(crate) struct Rendered<T> {
    pub kernels: Vec<Kernel>,
    pub texts: Vec<Result<T, NoText>>,
    pub skipped: Vec<Skipped>,
}

/// TTIR of each launch that decorators choose.
pub(crate) fn texts(python: &Path, path: &Path, requests: &[Request]) -> Result<Rendered<Vec<Choice>>, AuditError> {
    let rendered = render::<Choices>(python, path, requests, false)?;
    let texts = rendered.texts.into_iter().map(|text| text.map(|choices| choices.launches)).collect();
    Ok(Rendered { kernels: rendered.kernels, texts, skipped: rendered.skipped })
}

/// PTX of launches whose constants are all given.
pub(crate) fn codes(python: &Path, path: &Path, requests: &[Request]) -> Result<Vec<Result<Code, NoText>>, AuditError> {
    Ok(render(python, path, requests, true)?.texts)
}

fn render<T: DeserializeOwned>(
    python: &Path,
    path: &Path,
    requests: &[Request],
    compile: bool,
) -> Result<Rendered<T>, AuditError> {
    let fail = |why| failed(python, path, why);
    let request = serde_json::json!({ "path": path, "compile": compile, "launches": requests });
    let said = said(python, path, SCRIPT, &request)?;
    match serde_json::from_str(&said).map_err(|error| fail(format!("its answer cannot be read: {error}")))? {
        Answer::Failed { error, line: 0 } => Err(fail(error)),
        Answer::Failed { error, line } => {
            Err(AuditError::Python { path: path.display().to_string(), line, why: error })
        }
        Answer::Made { kernels, texts, skipped } => {
            Ok(Rendered { kernels, texts: texts.into_iter().map(Made::given).collect(), skipped })
        }
    }
}

fn failed(python: &Path, path: &Path, why: String) -> AuditError {
    AuditError::FrontEnd {
        python: python.display().to_string(),
        path: path.display().to_string(),
        why: why.trim().lines().last().unwrap_or("it said nothing").to_string(),
    }
}

/// The answer of a script to a request.
pub(crate) fn script(
    python: &Path,
    path: &Path,
    text: &str,
    request: &serde_json::Value,
) -> Result<serde_json::Value, AuditError> {
    let said = said(python, path, text, request)?;
    serde_json::from_str(&said).map_err(|error| failed(python, path, format!("its answer cannot be read: {error}")))
}

/// What a script says of a request.
fn said(python: &Path, path: &Path, text: &str, request: &serde_json::Value) -> Result<String, AuditError> {
    let fail = |why| failed(python, path, why);
    let folder = tempfile::tempdir().map_err(|error| fail(error.to_string()))?;
    for (name, text) in [("script.py", text), ("ttir.py", TTIR)] {
        std::fs::write(folder.path().join(name), text).map_err(|error| fail(error.to_string()))?;
    }
    // Files and no pipes: a program that the file starts and leaves behind would keep a pipe open.
    let [out, err] = ["out", "err"].map(|name| folder.path().join(name));
    let file = |path| File::create(path).map_err(|error| fail(error.to_string()));
    let mut command = Command::new(python);
    command.arg("-B").arg(folder.path().join("script.py"));
    let child = Program::start(command.stdin(Stdio::piped()).stdout(file(&out)?).stderr(file(&err)?));
    let child = child.map_err(|error| fail(error.to_string()))?;
    let status = finish(child, &request.to_string()).map_err(fail)?;
    let text = |path| std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    match (status.success(), text(&out), text(&err)) {
        (true, said, _) if !said.is_empty() => Ok(said),
        (false, _, said) if !said.trim().is_empty() => Err(fail(said)),
        _ => Err(fail(format!("a statement of the file ends the process ({status})"))),
    }
}

/// How a process ends that ends in time.
fn finish(mut child: Program, input: &str) -> Result<ExitStatus, String> {
    // A process that ends before it has read its input says itself why.
    child.input().map(|mut pipe| pipe.write_all(input.as_bytes()));
    let start = Instant::now();
    loop {
        match child.ended().map_err(|error| error.to_string())? {
            Some(status) => return Ok(status),
            None if start.elapsed() > LIMIT => {
                return Err(format!("it did not end within {} s", LIMIT.as_secs()));
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}
