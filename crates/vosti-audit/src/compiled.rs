//! Two launches as Triton compiles them, run on random batches that share rows.
//!
//! A proof is of the TTIR and assumes of a compiler that a row's sum has one order in launches of different tiles and warps.
//! The PTX shows whether that is so: this module runs it on a processor (`vosti_ptx`), and two runs whose outputs differ for a
//! row with equal inputs refute the claim. It also finds wrong kernels that the verifier does not read. Equal runs prove
//! nothing, and a fault is no difference: bounds are the verifier's. Blocks that store one place are no fault here: they run in the
//! order that a seed draws. Read next: `render.py`, which compiles.

use crate::contract::{Claim, Constants, Elem, in_turn, of_batch, plain};
use crate::render::Code;
use crate::report::Difference;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use vosti_contract::{Number, NumberKind, Param, Role, expr};
use vosti_ptx::{Buffers, Kernel, Launch};
use vosti_verify::replay::Random;

/// A launch.
pub(crate) struct Side<'a> {
    pub claim: &'a Claim,
    pub constants: &'a Constants,
    pub code: &'a Code,
}

/// What the runs gave.
pub(crate) enum Outcome {
    /// So many pairs, at least one, gave equal bits.
    Same(u64),
    /// Two runs differ: in words, and the first elements that do.
    Different(String, Vec<Difference>),
    /// No pair was completed, and why.
    NotRun(String),
}

/// Pairs of runs of one launch with itself.
const PAIRS: u64 = 24;
/// Pairs of runs of two launches: where both round to BF16, few sums in another order show.
const PAIRS_OF_TWO: u64 = 96;
/// Time for one verdict: no pair begins later.
const TIME: Duration = Duration::from_secs(20);
/// The most bytes of a run's buffers.
const BYTES: usize = 1 << 22;
/// The most blocks of a run.
const BLOCKS: u64 = 1 << 10;
/// The most instructions of one block's warps.
const STEPS: u64 = 1 << 21;
/// Rows of a batch.
const ROWS: usize = 9;
/// The most elements that are kept of two runs that differ.
const KEPT: usize = 64;
/// Values of dimensions; the range and the conditions of the contract cut them.
const SIZES: [i64; 10] = [1, 3, 16, 33, 64, 100, 128, 256, 500, 1024];
/// Draws of dimensions before the conditions count as too narrow.
const DRAWS: usize = 64;
/// Pointers to scratch that Triton's backend adds after a kernel's own parameters.
const SCRATCH: usize = 2;

type Made<T> = Result<T, String>;

/// Runs pairs of batches until two differ or the time is up. The two sides may be one launch.
pub(crate) fn search(left: &Side, right: &Side) -> Outcome {
    let kernels = [left, right].map(|side| Kernel::read(&side.code.ptx));
    let kernels = match kernels {
        [Ok(left), Ok(right)] => [left, right],
        [Err(error), _] | [_, Err(error)] => return Outcome::NotRun(error.to_string()),
    };
    let (start, mut ran, mut why) = (Instant::now(), 0, "its time was up".to_string());
    let pairs = if std::ptr::eq(left.code, right.code) { PAIRS } else { PAIRS_OF_TWO };
    for seed in 0..pairs {
        if start.elapsed() > TIME {
            break;
        }
        match pair([left, right], &kernels, seed) {
            Ok(None) => ran += 1,
            Ok(Some((how, all))) => return Outcome::Different(format!("seed {seed}, compiled for sm_90: {how}"), all),
            // Others would not run either.
            Err(reason) if ran == 0 && seed > 2 => return Outcome::NotRun(reason),
            Err(reason) => why = reason,
        }
    }
    if ran == 0 { Outcome::NotRun(why) } else { Outcome::Same(ran) }
}

/// One run: its launch and its memory.
struct Run {
    rows: usize,
    grid: [u32; 3],
    memory: Buffers,
    /// Addresses and numbers, in the order of the parameters.
    values: Vec<u64>,
    outputs: Vec<Output>,
}

/// A buffer with a row of output for each row.
struct Output {
    role: Role,
    name: String,
    /// Its place among the buffers.
    at: usize,
    /// Elements of a row.
    inner: usize,
    elem: Elem,
}

/// Values of dimensions and of floats, by name.
struct Drawn {
    integers: BTreeMap<String, i64>,
    floats: BTreeMap<String, f32>,
}

/// Inputs of the rows that two batches share, by role and row.
type Shared = BTreeMap<(usize, usize), Vec<u8>>;

fn pair(sides: [&Side; 2], kernels: &[Kernel; 2], seed: u64) -> Made<Option<(String, Vec<Difference>)>> {
    let mut random = Random::new(seed);
    let drawn = drawn(sides, &mut random)?;
    let rows = [random.between(1, ROWS), random.between(1, ROWS)];
    let places = rows.map(|rows| {
        let mut list: Vec<usize> = (0..rows).collect();
        random.shuffle(&mut list);
        list
    });
    let pairs: Vec<(usize, usize)> = places[0].iter().copied().zip(places[1].iter().copied()).collect();
    let weights = random.draw();
    let mut shared = Shared::new();
    let mut runs = vec![];
    for (which, side) in sides.into_iter().enumerate() {
        // The place of a row among those that are shared.
        let own = |row: usize| places[which].iter().position(|at| *at == row).filter(|at| *at < pairs.len());
        let mut contents = Contents { own: &own, shared: &mut shared, weights, random: &mut random };
        runs.push(made(side, &drawn, rows[which], &mut contents)?);
    }
    for ((run, side), kernel) in runs.iter_mut().zip(sides).zip(kernels) {
        let mut params = run.values.clone();
        params.resize(params.len() + SCRATCH, 0);
        let launch = Launch {
            grid: run.grid,
            threads: side.code.threads,
            shared: side.code.shared,
            params: &params,
            maps: &[],
            seed: Some(random.draw()),
            steps_max: STEPS,
        };
        kernel.run(&launch, &mut run.memory).map_err(|error| error.to_string())?;
    }
    Ok(pairs.iter().find_map(|(l, r)| differ(&runs[0], *l, &runs[1], *r)))
}

/// Values of names in a contract.
pub(crate) fn integer<'a>(
    constants: &'a Constants,
    sizes: &'a BTreeMap<String, i64>,
    rows: usize,
) -> impl Fn(&str) -> Option<i64> + 'a {
    move |name| match name {
        "rows" => i64::try_from(rows).ok(),
        name => sizes.get(name).copied().or_else(|| constants.get(name)?.as_integer()),
    }
}

/// The programs that a launch has.
pub(crate) fn grid(claim: &Claim, lookup: &dyn Fn(&str) -> Option<i64>, random: &mut Random) -> Made<[u32; 3]> {
    let value = |text: &str| expr::eval(text.trim(), lookup).map_err(|error| error.to_string());
    let mut grid = [1; 3];
    for (axis, text) in grid.iter_mut().zip(&claim.written.grid) {
        let (all, turn) = in_turn(text);
        let all = u32::try_from(value(all)?).map_err(|error| error.to_string())?;
        *axis = match turn {
            None => all,
            // Any number of programs.
            Some("") => random.between(1, all as usize + 1) as u32,
            Some(by) => all.min(u32::try_from(value(by)?).map_err(|error| error.to_string())?),
        };
    }
    Ok(grid)
}

/// Values of dimensions under which the conditions of both sides hold.
fn drawn(sides: [&Side; 2], random: &mut Random) -> Made<Drawn> {
    let written = &sides[0].claim.written;
    let mut drawn = Drawn { integers: BTreeMap::new(), floats: BTreeMap::new() };
    let mut ranges = vec![];
    for (name, role) in &written.params {
        match Number::parse(name, role).transpose()?.map(|number| number.kind) {
            Some(NumberKind::Float) => _ = drawn.floats.insert(name.clone(), float(random)),
            Some(NumberKind::Dimension { lo, hi }) => ranges.push((name.clone(), lo, hi)),
            None => {}
        }
    }
    for _ in 0..DRAWS {
        for (name, lo, hi) in &ranges {
            // Large ones more often: a long sum shows its order.
            let at = random.below(SIZES.len()).max(random.below(SIZES.len()));
            drawn.integers.insert(name.clone(), SIZES[at].clamp(*lo, *hi));
        }
        if sides.iter().all(|side| holds(side.claim, &integer(side.constants, &drawn.integers, 1))) {
            return Ok(drawn);
        }
    }
    Err("no dimensions were found under which the contract's conditions hold".into())
}

/// Whether the conditions of a contract hold.
pub(crate) fn holds(claim: &Claim, lookup: &dyn Fn(&str) -> Option<i64>) -> bool {
    claim.written.conditions.iter().all(|text| {
        let value = |text: &str| expr::eval(text.trim(), lookup).ok();
        let sides = text.split_once("<=").map(|(left, right)| (value(left), value(right)));
        matches!(sides, Some((Some(left), Some(right))) if left <= right)
    })
}

/// What the rows of a batch hold.
struct Contents<'a> {
    /// The place of a row among those that the two batches share.
    own: &'a dyn Fn(usize) -> Option<usize>,
    shared: &'a mut Shared,
    /// The seed of weights, which both batches have.
    weights: u64,
    random: &'a mut Random,
}

impl Contents<'_> {
    /// A buffer of `outer` rows of `inner` elements; None for a role that is not known here.
    fn of(&mut self, role: Role, outer: usize, inner: usize, elem: Elem) -> Option<Vec<u8>> {
        let fresh = |random: &mut Random, many: usize| {
            let mut bytes = vec![];
            (0..many).for_each(|_| put(&mut bytes, elem, float(random)));
            bytes
        };
        Some(match role {
            Role::Weight(index) => fresh(&mut Random::new(self.weights ^ (index as u64) << 32), outer * inner),
            Role::Out(_) => fresh(self.random, outer * inner),
            Role::In(index) => {
                let row = |row| match (self.own)(row) {
                    None => fresh(self.random, inner),
                    Some(at) => self.shared.entry((index, at)).or_insert_with(|| fresh(self.random, inner)).clone(),
                };
                (0..outer).flat_map(row).collect()
            }
            _ => return None,
        })
    }
}

fn made(side: &Side, drawn: &Drawn, rows: usize, contents: &mut Contents) -> Made<Run> {
    let written = &side.claim.written;
    let lookup = integer(side.constants, &drawn.integers, rows);
    let value = |text: &str| expr::eval(text.trim(), &lookup).map_err(|error| error.to_string());
    let grid = grid(side.claim, &lookup, contents.random)?;
    if grid.iter().map(|n| u64::from(*n)).product::<u64>() > BLOCKS {
        return Err("its blocks are too many to run".into());
    }
    let mut run = Run { rows, grid, memory: Buffers::one_by_one(), values: vec![], outputs: vec![] };
    let (mut left, mut buffers) = (BYTES, 0);
    for (name, _) in &side.code.parameters {
        let role = written.params.get(name).ok_or(format!("`{name}` has no role"))?.trim();
        let number = match (role, role.strip_prefix('=')) {
            ("rows", _) => Some(rows as u64),
            (_, Some(text)) => Some(small(value(text)?)?),
            _ => match (drawn.integers.get(name), drawn.floats.get(name)) {
                (Some(n), _) => Some(small(*n)?),
                (_, x) => x.map(|x| u64::from(x.to_bits())),
            },
        };
        if let Some(number) = number {
            run.values.push(number);
            continue;
        }
        let param = Param::parse(name, &plain(role)).ok_or(format!("`{role}` is no role"))?;
        let elem = Elem::of(name, role).ok_or(format!("`{role}` is no role"))?;
        let extents = written.shapes.get(name).map_or(&[][..], Vec::as_slice);
        let extents = extents.iter().map(|text| value(text)).collect::<Made<Vec<_>>>()?;
        let product = |extents: &[i64]| extents.iter().try_fold(1i64, |n, extent| n.checked_mul(*extent));
        let (outer, inner) = extents.split_at(extents.len().min(1));
        let lengths = [product(outer), product(inner)].map(|n| n.and_then(|n| usize::try_from(n).ok()));
        let [Some(outer), Some(inner)] = lengths else { return Err("its buffers are too large to run".into()) };
        let size = outer.checked_mul(inner).and_then(|n| n.checked_mul(elem.bytes()));
        left = size.and_then(|size| left.checked_sub(size)).ok_or("its buffers are too large to run")?;
        let bytes = match param.role {
            Role::Rows => (rows as i32).to_le_bytes().to_vec(),
            _ if of_batch(role) => (0..outer * inner).fold(vec![], |mut bytes, _| {
                put(&mut bytes, elem, float(contents.random));
                bytes
            }),
            role => contents.of(role, outer, inner, elem).ok_or(format!("no run has the role `{role:?}`"))?,
        };
        if matches!(param.role, Role::Out(_)) {
            run.outputs.push(Output { role: param.role, name: name.clone(), at: buffers, inner, elem });
        }
        run.values.push(run.memory.add(name, bytes));
        buffers += 1;
    }
    Ok(run)
}

fn small(n: i64) -> Made<u64> {
    i32::try_from(n).map(|n| u64::from(n as u32)).map_err(|_| format!("{n} is no i32"))
}

fn float(random: &mut Random) -> f32 {
    let x = (random.draw() >> 40) as f32 / (1u64 << 24) as f32 * 4.0 - 2.0;
    match random.below(32) {
        0 => x * 32.0,
        1 => x * 1e-3,
        _ => x,
    }
}

fn put(bytes: &mut Vec<u8>, elem: Elem, x: f32) {
    bytes.extend(&elem.bits(x).to_le_bytes()[..elem.bytes()]);
}

/// The first elements of two rows' outputs that differ, and the first one in words.
fn differ(left: &Run, l: usize, right: &Run, r: usize) -> Option<(String, Vec<Difference>)> {
    let mut all = vec![];
    for output in &left.outputs {
        let Output { role, name, inner, elem, .. } = output;
        let other = right.outputs.iter().find(|other| other.role == *role && other.inner == *inner)?;
        for i in 0..*inner {
            let [x, y] = [(left, output, l), (right, other, r)].map(|(run, output, row)| {
                let (from, size) = ((row * inner + i) * elem.bytes(), elem.bytes());
                let mut bits = [0; 4];
                bits[..size].copy_from_slice(&run.memory.bytes(output.at)[from..from + size]);
                u32::from_le_bytes(bits)
            });
            let [u, v] = [x, y].map(|bits| elem.value(bits));
            if x != y && !(u.is_nan() && v.is_nan()) && all.len() < KEPT {
                all.push(Difference {
                    buffer: name.clone(),
                    rows: [l, r],
                    element: i.to_string(),
                    values: [u, v].map(|value| format!("{value:e}")),
                    bits: [x, y].map(|bits| format!("{bits:#x}")),
                });
            }
        }
    }
    let Difference { buffer, element, values: [u, v], bits: [x, y], .. } = all.first()?;
    let how = format!(
        "row {l} of {} and row {r} of {} have equal inputs, but `{buffer}` differs at element {element} of the row: {u} ({x}) and {v} ({y})",
        left.rows, right.rows
    );
    Some((how, all))
}
