//! Kernels outside the inventory: a Python file that carries its own contract, constants and extents,
//! with its TTIR beside it. The file tests are such cases.

use crate::problem::{Problem, ProblemError};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use vosti_kernels::{Const, Contract, Elem, Param, Role, Shape};

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
    let block: Vec<&str> = source
        .lines()
        .skip_while(|l| l.trim() != "# /// contract")
        .skip(1)
        .take_while(|l| l.trim() != "# ///")
        .map(|l| l.trim_start_matches('#'))
        .collect();
    if block.is_empty() {
        return Err(bad("there is no `# /// contract` block".into()));
    }
    let written: Written = toml::from_str(&block.join("\n")).map_err(|e| bad(e.message().to_string()))?;
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
        params.push(role(param, text).ok_or_else(|| bad(format!("`{text}` is not a role for `{param}`")))?);
    }
    let contract = Contract { shape: written.shape, grid: written.grid, params };
    Problem::new(name, ttir, &contract, &constants, &written.shapes)
}

fn role(name: &str, text: &str) -> Option<Param> {
    let (text, elem) = match text.strip_suffix(" f32") {
        Some(rest) => (rest, Some(Elem::F32)),
        None => (text, None),
    };
    let (word, index) = match text.split_once(' ') {
        Some((word, index)) => (word, Some(index.trim().parse::<usize>().ok()?)),
        None => (text, None),
    };
    let role = match (word, index) {
        ("in", Some(i)) => Role::In(i),
        ("out", Some(i)) => Role::Out(i),
        ("weight", Some(i)) => Role::Weight(i),
        ("rows", None) => Role::Rows,
        ("tokens", None) => Role::Tokens,
        ("positions", None) => Role::Positions,
        ("row_index", None) => Role::RowIndex,
        ("slots", None) => Role::Slots,
        ("page_table", None) => Role::PageTable,
        ("tile_table", None) => Role::TileTable,
        ("tile_row", None) => Role::TileRow,
        ("tile_rows", None) => Role::TileRows,
        ("tile_pos", None) => Role::TilePos,
        ("cache_k", None) => Role::CacheK,
        ("cache_v", None) => Role::CacheV,
        _ => return None,
    };
    let data = matches!(role, Role::In(_) | Role::Out(_) | Role::Weight(_) | Role::CacheK | Role::CacheV);
    Some(Param {
        name: name.to_string(),
        role,
        elem: elem.unwrap_or(if data { Elem::Act } else { Elem::I32 }),
        only_if: None,
    })
}
