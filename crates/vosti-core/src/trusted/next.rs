//! The terms of the promise. An execution is a newly built core, the calls on it and their results, where each step satisfies
//! `next`, which is literally the `ensures` of the operations of `core.rs`. `share_w` says when two executions share W.
//!
//! If a clause is missing here, the theorem says less; if a clause is wrong, no operation can ensure it. The examples of
//! `proof/suite.rs` and `proof/suite_legal.rs` test each clause from both sides. Read next: `proof/trace.rs` (the theorem).

use super::effects::*;
use super::legal::*;
use super::meaning::*;
use super::seam::*;
use super::spec::*;
use crate::block::{Block, Parent};
use crate::core::Core;
use crate::error::CoreError;
use crate::ids::{BlockId, NO_PAGE, PAGE, RequestId, Token};
use crate::invariant::*;
use crate::ops::commit::Record;
use crate::pages::{Page, Pool};
use crate::plan::{Reads, Select, SeqPlan, StepPlan};
use crate::program::*;
use crate::request::Request;
use crate::state::*;
use vstd::prelude::*;

verus! {

/// Two ops mean the same.
pub open(crate) spec fn same_op(a: Op, b: Op) -> bool {
    match (a, b) {
        (Op::Embed { k, out }, Op::Embed { k: k2, out: out2 }) => k == k2 && out == out2,
        (Op::Rowwise { k, ins, outs, rows }, Op::Rowwise { k: k2, ins: ins2, outs: outs2, rows: rows2 }) =>
            k == k2 && ins@ == ins2@ && outs@ == outs2@ && rows == rows2,
        (Op::StoreKv { k, ins, layer, back }, Op::StoreKv { k: k2, ins: ins2, layer: layer2, back: back2 }) =>
            k == k2 && ins@ == ins2@ && layer == layer2 && back == back2,
        (Op::Attend { k, q, layer, out, window }, Op::Attend { k: k2, q: q2, layer: layer2, out: out2, window: window2 }) =>
            k == k2 && q == q2 && layer == layer2 && out == out2 && window == window2,
        _ => false,
    }
}

/// Two programs mean the same: op by op, the same logits buffer, the same context.
pub open(crate) spec fn same_program(a: Program, b: Program) -> bool {
    &&& a.ops@.len() == b.ops@.len() && a.logits == b.logits && a.context == b.context
    &&& forall|n: int| 0 <= n < a.ops@.len() ==> same_op(#[trigger] a.ops@[n], b.ops@[n])
}

/// Two worlds are one W: the kernels' functions, what the program means, and the sampler's choice of each row in each state.
/// Nothing is said of devices, pages, limits or types.
pub open(crate) spec fn share_w(a: World, b: World) -> bool {
    &&& a.w == b.w
    &&& same_program(a.program, b.program)
    &&& forall|state: Bits, row: Bits| #[trigger] (a.choice)(state, row) == (b.choice)(state, row)
}

/// Clients of two devices read rows alike: equal contents are one row.
pub open(crate) spec fn read_alike<D: Device, E: Device<Logits = D::Logits>>() -> bool {
    forall|bits: Bits| #[trigger] D::logits_of(bits) == E::logits_of(bits)
}

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

/// The result of a call.
pub ghost enum Answer {
    /// Not legal: nothing changed.
    Refused,
    /// The device failed with this error: the step is abandoned.
    Failed { error: DeviceError },
    /// A new request.
    Admitted { request: RequestId },
    /// Pages were released.
    Released { pages: usize },
    /// A block was published, or there was none to publish.
    Published { block: Option<BlockId> },
    /// Records, and the rows of logits that the device holds.
    Committed { records: Seq<Record>, logits: Seq<Bits> },
    /// Any other operation was done.
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

/// The operation is legal now. Each `legal_*` stands in `legal.rs`.
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

/// The event that a record is.
pub open(crate) spec fn record_event(logits: Seq<Bits>, r: Record) -> Event<Bits, Bits> {
    Event::Emitted { request: r.request.serial, entry: Entry { logits: logits[r.selected as int], token: r.token } }
}

pub open(crate) spec fn record_events(logits: Seq<Bits>, records: Seq<Record>) -> Seq<Event<Bits, Bits>> {
    records.map_values(|r: Record| record_event(logits, r))
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

/// What a record says is so: its logits and its token stand at its position in its request's view, and its request is done with
/// it exactly if the reference run is.
pub open(crate) spec fn record_ok(world: World, log: Seq<Event<Bits, Bits>>, logits: Seq<Bits>, brought: spec_fn(int, Reads) -> bool, r: Record) -> bool {
    let v = views(log)[r.request.serial];
    let k = r.position - v.prompt.len();
    &&& views(log).contains_key(r.request.serial)
    &&& 0 <= k < v.entries.len() && r.selected < logits.len()
    &&& v.entries[k] == Entry { logits: logits[r.selected as int], token: r.token }
    &&& r.done == reference(world, v.prompt, v.initial, (k + 1) as nat).done
    &&& r.whole ==> brought(r.selected as int, Reads::Row)
}

pub open(crate) spec fn records_ok(world: World, log: Seq<Event<Bits, Bits>>, logits: Seq<Bits>, brought: spec_fn(int, Reads) -> bool, records: Seq<Record>) -> bool {
    forall|i: int| 0 <= i < records.len() ==> (#[trigger] records[i]).index == i && record_ok(world, log, logits, brought, records[i])
}

/// A record is of this sequence of a step, and its row of logits is on the host exactly if the plan wants it there.
pub open(crate) spec fn of_sequence(plan: StepPlan, q: int, r: Record) -> bool {
    0 <= q < plan.sequences@.len() && r.request == plan.sequences@[q].request && r.whole == plan.sequences@[q].whole
}

pub open(crate) spec fn of_step(plan: StepPlan, r: Record) -> bool {
    exists|q: int| #[trigger] of_sequence(plan, q, r)
}

/// What every operation ensures.
pub open(crate) spec fn next<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(old: Core<D, S>, call: Call, answer: Answer, new: Core<D, S>) -> bool {
    // It is refused exactly when it is not legal, and then nothing changes.
    &&& answer is Refused <==> !legal(old, call)
    &&& fits(call, answer)
    &&& answer is Refused ==> new == old
    // W does not change, and only `run` changes the device, which failed exactly if the answer says so.
    &&& new.world() == old.world()
    &&& device_did(old.spec_device(), call, answer, new.spec_device())
    // The client sees the call's events and nothing else; the logits of records are the device's, and can be had.
    &&& new.log() == old.log() + events(call, answer)
    &&& answer matches Answer::Committed { records, logits } ==> {
        &&& logits == new.spec_device().logits_rows()
        &&& new.held() == records
        &&& records_ok(new.world(), new.log(), logits, new.spec_device().brought(), records)
        &&& forall|i: int| 0 <= i < records.len() ==> new.spec_request((#[trigger] records[i]).request) is Some
                && of_step(old.spec_state()->0.plan, records[i])
    }
    // The call has its effect. Only a device that has lost its cache leaves the core without a state.
    &&& !(answer is Refused) ==> match answer {
        Answer::Failed { error } if !error.intact => new.spec_state() is None,
        _ => new.spec_state() is Some && did(old.world().program, old.spec_state()->0, call, answer, new.spec_state()->0),
    }
    &&& new.sound()
}

/// The sampler's choice of a row of the device, by what it reads of it.
pub open(crate) spec fn chosen<D: Device<Logits = S::Logits, Top = S::Top>, S: Sampler>(w: Bits, state: Bits, row: Bits) -> (Token, Bits, bool) {
    match S::reads_of(state) {
        Reads::Best => S::choice_best(w, state, D::best_of(row)),
        Reads::Top => S::choice_top(w, state, D::top_of(row)),
        Reads::Drawn(draw) => S::choice_drawn(w, state, D::drawn_of(row, draw)),
        Reads::Row => S::choice(w, state, D::logits_of(row)),
    }
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
/// A restart begins another execution.
pub ghost struct Execution<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>> {
    pub cores: Seq<Core<D, S>>,
    pub calls: Seq<Call>,
    pub answers: Seq<Answer>,
}

impl<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>> Execution<D, S> {
    /// It begins with a newly built core, and each call satisfies `next`.
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

    /// What clients saw of all calls.
    pub open(crate) spec fn trace(self) -> Seq<Event<Bits, Bits>> {
        self.events(self.calls.len() as int)
    }

    /// Its W.
    pub open(crate) spec fn world(self) -> World {
        self.cores[0].world()
    }
}

} // verus!
