//! The SMT solver as an external process, asked about integers and booleans only.
//!
//! A query is a self-contained SMT-LIB text, so that its hash names the question. A question goes
//! to the [`crate::cache::Cache`] first, then to the process; if there is a second solver, it gets the
//! same question. A missing, crashed or hung solver is an error, never an answer: see `process.rs`.

use crate::cache::Cache;
use crate::process::{self, Dialect, Process};
use crate::term::{Node, Term, Terms};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use thiserror::Error;

/// What a solver says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Some values meet the formula.
    Sat,
    /// No values meet the formula: what was asked is proved.
    Unsat,
    /// The solver gave up.
    Unknown,
}

/// Why a solver gave no answer that can be believed.
#[derive(Debug, Error)]
pub enum SolverError {
    #[error(
        "no solver: `{program}` does not start ({why}). Install it with `pip install z3-solver=={wanted}` and put it on PATH, or name it in VOSTI_Z3"
    )]
    Missing { program: String, why: String, wanted: &'static str },
    #[error("no second opinion: `{program}` does not start ({why}); leave VOSTI_CVC5 unset to do without")]
    NoSecond { program: String, why: String },
    #[error("the solver `{program}` stopped in the middle of a question ({why}): nothing is proved")]
    Crashed { program: String, why: String },
    #[error("the solver `{program}` did not answer within {millis} ms and was stopped: nothing is proved")]
    Hung { program: String, millis: u64 },
    #[error("the solver `{program}` answered `{line}`, which is not sat, unsat or unknown: nothing is proved")]
    Babble { program: String, line: String },
    #[error("no thread for a proof: {0}")]
    NoThread(std::io::Error),
    #[error(
        "two solvers disagree on question {hash}: {first} says {answer:?}, {second} does not: one of them is wrong, nothing is proved"
    )]
    Disagree { hash: String, first: String, second: String, answer: Answer },
    #[error(
        "no checked-in answer to question {hash}, and the cache is read-only: run `vosti verify --record` with a solver, and commit crates/vosti-verify/cache"
    )]
    NotCached { hash: String },
}

/// The version whose answers are checked in.
pub const WANTED: &str = "4.12.5.0";
/// The time that a solver is told to take for one question at most, and the time after which it is stopped.
const LIMIT: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(30);

/// Where the z3 program is: VOSTI_Z3, PATH, this program's own folder, or the environment that `cargo xtask python` makes.
pub fn find_z3() -> PathBuf {
    named("VOSTI_Z3").or_else(|| on_path("z3")).unwrap_or_else(|| PathBuf::from("z3"))
}

/// Where a cvc5 program is, if there is one: VOSTI_CVC5, or the places in which [`find_z3`] looks.
pub fn find_cvc5() -> Option<PathBuf> {
    named("VOSTI_CVC5").or_else(|| on_path("cvc5"))
}

fn named(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from)
}

fn on_path(program: &str) -> Option<PathBuf> {
    let on_path = std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    let target = std::env::var_os("CARGO_TARGET_DIR").map(|dir| PathBuf::from(dir).join("python/bin"));
    let own = std::env::current_exe().ok().and_then(|program| Some(program.parent()?.to_path_buf()));
    let here = std::env::current_dir().unwrap_or_default();
    let made = here.ancestors().flat_map(|dir| ["target/python/bin", "target/venv/bin"].map(|sub| dir.join(sub)));
    let folders = on_path.unwrap_or_default().into_iter().chain(own).chain(target).chain(made);
    folders.map(|dir| dir.join(program)).find(|p| p.is_file())
}

/// Counts of what a [`Solver`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Questions that a solver was asked.
    pub asked: u64,
    /// How many of the asked questions the second solver answered alike.
    pub seconded: u64,
    /// Questions that a recorded answer settled.
    pub cached: u64,
    /// Questions that were already answered in this run.
    pub repeated: u64,
    /// Cached answers that were solved again and agreed.
    pub rechecked: u64,
    /// Cached answers that the solver could not give again within its time.
    pub gave_up: u64,
    /// Cached answers that were solved again and did not agree: the cache is wrong.
    pub disagreed: u64,
}

impl Counts {
    /// Adds what another thread's solver counted.
    pub fn add(&mut self, other: &Counts) {
        self.asked += other.asked;
        self.seconded += other.seconded;
        self.cached += other.cached;
        self.repeated += other.repeated;
        self.rechecked += other.rechecked;
        self.gave_up += other.gave_up;
        self.disagreed += other.disagreed;
    }
}

/// A solver's process with the recorded answers in front of it.
pub struct Solver {
    first: Process,
    /// It gets every question that the first gets; a contradiction between the two is an error.
    second: Option<Process>,
    /// The answers that were recorded before this run.
    pub cache: Cache,
    /// All answers of this run, also those from the cache; several solvers may share them.
    used: Arc<Mutex<Cache>>,
    /// Counts of this solver alone.
    pub counts: Counts,
    patience: Duration,
}

impl Solver {
    /// A solver of these recorded answers. `program` starts with the first question that they do not answer.
    pub fn new(program: PathBuf, cache: Cache) -> Solver {
        Solver {
            first: Process::new(program, Dialect::Z3),
            second: None,
            cache,
            used: Arc::default(),
            counts: Counts::default(),
            patience: PATIENCE,
        }
    }

    /// The same solver, which shares the answers of this run with others.
    pub fn sharing(self, used: &Arc<Mutex<Cache>>) -> Solver {
        Solver { used: used.clone(), ..self }
    }

    /// The same with a second opinion on every question that is solved.
    pub fn with_second(mut self, program: Option<PathBuf>) -> Solver {
        self.second = program.map(|program| Process::new(program, Dialect::Cvc5));
        self
    }

    /// The same solver, stopped after another time without an answer.
    pub fn with_patience(self, patience: Duration) -> Solver {
        Solver { patience, ..self }
    }

    /// The solver's own version line; empty if it does not start or prints none.
    pub fn version(&self) -> String {
        process::version(&self.first.program, self.patience.min(LIMIT))
    }

    /// Answers one SMT-LIB question. It is an error if a solver is missing, dies or contradicts another, or if the cache is
    /// read-only and lacks the answer. If a recorded answer is solved again and differs, the answer is [`Answer::Unknown`].
    pub fn check(&mut self, query: &str) -> Result<Answer, SolverError> {
        let hash = Cache::key(query);
        let answer = self.answer(query, &hash)?;
        self.used().put(hash, answer);
        Ok(answer)
    }

    fn used(&self) -> MutexGuard<'_, Cache> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&mut self, query: &str, hash: &str) -> Result<Answer, SolverError> {
        let told = self.used().get(hash);
        if let Some(known) = told {
            self.counts.repeated += 1;
            return Ok(known);
        }
        if let Some(known) = self.cache.get(hash) {
            self.counts.cached += 1;
            if !self.cache.recheck(hash) {
                return Ok(known);
            }
            let fresh = self.ask(query, hash)?;
            match fresh {
                // Another version may give up where this answer was found, which refutes nothing.
                Answer::Unknown => self.counts.gave_up += 1,
                _ if fresh == known => self.counts.rechecked += 1,
                _ => {
                    self.counts.disagreed += 1;
                    return Ok(Answer::Unknown);
                }
            }
            return Ok(known);
        }
        if self.cache.read_only {
            return Err(SolverError::NotCached { hash: hash.to_string() });
        }
        self.ask(query, hash)
    }

    fn ask(&mut self, query: &str, hash: &str) -> Result<Answer, SolverError> {
        self.counts.asked += 1;
        let answer = self.first.ask(query, LIMIT, self.patience)?;
        let Some(second) = &mut self.second else { return Ok(answer) };
        match (answer, second.ask(query, LIMIT, self.patience)?) {
            (Answer::Unknown, _) | (_, Answer::Unknown) => {}
            (a, b) if a == b => self.counts.seconded += 1,
            _ => {
                let [first, second] = [&self.first, second].map(|process| process.program.display().to_string());
                return Err(SolverError::Disagree { hash: hash.to_string(), first, second, answer });
            }
        }
        Ok(answer)
    }
}

/// The SMT-LIB text that asks whether all of `asserted` can hold, declarations included.
pub fn query(terms: &Terms, asserted: &[Term]) -> String {
    let order = terms.reachable(asserted);
    let mut names: std::collections::HashMap<Term, String> = Default::default();
    let mut out = String::new();
    let mut functions = std::collections::BTreeSet::new();
    for t in order {
        let name = |t: &Term| names[t].as_str();
        let bounded = |out: &mut String, name: &str, bounds: &crate::term::Bounds| {
            if let Some(lo) = bounds.0 {
                writeln!(out, "(assert (<= {} {name}))", number(lo)).ok();
            }
            if let Some(hi) = bounds.1 {
                writeln!(out, "(assert (<= {name} {}))", number(hi)).ok();
            }
        };
        let body = match terms.node(t) {
            Node::Var { name, bounds } => {
                let name = format!("|{name}|");
                writeln!(out, "(declare-const {name} Int)").ok();
                bounded(&mut out, &name, bounds);
                names.insert(t, name);
                continue;
            }
            Node::BoolVar(name) => {
                let name = format!("|{name}|");
                writeln!(out, "(declare-const {name} Bool)").ok();
                names.insert(t, name);
                continue;
            }
            Node::Apply { function, args, bounds } => {
                if functions.insert(function.clone()) {
                    let sorts = vec!["Int"; args.len()].join(" ");
                    writeln!(out, "(declare-fun |{function}| ({sorts}) Int)").ok();
                }
                let list: Vec<&str> = args.iter().map(name).collect();
                let applied = format!("(|{function}| {})", list.join(" "));
                let short = format!("n{}", names.len());
                writeln!(out, "(define-fun {short} () Int {applied})").ok();
                bounded(&mut out, &short, bounds);
                names.insert(t, short);
                continue;
            }
            Node::Linear { c, parts } => linear(*c, parts, &names),
            // The solver knows only bounds of the product: what follows from them holds of the product too.
            Node::Product(factors) if factors.iter().any(|f| terms.is_dimension(*f)) => {
                let short = format!("n{}", names.len());
                writeln!(out, "(declare-const {short} Int)").ok();
                bounded(&mut out, &short, &terms.bounds(t));
                names.insert(t, short);
                continue;
            }
            Node::Product(factors) => format!("(* {})", factors.iter().map(name).collect::<Vec<_>>().join(" ")),
            Node::Div(a, d) => format!("(div {} {d})", name(a)),
            Node::Mod(a, d) => format!("(mod {} {d})", name(a)),
            Node::Ite(c, a, b) => format!("(ite {} {} {})", name(c), name(a), name(b)),
            Node::Bool(b) => b.to_string(),
            Node::Le(a) => format!("(<= {} 0)", name(a)),
            Node::Zero(a) => format!("(= {} 0)", name(a)),
            Node::Not(a) => format!("(not {})", name(a)),
            Node::And(l) => format!("(and {})", l.iter().map(name).collect::<Vec<_>>().join(" ")),
            Node::Or(l) => format!("(or {})", l.iter().map(name).collect::<Vec<_>>().join(" ")),
        };
        let short = format!("n{}", names.len());
        let sort = if terms.is_bool(t) { "Bool" } else { "Int" };
        writeln!(out, "(define-fun {short} () {sort} {body})").ok();
        names.insert(t, short);
    }
    for t in asserted {
        writeln!(out, "(assert {})", names[t]).ok();
    }
    out
}

fn number(v: i128) -> String {
    if v < 0 { format!("(- {})", v.unsigned_abs()) } else { v.to_string() }
}

fn linear(c: i128, parts: &[(Term, i128)], names: &std::collections::HashMap<Term, String>) -> String {
    if parts.is_empty() {
        return number(c);
    }
    let mut out = String::from("(+");
    if c != 0 {
        write!(out, " {}", number(c)).ok();
    }
    for (t, k) in parts {
        match k {
            1 => write!(out, " {}", names[t]).ok(),
            _ => write!(out, " (* {} {})", number(*k), names[t]).ok(),
        };
    }
    if c == 0 && parts.len() == 1 {
        return out.replacen("(+ ", "", 1);
    }
    out.push(')');
    out
}
