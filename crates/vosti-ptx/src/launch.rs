//! A launch: its blocks in some order, one after the other, and of each block the warps in some order from barrier to
//! barrier.
//!
//! A warp that waits for an `mbarrier` in vain lets others run, and asks again; copies by descriptor land at random times in
//! between. If nothing can change any more, a wait has no end. No order may show in a result; races within a block are errors, so one order of warps says as much as another. Blocks run
//! alone, because nothing here passes numbers between blocks of one launch.

use crate::counts::Counts;
use crate::decode::{Instruction, Kernel};
use crate::descriptor::Map;
use crate::fault::{Fault, RunError};
use crate::shared::{Landing, Shared};
use crate::stop::{Gate, Stop};
use crate::warp::Warp;
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

/// Global memory. An access outside it is an error in words.
pub trait Global {
    /// A launch begins.
    fn begin_launch(&mut self) {}
    /// A block of it begins, at this place of the grid.
    fn begin_block(&mut self, _block: [u32; 3]) {}
    /// Reads bytes from an address on.
    fn load(&mut self, at: u64, to: &mut [u8]) -> Result<(), String>;
    /// Writes bytes from an address on.
    fn store(&mut self, at: u64, from: &[u8]) -> Result<(), String>;
}

/// A launch.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    /// Blocks on each axis.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of dynamic shared memory of a block.
    pub shared: usize,
    /// Addresses and numbers.
    pub params: &'a [u64],
    /// Of each parameter that is a tensor map.
    pub maps: &'a [Map],
    /// The order of blocks and warps, elected threads, columns of tensor memory and when copies land are drawn from it; None:
    /// ascending, the first, and soon.
    pub seed: Option<u64>,
    /// The most instructions of one block's warps together.
    pub steps_max: u64,
}

/// What a warp sees of its block.
pub(crate) struct Block<'a, G: ?Sized> {
    pub code: &'a [Instruction],
    pub params: &'a [u64],
    pub maps: &'a [Map],
    pub shared: &'a mut Shared,
    pub global: &'a mut G,
    pub block: [u32; 3],
    pub grid: [u32; 3],
    pub threads: u32,
    /// The thread of a warp that `elect.sync` names.
    pub elected: u32,
    pub counts: Counts,
    steps: u64,
    steps_max: u64,
}

impl<G: Global + ?Sized> Block<'_, G> {
    pub fn step(&mut self) -> Result<(), Fault> {
        self.steps += 1;
        if self.steps > self.steps_max { Err(Fault::Steps { max: self.steps_max }) } else { Ok(()) }
    }

    /// A fault of a line and thread.
    fn error(&self, (line, thread, fault): (u32, u32, Fault)) -> RunError {
        RunError { block: self.block, thread, line, fault: self.shared.judge(fault) }
    }

    pub fn global_load(&mut self, at: u64, bytes: usize) -> Result<[u8; 16], Fault> {
        let mut values = [0; 16];
        aligned(at, bytes)?;
        self.global_part(at, &mut values[..bytes])?;
        Ok(values)
    }

    /// Part of an access, without its alignment.
    pub fn global_part(&mut self, at: u64, to: &mut [u8]) -> Result<(), Fault> {
        self.global.load(at, to).map_err(|why| Fault::Global { at, why })
    }

    pub fn global_store(&mut self, at: u64, from: &[u8]) -> Result<(), Fault> {
        aligned(at, from.len())?;
        self.global.store(at, from).map_err(|why| Fault::Global { at, why })
    }
}

/// PTX ISA, "Addresses as Operands": an access is aligned to its size.
fn aligned(at: u64, bytes: usize) -> Result<(), Fault> {
    if at.is_multiple_of(bytes as u64) { Ok(()) } else { Err(Fault::Misaligned { at, bytes }) }
}

/// What a seed is mixed with for the first column of tensor memory.
const COLUMNS: u64 = 0x7c05;

impl Kernel {
    /// Runs every block of a launch, and counts what all of them do.
    pub fn run<G: Global + ?Sized>(&self, launch: &Launch<'_>, global: &mut G) -> Result<Counts, RunError> {
        let [x, y, z] = launch.grid.map(|n| n as usize);
        let blocks: Vec<[u32; 3]> = (0..x * y * z).map(|i| [i % x, i / x % y, i / x / y].map(|at| at as u32)).collect();
        let mut counts = Counts::default();
        self.run_some(launch, &blocks, global)?.iter().for_each(|block| counts.add(block, 1.0));
        Ok(counts)
    }

    /// Runs some blocks of a launch, and counts what each does.
    pub fn run_some<G: Global + ?Sized>(
        &self,
        launch: &Launch<'_>,
        blocks: &[[u32; 3]],
        global: &mut G,
    ) -> Result<Vec<Counts>, RunError> {
        let refuse = |what| RunError { block: [0; 3], thread: 0, line: 0, fault: Fault::Launch { what } };
        if launch.params.len() != self.params {
            return Err(refuse("a value for each parameter"));
        }
        if self.threads.is_some_and(|threads| threads != launch.threads) || !(1..=1024).contains(&launch.threads) {
            return Err(refuse("the threads that the text names"));
        }
        let of_map = |at: usize| launch.maps.iter().filter(|map| map.descriptor.param == at).count();
        let allowed = |map: &Map| launch.params.get(map.descriptor.param).is_some_and(|at| map.is_allowed(*at));
        if !launch.maps.iter().all(allowed) || (0..self.params).any(|at| of_map(at) != usize::from(self.maps[at])) {
            return Err(refuse("a tensor map for each parameter that is one, of a form that can be encoded"));
        }
        let mut random = launch.seed.map(SplitMix64::seed_from_u64);
        let mut order: Vec<usize> = (0..blocks.len()).collect();
        let mut counts = vec![Counts::default(); blocks.len()];
        shuffle(&mut order, &mut random);
        let elected = launch.seed.map_or(0, |seed| SplitMix64::seed_from_u64(!seed).next_u64() % 32) as u32;
        let column =
            launch.seed.map_or(0, |seed| SplitMix64::seed_from_u64(seed ^ COLUMNS).next_u64() % 16 * 32) as u32;
        let mut shared = Shared::new(launch.shared);
        global.begin_launch();
        for i in order {
            shared.begin(column);
            global.begin_block(blocks[i]);
            let mut block = Block {
                code: &self.code,
                params: launch.params,
                maps: launch.maps,
                shared: &mut shared,
                global: &mut *global,
                block: blocks[i],
                grid: launch.grid,
                threads: launch.threads,
                elected,
                counts: Counts::default(),
                steps: 0,
                steps_max: launch.steps_max,
            };
            self.block(&mut block, &mut random)?;
            counts[i] = block.counts;
        }
        Ok(counts)
    }

    fn block<G: Global + ?Sized>(
        &self,
        block: &mut Block<'_, G>,
        random: &mut Option<SplitMix64>,
    ) -> Result<(), RunError> {
        let firsts = (0..block.threads).step_by(32);
        let warp = |first| Warp::new(self, first, block.threads - first);
        let mut warps: Vec<Warp> = firsts.map(warp).collect();
        let mut stops: Vec<Option<Stop>> = vec![None; warps.len()];
        loop {
            let runs = |warp: &usize| matches!(stops[*warp], None | Some(Stop::Asked(..)));
            let mut order: Vec<usize> = (0..warps.len()).filter(runs).collect();
            shuffle(&mut order, random);
            let before = block.shared.changes();
            for i in order {
                land(block.shared, random, false).map_err(|landing| block.error(landing))?;
                stops[i] = Some(
                    warps[i]
                        .run(block)
                        .map_err(|(place, thread, fault)| block.error((self.line(place), thread, fault)))?,
                );
            }
            if let Some(gate) = met(&stops) {
                let here = |stop: &&mut Option<Stop>| matches!(stop, Some(Stop::Barrier(other)) if other.meets(&gate));
                stops.iter_mut().filter(here).for_each(|stop| *stop = None);
                if gate.threads == block.threads {
                    block.shared.barrier()
                } else {
                    block.shared.part()
                }
                continue;
            }
            let asked = stops.iter().enumerate().find_map(|(warp, stop)| match stop {
                Some(Stop::Asked(place, counter)) => Some((warp, *place, *counter)),
                _ => None,
            });
            if let Some((warp, place, counter)) = asked {
                let landed = land(block.shared, random, true).map_err(|landing| block.error(landing))?;
                if landed || block.shared.changes() != before {
                    continue;
                }
                return Err(block.error((self.line(place), warp as u32 * 32, block.shared.stuck(counter))));
            }
            // A barrier that some do not reach, or that they reach at different places of the text.
            let first = stops[0];
            if let Some(other) = stops.iter().position(|stop| *stop != first) {
                let places = [first, stops[other]].into_iter().filter_map(|stop| match stop {
                    Some(Stop::Barrier(gate)) => Some(gate.place),
                    _ => None,
                });
                let line = self.line(places.max().unwrap_or(0));
                return Err(block.error((line, other as u32 * 32, Fault::Barrier)));
            }
            return block.shared.end().map_err(|landing| block.error(landing));
        }
    }

    /// The line of a place.
    fn line(&self, place: usize) -> u32 {
        self.code.get(place).or(self.code.last()).map_or(0, |instruction| instruction.line)
    }
}

/// A barrier that all its threads have reached.
fn met(stops: &[Option<Stop>]) -> Option<Gate> {
    let gates = stops.iter().filter_map(|stop| match stop {
        Some(Stop::Barrier(gate)) => Some(gate),
        _ => None,
    });
    let full = |gate: &&Gate| 32 * gates.clone().filter(|other| other.meets(gate)).count() == gate.threads as usize;
    gates.clone().find(full).copied()
}

/// Lets some copies by descriptor and commits land, of those that are under way: each or none, at random; without random numbers all. At
/// least one if it `must`. Whether one has.
fn land(shared: &mut Shared, random: &mut Option<SplitMix64>, must: bool) -> Result<bool, Landing> {
    let mut flying = shared.flying();
    shuffle(&mut flying, random);
    let mut some = false;
    for (i, copy) in flying.into_iter().enumerate() {
        let now = random.as_mut().is_none_or(|random| random.next_u64().is_multiple_of(2));
        if now || must && i == 0 {
            shared.land_one(copy)?;
            some = true;
        }
    }
    Ok(some)
}

fn shuffle<T>(list: &mut [T], random: &mut Option<SplitMix64>) {
    let Some(random) = random else { return };
    for i in (1..list.len()).rev() {
        list.swap(i, (random.next_u64() % (i as u64 + 1)) as usize);
    }
}
