//! Checks a compiled kernel as far as that is possible without a GPU.
//!
//! Each check is a function from one text of the artifact to `Ok` or one [`Refusal`]; [`inspect`] runs all of them. The
//! launcher relies on them: it passes one 8-byte pointer, or a tensor map if the record says so, for each parameter of the contract
//! and two pointers for scratch, starts blocks of 32 threads a warp, and knows nothing else of a kernel. Properties that no text shows (the bits that a matrix
//! instruction gives) are not checked here, and cannot be checked without the device.
//! Read next: [`mod@texts`], [`mod@flight`], [`mod@early`], [`mod@descriptors`], then the tests, which break each check once.

pub mod descriptors;
pub mod early;
pub mod flight;
pub mod texts;

#[cfg(test)]
mod tests;

use crate::arch::{Arch, REGISTERS, WARP};
use crate::artifact::{Artifact, Metadata};
use crate::error::{CubinError, Refusal};
use crate::start;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use texts::{Log, Param, Ptx, Sass};
use vosti_contract::Contract;
use vosti_kernels::Spec;
use vosti_tile::{Kernel, OpKind, Scalar};

/// Scratch pointers that Triton's backend adds after a kernel's own parameters: global, then profile.
pub const SCRATCH_PARAMS: usize = 2;
/// The unit in which registers are allocated to a thread.
const REGISTERS_UNIT: u32 = 8;
/// The matrix instructions of all architectures. A dot must be compiled to the one for its rows and target, and to no other.
const MATRIX_INSTRUCTIONS: [&str; 3] = ["mma.sync", "wgmma.mma_async", "tcgen05.mma"];

/// The facts about a kernel that passed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// Parameters that the launcher passes, scratch included.
    pub params: usize,
    /// Threads of a block.
    pub threads: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// Dynamic shared memory of a block, in bytes: a launch asks for it.
    pub shared_dynamic: u64,
    /// Static shared memory of a block, in bytes: it is part of the code.
    pub shared_static: u64,
    /// The number of matrix instructions in the PTX.
    pub matrix_instructions: usize,
    /// The kinds of matrix instructions, sorted, without their numbers of columns (`m64n*k16`).
    pub matrix_kinds: Vec<String>,
    /// Asynchronous copies from global to shared memory.
    pub async_copies: usize,
    /// The fewest bytes that a block is loading while the products of its loop run.
    pub in_flight: u64,
    /// Bytes of weights that a block asks for before it waits for the launches before ([`mod@crate::start`]).
    #[serde(default)]
    pub ahead: u64,
    /// Blocks that a multiprocessor holds at once.
    pub blocks: u32,
    /// The reductions of floats, in the order of the text.
    pub reductions: Vec<Reduction>,
}

/// A reduction of floats and the layout of its tile's lanes in threads: see [`interchangeable`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reduction {
    /// The axis that is folded.
    pub axis: u32,
    /// The tile's type, with the definition of its layout. Where the layout says how an axis is spread over registers, lanes and
    /// warps, what it says of the other axis is left out, and so is the other axis's extent: neither changes the order of a sum.
    pub tile: String,
}

/// Runs every check of a kernel with this contract. Error: the first reason to refuse the kernel.
pub fn inspect(artifact: &Artifact, contract: &Contract, arch: Arch) -> Result<Facts, CubinError> {
    let spec = &artifact.spec;
    examine(artifact, arch, contract).map_err(|refusal| CubinError::Refused {
        spec: spec.to_string(),
        target: format!("cuda-{arch}"),
        refusal,
    })
}

fn examine(artifact: &Artifact, arch: Arch, contract: &Contract) -> Result<Facts, Refusal> {
    let metadata = &artifact.metadata;
    let kernel = vosti_tile::lift(&artifact.ttir).map_err(|error| Refusal::Ttir(error.to_string()))?;
    let ptx = Ptx::read(&artifact.ptx)?;
    let sass = Sass::read(&artifact.sass);
    let log = Log::read(&artifact.log)?;
    signature(&kernel, contract, &artifact.spec)?;
    assembled(&ptx, &sass, metadata, arch)?;
    parameters(&ptx, contract.params.len(), metadata)?;
    threads(&ptx, metadata)?;
    launchable(metadata, arch)?;
    let texts = (&ptx, &sass, &*artifact.ttgir);
    descriptors::copies(texts, metadata, (contract, &kernel, &artifact.spec))?;
    let options = metadata.options();
    early::waits(&ptx, &sass, metadata, &start::start(&artifact.spec, contract, options, arch))?;
    order_of_additions(&ptx, &sass)?;
    // Without the branches that the specialisation's numbers never take.
    let folded = vosti_tile::fold(&kernel);
    contraction(&ptx, &sass, metadata, multiply_adds(&folded, metadata))?;
    wide_accesses(&ptx)?;
    resources(&log, metadata, arch)?;
    let dots = dots(&folded, arch);
    let matrix_instructions = matrix_instructions(&ptx, &dots)?;
    let async_copies = pipeline(&ptx, !dots.is_empty(), metadata.num_stages)?;
    Ok(Facts {
        params: ptx.params.len(),
        threads: metadata.num_warps * WARP,
        registers: log.registers,
        shared_dynamic: metadata.shared,
        shared_static: log.shared_static,
        matrix_instructions,
        matrix_kinds: matrix_kinds(&ptx),
        async_copies,
        in_flight: flight::bytes(&artifact.ttgir)?,
        ahead: start::bytes(&artifact.spec, contract, metadata),
        blocks: arch.blocks_at_once(
            metadata.num_warps * WARP,
            log.registers,
            metadata.shared.saturating_add(log.shared_static),
        ),
        reductions: texts::reductions(&artifact.ttgir)?,
    })
}

/// The number of dots for each matrix instruction that they must be compiled to, by the rows of their tiles. A dot of FP32 numbers is
/// multiply-adds, with k ascending as in tile IR.
fn dots(kernel: &Kernel, arch: Arch) -> BTreeMap<&'static str, usize> {
    let mut dots = BTreeMap::new();
    kernel.walk(&mut |op| {
        if let OpKind::Dot { a, .. } = &op.kind {
            let (rows, elem) = (kernel.ty(*a).shape().first().copied().unwrap_or(0), kernel.ty(*a).elem());
            if elem != Scalar::F32 {
                *dots.entry(arch.matrix_instruction(rows, elem)).or_default() += 1;
            }
        }
    });
    dots
}

/// The TTIR's parameters are the contract's, in order, each a pointer to its element type, 16 bytes aligned.
fn signature(kernel: &Kernel, contract: &Contract, spec: &Spec) -> Result<(), Refusal> {
    vosti_wiring::signature(kernel, contract, spec).map_err(|error| Refusal::Signature { why: error.to_string() })?;
    match kernel.params.iter().find(|p| !p.divisibility.is_multiple_of(16) || p.divisibility == 0) {
        Some(param) => Err(Refusal::Divisibility { name: param.name.clone() }),
        None => Ok(()),
    }
}

fn assembled(ptx: &Ptx, sass: &Sass, metadata: &Metadata, arch: Arch) -> Result<(), Refusal> {
    let wanted = arch.assembled();
    for found in [ptx.target, &metadata.target] {
        if found != wanted {
            return Err(Refusal::Assembled { found: found.into(), wanted });
        }
    }
    // The disassembler's name of the architecture, without the `a`.
    match sass.names_architecture(arch.number()) {
        true => Ok(()),
        false => Err(Refusal::Assembled { found: sass.header.to_string(), wanted }),
    }
}

/// Parameters are pointers, and tensor maps exactly where the record has descriptors.
fn parameters(ptx: &Ptx, own: usize, metadata: &Metadata) -> Result<(), Refusal> {
    let wanted = own + SCRATCH_PARAMS;
    let maps: Vec<usize> = metadata.descriptors.iter().map(|descriptor| descriptor.param).collect();
    let sound = |(at, param): (usize, &Param)| match param {
        Param::Of(ty) => [".u64", ".b64"].contains(ty) && !maps.contains(&at),
        Param::Map => maps.contains(&at),
    };
    if ptx.params.len() == wanted && ptx.params.iter().enumerate().all(sound) {
        return Ok(());
    }
    let found = ptx.params.iter().map(Param::to_string).collect::<Vec<_>>().join(" ");
    Err(Refusal::Parameters { found: format!("{} ({found})", ptx.params.len()), wanted, maps })
}

fn threads(ptx: &Ptx, metadata: &Metadata) -> Result<(), Refusal> {
    let wanted = metadata.num_warps.saturating_mul(WARP);
    match ptx.threads[..] {
        [x] | [x, 1] | [x, 1, 1] if x == wanted => Ok(()),
        _ => Err(Refusal::Threads { found: format!("{:?}", ptx.threads), num_warps: metadata.num_warps, wanted }),
    }
}

/// The launcher provides scratch, and supports none of these.
pub fn launchable(metadata: &Metadata, arch: Arch) -> Result<(), Refusal> {
    let needs = [
        (metadata.launch_pdl && !arch.launches_early(), "programmatic dependent launch"),
        (metadata.launch_cooperative_grid, "a cooperative launch"),
        (metadata.num_ctas != 1, "clusters of blocks"),
        (!metadata.descriptors.is_empty() && !arch.copies_by_descriptor(), "copies by descriptor"),
    ];
    match needs.into_iter().find(|(needed, _)| *needed) {
        Some((_, what)) => Err(Refusal::Launch { what }),
        None => Ok(()),
    }
}

/// Refuses atomic additions: programs run in any order, so their sums would depend on it.
fn order_of_additions(ptx: &Ptx, sass: &Sass) -> Result<(), Refusal> {
    let in_ptx = ["atom.", "red.", "multimem.", "cp.reduce."];
    let in_sass = ["ATOM", "ATOMG", "ATOMS", "RED", "REDG", "REDAS", "UBLKRED", "UTMAREDG"];
    let found = ptx.opcodes.iter().find(|op| in_ptx.iter().any(|prefix| op.starts_with(prefix)));
    // The assembler sets bits of a word by these if a block uses tensor memory. Their order does not matter.
    let bits = ["ATOMS.OR", "ATOMS.AND"];
    let found = found.or_else(|| sass.opcodes.iter().find(|op| in_sass.contains(&stem(op)) && !bits.contains(op)));
    found.map_or(Ok(()), |op| Err(Refusal::Atomic { instruction: op.to_string() }))
}

/// The multiply-adds of one rounding that the kernel itself has, in one thread: its tiles' lanes are spread over the threads.
fn multiply_adds(kernel: &Kernel, metadata: &Metadata) -> usize {
    let mut lanes = 0;
    kernel.walk(&mut |op| match &op.kind {
        OpKind::Fma { a, .. } => lanes += kernel.ty(*a).lanes(),
        OpKind::Dot { a, b, .. } if kernel.ty(*a).elem() == Scalar::F32 => {
            lanes += kernel.ty(*a).lanes() * kernel.ty(*b).shape().last().copied().unwrap_or(1);
        }
        _ => {}
    });
    lanes.div_ceil((metadata.num_warps.max(1) * WARP) as usize)
}

/// Refuses a multiplication and an addition that were fused to one rounding: PTX and machine code must have exactly the
/// multiply-adds that the kernel has. IEEE division and square root contain some, so they are refused too: with them, the count
/// in the machine code would show nothing.
fn contraction(ptx: &Ptx, sass: &Sass, metadata: &Metadata, own: usize) -> Result<(), Refusal> {
    if metadata.enable_fp_fusion {
        return Err(Refusal::FusionOn);
    }
    let float = |op: &str| [".f32", ".f64", ".f16", ".bf16", "x2"].iter().any(|ty| op.ends_with(ty));
    let fused = |op: &str| (op.starts_with("fma.") || op.starts_with("mad.")) && float(op) && op != "fma.rn.f32";
    let iterated = |op: &str| ["div.rn", "sqrt.rn", "rcp.rn"].iter().any(|prefix| op.starts_with(prefix));
    if let Some(op) = ptx.opcodes.iter().find(|op| fused(op) || iterated(op)) {
        return Err(Refusal::Contraction { instruction: op.to_string() });
    }
    let in_ptx = ptx.opcodes.iter().filter(|op| **op == "fma.rn.f32").count();
    let in_sass = sass.opcodes.iter().filter(|op| ["FFMA", "FFMA2", "DFMA"].contains(&stem(op))).count();
    match [("PTX", in_ptx), ("machine code", in_sass)].into_iter().find(|(_, count)| *count != own) {
        Some((text, count)) => Err(Refusal::Fused { text, count, own }),
        None => Ok(()),
    }
}

/// Refuses loads of 16 bits at a time: a kernel has them if its divisibility premises were lost.
fn wide_accesses(ptx: &Ptx) -> Result<(), Refusal> {
    let narrow = |op: &&&str| {
        let global = op.starts_with("ld.global") || op.starts_with("st.global");
        global && [".b8", ".u8", ".b16", ".u16"].iter().any(|ty| op.ends_with(ty))
    };
    ptx.opcodes.iter().find(narrow).map_or(Ok(()), |op| Err(Refusal::Narrow { instruction: op.to_string() }))
}

fn resources(log: &Log, metadata: &Metadata, arch: Arch) -> Result<(), Refusal> {
    let spilled = log.stack.max(log.spill_stores).max(log.spill_loads);
    if spilled > 0 {
        return Err(Refusal::Spills { bytes: spilled });
    }
    if log.serialised {
        return Err(Refusal::Serialised);
    }
    let threads = metadata.num_warps.saturating_mul(WARP).max(1);
    let most = (REGISTERS / threads).min(255);
    if log.registers.next_multiple_of(REGISTERS_UNIT) > most.next_multiple_of(REGISTERS_UNIT) {
        return Err(Refusal::Registers { registers: log.registers, threads, most });
    }
    let (bytes, most) = (metadata.shared.saturating_add(log.shared_static), arch.shared_bytes_max());
    if bytes > most {
        return Err(Refusal::Shared { bytes, most });
    }
    Ok(())
}

/// Checks that every dot was compiled to the matrix instruction for its rows and target. The certificates assume the sums of
/// that family of instructions, and of no other.
fn matrix_instructions(ptx: &Ptx, dots: &BTreeMap<&'static str, usize>) -> Result<usize, Refusal> {
    let many = |family: &str| ptx.opcodes.iter().filter(|op| op.starts_with(family)).count();
    if let Some(found) = MATRIX_INSTRUCTIONS.into_iter().find(|f| !dots.contains_key(f) && many(f) > 0) {
        let wanted = dots.keys().copied().collect::<Vec<_>>().join(" and ");
        return Err(Refusal::OtherMatrixInstructions { found, wanted });
    }
    if let Some((wanted, dots)) = dots.iter().find(|(family, dots)| many(family) < **dots) {
        return Err(Refusal::NoMatrixInstructions { dots: *dots, wanted });
    }
    Ok(dots.keys().map(|family| many(family)).sum())
}

fn matrix_kinds(ptx: &Ptx) -> Vec<String> {
    let all = ptx.opcodes.iter().filter(|op| MATRIX_INSTRUCTIONS.iter().any(|family| op.starts_with(family)));
    let kinds: BTreeSet<String> = all.map(|op| without_columns(op)).collect();
    kinds.into_iter().collect()
}

/// `m64n128k16` as `m64n*k16`: the number of columns of an instruction does not change the sum of each.
fn without_columns(op: &str) -> String {
    let shape = |part: &str| {
        let (rows, rest) = part.strip_prefix('m')?.split_once('n')?;
        let (columns, sum) = rest.split_once('k')?;
        let numbers = [rows, columns, sum].iter().all(|n| n.parse::<u32>().is_ok());
        numbers.then(|| format!("m{rows}n*k{sum}"))
    };
    op.split('.').map(|part| shape(part).unwrap_or_else(|| part.to_string())).collect::<Vec<_>>().join(".")
}

/// Refuses a kernel of another row tile whose machine code differs too much from that of the first, although their TTIR is
/// proved to give the same bits. That proof assumes that the lanes of a dot and a reduce do not depend on the tile's height. It
/// cannot be assumed of two kinds of matrix instruction, or of reduced tiles with different layouts, which add in another order.
pub fn interchangeable(first: &Facts, other: &Facts) -> Result<(), Refusal> {
    if first.matrix_kinds != other.matrix_kinds {
        let [found, wanted] = [other, first].map(|facts| facts.matrix_kinds.join(" "));
        return Err(Refusal::OtherKinds { found, wanted });
    }
    match first.reductions == other.reductions {
        true => Ok(()),
        false => Err(Refusal::OtherLayout),
    }
}

/// Checks that a kernel with dots and a pipelined loop loads ahead, by `cp.async` or the tensor memory accelerator. Returns the
/// number of these loads.
fn pipeline(ptx: &Ptx, dots: bool, stages: u32) -> Result<usize, Refusal> {
    let copies = ["cp.async.ca.", "cp.async.cg.", "cp.async.bulk."];
    let ahead = ptx.opcodes.iter().filter(|op| copies.iter().any(|prefix| op.starts_with(prefix))).count();
    match dots && stages > 1 && ahead == 0 {
        true => Err(Refusal::NotPipelined { stages }),
        false => Ok(ahead),
    }
}

/// An instruction without its modifiers.
fn stem(opcode: &str) -> &str {
    opcode.split('.').next().unwrap_or(opcode)
}
