//! Random launches of kernels by the roles of their parameters, as a device would bind them.
#![allow(dead_code)] // each test uses its part

pub mod formulas;

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use std::collections::BTreeMap;
use vosti_contract::expr::eval;
use vosti_contract::{Const, Dtype, Extent, Grid, Role, Shape};
use vosti_kernels::Spec;
use vosti_tile::interp::Buffer;
use vosti_tile::{Kernel, Scalar};

/// A kernel with its buffers, in parameter order.
#[derive(Clone)]
pub struct Launch {
    pub spec: Spec,
    pub kernel: Kernel,
    pub buffers: Vec<Buffer>,
    pub roles: Vec<Role>,
    pub grid: [usize; 3],
}

/// Seeded random numbers.
pub struct Random(SplitMix64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed))
    }

    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
    pub fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

/// Sequences of a step: (rows, position of the first row).
pub type Sequences = [(usize, usize)];

pub fn int(spec: &Spec, name: &str) -> usize {
    match spec.constants.get(name) {
        Some(Const::Int(v)) => *v as usize,
        other => panic!("{spec}: {name} is {other:?}"),
    }
}

/// Pages in the pool of every launch.
pub const POOL: usize = 24;
/// Rows of a table of positions.
pub const CONTEXT: usize = 600;

/// Binds random data to a checked-in specialisation.
pub fn launch(spec: &Spec, sequences: &Sequences, seed: u64) -> Launch {
    let text = vosti_kernels::ttir(spec).unwrap_or_else(|| panic!("{spec} has no checked-in text"));
    let kernel = vosti_tile::lift(&text).unwrap_or_else(|error| panic!("{spec}: {error}"));
    let contract = vosti_kernels::contract(&spec.kernel).unwrap();
    let mut random = Random::new(seed);
    let rows: usize = sequences.iter().map(|s| s.0).sum();
    let metadata = metadata(spec, sequences, &mut random);
    let tiles = metadata.get("tile_rows").map_or(0, Vec::len);
    let length = sequences.iter().map(|(count, first)| first + count).max().unwrap_or(0);
    let grid = Grid::written(contract, &spec.constants).unwrap().at(Extent { rows, tiles, length }).unwrap();
    let mut buffers = vec![];
    for (param, lifted) in contract.params.iter().zip(&kernel.params) {
        assert_eq!(param.name, lifted.name);
        buffers.push(match param.elem {
            // The experts of each row, some of them no expert's index.
            Some(Dtype::I32) if matches!(param.role, Role::In(_) | Role::Out(_)) => {
                let (len, most) = (elements(spec, param.role, &param.name, rows), int(spec, "E") + 2);
                Buffer::I32((0..len).map(|_| random.below(most) as i32 - 1).collect())
            }
            Some(Dtype::I32) => Buffer::I32(metadata[param.name.as_str()].clone()),
            _ => floats(lifted.elem, elements(spec, param.role, &param.name, rows), &mut random),
        });
    }
    Launch { spec: spec.clone(), kernel, buffers, roles: contract.params.iter().map(|p| p.role).collect(), grid }
}

pub fn floats(elem: Scalar, len: usize, random: &mut Random) -> Buffer {
    let values = (0..len).map(|_| random.float());
    match elem {
        Scalar::Bf16 => Buffer::Bf16(values.map(vosti_tile::numerics::to_bf16).collect()),
        Scalar::I8 => Buffer::I8(values.map(|x| (128.0 * x) as i8).collect()),
        _ => Buffer::F32(values.collect()),
    }
}

/// Query heads of attention.
pub fn heads(spec: &Spec) -> usize {
    if spec.constants.contains_key("GROUP") { int(spec, "KV_HEADS") * int(spec, "GROUP") } else { int(spec, "HEADS") }
}

/// Numbers of a head.
pub fn head(spec: &Spec) -> usize {
    if spec.constants.contains_key("HALF") { 2 * int(spec, "HALF") } else { int(spec, "D") }
}

/// Elements of a block of 32 in a parameter of this name.
fn in_block(name: &str) -> usize {
    match name {
        "scale" => 1,
        "sums" | "scales" | "offsets" => 2,
        _ => 32,
    }
}

/// Kernels whose buffers have the extents of their contracts.
const BY_CONTRACT: [&str; 20] = [
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

/// How many elements a float parameter's buffer has.
fn elements(spec: &Spec, role: Role, name: &str, rows: usize) -> usize {
    let contract = vosti_kernels::contract(&spec.kernel).unwrap();
    if contract.shape.recurs() || BY_CONTRACT.contains(&&*spec.kernel) && contract.shapes.contains_key(name) {
        let lookup = |name: &str| match name {
            "rows" => Some(rows as i64),
            "pages" => Some(POOL as i64),
            name => Some(int(spec, name) as i64),
        };
        return contract.shapes[name].iter().map(|text| eval(text, &lookup).unwrap() as usize).product();
    }
    let int = |name: &str| int(spec, name);
    match (spec.kernel.as_str(), role) {
        (_, Role::CacheK | Role::CacheV) => POOL * int("KV_HEADS") * int("PAGE") * head(spec),
        (_, Role::Scratch(i)) => {
            CONTEXT.div_ceil(int("SPLIT")) * int("ROWS") * heads(spec) * if i == 2 { int("D") } else { 1 }
        }
        ("attend" | "attend_combine", Role::Weight(_)) => heads(spec),
        ("attend" | "attend_combine", _) => rows * heads(spec) * int("D"),
        (_, Role::Weight(_)) if matches!(name, "cos" | "sin" | "k_cos" | "k_sin") => CONTEXT * int("HALF"),
        (_, Role::Weight(_)) if matches!(name, "norm_w" | "k_norm_w") => head(spec),
        ("rope_q" | "rope_store", Role::In(_)) => rows * int("PACKED") * head(spec),
        ("rope_q" | "rope_store", _) => rows * int("HEADS") * head(spec),
        ("argmax", Role::In(_)) => rows * int("V"),
        ("argmax", _) => rows,
        ("topk_part", Role::In(_)) => rows * int("V"),
        ("topk_part", _) => rows * int("PARTS") * int("K"),
        ("topk_combine", Role::In(_)) => rows * int("N"),
        ("topk_combine", _) => rows * int("K"),
        ("route", Role::In(_)) => rows * int("E"),
        ("route", Role::Weight(_)) => int("E"),
        ("route", _) | ("expert_glu" | "expert_down" | "combine", Role::In(1)) => rows * int("TOPK"),
        ("expert_glu", Role::In(_)) => rows * int("K"),
        ("expert_glu", Role::Weight(1)) | ("expert_int_glu", Role::Weight(3)) => int("E") * 2 * int("N"),
        ("expert_glu", Role::Weight(_)) => int("E") * 2 * int("N") * int("K"),
        ("expert_down", Role::In(_)) => rows * int("TOPK") * int("K"),
        ("expert_down", Role::Weight(_)) => int("E") * int("N") * int("K"),
        ("expert_glu" | "expert_down", _) => rows * int("TOPK") * int("N"),
        ("expert_int_glu" | "expert_int_down", Role::In(4)) => rows * int("TOPK"),
        ("expert_int_glu", Role::In(_)) => rows * int("BLOCKS") * in_block(name),
        ("expert_int_glu", Role::Weight(_)) => int("E") * 2 * int("N") * int("BLOCKS") * in_block(name),
        ("expert_int_down", Role::In(_)) => rows * int("TOPK") * int("BLOCKS") * in_block(name),
        ("expert_int_down", Role::Weight(_)) => int("E") * int("N") * int("BLOCKS") * in_block(name),
        ("expert_int_glu" | "expert_int_down", _) => rows * int("TOPK") * int("N"),
        ("combine", Role::In(0)) => rows * int("TOPK") * int("H"),
        ("embed", Role::Weight(_)) => int("V") * int("H"),
        ("embed", _) => rows * int("H"),
        ("gather", Role::In(0) | Role::Out(0)) => rows * int("K"),
        ("norm_qk", Role::Weight(0)) => int("Q"),
        ("norm_qk", Role::Weight(_)) => int("KV"),
        ("norm_qk", _) => rows * int("STRIDE"),
        ("quantise", _) => rows * int("BLOCKS") * in_block(name),
        ("linear_int_bias", Role::Weight(3)) => int("N"),
        (kernel, Role::Weight(_)) if kernel.starts_with("linear_int") => {
            int("N") * if kernel == "linear_int_glu" { 2 } else { 1 } * int("BLOCKS") * in_block(name)
        }
        (kernel, Role::In(0..4)) if kernel.starts_with("linear_int") => rows * int("BLOCKS") * in_block(name),
        ("linear_bias", Role::Weight(1)) => int("N"),
        ("linear_glu", Role::Weight(_)) => 2 * int("N") * int("K"),
        (_, Role::Weight(_)) if spec.kernel.starts_with("linear") => int("N") * int("K"),
        (_, Role::In(0)) if spec.kernel.starts_with("linear") => rows * int("K"),
        (kernel, _) if kernel.starts_with("linear") => rows * int("N"),
        (_, Role::Weight(_)) => int("H"),
        _ => rows * int("H"),
    }
}

/// The integer buffers by parameter name.
fn metadata(spec: &Spec, sequences: &Sequences, random: &mut Random) -> BTreeMap<&'static str, Vec<i32>> {
    let rows: usize = sequences.iter().map(|s| s.0).sum();
    let constant = |name: &str| spec.constants.contains_key(name).then(|| int(spec, name));
    let page = constant("PAGE").unwrap_or(64);
    let vocabulary = constant("V").unwrap_or(1);
    let mut free: Vec<i32> = (0..POOL as i32).collect();
    let (mut table, mut slots, mut positions) = (vec![], vec![], vec![]);
    let mut tiles: [Vec<i32>; 4] = Default::default();
    // A store that looks back has all rows of a sequence in a tile.
    let looks_back = vosti_kernels::contract(&spec.kernel).is_ok_and(|contract| contract.shape == Shape::RecurStore);
    let height = if looks_back { usize::MAX } else { constant("HEIGHT").unwrap_or(64) };
    let mut row = 0;
    for (count, first) in sequences {
        let start = table.len();
        for _ in 0..(first + count).div_ceil(page) {
            table.push(free.swap_remove(random.below(free.len())));
        }
        for t in 0..*count {
            let p = first + t;
            positions.push(p as i32);
            slots.push(table[start + p / page] * page as i32 + (p % page) as i32);
        }
        for t in (0..*count).step_by(height) {
            let tile = [start, row + t, (count - t).min(height), first + t];
            tiles.iter_mut().zip(tile).for_each(|(list, v)| list.push(v as i32));
        }
        row += count;
    }
    // A padding tile has no rows and no table.
    tiles.iter_mut().zip([-1, 0, 0, 0]).for_each(|(list, v)| list.push(v));
    let [tile_table, tile_row, tile_rows, tile_pos] = tiles;
    BTreeMap::from([
        ("rows", vec![rows as i32]),
        ("tokens", (0..rows).map(|_| random.below(vocabulary) as i32).collect()),
        ("row_index", (0..rows).map(|_| random.below(rows) as i32).collect()),
        ("positions", positions),
        ("slots", slots),
        ("page_table", table),
        ("tile_table", tile_table),
        ("tile_row", tile_row),
        ("tile_rows", tile_rows),
        ("tile_pos", tile_pos),
    ])
}

/// A few checked-in specialisations of every kernel, the smallest first; `most` bounds their number.
pub fn some_of_each(most: usize) -> Vec<Spec> {
    let mut chosen = vec![];
    for kernel in vosti_kernels::kernels() {
        let mut specs: Vec<Spec> = vosti_kernels::examples().into_iter().filter(|s| s.kernel == kernel.name).collect();
        specs.sort_by_key(work);
        chosen.extend(specs.into_iter().take(most));
    }
    chosen
}

fn work(spec: &Spec) -> i64 {
    let of = |name| match spec.constants.get(name) {
        Some(Const::Int(v)) => *v,
        _ => 1,
    };
    of("N") * of("K") * of("H") * of("V") * of("D") * of("HALF") * of("BLOCKS") * of("DK")
}
