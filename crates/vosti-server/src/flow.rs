//! A running request: hands on its updates in order until its end, its deadline or the engine's end, and counts them.
//!
//! Dropping a flow aborts the request and logs that the client left.

use crate::answer::{Answers, Delta, End};
use crate::api::ApiError;
use crate::app::App;
use crate::config::Limits;
use crate::job::{Job, Update};
use crate::limits::BusyGuard;
use crate::submit::Running;
use crate::trace::Trace;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vosti_engine::logprobs::Logprobs;

/// An update that the client sees.
pub enum Step {
    /// The log-probability of prompt token `position`.
    Prompt {
        prompt: usize,
        position: usize,
        logprobs: Logprobs,
    },
    Answer(Delta),
}

/// See the module.
pub struct Flow {
    app: Arc<App>,
    running: Running,
    pub answers: Answers,
    arrival: Instant,
    /// Per answer.
    times: Vec<Times>,
    ended: bool,
    /// Steps that arrived and were not yet handed out.
    ready: VecDeque<Step>,
    /// The request's own span: log lines after the response's head belong to it.
    span: tracing::Span,
    trace: Option<Trace>,
    _busy: BusyGuard,
}

/// Times of an answer's events.
#[derive(Clone, Copy, Default)]
struct Times {
    started: Option<Instant>,
    first_token: Option<Instant>,
    last_token: Option<Instant>,
}

impl Flow {
    pub fn new(app: Arc<App>, running: Running, answers: Answers, job: &Job, arrival: Arrival) -> Self {
        let prompt_tokens: usize = job.prompts.iter().map(|prompt| prompt.len()).sum();
        app.metrics.prompt_tokens.inc_by(prompt_tokens as u64);
        let Arrival { at: arrival, busy } = arrival;
        let times = vec![Times::default(); job.answers()];
        let (ready, span) = (VecDeque::new(), tracing::Span::current());
        let trace = Trace::of_current_request(job, arrival);
        Self { app, running, answers, arrival, times, ended: false, ready, span, trace, _busy: busy }
    }

    /// Waits until every answer has repeated the client's part of it. If an answer differs from that part, the request is refused
    /// and nothing is sent.
    pub async fn repeat(&mut self) -> Result<(), ApiError> {
        while self.answers.repeating() {
            let step = self.come().await?;
            self.ready.extend(step);
        }
        Ok(())
    }

    /// The next step to show; none after the last answer's end.
    pub async fn next(&mut self) -> Result<Option<Step>, ApiError> {
        loop {
            if let Some(step) = self.ready.pop_front() {
                return Ok(Some(step));
            }
            if self.answers.done() {
                self.ended = true;
                return Ok(None);
            }
            let step = self.come().await?;
            self.ready.extend(step);
        }
    }

    /// Waits for the next update; none if the client sees nothing of it.
    async fn come(&mut self) -> Result<Option<Step>, ApiError> {
        let deadline = self.arrival + self.app.config.limits.request_time_max;
        let update = match tokio::time::timeout_at(deadline.into(), self.running.updates.recv()).await {
            Ok(update) => update,
            Err(_) => return Err(self.fail("timeout", timed_out(self.app.config.limits.request_time_max))),
        };
        match update {
            Some(Update::Prompt { prompt, position, logprobs }) => {
                Ok(Some(Step::Prompt { prompt, position, logprobs }))
            }
            Some(Update::Started { prompt, choice, at }) => {
                self.times[self.answers.index(prompt, choice)].started = Some(at);
                self.app.metrics.queue_seconds.observe((at - self.arrival).as_secs_f64());
                self.trace.iter_mut().for_each(|trace| trace.started(at));
                Ok(None)
            }
            Some(Update::Broken) => {
                let error = ApiError::internal("the server failed at this request; other requests are not affected");
                Err(self.fail("failed", error))
            }
            None => Err(self.fail("engine_ended", vosti_engine::EngineError::Gone.into())),
            Some(update) => {
                let delta = self.answers.take(update);
                if let Some(why) = self.answers.departure() {
                    let why =
                        format!("{why}: vosti_resume needs the same prompt, parameters and seed as the answer had");
                    return Err(self.fail("not_resumed", ApiError::field("vosti_resume", why)));
                }
                Ok(delta.map(|delta| {
                    self.account(&delta);
                    Step::Answer(delta)
                }))
            }
        }
    }

    fn fail(&mut self, why: &'static str, error: ApiError) -> ApiError {
        self.ended = true;
        self.trace.iter_mut().for_each(|trace| trace.failed(why));
        tracing::warn!(parent: &self.span, why, seconds = self.arrival.elapsed().as_secs_f64(), "request ended early");
        error
    }

    fn account(&mut self, delta: &Delta) {
        let (metrics, now) = (&self.app.metrics, Instant::now());
        if delta.token.is_some() {
            metrics.generation_tokens.inc();
            let times = &mut self.times[delta.index];
            match times.last_token.replace(now) {
                None => {
                    times.first_token = Some(now);
                    metrics.first_token_seconds.observe((now - self.arrival).as_secs_f64());
                    let started = times.started.unwrap_or(self.arrival);
                    metrics.prefill_seconds.observe((now - started).as_secs_f64());
                    self.trace.iter_mut().for_each(|trace| trace.first_token(now));
                }
                Some(last) => metrics.between_tokens_seconds.observe((now - last).as_secs_f64()),
            }
        }
        let Some(End { reason, usage, .. }) = &delta.end else { return };
        let seconds = (now - self.arrival).as_secs_f64();
        let reason = reason.as_api();
        metrics.answers.get_or_create(&[("finished_reason", reason.to_string())]).inc();
        metrics.answer_seconds.observe(seconds);
        let Times { first_token, last_token, .. } = self.times[delta.index];
        if let (Some(first), Some(last)) = (first_token, last_token) {
            metrics.decode_seconds.observe((last - first).as_secs_f64());
        }
        self.trace.iter_mut().for_each(|trace| trace.answered(reason));
        metrics.prompt_length.observe(usage.prompt_tokens as f64);
        metrics.answer_length.observe(usage.generated_tokens as f64);
        tracing::info!(
            parent: &self.span,
            prompt_tokens = usage.prompt_tokens,
            cached_tokens = usage.cached_tokens,
            generated_tokens = usage.generated_tokens,
            reason,
            seconds,
            "answered"
        );
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        let outcome = if self.ended { None } else { Some("client_left") };
        if let Some(trace) = self.trace.take() {
            trace.end(&self.answers.usage(), outcome);
        }
        if !self.ended {
            tracing::info!(parent: &self.span, seconds = self.arrival.elapsed().as_secs_f64(), "client left; aborted");
        }
    }
}

fn timed_out(limit: Duration) -> ApiError {
    let seconds = limit.as_secs_f64();
    ApiError::timeout(format!("the answer took longer than {seconds} s, the server's --request-timeout"))
}

/// When a request arrived; it counts as busy until this is dropped.
pub struct Arrival {
    pub at: Instant,
    pub busy: BusyGuard,
}

impl Arrival {
    /// Runs the work before the first update within the request's time limit. Submitting waits for the engine's current step,
    /// which may be long.
    pub async fn within<T>(
        &self,
        limits: &Limits,
        work: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, ApiError> {
        let deadline = self.at + limits.request_time_max;
        let done = tokio::time::timeout_at(deadline.into(), work).await;
        done.unwrap_or_else(|_| Err(timed_out(limits.request_time_max)))
    }
}
