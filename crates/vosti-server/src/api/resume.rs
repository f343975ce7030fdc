//! `vosti_resume`: continues an answer after the part that a client already has.
//!
//! The request runs as if it were new. The client's part goes to the engine as drafts, so that a step checks many tokens. It
//! passes through the same state (text, stop strings, grammar, calls, receipt) as in the interrupted answer, and is not sent
//! again. So the rest equals the rest of the interrupted answer, and tokens that the request cannot have given are detected.
//! Nothing here decides a token.
//! Read next: [`crate::answer`].

use super::ApiError;
use crate::job::Given;
use serde::Deserialize;
use utoipa::ToSchema;
use vosti_engine::Token;

/// The part of a response that a client already has.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Resume {
    /// The response's `system_fingerprint`. A fingerprint that is not this server's is refused with 409.
    pub fingerprint: String,
    /// The client's part of each answer; an answer that is not listed begins anew.
    pub choices: Vec<ResumedChoice>,
}

/// The part of one answer that a client already has.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResumedChoice {
    pub index: usize,
    /// Every token so far (`return_token_ids` has them in each chunk).
    pub token_ids: Vec<Token>,
    /// The client has the answer's end too. Default false.
    pub finished: Option<bool>,
}

/// Why an answer cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResumeError {
    #[error("the answer to resume has the fingerprint {given}, and this deployment has {wanted}")]
    Another { given: String, wanted: String },
    #[error("{0}")]
    Wrong(String),
}

impl From<ResumeError> for ApiError {
    fn from(error: ResumeError) -> Self {
        let message = error.to_string();
        match error {
            ResumeError::Another { .. } => ApiError::conflict("vosti_resume", message),
            ResumeError::Wrong(_) => ApiError::field("vosti_resume", message),
        }
    }
}

impl Resume {
    /// The client's part of each of `answers` answers, checked. An error if the fingerprint is not `wanted`, a choice is out of
    /// range or named twice, a token is not below `vocab`, or an answer has more than `tokens_max` tokens.
    pub fn given(self, wanted: &str, vocab: u32, answers: usize, tokens_max: usize) -> Result<Vec<Given>, ResumeError> {
        if self.fingerprint != *wanted {
            return Err(ResumeError::Another { given: self.fingerprint, wanted: wanted.to_string() });
        }
        let wrong = |message: String| Err(ResumeError::Wrong(message));
        let mut given = vec![None; answers];
        for ResumedChoice { index, token_ids: tokens, finished } in self.choices {
            if index >= answers {
                return wrong(format!(
                    "choice {index} is to be resumed, and the request asks for {answers}: choices are numbered from 0"
                ));
            }
            if let Some(position) = tokens.iter().position(|token| *token >= vocab) {
                let token = tokens[position];
                return wrong(format!(
                    "choice {index} has token {token} at position {position}, and the vocabulary ends before {vocab}"
                ));
            }
            if tokens.len() > tokens_max {
                return wrong(format!(
                    "choice {index} has a token at position {tokens_max}, where this request's answer has ended"
                ));
            }
            let finished = finished.unwrap_or(false);
            if given[index].replace(Given { tokens, finished }).is_some() {
                return wrong(format!("choice {index} is to be resumed twice"));
            }
        }
        Ok(given.into_iter().map(Option::unwrap_or_default).collect())
    }
}
