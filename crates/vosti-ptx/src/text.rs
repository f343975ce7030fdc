//! Reads a PTX module with one kernel into statements: the name of each instruction and its operands, still as text.
//!
//! It does not know what instructions mean: see [`crate::decode`].

use crate::fault::ReadError;
use std::collections::HashMap;

/// A module's kernel.
#[derive(Debug)]
pub(crate) struct Text<'a> {
    pub name: &'a str,
    /// Names of parameters.
    pub params: Vec<(&'a str, Width)>,
    /// Threads of a block; None if the launch says it.
    pub threads: Option<u32>,
    /// Of the body, and of each block in braces within it.
    pub scopes: Vec<Scope<'a>>,
    /// The array of dynamic shared memory, if there is one.
    pub shared: Option<&'a str>,
    pub statements: Vec<Statement<'a>>,
}

/// What is declared between braces (PTX ISA, "Statements": a block's names are its own, and hide those around it).
#[derive(Debug, Default)]
pub(crate) struct Scope<'a> {
    /// The one around it, by its place; the body is around itself.
    pub around: usize,
    /// Register files by the beginning of their names, such as `%rd`, or by the whole name of a single register.
    pub files: HashMap<&'a str, File>,
}

/// Registers of one type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct File {
    pub width: Width,
    /// None: a register without a number.
    pub many: Option<u32>,
}

/// What a register holds (PTX ISA, "Types": operands of one size may be used for each other).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    Predicate,
    Bits16,
    Bits32,
    Bits64,
    /// A parameter of 128 bytes, of which only the address is used.
    Map,
}

/// An instruction, or a label in front of one.
#[derive(Debug, Default)]
pub(crate) struct Statement<'a> {
    pub line: u32,
    /// The place of its scope.
    pub scope: usize,
    pub labels: Vec<&'a str>,
    /// `@%p1` or `@!%p1`.
    pub guard: Option<&'a str>,
    /// With modifiers: `ld.global.b32`. Empty for labels at the end and hints.
    pub opcode: &'a str,
    pub operands: Vec<Operand<'a>>,
}

/// An operand as it is written.
#[derive(Debug, PartialEq)]
pub(crate) enum Operand<'a> {
    /// A register, a number or a name.
    Word(&'a str),
    /// `{%r1, %r2}`.
    Vector(Vec<&'a str>),
    /// `[%r1 + 16]`.
    Address(&'a str, i64),
    /// `[%rd1, {%r1, %r2}]`.
    Tensor(&'a str, Vec<&'a str>),
}

impl<'a> Text<'a> {
    /// Reads a module. `clean` is the text without comments ([`without_comments`]).
    pub fn read(clean: &'a str) -> Result<Text<'a>, ReadError> {
        let bad = |why: &str| ReadError { line: 0, why: why.into() };
        let (head, rest) = clean.split_once(".entry").ok_or_else(|| bad("no kernel"))?;
        for wanted in [".version", ".target sm_", ".address_size 64"] {
            head.find(wanted).ok_or_else(|| bad(&format!("no {wanted}")))?;
        }
        if rest.contains(".entry") || clean.contains(".func") {
            return Err(bad("more than one kernel"));
        }
        let (name, rest) = rest.split_once('(').ok_or_else(|| bad("no parameters"))?;
        let (params, rest) = rest.split_once(')').ok_or_else(|| bad("parameters do not end"))?;
        let (directives, body) = rest.split_once('{').ok_or_else(|| bad("no body"))?;
        let (body, _) = body.rsplit_once('}').ok_or_else(|| bad("the body does not end"))?;
        let start = body.as_ptr().addr() - clean.as_ptr().addr();
        let mut text = Text {
            name: name.trim(),
            params: parameters(params)?,
            threads: threads(directives)?,
            scopes: vec![Scope::default()],
            shared: shared(head)?,
            statements: vec![],
        };
        text.body(body, clean[..start].matches('\n').count() as u32 + 1)?;
        Ok(text)
    }

    fn body(&mut self, body: &'a str, first: u32) -> Result<(), ReadError> {
        let (mut line, mut scope) = (first, 0);
        for piece in body.split(';') {
            // Braces around statements, and labels in front of one; those of operands are behind an opcode.
            let mut rest = piece.trim_start();
            loop {
                if let Some((label, after)) = label(rest)
                    && after.starts_with(['{', '}'])
                {
                    let at = line + piece[..piece.len() - rest.len()].matches('\n').count() as u32;
                    self.statements.push(Statement { line: at, scope, labels: vec![label], ..Statement::default() });
                    rest = after;
                } else if let Some(after) = rest.strip_prefix('{') {
                    self.scopes.push(Scope { around: scope, ..Scope::default() });
                    (scope, rest) = (self.scopes.len() - 1, after.trim_start());
                } else if let Some(after) = rest.strip_prefix('}') {
                    if scope == 0 {
                        return Err(ReadError { line, why: "a brace too many".into() });
                    }
                    (scope, rest) = (self.scopes[scope].around, after.trim_start());
                } else {
                    break;
                }
            }
            let at = line + piece[..piece.len() - rest.len()].matches('\n').count() as u32;
            line += piece.matches('\n').count() as u32;
            let rest = rest.trim();
            if rest.is_empty() {
                continue;
            }
            let wrong = || ReadError { line: at, why: format!("`{rest}` cannot be read") };
            match rest.strip_prefix(".reg") {
                Some(declared) => {
                    let (prefix, file) = register_file(declared).ok_or_else(wrong)?;
                    self.scopes[scope].files.insert(prefix, file);
                }
                None => self.statements.push(statement(rest, at, scope).ok_or_else(wrong)?),
            }
        }
        if scope == 0 { Ok(()) } else { Err(ReadError { line, why: "a brace too few".into() }) }
    }
}

/// The text with each comment cut off.
pub(crate) fn without_comments(text: &str) -> String {
    let text = text.strip_suffix('\0').unwrap_or(text);
    text.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n")
}

fn parameters(list: &str) -> Result<Vec<(&str, Width)>, ReadError> {
    let read = |param: &'_ str| {
        let mut words = param.strip_prefix(".param")?.split_whitespace();
        let width = match words.next()? {
            ".align" => {
                let aligned = words.next()?.parse::<u32>().ok()? >= 64 && words.next()? == ".b8";
                return (aligned && words.next()?.ends_with("[128]")).then_some(Width::Map);
            }
            ".u64" | ".b64" => Width::Bits64,
            ".u32" | ".b32" | ".f32" => Width::Bits32,
            _ => return None,
        };
        Some(width)
    };
    let params = list.split(',').map(str::trim).filter(|param| !param.is_empty());
    params
        .map(|param| match (read(param), param.split_whitespace().next_back()) {
            (Some(width), Some(word)) => Ok((word.strip_suffix("[128]").unwrap_or(word), width)),
            _ => Err(ReadError {
                line: 0,
                why: format!("`{param}` is no parameter of 64 or 32 bits, and no tensor map"),
            }),
        })
        .collect()
}

/// The first number of `.reqntid`; the others are 1.
fn threads(directives: &str) -> Result<Option<u32>, ReadError> {
    let Some((_, rest)) = directives.split_once(".reqntid") else { return Ok(None) };
    let numbers = rest.lines().next().unwrap_or("").split(',').map(|n| n.trim().parse::<u32>());
    match numbers.collect::<Result<Vec<_>, _>>().as_deref() {
        Ok([x] | [x, 1] | [x, 1, 1]) => Ok(Some(*x)),
        _ => Err(ReadError { line: 0, why: "threads on more than one axis".into() }),
    }
}

/// The name of the one shared array, whose size is the launch's.
fn shared(head: &str) -> Result<Option<&str>, ReadError> {
    let mut arrays = head.lines().filter(|line| line.contains(".shared"));
    let (Some(array), None) = (arrays.next(), arrays.next()) else {
        return match head.contains(".shared") {
            true => Err(ReadError { line: 0, why: "several shared arrays".into() }),
            false => Ok(None),
        };
    };
    let name = array.trim().strip_suffix("[];").and_then(|rest| rest.split_whitespace().next_back());
    match name {
        Some(name) if array.trim().starts_with(".extern") => Ok(Some(name)),
        _ => Err(ReadError { line: 0, why: format!("`{}`: not dynamic shared memory", array.trim()) }),
    }
}

/// ` .b32 %r<205>`.
fn register_file(text: &str) -> Option<(&str, File)> {
    let (kind, rest) = text.trim().split_once(char::is_whitespace)?;
    let (prefix, many) = match rest.trim().strip_suffix('>') {
        Some(rest) => rest.split_once('<').and_then(|(prefix, many)| Some((prefix, Some(many.parse().ok()?))))?,
        None => (rest.trim(), None),
    };
    let width = match kind {
        ".pred" => Width::Predicate,
        ".b16" | ".u16" | ".s16" => Width::Bits16,
        ".b32" | ".u32" | ".s32" | ".f32" => Width::Bits32,
        ".b64" | ".u64" | ".s64" => Width::Bits64,
        _ => return None,
    };
    (!prefix.is_empty() && !prefix.contains(',')).then_some((prefix, File { width, many }))
}

/// `name:`, and what is behind it.
fn label(text: &str) -> Option<(&str, &str)> {
    let named = |c: char| c.is_alphanumeric() || ['_', '$'].contains(&c);
    let (label, after) = text.split_once(':').filter(|(label, _)| label.chars().all(named))?;
    Some((label, after.trim_start()))
}

fn statement(piece: &str, line: u32, scope: usize) -> Option<Statement<'_>> {
    let mut rest = piece;
    let mut labels = vec![];
    while let Some((label, after)) = label(rest) {
        labels.push(label);
        rest = after;
    }
    let mut guard = None;
    if rest.starts_with('@') {
        let (word, after) = rest.split_once(char::is_whitespace)?;
        guard = Some(&word[1..]);
        rest = after.trim_start();
    }
    // A hint for the assembler changes no number: its labels are those of the instruction behind it.
    if rest.starts_with(".pragma") {
        rest = "";
    }
    let (opcode, operands) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    Some(Statement { line, scope, labels, guard, opcode, operands: operands_of(operands)? })
}

fn operands_of(text: &str) -> Option<Vec<Operand<'_>>> {
    let mut rest = text.trim();
    let mut found = vec![];
    while !rest.is_empty() {
        let (operand, after) = match rest.as_bytes()[0] {
            b'{' => {
                let (inner, after) = rest[1..].split_once('}')?;
                (Operand::Vector(inner.split(',').map(str::trim).collect()), after)
            }
            b'[' => {
                let (inner, after) = rest[1..].split_once(']')?;
                (address(inner.trim())?, after)
            }
            _ => {
                let end = rest.find(',').unwrap_or(rest.len());
                (Operand::Word(rest[..end].trim()), &rest[end..])
            }
        };
        found.push(operand);
        rest = match after.trim_start() {
            "" => "",
            after => after.strip_prefix(',')?.trim_start(),
        };
    }
    Some(found)
}

fn address(inner: &str) -> Option<Operand<'_>> {
    if let Some((base, place)) = inner.split_once(',') {
        let place = place.trim().strip_prefix('{')?.strip_suffix('}')?;
        return Some(Operand::Tensor(base.trim(), place.split(',').map(str::trim).collect()));
    }
    let (base, offset) = match inner.split_once('+') {
        Some((base, offset)) => (base.trim(), offset.trim().parse().ok()?),
        None => (inner, 0),
    };
    (!base.is_empty()).then_some(Operand::Address(base, offset))
}
