//! Kernels outside the inventory: a Python file that carries its own contract, constants and extents,
//! with its TTIR beside it. The file tests are such cases.

use crate::problem::{Problem, ProblemError};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use vosti_kernels::{Const, Contract, Param, Shape, contract};

/// One case: a kernel and what its comments say about it.
pub struct Case {
    pub name: String,
    pub source: String,
    pub problem: Result<Problem, ProblemError>,
    notes: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    shape: Shape,
    grid: Vec<String>,
    params: BTreeMap<String, String>,
    #[serde(default)]
    constants: BTreeMap<String, toml::Value>,
    #[serde(default)]
    shapes: BTreeMap<String, Vec<String>>,
    /// What the TTIR was made with: not the contract's business.
    #[serde(default, rename = "lowered")]
    _lowered: BTreeMap<String, toml::Value>,
}

impl Case {
    /// Reads `path` (a `.py`) and the `.ttir` beside it.
    pub fn read(path: &Path) -> std::io::Result<Case> {
        let source = std::fs::read_to_string(path)?;
        let ttir = std::fs::read_to_string(path.with_extension("ttir"))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let problem = problem(&name, &source, &ttir);
        let mut notes = BTreeMap::new();
        for line in source.lines().filter_map(|l| l.strip_prefix("#: ")) {
            if let Some((key, value)) = line.split_once(": ") {
                notes.insert(key.to_string(), value.to_string());
            }
        }
        Ok(Case { name, source, problem, notes })
    }

    /// A line `#: key: value` of the source.
    pub fn note(&self, key: &str) -> Option<&str> {
        self.notes.get(key).map(String::as_str)
    }
}

fn problem(name: &str, source: &str, ttir: &str) -> Result<Problem, ProblemError> {
    let bad = |why: String| ProblemError::Contract { kernel: name.to_string(), why };
    let written: Written = contract::read(source).map_err(bad)?;
    let mut constants = BTreeMap::new();
    for (key, value) in written.constants {
        let value = match value {
            toml::Value::Integer(v) => Const::Int(v),
            toml::Value::Float(v) => Const::Float(v),
            other => return Err(bad(format!("the constant {key} is no number: {other}"))),
        };
        constants.insert(key, value);
    }
    let mut params = vec![];
    for (param, text) in &written.params {
        params.push(Param::parse(param, text).ok_or_else(|| bad(format!("`{text}` is not a role for `{param}`")))?);
    }
    let contract = Contract { shape: written.shape, grid: written.grid, params };
    Problem::new(name, ttir, &contract, &constants, &written.shapes)
}
