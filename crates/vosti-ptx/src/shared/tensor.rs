//! Tensor memory of a block, which sm100 has: 128 lanes of 512 columns of 32 bits, with who wrote and read each word last.
//!
//! A product (PTX ISA, "tcgen05.mma") is under way from its instruction on until a thread has waited for a phase of an
//! `mbarrier` that a `tcgen05.commit` behind it arrived in ("Memory Consistency Model for 5th generation of TensorCore
//! operations"), or has met such a thread at a barrier. Until then nobody uses the words and the shared memory that it uses, but
//! a product of the same thread that adds to the same words in the same shape ("Pipelined tcgen05 Instructions"). A load or
//! store ends at its warp's `tcgen05.wait`; other threads come behind it by a barrier. What they would race for is an error.
//!
//! No `tcgen05.fence` is asked at a barrier or behind a wait for an `mbarrier`. The ISA's examples have one where the wait is
//! relaxed; these waits acquire, and "the standard memory consistency model synchronization mechanisms also apply".
//! Triton writes none.

use super::bulk::Landing;
use super::seen::Seen;
use super::{Mark, Shared, Who};
use crate::fault::Fault;

/// Rows and columns of tensor memory ("Tensor Memory Addressing").
const LANES: u32 = 128;
const COLUMNS: u32 = 512;
/// The fewest columns of an allocation, all of which are powers of two ("tcgen05.alloc").
const COLUMNS_MIN: u32 = 32;

/// A word's address: its lane in the upper half, its column in the lower one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub lane: u32,
    pub column: u32,
}

impl Place {
    pub fn of(address: u64) -> Place {
        Place { lane: (address >> 16 & 0xffff) as u32, column: (address & 0xffff) as u32 }
    }

    /// So many lanes and columns further.
    pub fn add(self, lane: u32, column: u32) -> Place {
        Place { lane: self.lane + lane, column: self.column + column }
    }

    fn wrong(self, why: &'static str) -> Fault {
        Fault::Tensor { lane: self.lane, column: self.column, why }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Word {
    value: u32,
    /// The block that wrote it last, counted from 1.
    written_in: u32,
    /// A store to it, and how many loads of it, have not been waited for.
    storing: bool,
    loading: u32,
    wrote: Mark,
    read: Mark,
    /// The number of the last product that used it, from 1 on, and whether that wrote it.
    product: usize,
    by_product: bool,
}

/// The words that a product adds to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sum {
    pub to: Place,
    pub rows: u32,
    pub columns: u32,
}

#[derive(Debug)]
struct Product {
    thread: u32,
    line: u32,
    sum: Sum,
    seen: Seen,
}

/// `tcgen05.commit`: an arrival when all products of a thread have ended that were before it.
#[derive(Debug)]
struct Commit {
    counter: u64,
    thread: u32,
    line: u32,
    /// The first product that it is not for.
    end: usize,
    /// The phase that it arrived in.
    landed: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) struct Tensor {
    words: Vec<Word>,
    /// The first column that an allocation gets, if it has room there.
    first: u32,
    /// Allocations: their first columns, and how many.
    taken: Vec<(u32, u32)>,
    closed: bool,
    /// Products of this launch. Those before `begun` are of other blocks.
    products: Vec<Product>,
    begun: usize,
    commits: Vec<Commit>,
    /// Loads and stores that have not been waited for: the warp and the place of the word.
    loads: Vec<(Who, usize)>,
    stores: Vec<(Who, usize)>,
}

impl Tensor {
    /// A new block begins.
    pub fn begin(&mut self, first: u32) {
        (self.first, self.closed, self.begun) = (first, false, self.products.len());
        self.taken.clear();
        self.commits.clear();
        self.loads.clear();
        self.stores.clear();
    }

    /// The number of the product that comes next; products count from 1.
    pub fn next(&self) -> usize {
        self.products.len() + 1
    }

    /// Whether a product, by its number, is under way for a thread. There is none with the number 0.
    pub fn under_way(&self, product: usize, who: Who) -> bool {
        product > self.begun && self.products.get(product - 1).is_some_and(|product| !product.seen.by(who))
    }

    pub fn publish(&mut self) {
        self.products[self.begun..].iter_mut().for_each(|product| product.seen.publish());
    }

    fn at(&self, place: Place) -> Result<usize, Fault> {
        let taken = |(first, many): &(u32, u32)| (*first..first + many).contains(&place.column);
        if place.lane >= LANES || !self.taken.iter().any(taken) {
            return Err(place.wrong("it is not allocated"));
        }
        Ok((place.lane * COLUMNS + place.column) as usize)
    }

    /// Whether a thread may read a word now.
    fn check_read(&self, place: Place, epoch: u32, who: Who) -> Result<usize, Fault> {
        let at = self.at(place)?;
        let word = &self.words[at];
        if word.storing {
            return Err(place.wrong("a store to it is under way"));
        }
        if self.under_way(word.product, who) {
            return Err(place.wrong("a matrix product is using it"));
        }
        if word.wrote.conflicts(epoch, who) {
            return Err(place.wrong("a race with a store by another thread"));
        }
        Ok(at)
    }

    /// Whether a thread may write a word now.
    fn check_write(&self, place: Place, epoch: u32, who: Who) -> Result<usize, Fault> {
        let at = self.check_read(place, epoch, who)?;
        self.check_loads(place, at, epoch, who)?;
        Ok(at)
    }

    fn check_loads(&self, place: Place, at: usize, epoch: u32, who: Who) -> Result<(), Fault> {
        if self.words[at].loading > 0 {
            return Err(place.wrong("a load of it is under way"));
        }
        if self.words[at].read.conflicts(epoch, who) {
            return Err(place.wrong("a race with a load by another thread"));
        }
        Ok(())
    }
}

impl Shared {
    /// `tcgen05.alloc`: the address goes to shared memory.
    pub fn allocate(&mut self, at: u64, columns: u32, who: Who) -> Result<(), Fault> {
        let tensor = &mut self.tensor;
        let allowed = columns.is_power_of_two() && (COLUMNS_MIN..=COLUMNS).contains(&columns);
        if tensor.closed || !allowed {
            let why = if allowed { "its block has given up the right to it" } else { "no power of two from 32 to 512" };
            return Err(Fault::Columns { columns, why });
        }
        let free = |first: &u32| {
            first + columns <= COLUMNS
                && tensor.taken.iter().all(|(other, many)| first + columns <= *other || other + many <= *first)
        };
        let (step, wanted) = (COLUMNS_MIN as usize, tensor.first.min(COLUMNS - columns));
        let first = std::iter::once(wanted).chain((0..COLUMNS).step_by(step)).find(free);
        let first = first.ok_or(Fault::Columns { columns, why: "there is no room, and nobody makes any" })?;
        tensor.taken.push((first, columns));
        tensor.words.resize((LANES * COLUMNS) as usize, Word::default());
        self.store(at, &first.to_le_bytes(), 0xf, who)
    }

    /// `tcgen05.dealloc`, of a whole allocation that nobody uses any more.
    pub fn free(&mut self, address: u64, columns: u32, who: Who) -> Result<(), Fault> {
        let (epoch, tensor, place) = (self.epoch, &mut self.tensor, Place::of(address));
        let known = tensor.taken.iter().position(|known| place.lane == 0 && *known == (place.column, columns));
        let known = known.ok_or(Fault::Columns { columns, why: "no allocation begins there with so many" })?;
        for (lane, column) in (0..LANES).flat_map(|lane| (0..columns).map(move |column| (lane, column))) {
            tensor.check_write(place.add(lane, column), epoch, who)?;
        }
        tensor.taken.swap_remove(known);
        let words = tensor.words.chunks_mut(COLUMNS as usize);
        words.for_each(|lane| lane[place.column as usize..][..columns as usize].fill(Word::default()));
        Ok(())
    }

    /// `tcgen05.relinquish_alloc_permit`.
    pub fn relinquish(&mut self) {
        self.tensor.closed = true;
    }

    /// A thread's load of a word, and whether it was written.
    pub fn load_word(&mut self, place: Place, who: Who) -> Result<(u32, bool), Fault> {
        let (epoch, block, tensor) = (self.epoch, self.block, &mut self.tensor);
        let at = tensor.check_read(place, epoch, who)?;
        let word = &mut tensor.words[at];
        word.read.add(epoch, who);
        word.loading += 1;
        tensor.loads.push((who, at));
        Ok((word.value, word.written_in == block))
    }

    /// A thread's store to a word, of a number that was written or not.
    pub fn store_word(&mut self, place: Place, value: u32, written: bool, who: Who) -> Result<(), Fault> {
        let (epoch, block, tensor) = (self.epoch, self.block, &mut self.tensor);
        let at = tensor.check_write(place, epoch, who)?;
        let word = &mut tensor.words[at];
        (word.value, word.written_in, word.storing) = (value, if written { block } else { 0 }, true);
        (word.product, word.by_product) = (0, false);
        word.wrote.add(epoch, who);
        tensor.stores.push((who, at));
        Ok(())
    }

    /// `tcgen05.wait::ld` of a warp.
    pub fn wait_loads(&mut self, warp: u32) {
        let (epoch, tensor) = (self.epoch, &mut self.tensor);
        for (who, at) in tensor.loads.extract_if(.., |(who, _)| who.thread / 32 == warp) {
            tensor.words[at].loading -= 1;
            tensor.words[at].read.add(epoch, who);
        }
    }

    /// `tcgen05.wait::st` of a warp.
    pub fn wait_stores(&mut self, warp: u32) {
        let (epoch, tensor) = (self.epoch, &mut self.tensor);
        for (who, at) in tensor.stores.extract_if(.., |(who, _)| who.thread / 32 == warp) {
            tensor.words[at].storing = false;
            tensor.words[at].wrote.add(epoch, who);
        }
    }

    /// A word that the product which comes next reads as a factor.
    pub fn factor(&mut self, place: Place, who: Who) -> Result<u32, Fault> {
        let at = self.tensor.at(place)?;
        // Another product that only reads it does no harm.
        let (word, next) = (self.tensor.words[at], self.tensor.next());
        if word.by_product || !self.tensor.under_way(word.product, who) {
            self.tensor.check_read(place, self.epoch, who)?;
        }
        if word.written_in != self.block {
            return Err(Fault::Poison { what: "an element of a matrix" });
        }
        (self.tensor.words[at].product, self.tensor.words[at].by_product) = (next, false);
        Ok(word.value)
    }

    /// A word of the sums of the product which comes next, for it to add to if they are to be `kept`.
    pub fn sum(&mut self, place: Place, sum: Sum, kept: bool, who: Who) -> Result<u32, Fault> {
        let (epoch, tensor) = (self.epoch, &self.tensor);
        let at = tensor.at(place)?;
        let word = &tensor.words[at];
        let before = word.product.checked_sub(1).and_then(|before| tensor.products.get(before));
        let pipelined = |before: &Product| word.by_product && before.thread == who.thread && before.sum == sum;
        if before.is_some_and(pipelined) {
            tensor.check_loads(place, at, epoch, who)?;
        } else {
            tensor.check_write(place, epoch, who)?;
        }
        if kept && word.written_in != self.block {
            return Err(Fault::Poison { what: "an accumulator" });
        }
        Ok(word.value)
    }

    /// The product is under way: its sums, row by row.
    pub fn start_product(&mut self, sum: Sum, places: &[Place], values: &[u32], line: u32, who: Who) {
        let (block, tensor) = (self.block, &mut self.tensor);
        let product = tensor.next();
        for (place, value) in places.iter().zip(values) {
            let word = &mut tensor.words[(place.lane * COLUMNS + place.column) as usize];
            (word.value, word.written_in, word.wrote) = (*value, block, Mark::default());
            (word.product, word.by_product) = (product, true);
        }
        tensor.products.push(Product { thread: who.thread, line, sum, seen: Seen::default() });
        self.changes += 1;
    }

    /// `tcgen05.commit`.
    pub fn commit(&mut self, at: u64, line: u32, who: Who) -> Result<(), Fault> {
        self.used(at, who)?;
        let end = self.tensor.products.len();
        self.tensor.commits.push(Commit { counter: at, thread: who.thread, line, end, landed: None });
        self.changes += 1;
        Ok(())
    }

    /// Of each thread, the first commit that has not landed: they land in order.
    pub(super) fn flying_commits(&self) -> impl Iterator<Item = usize> {
        let commits = &self.tensor.commits;
        let flying = |at: &usize| commits[*at].landed.is_none();
        let first =
            move |at: &usize| !commits[..*at].iter().any(|c| c.landed.is_none() && c.thread == commits[*at].thread);
        (0..commits.len()).filter(flying).filter(first)
    }

    /// The products of a commit have ended, and it arrives.
    pub(super) fn land_commit(&mut self, at: usize) -> Result<(), Landing> {
        let commit = &mut self.tensor.commits[at];
        let (counter, line, thread) = (commit.counter, commit.line, commit.thread);
        let phase = self.arrive_by_commit(counter).map_err(|fault| (line, thread, fault))?;
        self.tensor.commits[at].landed = Some(phase);
        Ok(())
    }

    /// A thread has waited for the phases of a counter before one.
    pub(super) fn see_products(&mut self, counter: u64, phase: u64, who: Who) {
        let Tensor { commits, products, begun, .. } = &mut self.tensor;
        for commit in commits.iter().filter(|c| c.counter == counter && c.landed.is_some_and(|landed| landed < phase)) {
            let of = |product: &&mut Product| product.thread == commit.thread && !product.seen.by_all();
            products[*begun..commit.end].iter_mut().filter(of).for_each(|product| product.seen.add(who));
        }
    }

    /// Whether something that a counter counts was not waited for. Otherwise it may go, and with it what it has counted.
    pub(super) fn drop_commits(&mut self, counter: u64) -> bool {
        let Tensor { commits, products, begun, .. } = &mut self.tensor;
        let seen = |commit: &Commit| {
            let mut before = products[*begun..commit.end].iter().filter(|product| product.thread == commit.thread);
            commit.landed.is_some() && before.all(|product| product.seen.some())
        };
        let open = commits.iter().any(|commit| commit.counter == counter && !seen(commit));
        commits.retain(|commit| commit.counter != counter);
        open
    }

    /// What a block may not leave behind.
    pub(super) fn end_of_products(&self) -> Result<(), Landing> {
        let Tensor { products, begun, commits, taken, .. } = &self.tensor;
        if let Some(product) = products[*begun..].iter().find(|product| !product.seen.some()) {
            return Err((product.line, product.thread, Fault::Unended));
        }
        if let Some(commit) = commits.iter().find(|commit| commit.landed.is_none()) {
            return Err((commit.line, commit.thread, Fault::Unawaited { at: commit.counter }));
        }
        match taken.first() {
            Some((_, columns)) => Err((0, 0, Fault::Columns { columns: *columns, why: "the block ends with them" })),
            None => Ok(()),
        }
    }
}
