//! Folds of the lanes of a row, in the order that [`vosti_tile::numerics::reduce`] defines: 16 lanes apart,
//! then a tree.

use vosti_tile::numerics::{self, from_bf16, to_bf16};
use vosti_tile::{Binary, Scalar};

use super::{LANES, Versions, versions};

/// `dst[r] = fold(src[r][0..length])`; rows of `src` are whole groups of lanes.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// The results: one element for each row.
    pub dst: *mut u8,
    /// The first lane of the first row.
    pub src: *const u8,
    /// Bytes from one row of `src` to the next.
    pub src_row: usize,
    /// Rows to fold.
    pub rows: usize,
    /// Lanes of a row that are folded.
    pub length: usize,
}

/// # Safety
/// Every row is readable, every result writable by this thread only, and the instruction set is present.
pub type ReduceFn = unsafe fn(&Rows);

#[inline(always)]
unsafe fn fold<T: Copy>(rows: &Rows, op: impl Fn(T, T) -> T + Copy) {
    for r in 0..rows.rows {
        // SAFETY: the caller's promise.
        unsafe {
            let row = rows.src.add(r * rows.src_row).cast::<T>();
            let result = if rows.length >= LANES && rows.length.is_multiple_of(LANES) {
                let mut lanes = row.cast::<[T; LANES]>().read_unaligned();
                for i in 1..rows.length / LANES {
                    let next = row.cast::<[T; LANES]>().add(i).read_unaligned();
                    for l in 0..LANES {
                        lanes[l] = op(lanes[l], next[l]);
                    }
                }
                for l in 0..8 {
                    lanes[l] = op(lanes[l], lanes[l + 8]);
                }
                for l in 0..4 {
                    lanes[l] = op(lanes[l], lanes[l + 4]);
                }
                for l in 0..2 {
                    lanes[l] = op(lanes[l], lanes[l + 2]);
                }
                op(lanes[0], lanes[1])
            } else {
                numerics::reduce(rows.length, |i| *row.add(i), op)
            };
            *rows.dst.cast::<T>().add(r) = result;
        }
    }
}

macro_rules! folds {
    ($t:ty, $f:expr) => {{
        #[inline(always)]
        fn f(a: $t, b: $t) -> $t {
            $f(a, b)
        }
        Some(versions!(Rows, |rows| fold::<$t>(rows, f)))
    }};
}

macro_rules! float {
    ($elem:expr, $f:expr) => {
        match $elem {
            Scalar::F32 => folds!(f32, $f),
            Scalar::Bf16 => folds!(u16, |a, b| to_bf16($f(from_bf16(a), from_bf16(b)))),
            _ => None,
        }
    };
}

macro_rules! int {
    ($elem:expr, $i32:expr, $i64:expr) => {
        match $elem {
            Scalar::I32 => folds!(i32, $i32),
            Scalar::I64 => folds!(i64, $i64),
            _ => None,
        }
    };
}

/// The fold with an operation; `None` if rows cannot be folded with it.
///
/// `length` is the number of lanes of every row. The hand-written versions are used for whole groups of lanes only.
#[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables, reason = "hand-written versions are x86-64's"))]
pub fn of(op: Binary, elem: Scalar, length: usize) -> Option<Versions<ReduceFn>> {
    let plain = plain(op, elem);
    #[cfg(target_arch = "x86_64")]
    if length >= LANES && length.is_multiple_of(LANES) {
        return plain.map(|f| f.with(super::simd::reduce(op, elem)));
    }
    plain
}

fn plain(op: Binary, elem: Scalar) -> Option<Versions<ReduceFn>> {
    match op {
        Binary::AddF => float!(elem, numerics::add),
        Binary::MulF => float!(elem, numerics::mul),
        Binary::MaxNumF => float!(elem, numerics::max_num),
        Binary::MinNumF => float!(elem, numerics::min_num),
        Binary::MaximumF => float!(elem, numerics::maximum),
        Binary::MinimumF => float!(elem, numerics::minimum),
        Binary::And | Binary::Or | Binary::Xor if elem == Scalar::I1 => match op {
            Binary::And => folds!(i32, |a, b| a & b),
            Binary::Or => folds!(i32, |a, b| a | b),
            _ => folds!(i32, |a, b| a ^ b),
        },
        Binary::Add => int!(elem, i32::wrapping_add, i64::wrapping_add),
        Binary::Mul => int!(elem, i32::wrapping_mul, i64::wrapping_mul),
        Binary::And => int!(elem, |a, b| a & b, |a, b| a & b),
        Binary::Or => int!(elem, |a, b| a | b, |a, b| a | b),
        Binary::Xor => int!(elem, |a, b| a ^ b, |a, b| a ^ b),
        Binary::MaxS => int!(elem, |a: i32, b: i32| a.max(b), |a: i64, b: i64| a.max(b)),
        Binary::MinS => int!(elem, |a: i32, b: i32| a.min(b), |a: i64, b: i64| a.min(b)),
        _ => None,
    }
}
