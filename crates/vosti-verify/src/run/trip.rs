//! How often a loop runs, and its index in an iteration.

use vosti_tile::{Binary, Cast, Op, OpKind, Scalar, Value};

use super::{Def, Env, Eval, Run};
use crate::term::{Term, Terms};
use std::collections::HashSet;

/// A loop's range: `lo`, `lo + step`, .. below `hi`; `count` iterations.
#[derive(Clone, Copy, Debug)]
pub struct Trip {
    pub lo: Term,
    pub hi: Term,
    pub step: i128,
    pub count: Term,
}

impl<'k> Run<'k> {
    pub fn trip(&mut self, t: &mut Terms, op: &'k Op, env: &Env) -> Eval<Trip> {
        let OpKind::For { lo, hi, step, .. } = &op.kind else {
            return self.stop(op.line, "not a loop");
        };
        let (lo, hi) = (self.int(t, *lo, &[], env)?, self.int(t, *hi, &[], env)?);
        let Some(step) = self.constant(t, *step).filter(|s| *s > 0) else {
            return self.stop(op.line, "a loop's step is no positive constant");
        };
        let span = t.sub(hi, lo);
        let up = t.add_int(span, step - 1);
        let count = t.div(up, step);
        let zero = t.int(0);
        let count = t.max(zero, count);
        Ok(Trip { lo, hi, step, count })
    }

    /// Whether an integer is made of the launch's numbers and of constants alone: then each turn of a loop has the same.
    pub(super) fn fixed(&self, v: Value) -> bool {
        let (mut seen, mut left) = (HashSet::new(), vec![v]);
        while let Some(v) = left.pop() {
            let op = match self.def(v) {
                Def::Number(_) => continue,
                // Sign extension makes a true i1 into -1, and arithmetic on i1 wraps.
                Def::Op(op, _) if self.problem.kernel.ty(v).elem() != Scalar::I1 => op,
                _ => return false,
            };
            let plain = matches!(
                op.kind,
                OpKind::Constant { .. }
                    | OpKind::Splat { .. }
                    | OpKind::Broadcast { .. }
                    | OpKind::ExpandDims { .. }
                    | OpKind::Binary { op: Binary::Add | Binary::Sub | Binary::Mul, .. }
                    | OpKind::Cast { op: Cast::ExtS, .. }
            );
            if !plain {
                return false;
            }
            if seen.insert(v) {
                left.extend(op.kind.operands());
            }
        }
        true
    }

    pub(super) fn index_at(&mut self, t: &mut Terms, op: &'k Op, done: Term, env: &Env) -> Eval<Term> {
        let trip = self.trip(t, op, env)?;
        let moved = t.scale(done, trip.step);
        Ok(t.add(trip.lo, moved))
    }
}
