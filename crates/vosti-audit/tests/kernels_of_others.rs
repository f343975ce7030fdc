//! Kernels as others write them: each construct that Vosti's own kernels lack has a proved kernel and broken ones. A broken one
//! is refuted by two runs, of its TTIR or of its PTX, or refused where this file says; none is proved.

use std::path::{Path, PathBuf};
use vosti_audit::{Audit, AuditError, Finding, Request, audit};

fn python() -> Option<PathBuf> {
    let z3 = !vosti_verify::Solver::new(vosti_verify::find_z3(), vosti_verify::Cache::none()).version().is_empty();
    let have = vosti_test_tools::have(z3, "z3", &format!("pip install z3-solver=={}", vosti_verify::solver::WANTED));
    have.then(|| vosti_test_tools::python("triton==3.6.0")).flatten()
}

fn audited(file: &str) -> Option<Audit> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels").join(file);
    let request = Request { path, contract: None, functions: vec![], launches: vec![] };
    let python = python()?;
    Some(audit(&request, || Ok::<_, AuditError>(python)).unwrap())
}

#[test]
fn what_others_write_is_proved() {
    let Some(audit) = audited("proved.py") else { return };
    for report in &audit.reports {
        assert_eq!(report.verdict, Finding::Proved, "{report}");
    }
    assert_eq!((audit.reports.len(), audit.without_contract), (21, vec![]));
    // The statement that looks for a GPU.
    assert_eq!(audit.skipped.iter().map(|skipped| skipped.line).collect::<Vec<_>>(), [11]);
}

use Finding::{Proved, Refuted, Unknown};

/// Each broken kernel: its verdict, and a part of the reason.
const BROKEN: [(&str, Finding, &str); 30] = [
    ("all_lanes_of_two_rows", Refuted, "guard"),
    // The decorator's choice for the number of rows.
    ("chosen_by_rows", Proved, ""),
    ("chosen_by_rows", Proved, ""),
    ("chosen_by_rows", Refuted, "sums are taken in another order"),
    ("half_of_the_rows", Refuted, "coverage"),
    ("hinted_row_of_others", Refuted, "dependency"),
    ("integer_row_beyond_the_last", Refuted, "in-bounds"),
    ("integer_scales_the_row", Refuted, "guard"),
    ("lanes_in_any_order", Unknown, "allow_reorder"),
    // Each launch alone is right; the launcher's choice is not.
    ("launches_of_two_orders", Proved, ""),
    ("launches_of_two_orders", Proved, ""),
    ("launches_of_two_orders", Refuted, "sums are taken in another order"),
    // The runs that differ compute another function than erf.
    ("other_function_of_all_rows", Unknown, "guard"),
    ("returns_at_the_last_row", Refuted, "coverage"),
    ("returns_too_late", Refuted, "in-bounds"),
    ("stores_beside_the_turns", Refuted, "outside of the loop"),
    ("swapped_strides", Refuted, "in-bounds"),
    ("the_row_before", Refuted, "dependency"),
    // No TTIR shows it: the compiled kernels sum in two orders.
    ("tile_by_rows", Proved, ""),
    ("tile_by_rows", Proved, ""),
    ("tile_by_rows", Refuted, "alignment"),
    ("turns_by_another_step", Refuted, "elsewhere than in the loop"),
    ("turns_that_carry_a_sum", Refuted, "there is not one outer loop"),
    ("turns_that_know_the_program", Refuted, "used elsewhere than as the loop's bounds"),
    ("turns_without_the_last_row", Refuted, "not from program_id to `rows`"),
    ("two_halves_in_turn", Proved, ""),
    ("warps_by_rows == two_halves_in_turn", Refuted, ""),
    ("warps_by_rows", Proved, ""),
    ("warps_by_rows", Proved, ""),
    ("warps_by_rows", Refuted, "options-alike"),
];

/// No single line of them is wrong: an integer that differs is part of a value.
const WITHOUT_LINE: [&str; 3] = ["integer_scales_the_row", "other_function_of_all_rows", "warps_by_rows"];

#[test]
fn what_others_write_wrongly_is_not() {
    let Some(audit) = audited("broken.py") else { return };
    assert_eq!((audit.reports.len(), audit.without_contract), (BROKEN.len(), vec![]));
    for (report, (function, verdict, part)) in audit.reports.iter().zip(BROKEN) {
        assert_eq!((report.function.as_str(), report.verdict), (function, verdict), "{report}");
        assert!(report.why.as_deref().unwrap_or("").contains(part), "{report}");
        assert_eq!(report.counterexample.is_some(), verdict == Refuted, "{report}");
        assert!(verdict == Proved || report.line.is_some() || WITHOUT_LINE.contains(&function), "{report}");
    }
}

/// Wrong input ends with one line that names its place.
#[test]
fn wrong_input_is_one_line_with_its_place() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let kernel = "import triton\nimport triton.language as tl\n\n@triton.jit\ndef k(x, y, B: tl.constexpr):\n    tl.store(y + tl.arange(0, B), tl.load(x + tl.arange(0, B)))\n";
    let contract = "[k]\nshape = \"rowwise\"\ngrid = [\"rows\"]\nparams = { x = \"in 0\", y = \"out 0\" }\nconstants = { B = 16 }\nshapes = { x = [\"rows\", \"16\"], y = [\"rows\", \"16\"] }\n";
    let cases = [
        ("def k(:\n", contract, "file.py:1: no Python"),
        ("while True:\n    pass\n", "[k]\n", "file.toml:1: missing field `shape`"),
        (kernel, &contract.replace("rowwise", "attend"), "file.toml:2: unknown variant `attend`, expected `rowwise`"),
        (kernel, &contract.replace("[k]", "[other]"), "file.py:1: there is no kernel `other`"),
        (kernel, &contract.replace("x = \"in 0\", ", ""), "file.py:4: parameter `x` of `k` has no role"),
        (
            kernel,
            &contract.replace("x = \"in 0\"", "x = \"in 0\", z = \"in 1\""),
            "file.py:4: `k` has no parameter `z`",
        ),
        (kernel, &contract.replace("B = 16", "C = 16"), "`B` of `k` has no value"),
        (kernel, &contract.replace("\"in 0\"", "\"input\""), "[k]: `input` is not a role for `x`"),
        (kernel, &contract.replace("[\"rows\"]", "[\"rows / 2\"]"), "[k]: `rows / 2` is no axis of rows"),
        (kernel, &contract.replace("x = [\"rows\", \"16\"], ", ""), "[k]: k: no extents are declared for `x`"),
    ];
    for (source, contract, part) in cases {
        let path = folder.path().join("file.py");
        std::fs::write(&path, source).unwrap();
        std::fs::write(path.with_extension("toml"), contract).unwrap();
        let request = Request { path, contract: None, functions: vec![], launches: vec![] };
        let error = audit(&request, || Ok::<_, AuditError>(python.clone())).unwrap_err().to_string();
        assert!(error.contains(part) && !error.contains('\n'), "{error}");
    }
}

/// What Triton refuses is a verdict at its line, and the other kernels of the file have theirs.
#[test]
fn a_kernel_that_triton_refuses_hides_no_other() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file.py");
    let kernel = |name: &str, body: &str| {
        format!(
            "@triton.jit\ndef {name}(x, y, B: tl.constexpr):\n    i = tl.program_id(0) * B + tl.arange(0, B)\n    {body}\n\n"
        )
    };
    let source = [
        "import triton\nimport triton.language as tl\n\n",
        &kernel("good", "tl.store(y + i, tl.load(x + i))"),
        &kernel("bad", "tl.store(y + i, tl.nothing(x))"),
    ];
    std::fs::write(&path, source.concat()).unwrap();
    let contract = |name| {
        format!(
            "[{name}]\nshape = \"rowwise\"\ngrid = [\"rows\"]\nparams = {{ x = \"in 0\", y = \"out 0\" }}\nconstants = {{ B = 16 }}\nshapes = {{ x = [\"rows\", \"B\"], y = [\"rows\", \"B\"] }}\n"
        )
    };
    std::fs::write(path.with_extension("toml"), contract("good") + &contract("bad")).unwrap();
    let audit =
        audit(&Request { path, contract: None, functions: vec![], launches: vec![] }, || Ok::<_, AuditError>(python))
            .unwrap();
    let found: Vec<_> =
        audit.reports.iter().map(|report| (report.function.as_str(), report.verdict, report.line)).collect();
    assert_eq!(found, [("bad", Unknown, Some(12)), ("good", Proved, None)]);
    assert_eq!(audit.finding(), Unknown);
}
