//! The trace relation, exactly what the operations of the core ensure, and the theorem: any two executions that share W are
//! deterministic.

use super::canonical::*;
use super::forward::*;
use super::reference::*;
use super::stepping::*;
use crate::block::*;
use crate::core::Core;
use crate::effects::*;
use crate::error::CoreError;
use crate::ids::{BlockId, NO_PAGE, PAGE, RequestId, Token};
use crate::invariant::*;
use crate::ops::commit::*;
use crate::ops::step::*;
use crate::plan::*;
use crate::program::*;
use crate::seam::*;
use crate::spec::*;
use crate::state::*;
use vstd::prelude::*;

verus! {

/// An operation and its arguments.
pub ghost enum Call {
    Admit { prompt: Seq<Token>, salt: u64, state: Bits },
    Attach { request: RequestId, block: BlockId },
    TakePage { request: RequestId, group: usize },
    ReleaseBehind { request: RequestId, group: usize },
    Publish { request: RequestId },
    Evict { block: BlockId },
    EvictPage { block: BlockId, group: usize },
    Preempt { request: RequestId },
    Abort { request: RequestId },
    Finish { request: RequestId },
    PlanBegin,
    PlanRows { request: RequestId, rows: usize, drafts: Seq<Token>, select: Select },
    PlanCancel,
    Run,
    Commit,
}

/// What came back.
pub ghost enum Answer {
    /// Not legal: nothing changed.
    Refused,
    /// The device failed with this error: the step is abandoned.
    Failed { error: DeviceError },
    /// A new request.
    Admitted { request: RequestId },
    /// Pages were let go.
    Released { pages: usize },
    /// A block was published, or there was none to publish.
    Published { block: Option<BlockId> },
    /// Records, and the rows of logits that the device holds.
    Committed { records: Seq<Record>, logits: Seq<Bits> },
    /// Anything else.
    Done,
}

pub open(crate) spec fn answer<T>(out: Result<T, CoreError>) -> Answer {
    if out is Ok { Answer::Done } else { Answer::Refused }
}

pub open(crate) spec fn answer_admit(out: Result<RequestId, CoreError>) -> Answer {
    match out {
        Ok(id) => Answer::Admitted { request: id },
        Err(_) => Answer::Refused,
    }
}

pub open(crate) spec fn answer_release(out: Result<usize, CoreError>) -> Answer {
    match out {
        Ok(pages) => Answer::Released { pages },
        Err(_) => Answer::Refused,
    }
}

pub open(crate) spec fn answer_publish(out: Result<Option<BlockId>, CoreError>) -> Answer {
    match out {
        Ok(block) => Answer::Published { block },
        Err(_) => Answer::Refused,
    }
}

pub open(crate) spec fn answer_run(out: Result<(), CoreError>) -> Answer {
    match out {
        Ok(()) => Answer::Done,
        Err(CoreError::Device { error }) => Answer::Failed { error },
        Err(_) => Answer::Refused,
    }
}

pub open(crate) spec fn answer_commit(out: Result<Vec<Record>, CoreError>, logits: Seq<Bits>) -> Answer {
    match out {
        Ok(records) => Answer::Committed { records: records@, logits },
        Err(_) => Answer::Refused,
    }
}

/// What a core may be built from.
pub open(crate) spec fn legal_new<D: Device, S: Sampler>(device: D, sampler: S, program: Program) -> bool {
    let limits = device.limits();
    &&& program.wf()
    &&& sampler.vocab_limit() == program.vocab
    &&& limits.rows <= u32::MAX && limits.selected <= u32::MAX
    &&& forall|g: int| 0 <= g < program.groups@.len() ==> 0 < #[trigger] (limits.pages)(g) <= COUNT_MAX / PAGE
}

/// The operation is legal now. Each `legal_*` stands in `ops/`.
pub open(crate) spec fn legal<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(core: Core<D, S>, call: Call) -> bool {
    core.spec_state() matches Some(s) && match call {
        Call::Admit { prompt, .. } => s.legal_admit(core.spec_fixed(), prompt),
        Call::Attach { request, block } => s.legal_attach(request, block),
        Call::TakePage { request, group } => s.legal_take_page(core.spec_fixed(), request, group),
        Call::ReleaseBehind { request, group } => s.legal_release_behind(request, group),
        Call::Publish { request } => s.legal_publish(request),
        Call::Evict { block } => s.legal_evict(block),
        Call::EvictPage { block, group } => s.legal_evict_page(block, group),
        Call::Preempt { request } => s.legal_preempt(request),
        Call::Abort { request } => s.legal_abort(request),
        Call::Finish { request } => s.legal_finish(core.spec_fixed(), request),
        Call::PlanBegin => s.legal_plan_begin(),
        Call::PlanRows { request, rows, drafts, select } => s.legal_plan_rows(core.spec_fixed(), request, rows, drafts, select),
        Call::PlanCancel => s.legal_plan_cancel(),
        Call::Run => s.legal_run(),
        Call::Commit => s.legal_commit(),
    }
}

/// What a client sees of a call and its answer.
pub open(crate) spec fn events(call: Call, answer: Answer) -> Seq<Event<Bits, Bits>> {
    match (call, answer) {
        (Call::Admit { prompt, state, .. }, Answer::Admitted { request }) =>
            seq![Event::Admitted { request: request.serial, prompt, initial: state }],
        (Call::Commit, Answer::Committed { records, logits }) => record_events(logits, records),
        (Call::Finish { request }, Answer::Done) => seq![Event::Completed { request: request.serial }],
        _ => Seq::empty(),
    }
}

/// The answer is one that the call can have.
pub open(crate) spec fn fits(call: Call, answer: Answer) -> bool {
    match answer {
        Answer::Refused => true,
        Answer::Failed { .. } => call is Run,
        Answer::Admitted { .. } => call is Admit,
        Answer::Released { .. } => call is ReleaseBehind,
        Answer::Published { .. } => call is Publish,
        Answer::Committed { .. } => call is Commit,
        Answer::Done => !(call is Admit) && !(call is ReleaseBehind) && !(call is Publish) && !(call is Commit),
    }
}

/// What the call did to the state. Each `did_*` stands in `effects.rs`.
pub open(crate) spec fn did<S: Sampler>(program: Program, old: State<S>, call: Call, answer: Answer, new: State<S>) -> bool {
    match (call, answer) {
        (Call::Admit { prompt, salt, state }, Answer::Admitted { request }) => old.did_admit(new, request, prompt, salt, state),
        (Call::Attach { request, block }, _) => old.did_attach(new, request, block),
        (Call::TakePage { request, group }, _) => old.did_take_page(new, request, group),
        (Call::ReleaseBehind { request, group }, Answer::Released { pages }) => old.did_release_behind(new, program, request, group, pages),
        (Call::Publish { request }, Answer::Published { block }) => old.did_publish(new, request, block),
        (Call::Evict { block }, _) => old.did_evict(new, block),
        (Call::EvictPage { block, group }, _) => old.did_evict_page(new, block, group),
        (Call::Preempt { request }, _) => old.did_preempt(new, request),
        (Call::Abort { request }, _) => old.did_remove(new, request),
        (Call::Finish { request }, _) => old.did_remove(new, request),
        (Call::PlanBegin, _) => old.did_plan_begin(new),
        (Call::PlanRows { request, rows, drafts, select }, _) => old.did_plan_rows(new, request, rows, drafts, select),
        (Call::PlanCancel, _) => old.did_drop_step(new),
        (Call::Run, Answer::Failed { .. }) => old.did_drop_step(new),
        (Call::Run, _) => old.did_run(new),
        (Call::Commit, _) => old.did_commit(new),
        _ => false,
    }
}

/// The device did what the answer says: it failed with the error that is told, or it did not fail. Only `run` uses it.
pub open(crate) spec fn device_did<D: Device>(old: D, call: Call, answer: Answer, new: D) -> bool {
    &&& new.limits() == old.limits()
    &&& !(call is Run && !(answer is Refused)) ==> new == old
    &&& new.errors() == match answer { Answer::Failed { error } => old.errors().push(error), _ => old.errors() }
}

/// What every operation ensures.
pub open(crate) spec fn next<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(old: Core<D, S>, call: Call, answer: Answer, new: Core<D, S>) -> bool {
    // It is refused exactly when it is not legal, and then nothing changes.
    &&& answer is Refused <==> !legal(old, call)
    &&& fits(call, answer)
    &&& answer is Refused ==> new == old
    // W stays, and the device is used for what it is there for.
    &&& new.world() == old.world()
    &&& device_did(old.spec_device(), call, answer, new.spec_device())
    // The client sees the call's events and nothing else; the logits of records are the device's, and can be had.
    &&& new.log() == old.log() + events(call, answer)
    &&& answer matches Answer::Committed { records, logits } ==> {
        &&& logits == new.spec_device().logits_rows()
        &&& new.held() == records
        &&& records_ok(new.world(), new.log(), logits, new.spec_device().brought(), records)
        &&& forall|i: int| 0 <= i < records.len() ==> new.spec_request((#[trigger] records[i]).request) is Some
    }
    // It does what it is for. Only a device that has lost its cache leaves the core without a state.
    &&& !(answer is Refused) ==> match answer {
        Answer::Failed { error } if !error.intact => new.spec_state() is None,
        _ => new.spec_state() is Some && did(old.world().program, old.spec_state()->0, call, answer, new.spec_state()->0),
    }
    &&& new.sound()
}

/// A core as it is built: of this device, sampler and program, without requests and blocks, all its pages free.
pub open(crate) spec fn built<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(core: Core<D, S>, device: D, sampler: S, program: Program) -> bool {
    &&& core.sound() && core.log().len() == 0
    &&& core.world().w == device.w() && core.world().program == program
    &&& forall|state: Bits, row: Bits| #[trigger] (core.world().choice)(state, row) == chosen::<D, S>(sampler.w(), state, row)
    &&& core.spec_device().limits() == device.limits()
    &&& core.spec_state() matches Some(s) && {
        &&& s.phase is Idle && s.requests@.len() == 0 && s.blocks@.len() == 0 && s.next_request == 0
        &&& s.pools@.len() == program.groups@.len()
        &&& forall|g: int| 0 <= g < s.pools@.len() ==> (#[trigger] s.pools@[g]).free@.len() == (device.limits().pages)(g)
                && s.pools@[g].pages@.len() == (device.limits().pages)(g)
    }
}

/// An execution of the engine: a core as it was built, the calls on it, what came back, and what the core became after each.
/// After a restart begins another one.
pub ghost struct Execution<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>> {
    pub cores: Seq<Core<D, S>>,
    pub calls: Seq<Call>,
    pub answers: Seq<Answer>,
}

impl<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>> Execution<D, S> {
    /// It began with a core that nobody had called, and each call did what the operation ensures.
    pub open(crate) spec fn ok(self) -> bool {
        &&& self.cores.len() == self.calls.len() + 1 && self.answers.len() == self.calls.len()
        &&& self.cores[0].sound() && self.cores[0].log().len() == 0
        &&& forall|i: int| 0 <= i < self.calls.len() ==> #[trigger] next(self.cores[i], self.calls[i], self.answers[i], self.cores[i + 1])
    }

    /// What clients saw of the first n calls.
    pub open(crate) spec fn events(self, n: int) -> Seq<Event<Bits, Bits>>
        decreases n,
    {
        if n <= 0 { Seq::empty() } else { self.events(n - 1) + events(self.calls[n - 1], self.answers[n - 1]) }
    }

    /// What clients saw of all of them.
    pub open(crate) spec fn trace(self) -> Seq<Event<Bits, Bits>> {
        self.events(self.calls.len() as int)
    }

    /// Its W.
    pub open(crate) spec fn world(self) -> World {
        self.cores[0].world()
    }

    proof fn lemma_upto(self, n: int)
        requires self.ok(), 0 <= n <= self.calls.len(),
        ensures self.cores[n].log() == self.events(n), self.cores[n].sound(), self.cores[n].world() == self.world(),
        decreases n,
    {
        if n == 0 {
            assert(self.cores[0].log() =~= self.events(0));
        } else {
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
    lemma_share_itself(one.world());
    theorem_deterministic(one, one);
}

/// The step theorem, of the core: once a step has run, every selected row of logits on the device (those of records, and
/// those of prompt log-probabilities) is the cold-forward row of that request's history and drafts at that position,
/// whatever else is in the batch. They stay until the next run.
pub(crate) proof fn theorem_step<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(core: Core<D, S>, q: int, i: int)
    requires
        core.sound(),
        core.spec_state() matches Some(s) && s.phase is Ran && 0 <= q < s.plan.sequences@.len() && 0 <= i < s.plan.sequences@[q].selected,
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
        state.plan.sequences@[q].brings(what),
    ensures
        0 <= state.plan.sequences@[q].compact(i) < state.dev@.logits.len(), state.plan.sequences@[q].compact(i) <= usize::MAX,
        (state.dev@.brought)(state.plan.sequences@[q].compact(i), what),
{
    reveal(State::inv_ran);
    reveal(State::inv_step);
    reveal(logits_ok);
    reveal(plan_packed);
    let s = state.plan.sequences@[q];
    assert(seq_ok(state.dev@.limits, fixed.program, state.plan, q));
    let n = state.plan.selected.len();
    assert(n == state.plan.selected@.len());
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
    let r = state.requests@[slot]->0;
    assert(chain_ok(state.prefixes@, state.salts@, r));
    assert(r.chain@[i].serial == state.blocks@[r.chain@[i].slot as int]->0.serial);
    assert(block_shape(fixed.program, state.prefixes@, state.salts@, state.blocks@[r.chain@[i].slot as int]->0));
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
