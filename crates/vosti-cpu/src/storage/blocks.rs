//! The blocks of a quantised file, rearranged so that a dot expands them in registers.
//!
//! A panel has its 64 rows side by side. Along k it is a list of chunks (elements that share a `d`): the rows' scales, then
//! their minima if there are any, FP16; then the chunk's units of 32 elements. A unit has, where groups have scales of their
//! own, a byte for each row and group, then as many minima; then the codes of its four stripes of 16 rows.
//!
//! A stripe's codes are planes: of so many low bits, then of so many high bits. A plane is registers of 16 words of 32 bits;
//! the word of lane 2 (row % 8) + k % 2 has the codes of that row and of the row eight further in turn, for pairs of k that
//! follow on one another. Shifted by a constant, a register holds eight rows' codes of a pair in the order in which
//! `vcvtne2ps2bf16` of two of them gives the operand of the dot.
//! Read next: [`crate::micro`].

use half::bf16;
use vosti_kernels::{Format, Quantised, Values};

use crate::layout::PANEL;

/// Elements along k that are packed together.
pub const UNIT: usize = 32;
/// Rows of a stripe, and stripes of a panel.
pub const STRIPE: usize = 16;
pub const STRIPES: usize = PANEL / STRIPE;
/// Pairs of a unit.
pub const PAIRS: usize = UNIT / 2;
/// Bytes of a register.
pub const REGISTER: usize = 64;

/// Where a format's parts lie in a panel.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub format: &'static Format,
    /// Bits of the low and of the high plane.
    pub low: usize,
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

    /// Where the chunk of a unit and the unit begin.
    #[inline(always)]
    pub fn places(&self, unit: usize) -> (usize, usize) {
        let chunk = unit / self.units * self.chunk();
        (chunk, chunk + self.head + unit % self.units * self.unit())
    }

    /// Packs up to 64 rows; those that are not there are zeros.
    pub fn pack(&self, rows: &Quantised) -> Vec<u8> {
        assert!(rows.rows() <= PANEL && rows.format == self.format);
        let format = self.format;
        let (chunks, groups) = (rows.columns / format.chunk, rows.columns / format.group);
        let mut out = vec![0; self.panel_bytes(rows.columns)];
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
                let at = self.places(unit).1 + self.unit_head + row / STRIPE * self.stripe;
                let (low, high) = out[at..][..self.stripe].split_at_mut(REGISTER * self.low);
                match self.low {
                    2 => put::<2>(codes, 0, 0, row % STRIPE, low),
                    4 => put::<4>(codes, 0, 0, row % STRIPE, low),
                    // Signed: what a byte stands for is itself.
                    _ => put::<8>(codes, 0, 0x80, row % STRIPE, low),
                }
                match self.high {
                    1 => put::<1>(codes, self.low, 0, row % STRIPE, high),
                    2 => put::<2>(codes, self.low, 0, row % STRIPE, high),
                    _ => {}
                }
            }
        }
        out
    }

    /// A group's scale and minimum of a row: the group that the k-th element is in.
    ///
    /// # Safety
    /// `panel` is of this shape and has them.
    #[inline(always)]
    unsafe fn scales(&self, panel: *const u8, row: usize, k: usize) -> (f32, f32) {
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
    /// `panel` is of this shape and has it.
    #[inline(always)]
    unsafe fn code(&self, panel: *const u8, row: usize, k: usize) -> u8 {
        let within = k % UNIT;
        // SAFETY: the caller's; places of the shape.
        unsafe {
            let stripe = panel.add(self.places(k / UNIT).1 + self.unit_head + row / STRIPE * self.stripe);
            let low = get(stripe, self.low, row % STRIPE, within);
            match (self.low, self.high) {
                (8, _) => low ^ 0x80,
                (_, 0) => low,
                (_, high) => low | get(stripe.add(REGISTER * self.low), high, row % STRIPE, within) << self.low,
            }
        }
    }

    /// The k-th element of a row of a panel.
    ///
    /// # Safety
    /// `panel` is of this shape and has it.
    pub unsafe fn element(&self, panel: *const u8, row: usize, k: usize) -> u16 {
        // SAFETY: the caller's.
        let ((scale, minimum), code) = unsafe { (self.scales(panel, row, k), self.code(panel, row, k)) };
        bf16::from_f32(scale * self.format.value(code) - minimum).to_bits()
    }

    /// A unit, in the order of `RowPanels`.
    ///
    /// # Safety
    /// `panel` is of this shape and has it.
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

    /// What codes of the low plane stand for, and of the high plane: what they say adds up. Each has 16 entries, repeated as
    /// often as there is room, so that whatever lies above a code in a lane says nothing. Bytes stand for themselves.
    pub fn tables(&self) -> [[f32; 16]; 2] {
        let low = |i: usize| i % (1 << self.low.min(4));
        let first = match self.format.values {
            Values::From(first) => f32::from(first),
            Values::Table(values) => return [std::array::from_fn(|i| f32::from(values[i])), [0.0; 16]],
        };
        match self.high {
            0 => [std::array::from_fn(|i| low(i) as f32 + first), [0.0; 16]],
            high => [
                std::array::from_fn(|i| low(i) as f32),
                std::array::from_fn(|i| ((i % (1 << high)) << self.low) as f32 + first),
            ],
        }
    }
}

/// Puts the bits of a row's codes above `shift` into a plane of `BITS`.
fn put<const BITS: usize>(codes: &[u8], shift: usize, flip: u8, row: usize, plane: &mut [u8]) {
    // Pairs of a word.
    let pairs = 16 / BITS;
    for (register, codes) in plane.chunks_exact_mut(REGISTER).zip(codes.chunks_exact(2 * pairs)) {
        for parity in 0..2 {
            let mut word = 0u32;
            for pair in 0..pairs {
                let code = u32::from((codes[2 * pair + parity] ^ flip) >> shift) & ((1 << BITS) - 1);
                word |= code << (BITS * (2 * pair + row / 8));
            }
            let cell = &mut register[4 * (row % 8 * 2 + parity)..][..4];
            let there = u32::from_le_bytes([cell[0], cell[1], cell[2], cell[3]]);
            cell.copy_from_slice(&(there | word).to_le_bytes());
        }
    }
}

/// The bits of a row's k-th code in a plane.
///
/// # Safety
/// The plane is there.
#[inline(always)]
unsafe fn get(plane: *const u8, bits: usize, row: usize, k: usize) -> u8 {
    let pairs = 16 / bits;
    let (register, pair) = (k / 2 / pairs, k / 2 % pairs);
    // SAFETY: the caller's.
    let word = unsafe { plane.cast::<u32>().add(register * 16 + row % 8 * 2 + k % 2).read() };
    (word >> (bits * (2 * pair + row / 8)) & ((1 << bits) - 1)) as u8
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rand_xoshiro::SplitMix64;
    use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
    use vosti_kernels::quantised::FORMATS;

    /// Random rows of a format: any finite scales, denormal, zero and negative ones among them.
    pub(crate) fn random(format: &'static Format, rows: usize, columns: usize, seed: u64) -> Quantised {
        let mut random = SplitMix64::seed_from_u64(seed);
        let mut next = || random.next_u64() >> 11;
        let mut out = Quantised::new(format, columns);
        let half = |bits: u64| match bits % 16 {
            0 => (bits >> 8) as u16 & 0x83ff,
            1 => 0x8000,
            2 => (bits >> 8) as u16 & 0xfbff,
            _ => 0x2000 | (bits >> 8) as u16 & 0x8fff,
        };
        out.scales = (0..rows * columns / format.chunk).map(|_| half(next())).collect();
        out.codes = (0..rows * columns).map(|_| (next() & ((1 << format.bits) - 1)) as u8).collect();
        let groups = if format.two_levels() { rows * columns / format.group } else { 0 };
        out.group_scales = (0..groups).map(|_| if format.minimum { next() as i8 & 63 } else { next() as i8 }).collect();
        if format.minimum {
            out.minima = out.scales.iter().map(|_| half(next())).collect();
            out.group_minima = (0..groups).map(|_| next() as i8 & 63).collect();
        }
        out
    }

    /// The formula.
    pub(crate) fn value(rows: &Quantised, row: usize, k: usize) -> u16 {
        let format = rows.format;
        let at = |every: usize| (row * rows.columns + k) / every;
        let half = |bits: u16| half::f16::from_bits(bits).to_f32();
        let (mut scale, mut minimum) = (half(rows.scales[at(format.chunk)]), 0.0);
        if format.minimum {
            minimum = half(rows.minima[at(format.chunk)]);
        }
        if format.two_levels() {
            scale *= f32::from(rows.group_scales[at(format.group)]);
            if format.minimum {
                minimum *= f32::from(rows.group_minima[at(format.group)]);
            }
        }
        bf16::from_f32(scale * format.value(rows.codes[at(1)]) - minimum).to_bits()
    }

    #[test]
    fn every_element_of_every_format_comes_back() {
        for format in &FORMATS {
            for rows in [64, 3] {
                let source = random(format, rows, 512, 5);
                let shape = Shape::of(format);
                let panel = shape.pack(&source);
                assert_eq!(panel.len(), shape.panel_bytes(512));
                for row in 0..rows {
                    for k in 0..512 {
                        // SAFETY: the panel has the element.
                        let got = unsafe { shape.element(panel.as_ptr(), row, k) };
                        assert_eq!(got, value(&source, row, k), "{} {row} {k}", format.name);
                    }
                }
            }
        }
    }

    #[test]
    fn a_panel_is_hardly_larger_than_the_files_blocks() {
        let file_bits = [8.5, 4.5, 5.0, 5.5, 6.0, 2.625, 3.4375, 4.5, 5.5, 6.5625, 4.5, 4.25, 4.25];
        for (format, file) in FORMATS.iter().zip(file_bits) {
            let bits = Shape::of(format).panel_bytes(1024) as f64 * 8.0 / (64.0 * 1024.0);
            // Two bytes in place of twice four bits, and FP16 in place of a byte.
            let most = if format.name == "Q2_K" { 1.2 } else { 1.06 };
            assert!(bits / file <= most, "{}: {bits} of {file}", format.name);
        }
    }
}
