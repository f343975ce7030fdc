//! Mutates the kernels of `filetests/pass` and their contracts. A mutant that the verifier proves must run invariant, under
//! the replay's own reading of the contract under which it was proved.
//!
//! `fuzz SHARD SHARDS STRIDE REPLAYS` takes every STRIDE-th single change of a kernel whose turn is SHARD; `fuzz contracts
//! SHARD SHARDS STRIDE REPLAYS` does the same for contracts. `fuzz mixed SEED COUNT REPLAYS` takes COUNT random pairs of
//! changes, of which at least one is the contract's; `fuzz twice SEED COUNT REPLAYS` takes two changes of the kernel. The
//! example prints counts, and every disagreement, which is a soundness bug. If an argument is a folder, the kernels come from
//! there and not from the file tests; `filetests/random_kernels.py` writes such folders.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use vosti_test_tools::filetests;
use vosti_verify::mutate::{identity, mutants, twice};
use vosti_verify::mutate_contract::{contract, contracts};
use vosti_verify::problem::{ProblemError, Statement};
use vosti_verify::replay::{self, Outcome, Random};
use vosti_verify::{Cache, Case, Problem, Solver, find_z3, verify};

/// After so many mutants a new solver starts, which frees the memory of the old one's answers.
const KEEP: u64 = 2_000;

struct Base {
    name: String,
    ttir: String,
    statement: Statement,
    /// None if the statement and the TTIR make no problem.
    problem: Option<Problem>,
}

struct Fuzz {
    solver: Solver,
    counts: BTreeMap<&'static str, u64>,
    seen: HashSet<[u8; 32]>,
    replays: u64,
    /// Replays of a refused mutant, which count how often a refusal was right.
    replays_refused: u64,
}

fn main() {
    let mode = std::env::args().nth(1).filter(|word| word.parse::<u64>().is_err()).unwrap_or_default();
    let args: Vec<u64> = std::env::args().filter_map(|a| a.parse().ok()).collect();
    let arg = |i: usize, default: u64| args.get(i).copied().unwrap_or(default);
    let random = matches!(mode.as_str(), "twice" | "mixed");
    let replays = if random { arg(2, 25) } else { arg(3, 25) };
    let solver = Solver::new(find_z3(), Cache::none());
    let replays_refused = if mode == "mixed" { 0 } else { 8 };
    let mut fuzz = Fuzz { solver, counts: BTreeMap::new(), seen: HashSet::new(), replays, replays_refused };
    // The last word may be a prefix: only bases whose names begin with it.
    let only =
        std::env::args().next_back().filter(|word| word.parse::<u64>().is_err() && *word != mode).unwrap_or_default();
    let folder = std::env::args().skip(1).map(PathBuf::from).find(|word| word.is_dir());
    let only = if folder.is_some() { String::new() } else { only };
    let mut bases = bases(folder);
    bases.retain(|base| base.name.starts_with(&only) || (only == "rows" && !base.name.starts_with("attend")));
    if random {
        let (seed, count) = (arg(0, 1), arg(1, 1000));
        for turn in 0..count {
            let base = &bases[(turn % bases.len() as u64) as usize];
            let seed = seed.wrapping_mul(0x9e37_79b9) ^ turn;
            if mode == "mixed" {
                fuzz.mixed(base, seed)
            } else {
                fuzz.twice(base, seed)
            }
            if turn % 1000 == 999 {
                println!("{}: {:?}", turn + 1, fuzz.counts);
            }
        }
    } else {
        let (shard, shards, stride) = (arg(0, 0), arg(1, 1).max(1), arg(2, 1).max(1));
        let mut turn = 0;
        let mut mine = || {
            turn += 1;
            turn % stride == 0 && turn / stride % shards == shard
        };
        for base in &bases {
            if mode == "contracts" {
                let changed = contracts(&base.statement).into_iter().filter(|_| mine());
                changed.for_each(|m| fuzz.contract(base, &m.what, m.statement, None));
            } else if let Some(problem) = &base.problem {
                for mutant in mutants(&problem.kernel).into_iter().filter(|_| mine()) {
                    fuzz.kernel(&base.name, &mutant.what, problem.with_kernel(mutant.kernel), mutant.neutral);
                }
            }
            println!("{}: {:?}", base.name, fuzz.counts);
        }
    }
    println!("all: {:?}", fuzz.counts);
}

/// The passing kernels, and the broken ones that are refused for their types alone, which another contract may suit.
fn bases(folder: Option<PathBuf>) -> Vec<Base> {
    let mut bases = vec![];
    for case in folder.map_or_else(own, |folder| written(&folder)) {
        let (_, text) = vosti_contract::contract::block(&case.source).unwrap();
        let statement = Statement { text, act: vosti_contract::Dtype::Bf16 };
        bases.push(Base { name: case.name, ttir: case.ttir, statement, problem: case.problem.ok() });
    }
    bases
}

fn own() -> Vec<Case> {
    let of = |folder| {
        let tests = filetests::folder(folder).into_iter();
        tests.map(|test| Case::of(&test.path(), test.source, test.ttir)).collect::<Vec<_>>()
    };
    let mut broken = of("broken");
    broken.retain(|case| matches!(case.problem, Err(ProblemError::Type { .. })));
    of("pass").into_iter().chain(broken).collect()
}

/// The kernels of a folder of Python files and their texts.
fn written(folder: &Path) -> Vec<Case> {
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "py"));
    paths.sort();
    paths.iter().map(|path| Case::read(path).unwrap()).collect()
}

impl Fuzz {
    fn count(&mut self, what: &'static str, more: bool) {
        *self.counts.entry(what).or_default() += u64::from(more);
    }

    fn twice(&mut self, base: &Base, seed: u64) {
        let Some(problem) = &base.problem else { return };
        if let Some(mutant) = twice(&problem.kernel, seed) {
            self.kernel(&base.name, &mutant.what, problem.with_kernel(mutant.kernel), mutant.neutral);
        }
    }

    /// A change of the contract, and one more of it or of the kernel.
    fn mixed(&mut self, base: &Base, seed: u64) {
        let mut random = Random::new(seed);
        let Some(first) = contract(&base.statement, &mut random) else { return };
        let kernel = base.problem.as_ref().filter(|_| random.below(2) == 0).map(|p| mutants(&p.kernel));
        if let Some(mut list) = kernel.filter(|list| !list.is_empty()) {
            let mutant = list.swap_remove(random.below(list.len()));
            let what = format!("{}; {}", first.what, mutant.what);
            return self.contract(base, &what, first.statement, Some(mutant.kernel));
        }
        if let Some(second) = contract(&first.statement, &mut random) {
            self.contract(base, &format!("{}; {}", first.what, second.what), second.statement, None);
        }
    }

    fn contract(&mut self, base: &Base, what: &str, statement: Statement, kernel: Option<vosti_tile::Kernel>) {
        let own = |k: &vosti_tile::Kernel| identity(k).to_vec();
        let text = format!("{}{:?}{:?}", base.name, statement, kernel.as_ref().map(own));
        if !self.seen.insert(*blake3::hash(text.as_bytes()).as_bytes()) {
            return;
        }
        match Problem::of_statement(&base.name, &base.ttir, statement) {
            Ok(problem) => {
                let problem =
                    kernel.map_or_else(|| problem.with_kernel(problem.kernel.clone()), |k| problem.with_kernel(k));
                self.kernel(&base.name, what, problem, false);
            }
            Err(_) => {
                self.count("mutants", true);
                self.count("refused as it was read", true);
            }
        }
    }

    fn kernel(&mut self, name: &str, what: &str, problem: Problem, neutral: bool) {
        let text = format!("{name}{:?}{:?}", problem.statement, identity(&problem.kernel));
        if !self.seen.insert(*blake3::hash(text.as_bytes()).as_bytes()) {
            return;
        }
        if (self.seen.len() as u64).is_multiple_of(KEEP) {
            self.solver = Solver::new(find_z3(), Cache::none());
        }
        let proved = match verify(&problem, &mut self.solver) {
            Ok(report) => report.verdict.is_proved(),
            Err(error) => {
                println!("{name} {what}: {error}");
                return self.count("solver errors", true);
            }
        };
        self.count("mutants", true);
        let replays = if proved { self.replays } else { self.replays_refused };
        let found = replay::search(&problem, &problem, 0..replays);
        if neutral {
            self.count("neutral", true);
            self.count("neutral and proved", proved);
        }
        match (proved, found) {
            (true, Outcome::Different(how)) => {
                println!("UNSOUND {name} {what}: {how}");
                self.count("UNSOUND", true);
            }
            (true, Outcome::NotRun(why)) => {
                println!("NOT RUN {name} {what}: {why}");
                self.count("proved and not run", true);
            }
            (true, Outcome::Same) => self.count("proved and executed invariant", true),
            (false, Outcome::Different(_)) => self.count("refused and executed different", true),
            (false, _) => self.count("refused, no difference seen", true),
        }
    }
}
