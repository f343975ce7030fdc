//! What a layout or a stored form holds is what was put there.

mod common;

use common::{random, value};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use vosti_kernels::quantised::FORMATS;
use vosti_simd::layout::{Layout, PANEL};
use vosti_simd::storage::blocks::Shape;
use vosti_simd::storage::exponents::{encode, panel_bytes};
use vosti_simd::storage::{self, Form, Packed, Writer, bytes_max, integers, panel};

#[test]
fn every_layout_is_a_bijection_and_packing_follows_it() {
    let shapes = [(64, 16), (130, 8), (1, 2), (63, 64), (70, 128), (3, 80), (65, 7), (2, 1), (190, 33), (129, 72)];
    for (rows, row_len) in shapes {
        let len = rows * row_len;
        for layout in [
            Layout::RowMajor,
            Layout::RowPanels { row_len, pair: 2, cut: 0 },
            Layout::RowPanels { row_len, pair: 2, cut: rows.div_ceil(2) },
            Layout::RowPanels { row_len, pair: 2, cut: 3 },
            Layout::RowPanels { row_len, pair: 1, cut: 0 },
            Layout::RowPanels { row_len, pair: 1, cut: 70 },
            Layout::RowPairs { row_len, pair: 2 },
            Layout::RowPairs { row_len, pair: 1 },
        ] {
            assert!(layout.accepts(len));
            let source: Vec<u32> = (1..=len as u32).collect();
            let mut target = vec![0; layout.footprint(len)];
            // In two parts, as a large weight is read.
            let (head, tail) = source.split_at(rows / 3 * row_len);
            layout.pack(head.len(), tail, &mut target);
            layout.pack(0, head, &mut target);
            for (i, value) in source.iter().enumerate() {
                assert_eq!(target[layout.position(i)], *value, "{layout:?} {i}");
            }
            assert_eq!(target.iter().filter(|v| **v != 0).count(), len);
            if let Layout::RowPanels { .. } = layout {
                let all: Vec<usize> =
                    (0..layout.panels(rows)).flat_map(|panel| layout.panel_rows(panel, rows)).collect();
                assert_eq!(all, (0..rows).collect::<Vec<_>>(), "{layout:?}");
            }
        }
    }
}

/// Numbers with exponents `low..=high`, and zeros and denormals of both signs.
fn numbers(count: usize, low: u16, high: u16) -> Vec<u16> {
    let mut random = SplitMix64::seed_from_u64(7);
    let mut number = || {
        let bits = random.next_u64();
        let exponent = if bits >> 60 == 0 { 0 } else { low + (bits >> 32) as u16 % (high - low + 1) };
        bits as u16 & 0x807f | exponent << 7
    };
    (0..count).map(|_| number()).collect()
}

#[test]
fn every_element_comes_back_and_a_panel_with_more_exponents_stays() {
    for (rows, row_len) in [(64, 2), (130, 16), (1, 4), (64, 70), (130, 7)] {
        for (low, high) in [(100, 129), (1, 20), (1, 30), (226, 255), (128, 128)] {
            let mut source = numbers(rows * row_len, low, high);
            if rows > 2 * PANEL {
                // The second of several panels has one exponent too many.
                source[70 * row_len] = if low > 100 { 2 << 7 } else { 200 << 7 };
            }
            let order = Layout::RowPanels { row_len, pair: 2, cut: 0 };
            let mut panels = vec![0; order.footprint(source.len())];
            order.pack(0, &source, &mut panels);
            let count = rows.div_ceil(PANEL);
            let mut stored = vec![0u64; bytes_max(count, row_len).div_ceil(8)];
            // SAFETY: as many bytes.
            let out = unsafe { std::slice::from_raw_parts_mut(stored.as_mut_ptr().cast::<u8>(), 8 * stored.len()) };
            let writer = Writer::new(count, out);
            // In any order.
            for (i, panel) in panels.chunks(PANEL * row_len.next_multiple_of(2)).enumerate().rev() {
                let mut bytes = vec![0; panel_bytes(row_len)];
                let coded = encode(panel, &mut bytes);
                let packed = if coded { Packed { form: Form::Exponents, bytes } } else { Packed::plain(panel) };
                writer.put(i, &packed);
            }
            let base = stored.as_ptr().cast();
            // SAFETY: it has the panel.
            let coded = (0..count).filter(|number| unsafe { panel(base, *number).form } == Form::Exponents);
            assert_eq!(coded.count(), if rows > 2 * PANEL { count - 1 } else { count });
            for (i, bits) in source.iter().enumerate() {
                // SAFETY: it has the element.
                assert_eq!(
                    unsafe { storage::element_of_row(base, i / row_len, i % row_len) },
                    *bits,
                    "{rows}x{row_len} {i}"
                );
            }
        }
    }
}

#[test]
fn a_panel_with_more_exponents_has_no_code() {
    let mut out = vec![0; panel_bytes(2)];
    assert!(encode(&[100 << 7; 2 * PANEL], &mut out));
    // 100 and 101 share an entry of the table. 28 more exponents fit above them, or below.
    for (other, has) in [(130, false), (129, true), (72, true), (71, false), (1, true), (0, true)] {
        let mut panel = [100 << 7; 2 * PANEL];
        panel[5] = other << 7 | 3;
        assert_eq!(encode(&panel, &mut out), has, "{other}");
    }
}

#[test]
fn every_element_of_every_format_comes_back() {
    for format in &FORMATS {
        for rows in [64, 3] {
            let source = random(format, rows, 512, 5);
            let shape = Shape::of(format);
            let mut panel = vec![0; shape.panel_bytes(512)];
            shape.pack(&source, &mut panel);
            for row in 0..PANEL {
                for k in 0..512 {
                    // SAFETY: the panel has the element.
                    let got = unsafe { shape.element(panel.as_ptr(), row, k) };
                    let want = if row < rows { value(&source, row, k) } else { 0 };
                    assert_eq!(got, want, "{} {row} {k}", format.name);
                }
            }
        }
    }
}

#[test]
fn a_panel_is_hardly_larger_than_the_files_blocks() {
    let file_bits = [8.5, 4.5, 5.0, 5.5, 6.0, 2.625, 3.4375, 4.5, 5.5, 6.5625, 4.5, 4.25, 4.25];
    for (format, file) in FORMATS.iter().zip(file_bits) {
        let bits = Shape::of(format).panel_bytes(1024) as f64 * 8.0 / (64.0 * 1024.0);
        // Two bytes in place of twice four bits, and FP16 in place of a byte.
        let most = if format.name == "Q2_K" { 1.2 } else { 1.06 };
        assert!(bits / file <= most, "{}: {bits} of {file}", format.name);
    }
}

#[test]
fn every_element_of_every_format_comes_back_for_products_in_integers() {
    for format in &FORMATS {
        for rows in [64, 3] {
            let source = random(format, rows, 512, 5);
            let mut panel = vec![0; Shape::of(format).panel_bytes(512)];
            integers::pack(&source, &mut panel);
            for (row, k) in (0..PANEL).flat_map(|row| (0..512).map(move |k| (row, k))) {
                // SAFETY: the panel has the element.
                let got = unsafe { integers::element(format, panel.as_ptr(), row, k) };
                if row >= rows {
                    assert_eq!((got.scale, got.minimum, got.bf16()), (0.0, 0.0, 0), "{} {row} {k}", format.name);
                    continue;
                }
                let code = source.codes[row * 512 + k];
                assert_eq!(f32::from(got.value), format.value(code), "{} {row} {k}", format.name);
                assert_eq!(got.bf16(), value(&source, row, k), "{} {row} {k}", format.name);
            }
        }
    }
}

#[test]
fn every_number_of_a_code_fits_a_byte_with_and_without_its_offset() {
    for format in &FORMATS {
        for code in 0..=((1u16 << format.bits) - 1) as u8 {
            assert_eq!(f32::from(integers::value(format, code)), format.value(code), "{}", format.name);
            let shifted = i32::from(integers::value(format, code)) + integers::offset(format);
            assert!((0..256).contains(&shifted), "{}: {shifted}", format.name);
        }
    }
}
