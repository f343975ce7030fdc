//! Words of a text: constants, names of registers and spaces, forms of accesses.

use super::{Known, Space, Special};
use crate::text::Width;

/// A constant, cut to the width (PTX ISA, "Constants").
pub(super) fn number(word: &str, width: Width) -> Known<u64> {
    let mask = match width {
        Width::Predicate => 1,
        Width::Bits16 => 0xffff,
        Width::Bits32 => 0xffff_ffff,
        Width::Bits64 => u64::MAX,
        Width::Map => return None,
    };
    if let Some(bits) = word.strip_prefix("0f") {
        return (width == Width::Bits32 && bits.len() == 8).then(|| u64::from_str_radix(bits, 16).ok())?;
    }
    let (digits, negative) = word.strip_prefix('-').map_or((word, false), |digits| (digits, true));
    let digits = digits.strip_suffix('U').unwrap_or(digits);
    let value = match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()?,
        None => digits.parse::<u64>().ok()?,
    };
    Some(if negative { value.wrapping_neg() } else { value } & mask)
}

pub(super) fn special(name: &str) -> Known<Special> {
    let (name, axis) = name.split_once('.')?;
    let axis = ["x", "y", "z"].iter().position(|known| *known == axis)?;
    Some(match (name, axis) {
        ("%tid", 0) => Special::Thread,
        ("%ntid", 0) => Special::Threads,
        ("%ctaid", _) => Special::Block(axis),
        ("%nctaid", _) => Special::Blocks(axis),
        _ => return None,
    })
}

pub(super) fn named(space: &str) -> Known<Space> {
    match space {
        "global" => Some(Space::Global),
        "shared" => Some(Space::Shared),
        _ => None,
    }
}

/// The bits of each of two parts.
pub(super) fn halves(width: Width, many: usize) -> Known<(u32, Width)> {
    match (width, many) {
        (Width::Bits32, 2) => Some((16, Width::Bits16)),
        (Width::Bits64, 2) => Some((32, Width::Bits32)),
        (Width::Bits64, 4) => Some((16, Width::Bits16)),
        _ => None,
    }
}

/// How many elements an access has, the bytes of each, and the width of their registers.
pub(super) fn access(form: &[&str]) -> Known<(usize, usize, Width)> {
    let (many, ty) = match form {
        [ty] => (1, ty),
        ["v2", ty] => (2, ty),
        ["v4", ty] => (4, ty),
        _ => return None,
    };
    let (bytes, width) = match *ty {
        "b8" | "u8" => (1, Width::Bits16),
        "b16" | "u16" => (2, Width::Bits16),
        "b32" | "u32" | "f32" => (4, Width::Bits32),
        "b64" | "u64" => (8, Width::Bits64),
        _ => return None,
    };
    (many * bytes <= 16).then_some((many, bytes, width))
}
