//! The device: runs the core's steps as launches on one GPU.
//!
//! Making a device loads, uploads and allocates everything. A step uploads its metadata, launches the program's kernels in order
//! and waits once, for the best tokens and for the lists and rows of logits that the plan asks for. A step in which every
//! request has one row is launched with room for the next larger of a few row counts; these launches are recorded on the first
//! use of each count and replayed after that. No row is padding: kernels read the row count from a buffer, and the proofs
//! cover spare programs.
//! Read next: [`crate::launch`], [`crate::step`].

use crate::driver::{About, Address, Driver, DriverError, Graph, TensorMap};
use crate::error::CudaError;
use crate::launch::Code;
use crate::outputs::Outputs;
use crate::step::Step;
use crate::weights::{WeightCache, rounded};
use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::sync::{Arc, Mutex};
use vosti_contract::Extent;
use vosti_core::{Device, DeviceError, Draw, Program, StepPlan, Token};
use vosti_cubin::inspect::SCRATCH_PARAMS;
use vosti_cubin::{Arch, Cubin, alike};
use vosti_kernels::Admitted;
use vosti_wiring::{Bound, Size, Way, Weights, Wired, Wiring, caches, drawn, evenly, listed, most_pages, pool, wire};

/// Row counts of recordings. A step with one row for each request uses the smallest count that holds its rows; larger steps are
/// launched kernel by kernel. A matrix product has one tile of 16 or 64 rows for all of these counts. Other kernels have a
/// program for 4 or 16 rows. Attention has one for each row, KV head and split of the positions that the recording serves, and
/// with splits another one for each row and KV head. Spare programs read a few integers and stop.
pub const RECORDED_ROWS: [usize; 9] = [1, 2, 4, 8, 16, 24, 32, 48, 64];
/// The fewest positions that a recording serves. For longer requests it serves the next power of two, at most the context.
pub const RECORDED_LENGTH: usize = 2048;
/// The most pages of a group: slots are 32-bit integers in the kernels' metadata.
const PAGES_MAX: usize = i32::MAX as usize / vosti_core::PAGE;

/// The number of pages of each cache group.
#[derive(Clone, Debug)]
pub enum Pages {
    /// By cache group, in pages of [`vosti_core::PAGE`] tokens.
    Each(Vec<usize>),
    /// As many pages as fit into this share of the memory that weights and buffers leave free.
    Fill {
        /// From 1 to 100.
        percent: u64,
    },
}

/// A device's limits.
#[derive(Clone, Debug)]
pub struct Config {
    /// Rows that one step may have.
    pub rows_max: usize,
    /// Selected rows that one step may have.
    pub selected_max: usize,
    /// The size of the pool.
    pub pages: Pages,
    /// Whether launches of decode steps are recorded and replayed.
    pub graphs: bool,
    /// Shared with other devices of the same model: weights are uploaded once for all.
    pub weights: Option<Arc<WeightCache>>,
}

impl Config {
    /// These limits and pages, with recordings, and with weights that are not shared.
    pub fn new(rows_max: usize, selected_max: usize, pages: Vec<usize>) -> Self {
        Self { rows_max, selected_max, pages: Pages::Each(pages), graphs: true, weights: None }
    }
}

/// A device of the core on a GPU.
pub struct CudaDevice<D> {
    pub(crate) driver: D,
    pub(crate) program: Program,
    pub(crate) wiring: Wiring<Code>,
    /// The parameters of every launch, scratch included. Those of metadata are set before each launch.
    pub(crate) pointers: Vec<Vec<Address>>,
    /// The tensor maps of each kernel that may run in a launch, by the launch and the kernel. Their buffers stay where they are.
    pub(crate) maps: HashMap<(usize, usize), Vec<TensorMap>>,
    /// Bytes of the buffer that each parameter is bound to.
    pub(crate) sizes: HashMap<Bound, u64>,
    /// Pages of each cache group.
    pub(crate) pages: Vec<usize>,
    pub(crate) rows_max: usize,
    pub(crate) selected_max: usize,
    graphs_on: bool,
    pub(crate) step: Step,
    weights: Arc<WeightCache>,
    /// Addresses and bytes of the caches.
    caches: Vec<(Address, u64)>,
    metadata: Address,
    outputs: Outputs,
    /// Recordings, by their row count, the positions that they serve, and whether they make lists and draw tokens.
    graphs: HashMap<(usize, usize, [bool; 2]), Graph>,
    /// Seconds by specialisation, while launches are timed.
    times: Option<Mutex<BTreeMap<String, f64>>>,
    /// The failure after which the device runs no more steps.
    broken: Option<String>,
}

/// Bytes of everything other than weights and caches.
struct Fixed {
    rows: Vec<u64>,
    /// Bytes of the scratch buffers through which launches of an op pass results.
    handed: Vec<u64>,
    scratch: [u64; SCRATCH_PARAMS],
    metadata: u64,
}

impl Fixed {
    fn of(program: &Program, wiring: &Wiring<Code>, config: &Config, metadata: u64) -> Result<Fixed, CudaError> {
        let bytes = |list: Vec<(vosti_tile::Scalar, usize)>| -> Vec<u64> {
            list.into_iter().map(|(elem, len)| (len * elem.bytes()) as u64).collect()
        };
        let rows = bytes(wiring.rows(config.rows_max, config.selected_max));
        let context = program.context as usize;
        let handed = bytes(wiring.scratches(context));
        Ok(Fixed { rows, handed, scratch: scratch(wiring, config, context)?, metadata })
    }

    fn bytes(&self) -> u64 {
        let scratch = self.scratch.iter().filter(|bytes| **bytes > 0);
        self.rows.iter().chain(&self.handed).chain(scratch).chain([&self.metadata]).map(|bytes| rounded(*bytes)).sum()
    }
}

impl<D: Driver> CudaDevice<D> {
    /// Loads the program's kernels from a bundle for `target`, uploads its weights and allocates everything else. It counts the
    /// memory before it allocates any. Errors: a bundle that does not fit the GPU or the program, weights that cannot be read,
    /// too little memory, a failure of the driver.
    pub fn new(
        driver: D,
        target: &str,
        program: &Program,
        admitted: &Admitted,
        cubins: &BTreeMap<String, Cubin>,
        source: &dyn Weights,
        config: Config,
    ) -> Result<Self, CudaError> {
        let (rows, context) = (config.rows_max, program.context);
        let made = Self::make(driver, target, program, admitted, cubins, source, config);
        // The count was enough, and an allocation failed: another process took memory, or memory is fragmented.
        made.map_err(|error| match error {
            CudaError::Driver(source @ DriverError::Memory { .. }) => CudaError::Full { source, rows, context },
            other => other,
        })
    }

    fn make(
        mut driver: D,
        target: &str,
        program: &Program,
        admitted: &Admitted,
        cubins: &BTreeMap<String, Cubin>,
        source: &dyn Weights,
        config: Config,
    ) -> Result<Self, CudaError> {
        let arch = fitting(target, driver.about())?;
        let wiring = wire(program, &admitted.bindings, admitted.draws.as_ref(), config.rows_max, |spec| {
            let name = spec.to_string();
            let cubin = cubins.get(&name).ok_or(CudaError::NotInBundle { spec: name })?;
            Code::load(&mut driver, cubin, admitted.kernel(spec)?, arch)
        })?;
        alike(&admitted.bindings, |spec| cubins.get(&spec.to_string()))?;
        let image = vosti_wiring::image(program, &wiring.tilings, config.rows_max, config.selected_max)?;
        let step = Step::new(&mut driver, image)?;
        let weights = match &config.weights {
            Some(weights) => weights.clone(),
            None => Arc::new(WeightCache::new(driver.another()?)),
        };
        let fixed = Fixed::of(program, &wiring, &config, step.bytes())?;
        let mut missing = 0;
        for (i, name) in wiring.weights.iter().enumerate() {
            missing += weights.missing(source, name, wiring.elem(Bound::Weight(i)))?;
        }
        let pages = pages(program, &wiring, &config, driver.free_bytes()?, missing, fixed.bytes())?;

        let (mut addresses, mut sizes): (HashMap<Bound, Address>, HashMap<Bound, u64>) = Default::default();
        for (i, name) in wiring.weights.iter().enumerate() {
            let bound = Bound::Weight(i);
            let (at, bytes) = weights.get(source, name, wiring.elem(bound))?;
            addresses.insert(bound, at);
            sizes.insert(bound, bytes);
        }
        let mut zeroed = |driver: &mut D, bound: Bound, bytes: u64| {
            let at = driver.allocate(rounded(bytes))?;
            driver.zero(at, rounded(bytes))?;
            addresses.insert(bound, at);
            sizes.insert(bound, bytes);
            Ok::<_, DriverError>((at, rounded(bytes)))
        };
        for (i, bytes) in fixed.rows.iter().enumerate() {
            zeroed(&mut driver, Bound::Row(i), *bytes)?;
        }
        for (i, bytes) in fixed.handed.iter().enumerate() {
            zeroed(&mut driver, Bound::Scratch(i), *bytes)?;
        }
        let mut cached = vec![];
        for (bound, len) in caches(program, &pages)? {
            cached.push(zeroed(&mut driver, bound, (len * wiring.elem(bound).bytes()) as u64)?);
        }
        let metadata = driver.allocate(rounded(fixed.metadata))?;
        let mut scratch_at = [0; SCRATCH_PARAMS];
        for (at, bytes) in scratch_at.iter_mut().zip(fixed.scratch).filter(|(_, bytes)| *bytes > 0) {
            *at = driver.allocate(rounded(bytes))?;
        }
        let address = |bound: &Bound| addresses.get(bound).copied().unwrap_or(0);
        let at = |launch: &Wired, bound: &Bound| {
            address(bound) + (launch.start(*bound, &wiring.whole) * wiring.elem(*bound).bytes()) as u64
        };
        let own = |launch: &Wired| launch.params.iter().map(|bound| at(launch, bound)).chain(scratch_at).collect();
        let pointers: Vec<Vec<Address>> = wiring.launches.iter().map(own).collect();
        let mut maps = HashMap::new();
        for (i, launch) in wiring.launches.iter().enumerate() {
            let behind = |param: usize| {
                let bound = launch.params[param];
                let before = at(launch, &bound) - address(&bound);
                sizes.get(&bound).map_or(0, |bytes| bytes.saturating_sub(before))
            };
            for way in launch.ways() {
                let own = wiring.kernels[way.kernel].maps(&mut driver, &pointers[i], behind)?;
                maps.insert((i, way.kernel), own);
            }
        }
        let row = |buffer| address(&Bound::Row(buffer));
        let outputs = Outputs::new(&mut driver, program, admitted.draws.as_ref(), config.selected_max, row)?;
        driver.synchronise()?;
        Ok(Self {
            driver,
            program: program.clone(),
            wiring,
            pointers,
            maps,
            sizes,
            pages,
            rows_max: config.rows_max,
            selected_max: config.selected_max,
            graphs_on: config.graphs,
            step,
            weights,
            caches: cached,
            metadata,
            outputs,
            graphs: HashMap::new(),
            times: None,
            broken: None,
        })
    }

    /// Bytes of the weights, and bytes of the KV pool.
    pub fn bytes(&self) -> (u64, u64) {
        (self.weights.bytes(), self.caches.iter().map(|(_, bytes)| bytes).sum())
    }

    /// Bytes of random weights that the GPU made itself.
    pub fn made(&self) -> u64 {
        self.weights.made()
    }

    /// Times every launch from now on, by the device's clock. Steps are then launched kernel by kernel, with the grids of the
    /// recordings.
    pub fn time_launches(&mut self) {
        self.times = Some(Mutex::default());
    }

    /// Each specialisation and its seconds since the last call; empty if launches are not timed.
    pub fn take_times(&self) -> Vec<(String, f64)> {
        let taken = self.times.as_ref().map(|times| mem::take(&mut *times.lock().unwrap_or_else(|e| e.into_inner())));
        taken.into_iter().flatten().collect()
    }

    /// The driver that the device runs on.
    pub fn driver(&self) -> &D {
        &self.driver
    }

    /// The driver, mutable: for tests that make it fail.
    pub fn driver_mut(&mut self) -> &mut D {
        &mut self.driver
    }

    /// Sets those parameters of a launch that are metadata to the present addresses of the arrays that `way` reads.
    pub(crate) fn point(&mut self, launch: usize, way: Way) {
        for (bound, pointer) in self.wiring.launches[launch].params.iter().zip(&mut self.pointers[launch]) {
            if let Bound::Meta(meta) = bound {
                *pointer = self.metadata + self.step.start(way.reads(*meta));
            }
        }
    }

    /// Makes every launch of the filled step, in order, over its own length or over `length` positions.
    fn launch(&mut self, length: Option<usize>) -> Result<(), CudaError> {
        let mut named = vec![];
        if self.times.is_some() {
            self.driver.mark()?;
        }
        let places = self.driver.about().multiprocessors;
        let mut launches = 0..self.wiring.launches.len();
        while let Some(i) = launches.next() {
            let (launch, kernels, step) = (&self.wiring.launches[i], &self.wiring.kernels, &self.step);
            let extent = |size: Size| {
                let own = step.extent(size);
                Extent { length: length.unwrap_or(own.length), ..own }
            };
            // A recording serves later steps too, so nothing of this one decides there.
            let folded = if length.is_none() { folded(kernels, launch, step, places as usize)? } else { &[] };
            let way = match folded {
                [] => chosen(kernels, launch.own(), &launch.higher, extent, places)?,
                [lowest, higher @ ..] => {
                    launches.next();
                    chosen(kernels, *lowest, higher, extent, places)?
                }
            };
            let extent = extent(way.size);
            self.point(i, way);
            let maps = maps_of(&self.maps, i, way.kernel);
            self.wiring.kernels[way.kernel].launch(&mut self.driver, extent, &self.pointers[i], maps)?;
            if self.times.is_some() {
                self.driver.mark()?;
                named.push(way.kernel);
            }
        }
        let Some(times) = &mut self.times else { return Ok(()) };
        let times = times.get_mut().unwrap_or_else(|e| e.into_inner());
        for (kernel, seconds) in named.into_iter().zip(self.driver.laps()?) {
            *times.entry(self.wiring.kernels[kernel].spec.to_string()).or_default() += seconds;
        }
        Ok(())
    }

    /// Records the step's launches over `length` positions. Shorter steps replay the recording too: programs of splits that a
    /// step does not reach do nothing.
    fn record(&mut self, length: usize) -> Result<Graph, CudaError> {
        self.driver.begin_recording()?;
        let launched = self.launch(Some(length));
        // Also after an error: a stream that records runs nothing.
        let graph = self.driver.end_recording();
        launched?;
        Ok(graph?)
    }

    /// The row count of this step's recording; `None` if the step is launched kernel by kernel.
    fn room(&self, plan: &StepPlan) -> Option<usize> {
        let (rows, selected) = (plan.rows(), plan.selected().len());
        let single = plan.sequences().len() == rows && selected == rows;
        let next = RECORDED_ROWS.into_iter().find(|room| rows <= *room).filter(|_| self.graphs_on && single)?;
        // The device's buffers limit the rows of a recording.
        Some(next.min(self.rows_max).min(self.selected_max))
    }

    fn run_filled(&mut self, plan: &StepPlan, room: Option<usize>) -> Result<(), CudaError> {
        self.step.upload(&mut self.driver, self.metadata)?;
        self.outputs.upload(&mut self.driver, plan)?;
        let length = self.step.length().max(RECORDED_LENGTH).next_power_of_two().min(self.program.context as usize);
        match room {
            Some(_) if self.times.is_some() => self.launch(Some(length))?,
            Some(room) => self.replay((room, length, [listed(plan), drawn(plan)]))?,
            None => self.launch(None)?,
        }
        Ok(self.outputs.download(&mut self.driver, plan)?)
    }

    /// Replays the recording for a row count, a length, with or without lists and draws. Records it first if there is none.
    fn replay(&mut self, which: (usize, usize, [bool; 2])) -> Result<(), CudaError> {
        let graph = match self.graphs.get(&which) {
            Some(graph) => *graph,
            None => {
                let graph = self.record(which.1)?;
                self.graphs.insert(which, graph);
                graph
            }
        };
        Ok(self.driver.replay(graph)?)
    }

    fn zero_caches(&mut self) -> Result<(), DriverError> {
        for (at, bytes) in &self.caches {
            self.driver.zero(*at, *bytes)?;
        }
        Ok(())
    }
}

/// The tensor maps of a kernel in a launch.
pub(crate) fn maps_of(maps: &HashMap<(usize, usize), Vec<TensorMap>>, launch: usize, kernel: usize) -> &[TensorMap] {
    maps.get(&(launch, kernel)).map_or(&[], Vec::as_slice)
}

/// The kernel of a launch: of several heights of row tiles, the one that costs least in this step. All are proved to give the same
/// bits.
fn chosen(
    kernels: &[Code],
    lowest: Way,
    higher: &[Way],
    extent: impl Fn(Size) -> Extent,
    multiprocessors: u32,
) -> Result<Way, CudaError> {
    let mut least = (f64::INFINITY, lowest);
    for way in std::iter::once(lowest).chain(higher.iter().copied()).filter(|_| !higher.is_empty()) {
        let (code, extent) = (&kernels[way.kernel], extent(way.size));
        let cost = vosti_kernels::cost(&code.spec, code.grid(extent)?, extent.rows, multiprocessors);
        if cost < least.0 {
            least = (cost, way);
        }
    }
    Ok(least.1)
}

/// The kernels that fold their own splits, lowest row tiles first, if the filled step's work is shared out evenly with the first of
/// them on a GPU of so many multiprocessors: not where a few rows see many keys. They are proved to give the bits of the two
/// launches in whose place one runs.
fn folded<'w>(
    kernels: &[Code],
    launch: &'w Wired,
    step: &Step,
    multiprocessors: usize,
) -> Result<&'w [Way], CudaError> {
    let [Way { kernel, size: size @ Size::Tiles(tiling) }, ..] = launch.folded[..] else { return Ok(&[]) };
    let [_, heads, splits] = kernels[kernel].grid(step.extent(size))?;
    let even = evenly(step.pages(tiling), heads * splits, multiprocessors * kernels[kernel].blocks);
    Ok(if even { &launch.folded } else { &[] })
}

/// The architecture of a target, if this device runs its code.
fn fitting(target: &str, about: &About) -> Result<Arch, CudaError> {
    let arch = Arch::of_target(target)?;
    match arch.runs_on(about.capability) {
        true => Ok(arch),
        false => Err(CudaError::OtherDevice {
            target: target.into(),
            name: about.name.clone(),
            capability: about.capability,
        }),
    }
}

/// Pages of each group. Error: they do not fit into free memory beside everything else.
fn pages(
    program: &Program,
    wiring: &Wiring<Code>,
    config: &Config,
    free: u64,
    weights: u64,
    buffers: u64,
) -> Result<Vec<usize>, CudaError> {
    let rest = weights.saturating_add(buffers);
    if weights > free {
        return Err(CudaError::RoomForWeights { weights, free });
    }
    if rest > free {
        let (rows, context) = (config.rows_max, program.context);
        return Err(CudaError::RoomForBuffers { weights, buffers, free, rows, context });
    }
    let bytes = |pages: &[usize]| -> Result<u64, CudaError> {
        let bytes = |(bound, len): (Bound, usize)| rounded((len * wiring.elem(bound).bytes()) as u64);
        Ok(caches(program, pages)?.into_iter().map(bytes).sum())
    };
    let pages = match &config.pages {
        Pages::Each(pages) => pages.clone(),
        Pages::Fill { percent } => {
            let room = (free.saturating_sub(rest) as u128 * u128::from(*percent) / 100) as u64;
            let fits = |pages| bytes(&pool(program, pages, 1)).is_ok_and(|bytes| bytes <= room);
            pool(program, most_pages(PAGES_MAX, fits).max(1), 1)
        }
    };
    let needs = bytes(&pages)?.saturating_add(rest);
    match needs <= free {
        true => Ok(pages),
        false => Err(CudaError::RoomForPages { needs, free }),
    }
}

/// Bytes of scratch for the largest launch of the largest step; launches run one after the other and share it.
fn scratch(wiring: &Wiring<Code>, config: &Config, context: usize) -> Result<[u64; SCRATCH_PARAMS], CudaError> {
    let mut most = [0; SCRATCH_PARAMS];
    for Way { kernel, size } in wiring.launches.iter().flat_map(Wired::ways) {
        let code = &wiring.kernels[kernel];
        let grid = code.grid(size.most(config.rows_max, config.selected_max, context))?;
        let programs = grid.iter().map(|n| *n as u64).product();
        for (most, scratch) in most.iter_mut().zip(code.scratch) {
            *most = (*most).max(scratch.bytes.saturating_mul(programs));
        }
    }
    Ok(most)
}

impl<D: Driver> Device for CudaDevice<D> {
    type Logits = [f32];
    type Top = [(Token, f32)];

    fn rows_max(&self) -> usize {
        self.rows_max
    }

    fn selected_max(&self) -> usize {
        self.selected_max
    }

    fn pages(&self, group: usize) -> usize {
        self.pages[group]
    }

    fn top_max(&self) -> usize {
        self.outputs.top_max()
    }

    fn draws(&self) -> bool {
        self.outputs.draws()
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
        if let Some(message) = self.outputs.refuses(plan) {
            return Err(DeviceError { message: message.into(), intact: true });
        }
        let room = self.room(plan);
        self.step.fill(plan, room).map_err(|message| DeviceError { message, intact: true })?;
        self.run_filled(plan, room).map_err(|error| {
            self.broken = Some(error.to_string());
            DeviceError { message: error.to_string(), intact: false }
        })
    }

    fn logits(&self, selected: usize) -> &[f32] {
        self.outputs.logits(selected)
    }

    fn best(&self, selected: usize) -> Token {
        self.outputs.best(selected)
    }

    fn top(&self, selected: usize) -> &[(Token, f32)] {
        self.outputs.top(selected)
    }

    fn drawn(&self, selected: usize, _: Draw) -> Token {
        self.outputs.drawn(selected)
    }
}
