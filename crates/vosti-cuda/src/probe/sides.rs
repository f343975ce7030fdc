//! Two launches that a contract relates: their buffers, and the mapping between their rows.

use super::data::{Random, fill, get, put};
use super::{Lab, Limits, Param};
use std::fmt;
use vosti_contract::Role;
use vosti_core::PAGE;
use vosti_tile::Scalar;

/// The contents of an output before a launch: a NaN that no kernel stores.
const UNTOUCHED: u8 = 0xff;
/// Rows beyond the last that must stay untouched.
const BEYOND: usize = 8;

/// A row of a side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    pub row: usize,
    /// The slot of its key and value.
    pub slot: usize,
    /// Its position in the request.
    pub position: usize,
    /// The number of rows of the side.
    of: usize,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "row {} of {}", self.row, self.of)
    }
}

/// One launch.
#[derive(Clone, Debug, Default)]
pub struct Side {
    pub rows: usize,
    /// The most rows of a query tile, and the number of tiles.
    pub height: usize,
    pub tiles: usize,
    /// Spare rows or tiles of the launch.
    pub spare: usize,
    /// Positions that the launch has room for if it has spare rows.
    pub longest: usize,
    /// The contents of each parameter before the launch; empty for weights.
    pub buffers: Vec<Vec<u8>>,
    tokens: Vec<i32>,
    positions: Vec<i32>,
    /// Row of the input that each row reads.
    source: Vec<i32>,
    slots: Vec<i32>,
    sequences: Vec<Sequence>,
    /// The caches' contents before the launch, if the launch writes them.
    caches: Vec<Vec<u8>>,
}

/// Rows of one request.
#[derive(Clone, Debug)]
struct Sequence {
    first_row: usize,
    start: usize,
    rows: usize,
    pages: Vec<usize>,
}

/// Two sides, and pairs of rows whose outputs must be the same.
pub fn related(lab: &Lab, random: &mut Random) -> (Side, Side, Vec<(Row, Row)>) {
    match lab.shape {
        shape if shape.attends() => attending(lab, random),
        _ => rows(lab, random),
    }
}

/// A number of rows: one, few, all or any.
fn count(random: &mut Random, most: usize) -> usize {
    match random.below(6) {
        0 => 1,
        1 => random.between(1, most.min(9)),
        2 => most,
        _ => random.between(1, most),
    }
}

fn rows(lab: &Lab, random: &mut Random) -> (Side, Side, Vec<(Row, Row)>) {
    let mut sides = [(); 2].map(|()| {
        let (limits, has) = (&lab.limits, |role: Role| lab.params.iter().any(|p| p.role == role));
        let slots = if has(Role::Slots) { limits.pages * PAGE } else { usize::MAX };
        let rows = count(random, limits.rows.min(limits.packed).min(slots));
        let mut side = Side { rows, ..Side::default() };
        let any = |random: &mut Random, below: usize| (0..rows).map(|_| random.below(below) as i32).collect();
        side.tokens = any(random, limits.vocab);
        side.positions = any(random, limits.context);
        let distinct = |random: &mut Random, n: usize| -> Vec<i32> {
            random.shuffled(n).into_iter().take(rows).map(|i| i as i32).collect()
        };
        side.source = match has(Role::RowIndex) {
            true => distinct(random, limits.packed),
            false => (0..rows as i32).collect(),
        };
        side.slots = distinct(random, limits.pages * PAGE);
        side
    });
    let most = sides[0].rows.min(sides[1].rows);
    let chosen = random.between(most.div_ceil(2), most);
    let (left, right) = (random.shuffled(sides[0].rows), random.shuffled(sides[1].rows));
    let pairs: Vec<(usize, usize)> = left.into_iter().zip(right).take(chosen).collect();
    for (l, r) in &pairs {
        sides[1].tokens[*r] = sides[0].tokens[*l];
        sides[1].positions[*r] = sides[0].positions[*l];
    }
    for side in &mut sides {
        side.fill(lab, random);
    }
    for (i, param) in lab.params.iter().enumerate().filter(|(_, p)| matches!(p.role, Role::In(_))) {
        let row = param.width * param.elem.bytes();
        for (l, r) in &pairs {
            let (from, to) = (sides[0].source[*l] as usize, sides[1].source[*r] as usize);
            fill(&mut sides[0].buffers[i][from * row..][..row], param.elem, random, Random::number);
            let bytes = sides[0].buffers[i][from * row..][..row].to_vec();
            sides[1].buffers[i][to * row..][..row].copy_from_slice(&bytes);
        }
    }
    let named = |side: &Side, row: usize| Row {
        row,
        slot: side.slots.get(row).map_or(0, |slot| *slot as usize),
        position: 0,
        of: side.rows,
    };
    let pairs = pairs.iter().map(|(l, r)| (named(&sides[0], *l), named(&sides[1], *r))).collect();
    let [left, right] = sides;
    (left, right, pairs)
}

impl Side {
    /// Fills every buffer: metadata of the side, wild inputs, finite caches, untouched outputs.
    fn fill(&mut self, lab: &Lab, random: &mut Random) {
        // Half of the launches have no spare rows or tiles. Buffers limit the rows, and every tile has a row.
        let most = lab.limits.rows.saturating_sub(self.rows);
        self.spare = random.below(2) * random.below(most + 1);
        self.longest = random.between(1, lab.limits.context.max(1));
        let room = self.rows + self.spare + BEYOND;
        let buffers = lab.params.iter().map(|param| match param.role {
            Role::Weight(_) => vec![],
            Role::In(_) => numbers(param, random, Random::wild),
            Role::CacheK | Role::CacheV => numbers(param, random, Random::finite),
            Role::Out(_) => vec![UNTOUCHED; param.bytes.min(room * param.width * param.elem.bytes())],
            Role::Scratch(_) => {
                let row = param.width * param.elem.bytes();
                let (size, rows) = lab.limits.splits.unwrap_or((1, 0));
                let splits = self.length().div_ceil(size);
                let mut bytes = vec![UNTOUCHED; param.bytes.min(splits * rows * row)];
                if !lab.shape.writes(param.role) {
                    let cells =
                        |split: usize| split * rows * param.width..(split * rows + room.min(rows)) * param.width;
                    (0..splits).flat_map(cells).for_each(|cell| put(&mut bytes, param.elem, cell, random.wild()));
                }
                bytes
            }
            role => self.metadata(role),
        });
        self.buffers = buffers.collect();
        let caches = lab.params.iter().zip(&self.buffers).map(|(param, bytes)| {
            let kept = matches!(param.role, Role::CacheK | Role::CacheV) && lab.shape.writes(param.role);
            if kept { bytes.clone() } else { vec![] }
        });
        self.caches = caches.collect();
    }

    fn metadata(&mut self, role: Role) -> Vec<u8> {
        let mut starts = 0;
        let tables = self.sequences.iter().map(|s| {
            starts += s.pages.len();
            starts - s.pages.len()
        });
        let mut tiles: Vec<[i32; 4]> = vec![];
        for (s, table) in self.sequences.iter().zip(tables.collect::<Vec<_>>()) {
            for first in (0..s.rows).step_by(self.height) {
                let tile = [table, s.first_row + first, (s.rows - first).min(self.height), s.start + first];
                tiles.push(tile.map(|n| n as i32));
            }
        }
        self.tiles = tiles.len();
        tiles.resize(self.tiles + self.spare, [-1, 0, 0, 0]);
        let tile = |part: usize| tiles.iter().map(|tile| tile[part]).collect();
        let ints: Vec<i32> = match role {
            Role::Rows => vec![self.rows as i32],
            Role::Tokens => self.tokens.clone(),
            Role::Positions => self.positions.clone(),
            Role::RowIndex => self.source.clone(),
            Role::Slots => self.slots.clone(),
            Role::PageTable => self.sequences.iter().flat_map(|s| &s.pages).map(|page| *page as i32).collect(),
            Role::TileTable => tile(0),
            Role::TileRow => tile(1),
            Role::TileRows => tile(2),
            Role::TilePos => tile(3),
            _ => vec![],
        };
        ints.into_iter().flat_map(i32::to_le_bytes).collect()
    }

    /// Makes subnormal inputs zeros, as tile IR and so the reference does. A GPU computes with them, and may choose another one of
    /// numbers that the reference finds equal.
    pub fn flush(&mut self, lab: &Lab) {
        for (param, bytes) in lab.params.iter().zip(&mut self.buffers).filter(|(param, _)| param.elem.is_float()) {
            for at in 0..bytes.len() / param.elem.bytes() {
                let x = get(bytes, param.elem, at);
                if x.is_subnormal() {
                    put(bytes, param.elem, at, 0.0f32.copysign(x));
                }
            }
        }
    }

    /// A description of the first cell that the kernel wrote and that the contract does not name.
    pub fn stray(&self, lab: &Lab) -> Option<String> {
        for (i, param) in lab.params.iter().enumerate() {
            let (name, after) = (&lab.proved.contract.params[i].name, &self.buffers[i]);
            let row = param.width * param.elem.bytes();
            let touched = |bytes: &[u8]| bytes.iter().any(|byte| *byte != UNTOUCHED);
            let rows = match (param.role, lab.limits.splits) {
                (Role::Scratch(_), Some((_, rows))) => rows * row,
                _ => after.len(),
            };
            if matches!(param.role, Role::Out(_) | Role::Scratch(_)) && lab.shape.writes(param.role) {
                let mut beyond = after.chunks(rows.max(1)).filter_map(|part| part.get(self.rows * row..));
                if beyond.any(touched) {
                    return Some(format!("`{name}` was written beyond its {} rows", self.rows));
                }
            }
            if let Role::Out(_) = param.role {
                let positions = self.sequences.iter().flat_map(|s| s.start..s.start + s.rows).enumerate();
                let other = |at: &usize| !lab.limits.names(lab.shape, param.role, *at);
                for (at, position) in positions.filter(|(_, position)| other(position)) {
                    if touched(&after[at * row..][..row]) {
                        return Some(format!("`{name}` was written at position {position}, which another launch has"));
                    }
                }
            }
            if !self.caches[i].is_empty() {
                let row = lab.limits.head_dim * param.elem.bytes();
                let same = |at: &usize| after[at * row..][..row] == self.caches[i][at * row..][..row];
                let slot = |at: usize| at / (lab.limits.kv_heads * PAGE) * PAGE + at % PAGE;
                let changed = (0..after.len() / row).filter(|at| !same(at)).map(slot);
                if let Some(slot) = changed.into_iter().find(|slot| !self.slots.contains(&(*slot as i32))) {
                    return Some(format!("`{name}` was written in slot {slot}, which no row has"));
                }
            }
        }
        None
    }
}

fn numbers(param: &Param, random: &mut Random, next: fn(&mut Random) -> f32) -> Vec<u8> {
    let mut bytes = vec![0; param.bytes];
    fill(&mut bytes, param.elem, random, next);
    bytes
}

/// Sequences on the left; on the right other sequences that share rows with them, but begin earlier or later and on other pages.
fn attending(lab: &Lab, random: &mut Random) -> (Side, Side, Vec<(Row, Row)>) {
    let limits = &lab.limits;
    let [mut left, mut right] = limits.tiles.map(|height| Side { height, ..Side::default() });
    let mut free = random.shuffled(limits.pages);
    // One sequence, or as many as there is room for.
    let most = if random.below(3) == 0 { 1 } else { usize::MAX };
    while left.sequences.len() < most
        && let Some(sequence) = sequence(limits, random, &left, &mut free, None)
    {
        left.add(sequence);
    }
    let mut free = random.shuffled(limits.pages);
    let mut twins = vec![];
    for i in random.shuffled(left.sequences.len()) {
        let of = &left.sequences[i];
        // The last row that both sides have.
        let last = of.start + random.below(of.rows);
        if let Some(sequence) = sequence(limits, random, &right, &mut free, Some(last)) {
            right.add(sequence);
            twins.push((i, right.sequences.len() - 1, last));
        }
    }
    // Neighbours that the left does not have.
    while right.sequences.len() < 3
        && let Some(sequence) = sequence(limits, random, &right, &mut free, None)
    {
        right.add(sequence);
    }
    left.fill(lab, random);
    right.fill(lab, random);
    let (mut pairs, width) = (vec![], query_width(lab));
    for (l, r, last) in twins {
        let (a, b) = (left.sequences[l].clone(), right.sequences[r].clone());
        let first = a.start.max(b.start);
        for position in first..=last {
            let (x, y) = (a.first_row + position - a.start, b.first_row + position - b.start);
            let row = |row: usize, side: &Side| Row { row, slot: 0, position, of: side.rows };
            pairs.push((row(x, &left), row(y, &right)));
            share(lab, random, Role::In(0), &mut left, &mut right, x * width, y * width, width);
            // The partial results that the row reads, if the kernel reads partial results.
            let parts = lab.params.iter().enumerate().filter(|_| limits.splits.is_some());
            for (i, param) in parts.filter(|(_, p)| !lab.shape.writes(p.role)) {
                if let Role::Scratch(_) = param.role {
                    for (l, r) in limits.cells(param, x, position).zip(limits.cells(param, y, position)) {
                        // Positive, like sums of weights; with other numbers few outputs would be finite.
                        let number = random.number().abs();
                        put(&mut left.buffers[i], param.elem, l, number);
                        put(&mut right.buffers[i], param.elem, r, number);
                    }
                }
            }
        }
        let seen = limits.window.map_or(0, |window| (first + 1).saturating_sub(window));
        for position in seen..=last {
            for head in 0..limits.kv_heads {
                let cell = |s: &Sequence| {
                    let page = s.pages[position / PAGE];
                    ((page * limits.kv_heads + head) * PAGE + position % PAGE) * limits.head_dim
                };
                for role in [Role::CacheK, Role::CacheV] {
                    share(lab, random, role, &mut left, &mut right, cell(&a), cell(&b), limits.head_dim);
                }
            }
        }
    }
    (left, right, pairs)
}

/// Elements of a query row.
fn query_width(lab: &Lab) -> usize {
    lab.params.iter().find(|p| p.role == Role::In(0)).map_or(1, |p| p.width)
}

/// Gives both sides the same new numbers.
#[allow(clippy::too_many_arguments)]
fn share(lab: &Lab, random: &mut Random, role: Role, left: &mut Side, right: &mut Side, l: usize, r: usize, n: usize) {
    let Some(i) = lab.params.iter().position(|p| p.role == role) else { return };
    let elem: Scalar = lab.params[i].elem;
    for c in 0..n {
        let x = random.number();
        put(&mut left.buffers[i], elem, l + c, x);
        put(&mut right.buffers[i], elem, r + c, x);
    }
}

impl Side {
    /// Positions that the longest sequence reaches.
    pub fn length(&self) -> usize {
        self.sequences.iter().map(|s| s.start + s.rows).max().unwrap_or(0)
    }

    fn add(&mut self, sequence: Sequence) {
        self.rows += sequence.rows;
        self.sequences.push(sequence);
    }
}

/// The first position of a sequence: anywhere in a few pages; often near a boundary of splits, if keys are split and fit.
fn start(limits: &Limits, random: &mut Random, free: usize) -> usize {
    let tile = limits.tiles[0].max(limits.tiles[1]);
    match limits.splits {
        Some((size, _))
            if (size + 4 * tile).div_ceil(PAGE) < free.min(limits.context / PAGE) && random.below(3) == 0 =>
        {
            size - tile.min(size) + random.below(2 * tile)
        }
        _ => random.below(limits.context.min(4 * PAGE + 7)),
    }
}

/// The next sequence of a side, if there is room: any sequence, or one that has a row at a given position.
fn sequence(
    limits: &Limits,
    random: &mut Random,
    side: &Side,
    free: &mut Vec<usize>,
    has: Option<usize>,
) -> Option<Sequence> {
    let room = limits.rows.saturating_sub(side.rows);
    let tile = limits.tiles[0].max(limits.tiles[1]);
    let (start, rows) = match has {
        Some(position) => {
            let start = position - random.below((2 * tile).min(position + 1));
            (start, position - start + 1 + random.below(tile + 1))
        }
        None => (start(limits, random, free.len()), random.between(1, 2 * tile + 1)),
    };
    let rows = rows.min(limits.context - start);
    let pages = (start + rows).div_ceil(PAGE);
    if rows > room || pages > free.len() || has.is_some_and(|position| position >= start + rows) {
        return None;
    }
    let pages = free.split_off(free.len() - pages);
    Some(Sequence { first_row: side.rows, start, rows, pages })
}
