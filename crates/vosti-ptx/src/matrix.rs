//! Matrix instructions: which thread holds which element, and what one instruction computes.
//!
//! One product is defined as tile IR's `dot` over its block of k, with the accumulators as they are: a text that takes the
//! blocks in the order of the dot has the interpreter's bits. What a tensor core does inside one instruction is not decided here.

use crate::decode::Product;
use vosti_tile::numerics::{self, FloatMode, from_bf16};

/// A register of each thread of a warp.
pub(crate) type Lanes = [u64; 32];

/// Rows and columns of the result.
const M: usize = 16;
const N: usize = 8;

/// `d = a b + c` (PTX ISA, "Warp Level Matrix Instructions: mma", Matrix Fragments for mma.m16n8k16 with floating point type,
/// and for mma.m16n8k32).
pub(crate) fn multiply(product: Product, a: [Lanes; 4], b: [Lanes; 2], c: [Lanes; 4]) -> [Lanes; 4] {
    match product {
        Product::Bf16 => bf16(a, b, c),
        Product::S8 => bytes(a, b, c),
    }
}

/// Row and column of accumulator `i` of a thread.
fn result_place(lane: usize, i: usize) -> usize {
    let (group, member) = (lane / 4, lane % 4);
    (group + 8 * (i / 2)) * N + member * 2 + i % 2
}

fn bf16(a: [Lanes; 4], b: [Lanes; 2], c: [Lanes; 4]) -> [Lanes; 4] {
    const K: usize = 16;
    let (mut rows, mut columns, mut acc) = ([0.0; M * K], [0.0; K * N], [0.0; M * N]);
    for lane in 0..32 {
        let (group, member) = (lane / 4, lane % 4);
        for (register, half) in (0..4).flat_map(|register| [(register, 0), (register, 1)]) {
            let (row, column) = (group + 8 * (register % 2), member * 2 + half + 8 * (register / 2));
            rows[row * K + column] = from_bf16((a[register][lane] >> (16 * half)) as u16);
        }
        for (register, half) in (0..2).flat_map(|register| [(register, 0), (register, 1)]) {
            columns[(member * 2 + half + 8 * register) * N + group] =
                from_bf16((b[register][lane] >> (16 * half)) as u16);
        }
        for i in 0..4 {
            acc[result_place(lane, i)] = f32::from_bits(c[i][lane] as u32);
        }
    }
    FloatMode::with(|| numerics::dot(&mut acc, &rows, &columns, [M, K, N], true));
    let place = |i: usize, lane: usize| u64::from(acc[result_place(lane, i)].to_bits());
    std::array::from_fn(|i| std::array::from_fn(|lane| place(i, lane)))
}

/// Sums of whole numbers, which saturate (`.satfinite`).
fn bytes(a: [Lanes; 4], b: [Lanes; 2], c: [Lanes; 4]) -> [Lanes; 4] {
    const K: usize = 32;
    let (mut rows, mut columns) = ([0i32; M * K], [0i32; K * N]);
    let byte = |word: u64, at: usize| i32::from((word >> (8 * at)) as i8);
    for lane in 0..32 {
        let (group, member) = (lane / 4, lane % 4);
        for (register, at) in (0..4).flat_map(|register| (0..4).map(move |at| (register, at))) {
            let (row, column) = (group + 8 * (register % 2), member * 4 + at + 16 * (register / 2));
            rows[row * K + column] = byte(a[register][lane], at);
        }
        for (register, at) in (0..2).flat_map(|register| (0..4).map(move |at| (register, at))) {
            columns[(member * 4 + at + 16 * register) * N + group] = byte(b[register][lane], at);
        }
    }
    let place = |i: usize, lane: usize| {
        let (row, column) = (result_place(lane, i) / N, result_place(lane, i) % N);
        let sum: i32 = (0..K).map(|k| rows[row * K + k] * columns[k * N + column]).sum();
        let sum = i64::from(c[i][lane] as u32 as i32) + i64::from(sum);
        u64::from(sum.clamp(i32::MIN.into(), i32::MAX.into()) as i32 as u32)
    };
    std::array::from_fn(|i| std::array::from_fn(|lane| place(i, lane)))
}

/// The elements that a thread gets of an 8 by 8 matrix of 16 bits (PTX ISA, "ldmatrix"): two of a row, or with `.trans` of a
/// column. `rows` has the rows' bytes.
pub(crate) fn fragment(rows: &[[u8; 16]; 8], lane: usize, transposed: bool) -> u32 {
    let element = |row: usize, column: usize| u16::from_le_bytes([rows[row][2 * column], rows[row][2 * column + 1]]);
    let (line, pair) = (lane / 4, lane % 4 * 2);
    let [low, high] = match transposed {
        false => [element(line, pair), element(line, pair + 1)],
        true => [element(pair, line), element(pair + 1, line)],
    };
    u32::from(high) << 16 | u32::from(low)
}

/// The rows of an 8 by 8 matrix that is spread over the threads ([`fragment`]).
pub(crate) fn rows(lanes: &Lanes, transposed: bool) -> [[u8; 16]; 8] {
    let mut rows = [[0; 16]; 8];
    for (lane, value) in lanes.iter().enumerate() {
        for half in 0..2 {
            let (line, pair) = (lane / 4, lane % 4 * 2 + half);
            let (row, column) = if transposed { (pair, line) } else { (line, pair) };
            rows[row][2 * column..2 * column + 2].copy_from_slice(&((value >> (16 * half)) as u16).to_le_bytes());
        }
    }
    rows
}
