//! A request of ollama's API as a chat or text completion.

use crate::api::ApiError;
use crate::api::body::Body;
use crate::api::chat::ChatRequest;
use crate::api::completions::{CompletionRequest, Prompt};
use crate::api::fields::{JsonSchema, ResponseFormat, Seed, Stop};
use crate::api::foreign::Place;
use crate::api::messages::{CalledFunction, Content, FunctionKind, Message, Role, Tool, ToolCall};
use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

/// A conversation to be continued, in ollama's form.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OllamaChat {
    /// The served model's name, with or without `:latest`.
    pub model: Option<String>,
    /// Without one, the answer only says that the model is loaded.
    #[serde(default)]
    pub messages: Vec<OllamaMessage>,
    /// Functions that the model may call.
    pub tools: Option<Vec<Tool>>,
    /// `json`, or a JSON schema.
    #[schema(value_type = Option<Object>)]
    pub format: Option<Value>,
    pub options: Option<OllamaOptions>,
    /// Send lines of JSON as the answer comes. Default true.
    pub stream: Option<bool>,
    /// Whether a reasoning model thinks: true, false, or how much (`low`, `medium`, `high`).
    #[schema(value_type = Option<bool>)]
    pub think: Option<Think>,
    /// The model stays until the server ends; but where nothing is to be answered, the answer to 0 says that it was unloaded.
    pub keep_alive: Option<KeepAlive>,
    /// See ChatRequest.
    pub vosti_date: Option<String>,
}

/// A text to be answered or continued, in ollama's form.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OllamaGenerate {
    /// The served model's name, with or without `:latest`.
    pub model: Option<String>,
    /// A message of the user; the text to continue with `raw`, with `suffix`, or if the model has no chat template. Without one, the
    /// answer only says that the model is loaded.
    pub prompt: Option<String>,
    /// The text after the answer: the model fills the gap.
    pub suffix: Option<String>,
    /// A system message before the prompt.
    pub system: Option<String>,
    /// Continue the prompt as it is, without the chat template. Default false.
    pub raw: Option<bool>,
    /// `json`, or a JSON schema.
    #[schema(value_type = Option<Object>)]
    pub format: Option<Value>,
    pub options: Option<OllamaOptions>,
    /// Send lines of JSON as the answer comes. Default true.
    pub stream: Option<bool>,
    /// See OllamaChat.
    #[schema(value_type = Option<bool>)]
    pub think: Option<Think>,
    /// See OllamaChat.
    pub keep_alive: Option<KeepAlive>,
}

/// Which model is asked about.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OllamaShow {
    pub model: Option<String>,
    /// `model` under its former name.
    pub name: Option<String>,
}

/// One message.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OllamaMessage {
    pub role: Role,
    pub content: Option<String>,
    /// What the assistant thought.
    pub thinking: Option<String>,
    /// Calls that the assistant made.
    pub tool_calls: Option<Vec<OllamaCall>>,
    /// Whose result a `tool` message is.
    pub tool_name: Option<String>,
    /// The same under its former name.
    pub name: Option<String>,
    /// Which call a `tool` message answers.
    pub tool_call_id: Option<String>,
}

/// A call of a function.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OllamaCall {
    pub id: Option<String>,
    #[serde(rename = "type")]
    pub kind: Option<FunctionKind>,
    pub function: OllamaFunction,
}

/// Name and arguments of a call.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OllamaFunction {
    pub name: String,
    #[schema(value_type = Option<Object>)]
    pub arguments: Option<Map<String, Value>>,
}

/// Whether a model thinks, or how much.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "expected true, false, \"low\", \"medium\" or \"high\"")]
pub enum Think {
    Whether(bool),
    How(String),
}

/// How long a model is to stay: a number of seconds, or a duration such as `5m`, `0s` or `-1s`.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a number of seconds, or a duration such as 5m")]
pub enum KeepAlive {
    Seconds(f64),
    Duration(String),
}

macro_rules! options {
    ({} $($(#[$doc:meta])* $number:ident: $exact:ident as $given:ident = $neutral:literal, $range:tt, $key:literal;)*) => {
        /// How tokens are drawn. See ChatRequest for each.
        #[derive(Clone, Debug, Default, Deserialize, ToSchema)]
        #[serde(deny_unknown_fields)]
        pub struct OllamaOptions {
            $(pub $number: Option<$given>,)*
            /// `repetition_penalty` under ollama's name.
            pub repeat_penalty: Option<f32>,
            #[schema(value_type = Option<i64>)]
            pub seed: Option<Seed>,
            pub stop: Option<Stop>,
            /// Most tokens to generate; -1 and -2: as many as the context leaves, which is the default.
            pub num_predict: Option<i64>,
        }

        impl OllamaOptions {
            fn numbers(&self) -> vosti_engine::Given {
                vosti_engine::Given { $($number: self.$number,)* }
            }
        }
    };
}
vosti_engine::sampling_numbers!([options] {});

const PLACES: &[Place] =
    &[Place::Ollama, Place::OllamaOptions, Place::OllamaMessage, Place::OllamaCall, Place::Tool, Place::Function];

// The commands of ollama's documentation are curl's with `-d`, which says that a body is a form.
impl Body for OllamaChat {
    const PLACES: &'static [Place] = PLACES;
    const UNNAMED: bool = true;
}

impl Body for OllamaGenerate {
    const PLACES: &'static [Place] = PLACES;
    const UNNAMED: bool = true;
}

impl Body for OllamaShow {
    const PLACES: &'static [Place] = &[Place::Ollama];
    const UNNAMED: bool = true;
}

/// The model's name without ollama's default tag.
fn named(model: Option<String>) -> Option<String> {
    model.map(|name| name.strip_suffix(":latest").map(str::to_string).unwrap_or(name))
}

/// Most tokens to generate; -1 of the other APIs for what the context leaves.
fn tokens(options: &OllamaOptions) -> Result<Option<usize>, ApiError> {
    match options.num_predict {
        None | Some(-1 | -2) => Ok(None),
        Some(tokens) => usize::try_from(tokens).map(Some).map_err(|_| {
            ApiError::field(
                "options.num_predict",
                format!("options.num_predict is {tokens}: give a number of tokens, or -1"),
            )
        }),
    }
}

fn format(format: Option<Value>) -> Result<Option<ResponseFormat>, ApiError> {
    match format {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) if text == "json" => Ok(Some(ResponseFormat::JsonObject {})),
        Some(schema @ Value::Object(_)) => {
            let json_schema = JsonSchema { name: None, description: None, schema, strict: None };
            Ok(Some(ResponseFormat::JsonSchema { json_schema }))
        }
        Some(_) => Err(ApiError::field("format", "format must be \"json\" or a JSON schema")),
    }
}

/// A request to load a model, or to unload it, and nothing else.
pub struct Load {
    pub model: Option<String>,
    pub done_reason: &'static str,
}

impl Load {
    fn of(model: &Option<String>, keep_alive: &Option<KeepAlive>) -> Self {
        let none = match keep_alive {
            Some(KeepAlive::Seconds(seconds)) => *seconds == 0.0,
            Some(KeepAlive::Duration(text)) => text.contains('0') && !text.contains(|c: char| ('1'..='9').contains(&c)),
            None => false,
        };
        Load { model: named(model.clone()), done_reason: if none { "unload" } else { "load" } }
    }
}

impl OllamaShow {
    /// The model's name.
    pub fn name(&self) -> Option<String> {
        named(self.model.clone().or_else(|| self.name.clone()))
    }
}

impl OllamaChat {
    /// What is asked for if nothing is to be answered.
    pub fn load(&self) -> Option<Load> {
        self.messages.is_empty().then(|| Load::of(&self.model, &self.keep_alive))
    }

    /// The same as a chat request.
    pub fn into_chat(self) -> Result<ChatRequest, ApiError> {
        let options = self.options.unwrap_or_default();
        let (mut variables, mut effort) = (Map::new(), None);
        match self.think {
            Some(Think::Whether(thinks)) => _ = variables.insert("enable_thinking".into(), thinks.into()),
            Some(Think::How(how)) => effort = Some(how),
            None => {}
        }
        let open = self.messages.last().is_some_and(|last| last.role == Role::Assistant && last.tool_calls.is_none());
        let numbers = options.numbers();
        let mut chat = ChatRequest {
            messages: self
                .messages
                .into_iter()
                .enumerate()
                .map(|(index, message)| message.into_message(index))
                .collect(),
            model: named(self.model),
            max_tokens: tokens(&options)?,
            repeat_penalty: options.repeat_penalty,
            seed: options.seed,
            stop: options.stop,
            tools: self.tools,
            response_format: format(self.format)?,
            chat_template_kwargs: Some(variables),
            reasoning_effort: effort,
            // As ollama, an answer continues the assistant's last message.
            continue_final_message: Some(open),
            vosti_date: self.vosti_date,
            ..ChatRequest::default()
        };
        chat.set_numbers(numbers);
        Ok(chat)
    }
}

impl OllamaMessage {
    fn into_message(self, index: usize) -> Message {
        let call = |(place, call): (usize, OllamaCall)| ToolCall {
            id: call.id.unwrap_or_else(|| format!("call_{index}_{place}")),
            kind: FunctionKind::Function,
            function: CalledFunction {
                name: call.function.name,
                arguments: Value::Object(call.function.arguments.unwrap_or_default()).to_string(),
            },
        };
        let calls = self.tool_calls.filter(|calls| !calls.is_empty());
        Message {
            content: self.content.map(Content::Text),
            name: self.tool_name.or(self.name),
            tool_calls: calls.map(|calls| calls.into_iter().enumerate().map(call).collect()),
            tool_call_id: self.tool_call_id,
            reasoning_content: self.thinking,
            ..Message::of(self.role)
        }
    }
}

impl OllamaGenerate {
    /// What is asked for if nothing is to be answered.
    pub fn load(&self) -> Option<Load> {
        let none = self.prompt.as_ref().is_none_or(String::is_empty);
        none.then(|| Load::of(&self.model, &self.keep_alive))
    }

    /// Without the chat template.
    pub fn is_plain(&self) -> bool {
        self.raw.unwrap_or(false) || self.suffix.as_ref().is_some_and(|suffix| !suffix.is_empty())
    }

    /// The same as a chat request.
    pub fn into_chat(self) -> Result<ChatRequest, ApiError> {
        let said = |role, content| OllamaMessage {
            role,
            content,
            thinking: None,
            tool_calls: None,
            tool_name: None,
            name: None,
            tool_call_id: None,
        };
        let system = self.system.filter(|text| !text.is_empty()).map(|text| said(Role::System, Some(text)));
        let user = said(Role::User, Some(self.prompt.unwrap_or_default()));
        let messages = system.into_iter().chain([user]).collect();
        let chat = OllamaChat {
            model: self.model,
            messages,
            format: self.format,
            options: self.options,
            ..OllamaChat::default()
        };
        OllamaChat { think: self.think, ..chat }.into_chat()
    }

    /// The same as a text completion.
    pub fn into_completion(self) -> Result<CompletionRequest, ApiError> {
        let options = self.options.unwrap_or_default();
        let system = self.system.map(|text| text + "\n").filter(|text| text.len() > 1).unwrap_or_default();
        let numbers = options.numbers();
        let mut completion = CompletionRequest {
            prompt: Prompt::Text(system + &self.prompt.unwrap_or_default()),
            suffix: self.suffix,
            model: named(self.model),
            max_tokens: Some(tokens(&options)?.unwrap_or(crate::api::fields::UNLIMITED)),
            repeat_penalty: options.repeat_penalty,
            seed: options.seed,
            stop: options.stop,
            response_format: format(self.format)?,
            ..CompletionRequest::default()
        };
        completion.set_numbers(numbers);
        Ok(completion)
    }
}
