//! Why an operation was refused. Every refusal leaves the state as it was, except [`CoreError::Device`], which also
//! abandons the step.

use crate::ids::{BlockId, RequestId, Token};
use crate::seam::DeviceError;
use vstd::prelude::*;

verus! {

/// What is wrong with a program. `op`, `buffer`, `layer` and `group` are indices into the program's lists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProgramError {
    Empty,
    TooLarge,
    WindowEmpty { group: usize },
    LayerGroup { layer: usize },
    BufferEmpty { buffer: usize },
    KernelOutOfRange { op: usize },
    BufferOutOfRange { op: usize },
    LayerOutOfRange { op: usize },
    NoInput { op: usize },
    NoOutput { op: usize },
    OutputTwice { op: usize },
    OutputIsInput { op: usize },
    RowSetMismatch { op: usize },
    ReadBeforeWrite { op: usize },
    StoredTwice { op: usize },
    AttendBeforeStore { op: usize },
    WindowBeyondGroup { op: usize },
    LogitsBuffer,
    LogitsNeverWritten,
}

/// Why the core refused an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CoreError {
    Program { error: ProgramError },
    Device { error: DeviceError },
    DeviceTooLarge,
    VocabularyMismatch { program: u32, sampler: u32 },
    Poisoned,
    UnknownRequest { request: RequestId },
    UnknownBlock { block: BlockId },
    RequestInStep { request: RequestId },
    StepInFlight,
    NoStep,
    EmptyPrompt,
    PromptTooLong { tokens: usize, context: u32 },
    TokenOutOfRange { token: Token, vocab: u32 },
    IdentitiesExhausted,
    GroupOutOfRange { group: usize },
    NoFreePage { group: usize },
    TableFull { group: usize },
    NotAtBlockBoundary { cached: usize },
    NothingLeftToCompute,
    BlockMismatch,
    BlockInUse { block: BlockId },
    BlockPageMissing { block: BlockId, group: usize },
    RequestComplete { request: RequestId },
    RequestNotComplete { request: RequestId },
    RowsOutOfRange { rows: usize, left: usize },
    DraftsNotAtEnd,
    DraftsBeyondContext { drafts: usize },
    RowCapacity { rows: usize, left: usize },
    SelectedCapacity { selected: usize, left: usize },
    PageMissing { group: usize, page: usize },
}

impl ProgramError {
    /// One line for a person: what is wrong and what to do.
    pub fn advice(&self) -> &'static str {
        match self {
            ProgramError::Empty => "the program has no op, buffer, group, layer, kernel, vocabulary or context: build it from a complete model configuration",
            ProgramError::TooLarge => "the program's context or lists exceed 2^31 - 1: lower the context",
            ProgramError::WindowEmpty { .. } => "a window of 0 keys sees nothing: use no window, or at least 1",
            ProgramError::LayerGroup { .. } => "a layer names a cache group that does not exist: declare the group",
            ProgramError::BufferEmpty { .. } => "a buffer has width 0: check the model dimensions",
            ProgramError::KernelOutOfRange { .. } => "an op names a kernel binding that does not exist: declare the binding",
            ProgramError::BufferOutOfRange { .. } => "an op names a buffer that does not exist: declare the buffer",
            ProgramError::LayerOutOfRange { .. } => "an op names a cache layer that does not exist: declare the layer",
            ProgramError::NoInput { .. } => "an op reads no buffer: name its inputs",
            ProgramError::NoOutput { .. } => "a row-wise op writes no buffer: name its outputs",
            ProgramError::OutputTwice { .. } => "an op writes one buffer twice: give each output its own buffer",
            ProgramError::OutputIsInput { .. } => "an op writes a buffer that it reads: give the output its own buffer",
            ProgramError::RowSetMismatch { .. } => "an op mixes row sets: only a Selected op may read All buffers, and outputs have the op's row set",
            ProgramError::ReadBeforeWrite { .. } => "an op reads a buffer that no earlier op wrote: reorder the ops",
            ProgramError::StoredTwice { .. } => "two ops store KV to one layer: give each its own layer",
            ProgramError::AttendBeforeStore { .. } => "an op attends to a layer before its KV is stored: store first",
            ProgramError::WindowBeyondGroup { .. } => "an op attends or looks back beyond its cache group's window: use a group with that window",
            ProgramError::LogitsBuffer => "the logits buffer must be F32, Selected and as wide as the vocabulary",
            ProgramError::LogitsNeverWritten => "no op writes the logits buffer: end the program with the lm head",
        }
    }
}

impl CoreError {
    /// One line for a person: what is wrong and what to do.
    pub fn advice(&self) -> &'static str {
        match self {
            CoreError::Program { error } => error.advice(),
            CoreError::Device { .. } => "the device failed a step: the step was abandoned and may be planned again",
            CoreError::DeviceTooLarge => "the device offers more rows or pages than 32-bit metadata can name, or none: configure between 1 page and 2^31 slots per group",
            CoreError::VocabularyMismatch { .. } => "the sampler's vocabulary is not the program's: build both from one configuration",
            CoreError::Poisoned => "the device failed and its cache is unknown: build a new core",
            CoreError::UnknownRequest { .. } => "no such request: it finished, was aborted, or was never admitted",
            CoreError::UnknownBlock { .. } => "no such block: it was evicted or never published",
            CoreError::RequestInStep { .. } => "the request is part of the step in flight: commit or cancel the step first",
            CoreError::StepInFlight => "a step is in flight: commit or cancel it first",
            CoreError::NoStep => "no step is at this stage: begin, plan at least one row, run, then commit",
            CoreError::EmptyPrompt => "the prompt is empty: send at least one token",
            CoreError::PromptTooLong { .. } => "the prompt fills the context: shorten it by at least one token",
            CoreError::TokenOutOfRange { .. } => "a token is outside the vocabulary: tokenize with the model's own tokenizer",
            CoreError::IdentitiesExhausted => "2^64 identities were given out: start a new core",
            CoreError::GroupOutOfRange { .. } => "no such cache group: use a group of the program",
            CoreError::NoFreePage { .. } => "no page is free: evict a block or preempt a request",
            CoreError::TableFull { .. } => "the request's page table covers the whole context: it needs no more pages",
            CoreError::NotAtBlockBoundary { .. } => "the request has pages or cached positions of its own: attach before taking pages",
            CoreError::NothingLeftToCompute => "the block would leave no position to compute: stop one block earlier",
            CoreError::BlockMismatch => "the block does not continue this request's prefix: tokens, depth or parent differ",
            CoreError::BlockInUse { .. } => "a request still reads the block: evict another, or preempt that request",
            CoreError::BlockPageMissing { .. } => "the block holds no page in that group",
            CoreError::RequestComplete { .. } => "the request is complete: finish it",
            CoreError::RequestNotComplete { .. } => "the request is not complete: run it to its end, or abort it",
            CoreError::RowsOutOfRange { .. } => "plan at least one row and no more than the history has left",
            CoreError::DraftsNotAtEnd => "drafts need the row of the last token of the history in the same step",
            CoreError::DraftsBeyondContext { .. } => "the drafts would pass the end of the context: send fewer",
            CoreError::RowCapacity { .. } => "the step's rows exceed what the device takes: plan fewer rows",
            CoreError::SelectedCapacity { .. } => "the step's logits rows exceed what the device takes: select fewer rows",
            CoreError::PageMissing { .. } => "a page that these rows read or write is missing: take pages first, or preempt the request",
        }
    }
}

} // verus!
