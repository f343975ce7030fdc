//! A model's thoughts before its answer: `<think>`, thoughts, `</think>`.
//!
//! A chat template that writes these tags belongs to a reasoning model (Qwen 3, DeepSeek R1 and models made from them). The
//! reader separates thoughts from the answer as both come and, like the reader of calls, hands out each byte once. The tags,
//! and white space beside them, are dropped. gpt-oss's thoughts are in [`super::harmony`].

use super::{harmony, part};
use serde::{Deserialize, Serialize};
use vosti_engine::Token;
use vosti_engine::text::Thoughts;

/// Begins thoughts.
pub(super) const OPEN: &str = "<think>";
/// Ends thoughts.
pub const CLOSE: &str = "</think>";

/// How an answer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    /// The model may open its thoughts.
    May,
    /// The prompt has opened the thoughts.
    Begun,
    /// Harmony's tags separate thoughts from the answer.
    Harmony,
}

impl Thinking {
    /// How an answer begins, by a chat template and the end of a prompt that was rendered with it; none if the model has no
    /// thoughts, or if the prompt has closed them.
    pub fn of(template: &str, ends_with: impl Fn(&str) -> bool) -> Option<Self> {
        match () {
            () if harmony::writes(template) => Some(Self::Harmony),
            () if !template.contains(CLOSE) || ends_with(CLOSE) => None,
            () if ends_with(OPEN) => Some(Self::Begun),
            () => Some(Self::May),
        }
    }

    /// The thoughts in which stop strings sleep; `token` closes them, if the vocabulary has one for it.
    pub fn sleep(self, token: Option<Token>) -> Thoughts {
        let thoughts =
            |open: Option<&str>| Thoughts { open: open.map(str::to_string), close: CLOSE.to_string(), token };
        match self {
            Self::May => thoughts(Some(OPEN)),
            Self::Begun => thoughts(None),
            // Thoughts and calls may follow each other before the text.
            Self::Harmony => {
                Thoughts { close: harmony::FINAL.to_string(), token: None, ..thoughts(Some(harmony::ANALYSIS)) }
            }
        }
    }

    /// The grammar with thoughts before the answer, in llguidance's notation. `close` ends them, or without it a text. Its rules must
    /// not be called `thoughts` or `thoughtful_answer`.
    pub fn before(self, close: Option<Token>, grammar: &str) -> String {
        let answer = part(grammar, "thoughtful_answer");
        let rest = match close {
            Some(token) => format!("thoughts: /(?s:.*)/ <[{token}]>\n"),
            None => format!("thoughts[suffix=\"{CLOSE}\"]: /(?s:.*)/\n"),
        };
        let start = match self {
            Self::May => format!("start: (\"{OPEN}\" thoughts /\\n{{0,2}}/)? thoughtful_answer"),
            Self::Harmony => return harmony::before(grammar),
            Self::Begun => "start: thoughts /\\n{0,2}/ thoughtful_answer".to_string(),
        };
        format!("{start}\n{rest}{answer}")
    }
}

/// More of a thought, or of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// More of the thought.
    Thought(String),
    /// More of the answer.
    Answer(String),
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Thinker {
    state: State,
    /// Thoughts end with a token, so text that spells the closing tag is a part of them.
    by_token: bool,
}

#[derive(Clone, Debug)]
enum State {
    /// Before thoughts or answer are certain, with all the text so far.
    Before(String),
    /// In thoughts, with held text (white space, and the possible beginning of the closing tag); true once a thought was handed out.
    Inside(String, bool),
    /// After thoughts, where white space is dropped.
    Behind,
    Answer,
}

impl Thinker {
    /// True within thoughts.
    pub fn thinks(&self) -> bool {
        matches!(self.state, State::Inside(..))
    }

    /// `begun`: the prompt has opened the thoughts. `by_token`: a token closes them, and no text does.
    pub fn new(begun: bool, by_token: bool) -> Self {
        let state = if begun { State::Inside(String::new(), false) } else { State::Before(String::new()) };
        Self { state, by_token }
    }

    /// The parts that `text` makes certain. `closes`: it ends with the token that closes thoughts.
    pub fn push(&mut self, text: &str, closes: bool) -> Vec<Said> {
        let mut said = Vec::new();
        if self.by_token && closes && self.thinks() {
            said = self.push(text.strip_suffix(CLOSE).unwrap_or(text), false);
            self.state = State::Behind;
            return said;
        }
        let mut text = text.to_string();
        while !text.is_empty() {
            text = self.step(text, &mut said);
        }
        said
    }

    /// The rest at the answer's end.
    pub fn finish(&mut self) -> Vec<Said> {
        match std::mem::replace(&mut self.state, State::Answer) {
            State::Before(held) if !held.is_empty() => vec![Said::Answer(held)],
            State::Inside(held, _) if !held.trim_end().is_empty() => vec![Said::Thought(held.trim_end().to_string())],
            _ => Vec::new(),
        }
    }

    /// Reads text in the current state, and returns the text that belongs to the next state.
    fn step(&mut self, text: String, said: &mut Vec<Said>) -> String {
        let by_token = self.by_token;
        match &mut self.state {
            State::Before(held) => {
                held.push_str(&text);
                if let Some(rest) = held.trim_start().strip_prefix(OPEN) {
                    let rest = rest.to_string();
                    self.state = State::Inside(String::new(), false);
                    return rest;
                }
                if OPEN.starts_with(held.trim_start()) {
                    return String::new();
                }
                let rest = std::mem::take(held);
                self.state = State::Answer;
                rest
            }
            State::Inside(held, begun) => {
                held.push_str(&text);
                if !*begun {
                    *held = held.trim_start().to_string();
                }
                if let Some((thought, rest)) = held.split_once(CLOSE).filter(|_| !by_token) {
                    let (thought, rest) = (thought.trim_end().to_string(), rest.to_string());
                    if !thought.is_empty() {
                        said.push(Said::Thought(thought));
                    }
                    self.state = State::Behind;
                    return rest;
                }
                let tag = (1..CLOSE.len()).rev().find(|n| !by_token && held.ends_with(&CLOSE[..*n])).unwrap_or(0);
                let sure = held[..held.len() - tag].trim_end().len();
                if sure > 0 {
                    *begun = true;
                    said.push(Said::Thought(held.drain(..sure).collect()));
                }
                String::new()
            }
            State::Behind => {
                let rest = text.trim_start();
                if !rest.is_empty() {
                    self.state = State::Answer;
                }
                rest.to_string()
            }
            State::Answer => {
                said.push(Said::Answer(text));
                String::new()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;
    use vosti_engine::text::{TextStream, TokenText};

    fn told<'a>(thinking: Thinking, parts: impl IntoIterator<Item = &'a str>) -> (String, String) {
        let mut thinker = Thinker::new(thinking == Thinking::Begun, false);
        let mut said: Vec<Said> = parts.into_iter().flat_map(|part| thinker.push(part, false)).collect();
        said.extend(thinker.finish());
        let (mut thoughts, mut answer) = (String::new(), String::new());
        for said in said {
            match said {
                Said::Thought(text) => thoughts += &text,
                Said::Answer(text) => answer += &text,
            }
        }
        (thoughts, answer)
    }

    proptest! {
        #[test]
        fn a_cut_answer_is_a_beginning_of_the_whole_one(
            begun in any::<bool>(),
            thoughts in "([a-zé <]|</thin|\n){0,12}",
            answer in "([a-zé <]|<think>|</think>|\n){0,12}",
            part in 1usize..7,
        ) {
            let (thoughts, answer) = (thoughts.trim(), answer.trim_start());
            let (thinking, open) = if begun { (Thinking::Begun, "\n") } else { (Thinking::May, "\n<think>\n") };
            let text = format!("{open}{thoughts}\n</think>\n\n{answer}");
            let letters: Vec<char> = text.chars().collect();
            for cut in 0..=letters.len() {
                let given: String = letters[..cut].iter().collect();
                let parts: Vec<String> = letters[..cut].chunks(part).map(|part| part.iter().collect()).collect();
                let read = told(thinking, [given.as_str()]);
                prop_assert_eq!(&told(thinking, parts.iter().map(String::as_str)), &read);
                let tag = read.0.strip_prefix(thoughts).map(str::trim_start).unwrap_or("");
                prop_assert!(thoughts.starts_with(&read.0) || "</think>".starts_with(tag), "{:?}", read);
                prop_assert!(answer.starts_with(&read.1) || open.starts_with(&read.1), "{:?}", read);
            }
            prop_assert_eq!(told(thinking, [text.as_str()]), (thoughts.to_string(), answer.to_string()));
        }
    }

    #[test]
    fn a_thought_that_spells_its_end_goes_on_to_the_token() {
        let mut thinker = Thinker::new(true, true);
        let (parts, mut thoughts) = (["a </th", "ink> b ", "</think>", " c\n"], String::new());
        for said in parts.into_iter().flat_map(|part| thinker.push(part, false)) {
            let Said::Thought(text) = said else { panic!("{said:?}") };
            thoughts += &text;
        }
        assert_eq!(thinker.push("</think>", true), []);
        assert_eq!(thoughts, "a </think> b </think> c");
        assert_eq!(thinker.push("\n\nyes </think>", true), [Said::Answer("yes </think>".into())]);
    }

    #[test]
    fn a_stop_string_counts_behind_the_thoughts_of_each_kind() {
        let text: Arc<dyn TokenText> = Arc::new(|token: u32, out: &mut Vec<u8>| out.push(token as u8));
        let harmony = "<|channel|>analysis<|message|>Question?<|end|><|start|>assistant<|channel|>final<|message|>A ";
        for (thinking, before) in [
            (Thinking::May, "<think>Question?</think>A "),
            (Thinking::Begun, "Question?</think>A "),
            (Thinking::Harmony, harmony),
            (Thinking::Harmony, "<|channel|>final<|message|>A "),
            (Thinking::Harmony, "A "),
        ] {
            let mut stream =
                TextStream::new(text.clone(), &["Question".to_string()]).with_thoughts(Some(&thinking.sleep(None)));
            let shown: String = format!("{before}Question").bytes().map(|byte| stream.push(byte.into())).collect();
            assert_eq!(shown, before, "{thinking:?}");
        }
    }

    #[test]
    fn an_answer_without_thoughts_is_an_answer() {
        for text in ["", "Hi.", " <thin", "a <think> b </think> c"] {
            assert_eq!(told(Thinking::May, [text]), (String::new(), text.to_string()), "{text:?}");
        }
    }

    #[test]
    fn the_template_and_the_prompt_say_whether_the_model_thinks() {
        let qwen = "... '</think>' ...";
        let of = |template, prompt: &str| Thinking::of(template, |end| prompt.ends_with(end));
        assert_eq!(of(qwen, "<|im_start|>assistant"), Some(Thinking::May));
        assert_eq!(of(qwen, "assistant\n<think>"), Some(Thinking::Begun));
        assert_eq!(of(qwen, "assistant\n<think>\n\n</think>"), None);
        assert_eq!(of("plain", "assistant"), None);
    }
}
