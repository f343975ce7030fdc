//! Copies by descriptor, and the `mbarrier`s that count their bytes.
//!
//! A copy (PTX ISA, "cp.async.bulk.tensor") is a write by the asynchronous proxy at some time between its start and the end
//! of its counter's phase. Its bytes are for the threads that have waited for that phase ("mbarrier based completion
//! mechanism"), and for those that meet such a thread at a barrier: until then nobody may use them. A counter's phase ends
//! when all arrivals that it expects and all bytes that it was told of have come ("Phase of the mbarrier object",
//! "tx-count").
//!
//! No proxy fence is asked between `mbarrier.init` and a copy's own access to its counter: a copy "accesses its mbarrier operand
//! using generic-proxy" ("cp.async.bulk.tensor"). A copy's bytes need one where a thread read or wrote
//! them before ("Async Proxy"): of several readers the last is checked.
//!
//! That an arrival orders what its thread did before it is not taken into account, nor a barrier of some warps: where such an
//! order might count, an execution says that it is not known.

use super::seen::Seen;
use super::{Mark, Now, SHARED_BASE, Shared, Who, race};
use crate::fault::Fault;

/// The bytes of an `mbarrier` ("Size and alignment of mbarrier object").
const SIZE: usize = 8;
/// The most arrivals of a phase and the most bytes ("Contents of the mbarrier object": 2^20 - 1).
const COUNT_MAX: u64 = (1 << 20) - 1;

/// An `mbarrier`.
#[derive(Debug)]
pub(super) struct Counter {
    pub at: u64,
    /// Arrivals of a phase, and how many of this one have not come.
    expected: u64,
    pending: u64,
    /// Bytes that this phase was told of, and that have come.
    told: u64,
    came: u64,
    /// How many phases have ended, and how many of these a thread has waited for or for one behind.
    phase: u64,
    awaited: u64,
    made: Mark,
    used: Mark,
}

/// What a copy brings: pieces of shared memory and their bytes.
pub(crate) struct Transfer {
    pub chunks: Vec<(u64, [u8; 16])>,
    /// The line of its instruction.
    pub line: u32,
}

/// A copy by descriptor.
#[derive(Debug)]
pub(super) struct Bulk {
    counter: u64,
    /// The phase that counts it.
    phase: u64,
    chunks: Vec<(u64, [u8; 16])>,
    landed: bool,
    line: u32,
    thread: u32,
    pub seen: Seen,
}

/// Something asynchronous that may land: a copy by descriptor or a commit, by its place.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Flying {
    Box(usize),
    Commit(usize),
}

/// A copy or commit whose landing is an error: the line and thread of its instruction.
pub(crate) type Landing = (u32, u32, Fault);

impl Counter {
    /// Arrivals and bytes may have completed its phase. An error if nobody has seen the end of the one before: a wait for that would now
    /// come too late.
    fn turn(&mut self) -> Result<(), Fault> {
        if self.pending == 0 && self.told == self.came {
            if self.awaited < self.phase {
                return Err(Fault::Unnoticed { at: self.at });
            }
            (self.pending, self.told, self.came) = (self.expected, 0, 0);
            self.phase += 1;
        }
        Ok(())
    }
}

impl Shared {
    /// How often a counter or copy has changed.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// `mbarrier.init`, which is a write. On a valid one it is undefined.
    pub fn init(&mut self, at: u64, count: u64, who: Who) -> Result<(), Fault> {
        if self.counters.iter().any(|counter| counter.at == at) {
            return Err(Fault::Again { at });
        }
        if !(1..=COUNT_MAX).contains(&count) {
            return Err(Fault::Range { at });
        }
        self.store(at, &[0; SIZE], 0, who)?;
        let mut made = Mark::default();
        made.add(self.epoch, who);
        let used = Mark::default();
        self.counters.push(Counter {
            at,
            expected: count,
            pending: count,
            told: 0,
            came: 0,
            phase: 0,
            awaited: 0,
            made,
            used,
        });
        self.changes += 1;
        Ok(())
    }

    /// `mbarrier.inval`: a write again. What it counts has come.
    pub fn inval(&mut self, at: u64, who: Who) -> Result<(), Fault> {
        let index = self.counter(at, who)?;
        let (epoch, used) = (self.epoch, self.counters[index].used);
        if used.conflicts(epoch, who) {
            return Err(race(at, 0, "mbarrier.inval", "an operation of the mbarrier", used));
        }
        if self.bulks.iter().any(|bulk| bulk.counter == at && !bulk.seen.some()) || self.drop_commits(at) {
            return Err(Fault::Unawaited { at });
        }
        self.counters.swap_remove(index);
        self.store(at, &[0; SIZE], 0, who)?;
        self.changes += 1;
        Ok(())
    }

    /// The place of an `mbarrier`, for an operation that is behind its `init`.
    fn counter(&self, at: u64, who: Who) -> Result<usize, Fault> {
        let known = self.counters.iter().position(|counter| counter.at == at);
        let index = known.ok_or(Fault::NoCounter { at })?;
        let made = self.counters[index].made;
        if made.conflicts(self.epoch, who) {
            return Err(race(at, 0, "an operation of the mbarrier", "mbarrier.init", made));
        }
        Ok(index)
    }

    pub(super) fn used(&mut self, at: u64, who: Who) -> Result<&mut Counter, Fault> {
        let (index, epoch) = (self.counter(at, who)?, self.epoch);
        let counter = &mut self.counters[index];
        counter.used.add(epoch, who);
        Ok(counter)
    }

    /// `mbarrier.arrive`; with `.expect_tx` the bytes are told of first. Without, it is there to order threads.
    pub fn arrive(&mut self, at: u64, count: u64, bytes: Option<u64>, who: Who) -> Result<(), Fault> {
        self.parted |= bytes.is_none();
        let counter = self.used(at, who)?;
        counter.told += bytes.unwrap_or(0);
        if counter.told.abs_diff(counter.came) > COUNT_MAX || count == 0 {
            return Err(Fault::Range { at });
        }
        let expected = counter.expected;
        counter.pending = counter.pending.checked_sub(count).ok_or(Fault::Arrival { at, expected })?;
        counter.turn()?;
        self.changes += 1;
        Ok(())
    }

    /// `mbarrier.try_wait.parity`: whether the phase before this one has the parity. Then its copies are for this thread.
    pub fn wait(&mut self, at: u64, parity: u64, who: Who) -> Result<bool, Fault> {
        if parity > 1 {
            return Err(Fault::Range { at });
        }
        let counter = self.used(at, who)?;
        let phase = counter.phase;
        let ended = phase % 2 != parity;
        if ended {
            counter.awaited = phase;
            let of = |bulk: &&mut Bulk| bulk.counter == at && bulk.phase < phase;
            self.bulks.iter_mut().filter(of).for_each(|bulk| bulk.seen.add(who));
            self.see_products(at, phase, who);
        }
        Ok(ended)
    }

    /// A copy by descriptor begins. Its bytes are counted in the phase that is now.
    pub fn start_box(&mut self, counter: u64, copy: Transfer, who: Who) -> Result<(), Fault> {
        let phase = self.used(counter, who)?.phase;
        let (block, begun) = (self.block, self.begun);
        let id = self.bulks.len() as u32 + 1;
        for (at, bytes) in &copy.chunks {
            let start = self.start_of(*at, bytes.len())?;
            let now = Now { epoch: self.epoch, block, bulks: &self.bulks, tensor: &self.tensor };
            for (i, cell) in self.cells[start..start + bytes.len()].iter_mut().enumerate() {
                let at = at + i as u64;
                cell.check_write(at, &now, who, "a copy")?;
                let fences = |mark: Mark| self.fences[mark.thread as usize];
                if cell.written_in == block && cell.stored > fences(cell.wrote) {
                    return Err(Fault::Proxy { at, how: "stored", by: cell.wrote.thread });
                }
                if cell.read.epoch >= begun && cell.loaded > fences(cell.read) {
                    return Err(Fault::Proxy { at, how: "read", by: cell.read.thread });
                }
                (cell.written_in, cell.under_way, cell.stored, cell.bulk) = (block, false, 0, id);
                cell.wrote = Mark::default();
            }
        }
        let Transfer { chunks, line } = copy;
        self.bulks.push(Bulk {
            counter,
            phase,
            chunks,
            landed: false,
            line,
            thread: who.thread,
            seen: Seen::default(),
        });
        self.changes += 1;
        Ok(())
    }

    /// What may land now: copies that have not, and commits of products.
    pub fn flying(&self) -> Vec<Flying> {
        let boxes = (0..self.bulks.len()).filter(|at| !self.bulks[*at].landed).map(Flying::Box);
        boxes.chain(self.flying_commits().map(Flying::Commit)).collect()
    }

    /// It lands, and its counter counts it.
    pub fn land_one(&mut self, flying: Flying) -> Result<(), Landing> {
        match flying {
            Flying::Box(at) => self.land_box(at),
            Flying::Commit(at) => self.land_commit(at),
        }
    }

    /// An arrival that no thread makes. The phase that it counts in.
    pub(super) fn arrive_by_commit(&mut self, at: u64) -> Result<u64, Fault> {
        let counter = self.counters.iter_mut().find(|counter| counter.at == at).ok_or(Fault::NoCounter { at })?;
        let phase = counter.phase;
        counter.pending = counter.pending.checked_sub(1).ok_or(Fault::Arrival { at, expected: counter.expected })?;
        counter.turn()?;
        self.changes += 1;
        Ok(phase)
    }

    fn land_box(&mut self, at: usize) -> Result<(), Landing> {
        let bulk = &mut self.bulks[at];
        bulk.landed = true;
        let (counter, phase, line, thread) = (bulk.counter, bulk.phase, bulk.line, bulk.thread);
        let chunks = std::mem::take(&mut bulk.chunks);
        for (at, bytes) in &chunks {
            let start = (at - SHARED_BASE) as usize;
            self.cells[start..].iter_mut().zip(bytes).for_each(|(cell, value)| cell.value = *value);
        }
        self.changes += 1;
        let wrong = |fault| (line, thread, fault);
        let known = self.counters.iter_mut().find(|known| known.at == counter);
        let known = known.ok_or(wrong(Fault::NoCounter { at: counter }))?;
        known.came += 16 * chunks.len() as u64;
        if known.phase != phase {
            return Err(wrong(Fault::Bytes { at: counter, told: known.told, came: known.came }));
        }
        known.turn().map_err(wrong)
    }

    /// Why a wait for a counter does not end, when nothing can change any more.
    pub fn stuck(&self, at: u64) -> Fault {
        match self.counters.iter().find(|counter| counter.at == at) {
            Some(Counter { told, came, .. }) if told != came => Fault::Bytes { at, told: *told, came: *came },
            _ => Fault::Forever { at },
        }
    }

    /// A block has ended: its copies and products have.
    pub fn end(&self) -> Result<(), Landing> {
        match self.bulks.iter().find(|bulk| !bulk.seen.some()) {
            Some(bulk) => Err((bulk.line, bulk.thread, Fault::Unawaited { at: bulk.counter })),
            None => self.end_of_products(),
        }
    }
}
