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
    let request = Request { path, ..Request::default() };
    let python = python()?;
    Some(audit(&request, || Ok::<_, AuditError>(python)).unwrap())
}

#[test]
fn what_others_write_is_proved() {
    let Some(audit) = audited("proved.py") else { return };
    for report in &audit.reports {
        assert_eq!(report.verdict, Finding::Proved, "{report}");
        // A run stops at a number that was never written: the compiled kernel has zeros in the lanes that it does not read.
        let zeros = report.premises.contains(&vosti_audit::Premise::UnreadLanesZero);
        assert_eq!(zeros, report.function == "lanes_left_open", "{report}");
        assert_eq!(report.conditions().contains(&"hints-hold"), report.function == "hints", "{report}");
        assert!(!zeros || report.compiled.as_deref() == Some("24 pairs of runs gave equal bits"), "{report}");
    }
    assert_eq!((audit.reports.len(), audit.without_contract), (34, vec![("mean_and_more".to_string(), 231)]));
    // The statement that looks for a GPU.
    assert_eq!(audit.skipped.iter().map(|skipped| skipped.line).collect::<Vec<_>>(), [11]);
}

use Finding::{Proved, Refuted, Unknown};

/// Each broken kernel: its verdict, and a part of the reason.
const BROKEN: [(&str, Finding, &str); 103] = [
    // Two regions give one name to two values, and a helper makes one of them.
    ("a_name_of_two_values", Refuted, "in a way that is not known"),
    ("a_name_of_two_values_in_turn", Refuted, "in a way that is not known"),
    ("all_lanes_of_two_rows", Refuted, "guard"),
    // A pointer to FP8 as one to FP16.
    ("bytes_of_two_rows", Unknown, "the type `f8E4M3FN`"),
    // The decorator's choice for the number of rows.
    ("chosen_by_rows", Proved, ""),
    ("chosen_by_rows", Proved, ""),
    ("chosen_by_rows", Refuted, "sums are taken in another order"),
    ("clamped_either_way", Proved, ""),
    ("clamped_either_way", Proved, ""),
    ("clamped_either_way", Unknown, "tt.clampf"),
    ("divided_either_way", Proved, ""),
    ("divided_either_way", Proved, ""),
    ("divided_either_way", Unknown, "tt.precise_divf"),
    ("doubled", Proved, ""),
    ("doubled_in_another_type", Proved, ""),
    ("doubled == doubled_in_another_type", Refuted, "arith.truncf  f32 f16"),
    ("either_of_two_results", Proved, ""),
    ("either_of_two_results", Proved, ""),
    ("either_of_two_results", Refuted, "the constants differ"),
    ("first_largest_of_the_tile", Refuted, "guard"),
    ("groups_of_the_larger_size", Refuted, "in a way that is not known"),
    ("groups_without_the_last", Refuted, "in a way that is not known"),
    ("half_of_the_rows", Refuted, "coverage"),
    ("hinted_row_of_others", Refuted, "dependency"),
    ("integer_row_beyond_the_last", Refuted, "in-bounds"),
    ("integer_scales_the_row", Refuted, "guard"),
    ("lanes_in_any_order", Unknown, "allow_reorder"),
    ("lanes_in_any_order_and_their_sum", Unknown, "allow_reorder"),
    ("lanes_left_open_by_the_rows", Refuted, "guard"),
    ("lanes_of_the_next_row_left_open", Refuted, "in-bounds"),
    // Each launch alone is right; the launcher's choice is not.
    ("launches_of_two_orders", Proved, ""),
    ("launches_of_two_orders", Proved, ""),
    ("launches_of_two_orders", Refuted, "sums are taken in another order"),
    ("mean_of_another_row", Refuted, "in a way that is not known"),
    ("more_tiles_than_numbers", Unknown, "may be no i32"),
    ("moves_less_each_turn", Refuted, "by no fixed offset"),
    ("one_scale_for_all_rows", Unknown, "dependency"),
    // The runs that differ compute another function than erf.
    ("other_function_of_all_rows", Unknown, "guard"),
    ("power_of_the_rows", Unknown, "guard"),
    ("product_of_either_precision", Unknown, "inputPrecision"),
    ("product_of_either_precision", Proved, ""),
    ("product_of_either_precision", Unknown, "inputPrecision"),
    ("product_with_rows_that_wrap", Refuted, "coverage"),
    ("results_of_two_calls", Refuted, "in a way that is not known"),
    ("returns_at_the_last_row", Refuted, "coverage"),
    ("returns_too_late", Refuted, "in-bounds"),
    ("root_of_either_kind", Proved, ""),
    ("root_of_either_kind", Proved, ""),
    ("root_of_either_kind", Unknown, "tt.precise_sqrt"),
    ("rounded_either_way", Proved, ""),
    ("rounded_either_way", Proved, ""),
    ("rounded_either_way", Unknown, "arith.truncf  f32 f16"),
    ("rounded_to_either_type", Proved, ""),
    ("rounded_to_either_type", Proved, ""),
    ("rounded_to_either_type", Unknown, "f8E4M3FN"),
    ("rows_stored_where_they_wrap", Refuted, "coverage"),
    ("rows_that_wrap_below", Refuted, "guard"),
    ("rows_that_wrap_by_a_negative", Refuted, "guard"),
    ("rows_that_wrap_by_columns", Refuted, "guard"),
    ("rows_that_wrap_early", Unknown, "dependency"),
    ("scale_of_the_batch", Refuted, "dependency"),
    // It reads beyond the buffer.
    ("scale_that_is_one_of_the_rows", Unknown, "a buffer of the batch"),
    ("scanned_by_either_function", Proved, ""),
    ("scanned_by_either_function", Proved, ""),
    ("scanned_by_either_function", Refuted, "scan of 64"),
    ("scanned_from_both_ends", Proved, ""),
    ("scanned_from_both_ends", Proved, ""),
    ("scanned_from_both_ends", Refuted, "scan of 64"),
    ("scanned_into_either_end", Proved, ""),
    ("scanned_into_either_end", Proved, ""),
    ("scanned_into_either_end", Refuted, "guard"),
    ("scanned_over_the_rows", Refuted, "guard"),
    ("stores_beside_the_tiles", Refuted, "outside of the loop"),
    ("stores_beside_the_turns", Refuted, "outside of the loop"),
    ("swapped_strides", Refuted, "in-bounds"),
    ("the_row_before", Refuted, "dependency"),
    ("third_tile_by_rows", Refuted, "guard"),
    ("three_tiles_over_the_rows", Refuted, "guard"),
    // No TTIR shows it: the compiled kernels sum in two orders.
    ("tile_by_rows", Proved, ""),
    ("tile_by_rows", Proved, ""),
    ("tile_by_rows", Refuted, "alignment"),
    ("tiles_by_other_columns", Refuted, "coverage"),
    ("tiles_in_turn_ahead", Refuted, "the loop carries a state"),
    ("tiles_in_turn_behind", Unknown, "the loop carries a state"),
    ("tiles_in_turn_by_another_step", Refuted, "by the number of programs"),
    ("tiles_in_turn_from_the_second", Refuted, "by the number of programs"),
    ("tiles_in_turn_with_their_number", Refuted, "used elsewhere"),
    ("tiles_in_turn_without_the_last", Refuted, "by the number of programs"),
    ("tiles_of_a_helper_that_stores", Refuted, "in a way that is not known"),
    ("tiles_with_the_number_of_a_helper", Refuted, "used elsewhere"),
    ("turns_by_another_step", Refuted, "elsewhere than in the loop"),
    ("turns_that_carry_a_sum", Refuted, "there is not one outer loop"),
    ("turns_that_know_the_program", Refuted, "used elsewhere than as the loop's bounds"),
    ("turns_without_the_last_row", Refuted, "not from program_id to `rows`"),
    // One function stands for either, each in its own launch.
    ("two_functions", Proved, ""),
    ("two_functions", Proved, ""),
    ("two_functions", Unknown, "tt.precise_sqrt"),
    ("two_halves_in_turn", Proved, ""),
    ("warps_by_rows == two_halves_in_turn", Refuted, ""),
    ("warps_by_rows", Proved, ""),
    ("warps_by_rows", Proved, ""),
    ("warps_by_rows", Refuted, "options-alike"),
    ("weights_that_move_by_rows", Unknown, "in-bounds"),
];

/// Functions that the broken kernels call.
const HELPERS: [(&str, u64); 6] = [
    ("mean_and_more", 304),
    ("tile_of", 614),
    ("least_and_largest", 619),
    ("which_tile", 774),
    ("row_that_stores", 790),
    ("sum_of_two", 807),
];

/// No single line of them is wrong: an integer that differs is part of a value, or two launches have different functions.
const WITHOUT_LINE: [&str; 15] = [
    "clamped_either_way",
    "divided_either_way",
    "doubled == doubled_in_another_type",
    "integer_scales_the_row",
    "other_function_of_all_rows",
    "power_of_the_rows",
    "root_of_either_kind",
    "rounded_either_way",
    "rounded_to_either_type",
    "scale_that_is_one_of_the_rows",
    "scanned_by_either_function",
    "scanned_from_both_ends",
    "third_tile_by_rows",
    "two_functions",
    "warps_by_rows",
];

#[test]
fn what_others_write_wrongly_is_not() {
    let Some(audit) = audited("broken.py") else { return };
    assert_eq!(
        (audit.reports.len(), audit.without_contract),
        (BROKEN.len(), HELPERS.map(|(name, line)| (name.to_string(), line)).to_vec())
    );
    for (report, (function, verdict, part)) in audit.reports.iter().zip(BROKEN) {
        assert_eq!((report.function.as_str(), report.verdict), (function, verdict), "{report}");
        assert!(report.why.as_deref().unwrap_or("").contains(part), "{report}");
        assert_eq!(report.counterexample.is_some(), verdict == Refuted, "{report}");
        assert!(verdict == Proved || report.line.is_some() || WITHOUT_LINE.contains(&function), "{report}");
    }
}

/// Of a kernel that takes tiles of 16 numbers from `x` to `y`.
fn contract(name: &str) -> String {
    [
        &format!("[{name}]"),
        "shape = \"rowwise\"",
        "grid = [\"rows\"]",
        "params = { x = \"in 0\", y = \"out 0\" }",
        "constants = { B = 16 }",
        "shapes = { x = [\"rows\", \"B\"], y = [\"rows\", \"B\"] }\n",
    ]
    .join("\n")
}

/// Wrong input ends with one line that names its place.
#[test]
fn wrong_input_is_one_line_with_its_place() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let kernel = "import triton\nimport triton.language as tl\n\n@triton.jit\ndef k(x, y, B: tl.constexpr):\n    tl.store(y + tl.arange(0, B), tl.load(x + tl.arange(0, B)))\n";
    let contract = contract("k");
    let contract = contract.as_str();
    let cases = [
        ("x = 1\ndef k(:\n", contract, "file.py:2: no Python"),
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
        (kernel, &contract.replace("x = [\"rows\", \"B\"], ", ""), "[k]: k: no extents are declared for `x`"),
        (kernel, &contract.replace("\"B\"]", "\"WIDTH\"]"), "file.toml:1: [k]: k: the extents of `x`: `WIDTH`"),
        (kernel, &contract.replace("[\"rows\"]", "[\"rows\", \"WIDTH\"]"), "file.toml:1: [k]: k: axis 1 of the grid"),
        (kernel, &format!("# A comment.\n\n{contract}where = [\"WIDTH <= 3\"]\n"), "file.toml:3: [k]: k: `WIDTH`"),
        (kernel, &contract.replace("16 }", "99999999999999999999 }"), "file.toml:5: "),
        (kernel, "", "file.toml:1: it has no table"),
        ("", contract, "file.py:1: there is no kernel `k`"),
        ("\0\0", contract, "file.py:1: no Python: source code string cannot contain null bytes"),
        (&format!("{kernel}x = {}1\n", "-".repeat(100_000)), contract, "file.py:1: no Python that its parser reads"),
        (
            &kernel.replace("@triton.jit", "@mystery(7)\n@triton.jit"),
            contract,
            "file.py:6: `k` cannot be defined here: NameError: name 'mystery' is not defined",
        ),
        (
            &kernel.replace("@triton.jit", "@triton.mystery"),
            contract,
            "file.py:5: `k` cannot be defined here: Attribute",
        ),
        (&kernel.replace("@triton.jit\n", ""), contract, "file.py:4: `k` is no kernel: no `triton.jit` compiles it"),
        (
            &kernel.replace(
                "@triton.jit",
                "@triton.autotune([triton.Config({\"B\": 16}, num_stages=n) for n in range(25)], key=[])\n@triton.jit",
            ),
            &contract.replace("constants = { B = 16 }\n", ""),
            "file.py:4: the decorators have 25 choices for it",
        ),
        (
            &format!("{kernel}\n\n{}", kernel.trim_start_matches("import triton\nimport triton.language as tl\n\n")),
            contract,
            "file.py:4: lines 4 and 9 both define `k`",
        ),
        (
            kernel,
            &contract.replace("16 }", "\"tl.mystery\" }"),
            "file.py:4: `tl.mystery` is no type of triton.language",
        ),
        (kernel, &format!("{contract}launches = [\"B\"]\n"), "file.toml:1: [k]: `B` is not NAME=VALUE"),
        (
            kernel,
            &contract.replace("x = \"in 0\", y = \"out 0\"", "x = \"rows\", y = \"rows\""),
            "file.toml:1: [k]: two parameters have the role `rows`",
        ),
        (kernel, &format!("{contract}instead_of = \"other\"\n"), "file.toml:1: [k]: `instead_of` names `other`"),
        (kernel, &format!("{contract}instead_of = \"k\"\n"), "file.toml:1: [k]: `instead_of` names `k`"),
        (
            kernel,
            &contract.replace("[\"rows\"]", "[\"rows * B in turn by WIDTH\"]"),
            "file.toml:1: [k]: `WIDTH` is no number of programs",
        ),
        (
            kernel,
            &contract.replace("[\"rows\"]", "[\"rows * WIDTH\"]"),
            "file.toml:1: [k]: `WIDTH` is no count of tiles",
        ),
        (
            kernel,
            &contract.replace("[\"rows\"]", "[\"rows * B in turn\", \"rows * B in turn\"]"),
            "file.toml:1: [k]: two axes of the grid number tiles",
        ),
        (
            &format!("import os\nos._exit(0)\n{kernel}"),
            contract,
            "file.py: a statement of the file ends the process (exit status: 0)",
        ),
        (
            &format!("import os\nos.abort()\n{kernel}"),
            contract,
            "file.py: a statement of the file ends the process (signal",
        ),
    ];
    let said = |path: &Path| {
        let request = Request { path: path.into(), ..Request::default() };
        let error = audit(&request, || Ok::<_, AuditError>(python.clone())).unwrap_err().to_string();
        assert!(!error.contains('\n'), "{error}");
        error
    };
    let path = folder.path().join("file.py");
    for (source, contract, part) in cases {
        std::fs::write(&path, source).unwrap();
        std::fs::write(path.with_extension("toml"), contract).unwrap();
        let error = said(&path);
        assert!(error.contains(part), "{error}");
    }
    std::fs::write(path.with_extension("toml"), contract).unwrap();
    std::fs::write(&path, b"# A comment.\n# \xff\xfe\n").unwrap();
    assert!(said(&path).ends_with("file.py:2: this is no UTF-8"));
    std::fs::write(&path, kernel).unwrap();
    std::fs::write(path.with_extension("toml"), b"\xff").unwrap();
    assert!(said(&path).ends_with("file.toml:1: this is no UTF-8"));
    assert!(said(folder.path()).starts_with("cannot read "));
    assert!(said(Path::new("/dev/zero")).ends_with("/dev/zero: it is no file"));
}

/// What a file does when it is executed, and what it imports, is no part of a verdict.
#[test]
fn statements_that_hang_or_print_are_left_out() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file.py");
    let body = [
        "import os, subprocess, time",
        "import triton",
        "import triton.language as tl",
        "from nowhere import helper",
        "",
        "os.write(1, b'not JSON')",
        "subprocess.Popen(['sleep', '100'])",
        "time.sleep(1000)",
        "raise RuntimeError('two\\nlines')",
        "raise SystemExit(3)",
        "",
        "@triton.jit",
        "def good(x, y, B: tl.constexpr):",
        "    i = tl.program_id(0) * B + tl.arange(0, B)",
        "    tl.store(y + i, tl.load(x + i))",
        "",
        "",
        "@triton.jit",
        "def needs(x, y, B: tl.constexpr):",
        "    i = tl.program_id(0) * B + tl.arange(0, B)",
        "    tl.store(y + i, helper(tl.load(x + i)))",
    ];
    std::fs::write(&path, body.join("\n") + "\n").unwrap();
    std::fs::write(path.with_extension("toml"), contract("good") + &contract("needs")).unwrap();
    let start = std::time::Instant::now();
    let audit = audit(&Request { path, ..Request::default() }, || Ok::<_, AuditError>(python)).unwrap();
    assert!(start.elapsed().as_secs() < 90, "the program that is left behind is waited for");
    let found: Vec<_> = audit.reports.iter().map(|report| (report.verdict, report.line)).collect();
    assert_eq!(found, [(Proved, None), (Unknown, Some(21))]);
    let why = audit.reports[1].why.as_deref().unwrap();
    assert!(why.ends_with("`helper` comes from what is not installed here"), "{why}");
    let skipped: Vec<_> = audit.skipped.iter().map(|skipped| (skipped.line, skipped.why.as_str())).collect();
    let whys = ["TimeoutError: it did not end within 20 s", "RuntimeError: two", "SystemExit: 3"];
    assert_eq!(skipped, [(8, whys[0]), (9, whys[1]), (10, whys[2])]);
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
    std::fs::write(path.with_extension("toml"), contract("good") + &contract("bad")).unwrap();
    let audit = audit(&Request { path, ..Request::default() }, || Ok::<_, AuditError>(python)).unwrap();
    let found: Vec<_> =
        audit.reports.iter().map(|report| (report.function.as_str(), report.verdict, report.line)).collect();
    assert_eq!(found, [("bad", Unknown, Some(12)), ("good", Proved, None)]);
    assert_eq!(audit.finding(), Unknown);
}

/// A draft of a kernel with one axis of rows needs no correction.
#[test]
fn drafts_of_plain_kernels_are_proved() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels/proved.py");
    let functions =
        ["one_program_a_row", "early_return", "all_lanes", "hints", "rows_in_turn", "last_rows_first", "scanned"];
    let functions = functions.map(String::from).to_vec();
    let draft = vosti_audit::suggestion(&python, &path, &functions).unwrap();
    let contract = folder.path().join("draft.toml");
    std::fs::write(&contract, &draft).unwrap();
    let request = Request { path: path.clone(), contract: Some(contract), ..Request::default() };
    let audit = audit(&request, || Ok::<_, AuditError>(python.clone())).unwrap();
    assert_eq!(audit.reports.len(), functions.len());
    for report in &audit.reports {
        assert_eq!(report.verdict, Proved, "{report}\n{draft}");
    }
    let error = vosti_audit::suggestion(&python, &path, &["nothing".into()]).unwrap_err().to_string();
    assert!(error.ends_with("proved.py:1: there is no kernel `nothing`"), "{error}");
}

/// What is proved of kernels made at random runs the same as Triton compiles it. `examples/random.rs` tries more.
#[test]
fn random_kernels_that_are_proved_run_the_same() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kernels.py");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels/random_kernels.py");
    let made = std::process::Command::new(&python).arg("-B").arg(script).args(["3", "24"]).arg(&path).status().unwrap();
    assert!(made.success());
    let request = Request { path, run_all: true, ..Request::default() };
    let audit = audit(&request, || Ok::<_, AuditError>(python)).unwrap();
    let same = |report: &&vosti_audit::Report| {
        report.verdict == Proved && report.compiled.as_deref().is_some_and(|runs| runs.contains("equal bits"))
    };
    for report in &audit.reports {
        assert_ne!(report.obligation.as_deref(), Some("compiled"), "{report}");
    }
    let ran = audit.reports.iter().filter(same).count();
    assert!(ran >= 3, "{ran} were proved and ran");
    assert!(audit.reports.iter().any(|report| report.verdict == Refuted));
}
