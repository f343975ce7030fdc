//! Runs kernels that `every_text --keep=FOLDER` compiled on a GPU, with the cases of the PTX executor, and compares each buffer with
//! the tile interpreter's, bit for bit. Bytes between and around the buffers must stay as they were.
//!
//!     cargo run -p vosti-cuda --example on_card -- FOLDER [SECONDS [SKIPPED]]
//!
//! One line of JSON for each kernel: how many numbers were compared, how many have other bits, the largest difference relative to
//! the larger of a number and the buffer's root mean square, and the first of them. A kernel without a dot or an approximation is
//! `exact`: its numbers must have the same bits, and the exit code is 1 if some do not, or if there is no case for a kernel. After SECONDS no further kernel begins. A call
//! that fails ends the run with exit code 3, because a GPU's context is lost then; SKIPPED kernels are not run, so that a second run
//! can go on behind the one that failed.

use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;
use vosti_cubin::arch::WARP;
use vosti_cubin::inspect::descriptors::extents;
use vosti_cubin::{Descriptor, Metadata};
use vosti_cuda::driver::{Call, Function, Matrix, Param};
use vosti_cuda::{Cuda, Driver, DriverError};
use vosti_kernels::{Spec, parse_stem};
use vosti_ptx::{Case, Cases, bytes, stored};
use vosti_tile::Scalar;
use vosti_tile::interp::Buffer;
use vosti_tile::ir::{Binary, OpKind, Unary};

/// The device memory of a case: its buffers with room between them.
const ARENA: u64 = 1 << 30;
/// Bytes before, between and after buffers.
const GUARD: usize = 4096;
const FILL: u8 = 0xa5;

/// A kernel to run.
struct Kernel {
    spec: Spec,
    ttir: String,
    code: Vec<u8>,
    metadata: Metadata,
    cases: Result<Cases, String>,
}

/// The kernels of a folder, and their cases, made on all cores.
fn kernels(folder: &Path, skipped: usize) -> std::io::Result<Vec<Kernel>> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    files.retain(|path| path.extension().is_some_and(|kind| kind == "json"));
    files.sort();
    files.drain(..skipped.min(files.len()));
    let (files, found) = (Mutex::new(files), Mutex::new(vec![]));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let Some(path) = files.lock().unwrap().pop() else { return };
                    let kernel = read(&path);
                    found.lock().unwrap().push(kernel);
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap();
    found.sort_by_key(|kernel| kernel.spec.to_string());
    Ok(found)
}

fn read(path: &Path) -> Kernel {
    let with = |kind: &str| {
        let mut name = path.to_path_buf().into_os_string().into_string().unwrap();
        name.truncate(name.len() - ".json".len());
        std::fs::read(format!("{name}.{kind}")).unwrap()
    };
    let stem = path.file_name().unwrap().to_str().unwrap().strip_suffix(".json").unwrap();
    let spec = parse_stem(stem).unwrap();
    let ttir = vosti_kernels::ttir(&spec).expect("a text of this build").into_owned();
    let cases = Cases::new(&spec, &ttir).map_err(|error| error.to_string());
    Kernel { spec, cases, ttir, code: with("cubin"), metadata: serde_json::from_slice(&with("json")).unwrap() }
}

/// Whether a text has sums or functions that a GPU may compute in another way: then its bits may differ.
fn exact(ttir: &str) -> bool {
    let mut found = true;
    let Ok(kernel) = vosti_tile::lift(ttir) else { return false };
    kernel.walk(&mut |op| match &op.kind {
        OpKind::Dot { acc, .. } => found &= kernel.ty(*acc).elem() == Scalar::I32,
        OpKind::Unary { op, .. } => found &= matches!(op, Unary::Neg | Unary::Abs | Unary::Floor | Unary::Ceil),
        OpKind::Binary { op: Binary::DivF, .. } => found = false,
        _ => (),
    });
    found
}

/// What is known of a kernel after its cases.
#[derive(Default)]
struct Compared {
    numbers: usize,
    differ: usize,
    largest: f64,
    first: Option<String>,
    /// A guard was overwritten.
    stray: Option<String>,
}

impl Compared {
    fn add(&mut self, name: &str, found: &[u8], wanted: &Buffer) {
        let size = wanted.elem().bytes();
        let value = |bits: u64| match wanted {
            Buffer::F32(_) => f64::from(f32::from_bits(bits as u32)),
            Buffer::Bf16(_) => f64::from(f32::from_bits((bits as u32) << 16)),
            _ => bits as f64,
        };
        let finite = (0..wanted.len()).map(|at| value(wanted.bits(at))).filter(|value| value.is_finite());
        let (many, squares) = finite.fold((0usize, 0.0), |(n, sum), value| (n + 1, sum + value * value));
        let typical = (squares / many.max(1) as f64).sqrt();
        for at in 0..wanted.len() {
            let mut bits = [0; 8];
            bits[..size].copy_from_slice(&found[at * size..][..size]);
            let (own, other) = (stored(wanted, u64::from_le_bytes(bits)), stored(wanted, wanted.bits(at)));
            self.numbers += 1;
            if own != other {
                self.differ += 1;
                let (own_value, other_value) = (value(own), value(other));
                let error = (own_value - other_value).abs() / other_value.abs().max(typical);
                self.largest = self.largest.max(if error.is_finite() { error } else { f64::INFINITY });
                self.first.get_or_insert_with(|| {
                    format!("`{name}` at {at} is {own:#x} ({own_value:e}), not {other:#x} ({other_value:e})")
                });
            }
        }
    }
}

/// The GPU, a kernel that is loaded on it, and the memory for its buffers.
struct Card<'a> {
    driver: &'a mut Cuda,
    arena: u64,
    function: Function,
    metadata: &'a Metadata,
    spec: &'a Spec,
}

/// Runs one case on the GPU and compares its buffers with the interpreter's.
fn run(
    card: &mut Card,
    case: &Case,
    names: &[String],
    wanted: &[Buffer],
    compared: &mut Compared,
) -> Result<(), DriverError> {
    let Card { ref mut driver, arena, function, metadata, spec } = *card;
    let mut host: Vec<u8> = vec![FILL; GUARD];
    let mut places = vec![];
    for buffer in &case.buffers {
        let bytes = bytes(buffer);
        places.push((host.len(), bytes.len()));
        host.extend(&bytes);
        let end = host.len().next_multiple_of(256) + GUARD;
        host.resize(end, FILL);
    }
    if host.len() as u64 > ARENA {
        compared.stray = Some(format!("a case has {} bytes", host.len()));
        return Ok(());
    }
    driver.upload(arena, &host)?;
    let mut pointers: Vec<u64> = places.iter().map(|(at, _)| arena + *at as u64).collect();
    pointers.extend([0, 0]);
    let [x, y, z] = case.grid.map(|n| n as u32);
    // A device launches nothing where there is nothing to do.
    if x * y * z > 0 {
        let (threads, shared) = (metadata.num_warps * WARP, metadata.shared as u32);
        let mut params: Vec<Param> = pointers.iter().copied().map(Param::Word).collect();
        for Descriptor { param, tile, swizzle, .. } in metadata.descriptors.iter().copied() {
            let contract = vosti_kernels::contract(&spec.kernel).expect("a kernel of this build");
            let (rows, columns) = extents(contract, spec, param).expect("a matrix");
            let rows = rows.unwrap_or(case.buffers[param].len() as u64 / columns);
            let matrix = Matrix { at: pointers[param], extents: [rows, columns], tile, swizzle };
            params[param] = Param::Map(driver.tensor_map(&matrix)?);
        }
        driver.launch(&Call { function, grid: [x, y, z], threads, shared, early: false, params: &params })?;
    }
    let mut after = vec![0; host.len()];
    driver.download(&mut [(arena, &mut after)])?;
    let mut last = 0;
    for (((at, length), name), wanted) in places.iter().zip(names).zip(wanted) {
        compared.add(name, &after[*at..][..*length], wanted);
        if after[last..*at].iter().any(|byte| *byte != FILL) {
            compared.stray = Some(format!("bytes before `{name}` were written"));
        }
        last = at + length;
    }
    if after[last..].iter().any(|byte| *byte != FILL) {
        compared.stray = Some("bytes after the last buffer were written".into());
    }
    Ok(())
}

fn all(driver: &mut Cuda, arena: u64, kernel: &Kernel) -> Result<Compared, String> {
    let Ok(cases) = &kernel.cases else { return Ok(Compared::default()) };
    let failed = |error: DriverError| error.to_string();
    let function = driver.load(&kernel.code, &kernel.metadata.name).map_err(failed)?;
    let found = driver.attributes(function).map_err(failed)?;
    if found.shared_static + kernel.metadata.shared > 48 << 10 {
        driver.allow_shared(function, kernel.metadata.shared as u32).map_err(failed)?;
    }
    let mut compared = Compared::default();
    let mut card = Card { driver, arena, function, metadata: &kernel.metadata, spec: &kernel.spec };
    for (case, wanted) in cases.each() {
        run(&mut card, case, cases.names(), wanted, &mut compared).map_err(failed)?;
    }
    Ok(compared)
}

fn main() {
    let start = Instant::now();
    let wrong = |what: &dyn std::fmt::Display| -> ! {
        eprintln!("{what}");
        std::process::exit(2)
    };
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().unwrap_or_else(|| wrong(&"on_card FOLDER [SECONDS [SKIPPED]]"));
    let mut number = |missing: u64| match arguments.next() {
        None => missing,
        Some(text) => text.parse().unwrap_or_else(|_| wrong(&format!("{text} is not a whole number"))),
    };
    let (limit, skipped) = (number(u64::MAX), number(0));
    let mut driver = Cuda::open(0).unwrap_or_else(|error| wrong(&error));
    let arena = driver.allocate(ARENA).unwrap_or_else(|error| wrong(&error));
    let kernels =
        kernels(Path::new(&folder), skipped as usize).unwrap_or_else(|error| wrong(&format!("{folder}: {error}")));
    eprintln!("{} kernels and their cases after {:.1} s", kernels.len(), start.elapsed().as_secs_f64());
    let (mut broken, mut same) = (0, 0);
    for (done, kernel) in kernels.iter().enumerate() {
        if start.elapsed().as_secs() > limit {
            eprintln!("no time is left for {} of them", kernels.len() - done);
            break;
        }
        let exact = exact(&kernel.ttir);
        let line = match all(&mut driver, arena, kernel) {
            Ok(found) => {
                same += usize::from(found.numbers > 0 && found.differ == 0);
                let other = exact && found.differ > 0;
                broken += usize::from(found.stray.is_some() || other || kernel.cases.is_err());
                json!({"kernel": kernel.spec.to_string(), "exact": exact, "numbers": found.numbers, "differ": found.differ,
                       "largest": found.largest.to_string(), "first": found.first, "stray": found.stray,
                       "no_case": kernel.cases.as_ref().err()})
            }
            Err(error) => {
                println!("{}", json!({"kernel": kernel.spec.to_string(), "error": error}));
                std::process::exit(3);
            }
        };
        println!("{line}");
    }
    eprintln!("{same} have the tile interpreter's bits; {broken} are wrong; {:.1} s", start.elapsed().as_secs_f64());
    std::process::exit(i32::from(broken > 0));
}
