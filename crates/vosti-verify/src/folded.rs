//! One launch of attention that folds its own splits gives the bits of two: one that stores each split's partial results, and one
//! that folds them.
//!
//! Three pairs of runs show it, all of one text but for the second launch's, and each with a promise of its own:
//!
//! 1. F, which folds and stores as well (`USE` 3), and A, the first of two launches (`USE` 0): each split's partial results are
//!    equal, and so are the outputs of rows that see one split.
//! 2. F and B, the second launch: where F's cells of partial results are equal to those that B reads, the other rows' outputs
//!    are.
//! 3. F and the launch that folds and does not store (`USE` 2): the outputs of all rows are equal.
//!
//! A stores what B reads. So by 1 the premise of 2 holds, and by 3 nobody needs to launch F. The second pair has the rule below;
//! it is used nowhere else. `docs/kernel-verification.md` has the argument in full.

use crate::equal::At;
use crate::problem::Problem;
use crate::prover::{Prover, Side, Site};
use crate::run::Def;
use crate::term::Term;
use crate::verdict::Proof;
use vosti_contract::{HEIGHT, Role, Shape};
use vosti_tile::{Op, OpKind, Value};

/// Whether a text, its extents or its grid depend on how many rows a tile is given, which is another number in each launch.
pub(crate) fn reads_height(problem: &Problem) -> bool {
    problem.numbers.iter().position(|number| number.name == HEIGHT).is_some_and(|at| problem.reads(at))
}

impl<'k> Prover<'k, '_> {
    /// What is stored stays: F stores the left value in a cell of a partial result, nothing else stores there (`single-writer`),
    /// and the right value is B's load of a cell that the contract calls equal to it. False if the two are anything else.
    pub(crate) fn stored_part(&mut self, l: &At, r: &At) -> Proof<bool> {
        if self.runs[0].problem.shape != Shape::AttendFolded || self.runs[1].problem.shape != Shape::AttendCombine {
            return Ok(false);
        }
        let Def::Op(load, _) = self.runs[1].def(r.v) else { return Ok(false) };
        if !matches!(load.kind, OpKind::LoadBlock { .. }) {
            return Ok(false);
        }
        let read = self.access_at(Side::R, &site(load, r), &r.idx, false)?;
        let role = self.runs[1].problem.buffers[read.param].role;
        if !matches!(role, Role::Scratch(_)) {
            return Ok(false);
        }
        for (store, guard) in self.stores_of(role, l)? {
            let OpKind::StoreBlock { value, .. } = store.kind else { continue };
            let shape = self.runs[0].shape(value);
            let lanes = crate::integers::reshape(&mut self.t, self.runs[0].shape(l.v), &l.idx, shape);
            if !self.is_moved(&l.with(value, lanes.clone()), l)? {
                continue;
            }
            let written = self.access_at(Side::L, &Site { guard, ..site(store, l) }, &lanes, true)?;
            let (stored, seen) = (self.t.and(&written.guard), self.t.and(&read.guard));
            let (cell, words) = self.same_part((written.param, written.offset), (read.param, read.offset))?;
            let goal = self.t.and(&[stored, seen, cell]);
            return self.holds(goal, || format!("what one launch stores is what the other reads: {words}"));
        }
        Ok(false)
    }

    /// F's stores to the buffer of a role, in the iteration of a value, with the conditions under which they are made.
    fn stores_of(&mut self, role: Role, at: &At) -> Proof<Vec<(&'k Op, Vec<Term>)>> {
        let mut sites = vec![];
        let body: &'k [Op] = &self.runs[0].problem.kernel.body;
        let inner = at.env.loops.iter().try_fold(body, |ops, (index, _)| loop_of(ops, *index));
        let Some(inner) = inner else { return Ok(vec![]) };
        self.collect(Side::L, inner, &at.env, &[], &mut sites)?;
        let mut stores = vec![];
        for site in sites.into_iter().filter(|site| site.env == at.env) {
            if let Some(access) = self.access(Side::L, &site)?
                && access.write
                && self.runs[0].problem.buffers[access.param].role == role
            {
                stores.push((site.op, site.guard));
            }
        }
        Ok(stores)
    }

    /// Whether a lane of a value is a lane of another one, behind rearrangements.
    fn is_moved(&mut self, at: &At, wanted: &At) -> Proof<bool> {
        let mut at = at.clone();
        loop {
            if at.v == wanted.v {
                let pairs = at.idx.iter().zip(&wanted.idx);
                let same: Vec<Term> = pairs.map(|(x, y)| self.t.eq(*x, *y)).collect();
                let same = self.t.and(&same);
                return self.holds(same, || "it is stored in the lane at which it is compared".into());
            }
            let Def::Op(op, _) = self.runs[0].def(at.v) else { return Ok(false) };
            let Some((v, idx)) = self.runs[0].moved(&mut self.t, &op.kind, &at.idx) else { return Ok(false) };
            at = at.with(v, idx);
        }
    }
}

fn site<'k>(op: &'k Op, at: &At) -> Site<'k> {
    Site { op, env: at.env.clone(), guard: vec![] }
}

/// The body of the loop with this index among operations, branches included.
fn loop_of(ops: &[Op], index: Value) -> Option<&[Op]> {
    ops.iter().find_map(|op| match &op.kind {
        OpKind::For { index: own, body, .. } if *own == index => Some(&body.ops[..]),
        OpKind::If { .. } => op.kind.regions().into_iter().find_map(|region| loop_of(&region.ops, index)),
        _ => None,
    })
}
