//! Counts of the engine's events: evidence for `vosti check`, metrics for the server.

/// Totals since the engine was made. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Device steps run.
    pub steps: u64,
    /// Rows computed, drafts included.
    pub rows: u64,
    /// Largest number of rows in one step.
    pub rows_step_max: u64,
    /// Largest number of sequences in one step.
    pub sequences_step_max: u64,
    /// Rows that computed positions of a prompt or recomputed a history (all but the newest row).
    pub prefill_rows: u64,
    /// Prefill chunks: times a sequence took part in a step without reaching the end of its history.
    pub partial_chunks: u64,
    /// Tokens given out.
    pub tokens: u64,
    /// Requests accepted by `submit`.
    pub requests: u64,
    /// Sequences (choices) that reached their own end.
    pub finished: u64,
    /// Sequences that were aborted.
    pub aborted: u64,
    /// Prompt tokens looked up in the prefix cache, once for each sequence: a start after a preemption adds none.
    pub prefix_query_tokens: u64,
    /// Those of `prefix_query_tokens` that were found.
    pub prefix_hit_tokens: u64,
    /// Prefix hits: times a sequence attached at least one block, at a start after a preemption too.
    pub prefix_hits: u64,
    /// Blocks registered in the prefix cache.
    pub published: u64,
    /// Evictions: of a whole block, or of a block's page in one group with a window.
    pub evictions: u64,
    /// Pages with a state at their end that were evicted.
    pub states_evicted: u64,
    /// Times a sequence attached blocks, and with them the state at the end of the last one.
    pub states_attached: u64,
    /// Sequences that lost their pages and will recompute.
    pub preemptions: u64,
    /// Positions that were computed, lost in a preemption and not found in the cache at the next start.
    pub positions_lost: u64,
    /// Page-table entries released behind a sliding window.
    pub released_behind: u64,
    /// Draft tokens that the device computed.
    pub drafts_proposed: u64,
    /// Draft tokens that the sampler chose too.
    pub drafts_accepted: u64,
}
