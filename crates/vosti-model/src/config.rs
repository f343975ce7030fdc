//! Reading configurations: a Hugging Face `config.json`, with one clear error for each way it can be wrong.
//!
//! Numbers are checked here for type and range of `u32`; dimensions against each other in `dimensions.rs`.

use serde_json::{Map, Value};

use crate::error::{ModelError, Result};

/// A JSON object with the name of its file, for messages.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    pub file: &'a str,
    object: &'a Map<String, Value>,
    /// Keys that count as absent.
    hidden: &'a [&'a str],
}

impl<'a> Fields<'a> {
    /// The fields of a JSON object; an error if `value` is none.
    pub fn new(file: &'a str, value: &'a Value) -> Result<Self> {
        match value {
            Value::Object(object) => Ok(Self { file, object, hidden: &[] }),
            _ => Err(ModelError::Damaged { file: file.into(), why: "its root is not an object".into() }),
        }
    }

    /// The same object without some of its keys.
    pub fn without(&self, hidden: &'a [&'a str]) -> Self {
        Self { hidden, ..*self }
    }

    /// A key's value; JSON's null counts as absent.
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.object.get(key).filter(|v| !v.is_null() && !self.hidden.contains(&key))
    }

    /// The object's keys.
    pub fn keys(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.object.keys().map(String::as_str)
    }

    /// The object under `key`, if there is one.
    pub fn object(&self, key: &str) -> Option<Fields<'a>> {
        let object = self.get(key)?.as_object()?;
        Some(Fields { file: self.file, object, hidden: &[] })
    }

    /// The error of a field, with the file's name.
    pub fn bad(&self, key: &str, why: impl Into<String>) -> ModelError {
        ModelError::Config { file: self.file.into(), key: key.into(), why: why.into() }
    }

    /// The integer under `key`; `None` if it is missing or null, an error if it is no `u32`.
    pub fn u32_opt(&self, key: &str) -> Result<Option<u32>> {
        self.get(key)
            .map(|v| {
                let fits = v.as_u64().and_then(|n| u32::try_from(n).ok());
                fits.ok_or_else(|| self.bad(key, format!("is {v}, not a whole number below 2^32")))
            })
            .transpose()
    }

    /// The integer under `key`; an error if it is missing.
    pub fn u32(&self, key: &str) -> Result<u32> {
        self.u32_opt(key)?.ok_or_else(|| self.bad(key, "is missing"))
    }

    /// The integer under `key`, or the default if it is missing.
    pub fn u32_or(&self, key: &str, default: u32) -> Result<u32> {
        Ok(self.u32_opt(key)?.unwrap_or(default))
    }

    /// The number under `key`; `None` if it is missing or null.
    pub fn f64_opt(&self, key: &str) -> Result<Option<f64>> {
        self.get(key)
            .map(|v| v.as_f64().filter(|f| f.is_finite()).ok_or_else(|| self.bad(key, format!("is {v}, not a number"))))
            .transpose()
    }

    /// The number under `key`, or the default if it is missing.
    pub fn f64_or(&self, key: &str, default: f64) -> Result<f64> {
        Ok(self.f64_opt(key)?.unwrap_or(default))
    }

    /// The number under `key`; an error if it is missing.
    pub fn f64(&self, key: &str) -> Result<f64> {
        self.f64_opt(key)?.ok_or_else(|| self.bad(key, "is missing"))
    }

    /// The flag under `key`, or the default if it is missing or null.
    pub fn bool_or(&self, key: &str, default: bool) -> Result<bool> {
        match self.get(key) {
            None => Ok(default),
            Some(Value::Bool(b)) => Ok(*b),
            Some(v) => Err(self.bad(key, format!("is {v}, neither true nor false"))),
        }
    }

    /// The text under `key`; `None` if it is missing or null.
    pub fn str_opt(&self, key: &str) -> Result<Option<&'a str>> {
        self.get(key).map(|v| v.as_str().ok_or_else(|| self.bad(key, format!("is {v}, not a string")))).transpose()
    }

    /// A list of numbers.
    pub fn floats(&self, key: &str) -> Result<Vec<f32>> {
        let value = self.get(key).ok_or_else(|| self.bad(key, "is missing"))?;
        let list = value.as_array().and_then(|a| a.iter().map(|v| Some(v.as_f64()? as f32)).collect());
        list.ok_or_else(|| self.bad(key, "is not a list of numbers"))
    }

    /// A list of whole numbers, if the key is there.
    pub fn u32s_opt(&self, key: &str) -> Result<Option<Vec<u32>>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = |v: &Value| v.as_u64().and_then(|n| u32::try_from(n).ok());
        let list = value.as_array().and_then(|a| a.iter().map(number).collect());
        list.map(Some).ok_or_else(|| self.bad(key, "is not a list of whole numbers"))
    }

    /// Whether a pair of bounds keeps no positive number out: it is missing, or is from 0 to Python's infinity.
    pub fn unbounded(&self, key: &str) -> bool {
        let infinite = |v: &Value| *v == "Infinity" || v["__float__"] == "Infinity";
        match self.get(key) {
            None => true,
            Some(pair) => {
                pair.as_array().is_some_and(|p| p.len() == 2 && p[0].as_f64() == Some(0.0) && infinite(&p[1]))
            }
        }
    }

    /// A list of strings, if the key is there.
    pub fn strings_opt(&self, key: &str) -> Result<Option<Vec<&'a str>>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let list = value.as_array().and_then(|a| a.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
        list.map(Some).ok_or_else(|| self.bad(key, "is not a list of strings"))
    }
}

/// Which layers are of a kind, by `layer_types`; the others have full attention. `None` without the list.
pub(crate) fn layers_of_kind(fields: &Fields, layers: usize, kind: &str) -> Result<Option<Vec<bool>>> {
    let Some(types) = fields.strings_opt("layer_types")? else { return Ok(None) };
    if types.len() != layers {
        return Err(fields.bad("layer_types", format!("lists {} layers of {layers}", types.len())));
    }
    let of_kind = |t: &&str| match *t {
        _ if *t == kind => Ok(true),
        "full_attention" => Ok(false),
        other => Err(fields.bad("layer_types", format!("names the unknown kind `{other}`"))),
    };
    types.iter().map(of_kind).collect::<Result<_>>().map(Some)
}

/// Which layers have a window, by `layer_types`.
pub(crate) fn sliding_types(fields: &Fields, layers: usize) -> Result<Option<Vec<bool>>> {
    layers_of_kind(fields, layers, "sliding_attention")
}

/// As [`sliding_types`]; without the list, every `sliding_window_pattern`-th layer has no window.
pub(crate) fn sliding_layers(fields: &Fields, layers: u32) -> Result<Vec<bool>> {
    if let Some(sliding) = sliding_types(fields, layers as usize)? {
        return Ok(sliding);
    }
    let pattern = fields.u32_or("sliding_window_pattern", 6)?;
    if pattern == 0 {
        return Err(fields.bad("sliding_window_pattern", "is 0"));
    }
    Ok((0..layers).map(|i| (i + 1) % pattern != 0).collect())
}

/// The number of layers of a configuration, checked before a list is allocated from it.
pub(crate) fn layer_count(fields: &Fields, key: &str) -> Result<u32> {
    let layers = fields.u32(key)?;
    if layers == 0 || layers > 1024 {
        return Err(fields.bad(key, format!("is {layers}, not between 1 and 1024")));
    }
    Ok(layers)
}
