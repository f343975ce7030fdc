//! The theorems are not empty: this file has a contrary sampler beside the contrary device of `symbolic.rs`, an execution of every kind
//! of call over both, and two executions, on different pools and with different failures, whose traces are proved to be traces of one W.
//! Tests run them: each ends in records, so none of its calls was refused.

use super::symbolic::*;
use super::trace::*;
use crate::core::Core;
use crate::error::CoreError;
use crate::ids::{BlockId, RequestId, Token};
use crate::meaning::*;
use crate::next::*;
use crate::plan::*;
use crate::program::*;
use crate::seam::*;
use crate::spec::*;
use crate::state::*;
use vstd::prelude::*;

verus! {

/// A contrary sampler. Its state says about how many tokens are left; what its choice reads, the token, the next state and whether it ends
/// depend on state and row, and each kind of choice may end and may go on.
pub struct Countdown {
    pub(crate) vocab: u32,
}

impl Countdown {
    /// The token made of a row, a list or a best token.
    fn count(&self, state: &mut u32, what: u32) -> (out: (Token, bool))
        ensures
            made_of(self.w(), Self::state_bits(old(state)), what as int) == (out.0, Self::state_bits(final(state)), out.1),
            out.0 < self.vocab_limit(),
    {
        let n = *state;
        let token = ((what as u64 + n as u64) % self.vocab() as u64) as u32;
        *state = if n > 1 + token % 2 { n - 1 - token % 2 } else { 0 };
        (token, n <= 2 || token == 0)
    }
}

/// Of a row, a list or a best token, in a state: the token, the next state, whether the request is done.
spec fn made_of(w: Bits, state: Bits, what: int) -> (Token, Bits, bool) {
    let token = (what + state.code) % (if w.code > 0 { w.code } else { 1 });
    (token as u32, Bits { code: if state.code > 1 + token % 2 { state.code - 1 - token % 2 } else { 0 } }, state.code <= 2 || token == 0)
}

/// The numbers by which a token is drawn in a state.
spec fn numbers_of(state: u32) -> Draw {
    Draw { scale: state, part: 1, within: 2 }
}

fn numbers(state: u32) -> (draw: Draw)
    ensures draw == numbers_of(state),
{
    Draw { scale: state, part: 1, within: 2 }
}

impl Sampler for Countdown {
    type Logits = u64;

    type Top = u64;

    type State = u32;

    closed spec fn w(&self) -> Bits {
        Bits { code: self.vocab as int }
    }

    closed spec fn state_bits(state: &u32) -> Bits {
        Bits { code: *state as int }
    }

    closed spec fn choice(w: Bits, state: Bits, logits: &u64) -> (Token, Bits, bool) {
        made_of(w, state, (*logits % 0x1_0000_0000) as int)
    }

    closed spec fn choice_best(w: Bits, state: Bits, best: Token) -> (Token, Bits, bool) {
        made_of(w, state, best as int)
    }

    closed spec fn choice_top(w: Bits, state: Bits, top: &u64) -> (Token, Bits, bool) {
        made_of(w, state, (*top % 0x1_0000_0000) as int)
    }

    closed spec fn choice_drawn(w: Bits, state: Bits, drawn: Token) -> (Token, Bits, bool) {
        made_of(w, state, drawn as int)
    }

    closed spec fn reads_of(state: Bits) -> Reads {
        match state.code as u32 {
            1 | 3 => Reads::Best,
            2 | 4 => Reads::Top,
            5 | 6 => Reads::Drawn(numbers_of(state.code as u32)),
            _ => Reads::Row,
        }
    }

    closed spec fn vocab_limit(&self) -> u32 {
        if self.vocab == 0 { 1 } else { self.vocab }
    }

    fn vocab(&self) -> u32 {
        if self.vocab == 0 { 1 } else { self.vocab }
    }

    fn sample(&self, state: &mut u32, logits: &u64) -> (Token, bool) {
        self.count(state, (*logits % 0x1_0000_0000) as u32)
    }

    fn reads(&self, state: &u32) -> Reads {
        match *state {
            1 | 3 => Reads::Best,
            2 | 4 => Reads::Top,
            5 | 6 => Reads::Drawn(numbers(*state)),
            _ => Reads::Row,
        }
    }

    fn guess(&self, state: &u32, ahead: usize) -> Draw {
        // Right if the tokens before it are even.
        numbers(if *state as usize > ahead { *state - ahead as u32 } else { 0 })
    }

    fn sample_best(&self, state: &mut u32, best: Token) -> (Token, bool) {
        self.count(state, best)
    }

    fn sample_drawn(&self, state: &mut u32, drawn: Token) -> (Token, bool) {
        self.count(state, drawn)
    }

    fn sample_top(&self, state: &mut u32, top: &u64) -> (Token, bool) {
        self.count(state, (*top % 0x1_0000_0000) as u32)
    }
}

/// The counts of a scenario.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scene {
    /// Tokens that the core gave out.
    pub records: usize,
    /// Blocks that were published.
    pub published: usize,
    /// Pages that a request took from published blocks.
    pub attached: usize,
    /// Blocks that were evicted.
    pub evicted: usize,
    /// Pages that were released behind a window: none of a layer without one.
    pub released: usize,
}

/// The program has an op of every kind over one group.
spec fn is_small(program: Program) -> bool {
    &&& program.ops@.len() == 4 && program.logits == 2 && program.context == 200
    &&& program.ops@[0] == (Op::Embed { k: 0, out: 0 })
    &&& program.ops@[1] matches Op::StoreKv { k, ins, layer, back } && k == 0 && ins@ == seq![0u32] && layer == 0 && back == 65
    &&& program.ops@[2] == (Op::Attend { k: 0, q: 0, layer: 0, out: 1, window: None })
    &&& program.ops@[3] matches Op::Rowwise { k, ins, outs, rows } && k == 0 && ins@ == seq![1u32] && outs@ == seq![2u32] && rows is Selected
}

fn small_program() -> (program: Program)
    ensures is_small(program),
{
    let row = BufferDecl { width: 1, dtype: Dtype::Bf16, rows: RowSet::All };
    let mut buffers = Vec::new();
    buffers.push(row);
    buffers.push(row);
    buffers.push(BufferDecl { width: 9, dtype: Dtype::F32, rows: RowSet::Selected });
    let mut groups = Vec::new();
    groups.push(GroupDecl { window: None, entry: Vec::new(), state: Vec::new() });
    let mut layers = Vec::new();
    layers.push(LayerDecl { group: 0 });
    let mut ops = Vec::new();
    ops.push(Op::Embed { k: 0, out: 0 });
    ops.push(Op::StoreKv { k: 0, ins: one(0), layer: 0, back: 65 });
    ops.push(Op::Attend { k: 0, q: 0, layer: 0, out: 1, window: None });
    ops.push(Op::Rowwise { k: 0, ins: one(1), outs: one(2), rows: RowSet::Selected });
    Program { ops, buffers, groups, layers, logits: 2, vocab: 9, context: 200, kernels: 1 }
}

fn one(x: u32) -> (list: Vec<u32>)
    ensures list@ == seq![x],
{
    let mut list = Vec::new();
    list.push(x);
    proof { assert(list@ =~= seq![x]); }
    list
}

fn zeros(n: usize) -> (prompt: Vec<Token>)
    ensures prompt@ == Seq::new(n as nat, |i: int| 0u32),
{
    let mut prompt: Vec<Token> = Vec::new();
    let mut i: usize = 0;
    while i < n
        invariant i <= n, prompt@ =~= Seq::new(i as nat, |i: int| 0u32),
        decreases n - i,
    {
        prompt.push(0);
        i += 1;
    }
    prompt
}

/// A run that fails, with the cache intact or not.
fn failure(intact: bool) -> Option<DeviceError> {
    Some(DeviceError { message: String::new(), intact })
}

/// An execution and its core, after some calls.
pub struct Witness {
    pub(crate) core: Core<Symbolic, Countdown>,
    pub(crate) execution: Ghost<Execution<Symbolic, Countdown>>,
    /// Records and completions that clients saw.
    pub records: usize,
    /// Requests that completed.
    pub completed: usize,
}

impl Witness {
    /// What it holds is an execution, of this W, and so many events were seen.
    pub closed spec fn ok(self) -> bool {
        &&& self.execution@.ok() && self.execution@.cores.last() == self.core
        &&& self.core.log() == self.execution@.trace()
        &&& of_small(self.execution@.world())
    }

    /// What its clients saw.
    pub closed spec fn trace(self) -> Seq<Event<Bits, Bits>> {
        self.execution@.trace()
    }
}

/// The W of all witnesses.
spec fn of_small(world: World) -> bool {
    &&& world.w == kernels() && is_small(world.program)
    &&& forall|state: Bits, row: Bits| #[trigger] (world.choice)(state, row) == chosen::<Symbolic, Countdown>(Bits { code: 9 }, state, row)
}

/// The execution and one more call.
spec fn longer(e: Execution<Symbolic, Countdown>, call: Call, answer: Answer, new: Core<Symbolic, Countdown>) -> Execution<Symbolic, Countdown> {
    Execution { cores: e.cores.push(new), calls: e.calls.push(call), answers: e.answers.push(answer) }
}

/// One more call makes a longer execution.
proof fn lemma_longer(e: Execution<Symbolic, Countdown>, call: Call, answer: Answer, new: Core<Symbolic, Countdown>)
    requires e.ok(), next(e.cores.last(), call, answer, new), e.cores.last().log() == e.trace(),
    ensures
        longer(e, call, answer, new).ok(), longer(e, call, answer, new).world() == e.world(),
        longer(e, call, answer, new).trace() == new.log(), longer(e, call, answer, new).cores.last() == new,
{
    let n = e.calls.len() as int;
    let longer = longer(e, call, answer, new);
    lemma_same_events(e, longer, n);
}

proof fn lemma_same_events(a: Execution<Symbolic, Countdown>, b: Execution<Symbolic, Countdown>, n: int)
    requires
        n <= a.calls.len() <= b.calls.len(), a.answers.len() == a.calls.len(), b.answers.len() == b.calls.len(),
        forall|i: int| 0 <= i < n ==> a.calls[i] == b.calls[i] && a.answers[i] == b.answers[i],
    ensures a.events(n) == b.events(n),
    decreases n,
{
    if n > 0 {
        lemma_same_events(a, b, n - 1);
    }
}

impl Witness {
    fn begin(pages: usize, failures: Vec<Option<DeviceError>>) -> (out: Result<Self, CoreError>)
        ensures out matches Ok(w) ==> w.ok(),
    {
        let core = Core::new(Symbolic::new(128, 100, vec![pages], 3, true, failures), Countdown { vocab: 9 }, small_program())?;
        let ghost e = Execution { cores: seq![core], calls: seq![], answers: seq![] };
        proof { assert(e.events(0) =~= core.log()); }
        Ok(Witness { core, execution: Ghost(e), records: 0, completed: 0 })
    }

    /// Writes a call down.
    fn note(&mut self, was: Ghost<Self>, call: Ghost<Call>, answer: Ghost<Answer>)
        requires
            was@.ok(), next(was@.core, call@, answer@, old(self).core), old(self).execution == was@.execution,
        ensures final(self).ok(), final(self).core == old(self).core,
    {
        let ghost e = self.execution@;
        proof { lemma_longer(e, call@, answer@, self.core); }
        self.execution = Ghost(longer(e, call@, answer@, self.core));
    }

    fn admit(&mut self, tokens: usize, state: u32) -> (out: Result<RequestId, CoreError>)
        requires old(self).ok(),
        ensures final(self).ok(),
    {
        let ghost was = *self;
        let prompt = zeros(tokens);
        let ghost call = Call::Admit { prompt: prompt@, salt: 0, state: Countdown::state_bits(&state) };
        let out = self.core.admit(prompt, 0, state);
        self.note(Ghost(was), Ghost(call), Ghost(answer_admit(out)));
        out
    }

    fn take_page(&mut self, id: RequestId) -> (out: Result<(), CoreError>)
        requires old(self).ok(),
        ensures final(self).ok(),
    {
        let ghost was = *self;
        let out = self.core.take_page(id, 0);
        self.note(Ghost(was), Ghost(Call::TakePage { request: id, group: 0 }), Ghost(answer(out)));
        out
    }

    /// Begins a step, puts rows in, runs. What the device said.
    fn run(&mut self, id: RequestId, rows: usize, drafts: &[Token], select: Select) -> (out: Result<(), CoreError>)
        requires old(self).ok(),
        ensures final(self).ok(),
    {
        let ghost was = *self;
        let out = self.core.plan_begin();
        self.note(Ghost(was), Ghost(Call::PlanBegin), Ghost(answer(out)));
        out?;
        let ghost was = *self;
        let out = self.core.plan_rows(id, rows, drafts, select);
        self.note(Ghost(was), Ghost(Call::PlanRows { request: id, rows, drafts: drafts@, select }), Ghost(answer(out)));
        out?;
        let ghost was = *self;
        let out = self.core.run();
        self.note(Ghost(was), Ghost(Call::Run), Ghost(answer_run(out)));
        out
    }

    fn commit(&mut self) -> (out: Result<(), CoreError>)
        requires old(self).ok(),
        ensures final(self).ok(),
    {
        let ghost was = *self;
        let out = self.core.commit();
        self.note(Ghost(was), Ghost(Call::Commit), Ghost(answer_commit(out, self.core.spec_device().logits_rows())));
        let records = out?;
        let mut i: usize = 0;
        while i < records.len()
            invariant i <= records@.len(), self.ok(),
            decreases records.len() - i,
        {
            if !records[i].whole || self.core.row(&records[i]).is_some() {
                self.records = self.records.saturating_add(1);
            }
            i += 1;
        }
        Ok(())
    }

    fn finish(&mut self, id: RequestId) -> (out: Result<(), CoreError>)
        requires old(self).ok(),
        ensures final(self).ok(),
    {
        let ghost was = *self;
        let out = self.core.finish(id);
        self.note(Ghost(was), Ghost(Call::Finish { request: id }), Ghost(answer(out)));
        out?;
        self.completed = self.completed.saturating_add(1);
        Ok(())
    }

    fn attach(&mut self, request: RequestId, block: BlockId) -> (out: Result<(), CoreError>)
        requires old(self).ok(),
        ensures final(self).ok(),
    {
        let ghost was = *self;
        let out = self.core.attach(request, block);
        self.note(Ghost(was), Ghost(Call::Attach { request, block }), Ghost(answer(out)));
        out
    }

    fn release_behind(&mut self, request: RequestId, group: usize) -> (out: Result<usize, CoreError>)
        requires old(self).ok(),
        ensures final(self).ok(),
    {
        let ghost was = *self;
        let out = self.core.release_behind(request, group);
        self.note(Ghost(was), Ghost(Call::ReleaseBehind { request, group }), Ghost(answer_release(out)));
        out
    }

    fn publish(&mut self, request: RequestId) -> (out: Result<Option<BlockId>, CoreError>)
        requires old(self).ok(),
        ensures final(self).ok(),
    {
        let ghost was = *self;
        let out = self.core.publish(request);
        self.note(Ghost(was), Ghost(Call::Publish { request }), Ghost(answer_publish(out)));
        out
    }

    fn evict(&mut self, block: BlockId) -> (out: Result<(), CoreError>)
        requires old(self).ok(),
        ensures final(self).ok(),
    {
        let ghost was = *self;
        let out = self.core.evict(block);
        self.note(Ghost(was), Ghost(Call::Evict { block }), Ghost(answer(out)));
        out
    }

    fn evict_page(&mut self, block: BlockId, group: usize) -> (out: Result<(), CoreError>)
        requires old(self).ok(),
        ensures final(self).ok(),
    {
        let ghost was = *self;
        let out = self.core.evict_page(block, group);
        self.note(Ghost(was), Ghost(Call::EvictPage { block, group }), Ghost(answer(out)));
        out
    }

    fn preempt(&mut self, request: RequestId) -> (out: Result<(), CoreError>)
        requires old(self).ok(),
        ensures final(self).ok(),
    {
        let ghost was = *self;
        let out = self.core.preempt(request);
        self.note(Ghost(was), Ghost(Call::Preempt { request }), Ghost(answer(out)));
        out
    }

    fn abort(&mut self, request: RequestId) -> (out: Result<(), CoreError>)
        requires old(self).ok(),
        ensures final(self).ok(),
    {
        let ghost was = *self;
        let out = self.core.abort(request);
        self.note(Ghost(was), Ghost(Call::Abort { request }), Ghost(answer(out)));
        out
    }

    /// Begins a step of one row, and gives it up.
    fn give_up(&mut self, id: RequestId) -> (out: Result<(), CoreError>)
        requires old(self).ok(),
        ensures final(self).ok(),
    {
        self.run(id, 1, &[], Select::All)?;
        let ghost was = *self;
        let out = self.core.plan_cancel();
        self.note(Ghost(was), Ghost(Call::PlanCancel), Ghost(answer(out)));
        out
    }

    /// One step of one request.
    fn step(&mut self, id: RequestId, rows: usize, drafts: &[Token]) -> (out: Result<(), CoreError>)
        requires old(self).ok(),
        ensures final(self).ok(),
    {
        self.run(id, rows, drafts, Select::Last)?;
        self.commit()
    }

    /// One request for so many tokens after a prompt, chunk by chunk. A run that fails is tried again.
    fn serve(&mut self, prompt: usize, tokens: u32, chunk: usize) -> (out: Result<(), CoreError>)
        requires old(self).ok(),
        ensures final(self).ok(),
    {
        let id = self.admit(prompt, tokens)?;
        self.take_page(id)?;
        let mut steps: usize = 0;
        while steps < 100 && !self.core.complete(id)
            invariant self.ok(),
            decreases 100 - steps,
        {
            let left = match self.core.request(id) {
                Some(request) => request.history().len().saturating_sub(request.cached()),
                None => 0,
            };
            let rows = if left < chunk { left } else { chunk };
            if self.run(id, rows, &[], Select::Shown).is_ok() {
                self.commit()?;
            }
            steps += 1;
        }
        self.finish(id)
    }
}

/// An execution of every kind of call, none of them refused: a prompt in chunks, a step that is given up, drafts of which one comes true, a
/// block that another request attaches, preemption after which the request finds its own block again, completions, an abort, evictions.
pub fn scenario() -> (out: Result<(Scene, Witness), CoreError>)
    ensures out matches Ok((_, one)) ==> one.ok() && deterministic(one.trace(), one.trace()),
{
    let mut one = Witness::begin(8, Vec::new())?;
    let first = one.admit(70, 9)?;
    one.take_page(first)?;
    one.take_page(first)?;
    one.give_up(first)?;
    one.step(first, 40, &[])?;
    one.step(first, 30, &[])?;
    // A row is its position's number. The token of position p in state n is (p + n) % 9, and the state goes down by one for an even token:
    // 6 comes for position 70 and again for 71. So the second draft is wrong.
    one.step(first, 1, &[6, 8])?;
    let block = match one.publish(first)? {
        Some(block) => block,
        None => return Err(CoreError::BlockMismatch),
    };
    let second = one.admit(70, 1)?;
    one.attach(second, block)?;
    one.take_page(second)?;
    one.step(second, 6, &[])?;
    let released = one.release_behind(second, 0)?;
    one.finish(second)?;
    // The first loses its pages, finds its own block again, and computes the rest: 73 tokens, 64 of them attached.
    one.preempt(first)?;
    one.attach(first, block)?;
    one.take_page(first)?;
    one.step(first, 9, &[])?;
    one.step(first, 1, &[])?;
    one.step(first, 1, &[])?;
    one.step(first, 1, &[])?;
    one.finish(first)?;
    let third = one.admit(3, 1)?;
    one.abort(third)?;
    one.evict_page(block, 0)?;
    one.evict(block)?;
    let scene = Scene { records: one.records, published: 1, attached: 2, evicted: 1, released };
    proof { corollary_one_execution(one.execution@); }
    Ok((scene, one))
}

/// Two executions of one W: on other pools, in other chunks, with other requests beside it; of the second one the runs fail at
/// times, and after its last run its device has lost its cache. Whatever was asked of both was answered alike.
pub fn two_executions() -> (out: Result<(Witness, Witness), CoreError>)
    ensures
        out matches Ok((one, other)) ==> one.ok() && other.ok()
            && deterministic(one.trace(), other.trace()) && deterministic(one.trace(), one.trace()),
{
    let mut one = Witness::begin(8, Vec::new())?;
    one.serve(3, 6, 64)?;
    let mut failures: Vec<Option<DeviceError>> = Vec::new();
    failures.push(failure(true));
    failures.push(None);
    failures.push(failure(true));
    let mut other = Witness::begin(2, failures)?;
    other.serve(5, 0, 2)?;
    other.serve(3, 6, 1)?;
    proof {
        lemma_one_w(one.execution@.world(), other.execution@.world());
        theorem_deterministic(one.execution@, other.execution@);
        corollary_one_execution(one.execution@);
    }
    Ok((one, other))
}

/// A device that loses its cache leaves a core that refuses everything; what clients saw before stays as it was.
pub fn lost_execution() -> (out: Result<Witness, CoreError>)
    ensures out matches Ok(one) ==> one.ok() && deterministic(one.trace(), one.trace()),
{
    let mut failures: Vec<Option<DeviceError>> = Vec::new();
    failures.push(None);
    failures.push(failure(false));
    let mut one = Witness::begin(2, failures)?;
    one.serve(3, 1, 64)?;
    let id = one.admit(3, 1)?;
    one.take_page(id)?;
    if one.run(id, 3, &[], Select::Last).is_ok() || one.admit(3, 1).is_ok() {
        return Err(CoreError::NoStep);
    }
    proof { corollary_one_execution(one.execution@); }
    Ok(one)
}

/// Worlds built of the same parts are one W, though nothing says that their programs are one value.
proof fn lemma_one_w(a: World, b: World)
    requires of_small(a), of_small(b),
    ensures share_w(a, b),
{
}

} // verus!
