//! The end of a step: sample where histories end, accept drafts that came true, cache what was computed.

use crate::error::CoreError;
use crate::ids::{RequestId, Token};
use crate::plan::StepPlan;
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

/// One token that left the core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    pub request: RequestId,
    pub token: Token,
    /// The request is done with this token.
    pub done: bool,
    /// Its logits are the device's row of this number until the next run.
    pub selected: usize,
    /// The token's place in the history.
    pub position: usize,
}

impl<S: Sampler> State<S> {
    pub(crate) fn commit<D: Device<Logits = S::Logits>>(&mut self, fixed: &Fixed<S>, device: &D) -> Result<Vec<Record>, CoreError> {
        match self.phase {
            Phase::Ran => {},
            _ => return Err(CoreError::NoStep),
        }
        let mut records: Vec<Record> = Vec::new();
        let mut i: usize = 0;
        while i < self.plan.sequences.len()
            decreases self.plan.sequences.len() - i,
        {
            let slot = self.plan.sequences[i].request.slot;
            if let Some(mut request) = self.requests[slot].take() {
                commit_sequence(device, &fixed.sampler, &self.plan, i, &mut request, &mut records);
                self.requests[slot] = Some(request);
            }
            i += 1;
        }
        self.plan.clear();
        self.phase = Phase::Idle;
        Ok(records)
    }
}

/// Commits one sequence: caches its rows and, where they reach the end of the history, emits.
fn commit_sequence<D: Device<Logits = S::Logits>, S: Sampler>(
    device: &D,
    sampler: &S,
    plan: &StepPlan,
    index: usize,
    request: &mut Request<S::State>,
    records: &mut Vec<Record>,
) {
    let sequence = &plan.sequences[index];
    request.planned = None;
    request.cached = sequence.first_position + sequence.rows - sequence.drafts;
    if !sequence.emits {
        return;
    }
    let first_draft = sequence.first_row + sequence.rows - sequence.drafts;
    let first_selected = sequence.first_selected + sequence.selected - sequence.drafts - 1;
    let mut accepted: usize = 0;
    let mut go = true;
    while go
        decreases sequence.drafts + 1 - accepted, go,
    {
        let selected = first_selected + accepted;
        let (token, done) = sampler.sample(&mut request.state, device.logits(selected));
        let position = request.history.len();
        records.push(Record { request: sequence.request, token, done, selected, position });
        request.history.push(token);
        request.done = done;
        if !done && accepted < sequence.drafts && plan.tokens[first_draft + accepted] == token {
            request.cached += 1;
            accepted += 1;
        } else {
            go = false;
        }
    }
}

} // verus!
