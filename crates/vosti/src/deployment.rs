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
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use thiserror::Error;
use vosti_admission::{Bundle, BundleError, limits, manifest};
use vosti_core::{PAGE, Program};
use vosti_cpu::Isa;
pub use vosti_cpu::Storage;
pub use vosti_cpu::THREADS_MAX;
use vosti_cpu::{Config, CpuDevice, CpuError, WeightCache};
use vosti_cubin::{Arch, Cubin};
use vosti_cuda::driver::About;
use vosti_cuda::{CudaDevice, CudaError, DriverError, Pages};
use vosti_engine::progress::Progress;
use vosti_engine::{Defaults, Engine, EngineError, Given, Numbers, Policy, Routing, SamplingError};
use vosti_kernels::{Admitted, CPU, Part};
use vosti_model::{Arithmetic, ModelError, ModelPlan, Recipe, Replacement, Target, Text, Weight};
use vosti_tile::Scalar;
use vosti_wiring::pool_bytes;

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
    #[error("{0:#}")]
    Compile(anyhow::Error),
    #[error(
        "{0} is only a configuration, with random weights and no tokenizer: use `vosti check` or `vosti bench`, or give a whole model"
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
        "this machine has no room for {pages} KV pages of {} MiB in all ({error}): give a smaller --kv-pages, --kv-memory or --context",
        bytes >> 20
    )]
    NoMemory { pages: usize, bytes: u64, error: io::Error },
    #[error(transparent)]
    DoesNotFit(#[from] DoesNotFit),
    #[error("{0}: give a shorter --context, or smaller steps")]
    Unproved(String),
    #[error("interrupted")]
    Interrupted,
}

/// Compiles a plan's kernels for a GPU's target.
pub type Compile = fn(&str, &ModelPlan, &Admitted) -> anyhow::Result<Vec<Cubin>>;

/// The settings of a deployment that a user may choose.
#[derive(Clone, Debug, Default)]
pub struct DeployOptions {
    /// Worker threads; none: the cores this process may use, cgroups respected.
    pub threads: Option<usize>,
    /// Longest sequence; none: the model's own.
    pub context: Option<u32>,
    /// A folder that `vosti prepare` wrote; none: the built-in kernels and certificates.
    pub bundle: Option<PathBuf>,
    /// The CPU or a GPU.
    pub on: On,
    /// Compiles the kernels that run on a GPU if there is no bundle; none: then there must be one.
    pub compile: Option<Compile>,
    /// How matrices in blocks are multiplied; none: in integers on a processor, in BF16 on a GPU.
    pub arithmetic: Option<Arithmetic>,
    /// How a processor keeps weights; changes no bit.
    pub storage: Storage,
    /// A processor's instruction set; none: the fastest that this machine has. It changes no bit.
    pub isa: Option<Isa>,
    /// The pool that a device is going to have, as far as it is known: a model is refused if weights and pool do not fit together.
    pub pool: pool::Asked,
}

/// The settings of one device.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// Pages of the pool ([`mod@vosti_wiring::caches`]); none: as many as fit into a GPU's free memory, or one.
    pub pages: Option<usize>,
    /// Sequences that must find room for their states.
    pub together: usize,
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
            together: 1,
            rows_max: Policy::default().rows_step_max,
            threads: None,
            isa: None,
            storage: None,
        }
    }
}

/// Percentage of a GPU's memory, after weights and buffers, that the KV pool gets if no flag says. The rest is for modules,
/// recorded graphs and the driver.
const POOL_PERCENT: u64 = 90;
/// Rows of a step on a GPU, at most. With 2,048 rows a matrix of 4,096 columns has 512 tiles of 128 by 128 for some 130
/// multiprocessors; with the CPU's 512 rows it would have 128.
pub const GPU_ROWS_STEP_MAX: usize = 2048;
/// Rows of a step in which a sequence decodes, at most, for each thread of a CPU: a third of a second of one core with a model of
/// 135 million weights. More rows at once are not faster there.
const CPU_ROWS_MIXED_MAX: usize = 256;
/// Rows of logits that a step may have. A row is as wide as the vocabulary, and on a GPU page-locked memory holds it too. The
/// determinism suite asks for steps of 32,768 rows: as many rows of 128,256 logits would take 16 GB.
const SELECTED_MAX: usize = 512;

/// What a deployment runs on, with the weights that all its devices share.
enum Hardware {
    Cpu { weights: Arc<WeightCache> },
    Gpu { gpu: Gpu, weights: Arc<vosti_cuda::WeightCache> },
}

/// A model that is planned and loaded, with its fingerprint.
pub struct Deployment {
    name: String,
    source: ModelSource,
    /// A configuration alone has none.
    text: Option<Arc<Text>>,
    plan: ModelPlan,
    /// What devices run.
    admitted: Admitted,
    target: String,
    bundle: Bundle,
    files: manifest::Model,
    threads: usize,
    arithmetic: Arithmetic,
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

    /// As [`Deployment::load`], with these tensors in place of the folder's. The fingerprint is that of a folder with the new tensors.
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
        let (mut bundle, target, hardware) = match options.on {
            On::Cpu => {
                let bundle = Bundle::open(options.bundle.as_deref())?;
                bundle.check_target(CPU)?;
                (bundle, CPU.to_string(), Hardware::Cpu { weights: Arc::default() })
            }
            On::Gpu(open, index) => {
                let gpu = open(index)?;
                let bundle = Bundle::open(options.bundle.as_deref())?;
                let target = target(&bundle, gpu.about(), options.compile.is_some())?;
                let weights = Arc::new(vosti_cuda::WeightCache::new(gpu.another()?));
                (bundle, target, Hardware::Gpu { gpu, weights })
            }
        };
        check_context(&source, options.context)?;
        let context = options.context.or(bundle.manifest().map(|manifest| manifest.context));
        let planned = Target::named(&target);
        let arithmetic = options.arithmetic.unwrap_or(planned.arithmetic);
        let plan = source.plan(&planned.with_arithmetic(arithmetic), context)?;
        if options.bundle.is_none() {
            vosti_model::check_kernels(&plan)?;
        }
        // Whose error it is comes later: a bundle for another model says so.
        let admitted = bundle.admit(&plan);
        if let Hardware::Cpu { .. } = hardware {
            taken(&source, &plan, admitted.as_ref().ok(), options)
                .map_or(Ok(()), |taken| taken.check(memory::available()))?;
        }
        // Made beside the weights: a large vocabulary takes a second.
        let own = source.clone();
        let text = std::thread::spawn(move || {
            let text = own.text();
            give_back();
            text
        });
        let files = manifest::Model::of_contents(path, |file| source.held(file))
            .map_err(|(path, error)| DeployError::Io { path, error })?;
        bundle.check_origin(&files, &target, &plan)?;
        let admitted = admitted?;
        if let (Hardware::Gpu { .. }, Some(compile), None) = (&hardware, options.compile, bundle.manifest()) {
            bundle = bundle.with_cubins(compile(&target, &plan, &admitted).map_err(DeployError::Compile)?);
        }
        let mut deployment = Deployment {
            name: name.to_string(),
            source,
            text: None,
            plan,
            admitted,
            target,
            bundle,
            files,
            threads,
            arithmetic,
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

    /// The sampling parameters of requests that give none: those of the model's own files, else the catalogue's. The command, the
    /// server, its page and the Python package all take them from here.
    pub fn sampling(&self) -> Result<Defaults, DeployError> {
        let file = &self.text()?.sampling;
        let key = |name, gguf: &'static str| if file.is_gguf() { gguf } else { name };
        let number = |name, gguf| file.number(key(name, gguf));
        let whole =
            |name, gguf, number| file.wrong(key(name, gguf), format!("is {number}, neither a whole number nor -1"));
        let given = Given::read(number, whole)?;
        if given == Given::default() {
            return Ok(crate::catalogue::sampling(&self.name, file.is_gguf()));
        }
        let wrong = |why: SamplingError| file.wrong("sampling", why.to_string());
        Ok(Defaults { numbers: given.over(&Numbers::default()).map_err(wrong)?, source: file.file() })
    }

    /// The model's program.
    pub fn program(&self) -> &Program {
        &self.plan.program
    }

    /// The program with its bindings and weight recipes.
    pub fn plan(&self) -> &ModelPlan {
        &self.plan
    }

    /// What its devices run.
    pub fn admitted(&self) -> &Admitted {
        &self.admitted
    }

    /// Where the kernels come from.
    pub fn bundle(&self) -> &Bundle {
        &self.bundle
    }

    /// The deployment's GPU; none on a CPU.
    pub fn gpu(&self) -> Option<&Gpu> {
        match &self.hardware {
            Hardware::Cpu { .. } => None,
            Hardware::Gpu { gpu, .. } => Some(gpu),
        }
    }

    /// The scheduler's default policy: a GPU has more rows in a step than a CPU, where sequences that decode do not wait for
    /// long steps.
    pub fn policy(&self) -> Policy {
        let policy = Policy::default();
        match self.hardware {
            Hardware::Cpu { .. } => Policy { rows_mixed_max: CPU_ROWS_MIXED_MAX * self.threads(), ..policy },
            Hardware::Gpu { .. } => Policy { rows_step_max: GPU_ROWS_STEP_MAX, ..policy },
        }
    }

    /// Bytes of a matrix element in memory, on average over all matrices; 2 on a GPU.
    pub fn element_bytes(&self) -> f64 {
        let (bytes, elements) = self.matrices;
        if elements == 0 { 2.0 } else { bytes as f64 / elements as f64 }
    }

    /// Worker threads of its devices, if [`DeviceConfig`] says no other number.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Instruction set of its processor's kernels.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// `vosti-` and 32 hex digits of BLAKE3 over everything that fixes the bits (`deployment/fingerprint.rs`).
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// One line about the model.
    pub fn describe(&self) -> String {
        let decoder = self.source.decoder();
        let (layers, context) = (decoder.layers.len(), self.program().context);
        format!("{}: {}, {layers} layers, vocabulary {}, context {context}", self.name, decoder.family, decoder.vocab)
    }

    /// How many tensors of images and sounds the model's files have. They are not read: requests are texts.
    pub fn left_out(&self) -> usize {
        self.source.left_out()
    }

    /// Matrices that are not multiplied in integers. One that only the embedding reads is in no product.
    fn other_products(&self) -> usize {
        let launches = self.plan.bindings.iter().flat_map(|binding| &binding.launches);
        let names = launches.filter(|launch| launch.spec.kernel != "embed").flat_map(|launch| launch.weights.values());
        names.filter(|name| matches!(self.plan.weights[*name].recipe, Recipe::Matrix { .. })).count()
    }

    /// Whether a matrix is kept in a form that `--weights expanded` expands.
    pub fn stores(&self) -> bool {
        self.element_bytes() < 2.0 && self.other_products() > 0
    }

    /// How its matrices are multiplied: those in blocks, and the others.
    pub fn arithmetic(&self) -> String {
        let integers = |weight: &&Weight| matches!(weight.recipe, Recipe::Blocks { part: Part::Codes, .. });
        let count = self.plan.weights.values().filter(integers).count();
        match (count, self.other_products()) {
            (0, _) => Arithmetic::Bf16.to_string(),
            (_, 0) => self.arithmetic.to_string(),
            (_, others) => format!("{}; {} of {} matrices in bf16", self.arithmetic, others, count + others),
        }
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

    /// An engine over a device with an empty pool. On a processor, requests may ask for the experts of a mixture.
    pub fn engine(&self, asked: &DeviceConfig, policy: Policy) -> Result<Engine<AnyDevice>, DeployError> {
        let mut engine = Engine::new(self.device(asked)?, self.program().clone(), policy)?;
        let buffers = &self.plan.routed;
        let read = |device: &AnyDevice, buffer: u32, row: usize| match device {
            AnyDevice::Cpu(device) => device.integers(buffer, row).to_vec(),
            AnyDevice::Gpu(_) => vec![],
        };
        let shown = self.gpu().is_none() && !buffers.is_empty();
        engine.set_routing(shown.then(|| Routing { buffers: buffers.clone(), read }));
        Ok(engine)
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
        // More bytes than one allocation may have.
        if pool_bytes(self.program(), asked.pages.unwrap_or(1)) > isize::MAX as u64 {
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
        let source = DeviceWeights { source: &self.source, plan: &self.plan, progress };
        match &self.hardware {
            Hardware::Cpu { weights } => {
                let threads = asked.threads.unwrap_or(self.threads);
                let pages = vosti_wiring::pool(program, asked.pages.unwrap_or(1), asked.together);
                let mut config = Config::new(asked.rows_max, selected_max(asked), pages, threads);
                config.isa = Some(asked.isa.unwrap_or(self.isa));
                config.storage = asked.storage.unwrap_or(self.storage);
                config.positions = longest(program, &config.pages);
                config.weights = Some(weights.clone());
                let device = CpuDevice::new(program, &self.admitted, &source, config).map_err(|error| match error {
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
                    Some(pages) => Pages::Each(vosti_wiring::pool(program, pages, asked.together)),
                    None => Pages::Fill { percent: POOL_PERCENT },
                };
                config.weights = Some(weights.clone());
                let (own, cubins) = (gpu.another()?, self.bundle.cubins());
                let device = CudaDevice::new(own, &self.target, program, &self.admitted, cubins, &source, config)?;
                Ok(AnyDevice::Gpu(device.into()))
            }
        }
    }

    fn no_memory(&self, asked: &DeviceConfig, error: io::Error) -> DeployError {
        let pages = asked.pages.unwrap_or(1);
        DeployError::NoMemory { pages, bytes: pool_bytes(self.program(), pages), error }
    }

    /// Loads every weight into the cache that all devices share.
    fn warm(&self, progress: &dyn Progress) -> Result<(u64, u64), DeployError> {
        // A matrix that an embedding reads too is in memory once.
        let parts = self.plan.weights.values().filter_map(|weight| match &weight.recipe {
            Recipe::Blocks { matrix, .. } => Some(matrix),
            _ => None,
        });
        let parts: HashSet<&String> = parts.collect();
        let once = self.plan.weights.iter().filter(|(name, _)| !parts.contains(name)).map(|(_, weight)| weight);
        progress.stage(&format!("loading {}", self.name), once.filter_map(bytes).sum());
        let asked = DeviceConfig { rows_max: 1, threads: Some(1), ..DeviceConfig::default() };
        match self.make(self.program(), &asked, Some(&LoadProgress { progress, loaded: AtomicU64::new(0) })) {
            Ok(device) => Ok(device.matrices()),
            Err(_) if progress.cancelled() => Err(DeployError::Interrupted),
            Err(error) => Err(error),
        }
    }
}

/// Refuses a context that is longer than the model's own.
pub fn check_context(source: &ModelSource, asked: Option<u32>) -> Result<(), DeployError> {
    let most = source.decoder().context;
    match asked {
        Some(asked) if asked > most => Err(DeployError::Context { asked, most }),
        _ => Ok(()),
    }
}

/// The memory that a CPU would need; none if the model has an error, which loading reports.
fn taken(
    source: &ModelSource,
    plan: &ModelPlan,
    admitted: Option<&Admitted>,
    options: &DeployOptions,
) -> Option<Taken> {
    let admitted = admitted?;
    let (program, weights) = (&plan.program, DeviceWeights { source, plan, progress: None });
    let pages = options.pool.pages(program);
    let rows = Policy::default().rows_step_max;
    let mut config = Config::new(rows, rows.min(SELECTED_MAX), vosti_wiring::pool(program, pages, 1), 1);
    config.positions = longest(program, &config.pages);
    let mut needs = |storage| {
        config.storage = storage;
        CpuDevice::needs(program, admitted, &weights, &config).ok()
    };
    let needed = needs(options.storage)?;
    let other = (options.storage == Storage::Expanded).then(|| needs(Storage::AsTheyCome));
    let as_they_come = other.flatten().map(|needs| needs.weights);
    let pool = pool_bytes(program, pages);
    Some(Taken { weights: needed.weights, pages, pool, buffers: needed.buffers, as_they_come })
}

/// The target of a bundle's machine code, if a GPU of this kind runs it, or of the code that is compiled for this GPU.
fn target(bundle: &Bundle, about: &About, compiles: bool) -> Result<String, DeployError> {
    let none = || CudaError::NoTarget { name: about.name.clone(), capability: about.capability, known: Arch::known() };
    let wanted = format!("cuda-{}", Arch::of_capability(about.capability).ok_or_else(none)?);
    let Some(manifest) = bundle.manifest() else {
        return if compiles { Ok(wanted) } else { Err(DeployError::NoBundle { target: wanted }) };
    };
    match Arch::of_target(&manifest.target) {
        Ok(arch) if arch.runs_on(about.capability) => Ok(manifest.target.clone()),
        _ => Err(BundleError::Target { folder: bundle.origin(), found: manifest.target.clone(), wanted }.into()),
    }
}

/// Returns freed memory to the system. GNU's C library keeps it: after Gemma's tokenizer is built, as much as the tokenizer takes.
fn give_back() {
    // SAFETY: it frees nothing that is in use.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Rows of logits that a step may have. A step selects one row of a request that generates, and more only for a prompt's
/// log-probabilities or for drafts; if more rows are selected, the engine splits them over several steps.
fn selected_max(asked: &DeviceConfig) -> usize {
    asked.rows_max.min(SELECTED_MAX)
}

/// Bytes of a weight; none for a rotary table, whose length depends on the pool.
fn bytes(weight: &Weight) -> Option<u64> {
    match weight.recipe {
        Recipe::Rope { .. } => None,
        // Codes are counted as BF16 and with all that belongs to them.
        Recipe::Blocks { .. } => weight.matrix_elements().map(|elements| 2 * elements as u64),
        _ => Some((Scalar::from(weight.dtype()).bytes() * weight.shape().iter().product::<usize>()) as u64),
    }
}

/// Positions that a request can have with so many pages of each group; none if every group has a window.
fn longest(program: &Program, pages: &[usize]) -> Option<usize> {
    let groups = program.groups.iter().zip(pages).filter(|(group, _)| group.window.is_none());
    groups.map(|(_, pages)| pages.saturating_mul(PAGE)).min()
}
