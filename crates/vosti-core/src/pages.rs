//! The pages of one cache group: each is free, owned by one place of one request's table (writable), or registered by
//! one block (immutable, shared). A page knows its owner, so two owners cannot share it.

use vstd::prelude::*;

verus! {

/// Who has a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Page {
    /// Nobody; it stands at this place of the free list.
    Free { at: usize },
    /// The request in this slot, as the page of this index of its table.
    Owned { request: usize, index: usize },
    /// The block in this slot.
    Registered { block: usize },
}

/// The pages of one group.
pub struct Pool {
    pub(crate) pages: Vec<Page>,
    pub(crate) free: Vec<usize>,
}

impl Pool {
    /// All pages free; low page numbers are given out first.
    pub(crate) fn new(count: usize) -> Self {
        let mut pages: Vec<Page> = Vec::with_capacity(count);
        let mut free: Vec<usize> = Vec::with_capacity(count);
        let mut i: usize = 0;
        while i < count
            decreases count - i,
        {
            pages.push(Page::Free { at: count - 1 - i });
            free.push(count - 1 - i);
            i += 1;
        }
        Pool { pages, free }
    }

    /// Gives a free page to a request. There must be one.
    pub(crate) fn take(&mut self, request: usize, index: usize) -> usize {
        let page = self.free[self.free.len() - 1];
        self.free.pop();
        self.pages[page] = Page::Owned { request, index };
        page
    }

    /// Takes a page from whoever has it.
    pub(crate) fn release(&mut self, page: usize) {
        self.pages[page] = Page::Free { at: self.free.len() };
        self.free.push(page);
    }

    /// Makes an owned page a block's.
    pub(crate) fn register(&mut self, page: usize, block: usize) {
        self.pages[page] = Page::Registered { block };
    }
}

} // verus!
