//! A contract that does not parse, names a missing parameter or contradicts itself, and TTIR outside the subset: one clear
//! message with the place, never `Proved`, never a panic. (Solvers: `tests/solver.rs`.)

mod common;

use std::path::Path;
use vosti_verify::{Case, Problem, Report, Verdict, verify};

/// `filetests/pass/NAME` with one piece of its source, and one of its TTIR, replaced.
fn changed(name: &str, python: [&str; 2], ttir: [&str; 2]) -> Case {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../filetests/pass");
    let read = |ending: &str| std::fs::read_to_string(folder.join(format!("{name}.{ending}"))).unwrap();
    let (source, text) = (read("py"), read("ttir"));
    assert!(source.contains(python[0]) && text.contains(ttir[0]), "{name}: nothing to replace");
    let copy = tempfile::tempdir().unwrap();
    let path = copy.path().join(format!("{name}.py"));
    std::fs::write(&path, source.replacen(python[0], python[1], 1)).unwrap();
    std::fs::write(path.with_extension("ttir"), text.replacen(ttir[0], ttir[1], 1)).unwrap();
    Case::read(&path).unwrap()
}

/// The one line that a user sees of a kernel that cannot be read.
fn refused(case: &Case) -> String {
    let Err(error) = &case.problem else { panic!("{} was accepted", case.name) };
    let report = Report::refused(&case.name, error);
    let Verdict::Unknown(failure) = &report.verdict else { panic!("{}", report.verdict) };
    assert_eq!(failure.obligation, vosti_verify::Obligation::Subset);
    let line = report.verdict.to_string();
    assert!(!line.contains('\n') && line.contains(&case.name), "{line}");
    line
}

const SAME: [&str; 2] = ["", ""];

#[test]
fn a_contract_that_does_not_parse_is_refused_with_its_line() {
    for (python, says) in [
        (["# shape = \"rowwise\"", "# shape = \"rowwise"], "line 7"),
        (["# shape = \"rowwise\"", "# shape = \"diagonal\""], "line 7: unknown variant `diagonal`"),
        (["# [params]", "# [parameters]"], "unknown field `parameters`"),
        (["# x = \"in 0\"", "# x = \"input\""], "`input` is not a role for `x`"),
        (["# K = 40", "# K = \"forty\""], "constant K is no number"),
        (["cdiv(rows, BM)\"", "cdiv(rows, \""], "cdiv(rows,"),
        (["# grid = [\"cdiv(rows, BM)\", \"cdiv(N, BN)\"]", "# grid = []"], "one to three axes"),
        (["\"cdiv(N, BN)\"]", "\"1\", \"1\", \"1\"]"], "one to three axes"),
        (["# /// contract", "# contract"], "no `# /// contract` block"),
        (["# ///\n@", "@"], "not closed"),
    ] {
        let line = refused(&changed("linear", python, SAME));
        assert!(line.contains(says), "{says:?} is not in {line}");
    }
}

#[test]
fn a_contract_that_names_a_missing_parameter_is_refused_by_name() {
    for (python, says) in [
        (["# x = \"in 0\"", "# x = \"in 0\"\n# y = \"in 1\""], "`y`, which the TTIR does not have"),
        (["# x = \"in 0\"\n", ""], "`x` of the TTIR has no role"),
        (["# x = [\"rows\", \"K\"]\n", ""], "no extents are declared for `x`"),
        (["# w = [\"N\", \"K\"]", "# w = [\"N\", \"DEPTH\"]"], "DEPTH"),
        (["# rows = \"rows\"", "# rows = \"tokens\""], "needs the role Rows"),
    ] {
        let line = refused(&changed("linear", python, SAME));
        assert!(line.contains(says), "{says:?} is not in {line}");
    }
}

#[test]
fn a_contract_that_contradicts_itself_is_refused() {
    for (name, python, says) in [
        ("linear", ["# w = \"weight 0\"", "# w = \"in 0\""], "have one role"),
        ("linear", ["# w = [\"N\", \"K\"]", "# w = [\"rows\", \"K\"]"], "must be what no step changes"),
        ("linear", ["# x = [\"rows\", \"K\"]", "# x = [\"K\", \"K\"]"], "must be `rows`"),
        ("linear", ["# x = [\"rows\", \"K\"]", "# x = [\"packed\", \"K\"]"], "need a row_index"),
        ("linear", ["# out = [\"rows\", \"N\"]", "# out = [\"N\", \"N\"]"], "must be `rows`"),
        ("gather", ["# x = [\"packed\", \"K\"]", "# x = [\"rows\", \"K\"]"], "`packed` where rows are gathered"),
        ("linear", ["# K = 40", "# K = -40"], "-40 is not positive"),
    ] {
        let line = refused(&changed(name, python, SAME));
        assert!(line.contains(says), "{says:?} is not in {line}");
    }
    // Well formed, and no run meets it: that takes the solver.
    let Some(mut solver) = common::solver() else { return };
    let case = changed("attend", ["# BQ = 4", "# BQ = 0"], SAME);
    let report = verify(case.problem.as_ref().unwrap(), &mut solver).unwrap();
    let line = report.verdict.to_string();
    assert!(!report.verdict.is_proved() && line.contains("premises: the contract contradicts itself"), "{line}");
}

#[test]
fn ttir_outside_the_subset_is_refused_with_both_lines() {
    for ttir in [
        ["tt.dot ", "tt.dot_scaled "],
        ["arith.truncf", "arith.fptoui"],
        ["scf.for ", "scf.while "],
        ["tt.advance", "tt.atomic_rmw fadd, acq_rel, gpu,"],
    ] {
        let line = refused(&changed("linear", SAME, ttir));
        assert!(line.contains("TTIR line") && line.contains("Python line"), "{ttir:?}: {line}");
    }
    let line = refused(&changed("linear", SAME, ["module {", "modul {"]));
    assert!(line.contains("TTIR line"), "{line}");
}

#[test]
fn a_specialisation_that_does_not_exist_is_refused() {
    let Err(error) = Problem::of_stem("linear-bf16-K3") else { panic!("accepted") };
    assert!(error.to_string().contains("no checked-in TTIR `linear-bf16-K3`: run `cargo xtask ttir`"), "{error}");
    for (stem, says) in
        [("nothing-bf16-K1", "there is no kernel `nothing`"), ("linear-bf16-K1", "no specialisation's name")]
    {
        let Err(error) = Problem::of_text(stem, "module {}") else { panic!("{stem} was accepted") };
        assert!(error.to_string().contains(says), "{error}");
    }
}
