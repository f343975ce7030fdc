//! The core: a state behind its invariant, and the operations that policy may call in any order with any arguments.

use crate::block::Block;
use crate::error::CoreError;
use crate::ids::{BlockId, RequestId, Token};
use crate::invariant::*;
use crate::legal::*;
use crate::meaning::*;
use crate::next::*;
use crate::ops::commit::Record;
use crate::ops::commit::*;
use crate::ops::step::*;
use crate::pages::Pool;
use crate::plan::{Reads, Select, StepPlan};
use crate::program::Program;
use crate::proof::canonical::*;
use crate::proof::committing::*;
use crate::proof::forward::*;
use crate::proof::reference::*;
use crate::proof::stepping::*;
use crate::proof::trace::*;
use crate::request::Request;
use crate::seam::*;
use crate::spec::*;
use crate::state::*;
use vstd::prelude::*;

mod views;

verus! {

/// Pages, requests, blocks and the one step over a device. Each operation is `Ok` exactly when it is legal; on `Err`
/// nothing has changed, except that a step whose device failed is abandoned.
pub struct Core<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>> {
    device: D,
    fixed: Fixed<S>,
    /// None once the device has lost its cache, or the device or the sampler has panicked in an operation.
    state: Option<State<S>>,
    /// An empty plan, for `plan` when there is no state.
    idle: StepPlan,
    /// The records of the last commit, until the next run. The device holds their rows of logits.
    records: Vec<Record>,
    /// What clients have seen.
    seen: Ghost<Seq<Event<Bits, Bits>>>,
}

/// For proofs.
impl<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>> Core<D, S> {
    /// The state keeps its invariant, and everything that clients have seen is a reference run's.
    #[verifier::type_invariant]
    pub closed spec fn sound(self) -> bool {
        &&& views_ok(self.world(), self.seen@)
        &&& chooses::<D, S>(self.fixed)
        &&& self.idle.sequences@.len() == 0
        &&& records_ok(self.world(), self.seen@, self.device.logits_rows(), self.device.brought(), self.records@)
        &&& self.state matches Some(state) ==> state.inv(self.fixed) && state.dev@ == device_view(self.device) && state.log@ == self.seen@
    }

    pub closed spec fn world(self) -> World {
        World { w: self.device.w(), program: self.fixed.program, choice: self.fixed.choice@ }
    }

    pub closed spec fn spec_device(self) -> D {
        self.device
    }

    pub closed spec fn spec_fixed(self) -> Fixed<S> {
        self.fixed
    }

    pub closed spec fn spec_state(self) -> Option<State<S>> {
        self.state
    }

    pub closed spec fn log(self) -> Seq<Event<Bits, Bits>> {
        self.seen@
    }

    /// The records of the last commit; none once the next step has run.
    pub closed spec fn held(self) -> Seq<Record> {
        self.records@
    }

    pub(crate) proof fn lemma_state(self)
        requires self.sound(), self.spec_state() is Some,
        ensures
            self.spec_state()->0.inv(self.spec_fixed()),
            self.spec_state()->0.dev@ == device_view(self.spec_device()),
            self.world() == self.spec_state()->0.world(self.spec_fixed()),
            self.world().program == self.spec_fixed().program, self.log() == self.spec_state()->0.log@,
            views_ok(self.world(), self.log()),
    {
    }

    pub(crate) proof fn lemma_sound(self)
        requires self.sound(),
        ensures views_ok(self.world(), self.log()),
    {
    }
}

/// Operations.
impl<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>> Core<D, S> {
    /// A core with no request. Checks the program and clears the device's cache.
    pub fn new(device: D, sampler: S, program: Program) -> (out: Result<Self, CoreError>)
        ensures
            out is Ok <==> legal_new(device, sampler, program),
            out matches Ok(core) ==> built(core, device, sampler, program),
    {
        let mut device = device;
        let rows_max = device.rows_max();
        let selected_max = device.selected_max();
        let ghost w = sampler.w();
        let fixed = Fixed {
            program,
            sampler,
            rows_max,
            selected_max,
            choice: Ghost(|state: Bits, row: Bits| chosen::<D, S>(w, state, row)),
        };
        match State::new(&fixed, &mut device) {
            Ok(state) => {
                proof {
                    assert(views(state.log@) =~= Map::empty());
                }
                Ok(Core { device, fixed, seen: Ghost(state.log@), state: Some(state), idle: StepPlan::empty(), records: Vec::new() })
            },
            Err(error) => Err(error),
        }
    }

    /// Admits a request: a prompt of at least one token that leaves room for one more, the tenant's salt (requests of
    /// different salts never share a block) and the sampler's initial state.
    pub fn admit(&mut self, prompt: Vec<Token>, salt: u64, state: S::State) -> (out: Result<RequestId, CoreError>)
        ensures next(*old(self), Call::Admit { prompt: prompt@, salt, state: S::state_bits(&state) }, answer_admit(out), *final(self)),
    {
        proof { use_type_invariant(&*self); }
        let ghost call = Call::Admit { prompt: prompt@, salt, state: S::state_bits(&state) };
        let ghost log = self.seen@;
        let mut core = self.open()?;
        let out = core.admit(&self.fixed, prompt, salt, state);
        proof {
            lemma_views_ok(self.fixed, core);
            if out is Ok {
                lemma_records_kept(self.world(), log, core.log@.last(), self.device, self.records@);
                assert(core.log@ =~= log.push(core.log@.last()));
            }
        }
        self.seen = Ghost(core.log@);
        self.state = Some(core);
        proof {
            assert(self.seen@ =~= old(self).seen@ + events(call, answer_admit(out)));
        }
        out
    }

    /// Attaches a published block as the next page of the request's prefix, instead of computing it. The block must
    /// continue the request's chain: same parent, same depth, same tokens. At least one position stays to compute.
    pub fn attach(&mut self, request: RequestId, block: BlockId) -> (out: Result<(), CoreError>)
        ensures next(*old(self), Call::Attach { request, block }, answer(out), *final(self)),
    {
        proof { use_type_invariant(&*self); }
        let mut core = self.open()?;
        let out = core.attach(&self.fixed, request, block);
        proof { lemma_views_ok(self.fixed, core); }
        self.seen = Ghost(core.log@);
        self.state = Some(core);
        out
    }

    /// Appends a private page to the request's table of a group.
    pub fn take_page(&mut self, request: RequestId, group: usize) -> (out: Result<(), CoreError>)
        ensures next(*old(self), Call::TakePage { request, group }, answer(out), *final(self)),
    {
        proof { use_type_invariant(&*self); }
        let mut core = self.open()?;
        let out = core.take_page(&self.fixed, request, group);
        proof { lemma_views_ok(self.fixed, core); }
        self.seen = Ghost(core.log@);
        self.state = Some(core);
        out
    }

    /// Releases the request's pages that are wholly behind the group's window of its next position; returns their
    /// number. The request's own pages become free; blocks' pages stay registered.
    pub fn release_behind(&mut self, request: RequestId, group: usize) -> (out: Result<usize, CoreError>)
        ensures next(*old(self), Call::ReleaseBehind { request, group }, answer_release(out), *final(self)),
    {
        proof { use_type_invariant(&*self); }
        let mut core = self.open()?;
        let out = core.release_behind(&self.fixed, request, group);
        proof { lemma_views_ok(self.fixed, core); }
        self.seen = Ghost(core.log@);
        self.state = Some(core);
        out
    }

    /// Publishes the request's next full cached page as an immutable block. None if there is none yet.
    pub fn publish(&mut self, request: RequestId) -> (out: Result<Option<BlockId>, CoreError>)
        ensures next(*old(self), Call::Publish { request }, answer_publish(out), *final(self)),
    {
        proof { use_type_invariant(&*self); }
        let mut core = self.open()?;
        let out = core.publish(&self.fixed, request);
        proof { lemma_views_ok(self.fixed, core); }
        self.seen = Ghost(core.log@);
        self.state = Some(core);
        out
    }

    /// Drops a block that no request's table reads, and frees its pages.
    pub fn evict(&mut self, block: BlockId) -> (out: Result<(), CoreError>)
        ensures next(*old(self), Call::Evict { block }, answer(out), *final(self)),
    {
        proof { use_type_invariant(&*self); }
        let mut core = self.open()?;
        let out = core.evict(&self.fixed, block);
        proof { lemma_views_ok(self.fixed, core); }
        self.seen = Ghost(core.log@);
        self.state = Some(core);
        out
    }

    /// Frees a block's page of one group, if no request's table reads it; the block stays for the other groups.
    pub fn evict_page(&mut self, block: BlockId, group: usize) -> (out: Result<(), CoreError>)
        ensures next(*old(self), Call::EvictPage { block, group }, answer(out), *final(self)),
    {
        proof { use_type_invariant(&*self); }
        let mut core = self.open()?;
        let out = core.evict_page(&self.fixed, block, group);
        proof { lemma_views_ok(self.fixed, core); }
        self.seen = Ghost(core.log@);
        self.state = Some(core);
        out
    }

    /// Releases all pages of a request, so that nothing of it is cached. Its history and sampler state stay.
    pub fn preempt(&mut self, request: RequestId) -> (out: Result<(), CoreError>)
        ensures next(*old(self), Call::Preempt { request }, answer(out), *final(self)),
    {
        proof { use_type_invariant(&*self); }
        let mut core = self.open()?;
        let out = core.preempt(&self.fixed, request);
        proof { lemma_views_ok(self.fixed, core); }
        self.seen = Ghost(core.log@);
        self.state = Some(core);
        out
    }

    /// Removes a request, complete or not.
    pub fn abort(&mut self, request: RequestId) -> (out: Result<(), CoreError>)
        ensures next(*old(self), Call::Abort { request }, answer(out), *final(self)),
    {
        proof { use_type_invariant(&*self); }
        let mut core = self.open()?;
        let out = core.abort(&self.fixed, request);
        proof { lemma_views_ok(self.fixed, core); }
        self.seen = Ghost(core.log@);
        self.state = Some(core);
        out
    }

    /// Removes a complete request: its sampler ended it, or its history fills the context.
    pub fn finish(&mut self, request: RequestId) -> (out: Result<(), CoreError>)
        ensures next(*old(self), Call::Finish { request }, answer(out), *final(self)),
    {
        proof { use_type_invariant(&*self); }
        let mut core = self.open()?;
        let ghost log = self.seen@;
        let out = core.finish(&self.fixed, request);
        proof {
            lemma_views_ok(self.fixed, core);
            if out is Ok {
                lemma_records_kept(self.world(), log, core.log@.last(), self.device, self.records@);
                assert(core.log@ =~= log.push(core.log@.last()));
            }
        }
        self.seen = Ghost(core.log@);
        self.state = Some(core);
        proof {
            assert(self.seen@ =~= old(self).seen@ + events(Call::Finish { request }, answer(out)));
        }
        out
    }

    /// Begins a step.
    pub fn plan_begin(&mut self) -> (out: Result<(), CoreError>)
        ensures next(*old(self), Call::PlanBegin, answer(out), *final(self)),
    {
        proof { use_type_invariant(&*self); }
        let mut core = self.open()?;
        let out = core.plan_begin(&self.fixed);
        proof { lemma_views_ok(self.fixed, core); }
        self.seen = Ghost(core.log@);
        self.state = Some(core);
        out
    }

    /// Adds rows of a request to the step: `rows` tokens of its history from its first uncached position on, then the
    /// drafts. Drafts are allowed only if the rows reach the end of the history. A request may join a step once, and its
    /// table must have the pages that the rows read and write.
    pub fn plan_rows(&mut self, request: RequestId, rows: usize, drafts: &[Token], select: Select) -> (out: Result<(), CoreError>)
        ensures next(*old(self), Call::PlanRows { request, rows, drafts: drafts@, select }, answer(out), *final(self)),
    {
        proof { use_type_invariant(&*self); }
        let mut core = self.open()?;
        let out = core.plan_rows(&self.fixed, request, rows, drafts, select);
        proof { lemma_views_ok(self.fixed, core); }
        self.seen = Ghost(core.log@);
        self.state = Some(core);
        out
    }

    /// Abandons the step, whether or not it has run: nothing of it is cached or sampled.
    pub fn plan_cancel(&mut self) -> (out: Result<(), CoreError>)
        ensures next(*old(self), Call::PlanCancel, answer(out), *final(self)),
    {
        proof { use_type_invariant(&*self); }
        let mut core = self.open()?;
        let out = core.plan_cancel(&self.fixed);
        proof { lemma_views_ok(self.fixed, core); }
        self.seen = Ghost(core.log@);
        self.state = Some(core);
        out
    }

    /// Runs the step on the device. If the device fails, the step is abandoned; if its cache is lost too, the core
    /// refuses every later operation.
    pub fn run(&mut self) -> (out: Result<(), CoreError>)
        ensures next(*old(self), Call::Run, answer_run(out), *final(self)),
    {
        proof { use_type_invariant(&*self); }
        let mut core = self.open()?;
        if let Err(error) = core.check_run() {
            self.state = Some(core);
            return Err(error);
        }
        proof { lemma_run_ok(self.fixed, core); }
        self.records = Vec::new();
        let ran = self.device.run(&self.fixed.program, &core.plan);
        match ran {
            Ok(()) => {
                core.after_run(&self.fixed, false, Ghost(device_view(self.device)));
                self.state = Some(core);
                Ok(())
            },
            Err(error) => {
                if error.intact {
                    core.after_run(&self.fixed, true, Ghost(device_view(self.device)));
                    self.state = Some(core);
                }
                Err(CoreError::Device { error })
            },
        }
    }

    /// Ends the step: samples a token for every request whose rows reached the end of its history, and further tokens
    /// as long as drafts equal the sampled tokens. The records of one request are in order and together.
    pub fn commit(&mut self) -> (out: Result<Vec<Record>, CoreError>)
        ensures next(*old(self), Call::Commit, answer_commit(out, final(self).spec_device().logits_rows()), *final(self)),
    {
        proof { use_type_invariant(&*self); }
        let mut core = self.open()?;
        let out = core.commit(&self.fixed, &self.device);
        proof { lemma_views_ok(self.fixed, core); }
        if let Ok(records) = &out {
            self.take_records(records, Ghost(core.log@));
        }
        proof { use_type_invariant(&*self); }
        self.state = Some(core);
        out
    }

    /// Keeps the records of a commit, and the events that clients have seen with them.
    fn take_records(&mut self, records: &Vec<Record>, log: Ghost<Seq<Event<Bits, Bits>>>)
        requires
            old(self).spec_state() is None, views_ok(old(self).world(), log@),
            records_ok(old(self).world(), log@, old(self).spec_device().logits_rows(), old(self).spec_device().brought(), records@),
        ensures
            final(self).log() == log@, final(self).held() == records@,
            final(self).spec_device() == old(self).spec_device(), final(self).spec_fixed() == old(self).spec_fixed(),
            final(self).spec_state() is None,
    {
        proof { use_type_invariant(&*self); }
        let mut kept: Vec<Record> = Vec::with_capacity(records.len());
        let mut i: usize = 0;
        while i < records.len()
            invariant i <= records@.len(), kept@ == records@.take(i as int),
            decreases records.len() - i,
        {
            kept.push(records[i]);
            proof { assert(records@.take(i + 1) =~= records@.take(i as int).push(records@[i as int])); }
            i += 1;
        }
        proof { assert(records@.take(i as int) =~= records@); }
        self.records = Vec::new();
        self.seen = log;
        self.records = kept;
    }

    /// Takes the state out while an operation works on it. If a device or sampler panics, the core stays without a state.
    fn open(&mut self) -> (out: Result<State<S>, CoreError>)
        ensures
            *final(self) == (Core { state: None, ..*old(self) }),
            out is Ok <==> old(self).state is Some,
            out matches Ok(state) ==> old(self).state == Some(state),
            out is Err ==> out == Err::<State<S>, CoreError>(CoreError::Poisoned),
    {
        proof { use_type_invariant(&*self); }
        let mut state: Option<State<S>> = None;
        core::mem::swap(&mut self.state, &mut state);
        match state {
            Some(state) => Ok(state),
            None => Err(CoreError::Poisoned),
        }
    }
}

} // verus!
