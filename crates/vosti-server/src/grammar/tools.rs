//! Functions that a model may call: how they are shown to it, what a call must look like, and how calls are read back.
//!
//! A call is written in the form that many models are trained on (Hermes, Qwen): a tag, an object with `name` and
//! `arguments`, the closing tag. A chat template that writes this form itself gets the functions as its `tools`; for any
//! other template they are put into the system message, and earlier calls and results into ordinary messages, so that
//! tools work with every chat model. The grammar makes each call well-formed and its arguments valid, always.

use super::json_rule;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";

/// Most functions of a request.
pub const FUNCTIONS_MAX: usize = 128;

/// One function, as the API describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Function {
    /// Letters, digits, `_` and `-`, at most 64.
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON schema of the arguments; none: no arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Value>,
}

/// Whether functions are called. `none` is not here: then there is no grammar.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    /// The model decides; text may come before the calls.
    Auto,
    /// At least one call, and no text.
    Required,
    /// One call of this function, and no text.
    Named(String),
}

/// The functions of a request, and what may be done with them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tools {
    functions: Vec<Function>,
    choice: Choice,
    /// More than one call may come.
    parallel: bool,
}

/// Tools that make no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolsError {
    #[error("tools is empty: leave it out, or describe at least one function")]
    None,
    #[error("there are {0} tools, at most {FUNCTIONS_MAX} are taken")]
    TooMany(usize),
    #[error("tools[{index}].function.name is {name:?}: use 1 to 64 letters, digits, _ and -")]
    Name { index: usize, name: String },
    #[error("tools[{index}].function.name is {name:?} a second time: give each function its own name")]
    Twice { index: usize, name: String },
    #[error("tools[{index}].function.parameters is no JSON schema: give an object like {{\"type\": \"object\", ...}}")]
    Parameters { index: usize },
    #[error("tool_choice names {0:?}, which is not among the tools")]
    Unknown(String),
}

impl Tools {
    /// Checks names.
    pub fn new(functions: Vec<Function>, choice: Choice, parallel: bool) -> Result<Self, ToolsError> {
        if functions.is_empty() {
            return Err(ToolsError::None);
        }
        if functions.len() > FUNCTIONS_MAX {
            return Err(ToolsError::TooMany(functions.len()));
        }
        for (index, function) in functions.iter().enumerate() {
            let name = function.name.clone();
            let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            if name.is_empty() || name.len() > 64 || !name.chars().all(legal) {
                return Err(ToolsError::Name { index, name });
            }
            if function.parameters.as_ref().is_some_and(|schema| !schema.is_object()) {
                return Err(ToolsError::Parameters { index });
            }
            if functions[..index].iter().any(|earlier| earlier.name == name) {
                return Err(ToolsError::Twice { index, name });
            }
        }
        match &choice {
            Choice::Named(name) if !functions.iter().any(|f| f.name == *name) => Err(ToolsError::Unknown(name.clone())),
            _ => Ok(Self { functions, choice, parallel }),
        }
    }

    /// Whether and which functions are called.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// In llguidance's notation: calls, and under `Auto` text that does not hold the opening tag, or text up to it.
    pub(super) fn grammar(&self) -> String {
        let callable = |function: &&Function| match &self.choice {
            Choice::Named(name) => function.name == *name,
            Choice::Auto | Choice::Required => true,
        };
        let functions: Vec<&Function> = self.functions.iter().filter(callable).collect();
        let several = self.parallel && !matches!(self.choice, Choice::Named(_));
        let more = if several { r#"("\n" call)*"# } else { "" };
        let mut rules = match self.choice {
            Choice::Auto => {
                let text = format!("TEXT: /(?s:.*)/ & ~/(?s:.*){OPEN}(?s:.*)/\n");
                let before = format!("before[suffix=\"{OPEN}\"]: /(?s:.*)/\n");
                format!("start: TEXT | before body {more}\n{text}{before}")
            }
            Choice::Required | Choice::Named(_) => format!("start: call {more}\n"),
        };
        rules += &format!("call: \"{OPEN}\" body\nbody: \"\\n\" function \"\\n{CLOSE}\"\n");
        let names: Vec<String> = (0..functions.len()).map(|i| format!("function_{i}")).collect();
        rules += &format!("function: {}\n", names.join(" | "));
        for (name, function) in names.iter().zip(functions) {
            let head = Value::from(format!("{{\"name\": \"{}\", \"arguments\": ", function.name));
            rules += &format!("{name}: {head} {} \"}}\"\n", json_rule(&function.arguments()));
        }
        rules
    }

    /// The functions as a list that templates take.
    fn list(&self) -> Value {
        self.functions.iter().map(|function| json!({ "type": "function", "function": function })).collect()
    }

    /// The description for a model whose template knows no tools.
    fn system_text(&self) -> String {
        let mut text = String::from("You can call these functions, described one per line as JSON:\n<tools>\n");
        for function in &self.functions {
            let described = serde_json::to_string(function).unwrap_or_default();
            text += &described;
            text.push('\n');
        }
        text += "</tools>\nTo call one, write its name and arguments as JSON between tags:\n";
        text + &format!("{OPEN}\n{{\"name\": \"NAME\", \"arguments\": {{}}}}\n{CLOSE}")
    }
}

impl Function {
    /// The schema of its arguments, which are an object if it does not say what they are.
    fn arguments(&self) -> Value {
        let Some(mut schema) = self.parameters.clone() else {
            return json!({ "type": "object", "properties": {}, "additionalProperties": false });
        };
        match schema.as_object_mut() {
            Some(object) if !object.contains_key("$ref") => drop(object.entry("type").or_insert("object".into())),
            _ => {}
        }
        schema
    }
}

/// What a chat template is to be rendered with.
#[derive(Clone, Debug, PartialEq)]
pub struct Rendering {
    pub messages: Value,
    /// For the template's `tools`.
    pub tools: Option<Value>,
}

/// Fits a conversation to a template: `messages` is the API's list, already checked; `template` the template's text.
pub fn rendering(messages: &[Value], tools: Option<&Tools>, template: &str) -> Rendering {
    if template.contains(OPEN) {
        let messages = messages.iter().map(with_parsed_arguments).collect();
        return Rendering { messages, tools: tools.map(Tools::list) };
    }
    let mut plain: Vec<Value> = messages.iter().map(without_calls).collect();
    if let Some(tools) = tools {
        match plain.first_mut().filter(|message| message["role"] == "system") {
            Some(system) => {
                let said = system["content"].as_str().unwrap_or_default();
                system["content"] = format!("{said}\n\n{}", tools.system_text()).into();
            }
            None => plain.insert(0, json!({ "role": "system", "content": tools.system_text() })),
        }
    }
    Rendering { messages: plain.into(), tools: None }
}

/// Templates want arguments as an object; the API has them as text.
fn with_parsed_arguments(message: &Value) -> Value {
    let mut message = message.clone();
    let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
    for call in calls.into_iter().flatten() {
        let arguments = &mut call["function"]["arguments"];
        if let Some(parsed) = arguments.as_str().and_then(|text| serde_json::from_str(text).ok()) {
            *arguments = parsed;
        }
    }
    message
}

/// Calls and results as text, for a template that knows neither.
fn without_calls(message: &Value) -> Value {
    let said = message["content"].as_str().unwrap_or_default();
    if message["role"] == "tool" {
        return json!({ "role": "user", "content": format!("<tool_response>\n{said}\n</tool_response>") });
    }
    let Some(calls) = message["tool_calls"].as_array() else { return message.clone() };
    let mut content = said.to_string();
    for call in calls {
        let (name, arguments) = (&call["function"]["name"], &call["function"]["arguments"]);
        let arguments = arguments.as_str().unwrap_or("{}");
        if !content.is_empty() {
            content.push('\n');
        }
        content += &format!("{OPEN}\n{{\"name\": {name}, \"arguments\": {arguments}}}\n{CLOSE}");
    }
    json!({ "role": message["role"], "content": content })
}

/// A call that a model made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub name: String,
    /// JSON, as the model wrote it.
    pub arguments: String,
}

/// A part of an answer with tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    Text(String),
    /// Complete: calls are not given out in parts.
    Call(Call),
}

/// Reads an answer as it comes: text goes on at once, but what may begin a call waits until it is one.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    pending: String,
    calls: usize,
}

impl Reader {
    /// Calls seen so far.
    pub fn calls(&self) -> usize {
        self.calls
    }

    /// The pieces that `text` makes certain.
    pub fn push(&mut self, text: &str) -> Vec<Piece> {
        self.pending += text;
        let mut pieces = Vec::new();
        while let Some(open) = self.pending.find(OPEN) {
            // White space around a call is not text.
            let before = self.pending.drain(..open).collect::<String>();
            self.give_text(&mut pieces, before.trim_end().to_string());
            // An argument may hold the closing tag: the call ends at the first that leaves whole JSON before it.
            let inside = |end: usize| &self.pending[OPEN.len()..end];
            let mut ends = self.pending.match_indices(CLOSE).map(|(end, _)| end);
            let Some((end, call)) = ends.find_map(|end| Some((end, parse(inside(end))?))) else {
                return pieces;
            };
            self.calls += 1;
            pieces.push(Piece::Call(call));
            self.pending.drain(..end + CLOSE.len());
        }
        let sure = self.pending.len() - held(&self.pending);
        let text: String = self.pending.drain(..sure).collect();
        self.give_text(&mut pieces, text);
        pieces
    }

    /// What is left at the end of the answer: a call that was cut off is text.
    pub fn finish(&mut self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let text = std::mem::take(&mut self.pending);
        self.give_text(&mut pieces, text);
        pieces
    }

    fn give_text(&self, pieces: &mut Vec<Piece>, text: String) {
        let between_calls = self.calls > 0 && text.trim().is_empty();
        if !text.is_empty() && !between_calls {
            pieces.push(Piece::Text(text));
        }
    }
}

/// Bytes at the end that may belong to a call: white space, and the beginning of the tag.
fn held(text: &str) -> usize {
    let tag = (1..OPEN.len()).rev().find(|n| text.ends_with(&OPEN[..*n])).unwrap_or(0);
    let before = &text[..text.len() - tag];
    tag + before.len() - before.trim_end().len()
}

/// `{"name": ..., "arguments": ...}`, the arguments' own text kept.
fn parse(inside: &str) -> Option<Call> {
    #[derive(Deserialize)]
    struct Written<'a> {
        name: String,
        #[serde(borrow)]
        arguments: &'a serde_json::value::RawValue,
    }
    let written: Written = serde_json::from_str(inside.trim()).ok()?;
    Some(Call { name: written.name, arguments: written.arguments.get().to_string() })
}

#[cfg(test)]
mod tests;
