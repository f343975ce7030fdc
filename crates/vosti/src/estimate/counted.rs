//! The launches of a step, executed: what they ask of a GPU's units, beside what the arithmetic says.
//!
//! The arithmetic reads the program, and knows no instruction; an execution counts what the compiler made of it. They
//! say the same thing about one number, the bytes that blocks move between multiprocessors and the second-level cache;
//! where they differ, the report says so. Read next: `vosti_ptx`'s `counts` for the rules of counting, and `counted`
//! for which blocks are executed.

use super::Step;
use super::card::Card;
use super::launches::{self, Work};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use vosti_cubin::execute::{Class, Counted, Counts, SECTOR};
use vosti_cubin::{Counter, Cubin};
use vosti_engine::progress::Progress;
use vosti_kernels::KernelError;
use vosti_model::ModelPlan;

/// A launch: its kernel's name, and the rows of each request with the first one's position.
pub type Key = (String, Vec<(usize, usize)>);

/// The counts of launches, or why one could not be executed.
pub type All = BTreeMap<Key, Result<Counted, String>>;

/// From which share on two numbers of bytes differ.
const DIFFERS: f64 = 0.1;

/// Executes the launches that a card makes of these steps, each different one once, on all cores. One whose kernel has no counter is left
/// out.
pub fn of(
    plan: &ModelPlan,
    cubins: &BTreeMap<String, Cubin>,
    card: &Card,
    counters: &BTreeMap<String, Counter>,
    steps: &[Step],
    progress: &dyn Progress,
) -> Result<All, KernelError> {
    let mut keys: Vec<Key> = vec![];
    for step in steps {
        let works = launches::of(plan, cubins, card, *step)?;
        keys.extend(works.iter().map(Work::key).filter(|key| counters.contains_key(&key.0)));
    }
    keys.sort();
    keys.dedup();
    progress.stage("executing launches of the steps", keys.len() as u64);
    let (next, done, found) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(All::new()));
    let work = || {
        while let Some(key) = keys.get(next.fetch_add(1, Relaxed)).filter(|_| !progress.cancelled()) {
            let counted = counters[&key.0].count(&key.1).map_err(|error| error.to_string());
            found.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), counted);
            progress.done(1 + done.fetch_add(1, Relaxed) as u64);
        }
    };
    std::thread::scope(|scope| {
        (0..std::thread::available_parallelism().map_or(1, usize::from)).for_each(|_| drop(scope.spawn(work)));
    });
    Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// The counts of several launches of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    counts: Counts,
    blocks: u64,
    executed: u64,
    /// What the arithmetic says that their blocks move.
    bytes: f64,
}

impl Tally {
    pub(super) fn add(&mut self, counted: &Counted, bytes: f64) {
        self.counts.add(&counted.counts, 1.0);
        self.blocks += counted.blocks;
        self.executed += counted.executed;
        self.bytes += bytes;
    }

    /// What all blocks of all launches do.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Bytes that blocks move, by the arithmetic: of products and attention what they read.
    pub fn arithmetic(&self) -> f64 {
        self.bytes
    }

    /// Bytes that blocks move, by execution.
    pub fn moved(&self) -> f64 {
        ((self.counts.loads.sectors + self.counts.stores.sectors) * SECTOR) as f64
    }

    /// Whether the arithmetic says something else.
    pub fn differs(&self) -> bool {
        (self.moved() - self.bytes).abs() > DIFFERS * self.bytes
    }
}

/// A table for people: one line for each kernel, and what was not executed.
pub(super) fn table(kernels: &[super::Kernel]) -> String {
    let mut out = String::from(
        "counted by execution, of all launches: instructions of warps in millions and the share of each class; megabytes that blocks\n\
        move, the share that threads asked for, and the arithmetic's megabytes (`!` where they differ by more than a tenth); turns of\n\
        shared memory in millions and the share that conflicts cost\n",
    );
    let classes: String = Class::ALL.iter().map(|class| format!("{:>8}", class.name())).collect();
    writeln!(
        out,
        "{:>15} {:>9}{classes} {:>10} {:>6} {:>11} {:>8} {:>9}  kernel",
        "blocks executed", "issued", "MB", "asked", "arithmetic", "turns", "conflicts"
    )
    .ok();
    for (kernel, tally) in kernels.iter().filter_map(|kernel| Some((kernel, kernel.tally.as_ref()?))) {
        let Tally { counts, blocks, executed, bytes } = tally;
        let share = |part: u64, of: u64| 100.0 * part as f64 / of.max(1) as f64;
        let issued = counts.issued();
        let classes: String =
            counts.instructions.iter().map(|many| format!("{:>7.1}%", share(*many, issued))).collect();
        writeln!(
            out,
            "{:>15} {:>9.3}{classes} {:>10.3} {:>5.0}% {:>10.3}{} {:>8.3} {:>8.1}%  {}",
            format!("{executed} of {blocks}"),
            issued as f64 / 1e6,
            tally.moved() / 1e6,
            100.0 * (counts.loads.bytes + counts.stores.bytes) as f64 / tally.moved().max(1.0),
            bytes / 1e6,
            if tally.differs() { '!' } else { ' ' },
            counts.shared.wavefronts as f64 / 1e6,
            share(counts.conflicts(), counts.shared.wavefronts),
            kernel.name
        )
        .ok();
    }
    let missing: Vec<&str> =
        kernels.iter().filter(|kernel| kernel.tally.is_none()).map(|kernel| kernel.name.as_str()).collect();
    if !missing.is_empty() {
        writeln!(out, "not executed, so that instructions and banks do not count there: {}", missing.join(", ")).ok();
    }
    out
}
