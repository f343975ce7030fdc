//! A request in the engine's form, and its events as updates that hold no logits.
//!
//! The sink runs on the engine's thread: it computes the values that need logits (log-probabilities, the digest) and hands
//! the rest on. The server (`submit.rs`) and the Python package both use it.
//! Read next: `answer.rs`, which makes text of updates.

use crate::receipt::Chain;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;
use vosti_engine::handle::Sink;
use vosti_engine::logprobs::{Logprobs, logprobs};
use vosti_engine::sampler::SamplerState;
use vosti_engine::{EngineError, EngineHandle, Event, FinishReason, Request, RequestId, Sampling, Token, Usage};

/// Prompts that are answered, each `choices` times, with one set of parameters.
pub struct Job {
    /// Token ids, BOS included.
    pub prompts: Vec<Arc<[Token]>>,
    /// Parameters of every choice. Draws depend on the seed, the prompt's number and the choice's.
    pub sampling: Sampling,
    /// Answers to each prompt.
    pub choices: u32,
    /// Log-probabilities of generated tokens, with this many of the most likely tokens.
    pub logprobs: Option<usize>,
    /// They are those of the distribution that was drawn from, and not the model's own.
    pub processed: bool,
    /// The same for the prompt's tokens.
    pub prompt_logprobs: Option<usize>,
    /// The experts that each position chose.
    pub routed_experts: bool,
    /// Requests of different salts share no cached prefix.
    pub salt: u64,
    /// Hash every row of logits, for receipts.
    pub digest: bool,
    /// The client's part of each answer, if the request resumes answers; otherwise empty.
    pub given: Vec<Given>,
}

/// The part of an answer that came from another server, or from this one before.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// The answer's tokens so far.
    pub tokens: Vec<Token>,
    /// True if the answer's end came too.
    pub finished: bool,
}

impl Job {
    /// Number of answers: prompts times choices.
    pub fn answers(&self) -> usize {
        self.prompts.len() * self.choices as usize
    }

    /// The engine's request for one of the prompts.
    pub fn request(&self, prompt: usize) -> Request {
        Request {
            prompt: self.prompts[prompt].to_vec(),
            sampling: self.sampling.for_prompt(prompt as u64),
            choices: self.choices,
            token_logits: self.logprobs.is_some() || self.digest,
            prompt_logits: self.prompt_logprobs.is_some(),
            routed_experts: self.routed_experts,
            use_prefix_cache: true,
            salt: self.salt,
            foreseen: self.given_to(prompt).map(|given| given.tokens.clone()).collect(),
        }
    }

    /// Turns one prompt's events into updates, and hands them to `send` until it returns false, which ends the request.
    pub fn sink(&self, prompt: usize, send: impl FnMut(Update) -> bool + Send + 'static) -> Sink {
        let tokens = self.prompts[prompt].clone();
        let chain = || self.digest.then(|| Chain::new(&tokens));
        let mut watcher = Watcher {
            prompt,
            logprobs: self.logprobs,
            prompt_logprobs: self.prompt_logprobs.unwrap_or(0),
            experts: vec![self.routed_experts.then(Vec::new); self.choices as usize],
            chains: (0..self.choices).map(|_| chain()).collect(),
            shadows: (0..self.choices).map(|choice| self.shadow(prompt, choice)).collect(),
            tokens,
            send,
        };
        Box::new(move |event| {
            // A panic here would end the engine for everyone.
            let taken = catch_unwind(AssertUnwindSafe(|| watcher.take(event)));
            taken.unwrap_or_else(|_| {
                (watcher.send)(Update::Broken);
                ControlFlow::Break(())
            })
        })
    }

    /// A sampler's state beside the engine's, if the job shows processed log-probabilities.
    fn shadow(&self, prompt: usize, choice: u32) -> Option<SamplerState> {
        let sampling = self.sampling.for_prompt(prompt as u64);
        let shown = self.processed && self.logprobs.is_some();
        shown.then(|| SamplerState::new(&sampling, &self.prompts[prompt], choice))
    }

    /// The client's part of a prompt's answers.
    fn given_to(&self, prompt: usize) -> impl Iterator<Item = &Given> {
        let choices = self.choices as usize;
        self.given.iter().skip(prompt * choices).take(choices)
    }
}

/// The experts that the layers with a mixture chose: by position of prompt and answer but the last, by layer, in the order of the choice.
pub type Experts = Vec<Vec<Vec<i32>>>;

/// An event of the engine without logits.
#[derive(Debug)]
#[expect(missing_docs, reason = "fields count from 0: the prompt of the job, its choice, a position in the prompt")]
pub enum Update {
    /// The choice's prompt is about to be computed.
    Started {
        prompt: usize,
        choice: u32,
        at: Instant,
    },
    /// Log-probabilities of prompt token `position`, which is at least 1.
    Prompt {
        prompt: usize,
        position: usize,
        logprobs: Logprobs,
    },
    Token {
        prompt: usize,
        choice: u32,
        token: Token,
        logprobs: Option<Logprobs>,
    },
    Finished {
        prompt: usize,
        choice: u32,
        reason: FinishReason,
        usage: Usage,
        chain: Option<Chain>,
        experts: Option<Experts>,
    },
    /// The sink panicked, or lacks the logits it asked for; the request is aborted.
    Broken,
}

/// A request in the engine. Dropping it aborts the request; a request that has ended is not affected.
pub struct InEngine {
    engine: EngineHandle,
    id: RequestId,
}

impl InEngine {
    /// Queues a request. The engine's thread calls `told` with the request's handle; dropping the handle aborts the request.
    pub fn submit(
        engine: &EngineHandle,
        request: Request,
        sink: Sink,
        told: impl FnOnce(Result<InEngine, EngineError>) + Send + 'static,
    ) -> Result<(), EngineError> {
        let of = engine.clone();
        engine.submit_then(request, sink, move |outcome| told(outcome.map(|id| InEngine { engine: of, id })))
    }
}

impl Drop for InEngine {
    fn drop(&mut self) {
        self.engine.abort(self.id);
    }
}

/// A sink's state.
struct Watcher<S> {
    prompt: usize,
    tokens: Arc<[Token]>,
    logprobs: Option<usize>,
    prompt_logprobs: usize,
    /// One entry for each choice; none if the request does not ask for them.
    experts: Vec<Option<Experts>>,
    /// One entry for each choice; none if the request asks for no digest.
    chains: Vec<Option<Chain>>,
    /// One entry for each choice; none if log-probabilities are the model's own.
    shadows: Vec<Option<SamplerState>>,
    send: S,
}

impl<S: FnMut(Update) -> bool> Watcher<S> {
    fn take(&mut self, event: Event<'_>) -> ControlFlow<()> {
        let prompt = self.prompt;
        let update = match event {
            Event::Started { choice, .. } => Update::Started { prompt, choice, at: Instant::now() },
            // Every choice computes the same rows.
            Event::Prompt { choice, .. } if choice > 0 => return ControlFlow::Continue(()),
            Event::Prompt { position, logits, .. } => {
                let position = position + 1;
                let logprobs = logprobs(logits, self.tokens[position], self.prompt_logprobs);
                Update::Prompt { prompt, position, logprobs }
            }
            Event::Routed { choice, experts, .. } => {
                if let Some(all) = &mut self.experts[choice as usize] {
                    all.push(experts.to_vec());
                }
                return ControlFlow::Continue(());
            }
            Event::Token { choice, token, logits, .. } => {
                match (&mut self.chains[choice as usize], self.logprobs, logits) {
                    (None, None, _) => Update::Token { prompt, choice, token, logprobs: None },
                    (chain, top, Some(logits)) => {
                        if let Some(chain) = chain {
                            chain.push(token, logits);
                        }
                        let logprobs = top.map(|top| match &mut self.shadows[choice as usize] {
                            Some(shadow) => {
                                let processed = shadow.processed(logits);
                                shadow.accept(token);
                                logprobs(&processed, token, top)
                            }
                            None => logprobs(logits, token, top),
                        });
                        Update::Token { prompt, choice, token, logprobs }
                    }
                    // The request asked for logits, so a token without them is an error.
                    (_, _, None) => Update::Broken,
                }
            }
            Event::Finished { choice, reason, usage, .. } => {
                let chain = self.chains[choice as usize].take();
                let experts = self.experts[choice as usize].take();
                Update::Finished { prompt, choice, reason, usage, chain, experts }
            }
        };
        if (self.send)(update) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}
