//! The terms of progress: which request may go on, which pages it lacks, and the calls of a policy that serves it. The theorems are in
//! `proof/progress.rs`: none of these calls is refused, and if the device does not fail, they bring the request forward.

use super::next::*;
use super::seam::*;
use crate::core::Core;
use crate::ids::{PAGE, RequestId};
use crate::plan::Select;
use crate::program::*;
use crate::request::Request;
use crate::state::*;
use vstd::prelude::*;

verus! {

/// Pages of a table that reaches up to position `end`.
pub open(crate) spec fn pages_upto(end: int) -> int {
    (end - 1) / PAGE as int + 1
}

/// The pages that a request's table of a group lacks for positions below `end`.
pub open(crate) spec fn short<T>(r: Request<T>, g: int, end: int) -> int {
    if r.tables@[g]@.len() < pages_upto(end) { pages_upto(end) - r.tables@[g]@.len() } else { 0 }
}

/// Within the table, every page that the window of the next position sees is there. This holds for a request that was just
/// admitted or preempted.
pub open(crate) spec fn unbroken<T>(r: Request<T>, g: int, decl: GroupDecl) -> bool {
    forall|page: int| r.window_page(decl) <= page < r.tables@[g]@.len() ==> #[trigger] r.has_page(g, page)
}

/// The request may go on by so many rows: no step is in flight, it is live and not complete, and the device takes that much.
pub open(crate) spec fn may_go_on<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(core: Core<D, S>, id: RequestId, rows: usize) -> bool {
    let r = core.spec_request(id)->0;
    &&& core.sound() && core.spec_state() is Some && core.spec_state()->0.phase is Idle
    &&& core.spec_request(id) is Some && !r.is_complete(core.world().program.context)
    &&& 1 <= rows <= r.history@.len() - r.cached
    &&& rows <= core.spec_device().limits().rows && 1 <= core.spec_device().limits().selected
    &&& forall|g: int| 0 <= g < r.tables@.len() ==> #[trigger] unbroken(r, g, core.world().program.groups@[g])
}

/// How many of the first n are this group.
pub open(crate) spec fn taken(groups: Seq<usize>, n: int, g: int) -> int
    decreases n,
{
    if n <= 0 { 0 } else { taken(groups, n - 1, g) + if groups[n - 1] == g { 1int } else { 0 } }
}

/// The pages taken are those that the rows lack, and so many are free. A group without a window keeps all pages of a request, so rows
/// beyond as many positions as such a group has slots never have enough: a device need not serve them (`positions` of the processor's).
pub open(crate) spec fn enough<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(core: Core<D, S>, id: RequestId, rows: usize, groups: Seq<usize>) -> bool {
    let r = core.spec_request(id)->0;
    &&& forall|i: int| 0 <= i < groups.len() ==> (#[trigger] groups[i]) < r.tables@.len()
    &&& forall|g: int| 0 <= g < r.tables@.len() ==> #[trigger] taken(groups, groups.len() as int, g) == short(r, g, r.cached + rows)
            && short(r, g, r.cached + rows) <= core.spec_state()->0.pools@[g].free@.len()
}

/// What a policy calls: the missing pages, in any order, then one step of the request alone.
pub open(crate) spec fn is_script(calls: Seq<Call>, id: RequestId, rows: usize, groups: Seq<usize>) -> bool {
    let n = groups.len() as int;
    &&& calls.len() == n + 4
    &&& forall|i: int| 0 <= i < n ==> #[trigger] calls[i] == (Call::TakePage { request: id, group: groups[i] })
    &&& calls[n] is PlanBegin
    &&& calls[n + 1] == (Call::PlanRows { request: id, rows, drafts: Seq::empty(), select: Select::Last })
    &&& calls[n + 2] is Run
    &&& calls[n + 3] is Commit
}

/// Each call did what the operation ensures.
pub open(crate) spec fn ran_through<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(cores: Seq<Core<D, S>>, calls: Seq<Call>, answers: Seq<Answer>) -> bool {
    &&& cores.len() == calls.len() + 1 && answers.len() == calls.len()
    &&& forall|i: int| 0 <= i < calls.len() ==> #[trigger] next(cores[i], calls[i], answers[i], cores[i + 1])
}

/// One turn of a request: the core after each call that serves it.
pub ghost struct Turn<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>> {
    pub cores: Seq<Core<D, S>>,
    pub calls: Seq<Call>,
    pub answers: Seq<Answer>,
    pub rows: usize,
    pub groups: Seq<usize>,
}

/// The turn serves the request: it may go on, its pages are free, and the device does not fail.
pub open(crate) spec fn serves<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(turn: Turn<D, S>, id: RequestId, context: int) -> bool {
    &&& ran_through(turn.cores, turn.calls, turn.answers)
    &&& is_script(turn.calls, id, turn.rows, turn.groups)
    &&& may_go_on(turn.cores[0], id, turn.rows)
    &&& enough(turn.cores[0], id, turn.rows, turn.groups)
    &&& turn.cores[turn.groups.len() as int + 3].spec_device().errors() == turn.cores[0].spec_device().errors()
    &&& turn.cores[0].world().program.context == context
}

} // verus!
