//! Every checked-in specialisation, proved on a few threads, each with a solver of its own.

use crate::cache::Cache;
use crate::certificate::{Certificate, certificate};
use crate::problem::Problem;
use crate::solver::{Counts, Solver, SolverError, find_z3};
use crate::verify::{Report, verify};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How to verify.
#[derive(Clone, Debug)]
pub struct Options {
    /// Only specialisations whose file stem starts with this.
    pub prefix: String,
    pub threads: usize,
    /// Do not use the checked-in answers.
    pub no_cache: bool,
    /// Refuse questions that the checked-in answers do not hold.
    pub read_only: bool,
    /// Share of the cached answers to solve again, and from which seed.
    pub recheck_percent: u8,
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options { prefix: String::new(), threads: 2, no_cache: false, read_only: false, recheck_percent: 0, seed: 0 }
    }
}

/// What came of it.
pub struct Inventory {
    pub entries: Vec<(Report, Option<Certificate>)>,
    pub counts: Counts,
    pub solver: String,
    /// The answers used and found, to be checked in.
    pub answers: Cache,
}

/// The answers that are checked in.
pub fn checked_in() -> Cache {
    Cache::from_text(include_str!("../cache/answers.txt"))
}

fn cache(options: &Options) -> Cache {
    let mut cache = if options.no_cache { Cache::none() } else { checked_in() };
    cache.read_only = options.read_only;
    cache.recheck_percent = options.recheck_percent;
    cache.seed = options.seed;
    cache
}

/// Proves every specialisation that the options name.
pub fn verify_all(options: &Options) -> Result<Inventory, SolverError> {
    let stems: Vec<&str> = vosti_kernels::ttir_stems().into_iter().filter(|s| s.starts_with(&options.prefix)).collect();
    let version = Solver::new(find_z3(), Cache::none()).version();
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Report, Option<Certificate>)>> = Mutex::new(vec![]);
    let solvers: Mutex<Vec<Solver>> = Mutex::new(vec![]);
    let failed: Mutex<Option<SolverError>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..options.threads.clamp(1, stems.len().max(1)) {
            scope.spawn(|| {
                let mut solver = Solver::new(find_z3(), cache(options));
                while let Some((i, stem)) = take(&next, &stems) {
                    match one(stem, &version, &mut solver) {
                        Ok((report, certificate)) => lock(&done).push((i, report, certificate)),
                        Err(error) => {
                            *lock(&failed) = Some(error);
                            next.store(stems.len(), Ordering::Relaxed);
                        }
                    }
                }
                lock(&solvers).push(solver);
            });
        }
    });
    if let Some(error) = lock(&failed).take() {
        return Err(error);
    }
    let mut done = std::mem::take(&mut *lock(&done));
    done.sort_by_key(|(i, _, _)| *i);
    let (mut counts, mut answers) = (Counts::default(), cache(options));
    for solver in lock(&solvers).iter() {
        counts.add(&solver.counts);
        answers.merge(&solver.cache);
    }
    Ok(Inventory { entries: done.into_iter().map(|(_, r, c)| (r, c)).collect(), counts, solver: version, answers })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn take<'a>(next: &AtomicUsize, stems: &[&'a str]) -> Option<(usize, &'a str)> {
    let i = next.fetch_add(1, Ordering::Relaxed);
    stems.get(i).map(|s| (i, *s))
}

fn one(stem: &str, version: &str, solver: &mut Solver) -> Result<(Report, Option<Certificate>), SolverError> {
    match Problem::of_stem(stem) {
        Err(error) => Ok((Report::refused(stem, &error), None)),
        Ok(problem) => {
            let report = verify(&problem, solver)?;
            let certificate = certificate(&problem, &report, version);
            Ok((report, certificate))
        }
    }
}
