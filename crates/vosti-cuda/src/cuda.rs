//! The GPU behind CUDA's driver interface. libcuda is loaded at run time; without it, everything else still builds and tests.
//!
//! They ran on an H200 (`docs/gpu.md`).

use crate::driver::{About, Address, Attributes, Call, Driver, DriverError, Function, Graph, Matrix, Param, TensorMap};
use crate::host::HostMemory;
use cudarc::driver::sys;
use std::ffi::{CString, c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

/// The share of a multiprocessor's memory that is preferred as shared memory, in percent of the most.
const CARVEOUT_PERCENT: c_int = 100;
/// The first CUDA whose recordings have launches that begin early.
const EARLY: u32 = 12_030;
/// Bytes of a number in a matrix that has a tensor map.
const BF16: u64 = 2;
/// Parameters that a launch may have.
const PARAMS_MAX: usize = 32;

fn ok(call: &'static str, result: sys::CUresult) -> Result<(), DriverError> {
    match result {
        sys::CUresult::CUDA_SUCCESS => Ok(()),
        sys::CUresult::CUDA_ERROR_NO_DEVICE => Err(DriverError::NoDevice),
        sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => Err(DriverError::Memory { call, bytes: 0 }),
        other => Err(DriverError::Call { call, code: format!("{other:?}") }),
    }
}

/// The outcome of loading machine code. A driver refuses code that was made with a newer CUDA, or for another architecture; the
/// architecture was compared before.
fn loaded(result: sys::CUresult, version: u32) -> Result<(), DriverError> {
    use sys::CUresult::{CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_NO_BINARY_FOR_GPU, CUDA_ERROR_UNSUPPORTED_PTX_VERSION};
    match result {
        CUDA_ERROR_INVALID_IMAGE | CUDA_ERROR_NO_BINARY_FOR_GPU | CUDA_ERROR_UNSUPPORTED_PTX_VERSION => {
            Err(DriverError::Old { version, code: format!("{result:?}") })
        }
        other => ok("cuModuleLoadData", other),
    }
}

/// Adds the number of bytes to an error of too little memory.
fn asked(bytes: usize) -> impl Fn(DriverError) -> DriverError {
    move |error| match error {
        DriverError::Memory { call, .. } => DriverError::Memory { call, bytes: bytes as u64 },
        other => other,
    }
}

/// Calls a function of the driver and names it in its error.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: the arguments are live handles of this context, or point at values that live through the call; an
        // asynchronous copy reads or writes host memory that is kept until the stream has been waited for.
        ok(stringify!($name), unsafe { sys::$name($($argument),*) })
    };
}

/// One GPU's primary context. It is released when its last user is dropped.
struct Context {
    device: sys::CUdevice,
    handle: sys::CUcontext,
}

// SAFETY: a context may be made current on any thread.
unsafe impl Send for Context {}
// SAFETY: it is immutable.
unsafe impl Sync for Context {}

impl Context {
    /// Makes this thread use the context.
    fn enter(&self) -> Result<(), DriverError> {
        call!(cuCtxSetCurrent(self.handle))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // A failure cannot be reported here. The end of the process releases it too.
        _ = call!(cuDevicePrimaryCtxRelease_v2(self.device));
    }
}

/// Page-locked host memory.
struct Locked {
    context: Arc<Context>,
    at: *mut c_void,
}

// SAFETY: it is memory, and the context may be used from any thread.
unsafe impl Send for Locked {}

impl Drop for Locked {
    fn drop(&mut self) {
        _ = self.context.enter();
        _ = call!(cuMemFreeHost(self.at));
    }
}

/// One GPU and one stream.
pub struct Cuda {
    about: About,
    context: Arc<Context>,
    stream: sys::CUstream,
    modules: Vec<sys::CUmodule>,
    functions: Vec<sys::CUfunction>,
    graphs: Vec<sys::CUgraphExec>,
    /// Events, created as they are needed. The first `marked` of them are marks.
    events: Vec<sys::CUevent>,
    marked: usize,
    allocations: Vec<sys::CUdeviceptr>,
}

// SAFETY: handles of the driver may be used from any thread whose current context is theirs. Every call makes the context
// current and needs `&mut self`.
unsafe impl Send for Cuda {}

impl Cuda {
    /// Whether there is a GPU with this index in the driver's count, from 0; nothing is opened. Errors: no driver, no GPU, no such GPU.
    pub fn find(index: usize) -> Result<(), DriverError> {
        Cuda::ordinal(index).map(drop)
    }

    /// The GPU with this index. Errors: those of [`Cuda::find`], and the driver's.
    pub fn open(index: usize) -> Result<Cuda, DriverError> {
        let (mut device, mut handle) = (0, null_mut());
        call!(cuDeviceGet(&mut device, Cuda::ordinal(index)?))?;
        call!(cuDevicePrimaryCtxRetain(&mut handle, device))?;
        Cuda::on(Arc::new(Context { device, handle }), about(device)?)
    }

    fn ordinal(index: usize) -> Result<c_int, DriverError> {
        // SAFETY: asks whether the library can be loaded; its initialisers are the vendor's.
        if !unsafe { sys::is_culib_present() } {
            return Err(DriverError::NoDriver);
        }
        call!(cuInit(0))?;
        let mut count = 0;
        call!(cuDeviceGetCount(&mut count))?;
        if count == 0 {
            return Err(DriverError::NoDevice);
        }
        let ordinal = c_int::try_from(index).ok().filter(|ordinal| *ordinal < count);
        ordinal.ok_or(DriverError::NoSuchDevice { index, count: count.unsigned_abs() })
    }

    fn on(context: Arc<Context>, about: About) -> Result<Cuda, DriverError> {
        context.enter()?;
        let mut stream = null_mut();
        call!(cuStreamCreate(&mut stream, sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32))?;
        let (modules, functions, graphs, events, allocations) = (vec![], vec![], vec![], vec![], vec![]);
        Ok(Cuda { about, context, stream, modules, functions, graphs, events, marked: 0, allocations })
    }

    /// Makes this thread use the context.
    fn enter(&self) -> Result<(), DriverError> {
        self.context.enter()
    }
}

fn about(device: sys::CUdevice) -> Result<About, DriverError> {
    use sys::CUdevice_attribute as Attribute;
    let attribute = |which: Attribute| {
        let mut value: c_int = 0;
        call!(cuDeviceGetAttribute(&mut value, which, device))?;
        Ok::<_, DriverError>(value.unsigned_abs())
    };
    let mut version: c_int = 0;
    call!(cuDriverGetVersion(&mut version))?;
    let mut name = [0; 256];
    call!(cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int, device))?;
    let name: Vec<u8> = name.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
    Ok(About {
        name: String::from_utf8_lossy(&name).into_owned(),
        capability: (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        shared_bytes_max: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?.into(),
        multiprocessors: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        driver: version.unsigned_abs(),
    })
}

impl Driver for Cuda {
    fn about(&self) -> &About {
        &self.about
    }

    fn another(&self) -> Result<Box<dyn Driver + Send>, DriverError> {
        Ok(Box::new(Cuda::on(self.context.clone(), self.about.clone())?))
    }

    fn host(&mut self, bytes: usize) -> Result<HostMemory, DriverError> {
        self.enter()?;
        let mut at = null_mut();
        call!(cuMemAllocHost_v2(&mut at, bytes.max(1))).map_err(|error| match error {
            DriverError::Memory { .. } => DriverError::Locked { bytes: bytes as u64 },
            other => other,
        })?;
        let owner = Locked { context: self.context.clone(), at };
        let none = || DriverError::Call { call: "cuMemAllocHost_v2", code: "it gave no memory".into() };
        let start = NonNull::new(at.cast::<u8>()).ok_or_else(none)?;
        // SAFETY: the driver gave so many bytes, at a page, to us alone; they are initialised here.
        Ok(unsafe {
            start.as_ptr().write_bytes(0, bytes);
            HostMemory::of(start, bytes, Box::new(owner))
        })
    }

    fn free_bytes(&mut self) -> Result<u64, DriverError> {
        self.enter()?;
        let (mut free, mut total) = (0, 0);
        call!(cuMemGetInfo_v2(&mut free, &mut total))?;
        Ok(free as u64)
    }

    fn load(&mut self, cubin: &[u8], name: &str) -> Result<Function, DriverError> {
        self.enter()?;
        let misnamed = |_| DriverError::Call { call: "cuModuleGetFunction", code: format!("no kernel {name:?}") };
        let name = CString::new(name).map_err(misnamed)?;
        let (mut module, mut function) = (null_mut(), null_mut());
        // SAFETY: the pointers live through the call, and the bytes are an image whose header says its length.
        loaded(unsafe { sys::cuModuleLoadData(&mut module, cubin.as_ptr().cast()) }, self.about.driver)?;
        self.modules.push(module);
        call!(cuModuleGetFunction(&mut function, module, name.as_ptr()))?;
        // A multiprocessor divides its memory between shared memory and cache. With the most shared memory, more blocks fit at
        // once, and a kernel need not wait for another one that divides the memory differently.
        let carveout = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
        call!(cuFuncSetAttribute(function, carveout, CARVEOUT_PERCENT))?;
        self.functions.push(function);
        Ok(Function(self.functions.len() - 1))
    }

    fn attributes(&mut self, function: Function) -> Result<Attributes, DriverError> {
        self.enter()?;
        use sys::CUfunction_attribute as Attribute;
        let attribute = |which: Attribute| {
            let mut value: c_int = 0;
            call!(cuFuncGetAttribute(&mut value, which, self.functions[function.0]))?;
            Ok::<_, DriverError>(value.unsigned_abs())
        };
        Ok(Attributes {
            registers: attribute(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            local_bytes: attribute(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?.into(),
            shared_static: attribute(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?.into(),
            threads_max: attribute(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        })
    }

    fn allow_shared(&mut self, function: Function, bytes: u32) -> Result<(), DriverError> {
        self.enter()?;
        let which = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        call!(cuFuncSetAttribute(self.functions[function.0], which, bytes as c_int))
    }

    fn allocate(&mut self, bytes: u64) -> Result<Address, DriverError> {
        self.enter()?;
        let mut at = 0;
        let bytes = bytes.max(1) as usize;
        call!(cuMemAlloc_v2(&mut at, bytes)).map_err(asked(bytes))?;
        self.allocations.push(at);
        Ok(at)
    }

    fn zero(&mut self, at: Address, bytes: u64) -> Result<(), DriverError> {
        self.enter()?;
        call!(cuMemsetD8Async(at, 0, bytes as usize, self.stream))
    }

    fn upload(&mut self, at: Address, bytes: &[u8]) -> Result<(), DriverError> {
        self.enter()?;
        call!(cuMemcpyHtoDAsync_v2(at, bytes.as_ptr().cast(), bytes.len(), self.stream))
    }

    fn download(&mut self, parts: &mut [(Address, &mut [u8])]) -> Result<(), DriverError> {
        self.enter()?;
        let mut copied = Ok(());
        // A download of no bytes waits too, below.
        for (at, out) in parts.iter_mut().filter(|(_, out)| !out.is_empty()) {
            copied =
                copied.and_then(|()| call!(cuMemcpyDtoHAsync_v2(out.as_mut_ptr().cast(), *at, out.len(), self.stream)));
        }
        // Also after an error: copies in progress must end before the borrow of the memory does.
        let waited = call!(cuStreamSynchronize(self.stream));
        copied.and(waited)
    }

    fn copy(&mut self, from: Address, to: Address, bytes: u64) -> Result<(), DriverError> {
        self.enter()?;
        call!(cuMemcpyDtoDAsync_v2(to, from, bytes as usize, self.stream))
    }

    fn tensor_map(&mut self, matrix: &Matrix) -> Result<TensorMap, DriverError> {
        self.enter()?;
        const NAME: &[u8] = b"cuTensorMapEncodeTiled";
        // SAFETY: nothing is called; it only asks whether the library has the name.
        if unsafe { sys::culib().get::<*const c_void>(NAME) }.is_err() {
            return Err(DriverError::Maps { version: self.about.driver });
        }
        let swizzle = match matrix.swizzle {
            0 => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
            32 => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_32B,
            64 => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_64B,
            128 => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            other => {
                let code = format!("a swizzle of {other} bytes");
                return Err(DriverError::Call { call: "cuTensorMapEncodeTiled", code });
            }
        };
        // The driver's axes begin with the one along which numbers are adjacent.
        let ([rows, columns], [high, wide]) = (matrix.extents, matrix.tile);
        let (extents, strides, tile, steps) = ([columns, rows], [columns * BF16], [wide, high], [1, 1]);
        let mut map = sys::CUtensorMap { opaque: [0; 16] };
        call!(cuTensorMapEncodeTiled(
            &mut map,
            sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            2,
            std::ptr::without_provenance_mut(matrix.at as usize),
            extents.as_ptr(),
            strides.as_ptr(),
            tile.as_ptr(),
            steps.as_ptr(),
            sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle,
            sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        ))?;
        Ok(TensorMap(map.opaque))
    }

    fn launch(&mut self, launch: &Call) -> Result<(), DriverError> {
        self.enter()?;
        let mut params: [*mut c_void; PARAMS_MAX] = [null_mut(); PARAMS_MAX];
        if launch.params.len() > PARAMS_MAX {
            let code = format!("{} parameters, at most {PARAMS_MAX}", launch.params.len());
            return Err(DriverError::Call { call: "cuLaunchKernelEx", code });
        }
        for (place, param) in params.iter_mut().zip(launch.params) {
            *place = match param {
                Param::Word(word) => std::ptr::from_ref(word).cast_mut().cast(),
                Param::Map(map) => std::ptr::from_ref(map).cast_mut().cast(),
            };
        }
        let [x, y, z] = launch.grid;
        let function = self.functions[launch.function.0];
        // Between launches only: after a copy, and at the start of a recording, a launch begins when everything before
        // has ended.
        // While launches are timed, each has its own time.
        let early_now = launch.early && self.about.driver >= EARLY && self.marked == 0;
        let mut early = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = sys::CUlaunchConfig {
            gridDimX: x,
            gridDimY: y,
            gridDimZ: z,
            blockDimX: launch.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: launch.shared,
            hStream: self.stream,
            attrs: &mut early,
            numAttrs: u32::from(early_now),
        };
        call!(cuLaunchKernelEx(&config, function, params.as_mut_ptr(), null_mut()))
    }

    fn mark(&mut self) -> Result<(), DriverError> {
        self.enter()?;
        if self.marked == self.events.len() {
            let mut event = null_mut();
            call!(cuEventCreate(&mut event, sys::CUevent_flags::CU_EVENT_DEFAULT as u32))?;
            self.events.push(event);
        }
        call!(cuEventRecord(self.events[self.marked], self.stream))?;
        self.marked += 1;
        Ok(())
    }

    fn laps(&mut self) -> Result<Vec<f64>, DriverError> {
        self.synchronise()?;
        let marks = &self.events[..std::mem::take(&mut self.marked)];
        let lap = |two: &[sys::CUevent]| {
            let mut milliseconds = 0.0f32;
            call!(cuEventElapsedTime(&mut milliseconds, two[0], two[1]))?;
            Ok(f64::from(milliseconds) * 1e-3)
        };
        marks.windows(2).map(lap).collect()
    }

    fn begin_recording(&mut self) -> Result<(), DriverError> {
        self.enter()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        call!(cuStreamBeginCapture_v2(self.stream, mode))
    }

    fn end_recording(&mut self) -> Result<Graph, DriverError> {
        self.enter()?;
        let (mut graph, mut ready) = (null_mut(), null_mut());
        call!(cuStreamEndCapture(self.stream, &mut graph))?;
        let made = call!(cuGraphInstantiateWithFlags(&mut ready, graph, 0));
        call!(cuGraphDestroy(graph))?;
        made?;
        self.graphs.push(ready);
        Ok(Graph(self.graphs.len() - 1))
    }

    fn replay(&mut self, graph: Graph) -> Result<(), DriverError> {
        self.enter()?;
        call!(cuGraphLaunch(self.graphs[graph.0], self.stream))
    }

    fn synchronise(&mut self) -> Result<(), DriverError> {
        self.enter()?;
        call!(cuStreamSynchronize(self.stream))
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // A failure cannot be reported here. The end of the process frees everything too.
        _ = self.enter();
        _ = call!(cuStreamSynchronize(self.stream));
        self.graphs.iter().for_each(|graph| _ = call!(cuGraphExecDestroy(*graph)));
        self.events.iter().for_each(|event| _ = call!(cuEventDestroy_v2(*event)));
        self.allocations.iter().for_each(|at| _ = call!(cuMemFree_v2(*at)));
        self.modules.iter().for_each(|module| _ = call!(cuModuleUnload(*module)));
        _ = call!(cuStreamDestroy_v2(self.stream));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_not_there_and_a_driver_that_is_too_old_are_said_in_words() {
        let old = [
            sys::CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU,
            sys::CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
            sys::CUresult::CUDA_ERROR_INVALID_IMAGE,
        ];
        for result in old {
            let message = loaded(result, 12_040).unwrap_err().to_string();
            assert!(message.contains("the driver (CUDA 12.4) is too old for this bundle"), "{message}");
        }
        loaded(sys::CUresult::CUDA_SUCCESS, 12_040).unwrap();
        let full = ok("cuMemAlloc_v2", sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY).map_err(asked(4096)).unwrap_err();
        assert_eq!(full, DriverError::Memory { call: "cuMemAlloc_v2", bytes: 4096 });
        let other = ok("cuMemAlloc_v2", sys::CUresult::CUDA_ERROR_LAUNCH_FAILED).map_err(asked(4096)).unwrap_err();
        assert!(matches!(other, DriverError::Call { .. }), "{other}");
    }
}
