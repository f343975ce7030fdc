//! Tokens to text, one at a time: UTF-8 across token boundaries, and stop strings across both.
//!
//! This module reads nothing but the tokens so far, so that a stop string ends a sequence at the same token whatever else
//! runs. The sampler's state holds a `StopMatcher`, which ends the sequence; a front end holds a `TextStream`, which gives text.

use crate::Token;
use std::collections::VecDeque;
use std::sync::Arc;

/// Gives the bytes that a token stands for. Concatenated, they are the text of a continuation.
pub trait TokenText: Send + Sync {
    /// Appends the bytes of `token` to `out`; control tokens add nothing.
    fn append_bytes(&self, token: Token, out: &mut Vec<u8>);
}

/// A closure is a `TokenText`: `|token, out| tokenizer.append_bytes(token, out)`.
impl<F: Fn(Token, &mut Vec<u8>) + Send + Sync> TokenText for F {
    fn append_bytes(&self, token: Token, out: &mut Vec<u8>) {
        self(token, out);
    }
}

/// Thoughts at the beginning of an answer, in which stop strings sleep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thoughts {
    /// What opens them, after white space; none: the prompt has opened them.
    pub open: Option<String>,
    /// What closes them.
    pub close: String,
    /// The token of `close`, in a vocabulary that has one: then text that spells it closes nothing.
    pub token: Option<Token>,
}

/// Where an answer's thoughts are, by its bytes so far.
#[derive(Clone)]
enum Place {
    /// Thoughts may begin; the bytes so far.
    Before(Vec<u8>),
    /// In thoughts; the last bytes, which may begin what closes them.
    Inside(Vec<u8>),
    Behind,
}

/// Follows thoughts.
#[derive(Clone)]
struct Sleep {
    thoughts: Option<Thoughts>,
    place: Place,
}

impl Sleep {
    fn new(thoughts: Option<&Thoughts>) -> Self {
        let place = match thoughts {
            None => Place::Behind,
            Some(Thoughts { open: None, .. }) => Place::Inside(Vec::new()),
            Some(_) => Place::Before(Vec::new()),
        };
        Self { thoughts: thoughts.cloned(), place }
    }

    /// Takes one token and its bytes: gives how many of them belong to thoughts and their marks.
    fn push(&mut self, token: Token, bytes: &[u8]) -> usize {
        let Some(Thoughts { open, close, token: closing }) = &self.thoughts else { return 0 };
        let mut taken = 0;
        loop {
            match &mut self.place {
                Place::Behind => return taken,
                Place::Before(seen) => {
                    seen.extend(bytes);
                    let (open, text) = (open.as_deref().unwrap_or_default().as_bytes(), seen.trim_ascii_start());
                    if text.starts_with(open) {
                        taken = bytes.len() - (text.len() - open.len()).min(bytes.len());
                        self.place = Place::Inside(Vec::new());
                    } else if open.starts_with(text) {
                        return taken;
                    } else {
                        self.place = Place::Behind;
                    }
                }
                Place::Inside(_) if closing.is_some() => {
                    if *closing == Some(token) {
                        self.place = Place::Behind;
                    }
                    return bytes.len();
                }
                Place::Inside(tail) => {
                    let (rest, before) = (&bytes[taken..], tail.len());
                    tail.extend(rest);
                    match tail.windows(close.len()).position(|window| window == close.as_bytes()) {
                        Some(at) => {
                            taken += at + close.len() - before;
                            self.place = Place::Behind;
                        }
                        None => {
                            let kept = tail.len().min(close.len().saturating_sub(1));
                            tail.drain(..tail.len() - kept);
                            return bytes.len();
                        }
                    }
                }
            }
        }
    }
}

/// Finds the stop string that a stream of tokens completes first.
#[derive(Clone)]
pub struct StopMatcher {
    text: Arc<dyn TokenText>,
    stops: Arc<[Vec<u8>]>,
    /// The last bytes seen, as many as the longest stop string has.
    tail: VecDeque<u8>,
    scratch: Vec<u8>,
    /// Tokens that no stop string ends yet.
    early: usize,
    sleep: Sleep,
}

impl StopMatcher {
    /// `stops` must hold no empty string; `Sampling::new` checks that.
    pub fn new(text: Arc<dyn TokenText>, stops: &[String]) -> Self {
        let stops = stops.iter().map(|s| s.as_bytes().to_vec()).collect();
        Self { text, stops, tail: VecDeque::new(), scratch: Vec::new(), early: 0, sleep: Sleep::new(None) }
    }

    /// The same for an answer that may begin with thoughts: nothing in them completes or begins a stop string.
    pub fn with_thoughts(self, thoughts: Option<&Thoughts>) -> Self {
        Self { sleep: Sleep::new(thoughts), ..self }
    }

    /// The same for an answer of at least so many tokens: stop strings that are complete before do not count.
    pub fn with_tokens_min(self, tokens_min: usize) -> Self {
        Self { early: tokens_min.saturating_sub(1), ..self }
    }

    /// Takes one token; gives the index of a stop string that its bytes complete, if any: the one whose end comes
    /// first, and of those the first in the list.
    pub fn push(&mut self, token: Token) -> Option<usize> {
        let mut bytes = std::mem::take(&mut self.scratch);
        bytes.clear();
        self.text.append_bytes(token, &mut bytes);
        let early = self.early > 0;
        self.early = self.early.saturating_sub(1);
        let asleep = self.sleep.push(token, &bytes);
        if asleep > 0 {
            self.tail.clear();
        }
        // Every byte enters the tail, also after a match: an early match does not count, and a later one may overlap it.
        let found = bytes[asleep..].iter().fold(None, |found, byte| {
            let here = self.push_byte(*byte);
            found.or(here)
        });
        self.scratch = bytes;
        found.filter(|_| !early)
    }

    fn push_byte(&mut self, byte: u8) -> Option<usize> {
        let longest = self.stops.iter().map(Vec::len).max().unwrap_or(0);
        self.tail.push_back(byte);
        if self.tail.len() > longest {
            self.tail.pop_front();
        }
        self.stops.iter().position(|stop| {
            stop.len() <= self.tail.len() && self.tail.iter().rev().zip(stop.iter().rev()).all(|(a, b)| a == b)
        })
    }
}

/// Incremental detokenisation for a reader: gives text as soon as it is certain, holds back an incomplete UTF-8
/// sequence and anything that may be the beginning of a stop string, and ends before the stop string.
pub struct TextStream {
    text: Arc<dyn TokenText>,
    stops: Vec<Vec<u8>>,
    /// Bytes not given out yet.
    pending: Vec<u8>,
    stopped: bool,
    /// Tokens that no stop string ends yet.
    early: usize,
    sleep: Sleep,
    /// Bytes of `pending` that belong to thoughts.
    asleep: usize,
}

impl TextStream {
    /// Empty stop strings are ignored.
    pub fn new(text: Arc<dyn TokenText>, stops: &[String]) -> Self {
        let stops = stops.iter().filter(|s| !s.is_empty());
        Self {
            text,
            stops: stops.map(|s| s.as_bytes().to_vec()).collect(),
            pending: Vec::new(),
            stopped: false,
            early: 0,
            sleep: Sleep::new(None),
            asleep: 0,
        }
    }

    /// The same for an answer that may begin with thoughts, as in [`StopMatcher`].
    pub fn with_thoughts(self, thoughts: Option<&Thoughts>) -> Self {
        Self { sleep: Sleep::new(thoughts), ..self }
    }

    /// The same for an answer of at least so many tokens: stop strings that are complete before do not count.
    pub fn with_tokens_min(self, tokens_min: usize) -> Self {
        Self { early: tokens_min.saturating_sub(1), ..self }
    }

    /// Whether a stop string was seen; no text comes after it.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// The text that `token` makes certain, often empty.
    pub fn push(&mut self, token: Token) -> String {
        if self.stopped {
            return String::new();
        }
        let from = self.pending.len();
        self.text.append_bytes(token, &mut self.pending);
        let asleep = self.sleep.push(token, &self.pending[from..]);
        if asleep > 0 {
            self.asleep = from + asleep;
        }
        let from = from.max(self.asleep);
        let early = self.early > 0;
        self.early = self.early.saturating_sub(1);
        if let Some(start) = self.find_stop(from).filter(|_| !early) {
            self.pending.truncate(start);
            self.stopped = true;
            return self.finish();
        }
        let held = self.held_for_stop();
        let certain = self.pending.len() - held;
        let whole = complete_utf8(&self.pending[..certain]);
        self.asleep = self.asleep.saturating_sub(whole);
        lossy(self.pending.drain(..whole))
    }

    /// The rest of the text, with replacement characters for bytes that are not UTF-8.
    pub fn finish(&mut self) -> String {
        lossy(self.pending.drain(..))
    }

    /// Start of the stop string that ends first at or after byte `from`.
    fn find_stop(&self, from: usize) -> Option<usize> {
        (from + 1..=self.pending.len()).find_map(|end| {
            let ending = |stop: &&Vec<u8>| self.pending[self.asleep..end].ends_with(stop);
            // Of several, the first in the list, as in `StopMatcher`.
            self.stops.iter().find(ending).map(|stop| end - stop.len())
        })
    }

    /// Length of the longest end of `pending` that begins a stop string.
    fn held_for_stop(&self) -> usize {
        let awake = &self.pending[self.asleep.min(self.pending.len())..];
        let begins = |stop: &Vec<u8>| {
            let longest = awake.len().min(stop.len() - 1);
            (1..=longest).rev().find(|&n| awake.ends_with(&stop[..n])).unwrap_or(0)
        };
        self.stops.iter().map(begins).max().unwrap_or(0)
    }
}

fn lossy(bytes: impl Iterator<Item = u8>) -> String {
    let bytes: Vec<u8> = bytes.collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The number of leading bytes whose text is certain: all but an incomplete UTF-8 sequence at the end.
fn complete_utf8(bytes: &[u8]) -> usize {
    let mut at = 0;
    loop {
        match std::str::from_utf8(&bytes[at..]) {
            Ok(_) => return bytes.len(),
            Err(error) => match error.error_len() {
                // Never UTF-8, whatever follows: it becomes a replacement character.
                Some(wrong) => at += error.valid_up_to() + wrong,
                None => return at + error.valid_up_to(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Token t is the t-th piece.
    struct Pieces(Vec<Vec<u8>>);

    impl TokenText for Pieces {
        fn append_bytes(&self, token: Token, out: &mut Vec<u8>) {
            out.extend_from_slice(&self.0[token as usize]);
        }
    }

    fn pieces(of: &[&[u8]]) -> Arc<dyn TokenText> {
        Arc::new(Pieces(of.iter().map(|p| p.to_vec()).collect()))
    }

    fn stream(of: &[&[u8]], stops: &[&str]) -> (Vec<String>, bool) {
        let stops: Vec<String> = stops.iter().map(|s| s.to_string()).collect();
        let mut stream = TextStream::new(pieces(of), &stops);
        let mut shown: Vec<String> = (0..of.len() as u32).map(|t| stream.push(t)).collect();
        shown.push(stream.finish());
        (shown, stream.stopped())
    }

    fn matched(of: &[&[u8]], stops: &[&str]) -> Option<(u32, usize)> {
        let stops: Vec<String> = stops.iter().map(|s| s.to_string()).collect();
        let mut matcher = StopMatcher::new(pieces(of), &stops);
        (0..of.len() as u32).find_map(|t| matcher.push(t).map(|stop| (t, stop)))
    }

    #[test]
    fn a_character_split_over_tokens_appears_whole() {
        let (shown, _) = stream(&[b"a\xc3", b"\xa9b"], &[]);
        assert_eq!(shown, ["a", "éb", ""]);
    }

    #[test]
    fn bytes_that_never_become_utf8_are_replaced_not_lost() {
        let (shown, _) = stream(&[b"a\xff", b"b\xc3"], &[]);
        assert_eq!(shown, ["a\u{fffd}", "b", "\u{fffd}"]);
    }

    #[test]
    fn text_that_may_begin_a_stop_string_is_held_back_until_it_cannot() {
        let (shown, stopped) = stream(&[b"xST", b"Ay", b"z"], &["STOP"]);
        assert_eq!(shown, ["x", "STAy", "z", ""]);
        assert!(!stopped);
    }

    #[test]
    fn text_ends_before_a_stop_string_over_three_tokens() {
        let (shown, stopped) = stream(&[b"ab S", b"TO", b"P more"], &["STOP"]);
        assert_eq!(shown.concat(), "ab ");
        assert!(stopped);
    }

    #[test]
    fn the_matcher_and_the_stream_stop_at_the_same_token() {
        let of: &[&[u8]] = &[b"aa", b"ab", b"ba", b"bb", b"\n\n"];
        for stops in [&["abba"][..], &["bab", "ba"], &["\n\n"], &["aaa", "\n"], &["zz"]] {
            let mut shown = TextStream::new(pieces(of), &stops.iter().map(|s| s.to_string()).collect::<Vec<_>>());
            let at = (0..of.len() as u32).find(|&t| {
                shown.push(t);
                shown.stopped()
            });
            assert_eq!(at, matched(of, stops).map(|(t, _)| t), "{stops:?}");
        }
    }

    #[test]
    fn a_stop_string_that_is_complete_before_the_least_length_does_not_count() {
        let of: &[&[u8]] = &[b"aba", b"ab", b"ba", b"abx", b"ab"];
        let stops = ["ab".to_string()];
        for (tokens_min, at, text) in [(0, 0, ""), (1, 0, ""), (2, 1, "aba"), (3, 3, "abaabba"), (5, 4, "abaabbaabx")] {
            let mut matcher = StopMatcher::new(pieces(of), &stops).with_tokens_min(tokens_min);
            assert_eq!((0..of.len() as u32).find(|t| matcher.push(*t).is_some()), Some(at), "{tokens_min}");
            let mut stream = TextStream::new(pieces(of), &stops).with_tokens_min(tokens_min);
            let shown: String = (0..of.len() as u32).map(|t| stream.push(t)).collect();
            assert_eq!((shown.as_str(), stream.stopped()), (text, true), "{tokens_min}");
        }
    }

    #[test]
    fn stop_strings_sleep_in_thoughts_and_both_readers_agree() {
        let bytes: Arc<dyn TokenText> = Arc::new(|token: Token, out: &mut Vec<u8>| out.push(token as u8));
        let stops = ["Q:".to_string(), "k>".to_string()];
        let thoughts =
            |open: Option<&str>| Thoughts { open: open.map(str::to_string), close: "</think>".into(), token: None };
        for (thoughts, text, shown) in [
            (None, "a Q: b", "a "),
            (Some(thoughts(Some("<think>"))), "\n<think>Q: k> </think>c Q: b", "\n<think>Q: k> </think>c "),
            (Some(thoughts(Some("<think>"))), "a Q: </think>", "a "),
            (Some(thoughts(None)), "Q: </thin</think>Q: b", "Q: </thin</think>"),
            // What the thought ends with does not begin a stop string.
            (Some(thoughts(None)), "Q</think>: d", "Q</think>: d"),
            (Some(thoughts(None)), "Q: never closed k>", "Q: never closed k>"),
            // The token closes, and not the text.
            (Some(Thoughts { token: Some('~'.into()), ..thoughts(None) }), "Q: </think>Q: ~ k> d", "Q: </think>Q: ~ "),
        ] {
            let mut matcher = StopMatcher::new(bytes.clone(), &stops).with_thoughts(thoughts.as_ref());
            let mut stream = TextStream::new(bytes.clone(), &stops).with_thoughts(thoughts.as_ref());
            let (mut given, mut ended) = (String::new(), false);
            for byte in text.bytes() {
                given += &stream.push(byte.into());
                ended = matcher.push(byte.into()).is_some();
                assert_eq!(ended, stream.stopped(), "{text:?}");
                if ended {
                    break;
                }
            }
            given += &stream.finish();
            assert_eq!((given.as_str(), ended), (shown, shown != text), "{text:?}");
        }
    }
}
