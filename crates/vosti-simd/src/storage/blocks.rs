//! The blocks of a quantised file, rearranged so that a dot expands them in registers.
//!
//! A panel has its 64 rows side by side. Along k it is a list of chunks (elements that share a `d`). A chunk has the FP16
//! scales of its rows, then their FP16 minima if the format has minima, then its units of 32 elements. A unit has a scale byte
//! for each row and group if groups have their own scales, then as many minima, then the codes of its four stripes of 16 rows.
//!
//! A stripe's codes are split into a plane of low bits and a plane of high bits. A plane is a list of registers of 16 words of
//! 32 bits. The word of lane 2 (row % 8) + k % 2 has codes of that row and of row + 8. A register that is shifted by a constant
//! holds the codes of a pair for eight rows, in the order in which `vcvtne2ps2bf16` of two registers gives the operand of the
//! dot. The codes of four pairs begin at the same bit of the word's bytes. A rotation moves their high bits above the low
//! bits, so that a mask joins four pairs at once (`low_place`, `high_place`).
//! Read next: [`crate::micro`].

use half::bf16;
use vosti_kernels::{Format, Quantised, Values};

use crate::layout::PANEL;

/// Elements along k that are packed together.
pub const UNIT: usize = 32;
/// Rows of a stripe.
pub const STRIPE: usize = 16;
/// Stripes of a panel.
pub const STRIPES: usize = PANEL / STRIPE;
/// Pairs of a unit.
pub const PAIRS: usize = UNIT / 2;
/// Bytes of a register.
pub const REGISTER: usize = 64;
/// Words of a register.
const LANES: usize = 16;

/// The sizes of a format's parts in a panel.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The format of GGML: codes, scales and minima.
    pub format: &'static Format,
    /// Bits of a code in the low plane.
    pub low: usize,
    /// Bits of a code in the high plane; 0 if there is none (codes of 2, 4 or 8 bits).
    pub high: usize,
    /// Groups of a unit: one or two.
    pub groups: usize,
    /// Units of a chunk.
    pub units: usize,
    /// Bytes of a chunk's scales and minima.
    pub head: usize,
    /// Bytes of a unit's scales and minima.
    pub unit_head: usize,
    /// Bytes of a stripe's codes.
    pub stripe: usize,
}

impl Shape {
    /// The shape of a panel of this format.
    #[inline(always)]
    pub fn of(format: &'static Format) -> Self {
        let (low, high) = match format.bits {
            bits @ (2 | 4 | 8) => (bits, 0),
            3 => (2, 1),
            bits => (4, bits - 4),
        };
        let levels = 1 + usize::from(format.minimum);
        let groups = UNIT / format.group;
        let unit_head = if format.two_levels() { levels * groups * PANEL } else { 0 };
        let (units, head) = (format.chunk / UNIT, levels * PANEL * 2);
        Self { format, low, high, groups, units, head, unit_head, stripe: REGISTER * (low + high) }
    }

    /// Bytes of a unit.
    #[inline(always)]
    pub fn unit(&self) -> usize {
        self.unit_head + STRIPES * self.stripe
    }

    /// Bytes of a chunk.
    #[inline(always)]
    pub fn chunk(&self) -> usize {
        self.head + self.units * self.unit()
    }

    /// Bytes of a panel.
    pub fn panel_bytes(&self, row_len: usize) -> usize {
        row_len / self.format.chunk * self.chunk()
    }

    /// The byte offsets in a panel of a unit's chunk and of the unit.
    #[inline(always)]
    pub fn places(&self, unit: usize) -> (usize, usize) {
        let chunk = unit / self.units * self.chunk();
        (chunk, chunk + self.head + unit % self.units * self.unit())
    }

    /// Packs up to 64 rows into a panel of zeros. Missing rows become +0: their scales are zero, and their code stands for no
    /// negative number. Panics if the format or the size of `out` is another.
    pub fn pack(&self, rows: &Quantised, out: &mut [u8]) {
        self.pack_by(rows, out, |codes, row, unit, out| self.put_unit(codes, row, unit, out));
    }

    /// As [`Shape::pack`]; `put` writes a row's codes of a unit (codes, row, unit, panel).
    pub(super) fn pack_by(&self, rows: &Quantised, out: &mut [u8], put: impl Fn(&[u8], usize, usize, &mut [u8])) {
        assert!(rows.rows() <= PANEL && rows.format == self.format && out.len() == self.panel_bytes(rows.columns));
        let format = self.format;
        let (chunks, groups) = (rows.columns / format.chunk, rows.columns / format.group);
        for row in 0..rows.rows() {
            for chunk in 0..chunks {
                let at = chunk * self.chunk() + 2 * row;
                out[at..][..2].copy_from_slice(&rows.scales[row * chunks + chunk].to_ne_bytes());
                if format.minimum {
                    out[at + 2 * PANEL..][..2].copy_from_slice(&rows.minima[row * chunks + chunk].to_ne_bytes());
                }
            }
            for group in 0..if format.two_levels() { groups } else { 0 } {
                let (_, unit) = self.places(group / self.groups);
                let at = unit + group % self.groups * PANEL + row;
                out[at] = rows.group_scales[row * groups + group] as u8;
                if format.minimum {
                    out[at + self.groups * PANEL] = rows.group_minima[row * groups + group] as u8;
                }
            }
            for (unit, codes) in rows.codes[row * rows.columns..][..rows.columns].chunks_exact(UNIT).enumerate() {
                put(codes, row, unit, out);
            }
        }
        let positive = |code: &u8| format.value(*code).is_sign_positive();
        let none = [(0..=u8::MAX).find(positive).expect("some code stands for no negative number"); UNIT];
        for row in rows.rows()..PANEL {
            (0..rows.columns / UNIT).for_each(|unit| put(&none, row, unit, out));
        }
    }

    /// Writes a row's codes of a unit to a panel of zeros.
    fn put_unit(&self, codes: &[u8], row: usize, unit: usize, panel: &mut [u8]) {
        let at = self.places(unit).1 + self.unit_head + row / STRIPE * self.stripe;
        let planes = &mut panel[at..][..self.stripe];
        match (self.low, self.high) {
            (2, 0) => put::<2, 0>(codes, row % STRIPE, planes),
            (2, _) => put::<2, 1>(codes, row % STRIPE, planes),
            (4, 0) => put::<4, 0>(codes, row % STRIPE, planes),
            (4, 1) => put::<4, 1>(codes, row % STRIPE, planes),
            (4, _) => put::<4, 2>(codes, row % STRIPE, planes),
            _ => put::<8, 0>(codes, row % STRIPE, planes),
        }
    }

    /// The scale and the minimum of the group with the k-th element of a row.
    ///
    /// # Safety
    /// `panel` has this shape, the row and the element.
    #[inline(always)]
    pub(super) unsafe fn scales(&self, panel: *const u8, row: usize, k: usize) -> (f32, f32) {
        let (chunk, unit) = self.places(k / UNIT);
        let group = k % UNIT / self.format.group;
        // SAFETY: the caller's; places of the shape.
        unsafe {
            let half = |at: usize| half::f16::from_bits(panel.add(at).cast::<u16>().read()).to_f32();
            let byte = |at: usize| f32::from(*panel.add(at) as i8);
            let (mut scale, mut minimum) = (half(chunk + 2 * row), 0.0);
            if self.format.minimum {
                minimum = half(chunk + 2 * PANEL + 2 * row);
            }
            if self.format.two_levels() {
                scale *= byte(unit + group * PANEL + row);
                if self.format.minimum {
                    minimum *= byte(unit + (self.groups + group) * PANEL + row);
                }
            }
            (scale, minimum)
        }
    }

    /// The code of the k-th element of a row.
    ///
    /// # Safety
    /// `panel` has this shape, the row and the element.
    #[inline(always)]
    unsafe fn code(&self, panel: *const u8, row: usize, k: usize) -> u8 {
        let (within, lane) = (k % UNIT, row % 8 * 2 + k % 2);
        let (pair, half) = (within / 2, row % STRIPE / 8);
        // SAFETY: the caller's; places of the shape.
        unsafe {
            let stripe = panel.add(self.places(k / UNIT).1 + self.unit_head + row / STRIPE * self.stripe).cast::<u32>();
            let (register, bit) = low_place(self.low, pair, half);
            let low = stripe.add(register * LANES + lane).read() >> bit & ((1 << self.low) - 1);
            if self.high == 0 {
                return low as u8;
            }
            let (register, bit) = high_place(self.low, self.high, pair, half);
            let high = stripe.add((self.low + register) * LANES + lane).read() >> bit & ((1 << self.high) - 1);
            (low | high << self.low) as u8
        }
    }

    /// The BF16 bits of the k-th element of a row of a panel.
    ///
    /// # Safety
    /// `panel` has this shape, the row and the element.
    pub unsafe fn element(&self, panel: *const u8, row: usize, k: usize) -> u16 {
        // SAFETY: the caller's.
        let ((scale, minimum), code) = unsafe { (self.scales(panel, row, k), self.code(panel, row, k)) };
        bf16::from_f32(scale * self.format.value(code) - minimum).to_bits()
    }

    /// Expands a unit to BF16, in the order of `RowPanels`.
    ///
    /// # Safety
    /// `panel` has this shape and the unit.
    pub unsafe fn expand(&self, panel: *const u8, unit: usize, out: &mut [u16]) {
        for row in 0..PANEL {
            for first in (0..UNIT).step_by(self.format.group) {
                // SAFETY: the caller's.
                let (scale, minimum) = unsafe { self.scales(panel, row, unit * UNIT + first) };
                for k in first..first + self.format.group {
                    // SAFETY: as above.
                    let code = unsafe { self.code(panel, row, unit * UNIT + k) };
                    let element = bf16::from_f32(scale * self.format.value(code) - minimum);
                    out[k / 2 * 2 * PANEL + 2 * row + k % 2] = element.to_bits();
                }
            }
        }
    }

    /// The values of four-bit codes.
    pub fn table(&self) -> [f32; 16] {
        std::array::from_fn(|code| self.format.value(code as u8))
    }

    /// The number that is added to a code; 0 if values are looked up in a table.
    pub fn first(&self) -> f32 {
        match self.format.values {
            Values::From(first) => f32::from(first),
            Values::Table(_) => 0.0,
        }
    }
}

/// The register and the lowest bit of the low bits of a pair's code. `half` is 1 for a stripe's rows 8 to 15.
#[inline(always)]
fn low_place(low: usize, pair: usize, half: usize) -> (usize, usize) {
    match low {
        8 => (pair / 2, 8 * (pair % 2 * 2 + half)),
        _ => (pair / (16 / low), 8 * (pair % 4) + low * (pair / 4 % (4 / low) * 2 + half)),
    }
}

/// The register and the lowest bit of the high bits. After the rotations to the right for earlier pairs they are above the low
/// bits.
#[inline(always)]
fn high_place(low: usize, high: usize, pair: usize, half: usize) -> (usize, usize) {
    let turn = pair / 4 * 2 + half;
    (turn / (8 / high), (low + 8 * (pair % 4) + high * (turn % (8 / high))) % 32)
}

/// Writes a row's codes of a unit to the planes of its stripe.
fn put<const LOW: usize, const HIGH: usize>(codes: &[u8], row: usize, planes: &mut [u8]) {
    /// A word whose four bytes are `byte`.
    const fn each(byte: u32) -> u32 {
        byte * 0x0101_0101
    }
    let half = row / 8;
    for parity in 0..2 {
        let lane = row % 8 * 2 + parity;
        let mut words = [0u32; LANES];
        for (four, codes) in codes.as_chunks::<8>().0.iter().enumerate() {
            // The codes of four pairs, one in each byte, as in a register.
            let word = u32::from_le_bytes([codes[parity], codes[2 + parity], codes[4 + parity], codes[6 + parity]]);
            if LOW == 8 {
                // Two pairs a register, two bytes apart.
                for (pair, two) in [(4 * four, word), (4 * four + 2, word >> 16)] {
                    let (register, bit) = low_place(LOW, pair, half);
                    words[register] |= (two & 0xff | (two & 0xff00) << 8) << bit;
                }
                continue;
            }
            let (register, bit) = low_place(LOW, 4 * four, half);
            words[register] |= (word & each((1 << LOW) - 1)) << bit;
            if HIGH > 0 {
                let (register, bit) = high_place(LOW, HIGH.max(1), 4 * four, half);
                words[LOW + register] |= (word >> LOW & each((1 << HIGH) - 1)).rotate_left(bit as u32);
            }
        }
        for (register, word) in words[..LOW + HIGH].iter().enumerate() {
            let cell = &mut planes[REGISTER * register + 4 * lane..][..4];
            let there = u32::from_le_bytes([cell[0], cell[1], cell[2], cell[3]]);
            cell.copy_from_slice(&(there | word).to_le_bytes());
        }
    }
}
