//! Structured output: a JSON schema, JSON, or calls of functions, as a constraint on the sampler.
//!
//! llguidance says which tokens may come next; the sampler draws among them. That set must be a function of the grammar and
//! of the tokens accepted so far. So each choice gets its own parser, cloned with its caches from one that has seen no token:
//! llguidance's limits count work that is not cached yet, so a parser that other requests had warmed would reach them
//! elsewhere. Nothing has a time limit: `cost.rs` counts what compiling would cost, and refuses too much. [`tools`] says how
//! functions are shown and called, [`thought`] handles models that think first.

mod cost;
pub mod harmony;
mod relax;
pub mod thought;
pub mod tools;

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, INVALID_TOKEN, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use thought::Thinking;
use vosti_engine::Token;
use vosti_engine::sampler::Constraint;
use vosti_engine::sampling::MakeConstraint;
use vosti_model::{Tokenizer, on_deep_stack};

/// A constraint on an answer. Receipts contain it in this form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grammar {
    /// Any JSON object.
    JsonObject,
    /// JSON that this schema describes.
    JsonSchema(Value),
    /// Text with calls of these functions, or such calls only.
    Tools(tools::Tools),
    /// Text that this regular expression matches as a whole.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// A grammar in Lark's notation, as llguidance reads it.
    Lark(String),
    /// Thoughts, and then an answer that the grammar allows.
    AfterThoughts {
        /// How the thoughts begin.
        thinking: Thinking,
        /// The token that ends them, if no text does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        close: Option<Token>,
        /// The grammar of the answer after them.
        grammar: Box<Grammar>,
    },
}

/// Why there is no constraint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum GrammarError {
    #[error("cannot be turned into a grammar: {0}")]
    Refused(String),
    #[error("structured output needs the model's tokenizer as bytes: {0}")]
    Tokenizer(String),
    #[error("the grammar is {bytes} bytes long and the limit is {limit}: send a smaller one")]
    TooLong { bytes: usize, limit: usize },
}

/// Compiles grammars for one model, and keeps the last few.
pub struct Grammars {
    factory: ParserFactory,
    stops: Vec<Token>,
    cache: Cache<Matcher>,
    /// By grammars that do not compile: those that take their place.
    relaxed: Cache<Compiling>,
}

/// By a grammar's hash; most recently used last.
type Cache<T> = Mutex<VecDeque<(blake3::Hash, Arc<T>)>>;

/// A grammar that compiles, and what it leaves out of the request's.
struct Compiling {
    grammar: Grammar,
    left_out: Vec<String>,
}

/// Most compiled grammars that are kept; each takes up to some megabytes.
const CACHED_MAX: usize = 32;

/// Longest grammar, in bytes: compiling takes a core from other requests.
const BYTES_MAX: usize = 128 << 10;

/// Bytes of the stack on which grammars are compiled: llguidance and `cost.rs` recurse along chains of references and rules, and the longest
/// grammar bounds how far. Pages that are not touched cost nothing.
const STACK: usize = 1 << 30;

impl Grammars {
    /// For rows of `vocab` logits and this tokenizer's tokens.
    pub fn new(tokenizer: &Tokenizer, vocab: u32) -> Result<Self, GrammarError> {
        let stops: Vec<Token> = tokenizer.eos().collect();
        let words = (0..vocab).map(|token| word(tokenizer, token)).collect();
        Self::of_words(words, stops)
    }

    /// For tokens with these bytes; those in `stops` end an answer, and the first of them is what the grammar asks for.
    fn of_words(words: Vec<Vec<u8>>, stops: Vec<Token>) -> Result<Self, GrammarError> {
        let stop = stops.first().copied().unwrap_or(INVALID_TOKEN);
        let info = TokRxInfo::new(words.len() as u32, stop);
        let ends = if stops.is_empty() { vec![stop] } else { stops.clone() };
        let trie = TokTrie::from(&info, &words).with_eos_tokens(&ends);
        let environment: llguidance::toktrie::TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let factory = ParserFactory::new_simple(&environment).map_err(|e| GrammarError::Tokenizer(e.to_string()))?;
        let mut grammars = Self { factory, stops, cache: Mutex::default(), relaxed: Mutex::default() };
        grammars.factory.quiet().limits_mut().verbose_errors = false;
        Ok(grammars)
    }

    /// The constraint, compiled unless the cache has it. Compiling takes milliseconds, and more for large schemas, so it must not
    /// run on a thread that serves other requests.
    pub fn compile(&self, grammar: &Grammar) -> Result<MakeConstraint, GrammarError> {
        self.compile_telling(grammar, &mut Vec::new())
    }

    /// The same, and what no grammar can say of the arguments of functions: it is left out, unless the function is strict.
    pub fn compile_telling(
        &self,
        grammar: &Grammar,
        left_out: &mut Vec<String>,
    ) -> Result<MakeConstraint, GrammarError> {
        let compiled = on_deep_stack(STACK, || self.compile_or_relax(grammar, left_out));
        compiled.unwrap_or_else(|error| Err(GrammarError::Refused(format!("there is no thread for it: {error}"))))
    }

    fn compile_or_relax(&self, grammar: &Grammar, left_out: &mut Vec<String>) -> Result<MakeConstraint, GrammarError> {
        let error = match self.compile_exactly(grammar) {
            Ok(constraint) => return Ok(constraint),
            Err(error) => error,
        };
        let strict = grammar.tools().map(|tools| (0..tools::FUNCTIONS_MAX).map(|index| tools.is_strict(index).into()));
        let key = blake3::hash(&strict.into_iter().flatten().chain(grammar.write()?.into_bytes()).collect::<Vec<u8>>());
        let relaxed = match cached(&self.relaxed, &key) {
            Some(relaxed) => relaxed,
            None => keep(&self.relaxed, key, self.relax(grammar).ok_or(error)?),
        };
        left_out.extend(relaxed.left_out.iter().cloned());
        self.compile_exactly(&relaxed.grammar)
    }

    /// The same grammar with functions whose arguments compile; none if it has no function that could be changed.
    fn relax(&self, grammar: &Grammar) -> Option<Compiling> {
        let compiles = |schema: &Value| self.compile_exactly(&Grammar::JsonSchema(schema.clone())).is_ok();
        let (tools, left_out) = grammar.tools()?.relaxed(&compiles)?;
        Some(Compiling { grammar: grammar.with_tools(tools), left_out })
    }

    fn compile_exactly(&self, grammar: &Grammar) -> Result<MakeConstraint, GrammarError> {
        let written = grammar.write()?;
        if written.len() > BYTES_MAX {
            return Err(GrammarError::TooLong { bytes: written.len(), limit: BYTES_MAX });
        }
        cost::check(grammar)?;
        let key = blake3::hash(written.as_bytes());
        let matcher = match cached(&self.cache, &key) {
            Some(matcher) => matcher,
            None => {
                let matcher = self.matcher(written)?;
                grammar.tools().map_or(Ok(()), |tools| self.check_openings(tools))?;
                keep(&self.cache, key, matcher)
            }
        };
        let stops: Arc<[Token]> = self.stops.as_slice().into();
        Ok(Arc::new(move || Box::new(Guide { matcher: matcher.deep_clone(), stops: stops.clone() })))
    }

    fn matcher(&self, written: String) -> Result<Matcher, GrammarError> {
        let parser = self.factory.create_parser(TopLevelGrammar::from_lark(written));
        let matcher = Matcher::new(parser);
        match matcher.get_error() {
            None => Ok(matcher),
            Some(why) => Err(GrammarError::Refused(reason(&why))),
        }
    }

    /// Checks that a call and a text that may take its place, where both are JSON, never begin alike.
    fn check_openings(&self, tools: &tools::Tools) -> Result<(), GrammarError> {
        let openings = tools.openings();
        let Some(text) = tools.text().filter(|_| !openings.is_empty()) else { return Ok(()) };
        let (mut text, mut both) = (self.matcher(text.write()?)?, self.matcher(tools.grammar(false)?)?);
        for (opening, _) in &openings {
            let tokens = self.factory.tok_env().tok_trie().greedy_tokenize(opening.as_bytes());
            let reads = |matcher: &mut Matcher| matcher.validate_tokens(&tokens).is_ok_and(|read| read == tokens.len());
            if reads(&mut text) || !reads(&mut both) {
                let why = format!("beside tools: an answer may begin with {opening}, as a call does; set tool_choice");
                return Err(GrammarError::Refused(why));
            }
        }
        Ok(())
    }
}

fn cached<T>(cache: &Cache<T>, key: &blake3::Hash) -> Option<Arc<T>> {
    let mut cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
    let at = cache.iter().position(|(known, _)| known == key)?;
    let entry = cache.remove(at)?;
    let value = entry.1.clone();
    cache.push_back(entry);
    Some(value)
}

fn keep<T>(cache: &Cache<T>, key: blake3::Hash, value: T) -> Arc<T> {
    let value = Arc::new(value);
    let mut cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
    cache.retain(|(known, _)| *known != key);
    if cache.len() >= CACHED_MAX {
        cache.pop_front();
    }
    cache.push_back((key, value.clone()));
    value
}

impl Grammar {
    /// The grammar in llguidance's notation.
    fn write(&self) -> Result<String, GrammarError> {
        self.write_within(false)
    }

    /// As [`Grammar::write`]; with `thoughts`, no text of the answer may be mistaken for thoughts before it.
    fn write_within(&self, thoughts: bool) -> Result<String, GrammarError> {
        match self {
            Self::JsonObject => Ok(format!("start: {}", json_rule(&json!({ "type": "object" })))),
            Self::JsonSchema(schema) if schema.is_object() => Ok(format!("start: {}", json_rule(schema))),
            Self::JsonSchema(_) => Err(GrammarError::Refused("the schema is not an object".into())),
            Self::Tools(tools) => tools.grammar(thoughts),
            Self::Regex(pattern) => Ok(format!("start: /{}/", slashed(pattern))),
            Self::Choice(texts) if texts.is_empty() => Err(GrammarError::Refused("the list of texts is empty".into())),
            Self::Choice(texts) => {
                let texts: Vec<String> = texts.iter().map(|text| Value::from(text.as_str()).to_string()).collect();
                Ok(format!("start: {}", texts.join(" | ")))
            }
            Self::Lark(grammar) => Ok(grammar.clone()),
            // The forms of tools know where Harmony's thoughts are.
            Self::AfterThoughts { thinking: Thinking::Harmony, grammar, .. } if matches!(**grammar, Self::Tools(_)) => {
                grammar.write_within(true)
            }
            Self::AfterThoughts { thinking, close, grammar } => {
                Ok(thinking.before(*close, &grammar.write_within(true)?))
            }
        }
    }

    /// The functions that the grammar allows to call.
    pub fn tools(&self) -> Option<&tools::Tools> {
        match self {
            Self::Tools(tools) => Some(tools),
            Self::AfterThoughts { grammar, .. } => grammar.tools(),
            _ => None,
        }
    }

    /// The same with other functions in the place of its own.
    fn with_tools(&self, tools: tools::Tools) -> Self {
        match self {
            Self::AfterThoughts { thinking, close, grammar } => {
                Self::AfterThoughts { thinking: *thinking, close: *close, grammar: grammar.with_tools(tools).into() }
            }
            _ => Self::Tools(tools),
        }
    }

    /// The same for an answer that may begin with thoughts, which `close` ends, or without it a text.
    pub fn after(self, thinking: Option<Thinking>, close: Option<Token>) -> Self {
        match thinking {
            None => self,
            Some(thinking) => Self::AfterThoughts { thinking, close, grammar: Box::new(self) },
        }
    }
}

/// A grammar whose first rule is `name` instead of `start`, to be a part of another. A rule begins a line.
fn part(grammar: &str, name: &str) -> String {
    let grammar = format!("\n{grammar}").replacen("\nstart:", &format!("\n{name}:"), 1);
    format!("{}\n", grammar.trim())
}

/// A regular expression as it stands between slashes on one line.
fn slashed(pattern: &str) -> String {
    let (mut out, mut escaped) = (String::new(), false);
    for letter in pattern.chars() {
        match letter {
            '/' if !escaped => out.push_str("\\/"),
            '\n' if escaped => out.push('n'),
            '\n' => out.push_str("\\n"),
            letter => out.push(letter),
        }
        escaped = letter == '\\' && !escaped;
    }
    out
}

/// A schema inside a grammar. JSON comes on one line with a space after `,` and `:`, as Python writes it: a small model
/// that may write any white space can write nothing else for ever. `x-guidance` in the schema says otherwise.
fn json_rule(schema: &Value) -> String {
    let mut schema = schema.clone();
    if let Some(object) = schema.as_object_mut() {
        let layout = json!({ "item_separator": ", ", "key_separator": ": ", "whitespace_flexible": false });
        object.entry("x-guidance").or_insert(layout);
    }
    format!("%json {schema}")
}

/// The bytes of a token. Control tokens have none, so that a grammar never asks for one.
fn word(tokenizer: &Tokenizer, token: Token) -> Vec<u8> {
    let mut bytes = Vec::new();
    tokenizer.append_bytes(token, &mut bytes);
    // A first byte of 0xff marks special tokens in llguidance; no UTF-8 text begins with it.
    if bytes.first() == Some(&TokTrie::SPECIAL_TOKEN_MARKER) { Vec::new() } else { bytes }
}

/// llguidance's message without its excerpts of the grammar: the first line, and the line of an expression's own parser below.
fn reason(why: &str) -> String {
    let mut lines = why.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let more = lines.find_map(|line| line.strip_prefix("error: ")).map(|error| format!(" {error}"));
    first.to_string() + &more.unwrap_or_default()
}

/// One choice's state in a grammar.
struct Guide {
    matcher: Matcher,
    stops: Arc<[Token]>,
}

impl Constraint for Guide {
    fn mask(&mut self, logits: &mut [f32]) {
        match self.matcher.compute_mask_or_eos() {
            Ok(allowed) => {
                for (token, logit) in logits.iter_mut().enumerate() {
                    if token >= allowed.len() || !allowed.is_allowed(token as Token) {
                        *logit = f32::NEG_INFINITY;
                    }
                }
            }
            // No token can follow, so the answer must end: only stop tokens are allowed or, if there are none, any token.
            Err(_) => {
                for (token, logit) in logits.iter_mut().enumerate() {
                    if !self.stops.is_empty() && !self.stops.contains(&(token as Token)) {
                        *logit = f32::NEG_INFINITY;
                    }
                }
            }
        }
    }

    fn accept(&mut self, token: Token) -> bool {
        self.matcher.consume_token(token).is_err() || self.matcher.is_stopped()
    }
}

#[cfg(test)]
mod tests;
