//! Chat templates, rendered as Hugging Face transformers renders them.
//!
//! The environment is `apply_chat_template`'s: blocks trimmed, loop controls, Python's string and dict
//! methods, `tojson` as `json.dumps(ensure_ascii=False)`, `raise_exception`, and `strftime_now`. The date
//! of `strftime_now` is a parameter, so that the same messages give the same tokens on every day.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind};

use crate::error::{ModelError, Result};

/// The most instructions that a template may execute, so that a hostile template ends.
const FUEL: u64 = 5_000_000;

/// A day, for `strftime_now`; its time is midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date {
    year: u16,
    month: u8,
    day: u8,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

impl Date {
    /// The date that a template sees by default: transformers' example, and the default of Llama 3's own template.
    pub const DEFAULT: Date = Date { year: 2024, month: 7, day: 26 };

    /// A day of the Gregorian calendar from 1583 on, or `None`.
    pub fn new(year: u16, month: u8, day: u8) -> Option<Self> {
        let date = Self { year, month, day };
        let valid =
            (1583..=9999).contains(&year) && (1..=12).contains(&month) && (1..=date.month_days()).contains(&day);
        valid.then_some(date)
    }

    /// Reads `2024-07-26`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() {
            return None;
        }
        Self::new(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?)
    }

    fn month_days(self) -> u8 {
        let leap = self.year.is_multiple_of(4) && (!self.year.is_multiple_of(100) || self.year.is_multiple_of(400));
        match self.month {
            2 if leap => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        }
    }

    /// Sunday is 0 (Sakamoto's method).
    fn weekday(self) -> usize {
        const OFFSETS: [usize; 12] = [0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4];
        let year = usize::from(self.year) - usize::from(self.month < 3);
        (year + year / 4 - year / 100 + year / 400 + OFFSETS[usize::from(self.month) - 1] + usize::from(self.day)) % 7
    }

    /// C's strftime for the codes that name parts of a date; `None` for any other code.
    fn format(self, format: &str) -> Option<String> {
        let month = MONTHS[usize::from(self.month) - 1];
        let weekday = WEEKDAYS[self.weekday()];
        let mut out = String::new();
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let part = match chars.next()? {
                'd' => format!("{:02}", self.day),
                'e' => format!("{:2}", self.day),
                'm' => format!("{:02}", self.month),
                'b' | 'h' => month[..3].to_string(),
                'B' => month.to_string(),
                'Y' => self.year.to_string(),
                'y' => format!("{:02}", self.year % 100),
                'A' => weekday.to_string(),
                'a' => weekday[..3].to_string(),
                'F' => format!("{}-{:02}-{:02}", self.year, self.month, self.day),
                'H' | 'M' | 'S' => "00".to_string(),
                '-' => match chars.next()? {
                    'd' => self.day.to_string(),
                    'm' => self.month.to_string(),
                    _ => return None,
                },
                '%' => "%".to_string(),
                _ => return None,
            };
            out.push_str(&part);
        }
        Some(out)
    }
}

/// A model's chat template and the special tokens that it may print.
#[derive(Clone)]
pub struct ChatTemplate {
    source: String,
    bos_token: String,
    eos_token: String,
}

/// The inputs of a rendering besides the template.
#[derive(Clone, Debug)]
pub struct ChatOptions {
    /// End with the header of the assistant's turn.
    pub add_generation_prompt: bool,
    /// The date that `strftime_now` sees.
    pub date: Date,
    /// The tools offered, as JSON schemas; `None` leaves `tools` null.
    pub tools: Option<serde_json::Value>,
    /// Further variables of the template, such as `enable_thinking`.
    pub variables: serde_json::Map<String, serde_json::Value>,
}

impl Default for ChatOptions {
    fn default() -> Self {
        Self { add_generation_prompt: true, date: Date::DEFAULT, tools: None, variables: Default::default() }
    }
}

impl ChatTemplate {
    /// A template from its source. `bos_token` and `eos_token` are texts, empty if there are none. Error: the source does not
    /// parse.
    pub fn new(source: String, bos_token: String, eos_token: String) -> Result<Self> {
        let template = Self { source: without_generation_marks(&source), bos_token, eos_token };
        let environment = template.environment(Date::DEFAULT).map_err(failed)?;
        environment.template_from_str(&template.source).map_err(failed)?;
        Ok(template)
    }

    /// Another template for the same model. Error: the source does not parse.
    pub fn with_source(&self, source: String) -> Result<Self> {
        Self::new(source, self.bos_token.clone(), self.eos_token.clone())
    }

    /// The texts of the tokens that begin and end a text, empty if there are none.
    pub fn special_tokens(&self) -> (&str, &str) {
        (&self.bos_token, &self.eos_token)
    }

    /// The template's source, with `{% if true %}` in place of its marks of generated parts.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders messages: a list of `{"role": ..., "content": ...}`. Errors: the template refuses the messages, fails, or does not
    /// end.
    pub fn render(&self, messages: &serde_json::Value, options: &ChatOptions) -> Result<String> {
        let environment = self.environment(options.date).map_err(failed)?;
        let template = environment.template_from_str(&self.source).map_err(failed)?;
        let mut context = serde_json::Map::new();
        context.insert("messages".into(), messages.clone());
        context.insert("tools".into(), options.tools.clone().unwrap_or_default());
        context.insert("documents".into(), serde_json::Value::Null);
        context.insert("add_generation_prompt".into(), options.add_generation_prompt.into());
        context.insert("bos_token".into(), self.bos_token.clone().into());
        context.insert("eos_token".into(), self.eos_token.clone().into());
        context.extend(options.variables.clone());
        template.render(Value::from(minijinja::value::Serde(context))).map_err(failed)
    }

    fn environment(&self, date: Date) -> std::result::Result<Environment<'_>, Error> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax?);
        environment.set_fuel(Some(FUEL));
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.set_formatter(|out, state, value| match value.kind() {
            ValueKind::Bool => Ok(out.write_str(if value.is_true() { "True" } else { "False" })?),
            ValueKind::None => Ok(out.write_str("None")?),
            _ => minijinja::escape_formatter(out, state, value),
        });
        environment.add_function("raise_exception", |message: String| -> std::result::Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        });
        environment.add_function("strftime_now", move |format: String| {
            let unsupported =
                || Error::new(ErrorKind::InvalidOperation, format!("strftime_now({format:?}) is not supported"));
            date.format(&format).ok_or_else(unsupported)
        });
        environment.add_filter("tojson", to_json);
        // Templates test `tools`, which may be none, for `iterable`. None is not iterable in Jinja, but it is in this library.
        environment.add_test("iterable", |value: Value| !value.is_none() && value.try_iter().is_ok());
        Ok(environment)
    }
}

/// Replaces `{% generation %}` by `{% if true %}`. transformers has this statement to mark generated parts, and prints its
/// contents.
fn without_generation_marks(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, tag) = rest.split_at(at);
        out.push_str(before);
        let Some(end) = tag.find("%}").map(|end| end + 2) else { break };
        let (tag, after) = tag.split_at(end);
        match tag.trim_matches(['{', '%', '}', '-', '+']).trim() {
            "generation" => out.push_str(&tag.replace("generation", "if true")),
            "endgeneration" => out.push_str(&tag.replace("endgeneration", "endif")),
            _ => out.push_str(tag),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

fn failed(error: Error) -> ModelError {
    let line = error.line().map(|line| format!(" (line {line})")).unwrap_or_default();
    ModelError::Template(match error.detail() {
        Some(detail) => format!("{detail}{line}"),
        None => format!("{error}"),
    })
}

/// Python's `json.dumps(value, ensure_ascii=False, indent=indent)`, or with `ensure_ascii=True`.
fn to_json(value: Value, arguments: Kwargs) -> std::result::Result<String, Error> {
    let indent: Option<usize> = arguments.get("indent")?;
    let ascii: Option<bool> = arguments.get("ensure_ascii")?;
    let sort: Option<bool> = arguments.get("sort_keys")?;
    arguments.assert_all_used()?;
    let json =
        serde_json::to_value(&value).map_err(|e| Error::new(ErrorKind::InvalidOperation, "tojson").with_source(e))?;
    let mut out = String::new();
    write_json(&json, indent.map(|n| n.min(16)), sort.unwrap_or(false), 0, &mut out);
    Ok(if ascii.unwrap_or(false) { escape(&out) } else { out })
}

/// JSON with every character that is not ASCII as `\u` escapes of its UTF-16 units. Only strings have such characters.
fn escape(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c.is_ascii() {
            true => out.push(c),
            false => out.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}"))),
        }
    }
    out
}

fn write_json(value: &serde_json::Value, indent: Option<usize>, sort: bool, depth: usize, out: &mut String) {
    use serde_json::Value as Json;
    let separate = |out: &mut String, first: bool, depth: usize| match (indent, first) {
        (Some(n), _) => {
            out.push_str(if first { "\n" } else { ",\n" });
            out.extend(std::iter::repeat_n(' ', n * depth));
        }
        (None, true) => {}
        (None, false) => out.push_str(", "),
    };
    let close = |out: &mut String, bracket: char| {
        if let Some(n) = indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', n * depth));
        }
        out.push(bracket);
    };
    match value {
        Json::Array(list) if !list.is_empty() => {
            out.push('[');
            for (i, item) in list.iter().enumerate() {
                separate(out, i == 0, depth + 1);
                write_json(item, indent, sort, depth + 1, out);
            }
            close(out, ']');
        }
        Json::Object(object) if !object.is_empty() => {
            let mut entries: Vec<_> = object.iter().collect();
            if sort {
                entries.sort_by_key(|(key, _)| *key);
            }
            out.push('{');
            for (i, (key, item)) in entries.into_iter().enumerate() {
                separate(out, i == 0, depth + 1);
                out.push_str(&Json::from(key.as_str()).to_string());
                out.push_str(": ");
                write_json(item, indent, sort, depth + 1, out);
            }
            close(out, '}');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}
