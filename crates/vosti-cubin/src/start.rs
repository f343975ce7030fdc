//! The PTX that a kernel begins with where launches can begin early: it asks for weights, waits, and lets the next
//! launch begin.
//!
//! `compile.py` writes it in front of the compiler's own; [`crate::inspect()`] demands exactly this text. Nothing here
//! changes a number: a prefetch only moves bytes to the second-level cache, which all multiprocessors share. Read next:
//! [`mod@crate::inspect::early`].

use crate::arch::Arch;
use crate::artifact::Metadata;
use std::fmt::Write;
use vosti_contract::{Const, Contract, Dtype, Role};
use vosti_kernels::{CompileOptions, Spec};

/// The two instructions behind which nothing of a launch before is left, and the next one may begin.
const WAITS: &str = "\tgriddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;\n";
/// Bytes that a prefetch brings: a line of the second-level cache.
const LINE: u64 = 128;
/// The highest row tile whose programs mostly read weights. Programs of higher tiles share them with many others.
const ROWS_MAX: u64 = 64;

/// The first instructions of a kernel; none on a target whose launches cannot begin early.
pub fn start(spec: &Spec, contract: &Contract, options: CompileOptions, arch: Arch) -> String {
    if !arch.launches_early() {
        return String::new();
    }
    Ahead::of(spec, contract, options).map_or(String::new(), |ahead| ahead.ptx(&spec.kernel)) + WAITS
}

/// Bytes that a block asks for in [`start`].
pub(crate) fn bytes(spec: &Spec, contract: &Contract, metadata: &Metadata) -> u64 {
    let ahead = Ahead::of(spec, contract, metadata.options()).filter(|_| metadata.launch_pdl);
    ahead.map_or(0, |ahead| ahead.columns * ahead.lines * LINE * ahead.parts)
}

/// The beginning of each row of a matrix's stripe: what a product's loop loads first, as far as its stages reach.
struct Ahead {
    /// The place of the weight's parameter.
    param: usize,
    /// Matrices, one behind the other.
    parts: u64,
    /// Rows of a matrix, which are columns of the product, and those of a block.
    matrix: u64,
    columns: u64,
    /// Bytes of a row.
    row: u64,
    /// Lines of each row: a power of two, at most the threads.
    lines: u64,
    threads: u64,
}

impl Ahead {
    /// Of a product with one weight in BF16, whose programs have row tiles on the first axis and columns on the second.
    fn of(spec: &Spec, contract: &Contract, options: CompileOptions) -> Option<Ahead> {
        let int = |name: &str| match spec.constants.get(name)? {
            Const::Int(value) => u64::try_from(*value).ok(),
            Const::Float(_) => None,
        };
        let param = contract.params.iter().position(|param| param.role == Role::Weight(0))?;
        let weight = &contract.params[param];
        let parts = match contract.shapes.get(&weight.name)?.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["N", "K"] => 1,
            ["2 * N", "K"] => 2,
            _ => return None,
        };
        let (k, n, bm, bn, bk) = (int("K")?, int("N")?, int("BM")?, int("BN")?, int("BK")?);
        let (threads, stages) = (u64::from(options.num_warps) * 32, u64::from(options.num_stages));
        let product = contract.grid == ["cdiv(rows, BM)", "cdiv(N, BN)"] && weight.elem.is_none();
        let loops = stages > 1 && k.min(n) > 0 && bm <= ROWS_MAX;
        if spec.act != Dtype::Bf16 || !product || !loops {
            return None;
        }
        let lines = 1 << ((bk * 2).div_ceil(LINE) * stages).checked_ilog2()?;
        Some(Ahead { param, parts, matrix: n, columns: bn, row: k * 2, lines: threads.min(lines), threads })
    }

    /// A thread has one line of every `threads / lines`-th row. Behind a matrix's last row and a row's last number it
    /// asks for these again: so no prefetch has a condition, for which the assembler might make a branch.
    fn ptx(&self, kernel: &str) -> String {
        let Ahead { param, parts, matrix, columns, row, lines, threads } = *self;
        let mut out = format!(
            "\t.reg .b32 \t%ahead_r<4>;\n\t.reg .b64 \t%ahead_rd<3>;\n\
             \tld.param.b64 \t%ahead_rd0, [{kernel}_param_{param}];\n\
             \tmov.u32 \t%ahead_r0, %tid.x;\n\
             \tmov.u32 \t%ahead_r1, %ctaid.y;\n\
             \tshr.u32 \t%ahead_r2, %ahead_r0, {};\n\
             \tmad.lo.s32 \t%ahead_r1, %ahead_r1, {columns}, %ahead_r2;\n\
             \tand.b32 \t%ahead_r0, %ahead_r0, {};\n\
             \tshl.b32 \t%ahead_r0, %ahead_r0, {};\n\
             \tmin.u32 \t%ahead_r0, %ahead_r0, {};\n\
             \tcvt.u64.u32 \t%ahead_rd1, %ahead_r0;\n\
             \tadd.s64 \t%ahead_rd0, %ahead_rd0, %ahead_rd1;\n",
            lines.ilog2(),
            lines - 1,
            LINE.ilog2(),
            row - 2,
        );
        for turn in 0..columns.div_ceil(threads / lines) {
            if turn > 0 {
                writeln!(out, "\tadd.s32 \t%ahead_r1, %ahead_r1, {};", threads / lines).ok();
            }
            writeln!(out, "\tmin.u32 \t%ahead_r3, %ahead_r1, {};", matrix - 1).ok();
            writeln!(out, "\tmad.wide.u32 \t%ahead_rd1, %ahead_r3, {row}, %ahead_rd0;").ok();
            for part in 0..parts {
                if part > 0 {
                    writeln!(out, "\tadd.s64 \t%ahead_rd1, %ahead_rd1, {};", matrix * row).ok();
                }
                writeln!(out, "\tprefetch.global.L2 \t[%ahead_rd1];").ok();
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vosti_kernels::{compile_options, contract, parse_stem};

    #[test]
    fn products_of_few_rows_ask_for_the_weights_that_their_stages_hold() {
        let of = |stem: &str| {
            let spec = parse_stem(stem).unwrap();
            let (contract, options) = (contract(&spec.kernel).unwrap(), compile_options("cuda-sm90", &spec).unwrap());
            let lines = Ahead::of(&spec, contract, options).map(|ahead| (ahead.param, ahead.parts, ahead.lines));
            (lines, start(&spec, contract, options, Arch::Sm90).matches("prefetch.global.L2").count())
        };
        // Eight stages of a line of 64 rows, by 128 threads; 16 stages; the power of two below five, of two matrices.
        assert_eq!(of("linear-bf16-BK64-BM16-BN64-K576-N960-SWAP1"), (Some((2, 1, 8)), 4));
        assert_eq!(of("linear_add-bf16-BK64-BM16-BN64-K576-N960-SCALE1.0-SWAP1").1, 8);
        assert_eq!(of("linear_glu-bf16-ACT0-BK64-BM16-BN64-K576-N1536-SWAP1"), (Some((2, 2, 4)), 4));
        // Many programs share the weights of a high tile; a norm's are few.
        assert_eq!(of("linear-bf16-BK64-BM128-BN128-K576-N960-SWAP1"), (None, 0));
        assert_eq!(of("rmsnorm-bf16-BH4096-BM1-EPS1e-5-H576"), (None, 0));
    }

    #[test]
    fn older_cards_begin_with_the_compilers_own_text() {
        let spec = parse_stem("rmsnorm-bf16-BH4096-BM1-EPS1e-5-H576").unwrap();
        let options = CompileOptions { num_warps: 16, num_stages: 1, descriptors: false };
        let of = |arch| start(&spec, contract(&spec.kernel).unwrap(), options, arch);
        assert_eq!((of(Arch::Sm89).as_str(), of(Arch::Sm120).as_str()), ("", WAITS));
    }
}
