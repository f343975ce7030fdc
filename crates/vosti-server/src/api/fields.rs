//! The fields that chat and text completions share. Their comments are the API's documentation.

use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use utoipa::ToSchema;
use vosti_engine::random::in_json;

/// Declares a request: its own fields, then the shared ones, and `shared()`, which takes those out.
macro_rules! request {
    ($($struct:tt)*) => {
        vosti_engine::sampling_numbers!([$crate::api::fields::with_numbers] { $($struct)* });
    };
}
pub(crate) use request;

macro_rules! with_numbers {
    (
        { $(#[$meta:meta])* pub struct $name:ident { $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)* } }
        $($(#[$doc:meta])* $number:ident: $exact:ident as $given:ident = $neutral:literal, { $($range:tt)* }, $key:literal;)*
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, serde::Deserialize, utoipa::ToSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
            /// The served model's name; any other is refused. May be left out.
            pub model: Option<String>,
            /// Most tokens to generate, and never more than the context leaves. -1: as many as that. If it leaves fewer, the header
            /// `x-vosti-warning` says so.
            #[schema(minimum = -1, value_type = Option<i64>)]
            #[serde(default, deserialize_with = "crate::api::fields::tokens")]
            pub max_tokens: Option<usize>,
            /// `max_tokens` under llama.cpp's name.
            #[schema(minimum = -1, value_type = Option<i64>)]
            #[serde(default, deserialize_with = "crate::api::fields::tokens")]
            pub n_predict: Option<usize>,
            $(
                $(#[$doc])*
                #[doc = ""]
                #[doc = "Default: the model's, as `/v1/models` says."]
                #[schema($($range)*)]
                pub $number: Option<$given>,
            )*
            /// `repetition_penalty` under llama.cpp's name. It sees the prompt and the whole answer, whatever `repeat_last_n` is.
            #[schema(exclusive_minimum = 0, maximum = 100)]
            pub repeat_penalty: Option<f32>,
            /// Numbers that are added to logits: a map from token ids, as text, to numbers from -100 to 100.
            pub logit_bias: Option<std::collections::BTreeMap<String, f32>>,
            /// Number of answers for each prompt. Answer number c draws with (seed, c, position).
            #[schema(minimum = 1)]
            pub n: Option<u32>,
            /// Seed of the random numbers; equal seeds give equal answers, under any load. An integer of 64 bits, or its digits as a
            /// text. Default and -1: a fresh one, which the answer has in `vosti_seed`.
            #[schema(value_type = Option<i64>)]
            pub seed: Option<$crate::api::fields::Seed>,
            /// The answer ends before any of these texts: one, or a list of at most 32, each at most 512 bytes.
            pub stop: Option<$crate::api::fields::Stop>,
            /// The answer ends at any of these tokens; the token is not part of its text.
            pub stop_token_ids: Option<Vec<u32>>,
            /// Fewest tokens before an end-of-text token or one of `stop_token_ids` may end the answer. A stop string that is
            /// complete before does not end the answer; a complete grammar always does. Default 0.
            #[schema(minimum = 0)]
            pub min_tokens: Option<usize>,
            /// Continue after the model's end-of-text token. Default false.
            pub ignore_eos: Option<bool>,
            /// Send the answer as server-sent events. Default false.
            pub stream: Option<bool>,
            /// Only with `stream`.
            pub stream_options: Option<$crate::api::fields::StreamOptions>,
            /// What the answer must be: text, any JSON object, or JSON by a schema.
            pub response_format: Option<$crate::api::fields::ResponseFormat>,
            /// What the answer must be, in vLLM's form: a schema, a regular expression, a choice or a grammar.
            pub structured_outputs: Option<$crate::api::fields::StructuredOutputs>,
            /// `structured_outputs.json` under vLLM's earlier name.
            #[schema(value_type = Option<Object>)]
            pub guided_json: Option<serde_json::Value>,
            /// `structured_outputs.json` under SGLang's name, as text.
            #[schema(value_type = Option<String>)]
            pub json_schema: Option<serde_json::Value>,
            /// `structured_outputs.regex` under vLLM's earlier name.
            pub guided_regex: Option<String>,
            /// `structured_outputs.regex` under SGLang's name.
            pub regex: Option<String>,
            /// `structured_outputs.choice` under vLLM's earlier name.
            pub guided_choice: Option<Vec<String>>,
            /// `structured_outputs.grammar` under vLLM's earlier name.
            pub guided_grammar: Option<String>,
            /// Which log-probabilities `logprobs` gives for the answer's tokens: `raw` (the model's own, the default), or `processed`
            /// (those of the distribution that was drawn from, after penalties, temperature, top_k, top_p, min_p and grammars).
            pub logprobs_mode: Option<$crate::api::fields::LogprobsMode>,
            /// Log-probabilities of the prompt's tokens, each with this many of the most likely tokens. Not with `stream`.
            #[schema(minimum = 0, maximum = 20)]
            pub prompt_logprobs: Option<usize>,
            /// Put the prompt's and the answer's token ids into the response. Default false.
            pub return_token_ids: Option<bool>,
            /// Report the experts that each token chose, `routed_experts`, of the prompt and of the answer: for models with
            /// mixtures of experts, on a processor. The request takes nothing from the prefix cache. Default false.
            pub return_routed_experts: Option<bool>,
            /// Begin the prompt with the model's beginning-of-text token. Default: true for text, false for chat,
            /// where the template writes it.
            pub add_special_tokens: Option<bool>,
            /// Prompts share cached prefixes only with prompts of the same salt.
            pub cache_salt: Option<String>,
            /// Accepted and ignored: this server keeps no record of users.
            pub user: Option<String>,
            /// Add a receipt to each answer, `vosti_receipt`: a digest of every token and every bit of its logits, and
            /// all that `vosti replay` needs to run the request again. Default false.
            pub vosti_digest: Option<bool>,
            /// Continue an answer to this same request after the part that this server, or another one of this fingerprint, has
            /// sent. Give that answer's seed (`vosti_seed`).
            pub vosti_resume: Option<$crate::api::resume::Resume>,
        }

        impl $name {
            /// The shared fields, taken out.
            pub fn shared(&mut self) -> $crate::api::fields::Shared {
                $crate::api::fields::Shared {
                    model: self.model.take(),
                    max_tokens: self.max_tokens,
                    n_predict: self.n_predict,
                    $($number: self.$number,)*
                    repeat_penalty: self.repeat_penalty,
                    logit_bias: self.logit_bias.take(),
                    n: self.n,
                    seed: self.seed.take(),
                    stop: self.stop.take(),
                    stop_token_ids: self.stop_token_ids.take(),
                    min_tokens: self.min_tokens,
                    ignore_eos: self.ignore_eos,
                    stream: self.stream,
                    stream_options: self.stream_options.take(),
                    response_format: self.response_format.take(),
                    structured_outputs: self.structured_outputs.take(),
                    guided_json: self.guided_json.take(),
                    json_schema: self.json_schema.take(),
                    guided_regex: self.guided_regex.take(),
                    regex: self.regex.take(),
                    guided_choice: self.guided_choice.take(),
                    guided_grammar: self.guided_grammar.take(),
                    logprobs_mode: self.logprobs_mode,
                    prompt_logprobs: self.prompt_logprobs,
                    return_token_ids: self.return_token_ids,
                    return_routed_experts: self.return_routed_experts,
                    add_special_tokens: self.add_special_tokens,
                    cache_salt: self.cache_salt.take(),
                    user: self.user.take(),
                    vosti_digest: self.vosti_digest,
                    vosti_resume: self.vosti_resume.take(),
                }
            }

            /// The sampling numbers that the request gives.
            pub fn numbers(&self) -> vosti_engine::Given {
                vosti_engine::Given { $($number: self.$number,)* }
            }

            /// Gives sampling numbers.
            pub fn set_numbers(&mut self, given: vosti_engine::Given) {
                $(self.$number = given.$number;)*
            }
        }
    };
}
pub(crate) use with_numbers;

request! {
    /// The fields that both kinds of completion have.
    pub struct Shared {}
}

/// A seed, as the client wrote it. A negative one is its two's complement, so that every 64-bit integer is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub i128);

impl Seed {
    /// What llama.cpp's and ollama's clients send for a fresh seed.
    pub const RANDOM: Self = Self(-1);

    /// The key of random numbers.
    pub fn bits(self) -> u64 {
        self.0 as u64
    }
}

impl From<u64> for Seed {
    fn from(bits: u64) -> Self {
        Self(bits.into())
    }
}

impl Serialize for Seed {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match in_json(self.0) {
            Ok(number) => to.serialize_i64(number),
            Err(digits) => to.serialize_str(&digits),
        }
    }
}

impl<'de> Deserialize<'de> for Seed {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected an integer of 64 bits, or its digits as a text")]
        enum Written {
            Number(serde_json::Number),
            Digits(String),
        }
        let digits = match Written::deserialize(from)? {
            Written::Number(number) => number.to_string(),
            Written::Digits(digits) => digits,
        };
        let seed = digits.parse().ok().filter(|seed| (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(seed));
        seed.map(Self).ok_or_else(|| D::Error::custom(format!("seed is {digits}; it must be an integer of 64 bits")))
    }
}

/// For serde's `with`: the bits of a seed, as [`Seed`] writes and reads them.
pub mod seed_bits {
    use super::{Deserialize, Deserializer, Seed, Serialize, Serializer};

    /// Writes them.
    pub fn serialize<S: Serializer>(bits: &u64, to: S) -> Result<S::Ok, S::Error> {
        Seed::from(*bits).serialize(to)
    }

    /// Reads them.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        Seed::deserialize(from).map(Seed::bits)
    }
}

/// Which log-probabilities are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogprobsMode {
    /// The model's own.
    #[serde(alias = "raw_logprobs")]
    Raw,
    /// Those of the distribution that a token was drawn from.
    #[serde(alias = "processed_logprobs")]
    Processed,
}

/// One text, or several.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a text or a list of texts")]
pub enum Stop {
    One(String),
    Many(Vec<String>),
}

impl Stop {
    /// The texts in order.
    pub fn into_list(self) -> Vec<String> {
        match self {
            Self::One(text) => vec![text],
            Self::Many(texts) => texts,
        }
    }
}

/// Further contents of a stream.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StreamOptions {
    /// A last chunk without choices has the usage. Default false.
    pub include_usage: Option<bool>,
    /// Every chunk has the usage so far. Needs `include_usage`. Default false.
    pub continuous_usage_stats: Option<bool>,
}

/// Which chunks of a stream have the usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageIn {
    None,
    Last,
    Each,
}

/// What the answer must be.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ResponseFormat {
    /// Anything.
    Text {},
    /// Any JSON object.
    JsonObject {},
    /// JSON that a schema describes.
    JsonSchema { json_schema: JsonSchema },
}

/// What the answer must be, in vLLM's form. Give one field.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StructuredOutputs {
    /// JSON that this schema describes, given as an object or as text.
    #[schema(value_type = Option<Object>)]
    pub json: Option<Value>,
    /// Any JSON object.
    pub json_object: Option<bool>,
    /// Text that this expression matches as a whole, in the syntax of Rust's `regex` crate.
    pub regex: Option<String>,
    /// One of these texts.
    pub choice: Option<Vec<String>>,
    /// A grammar in Lark's notation, as llguidance reads it.
    pub grammar: Option<String>,
}

/// A schema with a name.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JsonSchema {
    /// For the client; the server does not use it.
    pub name: Option<String>,
    /// For the client; the server does not use it.
    pub description: Option<String>,
    #[schema(value_type = Object)]
    pub schema: Value,
    /// Accepted and ignored: an answer always follows the schema.
    pub strict: Option<bool>,
}

/// `max_tokens` of a request that wants what the context leaves: -1.
pub const UNLIMITED: usize = usize::MAX;

/// Reads a number of tokens, or -1.
pub fn tokens<'de, D: Deserializer<'de>>(source: D) -> Result<Option<usize>, D::Error> {
    let Some(tokens) = Option::<i64>::deserialize(source)? else { return Ok(None) };
    let wrong =
        || D::Error::invalid_value(Unexpected::Signed(tokens), &"at least 0, or -1 for what the context leaves");
    if tokens == -1 { Ok(Some(UNLIMITED)) } else { usize::try_from(tokens).map(Some).map_err(|_| wrong()) }
}
