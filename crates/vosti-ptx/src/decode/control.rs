//! Where threads go, and what they wait for.

use super::{Known, Reader, What};
use crate::text::Operand;

impl Reader<'_> {
    /// Control Flow Instructions: bra, ret. Parallel Synchronization: bar.sync, barrier.sync,
    /// bar.warp.sync, griddepcontrol. Miscellaneous Instructions: setmaxnreg.
    pub(super) fn control(&self, opcode: &str, operands: &[Operand]) -> Known<What> {
        Some(match (opcode, operands) {
            ("ret", []) => What::Return,
            ("bra" | "bra.uni", [Operand::Word(label)]) => What::Branch { to: self.label(label)? },
            ("bar.sync" | "barrier.sync", [Operand::Word(id), threads @ ..]) => {
                let threads = match threads {
                    [] => None,
                    [Operand::Word(many)] => {
                        Some(many.parse().ok().filter(|many: &u32| many.is_multiple_of(32) && *many > 0)?)
                    }
                    _ => return None,
                };
                let id = id.parse().ok().filter(|id| *id < 16)?;
                What::Barrier { id, threads, aligned: opcode == "bar.sync" }
            }
            ("setmaxnreg.inc.sync.aligned.u32" | "setmaxnreg.dec.sync.aligned.u32", [Operand::Word(many)]) => {
                let allowed = |many: &u32| (24..=256).contains(many) && many.is_multiple_of(8);
                many.parse().ok().filter(allowed).map(|_| What::Registers)?
            }
            ("bar.warp.sync", [Operand::Word("-1" | "0xffffffff")]) => What::WarpBarrier,
            ("griddepcontrol.wait", []) => What::Await,
            ("griddepcontrol.launch_dependents", []) => What::Release,
            _ => return None,
        })
    }
}
