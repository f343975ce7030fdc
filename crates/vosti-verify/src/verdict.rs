//! The results: verdicts, the obligation that failed, assumptions, and the proof in words.

use crate::run::Stop;
use crate::solver::SolverError;
use serde::{Deserialize, Serialize};
use std::fmt;
use vosti_tile::Line;

/// A part of "proved". A failure names the first one that could not be discharged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Obligation {
    /// The contract can be read and fits the TTIR.
    Contract,
    /// The TTIR is in the subset.
    Subset,
    /// No buffer is both read and written, and only outputs are written.
    Separation,
    /// No integer operation leaves its type.
    NoWrap,
    /// Every access lies in its declared buffer, and in its block's shape where it is not checked.
    InBounds,
    /// Only cells that the contract names are written.
    ExactEffect,
    /// Every cell that the contract names is written.
    Coverage,
    /// Each cell is written by one program and one lane, once.
    SingleWriter,
    /// Every value stored in the cache is finite, whatever the inputs.
    Finite,
    /// The premises can hold while the two runs really differ: other rows, batches, programs, pages and slots.
    Premises,
    /// Equal selected inputs give equal selected outputs: operations and their order.
    Alignment,
    /// Two loops run through different iterations that change the selected state.
    LoopRange,
    /// A mask, an index or a branch differs between the runs.
    Guard,
    /// A cell is read that the contract does not call equal in both runs.
    Dependency,
    /// A lane without a defined value reaches the output.
    Undefined,
    /// The proof has more cases than the verifier's budget.
    TooManyCases,
}

impl fmt::Display for Obligation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Obligation::Contract => "contract",
            Obligation::Subset => "subset",
            Obligation::Separation => "separation",
            Obligation::NoWrap => "no-wrap",
            Obligation::InBounds => "in-bounds",
            Obligation::ExactEffect => "exact-effect",
            Obligation::Coverage => "coverage",
            Obligation::SingleWriter => "single-writer",
            Obligation::Finite => "finite",
            Obligation::Premises => "premises",
            Obligation::Alignment => "alignment",
            Obligation::LoopRange => "loop-range",
            Obligation::Guard => "guard",
            Obligation::Dependency => "dependency",
            Obligation::Undefined => "undefined",
            Obligation::TooManyCases => "too-many-cases",
        })
    }
}

/// Why a proof failed, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The step that failed.
    pub obligation: Obligation,
    /// 1-based line of the TTIR module; `None` if no line is known.
    pub ttir_line: Option<u32>,
    /// 1-based line of the Python source; `None` if the TTIR's table of lines has none.
    pub python_line: Option<u32>,
    /// What was found instead, for a person.
    pub why: String,
}

impl Failure {
    /// A failure at this place; line 0 counts as unknown.
    pub fn new(obligation: Obligation, line: Line, why: impl Into<String>) -> Failure {
        Failure { obligation, ttir_line: Some(line.ttir).filter(|l| *l > 0), python_line: line.python, why: why.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.obligation, self.why)?;
        match (self.python_line, self.ttir_line) {
            (Some(p), Some(t)) => write!(f, " (Python line {p}, TTIR line {t})"),
            (None, Some(t)) => write!(f, " (TTIR line {t})"),
            _ => Ok(()),
        }
    }
}

/// A failed step of a proof, or a solver that broke.
#[derive(Debug)]
pub enum Trouble {
    /// A step that does not hold, or that the verifier cannot show.
    Failed(Failure),
    /// A solver is missing, died or contradicts another.
    Solver(SolverError),
}

/// `Ok` if the step of a proof succeeded.
pub type Proof<T = ()> = Result<T, Trouble>;

impl Trouble {
    /// The same, at this line if it has none.
    pub fn at(mut self, line: Line) -> Trouble {
        if let Trouble::Failed(failure) = &mut self
            && failure.ttir_line.is_none()
        {
            (failure.ttir_line, failure.python_line) = (Some(line.ttir).filter(|l| *l > 0), line.python);
        }
        self
    }
}

impl From<SolverError> for Trouble {
    fn from(error: SolverError) -> Trouble {
        Trouble::Solver(error)
    }
}

impl From<Stop> for Trouble {
    fn from(stop: Stop) -> Trouble {
        Trouble::Failed(Failure::new(Obligation::Subset, stop.line, stop.why))
    }
}

/// A property that a proof uses and the tile IR does not state. No assumption depends on the inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "`words` has a sentence for each")]
pub enum Assumption {
    ElementwiseUniform,
    DotLaneLocal,
    DotRowUniform,
    DotColumnUniform,
    DotMaskedLanes,
    ReduceLaneLocal,
    ReduceRowUniform,
    ExpOfMinusInfinity,
    NanPayload,
    DotHeightIndependent,
    ReduceHeightIndependent,
    TextsLaidOutAlike,
}

impl Assumption {
    /// The assumption as a sentence; certificates hold it.
    pub fn words(self) -> &'static str {
        use Assumption::*;
        match self {
            ElementwiseUniform => "an elementwise operation gives the same bits in every lane of every tile",
            DotLaneLocal => {
                "dot: lane (m, n) depends on row m of a, column n of b and the accumulator's lane (m, n) only"
            }
            DotRowUniform => "dot: every row of the tile is computed by the same function of its operands",
            DotColumnUniform => "dot: every column of the tile is computed by the same function of its operands",
            DotMaskedLanes => {
                "dot: a product of +0 and a finite number, or the sign of an accumulator's zero, changes the result at most in the sign of a zero; with such products alone the result is the accumulator"
            }
            ReduceLaneLocal => "reduce: a result lane depends on the lanes along the axis only",
            ReduceRowUniform => "reduce: every result lane is computed by the same function of its operands",
            ExpOfMinusInfinity => "exp and exp2 of -inf are +0",
            NanPayload => "equality of NaNs is up to payload: stores and comparisons do not look at it",
            DotHeightIndependent => "dot: a lane's result does not depend on how many rows and columns the tile has",
            ReduceHeightIndependent => "reduce: a row's result does not depend on how many rows the tile has",
            TextsLaidOutAlike => {
                "pairs: of two texts that differ in constants and extents alone, an operation at one place sums in one order"
            }
        }
    }
}

impl fmt::Display for Assumption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = serde_json::to_value(self).ok();
        f.write_str(name.as_ref().and_then(|v| v.as_str()).unwrap_or("?"))
    }
}

/// The result of verifying one kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The contract holds of every input.
    Proved,
    /// Two executed runs that the contract relates gave different bits.
    Refuted {
        /// The step that failed first.
        failure: Failure,
        /// The inputs and the differing outputs, for a person.
        counterexample: String,
    },
    /// Neither proved nor refuted; it counts as a failure.
    Unknown(Failure),
}

impl Verdict {
    /// The obligation that failed, unless the kernel is proved.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Verdict::Proved => None,
            Verdict::Refuted { failure, .. } | Verdict::Unknown(failure) => Some(failure),
        }
    }
    /// Whether the kernel is proved.
    pub fn is_proved(&self) -> bool {
        *self == Verdict::Proved
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Proved => f.write_str("proved"),
            Verdict::Refuted { failure, counterexample } => {
                write!(f, "REFUTED: {failure}; {counterexample}")
            }
            Verdict::Unknown(failure) => write!(f, "UNKNOWN: {failure}"),
        }
    }
}

/// One line of the proof, indented by how deep it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// How many steps enclose this one.
    pub depth: usize,
    /// What was shown, for a person.
    pub text: String,
}
