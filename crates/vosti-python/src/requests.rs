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
    left: usize,
}

/// Runs jobs to their ends. `tell` is asked after each step, with the number of finished jobs if it has grown; its error ends
/// everything.
pub fn run(
    engine: &mut Engine<AnyDevice>,
    jobs: Vec<Job>,
    own: Option<&Arc<Text>>,
    tell: &mut dyn FnMut(Option<usize>) -> PyResult<()>,
) -> PyResult<Vec<Answered>> {
    let (mut growing, mut place) = (Vec::with_capacity(jobs.len()), HashMap::with_capacity(jobs.len()));
    for job in jobs {
        let choices = job.request.choices as usize;
        let id = match engine.submit(job.request) {
            Ok(id) => id,
            Err(error) => {
                abandon(engine, place.into_keys())?;
                return Err(super::refused(format!("prompt {}: {error}", growing.len())));
            }
        };
        place.insert(id, growing.len());
        let stream = || own.map(|own| TextStream::new(token_text(own), &job.stops));
        let empty = Choice { logprobs: job.logprobs.map(|_| Vec::new()), ..Choice::default() };
        growing.push(Growing {
            answered: Answered { choices: vec![empty; choices], cached_tokens: 0 },
            streams: (0..choices).map(|_| stream()).collect(),
            logprobs: job.logprobs,
            left: choices,
        });
    }
    let (mut finished, mut told) = (0, 0);
    while !engine.is_idle() {
        let step = engine.step(&mut |event| {
            let Some(at) = place.get(&event.request()) else { return };
            growing[*at].note(&event);
            finished += usize::from(growing[*at].left == 0 && matches!(event, Event::Finished { .. }));
        });
        step.map_err(failed)?;
        let more = (finished > told).then_some(finished);
        told = finished;
        if let Err(error) = tell(more) {
            abandon(engine, place.into_keys())?;
            return Err(error);
        }
    }
    Ok(growing.into_iter().map(Growing::whole).collect())
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
                self.left -= 1;
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
pub fn score(
    engine: &mut Engine<AnyDevice>,
    sequences: Vec<Vec<u32>>,
    tell: &mut dyn FnMut(Option<usize>) -> PyResult<()>,
) -> PyResult<Vec<Vec<f32>>> {
    let mut scores: Vec<Vec<f32>> = sequences.iter().map(|tokens| vec![0.0; tokens.len() - 1]).collect();
    let mut place = HashMap::with_capacity(sequences.len());
    for (at, tokens) in sequences.iter().enumerate() {
        let mut request = Request::new(tokens.clone(), Sampling::greedy(1));
        (request.token_logits, request.prompt_logits) = (false, true);
        let id = match engine.submit(request) {
            Ok(id) => id,
            Err(error) => {
                abandon(engine, place.into_keys())?;
                return Err(super::refused(format!("sequence {at}: {error}")));
            }
        };
        place.insert(id, at);
    }
    let (mut finished, mut told) = (0, 0);
    while !engine.is_idle() {
        let step = engine.step(&mut |event| {
            let Some(at) = place.get(&event.request()) else { return };
            match event {
                Event::Prompt { position, logits, .. } => {
                    scores[*at][position] = logprobs(logits, sequences[*at][position + 1], 0).logprob;
                }
                Event::Finished { .. } => finished += 1,
                Event::Token { .. } => {}
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
    Ok(scores)
}
