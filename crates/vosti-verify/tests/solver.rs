//! A solver that is missing, crashes or babbles is an error with a way out, never an answer.

use std::path::PathBuf;
use vosti_verify::{Cache, Problem, Solver, SolverError, verify};

fn error(program: &str) -> SolverError {
    let problem = Problem::of_stem("linear-f32-BK64-BM64-BN64-K576-N960").unwrap();
    let mut solver = Solver::new(PathBuf::from(program), Cache::none());
    verify(&problem, &mut solver).unwrap_err()
}

#[test]
fn a_missing_solver_says_how_to_install_it() {
    let message = error("/nonexistent/z3").to_string();
    assert!(message.contains("pip install z3-solver"), "{message}");
}

#[test]
fn a_solver_that_ends_proves_nothing() {
    assert!(matches!(error("true"), SolverError::Crashed { .. }));
}

#[cfg(unix)]
#[test]
fn a_solver_that_babbles_proves_nothing() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("z3");
    std::fs::write(&program, "#!/bin/sh\nread line\necho sure\nwhile read line; do :; done\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let error = error(&program.display().to_string());
    assert!(matches!(error, SolverError::Babble { .. }), "{error}");
}

#[test]
fn a_read_only_cache_refuses_what_it_does_not_know() {
    let problem = Problem::of_stem("linear-f32-BK64-BM64-BN64-K576-N960").unwrap();
    let mut cache = Cache::none();
    cache.read_only = true;
    let mut solver = Solver::new(PathBuf::from("/nonexistent/z3"), cache);
    assert!(matches!(verify(&problem, &mut solver), Err(SolverError::NotCached { .. })));
}

#[test]
fn a_wrong_cached_answer_is_found_when_it_is_solved_again() {
    let z3 = vosti_verify::find_z3();
    if Solver::new(z3.clone(), Cache::none()).version().is_empty() {
        return println!("skipped: no z3");
    }
    let question = "(assert (= 1 1))\n";
    let mut cache = Cache::from_text(&format!("{} unsat\n", Cache::key(question)));
    cache.recheck_percent = 100;
    let mut solver = Solver::new(z3, cache);
    let answer = solver.check(question).unwrap();
    assert_eq!(answer, vosti_verify::solver::Answer::Unknown);
    assert_eq!(solver.counts.disagreed, 1);
}
