//! What makes a program well-formed, and the check that decides it. The core cannot be built around a program that has
//! not passed.
//!
//! A model's binding of buffers to kernel parameters (widths per kernel, arity per kernel) is checked where the kernels
//! are known, by the devices; here stand the facts that the proof needs.

use crate::error::ProgramError;
use crate::program::*;
use vstd::prelude::*;

verus! {

/// Largest count of anything in a program: what a 32-bit signed index can name.
pub const COUNT_MAX: usize = 0x7fff_ffff;

impl Program {
    /// Ok exactly when the program is well-formed.
    pub fn check(&self) -> Result<(), ProgramError> {
        self.check_sizes()?;
        self.check_groups()?;
        self.check_layers()?;
        self.check_buffers()?;
        self.check_ops()
    }

    fn check_sizes(&self) -> Result<(), ProgramError> {
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

    fn check_groups(&self) -> Result<(), ProgramError> {
        let mut group: usize = 0;
        while group < self.groups.len()
            decreases self.groups.len() - group,
        {
            if let Some(w) = self.groups[group].window {
                if w == 0 {
                    return Err(ProgramError::WindowEmpty { group });
                }
            }
            if self.groups[group].kv_heads == 0 || self.groups[group].head_dim == 0 {
                return Err(ProgramError::GroupEmpty { group });
            }
            group += 1;
        }
        Ok(())
    }

    fn check_layers(&self) -> Result<(), ProgramError> {
        let mut layer: usize = 0;
        while layer < self.layers.len()
            decreases self.layers.len() - layer,
        {
            if self.layers[layer].group as usize >= self.groups.len() {
                return Err(ProgramError::LayerGroup { layer });
            }
            layer += 1;
        }
        Ok(())
    }

    fn check_buffers(&self) -> Result<(), ProgramError> {
        let mut buffer: usize = 0;
        while buffer < self.buffers.len()
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
        let wide = match decl.dtype { Dtype::F32 => true, Dtype::Act => false };
        if !selected || !wide || decl.width != self.vocab {
            return Err(ProgramError::LogitsBuffer);
        }
        Ok(())
    }

    fn check_ops(&self) -> Result<(), ProgramError> {
        let mut written: Vec<bool> = vec![false; self.buffers.len()];
        let mut stored: Vec<bool> = vec![false; self.layers.len()];
        let mut op: usize = 0;
        while op < self.ops.len()
            decreases self.ops.len() - op,
        {
            self.check_op(op, &written, &stored)?;
            self.mark_op(op, &mut written, &mut stored);
            op += 1;
        }
        if !written[self.logits as usize] {
            return Err(ProgramError::LogitsNeverWritten);
        }
        Ok(())
    }

    fn check_op(&self, op: usize, written: &Vec<bool>, stored: &Vec<bool>) -> Result<(), ProgramError> {
        match &self.ops[op] {
            Op::Embed { k, out } => {
                self.check_kernel(op, *k)?;
                self.check_output(op, *out, RowSet::All)
            },
            Op::Rowwise { k, ins, outs, rows } => {
                self.check_kernel(op, *k)?;
                self.check_inputs(op, ins, *rows, written)?;
                self.check_outputs(op, ins, outs, *rows)
            },
            Op::StoreKv { k, ins, layer } => {
                self.check_kernel(op, *k)?;
                self.check_inputs(op, ins, RowSet::All, written)?;
                if *layer as usize >= self.layers.len() {
                    return Err(ProgramError::LayerOutOfRange { op });
                }
                if stored[*layer as usize] {
                    return Err(ProgramError::StoredTwice { op });
                }
                Ok(())
            },
            Op::Attend { k, q, layer, out, window } => {
                self.check_kernel(op, *k)?;
                self.check_input(op, *q, RowSet::All, written)?;
                self.check_output(op, *out, RowSet::All)?;
                if *q == *out {
                    return Err(ProgramError::OutputIsInput { op });
                }
                if *layer as usize >= self.layers.len() {
                    return Err(ProgramError::LayerOutOfRange { op });
                }
                if !stored[*layer as usize] {
                    return Err(ProgramError::AttendBeforeStore { op });
                }
                let group = self.layers[*layer as usize].group as usize;
                if !within(*window, self.groups[group].window) {
                    return Err(ProgramError::WindowBeyondGroup { op });
                }
                Ok(())
            },
        }
    }

    fn check_kernel(&self, op: usize, k: u32) -> Result<(), ProgramError> {
        if k >= self.kernels {
            return Err(ProgramError::KernelOutOfRange { op });
        }
        Ok(())
    }

    fn check_inputs(&self, op: usize, ins: &Vec<u32>, rows: RowSet, written: &Vec<bool>) -> Result<(), ProgramError> {
        if ins.len() == 0 {
            return Err(ProgramError::NoInput { op });
        }
        let mut i: usize = 0;
        while i < ins.len()
            decreases ins.len() - i,
        {
            self.check_input(op, ins[i], rows, written)?;
            i += 1;
        }
        Ok(())
    }

    fn check_input(&self, op: usize, buffer: u32, rows: RowSet, written: &Vec<bool>) -> Result<(), ProgramError> {
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

    fn check_output(&self, op: usize, buffer: u32, rows: RowSet) -> Result<(), ProgramError> {
        if buffer as usize >= self.buffers.len() {
            return Err(ProgramError::BufferOutOfRange { op });
        }
        match (rows, self.buffers[buffer as usize].rows) {
            (RowSet::All, RowSet::All) => Ok(()),
            (RowSet::Selected, RowSet::Selected) => Ok(()),
            _ => Err(ProgramError::RowSetMismatch { op }),
        }
    }

    fn check_outputs(&self, op: usize, ins: &Vec<u32>, outs: &Vec<u32>, rows: RowSet) -> Result<(), ProgramError> {
        if outs.len() == 0 {
            return Err(ProgramError::NoOutput { op });
        }
        let mut i: usize = 0;
        while i < outs.len()
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

    fn mark_op(&self, op: usize, written: &mut Vec<bool>, stored: &mut Vec<bool>) {
        match &self.ops[op] {
            Op::Embed { out, .. } => { written[*out as usize] = true; },
            Op::Attend { out, .. } => { written[*out as usize] = true; },
            Op::StoreKv { layer, .. } => { stored[*layer as usize] = true; },
            Op::Rowwise { outs, .. } => {
                let mut i: usize = 0;
                while i < outs.len()
                    decreases outs.len() - i,
                {
                    written[outs[i] as usize] = true;
                    i += 1;
                }
            },
        }
    }
}

/// Whether an op's window shows no more than its group's.
fn within(window: Option<u32>, group: Option<u32>) -> bool {
    match (window, group) {
        (_, None) => match window { Some(w) => w > 0, None => true },
        (None, Some(_)) => false,
        (Some(w), Some(g)) => 0 < w && w <= g,
    }
}

/// Whether `x` stands among the first `n` of `list`.
fn contains_before(list: &Vec<u32>, n: usize, x: u32) -> bool {
    let mut i: usize = 0;
    while i < n
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
