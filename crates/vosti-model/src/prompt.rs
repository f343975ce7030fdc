//! A rendered conversation in which the template's text and the messages' text are told apart.
//!
//! Only the template's text may become a control token. So text of messages, tools and variables that spells one is marked
//! before it is rendered: a private character before it and another one behind it. The characters occur nowhere in the input,
//! so they pass through a template like letters, and the tokenizer takes them out again. Text that spells no control token is
//! not marked: it is rendered and encoded as it is. Nothing here decides what a control token is; `tokenizer/mod.rs` does.
//! Read next: `chat.rs`, which makes templates overlook the marks.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::{Map, Value};

use crate::error::{ModelError, Result};

/// The first character that may be a mark: planes 15 and 16 are for private use.
const FIRST: u32 = 0xF_0000;
const LAST: u32 = 0x10_FFFD;

/// What an answer of the assistant may hold besides its text, so that an answer can be sent back as it came.
const THOUGHTS: [&str; 2] = ["<think>", "</think>"];

/// Texts that the tokenizer takes for tokens wherever they stand.
#[derive(Clone, Debug, Default)]
pub struct AddedTokens {
    /// Those that are control tokens.
    pub control: Vec<String>,
    /// Those that look like markup, and are control tokens of a template that writes them.
    pub markup: Vec<String>,
}

/// A template's control tokens, ready to be found in texts.
#[derive(Clone, Debug, Default)]
pub struct Controls {
    texts: Arc<Vec<String>>,
    /// The same, each from its last letter to its first, sorted.
    reversed: Arc<Vec<String>>,
    /// Bytes of the longest one.
    longest: usize,
    finder: Option<AhoCorasick>,
}

impl Controls {
    /// The control tokens of a tokenizer, and the marks that this template writes.
    pub fn new(added: &AddedTokens, template: &str) -> Result<Self> {
        let written = added.markup.iter().filter(|text| template.contains(text.as_str()));
        let texts: BTreeSet<&String> = added.control.iter().chain(written).filter(|text| text.len() > 1).collect();
        let texts: Vec<String> = texts.into_iter().cloned().collect();
        let mut reversed: Vec<String> = texts.iter().map(|text| text.chars().rev().collect()).collect();
        reversed.sort_unstable();
        let longest = texts.iter().map(String::len).max().unwrap_or(0);
        let finder = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&texts);
        let finder = finder.map_err(|error| ModelError::Tokenizer(error.to_string()))?;
        Ok(Self { texts: texts.into(), reversed: reversed.into(), longest, finder: Some(finder) })
    }

    /// Whether a control token could begin at the end of this text.
    fn begins_at_end(&self, text: &str) -> bool {
        let tails = text.char_indices().rev().map(|(at, _)| &text[at..]);
        tails.take_while(|tail| tail.len() < self.longest).any(|tail| begins_one(&self.texts, tail))
    }

    /// Whether a control token could end at the beginning of this text.
    fn ends_at_start(&self, text: &str) -> bool {
        let mut head = String::new();
        text.chars().take(self.longest).any(|letter| {
            head.insert(0, letter);
            begins_one(&self.reversed, &head)
        })
    }
}

/// Whether one of the sorted `texts` begins with `start`, and is longer.
fn begins_one(texts: &[String], start: &str) -> bool {
    let at = texts.partition_point(|text| text.as_str() <= start);
    texts.get(at).is_some_and(|text| text.starts_with(start))
}

/// The marks of one conversation.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    controls: Controls,
    /// Private characters of the input, which are no marks.
    theirs: BTreeSet<char>,
    next: u32,
    /// By the mark before it: a control token's text, and the mark behind it.
    pairs: BTreeMap<char, (String, char)>,
}

impl Marks {
    /// No marks yet. `inputs` are all texts that are rendered together.
    pub fn new<'a>(controls: &Controls, template: &str, inputs: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut theirs: BTreeSet<char> = private(template).collect();
        inputs.into_iter().for_each(|input| collect(input, &mut theirs));
        Self { controls: controls.clone(), theirs, next: FIRST, pairs: BTreeMap::new() }
    }

    /// A mark that is not in use. There are 131,068; a conversation that spells more control tokens uses them again.
    fn fresh(&mut self) -> char {
        for _ in FIRST..=LAST {
            let at = self.next;
            self.next = if at == LAST { FIRST } else { at + 1 };
            if let Some(mark) = char::from_u32(at).filter(|mark| at & 0xFFFF < 0xFFFE && !self.theirs.contains(mark)) {
                return mark;
            }
        }
        '\u{fffd}'
    }

    /// Whether a character is a mark.
    pub fn is_mark(&self, letter: char) -> bool {
        u32::from(letter) >= FIRST && !self.theirs.contains(&letter)
    }

    /// Whether any text was marked.
    pub fn any(&self) -> bool {
        self.next != FIRST
    }

    /// A text without its marks.
    pub fn remove<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match text.contains(|letter| self.is_mark(letter)) {
            true => text.chars().filter(|letter| !self.is_mark(*letter)).collect::<String>().into(),
            false => text.into(),
        }
    }

    /// Removes letters at the ends of a text as Python's `strip` does. Marks stay, and hide no letter beside them.
    pub fn strip(&self, text: &str, drop: impl Fn(char) -> bool, (start, end): (bool, bool)) -> String {
        let dropped = |letter: &char| self.is_mark(*letter) || drop(*letter);
        let head: usize = if start { text.chars().take_while(dropped).map(char::len_utf8).sum() } else { 0 };
        let (head, rest) = text.split_at(head);
        let tail: usize = if end { rest.chars().rev().take_while(dropped).map(char::len_utf8).sum() } else { 0 };
        let (body, tail) = rest.split_at(rest.len() - tail);
        let marks = |text: &str| text.chars().filter(|letter| self.is_mark(*letter)).collect::<String>();
        marks(head) + body + &marks(tail)
    }

    /// Marks the messages of a conversation.
    pub fn mark_messages(&mut self, messages: &mut [Value]) {
        for message in messages {
            let assistant = message["role"] == "assistant";
            let Some(members) = message.as_object_mut() else {
                self.mark(message);
                continue;
            };
            for (name, member) in members.iter_mut().filter(|(name, _)| *name != "role") {
                let keep: &[&str] = if assistant && name == "content" { &THOUGHTS } else { &[] };
                self.mark_except(member, keep);
            }
        }
    }

    /// Marks every text of a value.
    pub fn mark(&mut self, value: &mut Value) {
        self.mark_except(value, &[]);
    }

    fn mark_except(&mut self, value: &mut Value, keep: &[&str]) {
        match value {
            Value::String(text) => {
                if let Some(marked) = self.marked(text, keep) {
                    *text = marked;
                }
            }
            Value::Array(list) => list.iter_mut().for_each(|entry| self.mark_except(entry, keep)),
            Value::Object(members) => {
                let old = std::mem::take(members);
                let mark = |(name, mut member): (String, Value)| {
                    self.mark_except(&mut member, keep);
                    (self.marked(&name, keep).unwrap_or(name), member)
                };
                *members = old.into_iter().map(mark).collect::<Map<String, Value>>();
            }
            _ => {}
        }
    }

    /// A text with marks; none if it needs none.
    fn marked(&mut self, text: &str, keep: &[&str]) -> Option<String> {
        let controls = self.controls.clone();
        let finder = controls.finder.as_ref()?;
        let mut out = String::new();
        let mut done = 0;
        if controls.ends_at_start(text) {
            out.push(self.fresh());
        }
        for found in finder.find_iter(text).filter(|found| !keep.contains(&&text[found.range()])) {
            let (spelled, before, behind) = (&text[found.range()], self.fresh(), self.fresh());
            out += &text[done..found.start()];
            out.push(before);
            out += spelled;
            out.push(behind);
            self.pairs.insert(before, (spelled.to_string(), behind));
            done = found.end();
        }
        let border = controls.begins_at_end(&text[done..]);
        if done == 0 && out.is_empty() && !border {
            return None;
        }
        out += &text[done..];
        if border {
            out.push(self.fresh());
        }
        Some(out)
    }
}

/// The private characters of a text.
fn private(text: &str) -> impl Iterator<Item = char> {
    text.chars().filter(|letter| u32::from(*letter) >= FIRST)
}

fn collect(value: &Value, theirs: &mut BTreeSet<char>) {
    match value {
        Value::String(text) => theirs.extend(private(text)),
        Value::Array(list) => list.iter().for_each(|entry| collect(entry, theirs)),
        Value::Object(members) => members.iter().for_each(|(name, member)| {
            theirs.extend(private(name));
            collect(member, theirs);
        }),
        _ => {}
    }
}

/// A rendered conversation.
#[derive(Clone, Debug)]
pub struct Prompt {
    /// The text, with a mark between any two letters of a control token that a message spells.
    marked: String,
    marks: Option<Arc<Marks>>,
}

impl Prompt {
    /// A rendered text with the marks of its messages.
    pub(crate) fn new(rendered: String, marks: Marks) -> Self {
        if !marks.any() {
            return Self { marked: rendered, marks: None };
        }
        let mut marked = String::with_capacity(rendered.len());
        let mut rest = rendered.as_str();
        while let Some(letter) = rest.chars().next() {
            marked.push(letter);
            rest = &rest[letter.len_utf8()..];
            let Some((text, behind)) = marks.pairs.get(&letter) else { continue };
            // A template may have taken the token out, or replaced it.
            let Some(after) = rest.strip_prefix(text.as_str()).filter(|after| after.starts_with(*behind)) else {
                continue;
            };
            text.chars().for_each(|c| marked.extend([c, letter]));
            rest = after;
        }
        Self { marked, marks: Some(marks.into()) }
    }

    /// A text without a template: all of it is text.
    pub(crate) fn of_text(text: &str, controls: &Controls) -> Self {
        let mut value = Value::from(text);
        let mut marks = Marks::new(controls, "", [&value]);
        marks.mark(&mut value);
        Self::new(value.as_str().unwrap_or_default().to_string(), marks)
    }

    /// The text.
    pub fn text(&self) -> Cow<'_, str> {
        match &self.marks {
            Some(marks) => marks.remove(&self.marked),
            None => self.marked.as_str().into(),
        }
    }

    /// The text up to `end`. None unless `end` is in the text exactly once.
    pub fn before(&self, end: &str) -> Option<Self> {
        let (before, after) = self.marked.split_once(end)?;
        (!after.contains(end)).then(|| Self { marked: before.to_string(), marks: self.marks.clone() })
    }

    /// The text with its marks.
    pub(crate) fn marked(&self) -> &str {
        &self.marked
    }

    pub(crate) fn marks(&self) -> Option<&Marks> {
        self.marks.as_deref()
    }

    /// Whether the template's own text ends with `end`, white space aside.
    pub fn ends_with(&self, end: &str) -> bool {
        self.marked.trim_end().ends_with(end)
    }
}
