//! Tests that every processor computes the same: a recorded digest of dot products, exponentials and casts on fixed inputs.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use vosti_tile::numerics::{FloatMode, NAN_F32};
use vosti_tile::{Binary, Cast, Scalar, Unary};

use vosti_simd::Isa;
use vosti_simd::micro::{self, Dot};
use vosti_simd::vector::reduce::Rows;
use vosti_simd::vector::{Arg, Map, MapFn, ops, reduce};

/// Fixed inputs, with denormals, zeros and large values among them.
fn inputs(count: usize, seed: u64) -> Vec<f32> {
    let mut random = SplitMix64::seed_from_u64(seed);
    let value = |bits: u64| {
        let exponent = match bits >> 58 {
            0 => 0,
            1 => 60,
            _ => 120 + (bits >> 40) % 12,
        };
        f32::from_bits((bits as u32 & 0x807f_ffff) | (exponent as u32) << 23)
    };
    (0..count).map(|_| value(random.next_u64())).collect()
}

fn map(f: MapFn, a: &[f32], b: &[f32], bytes: usize) -> Vec<u8> {
    assert!(a.len() == b.len() && a.len().is_multiple_of(16));
    let mut dst = vec![0u8; a.len() * bytes];
    let arg = |x: &[f32]| Arg { at: x.as_ptr().cast(), row: x.len() * 4, lanes: true };
    let args = [arg(a), arg(b), arg(b)];
    let map = Map { dst: dst.as_mut_ptr(), dst_row: dst.len(), args, rows: 1, groups: a.len() / 16 };
    // SAFETY: operands and result have as many whole groups; the function is of an available instruction set.
    unsafe { f(&map) };
    dst
}

/// The digest for an instruction set, which the machine must have. Every instruction set gives the same digest.
fn digest(isa: Isa) -> [u8; 32] {
    FloatMode::with(|| {
        let mut hasher = blake3::Hasher::new();
        let (a, b) = (inputs(1024, 1), inputs(1024, 2));
        let maps = [
            ops::unary(Unary::Exp, Scalar::F32).map(|f| (f, 4)),
            ops::unary(Unary::Exp2, Scalar::F32).map(|f| (f, 4)),
            ops::unary(Unary::Rsqrt, Scalar::F32).map(|f| (f, 4)),
            ops::unary(Unary::Sin, Scalar::F32).map(|f| (f, 4)),
            ops::binary(Binary::DivF, Scalar::F32).map(|f| (f, 4)),
            ops::binary(Binary::MaxNumF, Scalar::F32).map(|f| (f, 4)),
            ops::cast(Cast::TruncF, Scalar::F32, Scalar::Bf16).map(|f| (f, 2)),
        ];
        for (f, bytes) in maps.into_iter().flatten() {
            let mut out = map(f.of(isa), &a, &b, bytes);
            if bytes == 4 {
                for lane in out.chunks_exact_mut(4) {
                    if f32::from_le_bytes([lane[0], lane[1], lane[2], lane[3]]).is_nan() {
                        lane.copy_from_slice(&NAN_F32.to_le_bytes());
                    }
                }
            }
            hasher.update(&out);
        }
        let mut sums = [0f32; 8];
        if let Some(f) = reduce::of(Binary::AddF, Scalar::F32, 128) {
            let rows =
                Rows { dst: sums.as_mut_ptr().cast(), src: a.as_ptr().cast(), src_row: 512, rows: 8, length: 128 };
            // SAFETY: eight rows of 128 values, eight results.
            unsafe { f.of(isa)(&rows) };
        }
        sums.iter().for_each(|x| _ = hasher.update(&x.to_bits().to_le_bytes()));
        let narrow = |x: &[f32]| -> Vec<u16> { x.iter().map(|x| vosti_tile::numerics::to_bf16(*x)).collect() };
        let (left, right) = (narrow(&inputs(7 * 64, 3)), narrow(&inputs(64 * 64, 4)));
        let mut c = vec![0f32; 7 * 64];
        let dot = Dot {
            a: left.as_ptr(),
            a_row: 64,
            b: right.as_ptr(),
            b_step: 128,
            c: c.as_mut_ptr(),
            c_row: 64,
            rows: 7,
            columns: 64,
            steps: 32,
            accumulate: false,
        };
        // SAFETY: 7 rows of 64, 32 steps of 64 columns in pairs, 7 rows of 64 results.
        unsafe { (micro::kernels(isa).bf16)(&dot) };
        c.iter().for_each(|x| _ = hasher.update(&x.to_bits().to_le_bytes()));
        *hasher.finalize().as_bytes()
    })
}

/// The recorded digest changes if a definition changes. No processor may change it.
#[test]
fn every_instruction_set_of_every_processor_has_the_recorded_digest() {
    for isa in Isa::tried() {
        let digest = blake3::Hash::from(digest(*isa)).to_hex();
        assert_eq!(digest.as_str(), "45ecd5db40a2bfaa6f5b33bfab9396025976d4a04682a057499306722001748c", "{isa:?}");
    }
}
