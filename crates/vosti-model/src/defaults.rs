//! The sampling defaults of a model's makers: `generation_config.json` of a folder, `general.sampling.*` of a GGUF file.
//!
//! The engine checks their ranges, as it does for every request. Read next: `model.rs`, which holds the result.

use std::fmt;

use serde_json::Value;

use crate::config::Fields;
use crate::error::{ModelError, Result};
use crate::gguf::{self, Metadata};

/// The sampling parameters of a request that gives none. `Default` is OpenAI's: the model's own distribution.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingDefaults {
    /// 0 takes the most likely token.
    pub temperature: f32,
    /// 0 keeps all.
    pub top_k: u32,
    /// 1 keeps all.
    pub top_p: f32,
    /// 0 keeps all.
    pub min_p: f32,
    /// 1 changes nothing.
    pub repetition_penalty: f32,
    /// The file that the parameters are from; `None` if no file gives any.
    pub source: Option<&'static str>,
}

impl Default for SamplingDefaults {
    fn default() -> Self {
        Self { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, repetition_penalty: 1.0, source: None }
    }
}

impl SamplingDefaults {
    /// Reads a parsed `generation_config.json`. `do_sample` is ignored, as in vLLM: most files do not have it.
    pub(crate) fn from_json(json: &Value) -> Result<Self> {
        const FILE: &str = "generation_config.json";
        let fields = Fields::new(FILE, json)?;
        let whole = |key: &str| fields.f64_opt(key)?.map(|k| top_k(k).ok_or_else(|| bad_k(FILE, key, k))).transpose();
        Self::read(
            FILE,
            |key| fields.f64_opt(key),
            whole("top_k")?,
            &["temperature", "top_p", "min_p", "repetition_penalty"],
        )
    }

    /// Reads a GGUF file's metadata.
    pub(crate) fn from_gguf(metadata: &Metadata) -> Result<Self> {
        const FILE: &str = "the GGUF file";
        const K: &str = "general.sampling.top_k";
        let k = match metadata.get(K) {
            Some(gguf::Value::Int(k)) => Some(top_k(*k as f64).ok_or_else(|| bad_k(metadata.file(), K, *k as f64))?),
            Some(other) => return Err(metadata.bad(K, format!("is {other:?}, not a whole number"))),
            None => None,
        };
        let keys = ["temp", "top_p", "min_p", "penalty_repeat"];
        Self::read(FILE, |key| metadata.f64_opt(&format!("general.sampling.{key}")), k, &keys)
    }

    /// Reads temperature, top-p, min-p and the repetition penalty by their keys.
    fn read(
        file: &'static str,
        number: impl Fn(&str) -> Result<Option<f64>>,
        top_k: Option<u32>,
        [temperature, top_p, min_p, penalty]: &[&str; 4],
    ) -> Result<Self> {
        let numbers = [number(temperature)?, number(top_p)?, number(min_p)?, number(penalty)?];
        let [temperature, top_p, min_p, penalty] = numbers.map(|number| number.map(|number| number as f32));
        let said = numbers.iter().any(Option::is_some) || top_k.is_some();
        let openai = Self::default();
        Ok(Self {
            temperature: temperature.unwrap_or(openai.temperature),
            top_k: top_k.unwrap_or(openai.top_k),
            top_p: top_p.unwrap_or(openai.top_p),
            min_p: min_p.unwrap_or(openai.min_p),
            repetition_penalty: penalty.unwrap_or(openai.repetition_penalty),
            source: said.then_some(file),
        })
    }
}

/// `top_k` as a number; files write all tokens as 0 or -1.
fn top_k(k: f64) -> Option<u32> {
    match k {
        -1.0 => Some(0),
        k if k.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&k) => Some(k as u32),
        _ => None,
    }
}

fn bad_k(file: &str, key: &str, k: f64) -> ModelError {
    let why = format!("is {k}, neither a whole number from 0 to 2^32 nor -1");
    ModelError::Config { file: file.into(), key: key.into(), why }
}

/// For a banner: the temperature, and every parameter that differs from OpenAI's default.
impl fmt::Display for SamplingDefaults {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let openai = Self::default();
        write!(f, "temperature {}", self.temperature)?;
        if self.top_k != openai.top_k {
            write!(f, ", top_k {}", self.top_k)?;
        }
        if self.top_p != openai.top_p {
            write!(f, ", top_p {}", self.top_p)?;
        }
        if self.min_p != openai.min_p {
            write!(f, ", min_p {}", self.min_p)?;
        }
        if self.repetition_penalty != openai.repetition_penalty {
            write!(f, ", repetition_penalty {}", self.repetition_penalty)?;
        }
        write!(f, " ({})", self.source.unwrap_or("OpenAI's"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_generation_config_says_what_requests_get_and_silence_is_openais() {
        let qwen = json!({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "eos_token_id": [1, 2]});
        let read = SamplingDefaults::from_json(&qwen).unwrap();
        assert_eq!(read.to_string(), "temperature 0.6, top_k 20, top_p 0.95 (generation_config.json)");
        for nothing in [json!({}), json!({"eos_token_id": 2, "temperature": null})] {
            assert_eq!(SamplingDefaults::from_json(&nothing).unwrap(), SamplingDefaults::default());
        }
        assert_eq!(SamplingDefaults::from_json(&json!({"top_k": -1})).unwrap().top_k, 0);
        for wrong in [json!({"top_k": 1.5}), json!({"top_k": -2}), json!({"temperature": "hot"}), json!([])] {
            let error = SamplingDefaults::from_json(&wrong).unwrap_err().to_string();
            assert!(error.contains("generation_config.json"), "{error}");
        }
    }
}
