//! What a launch of a given step asks of a GPU: some of its blocks are executed, and their counts stand for all.
//!
//! Blocks differ by their place in the grid: a loop is longer for later rows, and the last block of an axis is ragged.
//! So on each axis at most three places are executed: the last, which stands for itself, and two that stand for half of
//! the others each. Where the blocks before the last are alike, or their work grows evenly along an axis, the sum is
//! exact. Of experts one that is chosen stands for all that are, and one that is not for the others.
//!
//! Metadata is the step's; all other numbers are zeros, because no address and no branch depends on them. They do on
//! the choice of experts: rows choose them in turn. Read next: [`crate::counts`].

use crate::buffers::Buffers;
use crate::compare::{Difference, SCRATCH, STEPS_MAX};
use crate::counts::Counts;
use crate::decode::Kernel;
use crate::descriptor::Descriptor;
use crate::keys::Keys;
use crate::launch::Launch;
use crate::step::{Step, int, map, size};
use vosti_contract::{Contract, Extent, Grid, Param, Role};
use vosti_kernels::{KernelError, Spec};
use vosti_tile::Scalar;

/// The counts of a launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Blocks of the launch.
    pub blocks: u64,
    /// Those that were executed.
    pub executed: u64,
    /// What all blocks do.
    pub counts: Counts,
}

/// Executes some blocks of a launch. Each request of the step has some rows, the first one at some position; a block
/// has `threads` threads and `shared` bytes of dynamic shared memory; `descriptors` are its tensor maps.
pub fn count(
    kernel: &Kernel,
    spec: &Spec,
    (threads, shared, descriptors): (u32, usize, &[Descriptor]),
    requests: &[(usize, usize)],
) -> Result<Counted, Difference> {
    let contract: &Contract = vosti_kernels::contract(&spec.kernel)?;
    let context = requests.iter().map(|(many, start)| many + start).max().unwrap_or(1);
    let mut free = 0..;
    let step = Step::of(spec, contract.shape, requests, context, |needed| free.by_ref().take(needed).collect());
    let extent = Extent { rows: step.rows, tiles: step.tiles[0].len(), length: step.length };
    let written = Grid::written(contract, &spec.constants).map_err(KernelError::from)?;
    let grid = written.at(extent).map_err(KernelError::from)?;
    let mut memory = Buffers::default();
    let mut params = vec![];
    for param in &contract.params {
        params.push(match integers(param, spec, contract, &step)? {
            Some(numbers) => memory.add(&param.name, numbers.iter().flat_map(|number| number.to_le_bytes()).collect()),
            None => memory.add_zeros(&param.name, elements(param, spec, contract, &step)? * elem(param, spec)),
        });
    }
    params.resize(params.len() + SCRATCH, 0);
    let of = |descriptor: &Descriptor| {
        let param = contract.params.get(descriptor.param);
        let many = param.map_or(Ok(0), |param| elements(param, spec, contract, &step))?;
        map(*descriptor, spec, contract, many)
    };
    let maps = descriptors.iter().map(of).collect::<Result<Vec<_>, KernelError>>()?;
    // Rows choose experts in turn.
    let chosen = step.rows * size(spec, "TOPK");
    let of_experts = |axis: usize| contract.grid.get(axis).is_some_and(|text| text == "E");
    let axes = [0, 1, 2].map(|axis| if of_experts(axis) { experts(grid[axis], chosen) } else { places(grid[axis]) });
    let (blocks, weights) = sample(axes);
    let grid = grid.map(|many| many as u32);
    let launch = Launch { grid, threads, shared, params: &params, maps: &maps, seed: None, steps_max: STEPS_MAX };
    let mut counts = Counts::default();
    let found = kernel.run_some(&launch, &blocks, &mut memory)?;
    found.iter().zip(weights).for_each(|(block, weight)| counts.add(block, weight));
    let all = grid.iter().map(|many| u64::from(*many)).product();
    Ok(Counted { blocks: all, executed: blocks.len() as u64, counts })
}

/// What a kernel is told in integers.
fn integers(param: &Param, spec: &Spec, contract: &Contract, step: &Step) -> Result<Option<Vec<i32>>, KernelError> {
    let rows = || 0..step.rows as i32;
    Ok(match param.role {
        Role::Tokens => Some(vec![0; step.rows]),
        Role::Positions => Some(step.positions().map(|position| position as i32).collect()),
        Role::RowIndex | Role::Slots => Some(rows().collect()),
        _ if Scalar::from(param.elem(spec.act)) == Scalar::I32 => match step.metadata(param.role) {
            Some(numbers) => Some(numbers),
            // Experts, in turn.
            None => {
                let (many, experts) = (elements(param, spec, contract, step)?, int(spec, "E").unwrap_or(1).max(1));
                Some((0..many as i64).map(|at| (at % experts) as i32).collect())
            }
        },
        role => step.metadata(role),
    })
}

fn elem(param: &Param, spec: &Spec) -> u64 {
    Scalar::from(param.elem(spec.act)).bytes() as u64
}

fn elements(param: &Param, spec: &Spec, contract: &Contract, step: &Step) -> Result<u64, KernelError> {
    Ok(match param.role {
        Role::CacheK | Role::CacheV => Keys::new(spec).many(step.pages) as u64,
        _ => step.extents(spec, contract, param)?.iter().product::<i64>() as u64,
    })
}

/// Some blocks of a grid, and how many each stands for.
fn sample([x, y, z]: [Vec<(u32, f64)>; 3]) -> (Vec<[u32; 3]>, Vec<f64>) {
    let mut found = (vec![], vec![]);
    for (k, c) in &z {
        for (j, b) in &y {
            for (i, a) in &x {
                found.0.push([*i, *j, *k]);
                found.1.push(a * b * c);
            }
        }
    }
    found
}

/// Some places of an axis, and how many each stands for: the last for itself, and two in the middles of the halves of
/// the others.
fn places(many: usize) -> Vec<(u32, f64)> {
    let Some(others) = many.checked_sub(1) else { return vec![] };
    let first = others.saturating_sub(2) / 4;
    let weight = others as f64 / 2.0;
    let halves = match others {
        0 => vec![],
        1 => vec![(0, 1.0)],
        _ => vec![(first as u32, weight), ((others - 1 - first) as u32, weight)],
    };
    halves.into_iter().chain([(others as u32, 1.0)]).collect()
}

/// The same of experts, of which the first are chosen: one that is, and one that is not.
fn experts(many: usize, chosen: usize) -> Vec<(u32, f64)> {
    match many.checked_sub(chosen) {
        None | Some(0) => places(many),
        Some(others) => vec![(0, chosen as f64), (many as u32 - 1, others as f64)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_places_stand_for_all() {
        for many in 0..200 {
            let places = places(many);
            let weight: f64 = places.iter().map(|(_, weight)| weight).sum();
            let mean: f64 = places.iter().map(|(at, weight)| f64::from(*at) * weight).sum();
            let all = (0..many).sum::<usize>() as f64;
            // Work that grows evenly is counted exactly.
            assert!((weight, mean) == (many as f64, all) && places.len() <= 3, "{many}: {places:?}, {mean}, not {all}");
            assert!(places.windows(2).all(|two| two[0].0 < two[1].0), "{many}: {places:?}");
        }
        assert_eq!(places(3), [(0, 1.0), (1, 1.0), (2, 1.0)]);
        assert_eq!(places(17), [(3, 8.0), (12, 8.0), (16, 1.0)]);
        assert_eq!(sample([2, 1, 2].map(places)).0, [[0, 0, 0], [1, 0, 0], [0, 0, 1], [1, 0, 1]]);
        assert_eq!(experts(128, 32), [(0, 32.0), (127, 96.0)]);
        assert_eq!(experts(3, 8), places(3));
    }
}
