//! From updates to text: one answer's state, fed by both ways of giving it out, so that they cannot differ.
//!
//! Text is held back while it may be part of a character or the beginning of a stop string; a stop string and a stop
//! token never show. Every generated token shows in token ids and log-probabilities, those of a stop string too: they were
//! generated, and are counted in the usage.

use crate::receipt::Chain;
use crate::submit::Update;
use std::sync::Arc;
use vosti_engine::logprobs::Logprobs;
use vosti_engine::text::{TextStream, TokenText};
use vosti_engine::{FinishReason, Sampling, Token, Usage};

/// A generated token.
#[derive(Clone, Debug, PartialEq)]
pub struct Generated {
    pub token: Token,
    pub logprobs: Option<Logprobs>,
    /// Where its text begins, in characters of the answer's text.
    pub offset: usize,
}

/// What one update adds to an answer.
#[derive(Debug, Default)]
pub struct Delta {
    /// Place of the answer among all of the request: prompt by prompt, choice by choice.
    pub index: usize,
    pub text: String,
    pub token: Option<Generated>,
    pub end: Option<End>,
}

/// How an answer ended.
#[derive(Clone, Debug)]
pub struct End {
    pub reason: FinishReason,
    pub usage: Usage,
    pub chain: Option<Chain>,
}

/// Every answer of a request.
pub struct Answers {
    choices: usize,
    stop_tokens: Sampling,
    answers: Vec<Answer>,
    open: usize,
}

struct Answer {
    stream: TextStream,
    /// The same without stop strings, to know where a token begins.
    whole: TextStream,
    chars: usize,
    tokens: Vec<Token>,
    end: Option<End>,
}

impl Answers {
    pub fn new(prompts: usize, choices: u32, sampling: &Sampling, text: &Arc<dyn TokenText>) -> Self {
        let answer = |_| Answer {
            stream: TextStream::new(text.clone(), &sampling.stop_strings).with_tokens_min(sampling.tokens_min),
            whole: TextStream::new(text.clone(), &[]),
            chars: 0,
            tokens: Vec::new(),
            end: None,
        };
        let all = prompts * choices as usize;
        let answers: Vec<Answer> = (0..all).map(answer).collect();
        Self { choices: choices as usize, stop_tokens: sampling.clone(), answers, open: all }
    }

    /// Takes an update; `None` for one that is not about an answer.
    pub fn take(&mut self, update: Update) -> Option<Delta> {
        match update {
            Update::Token { prompt, choice, token, logprobs } => {
                let index = prompt * self.choices + choice as usize;
                let shown = self.stop_tokens.stop_tokens.binary_search(&token).is_err();
                let answer = &mut self.answers[index];
                let (text, offset) = answer.push(token, shown);
                let token = Some(Generated { token, logprobs, offset });
                Some(Delta { index, text, token, end: None })
            }
            Update::Finished { prompt, choice, reason, usage, chain } => {
                let index = prompt * self.choices + choice as usize;
                let answer = &mut self.answers[index];
                let end = End { reason, usage, chain };
                answer.end = Some(end.clone());
                self.open -= 1;
                Some(Delta { index, text: answer.stream.finish(), token: None, end: Some(end) })
            }
            Update::Prompt { .. } | Update::Broken => None,
        }
    }

    /// All have ended.
    pub fn done(&self) -> bool {
        self.open == 0
    }

    /// The tokens of one answer so far.
    pub fn tokens(&self, index: usize) -> &[Token] {
        &self.answers[index].tokens
    }

    /// The whole request's counts: prompts once each, answers all.
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
    /// The text that the token makes certain, and where its own begins.
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
