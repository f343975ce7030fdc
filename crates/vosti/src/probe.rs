//! Tries, on a GPU, the assumptions of its kernels' certificates, and compares each kernel with this machine's processor.
//!
//! The cases are `vosti-cuda`'s (`probe/`). The reference is here: the CPU device's compiled plans of the same TTIR, on some
//! programs of each launch; they may add in another order than the GPU's matrix instructions. The compared launches can be
//! written to files (`dump.rs`), which `bench/gpu/fp64.py` compares with sums in FP64.

mod dump;

use crate::deployment::{DeployError, Deployment, DeviceConfig};
use crate::device::AnyDevice;
use dump::Dump;
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};
use vosti_cpu::Isa;
use vosti_cpu::Layout;
use vosti_cpu::plan::compile;
use vosti_cpu::plan::machine::{Machine, Param};
use vosti_cuda::host::HostMemory;
use vosti_cuda::probe::{Hooks, Launched, ProbeOptions, Probed};
use vosti_engine::progress::Progress;
use vosti_kernels::{Admitted, Spec};
use vosti_tile::numerics::FloatMode;

/// Rows of a launch: several tiles of every kernel and a ragged end.
const ROWS_MAX: usize = 150;
/// Pages of each group: several sequences on both sides of a case, some of them beyond the first split of the keys.
const PAGES: usize = 96;
/// Programs of a launch that the reference runs.
const PROGRAMS_MAX: usize = 40;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum ProbeError {
    #[error("vosti probe tests GPUs: give --device cuda; `cargo test -p vosti-verify --test probes` tests CPUs")]
    NoGpu,
    #[error(transparent)]
    Deploy(#[from] DeployError),
    #[error("{}: {source}; name a folder that can be written", path.display())]
    Dump { path: PathBuf, source: io::Error },
    #[error("interrupted")]
    Interrupted,
}

/// The results of all kernels that were probed.
#[derive(Clone, Debug, Serialize)]
pub struct ProbeReport {
    /// The GPU's name.
    pub device: String,
    /// The model, as it was asked for.
    pub model: String,
    /// The deployment's fingerprint.
    pub fingerprint: String,
    /// Cases of each kernel, at least.
    pub cases: usize,
    /// True if every kernel was probed and no case differs.
    pub passed: bool,
    /// True if it was ended early: not every kernel was probed.
    pub interrupted: bool,
    /// One entry for each specialisation.
    pub kernels: Vec<Probed>,
}

/// Probes every kernel of a deployment on a GPU. The launches that are compared with this machine's processor are written
/// to the folder `dump`, weights and all.
pub fn run(
    deployment: &Deployment,
    options: ProbeOptions,
    dump: Option<&Path>,
    progress: &dyn Progress,
) -> Result<ProbeReport, ProbeError> {
    let unwritten = |source| ProbeError::Dump { path: dump.unwrap_or(Path::new("")).to_path_buf(), source };
    let mut files = dump.map(Dump::new).transpose().map_err(unwritten)?;
    let config = DeviceConfig { pages: Some(PAGES), rows_max: ROWS_MAX, ..DeviceConfig::default() };
    let AnyDevice::Gpu(mut device) = deployment.device(&config)? else { return Err(ProbeError::NoGpu) };
    let admitted = deployment.admitted();
    let mut reference =
        |spec: &Spec, buffers: &mut [Vec<u8>], grid: [usize; 3]| on_this_processor(admitted, spec, buffers, grid);
    let mut failed = None;
    let mut keep = |launched: &Launched| {
        let written = files.as_mut().map_or(Ok(()), |files| files.write(launched));
        written.map_err(|error| failed.insert(error).to_string())
    };
    let (mut kernels, mut all) = (vec![], 0);
    let mut done = |probed: Probed, of: usize| {
        if kernels.is_empty() {
            progress.stage("probing", of as u64);
        }
        all = of;
        kernels.push(probed);
        progress.done(kernels.len() as u64);
    };
    let ended = || progress.cancelled();
    let hooks = Hooks { reference: &mut reference, keep: &mut keep, done: &mut done, ended: &ended };
    let probed = device.probe(options, hooks);
    if let Some(error) = failed {
        return Err(unwritten(error));
    }
    probed.map_err(DeployError::from)?;
    let interrupted = kernels.len() < all;
    if kernels.is_empty() {
        return Err(ProbeError::Interrupted);
    }
    Ok(ProbeReport {
        device: deployment.device_name(),
        model: deployment.describe(),
        fingerprint: deployment.fingerprint().to_string(),
        cases: options.cases,
        passed: kernels.iter().all(Probed::passed) && !interrupted,
        interrupted,
        kernels,
    })
}

/// Runs the first, the last and some other programs of a launch.
fn on_this_processor(
    admitted: &Admitted,
    spec: &Spec,
    buffers: &mut [Vec<u8>],
    grid: [usize; 3],
) -> Result<(), String> {
    let proved = admitted.kernel(spec).map_err(|error| error.to_string())?;
    let kernel = vosti_tile::lift(&proved.text).map_err(|error| error.to_string())?;
    let isa = Isa::detect();
    let plan = compile(&kernel, isa).map_err(|error| error.to_string())?;
    let mut machine = Machine::new(isa, plan.scratch, None).map_err(|error: io::Error| error.to_string())?;
    let mut memory: Vec<HostMemory> = buffers.iter().map(|bytes| HostMemory::ordinary(bytes.len())).collect();
    for (own, bytes) in memory.iter_mut().zip(buffers.iter()) {
        own.bytes_mut().copy_from_slice(bytes);
    }
    let params = memory.iter_mut().zip(&kernel.params).map(|(own, param)| {
        let bytes = own.bytes_mut();
        Param { base: bytes.as_mut_ptr(), len: bytes.len() / param.elem.bytes(), layout: Layout::RowMajor }
    });
    let params: Vec<Param> = params.collect();
    let all = grid.iter().product::<usize>();
    let step = all.div_ceil(PROGRAMS_MAX).max(1);
    let chosen = (0..all).step_by(step).chain(all.checked_sub(1));
    let faulty = FloatMode::with(|| {
        machine.begin(&plan, grid.map(|n| n as i32));
        for i in chosen {
            let program = [i % grid[0], i / grid[0] % grid[1], i / grid[0] / grid[1]].map(|n| n as i32);
            // SAFETY: parameters are live buffers of their length, and this is the only thread.
            if let Err(fault) = unsafe { machine.run(&plan, &params, program) } {
                return Some(format!("{fault:?} in program {program:?}"));
            }
        }
        None
    });
    for (own, bytes) in memory.iter().zip(buffers.iter_mut()) {
        bytes.copy_from_slice(own.bytes());
    }
    faulty.map_or(Ok(()), Err)
}
