//! The conditions that make a program well-formed, and the check that decides them. The core cannot be built around a program
//! that has not passed.
//!
//! Devices know the kernels, so they check how a model binds buffers to kernel parameters (widths per kernel, arity per
//! kernel). This file has the facts that the proof needs.

use crate::error::ProgramError;
use crate::program::*;
use vstd::prelude::*;

verus! {

impl Program {
    /// Ok exactly when the program is well-formed.
    pub fn check(&self) -> (out: Result<(), ProgramError>)
        ensures out is Ok <==> self.wf(),
    {
        self.check_sizes()?;
        self.check_groups()?;
        self.check_layers()?;
        self.check_buffers()?;
        self.check_ops()
    }

    fn check_sizes(&self) -> (out: Result<(), ProgramError>)
        ensures out is Ok <==> self.sizes_wf(),
    {
        if self.ops.len() == 0 || self.buffers.len() == 0 || self.groups.len() == 0 || self.layers.len() == 0
            || self.vocab == 0 || self.context == 0 || self.kernels == 0 {
            return Err(ProgramError::Empty);
        }
        if self.ops.len() > COUNT_MAX || self.buffers.len() > COUNT_MAX || self.groups.len() > COUNT_MAX
            || self.layers.len() > COUNT_MAX || self.context as usize > COUNT_MAX {
            return Err(ProgramError::TooLarge);
        }
        Ok(())
    }

    fn check_groups(&self) -> (out: Result<(), ProgramError>)
        ensures out is Ok <==> self.groups_wf(),
    {
        let mut group: usize = 0;
        while group < self.groups.len()
            invariant
                group <= self.groups.len(),
                forall|g: int| 0 <= g < group ==> (#[trigger] self.groups@[g]).window != Some(0u32),
            decreases self.groups.len() - group,
        {
            if let Some(w) = self.groups[group].window {
                if w == 0 {
                    return Err(ProgramError::WindowEmpty { group });
                }
            }
            group += 1;
        }
        Ok(())
    }

    fn check_layers(&self) -> (out: Result<(), ProgramError>)
        ensures out is Ok <==> self.layers_wf(),
    {
        let mut layer: usize = 0;
        while layer < self.layers.len()
            invariant
                layer <= self.layers.len(),
                forall|l: int| 0 <= l < layer ==> (#[trigger] self.layers@[l]).group < self.groups@.len(),
            decreases self.layers.len() - layer,
        {
            if self.layers[layer].group as usize >= self.groups.len() {
                return Err(ProgramError::LayerGroup { layer });
            }
            layer += 1;
        }
        Ok(())
    }

    fn check_buffers(&self) -> (out: Result<(), ProgramError>)
        ensures out is Ok <==> self.buffers_wf(),
    {
        let mut buffer: usize = 0;
        while buffer < self.buffers.len()
            invariant
                buffer <= self.buffers.len(),
                forall|b: int| 0 <= b < buffer ==> (#[trigger] self.buffers@[b]).width > 0,
            decreases self.buffers.len() - buffer,
        {
            if self.buffers[buffer].width == 0 {
                return Err(ProgramError::BufferEmpty { buffer });
            }
            buffer += 1;
        }
        let logits = self.logits as usize;
        if logits >= self.buffers.len() {
            return Err(ProgramError::LogitsBuffer);
        }
        let decl = self.buffers[logits];
        let selected = match decl.rows { RowSet::Selected => true, RowSet::All => false };
        let wide = match decl.dtype { Dtype::F32 => true, Dtype::I8 | Dtype::I32 | Dtype::Bf16 => false };
        if !selected || !wide || decl.width != self.vocab {
            return Err(ProgramError::LogitsBuffer);
        }
        Ok(())
    }

    fn check_ops(&self) -> (out: Result<(), ProgramError>)
        requires self.sizes_wf(), self.layers_wf(), self.buffers_wf(),
        ensures out is Ok <==> self.ops_wf() && self.written(self.ops@.len() as int, self.logits),
    {
        let mut written: Vec<bool> = vec![false; self.buffers.len()];
        let mut stored: Vec<bool> = vec![false; self.layers.len()];
        let mut op: usize = 0;
        proof {
            reveal(Program::written);
            reveal(Program::stored);
        }
        while op < self.ops.len()
            invariant
                op <= self.ops.len() <= COUNT_MAX,
                self.sizes_wf(), self.layers_wf(), self.buffers_wf(),
                self.tracks(op as int, written@, stored@),
                forall|n: int| 0 <= n < op ==> #[trigger] self.op_wf(n),
            decreases self.ops.len() - op,
        {
            if let Err(error) = self.check_op(op, &written, &stored) {
                proof {
                    assert(!self.op_wf(op as int));
                    reveal(Program::ops_wf);
                }
                return Err(error);
            }
            self.mark_op(op, &mut written, &mut stored);
            op += 1;
        }
        proof { reveal(Program::ops_wf); }
        if !written[self.logits as usize] {
            return Err(ProgramError::LogitsNeverWritten);
        }
        Ok(())
    }

    /// The marks say which buffers and layers the ops before the n-th write and store.
    spec fn tracks(self, n: int, written: Seq<bool>, stored: Seq<bool>) -> bool {
        &&& written.len() == self.buffers@.len()
        &&& stored.len() == self.layers@.len()
        &&& forall|b: u32| b < written.len() ==> (written[b as int] <==> #[trigger] self.written(n, b))
        &&& forall|l: u32| l < stored.len() ==> (stored[l as int] <==> #[trigger] self.stored(n, l))
    }

    fn check_op(&self, op: usize, written: &Vec<bool>, stored: &Vec<bool>) -> (out: Result<(), ProgramError>)
        requires
            op < self.ops@.len(),
            self.layers_wf(),
            self.tracks(op as int, written@, stored@),
        ensures out is Ok <==> self.op_wf(op as int),
    {
        let used = self.ops[op].uses();
        if used.binding >= self.kernels {
            return Err(ProgramError::KernelOutOfRange { op });
        }
        if used.inputs.len() == 0 && !used.tokens {
            return Err(ProgramError::NoInput { op });
        }
        self.check_inputs(op, &used.inputs, used.rows, written)?;
        if used.outputs.len() == 0 && used.cache_written.is_none() {
            return Err(ProgramError::NoOutput { op });
        }
        self.check_outputs(op, &used.inputs, &used.outputs, used.rows)?;
        self.check_cache(op, &used, stored)
    }

    fn check_cache(&self, op: usize, used: &Uses, stored: &Vec<bool>) -> (out: Result<(), ProgramError>)
        requires
            self.layers_wf(),
            stored@.len() == self.layers@.len(),
            forall|l: u32| l < stored@.len() ==> (stored@[l as int] <==> #[trigger] self.stored(op as int, l)),
        ensures
            out is Ok <==> (used.cache_written matches Some(write) ==> self.cache_writable(op as int, write))
                && (used.cache_read matches Some(read) ==> self.cache_readable(op as int, read)),
    {
        if let Some(write) = used.cache_written {
            if write.layer as usize >= self.layers.len() {
                return Err(ProgramError::LayerOutOfRange { op });
            }
            if stored[write.layer as usize] {
                return Err(ProgramError::StoredTwice { op });
            }
            let group = self.layers[write.layer as usize].group as usize;
            if !kept(write.back, self.groups[group].window) {
                return Err(ProgramError::WindowBeyondGroup { op });
            }
        }
        if let Some(read) = used.cache_read {
            if read.layer as usize >= self.layers.len() {
                return Err(ProgramError::LayerOutOfRange { op });
            }
            if !stored[read.layer as usize] {
                return Err(ProgramError::AttendBeforeStore { op });
            }
            let group = self.layers[read.layer as usize].group as usize;
            if !within(read.window, self.groups[group].window) {
                return Err(ProgramError::WindowBeyondGroup { op });
            }
        }
        Ok(())
    }

    fn check_inputs(&self, op: usize, ins: &Vec<u32>, rows: RowSet, written: &Vec<bool>) -> (out: Result<(), ProgramError>)
        requires
            written@.len() == self.buffers@.len(),
            forall|b: u32| b < written@.len() ==> (written@[b as int] <==> #[trigger] self.written(op as int, b)),
        ensures out is Ok <==> self.all_readable(op as int, ins@, rows),
    {
        let mut i: usize = 0;
        while i < ins.len()
            invariant
                i <= ins.len(),
                written@.len() == self.buffers@.len(),
                forall|b: u32| b < written@.len() ==> (written@[b as int] <==> #[trigger] self.written(op as int, b)),
                forall|j: int| 0 <= j < i ==> self.readable(op as int, #[trigger] ins@[j], rows),
            decreases ins.len() - i,
        {
            self.check_input(op, ins[i], rows, written)?;
            i += 1;
        }
        Ok(())
    }

    fn check_input(&self, op: usize, buffer: u32, rows: RowSet, written: &Vec<bool>) -> (out: Result<(), ProgramError>)
        requires
            written@.len() == self.buffers@.len(),
            forall|b: u32| b < written@.len() ==> (written@[b as int] <==> #[trigger] self.written(op as int, b)),
        ensures out is Ok <==> self.readable(op as int, buffer, rows),
    {
        if buffer as usize >= self.buffers.len() {
            return Err(ProgramError::BufferOutOfRange { op });
        }
        if !written[buffer as usize] {
            return Err(ProgramError::ReadBeforeWrite { op });
        }
        match (rows, self.buffers[buffer as usize].rows) {
            (RowSet::All, RowSet::Selected) => Err(ProgramError::RowSetMismatch { op }),
            _ => Ok(()),
        }
    }

    fn check_output(&self, op: usize, buffer: u32, rows: RowSet) -> (out: Result<(), ProgramError>)
        ensures out is Ok <==> self.writable(buffer, rows),
    {
        if buffer as usize >= self.buffers.len() {
            return Err(ProgramError::BufferOutOfRange { op });
        }
        match (rows, self.buffers[buffer as usize].rows) {
            (RowSet::All, RowSet::All) => Ok(()),
            (RowSet::Selected, RowSet::Selected) => Ok(()),
            _ => Err(ProgramError::RowSetMismatch { op }),
        }
    }

    fn check_outputs(&self, op: usize, ins: &Vec<u32>, outs: &Vec<u32>, rows: RowSet) -> (out: Result<(), ProgramError>)
        ensures out is Ok <==> self.all_writable(ins@, outs@, rows),
    {
        let mut i: usize = 0;
        while i < outs.len()
            invariant
                i <= outs.len(),
                forall|a: int, b: int| 0 <= a < b < i ==> outs@[a] != outs@[b],
                forall|j: int| 0 <= j < i ==> self.writable(#[trigger] outs@[j], rows) && !ins@.contains(outs@[j]),
            decreases outs.len() - i,
        {
            self.check_output(op, outs[i], rows)?;
            if contains_before(outs, i, outs[i]) {
                return Err(ProgramError::OutputTwice { op });
            }
            if contains_before(ins, ins.len(), outs[i]) {
                return Err(ProgramError::OutputIsInput { op });
            }
            i += 1;
        }
        Ok(())
    }

    fn mark_op(&self, op: usize, written: &mut Vec<bool>, stored: &mut Vec<bool>)
        requires
            op < self.ops@.len(),
            self.op_wf(op as int),
            self.tracks(op as int, old(written)@, old(stored)@),
        ensures self.tracks(op + 1, final(written)@, final(stored)@),
    {
        proof {
            self.lemma_marks(op as int);
        }
        let ghost before = written@;
        let used = self.ops[op].uses();
        let mut i: usize = 0;
        while i < used.outputs.len()
            invariant
                i <= used.outputs.len(),
                written@.len() == before.len() == self.buffers@.len(),
                self.all_writable(used.inputs@, used.outputs@, used.rows),
                forall|b: int| 0 <= b < before.len() ==> (#[trigger] written@[b] <==> before[b] || listed(used.outputs@, i as int, b)),
            decreases used.outputs.len() - i,
        {
            written[used.outputs[i] as usize] = true;
            proof {
                let outs = used.outputs@;
                assert(listed(outs, i + 1, outs[i as int] as int));
                assert forall|b: int| listed(outs, i + 1, b) implies #[trigger] listed(outs, i as int, b) || b == outs[i as int] by {}
                assert forall|b: int| listed(outs, i as int, b) implies #[trigger] listed(outs, i + 1, b) by {}
            }
            i += 1;
        }
        proof {
            let outs = used.outputs@;
            assert forall|b: u32| #[trigger] self.ops@[op as int].writes(b) <==> listed(outs, outs.len() as int, b as int) by {
                if self.ops@[op as int].writes(b) {
                    let j = choose|j: int| 0 <= j < outs.len() && outs[j] == b;
                    assert(outs[j] as int == b);
                }
            }
        }
        if let Some(write) = used.cache_written {
            stored[write.layer as usize] = true;
        }
    }
}

impl Program {
    /// One more op adds what it writes and stores.
    proof fn lemma_marks(self, n: int)
        requires 0 <= n < self.ops@.len(),
        ensures
            forall|b: u32| #[trigger] self.written(n + 1, b) <==> self.written(n, b) || self.ops@[n].writes(b),
            forall|l: u32| #[trigger] self.stored(n + 1, l) <==> self.stored(n, l) || self.ops@[n].stores(l),
    {
        reveal(Program::written);
        reveal(Program::stored);
    }
}

/// The buffer is among the first n of these.
spec fn listed(outs: Seq<u32>, n: int, b: int) -> bool {
    exists|j: int| 0 <= j < n && #[trigger] outs[j] as int == b
}

/// Whether an op's window shows no more than its group's.
fn within(window: Option<u32>, group: Option<u32>) -> (yes: bool)
    ensures yes == window_within(window, group),
{
    match (window, group) {
        (_, None) => match window { Some(w) => w > 0, None => true },
        (None, Some(_)) => false,
        (Some(w), Some(g)) => 0 < w && w <= g,
    }
}

/// Whether a store looks back no further than its group keeps.
fn kept(back: u32, group: Option<u32>) -> (yes: bool)
    ensures yes == back_within(back, group),
{
    match group {
        Some(g) => back < g,
        None => true,
    }
}

/// Whether `x` stands among the first `n` of `list`.
fn contains_before(list: &Vec<u32>, n: usize, x: u32) -> (yes: bool)
    requires n <= list@.len(),
    ensures yes <==> exists|i: int| 0 <= i < n && list@[i] == x,
{
    let mut i: usize = 0;
    while i < n
        invariant
            n <= list@.len(),
            forall|j: int| 0 <= j < i ==> list@[j] != x,
        decreases n - i,
    {
        if list[i] == x {
            return true;
        }
        i += 1;
    }
    false
}

} // verus!
