//! A step up to its logits: begin, put rows in, run.

use crate::error::CoreError;
use crate::ids::{RequestId, Token};
use crate::plan::{Select, SeqPlan, StepPlan};
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
    pub(crate) fn plan_begin(&mut self) -> Result<(), CoreError> {
        match self.phase {
            Phase::Idle => {
                self.phase = Phase::Planning;
                Ok(())
            },
            _ => Err(CoreError::StepInFlight),
        }
    }

    pub(crate) fn plan_cancel(&mut self) -> Result<(), CoreError> {
        match self.phase {
            Phase::Idle => Err(CoreError::NoStep),
            _ => {
                self.drop_step();
                Ok(())
            },
        }
    }

    pub(crate) fn plan_rows(&mut self, fixed: &Fixed<S>, id: RequestId, rows: usize, drafts: &[Token], select: Select) -> Result<(), CoreError> {
        let selected = self.check_rows(fixed, id, rows, drafts, select)?;
        if let Some(mut request) = self.requests[id.slot].take() {
            let sequence = SeqPlan {
                request: id,
                first_row: self.plan.tokens.len(),
                rows: rows + drafts.len(),
                first_position: request.cached,
                drafts: drafts.len(),
                first_selected: self.plan.selected.len(),
                selected,
                emits: request.cached + rows == request.history.len(),
                tables: request.tables.clone(),
            };
            self.plan.push(sequence, &request.history, drafts);
            request.planned = Some(self.plan.sequences.len() - 1);
            self.requests[id.slot] = Some(request);
        }
        Ok(())
    }

    /// Whether these rows may join the step; if so, how many of them are selected.
    fn check_rows(&self, fixed: &Fixed<S>, id: RequestId, rows: usize, drafts: &[Token], select: Select) -> Result<usize, CoreError> {
        match self.phase {
            Phase::Planning => {},
            _ => return Err(CoreError::NoStep),
        }
        let request = self.mutable(id)?;
        if request.complete(fixed.program.context) {
            return Err(CoreError::RequestComplete { request: id });
        }
        let left = request.history.len() - request.cached;
        if rows == 0 || rows > left {
            return Err(CoreError::RowsOutOfRange { rows, left });
        }
        if drafts.len() > 0 && rows != left {
            return Err(CoreError::DraftsNotAtEnd);
        }
        if drafts.len() >= fixed.program.context as usize - request.history.len() {
            return Err(CoreError::DraftsBeyondContext { drafts: drafts.len() });
        }
        self.check_tokens(fixed, drafts)?;
        let total = rows + drafts.len();
        let left_rows = fixed.rows_max - self.plan.tokens.len();
        if total > left_rows {
            return Err(CoreError::RowCapacity { rows: total, left: left_rows });
        }
        let selected = match select {
            Select::All => total,
            Select::Last => if rows == left { 1 + drafts.len() } else { 0 },
        };
        let left_selected = fixed.selected_max - self.plan.selected.len();
        if selected > left_selected {
            return Err(CoreError::SelectedCapacity { selected, left: left_selected });
        }
        let end = request.cached + total;
        let mut group: usize = 0;
        while group < self.pools.len()
            decreases self.pools.len() - group,
        {
            if let Some(page) = request.missing_page(group, &fixed.program.groups[group], end) {
                return Err(CoreError::PageMissing { group, page });
            }
            group += 1;
        }
        Ok(selected)
    }

    pub(crate) fn run<D: Device>(&mut self, fixed: &Fixed<S>, device: &mut D) -> Result<(), CoreError> {
        match self.phase {
            Phase::Planning => {},
            _ => return Err(CoreError::NoStep),
        }
        if self.plan.sequences.len() == 0 {
            return Err(CoreError::NoStep);
        }
        match device.run(&fixed.program, &self.plan) {
            Ok(()) => {
                self.phase = Phase::Ran;
                Ok(())
            },
            Err(error) => {
                self.drop_step();
                Err(CoreError::Device { error })
            },
        }
    }

    /// Forgets the step: its requests may change again, and nothing of it is cached.
    pub(crate) fn drop_step(&mut self) {
        let mut i: usize = 0;
        while i < self.plan.sequences.len()
            decreases self.plan.sequences.len() - i,
        {
            let slot = self.plan.sequences[i].request.slot;
            if let Some(mut request) = self.requests[slot].take() {
                request.planned = None;
                self.requests[slot] = Some(request);
            }
            i += 1;
        }
        self.plan.clear();
        self.phase = Phase::Idle;
    }
}

impl StepPlan {
    /// Appends a sequence and its rows: the history from its first position on, then the drafts.
    fn push(&mut self, sequence: SeqPlan, history: &Vec<Token>, drafts: &[Token]) {
        let rows = sequence.rows;
        let first_position = sequence.first_position;
        let first_row = sequence.first_row;
        let from_history = rows - drafts.len();
        let unselected = rows - sequence.selected;
        let mut i: usize = 0;
        while i < rows
            decreases rows - i,
        {
            let token = if i < from_history { history[first_position + i] } else { drafts[i - from_history] };
            self.tokens.push(token);
            self.positions.push((first_position + i) as u32);
            if i >= unselected {
                self.selected.push((first_row + i) as u32);
            }
            i += 1;
        }
        self.sequences.push(sequence);
    }
}

} // verus!
