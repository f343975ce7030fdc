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

/// Small enough that interpreting it takes well under a second.
fn quick(stem: &str) -> bool {
    let spec = parse_stem(stem);
    let at_most = |name: &str, limit: i64| match spec.constants.get(name) {
        Some(Const::Int(v)) => *v <= limit,
        _ => true,
    };
    let pages =
        if spec.constants.contains_key("BQ") { at_most("HEADS", 9) && at_most("D", 256) } else { at_most("D", 512) };
    pages && at_most("K", 1536) && at_most("H", 1024) && (at_most("K", 100) || at_most("N", 3072))
}

#[test]
fn plans_have_the_interpreters_bits() {
    let mut failures = Vec::new();
    let only = std::env::var("VOSTI_STEM").ok();
    let mut ran = 0;
    for stem in vosti_kernels::ttir_stems() {
        let wanted = only.as_ref().map_or_else(|| quick(stem), |o| stem.contains(o.as_str()));
        if !wanted {
            continue;
        }
        ran += 1;
        // A row of logits is long.
        let logits = parse_stem(stem).kernel == "argmax" && !stem.ends_with("V256");
        for rows in [1, 3, 67].into_iter().filter(|rows| !logits || *rows == 1) {
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
    assert!(only.is_some() || ran > 40, "only {ran} specialisations are quick enough to run");
}
