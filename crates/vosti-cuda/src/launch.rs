//! A loaded kernel, and the checks before each launch.
//!
//! A wrong launch often fails silently. So this module compares the compiler's facts, the driver's facts and the arguments of
//! the launch, and returns an error for a mismatch before anything runs.

use crate::driver::{Address, Call, Driver, Function, Matrix, Param, TensorMap};
use crate::error::CudaError;
use std::sync::Arc;
use vosti_contract::{Contract, Extent};
use vosti_cubin::arch::WARP;
use vosti_cubin::inspect::{SCRATCH_PARAMS, descriptors, launchable};
use vosti_cubin::{Arch, Cubin, CubinError, Descriptor, Refusal};
use vosti_kernels::{Proved, Spec};
use vosti_tile::Scalar;

/// Shared memory that a block may have by default, in bytes: static and dynamic together.
const SHARED_FREE: u64 = 48 << 10;
/// The address of a matrix that has a tensor map is a multiple of so many bytes, and an extent is at most 2^32 (CUDA driver API,
/// `cuTensorMapEncodeTiled`). Tiles and rows are checked when a kernel is loaded.
const MAP_UNIT: u64 = 16;
const MAP_EXTENT: u64 = 1 << 32;
/// The most blocks on each axis of a grid.
const GRID_MAX: [usize; 3] = [i32::MAX as usize, 65_535, 65_535];

/// The scratch of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scratch {
    /// Bytes for one program.
    pub bytes: u64,
    /// The alignment of the scratch of all programs, in bytes.
    pub align: u64,
}

/// A parameter's element type and the divisibility of its address that the code relies on.
#[derive(Clone, Copy, Debug)]
pub struct Premise {
    /// The element type of the parameter's buffer.
    pub elem: Scalar,
    /// The address is a multiple of this number of bytes.
    pub divisibility: u64,
}

/// A parameter whose tiles are copied by descriptor.
#[derive(Clone, Copy, Debug)]
struct Mapped {
    descriptor: Descriptor,
    /// Rows by the contract. None: those of the buffer.
    rows: Option<u64>,
    columns: u64,
}

/// A loaded kernel.
#[derive(Debug)]
pub struct Code {
    /// The kernel and its specialisation.
    pub spec: Spec,
    /// The contract, which has the roles of parameters, and the grid.
    pub proved: Arc<Proved>,
    /// One for each parameter, in signature order.
    pub premises: Vec<Premise>,
    /// Global scratch, then the profiler's.
    pub scratch: [Scratch; SCRATCH_PARAMS],
    mapped: Vec<Mapped>,
    function: Function,
    threads: u32,
    shared: u32,
    early: bool,
    /// Blocks that a multiprocessor holds at once.
    pub(crate) blocks: usize,
}

impl vosti_wiring::Kernel for Code {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn contract(&self) -> &Contract {
        &self.proved.contract
    }

    fn elem(&self, param: usize) -> Scalar {
        self.premises[param].elem
    }
}

impl Code {
    /// Loads a cubin. Errors: it is for another device, the driver's facts differ from the compiler's, or the kernel
    /// needs a feature that the launcher does not support.
    pub fn load(driver: &mut dyn Driver, cubin: &Cubin, proved: &Arc<Proved>, arch: Arch) -> Result<Code, CudaError> {
        let spec = &cubin.spec;
        let refused = |refusal| {
            CudaError::from(CubinError::Refused { spec: spec.to_string(), target: format!("cuda-{arch}"), refusal })
        };
        let (metadata, facts) = (&cubin.record.metadata, &cubin.record.facts);
        launchable(metadata, arch).map_err(refused)?;
        if metadata.target != arch.assembled() {
            let found = metadata.target.clone();
            return Err(refused(Refusal::Assembled { found, wanted: arch.assembled() }));
        }
        if cubin.ttir != proved.text {
            return Err(CubinError::Stale { spec: spec.to_string(), what: "was compiled from another TTIR" }.into());
        }
        let contract = &proved.contract;
        let kernel = vosti_tile::lift(&cubin.ttir).map_err(|error| refused(Refusal::Ttir(error.to_string())))?;
        vosti_wiring::signature(&kernel, contract, spec)?;
        let wanted = contract.params.len() + SCRATCH_PARAMS;
        if facts.params != wanted {
            let maps = metadata.descriptors.iter().map(|descriptor| descriptor.param).collect();
            return Err(refused(Refusal::Parameters { found: facts.params.to_string(), wanted, maps }));
        }
        let mapped = |descriptor: &Descriptor| {
            let (rows, columns) = descriptors::fits(descriptor, contract, &kernel, spec)?;
            Ok(Mapped { descriptor: *descriptor, rows, columns })
        };
        let mapped = metadata.descriptors.iter().map(mapped).collect::<Result<Vec<_>, _>>().map_err(refused)?;
        let function = driver.load(&cubin.code, &metadata.name)?;
        let found = driver.attributes(function)?;
        if found.local_bytes > 0 {
            return Err(refused(Refusal::Spills { bytes: found.local_bytes }));
        }
        let threads = metadata.num_warps * WARP;
        if found.threads_max < threads {
            let most = found.threads_max;
            return Err(refused(Refusal::Registers { registers: found.registers, threads, most }));
        }
        // Static shared memory is part of the same memory.
        let most = driver.about().shared_bytes_max.saturating_sub(found.shared_static);
        let shared = u32::try_from(metadata.shared).unwrap_or(u32::MAX);
        if metadata.shared > most {
            return Err(refused(Refusal::Shared { bytes: metadata.shared, most }));
        }
        if found.shared_static.saturating_add(metadata.shared) > SHARED_FREE {
            driver.allow_shared(function, shared)?;
        }
        let premise = |param: &vosti_tile::Param| Premise {
            elem: param.elem,
            divisibility: u64::from(param.divisibility.max(1)),
        };
        Ok(Code {
            spec: spec.clone(),
            premises: kernel.params.iter().map(premise).collect(),
            proved: proved.clone(),
            scratch: [
                Scratch { bytes: metadata.global_scratch_size, align: metadata.global_scratch_align },
                Scratch { bytes: metadata.profile_scratch_size, align: metadata.profile_scratch_align },
            ],
            mapped,
            function,
            threads,
            shared,
            early: metadata.launch_pdl,
            blocks: facts.blocks.max(1) as usize,
        })
    }

    /// The tensor maps of its parameters that are copied by descriptor, in their order. `pointers` are its parameters, and `bytes` says
    /// how many bytes of its buffer one has behind its pointer. Errors: a matrix that is not aligned, has no row or leaves its buffer, a
    /// failure of the driver.
    pub fn maps(
        &self,
        driver: &mut dyn Driver,
        pointers: &[Address],
        bytes: impl Fn(usize) -> u64,
    ) -> Result<Vec<TensorMap>, CudaError> {
        let map = |mapped: &Mapped| {
            let Descriptor { param, tile, elem, swizzle } = mapped.descriptor;
            let (at, bytes) = (pointers.get(param).copied().unwrap_or(0), bytes(param));
            let row = mapped.columns * u64::from(elem);
            let rows = mapped.rows.unwrap_or(bytes / row);
            let within = rows.checked_mul(row).is_some_and(|all| all <= bytes);
            if at == 0 || !at.is_multiple_of(MAP_UNIT) || rows == 0 || rows.max(mapped.columns) > MAP_EXTENT || !within
            {
                let name = &self.proved.contract.params[param].name;
                let why = format!("a map of {rows} rows of {row} bytes of `{name}`, {bytes} bytes at {at:#x}");
                return Err(self.refused(why));
            }
            Ok(driver.tensor_map(&Matrix { at, extents: [rows, mapped.columns], tile, swizzle })?)
        };
        self.mapped.iter().map(map).collect()
    }

    /// Launches the kernel over its contract's grid for this extent. `pointers` are its parameters, the two for scratch
    /// last, and `maps` stand in the place of those that are copied by descriptor ([`Code::maps`]). An empty grid is not launched.
    /// Errors: too large a grid, an address that breaks a premise, a failure of the driver.
    pub fn launch(
        &self,
        driver: &mut dyn Driver,
        extent: Extent,
        pointers: &[Address],
        maps: &[TensorMap],
    ) -> Result<(), CudaError> {
        let grid = self.grid(extent)?;
        if grid.contains(&0) {
            return Ok(());
        }
        if let Some(axis) = (0..3).find(|axis| grid[*axis] > GRID_MAX[*axis]) {
            return Err(self.refused(format!("a grid of {} programs on axis {axis}", grid[axis])));
        }
        if pointers.len() != self.premises.len() + SCRATCH_PARAMS {
            return Err(self.refused(format!("{} parameters", pointers.len())));
        }
        if maps.len() != self.mapped.len() {
            return Err(self.refused(format!("{} tensor maps", maps.len())));
        }
        for (i, premise) in self.premises.iter().enumerate() {
            if pointers[i] == 0 || !pointers[i].is_multiple_of(premise.divisibility) {
                let name = &self.proved.contract.params[i].name;
                return Err(self.refused(format!("`{name}` at {:#x}", pointers[i])));
            }
        }
        for (scratch, at) in self.scratch.iter().zip(&pointers[self.premises.len()..]) {
            if scratch.bytes > 0 && (*at == 0 || !at.is_multiple_of(scratch.align.max(1))) {
                return Err(self.refused(format!("scratch at {at:#x}")));
            }
        }
        let mut params: Vec<Param> = pointers.iter().copied().map(Param::Word).collect();
        for (mapped, map) in self.mapped.iter().zip(maps) {
            params[mapped.descriptor.param] = Param::Map(*map);
        }
        let call = Call {
            function: self.function,
            // Each program is one block: clusters are refused.
            grid: grid.map(|n| n as u32),
            threads: self.threads,
            shared: self.shared,
            early: self.early,
            params: &params,
        };
        Ok(driver.launch(&call)?)
    }

    fn refused(&self, why: String) -> CudaError {
        CudaError::Launch { spec: self.spec.to_string(), why }
    }

    /// Programs on each axis of a launch for this extent.
    pub fn grid(&self, extent: Extent) -> Result<[usize; 3], CudaError> {
        Ok(self.proved.grid.at(extent)?)
    }
}
