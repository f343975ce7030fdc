//! Drives engines through requests and records every logits row.

use super::evidence::Row;
use super::{CheckError, Setup, Subject};
use std::collections::BTreeMap;
use vosti_engine::progress::Progress;
use vosti_engine::{Counters, Engine, EngineError, Event, FinishReason, Request, RequestId, StepReport, Token, Usage};

/// The results of one choice of one request.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// One row per generated token, in order.
    pub rows: Vec<Row>,
    pub tokens: Vec<Token>,
    pub usage: Usage,
    pub reason: Option<FinishReason>,
    /// The step (counted in this run) that gave the first token.
    pub first_step: usize,
}

/// The results of a run: the choices of each request, in order, and a report of each step.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub answers: Vec<Vec<Answer>>,
    pub steps: Vec<StepReport>,
}

impl Outcome {
    /// The only choice of request `i`.
    pub fn answer(&self, i: usize) -> &Answer {
        &self.answers[i][0]
    }
}

/// Actions on the engine between two steps of a run.
pub type Meddle<'a, D> = &'a mut dyn FnMut(&mut Engine<D>, usize, &Run) -> Result<(), CheckError>;

/// A run in progress: requests by id.
#[derive(Default)]
pub struct Run {
    ids: Vec<Option<RequestId>>,
    index: BTreeMap<RequestId, usize>,
}

impl Run {
    /// The id of the run's i-th request, once it was submitted.
    pub fn id(&self, i: usize) -> Option<RequestId> {
        self.ids[i]
    }
}

/// An engine under test.
pub struct Runner<'a, S: Subject> {
    subject: &'a S,
    pub engine: Engine<S::Device>,
    progress: &'a dyn Progress,
    keep: bool,
}

impl<'a, S: Subject> Runner<'a, S> {
    /// A fresh engine. With `keep` whole rows are kept, so that a difference can be described.
    pub fn new(subject: &'a S, setup: &Setup, progress: &'a dyn Progress, keep: bool) -> Result<Self, CheckError> {
        let engine = subject.engine(setup)?;
        Ok(Runner { subject, engine, progress, keep })
    }

    /// The engine's counts so far.
    pub fn counters(&self) -> Counters {
        *self.engine.counters()
    }

    /// Whether the engine admits the request, because its pool holds the request to its end.
    pub fn admits(&self, request: &Request) -> Result<bool, CheckError> {
        let mut request = request.clone();
        self.subject.tamper(&mut request);
        match self.engine.check(&request) {
            Ok(()) => Ok(true),
            Err(EngineError::ExceedsPool { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Runs all requests at once, to their ends.
    pub fn run(&mut self, requests: &[Request]) -> Result<Outcome, CheckError> {
        let at_once = vec![0; requests.len()];
        self.run_meddled(requests, &at_once, &mut |_, _, _| Ok(()))
    }

    /// Runs one request alone.
    pub fn alone(&mut self, request: &Request) -> Result<Answer, CheckError> {
        let mut outcome = self.run(std::slice::from_ref(request))?;
        Ok(outcome.answers.remove(0).remove(0))
    }

    /// Submits request i before step `arrivals[i]` and lets `meddle` act before every step.
    pub fn run_meddled(
        &mut self,
        requests: &[Request],
        arrivals: &[usize],
        meddle: Meddle<'_, S::Device>,
    ) -> Result<Outcome, CheckError> {
        let mut run = Run { ids: vec![None; requests.len()], index: BTreeMap::new() };
        let choices = |request: &Request| vec![Answer::default(); request.choices as usize];
        let mut outcome = Outcome { answers: requests.iter().map(choices).collect(), steps: Vec::new() };
        let last_arrival = arrivals.iter().copied().max().unwrap_or(0);
        for step in 0.. {
            if self.progress.cancelled() {
                return Err(CheckError::Interrupted);
            }
            for i in (0..requests.len()).filter(|&i| arrivals[i] == step) {
                let mut request = requests[i].clone();
                self.subject.tamper(&mut request);
                let id = self.engine.submit(request)?;
                run.ids[i] = Some(id);
                run.index.insert(id, i);
            }
            meddle(&mut self.engine, step, &run)?;
            if self.engine.is_idle() && step >= last_arrival {
                break;
            }
            let keep = self.keep;
            let report = self.engine.step(&mut |event| outcome.note(&run, step, keep, event))?;
            outcome.steps.push(report);
        }
        Ok(outcome)
    }
}

impl Outcome {
    fn note(&mut self, run: &Run, step: usize, keep: bool, event: Event<'_>) {
        let Some(&i) = run.index.get(&event.request()) else {
            return;
        };
        let answer = &mut self.answers[i][event.choice() as usize];
        match event {
            Event::Started { .. } | Event::Prompt { .. } | Event::Routed { .. } => {}
            Event::Token { token, logits, position, .. } => {
                // Every request of a check asks for its logits; a missing row is missing evidence, so its pair fails.
                let logits = logits.unwrap_or(&[]);
                if answer.tokens.is_empty() {
                    answer.first_step = step;
                }
                answer.tokens.push(token);
                answer.rows.push(Row::new(position, logits, keep));
            }
            Event::Finished { reason, usage, .. } => {
                answer.reason = Some(reason);
                answer.usage = usage;
            }
        }
    }
}
