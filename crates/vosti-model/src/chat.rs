//! Chat templates, rendered as Hugging Face transformers renders them.
//!
//! The environment is `apply_chat_template`'s: blocks trimmed, loop controls, Python's string and dict
//! methods, `tojson` as `json.dumps(ensure_ascii=False)`, `raise_exception`, and `strftime_now`. The date
//! of `strftime_now` is a parameter, so that the same messages give the same tokens on every day. Text of messages never
//! becomes a control token. A template is a program: its length, its steps, its text, its memory and its time have limits. Read next:
//! `prompt.rs`, which tells messages from the template's text, and `bounded.rs`, which bounds memory and time.

use std::error::Error as _;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value, ValueKind, from_args};
use minijinja::{Environment, Error, ErrorKind, State};
use minijinja_contrib::pycompat;

use crate::bounded::{Stopped, WITHOUT, within};
use crate::error::{ModelError, Result};
use crate::prompt::{AddedTokens, Controls, Marks, Prompt};

/// The most instructions that a template may execute, so that a template ends.
const FUEL: u64 = 5_000_000;
/// The longest template and the longest text that one may give, in bytes. Templates that models come with have some ten thousand.
const SOURCE_MAX: usize = 256 << 10;
const TEXT_MAX: usize = 32 << 20;
/// The most memory that a template may hold, in bytes: so much, and for each byte of messages, tools and variables so much more. A value of
/// JSON becomes one of the template, and a template may split a text and keep its pieces.
const MEMORY_MAX: usize = 256 << 20;
const MEMORY_PER_BYTE: usize = 64;
/// The longest time that a template may take: templates take milliseconds. One step may count a list that was doubled sixty times.
const TIME_MAX: Duration = Duration::from_secs(60);
/// Bytes of the stack on which templates are read and run: minijinja recurses into chains of operators and nested values, and the two limits
/// above bound how deep. Pages that are not touched cost nothing.
const STACK: usize = 1 << 30;

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
    source: Arc<str>,
    bos_token: String,
    eos_token: String,
    added: Arc<AddedTokens>,
    controls: Controls,
    tool_use: Option<Box<ChatTemplate>>,
    /// It took more memory or time than it may: it runs no more.
    greedy: Arc<AtomicBool>,
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
    /// A template from its source, for a model without control tokens. `bos_token` and `eos_token` are texts, empty if there are
    /// none. Error: the source does not parse.
    pub fn new(source: String, bos_token: String, eos_token: String) -> Result<Self> {
        // As Python reads a text file.
        let source = source.replace("\r\n", "\n").replace('\r', "\n");
        let (added, controls) = (Arc::default(), Controls::default());
        let source = without_generation_marks(&source);
        if source.len() > SOURCE_MAX {
            let why = format!("it is {} bytes long, and the limit is {SOURCE_MAX}", source.len());
            return Err(ModelError::Template(why));
        }
        let (source, greedy) = (Arc::<str>::from(source), Arc::default());
        let template = Self { source: source.clone(), bos_token, eos_token, added, controls, tool_use: None, greedy };
        template.bounded(0, move || {
            let environment = environment(Date::DEFAULT, Arc::default()).map_err(failed)?;
            environment.template_from_str(&source).map(|_| ()).map_err(failed)
        })?;
        Ok(template)
    }

    /// The same template for a model with these tokens.
    pub fn with_tokens(mut self, added: Arc<AddedTokens>) -> Result<Self> {
        self.controls = Controls::new(&added, &self.source)?;
        self.added = added;
        Ok(self)
    }

    /// The same template, with another one for conversations with tools.
    pub fn with_tool_use(self, tool_use: Option<Self>) -> Self {
        Self { tool_use: tool_use.map(Box::new), ..self }
    }

    /// The template for conversations with or without tools.
    pub fn for_tools(&self, tools: bool) -> &Self {
        self.tool_use.as_deref().filter(|_| tools).unwrap_or(self)
    }

    /// Another template for the same model. Error: the source does not parse.
    pub fn with_source(&self, source: String) -> Result<Self> {
        let other = Self::new(source, self.bos_token.clone(), self.eos_token.clone())?;
        other.with_tokens(self.added.clone())
    }

    /// The texts of the tokens that begin and end a text, empty if there are none.
    pub fn special_tokens(&self) -> (&str, &str) {
        (&self.bos_token, &self.eos_token)
    }

    /// The template's source, with `{% if true %}` in place of its marks of generated parts.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders messages: a list of `{"role": ..., "content": ...}`. A message without content has an empty text: templates search
    /// and join contents. Errors: the template refuses the messages, fails, or does not end.
    pub fn render(&self, messages: &serde_json::Value, options: &ChatOptions) -> Result<Prompt> {
        if let Some(tool_use) = self.tool_use.as_deref().filter(|_| options.tools.is_some()) {
            return tool_use.render(messages, options);
        }
        let (mut messages, mut options) = (messages.clone(), options.clone());
        for message in messages.as_array_mut().into_iter().flatten().filter_map(serde_json::Value::as_object_mut) {
            if message.get("content").is_none_or(serde_json::Value::is_null) {
                message.insert("content".into(), "".into());
            }
        }
        let mut marks = self.marks(std::iter::once(&messages).chain(&options.tools), &options);
        messages.as_array_mut().into_iter().for_each(|list| marks.mark_messages(list));
        options.tools.iter_mut().for_each(|tools| marks.mark(tools));
        self.render_marked(messages, options, marks)
    }

    /// No marks yet, for inputs that are rendered with these options.
    pub fn marks<'a>(
        &self,
        inputs: impl IntoIterator<Item = &'a serde_json::Value>,
        options: &'a ChatOptions,
    ) -> Marks {
        Marks::new(&self.controls, &self.source, inputs.into_iter().chain(options.variables.values()))
    }

    /// As [`ChatTemplate::render`], with messages and tools that `marks` has marked.
    pub fn render_marked(&self, messages: serde_json::Value, options: ChatOptions, mut marks: Marks) -> Result<Prompt> {
        let mut variables = serde_json::Value::Object(options.variables);
        marks.mark(&mut variables);
        let mut context = serde_json::Map::new();
        context.insert("messages".into(), messages);
        context.insert("tools".into(), options.tools.unwrap_or_default());
        context.insert("documents".into(), serde_json::Value::Null);
        context.insert("add_generation_prompt".into(), options.add_generation_prompt.into());
        context.insert("bos_token".into(), self.bos_token.clone().into());
        context.insert("eos_token".into(), self.eos_token.clone().into());
        context.extend(variables.as_object().cloned().unwrap_or_default());
        let (seen, source) = (Arc::new(marks.clone()), self.source.clone());
        let given = context.values().map(bytes_of).fold(0, usize::saturating_add);
        let rendered = self.bounded(given, move || {
            let environment = environment(options.date, seen).map_err(failed)?;
            let template = environment.template_from_str(&source).map_err(failed)?;
            let mut text = Text(Vec::new());
            template.render_captured_to(Value::from(minijinja::value::Serde(context)), &mut text).map_err(failed)?;
            Ok(String::from_utf8_lossy(&text.0).into_owned())
        })?;
        Ok(Prompt::new(rendered, marks))
    }

    /// Runs this on a stack of which no template reaches the end, with bounds on its memory and time. `given`: bytes of its inputs.
    fn bounded<T: Send + 'static>(&self, given: usize, run: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        if self.greedy.load(Relaxed) {
            return Err(ModelError::Template(format!("it took more memory or time than the limit before: {WITHOUT}")));
        }
        let memory = MEMORY_MAX.saturating_add(given.saturating_mul(MEMORY_PER_BYTE));
        within(memory, STACK, TIME_MAX, run).unwrap_or_else(|stopped| {
            self.greedy.store(matches!(stopped, Stopped::Memory(_) | Stopped::Time(_)), Relaxed);
            Err(ModelError::Template(stopped.to_string()))
        })
    }
}

/// About as many bytes as a value has as JSON.
fn bytes_of(value: &serde_json::Value) -> usize {
    use serde_json::Value as Json;
    match value {
        Json::Array(items) => items.iter().map(|item| 1 + bytes_of(item)).fold(2, usize::saturating_add),
        Json::Object(members) => {
            members.iter().map(|(name, of)| name.len() + 4 + bytes_of(of)).fold(2, usize::saturating_add)
        }
        Json::String(text) => text.len() + 2,
        _ => 4,
    }
}

fn environment(date: Date, marks: Arc<Marks>) -> std::result::Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax?);
    environment.set_fuel(Some(FUEL));
    overlook(&mut environment, &marks);
    environment.set_formatter(|out, state, value| match value.kind() {
        ValueKind::Bool => Ok(out.write_str(if value.is_true() { "True" } else { "False" })?),
        ValueKind::None => Ok(out.write_str("None")?),
        ValueKind::Number => match f64::try_from(value.clone()) {
            Ok(float) if !value.is_integer() => Ok(out.write_str(&python_float(float))?),
            _ => minijinja::escape_formatter(out, state, value),
        },
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
    environment.add_filter("tojson", move |value: Value, arguments: Kwargs| to_json(value, arguments, &marks));
    // Templates test `tools`, which may be none, for `iterable`. None is not iterable in Jinja, but it is in this library.
    environment.add_test("iterable", |value: Value| !value.is_none() && value.try_iter().is_ok());
    Ok(environment)
}

/// What a template wrote.
struct Text(Vec<u8>);

impl io::Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > TEXT_MAX {
            return Err(io::Error::other(format!("its text is longer than {TEXT_MAX} bytes")));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Makes methods and filters overlook the marks of texts.
fn overlook(environment: &mut Environment<'_>, marks: &Arc<Marks>) {
    let of = marks.clone();
    environment.set_unknown_method_callback(move |state, value, method, arguments| match value.as_str() {
        Some(text) if of.any() => method_of_text(&of, state, text, method, arguments),
        _ => pycompat::unknown_method_callback(state, value, method, arguments),
    });
    let of = marks.clone();
    environment.add_filter("trim", move |text: String, letters: Option<String>| {
        strip(&of, &text, letters.as_deref(), (true, true))
    });
    for name in ["length", "count"] {
        let of = marks.clone();
        environment.add_filter(name, move |value: &Value| match value.as_str() {
            Some(text) => Ok(of.remove(text).chars().count()),
            None => minijinja::filters::length(value),
        });
    }
}

/// A method of Python's `str`.
fn method_of_text(
    marks: &Marks,
    state: &mut State,
    text: &str,
    method: &str,
    arguments: &[Value],
) -> std::result::Result<Value, Error> {
    let ends = match method {
        "strip" => (true, true),
        "lstrip" => (true, false),
        "rstrip" => (false, true),
        // A test of the text.
        "startswith" | "endswith" | "count" => {
            return pycompat::unknown_method_callback(state, &marks.remove(text).into(), method, arguments);
        }
        _ if method.starts_with("is") => {
            return pycompat::unknown_method_callback(state, &marks.remove(text).into(), method, arguments);
        }
        _ => return pycompat::unknown_method_callback(state, &text.into(), method, arguments),
    };
    let (letters,): (Option<&str>,) = from_args(arguments)?;
    Ok(strip(marks, text, letters, ends).into())
}

/// A text without the letters at its ends, which are white space unless they are given.
fn strip(marks: &Marks, text: &str, letters: Option<&str>, ends: (bool, bool)) -> String {
    match letters {
        Some(letters) => marks.strip(text, |letter| letters.contains(letter), ends),
        None => marks.strip(text, char::is_whitespace, ends),
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
    // Writing fails for one reason only, which is in the error's source.
    let written = error.source().filter(|_| error.kind() == ErrorKind::WriteFailure).map(|why| why.to_string());
    ModelError::Template(match written.as_deref().or(error.detail()) {
        Some(detail) => format!("{detail}{line}"),
        None => format!("{error}"),
    })
}

/// Python's `json.dumps(value, ensure_ascii=False, indent=indent)`, or with `ensure_ascii=True`.
fn to_json(value: Value, arguments: Kwargs, marks: &Marks) -> std::result::Result<String, Error> {
    let indent: Option<usize> = arguments.get("indent")?;
    let ascii: Option<bool> = arguments.get("ensure_ascii")?;
    let sort: Option<bool> = arguments.get("sort_keys")?;
    let separators: Option<Vec<String>> = arguments.get("separators")?;
    arguments.assert_all_used()?;
    let json =
        serde_json::to_value(&value).map_err(|e| Error::new(ErrorKind::InvalidOperation, "tojson").with_source(e))?;
    let mut out = String::new();
    let indent = indent.map(|n| n.min(16));
    let (item, key) = match separators.as_deref() {
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => return Err(Error::new(ErrorKind::InvalidOperation, "tojson: separators must be two texts")),
        None => (if indent.is_some() { "," } else { ", " }.into(), ": ".into()),
    };
    let layout = Layout { indent, sort: sort.unwrap_or(false), item, key };
    write_json(&json, &layout, 0, &mut out);
    Ok(if ascii.unwrap_or(false) { escape(&out, marks) } else { out })
}

/// JSON with every character that is not ASCII, marks aside, as `\u` escapes of its UTF-16 units. Only strings have such characters.
fn escape(json: &str, marks: &Marks) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c.is_ascii() || marks.is_mark(c) {
            true => out.push(c),
            false => out.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}"))),
        }
    }
    out
}

/// How JSON is laid out.
struct Layout {
    indent: Option<usize>,
    sort: bool,
    /// Between entries.
    item: String,
    /// Between a key and its value.
    key: String,
}

impl Layout {
    /// Before an entry or a closing bracket.
    fn line(&self, depth: usize, out: &mut String) {
        if let Some(indent) = self.indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent * depth));
        }
    }

    fn entry(&self, first: bool, depth: usize, out: &mut String) {
        if !first {
            out.push_str(&self.item);
        }
        self.line(depth, out);
    }
}

fn write_json(value: &serde_json::Value, layout: &Layout, depth: usize, out: &mut String) {
    use serde_json::Value as Json;
    match value {
        Json::Array(list) if !list.is_empty() => {
            out.push('[');
            for (i, item) in list.iter().enumerate() {
                layout.entry(i == 0, depth + 1, out);
                write_json(item, layout, depth + 1, out);
            }
            layout.line(depth, out);
            out.push(']');
        }
        Json::Object(object) if !object.is_empty() => {
            let mut entries: Vec<_> = object.iter().collect();
            if layout.sort {
                entries.sort_by_key(|(key, _)| *key);
            }
            out.push('{');
            for (i, (key, item)) in entries.into_iter().enumerate() {
                layout.entry(i == 0, depth + 1, out);
                out.push_str(&Json::from(key.as_str()).to_string());
                out.push_str(&layout.key);
                write_json(item, layout, depth + 1, out);
            }
            layout.line(depth, out);
            out.push('}');
        }
        Json::Number(number) if number.is_f64() => {
            out.push_str(&number.as_f64().map(python_float).unwrap_or_default());
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

/// Python's `repr` of a float: the shortest digits, with an exponent below 1e-4 and from 1e16 on.
fn python_float(float: f64) -> String {
    let size = float.abs();
    if !float.is_finite() || size == 0.0 || (1e-4..1e16).contains(&size) {
        return format!("{float:?}").to_lowercase();
    }
    let text = format!("{float:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(("+", exponent), |exponent| ("-", exponent));
    format!("{digits}e{sign}{exponent:0>2}")
}
