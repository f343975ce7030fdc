//! The forms in which models write calls: one row of literal text per form. The grammar is made from a row, and the reader
//! reads by it.
//!
//! Nothing here knows functions or schemas. A form without a row is not supported.

use super::tags::Tags;
use super::values::Notation;
use crate::grammar::harmony;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use vosti_model::{ChatOptions, ChatTemplate};

/// The forms, by the models that are trained on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Hermes, Qwen 2.5 and 3: `<tool_call>`, an object with `name` and `arguments`, `</tool_call>`. The system message explains it
    /// to models whose templates have no tools.
    #[default]
    Hermes,
    /// Llama 3.1 and later: an object with `name` and `parameters`, and nothing else in the answer.
    Llama,
    /// Mistral 7B v0.3: `[TOOL_CALLS] `, a list of objects.
    MistralSpaced,
    /// Mistral Nemo and Small: `[TOOL_CALLS]`, a list of objects.
    MistralList,
    /// gpt-oss: messages to functions (`harmony.rs`), which no row describes.
    Harmony,
    /// Mistral from 2025 on: `[TOOL_CALLS]`, a name, `[ARGS]`, the arguments, for each call.
    MistralArgs,
    /// Qwen 3 Coder, Qwen 3.5, Nemotron 3: `<tool_call>`, `<function=NAME>`, and `<parameter=NAME>` around each argument.
    QwenTags,
    /// GLM 4.5 and 4.6: `<tool_call>NAME`, and on lines of their own `<arg_key>` and `<arg_value>` of each argument.
    GlmLines,
    /// GLM 4.7: the same on one line.
    GlmTags,
    /// MiniMax M2: `<minimax:tool_call>` around all calls, `<invoke name="NAME">` around each, and `<parameter name="NAME">` around each
    /// argument.
    MinimaxTags,
    /// Granite 3: `<|tool_call|>`, a list of objects.
    Granite,
    /// Phi 4 mini: the same, and `<|/tool_call|>`.
    Phi,
    /// LFM2: `<|tool_call_start|>`, a list of calls as Python writes them, `<|tool_call_end|>`.
    Python,
    /// Gemma 4: `<|tool_call>call:NAME`, arguments in braces with texts between `<|"|>`, `<tool_call|>`.
    Gemma,
}

/// How a chat template has tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// The form of a call.
    pub format: Format,
    /// It writes the calls of earlier messages; otherwise their text has to have them.
    pub writes_calls: bool,
    /// It reads the functions from the system message's `tools`, as a text, and not from its own.
    pub in_system: bool,
}

/// How a form writes arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arguments {
    /// As one JSON object.
    Json,
    /// Each between tags.
    Tags(Tags),
    /// As names and values.
    Values(Notation),
}

/// The literal parts of an answer with calls: `mark head NAME middle ARGUMENTS (next NAME middle ARGUMENTS)* tail`.
#[derive(Debug)]
pub struct Literals {
    /// Begins the calls. Text of an answer must not contain it.
    pub mark: &'static str,
    /// True if text may come before the mark; otherwise only an answer that begins with the mark has calls.
    pub anywhere: bool,
    /// Between the mark and the first name.
    pub head: &'static str,
    /// Between a name and its arguments.
    pub middle: &'static str,
    /// Between one call's arguments and the next call's name; none: an answer has one call.
    pub next: Option<&'static str>,
    /// After the last call's arguments.
    pub tail: &'static str,
    /// How arguments stand.
    pub arguments: Arguments,
}

impl Literals {
    /// An answer's calls, which are names and arguments.
    pub fn written(&self, calls: &[(&str, &Value)]) -> String {
        let mut answer = String::new();
        for (index, (name, arguments)) in calls.iter().enumerate() {
            answer += &match (index, self.next) {
                (1.., Some(next)) => next.to_string(),
                (1.., None) => format!("{}{}{}", self.tail, self.mark, self.head),
                (0, _) => format!("{}{}", self.mark, self.head),
            };
            answer += &format!("{name}{}", self.middle);
            answer += &match self.arguments {
                Arguments::Json => spaced(arguments),
                Arguments::Values(notation) => notation.written(arguments),
                Arguments::Tags(Tags { key, value, end }) => {
                    let text = |value: &Value| value.as_str().map_or_else(|| spaced(value), str::to_string);
                    let each = arguments.as_object().into_iter().flatten();
                    each.map(|(name, of)| format!("{key}{name}{value}{}{end}", text(of))).collect()
                }
            };
        }
        if answer.is_empty() { answer } else { answer + self.tail }
    }
}

/// JSON with a space after `,` and `:`, as templates write it.
fn spaced(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(spaced).collect::<Vec<_>>().join(", ")),
        Value::Object(members) => {
            let members = members.iter().map(|(name, of)| format!("{}: {}", Value::from(name.as_str()), spaced(of)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
        value => value.to_string(),
    }
}

impl From<Format> for Form {
    /// Of a template that writes calls and reads functions as most do.
    fn from(format: Format) -> Self {
        Self { format, writes_calls: true, in_system: false }
    }
}

impl Form {
    /// How a template has tools, as renderings of a conversation with a tool and a call show. None if it has none, or never
    /// mentions those that it gets.
    pub fn of(template: &ChatTemplate) -> Option<Self> {
        let arguments = json!({ "vosti_key": "vosti_value" });
        let call = json!({ "name": "vosti_probe", "arguments": arguments });
        // Mistral's templates want nine letters and digits.
        let call = json!({ "id": "vosticall", "type": "function", "function": call });
        let said = |role: &str, content: &str| json!({ "role": role, "content": content });
        let mut called = said("assistant", "");
        called["tool_calls"] = json!([call]);
        let tool = json!({ "name": "vosti_tool", "description": "vosti", "parameters": { "type": "object", "properties": {
            "vosti_key": { "type": "string", "description": "vosti" } } } });
        let tools = json!([{ "type": "function", "function": tool }]);
        let render = |messages: Value, tools: Option<&Value>| {
            let options = ChatOptions { tools: tools.cloned(), add_generation_prompt: false, ..ChatOptions::default() };
            template.render(&messages, &options).map(|prompt| prompt.text().into_owned()).ok()
        };
        let shown = render(json!([said("user", "vosti"), called]), Some(&tools));
        let asked = render(json!([said("user", "vosti")]), Some(&tools));
        let mut system = said("system", "vosti");
        system["tools"] = tools.to_string().into();
        let in_system = || {
            let asked = render(json!([system, said("user", "vosti")]), None);
            asked.is_some_and(|asked| asked.contains("vosti_tool"))
        };
        let text = shown.as_deref().unwrap_or_default();
        let format = Format::written(text, &arguments).or_else(|| Format::of_text(template.source()))?;
        let (told, in_system) = match (&shown, &asked) {
            // Nothing is known of a template that refuses both.
            (None, None) => (true, false),
            _ if [&shown, &asked].into_iter().flatten().any(|text| text.contains("vosti_tool")) => (true, false),
            _ => (in_system(), true),
        };
        let writes_calls = shown.is_none_or(|shown| shown.contains("vosti_value"));
        told.then_some(Self { format, writes_calls, in_system })
    }
}

impl Format {
    /// The form in which a rendering writes a call of `vosti_probe`; none if it writes it in no known one.
    fn written(shown: &str, arguments: &Value) -> Option<Self> {
        use Format::{
            Gemma, GlmLines, GlmTags, Granite, Hermes, Llama, MinimaxTags, MistralArgs, MistralList, MistralSpaced,
            Phi, Python, QwenTags,
        };
        const FORMS: [Format; 13] = [
            Hermes,
            Llama,
            MistralSpaced,
            MistralList,
            MistralArgs,
            QwenTags,
            GlmLines,
            GlmTags,
            MinimaxTags,
            Phi,
            Granite,
            Python,
            Gemma,
        ];
        // Python has two kinds of quotes.
        let quoted = shown.replace('\'', "\"");
        let writes = |form: &Format| {
            let Some(literals) = form.literals() else { return false };
            let whole = literals.written(&[("vosti_probe", arguments)]);
            // Some templates close calls in their own ways.
            let call = whole.strip_suffix(literals.tail).unwrap_or(&whole);
            let call = if *form == Phi { &whole } else { call };
            if *form == Python { quoted.contains(call) } else { shown.contains(call) }
        };
        FORMS.into_iter().find(writes)
    }

    /// The form that a chat template's text speaks of; none if it has no tools.
    pub fn of_text(template: &str) -> Option<Self> {
        let has = |text: &str| template.contains(text);
        // Some templates contain several marks; the most specific one is tried first.
        if has("[TOOL_CALLS]") {
            return Some(match (has("[ARGS]"), has("[TOOL_CALLS] [")) {
                (true, _) => Self::MistralArgs,
                (false, true) => Self::MistralSpaced,
                (false, false) => Self::MistralList,
            });
        }
        if harmony::writes(template) {
            return Some(Self::Harmony);
        }
        if has(PYTHON.mark) || has("<|tool_list_start|>") {
            return Some(Self::Python);
        }
        if has(GEMMA.mark) {
            return Some(Self::Gemma);
        }
        if has("<|tool|>") && has("<|/tool|>") {
            return Some(Self::Phi);
        }
        if has(GRANITE.mark) {
            return Some(Self::Granite);
        }
        if has(MINIMAX_TAGS.mark) {
            return Some(Self::MinimaxTags);
        }
        if has(HERMES.mark) {
            return Some(match (has("<function="), has("<arg_key>"), has("</arg_key>\n<arg_value>")) {
                (true, ..) => Self::QwenTags,
                (_, true, true) => Self::GlmLines,
                (_, true, false) => Self::GlmTags,
                _ => Self::Hermes,
            });
        }
        (has("<|python_tag|>") && has("\"parameters\": ")).then_some(Self::Llama)
    }

    /// Its row; Harmony has none.
    pub fn literals(self) -> Option<&'static Literals> {
        match self {
            Self::Hermes => Some(&HERMES),
            Self::Llama => Some(&LLAMA),
            Self::MistralSpaced => Some(&MISTRAL_SPACED),
            Self::MistralList => Some(&MISTRAL_LIST),
            Self::MistralArgs => Some(&MISTRAL_ARGS),
            Self::QwenTags => Some(&QWEN_TAGS),
            Self::GlmLines => Some(&GLM_LINES),
            Self::GlmTags => Some(&GLM_TAGS),
            Self::MinimaxTags => Some(&MINIMAX_TAGS),
            Self::Granite => Some(&GRANITE),
            Self::Phi => Some(&PHI),
            Self::Python => Some(&PYTHON),
            Self::Gemma => Some(&GEMMA),
            Self::Harmony => None,
        }
    }
}

const HERMES: Literals = Literals {
    mark: "<tool_call>",
    anywhere: true,
    head: "\n{\"name\": \"",
    middle: "\", \"arguments\": ",
    next: Some("}\n</tool_call>\n<tool_call>\n{\"name\": \""),
    tail: "}\n</tool_call>",
    arguments: Arguments::Json,
};

const QWEN_TAGS: Literals = Literals {
    mark: "<tool_call>",
    anywhere: true,
    head: "\n<function=",
    middle: ">\n",
    next: Some("</function>\n</tool_call>\n<tool_call>\n<function="),
    tail: "</function>\n</tool_call>",
    arguments: Arguments::Tags(Tags { key: "<parameter=", value: ">\n", end: "\n</parameter>\n" }),
};

const GLM_LINES: Literals = Literals {
    mark: "<tool_call>",
    anywhere: true,
    head: "",
    middle: "\n",
    next: Some("</tool_call>\n<tool_call>"),
    tail: "</tool_call>",
    arguments: Arguments::Tags(Tags { key: "<arg_key>", value: "</arg_key>\n<arg_value>", end: "</arg_value>\n" }),
};

const GLM_TAGS: Literals = Literals {
    middle: "",
    next: Some("</tool_call><tool_call>"),
    arguments: Arguments::Tags(Tags { key: "<arg_key>", value: "</arg_key><arg_value>", end: "</arg_value>" }),
    ..GLM_LINES
};

const MINIMAX_TAGS: Literals = Literals {
    mark: "<minimax:tool_call>",
    anywhere: true,
    head: "\n<invoke name=\"",
    middle: "\">\n",
    next: Some("</invoke>\n<invoke name=\""),
    tail: "</invoke>\n</minimax:tool_call>",
    arguments: Arguments::Tags(Tags { key: "<parameter name=\"", value: "\">", end: "</parameter>\n" }),
};

const LLAMA: Literals = Literals {
    mark: "{\"name\": \"",
    anywhere: false,
    head: "",
    middle: "\", \"parameters\": ",
    next: None,
    tail: "}",
    arguments: Arguments::Json,
};

const MISTRAL_SPACED: Literals = Literals { head: " [{\"name\": \"", ..MISTRAL_LIST };

const MISTRAL_ARGS: Literals = Literals {
    mark: "[TOOL_CALLS]",
    anywhere: true,
    head: "",
    middle: "[ARGS]",
    next: Some("[TOOL_CALLS]"),
    tail: "",
    arguments: Arguments::Json,
};

const MISTRAL_LIST: Literals = Literals {
    mark: "[TOOL_CALLS]",
    anywhere: true,
    head: "[{\"name\": \"",
    middle: "\", \"arguments\": ",
    next: Some("}, {\"name\": \""),
    tail: "}]",
    arguments: Arguments::Json,
};

const GRANITE: Literals = Literals { mark: "<|tool_call|>", ..MISTRAL_LIST };

const PHI: Literals = Literals { tail: "}]<|/tool_call|>", ..GRANITE };

const PYTHON: Literals = Literals {
    mark: "<|tool_call_start|>",
    anywhere: true,
    head: "[",
    middle: "(",
    next: Some("), "),
    tail: ")]<|tool_call_end|>",
    arguments: Arguments::Values(Notation { is: '=', between: ", ", quote: None }),
};

const GEMMA: Literals = Literals {
    mark: "<|tool_call>",
    anywhere: true,
    head: "call:",
    middle: "{",
    next: Some("}<tool_call|><|tool_call>call:"),
    tail: "}<tool_call|>",
    arguments: Arguments::Values(Notation { is: ':', between: ",", quote: Some("<|\"|>") }),
};
