//! Certificates as JSON lines: the first line has the fields that all share, each further line is one kernel's.
//!
//! The checked-in file is embedded here; `vosti verify --record` makes it. Read next: [`crate::inventory`].

use crate::certificate::{Assumed, Certificate, CertificateError, Contract, StandsFor};
use crate::verdict::Assumption;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// Certificates by specialisation.
pub type Certificates = BTreeMap<String, Certificate>;

/// The file's name in `cache/`, beside the checked-in answers.
pub const FILE: &str = "certificates.jsonl";

/// The fields that all certificates of one run share, so that a change of the verifier changes one line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shared {
    made_by: String,
    format: String,
    verifier: String,
    solver: String,
    bounds: BTreeMap<String, i64>,
    assumptions: Vec<Assumed>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    kernel: String,
    ttir_hash: String,
    constants: BTreeMap<String, String>,
    contract: Contract,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    stands_for: Vec<StandsFor>,
    assumptions: Vec<Assumption>,
}

/// The text that [`from_text`] reads; all of `certificates` were made by one run.
pub fn to_text<'a>(certificates: impl Iterator<Item = &'a Certificate> + Clone) -> String {
    let Some(first) = certificates.clone().next() else { return String::new() };
    let assumed: BTreeMap<_, _> =
        certificates.clone().flat_map(|c| &c.assumptions).map(|a| (a.name, a.clone())).collect();
    let shared = Shared {
        made_by: "vosti verify --record".into(),
        format: first.format.clone(),
        verifier: first.verifier.clone(),
        solver: first.solver.clone(),
        bounds: first.bounds.clone(),
        assumptions: assumed.into_values().collect(),
    };
    let mut text = serde_json::to_string(&shared).unwrap_or_default() + "\n";
    for c in certificates {
        let line = Line {
            kernel: c.kernel.clone(),
            ttir_hash: c.ttir_hash.clone(),
            constants: c.constants.clone(),
            contract: c.contract.clone(),
            stands_for: c.stands_for.clone(),
            assumptions: c.assumptions.iter().map(|a| a.name).collect(),
        };
        text += &(serde_json::to_string(&line).unwrap_or_default() + "\n");
    }
    text
}

/// Reads the text of [`to_text`]. It checks the form only; [`Certificate::check`] compares a certificate with a kernel. An
/// error if a line does not parse, a kernel occurs twice, or the first line lacks an assumption.
pub fn from_text(text: &str) -> Result<Certificates, CertificateError> {
    let malformed = |kernel: &str, why: String| CertificateError::Malformed { kernel: kernel.to_string(), why };
    let mut lines = text.lines();
    let Some(first) = lines.next() else { return Ok(Certificates::new()) };
    let shared: Shared = serde_json::from_str(first).map_err(|e| malformed("every kernel", e.to_string()))?;
    let mut certificates = Certificates::new();
    for (i, line) in lines.enumerate() {
        let place = format!("line {}", i + 2);
        let line: Line = serde_json::from_str(line).map_err(|e| malformed(&place, e.to_string()))?;
        let wanted: BTreeSet<_> = line.assumptions.into_iter().collect();
        let assumptions: Vec<Assumed> =
            shared.assumptions.iter().filter(|a| wanted.contains(&a.name)).cloned().collect();
        if assumptions.len() != wanted.len() {
            return Err(malformed(&line.kernel, "it lists an assumption that the first line does not state".into()));
        }
        let certificate = Certificate {
            format: shared.format.clone(),
            kernel: line.kernel.clone(),
            ttir_hash: line.ttir_hash,
            constants: line.constants,
            contract: line.contract,
            stands_for: line.stands_for,
            bounds: shared.bounds.clone(),
            assumptions,
            verifier: shared.verifier.clone(),
            solver: shared.solver.clone(),
        };
        if certificates.insert(line.kernel.clone(), certificate).is_some() {
            return Err(malformed(&line.kernel, "there are two".into()));
        }
    }
    Ok(certificates)
}

/// The checked-in certificates, which are part of this binary.
pub fn checked_in() -> Result<&'static Certificates, CertificateError> {
    static CHECKED_IN: LazyLock<Result<Certificates, CertificateError>> =
        LazyLock::new(|| from_text(include_str!("../cache/certificates.jsonl")));
    CHECKED_IN.as_ref().map_err(Clone::clone)
}
