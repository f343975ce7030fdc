//! A conversation: its messages, its tools, and how both become the template's input.

use super::ApiError;
use crate::grammar::tools::{Choice, Function, Tools};
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};
use std::fmt;
use utoipa::ToSchema;

/// One message.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Message {
    pub role: Role,
    #[serde(default, deserialize_with = "content")]
    pub content: Option<Content>,
    /// The speaker's name; templates that know names show it.
    pub name: Option<String>,
    /// Calls that the assistant made.
    pub tool_calls: Option<Vec<ToolCall>>,
    /// Which call a `tool` message answers.
    pub tool_call_id: Option<String>,
    /// What the assistant thought, for templates that show it.
    pub reasoning_content: Option<String>,
    /// The same under vLLM's name.
    pub reasoning: Option<String>,
}

/// Who speaks. `developer` means `system`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    System,
    Developer,
    User,
    Assistant,
    Tool,
}

/// A text, or parts that are joined with a line break.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Content {
    Text(String),
    Parts(Vec<ContentPart>),
}

/// A part of a message.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ContentPart {
    Text {
        text: String,
    },
    /// What an assistant said instead of an answer.
    Refusal {
        refusal: String,
    },
}

fn content<'de, D: Deserializer<'de>>(source: D) -> Result<Option<Content>, D::Error> {
    let expected = "a text, or a list of {\"type\": \"text\", \"text\": ...}";
    source.deserialize_any(TextOrList { expected, text: Content::Text, list: Content::Parts })
}

/// Reads a text or a list. Its error says which entry is wrong; the error of an untagged enumeration does not.
pub struct TextOrList<T, O> {
    pub expected: &'static str,
    pub text: fn(String) -> O,
    pub list: fn(Vec<T>) -> O,
}

impl<'de, T: Deserialize<'de>, O> Visitor<'de> for TextOrList<T, O> {
    type Value = Option<O>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.expected)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        self.visit_string(text.to_string())
    }

    fn visit_string<E: de::Error>(self, text: String) -> Result<Self::Value, E> {
        Ok(Some((self.text)(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = list.next_element()? {
            entries.push(entry);
        }
        Ok(Some((self.list)(entries)))
    }
}

impl Content {
    pub(super) fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Parts(parts) => {
                let text = |part| match part {
                    ContentPart::Text { text } | ContentPart::Refusal { refusal: text } => text,
                };
                parts.into_iter().map(text).collect::<Vec<String>>().join("\n")
            }
        }
    }
}

/// A call of a function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolCall {
    pub id: String,
    /// `function`.
    #[serde(rename = "type", default)]
    pub kind: FunctionKind,
    pub function: CalledFunction,
}

/// The only kind of tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FunctionKind {
    #[default]
    Function,
}

/// Name and arguments of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CalledFunction {
    pub name: String,
    /// JSON.
    pub arguments: String,
}

/// A tool that the model may use.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    /// `function`.
    #[serde(rename = "type", default)]
    pub kind: FunctionKind,
    pub function: DescribedFunction,
}

/// A function as a client describes it.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DescribedFunction {
    /// Letters, digits, `_` and `-`, at most 64.
    pub name: String,
    pub description: Option<String>,
    /// JSON schema of the arguments. Default: no arguments.
    #[schema(value_type = Option<Object>)]
    pub parameters: Option<Value>,
    /// Refuse a schema that a grammar cannot express. Default false: the parts that it cannot express are left out, and the header
    /// `x-vosti-warning` names them; a call always follows the rest.
    pub strict: Option<bool>,
}

/// Whether tools are used.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(
    untagged,
    expecting = "expected \"none\", \"auto\", \"required\" or {\"type\": \"function\", \"function\": {\"name\": ...}}"
)]
pub enum ToolChoice {
    Mode(ToolMode),
    Named(NamedTool),
}

/// Whether the model may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolMode {
    /// No calls; the model is not told of the tools.
    None,
    /// The model decides.
    Auto,
    /// At least one call, and no text.
    Required,
}

/// A call of this function, and no text.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NamedTool {
    #[serde(rename = "type")]
    pub kind: FunctionKind,
    pub function: FunctionName,
}

/// One of the request's functions.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FunctionName {
    pub name: String,
}

/// Messages as a list that `grammar::tools::rendering` takes.
pub fn list(messages: Vec<Message>) -> Result<Vec<Value>, ApiError> {
    if messages.is_empty() {
        return Err(ApiError::field("messages", "messages is empty: give at least one"));
    }
    messages.into_iter().enumerate().map(|(index, message)| message.into_json(index)).collect()
}

impl Message {
    /// An empty message of this role.
    pub fn of(role: Role) -> Self {
        Self {
            role,
            content: None,
            name: None,
            tool_calls: None,
            tool_call_id: None,
            reasoning_content: None,
            reasoning: None,
        }
    }

    fn into_json(self, index: usize) -> Result<Value, ApiError> {
        let wrong = |field: &str, what: &str| {
            let param = format!("messages[{index}].{field}");
            Err(ApiError::field(&param, format!("{param} {what}")))
        };
        let role = match self.role {
            Role::System | Role::Developer => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        };
        if self.tool_calls.is_some() && self.role != Role::Assistant {
            return wrong("tool_calls", "belongs to a message of the assistant");
        }
        if self.tool_call_id.is_some() && self.role != Role::Tool {
            return wrong("tool_call_id", "belongs to a message of role tool");
        }
        let mut calls = self.tool_calls.filter(|calls| !calls.is_empty());
        for (place, call) in calls.iter_mut().flatten().enumerate() {
            let arguments = &mut call.function.arguments;
            if arguments.trim().is_empty() {
                *arguments = "{}".into();
            } else if !matches!(serde_json::from_str(arguments), Ok(Value::Object(_))) {
                return wrong(&format!("tool_calls[{place}].function.arguments"), "is not a JSON object");
            }
        }
        let thought = self.reasoning_content.or(self.reasoning);
        // An assistant may only call or think, and a tool may have nothing to say. Templates do arithmetic on texts.
        let content = match (self.content, self.role) {
            (Some(content), _) => content.into_text(),
            (None, Role::Assistant | Role::Tool) => String::new(),
            (None, _) => return wrong("content", "is missing"),
        };
        let mut message = Map::new();
        message.insert("role".into(), role.into());
        message.insert("content".into(), content.into());
        message.extend(self.name.map(|name| ("name".to_string(), name.into())));
        message.extend(self.tool_call_id.map(|id| ("tool_call_id".to_string(), id.into())));
        message.extend(calls.map(|calls| ("tool_calls".to_string(), json!(calls))));
        message.extend(thought.map(|text| ("reasoning_content".to_string(), text.into())));
        Ok(message.into())
    }
}

/// The tools that may be called; none if the request has no tools, or if `tool_choice` is `none`.
pub fn tools(
    tools: Option<Vec<Tool>>,
    choice: Option<ToolChoice>,
    parallel: Option<bool>,
) -> Result<Option<Tools>, ApiError> {
    let Some(tools) = tools.filter(|tools| !tools.is_empty()) else {
        return match choice {
            None | Some(ToolChoice::Mode(ToolMode::None | ToolMode::Auto)) => Ok(None),
            Some(_) => Err(ApiError::field("tool_choice", "tool_choice asks for a call and there are no tools")),
        };
    };
    let choice = match choice {
        Some(ToolChoice::Mode(ToolMode::None)) => return Ok(None),
        None | Some(ToolChoice::Mode(ToolMode::Auto)) => Choice::Auto,
        Some(ToolChoice::Mode(ToolMode::Required)) => Choice::Required,
        Some(ToolChoice::Named(named)) => Choice::Named(named.function.name),
    };
    let functions = tools.into_iter().map(|tool| Function {
        name: tool.function.name,
        description: tool.function.description,
        parameters: tool.function.parameters,
        strict: tool.function.strict.unwrap_or(false),
    });
    let tools = Tools::new(functions.collect(), choice, parallel.unwrap_or(true));
    tools.map(Some).map_err(|error| ApiError::field(error.param(), error.to_string()))
}
