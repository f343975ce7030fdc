//! `vosti verify` on kernels in files: a broken kernel fails at its Triton line and shows two runs that differ; two files are
//! compared; an unreadable file gives one line.

use std::path::Path;
use std::process::Command;

/// Exit code, standard output, standard error.
fn verify(arguments: &[String]) -> (i32, String, String) {
    let result = Command::new(env!("CARGO_BIN_EXE_vosti")).arg("verify").args(arguments).output().expect("it starts");
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

#[test]
fn an_explanation_is_one_screen_however_many_kernels_have_the_name() {
    let (code, out, _) = verify(&["store".into(), "--explain".into()]);
    let total = out.lines().find_map(|line| line.split_once(" proved in ")?.0.split_once(" of ")).expect("a total");
    assert!(code == 0 && total.0 == total.1 && total.0 != "1", "{out}");
    assert!(out.contains("claim: ") && out.lines().count() <= 50, "{} lines: {out}", out.lines().count());
}
