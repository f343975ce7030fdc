//! A request's own pages: take one, release those behind the window.

use crate::error::CoreError;
use crate::ids::{NO_PAGE, PAGE, RequestId};
use crate::seam::{Device, Sampler};
use crate::state::State;
use vstd::prelude::*;

verus! {

impl<D: Device, S: Sampler<Logits = D::Logits>> State<D, S> {
    pub(crate) fn take_page(&mut self, id: RequestId, group: usize) -> Result<(), CoreError> {
        let request = self.mutable(id)?;
        if group >= self.pools.len() {
            return Err(CoreError::GroupOutOfRange { group });
        }
        let index = request.tables[group].len();
        if index >= pages_for(self.program.context) {
            return Err(CoreError::TableFull { group });
        }
        if self.pools[group].free.len() == 0 {
            return Err(CoreError::NoFreePage { group });
        }
        let page = self.pools[group].take(id.slot, index);
        if let Some(mut request) = self.requests[id.slot].take() {
            request.tables[group].push(page as i32);
            self.requests[id.slot] = Some(request);
        }
        Ok(())
    }

    pub(crate) fn release_behind(&mut self, id: RequestId, group: usize) -> Result<usize, CoreError> {
        let request = self.mutable(id)?;
        if group >= self.pools.len() {
            return Err(CoreError::GroupOutOfRange { group });
        }
        let end = request.first_page(&self.program.groups[group]);
        let mut released: usize = 0;
        if let Some(mut request) = self.requests[id.slot].take() {
            let mut page: usize = 0;
            while page < end && page < request.tables[group].len()
                decreases end - page,
            {
                if request.tables[group][page] != NO_PAGE {
                    if page >= request.chain.len() {
                        self.pools[group].release(request.tables[group][page] as usize);
                    }
                    request.tables[group][page] = NO_PAGE;
                    released += 1;
                }
                page += 1;
            }
            self.requests[id.slot] = Some(request);
        }
        Ok(released)
    }
}

/// Pages that cover a context.
pub(crate) fn pages_for(context: u32) -> usize {
    (context as usize - 1) / PAGE + 1
}

} // verus!
