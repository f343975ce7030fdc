//! Proves checked-in specialisations whose file stem starts with an argument; `-v` tells the proof.

use vosti_verify::{Cache, Problem, Solver, find_z3, verify};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let verbose = args.iter().any(|a| a == "-v");
    let mut solver = Solver::new(find_z3(), Cache::none());
    for stem in vosti_kernels::ttir_stems() {
        if !args.iter().any(|a| stem.starts_with(a.as_str())) {
            continue;
        }
        let problem = match Problem::of_stem(stem) {
            Ok(problem) => problem,
            Err(error) => {
                println!("{stem}: {error}");
                continue;
            }
        };
        match verify(&problem, &mut solver) {
            Ok(report) => {
                println!("{:6.3}s {:4} queries  {stem}: {}", report.time.as_secs_f64(), report.queries, report.verdict);
                if verbose {
                    report.story.iter().for_each(|s| println!("{}{}", "  ".repeat(s.depth + 1), s.text));
                }
            }
            Err(error) => println!("{stem}: {error}"),
        }
    }
}
