//! The device of a deployment, the CPU's or a GPU's, and how a GPU is found.

use vosti_core::{Device, Token};
use vosti_cpu::CpuDevice;
use vosti_cuda::bandwidth::{self, Bandwidth};
use vosti_cuda::{CudaDevice, Driver, DriverError};

/// A GPU's driver, or a stand-in in tests.
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
    /// Runs plans of tile IR.
    Cpu(Box<CpuDevice>),
    /// Launches a bundle's machine code.
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
    /// Seconds that each specialisation has taken since the last call; empty on a GPU unless its launches are timed.
    pub fn take_times(&self) -> Vec<(String, f64)> {
        match self {
            AnyDevice::Cpu(device) => device.take_times(),
            AnyDevice::Gpu(device) => device.take_times(),
        }
    }

    /// Has a GPU time its launches one by one, which makes its steps longer. A processor always does.
    pub fn time_launches(&mut self) {
        if let AnyDevice::Gpu(device) = self {
            device.time_launches();
        }
    }
}

impl Device for AnyDevice {
    type Logits = [f32];
    type Top = [(Token, f32)];

    vosti_engine::forward_device!(device in [AnyDevice::Cpu(device), AnyDevice::Gpu(device)]: limits, clear, run, rows);
}

/// Measures the bandwidth of a GPU's memory.
pub fn bandwidth(gpu: &Gpu) -> Result<Bandwidth, DriverError> {
    // Dropping this second handle frees the memory that the measurement allocates.
    bandwidth::measure(&mut *gpu.another()?, bandwidth::PTX, bandwidth::WHOLE)
}
