//! A step plan, the input of a device's run: packed rows, one contiguous run per request. Only the core makes plans.

use crate::ids::{RequestId, Token};
use vstd::prelude::*;

verus! {

/// Which rows of a sequence feed logits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Select {
    /// Those that emit: the last row of the history and the drafts. None while the history goes on after these rows. What
    /// the sampler reads of them is brought to the host: the rows, their largest logits or their best tokens.
    Last,
    /// The same rows, brought to the host in any case, for whoever wants to see what was chosen from.
    Shown,
    /// All of them, brought to the host, for prompt log-probabilities.
    All,
}

/// What is read of a row of logits: by a sampler's choice, or on the host at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reads {
    /// Its best token alone.
    Best,
    /// The list of its largest logits.
    Top,
    /// All of it.
    Row,
}

/// The rows of one request.
pub struct SeqPlan {
    /// The request whose rows these are.
    pub request: RequestId,
    /// Its first packed row.
    pub first_row: usize,
    /// Its rows, drafts included.
    pub rows: usize,
    /// The position of its first row; the others follow.
    pub first_position: usize,
    /// How many of its rows are drafts: the last ones.
    pub drafts: usize,
    /// Its first row among the selected ones, and how many it has there: always its last rows.
    pub first_selected: usize,
    /// How many selected rows it has.
    pub selected: usize,
    /// The lists of its selected rows' largest logits are brought to the host.
    pub top: bool,
    /// Its selected rows are brought to the host, not only their best tokens.
    pub whole: bool,
    /// Whether its rows reach the end of the history, so that a token is sampled.
    pub emits: bool,
    /// Per group, the page number of each logical page, or `NO_PAGE`. The slot of position p in group g is
    /// `tables[g][p / PAGE] * PAGE + p % PAGE`.
    pub tables: Vec<Vec<i32>>,
}

/// One step.
pub struct StepPlan {
    pub(crate) tokens: Vec<Token>,
    pub(crate) positions: Vec<u32>,
    pub(crate) selected: Vec<u32>,
    pub(crate) sequences: Vec<SeqPlan>,
}

impl StepPlan {
    pub open(crate) spec fn is_empty(self) -> bool {
        self.sequences@.len() == 0
    }

    pub open(crate) spec fn spec_tokens(self) -> Seq<Token> {
        self.tokens@
    }

    pub open(crate) spec fn spec_positions(self) -> Seq<u32> {
        self.positions@
    }

    pub open(crate) spec fn spec_selected(self) -> Seq<u32> {
        self.selected@
    }

    pub open(crate) spec fn spec_sequences(self) -> Seq<SeqPlan> {
        self.sequences@
    }

    pub(crate) fn empty() -> (plan: Self)
        ensures plan.tokens@.len() == 0, plan.positions@.len() == 0, plan.selected@.len() == 0, plan.sequences@.len() == 0,
    {
        StepPlan { tokens: Vec::new(), positions: Vec::new(), selected: Vec::new(), sequences: Vec::new() }
    }

    /// Forgets the rows and keeps the memory.
    pub(crate) fn clear(&mut self)
        ensures
            final(self).tokens@.len() == 0, final(self).positions@.len() == 0,
            final(self).selected@.len() == 0, final(self).sequences@.len() == 0,
    {
        self.tokens.clear();
        self.positions.clear();
        self.selected.clear();
        self.sequences.clear();
    }

    /// How many rows there are.
    pub fn rows(&self) -> (n: usize)
        ensures n == self.spec_tokens().len(),
    {
        self.tokens.len()
    }

    /// The token of each row.
    pub fn tokens(&self) -> (tokens: &[Token])
        ensures tokens@ == self.spec_tokens(),
    {
        self.tokens.as_slice()
    }

    /// The position of each row in its request.
    pub fn positions(&self) -> (positions: &[u32])
        ensures positions@ == self.spec_positions(),
    {
        self.positions.as_slice()
    }

    /// The packed rows that feed logits, ascending.
    pub fn selected(&self) -> (rows: &[u32])
        ensures rows@ == self.spec_selected(),
    {
        self.selected.as_slice()
    }

    /// One per request: contiguous rows in order, which cover all rows.
    pub fn sequences(&self) -> (sequences: &[SeqPlan])
        ensures sequences@ == self.spec_sequences(),
    {
        self.sequences.as_slice()
    }
}

} // verus!
