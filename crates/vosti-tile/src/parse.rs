//! Reads TTIR text piece by piece: tokens, types, attributes, and the table of Python lines.
//!
//! It knows MLIR's spelling and no operations; those are in [`mod@crate::lift`].

use crate::error::{LiftError, Reason};
use crate::ir::{Literal, Scalar, Type};

pub(crate) type Result<T> = std::result::Result<T, LiftError>;

/// A position in the text.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'t> {
    pub text: &'t str,
    pub at: usize,
    pub line: u32,
}

/// Python lines by TTIR line, from the table at the end of the file.
pub(crate) struct PythonLines {
    /// (first TTIR line, Python line), ascending.
    runs: Vec<(u32, Option<u32>)>,
}

impl PythonLines {
    /// The table counts lines from `module {`; `Cursor`s count from the start of the file.
    pub fn of(text: &str) -> PythonLines {
        let header = text.lines().take_while(|l| l.trim_start().starts_with("//") || l.trim().is_empty()).count();
        let table = text.lines().rev().find_map(|l| l.strip_prefix("// python lines")?.split_once(": "));
        let runs = table.map_or("", |t| t.1).split_whitespace().filter_map(|run| {
            let (ttir, python) = run.split_once('=')?;
            Some((ttir.parse::<u32>().ok()?.checked_add(header as u32)?, python.parse().ok()))
        });
        PythonLines { runs: runs.collect() }
    }

    pub fn at(&self, ttir: u32) -> Option<u32> {
        let after = self.runs.partition_point(|run| run.0 <= ttir);
        self.runs[..after].last()?.1
    }
}

/// A value of an attribute dictionary.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Attribute {
    Int(i64),
    Ints(Vec<i64>),
    Word(String),
}

impl<'t> Cursor<'t> {
    pub fn new(text: &'t str) -> Cursor<'t> {
        Cursor { text, at: 0, line: 1 }
    }

    pub fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn advance(&mut self, bytes: usize) {
        self.line += self.rest()[..bytes].matches('\n').count() as u32;
        self.at += bytes;
    }

    /// Skips white space and `//` comments.
    pub fn skip(&mut self) {
        loop {
            let rest = self.rest();
            let blank = rest.len() - rest.trim_start().len();
            self.advance(blank);
            if !self.rest().starts_with("//") {
                return;
            }
            let line = self.rest().find('\n').unwrap_or(self.rest().len());
            self.advance(line);
        }
    }

    pub fn at_end(&mut self) -> bool {
        self.skip();
        self.rest().is_empty()
    }

    pub fn fail<T>(&self, reason: Reason) -> Result<T> {
        Err(LiftError { ttir_line: self.line, python_line: None, reason })
    }

    pub fn unexpected<T>(&self, expected: impl Into<String>) -> Result<T> {
        let found: String = self.rest().lines().next().unwrap_or("").chars().take(40).collect();
        let found = if found.is_empty() { "the end of the line".to_string() } else { format!("`{found}`") };
        self.fail(Reason::Syntax { expected: expected.into(), found })
    }

    /// Takes `token` if it is next. A word is taken only as a whole.
    pub fn eat(&mut self, token: &str) -> bool {
        let mut ahead = *self;
        ahead.skip();
        let Some(after) = ahead.rest().strip_prefix(token) else {
            return false;
        };
        let word = |c: char| c.is_alphanumeric() || c == '_';
        if token.ends_with(word) && after.starts_with(word) {
            return false;
        }
        ahead.advance(token.len());
        *self = ahead;
        true
    }

    pub fn expect(&mut self, token: &str) -> Result<()> {
        if self.eat(token) {
            return Ok(());
        }
        // Attributes stand in front of an operation's types. Where one is known, its reader has taken it. The lifting adds the
        // operation's name.
        let mut ahead = *self;
        let braced = ahead.eat("{");
        if token == ":"
            && let Ok(name) = ahead.word()
            && (braced || ahead.eat("<"))
        {
            return self.fail(Reason::Attribute { op: String::new(), name: name.to_string() });
        }
        self.unexpected_here(format!("`{token}`"))
    }

    fn unexpected_here<T>(&mut self, expected: String) -> Result<T> {
        self.skip();
        self.unexpected(expected)
    }

    fn take_while(&mut self, fits: impl Fn(char) -> bool) -> &'t str {
        let rest = self.rest();
        let end = rest.find(|c| !fits(c)).unwrap_or(rest.len());
        self.advance(end);
        &rest[..end]
    }

    /// A name as MLIR writes it: letters, digits, `_`, `.`, `$`.
    pub fn word(&mut self) -> Result<&'t str> {
        self.skip();
        let word = self.take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '$'));
        if word.is_empty() { self.unexpected("a name") } else { Ok(word) }
    }

    /// `%name`, without the `%`; the caller reads a `#2` behind it.
    pub fn value_name(&mut self) -> Result<&'t str> {
        self.expect("%")?;
        let name = self.take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '$' | '-'));
        if name.is_empty() { self.unexpected("a value's name") } else { Ok(name) }
    }

    /// `@name` or `@"name"`.
    pub fn symbol(&mut self) -> Result<&'t str> {
        self.expect("@")?;
        if !self.eat("\"") {
            return self.word();
        }
        let name = self.take_while(|c| c != '"' && c != '\n');
        self.expect("\"")?;
        Ok(name)
    }

    pub fn int(&mut self) -> Result<i64> {
        self.skip();
        let mut ahead = *self;
        let negative = ahead.eat("-");
        let digits = ahead.take_while(|c| c.is_ascii_digit());
        let text = if negative { format!("-{digits}") } else { digits.to_string() };
        match text.parse() {
            Ok(value) => {
                *self = ahead;
                Ok(value)
            }
            Err(_) => self.unexpected("an integer"),
        }
    }

    /// `f32`, `!tt.ptr<bf16>`, `tensor<64x4xi1>`, `tensor<64x!tt.ptr<f32>>`, `!tt.ptr<tensor<8x8xf32>>`.
    pub fn ty(&mut self) -> Result<Type> {
        self.ty_within(3)
    }

    /// A type with at most `levels` of nesting; a pointer to a tensor is the deepest type.
    fn ty_within(&mut self, levels: usize) -> Result<Type> {
        if levels == 0 {
            return self.fail(Reason::Type { name: "nested too deep".into() });
        }
        if self.eat("!tt.ptr<") {
            let inner = self.ty_within(levels - 1)?;
            self.expect(">")?;
            return match inner {
                Type::Tile { shape, elem } if shape.is_empty() => Ok(Type::Pointers { shape, elem }),
                Type::Tile { shape, elem } => Ok(Type::Block { shape, elem }),
                other => self.fail(Reason::Type { name: format!("pointer to {other}") }),
            };
        }
        if self.eat("tensor<") {
            let shape = self.extents()?;
            let inner = self.ty_within(levels - 1)?;
            self.expect(">")?;
            return match inner {
                Type::Block { .. } => self.fail(Reason::Type { name: "tensor of block pointers".into() }),
                inner if inner.shape().is_empty() => Ok(inner.with_shape(shape)),
                _ => self.fail(Reason::Type { name: "tensor of tensors".into() }),
            };
        }
        let start = *self;
        let name = if self.eat("!") { "!".to_string() + self.word()? } else { self.word()?.to_string() };
        let elem = match name.as_str() {
            "i1" => Scalar::I1,
            "i8" => Scalar::I8,
            "i32" => Scalar::I32,
            "i64" => Scalar::I64,
            "bf16" => Scalar::Bf16,
            "f32" => Scalar::F32,
            _ => return start.fail(Reason::Type { name }),
        };
        Ok(Type::scalar(elem))
    }

    /// `64x4x`, up to the element type.
    fn extents(&mut self) -> Result<Vec<usize>> {
        let mut shape = vec![];
        loop {
            let mut ahead = *self;
            ahead.skip();
            let digits = ahead.take_while(|c| c.is_ascii_digit());
            if digits.is_empty() || !ahead.rest().starts_with('x') {
                return Ok(shape);
            }
            ahead.advance(1);
            let extent = digits.parse().ok().filter(|n| (1..=1 << 20).contains(n));
            let lanes = extent.and_then(|n: usize| shape.iter().product::<usize>().checked_mul(n));
            match (extent, lanes) {
                (Some(n), Some(lanes)) if lanes <= 1 << 20 => shape.push(n),
                _ => {
                    return self.fail(Reason::Unsupported { what: "a tile of more than 2^20 lanes".into() });
                }
            }
            *self = ahead;
        }
    }

    /// `{name = value, flag, ...}` if it is next.
    pub fn attributes(&mut self) -> Result<Vec<(String, Attribute)>> {
        let mut list = vec![];
        if !self.eat("{") {
            return Ok(list);
        }
        while !self.eat("}") {
            if !list.is_empty() {
                self.expect(",")?;
            }
            let name = self.word()?.to_string();
            if list.iter().any(|(other, _)| *other == name) {
                return self.fail(Reason::Unsupported { what: format!("the attribute `{name}` stands twice") });
            }
            let value = if self.eat("=") { self.attribute()? } else { Attribute::Word("unit".into()) };
            list.push((name, value));
        }
        Ok(list)
    }

    fn attribute(&mut self) -> Result<Attribute> {
        if self.eat("array<") {
            self.word()?; // the element type
            let mut values = vec![];
            if self.eat(":") {
                values.push(self.int()?);
                while self.eat(",") {
                    values.push(self.int()?);
                }
            }
            self.expect(">")?;
            return Ok(Attribute::Ints(values));
        }
        let mut ahead = *self;
        if let Ok(value) = ahead.int() {
            *self = ahead;
            if self.eat(":") {
                self.word()?;
            }
            return Ok(Attribute::Int(value));
        }
        Ok(Attribute::Word(self.word()?.to_string()))
    }

    /// The value of `arith.constant`, which `dense<...>` repeats in every lane: the number's text.
    pub fn number(&mut self) -> Result<(&'t str, bool)> {
        let dense = self.eat("dense<");
        self.skip();
        let number = self.take_while(|c| c.is_alphanumeric() || matches!(c, '-' | '+' | '.'));
        if number.is_empty() {
            return self.unexpected("a constant that is the same in every lane");
        }
        if dense {
            self.expect(">")?;
        }
        Ok((number, dense))
    }
}

/// A constant's value by its element type. Floats are decimal or the hexadecimal bits of their own type.
pub(crate) fn literal(text: &str, elem: Scalar) -> Option<Literal> {
    if !elem.is_float() {
        let value = match text {
            "true" => 1,
            "false" => 0,
            _ => text.parse::<i64>().ok()?,
        };
        let fits = match elem {
            Scalar::I1 => matches!(value, -1..=1),
            Scalar::I8 => i8::try_from(value).is_ok(),
            Scalar::I32 => i32::try_from(value).is_ok(),
            _ => true,
        };
        return fits.then_some(Literal::Int(if elem == Scalar::I1 { value & 1 } else { value }));
    }
    let bits = match (text.strip_prefix("0x"), elem) {
        (Some(hex), Scalar::F32) => u32::from_str_radix(hex, 16).ok()?,
        (Some(hex), _) => u32::from(u16::from_str_radix(hex, 16).ok()?) << 16,
        // The text has enough digits to give the same value of the element type again.
        (None, Scalar::F32) => decimal(text)?.to_bits(),
        (None, _) => half::bf16::from_f32(decimal(text)?).to_f32().to_bits(),
    };
    Some(Literal::Float(bits))
}

/// A decimal number; words like `inf`, which Rust also reads as floats, give None.
fn decimal(text: &str) -> Option<f32> {
    let digits = text.trim_start_matches('-');
    digits.starts_with(|c: char| c.is_ascii_digit()).then(|| text.parse().ok())?
}
