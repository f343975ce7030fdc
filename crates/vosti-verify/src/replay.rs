//! Two concrete runs that a contract relates, on the plain interpreter.
//!
//! Batches are random. The chosen rows agree; everything that the contract leaves open differs: other rows, batch sizes,
//! pages, stale cache, earlier contents of outputs, program order, undefined lanes. A difference in the chosen cells is a
//! counterexample, whatever the verifier says: [`crate::reading`] reads the contract here, and shares nothing with the
//! verifier's reader. A run has bounds of memory and of time. A run that would exceed them is not started or is stopped;
//! that is an outcome of its own and never counts as agreement.

use crate::problem::Problem;
use crate::reading::{self, Extent, Free, Kind, Parameter, Reading, What, Work};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use std::collections::BTreeMap;
use vosti_contract::{FOLDED, HEIGHT, USE};
use vosti_tile::interp::{Buffer, Fault, Options, Order, Undefined, run};
use vosti_tile::{Kernel, Literal, OpKind, Scalar};

/// The outcome of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The chosen cells have the same bits.
    Same,
    /// The chosen cells differ, a run faulted, or it wrote a cell that the contract does not name: in words.
    Different(String),
    /// No run was completed, because it would take too long or this reader does not understand the contract.
    NotRun(String),
}

impl Outcome {
    /// The difference, if there is one.
    pub fn different(self) -> Option<String> {
        match self {
            Outcome::Different(how) => Some(how),
            Outcome::Same | Outcome::NotRun(_) => None,
        }
    }
}

/// The most elements that the buffers of a run have together.
const ELEMENTS: usize = 1 << 20;
/// The most programs that a run has.
const PROGRAMS: usize = 1 << 14;
/// The most lanes that the operations of a run compute together: a second or less.
const LANES: u64 = 1 << 27;

/// Seeded random numbers.
pub struct Random(SplitMix64);

impl Random {
    /// A generator that the seed fixes.
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed))
    }

    /// The next 64 random bits.
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
        let bits = self.draw();
        let x = (bits >> 40) as f32 / (1u64 << 24) as f32 * 4.0 - 2.0;
        match self.below(64) {
            0 if wild => f32::INFINITY,
            1 if wild => f32::NAN,
            2 => 0.0,
            3 => -0.0,
            // Denormal, or so small that products are.
            4 if bits.is_multiple_of(2) => x * 2e-39,
            4 => x * 1e-30,
            5 => x * 64.0,
            _ => x,
        }
    }
    /// Puts a list into random order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for i in (1..list.len()).rev() {
            list.swap(i, self.below(i + 1));
        }
    }
}

/// One run being made: sizes, and buffers by parameter.
struct Side<'p> {
    kernel: &'p Kernel,
    reading: &'p Reading,
    rows: usize,
    packed: usize,
    pages: usize,
    ints: BTreeMap<&'static str, Vec<i32>>,
    buffers: Vec<Buffer>,
}

const ROPE: usize = 128;

pub(crate) fn put(buffer: &mut Buffer, index: usize, x: f32) {
    match buffer {
        Buffer::F32(v) => v[index] = x,
        Buffer::Bf16(v) => v[index] = (x.to_bits() >> 16) as u16,
        Buffer::I8(v) => v[index] = (x * 60.0) as i8,
        Buffer::I32(v) => v[index] = (x * 4.0) as i32,
        _ => {}
    }
}

type Made<T> = Result<T, String>;

/// A buffer of zeros. Its elements are subtracted from `left`, the rest of a run's memory; an error if it does not fit.
pub(crate) fn zeros(elem: Scalar, extents: &[usize], left: &mut usize) -> Made<Buffer> {
    let len = extents.iter().try_fold(1usize, |n, extent| n.checked_mul(*extent));
    let rest = len.and_then(|len| Some((len, left.checked_sub(len)?)));
    let rest = rest.ok_or("its buffers are too large to run".to_string())?;
    *left = rest.1;
    Ok(Buffer::zeros(elem, rest.0))
}

pub(crate) fn memory() -> usize {
    ELEMENTS
}

/// Runs a launch within bounds.
pub(crate) fn launch(kernel: &Kernel, buffers: &mut Vec<Buffer>, grid: [usize; 3], random: &mut Random) -> Outcome {
    let programs = grid.iter().try_fold(1usize, |n, axis| n.checked_mul(*axis));
    if programs.is_none_or(|n| n > PROGRAMS) {
        return Outcome::NotRun(format!("{grid:?} programs are too many to run"));
    }
    let mut widest = 1;
    kernel.walk(&mut |op| {
        let lanes = op.results.iter().map(|v| kernel.ty(*v).lanes()).max().unwrap_or(1);
        let deep = match &op.kind {
            OpKind::Dot { a, .. } => kernel.ty(*a).shape().last().copied().unwrap_or(1),
            _ => 1,
        };
        widest = widest.max(lanes as u64 * deep as u64);
    });
    let options = Options {
        undefined: Undefined::Poison(random.draw()),
        order: Order::Shuffled(random.draw()),
        operations_max: Some((LANES / widest).clamp(40_000, 2_000_000)),
    };
    match run(kernel, buffers, grid, &options) {
        Ok(()) => Outcome::Same,
        Err(error) if matches!(error.reason, Fault::Operations { .. }) => Outcome::NotRun(error.to_string()),
        Err(error) => Outcome::Different(format!("stops: {error}")),
    }
}

impl Side<'_> {
    fn extents(&self, p: &Parameter) -> Made<Vec<usize>> {
        let heads = |name| self.reading.natural(name);
        Ok(match p.what {
            What::RowCount => vec![1],
            What::Token | What::Position | What::Gathered | What::Slot => vec![self.rows],
            What::Keys | What::Values => vec![self.pages, heads("KV_HEADS")?, heads("PAGE")?, self.reading.head()?],
            What::In(_) | What::Out(_) | What::Weight(_) => {
                let extent = |e: &Extent| match e {
                    Extent::Number(n) => Ok(*n),
                    Extent::Rows => Ok(self.rows),
                    Extent::Packed => Ok(self.packed),
                    Extent::Context => Ok(ROPE),
                    Extent::Splits | Extent::Pages => Err(format!("splits or pages of `{}`", p.name)),
                };
                p.extents.iter().map(extent).collect::<Made<_>>()?
            }
            _ => return Err(format!("a {:?} in a launch over rows", p.what)),
        })
    }

    /// Buffers of the right sizes: metadata as set, the rest random; weights from their own seed.
    fn fill(&mut self, random: &mut Random, weights: u64) -> Made<()> {
        let mut left = memory();
        for p in &self.reading.parameters {
            let mut buffer = zeros(p.holds, &self.extents(p)?, &mut left)?;
            let metadata = match p.what {
                What::RowCount => Some(vec![self.rows as i32]),
                what => name(what).and_then(|n| self.ints.get(n).cloned()),
            };
            let cache = matches!(p.what, What::Keys | What::Values);
            let which = if let What::Weight(i) = p.what { i as u64 } else { 0 };
            let mut own = Random::new(weights ^ which << 32);
            for at in 0..buffer.len() {
                match &metadata {
                    Some(list) => buffer.set_bits(at, list[at] as u32 as u64),
                    None if matches!(p.what, What::Weight(_)) => put(&mut buffer, at, own.float(false)),
                    None => put(&mut buffer, at, random.float(!cache)),
                }
            }
            self.buffers.push(buffer);
        }
        Ok(())
    }

    fn run(&mut self, random: &mut Random) -> Outcome {
        // Half of the runs have spare programs.
        let grid = self.reading.rows_of_a_program().and_then(|tile| {
            let rows = self.rows + random.below(2) * random.between(1, 3) * tile;
            self.reading.grid(Work { rows, ..Work::default() })
        });
        match grid {
            Ok(grid) => launch(self.kernel, &mut self.buffers, grid, random),
            Err(why) => Outcome::NotRun(why),
        }
    }
}

fn name(what: What) -> Option<&'static str> {
    Some(match what {
        What::Token => "tokens",
        What::Position => "positions",
        What::Gathered => "row_index",
        What::Slot => "slots",
        _ => return None,
    })
}

/// The values of dimensions and numbers, the same for both runs of a pair.
struct Drawn {
    integers: BTreeMap<String, i64>,
    values: BTreeMap<String, Literal>,
}

/// Values of dimensions: sizes of tiles, sizes next to them, and sizes that no tile divides.
const SIZES: [i64; 20] = [1, 2, 3, 5, 7, 8, 15, 16, 17, 24, 31, 33, 40, 47, 63, 64, 65, 72, 100, 130];

/// A dimension whose range ends here or below gets only the six smallest of [`SIZES`].
const FEW: i64 = 4096;

/// Values of a dimension that chooses a branch; one of two values has the first two.
const FLAG: [i64; 4] = [0, 1, 2, 3];

/// Dimensions are drawn small and ragged, so that tails and the first cells of the next row are reached.
fn drawn(left: &Problem, right: &Problem, random: &mut Random) -> Made<Drawn> {
    let free = reading::free(&left.statement, &left.kernel)?;
    if reading::free(&right.statement, &right.kernel)? != free {
        return Err("two lists of dimensions".into());
    }
    let mut drawn = Drawn { integers: BTreeMap::new(), values: BTreeMap::new() };
    for number in &free {
        let name = number.name().to_string();
        match number {
            Free::Float { .. } => _ = drawn.values.insert(name, Literal::float(random.float(false))),
            Free::Natural { least, most, .. } => {
                // Counts of heads stay small, because the size of heads multiplies them; a flag is 0 as often as 1.
                let sizes = match *most {
                    1 => &FLAG[..2],
                    _ if name == "USE" => &FLAG[..],
                    ..=FEW => &SIZES[..6],
                    _ => &SIZES[..],
                };
                drawn.integers.insert(name, sizes[random.below(sizes.len())].clamp(*least, *most));
            }
        }
    }
    for problem in [left, right] {
        reading::meet(&problem.statement, &free, &mut drawn.integers)?;
    }
    drawn.values.extend(drawn.integers.iter().map(|(name, value)| (name.clone(), Literal::Int(*value))));
    match drawn.values.len() == free.len() {
        true => Ok(drawn),
        false => Err("one name of two dimensions".into()),
    }
}

/// One random pair of related runs.
pub fn replay(left: &Problem, right: &Problem, seed: u64) -> Outcome {
    let mut random = Random::new(seed);
    let made = drawn(left, right, &mut random).and_then(|drawn| {
        let read = |problem: &Problem| -> Made<(Kernel, Reading)> {
            let reading = Reading::of(&problem.statement, &problem.kernel, &drawn.integers)?;
            let kernel = vosti_tile::bind(&problem.kernel, &drawn.values).map_err(|error| error.to_string())?;
            Ok((kernel, reading))
        };
        Ok((read(left)?, read(right)?))
    });
    let ((left, l), (right, r)) = match made {
        Ok(both) => both,
        Err(why) => return Outcome::NotRun(format!("the replay does not understand the contract: {why}")),
    };
    let sides = [(&left, &l), (&right, &r)];
    let outcome = match (l.kind, r.kind) {
        (a, b) if a != b => Err("contracts of two shapes".into()),
        (Kind::Rows | Kind::Store, _) => replay_rows(sides, &mut random),
        (Kind::RecurStore | Kind::RecurRead, _) => crate::replay_recur::replay(sides, &mut random),
        _ => crate::replay_attend::replay(sides, &mut random),
    };
    outcome.unwrap_or_else(Outcome::NotRun)
}

/// One random pair of runs: a launch of `first` that folds its own splits, and a launch of `first` with one of `second` behind it.
pub fn folded(first: &Problem, second: &Problem, seed: u64) -> Outcome {
    let mut random = Random::new(seed);
    let made = drawn(first, first, &mut random).and_then(|mut drawn| {
        let mut read = |problem: &Problem, name: &str, value: i64| -> Made<(Kernel, Reading)> {
            drawn.integers.insert(name.into(), value);
            drawn.values.insert(name.into(), Literal::Int(value));
            let own = |name: &String| problem.numbers.iter().any(|number| number.name == *name);
            let integers = drawn.integers.iter().filter(|(name, _)| own(name)).map(|(name, v)| (name.clone(), *v));
            let values = drawn.values.iter().filter(|(name, _)| own(name)).map(|(name, v)| (name.clone(), *v));
            let reading = Reading::of(&problem.statement, &problem.kernel, &integers.collect())?;
            let kernel = vosti_tile::bind(&problem.kernel, &values.collect()).map_err(|error| error.to_string())?;
            Ok((kernel, reading))
        };
        let (one, two) = (read(first, USE, FOLDED)?, read(first, USE, 0)?);
        // The second launch's tiles have a height of their own.
        let room = read(second, HEIGHT, 1)?.1.natural("BQ")?;
        Ok([one, two, read(second, HEIGHT, random.between(1, room) as i64)?])
    });
    let all = match made {
        Ok(all) => all,
        Err(why) => return Outcome::NotRun(format!("the replay does not understand the contract: {why}")),
    };
    let sides = all.each_ref().map(|(kernel, reading)| (kernel, reading));
    crate::replay_attend::replay_folded(sides, &mut random).unwrap_or_else(Outcome::NotRun)
}

/// Replays each seed and gives the first difference. [`Outcome::Same`] if at least one replay ran and none differed,
/// [`Outcome::NotRun`] if none ran.
pub fn search(left: &Problem, right: &Problem, seeds: std::ops::Range<u64>) -> Outcome {
    let (mut ran, mut why) = (false, String::from("no replay was asked for"));
    for seed in seeds {
        match replay(left, right, seed) {
            Outcome::Different(how) => return Outcome::Different(format!("seed {seed}: {how}")),
            Outcome::Same => ran = true,
            // Others would not run either.
            Outcome::NotRun(reason) => {
                why = reason;
                if !ran {
                    break;
                }
            }
        }
    }
    if ran { Outcome::Same } else { Outcome::NotRun(why) }
}

type Sides<'p> = [(&'p Kernel, &'p Reading); 2];

fn replay_rows(sides: Sides, random: &mut Random) -> Made<Outcome> {
    let weights = random.draw();
    let [left, right] = sides;
    let mut sides = [rows_side(left, random)?, rows_side(right, random)?];
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
        side.fill(random, weights)?;
    }
    for &(l, r) in &pairs {
        share_row(&mut sides, l, r, random)?;
    }
    for (side, word) in sides.iter_mut().zip(["L", "R"]) {
        let before = side.buffers.clone();
        match side.run(random) {
            Outcome::Same => {}
            Outcome::Different(how) => return Ok(Outcome::Different(format!("run {word} {how}"))),
            not_run => return Ok(not_run),
        }
        if let Some(stray) = stray_write(side, &before)? {
            return Ok(Outcome::Different(format!("run {word}: {stray}")));
        }
    }
    compare_rows(&sides, &pairs)
}

fn rows_side<'p>((kernel, reading): (&'p Kernel, &'p Reading), random: &mut Random) -> Made<Side<'p>> {
    let mut side = Side { kernel, reading, rows: 1, packed: 1, pages: 1, ints: BTreeMap::new(), buffers: vec![] };
    let tile = reading.rows_of_a_program()?;
    side.rows = random.between(1, 3 * tile + 2);
    side.packed = side.rows + random.below(9);
    let rows = side.rows;
    let mut list = |n: usize| (0..rows).map(|_| random.below(n) as i32).collect::<Vec<_>>();
    if reading.find(What::Token).is_some() {
        let vocabulary = i32::try_from(reading.natural("V")?).map_err(|error| error.to_string())?;
        side.ints.insert("tokens", list(vocabulary as usize));
    }
    if reading.find(What::Position).is_some() {
        side.ints.insert("positions", list(ROPE));
    }
    let distinct = |random: &mut Random, n: usize| {
        let mut all: Vec<i32> = (0..n as i32).collect();
        random.shuffle(&mut all);
        all.truncate(rows);
        all
    };
    if reading.find(What::Gathered).is_some() {
        side.ints.insert("row_index", distinct(random, side.packed));
    }
    if reading.kind == Kind::Store {
        let page = reading.natural("PAGE")?;
        side.pages = rows.div_ceil(page) + 1 + random.below(3);
        if side.pages.checked_mul(page).is_none_or(|slots| slots > ELEMENTS) {
            return Err("its cache is too large to run".into());
        }
        side.ints.insert("slots", distinct(random, side.pages * page));
    }
    Ok(side)
}

/// Copies the chosen row's inputs from L to R.
fn share_row(sides: &mut [Side; 2], l: usize, r: usize, random: &mut Random) -> Made<()> {
    let source = |side: &Side, row: usize| side.ints.get("row_index").map_or(row, |v| v[row] as usize);
    let (sl, sr) = (source(&sides[0], l), source(&sides[1], r));
    for (i, p) in sides[0].reading.parameters.iter().enumerate() {
        if !matches!(p.what, What::In(_)) {
            continue;
        }
        let j = sides[1].reading.find(p.what).ok_or("another input")?;
        let n = p.inner(1);
        for c in 0..n {
            put(&mut sides[0].buffers[i], sl * n + c, random.float(false));
            let bits = sides[0].buffers[i].bits(sl * n + c);
            sides[1].buffers[j].set_bits(sr * n + c, bits);
        }
    }
    Ok(())
}

/// In words: a cell outside the outputs changed that the contract does not name, or a cache cell that it names is not finite.
fn stray_write(side: &Side, before: &[Buffer]) -> Made<Option<String>> {
    for (i, p) in side.reading.parameters.iter().enumerate() {
        if matches!(p.what, What::Out(_)) {
            continue;
        }
        let cache = matches!(p.what, What::Keys | What::Values) && side.reading.kind == Kind::Store;
        let named: Vec<usize> = if cache {
            (0..side.rows).map(|row| row_cells(side, row)).collect::<Made<Vec<_>>>()?.concat()
        } else {
            vec![]
        };
        let mut own = vec![false; before[i].len()];
        named.iter().for_each(|at| own[*at] = true);
        for (at, own) in own.into_iter().enumerate() {
            if !own && before[i].bits(at) != side.buffers[i].bits(at) {
                return Ok(Some(format!("element {at} of `{}` changed", p.name)));
            }
            if own && !value(&side.buffers[i], at).is_finite() {
                return Ok(Some(format!("element {at} of `{}` is not finite", p.name)));
            }
        }
    }
    Ok(None)
}

fn compare_rows(sides: &[Side; 2], pairs: &[(usize, usize)]) -> Made<Outcome> {
    for &(l, r) in pairs {
        for (i, p) in sides[0].reading.parameters.iter().enumerate() {
            let cells: Vec<(usize, usize)> = match p.what {
                What::Out(_) => {
                    let n = p.inner(1);
                    (0..n).map(|c| (l * n + c, r * n + c)).collect()
                }
                What::Keys | What::Values => {
                    row_cells(&sides[0], l)?.into_iter().zip(row_cells(&sides[1], r)?).collect()
                }
                _ => continue,
            };
            let j = sides[1].reading.find(p.what).ok_or("another output")?;
            for (x, y) in cells {
                if let Some(how) = differ(&sides[0].buffers[i], x, &sides[1].buffers[j], y) {
                    let batches = (sides[0].rows, sides[1].rows);
                    return Ok(Outcome::Different(format!(
                        "row {l} of {} and row {r} of {} have equal inputs, but `{}` differs at {x} and {y}: {how}",
                        batches.0, batches.1, p.name
                    )));
                }
            }
        }
    }
    Ok(Outcome::Same)
}

fn row_cells(side: &Side, row: usize) -> Made<Vec<usize>> {
    let n = |name: &str| side.reading.natural(name);
    let (heads, page, d) = (n("KV_HEADS")?, n("PAGE")?, side.reading.head()?);
    let slot = side.ints.get("slots").ok_or("a cache without slots")?[row] as usize;
    let at = |h: usize, c: usize| ((slot / page * heads + h) * page + slot % page) * d + c;
    Ok((0..heads).flat_map(|h| (0..d).map(move |c| (h, c))).map(|(h, c)| at(h, c)).collect())
}

fn value(buffer: &Buffer, at: usize) -> f32 {
    match buffer.elem() {
        Scalar::Bf16 => f32::from_bits((buffer.bits(at) as u32) << 16),
        _ => f32::from_bits(buffer.bits(at) as u32),
    }
}

/// The difference of two elements in words, or None if their bits are equal. All NaNs count as equal.
pub(crate) fn differ(a: &Buffer, i: usize, b: &Buffer, j: usize) -> Option<String> {
    let (x, y, u, v) = (a.bits(i), b.bits(j), value(a, i), value(b, j));
    if a.elem() == b.elem() && (x == y || (u.is_nan() && v.is_nan())) {
        return None;
    }
    Some(format!("{u:e} ({x:#x}) and {v:e} ({y:#x})"))
}
