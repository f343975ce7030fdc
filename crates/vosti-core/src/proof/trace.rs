//! The theorem: any two executions that share W are deterministic (`trusted/next.rs` says what that is). Beside it the step
//! theorem, and that tenants are apart.

use super::canonical::*;
use super::forward::*;
use super::reference::*;
use super::stepping::*;
use crate::block::*;
use crate::core::Core;
use crate::invariant::*;
use crate::next::*;
use crate::plan::*;
use crate::seam::*;
use crate::spec::*;
use crate::state::*;
use crate::views::*;
use vstd::prelude::*;

verus! {

impl<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>> Execution<D, S> {
    proof fn lemma_upto(self, n: int)
        requires self.ok(), 0 <= n <= self.calls.len(),
        ensures self.cores[n].log() == self.events(n), self.cores[n].sound(), self.cores[n].world() == self.world(),
        decreases n,
    {
        if n > 0 {
            self.lemma_upto(n - 1);
            assert(next(self.cores[n - 1], self.calls[n - 1], self.answers[n - 1], self.cores[n - 1 + 1]));
        }
    }

    /// Every view of an execution is a prefix of the reference run of its W.
    proof fn lemma_views(self)
        requires self.ok(),
        ensures views_ok(self.world(), self.trace()),
    {
        let n = self.calls.len() as int;
        self.lemma_upto(n);
        self.cores[n].lemma_sound();
    }
}

/// Any two executions that share W are deterministic, on whatever devices and pools, whatever the policies that chose the calls.
pub proof fn theorem_deterministic<
    D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>, E: Device, T: Sampler<Logits = E::Logits, Top = E::Top>,
>(one: Execution<D, S>, other: Execution<E, T>)
    requires one.ok(), other.ok(), share_w(one.world(), other.world()),
    ensures deterministic(one.trace(), other.trace()),
{
    one.lemma_views();
    other.lemma_views();
    assert forall|a: u64, b: u64| views(one.trace()).contains_key(a) && views(other.trace()).contains_key(b)
        implies answered_alike(#[trigger] views(one.trace())[a], #[trigger] views(other.trace())[b]) by {
        lemma_alike(one.world(), views(one.trace())[a], other.world(), views(other.trace())[b]);
    }
}

/// Two requests of one execution that ask the same are answered the same.
pub proof fn corollary_one_execution<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(one: Execution<D, S>)
    requires one.ok(),
    ensures deterministic(one.trace(), one.trace()),
{
    theorem_deterministic(one, one);
}

/// An answer that is resumed. A client has the first `had` records of request `a`, and request `b` of another execution asks the same.
/// Once `b` has come as far, its first records are what the client has, and what it gives behind them is what `a` gives behind them, as
/// far as both have come; and if one completed, it gives all that the other gives. So a server sends the rest and leaves out what the
/// client has.
pub proof fn corollary_resumed<
    D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>, E: Device, T: Sampler<Logits = E::Logits, Top = E::Top>,
>(one: Execution<D, S>, other: Execution<E, T>, a: u64, b: u64, had: int)
    requires
        one.ok(), other.ok(), share_w(one.world(), other.world()),
        views(one.trace()).contains_key(a), views(other.trace()).contains_key(b),
        views(one.trace())[a].prompt == views(other.trace())[b].prompt,
        views(one.trace())[a].initial == views(other.trace())[b].initial,
        0 <= had <= views(one.trace())[a].entries.len(), had <= views(other.trace())[b].entries.len(),
    ensures
        views(one.trace())[a].entries.take(had) == views(other.trace())[b].entries.take(had),
        comparable(views(one.trace())[a].entries.skip(had), views(other.trace())[b].entries.skip(had)),
        views(one.trace())[a].completed
            ==> views(other.trace())[b].entries.skip(had).is_prefix_of(views(one.trace())[a].entries.skip(had)),
        views(other.trace())[b].completed
            ==> views(one.trace())[a].entries.skip(had).is_prefix_of(views(other.trace())[b].entries.skip(had)),
{
    theorem_deterministic(one, other);
}

/// What clients read. Where two devices read rows alike, a client of each reads one row at one place of two answers to one question: what
/// `Core::row` gives of a record is the row at its place.
pub proof fn corollary_read_alike<
    D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>, E: Device<Logits = D::Logits>, T: Sampler<Logits = E::Logits, Top = E::Top>,
>(one: Execution<D, S>, other: Execution<E, T>, a: u64, b: u64, k: int)
    requires
        one.ok(), other.ok(), share_w(one.world(), other.world()), read_alike::<D, E>(),
        views(one.trace()).contains_key(a), views(other.trace()).contains_key(b),
        views(one.trace())[a].prompt == views(other.trace())[b].prompt, views(one.trace())[a].initial == views(other.trace())[b].initial,
        0 <= k < views(one.trace())[a].entries.len(), k < views(other.trace())[b].entries.len(),
    ensures
        D::logits_of(views(one.trace())[a].entries[k].logits) == E::logits_of(views(other.trace())[b].entries[k].logits),
        views(one.trace())[a].entries[k].token == views(other.trace())[b].entries[k].token,
{
    theorem_deterministic(one, other);
}

/// Prompt log-probabilities. Two cores of one W have run a step, and a selected row of each stands at one position of histories that agree
/// up to there: the rows on their devices are equal, whatever else the steps, the cores or the histories have.
pub(crate) proof fn corollary_step_rows_alike<
    D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>, E: Device, T: Sampler<Logits = E::Logits, Top = E::Top>,
>(one: Core<D, S>, other: Core<E, T>, q: int, i: int, p: int, j: int)
    requires
        one.sound(), other.sound(), share_w(one.world(), other.world()), one.has_run(q, i), other.has_run(p, j),
        one.step_position(q, i) == other.step_position(p, j), 0 <= one.step_position(q, i),
        agree(one.spec_state()->0.seq_history(q), other.spec_state()->0.seq_history(p), one.step_position(q, i)),
    ensures
        one.spec_device().logits_rows()[one.spec_state()->0.plan.sequences@[q].compact(i)]
            == other.spec_device().logits_rows()[other.spec_state()->0.plan.sequences@[p].compact(j)],
{
    theorem_step(one, q, i);
    theorem_step(other, p, j);
    let (w, at) = (one.world(), one.step_position(q, i));
    lemma_logits_causal(w.w, w.program, one.spec_state()->0.seq_history(q), other.spec_state()->0.seq_history(p), at);
    lemma_same_canon(w.w, w.program, other.world().program, w.program.ops@.len(), other.spec_state()->0.seq_history(p), at, w.program.logits);
}

/// The step theorem, of the core: once a step has run, every selected row of logits on the device (those of records, and
/// those of prompt log-probabilities) is the cold-forward row of that request's history and drafts at that position,
/// whatever else is in the batch. They stay until the next run.
pub(crate) proof fn theorem_step<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(core: Core<D, S>, q: int, i: int)
    requires core.sound(), core.has_run(q, i),
    ensures core.spec_device().logits_rows()[core.spec_state()->0.plan.sequences@[q].compact(i)] == core.step_logits(q, i),
{
    core.lemma_state();
    let s = core.spec_state()->0;
    reveal(State::inv_ran);
    reveal(logits_ok);
    assert(s.histories()[q] == s.seq_history(q));
}

/// What the step's sequences want of their selected rows is on the host.
pub(crate) proof fn lemma_brought<S: Sampler>(fixed: Fixed<S>, state: State<S>, q: int, i: int, what: Reads)
    requires
        state.inv(fixed), state.phase is Ran, 0 <= q < state.plan.sequences@.len(), 0 <= i < state.plan.sequences@[q].selected,
        state.plan.sequences@[q].brings(i, what),
    ensures
        0 <= state.plan.sequences@[q].compact(i) < state.dev@.logits.len(), state.plan.sequences@[q].compact(i) <= usize::MAX,
        (state.dev@.brought)(state.plan.sequences@[q].compact(i), what),
{
    reveal(State::inv_ran);
    reveal(State::inv_step);
    reveal(logits_ok);
    reveal(plan_packed);
}

/// Tenants are apart: every block in a request's chain, and every block that such a block continues, has the request's
/// salt; a block published by a request has its salt.
pub(crate) proof fn theorem_tenants_apart<S: Sampler>(fixed: Fixed<S>, state: State<S>, slot: int, i: int)
    requires
        state.inv(fixed), live(state.requests@, slot), 0 <= i < state.requests@[slot]->0.chain@.len(),
        registered(state.blocks@, state.requests@[slot]->0.chain@[i].slot as int),
        state.published(state.requests@[slot]->0.chain@[i]),
    ensures
        ({
            let r = state.requests@[slot]->0;
            match state.blocks@[r.chain@[i].slot as int]->0.parent {
                Parent::Root { salt } => salt == r.salt,
                Parent::Block { serial } => state.salts@[serial] == r.salt,
            }
        }),
{
    reveal(State::inv_chains);
    reveal(State::inv_blocks);
}

/// A state that keeps its invariant has shown clients nothing but reference runs.
pub(crate) proof fn lemma_views_ok<S: Sampler>(fixed: Fixed<S>, state: State<S>)
    requires state.inv(fixed),
    ensures views_ok(state.world(fixed), state.log@),
{
    reveal(State::inv_log);
}

/// What `run` needs of a sound state: the device may rely on the plan.
pub(crate) proof fn lemma_run_ok<S: Sampler>(fixed: Fixed<S>, state: State<S>)
    requires state.inv(fixed), state.legal_run(),
    ensures fixed.program.wf(), plan_ok(state.dev@.limits, fixed.program, state.plan), all_finite(state.dev@.w, state.dev@.cache),
{
    lemma_plan_ok(fixed, state);
}

} // verus!
