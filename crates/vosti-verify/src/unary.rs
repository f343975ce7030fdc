//! Obligations of one invocation: no wrap-around, accesses in bounds, coverage, one writer, exact effect.
//!
//! They come first, because the relational argument treats integers as mathematical and metadata as in range. This module
//! justifies that, operation by operation in program order.

use crate::integers::range;
use crate::premises::Premises;
use crate::problem::Dim;
use crate::prover::{Access, Prover, Side, Site};
use crate::run::WRAPPED;
use crate::solve::{equalled, witness};
use crate::term::{Node, Term};
use crate::verdict::{Obligation, Proof, Trouble};
use std::collections::HashMap;
use vosti_contract::{Role, Shape};
use vosti_tile::{Binary, Cast, Line, OpKind, Padding, Scalar, Value};

impl<'k> Prover<'k, '_> {
    /// All obligations of one run.
    pub fn unary(&mut self, side: Side) -> Proof {
        self.separation(side)?;
        // A value that may wrap is found in one pass, and in the next one nothing is known of it.
        let sites = loop {
            let known = self.runs[side.index()].wrapping().len();
            let pids = self.program(side);
            let sites = self.sites(side, pids)?;
            for site in &sites {
                self.no_wrap(side, site)?;
                self.in_bounds(side, site)?;
            }
            if self.runs[side.index()].wrapping().len() == known {
                break sites;
            }
        };
        let wrapping = self.runs[side.index()].wrapping().len();
        self.tell(match wrapping {
            0 => "no integer operation wraps; every access is in bounds".to_string(),
            n => format!("{n} integer operations may wrap, and no access depends on them; every access is in bounds"),
        });
        self.earlier_entries(side, &sites)?;
        let stores = self.stores(side, &sites)?;
        for store in &stores {
            self.exact_effect(side, store)?;
            self.finite_store(side, store)?;
        }
        self.coverage(side, &stores)?;
        let others = self.program(side);
        let others = self.sites(side, others)?;
        let others = self.stores(side, &others)?;
        self.single_writer(side, &stores, &others)
    }

    /// A kernel reads inputs and writes outputs; nothing is both.
    fn separation(&mut self, side: Side) -> Proof {
        let pids = self.program(side);
        let sites = self.sites(side, pids)?;
        let shape = self.runs[side.index()].problem.shape;
        for site in &sites {
            let Some(access) = self.access(side, site)? else {
                continue;
            };
            let buffer = &self.runs[side.index()].problem.buffers[access.param];
            // A store that looks back reads entries too, and no cell that it writes: `earlier_entries` shows that.
            let looks_back = shape == Shape::RecurStore && matches!(buffer.role, Role::Entry(_) | Role::State(_));
            if shape.writes(buffer.role) != access.write && !looks_back {
                let what = if access.write { "written, but is an input" } else { "read, but is an output" };
                let why = format!("`{}` is {what}", buffer.name);
                return self.fail(Obligation::Separation, site.op.line, why);
            }
        }
        Ok(())
    }

    pub fn stores(&mut self, side: Side, sites: &[Site<'k>]) -> Proof<Vec<Access<'k>>> {
        let mut stores = vec![];
        for site in sites {
            if matches!(site.op.kind, OpKind::Store { .. } | OpKind::StoreBlock { .. }) {
                stores.extend(self.access(side, site)?);
            }
        }
        Ok(stores)
    }

    fn no_wrap(&mut self, side: Side, site: &Site<'k>) -> Proof {
        let line = site.op.line;
        match &site.op.kind {
            OpKind::Binary { op, b, .. } if !op.is_float() => {
                if matches!(op, Binary::DivS | Binary::RemS | Binary::DivU | Binary::RemU) {
                    self.divisor(side, site, *b)?;
                }
                use Binary::*;
                if matches!(op, Add | Sub | Mul | MaxS | MinS | DivS | RemS | Shl) {
                    return self.fits(side, site, site.op.results[0]);
                }
                Ok(())
            }
            OpKind::Cast { op: Cast::Trunc, to, .. } if *to != Scalar::I1 => self.fits(side, site, site.op.results[0]),
            OpKind::For { hi, .. } => {
                let (run, t) = self.run(side);
                let trip = run.trip(t, site.op, &site.env)?;
                let elem = run.problem.kernel.ty(*hi).elem();
                let end = t.add_int(trip.hi, trip.step);
                self.in_range(site, end, elem, line)
            }
            OpKind::MakeBlock { .. } | OpKind::Advance { .. } => {
                let (run, t) = self.run(side);
                let block = run.block(t, site.op.results[0], &site.env)?;
                for offset in block.offsets {
                    self.in_range(site, offset, Scalar::I32, line)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn fits(&mut self, side: Side, site: &Site<'k>, v: Value) -> Proof {
        let run = &self.runs[side.index()];
        let (shape, elem) = (run.shape(v), run.problem.kernel.ty(v).elem());
        if elem == Scalar::I1 {
            return Ok(());
        }
        let lanes = self.lanes(shape);
        let (run, t) = self.run(side);
        let term = run.int(t, v, &lanes, &site.env)?;
        match self.in_range(site, term, elem, site.op.line) {
            Err(Trouble::Failed(failure)) if failure.obligation == Obligation::NoWrap => {
                self.runs[side.index()].wraps(v);
                self.wrapped.get_or_insert(failure);
                Ok(())
            }
            other => other,
        }
    }

    /// An integer that may wrap must not decide where an access goes or whether it is made: compilers take an address's lanes
    /// for consecutive numbers.
    fn no_wrapped_access(&self, access: &Access<'k>) -> Proof {
        let Some(failure) = &self.wrapped else { return Ok(()) };
        let roots = [&access.guard[..], &access.unchecked[..], &[access.offset]].concat();
        let wraps = |t: &Term| matches!(self.t.node(*t), Node::Var { name, .. } if name.starts_with(WRAPPED));
        match self.t.reachable(&roots).iter().any(wraps) {
            true => Err(Trouble::Failed(failure.clone())),
            false => Ok(()),
        }
    }

    fn in_range(&mut self, site: &Site<'k>, term: Term, elem: Scalar, line: Line) -> Proof {
        let (Some(lo), Some(hi)) = range(elem) else {
            return Ok(());
        };
        let (lo, hi) = (self.t.int(lo), self.t.int(hi));
        let (above, below) = (self.t.le(lo, term), self.t.le(term, hi));
        let fits = self.t.and(&[above, below]);
        let guard = site.guard.clone();
        self.under(&guard, |p| {
            if p.holds(fits, || format!("an {elem} value does not wrap"))? {
                return Ok(());
            }
            let why = format!("the result may leave {elem} within the declared bounds");
            p.fail(Obligation::NoWrap, line, why)
        })
    }

    fn divisor(&mut self, side: Side, site: &Site<'k>, v: Value) -> Proof {
        let shape = self.runs[side.index()].shape(v);
        let lanes = self.lanes(shape);
        let (run, t) = self.run(side);
        let term = run.int(t, v, &lanes, &site.env)?;
        let zero = self.t.int(0);
        let is_zero = self.t.eq(term, zero);
        let nonzero = self.t.not(is_zero);
        let (guard, line) = (site.guard.clone(), site.op.line);
        self.under(&guard, |p| {
            if p.holds(nonzero, || "a divisor is not zero".into())? {
                return Ok(());
            }
            p.fail(Obligation::NoWrap, line, "the divisor may be zero")
        })
    }

    fn in_bounds(&mut self, side: Side, site: &Site<'k>) -> Proof {
        let Some(access) = self.access(side, site)? else {
            return Ok(());
        };
        self.no_wrapped_access(&access)?;
        if let OpKind::LoadBlock { check, padding, .. } = &site.op.kind
            && !check.is_empty()
            && *padding == Padding::Undefined
        {
            return self.fail(
                Obligation::Undefined,
                site.op.line,
                "a boundary-checked load has no padding_option: lanes outside are arbitrary",
            );
        }
        let buffer = self.runs[side.index()].problem.buffers[access.param].clone();
        let world = self.runs[side.index()].world.clone();
        if self.by_coordinates(side, access.param) {
            let outer = world.dim(&mut self.t, buffer.dims[0]);
            return self.in_rows(side, &access, outer);
        }
        let size = world.size(&mut self.t, &buffer);
        let zero = self.t.int(0);
        let mut inside = self.t.within(zero, access.offset, size);
        if let Dim::Splits(keys) = buffer.dims[0] {
            // Equivalent, and easier for the solver: inner coordinates are below their extents by construction.
            let outer = self.under(&access.guard.clone(), |p| {
                Ok(p.coordinates(side, access.param, access.offset)?.first().copied())
            })?;
            if let Some(outer) = outer {
                let splits = world.dim(&mut self.t, Dim::Splits(keys));
                inside = self.t.within(zero, outer, splits);
            }
        }
        let axes = self.t.and(&access.unchecked);
        let line = site.op.line;
        let name = buffer.name.clone();
        let both = self.t.and(&[axes, inside]);
        self.under(&access.guard.clone(), |p| {
            if p.holds(both, || format!("an access to `{name}` is inside it"))? {
                return Ok(());
            }
            let why = if p.holds(axes, || "lanes of unchecked axes are inside the block's shape".into())? {
                format!("an access to `{name}` may lie outside of it")
            } else {
                format!("an axis of `{name}` that is not boundary-checked may leave the block's shape")
            };
            p.fail(Obligation::InBounds, line, why)
        })
    }

    /// The bounds of an access where extents are made of dimensions. Splitting the offset proves all coordinates but the
    /// outermost in range; here the outermost is proved to be below its extent.
    fn in_rows(&mut self, side: Side, access: &Access<'k>, outer: Term) -> Proof {
        let (axes, line) = (self.t.and(&access.unchecked), access.site.op.line);
        let name = self.runs[side.index()].problem.buffers[access.param].name.clone();
        self.under(&access.guard.clone(), |p| {
            if !p.holds(axes, || "lanes of unchecked axes are inside the block's shape".into())? {
                let why = format!("an axis of `{name}` that is not boundary-checked may leave the block's shape");
                return p.fail(Obligation::InBounds, line, why);
            }
            p.under(&access.unchecked.clone(), |p| {
                let c = p.coordinates(side, access.param, access.offset).map_err(|trouble| trouble.at(line))?;
                let zero = p.t.int(0);
                let inside = p.t.within(zero, c[0], outer);
                if p.holds(inside, || format!("an access to `{name}` is inside it"))? {
                    return Ok(());
                }
                p.fail(Obligation::InBounds, line, format!("an access to `{name}` may lie outside of it"))
            })
        })
    }

    /// A store lies in a cell that the contract names.
    fn exact_effect(&mut self, side: Side, store: &Access<'k>) -> Proof {
        let problem = self.runs[side.index()].problem;
        let role = problem.buffers[store.param].role;
        if let (Role::Out(_), Some(early)) = (role, problem.shape.early_rows(role)) {
            return self.own_row(side, store, early);
        }
        if problem.shape == Shape::RecurStore {
            return self.own_entry(side, store);
        }
        if !role.is_cache() {
            return Ok(()); // rows of the output are what the contract names: in bounds is enough
        }
        let line = store.site.op.line;
        let world = self.runs[side.index()].world.clone();
        let slots = world.applications(&self.t, Role::Slots, &[store.offset]);
        let [(slot, row)] = slots[..] else {
            return self.fail(Obligation::ExactEffect, line, "the address is not made from one row's slot");
        };
        let Some(page) = problem.premises.page() else {
            return self.fail(Obligation::ExactEffect, line, "the cache has no pages");
        };
        self.under(&store.guard.clone(), |p| {
            let c = p.coordinates(side, store.param, store.offset)?;
            let (number, within) = (p.t.div(slot, page), p.t.rem(slot, page));
            let zero = p.t.int(0);
            let live = p.t.within(zero, row, world.rows);
            let (same_page, same_place) = (p.t.eq(c[0], number), p.t.eq(c[2], within));
            let goal = p.t.and(&[live, same_page, same_place]);
            if p.holds(goal, || "a store goes to the slot of a live row".into())? {
                return Ok(());
            }
            p.fail(Obligation::ExactEffect, line, "a store may go to a cell that is not the slot of its row")
        })
    }

    /// A store goes to a row of its tile whose position is on the contract's side of the first split's end. The other
    /// launch writes the rows on the other side.
    fn own_row(&mut self, side: Side, store: &Access<'k>, early: bool) -> Proof {
        let line = store.site.op.line;
        let role = self.runs[side.index()].problem.buffers[store.param].role;
        let world = self.runs[side.index()].world.clone();
        let firsts = world.applications(&self.t, Role::TileRow, &[store.offset]);
        let [(first, tile)] = firsts[..] else {
            return self.fail(Obligation::ExactEffect, line, "the address is not made from one tile's first row");
        };
        self.under(&store.guard.clone(), |p| {
            let c = p.coordinates(side, store.param, store.offset)?;
            let lane = p.t.sub(c[0], first);
            let [rows, start] = [Role::TileRows, Role::TilePos].map(|role| world.read(&mut p.t, role, tile));
            let (Some(rows), Some(start)) = (rows, start) else {
                return p.fail(Obligation::Subset, line, "no tiles");
            };
            let (zero, position) = (p.t.int(0), p.t.add(start, lane));
            let live = p.t.within(zero, lane, rows);
            let shape = p.runs[side.index()].problem.shape;
            let Some(own) = world.named(&mut p.t, shape, role, position) else {
                return p.fail(Obligation::Subset, line, "no splits");
            };
            let goal = p.t.and(&[live, own]);
            let which = if early { "before" } else { "after" };
            if p.holds(goal, || format!("a store goes to a row of its tile {which} the first split's end"))? {
                return Ok(());
            }
            p.fail(Obligation::ExactEffect, line, "a store may go to a row that the op's other launch writes")
        })
    }

    /// A value stored in the cache is finite, because attention multiplies unseen values by zero.
    fn finite_store(&mut self, side: Side, store: &Access<'k>) -> Proof {
        if !self.runs[side.index()].problem.buffers[store.param].role.is_cache() {
            return Ok(());
        }
        let line = store.site.op.line;
        let (OpKind::Store { value, .. } | OpKind::StoreBlock { value, .. }) = &store.site.op.kind else {
            return Ok(());
        };
        let at = crate::equal::At::new(*value, store.lanes.clone(), &store.site.env);
        if self.small(side, &at) {
            self.tell("what is stored is at most the largest BF16, whatever the inputs");
            return Ok(());
        }
        self.fail(Obligation::Finite, line, "the cache may come to hold NaN or an infinity")
    }

    /// The cells that the contract promises: constraints, and the coordinates in `param`.
    fn promised(&mut self, side: Side, param: usize) -> (Vec<Term>, Vec<Term>) {
        let problem = self.runs[side.index()].problem;
        let world = self.runs[side.index()].world.clone();
        let chosen = self.chosen[side.index()].clone();
        let (mut inner, mut below) = (vec![], vec![]);
        let role = problem.buffers[param].role;
        let names: &[&str] = match role {
            Role::CacheK | Role::CacheV => &["head", "place", "column"],
            Role::Scratch(_) => &["row", "head", "column"],
            _ => &["column"],
        };
        for (i, dim) in problem.buffers[param].dims[1..].iter().enumerate() {
            let n = world.dim(&mut self.t, *dim);
            let name = names.get(i).unwrap_or(&"column");
            let most = self.t.bounds(n).1.map(|most| most - 1);
            let lane = self.t.fresh(name, (Some(0), most));
            if self.t.as_int(n).is_none() {
                below.push(self.t.lt(lane, n));
            }
            inner.push(lane);
        }
        let mut facts = [chosen.facts.clone(), below].concat();
        let mut outer = chosen.row;
        if let (Premises::StoreKv { page }, true) = (problem.premises, role.is_cache()) {
            let slot = world.at(&mut self.t, Role::Slots, chosen.row);
            outer = self.t.div(slot, page);
            inner[1] = self.t.rem(slot, page);
        }
        if let (Shape::RecurStore, Some(slot)) = (problem.shape, self.chosen_slot(side, role)) {
            outer = slot.page;
            if let Role::Entry(_) = role {
                let place = inner.len() - 2;
                inner[place] = slot.place;
            }
        }
        if let (Role::Scratch(_), Some(split)) = (role, chosen.split) {
            outer = split;
            inner[0] = chosen.row;
        }
        facts.extend(self.named(side, role));
        let zero = self.t.int(0);
        facts.push(self.t.le(zero, outer));
        inner.insert(0, outer);
        (facts, inner)
    }

    /// The terms by which a cell is compared: its coordinates where extents are made of dimensions, otherwise its flat offset,
    /// which is the row-major combination of the coordinates.
    fn place(&mut self, side: Side, param: usize, coordinates: &[Term]) -> Vec<Term> {
        if self.by_coordinates(side, param) {
            return coordinates.to_vec();
        }
        let dims = self.runs[side.index()].problem.buffers[param].dims.clone();
        let world = self.runs[side.index()].world.clone();
        let mut offset = coordinates[0];
        for (lane, dim) in coordinates[1..].iter().zip(&dims[1..]) {
            let n = world.dim(&mut self.t, *dim);
            offset = self.t.mul(offset, n);
            offset = self.t.add(offset, *lane);
        }
        vec![offset]
    }

    /// The condition that the contract names the chosen row's cells of a role; None where it names them of every row.
    pub fn named(&mut self, side: Side, role: Role) -> Option<Term> {
        let shape = self.runs[side.index()].problem.shape;
        let position = self.chosen[side.index()].position?;
        let world = self.runs[side.index()].world.clone();
        world.named(&mut self.t, shape, role, position)
    }

    fn coverage(&mut self, side: Side, stores: &[Access<'k>]) -> Proof {
        let problem = self.runs[side.index()].problem;
        let params: Vec<usize> =
            (0..problem.buffers.len()).filter(|i| problem.shape.writes(problem.buffers[*i].role)).collect();
        for param in params {
            let (facts, target) = self.promised(side, param);
            let target = self.place(side, param, &target);
            let mut ways = vec![];
            for store in stores.iter().filter(|s| s.param == param) {
                ways.extend(self.way(side, store, &target)?);
            }
            let any = self.t.or(&ways);
            let name = problem.buffers[param].name.clone();
            self.under(&facts, |p| {
                if p.holds(any, || format!("every cell of `{name}` that the contract names is written"))? {
                    return Ok(());
                }
                let line = stores.iter().find(|s| s.param == param).map(|s| s.site.op.line).unwrap_or_default();
                p.fail(Obligation::Coverage, line, format!("a cell of `{name}` may stay unwritten"))
            })?;
        }
        Ok(())
    }

    /// A program, iteration and lane of `store` that writes `target`, as the condition that it does.
    fn way(&mut self, side: Side, store: &Access<'k>, target: &[Term]) -> Proof<Option<Term>> {
        let mut unknowns: Vec<Term> = store.site.env.pids.to_vec();
        unknowns.extend(store.site.env.loops.iter().map(|(_, t)| *t));
        unknowns.extend(&store.lanes);
        // On an axis with one program or lane the index is a number and no unknown.
        unknowns.retain(|unknown| self.t.as_int(*unknown).is_none());
        let world = self.runs[side.index()].world.clone();
        // Where the guard holds, masked indices are the loaded ones. This is a guess, which the conditions below check.
        let yes = self.t.bool(true);
        let guard = self.t.and(&store.guard);
        let conjuncts: HashMap<Term, Term> = self.t.conjuncts(guard).into_iter().map(|g| (g, yes)).collect();
        // The offset is the row-major combination of these coordinates, so equal coordinates are the same cell.
        let place = match self.by_coordinates(side, store.param) {
            false => vec![store.offset],
            true => self.under(&store.guard.clone(), |p| p.coordinates(side, store.param, store.offset))?,
        };
        if place.len() != target.len() {
            return Ok(None); // no lane is ever written
        }
        let offsets: Vec<Term> = place.iter().map(|at| self.t.substitute(*at, &conjuncts)).collect();
        let (offsets, sought) = (self.joined(side, store.param, &offsets), self.joined(side, store.param, target));
        let mut last = HashMap::new();
        for (pid, programs) in store.site.env.pids.iter().zip(world.grid) {
            last.insert(*pid, self.t.add_int(programs, -1));
        }
        let mut map = self.own_iteration(side, store)?;
        for (offset, target) in offsets.into_iter().zip(sought) {
            let offset = self.t.substitute(offset, &map.iter().copied().collect());
            unknowns.retain(|unknown| map.iter().all(|(known, _)| known != unknown));
            let Some(more) = witness(&mut self.t, offset, target, (&unknowns, &last), &world) else {
                return Ok(None);
            };
            map.extend(more);
        }
        // On an axis that the address does not mention, the program that the guard asks for, or the first.
        for pid in store.site.env.pids {
            if unknowns.contains(&pid) && map.iter().all(|(unknown, _)| *unknown != pid) {
                let known = map.iter().copied().collect();
                let guard: Vec<Term> = store.guard.iter().map(|g| self.t.substitute(*g, &known)).collect();
                let program = equalled(&mut self.t, &guard, pid).unwrap_or_else(|| self.t.int(0));
                map.push((pid, program));
            }
        }
        self.tell_writer(side, store, &map);
        let mut conditions = vec![];
        for (unknown, term) in &map {
            let (lo, hi) = self.t.bounds(*unknown);
            if let Some(lo) = lo {
                let lo = self.t.int(lo);
                conditions.push(self.t.le(lo, *term));
            }
            if let Some(hi) = hi {
                let hi = self.t.int(hi);
                conditions.push(self.t.le(*term, hi));
            }
        }
        let map: HashMap<Term, Term> = map.into_iter().collect();
        for g in &store.guard {
            conditions.push(self.t.substitute(*g, &map));
        }
        for (at, target) in place.into_iter().zip(target) {
            let written = self.t.substitute(at, &map);
            conditions.push(self.t.eq(written, *target));
        }
        Ok(Some(self.t.and(&conditions)))
    }

    /// Coordinates, where each axis of a constant extent is joined to the axis outside of it: a lane may be a row and a place on
    /// such an axis.
    fn joined(&mut self, side: Side, param: usize, coordinates: &[Term]) -> Vec<Term> {
        let dims = self.runs[side.index()].problem.buffers[param].dims.clone();
        let mut out: Vec<Term> = vec![];
        for (i, at) in coordinates.iter().enumerate() {
            match (out.last_mut(), dims[i]) {
                (Some(outer), Dim::Const(n)) => {
                    let first = self.t.scale(*outer, n);
                    *outer = self.t.add(first, *at);
                }
                _ => out.push(*at),
            }
        }
        out
    }

    /// Tells in words which program writes a promised cell.
    fn tell_writer(&mut self, side: Side, store: &Access<'k>, map: &[(Term, Term)]) {
        let show = |p: &Self, unknown: &Term| match map.iter().find(|(u, _)| u == unknown) {
            Some((_, term)) => p.t.show(*term),
            None => p.t.show(*unknown),
        };
        let list = |p: &Self, unknowns: &[Term]| unknowns.iter().map(|u| show(p, u)).collect::<Vec<_>>().join(", ");
        let axes = self.runs[side.index()].problem.grid.len();
        let program = list(self, &store.site.env.pids[..axes]);
        let loops: Vec<Term> = store.site.env.loops.iter().map(|(_, done)| *done).collect();
        let turn = if loops.is_empty() { String::new() } else { format!(", iteration {}", list(self, &loops)) };
        let lane = list(self, &store.lanes);
        let name = self.runs[side.index()].problem.buffers[store.param].name.clone();
        let at = store.site.op.line.python.map(|l| format!(" by Python line {l}")).unwrap_or_default();
        self.tell(format!("cells of `{name}` are written{at}: program ({program}){turn}, lane ({lane})"));
    }

    /// No cell is written by two programs, nor twice by one.
    fn single_writer(&mut self, side: Side, ones: &[Access<'k>], others: &[Access<'k>]) -> Proof {
        let (ones, others) = (self.placed(side, ones)?, self.placed(side, others)?);
        for (i, one) in ones.iter().enumerate() {
            for (j, other) in others.iter().enumerate() {
                let (a, b) = (one.access, other.access);
                if a.param != b.param || j < i || !one.happens() || !other.happens() {
                    continue;
                }
                let guard = [&a.guard[..], &b.guard[..]].concat();
                let line = b.site.op.line;
                self.under(&guard, |p| {
                    let mut meet = vec![];
                    if p.runs[side.index()].problem.shape == Shape::RecurStore {
                        let slots = p.slot(side, a.param, a.offset)?.zip(p.slot(side, b.param, b.offset)?);
                        meet.extend(slots.map(|(own, other)| p.distinct_slots(side, &own, &other)));
                    }
                    for (x, y) in one.cell.iter().zip(&other.cell) {
                        meet.push(p.t.eq(*x, *y));
                    }
                    let same = if i == j { p.same_instance(a, b) } else { p.t.bool(false) };
                    p.under(&meet, |p| {
                        if p.holds(same, || "two stores to one cell are one store".into())? {
                            return Ok(());
                        }
                        p.fail(
                            Obligation::SingleWriter,
                            line,
                            "a cell may be written twice, by two programs or two lanes",
                        )
                    })
                })?;
            }
        }
        Ok(())
    }

    fn same_instance(&mut self, a: &Access<'k>, b: &Access<'k>) -> Term {
        let mut same = vec![];
        let (ea, eb) = (&a.site.env, &b.site.env);
        for (x, y) in ea.pids.iter().zip(eb.pids) {
            same.push(self.t.eq(*x, y));
        }
        for ((_, x), (_, y)) in ea.loops.iter().zip(&eb.loops) {
            same.push(self.t.eq(*x, *y));
        }
        for (x, y) in a.lanes.iter().zip(&b.lanes) {
            same.push(self.t.eq(*x, *y));
        }
        self.t.and(&same)
    }
}
