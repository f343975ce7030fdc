//! The measurements of a server, as data and as a table.

use super::EndpointOptions;
use super::client::{Client, Route, Transcript};
use super::courses::Round;
use serde::Serialize;
use std::fmt::Write;
use std::sync::atomic::Ordering;

/// One course's answers, compared with the references.
#[derive(Clone, Debug, Serialize)]
pub struct Course {
    /// How the requests were sent: alone, together, in another order.
    pub name: String,
    /// Answers that were compared.
    pub answers: usize,
    /// Answers whose text is the reference's.
    pub texts_equal: usize,
    /// Answers whose tokens and printed numbers are all equal to the reference's. Answers without log-probabilities do not count.
    pub logprobs_equal: usize,
    /// Answers whose log-probabilities could be compared.
    pub with_logprobs: usize,
    /// Answers with a text for which the server gave no log-probabilities, here or when asked alone. Every request asks for them.
    pub without_logprobs: usize,
    /// Largest difference of a token's log-probability, up to the first token that differs.
    pub difference_max: f64,
    /// Tokens before the earliest difference of any answer.
    pub first_difference: Option<usize>,
    /// Most requests in flight at the same time.
    pub in_flight_max: usize,
    /// Prompt tokens from the cache, as the server reports them; none: it reports nothing.
    pub cached_tokens: Option<u64>,
    /// Seconds from the first request to the last answer.
    pub seconds: f64,
}

impl Course {
    /// A course without answers yet.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            answers: 0,
            texts_equal: 0,
            logprobs_equal: 0,
            with_logprobs: 0,
            without_logprobs: 0,
            difference_max: 0.0,
            first_difference: None,
            in_flight_max: 0,
            cached_tokens: None,
            seconds: 0.0,
        }
    }

    /// Adds a round's concurrency, time and cached tokens.
    pub fn saw(&mut self, round: &Round) {
        self.in_flight_max = self.in_flight_max.max(round.in_flight_max);
        self.seconds += round.seconds;
        for cached in round.answers.iter().filter_map(|answer| answer.cached) {
            *self.cached_tokens.get_or_insert(0) += cached;
        }
    }

    /// Compares an answer with its reference and counts it.
    pub fn compare(&mut self, reference: &Transcript, answer: &Transcript) {
        self.answers += 1;
        self.texts_equal += usize::from(reference.text == answer.text);
        if reference.tokens.is_empty() || answer.tokens.is_empty() {
            // An empty answer has no tokens, so nothing is missing.
            let both_empty = [reference, answer].iter().all(|one| one.text.is_empty() && one.tokens.is_empty());
            self.without_logprobs += usize::from(!both_empty);
            return;
        }
        self.with_logprobs += 1;
        self.logprobs_equal += usize::from(reference.tokens == answer.tokens);
        let both = reference.tokens.iter().zip(&answer.tokens);
        for (index, (a, b)) in both.enumerate() {
            if a != b {
                let first = self.first_difference.get_or_insert(index);
                *first = index.min(*first);
            }
            if a.token != b.token {
                return;
            }
            self.difference_max = self.difference_max.max((a.logprob - b.logprob).abs());
        }
    }

    /// True if there are answers, every text is the reference's, and all log-probabilities are the reference's. They may be missing
    /// only if no answer of the course has them.
    pub fn passed(&self) -> bool {
        let complete = self.with_logprobs == 0 || self.without_logprobs == 0;
        self.answers > 0 && self.equal() && complete
    }

    /// True if everything that was compared is equal.
    fn equal(&self) -> bool {
        self.texts_equal == self.answers && self.logprobs_equal == self.with_logprobs
    }
}

/// The measurements of a server.
#[derive(Clone, Debug, Serialize)]
pub struct EndpointReport {
    /// The server's address.
    pub endpoint: String,
    /// As `/v1/models` names it.
    pub model: String,
    /// The server's name for its deployment.
    pub system_fingerprint: String,
    /// The path that was asked.
    pub route: &'static str,
    /// Seed of every random choice.
    #[serde(serialize_with = "crate::report::seed")]
    pub seed: u64,
    /// Prompts in a course.
    pub prompts: usize,
    /// The most tokens of an answer.
    pub tokens: usize,
    /// How often the server was full and was asked again.
    pub full: u64,
    /// True if every course passed. A server that prints no log-probabilities at all passes by its texts alone; one that prints them
    /// for some answers only fails.
    pub passed: bool,
    /// In the order in which they ran.
    pub courses: Vec<Course>,
}

impl EndpointReport {
    pub(super) fn new(client: &Client, options: &EndpointOptions, courses: Vec<Course>) -> Self {
        Self {
            endpoint: options.url.clone(),
            model: client.model.clone(),
            system_fingerprint: client.says.clone(),
            route: match client.route {
                Route::Completions => "/v1/completions",
                Route::Chat => "/v1/chat/completions",
            },
            seed: options.seed,
            prompts: options.prompts,
            tokens: options.tokens,
            full: client.full.load(Ordering::Relaxed),
            passed: courses.iter().all(Course::passed) && complete(&courses),
            courses,
        }
    }

    /// The table for a terminal.
    pub fn table(&self) -> String {
        let mut out = String::new();
        let says = if self.system_fingerprint.is_empty() { "no fingerprint" } else { &self.system_fingerprint };
        let _ = writeln!(out, "{} · {} · {} · {says}", self.endpoint, self.route, self.model);
        let (prompts, tokens, seed) = (self.prompts, self.tokens, self.seed);
        let _ = writeln!(out, "{prompts} prompts, each greedy and sampled, {tokens} tokens · seed {seed}\n");
        let _ = writeln!(
            out,
            "{:<18} {:>7} {:>9} {:>11} {:>11} {:>6} {:>6} {:>7} {:>7}",
            "course", "answers", "same text", "same logpr.", "largest", "from", "flying", "cached", "seconds"
        );
        let complete = complete(&self.courses);
        for c in &self.courses {
            let or_dash = |n: Option<String>| n.unwrap_or_else(|| "-".into());
            let logprobs = (c.with_logprobs > 0).then(|| format!("{}/{}", c.logprobs_equal, c.with_logprobs));
            let largest = (c.with_logprobs > 0).then(|| format!("{:.3e}", c.difference_max));
            let _ = writeln!(
                out,
                "{:<18} {:>7} {:>9} {:>11} {:>11} {:>6} {:>6} {:>7} {:>7.1}{}",
                c.name,
                c.answers,
                format!("{}/{}", c.texts_equal, c.answers),
                or_dash(logprobs),
                or_dash(largest),
                or_dash(c.first_difference.map(|n| n.to_string())),
                c.in_flight_max,
                or_dash(c.cached_tokens.map(|n| n.to_string())),
                c.seconds,
                match c {
                    c if c.answers == 0 || !c.equal() => "  DIFFERS",
                    c if !complete && c.without_logprobs > 0 => "  MISSING",
                    _ => "",
                }
            );
        }
        let _ = writeln!(out, "\n{}", self.verdict());
        out
    }

    fn verdict(&self) -> String {
        let answers: usize = self.courses.iter().map(|c| c.answers).sum();
        let texts: usize = self.courses.iter().map(|c| c.texts_equal).sum();
        let logprobs: usize = self.courses.iter().map(|c| c.logprobs_equal).sum();
        let with: usize = self.courses.iter().map(|c| c.with_logprobs).sum();
        let without: usize = self.courses.iter().map(|c| c.without_logprobs).sum();
        match self.passed {
            true if with == 0 => format!(
                "passed: {answers} answers, all with the text as when asked alone; only texts were compared, because the server gave no \
                 log-probabilities"
            ),
            true => format!("passed: {answers} answers, all as when asked alone, as printed"),
            false => format!(
                "FAILED: of {answers} answers {} have another text than when asked alone, {} other log-probabilities, {without} none",
                answers - texts,
                with - logprobs
            ),
        }
    }
}

/// True if the server gave log-probabilities for all answers, or for none.
fn complete(courses: &[Course]) -> bool {
    courses.iter().all(|c| c.with_logprobs == 0) || courses.iter().all(|c| c.without_logprobs == 0)
}
