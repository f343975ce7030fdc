//! How long a dot takes with weights kept in each form, against BF16, by rows and instruction set.
//!
//!     cargo run --release -p vosti-cpu --example storage -- [WIDTH] [ROUNDS] [FORM...]
//!
//! One thread passes over 32 Mi weights in panels of WIDTH columns. The forms take turns, and the best of ROUNDS passes of
//! each form counts, in the thread's own CPU time. The example prints elements per nanosecond for BF16, and each form's rate
//! as a multiple of it.

use vosti_cpu::isa::Isa;
use vosti_cpu::micro::{Dot, Kernels, Stored, dot_stored, kernels};
use vosti_cpu::storage::{Form, Packed, Panel, exponents};
use vosti_kernels::Quantised;
use vosti_kernels::quantised::FORMATS;

const ELEMENTS: usize = 32 << 20;
const ROWS: [usize; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |otherwise: usize| arguments.next().map_or(otherwise, |text| text.parse().expect("a number"));
    let (width, rounds) = (number(2048), number(5));
    let asked: Vec<String> = arguments.collect();
    let mut forms = vec![packed(width, "BF16")];
    let mut names = vec!["BF16".to_string()];
    for name in ["13 bits"].into_iter().chain(FORMATS.iter().map(|format| format.name)) {
        if asked.is_empty() || asked.iter().any(|asked| asked == name) {
            forms.push(packed(width, name));
            names.push(name.into());
        }
    }
    let weights: Vec<Vec<u8>> = forms.iter().map(|panel| copies(panel, width)).collect();
    for isa in Isa::available().iter().filter(|isa| **isa != Isa::Portable) {
        let kernels = kernels(*isa);
        println!("{isa:?}, width {width}\nrows {:>8} {}", names[0], names[1..].join(" "));
        for rows in ROWS {
            let mut best = vec![f64::INFINITY; forms.len()];
            for _ in 0..rounds {
                for (i, form) in forms.iter().enumerate() {
                    best[i] = best[i].min(pass(&kernels, form, &weights[i], rows, width));
                }
            }
            let others: Vec<String> = best[1..].iter().map(|time| format!("{:.2}", best[0] / time)).collect();
            println!("{rows:4} {:8.1} {}", ELEMENTS as f64 / best[0] * 1e-9, others.join(" "));
        }
    }
}

/// A panel of a form.
fn packed(width: usize, name: &str) -> Packed {
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
    Packed::blocks(&rows)
}

/// Enough copies of the panel for all weights, and room to begin at a multiple of 64.
fn copies(panel: &Packed, width: usize) -> Vec<u8> {
    let mut all = Vec::<u8>::with_capacity(panel.bytes.len() * (ELEMENTS / 64 / width) + 64);
    all.resize(all.as_ptr().align_offset(64), 0);
    (0..ELEMENTS / 64 / width).for_each(|_| all.extend(&panel.bytes));
    all
}

/// Seconds of CPU time of this thread for a pass over all weights.
fn pass(kernels: &Kernels, form: &Packed, weights: &[u8], rows: usize, width: usize) -> f64 {
    let skip = weights.as_ptr().align_offset(64);
    let weights = &weights[skip..];
    let left: Vec<u16> = (0..rows * width).map(|i| (0x3f80 + i % 64) as u16).collect();
    let (mut out, mut room) = (vec![0f32; rows * 64], vec![0u16; 64 * width]);
    let start = at_work();
    for panel in 0..ELEMENTS / 64 / width {
        let at = weights[panel * form.bytes.len()..].as_ptr();
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
        let stored = Stored { panel: Panel { at, form: form.form }, step: 0, keep: room.as_mut_ptr() };
        // SAFETY: operands of these sizes; the panel is of this form and there is room for it in BF16.
        unsafe {
            match form.form {
                Form::Bf16 => (kernels.bf16)(&dot),
                _ => dot_stored(kernels, &dot, &stored),
            }
        }
    }
    std::hint::black_box(&out);
    at_work() - start
}

/// Seconds of CPU time that this thread has used.
fn at_work() -> f64 {
    std::thread::yield_now();
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    text.split(' ').next().and_then(|text| text.parse::<f64>().ok()).expect("a number") * 1e-9
}
