//! What each `legal_*` accepts and refuses. The code is `Ok` exactly when its predicate holds, so a predicate that is changed alone
//! dies in `ops/`; a predicate that is changed together with its code dies here. Each lemma shows first where an operation is legal, as
//! a policy counts on it, then the arguments that must not pass.

use super::canonical::*;
use super::progress::*;
use super::stepping::*;
use super::trace::*;
use crate::block::*;
use crate::core::Core;
use crate::ids::{BlockId, NO_PAGE, PAGE, RequestId, Token};
use crate::invariant::*;
use crate::legal::*;
use crate::next::*;
use crate::ops::blocks::*;
use crate::ops::pages::*;
use crate::plan::*;
use crate::program::*;
use crate::request::Request;
use crate::seam::*;
use crate::spec::*;
use crate::state::*;
use vstd::prelude::*;

verus! {

/// A core is built of a program that passes its check, the sampler's vocabulary is the program's, and limits have 32 bits.
proof fn lemma_new<D: Device, S: Sampler>(device: D, sampler: S, program: Program, g: int)
    requires 0 <= g < program.groups@.len(),
    ensures
        program.wf() && sampler.vocab_limit() == program.vocab && device.limits().rows == 4 && device.limits().selected == 4
            && (forall|x: int| #[trigger] (device.limits().pages)(x) == 1) ==> legal_new(device, sampler, program),
        !program.wf() ==> !legal_new(device, sampler, program),
        sampler.vocab_limit() != program.vocab ==> !legal_new(device, sampler, program),
        device.limits().rows > u32::MAX || device.limits().selected > u32::MAX ==> !legal_new(device, sampler, program),
        (device.limits().pages)(g) == 0 || (device.limits().pages)(g) > COUNT_MAX / PAGE ==> !legal_new(device, sampler, program),
{
}

/// Any prompt is admitted that has a token and leaves room for one, whatever else is going on.
proof fn lemma_admit<S: Sampler>(state: State<S>, fixed: Fixed<S>, prompt: Seq<Token>, i: int)
    ensures
        state.next_request == 7 && 1 <= prompt.len() && prompt.len() + 1 == fixed.program.context && tokens_in(prompt, fixed.program.vocab)
            ==> state.legal_admit(fixed, prompt),
        prompt.len() == 0 || prompt.len() == fixed.program.context ==> !state.legal_admit(fixed, prompt),
        0 <= i < prompt.len() && prompt[i] >= fixed.program.vocab ==> !state.legal_admit(fixed, prompt),
        state.next_request == u64::MAX ==> !state.legal_admit(fixed, prompt),
{
    reveal(tokens_in);
}

/// Every token below the vocabulary is one.
proof fn lemma_tokens(vocab: u32)
    requires vocab > 1,
    ensures tokens_in(seq![0u32, (vocab - 1) as u32], vocab), !tokens_in(seq![0u32, vocab], vocab), tokens_in(Seq::empty(), vocab),
{
    reveal(tokens_in);
    assert(seq![0u32, vocab][1] == vocab);
}

/// A block is attached where it continues the chain; `theorem_prefix_attaches` says when it is.
proof fn lemma_attach<S: Sampler>(state: State<S>, id: RequestId, block: BlockId)
    ensures
        ({
            let (r, b) = (state.requests@[id.slot as int]->0, state.blocks@[block.slot as int]->0);
            let depth = r.chain@.len();
            &&& !state.known(id) || r.planned is Some || !state.published(block) ==> !state.legal_attach(id, block)
            // Nothing else of the request is cached, and a position stays to compute.
            &&& r.cached != depth * PAGE ==> !state.legal_attach(id, block)
            &&& (depth + 1) * PAGE >= r.history@.len() ==> !state.legal_attach(id, block)
            // The block is the next of this chain, of this tenant, with these tokens.
            &&& b.depth != depth || b.parent != r.chain_parent() ==> !state.legal_attach(id, block)
            &&& b.tokens@ != r.history@.subrange(depth * PAGE, (depth + 1) * PAGE) ==> !state.legal_attach(id, block)
        }),
{
}

/// A request of an idle core takes any free page that its context may need; no other.
proof fn lemma_take_page<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(core: Core<D, S>, id: RequestId, group: usize)
    requires core.sound(), core.spec_state() is Some, core.spec_state()->0.phase is Idle, group < core.world().program.groups@.len(),
    ensures
        ({
            let r = core.spec_request(id)->0;
            let short = r.tables@[group as int]@.len() < context_pages(core.world().program.context);
            let call = Call::TakePage { request: id, group };
            &&& core.spec_request(id) is Some && short && core.spec_free(group as int) > 0 ==> legal(core, call)
            &&& core.spec_request(id) is None || !short || core.spec_free(group as int) == 0 ==> !legal(core, call)
        }),
{
    core.lemma_state();
    assert(core.spec_state()->0.pools@.len() == core.world().program.groups@.len()) by { reveal(State::inv_shape); }
    if core.spec_request(id) is Some {
        lemma_idle_request(core, id);
    }
}

/// In an idle core any live request may let go, publish, be preempted or aborted; it is finished only if it is complete.
proof fn lemma_idle_core<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(core: Core<D, S>, id: RequestId, group: usize)
    requires core.sound(), core.spec_state() is Some, core.spec_state()->0.phase is Idle, core.spec_request(id) is Some,
    ensures
        group < core.world().program.groups@.len() ==> legal(core, Call::ReleaseBehind { request: id, group }),
        group >= core.world().program.groups@.len() ==> !legal(core, Call::ReleaseBehind { request: id, group }),
        core.spec_state()->0.next_block < u64::MAX ==> legal(core, Call::Publish { request: id }),
        legal(core, Call::Preempt { request: id }), legal(core, Call::Abort { request: id }),
        legal(core, Call::Finish { request: id }) <==> core.spec_complete(id),
        legal(core, Call::PlanBegin), !legal(core, Call::PlanCancel), !legal(core, Call::Run), !legal(core, Call::Commit),
{
    lemma_idle_request(core, id);
}

/// What is complete: a request that its sampler ended, or whose history fills the context. No other.
proof fn lemma_complete<T>(r: Request<T>, context: u32)
    ensures
        r.done ==> r.is_complete(context), r.history@.len() == context ==> r.is_complete(context),
        !r.done && r.history@.len() + 1 == context ==> !r.is_complete(context),
{
}

/// A request that is unknown or in the step does not change.
proof fn lemma_pinned<S: Sampler>(state: State<S>, fixed: Fixed<S>, id: RequestId, block: BlockId, group: usize)
    requires !state.known(id) || state.requests@[id.slot as int]->0.planned is Some,
    ensures
        !state.legal_attach(id, block), !state.legal_take_page(fixed, id, group), !state.legal_release_behind(id, group), !state.legal_publish(id),
        !state.legal_preempt(id), !state.legal_abort(id), !state.legal_finish(fixed, id),
        !state.legal_plan_rows(fixed, id, 1, Seq::empty(), Select::Last),
{
}

/// A forged or stale identity names no request and no block.
proof fn lemma_stale<S: Sampler>(state: State<S>, id: RequestId, block: BlockId)
    ensures
        live(state.requests@, id.slot as int) && state.requests@[id.slot as int]->0.serial != id.serial ==> !state.known(id),
        !live(state.requests@, id.slot as int) ==> !state.known(id),
        registered(state.blocks@, block.slot as int) && state.blocks@[block.slot as int]->0.serial != block.serial ==> !state.published(block),
        !registered(state.blocks@, block.slot as int) ==> !state.published(block),
{
}

/// A page is published when it is full and cached; then identities must be left.
proof fn lemma_publish<S: Sampler>(state: State<S>, id: RequestId)
    requires state.free_to_change(id), state.requests@[id.slot as int]->0.chain@.len() == 1,
    ensures
        state.requests@[id.slot as int]->0.cached == 2 * PAGE ==> state.publishable(id),
        state.requests@[id.slot as int]->0.cached == 2 * PAGE - 1 ==> !state.publishable(id) && state.legal_publish(id),
        state.publishable(id) && state.next_block == u64::MAX ==> !state.legal_publish(id),
{
}

/// A block is evicted if it is there and no table reads it; a page of it, if there is one.
proof fn lemma_evict<S: Sampler>(state: State<S>, block: BlockId, group: usize, reader: int)
    requires group < state.pools@.len(),
    ensures
        ({
            let b = state.blocks@[block.slot as int]->0;
            let reads = live(state.requests@, reader) && state.requests@[reader]->0.holds_page(block, b.depth as int, group as int);
            &&& state.published(block) && (forall|g: int| 0 <= g < state.pools@.len() ==> !#[trigger] state.in_use(block, b.depth as int, g)) ==> state.legal_evict(block)
            &&& state.published(block) && b.pages@[group as int] != NO_PAGE && !state.in_use(block, b.depth as int, group as int) ==> state.legal_evict_page(block, group)
            &&& !state.published(block) || reads ==> !state.legal_evict(block) && !state.legal_evict_page(block, group)
            &&& b.pages@[group as int] == NO_PAGE ==> !state.legal_evict_page(block, group)
        }),
{
    let b = state.blocks@[block.slot as int]->0;
    if live(state.requests@, reader) && state.requests@[reader]->0.holds_page(block, b.depth as int, group as int) {
        assert(state.in_use(block, b.depth as int, group as int));
    }
}

/// One step at a time; it runs once it has rows, is committed once it has run, and may be given up until then.
proof fn lemma_phases<S: Sampler>(state: State<S>)
    ensures
        state.legal_plan_begin() <==> state.phase is Idle,
        state.legal_plan_cancel() <==> !(state.phase is Idle),
        state.phase is Planning && state.plan.sequences@.len() == 1 ==> state.legal_run(),
        state.plan.sequences@.len() == 0 || !(state.phase is Planning) ==> !state.legal_run(),
        state.legal_commit() <==> state.phase is Ran,
{
}

/// Rows and drafts that fit are planned, up to the last one that does; nothing beyond.
proof fn lemma_plan_rows<S: Sampler>(state: State<S>, fixed: Fixed<S>, id: RequestId, rows: usize, drafts: Seq<Token>, select: Select, g: int)
    ensures
        ({
            let r = state.requests@[id.slot as int]->0;
            let left = r.history@.len() - r.cached;
            let selected = if select is All { rows + drafts.len() } else if rows == left { 1 + drafts.len() as int } else { 0 };
            let covered = forall|x: int| 0 <= x < state.pools@.len() ==> #[trigger] r.covers(x, fixed.program.groups@[x], r.cached + rows + drafts.len());
            let legal = state.legal_plan_rows(fixed, id, rows, drafts, select);
            // As many as are left, as the device takes, and as the context has room for.
            &&& state.phase is Planning && state.free_to_change(id) && !r.is_complete(fixed.program.context) && 1 <= rows <= left
                && (drafts.len() == 0 || rows == left) && r.history@.len() + drafts.len() + 1 <= fixed.program.context && tokens_in(drafts, fixed.program.vocab)
                && state.plan.tokens@.len() + rows + drafts.len() == fixed.rows_max && state.plan.selected@.len() + selected == fixed.selected_max
                && covered ==> legal
            &&& !(state.phase is Planning) || r.is_complete(fixed.program.context) || rows == 0 || rows > left ==> !legal
            &&& drafts.len() > 0 && rows < left ==> !legal
            &&& r.history@.len() + drafts.len() >= fixed.program.context || !tokens_in(drafts, fixed.program.vocab) ==> !legal
            &&& state.plan.tokens@.len() + rows + drafts.len() > fixed.rows_max || state.plan.selected@.len() + selected > fixed.selected_max ==> !legal
            &&& 0 <= g < state.pools@.len() && !r.covers(g, fixed.program.groups@[g], r.cached + (rows + drafts.len())) ==> !legal
        }),
{
    let r = state.requests@[id.slot as int]->0;
    assert(r.cached + (rows + drafts.len()) == r.cached + rows + drafts.len());
}

/// A window's pages are covered if each of them is there, from the first that its first position sees to that of the last row.
proof fn lemma_covers<T>(r: Request<T>, decl: GroupDecl, page: int)
    requires r.tables@.len() == 1, r.cached == 2 * PAGE,
    ensures
        r.covers(0, decl, 3 * PAGE as int) && decl.window is None && 0 <= page < 3 ==> r.has_page(0, page),
        r.covers(0, decl, 3 * PAGE as int) && decl.window == Some(2u32) && 1 <= page < 3 ==> r.has_page(0, page),
        decl.window == Some(1u32) && r.has_page(0, 2) ==> r.covers(0, decl, 3 * PAGE as int),
{
    assert(r.window_page(decl) == match decl.window { None => 0, Some(w) => if w <= 2 * PAGE { (2 * PAGE - w + 1) / PAGE as int } else { 0 } });
    if decl.window == Some(1u32) && r.has_page(0, 2) {
        assert forall|p: int| r.window_page(decl) <= p <= (3 * PAGE - 1) / PAGE as int implies #[trigger] r.has_page(0, p) by {
            assert(p == 2);
        }
    }
}

/// A request without pages of its own is unbroken, so preemption makes any request of an idle core one that may go on.
proof fn lemma_preempted<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(core: Core<D, S>, id: RequestId, answer: Answer, new: Core<D, S>, rows: usize)
    requires
        core.sound(), core.spec_state() is Some, core.spec_state()->0.phase is Idle, core.spec_request(id) is Some, !core.spec_complete(id),
        next(core, Call::Preempt { request: id }, answer, new),
        1 <= rows <= core.spec_request(id)->0.history@.len(), rows <= core.spec_device().limits().rows, 1 <= core.spec_device().limits().selected,
    ensures may_go_on(new, id, rows),
{
    theorem_preemption_heals(core, id, answer, new);
    let r = new.spec_request(id)->0;
    assert forall|g: int| 0 <= g < r.tables@.len() implies #[trigger] unbroken(r, g, new.world().program.groups@[g]) by {}
}

/// A tenant's first block is no other tenant's.
proof fn lemma_tenants<S: Sampler>(fixed: Fixed<S>, state: State<S>, slot: int)
    requires state.inv(fixed), live(state.requests@, slot), state.requests@[slot]->0.chain@.len() > 0, state.published(state.requests@[slot]->0.chain@[0]),
    ensures state.blocks@[state.requests@[slot]->0.chain@[0].slot as int]->0.parent matches Parent::Root { salt } ==> salt == state.requests@[slot]->0.salt,
{
    theorem_tenants_apart(fixed, state, slot, 0);
}

// ---- What leaves the core shows what it holds.

proof fn lemma_views<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(core: Core<D, S>, r: Request<S::State>, b: Block, plan: StepPlan, id: RequestId, group: int)
    ensures
        r.spec_history() == r.history@, r.spec_prompt_len() == r.prompt, r.spec_salt() == r.salt, r.spec_cached() == r.cached, r.spec_chain() == r.chain@,
        r.spec_done() == r.done, r.spec_in_step() == (r.planned is Some), r.spec_sampler_state() == r.state,
        0 <= group < r.tables@.len() ==> r.spec_table(group) == r.tables@[group]@,
        b.spec_parent() == b.parent, b.spec_depth() == b.depth, b.spec_tokens() == b.tokens@, b.spec_pages() == b.pages@,
        plan.spec_tokens() == plan.tokens@, plan.spec_positions() == plan.positions@, plan.spec_selected() == plan.selected@,
        plan.spec_sequences() == plan.sequences@,
        core.spec_state() is Some && core.spec_state()->0.known(id) ==> core.spec_request(id) == core.spec_state()->0.requests@[id.slot as int],
        core.spec_state() is None ==> core.spec_request(id) is None && core.spec_free(group) == 0 && core.spec_pages(group) == 0,
        core.spec_state() is Some && 0 <= group < core.spec_state()->0.pools@.len() ==> core.spec_free(group) == core.spec_state()->0.pools@[group].free@.len()
            && core.spec_pages(group) == core.spec_state()->0.pools@[group].pages@.len(),
{
}

} // verus!
