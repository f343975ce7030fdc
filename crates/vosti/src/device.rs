//! The device that a deployment runs on, of whichever kind, and how a GPU is found.

use crate::deployment::DeployError;
use std::time::Instant;
use vosti_admission::{Bundle, BundleError};
use vosti_core::{Device, DeviceError, Program, StepPlan, Token};
use vosti_cpu::CpuDevice;
use vosti_cuda::driver::About;
use vosti_cuda::{Arch, CudaDevice, CudaError, Driver, DriverError};

/// A GPU, or in tests what stands in for one.
pub type Gpu = Box<dyn Driver + Send>;

/// How a GPU is found.
pub type OpenGpu = fn() -> Result<Gpu, DriverError>;

/// What a deployment shall run on.
#[derive(Clone, Copy, Debug, Default)]
pub enum On {
    /// This machine's processor.
    #[default]
    Cpu,
    Gpu(OpenGpu),
}

/// The first GPU of this machine.
pub fn first_gpu() -> Result<Gpu, DriverError> {
    Ok(Box::new(vosti_cuda::Cuda::open()?))
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

    fn rows_max(&self) -> usize {
        match self {
            AnyDevice::Cpu(device) => device.rows_max(),
            AnyDevice::Gpu(device) => device.rows_max(),
        }
    }

    fn selected_max(&self) -> usize {
        match self {
            AnyDevice::Cpu(device) => device.selected_max(),
            AnyDevice::Gpu(device) => device.selected_max(),
        }
    }

    fn pages(&self, group: usize) -> usize {
        match self {
            AnyDevice::Cpu(device) => device.pages(group),
            AnyDevice::Gpu(device) => device.pages(group),
        }
    }

    fn top_max(&self) -> usize {
        match self {
            AnyDevice::Cpu(device) => device.top_max(),
            AnyDevice::Gpu(device) => device.top_max(),
        }
    }

    fn clear(&mut self) {
        match self {
            AnyDevice::Cpu(device) => device.clear(),
            AnyDevice::Gpu(device) => device.clear(),
        }
    }

    fn run(&mut self, program: &Program, plan: &StepPlan) -> Result<(), DeviceError> {
        match self {
            AnyDevice::Cpu(device) => device.run(program, plan),
            AnyDevice::Gpu(device) => device.run(program, plan),
        }
    }

    fn logits(&self, selected: usize) -> &[f32] {
        match self {
            AnyDevice::Cpu(device) => device.logits(selected),
            AnyDevice::Gpu(device) => device.logits(selected),
        }
    }

    fn best(&self, selected: usize) -> Token {
        match self {
            AnyDevice::Cpu(device) => device.best(selected),
            AnyDevice::Gpu(device) => device.best(selected),
        }
    }

    fn top(&self, selected: usize) -> &[(Token, f32)] {
        match self {
            AnyDevice::Cpu(device) => device.top(selected),
            AnyDevice::Gpu(device) => device.top(selected),
        }
    }
}

/// The target of a bundle's machine code, if a GPU of this kind runs it.
pub fn target(bundle: &Bundle, about: &About) -> Result<String, DeployError> {
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
