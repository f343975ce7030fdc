//! `vosti_resume`: continues an answer after the part that a client already has.
//!
//! The request runs as if it were new. The client's part goes to the engine as drafts, so that a step checks many tokens, and
//! passes through the same state (text, stop strings, grammar, calls, receipt) as in the answer that broke off; only it is
//! not sent again. So the rest is exactly what would have come, and tokens that the request cannot have given are detected.
//! Nothing here decides a token.
//! Read next: [`crate::answer`].

use super::ApiError;
use crate::job::Given;
use serde::Deserialize;
use utoipa::ToSchema;
use vosti_engine::Token;

/// What a client has of an answer.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Resume {
    /// `system_fingerprint` of what it has. Another server's is refused with 409.
    pub fingerprint: String,
    /// What it has of each answer; those that are not here begin anew.
    pub choices: Vec<ResumedChoice>,
}

/// What a client has of one answer.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResumedChoice {
    pub index: usize,
    /// Every token so far (`return_token_ids` has them in each chunk).
    pub token_ids: Vec<Token>,
    /// Its end came too. Default false.
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
    /// Of each of so many answers, which have at most so many tokens, for a deployment of this name and vocabulary.
    pub fn given(self, wanted: &str, vocab: u32, answers: usize, tokens_max: usize) -> Result<Vec<Given>, ResumeError> {
        if self.fingerprint != *wanted {
            return Err(ResumeError::Another { given: self.fingerprint, wanted: wanted.to_string() });
        }
        let wrong = |message: String| Err(ResumeError::Wrong(message));
        let mut given = vec![None; answers];
        for ResumedChoice { index, token_ids: tokens, finished } in self.choices {
            if index >= answers {
                return wrong(format!("choice {index} is to be resumed, and the request asks for {answers}"));
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
