//! A forward pass as data: a list of ops over named row buffers. A model family compiles its configuration to one of
//! these; nothing in the core or its proofs knows a family.
//!
//! Read next: `check.rs` (what makes a program well-formed), `seam.rs` (what each op means).

use vstd::prelude::*;

verus! {

/// Which rows of a step a buffer holds, or an op computes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RowSet {
    /// Every packed row.
    All,
    /// The rows that feed logits, compacted in the order of `StepPlan::selected`.
    Selected,
}

/// Element type of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dtype {
    /// The model's activation type: BF16, or F32 in FP32 test programs.
    Act,
    F32,
}

/// A buffer of rows, `width` elements each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BufferDecl {
    pub width: u32,
    pub dtype: Dtype,
    pub rows: RowSet,
}

/// A group of cache layers with one window and one shape, which share page tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupDecl {
    /// Keys visible to a position, itself included: position p sees j > p - window. None: all of them.
    pub window: Option<u32>,
    pub kv_heads: u32,
    pub head_dim: u32,
}

/// One layer of KV cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LayerDecl {
    pub group: u32,
}

/// One op. `k` names one kernel class bound to one set of weights: an index into the model's binding table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// `out[t] = f_k(token[t])`
    Embed { k: u32, out: u32 },
    /// `outs[t] = f_k(ins[t], position[t])`; a Selected op reads All buffers at the selected rows.
    Rowwise { k: u32, ins: Vec<u32>, outs: Vec<u32>, rows: RowSet },
    /// `cache[layer][slot(t)] = f_k(ins[t], position[t])`
    StoreKv { k: u32, ins: Vec<u32>, layer: u32 },
    /// `out[t] = g_k(q[t], position[t], cache[layer] over the window's positions)`
    Attend { k: u32, q: u32, layer: u32, out: u32, window: Option<u32> },
}

/// A forward pass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    pub ops: Vec<Op>,
    pub buffers: Vec<BufferDecl>,
    pub groups: Vec<GroupDecl>,
    pub layers: Vec<LayerDecl>,
    /// An F32, Selected buffer as wide as the vocabulary.
    pub logits: u32,
    pub vocab: u32,
    /// Positions a request may have, at most the length of the rope tables.
    pub context: u32,
    /// Length of the binding table.
    pub kernels: u32,
}

/// The first position that `position` sees through a window.
pub fn window_start(window: Option<u32>, position: usize) -> usize {
    match window {
        None => 0,
        Some(w) => {
            let w = w as usize;
            if w <= position { position - w + 1 } else { 0 }
        },
    }
}

} // verus!
