//! Causality: what a program means at a position (`trusted/meaning.rs`) depends on the history up to that position only.

use crate::ids::Token;
use crate::meaning::*;
use crate::program::*;
use crate::seam::*;
use vstd::prelude::*;

verus! {

/// Two histories are the same up to a position.
pub open(crate) spec fn agree(a: Seq<Token>, b: Seq<Token>, p: int) -> bool {
    p < a.len() && p < b.len() && forall|i: int| 0 <= i <= p ==> #[trigger] a[i] == b[i]
}

pub proof fn lemma_causal(w: Kernels, prog: Program, n: nat, a: Seq<Token>, b: Seq<Token>, p: int, x: u32)
    requires agree(a, b, p), 0 <= p,
    ensures canon(w, prog, n, a, p, x) == canon(w, prog, n, b, p, x),
    decreases n, 0nat, 0int,
{
    if n != 0 && n <= prog.ops@.len() {
        let m = (n - 1) as nat;
        lemma_causal(w, prog, m, a, b, p, x);
        match prog.ops@[m as int] {
            Op::Rowwise { k, ins, outs, .. } => {
                lemma_causal_ins(w, prog, m, a, b, p, ins@);
            },
            Op::Attend { k, q, layer, out, window } => {
                lemma_causal(w, prog, m, a, b, p, q);
                let s = canon_kvs(w, prog, m, a, p, layer, window);
                let t = canon_kvs(w, prog, m, b, p, layer, window);
                assert forall|j: int| 0 <= j < window_span(window, p) implies s[j] == t[j] by {
                    lemma_causal_kv(w, prog, m, a, b, window_lo(window, p) + j, layer);
                }
                assert(s =~= t);
            },
            _ => {},
        }
    }
}

pub proof fn lemma_causal_ins(w: Kernels, prog: Program, n: nat, a: Seq<Token>, b: Seq<Token>, p: int, ins: Seq<u32>)
    requires agree(a, b, p), 0 <= p,
    ensures canon_ins(w, prog, n, a, p, ins) == canon_ins(w, prog, n, b, p, ins),
    decreases n, 2nat, 0int,
{
    let s = canon_ins(w, prog, n, a, p, ins);
    let t = canon_ins(w, prog, n, b, p, ins);
    assert forall|i: int| 0 <= i < ins.len() implies s[i] == t[i] by {
        lemma_causal(w, prog, n, a, b, p, ins[i]);
    }
}

pub proof fn lemma_causal_kv(w: Kernels, prog: Program, n: nat, a: Seq<Token>, b: Seq<Token>, p: int, layer: u32)
    requires agree(a, b, p), 0 <= p,
    ensures canon_kv(w, prog, n, a, p, layer) == canon_kv(w, prog, n, b, p, layer),
    decreases n, 1nat, p,
{
    if n != 0 && n <= prog.ops@.len() {
        let m = (n - 1) as nat;
        match prog.ops@[m as int] {
            Op::StoreKv { k, ins, layer: l, back } => {
                lemma_causal_ins(w, prog, m, a, b, p, ins@);
                let s = canon_before(w, prog, n, a, p, layer, back);
                let t = canon_before(w, prog, n, b, p, layer, back);
                assert forall|x: int| 0 <= x < back_span(back, p) implies s[x] == t[x] by {
                    lemma_causal_kv(w, prog, n, a, b, p - back_span(back, p) + x, layer);
                }
                assert(s =~= t);
                lemma_causal_kv(w, prog, m, a, b, p, layer);
            },
            _ => {
                lemma_causal_kv(w, prog, m, a, b, p, layer);
            },
        }
    }
}

/// KV rows depend on the history up to their position only.
pub proof fn lemma_kv_causal(w: Kernels, prog: Program, a: Seq<Token>, b: Seq<Token>, j: int, layer: u32)
    requires agree(a, b, j), 0 <= j,
    ensures kv_row(w, prog, a, j, layer) == kv_row(w, prog, b, j, layer),
{
    lemma_causal_kv(w, prog, prog.ops@.len(), a, b, j, layer);
}

/// Logits depend on the history up to their position only.
pub proof fn lemma_logits_causal(w: Kernels, prog: Program, a: Seq<Token>, b: Seq<Token>, p: int)
    requires agree(a, b, p), 0 <= p,
    ensures canon_logits(w, prog, a, p) == canon_logits(w, prog, b, p),
{
    lemma_causal(w, prog, prog.ops@.len(), a, b, p, prog.logits);
}

} // verus!
