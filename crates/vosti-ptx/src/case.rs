//! Buffers for any kernel by its contract: ragged edges, spare programs, page tables, splits.
//!
//! Tile IR and a GPU add the lanes of a tile along an axis in different orders, and no certificate compares them. So
//! numbers whose sum a kernel takes in this way are such that every order gives the same bits: multiples of 1/8 for
//! norms and what else [`crate::numbers`] has, for attention the keys that [`crate::keys`] describes, for layers with a state those of
//! [`crate::states`], and for draws logits whose weights are powers of two. All other numbers are arbitrary. None is
//! denormal, and what the kernels make of them is not either. Read next: [`crate::compare`].

use crate::keys::Keys;
use crate::numbers::{ALONE, Wanted, chooses, draws, of};
use crate::states::States;
use crate::step::{Step, int, size};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use vosti_contract::{Contract, Extent, FOLDED, Param, Role, Shape, USE};
use vosti_kernels::{KernelError, Spec};
use vosti_tile::interp::Buffer;
use vosti_tile::ir::{Binary, OpKind};
use vosti_tile::{Kernel, Scalar};

/// Physical pages of a cache.
pub(crate) const PAGES: usize = 40;
/// Rows of the rotary tables.
const CONTEXT: usize = 256;
/// Elements of a weight of which a case has the first rows only.
const WEIGHT_MAX: i64 = 1 << 24;
/// The value of [`USE`] for attention over a window.
pub(crate) const WINDOWED: i64 = 1;
/// Numbers of a tile of rows with all its columns, in whose product each end of rows is a case.
const ENDS_MAX: usize = 1 << 18;
/// Of more parts of a row of logits, of which each is a program, a case of several rows computes two.
const PARTS_MAX: usize = 4;

/// A launch of a kernel.
#[derive(Clone, Debug)]
pub struct Case {
    /// One for each parameter.
    pub buffers: Vec<Buffer>,
    /// Programs on each axis, with spare ones.
    pub grid: [usize; 3],
}

/// Seeded random numbers.
pub(crate) struct Random(SplitMix64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(SplitMix64::seed_from_u64(seed))
    }

    pub fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// From -1 to 1.
    pub fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// Roughly normal.
    pub fn float(&mut self) -> f32 {
        (0..4).map(|_| self.unit()).sum()
    }

    /// The numbers below `n`, in some order.
    pub fn order(&mut self, n: usize) -> Vec<i32> {
        let mut order: Vec<i32> = (0..n as i32).collect();
        for i in 0..n {
            order.swap(i, i + self.below(n - i));
        }
        order
    }

    /// A multiple of 1/8 up to 2.
    pub fn eighth(&mut self) -> f32 {
        (self.below(33) as f32 - 16.0) / 8.0
    }
}

impl Case {
    /// A case with `rows` rows; some of its programs are spare.
    pub fn new(spec: &Spec, contract: &Contract, kernel: &Kernel, rows: usize, seed: u64) -> Result<Case, KernelError> {
        let mut random = Random::new(seed);
        let step = step(spec, contract.shape, rows, &mut random);
        let states = contract.shape.recurs().then(|| States::new(spec, &mut random));
        // It adds floats along an axis.
        let sums = has(kernel, |op| matches!(op, OpKind::Reduce { op: Binary::AddF, .. }));
        let mut maker = Maker { spec, contract, step, random, states, sums };
        let buffers = contract.params.iter().map(|param| maker.buffer(param)).collect::<Result<_, _>>()?;
        let step = maker.step;
        // A tile of rows and a split that nothing needs.
        let spare = |many: usize| if rows > 1 { many } else { 0 };
        let length = step.length + spare(int(spec, "SPLIT").map_or(70, |split| split as usize));
        let extent = Extent { rows: rows + spare(size(spec, "BM") + 6), tiles: step.tiles[0].len(), length };
        let mut grid = vosti_contract::Grid::written(contract, &spec.constants)?.at(extent)?;
        // A weight of which only the first experts or rows are there.
        let width = int(spec, "K").or(int(spec, "BLOCKS").map(|blocks| 32 * blocks));
        match (int(spec, "N"), width, int(spec, "E")) {
            (Some(n), Some(width), Some(_)) => grid[2] = grid[2].min((WEIGHT_MAX / (2 * n * width)).max(1) as usize),
            (Some(n), Some(width), None) if n * width > WEIGHT_MAX => {
                grid[1] = grid[1].min((WEIGHT_MAX / width / int(spec, "BN").unwrap_or(1)).max(1) as usize);
            }
            _ => (),
        }
        // Columns have no part in where rows end.
        if int(spec, "BM").is_some_and(|tile| ends_of_tiles(spec, tile as usize).any(|end| end == rows)) {
            grid[1] = grid[1].min(1);
        }
        // Parts of a row of logits are alike but for the last, which one row has always.
        if int(spec, "PARTS").is_some_and(|parts| parts > PARTS_MAX as i64) && rows > 1 {
            grid[1] = grid[1].min(2);
        }
        Ok(Case { buffers, grid })
    }
}

/// Whether a kernel has such an operation.
fn has(kernel: &Kernel, wanted: fn(&OpKind) -> bool) -> bool {
    let mut found = false;
    kernel.walk(&mut |op| found |= wanted(&op.kind));
    found
}

/// Requests of random lengths, at most HEIGHT rows of one in a query tile, or one request in one tile; the last tile is
/// spare.
fn step(spec: &Spec, shape: Shape, rows: usize, random: &mut Random) -> Step {
    // A store that looks back has a request's rows in one tile.
    let requests = match shape {
        Shape::RecurStore => around_pages(size(spec, "PAGE"), rows, random),
        _ => requests(spec, shape, rows, random),
    };
    let mut free = random.order(PAGES);
    let mut step = Step::of(spec, shape, &requests, CONTEXT, |needed| match shape {
        // Pages of its own.
        Shape::RecurStore => free.split_off(free.len() - needed),
        // Those of which most keys count.
        _ if whole_pages(spec) == Some(rows) && needed < PAGES / 3 * 2 => {
            (0..needed as i32).map(|at| at + at / 2).collect()
        }
        // Later pages have larger numbers.
        _ => {
            let mut next = 0;
            let page = |left: usize| {
                next += random.below((PAGES - left).saturating_sub(next).min(3)) + 1;
                next as i32 - 1
            };
            (0..needed).rev().map(page).collect()
        }
    });
    step.pages = PAGES;
    step.tiles.iter_mut().zip([-1, 0, 0, 0]).for_each(|(list, value)| list.push(value));
    step
}

/// How many rows each request has, and the first one's position. Several rows are of several requests.
fn requests(spec: &Spec, shape: Shape, rows: usize, random: &mut Random) -> Vec<(usize, usize)> {
    // Attention: each key of a page is the last that some row sees, of the first page and of a later one.
    if shape.attends() && whole_pages(spec) == Some(rows) {
        let height = Some(size(spec, "HEIGHT")).filter(|height| *height < rows).unwrap_or(0);
        // Over a window, each is the first too; the second tile's first row is the last one that sees a key of the request's first page.
        return vec![(rows, window(spec).map_or(0, |window| window + rows - height - 2))];
    }
    // And each number of pages in a split, or of splits.
    if let Some((_, part)) = parts(spec).filter(|(many, _)| *many == rows) {
        return (0..rows).map(|at| (1, at * part + random.below(part))).collect();
    }
    let mut requests = vec![];
    let mut left = rows;
    while left > 0 {
        let many = match requests.is_empty() {
            true => rows.div_ceil(2),
            false => (1 + random.below(2 * size(spec, "HEIGHT"))).min(left),
        };
        requests.push((many, start(spec, shape, (requests.len(), many), random)));
        left -= many;
    }
    requests
}

/// The first position of a request's rows. Of attention, the second request is new.
fn start(spec: &Spec, shape: Shape, (at, many): (usize, usize), random: &mut Random) -> usize {
    let around = |place: usize| place.saturating_sub(many / 2);
    match (at % 4, window(spec), int(spec, "SPLIT")) {
        (1, ..) if shape.attends() => 0,
        // Rows that see as many keys as a window has, and rows that see fewer.
        (0, Some(window), _) => around(window),
        // Where keys are split, some rows see one split and some two; or more, where a launch folds them.
        (0 | 2, None, Some(split)) => {
            let many = match int(spec, USE) {
                Some(FOLDED) => 2,
                Some(_) => 1,
                None => splits(spec) / (1 + at % 4),
            };
            around(many * split as usize)
        }
        // Where pages carry a state, some rows of a tile see one page and some the next; inputs of a convolution are
        // on both sides of a page's end.
        (0, None, None) if shape.recurs() || shape.attends() => around(size(spec, "PAGE")),
        _ => random.below(150),
    }
}

/// What keys that are split are cut into: pages of a split, or splits where no keys are made; how many at most, and the keys of one.
fn parts(spec: &Spec) -> Option<(usize, usize)> {
    let split = int(spec, "SPLIT")? as usize;
    Some(match int(spec, "PAGE") {
        Some(page) => (split / page as usize, page as usize),
        None => (splits(spec), split),
    })
}

/// No keys are made for the second launch: as many splits as 32 MiB of scratch hold.
fn splits(spec: &Spec) -> usize {
    let split = ["ROWS", "KV_HEADS", "GROUP", "D"].map(|name| size(spec, name)).iter().product::<usize>();
    ((1 << 23) / split).clamp(2, 18)
}

/// How many rows the request of a case has that begins at a page's first place: two pages, or over a window one.
fn whole_pages(spec: &Spec) -> Option<usize> {
    let page = int(spec, "SPLIT").and_then(|_| int(spec, "PAGE"))? as usize;
    Some(if window(spec).is_some() { page } else { 2 * page })
}

/// How many keys a row of attention over a window sees, if a case has as many.
fn window(spec: &Spec) -> Option<usize> {
    let window = int(spec, "WINDOW").filter(|_| int(spec, USE) == Some(WINDOWED))? as usize;
    (window + 2 * size(spec, "PAGE") <= PAGES * size(spec, "PAGE")).then_some(window)
}

/// One row somewhere; or the last row of the first page, the last row of a page and the next page's first, and rows
/// that begin inside of a page and go on behind the end of another.
fn around_pages(page: usize, rows: usize, random: &mut Random) -> Vec<(usize, usize)> {
    match rows {
        0..=3 => vec![(rows, random.below(150))],
        _ => vec![(1, page - 1), (2, 2 * page - 1), (rows - 3, page - 1 - random.below(8))],
    }
}

struct Maker<'a> {
    spec: &'a Spec,
    contract: &'a Contract,
    step: Step,
    random: Random,
    /// Of a layer with a state.
    states: Option<States>,
    /// The kernel adds floats along an axis.
    sums: bool,
}

impl Maker<'_> {
    fn buffer(&mut self, param: &Param) -> Result<Buffer, KernelError> {
        if let Some(numbers) = self.step.metadata(param.role) {
            return Ok(Buffer::I32(numbers));
        }
        let elem = Scalar::from(param.elem(self.spec.act));
        Ok(match param.role {
            Role::Tokens => self.below(self.tokens()),
            Role::Positions => self.below(CONTEXT),
            Role::RowIndex => self.below(self.step.rows),
            Role::Slots => self.slots(),
            // A convolution has no keys.
            Role::CacheK if self.contract.shape.attends() && self.sums => {
                self.floats(elem, &mut |maker, keys| keys.keys(&mut maker.random))
            }
            Role::CacheK | Role::CacheV => self.floats(elem, &mut |maker, keys| keys.any(&mut maker.random)),
            Role::In(0) if self.contract.shape.attends() && self.sums => {
                let [many, _] = self.extent(param)?;
                self.floats(elem, &mut |maker, keys| keys.queries(many, &mut maker.random))
            }
            _ => {
                let [many, width] = self.extent(param)?;
                match &self.states {
                    Some(states) => of_state(
                        states,
                        &self.step,
                        self.spec,
                        (self.contract.shape, param.role, many),
                        &mut self.random,
                    ),
                    None => {
                        let (spec, shape, sums) = (self.spec, self.contract.shape, self.sums);
                        Wanted { spec, shape, role: param.role, name: &param.name, elem, many, width, sums }
                            .numbers(&mut self.random)
                    }
                }
            }
        })
    }

    /// How many elements a buffer with a shape of its own has here, and how many of a row.
    fn extent(&self, param: &Param) -> Result<[usize; 2], KernelError> {
        let extents = self.step.extents(self.spec, self.contract, param)?;
        let many: i64 = extents.iter().product();
        let inner: i64 = extents.iter().skip(1).product();
        // The second half of a gated layer's weight is as far away as N says.
        let shape = self.contract.shapes.get(&param.name).and_then(|list| list.first());
        let halves = shape.is_some_and(|first| first.starts_with("2 *"));
        let cut = matches!(param.role, Role::Weight(_)) && many > WEIGHT_MAX && !halves;
        let inner = inner.max(1);
        Ok([if cut { (WEIGHT_MAX / inner).max(1) * inner } else { many }, inner].map(|many| many as usize))
    }

    fn floats(&mut self, elem: Scalar, make: &mut dyn FnMut(&mut Self, &Keys) -> Vec<f32>) -> Buffer {
        let keys = Keys::new(self.spec);
        of(elem, make(self, &keys).into_iter())
    }

    fn below(&mut self, most: usize) -> Buffer {
        Buffer::I32((0..self.step.rows).map(|_| self.random.below(most) as i32).collect())
    }

    fn tokens(&self) -> usize {
        let (height, width) = (size(self.spec, "V"), size(self.spec, "H"));
        height.min(WEIGHT_MAX as usize / width)
    }

    /// A slot of its own for each row.
    fn slots(&mut self) -> Buffer {
        let mut slots = self.random.order(PAGES * size(self.spec, "PAGE"));
        slots.truncate(self.step.rows);
        Buffer::I32(slots)
    }
}

/// What a kernel of a layer with a state reads and writes.
fn of_state(
    states: &States,
    step: &Step,
    spec: &Spec,
    (shape, role, many): (Shape, Role, usize),
    random: &mut Random,
) -> Buffer {
    let page = size(spec, "PAGE");
    let heads = size(spec, "KEY_HEADS");
    let numbers: Vec<f32> = match (shape, role) {
        (Shape::RecurStore, Role::In(0)) => {
            states.keys(step.positions().map(|position| (position % page, false)), heads, random)
        }
        (Shape::RecurStore, Role::In(2)) => (0..many).map(|_| States::decay(random)).collect(),
        (Shape::RecurStore, Role::Entry(0)) => {
            let lines = (0..PAGES * heads * size(spec, "GROUP")).map(|line| line / heads / size(spec, "GROUP"));
            let places = lines.flat_map(|at| (0..page).map(move |place| (place, step.dense.contains(&(at as i32)))));
            states.keys(places, 1, random)
        }
        (_, Role::Entry(2)) => states.decays(many, random),
        _ => (0..many).map(|_| random.float()).collect(),
    };
    let given = matches!((shape, role), (Shape::RecurStore, Role::In(_)));
    of(
        Scalar::F32,
        numbers.into_iter().map(|number| if given { States::or_not_finite(number, 64, random) } else { number }),
    )
}

/// The rows of the cases of a kernel: one, some more than a row tile or than a page, and of attention one or two pages, and as
/// many as a split has pages or as there are splits. Rows that are chosen from or drawn from are of many kinds. Each row of a tile is
/// once the first behind the last, if there are no matrix products or they are small; else some are.
pub fn row_counts(spec: &Spec, kernel: &Kernel) -> Vec<usize> {
    if int(spec, "DK").is_some() && int(spec, "HEIGHT").is_none() {
        return vec![1, size(spec, "PAGE") + 12];
    }
    let Some(tile) = int(spec, "BM").map(|rows| rows as usize) else {
        return [1, size(spec, "HEIGHT") + 3]
            .into_iter()
            .chain(whole_pages(spec))
            .chain(parts(spec).map(|(many, _)| many))
            .collect();
    };
    match tile {
        1 if draws(spec) => vec![1, 40],
        1 if spec.kernel == "argmax" => vec![1, 16 + ALONE],
        1 if chooses(spec) || int(spec, "SIGMOID").is_some() => vec![1, 16],
        1 => vec![1, 4],
        2..=16 if !has(kernel, |op| matches!(op, OpKind::Dot { .. })) => {
            [1].into_iter().chain(tile + 1..=2 * tile).collect()
        }
        _ => [1, tile + 3, tile * 5 / 8].into_iter().chain(ends_of_tiles(spec, tile)).collect(),
    }
}

/// Row counts that end at each sixteenth row of a tile of a product, where the case is small. A thread has every eighth or sixteenth row,
/// so each that it has is once the first behind the last.
fn ends_of_tiles(spec: &Spec, tile: usize) -> impl Iterator<Item = usize> {
    let small = int(spec, "K").is_some_and(|k| k as usize * tile <= ENDS_MAX);
    (0..if small { tile / 16 } else { 0 }).map(|end| 16 * end + 5)
}
