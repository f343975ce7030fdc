//! Compiles every TTIR text for GPUs for every target and checks the machine code. A model of a supported family needs no other
//! text. Each text is compiled twice: with heads and groups that fill their rooms, and with smaller ones; attention with each use
//! that the target makes of it, and a router also with groups of experts. The exit code is 1 if a kernel spills, is refused, or
//! does not compile.
//!
//!     cargo run -p vosti-cubin --example every_text [--execute | --keep=FOLDER] [TARGET...] [KERNEL...]
//!
//! Without a target all are tried, and without a kernel all. With `--execute` models are smaller, and the PTX of each kernel that
//! passes is executed here and compared with the tile interpreter, bit for bit (`cargo xtask execute`). With `--keep` the same
//! kernels are not executed but written to a folder, for the example `on_card`, which runs them on a GPU.

use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use vosti_contract::{Const, FOLDED};
use vosti_cubin::toolchain::REQUIREMENT;
use vosti_cubin::{Arch, Artifact, CubinError, Executed, Facts, Toolchain, execute, inspect};
use vosti_kernels::Spec;
use vosti_ptx::{Kernel, ReadError};

/// Kernels in one run of the compiler.
const CHUNK: usize = 8;

/// The dimensions of a text.
#[derive(Clone, Copy)]
struct Numbers {
    /// Heads and groups fill their rooms.
    full: bool,
    /// The value of `USE`; a router has groups of experts where it is 1.
    chosen: i64,
    /// As tiny models have them, not as published ones.
    small: bool,
}

/// A text with dimensions that models have, and at most `room` query heads for each KV head. If `full`, heads and groups fill
/// their rooms and flags are 0; else they are smaller, rows are a multiple of 8, and flags are 1. `chosen` is independent.
fn with_numbers(text: &Spec, room: i64, Numbers { full, chosen, small }: Numbers) -> Spec {
    let pick = |large: i64, little: i64| if small { little } else { large };
    let either = |all: i64, some: i64| if full { all } else { some };
    let constant = |name: &str| int(text, name);
    let part = |room: i64| if full { room } else { (room * 5 / 8).max(1) };
    let group = if full { room } else { room / 2 + 1 };
    let experts = part(constant("EP"));
    // Small models too have loops that go once around their buffers, and more often than a vector has numbers: so a column that is
    // one too far each time is noticed. Rows have several tiles.
    let stages = if text.kernel == "linear_add" && constant("BM") == 16 { 16 } else { 9 };
    let long = (stages + 1) * constant("BK") + either(64, 8);
    let columns = ["BH", "BN", "BV"].map(constant).into_iter().max().filter(|columns| small && *columns >= 256);
    let flag = Const::Int(i64::from(!full));
    let mut spec = text.clone();
    for number in vosti_kernels::contract(&text.kernel).into_iter().flat_map(|contract| &contract.numbers) {
        let value = match (number.name.as_str(), text.kernel.as_str()) {
            ("D", _) => part(constant("DP")).into(),
            ("HALF", _) => part(constant("HP")).into(),
            ("GROUP", _) => group.into(),
            ("HEADS" | "K_FIRST", _) => pick(32, 4).into(),
            ("KV_HEADS", _) => pick(8, 2).into(),
            ("KEY_HEADS", _) => pick(16, 2).into(),
            ("V_FIRST", _) => pick(40, 6).into(),
            // More than there are heads.
            ("PROGRAMS", _) => pick(42, 7).into(),
            ("PACKED", _) => pick(48, 8).into(),
            ("FIRST", _) => 0.into(),
            ("HEIGHT", _) => constant("BQ").into(),
            ("ACT", "expert_glu" | "expert_int_glu") => either(0, 2).into(),
            (
                "CAPPED" | "SINKS" | "ACT" | "NORM" | "V_NORM" | "HALVES" | "OFFSETS" | "WIDE" | "SIGMOID" | "NORMED",
                _,
            ) => flag,
            ("BLOCKS", _) => either(pick(128, 8), pick(30, 5)).into(),
            ("USE", _) => chosen.into(),
            ("WINDOW", _) => either(pick(1024, 128), pick(1000, 100)).into(),
            ("N", "topk_combine") => part(constant("BN")).into(),
            // The last part has fewer columns.
            ("V", "topk_part" | "draw_part") => (32 * constant("PART") - either(0, 100)).into(),
            ("PARTS", "draw_combine") => part(constant("WIDTH")).into(),
            ("PARTS", _) => 32.into(),
            ("KV", _) => either(pick(1024, 128), pick(200, 40)).into(),
            ("STRIDE", _) => either(pick(6144, 1536), pick(1400, 1304)).into(),
            ("K", "gather") => either(pick(4096, 1344), pick(1000, 1288)).into(),
            ("K", _) => either(pick(4096, long), pick(1000, long)).into(),
            ("V" | "N" | "H" | "Q", _) if columns.is_some() => (columns.unwrap_or(0) + either(256, 200)).into(),
            ("V" | "N" | "H" | "Q", _) => either(pick(4096, 256), pick(1000, 200)).into(),
            ("INNER", _) => pick(4096, 320).into(),
            ("KEYS", _) => pick(256, 64).into(),
            ("WIDTH", _) => pick(4608, 456).into(),
            ("GROUPS", "route") => (if chosen == 1 { either(8, 16) } else { 0 }).into(),
            ("MEMBERS", "route") => (if chosen == 1 { experts / either(8, 16) } else { 1 }).into(),
            ("KEPT", "route") => (if chosen == 1 { either(4, 2) } else { 0 }).into(),
            ("GROUPS", _) => 2.into(),
            ("COPIES", _) => constant("CP").into(),
            ("LAYER", _) => 1.into(),
            ("LAYERS", _) => 4.into(),
            ("E", "route") => experts.into(),
            ("E", _) => pick(64, 12).into(),
            ("TOPK", _) => 8.into(),
            ("EPS", _) => 1e-6.into(),
            ("SCALE", _) => 0.5.into(),
            ("SLOPE", _) => 0.18033688.into(),
            ("CAP", _) => 50.0.into(),
            ("SPAN", _) => 100.0.into(),
            (name, kernel) => panic!("{kernel} has a number {name} that this example does not know"),
        };
        spec.constants.insert(number.name.clone(), value);
    }
    spec
}

fn int(text: &Spec, name: &str) -> i64 {
    match text.constants.get(name) {
        Some(Const::Int(value)) => *value,
        _ => 0,
    }
}

/// A text with dimensions that the target accepts. The text that combines splits has no group size of its own.
fn taken(target: &str, text: &Spec, numbers: Numbers) -> Spec {
    let rooms = if int(text, "GP") > 0 { vec![int(text, "GP")] } else { vec![1, 2, 4, 8, 16] };
    let specs = rooms.into_iter().map(|room| with_numbers(text, room, numbers));
    let taken = |spec: &Spec| vosti_kernels::compile_options(target, spec).is_ok();
    specs.into_iter().find(taken).unwrap_or_else(|| panic!("{target} takes {text} for no group of heads"))
}

/// The results for one target.
#[derive(Default)]
struct Found {
    kernels: usize,
    first_level: Vec<String>,
    registers: u32,
    wrong: Vec<String>,
    executed: usize,
    /// Kernels with an instruction that the executor does not know.
    not_known: Vec<String>,
}

impl Found {
    fn note(&mut self, arch: Arch, spec: &Spec, compiled: Result<Artifact, CubinError>) {
        self.kernels += 1;
        let of = |artifact: &Artifact| (artifact.metadata.num_stages, artifact.metadata.ptxas_level);
        let (stages, level) = compiled.as_ref().map_or((1, 3), of);
        let inspected = compiled.and_then(|artifact| inspect(&artifact, vosti_kernels::contract(&spec.kernel)?, arch));
        match inspected {
            Ok(facts) => self.passed(spec, &facts, (stages, level)),
            Err(error) => self.wrong.push(format!("{spec}: {error}")),
        }
    }

    fn passed(&mut self, spec: &Spec, facts: &Facts, (stages, level): (u32, u32)) {
        if level < 3 {
            self.first_level.push(spec.to_string());
        }
        // A pipeline of one stage loads nothing ahead.
        if facts.matrix_instructions > 0 && (facts.in_flight > 0) != (stages > 1) {
            self.wrong.push(format!("{spec}: {} bytes under way", facts.in_flight));
        }
        self.registers = self.registers.max(facts.registers);
    }

    fn ran(&mut self, spec: &Spec, executed: Result<Option<Executed>, CubinError>, unread: Option<ReadError>) {
        match executed {
            Ok(Some(Executed::Ptx)) => self.executed += 1,
            Ok(None) => self.not_known.extend(unread.map(|why| format!("{spec}: {why}"))),
            Err(error) => self.wrong.push(error.to_string()),
        }
    }

    fn print(&mut self, target: &str, texts: usize) {
        let (kernels, wrong) = (self.kernels, self.wrong.len());
        println!(
            "{target}: {texts} texts, {kernels} kernels, {wrong} wrong, {} without spills \
             ({} of them at the assembler's first level), at most {} registers",
            kernels - wrong,
            self.first_level.len(),
            self.registers
        );
        if self.executed + self.not_known.len() > 0 {
            println!("  executed, with the tile interpreter's bits: {}", self.executed);
        }
        let lists =
            [("first level", &mut self.first_level), ("not executed", &mut self.not_known), ("wrong", &mut self.wrong)];
        for (name, list) in lists {
            list.sort();
            list.iter().for_each(|line| println!("  {name}: {line}"));
        }
    }
}

/// Compiles a few kernels at once, or each alone if one of them fails.
fn compile(tool: &Toolchain, target: &str, specs: &[Spec]) -> Vec<(Spec, Result<Artifact, CubinError>)> {
    match tool.compile_checked_in(target, specs) {
        Ok(artifacts) => artifacts.into_iter().map(|artifact| (artifact.spec.clone(), Ok(artifact))).collect(),
        Err(error) if specs.len() == 1 => vec![(specs[0].clone(), Err(error))],
        Err(_) => specs.chunks(1).flat_map(|one| compile(tool, target, one)).collect(),
    }
}

/// What is done with kernels that compile.
enum Then {
    Nothing,
    Execute,
    Keep(PathBuf),
}

/// Writes the assembler text, the machine code, and the compiler's record.
fn keep(folder: &Path, artifact: &Artifact) {
    let write = |kind: &str, bytes: &[u8]| fs::write(folder.join(format!("{}.{kind}", artifact.spec)), bytes).unwrap();
    write("ptx", artifact.ptx.as_bytes());
    write("cubin", &artifact.cubin);
    write("json", &serde_json::to_vec(&artifact.metadata).unwrap());
}

/// How many texts of these kernels there are, and the kernels that they become.
fn specs(target: &str, kernels: &[String], small: bool) -> (usize, Vec<Spec>) {
    let mut texts = vosti_model::inventory(target).unwrap();
    texts.retain(|text| kernels.is_empty() || kernels.contains(&text.kernel));
    let specs: BTreeMap<String, Spec> = texts
        .iter()
        .flat_map(|text| {
            let folds = vosti_kernels::folds(target, text).unwrap();
            let uses = [0, 1, FOLDED].into_iter().filter(move |chosen| *chosen != FOLDED || folds);
            let all = uses.flat_map(|chosen| [(true, chosen), (false, chosen)]);
            all.map(|(full, chosen)| taken(target, text, Numbers { full, chosen, small })).collect::<Vec<_>>()
        })
        .map(|spec| (spec.to_string(), spec))
        .collect();
    (texts.len(), specs.into_values().collect())
}

fn compiles(tool: &Toolchain, arch: Arch, kernels: &[String], then: &Then) -> bool {
    let target = format!("cuda-{arch}");
    let (texts, specs) = specs(&target, kernels, !matches!(then, Then::Nothing));
    let bar = ProgressBar::new(specs.len() as u64);
    bar.set_message(target.clone());
    bar.set_style(ProgressStyle::with_template("{msg} [{bar:32}] {pos} of {len}").unwrap());
    let (chunks, found) = (Mutex::new(specs.chunks(CHUNK)), Mutex::new(Found::default()));
    let next = || chunks.lock().unwrap().next();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(some) = next() {
                    for (spec, compiled) in compile(tool, &target, some) {
                        let executed = match (then, &compiled) {
                            (Then::Execute, Ok(artifact)) => {
                                Some((execute(artifact), Kernel::read(&artifact.ptx).err()))
                            }
                            (Then::Keep(folder), Ok(artifact)) => {
                                keep(folder, artifact);
                                None
                            }
                            _ => None,
                        };
                        let mut found = found.lock().unwrap();
                        found.note(arch, &spec, compiled);
                        executed.into_iter().for_each(|(executed, unread)| found.ran(&spec, executed, unread));
                        bar.inc(1);
                    }
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut found = found.into_inner().unwrap();
    found.print(&target, texts);
    found.wrong.is_empty()
}

fn main() {
    let (flags, names): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|name| name.starts_with("--"));
    let (asked, kernels): (Vec<String>, Vec<String>) = names.into_iter().partition(|name| name.starts_with("cuda"));
    let wrong = |error: &dyn std::fmt::Display| -> ! {
        eprintln!("{error}");
        std::process::exit(2)
    };
    let targets = asked.iter().map(|target| Arch::of_target(target).unwrap_or_else(|error| wrong(&error)));
    let targets: Vec<Arch> = if asked.is_empty() { Arch::ALL.to_vec() } else { targets.collect() };
    if let Some(error) = kernels.iter().find_map(|kernel| vosti_kernels::kernel(kernel).err()) {
        wrong(&error);
    }
    let then = match flags.first().map(|flag| (flag, flag.strip_prefix("--keep="))) {
        None => Then::Nothing,
        Some((_, Some(folder))) => {
            fs::create_dir_all(folder).unwrap_or_else(|error| wrong(&error));
            Then::Keep(folder.into())
        }
        Some((flag, None)) if flag == "--execute" => Then::Execute,
        Some((flag, None)) => wrong(&format!("there is no {flag}")),
    };
    let Some(python) = vosti_test_tools::python(REQUIREMENT) else { wrong(&format!("{REQUIREMENT} is not there")) };
    let tool = Toolchain::with_python(python);
    let failed = targets.into_iter().filter(|arch| !compiles(&tool, *arch, &kernels, &then)).count();
    std::process::exit(i32::from(failed > 0));
}

/// A number of a kernel that this example does not know ends it before it compiles anything. All targets have the same texts.
#[test]
fn every_number_of_every_kernel_is_known() {
    assert!(specs("cuda-sm90", &[], true).1.len() > 200);
}
