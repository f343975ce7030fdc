//! Functions that a model may call: how the model learns of them, how a call must look, and how calls are read back.
//!
//! A call is written in the form that the chat template asks for (`format.rs` has the forms), and such a template gets the
//! functions where it reads them. For a template without tools the form is Hermes's: the functions go into the system message, and
//! earlier calls and results into ordinary messages, so tools work with every chat model. The grammar makes each call
//! well-formed and its arguments valid, always (`text.rs` has the exceptions). `reader.rs` reads them back.

pub mod format;
pub mod reader;
pub mod tags;
mod text;
pub mod values;

use super::thought::OPEN;
use super::{Grammar, GrammarError, harmony, json_rule, part, relax, slashed};
use format::{Arguments, Form, Format, Literals};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use vosti_engine::Token;
use vosti_model::prompt::Marks;

pub use reader::{Piece, Reader};

/// Most functions of a request.
pub const FUNCTIONS_MAX: usize = 128;

/// One function, as the API describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Function {
    /// Letters, digits, `_` and `-`, at most 64.
    pub name: String,
    /// For the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON schema of the arguments; none: no arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Value>,
    /// A schema that no grammar says is an error, instead of what it leaves out.
    #[serde(skip)]
    pub strict: bool,
}

/// Whether functions are called. `none` is missing, because it needs no grammar.
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
    #[serde(default)]
    format: Format,
    /// The grammar of an answer without calls; none: any text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<Box<Grammar>>,
    /// The token that begins calls, if no text does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mark: Option<Token>,
}

/// Why a request's tools are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum ToolsError {
    #[error("tools is empty: leave it out, or describe at least one function")]
    None,
    #[error("there are {0} tools; the limit is {FUNCTIONS_MAX}")]
    TooMany(usize),
    #[error("tools[{index}].function.name is {name:?}: use 1 to 64 letters, digits, _ and -")]
    Name { index: usize, name: String },
    #[error("tools[{index}].function.name repeats {name:?}: give each function its own name")]
    Twice { index: usize, name: String },
    #[error(
        "tools[{index}].function.parameters is not a JSON schema: give an object like {{\"type\": \"object\", ...}}"
    )]
    Parameters { index: usize },
    #[error("tool_choice names {0:?}, which is not among the tools")]
    Unknown(String),
}

impl ToolsError {
    /// The request's field that is wrong.
    pub fn param(&self) -> String {
        match self {
            Self::None | Self::TooMany(_) => "tools".into(),
            Self::Name { index, .. } | Self::Twice { index, .. } => format!("tools[{index}].function.name"),
            Self::Parameters { index } => format!("tools[{index}].function.parameters"),
            Self::Unknown(_) => "tool_choice".into(),
        }
    }
}

impl Tools {
    /// The tools, checked: their number, their names, their schemas' type, and the named function.
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
            _ => Ok(Self { functions, choice, parallel, format: Format::default(), text: None, mark: None }),
        }
    }

    /// With calls in the form that a chat template asks for, or Hermes's if it has no tools.
    pub fn in_form(self, format: Option<Format>) -> Self {
        Self { format: format.unwrap_or_default(), ..self }
    }

    /// With `text` as the grammar of an answer without calls. Then no text comes before calls, because it would have to be a whole
    /// answer; and none begins with their mark.
    pub fn or(self, text: Grammar) -> Self {
        let text = (self.choice == Choice::Auto).then(|| Box::new(text));
        Self { text, mark: None, ..self }
    }

    /// With calls that a token begins, where text may come before them and `token` knows one for their mark. Text that spells the mark
    /// is then a part of the text.
    pub fn by_token(self, token: impl FnOnce(&str) -> Option<Token>) -> Self {
        let literals = self.format.literals().filter(|literals| self.text_before_calls(literals));
        let mark = literals.filter(|_| self.choice == Choice::Auto).and_then(|literals| token(literals.mark));
        Self { mark, ..self }
    }

    /// The schema of each function's arguments.
    pub fn schemas(&self) -> impl Iterator<Item = Grammar> {
        self.functions.iter().map(|function| Grammar::JsonSchema(function.arguments()))
    }

    /// Whether a function's schema must be said whole.
    pub fn is_strict(&self, index: usize) -> bool {
        self.functions.get(index).is_some_and(|function| function.strict)
    }

    /// The same with arguments that compile, and what they leave out, by its place in the request. None if nothing could be left
    /// out.
    pub(super) fn relaxed(&self, compiles: &dyn Fn(&Value) -> bool) -> Option<(Self, Vec<String>)> {
        let (mut tools, mut left_out) = (self.clone(), Vec::new());
        for (index, function) in tools.functions.iter_mut().enumerate().filter(|(_, function)| !function.strict) {
            let schema = function.arguments();
            if !compiles(&schema) {
                let relaxed = relax::relaxed(&schema, compiles);
                function.parameters = Some(relaxed.schema);
                left_out.extend(relaxed.left_out.iter().map(|at| format!("tools[{index}].function.parameters.{at}")));
            }
        }
        (!left_out.is_empty()).then_some((tools, left_out))
    }

    /// The grammar of an answer without calls.
    pub(super) fn text(&self) -> Option<&Grammar> {
        self.text.as_deref()
    }

    /// Whether functions are called, and which.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// The functions that the choice allows.
    pub(super) fn callable(&self) -> impl Iterator<Item = &Function> {
        let named = match &self.choice {
            Choice::Named(name) => Some(name),
            Choice::Auto | Choice::Required => None,
        };
        self.functions.iter().filter(move |function| named.is_none_or(|name| function.name == *name))
    }

    /// Text may come before the mark of a call.
    fn text_before_calls(&self, literals: &Literals) -> bool {
        literals.anywhere && self.text.is_none()
    }

    /// How each call begins, up to its arguments, with its function's name. Empty unless calls and the text of an answer without
    /// calls are both JSON, so that only the beginning tells them apart.
    pub(super) fn openings(&self) -> Vec<(String, String)> {
        let literals = self.format.literals().filter(|literals| !literals.anywhere);
        let json = matches!(self.text(), Some(Grammar::JsonObject | Grammar::JsonSchema(_)));
        let opening = |name: &str, form: &Literals| format!("{}{}{name}{}", form.mark, form.head, form.middle);
        match literals.filter(|_| json) {
            Some(form) => self.callable().map(|f| (opening(&f.name, form), f.name.clone())).collect(),
            None => Vec::new(),
        }
    }

    /// The grammar in llguidance's notation: calls, and under `Auto` also text without the mark of a call, or text before it. Where a
    /// token is the mark, the grammar takes it for the mark wherever a call may begin, although text could spell it. With
    /// `thoughts`, no text begins as thoughts do, because the lexer could not tell the two apart.
    pub(super) fn grammar(&self, thoughts: bool) -> Result<String, GrammarError> {
        let Some(literals) = self.format.literals() else {
            let held = self.text.as_ref().map(|grammar| grammar.write()).transpose()?;
            return Ok(harmony::of_tools(self, held.as_deref()));
        };
        let functions: Vec<&Function> = self.callable().collect();
        let literal = |text: &str| if text.is_empty() { String::new() } else { Value::from(text).to_string() };
        let several = self.parallel && !matches!(self.choice, Choice::Named(_));
        let more = literals.next.filter(|_| several).map(|next| format!("({} function)*", literal(next)));
        let (mark, pattern) = (literal(literals.mark), escaped(literals.mark));
        let any = if thoughts { format!("/(?s:.*)/ & ~/{}(?s:.*)/", escaped(OPEN)) } else { "/(?s:.*)/".into() };
        let openings = self.openings();
        let mut rules = match self.choice {
            Choice::Auto if !openings.is_empty() => {
                let text = self.text().map(Grammar::write).transpose()?.unwrap_or_default();
                format!("start: held_text | calls\n{}", part(&text, "held_text"))
            }
            Choice::Auto if self.text.is_some() => {
                let text = self.text.as_ref().map(|grammar| beside(grammar, literals)).transpose()?.unwrap_or_default();
                format!("start: held_text | {mark} calls\n{}", part(&text, "held_text"))
            }
            Choice::Auto if let Some(token) = self.mark => format!("start: TEXT? (<[{token}]> calls)?\nTEXT: {any}\n"),
            Choice::Auto if literals.anywhere => {
                let text = format!("TEXT: {any} & ~/(?s:.*){pattern}(?s:.*)/\n");
                let before = format!("before[suffix={mark}]: {any}\n");
                format!("start: TEXT | before calls\n{text}{before}")
            }
            Choice::Auto => {
                let text = format!("TEXT: {any} & ~/{pattern}(?s:.*)/\n");
                format!("start: TEXT | {mark} calls\n{text}")
            }
            Choice::Required | Choice::Named(_) => format!("start: {mark} calls\n"),
        };
        rules += &format!(
            "calls: {} function {} {}\n",
            literal(literals.head),
            more.unwrap_or_default(),
            literal(literals.tail)
        );
        let names: Vec<String> = (0..functions.len()).map(|i| format!("function_{i}")).collect();
        rules += &format!("function: {}\n", names.join(" | "));
        for (index, (name, function)) in names.iter().zip(functions).enumerate() {
            let head = match openings.get(index) {
                Some((opening, _)) => in_words_of_json(opening),
                None => literal(&format!("{}{}", function.name, literals.middle)),
            };
            let (rule, schema) = (format!("{name}_arguments"), function.arguments());
            let arguments = match &literals.arguments {
                Arguments::Json => {
                    rules += &format!("{name}: {head} {}\n", json_rule(&schema));
                    continue;
                }
                Arguments::Tags(tags) => tags::rules(tags, &rule, &schema, function.strict)?,
                Arguments::Values(notation) => notation.rules(&rule, &schema, function.strict)?,
            };
            rules += &match arguments {
                None => format!("{name}: {head}\n"),
                Some(arguments) => format!("{name}: {head} {rule}\n{arguments}"),
            };
        }
        Ok(rules)
    }

    /// The functions as a list that templates take.
    fn list(&self) -> Value {
        self.functions.iter().map(|function| json!({ "type": "function", "function": function })).collect()
    }
}

/// The description of functions, a list as [`Tools::list`] makes it, for a model whose template knows no tools.
fn system_text(functions: &Value) -> String {
    let mut text = String::from("You can call these functions, described one per line as JSON:\n<tools>\n");
    for function in functions.as_array().into_iter().flatten() {
        text += &function["function"].to_string();
        text.push('\n');
    }
    text += "</tools>\nTo call one, write its name and arguments as JSON between tags:\n";
    text + &written("\"NAME\"", "{}")
}

/// The grammar of a text that may stand where a call may: no text of it begins with the mark.
fn beside(grammar: &Grammar, literals: &Literals) -> Result<String, GrammarError> {
    let refused = |why: &str| Err(GrammarError::Refused(why.into()));
    match grammar {
        Grammar::Regex(pattern) => {
            let text = format!("/{}/ & ~/{}(?s:.*)/", slashed(pattern), escaped(literals.mark));
            Ok(format!("start: HELD_TEXT\nHELD_TEXT: {text}"))
        }
        Grammar::Choice(texts) if texts.iter().any(|text| text.starts_with(literals.mark)) => {
            refused("one of its texts begins as a call does: change it, or set tool_choice")
        }
        Grammar::Choice(_) => grammar.write(),
        // Words of the text and of a call, which is JSON here, may begin alike, and the lexer takes the longer one.
        _ if !literals.anywhere => {
            refused("beside tools, because this model's calls are JSON: set tool_choice, or use a schema")
        }
        _ => grammar.write(),
    }
}

/// The beginning of a JSON object, cut into the lexemes that llguidance makes of a schema's objects: the lexer then reads both
/// alike.
fn in_words_of_json(opening: &str) -> String {
    let word = |(index, text): (usize, &str)| if index % 2 == 0 { text.to_string() } else { format!("\"{text}\"") };
    let words = opening.split('"').enumerate().map(word).filter(|word| !word.is_empty());
    words.map(|word| Value::from(word).to_string()).collect::<Vec<_>>().join(" ")
}

impl Function {
    /// The schema of its arguments, which are an object if it does not say what they are.
    pub(super) fn arguments(&self) -> Value {
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

/// The input of a chat template.
#[derive(Clone, Debug)]
pub struct Rendering {
    /// A list of messages, as the template reads them.
    pub messages: Value,
    /// For the template's `tools`.
    pub tools: Option<Value>,
    /// Of both.
    pub marks: Marks,
}

/// Fits a conversation to a template. `messages` is the API's list, already checked; `form` is how the template has tools; `marks`
/// makes the marks of values that are rendered. What clients wrote is marked before words of this module are joined to it.
pub fn rendering(
    messages: &[Value],
    tools: Option<&Tools>,
    form: Option<Form>,
    marks: impl FnOnce(&[Value]) -> Marks,
) -> Rendering {
    let mut messages: Vec<Value> = match form.is_some() {
        true => messages.iter().map(with_parsed_arguments).map(with_thoughts_twice).collect(),
        false => messages.to_vec(),
    };
    let mut tools: Vec<Value> = tools.map(Tools::list).into_iter().collect();
    let mut marks = marks(&[messages.as_slice(), &tools].concat());
    marks.mark_messages(&mut messages);
    tools.iter_mut().for_each(|tools| marks.mark(tools));
    let tools = tools.pop();
    if let Some(form) = form {
        if let Some(literals) = form.format.literals().filter(|_| !form.writes_calls) {
            messages.iter_mut().for_each(|message| write_calls(message, literals));
        }
        let Some(list) = tools.as_ref().filter(|_| form.in_system) else {
            return Rendering { messages: messages.into(), tools, marks };
        };
        if messages.first().is_none_or(|message| message["role"] != "system") {
            messages.insert(0, json!({ "role": "system", "content": "You are a helpful assistant with some tools." }));
        }
        messages[0]["tools"] = functions_of(list).to_string().into();
        return Rendering { messages: messages.into(), tools: None, marks };
    }
    let mut plain: Vec<Value> = messages.iter().map(without_calls).collect();
    if let Some(tools) = tools {
        let described = system_text(&tools);
        match plain.first_mut().filter(|message| message["role"] == "system") {
            Some(system) => {
                let said = system["content"].as_str().unwrap_or_default();
                system["content"] = format!("{said}\n\n{described}").into();
            }
            None => plain.insert(0, json!({ "role": "system", "content": described })),
        }
    }
    Rendering { messages: plain.into(), tools: None, marks }
}

/// Whether a conversation offers tools, or has calls or their results.
pub fn uses_tools(messages: &[Value], tools: Option<&Tools>) -> bool {
    let uses = |message: &Value| message["role"] == "tool" || message.get("tool_calls").is_some();
    tools.is_some() || messages.iter().any(uses)
}

/// Whether [`rendering`] writes turns of its own, which a template may refuse.
pub fn adds_turns(messages: &[Value], tools: Option<&Tools>, form: Option<Form>) -> bool {
    form.is_none() && uses_tools(messages, tools)
}

/// The same for a template that refuses system messages, or two turns of one role in a row: the system's text begins the first turn of
/// the user, and neighbours are one turn.
pub fn joined(rendering: Rendering) -> Rendering {
    let mut turns: Vec<Value> = Vec::new();
    for mut message in rendering.messages.as_array().cloned().unwrap_or_default() {
        if message["role"] == "system" {
            message["role"] = "user".into();
        }
        match turns.last_mut().filter(|last| last["role"] == message["role"]) {
            Some(last) => {
                let text = |message: &Value| message["content"].as_str().unwrap_or_default().to_string();
                last["content"] = format!("{}\n\n{}", text(last), text(&message)).into();
            }
            None => turns.push(message),
        }
    }
    Rendering { messages: turns.into(), ..rendering }
}

/// Arguments as an object, as templates need them; the API has them as text.
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

/// Thoughts under both names: most templates read `reasoning_content`, and gpt-oss's reads `thinking`.
fn with_thoughts_twice(mut message: Value) -> Value {
    if let Some(thought) = message.get("reasoning_content").cloned() {
        message["thinking"] = thought;
    }
    message
}

/// The functions of a list for templates, without what is around each.
fn functions_of(list: &Value) -> Value {
    list.as_array().into_iter().flatten().map(|tool| tool["function"].clone()).collect()
}

/// A message's calls as its text, in the form that the model writes, for a template that asks for calls and does not write them.
fn write_calls(message: &mut Value, literals: &Literals) {
    let Some(calls) = message.as_object_mut().and_then(|message| message.remove("tool_calls")) else { return };
    let calls = calls.as_array().cloned().unwrap_or_default();
    let calls = calls.iter().map(|call| &call["function"]);
    let calls: Vec<_> = calls.map(|call| (call["name"].as_str().unwrap_or_default(), &call["arguments"])).collect();
    let said = message["content"].as_str().unwrap_or_default();
    message["content"] = format!("{said}{}", literals.written(&calls)).into();
}

/// Calls and results as text, for a template without tools.
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
        content += &written(&name.to_string(), arguments);
    }
    json!({ "role": message["role"], "content": content })
}

/// A call in Hermes's form.
fn written(name: &str, arguments: &str) -> String {
    format!("<tool_call>\n{{\"name\": {name}, \"arguments\": {arguments}}}\n</tool_call>")
}

/// A text as a regular expression for itself, between slashes.
fn escaped(text: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_string() } else { format!("\\x{{{:x}}}", u32::from(c)) };
    text.chars().map(letter).collect()
}

#[cfg(test)]
mod tests;
