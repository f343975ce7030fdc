//! A request: its history, how much of it is cached, and where.

use crate::block::Parent;
use crate::ids::{BlockId, NO_PAGE, PAGE, Token};
use crate::program::*;
use vstd::prelude::*;

verus! {

/// A live request. `T` is the sampler's state.
pub struct Request<T> {
    pub(crate) serial: u64,
    pub(crate) salt: u64,
    pub(crate) prompt: usize,
    pub(crate) history: Vec<Token>,
    pub(crate) cached: usize,
    /// Per group, the physical page of each logical page, or `NO_PAGE`. The first `chain.len()` are blocks' pages, the
    /// rest are the request's own.
    pub(crate) tables: Vec<Vec<i32>>,
    /// The blocks of the attached or published part of the prefix, in order.
    pub(crate) chain: Vec<BlockId>,
    /// Whether the sampler ended the request.
    pub(crate) done: bool,
    /// The index of the request's sequence in the step in flight.
    pub(crate) planned: Option<usize>,
    pub(crate) state: T,
}

impl<T> Request<T> {

    pub open(crate) spec fn spec_history(self) -> Seq<Token> {
        self.history@
    }

    pub open(crate) spec fn spec_prompt_len(self) -> nat {
        self.prompt as nat
    }

    pub open(crate) spec fn spec_salt(self) -> u64 {
        self.salt
    }

    pub open(crate) spec fn spec_cached(self) -> nat {
        self.cached as nat
    }

    pub open(crate) spec fn spec_table(self, group: int) -> Seq<i32> {
        if 0 <= group < self.tables@.len() { self.tables@[group]@ } else { Seq::empty() }
    }

    pub open(crate) spec fn spec_chain(self) -> Seq<BlockId> {
        self.chain@
    }

    pub open(crate) spec fn spec_done(self) -> bool {
        self.done
    }

    pub open(crate) spec fn spec_in_step(self) -> bool {
        self.planned is Some
    }

    pub open(crate) spec fn spec_sampler_state(self) -> T {
        self.state
    }

    /// Prompt and emitted tokens.
    pub fn history(&self) -> (tokens: &[Token])
        ensures tokens@ == self.spec_history(),
    {
        self.history.as_slice()
    }

    /// Length of the prompt.
    pub fn prompt_len(&self) -> (n: usize)
        ensures n == self.spec_prompt_len(),
    {
        self.prompt
    }

    /// The tenant's salt.
    pub fn salt(&self) -> (salt: u64)
        ensures salt == self.spec_salt(),
    {
        self.salt
    }

    /// Positions whose KV is in the cache: the next step of the request starts here. Always below the history's length.
    pub fn cached(&self) -> (n: usize)
        ensures n == self.spec_cached(),
    {
        self.cached
    }

    /// The page table of a group; empty if there is no such group.
    pub fn table(&self, group: usize) -> (table: &[i32])
        ensures table@ == self.spec_table(group as int),
    {
        if group < self.tables.len() {
            self.tables[group].as_slice()
        } else {
            let none: &[i32] = &[];
            proof { assert(none@ =~= Seq::empty()); }
            none
        }
    }

    /// The published or attached blocks of its prefix, in order.
    pub fn chain(&self) -> (blocks: &[BlockId])
        ensures blocks@ == self.spec_chain(),
    {
        self.chain.as_slice()
    }

    /// Whether the sampler ended it.
    pub fn done(&self) -> (yes: bool)
        ensures yes == self.spec_done(),
    {
        self.done
    }

    /// Whether it is part of the step in flight.
    pub fn in_step(&self) -> (yes: bool)
        ensures yes == self.spec_in_step(),
    {
        self.planned.is_some()
    }

    /// The sampler's state.
    pub fn state(&self) -> (state: &T)
        ensures *state == self.spec_sampler_state(),
    {
        &self.state
    }

    /// What a block must name as its parent to come next in this request's chain.
    pub fn parent(&self) -> (parent: Parent)
        ensures parent == self.chain_parent(),
    {
        if self.chain.len() == 0 {
            Parent::Root { salt: self.salt }
        } else {
            Parent::Block { serial: self.chain[self.chain.len() - 1].serial }
        }
    }

    /// Nothing is left to emit: the sampler ended it or its history fills the context.
    pub(crate) fn complete(&self, context: u32) -> (yes: bool)
        ensures yes == self.is_complete(context),
    {
        self.done || self.history.len() >= context as usize
    }

    /// The first logical page that positions from `cached` on may read in a group.
    pub(crate) fn first_page(&self, decl: &GroupDecl) -> (page: usize)
        requires decl.window != Some(0u32),
        ensures page == self.window_page(*decl), page <= self.cached / PAGE,
    {
        window_start(decl.window, self.cached) / PAGE
    }

    /// A logical page, from the window's first to the one of position `end - 1`, that is missing in a group.
    pub(crate) fn missing_page(&self, group: usize, decl: &GroupDecl, end: usize) -> (missing: Option<usize>)
        requires group < self.tables@.len(), decl.window != Some(0u32), self.cached < end,
        ensures missing is None <==> self.covers(group as int, *decl, end as int),
    {
        let last = (end - 1) / PAGE;
        let mut page = self.first_page(decl);
        while page <= last
            invariant
                group < self.tables@.len(), self.window_page(*decl) <= page <= last + 1, last == (end - 1) / PAGE as int, last < usize::MAX,
                forall|i: int| self.window_page(*decl) <= i < page ==> #[trigger] self.has_page(group as int, i),
            decreases last + 1 - page,
        {
            proof { assert(self.window_page(*decl) <= page); }
            if page >= self.tables[group].len() || self.tables[group][page] == NO_PAGE {
                proof { assert(!self.has_page(group as int, page as int)); }
                return Some(page);
            }
            page += 1;
        }
        None
    }

    /// Whether a group's table has the page of this index and `block` stands at this place of the chain.
    pub(crate) fn holds(&self, block: BlockId, depth: usize, group: usize) -> (yes: bool)
        ensures yes == self.holds_page(block, depth as int, group as int),
    {
        depth < self.chain.len() && self.chain[depth].slot == block.slot && self.chain[depth].serial == block.serial
            && group < self.tables.len() && depth < self.tables[group].len() && self.tables[group][depth] != NO_PAGE
    }
}

} // verus!
