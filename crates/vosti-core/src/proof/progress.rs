//! Progress. A core that does nothing would be safe; these theorems say that a policy can also make progress. Take a request
//! in an idle core, with as many free pages as the request lacks. The obvious calls serve it: none of them is refused, and
//! unless the device fails, more of the request is cached, and its view grows where its rows reach the end of its history.

use super::reference::*;
use crate::core::Core;
use crate::effects::*;
use crate::ids::{BlockId, PAGE, RequestId, Token};
use crate::invariant::*;
use crate::legal::*;
use crate::next::*;
use crate::program::*;
use crate::progress::*;
use crate::request::Request;
use crate::seam::*;
use crate::spec::*;
use crate::state::*;
use crate::views::*;
use vstd::prelude::*;

verus! {

proof fn lemma_taken_grows(groups: Seq<usize>, i: int, n: int, g: int)
    requires 0 <= i <= n,
    ensures 0 <= taken(groups, i, g) <= taken(groups, n, g),
    decreases n,
{
    if i < n {
        lemma_taken_grows(groups, i, n - 1, g);
    } else if i > 0 {
        lemma_taken_grows(groups, i - 1, n - 1, g);
    }
}

/// Facts about a request in an idle core.
pub(crate) proof fn lemma_idle_request<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(core: Core<D, S>, id: RequestId)
    requires core.sound(), core.spec_state() is Some, core.spec_state()->0.phase is Idle, core.spec_request(id) is Some,
    ensures
        ({
            let s = core.spec_state()->0;
            &&& s.free_to_change(id) && s.plan.sequences@.len() == 0 && s.plan.tokens@.len() == 0 && s.plan.selected@.len() == 0
            &&& request_shape(core.world().program, core.spec_request(id)->0)
            &&& s.pools@.len() == core.world().program.groups@.len()
            &&& core.world().program == core.spec_fixed().program
            &&& core.spec_fixed().rows_max == core.spec_device().limits().rows && core.spec_fixed().selected_max == core.spec_device().limits().selected
        }),
{
    core.lemma_state();
    reveal(State::inv_step);
    reveal(State::inv_shape);
    reveal(plan_packed);
}

/// After i of the pages.
proof fn lemma_pages<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(
    cores: Seq<Core<D, S>>, calls: Seq<Call>, answers: Seq<Answer>, id: RequestId, rows: usize, groups: Seq<usize>, i: int)
    requires
        ran_through(cores, calls, answers), is_script(calls, id, rows, groups), may_go_on(cores[0], id, rows), enough(cores[0], id, rows, groups),
        0 <= i <= groups.len(),
    ensures
        ({
            let (r, r2) = (cores[0].spec_request(id)->0, cores[i].spec_request(id)->0);
            &&& may_go_on(cores[i], id, rows)
            &&& cores[i].world() == cores[0].world() && cores[i].log() == cores[0].log()
            &&& cores[i].spec_device() == cores[0].spec_device()
            &&& r2 == (Request { tables: r2.tables, ..r }) && r2.tables@.len() == r.tables@.len()
            &&& forall|g: int| 0 <= g < r.tables@.len() ==> (#[trigger] r2.tables@[g])@.len() == r.tables@[g]@.len() + taken(groups, i, g)
            &&& forall|g: int| 0 <= g < r.tables@.len() ==> (#[trigger] cores[i].spec_state()->0.pools@[g]).free@.len()
                    == cores[0].spec_state()->0.pools@[g].free@.len() - taken(groups, i, g)
            &&& forall|j: int| 0 <= j < i ==> !((#[trigger] answers[j]) is Refused)
        }),
    decreases i,
{
    if i > 0 {
        lemma_pages(cores, calls, answers, id, rows, groups, i - 1);
        let (a, b) = (cores[i - 1], cores[i - 1 + 1]);
        let group = groups[i - 1];
        assert(next(a, calls[i - 1], answers[i - 1], b));
        lemma_idle_request(a, id);
        let (r, r1, r2) = (cores[0].spec_request(id)->0, a.spec_request(id)->0, b.spec_request(id)->0);
        let end = r.cached + rows;
        lemma_taken_grows(groups, i - 1, i, group as int);
        lemma_taken_grows(groups, i, groups.len() as int, group as int);
        assert(taken(groups, groups.len() as int, group as int) == short(r, group as int, end));
        assert(r1.tables@[group as int]@.len() == r.tables@[group as int]@.len() + taken(groups, i - 1, group as int));
        assert(a.spec_state()->0.pools@[group as int].free@.len() == cores[0].spec_state()->0.pools@[group as int].free@.len() - taken(groups, i - 1, group as int));
        assert(end <= cores[0].world().program.context);
        assert(pages_upto(end) <= context_pages(cores[0].world().program.context));
        let s = a.spec_state()->0;
        assert(s.requests@[id.slot as int]->0 == r1);
        assert(taken(groups, i, group as int) == taken(groups, i - 1, group as int) + 1);
        assert(r1.tables@[group as int]@.len() < pages_upto(end));
        assert(s.pools@[group as int].free@.len() > 0);
        assert(s.legal_take_page(a.spec_fixed(), id, group));
        assert(legal(a, calls[i - 1]));
        assert(b.log() =~= a.log());
        assert forall|g: int| 0 <= g < r2.tables@.len() implies #[trigger] unbroken(r2, g, b.world().program.groups@[g]) by {
            assert(unbroken(r1, g, a.world().program.groups@[g]));
            assert forall|page: int| r2.window_page(b.world().program.groups@[g]) <= page < r2.tables@[g]@.len() implies #[trigger] r2.has_page(g, page) by {
                if page < r1.tables@[g]@.len() {
                    assert(r1.has_page(g, page));
                    assert(g == group ==> r2.tables@[g]@.drop_last()[page] == r2.tables@[g]@[page]);
                }
            }
        }
    }
}

/// The request's place in its view: its history is its prompt and the view's tokens.
proof fn lemma_view_length<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(core: Core<D, S>, id: RequestId)
    requires core.sound(), core.spec_request(id) is Some,
    ensures
        views(core.log()).contains_key(id.serial),
        views(core.log())[id.serial].entries.len() == core.spec_request(id)->0.history@.len() - core.spec_request(id)->0.prompt,
{
    core.lemma_state();
    let s = core.spec_state()->0;
    reveal(State::inv_log);
    reveal(State::inv_shape);
    let r = s.requests@[id.slot as int]->0;
    let v = views(s.log@)[r.serial];
    lemma_reference(core.world(), v.prompt, v.initial, v.entries.len(), v.entries.len());
}

/// Progress: none of the calls is refused. If the device does not fail, a chunk is cached afterwards, or, if the rows reached the end of
/// the history, the whole history is and the request's view has one record more. And unless it is complete, the request may go on.
pub(crate) proof fn theorem_progress<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(
    cores: Seq<Core<D, S>>, calls: Seq<Call>, answers: Seq<Answer>, id: RequestId, rows: usize, groups: Seq<usize>, more: usize)
    requires
        ran_through(cores, calls, answers), is_script(calls, id, rows, groups), may_go_on(cores[0], id, rows), enough(cores[0], id, rows, groups),
        cores[groups.len() as int + 3].spec_device().errors() == cores[0].spec_device().errors(),
    ensures
        forall|i: int| 0 <= i < calls.len() ==> !((#[trigger] answers[i]) is Refused) && !(answers[i] is Failed),
        cores.last().spec_request(id) is Some, cores.last().world() == cores[0].world(),
        ({
            let (r, r2) = (cores[0].spec_request(id)->0, cores.last().spec_request(id)->0);
            &&& r.cached + rows < r.history@.len() ==> r2.cached == r.cached + rows && r2.history@ == r.history@
            &&& r.cached + rows == r.history@.len() ==> r2.cached == r.history@.len() && r2.history@.len() == r.history@.len() + 1
                    && views(cores.last().log())[id.serial].entries.len() == views(cores[0].log())[id.serial].entries.len() + 1
            &&& !r2.is_complete(cores.last().world().program.context) && 1 <= more <= r2.history@.len() - r2.cached
                    && more <= cores.last().spec_device().limits().rows ==> may_go_on(cores.last(), id, more)
        }),
{
    let n = groups.len() as int;
    lemma_pages(cores, calls, answers, id, rows, groups, n);
    let (a, b, c, d, e) = (cores[n], cores[n + 1], cores[n + 2], cores[n + 3], cores[n + 4]);
    let r0 = cores[0].spec_request(id)->0;
    let r = a.spec_request(id)->0;
    let end = r.cached + rows;
    lemma_idle_request(cores[0], id);
    lemma_idle_request(a, id);
    assert(next(a, calls[n], answers[n], cores[n + 1]));
    assert(legal(a, calls[n]));
    let s = b.spec_state()->0;
    assert(b.spec_fixed().program == b.world().program && b.spec_fixed().rows_max == b.spec_device().limits().rows
        && b.spec_fixed().selected_max == b.spec_device().limits().selected) by { b.lemma_state(); }
    assert forall|g: int| 0 <= g < s.pools@.len() implies #[trigger] r.covers(g, b.spec_fixed().program.groups@[g], end + 0) by {
        assert(taken(groups, n, g) == short(r0, g, end));
        assert(r.tables@[g]@.len() == r0.tables@[g]@.len() + taken(groups, n, g));
        assert(unbroken(r, g, a.world().program.groups@[g]));
        assert forall|page: int| r.window_page(b.spec_fixed().program.groups@[g]) <= page <= (end - 1) / PAGE as int implies #[trigger] r.has_page(g, page) by {
            assert(page < r.tables@[g]@.len());
        }
    }
    assert(tokens_in(Seq::<Token>::empty(), b.spec_fixed().program.vocab)) by { reveal(tokens_in); }
    assert(s.requests@[id.slot as int]->0 == r);
    assert(legal(b, calls[n + 1]));
    assert(next(b, calls[n + 1], answers[n + 1], cores[n + 1 + 1]));
    assert(next(c, calls[n + 2], answers[n + 2], cores[n + 2 + 1]));
    assert(c.spec_state()->0.plan.sequences@.len() == 1);
    assert(legal(c, calls[n + 2]));
    assert(c.spec_device() == cores[0].spec_device());
    assert(answers[n + 2] is Done) by {
        if answers[n + 2] is Failed {
            assert(d.spec_device().errors().len() == c.spec_device().errors().len() + 1);
        }
    }
    assert(legal(d, calls[n + 3]));
    assert(next(d, calls[n + 3], answers[n + 3], cores[n + 3 + 1]));
    let slot = id.slot as int;
    let (was, is) = (d.spec_state()->0, e.spec_state()->0);
    let q = was.plan.sequences@[0];
    assert(was.requests@[slot]->0 == (Request { planned: Some(0usize), ..r }));
    assert(pending::<S>(was.plan, was.requests@[slot], is.requests@[slot], 1));
    assert(committed::<S>(was.plan, 0, was.requests@[slot]->0, is.requests@[slot]->0));
    assert(q.drafts == 0 && q.rows == rows && q.first_position == r.cached);
    assert forall|i: int| 0 <= i < calls.len() implies !((#[trigger] answers[i]) is Refused) && !(answers[i] is Failed) by {
        if i < n {
            assert(next(cores[i], calls[i], answers[i], cores[i + 1]));
            assert(calls[i] == (Call::TakePage { request: id, group: groups[i] }));
        }
    }
    lemma_view_length(cores[0], id);
    lemma_view_length(e, id);
    let r2 = e.spec_request(id)->0;
    assert(r2 == is.requests@[slot]->0);
    assert forall|g: int| 0 <= g < r2.tables@.len() implies #[trigger] unbroken(r2, g, e.world().program.groups@[g]) by {
        let decl = e.world().program.groups@[g];
        assert(unbroken(r, g, a.world().program.groups@[g]));
        assert(r.window_page(decl) <= r2.window_page(decl));
        assert forall|page: int| r2.window_page(decl) <= page < r2.tables@[g]@.len() implies #[trigger] r2.has_page(g, page) by {
            assert(r.has_page(g, page));
        }
    }
}

/// A request is served at most so often that all of its context is computed and emitted; so a policy completes a request if it serves it
/// again and again, in between does what it likes but to that request, and frees pages for it. That the request may go on as long as it is
/// not complete, `theorem_progress` says.
pub(crate) proof fn theorem_completes<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(turns: Seq<Turn<D, S>>, id: RequestId, context: int)
    requires
        turns.len() > 0, forall|i: int| 0 <= i < turns.len() ==> #[trigger] serves(turns[i], id, context),
        forall|i: int| 0 <= i < turns.len() - 1 ==> (#[trigger] turns[i]).cores.last().spec_request(id) == turns[i + 1].cores[0].spec_request(id),
    ensures turns.len() <= 2 * context,
{
    lemma_turns(turns, id, context, turns.len() - 1);
    let last = turns[turns.len() - 1];
    assert(serves(last, id, context));
}

/// Each turn computes a row at least.
proof fn lemma_turns<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(turns: Seq<Turn<D, S>>, id: RequestId, context: int, n: int)
    requires
        0 <= n < turns.len(), forall|i: int| 0 <= i < turns.len() ==> #[trigger] serves(turns[i], id, context),
        forall|i: int| 0 <= i < turns.len() - 1 ==> (#[trigger] turns[i]).cores.last().spec_request(id) == turns[i + 1].cores[0].spec_request(id),
    ensures turns[n].cores[0].spec_request(id)->0.history@.len() + turns[n].cores[0].spec_request(id)->0.cached >= n,
    decreases n,
{
    if n > 0 {
        lemma_turns(turns, id, context, n - 1);
        let turn = turns[n - 1];
        assert(serves(turn, id, context));
        theorem_progress(turn.cores, turn.calls, turn.answers, id, turn.rows, turn.groups, 1);
    }
}

/// A request that was just admitted gets its first record by one step, if a device takes its prompt in one and pages are free.
pub(crate) proof fn corollary_first_record<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(
    before: Core<D, S>, prompt: Seq<Token>, salt: u64, state: Bits, id: RequestId,
    cores: Seq<Core<D, S>>, calls: Seq<Call>, answers: Seq<Answer>, groups: Seq<usize>)
    requires
        before.sound(), before.spec_state() matches Some(s) && s.phase is Idle,
        next(before, Call::Admit { prompt, salt, state }, Answer::Admitted { request: id }, cores[0]),
        prompt.len() <= before.spec_device().limits().rows, 1 <= before.spec_device().limits().selected, prompt.len() <= usize::MAX,
        ran_through(cores, calls, answers), is_script(calls, id, prompt.len() as usize, groups), enough(cores[0], id, prompt.len() as usize, groups),
        cores[groups.len() as int + 3].spec_device().errors() == cores[0].spec_device().errors(),
    ensures
        forall|i: int| 0 <= i < calls.len() ==> !((#[trigger] answers[i]) is Refused),
        views(cores.last().log())[id.serial].entries.len() > 0,
{
    before.lemma_state();
    theorem_progress(cores, calls, answers, id, prompt.len() as usize, groups, 1);
}

/// No request stays stuck because of the pages that it has: in an idle core any request may be preempted, and is then unbroken.
pub(crate) proof fn theorem_preemption_heals<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(core: Core<D, S>, id: RequestId, answer: Answer, new: Core<D, S>)
    requires
        core.sound(), core.spec_state() is Some, core.spec_state()->0.phase is Idle, core.spec_request(id) is Some,
        next(core, Call::Preempt { request: id }, answer, new),
    ensures
        answer is Done, new.spec_request(id) is Some, new.spec_request(id)->0.cached == 0,
        new.spec_request(id)->0.history == core.spec_request(id)->0.history,
        forall|g: int, decl: GroupDecl| 0 <= g < new.spec_request(id)->0.tables@.len() ==> #[trigger] unbroken(new.spec_request(id)->0, g, decl),
{
    lemma_idle_request(core, id);
}

/// The prefix cache attaches: a registered block that continues the chain of a request in an idle core, and stands for the
/// beginning of its history, is attached. What it holds is then cached.
pub(crate) proof fn theorem_prefix_attaches<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(
    core: Core<D, S>, id: RequestId, block: BlockId, answer: Answer, new: Core<D, S>)
    requires
        core.sound(), core.spec_state() is Some, core.spec_state()->0.phase is Idle, core.spec_request(id) is Some, core.spec_block(block) is Some,
        only_chained(core.spec_request(id)->0),
        ({
            let (s, r, b) = (core.spec_state()->0, core.spec_request(id)->0, core.spec_block(block)->0);
            let prefix = s.prefixes@[b.serial];
            &&& b.depth == r.chain@.len() && b.parent == r.chain_parent()
            &&& prefix.len() < r.history@.len() && prefix == r.history@.take(prefix.len() as int)
        }),
        next(core, Call::Attach { request: id, block }, answer, new),
    ensures
        answer is Done, new.spec_request(id) is Some,
        new.spec_request(id)->0.cached == core.spec_request(id)->0.cached + PAGE,
        new.spec_request(id)->0.chain@ == core.spec_request(id)->0.chain@.push(block),
{
    lemma_idle_request(core, id);
    core.lemma_state();
    let (s, r, b) = (core.spec_state()->0, core.spec_request(id)->0, core.spec_block(block)->0);
    reveal(State::inv_blocks);
    let (prefix, depth) = (s.prefixes@[b.serial], b.depth as int);
    assert(b.tokens@ =~= r.history@.subrange(depth * PAGE, (depth + 1) * PAGE));
    assert(legal(core, Call::Attach { request: id, block }));
}

/// The first block of one request serves another of the same tenant that begins alike.
pub(crate) proof fn corollary_first_block_is_shared<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(
    core: Core<D, S>, one: RequestId, other: RequestId, answer: Answer, new: Core<D, S>)
    requires
        core.sound(), core.spec_state() is Some, core.spec_state()->0.phase is Idle, core.spec_request(one) is Some, core.spec_request(other) is Some,
        ({
            let (a, b) = (core.spec_request(one)->0, core.spec_request(other)->0);
            &&& a.chain@.len() > 0 && core.spec_block(a.chain@[0]) is Some && core.spec_block(a.chain@[0])->0.depth == 0
            &&& only_chained(b) && b.chain@.len() == 0 && a.salt == b.salt
            &&& PAGE < b.history@.len() && a.history@.take(PAGE as int) == b.history@.take(PAGE as int)
        }),
        next(core, Call::Attach { request: other, block: core.spec_request(one)->0.chain@[0] }, answer, new),
    ensures answer is Done, new.spec_request(other)->0.cached == PAGE,
{
    core.lemma_state();
    let (a, b) = (core.spec_request(one)->0, core.spec_request(other)->0);
    let id = a.chain@[0];
    reveal(State::inv_chains);
    reveal(State::inv_blocks);
    theorem_prefix_attaches(core, other, id, answer, new);
}

} // verus!
