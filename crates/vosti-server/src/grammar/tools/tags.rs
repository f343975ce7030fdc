//! Calls whose arguments stand in tags, one for each: the grammar of such arguments, and their reader, which gives them as JSON.
//!
//! A text stands between its tags as it is, and any other value as JSON. Where a schema allows both, what reads as JSON and is no text
//! is JSON. Arguments come in the order of the schema. A text ends at the first end tag, and its length, pattern and format are the
//! schema's (`text.rs`). Read next: `format.rs`, which has the tags.

use std::collections::{BTreeMap, HashSet};

use serde_json::Value;

use super::reader::Json;
use super::text;
use crate::grammar::{BYTES_MAX, GrammarError, json_rule};

/// The literal text around an argument: `key NAME value VALUE end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tags {
    /// Before the name.
    pub key: &'static str,
    /// Between the name and the value.
    pub value: &'static str,
    /// After the value. No text contains it.
    pub end: &'static str,
}

/// How an argument's value stands between its tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// As it is.
    Text,
    /// As JSON.
    Json,
    /// As it is if it is a text, else as JSON.
    Either,
}

impl Kind {
    /// Of the values that a schema allows; `root` has its definitions. Each reference is followed once, so that references in a circle
    /// end, and nothing recurs.
    fn of(schema: &Value, root: &Value) -> Self {
        let (mut left, mut seen, mut found) = (vec![schema], HashSet::new(), Vec::new());
        let of_type = |name: &Value| if name == "string" { Kind::Text } else { Kind::Json };
        let of_value = |value: &Value| if value.is_string() { Kind::Text } else { Kind::Json };
        while let Some(schema) = left.pop() {
            let choices = ["anyOf", "oneOf"].into_iter().find_map(|key| schema[key].as_array());
            if let Some(path) = schema["$ref"].as_str() {
                match root.pointer(path.strip_prefix('#').unwrap_or(path)) {
                    Some(next) if seen.insert(path) => left.push(next),
                    Some(_) => {}
                    None => found.push(Kind::Either),
                }
            } else if let Some(values) = schema["enum"].as_array() {
                found.extend(values.iter().map(of_value));
            } else if let Some(value) = schema.get("const") {
                found.push(of_value(value));
            } else if let Some(types) = schema["type"].as_array() {
                found.extend(types.iter().map(of_type));
            } else if schema["type"].is_string() {
                found.push(of_type(&schema["type"]));
            } else if let Some(choices) = choices {
                left.extend(choices);
            } else if schema.get("properties").is_some() || schema.get("items").is_some() {
                found.push(Kind::Json);
            } else {
                found.push(Kind::Either);
            }
        }
        match found[..] {
            [first, ref more @ ..] if more.iter().all(|kind| *kind == first) => first,
            _ => Kind::Either,
        }
    }
}

/// A schema, or what its reference within `root` names.
pub(super) fn resolved<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    // A chain of references that is longer is one without an end.
    const LINKS_MAX: usize = 8;
    let mut at = schema;
    for _ in 0..LINKS_MAX {
        match at["$ref"].as_str().and_then(|path| root.pointer(path.strip_prefix('#')?)) {
            Some(next) => at = next,
            None => break,
        }
    }
    at
}

/// The kind of each argument that the schema names.
pub fn kinds(schema: &Value) -> BTreeMap<String, Kind> {
    let properties = schema["properties"].as_object();
    properties.into_iter().flatten().map(|(name, of)| (name.clone(), Kind::of(of, schema))).collect()
}

/// Rules for the arguments of a function; the first one is called `name`. None if it has no arguments.
pub fn rules(tags: &Tags, name: &str, schema: &Value, strict: bool) -> Result<Option<String>, GrammarError> {
    let literal = |text: &str| Value::from(text).to_string();
    let (key, value, end) = (tags.key, tags.value, tags.end);
    let Some(properties) = schema["properties"].as_object().filter(|properties| !properties.is_empty()) else {
        if schema["additionalProperties"] == false {
            return Ok(None);
        }
        // Arguments of any name.
        let any = format!("{name}_value[suffix={}]: /(?s:.*)/\n", literal(end));
        return Ok(Some(format!("{name}: ({} /[^<>\\n]+/ {} {name}_value)*\n{any}", literal(key), literal(value))));
    };
    let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
    let (mut line, mut more) = (format!("{name}:"), String::new());
    for (index, (of, schema_of)) in properties.iter().enumerate() {
        let rule = format!("{name}_{index}");
        let optional = if required.iter().any(|known| known == of) { "" } else { "?" };
        line += &format!(" {rule}{optional}");
        // Each value may repeat all definitions. A grammar of this length is refused, so no more is written.
        if more.len() > BYTES_MAX {
            break;
        }
        more += &format!("{rule}: {} {rule}_value\n", literal(&format!("{key}{of}{value}")));
        more += &value_rule(&format!("{rule}_value"), schema_of, schema, end, strict)?;
    }
    Ok(Some(format!("{line}\n{more}")))
}

/// The rule of a value and its end tag.
fn value_rule(name: &str, schema: &Value, root: &Value, end: &str, strict: bool) -> Result<String, GrammarError> {
    let literal = |text: &str| Value::from(text).to_string();
    let within = resolved(schema, root);
    let listed = within["enum"].as_array().cloned().or_else(|| Some(vec![within.get("const")?.clone()]));
    if let Some(values) = listed {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_string);
        let words: Vec<String> = values.iter().map(|value| literal(&format!("{}{end}", text(value)))).collect();
        return Ok(format!("{name}: {}\n", words.join(" | ")));
    }
    Ok(match Kind::of(schema, root) {
        Kind::Text => text::rule(name, within, end, strict)?,
        Kind::Either => format!("{name}[suffix={}]: /(?s:.*)/\n", literal(end)),
        Kind::Json => {
            // References inside of it are to definitions of the whole.
            let mut own = within.clone();
            for key in ["$defs", "definitions"] {
                if let (Some(own), Some(definitions)) = (own.as_object_mut(), root.get(key)) {
                    own.entry(key).or_insert_with(|| definitions.clone());
                }
            }
            format!("{name}: {name}_json {}\n{name}_json: {}\n", literal(end), json_rule(&own))
        }
    })
}

/// Reads the arguments of one call.
#[derive(Clone, Debug)]
pub struct Reader {
    tags: Tags,
    kinds: BTreeMap<String, Kind>,
    /// Arguments so far.
    count: usize,
    place: Place,
}

#[derive(Clone, Debug)]
enum Place {
    /// Before a key's tag or the end of the arguments, with what came.
    Between(String),
    Name(String),
    /// In a value, with what came and is not given yet.
    Value {
        kind: Kind,
        held: String,
        json: Json,
    },
}

impl Reader {
    /// Of a function whose arguments have these kinds.
    pub fn new(tags: Tags, kinds: BTreeMap<String, Kind>) -> Self {
        Self { tags, kinds, count: 0, place: Place::Between(String::new()) }
    }

    /// Reads a letter: JSON that it makes certain, and after the last argument the text behind it.
    pub fn step(&mut self, letter: char) -> (String, Option<String>) {
        match &mut self.place {
            Place::Between(held) => {
                held.push(letter);
                if *held == self.tags.key {
                    self.place = Place::Name(String::new());
                } else if !self.tags.key.starts_with(held.as_str()) {
                    let rest = std::mem::take(held);
                    return (if self.count == 0 { "{}" } else { "}" }.into(), Some(rest));
                }
                (String::new(), None)
            }
            Place::Name(name) => {
                name.push(letter);
                let Some(whole) = name.strip_suffix(self.tags.value) else { return (String::new(), None) };
                let kind = self.kinds.get(whole).copied().unwrap_or(Kind::Either);
                let before = if self.count == 0 { "{" } else { ", " };
                let quote = if kind == Kind::Text { "\"" } else { "" };
                let json = format!("{before}{}: {quote}", Value::from(whole));
                self.count += 1;
                self.place = Place::Value { kind, held: String::new(), json: Json::default() };
                (json, None)
            }
            Place::Value { kind, held, json } => {
                let (kind, quoted) = (*kind, *kind == Kind::Json && json.in_text());
                if kind == Kind::Json {
                    json.step(letter);
                }
                held.push(letter);
                if let Some(last) = held.strip_suffix(self.tags.end).filter(|_| !quoted) {
                    let given = match kind {
                        Kind::Text => format!("{}\"", escaped(last)),
                        Kind::Json => last.to_string(),
                        Kind::Either => either(last),
                    };
                    self.place = Place::Between(String::new());
                    return (given, None);
                }
                if kind == Kind::Either {
                    return (String::new(), None);
                }
                // The beginning of an end tag is held back.
                let end = self.tags.end;
                let back =
                    (1..end.len()).rev().find(|n| end.is_char_boundary(*n) && held.ends_with(&end[..*n])).unwrap_or(0);
                let sure: String = held.drain(..held.len() - back).collect();
                (if kind == Kind::Text { escaped(&sure) } else { sure }, None)
            }
        }
    }
}

/// A text as it stands between the quotes of JSON.
pub(super) fn escaped(text: &str) -> String {
    let json = Value::from(text).to_string();
    json[1..json.len() - 1].to_string()
}

/// A value that may be a text, as JSON.
fn either(text: &str) -> String {
    match serde_json::from_str::<Value>(text) {
        Ok(value) if !value.is_string() => text.trim().to_string(),
        _ => Value::from(text).to_string(),
    }
}
