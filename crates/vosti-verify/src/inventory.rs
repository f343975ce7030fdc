//! Proves many specialisations on a few threads, each with its own solver: those that are checked in, or those of a bundle.

use crate::cache::Cache;
use crate::certificate::{Certificate, certificate};
use crate::problem::Problem;
use crate::record;
use crate::solver::{Counts, Solver, SolverError, find_cvc5, find_z3};
use crate::verify::{Verification, verify_in_place_of, verify_or_refute};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex};
use vosti_kernels::stands_for;

/// Pairs of runs that are tried on what is not proved.
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
    /// Share of the cached answers to solve again, and from which seed.
    pub recheck_percent: u8,
    /// Which share that is.
    pub seed: u64,
}

impl Default for VerifyOptions {
    fn default() -> VerifyOptions {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        VerifyOptions { prefix: String::new(), threads, no_cache: false, read_only: false, recheck_percent: 0, seed: 0 }
    }
}

/// What came of it.
pub struct Inventory {
    /// One a text, in the order of stems; a certificate where it was proved.
    pub entries: Vec<(Verification, Option<Certificate>)>,
    /// What the solvers were asked, by all threads.
    pub counts: Counts,
    /// Name and version of the solver.
    pub solver: String,
    /// The answers that were used, to be checked in.
    pub answers: Cache,
}

impl Inventory {
    /// Certificates of what was proved.
    pub fn certificates(&self) -> impl Iterator<Item = &Certificate> + Clone {
        self.entries.iter().filter_map(|(_, certificate)| certificate.as_ref())
    }

    /// Whether everything was proved, and no answer that was solved again came out otherwise.
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

    /// Writes answers and certificates as they are checked in.
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

/// Proves every checked-in specialisation that the options name.
pub fn verify_all(options: &VerifyOptions) -> Result<Inventory, SolverError> {
    let stems = vosti_kernels::ttir_stems().into_iter().filter(|s| s.starts_with(&options.prefix));
    let texts: Vec<Text> = stems.map(|s| (s, vosti_kernels::ttir_by_stem(s).unwrap_or_default())).collect();
    verify_texts(&texts, &|stem| vosti_kernels::ttir_by_stem(stem), options)
}

/// A specialisation's TTIR by its file stem.
pub type Find<'a> = &'a (dyn Fn(&str) -> Option<&'a str> + Sync);

/// Proves these specialisations, and of those that may run in another's place that they give its bits.
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

/// The next text of a worker. Neighbours ask much the same, so two workers begin at the two ends: in step they would ask
/// everything twice.
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
        // One that is not there cannot run either.
        let Some(text) = find(&first) else { continue };
        match Problem::of_text(&first, text) {
            _ if !verification.verdict.is_proved() => break,
            Err(error) => return Ok((Verification::refused(stem, &error), None)),
            Ok(first) => verify_in_place_of(&first, &problem, &mut verification, REPLAYS, solver)?,
        }
    }
    let certificate = certificate(&problem, &verification, "");
    Ok((verification, certificate))
}
