//! Kernels outside the inventory: a Python file that carries its own contract, constants and extents,
//! with its TTIR beside it. Each file test is one.
//!
//! The TTIR's header has the hashes of the files that it was made from and of its own text: a proof of an old text, or of
//! one that was changed by hand, would be no proof of the Python beside it.

use crate::problem::{Problem, ProblemError, Statement};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::path::Path;
use vosti_contract::{Dtype, contract};

/// The function of a file that `filetests/make.py` lowers.
const FUNCTION: &str = "kernel";

/// One case: a kernel and what its comments say about it.
pub struct Case {
    /// The file's stem.
    pub name: String,
    /// The Python text, contract and all.
    pub source: String,
    /// The problem, or why the contract and the TTIR make none.
    pub problem: Result<Problem, ProblemError>,
    /// The TTIR, also if it makes no problem.
    pub ttir: String,
    notes: BTreeMap<String, String>,
}

impl Case {
    /// Reads `path` (a `.py`) and the `.ttir` beside it. An error if one of the two cannot be read; a contract that makes no
    /// problem is no error here.
    pub fn read(path: &Path) -> std::io::Result<Case> {
        let source = std::fs::read_to_string(path)?;
        Ok(Case::of(path, source, std::fs::read_to_string(path.with_extension("ttir"))?))
    }

    /// The case of a source and its TTIR. `path` is where the source stands or would stand: the TTIR names the other files that
    /// it was made from relative to it.
    pub fn of(path: &Path, source: String, ttir: String) -> Case {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let problem = match tied(path, &source, &ttir) {
            Ok(()) => problem(&name, &source, &ttir),
            Err(why) => Err(ProblemError::Untied { kernel: name.clone(), why, path: path.display().to_string() }),
        };
        let mut notes = BTreeMap::new();
        for line in source.lines().filter_map(|l| l.strip_prefix("#: ")) {
            if let Some((key, value)) = line.split_once(": ") {
                notes.insert(key.to_string(), value.to_string());
            }
        }
        Case { name, source, problem, ttir, notes }
    }

    /// A line `#: key: value` of the source.
    pub fn note(&self, key: &str) -> Option<&str> {
        self.notes.get(key).map(String::as_str)
    }
}

/// Refuses a TTIR unless its header names this file, and has the hashes of all files that it names and of its own text.
fn tied(path: &Path, source: &str, ttir: &str) -> Result<(), String> {
    let (mut own, mut module) = (false, None);
    for line in ttir.lines().take_while(|line| line.starts_with("//")) {
        if let Some(text) = line.strip_prefix("// module sha256 ") {
            module = Some(text);
        }
        let Some((hash, file)) = line.strip_prefix("// made-from sha256 ").and_then(|rest| rest.split_once(' ')) else {
            continue;
        };
        let itself = path.file_name().is_some_and(|name| name == file);
        let made_from = match itself {
            true => source.as_bytes().to_vec(),
            false => {
                std::fs::read(path.with_file_name(file)).map_err(|error| format!("it was made from {file}: {error}"))?
            }
        };
        if sha256(&made_from) != hash {
            return Err(format!("{file} is not what it was made from"));
        }
        own |= itself;
    }
    let body: String = ttir.lines().filter(|line| !line.starts_with("//")).flat_map(|line| [line, "\n"]).collect();
    match module {
        _ if !own => Err("it does not say that it was made from this file".into()),
        Some(hash) if hash == sha256(body.as_bytes()) => Ok(()),
        _ => Err("its text is not what was made".into()),
    }
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn problem(name: &str, source: &str, ttir: &str) -> Result<Problem, ProblemError> {
    let bad = |why: String| ProblemError::Contract { kernel: name.to_string(), why };
    let written = contract::read(source).map_err(bad)?;
    let (_, text) = contract::block(source).map_err(bad)?;
    let function = contract::function(source).map_err(bad)?;
    if function != FUNCTION {
        return Err(bad(format!(
            "the contract stands above `{function}`, and the TTIR is made from `{FUNCTION}`: put it above `def {FUNCTION}`"
        )));
    }
    // `filetests/make.py` makes every case with BF16 activations.
    let problem = Problem::of_written(name, ttir, written, Statement { text, act: Dtype::Bf16 })?;
    match problem.kernel.name == FUNCTION {
        true => Ok(problem),
        false => Err(bad(format!("the TTIR is of `{}`, not of `{FUNCTION}`", problem.kernel.name))),
    }
}
