//! Related runs of attention, whole or one launch of two: each run has another chunk of one request's rows, among other
//! requests.

use crate::reading::{Extent, Kind, Parameter, Reading, What, Work};
use crate::replay::{Outcome, Random, differ, launch, memory, put, zeros};
use vosti_tile::Kernel;
use vosti_tile::interp::Buffer;

struct Dims {
    kind: Kind,
    heads: usize,
    /// Numbers of a row of queries; of outputs, in a launch that reads none.
    query: usize,
    kv: usize,
    page: usize,
    d: usize,
    window: usize,
    bq: usize,
    /// Keys of a split, and rows of scratch.
    splits: Option<(usize, usize)>,
}

/// The history that both runs share: keys, values and queries by position, and the seed of partial results and weights.
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
    kernel: &'p Kernel,
    reading: &'p Reading,
    buffers: Vec<Buffer>,
    tiles: usize,
    /// Above every row's position.
    length: usize,
    /// Each shared position and its packed row.
    row_of: Vec<(usize, usize)>,
    /// Position of each packed row.
    positions: Vec<usize>,
}

fn dims(reading: &Reading) -> Result<Dims, String> {
    let n = |name: &str| reading.natural(name);
    let split = matches!(reading.kind, Kind::Part | Kind::Combine | Kind::Folded);
    let queries = reading.find(What::In(0)).map(|i| &reading.parameters[i]);
    let heads = n("HEADS").or_else(|_| Ok::<_, String>(n("KV_HEADS")? * n("GROUP")?))?;
    Ok(Dims {
        kind: reading.kind,
        heads,
        query: queries.map_or(heads.saturating_mul(n("D")?), |queries| queries.inner(1)),
        // The second launch reads no keys, so it may have any KV heads and pages.
        kv: if reading.kind == Kind::Combine { 1 } else { n("KV_HEADS")? },
        page: if reading.kind == Kind::Combine { 16 } else { n("PAGE")? },
        d: n("D")?,
        // A launch that folds its splits has no window, whatever the contract calls so.
        window: match (reading.kind, reading.integers.get("USE")) {
            (Kind::Attend, Some(2)) => 0,
            (Kind::Attend, _) => reading.whole("WINDOW")?,
            _ => 0,
        },
        bq: n("BQ")?,
        splits: if split { Some((n("SPLIT")?, n("ROWS")?)) } else { None },
    })
}

/// One of 16 numbers is tiny; some of these are denormal or a zero or, if the contract does not say that they are finite, no number
/// or infinite.
fn drawn(random: &mut Random, finite: bool) -> f32 {
    let bits = random.draw();
    let x = (bits >> 40) as f32 / (1u64 << 24) as f32 * 4.0 - 2.0;
    match (random.below(16), bits % 32) {
        (0, 0..8) => x * 2e-39,
        (0, 8..12) => 0f32.copysign(x),
        (0, 12) if !finite => f32::NAN,
        (0, 13) if !finite => f32::INFINITY.copysign(x),
        (0, _) => x * 1e-20,
        _ => x,
    }
}

fn number(random: &mut Random) -> f32 {
    drawn(random, true)
}

fn any_number(random: &mut Random) -> f32 {
    drawn(random, false)
}

/// What both runs share: so many positions. In one of eight pairs of runs a key is huge, so that scores may overflow.
fn history(d: &Dims, length: usize, random: &mut Random) -> History {
    let parts = random.draw();
    let mut numbers = |n: usize, of: fn(&mut Random) -> f32| (0..n).map(|_| of(random)).collect::<Vec<_>>();
    let mut keys = numbers(length * d.kv * d.d, number);
    if parts.is_multiple_of(8) {
        let at = (parts >> 8) as usize % length * d.kv * d.d;
        keys[at..at + d.kv * d.d].iter_mut().for_each(|key| *key *= 1e37);
    }
    History {
        keys,
        values: numbers(length * d.kv * d.d, number),
        queries: numbers(length * d.query, any_number),
        parts,
    }
}

/// How many positions a history may have: four pages, or up to the third split's end if that fits a run's memory.
fn longest(d: &Dims) -> Result<usize, String> {
    let Some(keys) = (2 * d.kv).checked_mul(d.d) else { return Err("its heads are too large to run".into()) };
    let most = memory() / 4 / d.query.saturating_add(keys).max(1);
    let (pages, splits) = (4 * d.page, d.splits.map_or(0, |(size, _)| 3 * size));
    match pages.max(splits) {
        all if all <= most => Ok(all),
        _ if pages <= most => Ok(pages),
        _ => Err("a run of a few pages is too large".into()),
    }
}

pub(crate) fn replay(sides: [(&Kernel, &Reading); 2], random: &mut Random) -> Result<Outcome, String> {
    let (d, other) = (dims(sides[0].1)?, dims(sides[1].1)?);
    let model = |d: &Dims| (d.heads, d.query, d.kv, d.page, d.d, d.window, d.splits);
    if model(&d) != model(&other) {
        return Err("two contracts of other heads, pages, windows or splits".into());
    }
    let length = random.between(1, longest(&d)?);
    let history = history(&d, length, random);
    // A launch has no more rows than scratch.
    let room = d.splits.map_or(usize::MAX, |(_, rows)| rows);
    let chunk = |random: &mut Random, p: usize, bq: usize| {
        let first = p.saturating_sub(random.below(2 * bq + 1).min(room - 1));
        let end = (p + 1 + random.below(2 * bq)).min(length).min(first.saturating_add(room));
        (first, end - first)
    };
    let p = random.below(length);
    let (a, b) = (chunk(random, p, d.bq), chunk(random, p, other.bq));
    let oldest = if d.window > 0 { (p + 1).saturating_sub(d.window) } else { 0 };
    let mut runs = [make(sides[0], &history, a, oldest, random)?, make(sides[1], &history, b, oldest, random)?];
    for (r, word) in runs.iter_mut().zip(["L", "R"]) {
        match execute(r, &d, word, random)? {
            Outcome::Same => {}
            other => return Ok(other),
        }
    }
    compare(&runs, &d, p)
}

fn execute(r: &mut Run, d: &Dims, word: &str, random: &mut Random) -> Result<Outcome, String> {
    // Half of the runs have spare programs.
    let spare = random.below(2) * random.between(1, 3) * d.splits.map_or(1, |(size, _)| size);
    let work = Work { rows: r.positions.len(), tiles: r.tiles, length: r.length + spare };
    let before = r.buffers.clone();
    Ok(match launch(r.kernel, &mut r.buffers, r.reading.grid(work)?, random) {
        Outcome::Different(how) => Outcome::Different(format!("run {word} {how}")),
        Outcome::Same => match stray_write(r, d, &before) {
            Some(stray) => Outcome::Different(format!("run {word}: {stray}")),
            None => Outcome::Same,
        },
        not_run => not_run,
    })
}

/// One launch that folds its own splits, and two launches, over the same history in other batches: the rows that both compute.
/// `sides` has the one launch, then the two.
pub(crate) fn replay_folded(sides: [(&Kernel, &Reading); 3], random: &mut Random) -> Result<Outcome, String> {
    let [one, first, second] = sides;
    let all = [dims(one.1)?, dims(first.1)?, dims(second.1)?];
    let (size, room) = all[1].splits.ok_or("a first launch without splits")?;
    let length = random.between(1, longest(&all[1])?.max(size));
    let history = history(&all[1], length, random);
    let p = random.below(length);
    let chunk = |random: &mut Random, bq: usize| {
        let start = p.saturating_sub(random.below(2 * bq + 1).min(room - 1));
        (start, (p + 1 + random.below(2 * bq)).min(length).min(start.saturating_add(room)) - start)
    };
    let (alone, both) = (chunk(random, all[0].bq), chunk(random, all[1].bq));
    let mut runs = [
        make(one, &history, alone, 0, random)?,
        make(first, &history, both, 0, random)?,
        make(second, &history, both, 0, random)?,
    ];
    for ((run, d), word) in runs.iter_mut().zip(&all).zip(["L", "R, its first launch,"]) {
        match execute(run, d, word, random)? {
            Outcome::Same => {}
            other => return Ok(other),
        }
    }
    let [alone, first, second] = &mut runs;
    hand_over(first, (second, &all[2]))?;
    match execute(second, &all[2], "R, its second launch,", random)? {
        Outcome::Same => {}
        other => return Ok(other),
    }
    let out = |run: &Run| run.reading.find(What::Out(0)).ok_or("no output");
    let (i, n) = (out(alone)?, all[1].heads * all[1].d);
    for (q, l) in &alone.row_of {
        let run = if *q < size { &*first } else { &*second };
        let Some((_, r)) = run.row_of.iter().find(|(other, _)| other == q) else { continue };
        let j = out(run)?;
        for c in 0..n {
            if let Some(how) = differ(&alone.buffers[i], l * n + c, &run.buffers[j], r * n + c) {
                return Ok(Outcome::Different(format!(
                    "position {q} is row {l} of one launch and row {r} of two; column {c} differs: {how}"
                )));
            }
        }
    }
    Ok(Outcome::Same)
}

/// Puts the partial results of the first launch's rows where the second launch has these rows.
fn hand_over(first: &Run, (second, d): (&mut Run, &Dims)) -> Result<(), String> {
    for (i, param) in first.reading.parameters.iter().enumerate().filter(|(_, p)| matches!(p.what, What::Scratch(_))) {
        let j = second.reading.find(param.what).ok_or("a second launch without a partial result")?;
        let own = &second.reading.parameters[j];
        for (position, row) in &second.row_of {
            let Some((_, from)) = first.row_of.iter().find(|(other, _)| other == position) else { continue };
            for (to, at) in d.cells(own, *row, *position).zip(d.cells(param, *from, *position)) {
                let Buffer::F32(numbers) = &first.buffers[i] else {
                    return Err("partial results of another type".into());
                };
                put(&mut second.buffers[j], to, numbers[at]);
            }
        }
    }
    Ok(())
}

/// Compares every position that both runs compute and whose keys they share: all of them, or with a window those from `p` on.
fn compare(runs: &[Run; 2], d: &Dims, p: usize) -> Result<Outcome, String> {
    for (i, param) in runs[0].reading.parameters.iter().enumerate().filter(|(_, param)| d.writes(param.what)) {
        let j = runs[1].reading.find(param.what).ok_or("another output")?;
        let other = &runs[1].reading.parameters[j];
        let named = |q: usize| (d.window == 0 || q >= p) && d.names(param.what, q);
        for (q, l) in runs[0].row_of.iter().filter(|(q, _)| named(*q)) {
            let Some((_, r)) = runs[1].row_of.iter().find(|(other, _)| other == q) else { continue };
            let cells = d.cells(param, *l, *q).zip(d.cells(other, *r, *q));
            for (c, (x, y)) in cells.enumerate() {
                if let Some(how) = differ(&runs[0].buffers[i], x, &runs[1].buffers[j], y) {
                    let name = &param.name;
                    return Ok(Outcome::Different(format!(
                        "position {q} is row {l} of one run and row {r} of the other; column {c} of `{name}` differs: {how}"
                    )));
                }
            }
        }
    }
    Ok(Outcome::Same)
}

/// In words: a parameter changed that the kernel may not write, or a row of an output that the op's other launch writes.
fn stray_write(run: &Run, d: &Dims, before: &[Buffer]) -> Option<String> {
    for (i, p) in run.reading.parameters.iter().enumerate() {
        if !d.writes(p.what) && !before[i].same_bits(&run.buffers[i]) {
            return Some(format!("`{}` changed", p.name));
        }
        if !matches!(p.what, What::Out(_)) {
            continue;
        }
        for (row, q) in run.positions.iter().enumerate().filter(|(_, q)| !d.names(p.what, **q)) {
            let changed = |at: &usize| before[i].bits(*at) != run.buffers[i].bits(*at);
            if d.cells(p, row, *q).any(|at| changed(&at)) {
                return Some(format!("row {row} of `{}`, at position {q}, is the other launch's, and changed", p.name));
            }
        }
    }
    None
}

impl Dims {
    fn writes(&self, what: What) -> bool {
        matches!(what, What::Out(_))
            || (matches!(what, What::Scratch(_)) && matches!(self.kind, Kind::Part | Kind::Folded))
    }

    /// Whether the contract names a row's cells of a parameter, by the row's position. The first of two launches writes the
    /// output rows before the first split's end, and partial results of the other rows; the second writes these rows.
    fn names(&self, what: What, position: usize) -> bool {
        let Some((size, _)) = self.splits else { return true };
        let early = position < size;
        (self.kind == Kind::Folded && matches!(what, What::Out(_)))
            || early == (self.kind == Kind::Part && matches!(what, What::Out(_)))
    }

    /// The cells of a row of a buffer; in scratch, those of all splits that a row at `position` sees.
    fn cells(&self, p: &Parameter, row: usize, position: usize) -> impl Iterator<Item = usize> {
        let scratch = matches!(p.what, What::Scratch(_));
        let n = p.inner(if scratch { 2 } else { 1 });
        let (splits, rows) = match self.splits.filter(|_| scratch) {
            Some((size, rows)) => (position / size + 1, rows),
            None => (1, 0),
        };
        (0..splits).flat_map(move |split| (0..n).map(move |c| (split * rows + row) * n + c))
    }
}

/// A batch that holds the chunk of the shared request among others, in random pages.
fn make<'p>(
    (kernel, reading): (&'p Kernel, &'p Reading),
    history: &History,
    chunk: (usize, usize),
    oldest: usize,
    random: &mut Random,
) -> Result<Run<'p>, String> {
    let d = dims(reading)?;
    let mut sequences = vec![Sequence { first: chunk.0, rows: chunk.1, shared: true }];
    let mut room = d.splits.map_or(usize::MAX, |(_, rows)| rows.saturating_sub(chunk.1));
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
            table.push(if i < behind { -1 } else { free.pop().ok_or("a run has too few pages")? });
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
    let mut out = Run { kernel, reading, buffers: vec![], tiles: tiles.len(), length, row_of, positions };
    fill(&mut out, &d, history, (row, pages), (&table, &tiles, &shared_table), oldest, random)?;
    Ok(out)
}

fn fill(
    out: &mut Run,
    d: &Dims,
    history: &History,
    (rows, pages): (usize, usize),
    (table, tiles, shared): (&[i32], &[[i32; 4]], &[i32]),
    oldest: usize,
    random: &mut Random,
) -> Result<(), String> {
    let mut left = memory();
    let mut numbers = |p: &Parameter, extents: &[usize], random: &mut Random| {
        let mut buffer = zeros(p.holds, extents, &mut left)?;
        // The core sees to it that keys and values are finite.
        let of = if matches!(p.what, What::Keys | What::Values) { number } else { any_number };
        (0..buffer.len()).for_each(|at| put(&mut buffer, at, of(random)));
        Ok::<_, String>(buffer)
    };
    for p in &out.reading.parameters {
        let column = |k: usize| Buffer::I32(tiles.iter().map(|t| t[k]).collect());
        let width = p.inner(1);
        let buffer = match p.what {
            What::TileTable => column(0),
            What::TileRow => column(1),
            What::TileRows => column(2),
            What::TilePos => column(3),
            What::Page => Buffer::I32(table.to_vec()),
            What::In(0) if p.extents[0] == Extent::Rows => {
                let mut buffer = numbers(p, &[rows, width], random)?;
                for (p, row) in &out.row_of {
                    (0..width).for_each(|c| put(&mut buffer, row * width + c, history.queries[p * width + c]));
                }
                buffer
            }
            What::Out(_) if p.extents[0] == Extent::Rows => numbers(p, &[rows, width], random)?,
            What::Weight(i) => {
                let Extent::Number(outer) = p.extents[0] else { return Err(format!("rows of `{}`", p.name)) };
                numbers(p, &[outer, width], &mut Random::new(history.parts ^ (i as u64) << 40))?
            }
            What::Scratch(_) if d.kind == Kind::Attend && p.extents[0] == Extent::Splits => numbers(p, &[0], random)?,
            What::Scratch(which) => {
                let (size, rows_max) = d.splits.ok_or("scratch without splits")?;
                if p.extents.get(..2) != Some(&[Extent::Splits, Extent::Number(rows_max)]) {
                    return Err(format!("the extents of `{}`", p.name));
                }
                let mut buffer = numbers(p, &[out.length.div_ceil(size), rows_max, p.inner(2)], random)?;
                // Both runs read the same partial results of a shared position.
                for (position, row) in out.row_of.iter().filter(|_| d.kind == Kind::Combine) {
                    let mut shared = Random::new(history.parts ^ (*position * 8 + which) as u64);
                    for at in d.cells(p, *row, *position) {
                        put(&mut buffer, at, any_number(&mut shared));
                    }
                }
                buffer
            }
            What::Keys | What::Values => {
                let mut buffer = numbers(p, &[pages, d.kv, d.page, d.d], random)?;
                let source = if p.what == What::Keys { &history.keys } else { &history.values };
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
            what => return Err(format!("a {what:?} in a launch over query tiles")),
        };
        out.buffers.push(buffer);
    }
    Ok(())
}
