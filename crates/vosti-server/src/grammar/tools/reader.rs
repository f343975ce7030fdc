//! Reads an answer with tools as it comes, and separates text from calls.
//!
//! A grammar constrained the answer, so the reader only has to track its position in the grammar. It hands out each byte of
//! text and of arguments once, and never takes one back: a call that the end of the answer cuts off has a name and the
//! arguments that came. A call that is cut off before its name is complete is dropped: it is neither text nor a call.

use std::collections::BTreeMap;

use super::format::{Arguments, Literals};
use super::tags::{self, Kind};
use super::{Choice, Tools, values};
use vosti_engine::Token;

/// A part of an answer with tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// More of a thought. This reader makes none; the readers of thoughts do.
    Thought(String),
    /// Text of the answer outside of calls.
    Text(String),
    /// A call begins; its arguments follow.
    Call {
        /// One of the request's functions.
        name: String,
    },
    /// More of the last call's arguments, JSON as the model wrote it.
    Arguments(String),
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Reader {
    literals: &'static Literals,
    /// See [`Tools::openings`].
    openings: Vec<(String, String)>,
    /// The kinds of each function's arguments, where they stand in tags.
    kinds: BTreeMap<String, BTreeMap<String, Kind>>,
    /// Text may come before calls.
    anywhere: bool,
    /// The token that begins calls: no text does.
    mark: Option<Token>,
    state: State,
    calls: usize,
}

/// Where in the answer the reader is.
#[derive(Clone, Debug)]
enum State {
    /// In text, with held text that may begin a call.
    Text(String),
    /// In text after which no call can come.
    Plain,
    /// Before a name: so many bytes of literal text are still to come.
    Head(usize),
    /// In a name, or in the literal text that follows it.
    Name(String),
    Arguments(Json),
    /// In arguments that stand in tags.
    Tags(tags::Reader),
    /// In arguments that are names and values.
    Values(values::Reader),
    /// After arguments, with the literal text so far.
    After(String),
}

impl Reader {
    /// A reader of an answer that `tools` describes; none for Harmony, which has a reader of its own.
    pub fn new(tools: &Tools) -> Option<Self> {
        let literals = tools.format.literals()?;
        let state = match tools.choice {
            Choice::Auto => State::Text(String::new()),
            Choice::Required | Choice::Named(_) => State::Head(literals.mark.len() + literals.head.len()),
        };
        let (openings, anywhere) = (tools.openings(), tools.text_before_calls(literals));
        let tagged = tools.functions.iter().filter(|_| matches!(literals.arguments, Arguments::Tags(_)));
        let kinds = tagged.map(|function| (function.name.clone(), tags::kinds(&function.arguments()))).collect();
        Some(Self { literals, openings, kinds, anywhere, mark: tools.mark, state, calls: 0 })
    }

    /// True if there are calls and the last one's arguments are complete.
    pub fn called(&self) -> bool {
        self.calls > 0 && matches!(self.state, State::After(_))
    }

    /// The pieces that `text` makes certain. `token` is the one that the text's end came from.
    pub fn push(&mut self, text: &str, token: Option<Token>) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let begins = self.mark.is_some() && self.mark == token && matches!(self.state, State::Text(_));
        let before = if begins { text.strip_suffix(self.literals.mark).unwrap_or(text) } else { text };
        for letter in before.chars() {
            self.step(letter, &mut pieces);
        }
        let State::Text(held) = &mut self.state else { return pieces };
        if begins {
            let text = std::mem::take(held);
            self.begin(&text, &mut pieces);
            return pieces;
        }
        let open = self.openings.iter().any(|(opening, _)| opening.starts_with(held.as_str()));
        let back = match self.openings[..] {
            [] if self.mark.is_some() => held.len() - held.trim_end().len(),
            [] => held_back(held, self.literals.mark, self.anywhere),
            _ if open => held.len(),
            _ => 0,
        };
        let sure = held.len() - back;
        if sure > 0 {
            give(&mut pieces, Piece::Text(held.drain(..sure).collect()));
            if !self.anywhere {
                self.state = State::Plain;
            }
        }
        pieces
    }

    /// The rest at the end of the answer: held text, which begins no call.
    pub fn finish(&mut self) -> Vec<Piece> {
        match &mut self.state {
            State::Text(held) if !held.is_empty() => vec![Piece::Text(std::mem::take(held))],
            _ => Vec::new(),
        }
    }

    fn step(&mut self, letter: char, pieces: &mut Vec<Piece>) {
        match &mut self.state {
            State::Text(held) => {
                held.push(letter);
                if let Some((_, name)) = self.openings.iter().find(|(opening, _)| opening == held) {
                    self.calls += 1;
                    pieces.push(Piece::Call { name: name.clone() });
                    self.state = State::Arguments(Json::default());
                } else if self.openings.is_empty()
                    && self.mark.is_none()
                    && let Some(text) = held.strip_suffix(self.literals.mark)
                    && (self.anywhere || text.is_empty())
                {
                    let text = text.to_string();
                    self.begin(&text, pieces);
                }
            }
            State::Plain => give(pieces, Piece::Text(letter.to_string())),
            State::Head(left) => {
                let left = left.saturating_sub(letter.len_utf8());
                self.state = self.name_after(left);
            }
            State::Name(name) => {
                // Where nothing follows a name, it ends at the first tag.
                let ended = self.literals.middle.is_empty() && letter == '<';
                if !ended {
                    name.push(letter);
                }
                let whole = match self.literals.middle {
                    "" => ended.then_some(name.as_str()),
                    middle => name.strip_suffix(middle),
                };
                if let Some(name) = whole.map(str::to_string) {
                    self.calls += 1;
                    self.state = self.arguments(&name);
                    pieces.push(Piece::Call { name });
                    if ended {
                        self.step(letter, pieces);
                    }
                }
            }
            State::Arguments(json) => {
                let place = json.step(letter);
                if place != Place::Behind {
                    give(pieces, Piece::Arguments(letter.to_string()));
                }
                match place {
                    Place::Inside => {}
                    Place::Last => self.state = State::After(String::new()),
                    Place::Behind => self.state = State::After(letter.to_string()),
                }
            }
            State::Tags(_) | State::Values(_) => {
                let (json, behind) = match &mut self.state {
                    State::Tags(arguments) => arguments.step(letter),
                    State::Values(arguments) => arguments.step(letter),
                    _ => return,
                };
                if !json.is_empty() {
                    give(pieces, Piece::Arguments(json));
                }
                if let Some(behind) = behind {
                    self.state = State::After(behind);
                }
            }
            State::After(seen) => {
                seen.push(letter);
                match self.literals.next {
                    Some(next) if next == seen => self.state = State::Name(String::new()),
                    _ => {}
                }
            }
        }
    }

    /// Behind this text and the mark of a call. White space before a call is not text.
    fn begin(&mut self, text: &str, pieces: &mut Vec<Piece>) {
        let text = text.trim_end();
        if !text.is_empty() {
            give(pieces, Piece::Text(text.to_string()));
        }
        self.state = self.name_after(self.literals.head.len());
    }

    /// Before the arguments of this function.
    fn arguments(&self, name: &str) -> State {
        match self.literals.arguments {
            Arguments::Json => State::Arguments(Json::default()),
            Arguments::Tags(tags) => {
                State::Tags(tags::Reader::new(tags, self.kinds.get(name).cloned().unwrap_or_default()))
            }
            Arguments::Values(notation) => State::Values(values::Reader::new(notation)),
        }
    }

    fn name_after(&self, left: usize) -> State {
        if left == 0 { State::Name(String::new()) } else { State::Head(left) }
    }
}

/// Adds a piece, joined with the last one if both are text or both are arguments.
fn give(pieces: &mut Vec<Piece>, piece: Piece) {
    match (pieces.last_mut(), piece) {
        (Some(Piece::Text(before)), Piece::Text(more)) => before.push_str(&more),
        (Some(Piece::Arguments(before)), Piece::Arguments(more)) => before.push_str(&more),
        (_, piece) => pieces.push(piece),
    }
}

/// Bytes at the end of a text that may belong to a call: white space, and the beginning of the mark.
fn held_back(text: &str, mark: &str, anywhere: bool) -> usize {
    if !anywhere {
        return if mark.starts_with(text) { text.len() } else { 0 };
    }
    let mark = (1..mark.len()).rev().find(|n| text.ends_with(&mark[..*n])).unwrap_or(0);
    let before = &text[..text.len() - mark];
    mark + before.len() - before.trim_end().len()
}

/// Finds the end of a JSON value.
#[derive(Clone, Debug, Default)]
pub(super) struct Json {
    depth: usize,
    in_text: bool,
    escaped: bool,
}

/// The place of a letter in or after a JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Inside,
    Last,
    Behind,
}

impl Json {
    /// Between the quotes of a text.
    pub fn in_text(&self) -> bool {
        self.in_text
    }

    pub fn step(&mut self, letter: char) -> Place {
        if self.in_text {
            let escaped = std::mem::replace(&mut self.escaped, false);
            self.escaped = letter == '\\' && !escaped;
            self.in_text = letter != '"' || escaped;
            return Place::Inside;
        }
        match letter {
            '"' => self.in_text = true,
            '{' | '[' => self.depth += 1,
            // A number or a text has no last letter of its own.
            '}' | ']' if self.depth == 0 => return Place::Behind,
            '}' | ']' => {
                self.depth -= 1;
                return if self.depth == 0 { Place::Last } else { Place::Inside };
            }
            _ => {}
        }
        Place::Inside
    }
}
