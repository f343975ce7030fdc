//! Requests in the engine, and their results so far.
//!
//! A call of `LLM` is a run that ends; an `AsyncLLM` has one run to which others are added. The engine works on its own
//! thread, so a step may hold requests of several calls and threads; which of them share a step changes no bit. Dropping a
//! run aborts its unfinished requests.

use crate::own::Own;
use crate::requests::{Asked, Had, Params};
use crate::{Started, failed, refused};
use pyo3::prelude::*;
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use vosti_engine::logprobs::Logprobs;
use vosti_engine::{EngineError, Token};
use vosti_server::answer::{Answers, Delta};
use vosti_server::api::usage::now;
use vosti_server::job::{Experts, InEngine, Update};
use vosti_server::receipt::{Parameters, Receipt};

/// Longest time until a waiting call looks for Ctrl-C.
pub const TICK: Duration = Duration::from_millis(50);

/// One token's log-probability, its rank, and the most likely tokens with theirs.
type Listed = (f32, usize, Vec<(Token, f32)>);

/// One answer to a prompt.
#[pyclass(get_all, frozen)]
#[derive(Clone, Default)]
pub struct Choice {
    text: String,
    token_ids: Vec<Token>,
    finish_reason: Option<&'static str>,
    logprobs: Option<Vec<Listed>>,
    /// By position, layer and choice, if they were asked for and the answer has ended.
    routed_experts: Option<Experts>,
    /// The receipt as JSON, if it was asked for and the answer has ended.
    receipt: Option<String>,
}

/// All answers to one prompt.
#[pyclass(get_all, frozen)]
#[derive(Clone)]
pub struct Answered {
    choices: Vec<Choice>,
    /// One entry for each token of the prompt but the first.
    prompt_logprobs: Option<Vec<Listed>>,
    cached_tokens: usize,
    finished: bool,
    fingerprint: String,
    /// The seed that gives this prompt alone the same answers.
    seed: u64,
}

impl Answered {
    /// The log-probabilities alone.
    pub fn scores(&self) -> impl Iterator<Item = f32> {
        self.prompt_logprobs.iter().flatten().map(|row| row.0)
    }
}

/// A message of the engine about a request.
enum Note {
    Submitted(Result<InEngine, EngineError>),
    Update(Update),
    /// The engine dropped the request.
    Left,
}

type Notes = (usize, Note);

/// The engine's end of a request's channel.
struct Outlet {
    index: usize,
    notes: Sender<Notes>,
}

impl Drop for Outlet {
    fn drop(&mut self) {
        // If the run is gone, the message is not needed.
        let _ = self.notes.send((self.index, Note::Left));
    }
}

/// Why a request has no answer.
pub enum Failure {
    Refused(String),
    Failed(String),
}

impl Failure {
    /// The exception for this failure of `what`: a prompt or a sequence.
    pub fn of(self, what: &str) -> PyErr {
        match self {
            Failure::Refused(why) => refused(format!("{what}: {why}")),
            Failure::Failed(why) => failed(why),
        }
    }
}

/// An answer that grows.
struct Growing {
    answers: Answers,
    answered: Answered,
    prompt: Arc<[Token]>,
    parameters: Option<Parameters>,
    /// None until the engine has accepted the request.
    in_engine: Option<InEngine>,
    failure: Option<Failure>,
    /// True if there is output that the caller does not have.
    fresh: bool,
    /// True if the caller is to see it. While an answer repeats the caller's part, nothing of the request is shown.
    news: bool,
}

/// See the module.
#[pyclass(frozen)]
pub struct Run {
    own: Arc<Own>,
    sender: Sender<Notes>,
    notes: Mutex<Receiver<Notes>>,
    growing: Mutex<HashMap<usize, Growing>>,
}

/// Called while a call waits, with the number of finished requests if it has grown.
pub type Tell<'a> = &'a mut dyn FnMut(Option<usize>) -> PyResult<()>;

impl Run {
    pub fn new(own: Arc<Own>) -> Self {
        let (sender, notes) = channel();
        Run { own, sender, notes: Mutex::new(notes), growing: Mutex::default() }
    }

    /// Hands a request to the engine, without waiting for it. `index` is the caller's name for it.
    pub(crate) fn submit(&self, index: usize, asked: Asked, started: &Started) -> Result<(), EngineError> {
        let Asked { job, parameters, seed } = asked;
        let empty = Choice { logprobs: job.logprobs.map(|_| Vec::new()), ..Choice::default() };
        let growing = Growing {
            answers: Answers::new(&job, &self.own.bytes),
            answered: Answered {
                choices: vec![empty; job.answers()],
                prompt_logprobs: job.prompt_logprobs.map(|_| Vec::new()),
                cached_tokens: 0,
                finished: false,
                fingerprint: started.fingerprint.clone(),
                seed,
            },
            prompt: job.prompts[0].clone(),
            parameters,
            in_engine: None,
            failure: None,
            fresh: false,
            news: false,
        };
        self.growing().insert(index, growing);
        let outlet = Outlet { index, notes: self.sender.clone() };
        let sink = job.sink(0, move |update| outlet.notes.send((outlet.index, Note::Update(update))).is_ok());
        let notes = self.sender.clone();
        // If the run is gone, the message is dropped, which aborts the request.
        let told = move |outcome| _ = notes.send((index, Note::Submitted(outcome)));
        InEngine::submit(&started.engine, job.request(0), sink, told)
    }

    /// Answers all requests, `ahead` at a time in the engine, and returns the result of `read` for each. Ends with the first error.
    pub(crate) fn all<T>(
        &self,
        what: &str,
        asked: impl ExactSizeIterator<Item = PyResult<Asked>>,
        ahead: usize,
        started: &Started,
        read: impl Fn(usize, Answered) -> PyResult<T>,
        tell: Tell<'_>,
    ) -> PyResult<Vec<T>> {
        let count = asked.len();
        let mut asked = asked.enumerate();
        let mut ended: Vec<Option<T>> = (0..count).map(|_| None).collect();
        let (mut submitted, mut finished, mut told) = (0, 0, 0);
        while finished < count {
            for (index, asked) in asked.by_ref().take(ahead - (submitted - finished)) {
                self.submit(index, asked?, started).map_err(failed)?;
                submitted += 1;
            }
            for index in self.wait(TICK) {
                let Some(one) = self.ended(index) else { continue };
                if let Some(failure) = one.failure {
                    return Err(failure.of(&format!("{what} {index}")));
                }
                ended[index] = Some(read(index, one.answered)?);
                finished += 1;
            }
            tell((finished > told).then_some(finished))?;
            told = finished;
        }
        Ok(ended.into_iter().flatten().collect())
    }

    /// Waits for messages, at most for `time`, takes all of them, and returns the requests with news.
    fn wait(&self, time: Duration) -> Vec<usize> {
        let notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = notes.recv_timeout(time).ok();
        let (mut growing, mut news) = (self.growing(), Vec::new());
        while let Some((index, note)) = next {
            // An aborted request has no entry: its messages are dropped, and a dropped `InEngine` aborts it in the engine.
            if let Some(one) = growing.get_mut(&index) {
                one.take(note, &self.own);
                if one.news {
                    (one.fresh, one.news) = (false, false);
                    news.push(index);
                }
            }
            next = notes.try_recv().ok();
        }
        news.sort_unstable();
        news.dedup();
        news
    }

    /// Removes a request that has ended, or returns None.
    fn ended(&self, index: usize) -> Option<Growing> {
        let mut growing = self.growing();
        growing.get(&index).filter(|one| one.answered.finished || one.failure.is_some())?;
        growing.remove(&index)
    }

    fn growing(&self) -> MutexGuard<'_, HashMap<usize, Growing>> {
        self.growing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request's name, what it has so far, and the exception that it ended with.
type News = (usize, Option<Answered>, Option<Py<PyAny>>);

#[pymethods]
impl Run {
    /// Adds a request; `take` returns its results.
    #[pyo3(signature = (engine, index, prompt, params, had))]
    fn add(
        &self,
        engine: &crate::PyEngine,
        index: usize,
        prompt: Vec<Token>,
        params: Params,
        had: Option<Had>,
    ) -> PyResult<()> {
        let started = engine.started()?;
        let asked = params.asked(prompt, had, &self.own, &started.fingerprint).map_err(refused)?;
        self.submit(index, asked, &started).map_err(failed)
    }

    /// The results since the last call; waits for a tenth of a second at most.
    fn take(&self, py: Python<'_>) -> PyResult<Vec<News>> {
        let news = py.detach(|| self.wait(2 * TICK));
        let mut growing = self.growing();
        let mut taken = Vec::with_capacity(news.len());
        for index in news {
            let Some(one) = growing.get_mut(&index) else { continue };
            if let Some(failure) = one.failure.take() {
                let error = failure.of("the request").into_value(py).into_any();
                taken.push((index, None, Some(error)));
                growing.remove(&index);
            } else {
                taken.push((index, Some(one.answered.clone()), None));
                if one.answered.finished {
                    growing.remove(&index);
                }
            }
        }
        Ok(taken)
    }

    /// Aborts a request.
    fn abort(&self, index: usize) {
        let given_up = self.growing().remove(&index);
        drop(given_up);
    }
}

impl Growing {
    fn take(&mut self, note: Note, own: &Own) {
        if self.failure.is_some() || self.answered.finished {
            return;
        }
        match note {
            Note::Submitted(Ok(in_engine)) => self.in_engine = Some(in_engine),
            Note::Submitted(Err(error)) => self.fail(Failure::Refused(error.to_string())),
            Note::Left => self.fail(Failure::Failed("the engine ended, and this request with it".into())),
            Note::Update(Update::Broken) => self.fail(Failure::Failed("the engine failed at this request".into())),
            Note::Update(Update::Prompt { logprobs, .. }) => {
                if let Some(rows) = &mut self.answered.prompt_logprobs {
                    rows.push(listed(logprobs));
                }
            }
            Note::Update(update) => {
                let delta = self.answers.take(update);
                if let Some(why) = self.answers.departure() {
                    let why = format!("{why}: resume needs the same prompt, parameters and seed as the answer had");
                    self.fail(Failure::Refused(why));
                } else if let Some(delta) = delta {
                    self.grow(delta, own);
                }
            }
        }
    }

    fn fail(&mut self, failure: Failure) {
        self.failure = Some(failure);
        self.in_engine = None;
        self.news = true;
    }

    fn grow(&mut self, delta: Delta, own: &Own) {
        self.fresh |= !delta.repeated;
        self.news = self.answers.done() || self.fresh && !self.answers.repeating();
        let choice = &mut self.answered.choices[delta.index];
        choice.text.push_str(&delta.text);
        if let Some(generated) = delta.token {
            choice.token_ids.push(generated.token);
            if let (Some(list), Some(logprobs)) = (&mut choice.logprobs, generated.logprobs) {
                list.push(listed(logprobs));
            }
        }
        if let Some(end) = delta.end {
            let reason = end.reason.as_api();
            choice.finish_reason = Some(reason);
            choice.routed_experts = end.experts;
            if let (Some(parameters), Some(chain)) = (&self.parameters, end.chain) {
                let receipt = Receipt {
                    version: Receipt::VERSION,
                    fingerprint: self.answered.fingerprint.clone(),
                    model: own.name.clone(),
                    created: now(),
                    date: None,
                    prompt: self.prompt.to_vec(),
                    parameters: parameters.clone(),
                    seed: self.answered.seed,
                    choice: delta.index as u32,
                    tokens: choice.token_ids.clone(),
                    finish_reason: reason.to_string(),
                    links: chain.links().to_vec(),
                    digest: chain.finish(),
                };
                // Plain data with string keys: writing it cannot fail.
                choice.receipt = serde_json::to_string(&receipt).ok();
            }
            self.answered.cached_tokens = self.answered.cached_tokens.max(end.usage.cached_tokens);
            self.answered.finished = self.answers.done();
        }
    }
}

fn listed(row: Logprobs) -> Listed {
    (row.logprob, row.rank, row.top)
}
