//! Where threads go, and what they wait for.

use super::{Known, Reader, What};
use crate::text::Operand;

impl Reader<'_> {
    /// Control Flow Instructions: bra, ret. Parallel Synchronization: bar.sync, bar.warp.sync, griddepcontrol.
    pub(super) fn control(&self, opcode: &str, operands: &[Operand]) -> Known<What> {
        Some(match (opcode, operands) {
            ("ret", []) => What::Return,
            ("bra" | "bra.uni", [Operand::Word(label)]) => What::Branch { to: self.label(label)? },
            ("bar.sync", [Operand::Word("0")]) => What::Barrier,
            ("bar.warp.sync", [Operand::Word("-1" | "0xffffffff")]) => What::WarpBarrier,
            ("griddepcontrol.wait", []) => What::Await,
            ("griddepcontrol.launch_dependents", []) => What::Release,
            _ => return None,
        })
    }
}
