//! From a request's shared fields to a job for the engine: every value is checked here, once.

use super::fields::{LogprobsMode, ResponseFormat, Seed, Shared, UNLIMITED};
use super::logprobs::TOP_MAX;
use super::turn::Contents;
use super::usage::fresh;
use super::{ApiError, conversation};
use crate::app::{App, Work};
use crate::grammar::Grammar;
use crate::grammar::thought::Thinking;
use crate::job::Job;
use crate::receipt::Parameters;
use crate::service::Service;
use serde_json::Value;
use std::sync::Arc;
use vosti_engine::{Sampling, SamplingError, SamplingParams, Token};

/// Most stop strings of a request, and most bytes of one.
const STOPS_MAX: usize = 32;
const STOP_BYTES_MAX: usize = 512;
/// Most entries of `logit_bias`, and of `stop_token_ids`.
const TOKENS_MAX: usize = 1024;

/// A checked request: the job, and the form of its answer.
pub struct Prepared {
    pub job: Job,
    pub seed: Seed,
    /// Only prompts are scored: the one token that the engine generates is discarded.
    pub score_only: bool,
    pub return_token_ids: bool,
    /// The request's own `prompt_logprobs`; the job has more rows if `echo` wants them.
    pub prompt_logprobs: Option<usize>,
    /// For receipts.
    pub parameters: Option<Parameters>,
    /// The day that the chat template saw.
    pub date: Option<String>,
    pub model: String,
    pub contents: Contents,
    /// How the answer differs from what was asked for.
    pub warnings: Vec<String>,
}

/// The endpoint's fields besides the shared ones.
pub struct Ask {
    pub prompts: Vec<Vec<Token>>,
    /// Most tokens to generate, if the request does not say; none: as many as the context leaves.
    pub tokens_default: Option<usize>,
    /// `max_tokens` 0 is allowed.
    pub may_score: bool,
    pub logprobs: Option<usize>,
    pub prompt_logprobs: Option<usize>,
    pub held: Option<Held>,
    /// Tokens that end the answer besides the model's own.
    pub ends: Vec<Token>,
    /// How the answer's thoughts begin, if it has any, and the token that closes them, if no text does.
    pub thinking: Option<(Thinking, Option<Token>)>,
    pub date: Option<String>,
    /// The request's field that the prompts come from.
    pub source: &'static str,
    /// The request's field that limits the answer.
    pub tokens_name: &'static str,
}

/// The grammar of an answer, and the request's field that gives it.
pub struct Held {
    pub grammar: Grammar,
    pub param: &'static str,
}

/// The number of choices, checked before anything costs time.
pub fn choices(app: &App, shared: &Shared) -> Result<u32, ApiError> {
    let (n, limit) = (shared.n.unwrap_or(1), app.config.limits.choices_max);
    if n == 0 || n > limit {
        return Err(ApiError::field("n", format!("n is {n}; it must be between 1 and {limit}")));
    }
    Ok(n)
}

/// Refuses a model that is not served.
pub fn check_model(app: &App, name: Option<&str>) -> Result<(), ApiError> {
    match name {
        // Some clients send an empty name, which counts as no name.
        Some(name) if !name.is_empty() && !app.config.model_names.iter().any(|known| known == name) => {
            Err(ApiError::unknown_model(name, app.model_name()))
        }
        _ => Ok(()),
    }
}

/// Whether a request comes with a grammar, which takes longer than its text.
pub(crate) fn work(shared: &Shared, tools: bool) -> Work {
    let outputs = shared.structured_outputs.is_some() || shared.guided_json.is_some() || shared.json_schema.is_some();
    let texts = [&shared.guided_regex, &shared.regex, &shared.guided_grammar].iter().any(|text| text.is_some());
    let format = !matches!(shared.response_format, None | Some(ResponseFormat::Text {}));
    if tools || outputs || texts || format || shared.guided_choice.is_some() { Work::Grammar } else { Work::Text }
}

/// The grammar that a request asks for, under any of its names. Two of them are an error.
pub fn held(shared: &mut Shared) -> Result<Option<Held>, ApiError> {
    let outputs = shared.structured_outputs.take().unwrap_or_default();
    let format = match shared.response_format.take() {
        None | Some(ResponseFormat::Text {}) => None,
        Some(ResponseFormat::JsonObject {}) => Some(("response_format", Grammar::JsonObject)),
        Some(ResponseFormat::JsonSchema { json_schema }) => {
            Some(("response_format.json_schema.schema", Grammar::JsonSchema(json_schema.schema)))
        }
    };
    let mut asked: Vec<(&'static str, Grammar)> = format.into_iter().collect();
    for (param, schema) in [
        ("structured_outputs.json", outputs.json),
        ("guided_json", shared.guided_json.take()),
        ("json_schema", shared.json_schema.take()),
    ] {
        asked.extend(schema.map(|schema| json_schema(param, schema)).transpose()?.map(|grammar| (param, grammar)));
    }
    if outputs.json_object == Some(true) {
        asked.push(("structured_outputs.json_object", Grammar::JsonObject));
    }
    let patterns = [
        ("structured_outputs.regex", outputs.regex),
        ("guided_regex", shared.guided_regex.take()),
        ("regex", shared.regex.take()),
    ];
    let choices = [("structured_outputs.choice", outputs.choice), ("guided_choice", shared.guided_choice.take())];
    let grammars = [("structured_outputs.grammar", outputs.grammar), ("guided_grammar", shared.guided_grammar.take())];
    asked.extend(patterns.into_iter().filter_map(|(param, text)| Some((param, Grammar::Regex(text?)))));
    asked.extend(choices.into_iter().filter_map(|(param, texts)| Some((param, Grammar::Choice(texts?)))));
    asked.extend(grammars.into_iter().filter_map(|(param, text)| Some((param, Grammar::Lark(text?)))));
    match &asked[..] {
        [] | [_] => Ok(asked.pop().map(|(param, grammar)| Held { grammar, param })),
        [(one, _), .., (other, _)] => {
            let message =
                format!("{one} and {other} exclude each other: ask for one schema, expression, choice or grammar");
            Err(ApiError::field(*other, message))
        }
    }
}

/// A schema, as an object or as its text.
fn json_schema(name: &str, schema: Value) -> Result<Grammar, ApiError> {
    let schema = match schema {
        Value::String(text) => serde_json::from_str(&text)
            .map_err(|error| ApiError::field(name, format!("{name} is not a JSON schema: {error}")))?,
        schema => schema,
    };
    Ok(Grammar::JsonSchema(schema))
}

/// Checks everything and makes the job. It may compile a grammar, so it must not run on a thread that serves other requests.
pub fn request(app: &App, service: &Service, mut shared: Shared, ask: Ask) -> Result<Prepared, ApiError> {
    let choices = choices(app, &shared)?;
    check_top("prompt_logprobs", ask.prompt_logprobs)?;
    let room = room(service, &ask)?;
    shared.max_tokens = one_of((ask.tokens_name, shared.max_tokens), ("n_predict", shared.n_predict))?;
    let score_only = ask.may_score && shared.max_tokens == Some(0);
    let mut warnings = Vec::new();
    let tokens_max = match shared.max_tokens {
        Some(0) if score_only => 1,
        Some(0) => return Err(ApiError::field("max_tokens", "max_tokens is 0: ask for at least one token")),
        Some(UNLIMITED) => room,
        Some(tokens) if tokens > room => {
            warnings
                .push(format!("{} is {tokens} and the context leaves {room}: at most {room} come", ask.tokens_name));
            room
        }
        Some(tokens) => tokens,
        None => ask.tokens_default.unwrap_or(room).min(room),
    };
    let resume = shared.vosti_resume.take();
    let drawn = shared.temperature.unwrap_or(service.defaults.numbers.temperature) != 0.0;
    if resume.is_some() && matches!(shared.seed, None | Some(Seed::RANDOM)) && drawn {
        let message = "vosti_resume needs the seed that the answer had: its vosti_seed";
        return Err(ApiError::field("seed", message));
    }
    let seed = seed(&shared);
    let own_prompt_logprobs = shared.prompt_logprobs;
    let salt = shared.cache_salt.as_deref().map_or(0, salt);
    let digest = shared.vosti_digest.unwrap_or(false);
    let processed = shared.logprobs_mode == Some(LogprobsMode::Processed);
    let return_token_ids = shared.return_token_ids.unwrap_or(false);
    let routed_experts = shared.return_routed_experts.unwrap_or(false);
    let held = (ask.held.as_ref(), ask.thinking);
    let sampling = sampling(service, shared, held, &ask.ends, tokens_max, seed.bits(), &mut warnings)?;
    let parameters = digest.then(|| Parameters::of(&sampling, ask.held.map(|held| held.grammar)));
    let prompts: Vec<Arc<[Token]>> = ask.prompts.into_iter().map(Arc::from).collect();
    let (logprobs, prompt_logprobs) = (ask.logprobs, ask.prompt_logprobs);
    let mut job = Job {
        prompts,
        sampling,
        choices,
        logprobs,
        processed,
        prompt_logprobs,
        routed_experts,
        salt,
        digest,
        given: Vec::new(),
    };
    if let Some(resume) = resume {
        job.given = resume.given(&service.identity.fingerprint, service.identity.vocab, job.answers(), tokens_max)?;
    }
    let (date, model) = (ask.date, app.model_name().to_string());
    Ok(Prepared {
        job,
        seed,
        score_only,
        return_token_ids,
        prompt_logprobs: own_prompt_logprobs,
        parameters,
        date,
        model,
        contents: Contents::default(),
        warnings,
    })
}

/// Tokens that the context leaves to the answer of the longest prompt.
fn room(service: &Service, ask: &Ask) -> Result<usize, ApiError> {
    let context = service.identity.context;
    let (prompts, source) = (&ask.prompts, ask.source);
    for (index, prompt) in prompts.iter().enumerate() {
        let which = if prompts.len() == 1 { "the prompt".to_string() } else { format!("prompt {index}") };
        if prompt.is_empty() {
            return Err(ApiError::field(source, format!("{which} is empty: give at least one token")));
        }
        if prompt.len() >= context {
            let message = format!("{which} has {} tokens and the context holds {context}: shorten it", prompt.len());
            return Err(ApiError::context_length(source, message));
        }
        if let Some(token) = prompt.iter().find(|token| **token >= service.identity.vocab) {
            let vocab = service.identity.vocab;
            let message = format!("{which} has token {token}, and the vocabulary ends before {vocab}");
            return Err(ApiError::field(source, message));
        }
    }
    Ok(context - prompts.iter().map(Vec::len).max().unwrap_or(0))
}

/// The value of a field with two names.
pub fn one_of<T: Copy + PartialEq>(a: (&str, Option<T>), b: (&str, Option<T>)) -> Result<Option<T>, ApiError> {
    match (a.1, b.1) {
        (Some(one), Some(other)) if one != other => {
            Err(ApiError::field(b.0, format!("{} and {} differ: give one of them", a.0, b.0)))
        }
        (one, other) => Ok(one.or(other)),
    }
}

/// The request's seed, or a fresh one. 32 bits are easy to type again.
fn seed(shared: &Shared) -> Seed {
    match shared.seed {
        None | Some(Seed::RANDOM) => Seed((fresh() & 0xffff_ffff).into()),
        Some(seed) => seed,
    }
}

/// A salt's text as the engine's number; 0 is kept for requests without a salt.
fn salt(text: &str) -> u64 {
    let hash = blake3::hash(text.as_bytes());
    let mut word = [0; 8];
    word.copy_from_slice(&hash.as_bytes()[..8]);
    u64::from_le_bytes(word).max(1)
}

/// At most `TOP_MAX` of the most likely.
pub fn check_top(name: &str, top: Option<usize>) -> Result<(), ApiError> {
    match top {
        Some(top) if top > TOP_MAX => {
            Err(ApiError::field(name, format!("{name} is {top}; it must be between 0 and {TOP_MAX}")))
        }
        _ => Ok(()),
    }
}

fn sampling(
    service: &Service,
    shared: Shared,
    (held, thinking): (Option<&Held>, Option<(Thinking, Option<Token>)>),
    ends: &[Token],
    tokens_max: usize,
    seed: u64,
    warnings: &mut Vec<String>,
) -> Result<Sampling, ApiError> {
    let mut given = shared.numbers();
    given.repetition_penalty =
        one_of(("repetition_penalty", shared.repetition_penalty), ("repeat_penalty", shared.repeat_penalty))?;
    let numbers = given.over(&service.defaults.numbers).map_err(refused)?;
    let ignore_eos = shared.ignore_eos.unwrap_or(false);
    let all_ends = || service.tokenizer().eos().chain(ends.iter().copied()).collect();
    let mut stop_tokens: Vec<Token> = if ignore_eos { Vec::new() } else { all_ends() };
    stop_tokens.extend(tokens_of(service, "stop_token_ids", shared.stop_token_ids.unwrap_or_default())?);
    let mut left_out = Vec::new();
    let compiled = |held: &Held| {
        let constraint = service.grammars.compile_telling(&held.grammar, &mut left_out);
        constraint.map_err(|error| conversation::grammar_error(service, held, &error))
    };
    let constraint = held.map(compiled).transpose()?;
    if !left_out.is_empty() {
        warnings.push(format!("no grammar says {}: it may be violated", left_out.join(", ")));
    }
    let params = SamplingParams {
        logit_bias: biases(service, shared.logit_bias.unwrap_or_default())?,
        stop_tokens,
        stop_strings: stops(shared.stop.map(|stop| stop.into_list()).unwrap_or_default())?,
        thoughts: thinking.map(|(thinking, close)| thinking.sleep(close)),
        text: Some(service.text.clone()),
        constraint,
        tokens_min: tokens_min(shared.min_tokens, tokens_max)?,
        tokens_max,
        seed,
        ..SamplingParams::of(numbers)
    };
    Sampling::new(params).map_err(refused)
}

/// A sampling parameter out of range, by the request's name for it.
fn refused(error: SamplingError) -> ApiError {
    let message = error.to_string();
    match error {
        SamplingError::OutOfRange { name, .. } => ApiError::field(name, message),
        SamplingError::Bias { .. } | SamplingError::BiasTwice(_) => ApiError::field("logit_bias", message),
        SamplingError::EmptyStop(_) | SamplingError::StopsWithoutText => ApiError::field("stop", message),
        SamplingError::NoTokens => ApiError::field("max_tokens", message),
    }
}

fn tokens_min(tokens: Option<usize>, tokens_max: usize) -> Result<usize, ApiError> {
    match tokens.unwrap_or(0) {
        tokens if tokens > tokens_max => {
            let message = format!("min_tokens is {tokens} and the answer has at most {tokens_max} tokens");
            Err(ApiError::field("min_tokens", message))
        }
        tokens => Ok(tokens),
    }
}

fn stops(stops: Vec<String>) -> Result<Vec<String>, ApiError> {
    if stops.len() > STOPS_MAX || stops.iter().any(|stop| stop.len() > STOP_BYTES_MAX) {
        let message = format!("stop holds at most {STOPS_MAX} texts of at most {STOP_BYTES_MAX} bytes");
        return Err(ApiError::field("stop", message));
    }
    Ok(stops)
}

fn biases(service: &Service, biases: std::collections::BTreeMap<String, f32>) -> Result<Vec<(Token, f32)>, ApiError> {
    let read = |(token, bias): (String, f32)| match token.parse() {
        Ok(token) => Ok((token, bias)),
        Err(_) => {
            Err(ApiError::field("logit_bias", format!("logit_bias has the key {token:?}; keys must be token ids")))
        }
    };
    let biases: Vec<(Token, f32)> = biases.into_iter().map(read).collect::<Result<_, _>>()?;
    tokens_of(service, "logit_bias", biases.iter().map(|(token, _)| *token).collect())?;
    Ok(biases)
}

/// Tokens of the vocabulary, not too many.
fn tokens_of(service: &Service, name: &str, tokens: Vec<Token>) -> Result<Vec<Token>, ApiError> {
    if tokens.len() > TOKENS_MAX {
        return Err(ApiError::field(name, format!("{name} has {} entries; the limit is {TOKENS_MAX}", tokens.len())));
    }
    let vocab = service.identity.vocab;
    match tokens.iter().find(|token| **token >= vocab) {
        Some(token) => {
            Err(ApiError::field(name, format!("{name} has token {token}, and the vocabulary ends before {vocab}")))
        }
        None => Ok(tokens),
    }
}
