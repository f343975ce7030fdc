//! The pages of one cache group: each is free, owned by one place of one request's table (writable), or registered by
//! one block (immutable, shared). A page knows its owner, so two owners cannot share it.

use vstd::prelude::*;

verus! {

/// The owner of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Page {
    /// No owner: the page is at this index of the free list.
    Free { at: usize },
    /// The request in this slot: the page is at this index of its table.
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
    /// The free list holds exactly the free pages, each once.
    pub open(crate) spec fn wf(self) -> bool {
        &&& forall|i: int| 0 <= i < self.free@.len() ==> 0 <= #[trigger] self.free@[i] < self.pages@.len()
                && self.pages@[self.free@[i] as int] == (Page::Free { at: i as usize })
        &&& forall|p: int| 0 <= p < self.pages@.len() && (#[trigger] self.pages@[p]) is Free
                ==> self.pages@[p]->at < self.free@.len() && self.free@[self.pages@[p]->at as int] == p
    }

    /// All pages free; low page numbers are given out first.
    pub(crate) fn new(count: usize) -> (pool: Self)
        ensures
            pool.wf(), pool.pages@.len() == count, pool.free@.len() == count,
            forall|p: int| 0 <= p < count ==> (#[trigger] pool.pages@[p]) is Free,
    {
        let mut pages: Vec<Page> = Vec::with_capacity(count);
        let mut free: Vec<usize> = Vec::with_capacity(count);
        let mut i: usize = 0;
        while i < count
            invariant
                i <= count, pages@.len() == i, free@.len() == i,
                forall|p: int| 0 <= p < i ==> #[trigger] pages@[p] == (Page::Free { at: (count - 1 - p) as usize }),
                forall|j: int| 0 <= j < i ==> #[trigger] free@[j] == count - 1 - j,
            decreases count - i,
        {
            pages.push(Page::Free { at: count - 1 - i });
            free.push(count - 1 - i);
            i += 1;
        }
        Pool { pages, free }
    }

    /// Gives a free page to a request. There must be one.
    pub(crate) fn take(&mut self, request: usize, index: usize) -> (page: usize)
        requires old(self).wf(), old(self).free@.len() > 0,
        ensures
            final(self).wf(), page < old(self).pages@.len(), old(self).pages@[page as int] is Free,
            final(self).pages@ == old(self).pages@.update(page as int, Page::Owned { request, index }),
            final(self).free@ == old(self).free@.drop_last(),
    {
        let page = self.free[self.free.len() - 1];
        self.free.pop();
        self.pages[page] = Page::Owned { request, index };
        page
    }

    /// Frees a page that has an owner.
    pub(crate) fn release(&mut self, page: usize)
        requires old(self).wf(), page < old(self).pages@.len(), !(old(self).pages@[page as int] is Free),
        ensures
            final(self).wf(), final(self).free@ == old(self).free@.push(page),
            final(self).pages@ == old(self).pages@.update(page as int, Page::Free { at: old(self).free@.len() as usize }),
    {
        self.pages[page] = Page::Free { at: self.free.len() };
        self.free.push(page);
    }

    /// Makes a page of a request a page of a block.
    pub(crate) fn register(&mut self, page: usize, block: usize)
        requires old(self).wf(), page < old(self).pages@.len(), old(self).pages@[page as int] is Owned,
        ensures
            final(self).wf(), final(self).free@ == old(self).free@,
            final(self).pages@ == old(self).pages@.update(page as int, Page::Registered { block }),
    {
        self.pages[page] = Page::Registered { block };
    }
}

} // verus!
