//! What draws tokens behind a program.

use vosti_core::{BufferDecl, Op, Program};

/// Ops that draw a token from each selected row of a program's logits, by numbers of the row's request. They are no part of the
/// program: what an op of a program computes is a function of the history, and these numbers are not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draws {
    /// Buffers beside the program's, numbered on from them.
    pub buffers: Vec<BufferDecl>,
    /// The ops, in order. Their bindings stand behind those of the program's ops.
    pub ops: Vec<Op>,
    /// The buffers of the numbers, which no op writes: `scale`, `part` and `within` of a [`vosti_core::Draw`].
    pub numbers: [u32; 3],
    /// The buffer of the drawn tokens, as FP32 numbers.
    pub tokens: u32,
}

impl Draws {
    /// The program with these ops behind its own.
    pub fn behind(&self, program: &Program) -> Program {
        let buffers = [&program.buffers[..], &self.buffers].concat();
        Program { ops: [&program.ops[..], &self.ops].concat(), buffers, ..program.clone() }
    }

    /// Whether the ops leave everything of the program as it is: they write only their own buffers, and not the numbers.
    pub fn leave_alone(&self, program: &Program) -> bool {
        let own = program.buffers.len()..program.buffers.len() + self.buffers.len();
        let written = |buffer: &u32| own.contains(&(*buffer as usize)) && !self.numbers.contains(buffer);
        let used = self.ops.iter().map(Op::uses);
        used.into_iter().all(|op| op.cache_written.is_none() && op.outputs.iter().all(written))
            && self.numbers.iter().chain([&self.tokens]).all(|buffer| own.contains(&(*buffer as usize)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vosti_core::{Dtype, GroupDecl, LayerDecl, RowSet};

    fn buffer(width: u32) -> BufferDecl {
        BufferDecl { width, dtype: Dtype::F32, rows: RowSet::Selected }
    }

    fn row(ins: &[u32], outs: &[u32]) -> Op {
        Op::Rowwise { k: 0, ins: ins.into(), outs: outs.into(), rows: RowSet::Selected }
    }

    /// Logits of nine tokens, and the best token.
    fn program() -> Program {
        Program {
            ops: vec![row(&[2], &[0]), row(&[0], &[1])],
            buffers: [9, 1, 4].map(buffer).to_vec(),
            groups: vec![GroupDecl { window: None, entry: vec![], state: vec![] }],
            layers: vec![LayerDecl { group: 0 }],
            logits: 0,
            vocab: 9,
            context: 64,
            kernels: 1,
        }
    }

    fn draws() -> Draws {
        Draws {
            buffers: [1, 1, 1, 2, 1].map(buffer).to_vec(),
            ops: vec![row(&[0, 3, 5], &[6]), row(&[6, 4], &[7])],
            numbers: [3, 4, 5],
            tokens: 7,
        }
    }

    #[test]
    fn draws_stand_behind_the_program() {
        let (program, draws) = (program(), draws());
        let whole = draws.behind(&program);
        assert_eq!(whole.ops, [&program.ops[..], &draws.ops].concat());
        assert_eq!(whole.buffers, [9, 1, 4, 1, 1, 1, 2, 1].map(buffer));
        assert_eq!(Program { ops: program.ops.clone(), buffers: program.buffers.clone(), ..whole }, program);
    }

    #[test]
    fn draws_that_touch_more_than_their_own_buffers_are_seen() {
        assert!(draws().leave_alone(&program()));
        let touches = |change: fn(&mut Draws)| {
            let mut draws = draws();
            change(&mut draws);
            assert!(!draws.leave_alone(&program()), "{draws:?}");
        };
        // A buffer of the program, one of the numbers, one that is not there.
        for outs in [0, 1, 2, 3, 4, 5, 8] {
            let mut draws = draws();
            draws.ops.push(row(&[0], &[6, outs]));
            assert!(!draws.leave_alone(&program()), "an op writes buffer {outs}");
        }
        touches(|draws| draws.ops.insert(0, Op::Embed { k: 0, out: 2 }));
        touches(|draws| draws.ops.push(Op::StoreKv { k: 0, ins: vec![0], layer: 0, back: 0 }));
        touches(|draws| draws.ops.push(Op::Attend { k: 0, q: 0, layer: 0, out: 1, window: None }));
        touches(|draws| draws.numbers[1] = 2);
        touches(|draws| draws.numbers[2] = 8);
        touches(|draws| draws.tokens = 1);
        touches(|draws| draws.tokens = 8);
    }
}
