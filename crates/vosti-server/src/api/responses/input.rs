//! A request of the Responses API as a conversation.

use crate::api::ApiError;
use crate::api::body::Body;
use crate::api::chat::ChatRequest;
use crate::api::fields::{JsonSchema, ResponseFormat, Seed, Stop, StructuredOutputs};
use crate::api::foreign::Place;
use crate::api::messages::{
    CalledFunction, Content, ContentPart, DescribedFunction, FunctionKind, FunctionName, Message, NamedTool, Role,
    TextOrList, Tool, ToolCall, ToolChoice, ToolMode,
};
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use utoipa::ToSchema;

macro_rules! request {
    ({} $($(#[$doc:meta])* $number:ident: $exact:ident as $given:ident = $neutral:literal, $range:tt, $key:literal;)*) => {
        /// A conversation to be continued, in OpenAI's newer form.
        #[derive(Clone, Debug, Default, Deserialize, ToSchema)]
        #[serde(deny_unknown_fields)]
        pub struct ResponsesRequest {
            /// The served model's name; any other is refused. May be left out.
            pub model: Option<String>,
            /// A text of the user, or the items of a conversation.
            #[serde(deserialize_with = "input")]
            pub input: Input,
            /// A system message before the input.
            pub instructions: Option<String>,
            /// Most tokens to generate. Default: what the context leaves.
            #[schema(minimum = 1)]
            pub max_output_tokens: Option<usize>,
            $(
                /// See ChatRequest.
                pub $number: Option<$given>,
            )*
            /// See ChatRequest.
            pub logit_bias: Option<BTreeMap<String, f32>>,
            /// See ChatRequest.
            #[schema(value_type = Option<i64>)]
            pub seed: Option<Seed>,
            /// See ChatRequest.
            pub stop: Option<Stop>,
            /// See ChatRequest.
            pub ignore_eos: Option<bool>,
            /// Send the response as server-sent events. Default false.
            pub stream: Option<bool>,
            /// Functions that the model may call.
            pub tools: Option<Vec<FunctionTool>>,
            /// Whether the model calls them. Default: the model decides.
            pub tool_choice: Option<Choice>,
            /// Allow more than one call in an answer. Default true.
            pub parallel_tool_calls: Option<bool>,
            /// What the text must be.
            pub text: Option<Text>,
            /// See ChatRequest; this or `text.format`.
            pub structured_outputs: Option<StructuredOutputs>,
            /// How much a reasoning model thinks.
            pub reasoning: Option<Reasoning>,
            /// See ChatRequest.
            #[schema(value_type = Option<Object>)]
            pub chat_template_kwargs: Option<Map<String, Value>>,
            /// See ChatRequest.
            pub cache_salt: Option<String>,
            /// See ChatRequest.
            pub vosti_date: Option<String>,
            /// See ChatRequest.
            pub vosti_digest: Option<bool>,
        }

        impl ResponsesRequest {
            fn numbers(&self) -> vosti_engine::Given {
                vosti_engine::Given { $($number: self.$number,)* }
            }
        }
    };
}
vosti_engine::sampling_numbers!([request] {});

impl Body for ResponsesRequest {
    const PLACES: &'static [Place] = &[
        Place::Responses,
        Place::ResponsesItem,
        Place::ResponsesPart,
        Place::ResponsesOutput,
        Place::ResponsesTool,
        Place::ResponsesText,
        Place::ResponsesReasoning,
        Place::StructuredOutputs,
    ];
}

/// The conversation, or a text of the user.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Input {
    Text(String),
    Items(Vec<Item>),
}

fn input<'de, D: Deserializer<'de>>(source: D) -> Result<Input, D::Error> {
    let expected = "a text, or a list of messages, function_call and function_call_output items";
    let input = source.deserialize_any(TextOrList { expected, text: Input::Text, list: Input::Items })?;
    input.ok_or_else(|| de::Error::invalid_type(de::Unexpected::Unit, &expected))
}

impl Default for Input {
    fn default() -> Self {
        Self::Items(Vec::new())
    }
}

/// An item of a conversation: a message, a call, a call's output or thoughts, by its `type`.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Item {
    /// `message` (the default), `function_call`, `function_call_output` or `reasoning`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Of a message.
    pub role: Option<Role>,
    /// Of a message or of reasoning.
    #[serde(default, deserialize_with = "content")]
    pub content: Option<ItemContent>,
    /// Of a call and its output.
    pub call_id: Option<String>,
    /// Of a called function.
    pub name: Option<String>,
    /// Of a called function, JSON.
    pub arguments: Option<String>,
    /// Of a function_call_output.
    #[serde(default, deserialize_with = "content")]
    pub output: Option<ItemContent>,
}

/// A text, or parts of one.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum ItemContent {
    Text(String),
    Parts(Vec<ItemPart>),
}

fn content<'de, D: Deserializer<'de>>(source: D) -> Result<Option<ItemContent>, D::Error> {
    let expected = "a text, or a list of {\"type\": \"input_text\", \"text\": ...}";
    source.deserialize_any(TextOrList { expected, text: ItemContent::Text, list: ItemContent::Parts })
}

/// A part of an item's text.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ItemPart {
    InputText { text: String },
    OutputText { text: String },
    ReasoningText { text: String },
    Refusal { refusal: String },
}

impl ItemContent {
    fn into_content(self) -> Content {
        match self {
            Self::Text(text) => Content::Text(text),
            Self::Parts(parts) => {
                let part = |part| match part {
                    ItemPart::InputText { text }
                    | ItemPart::OutputText { text }
                    | ItemPart::ReasoningText { text }
                    | ItemPart::Refusal { refusal: text } => ContentPart::Text { text },
                };
                Content::Parts(parts.into_iter().map(part).collect())
            }
        }
    }
}

/// A function that the model may call.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FunctionTool {
    /// `function`.
    #[serde(rename = "type")]
    pub kind: FunctionKind,
    pub name: String,
    pub description: Option<String>,
    #[schema(value_type = Option<Object>)]
    pub parameters: Option<Value>,
    /// See DescribedFunction.
    pub strict: Option<bool>,
}

/// Whether tools are used.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected \"none\", \"auto\", \"required\" or {\"type\": \"function\", \"name\": ...}")]
pub enum Choice {
    Mode(ToolMode),
    Named {
        #[serde(rename = "type")]
        kind: FunctionKind,
        name: String,
    },
}

/// What the text must be.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Text {
    pub format: Option<Format>,
}

/// Text, any JSON object, or JSON by a schema.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Format {
    Text {},
    JsonObject {},
    JsonSchema {
        name: Option<String>,
        description: Option<String>,
        #[schema(value_type = Object)]
        schema: Value,
        strict: Option<bool>,
    },
}

/// How much a reasoning model thinks.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Reasoning {
    /// As `reasoning_effort` of a ChatRequest.
    pub effort: Option<String>,
    /// Accepted and ignored: thoughts are shown unchanged.
    pub summary: Option<String>,
}

impl ResponsesRequest {
    /// The fields that the response repeats.
    pub fn echo(&self) -> Value {
        let format = match self.text.as_ref().and_then(|text| text.format.as_ref()) {
            None | Some(Format::Text {}) => json!({ "type": "text" }),
            Some(Format::JsonObject {}) => json!({ "type": "json_object" }),
            Some(Format::JsonSchema { name, description, schema, strict }) => {
                json!({ "type": "json_schema", "name": name, "description": description, "schema": schema, "strict": strict })
            }
        };
        let choice = match &self.tool_choice {
            None | Some(Choice::Mode(ToolMode::Auto)) => json!("auto"),
            Some(Choice::Mode(ToolMode::None)) => json!("none"),
            Some(Choice::Mode(ToolMode::Required)) => json!("required"),
            Some(Choice::Named { name, .. }) => json!({ "type": "function", "name": name }),
        };
        let effort = self.reasoning.as_ref().and_then(|reasoning| reasoning.effort.clone());
        json!({
            "instructions": self.instructions, "max_output_tokens": self.max_output_tokens, "metadata": {},
            "parallel_tool_calls": self.parallel_tool_calls.unwrap_or(true),
            "reasoning": { "effort": effort, "summary": null }, "text": { "format": format },
            "tool_choice": choice, "tools": self.tools.clone().unwrap_or_default(), "user": null,
        })
    }

    /// The same as a chat request.
    pub fn into_chat(self) -> Result<ChatRequest, ApiError> {
        let numbers = self.numbers();
        let mut messages = Vec::new();
        messages.extend(self.instructions.map(|text| said(Role::System, Content::Text(text))));
        match self.input {
            Input::Text(text) => messages.push(said(Role::User, Content::Text(text))),
            Input::Items(items) if items.is_empty() => {
                return Err(ApiError::field("input", "input is empty: give a text"));
            }
            Input::Items(items) => conversation(items, &mut messages)?,
        }
        let tool = |tool: FunctionTool| Tool {
            kind: FunctionKind::Function,
            function: DescribedFunction {
                name: tool.name,
                description: tool.description,
                parameters: tool.parameters,
                strict: tool.strict,
            },
        };
        let choice = |choice| match choice {
            Choice::Mode(mode) => ToolChoice::Mode(mode),
            Choice::Named { kind, name } => ToolChoice::Named(NamedTool { kind, function: FunctionName { name } }),
        };
        let format = |format| match format {
            Format::Text {} => ResponseFormat::Text {},
            Format::JsonObject {} => ResponseFormat::JsonObject {},
            Format::JsonSchema { name, description, schema, strict } => {
                ResponseFormat::JsonSchema { json_schema: JsonSchema { name, description, schema, strict } }
            }
        };
        let mut chat = ChatRequest {
            messages,
            model: self.model,
            max_tokens: self.max_output_tokens,
            logit_bias: self.logit_bias,
            seed: self.seed,
            stop: self.stop,
            ignore_eos: self.ignore_eos,
            stream: self.stream,
            tools: self.tools.map(|tools| tools.into_iter().map(tool).collect()),
            tool_choice: self.tool_choice.map(choice),
            parallel_tool_calls: self.parallel_tool_calls,
            response_format: self.text.and_then(|text| text.format).map(format),
            structured_outputs: self.structured_outputs,
            chat_template_kwargs: self.chat_template_kwargs,
            reasoning_effort: self.reasoning.and_then(|reasoning| reasoning.effort),
            cache_salt: self.cache_salt,
            vosti_date: self.vosti_date,
            vosti_digest: self.vosti_digest,
            ..ChatRequest::default()
        };
        chat.set_numbers(numbers);
        Ok(chat)
    }
}

fn said(role: Role, content: Content) -> Message {
    Message { content: Some(content), ..Message::of(role) }
}

/// Items as messages: thoughts and calls belong to the assistant's message beside them.
fn conversation(items: Vec<Item>, messages: &mut Vec<Message>) -> Result<(), ApiError> {
    // Whether the last message is the assistant's and still open.
    let mut open = false;
    for (index, item) in items.into_iter().enumerate() {
        let missing = |field: &str| {
            let param = format!("input[{index}].{field}");
            ApiError::field(&param, format!("{param} is missing"))
        };
        let kind = item.kind.as_deref().unwrap_or("message");
        let assistant = matches!(kind, "function_call" | "reasoning") || item.role == Some(Role::Assistant);
        // A message has one text, and its thoughts come before it.
        let spoke = messages.last().is_some_and(|last| last.content.is_some());
        let called = messages.last().is_some_and(|last| last.tool_calls.is_some());
        let next = spoke && kind != "function_call" || called && kind == "reasoning";
        if assistant && (!open || next) {
            messages.push(Message::of(Role::Assistant));
        }
        open = assistant;
        let last = messages.last_mut();
        match (kind, last) {
            ("message", Some(last)) if assistant => {
                last.content = Some(item.content.map_or(Content::Text(String::new()), ItemContent::into_content));
            }
            ("message", _) => {
                let role = item.role.ok_or_else(|| missing("role"))?;
                messages.push(said(role, item.content.ok_or_else(|| missing("content"))?.into_content()));
            }
            ("reasoning", Some(last)) => {
                let more = item.content.map(|content| content.into_content().into_text());
                let thoughts = last.reasoning_content.take().into_iter().chain(more).collect::<Vec<_>>();
                last.reasoning_content = (!thoughts.is_empty()).then(|| thoughts.join("\n"));
            }
            ("function_call", Some(last)) => last.tool_calls.get_or_insert_default().push(ToolCall {
                id: item.call_id.ok_or_else(|| missing("call_id"))?,
                kind: FunctionKind::Function,
                function: CalledFunction {
                    name: item.name.ok_or_else(|| missing("name"))?,
                    arguments: item.arguments.unwrap_or_else(|| "{}".into()),
                },
            }),
            ("function_call_output", _) => {
                let output = item.output.map_or(Content::Text(String::new()), ItemContent::into_content);
                let mut message = said(Role::Tool, output);
                message.tool_call_id = Some(item.call_id.ok_or_else(|| missing("call_id"))?);
                messages.push(message);
            }
            (kind, _) => {
                let param = format!("input[{index}].type");
                let message =
                    format!("{param} is {kind:?}: messages, calls, their outputs and reasoning are supported");
                return Err(ApiError::field(param, message));
            }
        }
    }
    // Items of encrypted thoughts leave an empty message, which is removed.
    messages.retain(|message| {
        message.role != Role::Assistant
            || message.content.is_some()
            || message.tool_calls.is_some()
            || message.reasoning_content.is_some()
    });
    Ok(())
}
