//! Verified callers. Outside of the core nothing is verified, so a contract of a public function has no user there, and one that ensures
//! nothing would not be missed. Here each has a user that needs it: the operations in `witness.rs`, and the views and the step's array in
//! this file, which says of what each gives what it is.

use crate::block::{Block, Parent};
use crate::core::Core;
use crate::error::CoreError;
use crate::ids::{BlockId, NO_PAGE, RequestId, Token};
use crate::image::{Image, ImageError};
use crate::layout::*;
use crate::legal::*;
use crate::next::*;
use crate::ops::commit::Record;
use crate::plan::{Draw, Reads, SeqPlan, StepPlan};
use crate::premises::*;
use crate::program::*;
use crate::request::Request;
use crate::seam::*;
use crate::spec::*;
use crate::state::*;
use vstd::prelude::*;

verus! {

/// What the core asks of a device: its limits, ...
fn limits_of<D: Device>(device: &D, group: usize) -> (out: (usize, usize, usize, usize, bool))
    ensures
        out.0 == device.limits().rows, out.1 == device.limits().selected, out.2 == (device.limits().pages)(group as int), out.3 == device.limits().top,
        out.4 == device.limits().draws,
{
    (device.rows_max(), device.selected_max(), device.pages(group), device.top_max(), device.draws())
}

/// ... a pool without anything infinite, ...
fn cleared<D: Device>(device: &mut D)
    ensures
        final(device).w() == old(device).w(), final(device).limits() == old(device).limits(), all_finite(final(device).w(), final(device).cache()),
{
    device.clear()
}

/// ... and what it read of a row.
fn read_of<D: Device>(device: &D, i: usize, draw: Draw) -> (out: (&D::Logits, Token, &D::Top, Token))
    requires
        i < device.logits_rows().len(), (device.brought())(i as int, Reads::Row), (device.brought())(i as int, Reads::Top),
        (device.brought())(i as int, Reads::Drawn(draw)),
    ensures
        out.0 == D::logits_of(device.logits_rows()[i as int]), out.1 == D::best_of(device.logits_rows()[i as int]),
        out.2 == D::top_of(device.logits_rows()[i as int]), out.3 == D::drawn_of(device.logits_rows()[i as int], draw),
{
    (device.logits(i), device.best(i), device.top(i), device.drawn(i, draw))
}

/// What the core asks of a sampler: a choice in the vocabulary, by what the state says that it reads.
fn choice_of<S: Sampler>(sampler: &S, state: &mut S::State, logits: &S::Logits, best: Token, top: &S::Top, drawn: Token) -> (out: (Token, bool))
    ensures
        out.0 < sampler.vocab_limit(),
        (out.0, S::state_bits(final(state)), out.1) == match S::reads_of(S::state_bits(old(state))) {
            Reads::Best => S::choice_best(sampler.w(), S::state_bits(old(state)), best),
            Reads::Top => S::choice_top(sampler.w(), S::state_bits(old(state)), top),
            Reads::Drawn(_) => S::choice_drawn(sampler.w(), S::state_bits(old(state)), drawn),
            Reads::Row => S::choice(sampler.w(), S::state_bits(old(state)), logits),
        },
{
    match sampler.reads(&*state) {
        Reads::Best => sampler.sample_best(state, best),
        Reads::Top => sampler.sample_top(state, top),
        Reads::Drawn(_) => sampler.sample_drawn(state, drawn),
        Reads::Row => sampler.sample(state, logits),
    }
}

/// A core is built of what is legal, and of nothing else.
fn core_built<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(device: D, sampler: S, program: Program) -> (out: Result<Core<D, S>, CoreError>)
    ensures out is Ok <==> legal_new(device, sampler, program), out matches Ok(core) ==> built(core, device, sampler, program),
{
    Core::new(device, sampler, program)
}

/// The row of a record is the row at its position in its request's view.
fn row_of<'a, D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(core: &'a Core<D, S>, record: &Record) -> (row: Option<&'a D::Logits>)
    ensures
        row is Some <==> core.holds(*record),
        row matches Some(row) ==> {
            let view = views(core.log())[record.request.serial];
            let k = record.position - view.prompt.len();
            views(core.log()).contains_key(record.request.serial) && 0 <= k < view.entries.len() && row == D::logits_of(view.entries[k].logits)
        },
{
    core.row(record)
}

/// A selected row of the step is the cold-forward row of its position.
fn step_row_of<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(core: &Core<D, S>, q: usize, i: usize) -> (row: Option<&D::Logits>)
    ensures
        row is Some <==> core.step_shows(q as int, i as int),
        row matches Some(row) ==> row == D::logits_of(core.step_logits(q as int, i as int)),
{
    core.step_row(q, i)
}

/// What policy sees of a core besides its requests and blocks.
fn core_of<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(core: &Core<D, S>, id: RequestId, block: BlockId, group: usize) -> (out: (bool, usize, usize, bool, usize))
    ensures
        out.0 == (core.spec_state() is None), out.1 == core.spec_free(group as int), out.2 == core.spec_pages(group as int),
        out.3 == core.spec_complete(id), out.4 == core.spec_references(block, group as int),
{
    (core.poisoned(), core.free_pages(group), core.pages(group), core.complete(id), core.references(block, group))
}

/// The parts of a core, each as it is.
fn parts_of<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(core: &Core<D, S>) -> (out: (&D, &S, &Program, &StepPlan))
    ensures
        *out.0 == core.spec_device(), *out.1 == core.spec_fixed().sampler, *out.2 == core.world().program,
        core.spec_state() matches Some(s) ==> *out.3 == s.plan, core.spec_state() is None ==> out.3.sequences@.len() == 0,
{
    (core.device(), core.sampler(), core.program(), core.plan())
}

/// The rows of a step.
fn plan_of(plan: &StepPlan) -> (out: (usize, &[Token], &[u32], &[u32], &[SeqPlan]))
    ensures
        out.0 == plan.tokens@.len(), out.1@ == plan.tokens@, out.2@ == plan.positions@, out.3@ == plan.selected@, out.4@ == plan.sequences@,
{
    (plan.rows(), plan.tokens(), plan.positions(), plan.selected(), plan.sequences())
}

/// What of a sequence's rows comes to the host.
fn brought_of(s: &SeqPlan, i: usize, what: Reads) -> (yes: bool)
    ensures yes == s.brings(i as int, what),
{
    s.has(i, what)
}

/// What policy sees of a request: the core's own.
fn request_of<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(core: &Core<D, S>, id: RequestId) -> (out: Option<&Request<S::State>>)
    ensures out is Some <==> core.spec_request(id) is Some, out matches Some(r) ==> *r == core.spec_request(id)->0,
{
    core.request(id)
}

fn tokens_of<T>(r: &Request<T>) -> (out: (&[Token], usize, usize, &[BlockId]))
    ensures out.0@ == r.history@, out.1 == r.prompt, out.2 == r.cached, out.3@ == r.chain@,
{
    (r.history(), r.prompt_len(), r.cached(), r.chain())
}

fn fields_of<T>(r: &Request<T>, group: usize) -> (out: (u64, bool, bool, &T, Parent, &[i32]))
    ensures
        out.0 == r.salt, out.1 == r.done, out.2 == (r.planned is Some), *out.3 == r.state,
        out.4 == if r.chain@.len() == 0 { Parent::Root { salt: r.salt } } else { Parent::Block { serial: r.chain@.last().serial } },
        group < r.tables@.len() ==> out.5@ == r.tables@[group as int]@, group >= r.tables@.len() ==> out.5@.len() == 0,
{
    (r.salt(), r.done(), r.in_step(), r.state(), r.parent(), r.table(group))
}

/// What policy sees of a block: the core's own.
fn block_of<D: Device, S: Sampler<Logits = D::Logits, Top = D::Top>>(core: &Core<D, S>, id: BlockId) -> (out: Option<&Block>)
    ensures out is Some <==> core.spec_block(id) is Some, out matches Some(b) ==> *b == core.spec_block(id)->0,
{
    core.block(id)
}

fn contents_of(b: &Block, group: usize) -> (out: (Parent, usize, &[Token], &[i32], bool))
    ensures
        out.0 == b.parent, out.1 == b.depth, out.2@ == b.tokens@, out.3@ == b.pages@,
        out.4 <==> group < b.pages@.len() && b.pages@[group as int] != NO_PAGE,
{
    (b.parent(), b.depth(), b.tokens(), b.pages(), b.has_page(group))
}

/// A step that is filled in is told by the array, in the largest step's places or in its own.
fn fill_in(image: &mut Image, cells: &mut [i32], plan: &StepPlan, own: bool, room: Option<usize>, limits: Ghost<Limits>, program: Ghost<Program>) -> (out: Result<(), ImageError>)
    requires
        plan_ok(limits@, program@, *plan), program@.wf(), pages_small(limits@, program@), old(image).made_for(program@),
    ensures
        out is Err ==> final(cells)@ == old(cells)@,
        old(image).takes(limits@.rows, limits@.selected) && old(image).has_room(old(cells)@) && (!own || old(image).room_holds(*plan, room)) ==> out is Ok,
        out is Ok ==> final(image).told(final(cells)@, *plan),
{
    if own { image.pack(cells, plan, room) } else { image.fill(cells, plan) }
}

/// What a kernel reads at the place of an array is what the array says there.
fn read_at(image: &Image, cells: &[i32], meta: Meta, i: usize) -> (out: Option<i32>)
    ensures
        image.spec_layout() matches Some(layout) ==> (layout.has(meta) ==> {
            &&& out is Some <==> i < layout.len_of(meta) && layout.start_of(meta) + i < cells@.len()
            &&& out is Some ==> out->0 == layout.read(cells@, meta, i as int)
        }),
{
    let place = image.place(meta);
    if i < place.len && place.start < cells.len() && i < cells.len() - place.start {
        Some(cells[place.start + i])
    } else {
        None
    }
}

/// A token of the step, from the array.
fn token_at(image: &mut Image, cells: &mut [i32], plan: &StepPlan, t: usize, limits: Ghost<Limits>, program: Ghost<Program>) -> (out: Option<i32>)
    requires
        plan_ok(limits@, program@, *plan), program@.wf(), pages_small(limits@, program@), old(image).made_for(program@), t < plan.tokens@.len(),
    ensures out matches Some(token) ==> token == plan.tokens@[t as int],
{
    if fill_in(image, cells, plan, false, None, limits, program).is_err() { return None; }
    read_at(image, cells, Meta::Tokens, t)
}

/// What launches are made for.
fn launches_of(image: &Image, tiling: usize) -> (out: (usize, usize, usize, usize, usize))
    ensures
        image.spec_layout() matches Some(layout) ==> {
            &&& out.0 == layout.len && out.1 == layout.rows && out.2 == layout.selected && out.4 == layout.length
            &&& tiling < layout.counts@.len() ==> out.3 == layout.counts@[tiling as int]
        },
{
    let (rows, selected) = image.launched();
    (image.len(), rows, selected, image.tiles(tiling), image.length())
}

/// A new image takes what it was made for, in places for the largest step; and after `widen` its places are those again. There is one
/// for every program and device within the bounds of the proofs.
fn made_of(program: &Program, tilings: &[Tiling], rows: usize, selected: usize) -> (out: Result<Image, ImageError>)
    ensures
        out matches Ok(image) ==> image.made_for(*program) && image.takes(rows, selected) && image.spread_out(image),
        out is Ok <==> {
            let (groups, entries) = (program.groups@.len(), rows * ((program.context + 63) / 64));
            &&& rows <= 0x10_0000 && selected <= 0x10_0000 && program.context <= 0x40_0000 && program.vocab < 0x8000_0000 && groups < 0x8000_0000
            &&& entries <= 0x1000_0000 && groups * entries <= 0x1000_0000
            &&& forall|x: int| 0 <= x < tilings@.len() ==> 1 <= (#[trigger] tilings@[x]).height && tilings@[x].group < groups
            &&& tiles_at(tilings@, groups as int, rows as int, selected as int, tilings@.len() as int) + groups * entries <= usize::MAX
        },
{
    let mut image = Image::new(program, tilings, rows, selected)?;
    image.widen();
    Ok(image)
}

/// A program is checked and its ops are looked at by what they use.
fn op_of(program: &Program, n: usize) -> (out: Option<Uses>)
    ensures
        out matches Some(used) ==> program.wf() && n < program.ops@.len() && used.binding < program.kernels
            && forall|i: int| 0 <= i < used.outputs@.len() ==> (#[trigger] used.outputs@[i]) < program.buffers@.len(),
        program.wf() && n < program.ops@.len() ==> out is Some,
{
    if program.check().is_err() || n >= program.ops.len() {
        return None;
    }
    proof { reveal(Program::ops_wf); assert(program.op_wf(n as int)); }
    Some(program.ops[n].uses())
}

} // verus!
