//! From a conversation to a request that runs: every API with conversations uses this module.
//!
//! It combines templates, tools, thoughts and grammars; it does not know how an API shows the answer.

use super::ApiError;
use super::body::Told;
use super::chat::{ChatRequest, wants_stream};
use super::fields::{Shared, UsageIn};
use super::messages;
use super::prepare::{self, Ask, Held, Prepared};
use super::turn::Contents;
use crate::answer::Answers;
use crate::app::{App, Work};
use crate::flow::Flow;
use crate::grammar::thought::{CLOSE, Thinking};
use crate::grammar::tools::format::{Form, Format};
use crate::grammar::tools::{Rendering, Tools, adds_turns, joined, rendering, uses_tools};
use crate::grammar::{Grammar, GrammarError};
use crate::service::Service;
use crate::submit;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::sync::Arc;
use vosti_engine::Token;
use vosti_model::{ChatOptions, ChatTemplate, Date, Prompt};

/// A request that the engine has, and the form of its answer.
pub struct Begun {
    pub service: Arc<Service>,
    pub prepared: Prepared,
    pub flow: Flow,
    pub stream: bool,
    pub usage_in: UsageIn,
}

/// Checks a conversation and hands it to the engine.
pub async fn begin(app: Arc<App>, mut request: ChatRequest, told: &Told) -> Result<Begun, ApiError> {
    let arrival = app.arrive();
    let service = app.service()?;
    let shared = request.shared();
    prepare::check_model(&app, shared.model.as_deref())?;
    let choices = prepare::choices(&app, &shared)?;
    let places = app.places.take(choices as usize, service.identity.running_max)?;
    let (stream, usage_in) = wants_stream(&shared)?;
    let (of, with) = (app.clone(), service.clone());
    let work = async {
        let kind = prepare::work(&shared, request.tools.is_some());
        let prepared = app.prepare(kind, move || prepare(&of, &with, request, shared)).await?;
        let running = submit::submit(&service, &prepared.job, places).await?;
        Ok((prepared, running))
    };
    let (mut prepared, running) = arrival.within(&app.config.limits, work).await?;
    told.warn(prepared.warnings.drain(..));
    let answers = Answers::new(&prepared.job, &service.text);
    let mut flow = Flow::new(app.clone(), running, answers, &prepared.job, arrival);
    flow.repeat().await?;
    Ok(Begun { service, prepared, flow, stream, usage_in })
}

/// The tokens of a conversation's prompt; nothing runs.
pub async fn prompt(app: Arc<App>, mut request: ChatRequest) -> Result<Vec<Token>, ApiError> {
    let _busy = app.arrive();
    let service = app.service()?;
    let shared = request.shared();
    prepare::check_model(&app, shared.model.as_deref())?;
    let of = app.clone();
    let work = move || {
        let tools = tools(&service, &mut request)?;
        let (prompt, _) = rendered(&of, &service, &mut request, tools.as_ref())?;
        tokens(&service, &prompt, shared.add_special_tokens)
    };
    app.prepare(Work::Text, work).await
}

/// Renders, tokenizes and checks.
fn prepare(app: &App, service: &Service, mut request: ChatRequest, mut shared: Shared) -> Result<Prepared, ApiError> {
    if request.top_logprobs.is_some_and(|top| top > 0) && request.logprobs != Some(true) {
        return Err(ApiError::field("top_logprobs", "top_logprobs needs logprobs"));
    }
    prepare::check_top("top_logprobs", request.top_logprobs)?;
    let source_max = if shared.max_tokens.is_some() { "max_tokens" } else { "max_completion_tokens" };
    shared.max_tokens =
        prepare::one_of(("max_tokens", shared.max_tokens), ("max_completion_tokens", request.max_completion_tokens))?;
    // A stop string may hold the text of a mark back, which then comes later than its token.
    let stops = shared.stop.is_some();
    let tools = tools(service, &mut request)?.map(|tools| if stops { tools.by_token(|_| None) } else { tools });
    let (tools, held) = match (tools, prepare::held(&mut shared)?) {
        (Some(tools), format) => {
            let (tools, param) = match format {
                Some(Held { grammar, param }) => (tools.or(grammar), param),
                None => (tools, "tools"),
            };
            (Some(tools.clone()), Some(Held { grammar: Grammar::Tools(tools), param }))
        }
        (None, format) => (None, format),
    };
    let (prompt, thinking) = rendered(app, service, &mut request, tools.as_ref())?;
    let date = request.vosti_date.unwrap_or_else(|| "2024-07-26".into());
    let tokens = tokens(service, &prompt, shared.add_special_tokens)?;
    if app.config.log_prompts {
        tracing::info!(prompt = &*prompt.text(), "prompt");
    }
    let close = mark(service, CLOSE);
    let contents = Contents {
        tools,
        close,
        thinking: thinking.filter(|_| request.separate_reasoning.unwrap_or(true)),
        thoughts_hidden: !request.include_reasoning.unwrap_or(true),
    };
    let ask = Ask {
        prompts: vec![tokens],
        tokens_default: None,
        may_score: false,
        logprobs: request.logprobs.unwrap_or(false).then(|| request.top_logprobs.unwrap_or(0)),
        prompt_logprobs: shared.prompt_logprobs,
        held: held.map(|Held { grammar, param }| Held { grammar: grammar.after(thinking, close), param }),
        ends: Vec::new(),
        thinking: thinking.map(|thinking| (thinking, close)),
        date: Some(date),
        source: "messages",
        tokens_name: source_max,
    };
    let prepared = prepare::request(app, service, shared, ask);
    Ok(Prepared { contents, ..prepared.map_err(|error| error.renamed(&[("max_tokens", source_max)]))? })
}

/// The tools that may be called, in the form that the model's template has.
fn tools(service: &Service, request: &mut ChatRequest) -> Result<Option<Tools>, ApiError> {
    let tools = messages::tools(request.tools.take(), request.tool_choice.take(), request.parallel_tool_calls)?;
    let Some(tools) = tools else { return Ok(None) };
    let template = service.language.chat().map_err(|error| ApiError::field("tools", error.to_string()))?;
    let form = Form::of(template.for_tools(true)).map(|form| form.format);
    let tools = tools.in_form(form);
    // A model whose template knows no tools may spell the mark.
    Ok(Some(if form.is_some() { tools.by_token(|text| mark(service, text)) } else { tools }))
}

/// The token of a mark, if the vocabulary has one that is shown as its text.
fn mark(service: &Service, text: &str) -> Option<Token> {
    let tokenizer = service.tokenizer();
    tokenizer.token_id(text).filter(|token| tokenizer.decode(&[*token]) == text)
}

/// The conversation as the model's prompt, and whether the model thinks before it answers it.
fn rendered(
    app: &App,
    service: &Service,
    request: &mut ChatRequest,
    tools: Option<&Tools>,
) -> Result<(Prompt, Option<Thinking>), ApiError> {
    let mut list = messages::list(std::mem::take(&mut request.messages))?;
    let open = request.continue_final_message.unwrap_or(false);
    if open && request.add_generation_prompt == Some(true) {
        let message = "continue_final_message leaves no room for add_generation_prompt: set one of them";
        return Err(ApiError::field("continue_final_message", message));
    }
    let add_generation_prompt = Some(request.add_generation_prompt.unwrap_or(true) && !open);
    let variables = with_effort(request.chat_template_kwargs.take(), request.reasoning_effort.take());
    let options = options(add_generation_prompt, request.vosti_date.as_deref(), variables)?;
    let template = template(app, service, request.chat_template.take())?;
    let template = template.for_tools(tools.is_some());
    if open {
        mark_end(&mut list)?;
    }
    let prompt = render(template, &list, tools, options)?;
    let prompt = if open { cut(&prompt)? } else { prompt };
    let thinking = Thinking::of(template.source(), |end| prompt.ends_with(end)).filter(|_| !open);
    Ok((prompt, thinking))
}

/// Marks the end of the open message while it is rendered. A user's text is unlikely to contain it; a text that does is refused.
const END: &str = "\u{f8ff}vosti-end-of-open-message\u{f8ff}";

fn mark_end(list: &mut [Value]) -> Result<(), ApiError> {
    let wrong = || ApiError::field("continue_final_message", "the last message has no text to continue");
    let last = list.last_mut().ok_or_else(wrong)?;
    let calls = last.get("tool_calls").is_some();
    let text = last["content"].as_str().filter(|text| !(calls && text.is_empty())).ok_or_else(wrong)?;
    last["content"] = format!("{text}{END}").into();
    Ok(())
}

fn cut(prompt: &Prompt) -> Result<Prompt, ApiError> {
    prompt.before(END).ok_or_else(|| {
        let message = "the chat template does not render the last message exactly once, so it cannot be continued";
        ApiError::field("continue_final_message", message)
    })
}

/// The model's template, or the request's if such are trusted.
fn template<'a>(app: &App, service: &'a Service, own: Option<String>) -> Result<Cow<'a, ChatTemplate>, ApiError> {
    let template = service.language.chat().map_err(|error| ApiError::field("messages", error.to_string()))?;
    match own {
        None => Ok(Cow::Borrowed(template)),
        Some(_) if !app.config.trust_chat_template => {
            let message = "chat_template is not supported: start the server with --trust-request-chat-template";
            Err(ApiError::unsupported("chat_template", message))
        }
        Some(source) => {
            let own = template.with_source(source);
            own.map(Cow::Owned).map_err(|error| ApiError::field("chat_template", error.to_string()))
        }
    }
}

/// The template's variables, with those that `reasoning_effort` sets unless the request sets them itself.
fn with_effort(variables: Option<Map<String, Value>>, effort: Option<String>) -> Option<Map<String, Value>> {
    let Some(effort) = effort else { return variables };
    let mut variables = variables.unwrap_or_default();
    variables.entry("enable_thinking").or_insert((effort != "none").into());
    variables.entry("reasoning_effort").or_insert(effort.into());
    Some(variables)
}

/// The options with which the template is rendered. An error if the date is not a date.
pub fn options(
    add_generation_prompt: Option<bool>,
    date: Option<&str>,
    variables: Option<Map<String, Value>>,
) -> Result<ChatOptions, ApiError> {
    let wrong = || ApiError::field("vosti_date", "vosti_date must be a day like 2024-07-26");
    Ok(ChatOptions {
        add_generation_prompt: add_generation_prompt.unwrap_or(true),
        date: date.map_or(Some(Date::DEFAULT), Date::parse).ok_or_else(wrong)?,
        tools: None,
        variables: variables.unwrap_or_default(),
    })
}

/// The conversation as the model's prompt.
fn render(
    template: &ChatTemplate,
    messages: &[Value],
    tools: Option<&Tools>,
    options: ChatOptions,
) -> Result<Prompt, ApiError> {
    let form = match uses_tools(messages, tools) {
        true => Form::of(template),
        false => Format::of_text(template.source()).map(Form::from),
    };
    let fitted = rendering(messages, tools, form, |inputs| template.marks(inputs, &options));
    let render = |Rendering { messages, tools, marks }: Rendering| {
        template.render_marked(messages, ChatOptions { tools, ..options.clone() }, marks)
    };
    let prompt = match render(fitted.clone()) {
        Err(error) if adds_turns(messages, tools, form) => render(joined(fitted)).map_err(|_| error),
        prompt => prompt,
    };
    prompt.map_err(|error| ApiError::field("messages", error.to_string()))
}

/// Tokens of a conversation.
fn tokens(service: &Service, prompt: &Prompt, special: Option<bool>) -> Result<Vec<Token>, ApiError> {
    let tokens = service.tokenizer().encode_prompt(prompt, special.unwrap_or(false));
    tokens.map_err(|error| ApiError::field("messages", error.to_string()))
}

/// Tokens of a text.
pub fn encode(service: &Service, text: &str, special: bool, param: &str) -> Result<Vec<Token>, ApiError> {
    let tokens = service.tokenizer().encode(text, special);
    tokens.map_err(|error| ApiError::field(param, error.to_string()))
}

/// The error of a refused grammar, with the field that it came from; among strict tools, the first one whose schema is refused
/// alone.
pub fn grammar_error(service: &Service, held: &Held, error: &GrammarError) -> ApiError {
    let refused = |param: &str, error: &GrammarError| {
        let message = match error {
            GrammarError::Refused(_) => format!("{param} {error}"),
            GrammarError::TooLong { .. } | GrammarError::Tokenizer(_) => format!("{param}: {error}"),
        };
        ApiError::field(param, message)
    };
    let alone = held.grammar.tools().and_then(|tools| {
        let schemas = tools.schemas().enumerate().filter(|(index, _)| tools.is_strict(*index));
        schemas.filter_map(|(index, schema)| Some((index, service.grammars.compile(&schema).err()?))).next()
    });
    match alone {
        Some((index, error)) => refused(&format!("tools[{index}].function.parameters"), &error),
        None => refused(held.param, error),
    }
}
