//! The facts about an invocation's buffers: ranges of metadata, the core's guarantees about slots, tiles and page tables, and
//! the rows that two invocations share.
//!
//! A metadata buffer is an uninterpreted function of the index. Facts about it are instantiated for the applications that
//! occur in a question; a fact that is not instantiated can only lose a proof. These are the premises of the contracts in
//! `docs/kernel-verification.md`.

use crate::dimension::range;
use crate::premises::{Premises, Splits};
use crate::problem::{Axis, Buffer, Dim, Problem, limit};
use crate::term::{Bounds, Node, Term, Terms};
use vosti_contract::{Number, Role, Shape};

/// The symbolic sizes of one invocation.
#[derive(Clone, Debug)]
pub struct World {
    /// `L` or `R`.
    pub side: &'static str,
    pub rows: Term,
    pub packed: Term,
    pub context: Term,
    pub tiles: Term,
    pub table_len: Term,
    /// Every row's position is below this.
    pub length: Term,
    /// A symbol for each of the problem's numbers that is a dimension; both runs have the same.
    pub numbers: Vec<Option<Term>>,
    /// The conditions between dimensions, each with its symbols.
    conditions: Vec<(Term, Vec<Term>)>,
    /// Programs on each axis.
    pub grid: [Term; 3],
    /// On an axis of rows or of length a launch may have more programs than the contract asks for: the number of programs, and
    /// the least that it may be.
    at_least: Vec<(Term, Term)>,
    premises: Premises,
}

fn dimension(t: &mut Terms, number: &Number) -> Option<Term> {
    let (lo, hi) = range(number)?;
    Some(t.dimension(&format!("dim {}", number.name), (Some(lo), Some(hi))))
}

fn natural(hi: i128) -> Bounds {
    (Some(0), Some(hi))
}

impl World {
    pub fn new(t: &mut Terms, problem: &Problem, side: &'static str) -> World {
        let premises = problem.premises;
        let named = |t: &mut Terms, n: &str, lo: i128, hi: i128| t.var(&format!("{n}@{side}"), (Some(lo), Some(hi)));
        let mut world = World {
            side,
            rows: named(t, "rows", 1, premises.rows()),
            packed: named(t, "packed", 1, limit::ROWS),
            // The rope tables belong to the deployment: both runs have the same.
            context: t.var("context", (Some(1), Some(limit::CONTEXT))),
            tiles: named(t, "tiles", 1, limit::TILES),
            table_len: named(t, "table_len", 1, limit::TABLE),
            length: named(t, "length", 1, limit::CONTEXT),
            numbers: problem.numbers.iter().map(|number| dimension(t, number)).collect(),
            conditions: vec![],
            grid: [t.int(1); 3],
            at_least: vec![],
            premises,
        };
        if let Some((at, value)) = problem.chosen_use {
            world.numbers[at] = Some(t.int(value));
        }
        world.conditions = problem.conditions.iter().filter_map(|c| c.fact(t, &world.numbers)).collect();
        for (axis, programs) in problem.grid.iter().enumerate() {
            world.grid[axis] = match programs {
                Axis::Const(n) => t.int(*n),
                Axis::Of { of, over } => {
                    let size = world.dim(t, Dim::Of(*of));
                    let up = t.add_int(size, over - 1);
                    t.div(up, *over)
                }
                Axis::Tiles => world.tiles,
                Axis::RowsOver(n) => {
                    let up = t.add_int(world.rows, n - 1);
                    let least = t.div(up, *n);
                    let most = (limit::ROWS + n - 1) / n;
                    world.spare(t, axis, least, 1, most)
                }
                Axis::TilesTimes(times) => t.scale(world.tiles, *times),
                Axis::RowsTimes { over, times } => {
                    let up = t.add_int(world.rows, over - 1);
                    let tiles = t.div(up, *over);
                    let least = t.scale(tiles, *times);
                    world.spare(t, axis, least, 1, (limit::ROWS + over - 1) / over * times)
                }
                Axis::LengthOver(n) => {
                    let up = t.add_int(world.length, n - 1);
                    let least = t.div(up, *n);
                    world.spare(t, axis, least, 1, (limit::CONTEXT + n - 1) / n)
                }
                Axis::LengthAbove(n) => {
                    let (one, times) = (t.int(1), t.div(world.length, n + 1));
                    let least = t.min(one, times);
                    world.spare(t, axis, least, 0, 1)
                }
            };
        }
        world
    }

    /// A variable for the programs of an axis that may have more than `least`.
    fn spare(&mut self, t: &mut Terms, axis: usize, least: Term, lo: i128, hi: i128) -> Term {
        let programs = t.var(&format!("programs{axis}@{}", self.side), (Some(lo), Some(hi)));
        self.at_least.push((programs, least));
        programs
    }

    /// The least programs that a launch has on an axis.
    pub fn programs_needed(&self, axis: usize) -> Term {
        let programs = self.grid[axis];
        self.at_least.iter().find(|(spare, _)| *spare == programs).map_or(programs, |(_, least)| *least)
    }

    pub fn dim(&self, t: &mut Terms, dim: Dim) -> Term {
        match dim {
            Dim::Const(n) => t.int(n),
            // `scaled` refuses a float as an extent.
            Dim::Of(of) => match self.numbers[of.number] {
                Some(n) => t.scale(n, of.times),
                None => t.fresh("unknown", (None, None)),
            },
            Dim::Rows => self.rows,
            Dim::Packed => self.packed,
            Dim::Context => self.context,
            Dim::Pages(page) => self.pages(t, page),
            Dim::Tiles => self.tiles,
            Dim::TableLen => self.table_len,
            Dim::Splits(size) => {
                let up = t.add_int(self.context, size - 1);
                t.div(up, size)
            }
        }
    }

    /// Pages of `page` positions that the cache has.
    fn pages(&self, t: &mut Terms, page: i128) -> Term {
        t.var(&format!("pages@{}", self.side), (Some(1), Some(limit::SLOTS / page)))
    }

    /// Elements of a buffer.
    pub fn size(&self, t: &mut Terms, buffer: &Buffer) -> Term {
        let mut size = t.int(1);
        for dim in &buffer.dims {
            let n = self.dim(t, *dim);
            size = t.mul(size, n);
        }
        size
    }

    fn function(&self, name: &str) -> String {
        format!("{name}@{}", self.side)
    }

    /// The range of a metadata buffer. None for another role, and where the shape has no premise about it.
    fn metadata(&self, role: Role) -> Option<Bounds> {
        Some(match role {
            Role::Tokens => {
                let most = match self.premises.vocabulary()? {
                    Dim::Const(tokens) => tokens,
                    _ => limit::SLOTS,
                };
                natural(most - 1)
            }
            Role::Positions => natural(limit::CONTEXT - 1),
            Role::RowIndex => natural(limit::ROWS - 1),
            Role::Slots => natural(limit::SLOTS - 1),
            Role::PageTable => (Some(-1), Some(limit::SLOTS / self.premises.page()?)),
            Role::TileTable => (Some(-1), Some(limit::TABLE)),
            Role::TileRow => natural(limit::ROWS),
            Role::TileRows => natural(self.premises.tile_rows()?),
            Role::TilePos => natural(limit::CONTEXT),
            _ => return None,
        })
    }

    /// The value of a metadata buffer at `index`; None for a role that has none.
    pub fn read(&self, t: &mut Terms, role: Role, index: Term) -> Option<Term> {
        if role == Role::Rows {
            return Some(self.rows);
        }
        let bounds = self.metadata(role)?;
        Some(t.apply(&self.function(role.word()), vec![index], bounds))
    }

    /// As [`World::read`]; an unknown value where that gives None.
    pub fn at(&self, t: &mut Terms, role: Role, index: Term) -> Term {
        self.read(t, role, index).unwrap_or_else(|| t.fresh("unknown", (None, None)))
    }

    /// Applications of this world's function of `role` in `term`: each with its argument.
    pub fn applications(&self, t: &Terms, role: Role, term: &[Term]) -> Vec<(Term, Term)> {
        if self.metadata(role).is_none() {
            return vec![];
        }
        let wanted = self.function(role.word());
        t.reachable(term)
            .into_iter()
            .filter_map(|s| match t.node(s) {
                Node::Apply { function, args, .. } if *function == wanted => Some((s, args[0])),
                _ => None,
            })
            .collect()
    }

    /// Facts about the metadata that `question` mentions.
    pub fn facts(&self, t: &mut Terms, question: &[Term]) -> Vec<Term> {
        let mut facts = vec![];
        for (programs, least) in &self.at_least {
            if question.iter().any(|q| t.mentions(*q, &[*programs])) {
                facts.push(t.le(*least, *programs));
            }
        }
        for (holds, symbols) in &self.conditions {
            if question.iter().any(|q| t.mentions(*q, symbols)) {
                facts.push(*holds);
            }
        }
        let apps = |t: &Terms, role| self.applications(t, role, question);
        for (value, index) in apps(t, Role::Positions) {
            let live = self.is_row(t, index);
            let below = t.lt(value, self.context);
            facts.push(t.implies(live, below));
        }
        for (value, index) in apps(t, Role::Tokens) {
            let Some(vocabulary) = self.premises.vocabulary() else { continue };
            let (live, tokens) = (self.is_row(t, index), self.dim(t, vocabulary));
            let below = t.lt(value, tokens);
            facts.push(t.implies(live, below));
        }
        for (value, index) in apps(t, Role::RowIndex) {
            let live = self.is_row(t, index);
            let below = t.lt(value, self.packed);
            facts.push(t.implies(live, below));
        }
        self.slot_facts(t, &apps(t, Role::Slots), &mut facts);
        let mut tiles: Vec<Term> = vec![];
        for role in [Role::TileRow, Role::TileRows, Role::TilePos, Role::TileTable] {
            tiles.extend(apps(t, role).into_iter().map(|(_, index)| index));
        }
        tiles.sort_unstable();
        tiles.dedup();
        let entries = apps(t, Role::PageTable);
        self.tile_facts(t, &tiles, &entries, &mut facts);
        facts
    }

    fn is_row(&self, t: &mut Terms, index: Term) -> Term {
        let zero = t.int(0);
        t.within(zero, index, self.rows)
    }

    /// Slots of live rows are in the cache and distinct.
    fn slot_facts(&self, t: &mut Terms, slots: &[(Term, Term)], facts: &mut Vec<Term>) {
        let Some(page) = self.premises.page() else { return };
        for (i, (value, index)) in slots.iter().enumerate() {
            let live = self.is_row(t, *index);
            let pages = self.pages(t, page);
            let capacity = t.scale(pages, page);
            let below = t.lt(*value, capacity);
            facts.push(t.implies(live, below));
            for (other, other_index) in &slots[..i] {
                let other_live = self.is_row(t, *other_index);
                let both = t.and(&[live, other_live]);
                let (same, clash) = (t.eq(*index, *other_index), t.eq(*value, *other));
                let distinct = t.not(clash);
                let either = t.or(&[same, distinct]);
                facts.push(t.implies(both, either));
            }
        }
    }

    /// A tile's rows are packed rows of one request, at most BQ, and belong to no other tile. The entries of
    /// its page table that its rows see are pages.
    fn tile_facts(&self, t: &mut Terms, tiles: &[Term], entries: &[(Term, Term)], facts: &mut Vec<Term>) {
        let zero = t.int(0);
        for (i, tile) in tiles.iter().enumerate() {
            let exists = t.within(zero, *tile, self.tiles);
            let [row, rows, pos] = [Role::TileRow, Role::TileRows, Role::TilePos].map(|role| self.at(t, role, *tile));
            let end = t.add(row, rows);
            let last = t.add(pos, rows);
            let (fits, below) = (t.le(end, self.rows), t.le(last, self.context));
            let ranges = t.and(&[fits, below]);
            facts.push(t.implies(exists, ranges));
            let used = t.lt(zero, rows);
            let live = t.and(&[exists, used]);
            if self.premises.splits().is_some() {
                let reached = t.le(last, self.length);
                facts.push(t.implies(live, reached));
            }
            for other in &tiles[..i] {
                let other_exists = t.within(zero, *other, self.tiles);
                let other_row = self.at(t, Role::TileRow, *other);
                let other_rows = self.at(t, Role::TileRows, *other);
                let other_end = t.add(other_row, other_rows);
                let same = t.eq(*tile, *other);
                let (before, after) = (t.le(end, other_row), t.le(other_end, row));
                let (empty, other_empty) = (t.eq(rows, zero), t.eq(other_rows, zero));
                let apart = t.or(&[same, before, after, empty, other_empty]);
                let both = t.and(&[exists, other_exists]);
                facts.push(t.implies(both, apart));
            }
            if let Some(page) = self.premises.page() {
                self.page_facts(t, *tile, (pos, last, page), live, entries, facts);
            }
        }
    }

    /// The entries of a live tile's page table, from its first row's oldest key to its last row's newest, are pages.
    fn page_facts(
        &self,
        t: &mut Terms,
        tile: Term,
        (pos, last, page): (Term, Term, i128),
        live: Term,
        entries: &[(Term, Term)],
        facts: &mut Vec<Term>,
    ) {
        let (zero, table) = (t.int(0), self.at(t, Role::TileTable, tile));
        let newest = t.add_int(last, -1);
        let newest_page = t.div(newest, page);
        let table_last = t.add(table, newest_page);
        let (starts, ends) = (t.le(zero, table), t.lt(table_last, self.table_len));
        let in_table = t.and(&[starts, ends]);
        facts.push(t.implies(live, in_table));
        let oldest = self.oldest_key(t, pos);
        let oldest_page = t.div(oldest, page);
        for (entry, index) in entries {
            let logical = t.sub(*index, table);
            let (old, new) = (t.le(oldest_page, logical), t.le(logical, newest_page));
            let seen = t.and(&[live, old, new]);
            let pages = self.pages(t, page);
            let exists = t.within(zero, *entry, pages);
            facts.push(t.implies(seen, exists));
        }
    }

    /// The condition that a split begins at a row's position or before: then the row sees keys of it.
    pub fn begins(&self, t: &mut Terms, splits: Splits, split: Term, position: Term) -> Term {
        let first = t.scale(split, splits.size);
        t.le(first, position)
    }

    /// The condition that the contract names a role's cells of a row at `position`: that the row sees the first split alone,
    /// or that it sees more; of a state, that it is the last of its page. None where the contract names the cells of every row.
    pub fn named(&self, t: &mut Terms, shape: Shape, role: Role, position: Term) -> Option<Term> {
        if let (Shape::RecurStore, Role::State(_), Some(page)) = (shape, role, self.premises.page()) {
            let (place, last) = (t.rem(position, page), t.int(page - 1));
            return Some(t.eq(place, last));
        }
        let (early, splits) = shape.early_rows(role).zip(self.premises.splits())?;
        let end = t.int(splits.size);
        Some(if early { t.lt(position, end) } else { t.le(end, position) })
    }

    /// The first key that a row at `position` sees.
    pub fn oldest_key(&self, t: &mut Terms, position: Term) -> Term {
        let zero = t.int(0);
        match self.premises.window() {
            None => zero,
            Some(w) => {
                let w = self.dim(t, w);
                let start = t.sub(position, w);
                let start = t.add_int(start, 1);
                t.max(zero, start)
            }
        }
    }
}

/// The row that a contract compares, on one side.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// Row of the outputs.
    pub row: Term,
    /// Row of the inputs.
    pub source: Term,
    /// Its query tile, for attention.
    pub tile: Option<Term>,
    /// Its logical position, where the kernel knows one.
    pub position: Option<Term>,
    /// The split whose partial results are compared, where those are the outputs.
    pub split: Option<Term>,
    /// The premises about this row.
    pub facts: Vec<Term>,
}

impl Chosen {
    pub fn new(t: &mut Terms, problem: &Problem, world: &World) -> Chosen {
        let side = world.side;
        let zero = t.int(0);
        if let Some(tile_rows) = problem.premises.tile_rows() {
            let tile = t.var(&format!("tile@{side}"), natural(limit::TILES));
            let lane = t.var(&format!("lane@{side}"), natural(tile_rows - 1));
            let exists = t.lt(tile, world.tiles);
            let rows = world.at(t, Role::TileRows, tile);
            let inside = t.within(zero, lane, rows);
            let first = world.at(t, Role::TileRow, tile);
            let start = world.at(t, Role::TilePos, tile);
            let (row, position) = (t.add(first, lane), t.add(start, lane));
            let mut facts = vec![exists, inside];
            let of = match problem.premises {
                Premises::AttendPart { splits, .. } => Some(splits),
                _ => None,
            };
            let split = of.map(|splits| {
                let split = t.var(&format!("split@{side}"), natural(limit::CONTEXT / splits.size));
                facts.push(world.begins(t, splits, split, position));
                split
            });
            return Chosen { row, source: row, tile: Some(tile), position: Some(position), split, facts };
        }
        let row = t.var(&format!("row@{side}"), natural(limit::ROWS));
        let source = match problem.role(Role::RowIndex) {
            Some(_) => world.at(t, Role::RowIndex, row),
            None => row,
        };
        let position = problem.role(Role::Positions).map(|_| world.at(t, Role::Positions, row));
        Chosen { row, source, tile: None, position, split: None, facts: vec![world.is_row(t, row)] }
    }
}

/// The premises about both runs at once: equal positions, splits and tokens.
pub fn shared_facts(t: &mut Terms, problem: &Problem, l: (&World, &Chosen), r: (&World, &Chosen)) -> Vec<Term> {
    let mut facts = vec![];
    if let (Some(a), Some(b)) = (l.1.position, r.1.position) {
        facts.push(t.eq(a, b));
    }
    if let (Some(a), Some(b)) = (l.1.split, r.1.split) {
        facts.push(t.eq(a, b));
    }
    if problem.role(Role::Tokens).is_some() {
        let a = l.0.at(t, Role::Tokens, l.1.row);
        let b = r.0.at(t, Role::Tokens, r.1.row);
        facts.push(t.eq(a, b));
    }
    facts
}
