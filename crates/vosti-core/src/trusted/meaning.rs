//! What a program means: the value of a buffer at a position of a history, with no batch, page or schedule (a cold forward);
//! and the reference run of a request, each token from one cold forward of the whole history. Read next: `next.rs`.

use super::seam::*;
use super::spec::*;
use crate::ids::Token;
use crate::program::*;
use vstd::prelude::*;

verus! {

/// Buffer `b` at position `p` of history `h`, after the first `n` ops.
pub open(crate) spec fn canon(w: Kernels, prog: Program, n: nat, h: Seq<Token>, p: int, b: u32) -> Bits
    decreases n, 0nat, 0int, 0nat,
{
    if n == 0 || n > prog.ops@.len() {
        Bits { code: 0 }
    } else {
        let m = (n - 1) as nat;
        match prog.ops@[m as int] {
            Op::Embed { k, out } => if b == out {
                (w.embed)(k, h[p])
            } else {
                canon(w, prog, m, h, p, b)
            },
            Op::Rowwise { k, ins, outs, .. } => if outs@.contains(b) {
                (w.rowwise)(k, canon_ins(w, prog, m, h, p, ins@), outs@.index_of(b), p)
            } else {
                canon(w, prog, m, h, p, b)
            },
            Op::StoreKv { .. } => canon(w, prog, m, h, p, b),
            Op::Attend { k, q, layer, out, window } => if b == out {
                (w.attend)(k, canon(w, prog, m, h, p, q), canon_kvs(w, prog, m, h, p, layer, window), p)
            } else {
                canon(w, prog, m, h, p, b)
            },
        }
    }
}

pub open(crate) spec fn canon_ins(w: Kernels, prog: Program, n: nat, h: Seq<Token>, p: int, ins: Seq<u32>) -> Seq<Bits>
    decreases n, 2nat, 0int, 0nat,
{
    Seq::new(ins.len(), |i: int| canon(w, prog, n, h, p, ins[i]))
}

pub open(crate) spec fn canon_kvs(
    w: Kernels,
    prog: Program,
    n: nat,
    h: Seq<Token>,
    p: int,
    layer: u32,
    window: Option<u32>,
) -> Seq<Bits>
    decreases n, 2nat, 0int, 0nat,
{
    Seq::new(window_span(window, p), |j: int| canon_kv(w, prog, n, h, window_lo(window, p) + j, layer))
}

/// The KV rows of a layer before position `j` that a store sees which looks so far back.
pub open(crate) spec fn canon_before(w: Kernels, prog: Program, n: nat, h: Seq<Token>, j: int, layer: u32, back: u32) -> Seq<Bits>
    decreases n, 1nat, j, 0nat,
{
    Seq::new(back_span(back, j), |x: int| if 0 <= x < back_span(back, j) {
        canon_kv(w, prog, n, h, j - back_span(back, j) + x, layer)
    } else {
        Bits { code: 0 }
    })
}

/// The KV row of a layer at position `j`, after the first `n` ops.
pub open(crate) spec fn canon_kv(w: Kernels, prog: Program, n: nat, h: Seq<Token>, j: int, layer: u32) -> Bits
    decreases n, 1nat, j, 1nat,
{
    if n == 0 || n > prog.ops@.len() {
        Bits { code: 0 }
    } else {
        let m = (n - 1) as nat;
        match prog.ops@[m as int] {
            Op::StoreKv { k, ins, layer: l, back } => if l == layer {
                (w.store)(k, canon_ins(w, prog, m, h, j, ins@), canon_before(w, prog, n, h, j, layer, back), j)
            } else {
                canon_kv(w, prog, m, h, j, layer)
            },
            _ => canon_kv(w, prog, m, h, j, layer),
        }
    }
}

/// The whole program's logits for a position.
pub open(crate) spec fn canon_logits(w: Kernels, prog: Program, h: Seq<Token>, p: int) -> Bits {
    canon(w, prog, prog.ops@.len(), h, p, prog.logits)
}

/// The whole program's KV row.
pub open(crate) spec fn kv_row(w: Kernels, prog: Program, h: Seq<Token>, j: int, layer: u32) -> Bits {
    canon_kv(w, prog, prog.ops@.len(), h, j, layer)
}

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

} // verus!
