//! `vosti verify` on kernels in files: a broken kernel fails at its Triton line and shows two runs that differ; two files are
//! compared; an unreadable file gives one line.

use std::path::Path;
use std::process::Command;

/// Exit code, standard output, standard error.
fn verify(arguments: &[String]) -> (i32, String, String) {
    run(Command::new(env!("CARGO_BIN_EXE_vosti")).arg("verify").args(arguments))
}

fn run(command: &mut Command) -> (i32, String, String) {
    let result = command.output().expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (result.status.code().unwrap_or(-1), text(&result.stdout), text(&result.stderr))
}

/// A file test and its text in files, as `filetests/make.py` leaves them.
fn file(folder: &Path, name: &str) -> String {
    let test = vosti_test_tools::filetests::one(name);
    let path = folder.join(format!("{name}.py"));
    std::fs::write(&path, test.source).unwrap();
    std::fs::write(path.with_extension("ttir"), test.ttir).unwrap();
    path.display().to_string()
}

fn have_z3() -> bool {
    let found = !vosti_verify::Solver::new(vosti_verify::find_z3(), vosti_verify::Cache::none()).version().is_empty();
    vosti_test_tools::have(found, "z3", &format!("pip install z3-solver=={}", vosti_verify::solver::WANTED))
}

#[test]
fn a_broken_kernel_fails_at_its_line_and_shows_two_runs() {
    if !have_z3() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (code, out, _) = verify(&[file(folder.path(), "linear_max_over_rows")]);
    assert_ne!(code, 0, "{out}");
    for part in ["REFUTED: ", "Python line", "have equal inputs, but `out` differs", "          line "] {
        assert!(out.contains(part), "{part:?} is not in {out}");
    }
    let (code, out, _) = verify(&[file(folder.path(), "linear"), "--explain".into()]);
    assert_eq!(code, 0, "{out}");
    for part in
        ["proved", "claim: if row x of run L", "cells of `out` are written by Python line", "needed after the loop: "]
    {
        assert!(out.contains(part), "{part:?} is not in {out}");
    }
}

#[test]
fn two_files_are_compared() {
    if !have_z3() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (code, out, _) = verify(&[file(folder.path(), "linear_bm16"), file(folder.path(), "linear_bm32")]);
    assert!(code == 0 && out.contains("dot-height-independent"), "{code}: {out}");
    let (code, out, _) = verify(&[file(folder.path(), "linear_bm16"), file(folder.path(), "linear_bk32")]);
    assert!(
        code != 0 && out.contains("dot sums 16 products at a time in one run and 32 in the other"),
        "{code}: {out}"
    );
}

#[test]
fn what_cannot_be_read_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, says) in [
        (vec!["/nowhere/kernel.py".to_string()], "cannot read /nowhere/kernel.py"),
        (vec!["linear".into(), "attend".into()], "a pair is two files"),
        (vec![file(folder.path(), "linear"), "--read-only".into()], "has no bundle"),
    ] {
        let (code, out, errors) = verify(&arguments);
        assert_eq!((code, out.as_str(), errors.lines().count()), (2, "", 1), "{errors}");
        assert!(errors.contains(says), "{says:?} is not in {errors}");
    }
}

/// A user's first try names a file that is not there: no compiler is fetched before that is said.
#[test]
fn no_triton_is_installed_for_a_file_that_cannot_be_read() {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_vosti"));
    command.args(["verify", "/nowhere/kernel.py"]).env_remove("VOSTI_PYTHON").env("XDG_CACHE_HOME", home.path());
    let (code, out, errors) = run(&mut command);
    assert_eq!((code, out.as_str(), errors.lines().count()), (2, "", 1), "{errors}");
    assert!(std::fs::read_dir(home.path()).unwrap().next().is_none(), "something was written");
}

/// Where nothing is audited, an option of audits would change nothing.
#[test]
fn options_of_audits_are_refused_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let own = file(folder.path(), "linear");
    let other = file(folder.path(), "linear_bm16");
    for kernels in [vec!["linear"], vec![own.as_str()], vec![own.as_str(), other.as_str()]] {
        for option in
            [&["--json"][..], &["--launch", "BM=2"], &["--function", "linear"], &["--contract", "linear.toml"]]
        {
            // A contract makes an audit of one file.
            if option[0] == "--contract" && kernels == [own.as_str()] {
                continue;
            }
            let arguments: Vec<String> = kernels.iter().chain(option).map(|text| text.to_string()).collect();
            let (code, out, errors) = verify(&arguments);
            assert_eq!((code, out.as_str(), errors.lines().count()), (2, "", 1), "{arguments:?}: {errors}");
            let says = format!("{} is for one Triton file", option[0]);
            assert!(errors.contains(&says), "{arguments:?}: {errors}");
        }
    }
}

#[test]
fn an_explanation_is_one_screen_however_many_kernels_have_the_name() {
    let (code, out, _) = verify(&["store".into(), "--explain".into()]);
    let total = out.lines().find_map(|line| line.split_once(" proved in ")?.0.split_once(" of ")).expect("a total");
    assert!(code == 0 && total.0 == total.1 && total.0 != "1", "{out}");
    assert!(out.contains("claim: ") && out.lines().count() <= 50, "{} lines: {out}", out.lines().count());
}

/// Files of others need no line of Vosti: contracts stand beside them.
#[test]
fn files_of_others_have_verdicts_with_exit_codes() {
    if !have_z3() || vosti_test_tools::python("triton==3.6.0").is_none() {
        return;
    }
    let python = vosti_test_tools::python("triton==3.6.0").unwrap();
    let verify = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vosti"));
        let result = command.arg("verify").args(arguments).env("VOSTI_PYTHON", &python).output().expect("it starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (result.status.code(), text(&result.stdout), text(&result.stderr))
    };
    let file = |name: &str| format!("{}/../vosti-audit/tests/kernels/{name}.py", env!("CARGO_MANIFEST_DIR"));
    let (proved, broken) = (file("proved"), file("broken"));
    let (code, out, _) = verify(&[&proved, "--function", "rows_in_turn"]);
    assert!(code == Some(0) && out.contains("proved   rows_in_turn") && out.contains("reduce-row-uniform"), "{out}");
    let (code, out, _) = verify(&[&broken, "--function", "the_row_before"]);
    assert!(code == Some(1) && out.contains("REFUTED  the_row_before") && out.contains("have equal inputs"), "{out}");
    let (code, out, _) = verify(&[&broken, "--function", "lanes_in_any_order"]);
    assert!(code == Some(3) && out.contains("UNKNOWN  lanes_in_any_order") && out.contains(" line "), "{out}");
    let (code, out, _) = verify(&[&proved, "--function", "several_launches", "--launch", "BM=8", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (code, &json["reports"][0]["launch"], &json["reports"][0]["verdict"]),
        (Some(0), &"BM=8".into(), &"proved".into())
    );
    let (code, out, error) = verify(&[&proved, "--function", "none"]);
    assert!(code == Some(2) && out.is_empty() && error.contains("no contract for `none`"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}
