//! The fields that OpenAI, vLLM, SGLang, llama.cpp and their clients send and that no request type here has: which values are accepted,
//! and why others are refused. One table serves all: the parser uses it, `docs/api.md` shows it, and a test walks it.
//!
//! A value is accepted if the answer without the field is the answer that the value asks for. Null is always accepted, here and
//! elsewhere: `body.rs` removes nulls first. A row never makes a field do something: a field that does something belongs in a
//! request type.

use super::ApiError;
use serde_json::Value;

/// Where a field comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    OpenAi,
    Vllm,
    Sglang,
    LlamaCpp,
    Anthropic,
    /// LiteLLM, LangChain and others that translate between APIs.
    Clients,
}

impl Engine {
    /// The name in messages and in `docs/api.md`.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "OpenAI",
            Self::Vllm => "vLLM",
            Self::Sglang => "SGLang",
            Self::LlamaCpp => "llama.cpp",
            Self::Anthropic => "Anthropic",
            Self::Clients => "clients",
        }
    }
}

/// Accepted values.
#[derive(Clone, Copy, Debug)]
pub enum Taken {
    /// Only null.
    Null,
    /// These JSON texts.
    These(&'static [&'static str]),
    /// Every value: none of them changes an answer.
    Any,
    /// The value of this field of the same object, or 1 where that is missing.
    As(&'static str),
    /// A list of any of these texts.
    Of(&'static [&'static str]),
}

/// The object that holds a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A chat or text completion.
    Completion,
    Chat,
    Text,
    StreamOptions,
    StructuredOutputs,
    Message,
    Part,
    Call,
    Tool,
    Function,
    /// A request of the Responses API.
    Responses,
    ResponsesText,
    ResponsesReasoning,
    ResponsesItem,
    /// In what an item says.
    ResponsesPart,
    /// In the output of a call.
    ResponsesOutput,
    ResponsesTool,
    /// A request of the Messages API.
    Messages,
    MessagesSystem,
    MessagesBlock,
    /// In the result of a call.
    MessagesText,
    MessagesTool,
    Tokenize,
    Detokenize,
}

impl Place {
    /// From the request's own members down; `*` is every entry of a list.
    pub fn path(self) -> &'static [&'static str] {
        match self {
            Self::Completion | Self::Chat | Self::Text | Self::Responses | Self::Messages => &[],
            Self::Tokenize | Self::Detokenize => &[],
            Self::StreamOptions => &["stream_options"],
            Self::StructuredOutputs => &["structured_outputs"],
            Self::Message => &["messages", "*"],
            Self::Part => &["messages", "*", "content", "*"],
            Self::Call => &["messages", "*", "tool_calls", "*"],
            Self::Tool => &["tools", "*"],
            Self::Function => &["tools", "*", "function"],
            Self::ResponsesText => &["text"],
            Self::ResponsesReasoning => &["reasoning"],
            Self::ResponsesItem => &["input", "*"],
            Self::ResponsesPart => &["input", "*", "content", "*"],
            Self::ResponsesOutput => &["input", "*", "output", "*"],
            Self::ResponsesTool | Self::MessagesTool => &["tools", "*"],
            Self::MessagesSystem => &["system", "*"],
            Self::MessagesBlock => &["messages", "*", "content", "*"],
            Self::MessagesText => &["messages", "*", "content", "*", "content", "*"],
        }
    }
}

/// A row.
#[derive(Clone, Copy, Debug)]
pub struct Foreign {
    pub place: Place,
    pub name: &'static str,
    pub engines: &'static [Engine],
    pub taken: Taken,
    /// The meaning of an accepted value here, or the alternative to a refused one.
    pub means: &'static str,
}

/// Rows of one place: `name, engines, taken, means;`.
macro_rules! rows {
    ($($place:ident { $($name:ident: $($engine:ident)+, $taken:expr, $means:literal;)* })*) => {
        &[$($(Foreign {
            place: Place::$place,
            name: stringify!($name),
            engines: &[$(Engine::$engine),+],
            taken: $taken,
            means: $means,
        },)*)*]
    };
}

const FALSE: Taken = Taken::These(&["false"]);
const TRUE: Taken = Taken::These(&["true"]);
const ZERO: Taken = Taken::These(&["0"]);
const EMPTY_LIST: Taken = Taken::These(&["[]"]);
/// Values of `include` that ask for nothing: the server runs no tools of its own and encrypts nothing.
const INCLUDED: [&str; 7] = [
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
];
const EMPTY_OBJECT: Taken = Taken::These(&["{}"]);
use Taken::{Any, As, Null, Of, These};

/// The table.
pub const FIELDS: &[Foreign] = rows! {
    Completion {
        best_of: OpenAi Vllm Sglang, As("n"), "every answer is returned: ask for n choices and choose yourself";
        use_beam_search: Vllm, FALSE, "the engine samples";
        length_penalty: Vllm, These(&["1"]), "the engine samples";
        watermarking: Vllm, FALSE, "no answer has a watermark";
        include_stop_str_in_output: Vllm, FALSE, "stop strings never show";
        no_stop_trim: Sglang, FALSE, "stop strings never show";
        stop_regex: Sglang, EMPTY_LIST, "use stop";
        skip_special_tokens: Vllm Sglang, TRUE, "control tokens have no text";
        spaces_between_special_tokens: Vllm, Any, "control tokens have no text";
        truncate_prompt_tokens: Vllm, Null, "shorten the prompt yourself";
        truncation_side: Vllm, Any, "no prompt is truncated";
        allowed_token_ids: Vllm, Null, "use logit_bias or a grammar";
        bad_words: Vllm, EMPTY_LIST, "use logit_bias";
        logits_processors: Vllm, EMPTY_LIST, "requests bring no code";
        custom_logit_processor: Sglang, Null, "requests bring no code";
        custom_params: Sglang, EMPTY_OBJECT, "requests bring no code";
        logprob_token_ids: Vllm, Null, "use top_logprobs";
        repetition_detection: Vllm, Null, "use repetition_penalty, or stop reading";
        thinking_token_budget: Vllm, These(&["-1"]), "use max_tokens";
        return_tokens_as_token_ids: Vllm, FALSE, "use return_token_ids";
        return_token_offsets: Vllm, FALSE, "text_offset of logprobs has them";
        return_hidden_states: Sglang, FALSE, "hidden states stay on the device";
        return_routed_experts: Sglang, FALSE, "no model here has experts";
        routed_experts_start_len: Sglang, ZERO, "no model here has experts";
        routed_experts_prompt_start: Vllm, ZERO, "no model here has experts";
        return_cached_tokens_details: Sglang, FALSE, "usage.prompt_tokens_details has the sum";
        return_mm_kwargs: Vllm, Any, "answers are to text";
        images_config: Sglang, Any, "answers are to text";
        kv_transfer_params: Vllm, EMPTY_OBJECT, "prefill and decode run in one process";
        ec_transfer_params: Vllm, EMPTY_OBJECT, "prefill and decode run in one process";
        bootstrap_host: Sglang, Null, "prefill and decode run in one process";
        bootstrap_port: Sglang, Null, "prefill and decode run in one process";
        bootstrap_room: Sglang, Null, "prefill and decode run in one process";
        routed_dp_rank: Sglang, Any, "one engine serves, and every engine would answer alike";
        disagg_prefill_dp_rank: Sglang, Any, "one engine serves, and every engine would answer alike";
        data_parallel_rank: Sglang, Any, "one engine serves, and every engine would answer alike";
        vllm_xargs: Vllm, EMPTY_OBJECT, "the engine has no extensions";
        lora_path: Sglang, Null, "the model is served as it is";
        session_params: Sglang, EMPTY_OBJECT, "send the whole conversation: its prefix is cached";
        session_id: Vllm Sglang, Any, "prefixes are cached whoever sends them";
        request_id: Vllm, Any, "answers have ids of their own; the header x-request-id is echoed";
        rid: Sglang, Any, "answers have ids of their own; the header x-request-id is echoed";
        extra_key: Sglang, Any, "use cache_salt to separate caches";
        custom_labels: Sglang, Any, "metrics have no labels of requests";
        priority: Vllm Sglang, Any, "requests are served in order";
        stream_interval: Vllm, Any, "each token is sent as it comes";
        ngram_corpus_id: Sglang, Any, "drafts change no answer";
        structural_tag: Vllm, Null, "use tools";
        early_stopping: Vllm, FALSE, "the engine samples";
        ebnf: Sglang, Null, "use structured_outputs.grammar, in Lark's notation";
        n_indent: LlamaCpp, ZERO, "use a grammar";
        n_keep: LlamaCpp, Any, "an answer ends where the context is full";
        n_discard: LlamaCpp, Any, "an answer ends where the context is full";
        t_max_predict_ms: LlamaCpp, These(&["-1", "0"]), "no answer depends on the clock";
        n_probs: LlamaCpp, ZERO, "use logprobs";
        post_sampling_probs: LlamaCpp, FALSE, "log-probabilities are the model's own";
        min_keep: LlamaCpp, ZERO, "top_k, top_p and min_p keep one token at least";
        typical_p: LlamaCpp, These(&["1"]), "use top_p or min_p";
        top_n_sigma: LlamaCpp, These(&["-1"]), "use top_p or min_p";
        xtc_probability: LlamaCpp, ZERO, "use temperature, top_k, top_p and min_p";
        xtc_threshold: LlamaCpp, Any, "xtc_probability alone would use it";
        dynatemp_range: LlamaCpp, ZERO, "a request has one temperature";
        dynatemp_exponent: LlamaCpp, Any, "dynatemp_range alone would use it";
        mirostat: LlamaCpp, ZERO, "use temperature, top_k, top_p and min_p";
        mirostat_tau: LlamaCpp, Any, "mirostat alone would use it";
        mirostat_eta: LlamaCpp, Any, "mirostat alone would use it";
        dry_multiplier: LlamaCpp, ZERO, "use repetition_penalty, presence_penalty or frequency_penalty";
        dry_base: LlamaCpp, Any, "dry_multiplier alone would use it";
        dry_allowed_length: LlamaCpp, Any, "dry_multiplier alone would use it";
        dry_penalty_last_n: LlamaCpp, Any, "dry_multiplier alone would use it";
        dry_sequence_breakers: LlamaCpp, Any, "dry_multiplier alone would use it";
        repeat_penalty: LlamaCpp, These(&["1"]), "use repetition_penalty, which sees the prompt and the whole answer";
        repeat_last_n: LlamaCpp, These(&["-1"]), "penalties see the prompt or the answer as a whole";
        samplers: LlamaCpp, Null, "the order of sampling is fixed";
        grammar: LlamaCpp, These(&["\"\""]), "use structured_outputs.grammar, in Lark's notation";
        cache_prompt: LlamaCpp, Any, "a cached prefix changes no bit";
        n_cache_reuse: LlamaCpp, Any, "a cached prefix changes no bit";
        id_slot: LlamaCpp, Any, "the engine chooses where a request runs";
        backend_sampling: LlamaCpp, Any, "where a token is drawn changes no answer";
        n_cmpl: LlamaCpp, As("n"), "use n";
        adaptive_target: LlamaCpp, These(&["-1"]), "use temperature, top_k, top_p and min_p";
        adaptive_decay: LlamaCpp, Any, "adaptive_target alone would use it";
        grammar_lazy: LlamaCpp, FALSE, "a grammar holds from the first token on";
        response_fields: LlamaCpp, EMPTY_LIST, "an answer has all its fields";
        verbose: LlamaCpp, FALSE, "receipts say how an answer came about: vosti_digest";
        lora: LlamaCpp, EMPTY_LIST, "the model is served as it is";
        return_tokens: LlamaCpp, FALSE, "use return_token_ids";
        return_progress: LlamaCpp, FALSE, "an answer is streamed from its first token on";
        timings_per_token: LlamaCpp, FALSE, "/metrics has times";
        sse_ping_interval: LlamaCpp, Any, "a stream is its answer's chunks";
        guided_decoding_backend: Vllm, Any, "llguidance holds answers to grammars";
        guided_whitespace_pattern: Vllm, Null, "say it in the schema with x-guidance";
    }
    Chat {
        functions: OpenAi, EMPTY_LIST, "use tools";
        function_call: OpenAi, These(&["\"none\"", "\"auto\""]), "use tool_choice";
        store: OpenAi, Any, "nothing is kept after the answer";
        metadata: OpenAi, Any, "nothing is kept after the answer";
        service_tier: OpenAi, Any, "requests are served alike";
        verbosity: OpenAi, These(&["\"medium\""]), "say it in the prompt";
        modalities: OpenAi, These(&["[\"text\"]"]), "answers are text";
        audio: OpenAi, Null, "answers are text";
        prediction: OpenAi, Any, "drafts change no answer; --speculate makes them";
        moderation: OpenAi, Null, "the server does not moderate";
        web_search_options: OpenAi, Null, "the server does not search";
        safety_identifier: OpenAi, Any, "the server keeps no record of users";
        prompt_cache_key: OpenAi, Any, "every prefix is cached; use cache_salt to separate them";
        prompt_cache_retention: OpenAi, Any, "prefixes stay as long as there is room";
        prompt_cache_options: OpenAi, Any, "every prefix is cached; use cache_salt to separate them";
        echo: Vllm LlamaCpp, FALSE, "the chat template's text is not part of the answer";
        documents: Vllm, EMPTY_LIST, "put them into a message";
        media_io_kwargs: Vllm, Any, "answers are to text";
        mm_processor_kwargs: Vllm, Any, "answers are to text";
        max_dynamic_patch: Sglang, Any, "answers are to text";
        min_dynamic_patch: Sglang, Any, "answers are to text";
        use_audio_in_video: Sglang, Any, "answers are to text";
        return_prompt_text: Vllm, FALSE, "/tokenize renders conversations";
        return_prompt_token_ids: Sglang, FALSE, "use return_token_ids";
        return_meta_info: Sglang, FALSE, "usage and finish_reason have it";
        task: Sglang, Null, "say it in the prompt";
        reasoning: Sglang, EMPTY_OBJECT, "use reasoning_effort";
        input_ids: Sglang, Null, "use /v1/completions";
        stream_reasoning: Sglang, TRUE, "an answer is streamed as it comes";
        reasoning_format: LlamaCpp, These(&["\"auto\"", "\"deepseek\""]), "use separate_reasoning";
        reasoning_budget_tokens: LlamaCpp, These(&["-1"]), "use max_tokens";
        thinking_budget_tokens: LlamaCpp, These(&["-1"]), "use max_tokens";
        reasoning_budget_message: LlamaCpp, Any, "reasoning_budget_tokens alone would use it";
        reasoning_control: LlamaCpp, FALSE, "use max_tokens";
        n_predict: LlamaCpp, These(&["-1"]), "use max_tokens";
        parse_tool_calls: LlamaCpp, TRUE, "calls are always read";
    }
    Text {
        suffix: OpenAi Vllm Sglang, These(&["\"\""]), "the models here continue text, they do not fill gaps";
        prompt_embeds: Vllm, Null, "send text or tokens";
        n_predict: LlamaCpp, Null, "use max_tokens";
    }
    StreamOptions {
        include_obfuscation: OpenAi, Any, "chunks are not padded";
    }
    StructuredOutputs {
        structural_tag: Vllm, Null, "use tools";
        whitespace_pattern: Vllm, Null, "say it in the schema with x-guidance";
        disable_fallback: Vllm, Any, "llguidance holds answers to grammars";
        disable_any_whitespace: Vllm, Any, "JSON comes on one line";
        disable_additional_properties: Vllm, FALSE, "say it in the schema";
    }
    Message {
        annotations: OpenAi Vllm, EMPTY_LIST, "the server does not search";
        audio: OpenAi Vllm, Null, "answers are to text";
        function_call: OpenAi Vllm, Null, "use tool_calls";
        refusal: OpenAi Vllm, These(&["\"\""]), "put it into content";
        cache_control: Clients, Any, "every prefix is cached";
        provider_specific_fields: Clients, Any, "no template knows them";
        thinking_blocks: Clients, EMPTY_LIST, "use reasoning_content";
        images: Clients, EMPTY_LIST, "images are not supported: send text";
        tools: Sglang, EMPTY_LIST, "put them into the request's tools";
    }
    Part {
        cache_control: Clients, Any, "every prefix is cached";
        prompt_cache_breakpoint: OpenAi, Any, "every prefix is cached";
        annotations: Clients, EMPTY_LIST, "the server does not search";
        image_url: OpenAi Vllm Sglang, Null, "images are not supported: send text";
        input_audio: OpenAi Vllm, Null, "audio is not supported: send text";
        audio_url: Vllm Sglang, Null, "audio is not supported: send text";
        video_url: Vllm Sglang, Null, "video is not supported: send text";
        file: OpenAi, Null, "files are not supported: send their text";
    }
    Call {
        index: OpenAi Sglang, Any, "calls come in their order";
        cache_control: Clients, Any, "every prefix is cached";
    }
    Tool {
        cache_control: Clients, Any, "every prefix is cached";
        defer_loading: Vllm Sglang, FALSE, "the model is told of every tool";
    }
    Function {
        cache_control: Clients, Any, "every prefix is cached";
        defer_loading: Vllm Sglang, FALSE, "the model is told of every tool";
    }
    Responses {
        background: OpenAi Vllm Sglang, FALSE, "the response comes on the request's connection";
        context_management: OpenAi, EMPTY_LIST, "send what the model is to see";
        conversation: OpenAi, Null, "nothing is kept between turns: send the whole conversation";
        previous_response_id: OpenAi Vllm Sglang, Null, "nothing is kept between turns: send the whole conversation";
        previous_response: Vllm, Null, "nothing is kept between turns: send the whole conversation";
        previous_input_messages: Vllm, EMPTY_LIST, "put them into the input";
        enable_response_messages: Vllm, FALSE, "output has what the model said";
        skip_special_tokens: Vllm, TRUE, "control tokens have no text";
        include_stop_str_in_output: Vllm, FALSE, "stop strings never show";
        mm_processor_kwargs: Vllm, Any, "answers are to text";
        vllm_xargs: Vllm, EMPTY_OBJECT, "the engine has no extensions";
        priority: Vllm Sglang, Any, "requests are served in order";
        request_id: Vllm Sglang, Any, "answers have ids of their own; the header x-request-id is echoed";
        session_id: Sglang, Any, "prefixes are cached whoever sends them";
        extra_key: Sglang, Any, "use cache_salt to separate caches";
        ngram_corpus_id: Sglang, Any, "drafts change no answer";
        prompt: OpenAi Vllm, Null, "no prompts are kept here";
        include: OpenAi Vllm Sglang, Of(&INCLUDED), "use /v1/chat/completions for log-probabilities; else a response has all there is";
        max_tool_calls: OpenAi Vllm Sglang, Any, "the server calls no tools itself";
        metadata: OpenAi Vllm Sglang, Any, "nothing is kept after the answer";
        store: OpenAi Vllm Sglang, Any, "nothing is kept after the answer";
        moderation: OpenAi, Null, "the server does not moderate";
        prompt_cache_key: OpenAi Vllm, Any, "every prefix is cached; use cache_salt to separate them";
        prompt_cache_options: OpenAi, Any, "every prefix is cached; use cache_salt to separate them";
        prompt_cache_retention: OpenAi, Any, "prefixes stay as long as there is room";
        safety_identifier: OpenAi, Any, "the server keeps no record of users";
        user: OpenAi Vllm Sglang, Any, "the server keeps no record of users";
        service_tier: OpenAi Vllm Sglang, Any, "requests are served alike";
        stream_options: OpenAi, Any, "events are not padded";
        top_logprobs: OpenAi Vllm Sglang, ZERO, "use /v1/chat/completions";
        truncation: OpenAi Vllm Sglang, These(&["\"disabled\""]), "shorten the conversation yourself";
    }
    ResponsesText {
        verbosity: OpenAi, These(&["\"medium\""]), "say it in the prompt";
    }
    ResponsesReasoning {
        generate_summary: OpenAi, Any, "thoughts are shown unchanged";
    }
    ResponsesItem {
        id: OpenAi, Any, "items have their order";
        status: OpenAi, Any, "an item is taken as it is";
        phase: OpenAi, Any, "an item is taken as it is";
        summary: OpenAi, Any, "a thought's content is what the template sees";
        encrypted_content: OpenAi, Any, "thoughts are not encrypted here";
        caller: OpenAi, Any, "the template sees the call";
        namespace: OpenAi, Null, "give each function its own name";
    }
    ResponsesPart {
        annotations: OpenAi, Any, "the text is what the template sees";
        logprobs: OpenAi, Any, "the text is what the template sees";
        cache_control: Clients, Any, "every prefix is cached";
        prompt_cache_breakpoint: OpenAi, Any, "every prefix is cached";
        image_url: OpenAi, Null, "images are not supported: send text";
        input_audio: OpenAi, Null, "audio is not supported: send text";
        file_id: OpenAi, Null, "images and files are not supported: send text";
        file_data: OpenAi, Null, "files are not supported: send their text";
        file_url: OpenAi, Null, "files are not supported: send their text";
    }
    ResponsesOutput {
        prompt_cache_breakpoint: OpenAi, Any, "every prefix is cached";
        image_url: OpenAi, Null, "images are not supported: send text";
        file_id: OpenAi, Null, "images and files are not supported: send text";
        file_data: OpenAi, Null, "files are not supported: send their text";
        file_url: OpenAi, Null, "files are not supported: send their text";
    }
    ResponsesTool {
        defer_loading: OpenAi, FALSE, "the model is told of every tool";
        allowed_callers: OpenAi, These(&["[\"direct\"]"]), "the model calls its tools";
        output_schema: OpenAi, Any, "results are taken as they come";
    }
    Messages {
        cache_control: Anthropic, Any, "every prefix is cached";
        container: Anthropic, Null, "the server runs no code";
        context_management: Anthropic, Null, "send what the model is to see";
        diagnostics: Anthropic, Null, "receipts say how an answer came about: vosti_digest";
        inference_geo: Anthropic, Any, "every request is answered on this machine";
        mcp_servers: Anthropic, EMPTY_LIST, "the server calls no tools itself";
        metadata: Anthropic Vllm, Any, "the server keeps no record of users";
        kv_transfer_params: Vllm, EMPTY_OBJECT, "prefill and decode run in one process";
        service_tier: Anthropic, Any, "requests are served alike";
        speed: Anthropic, Any, "requests are served alike";
        user_profile_id: Anthropic, Any, "the server keeps no record of users";
        workspace_id: Anthropic, Any, "the server keeps no record of users";
    }
    MessagesSystem {
        cache_control: Anthropic, Any, "every prefix is cached";
        citations: Anthropic, EMPTY_LIST, "answers cite nothing";
    }
    MessagesBlock {
        cache_control: Anthropic, Any, "every prefix is cached";
        citations: Anthropic, EMPTY_LIST, "answers cite nothing";
        caller: Anthropic, Any, "the template sees the call";
        toolset_name: Anthropic, Null, "give each function its own name";
        source: Anthropic, Null, "images and documents are not supported: send text";
    }
    MessagesText {
        cache_control: Anthropic, Any, "every prefix is cached";
        citations: Anthropic, EMPTY_LIST, "answers cite nothing";
        source: Anthropic, Null, "images and documents are not supported: send text";
    }
    MessagesTool {
        type: Anthropic, These(&["\"custom\""]), "the server calls no tools itself";
        cache_control: Anthropic, Any, "every prefix is cached";
        strict: Anthropic, Any, "an answer always follows the schema";
        eager_input_streaming: Anthropic, Any, "arguments are streamed as they come";
        defer_loading: Anthropic, FALSE, "the model is told of every tool";
        allowed_callers: Anthropic, These(&["[\"direct\"]"]), "the model calls its tools";
        input_examples: Anthropic, EMPTY_LIST, "put them into the description";
    }
    Tokenize {
        media_io_kwargs: Vllm, Any, "text has no media";
        mm_processor_kwargs: Vllm, Any, "text has no media";
    }
    Detokenize {
        skip_special_tokens: Sglang, TRUE, "control tokens have no text";
    }
};

impl Foreign {
    /// Whether the answer without the field is the one that this value asks for. `beside` holds the field.
    fn takes(&self, value: &Value, beside: &Value) -> bool {
        let default = Value::from(1);
        match self.taken {
            Taken::Null => false,
            Taken::Any => true,
            Taken::These(values) => values.contains(&value.to_string().as_str()),
            Taken::As(name) => value == beside.get(name).unwrap_or(&default),
            Taken::Of(names) => {
                value.as_array().is_some_and(|list| list.iter().all(|entry| names.iter().any(|name| entry == name)))
            }
        }
    }
}

/// Removes the table's fields from a request. A value that the table does not accept is an error or, if `ignored` is given, is
/// added to it. True if a field was removed.
pub fn strip(request: &mut Value, places: &[Place], mut ignored: Option<&mut Vec<String>>) -> Result<bool, ApiError> {
    let mut found = false;
    for place in places {
        let rows: Vec<&Foreign> = FIELDS.iter().filter(|row| row.place == *place).collect();
        visit(request, place.path(), String::new(), &mut |object, path| {
            for row in &rows {
                let Some(value) = object.get(row.name) else { continue };
                let full = if path.is_empty() { row.name.to_string() } else { format!("{path}.{}", row.name) };
                match &mut ignored {
                    _ if row.takes(value, object) => {}
                    Some(ignored) => ignored.push(full),
                    None => {
                        let message = format!("{full} is not supported with this value: {}", row.means);
                        return Err(ApiError::unsupported(full, message));
                    }
                }
                found = true;
                object.as_object_mut().and_then(|members| members.shift_remove(row.name));
            }
            Ok(())
        })?;
    }
    Ok(found)
}

/// Calls `each` with every object at `path` and the object's place, such as `messages[0]`.
fn visit(
    value: &mut Value,
    path: &[&str],
    way: String,
    each: &mut impl FnMut(&mut Value, &str) -> Result<(), ApiError>,
) -> Result<(), ApiError> {
    match (path.split_first(), value) {
        (None, value @ Value::Object(_)) => each(value, &way),
        (Some((&"*", rest)), Value::Array(list)) => list
            .iter_mut()
            .enumerate()
            .try_for_each(|(index, entry)| visit(entry, rest, format!("{way}[{index}]"), each)),
        (Some((name, rest)), Value::Object(members)) => match members.get_mut(*name) {
            Some(member) => {
                let way = if way.is_empty() { (*name).to_string() } else { format!("{way}.{name}") };
                visit(member, rest, way, each)
            }
            None => Ok(()),
        },
        _ => Ok(()),
    }
}
