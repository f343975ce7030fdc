//! Shared memory of a block: every byte with who wrote and read it last, so that races are found and not played out.
//!
//! Two threads that access one byte between two barriers of the block, one of them writing, are a race (PTX ISA, "Memory
//! Consistency Model": conflicting accesses that no synchronisation orders). Two writes of one value are none: Triton lets all
//! threads that hold a lane write it, and whichever is last, the value is that. `bar.warp.sync` orders threads of one warp. An
//! asynchronous copy is a write of its thread at its start and again at its wait; between the two nobody may use the bytes
//! ("Asynchronous operations"). It is one by the generic proxy ("cp.async"), like a store. Read next: [`bulk`], copies whose bytes
//! are counted, and [`tensor`], the memory of sm100's products.

mod bulk;
mod seen;
mod tensor;

use crate::decode::SHARED_BASE;
use crate::fault::Fault;
use bulk::{Bulk, Counter};
pub(crate) use bulk::{Landing, Transfer};
use tensor::Tensor;
pub(crate) use tensor::{Place, Sum};

/// A write of the value that is there, by whichever thread.
const SAME: &str = "another write";

/// A thread that accesses memory, and how many `bar.warp.sync` its warp has passed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who {
    pub thread: u32,
    pub passed: u32,
}

/// The last access of a kind.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    /// Barriers of the launch that were passed before.
    epoch: u32,
    passed: u32,
    thread: u32,
    /// Other threads of the warp did so too, between the same `bar.warp.sync`.
    others: bool,
    /// Other warps did so too.
    warps: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    value: u8,
    /// The block that wrote it last, counted from 1.
    written_in: u32,
    under_way: bool,
    /// One more than the fences of the thread that stored it, before; 0 if a copy by descriptor brought it.
    stored: u32,
    wrote: Mark,
    read: Mark,
    /// One more than the fences of the thread that read it last, before; 0 if only the asynchronous proxy did.
    loaded: u32,
    /// One more than the place of the copy by descriptor that brought it.
    bulk: u32,
    /// The last product that reads it ([`tensor`]).
    product: usize,
}

/// The most threads of a block.
const THREADS_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct Shared {
    cells: Vec<Cell>,
    epoch: u32,
    block: u32,
    /// How many `fence.proxy.async` each thread has executed.
    fences: Vec<u32>,
    /// The epoch with which this block began.
    begun: u32,
    counters: Vec<Counter>,
    bulks: Vec<Bulk>,
    tensor: Tensor,
    /// How often a counter, copy or product has changed.
    changes: u64,
    /// Whether threads may have been ordered by other means than barriers of all of them.
    parted: bool,
}

impl Mark {
    /// Whether the access may happen at the same time as one of `who` now.
    fn conflicts(&self, epoch: u32, who: Who) -> bool {
        if self.epoch != epoch {
            return false;
        }
        let same_warp = !self.warps && self.thread / 32 == who.thread / 32;
        !same_warp || (self.others || self.thread != who.thread) && self.passed == who.passed
    }

    fn add(&mut self, epoch: u32, who: Who) {
        let alone = Mark { epoch, passed: who.passed, thread: who.thread, others: false, warps: false };
        if self.epoch != epoch {
            *self = alone;
        } else if self.warps || self.thread / 32 != who.thread / 32 {
            self.warps = true;
        } else if self.passed != who.passed {
            *self = alone;
        } else {
            self.others |= self.thread != who.thread;
        }
    }
}

impl Shared {
    pub fn new(bytes: usize) -> Shared {
        Shared {
            cells: vec![Cell::default(); bytes],
            epoch: 0,
            block: 0,
            fences: vec![0; THREADS_MAX],
            begun: 0,
            counters: vec![],
            bulks: vec![],
            tensor: Tensor::default(),
            changes: 0,
            parted: false,
        }
    }

    /// A new block begins: nothing is written yet. Tensor memory is given out from a column on.
    pub fn begin(&mut self, column: u32) {
        self.epoch += 1;
        self.block += 1;
        self.begun = self.epoch;
        self.counters.clear();
        self.bulks.clear();
        self.tensor.begin(column);
        self.parted = false;
    }

    /// The threads of some warps have met.
    pub fn part(&mut self) {
        self.parted = true;
    }

    /// A fault that is one only if nothing orders threads but barriers of all of them.
    pub fn judge(&self, fault: Fault) -> Fault {
        match fault {
            Fault::Race { at, .. } | Fault::UnderWay { at } if self.parted => Fault::Parted { at },
            fault => fault,
        }
    }

    /// All threads have reached a barrier: what one of them has waited for, all have.
    pub fn barrier(&mut self) {
        self.epoch += 1;
        self.bulks.iter_mut().for_each(|bulk| bulk.seen.publish());
        self.tensor.publish();
    }

    /// The place of the first of some bytes, which are as aligned as they are long. `at` has the base in it.
    fn start_of(&self, at: u64, bytes: usize) -> Result<usize, Fault> {
        if !at.is_multiple_of(bytes as u64) {
            return Err(Fault::Misaligned { at, bytes });
        }
        let outside = Fault::Shared { at, bytes: self.cells.len() };
        let start = at.checked_sub(SHARED_BASE).and_then(|start| usize::try_from(start).ok()).ok_or(outside.clone())?;
        let fits = start.checked_add(bytes).is_some_and(|end| end <= self.cells.len());
        if !fits {
            return Err(outside);
        }
        match self.counters.iter().find(|counter| at < counter.at + 8 && counter.at < at + bytes as u64) {
            Some(counter) => Err(Fault::Counter { at: counter.at }),
            None => Ok(start),
        }
    }

    /// Reads up to 16 bytes, and whether each was written.
    pub fn load(&mut self, at: u64, bytes: usize, who: Who) -> Result<([u8; 16], u16), Fault> {
        self.load_by(at, bytes, who, Reader::Thread)
    }

    fn load_by(&mut self, at: u64, bytes: usize, who: Who, reader: Reader) -> Result<([u8; 16], u16), Fault> {
        let (epoch, block) = (self.epoch, self.block);
        let (mut values, mut written) = ([0; 16], 0);
        let (start, loaded) = (self.start_of(at, bytes)?, self.fences[who.thread as usize] + 1);
        for (i, cell) in self.cells[start..start + bytes].iter_mut().enumerate() {
            if cell.is_under_way(block, &self.bulks, who) {
                return Err(Fault::UnderWay { at: at + i as u64 });
            }
            if cell.wrote.conflicts(epoch, who) {
                return Err(race(at, i, "a read", "a write", cell.wrote));
            }
            if let Reader::Product(product) = reader {
                cell.product = product;
            } else {
                cell.read.add(epoch, who);
                cell.loaded = if let Reader::Thread = reader { loaded } else { 0 };
            }
            values[i] = cell.value;
            written |= u16::from(cell.written_in == block) << i;
        }
        Ok((values, written))
    }

    /// `fence.proxy.async` of a thread.
    pub fn fence(&mut self, thread: u32) {
        self.fences[thread as usize] += 1;
    }

    /// Reads 16 bytes for a product of a warpgroup.
    pub fn load_by_warpgroup(&mut self, at: u64, who: Who) -> Result<[u8; 16], Fault> {
        self.load_by_proxy(at, who, Reader::Warpgroup)
    }

    /// Reads 16 bytes for the product of tensor memory which comes next.
    pub fn load_by_product(&mut self, at: u64, who: Who) -> Result<[u8; 16], Fault> {
        self.load_by_proxy(at, who, Reader::Product(self.tensor.next()))
    }

    /// Reads 16 bytes by the asynchronous proxy, all of which must be written.
    fn load_by_proxy(&mut self, at: u64, who: Who, reader: Reader) -> Result<[u8; 16], Fault> {
        let (values, written) = self.load_by(at, 16, who, reader)?;
        if written != u16::MAX {
            return Err(Fault::Poison { what: "an element of a matrix" });
        }
        let start = (at - SHARED_BASE) as usize;
        let cells = &self.cells[start..start + 16];
        match cells.iter().find(|cell| cell.stored > self.fences[cell.wrote.thread as usize]) {
            Some(cell) => Err(Fault::Proxy { at, how: "stored", by: cell.wrote.thread }),
            None => Ok(values),
        }
    }

    /// Writes bytes; those that are not in `written` become unwritten.
    pub fn store(&mut self, at: u64, values: &[u8], written: u16, who: Who) -> Result<(), Fault> {
        let (epoch, block, stored) = (self.epoch, self.block, self.fences[who.thread as usize] + 1);
        let start = self.start_of(at, values.len())?;
        let now = Now { epoch, block, bulks: &self.bulks, tensor: &self.tensor };
        for (i, (cell, value)) in self.cells[start..].iter_mut().zip(values).enumerate() {
            let written_in = if written >> i & 1 == 1 { block } else { 0 };
            let again = cell.wrote.epoch == epoch && (cell.value, cell.written_in) == (*value, written_in);
            let this = if again { SAME } else { "a write" };
            cell.check_write(at + i as u64, &now, who, this)?;
            (cell.value, cell.written_in, cell.under_way, cell.stored) = (*value, written_in, false, stored);
            cell.bulk = 0;
            cell.wrote.add(epoch, who);
        }
        Ok(())
    }

    /// A copy to these bytes begins.
    pub fn start(&mut self, at: u64, bytes: usize, who: Who) -> Result<(), Fault> {
        let (epoch, block) = (self.epoch, self.block);
        let start = self.start_of(at, bytes)?;
        let now = Now { epoch, block, bulks: &self.bulks, tensor: &self.tensor };
        for (i, cell) in self.cells[start..start + bytes].iter_mut().enumerate() {
            cell.check_write(at + i as u64, &now, who, "a copy")?;
            (cell.under_way, cell.written_in, cell.bulk) = (true, block, 0);
            cell.wrote = Mark::default();
            cell.wrote.add(epoch, who);
        }
        Ok(())
    }

    /// The copy has ended, at its thread's wait: other threads see it behind a barrier.
    pub fn land(&mut self, at: u64, values: &[u8], who: Who) -> Result<(), Fault> {
        let (epoch, stored) = (self.epoch, self.fences[who.thread as usize] + 1);
        let start = self.start_of(at, values.len())?;
        for (cell, value) in self.cells[start..].iter_mut().zip(values) {
            (cell.value, cell.under_way, cell.stored) = (*value, false, stored);
            cell.wrote = Mark::default();
            cell.wrote.add(epoch, who);
        }
        Ok(())
    }
}

/// What decides about an access now.
struct Now<'a> {
    epoch: u32,
    block: u32,
    bulks: &'a [Bulk],
    tensor: &'a Tensor,
}

/// Who reads: a thread, or a matrix product, which reads by the asynchronous proxy. One of a warpgroup is waited for by its
/// threads, so its reads are theirs. One of tensor memory, here by its number, ends for those who have waited for it.
#[derive(Clone, Copy)]
enum Reader {
    Thread,
    Warpgroup,
    Product(usize),
}

impl Cell {
    /// Whether a copy brings it that has not landed for `who`.
    fn is_under_way(&self, block: u32, bulks: &[Bulk], who: Who) -> bool {
        let bulk = || (self.bulk as usize).checked_sub(1).and_then(|at| bulks.get(at));
        self.written_in == block && (self.under_way || bulk().is_some_and(|bulk| !bulk.seen.by(who)))
    }

    fn check_write(&self, at: u64, now: &Now<'_>, who: Who, this: &'static str) -> Result<(), Fault> {
        if self.is_under_way(now.block, now.bulks, who) {
            return Err(Fault::UnderWay { at });
        }
        if now.tensor.under_way(self.product, who) {
            return Err(Fault::Changed { at });
        }
        match (self.wrote, self.read) {
            (mark, _) if this != SAME && mark.conflicts(now.epoch, who) => Err(race(at, 0, this, "a write", mark)),
            (_, mark) if mark.conflicts(now.epoch, who) => Err(race(at, 0, this, "a read", mark)),
            _ => Ok(()),
        }
    }
}

fn race(at: u64, offset: usize, this: &'static str, other: &'static str, mark: Mark) -> Fault {
    Fault::Race { at: at + offset as u64, this, other, by: mark.thread }
}
