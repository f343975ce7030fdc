//! A forward pass as data: a list of ops over named row buffers. A model family compiles its configuration to one of
//! these; nothing in the core or its proofs knows a family.
//!
//! `Program::wf` is what the check decides and the proof needs.
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

/// Element type of memory. A program, its kernels' contracts and its weights name types by this one; tile IR has more, for
/// values that no buffer holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Dtype {
    /// Integers of 8 bits with a sign.
    I8,
    /// Integers of 32 bits with a sign.
    I32,
    /// Floats of 16 bits with the range of [`Dtype::F32`].
    Bf16,
    /// Single precision.
    F32,
}

/// A buffer of rows, `width` elements each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BufferDecl {
    /// Elements of a row.
    pub width: u32,
    /// Type of an element.
    pub dtype: Dtype,
    /// The rows that it holds.
    pub rows: RowSet,
}

/// A part of a layer's cache entries, or of the states of its pages: `width` elements for each of `heads`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartDecl {
    /// How many heads it has.
    pub heads: u32,
    /// Elements of a head.
    pub width: u32,
    /// Type of an element.
    pub dtype: Dtype,
}

/// A group of cache layers with one window and the same parts, which share page tables. To the core an entry is opaque: the state
/// at a page's end belongs to the entry at the page's last position.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupDecl {
    /// Entries visible to a position, itself included: position p sees j > p - window. None: all of them.
    pub window: Option<u32>,
    /// The parts of an entry, which each position has. Attention's are keys and values.
    pub entry: Vec<PartDecl>,
    /// The parts of the state at a page's end. Attention has none.
    pub state: Vec<PartDecl>,
}

/// One layer of KV cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LayerDecl {
    /// An index into [`Program::groups`].
    pub group: u32,
}

/// One op. `k` names one kernel class bound to one set of weights: an index into the model's binding table.
#[allow(missing_docs, reason = "each formula names its fields")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// `out[t] = f_k(token[t])`
    Embed { k: u32, out: u32 },
    /// `outs[t] = f_k(ins[t], position[t])`; a Selected op reads All buffers at the selected rows.
    Rowwise { k: u32, ins: Vec<u32>, outs: Vec<u32>, rows: RowSet },
    /// `cache[layer][slot(t)] = f_k(ins[t], position[t], cache[layer] over the back positions before position[t])`. So an entry may
    /// depend on earlier entries of its layer, those that this op stores among them. A plain store has a `back` of 0.
    StoreKv { k: u32, ins: Vec<u32>, layer: u32, back: u32 },
    /// `out[t] = g_k(q[t], position[t], cache[layer] over the window's positions)`
    Attend { k: u32, q: u32, layer: u32, out: u32, window: Option<u32> },
}

/// A forward pass.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// The ops, in the order in which they run.
    pub ops: Vec<Op>,
    /// Row buffers; ops name them by index.
    pub buffers: Vec<BufferDecl>,
    /// Groups of cache layers; layers name them by index.
    pub groups: Vec<GroupDecl>,
    /// Cache layers; ops name them by index.
    pub layers: Vec<LayerDecl>,
    /// The index of the logits buffer: F32, Selected, as wide as the vocabulary.
    pub logits: u32,
    /// The number of tokens in the vocabulary: every id is below it.
    pub vocab: u32,
    /// The most positions of a request, at most the length of the rope tables.
    pub context: u32,
    /// Length of the binding table.
    pub kernels: u32,
}

/// The largest length of a list in a program: indices must fit into 32-bit signed integers.
pub const COUNT_MAX: usize = 0x7fff_ffff;

/// The first position that `p` sees through a window.
pub open spec fn window_lo(window: Option<u32>, p: int) -> int {
    match window {
        None => 0,
        Some(w) => if w <= p { p - w + 1 } else { 0 },
    }
}

/// How many positions `p` sees through a window, itself included.
pub open spec fn window_span(window: Option<u32>, p: int) -> nat {
    if window_lo(window, p) <= p { (p + 1 - window_lo(window, p)) as nat } else { 0 }
}

/// How many entries before position `p` a store sees that looks so far back.
pub open spec fn back_span(back: u32, p: int) -> nat {
    if p <= 0 {
        0
    } else if back <= p {
        back as nat
    } else {
        p as nat
    }
}

/// A store looks back no further than its group keeps.
pub open spec fn back_within(back: u32, group: Option<u32>) -> bool {
    match group {
        Some(g) => back < g,
        None => true,
    }
}

/// A window shows at least one key, and no more than its group keeps.
pub open spec fn window_within(window: Option<u32>, group: Option<u32>) -> bool {
    match (window, group) {
        (Some(w), Some(g)) => 0 < w <= g,
        (Some(w), None) => 0 < w,
        (None, Some(_)) => false,
        (None, None) => true,
    }
}

/// The KV rows that an op reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheRead {
    /// The layer.
    pub layer: u32,
    /// Its positions that a row sees, counted back from the row's own.
    pub window: Option<u32>,
}

/// The KV rows that an op stores: the step's slots of a layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheWrite {
    /// The layer.
    pub layer: u32,
    /// How many of the layer's entries before a row's own that entry depends on.
    pub back: u32,
}

/// What an op uses, whatever its kind.
#[derive(PartialEq, Eq, Debug)]
pub struct Uses {
    /// Its kernel class and weights: an index into the model's binding table.
    pub binding: u32,
    /// Whether it reads the tokens of the step.
    pub tokens: bool,
    /// The buffers that it reads, in the order of its kernel's inputs.
    pub inputs: Vec<u32>,
    /// The buffers that it writes, in the order of its kernel's outputs.
    pub outputs: Vec<u32>,
    /// The rows that it computes.
    pub rows: RowSet,
    /// The KV rows that it reads.
    pub cache_read: Option<CacheRead>,
    /// The KV rows that it stores.
    pub cache_written: Option<CacheWrite>,
}

impl Op {
    /// Its index into the binding table.
    pub open spec fn binding(self) -> u32 {
        match self {
            Op::Embed { k, .. } => k,
            Op::Rowwise { k, .. } => k,
            Op::StoreKv { k, .. } => k,
            Op::Attend { k, .. } => k,
        }
    }

    /// It reads the tokens of the step.
    pub open spec fn tokens(self) -> bool {
        self is Embed
    }

    /// The buffers that it reads.
    pub open spec fn inputs(self) -> Seq<u32> {
        match self {
            Op::Embed { .. } => seq![],
            Op::Rowwise { ins, .. } => ins@,
            Op::StoreKv { ins, .. } => ins@,
            Op::Attend { q, .. } => seq![q],
        }
    }

    /// The buffers that it writes.
    pub open spec fn outputs(self) -> Seq<u32> {
        match self {
            Op::Embed { out, .. } => seq![out],
            Op::Rowwise { outs, .. } => outs@,
            Op::StoreKv { .. } => seq![],
            Op::Attend { out, .. } => seq![out],
        }
    }

    /// The rows that it computes.
    pub open spec fn rows(self) -> RowSet {
        match self {
            Op::Rowwise { rows, .. } => rows,
            _ => RowSet::All,
        }
    }

    /// The KV rows that it reads.
    pub open spec fn cache_read(self) -> Option<CacheRead> {
        match self {
            Op::Attend { layer, window, .. } => Some(CacheRead { layer, window }),
            _ => None,
        }
    }

    /// The KV rows that it stores.
    pub open spec fn cache_written(self) -> Option<CacheWrite> {
        match self {
            Op::StoreKv { layer, back, .. } => Some(CacheWrite { layer, back }),
            _ => None,
        }
    }

    /// The op writes this buffer.
    pub open spec fn writes(self, buffer: u32) -> bool {
        self.outputs().contains(buffer)
    }

    /// The op stores this layer's KV.
    pub open spec fn stores(self, layer: u32) -> bool {
        self.cache_written() matches Some(write) && write.layer == layer
    }

    /// What the op uses. The check, admission and wiring read ops through this, so another kind of op has one more arm here.
    pub fn uses(&self) -> (uses: Uses)
        ensures
            uses.binding == self.binding(), uses.tokens == self.tokens(), uses.inputs@ == self.inputs(), uses.outputs@ == self.outputs(),
            uses.rows == self.rows(), uses.cache_read == self.cache_read(), uses.cache_written == self.cache_written(),
    {
        let base = Uses {
            binding: 0, tokens: false, inputs: vec![], outputs: vec![], rows: RowSet::All, cache_read: None, cache_written: None,
        };
        match self {
            Op::Embed { k, out } => Uses { binding: *k, tokens: true, outputs: vec![*out], ..base },
            Op::Rowwise { k, ins, outs, rows } => Uses { binding: *k, inputs: copied(ins), outputs: copied(outs), rows: *rows, ..base },
            Op::StoreKv { k, ins, layer, back } => Uses {
                binding: *k,
                inputs: copied(ins),
                cache_written: Some(CacheWrite { layer: *layer, back: *back }),
                ..base
            },
            Op::Attend { k, q, layer, out, window } => Uses {
                binding: *k,
                inputs: vec![*q],
                outputs: vec![*out],
                cache_read: Some(CacheRead { layer: *layer, window: *window }),
                ..base
            },
        }
    }
}

/// The same buffers.
fn copied(list: &Vec<u32>) -> (copy: Vec<u32>)
    ensures copy@ == list@,
{
    let mut copy: Vec<u32> = Vec::with_capacity(list.len());
    let mut i: usize = 0;
    while i < list.len()
        invariant i <= list@.len(), copy@ == list@.take(i as int),
        decreases list.len() - i,
    {
        copy.push(list[i]);
        proof { assert(list@.take(i + 1) =~= list@.take(i as int).push(list@[i as int])); }
        i += 1;
    }
    proof { assert(list@.take(i as int) =~= list@); }
    copy
}

impl Program {
    /// An op before the n-th writes this buffer.
    #[verifier::opaque]
    pub open spec fn written(self, n: int, buffer: u32) -> bool {
        exists|i: int| 0 <= i < n && (#[trigger] self.ops@[i]).writes(buffer)
    }

    /// An op before the n-th stores this layer.
    #[verifier::opaque]
    pub open spec fn stored(self, n: int, layer: u32) -> bool {
        exists|i: int| 0 <= i < n && (#[trigger] self.ops@[i]).stores(layer)
    }

    /// The layer exists and the program stores its KV.
    pub open spec fn keeps(self, layer: u32) -> bool {
        layer < self.layers@.len() && self.stored(self.ops@.len() as int, layer)
    }

    /// The buffer exists and op n, of this row set, may read it.
    pub open spec fn readable(self, n: int, buffer: u32, rows: RowSet) -> bool {
        &&& buffer < self.buffers@.len()
        &&& self.written(n, buffer)
        &&& rows is All ==> self.buffers@[buffer as int].rows is All
    }

    /// The buffer exists and has this row set.
    pub open spec fn writable(self, buffer: u32, rows: RowSet) -> bool {
        &&& buffer < self.buffers@.len()
        &&& self.buffers@[buffer as int].rows == rows
    }

    pub open spec fn all_readable(self, n: int, ins: Seq<u32>, rows: RowSet) -> bool {
        forall|i: int| 0 <= i < ins.len() ==> self.readable(n, #[trigger] ins[i], rows)
    }

    pub open spec fn all_writable(self, ins: Seq<u32>, outs: Seq<u32>, rows: RowSet) -> bool {
        &&& forall|i: int| 0 <= i < outs.len() ==> self.writable(#[trigger] outs[i], rows) && !ins.contains(outs[i])
        &&& outs.no_duplicates()
    }

    /// Op n may read these KV rows: an op before it stores the layer, and the group keeps what the window shows.
    pub open spec fn cache_readable(self, n: int, read: CacheRead) -> bool {
        &&& read.layer < self.layers@.len()
        &&& self.stored(n, read.layer)
        &&& window_within(read.window, self.groups@[self.layers@[read.layer as int].group as int].window)
    }

    /// Op n may store these KV rows: the layer exists, no op before stores it, and the group keeps what the op looks back at.
    pub open spec fn cache_writable(self, n: int, write: CacheWrite) -> bool {
        &&& write.layer < self.layers@.len()
        &&& !self.stored(n, write.layer)
        &&& back_within(write.back, self.groups@[self.layers@[write.layer as int].group as int].window)
    }

    /// Op n is well-formed after the ops before it.
    pub open spec fn op_wf(self, n: int) -> bool {
        let op = self.ops@[n];
        &&& op.binding() < self.kernels
        &&& op.tokens() || 0 < op.inputs().len()
        &&& self.all_readable(n, op.inputs(), op.rows())
        &&& op.cache_written() is Some || 0 < op.outputs().len()
        &&& self.all_writable(op.inputs(), op.outputs(), op.rows())
        &&& op.cache_written() matches Some(write) ==> self.cache_writable(n, write)
        &&& op.cache_read() matches Some(read) ==> self.cache_readable(n, read)
    }

    pub open spec fn sizes_wf(self) -> bool {
        &&& 0 < self.ops@.len() <= COUNT_MAX && 0 < self.buffers@.len() <= COUNT_MAX
        &&& 0 < self.groups@.len() <= COUNT_MAX && 0 < self.layers@.len() <= COUNT_MAX
        &&& 0 < self.vocab && 0 < self.kernels && 0 < self.context <= COUNT_MAX
    }

    pub open spec fn groups_wf(self) -> bool {
        forall|g: int| 0 <= g < self.groups@.len() ==> (#[trigger] self.groups@[g]).window != Some(0u32)
    }

    pub open spec fn layers_wf(self) -> bool {
        forall|l: int| 0 <= l < self.layers@.len() ==> (#[trigger] self.layers@[l]).group < self.groups@.len()
    }

    pub open spec fn buffers_wf(self) -> bool {
        &&& forall|b: int| 0 <= b < self.buffers@.len() ==> (#[trigger] self.buffers@[b]).width > 0
        &&& self.logits < self.buffers@.len()
        &&& self.buffers@[self.logits as int].rows is Selected
        &&& self.buffers@[self.logits as int].dtype is F32
        &&& self.buffers@[self.logits as int].width == self.vocab
    }

    #[verifier::opaque]
    pub open spec fn ops_wf(self) -> bool {
        forall|n: int| 0 <= n < self.ops@.len() ==> #[trigger] self.op_wf(n)
    }

    /// The program is well-formed: `check` is Ok exactly then.
    pub open spec fn wf(self) -> bool {
        &&& self.sizes_wf()
        &&& self.groups_wf()
        &&& self.layers_wf()
        &&& self.buffers_wf()
        &&& self.ops_wf()
        &&& self.written(self.ops@.len() as int, self.logits)
    }
}

/// The first position that `position` sees through a window.
pub(crate) fn window_start(window: Option<u32>, position: usize) -> (first: usize)
    requires window != Some(0u32),
    ensures first == window_lo(window, position as int), first <= position,
{
    match window {
        None => 0,
        Some(w) => {
            let w = w as usize;
            if w <= position { position - w + 1 } else { 0 }
        },
    }
}

} // verus!
