//! A warp: registers of 32 threads, where each thread is in the code, and what it does there.
//!
//! Threads of a warp run in step where they are at one place; after a divergent branch those with the lowest place go first, so
//! that they meet again. An instruction that the ISA wants of all threads at once is an error in a part of them.
//! In a kernel whose blocks may begin early (`griddepcontrol`), a thread waits for the launches before it touches
//! global memory, and before it ends: so the end of a launch is the end of all launches before it.
//! A register that was never written is poison: what is computed of it is poison too, and using that as an address, a
//! condition, an operand of a matrix product or a number in global memory is an error.

use crate::decode::{At, Counting, Extreme, Instruction, Kernel, Register, Space, Special, Tensor, What};
use crate::fault::Fault;
use crate::group::Flights;
use crate::lanes::extreme_float;
use crate::launch::{Block, Global};
use crate::matrix::{self, Lanes};
use crate::shared::Who;
use crate::stop::{Gate, Stop};
use std::collections::VecDeque;
use vosti_tile::numerics::from_bf16;

/// The thread that a shuffle reads of: `by` below or above, or with these bits flipped, or this one of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    Up,
    Down,
    Butterfly,
    Index,
}

pub(crate) const ALL: u32 = u32::MAX;

/// An asynchronous copy whose bytes have not landed.
#[derive(Clone, Debug)]
struct Pending {
    lane: u32,
    to: u64,
    values: [u8; 16],
    bytes: usize,
}

#[derive(Debug)]
pub(crate) struct Warp {
    /// The first thread.
    first: u32,
    values: Vec<Lanes>,
    /// For each register, the threads that have written it.
    written: Vec<u32>,
    /// Threads that have not returned.
    live: u32,
    /// The place of all live threads, unless they have diverged.
    place: usize,
    diverged: Option<[usize; 32]>,
    /// How many `bar.warp.sync` it has passed.
    passed: u32,
    open: Vec<Pending>,
    groups: VecDeque<Vec<Pending>>,
    /// Threads for which the launches before have ended.
    awaited: u32,
    /// Registers that were written since the last `wgmma.fence`.
    fresh: Vec<bool>,
    flights: Flights,
}

pub(crate) type Outcome<T> = Result<T, Fault>;

impl Warp {
    /// The warp of the threads from `first` on, of which there are `threads`.
    pub fn new(kernel: &Kernel, first: u32, threads: u32) -> Warp {
        let mut values = vec![[0; 32]; kernel.registers];
        values.extend(kernel.numbers.iter().map(|number| [*number; 32]));
        let mut written = vec![0; kernel.registers];
        written.resize(values.len(), ALL);
        Warp {
            fresh: vec![false; values.len()],
            flights: Flights::default(),
            first,
            values,
            written,
            live: if threads >= 32 { ALL } else { (1 << threads) - 1 },
            place: 0,
            diverged: None,
            passed: 0,
            awaited: if kernel.dependent { 0 } else { ALL },
            open: vec![],
            groups: VecDeque::new(),
        }
    }

    /// Runs to the next barrier, a wait in vain or the end. An error comes with the place and the first thread there.
    pub fn run<G: Global + ?Sized>(&mut self, block: &mut Block<'_, G>) -> Result<Stop, (usize, u32, Fault)> {
        while self.live != 0 {
            let (place, mask) = self.next();
            let thread = self.first + mask.trailing_zeros();
            let wrong = |fault| (place, thread, fault);
            block.step().map_err(wrong)?;
            let code = block.code;
            let instruction = code.get(place).ok_or(wrong(Fault::End))?;
            block.counts.instructions[instruction.class as usize] += 1;
            self.go(place + 1, mask);
            match self.execute(instruction, mask, block).map_err(wrong)? {
                None => (),
                Some(Then::Branch { to, of }) => self.go(to, of),
                Some(Then::Return { of }) => self.live &= !of,
                Some(Then::Barrier { id, threads, aligned }) => {
                    return Ok(Stop::Barrier(Gate { id, threads: threads.unwrap_or(block.threads), place, aligned }));
                }
                Some(Then::Asked(at)) => return Ok(Stop::Asked(place, at)),
            }
        }
        Ok(Stop::Returned)
    }

    /// The lowest place of a live thread, and the threads that are there.
    fn next(&mut self) -> (usize, u32) {
        let Some(places) = &self.diverged else { return (self.place, self.live) };
        let live = |lane: &usize| self.live >> lane & 1 == 1;
        let lowest = (0..32).filter(live).map(|lane| places[lane]).min().unwrap_or(0);
        let mask = (0..32).filter(live).filter(|lane| places[*lane] == lowest).fold(0, |mask, lane| mask | 1 << lane);
        if mask == self.live {
            (self.place, self.diverged) = (lowest, None);
        }
        (lowest, mask)
    }

    fn go(&mut self, to: usize, mask: u32) {
        if self.diverged.is_none() && mask == self.live {
            self.place = to;
            return;
        }
        let places = self.diverged.get_or_insert([self.place; 32]);
        (0..32).filter(|lane| mask >> lane & 1 == 1).for_each(|lane| places[lane] = to);
    }

    pub(crate) fn who(&self, lane: u32) -> Who {
        Who { thread: self.first + lane, passed: self.passed }
    }

    /// An operand of all threads, and who of them has written it.
    pub(crate) fn read(&self, source: Register) -> (&Lanes, u32) {
        (&self.values[source as usize], self.written[source as usize])
    }

    /// An operand that must not be poison in some threads.
    pub(crate) fn sure(&self, source: Register, mask: u32, what: &'static str) -> Outcome<Lanes> {
        let (lanes, written) = self.read(source);
        if written & mask == mask { Ok(*lanes) } else { Err(Fault::Poison { what }) }
    }

    pub(crate) fn addresses(&self, at: At, mask: u32, what: &'static str) -> Outcome<Lanes> {
        Ok(self.sure(at.base, mask, what)?.map(|base| base.wrapping_add(at.offset as u64)))
    }

    pub(crate) fn write(&mut self, register: Register, lanes: &Lanes, written: u32, mask: u32) {
        let to = &mut self.values[register as usize];
        match mask {
            ALL => *to = *lanes,
            _ => each(mask).for_each(|lane| to[lane as usize] = lanes[lane as usize]),
        }
        self.fresh[register as usize] = true;
        let known = &mut self.written[register as usize];
        *known = *known & !mask | written & mask;
    }

    pub(crate) fn first(&self) -> u32 {
        self.first
    }

    pub(crate) fn flights(&mut self) -> &mut Flights {
        &mut self.flights
    }

    /// The thread that stands for the warp in shared memory.
    pub(crate) fn leader(&self) -> Who {
        self.who(0)
    }

    /// A value that is one for all threads.
    pub(crate) fn same(&self, source: Register, what: &'static str) -> Outcome<u64> {
        let lanes = self.sure(source, ALL, what)?;
        if lanes.iter().all(|lane| *lane == lanes[0]) { Ok(lanes[0]) } else { Err(Fault::Divergent { what }) }
    }

    /// A register that a warpgroup's product reads or adds to.
    pub(crate) fn fenced(&self, source: Register, what: &'static str) -> Outcome<Lanes> {
        if self.fresh[source as usize] { Err(Fault::Unfenced { what }) } else { self.sure(source, ALL, what) }
    }

    /// Registers whose values come later.
    pub(crate) fn forget(&mut self, registers: &[Register]) {
        registers.iter().for_each(|register| self.written[*register as usize] = 0);
    }

    /// They have come.
    pub(crate) fn landed(&mut self, registers: &[Register], values: &[Lanes]) {
        for (register, lanes) in registers.iter().zip(values) {
            (self.values[*register as usize], self.written[*register as usize]) = (*lanes, ALL);
        }
    }

    fn execute<G: Global + ?Sized>(
        &mut self,
        instruction: &Instruction,
        at: u32,
        block: &mut Block<'_, G>,
    ) -> Outcome<Option<Then>> {
        let mask = match instruction.guard {
            None => at,
            Some((predicate, negated)) => {
                let lanes = self.sure(predicate, at, "a predicate")?;
                let yes = each(at).filter(|lane| (lanes[*lane as usize] == 1) != negated);
                yes.fold(0, |mask, lane| mask | 1 << lane)
            }
        };
        if mask == 0 {
            return Ok(None);
        }
        if self.awaited & mask != mask
            && let Some(what) = too_early(&instruction.what)
        {
            return Err(Fault::Early { what });
        }
        match whole_warp(&instruction.what) {
            Some(what) if mask != at || at != self.live => return Err(Fault::Divergent { what }),
            Some(_) if self.live != ALL => return Err(Fault::PartialWarp { threads: self.live.count_ones() }),
            _ => (),
        }
        match &instruction.what {
            What::Branch { to } => return Ok(Some(Then::Branch { to: *to, of: mask })),
            What::Return => return Ok(Some(Then::Return { of: mask })),
            What::Barrier { id, threads, aligned } => {
                return Ok(Some(Then::Barrier { id: *id, threads: *threads, aligned: *aligned }));
            }
            What::WarpBarrier => self.passed += 1,
            What::Await => self.awaited |= mask,
            What::Release | What::Registers => (),
            What::Load { space, to, at, bytes } => self.load(*space, to, *at, *bytes, mask, block)?,
            What::Store { space, at, from, bytes } => self.store(*space, *at, from, *bytes, mask, block)?,
            What::Copy { to, from, bytes, live } => self.copy(*to, *from, *bytes, *live, mask, block)?,
            What::Prefetch(at) => self.prefetch(*at, mask, block)?,
            What::Commit => self.groups.push_back(std::mem::take(&mut self.open)),
            What::Wait { but } => self.wait(*but, block)?,
            What::Matrices { to, at, transposed } => self.matrices(to, *at, *transposed, block)?,
            What::Multiply { product, to, a, b, c } => {
                let what = "an operand of a matrix product";
                let [a0, a1, a2, a3] = a.map(|a| self.sure(a, ALL, what));
                let [b0, b1] = b.map(|b| self.sure(b, ALL, what));
                let [c0, c1, c2, c3] = c.map(|c| self.sure(c, ALL, what));
                let result = matrix::multiply(*product, [a0?, a1?, a2?, a3?], [b0?, b1?], [c0?, c1?, c2?, c3?]);
                to.iter().zip(&result).for_each(|(to, lanes)| self.write(*to, lanes, ALL, ALL));
            }
            What::StoreMatrices { from, at, transposed } => self.store_matrices(from, *at, *transposed, block)?,
            What::Gemm(gemm) => self.gemm(gemm, block)?,
            What::GemmFence => self.fresh.fill(false),
            What::GemmCommit => self.close_group(),
            What::GemmWait { but } => self.land(*but, block)?,
            What::Tensor(tensor) => self.tensor(tensor, mask, instruction.line, block)?,
            What::Elect { to, leader } => self.elect(*to, *leader, block),
            What::Counter { at, what } if self.count(*at, *what, mask, block)? => (),
            What::Counter { at, .. } => {
                let at = self.addresses(*at, mask, "the address of an mbarrier")?;
                return Ok(Some(Then::Asked(at[mask.trailing_zeros() as usize])));
            }
            What::Bulk { to, map, place, counter } => {
                self.transfer((*to, *counter), *map, *place, mask, instruction.line, block)?;
            }
            What::ProxyFence => each(mask).for_each(|lane| block.shared.fence(self.first + lane)),
            What::Shuffle { to, from, by, clamp, way } => self.shuffle(*to, *from, [*by, *clamp], *way)?,
            What::Extreme { to, from, members, of } => self.extreme(*to, *from, *members, *of)?,
            What::Parameter { to, index, extended } => {
                let value = block.params[*index];
                let value = if *extended { i64::from(value as u32 as i32) as u64 } else { value };
                self.write(*to, &[value; 32], ALL, mask);
            }
            What::Special { to, which } => {
                let lanes = self.special(*which, block);
                self.write(*to, &lanes, ALL, mask);
            }
            what => self.registers(what, mask),
        }
        Ok(None)
    }

    /// What touches registers only.
    fn registers(&mut self, what: &What, mask: u32) {
        match what {
            What::Lane { run, to, from } => {
                let [a, b, c] = from.map(|source| self.read(source));
                let mut lanes = [0; 32];
                run([a.0, b.0, c.0], &mut lanes);
                self.write(*to, &lanes, a.1 & b.1 & c.1, mask);
            }
            What::Select { to, yes, no, predicate } => {
                let (yes, no, (chosen, known)) = (self.read(*yes), self.read(*no), self.read(*predicate));
                let lanes = std::array::from_fn(|lane| if chosen[lane] == 1 { yes.0[lane] } else { no.0[lane] });
                let chosen =
                    each(ALL).filter(|lane| chosen[*lane as usize] == 1).fold(0, |mask, lane| mask | 1 << lane);
                self.write(*to, &lanes, known & (chosen & yes.1 | !chosen & no.1), mask);
            }
            What::AtMost { to, a, b } => {
                let (a, b) = (self.read(*a), self.read(*b));
                let (known, a, b) = (a.1 & b.1, *a.0, *b.0);
                for (half, to) in to.iter().enumerate() {
                    let number = |lane: u64| from_bf16((lane >> (16 * half)) as u16);
                    let lanes = std::array::from_fn(|lane| u64::from(number(a[lane]) <= number(b[lane])));
                    self.write(*to, &lanes, known, mask);
                }
            }
            What::Pack { to, from, bits } => {
                let (mut lanes, mut written) = ([0; 32], ALL);
                for (at, source) in from.iter().enumerate() {
                    let part = self.read(*source);
                    written &= part.1;
                    (0..32).for_each(|lane| lanes[lane] |= part.0[lane] << (*bits as usize * at));
                }
                self.write(*to, &lanes, written, mask);
            }
            What::Unpack { to, from, bits } => {
                let (lanes, written) = self.read(*from);
                let lanes = *lanes;
                for (at, to) in to.iter().enumerate() {
                    let part = lanes.map(|lane| lane >> (*bits as usize * at) & ((1 << bits) - 1));
                    self.write(*to, &part, written, mask);
                }
            }
            _ => (),
        }
    }

    fn special<G: Global + ?Sized>(&self, which: Special, block: &Block<'_, G>) -> Lanes {
        match which {
            Special::Thread => std::array::from_fn(|lane| u64::from(self.first) + lane as u64),
            Special::Threads => [block.threads.into(); 32],
            Special::Block(axis) => [block.block[axis].into(); 32],
            Special::Blocks(axis) => [block.grid[axis].into(); 32],
        }
    }

    /// Data Movement and Conversion Instructions: ld.
    fn load<G: Global + ?Sized>(
        &mut self,
        space: Space,
        to: &[Register],
        at: At,
        bytes: usize,
        mask: u32,
        block: &mut Block<'_, G>,
    ) -> Outcome<()> {
        let addresses = self.addresses(at, mask, "the address of a load")?;
        block.counts.access(space, false, mask, &addresses, bytes * to.len());
        for lane in each(mask) {
            let address = addresses[lane as usize];
            let (values, written) = match space {
                Space::Shared => block.shared.load(address, bytes * to.len(), self.who(lane))?,
                Space::Global => (block.global_load(address, bytes * to.len())?, u16::MAX),
            };
            for (i, register) in to.iter().enumerate() {
                let mut value = [0; 8];
                value[..bytes].copy_from_slice(&values[i * bytes..][..bytes]);
                self.fresh[*register as usize] = true;
                self.values[*register as usize][lane as usize] = u64::from_le_bytes(value);
                let all = (1u16 << bytes) - 1;
                let known = &mut self.written[*register as usize];
                *known = *known & !(1 << lane) | u32::from(written >> (i * bytes) & all == all) << lane;
            }
        }
        Ok(())
    }

    /// Data Movement and Conversion Instructions: st.
    fn store<G: Global + ?Sized>(
        &mut self,
        space: Space,
        at: At,
        from: &[Register],
        bytes: usize,
        mask: u32,
        block: &mut Block<'_, G>,
    ) -> Outcome<()> {
        let addresses = self.addresses(at, mask, "the address of a store")?;
        block.counts.access(space, true, mask, &addresses, bytes * from.len());
        let parts: Vec<(&Lanes, u32)> = from.iter().map(|source| self.read(*source)).collect();
        for lane in each(mask) {
            let (mut values, mut written) = ([0; 16], 0u16);
            for (i, (lanes, known)) in parts.iter().enumerate() {
                values[i * bytes..][..bytes].copy_from_slice(&lanes[lane as usize].to_le_bytes()[..bytes]);
                let all = (1u16 << bytes) - 1;
                written |= if known >> lane & 1 == 1 { all << (i * bytes) } else { 0 };
            }
            let (address, values) = (addresses[lane as usize], &values[..bytes * from.len()]);
            match space {
                Space::Shared => block.shared.store(address, values, written, self.who(lane))?,
                Space::Global if parts.iter().any(|(_, known)| known >> lane & 1 == 0) => {
                    return Err(Fault::Poison { what: "a number in global memory" });
                }
                Space::Global => block.global_store(address, values)?,
            }
        }
        Ok(())
    }

    /// Data Movement and Conversion Instructions: prefetch. Only the address is checked.
    fn prefetch<G: Global + ?Sized>(&mut self, at: At, mask: u32, block: &mut Block<'_, G>) -> Outcome<()> {
        let addresses = self.addresses(at, mask, "the address of a prefetch")?;
        each(mask).try_for_each(|lane| block.global_part(addresses[lane as usize], &mut [0]))
    }

    /// Asynchronous copy: cp.async. Bytes behind the first `live` are zeros.
    fn copy<G: Global + ?Sized>(
        &mut self,
        to: At,
        from: At,
        bytes: usize,
        live: Register,
        mask: u32,
        block: &mut Block<'_, G>,
    ) -> Outcome<()> {
        let to = self.addresses(to, mask, "the address of a copy")?;
        let from = self.addresses(from, mask, "the address of a copy")?;
        let live = self.sure(live, mask, "the size of a copy")?;
        block.counts.copy(mask, (&to, &from), &live, bytes);
        for lane in each(mask) {
            let i = lane as usize;
            block.shared.start(to[i], bytes, self.who(lane))?;
            let some = live[i] as usize;
            if some > bytes {
                // PTX ISA, `cp.async`: undefined.
                return Err(Fault::Copy { live: some, bytes });
            }
            let mut values = [0; 16];
            if some > 0 {
                if !from[i].is_multiple_of(bytes as u64) {
                    return Err(Fault::Misaligned { at: from[i], bytes });
                }
                block.global_part(from[i], &mut values[..some])?;
            }
            self.open.push(Pending { lane, to: to[i], values, bytes });
        }
        Ok(())
    }

    /// Asynchronous copy: cp.async.wait_group. All groups but the last `but` land.
    fn wait<G: Global + ?Sized>(&mut self, but: usize, block: &mut Block<'_, G>) -> Outcome<()> {
        while self.groups.len() > but {
            for copy in self.groups.pop_front().into_iter().flatten() {
                block.shared.land(copy.to, &copy.values[..copy.bytes], self.who(copy.lane))?;
            }
        }
        Ok(())
    }

    /// Warp Level Matrix Instructions: ldmatrix. Threads 8 i to 8 i + 7 give the addresses of matrix i's rows.
    fn matrices<G: Global + ?Sized>(
        &mut self,
        to: &[Register],
        at: At,
        transposed: bool,
        block: &mut Block<'_, G>,
    ) -> Outcome<()> {
        let givers = if to.len() == 4 { ALL } else { (1 << (8 * to.len())) - 1 };
        let addresses = self.addresses(at, givers, "the address of a matrix")?;
        block.counts.access(Space::Shared, false, givers, &addresses, 16);
        let mut found = vec![];
        for i in 0..to.len() {
            let (mut rows, mut known) = ([[0; 16]; 8], [[0; 16]; 8]);
            for row in 0..8 {
                let lane = 8 * i + row;
                let (bytes, written) = block.shared.load(addresses[lane], 16, self.who(lane as u32))?;
                rows[row] = bytes;
                known[row] = std::array::from_fn(|byte| if written >> byte & 1 == 1 { 0xff } else { 0 });
            }
            let lanes: Lanes = std::array::from_fn(|lane| matrix::fragment(&rows, lane, transposed).into());
            let written = |lane: &u32| matrix::fragment(&known, *lane as usize, transposed) == u32::MAX;
            found.push((lanes, each(ALL).filter(written).fold(0, |mask, lane| mask | 1 << lane)));
        }
        to.iter().zip(&found).for_each(|(to, (lanes, written))| self.write(*to, lanes, *written, ALL));
        Ok(())
    }

    /// Warp Level Matrix Instructions: stmatrix, which is ldmatrix the other way round.
    fn store_matrices<G: Global + ?Sized>(
        &mut self,
        from: &[Register],
        at: At,
        transposed: bool,
        block: &mut Block<'_, G>,
    ) -> Outcome<()> {
        let givers = if from.len() == 4 { ALL } else { (1 << (8 * from.len())) - 1 };
        let addresses = self.addresses(at, givers, "the address of a matrix")?;
        block.counts.access(Space::Shared, true, givers, &addresses, 16);
        for (i, register) in from.iter().enumerate() {
            let (lanes, written) = self.read(*register);
            let known = std::array::from_fn(|lane| if written >> lane & 1 == 1 { u64::MAX } else { 0 });
            let rows = matrix::rows(lanes, transposed).into_iter().zip(matrix::rows(&known, transposed));
            for (row, (values, known)) in rows.enumerate() {
                let (lane, all) = (8 * i + row, known.iter().enumerate());
                let written = all.fold(0, |mask, (byte, known)| mask | u16::from(*known == 0xff) << byte);
                block.shared.store(addresses[lane], &values, written, self.who(lane as u32))?;
            }
        }
        Ok(())
    }

    /// Data Movement and Conversion Instructions: shfl.sync.
    fn shuffle(&mut self, to: Register, from: Register, [by, clamp]: [Register; 2], way: Way) -> Outcome<()> {
        let (lanes, written) = self.read(from);
        let (by, clamp) = (self.sure(by, ALL, "a shuffle")?, self.sure(clamp, ALL, "a shuffle")?);
        let source = |lane: usize| {
            let (by, most, segment) =
                (by[lane] as usize & 31, clamp[lane] as usize & 31, clamp[lane] as usize >> 8 & 31);
            let last = lane & segment | most & !segment;
            let (from, within) = match way {
                // Lanes below the first have none.
                Way::Up => (lane.wrapping_sub(by), lane >= last + by),
                Way::Down => (lane + by, lane + by <= last),
                Way::Butterfly => (lane ^ by, lane ^ by <= last),
                Way::Index => (lane & segment | by & !segment, lane & segment | by & !segment <= last),
            };
            if within { from } else { lane }
        };
        let known = (0..32).fold(0, |mask, lane| mask | (written >> source(lane) & 1) << lane);
        let moved = std::array::from_fn(|lane| lanes[source(lane)]);
        self.write(to, &moved, known, ALL);
        Ok(())
    }

    /// Parallel Synchronization and Communication Instructions: redux.sync, of all threads.
    fn extreme(&mut self, to: Register, from: Register, members: Register, of: Extreme) -> Outcome<()> {
        let members = self.sure(members, ALL, "the threads of a reduction")?;
        if members.iter().any(|mask| *mask as u32 != ALL) {
            return Err(Fault::Divergent { what: "redux" });
        }
        let (lanes, written) = self.read(from);
        let found = match of {
            Extreme::Whole => lanes.iter().map(|lane| *lane as u32 as i32).max().unwrap_or(i32::MIN) as u32 as u64,
            Extreme::Float { largest } => {
                lanes.iter().copied().reduce(|a, b| extreme_float(a, b, largest)).unwrap_or(0)
            }
        };
        let known = if written == ALL { ALL } else { 0 };
        self.write(to, &[found; 32], known, ALL);
        Ok(())
    }
}

/// What an instruction does to a warp's way.
enum Then {
    Branch { to: usize, of: u32 },
    Return { of: u32 },
    Barrier { id: u32, threads: Option<u32>, aligned: bool },
    Asked(u64),
}

/// The name of an instruction that all threads of a warp execute together (PTX ISA: `.aligned`, and `bar.sync`). Groups of copies
/// are a thread's own, and so are waits for an mbarrier; here a warp's threads make and await them together, as Triton's
/// code does.
fn whole_warp(what: &What) -> Option<&'static str> {
    Some(match what {
        What::Barrier { .. } => "bar.sync",
        What::Registers => "setmaxnreg",
        What::WarpBarrier => "bar.warp.sync",
        What::Matrices { .. } => "ldmatrix",
        What::Multiply { .. } => "mma",
        What::StoreMatrices { .. } => "stmatrix",
        What::Gemm(_) => "wgmma.mma_async",
        What::GemmFence => "wgmma.fence",
        What::GemmCommit => "wgmma.commit_group",
        What::GemmWait { .. } => "wgmma.wait_group",
        What::Shuffle { .. } => "shfl",
        What::Extreme { .. } => "redux",
        What::Commit => "cp.async.commit_group",
        What::Wait { .. } => "cp.async.wait_group",
        What::Tensor(tensor) => return tensor.whole_warp(),
        What::Elect { .. } => "elect.sync",
        What::Counter { what: Counting::Wait { .. }, .. } => "mbarrier.try_wait",
        _ => return None,
    })
}

/// The name of an instruction that a thread executes only when the launches before have ended (PTX ISA, griddepcontrol:
/// their memory operations are visible behind the wait, and not before). A launch may end only when those before it
/// have, because the next one waits for this one alone.
fn too_early(what: &What) -> Option<&'static str> {
    Some(match what {
        What::Load { space: Space::Global, .. } => "a load of global memory",
        What::Store { space: Space::Global, .. } => "a store to global memory",
        What::Copy { .. } | What::Bulk { .. } => "a copy of global memory",
        What::Release => "griddepcontrol.launch_dependents",
        // Of a block that holds it and waits, when one of the launch before comes for it to the same multiprocessor.
        What::Tensor(tensor) if matches!(**tensor, Tensor::Allocate { .. }) => "an allocation of tensor memory",
        What::Return => "the end of a thread",
        _ => return None,
    })
}

/// The threads of a mask.
pub(crate) fn each(mask: u32) -> impl Iterator<Item = u32> {
    (0..32).filter(move |lane| mask >> lane & 1 == 1)
}
