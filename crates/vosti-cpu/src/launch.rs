//! Runs a step's launches on the workers, and decides the order of programs and which worker takes which.
//!
//! Workers take programs from a counter, so a slow worker takes fewer. A worker that waits for the others prefetches the next
//! weights into its cache. Programs that read the same right operand of a dot follow one another and are taken in runs, long
//! runs first: a worker that reads memory sequentially reads it faster than one that reads every other panel, and it reads
//! each panel once. The last runs are single programs.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use vosti_tile::interp::{self, Memory, Options, Undefined};
use vosti_tile::{Kernel, Scalar};

use crate::plan::Plan;
use crate::plan::machine::{Machine, Param};
use crate::pool::Worker;
use vosti_simd::layout::Layout;
use vosti_simd::storage;

/// One launch of the step being run.
pub struct Ready {
    pub kernel: usize,
    /// Range of this launch's parameters in [`Step::params`].
    pub params: std::ops::Range<usize>,
    pub grid: [usize; 3],
    pub units: Units,
    /// Workers must meet before it: it reads what a launch since the last barrier wrote, or writes what one wrote or read.
    pub waits: bool,
    /// The weight panels that this launch reads first, or else those of the next launch that reads any.
    pub ahead: Option<Ahead>,
    pub next: AtomicUsize,
    /// Nanoseconds that the first worker has spent on it, waiting included.
    pub nanoseconds: AtomicU64,
}

/// The next launch that reads a weight in panels, and that weight.
#[derive(Clone, Copy)]
pub struct Ahead {
    pub launch: usize,
    pub panels: Panels,
}

/// Panels of a weight, one after the other. [`Units::panels`] gives those that a worker starts with.
#[derive(Clone, Copy)]
pub struct Panels {
    pub base: *const u8,
    /// Bytes of a panel.
    pub panel: usize,
    /// Bytes of all panels.
    pub all: usize,
}

impl Panels {
    /// Prefetches the next few cache lines of some panels, of which `done` bytes were prefetched already.
    #[inline(always)]
    fn fetch(&self, panels: Range<usize>, done: &mut usize) {
        const LINE: usize = 64;
        let start = panels.start * self.panel + *done;
        if *done + 4 * LINE > (panels.len() * self.panel).min(AHEAD_MAX) || start + 4 * LINE > self.all {
            return;
        }
        for line in 0..4 {
            // SAFETY: memory of the weight.
            unsafe { into_second_level(self.base.add(start + line * LINE)) }
        }
        *done += 4 * LINE;
    }
}

/// Prefetches a cache line into the second-level cache.
///
/// # Safety
/// `line` points to memory.
#[inline(always)]
unsafe fn into_second_level(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; the caller says that the address is memory.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(line.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pldl2keep, [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
    }
}

/// The most bytes that a waiting worker prefetches: half of a usual second-level cache.
const AHEAD_MAX: usize = 512 << 10;

/// The order in which programs of a grid run, and the worker that takes each.
#[derive(Clone, Copy, Debug, Default)]
pub struct Units {
    pub count: usize,
    /// The axis walked first, if programs along it read the same right operand of a dot, and its extent.
    sweep: Option<(usize, usize)>,
    /// How many programs in a row each worker starts with; 0 if it takes the first ones like the others.
    run: usize,
    threads: usize,
}

/// A run is a worker's share of the programs that are left, divided by this. So the last runs are short and workers end
/// together.
const RUNS: usize = 2;

impl Units {
    pub fn of(grid: [usize; 3], sweep: Option<usize>, threads: usize) -> Self {
        let count: usize = grid.iter().product();
        let run = if sweep.is_some() { (count / (RUNS * threads)).max(1) } else { 1 };
        Self { count, sweep: sweep.map(|axis| (axis, grid[axis].max(1))), run, threads }
    }

    /// The programs that a worker starts with.
    pub fn first(&self, worker: usize) -> Range<usize> {
        let start = (worker * self.run).min(self.count);
        start..(start + self.run).min(self.count)
    }

    /// Programs that are known only when the launch begins; [`Units::count`] is set then.
    pub fn listed(grid: [usize; 3], threads: usize) -> Self {
        Self { count: grid.iter().product(), sweep: None, run: 0, threads }
    }

    /// The panels of a weight with which a worker starts.
    fn panels(&self, worker: usize) -> Range<usize> {
        let (units, programs) = (self.first(worker), self.sweep.map_or(1, |(_, programs)| programs));
        units.start / programs..units.end.div_ceil(programs)
    }

    /// Takes the next programs: a share of those that are left if the launch streams weights, else one.
    fn take(&self, next: &AtomicUsize) -> Range<usize> {
        let end = |start: usize| match self.run {
            1 => (start + 1).min(self.count),
            _ => start + (self.count.saturating_sub(start) / (RUNS * self.threads)).max(1),
        };
        let taken = next.fetch_update(Relaxed, Relaxed, |start| (start < self.count).then(|| end(start)));
        taken.map_or(0..0, |start| start..end(start))
    }

    /// The coordinates of a program by its number in the order of the walk.
    fn program(&self, grid: [usize; 3], unit: usize) -> [i32; 3] {
        let order = match self.sweep {
            Some((1, _)) => [1, 0, 2],
            Some((2, _)) => [2, 0, 1],
            _ => [0, 1, 2],
        };
        let (mut program, mut rest) = ([0; 3], unit);
        for axis in order {
            program[axis] = (rest % grid[axis]) as i32;
            rest /= grid[axis];
        }
        program
    }
}

/// How a kernel of the step runs: by its plan, or by the interpreter if it has none.
pub struct Executable<'a> {
    pub kernel: &'a Kernel,
    pub plan: Option<&'a Plan>,
}

/// One worker's part of all launches.
///
/// # Safety
/// The launches' parameters are live buffers of their length and layout that nobody else touches until every
/// worker is done; a launch's programs write disjoint cells that no other program of it reads.
pub unsafe fn work<'a>(
    worker: &Worker<'_>,
    machine: &mut Machine,
    launches: &[Ready],
    params: &[Param],
    kernel: impl Fn(usize) -> Executable<'a>,
    fault: &FirstFault,
    poison: Option<u64>,
) {
    let mut start = Instant::now();
    let mut waits = false;
    let mut programs = Vec::new();
    for (number, launch) in launches.iter().enumerate() {
        // If a launch is empty, the next one waits in its place.
        waits |= launch.waits;
        if launch.units.count == 0 {
            continue;
        }
        if std::mem::take(&mut waits) {
            let mut done = 0;
            worker.barrier_while(|| {
                if let Some(Ahead { launch, panels }) = &launch.ahead {
                    panels.fetch(launches[*launch].units.panels(worker.index), &mut done);
                }
            });
        }
        let params = &params[launch.params.clone()];
        let program = kernel(launch.kernel);
        match program.plan {
            Some(plan) => {
                machine.begin(plan, launch.grid.map(|n| n as i32));
                let mut units = launch.units;
                if plan.chosen.is_some() {
                    // SAFETY: the caller's promise.
                    if unsafe { machine.chosen(plan, params, &mut programs) }.is_err() {
                        fault.set(number);
                    }
                    units.count = programs.len();
                }
                // Each worker starts with fixed units, whose weights it may have prefetched.
                let mut taken = units.first(worker.index);
                loop {
                    for i in taken {
                        let program = match plan.sweep {
                            _ if plan.chosen.is_some() => programs[i],
                            Some(_) => units.program(launch.grid, i),
                            // Later query tiles see more keys, so they run first. Launches that sweep weights run in memory order.
                            None => units.program(launch.grid, units.count - 1 - i),
                        };
                        // SAFETY: the caller's promise.
                        if unsafe { machine.run(plan, params, program) }.is_err() {
                            fault.set(number);
                        }
                    }
                    taken = units.take(&launch.next);
                    if taken.is_empty() {
                        break;
                    }
                }
            }
            None if worker.index == 0 => {
                // SAFETY: the caller's promise; the other workers wait at the barrier.
                let mut memory = unsafe { Buffers::new(program.kernel, params) };
                let undefined = poison.map_or(Undefined::Zero, Undefined::Poison);
                let options = Options { undefined, ..Options::default() };
                if interp::run(program.kernel, &mut memory, launch.grid, &options).is_err() {
                    fault.set(number);
                }
            }
            None => {}
        }
        if worker.index == 0 {
            let now = Instant::now();
            launch.nanoseconds.fetch_add((now - start).as_nanos() as u64, Relaxed);
            start = now;
        }
    }
}

/// The first launch that left its buffers.
#[derive(Default)]
pub struct FirstFault {
    happened: AtomicBool,
    launch: AtomicUsize,
}

impl FirstFault {
    fn set(&self, launch: usize) {
        if !self.happened.swap(true, Relaxed) {
            self.launch.store(launch, Relaxed);
        }
    }

    pub fn get(&self) -> Option<usize> {
        self.happened.load(Relaxed).then(|| self.launch.load(Relaxed))
    }
}

/// The interpreter's view of a launch's buffers, through their layouts.
struct Buffers<'a> {
    kernel: &'a Kernel,
    params: &'a [Param],
}

impl<'a> Buffers<'a> {
    /// # Safety
    /// As for [`work`]: the buffers are live and nobody else touches them while this lives.
    unsafe fn new(kernel: &'a Kernel, params: &'a [Param]) -> Self {
        Self { kernel, params }
    }

    fn at(&self, param: usize, index: usize) -> (*mut u8, usize) {
        let Param { base, len, layout } = self.params[param];
        assert!(index < len);
        let bytes = self.kernel.params[param].elem.bytes();
        // SAFETY: the index is within the buffer, and so is its position.
        (unsafe { base.add(layout.position(index) * bytes) }, bytes)
    }
}

impl Memory for Buffers<'_> {
    fn elem(&self, param: usize) -> Option<Scalar> {
        self.params.get(param).and(self.kernel.params.get(param)).map(|p| p.elem)
    }

    fn len(&self, param: usize) -> usize {
        self.params[param].len
    }

    fn load(&self, param: usize, index: usize) -> u64 {
        if let Param { base, len, layout: layout @ Layout::StoredPanels { .. } } = self.params[param] {
            assert!(index < len);
            // SAFETY: the index is within the buffer.
            return unsafe { storage::load(base, layout, index) }.into();
        }
        let (at, bytes) = self.at(param, index);
        let mut bits = [0; 8];
        // SAFETY: an element of a live buffer.
        unsafe { std::ptr::copy_nonoverlapping(at, bits.as_mut_ptr(), bytes) };
        u64::from_le_bytes(bits)
    }

    fn store(&mut self, param: usize, index: usize, bits: u64) {
        let (at, bytes) = self.at(param, index);
        // SAFETY: as above, and nobody else touches it.
        unsafe { std::ptr::copy_nonoverlapping(bits.to_le_bytes().as_ptr(), at, bytes) };
    }
}

/// A parameter's part of a buffer; the whole buffer if the layout is not row-major.
pub fn param(buffer: &crate::weights::Buffer, part: Range<usize>) -> Param {
    let layout: Layout = buffer.layout;
    debug_assert!(part == (0..buffer.len) || layout == Layout::RowMajor);
    let (start, end) = (part.start.min(buffer.len), part.end.min(buffer.len));
    // SAFETY: an element of the buffer, or its end.
    let base = unsafe { buffer.region.base().add(start * buffer.elem.bytes()) };
    Param { base, len: end.saturating_sub(start), layout }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_taken_once_by_whoever_comes() {
        for threads in [1, 2, 3, 8] {
            for (grid, sweep) in [
                ([1, 4096, 1], Some(0)),
                ([8, 15, 1], Some(0)),
                ([7, 3, 2], Some(1)),
                ([2, 3, 5], Some(2)),
                ([7, 3, 1], None),
            ] {
                for units in [Units::of(grid, sweep, threads), Units::listed(grid, threads)] {
                    let next = AtomicUsize::new(units.first(threads).start);
                    let mut runs: Vec<Range<usize>> = (0..threads).map(|worker| units.first(worker)).collect();
                    runs.extend(std::iter::repeat_with(|| units.take(&next)).take_while(|run| !run.is_empty()));
                    let taken: Vec<usize> = runs.iter().cloned().flatten().collect();
                    assert_eq!(taken, (0..units.count).collect::<Vec<_>>(), "{grid:?} by {threads}");
                    let mut programs = vec![0; grid.iter().product()];
                    for unit in taken {
                        let [x, y, z] = units.program(grid, unit).map(|at| at as usize);
                        programs[x + grid[0] * (y + grid[1] * z)] += 1;
                    }
                    assert!(programs.iter().all(|times| *times == 1), "{grid:?} by {threads}");
                    // The last run is one program, so that no worker waits long for another.
                    assert!(runs.last().is_none_or(|run| run.len() == 1), "{runs:?}");
                }
            }
        }
    }
}
