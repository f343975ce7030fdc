//! The backward rules: two values at two lanes, one of each run, are bitwise equal.
//!
//! Each rule says which operand lanes must agree. Floating-point operations stay uninterpreted: same
//! operation, same parameters, equal operands, equal result (up to NaN payload). The only weaker
//! relation is [`Mode::UpToZeroSign`], and only the rules that name it may use it. Loops are in
//! [`crate::loops`], memory in [`crate::memory`].

use crate::facts::Class;
use crate::memo::Goals;
use crate::problem::Problem;
use crate::prover::{Prover, Side};
use crate::run::{Def, Env};
use crate::term::Term;
use crate::verdict::{Assumption, Obligation, Proof, Trouble};
use std::collections::HashSet;
use vosti_tile::{Binary, Cast, Line, Literal, Op, OpKind, Value};

/// How equal two values must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// +0 and -0 count as equal.
    UpToZeroSign,
    Exact,
}

/// A value of one run at a lane.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct At {
    pub v: Value,
    pub idx: Vec<Term>,
    pub env: Env,
}

impl At {
    pub fn new(v: Value, idx: Vec<Term>, env: &Env) -> At {
        At { v, idx, env: env.clone() }
    }
    pub fn with(&self, v: Value, idx: Vec<Term>) -> At {
        At::new(v, idx, &self.env)
    }
    pub fn same_lane(&self, v: Value) -> At {
        self.with(v, self.idx.clone())
    }
}

/// A proved goal: two values, the mode, and the assumptions under which they are equal.
pub type Goal = (At, At, Mode, Vec<Term>);

/// How a loop-carried value is related on one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AxisRelation {
    /// Every lane with the same lane.
    Same,
    /// One lane of the left with one of the right.
    Pinned(Term, Term),
}

/// "These arguments of the loops are equal at these lanes": induction hypothesis and goal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    pub k: [usize; 2],
    pub axes: Vec<AxisRelation>,
    pub mode: Mode,
}

/// A pair of loops whose bodies are being compared.
pub struct Frame {
    pub index: [Value; 2],
    pub iteration: [Term; 2],
    pub demands: Vec<Demand>,
    /// Goals proved of the body under the demands. The demands are hypotheses until the induction closes, so these goals are
    /// never used after the loop.
    pub(crate) proved: Goals,
    /// Variables made later belong to the body.
    pub floor: u32,
}

impl<'k> Prover<'k, '_> {
    pub fn equal(&mut self, l: &At, r: &At, mode: Mode) -> Proof {
        self.work()?;
        if self.known(l, r, mode) || self.equal_without_cases(l, r, mode)? {
            return Ok(());
        }
        self.equal_fresh(l, r, mode)?;
        self.remember(l, r, mode);
        Ok(())
    }

    pub(crate) fn equal_fresh(&mut self, l: &At, r: &At, mode: Mode) -> Proof {
        let ty = self.runs[0].problem.kernel.ty(l.v).clone();
        let other = self.runs[1].problem.kernel.ty(r.v).clone();
        let line = self.runs[0].line(l.v);
        // A lane has a coordinate on each axis: with fewer it would stand for a whole row of lanes.
        let lanes = [(&ty, l), (&other, r)].iter().all(|(ty, at)| ty.shape().len() == at.idx.len());
        if ty.elem() != other.elem() || !ty.is_tile() || !other.is_tile() || !lanes {
            return self.fail(Obligation::Alignment, line, format!("one run computes {ty}, the other {other}"));
        }
        if ty.elem().is_int() {
            return self.equal_ints(l, r, mode);
        }
        self.equal_structure(l, r, mode)
    }

    /// Integers are compared by the solver, and by structure if it does not prove them equal.
    fn equal_ints(&mut self, l: &At, r: &At, mode: Mode) -> Proof {
        let a = self.runs[0].int(&mut self.t, l.v, &l.idx, &l.env)?;
        let b = self.runs[1].int(&mut self.t, r.v, &r.idx, &r.env)?;
        let same = self.t.eq(a, b);
        let line = self.runs[0].line(l.v);
        if self.holds(same, || "an integer is the same in both runs".into())? {
            return Ok(());
        }
        let leaf = match self.runs[0].def(l.v) {
            // Integers of an input or a weight are data, as floats are; those of metadata are known to the solver.
            Def::Op(op, _) if matches!(op.kind, OpKind::LoadBlock { .. }) => false,
            Def::Op(op, _) => op.kind.operands().is_empty() || op.kind.touches_memory(),
            _ => false,
        };
        if leaf {
            return self.fail(Obligation::Guard, line, "an integer or a mask may differ between the two runs");
        }
        // The message names the line where the difference matters, not the line that it comes from.
        match self.equal_structure(l, r, mode) {
            Err(Trouble::Failed(mut f)) if f.obligation == Obligation::Guard && line.ttir > 0 => {
                (f.ttir_line, f.python_line) = (Some(line.ttir), line.python);
                Err(Trouble::Failed(f))
            }
            other => other,
        }
    }

    fn equal_structure(&mut self, l: &At, r: &At, mode: Mode) -> Proof {
        if self.stored_part(l, r)? {
            return Ok(());
        }
        match (self.runs[0].def(l.v), self.runs[1].def(r.v)) {
            (Def::Op(a, i), Def::Op(b, j)) => match (&a.kind, &b.kind) {
                (OpKind::For { .. }, OpKind::For { .. }) => self.equal_loops((a, i, l), (b, j, r), mode),
                (OpKind::If { .. }, OpKind::If { .. }) => self.equal_branches((a, i, l), (b, j, r), mode),
                _ => self.equal_ops(a, l, b, r, mode),
            },
            (Def::Arg(a, i), Def::Arg(b, j)) => self.equal_args((a, i, l), (b, j, r), mode),
            (Def::Number(i), Def::Number(j)) if self.one_number(i, j) => Ok(()),
            _ => {
                if let Some((l, r)) = self.decided(l, r)? {
                    return self.equal(&l, &r, mode);
                }
                let line = self.runs[0].line(l.v);
                self.fail(Obligation::Alignment, line, "the runs compute this by different operations")
            }
        }
    }

    /// Both runs belong to one deployment, so a number has one value: but for the one that chooses what each run is. `compatible`
    /// has compared their ranges.
    fn one_number(&self, i: usize, j: usize) -> bool {
        let [l, r] = [&self.runs[0].problem, &self.runs[1].problem];
        let value = |problem: &Problem, at: usize| problem.chosen_use.filter(|(place, _)| *place == at);
        l.numbers[i].name == r.numbers[j].name && value(l, i).map(|(_, use_)| use_) == value(r, j).map(|(_, use_)| use_)
    }

    /// If one side is a select or a branch whose condition follows from the assumptions, it *is* the value that it takes: the
    /// pair with that value in its place.
    fn decided(&mut self, l: &At, r: &At) -> Proof<Option<(At, At)>> {
        if let Some(taken) = self.taken(Side::L, l)? {
            return Ok(Some((taken, r.clone())));
        }
        Ok(self.taken(Side::R, r)?.map(|taken| (l.clone(), taken)))
    }

    pub(crate) fn taken(&mut self, side: Side, at: &At) -> Proof<Option<At>> {
        let Def::Op(op, result) = self.runs[side.index()].def(at.v) else {
            return Ok(None);
        };
        let (cond, yes, no) = match &op.kind {
            OpKind::Select { cond, a, b } => (*cond, *a, *b),
            OpKind::If { cond, then, otherwise } => (*cond, then.yields[result], otherwise.yields[result]),
            _ => return Ok(None),
        };
        let idx = if self.runs[side.index()].shape(cond).is_empty() { vec![] } else { at.idx.clone() };
        let (run, t) = self.run(side);
        let cond = run.int(t, cond, &idx, &at.env)?;
        if self.holds(cond, || "a choice takes its first value here".into())? {
            return Ok(Some(at.same_lane(yes)));
        }
        let not = self.t.not(cond);
        let second = self.holds(not, || "a choice takes its second value here".into())?;
        Ok(second.then(|| at.same_lane(no)))
    }

    fn different<T>(&self, a: &Op, b: &Op) -> Proof<T> {
        let name = |op: &Op| {
            let text = format!("{:?}", op.kind);
            text.split([' ', '{', '(']).next().unwrap_or("?").to_string()
        };
        let why = format!(
            "the runs compute this by different operations: {} (TTIR line {}) and {} (TTIR line {})",
            name(a),
            a.line.ttir,
            name(b),
            b.line.ttir
        );
        self.fail(Obligation::Alignment, a.line, why)
    }

    fn equal_ops(&mut self, a: &'k Op, l: &At, b: &'k Op, r: &At, mode: Mode) -> Proof {
        let left = self.runs[0].moved(&mut self.t, &a.kind, &l.idx);
        let right = self.runs[1].moved(&mut self.t, &b.kind, &r.idx);
        match (left, right) {
            (Some((x, i)), Some((y, j))) => return self.equal(&l.with(x, i), &r.with(y, j), mode),
            (Some((x, i)), None) => return self.equal(&l.with(x, i), r, mode),
            (None, Some((y, j))) => return self.equal(l, &r.with(y, j), mode),
            (None, None) => {}
        }
        match (&a.kind, &b.kind) {
            (OpKind::Constant { value: x, .. }, OpKind::Constant { value: y, .. }) => {
                if x == y {
                    return Ok(());
                }
                self.fail(Obligation::Alignment, a.line, format!("the constants differ: {x:?} and {y:?}"))
            }
            (OpKind::Binary { op, a: x, b: y }, OpKind::Binary { op: o, a: u, b: w }) if op == o => {
                self.assume(Assumption::ElementwiseUniform);
                self.equal_binary(*op, [(*x, *u), (*y, *w)], l, r, mode)
            }
            (OpKind::Cast { op, x, to }, OpKind::Cast { op: o, x: y, to: u }) if (op, to) == (o, u) => {
                if *op == Cast::Bits {
                    return self.fail(Obligation::Subset, a.line, "a bitcast sees NaN payloads");
                }
                let keeps = matches!(op, Cast::ExtF | Cast::TruncF);
                let mode = if keeps { mode } else { Mode::Exact };
                self.assume(Assumption::ElementwiseUniform);
                self.equal(&l.same_lane(*x), &r.same_lane(*y), mode)
            }
            (OpKind::Select { .. }, OpKind::Select { .. }) => self.equal_select(a, l, b, r, mode),
            (OpKind::Load { .. } | OpKind::LoadBlock { .. }, OpKind::Load { .. } | OpKind::LoadBlock { .. }) => {
                self.equal_loads(a, l, b, r)
            }
            (OpKind::Dot { .. }, OpKind::Dot { .. }) => self.equal_dot(a, l, b, r, mode),
            (OpKind::Reduce { .. }, OpKind::Reduce { .. }) => self.equal_reduce(a, l, b, r),
            (OpKind::Poison { .. }, _) | (_, OpKind::Poison { .. }) => {
                self.fail(Obligation::Undefined, a.line, "an arbitrary value reaches the output")
            }
            (x, y) if same_elementwise(x, y) => {
                self.assume(Assumption::ElementwiseUniform);
                let (xs, ys) = (x.operands(), y.operands());
                for (x, y) in xs.into_iter().zip(ys) {
                    self.equal(&l.same_lane(x), &r.same_lane(y), Mode::Exact)?;
                }
                Ok(())
            }
            _ => match self.decided(l, r)? {
                Some((l, r)) => self.equal(&l, &r, mode),
                None => self.different(a, b),
            },
        }
    }

    fn assume(&mut self, assumption: Assumption) {
        self.assumptions.insert(assumption);
    }

    fn equal_binary(&mut self, op: Binary, pairs: [(Value, Value); 2], l: &At, r: &At, mode: Mode) -> Proof {
        use Mode::*;
        let modes = match (op, mode) {
            (Binary::AddF | Binary::SubF | Binary::MulF, UpToZeroSign) => [UpToZeroSign, UpToZeroSign],
            (Binary::DivF, UpToZeroSign) => [UpToZeroSign, Exact],
            // -0 + +0 and +0 + +0 are both +0.
            (Binary::AddF, Exact) if self.both_zero(pairs[1], l, r) => [UpToZeroSign, Exact],
            (Binary::AddF, Exact) if self.both_zero(pairs[0], l, r) => [Exact, UpToZeroSign],
            _ => [Exact, Exact],
        };
        if modes == [UpToZeroSign, Exact] && op == Binary::AddF {
            self.tell("adding +0 makes a zero forget its sign: its operand may differ in it");
        }
        for ((x, y), mode) in pairs.into_iter().zip(modes) {
            self.equal(&l.same_lane(x), &r.same_lane(y), mode)?;
        }
        Ok(())
    }

    fn both_zero(&mut self, (x, y): (Value, Value), l: &At, r: &At) -> bool {
        let (a, b) = (self.literal(Side::L, &l.same_lane(x)), self.literal(Side::R, &r.same_lane(y)));
        a == Some(Literal::float(0.0)) && a == b
    }

    /// The constant that a value is, behind any rearrangements.
    fn literal(&mut self, side: Side, at: &At) -> Option<Literal> {
        let Def::Op(op, _) = self.runs[side.index()].def(at.v) else {
            return None;
        };
        if let OpKind::Constant { value, .. } = &op.kind {
            return Some(*value);
        }
        let (x, idx) = self.runs[side.index()].moved(&mut self.t, &op.kind, &at.idx)?;
        self.literal(side, &at.with(x, idx))
    }

    /// The condition of a select or branch, per run: a term if both are integer conditions.
    fn conditions(&mut self, l: &At, r: &At, line: Line, mode: Mode) -> Proof<Option<Term>> {
        let a = self.runs[0].int(&mut self.t, l.v, &l.idx, &l.env)?;
        let b = self.runs[1].int(&mut self.t, r.v, &r.idx, &r.env)?;
        let same = self.t.eq(a, b);
        if self.holds(same, || {
            let at = line.python.map(|p| format!(" of Python line {p}")).unwrap_or_default();
            format!("the condition{at} is the same in both runs")
        })? {
            return Ok(Some(a));
        }
        match self.equal_structure(l, r, mode) {
            Ok(()) => Ok(None),
            Err(Trouble::Failed(f)) if matches!(f.obligation, Obligation::Alignment | Obligation::Guard) => {
                self.fail(Obligation::Guard, line, "a mask or branch may be taken in one run and not in the other")
            }
            Err(other) => Err(other),
        }
    }

    fn equal_select(&mut self, a: &'k Op, l: &At, b: &'k Op, r: &At, mode: Mode) -> Proof {
        let (OpKind::Select { cond: c, a: x, b: y }, OpKind::Select { cond: d, a: u, b: w }) = (&a.kind, &b.kind)
        else {
            return self.different(a, b);
        };
        let lane = |p: &Self, side: usize, v: Value, at: &At| match p.runs[side].shape(v) {
            [] => at.with(v, vec![]),
            _ => at.same_lane(v),
        };
        let (cl, cr) = (lane(self, 0, *c, l), lane(self, 1, *d, r));
        let cond = self.conditions(&cl, &cr, a.line, Mode::Exact)?;
        let yes = (l.same_lane(*x), r.same_lane(*u));
        let no = (l.same_lane(*y), r.same_lane(*w));
        self.both_ways(cond, yes, no, mode)
    }

    fn both_ways(&mut self, cond: Option<Term>, yes: (At, At), no: (At, At), mode: Mode) -> Proof {
        let (when, otherwise) = match cond {
            Some(c) => (vec![c], vec![self.t.not(c)]),
            None => (vec![], vec![]),
        };
        self.in_case(1, &when, |p| p.equal(&yes.0, &yes.1, mode))?;
        self.in_case(1, &otherwise, |p| p.equal(&no.0, &no.1, mode))
    }

    fn equal_branches(
        &mut self,
        (a, i, l): (&'k Op, usize, &At),
        (b, j, r): (&'k Op, usize, &At),
        mode: Mode,
    ) -> Proof {
        let (OpKind::If { cond: c, then: t1, otherwise: e1 }, OpKind::If { cond: d, then: t2, otherwise: e2 }) =
            (&a.kind, &b.kind)
        else {
            return self.different(a, b);
        };
        let (cl, cr) = (l.with(*c, vec![]), r.with(*d, vec![]));
        let yes = (l.same_lane(t1.yields[i]), r.same_lane(t2.yields[j]));
        let no = (l.same_lane(e1.yields[i]), r.same_lane(e2.yields[j]));
        match self.conditions(&cl, &cr, a.line, Mode::Exact) {
            Ok(cond) => self.both_ways(cond, yes, no, mode),
            // Other rows may make one run take a branch that the other does not: then both branches must give equal values.
            Err(Trouble::Failed(apart)) => match self.each_way([&cl, &cr], &yes, &no, mode) {
                Err(Trouble::Failed(_)) => Err(Trouble::Failed(apart)),
                other => other,
            },
            Err(other) => Err(other),
        }
    }

    /// Equal in each of the four cases of two conditions.
    fn each_way(&mut self, conds: [&At; 2], yes: &(At, At), no: &(At, At), mode: Mode) -> Proof {
        let a = self.runs[0].int(&mut self.t, conds[0].v, &conds[0].idx, &conds[0].env)?;
        let b = self.runs[1].int(&mut self.t, conds[1].v, &conds[1].idx, &conds[1].env)?;
        let (not_a, not_b) = (self.t.not(a), self.t.not(b));
        self.in_case(2, &[a, not_b], |p| p.equal(&yes.0, &no.1, mode))?;
        self.in_case(2, &[not_a, b], |p| p.equal(&no.0, &yes.1, mode))?;
        self.in_case(2, &[a, b], |p| p.equal(&yes.0, &yes.1, mode))?;
        self.in_case(2, &[not_a, not_b], |p| p.equal(&no.0, &no.1, mode))
    }

    /// The assumptions about products and sums speak of rows of one tile in one operation: a compiler may sum in another order
    /// at another place of the text, and in another text. Places of two texts are compared only if the texts are alike.
    fn one_place(&mut self, a: &Op, b: &Op) -> Proof {
        let one = match &self.places {
            None => std::ptr::eq(a, b),
            Some(Ok(places)) => a.results.first().and_then(|value| places.get(value)) == b.results.first(),
            Some(Err(line)) => {
                let why = format!(
                    "the two texts differ in more than constants and extents (TTIR line {} on), so a compiler may sum this in two orders",
                    line.ttir
                );
                return self.fail(Obligation::Alignment, a.line, why);
            }
        };
        if !one {
            let why = "the runs sum this at two places of the text, in orders that may differ";
            return self.fail(Obligation::Alignment, a.line, why);
        }
        if self.places.is_some() {
            self.assume(Assumption::TextsLaidOutAlike);
        }
        Ok(())
    }

    fn equal_reduce(&mut self, a: &'k Op, l: &At, b: &'k Op, r: &At) -> Proof {
        let (OpKind::Reduce { op: f, x, axis }, OpKind::Reduce { op: g, x: y, axis: other }) = (&a.kind, &b.kind)
        else {
            return self.different(a, b);
        };
        let (n, m) = (self.runs[0].shape(*x)[*axis], self.runs[1].shape(*y)[*other]);
        if f != g || n != m {
            return self.different(a, b);
        }
        // Integers may be folded in any order.
        if f.is_float() {
            self.one_place(a, b)?;
            self.assume(Assumption::ReduceLaneLocal);
            self.assume(Assumption::ReduceRowUniform);
            if self.runs[0].shape(*x) != self.runs[1].shape(*y) {
                self.assume(Assumption::ReduceHeightIndependent);
            }
        }
        let k = self.summed_lane(n, l, r);
        let (mut i, mut j) = (l.idx.clone(), r.idx.clone());
        i.insert(*axis, k);
        j.insert(*other, k);
        self.equal(&l.with(*x, i), &r.with(*y, j), Mode::Exact)
    }

    fn equal_dot(&mut self, a: &'k Op, l: &At, b: &'k Op, r: &At, mode: Mode) -> Proof {
        let (OpKind::Dot { a: x, b: y, acc: z }, OpKind::Dot { a: u, b: w, acc: q }) = (&a.kind, &b.kind) else {
            return self.different(a, b);
        };
        let (n, m) = (self.runs[0].shape(*x)[1], self.runs[1].shape(*u)[1]);
        if n != m {
            let why = format!("dot sums {n} products at a time in one run and {m} in the other");
            return self.fail(Obligation::Alignment, a.line, why);
        }
        // A sum of integers has no order and rounds nothing: nothing is assumed of it.
        if self.runs[0].problem.kernel.ty(*x).elem().is_float() {
            self.one_place(a, b)?;
            self.assume_dot(l, r, [*x, *y], [*u, *w], mode)?;
        }
        self.equal(&l.same_lane(*z), &r.same_lane(*q), mode)?;
        let k = self.summed_lane(n, l, r);
        let (al, ar) = (l.with(*x, vec![l.idx[0], k]), r.with(*u, vec![r.idx[0], k]));
        let (bl, br) = (l.with(*y, vec![k, l.idx[1]]), r.with(*w, vec![k, r.idx[1]]));
        self.equal(&al, &ar, Mode::Exact)?;
        if mode == Mode::UpToZeroSign {
            let mut candidates = vec![];
            self.select_conditions(&al, &mut candidates, &mut HashSet::new())?;
            let mut seen = vec![];
            for candidate in candidates {
                if self.masked_factor(candidate, &al, &bl, &br)? {
                    seen.push(candidate);
                }
            }
            if !seen.is_empty() {
                self.tell("lanes masked in the left factor are +0 (or NaN in both runs) times something finite: the right factor is needed in seen lanes only");
                return self.under(&seen, |p| p.equal(&bl, &br, Mode::Exact));
            }
        }
        self.equal(&bl, &br, Mode::Exact)
    }

    /// What the proof of a dot of floats assumes of it.
    fn assume_dot(&mut self, l: &At, r: &At, left: [Value; 2], right: [Value; 2], mode: Mode) -> Proof {
        self.assume(Assumption::DotLaneLocal);
        self.assume(Assumption::DotRowUniform);
        let columns = self.t.eq(l.idx[1], r.idx[1]);
        if !self.holds(columns, || "dot computes it in the same column in both runs".into())? {
            self.assume(Assumption::DotColumnUniform);
        }
        if mode == Mode::UpToZeroSign {
            self.assume(Assumption::DotMaskedLanes);
        }
        if left.map(|v| self.runs[0].shape(v)) != right.map(|v| self.runs[1].shape(v)) {
            self.assume(Assumption::DotHeightIndependent);
        }
        Ok(())
    }

    /// True if, where `seen` is false, the left factor (equal in both runs) is +0 or NaN and the right factor is finite.
    fn masked_factor(&mut self, seen: Term, al: &At, bl: &At, br: &At) -> Proof<bool> {
        let unseen = self.t.not(seen);
        let len = self.context.len();
        self.context.push(unseen);
        let result = (|| {
            let class = self.class(Side::L, al)?;
            Ok(matches!(class, Class::Zero | Class::ZeroOrNan)
                && self.finite(Side::L, bl)?
                && self.finite(Side::R, br)?)
        })();
        self.context.truncate(len);
        result
    }

    /// The integer conditions of the selects from which a value is made, in the left run.
    fn select_conditions(&mut self, at: &At, out: &mut Vec<Term>, seen: &mut HashSet<At>) -> Proof {
        if !seen.insert(at.clone()) {
            return Ok(());
        }
        let Def::Op(op, _) = self.runs[0].def(at.v) else {
            return Ok(());
        };
        if let Some((x, idx)) = self.runs[0].moved(&mut self.t, &op.kind, &at.idx) {
            return self.select_conditions(&at.with(x, idx), out, seen);
        }
        match &op.kind {
            OpKind::Select { cond, a, b } => {
                let idx = if self.runs[0].shape(*cond).is_empty() { vec![] } else { at.idx.clone() };
                let cond = self.runs[0].int(&mut self.t, *cond, &idx, &at.env)?;
                if !out.contains(&cond) {
                    out.push(cond);
                }
                self.select_conditions(&at.same_lane(*a), out, seen)?;
                self.select_conditions(&at.same_lane(*b), out, seen)
            }
            OpKind::Unary { x, .. } | OpKind::Cast { x, .. } => self.select_conditions(&at.same_lane(*x), out, seen),
            OpKind::Binary { a, b, .. } => {
                self.select_conditions(&at.same_lane(*a), out, seen)?;
                self.select_conditions(&at.same_lane(*b), out, seen)
            }
            _ => Ok(()),
        }
    }
}

/// True if both operations apply the same function to operands at the same lane.
fn same_elementwise(a: &OpKind, b: &OpKind) -> bool {
    match (a, b) {
        (OpKind::Unary { op: x, .. }, OpKind::Unary { op: y, .. }) => x == y,
        (OpKind::CmpFloat { op: x, .. }, OpKind::CmpFloat { op: y, .. }) => x == y,
        (OpKind::CmpInt { op: x, .. }, OpKind::CmpInt { op: y, .. }) => x == y,
        (OpKind::Fma { .. }, OpKind::Fma { .. }) => true,
        _ => false,
    }
}
