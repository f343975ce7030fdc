//! Requests of one call, all in the engine at once: what of them becomes a batch is the scheduler's business, and changes no bit.

use super::failed;
use pyo3::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;
use vosti::device::AnyDevice;
use vosti_engine::logprobs::logprobs;
use vosti_engine::text::{TextStream, TokenText};
use vosti_engine::{Engine, Event, Request, RequestId, Sampling, SamplingParams, Token};
use vosti_model::Text;

/// `vosti.SamplingParams`, by its attributes.
#[derive(FromPyObject)]
pub struct Params {
    n: u32,
    temperature: f32,
    top_p: f32,
    top_k: i64,
    min_p: f32,
    presence_penalty: f32,
    frequency_penalty: f32,
    repetition_penalty: f32,
    seed: u64,
    stop: Vec<String>,
    stop_token_ids: Vec<u32>,
    ignore_eos: bool,
    max_tokens: Option<usize>,
    min_tokens: usize,
    logprobs: Option<usize>,
    logit_bias: Vec<(u32, f32)>,
}

/// A request that may be submitted, and how its answer is read.
pub struct Job {
    request: Request,
    stops: Vec<String>,
    logprobs: Option<usize>,
}

impl Job {
    pub fn new(prompt: Vec<u32>, params: Params, own: Option<&Arc<Text>>, vocabulary: u32) -> Result<Job, String> {
        if prompt.is_empty() {
            return Err("it is empty: give at least one token".into());
        }
        if let Some(token) = prompt.iter().find(|token| **token >= vocabulary) {
            return Err(format!("token {token} is not in the vocabulary of {vocabulary}"));
        }
        if params.n == 0 {
            return Err("n is 0: ask for at least one answer".into());
        }
        let ends = own.filter(|_| !params.ignore_eos).into_iter().flat_map(|own| own.tokenizer.eos());
        let sampling = Sampling::new(SamplingParams {
            temperature: params.temperature,
            // vLLM's -1 keeps all, as 0 does.
            top_k: u32::try_from(params.top_k.max(0)).unwrap_or(u32::MAX),
            top_p: params.top_p,
            min_p: params.min_p,
            repetition_penalty: params.repetition_penalty,
            presence_penalty: params.presence_penalty,
            frequency_penalty: params.frequency_penalty,
            logit_bias: params.logit_bias,
            stop_tokens: ends.chain(params.stop_token_ids).collect(),
            stop_strings: params.stop.clone(),
            text: own.map(token_text),
            tokens_min: params.min_tokens,
            tokens_max: params.max_tokens.unwrap_or(usize::MAX),
            seed: params.seed,
            ..SamplingParams::default()
        });
        let mut request = Request::new(prompt, sampling.map_err(|error| error.to_string())?);
        request.choices = params.n;
        request.token_logits = params.logprobs.is_some();
        Ok(Job { request, stops: params.stop, logprobs: params.logprobs })
    }
}

fn token_text(own: &Arc<Text>) -> Arc<dyn TokenText> {
    let own = own.clone();
    Arc::new(move |token: u32, out: &mut Vec<u8>| own.tokenizer.append_bytes(token, out))
}

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
}

/// All answers to one prompt.
#[pyclass(get_all, frozen)]
#[derive(Clone, Default)]
pub struct Answered {
    choices: Vec<Choice>,
    cached_tokens: usize,
}

/// An answer that grows.
struct Growing {
    answered: Answered,
    streams: Vec<Option<TextStream>>,
    logprobs: Option<usize>,
}

/// Is asked after each step, with the number of finished requests if it has grown.
pub type Tell<'a> = &'a mut dyn FnMut(Option<usize>) -> PyResult<()>;

/// Runs jobs to their ends.
pub fn run(
    engine: &mut Engine<AnyDevice>,
    jobs: Vec<Job>,
    own: Option<&Arc<Text>>,
    tell: Tell<'_>,
) -> PyResult<Vec<Answered>> {
    let mut growing: Vec<Growing> = Vec::with_capacity(jobs.len());
    let requests = jobs.into_iter().map(|job| {
        let choices = job.request.choices as usize;
        let stream = || own.map(|own| TextStream::new(token_text(own), &job.stops));
        let empty = Choice { logprobs: job.logprobs.map(|_| Vec::new()), ..Choice::default() };
        growing.push(Growing {
            answered: Answered { choices: vec![empty; choices], cached_tokens: 0 },
            streams: (0..choices).map(|_| stream()).collect(),
            logprobs: job.logprobs,
        });
        job.request
    });
    let place = submit(engine, requests, "prompt")?;
    drive(engine, place, &mut |at, event| growing[at].note(event), tell)?;
    Ok(growing.into_iter().map(Growing::whole).collect())
}

/// All requests, or none of them: whose place in the list each is.
fn submit(
    engine: &mut Engine<AnyDevice>,
    requests: impl Iterator<Item = Request>,
    kind: &str,
) -> PyResult<HashMap<RequestId, Waiting>> {
    let mut place = HashMap::new();
    for (at, request) in requests.enumerate() {
        let choices = request.choices;
        match engine.submit(request) {
            Ok(id) => _ = place.insert(id, Waiting { at, choices }),
            Err(error) => {
                abandon(engine, place.into_keys())?;
                return Err(super::refused(format!("{kind} {at}: {error}")));
            }
        }
    }
    Ok(place)
}

/// A request's place in its call, and how many of its answers are not finished.
struct Waiting {
    at: usize,
    choices: u32,
}

/// Runs requests to their ends; an error of `tell` ends them all.
fn drive(
    engine: &mut Engine<AnyDevice>,
    mut place: HashMap<RequestId, Waiting>,
    note: &mut dyn FnMut(usize, &Event<'_>),
    tell: Tell<'_>,
) -> PyResult<()> {
    let (mut finished, mut told) = (0, 0);
    while !engine.is_idle() {
        let step = engine.step(&mut |event| {
            let Some(waiting) = place.get_mut(&event.request()) else { return };
            note(waiting.at, &event);
            if let Event::Finished { .. } = event {
                waiting.choices -= 1;
                finished += usize::from(waiting.choices == 0);
            }
        });
        step.map_err(failed)?;
        let more = (finished > told).then_some(finished);
        told = finished;
        if let Err(error) = tell(more) {
            abandon(engine, place.into_keys())?;
            return Err(error);
        }
    }
    Ok(())
}

/// Ends requests whose answers nobody waits for.
fn abandon(engine: &mut Engine<AnyDevice>, requests: impl Iterator<Item = RequestId>) -> PyResult<()> {
    requests.for_each(|request| _ = engine.abort(request));
    engine.run_until_idle(&mut |_| ()).map_err(failed)
}

impl Growing {
    fn note(&mut self, event: &Event<'_>) {
        let at = event.choice() as usize;
        let choice = &mut self.answered.choices[at];
        match event {
            Event::Token { token, logits, .. } => {
                choice.token_ids.push(*token);
                if let Some(stream) = &mut self.streams[at] {
                    choice.text.push_str(&stream.push(*token));
                }
                if let (Some(top), Some(logits), Some(list)) = (self.logprobs, logits, &mut choice.logprobs) {
                    let of = logprobs(logits, *token, top);
                    list.push((of.logprob, of.rank, of.top));
                }
            }
            Event::Finished { reason, usage, .. } => {
                choice.finish_reason = Some(reason.as_api());
                self.answered.cached_tokens = self.answered.cached_tokens.max(usage.cached_tokens);
            }
            Event::Prompt { .. } => {}
        }
    }

    fn whole(mut self) -> Answered {
        for (choice, stream) in self.answered.choices.iter_mut().zip(&mut self.streams) {
            if let Some(stream) = stream {
                choice.text.push_str(&stream.finish());
            }
        }
        self.answered
    }
}

/// Log-probabilities of each sequence's tokens after the first.
pub fn score(engine: &mut Engine<AnyDevice>, sequences: Vec<Vec<u32>>, tell: Tell<'_>) -> PyResult<Vec<Vec<f32>>> {
    let mut scores: Vec<Vec<f32>> = sequences.iter().map(|tokens| vec![0.0; tokens.len() - 1]).collect();
    let requests = sequences.iter().map(|tokens| {
        let mut request = Request::new(tokens.clone(), Sampling::greedy(1));
        (request.token_logits, request.prompt_logits) = (false, true);
        request
    });
    let place = submit(engine, requests, "sequence")?;
    let mut note = |at: usize, event: &Event<'_>| {
        if let Event::Prompt { position, logits, .. } = event {
            scores[at][*position] = logprobs(logits, sequences[at][position + 1], 0).logprob;
        }
    };
    drive(engine, place, &mut note, tell)?;
    Ok(scores)
}
