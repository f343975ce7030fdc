//! Certificates: what was proved of which text, under which assumptions, and by which verifier and solver.
//!
//! Only [`Verdict::Proved`] makes a certificate. It has everything that the proof depends on, and a loader
//! refuses it if anything differs. The JSON schema is `certificate.schema.json` beside this file. A
//! certificate is a record and not a signature: a false one can be written by hand, and `vosti verify` proves
//! its statement again. Read next: [`crate::record`].

use crate::dimension::Scaled;
use crate::problem::{Axis, Dim, Problem, limit};
use crate::verdict::{Assumption, Verdict};
use crate::verify::{Verification, contract_name};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use thiserror::Error;
use vosti_contract::{Number, NumberKind, Shape};
use vosti_tile::{Literal, OpKind, Value};

/// The format that this binary writes and reads.
pub const FORMAT: &str = "vosti-certificate/1";

/// Whether an assumption has been probed where the kernel will run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Probed {
    /// `tests/probes.rs` tries to break the assumption there, and fails to.
    Passed,
    /// No probe has run there.
    UntestedOnTarget,
}

/// An assumption of a proof.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assumed {
    /// The name of the assumption.
    pub name: Assumption,
    /// The assumption as a sentence: [`Assumption::words`].
    pub statement: String,
    /// Target by target: whether a probe has run there.
    pub probed: BTreeMap<String, Probed>,
}

/// A parameter of the kernel, as the contract has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Role {
    /// As in the kernel's signature.
    pub param: String,
    /// The role as [`vosti_contract::Role`] prints it: `In(0)`, `Weight(0)`, `PageTable`.
    pub role: String,
    /// Its element type.
    pub holds: String,
    /// The extents, outermost first: `3 * K` for a multiple of a dimension, others as [`Dim`] prints them, in lower case.
    pub extents: Vec<String>,
}

/// The contract that was proved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contract {
    /// `rowwise`, `store_kv`, `attend`, `attend_part` or `attend_combine`.
    pub shape: String,
    /// The promise in a few words: `row-wise`, `causal, splits of 1024`.
    pub words: String,
    /// Programs on each axis: `cdiv(N, 64)` for an axis of a dimension, others as [`Axis`] prints them.
    pub grid: Vec<String>,
    /// In signature order.
    pub roles: Vec<Role>,
    /// The parameters for all of whose values it is proved: `K: 1..1048576`, both ends included, and `SCALE: float`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numbers: Vec<String>,
    /// The conditions on these values under which it is proved: `OFFSET + HEADS * D <= STRIDE`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<String>,
}

/// Another kernel of the same contract, with which pairs were proved: a row in a run of the one and a row in a run of the
/// other have equal outputs if they have equal inputs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StandsFor {
    /// The stem of its TTIR.
    pub kernel: String,
    /// BLAKE3 of its TTIR.
    pub ttir_hash: String,
}

/// What was proved of one TTIR, and under which assumptions. [`Certificate::check`] compares it with the kernel that is to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    /// [`FORMAT`].
    pub format: String,
    /// The stem of the TTIR.
    pub kernel: String,
    /// BLAKE3 of the TTIR.
    pub ttir_hash: String,
    /// Constants of the text, by name.
    pub constants: BTreeMap<String, String>,
    /// What was proved.
    pub contract: Contract,
    /// Kernels in whose place this one may run: under the premises of their contract it gives their bits.
    pub stands_for: Vec<StandsFor>,
    /// Bounds that the core or the launcher enforce.
    pub bounds: BTreeMap<String, i64>,
    /// The assumptions that a proof of this text may use: [`called_for`].
    pub assumptions: Vec<Assumed>,
    /// Version of the verifier and hash of its source: [`verifier`].
    pub verifier: String,
    /// Name and version of the solver that answered.
    pub solver: String,
}

/// What is wrong with a certificate; the caller that loads it says what to do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "each message names its fields")]
pub enum CertificateError {
    #[error("the certificate of {kernel} does not parse: {why}")]
    Malformed { kernel: String, why: String },
    #[error("the certificate of {kernel} is of format `{found}`, this binary reads `{FORMAT}`")]
    Format { kernel: String, found: String },
    #[error("the certificate of {kernel} is for another {what}: it says `{found}`, here it is `{wanted}`")]
    Stale { kernel: String, what: &'static str, found: String, wanted: String },
}

/// Version of this verifier, and the hash of its source and of the lifting's: a change of either makes
/// every certificate stale. Comments and blank lines do not count.
pub fn verifier() -> &'static str {
    static VERIFIER: LazyLock<String> = LazyLock::new(|| {
        let mut hasher = blake3::Hasher::new();
        for source in crate::trusted::TRUSTED.iter().filter(|trusted| trusted.in_certificates) {
            let code = source.text.lines().map(str::trim_end).filter(|l| !is_comment(l.trim_start()));
            code.for_each(|line| _ = hasher.update(line.as_bytes()).update(b"\n"));
        }
        format!("vosti-verify {} {}", env!("CARGO_PKG_VERSION"), &hasher.finalize().to_hex()[..32])
    });
    &VERIFIER
}

fn is_comment(line: &str) -> bool {
    line.is_empty() || line.starts_with("//") || line.starts_with("# ")
}

fn shape_name(shape: Shape) -> &'static str {
    match shape {
        Shape::Rowwise => "rowwise",
        Shape::StoreKv => "store_kv",
        Shape::Attend => "attend",
        Shape::AttendPart => "attend_part",
        Shape::AttendCombine => "attend_combine",
        Shape::AttendFolded => "attend_folded",
        Shape::RecurStore => "recur_store",
        Shape::RecurRead => "recur_read",
    }
}

/// A multiple of a dimension, in words.
fn scaled(problem: &Problem, of: Scaled) -> String {
    let name = &problem.numbers[of.number].name;
    if of.times == 1 { name.clone() } else { format!("{} * {name}", of.times) }
}

fn axis(problem: &Problem, axis: &Axis) -> String {
    match axis {
        Axis::Of { of, over } => format!("cdiv({}, {over})", scaled(problem, *of)),
        other => format!("{other:?}"),
    }
}

fn number(number: &Number) -> String {
    match number.kind {
        NumberKind::Dimension { lo, hi } => format!("{}: {lo}..{hi}", number.name),
        NumberKind::Float => format!("{}: float", number.name),
    }
}

/// An extent or a window, in words.
pub(crate) fn extent(problem: &Problem, dim: &Dim) -> String {
    match dim {
        Dim::Const(n) => n.to_string(),
        Dim::Of(of) => scaled(problem, *of),
        Dim::Splits(_) => "splits".into(),
        other => format!("{other:?}").to_lowercase(),
    }
}

fn contract(problem: &Problem) -> Contract {
    Contract {
        shape: shape_name(problem.shape).into(),
        words: contract_name(problem),
        grid: problem.grid.iter().map(|g| axis(problem, g)).collect(),
        roles: problem
            .buffers
            .iter()
            .map(|b| Role {
                param: b.name.clone(),
                role: format!("{:?}", b.role),
                holds: b.elem.to_string(),
                extents: b.dims.iter().map(|dim| extent(problem, dim)).collect(),
            })
            .collect(),
        numbers: problem.numbers.iter().map(number).collect(),
        conditions: problem.conditions.iter().map(|condition| condition.text.clone()).collect(),
    }
}

fn constants(problem: &Problem) -> BTreeMap<String, String> {
    problem.constants.iter().chain(&problem.text).map(|(k, v)| (k.clone(), v.to_string())).collect()
}

fn bounds() -> BTreeMap<String, i64> {
    let bound = |name: &str, v: i128| (name.to_string(), i64::try_from(v).unwrap_or(i64::MAX));
    BTreeMap::from([
        bound("rows", limit::ROWS),
        bound("context", limit::CONTEXT),
        bound("slots", limit::SLOTS),
        bound("page_table_entries", limit::TABLE),
        bound("query_tiles", limit::TILES),
    ])
}

/// The assumptions that a proof of this kernel may use, in order. Its operations decide them, so whoever has the text computes the
/// list again: it may have more than the proof used, and never less. A `pair` of texts has three of its own.
pub fn called_for(problem: &Problem, pair: bool) -> Vec<Assumption> {
    use OpKind::*;
    let (mut dot, mut reduce, mut exp, mut elementwise, mut adds_zero) = (false, false, false, false, false);
    let mut zeros: BTreeSet<Value> = BTreeSet::new();
    problem.kernel.walk(&mut |op| {
        match &op.kind {
            Constant { value, .. } if *value == Literal::float(0.0) => zeros.extend(&op.results),
            // A constant behind rearrangements.
            Splat { x, .. }
            | Broadcast { x, .. }
            | ExpandDims { x, .. }
            | Transpose { x, .. }
            | Reshape { x, .. }
            | Half { x, .. }
                if zeros.contains(x) =>
            {
                zeros.extend(&op.results);
            }
            // Sums of integers have no order: nothing is assumed of them.
            Dot { a, .. } => dot |= problem.kernel.ty(*a).elem().is_float(),
            Reduce { op, .. } => reduce |= op.is_float(),
            Unary { op: vosti_tile::Unary::Exp | vosti_tile::Unary::Exp2, .. } => exp = true,
            Binary { op: vosti_tile::Binary::AddF, a, b } => adds_zero |= zeros.contains(a) || zeros.contains(b),
            _ => {}
        }
        elementwise |= matches!(
            op.kind,
            Binary { .. } | Unary { .. } | Fma { .. } | CmpInt { .. } | CmpFloat { .. } | Cast { .. }
        );
    });
    // Only behind an addition of +0 may a product's zero have another sign, and only there are masked factors looked at.
    let masked = dot && adds_zero;
    use Assumption::*;
    let all = [
        (ElementwiseUniform, elementwise),
        (DotLaneLocal, dot),
        (DotRowUniform, dot),
        (DotColumnUniform, dot),
        (DotMaskedLanes, masked),
        (ReduceLaneLocal, reduce),
        (ReduceRowUniform, reduce),
        (ExpOfMinusInfinity, masked && exp),
        (NanPayload, true),
        (DotHeightIndependent, pair && dot),
        (ReduceHeightIndependent, pair && reduce),
        (TextsLaidOutAlike, pair && (dot || reduce)),
    ];
    all.into_iter().filter_map(|(assumption, called)| called.then_some(assumption)).collect()
}

/// An assumption as certificates state it, with every target: one certificate serves all targets that share a text.
pub fn assumed(name: Assumption) -> Assumed {
    let probed = |target| if target == "cpu" { Probed::Passed } else { Probed::UntestedOnTarget };
    let probed = vosti_kernels::targets().map(|target| (target.to_string(), probed(target))).collect();
    Assumed { name, statement: name.words().into(), probed }
}

/// The certificate of `problem`; None unless `verification` is of this problem and proved it.
pub fn certificate(problem: &Problem, verification: &Verification, solver: &str) -> Option<Certificate> {
    if verification.verdict != Verdict::Proved || verification.name != problem.name {
        return None;
    }
    let assumptions = called_for(problem, !verification.stands_for.is_empty());
    if !verification.assumptions.iter().all(|used| assumptions.contains(used)) {
        return None;
    }
    Some(Certificate {
        format: FORMAT.into(),
        kernel: problem.name.clone(),
        ttir_hash: problem.ttir_hash.clone(),
        constants: constants(problem),
        contract: contract(problem),
        stands_for: verification.stands_for.clone(),
        bounds: bounds(),
        assumptions: assumptions.into_iter().map(assumed).collect(),
        verifier: verifier().into(),
        solver: solver.into(),
    })
}

impl Certificate {
    /// Pretty-printed JSON with a line feed at the end.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// Parses a certificate of `kernel`. Text of another form or format is an error that names the kernel.
    pub fn from_json(kernel: &str, text: &str) -> Result<Certificate, CertificateError> {
        serde_json::from_str(text)
            .map_err(|error| CertificateError::Malformed { kernel: kernel.to_string(), why: error.to_string() })
    }

    /// Refuses a certificate that is not for this kernel, text, contract, bounds and verifier.
    pub fn check(&self, problem: &Problem) -> Result<(), CertificateError> {
        let kernel = || self.kernel.clone();
        if self.format != FORMAT {
            return Err(CertificateError::Format { kernel: kernel(), found: self.format.clone() });
        }
        let unlike = |what, found: String, wanted: String| match found == wanted {
            true => Ok(()),
            false => Err(CertificateError::Stale { kernel: kernel(), what, found, wanted }),
        };
        unlike("kernel", kernel(), problem.name.clone())?;
        unlike("verifier", self.verifier.clone(), verifier().into())?;
        unlike("TTIR", self.ttir_hash.clone(), problem.ttir_hash.clone())?;
        unlike("set of constants", format!("{:?}", self.constants), format!("{:?}", constants(problem)))?;
        unlike("contract", format!("{:?}", self.contract), format!("{:?}", contract(problem)))?;
        unlike("set of bounds", format!("{:?}", self.bounds), format!("{:?}", bounds()))?;
        let wanted: Vec<Assumed> = called_for(problem, !self.stands_for.is_empty()).into_iter().map(assumed).collect();
        let names = |list: &[Assumed]| list.iter().map(|a| a.name.to_string()).collect::<Vec<_>>().join(", ");
        unlike("list of assumptions", names(&self.assumptions), names(&wanted))?;
        for (found, wanted) in self.assumptions.iter().zip(&wanted) {
            unlike("statement of an assumption", format!("{found:?}"), format!("{wanted:?}"))?;
        }
        Ok(())
    }
}
