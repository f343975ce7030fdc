//! A request's way into the engine and its events' way out.
//!
//! The sink runs on the engine's thread: it computes what needs the logits (log-probabilities, the digest) and sends the
//! rest over a channel that never blocks. The channel is bounded by what a request can produce at all, its prompt and its
//! tokens; a client that reads slowly makes it fill, and never makes the engine wait. A client that is gone drops
//! [`Running`], which aborts: the pages are back within a step, in whatever state the request was.

use crate::api::ApiError;
use crate::receipt::Chain;
use crate::service::Service;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use vosti_engine::handle::Sink;
use vosti_engine::logprobs::{Logprobs, logprobs};
use vosti_engine::{EngineHandle, Event, FinishReason, Request, RequestId, Sampling, Token, Usage};

/// Prompts to be answered, each `choices` times, with one set of parameters.
pub struct Job {
    pub prompts: Vec<Arc<[Token]>>,
    pub sampling: Sampling,
    pub choices: u32,
    /// Log-probabilities of generated tokens, with this many of the most likely.
    pub logprobs: Option<usize>,
    /// The same for the prompt's tokens.
    pub prompt_logprobs: Option<usize>,
    pub salt: u64,
    pub digest: bool,
    /// What the client has of each answer; empty: of none.
    pub given: Vec<Given>,
}

/// The part of an answer that came from another server, or from this one before.
#[derive(Clone, Debug, Default)]
pub struct Given {
    pub tokens: Vec<Token>,
    /// And its end.
    pub finished: bool,
}

impl Job {
    /// Answers that will come.
    pub fn answers(&self) -> usize {
        self.prompts.len() * self.choices as usize
    }

    /// What the client has of a prompt's answers.
    fn given_to(&self, prompt: usize) -> impl Iterator<Item = &Given> {
        let choices = self.choices as usize;
        self.given.iter().skip(prompt * choices).take(choices)
    }
}

/// What comes out of the engine, free of logits.
#[derive(Debug)]
pub enum Update {
    /// Of prompt token `position`, 1 or more.
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
    },
    /// The sink panicked, or lacks the logits it asked for; the request is aborted.
    Broken,
}

/// A job in the engine. Dropping it aborts what has not finished.
pub struct Running {
    pub updates: UnboundedReceiver<Update>,
    _requests: Vec<InEngine>,
}

/// Aborts on drop; a request that has ended takes no notice.
struct InEngine {
    engine: EngineHandle,
    id: RequestId,
}

impl Drop for InEngine {
    fn drop(&mut self) {
        self.engine.abort(self.id);
    }
}

/// Hands a job to the engine. `places` is given back when the engine has let go of the last answer.
pub async fn submit(service: &Service, job: &Job, places: OwnedSemaphorePermit) -> Result<Running, ApiError> {
    let (sender, updates) = unbounded_channel();
    let places = Arc::new(places);
    let mut replies = Vec::with_capacity(job.prompts.len());
    for (prompt, tokens) in job.prompts.iter().enumerate() {
        let request = Request {
            prompt: tokens.to_vec(),
            sampling: job.sampling.clone(),
            choices: job.choices,
            token_logits: job.logprobs.is_some() || job.digest,
            prompt_logits: job.prompt_logprobs.is_some(),
            use_prefix_cache: true,
            salt: job.salt,
            foreseen: job.given_to(prompt).map(|given| given.tokens.clone()).collect(),
        };
        let sink = sink(job, prompt, sender.clone(), places.clone());
        let (reply, answer) = oneshot::channel();
        let engine = service.engine.clone();
        // If nobody waits for the reply any more, it is dropped with the name in it: that aborts.
        let tell = move |outcome: Result<RequestId, _>| drop(reply.send(outcome.map(|id| InEngine { engine, id })));
        service.engine.submit_then(request, sink, tell)?;
        replies.push(answer);
    }
    let mut requests = Vec::with_capacity(replies.len());
    for reply in replies {
        requests.push(reply.await.map_err(|_| vosti_engine::EngineError::Gone)??);
    }
    Ok(Running { updates, _requests: requests })
}

/// The sink of one prompt.
fn sink(job: &Job, prompt: usize, updates: UnboundedSender<Update>, places: Arc<OwnedSemaphorePermit>) -> Sink {
    let tokens = job.prompts[prompt].clone();
    let chain = || job.digest.then(|| Chain::new(&tokens));
    let mut watcher = Watcher {
        prompt,
        logprobs: job.logprobs,
        prompt_logprobs: job.prompt_logprobs.unwrap_or(0),
        chains: (0..job.choices).map(|_| chain()).collect(),
        tokens,
        updates,
        _places: places,
    };
    Box::new(move |event| {
        // A panic here would end the engine for everyone.
        let taken = catch_unwind(AssertUnwindSafe(|| watcher.take(event)));
        taken.unwrap_or_else(|_| {
            drop(watcher.updates.send(Update::Broken));
            ControlFlow::Break(())
        })
    })
}

/// A sink's state.
struct Watcher {
    prompt: usize,
    tokens: Arc<[Token]>,
    logprobs: Option<usize>,
    prompt_logprobs: usize,
    /// Per choice, if a digest is wanted.
    chains: Vec<Option<Chain>>,
    updates: UnboundedSender<Update>,
    _places: Arc<OwnedSemaphorePermit>,
}

impl Watcher {
    fn take(&mut self, event: Event<'_>) -> ControlFlow<()> {
        let prompt = self.prompt;
        let update = match event {
            // Every choice computes the same rows.
            Event::Prompt { choice, .. } if choice > 0 => return ControlFlow::Continue(()),
            Event::Prompt { position, logits, .. } => {
                let position = position + 1;
                let logprobs = logprobs(logits, self.tokens[position], self.prompt_logprobs);
                Update::Prompt { prompt, position, logprobs }
            }
            Event::Token { choice, token, logits, .. } => {
                match (&mut self.chains[choice as usize], self.logprobs, logits) {
                    (None, None, _) => Update::Token { prompt, choice, token, logprobs: None },
                    (chain, top, Some(logits)) => {
                        if let Some(chain) = chain {
                            chain.push(token, logits);
                        }
                        let logprobs = top.map(|top| logprobs(logits, token, top));
                        Update::Token { prompt, choice, token, logprobs }
                    }
                    // The request asked for them: an answer without is none.
                    (_, _, None) => Update::Broken,
                }
            }
            Event::Finished { choice, reason, usage, .. } => {
                let chain = self.chains[choice as usize].take();
                Update::Finished { prompt, choice, reason, usage, chain }
            }
        };
        match self.updates.send(update) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}
