//! The forms in which models write calls: one row of literal text per form. The grammar is made from a row, and the reader
//! reads by it.
//!
//! Nothing here knows functions or schemas. A form without a row is not supported.

use super::tags::Tags;
use crate::grammar::harmony;
use serde::{Deserialize, Serialize};
use serde_json::json;
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
    /// Around each argument; none: the arguments are one JSON object.
    pub tags: Option<Tags>,
}

impl Format {
    /// The form in which a chat template writes a call, as a conversation with a call shows; if it shows none, as the template's text
    /// says. None if it has no tools.
    pub fn of(template: &ChatTemplate) -> Option<Self> {
        use Format::{GlmLines, GlmTags, Hermes, Llama, MistralArgs, MistralList, MistralSpaced, QwenTags};
        const FORMS: [Format; 8] =
            [Hermes, Llama, MistralSpaced, MistralList, MistralArgs, QwenTags, GlmLines, GlmTags];
        let arguments = json!({ "vosti_key": "vosti_value" });
        let call = json!({ "name": "vosti_probe", "arguments": arguments });
        // Mistral's templates want nine letters and digits.
        let call = json!({ "id": "vosticall", "type": "function", "function": call });
        let said = |role: &str, content: &str| json!({ "role": role, "content": content });
        let mut called = said("assistant", "");
        called["tool_calls"] = json!([call]);
        let tool = json!({ "name": "vosti_probe", "description": "vosti", "parameters": { "type": "object", "properties": {
            "vosti_key": { "type": "string", "description": "vosti" } } } });
        let tools = Some(json!([{ "type": "function", "function": tool }]));
        let options = ChatOptions { tools, add_generation_prompt: false, ..ChatOptions::default() };
        let shown = template.render(&json!([said("user", "vosti"), called]), &options);
        let shown = shown.map(|prompt| prompt.text().into_owned()).unwrap_or_default();
        let written = |form: &Format| {
            let Some(form) = form.literals() else { return false };
            let (mark, head, middle) = (form.mark, form.head, form.middle);
            let arguments = match &form.tags {
                Some(Tags { key, value, end }) => format!("{key}vosti_key{value}vosti_value{end}"),
                None => "{\"vosti_key\": \"vosti_value\"}".into(),
            };
            shown.contains(&format!("{mark}{head}vosti_probe{middle}{arguments}"))
        };
        FORMS.into_iter().find(written).or_else(|| Self::of_text(template.source()))
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
    tags: None,
};

const QWEN_TAGS: Literals = Literals {
    mark: "<tool_call>",
    anywhere: true,
    head: "\n<function=",
    middle: ">\n",
    next: Some("</function>\n</tool_call>\n<tool_call>\n<function="),
    tail: "</function>\n</tool_call>",
    tags: Some(Tags { key: "<parameter=", value: ">\n", end: "\n</parameter>\n" }),
};

const GLM_LINES: Literals = Literals {
    mark: "<tool_call>",
    anywhere: true,
    head: "",
    middle: "\n",
    next: Some("</tool_call>\n<tool_call>"),
    tail: "</tool_call>",
    tags: Some(Tags { key: "<arg_key>", value: "</arg_key>\n<arg_value>", end: "</arg_value>\n" }),
};

const GLM_TAGS: Literals = Literals {
    middle: "",
    next: Some("</tool_call><tool_call>"),
    tags: Some(Tags { key: "<arg_key>", value: "</arg_key><arg_value>", end: "</arg_value>" }),
    ..GLM_LINES
};

const LLAMA: Literals = Literals {
    mark: "{\"name\": \"",
    anywhere: false,
    head: "",
    middle: "\", \"parameters\": ",
    next: None,
    tail: "}",
    tags: None,
};

const MISTRAL_SPACED: Literals = Literals { head: " [{\"name\": \"", ..MISTRAL_LIST };

const MISTRAL_ARGS: Literals = Literals {
    mark: "[TOOL_CALLS]",
    anywhere: true,
    head: "",
    middle: "[ARGS]",
    next: Some("[TOOL_CALLS]"),
    tail: "",
    tags: None,
};

const MISTRAL_LIST: Literals = Literals {
    mark: "[TOOL_CALLS]",
    anywhere: true,
    head: "[{\"name\": \"",
    middle: "\", \"arguments\": ",
    next: Some("}, {\"name\": \""),
    tail: "}]",
    tags: None,
};
