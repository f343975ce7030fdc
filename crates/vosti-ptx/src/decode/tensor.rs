//! Instructions of tensor memory, which sm100 has: `tcgen05`.

use super::words::number;
use super::{At, Known, Reader, Register, What};
use crate::text::{Operand, Width};

/// The first operand of a product of tensor memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum First {
    /// A descriptor.
    Shared(Register),
    Tensor(At),
}

/// `tcgen05` ([`crate::tensor`]). Addresses are of tensor memory, unless it says otherwise.
#[derive(Clone, Debug)]
pub(crate) enum Tensor {
    /// The address of so many columns goes to shared memory.
    Allocate {
        at: At,
        columns: u32,
    },
    Free {
        at: Register,
        columns: u32,
    },
    /// No allocation comes any more.
    Relinquish,
    Load {
        to: Vec<Register>,
        at: At,
        split: Option<u32>,
    },
    Store {
        at: At,
        split: Option<u32>,
        from: Vec<Register>,
    },
    WaitLoads,
    WaitStores,
    Multiply {
        to: At,
        a: First,
        /// A descriptor.
        b: Register,
        /// An instruction descriptor.
        form: Register,
        /// Whether the sums count.
        keep: Register,
    },
    /// An `mbarrier` in shared memory.
    Commit(At),
}

impl Reader<'_> {
    /// TensorCore 5th Generation Family Instructions, of one block.
    pub(super) fn tensor(&self, opcode: &str, operands: &[Operand]) -> Known<What> {
        use Width::{Bits32, Bits64, Predicate};
        let columns = |word: &str| number(word, Bits32).and_then(|columns| u32::try_from(columns).ok());
        let what = match (opcode.strip_prefix("tcgen05.")?, operands) {
            ("alloc.cta_group::1.sync.aligned.shared::cta.b32", [at, Operand::Word(many)]) => {
                Tensor::Allocate { at: self.at(at, "shared")?, columns: columns(many)? }
            }
            ("dealloc.cta_group::1.sync.aligned.b32", [at, Operand::Word(many)]) => {
                Tensor::Free { at: self.source(at, Bits32)?, columns: columns(many)? }
            }
            ("relinquish_alloc_permit.cta_group::1.sync.aligned", []) => Tensor::Relinquish,
            ("wait::ld.sync.aligned", []) => Tensor::WaitLoads,
            ("wait::st.sync.aligned", []) => Tensor::WaitStores,
            // With the state space: without it the address would be a generic one. A register of it may have 64 bits.
            ("commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64", [counter]) => {
                Tensor::Commit(self.at(counter, "shared").or_else(|| self.at(counter, "global"))?)
            }
            ("mma.cta_group::1.kind::f16", [to, a, b, form, keep]) => Tensor::Multiply {
                to: self.at(to, "shared")?,
                a: match a {
                    Operand::Address(..) => First::Tensor(self.at(a, "shared")?),
                    a => First::Shared(self.source(a, Bits64)?),
                },
                b: self.source(b, Bits64)?,
                form: self.source(form, Bits32)?,
                keep: self.source(keep, Predicate)?,
            },
            (form, operands) => {
                let (action, form) = form.split_once(".sync.aligned.")?;
                let (at, registers, split) = match (action, operands) {
                    ("ld", [registers, at, split @ ..]) => (at, registers, split),
                    ("st", [at, split @ .., registers]) => (at, registers, split),
                    _ => return None,
                };
                let Operand::Vector(registers) = registers else { return None };
                let (many, split) = match (form.strip_prefix("32x32b."), form.strip_prefix("16x32bx2."), split) {
                    (Some(many), None, []) => (many, None),
                    (None, Some(many), [Operand::Word(split)]) => (many, Some(columns(split)?)),
                    _ => return None,
                };
                let many: usize = many.strip_prefix('x')?.strip_suffix(".b32")?.parse().ok()?;
                let allowed = many == registers.len() && many.is_power_of_two() && many <= 128;
                let at = self.at(at, "shared")?;
                let read =
                    |word: &&str| if action == "ld" { self.register(word, Bits32) } else { self.word(word, Bits32) };
                let registers: Vec<Register> = registers.iter().map(read).collect::<Known<_>>()?;
                match (action, allowed) {
                    ("ld", true) => Tensor::Load { to: registers, at, split },
                    ("st", true) => Tensor::Store { at, split, from: registers },
                    _ => return None,
                }
            }
        };
        Some(What::Tensor(Box::new(what)))
    }
}
