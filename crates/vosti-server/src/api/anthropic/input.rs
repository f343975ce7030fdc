//! A request of the Messages API as a conversation.

use crate::api::ApiError;
use crate::api::body::Body;
use crate::api::chat::ChatRequest;
use crate::api::fields::{JsonSchema, ResponseFormat, Seed, Stop};
use crate::api::foreign::Place;
use crate::api::messages::{
    CalledFunction, Content, ContentPart, DescribedFunction, FunctionKind, FunctionName, Message, NamedTool, Role,
    TextOrList, Tool, ToolCall, ToolChoice, ToolMode,
};
use serde::{Deserialize, Deserializer, de};
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// A conversation to be continued, in Anthropic's form.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MessagesRequest {
    /// The served model's name; any other is refused. May be left out.
    pub model: Option<String>,
    /// The conversation. If the last message is the assistant's and ends with text, the answer continues it.
    pub messages: Vec<Turn>,
    /// A system message before the conversation.
    #[serde(default, deserialize_with = "texts")]
    pub system: Option<Texts>,
    /// Most tokens to generate. Default: what the context leaves.
    #[schema(minimum = 1)]
    pub max_tokens: Option<usize>,
    /// See ChatRequest.
    pub temperature: Option<f32>,
    /// See ChatRequest.
    pub top_p: Option<f32>,
    /// See ChatRequest.
    pub top_k: Option<i64>,
    /// See ChatRequest.
    #[schema(value_type = Option<i64>)]
    pub seed: Option<Seed>,
    /// The answer ends before any of these texts.
    pub stop_sequences: Option<Vec<String>>,
    /// Send the message as server-sent events. Default false.
    pub stream: Option<bool>,
    /// Functions that the model may call.
    pub tools: Option<Vec<InputTool>>,
    /// Whether the model calls them. Default: the model decides.
    pub tool_choice: Option<Choice>,
    /// Whether a reasoning model thinks. Default: its template's.
    pub thinking: Option<Thinking>,
    /// How much a reasoning model thinks, and what the answer must be.
    pub output_config: Option<OutputConfig>,
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

/// A conversation whose tokens are counted.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CountRequest {
    pub model: Option<String>,
    pub messages: Vec<Turn>,
    #[serde(default, deserialize_with = "texts")]
    pub system: Option<Texts>,
    pub tools: Option<Vec<InputTool>>,
    pub tool_choice: Option<Choice>,
    pub thinking: Option<Thinking>,
    pub output_config: Option<OutputConfig>,
    #[schema(value_type = Option<Object>)]
    pub chat_template_kwargs: Option<Map<String, Value>>,
}

const PLACES: &[Place] =
    &[Place::Messages, Place::MessagesSystem, Place::MessagesBlock, Place::MessagesText, Place::MessagesTool];

impl Body for MessagesRequest {
    const PLACES: &'static [Place] = PLACES;
}

impl Body for CountRequest {
    const PLACES: &'static [Place] = PLACES;
}

/// A message of the user or the assistant.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// `user` or `assistant`; also `system`.
    pub role: Role,
    #[serde(deserialize_with = "blocks")]
    pub content: Blocks,
}

/// A text, or blocks.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Blocks {
    Text(String),
    Blocks(Vec<Block>),
}

fn blocks<'de, D: Deserializer<'de>>(source: D) -> Result<Blocks, D::Error> {
    let expected = "a text, or a list of text, thinking, tool_use and tool_result blocks";
    let blocks = source.deserialize_any(TextOrList { expected, text: Blocks::Text, list: Blocks::Blocks })?;
    blocks.ok_or_else(|| de::Error::invalid_type(de::Unexpected::Unit, &expected))
}

/// A part of a turn.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Block {
    Text {
        text: String,
    },
    Thinking {
        thinking: String,
        /// Accepted and ignored.
        signature: Option<String>,
    },
    /// Encrypted thoughts of another server: accepted and ignored.
    RedactedThinking {
        data: String,
    },
    ToolUse {
        id: String,
        name: String,
        #[schema(value_type = Object)]
        input: Value,
    },
    ToolResult {
        tool_use_id: String,
        #[serde(default, deserialize_with = "texts")]
        content: Option<Texts>,
        /// Accepted and ignored: the text has the error.
        is_error: Option<bool>,
    },
}

/// A text, or several that are joined with a line break.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Texts {
    Text(String),
    Blocks(Vec<TextBlock>),
}

fn texts<'de, D: Deserializer<'de>>(source: D) -> Result<Option<Texts>, D::Error> {
    let expected = "a text, or a list of {\"type\": \"text\", \"text\": ...}";
    source.deserialize_any(TextOrList { expected, text: Texts::Text, list: Texts::Blocks })
}

/// A text.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum TextBlock {
    Text { text: String },
}

/// A function that the model may call.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct InputTool {
    pub name: String,
    pub description: Option<String>,
    /// JSON schema of the arguments.
    #[schema(value_type = Object)]
    pub input_schema: Value,
    /// See DescribedFunction.
    pub strict: Option<bool>,
}

/// Whether tools are used.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Choice {
    Auto { disable_parallel_tool_use: Option<bool> },
    Any { disable_parallel_tool_use: Option<bool> },
    Tool { name: String, disable_parallel_tool_use: Option<bool> },
    None {},
}

/// Whether a reasoning model thinks.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Thinking {
    Enabled {
        /// Accepted and ignored: `max_tokens` bounds thoughts and answer together.
        budget_tokens: Option<u64>,
        /// Accepted and ignored: thoughts are shown unchanged.
        display: Option<String>,
    },
    Adaptive {
        /// Accepted and ignored: thoughts are shown unchanged.
        display: Option<String>,
    },
    Disabled {},
}

/// How much a reasoning model thinks, and what the answer must be.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputConfig {
    /// The template sees it as `reasoning_effort`. It changes nothing if the template does not use it.
    pub effort: Option<String>,
    pub format: Option<OutputFormat>,
}

/// JSON by a schema.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum OutputFormat {
    JsonSchema {
        #[schema(value_type = Object)]
        schema: Value,
    },
}

impl Texts {
    fn into_content(self) -> Content {
        match self {
            Self::Text(text) => Content::Text(text),
            Self::Blocks(blocks) => {
                let part = |TextBlock::Text { text }| ContentPart::Text { text };
                Content::Parts(blocks.into_iter().map(part).collect())
            }
        }
    }
}

impl CountRequest {
    /// The same as a chat request.
    pub fn into_chat(self) -> Result<ChatRequest, ApiError> {
        let Self { model, messages, system, tools, tool_choice, thinking, output_config, chat_template_kwargs } = self;
        let rest = MessagesRequest { output_config, chat_template_kwargs, ..MessagesRequest::default() };
        MessagesRequest { model, messages, system, tools, tool_choice, thinking, ..rest }.into_chat()
    }
}

impl MessagesRequest {
    /// The same as a chat request.
    pub fn into_chat(self) -> Result<ChatRequest, ApiError> {
        let open = self.messages.last().is_some_and(|turn| turn.role == Role::Assistant && turn.content.speaks());
        let mut messages = Vec::new();
        if let Some(system) = self.system {
            messages.push(Message { content: Some(system.into_content()), ..Message::of(Role::System) });
        }
        for (index, turn) in self.messages.into_iter().enumerate() {
            turn.into_messages(index, &mut messages)?;
        }
        let tool = |tool: InputTool| Tool {
            kind: FunctionKind::Function,
            function: DescribedFunction {
                name: tool.name,
                description: tool.description,
                parameters: Some(tool.input_schema),
                strict: tool.strict,
            },
        };
        let (choice, alone) = match self.tool_choice {
            None => (None, None),
            Some(Choice::None {}) => (Some(ToolChoice::Mode(ToolMode::None)), None),
            Some(Choice::Auto { disable_parallel_tool_use }) => {
                (Some(ToolChoice::Mode(ToolMode::Auto)), disable_parallel_tool_use)
            }
            Some(Choice::Any { disable_parallel_tool_use }) => {
                (Some(ToolChoice::Mode(ToolMode::Required)), disable_parallel_tool_use)
            }
            Some(Choice::Tool { name, disable_parallel_tool_use }) => {
                let named = NamedTool { kind: FunctionKind::Function, function: FunctionName { name } };
                (Some(ToolChoice::Named(named)), disable_parallel_tool_use)
            }
        };
        let OutputConfig { effort, format } = self.output_config.unwrap_or_default();
        let thinks = self.thinking.map(|thinking| !matches!(thinking, Thinking::Disabled {}));
        let mut variables = self.chat_template_kwargs.unwrap_or_default();
        for (name, value) in
            [("enable_thinking", thinks.map(Value::from)), ("reasoning_effort", effort.map(Value::from))]
        {
            value.into_iter().for_each(|value| _ = variables.entry(name).or_insert(value));
        }
        let format = format.map(|OutputFormat::JsonSchema { schema }| ResponseFormat::JsonSchema {
            json_schema: JsonSchema { name: None, description: None, schema, strict: None },
        });
        Ok(ChatRequest {
            messages,
            model: self.model,
            max_tokens: self.max_tokens,
            temperature: self.temperature,
            top_p: self.top_p,
            top_k: self.top_k,
            seed: self.seed,
            stop: self.stop_sequences.map(Stop::Many),
            stream: self.stream,
            tools: self.tools.map(|tools| tools.into_iter().map(tool).collect()),
            tool_choice: choice,
            parallel_tool_calls: alone.map(|alone| !alone),
            continue_final_message: Some(open),
            response_format: format,
            chat_template_kwargs: Some(variables),
            cache_salt: self.cache_salt,
            vosti_date: self.vosti_date,
            vosti_digest: self.vosti_digest,
            ..ChatRequest::default()
        })
    }
}

impl Blocks {
    /// Its last block is text, which an answer can continue.
    fn speaks(&self) -> bool {
        match self {
            Self::Text(_) => true,
            Self::Blocks(blocks) => matches!(blocks.last(), Some(Block::Text { .. })),
        }
    }
}

impl Turn {
    /// Adds the turn's messages. Results of calls become messages of their own, before the user's text.
    fn into_messages(self, index: usize, messages: &mut Vec<Message>) -> Result<(), ApiError> {
        let wrong = |at: String, why: &str| Err(ApiError::field(&at, format!("{at} {why}")));
        if !matches!(self.role, Role::User | Role::Assistant | Role::System) {
            return wrong(format!("messages[{index}].role"), "must be user, assistant or system");
        }
        let blocks = match self.content {
            Blocks::Text(text) => vec![Block::Text { text }],
            Blocks::Blocks(blocks) => blocks,
        };
        let assistant = self.role == Role::Assistant;
        let mut message = Message::of(self.role);
        let (mut texts, mut calls, mut thoughts) = (Vec::new(), Vec::new(), Vec::new());
        for (place, block) in blocks.into_iter().enumerate() {
            let at = || format!("messages[{index}].content[{place}]");
            match block {
                Block::Text { text } => texts.push(ContentPart::Text { text }),
                Block::Thinking { thinking, .. } if assistant => thoughts.push(thinking),
                Block::RedactedThinking { .. } if assistant => {}
                Block::ToolUse { id, name, input } if assistant => calls.push(ToolCall {
                    id,
                    kind: FunctionKind::Function,
                    function: CalledFunction { name, arguments: input.to_string() },
                }),
                Block::ToolResult { tool_use_id, content, .. } if self.role == Role::User => {
                    let content = content.map_or(Content::Text(String::new()), Texts::into_content);
                    let of = Message::of(Role::Tool);
                    messages.push(Message { content: Some(content), tool_call_id: Some(tool_use_id), ..of });
                }
                Block::ToolResult { .. } => return wrong(at(), "belongs to a message of the user"),
                Block::Thinking { .. } | Block::RedactedThinking { .. } | Block::ToolUse { .. } => {
                    return wrong(at(), "belongs to a message of the assistant");
                }
            }
        }
        message.reasoning_content = (!thoughts.is_empty()).then(|| thoughts.join("\n"));
        message.tool_calls = (!calls.is_empty()).then_some(calls);
        message.content = (!texts.is_empty()).then_some(Content::Parts(texts));
        if message.content.is_some() || message.tool_calls.is_some() {
            messages.push(message);
        }
        Ok(())
    }
}
