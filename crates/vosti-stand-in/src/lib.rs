//! A stand-in for a GPU: it checks calls as a driver and a device would, executes lifted TTIR in host memory, and records its
//! calls. Its memory begins as noise. It has no threads, warps, shared memory or matrix instructions. About these it shows only
//! that the launcher passes its numbers on.

mod assemble;
mod cubin;
mod maps;
mod view;

pub use assemble::assembles;
pub use cubin::{cubin, cubins};
pub use maps::marks;

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use vosti_cpu::Isa;
use vosti_cpu::Layout;
use vosti_cpu::plan::machine::{Machine, Param};
use vosti_cpu::plan::{Plan, compile};
use vosti_cuda::driver::{
    About, Address, Attributes, Call, Driver, DriverError, Function, Graph, Matrix, Param as Passed, TensorMap,
};
use vosti_cuda::host::HostMemory;
use vosti_model::{ModelPlan, Target};
use vosti_tile::Kernel;
use vosti_tile::interp::{Options, Undefined, run};
use vosti_tile::numerics::FloatMode;

/// The target whose GPU it stands for.
pub const TARGET: &str = "cuda-sm90";
/// In front of the text of a kernel that waits for the launches before it.
pub const WAITS: &str = "// waits\n";
/// Where its memory begins.
const BASE: Address = 0x7_0000_0000;
/// Functions that were compiled from PTX are numbered from here on.
const COMPILED: usize = 1 << 20;

/// A launch that owns its parameters.
#[derive(Clone)]
struct Launched {
    function: Function,
    grid: [u32; 3],
    /// Each parameter's address, and the bytes behind it that a map reaches.
    params: Vec<(Address, Option<u64>)>,
}

struct Loaded {
    name: String,
    kernel: Kernel,
    /// In place of the interpreter, where kernels are large.
    plan: Option<Plan>,
    attributes: Attributes,
    allowed: u32,
    waits: bool,
    maps: Vec<maps::Expected>,
}

/// What all streams share.
#[derive(Default)]
struct Heap {
    bytes: Vec<u8>,
    allocations: Vec<Range<Address>>,
    log: Vec<String>,
    taken: u64,
}

impl Heap {
    /// The bytes from an address to its allocation's end.
    fn rest(&self, call: &'static str, at: Address) -> Result<Range<usize>, DriverError> {
        let found =
            self.allocations.iter().find(|a| a.contains(&at)).ok_or_else(|| illegal(call, "no such address"))?;
        Ok((at - BASE) as usize..(found.end - BASE) as usize)
    }

    fn within(&self, call: &'static str, at: Address, bytes: u64) -> Result<Range<usize>, DriverError> {
        let rest = self.rest(call, at)?;
        match (rest.len() as u64) < bytes {
            true => Err(illegal(call, "it leaves its allocation")),
            false => Ok(rest.start..rest.start + bytes as usize),
        }
    }
}

/// A flaw in the stand-in's execution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flaw {
    /// None.
    #[default]
    None,
    /// The last bit of an output depends on how many tiles of rows there are.
    Batch,
    /// A store also writes a little behind its cell.
    Padding,
    /// Every number that is stored is a little too large.
    Off,
    /// Numbers of an ordinary size are a tenth too large; huge ones are what they should be.
    Tenth,
}

/// The driver: clones share the memory, as streams of one GPU do.
pub struct StandIn {
    /// What it says of itself.
    pub about: About,
    /// Free memory of an empty device, in bytes.
    pub free: u64,
    /// What it does wrong.
    pub flaw: Flaw,
    /// The largest allocation that succeeds, whatever is free.
    pub largest: u64,
    /// The largest allocation of page-locked memory that succeeds.
    pub locked: usize,
    /// The attributes of every loaded kernel.
    pub attributes: Attributes,
    /// Launches are recorded and not executed.
    pub dry: bool,
    /// Launches are executed by the CPU device's compiled plans: without flaws.
    pub fast: bool,
    /// Whether it compiles PTX; a driver may lack the compiler.
    pub ptx: bool,
    /// Whether it encodes tensor maps; an old driver may not.
    pub maps: bool,
    /// The launch that fails, counted from now on.
    pub fails_in: Option<usize>,
    /// A kernel fails after its launch has returned, so the next wait for the stream says it.
    pub fails_late: bool,
    heap: Arc<Mutex<Heap>>,
    loaded: Vec<Loaded>,
    /// Compiled PTX. Its functions are numbered from [`COMPILED`] on.
    compiled: Vec<vosti_ptx::Kernel>,
    recording: Option<Vec<Launched>>,
    /// The clock at each mark. Each launch takes a microsecond.
    marks: Vec<usize>,
    launches: usize,
    graphs: Vec<Vec<Launched>>,
}

impl Default for StandIn {
    fn default() -> StandIn {
        StandIn {
            about: About {
                name: "stand-in".into(),
                capability: (9, 0),
                shared_bytes_max: 232_448,
                // So that small models have high row tiles too.
                multiprocessors: 1,
                driver: 12080,
            },
            free: 1 << 40,
            largest: u64::MAX,
            locked: usize::MAX,
            flaw: Flaw::None,
            attributes: Attributes { registers: 100, local_bytes: 0, shared_static: 0, threads_max: 1024 },
            dry: false,
            fast: false,
            ptx: false,
            maps: true,
            fails_in: None,
            fails_late: false,
            heap: Arc::default(),
            loaded: vec![],
            compiled: vec![],
            recording: None,
            marks: vec![],
            launches: 0,
            graphs: vec![],
        }
    }
}

impl StandIn {
    fn waited(&self, call: &'static str) -> Result<(), DriverError> {
        if self.fails_late { Err(illegal(call, "CUDA_ERROR_ILLEGAL_ADDRESS")) } else { Ok(()) }
    }

    /// A stand-in that executes by the CPU device's compiled plans.
    pub fn fast() -> StandIn {
        StandIn { fast: true, ..StandIn::default() }
    }

    /// One with a flaw.
    pub fn with(flaw: Flaw) -> StandIn {
        StandIn { flaw, ..StandIn::default() }
    }

    fn heap(&self) -> MutexGuard<'_, Heap> {
        self.heap.lock().unwrap()
    }

    /// Frees an allocation. Memory at the end is used again.
    pub fn release(&mut self, at: Address) -> Result<(), DriverError> {
        let mut heap = self.heap();
        let found = heap.allocations.iter_mut().find(|a| a.start == at && !a.is_empty());
        let found = found.ok_or_else(|| illegal("cuMemFree_v2", "no such allocation"))?;
        let bytes = found.end - found.start;
        found.end = found.start;
        heap.taken -= bytes;
        while heap.allocations.pop_if(|last| last.is_empty()).is_some() {}
        let end = heap.allocations.last().map_or(BASE, |last| last.end + 64);
        heap.bytes.truncate((end - BASE) as usize);
        Ok(())
    }

    /// The calls to all streams.
    pub fn log(&self) -> Vec<String> {
        self.heap().log.clone()
    }

    /// `many` integers that are now at a place of the log, such as `#3+64`.
    pub fn ints(&self, place: &str, many: usize) -> Vec<i32> {
        let (allocation, offset) = place.split_once('+').unwrap_or((place, "0"));
        let (allocation, offset): (usize, usize) = (allocation[1..].parse().unwrap(), offset.parse().unwrap());
        let heap = self.heap();
        let start = (heap.allocations[allocation].start - BASE) as usize + offset;
        let words = heap.bytes[start..][..many * 4].chunks_exact(4);
        words.map(|word| i32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
    }

    fn say(&self, what: String) {
        self.heap().log.push(what);
    }

    /// An address as the allocation that it is in, and the byte in it.
    fn place(&self, at: Address) -> String {
        let heap = self.heap();
        match heap.allocations.iter().position(|a| a.contains(&at)) {
            _ if at == 0 => "0".into(),
            Some(i) if heap.allocations[i].start == at => format!("#{i}"),
            Some(i) => format!("#{i}+{}", at - heap.allocations[i].start),
            None => format!("{at:#x}?"),
        }
    }

    fn execute(&self, launched: &Launched) -> Result<(), DriverError> {
        if self.dry {
            return Ok(());
        }
        let mut heap = self.heap();
        let loaded = &self.loaded[launched.function.0];
        let kernel = &loaded.kernel;
        let rests = launched.params[..kernel.params.len()].iter().map(|(at, bytes)| match bytes {
            Some(bytes) => heap.within("cuLaunchKernelEx", *at, *bytes),
            None => heap.rest("cuLaunchKernelEx", *at),
        });
        let params = rests.collect::<Result<Vec<_>, _>>()?;
        if let Some(plan) = &loaded.plan {
            return compiled(kernel, plan, &mut heap.bytes, &params, launched.grid);
        }
        let tiles = launched.grid[0];
        let mut view = view::View { memory: &mut heap.bytes, kernel, params, flaw: self.flaw, tiles };
        let options = Options { undefined: Undefined::Poison(5), ..Options::default() };
        let grid = launched.grid.map(|n| n as usize);
        run(kernel, &mut view, grid, &options).map_err(|error| illegal("cuLaunchKernelEx", &error.to_string()))
    }
}

impl StandIn {
    fn compile(&mut self, text: &str, name: &str) -> Result<Function, DriverError> {
        if !self.ptx {
            return Err(illegal("cuModuleLoadData", "CUDA_ERROR_JIT_COMPILER_NOT_FOUND"));
        }
        let kernel = vosti_ptx::Kernel::read(text).map_err(|why| illegal("cuModuleLoadData", &why.to_string()))?;
        if kernel.name != name {
            return Err(illegal("cuModuleGetFunction", "CUDA_ERROR_NOT_FOUND"));
        }
        self.compiled.push(kernel);
        Ok(Function(COMPILED + self.compiled.len() - 1))
    }

    /// Every thread of a launch of what it has compiled.
    fn threads(&self, kernel: &vosti_ptx::Kernel, call: &Call) -> Result<(), DriverError> {
        let (grid, threads, shared) = (call.grid, call.threads, call.shared as usize);
        let word = |param: &Passed| if let Passed::Word(word) = param { Some(*word) } else { None };
        let words = call.params.iter().map(word).collect::<Option<Vec<u64>>>();
        let params = &words.ok_or_else(|| illegal("cuLaunchKernelEx", "a map for a kernel that takes none"))?[..];
        let launch = vosti_ptx::Launch { grid, threads, shared, params, maps: &[], seed: None, steps_max: u64::MAX };
        let ran = kernel.run(&launch, &mut *self.heap());
        ran.map(|_| ()).map_err(|why| illegal("cuLaunchKernelEx", &why.to_string()))
    }
}

impl vosti_ptx::Global for Heap {
    fn load(&mut self, at: Address, to: &mut [u8]) -> Result<(), String> {
        let place = self.within("cuLaunchKernelEx", at, to.len() as u64).map_err(|error| error.to_string())?;
        to.copy_from_slice(&self.bytes[place]);
        Ok(())
    }

    fn store(&mut self, at: Address, from: &[u8]) -> Result<(), String> {
        let place = self.within("cuLaunchKernelEx", at, from.len() as u64).map_err(|error| error.to_string())?;
        self.bytes[place].copy_from_slice(from);
        Ok(())
    }
}

/// Every program of a launch, by the CPU device's plan.
fn compiled(
    kernel: &Kernel,
    plan: &Plan,
    memory: &mut [u8],
    params: &[Range<usize>],
    grid: [u32; 3],
) -> Result<(), DriverError> {
    let base = memory.as_mut_ptr();
    let param = |(range, param): (&Range<usize>, &vosti_tile::Param)| Param {
        // SAFETY: ranges lie in the memory.
        base: unsafe { base.add(range.start) },
        len: range.len() / param.elem.bytes(),
        layout: Layout::RowMajor,
    };
    let params: Vec<Param> = params.iter().zip(&kernel.params).map(param).collect();
    let mut machine = Machine::new(Isa::detect(), plan.scratch, Some(5)).unwrap();
    let grid = grid.map(|n| n as i32);
    FloatMode::with(|| {
        machine.begin(plan, grid);
        for (z, y, x) in (0..grid[2]).flat_map(|z| (0..grid[1]).flat_map(move |y| (0..grid[0]).map(move |x| (z, y, x))))
        {
            // SAFETY: parameters are live buffers of their length, and this is the only thread.
            let ran = unsafe { machine.run(plan, &params, [x, y, z]) };
            ran.map_err(|fault| illegal("cuLaunchKernelEx", &format!("{fault:?}")))?;
        }
        Ok(())
    })
}

fn illegal(call: &'static str, why: &str) -> DriverError {
    DriverError::Call { call, code: why.into() }
}

impl Driver for StandIn {
    fn about(&self) -> &About {
        &self.about
    }

    fn another(&self) -> Result<Box<dyn Driver + Send>, DriverError> {
        Ok(Box::new(StandIn {
            about: self.about.clone(),
            attributes: self.attributes,
            heap: self.heap.clone(),
            free: self.free,
            largest: self.largest,
            locked: self.locked,
            flaw: self.flaw,
            dry: self.dry,
            fast: self.fast,
            ptx: self.ptx,
            maps: self.maps,
            ..StandIn::default()
        }))
    }

    fn host(&mut self, bytes: usize) -> Result<HostMemory, DriverError> {
        match bytes <= self.locked {
            true => Ok(HostMemory::ordinary(bytes)),
            false => Err(DriverError::Locked { bytes: bytes as u64 }),
        }
    }

    fn free_bytes(&mut self) -> Result<u64, DriverError> {
        Ok(self.free.saturating_sub(self.heap().taken))
    }

    fn load(&mut self, cubin: &[u8], name: &str) -> Result<Function, DriverError> {
        let text = std::str::from_utf8(cubin).map_err(|_| illegal("cuModuleLoadData", "no text"))?;
        if text.contains(".version") {
            return self.compile(text, name);
        }
        let (waits, text) = text.strip_prefix(WAITS).map_or((false, text), |text| (true, text));
        let (maps, text) = maps::read(text).ok_or_else(|| illegal("cuModuleLoadData", "a mark of a map"))?;
        let kernel = vosti_tile::lift(text).map_err(|error| illegal("cuModuleLoadData", &error.to_string()))?;
        if kernel.name != name {
            return Err(illegal("cuModuleGetFunction", "CUDA_ERROR_NOT_FOUND"));
        }
        let plan = self.fast.then(|| compile(&kernel, Isa::detect()).unwrap());
        // Static and dynamic memory together.
        let allowed = (48u32 << 10).saturating_sub(self.attributes.shared_static as u32);
        self.loaded.push(Loaded { name: name.into(), kernel, plan, attributes: self.attributes, allowed, waits, maps });
        self.say(format!("load {name}"));
        Ok(Function(self.loaded.len() - 1))
    }

    fn attributes(&mut self, function: Function) -> Result<Attributes, DriverError> {
        Ok(self.loaded[function.0].attributes)
    }

    fn allow_shared(&mut self, function: Function, bytes: u32) -> Result<(), DriverError> {
        self.loaded[function.0].allowed = bytes;
        self.say(format!("allow {} {bytes} bytes of shared memory", self.loaded[function.0].name));
        Ok(())
    }

    fn allocate(&mut self, bytes: u64) -> Result<Address, DriverError> {
        if bytes > self.free_bytes()?.min(self.largest) {
            return Err(DriverError::Memory { call: "cuMemAlloc_v2", bytes });
        }
        let mut heap = self.heap();
        // A gap after each allocation, so that an access beyond it is seen.
        let at = heap.allocations.last().map_or(BASE, |last| (last.end + 64).next_multiple_of(256));
        if !self.dry {
            let noise = heap.bytes.len()..(at + bytes + 64 - BASE) as usize;
            heap.bytes.extend(noise.map(|i| (i as u8).wrapping_mul(167) ^ 0xa5));
        }
        heap.taken += bytes;
        heap.allocations.push(at..at + bytes);
        let line = format!("allocate #{} {bytes}", heap.allocations.len() - 1);
        heap.log.push(line);
        Ok(at)
    }

    fn zero(&mut self, at: Address, bytes: u64) -> Result<(), DriverError> {
        self.say(format!("zero {} {bytes}", self.place(at)));
        if !self.dry {
            let mut heap = self.heap();
            let range = heap.within("cuMemsetD8Async", at, bytes)?;
            heap.bytes[range].fill(0);
        }
        Ok(())
    }

    fn upload(&mut self, at: Address, bytes: &[u8]) -> Result<(), DriverError> {
        if self.recording.is_some() {
            return Err(illegal("cuMemcpyHtoDAsync", "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"));
        }
        self.say(format!("upload {} {}", self.place(at), bytes.len()));
        if !self.dry {
            let mut heap = self.heap();
            let range = heap.within("cuMemcpyHtoDAsync", at, bytes.len() as u64)?;
            heap.bytes[range].copy_from_slice(bytes);
        }
        Ok(())
    }

    fn download(&mut self, parts: &mut [(Address, &mut [u8])]) -> Result<(), DriverError> {
        if self.recording.is_some() {
            return Err(illegal("cuMemcpyDtoHAsync", "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"));
        }
        for (at, out) in parts {
            self.say(format!("download {} {}", self.place(*at), out.len()));
            if !self.dry {
                let heap = self.heap();
                let range = heap.within("cuMemcpyDtoHAsync", *at, out.len() as u64)?;
                out.copy_from_slice(&heap.bytes[range]);
            }
        }
        self.say("wait".into());
        self.waited("cuStreamSynchronize")
    }

    fn copy(&mut self, from: Address, to: Address, bytes: u64) -> Result<(), DriverError> {
        self.say(format!("copy {} {} {bytes}", self.place(from), self.place(to)));
        if !self.dry {
            let mut heap = self.heap();
            let range = heap.within("cuMemcpyDtoDAsync", from, bytes)?;
            let target = heap.within("cuMemcpyDtoDAsync", to, bytes)?;
            heap.bytes.copy_within(range, target.start);
        }
        Ok(())
    }

    fn tensor_map(&mut self, matrix: &Matrix) -> Result<TensorMap, DriverError> {
        if !self.maps {
            return Err(DriverError::Maps { version: self.about.driver });
        }
        maps::encode(matrix).map_err(|why| illegal("cuTensorMapEncodeTiled", why))
    }

    fn launch(&mut self, call: &Call) -> Result<(), DriverError> {
        self.launches += 1;
        if let Some(index) = call.function.0.checked_sub(COMPILED) {
            self.say(format!("launch {} grid {:?} threads {}", self.compiled[index].name, call.grid, call.threads));
            return self.threads(&self.compiled[index], call);
        }
        let loaded = &self.loaded[call.function.0];
        let params: Vec<String> = call.params.iter().map(|param| self.shown(param)).collect();
        let line = format!(
            "launch {} grid {:?} threads {} shared {}{} params {}",
            loaded.name,
            call.grid,
            call.threads,
            call.shared,
            if call.early { " early" } else { "" },
            params.join(" ")
        );
        if call.grid.contains(&0) || call.grid[1] > 65_535 || call.grid[2] > 65_535 {
            return Err(illegal("cuLaunchKernelEx", "CUDA_ERROR_INVALID_VALUE"));
        }
        if call.params.len() != loaded.kernel.params.len() + 2 {
            return Err(illegal("cuLaunchKernelEx", "the kernel has other parameters"));
        }
        if call.early && !(loaded.waits && self.about.capability >= (9, 0)) {
            return Err(illegal("cuLaunchKernelEx", "a launch that may begin early, of a kernel that does not wait"));
        }
        if call.shared > loaded.allowed || call.threads > loaded.attributes.threads_max {
            return Err(illegal("cuLaunchKernelEx", "CUDA_ERROR_INVALID_VALUE"));
        }
        if let Some(left) = &mut self.fails_in {
            *left = left.checked_sub(1).ok_or_else(|| illegal("cuLaunchKernelEx", "CUDA_ERROR_LAUNCH_FAILED"))?;
        }
        let params = call.params.iter().enumerate().map(|(at, param)| self.passed(&loaded.maps, at, param));
        let params = params.collect::<Result<Vec<_>, _>>()?;
        self.say(line);
        let launched = Launched { function: call.function, grid: call.grid, params };
        match &mut self.recording {
            Some(recorded) => {
                recorded.push(launched);
                Ok(())
            }
            None => self.execute(&launched),
        }
    }

    fn mark(&mut self) -> Result<(), DriverError> {
        if self.recording.is_some() {
            return Err(illegal("cuEventRecord", "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"));
        }
        self.marks.push(self.launches);
        Ok(())
    }

    fn laps(&mut self) -> Result<Vec<f64>, DriverError> {
        let marks = std::mem::take(&mut self.marks);
        Ok(marks.windows(2).map(|two| (two[1] - two[0]) as f64 * 1e-6).collect())
    }

    fn begin_recording(&mut self) -> Result<(), DriverError> {
        self.say("record".into());
        self.recording = Some(vec![]);
        Ok(())
    }

    fn end_recording(&mut self) -> Result<Graph, DriverError> {
        let recorded = self.recording.take().ok_or_else(|| illegal("cuStreamEndCapture", "nothing is recorded"))?;
        self.graphs.push(recorded);
        self.say(format!("recorded graph {}", self.graphs.len() - 1));
        Ok(Graph(self.graphs.len() - 1))
    }

    fn replay(&mut self, graph: Graph) -> Result<(), DriverError> {
        self.say(format!("replay graph {}", graph.0));
        self.graphs[graph.0].iter().try_for_each(|launched| self.execute(launched))
    }

    fn synchronise(&mut self) -> Result<(), DriverError> {
        self.say("synchronise".into());
        self.waited("cuStreamSynchronize")
    }
}

/// A plan of a configuration in `vosti-model`, such as `tests/tiny/llama/config.json`, with so many layers of it.
pub fn plan(config: &str, target: &str, layers: Option<usize>) -> ModelPlan {
    plan_with(config, layers.map(|layers| ("num_hidden_layers", layers)).as_slice(), target, 512)
}

/// A plan of a configuration with other numbers in it, for requests of up to `context` positions.
pub fn plan_with(config: &str, changes: &[(&str, usize)], target: &str, context: u32) -> ModelPlan {
    let path = format!("{}/../vosti-model/{config}", env!("CARGO_MANIFEST_DIR"));
    let mut config: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    for (key, number) in changes {
        config[*key] = (*number).into();
    }
    let decoder = vosti_model::families::from_config("config.json", &config).unwrap();
    vosti_model::plan(&decoder, &Target::named(target).with_choices(), Some(context)).unwrap()
}

/// Numbers that depend on a weight's name: around zero, and small enough that logits stay moderate.
pub fn numbers(name: &str, len: usize) -> Vec<f32> {
    let seed = name.bytes().fold(7u64, |s, b| (s ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let mut random = SplitMix64::seed_from_u64(seed);
    let mut next = || 0.4 * ((random.next_u64() >> 40) as f32 / (1 << 23) as f32 - 1.0);
    (0..len).map(|_| next()).collect()
}
