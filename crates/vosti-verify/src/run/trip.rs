//! How often a loop runs, and its index in an iteration.

use vosti_tile::{Op, OpKind};

use super::{Env, Eval, Run};
use crate::term::{Term, Terms};

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

    pub(super) fn index_at(&mut self, t: &mut Terms, op: &'k Op, done: Term, env: &Env) -> Eval<Term> {
        let trip = self.trip(t, op, env)?;
        let moved = t.scale(done, trip.step);
        Ok(t.add(trip.lo, moved))
    }
}
