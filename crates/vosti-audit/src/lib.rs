//! The kernel verifier for files that Vosti does not know: unmodified Triton files with a contract beside them.
//!
//! [`audit`] renders a file's kernels with Triton's front end (`render.py`), brings each text to the form that the verifier
//! reads (`normal`), and proves or refutes it under its contract; `compiled` runs what Triton compiles. A verdict is a report: no engine admits a kernel by it.
//! Nothing of the file is changed, and only the file's own statements are executed, in a process of their own.
//! Read next: `contract.rs`, then `normal/mod.rs`.

mod compiled;
mod contract;
mod error;
mod normal;
mod page;
mod prove;
mod render;
mod report;
mod suggest;
mod twin;

pub use error::AuditError;
pub use page::page;
pub use render::Skipped;
pub use report::{Audit, Difference, FRONT_END, Finding, Premise, Report};
pub use suggest::suggestion;
pub use twin::{Twins, twins};

use compiled::{Outcome, Side};
use contract::{Claim, Constants};
use normal::{Line, Normal, Stop};
use prove::{Prover, Subject, unread};
use render::NoText;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use vosti_contract::Dtype;
use vosti_verify::problem::Statement;
use vosti_verify::{Failure, Problem, ProblemError};

/// What to audit.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The Python file.
    pub path: PathBuf,
    /// The contracts; None for the `.toml` beside the file.
    pub contract: Option<PathBuf>,
    /// Functions; all that have a contract if this is empty.
    pub functions: Vec<String>,
    /// `BLOCK=1024,num_warps=4`: the launcher's choices, in the place of those of the contract.
    pub launches: Vec<String>,
    /// Whether what is proved runs as Triton compiles it, too.
    pub run_all: bool,
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
    /// Launches of one function and one group must give the same bits.
    group: usize,
    subject: Subject,
    /// The text with zeros where a load leaves lanes open.
    zeroed: Option<Vec<Line>>,
}

/// Renders, proves and refutes. `python` finds an interpreter with Triton; it is asked after the files of the request are read.
pub fn audit<E: From<AuditError>>(request: &Request, python: impl FnOnce() -> Result<PathBuf, E>) -> Result<Audit, E> {
    let path = request.path.display().to_string();
    let source = error::text_of(&request.path, "")?;
    let beside = request.contracts().display().to_string();
    let hint = "; a kernel's contract is a table `[FUNCTION]` of this file (docs/verify-your-kernel.md)";
    let text = error::text_of(&request.contracts(), hint)?;
    let claims = chosen(contract::read(&beside, &text)?, request, &beside)?;
    let mut asked = vec![];
    for claim in &claims {
        let wrong = |why| claim.wrong(&beside, why);
        for (launch, constants) in claim.launches(&request.launches).map_err(wrong)? {
            let rendering = rendering(claim, &constants).map_err(wrong)?;
            asked.push((claim, launch, constants, rendering));
        }
    }
    let requests: Vec<_> = asked.iter().map(|(.., rendering)| rendering.clone()).collect();
    let python = python()?;
    let rendered = render::texts(&python, &request.path, &requests)?;
    let mut audit = Audit { path: path.clone(), reports: vec![], without_contract: vec![], skipped: rendered.skipped };
    for kernel in rendered.kernels {
        // A helper of another kernel has no contract either.
        if request.functions.is_empty() && claims.iter().all(|claim| claim.function != kernel.name) {
            audit.without_contract.push((kernel.name, kernel.line));
        }
    }
    let mut made: Vec<Work> = vec![];
    for ((claim, launch, constants, _), choices) in asked.iter().zip(rendered.texts) {
        let wrong = |why| claim.wrong(&beside, why);
        let misfit = |no: NoText| AuditError::Python { path: path.clone(), line: no.line, why: no.why };
        for choice in choices.map_err(misfit)? {
            let (launch, constants) = with(launch, constants, &choice.chosen);
            let group = choice.group;
            let text = match choice.lines() {
                Err(no) if !no.refused => return Err(misfit(no).into()),
                text => {
                    text.map_err(|no| unread(format!("Triton refuses it: {}", no.why), u32::try_from(no.line).ok()))
                }
            };
            let zeroed = text.as_ref().ok().and_then(|lines| normal::zeroed(lines));
            let subject = subject(claim, &constants, text).map_err(wrong)?;
            made.push(Work { claim, launch, constants, group, subject, zeroed });
        }
    }
    // Reports that runs of compiled kernels may refute, and their launches.
    let mut open = vec![];
    for index in 0..made.len() {
        let report = alone(&mut made[index], &source)?;
        let work = &made[index];
        let prover = Prover { function: &work.claim.function, source: &source };
        if request.run_all || report.verdict == Finding::Unknown || report.premises.contains(&Premise::UnreadLanesZero)
        {
            open.push((audit.reports.len(), index, index));
        }
        audit.reports.push(report);
        // The launcher may take any of a kernel's launches, or of those in whose place it stands: all give the bits of the first.
        let alike = |other: &Work| match &work.claim.written.instead_of {
            Some(function) => other.claim.function == *function,
            None => other.claim.function == work.claim.function && other.group == work.group,
        };
        let first = made.iter().position(alike).unwrap_or(index);
        if first != index {
            let other = &made[first];
            let launches = format!("{} == {}", other.launch, work.launch);
            let both = format!("{} == {}", other.claim.function, work.claim.function);
            let prover = Prover {
                function: if work.claim.written.instead_of.is_some() { &both } else { prover.function },
                ..prover
            };
            let mut report = prover.report(launches.trim_matches([' ', '=']), &other.subject, &work.subject)?;
            if OPTIONS.iter().any(|name| other.constants.get(*name) != work.constants.get(*name)) {
                report.premises.push(Premise::OptionsAlike);
            }
            if report.verdict != Finding::Refuted {
                open.push((audit.reports.len(), first, index));
            }
            audit.reports.push(report);
        }
    }
    compare_compiled(&mut audit, &open, &made, &request.path, &python);
    Ok(audit)
}

/// One launch against itself. If lanes that are not read have a part in the result, then under the premise that they are zeros.
fn alone(work: &mut Work, source: &str) -> Result<Report, AuditError> {
    let prover = Prover { function: &work.claim.function, source };
    let report = prover.report(&work.launch, &work.subject, &work.subject)?;
    if report.obligation.as_deref() != Some("undefined") {
        return Ok(report);
    }
    let Some(lines) = work.zeroed.take() else { return Ok(report) };
    // The contract fits: it did without the zeros.
    let Ok(mut with_zeros) = subject(work.claim, &work.constants, Ok(lines)) else { return Ok(report) };
    with_zeros.premises.insert(Premise::UnreadLanesZero);
    let proved = prover.report(&work.launch, &with_zeros, &with_zeros)?;
    if proved.verdict != Finding::Proved {
        return Ok(report);
    }
    work.subject = with_zeros;
    Ok(proved)
}

/// Runs compiled launches where no proof, or one that assumes something of the compiler, is the verdict: two runs that differ
/// refute it.
fn compare_compiled(audit: &mut Audit, open: &[(usize, usize, usize)], made: &[Work], path: &Path, python: &Path) {
    let wanted: BTreeSet<usize> = open.iter().flat_map(|(_, left, right)| [*left, *right]).collect();
    let requests = wanted.iter().map(|index| rendering(made[*index].claim, &made[*index].constants));
    let Ok(requests) = requests.collect::<Result<Vec<_>, _>>() else { return };
    if requests.is_empty() {
        return;
    }
    let codes = match render::codes(python, path, &requests) {
        Ok(codes) => codes,
        Err(error) => {
            open.iter().for_each(|(report, ..)| audit.reports[*report].compiled = Some(format!("not run: {error}")));
            return;
        }
    };
    let codes: BTreeMap<usize, _> = wanted.into_iter().zip(codes).collect();
    for (report, left, right) in open {
        let side = |index: &usize| match &codes[index] {
            Ok(code) => Ok(Side { claim: made[*index].claim, constants: &made[*index].constants, code }),
            Err(no) => Err(format!("Triton does not compile it: {}", no.why)),
        };
        let outcome = side(left).and_then(|left| Ok((left, side(right)?)));
        let outcome = outcome.map_or_else(Outcome::NotRun, |(left, right)| compiled::search(&left, &right));
        audit.reports[*report].ran(outcome);
    }
}

/// A launch with what the decorators chose for it.
fn with(launch: &str, constants: &Constants, chosen: &BTreeMap<String, serde_json::Value>) -> (String, Constants) {
    let mut all = constants.clone();
    let mut words: Vec<String> = launch.split(',').filter(|part| !part.trim().is_empty()).map(String::from).collect();
    for (name, value) in chosen {
        // Numbers, truth values and texts are all that a decorator's choice may be.
        let Ok(value) = toml::Value::try_from(value) else { continue };
        words.push(match &value {
            toml::Value::String(text) => format!("{name}={text}"),
            value => format!("{name}={value}"),
        });
        all.insert(name.clone(), value);
    }
    (words.join(","), all)
}

/// The contracts of the functions that were asked for, and of those in whose place they stand.
fn chosen(claims: Vec<Claim>, request: &Request, beside: &str) -> Result<Vec<Claim>, AuditError> {
    let known: Vec<&str> = claims.iter().map(|claim| claim.function.as_str()).collect();
    let mut wanted = request.functions.clone();
    for claim in &claims {
        if let Some(function) = &claim.written.instead_of
            && (wanted.is_empty() || wanted.contains(&claim.function))
        {
            if !known.contains(&function.as_str()) || *function == claim.function {
                let why = format!("`instead_of` names `{function}`, which is no other function with a contract");
                return Err(claim.wrong(beside, why));
            }
            if !wanted.is_empty() {
                wanted.push(function.clone());
            }
        }
    }
    if let Some(function) = wanted.iter().find(|function| !known.contains(&function.as_str())) {
        let (path, function) = (beside.to_string(), function.clone());
        return Err(AuditError::NoClaim { path, function, known: known.join(", ") });
    }
    Ok(claims.into_iter().filter(|claim| wanted.is_empty() || wanted.contains(&claim.function)).collect())
}

fn rendering(claim: &Claim, constants: &Constants) -> Result<render::Request, String> {
    let json = |value: &toml::Value| match value {
        toml::Value::String(text) if text == "None" => Ok(serde_json::Value::Null),
        toml::Value::Array(_) | toml::Value::Table(_) | toml::Value::Datetime(_) => {
            Err(format!("`{value}` is no number, text or truth value"))
        }
        other => serde_json::to_value(other).map_err(|error| error.to_string()),
    };
    let values = constants.iter().map(|(name, value)| Ok((name.clone(), json(value)?)));
    Ok(render::Request {
        function: claim.function.clone(),
        constants: values.collect::<Result<_, String>>()?,
        types: claim.types()?,
        words: claim.words().map(String::from).collect(),
        rows: claim.rows(),
        divisible: claim.divisible(constants),
    })
}

/// The problem of one launch; an error in words if the contract does not fit the kernel.
fn subject(claim: &Claim, constants: &Constants, text: Result<Vec<Line>, Failure>) -> Result<Subject, String> {
    let given = claim.launch(constants)?;
    let of_batch = claim.of_batch().map(String::from);
    let none = |failure| Subject {
        problem: Err(failure),
        premises: BTreeSet::new(),
        stands: BTreeMap::new(),
        of_batch: of_batch.clone(),
    };
    let lines = match text {
        Ok(lines) => lines,
        Err(failure) => return Ok(none(failure)),
    };
    let Normal { text, premises, stand_ins } = match normal::normal(lines, &given) {
        Ok(normal) => normal,
        Err(Stop::Kernel(why, line)) => return Ok(none(unread(why, line))),
        Err(Stop::Contract(why)) => return Err(why),
    };
    let statement = Statement { text: claim.statement(constants, &given), act: Dtype::Bf16 };
    match Problem::of_statement(&claim.function, &text, statement) {
        Ok(problem) => {
            let stand_ins = stand_ins.into_iter().map(|(name, by)| (name, by.to_string()));
            Ok(Subject { problem: Ok(problem), premises, stands: claim.narrow().chain(stand_ins).collect(), of_batch })
        }
        Err(ProblemError::Lift { source, .. }) => Ok(none(unread(source.reason.to_string(), source.python_line))),
        Err(error) => Err(error.to_string()),
    }
}
