//! The kernel verifier for files that Vosti does not know: unmodified Triton files with a contract beside them.
//!
//! [`audit`] renders a file's kernels with Triton's front end (`render.py`), brings each text to the form that the verifier
//! reads (`normal`), and proves or refutes it under its contract. A verdict is a report: no engine admits a kernel by it.
//! Nothing of the file is changed, and only the file's own statements are executed, in a process of their own.
//! Read next: `contract.rs`, then `normal/mod.rs`.

mod contract;
mod error;
mod normal;
mod prove;
mod render;
mod report;

pub use error::AuditError;
pub use render::Skipped;
pub use report::{Audit, Finding, Premise, Report};

use contract::{Claim, Constants};
use normal::{Launch, Line, Stop};
use prove::{Prover, Subject, unread};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use vosti_kernels::Dtype;
use vosti_verify::problem::Statement;
use vosti_verify::{Failure, Problem, ProblemError};

/// What to audit.
#[derive(Clone, Debug)]
pub struct Request {
    /// The Python file.
    pub path: PathBuf,
    /// The contracts; None for the `.toml` beside the file.
    pub contract: Option<PathBuf>,
    /// Functions; all that have a contract if this is empty.
    pub functions: Vec<String>,
    /// `BLOCK=1024,num_warps=4`: the launcher's choices, in the place of those of the contract.
    pub launches: Vec<String>,
}

impl Request {
    /// The file of contracts.
    pub fn contracts(&self) -> PathBuf {
        self.contract.clone().unwrap_or_else(|| self.path.with_extension("toml"))
    }
}

/// Options of the compiler, which a launch may have besides the constants of the kernel. No TTIR depends on them.
const OPTIONS: [&str; 4] = ["num_warps", "num_stages", "num_ctas", "maxnreg"];

/// One text to prove.
struct Work<'c> {
    claim: &'c Claim,
    launch: String,
    constants: Constants,
    given: Launch,
}

/// Renders, proves and refutes. `python` has Triton.
pub fn audit(request: &Request, python: &Path) -> Result<Audit, AuditError> {
    let path = request.path.display().to_string();
    let source = std::fs::read_to_string(&request.path).map_err(|error| AuditError::Read {
        path: path.clone(),
        error,
        hint: "",
    })?;
    let beside = request.contracts().display().to_string();
    let hint = "; a kernel's contract is a table `[FUNCTION]` of this file (docs/verify-your-kernel.md)";
    let text =
        std::fs::read_to_string(&beside).map_err(|error| AuditError::Read { path: beside.clone(), error, hint })?;
    let claims = chosen(contract::read(&beside, &text)?, request, &beside)?;
    let mut work = vec![];
    for claim in &claims {
        let wrong = |why| AuditError::Claim { path: beside.clone(), function: claim.function.clone(), why };
        for (launch, constants) in claim.launches(&request.launches).map_err(wrong)? {
            let given = claim.launch(&constants).map_err(wrong)?;
            work.push(Work { claim, launch, constants, given });
        }
    }
    let requests = work.iter().map(|work| rendering(work, &beside)).collect::<Result<Vec<_>, _>>()?;
    let rendered = render::render(python, &request.path, &requests)?;
    let mut audit = Audit { path: path.clone(), reports: vec![], without_contract: vec![], skipped: rendered.skipped };
    for kernel in rendered.kernels {
        // A helper of another kernel has no contract either.
        if request.functions.is_empty() && claims.iter().all(|claim| claim.function != kernel.name) {
            audit.without_contract.push((kernel.name, kernel.line));
        }
    }
    let mut made = vec![];
    for (work, text) in work.iter().zip(rendered.texts) {
        let text = match text {
            Err(no) if !no.refused => return Err(AuditError::Python { path, line: no.line, why: no.why }),
            text => text.map_err(|no| unread(format!("Triton refuses it: {}", no.why), u32::try_from(no.line).ok())),
        };
        let wrong = |why| AuditError::Claim { path: beside.clone(), function: work.claim.function.clone(), why };
        made.push((work, subject(work, text).map_err(wrong)?));
    }
    for (index, (work, subject)) in made.iter().enumerate() {
        let prover = Prover { function: &work.claim.function, source: &source };
        audit.reports.push(prover.report(&work.launch, subject, subject)?);
        // The launcher may take any of a kernel's launches: all give the bits of the first.
        let first = made.iter().position(|(other, _)| other.claim.function == work.claim.function).unwrap_or(index);
        if first < index {
            let (other, left) = &made[first];
            let mut report = prover.report(&format!("{} == {}", other.launch, work.launch), left, subject)?;
            if OPTIONS.iter().any(|name| other.constants.get(*name) != work.constants.get(*name)) {
                report.premises.push(Premise::OptionsAlike);
            }
            audit.reports.push(report);
        }
    }
    Ok(audit)
}

/// The contracts of the functions that were asked for.
fn chosen(claims: Vec<Claim>, request: &Request, beside: &str) -> Result<Vec<Claim>, AuditError> {
    let known: Vec<&str> = claims.iter().map(|claim| claim.function.as_str()).collect();
    if let Some(function) = request.functions.iter().find(|function| !known.contains(&function.as_str())) {
        let (path, function) = (beside.to_string(), function.clone());
        return Err(AuditError::NoClaim { path, function, known: known.join(", ") });
    }
    let all = request.functions.is_empty();
    Ok(claims.into_iter().filter(|claim| all || request.functions.contains(&claim.function)).collect())
}

fn rendering(work: &Work, beside: &str) -> Result<render::Request, AuditError> {
    let function = work.claim.function.clone();
    let wrong = |why| AuditError::Claim { path: beside.to_string(), function: work.claim.function.clone(), why };
    let json = |value: &toml::Value| match value {
        toml::Value::String(text) if text == "None" => Ok(serde_json::Value::Null),
        toml::Value::Array(_) | toml::Value::Table(_) | toml::Value::Datetime(_) => {
            Err(format!("`{value}` is no number, text or truth value"))
        }
        other => serde_json::to_value(other).map_err(|error| error.to_string()),
    };
    let constants = work.constants.iter().map(|(name, value)| Ok((name.clone(), json(value)?)));
    let constants = constants.collect::<Result<_, String>>().map_err(wrong)?;
    let words = work.claim.words().map(String::from).collect();
    Ok(render::Request { function, constants, types: work.claim.types().map_err(wrong)?, words })
}

/// The problem of one launch; an error in words if the contract does not fit the kernel.
fn subject(work: &Work, text: Result<Vec<Line>, Failure>) -> Result<Subject, String> {
    let none = |failure| Subject { problem: Err(failure), premises: BTreeSet::new() };
    let lines = match text {
        Ok(lines) => lines,
        Err(failure) => return Ok(none(failure)),
    };
    let (text, premises) = match normal::normal(lines, &work.given) {
        Ok(normal) => normal,
        Err(Stop::Kernel(why, line)) => return Ok(none(unread(why, line))),
        Err(Stop::Contract(why)) => return Err(why),
    };
    let statement = Statement { text: work.claim.statement(&work.constants, &work.given), act: Dtype::Bf16 };
    match Problem::of_statement(&work.claim.function, &text, statement) {
        Ok(problem) => Ok(Subject { problem: Ok(problem), premises }),
        Err(ProblemError::Lift { source, .. }) => Ok(none(unread(source.reason.to_string(), source.python_line))),
        Err(error) => Err(error.to_string()),
    }
}
