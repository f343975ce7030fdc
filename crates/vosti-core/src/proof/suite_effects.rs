//! The tests of `trusted/effects.rs`: what each operation refuses to have done. `lemma_refuses_other_effects` ties each call to
//! its predicate, and each lemma after it says what the predicate does not let pass, clause by clause, in the words of whoever
//! looks at requests, blocks and pages. That the predicates can be met, the operations show, which ensure them. See `suite.rs`.

use crate::core::Core;
use crate::effects::*;
use crate::ids::{BlockId, NO_PAGE, PAGE, RequestId, Token};
use crate::next::*;
use crate::pages::Page;
use crate::plan::*;
use crate::program::*;
use crate::request::Request;
use crate::seam::*;
use crate::state::*;
use crate::views::*;
use vstd::prelude::*;

verus! {

/// Each call has done what its predicate says.
proof fn lemma_refuses_other_effects<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(old: Core<D, S>, call: Call, answer: Answer, new: Core<D, S>)
    requires next(old, call, answer, new), !(answer is Refused), !(answer matches Answer::Failed { error } && !error.intact),
    ensures
        old.spec_state() is Some, new.spec_state() is Some,
        ({
            let (a, b) = (old.spec_state()->0, new.spec_state()->0);
            &&& call matches Call::Admit { prompt, salt, state } ==> (answer matches Answer::Admitted { request } && a.did_admit(b, request, prompt, salt, state))
            &&& call matches Call::Attach { request, block } ==> a.did_attach(b, request, block)
            &&& call matches Call::TakePage { request, group } ==> a.did_take_page(b, request, group)
            &&& call matches Call::ReleaseBehind { request, group } ==> (answer matches Answer::Released { pages }
                    && a.did_release_behind(b, old.world().program, request, group, pages))
            &&& call matches Call::Publish { request } ==> (answer matches Answer::Published { block } && a.did_publish(b, request, block))
            &&& call matches Call::Evict { block } ==> a.did_evict(b, block)
            &&& call matches Call::EvictPage { block, group } ==> a.did_evict_page(b, block, group)
            &&& call matches Call::Preempt { request } ==> a.did_preempt(b, request)
            &&& call matches Call::Abort { request } ==> a.did_remove(b, request)
            &&& call matches Call::Finish { request } ==> a.did_remove(b, request)
            &&& call is PlanBegin ==> a.did_plan_begin(b)
            &&& call matches Call::PlanRows { request, rows, drafts, select } ==> a.did_plan_rows(b, request, rows, drafts, select)
            &&& call is PlanCancel ==> a.did_drop_step(b)
            &&& call is Run ==> if answer is Failed { a.did_drop_step(b) } else { a.did_run(b) }
            &&& call is Commit ==> (answer is Committed && a.did_commit(b))
        }),
{
}

/// Every other request is as it was, and no other one is there.
spec fn others_alike<S: Sampler>(a: State<S>, b: State<S>, slot: usize, other: RequestId) -> bool {
    other.slot != slot ==> (live(a.requests@, other.slot as int) <==> live(b.requests@, other.slot as int))
        && (live(b.requests@, other.slot as int) ==> b.requests@[other.slot as int] == a.requests@[other.slot as int])
}

/// Blocks and the step are as they were.
spec fn elsewhere_alike<S: Sampler>(a: State<S>, b: State<S>) -> bool {
    a.blocks == b.blocks && a.next_block == b.next_block && a.plan == b.plan && a.phase == b.phase && a.dev == b.dev && a.prefixes == b.prefixes && a.salts == b.salts
}

/// And what names requests and blocks.
spec fn names_alike<S: Sampler>(a: State<S>, b: State<S>) -> bool {
    a.next_request == b.next_request && a.request_slots == b.request_slots && a.next_block == b.next_block && a.block_slots == b.block_slots
        && a.prefixes == b.prefixes && a.salts == b.salts
}

/// What a request is besides where it is cached.
spec fn same_request<T>(r: Request<T>, r2: Request<T>) -> bool {
    r2.serial == r.serial && r2.salt == r.salt && r2.prompt == r.prompt && r2.history == r.history && r2.done == r.done && r2.planned == r.planned && r2.state == r.state
}

proof fn lemma_admit<S: Sampler>(a: State<S>, b: State<S>, id: RequestId, prompt: Seq<Token>, salt: u64, initial: Bits, other: RequestId, g: int)
    requires a.did_admit(b, id, prompt, salt, initial),
    ensures
        b.known(id) && !live(a.requests@, id.slot as int) && id.serial == a.next_request, others_alike(a, b, id.slot, other),
        elsewhere_alike(a, b), a.pools == b.pools, a.block_slots == b.block_slots,
        ({
            let r = b.requests@[id.slot as int]->0;
            &&& r.history@ == prompt && r.prompt == prompt.len() && r.salt == salt && S::state_bits(&r.state) == initial
            &&& r.cached == 0 && r.chain@ =~= Seq::empty() && !r.done && r.planned is None
            &&& 0 <= g < r.tables@.len() ==> r.tables@[g]@ =~= Seq::empty()
        }),
{
}

proof fn lemma_attach<S: Sampler>(a: State<S>, b: State<S>, id: RequestId, block: BlockId, other: RequestId, g: int)
    requires a.did_attach(b, id, block),
    ensures
        b.known(id), others_alike(a, b, id.slot, other), elsewhere_alike(a, b), names_alike(a, b), a.pools == b.pools, a.log == b.log,
        ({
            let (r, r2) = (a.requests@[id.slot as int]->0, b.requests@[id.slot as int]->0);
            &&& same_request(r, r2) && r2.cached == r.cached + PAGE && r2.chain@ == r.chain@.push(block) && r2.tables@.len() == r.tables@.len()
            &&& 0 <= g < r.tables@.len() ==> r2.tables@[g]@ == r.tables@[g]@.push(a.blocks@[block.slot as int]->0.pages@[g])
        }),
{
}

proof fn lemma_take_page<S: Sampler>(a: State<S>, b: State<S>, id: RequestId, group: usize, other: RequestId, g: int)
    requires a.did_take_page(b, id, group),
    ensures
        b.known(id), others_alike(a, b, id.slot, other), elsewhere_alike(a, b), names_alike(a, b), a.log == b.log,
        a.pools@[group as int].free@.len() > 0 ==> b.pools@[group as int].free@.len() + 1 == a.pools@[group as int].free@.len(),
        b.pools@.len() == a.pools@.len(), 0 <= g < a.pools@.len() && g != group ==> b.pools@[g] == a.pools@[g],
        ({
            let (r, r2) = (a.requests@[id.slot as int]->0, b.requests@[id.slot as int]->0);
            let (t, t2) = (r.tables@[group as int]@, r2.tables@[group as int]@);
            &&& same_request(r, r2) && r2.cached == r.cached && r2.chain == r.chain && r2.tables@.len() == r.tables@.len()
            &&& t2.len() == t.len() + 1 && t2.last() != NO_PAGE && t2.take(t.len() as int) == t
            &&& 0 <= g < r.tables@.len() && g != group ==> r2.tables@[g]@ == r.tables@[g]@
        }),
{
    let t2 = b.requests@[id.slot as int]->0.tables@[group as int]@;
    assert(t2.drop_last() =~= t2.take(t2.len() - 1));
}

/// `n` entries before the window's first page are gone, and no other.
proof fn lemma_release_behind<S: Sampler>(a: State<S>, b: State<S>, program: Program, id: RequestId, group: usize, pages: usize, other: RequestId, g: int, i: int, p: int)
    requires a.did_release_behind(b, program, id, group, pages),
    ensures
        b.known(id), others_alike(a, b, id.slot, other), elsewhere_alike(a, b), names_alike(a, b), a.log == b.log,
        0 <= g < b.pools@.len() && 0 <= p < b.pools@[g].pages@.len() && !(b.pools@[g].pages@[p] is Free) ==> b.pools@[g].pages@[p] == a.pools@[g].pages@[p],
        ({
            let (r, r2) = (a.requests@[id.slot as int]->0, b.requests@[id.slot as int]->0);
            let end = window_lo(program.groups@[group as int].window, r.cached as int) / PAGE as int;
            &&& same_request(r, r2) && r2.cached == r.cached && r2.chain == r.chain && r2.tables@.len() == r.tables@.len()
            &&& 0 <= g < r.tables@.len() ==> r2.tables@[g]@.len() == r.tables@[g]@.len()
            &&& 0 <= g < r.tables@.len() && 0 <= i < r.tables@[g]@.len() && (g != group || i >= end) ==> r2.tables@[g]@[i] == r.tables@[g]@[i]
            &&& 0 <= group < r.tables@.len() && 0 <= i < r.tables@[group as int]@.len() && i < end ==> r2.tables@[group as int]@[i] == NO_PAGE
            &&& pages == held(r.tables@[group as int]@, end)
        }),
{
}

/// What is held is counted: none of nothing, and one for each page.
proof fn lemma_held(table: Seq<i32>, page: i32)
    ensures
        held(table, 0) == 0, held(seq![NO_PAGE, 3i32, NO_PAGE, 5i32], 4) == 2, held(seq![NO_PAGE, 3i32, NO_PAGE, 5i32], 3) == 1, held(seq![7i32], 9) == 1,
{
    reveal_with_fuel(held, 10);
}

proof fn lemma_publish<S: Sampler>(a: State<S>, b: State<S>, id: RequestId, block: Option<BlockId>, other: RequestId, x: BlockId, g: int)
    requires a.did_publish(b, id, block),
    ensures
        block is Some <==> a.publishable(id), block is None ==> b == a,
        block matches Some(block) ==> {
            let (r, r2, made) = (a.requests@[id.slot as int]->0, b.requests@[id.slot as int]->0, b.blocks@[block.slot as int]->0);
            let depth = r.chain@.len() as int;
            &&& b.known(id) && others_alike(a, b, id.slot, other) && a.plan == b.plan && a.phase == b.phase && a.dev == b.dev && a.log == b.log
                && a.next_request == b.next_request && a.request_slots == b.request_slots
            &&& same_request(r, r2) && r2.cached == r.cached && r2.tables == r.tables && r2.chain@ == r.chain@.push(block)
            &&& b.published(block) && block.serial == a.next_block && !registered(a.blocks@, block.slot as int)
            &&& x.slot != block.slot ==> a.published(x) == b.published(x) && (a.published(x) ==> b.blocks@[x.slot as int] == a.blocks@[x.slot as int])
            &&& made.parent == r.chain_parent() && made.depth == depth && made.tokens@ == r.history@.subrange(depth * PAGE, (depth + 1) * PAGE)
            &&& made.pages@.len() == r.tables@.len() && (0 <= g < r.tables@.len() ==> made.pages@[g] == r.tables@[g]@[depth])
        },
{
}

proof fn lemma_evict<S: Sampler>(a: State<S>, b: State<S>, block: BlockId, x: BlockId, g: int, p: int)
    requires a.did_evict(b, block),
    ensures
        a.next_request == b.next_request, a.request_slots == b.request_slots, a.next_block == b.next_block, a.prefixes == b.prefixes, a.salts == b.salts,
        a.requests == b.requests, a.plan == b.plan, a.phase == b.phase, a.log == b.log, a.dev == b.dev,
        !b.published(block), x.slot != block.slot ==> a.published(x) == b.published(x) && (a.published(x) ==> b.blocks@[x.slot as int] == a.blocks@[x.slot as int]),
        b.pools@.len() == a.pools@.len(),
        0 <= g < a.pools@.len() ==> b.pools@[g].pages@.len() == a.pools@[g].pages@.len() && b.pools@[g].wf(),
        0 <= g < a.pools@.len() && 0 <= p < a.pools@[g].pages@.len() ==> if p == a.blocks@[block.slot as int]->0.pages@[g] {
            b.pools@[g].pages@[p] is Free
        } else {
            b.pools@[g].pages@[p] == a.pools@[g].pages@[p]
        },
{
}

proof fn lemma_evict_page<S: Sampler>(a: State<S>, b: State<S>, block: BlockId, group: usize, x: BlockId, g: int)
    requires a.did_evict_page(b, block, group), group < a.blocks@[block.slot as int]->0.pages@.len(),
    ensures
        names_alike(a, b), a.requests == b.requests, a.plan == b.plan, a.phase == b.phase, a.log == b.log, a.dev == b.dev,
        b.published(block), x.slot != block.slot ==> a.published(x) == b.published(x) && (a.published(x) ==> b.blocks@[x.slot as int] == a.blocks@[x.slot as int]),
        ({
            let (was, is) = (a.blocks@[block.slot as int]->0, b.blocks@[block.slot as int]->0);
            &&& is.serial == was.serial && is.parent == was.parent && is.depth == was.depth && is.tokens == was.tokens && is.pages@.len() == was.pages@.len()
            &&& is.pages@[group as int] == NO_PAGE && (0 <= g < was.pages@.len() && g != group ==> is.pages@[g] == was.pages@[g])
            &&& b.pools@[group as int].pages@[was.pages@[group as int] as int] is Free
        }),
        b.pools@.len() == a.pools@.len(), 0 <= g < a.pools@.len() && g != group ==> b.pools@[g] == a.pools@[g],
{
}

/// The request's pages are free and nobody else's.
spec fn only_its_pages<S: Sampler>(a: State<S>, b: State<S>, slot: int, g: int, p: int) -> bool {
    &&& b.pools@.len() == a.pools@.len()
    &&& 0 <= g < a.pools@.len() ==> b.pools@[g].pages@.len() == a.pools@[g].pages@.len()
    &&& 0 <= g < a.pools@.len() && 0 <= p < a.pools@[g].pages@.len() ==> match a.pools@[g].pages@[p] {
        Page::Free { .. } => b.pools@[g].pages@[p] is Free,
        Page::Owned { request, .. } => if request == slot { b.pools@[g].pages@[p] is Free } else { b.pools@[g].pages@[p] == a.pools@[g].pages@[p] },
        Page::Registered { .. } => b.pools@[g].pages@[p] == a.pools@[g].pages@[p],
    }
}

proof fn lemma_preempt<S: Sampler>(a: State<S>, b: State<S>, id: RequestId, other: RequestId, g: int, p: int)
    requires a.did_preempt(b, id),
    ensures
        b.known(id), others_alike(a, b, id.slot, other), elsewhere_alike(a, b), names_alike(a, b), a.log == b.log, only_its_pages(a, b, id.slot as int, g, p),
        ({
            let (r, r2) = (a.requests@[id.slot as int]->0, b.requests@[id.slot as int]->0);
            &&& same_request(r, r2) && r2.cached == 0 && r2.chain@ =~= Seq::empty() && r2.tables@.len() == r.tables@.len()
            &&& 0 <= g < r2.tables@.len() ==> r2.tables@[g]@ =~= Seq::empty()
        }),
{
}

proof fn lemma_remove<S: Sampler>(a: State<S>, b: State<S>, id: RequestId, other: RequestId, g: int, p: int)
    requires a.did_remove(b, id),
    ensures
        !b.known(id), others_alike(a, b, id.slot, other), elsewhere_alike(a, b), a.next_request == b.next_request, a.block_slots == b.block_slots, only_its_pages(a, b, id.slot as int, g, p),
{
}

proof fn lemma_steps<S: Sampler>(a: State<S>, b: State<S>)
    ensures
        a.did_plan_begin(b) ==> names_alike(a, b) && b.phase is Planning && b.plan == a.plan && b.requests == a.requests && b.pools == a.pools && b.blocks == a.blocks && b.log == a.log && b.dev == a.dev,
        a.did_run(b) ==> names_alike(a, b) && b.phase is Ran && b.plan == a.plan && b.requests == a.requests && b.pools == a.pools && b.blocks == a.blocks && b.log == a.log,
{
}

/// One sequence more, of the rows that were asked for, behind those that were there.
proof fn lemma_plan_rows<S: Sampler>(a: State<S>, b: State<S>, id: RequestId, rows: usize, drafts: Seq<Token>, select: Select, other: RequestId, q: int, i: int, g: int)
    requires
        a.did_plan_rows(b, id, rows, drafts, select), a.free_to_change(id), rows <= a.requests@[id.slot as int]->0.history@.len() - a.requests@[id.slot as int]->0.cached,
        b.plan.sequences@.last().selected <= b.plan.sequences@.last().rows,
        a.requests@[id.slot as int]->0.cached + rows + drafts.len() <= u32::MAX, a.plan.tokens@.len() + rows + drafts.len() <= u32::MAX,
    ensures
        others_alike(a, b, id.slot, other), names_alike(a, b), b.pools == a.pools, b.blocks == a.blocks, b.phase == a.phase, b.log == a.log, b.dev == a.dev,
        b.plan.sequences@.len() == a.plan.sequences@.len() + 1, 0 <= q < a.plan.sequences@.len() ==> b.plan.sequences@[q] == a.plan.sequences@[q],
        0 <= i < a.plan.tokens@.len() ==> b.plan.tokens@[i] == a.plan.tokens@[i],
        0 <= i < a.plan.positions@.len() ==> b.plan.positions@[i] == a.plan.positions@[i],
        0 <= i < a.plan.selected@.len() ==> b.plan.selected@[i] == a.plan.selected@[i],
        ({
            let (r, r2, s) = (a.requests@[id.slot as int]->0, b.requests@[id.slot as int]->0, b.plan.sequences@.last());
            let (n, left, reads) = (a.plan.tokens@.len() as int, r.history@.len() - r.cached, S::reads_of(S::state_bits(&r.state)));
            &&& b.known(id) && r2.planned == Some(a.plan.sequences@.len() as usize) && r2.history == r.history && r2.cached == r.cached && r2.tables == r.tables && r2.state == r.state
            &&& s.request == id && s.first_row == n && s.rows == rows + drafts.len() && s.drafts == drafts.len() && s.first_position == r.cached
            &&& s.emits == (rows == left) && s.first_selected == a.plan.selected@.len()
            &&& s.selected == match select { Select::All => rows + drafts.len() as int, _ => if rows == left { 1 + drafts.len() as int } else { 0 } }
            &&& b.plan.tokens@.len() == n + rows + drafts.len() && b.plan.selected@.len() == a.plan.selected@.len() + s.selected
            &&& b.plan.positions@.len() == a.plan.positions@.len() + rows + drafts.len()
            &&& 0 <= i < rows ==> b.plan.tokens@[n + i] == r.history@[r.cached + i]
            &&& 0 <= i < drafts.len() ==> b.plan.tokens@[n + rows + i] == drafts[i]
            &&& 0 <= i < s.rows ==> b.plan.positions@[a.plan.positions@.len() + i] == r.cached + i
            &&& 0 <= i < s.selected ==> b.plan.selected@[a.plan.selected@.len() + i] == n + s.rows - s.selected + i
            &&& s.tables@.len() == r.tables@.len() && (0 <= g < r.tables@.len() ==> s.tables@[g]@ == r.tables@[g]@)
            // What its sampler reads is brought, and rows that are to be seen; nothing for nobody.
            &&& reads is Top <==> s.top
            &&& reads matches Reads::Drawn(draw) ==> s.draws@.len() == s.selected && (s.emits ==> s.draws@[s.selected - s.drafts - 1] == draw)
            &&& !(reads is Drawn) ==> s.draws@.len() == 0
            &&& reads is Row ==> s.whole
            &&& select is Shown || select is All ==> s.whole
            &&& select is Last && !(reads is Row) ==> !s.whole
        }),
{
}

/// A step that is given up leaves every request where it was, and none in a step.
proof fn lemma_drop_step<S: Sampler>(a: State<S>, b: State<S>, id: RequestId)
    requires a.did_drop_step(b),
    ensures
        b.phase is Idle, b.plan.sequences@ =~= Seq::empty(), b.pools == a.pools, b.blocks == a.blocks, b.log == a.log, names_alike(a, b),
        a.known(id) == b.known(id),
        a.known(id) ==> {
            let (r, r2) = (a.requests@[id.slot as int]->0, b.requests@[id.slot as int]->0);
            &&& r2 == (Request { planned: r2.planned, ..r })
            &&& r.planned is None || r.planned->0 < a.plan.sequences@.len() ==> r2.planned is None
        },
{
    let slot = id.slot as int;
    if 0 <= slot < a.requests@.len() {
        assert(unpinned(a.requests@[slot], b.requests@[slot], a.plan.sequences@.len() as int));
    }
}

/// A commit changes the step's requests alone, and of them history, what is cached, the sampler's state and whether they are done.
proof fn lemma_commit<S: Sampler>(a: State<S>, b: State<S>, id: RequestId, i: int)
    requires a.did_commit(b),
    ensures
        b.phase is Idle, b.plan.sequences@ =~= Seq::empty(), b.pools == a.pools, b.blocks == a.blocks, names_alike(a, b), b.dev == a.dev,
        a.known(id) == b.known(id),
        a.known(id) ==> {
            let (r, r2) = (a.requests@[id.slot as int]->0, b.requests@[id.slot as int]->0);
            &&& r.planned is None ==> r2 == r
            &&& r2.serial == r.serial && r2.salt == r.salt && r2.prompt == r.prompt && r2.tables == r.tables && r2.chain == r.chain
            &&& r.planned is Some && r.planned->0 < a.plan.sequences@.len() ==> {
                let (s, drafts) = (a.plan.sequences@[r.planned->0 as int], drafts_of(a.plan, r.planned->0 as int));
                let n = r2.history@.len() - r.history@.len();
                &&& r2.planned is None && n >= 0 && (0 <= i < r.history@.len() ==> r2.history@[i] == r.history@[i])
                // Without a choice: all its rows, nothing else. With one: its tokens, cached up to the last.
                &&& !s.emits ==> r2.history == r.history && r2.state == r.state && r2.done == r.done && r2.cached == s.first_position + s.rows
                &&& s.emits ==> n >= 1 && r2.cached == r2.history@.len() - 1 && r2.cached <= s.first_position + s.rows
                // What is cached of drafts are those that came true.
                &&& r.history@.len() <= i < r2.cached ==> drafts[i - r.history@.len()] == r2.history@[i]
                // It stopped for a reason.
                &&& s.emits && !r2.done && n != s.drafts + 1 && s.brings(s.end() + n, S::reads_of(S::state_bits(&r2.state)))
                        ==> 1 <= n <= s.drafts && drafts[n - 1] != r2.history@.last()
            }
        },
{
    let slot = id.slot as int;
    if 0 <= slot < a.requests@.len() {
        assert(pending::<S>(a.plan, a.requests@[slot], b.requests@[slot], a.plan.sequences@.len() as int));
    }
    if a.known(id) && a.requests@[slot]->0.planned is Some && a.requests@[slot]->0.planned->0 < a.plan.sequences@.len() {
        let (r, r2, q) = (a.requests@[slot]->0, b.requests@[slot]->0, a.requests@[slot]->0.planned->0 as int);
        if r.history@.len() <= i < r2.cached {
            assert((r.history@ + drafts_of(a.plan, q))[i] == r2.history@[i]);
        }
    }
}

} // verus!
