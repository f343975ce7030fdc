//! What an execution asks of a GPU's units: instructions by class, transactions of global memory, turns of shared
//! memory.
//!
//! An execution counts always. The rules are those of NVIDIA's Nsight Compute Profiling Guide ("Metrics Decoder") and
//! CUDA C++ Programming Guide ("Shared Memory", of each compute capability):
//! - one instruction of a warp is one request. It moves the 32-byte sectors, and looks up the 128-byte lines, that the
//!   addresses of its threads touch, each once;
//! - shared memory has 32 banks of four bytes. A request takes as many turns (wavefronts) as one bank has different
//!   words to give. Threads that want one word share it;
//! - a request of 8 bytes for each thread is two of half a warp, and one of 16 bytes four of a quarter: the guide says
//!   so of older cards, and of later ones it is assumed. A matrix of `ldmatrix` or `stmatrix`, eight rows of 16 bytes,
//!   is taken for such a quarter;
//! - a copy by descriptor is one request, whatever its bytes. Of global memory it moves the sectors that its box touches;
//!   shared memory it is assumed to write without conflicts, 128 bytes in a turn.
//!
//! Instructions are PTX's: the assembler makes others of them. It says nothing about caches or time.

use crate::decode::Space;
use crate::matrix::Lanes;
use crate::warp::each;

/// Bytes of a transaction of global memory.
pub const SECTOR: u64 = 32;
/// Bytes of a line of a cache.
pub const LINE: u64 = 128;
/// Banks of shared memory.
pub const BANKS: u64 = 32;
/// Bytes of a word of a bank.
pub const WORD: u64 = 4;

/// What unit executes an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Matrix products.
    Matrix,
    /// Arithmetic of floats.
    Float,
    /// Divisions, roots, exponentials.
    Special,
    /// Integers, comparisons, conversions, moves.
    Integer,
    /// Loads, stores and copies of global memory.
    Global,
    /// Loads and stores of shared memory, and of tensor memory.
    Shared,
    /// Between the threads of a warp.
    Shuffle,
    /// Branches, barriers, waits, fences.
    Control,
}

impl Class {
    /// All of them, in the order of [`Counts::instructions`].
    pub const ALL: [Class; 8] = [
        Class::Matrix,
        Class::Float,
        Class::Special,
        Class::Integer,
        Class::Global,
        Class::Shared,
        Class::Shuffle,
        Class::Control,
    ];

    /// Of an instruction's name, with its modifiers.
    pub(crate) fn of(opcode: &str) -> Class {
        let words: Vec<&str> = opcode.split('.').collect();
        let float = ["f32", "f16", "bf16", "f16x2", "bf16x2"].contains(words.last().unwrap_or(&""));
        match (words[0], words.get(1).copied().unwrap_or("")) {
            ("mma", _) | ("wgmma", "mma_async") | ("tcgen05", "mma") => Class::Matrix,
            ("ld" | "st", "global") => Class::Global,
            ("ld" | "st", "shared") | ("ldmatrix" | "stmatrix", _) | ("tcgen05", "ld" | "st") => Class::Shared,
            ("cp", "async") if ["ca", "cg", "bulk"].contains(&words.get(2).copied().unwrap_or("")) => Class::Global,
            ("shfl" | "redux", _) => Class::Shuffle,
            ("bra" | "ret" | "bar" | "barrier" | "fence" | "cp" | "wgmma" | "tcgen05", _) => Class::Control,
            ("griddepcontrol" | "mbarrier" | "elect" | "setmaxnreg", _) => Class::Control,
            ("ex2" | "rsqrt" | "sqrt" | "div", _) if float => Class::Special,
            ("add" | "sub" | "mul" | "fma" | "abs" | "neg" | "min" | "max", _) if float => Class::Float,
            _ => Class::Integer,
        }
    }

    /// As a report calls it.
    pub fn name(self) -> &'static str {
        match self {
            Class::Matrix => "matrix",
            Class::Float => "float",
            Class::Special => "special",
            Class::Integer => "integer",
            Class::Global => "global",
            Class::Shared => "shared",
            Class::Shuffle => "shuffle",
            Class::Control => "control",
        }
    }
}

/// Requests to global memory in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Instructions of warps of which at least one thread moved a byte.
    pub requests: u64,
    /// Bytes that threads asked for; those that several of a warp want count once.
    pub bytes: u64,
    /// Transactions.
    pub sectors: u64,
    /// Lines of a cache that were looked up.
    pub lines: u64,
}

/// Requests to shared memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Banks {
    /// Instructions of warps.
    pub requests: u64,
    /// Turns, one after the other.
    pub wavefronts: u64,
    /// Turns that they would take without a conflict.
    pub least: u64,
}

/// What some blocks did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Instructions of warps, by [`Class`].
    pub instructions: [u64; Class::ALL.len()],
    /// From global memory, `cp.async` and copies by descriptor too.
    pub loads: Traffic,
    /// To global memory.
    pub stores: Traffic,
    /// Loads and stores of shared memory, and what copies bring there.
    pub shared: Banks,
    /// Bytes that the matrix products of warpgroups and of tensor memory read of shared memory by themselves.
    pub operand_bytes: u64,
}

impl Traffic {
    /// A request; each thread's bytes, at most 16, are aligned.
    pub(crate) fn add(&mut self, accesses: impl Iterator<Item = (u64, usize)>) {
        let (mut all, mut many) = ([(0, 0); 32], 0);
        for access in accesses.filter(|(_, size)| *size > 0) {
            (all[many], many) = (access, many + 1);
        }
        let all = &mut all[..many];
        all.sort_unstable();
        self.requests += u64::from(many > 0);
        let mut last = None;
        let different = all.iter().filter(|(at, _)| last.replace(*at) != Some(*at));
        self.bytes += different.map(|(_, size)| *size as u64).sum::<u64>();
        self.sectors += count_different(all.iter().map(|(at, _)| at / SECTOR));
        self.lines += count_different(all.iter().map(|(at, _)| at / LINE));
    }
}

impl Banks {
    /// A request of threads, by number, each of so many bytes.
    pub(crate) fn add(&mut self, accesses: impl Iterator<Item = (u32, u64)>, bytes: usize) {
        let part = match bytes {
            0..=4 => 32,
            5..=8 => 16,
            _ => 8,
        };
        self.requests += 1;
        let (mut words, mut many, mut now) = ([0; 32], 0, 0);
        for (thread, at) in accesses {
            if thread / part != now {
                self.turn(&mut words[..many]);
                (many, now) = (0, thread / part);
            }
            // What is not aligned stops later.
            for word in 0..bytes.div_ceil(WORD as usize) {
                (words[many], many) = (at / WORD + word as u64, many + 1);
            }
        }
        self.turn(&mut words[..many]);
    }

    /// Words that are wanted at once.
    fn turn(&mut self, words: &mut [u64]) {
        if words.is_empty() {
            return;
        }
        words.sort_unstable();
        let mut wanted = [0u64; BANKS as usize];
        let mut last = None;
        for word in words.iter().filter(|word| last.replace(**word) != Some(**word)) {
            wanted[(word % BANKS) as usize] += 1;
        }
        self.wavefronts += wanted.into_iter().max().unwrap_or(0);
        self.least += 1;
    }
}

/// How many of sorted numbers differ.
fn count_different(numbers: impl Iterator<Item = u64>) -> u64 {
    let mut last = None;
    numbers.filter(|number| last.replace(*number) != Some(*number)).count() as u64
}

impl Counts {
    /// A load or store of the threads of a mask, each of so many bytes.
    pub(crate) fn access(&mut self, space: Space, stores: bool, mask: u32, at: &Lanes, bytes: usize) {
        match space {
            Space::Shared => self.shared.add(each(mask).map(|lane| (lane, at[lane as usize])), bytes),
            Space::Global => {
                let traffic = if stores { &mut self.stores } else { &mut self.loads };
                traffic.add(each(mask).map(|lane| (at[lane as usize], bytes)));
            }
        }
    }

    /// An asynchronous copy, of which each thread reads its `live` bytes and writes all.
    pub(crate) fn copy(&mut self, mask: u32, (to, from): (&Lanes, &Lanes), live: &Lanes, bytes: usize) {
        let read = |lane: u32| (from[lane as usize], bytes.min(live[lane as usize] as usize));
        self.loads.add(each(mask).map(read));
        self.access(Space::Shared, true, mask, to, bytes);
    }

    /// A copy by descriptor, of one request: pieces of global memory, in ascending order, and so many bytes of shared
    /// memory, which it writes in turns of all banks.
    pub(crate) fn transfer(&mut self, pieces: &[(u64, u64)], bytes: u64) {
        let units =
            |unit: u64| count_different(pieces.iter().flat_map(|(at, size)| at / unit..=(at + size - 1) / unit));
        self.loads.requests += u64::from(!pieces.is_empty());
        self.loads.bytes += pieces.iter().map(|(_, size)| size).sum::<u64>();
        self.loads.sectors += units(SECTOR);
        self.loads.lines += units(LINE);
        let turns = bytes.div_ceil(BANKS * WORD);
        self.shared.requests += 1;
        self.shared.wavefronts += turns;
        self.shared.least += turns;
    }

    /// Instructions of all classes.
    pub fn issued(&self) -> u64 {
        self.instructions.iter().sum()
    }

    /// Turns of shared memory that conflicts cost.
    pub fn conflicts(&self) -> u64 {
        self.shared.wavefronts - self.shared.least
    }

    /// Adds so many times what others did.
    pub fn add(&mut self, other: &Counts, times: f64) {
        let from = other.all();
        for (to, from) in self.all_mut().into_iter().zip(from) {
            *to += (from as f64 * times).round() as u64;
        }
    }

    fn all(mut self) -> Vec<u64> {
        self.all_mut().into_iter().map(|number| *number).collect()
    }

    fn all_mut(&mut self) -> Vec<&mut u64> {
        let Counts { instructions, loads, stores, shared, operand_bytes } = self;
        let mut all: Vec<&mut u64> = instructions.iter_mut().collect();
        for Traffic { requests, bytes, sectors, lines } in [loads, stores] {
            all.extend([requests, bytes, sectors, lines]);
        }
        all.extend([&mut shared.requests, &mut shared.wavefronts, &mut shared.least, operand_bytes]);
        all
    }
}
