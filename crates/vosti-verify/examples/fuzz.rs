//! Mutates the kernels of `filetests/pass`; what the verifier proves must run invariant.
//!
//! `fuzz SHARD SHARDS STRIDE REPLAYS` takes every STRIDE-th single change whose turn is SHARD; `fuzz twice SEED COUNT REPLAYS`
//! takes COUNT kernels with two random changes. Prints counts, and every disagreement, which is a soundness bug.

use std::collections::{BTreeMap, HashSet};
use vosti_verify::mutate::{Mutant, identity, mutants, twice};
use vosti_verify::{Cache, Case, Problem, Solver, find_z3, replay, verify};

struct Fuzz {
    solver: Solver,
    counts: BTreeMap<&'static str, u64>,
    seen: HashSet<(String, [u8; 32])>,
    replays: u64,
}

fn main() {
    let twice_over = std::env::args().nth(1).is_some_and(|word| word == "twice");
    let args: Vec<u64> = std::env::args().filter_map(|a| a.parse().ok()).collect();
    let arg = |i: usize, default: u64| args.get(i).copied().unwrap_or(default);
    let replays = if twice_over { arg(2, 25) } else { arg(3, 25) };
    let solver = Solver::new(find_z3(), Cache::none());
    let mut fuzz = Fuzz { solver, counts: BTreeMap::new(), seen: HashSet::new(), replays };
    let cases = cases();
    if twice_over {
        let (seed, count) = (arg(0, 1), arg(1, 1000));
        for turn in 0..count {
            let case = &cases[(turn % cases.len() as u64) as usize];
            let base = case.problem.as_ref().unwrap();
            if let Some(mutant) = twice(&base.kernel, seed.wrapping_mul(0x9e37_79b9) ^ turn) {
                fuzz.one(&case.name, base, mutant);
            }
            if turn % 250 == 249 {
                println!("{}: {:?}", turn + 1, fuzz.counts);
            }
        }
    } else {
        let (shard, shards, stride) = (arg(0, 0), arg(1, 1).max(1), arg(2, 1).max(1));
        let mut turn = 0;
        for case in &cases {
            let base = case.problem.as_ref().unwrap();
            for mutant in mutants(&base.kernel) {
                turn += 1;
                if turn % stride == 0 && turn / stride % shards == shard {
                    fuzz.one(&case.name, base, mutant);
                }
            }
            println!("{}: {:?}", case.name, fuzz.counts);
        }
    }
    println!("all: {:?}", fuzz.counts);
}

fn cases() -> Vec<Case> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../filetests/pass");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "py"));
    paths.sort();
    paths.iter().map(|path| Case::read(path).unwrap()).collect()
}

impl Fuzz {
    fn count(&mut self, what: &'static str, more: bool) {
        *self.counts.entry(what).or_default() += u64::from(more);
    }

    fn one(&mut self, name: &str, base: &Problem, mutant: Mutant) {
        if !self.seen.insert((name.to_string(), identity(&mutant.kernel))) {
            return;
        }
        let problem = base.with_kernel(mutant.kernel);
        let proved = match verify(&problem, &mut self.solver) {
            Ok(report) => report.verdict.is_proved(),
            Err(error) => {
                println!("{name} {}: {error}", mutant.what);
                return self.count("solver errors", true);
            }
        };
        self.count("mutants", true);
        let found = replay::search(&problem, &problem, 0..if proved { self.replays } else { 8 });
        if mutant.neutral {
            self.count("neutral", true);
            self.count("neutral and proved", proved);
        }
        match (proved, found) {
            (true, Some(how)) => {
                println!("UNSOUND {name} {}: {how}", mutant.what);
                self.count("UNSOUND", true);
            }
            (true, None) => self.count("proved and executed invariant", true),
            (false, Some(_)) => self.count("refused and executed different", true),
            (false, None) => self.count("refused, no difference seen", true),
        }
    }
}
