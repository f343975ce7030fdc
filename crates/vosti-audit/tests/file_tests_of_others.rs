//! The verifier's file tests, written as others would write them: the number of rows is an integer, and a launch has no spare
//! programs. What is broken stays so, and what is right is proved.

use vosti_audit::{AuditError, Finding, Request, audit};

/// Right as others launch them: three are broken only where a launch has spare programs, and one has a constant that its contract
/// says to be of the text alone, which here is found.
const RIGHT: [&str; 4] = [
    "embed_one_row_unchecked",
    "linear_last_program_checks",
    "linear_spare_programs_wrap",
    "linear_k_only_in_the_text",
];

/// A file test with `rows` as an integer, and its contract; None if it is of another shape.
fn of_others(source: &str) -> Option<(String, String)> {
    let (_, contract) = vosti_contract::contract::block(source).ok()?;
    // A line `#: types` gives a TTIR that its contract does not.
    if !contract.contains("shape = \"rowwise\"") || !source.contains("tl.load(rows)") || source.contains("#: types") {
        return None;
    }
    let mut table: toml::Table = contract.parse().ok()?;
    // Here the constants that only shape the text are found.
    table.remove("text");
    let file = toml::Table::from_iter([("kernel".to_string(), table.into())]);
    Some((source.replace("tl.load(rows)", "rows"), file.to_string()))
}

/// A process renders each kernel, so the test takes a sample. With 1 here it takes all, which takes minutes.
const EVERY: usize = 24;

#[test]
fn broken_kernels_stay_broken() {
    let Some(python) = vosti_test_tools::python("triton==3.6.0") else { return };
    let folder = tempfile::tempdir().unwrap();
    // The modules that some import.
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "py") {
            std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    let (mut seen, mut tried, mut wrong) = (0, 0, vec![]);
    for test in
        vosti_test_tools::filetests::folder("broken").into_iter().chain(vosti_test_tools::filetests::folder("pass"))
    {
        let Some((source, contract)) = of_others(&test.source) else { continue };
        seen += 1;
        if seen % EVERY != 0 {
            continue;
        }
        let path = folder.path().join(format!("{}.py", test.name));
        std::fs::write(&path, source).unwrap();
        std::fs::write(path.with_extension("toml"), contract).unwrap();
        let found = audit(&Request { path, ..Request::default() }, || Ok::<_, AuditError>(python.clone()));
        tried += 1;
        // A false hint is believed, and the verdict says so.
        let proved = |audit: &vosti_audit::Audit| {
            audit.finding() == Finding::Proved && audit.reports.iter().all(|report| report.conditions().is_empty())
        };
        let proved = found.as_ref().is_ok_and(proved);
        let good = match test.folder.as_str() {
            "pass" => proved,
            _ => !proved || RIGHT.contains(&test.name.as_str()),
        };
        if !good {
            let why = found.map(|audit| audit.reports.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
            println!("{}: {}", test.key(), why.unwrap_or_else(|error| error.to_string()));
            wrong.push(test.key());
        }
    }
    println!("{tried} kernels");
    assert!(wrong.is_empty() && tried > 10, "{wrong:?}");
}
