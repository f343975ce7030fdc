//! Identities and the page size. An identity is a slot, where to look, and a serial that is never reused, so a stale or
//! forged identity is recognised and refused.

use vstd::prelude::*;

verus! {

/// A token of the model's vocabulary.
pub type Token = u32;

/// Tokens per page, in every cache group.
pub const PAGE: usize = 64;

/// The table entry of a logical page that holds no physical page.
pub const NO_PAGE: i32 = -1;

/// A request that the core has admitted. Its serial is never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId {
    /// The index of its state. Another request may take the slot later.
    pub slot: usize,
    /// The number of the admission.
    pub serial: u64,
}

/// A published block: one page of tokens at one depth of one chain of blocks. Its serial is never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockId {
    /// The index of its entry. Another block may take the slot later.
    pub slot: usize,
    /// The number of the publication.
    pub serial: u64,
}

} // verus!
