//! Copies by descriptor, which sm90 has, and what counts their bytes.

use super::{Counting, Known, Reader, Register, What};
use crate::text::{Operand, Width};

impl Reader<'_> {
    /// Parallel Synchronization and Communication Instructions: mbarrier, elect.sync. Tensor copy: cp.async.bulk.tensor.
    pub(super) fn bulk(&self, opcode: &str, operands: &[Operand]) -> Known<What> {
        use Width::{Bits32, Bits64, Predicate};
        Some(match (opcode, operands) {
            ("elect.sync", [Operand::Word(to), Operand::Word("-1" | "0xffffffff")]) => {
                let (to, leader) = to.split_once('|')?;
                let to = if to == "_" { None } else { Some(self.register(to, Bits32)?) };
                What::Elect { to, leader: self.register(leader, Predicate)? }
            }
            (
                "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes",
                [to, Operand::Tensor(map, place), counter],
            ) => {
                let place: Vec<Register> = place.iter().map(|word| self.word(word, Bits32)).collect::<Known<_>>()?;
                What::Bulk {
                    to: self.at(to, "shared")?,
                    map: self.word(map, Bits64)?,
                    place: place.try_into().ok()?,
                    counter: self.at(counter, "shared")?,
                }
            }
            _ => return self.counter(opcode, operands),
        })
    }

    fn counter(&self, opcode: &str, operands: &[Operand]) -> Known<What> {
        use Width::{Bits32, Predicate};
        let words: Vec<&str> = opcode.split('.').collect();
        // Of one block: `.shared` is `.shared::cta`.
        let ["mbarrier", action @ .., "shared" | "shared::cta", "b64"] = words.as_slice() else { return None };
        let (at, what) = match (action, operands) {
            (["init"], [at, count]) => (at, Counting::Init(self.source(count, Bits32)?)),
            (["inval"], [at]) => (at, Counting::Inval),
            (["arrive", "expect_tx"], [Operand::Word("_"), at, bytes]) => {
                (at, Counting::ExpectBytes(self.source(bytes, Bits32)?))
            }
            (["arrive"], [Operand::Word("_"), at, count @ ..]) => {
                let count = match count {
                    [] => self.number(1),
                    [count] => self.source(count, Bits32)?,
                    _ => return None,
                };
                (at, Counting::Arrive(count))
            }
            (["try_wait", "parity"], [to, at, parity]) => {
                (at, Counting::Wait { to: self.target(to, Predicate)?, parity: self.source(parity, Bits32)? })
            }
            _ => return None,
        };
        Some(What::Counter { at: self.at(at, "shared")?, what })
    }
}
