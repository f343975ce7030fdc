//! A `libcuda.so` without a GPU, to try the `vosti` command itself with `--device cuda`. It has the driver's calls of `cuda.rs`,
//! over the stand-in that executes TTIR in host memory. It finds a cubin's kernel by its bytes, in the bundles that `STAND_IN`
//! names, with colons between. It shows nothing about a GPU's arithmetic or speed. Like a driver, it returns an error for a wrong call: one without
//! a context, with unknown handles or attributes, with a copy outside an allocation, or with a wrong number of parameters.
//!
//!     cargo build -p vosti-cuda --example cuda
//!     STAND_IN=BUNDLE LD_LIBRARY_PATH=target/debug/examples vosti bench --device cuda --bundle BUNDLE ...

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction, CUfunction_attribute, CUgraph,
    CUgraphExec, CUlaunchAttributeID, CUlaunchConfig, CUmodule, CUresult, CUstream, CUstreamCaptureMode, CUtensorMap,
    CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave, CUtensorMapL2promotion, CUtensorMapSwizzle,
};
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::path::Path;
use std::sync::{Mutex, OnceLock};
use std::time::Instant;
use vosti_cubin::Record;
use vosti_cuda::driver::{Attributes, Call, Driver as _, DriverError, Function, Graph, Matrix, Param, TensorMap};
use vosti_kernels::{Spec, parse_stem, ttir};
use vosti_stand_in::{StandIn, marks};

/// Bytes of free memory: few, because all of it is host memory.
const FREE: u64 = 3 << 30;

/// A cubin of the bundle.
struct Known {
    spec: Spec,
    cubin: Vec<u8>,
    record: Record,
}

/// The driver's state. All streams are one, and every call has done its work when it returns.
struct Driver {
    device: StandIn,
    bundle: Vec<Known>,
    /// Places in the bundle.
    modules: Vec<usize>,
    functions: Vec<(Function, Attributes)>,
    /// The parameters of each function: whether one is a tensor map.
    params: Vec<Vec<bool>>,
    events: Vec<Option<Instant>>,
    graphs: Vec<Graph>,
    streams: usize,
    /// Page-locked memory.
    locked: Vec<Box<[u8]>>,
}

static DRIVER: OnceLock<Mutex<Driver>> = OnceLock::new();

thread_local! {
    static CURRENT: Cell<bool> = const { Cell::new(false) };
}

type Outcome = Result<(), CUresult>;
const BAD: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
const NO_HANDLE: CUresult = CUresult::CUDA_ERROR_INVALID_HANDLE;

impl Driver {
    fn new() -> Option<Driver> {
        let mut device = StandIn::fast();
        device.free = FREE;
        let folders = std::env::var_os("STAND_IN")?;
        let bundles = std::env::split_paths(&folders).map(|folder| read(&folder)).collect::<Option<Vec<_>>>()?;
        let bundle = bundles.into_iter().flatten().collect();
        let (modules, functions, params, events, graphs, locked) = (vec![], vec![], vec![], vec![], vec![], vec![]);
        Some(Driver { device, bundle, modules, functions, params, events, graphs, streams: 0, locked })
    }

    fn function(&self, handle: CUfunction) -> Result<usize, CUresult> {
        index(handle, self.functions.len())
    }

    fn stream(&self, handle: CUstream) -> Result<(), CUresult> {
        index(handle, self.streams).map(drop)
    }
}

fn read(folder: &Path) -> Option<Vec<Known>> {
    let known = |path: &Path| {
        let spec = parse_stem(path.file_stem()?.to_str()?)?;
        let launch = std::fs::read(folder.join(format!("launch/{spec}.json"))).ok()?;
        let record: Record = serde_json::from_slice(&launch).ok()?;
        Some(Known { spec, cubin: std::fs::read(path).ok()?, record })
    };
    std::fs::read_dir(folder.join("cubin")).ok()?.map(|file| known(&file.ok()?.path())).collect()
}

/// Handles are numbers from 1 on.
fn handle<T>(many: usize) -> *mut T {
    std::ptr::without_provenance_mut(many)
}

fn index<T>(handle: *mut T, many: usize) -> Result<usize, CUresult> {
    handle.addr().checked_sub(1).filter(|index| *index < many).ok_or(NO_HANDLE)
}

fn put<T>(at: *mut T, value: T) -> Outcome {
    // SAFETY: who calls a driver gives it places that live through the call.
    unsafe { at.write(value) };
    Ok(())
}

fn bytes<'a>(at: *const c_void, many: usize) -> &'a [u8] {
    // SAFETY: who calls a driver gives it memory that lives through the call.
    unsafe { std::slice::from_raw_parts(at.cast(), many) }
}

/// The code of an error. The stand-in's message goes to standard error, because the caller gets only the code.
fn code<T>(result: Result<T, DriverError>) -> Result<T, CUresult> {
    result.map_err(|error| match error {
        DriverError::Memory { .. } => CUresult::CUDA_ERROR_OUT_OF_MEMORY,
        other => {
            eprintln!("libcuda.so of the stand-in: {other}");
            CUresult::CUDA_ERROR_LAUNCH_FAILED
        }
    })
}

fn done(outcome: Outcome) -> CUresult {
    outcome.err().unwrap_or(CUresult::CUDA_SUCCESS)
}

/// Runs a call that needs a context.
fn with(call: impl FnOnce(&mut Driver) -> Outcome) -> CUresult {
    if !CURRENT.get() {
        return CUresult::CUDA_ERROR_INVALID_CONTEXT;
    }
    let Some(driver) = DRIVER.get() else { return CUresult::CUDA_ERROR_NOT_INITIALIZED };
    // After a panic every call fails.
    driver.lock().map_or(CUresult::CUDA_ERROR_UNKNOWN, |mut driver| done(call(&mut driver)))
}

/// The calls, under their names in the library.
macro_rules! calls {
    ($($name:ident($($argument:ident: $ty:ty),*) $body:expr;)*) => {$(
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "the driver's names")]
        extern "C" fn $name($($argument: $ty),*) -> CUresult {
            $body
        }
    )*};
}

calls! {
    cuInit(flags: c_uint) done(match (flags, DRIVER.get().is_some()) {
        (0, true) => Ok(()),
        (0, false) => match Driver::new() {
            Some(driver) => DRIVER.set(Mutex::new(driver)).map_err(|_| BAD),
            None => Err(CUresult::CUDA_ERROR_NO_DEVICE),
        },
        _ => Err(BAD),
    });
    cuDeviceGetCount(count: *mut c_int) done(put(count, 1));
    cuDeviceGet(device: *mut CUdevice, ordinal: c_int) done(if ordinal == 0 { put(device, 0) } else { Err(BAD) });
    cuDevicePrimaryCtxRetain(context: *mut CUcontext, _device: CUdevice) done(put(context, handle(1)));
    cuDevicePrimaryCtxRelease_v2(_device: CUdevice) done(Ok(()));
    cuCtxSetCurrent(context: CUcontext) done(index(context, 1).map(|_| CURRENT.set(true)));
    cuDriverGetVersion(version: *mut c_int) done(put(version, 12_080));
    cuDeviceGetName(name: *mut c_char, many: c_int, _device: CUdevice) done({
        let text = c"stand-in".to_bytes_with_nul();
        let room = usize::try_from(many).unwrap_or(0);
        text.iter().take(room).enumerate().try_for_each(|(i, byte)| put(name.wrapping_add(i), *byte as c_char))
    });
    cuDeviceGetAttribute(value: *mut c_int, which: CUdevice_attribute, _device: CUdevice) done(match which {
        CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => put(value, 9),
        CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR => put(value, 0),
        CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => put(value, 232_448),
        CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT => put(value, 1),
        _ => Err(BAD),
    });

    cuStreamCreate(stream: *mut CUstream, _flags: c_uint) with(|driver| {
        driver.streams += 1;
        put(stream, handle(driver.streams))
    });
    cuStreamDestroy_v2(stream: CUstream) with(|driver| driver.stream(stream));
    cuStreamSynchronize(stream: CUstream) with(|driver| driver.stream(stream));

    cuMemGetInfo_v2(free: *mut usize, total: *mut usize) with(|driver| {
        put(free, code(driver.device.free_bytes())? as usize)?;
        put(total, FREE as usize)
    });
    cuMemAllocHost_v2(at: *mut *mut c_void, many: usize) with(|driver| {
        let mut memory = vec![0xa5; many].into_boxed_slice();
        put(at, memory.as_mut_ptr().cast())?;
        driver.locked.push(memory);
        Ok(())
    });
    cuMemFreeHost(at: *mut c_void) with(|driver| {
        let place = driver.locked.iter().position(|memory| memory.as_ptr().addr() == at.addr()).ok_or(BAD)?;
        drop(driver.locked.swap_remove(place));
        Ok(())
    });
    cuMemAlloc_v2(at: *mut CUdeviceptr, many: usize) with(|driver| put(at, code(driver.device.allocate(many as u64))?));
    cuMemFree_v2(at: CUdeviceptr) with(|driver| code(driver.device.release(at)));
    cuMemsetD8Async(at: CUdeviceptr, byte: u8, many: usize, stream: CUstream) with(|driver| {
        driver.stream(stream)?;
        if byte == 0 { code(driver.device.zero(at, many as u64)) } else { Err(BAD) }
    });
    cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, many: usize, stream: CUstream) with(|driver| {
        driver.stream(stream)?;
        code(driver.device.upload(to, bytes(from, many)))
    });
    cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, many: usize, stream: CUstream) with(|driver| {
        driver.stream(stream)?;
        // SAFETY: who calls a driver gives it memory that lives until the stream has been waited for.
        let to = unsafe { std::slice::from_raw_parts_mut(to.cast(), many) };
        code(driver.device.download(&mut [(from, to)]))
    });
    cuMemcpyDtoDAsync_v2(to: CUdeviceptr, from: CUdeviceptr, many: usize, stream: CUstream) with(|driver| {
        driver.stream(stream)?;
        code(driver.device.copy(from, to, many as u64))
    });

    cuModuleLoadData(module: *mut CUmodule, image: *const c_void) with(|driver| {
        // PTX is for a driver that compiles it.
        if bytes(image, 4) != b"\x7fELF" {
            return Err(CUresult::CUDA_ERROR_JIT_COMPILER_NOT_FOUND);
        }
        // The section headers are an ELF file's last part.
        let header = bytes(image, 64);
        let number = |at: usize, many: usize| header[at..at + many].iter().rev().fold(0, |n, byte| n << 8 | usize::from(*byte));
        let image = bytes(image, (number(40, 8) + number(58, 2) * number(60, 2)).max(number(32, 8) + number(54, 2) * number(56, 2)));
        let known = |known: &Known| known.cubin.len() >= image.len() && known.cubin.starts_with(image);
        let place = driver.bundle.iter().position(known).ok_or(CUresult::CUDA_ERROR_INVALID_IMAGE)?;
        driver.modules.push(place);
        put(module, handle(driver.modules.len()))
    });
    cuModuleUnload(module: CUmodule) with(|driver| index(module, driver.modules.len()).map(drop));
    cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char) with(|driver| {
        let place = driver.modules[index(module, driver.modules.len())?];
        let Known { spec, record: Record { facts, metadata, .. }, .. } = &driver.bundle[place];
        // SAFETY: who calls a driver gives it a text that ends in zero.
        let name = unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| BAD)?;
        let attributes = Attributes {
            registers: facts.registers,
            local_bytes: 0,
            shared_static: facts.shared_static,
            threads_max: 1024,
        };
        driver.device.attributes = attributes;
        let text = ttir(spec).ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
        let loaded = driver.device.load(format!("{}{text}", marks(spec, metadata)).as_bytes(), name);
        driver.functions.push((code(loaded)?, attributes));
        let map = |at: usize| metadata.descriptors.iter().any(|descriptor| descriptor.param == at);
        driver.params.push((0..facts.params).map(map).collect());
        put(function, handle(driver.functions.len()))
    });
    cuFuncGetAttribute(value: *mut c_int, which: CUfunction_attribute, function: CUfunction) with(|driver| {
        use CUfunction_attribute as Attribute;
        let (_, of) = driver.functions[driver.function(function)?];
        let found = match which {
            Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS => u64::from(of.registers),
            Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES => of.local_bytes,
            Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES => of.shared_static,
            Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK => u64::from(of.threads_max),
            _ => return Err(BAD),
        };
        put(value, c_int::try_from(found).map_err(|_| BAD)?)
    });
    cuFuncSetAttribute(function: CUfunction, which: CUfunction_attribute, value: c_int) with(|driver| {
        use CUfunction_attribute as Attribute;
        let (function, _) = driver.functions[driver.function(function)?];
        let value = u32::try_from(value).map_err(|_| BAD)?;
        match which {
            Attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT if value <= 100 => Ok(()),
            Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => code(driver.device.allow_shared(function, value)),
            _ => Err(BAD),
        }
    });

    cuTensorMapEncodeTiled(map: *mut CUtensorMap, ty: CUtensorMapDataType, rank: c_uint, at: *mut c_void,
        extents: *const u64, strides: *const u64, tile: *const c_uint, steps: *const c_uint, interleave: CUtensorMapInterleave,
        swizzle: CUtensorMapSwizzle, _promotion: CUtensorMapL2promotion, fill: CUtensorMapFloatOOBfill) with(|driver| {
        let plain = interleave == CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE
            && fill == CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
        if ty != CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 || rank != 2 || !plain || !map.addr().is_multiple_of(64) {
            return Err(BAD);
        }
        // SAFETY: who calls a driver gives it a number for each axis, and of strides one less.
        let (extents, stride, tile, steps) = unsafe {
            (extents.cast::<[u64; 2]>().read(), strides.read(), tile.cast::<[u32; 2]>().read(), steps.cast::<[u32; 2]>().read())
        };
        // Rows without gaps, because the kernel's text has none.
        if stride != extents[0] * 2 || steps != [1, 1] {
            return Err(BAD);
        }
        let swizzle = match swizzle {
            CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE => 0,
            CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_32B => 32,
            CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_64B => 64,
            CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B => 128,
            _ => return Err(BAD),
        };
        let [columns, rows] = extents;
        let matrix = Matrix { at: at.addr() as u64, extents: [rows, columns], tile: [tile[1], tile[0]], swizzle };
        let TensorMap(opaque) = code(driver.device.tensor_map(&matrix))?;
        put(map, CUtensorMap { opaque })
    });

    cuLaunchKernelEx(config: *const CUlaunchConfig, function: CUfunction, params: *mut *mut c_void,
        extra: *mut *mut c_void) with(|driver| {
        // SAFETY: who calls a driver gives it a configuration, and a place for each of its attributes.
        let (config, attributes) = unsafe {
            let config = config.read();
            (config, std::slice::from_raw_parts(config.attrs, config.numAttrs as usize))
        };
        driver.stream(config.hStream)?;
        let at = driver.function(function)?;
        if [config.blockDimY, config.blockDimZ] != [1, 1] || !extra.is_null() {
            return Err(BAD);
        }
        let early = match attributes {
            [] => false,
            // SAFETY: an attribute of this name has a number.
            [one] if one.id == CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION => unsafe {
                one.value.programmaticStreamSerializationAllowed == 1
            },
            _ => return Err(BAD),
        };
        // SAFETY: who calls a driver gives it a place for each parameter, of 128 bytes at a multiple of 64 or of 8 bytes here.
        let param = |(i, map): (usize, &bool)| unsafe {
            let place = params.add(i).read();
            if *map { Param::Map(place.cast::<TensorMap>().read()) } else { Param::Word(place.cast::<u64>().read()) }
        };
        let params: Vec<Param> = driver.params[at].iter().enumerate().map(param).collect();
        let call = Call {
            function: driver.functions[at].0,
            grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
            threads: config.blockDimX,
            shared: config.sharedMemBytes,
            early,
            params: &params,
        };
        code(driver.device.launch(&call))
    });

    cuEventCreate(event: *mut CUevent, _flags: c_uint) with(|driver| {
        driver.events.push(None);
        put(event, handle(driver.events.len()))
    });
    cuEventDestroy_v2(event: CUevent) with(|driver| index(event, driver.events.len()).map(drop));
    cuEventRecord(event: CUevent, stream: CUstream) with(|driver| {
        driver.stream(stream)?;
        let at = index(event, driver.events.len())?;
        driver.events[at] = Some(Instant::now());
        Ok(())
    });
    cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent) with(|driver| {
        let of = |event| driver.events[index(event, driver.events.len())?].ok_or(NO_HANDLE);
        put(milliseconds, of(end)?.duration_since(of(start)?).as_secs_f32() * 1e3)
    });

    cuStreamBeginCapture_v2(stream: CUstream, _mode: CUstreamCaptureMode) with(|driver| {
        driver.stream(stream)?;
        code(driver.device.begin_recording())
    });
    cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) with(|driver| {
        driver.stream(stream)?;
        driver.graphs.push(code(driver.device.end_recording())?);
        put(graph, handle(driver.graphs.len()))
    });
    cuGraphInstantiateWithFlags(ready: *mut CUgraphExec, graph: CUgraph, _flags: c_ulonglong) with(|driver| {
        put(ready, handle(index(graph, driver.graphs.len())? + 1))
    });
    cuGraphDestroy(graph: CUgraph) with(|driver| index(graph, driver.graphs.len()).map(drop));
    cuGraphExecDestroy(graph: CUgraphExec) with(|driver| index(graph, driver.graphs.len()).map(drop));
    cuGraphLaunch(graph: CUgraphExec, stream: CUstream) with(|driver| {
        driver.stream(stream)?;
        let at = index(graph, driver.graphs.len())?;
        code(driver.device.replay(driver.graphs[at]))
    });
}
