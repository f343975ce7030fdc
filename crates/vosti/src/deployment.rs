//! A model bound to this machine: its program, its weights and the identity of everything that fixes its bits.
//!
//! The fingerprint covers everything that can change a bit of an answer or its length (the program's context), and nothing
//! else: not the thread count, not the pool, not the policy. Two deployments with one fingerprint give one answer.
//! Read next: `deployment/fingerprint.rs`.

mod fingerprint;
mod subject;

pub use subject::DeploymentSubject;

use crate::device::{AnyDevice, Gpu, On};
use crate::memory::{self, DoesNotFit, Taken};
use crate::model_source::ModelSource;
use crate::pool;
use crate::weights::{DeviceWeights, LoadProgress};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use thiserror::Error;
use vosti_admission::{Bundle, BundleError, limits, manifest};
use vosti_core::{PAGE, Program};
pub use vosti_cpu::Storage;
pub use vosti_cpu::THREADS_MAX;
use vosti_cpu::isa::Isa;
use vosti_cpu::{Config, CpuDevice, CpuError, WeightCache};
use vosti_cuda::driver::About;
use vosti_cuda::{Arch, CudaDevice, CudaError, DriverError, Pages};
use vosti_engine::{EngineError, Policy};
use vosti_kernels::CPU;
use vosti_model::{ModelError, ModelPlan, Recipe, Replacement, Target, Text};
use vosti_progress::Progress;

/// Why a model could not be deployed.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum DeployError {
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(transparent)]
    Bundle(#[from] BundleError),
    #[error(transparent)]
    Device(#[from] CpuError),
    #[error(transparent)]
    Gpu(#[from] CudaError),
    #[error(transparent)]
    Driver(#[from] DriverError),
    #[error(
        "a GPU runs machine code from a bundle: run `vosti prepare MODEL --target {target} -o FOLDER`, then give \
         --bundle FOLDER"
    )]
    NoBundle { target: String },
    #[error(
        "{0} is a configuration alone: it has random weights and no tokenizer, for `vosti check` and `vosti bench`"
    )]
    NoTokenizer(String),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{asked} worker threads: give --threads from 1 to {THREADS_MAX}")]
    Threads { asked: usize },
    #[error("--context {asked} is longer than the model's own, {most} tokens: give at most that, or leave it out")]
    Context { asked: u32, most: u32 },
    #[error(
        "{pages} KV pages are {} MiB, which this machine does not give ({error}): ask for less with --kv-pages or --kv-memory, or for a shorter --context",
        bytes >> 20
    )]
    NoMemory { pages: usize, bytes: u64, error: io::Error },
    #[error(transparent)]
    DoesNotFit(#[from] DoesNotFit),
    #[error("{0}: take smaller steps or a shorter context")]
    Unproved(String),
    #[error("interrupted")]
    Interrupted,
}

/// What a user may ask of a deployment.
#[derive(Clone, Debug, Default)]
pub struct DeployOptions {
    /// Worker threads; none: the cores this process may use, cgroups respected.
    pub threads: Option<usize>,
    /// Longest sequence; none: the model's own.
    pub context: Option<u32>,
    /// A folder that `vosti prepare` wrote; none: the built-in kernels and certificates.
    pub bundle: Option<PathBuf>,
    /// A processor or a GPU.
    pub on: On,
    /// How a processor keeps weights; changes no bit.
    pub storage: Storage,
    /// A processor's instruction set; none: the fastest that this machine has. It changes no bit.
    pub isa: Option<Isa>,
    /// The pool that a device is going to have, as far as it is known: what does not fit beside the weights is refused.
    pub pool: pool::Asked,
}

/// What one device shall have.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// Pages of every cache group; none: as many as fit into a GPU's free memory, or one.
    pub pages: Option<usize>,
    /// Rows that one step may have.
    pub rows_max: usize,
    /// In place of the deployment's own.
    pub threads: Option<usize>,
    /// In place of the deployment's own.
    pub isa: Option<Isa>,
    /// In place of the deployment's own.
    pub storage: Option<Storage>,
}

impl Default for DeviceConfig {
    fn default() -> Self {
        DeviceConfig {
            pages: Some(1),
            rows_max: Policy::default().rows_step_max,
            threads: None,
            isa: None,
            storage: None,
        }
    }
}

/// Of a GPU's memory that weights and buffers leave free: what keys and values get if nobody says. Modules, recorded
/// graphs and the driver itself take some.
const POOL_PERCENT: u64 = 90;
/// Rows of a step on a GPU: a matrix of 4,096 columns then has 512 tiles of 128 rows and columns for its multiprocessors, of
/// which there are some 130, and 128 at the processor's 512 rows.
pub const GPU_ROWS_STEP_MAX: usize = 2048;
/// Rows of logits that a step may have. Each is a whole vocabulary wide, in page-locked memory too on a GPU: for steps of
/// 32,768 rows, which the suite asks for, that many rows of 128,256 would be 16 GB.
const SELECTED_MAX: usize = 512;

/// What a deployment runs on, with the weights that all its devices share.
enum Hardware {
    Cpu { weights: Arc<WeightCache> },
    Gpu { gpu: Gpu, weights: Arc<vosti_cuda::WeightCache> },
}

/// A model, planned, loaded and named.
pub struct Deployment {
    name: String,
    source: ModelSource,
    /// A configuration alone has none.
    text: Option<Arc<Text>>,
    plan: ModelPlan,
    target: String,
    /// What was admitted: the kernels' texts.
    bundle: Bundle,
    files: manifest::Model,
    threads: usize,
    storage: Storage,
    isa: Isa,
    /// Bytes and elements of all matrices, as they are kept.
    matrices: (u64, u64),
    hardware: Hardware,
    fingerprint: String,
}

impl Deployment {
    /// Opens the file or folder, loads every weight once, and computes the fingerprint.
    pub fn load(
        name: &str,
        path: &Path,
        options: &DeployOptions,
        progress: &dyn Progress,
    ) -> Result<Self, DeployError> {
        Self::of(name, path, ModelSource::open(path)?, options, progress)
    }

    /// The same with these tensors in the place of the folder's: what a folder with such files is, to the fingerprint.
    pub fn load_with(
        name: &str,
        path: &Path,
        tensors: Replacement,
        options: &DeployOptions,
        progress: &dyn Progress,
    ) -> Result<Self, DeployError> {
        Self::of(name, path, ModelSource::with(path, tensors)?, options, progress)
    }

    fn of(
        name: &str,
        path: &Path,
        source: ModelSource,
        options: &DeployOptions,
        progress: &dyn Progress,
    ) -> Result<Self, DeployError> {
        let threads = match options.threads {
            Some(threads) => threads,
            // Respects affinity and cgroup quotas.
            None => std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX),
        };
        if !(1..=THREADS_MAX).contains(&threads) {
            return Err(DeployError::Threads { asked: threads });
        }
        let (bundle, target, hardware) = match options.on {
            On::Cpu => {
                let bundle = Bundle::open(options.bundle.as_deref())?;
                bundle.check_target(CPU)?;
                (bundle, CPU.to_string(), Hardware::Cpu { weights: Arc::default() })
            }
            On::Gpu(open, index) => {
                let gpu = open(index)?;
                let bundle = Bundle::open(options.bundle.as_deref())?;
                let target = target(&bundle, gpu.about())?;
                let weights = Arc::new(vosti_cuda::WeightCache::new(gpu.another()?));
                (bundle, target, Hardware::Gpu { gpu, weights })
            }
        };
        let most = source.decoder().context;
        if let Some(asked) = options.context.filter(|asked| *asked > most) {
            return Err(DeployError::Context { asked, most });
        }
        let context = options.context.or(bundle.manifest().map(|manifest| manifest.context));
        let plan = source.plan(&Target::named(&target), context)?;
        if options.bundle.is_none() {
            vosti_model::check_kernels(&plan)?;
        }
        if let Hardware::Cpu { .. } = hardware {
            taken(&source, &plan, &bundle, options).map_or(Ok(()), |taken| taken.check(memory::available()))?;
        }
        // Made beside the weights: a large vocabulary takes a second.
        let own = source.clone();
        let text = std::thread::spawn(move || {
            let text = own.text();
            give_back();
            text
        });
        let files = manifest::Model::of_contents(name, source.decoder().family, path, |file| source.held(file))
            .map_err(|(path, error)| DeployError::Io { path, error })?;
        bundle.check_origin(&files, &target, &plan)?;
        bundle.admit(&plan)?;
        let mut deployment = Deployment {
            name: name.to_string(),
            source,
            text: None,
            plan,
            target,
            bundle,
            files,
            threads,
            storage: options.storage,
            isa: options.isa.unwrap_or_else(Isa::detect),
            matrices: (0, 0),
            hardware,
            fingerprint: String::new(),
        };
        deployment.matrices = deployment.warm(progress)?;
        let text = text.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        deployment.text = text?.map(Arc::new);
        deployment.fingerprint = deployment.identify()?;
        Ok(deployment)
    }

    /// The model's tokenizer and template. A configuration alone has none.
    pub fn text(&self) -> Result<&Arc<Text>, DeployError> {
        self.text.as_ref().ok_or_else(|| DeployError::NoTokenizer(self.name.clone()))
    }

    /// The model's program.
    pub fn program(&self) -> &Program {
        &self.plan.program
    }

    /// The program with its bindings and weight recipes.
    pub fn plan(&self) -> &ModelPlan {
        &self.plan
    }

    /// What was admitted.
    pub fn bundle(&self) -> &Bundle {
        &self.bundle
    }

    /// The GPU that it runs on, if it is one.
    pub fn gpu(&self) -> Option<&Gpu> {
        match &self.hardware {
            Hardware::Cpu { .. } => None,
            Hardware::Gpu { gpu, .. } => Some(gpu),
        }
    }

    /// What the scheduler may do where nobody says otherwise: a GPU has more rows in a step.
    pub fn policy(&self) -> Policy {
        let policy = Policy::default();
        match self.hardware {
            Hardware::Cpu { .. } => policy,
            Hardware::Gpu { .. } => Policy { rows_step_max: GPU_ROWS_STEP_MAX, ..policy },
        }
    }

    /// Bytes that a step reads for each element of a matrix, as it is kept.
    pub fn element_bytes(&self) -> f64 {
        let (bytes, elements) = self.matrices;
        if elements == 0 { 2.0 } else { bytes as f64 / elements as f64 }
    }

    /// Worker threads of its devices, where a configuration does not say otherwise.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Instruction set of its processor's kernels.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// BLAKE3 over all that fixes the bits.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// One line about the model.
    pub fn describe(&self) -> String {
        let decoder = self.source.decoder();
        let (layers, context) = (decoder.layers.len(), self.program().context);
        format!("{}: {}, {layers} layers, vocabulary {}, context {context}", self.name, decoder.family, decoder.vocab)
    }

    /// One line about the device.
    pub fn device_name(&self) -> String {
        if let Some(gpu) = self.gpu() {
            let about = gpu.about();
            let (major, minor) = about.capability;
            return format!("{}: {}, compute capability {major}.{minor}", self.target, about.name);
        }
        let plural = if self.threads == 1 { "" } else { "s" };
        format!("cpu: {} thread{plural}, {}", self.threads, self.isa.name())
    }

    /// Bytes of one page in every cache group: keys and values of all layers.
    pub fn page_bytes(&self) -> u64 {
        page_bytes(self.program())
    }

    /// A device with an empty pool. Weights are shared with every other device of this deployment.
    pub fn device(&self, asked: &DeviceConfig) -> Result<AnyDevice, DeployError> {
        self.device_for(self.program(), asked)
    }

    /// As [`Deployment::device`], for another program over the model's bindings and weights.
    pub fn device_for(&self, program: &Program, asked: &DeviceConfig) -> Result<AnyDevice, DeployError> {
        let (context, groups) = (self.program().context as usize, self.program().groups.len());
        if let Some(what) = limits::unproved(asked.rows_max, context, groups) {
            return Err(DeployError::Unproved(what));
        }
        // More bytes than an address has room for.
        let bytes = self.page_bytes().checked_mul(asked.pages.unwrap_or(1) as u64);
        if bytes.is_none_or(|bytes| bytes > isize::MAX as u64) {
            return Err(self.no_memory(asked, io::ErrorKind::OutOfMemory.into()));
        }
        self.make(program, asked, None)
    }

    fn make(
        &self,
        program: &Program,
        asked: &DeviceConfig,
        progress: Option<&LoadProgress>,
    ) -> Result<AnyDevice, DeployError> {
        let groups = self.program().groups.len();
        let source = DeviceWeights { source: &self.source, plan: &self.plan, progress };
        let bindings = &self.plan.bindings;
        match &self.hardware {
            Hardware::Cpu { weights } => {
                let (pages, threads) = (vec![asked.pages.unwrap_or(1); groups], asked.threads.unwrap_or(self.threads));
                let mut config = Config::new(asked.rows_max, selected_max(asked), pages, threads);
                config.isa = Some(asked.isa.unwrap_or(self.isa));
                config.storage = asked.storage.unwrap_or(self.storage);
                config.positions = longest(program, &config.pages);
                config.ttir = Some(self.bundle.texts(&self.plan));
                config.weights = Some(weights.clone());
                let device = CpuDevice::new(program, bindings, &source, config).map_err(|error| match error {
                    CpuError::System(error) if error.kind() == io::ErrorKind::OutOfMemory => {
                        self.no_memory(asked, error)
                    }
                    error => error.into(),
                });
                Ok(AnyDevice::Cpu(device?.into()))
            }
            Hardware::Gpu { gpu, weights } => {
                let mut config = vosti_cuda::Config::new(asked.rows_max, selected_max(asked), vec![]);
                config.pages = match asked.pages {
                    Some(pages) => Pages::Each(vec![pages; groups]),
                    None => Pages::Fill { percent: POOL_PERCENT },
                };
                config.weights = Some(weights.clone());
                let (own, images) = (gpu.another()?, self.bundle.images());
                let device = CudaDevice::new(own, &self.target, program, bindings, images, &source, config)?;
                Ok(AnyDevice::Gpu(device.into()))
            }
        }
    }

    fn no_memory(&self, asked: &DeviceConfig, error: io::Error) -> DeployError {
        let pages = asked.pages.unwrap_or(1);
        DeployError::NoMemory { pages, bytes: self.page_bytes().saturating_mul(pages as u64), error }
    }

    /// Loads every weight into the cache that all devices share.
    fn warm(&self, progress: &dyn Progress) -> Result<(u64, u64), DeployError> {
        progress.stage(&format!("loading {}", self.name), self.plan.weights.values().filter_map(bytes).sum());
        let asked = DeviceConfig { pages: Some(1), rows_max: 1, threads: Some(1), isa: None, storage: None };
        match self.make(self.program(), &asked, Some(&LoadProgress { progress, loaded: AtomicU64::new(0) })) {
            Ok(device) => Ok(device.matrices()),
            Err(_) if progress.cancelled() => Err(DeployError::Interrupted),
            Err(error) => Err(error),
        }
    }
}

/// Bytes of one page in every cache group.
fn page_bytes(program: &Program) -> u64 {
    let layer = |group: u32| {
        let group = &program.groups[group as usize];
        // Two of them, two bytes each.
        u64::from(group.kv_heads) * u64::from(group.head_dim) * PAGE as u64 * 4
    };
    program.layers.iter().map(|l| layer(l.group)).sum()
}

/// What a processor's memory would have to hold; none if there is something wrong with the model, which is told elsewhere.
fn taken(source: &ModelSource, plan: &ModelPlan, bundle: &Bundle, options: &DeployOptions) -> Option<Taken> {
    let (program, weights) = (&plan.program, DeviceWeights { source, plan, progress: None });
    let page_bytes = page_bytes(program);
    let pages = options.pool.pages(program, page_bytes);
    let rows = Policy::default().rows_step_max;
    let mut config = Config::new(rows, rows.min(SELECTED_MAX), vec![pages; program.groups.len()], 1);
    config.positions = longest(program, &config.pages);
    config.ttir = Some(bundle.texts(plan));
    let mut needs = |storage| {
        config.storage = storage;
        CpuDevice::needs(program, &plan.bindings, &weights, &config).ok()
    };
    let needed = needs(options.storage)?;
    let other = (options.storage == Storage::Expanded).then(|| needs(Storage::AsTheyCome));
    let as_they_come = other.flatten().map(|needs| needs.weights);
    let pool = page_bytes.saturating_mul(pages as u64);
    Some(Taken { weights: needed.weights, pages, pool, buffers: needed.buffers, as_they_come })
}

/// The target of a bundle's machine code, if a GPU of this kind runs it.
fn target(bundle: &Bundle, about: &About) -> Result<String, DeployError> {
    let none = || CudaError::NoTarget { name: about.name.clone(), capability: about.capability, known: Arch::known() };
    let wanted = format!("cuda-{}", Arch::of_capability(about.capability).ok_or_else(none)?);
    let Some(manifest) = bundle.manifest() else {
        return Err(DeployError::NoBundle { target: wanted });
    };
    match Arch::of_target(&manifest.target) {
        Ok(arch) if arch.runs_on(about.capability) => Ok(manifest.target.clone()),
        _ => Err(BundleError::Target { folder: bundle.origin(), found: manifest.target.clone(), wanted }.into()),
    }
}

/// Gives memory that building something has freed back to the system. GNU's C library keeps it: of Gemma's tokenizer as
/// much again as the tokenizer takes.
fn give_back() {
    // SAFETY: it frees nothing that is in use.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Rows of logits that a step may have. A step selects one row of a request that generates, and more only where a prompt's
/// log-probabilities or drafts are wanted; the engine makes more steps of what selects more.
fn selected_max(asked: &DeviceConfig) -> usize {
    asked.rows_max.min(SELECTED_MAX)
}

/// Bytes of a weight as it is asked for; none if how much of it is depends on the pool.
fn bytes(recipe: &Recipe) -> Option<u64> {
    let elem = match recipe {
        Recipe::Rope { .. } => return None,
        Recipe::Matrix { .. } => 2,
        _ => 4,
    };
    Some(elem * recipe.shape().iter().product::<usize>() as u64)
}

/// Positions that a request can have with so many pages, as far as they say: those of the layers without a window.
fn longest(program: &Program, pages: &[usize]) -> Option<usize> {
    let groups = program.groups.iter().zip(pages).filter(|(group, _)| group.window.is_none());
    groups.map(|(_, pages)| pages.saturating_mul(PAGE)).min()
}
