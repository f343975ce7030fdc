//! The prefix cache's mechanism: publish a committed block, attach one, evict one. Which blocks to try, and which to
//! drop, is policy's business; what may be shared is decided here.

use crate::block::{Block, Parent};
use crate::error::CoreError;
use crate::ids::{BlockId, NO_PAGE, PAGE, RequestId, Token};
use crate::request::Request;
use crate::invariant::*;
use crate::pages::{Page, Pool};
use crate::program::*;
use crate::proof::canonical::*;
use crate::proof::forward::*;
use crate::proof::frame::*;
use crate::proof::reference::*;
use crate::seam::*;
use crate::spec::*;
use crate::state::*;
use vstd::prelude::*;

verus! {

impl<S: Sampler> State<S> {
    pub(crate) fn publish(&mut self, id: RequestId) -> Result<Option<BlockId>, CoreError> {
        let request = self.mutable(id)?;
        let depth = request.chain.len();
        if request.cached / PAGE <= depth {
            return Ok(None);
        }
        if self.next_block == u64::MAX {
            return Err(CoreError::IdentitiesExhausted);
        }
        let slot = self.vacant_block();
        let serial = self.next_block;
        self.next_block = serial + 1;
        let block = BlockId { slot, serial };
        if let Some(mut request) = self.requests[id.slot].take() {
            let pages = self.register_pages(&request, depth, slot);
            self.blocks[slot] = Some(Block {
                serial,
                parent: request.parent(),
                depth,
                tokens: block_tokens(&request.history, depth),
                pages,
            });
            request.chain.push(block);
            self.requests[id.slot] = Some(request);
        }
        Ok(Some(block))
    }

    /// Registers the request's page of this depth in every group, and lists them.
    fn register_pages(&mut self, request: &Request<S::State>, depth: usize, block: usize) -> Vec<i32> {
        let mut pages: Vec<i32> = Vec::with_capacity(self.pools.len());
        let mut group: usize = 0;
        while group < self.pools.len()
            decreases self.pools.len() - group,
        {
            let page = request.tables[group][depth];
            if page != NO_PAGE {
                self.pools[group].register(page as usize, block);
            }
            pages.push(page);
            group += 1;
        }
        pages
    }

    pub(crate) fn attach(&mut self, id: RequestId, block_id: BlockId) -> Result<(), CoreError> {
        let request = self.mutable(id)?;
        let block = match self.block(block_id) {
            None => return Err(CoreError::UnknownBlock { block: block_id }),
            Some(block) => block,
        };
        let depth = request.chain.len();
        if !at_block_boundary(request) {
            return Err(CoreError::NotAtBlockBoundary { cached: request.cached });
        }
        if (request.history.len() - 1) / PAGE <= depth {
            return Err(CoreError::NothingLeftToCompute);
        }
        if block.depth != depth || !same_parent(block.parent, request.parent())
            || !same_tokens(&request.history, depth * PAGE, &block.tokens) {
            return Err(CoreError::BlockMismatch);
        }
        if let Some(mut request) = self.requests[id.slot].take() {
            if let Some(block) = &self.blocks[block_id.slot] {
                let mut group: usize = 0;
                while group < request.tables.len()
                    decreases request.tables.len() - group,
                {
                    request.tables[group].push(block.pages[group]);
                    group += 1;
                }
            }
            request.chain.push(block_id);
            request.cached = (depth + 1) * PAGE;
            self.requests[id.slot] = Some(request);
        }
        Ok(())
    }

    pub(crate) fn evict(&mut self, id: BlockId) -> Result<(), CoreError> {
        let block = match self.block(id) {
            None => return Err(CoreError::UnknownBlock { block: id }),
            Some(block) => block,
        };
        if self.block_in_use(id, block.depth) {
            return Err(CoreError::BlockInUse { block: id });
        }
        if let Some(block) = self.blocks[id.slot].take() {
            let mut group: usize = 0;
            while group < block.pages.len()
                decreases block.pages.len() - group,
            {
                if block.pages[group] != NO_PAGE {
                    self.pools[group].release(block.pages[group] as usize);
                }
                group += 1;
            }
        }
        self.block_slots.push(id.slot);
        Ok(())
    }

    pub(crate) fn evict_page(&mut self, id: BlockId, group: usize) -> Result<(), CoreError> {
        let block = match self.block(id) {
            None => return Err(CoreError::UnknownBlock { block: id }),
            Some(block) => block,
        };
        if group >= self.pools.len() {
            return Err(CoreError::GroupOutOfRange { group });
        }
        if block.pages[group] == NO_PAGE {
            return Err(CoreError::BlockPageMissing { block: id, group });
        }
        if self.page_in_use(id, block.depth, group) {
            return Err(CoreError::BlockInUse { block: id });
        }
        if let Some(mut block) = self.blocks[id.slot].take() {
            self.pools[group].release(block.pages[group] as usize);
            block.pages[group] = NO_PAGE;
            self.blocks[id.slot] = Some(block);
        }
        Ok(())
    }

    /// Whether a request's table has one of the block's pages.
    fn block_in_use(&self, id: BlockId, depth: usize) -> bool {
        let mut group: usize = 0;
        while group < self.pools.len()
            decreases self.pools.len() - group,
        {
            if self.page_in_use(id, depth, group) {
                return true;
            }
            group += 1;
        }
        false
    }
}

/// Whether everything that the request has cached came from its chain, and it has no page of its own.
fn at_block_boundary<T>(request: &Request<T>) -> bool {
    if request.cached != request.chain.len() * PAGE {
        return false;
    }
    let mut group: usize = 0;
    while group < request.tables.len()
        decreases request.tables.len() - group,
    {
        if request.tables[group].len() != request.chain.len() {
            return false;
        }
        group += 1;
    }
    true
}

/// Whether two parents are one.
fn same_parent(a: Parent, b: Parent) -> bool {
    match (a, b) {
        (Parent::Root { salt: x }, Parent::Root { salt: y }) => x == y,
        (Parent::Block { serial: x }, Parent::Block { serial: y }) => x == y,
        _ => false,
    }
}

/// Whether the history goes on with these tokens at `from`.
fn same_tokens(history: &Vec<Token>, from: usize, tokens: &Vec<Token>) -> bool {
    let mut i: usize = 0;
    while i < tokens.len()
        decreases tokens.len() - i,
    {
        if history[from + i] != tokens[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// The history's tokens of the page of this depth.
fn block_tokens(history: &Vec<Token>, depth: usize) -> Vec<Token> {
    let mut tokens: Vec<Token> = Vec::with_capacity(PAGE);
    let mut i: usize = 0;
    while i < PAGE
        decreases PAGE - i,
    {
        tokens.push(history[depth * PAGE + i]);
        i += 1;
    }
    tokens
}

} // verus!
