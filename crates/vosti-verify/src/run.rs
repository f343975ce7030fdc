//! One symbolic invocation: what an integer, a pointer or a mask is at a lane, as a [`Term`].
//!
//! Floats have no terms; [`crate::equal`] relates them. Integers are mathematical: that none wraps is an obligation of its own
//! ([`crate::unary`]). An integer that this module does not understand, or that may wrap, becomes an opaque variable, of which only
//! its type's range is known. Read next: [`crate::world`].

mod reduced;
mod trip;

pub use trip::Trip;

use crate::data;
use crate::integers::{bool_binary, compare, int_binary, range, reshape};
use crate::problem::Problem;
use crate::quantify::Witnessed;
use crate::term::{Term, Terms};
use crate::world::World;
use std::collections::{HashMap, HashSet};
use vosti_tile::{Binary, Cast, Line, Literal, Op, OpKind, Scalar, Value};

/// Why an address, a block or a loop is not understood, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    pub line: Line,
    pub why: String,
}

pub type Eval<T> = Result<T, Stop>;

/// The names of integers that may wrap begin with this.
pub const WRAPPED: &str = "wrapped";

/// The program that runs, and how many iterations each enclosing loop has finished.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Env {
    pub pids: [Term; 3],
    pub loops: Vec<(Value, Term)>,
}

impl Env {
    pub fn inside(&self, index: Value, iteration: Term) -> Env {
        let mut env = self.clone();
        env.loops.retain(|(v, _)| *v != index);
        env.loops.push((index, iteration));
        env
    }
    /// Before a loop, and so outside of all that it encloses.
    pub fn outside(&self, index: Value) -> Env {
        let enclosing = self.loops.iter().take_while(|(v, _)| *v != index);
        Env { pids: self.pids, loops: enclosing.copied().collect() }
    }
    pub fn iteration(&self, index: Value) -> Option<Term> {
        self.loops.iter().find(|(v, _)| *v == index).map(|(_, t)| *t)
    }
}

/// The address of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub param: usize,
    pub offset: Term,
}

/// A block pointer: a window at `offsets` into an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    pub param: usize,
    pub base: Term,
    pub shape: Vec<Term>,
    pub strides: Vec<Term>,
    pub offsets: Vec<Term>,
}

/// What defines a value.
#[derive(Clone, Copy)]
pub enum Def<'k> {
    Param(usize),
    /// A dimension or a number, by its place.
    Number(usize),
    Op(&'k Op, usize),
    Index(&'k Op),
    Arg(&'k Op, usize),
    Nothing,
}

pub struct Run<'k> {
    pub problem: &'k Problem,
    pub world: World,
    defs: Vec<Def<'k>>,
    memo: HashMap<(Value, Vec<Term>, Env), Term>,
    /// Integers that may leave their type: each is the same function of its operands in both runs, and nothing else is known.
    wraps: HashSet<Value>,
    constants: HashMap<Value, Option<i128>>,
    /// Reductions of masks that [`some_lane`] does not decide.
    pub witnessed: Vec<Witnessed>,
}

impl<'k> Run<'k> {
    pub fn new(problem: &'k Problem, world: World) -> Run<'k> {
        let kernel = &problem.kernel;
        let mut defs = vec![Def::Nothing; kernel.values.len()];
        for (i, p) in kernel.params.iter().enumerate() {
            defs[p.value.index()] = Def::Param(i);
        }
        for (i, p) in kernel.scalars.iter().enumerate() {
            defs[p.value.index()] = Def::Number(i);
        }
        kernel.walk(&mut |op| {
            for (i, r) in op.results.iter().enumerate() {
                defs[r.index()] = Def::Op(op, i);
            }
            if let OpKind::For { index, args, .. } = &op.kind {
                defs[index.index()] = Def::Index(op);
                for (i, a) in args.iter().enumerate() {
                    defs[a.index()] = Def::Arg(op, i);
                }
            }
        });
        Run {
            problem,
            world,
            defs,
            memo: HashMap::new(),
            wraps: HashSet::new(),
            constants: HashMap::new(),
            witnessed: vec![],
        }
    }

    pub fn def(&self, v: Value) -> Def<'k> {
        self.defs[v.index()]
    }
    pub fn line(&self, v: Value) -> Line {
        match self.def(v) {
            Def::Op(op, _) | Def::Index(op) | Def::Arg(op, _) => op.line,
            _ => Line::default(),
        }
    }
    pub fn shape(&self, v: Value) -> &'k [usize] {
        self.problem.kernel.ty(v).shape()
    }

    /// The operand and its lane that a pure rearrangement reads for lane `idx` of its result.
    pub fn moved(&self, t: &mut Terms, kind: &OpKind, idx: &[Term]) -> Option<(Value, Vec<Term>)> {
        Some(match kind {
            OpKind::Splat { x, .. } => (*x, vec![]),
            OpKind::Broadcast { x, .. } => {
                let zero = t.int(0);
                let from = self.shape(*x);
                let lane = |(i, n): (&Term, &usize)| if *n == 1 { zero } else { *i };
                (*x, idx.iter().zip(from).map(lane).collect())
            }
            OpKind::ExpandDims { x, axis } => {
                let mut idx = idx.to_vec();
                idx.remove(*axis);
                (*x, idx)
            }
            OpKind::Transpose { x, perm } => {
                let mut from = idx.to_vec();
                for (i, p) in perm.iter().enumerate() {
                    from[*p] = idx[i];
                }
                (*x, from)
            }
            OpKind::Reshape { x, shape } => (*x, reshape(t, shape, idx, self.shape(*x))),
            OpKind::Half { x, which } => {
                let which = t.int(*which as i128);
                (*x, [idx, &[which]].concat())
            }
            _ => return None,
        })
    }

    /// Notes that an integer may wrap; false if that was known. What was found before must be found again.
    pub fn wraps(&mut self, v: Value) -> bool {
        self.memo.clear();
        self.constants.clear();
        self.wraps.insert(v)
    }
    /// Takes the wrapping integers of a run of the same text.
    pub fn wraps_as(&mut self, other: HashSet<Value>) {
        self.memo.clear();
        self.constants.clear();
        self.wraps = other;
    }
    pub fn wrapping(&self) -> &HashSet<Value> {
        &self.wraps
    }
    fn opaque(&self, t: &mut Terms, v: Value) -> Term {
        let elem = self.problem.kernel.ty(v).elem();
        let kind = if self.wraps.contains(&v) { WRAPPED } else { "opaque" };
        let hint = format!("{kind}@{}", self.world.side);
        match elem {
            Scalar::I1 => t.fresh_bool(&hint),
            _ => t.fresh(&hint, range(elem)),
        }
    }

    /// The value of an integer or boolean tile at a lane.
    pub fn int(&mut self, t: &mut Terms, v: Value, idx: &[Term], env: &Env) -> Eval<Term> {
        let key = (v, idx.to_vec(), env.clone());
        if let Some(term) = self.memo.get(&key) {
            return Ok(*term);
        }
        // Without work left nothing is proved any more, whatever the value is.
        let term = if t.budget.spend(1) { self.int_fresh(t, v, idx, env)? } else { self.opaque(t, v) };
        self.memo.insert(key, term);
        Ok(term)
    }

    fn int_fresh(&mut self, t: &mut Terms, v: Value, idx: &[Term], env: &Env) -> Eval<Term> {
        match self.def(v) {
            Def::Op(..) if self.wraps.contains(&v) => Ok(self.opaque(t, v)),
            Def::Op(op, result) => match self.int_op(t, op, result, idx, env)? {
                Some(term) => Ok(term),
                None => Ok(self.opaque(t, v)),
            },
            Def::Number(i) => match self.world.numbers.get(i).copied().flatten() {
                Some(term) => Ok(term),
                None => self.stop(Line::default(), "a float is used as an integer"),
            },
            Def::Index(op) => match env.iteration(v) {
                Some(done) => self.index_at(t, op, done, env),
                None => self.stop(op.line, "a loop's index is used outside of it"),
            },
            Def::Arg(op, k) => {
                let OpKind::For { index, inits, .. } = &op.kind else {
                    return Ok(self.opaque(t, v));
                };
                let step = self.int_step(t, op, k);
                match (step, env.iteration(*index)) {
                    (Some(0), Some(_)) => self.int(t, inits[k], idx, env),
                    (Some(step), Some(done)) => {
                        let init = self.int(t, inits[k], idx, env)?;
                        let moved = t.scale(done, step);
                        Ok(t.add(init, moved))
                    }
                    _ => Ok(self.opaque(t, v)),
                }
            }
            _ => self.stop(Line::default(), "a parameter is not a number"),
        }
    }

    fn stop<T>(&self, line: Line, why: &str) -> Eval<T> {
        Err(Stop { line, why: why.to_string() })
    }

    /// None where the operation is not understood.
    fn int_op(&mut self, t: &mut Terms, op: &'k Op, result: usize, idx: &[Term], env: &Env) -> Eval<Option<Term>> {
        if let Some((x, lane)) = self.moved(t, &op.kind, idx) {
            return self.int(t, x, &lane, env).map(Some);
        }
        Ok(match &op.kind {
            OpKind::ProgramId { axis } => env.pids.get(*axis).copied(),
            OpKind::NumPrograms { axis } => self.world.grid.get(*axis).copied(),
            OpKind::Constant { value: Literal::Int(c), ty } => Some(match ty.elem() {
                Scalar::I1 => t.bool(*c != 0),
                _ => t.int(*c),
            }),
            OpKind::Range { start, .. } => Some(t.add_int(idx[0], i128::from(*start))),
            OpKind::Binary { op: f, a, b } => {
                let bool = self.problem.kernel.ty(*a).elem() == Scalar::I1;
                let (a, b) = (self.int(t, *a, idx, env)?, self.int(t, *b, idx, env)?);
                if bool { bool_binary(t, *f, a, b) } else { int_binary(t, *f, a, b) }
            }
            OpKind::CmpInt { op: f, a, b } => {
                let (a, b) = (self.int(t, *a, idx, env)?, self.int(t, *b, idx, env)?);
                compare(t, *f, a, b)
            }
            OpKind::Select { cond, a, b } => {
                let lane = if self.shape(*cond).is_empty() { &[] } else { idx };
                let cond = self.int(t, *cond, lane, env)?;
                let (a, b) = (self.int(t, *a, idx, env)?, self.int(t, *b, idx, env)?);
                Some(t.ite(cond, a, b))
            }
            OpKind::Cast { op: f, x, to } => self.cast(t, *f, *x, *to, idx, env)?,
            OpKind::Load { ptr, mask, other } => {
                let (ptr, mask, other) = (*ptr, *mask, *other);
                let read = self.read_int(t, op.line, ptr, idx, env)?;
                let mask = mask.map(|m| self.int(t, m, idx, env)).transpose()?;
                match (mask, other) {
                    (None, _) => Some(read),
                    (Some(m), Some(o)) => {
                        let other = self.int(t, o, idx, env)?;
                        Some(t.ite(m, read, other))
                    }
                    (Some(m), None) => {
                        let any = self.opaque(t, op.results[0]);
                        Some(t.ite(m, read, any))
                    }
                }
            }
            OpKind::Reduce { op: f, x, axis } => self.reduce(t, *f, *x, *axis, idx, env),
            OpKind::Dot { a, acc, .. } => {
                let start = self.int(t, *acc, idx, env)?;
                // A product of two numbers of 8 bits is at most 2^14.
                let most = (self.shape(*a)[1] as i128) << 14;
                let bound = |end: Option<i128>, by: i128| end.map(|end| end + by);
                let (lo, hi) = (bound(t.bounds(start).0, -most), bound(t.bounds(start).1, most));
                let (least, largest) = range(Scalar::I32);
                // A sum that may wrap is any number.
                let fits = lo >= least && lo.is_some() && hi <= largest && hi.is_some();
                fits.then(|| t.fresh(&format!("dot@{}", self.world.side), (lo, hi)))
            }
            OpKind::If { cond, then, otherwise } => {
                let c = self.int(t, *cond, &[], env)?;
                let a = self.int(t, then.yields[result], idx, env)?;
                let b = self.int(t, otherwise.yields[result], idx, env)?;
                Some(t.ite(c, a, b))
            }
            OpKind::For { inits, .. } => match self.int_step(t, op, result) {
                Some(0) => Some(self.int(t, inits[result], idx, env)?),
                Some(step) => {
                    let trip = self.trip(t, op, env)?.count;
                    let init = self.int(t, inits[result], idx, env)?;
                    let moved = t.scale(trip, step);
                    Some(t.add(init, moved))
                }
                None => None,
            },
            _ => None,
        })
    }

    fn cast(&mut self, t: &mut Terms, f: Cast, x: Value, to: Scalar, idx: &[Term], env: &Env) -> Eval<Option<Term>> {
        let from = self.problem.kernel.ty(x).elem();
        if from.is_float() || f == Cast::Bits {
            return Ok(None);
        }
        let x = self.int(t, x, idx, env)?;
        let (one, zero, minus) = (t.int(1), t.int(0), t.int(-1));
        Ok(match (f, from) {
            (Cast::ExtU, Scalar::I1) => Some(t.ite(x, one, zero)),
            (Cast::ExtS, Scalar::I1) => Some(t.ite(x, minus, zero)),
            (Cast::ExtS, _) => Some(x),
            (Cast::ExtU, _) if t.bounds(x).0.is_some_and(|lo| lo >= 0) => Some(x),
            // That the value fits is an obligation.
            (Cast::Trunc, _) if to != Scalar::I1 => Some(x),
            _ => None,
        })
    }

    fn read_int(&mut self, t: &mut Terms, line: Line, ptr: Value, idx: &[Term], env: &Env) -> Eval<Term> {
        let at = self.address(t, ptr, idx, env)?;
        let buffer = &self.problem.buffers[at.param];
        let read = match data::cell(t, &self.world, buffer, at.offset) {
            None => self.world.read(t, buffer.role, at.offset),
            cell => cell,
        };
        match read {
            Some(term) => Ok(term),
            None => self.stop(line, "an integer is read from a buffer that holds none"),
        }
    }

    /// The parameter and offset that an address operand is at a lane.
    pub fn address(&mut self, t: &mut Terms, v: Value, idx: &[Term], env: &Env) -> Eval<Address> {
        if !t.budget.spend(1) {
            return self.stop(Line::default(), "a pointer is not followed to its buffer");
        }
        match self.def(v) {
            Def::Param(param) => Ok(Address { param, offset: t.int(0) }),
            Def::Op(op, result) => {
                if let Some((x, lane)) = self.moved(t, &op.kind, idx) {
                    return self.address(t, x, &lane, env);
                }
                match &op.kind {
                    OpKind::AddPtr { ptr, offset } => {
                        let mut at = self.address(t, *ptr, idx, env)?;
                        let offset = self.int(t, *offset, idx, env)?;
                        at.offset = t.add(at.offset, offset);
                        Ok(at)
                    }
                    OpKind::Select { cond, a, b } => {
                        let lane = if self.shape(*cond).is_empty() { &[] } else { idx };
                        let cond = self.int(t, *cond, lane, env)?;
                        let (a, b) = (self.address(t, *a, idx, env)?, self.address(t, *b, idx, env)?);
                        if a.param != b.param {
                            return self.stop(op.line, "a pointer is chosen between two buffers");
                        }
                        Ok(Address { param: a.param, offset: t.ite(cond, a.offset, b.offset) })
                    }
                    OpKind::For { inits, .. } => {
                        let trip = self.trip(t, op, env)?.count;
                        self.address_at(t, op, result, inits[result], trip, idx, env)
                    }
                    _ => self.stop(op.line, "this way of making a pointer is not understood"),
                }
            }
            Def::Arg(op, k) => {
                let OpKind::For { index, inits, .. } = &op.kind else {
                    return self.stop(op.line, "a pointer comes from nowhere");
                };
                match env.iteration(*index) {
                    Some(done) => self.address_at(t, op, k, inits[k], done, idx, env),
                    None => self.stop(op.line, "a loop's pointer is used outside of it"),
                }
            }
            _ => self.stop(Line::default(), "a pointer comes from nowhere"),
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn address_at(
        &mut self,
        t: &mut Terms,
        op: &'k Op,
        k: usize,
        init: Value,
        done: Term,
        idx: &[Term],
        env: &Env,
    ) -> Eval<Address> {
        let OpKind::For { args, body, .. } = &op.kind else {
            return self.stop(op.line, "not a loop");
        };
        let (arg, mut at_value, mut step) = (args[k], body.yields[k], t.int(0));
        while at_value != arg {
            let Def::Op(o, _) = self.def(at_value) else {
                return self.stop(op.line, "a pointer moves irregularly in a loop");
            };
            let OpKind::AddPtr { ptr, offset } = &o.kind else {
                return self.stop(o.line, "a pointer moves irregularly in a loop");
            };
            step = match self.constant(t, *offset) {
                Some(c) => t.add_int(step, c),
                None if self.fixed(*offset) => {
                    let by = self.int(t, *offset, idx, env)?;
                    t.add(step, by)
                }
                None => return self.stop(o.line, "a pointer moves by no fixed offset in a loop"),
            };
            at_value = *ptr;
        }
        let mut at = self.address(t, init, idx, env)?;
        let moved = t.mul(done, step);
        at.offset = t.add(at.offset, moved);
        Ok(at)
    }

    /// The one number that all lanes of an integer tile hold, if the text alone shows it.
    fn constant(&mut self, t: &mut Terms, v: Value) -> Option<i128> {
        if let Some(known) = self.constants.get(&v) {
            return *known;
        }
        let found = self.constant_fresh(t, v);
        self.constants.insert(v, found);
        found
    }

    fn constant_fresh(&mut self, t: &mut Terms, v: Value) -> Option<i128> {
        let Def::Op(op, _) = self.def(v) else {
            return None;
        };
        match &op.kind {
            _ if self.wraps.contains(&v) => None,
            OpKind::Constant { value: Literal::Int(c), .. } => Some(i128::from(*c)),
            OpKind::Splat { x, .. } | OpKind::Broadcast { x, .. } | OpKind::ExpandDims { x, .. } => {
                self.constant(t, *x)
            }
            // Sign extension makes a true i1 into -1, and arithmetic on i1 wraps.
            OpKind::Cast { op: Cast::ExtS, x, .. } if self.problem.kernel.ty(*x).elem() != Scalar::I1 => {
                self.constant(t, *x)
            }
            OpKind::Binary { op, a, b } if self.problem.kernel.ty(*a).elem() != Scalar::I1 => {
                let (a, b) = (self.constant(t, *a)?, self.constant(t, *b)?);
                let (a, b) = (t.int(a), t.int(b));
                let term = int_binary(t, *op, a, b)?;
                t.as_int(term)
            }
            _ => None,
        }
    }

    /// The constant that a loop adds to its k-th number in each iteration, if there is one. An i1 that changes has none: its
    /// addition wraps, and no obligation excludes that.
    fn int_step(&mut self, t: &mut Terms, op: &'k Op, k: usize) -> Option<i128> {
        let OpKind::For { args, body, .. } = &op.kind else {
            return None;
        };
        let (mut v, mut step) = (body.yields[k], 0i128);
        if v != args[k] && self.problem.kernel.ty(v).elem() == Scalar::I1 {
            return None;
        }
        while v != args[k] {
            let Def::Op(o, _) = self.def(v) else {
                return None;
            };
            if self.wraps.contains(&v) {
                return None;
            }
            let OpKind::Binary { op: Binary::Add, a, b } = &o.kind else {
                return None;
            };
            let (next, by) = match (self.constant(t, *b), self.constant(t, *a)) {
                (Some(c), _) => (*a, c),
                (None, Some(c)) => (*b, c),
                _ => return None,
            };
            step = step.checked_add(by)?;
            v = next;
        }
        Some(step)
    }

    /// The window that a block pointer is.
    pub fn block(&mut self, t: &mut Terms, v: Value, env: &Env) -> Eval<Block> {
        match self.def(v) {
            Def::Op(op, result) => match &op.kind {
                OpKind::MakeBlock { base, shape, strides, offsets, .. } => {
                    let at = self.address(t, *base, &[], env)?;
                    Ok(Block {
                        param: at.param,
                        base: at.offset,
                        shape: self.scalars(t, shape, env)?,
                        strides: self.scalars(t, strides, env)?,
                        offsets: self.scalars(t, offsets, env)?,
                    })
                }
                OpKind::Advance { ptr, offsets } => {
                    let mut block = self.block(t, *ptr, env)?;
                    let by = self.scalars(t, offsets, env)?;
                    block.offsets = block.offsets.iter().zip(by).map(|(o, b)| t.add(*o, b)).collect();
                    Ok(block)
                }
                OpKind::For { inits, .. } => {
                    let trip = self.trip(t, op, env)?.count;
                    self.block_at(t, op, result, inits[result], trip, env)
                }
                _ => self.stop(op.line, "this way of making a block pointer is not understood"),
            },
            Def::Arg(op, k) => {
                let OpKind::For { index, inits, .. } = &op.kind else {
                    return self.stop(op.line, "a block pointer comes from nowhere");
                };
                match env.iteration(*index) {
                    Some(done) => self.block_at(t, op, k, inits[k], done, env),
                    None => self.stop(op.line, "a loop's block pointer is used outside of it"),
                }
            }
            _ => self.stop(Line::default(), "a block pointer comes from nowhere"),
        }
    }

    fn block_at(&mut self, t: &mut Terms, op: &'k Op, k: usize, init: Value, done: Term, env: &Env) -> Eval<Block> {
        let OpKind::For { args, body, .. } = &op.kind else {
            return self.stop(op.line, "not a loop");
        };
        let mut block = self.block(t, init, env)?;
        let mut v = body.yields[k];
        while v != args[k] {
            let Def::Op(o, _) = self.def(v) else {
                return self.stop(op.line, "a block pointer moves irregularly in a loop");
            };
            let OpKind::Advance { ptr, offsets } = &o.kind else {
                return self.stop(o.line, "a block pointer moves irregularly in a loop");
            };
            for (axis, offset) in offsets.iter().enumerate() {
                let Some(step) = self.constant(t, *offset) else {
                    return self.stop(o.line, "a block pointer moves by no constant in a loop");
                };
                let moved = t.scale(done, step);
                block.offsets[axis] = t.add(block.offsets[axis], moved);
            }
            v = *ptr;
        }
        Ok(block)
    }

    fn scalars(&mut self, t: &mut Terms, list: &[Value], env: &Env) -> Eval<Vec<Term>> {
        list.iter().map(|v| self.int(t, *v, &[], env)).collect()
    }
}
