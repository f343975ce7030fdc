//! Harmony, the format of gpt-oss's answers: messages, each with a channel, between tags.
//!
//! `analysis` is thoughts, `final` and `commentary` are text, and a message `to=functions.NAME` is a call with its arguments.
//! The reader hands out each byte of these once and drops tags. [`super::thought`] reads the answers of models that mark only
//! their thoughts.

use super::tools::{Choice, Piece, Tools};
use super::{json_rule, part};

const MESSAGE: &str = "<|message|>";
const TO: &str = "to=functions.";
/// One of these ends a message. `<|call|>` and `<|return|>` end the answer too, so they are rarely in its text.
const ENDS: [&str; 4] = ["<|end|>", "<|call|>", "<|return|>", "<|start|>"];
/// One of these begins a message's head; other text is an answer without tags.
const BEGINS: [&str; 3] = ["<|channel|>", "<|start|>", TO];

/// The head of an answer that begins with thoughts.
pub const ANALYSIS: &str = "<|channel|>analysis";
/// The head of the message that is the answer's text.
pub const FINAL: &str = "<|channel|>final";

/// Whether a chat template belongs to a model that answers in Harmony.
pub fn writes(template: &str) -> bool {
    template.contains("<|channel|>") && template.contains(MESSAGE)
}

/// A grammar in llguidance's notation: thoughts, then a final message that `grammar` allows.
pub fn before(grammar: &str) -> String {
    let answer = part(grammar, "harmony_answer");
    format!("start: {THOUGHTS} \"<|channel|>final<|message|>\" harmony_answer\n{RULES}{answer}")
}

const THOUGHTS: &str = "(\"<|channel|>analysis<|message|>\" harmony_thoughts \"<|start|>assistant\")*";
const RULES: &str = "harmony_thoughts[suffix=\"<|end|>\"]: /(?s:.*)/\n";

/// The same for tools: thoughts, then a call, or under `Auto` text, of which `held` is the grammar if it has one.
pub(super) fn of_tools(tools: &Tools, held: Option<&str>) -> String {
    let text = match tools.choice() {
        Choice::Auto => " | \"<|channel|>final<|message|>\" harmony_text",
        Choice::Required | Choice::Named(_) => "",
    };
    let functions: Vec<_> = tools.callable().collect();
    let names: Vec<String> = (0..functions.len()).map(|i| format!("function_{i}")).collect();
    let mut rules = format!("start: {THOUGHTS} (({}){text})\n{RULES}", names.join(" | "));
    if !text.is_empty() {
        rules += &held.map_or("harmony_text: /(?s:.*)/\n".into(), |grammar| part(grammar, "harmony_text"));
    }
    for (rule, function) in names.iter().zip(functions) {
        let head = format!("<|channel|>commentary {TO}{} <|constrain|>json{MESSAGE}", function.name);
        rules += &format!("{rule}: {} {}\n", serde_json::Value::from(head), json_rule(&function.arguments()));
    }
    rules
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Harmony {
    state: State,
    /// Arguments of the last call so far.
    arguments: String,
    calls: usize,
}

#[derive(Clone, Debug)]
enum State {
    /// In a message's head, with its text so far.
    Head(String),
    /// In a message, with held text that may be the beginning of a tag.
    Body(Kind, String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Thought,
    Text,
    Arguments,
}

impl Default for Harmony {
    fn default() -> Self {
        Self { state: State::Head(String::new()), arguments: String::new(), calls: 0 }
    }
}

impl Harmony {
    /// The pieces that `text` makes certain.
    pub fn push(&mut self, text: &str) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut text = text.to_string();
        while !text.is_empty() {
            text = self.step(text, &mut pieces);
        }
        pieces
    }

    /// The rest at the answer's end. A tag that was cut off is dropped.
    pub fn finish(&mut self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        // A tag is one token, which cannot be cut, so held text is not a part of a tag.
        if let State::Body(kind, held) = std::mem::replace(&mut self.state, State::Head(String::new())) {
            self.give(kind, held, &mut pieces);
        }
        pieces
    }

    /// In a thought.
    pub fn thinks(&self) -> bool {
        matches!(self.state, State::Body(Kind::Thought, _))
    }

    /// True if there are calls and the last one's arguments are complete.
    pub fn called(&self) -> bool {
        self.calls > 0 && serde_json::from_str::<serde::de::IgnoredAny>(&self.arguments).is_ok()
    }

    /// Reads text in the current state, and returns the text that belongs to the next state.
    fn step(&mut self, text: String, pieces: &mut Vec<Piece>) -> String {
        match &mut self.state {
            State::Head(head) => {
                head.push_str(&text);
                if let Some((tags, rest)) = head.split_once(MESSAGE) {
                    let (tags, rest) = (tags.to_string(), rest.to_string());
                    let kind = self.begin(&tags, pieces);
                    self.state = State::Body(kind, String::new());
                    return rest;
                }
                let begun = head.trim_start();
                if BEGINS.iter().any(|tag| tag.starts_with(begun) || begun.starts_with(tag)) {
                    return String::new();
                }
                let rest = std::mem::take(head);
                self.state = State::Body(Kind::Text, String::new());
                rest
            }
            State::Body(kind, held) => {
                let kind = *kind;
                held.push_str(&text);
                let end = ENDS.iter().filter_map(|end| Some((held.find(end)?, *end))).min();
                if let Some((at, end)) = end {
                    let (body, rest) = (held[..at].to_string(), held[at + end.len()..].to_string());
                    self.give(kind, body, pieces);
                    self.state = State::Head(if end == "<|start|>" { end.to_string() } else { String::new() });
                    return rest;
                }
                let tag = |end: &str| (1..end.len()).rev().find(|n| held.ends_with(&end[..*n])).unwrap_or(0);
                let sure = held.len() - ENDS.map(tag).into_iter().max().unwrap_or(0);
                let body: String = held.drain(..sure).collect();
                self.give(kind, body, pieces);
                String::new()
            }
        }
    }

    /// The kind of message that these tags begin.
    fn begin(&mut self, tags: &str, pieces: &mut Vec<Piece>) -> Kind {
        if let Some((_, rest)) = tags.split_once(TO) {
            let name = rest.split(|c: char| c.is_whitespace() || c == '<').next().unwrap_or_default();
            pieces.push(Piece::Call { name: name.to_string() });
            (self.calls, self.arguments) = (self.calls + 1, String::new());
            return Kind::Arguments;
        }
        if tags.contains("<|channel|>analysis") { Kind::Thought } else { Kind::Text }
    }

    fn give(&mut self, kind: Kind, text: String, pieces: &mut Vec<Piece>) {
        if text.is_empty() {
            return;
        }
        pieces.push(match kind {
            Kind::Thought => Piece::Thought(text),
            Kind::Text => Piece::Text(text),
            Kind::Arguments => {
                self.arguments.push_str(&text);
                Piece::Arguments(text)
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Thoughts, text, names of calls and their arguments.
    fn told<'a>(parts: impl IntoIterator<Item = &'a str>) -> [String; 4] {
        let mut harmony = Harmony::default();
        let mut pieces: Vec<Piece> = parts.into_iter().flat_map(|part| harmony.push(part)).collect();
        pieces.extend(harmony.finish());
        let mut told = [const { String::new() }; 4];
        for piece in pieces {
            let (at, text) = match piece {
                Piece::Thought(text) => (0, text),
                Piece::Text(text) => (1, text),
                Piece::Call { name } => (2, name),
                Piece::Arguments(text) => (3, text),
            };
            told[at] += &text;
        }
        told
    }

    proptest! {
        #[test]
        fn a_cut_answer_is_a_beginning_of_the_whole_one(
            thought in "[a-zé <|]{0,8}",
            text in "[a-zé <|]{0,8}",
            call in any::<bool>(),
            role in any::<bool>(),
            part in 1usize..9,
        ) {
            let head = match (call, role) {
                (false, _) => "<|channel|>final",
                (true, false) => "<|channel|>commentary to=functions.look <|constrain|>json",
                (true, true) => " to=functions.look<|channel|>commentary json",
            };
            let whole =
                format!("<|channel|>analysis<|message|>{thought}<|end|><|start|>assistant{head}<|message|>{text}");
            let wanted = match call {
                false => [thought.clone(), text.clone(), String::new(), String::new()],
                true => [thought.clone(), String::new(), "look".into(), text.clone()],
            };
            let letters: Vec<char> = whole.chars().collect();
            for cut in 0..=letters.len() {
                let parts: Vec<String> = letters[..cut].chunks(part).map(|part| part.iter().collect()).collect();
                let read = told(parts.iter().map(String::as_str));
                let given: String = letters[..cut].iter().collect();
                prop_assert_eq!(&told([given.as_str()]), &read);
                for (read, wanted) in read.iter().zip(&wanted) {
                    let tag = read.strip_prefix(wanted.as_str()).is_some_and(|rest| "<|end|>".starts_with(rest));
                    prop_assert!(tag || wanted.starts_with(read.as_str()), "{read:?} of {wanted:?}");
                }
            }
            let ended = format!("{whole}<|call|>");
            prop_assert_eq!(told([ended.as_str()]), wanted);
        }
    }

    #[test]
    fn an_answer_without_tags_is_text() {
        for text in ["Hi.", " <b>", "total"] {
            assert_eq!(told([text])[1], text);
        }
        assert_eq!(told(["<|chan"]), [const { String::new() }; 4]);
    }

    #[test]
    fn an_answer_called_if_its_last_calls_arguments_are_whole() {
        let mut harmony = Harmony::default();
        harmony.push("<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": 1");
        assert!(!harmony.called());
        harmony.push("}");
        assert!(harmony.called());
    }
}
