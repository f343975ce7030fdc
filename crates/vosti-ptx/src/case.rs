//! Buffers for any kernel by its contract: ragged edges, spare programs, page tables, splits.
//!
//! Tile IR and a GPU add the lanes of a tile along an axis in different orders, and no certificate compares them. So
//! numbers whose sum a kernel takes in this way are such that every order gives the same bits: multiples of 1/8 for
//! norms, for attention the keys that [`crate::keys`] describes, for layers with a state those of
//! [`crate::states`], and for draws logits whose weights are powers of two. All other numbers are arbitrary. None is
//! denormal, and what the kernels make of them is not either. Read next: [`crate::compare`].

use crate::keys::Keys;
use crate::states::States;
use crate::step::{Step, int, size};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use vosti_contract::{Contract, Extent, FOLDED, Param, Role, Shape, USE};
use vosti_kernels::{KernelError, Spec};
use vosti_tile::interp::Buffer;
use vosti_tile::ir::{Binary, OpKind};
use vosti_tile::numerics::to_bf16;
use vosti_tile::{Kernel, Scalar};

/// Physical pages of a cache.
pub(crate) const PAGES: usize = 40;
/// Rows of the rotary tables.
const CONTEXT: usize = 256;
/// Elements of a weight of which a case has the first rows only.
const WEIGHT_MAX: i64 = 1 << 24;
/// Parts of a row of logits of which each is a program, that a case computes.
const PARTS_MAX: usize = 2;

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
        let mut maker = Maker { spec, contract, step, random, states, exact: sums(kernel) };
        let buffers = contract.params.iter().map(|param| maker.buffer(param)).collect::<Result<_, _>>()?;
        let step = maker.step;
        let spare = usize::from(rows > 1);
        let extent = Extent { rows: rows + spare * 70, tiles: step.tiles[0].len(), length: step.length + spare * 70 };
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
        // Parts of a row of logits are alike.
        if int(spec, "PARTS").is_some() {
            grid[1] = grid[1].min(PARTS_MAX);
        }
        Ok(Case { buffers, grid })
    }
}

/// Whether a kernel adds floats along an axis.
fn sums(kernel: &Kernel) -> bool {
    let mut found = false;
    kernel.walk(&mut |op| found |= matches!(op.kind, OpKind::Reduce { op: Binary::AddF, .. }));
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

/// How many rows each request has, and the first one's position.
fn requests(spec: &Spec, shape: Shape, rows: usize, random: &mut Random) -> Vec<(usize, usize)> {
    // Attention: every row of a page once, so that each key is the last that some row sees.
    if shape.attends() && int(spec, "PAGE") == Some(rows as i64) {
        return vec![(rows, random.below(rows))];
    }
    let mut requests = vec![];
    let mut left = rows;
    while left > 0 {
        let many = (1 + random.below(2 * size(spec, "HEIGHT"))).min(left);
        let start = match int(spec, "SPLIT") {
            // Where keys are split, some rows see one split and some two; or two and three, where a launch folds them.
            Some(split) if random.below(2) == 0 => {
                let splits = if int(spec, USE) == Some(FOLDED) { 1 + random.below(2) } else { 1 };
                (splits * split as usize).saturating_sub(5) + random.below(10)
            }
            // Where pages carry a state, some rows of a tile see one page and some the next.
            _ if shape.recurs() && random.below(2) == 0 => (size(spec, "PAGE") - 1).saturating_sub(random.below(many)),
            _ => random.below(150),
        };
        requests.push((many, start));
        left -= many;
    }
    requests
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
    exact: bool,
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
            Role::CacheK if self.contract.shape.attends() => {
                self.floats(elem, &mut |maker, keys| keys.keys(&mut maker.random))
            }
            Role::CacheV if self.contract.shape.attends() => {
                self.floats(elem, &mut |maker, keys| keys.any(&mut maker.random))
            }
            Role::CacheK | Role::CacheV => self.floats(elem, &mut |maker, keys| keys.any(&mut maker.random)),
            Role::In(0) if self.contract.shape.attends() => {
                let many = self.extent(param)?;
                self.floats(elem, &mut |maker, keys| keys.queries(many, &mut maker.random))
            }
            _ => {
                let many = self.extent(param)?;
                match &self.states {
                    Some(states) => of_state(
                        states,
                        &self.step,
                        self.spec,
                        (self.contract.shape, param.role, many),
                        &mut self.random,
                    ),
                    None => self.numbers(param, elem, many),
                }
            }
        })
    }

    /// How many elements a buffer with a shape of its own has here.
    fn extent(&self, param: &Param) -> Result<usize, KernelError> {
        let extents = self.step.extents(self.spec, self.contract, param)?;
        let many: i64 = extents.iter().product();
        let inner: i64 = extents.iter().skip(1).product();
        // The second half of a gated layer's weight is as far away as N says.
        let shape = self.contract.shapes.get(&param.name).and_then(|list| list.first());
        let halves = shape.is_some_and(|first| first.starts_with("2 *"));
        let cut = matches!(param.role, Role::Weight(_)) && many > WEIGHT_MAX && !halves;
        Ok(if cut { (WEIGHT_MAX / inner.max(1)).max(1) * inner } else { many } as usize)
    }

    /// Numbers of a kind that suits the kernel.
    fn numbers(&mut self, param: &Param, elem: Scalar, many: usize) -> Buffer {
        let chooses = ["argmax", "topk_part", "topk_combine"].contains(&self.spec.kernel.as_str());
        match (param.role, elem) {
            (Role::In(_), _) if self.spec.kernel.starts_with("draw_") => {
                Buffer::F32((0..many).map(|_| of_draw(&param.name, &mut self.random)).collect())
            }
            // Experts, and indices that are none.
            (_, Scalar::I32) => {
                let experts = int(self.spec, "E").unwrap_or(1) as usize + 2;
                Buffer::I32((0..many).map(|_| self.random.below(experts) as i32 - 1).collect())
            }
            // Two experts of each row have a share; those of all others are too small for FP32.
            (Role::In(0), _) if int(self.spec, "SIGMOID").is_some() => {
                let experts = int(self.spec, "E").unwrap_or(1) as usize;
                let hot: Vec<usize> = (0..many).map(|_| self.random.below(experts)).collect();
                let logit = |i: usize, random: &mut Random| match (i % experts).abs_diff(hot[i / experts]) {
                    0 => random.float(),
                    _ if i % experts == (hot[i / experts] + 2) % experts => random.float(),
                    _ => -150.0 - 20.0 * random.unit(),
                };
                of(elem, (0..many).map(|i| logit(i, &mut self.random)))
            }
            // Sums of codes, whose products are no smaller than the others, so that a wrong one is not rounded away.
            (Role::In(3), Scalar::F32) if int(self.spec, "BLOCKS").is_some() => {
                let largest = if int(self.spec, "WIDE") == Some(1) { 1e6 } else { 4e3 };
                Buffer::F32((0..many).map(|_| (largest * self.random.unit()).round()).collect())
            }
            (_, Scalar::I8) => Buffer::I8((0..many).map(|_| self.random.next() as i8).collect()),
            // Places of candidates, each once in a row.
            (Role::In(1), _) if chooses => Buffer::F32((0..many).map(|i| ((i * 7919) % (1 << 20)) as f32).collect()),
            // Many are equal, and some are no numbers.
            (Role::In(0), _) if chooses => {
                let kinds = [f32::NAN, f32::NEG_INFINITY, -1.0, 0.25, 0.5, 3.0, 7.0];
                let kinds = &kinds[..1 + self.random.below(kinds.len())];
                let number = |random: &mut Random| match random.below(3) {
                    0 => random.float(),
                    _ => kinds[random.below(kinds.len())],
                };
                Buffer::F32((0..many).map(|_| number(&mut self.random)).collect())
            }
            // Sums of a gated unit, so small that no activation times another number is subnormal: a GELU's is from -10
            // on.
            (Role::Weight(0), Scalar::Bf16) if int(self.spec, "ACT").is_some() => {
                let spread = if int(self.spec, "ACT") == Some(1) { 1.5 } else { 3.0 };
                let scale = spread / (size(self.spec, "K") as f32).sqrt();
                of(elem, (0..many).map(|_| scale * self.random.float()))
            }
            // Heads of which some have numbers that are not finite: a store makes them 0.
            (Role::In(0), _) if self.contract.shape == Shape::StoreKv => {
                let head = 2 * size(self.spec, "HALF");
                let mut hurt = false;
                let number = |at: usize| {
                    hurt = if at.is_multiple_of(head) { self.random.below(3) == 0 } else { hurt };
                    let number = if self.exact { self.random.eighth() } else { self.random.float() };
                    if hurt { States::or_not_finite(number, &mut self.random) } else { number }
                };
                of(elem, (0..many).map(number))
            }
            (Role::In(_), _) if self.exact => of(elem, (0..many).map(|_| self.random.eighth())),
            // Sums of weights and their like are positive.
            (Role::Scratch(1), _) => of(elem, (0..many).map(|_| 1.5 + self.random.unit())),
            _ => of(elem, (0..many).map(|_| self.random.float())),
        }
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

/// A number of a draw. Logits times their scale differ by whole numbers, so that weights are powers of two from 1 to 2^-12, or
/// zero. The sums of 2,048 of them, and of 256 parts with up to 16, have one value in every order.
fn of_draw(name: &str, random: &mut Random) -> f32 {
    match name {
        "scale" => [0.5, 1.0, 2.0, f32::MAX][random.below(4)],
        "within" | "pick" => match random.below(4) {
            0 => [0.0, 1.0 - f32::EPSILON / 2.0][random.below(2)],
            _ => random.below(1 << 24) as f32 / 16_777_216.0,
        },
        "sums" => 1.0 + random.below(16) as f32,
        "tokens" => random.below(1 << 20) as f32,
        _ => match random.below(3000) {
            0 => f32::INFINITY,
            1..300 => [f32::NAN, f32::NEG_INFINITY, -f32::MAX][random.below(3)],
            _ => 2.0 * random.below(4) as f32,
        },
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
        numbers.into_iter().map(|number| if given { States::or_not_finite(number, random) } else { number }),
    )
}

/// Floats in an element type.
fn of(elem: Scalar, floats: impl Iterator<Item = f32>) -> Buffer {
    match elem {
        Scalar::Bf16 => Buffer::Bf16(floats.map(to_bf16).collect()),
        _ => Buffer::F32(floats.collect()),
    }
}

/// The rows of the cases of a kernel: one, some more than a row tile or than a page, and of attention a page.
pub fn row_counts(spec: &Spec) -> Vec<usize> {
    if int(spec, "DK").is_some() && int(spec, "HEIGHT").is_none() {
        return vec![1, size(spec, "PAGE") + 12];
    }
    let tile = int(spec, "BM").or(int(spec, "HEIGHT")).unwrap_or(1).max(1) as usize;
    let page = int(spec, "PAGE").filter(|_| int(spec, "SPLIT").is_some()).map(|page| page as usize);
    [1, tile + 3].into_iter().chain(page).collect()
}
