//! One turn of the assistant as it comes: thoughts, text and calls, separated once for every API that shows them.
//!
//! Every byte of the answer's text is in exactly one part, in order. Nothing here knows how an API writes parts.

use super::prepare::Prepared;
use crate::answer::{Delta, End};
use crate::grammar::harmony::Harmony;
use crate::grammar::thought::{Said, Thinker, Thinking};
use crate::grammar::tools::{Piece, Reader, Tools};
use vosti_engine::Token;

/// What a conversation's answer may contain, and whether its thoughts are shown.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    pub tools: Option<Tools>,
    /// How thoughts are separated from the answer; none: they are not.
    pub thinking: Option<Thinking>,
    /// The token that closes thoughts, if no text does.
    pub close: Option<Token>,
    /// Thoughts are separated and not shown.
    pub thoughts_hidden: bool,
}

/// More of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnPart {
    Thought(String),
    Text(String),
    Call {
        id: String,
        name: String,
    },
    /// More of the last call's arguments, as JSON text.
    Arguments(String),
}

/// See the module.
pub struct Turn {
    reading: Reading,
    thoughts_hidden: bool,
    /// For the ids of calls.
    name: String,
    calls: usize,
    /// Tokens that came between the tags of thoughts.
    thought_tokens: usize,
}

/// The reader that separates the parts.
enum Reading {
    /// Tags around thoughts, and calls in the text behind them; either may be absent.
    Tags {
        close: Option<Token>,
        thinker: Option<Thinker>,
        reader: Option<Reader>,
    },
    Harmony(Harmony),
}

impl Turn {
    /// `id` is the response's, `answer` the turn's place in it.
    pub fn new(prepared: &Prepared, id: &str, answer: usize) -> Self {
        // From the response's id: unique, and short enough for templates that show a call's id.
        let suffix = id.rsplit('-').next().unwrap_or(id);
        let (contents, reading) = (&prepared.contents, Reading::of(&prepared.contents));
        let name = format!("{suffix}_{answer}");
        Self { reading, thoughts_hidden: contents.thoughts_hidden, name, calls: 0, thought_tokens: 0 }
    }

    /// The parts that an update makes certain.
    pub fn take(&mut self, delta: &Delta) -> Vec<TurnPart> {
        let thought = self.reading.thinks();
        let mut pieces = self.reading.push(&delta.text, delta.token.as_ref().map(|generated| generated.token));
        if delta.token.is_some() && thought && self.reading.thinks() {
            self.thought_tokens += 1;
        }
        if delta.end.is_some() {
            pieces.extend(self.reading.finish());
        }
        pieces.into_iter().filter_map(|piece| self.part(piece)).collect()
    }

    fn part(&mut self, piece: Piece) -> Option<TurnPart> {
        Some(match piece {
            Piece::Thought(_) if self.thoughts_hidden => return None,
            Piece::Thought(text) => TurnPart::Thought(text),
            Piece::Text(text) => TurnPart::Text(text),
            Piece::Arguments(json) => TurnPart::Arguments(json),
            Piece::Call { name } => {
                self.calls += 1;
                TurnPart::Call { id: format!("call_{}_{}", self.name, self.calls - 1), name }
            }
        })
    }

    /// Tokens of thoughts so far, shown or not.
    pub fn thought_tokens(&self) -> usize {
        self.thought_tokens
    }

    /// True if the turn has calls and all of them are complete.
    pub fn called(&self, end: &End) -> bool {
        let called = match &self.reading {
            Reading::Tags { reader, .. } => reader.as_ref().is_some_and(Reader::called),
            Reading::Harmony(harmony) => harmony.called(),
        };
        called && end.reason.as_api() == "stop"
    }
}

impl Reading {
    fn of(contents: &Contents) -> Self {
        match contents.thinking {
            Some(Thinking::Harmony) => Self::Harmony(Harmony::default()),
            thinking => Self::Tags {
                close: contents.close,
                thinker: thinking.map(|thinking| Thinker::new(thinking == Thinking::Begun, contents.close.is_some())),
                reader: contents.tools.as_ref().and_then(Reader::new),
            },
        }
    }

    fn thinks(&self) -> bool {
        match self {
            Self::Harmony(harmony) => harmony.thinks(),
            Self::Tags { thinker, .. } => thinker.as_ref().is_some_and(Thinker::thinks),
        }
    }

    /// `token` is the one that the text's end came from.
    fn push(&mut self, text: &str, token: Option<Token>) -> Vec<Piece> {
        match self {
            _ if text.is_empty() => Vec::new(),
            Self::Harmony(harmony) => harmony.push(text),
            Self::Tags { thinker: Some(thinker), reader, close } => {
                read(thinker.push(text, close.is_some() && *close == token), token, reader)
            }
            Self::Tags { thinker: None, reader, .. } => read(vec![Said::Answer(text.to_string())], token, reader),
        }
    }

    fn finish(&mut self) -> Vec<Piece> {
        match self {
            Self::Harmony(harmony) => harmony.finish(),
            Self::Tags { thinker, reader, .. } => {
                let said = thinker.as_mut().map(Thinker::finish).unwrap_or_default();
                let mut pieces = read(said, None, reader);
                pieces.extend(reader.as_mut().map(Reader::finish).unwrap_or_default());
                pieces
            }
        }
    }
}

/// Reads calls in the text after thoughts; the last of it came from this token.
fn read(said: Vec<Said>, token: Option<Token>, reader: &mut Option<Reader>) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let last = said.len().saturating_sub(1);
    for (index, said) in said.into_iter().enumerate() {
        match (said, &mut *reader) {
            (Said::Thought(text), _) => pieces.push(Piece::Thought(text)),
            (Said::Answer(text), Some(reader)) => pieces.extend(reader.push(&text, token.filter(|_| index == last))),
            (Said::Answer(text), None) => pieces.push(Piece::Text(text)),
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grammar::tools::{Choice, Function};

    #[test]
    fn where_tokens_are_the_marks_what_spells_one_is_a_part_of_the_thought_or_the_text() {
        let function = Function { name: "f".into(), description: None, parameters: None, strict: false };
        let tools = Tools::new(vec![function], Choice::Auto, true).expect("tools").by_token(|_| Some(8));
        let contents =
            Contents { tools: Some(tools), thinking: Some(Thinking::Begun), close: Some(7), ..Contents::default() };
        let mut reading = Reading::of(&contents);
        let (thought, text) = (|text: &str| Piece::Thought(text.into()), |text: &str| Piece::Text(text.into()));
        assert_eq!(reading.push("a </think> <tool_call> b", Some(1)), [thought("a </think> <tool_call> b")]);
        assert_eq!(reading.push("</think>", Some(7)), []);
        assert_eq!(
            reading.push("\n\nWrite </think> or <tool_call>.", Some(2)),
            [text("Write </think> or <tool_call>.")]
        );
        assert_eq!(reading.push("<tool_call>", Some(8)), []);
        let call = reading.push("\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>", None);
        assert_eq!(call, [Piece::Call { name: "f".into() }, Piece::Arguments("{}".into())]);
    }
}
