//! The suite's results, as data: for the terminal, `--json` and `--html`.

use super::evidence::Row;
use super::{Facts, SuiteOptions};
use serde::{Serialize, Serializer};
use std::fmt::Write;
use vosti_engine::random::in_json;

/// Two runs that must give the same logits vector, compared.
#[derive(Clone, Debug, Serialize)]
pub struct Pair {
    /// A description of the comparison.
    pub label: String,
    /// True if all bits are equal.
    pub equal: bool,
    /// How the two differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub difference: Option<String>,
    /// Required events that did not occur.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

impl Pair {
    /// Compares two rows; `missing` is evidence that the pair itself lacks.
    pub fn new(label: String, reference: Option<&Row>, other: Option<&Row>, missing: Option<String>) -> Self {
        let (Some(a), Some(b)) = (reference, other) else {
            let absent = if reference.is_none() { "reference" } else { "compared" };
            let difference = Some(format!("the {absent} run gave no such row"));
            return Pair { label, equal: false, difference, missing };
        };
        let position = (a.position != b.position).then(|| format!("positions {} and {}", a.position, b.position));
        let difference = position.or_else(|| a.difference(b));
        let missing = missing.or_else(|| a.insane.clone()).or_else(|| b.insane.clone());
        Pair { label, equal: difference.is_none(), difference, missing }
    }

    /// Equal, and for the right reason.
    pub fn passed(&self) -> bool {
        self.equal && self.missing.is_none()
    }
}

/// One relation's pairs.
#[derive(Clone, Debug, Serialize)]
pub struct Relation {
    /// The relation's name, as `--only` takes it.
    pub name: &'static str,
    /// The meaning of a pass, in one sentence.
    pub claim: &'static str,
    /// The comparisons; each is one row of a request in two runs.
    pub pairs: Vec<Pair>,
    /// Pairs left out because their prompt is longer than `--max-prompt` or the context.
    pub dropped: usize,
    /// Events counted, e.g. ("evictions", 31).
    pub seen: Vec<(&'static str, u64)>,
    /// Evidence that the relation as a whole lacks.
    pub missing: Vec<String>,
    /// Wall time of the relation, in seconds.
    pub seconds: f64,
    /// True if it was ended early: pairs are missing, and not all events were counted.
    pub interrupted: bool,
}

impl Relation {
    /// A relation without pairs.
    pub fn new(name: &'static str, claim: &'static str) -> Self {
        Relation {
            name,
            claim,
            pairs: vec![],
            dropped: 0,
            seen: vec![],
            missing: vec![],
            seconds: 0.0,
            interrupted: false,
        }
    }

    /// Records the count of an event. Fewer than `least` are missing evidence.
    pub fn saw(&mut self, what: &'static str, count: u64, least: u64) {
        self.seen.push((what, count));
        if count < least {
            self.missing.push(format!("{count} {what}, at least {least} are needed"));
        }
    }

    /// How many pairs are equal.
    pub fn equal(&self) -> usize {
        self.pairs.iter().filter(|pair| pair.equal).count()
    }

    /// True if there are pairs, every pair is equal, the required events occurred, and the relation was not ended early.
    pub fn passed(&self) -> bool {
        self.sound() && !self.interrupted
    }

    /// True if it was ended early and nothing was wrong so far: neither a pass nor a failure.
    pub fn undecided(&self) -> bool {
        self.sound() && self.interrupted
    }

    fn sound(&self) -> bool {
        !self.pairs.is_empty() && self.missing.is_empty() && self.pairs.iter().all(Pair::passed)
    }

    /// True if a pair differs or evidence is missing.
    pub fn failed(&self) -> bool {
        !self.sound() && !self.skipped()
    }

    /// True if nothing was compared because every case was too long: neither a pass nor a failure.
    pub fn skipped(&self) -> bool {
        self.pairs.is_empty() && self.dropped > 0
    }
}

/// Writes a seed.
pub(crate) fn seed<S: Serializer>(seed: &u64, to: S) -> Result<S::Ok, S::Error> {
    match in_json(i128::from(*seed)) {
        Ok(number) => to.serialize_i64(number),
        Err(digits) => to.serialize_str(&digits),
    }
}

/// The suite's result.
#[derive(Clone, Debug, Serialize)]
pub struct SuiteReport {
    /// The model, as its facts name it.
    pub model: String,
    /// The deployment's fingerprint.
    pub fingerprint: String,
    /// The profile's name.
    pub profile: &'static str,
    /// Seed of every random choice in the suite.
    #[serde(serialize_with = "crate::report::seed")]
    pub seed: u64,
    /// The longest prompt that was allowed, in tokens; `None`: only the context limits it.
    pub prompt_max: Option<usize>,
    /// True if at least one relation passed, every other one passed or was skipped, and the suite was not ended early.
    pub passed: bool,
    /// Pairs that were compared.
    pub pairs: usize,
    /// Pairs whose logits are equal, bit for bit.
    pub pairs_equal: usize,
    /// Pairs that were left out as too long.
    pub pairs_dropped: usize,
    /// Wall time of the suite, in seconds.
    pub seconds: f64,
    /// True if it was ended early: not everything was compared.
    pub interrupted: bool,
    /// In the order in which they ran.
    pub relations: Vec<Relation>,
}

impl SuiteReport {
    /// The report of a run that ended, or that was interrupted.
    pub fn new(facts: &Facts, options: &SuiteOptions, relations: Vec<Relation>, interrupted: bool) -> Self {
        let passed = relations.iter().all(|r| r.passed() || r.skipped()) && relations.iter().any(Relation::passed);
        let sum = |f: &dyn Fn(&Relation) -> usize| relations.iter().map(f).sum();
        SuiteReport {
            model: facts.model.clone(),
            fingerprint: facts.fingerprint.clone(),
            profile: options.profile.name,
            seed: options.seed,
            prompt_max: options.prompt_max,
            passed: passed && !interrupted,
            interrupted,
            pairs: sum(&|r| r.pairs.len()),
            pairs_equal: sum(&Relation::equal),
            pairs_dropped: sum(&|r| r.dropped),
            seconds: relations.iter().map(|r| r.seconds).sum(),
            relations,
        }
    }

    /// The table for a terminal, with the first failures below it.
    pub fn table(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "{} · profile {} · seed {}", self.model, self.profile, self.seed);
        let _ = writeln!(out, "fingerprint {}\n", self.fingerprint);
        let _ =
            writeln!(out, "{:<16} {:>6} {:>6} {:>8} {:>8}  seen", "relation", "equal", "pairs", "dropped", "seconds");
        for r in &self.relations {
            let seen: Vec<String> = r.seen.iter().map(|(what, count)| format!("{count} {what}")).collect();
            let verdict = if r.passed() {
                ""
            } else if r.skipped() {
                "  (all dropped)"
            } else if r.undecided() {
                "  (ended early)"
            } else {
                "  FAILED"
            };
            let (equal, pairs) = (r.equal(), r.pairs.len());
            let _ = writeln!(
                out,
                "{:<16} {equal:>6} {pairs:>6} {:>8} {:>8.1}  {}{verdict}",
                r.name,
                r.dropped,
                r.seconds,
                seen.join(", ")
            );
        }
        let _ = writeln!(
            out,
            "{:<16} {:>6} {:>6} {:>8} {:>8.1}\n",
            "all", self.pairs_equal, self.pairs, self.pairs_dropped, self.seconds
        );
        self.list_failures(&mut out);
        let verdict = match (self.passed, self.pairs_dropped) {
            (true, 0) => "passed: every pair is equal bit for bit, with evidence".to_string(),
            (true, n) => format!("passed: every pair is equal bit for bit, with evidence ({n} too long, dropped)"),
            (false, _) if self.interrupted && !self.relations.iter().any(Relation::failed) => {
                "interrupted: no verdict, the other pairs were not compared".to_string()
            }
            (false, _) => "FAILED".to_string(),
        };
        let _ = writeln!(out, "{verdict}");
        out
    }

    /// At most this many failures of a relation are listed.
    const LISTED_MAX: usize = 3;

    fn list_failures(&self, out: &mut String) {
        for r in self.relations.iter().filter(|r| r.failed()) {
            for missing in &r.missing {
                let _ = writeln!(out, "{}: no evidence: {missing}", r.name);
            }
            let failed: Vec<&Pair> = r.pairs.iter().filter(|pair| !pair.passed()).collect();
            for pair in failed.iter().take(Self::LISTED_MAX) {
                let why =
                    pair.difference.clone().or_else(|| pair.missing.as_ref().map(|m| format!("no evidence: {m}")));
                let _ = writeln!(out, "{}: {}: {}", r.name, pair.label, why.unwrap_or_default());
            }
            if failed.len() > Self::LISTED_MAX {
                let _ = writeln!(out, "{}: and {} more", r.name, failed.len() - Self::LISTED_MAX);
            }
            if r.pairs.is_empty() {
                let _ = writeln!(out, "{}: no pair was compared", r.name);
            }
        }
    }
}
