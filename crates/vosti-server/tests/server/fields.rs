//! Fields of other engines: each is in a request type here or in the table, and the server does what the table says.

use crate::common::{Options, Toyserver, chat, completion, serve, toy, with};
use serde_json::{Value, json};
use vosti_server::UnknownFields;
use vosti_server::api::foreign::{Engine, FIELDS, Foreign, Place, Taken};

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";

/// Names of fields that both kinds of completion accept in llama.cpp's server.
const LLAMA_CPP: &str = "adaptive_decay adaptive_target backend_sampling cache_prompt dry_allowed_length dry_base dry_multiplier \
    dry_penalty_last_n dry_sequence_breakers dynatemp_exponent dynatemp_range echo frequency_penalty grammar \
    grammar_lazy id_slot ignore_eos json_schema logit_bias logprobs lora max_tokens min_keep min_p mirostat \
    mirostat_eta mirostat_tau n n_cache_reuse n_cmpl n_discard n_indent n_keep n_predict n_probs \
    post_sampling_probs presence_penalty repeat_last_n repeat_penalty response_fields return_progress return_tokens \
    samplers seed sse_ping_interval stop stream stream_options t_max_predict_ms temperature timings_per_token top_k \
    top_n_sigma top_p typical_p verbose xtc_probability xtc_threshold";

/// Names in the request classes of the engines, as published: `openai` 2.54.0 (`completion_create_params.py`,
/// `response_create_params.py`), `anthropic` 2.12.0 (`message_create_params.py`), vLLM
/// `002032ee` (`chat_completion/protocol.py`, `completion/protocol.py`), `010a69ce` (`responses/protocol.py`), `00589e56`
/// (`anthropic/protocol.py`), `030ea52e` (`tokenize/protocol.py`) and 0.10 (`openai/protocol.py`), SGLang `004c82e0`
/// (`openai/protocol.py`), llama.cpp 11434 (`tools/server/server-schema.cpp`, `server-common.cpp`).
const PUBLISHED: [(Engine, &str, &str); 21] = [
    (
        Engine::OpenAi,
        "ChatRequest",
        "audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens max_tokens messages \
         metadata modalities model moderation n parallel_tool_calls prediction presence_penalty prompt_cache_key \
         prompt_cache_options prompt_cache_retention reasoning_effort response_format safety_identifier seed service_tier \
         stop store stream stream_options temperature tool_choice tools top_logprobs top_p user verbosity \
         web_search_options",
    ),
    (
        Engine::OpenAi,
        "CompletionRequest",
        "best_of echo frequency_penalty logit_bias logprobs max_tokens model n presence_penalty prompt seed stop stream \
         stream_options suffix temperature top_p user",
    ),
    (
        Engine::OpenAi,
        "ResponsesRequest",
        "background context_management conversation include input instructions max_output_tokens max_tool_calls metadata \
         model moderation parallel_tool_calls previous_response_id prompt prompt_cache_key prompt_cache_options \
         prompt_cache_retention reasoning safety_identifier service_tier store stream stream_options temperature text \
         tool_choice tools top_logprobs top_p truncation user",
    ),
    (
        Engine::Anthropic,
        "MessagesRequest",
        "max_tokens messages model cache_control container diagnostics inference_geo metadata output_config service_tier \
         speed stop_sequences stream system temperature thinking tool_choice tools top_k top_p user_profile_id workspace_id",
    ),
    (
        Engine::Anthropic,
        "CountRequest",
        "messages model cache_control output_config speed system thinking tool_choice tools user_profile_id workspace_id",
    ),
    (
        Engine::Vllm,
        "ChatRequest",
        "messages model frequency_penalty logit_bias logprobs top_logprobs max_tokens max_completion_tokens n \
         presence_penalty response_format seed stop stream stream_options temperature top_p tools tool_choice \
         reasoning_effort thinking_token_budget include_reasoning parallel_tool_calls user use_beam_search top_k min_p \
         repetition_penalty watermarking length_penalty stop_token_ids include_stop_str_in_output ignore_eos min_tokens \
         skip_special_tokens spaces_between_special_tokens truncate_prompt_tokens truncation_side prompt_logprobs \
         logprob_token_ids allowed_token_ids bad_words echo add_generation_prompt continue_final_message \
         add_special_tokens documents chat_template chat_template_kwargs media_io_kwargs mm_processor_kwargs \
         structured_outputs priority request_id session_id return_tokens_as_token_ids return_token_ids \
         routed_experts_prompt_start return_token_offsets return_prompt_text return_mm_kwargs cache_salt \
         kv_transfer_params ec_transfer_params vllm_xargs repetition_detection stream_interval",
    ),
    (
        Engine::Vllm,
        "CompletionRequest",
        "model prompt echo frequency_penalty logit_bias logprobs max_tokens n presence_penalty seed stop stream \
         stream_options suffix temperature top_p user use_beam_search top_k min_p repetition_penalty watermarking \
         length_penalty stop_token_ids include_stop_str_in_output ignore_eos min_tokens skip_special_tokens \
         spaces_between_special_tokens truncate_prompt_tokens truncation_side allowed_token_ids prompt_logprobs \
         logprob_token_ids bad_words prompt_embeds add_special_tokens response_format structured_outputs priority \
         request_id session_id return_tokens_as_token_ids return_token_ids routed_experts_prompt_start \
         return_token_offsets return_mm_kwargs cache_salt kv_transfer_params ec_transfer_params vllm_xargs \
         repetition_detection thinking_token_budget stream_interval",
    ),
    (
        Engine::Sglang,
        "ChatRequest",
        "messages model frequency_penalty logit_bias logprobs top_logprobs max_tokens max_completion_tokens n \
         presence_penalty response_format seed stop stream stream_options temperature top_p user tools tool_choice \
         parallel_tool_calls return_hidden_states return_routed_experts routed_experts_start_len \
         return_cached_tokens_details return_prompt_token_ids return_token_ids return_meta_info reasoning_effort task \
         top_k min_p min_tokens regex ebnf repetition_penalty stop_token_ids stop_regex no_stop_trim ignore_eos \
         continue_final_message skip_special_tokens lora_path session_id session_params separate_reasoning \
         stream_reasoning chat_template_kwargs max_dynamic_patch min_dynamic_patch use_audio_in_video images_config \
         custom_logit_processor custom_params input_ids rid extra_key cache_salt ngram_corpus_id priority bootstrap_host \
         bootstrap_port bootstrap_room routed_dp_rank disagg_prefill_dp_rank data_parallel_rank",
    ),
    (
        Engine::Sglang,
        "CompletionRequest",
        "model prompt best_of echo frequency_penalty logit_bias logprobs max_tokens n presence_penalty seed stop stream \
         stream_options suffix temperature top_p user return_hidden_states return_routed_experts routed_experts_start_len \
         return_cached_tokens_details return_token_ids top_k min_p min_tokens json_schema regex ebnf repetition_penalty \
         stop_token_ids stop_regex no_stop_trim ignore_eos skip_special_tokens lora_path session_id session_params \
         response_format custom_params custom_logit_processor images_config bootstrap_host bootstrap_port bootstrap_room \
         routed_dp_rank disagg_prefill_dp_rank data_parallel_rank rid extra_key cache_salt ngram_corpus_id priority \
         custom_labels",
    ),
    (
        Engine::Vllm,
        "ChatRequest",
        "best_of early_stopping guided_choice guided_decoding_backend guided_grammar guided_json guided_regex \
         guided_whitespace_pattern logits_processors structural_tag",
    ),
    (
        Engine::Vllm,
        "ResponsesRequest",
        "background cache_salt enable_response_messages ignore_eos include include_stop_str_in_output input instructions \
         logit_bias max_output_tokens max_tool_calls metadata mm_processor_kwargs model parallel_tool_calls \
         previous_input_messages previous_response previous_response_id priority prompt prompt_cache_key reasoning \
         repetition_penalty request_id seed service_tier skip_special_tokens stop store stream structured_outputs \
         temperature text tool_choice tools top_k top_logprobs top_p truncation user vllm_xargs",
    ),
    (
        Engine::Sglang,
        "ResponsesRequest",
        "background cache_salt chat_template_kwargs extra_key frequency_penalty include input instructions \
         max_output_tokens max_tool_calls metadata min_p model ngram_corpus_id parallel_tool_calls presence_penalty \
         previous_response_id priority reasoning repetition_penalty request_id service_tier session_id stop store stream \
         temperature text tool_choice tools top_k top_logprobs top_p truncation user",
    ),
    (
        Engine::Vllm,
        "MessagesRequest",
        "chat_template_kwargs kv_transfer_params max_tokens messages metadata model output_config stop_sequences stream \
         system temperature tool_choice tools top_k top_p",
    ),
    (Engine::Vllm, "CountRequest", "chat_template_kwargs messages model system tool_choice tools"),
    (
        Engine::Vllm,
        "TokenizeRequest",
        "add_generation_prompt add_special_tokens chat_template chat_template_kwargs continue_final_message \
         media_io_kwargs messages mm_processor_kwargs model prompt return_token_strs tools",
    ),
    (
        Engine::Sglang,
        "TokenizeRequest",
        "add_special_tokens chat_template_kwargs continue_final_message messages model prompt reasoning_effort tool_choice \
         tools",
    ),
    (Engine::Sglang, "DetokenizeRequest", "model skip_special_tokens tokens"),
    (Engine::LlamaCpp, "ChatRequest", LLAMA_CPP),
    (
        Engine::LlamaCpp,
        "ChatRequest",
        "add_generation_prompt chat_template_kwargs continue_final_message max_completion_tokens messages \
         parallel_tool_calls parse_tool_calls reasoning_budget_message reasoning_budget_tokens reasoning_control \
         reasoning_effort reasoning_format response_format thinking_budget_tokens tool_choice tools top_logprobs",
    ),
    (Engine::LlamaCpp, "CompletionRequest", LLAMA_CPP),
    (Engine::LlamaCpp, "CompletionRequest", "prompt"),
];

#[test]
fn every_field_of_every_engine_is_in_a_type_or_in_the_table() {
    let document = serde_json::to_value(vosti_server::openapi::document()).unwrap();
    for (engine, request, names) in PUBLISHED {
        let places: &[Place] = match request {
            "ChatRequest" => &[Place::Completion, Place::Chat],
            "CompletionRequest" => &[Place::Completion, Place::Text],
            "ResponsesRequest" => &[Place::Responses],
            "TokenizeRequest" => &[Place::Tokenize],
            "DetokenizeRequest" => &[Place::Detokenize],
            _ => &[Place::Messages],
        };
        for name in names.split_whitespace() {
            let typed = document["components"]["schemas"][request]["properties"].get(name).is_some();
            let row = FIELDS.iter().find(|row| row.name == name && places.contains(&row.place));
            assert!(typed != row.is_some(), "{request} of {engine:?}: {name} is once in a type or in the table");
            assert!(row.is_none_or(|row| row.engines.contains(&engine)), "{engine:?} has {name} too");
        }
    }
}

/// A request with a value at a row's place.
fn asking(row: &Foreign, value: Value) -> (&'static str, Value) {
    let tool = json!({"type": "function", "function": {"name": "f"}});
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let said = json!({"role": "user", "content": [{"type": "text", "text": "x"}]});
    let mut body = match row.place {
        Place::Text => completion("x"),
        Place::StreamOptions => with(chat("x"), json!({"stream": true, "stream_options": {}})),
        Place::Message | Place::Part | Place::Call => with(
            chat("x"),
            json!({"messages": [{"role": "assistant", "content": [{"type": "text", "text": "x"}], "tool_calls": [call]}]}),
        ),
        Place::StructuredOutputs => with(chat("x"), json!({"structured_outputs": {}})),
        Place::Tool | Place::Function => with(chat("x"), json!({"tools": [tool]})),
        Place::Completion | Place::Chat => chat("x"),
        Place::Responses
        | Place::ResponsesItem
        | Place::ResponsesPart
        | Place::ResponsesReasoning
        | Place::ResponsesText
        | Place::ResponsesTool => {
            json!({"input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}]}], "text": {}, "reasoning": {},
                "tools": [{"type": "function", "name": "f"}]})
        }
        Place::ResponsesOutput => {
            let output = json!([{"type": "input_text", "text": "x"}]);
            json!({"input": [{"type": "function_call_output", "call_id": "c", "output": output}]})
        }
        Place::Tokenize => json!({"messages": [said]}),
        Place::Detokenize => json!({"tokens": [1]}),
        Place::Ollama | Place::OllamaOptions | Place::OllamaMessage | Place::OllamaCall => {
            let call = json!({"function": {"name": "f", "arguments": {}}});
            json!({"messages": [{"role": "assistant", "content": "x", "tool_calls": [call]}],
                "options": {"num_predict": 1}, "stream": false})
        }
        Place::MessagesText => {
            let result = json!({"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "x"}]});
            json!({"messages": [{"role": "user", "content": [result]}]})
        }
        Place::Messages | Place::MessagesSystem | Place::MessagesBlock | Place::MessagesTool => {
            json!({"messages": [said], "system": [{"type": "text", "text": "x"}],
                "tools": [{"name": "f", "input_schema": {"type": "object"}}]})
        }
    };
    let path = match row.place {
        Place::Text => TEXT,
        Place::Responses
        | Place::ResponsesItem
        | Place::ResponsesPart
        | Place::ResponsesOutput
        | Place::ResponsesReasoning
        | Place::ResponsesText
        | Place::ResponsesTool => "/v1/responses",
        Place::Tokenize => "/tokenize",
        Place::Detokenize => "/detokenize",
        Place::Ollama | Place::OllamaOptions | Place::OllamaMessage | Place::OllamaCall => "/api/chat",
        Place::Messages | Place::MessagesText | Place::MessagesSystem | Place::MessagesBlock | Place::MessagesTool => {
            "/v1/messages"
        }
        _ => CHAT,
    };
    let pointer: String =
        row.place.path().iter().map(|step| if *step == "*" { "/0".into() } else { format!("/{step}") }).collect();
    let holder = body.pointer_mut(&pointer).unwrap().as_object_mut().unwrap();
    holder.insert(row.name.into(), value);
    (path, body)
}

async fn asks(server: &Toyserver, row: &Foreign, value: Value) -> (u16, String, String) {
    let (path, body) = asking(row, value);
    let body = match path {
        "/tokenize" | "/detokenize" | "/api/chat" => body,
        "/v1/responses" => with(body, json!({"max_output_tokens": 1})),
        _ => with(body, json!({"max_tokens": 1})),
    };
    let answer = server.post(path, body).await;
    if answer.status == 200 { (200, String::new(), String::new()) } else { answer.error() }
}

#[tokio::test]
async fn the_table_is_kept_to() {
    let server = toy();
    let odd = json!({"vosti": ["no such value"]});
    for row in FIELDS {
        let values: Vec<Value> = match row.taken {
            Taken::Null => vec![],
            Taken::Any | Taken::Told => vec![odd.clone(), json!(true), json!(7), json!("x")],
            Taken::As(_) => vec![json!(1)],
            Taken::Of(names) => vec![json!([]), json!([names[0]]), json!(names)],
            Taken::These(values) => values.iter().map(|text| serde_json::from_str(text).unwrap()).collect(),
        };
        for value in values.into_iter().chain([Value::Null]) {
            let (status, _, message) = asks(&server, row, value.clone()).await;
            assert_eq!(status, 200, "{row:?} takes {value}: {message}");
        }
        if !matches!(row.taken, Taken::Any | Taken::Told) {
            let (status, param, message) = asks(&server, row, odd.clone()).await;
            assert_eq!(status, 400, "{row:?}");
            // ollama's errors have no place for the field.
            let named = if param.is_empty() { message.contains(row.name) } else { param.ends_with(row.name) };
            assert!(named && message.contains(row.means), "{param}: {message}");
        }
    }
}

#[tokio::test]
async fn one_error_names_every_field_that_cannot_be_served() {
    let server = toy();
    let body = with(chat("x"), json!({"odd": 1, "ebnf": "x", "best_of": 2, "tools": [{"type": "web_search"}]}));
    let (status, param, message) = server.post(CHAT, body.clone()).await.error();
    assert_eq!((status, param.as_str()), (400, "best_of"), "{message}");
    let tool = "tools[0] is of type \"web_search\", and the model can call tools of type \"function\" only: leave it out, or describe \
                a tool that your program runs as a function";
    for name in ["odd", "ebnf", "best_of", tool, "--unknown-fields warn"] {
        assert!(message.contains(name), "{message}");
    }
    // What the server would ignore if it were told to.
    let lenient = serve(&Options { unknown_fields: UnknownFields::Warn, ..Options::default() });
    let answer = lenient.post(CHAT, body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let mut named: Vec<&str> = answer.headers["x-vosti-ignored"].to_str().unwrap().split(", ").collect();
    named.sort_unstable();
    assert_eq!(named, ["best_of", "ebnf", "odd", "tools[0].type"]);
}

/// What Claude Code and Codex send with every request.
#[tokio::test]
async fn agents_are_served_and_told_what_is_ignored() {
    let server = toy();
    let tool = json!({"name": "Bash", "description": "Runs it.", "input_schema": {"$schema": "x", "type": "object",
        "properties": {"command": {"type": "string"}}, "required": ["command"], "additionalProperties": false}});
    let text = |text: &str| json!([{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]);
    let claude = json!({"model": "toy", "max_tokens": 32000, "messages": [{"role": "user", "content": text("x")}],
        "system": text("You are an agent."), "tools": [tool], "metadata": {"user_id": "u"}, "stream": true,
        "thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}});
    let answer = server.post("/v1/messages?beta=true", claude).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.headers["x-vosti-ignored"], "context_management");
    let warning = answer.headers["x-vosti-warning"].to_str().unwrap();
    assert!(warning.starts_with("max_tokens is 32000 and the context leaves "), "{warning}");
    let shell = json!({"type": "function", "name": "shell", "strict": false, "parameters": {"type": "object",
        "properties": {"command": {"type": "array", "items": {"type": "string"}}}, "required": ["command"]}});
    let codex = json!({"model": "toy", "instructions": "You are an agent.", "stream": true, "store": false,
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}],
        "tools": [shell], "tool_choice": "auto", "parallel_tool_calls": false, "max_output_tokens": 9,
        "reasoning": {"effort": "medium", "summary": "auto"}, "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "k", "text": {"verbosity": "low"}, "truncation": "auto", "client_metadata": {"a": "b"}});
    let answer = server.post("/v1/responses", codex.clone()).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.headers["x-vosti-ignored"], "text.verbosity");
    let searches = with(codex, json!({"tools": [{"type": "web_search", "external_web_access": true}, shell]}));
    let (_, param, message) = server.post("/v1/responses", searches.clone()).await.error();
    assert!(param == "tools[0].type" && message.contains("--unknown-fields warn"), "{message}");
    let lenient = serve(&Options { unknown_fields: UnknownFields::Warn, ..Options::default() });
    let answer = lenient.post("/v1/responses", searches).await;
    assert_eq!(answer.headers["x-vosti-ignored"], "text.verbosity, tools[0].type", "{}", answer.text);
}

#[tokio::test]
async fn the_names_of_llama_cpp_and_ollama_are_known() {
    let server = toy();
    let own = json!({"repetition_penalty": 1.3, "max_tokens": 9});
    let theirs = json!({"repeat_penalty": 1.3, "n_predict": 9, "max_tokens": null, "keep_alive": "5m",
        "samplers": ["top_k"], "repeat_last_n": 64, "typical_p": 1.0});
    let answer = server.post(CHAT, with(chat("x"), theirs)).await;
    assert_eq!(answer.json()["choices"], server.ok(CHAT, with(chat("x"), own)).await["choices"]);
    assert_eq!(answer.headers["x-vosti-ignored"], "repeat_last_n, samplers");
    let both = with(chat("x"), json!({"repeat_penalty": 1.3, "repetition_penalty": 1.2}));
    assert_eq!(server.post(CHAT, both).await.error().1, "repeat_penalty");
}

/// JavaScript reads whole numbers up to 2^53 - 1.
#[tokio::test]
async fn a_seed_survives_javascript_and_minus_one_is_a_fresh_one() {
    let server = toy();
    let ask = |seed: Value| server.ok(TEXT, with(completion("x"), json!({"seed": seed})));
    let (one, other) = (ask(json!(-1)).await, ask(json!(-1)).await);
    assert_ne!(one["vosti_seed"], other["vosti_seed"]);
    assert!(one["vosti_seed"].as_u64().unwrap() < 1 << 53);
    for (seed, told) in [(json!(-7), json!(-7)), (json!(u64::MAX), json!(u64::MAX.to_string())), (json!("7"), json!(7))]
    {
        let answer = ask(seed).await;
        assert_eq!(answer["vosti_seed"], told);
        assert_eq!(ask(told).await["choices"], answer["choices"]);
    }
    assert_eq!(server.post(TEXT, with(completion("x"), json!({"seed": "x"}))).await.error().1, "seed");
}

#[tokio::test]
async fn best_of_is_n_or_refused() {
    let server = toy();
    server.ok(TEXT, with(completion("x"), json!({"best_of": 2, "n": 2}))).await;
    let refused = server.post(TEXT, with(completion("x"), json!({"best_of": 2}))).await;
    assert_eq!((refused.error().0, refused.error().1.as_str()), (400, "best_of"));
}

/// The fields that vllm-router 0.1.17 adds to every request.
#[tokio::test]
async fn a_routers_defaults_change_nothing() {
    let server = toy();
    let sent = json!({"no_stop_trim": false, "separate_reasoning": true, "stream_reasoning": true, "include_reasoning": true,
        "return_hidden_states": false, "skip_special_tokens": true, "ignore_eos": false, "continue_final_message": false,
        "lora_path": null, "session_params": null});
    let plain = server.ok(CHAT, chat("x")).await;
    let routed = server.ok(CHAT, with(chat("x"), sent)).await;
    assert_eq!(plain["choices"], routed["choices"]);
}

/// The official client's `messages.append(choice.message.model_dump())`, and LiteLLM's, which has more fields.
#[tokio::test]
async fn an_answer_may_be_sent_back_as_it_came() {
    let server = toy();
    let answer = json!({"content": "hm", "refusal": null, "role": "assistant", "annotations": null, "audio": null,
        "function_call": null, "tool_calls": null, "reasoning_content": "thought", "provider_specific_fields": {"refusal": null}});
    let user =
        json!({"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]});
    server.ok(CHAT, with(chat(""), json!({"messages": [user, answer, user]}))).await;
}

#[tokio::test]
async fn an_image_is_refused_as_one() {
    let server = toy();
    let image = json!({"type": "image_url", "image_url": {"url": "data:"}});
    let body =
        with(chat(""), json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}, image]}]}));
    let (status, param, message) = server.post(CHAT, body).await.error();
    assert_eq!((status, param.as_str()), (400, "messages[0].content[1].image_url"));
    assert!(message.contains("images are not supported"), "{message}");
}

#[tokio::test]
async fn no_limit_means_what_the_context_leaves() {
    let server = toy();
    let ask =
        |tokens: Value| with(completion("x"), json!({"max_tokens": tokens, "ignore_eos": true, "temperature": 0}));
    let whole = server.ok(TEXT, ask(json!(-1))).await;
    assert_eq!(whole["usage"]["total_tokens"], crate::common::CONTEXT);
    assert_eq!(server.post(TEXT, ask(json!(-2))).await.error().1, "max_tokens");
    let both = |a: i64, b: i64| with(chat("x"), json!({"max_tokens": a, "max_completion_tokens": b}));
    server.ok(CHAT, both(3, 3)).await;
    assert_eq!(server.post(CHAT, both(3, 4)).await.error().1, "max_completion_tokens");
}

#[tokio::test]
async fn unknown_fields_may_be_ignored_and_are_named_then() {
    let server = serve(&Options { unknown_fields: UnknownFields::Warn, ..Options::default() });
    let more = json!({"temperatur": 1, "suffix": "x", "use_beam_search": true, "stream_options": {"odd": 1}});
    let body = with(chat("x"), more);
    let body = with(body, json!({"messages": [{"role": "user", "content": "x", "weight": 1}]}));
    let answer = server.post(CHAT, body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let mut named: Vec<&str> = answer.headers["x-vosti-ignored"].to_str().unwrap().split(", ").collect();
    named.sort_unstable();
    assert_eq!(named, ["messages[0].weight", "stream_options.odd", "suffix", "temperatur", "use_beam_search"]);
    assert_eq!(answer.json()["choices"], server.ok(CHAT, chat("x")).await["choices"]);
    // A wrong value of a known field is still refused.
    assert_eq!(server.post(CHAT, with(chat("x"), json!({"temperature": "warm"}))).await.error().1, "temperature");
    assert!(!server.post(CHAT, chat("x")).await.headers.contains_key("x-vosti-ignored"));
}

/// In every field and at every depth, known or not; in JSON of the client's own a null is a value.
#[tokio::test]
async fn a_null_asks_for_nothing() {
    let server = toy();
    let call = json!({"id": "c", "type": null, "index": null, "odd": null,
        "function": {"name": "f", "arguments": "{}", "odd": null}});
    let messages = json!([
        {"role": "user", "content": [{"type": "text", "text": "x", "odd": null}], "odd": null, "name": null},
        {"role": "assistant", "content": null, "tool_calls": [call], "odd": null},
        {"role": "tool", "tool_call_id": "c", "content": "x", "odd": null},
    ]);
    let more = json!({"messages": messages, "odd": null, "response_format": {"type": "text", "json_schema": null},
        "stream": true, "stream_options": {"include_usage": null, "odd": null}, "tool_choice": null,
        "tools": [{"type": "function", "odd": null, "function": {"name": "f", "odd": null, "parameters": null}}],
        "structured_outputs": {"json": null, "odd": null}});
    let answer = server.post(CHAT, with(chat(""), more)).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let schema = json!({"type": "object", "properties": {"a": {"const": null}}, "required": ["a"],
        "additionalProperties": false});
    let held = with(completion("x"), json!({"guided_json": schema, "odd": null, "min_p": null}));
    assert_eq!(server.ok(TEXT, held).await["choices"][0]["text"], "{\"a\": null}");
    let item = json!({"role": "user", "content": [{"type": "input_text", "text": "x", "odd": null}], "odd": null});
    server.ok("/v1/responses", json!({"input": [item], "odd": null, "max_output_tokens": 1})).await;
    let text = json!({"type": "text", "text": "x", "odd": null});
    let body = json!({"messages": [{"role": "user", "content": [text], "odd": null}], "system": [text], "odd": null});
    server.ok("/v1/messages", with(body, json!({"max_tokens": 1}))).await;
    let none = server.post(CHAT, with(chat("x"), json!({"messages": null}))).await.error();
    assert_eq!((none.0, none.1.as_str()), (400, "messages"), "{}", none.2);
}

/// JSON Schema counts 2.0 as an integer, and so does vLLM.
#[tokio::test]
async fn a_whole_number_may_be_written_as_a_float() {
    let server = toy();
    let more = json!({"n": 2.0, "seed": 7.0, "max_tokens": 9.0, "top_k": 5.0, "logprobs": true, "top_logprobs": 2.0,
        "stop_token_ids": [65.0], "min_tokens": 0.0, "best_of": 2.0, "length_penalty": 1.0});
    let same = json!({"n": 2, "seed": 7, "max_tokens": 9, "top_k": 5, "logprobs": true, "top_logprobs": 2,
        "stop_token_ids": [65], "min_tokens": 0});
    let floats = server.ok(CHAT, with(chat("x"), more)).await;
    assert_eq!(floats["choices"], server.ok(CHAT, with(chat("x"), same)).await["choices"]);
    let tokens = with(completion(""), json!({"prompt": [65.0, 66.0]}));
    let ids = with(completion(""), json!({"prompt": [65, 66]}));
    assert_eq!(server.ok(TEXT, tokens).await["choices"], server.ok(TEXT, ids).await["choices"]);
    for (field, value) in [("n", json!(1.5)), ("n", json!(1e300)), ("seed", json!(1e300)), ("max_tokens", json!(-2.0))]
    {
        let (status, param, message) = server.post(CHAT, with(chat("x"), json!({field: value}))).await.error();
        assert_eq!((status, param.as_str()), (400, field), "{message}");
    }
    // JSON of the client's own is not changed.
    let body = with(completion("x"), json!({"guided_json": {"enum": ["2.0"]}, "n": 1.0}));
    assert_eq!(server.ok(TEXT, body).await["choices"][0]["text"], "\"2.0\"");
}

/// Clients that join streamed parts may leave out the type of a call.
#[tokio::test]
async fn a_kind_that_is_left_out_is_a_function() {
    let server = toy();
    let call = json!({"id": "c", "function": {"name": "f", "arguments": "{}"}});
    let messages = json!([{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "x"}]);
    server.ok(CHAT, with(chat(""), json!({"messages": messages, "tools": [{"function": {"name": "f"}}]}))).await;
}
