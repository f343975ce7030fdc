//! Every instruction set, row count and split of columns gives the bits of the definition.

use super::*;
use crate::coded;
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
fn all_instruction_sets_and_row_counts_give_the_same_bits() {
    let _mode = FloatMode::set();
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
                run(portable::bf16, &a, &b, &mut want, rows, columns, steps, 2, accumulate);
                let mut want32 = start.clone();
                run(portable::f32, &af, &bf, &mut want32, rows, columns, steps * 2, 1, accumulate);
                let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                for isa in Isa::available() {
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

#[test]
fn a_panel_in_code_gives_the_bits_of_the_panel() {
    let _mode = FloatMode::set();
    let steps = 37;
    // Zeros, denormals and 30 exponents.
    let panel: Vec<u16> = values(steps * 128, 11)
        .into_iter()
        .enumerate()
        .map(|(i, bits)| if bits & 0x7f80 == 0 { bits } else { bits & 0x807f | (100 + i as u16 % 30) << 7 })
        .collect();
    let mut code = vec![0; coded::panel_bytes(2 * steps)];
    for isa in Isa::available() {
        let Some(fns) = kernels(*isa).coded else { continue };
        assert!((fns.encode)(&panel, &mut code));
        let mut want = vec![0; code.len()];
        assert!(coded::tests::encode(&panel, &mut want));
        assert_eq!(code, want);
        for other in (0..256).map(|exponent| exponent << 7 | 5) {
            let mut panel = panel.clone();
            panel[333] = other;
            let (mut got, mut want) = (code.clone(), code.clone());
            assert_eq!((fns.encode)(&panel, &mut got), coded::tests::encode(&panel, &mut want), "{other:x}");
            assert_eq!(got, want, "{other:x}");
        }
        let (table, at) = (code.as_ptr(), code[coded::TABLE..].as_ptr());
        let mut decoded = vec![0; panel.len()];
        // SAFETY: the panel's steps and as much room.
        unsafe { (fns.expand)(at, table, steps, decoded.as_mut_ptr()) };
        assert_eq!(decoded, panel);
        for rows in [1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 20] {
            let a = values(rows * steps * 2, 3 + rows as u64);
            for columns in [16, 32, 48, 64] {
                for accumulate in [false, true] {
                    let start: Vec<f32> = (0..rows * columns).map(|i| i as f32 - 7.5).collect();
                    let (mut want, mut got) = (start.clone(), start);
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
                        portable::bf16(&dot(panel.as_ptr(), &mut want));
                        (fns.dot)(&dot(at.cast(), &mut got), table);
                    }
                    let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                    assert_eq!(bits(&got), bits(&want), "{isa:?} {rows}x{columns} {accumulate}");
                }
            }
        }
    }
}
