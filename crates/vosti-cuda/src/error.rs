//! Errors of a GPU device.

use crate::driver::DriverError;
use thiserror::Error;
use vosti_contract::ContractError;
use vosti_cubin::CubinError;
use vosti_kernels::KernelError;
use vosti_wiring::WiringError;

/// An error of this crate.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum CudaError {
    #[error("the bundle has no machine code for {spec}; run `vosti prepare` for this model")]
    NotInBundle { spec: String },
    #[error(
        "the bundle is for {target}, and {name} has compute capability {}.{}; run `vosti prepare` for that target",
        capability.0,
        capability.1
    )]
    OtherDevice { target: String, name: String, capability: (u32, u32) },
    #[error(
        "too little GPU memory: {:.2} GB are needed and {:.2} GB are free; give fewer pages of keys and values",
        *needs as f64 / 1e9,
        *free as f64 / 1e9
    )]
    RoomForPages { needs: u64, free: u64 },
    #[error(
        "too little GPU memory: the weights alone are {:.2} GB and {:.2} GB are free; use a smaller model or a larger \
         GPU, or stop other programs that use this one",
        *weights as f64 / 1e9,
        *free as f64 / 1e9
    )]
    RoomForWeights { weights: u64, free: u64 },
    #[error(
        "too little GPU memory: weights are {:.2} GB, the buffers of steps of {rows} rows at a context of {context} \
         {:.2} GB, and {:.2} GB are free; lower --context or the rows of a step",
        *weights as f64 / 1e9,
        *buffers as f64 / 1e9,
        *free as f64 / 1e9
    )]
    RoomForBuffers { weights: u64, buffers: u64, free: u64, rows: usize, context: u32 },
    #[error(
        "{source}, with a context of {context} and steps of {rows} rows: lower --context, the pages of keys and values or \
         the rows of a step, or stop other programs that use the GPU"
    )]
    Full { source: DriverError, rows: usize, context: u32 },
    #[error(
        "no kernels are made for {name} of compute capability {}.{}; there are targets {known}",
        capability.0,
        capability.1
    )]
    NoTarget { name: String, capability: (u32, u32), known: String },
    #[error("{spec} cannot be launched with {why}: this is a bug, report it")]
    Launch { spec: String, why: String },
    #[error(transparent)]
    Cubin(#[from] CubinError),
    #[error(transparent)]
    Wiring(#[from] WiringError),
    #[error(transparent)]
    Driver(#[from] DriverError),
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    Contract(#[from] ContractError),
}
