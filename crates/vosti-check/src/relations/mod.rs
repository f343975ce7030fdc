//! The relations, one in each file: the paper's four, then Vosti's own.

mod arrivals;
mod batch;
mod choices;
mod chunk;
mod decode;
mod machine;
mod pools;
mod prefix;
mod pressure;
mod speculation;
mod storage;

use super::runner::{Answer, Runner};
use super::{CheckError, Facts, Pair, Profile, Relation, Setup, Subject, SuiteOptions, prompts};
use std::cell::OnceCell;
use std::time::Instant;
use vosti_core::PAGE;
use vosti_engine::progress::Progress;
use vosti_engine::{Policy, Request, Sampling};

/// The relations' names, in the order of the report.
pub const NAMES: [&str; 11] = [
    "batch",
    "chunk",
    "prefill-decode",
    "prefix",
    "pressure",
    "pools",
    "arrivals",
    "speculation",
    "choices",
    "machine",
    "storage",
];

/// One run of the suite.
pub struct Suite<'a, S: Subject> {
    subject: &'a S,
    options: &'a SuiteOptions,
    progress: &'a dyn Progress,
    workload: OnceCell<Workload>,
}

/// A function that adds a relation's pairs, one after the other. It returns false if the subject has nothing to compare.
type Run<'a, S> = fn(&Suite<'a, S>, &mut Relation) -> Result<bool, CheckError>;

/// The requests of the relations beyond the paper, and the answer that each gets alone.
pub struct Workload {
    pub requests: Vec<Request>,
    pub alone: Vec<Answer>,
    /// Requests that were too long.
    pub dropped: usize,
}

impl<'a, S: Subject> Suite<'a, S> {
    /// A run of the suite over a subject.
    pub fn new(subject: &'a S, options: &'a SuiteOptions, progress: &'a dyn Progress) -> Self {
        Suite { subject, options, progress, workload: OnceCell::new() }
    }

    /// Runs one relation and measures its time. None if this subject has nothing to compare in it. If the work is ended, the
    /// relation has the pairs so far; it is an error if there are none.
    pub fn run(&self, name: &'static str) -> Result<Option<Relation>, CheckError> {
        let (claim, run): (&'static str, Run<'a, S>) = match name {
            "batch" => (batch::CLAIM, batch::run),
            "chunk" => (chunk::CLAIM, chunk::run),
            "prefill-decode" => (decode::CLAIM, decode::run),
            "prefix" => (prefix::CLAIM, prefix::run),
            "pressure" => (pressure::CLAIM, pressure::run),
            "pools" => (pools::CLAIM, pools::run),
            "arrivals" => (arrivals::CLAIM, arrivals::run),
            "speculation" => (speculation::CLAIM, speculation::run),
            "choices" => (choices::CLAIM, choices::run),
            "storage" => (storage::CLAIM, storage::run),
            _ => (machine::CLAIM, machine::run),
        };
        let (start, mut relation) = (Instant::now(), Relation::new(name, claim));
        let has_some = match run(self, &mut relation) {
            Err(CheckError::Interrupted) if !relation.pairs.is_empty() => {
                relation.interrupted = true;
                true
            }
            has_some => has_some?,
        };
        relation.seconds = start.elapsed().as_secs_f64();
        Ok(has_some.then_some(relation))
    }

    /// Digests of the rows that another process computes again.
    pub fn digests(&self) -> Result<Vec<String>, CheckError> {
        let answers = machine::reproduced(self)?;
        Ok(answers.iter().flat_map(|answer| &answer.rows).map(|row| row.digest.to_hex().to_string()).collect())
    }

    fn facts(&self) -> &Facts {
        self.subject.facts()
    }

    fn profile(&self) -> &Profile {
        &self.options.profile
    }

    fn seed(&self) -> u64 {
        self.options.seed
    }

    /// The longest prompt that is compared.
    pub fn length_max(&self) -> usize {
        self.options.prompt_max.unwrap_or(usize::MAX).min(self.facts().context.saturating_sub(1))
    }

    /// Whether a case whose prompt is `prompt` and which then generates `answer` tokens is compared.
    fn fits(&self, prompt: usize, answer: usize) -> bool {
        prompt <= self.length_max() && prompt + answer <= self.facts().context
    }

    fn prompt(&self, label: &str, len: usize) -> Vec<vosti_engine::Token> {
        prompts::prompt(self.facts(), self.seed(), label, len)
    }

    /// An engine without a prefix cache, with room for all of `requests` and steps of `rows`.
    fn plain(&self, requests: &[Request], rows: usize) -> Setup {
        let policy = Policy { rows_step_max: rows, prefix_cache: false, ..Policy::default() };
        Setup {
            policy,
            pool_tokens: demand(requests),
            rows_max: rows,
            threads: None,
            instruction_set: None,
            expanded: false,
        }
    }

    fn runner(&self, setup: &Setup, keep: bool) -> Result<Runner<'a, S>, CheckError> {
        Runner::new(self.subject, setup, self.progress, keep)
    }

    /// The workload and its reference, computed once.
    fn workload(&self) -> Result<&Workload, CheckError> {
        if let Some(workload) = self.workload.get() {
            return Ok(workload);
        }
        let profile = self.profile();
        let fits = |len: &usize| self.fits(*len, profile.answer);
        let lengths: Vec<usize> = profile.workload.iter().copied().filter(fits).collect();
        let dropped = profile.workload.len() - lengths.len();
        let requests = prompts::workload(self.facts(), self.seed(), &lengths, profile.answer);
        self.progress.stage("reference: each request alone", requests.len() as u64);
        let longest = requests.iter().map(|r| r.prompt.len()).max().unwrap_or(1);
        let mut runner = self.runner(&self.plain(&requests, longest), false)?;
        let mut alone = Vec::new();
        for request in &requests {
            alone.push(runner.alone(request)?);
            self.progress.done(alone.len() as u64);
        }
        Ok(self.workload.get_or_init(|| Workload { requests, alone, dropped }))
    }
}

/// Tokens, in whole pages, that all requests together need, for all their choices.
fn demand(requests: &[Request]) -> usize {
    requests.iter().map(need).sum()
}

/// Tokens, in whole pages, that one request needs for all its choices.
fn need(request: &Request) -> usize {
    (request.prompt.len() + request.sampling.tokens_max).div_ceil(PAGE) * PAGE * request.choices as usize
}

/// A request for the one logits vector that follows `prompt`.
fn last_logits(prompt: Vec<vosti_engine::Token>) -> Request {
    Request::new(prompt, Sampling::greedy(1))
}

/// Compares every row of `answer`, and its token, with the same row of `alone`. Rows after an abort are not required.
fn pairs_of_rows(relation: &mut Relation, label: &str, alone: &Answer, answer: &Answer, aborted: bool) {
    let rows = if aborted { answer.rows.len() } else { alone.rows.len().max(answer.rows.len()) };
    for i in 0..rows {
        let mut pair = Pair::new(format!("{label}, token {i}"), alone.rows.get(i), answer.rows.get(i), None);
        if pair.equal && alone.tokens.get(i) != answer.tokens.get(i) {
            pair.equal = false;
            pair.difference = Some("the logits are equal and the sampled tokens are not".into());
        }
        relation.pairs.push(pair);
    }
}
