//! The product with vectors of 256 or 512 bits.
//!
//! A few rows take codes from the panel and multiply them at once. With more rows, the codes of a few blocks are first written to
//! scratch that stays in a near cache, as bytes (or 16 bits) that every group of rows then reads.
//!
//! All generic code is inlined into functions that enable an instruction set, which [`Features`] has.
//! Read next: `ways`, `vectors`.

#![allow(unsafe_op_in_unsafe_fn, clippy::missing_safety_doc)]

use std::arch::x86_64::{__m256i, __m512i, _MM_HINT_T0, _mm_prefetch};
use std::mem::MaybeUninit;

use vosti_kernels::{Format, Values};
use vosti_tile::numerics::mul;

use super::IntDot;
use super::ways::{Bytes8, Bytes16, Pairs, Row, Sixteen, Way, join};
use crate::layout::PANEL;
use crate::micro::LANES;
use crate::micro::vectors::Vector;
use crate::storage::blocks::{REGISTER, STRIPE, Shape, UNIT};
use crate::storage::integers::{QUAD, QUADS, offset, place, value};

/// The most rows that take codes from the panel, and the rows that take them together.
const FEW: usize = 16;
const TOGETHER: usize = 4;
/// Blocks in scratch: enough that rows are read in long runs, and few enough for the second-level cache.
const BLOCKS: usize = 32;
/// Bytes from a read of the panel to its prefetch: enough to hide the latency of memory.
const AHEAD: usize = 4096;

/// [`Features::rows`] for a way, some vectors of columns, and each of these numbers of rows.
macro_rules! rows_of {
    ($features:ty, $way:ty, $vectors:literal; $($rows:literal),*) => {
        [$(<$features>::rows::<$way, $rows, $vectors> as RowsFn),*]
    };
}

/// # Safety
/// See [`super::IntDotFn`].
pub unsafe fn avx2(dot: &IntDot) {
    // Activations of 8 bits go by bytes if sums of a few products fit 16 bits.
    let shape = Shape::of(dot.format());
    match (dot.wide, largest(shape.format)) {
        (false, ..=16) => run::<Avx2, Sixteen<8>>(dot, &shape, &rows_of!(Avx2, Sixteen<8>, 2; 1, 2, 3)),
        (false, ..=32) => run::<Avx2, Sixteen<4>>(dot, &shape, &rows_of!(Avx2, Sixteen<4>, 2; 1, 2, 3)),
        (false, ..=64) => run::<Avx2, Sixteen<2>>(dot, &shape, &rows_of!(Avx2, Sixteen<2>, 2; 1, 2, 3)),
        _ => run::<Avx2, Pairs>(dot, &shape, &rows_of!(Avx2, Pairs, 2; 1, 2, 3, 4)),
    }
}

/// # Safety
/// See [`super::IntDotFn`].
pub unsafe fn avx_vnni(dot: &IntDot) {
    type V = __m256i;
    let shape = Shape::of(dot.format());
    match dot.wide {
        true => run::<AvxVnni, Bytes16<V>>(dot, &shape, &rows_of!(AvxVnni, Bytes16<V>, 2; 1, 2, 3)),
        false => run::<AvxVnni, Bytes8<V>>(dot, &shape, &rows_of!(AvxVnni, Bytes8<V>, 2; 1, 2, 3, 4, 5, 6)),
    }
}

/// # Safety
/// See [`super::IntDotFn`].
pub unsafe fn avx512_vnni(dot: &IntDot) {
    type V = __m512i;
    let shape = Shape::of(dot.format());
    match dot.wide {
        true => run::<Avx512Vnni, Bytes16<V>>(dot, &shape, &rows_of!(Avx512Vnni, Bytes16<V>, 4; 1, 2, 3)),
        false => run::<Avx512Vnni, Bytes8<V>>(dot, &shape, &rows_of!(Avx512Vnni, Bytes8<V>, 4; 1, 2, 3, 4)),
    }
}

/// Multiplies some rows, from one on, by the blocks in scratch.
type RowsFn = unsafe fn(&IntDot, &Part, usize);

/// One more than the largest number of a code with its format's offset.
fn largest(format: &Format) -> i32 {
    match format.values {
        Values::From(_) => 1 << format.bits,
        Values::Table(values) => values.iter().copied().map(i32::from).max().unwrap_or(0) + offset(format) + 1,
    }
}

/// Functions that enable an instruction set.
trait Features {
    unsafe fn few<W: Way, C: Codes, const R: usize>(dot: &IntDot, r: usize, shape: &Shape);
    unsafe fn expand<W: Way, C: Codes>(dot: &IntDot, first: usize, blocks: usize, shape: &Shape, to: *mut Scratch);
    unsafe fn rows<W: Way, const R: usize, const G: usize>(dot: &IntDot, part: &Part, r: usize);
}

macro_rules! features {
    ($name:ident, $features:literal) => {
        struct $name;
        impl Features for $name {
            unsafe fn few<W: Way, C: Codes, const R: usize>(dot: &IntDot, r: usize, shape: &Shape) {
                #[target_feature(enable = $features)]
                unsafe fn run<W: Way, C: Codes, const R: usize>(dot: &IntDot, r: usize, shape: &Shape) {
                    few::<W, C, R>(dot, r, shape)
                }
                run::<W, C, R>(dot, r, shape)
            }
            unsafe fn expand<W: Way, C: Codes>(
                dot: &IntDot,
                first: usize,
                blocks: usize,
                shape: &Shape,
                to: *mut Scratch,
            ) {
                #[target_feature(enable = $features)]
                unsafe fn run<W: Way, C: Codes>(
                    dot: &IntDot,
                    first: usize,
                    blocks: usize,
                    shape: &Shape,
                    to: *mut Scratch,
                ) {
                    expand::<W, C>(dot, first, blocks, shape, to)
                }
                run::<W, C>(dot, first, blocks, shape, to)
            }
            unsafe fn rows<W: Way, const R: usize, const G: usize>(dot: &IntDot, part: &Part, r: usize) {
                #[target_feature(enable = $features)]
                unsafe fn run<W: Way, const R: usize, const G: usize>(dot: &IntDot, part: &Part, r: usize) {
                    rows::<W, R, G>(dot, part, r)
                }
                run::<W, R, G>(dot, part, r)
            }
        }
    };
}

features!(Avx2, "avx2,fma,f16c");
features!(AvxVnni, "avx2,fma,f16c,avxvnni");
features!(Avx512Vnni, "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni");

/// How the codes of a format lie: the bits of the planes, and whether values are looked up.
trait Codes {
    const LOW: usize;
    const HIGH: usize;
    const TABLE: bool;
}

/// See [`Codes`].
struct Planes<const LOW: usize, const HIGH: usize, const TABLE: bool>;

impl<const LOW: usize, const HIGH: usize, const TABLE: bool> Codes for Planes<LOW, HIGH, TABLE> {
    const LOW: usize = LOW;
    const HIGH: usize = HIGH;
    const TABLE: bool = TABLE;
}

/// The product. `rows` has functions for 1, 2, .. rows.
#[inline(always)]
unsafe fn run<F: Features, W: Way>(dot: &IntDot, shape: &Shape, rows: &[RowsFn]) {
    let table = matches!(shape.format.values, Values::Table(_));
    match (shape.low, shape.high, table) {
        (2, 0, _) => run_codes::<F, W, Planes<2, 0, false>>(dot, shape, rows),
        (2, ..) => run_codes::<F, W, Planes<2, 1, false>>(dot, shape, rows),
        (4, 0, true) => run_codes::<F, W, Planes<4, 0, true>>(dot, shape, rows),
        (4, 0, _) => run_codes::<F, W, Planes<4, 0, false>>(dot, shape, rows),
        (4, 1, _) => run_codes::<F, W, Planes<4, 1, false>>(dot, shape, rows),
        (4, ..) => run_codes::<F, W, Planes<4, 2, false>>(dot, shape, rows),
        _ => run_codes::<F, W, Planes<8, 0, false>>(dot, shape, rows),
    }
}

unsafe fn run_codes<F: Features, W: Way, C: Codes>(dot: &IntDot, shape: &Shape, rows: &[RowsFn]) {
    if dot.rows <= FEW {
        return groups(dot.rows, TOGETHER, |r, number| match number {
            1 => F::few::<W, C, 1>(dot, r, shape),
            2 => F::few::<W, C, 2>(dot, r, shape),
            3 => F::few::<W, C, 3>(dot, r, shape),
            _ => F::few::<W, C, TOGETHER>(dot, r, shape),
        });
    }
    let mut scratch = MaybeUninit::<Scratch>::uninit();
    let scratch = scratch.as_mut_ptr();
    for first in (0..dot.blocks).step_by(BLOCKS) {
        let blocks = BLOCKS.min(dot.blocks - first);
        F::expand::<W, C>(dot, first, blocks, shape, scratch);
        let part = Part { scratch, first, blocks, offset: offset(shape.format) };
        groups(dot.rows, rows.len(), |r, number| rows[number - 1](dot, &part, r));
    }
}

/// Calls a function for groups of rows that are as even as possible, with the first row and the number of rows.
fn groups(rows: usize, most: usize, mut each: impl FnMut(usize, usize)) {
    let mut r = 0;
    while r < rows {
        let left = rows - r;
        let number = left.div_ceil(left.div_ceil(most));
        each(r, number);
        r += number;
    }
}

/// Codes of a few blocks, ready to be multiplied, and their scales and minima.
#[repr(C, align(64))]
struct Scratch {
    /// By block, vector of columns and quad.
    codes: [u8; BLOCKS * PANEL * UNIT * 2],
    /// By block, half and column.
    scales: [[[f32; PANEL]; 2]; BLOCKS],
    minima: [[[f32; PANEL]; 2]; BLOCKS],
}

/// Blocks in scratch.
struct Part {
    scratch: *const Scratch,
    /// The product's first block that is in scratch.
    first: usize,
    blocks: usize,
    /// The offset of the format.
    offset: i32,
}

/// A statement for each quad of half a block, with the quad's number as a constant.
macro_rules! for_quads {
    ($quad:ident in $first:literal.. $body:block) => {{
        {
            const $quad: usize = $first;
            $body
        }
        {
            const $quad: usize = $first + 1;
            $body
        }
        {
            const $quad: usize = $first + 2;
            $body
        }
        {
            const $quad: usize = $first + 3;
            $body
        }
    }};
}

/// The bits of a plane for a quad, from bit `to` of each byte on.
#[inline(always)]
unsafe fn bits<V: Vector>(plane: *const u8, bits: usize, quad: usize, to: usize) -> V {
    let (register, bit) = place(bits, quad);
    let words = V::load(plane.add(REGISTER * register));
    if bits == 8 {
        return words;
    }
    let words = if bit > to { words.right(bit - to) } else { words.left(to - bit) };
    words.and(V::splat(i32::from_ne_bytes([(((1 << bits) - 1) << to) as u8; 4])))
}

/// The codes of a quad with their offset, for a vector of rows. `at` is the place of the rows in a stripe's first register.
#[inline(always)]
unsafe fn quad_of<V: Vector, C: Codes>(at: *const u8, quad: usize, table: V) -> V {
    let mut codes = bits::<V>(at, C::LOW, quad, 0);
    if C::HIGH > 0 {
        codes = codes.or(bits::<V>(at.add(REGISTER * C::LOW), C::HIGH, quad, C::LOW));
    }
    if C::TABLE { codes.look_up(table) } else { codes }
}

/// The numbers of a table with the format's offset.
#[inline(always)]
unsafe fn table<V: Vector>(format: &'static Format) -> V {
    let offset = offset(format);
    V::splat_table(&std::array::from_fn(|code| (i32::from(value(format, code as u8)) + offset) as u8))
}

/// A unit of a panel.
#[derive(Clone, Copy)]
struct Unit<'a> {
    shape: &'a Shape,
    chunk: *const u8,
    at: *const u8,
}

impl<'a> Unit<'a> {
    #[inline(always)]
    unsafe fn of(shape: &'a Shape, panel: *const u8, unit: usize) -> Self {
        let (chunk, at) = shape.places(unit);
        Self { shape, chunk: panel.add(chunk), at: panel.add(at) }
    }

    /// The place of a vector's rows in their stripe's first register.
    #[inline(always)]
    unsafe fn codes(&self, row: usize) -> *const u8 {
        self.at.add(self.shape.unit_head + row / STRIPE * self.shape.stripe + QUAD * (row % STRIPE))
    }

    /// The scales (level 0) or minima (level 1) of the rows from `row` on, in a half.
    #[inline(always)]
    unsafe fn scales<V: Vector>(&self, level: usize, row: usize, half: usize) -> V::Floats {
        let scales = V::load_halves(self.chunk.add(2 * (level * PANEL + row)));
        if self.shape.unit_head == 0 {
            return scales;
        }
        let group = half * (self.shape.groups - 1);
        V::mul(scales, V::load_bytes(self.at.add((level * self.shape.groups + group) * PANEL + row)))
    }

    #[inline(always)]
    unsafe fn minima<V: Vector>(&self, row: usize, half: usize) -> V::Floats {
        if self.shape.format.minimum { self.scales::<V>(1, row, half) } else { V::splat_float(0.0) }
    }
}

/// A block's activations of `R` rows.
struct Left<const R: usize> {
    rows: [Row; R],
    sx: [f32; R],
    /// By half, or of the whole block in both halves: where sums start.
    from: [[i32; R]; 2],
    /// By half, or of the whole block in both halves: the scale times the sum of q.
    sums: [[f32; R]; 2],
}

/// Room for the joined activations of a block.
#[repr(align(64))]
struct Joined<const R: usize>([[[u8; UNIT]; 2]; R]);

impl<const R: usize> Left<R> {
    #[inline(always)]
    unsafe fn of<W: Way>(dot: &IntDot, r: usize, block: usize, offset: i32, joined: &mut Joined<R>) -> Self {
        let null = Row { hi: std::ptr::null(), lo: std::ptr::null() };
        let mut left = Self { rows: [null; R], sx: [0.0; R], from: [[0; R]; 2], sums: [[0.0; R]; 2] };
        for i in 0..R {
            let at = (r + i) * dot.q_row + UNIT * block;
            let (hi, lo) = (dot.hi.add(at), dot.lo.wrapping_add(at));
            left.rows[i] = Row { hi: hi.cast(), lo: lo.cast() };
            if W::JOINS {
                join(hi, dot.wide.then_some(lo), &mut joined.0[i]);
                left.rows[i] = Row { hi: joined.0[i][0].as_ptr(), lo: joined.0[i][1].as_ptr() };
            }
            left.sx[i] = *dot.sx.add((r + i) * dot.sx_row + block);
            let qsum = dot.qsum.add((r + i) * dot.qsum_row + 2 * block);
            let (mut from, mut sums) = ([*qsum, *qsum.add(1)], dot.sums_of(r + i, block));
            if !dot.halves {
                (from, sums) = ([from[0].wrapping_add(from[1]); 2], [sums[0] + sums[1]; 2]);
            }
            for half in 0..2 {
                left.from[half][i] = from[half].wrapping_mul(-offset);
                left.sums[half][i] = mul(left.sx[i], sums[half]);
            }
        }
        left
    }

    /// Adds a row's sum of a block or half to its accumulators.
    #[inline(always)]
    unsafe fn add<V: Vector>(
        &self,
        (i, half): (usize, usize),
        sum: V,
        (scales, minima): (V::Floats, V::Floats),
        subtract: bool,
        acc: *mut f32,
    ) {
        let scales = V::mul(scales, V::splat_float(self.sx[i]));
        let mut sums = V::fma(sum.floats(), scales, V::load_floats(acc));
        if subtract {
            sums = V::fma_negative(minima, V::splat_float(self.sums[half][i]), sums);
        }
        V::store_floats(sums, acc);
    }
}

/// Accumulators of `R` rows.
#[repr(align(64))]
struct Accumulators<const R: usize>([[f32; PANEL]; R]);

impl<const R: usize> Accumulators<R> {
    #[inline(always)]
    unsafe fn of(dot: &IntDot, r: usize, accumulate: bool) -> Self {
        let mut acc = Self([[0.0; PANEL]; R]);
        if accumulate {
            for (i, acc) in acc.0.iter_mut().enumerate() {
                copy(dot.c.add((r + i) * dot.c_row), acc.as_mut_ptr(), dot.columns);
            }
        }
        acc
    }

    #[inline(always)]
    unsafe fn store(&self, dot: &IntDot, r: usize) {
        for (i, acc) in self.0.iter().enumerate() {
            copy(acc.as_ptr(), dot.c.add((r + i) * dot.c_row), dot.columns);
        }
    }
}

/// Copies a row of accumulators. A whole row takes a few instructions rather than a call.
#[inline(always)]
unsafe fn copy(from: *const f32, to: *mut f32, columns: usize) {
    if columns == PANEL {
        to.cast::<[f32; PANEL]>().write_unaligned(from.cast::<[f32; PANEL]>().read_unaligned());
    } else {
        std::ptr::copy_nonoverlapping(from, to, columns);
    }
}

/// `R` rows by all columns; codes come from the panel.
#[inline(always)]
unsafe fn few<W: Way, C: Codes, const R: usize>(dot: &IntDot, r: usize, shape: &Shape) {
    let mut acc = Accumulators::<R>::of(dot, r, dot.accumulate);
    let mut joined = Joined([[[0; UNIT]; 2]; R]);
    let (table, offset) = (table::<W::V>(shape.format), offset(shape.format));
    for block in 0..dot.blocks {
        let unit = Unit::of(shape, dot.panel.at, dot.first + block);
        let left = Left::<R>::of::<W>(dot, r, block, offset, &mut joined);
        for row in (0..dot.columns).step_by(W::V::WORDS) {
            let codes = unit.codes(row);
            if row.is_multiple_of(LANES) {
                for register in 0..C::LOW + C::HIGH {
                    _mm_prefetch::<_MM_HINT_T0>(codes.wrapping_add(AHEAD + REGISTER * register).cast());
                }
            }
            let mut sums = [W::start(0); R];
            for (sum, from) in sums.iter_mut().zip(left.from[0]) {
                *sum = W::start(from);
            }
            macro_rules! quads {
                ($first:literal) => {
                    for_quads!(N in $first.. {
                        let codes = W::ready(quad_of::<W::V, C>(codes, N, table));
                        for (sum, x) in sums.iter_mut().zip(left.rows) {
                            *sum = W::step(*sum, codes, x, N);
                        }
                    })
                };
            }
            macro_rules! add {
                ($half:literal) => {
                    let scales = (unit.scales::<W::V>(0, row, $half), unit.minima::<W::V>(row, $half));
                    for (i, sum) in sums.iter().enumerate() {
                        let acc = acc.0[i].as_mut_ptr().add(row);
                        left.add((i, $half), W::total(*sum), scales, dot.minima, acc);
                    }
                };
            }
            quads!(0);
            if dot.halves {
                add!(0);
                for (sum, from) in sums.iter_mut().zip(left.from[1]) {
                    *sum = W::start(from);
                }
            }
            quads!(4);
            add!(1);
        }
    }
    acc.store(dot, r);
}

/// Bytes of a quad of a vector in scratch.
const fn ready_size<W: Way>() -> usize {
    size_of::<W::Codes>()
}

/// Writes some blocks of the product to scratch.
#[inline(always)]
unsafe fn expand<W: Way, C: Codes>(dot: &IntDot, first: usize, blocks: usize, shape: &Shape, to: *mut Scratch) {
    let (table, words) = (table::<W::V>(shape.format), W::V::WORDS);
    let codes = (&raw mut (*to).codes).cast::<u8>();
    for block in 0..blocks {
        let unit = Unit::of(shape, dot.panel.at, dot.first + first + block);
        for row in (0..dot.columns).step_by(words) {
            let from = unit.codes(row);
            let to_codes = codes.add((block * PANEL + row) / words * QUADS * ready_size::<W>()).cast::<W::Codes>();
            for_quads!(N in 0.. { *to_codes.add(N) = W::ready(quad_of::<W::V, C>(from, N, table)) });
            for_quads!(N in 4.. { *to_codes.add(N) = W::ready(quad_of::<W::V, C>(from, N, table)) });
            for half in 0..1 + usize::from(dot.halves) {
                let scales = (&raw mut (*to).scales[block][half]).cast::<f32>().add(row);
                W::V::store_floats(unit.scales::<W::V>(0, row, half), scales);
                if dot.minima {
                    let minima = (&raw mut (*to).minima[block][half]).cast::<f32>().add(row);
                    W::V::store_floats(unit.minima::<W::V>(row, half), minima);
                }
            }
        }
    }
}

/// `R` rows by the blocks in scratch, `G` vectors of columns at a time.
#[inline(always)]
unsafe fn rows<W: Way, const R: usize, const G: usize>(dot: &IntDot, part: &Part, r: usize) {
    let mut acc = Accumulators::<R>::of(dot, r, dot.accumulate || part.first > 0);
    let mut joined = Joined([[[0; UNIT]; 2]; R]);
    let vectors = dot.columns / W::V::WORDS;
    for block in 0..part.blocks {
        let left = Left::<R>::of::<W>(dot, r, part.first + block, part.offset, &mut joined);
        let mut v = 0;
        while v + G <= vectors {
            columns::<W, R, G>(dot, part, block, v, &left, &mut acc);
            v += G;
        }
        while v < vectors {
            columns::<W, R, 1>(dot, part, block, v, &left, &mut acc);
            v += 1;
        }
    }
    acc.store(dot, r);
}

/// A block of `R` rows by `G` vectors of columns, from the vector `v` on.
#[inline(always)]
unsafe fn columns<W: Way, const R: usize, const G: usize>(
    dot: &IntDot,
    part: &Part,
    block: usize,
    v: usize,
    left: &Left<R>,
    acc: &mut Accumulators<R>,
) {
    let words = W::V::WORDS;
    let all = (&raw const (*part.scratch).codes).cast::<W::Codes>();
    let codes = all.add((block * (PANEL / words) + v) * QUADS);
    let scales = &raw const (*part.scratch).scales[block];
    let minima = &raw const (*part.scratch).minima[block];
    let mut sums = [[W::start(0); G]; R];
    macro_rules! start {
        ($half:literal) => {
            for (sums, from) in sums.iter_mut().zip(left.from[$half]) {
                *sums = [W::start(from); G];
            }
        };
    }
    start!(0);
    macro_rules! quads {
        ($first:literal) => {
            for_quads!(N in $first.. {
                let codes: [W::Codes; G] = std::array::from_fn(|g| *codes.add(g * QUADS + N));
                for (sums, x) in sums.iter_mut().zip(left.rows) {
                    for (sum, codes) in sums.iter_mut().zip(codes) {
                        *sum = W::step(*sum, codes, x, N);
                    }
                }
            })
        };
    }
    macro_rules! add {
        ($half:literal) => {
            let number = if dot.halves { $half } else { 0 };
            for g in 0..G {
                let column = (v + g) * words;
                let scales = W::V::load_floats(scales.cast::<f32>().add(number * PANEL + column));
                // Scratch has minima only if they are subtracted.
                let minima = match dot.minima {
                    true => W::V::load_floats(minima.cast::<f32>().add(number * PANEL + column)),
                    false => scales,
                };
                for i in 0..R {
                    let acc = acc.0[i].as_mut_ptr().add(column);
                    left.add((i, $half), W::total(sums[i][g]), (scales, minima), dot.minima, acc);
                }
            }
        };
    }
    quads!(0);
    if dot.halves {
        add!(0);
        start!(1);
    }
    quads!(4);
    add!(1);
}
