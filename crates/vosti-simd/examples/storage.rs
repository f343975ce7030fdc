//! How long a dot takes with weights kept in each form, against BF16, by rows and instructions.
//!
//!     cargo run --release -p vosti-simd --example storage -- [WIDTH] [ROUNDS] [FORM...]
//!
//! One thread passes over 64 Mi weights in panels of WIDTH columns, and over fewer if there are many rows. The forms take turns. A
//! form is BF16, 13 bits, a quantised format (with activations in BF16), or a format with `/16` or `/8`: products in integers, with
//! activations of so many bits. The example prints, of the best of ROUNDS passes of each form, products per nanosecond of the
//! thread's own CPU time, and in brackets the median over rounds of the form's rate as a multiple of the first form's. Other work on
//! the machine slows every form down, so compare the multiples.

use vosti_kernels::Quantised;
use vosti_kernels::quantised::FORMATS;
use vosti_simd::Isa;
use vosti_simd::micro::integers::{IntDot, Set};
use vosti_simd::micro::{Dot, Kernels, Stored, dot_stored, kernels};
use vosti_simd::storage::{Form, Packed, Panel, exponents};

const ROWS: [usize; 9] = [1, 2, 4, 5, 8, 16, 32, 64, 512];

/// Weights of a pass: more than caches hold if a pass waits for memory.
fn elements(rows: usize) -> usize {
    (64 << 20) / rows.next_power_of_two().clamp(8, 128) * 8
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |otherwise: usize| arguments.next().map_or(otherwise, |text| text.parse().expect("a number"));
    let (width, rounds) = (number(2048), number(5));
    let mut names: Vec<String> = arguments.collect();
    if names.is_empty() {
        names = vec!["BF16".into(), "13 bits".into()];
        for format in &FORMATS {
            names.extend(["", "/16", "/8"].map(|activations| format!("{}{activations}", format.name)));
        }
    }
    let forms: Vec<Measured> = names.iter().map(|name| Measured::new(width, name)).collect();
    let sets = [
        (Isa::Avx2, Set::Avx2),
        (Isa::Avx2, Set::AvxVnni),
        (Isa::Avx512, Set::Avx512Vnni),
        (Isa::Avx512Bf16, Set::Avx512Vnni),
        (Isa::Neon, Set::Neon),
    ];
    let there = |(isa, set): &(Isa, Set)| Isa::available().contains(isa) && Set::available().contains(set);
    for (isa, set) in sets.into_iter().filter(there) {
        let kernels = kernels(isa);
        println!("{isa:?}, integers by {}, width {width}\nrows {}", set.name(), names.join("  "));
        for rows in ROWS {
            let mut times = vec![vec![]; forms.len()];
            for _ in 0..rounds {
                for (form, times) in forms.iter().zip(&mut times) {
                    times.push(form.pass(&kernels, set, rows, width));
                }
            }
            let cells = times.iter().map(|own| {
                let best = own.iter().copied().fold(f64::INFINITY, f64::min);
                let mut ratios: Vec<f64> = times[0].iter().zip(own).map(|(first, own)| first / own).collect();
                ratios.sort_by(f64::total_cmp);
                format!("{:.1} ({:.2})", (elements(rows) * rows) as f64 / best * 1e-9, ratios[rounds / 2])
            });
            println!("{rows:4} {}", cells.collect::<Vec<_>>().join("  "));
        }
    }
}

/// A form of weights, and the activations that it is multiplied by.
struct Measured {
    panel: Packed,
    /// Bits of the activations, if they are integers.
    bits: Option<usize>,
    weights: Vec<u8>,
}

impl Measured {
    fn new(width: usize, name: &str) -> Self {
        let (form, bits) = match name.split_once('/') {
            Some((form, bits)) => (form, Some(bits.parse().expect("16 or 8"))),
            None => (name, None),
        };
        let panel = packed(width, form, bits.is_some());
        // Room to begin at a multiple of 64.
        let mut weights = Vec::<u8>::with_capacity(panel.bytes.len() * (elements(1) / 64 / width) + 64);
        weights.resize(weights.as_ptr().align_offset(64), 0);
        (0..elements(1) / 64 / width).for_each(|_| weights.extend(&panel.bytes));
        Self { panel, bits, weights }
    }

    /// Seconds of CPU time of this thread for a pass over all weights.
    fn pass(&self, kernels: &Kernels, set: Set, rows: usize, width: usize) -> f64 {
        let form = self.panel.form;
        let weights = &self.weights[self.weights.as_ptr().align_offset(64)..];
        let left: Vec<u16> = (0..rows * width).map(|i| (0x3f80 + i % 64) as u16).collect();
        let bytes: Vec<i8> = (0..rows * width).map(|i| (i * 37 % 255) as i8).collect();
        let (scales, sums) = (vec![0.01f32; rows * width / 32], vec![100i32; rows * width / 16]);
        let floats = vec![100f32; rows * width / 16];
        let (mut out, mut room) = (vec![0f32; rows * 64], vec![0u16; 64 * width]);
        let start = at_work();
        for panel in 0..elements(rows) / 64 / width {
            let at = weights[panel * self.panel.bytes.len()..].as_ptr();
            let panel = Panel { at, form };
            // SAFETY: operands of these sizes; the panel is of this form and there is room for it in BF16.
            unsafe {
                if let Form::Integers(format) = form {
                    set.dot()(&IntDot {
                        hi: bytes.as_ptr(),
                        lo: bytes.as_ptr(),
                        q_row: width,
                        sx: scales.as_ptr(),
                        sx_row: width / 32,
                        qsum: sums.as_ptr(),
                        sums: floats.as_ptr(),
                        qsum_row: width / 16,
                        panel,
                        first: 0,
                        blocks: width / 32,
                        c: out.as_mut_ptr(),
                        c_row: 64,
                        rows,
                        columns: 64,
                        accumulate: false,
                        halves: format.group == 16,
                        minima: format.minimum,
                        wide: self.bits == Some(16),
                    });
                    continue;
                }
                let dot = Dot {
                    a: left.as_ptr(),
                    a_row: width,
                    b: at.cast(),
                    b_step: 128,
                    c: out.as_mut_ptr(),
                    c_row: 64,
                    rows,
                    columns: 64,
                    steps: width / 2,
                    accumulate: false,
                };
                match form {
                    Form::Bf16 => (kernels.bf16)(&dot),
                    _ => dot_stored(kernels, &dot, &Stored { panel, step: 0, keep: room.as_mut_ptr() }),
                }
            }
        }
        std::hint::black_box(&out);
        at_work() - start
    }
}

/// A panel of a form.
fn packed(width: usize, name: &str, integers: bool) -> Packed {
    let numbers: Vec<u16> = (0..64 * width).map(|i| (0x3c00 + i % 512) as u16).collect();
    if name == "BF16" {
        return Packed::plain(&numbers);
    }
    if name == "13 bits" {
        let mut bytes = vec![0; exponents::panel_bytes(width)];
        let encode = kernels(Isa::detect()).encode.expect("an instruction set that writes 13 bits");
        assert!(encode(&numbers, &mut bytes));
        return Packed { form: Form::Exponents, bytes };
    }
    let format = FORMATS.iter().find(|format| format.name == name).expect("a format");
    let mut rows = Quantised::new(format, width);
    let count = |every: usize| 64 * width / every;
    rows.scales = vec![0x2000; count(format.chunk)];
    rows.codes = (0..count(1)).map(|i| (i * 7 % (1 << format.bits)) as u8).collect();
    let groups = if format.two_levels() { count(format.group) } else { 0 };
    rows.group_scales = vec![3; groups];
    if format.minimum {
        rows.minima = vec![0x2100; count(format.chunk)];
        rows.group_minima = vec![5; groups];
    }
    if integers { Packed::integers(&rows) } else { Packed::blocks(&rows) }
}

/// Seconds of CPU time that this thread has used.
fn at_work() -> f64 {
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    text.split(' ').next().and_then(|text| text.parse::<f64>().ok()).expect("a number") * 1e-9
}
