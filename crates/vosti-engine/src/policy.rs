//! The settings of the scheduler. Every setting gives the same bits; settings change only speed and memory.
//!
//! `vosti check` and the simulator vary all of them: a result that depends on one is a bug.

use crate::EngineError;

/// The order in which planning considers sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// By turn: the default. A sequence's turn is the number of rows that the engine had computed when the sequence arrived, and
    /// its own rows. So a short prompt overtakes a long one, but only while the engine computes as many rows as the long one
    /// has: no request waits for ever.
    Turn,
    /// Newest first.
    Lifo,
    /// A new order every step, a function of this seed, the step and the sequence.
    Random(u64),
}

/// Whether and how draft tokens are proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speculation {
    /// No drafts: each step computes one token of a sequence.
    Off,
    /// Prompt lookup: the tokens that followed the latest earlier occurrence of the last `ngram_max` down to
    /// `ngram_min` tokens, at most `drafts_max` of them.
    Ngram {
        /// Fewest tokens that must match.
        ngram_min: usize,
        /// Most tokens that are matched.
        ngram_max: usize,
        /// Most tokens proposed at once.
        drafts_max: usize,
    },
}

impl Speculation {
    /// Prompt lookup with the settings that `--speculate` uses.
    pub const NGRAM: Self = Self::Ngram { ngram_min: 2, ngram_max: 4, drafts_max: 6 };
}

/// The scheduler's settings. The server uses `Default`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Rows per step, at least 1. The device's own limit applies as well.
    pub rows_step_max: usize,
    /// Rows per step in which a sequence decodes, at least 1: its next token waits for all rows of the step.
    pub rows_mixed_max: usize,
    /// Rows of one sequence in one step (chunk of prefill), at least 1.
    pub rows_sequence_max: usize,
    /// Sequences that hold pages at the same time, at least 1.
    pub running_max: usize,
    /// The order of running sequences, of waiting ones, and of preemption (the last in the order first).
    pub order: Order,
    /// Reuse and register prefixes. Off: every sequence computes all of its positions.
    pub prefix_cache: bool,
    /// Evict unreferenced blocks, least recently used leaf first, when pages run out. Off: blocks stay until
    /// `Engine::evict_all`, and a sequence that does not fit waits or is preempted. A block is then evicted only if no
    /// sequence could make progress otherwise.
    pub eviction: bool,
    /// How tokens are drafted for sequences that decode.
    pub speculation: Speculation,
    /// Decoding sequences get rows of a step first, and prefill chunks the rest.
    pub decode_first: bool,
    /// Most waiting choices; beyond it `submit` refuses a request with `EngineError::QueueFull`.
    pub waiting_max: usize,
}

impl Policy {
    /// Every limit at least 1.
    pub(crate) fn check(&self) -> Result<(), EngineError> {
        let limits = [
            ("rows_step_max", self.rows_step_max),
            ("rows_mixed_max", self.rows_mixed_max),
            ("rows_sequence_max", self.rows_sequence_max),
            ("running_max", self.running_max),
            ("waiting_max", self.waiting_max),
        ];
        match limits.into_iter().find(|(_, limit)| *limit == 0) {
            Some((what, _)) => Err(EngineError::PolicyZero { what }),
            None => Ok(()),
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            rows_step_max: 512,
            rows_mixed_max: usize::MAX,
            rows_sequence_max: usize::MAX,
            running_max: 64,
            order: Order::Turn,
            prefix_cache: true,
            eviction: true,
            speculation: Speculation::Off,
            decode_first: true,
            waiting_max: usize::MAX,
        }
    }
}
