//! Errors on the way from TTIR to a checked cubin.

use std::path::PathBuf;
use thiserror::Error;
use vosti_kernels::KernelError;

/// An error of this crate.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum CubinError {
    #[error("there is no CUDA target `{target}`; there are {known}")]
    Target { target: String, known: String },
    #[error(
        "no TTIR is checked in for {spec}: list its text in crates/vosti-model/src/inventory.rs and run `cargo xtask ttir`"
    )]
    Ttir { spec: String },
    #[error("{tool}: {error}; compiling for CUDA needs python3 with venv and pip")]
    Start { tool: String, error: std::io::Error },
    #[error("{tool} failed:\n{output}")]
    Tool { tool: String, output: String },
    #[error(
        "{tool} ended without an error and wrote no kernels: give --python a Python 3 that has {needs}, or leave it out"
    )]
    Wrote { tool: String, needs: &'static str },
    #[error("{tool} has no {needs} ({why}): give --python a Python 3 that has it, or leave it out")]
    NoTriton { tool: String, needs: &'static str, why: String },
    #[error("pip could not install {requirement}: {output}; check pip's index and the network")]
    Pip { requirement: &'static str, output: String },
    #[error(
        "{}: {error}; Triton and compiled kernels are kept there: check that it can be written to and that the disk is not full, or \
         set XDG_CACHE_HOME to another folder",
        path.display()
    )]
    Cache { path: PathBuf, error: std::io::Error },
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: std::io::Error },
    #[error("{spec}: Triton's record of it cannot be read: {why}")]
    Metadata { spec: String, why: String },
    #[error("{spec} for {target}: {refusal}")]
    Refused { spec: String, target: String, refusal: Refusal },
    #[error("{spec} for {target}, executed: {difference}")]
    Executed { spec: String, target: String, difference: Box<vosti_ptx::Difference> },
    #[error("{spec} {what}; run `vosti prepare` again")]
    Stale { spec: String, what: &'static str },
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

/// Why a compiled kernel may not be launched.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum Refusal {
    #[error("its PTX cannot be parsed: {0}")]
    Ptx(String),
    #[error("its TTIR cannot be parsed: {0}")]
    Ttir(String),
    #[error("it is assembled for {found}, not for {wanted}: compile it for the target")]
    Assembled { found: String, wanted: String },
    #[error("the launcher would pass {wanted} parameters of 8 bytes{}, its PTX takes {found}", maps_in(maps))]
    Parameters { found: String, wanted: usize, maps: Vec<usize> },
    #[error("its tiles are copied by descriptor, and {why}")]
    Descriptors { why: String },
    #[error("{why}")]
    Signature { why: String },
    #[error("parameter {name} is not declared divisible by 16 in the TTIR: run `cargo xtask ttir`")]
    Divisibility { name: String },
    #[error("its PTX requires blocks of {found} threads, and {num_warps} warps have {wanted}")]
    Threads { found: String, num_warps: u32, wanted: u32 },
    #[error("it needs {what}, which the launcher does not do")]
    Launch { what: &'static str },
    #[error("its launch may begin before the one before it has ended, and {why}")]
    Early { why: String },
    #[error("it contains `{instruction}`: the order of atomic additions changes from run to run")]
    Atomic { instruction: String },
    #[error("floating-point fusion was on when it was compiled")]
    FusionOn,
    #[error("it contains `{instruction}`, a multiplication and an addition with one rounding")]
    Contraction { instruction: String },
    #[error("its {text} contains {count} fused multiply-adds, and its TTIR has {own} for each thread")]
    Fused { text: &'static str, count: usize, own: usize },
    #[error(
        "it spills {bytes} bytes of registers to memory: give it more warps or smaller tiles in specialisations.toml"
    )]
    Spills { bytes: u64 },
    #[error("the assembler's report cannot be parsed: {0}")]
    Log(String),
    #[error("the assembler serialises its matrix instructions: give it smaller tiles in specialisations.toml")]
    Serialised,
    #[error("it uses {registers} registers a thread, and {threads} threads have {most} each")]
    Registers { registers: u32, threads: u32, most: u32 },
    #[error(
        "it needs {bytes} bytes of shared memory, a block has {most}: lower num_stages or the tiles in \
         specialisations.toml"
    )]
    Shared { bytes: u64, most: u64 },
    #[error("it accesses memory by `{instruction}`: its divisibility premises were lost on the way")]
    Narrow { instruction: String },
    #[error("its {dots} dots did not become {wanted} instructions")]
    NoMatrixInstructions { dots: usize, wanted: &'static str },
    #[error("it contains `{found}` instructions, and its dots should all be `{wanted}` on this target")]
    OtherMatrixInstructions { found: &'static str, wanted: String },
    #[error("its matrix instructions are `{found}`; the kernel that it may replace has `{wanted}`")]
    OtherKinds { found: String, wanted: String },
    #[error("its reductions have another layout than in the kernel that it may replace")]
    OtherLayout,
    #[error(
        "its pipeline of {stages} stages loads nothing asynchronously: a loop over 64 columns or fewer has one turn, and no GPU runs a \
         model with such a matrix"
    )]
    NotPipelined { stages: u32 },
    #[error("a loop waits for all of its loads first: raise num_stages in specialisations.toml, or set it to 1")]
    WaitsForAll,
    #[error("its TTGIR has a load that cannot be parsed: {line}")]
    Flight { line: String },
    #[error("the layout `{layout}` of its reductions is not defined in its TTGIR")]
    Layout { layout: String },
}

/// Which of the parameters are tensor maps, in words.
fn maps_in(maps: &[usize]) -> String {
    if maps.is_empty() { String::new() } else { format!(", with tensor maps at {maps:?}") }
}
