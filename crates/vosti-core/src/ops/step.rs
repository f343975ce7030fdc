//! A step up to its logits: begin, put rows in, run.

use crate::effects::*;
use crate::error::CoreError;
use crate::ids::{NO_PAGE, PAGE, RequestId, Token};
use crate::invariant::*;
use crate::legal::*;
use crate::pages::{Page, Pool};
use crate::plan::{Draw, Reads, Select, SeqPlan, StepPlan};
use crate::program::*;
use crate::proof::canonical::*;
use crate::proof::forward::*;
use crate::proof::frame::*;
use crate::proof::reference::*;
use crate::proof::stepping::*;
use crate::request::Request;
use crate::seam::*;
use crate::spec::*;
use crate::state::*;
use crate::views::*;
use vstd::prelude::*;

verus! {

impl<S: Sampler> State<S> {
    pub(crate) fn plan_begin(&mut self, fixed: &Fixed<S>) -> (out: Result<(), CoreError>)
        requires old(self).inv(*fixed),
        ensures
            final(self).inv(*fixed), final(self).dev@ == old(self).dev@,
            out is Ok <==> old(self).legal_plan_begin(),
            out is Err ==> *final(self) == *old(self),
            out is Ok ==> old(self).did_plan_begin(*final(self)),
    {
        match self.phase {
            Phase::Idle => {
                let ghost before = *self;
                self.phase = Phase::Planning;
                proof { lemma_phase(*fixed, before, *self); }
                Ok(())
            },
            _ => Err(CoreError::StepInFlight),
        }
    }

    pub(crate) fn plan_cancel(&mut self, fixed: &Fixed<S>) -> (out: Result<(), CoreError>)
        requires old(self).inv(*fixed),
        ensures
            final(self).inv(*fixed), final(self).dev@ == old(self).dev@,
            out is Ok <==> old(self).legal_plan_cancel(),
            out is Err ==> *final(self) == *old(self),
            out is Ok ==> old(self).did_drop_step(*final(self)),
    {
        match self.phase {
            Phase::Idle => Err(CoreError::NoStep),
            _ => {
                self.drop_step(fixed);
                Ok(())
            },
        }
    }

    pub(crate) fn plan_rows(&mut self, fixed: &Fixed<S>, id: RequestId, rows: usize, drafts: &[Token], select: Select) -> (out: Result<(), CoreError>)
        requires old(self).inv(*fixed),
        ensures
            final(self).inv(*fixed), final(self).dev@ == old(self).dev@,
            out is Ok <==> old(self).legal_plan_rows(*fixed, id, rows, drafts@, select),
            out is Err ==> *final(self) == *old(self),
            out is Ok ==> old(self).did_plan_rows(*final(self), id, rows, drafts@, select),
    {
        let selected = self.check_rows(fixed, id, rows, drafts, select)?;
        let ghost before = *self;
        let ghost slot = id.slot as int;
        proof {
            reveal(State::inv_shape);
            reveal(State::inv_step);
            reveal(plan_packed);
            assert(request_shape(fixed.program, before.requests@[slot]->0));
        }
        if let Some(mut request) = self.requests[id.slot].take() {
            let reads = fixed.sampler.reads(&request.state);
            let sequence = SeqPlan {
                request: id,
                first_row: self.plan.tokens.len(),
                rows: rows + drafts.len(),
                first_position: request.cached,
                drafts: drafts.len(),
                first_selected: self.plan.selected.len(),
                selected,
                top: matches!(reads, Reads::Top),
                draws: draws(fixed, &request.state, reads, selected, drafts.len()),
                whole: shows(select) || matches!(reads, Reads::Row),
                emits: request.cached + rows == request.history.len(),
                tables: copy_tables(&request.tables),
            };
            self.plan.push(sequence, &request.history, drafts);
            request.planned = Some(self.plan.sequences.len() - 1);
            self.requests[id.slot] = Some(request);
        }
        proof {
            let r = before.requests@[slot]->0;
            let r2 = self.requests@[slot]->0;
            assert(self.requests@ =~= before.requests@.update(slot, Some(r2)));
            lemma_planned(*fixed, before, *self, id, rows as int, drafts@, select);
        }
        Ok(())
    }

    /// Whether these rows may join the step; if so, how many of them are selected.
    fn check_rows(&self, fixed: &Fixed<S>, id: RequestId, rows: usize, drafts: &[Token], select: Select) -> (out: Result<usize, CoreError>)
        requires self.inv(*fixed),
        ensures
            out is Ok <==> self.legal_plan_rows(*fixed, id, rows, drafts@, select),
            out matches Ok(n) ==> n == selected_rows(rows, drafts@.len(),
                self.requests@[id.slot as int]->0.history@.len() - self.requests@[id.slot as int]->0.cached, select),
    {
        match self.phase {
            Phase::Planning => {},
            _ => return Err(CoreError::NoStep),
        }
        let request = self.mutable(id)?;
        proof { lemma_room(*fixed, *self, id.slot as int); }
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
            Select::Last | Select::Shown => if rows == left { 1 + drafts.len() } else { 0 },
        };
        let left_selected = fixed.selected_max - self.plan.selected.len();
        if selected > left_selected {
            return Err(CoreError::SelectedCapacity { selected, left: left_selected });
        }
        let end = request.cached + total;
        let mut group: usize = 0;
        while group < self.pools.len()
            invariant
                group <= self.pools@.len() == fixed.program.groups@.len() == request.tables@.len(),
                fixed.program.groups_wf(), request.cached < end, end == request.cached + rows + drafts@.len(),
                *request == self.requests@[id.slot as int]->0,
                forall|g: int| 0 <= g < group ==> #[trigger] request.covers(g, fixed.program.groups@[g], end as int),
            decreases self.pools.len() - group,
        {
            proof { assert(fixed.program.groups@[group as int].window != Some(0u32)); }
            if let Some(page) = request.missing_page(group, &fixed.program.groups[group], end) {
                proof {
                    let r = self.requests@[id.slot as int]->0;
                    assert(!r.covers(group as int, fixed.program.groups@[group as int], end as int));
                    assert(!r.covers(group as int, fixed.program.groups@[group as int], r.cached + (rows + drafts@.len())));
                }
                return Err(CoreError::PageMissing { group, page });
            }
            group += 1;
        }
        proof { assert(tokens_in(drafts@, fixed.program.vocab)); }
        Ok(selected)
    }

    /// Whether the step may run now.
    pub(crate) fn check_run(&self) -> (out: Result<(), CoreError>)
        ensures out is Ok <==> self.legal_run(), out is Err ==> !(out->Err_0 is Device),
    {
        match self.phase {
            Phase::Planning => {},
            _ => return Err(CoreError::NoStep),
        }
        if self.plan.sequences.len() == 0 {
            return Err(CoreError::NoStep);
        }
        Ok(())
    }

    /// Takes in what the device did: it ran, or it failed and kept everything outside the write set.
    pub(crate) fn after_run(&mut self, fixed: &Fixed<S>, failed: bool, dev: Ghost<DeviceView>)
        requires
            old(self).inv(*fixed), old(self).legal_run(),
            dev@.w == old(self).dev@.w, dev@.limits == old(self).dev@.limits, all_finite(dev@.w, dev@.cache),
            !failed ==> ran(dev@.w, fixed.program, old(self).plan, old(self).dev@.cache, dev@.cache, dev@.logits)
                && wanted_brought(old(self).plan, dev@.brought),
            failed ==> kept_outside(fixed.program, old(self).plan, old(self).dev@.cache, dev@.cache),
        ensures
            final(self).inv(*fixed), final(self).dev@ == dev@,
            !failed ==> old(self).did_run(*final(self)),
            failed ==> old(self).did_drop_step(*final(self)),
    {
        let ghost before = *self;
        self.dev = dev;
        if failed {
            proof { lemma_kept(*fixed, before, *self); }
            self.drop_step(fixed);
        } else {
            self.phase = Phase::Ran;
            proof { lemma_ran(*fixed, before, *self); }
        }
    }

    /// Forgets the step: its requests may change again, and nothing of it is cached.
    pub(crate) fn drop_step(&mut self, fixed: &Fixed<S>)
        requires old(self).inv(*fixed),
        ensures
            final(self).inv(*fixed), final(self).dev@ == old(self).dev@, old(self).did_drop_step(*final(self)),
    {
        let ghost before = *self;
        let mut i: usize = 0;
        while i < self.plan.sequences.len()
            invariant
                before.inv(*fixed), self.inv_static(*fixed),
                *self == (State { requests: self.requests, ..before }),
                i <= before.plan.sequences@.len(),
                self.requests@.len() == before.requests@.len(),
                forall|s: int| 0 <= s < before.requests@.len() ==> #[trigger] unpinned(before.requests@[s], self.requests@[s], i as int),
            decreases self.plan.sequences.len() - i,
        {
            let slot = self.plan.sequences[i].request.slot;
            let ghost now = *self;
            proof {
                reveal(State::inv_step);
                assert(before.seq_linked(fixed.program, i as int)) by { let _ = before.plan.sequences@[i as int]; }
                assert(unpinned(before.requests@[slot as int], self.requests@[slot as int], i as int));
            }
            if let Some(mut request) = self.requests[slot].take() {
                request.planned = None;
                self.requests[slot] = Some(request);
            }
            proof {
                let r = now.requests@[slot as int]->0;
                assert(live(now.requests@, slot as int));
                lemma_repin(*fixed, now, *self, slot as int);
                assert forall|s: int| 0 <= s < before.requests@.len() implies #[trigger] unpinned(before.requests@[s], self.requests@[s], i + 1) by {
                    assert(unpinned(before.requests@[s], now.requests@[s], i as int));
                    if s != slot && live(before.requests@, s) && before.requests@[s]->0.planned == Some(i) {
                        let _ = before.requests@[s]->0;
                        assert(before.plan.sequences@[i as int].request.slot == s);
                    }
                }
            }
            i += 1;
        }
        proof {
            reveal(State::inv_step);
            assert forall|s: int| live(self.requests@, s) implies (#[trigger] self.requests@[s]->0).planned is None by {
                assert(unpinned(before.requests@[s], self.requests@[s], i as int));
                assert(live(before.requests@, s));
                assert(before.requests@[s]->0.planned is Some ==> before.requests@[s]->0.planned->0 < i);
            }
        }
        self.plan.clear();
        self.phase = Phase::Idle;
        proof {
            lemma_static_ignores_step(*fixed, State { requests: self.requests, ..before }, *self);
            lemma_idle(*fixed, *self);
        }
    }
}

/// The device lost its cache.
pub open(crate) spec fn lost<T>(out: Result<T, CoreError>) -> bool {
    out matches Err(CoreError::Device { error }) && !error.intact
}

impl SeqPlan {
    /// Whether so much of its `i`-th selected row is brought to the host.
    pub fn has(&self, i: usize, what: Reads) -> (yes: bool)
        ensures yes == self.brings(i as int, what),
    {
        match what {
            Reads::Best => true,
            Reads::Top => self.top,
            Reads::Drawn(draw) => {
                i < self.draws.len() && self.draws[i].scale == draw.scale && self.draws[i].part == draw.part
                    && self.draws[i].within == draw.within
            },
            Reads::Row => self.whole,
        }
    }
}

/// The rows are brought to the host whatever the sampler reads.
fn shows(select: Select) -> (yes: bool)
    ensures yes <==> !(select is Last),
{
    match select {
        Select::Last => false,
        Select::Shown | Select::All => true,
    }
}

/// By what a token is drawn from each of a sequence's selected rows, if its sampler reads one: from the end of the history by the numbers
/// that the sampler says, from each draft by those that it guesses.
fn draws<S: Sampler>(fixed: &Fixed<S>, state: &S::State, reads: Reads, selected: usize, drafts: usize) -> (draws: Vec<Draw>)
    ensures
        draws@.len() == if reads is Drawn { selected as int } else { 0 },
        reads matches Reads::Drawn(draw) ==> selected > drafts ==> draws@[selected - drafts - 1] == draw,
{
    let mut draws: Vec<Draw> = Vec::new();
    if let Reads::Drawn(draw) = reads {
        let mut i: usize = 0;
        while i < selected
            invariant
                i <= selected, draws@.len() == i,
                selected > drafts ==> i > selected - drafts - 1 ==> draws@[selected - drafts - 1] == draw,
            decreases selected - i,
        {
            // Before the end of the history nothing is chosen.
            let ahead = if selected - i <= drafts { drafts - (selected - i) + 1 } else { 0 };
            draws.push(if ahead == 0 { draw } else { fixed.sampler.guess(state, ahead) });
            i += 1;
        }
    }
    draws
}

/// A copy of the tables.
fn copy_tables(tables: &Vec<Vec<i32>>) -> (copy: Vec<Vec<i32>>)
    ensures
        copy@.len() == tables@.len(),
        forall|g: int| 0 <= g < tables@.len() ==> (#[trigger] copy@[g])@ == tables@[g]@,
{
    let mut copy: Vec<Vec<i32>> = Vec::with_capacity(tables.len());
    let mut group: usize = 0;
    while group < tables.len()
        invariant
            group <= tables@.len(), copy@.len() == group,
            forall|g: int| 0 <= g < group ==> (#[trigger] copy@[g])@ == tables@[g]@,
        decreases tables.len() - group,
    {
        let table = tables[group].clone();
        proof {
            assert forall|i: int| 0 <= i < table@.len() implies #[trigger] table@[i] == tables@[group as int]@[i] by {
                assert(cloned(tables@[group as int]@[i], table@[i]));
            }
            assert(table@ =~= tables@[group as int]@);
        }
        copy.push(table);
        group += 1;
    }
    copy
}

impl StepPlan {
    /// Appends a sequence and its rows: the history from its first position on, then the drafts.
    fn push(&mut self, sequence: SeqPlan, history: &Vec<Token>, drafts: &[Token])
        requires
            sequence.drafts == drafts@.len(), sequence.drafts <= sequence.rows, sequence.selected <= sequence.rows,
            sequence.first_position + sequence.rows - sequence.drafts <= history@.len(),
            sequence.first_position + sequence.rows <= u32::MAX,
            sequence.first_row + sequence.rows <= u32::MAX,
        ensures
            final(self).tokens@ == old(self).tokens@ + row_tokens(sequence, history@, drafts@),
            final(self).positions@ == old(self).positions@ + row_positions(sequence),
            final(self).selected@ == old(self).selected@ + row_selected(sequence),
            final(self).sequences@ == old(self).sequences@.push(sequence),
    {
        let ghost before = *self;
        let rows = sequence.rows;
        let first_position = sequence.first_position;
        let first_row = sequence.first_row;
        let from_history = rows - drafts.len();
        let unselected = rows - sequence.selected;
        let mut i: usize = 0;
        while i < rows
            invariant
                i <= rows, rows == sequence.rows, first_position == sequence.first_position, first_row == sequence.first_row,
                from_history == rows - drafts@.len(), unselected == rows - sequence.selected,
                sequence.drafts == drafts@.len(), sequence.drafts <= sequence.rows, sequence.selected <= sequence.rows,
                first_position + from_history <= history@.len(),
                first_position + rows <= u32::MAX, first_row + rows <= u32::MAX,
                self.sequences@ == before.sequences@,
                self.tokens@ == before.tokens@ + row_tokens(sequence, history@, drafts@).take(i as int),
                self.positions@ == before.positions@ + row_positions(sequence).take(i as int),
                self.selected@ == before.selected@ + row_selected(sequence).take(if i > unselected { i - unselected } else { 0 }),
            decreases rows - i,
        {
            let ghost now = *self;
            let token = if i < from_history { history[first_position + i] } else { drafts[i - from_history] };
            self.tokens.push(token);
            self.positions.push((first_position + i) as u32);
            if i >= unselected {
                self.selected.push((first_row + i) as u32);
            }
            proof {
                let t = row_tokens(sequence, history@, drafts@);
                assert(t[i as int] == token);
                assert(t.take(i + 1) =~= t.take(i as int).push(token));
                let p = row_positions(sequence);
                assert(p.take(i + 1) =~= p.take(i as int).push((first_position + i) as u32));
                let u = row_selected(sequence);
                if i >= unselected {
                    let k = i - unselected;
                    assert(u[k] == (first_row + i) as u32);
                    assert(u.take(k + 1) =~= u.take(k as int).push((first_row + i) as u32));
                }
                assert(self.tokens@ =~= before.tokens@ + t.take(i + 1));
                assert(self.positions@ =~= before.positions@ + p.take(i + 1));
                assert(self.selected@ =~= before.selected@ + u.take(if i + 1 > unselected { i + 1 - unselected } else { 0 }));
            }
            i += 1;
        }
        proof {
            assert(row_tokens(sequence, history@, drafts@).take(rows as int) =~= row_tokens(sequence, history@, drafts@));
            assert(row_positions(sequence).take(rows as int) =~= row_positions(sequence));
            assert(row_selected(sequence).take(rows - unselected) =~= row_selected(sequence));
        }
        self.sequences.push(sequence);
    }
}

} // verus!
