//! Why the lifting refused TTIR, and where: the line of the TTIR and the line of the Python source.

use crate::build::TypeError;
use crate::ir::Type;
use thiserror::Error;

/// TTIR that the lifting does not take.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("TTIR line {ttir_line}{}: {reason}", python(.python_line))]
pub struct LiftError {
    /// 1-based line of the text given.
    pub ttir_line: u32,
    /// Line of the kernel's Python file, if the text's table of lines knows it.
    pub python_line: Option<u32>,
    /// Why that line was refused.
    pub reason: Reason,
}

fn python(line: &Option<u32>) -> String {
    line.map(|l| format!(" (Python line {l})")).unwrap_or_default()
}

/// What is wrong with the line.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum Reason {
    #[error("expected {expected}, found {found}")]
    Syntax { expected: String, found: String },
    #[error("the operation `{name}` is outside the subset that Vosti lifts{hint}")]
    Operation { name: String, hint: &'static str },
    #[error("the type `{name}` is outside the subset that Vosti lifts (i1, i32, i64, bf16, f32 and pointers to them)")]
    Type { name: String },
    #[error("the attribute `{name}` of `{op}` is not one that Vosti knows: it may change the meaning")]
    Attribute { op: String, name: String },
    #[error("{what}")]
    Unsupported { what: String },
    #[error("`%{name}` is used before it is defined")]
    Unbound { name: String },
    #[error("`%{name}` is defined twice")]
    Twice { name: String },
    #[error("the function `{name}` is called but not defined")]
    Function { name: String },
    #[error("declared as `{declared}`, but the operation gives `{inferred}`")]
    Declared { declared: Type, inferred: Type },
    #[error(transparent)]
    IllTyped(#[from] TypeError),
}
