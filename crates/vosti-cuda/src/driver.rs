//! The few calls that the launcher needs of a GPU: a small part of CUDA's driver interface, on one stream.
//!
//! [`crate::cuda::Cuda`] is the real implementation. Tests have one that executes TTIR in host memory and records its calls.
//! Every call except [`Driver::download`], [`Driver::laps`] and [`Driver::synchronise`] may return before its work is done. Work
//! is done in order.

use crate::host::HostMemory;
use thiserror::Error;

/// A device address.
pub type Address = u64;

/// A loaded kernel: an index into the driver's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function(pub usize);

/// A recording of launches: an index into the driver's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Graph(pub usize);

/// A failure of the driver or the device.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum DriverError {
    #[error("there is no NVIDIA driver here (libcuda is not found): install one, or run on the CPU")]
    NoDriver,
    #[error("the NVIDIA driver finds no GPU: see nvidia-smi, or run on the CPU")]
    NoDevice,
    #[error("there is no GPU {index}: the driver finds {count}, and counts from 0 (see nvidia-smi -L)")]
    NoSuchDevice { index: usize, count: u32 },
    #[error("{} did not fit into GPU memory ({call})", sized(*bytes))]
    Memory { call: &'static str, bytes: u64 },
    #[error(
        "the system gives no {:.2} GB of page-locked memory: allow more (`ulimit -l`, the container's memory limit), or \
         lower --context or the rows of a step",
        *bytes as f64 / 1e9
    )]
    Locked { bytes: u64 },
    #[error(
        "the driver (CUDA {}.{}) is too old for this bundle ({code}): update the driver, or prepare the bundle with an \
         older Triton",
        version / 1000,
        version % 1000 / 10
    )]
    Old { version: u32, code: String },
    #[error(
        "the driver (CUDA {}.{}) makes no tensor maps, which kernels of this bundle copy by: update the driver, or prepare the \
         bundle with --copies threads",
        version / 1000,
        version % 1000 / 10
    )]
    Maps { version: u32 },
    #[error("{call}: {code}")]
    Call { call: &'static str, code: String },
}

/// A number of bytes in words; 0 if it is not known.
fn sized(bytes: u64) -> String {
    match bytes {
        0 => "what the driver asked for itself".into(),
        _ => format!("{bytes} bytes"),
    }
}

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// The driver's name of the GPU.
    pub name: String,
    /// Compute capability, such as (9, 0).
    pub capability: (u32, u32),
    /// Shared memory that a block may opt into, in bytes.
    pub shared_bytes_max: u64,
    /// Multiprocessors, each of which runs blocks.
    pub multiprocessors: u32,
    /// The newest version of CUDA that the driver knows, such as 12080.
    pub driver: u32,
}

/// The driver's facts about a loaded kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Registers of a thread.
    pub registers: u32,
    /// Local memory of a thread in bytes: spilled registers.
    pub local_bytes: u64,
    /// Static shared memory of the code, in bytes.
    pub shared_static: u64,
    /// The most threads of a block.
    pub threads_max: u32,
}

/// One launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    /// A loaded kernel.
    pub function: Function,
    /// Blocks on each axis.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub threads: u32,
    /// Dynamic shared memory of a block, in bytes.
    pub shared: u32,
    /// Whether its blocks may begin before the launches before it have ended, because the kernel itself waits for them.
    /// A driver that is too old for this lets it begin afterwards.
    pub early: bool,
    /// The parameters.
    pub params: &'a [Param],
}

/// A parameter of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Param {
    /// 8 bytes: an address or a number.
    Word(u64),
    /// 128 bytes: a matrix whose tiles the kernel copies by descriptor.
    Map(TensorMap),
}

/// A tensor map, as the driver encodes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct TensorMap(pub [u64; 16]);

/// A matrix of BF16 numbers in device memory, row-major and without gaps, and how tiles of it are copied to shared memory. Numbers of a
/// tile that are outside of the matrix are zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// Its first number.
    pub at: Address,
    /// Rows and columns.
    pub extents: [u64; 2],
    /// Rows and columns of a tile.
    pub tile: [u32; 2],
    /// Bytes of a swizzle's span: 0 (none), 32, 64 or 128.
    pub swizzle: u32,
}

/// A GPU with one stream.
pub trait Driver {
    /// Name, capability and limits.
    fn about(&self) -> &About;

    /// Another stream on the same GPU. Both use the same addresses; each frees its own allocations.
    fn another(&self) -> Result<Box<dyn Driver + Send>, DriverError>;

    /// Zeroed page-locked host memory, for fast copies. Error if there is too little: [`DriverError::Locked`].
    fn host(&mut self, bytes: usize) -> Result<HostMemory, DriverError>;

    /// Bytes that can be allocated.
    fn free_bytes(&mut self) -> Result<u64, DriverError>;

    /// Loads machine code and finds the kernel of this name in it.
    fn load(&mut self, cubin: &[u8], name: &str) -> Result<Function, DriverError>;

    /// Registers, spills and shared memory of a loaded kernel.
    fn attributes(&mut self, function: Function) -> Result<Attributes, DriverError>;

    /// Raises a kernel's limit of dynamic shared memory to `bytes`. The default is 48 KiB, less its static shared memory.
    fn allow_shared(&mut self, function: Function, bytes: u32) -> Result<(), DriverError>;

    /// Memory with arbitrary contents, at a multiple of 256, which lives as long as the driver. Error if there is too little:
    /// [`DriverError::Memory`].
    fn allocate(&mut self, bytes: u64) -> Result<Address, DriverError>;

    /// Overwrites `bytes` bytes with zeros.
    fn zero(&mut self, at: Address, bytes: u64) -> Result<(), DriverError>;

    /// Copies from the host. The caller must not change `bytes` until a later call has waited for the stream.
    fn upload(&mut self, at: Address, bytes: &[u8]) -> Result<(), DriverError>;

    /// Copies to the host, each part from its address, and waits once for these copies and everything before them.
    fn download(&mut self, parts: &mut [(Address, &mut [u8])]) -> Result<(), DriverError>;

    /// Copies from device memory to device memory.
    fn copy(&mut self, from: Address, to: Address, bytes: u64) -> Result<(), DriverError>;

    /// A matrix's tensor map. Error if the driver encodes none: [`DriverError::Maps`].
    fn tensor_map(&mut self, matrix: &Matrix) -> Result<TensorMap, DriverError>;

    /// Queues a launch.
    fn launch(&mut self, call: &Call) -> Result<(), DriverError>;

    /// Marks this moment of the stream. Not allowed during a recording.
    fn mark(&mut self) -> Result<(), DriverError>;

    /// Waits for everything, and returns the seconds from each mark to the next by the device's clock. Removes the marks.
    fn laps(&mut self) -> Result<Vec<f64>, DriverError>;

    /// Begins a recording. Until it ends, launches are recorded and no other call is allowed.
    fn begin_recording(&mut self) -> Result<(), DriverError>;

    /// Ends the recording. Its launches have not run.
    fn end_recording(&mut self) -> Result<Graph, DriverError>;

    /// Runs the launches of a recording.
    fn replay(&mut self, graph: Graph) -> Result<(), DriverError>;

    /// Waits until the stream has done all work. Errors of earlier launches are returned here.
    fn synchronise(&mut self) -> Result<(), DriverError>;
}

impl<D: Driver + ?Sized> Driver for Box<D> {
    fn about(&self) -> &About {
        (**self).about()
    }
    fn another(&self) -> Result<Box<dyn Driver + Send>, DriverError> {
        (**self).another()
    }
    fn host(&mut self, bytes: usize) -> Result<HostMemory, DriverError> {
        (**self).host(bytes)
    }
    fn free_bytes(&mut self) -> Result<u64, DriverError> {
        (**self).free_bytes()
    }
    fn load(&mut self, cubin: &[u8], name: &str) -> Result<Function, DriverError> {
        (**self).load(cubin, name)
    }
    fn attributes(&mut self, function: Function) -> Result<Attributes, DriverError> {
        (**self).attributes(function)
    }
    fn allow_shared(&mut self, function: Function, bytes: u32) -> Result<(), DriverError> {
        (**self).allow_shared(function, bytes)
    }
    fn allocate(&mut self, bytes: u64) -> Result<Address, DriverError> {
        (**self).allocate(bytes)
    }
    fn zero(&mut self, at: Address, bytes: u64) -> Result<(), DriverError> {
        (**self).zero(at, bytes)
    }
    fn upload(&mut self, at: Address, bytes: &[u8]) -> Result<(), DriverError> {
        (**self).upload(at, bytes)
    }
    fn download(&mut self, parts: &mut [(Address, &mut [u8])]) -> Result<(), DriverError> {
        (**self).download(parts)
    }
    fn copy(&mut self, from: Address, to: Address, bytes: u64) -> Result<(), DriverError> {
        (**self).copy(from, to, bytes)
    }
    fn tensor_map(&mut self, matrix: &Matrix) -> Result<TensorMap, DriverError> {
        (**self).tensor_map(matrix)
    }
    fn launch(&mut self, call: &Call) -> Result<(), DriverError> {
        (**self).launch(call)
    }
    fn mark(&mut self) -> Result<(), DriverError> {
        (**self).mark()
    }
    fn laps(&mut self) -> Result<Vec<f64>, DriverError> {
        (**self).laps()
    }
    fn begin_recording(&mut self) -> Result<(), DriverError> {
        (**self).begin_recording()
    }
    fn end_recording(&mut self) -> Result<Graph, DriverError> {
        (**self).end_recording()
    }
    fn replay(&mut self, graph: Graph) -> Result<(), DriverError> {
        (**self).replay(graph)
    }
    fn synchronise(&mut self) -> Result<(), DriverError> {
        (**self).synchronise()
    }
}
