//! Forward facts about float values: what a masked lane is known to hold, and what is finite.
//!
//! IEEE arithmetic only: -inf minus anything is -inf or NaN; exp of that is +0 or NaN. Never `x * 0 = 0`.

use crate::equal::At;
use crate::prover::{Prover, Side};
use crate::run::Def;
use crate::term::Term;
use crate::verdict::{Assumption, Proof};
use vosti_tile::{Binary, Cast, Literal, OpKind, Unary};

/// What is known of one float.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// +0
    Zero,
    ZeroOrNan,
    One,
    NegInf,
    NegInfOrNan,
    Unknown,
}

impl Class {
    fn join(self, other: Class) -> Class {
        use Class::*;
        match (self, other) {
            (a, b) if a == b => a,
            (Zero | ZeroOrNan, Zero | ZeroOrNan) => ZeroOrNan,
            (NegInf | NegInfOrNan, NegInf | NegInfOrNan) => NegInfOrNan,
            _ => Unknown,
        }
    }
}

impl Prover<'_, '_> {
    /// The class of a value under the present assumptions.
    pub fn class(&mut self, side: Side, at: &At) -> Proof<Class> {
        // The class of one value at one place depends on the assumptions too, so they belong to the key.
        let key = (side, at.clone(), self.context.clone());
        if let Some(known) = self.classes.get(&key) {
            return Ok(*known);
        }
        if !self.t.budget.spend(1) {
            return Ok(Class::Unknown);
        }
        let class = self.class_fresh(side, at)?;
        self.classes.insert(key, class);
        Ok(class)
    }

    fn class_fresh(&mut self, side: Side, at: &At) -> Proof<Class> {
        let Def::Op(op, _) = self.runs[side.index()].def(at.v) else {
            return Ok(Class::Unknown);
        };
        if let Some((x, idx)) = self.runs[side.index()].moved(&mut self.t, &op.kind, &at.idx) {
            return self.class(side, &at.with(x, idx));
        }
        Ok(match &op.kind {
            OpKind::Constant { value: Literal::Float(bits), .. } => match f32::from_bits(*bits) {
                x if x.to_bits() == 0 => Class::Zero,
                x if x.to_bits() == 1f32.to_bits() => Class::One,
                x if x == f32::NEG_INFINITY => Class::NegInf,
                _ => Class::Unknown,
            },
            OpKind::Select { cond, a, b } => {
                let idx = if self.runs[side.index()].shape(*cond).is_empty() { vec![] } else { at.idx.clone() };
                let (run, t) = self.run(side);
                let cond = run.int(t, *cond, &idx, &at.env)?;
                let not = self.t.not(cond);
                if self.holds(cond, || "a select takes its first value here".into())? {
                    return self.class(side, &at.same_lane(*a));
                }
                if self.holds(not, || "a select takes its second value here".into())? {
                    return self.class(side, &at.same_lane(*b));
                }
                let a = self.class(side, &at.same_lane(*a))?;
                a.join(self.class(side, &at.same_lane(*b))?)
            }
            OpKind::Cast { op: Cast::ExtF | Cast::TruncF, x, .. } => self.class(side, &at.same_lane(*x))?,
            OpKind::Binary { op: Binary::SubF, a, .. } => match self.class(side, &at.same_lane(*a))? {
                Class::NegInf | Class::NegInfOrNan => Class::NegInfOrNan,
                _ => Class::Unknown,
            },
            OpKind::Unary { op: Unary::Exp | Unary::Exp2, x } => {
                let class = match self.class(side, &at.same_lane(*x))? {
                    Class::NegInf => Class::Zero,
                    Class::NegInfOrNan => Class::ZeroOrNan,
                    _ => Class::Unknown,
                };
                if class != Class::Unknown {
                    self.assumptions.insert(Assumption::ExpOfMinusInfinity);
                }
                class
            }
            _ => Class::Unknown,
        })
    }

    /// True if a value is finite under the present assumptions.
    pub fn finite(&mut self, side: Side, at: &At) -> Proof<bool> {
        if !self.t.budget.spend(1) {
            return Ok(false);
        }
        let Def::Op(op, _) = self.runs[side.index()].def(at.v) else {
            return Ok(false);
        };
        if let Some((x, idx)) = self.runs[side.index()].moved(&mut self.t, &op.kind, &at.idx) {
            return self.finite(side, &at.with(x, idx));
        }
        Ok(match &op.kind {
            OpKind::Constant { value: Literal::Float(bits), .. } => f32::from_bits(*bits).is_finite(),
            OpKind::Cast { op: Cast::ExtF, x, .. } => self.finite(side, &at.same_lane(*x))?,
            // Rounding to BF16 may make a finite number infinite, but not one that is at most the largest BF16.
            OpKind::Cast { op: Cast::TruncF, x, .. } => self.small(side, &at.same_lane(*x)),
            // Each value needs to be finite only where it is taken: a load without `other` is, where its mask is set.
            OpKind::Select { cond, a, b } => {
                let idx = if self.runs[side.index()].shape(*cond).is_empty() { vec![] } else { at.idx.clone() };
                let (run, t) = self.run(side);
                let cond = run.int(t, *cond, &idx, &at.env)?;
                let not = self.t.not(cond);
                self.where_true(cond, |p| p.finite(side, &at.same_lane(*a)))?
                    && self.where_true(not, |p| p.finite(side, &at.same_lane(*b)))?
            }
            // Every slot of the cache is finite: an invariant of the core.
            OpKind::LoadBlock { ptr, padding, check } => {
                let (run, t) = self.run(side);
                let block = run.block(t, *ptr, &at.env)?;
                let padded = check.is_empty() || *padding == vosti_tile::Padding::Zero;
                padded && self.is_cache(side, block.param)
            }
            OpKind::Load { ptr, mask, other } => {
                let (run, t) = self.run(side);
                let address = run.address(t, *ptr, &at.idx, &at.env)?;
                let rest = match (mask, other) {
                    (None, _) => true,
                    (Some(_), Some(o)) => self.finite(side, &at.same_lane(*o))?,
                    (Some(m), None) => {
                        let (run, t) = self.run(side);
                        let read = run.int(t, *m, &at.idx, &at.env)?;
                        self.holds(read, || "a masked load without another value reads here".into())?
                    }
                };
                rest && self.is_cache(side, address.param)
            }
            _ => false,
        })
    }

    /// The result of `body` under `condition`; true if the condition is false everywhere.
    fn where_true(&mut self, condition: Term, body: impl FnOnce(&mut Self) -> Proof<bool>) -> Proof<bool> {
        if self.t.as_bool(condition) == Some(false) {
            return Ok(true);
        }
        let len = self.context.len();
        self.context.push(condition);
        let result = body(self);
        self.context.truncate(len);
        result
    }

    /// True if a value's magnitude is at most the largest finite BF16, whatever the inputs: it is what
    /// `where(abs(x) <= LARGEST, x, small)` gives. Such a value stays finite when it is rounded to BF16.
    pub fn small(&mut self, side: Side, at: &At) -> bool {
        if !self.t.budget.spend(1) {
            return false;
        }
        const LARGEST: f32 = f32::from_bits(0x7f7f_0000);
        let Def::Op(op, _) = self.runs[side.index()].def(at.v) else {
            return false;
        };
        if let Some((x, idx)) = self.runs[side.index()].moved(&mut self.t, &op.kind, &at.idx) {
            return self.small(side, &at.with(x, idx));
        }
        match &op.kind {
            OpKind::Constant { value: Literal::Float(bits), .. } => f32::from_bits(*bits).abs() <= LARGEST,
            OpKind::Cast { op: Cast::ExtF | Cast::TruncF, x, .. } => self.small(side, &at.same_lane(*x)),
            OpKind::Select { cond, a, b } => {
                let guarded = self.guards(side, *cond, *a, LARGEST) || self.small(side, &at.same_lane(*a));
                guarded && self.small(side, &at.same_lane(*b))
            }
            _ => false,
        }
    }

    /// True if `cond` is the ordered comparison `abs(x) <= c` or `abs(x) < c` with a constant c up to `limit`.
    fn guards(&mut self, side: Side, cond: vosti_tile::Value, x: vosti_tile::Value, limit: f32) -> bool {
        use vosti_tile::CmpFloat;
        let run = &self.runs[side.index()];
        let Def::Op(compare, _) = run.def(cond) else {
            return false;
        };
        let OpKind::CmpFloat { op: CmpFloat::Ole | CmpFloat::Olt, a, b } = compare.kind else {
            return false;
        };
        let absolute = matches!(run.def(a), Def::Op(op, _) if op.kind == (OpKind::Unary { op: Unary::Abs, x }));
        let constant = match run.def(b) {
            Def::Op(op, _) => match op.kind {
                OpKind::Constant { value: Literal::Float(bits), .. } => f32::from_bits(bits) <= limit,
                _ => false,
            },
            _ => false,
        };
        absolute && constant
    }

    fn is_cache(&self, side: Side, param: usize) -> bool {
        self.runs[side.index()].problem.buffers[param].role.is_cache()
    }
}
