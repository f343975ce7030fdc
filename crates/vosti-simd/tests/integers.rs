//! Every set of instructions, row count and split gives the bits of the definition, which is written here once more over the rows
//! of a file.

mod common;

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use vosti_kernels::quantised::FORMATS;
use vosti_kernels::{Format, Quantised};
use vosti_simd::Isa;
use vosti_simd::layout::PANEL;
use vosti_simd::micro::integers::{IntDot, Set};
use vosti_simd::storage::blocks::UNIT;
use vosti_simd::storage::{Packed, Panel};
use vosti_tile::numerics::{FloatMode, add, fma, mul, stored_f32};

/// Rows of activations.
const ROWS: usize = 70;
/// Elements of a row.
const DEPTH: usize = 512;
const BLOCKS: usize = DEPTH / UNIT;
/// Elements from one row of a result to the next: more than a panel's columns.
const C_ROW: usize = 67;

/// Rows of activations as integers.
struct Activations {
    wide: bool,
    q: Vec<i32>,
    hi: Vec<i8>,
    lo: Vec<i8>,
    sx: Vec<f32>,
    qsum: Vec<i32>,
    /// What minima are multiplied by: not the sums of q, so that no set takes the one for the other.
    sums: Vec<f32>,
}

/// Random rows, among them some at the ends of their range, of zeros, and with scales that are not finite, tiny or large.
fn activations(wide: bool, seed: u64) -> Activations {
    let mut random = SplitMix64::seed_from_u64(seed);
    let most = if wide { 32_639 } else { 127 };
    let mut q: Vec<i32> = (0..ROWS * DEPTH)
        .map(|_| (random.next_u64() >> 11) as i32 % (most + 1) - (random.next_u64() & 1) as i32 * most / 2)
        .collect();
    for (i, q) in q.iter_mut().enumerate() {
        *q = (*q).clamp(-most, most);
        match i / DEPTH % 10 {
            3 => *q = most,
            4 => *q = -most,
            5 => *q = if i % 2 == 0 { most } else { -most },
            6 if (i / UNIT).is_multiple_of(2) => *q = 0,
            // The smallest low byte.
            7 if wide => *q = (*q & !0xff | 0x80).min(most - 127),
            _ => {}
        }
    }
    let lo: Vec<i8> = q.iter().map(|q| if wide { *q as u8 as i8 } else { 0 }).collect();
    let hi: Vec<i8> =
        q.iter().zip(&lo).map(|(q, lo)| if wide { ((q - i32::from(*lo)) >> 8) as i8 } else { *q as i8 }).collect();
    let special = [f32::NAN, f32::INFINITY, -f32::INFINITY, 0.0, -0.0, 1e-39, 1e-37, 3e38, 2e-38, -1.5];
    let sx = (0..ROWS * BLOCKS).map(|i| match (i / BLOCKS, i % BLOCKS) {
        (row, 3) if row % 3 == 2 => special[row / 3 % special.len()],
        (row, 4) if row % 7 == 6 => special[row / 7 % special.len()],
        _ => (random.next_u64() % 1000) as f32 * 1e-6,
    });
    let sx = sx.collect();
    let qsum: Vec<i32> = q.chunks(16).map(|half| half.iter().sum()).collect();
    let sums = qsum.iter().map(|sum| *sum as f32 + 0.5).collect();
    Activations { wide, q, hi, lo, sx, qsum, sums }
}

/// A product of the first `rows` rows of activations.
#[derive(Clone, Copy)]
struct Case {
    rows: usize,
    columns: usize,
    first: usize,
    blocks: usize,
    accumulate: bool,
    halves: bool,
    minima: bool,
}

/// What the accumulators hold before: zeros of both signs, denormals and ordinary numbers.
fn before() -> Vec<f32> {
    let number = |i: usize| match i % 5 {
        0 => -0.0,
        1 => 1e-40,
        2 => f32::MIN_POSITIVE,
        _ => i as f32 * 0.25 - 300.0,
    };
    (0..ROWS * C_ROW).map(number).collect()
}

/// The definition, over the rows of a file.
fn definition(x: &Activations, weight: &Quantised, case: Case) -> Vec<f32> {
    let format = weight.format;
    let mut out = before();
    let half = |bits: u16| half::f16::from_bits(bits).to_f32();
    for (t, n) in (0..case.rows).flat_map(|t| (0..case.columns).map(move |n| (t, n))) {
        let mut acc = if case.accumulate { out[t * C_ROW + n] } else { 0.0 };
        for block in 0..case.blocks {
            let parts = if case.halves { 2 } else { 1 };
            for part in 0..parts {
                let len = UNIT / parts;
                let from = block * UNIT + part * len;
                let at = n * DEPTH + case.first * UNIT + from;
                let (mut scale, mut minimum) = (half(weight.scales[at / format.chunk]), 0.0);
                if format.minimum {
                    minimum = half(weight.minima[at / format.chunk]);
                }
                if format.two_levels() {
                    scale *= f32::from(weight.group_scales[at / format.group]);
                    if format.minimum {
                        minimum *= f32::from(weight.group_minima[at / format.group]);
                    }
                }
                let q = &x.q[t * DEPTH + from..][..len];
                let codes = &weight.codes[at..][..len];
                let sum: i64 = q.iter().zip(codes).map(|(q, code)| i64::from(*q) * format.value(*code) as i64).sum();
                let sum = i32::try_from(sum).expect("a sum of 32 bits");
                let sx = x.sx[t * BLOCKS + block];
                acc = fma(sum as f32, mul(scale, sx), acc);
                if case.minima {
                    let at = 2 * (t * BLOCKS + block) + part;
                    let sums = if case.halves { x.sums[at] } else { add(x.sums[at], x.sums[at + 1]) };
                    acc = fma(-minimum, mul(sx, sums), acc);
                }
            }
        }
        out[t * C_ROW + n] = acc;
    }
    out
}

/// The product by a set of instructions.
fn computed(set: Set, x: &Activations, panel: Panel, case: Case) -> Vec<f32> {
    let mut out = before();
    let dot = IntDot {
        hi: x.hi.as_ptr(),
        lo: if x.wide { x.lo.as_ptr() } else { std::ptr::null() },
        q_row: DEPTH,
        sx: x.sx.as_ptr(),
        sx_row: BLOCKS,
        qsum: x.qsum.as_ptr(),
        qsum_row: 2 * BLOCKS,
        sums: x.sums.as_ptr(),
        panel,
        first: case.first,
        blocks: case.blocks,
        c: out.as_mut_ptr(),
        c_row: C_ROW,
        rows: case.rows,
        columns: case.columns,
        accumulate: case.accumulate,
        halves: case.halves,
        minima: case.minima,
        wide: x.wide,
    };
    // SAFETY: operands of these sizes; the set is there.
    unsafe { set.dot()(&dot) };
    out
}

/// Rows of a file at random; the codes of the first ones are the smallest and the largest.
fn weight(format: &'static Format) -> Quantised {
    let mut weight = common::random(format, PANEL, DEPTH, 9);
    weight.codes[..DEPTH].fill(0);
    weight.codes[DEPTH..2 * DEPTH].fill(((1u16 << format.bits) - 1) as u8);
    weight
}

/// Calls `check` for each format with its rows, its aligned panel, and the flags that it allows.
fn for_formats(mut check: impl FnMut(&Quantised, Panel, bool, bool)) {
    for format in &FORMATS {
        let weight = weight(format);
        let Packed { form, bytes } = Packed::integers(&weight);
        let mut room = vec![0u8; bytes.len() + 64];
        let at = room.as_ptr().align_offset(64);
        room[at..][..bytes.len()].copy_from_slice(&bytes);
        let panel = Panel { at: room[at..].as_ptr(), form };
        for (halves, minima) in [(false, false), (false, true), (true, false), (true, true)] {
            if (halves || format.group == UNIT) && (minima || !format.minimum) {
                check(&weight, panel, halves, minima);
            }
        }
    }
}

/// Fails unless the first rows of both are the same bits, NaN as NaN, and all else is as before.
fn check(got: &[f32], want: &[f32], case: Case, name: &str) {
    let before = before();
    for (i, got) in got.iter().enumerate() {
        let (row, column) = (i / C_ROW, i % C_ROW);
        let want = if row < case.rows && column < case.columns { want[i] } else { before[i] };
        assert_eq!(stored_f32(*got), stored_f32(want), "{name}: row {row} column {column}: {got} for {want}");
    }
}

#[test]
fn every_set_and_row_count_gives_the_bits_of_the_definition() {
    let _mode = FloatMode::set();
    let sets = Set::available();
    for wide in [true, false] {
        let x = activations(wide, 3);
        for_formats(|weight, panel, halves, minima| {
            let case = Case { rows: ROWS, columns: PANEL, first: 0, blocks: BLOCKS, accumulate: false, halves, minima };
            let want = definition(&x, weight, case);
            let finite = want.iter().filter(|x| x.is_finite()).count();
            assert!(finite > want.len() / 3 && finite < want.len(), "{finite}");
            for set in &sets {
                let counts = if *set == Set::Portable { ROWS..ROWS + 1 } else { 1..ROWS + 1 };
                for rows in counts {
                    let name = format!("{set:?} {} {halves} {minima} {wide} {rows} rows", weight.format.name);
                    check(&computed(*set, &x, panel, Case { rows, ..case }), &want, Case { rows, ..case }, &name);
                }
            }
        });
    }
}

#[test]
fn any_columns_and_blocks_give_the_bits_of_the_definition() {
    let _mode = FloatMode::set();
    let sets = Set::available();
    for wide in [true, false] {
        let x = activations(wide, 4);
        for_formats(|weight, panel, halves, minima| {
            for (first, blocks) in [(0, 1), (3, 5), (7, 9), (BLOCKS - 1, 1)] {
                for (columns, rows, accumulate) in [(16, 1, true), (32, 7, true), (48, 4, false), (48, 13, true)] {
                    let case = Case { rows, columns, first, blocks, accumulate, halves, minima };
                    let want = definition(&x, weight, case);
                    for set in &sets {
                        let name = format!(
                            "{set:?} {} {halves} {minima} {wide} {first} {blocks} {columns}",
                            weight.format.name
                        );
                        check(&computed(*set, &x, panel, case), &want, case, &name);
                    }
                }
            }
        });
    }
}

#[test]
fn an_instruction_set_gets_a_set_that_the_machine_has() {
    for isa in Isa::tried() {
        let set = Set::of(*isa);
        assert!(Set::available().contains(&set), "{isa:?}: {set:?}");
        assert_eq!(set == Set::Portable, *isa == Isa::Portable, "{isa:?}: {set:?}");
    }
}

/// The digest changes if the definition changes. No processor and no set of instructions may change it.
#[test]
fn every_set_of_every_processor_has_the_recorded_digest() {
    let _mode = FloatMode::set();
    for set in Set::available() {
        let mut hasher = blake3::Hasher::new();
        for wide in [true, false] {
            let x = activations(wide, 5);
            for_formats(|_, panel, halves, minima| {
                let case = Case { rows: 5, columns: PANEL, first: 1, blocks: 9, accumulate: false, halves, minima };
                computed(set, &x, panel, case).iter().for_each(|x| _ = hasher.update(&stored_f32(*x).to_le_bytes()));
            });
        }
        let digest = hasher.finalize().to_hex();
        assert_eq!(digest.as_str(), "3947f73b4e8abd3894f286ce6966046106b1ab2d66ef73f02da76506dce8f7dc", "{set:?}");
    }
}
