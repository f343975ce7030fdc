//! The reference run: what a request's records would be if it were alone, each token from one cold forward of the whole
//! history. And: requests whose records are prefixes of one reference run are answered alike.

use super::canonical::*;
use crate::ids::Token;
use crate::program::Program;
use crate::seam::*;
use crate::spec::*;
use vstd::prelude::*;

verus! {

/// What the deployment fixes: kernels, program, and the sampler's choice for a state and a row of logits.
pub ghost struct World {
    pub w: Kernels,
    pub program: Program,
    pub choice: spec_fn(Bits, Bits) -> (Token, Bits, bool),
}

/// Where the reference run of a request is after some records.
pub ghost struct Point {
    pub history: Seq<Token>,
    pub state: Bits,
    pub entries: Seq<Entry<Bits>>,
    pub done: bool,
}

/// One more record.
pub open(crate) spec fn next_point(world: World, at: Point) -> Point {
    let logits = canon_logits(world.w, world.program, at.history, at.history.len() - 1);
    let (token, state, done) = (world.choice)(at.state, logits);
    Point { history: at.history.push(token), state, entries: at.entries.push(Entry { logits, token }), done }
}

/// The reference run after n records.
pub open(crate) spec fn reference(world: World, prompt: Seq<Token>, initial: Bits, n: nat) -> Point
    decreases n,
{
    if n == 0 {
        Point { history: prompt, state: initial, entries: Seq::empty(), done: false }
    } else {
        next_point(world, reference(world, prompt, initial, (n - 1) as nat))
    }
}

/// A view's records are a prefix of its reference run that does not pass its end, and if completed reaches it.
pub open(crate) spec fn view_ok(world: World, v: Seen<Bits, Bits>) -> bool {
    let n = v.entries.len();
    &&& v.entries == reference(world, v.prompt, v.initial, n).entries
    &&& forall|m: nat| m < n ==> !(#[trigger] reference(world, v.prompt, v.initial, m)).done
    &&& v.prompt.len() + n <= world.program.context
    &&& v.completed ==> reference(world, v.prompt, v.initial, n).done || v.prompt.len() + n == world.program.context
}

pub proof fn lemma_reference(world: World, prompt: Seq<Token>, initial: Bits, m: nat, n: nat)
    requires m <= n,
    ensures
        reference(world, prompt, initial, n).entries.len() == n,
        reference(world, prompt, initial, n).history.len() == prompt.len() + n,
        reference(world, prompt, initial, m).entries.len() == m,
        reference(world, prompt, initial, m).entries.is_prefix_of(reference(world, prompt, initial, n).entries),
    decreases n,
{
    if n > 0 {
        if m < n {
            lemma_reference(world, prompt, initial, m, (n - 1) as nat);
        } else {
            lemma_reference(world, prompt, initial, (n - 1) as nat, (n - 1) as nat);
        }
    }
}

pub proof fn lemma_alike(world: World, a: Seen<Bits, Bits>, b: Seen<Bits, Bits>)
    requires view_ok(world, a), view_ok(world, b),
    ensures answered_alike(a, b),
{
    if a.prompt == b.prompt && a.initial == b.initial {
        if a.entries.len() <= b.entries.len() {
            lemma_reference(world, a.prompt, a.initial, a.entries.len(), b.entries.len());
        } else {
            lemma_reference(world, a.prompt, a.initial, b.entries.len(), a.entries.len());
        }
    }
}

/// The trace is orderly and every view is good.
pub open(crate) spec fn views_ok(world: World, log: Seq<Event<Bits, Bits>>) -> bool {
    &&& orderly(log)
    &&& forall|k: u64| #[trigger] views(log).contains_key(k) ==> view_ok(world, views(log)[k])
}

pub proof fn lemma_deterministic(world: World, log: Seq<Event<Bits, Bits>>)
    requires views_ok(world, log),
    ensures deterministic(log),
{
    assert forall|a: u64, b: u64| views(log).contains_key(a) && views(log).contains_key(b)
        implies answered_alike(#[trigger] views(log)[a], #[trigger] views(log)[b]) by {
        lemma_alike(world, views(log)[a], views(log)[b]);
    }
}

} // verus!
