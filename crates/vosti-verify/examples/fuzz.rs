//! Mutates the kernels of `filetests/pass`; what the verifier proves must run invariant.
//!
//! `fuzz SHARD SHARDS STRIDE REPLAYS` takes every STRIDE-th mutant whose turn is SHARD. Prints counts,
//! and every disagreement, which is a soundness bug.

use std::collections::BTreeMap;
use vosti_verify::mutate::mutants;
use vosti_verify::{Cache, Case, Solver, find_z3, replay, verify};

fn main() {
    let args: Vec<u64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let arg = |i: usize, default: u64| args.get(i).copied().unwrap_or(default);
    let (shard, shards, stride, replays) = (arg(0, 0), arg(1, 1).max(1), arg(2, 1).max(1), arg(3, 25));
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../filetests/pass");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "py"));
    paths.sort();
    let mut solver = Solver::new(find_z3(), Cache::none());
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    let mut turn = 0;
    for path in paths {
        let case = Case::read(&path).unwrap();
        let base = case.problem.as_ref().unwrap();
        for mutant in mutants(&base.kernel) {
            turn += 1;
            if turn % stride != 0 || turn / stride % shards != shard {
                continue;
            }
            let problem = base.with_kernel(mutant.kernel);
            let proved = match verify(&problem, &mut solver) {
                Ok(report) => report.verdict.is_proved(),
                Err(error) => {
                    println!("{} {}: {error}", case.name, mutant.what);
                    *counts.entry("solver errors").or_default() += 1;
                    continue;
                }
            };
            *counts.entry("mutants").or_default() += 1;
            let found = replay::search(&problem, &problem, 0..if proved { replays } else { 8 });
            if mutant.neutral {
                *counts.entry("neutral").or_default() += 1;
                *counts.entry("neutral and proved").or_default() += u64::from(proved);
            }
            match (proved, found) {
                (true, Some(how)) => {
                    println!("UNSOUND {} {}: {how}", case.name, mutant.what);
                    *counts.entry("UNSOUND").or_default() += 1;
                }
                (true, None) => *counts.entry("proved and executed invariant").or_default() += 1,
                (false, Some(_)) => *counts.entry("refused and executed different").or_default() += 1,
                (false, None) => *counts.entry("refused, no difference seen").or_default() += 1,
            }
        }
        println!("{}: {counts:?}", case.name);
    }
}
