//! Buffers for any specialisation by the roles of its parameters, and both ways to run it on them.
#![allow(dead_code)]

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use vosti_contract::expr::eval;
use vosti_contract::{Const, Contract, Dtype, Role, Shape};
use vosti_cpu::Isa;
use vosti_cpu::Layout;
use vosti_cpu::plan::machine::{Machine, Param};
use vosti_cpu::plan::{Plan, compile};
use vosti_kernels::Spec;
use vosti_tile::interp::{Buffer, Options, run};
use vosti_tile::numerics::FloatMode;
use vosti_tile::{Kernel, Scalar};

/// Seeded random numbers.
pub struct Rng(SplitMix64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed))
    }

    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
    /// Roughly normal, sometimes large, sometimes denormal.
    pub fn float(&mut self) -> f32 {
        let sum: f32 = (0..4).map(|_| (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0).sum();
        match self.next() % 997 {
            0 => sum * 1e-39,
            1 => sum * 300.0,
            _ => sum,
        }
    }
}

/// The specialisation that a file stem names.
pub fn parse_stem(stem: &str) -> Spec {
    let mut parts = stem.split('-');
    let kernel = parts.next().unwrap().to_string();
    let act = if parts.next() == Some("bf16") { Dtype::Bf16 } else { Dtype::F32 };
    let rest: Vec<&str> = parts.collect();
    let mut constants = std::collections::BTreeMap::new();
    let mut i = 0;
    while i < rest.len() {
        let mut text = rest[i].to_string();
        // A negative exponent holds the separator too.
        while text.ends_with('e') && i + 1 < rest.len() {
            i += 1;
            text = format!("{text}-{}", rest[i]);
        }
        let split = text.find(|c: char| c.is_ascii_digit()).unwrap();
        let (name, value) = text.split_at(split);
        let value = match value.parse::<i64>() {
            Ok(v) => Const::Int(v),
            Err(_) => Const::Float(value.parse().unwrap()),
        };
        constants.insert(name.to_string(), value);
        i += 1;
    }
    Spec { kernel, act, constants }
}

pub struct Case {
    pub spec: Spec,
    pub contract: &'static Contract,
    pub kernel: Kernel,
    pub buffers: Vec<Buffer>,
    pub grid: [usize; 3],
}

/// Random elements; of a large buffer the first are repeated, at a period that no row has.
fn random(rng: &mut Rng, elem: Scalar, len: usize) -> Buffer {
    const OWN: usize = (1 << 20) + 7;
    let own: Vec<f32> = (0..len.min(OWN)).map(|_| rng.float()).collect();
    let all = own.iter().cycle().take(len);
    match elem {
        Scalar::Bf16 => Buffer::Bf16(all.map(|x| (x.to_bits() >> 16) as u16).collect()),
        // As `quantise` makes them, and now and then the one byte that it does not make.
        Scalar::I8 => {
            let lowest = if rng.below(2) == 0 { -128 } else { -127 };
            Buffer::I8(all.map(|x| ((x * 1e4) as i32 % 129).clamp(lowest, 127) as i8).collect())
        }
        _ => Buffer::F32(all.copied().collect()),
    }
}

/// Tiles of a matrix's columns that a case computes: the others are alike.
const COLUMN_TILES: usize = 3;

/// Kernels whose buffers have the extents of their contracts, besides those of layers with a state.
const DECLARED: [&str; 20] = [
    "add_bias",
    "combine_bias",
    "combine_scaled",
    "conv_silu",
    "conv_silu_bias",
    "delta_inputs",
    "draw_combine",
    "draw_part",
    "gate_heads",
    "gate_rows",
    "mamba_inputs",
    "norm_gated",
    "per_layer_gate",
    "relu_squared",
    "rmsnorm_groups",
    "short_conv",
    "skip_gated",
    "spread",
    "store_conv",
    "store_gated",
];

/// A case with `rows` rows: random data, sequences of random lengths for attention.
pub fn case(stem: &str, rows: usize, seed: u64) -> Case {
    let spec = parse_stem(stem);
    assert_eq!(spec.to_string(), stem, "the stem is read back");
    let contract = vosti_kernels::contract(&spec.kernel).unwrap();
    let kernel = vosti_tile::fold(&vosti_tile::lift(&vosti_kernels::ttir(&spec).unwrap()).unwrap());
    let mut rng = Rng::new(seed);
    let int = |name: &str| match spec.constants.get(name) {
        Some(Const::Int(v)) => *v as usize,
        _ => 0,
    };
    let heads = int("HEADS").max(int("KV_HEADS") * int("GROUP"));
    let d = int("D").max(2 * int("HALF"));
    let width = ["K", "N", "H", "STRIDE"].iter().map(|n| int(n)).max().unwrap().max(heads.max(int("PACKED")) * d);
    // Queries, keys and values of a row are side by side.
    let width = width.max(int("Q") + 2 * int("KV")).max(32 * int("BLOCKS"));
    // Rows of logits.
    let width =
        if width == 0 || spec.kernel == "topk_part" { int("V").max(int("PARTS") * int("K")).max(width) } else { width };
    // A row has so many numbers for each of its experts.
    let width = width.max(int("E")) * int("TOPK").max(1);
    let (kv, d, page) = (int("KV_HEADS").max(1), d.max(1), int("PAGE").max(1));
    // A store that looks back has a request's rows in one tile, and pages of its own.
    let looks_back = contract.shape == Shape::RecurStore;
    let bq = if looks_back { rows } else { int("HEIGHT").max(1) };
    let context = 512;
    let mut pages = 24;
    // Query tiles: sequences with a history, at most HEIGHT rows a tile.
    let (mut table, mut first, mut count, mut pos, mut flat) = (vec![], vec![], vec![], vec![], vec![]);
    let mut at = 0;
    while at < rows {
        let n = (1 + rng.below(2 * bq)).min(rows - at);
        // Where keys are split, some rows see one split and some two.
        let start = match int("SPLIT") {
            split if split > 0 && rng.below(3) == 0 => split - 20 + rng.below(40),
            _ => rng.below(200),
        };
        let offset = flat.len() as i32;
        let needed = (start + n).div_ceil(page);
        flat.extend((0..needed).map(|_| rng.below(pages) as i32));
        for t in (0..n).step_by(bq) {
            table.push(offset);
            first.push((at + t) as i32);
            count.push((n - t).min(bq) as i32);
            pos.push((start + t) as i32);
        }
        at += n;
    }
    if looks_back {
        pages = flat.len();
        let mut left: Vec<i32> = (0..pages as i32).collect();
        flat.iter_mut().for_each(|page| *page = left.swap_remove(rng.below(left.len())));
    }
    // Padding.
    table.push(-1);
    first.push(0);
    count.push(0);
    pos.push(0);
    let tiles = table.len();
    let length = (0..tiles).map(|t| (pos[t] + count[t]) as usize).max().unwrap_or(0);
    let states = length.div_ceil(int("SPLIT").max(1)) * int("ROWS") * heads;
    let mut slots: Vec<i32> = (0..(pages * page) as i32).collect();
    for i in 0..slots.len() {
        let j = i + rng.below(slots.len() - i);
        slots.swap(i, j);
    }
    let v = int("V").clamp(1, 1000);
    // The elements of a buffer by its extents.
    let declared = |param: &str| {
        let lookup = |name: &str| match name {
            "rows" => Some(rows as i64),
            "pages" => Some(pages as i64),
            name => Some(int(name) as i64),
        };
        contract.shapes[param].iter().map(|text| eval(text, &lookup).unwrap() as usize).product()
    };
    let draws = spec.kernel.starts_with("draw_");
    let buffers = contract.params.iter().map(|param| {
        let elem = Scalar::from(param.elem(spec.act));
        match param.role {
            // Experts, some of them beyond the last or before the first.
            Role::In(_) | Role::Out(_) if elem == Scalar::I32 => {
                let most = int("E") + 2;
                Buffer::I32((0..rows * width).map(|_| rng.below(most) as i32 - 1).collect())
            }
            // A draw's scale is positive, and its numbers are in [0, 1).
            Role::In(_) if draws && param.name == "scale" => Buffer::F32(
                (0..rows).map(|_| [std::f32::consts::LOG2_E, 0.5, 30.0, 1e-6, f32::MAX][rng.below(5)]).collect(),
            ),
            Role::In(_) if draws && ["within", "pick"].contains(&param.name.as_str()) => {
                let number = |rng: &mut Rng| match rng.below(6) {
                    0 => 0.0,
                    1 => 1.0 - f32::EPSILON / 2.0,
                    _ => rng.below(1 << 24) as f32 / 16_777_216.0,
                };
                Buffer::F32((0..rows).map(|_| number(&mut rng)).collect())
            }
            // Logits that are ordinary, equal or no numbers.
            Role::In(0) if draws => {
                let kinds = [f32::NAN, f32::NEG_INFINITY, -1.0, -1e-40, -0.0, 0.0, 0.5, f32::INFINITY];
                let kinds = &kinds[..1 + rng.below(kinds.len())];
                let number =
                    |rng: &mut Rng| if rng.below(3) == 0 { rng.float() } else { kinds[rng.below(kinds.len())] };
                Buffer::F32((0..declared(&param.name)).map(|_| number(&mut rng)).collect())
            }
            Role::In(_) | Role::Out(_) | Role::Weight(_) | Role::Entry(_) | Role::State(_)
                if contract.shape.recurs() || DECLARED.contains(&spec.kernel.as_str()) =>
            {
                random(&mut rng, elem, declared(&param.name))
            }
            // Many are equal, and some are no numbers.
            Role::In(0) if ["argmax", "topk_part", "topk_combine", "route"].contains(&spec.kernel.as_str()) => {
                let kinds = [f32::NAN, f32::NEG_INFINITY, -1.0, -1e-40, -0.0, 0.0, 1e-40, 0.5];
                let kinds = &kinds[..1 + rng.below(kinds.len())];
                Buffer::F32((0..rows * width).map(|_| kinds[rng.below(kinds.len())]).collect())
            }
            Role::In(_) => random(&mut rng, elem, rows * width),
            Role::Out(_) => random(&mut rng, elem, rows * width),
            Role::Weight(part) if spec.constants.contains_key("BLOCKS") && part < 3 => {
                let height = int("E").max(1) * int("N") * if spec.kernel.contains("glu") { 2 } else { 1 };
                random(&mut rng, elem, height * int("BLOCKS") * if part == 0 { 32 } else { 2 })
            }
            Role::Weight(_) if int("E") > 0 && param.name == "bias" && spec.kernel.contains("glu") => {
                random(&mut rng, elem, int("E") * 2 * int("N"))
            }
            Role::Weight(_) if param.elem == Some(Dtype::F32) => {
                random(&mut rng, elem, (context * d / 2).max(width).max(d))
            }
            Role::Weight(_) if spec.constants.contains_key("V") => random(&mut rng, elem, v * int("H")),
            Role::Weight(_) if int("E") > 0 => {
                let height = int("E") * int("N") * if spec.kernel.contains("glu") { 2 } else { 1 };
                random(&mut rng, elem, height * int("K"))
            }
            // The second half of a gated layer's is as far away as N says.
            Role::Weight(_) => {
                let height =
                    if spec.kernel.contains("glu") { 2 * int("N") } else { int("N").min(COLUMN_TILES * int("BN")) };
                random(&mut rng, elem, height * int("K"))
            }
            Role::Rows => Buffer::I32(vec![rows as i32]),
            Role::Tokens => Buffer::I32((0..rows).map(|_| rng.below(v) as i32).collect()),
            Role::Positions => Buffer::I32((0..rows).map(|_| rng.below(context) as i32).collect()),
            Role::RowIndex => Buffer::I32((0..rows).map(|_| rng.below(rows) as i32).collect()),
            Role::Slots => Buffer::I32(slots[..rows].to_vec()),
            Role::PageTable => Buffer::I32(flat.clone()),
            Role::TileTable => Buffer::I32(table.clone()),
            Role::TileRow => Buffer::I32(first.clone()),
            Role::TileRows => Buffer::I32(count.clone()),
            Role::TilePos => Buffer::I32(pos.clone()),
            Role::CacheK | Role::CacheV => random(&mut rng, elem, pages * kv * page * d),
            Role::Scratch(2) => random(&mut rng, elem, states * d),
            Role::Scratch(_) => random(&mut rng, elem, states),
            Role::Entry(_) | Role::State(_) => unreachable!("of layers with a state"),
        }
    });
    let buffers = buffers.collect();
    let mut grid = vosti_contract::Grid::written(contract, &spec.constants)
        .unwrap()
        .at(vosti_contract::Extent { rows, tiles, length })
        .unwrap();
    if int("K") + int("BLOCKS") > 0 {
        grid[1] = grid[1].min(COLUMN_TILES);
    }
    Case { spec, contract, kernel, buffers, grid }
}

/// The interpreter's buffers afterwards.
pub fn plain(case: &Case) -> Vec<Buffer> {
    let mut buffers = case.buffers.clone();
    run(&case.kernel, &mut buffers, case.grid, &Options::default()).unwrap();
    buffers
}

fn bytes(buffer: &Buffer) -> Vec<u8> {
    match buffer {
        Buffer::I1(v) => v.iter().map(|x| u8::from(*x)).collect(),
        Buffer::I8(v) => v.iter().map(|x| *x as u8).collect(),
        Buffer::I32(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Buffer::I64(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Buffer::Bf16(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Buffer::F32(v) => v.iter().flat_map(|x| x.to_le_bytes()).collect(),
    }
}

/// The plan's buffers afterwards, each parameter in the layout that the plan wants (or row-major).
pub fn fast(
    kernel: &Kernel,
    plan: &Plan,
    buffers: &[Buffer],
    grid: [usize; 3],
    isa: Isa,
    packed: bool,
    poison: Option<u64>,
) -> Result<Vec<Buffer>, String> {
    fast_with(kernel, plan, buffers, grid, isa, packed, poison, &[])
}

/// The same with some parameters' buffers in forms of their own, which the launch only reads. Equal words are at one address.
#[allow(clippy::too_many_arguments, reason = "those of `fast` and one more")]
pub fn fast_with(
    kernel: &Kernel,
    plan: &Plan,
    buffers: &[Buffer],
    grid: [usize; 3],
    isa: Isa,
    packed: bool,
    poison: Option<u64>,
    given: &[(usize, Layout, &[u64])],
) -> Result<Vec<Buffer>, String> {
    let mut memory: Vec<(Vec<u64>, Layout, usize, usize)> = Vec::new();
    for (i, buffer) in buffers.iter().enumerate() {
        let len = buffer.len();
        let size = kernel.params[i].elem.bytes();
        if let Some((_, layout, _)) = given.iter().find(|(param, ..)| *param == i) {
            memory.push((vec![], *layout, len, size));
            continue;
        }
        // No part of blocks is packed here.
        let can = |layout: &Layout| packed && layout.accepts(len) && !matches!(layout, Layout::StoredPanels { .. });
        let layout = plan.wanted[i].filter(can).unwrap_or(Layout::RowMajor);
        let mut words = vec![0u64; (layout.footprint(len) * size).div_ceil(8) + 8];
        let source = bytes(buffer);
        for e in 0..len {
            let at = layout.position(e) * size;
            // SAFETY: within the footprint.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    source.as_ptr().add(e * size),
                    words.as_mut_ptr().cast::<u8>().add(at),
                    size,
                );
            }
        }
        memory.push((words, layout, len, size));
    }
    let params: Vec<Param> = memory
        .iter_mut()
        .enumerate()
        .map(|(i, (words, layout, len, _))| {
            let own = given.iter().find(|(param, ..)| *param == i).map(|(_, _, words)| words.as_ptr().cast_mut());
            Param { base: own.unwrap_or(words.as_mut_ptr()).cast(), len: *len, layout: *layout }
        })
        .collect();
    let mut machine = Machine::new(isa, plan.scratch, poison).unwrap();
    let programs = grid.map(|n| n as i32);
    // A machine may keep what it made of integers for the programs of one launch, and no longer: so it runs a launch on others
    // in the same place first.
    let bytes: Vec<usize> = (0..params.len()).filter(|i| kernel.params[*i].elem == Scalar::I8).collect();
    let bytes: Vec<usize> = bytes.into_iter().filter(|i| !plan.written[*i] && !memory[*i].0.is_empty()).collect();
    let mut launch = || {
        machine.begin(plan, programs);
        let [x, y, z] = programs;
        let mut programs: Vec<[i32; 3]> =
            (0..z).flat_map(|z| (0..y).flat_map(move |y| (0..x).map(move |x| [x, y, z]))).collect();
        if plan.chosen.is_some() {
            // SAFETY: parameters are live buffers of their length, and this is the only thread.
            unsafe { machine.chosen(plan, &params, &mut programs) }.map_err(|f| format!("{f:?} among the chosen"))?;
        }
        for program in programs {
            // SAFETY: as above.
            unsafe { machine.run(plan, &params, program) }.map_err(|f| format!("{f:?} in {program:?}"))?;
        }
        Ok::<_, String>(())
    };
    let flip = || {
        for param in bytes.iter().map(|i| &params[*i]) {
            // SAFETY: bytes of a live buffer, and this is the only thread.
            (0..param.len).for_each(|at| unsafe { *param.base.add(at) ^= 1 });
        }
    };
    FloatMode::with(|| {
        if !bytes.is_empty() {
            flip();
            launch()?;
            flip();
        }
        launch()
    })?;
    let mut result = buffers.to_vec();
    let others = result.iter_mut().zip(&memory).enumerate().filter(|(i, _)| given.iter().all(|(param, ..)| param != i));
    for (_, (buffer, (words, layout, len, size))) in others {
        for e in 0..*len {
            let mut bits = [0u8; 8];
            // SAFETY: within the footprint.
            unsafe {
                let at = words.as_ptr().cast::<u8>().add(layout.position(e) * size);
                std::ptr::copy_nonoverlapping(at, bits.as_mut_ptr(), *size);
            }
            buffer.set_bits(e, u64::from_le_bytes(bits));
        }
    }
    Ok(result)
}

/// The first difference between two sets of buffers.
pub fn difference(kernel: &Kernel, a: &[Buffer], b: &[Buffer]) -> Option<String> {
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        if let Some(e) = (0..a.len()).find(|e| a.bits(*e) != b.bits(*e)) {
            let count = (0..a.len()).filter(|e| a.bits(*e) != b.bits(*e)).count();
            return Some(format!(
                "{} [{e}]: {:#x} is not {:#x} ({count} of {} differ)",
                kernel.params[i].name,
                a.bits(e),
                b.bits(e),
                a.len()
            ));
        }
    }
    None
}

pub fn plan(kernel: &Kernel, isa: Isa) -> Plan {
    compile(kernel, isa).unwrap_or_else(|e| panic!("{}: {e}", kernel.name))
}
