//! Why a text cannot be read, or an execution stops.

use thiserror::Error;

/// A text that is not in the part of PTX that is known here. Nothing is guessed: an unknown instruction is one of these.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("PTX line {line}: {why}")]
pub struct ReadError {
    /// The line of the text; 0 for its head.
    pub line: u32,
    /// What was found there.
    pub why: String,
}

/// Where an execution stopped, and why.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("block {block:?}, thread {thread}, PTX line {line}: {fault}")]
pub struct RunError {
    /// The block, on each axis of the grid.
    pub block: [u32; 3],
    /// The first thread of those that stopped.
    pub thread: u32,
    /// The line of the text.
    pub line: u32,
    /// What went wrong.
    pub fault: Fault,
}

/// What a GPU would not report: it would compute something.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum Fault {
    #[error("{what} depends on something that was never written")]
    Poison { what: &'static str },
    #[error("global memory at {at:#x}: {why}")]
    Global { at: u64, why: String },
    #[error("shared memory at {at:#x}: a block has {bytes} bytes")]
    Shared { at: u64, bytes: usize },
    #[error("an access of {bytes} bytes at {at:#x}, which is no multiple of that")]
    Misaligned { at: u64, bytes: usize },
    #[error("a copy of {live} bytes into room for {bytes}")]
    Copy { live: usize, bytes: usize },
    #[error("a race at shared byte {at:#x}: {this} here, and {other} by thread {by}, with no barrier between")]
    Race { at: u64, this: &'static str, other: &'static str, by: u32 },
    #[error("shared byte {at:#x} is used while a copy to it is under way")]
    UnderWay { at: u64 },
    #[error("{what} is used without a `wgmma.fence` behind the instruction that wrote it")]
    Unfenced { what: &'static str },
    #[error("shared byte {at:#x} was {how} by thread {by}, with no `fence.proxy.async` of that thread behind it")]
    Proxy { at: u64, how: &'static str, by: u32 },
    #[error("no mbarrier is at {at:#x}")]
    NoCounter { at: u64 },
    #[error("`mbarrier.init` at {at:#x}, where a valid mbarrier is")]
    Again { at: u64 },
    #[error("the mbarrier at {at:#x} is used as memory")]
    Counter { at: u64 },
    #[error("a count or parity of the mbarrier at {at:#x} is out of range")]
    Range { at: u64 },
    #[error("the mbarrier at {at:#x} expects {expected} arrivals, and one more comes")]
    Arrival { at: u64, expected: u64 },
    #[error("the mbarrier at {at:#x} was told of {told} bytes in a phase, and {came} came")]
    Bytes { at: u64, told: u64, came: u64 },
    #[error("nobody ends this wait for the mbarrier at {at:#x}")]
    Forever { at: u64 },
    #[error("a phase of the mbarrier at {at:#x} ends, and nobody has waited for the one before it")]
    Unnoticed { at: u64 },
    #[error("nobody has waited for a copy that the mbarrier at {at:#x} counts")]
    Unawaited { at: u64 },
    #[error(
        "shared byte {at:#x} is used by several threads, whose order by arrivals or barriers of some warps is not known"
    )]
    Parted { at: u64 },
    #[error("no tensor map is at {at:#x}")]
    NoMap { at: u64 },
    #[error("shared memory at {at:#x} was changed while a matrix product was reading it")]
    Changed { at: u64 },
    #[error("tensor memory, lane {lane}, column {column}: {why}")]
    Tensor { lane: u32, column: u32, why: &'static str },
    #[error("{columns} columns of tensor memory: {why}")]
    Columns { columns: u32, why: &'static str },
    #[error("nobody has waited for this matrix product")]
    Unended,
    #[error("a descriptor {descriptor:#x} of a form that is not known")]
    Descriptor { descriptor: u64 },
    #[error("{what} with no `griddepcontrol.wait` of that thread before it")]
    Early { what: &'static str },
    #[error("a divergent `{what}`: not all threads of the warp execute it")]
    Divergent { what: &'static str },
    #[error("a divergent barrier: not all threads of the block reach it")]
    Barrier,
    #[error("an instruction that needs whole warps, in a block of {threads} threads")]
    PartialWarp { threads: u32 },
    #[error("a launch without {what}")]
    Launch { what: &'static str },
    #[error("more than {max} instructions of one warp")]
    Steps { max: u64 },
    #[error("the code ends without `ret`")]
    End,
}
