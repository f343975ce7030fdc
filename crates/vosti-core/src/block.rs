//! A published block: one page of tokens at one place of a chain, and the physical pages that hold its KV. It is immutable; a
//! request attaches it after the core compared its tokens, its depth and its parent's identity.

use crate::ids::{NO_PAGE, Token};
use vstd::prelude::*;

verus! {

/// The predecessor of a block.
#[allow(missing_docs, reason = "each line names its field")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parent {
    /// None: the block is the first of a chain, in the tenant with this salt.
    Root { salt: u64 },
    /// The block with this never-reused serial.
    Block { serial: u64 },
}

/// A published block.
pub struct Block {
    pub(crate) serial: u64,
    pub(crate) parent: Parent,
    pub(crate) depth: usize,
    pub(crate) tokens: Vec<Token>,
    pub(crate) pages: Vec<i32>,
}

impl Block {
    pub open(crate) spec fn spec_parent(self) -> Parent {
        self.parent
    }

    pub open(crate) spec fn spec_depth(self) -> nat {
        self.depth as nat
    }

    pub open(crate) spec fn spec_tokens(self) -> Seq<Token> {
        self.tokens@
    }

    pub open(crate) spec fn spec_pages(self) -> Seq<i32> {
        self.pages@
    }

    /// The serial of the block before it, or the salt of its tenant.
    pub fn parent(&self) -> (parent: Parent)
        ensures parent == self.spec_parent(),
    {
        self.parent
    }

    /// Blocks before it in its chain.
    pub fn depth(&self) -> (depth: usize)
        ensures depth == self.spec_depth(),
    {
        self.depth
    }

    /// Its `PAGE` tokens.
    pub fn tokens(&self) -> (tokens: &[Token])
        ensures tokens@ == self.spec_tokens(),
    {
        self.tokens.as_slice()
    }

    /// Its physical page in each group, or `NO_PAGE`.
    pub fn pages(&self) -> (pages: &[i32])
        ensures pages@ == self.spec_pages(),
    {
        self.pages.as_slice()
    }

    /// Whether it holds a page in this group.
    pub fn has_page(&self, group: usize) -> (yes: bool)
        ensures yes <==> group < self.spec_pages().len() && self.spec_pages()[group as int] != NO_PAGE,
    {
        group < self.pages.len() && self.pages[group] != NO_PAGE
    }
}

} // verus!
