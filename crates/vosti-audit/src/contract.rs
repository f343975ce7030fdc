//! The contract of a kernel in a `.toml` beside its file: one table for each function.
//!
//! Its words are those of the contracts in `kernels/*.py` (`docs/kernel-verification.md`), and four more, for what a launcher of
//! others does: `rows` is an integer (`rows buffer` is the buffer of one number), a parameter `= N * 2` is that product, an axis
//! of rows has exactly so many programs or takes `rows in turn`, and `launches` lists choices of the launcher. What is proved is
//! the verifier's contract that [`Claim::statement`] writes. Read next: [`crate::normal`].

use crate::error::AuditError;
use crate::normal::{Factor, Launch, Programs, ROWS, Rows};
use serde::Deserialize;
use std::collections::BTreeMap;
use vosti_contract::{Dtype, Number, NumberKind, Param};

/// The kind of promise. The verifier's other shapes are of Vosti's own attention and caches.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Shape {
    Rowwise,
}

/// What one table of the file says.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Written {
    shape: Shape,
    pub grid: Vec<String>,
    #[serde(default, rename = "where")]
    pub conditions: Vec<String>,
    pub params: BTreeMap<String, String>,
    #[serde(default)]
    constants: BTreeMap<String, toml::Value>,
    #[serde(default)]
    pub shapes: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    launches: Vec<String>,
    /// The function of the file in whose place the launcher may take this one.
    pub instead_of: Option<String>,
}

/// The contract of one function.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub function: String,
    pub written: Written,
}

/// The constants that one launch gives.
pub(crate) type Constants = BTreeMap<String, toml::Value>;

/// Reads a file of contracts. An error names its line.
pub(crate) fn read(path: &str, text: &str) -> Result<Vec<Claim>, AuditError> {
    let tables: BTreeMap<String, Written> = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| text[..span.start.min(text.len())].matches('\n').count());
        AuditError::Contract { path: path.to_string(), line: at + 1, why: error.message().to_string() }
    })?;
    if tables.is_empty() {
        let why = "it has no table: write `[FUNCTION]` and below it the contract".to_string();
        return Err(AuditError::Contract { path: path.to_string(), line: 1, why });
    }
    Ok(tables.into_iter().map(|(function, written)| Claim { function, written }).collect())
}

/// Reads `BLOCK=1024,num_warps=4`.
pub(crate) fn launch(text: &str) -> Result<Constants, String> {
    let pair = |part: &str| {
        let (name, value) = part.split_once('=').ok_or(format!("`{part}` is not NAME=VALUE"))?;
        let value = value.trim();
        let value = match (value.parse::<i64>(), value.parse::<f64>(), value) {
            (Ok(v), ..) => toml::Value::Integer(v),
            (_, Ok(v), _) => toml::Value::Float(v),
            (.., "true" | "True") => toml::Value::Boolean(true),
            (.., "false" | "False") => toml::Value::Boolean(false),
            _ => toml::Value::String(value.to_string()),
        };
        Ok((name.trim().to_string(), value))
    };
    text.split(',').filter(|part| !part.trim().is_empty()).map(pair).collect()
}

impl Claim {
    /// The constants of each launch, with the launch as it is written; those of `given`, or of the file if that is empty.
    pub fn launches(&self, given: &[String]) -> Result<Vec<(String, Constants)>, String> {
        let listed = if given.is_empty() { &self.written.launches } else { given };
        let all = if listed.is_empty() { &vec![String::new()] } else { listed };
        let with = |text: &String| {
            let mut constants = self.written.constants.clone();
            constants.extend(launch(text)?);
            Ok((text.clone(), constants))
        };
        all.iter().map(with).collect()
    }

    /// Triton's types of the parameters that have a role.
    pub fn types(&self) -> Result<BTreeMap<String, String>, String> {
        let mut types = BTreeMap::new();
        for (name, role) in &self.written.params {
            types.insert(name.clone(), self.ty(name, role)?);
        }
        Ok(types)
    }

    fn ty(&self, name: &str, role: &str) -> Result<String, String> {
        Ok(match role.trim() {
            "rows" => "i32".into(),
            text if text.starts_with('=') => "i32".into(),
            text => match Number::parse(name, text) {
                Some(number) => number?.triton().into(),
                None => {
                    let param = Param::parse(name, plain(text));
                    let elem = param.ok_or(format!("`{text}` is not a role for `{name}`"))?.elem(Dtype::Bf16);
                    format!("*{}", triton(elem))
                }
            },
        })
    }

    /// The integer parameter with the number of rows.
    pub fn rows(&self) -> Option<String> {
        self.written.params.iter().find(|(_, role)| role.trim() == "rows").map(|(name, _)| name.clone())
    }

    /// Integer parameters that are products of constants which 16 divides.
    pub fn divisible(&self, constants: &Constants) -> Vec<String> {
        let lookup = |name: &str| constants.get(name).and_then(toml::Value::as_integer);
        let divided = |role: &str| {
            let text = role.trim().strip_prefix('=')?;
            Some(vosti_contract::expr::eval(text.trim(), &lookup).ok()? % 16 == 0)
        };
        let all = self.written.params.iter().filter(|(_, role)| divided(role) == Some(true));
        all.map(|(name, _)| name.clone()).collect()
    }

    /// What a launch gives, as far as the text must be changed for it.
    pub fn launch(&self, constants: &Constants) -> Result<Launch, String> {
        let mut launch = Launch::default();
        for (name, role) in &self.written.params {
            let rows = match role.trim() {
                "rows" => Rows::Integer(name.clone()),
                "rows buffer" => Rows::Buffer(name.clone()),
                role => {
                    if let Some(text) = role.strip_prefix('=') {
                        launch.equal.push((name.clone(), factors(text, constants)?));
                    }
                    continue;
                }
            };
            if launch.rows.replace(rows).is_some() {
                return Err("two parameters have the role `rows`".into());
            }
        }
        for (axis, text) in self.written.grid.iter().enumerate() {
            launch.axes.extend(programs(text, constants)?.map(|programs| (axis, programs)));
        }
        Ok(launch)
    }

    /// The names that the grid, the extents, the conditions and the premises of the shape may use.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        let Written { grid, conditions, params, shapes, .. } = &self.written;
        let vocabulary = params.values().any(|role| role == "tokens").then_some("V");
        let texts = grid.iter().chain(conditions).chain(shapes.values().flatten());
        texts.flat_map(|text| words(text)).chain(vocabulary)
    }

    /// A dimension's range where a condition `NAME <= CONSTANT` bounds it: then products of it are known to fit i32.
    fn narrowed(&self, name: &str, role: &str, constants: &Constants) -> Option<String> {
        let NumberKind::Dimension { lo, hi } = Number::parse(name, role)?.ok()?.kind else { return None };
        let most = self.written.conditions.iter().filter_map(|text| {
            let (left, right) = text.split_once("<=")?;
            let lookup = |name: &str| constants.get(name).and_then(toml::Value::as_integer);
            (left.trim() == name).then(|| vosti_contract::expr::eval(right.trim(), &lookup).ok())?
        });
        let hi = most.min().filter(|most| (lo + 1..hi).contains(most))?;
        Some(format!("dim {lo}..{hi}"))
    }

    /// The contract in the verifier's words.
    pub fn statement(&self, constants: &Constants, launch: &Launch) -> String {
        let Written { shape: Shape::Rowwise, grid, conditions, params, shapes, .. } = &self.written;
        let mut table = toml::Table::new();
        let list = |texts: &[String]| texts.iter().map(|text| toml::Value::from(text.as_str())).collect::<Vec<_>>();
        let grid: Vec<String> = grid.iter().map(|text| text.trim().trim_end_matches("in turn").trim().into()).collect();
        let mut roles = toml::Table::new();
        for (name, role) in params.iter().filter(|(_, role)| !role.trim().starts_with('=')) {
            let narrow = self.narrowed(name, role, constants);
            roles.insert(name.clone(), narrow.unwrap_or_else(|| plain(role.trim()).into()).into());
        }
        if launch.rows.is_none() {
            roles.insert(ROWS.into(), "rows".into());
        }
        let words: Vec<&str> = self.words().collect();
        let (mut values, mut text) = (toml::Table::new(), vec![]);
        for (name, value) in constants.iter().filter(|(_, value)| value.is_integer() || value.is_float()) {
            values.insert(name.clone(), value.clone());
            if !words.contains(&name.as_str()) {
                text.push(name.clone());
            }
        }
        table.insert("shape".into(), "rowwise".into());
        table.insert("grid".into(), list(&grid).into());
        table.insert("where".into(), list(conditions).into());
        table.insert("text".into(), list(&text).into());
        table.insert("params".into(), roles.into());
        table.insert("constants".into(), values.into());
        let shapes = shapes.iter().map(|(name, extents)| (name.clone(), list(extents).into()));
        table.insert("shapes".into(), shapes.collect::<toml::Table>().into());
        table.to_string()
    }
}

/// The verifier's word for a role.
pub(crate) fn plain(role: &str) -> &str {
    if role == "rows buffer" { "rows" } else { role }
}

fn triton(elem: Dtype) -> &'static str {
    match elem {
        Dtype::Bf16 => "bf16",
        Dtype::F32 => "fp32",
        Dtype::I8 => "i8",
        Dtype::I32 => "i32",
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
}

/// The factors of `HEADS * 64`: numbers, integer constants, and parameters.
fn factors(text: &str, constants: &Constants) -> Result<Vec<Factor>, String> {
    let factor = |word: &str| {
        let word = word.trim();
        let plain = !word.is_empty() && words(word).count() == 1;
        match (word.parse(), constants.get(word)) {
            (Ok(n), _) => Ok(Factor::Number(n)),
            (_, Some(toml::Value::Integer(n))) => Ok(Factor::Number(*n)),
            (_, None) if plain => Ok(Factor::Parameter(word.to_string())),
            _ => Err(format!("`={text}` is no product of integers")),
        }
    };
    let factors: Vec<Factor> = text.split('*').map(factor).collect::<Result<_, _>>()?;
    let fits = |factor: &Factor| !matches!(factor, Factor::Number(n) if i32::try_from(*n).is_err());
    if factors.iter().all(fits) { Ok(factors) } else { Err(format!("`={text}` has a number that is no i32")) }
}

/// The programs on an axis, if it is one of rows: `rows`, `cdiv(rows, BM)`, either `* HEADS`, or `rows in turn`.
fn programs(text: &str, constants: &Constants) -> Result<Option<Programs>, String> {
    let text = text.trim();
    if !words(text).any(|word| word == "rows") {
        return Ok(None);
    }
    if text == "rows in turn" {
        return Ok(Some(Programs::InTurn));
    }
    let value = |text: &str| {
        let lookup = |name: &str| constants.get(name).and_then(toml::Value::as_integer);
        vosti_contract::expr::eval(text, &lookup).ok().filter(|n| (1..=1 << 20).contains(n))
    };
    let read = || {
        let (over, rest) = match text.strip_prefix("cdiv(rows") {
            Some(inner) => {
                let (over, rest) = inner.trim_start().strip_prefix(',')?.split_once(')')?;
                (value(over)?, rest)
            }
            None => (1, text.strip_prefix("rows")?),
        };
        let times = match rest.trim() {
            "" => 1,
            rest => value(rest.strip_prefix('*')?)?,
        };
        Some(Programs::Exactly { over, times })
    };
    let known = "`rows`, `cdiv(rows, N)`, either times a constant, or `rows in turn`";
    read().map(Some).ok_or(format!("`{text}` is no axis of rows: write {known}"))
}
