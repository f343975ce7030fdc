//! The row buffers that a program makes of its logits for the sampler, found by which op reads which buffer.

use crate::error::WiringError;
use vosti_core::{BufferDecl, Dtype, Op, Program, RowSet, StepPlan, Token, Uses};

/// The row buffers that a program makes of its logits, each written by one op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outputs {
    /// The best token of each selected row, as a number.
    pub best: usize,
    /// Lists of the largest logits, if the program computes them.
    pub lists: Option<Lists>,
}

/// The largest logits of each selected row in order, and the tokens that have them, as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lists {
    /// The row buffer of the logits.
    pub logits: usize,
    /// The row buffer of the tokens.
    pub tokens: usize,
    /// Logits of a row's list.
    pub most: usize,
    /// The indices of the two ops that only make lists.
    pub ops: [usize; 2],
}

impl Lists {
    /// Reads the lists that a step wanted into `lists`, one for each selected row, from the two row buffers: logits, and tokens
    /// as numbers. A row of a sequence that wants no list has an empty one. A number that is no token of the vocabulary is left
    /// out.
    pub fn read(&self, plan: &StepPlan, [logits, tokens]: [&[f32]; 2], vocab: u32, lists: &mut Vec<Vec<(Token, f32)>>) {
        lists.iter_mut().for_each(Vec::clear);
        lists.resize_with(lists.len().max(plan.selected().len()), Vec::new);
        for s in plan.sequences().iter().filter(|s| s.top) {
            let rows = s.first_selected..s.first_selected + s.selected;
            for (list, row) in lists[rows.clone()].iter_mut().zip(rows) {
                let at = row * self.most..(row + 1) * self.most;
                list.extend(listed_tokens(&logits[at.clone()], &tokens[at], vocab));
            }
        }
    }
}

fn listed_tokens(logits: &[f32], tokens: &[f32], vocab: u32) -> impl Iterator<Item = (Token, f32)> {
    // Tokens are whole numbers that FP32 holds exactly. The cast takes NaN and negative numbers for 0, and infinity for the
    // largest number.
    let token = move |x: f32| Some(x as Token).filter(|token| x >= 0.0 && x.fract() == 0.0 && *token < vocab);
    tokens.iter().zip(logits).filter_map(move |(x, logit)| Some((token(*x)?, *logit)))
}

/// Finds the outputs by which op reads which buffer. One op reads only the logits and writes one number for each row, the best
/// token. If a second op reads the logits, it writes two buffers of candidates; one op reads only these and writes the lists.
/// [`WiringError::Outputs`] for any other program.
pub fn outputs(program: &Program) -> Result<Outputs, WiringError> {
    let (mut best, mut lists) = (None, None);
    for (op, outs) in readers(program, &[program.logits])? {
        if outs.len() == 1 && best.is_none() && width(program, &outs)? == 1 {
            best = Some(outs[0] as usize);
        } else if outs.len() == 2 && lists.is_none() {
            width(program, &outs)?;
            let [(second, found)] = &readers(program, &outs)?[..] else { return Err(WiringError::Outputs) };
            let &[logits, tokens] = &found[..] else { return Err(WiringError::Outputs) };
            // Lists are not computed in every step, so no op may read them.
            if !readers(program, found)?.is_empty() {
                return Err(WiringError::Outputs);
            }
            let most = width(program, found)? as usize;
            lists = Some(Lists { logits: logits as usize, tokens: tokens as usize, most, ops: [op, *second] });
        } else {
            return Err(WiringError::Outputs);
        }
    }
    Ok(Outputs { best: best.ok_or(WiringError::Outputs)?, lists })
}

/// The ops that read any of these buffers, each with the buffers that it writes. An error unless they all compute selected rows
/// and read exactly these buffers.
fn readers(program: &Program, buffers: &[u32]) -> Result<Vec<(usize, Vec<u32>)>, WiringError> {
    let used = program.ops.iter().map(Op::uses).enumerate();
    let found = used.filter(|(_, op)| op.inputs.iter().any(|input| buffers.contains(input)));
    let alone = |(i, op): (usize, Uses)| match op.rows == RowSet::Selected && op.inputs == buffers {
        true => Ok((i, op.outputs)),
        false => Err(WiringError::Outputs),
    };
    found.map(alone).collect()
}

/// The width that these buffers share. An error unless each holds FP32 numbers of selected rows and is written by one op.
fn width(program: &Program, buffers: &[u32]) -> Result<u32, WiringError> {
    let decl = |buffer: &u32| program.buffers[*buffer as usize];
    let width = buffers.first().map(|buffer| decl(buffer).width).ok_or(WiringError::Outputs)?;
    let right = |buffer: &u32| {
        let writers = program.ops.iter().filter(|op| op.uses().outputs.contains(buffer)).count();
        let numbers = BufferDecl { width, dtype: Dtype::F32, rows: RowSet::Selected };
        decl(buffer) == numbers && writers == 1
    };
    if buffers.iter().all(right) { Ok(width) } else { Err(WiringError::Outputs) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vosti_core::{GroupDecl, LayerDecl};

    /// Logits, best tokens, candidates and lists.
    fn program() -> Program {
        let buffer = |width| BufferDecl { width, dtype: Dtype::F32, rows: RowSet::Selected };
        let row = |ins: &[u32], outs: &[u32]| Op::Rowwise {
            k: 0,
            ins: ins.into(),
            outs: outs.into(),
            rows: RowSet::Selected,
        };
        Program {
            ops: vec![row(&[6], &[0]), row(&[0], &[1]), row(&[0], &[2, 3]), row(&[2, 3], &[4, 5])],
            buffers: [9, 1, 8, 8, 4, 4, 2].map(buffer).to_vec(),
            groups: vec![GroupDecl { window: None, entry: vec![], state: vec![] }],
            layers: vec![LayerDecl { group: 0 }],
            logits: 0,
            vocab: 9,
            context: 64,
            kernels: 1,
        }
    }

    #[test]
    fn outputs_are_found_by_who_reads_whom() {
        let lists = Lists { logits: 4, tokens: 5, most: 4, ops: [2, 3] };
        assert_eq!(outputs(&program()).unwrap(), Outputs { best: 1, lists: Some(lists) });
        let refused = |change: fn(&mut Program)| {
            let mut program = program();
            change(&mut program);
            assert!(outputs(&program).is_err(), "{:?}", program.ops);
        };
        refused(|p| drop(p.ops.remove(1)));
        refused(|p| p.ops.push(p.ops[1].clone()));
        refused(|p| p.ops.push(p.ops[2].clone()));
        refused(|p| p.ops.push(p.ops[3].clone()));
        refused(|p| p.ops.truncate(3));
        refused(|p| {
            p.buffers.push(p.buffers[4]);
            p.ops.push(Op::Rowwise { k: 0, ins: [4, 5].into(), outs: [7].into(), rows: RowSet::Selected });
        });
        refused(|p| p.buffers[1].width = 2);
        refused(|p| p.buffers[3].width = 7);
        refused(|p| p.buffers[5].width = 3);
        refused(|p| p.buffers[5].dtype = Dtype::Bf16);
        refused(|p| p.buffers[4].rows = RowSet::All);
        let mut program = program();
        program.ops.truncate(2);
        assert_eq!(outputs(&program).unwrap(), Outputs { best: 1, lists: None });
    }

    #[test]
    fn what_stands_for_no_token_is_not_in_a_list() {
        let list: Vec<_> = listed_tokens(&[2.0, 1.0, f32::NEG_INFINITY], &[7.0, 0.0, 16_777_216.0], 9).collect();
        assert_eq!(list, [(7, 2.0), (0, 1.0)]);
        assert_eq!(listed_tokens(&[0.0; 3], &[9.0, 8.0, f32::INFINITY], 9).collect::<Vec<_>>(), [(8, 0.0)]);
        let no_tokens =
            [f32::NAN, -f32::NAN, -1.0, f32::NEG_INFINITY, -1e-40, 0.5, f32::INFINITY, f32::MAX, 4_294_967_296.0];
        assert_eq!(listed_tokens(&[0.0; 9], &no_tokens, u32::MAX).count(), 0);
    }
}
