//! A solver as a process: questions in SMT-LIB on its input, one word back for each.
//!
//! If a program is missing, ends, hangs or says something else, the outcome is an error with its name, never an answer.
//! Every wait has a time limit, which the caller gives.

use crate::solver::{Answer, SolverError, WANTED};
use std::io::{BufRead, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// A solver's command line and options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    Z3,
    Cvc5,
}

impl Dialect {
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Dialect::Z3 => &["-in", "-smt2"],
            Dialect::Cvc5 => &["--lang=smt2", "--incremental", "-"],
        }
    }

    /// A question as it is sent, with a time limit. Z3 gets a scope of its own for each: that leaves as little behind as a
    /// reset, and Z3 answers four times as fast, because it skips the passes that only pay for larger questions.
    fn question(self, query: &str, millis: u64) -> String {
        match self {
            Dialect::Z3 => format!("(set-option :timeout {millis})\n(push)\n{query}(check-sat)\n(pop)\n"),
            Dialect::Cvc5 => self.afresh(query, millis),
        }
    }

    /// The same question after a reset, so that the solver keeps nothing of earlier questions.
    fn afresh(self, query: &str, millis: u64) -> String {
        let options = match self {
            Dialect::Z3 => format!("(set-option :timeout {millis})"),
            Dialect::Cvc5 => format!("(set-option :tlimit-per {millis})\n(set-logic ALL)"),
        };
        format!("(reset)\n{options}\n{query}(check-sat)\n(reset)\n")
    }
}

struct Running {
    child: Child,
    questions: Sender<String>,
    lines: Receiver<String>,
}

/// A solver's process. It starts with the first question, and again after an error.
pub struct Process {
    pub program: PathBuf,
    dialect: Dialect,
    running: Option<Running>,
}

impl Process {
    pub fn new(program: PathBuf, dialect: Dialect) -> Process {
        Process { program, dialect, running: None }
    }

    fn start(&mut self) -> Result<(), SolverError> {
        let missing = |why: String| match self.dialect {
            Dialect::Z3 => SolverError::Missing { program: self.program.display().to_string(), why, wanted: WANTED },
            Dialect::Cvc5 => SolverError::NoSecond { program: self.program.display().to_string(), why },
        };
        let mut command = Command::new(&self.program);
        command.args(self.dialect.arguments()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| missing(error.to_string()))?;
        let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(missing("it has no pipes".into()));
        };
        let (questions, asked) = channel::<String>();
        let (say, lines) = channel();
        // A program that does not read blocks its writer, so a thread of its own writes.
        std::thread::spawn(move || {
            for text in asked {
                if input.write_all(text.as_bytes()).and_then(|()| input.flush()).is_err() {
                    break;
                }
            }
        });
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if say.send(line).is_err() {
                    break;
                }
            }
        });
        self.running = Some(Running { child, questions, lines });
        Ok(())
    }

    /// Asks whether the assertions of `query` can hold. The program itself gives up after `limit`; after `patience` without a
    /// line it is stopped, which is an error. If Z3 gives up, it is asked once more, after a reset and with all its passes.
    pub fn ask(&mut self, query: &str, limit: Duration, patience: Duration) -> Result<Answer, SolverError> {
        let millis = limit.as_millis() as u64;
        match self.send(self.dialect.question(query, millis), patience)? {
            Answer::Unknown if self.dialect == Dialect::Z3 => self.send(self.dialect.afresh(query, millis), patience),
            answer => Ok(answer),
        }
    }

    fn send(&mut self, text: String, patience: Duration) -> Result<Answer, SolverError> {
        if self.running.is_none() {
            self.start()?;
        }
        let received = match &self.running {
            Some(running) if running.questions.send(text).is_ok() => running.lines.recv_timeout(patience),
            _ => Err(RecvTimeoutError::Disconnected),
        };
        let program = self.program.display().to_string();
        let error = match received.as_deref() {
            Ok("sat") => return Ok(Answer::Sat),
            Ok("unsat") => return Ok(Answer::Unsat),
            Ok("unknown" | "timeout") => return Ok(Answer::Unknown),
            Ok(line) => SolverError::Babble { program, line: line.chars().take(120).collect() },
            Err(RecvTimeoutError::Timeout) => SolverError::Hung { program, millis: patience.as_millis() as u64 },
            Err(RecvTimeoutError::Disconnected) => SolverError::Crashed { program, why: "it ended".into() },
        };
        self.stop();
        Err(error)
    }

    fn stop(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.child.kill().ok();
            running.child.wait().ok();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The first line that a program prints for `--version`; empty if it does not start or prints nothing in time.
pub fn version(program: &Path, patience: Duration) -> String {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return String::new() };
    let Some(output) = child.stdout.take() else { return String::new() };
    let (say, said) = channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        _ = output.take(4096).read_to_string(&mut text);
        _ = say.send(text);
    });
    let text = said.recv_timeout(patience).unwrap_or_default();
    child.kill().ok();
    child.wait().ok();
    text.lines().next().unwrap_or_default().trim().to_string()
}
