//! Calls whose arguments are written as `name=value` or `name:value`, with texts and words of the form's own: their grammar, and
//! their reader, which gives them as JSON.
//!
//! LFM2 writes Python: `get(city="Rome", days=3)`. A text stands in double quotes as JSON, and everything below an argument is JSON.
//! Gemma 4 writes `get{city:<|"|>Rome<|"|>,days:3}`, below an argument too. Read next: `format.rs`, which has both rows.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{tags, text};
use crate::grammar::{BYTES_MAX, GrammarError, json_rule};

/// How a form writes arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notation {
    /// Between a name and its value.
    pub is: char,
    /// Between two arguments.
    pub between: &'static str,
    /// Around a text that stands as it is; none: texts are JSON, and so is all below an argument.
    pub quote: Option<&'static str>,
}

fn literal(text: &str) -> String {
    Value::from(text).to_string()
}

impl Notation {
    /// Arguments as the form writes them.
    pub fn written(&self, arguments: &Value) -> String {
        let arguments = arguments.as_object().map(|arguments| self.in_order(arguments)).unwrap_or_default();
        let each = arguments.into_iter().map(|(name, value)| format!("{name}{}{}", self.is, self.value(value)));
        each.collect::<Vec<_>>().join(self.between)
    }

    fn value(&self, value: &Value) -> String {
        let Some(quote) = self.quote else {
            return match value {
                Value::Bool(true) => "True".into(),
                Value::Bool(false) => "False".into(),
                Value::Null => "None".into(),
                value => value.to_string(),
            };
        };
        match value {
            Value::String(text) => format!("{quote}{text}{quote}"),
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(|item| self.value(item)).collect();
                format!("[{}]", items.join(self.between))
            }
            Value::Object(_) => format!("{{{}}}", self.written(value)),
            value => value.to_string(),
        }
    }

    /// Gemma's templates sort names; Python has no order.
    fn in_order<'a>(&self, members: &'a serde_json::Map<String, Value>) -> Vec<(&'a String, &'a Value)> {
        let mut members: Vec<_> = members.iter().collect();
        if self.quote.is_some() {
            members.sort_by_key(|(name, _)| name.to_lowercase());
        }
        members
    }

    /// Rules for the arguments of a function; the first one is called `name`. None if it has no arguments.
    pub fn rules(&self, name: &str, schema: &Value, strict: bool) -> Result<Option<String>, GrammarError> {
        let mut rules = Rules {
            notation: self,
            root: schema,
            strict,
            name,
            known: BTreeMap::new(),
            count: 0,
            depth: 0,
            out: String::new(),
        };
        let Some(members) = rules.members(schema)? else { return Ok(None) };
        Ok(Some(format!("{name}: {members}\n{}", rules.out)))
    }
}

/// The rules of one function's arguments, as they are written.
struct Rules<'a> {
    notation: &'a Notation,
    root: &'a Value,
    strict: bool,
    name: &'a str,
    /// The rules of references, so that those in a circle end.
    known: BTreeMap<&'a str, String>,
    count: usize,
    /// Schemas around the one that is written.
    depth: usize,
    out: String,
}

/// Most schemas within each other; references count.
const DEPTH_MAX: usize = 200;

impl<'a> Rules<'a> {
    /// The name of a new rule.
    fn next(&mut self) -> String {
        self.count += 1;
        format!("{}_{}", self.name, self.count)
    }

    /// What may stand between the brackets of an object or a call; none: nothing.
    fn members(&mut self, schema: &'a Value) -> Result<Option<String>, GrammarError> {
        let (is, between) = (self.notation.is, literal(self.notation.between));
        let Some(properties) = schema["properties"].as_object().filter(|properties| !properties.is_empty()) else {
            if schema["additionalProperties"] == false {
                return Ok(None);
            }
            let (any, one) = (self.any(), self.next());
            self.out += &format!("{one}: /[^\\s\"'<>(){{}}\\[\\],:=]+/ {} {any}\n", literal(&is.to_string()));
            return Ok(Some(format!("({one} ({between} {one})*)?")));
        };
        let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut members = Vec::new();
        for (name, of) in self.notation.in_order(properties) {
            // A grammar of this length is refused, so no more is written.
            if self.out.len() > BYTES_MAX {
                break;
            }
            let (rule, value) = (self.next(), self.value(of)?);
            self.out += &format!("{rule}: {} {value}\n", literal(&format!("{name}{is}")));
            members.push((rule, required.iter().any(|known| known == name)));
        }
        // By where the first of them is: those behind it follow, each with what separates it.
        let mut rest = String::new();
        let mut first = Vec::new();
        let needed = members.iter().position(|(_, required)| *required);
        for (index, (rule, required)) in members.iter().enumerate().rev() {
            if needed.is_none_or(|needed| index <= needed) {
                first.push(format!("{rule} {rest}"));
            }
            let after = self.next();
            let optional = if *required { "" } else { "?" };
            self.out += &format!("{after}: ({between} {rule}){optional} {rest}\n");
            rest = after;
        }
        first.reverse();
        let optional = if needed.is_some() { "" } else { "?" };
        Ok(Some(format!("({}){optional}", first.join(" | "))))
    }

    /// An expression for a value.
    fn value(&mut self, schema: &'a Value) -> Result<String, GrammarError> {
        if self.notation.quote.is_none() {
            return Ok(self.json(schema));
        }
        if self.depth == DEPTH_MAX {
            let why = format!("the schema of {} has more than {DEPTH_MAX} levels: make it flatter", self.name);
            return Err(GrammarError::Refused(why));
        }
        self.depth += 1;
        let value = self.value_within(schema);
        self.depth -= 1;
        value
    }

    fn value_within(&mut self, schema: &'a Value) -> Result<String, GrammarError> {
        if let Some(path) = schema["$ref"].as_str() {
            if let Some(rule) = self.known.get(path) {
                return Ok(rule.clone());
            }
            let Some(within) = self.root.pointer(path.strip_prefix('#').unwrap_or(path)) else { return Ok(self.any()) };
            let rule = self.next();
            self.known.insert(path, rule.clone());
            let value = self.value(within)?;
            self.out += &format!("{rule}: {value}\n");
            return Ok(rule);
        }
        let listed = schema["enum"].as_array().cloned().or_else(|| Some(vec![schema.get("const")?.clone()]));
        if let Some(values) = listed {
            let words: Vec<String> = values.iter().map(|value| literal(&self.notation.value(value))).collect();
            return Ok(format!("({})", words.join(" | ")));
        }
        if let Some(choices) = ["anyOf", "oneOf"].into_iter().find_map(|key| schema[key].as_array()) {
            let choices: Result<Vec<String>, _> = choices.iter().map(|choice| self.value(choice)).collect();
            return Ok(format!("({})", choices?.join(" | ")));
        }
        let types: Vec<&str> = match &schema["type"] {
            Value::String(one) => vec![one],
            Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
            _ if schema.get("properties").is_some() => vec!["object"],
            _ if schema.get("items").is_some() => vec!["array"],
            _ => return Ok(self.any()),
        };
        let each: Result<Vec<String>, _> = types.into_iter().map(|of| self.typed(of, schema)).collect();
        Ok(format!("({})", each?.join(" | ")))
    }

    fn typed(&mut self, of: &str, schema: &'a Value) -> Result<String, GrammarError> {
        let quote = self.notation.quote.unwrap_or("\"");
        Ok(match of {
            "string" => {
                let rule = self.next();
                self.out += &text::rule(&rule, schema, quote, self.strict)?;
                format!("{} {rule}", literal(quote))
            }
            "boolean" => "\"true\" | \"false\"".into(),
            "null" => "\"null\"".into(),
            "array" => {
                let item = match schema.get("items") {
                    Some(items) => self.value(items)?,
                    None => self.any(),
                };
                let (between, least) = (literal(self.notation.between), schema["minItems"].as_u64().unwrap_or(0));
                let most = schema["maxItems"].as_u64();
                let more = most.map(|most| most.saturating_sub(1).to_string()).unwrap_or_default();
                let items = format!("{item} ({between} {item}){{{},{more}}}", least.saturating_sub(1));
                match (least, most) {
                    (_, Some(0)) => "\"[\" \"]\"".into(),
                    (0, _) => format!("\"[\" ({items})? \"]\""),
                    _ => format!("\"[\" {items} \"]\""),
                }
            }
            "object" => {
                let members = self.members(schema)?.unwrap_or_default();
                format!("\"{{\" {members} \"}}\"")
            }
            of => {
                let mut own = schema.clone();
                own["type"] = of.into();
                self.json(&own)
            }
        })
    }

    /// A value as JSON; under Python also its words for what JSON writes in small letters.
    fn json(&mut self, schema: &Value) -> String {
        let mut own = tags::resolved(schema, self.root).clone();
        for key in ["$defs", "definitions"] {
            if let (Some(own), Some(definitions)) = (own.as_object_mut(), self.root.get(key)) {
                own.entry(key).or_insert_with(|| definitions.clone());
            }
        }
        let rule = self.next();
        self.out += &format!("{rule}: {}\n", json_rule(&own));
        if self.notation.quote.is_some() {
            return rule;
        }
        let types: Vec<&str> = match &own["type"] {
            Value::String(one) => vec![one],
            Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        let fixed = own.get("enum").is_some() || own.get("const").is_some();
        let word = |of: &str, words: &'static str| if types.contains(&of) && !fixed { words } else { "" };
        format!("({rule}{}{})", word("boolean", " | \"True\" | \"False\""), word("null", " | \"None\""))
    }

    /// The rule of any value.
    fn any(&mut self) -> String {
        let rule = format!("{}_any", self.name);
        if self.known.insert("", rule.clone()).is_some() {
            return rule;
        }
        let Some(quote) = self.notation.quote else {
            self.out += &format!("{rule}: {}\n", json_rule(&Value::Object(serde_json::Map::new())));
            return rule;
        };
        let (quote, between, is) =
            (literal(quote), literal(self.notation.between), literal(&self.notation.is.to_string()));
        self.out += &format!(
            "{rule}: \"true\" | \"false\" | \"null\" | {rule}_number | {quote} {rule}_text \
             | \"[\" ({rule} ({between} {rule})*)? \"]\" | \"{{\" ({rule}_member ({between} {rule}_member)*)? \"}}\"\n\
             {rule}_number: %json {{\"type\": \"number\"}}\n{rule}_text[suffix={quote}]: /(?s:.*)/\n\
             {rule}_member: /[^\\s\"'<>(){{}}\\[\\],:=]+/ {is} {rule}\n"
        );
        rule
    }
}

/// Reads the arguments of one call.
#[derive(Clone, Debug)]
pub struct Reader {
    notation: Notation,
    /// Arguments so far.
    count: usize,
    /// Brackets that are open.
    depth: usize,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    /// Outside of texts, with the letters of a name, a word or a number.
    Word(String),
    /// In a text of JSON; true after a backslash.
    Json(bool),
    /// In a text that stands as it is, with what may be the beginning of its end.
    Text(String),
}

impl Reader {
    /// Before the first argument.
    pub fn new(notation: Notation) -> Self {
        Self { notation, count: 0, depth: 0, state: State::Word(String::new()) }
    }

    /// Reads a letter: JSON that it makes certain, and after the last argument the text behind it.
    pub fn step(&mut self, letter: char) -> (String, Option<String>) {
        let quote = self.notation.quote;
        let given = match &mut self.state {
            State::Json(escaped) => {
                let ends = letter == '"' && !*escaped;
                *escaped = letter == '\\' && !*escaped;
                if ends {
                    self.state = State::Word(String::new());
                }
                letter.to_string()
            }
            State::Text(held) => {
                let end = quote.unwrap_or("\"");
                held.push(letter);
                if let Some(last) = held.strip_suffix(end) {
                    let given = format!("{}\"", tags::escaped(last));
                    self.state = State::Word(String::new());
                    return (given, None);
                }
                let back = (1..end.len()).rev().find(|n| held.ends_with(&end[..*n])).unwrap_or(0);
                let sure: String = held.drain(..held.len() - back).collect();
                tags::escaped(&sure)
            }
            State::Word(word) => {
                let before = std::mem::take(word);
                let outside = self.depth == 0;
                match letter {
                    '"' if quote.is_none() => {
                        self.state = State::Json(false);
                        "\"".into()
                    }
                    '{' | '[' => {
                        self.depth += 1;
                        letter.to_string()
                    }
                    letter if outside && letter == self.notation.is => {
                        self.count += 1;
                        let begin = if self.count == 1 { "{" } else { "" };
                        format!("{begin}{}: ", Value::from(before.trim()))
                    }
                    // A name, unless it was a text of JSON.
                    ':' if !before.is_empty() => format!("{}: ", Value::from(before.trim())),
                    ':' => ": ".into(),
                    ',' => format!("{}, ", as_json(&before)),
                    '}' | ']' | ')' if outside => {
                        let open = if self.count == 0 { "{" } else { "" };
                        return (format!("{}{open}}}", as_json(&before)), Some(letter.to_string()));
                    }
                    '}' | ']' => {
                        self.depth -= 1;
                        format!("{}{letter}", as_json(&before))
                    }
                    ' ' if before.is_empty() => String::new(),
                    letter => {
                        let word = format!("{before}{letter}");
                        self.state =
                            if quote == Some(word.as_str()) { State::Text(String::new()) } else { State::Word(word) };
                        if matches!(self.state, State::Text(_)) { "\"".into() } else { String::new() }
                    }
                }
            }
        };
        (given, None)
    }
}

/// A word or a number.
fn as_json(word: &str) -> &str {
    match word.trim() {
        "True" => "true",
        "False" => "false",
        "None" => "null",
        word => word,
    }
}
