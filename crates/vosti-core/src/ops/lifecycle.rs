//! Requests come and go: admit, preempt, abort, finish.

use crate::error::CoreError;
use crate::ids::{RequestId, Token};
use crate::request::Request;
use crate::seam::{Device, Sampler};
use crate::state::State;
use vstd::prelude::*;

verus! {

impl<D: Device, S: Sampler<Logits = D::Logits>> State<D, S> {
    pub(crate) fn admit(&mut self, prompt: Vec<Token>, salt: u64, state: S::State) -> Result<RequestId, CoreError> {
        if self.poisoned {
            return Err(CoreError::Poisoned);
        }
        if prompt.len() == 0 {
            return Err(CoreError::EmptyPrompt);
        }
        if prompt.len() >= self.program.context as usize {
            return Err(CoreError::PromptTooLong { tokens: prompt.len(), context: self.program.context });
        }
        if self.next_request == u64::MAX {
            return Err(CoreError::IdentitiesExhausted);
        }
        self.check_tokens(prompt.as_slice())?;
        let serial = self.next_request;
        self.next_request = serial + 1;
        let slot = self.vacant_request();
        let tables = no_tables(self.program.groups.len());
        self.requests[slot] = Some(Request {
            serial,
            salt,
            prompt: prompt.len(),
            history: prompt,
            cached: 0,
            tables,
            chain: Vec::new(),
            done: false,
            planned: None,
            state,
        });
        Ok(RequestId { slot, serial })
    }

    pub(crate) fn preempt(&mut self, id: RequestId) -> Result<(), CoreError> {
        self.mutable(id)?;
        let groups = self.program.groups.len();
        if let Some(mut request) = self.requests[id.slot].take() {
            self.release_all(&request);
            request.tables = no_tables(groups);
            request.chain.clear();
            request.cached = 0;
            self.requests[id.slot] = Some(request);
        }
        Ok(())
    }

    pub(crate) fn abort(&mut self, id: RequestId) -> Result<(), CoreError> {
        self.mutable(id)?;
        self.remove(id);
        Ok(())
    }

    pub(crate) fn finish(&mut self, id: RequestId) -> Result<(), CoreError> {
        let request = self.mutable(id)?;
        if !request.complete(self.program.context) {
            return Err(CoreError::RequestNotComplete { request: id });
        }
        self.remove(id);
        Ok(())
    }

    fn remove(&mut self, id: RequestId) {
        if let Some(request) = self.requests[id.slot].take() {
            self.release_all(&request);
        }
        self.request_slots.push(id.slot);
    }

    fn release_all(&mut self, request: &Request<S::State>) {
        let mut group: usize = 0;
        while group < request.tables.len()
            decreases request.tables.len() - group,
        {
            self.release_own(group, &request.tables[group], request.chain.len());
            group += 1;
        }
    }
}

/// One empty page table per group.
fn no_tables(groups: usize) -> Vec<Vec<i32>> {
    let mut tables: Vec<Vec<i32>> = Vec::with_capacity(groups);
    let mut group: usize = 0;
    while group < groups
        decreases groups - group,
    {
        tables.push(Vec::new());
        group += 1;
    }
    tables
}

} // verus!
