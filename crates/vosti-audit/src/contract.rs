//! The contract of a kernel in a `.toml` beside its file: one table for each function.
//!
//! Its words are those of the contracts in `kernels/*.py` (`docs/kernel-verification.md`), and four more, for what a launcher of
//! others does: `rows` is an integer (`rows buffer` is the buffer of one number), a parameter `= N * 2` is that product, an axis
//! of rows has exactly so many programs or takes `rows in turn`, and `launches` lists choices of the launcher. What is proved is
//! the verifier's contract that [`Claim::statement`] writes. Read next: [`crate::normal`].

use crate::error::AuditError;
use crate::normal::{Count, Factor, Launch, Of, Programs, ROWS, Rows, Tiles, Turn};
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
    /// The line of its table's head.
    line: usize,
    pub written: Written,
}

/// A count of tiles, and whether it is of rows.
struct Counted {
    rows: bool,
    count: Count,
}

/// The most rows that a proof is of.
const ROWS_MOST: i64 = 1 << 20;

/// The constants that one launch gives.
pub(crate) type Constants = BTreeMap<String, toml::Value>;

/// Reads a file of contracts. An error names its line.
pub(crate) fn read(path: &str, text: &str) -> Result<Vec<Claim>, AuditError> {
    let line = |at: usize| text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
    let tables: BTreeMap<toml::Spanned<String>, Written> = toml::from_str(text).map_err(|error| {
        let line = line(error.span().map_or(0, |span| span.start));
        AuditError::Contract { path: path.to_string(), line, why: error.message().replace('\n', " ") }
    })?;
    if tables.is_empty() {
        let why = "it has no table: write `[FUNCTION]` and below it the contract".to_string();
        return Err(AuditError::Contract { path: path.to_string(), line: 1, why });
    }
    let claim = |(name, written): (toml::Spanned<String>, Written)| {
        let line = line(name.span().start);
        Claim { function: name.into_inner(), line, written }
    };
    Ok(tables.into_iter().map(claim).collect())
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
    /// The contract does not fit its kernel, or itself; `path` is of the contract's file.
    pub fn wrong(&self, path: &str, why: String) -> AuditError {
        AuditError::Claim { path: path.to_string(), line: self.line, function: self.function.clone(), why }
    }

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

    /// A buffer that each batch fills in another way.
    pub fn of_batch(&self) -> Option<&str> {
        self.written.params.iter().find(|(_, role)| of_batch(role)).map(|(name, _)| name.as_str())
    }

    /// Roles whose buffers hold FP16 or FP8, and which.
    pub fn narrow(&self) -> impl Iterator<Item = (String, String)> {
        let all = self.written.params.iter().filter_map(|(name, role)| Some((role, Elem::of(name, role)?)));
        let narrow = all.filter(|(_, elem)| !matches!(elem, Elem::Own(_)));
        narrow.map(|(role, elem)| (plain(role), elem.triton().to_string()))
    }

    fn ty(&self, name: &str, role: &str) -> Result<String, String> {
        Ok(match role.trim() {
            "rows" => "i32".into(),
            text if text.starts_with('=') => "i32".into(),
            text => match Number::parse(name, text) {
                Some(number) => number?.triton().into(),
                None => {
                    format!("*{}", Elem::of(name, text).ok_or(format!("`{text}` is not a role for `{name}`"))?.triton())
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
        let divided = |role: &str| Some(known(role.trim().strip_prefix('=')?, constants)? % 16 == 0);
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
            match self.tiles(text, constants)? {
                None => launch.axes.extend(programs(text, constants)?.map(|programs| (axis, programs))),
                Some((counts, turn)) => {
                    let added = self.written.grid.len();
                    for (count, axis) in counts.iter().zip([axis, added]) {
                        if count.rows {
                            launch.axes.push((axis, Programs::Exactly { over: count.count.by, times: 1 }));
                        }
                    }
                    let [outer, inner] = counts.map(|counted| counted.count);
                    if launch.tiles.replace(Tiles { axis, added, outer, inner, turn }).is_some() {
                        return Err("two axes of the grid number tiles".into());
                    }
                }
            }
        }
        Ok(launch)
    }

    /// An axis that numbers the tiles of two counts: `cdiv(rows, BM) * cdiv(N, BN)`, or these `in turn`.
    fn tiles(&self, text: &str, constants: &Constants) -> Result<Option<([Counted; 2], Turn)>, String> {
        let (all, turn) = in_turn(text);
        let Some((outer, inner)) = all.split_once(" * ") else { return Ok(None) };
        // Those that are constants need no axis of their own.
        if turn.is_none() && (known(outer, constants).is_some() || known(inner, constants).is_some()) {
            return Ok(None);
        }
        let turn = match turn {
            None => Turn::No,
            Some("") => Turn::ByPrograms,
            Some(by) => Turn::By(number(by, constants).ok_or(format!("`{by}` is no number of programs"))?),
        };
        let counted = |text: &str| {
            self.counted(text.trim(), constants).ok_or(format!(
                "`{text}` is no count of tiles: write `rows`, a `dim` of at least 1, a number, or `cdiv` of one of them and a constant"
            ))
        };
        Ok(Some(([counted(outer)?, counted(inner)?], turn)))
    }

    fn counted(&self, text: &str, constants: &Constants) -> Option<Counted> {
        let (of, by) = match text.strip_prefix("cdiv(") {
            Some(rest) => {
                let (of, by) = rest.strip_suffix(')')?.split_once(',')?;
                (of.trim(), number(by, constants)?)
            }
            None => (text, 1),
        };
        let rows = of == "rows";
        let (of, most) = match (of, number(of, constants)) {
            ("rows", _) => (self.rows().map_or(Of::Unknown, Of::Parameter), ROWS_MOST),
            (_, Some(n)) => (Of::Number(n), n),
            _ => match Number::parse(of, self.written.params.get(of)?)?.ok()?.kind {
                NumberKind::Dimension { lo, hi } if lo >= 1 => (Of::Parameter(of.to_string()), hi),
                _ => return None,
            },
        };
        Some(Counted { rows, count: Count { of, by, most } })
    }

    /// The names that the grid, the extents, the conditions and the premises of the shape may use.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        let Written { grid, conditions, params, shapes, .. } = &self.written;
        let texts = grid.iter().chain(conditions).chain(shapes.values().flatten());
        texts.flat_map(|text| words(text)).chain(vocabulary(params))
    }

    /// A dimension's range where a condition `NAME <= CONSTANT` bounds it: then products of it are known to fit i32.
    fn narrowed(&self, name: &str, role: &str, constants: &Constants) -> Option<String> {
        let NumberKind::Dimension { lo, hi } = Number::parse(name, role)?.ok()?.kind else { return None };
        let most = self.written.conditions.iter().filter_map(|text| {
            let (left, right) = text.split_once("<=")?;
            (left.trim() == name).then(|| known(right, constants))?
        });
        let hi = most.min().filter(|most| (lo + 1..hi).contains(most))?;
        Some(format!("dim {lo}..{hi}"))
    }

    /// The contract in the verifier's words.
    pub fn statement(&self, constants: &Constants, launch: &Launch) -> String {
        let Written { shape: Shape::Rowwise, grid, conditions, params, shapes, .. } = &self.written;
        let mut table = toml::Table::new();
        let list = |texts: &[String]| texts.iter().map(|text| toml::Value::from(text.as_str())).collect::<Vec<_>>();
        let mut grid: Vec<String> = grid.iter().map(|text| in_turn(text).0.to_string()).collect();
        if let Some(tiles) = &launch.tiles
            && let Some((outer, inner)) = grid[tiles.axis].clone().split_once(" * ")
        {
            grid[tiles.axis] = outer.trim().into();
            grid.push(inner.trim().into());
        }
        let mut roles = toml::Table::new();
        for (name, role) in params.iter().filter(|(_, role)| !role.trim().starts_with('=')) {
            let narrow = self.narrowed(name, role, constants);
            roles.insert(name.clone(), narrow.unwrap_or_else(|| plain(role)).into());
        }
        if launch.rows.is_none() {
            roles.insert(ROWS.into(), "rows".into());
        }
        let texts = grid.iter().chain(conditions).chain(shapes.values().flatten());
        let words: Vec<&str> = texts.flat_map(|text| words(text)).chain(vocabulary(params)).collect();
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
        let shapes = shapes.iter().map(|(name, extents)| {
            let rows = params.get(name).is_some_and(|role| of_batch(role)).then(|| toml::Value::from("rows"));
            (name.clone(), rows.into_iter().chain(list(extents)).collect::<Vec<_>>().into())
        });
        table.insert("shapes".into(), shapes.collect::<toml::Table>().into());
        table.to_string()
    }
}

/// An axis without `in turn`, and the number of programs that stands behind it; empty for any number.
pub(crate) fn in_turn(text: &str) -> (&str, Option<&str>) {
    match text.split_once(" in turn") {
        None => (text.trim(), None),
        Some((all, by)) => (all.trim(), Some(by.trim().strip_prefix("by ").unwrap_or(by).trim())),
    }
}

/// The verifier's word for a role. FP16 and FP8 stand as BF16 (`normal/floats.rs`), and a buffer of the batch as an input with one entry for
/// each row, of which the kernel has the first: of that entry nothing is promised.
pub(crate) fn plain(role: &str) -> String {
    let role = Elem::NARROW.iter().find_map(|(word, _)| role.trim().strip_suffix(word)).unwrap_or(role).trim();
    match (role, role.strip_prefix(BATCH)) {
        ("rows buffer", _) => "rows".into(),
        (_, Some(number)) => format!("in {FIRST_OF_BATCH}{number}"),
        _ => role.into(),
    }
}

/// The first word of a buffer that each batch fills in another way.
const BATCH: &str = "batch ";
/// The digits before its number, which an input has no use for.
const FIRST_OF_BATCH: &str = "900";

/// Whether a role is of a buffer that each batch fills in another way.
pub(crate) fn of_batch(role: &str) -> bool {
    role.trim().starts_with(BATCH)
}

/// The type of a buffer's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Elem {
    Own(Dtype),
    F16,
    F8E4M3,
    F8E5M2,
}

impl Elem {
    /// Those that only an audit's contract has, with the word behind the role.
    const NARROW: [(&str, Elem); 3] = [(" f16", Elem::F16), (" f8e4m3", Elem::F8E4M3), (" f8e5m2", Elem::F8E5M2)];

    /// None if the text is no role.
    pub fn of(name: &str, role: &str) -> Option<Elem> {
        let own = Elem::Own(Param::parse(name, &plain(role))?.elem(Dtype::Bf16));
        let narrow = Elem::NARROW.into_iter().find(|(word, _)| role.trim().ends_with(word));
        Some(narrow.map_or(own, |(_, narrow)| narrow))
    }

    fn triton(self) -> &'static str {
        match self {
            Elem::Own(Dtype::Bf16) => "bf16",
            Elem::Own(Dtype::F32) => "fp32",
            Elem::Own(Dtype::I8) => "i8",
            Elem::Own(Dtype::I32) => "i32",
            Elem::F16 => "fp16",
            Elem::F8E4M3 => "fp8e4nv",
            Elem::F8E5M2 => "fp8e5",
        }
    }

    /// Of one element.
    pub fn bytes(self) -> usize {
        match self {
            Elem::Own(Dtype::F32 | Dtype::I32) => 4,
            Elem::Own(Dtype::Bf16) | Elem::F16 => 2,
            Elem::Own(Dtype::I8) | Elem::F8E4M3 | Elem::F8E5M2 => 1,
        }
    }

    /// Bits of the exponent and of the fraction, and the exponent of 1, of a float.
    fn format(self) -> Option<(u32, u32)> {
        match self {
            Elem::F16 | Elem::Own(Dtype::Bf16 | Dtype::F32 | Dtype::I8 | Dtype::I32) => {
                (self == Elem::F16).then_some((5, 10))
            }
            Elem::F8E4M3 => Some((4, 3)),
            Elem::F8E5M2 => Some((5, 2)),
        }
    }

    /// The bits of a number near `x`, which is far from the largest and the smallest.
    pub fn bits(self, x: f32) -> u32 {
        match (self, self.format()) {
            (_, Some((exponent, fraction))) => {
                let bits = x.to_bits();
                let power = (bits >> 23 & 0xff) as i32 - 127 + (1 << (exponent - 1)) - 1;
                let sign = bits >> 31 << (exponent + fraction);
                if power < 1 { sign } else { sign | (power as u32) << fraction | (bits & 0x7f_ffff) >> (23 - fraction) }
            }
            (Elem::Own(Dtype::Bf16), _) => x.to_bits() >> 16,
            (Elem::Own(Dtype::I8), _) => u32::from((x * 60.0) as i8 as u8),
            (Elem::Own(Dtype::I32), _) => (x * 4.0) as i32 as u32,
            _ => x.to_bits(),
        }
    }

    /// The number that bits are.
    pub fn value(self, bits: u32) -> f32 {
        match (self, self.format()) {
            (_, Some((exponent, fraction))) => {
                let sign = if bits >> (exponent + fraction) & 1 == 1 { -1.0 } else { 1.0 };
                let (power, rest) = (bits >> fraction & ((1 << exponent) - 1), bits & ((1 << fraction) - 1));
                let bias = (1 << (exponent - 1)) - 1;
                let scale = f32::powi(2.0, power.max(1) as i32 - bias - fraction as i32);
                let whole = if power == 0 { rest } else { rest | 1 << fraction };
                let last = (1 << exponent) - 1;
                match self {
                    Elem::F8E4M3 if power == last && rest == (1 << fraction) - 1 => f32::NAN,
                    Elem::F16 | Elem::F8E5M2 if power == last => {
                        if rest == 0 {
                            sign * f32::INFINITY
                        } else {
                            f32::NAN
                        }
                    }
                    _ => sign * whole as f32 * scale,
                }
            }
            (Elem::Own(Dtype::Bf16), _) => f32::from_bits(bits << 16),
            (Elem::Own(Dtype::F32), _) => f32::from_bits(bits),
            _ => bits as f32,
        }
    }
}

/// The constant that a premise about tokens reads.
fn vocabulary(params: &BTreeMap<String, String>) -> Option<&'static str> {
    params.values().any(|role| role == "tokens").then_some("V")
}

/// The value of an expression of constants.
fn known(text: &str, constants: &Constants) -> Option<i64> {
    let lookup = |name: &str| constants.get(name).and_then(toml::Value::as_integer);
    vosti_contract::expr::eval(text.trim(), &lookup).ok()
}

/// Of one that is a number of rows, programs or tiles.
fn number(text: &str, constants: &Constants) -> Option<i64> {
    known(text, constants).filter(|n| (1..=1 << 20).contains(n))
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
    let read = || {
        let (over, rest) = match text.strip_prefix("cdiv(rows") {
            Some(inner) => {
                let (over, rest) = inner.trim_start().strip_prefix(',')?.split_once(')')?;
                (number(over, constants)?, rest)
            }
            None => (1, text.strip_prefix("rows")?),
        };
        let times = match rest.trim() {
            "" => 1,
            rest => number(rest.strip_prefix('*')?, constants)?,
        };
        Some(Programs::Exactly { over, times })
    };
    let known = "`rows`, `cdiv(rows, N)`, either times a constant, or `rows in turn`";
    read().map(Some).ok_or(format!("`{text}` is no axis of rows: write {known}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_each_type_are_near_their_bits() {
        for elem in [Elem::F16, Elem::F8E4M3, Elem::F8E5M2, Elem::Own(Dtype::Bf16)] {
            for x in [1.0, -2.5, 0.375, 96.0] {
                let near = elem.value(elem.bits(x));
                assert!((near - x).abs() <= x.abs() / 4.0, "{elem:?} {x} {near}");
            }
            assert_eq!(elem.value(elem.bits(-1.0)), -1.0);
        }
        assert!(Elem::F8E4M3.value(0x7f).is_nan() && Elem::F16.value(0x7e00).is_nan());
        assert_eq!(
            [Elem::F16.value(0x3c00), Elem::F8E4M3.value(0x7e), Elem::F16.value(1)],
            [1.0, 448.0, f32::powi(2.0, -24)]
        );
    }

    #[test]
    fn a_type_stands_behind_its_role() {
        assert_eq!((Elem::of("x", "in 0 f16"), plain("in 0 f16")), (Some(Elem::F16), "in 0".into()));
        assert_eq!((Elem::of("x", "out 1 f8e4m3"), plain("out 1 f8e4m3")), (Some(Elem::F8E4M3), "out 1".into()));
        assert_eq!(
            (Elem::of("x", "batch 0 f32"), plain("batch 0 f32")),
            (Some(Elem::Own(Dtype::F32)), "in 9000 f32".into())
        );
        assert_eq!(Elem::of("x", "in 0 f32"), Some(Elem::Own(Dtype::F32)));
        assert_eq!(Elem::of("x", "in f16"), None);
    }
}
