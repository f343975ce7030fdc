//! The sampling numbers of a model's makers, as its files have them: `generation_config.json` of a folder, `general.sampling.*` of a
//! GGUF file. No number is named here: the engine's table names and checks them (`vosti_engine::numbers`). Read next: `model.rs`.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::error::{ModelError, Result};
use crate::gguf::{self, Metadata};

/// The keys of a GGUF file that have sampling numbers begin with this.
const PREFIX: &str = "general.sampling.";

/// What a model's files say about sampling.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationConfig {
    /// The file, for messages; none if there is no such file.
    file: Option<&'static str>,
    /// By the file's own keys, those of a GGUF file without their prefix.
    values: BTreeMap<String, Value>,
}

impl GenerationConfig {
    /// Takes a parsed `generation_config.json`. `do_sample` is ignored, as in vLLM: most files do not have it.
    pub(crate) fn from_json(json: &Value) -> Result<Self> {
        const FILE: &str = "generation_config.json";
        let why = || ModelError::Config { file: FILE.into(), key: String::new(), why: "is not an object".into() };
        let values = json.as_object().ok_or_else(why)?.clone().into_iter().collect();
        Ok(Self { file: Some(FILE), values })
    }

    /// Takes a GGUF file's metadata.
    pub(crate) fn from_gguf(metadata: &Metadata) -> Self {
        let value = |value: &gguf::Value| match value {
            gguf::Value::Int(number) => Value::from(*number as f64),
            gguf::Value::Float(number) => Value::from(*number),
            other => Value::from(format!("{other:?}")),
        };
        let sampling =
            metadata.iter().filter_map(|(key, given)| Some((key.strip_prefix(PREFIX)?.into(), value(given))));
        Self { file: Some("the GGUF file"), values: sampling.collect() }
    }

    /// The file, for messages.
    pub fn file(&self) -> Option<&'static str> {
        self.file
    }

    /// Whether the file is GGUF's, with its own keys.
    pub fn is_gguf(&self) -> bool {
        self.file == Some("the GGUF file")
    }

    /// The number of a key; none if the file does not have it or has null. An error if it is no number.
    pub fn number(&self, key: &str) -> Result<Option<f64>> {
        match self.values.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value.as_f64().map(Some).ok_or_else(|| self.wrong(key, format!("is {value}, not a number"))),
        }
    }

    /// The error of a key.
    pub fn wrong(&self, key: &str, why: String) -> ModelError {
        let prefix = if self.is_gguf() { PREFIX } else { "" };
        ModelError::Config { file: self.file.unwrap_or_default().into(), key: format!("{prefix}{key}"), why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_file_says_its_numbers_and_what_is_no_number_is_an_error_with_its_key() {
        let qwen = json!({"do_sample": true, "temperature": 0.6, "top_k": 20, "eos_token_id": [1, 2], "top_p": null});
        let read = GenerationConfig::from_json(&qwen).unwrap();
        assert_eq!(read.number("temperature").unwrap(), Some(0.6));
        assert_eq!((read.number("top_p").unwrap(), read.number("none").unwrap()), (None, None));
        for (key, file) in [("do_sample", &read), ("eos_token_id", &read)] {
            let error = file.number(key).unwrap_err().to_string();
            assert!(error.contains("generation_config.json") && error.contains(key), "{error}");
        }
        assert!(GenerationConfig::from_json(&json!([])).is_err());
    }
}
