//! Compiled plans give the interpreter's bits: ragged shapes, every instruction set, packed and row-major
//! buffers, lanes that nothing defines poisoned.

mod common;
use common::*;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use vosti_cpu::isa::Isa;
use vosti_kernels::Const;

#[test]
fn every_specialisation_has_a_plan() {
    let mut failures = Vec::new();
    for spec in vosti_kernels::examples() {
        let kernel = vosti_tile::fold(&vosti_tile::lift(&vosti_kernels::ttir(&spec).unwrap()).unwrap());
        if let Err(e) = vosti_cpu::plan::compile(&kernel, Isa::Portable) {
            failures.push(format!("{spec}: {e}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Blocks of columns that are tried of a large matrix.
const COLUMNS_MAX: usize = 4;

/// Rows of the cases of a specialisation: of one that takes long to interpret fewer, and of very large heads none, for the
/// same text is tried with fewer of them.
fn row_counts(stem: &str) -> &'static [usize] {
    let spec = parse_stem(stem);
    let at_most = |name: &str, limit: i64| match spec.constants.get(name) {
        Some(Const::Int(v)) => *v <= limit,
        _ => true,
    };
    let count = |name: &str| match spec.constants.get(name) {
        Some(Const::Int(v)) => *v,
        _ => 1,
    };
    // Numbers of a row in all heads.
    let heads = if spec.constants.contains_key("HEADS") { count("HEADS") } else { count("KV_HEADS") * count("GROUP") };
    let d = if spec.constants.contains_key("HALF") { 2 * count("HALF") } else { count("D") };
    if heads * d > 3072 {
        return &[];
    }
    let quick =
        heads * d <= 256 && at_most("K", 1536) && at_most("H", 1024) && (at_most("K", 100) || at_most("N", 3072));
    match quick {
        // Whoever looks through a row of logits does so for each row.
        true if !(spec.kernel == "argmax" || spec.kernel.starts_with("topk"))
            || at_most("V", 256) && at_most("PART", 256) && at_most("BN", 64) =>
        {
            &[1, 3, 67]
        }
        true => &[1],
        false => &[3],
    }
}

#[test]
fn plans_have_the_interpreters_bits() {
    let only = std::env::var("VOSTI_STEM").unwrap_or_default();
    let stems = vosti_kernels::examples().into_iter().map(|spec| spec.to_string());
    let stems: Vec<String> = stems.filter(|stem| stem.contains(&only)).collect();
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(stem) = stems.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = differences(stem);
                    failures.lock().unwrap().extend(found);
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// What a specialisation's plans give otherwise than the interpreter, in words.
fn differences(stem: &str) -> Vec<String> {
    let mut failures = Vec::new();
    for &rows in row_counts(stem) {
        let mut case = case(stem, rows, 7 + rows as u64);
        if rows == 3 && row_counts(stem).len() == 1 {
            // A large one: all of its columns take long to interpret, and each program does the same.
            case.grid[1] = case.grid[1].min(COLUMNS_MAX);
        }
        let want = plain(&case);
        for (isa, packed) in Isa::available().iter().flat_map(|isa| [(*isa, true), (*isa, false)]) {
            if !packed && isa != Isa::detect() {
                continue;
            }
            let plan = plan(&case.kernel, isa);
            match fast(&case.kernel, &plan, &case.buffers, case.grid, isa, packed, Some(3)) {
                Ok(got) => {
                    if let Some(d) = difference(&case.kernel, &got, &want) {
                        failures.push(format!("{stem} rows {rows} {isa:?} packed {packed}: {d}"));
                    }
                }
                Err(e) => failures.push(format!("{stem} rows {rows} {isa:?}: {e}")),
            }
        }
    }
    failures
}
