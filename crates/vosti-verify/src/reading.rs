//! The replay's own reading of a contract: it makes the inputs of two runs from the annotation's text.
//!
//! A proof and the runs that test it must not share a reader, because one misunderstanding would hide in both. So this
//! module never calls the verifier's problem, premises or world, nor the kernels' reader of contracts or expressions, and
//! none of them may call this module. Text that it does not understand is an error. Read next: [`crate::replay`].

use crate::problem::Statement;
use std::collections::BTreeMap;
use vosti_contract::Dtype;
use vosti_tile::{Kernel, Scalar};

/// What a launcher binds to a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    In(usize),
    Out(usize),
    Weight(usize),
    Scratch(usize),
    RowCount,
    Token,
    Position,
    Gathered,
    Slot,
    Page,
    TileTable,
    TileRow,
    TileRows,
    TilePos,
    Keys,
    Values,
    Entry(usize),
    State(usize),
}

/// The kind of launch that a contract's shape names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Rows,
    Store,
    Attend,
    Part,
    Combine,
    /// One launch of all rows that leaves partial results too.
    Folded,
    RecurStore,
    RecurRead,
}

/// An extent of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    Number(usize),
    Rows,
    Packed,
    Context,
    Splits,
    Pages,
}

#[derive(Clone, Debug)]
pub(crate) struct Parameter {
    pub name: String,
    pub what: What,
    pub holds: Scalar,
    /// As declared; empty for a role that has extents of its own.
    pub extents: Vec<Extent>,
}

impl Parameter {
    /// Elements of one entry of the first `outer` extents.
    pub fn inner(&self, outer: usize) -> usize {
        self.extents.iter().skip(outer).map(|e| if let Extent::Number(n) = e { *n } else { 1 }).product()
    }
}

/// A contract, read.
pub(crate) struct Reading {
    pub kind: Kind,
    /// In the order in which the kernel takes them.
    pub parameters: Vec<Parameter>,
    axes: Vec<String>,
    pub integers: BTreeMap<String, i64>,
}

/// What a kernel takes besides buffers, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Free {
    /// A natural number between these.
    Natural {
        name: String,
        least: i64,
        most: i64,
    },
    Float {
        name: String,
    },
}

impl Free {
    /// The parameter's name.
    pub fn name(&self) -> &str {
        match self {
            Free::Natural { name, .. } | Free::Float { name } => name,
        }
    }
}

/// The amount of work of one launch.
#[derive(Clone, Copy, Default)]
pub(crate) struct Work {
    pub rows: usize,
    pub tiles: usize,
    pub length: usize,
}

/// The largest constant or extent that a run may have.
const LARGEST: i64 = 1 << 40;

/// The parameters whose values a run chooses: dimensions with their ranges, and floats.
pub(crate) fn free(statement: &Statement, kernel: &Kernel) -> Result<Vec<Free>, String> {
    let table: toml::Table = statement.text.parse().map_err(|error: toml::de::Error| error.message().to_string())?;
    let roles = table.get("params").and_then(toml::Value::as_table).ok_or("no params")?;
    let mut list = vec![];
    for scalar in &kernel.scalars {
        let name = scalar.name.clone();
        let role = roles.get(&name).and_then(toml::Value::as_str).ok_or(format!("no role for {name}"))?;
        let words: Vec<&str> = role.split_whitespace().collect();
        list.push(match words[..] {
            ["number"] => Free::Float { name },
            ["dim", ends] => {
                let ends: Vec<i64> = ends.split("..").map_while(|end| end.parse().ok()).collect();
                let [least, most] = ends[..] else { return Err(format!("the range of {name}")) };
                if least < 0 || most <= least || most > i64::from(i32::MAX) {
                    return Err(format!("the range of {name}"));
                }
                Free::Natural { name, least, most }
            }
            _ => return Err(format!("the role {role} of {name}")),
        });
    }
    Ok(list)
}

/// Changes drawn values so that the contract's conditions hold. A condition says that a sum is at most a multiple of a
/// dimension, or at most a constant: the dimension on the right is raised, or the one dimension on the left is lowered. An
/// error if a condition does not hold then.
pub(crate) fn meet(statement: &Statement, free: &[Free], drawn: &mut BTreeMap<String, i64>) -> Result<(), String> {
    let table: toml::Table = statement.text.parse().map_err(|error: toml::de::Error| error.message().to_string())?;
    let constants = table.get("constants").and_then(toml::Value::as_table);
    let fixed = |name: &str| constants.and_then(|list| list.get(name)).and_then(toml::Value::as_integer);
    let range = |name: &str| {
        free.iter().find_map(|number| match number {
            Free::Natural { name: own, least, most } if own == name => Some((*least, *most)),
            _ => None,
        })
    };
    let value = |drawn: &BTreeMap<String, i64>, text: &str| {
        evaluate(text, &|name| drawn.get(name).copied().or_else(|| fixed(name)))
    };
    let mut conditions = vec![];
    for text in texts(table.get("where"))? {
        let (left, right) = text.split_once("<=").ok_or(format!("the condition {text}"))?;
        conditions.push((left.trim().to_string(), right.trim().to_string()));
    }
    // What one condition raises may be on the left of another one.
    for _ in 0..=conditions.len() {
        for (left, right) in &conditions {
            let (a, b) = (value(drawn, left)?, value(drawn, right)?);
            let (x, y) = right.split_once('*').map_or((right.as_str(), "1"), |(x, y)| (x.trim(), y.trim()));
            let (raised, times) = if range(x).is_some() { (x, y) } else { (y, x) };
            let times = value(drawn, times)?.max(1);
            match (range(left), range(raised)) {
                (_, Some((_, most))) if a > b => {
                    _ = drawn.insert(raised.into(), (a / times + i64::from(a % times > 0)).min(most))
                }
                (Some((least, _)), None) if a > b => _ = drawn.insert(left.clone(), b.max(least)),
                _ => {}
            }
        }
    }
    for (left, right) in conditions {
        if value(drawn, &left)? > value(drawn, &right)? {
            return Err(format!("no dimensions were found where {left} <= {right}"));
        }
    }
    Ok(())
}

impl Reading {
    /// Reads a contract. `dimensions` has the values that a run drew for the free dimensions.
    pub fn of(statement: &Statement, kernel: &Kernel, dimensions: &BTreeMap<String, i64>) -> Result<Reading, String> {
        let table: toml::Table =
            statement.text.parse().map_err(|error: toml::de::Error| error.message().to_string())?;
        let known = ["shape", "grid", "where", "params", "constants", "text", "shapes"];
        if let Some(key) = table.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(format!("the key {key}"));
        }
        let kind = match table.get("shape").and_then(toml::Value::as_str) {
            Some("rowwise") => Kind::Rows,
            Some("store_kv") => Kind::Store,
            Some("attend") => Kind::Attend,
            Some("attend_part") => Kind::Part,
            Some("attend_combine") => Kind::Combine,
            Some("recur_store") => Kind::RecurStore,
            Some("recur_read") => Kind::RecurRead,
            other => return Err(format!("the shape {other:?}")),
        };
        let empty = toml::Table::new();
        let section = |name: &str| match table.get(name) {
            None => Ok(&empty),
            Some(value) => value.as_table().ok_or(format!("{name} is no table")),
        };
        let only_text = texts(table.get("text"))?;
        let mut integers = BTreeMap::new();
        for (name, value) in section("constants")?.iter().filter(|(name, _)| !only_text.contains(name)) {
            integers.extend(value.as_integer().map(|value| (name.clone(), value)));
        }
        for (name, value) in dimensions {
            if integers.insert(name.clone(), *value).is_some() || only_text.contains(name) {
                return Err(format!("{name} is a constant and a dimension"));
            }
        }
        let axes = texts(table.get("grid"))?;
        // One text for several: with a window, or where it folds its splits, it is all of attention.
        let kind = match (kind, integers.get("USE")) {
            (Kind::Part, Some(1 | 2)) => Kind::Attend,
            (Kind::Part, Some(3)) => Kind::Folded,
            _ => kind,
        };
        let mut reading = Reading { kind, parameters: vec![], axes, integers };
        let (roles, shapes) = (section("params")?, section("shapes")?);
        for param in &kernel.params {
            let role = roles.get(&param.name).and_then(toml::Value::as_str);
            let role = role.ok_or(format!("no role for {}", param.name))?;
            let extents = texts(shapes.get(&param.name))?;
            let parameter = reading.parameter(&param.name, role, &extents, statement.act)?;
            reading.parameters.push(parameter);
        }
        let taken = |name: &str| kernel.param(name).is_some() || kernel.scalars.iter().any(|s| s.name == name);
        match roles.keys().find(|name| !taken(name)) {
            Some(name) => Err(format!("the kernel does not take {name}")),
            None => Ok(reading),
        }
    }

    fn parameter(&self, name: &str, role: &str, extents: &[String], act: Dtype) -> Result<Parameter, String> {
        let words: Vec<&str> = role.split_whitespace().collect();
        let number = |text: &str| text.parse::<usize>().map_err(|_| format!("the role {role}"));
        let own = Scalar::from(act);
        let (what, holds) = match words[..] {
            ["in", i] => (What::In(number(i)?), own),
            ["in", i, "f32"] => (What::In(number(i)?), Scalar::F32),
            ["in", i, "i8"] => (What::In(number(i)?), Scalar::I8),
            ["in", i, "i32"] => (What::In(number(i)?), Scalar::I32),
            ["out", i] => (What::Out(number(i)?), own),
            ["out", i, "f32"] => (What::Out(number(i)?), Scalar::F32),
            ["out", i, "i8"] => (What::Out(number(i)?), Scalar::I8),
            ["out", i, "i32"] => (What::Out(number(i)?), Scalar::I32),
            ["weight", i] => (What::Weight(number(i)?), own),
            ["weight", i, "f32"] => (What::Weight(number(i)?), Scalar::F32),
            ["weight", i, "i8"] => (What::Weight(number(i)?), Scalar::I8),
            ["weight", i, "i32"] => (What::Weight(number(i)?), Scalar::I32),
            ["scratch", i] | ["scratch", i, "f32"] => (What::Scratch(number(i)?), Scalar::F32),
            ["entry", i, "f32"] => (What::Entry(number(i)?), Scalar::F32),
            ["state", i, "f32"] => (What::State(number(i)?), Scalar::F32),
            ["rows"] => (What::RowCount, Scalar::I32),
            ["tokens"] => (What::Token, Scalar::I32),
            ["positions"] => (What::Position, Scalar::I32),
            ["row_index"] => (What::Gathered, Scalar::I32),
            ["slots"] => (What::Slot, Scalar::I32),
            ["page_table"] => (What::Page, Scalar::I32),
            ["tile_table"] => (What::TileTable, Scalar::I32),
            ["tile_row"] => (What::TileRow, Scalar::I32),
            ["tile_rows"] => (What::TileRows, Scalar::I32),
            ["tile_pos"] => (What::TilePos, Scalar::I32),
            ["cache_k"] => (What::Keys, own),
            ["cache_v"] => (What::Values, own),
            _ => return Err(format!("the role {role} of {name}")),
        };
        let mut list = vec![];
        for (i, text) in extents.iter().enumerate() {
            list.push(match (i, text.as_str()) {
                (0, "rows") => Extent::Rows,
                (0, "packed") => Extent::Packed,
                (0, "context") => Extent::Context,
                (0, "splits") => Extent::Splits,
                (0, "pages") => Extent::Pages,
                _ => match self.value(text, None)? {
                    n @ 1..=LARGEST => Extent::Number(n as usize),
                    n => return Err(format!("an extent of {n}")),
                },
            });
        }
        let needs = matches!(
            what,
            What::In(_) | What::Out(_) | What::Weight(_) | What::Scratch(_) | What::Entry(_) | What::State(_)
        );
        match needs != list.is_empty() {
            true => Ok(Parameter { name: name.to_string(), what, holds, extents: list }),
            false => Err(format!("the extents of {name}")),
        }
    }

    pub fn find(&self, what: What) -> Option<usize> {
        self.parameters.iter().position(|p| p.what == what)
    }

    /// A constant of the contract, at least 1.
    pub fn natural(&self, name: &str) -> Result<usize, String> {
        match self.integers.get(name) {
            Some(n @ 1..=LARGEST) => Ok(*n as usize),
            other => Err(format!("{name} is {other:?}")),
        }
    }

    /// A constant of the contract that may be 0.
    pub fn whole(&self, name: &str) -> Result<usize, String> {
        if self.integers.get(name) == Some(&0) { Ok(0) } else { self.natural(name) }
    }

    /// Numbers of a head: D, or twice HALF.
    pub fn head(&self) -> Result<usize, String> {
        self.natural("D").or_else(|missing| Ok(2 * self.natural("HALF").map_err(|_: String| missing)?))
    }

    /// Programs on each axis of a launch for this much work.
    pub fn grid(&self, work: Work) -> Result<[usize; 3], String> {
        let mut grid = [1; 3];
        if self.axes.is_empty() || self.axes.len() > 3 {
            return Err(format!("a grid of {} axes", self.axes.len()));
        }
        for (axis, text) in self.axes.iter().enumerate() {
            let programs = self.value(text, Some(work))?;
            grid[axis] = usize::try_from(programs).map_err(|_| format!("{programs} programs"))?;
        }
        Ok(grid)
    }

    /// How many rows one program has: the grid grows with the next row. 1 if it does not grow below 512 rows.
    pub fn rows_of_a_program(&self) -> Result<usize, String> {
        let programs = |rows| self.grid(Work { rows, ..Work::default() });
        let one = programs(1)?;
        for rows in 1..512 {
            if programs(rows + 1)? != one {
                return Ok(rows);
            }
        }
        Ok(1)
    }

    fn value(&self, text: &str, work: Option<Work>) -> Result<i64, String> {
        let lookup = |name: &str| match (name, work) {
            ("rows", Some(work)) => Some(work.rows as i64),
            ("tiles", Some(work)) => Some(work.tiles as i64),
            ("length", Some(work)) => Some(work.length as i64),
            _ => self.integers.get(name).copied(),
        };
        evaluate(text, &lookup)
    }
}

fn texts(value: Option<&toml::Value>) -> Result<Vec<String>, String> {
    let Some(value) = value else { return Ok(vec![]) };
    let list = value.as_array().map(|list| list.iter().map(|text| text.as_str().map(String::from)).collect());
    list.flatten().ok_or(format!("{value} is no list of texts"))
}

/// Names, numbers and signs, in order.
fn words(text: &str) -> Vec<&str> {
    let (mut words, mut rest) = (vec![], text.trim_start());
    while let Some(first) = rest.chars().next() {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = if word(first) { rest.find(|c| !word(c)).unwrap_or(rest.len()) } else { first.len_utf8() };
        words.push(&rest[..end]);
        rest = rest[end..].trim_start();
    }
    words
}

type Lookup<'a> = &'a dyn Fn(&str) -> Option<i64>;

/// How deep parentheses may nest: [`sum`] and [`atom`] call each other.
const DEPTH_MAX: i64 = 64;

/// The value of an expression. An error if it has none, or if its parentheses nest too deep.
fn evaluate(text: &str, lookup: Lookup) -> Result<i64, String> {
    let mut tokens = words(text);
    let mut depth = 0;
    for word in &tokens {
        depth += i64::from(*word == "(") - i64::from(*word == ")");
        if depth > DEPTH_MAX {
            return Err(format!("`{text}` nests parentheses more than {DEPTH_MAX} deep"));
        }
    }
    tokens.reverse();
    let value = sum(&mut tokens, lookup).ok_or(format!("`{text}` has no value"))?;
    if tokens.is_empty() { Ok(value) } else { Err(format!("`{text}` goes on after its value")) }
}

/// Evaluates a sum. `tokens` is in reverse order, so the next token is the last.
fn sum(tokens: &mut Vec<&str>, lookup: Lookup) -> Option<i64> {
    let mut total = product(tokens, lookup)?;
    while let Some(sign @ ("+" | "-")) = tokens.last().copied() {
        tokens.pop();
        let next = product(tokens, lookup)?;
        total = if sign == "+" { total.checked_add(next)? } else { total.checked_sub(next)? };
    }
    Some(total)
}

fn product(tokens: &mut Vec<&str>, lookup: Lookup) -> Option<i64> {
    let mut total = atom(tokens, lookup)?;
    while let Some(sign @ ("*" | "/")) = tokens.last().copied() {
        tokens.pop();
        let next = atom(tokens, lookup)?;
        total = match sign {
            "*" => total.checked_mul(next)?,
            _ if next > 0 && total % next == 0 => total / next,
            _ => return None,
        };
    }
    Some(total)
}

fn atom(tokens: &mut Vec<&str>, lookup: Lookup) -> Option<i64> {
    let word = tokens.pop()?;
    if word == "(" {
        let value = sum(tokens, lookup)?;
        return (tokens.pop()? == ")").then_some(value);
    }
    if tokens.last() != Some(&"(") || !word.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return word.parse().ok().or_else(|| lookup(word));
    }
    tokens.pop();
    let a = sum(tokens, lookup)?;
    let mut rest = vec![];
    while tokens.last() == Some(&",") {
        tokens.pop();
        rest.push(sum(tokens, lookup)?);
    }
    if tokens.pop()? != ")" {
        return None;
    }
    match (word, &rest[..]) {
        ("cdiv", [b]) if a >= 0 && *b > 0 => Some(a / b + i64::from(a % b > 0)),
        ("above", [b]) => Some(i64::from(a > *b)),
        ("min", [b]) => Some(a.min(*b)),
        ("max", [b]) => Some(a.max(*b)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::evaluate;

    #[test]
    fn parentheses_nest_to_a_limit() {
        let value = |text: &str| evaluate(text, &|name| (name == "N").then_some(9));
        assert_eq!(value("cdiv(N, 2) * (1 + 1)"), Ok(10));
        for (open, close) in [("(", ")"), ("cdiv(", ", 1)")] {
            let nested = |depth: usize| value(&format!("{}1{}", open.repeat(depth), close.repeat(depth)));
            assert_eq!(nested(64), Ok(1));
            for depth in [65, 1_000_000] {
                assert!(nested(depth).unwrap_err().ends_with("nests parentheses more than 64 deep"));
            }
        }
        assert!(value("))))))((((((").unwrap_err().ends_with("has no value"));
    }
}
