//! The SMT solver as an external process, asked about integers and booleans only.
//!
//! A [`Query`] is a self-contained SMT-LIB text, so that its hash names the question. Questions go
//! to the [`crate::cache::Cache`] first and to the process second; the process starts with the
//! first question that needs it. A missing, crashed or hung solver is an error, never an answer.

use crate::cache::Cache;
use crate::term::{Node, Term, Terms};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;
use thiserror::Error;

/// What a solver says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Sat,
    Unsat,
    Unknown,
}

#[derive(Debug, Error)]
pub enum SolverError {
    #[error(
        "no solver: `{program}` does not start ({why}). Install it with `pip install z3-solver=={WANTED}` and put it on PATH, or name it in VOSTI_Z3"
    )]
    Missing { program: String, why: String },
    #[error("the solver `{program}` stopped in the middle of a question: {why}")]
    Crashed { program: String, why: String },
    #[error("the solver `{program}` did not answer within {seconds} s and was stopped")]
    Hung { program: String, seconds: u64 },
    #[error("the solver `{program}` answered `{line}`, which is not sat, unsat or unknown")]
    Babble { program: String, line: String },
    #[error(
        "no checked-in answer to question {hash}, and the cache is read-only: run `vosti verify --record` with a solver, and commit crates/vosti-verify/cache"
    )]
    NotCached { hash: String },
}

/// The version whose answers are checked in.
pub const WANTED: &str = "4.12.5.0";
const QUERY_TIMEOUT_MS: u64 = 10_000;

/// Where the z3 program is: VOSTI_Z3, PATH, or the environment that `cargo xtask python` makes.
pub fn find_z3() -> PathBuf {
    if let Some(path) = std::env::var_os("VOSTI_Z3") {
        return path.into();
    }
    let on_path = std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    let target = std::env::var_os("CARGO_TARGET_DIR").map(|dir| PathBuf::from(dir).join("python/bin"));
    let here = std::env::current_dir().unwrap_or_default();
    let made = here.ancestors().flat_map(|dir| ["target/python/bin", "target/venv/bin"].map(|sub| dir.join(sub)));
    let folders = on_path.unwrap_or_default().into_iter().chain(target).chain(made);
    folders.map(|dir| dir.join("z3")).find(|p| p.is_file()).unwrap_or_else(|| PathBuf::from("z3"))
}

struct Process {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

/// Counts of what a [`Solver`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub asked: u64,
    pub cached: u64,
    /// Cached answers that were solved again and agreed.
    pub rechecked: u64,
    /// Cached answers that the solver could not give again within its time.
    pub gave_up: u64,
    /// Cached answers that were solved again and did not agree: the cache is wrong.
    pub disagreed: u64,
}

impl Counts {
    pub fn add(&mut self, other: &Counts) {
        self.asked += other.asked;
        self.cached += other.cached;
        self.rechecked += other.rechecked;
        self.gave_up += other.gave_up;
        self.disagreed += other.disagreed;
    }
}

pub struct Solver {
    program: PathBuf,
    process: Option<Process>,
    pub cache: Cache,
    /// The answers that were given, from wherever they came.
    pub used: Cache,
    pub counts: Counts,
}

impl Solver {
    pub fn new(program: PathBuf, cache: Cache) -> Solver {
        Solver { program, process: None, cache, used: Cache::none(), counts: Counts::default() }
    }

    /// The solver's own version line; empty when it does not start.
    pub fn version(&self) -> String {
        let out = Command::new(&self.program).arg("--version").output();
        out.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_string()).unwrap_or_default()
    }

    pub fn check(&mut self, query: &str) -> Result<Answer, SolverError> {
        let hash = Cache::key(query);
        let answer = self.answer(query, &hash)?;
        self.used.put(hash, answer);
        Ok(answer)
    }

    fn answer(&mut self, query: &str, hash: &str) -> Result<Answer, SolverError> {
        if let Some(known) = self.cache.get(hash) {
            self.counts.cached += 1;
            if !self.cache.recheck(hash) {
                return Ok(known);
            }
            let fresh = self.ask(query)?;
            match fresh {
                // Another version may give up where one answered: that refutes nothing.
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
        let answer = self.ask(query)?;
        self.cache.put(hash.to_string(), answer);
        Ok(answer)
    }

    fn name(&self) -> String {
        self.program.display().to_string()
    }

    fn start(&mut self) -> Result<&mut Process, SolverError> {
        if self.process.is_none() {
            let mut child = Command::new(&self.program)
                .args(["-in", "-smt2"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .map_err(|error| SolverError::Missing { program: self.name(), why: error.to_string() })?;
            let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
                return Err(SolverError::Missing { program: self.name(), why: "no pipes".into() });
            };
            let (send, lines) = channel();
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if send.send(line).is_err() {
                        break;
                    }
                }
            });
            self.process = Some(Process { child, input, lines });
        }
        Ok(self.process.as_mut().expect("it was just started"))
    }

    fn ask(&mut self, query: &str) -> Result<Answer, SolverError> {
        let program = self.name();
        self.counts.asked += 1;
        let text = format!("(reset)\n(set-option :timeout {QUERY_TIMEOUT_MS})\n{query}(check-sat)\n");
        let process = self.start()?;
        let wait = Duration::from_millis(3 * QUERY_TIMEOUT_MS);
        let sent = process.input.write_all(text.as_bytes()).and_then(|()| process.input.flush());
        if let Err(error) = sent {
            self.stop();
            return Err(SolverError::Crashed { program, why: error.to_string() });
        }
        let answer = process.lines.recv_timeout(wait);
        match answer.as_deref() {
            Ok("sat") => Ok(Answer::Sat),
            Ok("unsat") => Ok(Answer::Unsat),
            Ok("unknown") | Ok("timeout") => Ok(Answer::Unknown),
            Ok(line) => {
                let line = line.to_string();
                self.stop();
                Err(SolverError::Babble { program, line })
            }
            Err(RecvTimeoutError::Timeout) => {
                self.stop();
                Err(SolverError::Hung { program, seconds: wait.as_secs() })
            }
            Err(RecvTimeoutError::Disconnected) => {
                self.stop();
                Err(SolverError::Crashed { program, why: "it ended".into() })
            }
        }
    }

    fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.child.kill().ok();
            process.child.wait().ok();
        }
    }
}

impl Drop for Solver {
    fn drop(&mut self) {
        self.stop();
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
            Node::Product(a, b) => format!("(* {} {})", name(a), name(b)),
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
