//! Turns Python's sampling parameters into a job for the engine.
//!
//! The job is the server's, so a request means the same here and there; constraints, receipts and resumption are shared too.
//! Read next: `run.rs`.

use crate::own::Own;
use pyo3::prelude::*;
use std::sync::Arc;
use vosti_engine::random::prompt_seed;
use vosti_engine::text::TokenText;
use vosti_engine::{Given, Numbers, Sampling, SamplingParams, Token};
use vosti_server::api::resume::{Resume, ResumedChoice};
use vosti_server::grammar::{Grammar, GrammarError};
use vosti_server::job::Job;
use vosti_server::receipt::Parameters;

macro_rules! params {
    ({} $($(#[$doc:meta])* $name:ident: $type:ident as $given:ident = $neutral:literal, $range:tt, $key:literal;)*) => {
        /// `vosti.SamplingParams`, by its attributes.
        #[derive(Clone, FromPyObject)]
        pub struct Params {
            $($name: $given,)*
            n: u32,
            seed: u64,
            /// The prompt's number among those that share the seed.
            place: u64,
            stop: Vec<String>,
            stop_token_ids: Vec<u32>,
            ignore_eos: bool,
            max_tokens: Option<usize>,
            min_tokens: usize,
            logprobs: Option<usize>,
            logprobs_mode: String,
            prompt_logprobs: Option<usize>,
            logit_bias: Vec<(u32, f32)>,
            /// A [`Grammar`] as JSON.
            grammar: Option<String>,
            receipt: bool,
            routed_experts: bool,
        }

        impl Params {
            fn numbers(&self) -> Result<Numbers, String> {
                let given = Given { $($name: Some(self.$name),)* };
                given.over(&Numbers::default()).map_err(|error| error.to_string())
            }
        }
    };
}
vosti_engine::sampling_numbers!([params] {});

/// The part of an answer that a caller has: its fingerprint, and each choice's tokens and whether it has ended.
pub type Had = (String, Vec<(Vec<Token>, bool)>);

/// A job, with the parameters and the seed for its receipt.
pub struct Asked {
    pub job: Job,
    pub parameters: Option<Parameters>,
    pub seed: u64,
}

impl Params {
    /// What can be said of the parameters without a model.
    pub fn check(&self) -> Result<(), String> {
        if self.n == 0 {
            return Err("n is 0: ask for at least one answer".into());
        }
        if self.max_tokens == Some(0) {
            return Err("max_tokens is 0: ask for at least one token".into());
        }
        if let Some(tokens) = self.max_tokens.filter(|tokens| *tokens < self.min_tokens) {
            return Err(format!("min_tokens is {}, and max_tokens {tokens}", self.min_tokens));
        }
        processed(&self.logprobs_mode)?;
        self.grammar.as_deref().map(read).transpose()?;
        let no_text: Arc<dyn TokenText> = Arc::new(|_: Token, _: &mut Vec<u8>| {});
        self.sampling(SamplingParams { text: Some(no_text), tokens_max: 1, ..SamplingParams::default() }).map(drop)
    }

    /// These parameters, with what the model's side adds in `own`.
    fn sampling(&self, own: SamplingParams) -> Result<Sampling, String> {
        let mut stop_tokens = own.stop_tokens;
        stop_tokens.extend(&self.stop_token_ids);
        let sampling = Sampling::new(SamplingParams {
            logit_bias: self.logit_bias.clone(),
            stop_tokens,
            stop_strings: self.stop.clone(),
            thoughts: None,
            text: own.text,
            constraint: own.constraint,
            tokens_min: self.min_tokens,
            tokens_max: own.tokens_max,
            seed: own.seed,
            ..SamplingParams::of(self.numbers()?)
        });
        sampling.map_err(|error| error.to_string())
    }

    pub fn asked(self, prompt: Vec<Token>, had: Option<Had>, own: &Own, fingerprint: &str) -> Result<Asked, String> {
        own.check(&prompt)?;
        self.check()?;
        let room = (own.context as usize).saturating_sub(prompt.len()).max(1);
        let tokens_max = self.max_tokens.unwrap_or(room).min(room);
        let seed = prompt_seed(self.seed, self.place);
        let grammar = self.grammar.as_deref().map(read).transpose()?;
        let constraint = grammar.as_ref().map(|grammar| own.compile(grammar)).transpose()?;
        let sampling = self.sampling(SamplingParams {
            stop_tokens: own.ends().filter(|_| !self.ignore_eos).collect(),
            text: own.text.is_some().then(|| own.bytes.clone()),
            constraint,
            tokens_max,
            seed,
            ..SamplingParams::default()
        })?;
        let parameters = self.receipt.then(|| Parameters::of(&sampling, grammar));
        let mut job = Job {
            prompts: vec![Arc::from(prompt)],
            sampling,
            choices: self.n,
            logprobs: self.logprobs,
            processed: processed(&self.logprobs_mode)?,
            prompt_logprobs: self.prompt_logprobs,
            routed_experts: self.routed_experts,
            salt: 0,
            digest: self.receipt,
            given: Vec::new(),
        };
        if let Some((of, choices)) = had {
            let choice = |(index, (token_ids, finished))| ResumedChoice { index, token_ids, finished: Some(finished) };
            let resume = Resume { fingerprint: of, choices: choices.into_iter().enumerate().map(choice).collect() };
            let given = resume.given(fingerprint, own.vocabulary, job.answers(), tokens_max);
            job.given = given.map_err(|error| error.to_string())?;
        }
        Ok(Asked { job, parameters, seed })
    }
}

fn processed(mode: &str) -> Result<bool, String> {
    match mode {
        "raw" | "raw_logprobs" => Ok(false),
        "processed" | "processed_logprobs" => Ok(true),
        _ => Err(format!("logprobs_mode is {mode:?}; it must be 'raw' or 'processed'")),
    }
}

/// A request for the log-probabilities of a sequence's tokens. The one token that the engine generates is discarded.
pub fn scored(sequence: Vec<Token>, own: &Own) -> Result<Asked, String> {
    own.check(&sequence)?;
    let range = own.context - 1;
    if sequence.len() < 2 || sequence.len() > range as usize {
        return Err(format!("it has {} tokens: give 2 to {range}", sequence.len()));
    }
    let job = Job {
        prompts: vec![Arc::from(sequence)],
        sampling: Sampling::greedy(1),
        choices: 1,
        logprobs: None,
        processed: false,
        prompt_logprobs: Some(0),
        routed_experts: false,
        salt: 0,
        digest: false,
        given: Vec::new(),
    };
    Ok(Asked { job, parameters: None, seed: 0 })
}

/// A grammar that `_sampling.py` wrote.
pub fn read(json: &str) -> Result<Grammar, String> {
    serde_json::from_str(json).map_err(|error| format!("structured_outputs: {error}"))
}

/// The message of a refused grammar, under the parameter's Python name.
pub fn grammar_refused(error: GrammarError) -> String {
    match error {
        GrammarError::Refused(why) => format!("structured_outputs cannot be turned into a grammar: {why}"),
        error => format!("structured_outputs: {error}"),
    }
}
