//! The verdict of one kernel under its contract, for a person and as JSON.

use crate::compiled::Outcome;
use crate::render::Skipped;
use serde::Serialize;
use std::collections::BTreeSet;
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
    /// A load gives zeros in the lanes that it does not read, where the kernel names no other value.
    UnreadLanesZero,
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
            Premise::UnreadLanesZero => "unread-lanes-zero",
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
                "erf, clamps, precise division, functions of libdevice, scans, reductions of several tiles and casts of FP16 and FP8 are functions of their operands alone; a proof knows nothing else of them"
            }
            Premise::UnreadLanesZero => {
                "a load without `other` or `padding_option` gives zeros in the lanes that it does not read: Triton promises nothing, and what Triton 3.6.0 compiles for sm_90 gives zeros"
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
    /// Elements of the two runs that differ, as far as the runs were kept.
    pub differences: Vec<Difference>,
    /// What runs of the compiled kernel gave, where its verdict did not make them needless: equal bits, or why there was no run.
    pub compiled: Option<String>,
    /// The verifier's assumptions: name and sentence.
    pub assumptions: Vec<(String, &'static str)>,
    /// What it rests on besides.
    pub premises: Vec<Premise>,
    /// Seconds.
    pub seconds: f64,
}

/// One element of two rows' outputs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The output.
    pub buffer: String,
    /// The row in the first run and in the second.
    pub rows: [usize; 2],
    /// Its place in the row, or in each of the two buffers.
    pub element: String,
    /// The two values, as numbers.
    pub values: [String; 2],
    /// Their bits.
    pub bits: [String; 2],
}

impl Difference {
    /// Reads the one element that the verifier's replays name.
    pub(crate) fn read(text: &str) -> Option<Difference> {
        let (_, rest) = text.split_once("row ")?;
        let (left, rest) = rest.split_once(" of ")?;
        let (_, rest) = rest.split_once(" and row ")?;
        let (right, rest) = rest.split_once(" of ")?;
        let (_, rest) = rest.split_once("but `")?;
        let (buffer, rest) = rest.split_once("` differs at ")?;
        let (element, rest) = rest.split_once(": ")?;
        let (first, second) = rest.split_once(" and ")?;
        let value = |text: &str| {
            let (value, bits) = text.trim().split_once(" (")?;
            Some((value.to_string(), bits.strip_suffix(')')?.to_string()))
        };
        let ((u, x), (v, y)) = (value(first)?, value(second)?);
        Some(Difference {
            buffer: buffer.into(),
            rows: [left.parse().ok()?, right.parse().ok()?],
            element: element.into(),
            values: [u, v],
            bits: [x, y],
        })
    }
}

impl Report {
    /// Takes what runs of compiled launches gave into the verdict.
    pub(crate) fn ran(&mut self, outcome: Outcome) {
        let found = match outcome {
            Outcome::Same(runs) => format!("{runs} pairs of runs gave equal bits"),
            Outcome::NotRun(why) => format!("not run: {why}"),
            Outcome::Different(how, differences) => {
                self.differences = differences;
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
        let own = [Premise::HintsHold, Premise::UnreadLanesZero, Premise::OptionsAlike];
        let own = own.into_iter().filter(|own| self.premises.contains(own));
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

impl fmt::Display for Audit {
    /// All reports, what the proofs rest on, and what of the file was left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for report in &self.reports {
            writeln!(f, "{report}")?;
        }
        let named = self.reports.iter().flat_map(|report| {
            let own = report.assumptions.iter().map(|(name, words)| (name.as_str(), *words));
            own.chain(report.premises.iter().map(|premise| (premise.name(), premise.words())))
        });
        let all: BTreeSet<(&str, &str)> = named.collect();
        if !all.is_empty() {
            writeln!(f, "it rests on:")?;
        }
        for (name, words) in all {
            writeln!(f, "  {name}: {words}")?;
        }
        if self.reports.iter().any(|report| report.verdict == Finding::Proved) {
            writeln!(f, "{FRONT_END}")?;
        }
        if !self.skipped.is_empty() {
            let lines: Vec<String> = self.skipped.iter().map(|skipped| skipped.line.to_string()).collect();
            writeln!(f, "not executed (--json says why): the statements of lines {}", lines.join(", "))?;
        }
        if !self.without_contract.is_empty() {
            let names = self.without_contract.iter().map(|(name, line)| format!("{name} (line {line})"));
            writeln!(f, "without a contract (--suggest drafts one): {}", names.collect::<Vec<_>>().join(", "))?;
        }
        Ok(())
    }
}

/// What a verdict of a Python file is about.
pub const FRONT_END: &str = "The proof is about the TTIR. Triton's front end may leave out what the Python says: it merges a loop's states \
                         that begin as one value, and writes -0.0 as 0.0.";

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
