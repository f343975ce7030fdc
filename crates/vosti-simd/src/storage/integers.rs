//! The blocks of a quantised file, rearranged for exact sums of integers.
//!
//! A panel has the sizes, scales and minima of [`super::blocks`]; only the codes of a stripe lie differently. Every register of a
//! plane has one word of 32 bits for each of the stripe's 16 rows, in their order. A quad is four successive k of a row. Its codes
//! lie in the four bytes of a word, at the same bit: what one instruction multiplies by four bytes of activations. A register
//! holds as many quads as a byte has room for, the first one lowest. So a shift and a mask make a quad of 16 rows, and a second
//! shift and mask add its high bits.
//! Read next: [`crate::micro::integers`].

use half::bf16;
use vosti_kernels::{Format, Quantised, Values};

use super::blocks::{REGISTER, STRIPE, Shape, UNIT};

/// Successive k whose codes lie in one word.
pub const QUAD: usize = 4;
/// Quads of a unit.
pub const QUADS: usize = UNIT / QUAD;

/// The register of a plane with `bits` bits a code that holds a quad, and the quad's lowest bit in each byte.
#[inline(always)]
pub fn place(bits: usize, quad: usize) -> (usize, usize) {
    (quad * bits / 8, quad * bits % 8)
}

/// What is added to the numbers that codes stand for, so that none is negative and all fit a byte.
#[inline(always)]
pub fn offset(format: &Format) -> i32 {
    match format.values {
        Values::From(first) => -i32::from(first),
        Values::Table(values) => -values.iter().copied().map(i32::from).min().unwrap_or(0),
    }
}

/// The number that a code stands for.
#[inline(always)]
pub fn value(format: &Format, code: u8) -> i8 {
    match format.values {
        Values::From(first) => (i16::from(code) + first) as i8,
        Values::Table(values) => values[usize::from(code & 15)],
    }
}

/// Packs up to 64 rows into a panel of zeros. Missing rows have zeros as scales and minima. Panics if the size of `out` is another.
pub fn pack(rows: &Quantised, out: &mut [u8]) {
    let shape = Shape::of(rows.format);
    shape.pack_by(rows, out, |codes, row, unit, panel| {
        let at = stripe(&shape, row, unit);
        put(&shape, codes, row % STRIPE, &mut panel[at..][..shape.stripe]);
    });
}

/// The offset in a panel of the codes of a row's stripe.
#[inline(always)]
fn stripe(shape: &Shape, row: usize, unit: usize) -> usize {
    shape.places(unit).1 + shape.unit_head + row / STRIPE * shape.stripe
}

/// Writes a row's codes of a unit to the planes of its stripe.
fn put(shape: &Shape, codes: &[u8], row: usize, planes: &mut [u8]) {
    for (quad, codes) in codes.chunks_exact(QUAD).enumerate() {
        for (k, code) in codes.iter().enumerate() {
            let (register, bit) = place(shape.low, quad);
            let low = u16::from(*code) & ((1 << shape.low) - 1);
            planes[REGISTER * register + QUAD * row + k] |= (low << bit) as u8;
            if shape.high > 0 {
                let (register, bit) = place(shape.high, quad);
                planes[REGISTER * (shape.low + register) + QUAD * row + k] |= code >> shape.low << bit;
            }
        }
    }
}

/// An element of a panel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Element {
    /// The number that its code stands for.
    pub value: i8,
    /// The scale of its group.
    pub scale: f32,
    /// The minimum of its group; +0 if the format has none.
    pub minimum: f32,
}

impl Element {
    /// The element in BF16, as its format defines it.
    pub fn bf16(self) -> u16 {
        bf16::from_f32(self.scale * f32::from(self.value) - self.minimum).to_bits()
    }
}

/// The k-th element of a row.
///
/// # Safety
/// `panel` is a panel of this format that has the row and the element.
pub unsafe fn element(format: &'static Format, panel: *const u8, row: usize, k: usize) -> Element {
    let shape = Shape::of(format);
    let (quad, byte) = (k % UNIT / QUAD, row % STRIPE * QUAD + k % QUAD);
    // SAFETY: the caller's; places of the shape.
    unsafe {
        let (scale, minimum) = shape.scales(panel, row, k);
        let planes = panel.add(stripe(&shape, row, k / UNIT));
        let bits = |first: usize, bits: usize| {
            let (register, bit) = place(bits, quad);
            u16::from(*planes.add(REGISTER * (first + register) + byte)) >> bit & ((1 << bits) - 1)
        };
        let mut code = bits(0, shape.low);
        if shape.high > 0 {
            code |= bits(shape.low, shape.high) << shape.low;
        }
        Element { value: value(format, code as u8), scale, minimum }
    }
}
