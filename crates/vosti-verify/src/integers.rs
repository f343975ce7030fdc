//! Integer and boolean operations of the tile IR as terms, and how lanes move through a reshape.
//!
//! A function gives None for an operation that it does not understand; the caller makes the result opaque.

use crate::term::{Bounds, Term, Terms};
use vosti_tile::{Binary, CmpInt, Scalar};

/// The values that an element type can hold. Floats count as 32 bits wide.
pub fn range(elem: Scalar) -> Bounds {
    match elem {
        Scalar::I64 => (Some(i128::from(i64::MIN)), Some(i128::from(i64::MAX))),
        Scalar::I1 => (Some(0), Some(1)),
        Scalar::I8 => (Some(i128::from(i8::MIN)), Some(i128::from(i8::MAX))),
        _ => (Some(i128::from(i32::MIN)), Some(i128::from(i32::MAX))),
    }
}

pub(crate) fn bool_binary(t: &mut Terms, f: Binary, a: Term, b: Term) -> Option<Term> {
    Some(match f {
        Binary::And => t.and(&[a, b]),
        Binary::Or => t.or(&[a, b]),
        Binary::Xor => {
            let same = t.eq(a, b);
            t.not(same)
        }
        _ => return None,
    })
}

pub(crate) fn int_binary(t: &mut Terms, f: Binary, a: Term, b: Term) -> Option<Term> {
    let natural = |t: &Terms, x: Term| t.bounds(x).0.is_some_and(|lo| lo >= 0);
    Some(match f {
        Binary::Add => t.add(a, b),
        Binary::Sub => t.sub(a, b),
        Binary::Mul => t.mul(a, b),
        Binary::MaxS => t.max(a, b),
        Binary::MinS => t.min(a, b),
        Binary::DivS | Binary::RemS | Binary::DivU | Binary::RemU => {
            let d = t.as_int(b).filter(|d| *d > 0)?;
            if matches!(f, Binary::DivU | Binary::RemU) && !natural(t, a) {
                return None;
            }
            let q = truncated(t, a, d);
            if matches!(f, Binary::DivS | Binary::DivU) {
                return Some(q);
            }
            if natural(t, a) {
                return Some(t.rem(a, d));
            }
            let back = t.scale(q, d);
            t.sub(a, back)
        }
        Binary::MaxU if natural(t, a) && natural(t, b) => t.max(a, b),
        Binary::MinU if natural(t, a) && natural(t, b) => t.min(a, b),
        Binary::Shl | Binary::ShrS | Binary::ShrU => shift(t, f, a, b)?,
        Binary::And | Binary::Or | Binary::Xor => bits(t, f, a, b)?,
        _ => return None,
    })
}

/// Shifts by a constant. A shift to the left multiplies; that the product fits is an obligation (`no-wrap`). An arithmetic
/// shift to the right is *floor* division, of negative numbers too, where `divsi` truncates. A logical shift to the right is
/// understood only if the number is known to be at least 0.
fn shift(t: &mut Terms, f: Binary, a: Term, by: Term) -> Option<Term> {
    let by = t.as_int(by).filter(|by| (0..63).contains(by))?;
    match f {
        Binary::Shl => Some(t.scale(a, 1 << by)),
        Binary::ShrU if t.bounds(a).0.is_none_or(|lo| lo < 0) => None,
        _ => Some(t.div(a, 1 << by)),
    }
}

/// Bitwise operations on two's complement. `x & (2^m - 1)` is x modulo 2^m, of negative numbers too (the remainder of floor
/// division, which `remsi` is not). `x & -2^m` is x less that remainder. `x | y` and `x ^ y` are `x + y` if the low m bits
/// of x are zero and y has only low m bits, so that no bit is carried.
fn bits(t: &mut Terms, f: Binary, a: Term, b: Term) -> Option<Term> {
    for (x, y) in [(a, b), (b, a)] {
        if f == Binary::And {
            match t.as_int(y) {
                Some(mask) if mask >= 0 && (mask + 1).count_ones() == 1 => return Some(t.rem(x, mask + 1)),
                Some(mask) if mask < 0 && (-mask).count_ones() == 1 => {
                    let low = t.rem(x, -mask);
                    return Some(t.sub(x, low));
                }
                _ => continue,
            }
        }
        let (Some(lo), Some(hi)) = t.bounds(y) else {
            continue;
        };
        if lo >= 0 && hi < 1 << 62 {
            let size = ((hi + 1) as u128).next_power_of_two() as i128;
            let low = t.rem(x, size);
            if t.as_int(low) == Some(0) {
                return Some(t.add(x, y));
            }
        }
    }
    None
}

/// Division by `d > 0` towards zero, in terms of floor division.
fn truncated(t: &mut Terms, a: Term, d: i128) -> Term {
    let up = t.div(a, d);
    if t.bounds(a).0.is_some_and(|lo| lo >= 0) {
        return up;
    }
    let minus = t.scale(a, -1);
    let down = t.div(minus, d);
    let down = t.scale(down, -1);
    let zero = t.int(0);
    let natural = t.le(zero, a);
    t.ite(natural, up, down)
}

pub(crate) fn compare(t: &mut Terms, f: CmpInt, a: Term, b: Term) -> Option<Term> {
    if t.is_bool(a) && !matches!(f, CmpInt::Eq | CmpInt::Ne) {
        return None;
    }
    let natural = |t: &Terms, x: Term| t.bounds(x).0.is_some_and(|lo| lo >= 0);
    use CmpInt::*;
    if matches!(f, Ult | Ule | Ugt | Uge) && !(natural(t, a) && natural(t, b)) {
        return None;
    }
    Some(match f {
        Eq => t.eq(a, b),
        Ne => {
            let same = t.eq(a, b);
            t.not(same)
        }
        Slt | Ult => t.lt(a, b),
        Sle | Ule => t.le(a, b),
        Sgt | Ugt => t.lt(b, a),
        Sge | Uge => t.le(b, a),
    })
}

/// A tile of shape `from` is reshaped to `to`: the lane of the tile that becomes lane `idx` of the result.
pub(crate) fn reshape(t: &mut Terms, to: &[usize], idx: &[Term], from: &[usize]) -> Vec<Term> {
    // Axes fall into groups of equal size on both sides: division stays inside a group.
    let size = |shape: &[usize], axis: usize| shape.get(axis).map_or(1, |n| *n as i128);
    let (mut out, mut i, mut j) = (vec![], 0, 0);
    while j < from.len() {
        let (mut ni, mut nj) = (size(to, i), size(from, j));
        let (mut ei, mut ej) = (i + 1, j + 1);
        while ni != nj && (ei < to.len() || ej < from.len()) {
            if ni < nj {
                ni *= size(to, ei);
                ei += 1;
            } else {
                nj *= size(from, ej);
                ej += 1;
            }
        }
        let mut flat = t.int(0);
        for (axis, lane) in idx.iter().enumerate().take(ei).skip(i) {
            flat = t.scale(flat, size(to, axis));
            flat = t.add(flat, *lane);
        }
        let mut inner = nj;
        for axis in j..ej.min(from.len()) {
            inner /= size(from, axis);
            out.push(t.div(flat, inner));
            flat = t.rem(flat, inner);
        }
        (i, j) = (ei, ej);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn bits_and_shifts_are_those_of_twos_complement_on_both_sides_of_zero() {
        use Binary::*;
        let mut understood = 0;
        for (f, constant) in
            [(Shl, 3), (ShrS, 2), (ShrS, 0), (And, 7), (And, -8), (And, 0), (And, -1), (And, 5), (Or, 3)]
        {
            for scale in [1, 4] {
                let mut t = Terms::default();
                let x = t.var("x", (Some(-40), Some(40)));
                let (a, b) = (t.scale(x, scale), t.int(constant));
                let Some(term) = int_binary(&mut t, f, a, b) else {
                    continue;
                };
                understood += 1;
                for value in -40..=40 {
                    let (number, put) = (value * scale, t.int(value));
                    let wanted = match f {
                        Shl => number << constant,
                        ShrS => number >> constant,
                        And => number & constant,
                        _ => number | constant,
                    };
                    let found = t.substitute(term, &HashMap::from([(x, put)]));
                    assert_eq!(t.as_int(found), Some(wanted), "{f:?} {number} {constant}");
                }
            }
        }
        assert_eq!(understood, 15, "all but `& 5`, and `| 3` of what is no multiple of 4");
    }

    #[test]
    fn a_logical_shift_of_what_may_be_negative_is_not_understood() {
        let mut t = Terms::default();
        let (x, by) = (t.var("x", (Some(-1), Some(40))), t.int(2));
        assert_eq!(int_binary(&mut t, Binary::ShrU, x, by), None);
    }
}
