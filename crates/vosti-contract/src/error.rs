//! Errors of a contract's text.

use thiserror::Error;

/// An error of this crate.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum ContractError {
    #[error("`{text}`: {why}")]
    Expression { text: String, why: String },
    #[error("the contract of kernel `{kernel}`: {why}")]
    Contract { kernel: String, why: String },
}
