//! From updates to text: the state of a request's answers. Streams and whole answers both use it, so they cannot differ.
//!
//! Text is held back while it may be part of a character or the beginning of a stop string. Stop strings and stop tokens are
//! never shown. Every generated token appears in token ids, log-probabilities and usage counts, including the tokens of a
//! stop string.

use crate::job::{Experts, Given, Job, Update};
use crate::receipt::Chain;
use std::sync::Arc;
use vosti_engine::logprobs::Logprobs;
use vosti_engine::text::{TextStream, TokenText};
use vosti_engine::{FinishReason, Sampling, Token, Usage};

/// A generated token.
#[derive(Clone, Debug, PartialEq)]
pub struct Generated {
    /// The token's id.
    pub token: Token,
    /// The token's log-probabilities, if the request asked for them.
    pub logprobs: Option<Logprobs>,
    /// Where its text begins, in characters of the answer's text.
    pub offset: usize,
}

/// The part that one update adds to an answer.
#[derive(Debug, Default)]
pub struct Delta {
    /// Number of the answer among all of the request, from 0: prompt by prompt, choice by choice.
    pub index: usize,
    /// Text that this update makes certain; it may be empty.
    pub text: String,
    /// The token that the text came from, if this update has one.
    pub token: Option<Generated>,
    /// Why it ended, in the last update.
    pub end: Option<End>,
    /// The client already has this part: it was computed again to continue after it, and is not sent.
    pub repeated: bool,
}

/// How an answer ended.
#[derive(Clone, Debug)]
pub struct End {
    /// A stop, or a limit.
    pub reason: FinishReason,
    /// Tokens of this answer.
    pub usage: Usage,
    /// The chain of digests, if the request asked for a receipt.
    pub chain: Option<Chain>,
    /// The experts of each position, if the request asked for them.
    pub experts: Option<Experts>,
}

/// Every answer of a request.
pub struct Answers {
    choices: usize,
    stop_tokens: Sampling,
    answers: Vec<Answer>,
    open: usize,
    /// How an answer differs from the client's part of it.
    departure: Option<String>,
}

struct Answer {
    stream: TextStream,
    /// A stream without stop strings, which counts the characters before a token.
    whole: TextStream,
    chars: usize,
    tokens: Vec<Token>,
    end: Option<End>,
    given: Given,
}

impl Answers {
    /// The answers of a job before its first update.
    pub fn new(job: &Job, text: &Arc<dyn TokenText>) -> Self {
        let (sampling, choices) = (&job.sampling, job.choices as usize);
        let answer = |index| Answer {
            stream: TextStream::new(text.clone(), &sampling.stop_strings)
                .with_tokens_min(sampling.tokens_min)
                .with_thoughts(sampling.thoughts.as_ref()),
            whole: TextStream::new(text.clone(), &[]),
            chars: 0,
            tokens: Vec::new(),
            end: None,
            given: job.given.get(index).cloned().unwrap_or_default(),
        };
        let all = job.answers();
        let answers: Vec<Answer> = (0..all).map(answer).collect();
        Self { choices, stop_tokens: sampling.clone(), answers, open: all, departure: None }
    }

    /// Takes an update; `None` for one that is not about an answer.
    pub fn take(&mut self, update: Update) -> Option<Delta> {
        match update {
            Update::Token { prompt, choice, token, logprobs } => {
                let index = self.index(prompt, choice);
                let shown = self.stop_tokens.stop_tokens.binary_search(&token).is_err();
                let answer = &mut self.answers[index];
                let position = answer.tokens.len();
                let given = answer.given.tokens.get(position).copied();
                if let Some(given) = given.filter(|given| *given != token) {
                    let why = format!("token {given} at position {position}, where this request gives {token}");
                    self.departure.get_or_insert(format!("choice {index} has {why}"));
                } else if given.is_none() && answer.given.finished {
                    let why = format!("ended after {position} tokens, where this request gives {token}");
                    self.departure.get_or_insert(format!("choice {index} is said to have {why}"));
                }
                let (text, offset) = answer.push(token, shown);
                let token = Some(Generated { token, logprobs, offset });
                Some(Delta { index, text, token, end: None, repeated: given.is_some() })
            }
            Update::Finished { prompt, choice, reason, usage, chain, experts } => {
                let index = self.index(prompt, choice);
                let answer = &mut self.answers[index];
                let end = End { reason, usage, chain, experts };
                answer.end = Some(End { experts: None, ..end.clone() });
                self.open -= 1;
                let position = answer.tokens.len();
                if position < answer.given.tokens.len() {
                    let why = format!("a token at position {position}, where this request's answer has ended");
                    self.departure.get_or_insert(format!("choice {index} has {why}"));
                }
                let repeated = answer.given.finished;
                Some(Delta { index, text: answer.stream.finish(), token: None, end: Some(end), repeated })
            }
            Update::Started { .. } | Update::Prompt { .. } | Update::Broken => None,
        }
    }

    /// The place of a prompt's choice among all answers.
    pub fn index(&self, prompt: usize, choice: u32) -> usize {
        prompt * self.choices + choice as usize
    }

    /// True while an answer has not yet repeated the client's part.
    pub fn repeating(&self) -> bool {
        self.answers.iter().any(|answer| {
            answer.end.is_none() && (answer.tokens.len() < answer.given.tokens.len() || answer.given.finished)
        })
    }

    /// How an answer differs from the client's part of it; none so far if it does not.
    pub fn departure(&self) -> Option<&str> {
        self.departure.as_deref()
    }

    /// True if all answers have ended.
    pub fn done(&self) -> bool {
        self.open == 0
    }

    /// The tokens of one answer so far.
    pub fn tokens(&self, index: usize) -> &[Token] {
        &self.answers[index].tokens
    }

    /// The token counts of a request that still runs: its prompts, and its answers so far. Cached tokens are known at an answer's end.
    pub fn usage_so_far(&self, job: &Job) -> Usage {
        let generated_tokens = self.answers.iter().map(|answer| answer.tokens.len()).sum();
        let prompt_tokens = job.prompts.iter().map(|prompt| prompt.len()).sum();
        Usage { prompt_tokens, generated_tokens, ..self.usage() }
    }

    /// The whole request's token counts: each prompt once, and all answers that have ended.
    pub fn usage(&self) -> Usage {
        let mut sum = Usage::default();
        for (index, answer) in self.answers.iter().enumerate() {
            let Some(end) = &answer.end else { continue };
            if index % self.choices == 0 {
                sum.prompt_tokens += end.usage.prompt_tokens;
                sum.cached_tokens += end.usage.cached_tokens;
            }
            sum.generated_tokens += end.usage.generated_tokens;
        }
        sum
    }
}

impl Answer {
    /// The text that the token makes certain, and the offset of the token's own text, in characters.
    fn push(&mut self, token: Token, shown: bool) -> (String, usize) {
        self.tokens.push(token);
        let offset = self.chars;
        if !shown {
            return (String::new(), offset);
        }
        self.chars += self.whole.push(token).chars().count();
        (self.stream.push(token), offset)
    }
}
