//! A step plan, the input of a device's run: packed rows, one contiguous run per request. Only the core makes plans.

use crate::ids::{RequestId, Token};
use vstd::prelude::*;

verus! {

/// Which rows of a sequence feed logits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Select {
    /// The rows that emit: the last row of the history, and the drafts; no row if the history goes on after these rows. The
    /// part of them that the sampler reads is brought to the host: the rows, their largest logits, or a token of each.
    Last,
    /// The same rows, but whole rows are always brought to the host, to show what each token was chosen from.
    Shown,
    /// All rows, brought to the host, for prompt log-probabilities.
    All,
}

/// By what a device draws a token from a row of logits: three FP32 numbers, as their bits. They mean nothing to the core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Draw {
    /// The factor of the row's logits.
    pub scale: u32,
    /// The number that picks a part of the row.
    pub part: u32,
    /// The number that picks a token in it.
    pub within: u32,
}

/// The part of a row of logits that a sampler's choice reads, or that is on the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reads {
    /// The row's best token only.
    Best,
    /// The list of the row's largest logits.
    Top,
    /// The token that the device draws from the row by these numbers.
    Drawn(Draw),
    /// The whole row.
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
    /// The number of its drafts, which are its last rows.
    pub drafts: usize,
    /// The index of its first selected row among all selected rows of the step.
    pub first_selected: usize,
    /// The number of its selected rows, which are its last rows.
    pub selected: usize,
    /// Whether the lists of its selected rows' largest logits are brought to the host.
    pub top: bool,
    /// The numbers by which the device draws a token from each of its selected rows; none if it draws none.
    pub draws: Vec<Draw>,
    /// Whether its selected rows are brought to the host, and not only their best tokens.
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

    /// Removes the rows and keeps the memory.
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

    /// The number of rows.
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
