//! The reference run: the records that a request would get if it were alone, each token from one cold forward of the whole
//! history. Two worlds that are one W have one reference run, and requests whose records are prefixes of it are answered
//! alike.

use crate::ids::Token;
use crate::meaning::*;
use crate::next::*;
use crate::program::*;
use crate::seam::*;
use crate::spec::*;
use vstd::prelude::*;

verus! {

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

/// What a program means depends on nothing but its ops.
pub(crate) proof fn lemma_same_canon(w: Kernels, a: Program, b: Program, n: nat, h: Seq<Token>, p: int, x: u32)
    requires same_program(a, b),
    ensures canon(w, a, n, h, p, x) == canon(w, b, n, h, p, x),
    decreases n, 0nat, 0int,
{
    if n != 0 && n <= a.ops@.len() {
        let m = (n - 1) as nat;
        lemma_same_canon(w, a, b, m, h, p, x);
        match a.ops@[m as int] {
            Op::Rowwise { ins, .. } => lemma_same_ins(w, a, b, m, h, p, ins@),
            Op::Attend { q, layer, window, .. } => {
                lemma_same_canon(w, a, b, m, h, p, q);
                let s = canon_kvs(w, a, m, h, p, layer, window);
                let t = canon_kvs(w, b, m, h, p, layer, window);
                assert forall|j: int| 0 <= j < window_span(window, p) implies s[j] == t[j] by {
                    lemma_same_kv(w, a, b, m, h, window_lo(window, p) + j, layer);
                }
                assert(s =~= t);
            },
            _ => {},
        }
    }
}

proof fn lemma_same_ins(w: Kernels, a: Program, b: Program, n: nat, h: Seq<Token>, p: int, ins: Seq<u32>)
    requires same_program(a, b),
    ensures canon_ins(w, a, n, h, p, ins) == canon_ins(w, b, n, h, p, ins),
    decreases n, 2nat, 0int,
{
    let s = canon_ins(w, a, n, h, p, ins);
    let t = canon_ins(w, b, n, h, p, ins);
    assert forall|i: int| 0 <= i < ins.len() implies s[i] == t[i] by {
        lemma_same_canon(w, a, b, n, h, p, ins[i]);
    }
}

proof fn lemma_same_kv(w: Kernels, a: Program, b: Program, n: nat, h: Seq<Token>, j: int, layer: u32)
    requires same_program(a, b),
    ensures canon_kv(w, a, n, h, j, layer) == canon_kv(w, b, n, h, j, layer),
    decreases n, 1nat, j,
{
    if n != 0 && n <= a.ops@.len() {
        let m = (n - 1) as nat;
        lemma_same_kv(w, a, b, m, h, j, layer);
        if let Op::StoreKv { ins, back, .. } = a.ops@[m as int] {
            lemma_same_ins(w, a, b, m, h, j, ins@);
            let s = canon_before(w, a, n, h, j, layer, back);
            let t = canon_before(w, b, n, h, j, layer, back);
            assert forall|x: int| 0 <= x < back_span(back, j) implies s[x] == t[x] by {
                lemma_same_kv(w, a, b, n, h, j - back_span(back, j) + x, layer);
            }
            assert(s =~= t);
        }
    }
}

/// Worlds that are one W have one reference run.
pub proof fn lemma_same_reference(a: World, b: World, prompt: Seq<Token>, initial: Bits, n: nat)
    requires share_w(a, b),
    ensures reference(a, prompt, initial, n) == reference(b, prompt, initial, n),
    decreases n,
{
    if n > 0 {
        lemma_same_reference(a, b, prompt, initial, (n - 1) as nat);
        let at = reference(a, prompt, initial, (n - 1) as nat);
        lemma_same_canon(a.w, a.program, b.program, a.program.ops@.len(), at.history, at.history.len() - 1, a.program.logits);
    }
}

/// Two views of one W, each a prefix of its reference run, are alike.
pub proof fn lemma_alike(one: World, a: Seen<Bits, Bits>, other: World, b: Seen<Bits, Bits>)
    requires view_ok(one, a), view_ok(other, b), share_w(one, other),
    ensures answered_alike(a, b),
{
    let (n, m) = (a.entries.len(), b.entries.len());
    lemma_same_reference(one, other, b.prompt, b.initial, m);
    if a.prompt == b.prompt && a.initial == b.initial {
        lemma_same_reference(one, other, a.prompt, a.initial, n);
        if n <= m {
            lemma_reference(one, a.prompt, a.initial, n, m);
        } else {
            lemma_reference(one, a.prompt, a.initial, m, n);
            assert(!reference(one, a.prompt, a.initial, m).done);
        }
        assert(a.entries.is_prefix_of(a.entries)) by { assert(a.entries.subrange(0, n as int) =~= a.entries); }
    }
}

/// The trace is orderly and every view is good.
pub open(crate) spec fn views_ok(world: World, log: Seq<Event<Bits, Bits>>) -> bool {
    &&& orderly(log)
    &&& forall|k: u64| #[trigger] views(log).contains_key(k) ==> view_ok(world, views(log)[k])
}

} // verus!
