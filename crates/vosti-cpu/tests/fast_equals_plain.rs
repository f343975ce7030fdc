//! Compiled plans give the interpreter's bits on every checked-in specialisation, ragged shapes, every
//! instruction set, packed and row-major buffers.

mod common;
use common::*;
use vosti_cpu::isa::Isa;

#[test]
fn every_specialisation_has_a_plan_with_the_interpreters_bits() {
    let mut failures = Vec::new();
    let only = std::env::args().nth(2);
    for stem in vosti_kernels::ttir_stems() {
        if only.as_ref().is_some_and(|o| !stem.contains(o.as_str())) {
            continue;
        }
        for rows in [1, 3, 67] {
            let case = case(stem, rows, 7 + rows as u64);
            let want = plain(&case);
            for isa in Isa::available() {
                let plan = match vosti_cpu::plan::compile(&case.kernel, *isa) {
                    Ok(plan) => plan,
                    Err(e) => {
                        failures.push(format!("{stem}: {e}"));
                        continue;
                    }
                };
                for packed in [true, false] {
                    match fast(&case.kernel, &plan, &case.buffers, case.grid, *isa, packed, Some(3)) {
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
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
