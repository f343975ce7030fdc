//! The work of each launch of a step: its blocks, and the reads, arithmetic and waits of one block.
//!
//! It is counted from the program, the contracts' grids and the tiles, as the device launches them. Measurements never enter.
//! Read next: [`super::time`].

use super::Step;
use super::card::Card;
use std::collections::BTreeMap;
use std::ops::Range;
use vosti_contract::{Const, Extent, Grid, USE};
use vosti_core::{Program, RowSet};
use vosti_cubin::Cubin;
use vosti_cuda::device::RECORDED_ROWS;
use vosti_kernels::{KernelError, Launch, Spec};
use vosti_model::ModelPlan;
use vosti_wiring::evenly;

/// One launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// Which specialisation of which kernel it is.
    pub spec: Spec,
    /// The rows that it is about: of each request their number, and the first one's position.
    pub requests: Vec<(usize, usize)>,
    /// Programs of the grid.
    pub blocks: u64,
    /// Bytes from memory, of all blocks together; bytes that several blocks read count once.
    pub memory_bytes: f64,
    /// Bytes that one block reads from the second-level cache.
    pub block_bytes: f64,
    /// Share of a block's outstanding loads that come from memory; rows of a matrix product come from the cache.
    pub of_memory: f64,
    /// Floating-point operations of one block, of its whole tile: rows without a request count too.
    pub block_flops: f64,
    /// Loads of a block that wait for one another.
    pub loads: f64,
    /// Pages of keys that one block computes with, one after the other.
    pub pages: f64,
    /// Further loads that a loop makes: they wait for one another if the loop loads nothing ahead.
    pub turns: f64,
}

impl Work {
    /// What tells launches apart whose counts are the same.
    pub fn key(&self) -> super::counted::Key {
        (self.spec.to_string(), self.requests.clone())
    }
}

fn number(spec: &Spec, name: &str) -> Option<f64> {
    match spec.constants.get(name)? {
        Const::Int(value) => Some(*value as f64),
        Const::Float(_) => None,
    }
}

/// The launches of a step, in order, as a card makes them of compiled kernels.
pub fn of(
    plan: &ModelPlan,
    cubins: &BTreeMap<String, Cubin>,
    card: &Card,
    step: Step,
) -> Result<Vec<Work>, KernelError> {
    let mut all = vec![];
    let program = if step.draws { plan.whole() } else { plan.program.clone() };
    for op in &program.ops {
        let used = op.uses();
        let binding = &plan.bindings[used.binding as usize];
        let room = binding.scratch.iter().map(|scratch| scratch.rows.max(1)).min().unwrap_or(usize::MAX);
        if let Some(read) = used.cache_read {
            for first in (0..step.rows()).step_by(room) {
                let rows = first..step.rows().min(first.saturating_add(room));
                let folds = binding.folded.first().is_some_and(|spec| folds(spec, (cubins, card), step, rows.clone()));
                let runs: Vec<(&Spec, &[Spec])> = match binding.folded.split_first() {
                    Some(folded) if folds => vec![folded],
                    _ => binding.launches.iter().map(|launch| (&launch.spec, &launch.higher[..])).collect(),
                };
                for (lowest, higher) in runs {
                    let extent = |spec: &Spec| Extent {
                        rows: rows.len(),
                        tiles: tiles(spec, step, rows.clone()).1.count(),
                        length: step.depth + step.tokens,
                    };
                    let (spec, _) = chosen(lowest, higher, extent, card.multiprocessors)?;
                    all.push(attention(spec, step, rows.clone(), read.window));
                }
            }
            continue;
        }
        for launch in &binding.launches {
            let requests = if used.rows == RowSet::All { step.requests(0..step.rows()) } else { step.last() };
            // An embedding reads rows as wide as those that it writes, and a store such as it reads: its launch
            // writes the queries too.
            let read = if used.tokens { &used.outputs } else { &used.inputs };
            let written = if used.cache_written.is_some() { &used.inputs } else { &used.outputs };
            let (buffers, places) = ([&read[..], written].concat(), card.multiprocessors);
            all.push(rowwise((plan, &program), launch, requests, &buffers, places)?);
        }
    }
    // The kernels of lists of largest logits run only in steps that ask for lists; a greedy step does not.
    all.retain(|work| !work.spec.kernel.starts_with("topk_") && work.blocks > 0);
    Ok(all)
}

/// The height that a device runs (`vosti_cuda::device`) of several, and its programs.
fn chosen<'s>(
    lowest: &'s Spec,
    higher: &'s [Spec],
    extent: impl Fn(&Spec) -> Extent,
    multiprocessors: u32,
) -> Result<(&'s Spec, [usize; 3]), KernelError> {
    let mut least = (f64::INFINITY, lowest, [0; 3]);
    for spec in std::iter::once(lowest).chain(higher) {
        let extent = extent(spec);
        let programs = Grid::written(vosti_kernels::contract(&spec.kernel)?, &spec.constants)?.at(extent)?;
        let cost = vosti_kernels::cost(spec, programs, extent.rows, multiprocessors);
        if cost < least.0 {
            least = (cost, spec, programs);
        }
    }
    Ok((least.1, least.2))
}

fn rowwise(
    (plan, program): (&ModelPlan, &Program),
    launch: &Launch,
    requests: Vec<(usize, usize)>,
    buffers: &[u32],
    multiprocessors: u32,
) -> Result<Work, KernelError> {
    let rows = requests.iter().map(|(many, _)| many).sum();
    let (spec, grid) = chosen(&launch.spec, &launch.higher, |_| Extent { rows, tiles: 0, length: 0 }, multiprocessors)?;
    let blocks = grid.iter().product::<usize>() as f64;
    let matrices: f64 = launch.weights.values().filter_map(|name| matrix(plan, name)).sum();
    let moved: f64 = buffers.iter().map(|buffer| row_bytes(program, *buffer)).sum::<f64>() * rows as f64;
    let work = Work {
        spec: spec.clone(),
        requests,
        blocks: blocks as u64,
        memory_bytes: moved,
        block_bytes: moved / blocks.max(1.0),
        of_memory: 1.0,
        block_flops: 0.0,
        loads: 2.0,
        pages: 0.0,
        turns: 0.0,
    };
    let (Some(bk), Some(bm), Some(k)) = (number(spec, "BK"), number(spec, "BM"), number(spec, "K")) else {
        // The kernel reads a row twice, a tile's columns at a time; for a row of a table it reads the token first.
        let trips = ["H", "V"].iter().find_map(|n| Some((number(spec, n)? / number(spec, &format!("B{n}"))?).ceil()));
        return Ok(Work { loads: 2.0 * trips.unwrap_or(1.0), ..work });
    };
    // The third axis is of experts, and one that no row chose is not read: a mean block has its share of what the others do.
    let columns = matrices / k / (grid[1] * grid[2]) as f64;
    let chosen = number(spec, "TOPK").map_or(1.0, |many| (rows as f64 * many / grid[2] as f64).min(1.0));
    Ok(Work {
        memory_bytes: 2.0 * matrices * chosen + moved,
        // Rows without a request are not loaded.
        block_bytes: 2.0 * k.next_multiple(bk) * (columns + rows as f64 / grid[0] as f64) * chosen,
        of_memory: columns / (columns + bm),
        block_flops: 2.0 * k.next_multiple(bk) * columns * bm * chosen,
        loads: 1.0,
        ..work
    })
}

trait Multiple {
    fn next_multiple(self, of: f64) -> f64;
}

impl Multiple for f64 {
    fn next_multiple(self, of: f64) -> f64 {
        (self / of).ceil() * of
    }
}

/// Elements of a weight that is a matrix.
fn matrix(plan: &ModelPlan, name: &str) -> Option<f64> {
    Some(plan.weights.get(name)?.matrix_elements()? as f64)
}

fn row_bytes(program: &Program, buffer: u32) -> f64 {
    let declared = &program.buffers[buffer as usize];
    // BF16, and logits in FP32. Other FP32 buffers are small and count as BF16.
    f64::from(declared.width) * if buffer == program.logits { 4.0 } else { 2.0 }
}

/// The rows of a query tile of a launch of attention, and the positions at which its tiles over some of the step's rows end.
fn tiles(spec: &Spec, step: Step, rows: Range<usize>) -> (usize, impl Iterator<Item = usize>) {
    let per_sequence = step.rows() / step.sequences.max(1);
    let height = (number(spec, "HEIGHT").unwrap_or(1.0) as usize).min(per_sequence).max(1);
    (height, rows.step_by(height).map(move |first| step.depth + first % per_sequence + height))
}

/// Whether a device runs the launch that folds its own splits over these rows (`vosti_cuda::device`): not in a recording.
fn folds(spec: &Spec, (cubins, card): (&BTreeMap<String, Cubin>, &Card), step: Step, rows: Range<usize>) -> bool {
    if step.tokens == 1 && step.rows() <= RECORDED_ROWS[RECORDED_ROWS.len() - 1] {
        return false;
    }
    let blocks = cubins.get(&spec.to_string()).map_or(1, |cubin| cubin.record.facts.blocks.max(1));
    let heads = number(spec, "KV_HEADS").unwrap_or(1.0) as usize;
    let pages = tiles(spec, step, rows).1.map(|end| end.div_ceil(vosti_core::PAGE));
    evenly(pages, heads, (card.multiprocessors * blocks) as usize)
}

/// The work of a launch of attention over some of the step's rows. Programs of splits that no row reaches are not counted.
fn attention(spec: &Spec, step: Step, rows: Range<usize>, window: Option<u32>) -> Work {
    let requests = step.requests(rows.clone());
    let of = |name: &str| number(spec, name).unwrap_or(1.0);
    let (d, height) = (of("D"), of("HEIGHT"));
    let heads = of("KV_HEADS");
    let combines = spec.kernel == "attend_combine";
    let per_sequence = step.rows() / step.sequences.max(1);
    // With a window, and where a launch folds its own splits, a program goes through all of its keys.
    let whole = number(spec, USE).is_some_and(|chosen| chosen > 0.0);
    let split = number(spec, "SPLIT").filter(|_| !whole).unwrap_or(f64::INFINITY);
    let page = vosti_core::PAGE as f64;
    let (mut blocks, mut pages, mut seen, mut splits) = (0.0, 0.0f64, 0.0, 1.0f64);
    let (tile_rows, ends) = tiles(spec, step, rows.clone());
    for end in ends.map(|end| end as f64) {
        let keys = end.min(window.map_or(f64::INFINITY, |w| f64::from(w) + tile_rows as f64));
        let parts = if split.is_finite() { (end / split).ceil() } else { 1.0 };
        blocks += parts;
        pages = pages.max((keys.min(split) / page).ceil());
        splits = splits.max(parts);
        seen += keys;
    }
    if combines {
        let tiles = rows.len().div_ceil(tile_rows) as f64;
        let busy = if splits > 1.0 { tiles * heads } else { 0.0 };
        let group = of("GROUP") * tile_rows as f64;
        let bytes = splits * d * 4.0 * group;
        let total = bytes * busy;
        // Splits are folded in order, from the first on. A tile has room for rows without a request, and for more heads and columns.
        let room = height * of("GP") * (d.max(of("DP")) + 2.0);
        return Work {
            spec: spec.clone(),
            requests,
            blocks: busy as u64,
            memory_bytes: total,
            block_bytes: bytes,
            of_memory: group * d / room,
            block_flops: 0.0,
            loads: 2.0,
            pages: 0.0,
            turns: splits - 1.0,
        };
    }
    let lanes = height * of("GP");
    let reaches = (step.depth + per_sequence) as f64;
    let once = reaches.min(window.map_or(f64::INFINITY, |w| f64::from(w) + per_sequence as f64));
    let sequences = (rows.len() as f64 / per_sequence as f64).max(1.0).min(step.sequences as f64);
    let mean = seen / blocks.max(1.0);
    Work {
        spec: spec.clone(),
        requests,
        blocks: (blocks * heads) as u64,
        memory_bytes: 4.0 * d * heads * once * sequences,
        block_bytes: 4.0 * d * mean,
        of_memory: 1.0,
        block_flops: 4.0 * lanes * d * mean,
        loads: 2.0,
        pages,
        turns: 0.0,
    }
}
