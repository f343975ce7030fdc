//! Two concrete runs that a contract relates, on the plain interpreter.
//!
//! Batches are random; the chosen rows agree, everything that the contract leaves open differs: other
//! rows, batch sizes, pages, stale cache, what outputs held before, program order, undefined lanes.
//! A difference in the chosen cells is a counterexample, whatever the verifier thinks.

use crate::problem::{Axis, Dim, Problem};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use std::collections::BTreeMap;
use vosti_kernels::{Role, Shape};
use vosti_tile::Scalar;
use vosti_tile::interp::{Buffer, Options, Order, Undefined, run};

/// What a replay showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The chosen cells have the same bits.
    Same,
    /// They do not, or a run stopped: in words.
    Different(String),
}

/// Seeded random numbers.
pub struct Random(SplitMix64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed))
    }

    pub fn draw(&mut self) -> u64 {
        self.0.next_u64()
    }
    /// In `0..n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.draw() % n.max(1) as u64) as usize
    }
    /// In `lo..=hi`.
    pub fn between(&mut self, lo: usize, hi: usize) -> usize {
        lo + self.below(hi.saturating_sub(lo) + 1)
    }
    fn float(&mut self, wild: bool) -> f32 {
        let x = (self.draw() >> 40) as f32 / (1u64 << 24) as f32 * 4.0 - 2.0;
        match self.below(64) {
            0 if wild => f32::INFINITY,
            1 if wild => f32::NAN,
            2 => 0.0,
            3 => -0.0,
            4 => x * 1e-30,
            5 => x * 64.0,
            _ => x,
        }
    }
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for i in (1..list.len()).rev() {
            list.swap(i, self.below(i + 1));
        }
    }
}

/// One run being made: sizes, and buffers by parameter.
struct Side<'p> {
    problem: &'p Problem,
    rows: usize,
    packed: usize,
    context: usize,
    pages: usize,
    tiles: usize,
    ints: BTreeMap<&'static str, Vec<i32>>,
    buffers: Vec<Buffer>,
}

const ROPE: usize = 128;

fn put(buffer: &mut Buffer, index: usize, x: f32) {
    match buffer {
        Buffer::F32(v) => v[index] = x,
        Buffer::Bf16(v) => v[index] = (x.to_bits() >> 16) as u16,
        Buffer::I32(v) => v[index] = x as i32,
        _ => {}
    }
}

impl<'p> Side<'p> {
    fn new(problem: &'p Problem) -> Side<'p> {
        Side { problem, rows: 1, packed: 1, context: ROPE, pages: 1, tiles: 1, ints: BTreeMap::new(), buffers: vec![] }
    }

    fn dim(&self, dim: Dim) -> usize {
        match dim {
            Dim::Const(n) => n as usize,
            Dim::Rows => self.rows,
            Dim::Packed => self.packed,
            Dim::Context => self.context,
            Dim::Pages => self.pages,
            Dim::Tiles => self.tiles,
            Dim::TableLen => self.ints.get("page_table").map_or(1, Vec::len),
            Dim::Splits => 1,
        }
    }

    /// Elements of one outermost entry of a buffer.
    fn stride(&self, param: usize) -> usize {
        self.problem.buffers[param].dims[1..].iter().map(|d| self.dim(*d)).product()
    }

    /// Buffers of the right sizes: metadata as set, the rest random; weights from their own seed.
    fn fill(&mut self, random: &mut Random, weights: u64) {
        for (i, b) in self.problem.buffers.iter().enumerate() {
            let elem = self.problem.kernel.params[i].elem;
            let len: usize = b.dims.iter().map(|d| self.dim(*d)).product();
            let mut buffer = Buffer::zeros(elem, len);
            let metadata = match b.role {
                Role::Rows => Some(vec![self.rows as i32]),
                role => name(role).and_then(|n| self.ints.get(n).cloned()),
            };
            let cache = matches!(b.role, Role::CacheK | Role::CacheV);
            let mut own = Random::new(weights ^ (i as u64) << 32);
            for at in 0..len {
                if let Some(list) = &metadata {
                    buffer.set_bits(at, list[at] as u32 as u64);
                } else if matches!(b.role, Role::Weight(_)) {
                    put(&mut buffer, at, own.float(false));
                } else {
                    put(&mut buffer, at, random.float(!cache));
                }
            }
            self.buffers.push(buffer);
        }
    }

    /// In half of the runs with programs to spare.
    fn grid(&self, random: &mut Random) -> [usize; 3] {
        let mut grid = [1; 3];
        for (i, axis) in self.problem.grid.iter().enumerate() {
            grid[i] = match axis {
                Axis::Const(n) => *n as usize,
                Axis::Tiles => self.tiles,
                Axis::RowsOver(n) => self.rows.div_ceil(*n as usize) + random.below(2) * random.between(1, 3),
                Axis::TilesTimes(times) => self.tiles * *times as usize,
                Axis::RowsTimes { over, times } => {
                    self.rows.div_ceil(*over as usize) * *times as usize + random.below(2) * random.between(1, 3)
                }
                Axis::LengthOver(_) | Axis::LengthAbove(_) => 1,
            };
        }
        grid
    }

    fn run(&mut self, random: &mut Random) -> Result<(), String> {
        let options = Options {
            undefined: Undefined::Poison(random.draw()),
            order: Order::Shuffled(random.draw()),
            operations_max: Some(2_000_000),
        };
        let grid = self.grid(random);
        run(&self.problem.kernel, &mut self.buffers, grid, &options).map_err(|e| e.to_string())
    }
}

fn name(role: Role) -> Option<&'static str> {
    Some(match role {
        Role::Tokens => "tokens",
        Role::Positions => "positions",
        Role::RowIndex => "row_index",
        Role::Slots => "slots",
        Role::PageTable => "page_table",
        Role::TileTable => "tile_table",
        Role::TileRow => "tile_row",
        Role::TileRows => "tile_rows",
        Role::TilePos => "tile_pos",
        _ => return None,
    })
}

/// True if a replay would take longer than a moment.
pub fn too_large(problem: &Problem) -> bool {
    let size = |b: &crate::problem::Buffer| {
        let many = |dim: &Dim| match dim {
            Dim::Const(n) => *n,
            Dim::Splits => 4,
            _ => 64,
        };
        b.dims.iter().map(many).product::<i128>()
    };
    problem.buffers.iter().any(|b| size(b) > 1 << 18)
}

/// One random pair of related runs.
pub fn replay(left: &Problem, right: &Problem, seed: u64) -> Outcome {
    let mut random = Random::new(seed);
    match left.shape {
        shape if shape.attends() => crate::replay_attend::replay(left, right, &mut random),
        _ => replay_rows(left, right, &mut random),
    }
}

/// The first of several replays that differs.
pub fn search(left: &Problem, right: &Problem, seeds: std::ops::Range<u64>) -> Option<String> {
    if too_large(left) || too_large(right) {
        return None;
    }
    seeds.into_iter().find_map(|seed| match replay(left, right, seed) {
        Outcome::Same => None,
        Outcome::Different(how) => Some(format!("seed {seed}: {how}")),
    })
}

fn tile_rows(problem: &Problem) -> usize {
    let over = |axis: &Axis| match axis {
        Axis::RowsOver(over) | Axis::RowsTimes { over, .. } => Some(*over as usize),
        _ => None,
    };
    problem.grid.iter().find_map(over).unwrap_or(1)
}

fn replay_rows(left: &Problem, right: &Problem, random: &mut Random) -> Outcome {
    let weights = random.draw();
    let mut sides = [rows_side(left, random), rows_side(right, random)];
    let count = random.between(1, sides[0].rows.min(sides[1].rows).min(4));
    let mut pairs = vec![];
    let (mut a, mut b): (Vec<usize>, Vec<usize>) = ((0..sides[0].rows).collect(), (0..sides[1].rows).collect());
    random.shuffle(&mut a);
    random.shuffle(&mut b);
    pairs.extend(a.into_iter().zip(b).take(count));
    for &(l, r) in &pairs {
        for key in ["tokens", "positions"] {
            let value = sides[0].ints.get(key).map(|v| v[l]);
            if let (Some(value), Some(list)) = (value, sides[1].ints.get_mut(key)) {
                list[r] = value;
            }
        }
    }
    for side in &mut sides {
        side.fill(random, weights);
    }
    for &(l, r) in &pairs {
        share_row(&mut sides, l, r, random);
    }
    for (side, word) in sides.iter_mut().zip(["L", "R"]) {
        let before = side.buffers.clone();
        if let Err(error) = side.run(random) {
            return Outcome::Different(format!("run {word} stops: {error}"));
        }
        if let Some(stray) = stray_write(side, &before) {
            return Outcome::Different(format!("run {word}: {stray}"));
        }
    }
    compare_rows(&sides, &pairs)
}

fn rows_side<'p>(problem: &'p Problem, random: &mut Random) -> Side<'p> {
    let mut side = Side::new(problem);
    let tile = tile_rows(problem);
    side.rows = random.between(1, 3 * tile + 2);
    side.packed = side.rows + random.below(9);
    let rows = side.rows;
    let mut list = |n: usize| (0..rows).map(|_| random.below(n) as i32).collect::<Vec<_>>();
    if problem.role(Role::Tokens).is_some() {
        let v = problem.int("V").unwrap_or(1) as usize;
        side.ints.insert("tokens", list(v));
    }
    if problem.role(Role::Positions).is_some() {
        side.ints.insert("positions", list(ROPE));
    }
    let distinct = |random: &mut Random, n: usize| {
        let mut all: Vec<i32> = (0..n as i32).collect();
        random.shuffle(&mut all);
        all.truncate(rows);
        all
    };
    if problem.role(Role::RowIndex).is_some() {
        side.ints.insert("row_index", distinct(random, side.packed));
    }
    if problem.role(Role::Slots).is_some() {
        let page = problem.int("PAGE").unwrap_or(1) as usize;
        side.pages = rows.div_ceil(page) + 1 + random.below(3);
        side.ints.insert("slots", distinct(random, side.pages * page));
    }
    side
}

/// Copies the chosen row's inputs from L to R.
fn share_row(sides: &mut [Side; 2], l: usize, r: usize, random: &mut Random) {
    let source = |side: &Side, row: usize| side.ints.get("row_index").map_or(row, |v| v[row] as usize);
    let (sl, sr) = (source(&sides[0], l), source(&sides[1], r));
    for i in 0..sides[0].problem.buffers.len() {
        let role = sides[0].problem.buffers[i].role;
        if !matches!(role, Role::In(_)) {
            continue;
        }
        let Some(j) = sides[1].problem.role(role) else { continue };
        let n = sides[0].stride(i);
        for c in 0..n {
            let x = random.float(false);
            put(&mut sides[0].buffers[i], sl * n + c, x);
            let bits = sides[0].buffers[i].bits(sl * n + c);
            sides[1].buffers[j].set_bits(sr * n + c, bits);
        }
    }
}

/// A cell changed that the contract does not name.
fn stray_write(side: &Side, before: &[Buffer]) -> Option<String> {
    let kv = side.problem.shape == Shape::StoreKv;
    for (i, b) in side.problem.buffers.iter().enumerate() {
        let cache = matches!(b.role, Role::CacheK | Role::CacheV);
        if matches!(b.role, Role::Out(_)) {
            continue;
        }
        let slots = side.ints.get("slots").filter(|_| kv && cache);
        for at in 0..before[i].len() {
            if before[i].bits(at) == side.buffers[i].bits(at) {
                continue;
            }
            let named = slots.is_some_and(|s| s.contains(&(slot_of(side.problem, at) as i32)));
            if !named {
                return Some(format!("element {at} of `{}` changed", b.name));
            }
        }
    }
    None
}

fn slot_of(problem: &Problem, at: usize) -> usize {
    let n = |name: &str| problem.int(name).unwrap_or(1) as usize;
    let (heads, page, d) = (n("KV_HEADS"), n("PAGE"), n("D"));
    at / (heads * page * d) * page + at / d % page
}

fn compare_rows(sides: &[Side; 2], pairs: &[(usize, usize)]) -> Outcome {
    for &(l, r) in pairs {
        for (i, b) in sides[0].problem.buffers.iter().enumerate() {
            let Some(j) = sides[1].problem.role(b.role) else { continue };
            let cells: Vec<(usize, usize)> = match b.role {
                Role::Out(_) => {
                    let n = sides[0].stride(i);
                    (0..n).map(|c| (l * n + c, r * n + c)).collect()
                }
                Role::CacheK | Role::CacheV => {
                    let cells = |side: &Side, row: usize| row_cells(side, row);
                    cells(&sides[0], l).into_iter().zip(cells(&sides[1], r)).collect()
                }
                _ => continue,
            };
            for (x, y) in cells {
                if let Some(how) = differ(&sides[0].buffers[i], x, &sides[1].buffers[j], y) {
                    let batches = (sides[0].rows, sides[1].rows);
                    return Outcome::Different(format!(
                        "row {l} of {} and row {r} of {} have equal inputs, but `{}` differs at {x} and {y}: {how}",
                        batches.0, batches.1, b.name
                    ));
                }
            }
        }
    }
    Outcome::Same
}

fn row_cells(side: &Side, row: usize) -> Vec<usize> {
    let n = |name: &str| side.problem.int(name).unwrap_or(1) as usize;
    let (heads, page, d) = (n("KV_HEADS"), n("PAGE"), n("D"));
    let slot = side.ints["slots"][row] as usize;
    let at = |h: usize, c: usize| ((slot / page * heads + h) * page + slot % page) * d + c;
    (0..heads).flat_map(|h| (0..d).map(move |c| (h, c))).map(|(h, c)| at(h, c)).collect()
}

/// Different bits, in words. All NaNs are one.
pub(crate) fn differ(a: &Buffer, i: usize, b: &Buffer, j: usize) -> Option<String> {
    let (x, y) = (a.bits(i), b.bits(j));
    let value = |bits: u64| match a.elem() {
        Scalar::Bf16 => f32::from_bits((bits as u32) << 16),
        _ => f32::from_bits(bits as u32),
    };
    let (u, v) = (value(x), value(y));
    if x == y || (u.is_nan() && v.is_nan()) {
        return None;
    }
    Some(format!("{u:e} ({x:#x}) and {v:e} ({y:#x})"))
}
