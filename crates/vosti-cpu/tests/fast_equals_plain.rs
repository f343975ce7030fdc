//! Compiled plans give the interpreter's bits: ragged shapes, every instruction set, packed and row-major
//! buffers, lanes that nothing defines poisoned.

mod common;
use common::*;
use vosti_cpu::isa::Isa;
use vosti_kernels::Const;

#[test]
fn every_specialisation_has_a_plan() {
    let mut failures = Vec::new();
    for stem in vosti_kernels::ttir_stems() {
        let kernel = vosti_tile::lift(vosti_kernels::ttir_by_stem(stem).unwrap()).unwrap();
        if let Err(e) = vosti_cpu::plan::compile(&kernel, Isa::Portable) {
            failures.push(format!("{stem}: {e}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Rows of the cases of a specialisation: of one that takes long to interpret fewer.
fn row_counts(stem: &str) -> &'static [usize] {
    let spec = parse_stem(stem);
    let at_most = |name: &str, limit: i64| match spec.constants.get(name) {
        Some(Const::Int(v)) => *v <= limit,
        _ => true,
    };
    let pages =
        if spec.constants.contains_key("BQ") { at_most("HEADS", 9) && at_most("D", 256) } else { at_most("D", 512) };
    let quick = pages && at_most("K", 1536) && at_most("H", 1024) && (at_most("K", 100) || at_most("N", 3072));
    match quick {
        true if spec.kernel != "argmax" || at_most("V", 256) => &[1, 3, 67],
        true => &[1],
        false => &[3],
    }
}

#[test]
fn plans_have_the_interpreters_bits() {
    let mut failures = Vec::new();
    let only = std::env::var("VOSTI_STEM").ok();
    for stem in vosti_kernels::ttir_stems().into_iter().filter(|s| only.as_ref().is_none_or(|o| s.contains(o.as_str())))
    {
        for &rows in row_counts(stem) {
            let case = case(stem, rows, 7 + rows as u64);
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
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
