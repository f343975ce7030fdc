//! The hand-written loops against the definitions that they repeat, on bit patterns of every kind. Run these with `--release`
//! too: an optimising compiler may remove an operation that it takes for a no-operation.

use vosti_tile::numerics::{self, FloatMode, math};
use vosti_tile::{Binary, Cast, Scalar, Unary};

use vosti_simd::Isa;
use vosti_simd::vector::{Arg, LANES, Map, MapFn, Versions, ops};

/// The distance between tested bit patterns. It is odd, so that a walk meets every exponent and no pattern twice.
const STRIDE: u32 = 9973;

/// Calls `check` with groups of bit patterns, the same in reverse with the other sign, and the result of each instruction set.
fn on_every_isa(f: Versions<MapFn>, bytes: usize, check: impl Fn(f32, f32, &[u8]) -> bool) {
    for isa in Isa::tried() {
        FloatMode::with(|| {
            for first in (0..u32::MAX).step_by(STRIDE as usize * LANES) {
                let pattern = |i: usize| f32::from_bits(first.wrapping_add(i as u32 * STRIDE));
                let x: [f32; LANES] = std::array::from_fn(pattern);
                let y: [f32; LANES] = std::array::from_fn(|i| numerics::neg(pattern(LANES - 1 - i)));
                let mut z = [0u8; 4 * LANES];
                let arg = |x: &[f32; LANES]| Arg { at: x.as_ptr().cast(), row: 64, lanes: true };
                let args = [arg(&x), arg(&y), arg(&y)];
                let map = Map { dst: z.as_mut_ptr(), dst_row: 64, args, rows: 1, groups: 1 };
                // SAFETY: one row of one group each, of an instruction set that is available.
                unsafe { f.of(*isa)(&map) };
                for i in 0..LANES {
                    let z = &z[i * bytes..][..bytes];
                    assert!(check(x[i], y[i], z), "{isa:?}: of {:08x} and {:08x}", x[i].to_bits(), y[i].to_bits());
                }
            }
        });
    }
}

fn is(want: f32, z: &[u8]) -> bool {
    let got = u32::from_le_bytes([z[0], z[1], z[2], z[3]]);
    want.to_bits() == got || want.is_nan() && f32::from_bits(got).is_nan()
}

#[test]
fn exponentials_are_their_definitions_on_every_isa() {
    for (unary, definition) in [(Unary::Exp2, math::exp2 as fn(f32) -> f32), (Unary::Exp, math::exp)] {
        let f = ops::unary(unary, Scalar::F32).expect("an operation on FP32");
        on_every_isa(f, 4, |x, _, z| is(definition(x), z));
    }
}

#[test]
fn maxima_flush_denormals_on_every_isa() {
    let f = ops::binary(Binary::MaxNumF, Scalar::F32).expect("an operation on FP32");
    on_every_isa(f, 4, |x, y, z| is(numerics::max_num(x, y), z));
}

#[test]
fn narrowing_flushes_denormals_on_every_isa() {
    let f = ops::cast(Cast::TruncF, Scalar::F32, Scalar::Bf16).expect("a cast to BF16");
    on_every_isa(f, 2, |x, _, z| {
        let got = numerics::from_bf16(u16::from_le_bytes([z[0], z[1]]));
        let want = numerics::from_bf16(numerics::to_bf16(x));
        want.to_bits() == got.to_bits() || want.is_nan() && got.is_nan()
    });
}

#[test]
fn casts_to_integers_go_towards_zero_and_saturate_on_every_isa() {
    let f = ops::cast(Cast::FloatToIntS, Scalar::F32, Scalar::I32).expect("a cast to an integer");
    let holds = |x: f32, z: &[u8]| i32::from_le_bytes([z[0], z[1], z[2], z[3]]) == x as i32;
    on_every_isa(f, 4, |x, _, z| holds(x, z));
    let ends = [2_147_483_648.0, 2_147_483_520.0, 0.999_999_94, 1.5, 1e-40, 0.0, f32::INFINITY, f32::NAN];
    let x: [f32; LANES] = std::array::from_fn(|i| if i % 2 == 0 { ends[i / 2] } else { -ends[i / 2] });
    for isa in Isa::tried() {
        let mut z = [0u8; 4 * LANES];
        let arg = Arg { at: x.as_ptr().cast(), row: 64, lanes: true };
        let map = Map { dst: z.as_mut_ptr(), dst_row: 64, args: [arg; 3], rows: 1, groups: 1 };
        // SAFETY: one row of one group, of an instruction set that is available.
        FloatMode::with(|| unsafe { f.of(*isa)(&map) });
        for (x, z) in x.iter().zip(z.chunks_exact(4)) {
            assert!(holds(*x, z), "{isa:?}: {x} became {z:?}");
        }
    }
}
