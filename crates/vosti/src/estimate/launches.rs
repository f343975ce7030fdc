//! The work of each launch of a step: its blocks, and the reads, arithmetic and waits of one block.
//!
//! It is counted from the program, the contracts' grids and the tiles, as the device launches them. Measurements never enter.
//! Read next: [`super::time`].

use super::Step;
use vosti_contract::{Const, Extent, Grid};
use vosti_core::{Program, RowSet};
use vosti_kernels::{KernelError, Launch, Spec};
use vosti_model::ModelPlan;

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

/// The launches of a step on a card with so many multiprocessors, in order.
pub fn of(plan: &ModelPlan, step: Step, multiprocessors: u32) -> Result<Vec<Work>, KernelError> {
    let mut all = vec![];
    for op in &plan.program.ops {
        let used = op.uses();
        let binding = &plan.bindings[used.binding as usize];
        let room = binding.scratch.iter().map(|scratch| scratch.rows.max(1)).min().unwrap_or(usize::MAX);
        for launch in &binding.launches {
            if let Some(read) = used.cache_read {
                let ends = |first: usize| step.rows().min(first.saturating_add(room));
                let parts = (0..step.rows()).step_by(room);
                all.extend(parts.map(|first| attention(launch, step, first..ends(first), read.window)));
                continue;
            }
            let requests = if used.rows == RowSet::All { step.requests(0..step.rows()) } else { step.last() };
            // An embedding reads rows as wide as those that it writes, and a store writes such as it reads.
            let read = if used.tokens { &used.outputs } else { &used.inputs };
            let written = if used.cache_written.is_some() { &used.inputs } else { &used.outputs };
            all.push(rowwise(plan, launch, requests, &[&read[..], written].concat(), multiprocessors)?);
        }
    }
    // The kernels of lists of largest logits run only in steps that ask for lists; a greedy step does not.
    all.retain(|work| !work.spec.kernel.starts_with("topk_") && work.blocks > 0);
    Ok(all)
}

/// The specialisation of a launch that a device runs (`vosti_cuda::device`), and its programs.
fn chosen(launch: &Launch, extent: Extent, multiprocessors: u32) -> Result<(&Spec, [usize; 3]), KernelError> {
    let mut least = (f64::INFINITY, &launch.spec, [0; 3]);
    for spec in std::iter::once(&launch.spec).chain(&launch.higher) {
        let programs = Grid::written(vosti_kernels::contract(&spec.kernel)?, &spec.constants)?.at(extent)?;
        let cost = vosti_kernels::cost(spec, programs, extent.rows, multiprocessors);
        if cost < least.0 {
            least = (cost, spec, programs);
        }
    }
    Ok((least.1, least.2))
}

fn rowwise(
    plan: &ModelPlan,
    launch: &Launch,
    requests: Vec<(usize, usize)>,
    buffers: &[u32],
    multiprocessors: u32,
) -> Result<Work, KernelError> {
    let rows = requests.iter().map(|(many, _)| many).sum();
    let (spec, grid) = chosen(launch, Extent { rows, tiles: 0, length: 0 }, multiprocessors)?;
    let blocks = grid.iter().product::<usize>() as f64;
    let matrices: f64 = launch.weights.values().filter_map(|name| matrix(plan, name)).sum();
    let moved: f64 = buffers.iter().map(|buffer| row_bytes(&plan.program, *buffer)).sum::<f64>() * rows as f64;
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

/// The work of a launch of attention over some of the step's rows. Programs of splits that no row reaches are not counted.
fn attention(launch: &Launch, step: Step, rows: std::ops::Range<usize>, window: Option<u32>) -> Work {
    let spec = &launch.spec;
    let requests = step.requests(rows.clone());
    let of = |name: &str| number(spec, name).unwrap_or(1.0);
    let (d, height) = (of("D"), of("HEIGHT"));
    let heads = number(spec, "KV_HEADS").unwrap_or(1.0);
    let combines = spec.kernel == "attend_combine";
    let per_sequence = step.rows() / step.sequences.max(1);
    let split = number(spec, "SPLIT").filter(|_| window.is_none()).unwrap_or(f64::INFINITY);
    let page = vosti_core::PAGE as f64;
    let (mut blocks, mut pages, mut seen, mut splits) = (0.0, 0.0f64, 0.0, 1.0f64);
    let tile_rows = (height as usize).min(per_sequence).max(1);
    for first in rows.clone().step_by(tile_rows) {
        let end = (step.depth + first % per_sequence + tile_rows) as f64;
        let keys = end.min(window.map_or(f64::INFINITY, |w| f64::from(w) + tile_rows as f64));
        let parts = if split.is_finite() { (end / split).ceil() } else { 1.0 };
        blocks += parts;
        pages = pages.max((keys.min(split) / page).ceil());
        splits = splits.max(parts);
        seen += keys;
    }
    if combines {
        let tiles = rows.len().div_ceil(tile_rows) as f64;
        let busy = if splits > 1.0 { tiles * of("HEADS") } else { 0.0 };
        let bytes = splits * d * 4.0 * tile_rows as f64;
        let total = bytes * busy;
        // Splits are folded in order, from the first on. A tile has room for rows without a request.
        let room = height * (d.max(of("DP")) + 2.0);
        return Work {
            spec: spec.clone(),
            requests,
            blocks: busy as u64,
            memory_bytes: total,
            block_bytes: bytes,
            of_memory: tile_rows as f64 * d / room,
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
