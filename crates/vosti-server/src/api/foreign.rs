//! The fields that OpenAI, vLLM, SGLang, llama.cpp and their clients send and that no request type here has: which values are accepted,
//! and why others are refused. One table serves all: the parser uses it, `docs/api.md` shows it, and a test walks it.
//!
//! A value is accepted if the answer without the field is the answer that the value asks for. Null is always accepted, here and
//! elsewhere: `body.rs` removes nulls first. A row never makes a field do something: a field that does something belongs in a
//! request type.

use serde_json::Value;

/// Where a field comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    OpenAi,
    Vllm,
    Sglang,
    LlamaCpp,
    Anthropic,
    Ollama,
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
            Self::Ollama => "ollama",
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
    /// Every value. The answer without it may be another one, and the header `x-vosti-ignored` says so: agents send it always.
    Told,
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
    /// A request of ollama's API.
    Ollama,
    OllamaOptions,
    OllamaMessage,
    OllamaCall,
}

impl Place {
    /// From the request's own members down; `*` is every entry of a list.
    pub fn path(self) -> &'static [&'static str] {
        match self {
            Self::Completion | Self::Chat | Self::Text | Self::Responses | Self::Messages => &[],
            Self::Tokenize | Self::Detokenize | Self::Ollama => &[],
            Self::OllamaOptions => &["options"],
            Self::OllamaMessage => &["messages", "*"],
            Self::OllamaCall => &["messages", "*", "tool_calls", "*", "function"],
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
use Taken::{Any, As, Null, Of, These, Told};

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
        routed_experts_start_len: Sglang, ZERO, "return_routed_experts reports every position";
        routed_experts_prompt_start: Vllm, ZERO, "return_routed_experts reports every position";
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
        repeat_last_n: LlamaCpp, Told, "penalties see the prompt or the answer as a whole";
        penalize_nl: LlamaCpp, Told, "penalties see every token";
        samplers: LlamaCpp, Told, "the order of sampling is fixed";
        keep_alive: Ollama, Any, "the model stays until the server ends";
        tfs_z: LlamaCpp, These(&["1"]), "use top_p or min_p";
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
        verbosity: OpenAi, Told, "say it in the prompt";
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
        parse_tool_calls: LlamaCpp, TRUE, "calls are always read";
    }
    Text {
        prompt_embeds: Vllm, Null, "send text or tokens";
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
        context_management: OpenAi, Told, "the model sees what the client sends";
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
        truncation: OpenAi Vllm Sglang, These(&["\"disabled\"", "\"auto\""]), "a conversation that does not fit is refused";
        client_metadata: OpenAi, Any, "nothing is kept after the answer";
    }
    ResponsesText {
        verbosity: OpenAi, Told, "say it in the prompt";
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
        context_management: Anthropic, Told, "the model sees what the client sends";
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
    Ollama {
        context: Ollama, EMPTY_LIST, "send the conversation to /api/chat";
        images: Ollama, EMPTY_LIST, "images are not supported: send text";
        truncate: Ollama, Told, "a prompt that does not fit is refused";
        shift: Ollama, Told, "an answer ends where the context is full";
        template: Ollama, These(&["\"\""]), "the model's own template is used";
        logprobs: Ollama, FALSE, "use /v1/chat/completions";
        top_logprobs: Ollama, ZERO, "use /v1/chat/completions";
        verbose: Ollama, Any, "the answer has all there is";
    }
    OllamaOptions {
        num_ctx: Ollama, Told, "the server's --context is the context";
        num_keep: Ollama, Any, "an answer ends where the context is full";
        num_batch: Ollama, Any, "steps change no answer";
        num_gpu: Ollama, Any, "the server's device is used";
        main_gpu: Ollama, Any, "the server's device is used";
        num_thread: Ollama, Any, "the server's threads are used";
        numa: Ollama, Any, "the server's threads are used";
        low_vram: Ollama, Any, "the server's memory is used";
        use_mmap: Ollama, Any, "the server's memory is used";
        use_mlock: Ollama, Any, "the server's memory is used";
        f16_kv: Ollama, Any, "the cache is as the deployment has it";
        vocab_only: Ollama, FALSE, "the model answers";
        tfs_z: Ollama, These(&["1"]), "use top_p or min_p";
        mirostat: Ollama, ZERO, "use temperature, top_k, top_p and min_p";
        mirostat_tau: Ollama, Any, "mirostat alone would use it";
        mirostat_eta: Ollama, Any, "mirostat alone would use it";
        penalize_newline: Ollama, Told, "penalties see every token";
        repeat_last_n: Ollama, Told, "penalties see the prompt or the answer as a whole";
    }
    OllamaMessage {
        images: Ollama, EMPTY_LIST, "images are not supported: send text";
    }
    OllamaCall {
        index: Ollama, Any, "calls come in their order";
        description: Ollama, Any, "the model is told of tools in the request's tools";
    }
};

impl Foreign {
    /// Whether the answer without the field is the one that this value asks for. `beside` holds the field.
    fn takes(&self, value: &Value, beside: &Value) -> bool {
        let default = Value::from(1);
        match self.taken {
            Taken::Null => false,
            Taken::Any | Taken::Told => true,
            Taken::These(values) => values.contains(&value.to_string().as_str()),
            Taken::As(name) => value == beside.get(name).unwrap_or(&default),
            Taken::Of(names) => {
                value.as_array().is_some_and(|list| list.iter().all(|entry| names.iter().any(|name| entry == name)))
            }
        }
    }
}

/// What [`strip`] removed, by its path.
#[derive(Debug, Default)]
pub struct Stripped {
    /// Fields that are ignored, and that a client should know of.
    pub told: Vec<String>,
    /// Fields that cannot be served, each with a message.
    pub refused: Vec<(String, String)>,
}

/// Removes the table's fields from a request, and tools of kinds that cannot run here.
pub fn strip(request: &mut Value, places: &[Place]) -> Stripped {
    let mut stripped = Stripped::default();
    for place in places {
        let rows: Vec<&Foreign> = FIELDS.iter().filter(|row| row.place == *place).collect();
        if matches!(place, Place::Tool | Place::ResponsesTool | Place::MessagesTool) {
            strip_tools(request, *place, &mut stripped.refused);
        }
        visit(request, place.path(), String::new(), &mut |object, path| {
            for row in &rows {
                let Some(value) = object.get(row.name) else { continue };
                let full = if path.is_empty() { row.name.to_string() } else { format!("{path}.{}", row.name) };
                match row.takes(value, object) {
                    true if matches!(row.taken, Taken::Told) => stripped.told.push(full),
                    true => {}
                    false => {
                        let message = format!("{full} is not supported with this value: {}", row.means);
                        stripped.refused.push((full, message));
                    }
                }
                object.as_object_mut().and_then(|members| members.shift_remove(row.name));
            }
        });
    }
    stripped
}

/// Removes tools that are no functions: the client's server would have to run them.
fn strip_tools(request: &mut Value, place: Place, refused: &mut Vec<(String, String)>) {
    let (own, instead) = match place {
        Place::MessagesTool => ("custom", "by its name and input_schema"),
        _ => ("function", "as a function"),
    };
    let Some(tools) = request.get_mut("tools").and_then(Value::as_array_mut) else { return };
    let mut index = 0;
    tools.retain(|tool| {
        let at = format!("tools[{index}]");
        index += 1;
        match tool.get("type").and_then(Value::as_str) {
            Some(kind) if kind != own => {
                refused.push((
                    format!("{at}.type"),
                    format!(
                        "{at} is of type {kind:?}, and the model can call tools of type {own:?} only: leave it out, or describe a \
                         tool that your program runs {instead}"
                    ),
                ));
                false
            }
            _ => true,
        }
    });
}

/// Calls `each` with every object at `path` and the object's place, such as `messages[0]`.
fn visit(value: &mut Value, path: &[&str], way: String, each: &mut impl FnMut(&mut Value, &str)) {
    match (path.split_first(), value) {
        (None, value @ Value::Object(_)) => each(value, &way),
        (Some((&"*", rest)), Value::Array(list)) => {
            list.iter_mut().enumerate().for_each(|(index, entry)| visit(entry, rest, format!("{way}[{index}]"), each))
        }
        (Some((name, rest)), Value::Object(members)) => {
            if let Some(member) = members.get_mut(*name) {
                let way = if way.is_empty() { (*name).to_string() } else { format!("{way}.{name}") };
                visit(member, rest, way, each)
            }
        }
        _ => {}
    }
}
