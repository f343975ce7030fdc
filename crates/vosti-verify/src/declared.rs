//! What a contract's texts say: extents of buffers, axes of the grid, dimensions of premises, conditions.
//!
//! [`Maker`] notes each constant that a text uses, because an unused constant is an error. Read next: `premises.rs`.

use crate::condition::Condition;
use crate::dimension::{self, Scaled};
use crate::problem::{Axis, Buffer, Dim, ProblemError, limit};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use vosti_contract::{Const, Constants, Dtype, Extents, Number, Shape};
use vosti_tile::Scalar;

pub(crate) struct Maker<'a> {
    pub name: &'a str,
    pub act: Dtype,
    /// Without those that only shape the text.
    pub constants: &'a Constants,
    pub numbers: &'a [Number],
    pub shapes: &'a BTreeMap<String, Vec<String>>,
    /// Constants that a text, a role or a premise used.
    pub taken: RefCell<BTreeSet<String>>,
    /// The part of the contract that is read, for messages.
    pub place: RefCell<String>,
}

impl Maker<'_> {
    pub fn int(&self, name: &str) -> Option<i64> {
        match self.constants.get(name) {
            Some(Const::Int(v)) => {
                self.taken.borrow_mut().insert(name.to_string());
                Some(*v)
            }
            _ => None,
        }
    }

    fn fail<T>(&self, why: String) -> Result<T, ProblemError> {
        Err(ProblemError::Contract { kernel: self.name.to_string(), why })
    }

    fn value(&self, text: &str) -> Result<i128, ProblemError> {
        let bad = |why: String| self.wrong(text, why);
        match vosti_contract::expr::eval(text, &|name| self.int(name)) {
            Ok(v) if v > 0 => Ok(i128::from(v)),
            Ok(v) => Err(bad(format!("{v} is not positive"))),
            Err(error) => {
                let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
                Err(bad(match words.find(|word| self.number(word).is_some()) {
                    Some(name) => {
                        format!(
                            "`{name}` is a dimension: write a constant, or a multiple of one dimension like `2 * {name}`"
                        )
                    }
                    None => match error {
                        vosti_contract::ContractError::Expression { why, .. } => why,
                        other => other.to_string(),
                    },
                }))
            }
        }
    }

    fn wrong(&self, text: &str, why: String) -> ProblemError {
        let (kernel, place) = (self.name.to_string(), self.place.borrow().clone());
        let why = if why.starts_with(&format!("`{text}`")) { why } else { format!("`{text}`: {why}") };
        ProblemError::Expression { kernel, place, why }
    }

    fn at(&self, place: String) {
        self.place.replace(place);
    }

    /// An axis counts what the shape has: rows, tiles or splits.
    pub fn axis(&self, shape: Shape, index: usize, text: &str) -> Result<Axis, ProblemError> {
        self.at(format!("axis {index} of the grid"));
        let text = text.trim();
        let tiled = shape.attends() || shape.recurs();
        let over = |what: &str| text.strip_prefix(what)?.strip_prefix(',')?.strip_suffix(')');
        let (axis, fits) = match (self.axis_of_rows(text)?, over("cdiv(length"), over("above(length")) {
            (Some(axis @ (Axis::Tiles | Axis::TilesTimes(_))), _, _) => (axis, tiled),
            (Some(axis), _, _) => (axis, !tiled),
            (_, Some(n), _) => match self.value(n)? {
                // No context is longer.
                limit::CONTEXT.. => (Axis::Const(1), shape.attends()),
                n => (Axis::LengthOver(n), shape.splits()),
            },
            (_, _, Some(n)) => (Axis::LengthAbove(self.value(n)?), shape.splits()),
            _ => (self.axis_of_dimensions(text)?, true),
        };
        match axis {
            Axis::Const(n) if n > i128::from(i32::MAX) => self.fail(format!("{n} programs on an axis are too many")),
            _ if !fits => self.fail(format!("the shape {shape:?} allows no axis `{text}` of the grid")),
            _ => Ok(axis),
        }
    }

    /// So many times a dimension, if one occurs.
    fn scaled(&self, text: &str) -> Result<Option<Scaled>, ProblemError> {
        dimension::scaled(text, self.numbers, |text| self.value(text)).map_err(|why| self.wrong(text, why))
    }

    pub fn number(&self, name: &str) -> Option<&Number> {
        self.numbers.iter().find(|number| number.name == name)
    }

    /// A dimension that premises are made of where the shape has them, in the range that constants have.
    pub fn premise(&self, name: &str, wanted: bool, most: i128) -> Result<Option<Dim>, ProblemError> {
        self.at("the premises".into());
        let Some(number) = self.number(name).filter(|_| wanted) else { return Ok(None) };
        match dimension::range(number) {
            Some((1.., hi)) if hi <= most => self.extent(name).map(Some),
            _ => self.fail(format!("the premises need {name} from 1 to {most}")),
        }
    }

    pub fn condition(&self, text: &str) -> Result<Condition, ProblemError> {
        self.at("`where`".into());
        Condition::read(text, self.numbers, |text| self.value(text)).or_else(|why| self.fail(why))
    }

    /// An axis that no step changes.
    fn axis_of_dimensions(&self, text: &str) -> Result<Axis, ProblemError> {
        let inner = text.strip_prefix("cdiv(").and_then(|t| t.strip_suffix(')')?.rsplit_once(','));
        let (of, over) = match inner {
            Some((of, over)) => (self.scaled(of)?, over.trim()),
            None => (self.scaled(text)?, "1"),
        };
        let Some(of) = of else { return Ok(Axis::Const(self.value(text)?)) };
        let over = self.value(over)?;
        let most = dimension::range(&self.numbers[of.number]).and_then(|(_, hi)| hi.checked_mul(of.times));
        match most.and_then(|most| most.checked_add(over)) {
            Some(most) if most / over <= i128::from(i32::MAX) => Ok(Axis::Of { of, over }),
            _ => self.fail(format!("an axis of `{text}` may have too many programs")),
        }
    }

    /// An axis of rows or tiles, alone or as one with an axis of a number of programs that no step changes.
    fn axis_of_rows(&self, text: &str) -> Result<Option<Axis>, ProblemError> {
        for (at, _) in text.match_indices('*') {
            // A product alone: what is added to it is no part of the number.
            let times = &text[at + 1..];
            if times.contains(['+', '-', '/']) {
                continue;
            }
            let Ok(times) = self.value(times) else { continue };
            match self.rows_alone(text[..at].trim())? {
                Some(Axis::RowsOver(over)) => return Ok(Some(Axis::RowsTimes { over, times })),
                Some(Axis::Tiles) => return Ok(Some(Axis::TilesTimes(times))),
                _ => {}
            }
        }
        self.rows_alone(text)
    }

    fn rows_alone(&self, text: &str) -> Result<Option<Axis>, ProblemError> {
        let over = text.strip_prefix("cdiv(rows").and_then(|t| t.strip_prefix(',')?.strip_suffix(')'));
        Ok(match (text, over) {
            ("tiles", _) => Some(Axis::Tiles),
            ("rows", _) => Some(Axis::RowsOver(1)),
            (_, Some(n)) if !n.contains(['(', ')']) => Some(Axis::RowsOver(self.value(n)?)),
            _ => None,
        })
    }

    pub fn buffer(&self, shape: Shape, p: &vosti_contract::Param, found: Scalar) -> Result<Buffer, ProblemError> {
        self.at(format!("the extents of `{}`", p.name));
        let wanted = Scalar::from(p.elem(self.act));
        if wanted != found {
            return Err(ProblemError::Type { kernel: self.name.to_string(), param: p.name.clone(), found, wanted });
        }
        let own = match p.role.extents() {
            Extents::One => Some(vec![Dim::Const(1)]),
            Extents::Rows => Some(vec![Dim::Rows]),
            Extents::PageTables => Some(vec![Dim::TableLen]),
            Extents::Tiles => Some(vec![Dim::Tiles]),
            Extents::Cache => {
                let page = self.value("PAGE")?;
                // A kernel that rotates halves has HALF in the place of D.
                let own = self.number("D").is_some() || self.constants.contains_key("D");
                let head = if !own && self.number("HALF").is_some() { "2 * HALF" } else { "D" };
                Some(vec![Dim::Pages(page), self.extent("KV_HEADS")?, Dim::Const(page), self.extent(head)?])
            }
            Extents::Declared => None,
        };
        if own.is_some() && self.shapes.contains_key(&p.name) {
            return self.fail(format!("`{}` has the extents of its role, and others are declared", p.name));
        }
        let dims = own.map_or_else(|| self.declared(shape, &p.name), Ok)?;
        let elements = dims.iter().try_fold(1i64, |n, dim| match dim {
            Dim::Const(c) => n.checked_mul(i64::try_from(*c).ok()?),
            _ => Some(n),
        });
        match elements {
            Some(_) => Ok(Buffer { name: p.name.clone(), role: p.role, elem: found, dims }),
            None => self.fail(format!("`{}` has more elements than 64 bits count", p.name)),
        }
    }

    fn declared(&self, shape: Shape, param: &str) -> Result<Vec<Dim>, ProblemError> {
        let Some(texts) = self.shapes.get(param).filter(|t| !t.is_empty()) else {
            return Err(ProblemError::NoExtents { kernel: self.name.to_string(), param: param.to_string() });
        };
        let mut dims = vec![];
        for (i, text) in texts.iter().enumerate() {
            dims.push(match (i, text.as_str()) {
                (0, "rows") => Dim::Rows,
                (0, "packed") => Dim::Packed,
                (0, "context") => Dim::Context,
                (0, "pages") if shape.recurs() => Dim::Pages(self.value("PAGE")?),
                (0, "splits") if shape.splits() => Dim::Splits(self.value("SPLIT")?),
                // Without splits no partial results are handed on.
                (0, "splits") if shape == Shape::Attend => Dim::Const(0),
                _ => self.extent(text)?,
            });
        }
        Ok(dims)
    }

    pub fn extent(&self, text: &str) -> Result<Dim, ProblemError> {
        Ok(match self.scaled(text)? {
            Some(of) => Dim::Of(of),
            None => Dim::Const(self.value(text)?),
        })
    }
}
