//! Related runs of attention, whole or one launch of two: one request's rows as prefill in one run and in other chunks
//! in the other.

use crate::problem::{Axis, Dim, Problem, Splits};
use crate::replay::{Outcome, Random, differ};
use vosti_kernels::{Role, Shape};
use vosti_tile::interp::{Buffer, Options, Order, Undefined, run};

struct Dims {
    heads: usize,
    kv: usize,
    page: usize,
    d: usize,
    window: usize,
    bq: usize,
    splits: Option<Splits>,
}

impl Dims {
    /// Whether a row at position `p` sees keys of a split.
    fn begins(&self, split: usize, p: usize) -> bool {
        self.splits.is_none_or(|splits| split as i128 * splits.size <= p as i128)
    }
}

/// The history that both runs share: keys, values and queries by position, and from where on numbers of partial results.
struct History {
    keys: Vec<f32>,
    values: Vec<f32>,
    queries: Vec<f32>,
    parts: u64,
}

struct Sequence {
    first: usize,
    rows: usize,
    shared: bool,
}

struct Run<'p> {
    problem: &'p Problem,
    buffers: Vec<Buffer>,
    tiles: usize,
    /// More than any row's position.
    length: usize,
    /// Packed row of each shared position.
    row_of: Vec<(usize, usize)>,
    /// Position of each packed row.
    positions: Vec<usize>,
}

fn dims(problem: &Problem) -> Dims {
    let n = |name: &str| problem.int(name).unwrap_or(0) as usize;
    Dims {
        heads: n("HEADS"),
        kv: n("KV_HEADS").max(1),
        // Partial results lie in no pages.
        page: if problem.shape == Shape::AttendCombine { 16 } else { n("PAGE") },
        d: n("D"),
        window: n("WINDOW"),
        bq: n("BQ"),
        splits: problem.splits(),
    }
}

fn number(random: &mut Random) -> f32 {
    let x = (random.draw() >> 40) as f32 / (1u64 << 24) as f32 * 4.0 - 2.0;
    if random.below(16) == 0 { x * 1e-20 } else { x }
}

fn put(buffer: &mut Buffer, index: usize, x: f32) {
    match buffer {
        Buffer::F32(v) => v[index] = x,
        Buffer::Bf16(v) => v[index] = (x.to_bits() >> 16) as u16,
        _ => {}
    }
}

pub(crate) fn replay(left: &Problem, right: &Problem, random: &mut Random) -> Outcome {
    let d = dims(left);
    if d.page == 0 || d.bq == 0 || dims(right).bq == 0 {
        return Outcome::Same;
    }
    // A few pages, and into the third split where there are some.
    let length = random.between(1, (4 * d.page).max(d.splits.map_or(0, |splits| 3 * splits.size as usize)));
    let parts = random.draw();
    let mut numbers = |n: usize| (0..n).map(|_| number(random)).collect::<Vec<_>>();
    let history = History {
        keys: numbers(length * d.kv * d.d),
        values: numbers(length * d.kv * d.d),
        queries: numbers(length * d.heads * d.d),
        parts,
    };
    let chunk = |random: &mut Random, p: usize| {
        let first = p.saturating_sub(random.below(2 * d.bq + 1));
        let end = (p + 1 + random.below(2 * d.bq)).min(length);
        (first, end - first)
    };
    let p = random.below(length);
    let (a, b) = (chunk(random, p), chunk(random, p));
    let oldest = if d.window > 0 { (p + 1).saturating_sub(d.window) } else { 0 };
    let mut runs = [make(left, &history, a, oldest, random), make(right, &history, b, oldest, random)];
    for (r, word) in runs.iter_mut().zip(["L", "R"]) {
        let options = Options {
            undefined: Undefined::Poison(random.draw()),
            order: Order::Shuffled(random.draw()),
            operations_max: Some(2_000_000),
        };
        let mut grid = [1; 3];
        for (i, axis) in r.problem.grid.iter().enumerate() {
            grid[i] = match axis {
                Axis::Const(n) => *n as usize,
                Axis::Tiles => r.tiles,
                Axis::TilesTimes(times) => r.tiles * *times as usize,
                Axis::RowsOver(_) | Axis::RowsTimes { .. } => 1,
                // Half of the runs have some to spare.
                Axis::LengthOver(n) => r.length.div_ceil(*n as usize) + random.below(2) * random.between(1, 3),
                Axis::LengthAbove(n) => usize::from(r.length > *n as usize).max(random.below(2)),
            };
        }
        let before = r.buffers.clone();
        if let Err(error) = run(&r.problem.kernel, &mut r.buffers, grid, &options) {
            return Outcome::Different(format!("run {word} stops: {error}"));
        }
        if let Some(stray) = stray_write(r, &d, &before) {
            return Outcome::Different(format!("run {word}: {stray}"));
        }
    }
    compare(&runs, &d, p)
}

/// Every position that both runs compute and whose window they share: all of them, or those from `p` on.
fn compare(runs: &[Run; 2], d: &Dims, p: usize) -> Outcome {
    let problem = runs[0].problem;
    for (i, b) in problem.buffers.iter().enumerate().filter(|(_, b)| problem.shape.writes(b.role)) {
        let Some(j) = runs[1].problem.role(b.role) else { continue };
        let named = |q: usize| (d.window == 0 || q >= p) && d.names(problem, b.role, q);
        for (q, l) in runs[0].row_of.iter().filter(|(q, _)| named(*q)) {
            let Some((_, r)) = runs[1].row_of.iter().find(|(other, _)| other == q) else { continue };
            let cells = d.cells(problem, i, *l, *q).zip(d.cells(runs[1].problem, j, *r, *q));
            for (c, (x, y)) in cells.enumerate() {
                if let Some(how) = differ(&runs[0].buffers[i], x, &runs[1].buffers[j], y) {
                    let name = &b.name;
                    return Outcome::Different(format!(
                        "position {q} is row {l} of one run and row {r} of the other; column {c} of `{name}` differs: {how}"
                    ));
                }
            }
        }
    }
    Outcome::Same
}

/// A row of an output changed that the op's other launch writes.
fn stray_write(run: &Run, d: &Dims, before: &[Buffer]) -> Option<String> {
    let outs = run.problem.buffers.iter().enumerate().filter(|(_, b)| matches!(b.role, Role::Out(_)));
    for (i, b) in outs {
        for (row, q) in run.positions.iter().enumerate().filter(|(_, q)| !d.names(run.problem, b.role, **q)) {
            let changed = |at: &usize| before[i].bits(*at) != run.buffers[i].bits(*at);
            if d.cells(run.problem, i, row, *q).any(|at| changed(&at)) {
                return Some(format!("row {row} of `{}`, at position {q}, is the other launch's, and changed", b.name));
            }
        }
    }
    None
}

/// Elements of a row of a buffer that has rows, where keys are split of one split's row.
fn width(problem: &Problem, param: usize) -> usize {
    let buffer = &problem.buffers[param];
    let outer = if let Role::Scratch(_) = buffer.role { 2 } else { 1 };
    buffer.dims[outer..].iter().map(|dim| if let Dim::Const(n) = dim { *n as usize } else { 1 }).product()
}

impl Dims {
    /// Whether a kernel's contract names a row's cells of a role, by the row's position.
    fn names(&self, problem: &Problem, role: Role, position: usize) -> bool {
        problem.shape.early_rows(role).is_none_or(|early| self.begins(1, position) != early)
    }

    /// Cells of a row of a buffer, of all splits that a row at `position` sees.
    fn cells(&self, problem: &Problem, param: usize, row: usize, position: usize) -> impl Iterator<Item = usize> {
        let n = width(problem, param);
        let (splits, rows) = match (problem.buffers[param].role, self.splits) {
            (Role::Scratch(_), Some(splits)) => (position / splits.size as usize + 1, splits.rows as usize),
            _ => (1, 0),
        };
        (0..splits).flat_map(move |split| (0..n).map(move |c| (split * rows + row) * n + c))
    }
}

/// A batch that holds the chunk of the shared request among others, in random pages.
fn make<'p>(
    problem: &'p Problem,
    history: &History,
    chunk: (usize, usize),
    oldest: usize,
    random: &mut Random,
) -> Run<'p> {
    let d = dims(problem);
    let mut sequences = vec![Sequence { first: chunk.0, rows: chunk.1, shared: true }];
    let mut room = d.splits.map_or(usize::MAX, |splits| (splits.rows as usize).saturating_sub(chunk.1));
    for _ in 0..random.below(3) {
        let (first, rows) = (random.below(2 * d.page), random.between(1, 2 * d.bq));
        if rows <= room {
            room -= rows;
            sequences.push(Sequence { first, rows, shared: false });
        }
    }
    random.shuffle(&mut sequences);
    let needed: usize = sequences.iter().map(|s| (s.first + s.rows).div_ceil(d.page)).sum();
    let pages = needed + 1 + random.below(4);
    let mut free: Vec<i32> = (0..pages as i32).collect();
    random.shuffle(&mut free);
    let (mut table, mut tiles, mut row_of) = (vec![], vec![], vec![]);
    let (mut row, mut positions) = (0, vec![]);
    let mut shared_table = vec![];
    for s in &sequences {
        let base = table.len();
        let behind = if d.window > 0 { (s.first + 1).saturating_sub(d.window) / d.page } else { 0 };
        for i in 0..(s.first + s.rows).div_ceil(d.page) {
            table.push(if i < behind { -1 } else { free.pop().unwrap_or(0) });
        }
        if s.shared {
            shared_table = table[base..].to_vec();
            row_of.extend((0..s.rows).map(|i| (s.first + i, row + i)));
        }
        let mut at = 0;
        while at < s.rows {
            let n = d.bq.min(s.rows - at);
            tiles.push([base as i32, (row + at) as i32, n as i32, (s.first + at) as i32]);
            at += n;
        }
        row += s.rows;
        positions.extend(s.first..s.first + s.rows);
    }
    for _ in 0..random.below(4) {
        tiles.push([-1, 0, 0, 0]);
    }
    random.shuffle(&mut tiles);
    let reached = sequences.iter().map(|s| s.first + s.rows).max().unwrap_or(1);
    let length = reached + random.below(2) * random.below(4 * d.page);
    let mut out = Run { problem, buffers: vec![], tiles: tiles.len(), length, row_of, positions };
    fill(&mut out, &d, history, (row, pages), (&table, &tiles, &shared_table), oldest, random);
    out
}

fn fill(
    out: &mut Run,
    d: &Dims,
    history: &History,
    (rows, pages): (usize, usize),
    (table, tiles, shared): (&[i32], &[[i32; 4]], &[i32]),
    oldest: usize,
    random: &mut Random,
) {
    for (i, b) in out.problem.buffers.iter().enumerate() {
        let elem = out.problem.kernel.params[i].elem;
        let column = |k: usize| Buffer::I32(tiles.iter().map(|t| t[k]).collect());
        let random_floats = |random: &mut Random, n: usize| {
            let mut buffer = Buffer::zeros(elem, n);
            (0..n).for_each(|at| put(&mut buffer, at, number(random)));
            buffer
        };
        let width = if b.dims.len() > 1 { width(out.problem, i) } else { 1 };
        let buffer = match b.role {
            Role::TileTable => column(0),
            Role::TileRow => column(1),
            Role::TileRows => column(2),
            Role::TilePos => column(3),
            Role::PageTable => Buffer::I32(table.to_vec()),
            Role::In(_) => {
                let mut buffer = random_floats(random, rows * width);
                for (p, row) in &out.row_of {
                    (0..width).for_each(|c| put(&mut buffer, row * width + c, history.queries[p * width + c]));
                }
                buffer
            }
            Role::Scratch(which) => {
                let (size, rows_max) = d.splits.map_or((1, rows), |s| (s.size as usize, s.rows as usize));
                let mut buffer = random_floats(random, out.length.div_ceil(size) * rows_max * width);
                for (p, row) in &out.row_of {
                    let mut shared = Random::new(history.parts ^ (*p * 8 + which) as u64);
                    for at in d.cells(out.problem, i, *row, *p) {
                        put(&mut buffer, at, number(&mut shared));
                    }
                }
                buffer
            }
            Role::CacheK | Role::CacheV => {
                let mut buffer = random_floats(random, pages * d.kv * d.page * d.d);
                let source = if b.role == Role::CacheK { &history.keys } else { &history.values };
                let end = source.len() / (d.kv * d.d);
                for p in oldest..end.min(shared.len() * d.page) {
                    let page = shared[p / d.page];
                    if page < 0 {
                        continue;
                    }
                    for (h, c) in (0..d.kv).flat_map(|h| (0..d.d).map(move |c| (h, c))) {
                        let at = ((page as usize * d.kv + h) * d.page + p % d.page) * d.d + c;
                        put(&mut buffer, at, source[(p * d.kv + h) * d.d + c]);
                    }
                }
                buffer
            }
            _ => random_floats(random, rows * width),
        };
        out.buffers.push(buffer);
    }
}
