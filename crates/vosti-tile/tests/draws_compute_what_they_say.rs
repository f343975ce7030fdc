//! Compares the two launches of a draw, on the interpreter, with inverses of cumulative distributions in FP64.

mod common;

use common::{Random, some_of_each};
use std::collections::BTreeMap;
use vosti_contract::Const;
use vosti_tile::interp::{Buffer, Options, Order, Undefined, run};
use vosti_tile::{Kernel, Literal, bind, lift};

/// The largest number below 1 that FP32 has, and so the largest number to draw with.
const LAST: f32 = 1.0 - 1.0 / 16_777_216.0;
/// How far from its share of [0, 1) the number of a draw may lie: sums of weights are rounded.
const ROUNDED: f64 = 1e-5;

/// Both launches over `v` logits, `part` of them at a time, with `bm` rows a program.
struct Pair {
    kernels: [Kernel; 2],
    v: usize,
    part: usize,
    bm: usize,
}

impl Pair {
    fn new(texts: [&str; 2], v: usize, part: usize, bm: usize) -> Pair {
        let numbers = [("V", v), ("PARTS", v.div_ceil(part))];
        let values: BTreeMap<String, Literal> =
            numbers.map(|(name, value)| (name.to_string(), Literal::Int(value as i64))).into();
        let kernel = |text| bind(&lift(text).unwrap_or_else(|error| panic!("{error}")), &values).unwrap();
        Pair { kernels: texts.map(kernel), v, part, bm }
    }

    /// The checked-in texts.
    fn checked_in(v: usize, part: i64) -> Pair {
        let text = |kernel: &str| {
            let mut specs = some_of_each(8).into_iter().filter(|spec| spec.kernel == kernel);
            let of_part = |constant: Option<&Const>| constant.is_none_or(|own| *own == Const::Int(part));
            let spec = specs.find(|spec| of_part(spec.constants.get("PART"))).unwrap();
            vosti_kernels::ttir_by_stem(&spec.text().to_string()).unwrap()
        };
        Pair::new(["draw_part", "draw_combine"].map(text), v, part as usize, 1)
    }

    /// Parts of 16 logits, of which a row has up to 8, and four rows a program: there are lanes behind the last row.
    fn small(v: usize, edit: &dyn Fn(usize, String) -> String) -> Pair {
        let text = |name: &str| vosti_test_tools::filetests::one(name).ttir;
        let [first, second] = ["any_draw_part", "any_draw_combine"].map(text);
        Pair::new([&edit(0, first), &edit(1, second)], v, 16, 4)
    }

    /// Each row's token, for its logits, and its scale and numbers. An error if a run stops or writes another row.
    fn run(&self, x: &[f32], draws: &[Draw]) -> Result<Vec<f32>, String> {
        let (rows, parts) = (draws.len(), self.v.div_ceil(self.part));
        let options = Options { undefined: Undefined::Poison(3), order: Order::Shuffled(5), operations_max: None };
        // The buffers have one row too many, which must be neither read nor written.
        let behind = |numbers: &mut dyn Iterator<Item = f32>, many| {
            Buffer::F32(numbers.chain(std::iter::repeat_n(f32::INFINITY, many)).collect())
        };
        let of = |number: fn(&Draw) -> f32| behind(&mut draws.iter().map(number), 1);
        let (count, own) = (Buffer::I32(vec![rows as i32]), |width: usize| Buffer::F32(vec![-1.0; (rows + 1) * width]));
        let (logits, scale) = (behind(&mut x.iter().copied(), self.v), of(|draw| draw.scale));
        let mut first =
            vec![logits, scale.clone(), of(|draw| draw.within), count.clone(), own(parts), own(parts), own(parts)];
        let programs = rows.div_ceil(self.bm) + 1;
        run(&self.kernels[0], &mut first, [programs, parts, 1], &options).map_err(|error| error.to_string())?;
        let mut second = first.split_off(4);
        second.extend([scale, of(|draw| draw.pick), count, own(1)]);
        run(&self.kernels[1], &mut second, [programs, 1, 1], &options).map_err(|error| error.to_string())?;
        let number = |buffer: usize, i: usize| f32::from_bits(second[buffer].bits(i) as u32);
        let unwritten =
            |buffer: usize, width: usize| (rows * width..(rows + 1) * width).all(|i| number(buffer, i) == -1.0);
        if !(unwritten(0, parts) && unwritten(1, parts) && unwritten(2, parts) && unwritten(6, 1)) {
            return Err("a row that is not there was written".into());
        }
        Ok((0..rows).map(|row| number(6, row)).collect())
    }

    /// Runs rows and checks each token.
    fn check(&self, x: &[f32], draws: &[Draw]) -> Result<Vec<f32>, String> {
        let tokens = self.run(x, draws)?;
        for ((row, draw), token) in x.chunks(self.v).zip(draws).zip(&tokens) {
            drawn(row, self.part, draw, *token).map_err(|why| format!("{draw:?} gives {token}: {why}; {row:?}"))?;
        }
        Ok(tokens)
    }
}

/// How a row draws.
#[derive(Clone, Copy, Debug)]
struct Draw {
    scale: f32,
    pick: f32,
    within: f32,
}

/// The weights of some logits relative to the largest of them, and that; NaN weighs nothing.
fn weights(logits: &[f32], scale: f32) -> (f32, Vec<f64>) {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weight = |v: f32| match v {
        _ if v.is_nan() => 0.0,
        _ if v >= largest => 1.0,
        _ => (f64::from(v - largest) * f64::from(scale)).exp2(),
    };
    (largest, logits.iter().map(|v| weight(*v)).collect())
}

/// Whether a number lies in the share of [0, 1) that is the weight's at `at`.
fn in_share(weights: &[f64], at: usize, number: f32) -> Result<(), String> {
    let total: f64 = weights.iter().sum();
    let before: f64 = weights[..at].iter().sum::<f64>() / total;
    let (share, number) = (weights[at] / total, f64::from(number));
    match weights[at] > 0.0 && (before - ROUNDED..before + share + ROUNDED).contains(&number) {
        true => Ok(()),
        false => Err(format!("{number} is not in the share of {at}, {before} to {}", before + share)),
    }
}

/// Whether a draw may give this token: its part is the one at `pick`, and inside of it its column the one at `within`.
fn drawn(row: &[f32], part: usize, draw: &Draw, token: f32) -> Result<(), String> {
    if row.iter().all(|v| v.is_nan()) {
        return if token == 0.0 { Ok(()) } else { Err("all logits are NaN".into()) };
    }
    let token = token as usize;
    if token >= row.len() {
        return Err("there is no such token".into());
    }
    let parts: Vec<(f32, Vec<f64>)> = row.chunks(part).map(|logits| weights(logits, draw.scale)).collect();
    let tops: Vec<f32> = parts.iter().map(|(top, _)| *top).collect();
    let sums = parts.iter().map(|(_, weights)| weights.iter().sum::<f64>());
    let of_parts: Vec<f64> = weights(&tops, draw.scale).1.iter().zip(sums).map(|(weight, sum)| weight * sum).collect();
    in_share(&of_parts, token / part, draw.pick)?;
    in_share(&parts[token / part].1, token % part, draw.within)
}

/// Ordinary numbers; or nothing but NaN; or numbers of every kind; or of few kinds, so that many are equal, with a few others.
fn strange(len: usize, seed: u64, random: &mut Random) -> Vec<f32> {
    const STRANGE: [f32; 10] =
        [f32::NAN, f32::NEG_INFINITY, -f32::MAX, -1.5, -0.0, 0.0, 0.25, 2.5, f32::MAX, f32::INFINITY];
    let kinds = &STRANGE[random.below(STRANGE.len())..];
    let kinds = &kinds[..1 + random.below(kinds.len())];
    let value = |_| match seed % 3 {
        _ if seed % 20 == 7 => f32::NAN,
        0 => 8.0 * random.float(),
        _ if random.below(50) == 0 => STRANGE[random.below(STRANGE.len())],
        _ => kinds[random.below(kinds.len())],
    };
    (0..len).map(value).collect()
}

/// Any number in [0, 1), and often one of its ends.
fn number(random: &mut Random) -> f32 {
    match random.below(6) {
        0 => 0.0,
        1 => LAST,
        _ => (random.below(1 << 24) as f32) / 16_777_216.0,
    }
}

fn is_drawn(pair: &Pair, seeds: u64) -> Result<(), String> {
    for seed in 0..seeds {
        let mut random = Random::new(seed);
        let rows = 1 + seed as usize % 7;
        let x: Vec<f32> = (0..rows).flat_map(|row| strange(pair.v, seed + row as u64, &mut random)).collect();
        let draw = |random: &mut Random| Draw {
            scale: [std::f32::consts::LOG2_E, 0.5, 20.0, 1e-6, f32::MAX, 2.0][random.below(6)],
            pick: number(random),
            within: number(random),
        };
        let draws: Vec<Draw> = (0..rows).map(|_| draw(&mut random)).collect();
        pair.check(&x, &draws).map_err(|error| format!("{} logits, seed {seed}: {error}", pair.v))?;
    }
    Ok(())
}

/// Vocabularies of one logit, of one part, of a ragged last part, and of parts that fill a room.
const SMALL: [usize; 6] = [1, 7, 16, 40, 97, 128];

#[test]
fn a_draw_is_the_inverse_of_the_cumulative_distribution_of_parts_and_of_columns() {
    for v in SMALL {
        is_drawn(&Pair::small(v, &|_, text| text), 120).unwrap();
    }
    for (v, part) in [(1, 256), (97, 256), (256, 256), (700, 256), (2_048, 2_048), (5_000, 2_048)] {
        is_drawn(&Pair::checked_in(v, part), 12).unwrap();
    }
}

#[test]
fn the_largest_is_drawn_at_a_huge_scale_and_the_only_finite_one_at_any() {
    let pair = Pair::small(97, &|_, text| text);
    let mut random = Random::new(8);
    for at in 0..pair.v {
        let mut x: Vec<f32> = (0..pair.v).map(|_| random.float()).collect();
        x[at] = 2.0;
        let alone: Vec<f32> = (0..pair.v)
            .map(|i| match i % 3 {
                _ if i == at => -700.0,
                0 => f32::NAN,
                _ => f32::NEG_INFINITY,
            })
            .collect();
        for (x, scale) in [(&x, f32::MAX), (&alone, 1.0), (&alone, f32::MIN_POSITIVE)] {
            let draws = [(0.0, 0.0), (LAST, LAST), (0.0, LAST), (number(&mut random), number(&mut random))];
            let draws = draws.map(|(pick, within)| Draw { scale, pick, within });
            assert_eq!(pair.run(&x.repeat(4), &draws).unwrap(), [at as f32; 4], "{scale}");
        }
    }
}

#[test]
fn nothing_but_nan_gives_the_first_token() {
    for v in SMALL {
        let pair = Pair::small(v, &|_, text| text);
        let draws = [0.0, 0.5, LAST].map(|pick| Draw { scale: 1.0, pick, within: LAST });
        assert_eq!(pair.run(&vec![f32::NAN; 3 * v], &draws).unwrap(), [0.0; 3]);
    }
}

#[test]
fn tokens_of_all_pairs_of_numbers_are_as_frequent_as_the_softmax_says() {
    let (v, side, temperature) = (40, 128, 0.7);
    let mut random = Random::new(4);
    let x: Vec<f32> = (0..v).map(|_| 2.0 * random.float()).collect();
    let scale = (std::f64::consts::LOG2_E / temperature) as f32;
    let at = |i: usize| (i as f32 + 0.5) / side as f32;
    let draws: Vec<Draw> = (0..side * side).map(|i| Draw { scale, pick: at(i / side), within: at(i % side) }).collect();
    let tokens = Pair::small(v, &|_, text| text).run(&x.repeat(draws.len()), &draws).unwrap();
    let whole: f64 = x.iter().map(|v| (f64::from(*v) / temperature).exp()).sum();
    for (token, logit) in x.iter().enumerate() {
        let wanted = (f64::from(*logit) / temperature).exp() / whole;
        let found = tokens.iter().filter(|drawn| **drawn == token as f32).count() as f64 / draws.len() as f64;
        // Each side of a share cuts at most one step of its axis.
        assert!((found - wanted).abs() < 2.0 / side as f64, "{token}: {found} instead of {wanted}");
    }
    let most = tokens.iter().fold(0.0f32, |most, token| most.max(*token));
    assert!(most < v as f32);
}

#[test]
fn a_draw_of_something_else_is_seen() {
    let wrong = [
        ("zeros behind the last logit", 0, "padding = 2", "padding = 1"),
        ("lanes behind the last part are the largest", 1, "padding = 2", "padding = 1"),
        ("the smallest weighs most", 0, "arith.maxnumf", "arith.minnumf"),
        ("parts are relative to the smallest", 1, "arith.maxnumf", "arith.minnumf"),
        ("infinities weigh nothing", 0, "arith.cmpf oge, %v, ", "arith.cmpf ogt, %v, "),
        ("infinite parts weigh nothing", 1, "arith.cmpf oge, %tops, ", "arith.cmpf ogt, %tops, "),
        ("a column without a weight at 0", 0, "arith.cmpf ole", "arith.cmpf olt"),
        ("a part without a weight at 0", 1, "arith.cmpf ole", "arith.cmpf olt"),
        ("one column further", 0, "arith.cmpf olt", "arith.cmpf ole"),
        ("one part further", 1, "arith.cmpf olt", "arith.cmpf ole"),
        ("steps that shrink by less", 0, "5.000000e-01", "7.500000e-01"),
        ("a token of a part without any", 0, "arith.cmpf ogt", "arith.cmpf oge"),
        ("always the last part", 1, "arith.minnumf", "arith.maxnumf"),
    ];
    for (what, launch, from, to) in wrong {
        let edit = |at: usize, text: String| if at == launch { text.replace(from, to) } else { text };
        let text = vosti_test_tools::filetests::one(["any_draw_part", "any_draw_combine"][launch]).ttir;
        assert!(text.contains(from), "{what}: no {from}");
        let seen = SMALL.iter().any(|v| is_drawn(&Pair::small(*v, &edit), 120).is_err());
        assert!(seen, "{what}");
    }
}
