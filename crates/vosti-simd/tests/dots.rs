//! Every instruction set, row count and split of columns gives the bits of the definition.

mod common;

use vosti_simd::Isa;
use vosti_simd::micro::{Dot, DotFn, Stored, kernels};
use vosti_simd::storage::{Form, Packed, Panel, exponents};
use vosti_tile::numerics::FloatMode;

/// A small generator (xorshift) of BF16 values from denormal to large.
fn values(count: usize, seed: u64) -> Vec<u16> {
    let mut state = seed;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let exponent = |bits: u64| match bits % 16 {
        0 => 0,
        1 => 30,
        2 => 63,
        _ => 118 + bits / 16 % 12,
    };
    (0..count).map(|_| (next() as u16 & 0x807f) | ((exponent(next() >> 20) as u16) << 7)).collect()
}

#[allow(clippy::too_many_arguments, reason = "the shape of one call, spelled out")]
fn run<T: Copy>(
    f: DotFn<T>,
    a: &[T],
    b: &[T],
    c: &mut [f32],
    rows: usize,
    columns: usize,
    steps: usize,
    pair: usize,
    acc: bool,
) {
    assert!(a.len() >= rows * steps * pair && b.len() >= steps * columns * pair && c.len() >= rows * columns);
    let dot = Dot {
        a: a.as_ptr(),
        a_row: steps * pair,
        b: b.as_ptr(),
        b_step: columns * pair,
        c: c.as_mut_ptr(),
        c_row: columns,
        rows,
        columns,
        steps,
        accumulate: acc,
    };
    // SAFETY: bounds asserted above.
    unsafe { f(&dot) }
}

#[test]
fn a_sum_that_rounds_up_to_the_smallest_normal_number_is_kept() {
    let _mode = FloatMode::set();
    let (rows, columns, steps) = (5, 32, 3);
    let smallest = f32::MIN_POSITIVE;
    // A product, 2^-152, is far below half an ulp of the smallest normal number: every sum rounds back to it.
    let sign = |i: usize| if i.is_multiple_of(3) { 0x8000 } else { 0 };
    let a = vec![0x1980u16; rows * steps * 2];
    let b: Vec<u16> = (0..columns * steps * 2).map(|i| 0x1980 | sign(i / 2 % columns)).collect();
    let start: Vec<f32> =
        (0..rows * columns).map(|i: usize| if i.is_multiple_of(2) { smallest } else { -smallest }).collect();
    for isa in Isa::tried() {
        let mut got = start.clone();
        run(kernels(*isa).bf16, &a, &b, &mut got, rows, columns, steps, 2, true);
        assert_eq!(got, start, "{isa:?}");
        let wide = |x: &[u16]| x.iter().map(|x| f32::from_bits(u32::from(*x) << 16)).collect::<Vec<_>>();
        let mut got = start.clone();
        run(kernels(*isa).f32, &wide(&a), &wide(&b[..columns * steps]), &mut got, rows, columns, steps, 1, true);
        assert_eq!(got, start, "{isa:?} f32");
    }
}

#[test]
fn all_instruction_sets_and_row_counts_give_the_same_bits() {
    let _mode = FloatMode::set();
    let sets = Isa::tried();
    for (columns, steps) in [(64, 32), (16, 5), (48, 1), (160, 96)] {
        for rows in [1, 2, 3, 4, 5, 6, 7, 13] {
            let a = values(rows * steps * 2, 7 + rows as u64);
            let b = values(columns * steps * 2, 99);
            let start: Vec<f32> =
                values(rows * columns, 5).iter().map(|v| f32::from_bits(u32::from(*v) << 16)).collect();
            let af: Vec<f32> = a.iter().map(|v| f32::from_bits(u32::from(*v) << 16)).collect();
            let bf: Vec<f32> = b.iter().map(|v| f32::from_bits(u32::from(*v) << 16)).collect();
            for accumulate in [false, true] {
                let mut want = start.clone();
                run(kernels(Isa::Portable).bf16, &a, &b, &mut want, rows, columns, steps, 2, accumulate);
                let mut want32 = start.clone();
                run(kernels(Isa::Portable).f32, &af, &bf, &mut want32, rows, columns, steps * 2, 1, accumulate);
                let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                for isa in sets {
                    let kernels = kernels(*isa);
                    let mut got = start.clone();
                    run(kernels.bf16, &a, &b, &mut got, rows, columns, steps, 2, accumulate);
                    assert_eq!(bits(&got), bits(&want), "{isa:?} {rows}x{columns}x{steps}");
                    let mut got = start.clone();
                    run(kernels.f32, &af, &bf, &mut got, rows, columns, steps * 2, 1, accumulate);
                    assert_eq!(bits(&got), bits(&want32), "{isa:?} f32");
                    for r in 0..rows {
                        let mut alone = start[r * columns..(r + 1) * columns].to_vec();
                        run(kernels.bf16, &a[r * steps * 2..], &b, &mut alone, 1, columns, steps, 2, accumulate);
                        assert_eq!(bits(&alone), bits(&want[r * columns..(r + 1) * columns]), "{isa:?} row {r}");
                    }
                }
            }
        }
    }
}

/// Checks every dot with a stored panel, and the elements that it stores, against the same panel in BF16.
fn check_stored(isa: Isa, stored: Panel, panel: &[u16], steps: usize, first: usize) {
    let (definition, kernels) = (kernels(Isa::Portable).bf16, kernels(isa));
    let name = format!("{isa:?} {:?}", stored.form);
    for rows in [1, 2, 4, 6, 7, 13, 24, 25] {
        let a = values(rows * steps * 2, 3 + rows as u64);
        for columns in [16, 48, 64] {
            for (accumulate, keeps) in [(false, false), (true, false), (false, rows == (kernels.leave)(stored.form))] {
                let start: Vec<f32> = (0..rows * columns).map(|i| i as f32 - 7.5).collect();
                let (mut want, mut got) = (start.clone(), start);
                let mut kept = vec![0u16; if keeps { panel.len() } else { 0 }];
                let keep = if keeps { kept.as_mut_ptr() } else { std::ptr::null_mut() };
                let dot = |b: *const u16, c: &mut [f32]| Dot {
                    a: a.as_ptr(),
                    a_row: steps * 2,
                    b,
                    b_step: 128,
                    c: c.as_mut_ptr(),
                    c_row: columns,
                    rows,
                    columns,
                    steps,
                    accumulate,
                };
                // SAFETY: as many rows, steps and columns as the operands have.
                unsafe {
                    definition(&dot(panel.as_ptr(), &mut want));
                    (kernels.stored)(&dot(std::ptr::null(), &mut got), &Stored { panel: stored, step: first, keep });
                }
                let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&got), bits(&want), "{name} {rows}x{columns} {accumulate}");
                assert!(!keeps || kept == panel, "{name}: what is left behind");
            }
        }
    }
}

#[test]
fn a_panel_in_13_bits_gives_the_bits_of_the_panel() {
    let _mode = FloatMode::set();
    let steps = 37;
    // Zeros, denormals and 30 exponents.
    let panel: Vec<u16> = values(steps * 128, 11)
        .into_iter()
        .enumerate()
        .map(|(i, bits)| if bits & 0x7f80 == 0 { bits } else { bits & 0x807f | (100 + i as u16 % 30) << 7 })
        .collect();
    let mut code = vec![0; exponents::panel_bytes(2 * steps)];
    assert!(exponents::encode(&panel, &mut code));
    for isa in Isa::tried() {
        check_stored(*isa, Panel { at: code.as_ptr(), form: Form::Exponents }, &panel, steps, 0);
        let Some(encode) = kernels(*isa).encode else { continue };
        let mut got = vec![0; code.len()];
        assert!(encode(&panel, &mut got));
        assert_eq!(got, code);
        for other in (0..256).map(|exponent| exponent << 7 | 5) {
            let mut panel = panel.clone();
            panel[333] = other;
            let (mut got, mut want) = (code.clone(), code.clone());
            assert_eq!(encode(&panel, &mut got), exponents::encode(&panel, &mut want), "{other:x}");
            assert_eq!(got, want, "{other:x}");
        }
    }
}

#[test]
fn a_panel_of_any_format_gives_the_bits_of_its_expansion() {
    let _mode = FloatMode::set();
    let sets = Isa::tried();
    for format in &vosti_kernels::quantised::FORMATS {
        let (columns, steps) = (768, 768 / 2);
        let source = common::random(format, 64, columns, 9);
        let mut panel = vec![0; 64 * columns];
        for (i, element) in panel.iter_mut().enumerate() {
            *element = common::value(&source, i % 128 / 2, i / 128 * 2 + i % 2);
        }
        // Aligned as in a weight.
        let bytes = Packed::blocks(&source).bytes;
        let mut room = vec![0u8; bytes.len() + 64];
        let at = room.as_ptr().align_offset(64);
        room[at..][..bytes.len()].copy_from_slice(&bytes);
        let stored = Panel { at: room[at..].as_ptr(), form: Form::Blocks(format) };
        for isa in sets {
            check_stored(*isa, stored, &panel, steps, 0);
            // From the middle of a chunk on.
            check_stored(*isa, stored, &panel[48 * 128..][..64 * 128], 64, 48);
        }
    }
}
