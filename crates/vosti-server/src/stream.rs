//! An answer as it comes: server-sent events, or lines of JSON.

use crate::api::ApiError;
use crate::flow::{Flow, Step};
use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream, StreamExt};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

/// Writes an endpoint's chunks.
pub trait Writer: Send + 'static {
    type Chunk: Serialize + Send;

    /// The data of the event after the last chunk.
    const END: Option<&'static str> = Some("[DONE]");

    /// The event's name, in an API that names events.
    fn name(_chunk: &Self::Chunk) -> Option<&str> {
        None
    }

    /// The chunks before the first step.
    fn begin(&mut self, _flow: &Flow) -> Vec<Self::Chunk> {
        Vec::new()
    }

    /// The chunks of a step; there may be none.
    fn step(&mut self, flow: &Flow, step: Step) -> Vec<Self::Chunk>;

    /// The chunks after the last answer's end.
    fn end(&mut self, flow: &Flow) -> Vec<Self::Chunk>;

    /// The last event of an answer that failed.
    fn failed(&mut self, error: &ApiError) -> Value {
        json!(error.body())
    }
}

/// After this long without an event a comment is sent, so that no proxy closes the connection as dead.
const SILENCE_MAX: Duration = Duration::from_secs(15);

struct State<W: Writer> {
    flow: Option<Flow>,
    writer: W,
    ready: VecDeque<Part<W::Chunk>>,
}

/// The response. It owns the flow: when the client leaves, the response is dropped, which aborts the request.
pub fn respond<W: Writer>(flow: Flow, writer: W) -> Response {
    let events = parts(flow, writer).map(|part| {
        Ok::<Event, Infallible>(match part {
            Part::Chunk(chunk) => event::<W>(&chunk),
            Part::End => Event::default().data(W::END.unwrap_or_default()),
            // Only an API that names its events names this one.
            Part::Failed(body) if W::END.is_none() => Event::default().event("error").data(one_line(&body)),
            Part::Failed(body) => Event::default().data(one_line(&body)),
        })
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(SILENCE_MAX)).into_response()
}

/// The response as lines of JSON, as ollama streams.
pub fn lines<W: Writer>(flow: Flow, writer: W) -> Response {
    let lines = parts(flow, writer).map(|part| {
        Ok::<String, Infallible>(match part {
            Part::Chunk(chunk) => one_line(&chunk) + "\n",
            Part::Failed(body) => one_line(&body) + "\n",
            Part::End => String::new(),
        })
    });
    ([(CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response()
}

/// A part of a stream.
enum Part<C> {
    Chunk(C),
    /// After the last chunk, in an API that marks the end.
    End,
    Failed(Value),
}

fn parts<W: Writer>(flow: Flow, mut writer: W) -> impl Stream<Item = Part<W::Chunk>> {
    let ready = writer.begin(&flow).into_iter().map(Part::Chunk).collect();
    let state = State { flow: Some(flow), writer, ready };
    stream::unfold(state, |mut state| async move {
        while state.ready.is_empty() {
            state.advance().await?;
        }
        let part = state.ready.pop_front()?;
        Some((part, state))
    })
}

impl<W: Writer> State<W> {
    /// Makes parts ready; none if the stream is over.
    async fn advance(&mut self) -> Option<()> {
        let flow = self.flow.as_mut()?;
        match flow.next().await {
            Ok(Some(step)) => {
                let repeated = matches!(&step, Step::Answer(delta) if delta.repeated);
                let chunks = self.writer.step(flow, step);
                self.ready.extend(chunks.into_iter().filter(|_| !repeated).map(Part::Chunk));
            }
            Ok(None) => {
                self.ready.extend(self.writer.end(flow).into_iter().map(Part::Chunk));
                self.ready.extend(W::END.map(|_| Part::End));
                self.flow = None;
            }
            Err(error) => {
                self.ready.push_back(Part::Failed(self.writer.failed(&error)));
                self.flow = None;
            }
        }
        Some(())
    }
}

fn event<W: Writer>(chunk: &W::Chunk) -> Event {
    let event = Event::default().data(one_line(chunk));
    match W::name(chunk) {
        Some(name) => event.event(name),
        None => event,
    }
}

/// JSON without any character that ends a line, even for clients that split events with Python's `str.splitlines`.
fn one_line<T: Serialize>(chunk: &T) -> String {
    // Our chunks are plain data with string keys: writing them cannot fail.
    let json = serde_json::to_string(chunk).unwrap_or_default();
    // JSON escapes the others itself. Outside of strings there are none.
    let ends = [('\u{85}', "\\u0085"), ('\u{2028}', "\\u2028"), ('\u{2029}', "\\u2029")];
    ends.into_iter()
        .fold(json, |json, (end, escaped)| if json.contains(end) { json.replace(end, escaped) } else { json })
}

#[cfg(test)]
mod tests {
    use super::one_line;

    #[test]
    fn an_event_is_one_line_even_to_clients_that_cut_at_unicode_line_ends() {
        let text = "a\u{85}b\u{2028}c\u{2029}d\u{b}\u{c}\u{1c}\u{1d}\u{1e}\r\n";
        let json = one_line(&text);
        assert!(json.bytes().all(|byte| (32..127).contains(&byte)), "{json:?}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }
}
