//! A model bound to this machine: its program, its weights and the identity of everything that fixes its bits.
//!
//! The fingerprint covers what can change a bit of an answer, and nothing else: not the thread count, not the pool,
//! not the policy. Two deployments with one fingerprint give one answer.

use crate::bundle::{Bundle, BundleError, manifest};
use crate::check::{CheckError, Facts, Setup, Subject, prompts};
use crate::watch::Watch;
use std::cell::Cell;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use thiserror::Error;
use vosti_core::{PAGE, Program};
use vosti_cpu::isa::Isa;
use vosti_cpu::{Config, CpuDevice, CpuError, TensorData, WeightCache, WeightError};
use vosti_engine::{Engine, EngineError, Event, Policy};
use vosti_kernels::{Act, ttir_hash};
use vosti_model::{Model, ModelError, ModelPlan, PlanOptions, WeightSource};
use vosti_verify::problem::limit;

/// Why a model could not be deployed.
#[derive(Debug, Error)]
pub enum DeployError {
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(transparent)]
    Bundle(#[from] BundleError),
    #[error(transparent)]
    Device(#[from] CpuError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("--threads is 0: give at least one")]
    NoThreads,
    #[error("{0}: take smaller steps or a shorter context")]
    Unproved(String),
    #[error("interrupted")]
    Interrupted,
}

/// What a user may ask of a deployment.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Worker threads; none: the cores this process may use, cgroups respected.
    pub threads: Option<usize>,
    /// Longest sequence; none: the model's own.
    pub context: Option<u32>,
    /// A folder that `vosti prepare` wrote; none: the built-in kernels and certificates.
    pub bundle: Option<PathBuf>,
}

/// The room of one device.
#[derive(Clone, Debug)]
pub struct Room {
    /// Pages of every cache group.
    pub pages: usize,
    pub rows_max: usize,
    /// In place of the deployment's own.
    pub threads: Option<usize>,
    /// In place of the best.
    pub isa: Option<Isa>,
}

impl Default for Room {
    fn default() -> Self {
        Room { pages: 1, rows_max: Policy::default().rows_step_max, threads: None, isa: None }
    }
}

/// The kernels' target on this device.
pub const TARGET: &str = "cpu";

/// A model, planned, loaded and named.
pub struct Deployment {
    name: String,
    model: Arc<Model>,
    plan: ModelPlan,
    /// What was admitted: the kernels' texts.
    bundle: Bundle,
    files: manifest::Model,
    threads: usize,
    weights: Arc<WeightCache>,
    fingerprint: String,
}

impl Deployment {
    /// Opens the file or folder, loads every weight once, and computes the fingerprint.
    pub fn load(name: &str, path: &Path, options: &Options, watch: &dyn Watch) -> Result<Self, DeployError> {
        let threads = match options.threads {
            Some(0) => return Err(DeployError::NoThreads),
            Some(threads) => threads,
            // Respects affinity and cgroup quotas.
            None => std::thread::available_parallelism().map_or(1, usize::from),
        };
        let bundle = Bundle::open(options.bundle.as_deref())?;
        bundle.check_target(TARGET)?;
        let model = Arc::new(Model::open(path)?);
        let context = options.context.or(bundle.manifest().map(|manifest| manifest.context));
        let plan = model.plan(&PlanOptions { target: TARGET, act: Act::Bf16, context })?;
        let files = manifest::Model::of_files(name, model.decoder.family, path)
            .map_err(|(path, error)| DeployError::Io { path, error })?;
        if options.bundle.is_none() {
            vosti_model::check_kernels(&plan)?;
        }
        bundle.check_origin(&files, TARGET, &plan)?;
        bundle.admit(&plan)?;
        let weights = Arc::new(WeightCache::default());
        let (name, fingerprint) = (name.to_string(), String::new());
        let mut deployment = Deployment { name, model, plan, bundle, files, threads, weights, fingerprint };
        deployment.warm(watch)?;
        deployment.fingerprint = deployment.identify()?;
        Ok(deployment)
    }

    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    pub fn program(&self) -> &Program {
        &self.plan.program
    }

    pub fn plan(&self) -> &ModelPlan {
        &self.plan
    }

    /// Worker threads of its devices, where a room does not say otherwise.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// BLAKE3 over all that fixes the bits.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// One line about the model.
    pub fn describe(&self) -> String {
        let decoder = &self.model.decoder;
        let (layers, context) = (decoder.layers.len(), self.program().context);
        format!("{}: {}, {layers} layers, vocabulary {}, context {context}", self.name, decoder.family, decoder.vocab)
    }

    /// One line about the device.
    pub fn device_name(&self) -> String {
        let plural = if self.threads == 1 { "" } else { "s" };
        format!("cpu: {} thread{plural}, {}", self.threads, isa_name(Isa::detect()))
    }

    /// Bytes of one page in every cache group: keys and values of all layers.
    pub fn page_bytes(&self) -> u64 {
        let program = self.program();
        let layer = |group: u32| {
            let group = &program.groups[group as usize];
            // Two of them, two bytes each.
            u64::from(group.kv_heads) * u64::from(group.head_dim) * PAGE as u64 * 4
        };
        program.layers.iter().map(|l| layer(l.group)).sum()
    }

    /// What the determinism suite has to know.
    pub fn facts(&self) -> Facts {
        let tokenizer = &self.model.tokenizer;
        let words = tokenizer.vocabulary() as u32;
        let mut bytes = Vec::new();
        let special = (0..self.program().vocab).filter(|token| {
            bytes.clear();
            tokenizer.append_bytes(*token, &mut bytes);
            *token >= words || bytes.is_empty()
        });
        Facts {
            model: self.name.clone(),
            fingerprint: self.fingerprint.clone(),
            vocab: self.program().vocab,
            bos: tokenizer.bos(),
            special: special.collect(),
            context: self.program().context as usize,
            window: self.program().groups.iter().filter_map(|g| g.window).min().map(|w| w as usize),
        }
    }

    /// A device with an empty pool. Weights are shared with every other device of this deployment.
    pub fn device(&self, room: &Room) -> Result<CpuDevice, DeployError> {
        if let Some(what) = limit::exceeded(room.rows_max, self.program().context as usize, PAGE) {
            return Err(DeployError::Unproved(what));
        }
        let pages = vec![room.pages; self.program().groups.len()];
        let threads = room.threads.unwrap_or(self.threads);
        let mut config = Config::new(room.rows_max, room.rows_max, pages, threads);
        config.isa = room.isa;
        config.ttir = Some(self.bundle.texts(&self.plan));
        config.weights = Some(self.weights.clone());
        let source = Source { model: &self.model, plan: &self.plan, watch: None };
        Ok(CpuDevice::new(self.program(), &self.plan.bindings, &source, config)?)
    }

    /// Loads every weight into the cache that all devices share.
    fn warm(&self, watch: &dyn Watch) -> Result<(), DeployError> {
        watch.stage(&format!("loading {}", self.name), self.plan.weights.len() as u64);
        let pages = vec![1; self.program().groups.len()];
        let mut config = Config::new(1, 1, pages, 1);
        config.ttir = Some(self.bundle.texts(&self.plan));
        config.weights = Some(self.weights.clone());
        let watched = Watched { watch, loaded: Cell::new(0) };
        let source = Source { model: &self.model, plan: &self.plan, watch: Some(&watched) };
        match CpuDevice::new(self.program(), &self.plan.bindings, &source, config) {
            Ok(_) => Ok(()),
            Err(_) if watch.cancelled() => Err(DeployError::Interrupted),
            Err(error) => Err(error.into()),
        }
    }

    /// Hashes, in a fixed order: binary, page size, program, kernels, files, numbers.
    fn identify(&self) -> Result<String, DeployError> {
        let mut hash = blake3::Hasher::new();
        let mut put = |what: &str, bytes: &[u8]| {
            hash.update(what.as_bytes()).update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
        };
        put("vosti", env!("CARGO_PKG_VERSION").as_bytes());
        put("dequantiser", &vosti_model::dequantise::VERSION.to_le_bytes());
        put("page", &(PAGE as u64).to_le_bytes());
        put("program", format!("{:?}", self.program()).as_bytes());
        for launch in self.plan.bindings.iter().flat_map(|binding| &binding.launches) {
            put("launch", format!("{} {:?}", launch.spec, launch.weights).as_bytes());
            let text = self.bundle.ttir(&launch.spec.to_string()).unwrap_or_default();
            put("ttir", ttir_hash(text).as_bytes());
        }
        // Weights, tokenizer and template are in the model's files.
        self.files.files.iter().for_each(|file| put("file", file.blake3.as_bytes()));
        put("numbers", self.numeric_probe()?.as_bytes());
        Ok(format!("vosti-{}", &hash.finalize().to_hex()[..32]))
    }

    /// The logits of a few fixed tokens: dot, exp, casts and all, on this machine.
    fn numeric_probe(&self) -> Result<blake3::Hash, DeployError> {
        let mut hash = blake3::Hasher::new();
        let facts = self.facts();
        let room = Room { pages: 1, rows_max: 16, ..Room::default() };
        let policy = Policy { rows_step_max: 16, prefix_cache: false, ..Policy::default() };
        let mut engine = Engine::new(self.device(&room)?, self.program().clone(), policy)?;
        let len = 12.min(facts.context - 3);
        let prompt = prompts::prompt(&facts, 0, "numeric probe", len);
        engine.submit(vosti_engine::Request::new(prompt, vosti_engine::Sampling::greedy(2)))?;
        engine.run_until_idle(&mut |event| {
            if let Event::Token { logits, .. } = event {
                logits.iter().for_each(|x| _ = hash.update(&x.to_bits().to_le_bytes()));
            }
        })?;
        Ok(hash.finalize())
    }
}

/// What an instruction set is called.
pub fn isa_name(isa: Isa) -> &'static str {
    match isa {
        Isa::Portable => "portable",
        Isa::Avx2 => "avx2",
        Isa::Avx512 => "avx512-bf16",
    }
}

/// The model's weights as the device asks for them.
struct Source<'a> {
    model: &'a Model,
    plan: &'a ModelPlan,
    watch: Option<&'a Watched<'a>>,
}

struct Watched<'a> {
    watch: &'a dyn Watch,
    loaded: Cell<u64>,
}

impl vosti_cpu::Weights for Source<'_> {
    fn shape(&self, name: &str) -> Result<Vec<usize>, WeightError> {
        if let Some(watched) = self.watch {
            watched.loaded.set(watched.loaded.get() + 1);
            watched.watch.done(watched.loaded.get());
        }
        Ok(self.model.weights(self.plan, Act::Bf16).shape(name)?)
    }

    fn rows(&self, name: &str, rows: Range<usize>) -> Result<TensorData, WeightError> {
        if self.watch.is_some_and(|watched| watched.watch.cancelled()) {
            return Err("interrupted".into());
        }
        Ok(match self.model.weights(self.plan, Act::Bf16).rows(name, rows)? {
            vosti_model::TensorData::Bf16(data) => TensorData::Bf16(data),
            vosti_model::TensorData::F32(data) => TensorData::F32(data),
        })
    }
}

/// A deployment as the determinism suite sees it.
pub struct Real {
    deployment: Deployment,
    facts: Facts,
    /// The program and the `--model` that a restarted process gets; none: no other process is asked.
    restart: Option<(PathBuf, String)>,
}

impl Real {
    pub fn new(deployment: Deployment, restart: Option<(PathBuf, String)>) -> Self {
        let facts = deployment.facts();
        Real { deployment, facts, restart }
    }
}

impl Subject for Real {
    type Device = CpuDevice;

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn program(&self) -> &Program {
        self.deployment.program()
    }

    fn device(&self, setup: &Setup) -> Result<CpuDevice, CheckError> {
        let isa = setup.instruction_set.as_deref();
        let room = Room {
            pages: setup.pool_tokens.div_ceil(PAGE).max(1),
            rows_max: setup.rows_max,
            threads: setup.threads,
            isa: isa.and_then(|name| Isa::available().iter().copied().find(|isa| isa_name(*isa) == name)),
        };
        self.deployment.device(&room).map_err(|error| CheckError::Subject(error.to_string()))
    }

    fn thread_counts(&self) -> Vec<usize> {
        vec![1, 2, 4]
    }

    fn instruction_sets(&self) -> Vec<String> {
        Isa::available().iter().map(|isa| isa_name(*isa).to_string()).collect()
    }

    fn restarted(&self, seed: u64) -> Option<Result<Vec<String>, CheckError>> {
        let (program, model) = self.restart.as_ref()?;
        let mut command = Command::new(program);
        command.args(["check", "--probe", "--model", model, "--seed", &seed.to_string()]);
        let failed = |why: String| CheckError::Subject(format!("another process could not be asked: {why}"));
        Some(match command.output() {
            Ok(output) if output.status.success() => {
                Ok(String::from_utf8_lossy(&output.stdout).lines().map(String::from).collect())
            }
            Ok(output) => Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_string())),
            Err(error) => Err(failed(error.to_string())),
        })
    }
}
