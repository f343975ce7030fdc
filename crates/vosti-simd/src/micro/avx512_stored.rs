//! Dots over panels in a stored form, expanded in 512-bit registers.
//!
//! With few rows, elements are expanded in registers only. With more, the first rows store the expanded elements for the others.
//! Read next: [`crate::storage`].

use std::arch::x86_64::*;

use super::avx512::{self, AHEAD};
use super::{Dot, LANES, Stored, by_units, portable};
use crate::storage::blocks::{PAIRS, REGISTER, STRIPE, STRIPES, Shape};
use crate::storage::{Form, exponents};

/// Rows of a block for a panel in 13 bits: each has four accumulators.
const ROWS: usize = 6;

/// Rows of a block for a panel in a file's blocks: with more accumulators, too few registers are left to expand the panel.
const ROWS_OF_BLOCKS: usize = 4;

/// Rows that store the expanded elements of a panel in blocks: enough sums that no multiplication waits for another.
const ROWS_THAT_LEAVE: usize = 2;

/// The most rows of a dot that expands elements in registers and does not store them.
pub fn few(form: Form) -> usize {
    match form {
        Form::Blocks(_) => ROWS_OF_BLOCKS,
        _ => 2 * ROWS,
    }
}

/// With more rows, the number of first rows that store the expanded elements for the others.
pub fn leave(form: Form) -> usize {
    match form {
        Form::Blocks(_) => ROWS_THAT_LEAVE,
        _ => ROWS,
    }
}

/// # Safety
/// See [`super::StoredFn`].
pub unsafe fn dot(dot: &Dot<u16>, stored: &Stored) {
    // SAFETY: the caller vouches for the instruction set, the operands and the panel.
    unsafe {
        match stored.panel.form {
            Form::Bf16 => unreachable!("a panel in BF16 is read as it is"),
            Form::Exponents => exponents_rows(dot, stored),
            Form::Integers(_) => by_units(dot, stored, avx512::bf16, portable::expand),
            Form::Blocks(format) => {
                let shape = &Shape::of(format);
                match (shape.low, shape.high) {
                    (2, 0) => blocks_rows::<2, 0>(dot, stored, shape),
                    (2, _) => blocks_rows::<2, 1>(dot, stored, shape),
                    (4, 0) => blocks_rows::<4, 0>(dot, stored, shape),
                    (4, 1) => blocks_rows::<4, 1>(dot, stored, shape),
                    (4, _) => blocks_rows::<4, 2>(dot, stored, shape),
                    _ => blocks_rows::<8, 0>(dot, stored, shape),
                }
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn exponents_rows(dot: &Dot<u16>, stored: &Stored) {
    let mut r = 0;
    while r < dot.rows {
        let left = dot.rows - r;
        let rows = left.div_ceil(left.div_ceil(ROWS));
        // SAFETY: the caller's; rows are within the product.
        unsafe {
            match rows {
                1 => exponents_block::<1>(dot, r, stored),
                2 => exponents_block::<2>(dot, r, stored),
                3 => exponents_block::<3>(dot, r, stored),
                4 => exponents_block::<4>(dot, r, stored),
                5 => exponents_block::<5>(dot, r, stored),
                _ => exponents_block::<6>(dot, r, stored),
            }
        }
        r += rows;
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn blocks_rows<const LOW: u32, const HIGH: u32>(dot: &Dot<u16>, stored: &Stored, shape: &Shape) {
    // Values that do not fit into registers are spilled to the stack. The compiler aligns the stack to a cache line only if a
    // value on it asks for that, as this one does. Otherwise a load from the stack may cross two lines.
    let aligned = _mm512_setzero_si512();
    // SAFETY: no instruction.
    #[allow(clippy::pointers_in_nomem_asm_block, reason = "only the address counts")]
    unsafe {
        std::arch::asm!("/* {0} */", in(reg) &aligned, options(nomem, nostack, preserves_flags))
    };
    let mut r = 0;
    while r < dot.rows {
        // Blocks are as even as possible: five rows are three and two.
        let left = dot.rows - r;
        let rows = left.div_ceil(left.div_ceil(ROWS_OF_BLOCKS));
        // SAFETY: the caller's; rows are within the product.
        unsafe {
            match rows {
                1 => blocks_block::<LOW, HIGH, 1, 2, false>(dot, r, stored, shape),
                2 if stored.keep.is_null() => blocks_block::<LOW, HIGH, 2, 2, false>(dot, r, stored, shape),
                2 => blocks_block::<LOW, HIGH, 2, 2, true>(dot, r, stored, shape),
                3 => blocks_block::<LOW, HIGH, 3, 1, false>(dot, r, stored, shape),
                _ => blocks_block::<LOW, HIGH, 4, 1, false>(dot, r, stored, shape),
            }
        }
        r += rows;
    }
}

/// `R` rows by a panel of blocks, or by as many of its stripes as the product has columns for. `J` stripes are expanded at
/// once, because the sums of one stripe and few rows would wait for one another.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn blocks_block<const LOW: u32, const HIGH: u32, const R: usize, const J: usize, const KEEP: bool>(
    dot: &Dot<u16>,
    r: usize,
    stored: &Stored,
    shape: &Shape,
) {
    // SAFETY: rows r..r+R are within the product; units are the panel's; prefetches may point anywhere.
    unsafe {
        let (a, _, c) = dot.part(r, 0, 2);
        let there = (dot.columns / LANES).min(STRIPES);
        let codes = Codes::of(shape);
        let mut acc = [[_mm512_setzero_ps(); R]; STRIPES];
        if dot.accumulate {
            for (g, acc) in acc.iter_mut().enumerate().take(there) {
                for (r, acc) in acc.iter_mut().enumerate() {
                    *acc = _mm512_loadu_ps(c.add(r * dot.c_row + LANES * g));
                }
            }
        }
        let first = stored.step / PAIRS;
        for unit in 0..dot.steps / PAIRS {
            let (chunk, place) = shape.places(first + unit);
            let (chunk, place) = (stored.panel.at.add(chunk), stored.panel.at.add(place));
            macro_rules! stripes {
                ($g:literal) => {
                    if $g % J == 0 {
                        let at = place.add(shape.unit_head + $g * shape.stripe);
                        macro_rules! load {
                            ($to:ident, $register:expr) => {
                                for (j, to) in $to.iter_mut().enumerate() {
                                    let at = at.add(j * shape.stripe + REGISTER * $register);
                                    _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(AHEAD).cast());
                                    *to = _mm512_loadu_si512(at.cast());
                                }
                            };
                        }
                        let zeros = [_mm512_setzero_si512(); J];
                        let (mut low, mut high) = (zeros, zeros);
                        let mut scales = [Scales::of(shape, chunk, place, $g, 0); J];
                        for (j, scales) in scales.iter_mut().enumerate().skip(1) {
                            *scales = Scales::of(shape, chunk, place, $g + j, 0);
                        }
                        let mut pair = PAIRS * unit;
                        macro_rules! multiply {
                            ($j:ident, $x:expr, $y:expr) => {
                                for $j in 0..J {
                                    let (x, y) = ($x, $y);
                                    let column = scales[$j].of_pair::<LOW, HIGH>(x, y);
                                    if KEEP {
                                        let to = stored.keep.add(128 * pair + 32 * ($g + $j));
                                        let column = std::mem::transmute::<__m512bh, __m512i>(column);
                                        _mm512_storeu_si512(to.cast(), column);
                                    }
                                    for (r, acc) in acc[($g + $j) % STRIPES].iter_mut().enumerate() {
                                        let both = a.add(r * dot.a_row + 2 * pair).cast::<i32>().read_unaligned();
                                        let both: __m512bh = std::mem::transmute(_mm512_set1_epi32(both));
                                        *acc = _mm512_dpbf16_ps(*acc, both, column);
                                    }
                                }
                                pair += 1;
                            };
                        }
                        for half in 0..2 {
                            if half > 0 && shape.groups > 1 {
                                for (j, scales) in scales.iter_mut().enumerate() {
                                    *scales = Scales::of(shape, chunk, place, $g + j, 1);
                                }
                            }
                            if HIGH > 1 || HIGH > 0 && half == 0 {
                                load!(high, LOW as usize + half);
                            }
                            for register in 0..LOW as usize / 2 {
                                if J > 1 {
                                    // Keeps the compiler from loading later operands here, only to spill them.
                                    std::arch::asm!("", options(nostack, preserves_flags));
                                }
                                load!(low, half * LOW as usize / 2 + register);
                                if LOW == 4 && HIGH == 0 {
                                    for _ in 0..4 {
                                        multiply!(j, codes.look_up(&mut low[j]), codes.look_up(&mut low[j]));
                                    }
                                } else if LOW == 8 {
                                    let value = Codes::value::<LOW, HIGH>;
                                    multiply!(j, value(&codes, low[j], 0), value(&codes, low[j], 1));
                                    for low in &mut low {
                                        *low = _mm512_srli_epi32::<16>(*low);
                                    }
                                    multiply!(j, value(&codes, low[j], 0), value(&codes, low[j], 1));
                                } else {
                                    for _ in 0..4 / LOW {
                                        let (mut x, mut y) = (zeros, zeros);
                                        for j in 0..J {
                                            x[j] = four_pairs::<LOW, HIGH>(&mut low[j], &mut high[j]);
                                            y[j] = four_pairs::<LOW, HIGH>(&mut low[j], &mut high[j]);
                                        }
                                        let value = Codes::value::<LOW, HIGH>;
                                        multiply!(j, value(&codes, x[j], 0), value(&codes, y[j], 0));
                                        multiply!(j, value(&codes, x[j], 1), value(&codes, y[j], 1));
                                        multiply!(j, value(&codes, x[j], 2), value(&codes, y[j], 2));
                                        multiply!(j, value(&codes, x[j], 3), value(&codes, y[j], 3));
                                    }
                                }
                            }
                        }
                    }
                };
            }
            stripes!(0);
            stripes!(1);
            stripes!(2);
            stripes!(3);
        }
        for (g, acc) in acc.iter().enumerate().take(there) {
            for (r, acc) in acc.iter().enumerate() {
                _mm512_storeu_ps(c.add(r * dot.c_row + LANES * g), *acc);
            }
        }
    }
}

/// The values of codes.
struct Codes {
    /// The values of four-bit codes.
    table: __m512,
    /// Subtracted from a float whose mantissa has the code from bit 0, 8 or 16 on. The difference is the code's value.
    excess: [__m512; 3],
}

impl Codes {
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn of(shape: &Shape) -> Self {
        // SAFETY: the table has 16 entries.
        let table = unsafe { _mm512_loadu_ps(shape.table().as_ptr()) };
        let excess = [0, 1, 2].map(|byte| _mm512_set1_ps((1 << (23 - 8 * byte)) as f32 - shape.first()));
        Self { table, excess }
    }

    /// The value of the lowest four bits of each word. The bits are shifted out.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    #[inline]
    fn look_up(&self, words: &mut __m512i) -> __m512 {
        let value = _mm512_permutexvar_ps(*words, self.table);
        *words = _mm512_srli_epi32::<4>(*words);
        value
    }

    /// The value of the code in a byte of each word. The code becomes part of a float's mantissa without a shift, and a power of
    /// two is subtracted. Both steps are exact.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    #[inline]
    fn value<const LOW: u32, const HIGH: u32>(&self, word: __m512i, byte: usize) -> __m512 {
        let (word, byte) = if byte == 3 { (_mm512_srli_epi32::<8>(word), 2) } else { (word, byte) };
        let mask = _mm512_set1_epi32(((1 << (LOW + HIGH)) - 1) << (8 * byte));
        let exponent = _mm512_set1_epi32((127 + 23 - 8 * byte as i32) << 23);
        // word & mask | exponent
        let float = _mm512_ternarylogic_epi32::<0xea>(word, mask, exponent);
        _mm512_sub_ps(_mm512_castsi512_ps(float), self.excess[byte])
    }
}

/// The next codes of four pairs, for the stripe's first rows or its last: one in each byte of the words.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
fn four_pairs<const LOW: u32, const HIGH: u32>(low: &mut __m512i, high: &mut __m512i) -> __m512i {
    let mut words = *low;
    *low = if LOW == 4 { _mm512_srli_epi32::<4>(*low) } else { _mm512_srli_epi32::<2>(*low) };
    if HIGH > 0 {
        let mask = _mm512_set1_epi8((1 << LOW) - 1);
        // Low bits where the mask is set, high bits elsewhere.
        words = _mm512_ternarylogic_epi32::<0xca>(mask, words, *high);
        *high = if HIGH == 1 { _mm512_ror_epi32::<1>(*high) } else { _mm512_ror_epi32::<2>(*high) };
    }
    words
}

/// The scales and minima of a stripe: of rows 0 to 7, then of rows 8 to 15, each row twice.
#[derive(Clone, Copy)]
struct Scales {
    scale: [__m512; 2],
    minimum: [__m512; 2],
}

impl Scales {
    /// The operand of a dot: the first rows' values and the last rows'.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
    #[inline]
    fn of_pair<const LOW: u32, const HIGH: u32>(&self, x: __m512, y: __m512) -> __m512bh {
        // No format with codes of so many bits has minima.
        if (LOW, HIGH) == (8, 0) || (LOW, HIGH) == (4, 2) || (LOW, HIGH) == (2, 1) {
            return _mm512_cvtne2ps_pbh(_mm512_mul_ps(y, self.scale[1]), _mm512_mul_ps(x, self.scale[0]));
        }
        let x = _mm512_fmsub_ps(x, self.scale[0], self.minimum[0]);
        _mm512_cvtne2ps_pbh(_mm512_fmsub_ps(y, self.scale[1], self.minimum[1]), x)
    }

    /// The scales and minima of one of a unit's groups.
    ///
    /// # Safety
    /// `chunk` and `unit` point to a chunk and a unit of this shape.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    #[inline]
    unsafe fn of(shape: &Shape, chunk: *const u8, unit: *const u8, stripe: usize, group: usize) -> Self {
        let twice = [
            _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7),
            _mm512_setr_epi32(8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15),
        ];
        // SAFETY: the caller's; places of the shape.
        unsafe {
            let all = |level: usize| {
                let halves = chunk.add((level * STRIPES + stripe) * STRIPE * 2);
                let whole = _mm512_cvtph_ps(_mm256_loadu_si256(halves.cast()));
                if shape.unit_head == 0 {
                    return whole;
                }
                let bytes = unit.add(((level * shape.groups + group) * STRIPES + stripe) * STRIPE);
                let bytes = _mm512_cvtepi8_epi32(_mm_loadu_si128(bytes.cast()));
                _mm512_mul_ps(whole, _mm512_cvtepi32_ps(bytes))
            };
            let scale = all(0);
            let minimum = if shape.format.minimum { all(1) } else { _mm512_setzero_ps() };
            Self {
                scale: twice.map(|order| _mm512_permutexvar_ps(order, scale)),
                minimum: twice.map(|order| _mm512_permutexvar_ps(order, minimum)),
            }
        }
    }
}

/// The tables for decoding a panel in 13 bits.
struct Decoder {
    /// The panel's table of exponents, repeated in each quarter.
    table: __m512i,
    four_bits: __m512i,
    sign: __m512i,
}

impl Decoder {
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    #[inline]
    unsafe fn new(table: *const u8) -> Self {
        // SAFETY: the caller's table.
        let table = unsafe { _mm512_broadcast_i32x4(_mm_loadu_si128(table.cast())) };
        Self { table, four_bits: _mm512_set1_epi8(15), sign: _mm512_set1_epi8(-128) }
    }

    /// A step's four registers.
    ///
    /// # Safety
    /// The step is readable.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    #[inline]
    unsafe fn step(&self, step: *const u8) -> [__m512i; 4] {
        // SAFETY: every part lies within the step.
        unsafe {
            let fours = _mm512_loadu_si512(step.add(exponents::FOURS).cast());
            let signs = step.add(exponents::SIGNS).cast::<u64>();
            let [a, b] = self.two(step, fours, signs.read_unaligned());
            let [c, d] = self.two(step.add(64), _mm512_srli_epi16::<4>(fours), signs.add(1).read_unaligned());
            [a, b, c, d]
        }
    }

    /// Two registers of elements from their lower bytes, from bytes whose lowest four bits are codes, and from signs.
    ///
    /// # Safety
    /// The lower bytes are readable.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    #[inline]
    unsafe fn two(&self, lower: *const u8, codes: __m512i, signs: u64) -> [__m512i; 2] {
        // SAFETY: the caller's.
        let lower = unsafe { _mm512_loadu_si512(lower.cast()) };
        let upper = _mm512_shuffle_epi8(self.table, _mm512_and_si512(codes, self.four_bits));
        let upper = _mm512_mask_add_epi8(upper, signs, upper, self.sign);
        [_mm512_unpacklo_epi8(lower, upper), _mm512_unpackhi_epi8(lower, upper)]
    }
}

/// `R` rows by a panel in 13 bits, or by as many of its registers as the product has columns for.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn exponents_block<const R: usize>(dot: &Dot<u16>, r: usize, stored: &Stored) {
    // SAFETY: rows r..r+R are within the product, and so are the registers below `there`.
    unsafe {
        let table = stored.panel.at;
        let steps = table.add(exponents::TABLE + stored.step * exponents::STEP);
        let decoder = Decoder::new(table);
        let (a, _, c) = dot.part(r, 0, 2);
        let there = (dot.columns / LANES).min(4);
        let mut acc = [[_mm512_setzero_ps(); 4]; R];
        if dot.accumulate {
            for (r, row) in acc.iter_mut().enumerate() {
                for (g, acc) in row.iter_mut().enumerate().take(there) {
                    *acc = _mm512_loadu_ps(c.add(r * dot.c_row + LANES * g));
                }
            }
        }
        for step in 0..dot.steps {
            let at = steps.add(step * exponents::STEP);
            if r == 0 {
                for line in 0..exponents::STEP.div_ceil(64) {
                    _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(AHEAD + 64 * line).cast());
                }
            }
            let columns = decoder.step(at);
            if R == ROWS && !stored.keep.is_null() {
                for (g, column) in columns.into_iter().enumerate() {
                    _mm512_storeu_si512(stored.keep.add(128 * step + 32 * g).cast(), column);
                }
            }
            for (r, row) in acc.iter_mut().enumerate() {
                let pair = a.add(r * dot.a_row + 2 * step).cast::<i32>().read_unaligned();
                let pair: __m512bh = std::mem::transmute(_mm512_set1_epi32(pair));
                for (acc, column) in row.iter_mut().zip(columns) {
                    *acc = _mm512_dpbf16_ps(*acc, pair, std::mem::transmute::<__m512i, __m512bh>(column));
                }
            }
        }
        for (r, row) in acc.iter().enumerate() {
            for (g, acc) in row.iter().enumerate().take(there) {
                _mm512_storeu_ps(c.add(r * dot.c_row + LANES * g), *acc);
            }
        }
    }
}

/// Encodes a panel in the order of `RowPanels`. If the panel has too many exponents, returns false and writes nothing.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub fn encode(panel: &[u16], out: &mut [u8]) -> bool {
    assert!(panel.len().is_multiple_of(128) && out.len() >= exponents::TABLE + panel.len() / 128 * exponents::STEP);
    let (exponent, one) = (_mm512_set1_epi8(0x7f), _mm512_set1_epi8(1));
    // In the search for the least upper part, zero counts as the largest, so that it is ignored.
    let (mut most, mut least) = (_mm512_setzero_si512(), _mm512_set1_epi8(-1));
    for elements in panel.chunks_exact(64) {
        // SAFETY: two registers of words.
        let upper = unsafe { packed(elements.as_ptr()) }[1];
        let upper = _mm512_and_si512(upper, exponent);
        most = _mm512_max_epu8(most, upper);
        least = _mm512_min_epu8(least, _mm512_sub_epi8(upper, one));
    }
    let bytes = |register: __m512i| {
        let mut bytes = [0u8; 64];
        // SAFETY: as many bytes.
        unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), register) };
        bytes
    };
    let most = bytes(most).into_iter().max().unwrap_or(0);
    let least = bytes(least).into_iter().min().unwrap_or(0).wrapping_add(1);
    let Some(below) = exponents::below(most, least) else { return false };
    exponents::write_table(below, out);
    let below = _mm512_set1_epi8(below as i8);
    for (elements, step) in panel.chunks_exact(128).zip(out[exponents::TABLE..].chunks_exact_mut(exponents::STEP)) {
        // SAFETY: four registers of words; every part lies within the step.
        unsafe {
            let pairs = [packed(elements.as_ptr()), packed(elements.as_ptr().add(64))];
            let codes = pairs.map(|[_, upper]| _mm512_subs_epu8(_mm512_and_si512(upper, exponent), below));
            let fours = _mm512_or_si512(codes[0], _mm512_slli_epi16::<4>(codes[1]));
            let step = step.as_mut_ptr();
            _mm512_storeu_si512(step.add(exponents::FOURS).cast(), fours);
            for (i, [lower, upper]) in pairs.into_iter().enumerate() {
                _mm512_storeu_si512(step.add(64 * i).cast(), lower);
                step.add(exponents::SIGNS).cast::<u64>().add(i).write_unaligned(_mm512_movepi8_mask(upper));
            }
        }
    }
    true
}

/// Splits two registers of words into one of their lower bytes and one of their upper bytes. [`Decoder::two`] is the inverse.
///
/// # Safety
/// 64 words are readable.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
unsafe fn packed(words: *const u16) -> [__m512i; 2] {
    // SAFETY: the caller's.
    let (a, b) = unsafe { (_mm512_loadu_si512(words.cast()), _mm512_loadu_si512(words.add(32).cast())) };
    let low = _mm512_set1_epi16(0xff);
    let lower = _mm512_packus_epi16(_mm512_and_si512(a, low), _mm512_and_si512(b, low));
    [lower, _mm512_packus_epi16(_mm512_srli_epi16::<8>(a), _mm512_srli_epi16::<8>(b))]
}
