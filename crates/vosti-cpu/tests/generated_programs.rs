//! Compiled plans give the interpreter's bits on 1,000 random tile programs, whatever the instruction set, the layout of the
//! buffers and the contents of undefined lanes. Programs without a plan are not among the 1,000.

mod common;
use common::{difference, fast};
use vosti_cpu::Isa;
use vosti_cpu::plan::compile;
use vosti_tile::interp::{Options, run};

/// Programs that are compared, and the most that are generated to find so many with a plan.
const COMPILED: usize = 1000;
const GENERATED_MAX: u64 = 1100;

#[test]
fn a_thousand_generated_programs_have_the_interpreters_bits() {
    let (isas, mut failures) = (Isa::tried(), Vec::new());
    let mut refused: std::collections::BTreeMap<&str, usize> = Default::default();
    let mut compiled = 0;
    for seed in 0..GENERATED_MAX {
        if compiled == COMPILED {
            break;
        }
        let program = vosti_tile::generate::random_kernel(seed);
        let mut want = program.buffers.clone();
        run(&program.kernel, &mut want, program.grid, &Options::default()).unwrap();
        let plan = match compile(&program.kernel, Isa::Portable) {
            Ok(_) => |isa| compile(&program.kernel, isa).unwrap(),
            Err(e) => {
                *refused.entry(e.what).or_default() += 1;
                continue;
            }
        };
        compiled += 1;
        for isa in isas {
            let packed = seed % 2 == 0;
            match fast(&program.kernel, &plan(*isa), &program.buffers, program.grid, *isa, packed, Some(seed + 1)) {
                Ok(got) => {
                    if let Some(d) = difference(&program.kernel, &got, &want) {
                        failures.push(format!("seed {seed} {isa:?} packed {packed}: {d}"));
                    }
                }
                Err(e) => failures.push(format!("seed {seed} {isa:?}: {e}")),
            }
        }
    }
    assert!(failures.is_empty(), "{} of {compiled}\n{}", failures.len(), failures[..failures.len().min(20)].join("\n"));
    assert_eq!(compiled, COMPILED, "too few of {GENERATED_MAX} were compiled: {refused:?}");
    println!("{compiled} compiled; interpreted instead: {refused:?}");
}
