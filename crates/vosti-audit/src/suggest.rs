//! Drafts contracts from a file's text alone (`suggest.py`): its author reads and edits them. A draft is a guess, and a proof is of what
//! the contract says, so a wrong draft costs a verdict and proves nothing wrong.

use crate::error::{self, AuditError};
use crate::render;
use std::path::Path;

const SCRIPT: &str = include_str!("suggest.py");

/// Contracts of the functions of a file, of all if `functions` is empty, as TOML with a comment at each guess.
pub fn suggestion(python: &Path, path: &Path, functions: &[String]) -> Result<String, AuditError> {
    let shown = path.display().to_string();
    let source = error::text_of(path, "")?;
    let request = serde_json::json!({ "source": source, "functions": functions });
    let answer = render::script(python, path, SCRIPT, &request)?;
    let text = |name: &str| answer.get(name).and_then(serde_json::Value::as_str);
    match (text("contracts"), text("error")) {
        (Some(contracts), _) => Ok(contracts.to_string()),
        (_, Some(why)) => {
            let line = answer.get("line").and_then(serde_json::Value::as_u64).unwrap_or(1);
            Err(AuditError::Python { path: shown, line, why: why.to_string() })
        }
        _ => Err(AuditError::FrontEnd {
            python: python.display().to_string(),
            path: shown,
            why: "it gave no draft".into(),
        }),
    }
}
