//! Related runs of a layer whose pages carry a state: one request among others, cut into steps in two ways.
//!
//! Stores run as a server runs them: step after step from position 0, with other requests in between and drafts that are
//! rejected. The first position whose entry differs is a counterexample, because all entries before it are equal. Reads run
//! once in each run, over entries that both have.

use crate::reading::{Extent, Kind, Parameter, Reading, What, Work};
use crate::replay::{Outcome, Random, differ, launch, memory, put, zeros};
use vosti_tile::Kernel;
use vosti_tile::interp::Buffer;

/// A request in one run: its page table, and how many positions it has.
struct Request {
    pages: Vec<i32>,
    done: usize,
    shared: bool,
}

/// What a request has in a launch: its first row's position, its rows, and how many of those are drafts.
#[derive(Clone, Copy)]
struct Chunk {
    request: usize,
    first: usize,
    rows: usize,
    drafts: usize,
}

struct Run<'p> {
    kernel: &'p Kernel,
    reading: &'p Reading,
    page: usize,
    /// Rows that a tile has at most.
    height: usize,
    requests: Vec<Request>,
    /// Entries and states, by parameter; empty for other parameters.
    kept: Vec<Option<Buffer>>,
    /// Where the shared request's rows are in the last launch: position and row.
    row_of: Vec<(usize, usize)>,
    buffers: Vec<Buffer>,
}

fn number(random: &mut Random) -> f32 {
    let bits = random.draw();
    let x = (bits >> 40) as f32 / (1u64 << 24) as f32 * 2.0 - 1.0;
    match (random.below(16), bits % 4) {
        // Denormal.
        (0, 0) => x * 4e-39,
        (0, _) => x * 1e-20,
        _ => x,
    }
}

pub(crate) fn replay(sides: [(&Kernel, &Reading); 2], random: &mut Random) -> Result<Outcome, String> {
    let page = sides[0].1.natural("PAGE")?;
    if sides[1].1.natural("PAGE")? != page {
        return Err("two contracts of other pages".into());
    }
    let (seed, length) = (random.draw(), random.between(1, 3 * page + 2));
    let mut runs = [Run::new(sides[0], page, length, random)?, Run::new(sides[1], page, length, random)?];
    if sides[0].1.kind == Kind::RecurRead {
        let p = random.below(length);
        for (run, word) in runs.iter_mut().zip(["L", "R"]) {
            match run.read(seed, p, length, random)? {
                Outcome::Same => {}
                Outcome::Different(how) => return Ok(Outcome::Different(format!("run {word} {how}"))),
                not_run => return Ok(not_run),
            }
        }
        return compare_rows(&runs, p);
    }
    for (run, word) in runs.iter_mut().zip(["L", "R"]) {
        while run.requests[0].done < length {
            match run.store(seed, length, random)? {
                Outcome::Same => {}
                Outcome::Different(how) => return Ok(Outcome::Different(format!("run {word} {how}"))),
                not_run => return Ok(not_run),
            }
        }
    }
    compare_entries(&runs, length)
}

impl<'p> Run<'p> {
    fn new(
        (kernel, reading): (&'p Kernel, &'p Reading),
        page: usize,
        length: usize,
        random: &mut Random,
    ) -> Result<Run<'p>, String> {
        let room = (length + 3 * page).div_ceil(page);
        let of_a_page = |p: &Parameter| match p.what {
            What::Entry(_) | What::State(_) => p.inner(1),
            _ => 0,
        };
        let of_a_page: usize = reading.parameters.iter().map(of_a_page).sum();
        let fits = (memory() / 2 / of_a_page.max(1)).saturating_sub(3) / room;
        let others = random.below(3).min(fits.saturating_sub(1));
        let pages = room * (others + 1) + random.between(1, 3);
        let mut free: Vec<i32> = (0..pages as i32).collect();
        random.shuffle(&mut free);
        let request = |shared: bool, free: &mut Vec<i32>, random: &mut Random| Request {
            pages: free.split_off(free.len() - room),
            done: if shared { 0 } else { random.below(2 * page) },
            shared,
        };
        let mut requests = vec![request(true, &mut free, random)];
        (0..others).for_each(|_| requests.push(request(false, &mut free, random)));
        let height = if reading.kind == Kind::RecurRead { reading.natural("BQ")? } else { usize::MAX };
        let mut run = Run { kernel, reading, page, height, requests, kept: vec![], row_of: vec![], buffers: vec![] };
        let mut left = memory() / 2;
        for p in &reading.parameters {
            if !matches!(p.what, What::Entry(_) | What::State(_)) {
                run.kept.push(None);
                continue;
            }
            let mut buffer = zeros(p.holds, &[pages, p.inner(1)], &mut left)?;
            (0..buffer.len()).for_each(|at| put(&mut buffer, at, number(random)));
            run.kept.push(Some(buffer));
        }
        Ok(run)
    }

    /// The cells of the entry of a position of a request; of a state, those of a page's last position.
    fn cells(&self, p: &Parameter, request: &Request, position: usize) -> impl Iterator<Item = usize> + use<> {
        let (page, place) = (request.pages[position / self.page] as usize, position % self.page);
        let all = p.inner(1);
        // An entry has `width` cells in each head, a state all of its page's.
        let (heads, stride, width, first) = match p.what {
            What::Entry(_) => {
                let width = p.inner(p.extents.len() - 1);
                (all / (self.page * width), self.page * width, width, place * width)
            }
            What::State(_) if place + 1 == self.page => (1, all, all, 0),
            _ => (0, 0, 0, 0),
        };
        (0..heads).flat_map(move |head| {
            let start = page * all + head * stride + first;
            start..start + width
        })
    }

    /// One launch of a store: some rows of the shared request, some of others. Drafts have other inputs and do not count.
    fn store(&mut self, seed: u64, length: usize, random: &mut Random) -> Result<Outcome, String> {
        let mut chunks = vec![];
        for (request, own) in self.requests.iter().enumerate() {
            let room = own.pages.len() * self.page - own.done;
            if !own.shared && (room < self.page || random.below(2) == 0) {
                continue;
            }
            let most = if random.below(2) == 0 { 3 } else { 2 * self.page };
            let rows = random.between(1, most);
            let left = if own.shared { length - own.done } else { room };
            let rows = rows.min(left);
            let drafts = random.below(4).min(room - rows);
            chunks.push(Chunk { request, first: own.done, rows: rows + drafts, drafts });
        }
        random.shuffle(&mut chunks);
        let outcome = self.run(&chunks, seed, random)?;
        if outcome != Outcome::Same {
            return Ok(outcome);
        }
        let written: Vec<(usize, usize)> =
            chunks.iter().flat_map(|c| (c.first..c.first + c.rows).map(|at| (c.request, at))).collect();
        for (i, p) in self.reading.parameters.iter().enumerate() {
            let Some(before) = &self.kept[i] else { continue };
            let mut own = vec![false; before.len()];
            for (request, position) in &written {
                self.cells(p, &self.requests[*request], *position).for_each(|at| own[at] = true);
            }
            for (at, own) in own.into_iter().enumerate() {
                let after = f32::from_bits(self.buffers[i].bits(at) as u32);
                if !own && before.bits(at) != self.buffers[i].bits(at) {
                    return Ok(Outcome::Different(format!("element {at} of `{}` changed", p.name)));
                }
                if own && !after.is_finite() {
                    return Ok(Outcome::Different(format!("element {at} of `{}` is not finite", p.name)));
                }
            }
            self.kept[i] = Some(self.buffers[i].clone());
        }
        chunks.iter().for_each(|c| self.requests[c.request].done = c.first + c.rows - c.drafts);
        Ok(Outcome::Same)
    }

    /// One launch of a read, of a chunk around position `p`. Both runs have the entries that `p` sees, and later ones.
    fn read(&mut self, seed: u64, p: usize, length: usize, random: &mut Random) -> Result<Outcome, String> {
        let oldest = p.saturating_sub(self.page);
        for (i, param) in self.reading.parameters.iter().enumerate() {
            let Some(mut buffer) = self.kept[i].take() else { continue };
            for position in oldest..length {
                let mut own = Random::new(seed ^ (position * 64 + i) as u64);
                self.cells(param, &self.requests[0], position).for_each(|at| put(&mut buffer, at, number(&mut own)));
            }
            self.kept[i] = Some(buffer);
        }
        let first = p.saturating_sub(random.below(2 * self.height + 1));
        let end = (p + 1 + random.below(2 * self.height)).min(length);
        let mut chunks = vec![Chunk { request: 0, first, rows: end - first, drafts: 0 }];
        for (request, own) in self.requests.iter().enumerate().skip(1) {
            chunks.push(Chunk { request, first: own.done, rows: random.between(1, 2 * self.height), drafts: 0 });
        }
        random.shuffle(&mut chunks);
        self.run(&chunks, seed, random)
    }

    fn run(&mut self, chunks: &[Chunk], seed: u64, random: &mut Random) -> Result<Outcome, String> {
        let (mut table, mut tiles, mut row) = (vec![], vec![], 0);
        let mut wild = vec![];
        self.row_of.clear();
        for c in chunks {
            let request = &self.requests[c.request];
            let base = table.len();
            // A page that no row sees is behind the window, and gone.
            let behind = c.first.saturating_sub(self.page) / self.page;
            let used = (c.first + c.rows).div_ceil(self.page);
            table.extend((0..used).map(|i| if i < behind { -1 } else { request.pages[i] }));
            let settled = c.rows - c.drafts;
            for i in 0..c.rows {
                match request.shared && i < settled {
                    true => self.row_of.push((c.first + i, row + i)),
                    false => wild.push(row + i),
                }
            }
            let mut at = 0;
            while at < c.rows {
                let n = self.height.min(c.rows - at);
                tiles.push([base as i32, (row + at) as i32, n as i32, (c.first + at) as i32]);
                at += n;
            }
            row += c.rows;
        }
        (0..random.below(3)).for_each(|_| tiles.push([-1, 0, 0, 0]));
        random.shuffle(&mut tiles);
        let mut left = memory() / 2;
        self.buffers.clear();
        for (i, p) in self.reading.parameters.iter().enumerate() {
            let column = |k: usize| Buffer::I32(tiles.iter().map(|t| t[k]).collect());
            let width = p.inner(1);
            let buffer = match p.what {
                What::TileTable => column(0),
                What::TileRow => column(1),
                What::TileRows => column(2),
                What::TilePos => column(3),
                What::Page => Buffer::I32(table.clone()),
                What::Entry(_) | What::State(_) => self.kept[i].clone().ok_or("no entries")?,
                What::In(_) | What::Out(_) if p.extents[0] == Extent::Rows => {
                    let mut buffer = zeros(p.holds, &[row, width], &mut left)?;
                    (0..buffer.len()).for_each(|at| put(&mut buffer, at, number(random)));
                    for (position, row) in &self.row_of {
                        let mut own = Random::new(seed ^ (position * 64 + i) as u64 ^ 1 << 40);
                        (0..width).for_each(|c| put(&mut buffer, row * width + c, number(&mut own)));
                    }
                    // A draft, or a row of another request, may hold anything.
                    for row in wild.iter().filter(|_| random.below(4) == 0) {
                        put(&mut buffer, row * width, [f32::INFINITY, f32::NAN, 1e38][*row % 3]);
                    }
                    buffer
                }
                What::Weight(which) => {
                    let Extent::Number(outer) = p.extents[0] else { return Err(format!("rows of `{}`", p.name)) };
                    let mut own = Random::new(seed ^ (which as u64) << 48);
                    let mut buffer = zeros(p.holds, &[outer, width], &mut left)?;
                    (0..buffer.len()).for_each(|at| put(&mut buffer, at, number(&mut own)));
                    buffer
                }
                what => return Err(format!("a {what:?} in a launch over a state")),
            };
            self.buffers.push(buffer);
        }
        let before = self.buffers.clone();
        let grid = self.reading.grid(Work { rows: row, tiles: tiles.len(), length: 0 })?;
        let outcome = launch(self.kernel, &mut self.buffers, grid, random);
        for (i, p) in self.reading.parameters.iter().enumerate() {
            let written = match p.what {
                What::Out(_) => true,
                What::Entry(_) | What::State(_) => self.reading.kind == Kind::RecurStore,
                _ => false,
            };
            if outcome == Outcome::Same && !written && !before[i].same_bits(&self.buffers[i]) {
                return Ok(Outcome::Different(format!("changed `{}`", p.name)));
            }
        }
        Ok(outcome)
    }
}

fn compare_entries(runs: &[Run; 2], length: usize) -> Result<Outcome, String> {
    for position in 0..length {
        for (i, p) in runs[0].reading.parameters.iter().enumerate() {
            let Some(left) = &runs[0].kept[i] else { continue };
            let j = runs[1].reading.find(p.what).ok_or("another entry")?;
            let right = runs[1].kept[j].as_ref().ok_or("another entry")?;
            let cells = runs[0].cells(p, &runs[0].requests[0], position);
            let others = runs[1].cells(&runs[1].reading.parameters[j], &runs[1].requests[0], position);
            for (c, (x, y)) in cells.zip(others).enumerate() {
                if let Some(how) = differ(left, x, right, y) {
                    return Ok(Outcome::Different(format!(
                        "all entries before position {position} are equal, and number {c} of its `{}` differs: {how}",
                        p.name
                    )));
                }
            }
        }
    }
    Ok(Outcome::Same)
}

/// Compares the rows of both runs at positions from `p` on.
fn compare_rows(runs: &[Run; 2], p: usize) -> Result<Outcome, String> {
    for (i, param) in runs[0].reading.parameters.iter().enumerate() {
        if !matches!(param.what, What::Out(_)) {
            continue;
        }
        let j = runs[1].reading.find(param.what).ok_or("another output")?;
        let width = param.inner(1);
        for (position, l) in runs[0].row_of.iter().filter(|(position, _)| *position >= p) {
            let Some((_, r)) = runs[1].row_of.iter().find(|(other, _)| other == position) else { continue };
            for c in 0..width {
                let how = differ(&runs[0].buffers[i], l * width + c, &runs[1].buffers[j], r * width + c);
                if let Some(how) = how {
                    let name = &param.name;
                    return Ok(Outcome::Different(format!(
                        "position {position} is row {l} of one run and row {r} of the other; column {c} of `{name}` differs: {how}"
                    )));
                }
            }
        }
    }
    Ok(Outcome::Same)
}
