//! BF16 weights in 13 bits, without loss. Decoding tokens is limited by reading weights, so fewer bytes are faster.
//!
//! A panel of 64 rows has few different exponents: the smaller of two weights of a panel is rarely less than 2^-28 of the
//! larger. Each element keeps its lower byte (mantissa, and the exponent's last bit) and its sign. Four bits replace the rest
//! of the exponent: an index into the panel's table of 16 exponents, whose first entry is that of zero. A panel with more
//! exponents stays in BF16. Both forms give the same bits.
//!
//! Elements are in the order of `RowPanels`. The 128 elements of a step along k (64 columns of two) are four registers of 32
//! words. Two registers are interleaved from 64 lower and 64 upper bytes, in groups of eight ([`place`]). A step has `[2][64]`
//! lower bytes, `[64]` bytes with four bits for each of the two, and `[2]` words with a bit for each sign.
//! Read next: [`super`], [`crate::micro`].

use crate::layout::PANEL;

/// Bytes of a panel's table of 16 exponents without their last bits, padded for alignment.
pub const TABLE: usize = 64;
/// Offset in a step of the four-bit indices.
pub const FOURS: usize = ELEMENTS;
/// Offset in a step of the signs.
pub const SIGNS: usize = FOURS + BYTES;
/// Bytes of a step.
pub const STEP: usize = SIGNS + ELEMENTS / 8;
const ELEMENTS: usize = 2 * PANEL;
/// Bytes of a register.
const BYTES: usize = 64;
/// The number of indices other than zero's.
const WINDOW: u8 = 15;

/// Bytes of a panel in 13 bits whose rows have `row_len` elements. An odd row is padded with a zero.
pub fn panel_bytes(row_len: usize) -> usize {
    (TABLE + row_len.div_ceil(2) * STEP).next_multiple_of(BYTES)
}

/// An exponent without its last bit.
fn upper(bits: u16) -> u8 {
    (bits >> 8) as u8 & 0x7f
}

/// The register of bytes (of two) that the i-th element of a step is in, and its byte there. Eight bytes belong to the first
/// register of words, the next eight to the second.
#[inline(always)]
fn place(i: usize) -> (usize, usize) {
    let (register, word) = (i / 32, i % 32);
    (register / 2, word / 8 * 16 + register % 2 * 8 + word % 8)
}

/// The number that is subtracted from an upper part to give its index, from a panel's largest and least upper parts other than
/// zero. `None` if these are too far apart.
pub fn below(most: u8, least: u8) -> Option<u8> {
    let below = most.saturating_sub(WINDOW);
    (most == 0 || least > below).then_some(below)
}

/// Writes a panel's table of exponents.
pub fn write_table(below: u8, table: &mut [u8]) {
    for (code, entry) in table[..TABLE].iter_mut().enumerate() {
        *entry = if (1..=usize::from(WINDOW)).contains(&code) { below + code as u8 } else { 0 };
    }
}

/// Writes a panel of BF16 in this form, element by element; false if it has too many exponents. This is the definition: no
/// processor without a faster one ([`crate::micro::Kernels::encode`]) has weights in this form.
pub fn encode(panel: &[u16], out: &mut [u8]) -> bool {
    let most = panel.iter().map(|bits| upper(*bits)).max().unwrap_or(0);
    let least = panel.iter().map(|bits| upper(*bits)).filter(|upper| *upper > 0).min().unwrap_or(0);
    let Some(below) = below(most, least) else { return false };
    let (table, steps) = out.split_at_mut(TABLE);
    write_table(below, table);
    for (elements, step) in panel.chunks_exact(ELEMENTS).zip(steps.chunks_exact_mut(STEP)) {
        step.fill(0);
        for (i, bits) in elements.iter().enumerate() {
            let (register, byte) = place(i);
            step[register * BYTES + byte] = *bits as u8;
            step[FOURS + byte] |= upper(*bits).saturating_sub(below) << (4 * register);
            step[SIGNS + register * 8 + byte / 8] |= ((bits >> 15) as u8) << (byte % 8);
        }
    }
    true
}

/// The k-th element of a row of a panel.
///
/// # Safety
/// `panel` is a panel in this form that has the element.
#[inline(always)]
pub unsafe fn element(panel: *const u8, row: usize, k: usize) -> u16 {
    let i = row * 2 + k % 2;
    let (register, byte) = place(i);
    // SAFETY: the caller's promise; every part lies within its panel.
    unsafe {
        let step = panel.add(TABLE + k / 2 * STEP);
        let lower = u16::from(*step.add(register * BYTES + byte));
        let code = *step.add(FOURS + byte) >> (4 * register) & 15;
        let sign = *step.add(SIGNS + register * 8 + byte / 8) >> (byte % 8) & 1;
        u16::from(sign) << 15 | u16::from(*panel.add(code.into())) << 8 | lower
    }
}
