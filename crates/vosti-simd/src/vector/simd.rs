//! The loops in which tiles spend their time, over [`Lanes`]; [`super::ops`] has the rest.
//!
//! Portable code and rare operations are loops over the scalar definitions. These loops do the same operations on sixteen
//! lanes.

use vosti_tile::numerics::math;
use vosti_tile::{Binary, Cast, CmpFloat, CmpInt, Scalar, Unary};

use super::lanes::{Lanes, Pair, Wide};
use super::reduce::{ReduceFn, Rows};
use super::{Arg, LANES, Map, MapFn};

/// Versions for 256 and 512 bits, and for 512 bits with BF16.
pub struct SimdFns<F> {
    pub avx2: F,
    pub avx512: F,
    pub avx512_bf16: F,
}

/// Builds a generic function for both vector widths.
macro_rules! simd {
    ($argument:ty, $body:ident $(, $extra:expr)*) => {{
        #[target_feature(enable = "avx2,fma")]
        unsafe fn avx2(argument: &$argument) {
            // SAFETY: the caller's promises are passed on.
            unsafe { $body::<Pair>(argument $(, $extra)*) }
        }
        #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq")]
        unsafe fn avx512(argument: &$argument) {
            // SAFETY: as above.
            unsafe { $body::<Wide>(argument $(, $extra)*) }
        }
        Some(SimdFns { avx2, avx512, avx512_bf16: avx512 })
    }};
}

#[inline(always)]
unsafe fn read<V: Lanes>(arg: &Arg, row: usize, index: usize) -> V {
    // SAFETY: the caller of the map vouches for every row and group.
    unsafe {
        let at = arg.at.add(row * arg.row);
        if arg.lanes { V::load(at.cast::<f32>().add(index * LANES)) } else { V::splat(*at.cast::<f32>()) }
    }
}

/// Rows and groups, as one row if operands and result are dense.
#[inline(always)]
fn extent(map: &Map, sizes: &[usize], dst: usize) -> (usize, usize) {
    let mut dense = map.dst_row == map.groups * LANES * dst;
    for (arg, size) in map.args.iter().zip(sizes) {
        dense &= if arg.lanes { arg.row == map.groups * LANES * size } else { arg.row == 0 };
    }
    if dense { (1, map.rows * map.groups) } else { (map.rows, map.groups) }
}

#[inline(always)]
unsafe fn two<V: Lanes, F: Function<V>>(map: &Map) {
    let (rows, groups) = extent(map, &[4, 4], 4);
    let [x, y, _] = map.args;
    macro_rules! run {
        ($x:expr, $y:expr) => {
            for r in 0..rows {
                let dst = map.dst.add(r * map.dst_row).cast::<f32>();
                let (x, y) = ($x, $y);
                for i in 0..groups {
                    F::call(read::<V>(&x, r, i), read::<V>(&y, r, i)).store(dst.add(i * LANES));
                }
            }
        };
    }
    // SAFETY: the caller of the map vouches for every row and group.
    unsafe {
        match (x.lanes, y.lanes) {
            (true, true) => run!(Arg { lanes: true, ..x }, Arg { lanes: true, ..y }),
            (true, false) => run!(Arg { lanes: true, ..x }, Arg { lanes: false, ..y }),
            (false, true) => run!(Arg { lanes: false, ..x }, Arg { lanes: true, ..y }),
            (false, false) => run!(Arg { lanes: false, ..x }, Arg { lanes: false, ..y }),
        }
    }
}

#[inline(always)]
unsafe fn one<V: Lanes, F: Function<V>>(map: &Map) {
    let (rows, groups) = extent(map, &[4], 4);
    for r in 0..rows {
        // SAFETY: the caller of the map vouches for every row and group.
        unsafe {
            let dst = map.dst.add(r * map.dst_row).cast::<f32>();
            for i in 0..groups {
                F::call(read::<V>(&map.args[0], r, i), V::splat(0.0)).store(dst.add(i * LANES));
            }
        }
    }
}

/// A function of one or two groups of lanes; a function of one ignores the second. It is a type because a closure that a loop
/// calls in several places is not inlined into the code that enables the instruction set.
pub trait Function<V> {
    unsafe fn call(a: V, b: V) -> V;
    /// The map that a fold applies to each lane first.
    #[inline(always)]
    unsafe fn operand(x: V) -> V {
        x
    }
}

macro_rules! simple {
    (@argument fold) => {
        Rows
    };
    (@argument $loop:ident) => {
        Map
    };
    ($name:ident, $loop:ident, |$a:ident| $body:expr) => {
        simple!($name, $loop, |$a, _b| $body);
    };
    ($name:ident, $loop:ident, |$a:ident, $b:ident| $body:expr) => {
        #[inline(always)]
unsafe fn $name<V: Lanes>(map: &simple!(@argument $loop)) {
            struct F;
            impl<V: Lanes> Function<V> for F {
                #[inline(always)]
                #[allow(unused_unsafe, reason = "some bodies only name an operand")]
                unsafe fn call($a: V, $b: V) -> V {
                    // SAFETY: the instruction set is present where the loop runs.
                    unsafe { $body }
                }
            }
            // SAFETY: operands are the caller's.
            unsafe { $loop::<V, F>(map) }
        }
    };
}

simple!(add, two, |a, b| a.add(b));
simple!(sub, two, |a, b| a.sub(b));
simple!(mul, two, |a, b| a.mul(b));
simple!(div, two, |a, b| a.div(b));
simple!(larger, two, |a, b| max_num(a, b));
simple!(copy, one, |a| a);
simple!(neg, one, |a| a.xor(0x8000_0000));
simple!(abs, one, |a| a.and(0x7fff_ffff));
simple!(rsqrt, one, |a| V::splat(1.0).div(a.sqrt()));
simple!(exp2, one, |a| exp2_lanes(a));
simple!(exp, one, |a| exp_lanes(a));
simple!(exp2_of_difference, two, |a, b| exp2_lanes(a.sub(b)));
simple!(exp_of_difference, two, |a, b| exp_lanes(a.sub(b)));
simple!(stored_f32, one, |a| V::choose(a.is_nan(), V::splat(f32::NAN), a));
simple!(to_int, one, |a| a.to_int());
simple!(int_at_most, two, |a, b| V::truth(a.int_at_most(b)));
simple!(int_less, two, |a, b| V::truth(a.int_less(b)));
simple!(int_greater, two, |a, b| V::truth(b.int_less(a)));
simple!(at_most, two, |a, b| V::truth(a.at_most(b)));

/// [`vosti_tile::numerics::max_num`].
#[inline(always)]
unsafe fn max_num<V: Lanes>(a: V, b: V) -> V {
    // SAFETY: the instruction set is present.
    unsafe { max_of_flushed(a.flush(), b.flush()) }
}

#[inline(always)]
unsafe fn max_of_flushed<V: Lanes>(a: V, b: V) -> V {
    // SAFETY: as above.
    unsafe { V::choose(b.is_nan(), a, a.greater_or(b)) }
}

#[inline(always)]
unsafe fn one_plus<V: Lanes>(f: V, polynomial: &[f32; 6]) -> V {
    // SAFETY: as above.
    unsafe {
        let mut p = V::splat(polynomial[5]);
        for c in polynomial[..5].iter().rev() {
            p = p.fma(f, V::splat(*c));
        }
        p.fma(f, V::splat(1.0))
    }
}

/// 1.5 * 2^23: added and subtracted, leaves the nearest integer of a small number.
const ROUND: f32 = 12_582_912.0;

#[inline(always)]
unsafe fn clamp<V: Lanes>(x: V, low: f32, high: f32) -> V {
    // SAFETY: as above. If x is NaN, both give x.
    unsafe { V::splat(low).greater_or(V::splat(high).less_or(x)) }
}

/// [`math::exp2`].
#[inline(always)]
unsafe fn exp2_lanes<V: Lanes>(x: V) -> V {
    // SAFETY: as above.
    unsafe {
        let x = clamp(x, -128.0, 129.0);
        let shifted = x.add(V::splat(ROUND));
        let whole = shifted.sub(V::splat(ROUND));
        one_plus(x.sub(whole), &math::EXP2).scale(whole)
    }
}

/// [`math::exp`].
#[inline(always)]
unsafe fn exp_lanes<V: Lanes>(x: V) -> V {
    // SAFETY: as above.
    unsafe {
        let x = clamp(x, -89.0, 90.0);
        let shifted = x.mul(V::splat(f32::from_bits(0x3fb8_aa3b))).add(V::splat(ROUND));
        let whole = shifted.sub(V::splat(ROUND));
        let r = whole.fma(V::splat(-f32::from_bits(0x3f31_8000)), x);
        let r = whole.fma(V::splat(-f32::from_bits(0xb95e_8083)), r);
        one_plus(r, &math::EXP).scale(whole)
    }
}

#[inline(always)]
unsafe fn widen<V: Lanes>(map: &Map) {
    let (rows, groups) = extent(map, &[2], 4);
    let x = map.args[0];
    for r in 0..rows {
        // SAFETY: the caller of the map vouches for every row and group.
        unsafe {
            let dst = map.dst.add(r * map.dst_row).cast::<f32>();
            let at = x.at.add(r * x.row).cast::<u16>();
            for i in 0..groups {
                let value = if x.lanes {
                    V::load_bf16(at.add(i * LANES))
                } else {
                    V::splat(vosti_tile::numerics::from_bf16(*at))
                };
                value.store(dst.add(i * LANES));
            }
        }
    }
}

#[inline(always)]
unsafe fn narrow<V: Lanes, const NATIVELY: bool>(map: &Map) {
    let (rows, groups) = extent(map, &[4], 2);
    for r in 0..rows {
        // SAFETY: as above.
        unsafe {
            let dst = map.dst.add(r * map.dst_row).cast::<u16>();
            for i in 0..groups {
                let (value, at) = (read::<V>(&map.args[0], r, i), dst.add(i * LANES));
                if NATIVELY { value.store_bf16_natively(at) } else { value.store_bf16(at) }
            }
        }
    }
}

#[inline(always)]
unsafe fn choose<V: Lanes>(map: &Map) {
    let (rows, groups) = extent(map, &[4, 4, 4], 4);
    let [c, a, b] = map.args;
    for r in 0..rows {
        // SAFETY: as above.
        unsafe {
            let dst = map.dst.add(r * map.dst_row).cast::<f32>();
            for i in 0..groups {
                let mask = read::<V>(&c, r, i).int_nonzero();
                V::choose(mask, read(&a, r, i), read(&b, r, i)).store(dst.add(i * LANES));
            }
        }
    }
}

/// [`vosti_tile::numerics::stored_bf16`].
#[inline(always)]
unsafe fn stored_bf16<V: Lanes>(map: &Map) {
    for r in 0..map.rows {
        // SAFETY: the caller of the map vouches for every row and group.
        unsafe {
            let dst = map.dst.add(r * map.dst_row).cast::<u16>();
            let src = map.args[0].at.add(r * map.args[0].row).cast::<u16>();
            for i in 0..map.groups {
                V::store_one_nan(src.add(i * LANES), dst.add(i * LANES));
            }
        }
    }
}

#[inline(always)]
unsafe fn copy16<V: Lanes>(map: &Map) {
    let (rows, groups) = extent(map, &[2], 2);
    let x = map.args[0];
    for r in 0..rows {
        // SAFETY: as above.
        unsafe {
            let dst = map.dst.add(r * map.dst_row).cast::<u16>();
            let src = x.at.add(r * x.row).cast::<u16>();
            for i in 0..groups {
                if x.lanes {
                    V::copy_bf16(src.add(i * LANES), dst.add(i * LANES));
                } else {
                    dst.cast::<[u16; LANES]>().add(i).write_unaligned([*src; LANES]);
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn fold<V: Lanes, F: Function<V>>(rows: &Rows) {
    for r in 0..rows.rows {
        // SAFETY: rows are whole groups of lanes, at least one.
        unsafe {
            let row = rows.src.add(r * rows.src_row).cast::<f32>();
            let mut lanes = F::operand(V::load(row));
            for i in 1..rows.length / LANES {
                lanes = F::call(lanes, F::operand(V::load(row.add(i * LANES))));
            }
            *rows.dst.cast::<f32>().add(r) = lanes.tree::<F>();
        }
    }
}

simple!(fold_add, fold, |a, b| a.add(b));

simple!(fold_int_add, fold, |a, b| a.int_add(b));

/// A fold of numbers whose denormals become zeros first.
macro_rules! flushed {
    ($name:ident, |$a:ident, $b:ident| $body:expr) => {
        #[inline(always)]
        unsafe fn $name<V: Lanes>(rows: &Rows) {
            struct F;
            impl<V: Lanes> Function<V> for F {
                #[inline(always)]
                unsafe fn call($a: V, $b: V) -> V {
                    // SAFETY: the instruction set is present where the loop runs.
                    unsafe { $body }
                }
                #[inline(always)]
                unsafe fn operand(x: V) -> V {
                    // SAFETY: as above.
                    unsafe { x.flush() }
                }
            }
            // SAFETY: operands are the caller's.
            unsafe { fold::<V, F>(rows) }
        }
    };
}

flushed!(fold_max, |a, b| max_of_flushed(a, b));
// `greater_or` gives b if one of them is NaN.
flushed!(fold_maximum, |a, b| V::choose(a.is_nan(), a, a.greater_or(b)));

/// The loop for a function of one FP32 tile.
pub fn unary(op: Unary, elem: Scalar) -> Option<SimdFns<MapFn>> {
    match (op, elem) {
        (Unary::Neg, Scalar::F32) => simd!(Map, neg),
        (Unary::Abs, Scalar::F32) => simd!(Map, abs),
        (Unary::Rsqrt, Scalar::F32) => simd!(Map, rsqrt),
        (Unary::Exp2, Scalar::F32) => simd!(Map, exp2),
        (Unary::Exp, Scalar::F32) => simd!(Map, exp),
        _ => None,
    }
}

/// The loop for a function of a difference.
pub fn of_difference(op: Unary) -> Option<SimdFns<MapFn>> {
    match op {
        Unary::Exp2 => simd!(Map, exp2_of_difference),
        Unary::Exp => simd!(Map, exp_of_difference),
        _ => None,
    }
}

/// The loop for a function of two FP32 tiles.
pub fn binary(op: Binary, elem: Scalar) -> Option<SimdFns<MapFn>> {
    match (op, elem) {
        (Binary::AddF, Scalar::F32) => simd!(Map, add),
        (Binary::SubF, Scalar::F32) => simd!(Map, sub),
        (Binary::MulF, Scalar::F32) => simd!(Map, mul),
        (Binary::DivF, Scalar::F32) => simd!(Map, div),
        (Binary::MaxNumF, Scalar::F32) => simd!(Map, larger),
        _ => None,
    }
}

pub fn cmp_int(op: CmpInt, elem: Scalar) -> Option<SimdFns<MapFn>> {
    match (op, elem) {
        (CmpInt::Sle, Scalar::I32) => simd!(Map, int_at_most),
        (CmpInt::Slt, Scalar::I32) => simd!(Map, int_less),
        (CmpInt::Sgt, Scalar::I32) => simd!(Map, int_greater),
        _ => None,
    }
}

pub fn cmp_float(op: CmpFloat, elem: Scalar) -> Option<SimdFns<MapFn>> {
    match (op, elem) {
        (CmpFloat::Ole, Scalar::F32) => simd!(Map, at_most),
        _ => None,
    }
}

pub fn cast(op: Cast, from: Scalar, to: Scalar) -> Option<SimdFns<MapFn>> {
    match (op, from, to) {
        (Cast::ExtF, Scalar::Bf16, Scalar::F32) => simd!(Map, widen),
        (Cast::FloatToIntS, Scalar::F32, Scalar::I32) => simd!(Map, to_int),
        (Cast::TruncF, Scalar::F32, Scalar::Bf16) => {
            #[inline(always)]
            unsafe fn plain<V: Lanes>(map: &Map) {
                // SAFETY: the caller's.
                unsafe { narrow::<V, false>(map) }
            }
            #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")]
            unsafe fn avx512_bf16(map: &Map) {
                // SAFETY: the caller's.
                unsafe { narrow::<Wide, true>(map) }
            }
            let mut versions: Option<SimdFns<MapFn>> = simd!(Map, plain);
            if let Some(versions) = &mut versions {
                versions.avx512_bf16 = avx512_bf16;
            }
            versions
        }
        _ => None,
    }
}

pub fn select(bytes: usize) -> Option<SimdFns<MapFn>> {
    if bytes == 4 { simd!(Map, choose) } else { None }
}

pub fn copies(bytes: usize) -> Option<SimdFns<MapFn>> {
    match bytes {
        2 => simd!(Map, copy16),
        4 => simd!(Map, copy),
        _ => None,
    }
}

/// The loop of a store: every NaN becomes the one NaN.
pub fn stored(bytes: usize) -> Option<SimdFns<MapFn>> {
    match bytes {
        2 => simd!(Map, stored_bf16),
        4 => simd!(Map, stored_f32),
        _ => None,
    }
}

/// The fold of rows of whole groups.
pub fn reduce(op: Binary, elem: Scalar) -> Option<SimdFns<ReduceFn>> {
    match (op, elem) {
        (Binary::AddF, Scalar::F32) => simd!(Rows, fold_add),
        (Binary::MaxNumF, Scalar::F32) => simd!(Rows, fold_max),
        (Binary::MaximumF, Scalar::F32) => simd!(Rows, fold_maximum),
        (Binary::Add, Scalar::I32) => simd!(Rows, fold_int_add),
        _ => None,
    }
}
