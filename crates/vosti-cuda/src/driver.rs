//! The few calls that the launcher needs of a GPU: a small part of CUDA's driver interface, on one stream.
//!
//! [`crate::cuda::Cuda`] is the real implementation. Tests have one that executes TTIR in host memory and records the calls
//! that it gets. Every call except [`Driver::download`] and [`Driver::synchronise`] may return before its work is done; work
//! is done in order.

use crate::host::HostMemory;
use thiserror::Error;

/// A device address.
pub type Address = u64;

/// A kernel that was loaded. An index into what the driver has loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function(pub usize);

/// Launches that were recorded. An index into what the driver has recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Graph(pub usize);

/// Failures on the device's side.
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
    #[error("{call}: {code}")]
    Call { call: &'static str, code: String },
}

/// Bytes in words, where they are known.
fn sized(bytes: u64) -> String {
    match bytes {
        0 => "what the driver asked for itself".into(),
        _ => format!("{bytes} bytes"),
    }
}

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// As the driver names it.
    pub name: String,
    /// Compute capability, such as (9, 0).
    pub capability: (u32, u32),
    /// Shared memory that a block may opt into, in bytes.
    pub shared_bytes_max: u64,
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
    /// Shared memory that is in the code, in bytes.
    pub shared_static: u64,
    /// Threads that a block may have.
    pub threads_max: u32,
}

/// One launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    /// A loaded kernel.
    pub function: Function,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub threads: u32,
    /// Dynamic shared memory of a block, in bytes.
    pub shared: u32,
    /// Every parameter is one of these.
    pub pointers: &'a [Address],
}

/// A GPU with one stream.
pub trait Driver {
    /// Name, capability and limits.
    fn about(&self) -> &About;

    /// Another stream on the same GPU: addresses are common, each frees what it allocated.
    fn another(&self) -> Result<Box<dyn Driver + Send>, DriverError>;

    /// Zeros in host memory, from and to which copies are fast. Not to be had: [`DriverError::Locked`].
    fn host(&mut self, bytes: usize) -> Result<HostMemory, DriverError>;

    /// Bytes that can be allocated.
    fn free_bytes(&mut self) -> Result<u64, DriverError>;

    /// Loads machine code and finds the kernel of this name in it.
    fn load(&mut self, cubin: &[u8], name: &str) -> Result<Function, DriverError>;

    /// Registers, spills and shared memory of a loaded kernel.
    fn attributes(&mut self, function: Function) -> Result<Attributes, DriverError>;

    /// Lets a kernel have this much dynamic shared memory. Without it there is 48 KiB.
    fn allow_shared(&mut self, function: Function, bytes: u32) -> Result<(), DriverError>;

    /// Memory with any contents, at a multiple of 256, for as long as the driver lives. Not to be had: [`DriverError::Memory`].
    fn allocate(&mut self, bytes: u64) -> Result<Address, DriverError>;

    /// Overwrites `bytes` bytes with zeros.
    fn zero(&mut self, at: Address, bytes: u64) -> Result<(), DriverError>;

    /// `bytes` stay as they are until something has been waited for.
    fn upload(&mut self, at: Address, bytes: &[u8]) -> Result<(), DriverError>;

    /// Copies to the host, each from its address, and waits once: for that and for everything before it.
    fn download(&mut self, parts: &mut [(Address, &mut [u8])]) -> Result<(), DriverError>;

    /// From device memory to device memory.
    fn copy(&mut self, from: Address, to: Address, bytes: u64) -> Result<(), DriverError>;

    /// Queues a launch.
    fn launch(&mut self, call: &Call) -> Result<(), DriverError>;

    /// Marks this moment of the stream. Not while it is recorded.
    fn mark(&mut self) -> Result<(), DriverError>;

    /// Seconds from each mark to the next, by the device's clock, once everything has been waited for. Forgets the marks.
    fn laps(&mut self) -> Result<Vec<f64>, DriverError>;

    /// From here on launches are recorded, and nothing else may be asked for.
    fn begin_recording(&mut self) -> Result<(), DriverError>;

    /// Ends the recording; nothing of it has run.
    fn end_recording(&mut self) -> Result<Graph, DriverError>;

    /// Launches what was recorded.
    fn replay(&mut self, graph: Graph) -> Result<(), DriverError>;

    /// Waits until the stream has done all of it. Errors of earlier launches appear here.
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
