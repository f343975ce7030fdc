//! Layers whose pages carry a state: which entry a cell belongs to, and which entry a value that a loop carries is.
//!
//! A store that looks back may assume that the two runs have the same earlier entries *after* the launch. So a value is
//! compared by the entry that it is. Three facts of one run say that: what the launch stores in a cell stays there, because
//! `unary.rs` shows one writer; what it reads of a cell stays there too, because it reads no cell that it writes; and a
//! carried lane is what the last iteration that changed it gave. `docs/kernel-verification.md` has the whole argument.
//! Read next: [`crate::memory`], for cells that are read in both runs.

use crate::equal::{At, Mode};
use crate::problem::Axis;
use crate::prover::{Access, Prover, Side, Site};
use crate::run::Def;
use crate::term::Term;
use crate::verdict::{Obligation, Proof, Trouble};
use std::collections::HashMap;
use vosti_contract::{Role, Shape};
use vosti_tile::{Op, OpKind, Value};

/// A cell of an entry, reached through the page table of a tile's request.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub role: Role,
    pub tile: Term,
    /// The physical page.
    pub page: Term,
    /// The page's place in the request.
    pub logical: Term,
    /// The entry's place in its page.
    pub place: Term,
    /// The position to which the entry belongs.
    pub position: Term,
    /// The coordinates within the entry.
    pub rest: Vec<Term>,
}

/// What a value is, after all that one run alone says of it.
enum Found {
    /// The cell of an entry, as it is after the launch.
    Entry(Slot),
    Value(At),
}

type Cases = Vec<(Vec<Term>, Found)>;

/// Values that are followed from one to the next.
const DEPTH_MAX: usize = 24;

/// The conditions that both stores write the chosen row's entry. The core says that no other row has its slot.
pub(crate) fn chosen_slots(p: &mut Prover, a: &Access, b: &Access) -> Proof<Vec<Term>> {
    let (mut facts, mut rests) = (vec![], vec![]);
    for (side, store) in [(Side::L, a), (Side::R, b)] {
        let role = p.runs[side.index()].problem.buffers[store.param].role;
        let slots = p.slot(side, store.param, store.offset)?.zip(p.chosen_slot(side, role));
        let Some((own, chosen)) = slots else {
            return p.fail(Obligation::Subset, store.site.op.line, "the page does not come from the page table");
        };
        facts.push(p.t.eq(own.page, chosen.page));
        facts.push(p.t.eq(own.place, chosen.place));
        facts.push(p.distinct_slots(side, &own, &chosen));
        facts.extend(p.named(side, role));
        rests.push(own.rest);
    }
    for (x, y) in rests[0].iter().zip(&rests[1]) {
        facts.push(p.t.eq(*x, *y));
    }
    Ok(facts)
}

/// The stored values in the words of the chosen rows: a store of an entry is shown to be made by the row's own tile, in the
/// iteration of its position, and these terms take the place of the program's and the iteration's in all that is assumed.
pub(crate) fn settled<'k>(p: &mut Prover<'k, '_>, a: &Access<'k>, b: &Access<'k>, values: [At; 2]) -> Proof<[At; 2]> {
    let mut map = HashMap::new();
    for (side, store) in [(Side::L, a), (Side::R, b)] {
        for (unknown, term) in p.own_iteration(side, store)? {
            let same = p.t.eq(unknown, term);
            if p.holds(same, || "the chosen entry is stored by its own tile, in its position's iteration".into())? {
                map.insert(unknown, term);
            }
        }
    }
    if !map.is_empty() {
        let context = std::mem::take(&mut p.context);
        let context: Vec<Term> = context.into_iter().map(|term| p.t.substitute(term, &map)).collect();
        p.context = context.into_iter().filter(|term| p.t.as_bool(*term) != Some(true)).collect();
    }
    Ok(values.map(|mut at| {
        at.env.pids = at.env.pids.map(|pid| p.t.substitute(pid, &map));
        at.env.loops.iter_mut().for_each(|(_, done)| *done = p.t.substitute(*done, &map));
        at
    }))
}

impl<'k> Prover<'k, '_> {
    /// The cell at an offset; None if its page is not one entry of one tile's page table.
    pub(crate) fn slot(&mut self, side: Side, param: usize, offset: Term) -> Proof<Option<Slot>> {
        let problem = self.runs[side.index()].problem;
        let (role, Some(size)) = (problem.buffers[param].role, problem.premises.page()) else { return Ok(None) };
        // Where the guard holds, a masked page number is the loaded one.
        let held = self.held();
        let offset = self.t.substitute(offset, &held);
        let c = self.coordinates(side, param, offset)?;
        let world = self.runs[side.index()].world.clone();
        let Some((page, index)) = world.applications(&self.t, Role::PageTable, &[c[0]]).pop() else { return Ok(None) };
        let tables = world.applications(&self.t, Role::TileTable, &[index]);
        let ([(table, tile)], true) = (&tables[..], page == c[0]) else { return Ok(None) };
        let logical = self.t.sub(index, *table);
        let (place, rest) = match role {
            Role::Entry(_) => {
                let mut rest = c[1..].to_vec();
                (rest.remove(rest.len() - 2), rest)
            }
            _ => (self.t.int(size - 1), c[1..].to_vec()),
        };
        let first = self.t.scale(logical, size);
        let position = self.t.add(first, place);
        Ok(Some(Slot { role, tile: *tile, page, logical, place, position, rest }))
    }

    /// What is assumed, as a map to true.
    fn held(&mut self) -> HashMap<Term, Term> {
        let (yes, context) = (self.t.bool(true), self.context.clone());
        let all = self.t.and(&context);
        self.t.conjuncts(all).into_iter().map(|held| (held, yes)).collect()
    }

    /// The cell that the contract compares: the chosen row's, in the page that its request's table names.
    pub(crate) fn chosen_slot(&mut self, side: Side, role: Role) -> Option<Slot> {
        let size = self.runs[side.index()].problem.premises.page()?;
        let (tile, position) = (self.chosen[side.index()].tile?, self.chosen[side.index()].position?);
        let world = self.runs[side.index()].world.clone();
        let table = world.read(&mut self.t, Role::TileTable, tile)?;
        let (logical, place) = (self.t.div(position, size), self.t.rem(position, size));
        let index = self.t.add(table, logical);
        let page = world.read(&mut self.t, Role::PageTable, index)?;
        Some(Slot { role, tile, page, logical, place, position, rest: vec![] })
    }

    /// The condition that a cell belongs to an entry of a row of this launch.
    pub(crate) fn of_a_row(&mut self, side: Side, slot: &Slot) -> Term {
        let world = self.runs[side.index()].world.clone();
        let zero = self.t.int(0);
        let exists = self.t.within(zero, slot.tile, world.tiles);
        let (start, rows) =
            (world.at(&mut self.t, Role::TilePos, slot.tile), world.at(&mut self.t, Role::TileRows, slot.tile));
        let end = self.t.add(start, rows);
        let live = self.t.within(start, slot.position, end);
        self.t.and(&[exists, live])
    }

    /// The condition that a cell belongs to an entry before the rows of its tile, which has rows, of the page before or later.
    pub(crate) fn before_the_rows(&mut self, side: Side, slot: &Slot, size: i128) -> Term {
        let world = self.runs[side.index()].world.clone();
        let zero = self.t.int(0);
        let exists = self.t.within(zero, slot.tile, world.tiles);
        let (start, rows) =
            (world.at(&mut self.t, Role::TilePos, slot.tile), world.at(&mut self.t, Role::TileRows, slot.tile));
        let used = self.t.lt(zero, rows);
        let oldest = self.t.add_int(start, -size);
        let oldest = self.t.max(zero, oldest);
        let earlier = self.t.within(oldest, slot.position, start);
        self.t.and(&[exists, used, earlier])
    }

    /// No two rows of a launch have one slot: a fact of the core about these two cells.
    pub(crate) fn distinct_slots(&mut self, side: Side, a: &Slot, b: &Slot) -> Term {
        let (live, other) = (self.of_a_row(side, a), self.of_a_row(side, b));
        let (page, place) = (self.t.eq(a.page, b.page), self.t.eq(a.place, b.place));
        let one = self.t.and(&[live, other, page, place]);
        let (tile, logical) = (self.t.eq(a.tile, b.tile), self.t.eq(a.logical, b.logical));
        let same = self.t.and(&[tile, logical]);
        self.t.implies(one, same)
    }

    /// A store goes to the entry of a row of its tile; a state goes to the entry of the page's last row.
    pub(crate) fn own_entry(&mut self, side: Side, store: &Access<'k>) -> Proof {
        let line = store.site.op.line;
        self.under(&store.guard.clone(), |p| {
            let Some(slot) = p.slot(side, store.param, store.offset)? else {
                return p.fail(Obligation::ExactEffect, line, "the address is not made from one tile's page table");
            };
            let own = p.of_a_row(side, &slot);
            if p.holds(own, || "a store goes to the entry of a row of its tile".into())? {
                return Ok(());
            }
            p.fail(Obligation::ExactEffect, line, "a store may go to an entry that is no row's")
        })
    }

    /// A store that looks back reads entries before its tile's rows only, which no row of the launch writes: the core keeps
    /// what a request has from earlier steps.
    pub(crate) fn earlier_entries(&mut self, side: Side, sites: &[Site<'k>]) -> Proof {
        let problem = self.runs[side.index()].problem;
        let (Shape::RecurStore, Some(size)) = (problem.shape, problem.premises.page()) else { return Ok(()) };
        for site in sites {
            let Some(load) = self.access(side, site)?.filter(|access| !access.write) else { continue };
            if !matches!(problem.buffers[load.param].role, Role::Entry(_) | Role::State(_)) {
                continue;
            }
            let line = site.op.line;
            self.under(&load.guard.clone(), |p| {
                let Some(slot) = p.slot(side, load.param, load.offset)? else {
                    return p.fail(Obligation::Separation, line, "the address is not made from one tile's page table");
                };
                let earlier = p.before_the_rows(side, &slot, size);
                if p.holds(earlier, || "an entry is read that no row of the launch writes".into())? {
                    return Ok(());
                }
                p.fail(Obligation::Separation, line, "an entry is read that the launch may write")
            })?;
        }
        Ok(())
    }

    /// Where a store's loop goes over positions: the chosen row's tile and the iteration of its position, as a guess.
    pub(crate) fn own_iteration(&mut self, side: Side, store: &Access<'k>) -> Proof<Vec<(Term, Term)>> {
        let (problem, chosen) = (self.runs[side.index()].problem, self.chosen[side.index()].clone());
        let tiles = problem.grid.iter().position(|axis| *axis == Axis::Tiles);
        let places = (tiles, chosen.tile, chosen.position, store.site.env.loops.first().copied());
        let (Shape::RecurStore, (Some(axis), Some(tile), Some(position), Some((index, done)))) =
            (problem.shape, places)
        else {
            return Ok(vec![]);
        };
        let Def::Index(op) = self.runs[side.index()].def(index) else { return Ok(vec![]) };
        let (run, t) = self.run(side);
        let lo = run.trip(t, op, &store.site.env)?.lo;
        let own = (store.site.env.pids[axis], tile);
        let lo = self.t.substitute(lo, &HashMap::from([own]));
        Ok(vec![own, (done, self.t.sub(position, lo))])
    }

    /// The condition that the contract calls two cells equal: of one entry of the chosen rows' requests that the row sees. A
    /// store sees those before its own.
    pub(crate) fn same_slot(&mut self, l: &Slot, r: &Slot) -> Vec<Term> {
        let chosen = [0, 1].map(|side| self.chosen[side].tile.zip(self.chosen[side].position));
        let ([Some((left, position)), Some((right, _))], Some(size)) = (chosen, self.runs[0].problem.premises.page())
        else {
            return vec![self.t.bool(false)];
        };
        if l.role != r.role || l.rest.len() != r.rest.len() {
            return vec![self.t.bool(false)];
        }
        let mut goal = vec![self.t.eq(l.tile, left), self.t.eq(r.tile, right), self.t.eq(l.position, r.position)];
        for (x, y) in l.rest.iter().zip(&r.rest) {
            goal.push(self.t.eq(*x, *y));
        }
        let zero = self.t.int(0);
        let oldest = self.t.add_int(position, -size);
        goal.push(self.t.le(zero, l.position));
        goal.push(self.t.le(oldest, l.position));
        goal.push(match self.runs[0].problem.shape {
            Shape::RecurStore => self.t.lt(l.position, position),
            _ => self.t.le(l.position, position),
        });
        goal
    }

    /// Two values that a store's loops carry are one entry that the contract calls equal, in each case of the two runs.
    pub(crate) fn equal_entries(&mut self, l: &At, r: &At, mode: Mode) -> Proof {
        let (left, right) = (self.entry(Side::L, l, 0)?, self.entry(Side::R, r, 0)?);
        let line = self.runs[0].line(l.v);
        for (when, a) in &left {
            for (also, b) in &right {
                let cases = [&when[..], &also[..]].concat();
                self.under(&cases, |p| match (a, b) {
                    (Found::Entry(a), Found::Entry(b)) => {
                        for same in p.same_slot(a, b) {
                            if !p.holds(same, || "the carried values are one earlier entry of the request".into())? {
                                let why = "a carried value is an entry about which the contract says nothing";
                                return p.fail(Obligation::Dependency, line, why);
                            }
                        }
                        Ok(())
                    }
                    (Found::Value(a), Found::Value(b)) if (a.v, b.v) != (l.v, r.v) => p.equal(a, b, mode),
                    _ => p.fail(
                        Obligation::Alignment,
                        line,
                        "a value that the loop carries is no earlier entry of the request",
                    ),
                })?;
            }
        }
        Ok(())
    }

    /// What a value is, in each case that can happen.
    fn entry(&mut self, side: Side, at: &At, depth: usize) -> Proof<Cases> {
        self.work()?;
        if depth > DEPTH_MAX {
            return Ok(vec![(vec![], Found::Value(at.clone()))]);
        }
        if let Some(slot) = self.stored(side, at)? {
            return Ok(vec![(vec![], Found::Entry(slot))]);
        }
        let (op, result) = match self.runs[side.index()].def(at.v) {
            Def::Op(op, result) => (op, result),
            Def::Arg(op, k) => return self.carried(side, op, k, at, depth),
            _ => return Ok(vec![(vec![], Found::Value(at.clone()))]),
        };
        let (run, t) = self.run(side);
        if let Some((x, idx)) = run.moved(t, &op.kind, &at.idx) {
            return self.entry(side, &at.with(x, idx), depth + 1);
        }
        let (cond, yes, no) = match &op.kind {
            OpKind::Select { cond, a, b } if !self.compares_floats(side, *cond) => (*cond, *a, *b),
            OpKind::If { cond, then, otherwise } => (*cond, then.yields[result], otherwise.yields[result]),
            OpKind::Load { .. } => return self.loaded(side, op, at, depth),
            _ => return Ok(vec![(vec![], Found::Value(at.clone()))]),
        };
        let idx = if self.runs[side.index()].shape(cond).is_empty() { vec![] } else { at.idx.clone() };
        let (run, t) = self.run(side);
        let cond = run.int(t, cond, &idx, &at.env)?;
        let not = self.t.not(cond);
        self.each(&[(cond, at.same_lane(yes)), (not, at.same_lane(no))], |p, at| p.entry(side, at, depth + 1))
    }

    fn compares_floats(&self, side: Side, cond: Value) -> bool {
        matches!(self.runs[side.index()].def(cond), Def::Op(op, _) if matches!(op.kind, OpKind::CmpFloat { .. }))
    }

    /// The cases of each alternative that can happen, under its condition.
    fn each(&mut self, ways: &[(Term, At)], mut body: impl FnMut(&mut Self, &At) -> Proof<Cases>) -> Proof<Cases> {
        let mut all = vec![];
        for (when, at) in ways {
            let len = self.context.len();
            self.context.push(*when);
            let found = match self.impossible() {
                Ok(true) => Ok(vec![]),
                Ok(false) => body(self, at),
                Err(other) => Err(other),
            };
            self.context.truncate(len);
            all.extend(found?.into_iter().map(|(also, found)| ([&[*when], &also[..]].concat(), found)));
        }
        Ok(all)
    }

    /// The cell to which this value is stored in this iteration, if it is. What an iteration stores stays: the contract's
    /// single writer.
    fn stored(&mut self, side: Side, at: &At) -> Proof<Option<Slot>> {
        let Some((index, _)) = at.env.loops.last().copied() else { return Ok(None) };
        let Def::Index(Op { kind: OpKind::For { body, .. }, .. }) = self.runs[side.index()].def(index) else {
            return Ok(None);
        };
        let mut sites: Vec<Site<'k>> = vec![];
        self.collect(side, &body.ops, &at.env, &[], &mut sites)?;
        for site in sites.iter().filter(|site| site.env == at.env) {
            let OpKind::Store { value, .. } = &site.op.kind else { continue };
            if *value != at.v {
                continue;
            }
            let store = self.access_at(side, site, &at.idx, true)?;
            if let Some(slot) = self.under_guard(side, &store)? {
                return Ok(Some(slot));
            }
        }
        Ok(None)
    }

    /// The entry's cell of an access that is made; None if that is not shown, or if it goes elsewhere.
    fn under_guard(&mut self, side: Side, access: &Access<'k>) -> Proof<Option<Slot>> {
        let role = self.runs[side.index()].problem.buffers[access.param].role;
        let made = self.t.and(&access.guard);
        match matches!(role, Role::Entry(_) | Role::State(_))
            && self.holds(made, || "an entry is accessed here".into())?
        {
            true => self.slot(side, access.param, access.offset),
            false => Ok(None),
        }
    }

    /// A load of an entry's cell is the cell as it is after the launch, because no cell is read that the launch writes.
    fn loaded(&mut self, side: Side, op: &'k Op, at: &At, depth: usize) -> Proof<Cases> {
        let site = Site { op, env: at.env.clone(), guard: vec![] };
        let load = self.access_at(side, &site, &at.idx, false)?;
        let made = self.t.and(&load.guard);
        let not = self.t.not(made);
        let other = match &op.kind {
            OpKind::Load { other: Some(other), .. } => at.same_lane(*other),
            _ => at.clone(),
        };
        self.each(&[(made, at.clone()), (not, other)], |p, way| {
            if way.v != at.v {
                return p.entry(side, way, depth + 1);
            }
            Ok(vec![(
                vec![],
                match p.under_guard(side, &load)? {
                    Some(slot) => Found::Entry(slot),
                    None => Found::Value(at.clone()),
                },
            )])
        })
    }

    /// What a loop carries at a lane when an iteration begins: what the last iteration before it that changed the lane gave,
    /// or what the loop began with. Which iteration that is, is a guess that the solver checks.
    fn carried(&mut self, side: Side, op: &'k Op, k: usize, at: &At, depth: usize) -> Proof<Cases> {
        let unknown = Ok(vec![(vec![], Found::Value(at.clone()))]);
        let OpKind::For { index, args, inits, body, .. } = &op.kind else { return unknown };
        let (Some(done), Some(size)) = (at.env.iteration(*index), self.runs[side.index()].problem.premises.page())
        else {
            return unknown;
        };
        let (run, t) = self.run(side);
        let trip = run.trip(t, op, &at.env)?;
        if trip.step != 1 {
            return unknown;
        }
        let (zero, around) = (self.t.int(0), at.env.outside(*index));
        for last in self.guesses(trip.lo, done, &at.idx, size) {
            let happened = self.t.le(zero, last);
            let before = self.t.lt(last, done);
            if !self.holds(before, || "an iteration before this one".into())? {
                continue;
            }
            let since = self.t.fresh("iteration", (Some(0), None));
            let next = self.t.lt(last, since);
            let earlier = self.t.lt(since, done);
            let later = around.inside(*index, since);
            let kept = At::new(body.yields[k], at.idx.clone(), &later);
            match self.under(&[next, earlier], |p| p.unchanged(side, &kept, args[k], Mode::Exact)) {
                Ok(()) => {}
                Err(Trouble::Failed(_)) => continue,
                Err(other) => return Err(other),
            }
            let never = self.t.not(happened);
            // A name for the iteration, of which the solver knows at once that it is not negative.
            let named = self.t.fresh("last", (Some(0), None));
            let happened = self.t.eq(named, last);
            let given = At::new(body.yields[k], at.idx.clone(), &around.inside(*index, named));
            let initial = At::new(inits[k], at.idx.clone(), &around);
            let Some(given) = self.given(side, happened, given, args[k])? else { continue };
            return self.each(&[(happened, given), (never, initial)], |p, way| p.entry(side, way, depth + 1));
        }
        unknown
    }

    /// The value that an iteration gives a lane, if it certainly changes the lane.
    fn given(&mut self, side: Side, happened: Term, at: At, arg: Value) -> Proof<Option<At>> {
        self.context.push(happened);
        let mut at = at;
        let changed = loop {
            match self.taken(side, &at) {
                Ok(Some(taken)) => at = taken,
                Ok(None) => break Ok(()),
                Err(other) => break Err(other),
            }
        };
        self.context.pop();
        changed?;
        let kept = match self.runs[side.index()].def(at.v) {
            Def::Op(Op { kind: OpKind::Select { a, b, .. }, .. }, _) => [*a, *b].contains(&arg),
            Def::Op(Op { kind: OpKind::If { then, otherwise, .. }, .. }, result) => {
                [then.yields[result], otherwise.yields[result]].contains(&arg)
            }
            _ => at.v == arg,
        };
        Ok((!kept).then_some(at))
    }

    /// Iterations that may have changed a lane last, by the number that were finished: the one before, the last one of the page
    /// before, and the one of the page's place with the lane's number, on each axis.
    fn guesses(&mut self, lo: Term, done: Term, idx: &[Term], size: i128) -> Vec<Term> {
        let here = self.t.add(lo, done);
        let place = self.t.rem(here, size);
        let page = self.t.sub(done, place);
        let mut guesses = vec![self.t.add_int(done, -1), self.t.add_int(page, -1)];
        guesses.extend(idx.iter().map(|lane| self.t.add(page, *lane)));
        guesses
    }
}
