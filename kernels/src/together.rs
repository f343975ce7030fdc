//! When one launch does the work of two ops.

use crate::spec::Binding;
use vosti_core::{Op, RowSet, Uses};

/// What a launch uses that does the work of a plain store and of the row-wise op after it, on the same rows of the same buffers. None
/// for any other two ops: the second must not see what the first writes, nor change what it reads.
pub fn together(first: &Op, second: &Op) -> Option<Uses> {
    let (first, second) = (first.uses(), second.uses());
    let stores = first.outputs.is_empty() && first.cache_written.as_ref().is_some_and(|write| write.back == 0);
    let rows = second.cache_read.is_none() && second.cache_written.is_none() && !second.tokens;
    let same = first.inputs == second.inputs && [first.rows, second.rows] == [RowSet::All; 2];
    let apart = second.outputs.iter().all(|out| !first.inputs.contains(out));
    (stores && rows && same && apart).then_some(Uses { outputs: second.outputs, ..first })
}

/// What the launches of each op use: those of an op alone; of an op whose launch does the work of the next one too, which has no
/// launches; or nothing, of that next op. Error: the index of an op without launches whose work the launch before cannot do.
pub fn launched(ops: &[Op], bindings: &[Binding]) -> Result<Vec<Option<Uses>>, usize> {
    let launches =
        |op: &Op| bindings.get(op.uses().binding as usize).is_none_or(|binding| !binding.launches.is_empty());
    let mut used: Vec<Option<Uses>> = Vec::with_capacity(ops.len());
    for (i, op) in ops.iter().enumerate() {
        if launches(op) {
            used.push(Some(op.uses()));
            continue;
        }
        let before = i.checked_sub(1).filter(|before| used[*before].is_some()).ok_or(i)?;
        used[before] = Some(together(&ops[before], op).ok_or(i)?);
        used.push(None);
    }
    Ok(used)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn rows(k: u32, ins: &[u32], outs: &[u32]) -> Op {
        Op::Rowwise { k, ins: ins.into(), outs: outs.into(), rows: RowSet::All }
    }

    fn store(ins: &[u32], back: u32) -> Op {
        Op::StoreKv { k: 0, ins: ins.into(), layer: 3, back }
    }

    /// Binding 0 has a launch, binding 1 none.
    fn bindings() -> Vec<Binding> {
        let spec = crate::examples().remove(0);
        let one = Binding::one(spec, BTreeMap::new());
        vec![one.clone(), Binding { launches: vec![], ..one }]
    }

    #[test]
    fn a_plain_store_and_rows_of_the_same_buffers_are_one_launch() {
        let ops = [rows(0, &[0], &[1]), store(&[1], 0), rows(1, &[1], &[2]), rows(0, &[2], &[1])];
        let used = launched(&ops, &bindings()).unwrap();
        let both = used[1].as_ref().unwrap();
        assert_eq!(
            (&both.inputs[..], &both.outputs[..], both.cache_written.as_ref().unwrap().layer),
            (&[1][..], &[2][..], 3)
        );
        assert!(used[0] == Some(ops[0].uses()) && used[2].is_none() && used[3] == Some(ops[3].uses()));
    }

    #[test]
    fn nothing_else_is() {
        let mine = |mut ops: Vec<Op>| {
            ops.insert(0, rows(0, &[5], &[1]));
            launched(&ops, &bindings()).unwrap_err() - 1
        };
        let (after, selected) = (rows(1, &[1], &[2]), |ins: &[u32]| Op::Rowwise {
            k: 1,
            ins: ins.into(),
            outs: vec![2],
            rows: RowSet::Selected,
        });
        assert_eq!(mine(vec![store(&[1], 64), after.clone()]), 1, "the store looks back");
        assert_eq!(mine(vec![store(&[1], 0), rows(1, &[3], &[2])]), 1, "other inputs");
        assert_eq!(mine(vec![store(&[1], 0), rows(1, &[1], &[2, 1])]), 1, "it writes what the store reads");
        assert_eq!(mine(vec![store(&[1], 0), selected(&[1])]), 1, "other rows");
        assert_eq!(mine(vec![rows(0, &[1], &[2]), after.clone()]), 1, "no store");
        assert_eq!(mine(vec![store(&[1], 0), rows(0, &[1], &[4]), after.clone()]), 2, "not the op before");
        assert_eq!(mine(vec![store(&[1], 0), after.clone(), after.clone()]), 2, "three in one");
        let attend = Op::Attend { k: 1, q: 1, layer: 3, out: 2, window: None };
        assert_eq!(mine(vec![store(&[1], 0), attend]), 1, "it reads what the store writes");
        let stored = Op::StoreKv { k: 1, ins: vec![1], layer: 4, back: 0 };
        assert_eq!(mine(vec![store(&[1], 0), stored]), 1, "two stores");
        assert_eq!(launched(&[after], &bindings()), Err(0), "the first op");
    }
}
