//! Reasons why values could not be compared (a difference is a result, not an error).

use thiserror::Error;
use vosti_engine::EngineError;

/// Why a check could not be carried out.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum CheckError {
    #[error("the engine refused: {0}")]
    Engine(#[from] EngineError),
    #[error("{0}")]
    Subject(String),
    #[error("interrupted")]
    Interrupted,
    #[error("no relation is called {name:?}: the relations are {known}")]
    UnknownRelation { name: String, known: String },
    #[error("every case is longer than {limit} tokens: raise --max-prompt")]
    NothingLeft { limit: usize },
    #[error("{0:?} is not a server's address: give one like http://127.0.0.1:8000")]
    Url(String),
    #[error("{url}: {reason}")]
    Http { url: String, reason: String },
    #[error("{url} answered {status}: {says}")]
    Refused { url: String, status: u16, says: String },
}
