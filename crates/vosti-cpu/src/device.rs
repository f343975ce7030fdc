//! The device: runs the core's steps on the workers.
//!
//! Making a device compiles, loads and allocates everything. A step fills in its metadata, hands the list of launches to the
//! workers and waits for them.
//! Read next: [`crate::wiring`], [`crate::launch`], [`crate::plan`].

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use vosti_core::{Device, DeviceError, Draw, Program, StepPlan, Token};
use vosti_kernels::{Admitted, Draws, KernelError};
use vosti_tile::LiftError;
use vosti_wiring::{Bound, Outputs, WiringError, drawn, fill_numbers, listed, outputs};

use crate::blueprint::{Blueprint, Needs};
use crate::launch::{self, Ahead, FirstFault, Ready, Units};
use crate::plan::machine::{Machine, Param};
use crate::pool::Pool;
use crate::weights::{Buffer, WeightCache, Weights};
use crate::wiring::{Wiring, wire};
use vosti_simd::Isa;
use vosti_simd::layout::Layout;

/// How kernels are executed. Both modes give the same bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Compiled plans.
    #[default]
    Fast,
    /// The interpreter of tile IR, one operation at a time.
    Plain,
}

/// How weights of BF16 dots are kept in memory. Both forms give the same bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Storage {
    /// Weights of a quantised file in its blocks. Weights in BF16 in 13 bits if the instruction set can decode that (AVX-512 with BF16),
    /// else in BF16.
    #[default]
    AsTheyCome,
    /// All in BF16.
    Expanded,
}

/// A device's limits and how it runs.
#[derive(Clone, Debug)]
pub struct Config {
    /// Rows that one step may have.
    pub rows_max: usize,
    /// Selected rows that one step may have.
    pub selected_max: usize,
    /// Pages of each cache group.
    pub pages: Vec<usize>,
    /// Positions that a request may have; the program's context if `None`. Weights by position (rotary tables) have as many
    /// rows.
    pub positions: Option<usize>,
    /// Workers, the caller included.
    pub threads: usize,
    /// Whether kernels are compiled to plans.
    pub mode: Mode,
    /// The instruction set; the fastest that the machine has if `None`.
    pub isa: Option<Isa>,
    /// Fill undefined lanes with NaN, infinities and random bits from this seed: for tests.
    pub poison: Option<u64>,
    /// The form in which quantised weights are kept.
    pub storage: Storage,
    /// Shared with other devices of the same model: weights are loaded once for all.
    pub weights: Option<Arc<WeightCache>>,
}

impl Config {
    /// Fast mode with the machine's best instruction set.
    pub fn new(rows_max: usize, selected_max: usize, pages: Vec<usize>, threads: usize) -> Self {
        Self {
            rows_max,
            selected_max,
            pages,
            positions: None,
            threads,
            mode: Mode::Fast,
            isa: None,
            poison: None,
            storage: Storage::AsTheyCome,
            weights: None,
        }
    }
}

/// Why a device could not be made.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum CpuError {
    #[error("{spec}: {error}")]
    Lift { spec: String, error: LiftError },
    #[error("parameter `{param}` of {spec} {what}")]
    Premise { spec: String, param: String, what: &'static str },
    #[error(transparent)]
    Wiring(#[from] WiringError),
    #[error("memory or threads: {0}")]
    System(#[from] std::io::Error),
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

/// A device of the core that executes tile IR on this machine's processor.
pub struct CpuDevice {
    config: Config,
    program: Program,
    wiring: Wiring,
    outputs: Outputs,
    draws: Option<Draws>,
    /// Per selected row of the last step: its list, empty if the plan did not ask for one.
    lists: Vec<Vec<(Token, f32)>>,
    params: Vec<Param>,
    launches: Vec<Ready>,
    machines: Vec<std::sync::Mutex<Machine>>,
    pool: Pool,
    ran: bool,
}

// SAFETY: raw pointers are to regions that the device owns; they are followed only under `&mut self`.
unsafe impl Send for CpuDevice {}

impl CpuDevice {
    /// The memory that such a device takes besides its pool, computed without reading a weight. Errors: those of
    /// [`CpuDevice::new`], other than running out of memory.
    pub fn needs(
        program: &Program,
        admitted: &Admitted,
        weights: &dyn Weights,
        config: &Config,
    ) -> Result<Needs, CpuError> {
        let isa = config.isa.unwrap_or_else(Isa::detect);
        Blueprint::new(program, admitted, config, isa)?.needs(program, weights, config)
    }

    /// Compiles the program's kernels, loads its weights one at a time and allocates everything else. Errors: a kernel without
    /// TTIR or with TTIR that cannot be lifted, a weight that is missing or has another shape, a launch that breaks the
    /// premises of its proof, too little memory.
    pub fn new(
        program: &Program,
        admitted: &Admitted,
        weights: &dyn Weights,
        config: Config,
    ) -> Result<Self, CpuError> {
        let isa = config.isa.unwrap_or_else(Isa::detect);
        let outputs = outputs(program)?;
        let wiring = wire(program, admitted, weights, &config, isa)?;
        let mut params = Vec::new();
        let mut launches = Vec::new();
        for (wired, waits) in wiring.launches.iter().zip(&wiring.waits) {
            let start = params.len();
            let param = |bound: &Bound| {
                let part = wiring.part(*bound);
                launch::param(wiring.buffer(*bound), part.start + wired.start(*bound, &wiring.whole)..part.end)
            };
            params.extend(wired.params.iter().map(param));
            launches.push(Ready {
                kernel: wired.kernel,
                params: start..params.len(),
                grid: [1; 3],
                units: Units::default(),
                waits: *waits,
                ahead: None,
                next: AtomicUsize::new(0),
                nanoseconds: AtomicU64::new(0),
            });
        }
        let mut ahead = None;
        for (i, (ready, wired)) in launches.iter_mut().zip(&wiring.launches).enumerate().rev() {
            let listed = wiring.kernels[wired.kernel].plan.as_ref().is_some_and(|plan| plan.chosen.is_some());
            ahead = match wiring.panels(wired) {
                // Which panels it reads is known only when it begins.
                _ if listed => None,
                panels => panels.map(|panels| Ahead { launch: i, panels }).or(ahead),
            };
            ready.ahead = ahead;
        }
        let scratch = wiring.kernels.iter().filter_map(|k| k.plan.as_ref()).map(|p| p.scratch).max().unwrap_or(0);
        let pool = Pool::new(config.threads)?;
        let machines = (0..pool.threads())
            .map(|_| Machine::new(isa, scratch, config.poison).map(std::sync::Mutex::new))
            .collect::<std::io::Result<_>>()?;
        let lists = vec![];
        let (program, draws) = (program.clone(), admitted.draws.clone());
        Ok(Self { config, program, wiring, outputs, draws, lists, params, launches, machines, pool, ran: false })
    }

    /// Specialisations that the interpreter runs: all in plain mode; in fast mode those that the compiler does not take, of
    /// the checked-in ones none.
    pub fn interpreted(&self) -> Vec<String> {
        self.wiring.kernels.iter().filter(|k| k.plan.is_none()).map(|k| k.spec.to_string()).collect()
    }

    /// Each specialisation and the seconds that the first worker has spent on it since the last call, barriers included.
    pub fn take_times(&self) -> Vec<(String, f64)> {
        let mut times: Vec<(String, f64)> = self.wiring.kernels.iter().map(|k| (k.spec.to_string(), 0.0)).collect();
        for launch in &self.launches {
            times[launch.kernel].1 += launch.nanoseconds.swap(0, Relaxed) as f64 * 1e-9;
        }
        times
    }

    /// Bytes of the weights, and bytes of the KV pool.
    pub fn bytes(&self) -> (usize, usize) {
        let caches = self.wiring.caches.iter().flatten().map(|b| b.region.len()).sum();
        (self.weights().map(|b| b.region.len()).sum(), caches)
    }

    /// Bytes of the matrices that dots and embeddings read, in the form in which they are kept, and their number of elements.
    pub fn matrices(&self) -> (usize, usize) {
        let matrices = self.weights().filter(|buffer| buffer.layout != Layout::RowMajor);
        matrices.fold((0, 0), |(bytes, elements), b| {
            let row = if let Layout::StoredPanels { row_len, .. } = b.layout { row_len } else { 1 };
            (bytes + b.region.len(), elements + b.len / b.layout.row(row) * row)
        })
    }

    /// The weights in memory, each once, however many views it has.
    fn weights(&self) -> impl Iterator<Item = &Buffer> {
        let mut seen = HashSet::new();
        self.wiring.weights.iter().map(|buffer| &**buffer).filter(move |buffer| seen.insert(buffer.region.base()))
    }

    /// Sets the grids and units of all launches for the step in the metadata.
    fn size(&mut self) -> Result<(), KernelError> {
        let mut known: HashMap<(usize, usize, usize, usize), [usize; 3]> = HashMap::new();
        for (ready, wired) in self.launches.iter_mut().zip(&self.wiring.launches) {
            let extent = self.wiring.metadata.extent(wired.size);
            let compiled = &self.wiring.kernels[wired.kernel];
            let key = (wired.kernel, extent.rows, extent.tiles, extent.length);
            ready.grid = match known.get(&key) {
                Some(grid) => *grid,
                None => {
                    let grid = compiled.proved.grid.at(extent)?;
                    known.insert(key, grid);
                    grid
                }
            };
            let threads = self.pool.threads();
            ready.units = match &compiled.plan {
                Some(plan) if plan.chosen.is_some() => Units::listed(ready.grid, threads),
                plan => Units::of(ready.grid, plan.as_ref().and_then(|p| p.sweep), threads),
            };
            // The counter begins after the units that each worker starts with.
            ready.next.store(ready.units.first(threads).start, Relaxed);
        }
        Ok(())
    }

    /// The contents of a row buffer of FP32.
    fn numbers(&self, buffer: usize) -> &[f32] {
        let buffer = &self.wiring.rows[buffer];
        buffer.region.as_slice::<f32>(buffer.len)
    }

    /// A row of a buffer of integers, as the last step left it. Panics if the program has no such buffer or row.
    pub fn integers(&self, buffer: u32, row: usize) -> &[i32] {
        let width = self.program.buffers[buffer as usize].width as usize;
        let buffer = &self.wiring.rows[buffer as usize];
        &buffer.region.as_slice::<i32>(buffer.len)[row * width..][..width]
    }

    /// Reads the lists that the step wanted.
    fn list(&mut self, plan: &StepPlan) {
        if let Some(outputs) = self.outputs.lists {
            let mut lists = std::mem::take(&mut self.lists);
            let left = [outputs.logits, outputs.tokens].map(|buffer| self.numbers(buffer));
            outputs.read(plan, left, self.program.vocab, &mut lists);
            self.lists = lists;
        }
    }

    fn launch(&mut self) -> Result<(), DeviceError> {
        let Self { launches, params, machines, pool, wiring, config, .. } = self;
        let fault = FirstFault::default();
        let shared = Shared { launches, params, kernels: &wiring.kernels };
        let outcome = pool.run(&|worker| {
            let mut machine = machines[worker.index].lock().unwrap_or_else(|e| e.into_inner());
            let Shared { launches, params, kernels } = shared.get();
            let kernel = |i: usize| launch::Executable { kernel: &kernels[i].kernel, plan: kernels[i].plan.as_ref() };
            // SAFETY: parameters are the device's own buffers, borrowed for the call; that programs of one launch
            // write disjoint cells is the kernels' contract, which the verifier proves.
            unsafe { launch::work(worker, &mut machine, launches, params, kernel, &fault, config.poison) }
        });
        outcome.map_err(|error| DeviceError { message: error.to_string(), intact: false })?;
        match fault.get() {
            None => Ok(()),
            Some(number) => {
                let spec = &wiring.kernels[launches[number].kernel].spec;
                let message = format!("launch {number} ({spec}) left its buffers: this is a bug, report it");
                Err(DeviceError { message, intact: false })
            }
        }
    }
}

/// The state of a step that workers share.
struct Shared<'a> {
    launches: &'a [Ready],
    params: &'a [Param],
    kernels: &'a [crate::wiring::Compiled],
}

impl<'a> Shared<'a> {
    fn get(&self) -> &Self {
        self
    }
}

// SAFETY: workers only read it; programs write disjoint parts of the memory behind its pointers.
unsafe impl Sync for Shared<'_> {}

impl Device for CpuDevice {
    type Logits = [f32];
    type Top = [(Token, f32)];

    fn rows_max(&self) -> usize {
        self.config.rows_max
    }

    fn selected_max(&self) -> usize {
        self.config.selected_max
    }

    fn pages(&self, group: usize) -> usize {
        self.config.pages[group]
    }

    fn top_max(&self) -> usize {
        self.outputs.lists.map_or(0, |lists| lists.most)
    }

    fn draws(&self) -> bool {
        self.draws.is_some()
    }

    fn clear(&mut self) {
        if !self.ran {
            return; // Fresh memory is zero already, and stays untouched until it is used.
        }
        for buffer in self.wiring.caches.iter_mut().flatten() {
            let bytes = buffer.region.len();
            buffer.region.as_mut_slice::<u8>(bytes).fill(0);
        }
    }

    fn run(&mut self, program: &Program, plan: &StepPlan) -> Result<(), DeviceError> {
        let refuse = |message: String| DeviceError { message, intact: true };
        if *program != self.program {
            return Err(refuse("the device was made for another program".into()));
        }
        let most = self.config.positions.unwrap_or(usize::MAX);
        if let Some(far) = plan.positions().iter().find(|position| **position as usize >= most) {
            return Err(refuse(format!("position {far}: the device was made for {most}")));
        }
        if listed(plan) && self.outputs.lists.is_none() {
            return Err(refuse("the program makes no lists of largest logits".into()));
        }
        if drawn(plan) && self.draws.is_none() {
            return Err(refuse("the device draws no tokens".into()));
        }
        self.wiring.metadata.fill(plan).map_err(refuse)?;
        if let Some(draws) = self.draws.as_ref().filter(|_| drawn(plan)) {
            for (i, buffer) in draws.numbers.iter().enumerate() {
                let buffer = &mut self.wiring.rows[*buffer as usize];
                fill_numbers(plan, i, buffer.region.as_mut_slice(buffer.len));
            }
        }
        self.size().map_err(|e| refuse(e.to_string()))?;
        self.ran = true;
        self.launch()?;
        self.list(plan);
        Ok(())
    }

    fn logits(&self, selected: usize) -> &[f32] {
        let vocab = self.program.vocab as usize;
        &self.numbers(self.program.logits as usize)[selected * vocab..][..vocab]
    }

    fn best(&self, selected: usize) -> Token {
        // A whole number below the vocabulary, which FP32 holds exactly.
        self.numbers(self.outputs.best)[selected] as Token
    }

    fn top(&self, selected: usize) -> &[(Token, f32)] {
        &self.lists[selected]
    }

    fn drawn(&self, selected: usize, _: Draw) -> Token {
        // As best tokens are; a plan that wants a token drawn is refused without what draws.
        self.draws.as_ref().map_or(0, |draws| self.numbers(draws.tokens as usize)[selected] as Token)
    }
}
