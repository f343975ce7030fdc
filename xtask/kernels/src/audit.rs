//! `cargo xtask audit`: verifies kernels of public packages, unmodified, and writes `docs/audit.md`.
//!
//! The sources are those of [`packages`]. A contract `audits/PACKAGE/PATH.toml` is of the kernels of the package's `PATH.py`. Files of
//! `audits/forms` are ours: they have the form of kernels that no package carries.

use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use vosti_audit::{AuditError, Finding, Report, Request};
use xtask::{packages, python, root};

const PAGE: &str = "docs/audit.md";
/// The folder of files that are ours, in the place of a package.
const FORMS: &str = "forms";

/// Kernels of which it was known that they are wrong: where it is said, the file, and what is wrong.
const KNOWN: [(&str, &str, &str); 5] = [
    (
        "SGLang #27869",
        "sglang sglang/kernels/ops/attention/fla/layernorm_gated.py",
        "the number of rows chooses `ROWS_PER_BLOCK`",
    ),
    (
        "SGLang #37292",
        "sglang sglang/kernels/ops/layernorm/hc_combine_norm.py",
        "the number of rows chooses one of four launches, with 8 warps or 4",
    ),
    ("vLLM #57092, #57016", "forms one_fp8_scale.py", "one FP8 scale for all rows of a batch"),
    (
        "the same, in SGLang",
        "sglang sglang/kernels/ops/quantization/fp8_kernel.py",
        "the second launch divides by a scale of the whole batch, which the first one made",
    ),
    (
        "vLLM #53896",
        "forms split_k_by_query_rows.py",
        "the number of query rows chooses in how many parts keys are summed",
    ),
];

/// A file of kernels and its contracts.
struct Audited {
    /// The package, and the path in it.
    shown: String,
    request: Request,
}

/// Its verdicts, and the seconds that they took.
struct Done {
    shown: String,
    reports: Vec<Report>,
    seconds: f64,
}

/// Audits every contract whose path contains one of `names` (all, if there are none); writes the page only for all.
pub fn run(names: &[String]) -> Result<()> {
    let sources = packages::sources()?;
    let python = python::interpreter()?;
    let mut done = vec![];
    for audited in all(&sources)? {
        if names.is_empty() || names.iter().any(|name| audited.shown.contains(name.as_str())) {
            let file = audited.verdicts(&python)?;
            file.reports.iter().for_each(|report| println!("{}: {report}", file.shown));
            done.push(file);
        }
    }
    ensure!(!done.is_empty(), "no contract of audits/ has one of these words: {names:?}");
    if names.is_empty() {
        fs::write(root().join(PAGE), page(&done)?)?;
        println!("{PAGE}");
    }
    Ok(())
}

impl Audited {
    fn verdicts(self, python: &Path) -> Result<Done> {
        let start = Instant::now();
        let audit = vosti_audit::audit(&self.request, || Ok::<_, AuditError>(python.to_path_buf()));
        let reports = audit.with_context(|| self.shown.clone())?.reports;
        Ok(Done { shown: self.shown, reports, seconds: start.elapsed().as_secs_f64() })
    }
}

/// Every file with a contract, in order.
fn all(sources: &Path) -> Result<Vec<Audited>> {
    let mut list = vec![];
    let packages: Vec<String> = packages::packages()?.into_iter().map(|package| package.name).collect();
    for package in packages.iter().map(String::as_str).chain([FORMS]) {
        let contracts = root().join("audits").join(package);
        let sources = if package == FORMS { &contracts } else { &sources.join(package) };
        for contract in files(&contracts)?.into_iter().filter(|path| path.extension().is_some_and(|end| end == "toml"))
        {
            let path = contract.strip_prefix(&contracts)?.with_extension("py");
            let shown = format!("{package} {}", path.display());
            let request = Request { path: sources.join(&path), contract: Some(contract), ..Request::default() };
            list.push(Audited { shown, request });
        }
    }
    Ok(list)
}

/// All files below a folder, in order.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut list = vec![];
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() { list.extend(files(&path)?) } else { list.push(path) }
    }
    list.sort();
    Ok(list)
}

fn page(done: &[Done]) -> Result<String> {
    let reports = || done.iter().flat_map(|file| &file.reports);
    let count = |finding| reports().filter(|report| report.verdict == finding).count();
    let mut out = String::from("<!-- made by `cargo xtask audit` from audits/ -->\n# Kernels of others\n\n");
    let versions: Vec<String> =
        packages::packages()?.iter().map(|package| format!("{} {}", package.name, package.version)).collect();
    let mut seconds: Vec<f64> = done.iter().map(|file| file.seconds).collect();
    seconds.sort_by(f64::total_cmp);
    writeln!(
        out,
        "`cargo xtask audit` fetches {} from PyPI\nand verifies kernels of theirs, unmodified, each under a contract of ours in \
         `audits/`. Files of `{FORMS}` are ours: they have the form\nof kernels that are known to be wrong and that none of these packages \
         carries.\n\n**{} verdicts: {} proved, {} refuted, {} unknown.**\n\n\
         What a verdict means, and what it does not, says [Verify your kernel](verify-your-kernel.md). A proof is of a contract, for \
         the\nconstants that the contract names, and of the TTIR; `if` names what it assumes of hints and compilers. An unknown is no \
         verdict about a\nkernel; it names what the verifier does not read. In-place kernels are not audited: a contract cannot say \
         yet that a buffer is both.\nA row `A == B` is of two launches that the launcher chooses between by the number of rows; where no line of \
         the TTIR tells them apart,\ntheir PTX for sm_90 was run.\n\n\
         The {} files took {:.1} s each in the median and {:.1} s at most, with Triton's front end, the proofs and the runs of PTX ({}, other \
         work beside it).\n",
        versions.join(", "),
        reports().count(),
        count(Finding::Proved),
        count(Finding::Refuted),
        count(Finding::Unknown),
        done.len(),
        seconds[seconds.len() / 2],
        seconds[seconds.len() - 1],
        machine(),
    )?;
    out += "## Known to be wrong\n\n| where it is said | file | what is wrong | verdict |\n| --- | --- | --- | --- |\n";
    for (source, shown, what) in KNOWN {
        let file = done.iter().find(|file| file.shown == shown).with_context(|| format!("{shown} has no contract"))?;
        let refuted = file.reports.iter().any(|report| report.verdict == Finding::Refuted);
        writeln!(out, "| {source} | {shown} | {what} | {} |", if refuted { "refuted" } else { "**not refuted**" })?;
    }
    out += "\n## All verdicts\n\n| file | kernel | verdict | why, and at which line |\n| --- | --- | --- | --- |\n";
    for file in done {
        for report in &file.reports {
            out += &row(&file.shown, report)?;
        }
    }
    Ok(out)
}

/// The processor and the day, as far as this machine says them.
fn machine() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map(|(_, model)| model);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let day = Command::new("date").args(["-u", "+%F"]).output().map(|output| output.stdout).unwrap_or_default();
    format!("{cores} cores of {}, {}", model.unwrap_or("a processor"), String::from_utf8_lossy(&day).trim())
}

/// A kernel's line of the page.
fn row(file: &str, report: &Report) -> Result<String> {
    let mut out = String::new();
    let launch = if report.launch.is_empty() { String::new() } else { format!(" ({})", report.launch) };
    let line = report.line.map_or(String::new(), |line| format!(", line {line}"));
    let why: String = report.why.as_deref().unwrap_or("").chars().take(160).collect();
    let why = report.conditions().iter().fold(why, |why, condition| format!("{why} if {condition}"));
    let why = why.trim().replace('|', "\\|").replace('<', "&lt;");
    let verdict = report.verdict.to_string().to_lowercase();
    writeln!(out, "| {file} | `{}`{launch} | {verdict} | {why}{line} |", report.function)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One file of each way in which a kernel is brought to the verifier's form, and wrong ones.
    const SAMPLE: [&str; 10] = [
        "liger-kernel liger_kernel/ops/softmax.py",
        "liger-kernel liger_kernel/ops/sparsemax.py",
        "flag_gems flag_gems/ops/layernorm.py",
        "flag_gems flag_gems/ops/log_softmax.py",
        "flag_gems flag_gems/ops/var_mean.py",
        "unsloth unsloth/kernels/geglu.py",
        "sglang sglang/kernels/ops/quantization/fp8_kernel.py",
        "sglang sglang/kernels/ops/attention/fla/layernorm_gated.py",
        "sglang sglang/srt/batch_invariant_ops/batch_invariant_ops.py",
        "forms split_k_by_query_rows.py",
    ];

    #[test]
    fn verdicts_of_a_sample_are_those_of_the_page() {
        let Some(sources) = vosti_test_tools::audited_packages() else { return };
        let Some(python) = vosti_test_tools::python("triton==3.6.0") else { return };
        let page = fs::read_to_string(root().join(PAGE)).unwrap();
        let audited = all(&sources).unwrap().into_iter().filter(|audited| SAMPLE.contains(&audited.shown.as_str()));
        let done: Vec<Done> = audited.map(|audited| audited.verdicts(&python).unwrap()).collect();
        assert_eq!(done.len(), SAMPLE.len());
        for file in &done {
            for report in &file.reports {
                let row = row(&file.shown, report).unwrap();
                assert!(
                    page.contains(&row),
                    "{PAGE} has another verdict (`cargo xtask audit` writes it):\n{row}{report}"
                );
            }
        }
    }
}
