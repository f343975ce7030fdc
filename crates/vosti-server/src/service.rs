//! The served model: its tokenizer and chat template, the engine that runs it, and the deployment's fingerprint.

use crate::error::ServerError;
use crate::grammar::Grammars;
use std::sync::Arc;
use vosti_engine::text::TokenText;
use vosti_engine::{Defaults, EngineHandle};
use vosti_model::{ChatTemplate, ModelError, Text, Tokenizer};

/// A model's tokenizer and chat template.
pub trait Language: Send + Sync + 'static {
    /// Text to tokens and back.
    fn tokenizer(&self) -> &Tokenizer;

    /// The chat template; the error of a base model says that it has none.
    fn chat(&self) -> Result<&ChatTemplate, ModelError>;
}

impl Language for Text {
    fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    fn chat(&self) -> Result<&ChatTemplate, ModelError> {
        self.chat()
    }
}

/// The deployment's fingerprint, and the limits of a request.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The `system_fingerprint` of answers.
    pub fingerprint: String,
    /// How the model's matrices are multiplied; in its fingerprint.
    pub arithmetic: String,
    /// Logits per row; a tokenizer may know fewer tokens.
    pub vocab: u32,
    /// Most tokens of one sequence, prompt and answer: the deployment's, in its fingerprint. The engine's pool holds it.
    pub context: usize,
    /// Most sequences that run together; used to estimate how long a full queue lasts.
    pub running_max: usize,
    /// Bytes of a page of each group of layers.
    pub pages: Vec<PageBytes>,
}

/// Bytes of a page, of all layers of its group.
#[derive(Clone, Copy, Debug, Default)]
pub struct PageBytes {
    /// All of it.
    pub all: u64,
    /// The states at its end.
    pub state: u64,
}

/// A loaded model and its engine.
pub struct Service {
    /// Where requests go.
    pub engine: EngineHandle,
    /// Tokenizer and chat template.
    pub language: Arc<dyn Language>,
    /// Fingerprint and limits.
    pub identity: Identity,
    /// Sampling parameters of a request that gives none.
    pub defaults: Defaults,
    /// Makes constraints of schemas and tools.
    pub grammars: Grammars,
    /// Bytes of tokens, for stop strings and streams.
    pub text: Arc<dyn TokenText>,
}

impl Service {
    /// A service. Sampling defaults out of range are an error, and so is a tokenizer whose tokens have no bytes.
    pub fn new(
        engine: EngineHandle,
        language: Arc<dyn Language>,
        identity: Identity,
        defaults: Defaults,
    ) -> Result<Self, ServerError> {
        // Checked once at the start, and not with every request.
        let source_file = defaults.source.unwrap_or("the model");
        defaults.numbers.check().map_err(|why| ServerError::Defaults { source_file, why })?;
        let grammars = Grammars::new(language.tokenizer(), identity.vocab)?;
        let of = language.clone();
        let text = Arc::new(move |token: u32, out: &mut Vec<u8>| of.tokenizer().append_bytes(token, out));
        Ok(Self { engine, language, identity, defaults, grammars, text })
    }

    /// The served model's tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        self.language.tokenizer()
    }

    /// The bytes of one token; none for control tokens.
    pub fn bytes(&self, token: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.tokenizer().append_bytes(token, &mut bytes);
        bytes
    }
}
