//! One turn of the assistant as it comes: thoughts, text and calls, told apart once for every API that shows them.
//!
//! Every byte of the answer's text is in one part, in the order in which it came. Nothing here knows how an API writes parts.

use super::prepare::Plan;
use crate::answer::{Delta, End};
use crate::grammar::thought::{Said, Thinker, Thinking};
use crate::grammar::tools::{Piece, Reader, Tools};

/// What a conversation's answer may hold, and what of it is shown.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    pub tools: Option<Tools>,
    /// Thoughts are told apart from the answer.
    pub thinking: Option<Thinking>,
    /// And not shown.
    pub thoughts_hidden: bool,
}

/// More of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    Thought(String),
    Text(String),
    Call {
        id: String,
        name: String,
    },
    /// Of the last call, JSON.
    Arguments(String),
}

/// See the module.
pub struct Turn {
    thinker: Option<Thinker>,
    thoughts_hidden: bool,
    reader: Option<Reader>,
    /// For the ids of calls.
    name: String,
    calls: usize,
}

impl Turn {
    /// `id` is the response's, `answer` the turn's place in it.
    pub fn new(plan: &Plan, id: &str, answer: usize) -> Self {
        // Of the response's own name: unique, and short enough for templates that show it.
        let suffix = id.rsplit('-').next().unwrap_or(id);
        let shape = &plan.shape;
        Self {
            thinker: shape.thinking.map(Thinker::new),
            thoughts_hidden: shape.thoughts_hidden,
            reader: shape.tools.as_ref().map(Reader::new),
            name: format!("{suffix}_{answer}"),
            calls: 0,
        }
    }

    /// The parts that an update makes certain.
    pub fn take(&mut self, delta: &Delta) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut said = match &mut self.thinker {
            Some(thinker) => thinker.push(&delta.text),
            None if delta.text.is_empty() => Vec::new(),
            None => vec![Said::Answer(delta.text.clone())],
        };
        if let (Some(thinker), Some(_)) = (&mut self.thinker, &delta.end) {
            said.extend(thinker.finish());
        }
        for said in said {
            match said {
                Said::Thought(_) if self.thoughts_hidden => {}
                Said::Thought(text) => parts.push(Part::Thought(text)),
                Said::Answer(text) => match &mut self.reader {
                    Some(reader) => {
                        let pieces = reader.push(&text);
                        parts.extend(pieces.into_iter().map(|piece| self.part(piece)));
                    }
                    None => parts.push(Part::Text(text)),
                },
            }
        }
        if let (Some(reader), Some(_)) = (&mut self.reader, &delta.end) {
            let pieces = reader.finish();
            parts.extend(pieces.into_iter().map(|piece| self.part(piece)));
        }
        parts
    }

    fn part(&mut self, piece: Piece) -> Part {
        match piece {
            Piece::Text(text) => Part::Text(text),
            Piece::Arguments(json) => Part::Arguments(json),
            Piece::Call { name } => {
                self.calls += 1;
                Part::Call { id: format!("call_{}_{}", self.name, self.calls - 1), name }
            }
        }
    }

    /// The turn ended with calls, all of them whole.
    pub fn called(&self, end: &End) -> bool {
        end.reason.as_api() == "stop" && self.reader.as_ref().is_some_and(Reader::called)
    }
}
