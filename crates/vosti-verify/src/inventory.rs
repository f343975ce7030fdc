//! Proves many specialisations on a few threads, each with its own solver: the checked-in ones, or those of a bundle.

use crate::cache::Cache;
use crate::certificate::{Certificate, certificate};
use crate::problem::Problem;
use crate::record;
use crate::solver::{Counts, Solver, SolverError, find_cvc5, find_z3};
use crate::verify::{Verification, verify_folded, verify_in_place_of, verify_or_refute};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex};
use vosti_kernels::stands_for;

/// Pairs of runs on which a kernel that is not proved is tried.
const REPLAYS: u64 = 30;

/// How to verify.
#[derive(Clone, Debug)]
pub struct VerifyOptions {
    /// Only specialisations whose file stem starts with this.
    pub prefix: String,
    /// Worker threads, each with a solver of its own.
    pub threads: usize,
    /// Do not use the checked-in answers.
    pub no_cache: bool,
    /// Refuse questions that the checked-in answers do not hold.
    pub read_only: bool,
    /// Percentage of the cached answers to solve again, 0 to 100.
    pub recheck_percent: u8,
    /// Seed that selects these answers.
    pub seed: u64,
}

impl Default for VerifyOptions {
    fn default() -> VerifyOptions {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        VerifyOptions { prefix: String::new(), threads, no_cache: false, read_only: false, recheck_percent: 0, seed: 0 }
    }
}

/// The results of verifying several texts.
pub struct Inventory {
    /// One entry for each text, in the order of the texts; a certificate if it was proved.
    pub entries: Vec<(Verification, Option<Certificate>)>,
    /// Counts of solver questions, of all threads together.
    pub counts: Counts,
    /// Name and version of the solver.
    pub solver: String,
    /// The answers that were used, to be checked in.
    pub answers: Cache,
}

impl Inventory {
    /// The certificates of the proved kernels.
    pub fn certificates(&self) -> impl Iterator<Item = &Certificate> + Clone {
        self.entries.iter().filter_map(|(_, certificate)| certificate.as_ref())
    }

    /// True if every text was proved and every answer that was solved again agreed.
    pub fn proved(&self) -> bool {
        self.counts.disagreed == 0 && self.entries.iter().all(|(verification, _)| verification.verdict.is_proved())
    }

    /// Kernels whose certificate is not among `recorded`, or differs from it in more than the solver.
    pub fn not_as_recorded(&self, recorded: &record::Certificates) -> Vec<&str> {
        let same = |new: &&Certificate| {
            recorded
                .get(&new.kernel)
                .is_some_and(|old| Certificate { solver: new.solver.clone(), ..old.clone() } == **new)
        };
        self.certificates().filter(|c| !same(c)).map(|c| c.kernel.as_str()).collect()
    }

    /// Writes `answers.txt` and `certificates.jsonl` into `folder`, in the form in which they are checked in.
    pub fn record(&self, folder: &Path) -> std::io::Result<()> {
        std::fs::write(folder.join("answers.txt"), self.answers.to_text())?;
        std::fs::write(folder.join(record::FILE), record::to_text(self.certificates()))
    }
}

/// The answers that are checked in.
pub fn checked_in() -> Cache {
    Cache::from_text(include_str!("../cache/answers.txt"))
}

/// A specialisation's file stem and TTIR.
pub type Text<'a> = (&'a str, &'a str);

/// Proves every checked-in specialisation whose stem starts with `options.prefix`. An error if a solver is missing, dies or
/// contradicts, or if a read-only cache lacks an answer.
pub fn verify_all(options: &VerifyOptions) -> Result<Inventory, SolverError> {
    let stems = vosti_kernels::ttir_stems().into_iter().filter(|s| s.starts_with(&options.prefix));
    let texts: Vec<Text> = stems.map(|s| (s, vosti_kernels::ttir_by_stem(s).unwrap_or_default())).collect();
    verify_texts(&texts, &|stem| vosti_kernels::ttir_by_stem(stem), options)
}

/// A specialisation's TTIR by its file stem.
pub type Find<'a> = &'a (dyn Fn(&str) -> Option<&'a str> + Sync);

/// Proves these specialisations. If one may run in the place of another, which `find` gives, it is also proved to give that
/// one's bits. Errors as in [`verify_all`].
pub fn verify_texts(texts: &[Text], find: Find, options: &VerifyOptions) -> Result<Inventory, SolverError> {
    let mut cache = if options.no_cache { Cache::none() } else { checked_in() };
    cache.read_only = options.read_only;
    cache.recheck_percent = options.recheck_percent;
    cache.seed = options.seed;
    let version = Solver::new(find_z3(), Cache::none()).version();
    let waiting: Mutex<VecDeque<usize>> = Mutex::new((0..texts.len()).collect());
    let used: Arc<Mutex<Cache>> = Arc::default();
    let done: Mutex<Vec<(usize, Verification, Option<Certificate>)>> = Mutex::new(vec![]);
    let asked: Mutex<Counts> = Mutex::default();
    let failed: Mutex<Option<SolverError>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for worker in 0..options.threads.clamp(1, texts.len().max(1)) {
            let (waiting, used, done, asked, failed, cache) = (&waiting, &used, &done, &asked, &failed, &cache);
            scope.spawn(move || {
                let mut solver = Solver::new(find_z3(), cache.clone()).with_second(find_cvc5()).sharing(used);
                while let Some(i) = take(waiting, worker) {
                    match one(texts[i], find, &mut solver) {
                        Ok((verification, certificate)) => lock(done).push((i, verification, certificate)),
                        Err(error) => {
                            *lock(failed) = Some(error);
                            lock(waiting).clear();
                        }
                    }
                }
                lock(asked).add(&solver.counts);
            });
        }
    });
    if let Some(error) = lock(&failed).take() {
        return Err(error);
    }
    let mut done = std::mem::take(&mut *lock(&done));
    done.sort_by_key(|(i, _, _)| *i);
    let (counts, mut answers) = (std::mem::take(&mut *lock(&asked)), std::mem::take(&mut *lock(&used)));
    answers.solver = cache.solver.clone();
    if answers.solver != version && counts.asked > counts.rechecked + counts.gave_up + counts.disagreed {
        let both = if answers.solver.is_empty() { version.clone() } else { format!("{}; {version}", answers.solver) };
        answers.solver = both;
    }
    let solver = answers.solver.clone();
    let certified = |c: Option<Certificate>| c.map(|c| Certificate { solver: solver.clone(), ..c });
    let entries = done.into_iter().map(|(_, verification, c)| (verification, certified(c))).collect();
    Ok(Inventory { entries, counts, solver: version, answers })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The next text of a worker. Neighbouring texts ask almost the same questions, so workers take from both ends: two workers
/// on neighbouring texts would ask most questions twice.
fn take(waiting: &Mutex<VecDeque<usize>>, worker: usize) -> Option<usize> {
    let mut waiting = lock(waiting);
    if worker.is_multiple_of(2) { waiting.pop_front() } else { waiting.pop_back() }
}

fn one(
    (stem, text): Text,
    find: Find,
    solver: &mut Solver,
) -> Result<(Verification, Option<Certificate>), SolverError> {
    let problem = match Problem::of_text(stem, text) {
        Err(error) => return Ok((Verification::refused(stem, &error), None)),
        Ok(problem) => problem,
    };
    let mut verification = verify_or_refute(&problem, &problem, REPLAYS, solver)?;
    for first in vosti_kernels::parse_stem(stem).map_or(vec![], |spec| stands_for(&spec)) {
        let first = first.to_string();
        // A kernel without a text cannot run, so there is nothing to stand for.
        let Some(text) = find(&first) else { continue };
        match Problem::of_text(&first, text) {
            _ if !verification.verdict.is_proved() => break,
            Err(error) => return Ok((Verification::refused(stem, &error), None)),
            Ok(first) => verify_in_place_of(&first, &problem, &mut verification, REPLAYS, solver)?,
        }
    }
    if let Some(second) = vosti_kernels::parse_stem(stem).and_then(|spec| vosti_kernels::second_of(&spec)) {
        let second = second.to_string();
        match find(&second).filter(|_| verification.verdict.is_proved()).map(|text| Problem::of_text(&second, text)) {
            None => {}
            Some(Err(error)) => return Ok((Verification::refused(stem, &error), None)),
            Some(Ok(second)) => verify_folded(&problem, &second, &mut verification, solver)?,
        }
    }
    let certificate = certificate(&problem, &verification, "");
    Ok((verification, certificate))
}
