//! Two loads give equal values: both lanes read cells that the contract calls equal, or neither reads and both take equal
//! padding or equal `other` values.

use crate::equal::{At, Mode};
use crate::prover::{Prover, Side, Site};
use crate::term::Term;
use crate::verdict::{Obligation, Proof};
use vosti_contract::{Role, Shape};
use vosti_tile::{Op, OpKind, Padding, Value};

/// The value that a load gives where it does not read.
enum Outside {
    /// The load always reads.
    Never,
    Other(Value),
    Padding(Padding),
    Arbitrary,
}

fn outside(op: &OpKind) -> Outside {
    match op {
        OpKind::Load { mask: None, .. } => Outside::Never,
        OpKind::Load { other: Some(v), .. } => Outside::Other(*v),
        OpKind::LoadBlock { check, .. } if check.is_empty() => Outside::Never,
        OpKind::LoadBlock { padding: Padding::Undefined, .. } => Outside::Arbitrary,
        OpKind::LoadBlock { padding, .. } => Outside::Padding(*padding),
        _ => Outside::Arbitrary,
    }
}

impl<'k> Prover<'k, '_> {
    pub(crate) fn equal_loads(&mut self, a: &'k Op, l: &At, b: &'k Op, r: &At) -> Proof {
        let site = |op, at: &At| Site { op, env: at.env.clone(), guard: vec![] };
        let left = self.access_at(Side::L, &site(a, l), &l.idx, false)?;
        let right = self.access_at(Side::R, &site(b, r), &r.idx, false)?;
        let (gl, gr) = (self.t.and(&left.guard), self.t.and(&right.guard));
        let line = a.line;
        let name = self.runs[0].problem.buffers[left.param].name.clone();
        let role = self.runs[0].problem.buffers[left.param].role;
        if self.runs[1].problem.buffers[right.param].role != role {
            let other = &self.runs[1].problem.buffers[right.param].name;
            let why = format!("one run reads `{name}`, the other `{other}`");
            return self.fail(Obligation::Dependency, line, why);
        }
        let masks = self.t.eq(gl, gr);
        if !self.holds(masks, || format!("the same lanes of `{name}` are read in both runs"))? {
            return self.fail(
                Obligation::Guard,
                line,
                format!("a lane of `{name}` may be read in one run and masked in the other"),
            );
        }
        self.under(&[gl, gr], |p| {
            let same = p.same_cell(role, (left.param, left.offset), (right.param, right.offset))?;
            let cell = same.1;
            if p.holds(same.0, || format!("the cells read from `{name}` are ones the contract calls equal: {cell}"))? {
                return Ok(());
            }
            p.fail(
                Obligation::Dependency,
                line,
                format!("`{name}` is read at a cell about which the contract says nothing ({cell})"),
            )
        })?;
        let (unread, line) = (self.t.not(gl), a.line);
        match (outside(&a.kind), outside(&b.kind)) {
            (Outside::Never, Outside::Never) => Ok(()),
            (Outside::Padding(x), Outside::Padding(y)) if x == y => Ok(()),
            (Outside::Other(x), Outside::Other(y)) => {
                self.under(&[unread], |p| p.equal(&l.same_lane(x), &r.same_lane(y), Mode::Exact))
            }
            _ => self.under(&[unread], |p| {
                p.fail(
                    Obligation::Undefined,
                    line,
                    format!("a lane of `{name}` that is not read has no value of its own"),
                )
            }),
        }
    }

    /// The condition under which the contract calls two cells equal, as a term and in words.
    fn same_cell(&mut self, role: Role, l: (usize, Term), r: (usize, Term)) -> Proof<(Term, &'static str)> {
        let shape = self.runs[0].problem.shape;
        match role {
            Role::Weight(_) if self.by_coordinates(Side::L, l.0) => {
                let a = self.coordinates(Side::L, l.0, l.1)?;
                let b = self.coordinates(Side::R, r.0, r.1)?;
                let same: Vec<Term> = a.into_iter().zip(b).map(|(x, y)| self.t.eq(x, y)).collect();
                Ok((self.t.and(&same), "the same weight"))
            }
            Role::Weight(_) => Ok((self.t.eq(l.1, r.1), "the same weight")),
            Role::In(_) => {
                let a = self.coordinates(Side::L, l.0, l.1)?;
                let b = self.coordinates(Side::R, r.0, r.1)?;
                let (sl, sr) = (self.chosen[0].source, self.chosen[1].source);
                let mut goal = vec![self.t.eq(a[0], sl), self.t.eq(b[0], sr)];
                for (x, y) in a[1..].iter().zip(&b[1..]) {
                    goal.push(self.t.eq(*x, *y));
                }
                Ok((self.t.and(&goal), "the chosen row, same column"))
            }
            Role::CacheK | Role::CacheV if matches!(shape, Shape::Attend | Shape::AttendPart | Shape::AttendFolded) => {
                self.same_key(l, r)
            }
            Role::Scratch(_) if shape == Shape::AttendCombine => self.same_part(l, r),
            Role::Entry(_) | Role::State(_) => self.same_entry(l, r),
            _ => Ok((self.t.bool(false), "nothing is promised of it")),
        }
    }

    /// The two cells hold partial results of the chosen row, of one split that begins at the row's position or before.
    pub(crate) fn same_part(&mut self, l: (usize, Term), r: (usize, Term)) -> Proof<(Term, &'static str)> {
        const WORDS: &str = "the chosen row, same split, head and column, of a split that the row sees";
        let a = self.coordinates(Side::L, l.0, l.1)?;
        let b = self.coordinates(Side::R, r.0, r.1)?;
        let Some(position) = self.chosen[0].position else {
            return Ok((self.t.bool(false), WORDS));
        };
        let mut goal = vec![self.t.eq(a[1], self.chosen[0].row), self.t.eq(b[1], self.chosen[1].row)];
        for (_, (x, y)) in a.iter().zip(&b).enumerate().filter(|(axis, _)| *axis != 1) {
            goal.push(self.t.eq(*x, *y));
        }
        let Some(splits) = self.runs[0].problem.splits() else {
            return Ok((self.t.bool(false), WORDS));
        };
        let world = self.runs[0].world.clone();
        goal.push(world.begins(&mut self.t, splits, a[0], position));
        Ok((self.t.and(&goal), WORDS))
    }

    /// The two cells belong to one entry that the row sees.
    fn same_entry(&mut self, l: (usize, Term), r: (usize, Term)) -> Proof<(Term, &'static str)> {
        const WORDS: &str = "the same entry that the row sees, through each run's page table";
        let (left, right) = (self.slot(Side::L, l.0, l.1)?, self.slot(Side::R, r.0, r.1)?);
        match (left, right) {
            (Some(left), Some(right)) => {
                let same = self.same_slot(&left, &right);
                Ok((self.t.and(&same), WORDS))
            }
            _ => Ok((self.t.bool(false), "the page does not come from the page table")),
        }
    }

    /// The two cells belong to one logical key position that the row sees.
    fn same_key(&mut self, l: (usize, Term), r: (usize, Term)) -> Proof<(Term, &'static str)> {
        const WORDS: &str = "the same key within the row's window, through each run's page table";
        let a = self.coordinates(Side::L, l.0, l.1)?;
        let b = self.coordinates(Side::R, r.0, r.1)?;
        let (Some(i), Some(j)) = (self.logical_page(Side::L, a[0]), self.logical_page(Side::R, b[0])) else {
            return Ok((self.t.bool(false), "the page does not come from the page table"));
        };
        let mut goal = vec![self.t.eq(i, j)];
        for (x, y) in a[1..].iter().zip(&b[1..]) {
            goal.push(self.t.eq(*x, *y));
        }
        let Some(page) = self.runs[0].problem.premises.page() else {
            return Ok((self.t.bool(false), WORDS));
        };
        let first = self.t.scale(i, page);
        let key = self.t.add(first, a[2]);
        let Some(position) = self.chosen[0].position else {
            return Ok((self.t.bool(false), WORDS));
        };
        let oldest = self.runs[0].world.oldest_key(&mut self.t, position);
        goal.push(self.t.le(oldest, key));
        goal.push(self.t.le(key, position));
        Ok((self.t.and(&goal), WORDS))
    }

    /// The logical page of the chosen row's request that a physical page number stands for.
    fn logical_page(&mut self, side: Side, page: Term) -> Option<Term> {
        let world = self.runs[side.index()].world.clone();
        let entries = world.applications(&self.t, Role::PageTable, &[page]);
        let (entry, index) = *entries.last()?;
        if entry != page {
            return None;
        }
        let tile = self.chosen[side.index()].tile?;
        let table = world.read(&mut self.t, Role::TileTable, tile)?;
        Some(self.t.sub(index, table))
    }
}
