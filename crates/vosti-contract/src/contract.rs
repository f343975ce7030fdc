//! Contracts: the shape of a kernel's promise and the role of each of its parameters.
//!
//! A contract is TOML between `# /// contract` and `# ///` above the kernel; ARCHITECTURE.md, "Contracts", says what each shape
//! promises. A role is written `in 0`, `weight 2 f32` (element type where it is not the activations'), `rows`, `page_table`
//! and so on.

use crate::dtype::{self, Dtype};
use crate::error::ContractError;
use crate::role::Role;
use crate::value::{Const, Constants};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The shapes that the engine's proof relies on: three, the two that together are the third, and the two of a layer with a state.
///
/// A contract of the shape [`Shape::AttendPart`] may have a dimension called [`USE`], and then is of several promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// Output row t depends on input row t, the weights and (if a role says so) the position.
    Rowwise,
    /// Exactly the cells `cache[slot[t]]` are written.
    StoreKv,
    /// Paged causal attention, full or windowed.
    Attend,
    /// The first of two launches of full attention. It computes the output of rows that see only the first split of the keys.
    /// For other rows each split leaves partial results in scratch.
    AttendPart,
    /// The second launch: it folds the other rows' partial results, split by split.
    AttendCombine,
    /// One launch that computes the output of all rows, split by split, and leaves each split's partial results in scratch too.
    /// None is launched: by it a proof compares a launch that folds its own splits with the two launches.
    AttendFolded,
    /// A store that looks back a page: a row's cells also depend on its request's entries at the PAGE positions before it, as
    /// they are after the launch. Each tile holds all rows that the step has of a request.
    RecurStore,
    /// Each row depends on its request's entries at its own position and at the PAGE positions before it.
    RecurRead,
}

/// The dimension that chooses what a launch of attention's text is: 0, [`Shape::AttendPart`]; 1, [`Shape::Attend`] with a window;
/// 2, [`Shape::Attend`] without one, in a launch that folds its own splits; 3, [`Shape::AttendFolded`]. With 1 and 2 there is no
/// scratch. Its range is 0..1 or 0..3.
pub const USE: &str = "USE";

/// The dimension that says how many rows a query tile is given, at most as many as it has room for. The two launches of attention
/// may have different ones, so a text that reads it does not stand for two launches.
pub const HEIGHT: &str = "HEIGHT";

/// The value of [`USE`] for a launch that folds its own splits.
pub const FOLDED: i64 = 2;

impl Shape {
    /// Whether the shape is attention or a launch of it, over query tiles and positions.
    pub fn attends(self) -> bool {
        matches!(self, Shape::Attend | Shape::AttendPart | Shape::AttendCombine | Shape::AttendFolded)
    }

    /// Whether the shape is of a layer whose pages carry a state.
    pub fn recurs(self) -> bool {
        matches!(self, Shape::RecurStore | Shape::RecurRead)
    }

    /// Whether the shape is a launch of attention over splits of the keys.
    pub fn splits(self) -> bool {
        matches!(self, Shape::AttendPart | Shape::AttendCombine | Shape::AttendFolded)
    }

    /// Whether a kernel of this shape writes a buffer of this role.
    pub fn writes(self, role: Role) -> bool {
        match role {
            Role::Out(_) => true,
            Role::CacheK | Role::CacheV => self == Shape::StoreKv,
            Role::Scratch(_) => matches!(self, Shape::AttendPart | Shape::AttendFolded),
            Role::Entry(_) | Role::State(_) => self == Shape::RecurStore,
            _ => false,
        }
    }

    /// If a contract names the role's cells of some rows only: true for rows at positions before the first split's end, false
    /// for the other rows. None if it names the cells of every row.
    pub fn early_rows(self, role: Role) -> Option<bool> {
        match (self, role) {
            (Shape::AttendPart, Role::Out(_)) => Some(true),
            (Shape::AttendPart | Shape::AttendFolded, Role::Scratch(_)) | (Shape::AttendCombine, Role::Out(_)) => {
                Some(false)
            }
            _ => None,
        }
    }
}

/// One kernel parameter, in signature order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// As in the kernel's signature.
    pub name: String,
    /// What the launcher binds to it.
    pub role: Role,
    /// The element type of its buffer; None for the activation type of a specialisation.
    pub elem: Option<Dtype>,
}

/// A parameter that is a number and no buffer. It is bound when a device is made and never changes; one text and one proof are
/// for all its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Number {
    /// As in the kernel's signature.
    pub name: String,
    /// Whether it is a dimension or a float, with the range of a dimension.
    pub kind: NumberKind,
}

/// The kind of a [`Number`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberKind {
    /// An `i32` in `lo..=hi`, of which extents, strides and numbers of programs are made.
    Dimension { lo: i64, hi: i64 },
    /// An `f32` of which nothing is known.
    Float,
}

impl Number {
    /// Parses `dim 1..65536` or `number`; None for a buffer's role, an error for a wrong range.
    pub fn parse(name: &str, text: &str) -> Option<Result<Number, String>> {
        let bad = |why: &str| Err(format!("`{text}` is no range for `{name}`: {why}"));
        let number = |kind| Ok(Number { name: name.to_string(), kind });
        let text = text.trim();
        if text == "number" {
            return Some(number(NumberKind::Float));
        }
        let range = text.strip_prefix("dim")?.trim();
        let Some((lo, hi)) = range.split_once("..") else { return Some(bad("write `dim 1..65536`")) };
        Some(match (lo.trim().parse::<i64>(), hi.trim().parse::<i64>()) {
            (Ok(lo), Ok(hi)) if 0 <= lo && lo < hi && hi <= i64::from(i32::MAX) => {
                number(NumberKind::Dimension { lo, hi })
            }
            (Ok(_), Ok(_)) => bad("the first is below the second, and both are natural numbers of 31 bits"),
            _ => bad("its ends are numbers"),
        })
    }

    /// A value as a TTIR constant; None if the value has another type or does not fit 32 bits.
    pub fn literal(&self, value: &Const) -> Option<String> {
        match (self.kind, value) {
            (NumberKind::Dimension { .. }, Const::Int(v)) => i32::try_from(*v).ok().map(|v| format!("{v} : i32")),
            (NumberKind::Float, Const::Float(v)) => Some(format!("0x{:08X} : f32", (*v as f32).to_bits())),
            _ => None,
        }
    }

    /// Triton's name of its type.
    pub fn triton(&self) -> &'static str {
        match self.kind {
            NumberKind::Dimension { .. } => "i32",
            NumberKind::Float => "fp32",
        }
    }
}

/// A kernel's contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contract {
    /// The kind of promise.
    pub shape: Shape,
    /// One expression for each grid axis, over constants and `rows`, `tiles`, `length`: `"cdiv(rows, BM)"`. A launch for more
    /// rows or a longer length than a step has is proved too: its spare programs do nothing.
    pub grid: Vec<String>,
    /// All buffers, in signature order.
    pub params: Vec<Param>,
    /// All numbers that are bound when a device is made, in signature order.
    pub numbers: Vec<Number>,
    /// Conditions between dimensions, as `where` has them.
    pub conditions: Vec<String>,
    /// Constants that only shape the text: no premise, extent or axis uses them.
    pub text: Vec<String>,
    /// Extents of the buffers whose role has none of its own, outermost first, dense. An extent is a number, a constant, a
    /// multiple of a dimension, `rows` (of this launch), `packed` (rows of the step, where a kernel gathers), `context` (rows of
    /// the rotary tables), `splits` (of SPLIT keys, of the longest context) or `pages` (of the cache).
    pub shapes: BTreeMap<String, Vec<String>>,
}

impl Contract {
    /// The shape of the promise with these constants: that of the contract, unless [`USE`] chooses another.
    pub fn shape_of(&self, constants: &Constants) -> Shape {
        match (self.shape, constants.get(USE)) {
            (Shape::AttendPart, Some(Const::Int(1 | FOLDED))) => Shape::Attend,
            (Shape::AttendPart, Some(Const::Int(3))) => Shape::AttendFolded,
            (shape, _) => shape,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    shape: Shape,
    grid: Vec<String>,
    params: BTreeMap<String, String>,
    #[serde(default, rename = "where")]
    conditions: Vec<String>,
    #[serde(default)]
    text: Vec<String>,
    shapes: BTreeMap<String, Vec<String>>,
}

/// Reads the contract above kernel `kernel` in its Python source. `parameters` are the names of the signature's
/// parameters except its constants, in order.
pub fn parse(kernel: &str, source: &str, parameters: &[String]) -> Result<Contract, ContractError> {
    let bad = |why: String| ContractError::Contract { kernel: kernel.to_string(), why };
    let mut written: Written = read(source).map_err(bad)?;
    if written.grid.is_empty() || written.grid.len() > 3 {
        return Err(bad("a grid has one to three axes".into()));
    }
    let (mut params, mut numbers): (Vec<Param>, Vec<Number>) = (vec![], vec![]);
    for name in parameters {
        let text = written.params.remove(name).ok_or_else(|| bad(format!("parameter `{name}` has no role")))?;
        if let Some(number) = Number::parse(name, &text) {
            numbers.push(number.map_err(bad)?);
            continue;
        }
        let param = Param::parse(name, &text).ok_or_else(|| bad(format!("`{text}` is not a role for `{name}`")))?;
        if params.iter().any(|p| p.role == param.role) {
            return Err(bad(format!("two parameters have the role `{text}`")));
        }
        params.push(param);
    }
    if let Some(name) = written.params.keys().next() {
        return Err(bad(format!("the kernel has no parameter `{name}`")));
    }
    let Written { shape, grid, conditions, text, shapes, .. } = written;
    Ok(Contract { shape, grid, params, numbers, conditions, text, shapes })
}

/// The line of the Python source at which the contract's TOML starts, and the TOML between `# /// contract` and `# ///`. An
/// error unless there is exactly one such block and each of its lines is a comment of one `#`: then every reader of the file
/// reads the same contract.
pub fn block(source: &str) -> Result<(usize, String), String> {
    let opens = |line: &str| line.trim() == "# /// contract";
    let Some(first) = source.lines().position(opens) else {
        return Err("there is no `# /// contract` block above the kernel".into());
    };
    if let Some(second) = source.lines().skip(first + 1).position(opens) {
        return Err(format!("lines {} and {} both begin a contract", first + 1, first + second + 2));
    }
    let rest = source.lines().skip(first + 1);
    let lines: Vec<&str> = rest.take_while(|l| l.trim() != "# ///").collect();
    if source.lines().count() == first + 1 + lines.len() {
        return Err(format!("the `# /// contract` block of line {} is not closed by `# ///`", first + 1));
    }
    let mut block = vec![];
    for (i, line) in lines.into_iter().enumerate() {
        match line.strip_prefix('#') {
            Some(text) if !text.starts_with('#') => block.push(text),
            _ => return Err(format!("line {} of the contract is no comment of one `#`", first + i + 2)),
        }
    }
    Ok((first + 2, block.join("\n")))
}

/// The function that the contract stands above: nothing but decorators may stand between. An error says what stands there, or
/// that the file gives the function's name another value, because then another function would be proved.
pub fn function(source: &str) -> Result<&str, String> {
    let (first, text) = block(source)?;
    let end = first + text.split('\n').count();
    let below = source.lines().enumerate().skip(end).find(|(_, line)| !line.starts_with('@'));
    let name = below.and_then(|(_, line)| line.strip_prefix("def ")?.split_once('(').map(|(name, _)| name.trim()));
    let Some((at, name)) = below.map(|(at, _)| at).zip(name) else {
        let found = below.map_or("the file ends", |(_, line)| line.trim());
        return Err(format!("the contract stands directly above its function; line {} is `{found}`", end + 1));
    };
    let again = source.lines().enumerate().find(|(line, text)| {
        let rest = text.strip_prefix("def ").unwrap_or(text);
        let gives = rest.strip_prefix(name).is_some_and(|rest| rest.trim_start().starts_with(['(', '=', ':', ',']));
        *line != at && gives
    });
    match again {
        Some((line, _)) => Err(format!("lines {} and {} both define `{name}`", at + 1, line + 1)),
        None => Ok(name),
    }
}

/// Reads the TOML between `# /// contract` and `# ///`; an error names its line of the Python source.
pub fn read<T: serde::de::DeserializeOwned>(source: &str) -> Result<T, String> {
    let (first, text) = block(source)?;
    toml::from_str(&text).map_err(|error| {
        let above = error.span().map_or(0, |span| text[..span.start.min(text.len())].matches('\n').count());
        format!("line {}: {}", first + above, error.message())
    })
}

impl Param {
    /// The element type in a specialisation whose activations have the type `act`.
    pub fn elem(&self, act: Dtype) -> Dtype {
        self.elem.unwrap_or(act)
    }

    /// Parses `weight 2 f32`; None if the text is no role, or if the role does not leave its element type open.
    pub fn parse(name: &str, text: &str) -> Option<Param> {
        let (text, elem) = match text.rsplit_once(' ').map(|(role, last)| (role, dtype::named(last))) {
            Some((role, elem @ Some(_))) => (role, elem),
            _ => (text, None),
        };
        let role = Role::parse(text)?;
        let elem = role.elem(elem)?;
        Some(Param { name: name.to_string(), role, elem })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::{Extent, Grid};

    fn contract(params: &str) -> Result<Contract, String> {
        let source = format!(
            "# /// contract\n# shape = \"rowwise\"\n# grid = [\"cdiv(rows, BM)\"]\n# [params]\n{params}\n# [shapes]\n# ///\n"
        );
        let names = ["x".to_string(), "norm_w".to_string()];
        parse("k", &source, &names).map_err(|e| e.to_string())
    }

    #[test]
    fn a_contract_gives_roles_types_and_the_grid() {
        let contract = contract("# x = \"in 0\"\n# norm_w = \"weight 2 f32\"").unwrap();
        let constants = [("BM".into(), Const::Int(4))].into();
        assert_eq!((contract.params[1].role, contract.params[1].elem), (Role::Weight(2), Some(Dtype::F32)));
        let extent = Extent { rows: 9, tiles: 0, length: 0 };
        assert_eq!(Grid::written(&contract, &constants).unwrap().at(extent), Ok([3, 1, 1]));
    }

    #[test]
    fn a_file_has_one_contract_and_its_lines_are_comments_of_one_mark() {
        let block =
            |middle: &str, after: &str| block(&format!("import x\n# /// contract\n# a = 1\n{middle}# ///\n{after}"));
        assert_eq!(block("#\n# b = 2\n", "").unwrap(), (3, " a = 1\n\n b = 2".into()));
        assert!(block("", "\n  # /// contract \n# ///\n").unwrap_err().contains("lines 2 and 6"));
        for other in ["## b = 2\n", "b = 2\n", "    # b = 2\n", "\n"] {
            assert!(block(other, "").unwrap_err().starts_with("line 4 of the contract"), "{other}");
        }
    }

    #[test]
    fn a_wrong_contract_is_refused_by_name() {
        for (params, part) in [
            ("# x = \"in 0\"", "`norm_w` has no role"),
            ("# x = \"in 0\"\n# norm_w = \"in 0\"", "two parameters"),
            ("# x = \"input\"\n# norm_w = \"in 1\"", "`input` is not a role"),
            ("# x = \"in 0\"\n# norm_w = \"in 1 if NORM\"", "not a role"),
            ("# x = \"in 0\"\n# norm_w = \"in 1\"\n# y = \"out 0\"", "no parameter `y`"),
        ] {
            let error = contract(params).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
