//! Checks of a kernel whose tiles are copied by descriptor (TMA).
//!
//! The launcher makes a tensor map of each recorded parameter, whose tensor is the parameter's array by the contract. So the record must be
//! what the compiler decided, and the PTX must copy through these parameters and by no other asynchronous way. How many bytes are
//! under way is counted in [`super::flight`]; that each copy lands where and when it is read is the executor's matter.

use super::texts::{self, Param, Ptx, Sass};
use super::{Metadata, Refusal, stem};
use std::ops::RangeInclusive;
use vosti_contract::{Const, Contract, Role, expr};
use vosti_kernels::Spec;
use vosti_ptx::Descriptor;
use vosti_tile::{Kernel, Scalar};

/// The one instruction that copies a box.
const COPY: &str = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes";
/// Operations of the barriers that copies arrive at: begins, announces bytes, waits, ends.
const BARRIERS: [&str; 4] = [
    "mbarrier.init.shared::cta.b64",
    "mbarrier.arrive.expect_tx.shared.b64",
    "mbarrier.try_wait.parity.shared.b64",
    "mbarrier.inval.shared::cta.b64",
];
/// Beginnings of instructions that copy asynchronously, or change a tensor map.
const ASYNCHRONOUS: [&str; 8] =
    ["cp.async", "cp.reduce", "st.async", "st.bulk", "red.async", "mbarrier", "tensormap", "multimem"];
/// Elements of a box on each axis (CUDA driver API, `cuTensorMapEncodeTiled`).
const BOX: RangeInclusive<u32> = 1..=256;
/// Rows of a tensor, and the first bytes of a box's rows, are multiples of so many bytes (the same).
const UNIT: u64 = 16;

/// Rows and columns of a parameter's array, if the contract says that it is a matrix. No number of rows: it has those of a step.
pub fn extents(contract: &Contract, spec: &Spec, param: usize) -> Option<(Option<u64>, u64)> {
    let [rows, columns] = &contract.shapes.get(&contract.params.get(param)?.name)?[..] else { return None };
    let int = |name: &str| match spec.constants.get(name)? {
        Const::Int(value) => Some(*value),
        Const::Float(_) => None,
    };
    let number = |text: &str| u64::try_from(expr::eval(text, &int).ok()?).ok().filter(|number| *number > 0);
    Some((number(rows), number(columns)?))
}

/// Refuses a kernel that copies otherwise than its record says.
pub(super) fn copies(
    (ptx, sass, ttgir): (&Ptx, &Sass, &str),
    metadata: &Metadata,
    (contract, kernel, spec): (&Contract, &Kernel, &Spec),
) -> Result<(), Refusal> {
    let refuse = |why: String| Err(Refusal::Descriptors { why });
    let list = &metadata.descriptors;
    let asynchronous = |op: &&&str| ASYNCHRONOUS.iter().any(|name| op.starts_with(name));
    let in_sass = |op: &&&str| stem(op).starts_with("UTMA") || stem(op).starts_with("UBLK");
    if list.is_empty() {
        let copies = ptx.opcodes.iter().find(|op| op.starts_with("cp.async.bulk") || op.starts_with("tensormap"));
        let found = copies.or_else(|| sass.opcodes.iter().find(in_sass));
        return found.map_or(Ok(()), |op| refuse(format!("it has `{op}`, and its record has no descriptor")));
    }
    if !list.windows(2).all(|two| two[0].param < two[1].param) {
        return refuse("they are not in the parameters' order, each once".into());
    }
    let decided = decided(ttgir);
    if decided.len() != list.len() {
        return refuse(format!("its TTGIR has {} of them, and its record {}", decided.len(), list.len()));
    }
    for (descriptor, (param, tile, swizzle)) in list.iter().zip(decided) {
        fits(descriptor, contract, kernel, spec)?;
        let recorded = (descriptor.param, descriptor.tile, descriptor.swizzle);
        if recorded != (param, tile, swizzle) {
            return refuse(format!("its TTGIR has {:?}, and its record {recorded:?}", (param, tile, swizzle)));
        }
    }
    let other = ptx.opcodes.iter().filter(asynchronous).find(|op| **op != COPY && !BARRIERS.contains(op));
    let other = other.or_else(|| sass.opcodes.iter().filter(in_sass).find(|op| **op != "UTMALDG.2D"));
    if let Some(op) = other {
        return refuse(format!("it has `{op}` beside them"));
    }
    let (mut bytes, mut through) = (0, 0);
    for descriptor in list {
        let copies = boxes(ptx).filter(|map| map_of(ptx, map) == Some(descriptor.param)).count();
        let tiles = ttgir.matches(&format!("ttng.async_tma_copy_global_to_local %arg{}[", descriptor.param)).count();
        if copies != tiles || copies == 0 {
            return refuse(format!("of parameter {} it copies {copies} boxes for {tiles} tiles", descriptor.param));
        }
        through += copies;
        bytes += copies as u64 * u64::from(descriptor.tile[0] * descriptor.tile[1] * descriptor.elem);
    }
    let (all, assembled) = (boxes(ptx).count(), sass.opcodes.iter().filter(in_sass).count());
    if all != through || all != assembled {
        return refuse(format!("{through} of its {all} copies are through them, and {assembled} in machine code"));
    }
    let announced: Option<u64> =
        operands(ptx, BARRIERS[1]).map(|text| text.rsplit(',').next()?.trim().parse::<u64>().ok()).sum();
    match announced == Some(bytes) {
        true => Ok(()),
        false => refuse(format!("it waits for {announced:?} bytes and copies {bytes}")),
    }
}

/// Refuses a descriptor that `cuTensorMapEncodeTiled` would refuse, or that is no matrix of the contract. Returns its rows and columns,
/// as [`extents`] does.
pub fn fits(
    descriptor: &Descriptor,
    contract: &Contract,
    kernel: &Kernel,
    spec: &Spec,
) -> Result<(Option<u64>, u64), Refusal> {
    let Descriptor { param, tile: [rows, width], elem, swizzle } = *descriptor;
    let role = contract.params.get(param).map(|param| param.role);
    let matrix = matches!(role, Some(Role::In(_) | Role::Weight(_)));
    let own = kernel.params.get(param).map(|param| param.elem);
    let extents = extents(contract, spec, param).filter(|_| matrix && own == Some(Scalar::Bf16) && elem == 2);
    let bytes = |many: u64| many * u64::from(elem);
    let whole = extents.filter(|(_, columns)| bytes(*columns).is_multiple_of(UNIT));
    let span = bytes(width.into());
    let spans = [0, 32, 64, 128].contains(&swizzle) && (swizzle == 0 || span <= u64::from(swizzle));
    let boxed = BOX.contains(&rows) && BOX.contains(&width) && span.is_multiple_of(UNIT);
    let refused = || Refusal::Descriptors { why: format!("no tensor map can be {descriptor:?}") };
    whole.filter(|_| spans && boxed).ok_or_else(refused)
}

/// The parameters that are descriptors in TTGIR, with their tiles and spans of swizzle.
fn decided(ttgir: &str) -> Vec<(usize, [u32; 2], u32)> {
    let signature = ttgir.lines().find(|line| line.trim_start().starts_with("tt.func public @")).unwrap_or("");
    let of = |text: &str| {
        let (param, ty) = text.split_once(": !tt.tensordesc<tensor<")?;
        let (shape, layout) = ty.split_once(", ")?;
        let (rows, columns) = shape.strip_suffix("xbf16")?.split_once('x')?;
        let name = layout.split('>').next()?;
        let layout = ttgir.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = #ttg.nvmma_shared<{"))?;
        let swizzle = layout.strip_suffix(", transposed = false, elementBitWidth = 16}>")?;
        let swizzle = swizzle.strip_prefix("swizzlingByteWidth = ")?.parse().ok()?;
        Some((param.parse().ok()?, [rows.parse().ok()?, columns.parse().ok()?], swizzle))
    };
    signature.split("%arg").filter_map(of).collect()
}

/// What stands behind each instruction of a name, up to a brace.
fn operands<'a>(ptx: &Ptx<'a>, name: &'static str) -> impl Iterator<Item = &'a str> {
    let rest = move |text: &&'a str| texts::opcode(text).filter(|op| *op == name).and_then(|_| text.split_once(name));
    ptx.statements.iter().filter_map(rest).map(|(_, rest)| rest)
}

/// The registers with the addresses of the tensor maps of all copies: `[%r11], [%rd3, {`.
fn boxes<'a>(ptx: &Ptx<'a>) -> impl Iterator<Item = &'a str> {
    operands(ptx, COPY).map(|text| text.split('[').nth(2).unwrap_or("").trim_end_matches(',').trim())
}

/// The parameter whose address a register has: beside copies, it is only written, as the generic form of the parameter's own, which
/// has no other use.
fn map_of(ptx: &Ptx, register: &str) -> Option<usize> {
    let apart = |c: char| !c.is_alphanumeric() && !['%', '_'].contains(&c);
    let names = |text: &&&str, name: &str| text.split(apart).any(|word| word == name);
    let only = |register: &str, but: &[&str], name: &str| {
        let uses =
            ptx.statements.iter().filter(|text| names(text, register) && !but.iter().any(|but| text.contains(but)));
        let [one] = uses.collect::<Vec<_>>()[..] else { return None };
        let (to, from) = one.strip_prefix(name)?.split_once(',')?;
        (to.trim() == register).then(|| from.trim())
    };
    let address = only(register, &[COPY], "cvta.param.u64")?;
    let name = only(address, &["cvta.param.u64"], "mov.b64")?;
    let at: usize = name.rsplit_once("_param_")?.1.parse().ok()?;
    (ptx.params.get(at) == Some(&Param::Map)).then_some(at)
}
