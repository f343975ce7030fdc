//! Loops: induction over aligned iterations, and iterations that change nothing.
//!
//! The induction hypothesis is the equality of a loop's results that the code after it needs. Equalities that the body needs
//! of its arguments join it until nothing new is needed. Two loops run the same iterations in the same order, or the
//! iterations that only one of them runs leave the needed state as it was, bit for bit.

use crate::equal::{At, AxisRelation, Demand, Frame, Mode};
use crate::facts::Class;
use crate::memo::Goals;
use crate::prover::{Prover, Side};
use crate::run::{Def, Env, Trip};
use crate::term::{Node, Term};
use crate::verdict::{Assumption, Failure, Obligation, Proof, Trouble};
use vosti_contract::Shape;
use vosti_tile::{Binary, Line, Literal, Op, OpKind, Value};

/// How the iterations of two loops correspond.
struct Alignment {
    iteration: [Term; 2],
    /// Whether the iteration exists in the left run, and in the right run.
    exists: [Term; 2],
    same_range: bool,
}

struct Body<'k> {
    op: &'k Op,
    index: Value,
    args: &'k [Value],
    inits: &'k [Value],
    yields: &'k [Value],
    env: Env,
}

fn body<'k>(op: &'k Op, env: &Env) -> Option<Body<'k>> {
    match &op.kind {
        OpKind::For { index, args, inits, body, .. } => {
            Some(Body { op, index: *index, args, inits, yields: &body.yields, env: env.clone() })
        }
        _ => None,
    }
}

impl<'k> Prover<'k, '_> {
    pub(crate) fn equal_loops(
        &mut self,
        (a, i, l): (&'k Op, usize, &At),
        (b, j, r): (&'k Op, usize, &At),
        mode: Mode,
    ) -> Proof {
        let (Some(left), Some(right)) = (body(a, &l.env), body(b, &r.env)) else {
            return self.fail(Obligation::Alignment, a.line, "a loop is compared with something else");
        };
        let demand = Demand { k: [i, j], axes: self.relate(&l.idx, &r.idx, a.line)?, mode };
        self.tell_demand(left.args, &demand, "after the loop");
        let floor = self.t.mark();
        let alignment = self.align(a, &l.env, b, &r.env)?;
        self.frames.push(Frame {
            index: [left.index, right.index],
            iteration: alignment.iteration,
            demands: vec![demand],
            proved: Goals::default(),
            floor,
        });
        self.depth += 1;
        // What is assumed of the iteration stands behind the cases around the loop.
        let cases = std::mem::take(&mut self.cases);
        let result = self.all_demands(&left, &right, &alignment);
        self.cases = cases;
        self.depth -= 1;
        let frame = self.frames.pop();
        result?;
        let demands = frame.map(|f| f.demands).unwrap_or_default();
        for demand in &demands {
            let (x, y) = (left.inits[demand.k[0]], right.inits[demand.k[1]]);
            let (i, j) = self.demanded_lanes(demand, x, y, a.line)?;
            self.equal(&At::new(x, i, &left.env), &At::new(y, j, &right.env), demand.mode)?;
        }
        self.remember_results([a, b], [&l.env, &r.env], &demands);
        Ok(())
    }

    /// The induction proved of every demand, not only of the first, that it holds after the loops: it is not proved again where
    /// the code after them needs it at the same lanes.
    fn remember_results(&mut self, ops: [&Op; 2], env: [&Env; 2], demands: &[Demand]) {
        for demand in demands {
            let pins = demand.axes.iter().map(|axis| match axis {
                AxisRelation::Pinned(x, y) => Some((*x, *y)),
                AxisRelation::Same => None,
            });
            let results = [0, 1].map(|side| ops[side].results.get(demand.k[side]).copied());
            if let (Some(lanes), [Some(x), Some(y)]) = (pins.collect::<Option<Vec<_>>>(), results) {
                let (i, j) = lanes.into_iter().unzip();
                self.remember(&At::new(x, i, env[0]), &At::new(y, j, env[1]), demand.mode);
            }
        }
    }

    /// Tells in words which part of a loop's state must be the same.
    fn tell_demand(&mut self, args: &[Value], demand: &Demand, by: &str) {
        let values = &self.runs[0].problem.kernel.values;
        let name = args.get(demand.k[0]).map_or("?", |arg| values[arg.index()].name.as_str());
        let axis = |relation: &AxisRelation| match relation {
            AxisRelation::Same => ":",
            AxisRelation::Pinned(..) => "chosen",
        };
        let region: Vec<&str> = demand.axes.iter().map(axis).collect();
        let region = if region.is_empty() { String::new() } else { format!("[{}]", region.join(", ")) };
        let up_to = if demand.mode == Mode::UpToZeroSign { ", up to the sign of a zero" } else { "" };
        self.tell(format!("needed {by}: `{name}`{region} is the same in both runs{up_to}"));
    }

    /// How lane `l` and lane `r` relate, axis by axis. It fails if the tiles have different ranks.
    fn relate(&self, l: &[Term], r: &[Term], line: Line) -> Proof<Vec<AxisRelation>> {
        if l.len() != r.len() {
            return self.fail(Obligation::Alignment, line, "the loops carry tiles of different ranks");
        }
        let relation = |(x, y): (&Term, &Term)| if x == y { AxisRelation::Same } else { AxisRelation::Pinned(*x, *y) };
        Ok(l.iter().zip(r).map(relation).collect())
    }

    fn align(&mut self, a: &'k Op, el: &Env, b: &'k Op, er: &Env) -> Proof<Alignment> {
        let left = self.runs[0].trip(&mut self.t, a, el)?;
        let right = self.runs[1].trip(&mut self.t, b, er)?;
        let same_lo = self.t.eq(left.lo, right.lo);
        let line = a.line;
        let at = line.python.map(|p| format!(" at Python line {p}")).unwrap_or_default();
        if left.step == right.step && self.holds(same_lo, || format!("the loops{at} start alike"))? {
            let same_hi = self.t.eq(left.hi, right.hi);
            if self.holds(same_hi, || format!("the loops{at} end alike"))? {
                self.tell(format!("loop{at}: the same iterations in both runs, paired in order"));
                return Ok(self.counted(&left, &right, true));
            }
            self.tell(format!("loop{at}: paired by count; one run may go further"));
            return Ok(self.counted(&left, &right, false));
        }
        if left.step == 1 && right.step == 1 {
            self.tell(format!("loop{at}: paired by index; iterations of one run alone must change nothing"));
            return Ok(self.indexed(&left, &right));
        }
        let why = if left.step == right.step {
            "the loops start differently and do not step by one"
        } else {
            "the loops step differently: sums are taken in another order"
        };
        self.fail(Obligation::LoopRange, line, why)
    }

    fn counted(&mut self, left: &Trip, right: &Trip, same_range: bool) -> Alignment {
        let (done, below) = self.iteration(left);
        let done = if same_range { done } else { self.t.fresh("iteration", (Some(0), None)) };
        let exists =
            if same_range { [below, below] } else { [self.t.lt(done, left.count), self.t.lt(done, right.count)] };
        Alignment { iteration: [done, done], exists, same_range }
    }

    fn indexed(&mut self, left: &Trip, right: &Trip) -> Alignment {
        let index = self.t.fresh("index", (None, None));
        let exists = [left, right].map(|trip| self.t.within(trip.lo, index, trip.hi));
        Alignment { iteration: [self.t.sub(index, left.lo), self.t.sub(index, right.lo)], exists, same_range: false }
    }

    fn all_demands(&mut self, left: &Body<'k>, right: &Body<'k>, alignment: &Alignment) -> Proof {
        let mut done = 0;
        while let Some(demand) = self.frames.last().and_then(|f| f.demands.get(done)).cloned() {
            self.step(left, right, alignment, &demand)?;
            done += 1;
            if done > 64 {
                return self.fail(Obligation::Alignment, left.op.line, "the loop needs too many relations");
            }
        }
        self.tell(format!("induction closes with {done} relation(s) between the loops' states"));
        Ok(())
    }

    fn demanded_lanes(&mut self, demand: &Demand, x: Value, y: Value, line: Line) -> Proof<(Vec<Term>, Vec<Term>)> {
        let (a, b) = (self.runs[0].shape(x), self.runs[1].shape(y));
        if demand.axes.len() != a.len() || demand.axes.len() != b.len() {
            return self.fail(Obligation::Alignment, line, "the loops carry tiles of different ranks");
        }
        let (mut l, mut r) = (vec![], vec![]);
        for (axis, relation) in demand.axes.iter().enumerate() {
            match relation {
                AxisRelation::Pinned(i, j) => {
                    l.push(*i);
                    r.push(*j);
                }
                AxisRelation::Same if a[axis] == b[axis] => {
                    let lane = self.lane(a[axis]);
                    l.push(lane);
                    r.push(lane);
                }
                AxisRelation::Same => {
                    return self.fail(Obligation::Alignment, line, "the loops carry tiles of different extents");
                }
            }
        }
        Ok((l, r))
    }

    /// Proves that one relation is preserved by an iteration that both runs make, and by one that either makes alone.
    fn step(&mut self, left: &Body<'k>, right: &Body<'k>, alignment: &Alignment, demand: &Demand) -> Proof {
        let [k, m] = demand.k;
        let (i, j) = self.demanded_lanes(demand, left.args[k], right.args[m], left.op.line)?;
        let env = [
            left.env.inside(left.index, alignment.iteration[0]),
            right.env.inside(right.index, alignment.iteration[1]),
        ];
        let l = At::new(left.yields[k], i, &env[0]);
        let r = At::new(right.yields[m], j, &env[1]);
        let [el, er] = alignment.exists;
        self.under(&[el, er], |p| p.equal(&l, &r, demand.mode))?;
        if alignment.same_range {
            return Ok(());
        }
        let (nl, nr) = (self.t.not(el), self.t.not(er));
        self.under(&[el, nr], |p| p.unchanged(Side::L, &l, left.args[k], demand.mode))?;
        self.under(&[er, nl], |p| p.unchanged(Side::R, &r, right.args[m], demand.mode))
    }

    /// Proves that the yielded value is the loop's argument.
    pub(crate) fn unchanged(&mut self, side: Side, at: &At, arg: Value, mode: Mode) -> Proof {
        self.work()?;
        if at.v == arg {
            self.tell("an iteration of one run alone keeps the state as it was");
            return Ok(());
        }
        let run = &self.runs[side.index()];
        let line = run.line(at.v);
        let Def::Op(op, result) = run.def(at.v) else {
            return self.fail(
                Obligation::LoopRange,
                line,
                "an iteration that only one run makes may change the selected state",
            );
        };
        match &op.kind {
            OpKind::Select { cond, a, b } => {
                let idx = if self.runs[side.index()].shape(*cond).is_empty() { vec![] } else { at.idx.clone() };
                let (yes, no) = (at.same_lane(*a), at.same_lane(*b));
                self.unchanged_either_way(side, at.with(*cond, idx), [yes, no], arg, mode)
            }
            OpKind::If { cond, then, otherwise } => {
                let (yes, no) = (at.same_lane(then.yields[result]), at.same_lane(otherwise.yields[result]));
                self.unchanged_either_way(side, at.with(*cond, vec![]), [yes, no], arg, mode)
            }
            OpKind::Binary { op: Binary::MulF, a, b }
                if self.never_denormal(side, arg) && self.class(side, &at.same_lane(*b))? == Class::One =>
            {
                self.unchanged(side, &at.same_lane(*a), arg, mode)
            }
            OpKind::Dot { a, b, acc }
                if mode == Mode::UpToZeroSign
                    && self.never_denormal(side, arg)
                    && self.adds_zeros(side, at, [*a, *b])? =>
            {
                self.tell("an iteration of one run alone adds products of +0 and something finite");
                self.unchanged(side, &at.same_lane(*acc), arg, mode)
            }
            _ => {
                let why = "an iteration that only one run makes may change the selected state";
                self.fail(Obligation::LoopRange, line, why)
            }
        }
    }

    fn unchanged_either_way(&mut self, side: Side, cond: At, [yes, no]: [At; 2], arg: Value, mode: Mode) -> Proof {
        let (run, t) = self.run(side);
        let cond = run.int(t, cond.v, &cond.idx, &cond.env)?;
        let not = self.t.not(cond);
        self.under(&[cond], |p| p.unchanged(side, &yes, arg, mode))?;
        self.under(&[not], |p| p.unchanged(side, &no, arg, mode))
    }

    /// Whether a loop's argument is a constant or what arithmetic gave. A processor takes a denormal operand for zero and gives no
    /// denormal result: `x * 1` and `x + 0` are x unless x is denormal, which a number in memory may be.
    fn never_denormal(&mut self, side: Side, arg: Value) -> bool {
        let Def::Arg(op, k) = self.runs[side.index()].def(arg) else { return false };
        let OpKind::For { inits, body, .. } = &op.kind else { return false };
        [inits[k], body.yields[k]].into_iter().all(|v| self.computed(side, v, arg))
    }

    /// Whether a value is `arg`, a constant or what arithmetic gave, or a choice of these.
    fn computed(&mut self, side: Side, v: Value, arg: Value) -> bool {
        let Def::Op(op, result) = self.runs[side.index()].def(v) else { return v == arg };
        if !self.t.budget.spend(1) {
            return false;
        }
        match &op.kind {
            OpKind::Constant { value: Literal::Float(bits), .. } => !f32::from_bits(*bits).is_subnormal(),
            OpKind::Binary { op: Binary::AddF | Binary::SubF | Binary::MulF | Binary::DivF, .. }
            | OpKind::Fma { .. }
            | OpKind::Dot { .. } => true,
            OpKind::Splat { x, .. }
            | OpKind::Broadcast { x, .. }
            | OpKind::ExpandDims { x, .. }
            | OpKind::Transpose { x, .. }
            | OpKind::Reshape { x, .. } => self.computed(side, *x, arg),
            OpKind::Select { a, b, .. } => self.computed(side, *a, arg) && self.computed(side, *b, arg),
            OpKind::If { then, otherwise, .. } => {
                self.computed(side, then.yields[result], arg) && self.computed(side, otherwise.yields[result], arg)
            }
            _ => false,
        }
    }

    /// Whether all products that a dot of floats sums in a lane are +0 times something finite.
    fn adds_zeros(&mut self, side: Side, at: &At, [a, b]: [Value; 2]) -> Proof<bool> {
        let run = &self.runs[side.index()];
        if !run.problem.kernel.ty(a).elem().is_float() {
            return Ok(false);
        }
        let k = self.lane(self.runs[side.index()].shape(a)[1]);
        let (left, right) = (at.with(a, vec![at.idx[0], k]), at.with(b, vec![k, at.idx[1]]));
        let zeros = self.class(side, &left)? == Class::Zero && self.finite(side, &right)?;
        if zeros {
            self.assumptions.insert(Assumption::DotMaskedLanes);
        }
        Ok(zeros)
    }

    /// Two loop-carried values: the induction hypothesis, or a new relation that it must include.
    pub(crate) fn equal_args(
        &mut self,
        (a, i, l): (&'k Op, usize, &At),
        (b, j, r): (&'k Op, usize, &At),
        mode: Mode,
    ) -> Proof {
        let (Some(left), Some(right)) = (body(a, &l.env), body(b, &r.env)) else {
            return self.fail(Obligation::Alignment, a.line, "not loops");
        };
        let iteration = [l.env.iteration(left.index), r.env.iteration(right.index)];
        let relation = self.relate(&l.idx, &r.idx, a.line)?;
        let place = self.frames.iter().position(|f| {
            f.index == [left.index, right.index] && [Some(f.iteration[0]), Some(f.iteration[1])] == iteration
        });
        let Some(place) = place else {
            if self.runs[0].problem.shape == Shape::RecurStore {
                return self.equal_entries(l, r, mode);
            }
            return self.fail(
                Obligation::Alignment,
                a.line,
                "a store inside a loop needs the loop's state: this is not supported",
            );
        };
        let covered = |d: &Demand| {
            d.k == [i, j]
                && d.mode >= mode
                && d.axes.iter().zip(&relation).all(|(have, want)| match have {
                    AxisRelation::Same => *want == AxisRelation::Same,
                    pinned => pinned == want,
                })
        };
        if self.frames[place].demands.iter().any(covered) {
            return Ok(());
        }
        let axes = self.generalise(place, &l.idx, &r.idx, a.line)?;
        self.tell_demand(left.args, &Demand { k: [i, j], axes: axes.clone(), mode }, "by the loop's body");
        self.frames[place].demands.push(Demand { k: [i, j], axes, mode });
        Ok(())
    }

    /// The relation of the two lanes. It fails if a lane depends on a variable of the body.
    fn generalise(&mut self, frame: usize, l: &[Term], r: &[Term], line: Line) -> Proof<Vec<AxisRelation>> {
        let floor = self.frames[frame].floor;
        let axes = self.relate(l, r, line)?;
        for axis in &axes {
            if let AxisRelation::Pinned(x, y) = axis {
                let young = self
                    .t
                    .reachable(&[*x, *y])
                    .into_iter()
                    .any(|s| matches!(self.t.node(s), Node::Var { .. } | Node::BoolVar(_)) && s.0 >= floor);
                if young {
                    return Err(Trouble::Failed(Failure::new(
                        Obligation::Alignment,
                        line,
                        "the runs need different lanes of the loop's state in each iteration",
                    )));
                }
            }
        }
        Ok(axes)
    }
}
