//! From `--model` and the other engine flags to an engine that runs, and the banner that says what was opened.

use super::arguments::{Device, Engine as Flags, Hardware};
use super::bar::{Bar, Unit};
use super::interrupt;
use super::output::counted;
use super::prepare;
use super::values::{Activations, Products, Weights};
use crate::deployment::{Compile, DeployError, DeployOptions, Deployment, DeviceConfig, Storage};
use crate::device::{AnyDevice, On, own_gpu};
use crate::model_source::ModelSource;
use crate::pool::{self, Demand, Origin};
use anyhow::{Context, Result};
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use vosti_core::{Device as _, PAGE};
use vosti_engine::{Engine, Policy, Speculation};
use vosti_model::Arithmetic;
use vosti_wiring::pool_bytes;

/// The model's file or folder; a name of the catalogue or of a hub is fetched first if it is not here.
pub fn find(name: &str) -> Result<PathBuf> {
    Ok(crate::fetch::find(name, &Bar::new(Unit::Bytes))?)
}

/// The deployment's options that the flags give.
pub fn options(hardware: &Hardware) -> Result<DeployOptions> {
    let on = match hardware.device {
        Device::Cpu => On::Cpu,
        Device::Cuda(index) => On::Gpu(own_gpu, index),
    };
    let storage = match hardware.weights {
        Weights::AsTheyCome => Storage::AsTheyCome,
        Weights::Expanded => Storage::Expanded,
    };
    let Hardware { threads, context, bundle, isa, .. } = hardware.clone();
    let arithmetic = match (hardware.arithmetic, hardware.activations) {
        (Some(Products::Bf16), Some(_)) => {
            anyhow::bail!("--activations is for products in integers, and --arithmetic bf16 has none: give one of them")
        }
        (Some(Products::Bf16), None) => Some(Arithmetic::Bf16),
        (Some(Products::Integers), _) | (_, Some(_)) if hardware.device != Device::Cpu => {
            anyhow::bail!("products in integers run on --device cpu; a GPU multiplies in bf16")
        }
        (_, Some(Activations::Eight)) => Some(Arithmetic::Integers8),
        (Some(Products::Integers), None) | (_, Some(Activations::Sixteen)) => Some(Arithmetic::Integers16),
        (None, None) => None,
    };
    let compile = Some(prepare::for_gpu as Compile);
    Ok(DeployOptions { threads, context, bundle, on, compile, arithmetic, storage, isa, pool: pool::Asked::default() })
}

/// The pool's size: by the flags, else by the demand.
pub fn asked(flags: &Flags, demand: Demand) -> pool::Asked {
    pool::Asked { pages: flags.kv_pages, bytes: flags.kv_memory, demand }
}

/// Requests that are not known yet, `sequences` at a time: each as long as the context allows.
pub fn any(sequences: usize) -> Demand {
    Demand { tokens: usize::MAX, sequences }
}

/// [`find`], but nothing is fetched for a GPU that is not there.
fn find_for(name: &str, options: &DeployOptions) -> Result<PathBuf> {
    match options.on {
        On::Gpu(_, index) if !Path::new(name).exists() => vosti_cuda::Cuda::find(index)?,
        _ => {}
    }
    find(name)
}

/// Loads a model with a progress bar.
pub fn load(name: &str, options: &DeployOptions) -> Result<Deployment> {
    let path = find_for(name, options)?;
    let bar = Bar::new(Unit::Bytes);
    let deployment = Deployment::load(name, &path, options, &bar).with_context(|| format!("cannot load {name}"))?;
    // Leaked on purpose: a command needs its vocabulary to the end, and freeing a large one takes a fifth of a second.
    std::mem::forget(deployment.text().ok().cloned());
    Ok(deployment)
}

/// The same of a model that has a tokenizer. A configuration alone is refused before its weights are made.
pub fn load_with_text(name: &str, options: &DeployOptions) -> Result<Deployment> {
    if ModelSource::is_configuration(&find_for(name, options)?) {
        return Err(DeployError::NoTokenizer(name.into()).into());
    }
    load(name, options)
}

/// An engine for requests that are not known yet, `sequences` at a time: its pool holds the longest that the context allows.
pub fn engine_for_any(deployment: &Deployment, flags: &Flags, sequences: usize) -> Result<Engine<AnyDevice>> {
    let engine = engine(deployment, flags, any(sequences), usize::MAX)?;
    let flagged = flags.kv_pages.is_some() || flags.kv_memory.is_some();
    let bundle = deployment.bundle().manifest().is_some();
    let origin = Origin { free_memory: deployment.gpu().is_some() && !flagged, bundle };
    pool::check(deployment.program(), pages(&engine), origin)?;
    Ok(engine)
}

/// An engine whose pool is as large as the flags say, or as the demand is. It refuses what its pool does not hold. No step needs
/// more than `rows` rows.
pub fn engine(deployment: &Deployment, flags: &Flags, demand: Demand, rows: usize) -> Result<Engine<AnyDevice>> {
    // A GPU's pool fills its memory unless the flags say otherwise.
    let fills = deployment.gpu().is_some() && flags.kv_pages.is_none() && flags.kv_memory.is_none();
    let pages = (!fills).then(|| asked(flags, demand).pages(deployment.program()));
    if pages == Some(0) {
        anyhow::bail!(
            "the KV pool would hold no page: a page takes {} KiB, so raise --kv-memory",
            pool_bytes(deployment.program(), 1).div_ceil(1024)
        );
    }
    let speculation = if flags.speculate { Speculation::NGRAM } else { Speculation::Off };
    let policy = Policy { speculation, ..deployment.policy() };
    // Each row of a step takes a slot of the pool.
    let slots = pages.map_or(usize::MAX, |pages| pages.saturating_mul(PAGE));
    let config = DeviceConfig { pages, rows_max: policy.rows_step_max.min(slots).min(rows), ..DeviceConfig::default() };
    Ok(deployment.engine(&config, policy)?)
}

/// Pages of the pool: pages with a state are fewer.
fn pages(engine: &Engine<AnyDevice>) -> usize {
    let groups = 0..engine.program().groups.len();
    groups.map(|group| engine.device().pages(group)).max().unwrap_or(0)
}

/// What was opened, on stderr: stdout is for the answer.
pub fn banner(deployment: &Deployment, engine: &Engine<AnyDevice>) {
    let pages = pages(engine);
    let bytes = pool_bytes(deployment.program(), pages);
    tell!("model        {}", deployment.describe());
    if deployment.left_out() > 0 {
        let tensors = counted(deployment.left_out(), "tensor");
        tell!("left out     {tensors} of images and sounds: requests are texts");
    }
    tell!("device       {}", deployment.device_name());
    tell!("weights      {:.2} bits each", 8.0 * deployment.element_bytes());
    tell!("arithmetic   {}", deployment.arithmetic());
    tell!(
        "kv pool      {} of {PAGE} tokens: {} tokens, {:.1} MiB",
        counted(pages, "page"),
        pages * PAGE,
        bytes as f64 / 1048576.0
    );
    if let Some(line) = pool::states(deployment.program(), pages) {
        tell!("states       {line}");
    }
    tell!("fingerprint  {}", deployment.fingerprint());
    let text = deployment.text().ok();
    text.into_iter().flat_map(|text| text.tokenizer.warnings()).for_each(|why| tell!("warning      {why}"));
}

/// The argument, or standard input for `-`.
pub fn text_or_stdin(argument: &str) -> Result<String> {
    if argument != "-" {
        return Ok(argument.to_string());
    }
    let mut text = String::new();
    let read = interrupt::ends_at_once(|| std::io::stdin().read_to_string(&mut text));
    read.context("cannot read standard input as UTF-8 text")?;
    Ok(text)
}

/// The argument, and below it what is piped into the command. `-` is standard input alone.
pub fn text_and_stdin(argument: &str) -> Result<String> {
    if argument == "-" {
        if std::io::stdin().is_terminal() {
            tell!("Write the prompt and end it with Ctrl-D.");
        }
        return text_or_stdin("-");
    }
    if !is_piped() {
        return Ok(argument.to_string());
    }
    let piped = text_or_stdin("-")?;
    Ok(if piped.trim().is_empty() { argument.to_string() } else { format!("{argument}\n\n{piped}") })
}

/// Whether standard input is a pipe or a file. A terminal, `/dev/null` and a socket of a service manager are none.
fn is_piped() -> bool {
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileTypeExt;
    let file = std::io::stdin().as_fd().try_clone_to_owned().map(std::fs::File::from);
    let kind = file.and_then(|file| file.metadata()).map(|about| about.file_type());
    kind.is_ok_and(|kind| kind.is_fifo() || kind.is_file())
}
