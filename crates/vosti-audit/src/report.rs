//! The verdict of one kernel under its contract, for a person and as JSON.

use crate::compiled::Outcome;
use crate::render::Skipped;
use serde::Serialize;
use std::fmt;

/// What an audit's verdict rests on besides the verifier's assumptions: things that a kernel's author says, or that a TTIR does not
/// show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Premise {
    /// What `tl.multiple_of`, `tl.max_contiguous`, `tl.max_constancy` and `tl.assume` say is true.
    HintsHold,
    /// A reduction over all lanes of a tile takes them in an order that the compiled kernel fixes.
    OrderFixed,
    /// Another function stood for one that the tile IR does not have.
    StandIn,
    /// Launches that differ in `num_warps` or other options of the compiler sum in one order.
    OptionsAlike,
}

impl Premise {
    /// As JSON has it.
    pub fn name(self) -> &'static str {
        match self {
            Premise::HintsHold => "hints-hold",
            Premise::OrderFixed => "order-fixed",
            Premise::StandIn => "stand-in",
            Premise::OptionsAlike => "options-alike",
        }
    }

    /// The premise as a sentence.
    pub fn words(self) -> &'static str {
        match self {
            Premise::HintsHold => {
                "what the file's tl.multiple_of, tl.max_contiguous, tl.max_constancy and tl.assume say is true"
            }
            Premise::OrderFixed => {
                "a reduction without an axis takes the lanes in an order that the compiled kernel fixes"
            }
            Premise::StandIn => {
                "erf and functions of libdevice are functions of their operand alone; a proof knows nothing else of them"
            }
            Premise::OptionsAlike => "launches that differ in num_warps, num_stages or num_ctas sum in one order",
        }
    }
}

/// What was found of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// The contract holds of every input.
    Proved,
    /// Neither proved nor refuted.
    Unknown,
    /// Two runs that the contract relates gave different bits.
    Refuted,
}

/// The result for one kernel and one launch, or for two launches that must give the same bits.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The function.
    pub function: String,
    /// The launch as it was written; `A == B` for two.
    pub launch: String,
    /// The verdict.
    pub verdict: Finding,
    /// The verifier's words: what failed, and for a refuted kernel the two runs.
    pub why: Option<String>,
    /// The rule that failed: `subset`, `guard` and so on.
    pub obligation: Option<String>,
    /// The line of the Python file at which it failed.
    pub line: Option<u32>,
    /// The text of that line.
    pub source: Option<String>,
    /// Two runs with equal rows that differ.
    pub counterexample: Option<String>,
    /// What runs of the compiled kernel gave, where its verdict did not make them needless: equal bits, or why there was no run.
    pub compiled: Option<String>,
    /// The verifier's assumptions: name and sentence.
    pub assumptions: Vec<(String, &'static str)>,
    /// What it rests on besides.
    pub premises: Vec<Premise>,
    /// Seconds.
    pub seconds: f64,
}

impl Report {
    /// Takes what runs of compiled launches gave into the verdict.
    pub(crate) fn ran(&mut self, outcome: Outcome) {
        let found = match outcome {
            Outcome::Same(runs) => format!("{runs} pairs of runs gave equal bits"),
            Outcome::NotRun(why) => format!("not run: {why}"),
            Outcome::Different(how) => {
                if self.verdict == Finding::Proved {
                    // Of two launches alone: what is false of the compiler is what the proof assumed of it.
                    let assumed = self.conditions().join(" and ");
                    self.why = Some(format!(
                        "compiled: the proof of the TTIR assumes of the compiler what is false: {assumed}"
                    ));
                    self.obligation = Some("compiled".into());
                }
                self.verdict = Finding::Refuted;
                self.counterexample = Some(how);
                "two runs differ".into()
            }
        };
        self.compiled = Some(found);
    }

    /// What a reader of a proof must know to be true of the file or of the compiler: nothing checks it.
    pub fn conditions(&self) -> Vec<&str> {
        if self.verdict != Finding::Proved {
            return vec![];
        }
        let own = [Premise::HintsHold, Premise::OptionsAlike].into_iter().filter(|own| self.premises.contains(own));
        let pairs = ["reduce-height-independent", "dot-height-independent", "texts-laid-out-alike"];
        let of_pairs = pairs.into_iter().filter(|name| self.assumptions.iter().any(|(own, _)| own == name));
        own.map(Premise::name).chain(of_pairs).collect()
    }
}

/// All of a file.
#[derive(Clone, Debug, Serialize)]
pub struct Audit {
    /// The Python file.
    pub path: String,
    /// In the order of the contracts.
    pub reports: Vec<Report>,
    /// Kernels of the file without a contract, with their lines.
    pub without_contract: Vec<(String, u64)>,
    /// Statements that could not be executed here.
    pub skipped: Vec<Skipped>,
}

impl Audit {
    /// The worst verdict.
    pub fn finding(&self) -> Finding {
        self.reports.iter().map(|report| report.verdict).max().unwrap_or(Finding::Unknown)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Finding::Proved => "proved",
            Finding::Unknown => "UNKNOWN",
            Finding::Refuted => "REFUTED",
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let launch = if self.launch.is_empty() { String::new() } else { format!(" ({})", self.launch) };
        write!(f, "{:6.2} s  {:8} {}{launch}", self.seconds, self.verdict, self.function)?;
        for condition in self.conditions() {
            write!(f, ", if {condition}")?;
        }
        if let Some(why) = &self.why {
            write!(f, "\n          {why}")?;
        }
        if let (Some(line), Some(source)) = (self.line, &self.source) {
            write!(f, "\n          line {line}: {source}")?;
        }
        if let Some(runs) = &self.counterexample {
            write!(f, "\n          {runs}")?;
        }
        Ok(())
    }
}
