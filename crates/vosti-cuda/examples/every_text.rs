//! Compiles every checked-in text of GPUs for every target and checks what comes: any model of a supported family needs only
//! these. It takes some minutes a target; the exit code is 1 if a text fails.
//!
//!     cargo run -p vosti-cuda --example every_text [TARGET...]

use vosti_cuda::toolchain::REQUIREMENT;
use vosti_cuda::{Arch, Facts, Toolchain, inspect};
use vosti_kernels::{Const, Spec, compile_options, examples};

/// What is refused, and why. Everything else passes.
fn refused(arch: Arch, spec: &Spec) -> Option<&'static str> {
    let attends = ["attend", "attend_part"].contains(&spec.kernel.as_str());
    (attends && arch.has_room_for(spec).is_err()).then_some("bytes of shared memory, a block has")
}

/// A page is on its way while another is computed with, unless two do not fit.
fn loads_ahead(arch: Arch, spec: &Spec) -> bool {
    let Some(Const::Int(d)) = spec.constants.get("D") else { return true };
    *d <= if [Arch::Sm90, Arch::Sm100].contains(&arch) { 256 } else { 128 }
}

fn compiles(arch: Arch) -> bool {
    let Some(python) = vosti_test_tools::python(REQUIREMENT) else { return false };
    let tool = Toolchain::with_python(python);
    let target = format!("cuda-{arch}");
    // The largest of the dimensions that an example has.
    let mut of_text = std::collections::BTreeMap::new();
    for spec in examples().into_iter().filter(|spec| compile_options(&target, spec).is_ok()) {
        of_text.insert(spec.text().to_string(), spec);
    }
    let specs: Vec<Spec> = of_text.into_values().collect();
    assert!(specs.len() > 100, "{}", specs.len());
    let (mut worst, mut wrong): (Option<Facts>, Vec<String>) = (None, vec![]);
    let (mut refusals, mut first) = (0, 0);
    for some in specs.chunks(16) {
        for artifact in tool.compile_checked_in(&target, some).unwrap() {
            let spec = &artifact.spec;
            match (inspect(&artifact, arch).map_err(|error| error.to_string()), refused(arch, spec)) {
                (Ok(facts), None) => {
                    if artifact.metadata.ptxas_level < 3 {
                        first += 1;
                        println!("{spec}: at the assembler's first level");
                    }
                    if facts.matrix_instructions > 0 && (facts.in_flight > 0) != loads_ahead(arch, spec) {
                        wrong.push(format!("{spec}: {} bytes under way", facts.in_flight));
                    }
                    if worst.as_ref().is_none_or(|worst| worst.registers < facts.registers) {
                        worst = Some(facts);
                    }
                }
                (Err(why), Some(says)) if why.contains(says) => {
                    refusals += 1;
                    println!("{why}");
                }
                (found, wanted) => wrong.push(format!("{spec}: {found:?}, not {wanted:?}")),
            }
        }
    }
    println!(
        "{target}: {} texts, {refusals} refused, the others without spills, {first} at the assembler's first level; at most {} registers",
        specs.len(),
        worst.map_or(0, |facts| facts.registers)
    );
    wrong.iter().for_each(|line| eprintln!("wrong: {line}"));
    wrong.is_empty()
}

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let wrong = |error: vosti_cuda::CudaError| -> ! {
        eprintln!("{error}");
        std::process::exit(2)
    };
    let targets = asked.iter().map(|target| Arch::of_target(target).unwrap_or_else(|error| wrong(error)));
    let targets: Vec<Arch> = if asked.is_empty() { Arch::ALL.to_vec() } else { targets.collect() };
    let failed = targets.into_iter().filter(|arch| !compiles(*arch)).count();
    std::process::exit(i32::from(failed > 0));
}
