//! Vector loops over tiles in scratch memory, compiled once per instruction set.
//!
//! A tile's rows are padded to whole groups of 16 lanes, so there is no tail: vector body and tail are one routine. The
//! contents of padding lanes are never observed. The scalar functions are those of [`vosti_tile::numerics`], repeated over
//! lanes.
//! Read next: [`ops`].

#[cfg(target_arch = "x86_64")]
mod lanes;
pub mod ops;
pub mod reduce;
#[cfg(target_arch = "x86_64")]
mod simd;

use crate::Isa;

/// Lanes per group.
pub const LANES: usize = 16;

/// An operand of a map: the address of its first lane, and its strides.
#[derive(Clone, Copy, Debug)]
pub struct Arg {
    /// The first lane's first byte.
    pub at: *const u8,
    /// Bytes from one row to the next; 0 if all rows read the same.
    pub row: usize,
    /// True if it has a lane per column; false if a row has one value.
    pub lanes: bool,
}

/// `dst[r][j] = f(args[0][r][j], ..)` over `rows` rows of `groups` groups of lanes.
#[derive(Clone, Copy, Debug)]
pub struct Map {
    /// The first lane of the first result row.
    pub dst: *mut u8,
    /// Bytes from one result row to the next.
    pub dst_row: usize,
    /// The operands. A function of fewer operands ignores the last ones.
    pub args: [Arg; 3],
    /// Rows of the result.
    pub rows: usize,
    /// Groups of lanes in a row.
    pub groups: usize,
}

/// # Safety
/// For every row and group the operands' lanes are readable and the destination's writable by this thread
/// only; an operand overlaps the destination only if it starts there with the same stride and element size.
/// The instruction set is present.
pub type MapFn = unsafe fn(&Map);

/// One function per instruction set.
#[derive(Clone, Copy)]
pub struct Versions<F> {
    /// For every machine.
    pub portable: F,
    /// For AVX2 with FMA.
    pub avx2: F,
    /// For AVX-512.
    pub avx512: F,
    /// For AVX-512 with BF16.
    pub avx512_bf16: F,
}

impl<F: Copy> Versions<F> {
    /// Replaces the compiler's loops by hand-written ones, if there are any.
    #[cfg(target_arch = "x86_64")]
    fn with(self, simd: Option<simd::SimdFns<F>>) -> Self {
        match simd {
            Some(simd::SimdFns { avx2, avx512, avx512_bf16 }) => {
                Self { portable: self.portable, avx2, avx512, avx512_bf16 }
            }
            None => self,
        }
    }

    /// The version for `isa`.
    pub fn of(&self, isa: Isa) -> F {
        match isa {
            Isa::Portable | Isa::Neon => self.portable,
            Isa::Avx2 => self.avx2,
            Isa::Avx512 => self.avx512,
            Isa::Avx512Bf16 => self.avx512_bf16,
        }
    }
}

/// Builds `body` for every machine and for 256 bits.
macro_rules! versions {
    ($argument:ty, $body:expr) => {{
        #[inline(always)]
        unsafe fn portable(argument: &$argument) {
            // SAFETY: the caller's promises are passed on.
            unsafe { $body(argument) }
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma")]
        unsafe fn avx2(argument: &$argument) {
            // SAFETY: as above.
            unsafe { portable(argument) }
        }
        #[cfg(not(target_arch = "x86_64"))]
        use portable as avx2;
        // Loops in which time is spent are hand-written for 512 bits; the others do not pay for more code.
        $crate::vector::Versions { portable, avx2, avx512: avx2, avx512_bf16: avx2 }
    }};
}
pub(crate) use versions;

type Group<T> = [T; LANES];

#[inline(always)]
unsafe fn group<T: Copy>(arg: &Arg, row: usize, index: usize) -> Group<T> {
    // SAFETY: the caller of the map vouches for every row and group.
    unsafe {
        let at = arg.at.add(row * arg.row);
        if arg.lanes {
            at.cast::<Group<T>>().add(index).read_unaligned()
        } else {
            [at.cast::<T>().read_unaligned(); LANES]
        }
    }
}

#[inline(always)]
unsafe fn put<T: Copy>(map: &Map, row: usize, index: usize, value: Group<T>) {
    // SAFETY: as in `group`.
    unsafe { map.dst.add(row * map.dst_row).cast::<Group<T>>().add(index).write_unaligned(value) }
}

/// Rows and groups of a map: one long row if all lane operands and the destination are dense.
#[inline(always)]
fn flatten<D, const N: usize>(map: &Map, sizes: [usize; N]) -> (usize, usize) {
    let mut dense = map.dst_row == map.groups * LANES * size_of::<D>();
    for (arg, size) in map.args.iter().zip(sizes) {
        dense &= if arg.lanes { arg.row == map.groups * LANES * size } else { arg.row == 0 };
    }
    if dense { (1, map.rows * map.groups) } else { (map.rows, map.groups) }
}

/// # Safety
/// See [`MapFn`].
#[inline(always)]
pub unsafe fn map1<A: Copy, D: Copy + Default>(map: &Map, f: impl Fn(A) -> D + Copy) {
    let (rows, groups) = flatten::<D, 1>(map, [size_of::<A>()]);
    for r in 0..rows {
        for i in 0..groups {
            // SAFETY: in range.
            unsafe {
                let a = group::<A>(&map.args[0], r, i);
                let mut d = [D::default(); LANES];
                for l in 0..LANES {
                    d[l] = f(a[l]);
                }
                put(map, r, i, d);
            }
        }
    }
}

/// # Safety
/// See [`MapFn`].
#[inline(always)]
pub unsafe fn map2<A: Copy, B: Copy, D: Copy + Default>(map: &Map, f: impl Fn(A, B) -> D + Copy) {
    let (rows, groups) = flatten::<D, 2>(map, [size_of::<A>(), size_of::<B>()]);
    let [x, y, _] = map.args;
    macro_rules! run {
        ($x:expr, $y:expr) => {
            for r in 0..rows {
                let (x, y) = ($x, $y);
                for i in 0..groups {
                    // SAFETY: in range.
                    unsafe {
                        let (a, b) = (group::<A>(&x, r, i), group::<B>(&y, r, i));
                        let mut d = [D::default(); LANES];
                        for l in 0..LANES {
                            d[l] = f(a[l], b[l]);
                        }
                        put(map, r, i, d);
                    }
                }
            }
        };
    }
    // One loop for each form of repetition, so that the compiler vectorises each.
    match (x.lanes, y.lanes) {
        (true, true) => run!(Arg { lanes: true, ..x }, Arg { lanes: true, ..y }),
        (true, false) => run!(Arg { lanes: true, ..x }, Arg { lanes: false, ..y }),
        (false, true) => run!(Arg { lanes: false, ..x }, Arg { lanes: true, ..y }),
        (false, false) => run!(Arg { lanes: false, ..x }, Arg { lanes: false, ..y }),
    }
}

/// # Safety
/// See [`MapFn`].
#[inline(always)]
pub unsafe fn map3<A: Copy, B: Copy, C: Copy, D: Copy + Default>(map: &Map, f: impl Fn(A, B, C) -> D + Copy) {
    let (rows, groups) = flatten::<D, 3>(map, [size_of::<A>(), size_of::<B>(), size_of::<C>()]);
    for r in 0..rows {
        for i in 0..groups {
            // SAFETY: in range.
            unsafe {
                let a = group::<A>(&map.args[0], r, i);
                let b = group::<B>(&map.args[1], r, i);
                let c = group::<C>(&map.args[2], r, i);
                let mut d = [D::default(); LANES];
                for l in 0..LANES {
                    d[l] = f(a[l], b[l], c[l]);
                }
                put(map, r, i, d);
            }
        }
    }
}
