//! Runs one request through an engine: shows its text as it comes, and reports the speed.

use super::output::counted;
use super::{interrupt, sampling};
use anyhow::Result;
use std::sync::Arc;
use std::time::{Duration, Instant};
use vosti_engine::text::{TextStream, Thoughts};
use vosti_engine::{Engine, Event, FinishReason, FloatDevice, Request, RequestId, Token};
use vosti_model::Text;

/// The result of a request.
#[derive(Default)]
pub struct Streamed {
    /// Per choice.
    pub texts: Vec<String>,
    pub tokens: Vec<Vec<Token>>,
    pub reasons: Vec<Option<FinishReason>>,
    pub prompt_tokens: usize,
    cached_tokens: usize,
    shown: bool,
    first: Duration,
    rest: Duration,
    pub interrupted: bool,
    /// Why its text could not be printed.
    unprinted: Option<anyhow::Error>,
}

/// A request that the engine took, and that has not begun.
pub struct Submitted {
    id: RequestId,
    stops: Vec<String>,
    thoughts: Option<Thoughts>,
    prompt_tokens: usize,
    choices: usize,
    /// A single choice is shown as it comes.
    shown: bool,
}

impl Submitted {
    /// The same request with an answer that is not printed.
    pub fn unseen(self) -> Self {
        Self { shown: false, ..self }
    }
}

/// Hands a request to the engine, which may refuse it. Nothing is printed before.
pub fn submit<D: FloatDevice>(engine: &mut Engine<D>, request: Request) -> Result<Submitted> {
    let (prompt_tokens, choices) = (request.prompt.len(), request.choices as usize);
    let (stops, thoughts) = (request.sampling.stop_strings.clone(), request.sampling.thoughts.clone());
    // Nothing here looks at logits.
    let id = engine.submit(Request { token_logits: false, ..request })?;
    Ok(Submitted { id, stops, thoughts, prompt_tokens, choices, shown: choices == 1 })
}

/// Runs a request to its end, or to Ctrl-C. The text of a single choice is shown as it comes.
pub fn stream<D: FloatDevice>(
    engine: &mut Engine<D>,
    text: &Arc<Text>,
    submitted: Submitted,
    show: &mut dyn FnMut(&str) -> Result<()>,
) -> Result<Streamed> {
    let Submitted { id, stops, thoughts, prompt_tokens, choices, shown } = submitted;
    let of_choice = |_| TextStream::new(sampling::text(text), &stops).with_thoughts(thoughts.as_ref());
    let mut streams: Vec<TextStream> = (0..choices).map(of_choice).collect();
    let mut out = Streamed {
        texts: vec![String::new(); choices],
        tokens: vec![Vec::new(); choices],
        reasons: vec![None; choices],
        prompt_tokens,
        shown,
        ..Streamed::default()
    };
    let start = Instant::now();
    while !engine.is_idle() {
        if interrupt::interrupted() && !out.interrupted {
            out.interrupted = true;
            engine.abort(id);
        }
        engine.step(&mut |event| out.note(&mut streams, event, show))?;
        if let Some(error) = out.unprinted.take() {
            return Err(error);
        }
        if out.first.is_zero() && out.tokens.iter().any(|tokens| !tokens.is_empty()) {
            out.first = start.elapsed();
        }
    }
    out.rest = start.elapsed().saturating_sub(out.first);
    for (choice, stream) in streams.into_iter().enumerate() {
        let mut stream = stream;
        let rest = stream.finish();
        out.give(choice, &rest, show);
    }
    match out.unprinted.take() {
        Some(error) => Err(error),
        None => Ok(out),
    }
}

impl Streamed {
    fn note(&mut self, streams: &mut [TextStream], event: Event<'_>, show: &mut dyn FnMut(&str) -> Result<()>) {
        let choice = event.choice() as usize;
        match event {
            Event::Token { token, .. } => {
                self.tokens[choice].push(token);
                let text = streams[choice].push(token);
                self.give(choice, &text, show);
            }
            Event::Finished { reason, usage, .. } => {
                self.reasons[choice] = Some(reason);
                self.cached_tokens = self.cached_tokens.max(usage.cached_tokens);
            }
            Event::Started { .. } | Event::Prompt { .. } | Event::Routed { .. } => {}
        }
    }

    fn give(&mut self, choice: usize, text: &str, show: &mut dyn FnMut(&str) -> Result<()>) {
        if self.shown {
            self.unprinted = show(text).err().or(self.unprinted.take());
        }
        self.texts[choice].push_str(text);
    }

    /// Tokens per second, on stderr.
    pub fn report(&self) {
        let generated: usize = self.tokens.iter().map(Vec::len).sum();
        let rate = |tokens: usize, time: Duration| tokens as f64 / time.as_secs_f64().max(1e-9);
        let computed = self.prompt_tokens - self.cached_tokens.min(self.prompt_tokens);
        let cached = if self.cached_tokens > 0 { format!(" ({} cached)", self.cached_tokens) } else { String::new() };
        tell!(
            "prompt       {}{cached}, {:.1} tokens/s, first token after {:.0} ms",
            counted(self.prompt_tokens, "token"),
            rate(computed, self.first),
            self.first.as_secs_f64() * 1e3
        );
        let decoded = generated.saturating_sub(self.tokens.len());
        let answer = counted(generated, "token");
        tell!("answer       {answer}, {:.1} tokens/s{}", rate(decoded, self.rest), self.ended());
    }

    fn ended(&self) -> &'static str {
        match self.reasons.first() {
            Some(Some(FinishReason::ContextFull)) => "; ended: the context is full (--context)",
            Some(Some(FinishReason::Length)) => "; ended at --max-tokens",
            Some(Some(FinishReason::Aborted)) => "; interrupted",
            _ => "",
        }
    }
}
