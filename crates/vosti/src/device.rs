//! The device of a deployment, the CPU's or a GPU's, and how a GPU is found.

use std::time::Instant;
use vosti_core::{Device, Token};
use vosti_cpu::CpuDevice;
use vosti_cuda::{CudaDevice, Driver, DriverError};

/// A GPU, or in tests what stands in for one.
pub type Gpu = Box<dyn Driver + Send>;

/// How a GPU is found, by its index.
pub type OpenGpu = fn(usize) -> Result<Gpu, DriverError>;

/// What a deployment shall run on.
#[derive(Clone, Copy, Debug, Default)]
pub enum On {
    /// This machine's processor.
    #[default]
    Cpu,
    /// The GPU of an index.
    Gpu(OpenGpu, usize),
}

/// A GPU of this machine.
pub fn own_gpu(index: usize) -> Result<Gpu, DriverError> {
    Ok(Box::new(vosti_cuda::Cuda::open(index)?))
}

/// A device of either kind.
pub enum AnyDevice {
    Cpu(Box<CpuDevice>),
    Gpu(Box<CudaDevice<Gpu>>),
}

impl AnyDevice {
    /// Bytes of weights and of the KV pool.
    pub fn bytes(&self) -> (u64, u64) {
        match self {
            AnyDevice::Cpu(device) => {
                let (weights, pool) = device.bytes();
                (weights as u64, pool as u64)
            }
            AnyDevice::Gpu(device) => device.bytes(),
        }
    }

    /// Bytes and elements of the matrices that dots read, as they are kept.
    pub fn matrices(&self) -> (u64, u64) {
        match self {
            AnyDevice::Cpu(device) => {
                let (bytes, elements) = device.matrices();
                (bytes as u64, elements as u64)
            }
            AnyDevice::Gpu(_) => (0, 0),
        }
    }

    /// Bytes of random weights that a GPU made itself.
    pub fn made(&self) -> u64 {
        match self {
            AnyDevice::Cpu(_) => 0,
            AnyDevice::Gpu(device) => device.made(),
        }
    }
}

impl AnyDevice {
    /// Seconds that each specialisation has taken since the last call. A GPU is not asked: launches are not waited for.
    pub fn take_times(&self) -> Vec<(String, f64)> {
        match self {
            AnyDevice::Cpu(device) => device.take_times(),
            AnyDevice::Gpu(_) => Vec::new(),
        }
    }
}

impl Device for AnyDevice {
    type Logits = [f32];
    type Top = [(Token, f32)];

    vosti_engine::forward_device!(device in [AnyDevice::Cpu(device), AnyDevice::Gpu(device)]: limits, clear, run, rows);
}

/// Bytes per second that a GPU reads and writes when it copies its own memory: the ceiling that decoding is set against.
pub fn bandwidth(gpu: &Gpu) -> Result<f64, DriverError> {
    const MOST: u64 = 1 << 30;
    const ROUNDS: usize = 7;
    let mut own = gpu.another()?;
    let bytes = (own.free_bytes()? / 4).clamp(256, MOST);
    let (from, to) = (own.allocate(bytes)?, own.allocate(bytes)?);
    own.zero(from, bytes)?;
    own.synchronise()?;
    let mut best = 0.0f64;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..4 {
            own.copy(from, to, bytes)?;
        }
        own.synchronise()?;
        // Each byte is read and written.
        best = best.max(8.0 * bytes as f64 / start.elapsed().as_secs_f64().max(1e-9));
    }
    Ok(best)
}
