//! Instructions that sm90 has beside those of sm80: `wgmma` and what belongs to it.

use super::{Factor, Gemm, Known, Product, Reader, Register, What};
use crate::text::{Operand, Width};

impl Reader<'_> {
    /// Asynchronous Warpgroup Level Matrix Instructions; Warp Level Matrix Instructions: stmatrix; fence.proxy; setp of pairs.
    pub(super) fn gemm(&self, opcode: &str, operands: &[Operand]) -> Known<What> {
        use Width::{Bits32, Bits64, Predicate};
        let (product, columns) =
            match opcode.strip_prefix("wgmma.mma_async.sync.aligned.m64n").and_then(|rest| rest.split_once('k')) {
                Some((columns, "16.f32.bf16.bf16")) => (Product::Bf16, columns.parse().ok()?),
                Some((columns, "32.s32.s8.s8")) => (Product::S8, columns.parse().ok()?),
                Some(_) => return None,
                None => return self.around_gemm(opcode, operands),
            };
        let [Operand::Vector(to), a, b, keep, rest @ ..] = operands else { return None };
        let to: Vec<Register> = to.iter().map(|word| self.register(word, Bits32)).collect::<Known<_>>()?;
        let a = match a {
            Operand::Vector(_) => Factor::Registers(self.sources(a)?),
            a => Factor::Shared(self.source(a, Bits64)?),
        };
        let flags: Vec<&str> =
            rest.iter().map(|flag| if let Operand::Word(word) = flag { *word } else { "" }).collect();
        let transposed = match (product, a, flags.as_slice()) {
            (Product::Bf16, Factor::Registers(_), ["1", "1", b]) => [false, flag(b)?],
            (Product::Bf16, Factor::Shared(_), ["1", "1", a, b]) => [flag(a)?, flag(b)?],
            (Product::S8, _, []) => [false; 2],
            _ => return None,
        };
        let fits = to.len() * 2 == columns && columns % 8 == 0;
        let (b, keep) = (self.source(b, Bits64)?, self.source(keep, Predicate)?);
        fits.then(|| What::Gemm(Box::new(Gemm { product, to, a, b, keep, columns, transposed })))
    }

    fn around_gemm(&self, opcode: &str, operands: &[Operand]) -> Known<What> {
        use Width::{Bits32, Predicate};
        Some(match (opcode, operands) {
            ("wgmma.fence.sync.aligned", []) => What::GemmFence,
            ("wgmma.commit_group.sync.aligned", []) => What::GemmCommit,
            ("wgmma.wait_group.sync.aligned", [Operand::Word(but)]) => What::GemmWait { but: but.parse().ok()? },
            ("fence.proxy.async.shared::cta", []) => What::ProxyFence,
            ("setp.le.bf16x2", [Operand::Word(to), a, b]) => {
                let (low, high) = to.split_once('|')?;
                let to = [self.register(low, Predicate)?, self.register(high, Predicate)?];
                What::AtMost { to, a: self.source(a, Bits32)?, b: self.source(b, Bits32)? }
            }
            (_, [at, Operand::Vector(from)]) => {
                let form = opcode.strip_prefix("stmatrix.sync.aligned.m8n8.x")?.strip_suffix(".shared.b16")?;
                let (many, transposed) = form.strip_suffix(".trans").map_or((form, false), |many| (many, true));
                let from: Vec<Register> = from.iter().map(|word| self.word(word, Bits32)).collect::<Known<_>>()?;
                let fits = [1, 2, 4].contains(&from.len()) && many.parse() == Ok(from.len());
                return fits.then_some(What::StoreMatrices { from, at: self.at(at, "shared")?, transposed });
            }
            _ => return None,
        })
    }
}

fn flag(word: &str) -> Known<bool> {
    match word {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}
