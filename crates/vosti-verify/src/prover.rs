//! The prover's state: two runs, what is assumed at this point, and the solver.
//!
//! [`Prover::holds`] asks whether a goal follows from the assumptions; a `false` from it means "not proved"
//! and nothing more. Read next: [`crate::unary`], then [`crate::equal`].

use crate::alike::{self, Places};
use crate::budget::GIVEN_UP_MAX;
use crate::data;
use crate::dimension::Scaled;
use crate::equal::{At, Frame, Goal, Mode};
use crate::facts::Class;
use crate::memo::Goals;
use crate::problem::{Dim, Problem};
use crate::run::{Env, Run, Trip};
use crate::solver::{Answer, Solver, query};
use crate::term::{Bounds, Term, Terms};
use crate::verdict::{Assumption, Failure, Obligation, Proof, Step, Trouble};
use crate::world::{Chosen, World};
use std::collections::{BTreeSet, HashMap, HashSet};
use vosti_tile::{Line, Op, OpKind};

/// Which run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    L,
    R,
}

impl Side {
    pub fn index(self) -> usize {
        self as usize
    }
}

pub struct Prover<'k, 's> {
    pub t: Terms,
    pub runs: [Run<'k>; 2],
    pub chosen: [Chosen; 2],
    solver: &'s mut Solver,
    /// What is assumed at this point.
    pub context: Vec<Term>,
    pub story: Vec<Step>,
    pub depth: usize,
    pub assumptions: BTreeSet<Assumption>,
    pub(crate) frames: Vec<Frame>,
    /// Proved goals that depend on no loop under comparison; the others are in their loop's [`Frame`].
    pub(crate) proved: Goals,
    pub queries: u64,
    /// Questions that the solver could not answer in its time.
    pub gave_up: u64,
    /// Where the assumptions of each enclosing case begin in the context: a choice whose sides are compared one by one.
    pub(crate) cases: Vec<usize>,
    /// Lanes at which the terms of sums were compared, by the number of terms.
    pub(crate) summed: HashMap<usize, Vec<Term>>,
    /// What was proved since an attempt began that may fail: the number of frames, and the goal.
    pub(crate) journal: Vec<(usize, Goal)>,
    /// Attempts that are under way.
    pub(crate) attempts: usize,
    /// Goals that were met inside of cases, whatever was assumed.
    pub(crate) met: HashSet<(At, At, Mode)>,
    /// Goals that failed without the assumptions of cases, with the floor of the innermost loop.
    pub(crate) hopeless: HashSet<(Goal, u32)>,
    /// The first integer operation that may wrap.
    pub(crate) wrapped: Option<Failure>,
    /// Which values of two texts stand at one place; None for one text.
    pub(crate) places: Option<Places>,
    pub(crate) classes: HashMap<(Side, At, Vec<Term>), Class>,
}

/// An operation at a place: its program and iterations, and the conditions under which it runs.
#[derive(Clone)]
pub struct Site<'k> {
    pub op: &'k Op,
    pub env: Env,
    pub guard: Vec<Term>,
}

/// A load or store of one lane.
#[derive(Clone)]
pub struct Access<'k> {
    pub site: Site<'k>,
    pub write: bool,
    pub param: usize,
    pub offset: Term,
    pub lanes: Vec<Term>,
    /// The conditions under which the lane is accessed: loops, branches, mask and checked axes.
    pub guard: Vec<Term>,
    /// The bounds that must hold on axes that are not checked.
    pub unchecked: Vec<Term>,
}

/// A store and the coordinates of the cell to which it goes. It has none if its own conditions contradict each other.
pub(crate) struct Placed<'a, 'k> {
    pub access: &'a Access<'k>,
    pub cell: Vec<Term>,
}

impl Placed<'_, '_> {
    pub fn happens(&self) -> bool {
        !self.cell.is_empty()
    }
}

impl<'k, 's> Prover<'k, 's> {
    pub fn new(left: &'k Problem, right: &'k Problem, solver: &'s mut Solver) -> Prover<'k, 's> {
        let mut t = Terms::default();
        let worlds = [World::new(&mut t, left, "L"), World::new(&mut t, right, "R")];
        let chosen = [Chosen::new(&mut t, left, &worlds[0]), Chosen::new(&mut t, right, &worlds[1])];
        let [wl, wr] = worlds;
        Prover {
            t,
            runs: [Run::new(left, wl), Run::new(right, wr)],
            chosen,
            solver,
            context: vec![],
            story: vec![],
            depth: 0,
            assumptions: BTreeSet::new(),
            frames: vec![],
            proved: Goals::default(),
            queries: 0,
            gave_up: 0,
            cases: vec![],
            summed: HashMap::new(),
            journal: vec![],
            attempts: 0,
            met: HashSet::new(),
            hopeless: HashSet::new(),
            wrapped: None,
            places: (!std::ptr::eq(left, right)).then(|| alike::places(left, right)),
            classes: HashMap::new(),
        }
    }

    pub fn run(&mut self, side: Side) -> (&mut Run<'k>, &mut Terms) {
        (&mut self.runs[side.index()], &mut self.t)
    }

    pub fn tell(&mut self, text: impl Into<String>) {
        let (depth, text) = (self.depth, text.into());
        self.story.push(Step { depth, text });
    }

    pub fn fail<T>(&self, obligation: Obligation, line: Line, why: impl Into<String>) -> Proof<T> {
        Err(Trouble::Failed(Failure::new(obligation, line, why)))
    }

    /// Asserted terms with the facts about the metadata that they mention.
    fn with_facts(&mut self, mut asserted: Vec<Term>) -> Vec<Term> {
        let mut known: HashSet<Term> = asserted.iter().copied().collect();
        loop {
            let mut more = vec![];
            for run in &self.runs {
                more.extend(run.world.facts(&mut self.t, &asserted));
            }
            let [l, r] = [0, 1].map(|side| (&self.runs[side].world, &self.chosen[side]));
            let seen = self.t.reachable(&asserted);
            for reduction in self.runs.iter().flat_map(|run| &run.witnessed) {
                more.extend(reduction.facts(&mut self.t, &seen));
            }
            more.extend(data::shared(&mut self.t, &self.runs[0].problem.buffers, l, r, &asserted));
            more.retain(|f| self.t.as_bool(*f) != Some(true) && known.insert(*f));
            if more.is_empty() {
                return asserted;
            }
            asserted.extend(more);
        }
    }

    /// Whether all of `asserted` can hold, after `map` replaced terms in them.
    fn ask(&mut self, asserted: Vec<Term>, map: &HashMap<Term, Term>) -> Proof<Answer> {
        if asserted.iter().any(|a| self.t.as_bool(*a) == Some(false)) {
            return Ok(Answer::Unsat);
        }
        if !self.t.budget.spend(32) {
            return Ok(Answer::Unknown);
        }
        let mut asserted = self.with_facts(asserted);
        if !map.is_empty() {
            asserted = asserted.into_iter().map(|term| self.t.substitute(term, map)).collect();
            if asserted.iter().any(|a| self.t.as_bool(*a) == Some(false)) {
                return Ok(Answer::Unsat);
            }
        }
        asserted.retain(|a| self.t.as_bool(*a) != Some(true));
        if self.t.spoiled {
            return Ok(Answer::Unknown);
        }
        self.queries += 1;
        let text = query(&self.t, &asserted);
        let answer = self.solver.check(&text)?;
        self.gave_up += u64::from(answer == Answer::Unknown);
        if self.gave_up > GIVEN_UP_MAX {
            self.t.budget.end();
        }
        Ok(answer)
    }

    /// True if `goal` follows from the assumptions. `what` gives the goal in words, for the explanation.
    pub fn holds(&mut self, goal: Term, what: impl FnOnce() -> String) -> Proof<bool> {
        if self.t.as_bool(goal) == Some(true) || self.context.contains(&goal) {
            return Ok(true);
        }
        let mut asserted = self.context.clone();
        asserted.push(self.t.not(goal));
        let proved = self.ask(asserted, &HashMap::new())? == Answer::Unsat;
        let word = if proved { "proved" } else { "not shown" };
        self.tell(format!("solver: {}: {word}", what()));
        Ok(proved)
    }

    /// True if the solver found a model of the assumptions. If there are dimensions, it must find one for each of two sets of
    /// values of them: with values in the place of dimensions, the solver sees every product and not only bounds of it.
    pub fn satisfiable(&mut self) -> Proof<bool> {
        let context = self.context.clone();
        let numbers = self.runs[0].world.numbers.clone();
        let sets = if numbers.iter().any(Option::is_some) { 2 } else { 1 };
        for which in 0..sets {
            let [own, other] = [0, 1].map(|run| self.runs[run].problem);
            let mut values = own.witness(which);
            // The two runs have the same dimensions, and both meet their conditions.
            let also = other.conditions.iter().filter(|_| own.numbers == other.numbers);
            also.clone().for_each(|condition| condition.meet(&mut values, &own.numbers));
            if !own.conditions.iter().chain(also).all(|condition| condition.holds(&values)) {
                return Ok(false);
            }
            let pairs = numbers.iter().zip(values).filter_map(|(symbol, value)| Some(((*symbol)?, value?)));
            let map: HashMap<Term, Term> = pairs.map(|(symbol, value)| (symbol, self.t.int(value))).collect();
            if self.ask(context.clone(), &map)? != Answer::Sat {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// True if the assumptions contradict each other.
    pub fn impossible(&mut self) -> Proof<bool> {
        let asserted = self.context.clone();
        Ok(self.ask(asserted, &HashMap::new())? == Answer::Unsat)
    }

    /// Runs `body` with more assumptions. A failure of `body` does not count if the assumptions contradict each other.
    pub fn under<T: Default>(&mut self, more: &[Term], body: impl FnOnce(&mut Self) -> Proof<T>) -> Proof<T> {
        if more.iter().any(|m| self.t.as_bool(*m) == Some(false)) {
            return Ok(T::default());
        }
        let (len, story) = (self.context.len(), self.story.len());
        self.context.extend(more);
        let mut result = body(self);
        if matches!(result, Err(Trouble::Failed(_))) && self.impossible()? {
            self.story.truncate(story);
            self.tell("this case cannot happen (solver)");
            result = Ok(T::default());
        }
        self.context.truncate(len);
        result
    }

    /// Variables for a program's index on each axis.
    pub fn program(&mut self, side: Side) -> [Term; 3] {
        let grid = self.runs[side.index()].world.grid;
        grid.map(|n| {
            let hi = self.t.bounds(n).1.map(|h| h - 1);
            self.t.fresh(&format!("program@{}", self.runs[side.index()].world.side), (Some(0), hi))
        })
    }

    /// The conditions that the program exists: its index is below the grid on each axis.
    pub fn in_grid(&mut self, side: Side, pids: [Term; 3]) -> Vec<Term> {
        let grid = self.runs[side.index()].world.grid;
        pids.iter().zip(grid).map(|(p, n)| self.t.lt(*p, n)).collect()
    }

    pub fn lanes(&mut self, shape: &[usize]) -> Vec<Term> {
        shape.iter().map(|n| self.lane(*n)).collect()
    }

    pub fn lane(&mut self, n: usize) -> Term {
        let bounds: Bounds = (Some(0), Some(n as i128 - 1));
        self.t.fresh("lane", bounds)
    }

    /// A variable for the number of finished iterations of a loop with this range, and the condition that it lies in the range.
    pub fn iteration(&mut self, trip: &Trip) -> (Term, Term) {
        let hi = self.t.bounds(trip.count).1.map(|h| (h - 1).max(0));
        let done = self.t.fresh("iteration", (Some(0), hi));
        let below = self.t.lt(done, trip.count);
        (done, below)
    }

    /// Every operation of one program, in order, each in a generic iteration of its loops.
    pub fn sites(&mut self, side: Side, pids: [Term; 3]) -> Proof<Vec<Site<'k>>> {
        let mut sites = vec![];
        let guard = self.in_grid(side, pids);
        let env = Env { pids, loops: vec![] };
        let body: &'k [Op] = &self.runs[side.index()].problem.kernel.body;
        self.collect(side, body, &env, &guard, &mut sites)?;
        Ok(sites)
    }

    /// The sites of `ops`, which run under `guard`.
    pub(crate) fn collect(
        &mut self,
        side: Side,
        ops: &'k [Op],
        env: &Env,
        guard: &[Term],
        sites: &mut Vec<Site<'k>>,
    ) -> Proof {
        for op in ops {
            sites.push(Site { op, env: env.clone(), guard: guard.to_vec() });
            match &op.kind {
                OpKind::For { index, body, .. } => {
                    let (run, t) = self.run(side);
                    let trip = run.trip(t, op, env)?;
                    let (done, below) = self.iteration(&trip);
                    let inner = env.inside(*index, done);
                    let guard = [guard, &[below]].concat();
                    self.collect(side, &body.ops, &inner, &guard, sites)?;
                }
                OpKind::If { cond, then, otherwise } => {
                    let (run, t) = self.run(side);
                    let cond = run.int(t, *cond, &[], env)?;
                    let not = self.t.not(cond);
                    // A branch that the case's value of a flag excludes has no sites.
                    for (taken, branch) in [(cond, then), (not, otherwise)] {
                        if self.t.as_bool(taken) != Some(false) {
                            self.collect(side, &branch.ops, env, &[guard, &[taken]].concat(), sites)?;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The site's access to memory at generic lanes, if it is one.
    pub fn access(&mut self, side: Side, site: &Site<'k>) -> Proof<Option<Access<'k>>> {
        let (ptr, write) = match &site.op.kind {
            OpKind::Load { ptr, .. } | OpKind::LoadBlock { ptr, .. } => (*ptr, false),
            OpKind::Store { ptr, .. } | OpKind::StoreBlock { ptr, .. } => (*ptr, true),
            _ => return Ok(None),
        };
        let shape = self.runs[side.index()].shape(ptr);
        let lanes = self.lanes(shape);
        self.access_at(side, site, &lanes, write).map(Some)
    }

    /// The access of a load or store at the given lanes.
    pub fn access_at(&mut self, side: Side, site: &Site<'k>, lanes: &[Term], write: bool) -> Proof<Access<'k>> {
        let (run, t) = (&mut self.runs[side.index()], &mut self.t);
        let mut guard = site.guard.clone();
        let mut unchecked = vec![];
        let (param, offset) = match &site.op.kind {
            OpKind::Load { ptr, mask, .. } | OpKind::Store { ptr, mask, .. } => {
                if let Some(m) = mask {
                    guard.push(run.int(t, *m, lanes, &site.env)?);
                }
                let at = run.address(t, *ptr, lanes, &site.env)?;
                (at.param, at.offset)
            }
            OpKind::LoadBlock { ptr, check, .. } | OpKind::StoreBlock { ptr, check, .. } => {
                let block = run.block(t, *ptr, &site.env)?;
                if block.offsets.len() != lanes.len() {
                    return self.fail(
                        Obligation::Subset,
                        site.op.line,
                        "a lane has a coordinate on each axis of its block",
                    );
                }
                let zero = t.int(0);
                let mut offset = block.base;
                for (axis, lane) in lanes.iter().enumerate() {
                    let at = t.add(block.offsets[axis], *lane);
                    let inside = t.within(zero, at, block.shape[axis]);
                    if check.contains(&axis) {
                        guard.push(inside);
                    } else {
                        unchecked.push(inside);
                    }
                    let moved = t.mul(at, block.strides[axis]);
                    offset = t.add(offset, moved);
                }
                (block.param, offset)
            }
            _ => return self.fail(Obligation::Subset, site.op.line, "not an access"),
        };
        Ok(Access { site: site.clone(), write, param, offset, lanes: lanes.to_vec(), guard, unchecked })
    }

    /// An offset as a quotient and a rest by an extent that is made of a dimension. The rest is proved to lie from 0 to below
    /// the extent, which makes the two unique. It fails if that is not proved.
    fn split(&mut self, side: Side, offset: Term, of: Scaled) -> Proof<(Term, Term)> {
        let name = self.runs[side.index()].problem.numbers[of.number].name.clone();
        let Some(symbol) = self.runs[side.index()].world.numbers[of.number] else {
            return self.fail(Obligation::Subset, Line::default(), "an extent is no integer");
        };
        let (q, r) = self.t.divided_by(offset, of.times, symbol);
        let (zero, n) = (self.t.int(0), self.t.scale(symbol, of.times));
        let inside = self.t.within(zero, r, n);
        if self.holds(inside, || format!("a coordinate of an offset lies below {} * {name}", of.times))? {
            return Ok((q, r));
        }
        let why =
            format!("a coordinate is not shown to lie from 0 to below {} * {name}: it may be in another row", of.times);
        self.fail(Obligation::InBounds, Line::default(), why)
    }

    /// True if an inner extent is made of a dimension: then offsets are compared by their coordinates alone.
    pub fn by_coordinates(&self, side: Side, param: usize) -> bool {
        self.runs[side.index()].problem.buffers[param].dims[1..].iter().any(|dim| matches!(dim, Dim::Of(_)))
    }

    /// An offset as coordinates in its buffer, outermost first. Exact: the offset is their row-major
    /// combination, and all but the outermost are in range where the offset is in the buffer.
    pub fn coordinates(&mut self, side: Side, param: usize, offset: Term) -> Proof<Vec<Term>> {
        let dims = self.runs[side.index()].problem.buffers[param].dims.clone();
        let mut out = vec![];
        let mut rest = offset;
        for dim in dims[1..].iter().rev() {
            let n = match *dim {
                Dim::Const(n) => n,
                Dim::Of(of) => {
                    let (q, r) = self.split(side, rest, of)?;
                    out.push(r);
                    rest = q;
                    continue;
                }
                _ => return self.fail(Obligation::Subset, Line::default(), "an inner extent is not constant"),
            };
            let (q, r) = self.t.parts(rest, n);
            let (zero, n_term) = (self.t.int(0), self.t.int(n));
            let inside = self.t.within(zero, r, n_term);
            if self.holds(inside, || format!("a coordinate of an offset lies below {n}"))? {
                out.push(r);
                rest = q;
            } else {
                out.push(self.t.rem(rest, n));
                rest = self.t.div(rest, n);
            }
        }
        out.push(rest);
        out.reverse();
        Ok(out)
    }

    /// Where stores go. Each is asked once, under its own conditions, and not once for each store with which it is compared.
    pub(crate) fn placed<'a>(&mut self, side: Side, stores: &'a [Access<'k>]) -> Proof<Vec<Placed<'a, 'k>>> {
        let place = |access: &'a Access<'k>| {
            let cell = self.under(&access.guard, |p| p.coordinates(side, access.param, access.offset))?;
            Ok(Placed { access, cell })
        };
        stores.iter().map(place).collect()
    }
}
