//! What each `legal_*` accepts and refuses. The code is `Ok` exactly when its predicate holds, so a predicate that is changed alone
//! dies in `ops/`; a predicate that is changed together with its code dies here. Each lemma shows first where an operation is legal, as
//! a policy counts on it, then the arguments that must not pass.

use super::progress::*;
use super::trace::*;
use crate::block::*;
use crate::core::Core;
use crate::ids::{BlockId, NO_PAGE, PAGE, RequestId, Token};
use crate::legal::*;
use crate::next::*;
use crate::ops::pages::*;
use crate::plan::*;
use crate::program::*;
use crate::progress::*;
use crate::request::Request;
use crate::seam::*;
use crate::state::*;
use crate::views::*;
use vstd::prelude::*;

verus! {

/// A core is built of a program that passes its check, the sampler's vocabulary is the program's, and limits have 32 bits. Of any other
/// device, sampler or program it is not.
proof fn lemma_new<D: Device, S: Sampler>(device: D, sampler: S, program: Program)
    ensures
        legal_new(device, sampler, program) <==> program.wf() && sampler.vocab_limit() == program.vocab
            && device.limits().rows < 0x1_0000_0000 && device.limits().selected < 0x1_0000_0000
            && forall|g: int| 0 <= g < program.groups@.len() ==> 1 <= #[trigger] (device.limits().pages)(g) && (device.limits().pages)(g) * PAGE <= COUNT_MAX,
{
    assert forall|g: int| 0 < #[trigger] (device.limits().pages)(g) <= COUNT_MAX / PAGE
        <==> 1 <= (device.limits().pages)(g) && (device.limits().pages)(g) * PAGE <= COUNT_MAX by {}
}

/// Any prompt is admitted that has a token and leaves room for one, whatever else is going on.
proof fn lemma_admit<S: Sampler>(state: State<S>, fixed: Fixed<S>, prompt: Seq<Token>)
    ensures
        state.legal_admit(fixed, prompt) <==> 1 <= prompt.len() && prompt.len() + 1 <= fixed.program.context && state.next_request != u64::MAX
            && forall|i: int| 0 <= i < prompt.len() ==> #[trigger] prompt[i] < fixed.program.vocab,
{
    reveal(tokens_in);
}

/// A block is attached where it continues the chain; `theorem_prefix_attaches` says when it is.
proof fn lemma_attach<S: Sampler>(state: State<S>, id: RequestId, block: BlockId)
    ensures
        ({
            let (r, b) = (state.requests@[id.slot as int]->0, state.blocks@[block.slot as int]->0);
            let depth = r.chain@.len();
            state.legal_attach(id, block) <==> {
                &&& state.known(id) && r.planned is None && state.published(block)
                // Nothing else of the request is cached, and a position stays to compute.
                &&& r.cached == depth * PAGE && (forall|g: int| 0 <= g < r.tables@.len() ==> (#[trigger] r.tables@[g])@.len() == depth)
                &&& (depth + 1) * PAGE + 1 <= r.history@.len()
                // The block is the next of this chain, of this tenant, with these tokens.
                &&& b.depth == depth && b.tokens@ == r.history@.subrange(depth * PAGE, (depth + 1) * PAGE)
                &&& b.parent == if depth == 0 { Parent::Root { salt: r.salt } } else { Parent::Block { serial: r.chain@[depth - 1].serial } }
            }
        }),
{
}

/// What is complete: a request that its sampler ended, or whose history fills the context. No other.
proof fn lemma_complete<T>(r: Request<T>, context: u32)
    ensures r.is_complete(context) <==> r.done || !(r.history@.len() + 1 <= context),
{
}

/// A request that is live and in no step changes, whatever else is going on; one that is unknown or in the step does not.
proof fn lemma_pinned<S: Sampler>(state: State<S>, fixed: Fixed<S>, id: RequestId, group: usize)
    ensures
        state.legal_take_page(fixed, id, group) <==> state.free_to_change(id) && group < state.pools@.len() && 1 <= state.pools@[group as int].free@.len()
            && state.requests@[id.slot as int]->0.tables@[group as int]@.len() <= (fixed.program.context - 1) / PAGE as int,
        state.legal_release_behind(id, group) <==> state.free_to_change(id) && group < state.pools@.len(),
        state.legal_preempt(id) <==> state.free_to_change(id), state.legal_abort(id) <==> state.free_to_change(id),
        state.legal_finish(fixed, id) <==> state.free_to_change(id) && state.requests@[id.slot as int]->0.is_complete(fixed.program.context),
{
}

/// An identity names the request or block of its slot and serial; a forged or stale one names nothing.
proof fn lemma_stale<S: Sampler>(state: State<S>, id: RequestId, block: BlockId)
    ensures
        state.known(id) <==> live(state.requests@, id.slot as int) && state.requests@[id.slot as int]->0.serial == id.serial,
        state.free_to_change(id) <==> state.known(id) && state.requests@[id.slot as int]->0.planned is None,
        state.published(block) <==> registered(state.blocks@, block.slot as int) && state.blocks@[block.slot as int]->0.serial == block.serial,
        live(state.requests@, id.slot as int) <==> id.slot < state.requests@.len() && state.requests@[id.slot as int] is Some,
        registered(state.blocks@, block.slot as int) <==> block.slot < state.blocks@.len() && state.blocks@[block.slot as int] is Some,
{
}

/// A page is published when it is full and cached; then identities must be left. How many blocks there are makes no difference.
proof fn lemma_publish<S: Sampler>(state: State<S>, id: RequestId)
    ensures
        state.publishable(id) <==> state.requests@[id.slot as int]->0.cached >= state.requests@[id.slot as int]->0.chain@.len() * PAGE + PAGE,
        state.legal_publish(id) <==> state.free_to_change(id) && (!state.publishable(id) || state.next_block != u64::MAX),
{
}

/// A block is evicted if it is there and no table reads it; a page of it, if there is one.
proof fn lemma_evict<S: Sampler>(state: State<S>, block: BlockId, group: usize)
    ensures
        ({
            let b = state.blocks@[block.slot as int]->0;
            &&& state.legal_evict(block) <==> state.published(block)
                    && forall|g: int| 0 <= g < state.pools@.len() ==> !#[trigger] state.in_use(block, b.depth as int, g)
            &&& state.legal_evict_page(block, group) <==> state.published(block) && group < state.pools@.len() && b.pages@[group as int] != NO_PAGE
                    && !state.in_use(block, b.depth as int, group as int)
            &&& state.in_use(block, b.depth as int, group as int) <==> exists|s: int| live(state.requests@, s)
                    && (#[trigger] state.requests@[s])->0.holds_page(block, b.depth as int, group as int)
        }),
{
}

/// One step at a time; it runs once it has rows, is committed once it has run, and may be given up until then.
proof fn lemma_phases<S: Sampler>(state: State<S>)
    ensures
        state.legal_plan_begin() <==> state.phase is Idle,
        state.legal_plan_cancel() <==> !(state.phase is Idle),
        state.legal_run() <==> state.phase is Planning && 1 <= state.plan.sequences@.len(),
        state.legal_commit() <==> state.phase is Ran,
{
}

/// Rows and drafts that fit are planned, up to the last one that does; nothing beyond.
proof fn lemma_plan_rows<S: Sampler>(state: State<S>, fixed: Fixed<S>, id: RequestId, rows: usize, drafts: Seq<Token>, select: Select)
    ensures
        ({
            let r = state.requests@[id.slot as int]->0;
            let left = r.history@.len() - r.cached;
            let selected = if select is All { rows + drafts.len() } else if rows == left { 1 + drafts.len() as int } else { 0 };
            state.legal_plan_rows(fixed, id, rows, drafts, select) <==> {
                &&& state.phase is Planning && state.free_to_change(id) && !r.is_complete(fixed.program.context)
                // As many as are left, as the device takes, and as the context has room for.
                &&& 1 <= rows <= left && (drafts.len() == 0 || rows == left) && r.history@.len() + drafts.len() + 1 <= fixed.program.context
                &&& forall|i: int| 0 <= i < drafts.len() ==> #[trigger] drafts[i] < fixed.program.vocab
                &&& state.plan.tokens@.len() + rows + drafts.len() <= fixed.rows_max && state.plan.selected@.len() + selected <= fixed.selected_max
                &&& forall|x: int| 0 <= x < state.pools@.len() ==> #[trigger] r.covers(x, fixed.program.groups@[x], r.cached + rows + drafts.len())
            }
        }),
{
    reveal(tokens_in);
    let r = state.requests@[id.slot as int]->0;
    assert(r.cached + (rows + drafts.len()) == r.cached + rows + drafts.len());
}

/// A window's pages are covered if each of them is there, from the first that its first position sees to that of the last row.
proof fn lemma_covers<T>(r: Request<T>, decl: GroupDecl, g: int, end: int, page: int, block: BlockId)
    ensures
        r.covers(g, decl, end) <==> forall|page: int| r.window_page(decl) <= page <= (end - 1) / PAGE as int ==> #[trigger] r.has_page(g, page),
        r.window_page(decl) == match decl.window { None => 0, Some(w) => if w <= r.cached { (r.cached - w + 1) / PAGE as int } else { 0 } },
        r.has_page(g, page) <==> 0 <= page < r.tables@[g]@.len() && r.tables@[g]@[page] != NO_PAGE,
        r.holds_page(block, page, g) <==> 0 <= page < r.chain@.len() && r.chain@[page] == block && 0 <= g < r.tables@.len() && r.has_page(g, page),
{
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

/// No block of a request's chain is another tenant's, nor is the block that it continues.
proof fn lemma_tenants<S: Sampler>(fixed: Fixed<S>, state: State<S>, slot: int, i: int)
    requires
        state.inv(fixed), live(state.requests@, slot), 0 <= i < state.requests@[slot]->0.chain@.len(), state.published(state.requests@[slot]->0.chain@[i]),
    ensures
        state.blocks@[state.requests@[slot]->0.chain@[i].slot as int]->0.parent matches Parent::Root { salt } ==> salt == state.requests@[slot]->0.salt,
        state.blocks@[state.requests@[slot]->0.chain@[i].slot as int]->0.parent matches Parent::Block { serial }
            ==> state.salts@[serial] == state.requests@[slot]->0.salt,
{
    theorem_tenants_apart(fixed, state, slot, i);
}

} // verus!
