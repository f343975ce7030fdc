//! Numbers of a parameter that suit its kernel: those that it sums have one sum in every order, and its special cases happen.
//!
//! Of a kernel that adds floats along an axis, every second row or so of what it adds is so small that its squares are no larger
//! than the small number that a norm adds to their mean.

use crate::case::Random;
use crate::states::States;
use crate::step::{int, size};
use vosti_contract::{Role, Shape};
use vosti_kernels::Spec;
use vosti_tile::Scalar;
use vosti_tile::interp::Buffer;
use vosti_tile::numerics::to_bf16;

/// What numbers are wanted of.
pub(crate) struct Wanted<'a> {
    pub spec: &'a Spec,
    pub shape: Shape,
    pub role: Role,
    pub name: &'a str,
    pub elem: Scalar,
    /// How many, and how many of a row.
    pub many: usize,
    pub width: usize,
    /// The kernel adds floats along an axis.
    pub sums: bool,
}

/// Whether a kernel chooses the largest of a row's numbers.
pub(crate) fn chooses(spec: &Spec) -> bool {
    ["argmax", "topk_part", "topk_combine"].contains(&spec.kernel.as_str())
}

/// Whether a kernel draws by weight.
pub(crate) fn draws(spec: &Spec) -> bool {
    spec.kernel.starts_with("draw_")
}

/// Floats in an element type.
pub(crate) fn of(elem: Scalar, floats: impl Iterator<Item = f32>) -> Buffer {
    match elem {
        Scalar::Bf16 => Buffer::Bf16(floats.map(to_bf16).collect()),
        _ => Buffer::F32(floats.collect()),
    }
}

impl Wanted<'_> {
    pub fn numbers(&self, random: &mut Random) -> Buffer {
        let Wanted { spec, elem, many, width, .. } = *self;
        let wide = int(spec, "WIDE") == Some(1);
        match (self.role, elem) {
            (Role::In(_), _) if draws(spec) => self.each(|at| of_draw(self.name, at / width, random)),
            (_, Scalar::I32) => Buffer::I32(chosen(size(spec, "E"), many, width, random)),
            (Role::In(0), _) if int(spec, "SIGMOID").is_some() => {
                let sigmoid = int(spec, "SIGMOID") == Some(1);
                of(elem, (0..many / width).flat_map(|row| router(width, row, sigmoid, random)))
            }
            (Role::Weight(0), _) if int(spec, "SIGMOID").is_some() => self.each(|_| bias(random)),
            // Sums of codes, whose products are no smaller than the others, so that a wrong one is not rounded away.
            (Role::In(3), Scalar::F32) if int(spec, "BLOCKS").is_some() => {
                let largest = if wide { 1e6 } else { 4e3 };
                self.each(|_| (largest * random.unit()).round())
            }
            // Scales and offsets of codes, so small that a function of their sums is not its limit, and what is added to a sum counts.
            (Role::Weight(1 | 2), Scalar::F32) if int(spec, "BLOCKS").is_some() => {
                let scale = if wide { 1e-6 } else { 2e-4 } / (size(spec, "BLOCKS") as f32).sqrt();
                self.each(|_| scale * random.float())
            }
            (_, Scalar::I8) => Buffer::I8((0..many).map(|_| random.next() as i8).collect()),
            (Role::In(0), _) if spec.kernel == "quantise" => {
                of(elem, (0..many / 32).flat_map(|block| quantised(block, random)))
            }
            // Places of candidates, each once in a row.
            (Role::In(1), _) if chooses(spec) => self.each(|i| ((i * 7919) % (1 << 20)) as f32),
            (Role::In(0), _) if chooses(spec) => {
                // What is chosen from parts has no negative zero.
                let zero = if spec.kernel == "topk_combine" { 0.0 } else { -0.0 };
                of(elem, (0..many / width).flat_map(|row| candidates(width, row, zero, random)))
            }
            // Sums of a gated unit, so small that no activation times another number is subnormal: a GELU's is from -10
            // on.
            (Role::Weight(0), Scalar::Bf16) if int(spec, "ACT").is_some() => {
                let spread = if int(spec, "ACT") == Some(1) { 1.5 } else { 3.0 };
                let scale = spread / (size(spec, "K") as f32).sqrt();
                self.each(|_| scale * random.float())
            }
            (Role::In(0), _) if self.shape == Shape::StoreKv => self.heads(random),
            // A key's cosine makes the largest BF16 a number above it that is finite in FP32.
            (Role::Weight(3), _) if self.shape == Shape::StoreKv => {
                self.each(|_| if random.below(8) == 0 { 1.0025 } else { random.float() })
            }
            // A sink is above the scores of some pages, and below those of others.
            (Role::Weight(0), _) if int(spec, "SINKS") == Some(1) => {
                self.each(|_| random.float() + 3.0 * random.below(8) as f32)
            }
            (Role::In(i), _) if self.sums && i == summed(spec) => of(elem, self.rows(random).into_iter()),
            // What a softplus is of.
            (Role::In(1), _) if ["delta_inputs", "mamba_inputs"].contains(&spec.kernel.as_str()) => {
                self.each(|_| 4.0 * random.float())
            }
            // Sums of weights and their like are positive.
            (Role::Scratch(1), _) => self.each(|_| 1.5 + random.unit()),
            _ => self.each(|_| random.float()),
        }
    }

    fn each(&self, make: impl FnMut(usize) -> f32) -> Buffer {
        of(self.elem, (0..self.many).map(make))
    }

    /// Heads of which some have numbers that are not finite, or too large: a store makes them 0.
    fn heads(&self, random: &mut Random) -> Buffer {
        let numbers =
            if self.sums { self.rows(random) } else { (0..self.many).map(|_| random.float()).collect::<Vec<_>>() };
        let head = 2 * size(self.spec, "HALF");
        let mut hurt = false;
        let mut number = |(at, number): (usize, f32)| {
            hurt = if at.is_multiple_of(head) { random.below(3) == 0 } else { hurt };
            if hurt { States::or_not_finite(number, 24, random) } else { number }
        };
        of(self.elem, numbers.into_iter().enumerate().map(&mut number))
    }

    /// Rows of multiples of 1/8, or of a 1024th of that.
    fn rows(&self, random: &mut Random) -> Vec<f32> {
        let mut found = Vec::with_capacity(self.many);
        for row in 0..self.many / self.width {
            let scale = if row == 1 || random.below(2) == 0 { 1.0 / 1024.0 } else { 1.0 };
            found.extend((0..self.width).map(|_| scale * random.eighth()));
        }
        found
    }
}

/// Which of its inputs a kernel adds along an axis.
fn summed(spec: &Spec) -> usize {
    usize::from(["rmsnorm_add", "rmsnorm_add_scaled", "per_layer_gate"].contains(&spec.kernel.as_str()))
}

/// A number of a row of a draw. Logits times their scale differ by whole numbers, so that weights are powers of two from 1 to
/// 2^-12, or zero. The sums of 2,048 of them, and of 256 parts with up to 16, have one value in every order. In some rows
/// there is no number, all are below zero, or all are equal: then many a share of a sum is the sum of its first columns.
fn of_draw(name: &str, row: usize, random: &mut Random) -> f32 {
    let (none, low, equal) = (row % 16 == 3, row % 4 == 2, row % 2 == 1);
    match name {
        "scale" => [0.5, 1.0, 2.0, f32::MAX][random.below(4)],
        "within" | "pick" => match random.below(4) {
            0 => [0.0, 1.0 - f32::EPSILON / 2.0][random.below(2)],
            _ if equal || random.below(2) == 0 => random.below(32) as f32 / 32.0,
            _ => random.below(1 << 24) as f32 / 16_777_216.0,
        },
        "sums" if equal => 4.0,
        "sums" => 1.0 + random.below(16) as f32,
        "tokens" => random.below(1 << 20) as f32,
        _ if none => [f32::NAN, f32::NEG_INFINITY][row / 16 % 2 * random.below(2)],
        _ if equal => 2.0,
        _ => match random.below(1000) {
            at if at < if row % 8 == 4 { 50 } else { 1 } => f32::INFINITY,
            0..100 => [f32::NAN, f32::NEG_INFINITY, -f32::MAX][random.below(3)],
            _ => 2.0 * random.below(4) as f32 - if low { 64.0 } else { 0.0 },
        },
    }
}

/// Experts that rows of so many choose, and indices that are none, which count as the first or the last. A single row's differ, as far as
/// there are so many. Of several rows, one alone chooses the second expert, the fourth and so on, and chooses it once: so whoever asks
/// whether any row of a tile chose an expert must ask each row, of each place.
fn chosen(experts: usize, many: usize, width: usize, random: &mut Random) -> Vec<i32> {
    if many == width {
        let apart = random.order(experts);
        return (0..many).map(|at| apart[at % experts]).collect();
    }
    let alone = |expert: i32| expert % 2 == 1 && expert + 1 < experts as i32;
    let draw = |random: &mut Random| random.below(experts + 2) as i32 - 1;
    let mut all: Vec<i32> = (0..many).map(|_| draw(random)).map(|expert| expert - i32::from(alone(expert))).collect();
    for expert in (0..experts as i32).filter(|expert| alone(*expert)) {
        all[random.below(many)] = expert;
    }
    all
}

/// A row of router logits. In every second row two experts have a share, and in others many: all the same, or with a sigmoid a half
/// and a whole. Shares of all others are too small for FP32, and some of these are equal, or no numbers. In some rows no expert
/// has a number.
fn router(experts: usize, row: usize, sigmoid: bool, random: &mut Random) -> Vec<f32> {
    let (hot, own) = (random.below(experts), random.float());
    let pair = [hot, (hot + 2) % experts];
    let cold = |random: &mut Random| match random.below(6) {
        0 => f32::NAN,
        1 => f32::NEG_INFINITY,
        2 | 3 => -150.0,
        _ => -150.0 - 20.0 * random.unit(),
    };
    let logit = |at| match (row % 8, pair.iter().position(|hot| *hot == at)) {
        (5, _) => [f32::NAN, f32::NEG_INFINITY][random.below(2)],
        (1 | 3 | 7, _) if random.below(2) == 0 => cold(random),
        (1 | 3 | 7, _) if sigmoid => [0.0, 20.0][random.below(2)],
        (1 | 3 | 7, _) => own,
        (_, Some(0)) => own,
        (_, Some(_)) => random.float(),
        (_, None) => cold(random),
    };
    (0..experts).map(logit).collect()
}

/// What joins a score for the choice alone: many are equal, and a few are no numbers, so that few groups have an infinite one.
fn bias(random: &mut Random) -> f32 {
    match random.below(40) {
        0 => [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][random.below(3)],
        1..16 => random.below(5) as f32 / 4.0 - 0.5,
        _ => random.float(),
    }
}

/// A block of 32 numbers that become integers: any, zeros, so small that it counts as zeros, just larger, not finite, or numbers
/// that are rounded from the middle between two integers.
fn quantised(block: usize, random: &mut Random) -> Vec<f32> {
    let odd = random.below(32);
    // The largest BF16 up to 1e-30 and the next one.
    let edge = [0x0da2, 0x0da3][random.below(2)];
    let edge = f32::from_bits(edge << 16);
    let number = |at: usize| match block % 7 {
        1 => 0.0,
        2 => 4e-31 * random.unit(),
        3 if at == odd => [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][random.below(3)],
        4 if at == odd => edge,
        4 => edge * random.unit() / 2.0,
        5 if at == odd => 127.0,
        5 => random.below(253) as f32 / 2.0 - 63.0,
        6 if at == odd => 1.0,
        6 => [1.0, -1.0][random.below(2)] / (1 << random.below(6)) as f32,
        _ => random.float(),
    };
    (0..32).map(number).collect()
}

/// Rows of which one number alone is the largest, each at another place: so each that a thread has is chosen in some row. The places are
/// those of 128 threads that have eight numbers beside each other in every 1,024.
pub(crate) const ALONE: usize = 80;

/// A row of numbers to choose from: many are equal, and some are no numbers. Of some rows none is a number, all are below zero,
/// or few are numbers, of which none is above zero but the smallest normal one.
fn candidates(width: usize, row: usize, zero: f32, random: &mut Random) -> Vec<f32> {
    if let Some(row) = row.checked_sub(16) {
        let place = (row % 8 + 8 * random.below(128) + row / 8 * 1024) % width;
        return (0..width).map(|at| if at == place { 9.0 } else { random.float() }).collect();
    }
    const MIXED: [f32; 8] = [f32::NAN, f32::NEG_INFINITY, -1.0, 0.0, 0.25, 0.5, 3.0, 7.0];
    let low = [zero, zero, 0.0, -1.0, -f32::MIN_POSITIVE, f32::MIN_POSITIVE];
    let (kinds, low) = (&MIXED[..1 + random.below(MIXED.len())], &low[..5 + row / 4 % 2]);
    let below = if row % 8 == 4 { 64.0 } else { 0.0 };
    let few: Vec<usize> = (0..1 + random.below(64)).map(|_| random.below(width)).collect();
    let number = |at| match (row % 4, random.below(3)) {
        (1, _) => f32::NAN,
        (2, 0) => f32::NAN,
        (3, _) if !few.contains(&at) => [f32::NAN, f32::NEG_INFINITY][row / 4 % 2],
        (2 | 3, _) => low[random.below(low.len())],
        (_, 0) => random.float() - below,
        _ => kinds[random.below(kinds.len())] - below,
    };
    (0..width).map(number).collect()
}
