//! Answers of the solver by the hash of the question, in a checked-in text file.
//!
//! The cache replaces calls of the solver only: lifting, rules and simplification always run again. A
//! read-only cache gives the answers that it has and refuses other questions. A seeded share of its
//! answers is solved again, so that a wrong `unsat` is found. Only `sat` and `unsat` are kept.

use crate::solver::Answer;
use std::collections::BTreeMap;

/// What the line that names the solver starts with.
const SOLVER: &str = "# solver ";

/// Recorded answers of a solver, by the hash of the question.
#[derive(Clone, Default)]
pub struct Cache {
    answers: BTreeMap<String, Answer>,
    /// Version line of the solver that gave the answers; empty if there are none.
    pub solver: String,
    /// Refuse a question without a recorded answer instead of asking the solver.
    pub read_only: bool,
    /// Percentage of the answers to solve again, 0 to 100; the hash mixed with the seed selects them.
    pub recheck_percent: u8,
    /// Seed that selects the answers to solve again.
    pub seed: u64,
}

impl Cache {
    /// A cache without answers: every question is solved.
    pub fn none() -> Cache {
        Cache::default()
    }

    /// Reads [`Cache::to_text`]. A line that is not an answer is dropped.
    pub fn from_text(text: &str) -> Cache {
        let solver = text.lines().find_map(|l| l.strip_prefix(SOLVER)).unwrap_or_default();
        let mut cache = Cache { solver: solver.to_string(), ..Cache::default() };
        for line in text.lines().filter(|l| !l.starts_with('#')) {
            let answer = match line.split_once(' ') {
                Some((hash, "unsat")) => (hash, Answer::Unsat),
                Some((hash, "sat")) => (hash, Answer::Sat),
                _ => continue,
            };
            cache.answers.insert(answer.0.to_string(), answer.1);
        }
        cache
    }

    /// The hash of a question's SMT-LIB text.
    pub fn key(query: &str) -> String {
        blake3::hash(query.as_bytes()).to_hex()[..32].to_string()
    }

    /// The recorded answer, if there is one.
    pub fn get(&self, hash: &str) -> Option<Answer> {
        self.answers.get(hash).copied()
    }

    /// Records an answer. `unknown` is never recorded.
    pub fn put(&mut self, hash: String, answer: Answer) {
        if answer != Answer::Unknown {
            self.answers.insert(hash, answer);
        }
    }

    /// Whether this answer is among the share to solve again.
    pub fn recheck(&self, hash: &str) -> bool {
        if self.recheck_percent == 0 {
            return false;
        }
        let mixed = blake3::hash(format!("{} {hash}", self.seed).as_bytes());
        mixed.as_bytes()[0] as u32 * 100 < self.recheck_percent as u32 * 256
    }

    /// How many answers are recorded.
    pub fn len(&self) -> usize {
        self.answers.len()
    }

    /// Whether no answer is recorded.
    pub fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    /// The text that [`Cache::from_text`] reads.
    pub fn to_text(&self) -> String {
        let mut text = String::from("# answers of the solver by question hash; made by `vosti verify --record`\n");
        text.push_str(&format!("{SOLVER}{}\n", self.solver));
        for (hash, answer) in &self.answers {
            let word = if *answer == Answer::Unsat { "unsat" } else { "sat" };
            text.push_str(&format!("{hash} {word}\n"));
        }
        text
    }
}
