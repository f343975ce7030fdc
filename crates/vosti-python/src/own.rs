//! A model's parts besides its weights: tokens, text and grammars.

use crate::requests::grammar_refused;
use std::sync::{Arc, OnceLock};
use vosti::deployment::Deployment;
use vosti_engine::sampling::MakeConstraint;
use vosti_engine::text::TokenText;
use vosti_engine::{Numbers, Token};
use vosti_model::Text;
use vosti_server::grammar::{Grammar, Grammars};

pub struct Own {
    /// The caller's name for the model, for receipts.
    pub name: String,
    pub vocabulary: u32,
    /// Longest sequence, prompt and answer.
    pub context: u32,
    pub text: Option<Arc<Text>>,
    /// The sampling of calls that give none.
    pub sampling: Numbers,
    /// Bytes of tokens; empty if there is no tokenizer.
    pub bytes: Arc<dyn TokenText>,
    grammars: OnceLock<Result<Grammars, String>>,
}

impl Own {
    pub fn new(name: &str, deployment: &Deployment) -> Self {
        let (program, text) = (deployment.program(), deployment.text().ok().cloned());
        let sampling = deployment.sampling().unwrap_or_default().numbers;
        let of = text.clone();
        let bytes = move |token: u32, out: &mut Vec<u8>| {
            if let Some(of) = &of {
                of.tokenizer.append_bytes(token, out);
            }
        };
        Own {
            name: name.into(),
            vocabulary: program.vocab,
            context: program.context,
            text,
            sampling,
            bytes: Arc::new(bytes),
            grammars: OnceLock::new(),
        }
    }

    pub fn text(&self) -> Result<&Arc<Text>, String> {
        self.text.as_ref().ok_or_else(|| "this model has no tokenizer, because it is only a configuration".into())
    }

    /// Tokens that end an answer.
    pub fn ends(&self) -> impl Iterator<Item = Token> {
        self.text.iter().flat_map(|text| text.tokenizer.eos())
    }

    /// Refuses an empty sequence, and tokens outside the vocabulary.
    pub fn check(&self, tokens: &[Token]) -> Result<(), String> {
        if tokens.is_empty() {
            return Err("it is empty: give at least one token".into());
        }
        match tokens.iter().find(|token| **token >= self.vocabulary) {
            Some(token) => Err(format!("token {token} is not in the vocabulary of {}", self.vocabulary)),
            None => Ok(()),
        }
    }

    /// Compiles a grammar, which takes milliseconds, and more for large schemas. The last few are kept.
    pub fn compile(&self, grammar: &Grammar) -> Result<MakeConstraint, String> {
        let text = self.text()?;
        let make = || Grammars::new(&text.tokenizer, self.vocabulary).map_err(|error| error.to_string());
        self.grammars.get_or_init(make).as_ref()?.compile(grammar).map_err(grammar_refused)
    }
}
