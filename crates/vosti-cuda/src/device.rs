//! The device: runs the core's steps as launches on one GPU.
//!
//! Everything is loaded, uploaded and allocated when it is made. A step uploads its metadata, launches the program's
//! kernels in order and waits once, for the logits. Steps in which every request has one row are recorded per row count
//! on first use and replayed after that; the count is exact, so a recorded grid is the contract's, and no row is padding.
//! Read next: [`crate::launch`], [`crate::step`].

use crate::arch::Arch;
use crate::driver::{Address, Driver, DriverError, Graph};
use crate::error::CudaError;
use crate::image::Image;
use crate::inspect::SCRATCH_PARAMS;
use crate::launch::Code;
use crate::step::Step;
use crate::weights;
use std::collections::{BTreeMap, HashMap};
use vosti_core::{Device, DeviceError, Program, StepPlan};
use vosti_kernels::Binding;
use vosti_wiring::{Bound, Weights, Wiring, caches, wire};

/// Rows up to which steps of one row a request are recorded. Larger ones are launched kernel by kernel.
pub const RECORDED_ROWS_MAX: usize = 64;
/// What the driver's allocations are multiples of, in bytes.
const ALIGN: u64 = 256;

/// A device's limits.
#[derive(Clone, Debug)]
pub struct Config {
    /// Rows that one step may have.
    pub rows_max: usize,
    /// Selected rows that one step may have.
    pub selected_max: usize,
    /// Pages of each cache group.
    pub pages: Vec<usize>,
    /// Record and replay launches.
    pub graphs: bool,
}

impl Config {
    pub fn new(rows_max: usize, selected_max: usize, pages: Vec<usize>) -> Self {
        Self { rows_max, selected_max, pages, graphs: true }
    }
}

/// A device of the core on a GPU.
pub struct CudaDevice<D> {
    driver: D,
    config: Config,
    program: Program,
    wiring: Wiring<Code>,
    step: Step,
    /// The parameters of every launch, scratch included.
    pointers: Vec<Vec<Address>>,
    /// Each with its bytes.
    caches: Vec<(Address, u64)>,
    metadata: Address,
    logits_at: Address,
    logits: Vec<f32>,
    graphs: HashMap<usize, Graph>,
    /// Why nothing more can be run.
    broken: Option<String>,
}

/// A buffer that has to be allocated.
struct Wanted {
    bound: Bound,
    bytes: u64,
}

impl<D: Driver> CudaDevice<D> {
    /// Loads the program's kernels from a bundle for `target`, uploads its weights and allocates everything else.
    pub fn new(
        mut driver: D,
        target: &str,
        program: &Program,
        bindings: &[Binding],
        images: &BTreeMap<String, Image>,
        weights: &dyn Weights,
        config: Config,
    ) -> Result<Self, CudaError> {
        let arch = Arch::of_target(target)?;
        let about = driver.about().clone();
        if !arch.runs_on(about.capability) {
            return Err(CudaError::OtherDevice {
                target: target.into(),
                name: about.name,
                capability: about.capability,
            });
        }
        let wiring = wire(program, bindings, |spec| {
            let spec = spec.to_string();
            let image = images.get(&spec).ok_or(CudaError::NotInBundle { spec })?;
            Code::load(&mut driver, image, arch)
        })?;
        let step = Step::new(program, &wiring.tilings, config.rows_max, config.selected_max);
        let wanted = buffers(program, &wiring, &config, weights)?;
        let scratch = scratch(&wiring, &config)?;
        let rounded = |bytes: u64| bytes.max(1).next_multiple_of(ALIGN);
        let sizes = wanted.iter().map(|w| w.bytes).chain(scratch).chain([step.bytes()]);
        let (needs, free) = (sizes.map(rounded).sum(), driver.free_bytes()?);
        if needs > free {
            return Err(CudaError::Room { needs, free });
        }
        let mut addresses: HashMap<Bound, Address> = HashMap::new();
        let mut caches = vec![];
        for Wanted { bound, bytes } in &wanted {
            let at = driver.allocate(rounded(*bytes))?;
            addresses.insert(*bound, at);
            match bound {
                Bound::Weight(i) => {
                    weights::upload(&mut driver, at, weights, &wiring.weights[*i], wiring.elem(*bound))?;
                }
                _ => driver.zero(at, rounded(*bytes))?,
            }
            if matches!(bound, Bound::CacheK(_) | Bound::CacheV(_)) {
                caches.push((at, rounded(*bytes)));
            }
        }
        let metadata = driver.allocate(rounded(step.bytes()))?;
        let mut scratch_at = [0; SCRATCH_PARAMS];
        for (at, bytes) in scratch_at.iter_mut().zip(scratch).filter(|(_, bytes)| *bytes > 0) {
            *at = driver.allocate(rounded(bytes))?;
        }
        let address = |bound: &Bound| match bound {
            Bound::Meta(meta) => metadata + step.start(*meta),
            other => addresses.get(other).copied().unwrap_or(0),
        };
        let pointers = wiring.launches.iter().map(|launch| {
            let own = launch.params.iter().map(address);
            own.chain(scratch_at).collect()
        });
        let pointers = pointers.collect();
        let logits_at = address(&Bound::Row(program.logits as usize));
        let logits = vec![0.0; config.selected_max * program.vocab as usize];
        let (program, graphs) = (program.clone(), HashMap::new());
        driver.synchronise()?;
        Ok(Self {
            driver,
            config,
            program,
            wiring,
            step,
            pointers,
            caches,
            metadata,
            logits_at,
            logits,
            graphs,
            broken: None,
        })
    }

    pub fn driver(&self) -> &D {
        &self.driver
    }

    pub fn driver_mut(&mut self) -> &mut D {
        &mut self.driver
    }

    /// Every launch of the step that was filled, in order.
    fn launch(&mut self) -> Result<(), CudaError> {
        for (launch, pointers) in self.wiring.launches.iter().zip(&self.pointers) {
            let extent = self.step.extent(launch.size);
            self.wiring.kernels[launch.kernel].launch(&mut self.driver, extent, pointers)?;
        }
        Ok(())
    }

    fn record(&mut self) -> Result<Graph, CudaError> {
        self.driver.begin_recording()?;
        let launched = self.launch();
        // Ended in any case: a stream that records does nothing else.
        let graph = self.driver.end_recording();
        launched?;
        Ok(graph?)
    }

    fn run_filled(&mut self, plan: &StepPlan) -> Result<(), CudaError> {
        let (rows, selected) = (plan.rows(), plan.selected().len());
        self.step.upload(&mut self.driver, self.metadata)?;
        let single = plan.sequences().len() == rows && selected == rows;
        match self.config.graphs && single && rows <= RECORDED_ROWS_MAX {
            true => {
                let graph = match self.graphs.get(&rows) {
                    Some(graph) => *graph,
                    None => {
                        let graph = self.record()?;
                        self.graphs.insert(rows, graph);
                        graph
                    }
                };
                self.driver.replay(graph)?;
            }
            false => self.launch()?,
        }
        let len = selected * self.program.vocab as usize;
        Ok(self.driver.download(self.logits_at, &mut self.logits[..len])?)
    }

    fn zero_caches(&mut self) -> Result<(), DriverError> {
        for (at, bytes) in &self.caches {
            self.driver.zero(*at, *bytes)?;
        }
        Ok(())
    }
}

/// Everything but metadata and scratch.
fn buffers(
    program: &Program,
    wiring: &Wiring<Code>,
    config: &Config,
    weights: &dyn Weights,
) -> Result<Vec<Wanted>, CudaError> {
    let mut wanted = vec![];
    let mut want = |bound: Bound, len: usize| {
        wanted.push(Wanted { bound, bytes: len as u64 * wiring.elem(bound).bytes() as u64 });
    };
    for (i, (_, len)) in wiring.rows(program, config.rows_max, config.selected_max)?.into_iter().enumerate() {
        want(Bound::Row(i), len);
    }
    for (i, len) in caches(program, &config.pages)?.into_iter().enumerate() {
        want(Bound::CacheK(i), len);
        want(Bound::CacheV(i), len);
    }
    for (i, name) in wiring.weights.iter().enumerate() {
        let (rows, columns) = vosti_wiring::weights::shape(weights, name)?;
        want(Bound::Weight(i), rows * columns);
    }
    Ok(wanted)
}

/// Bytes of scratch for the largest launch of the largest step; launches run one after the other and share it.
fn scratch(wiring: &Wiring<Code>, config: &Config) -> Result<[u64; SCRATCH_PARAMS], CudaError> {
    let mut most = [0; SCRATCH_PARAMS];
    for launch in &wiring.launches {
        let code = &wiring.kernels[launch.kernel];
        let programs = code.programs(launch.size.most(config.rows_max, config.selected_max))?;
        for (most, scratch) in most.iter_mut().zip(code.scratch) {
            *most = (*most).max(scratch.bytes.saturating_mul(programs));
        }
    }
    Ok(most)
}

impl<D: Driver> Device for CudaDevice<D> {
    type Logits = [f32];

    fn rows_max(&self) -> usize {
        self.config.rows_max
    }

    fn selected_max(&self) -> usize {
        self.config.selected_max
    }

    fn pages(&self, group: usize) -> usize {
        self.config.pages[group]
    }

    fn clear(&mut self) {
        if let Err(error) = self.zero_caches() {
            self.broken = Some(error.to_string());
        }
    }

    fn run(&mut self, program: &Program, plan: &StepPlan) -> Result<(), DeviceError> {
        if *program != self.program {
            return Err(DeviceError { message: "the device was made for another program".into(), intact: true });
        }
        if let Some(why) = &self.broken {
            let message = format!("the GPU has failed before: {why}; restart");
            return Err(DeviceError { message, intact: false });
        }
        self.step.fill(plan).map_err(|message| DeviceError { message, intact: true })?;
        self.run_filled(plan).map_err(|error| {
            self.broken = Some(error.to_string());
            DeviceError { message: error.to_string(), intact: false }
        })
    }

    fn logits(&self, selected: usize) -> &[f32] {
        let vocab = self.program.vocab as usize;
        &self.logits[selected * vocab..][..vocab]
    }
}
