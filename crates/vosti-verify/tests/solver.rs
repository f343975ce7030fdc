//! A solver that is missing, crashes or babbles is an error with a way out, never an answer.

mod common;

use std::path::PathBuf;
use vosti_verify::{Cache, Problem, Solver, SolverError, verify};

fn error(program: &str) -> SolverError {
    let problem = Problem::of_stem("linear-f32-BK64-BM64-BN64-SWAP0").unwrap();
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
    let folder = tempfile::tempdir().unwrap();
    let program = script(&folder, "z3", "read line\necho sure\nwhile read line; do :; done");
    let error = error(&program.display().to_string());
    assert!(matches!(error, SolverError::Babble { .. }), "{error}");
}

#[test]
fn a_read_only_cache_refuses_what_it_does_not_know() {
    let problem = Problem::of_stem("linear-f32-BK64-BM64-BN64-SWAP0").unwrap();
    let mut cache = Cache::none();
    cache.read_only = true;
    let mut solver = Solver::new(PathBuf::from("/nonexistent/z3"), cache);
    assert!(matches!(verify(&problem, &mut solver), Err(SolverError::NotCached { .. })));
}

#[test]
fn a_wrong_cached_answer_is_found_when_it_is_solved_again() {
    let Some(_) = common::solver() else { return };
    let z3 = vosti_verify::find_z3();
    let question = "(assert (= 1 1))\n";
    let mut cache = Cache::from_text(&format!("{} unsat\n", Cache::key(question)));
    cache.recheck_percent = 100;
    let mut solver = Solver::new(z3, cache);
    let answer = solver.check(question).unwrap();
    assert_eq!(answer, vosti_verify::solver::Answer::Unknown);
    assert_eq!(solver.counts.disagreed, 1);
}

/// A shell script in the place of a solver.
#[cfg(unix)]
fn script(folder: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
    let program = folder.path().join(name);
    vosti_test_tools::script(&program, text);
    program
}

#[cfg(unix)]
#[test]
fn a_solver_that_hangs_is_stopped_and_proves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let patience = std::time::Duration::from_millis(200);
    // One never reads, so that its input fills up; one reads and never answers.
    for text in ["exec sleep 600", "while read line; do :; done"] {
        let program = script(&folder, "z3", text);
        let mut solver = Solver::new(program.clone(), Cache::none()).with_patience(patience);
        assert_eq!(solver.version(), "");
        let question = "(assert true) ; ".to_string() + &"x".repeat(1 << 20) + "\n";
        for query in ["(assert true)\n", &question] {
            let error = solver.check(query).unwrap_err();
            assert!(matches!(error, SolverError::Hung { millis: 200, .. }), "{error}");
            assert!(error.to_string().contains("nothing is proved"));
        }
    }
}

#[cfg(unix)]
#[test]
fn a_second_solver_that_disagrees_stops_the_proof() {
    let folder = tempfile::tempdir().unwrap();
    let says = |name: &str, word: &str| {
        script(&folder, name, &format!("while read line; do [ \"$line\" = '(check-sat)' ] && echo {word}; done"))
    };
    let (yes, no, unsure) = (says("yes", "unsat"), says("no", "sat"), says("unsure", "unknown"));
    let solver = |second: &PathBuf| Solver::new(yes.clone(), Cache::none()).with_second(Some(second.clone()));
    let error = solver(&no).check("(assert true)\n").unwrap_err();
    assert!(matches!(error, SolverError::Disagree { .. }), "{error}");
    let problem = Problem::of_stem("linear-f32-BK64-BM64-BN64-SWAP0").unwrap();
    assert!(verify(&problem, &mut solver(&no)).is_err());
    for (second, seconded) in [(&yes, 1), (&unsure, 0)] {
        let mut solver = solver(second);
        assert_eq!(solver.check("(assert true)\n").unwrap(), vosti_verify::solver::Answer::Unsat);
        assert_eq!(solver.counts.seconded, seconded);
    }
    let missing = solver(&folder.path().join("nothing")).check("(assert true)\n").unwrap_err();
    assert!(missing.to_string().contains("VOSTI_CVC5"), "{missing}");
}

/// Every answer is `unsat`, also to the question whether the premises can hold, so the premises fail.
#[cfg(unix)]
#[test]
fn a_solver_that_always_says_unsat_proves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let program = script(&folder, "z3", "while read line; do [ \"$line\" = '(check-sat)' ] && echo unsat; done");
    let problem = Problem::of_stem("linear-f32-BK64-BM64-BN64-SWAP0").unwrap();
    let report = verify(&problem, &mut Solver::new(program, Cache::none())).unwrap();
    let failure = report.verdict.failure().expect("it is not proved");
    assert_eq!(failure.obligation, vosti_verify::Obligation::Premises, "{failure}");
}

/// Every answer is `timeout`: the kernel is not proved, and the message says that the solver gave up.
#[cfg(unix)]
#[test]
fn a_solver_that_gives_up_proves_nothing_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let program = script(&folder, "z3", "while read line; do [ \"$line\" = '(check-sat)' ] && echo timeout; done");
    let problem = Problem::of_stem("linear-f32-BK64-BM64-BN64-SWAP0").unwrap();
    let report = verify(&problem, &mut Solver::new(program, Cache::none())).unwrap();
    let failure = report.verdict.failure().expect("it is not proved");
    assert!(failure.to_string().contains("the solver gave up"), "{failure}");
}

/// In a scope Z3 leaves out passes that some questions need, so a question that it gives up on is asked again after a reset.
#[cfg(unix)]
#[test]
fn what_is_given_up_in_a_scope_is_asked_afresh() {
    let folder = tempfile::tempdir().unwrap();
    let text = "word=unknown; while read line; do case \"$line\" in '(reset)') word=unsat;; '(check-sat)') echo $word;; esac; done";
    let mut solver = Solver::new(script(&folder, "z3", text), Cache::none());
    assert_eq!(solver.check("(assert false)\n").unwrap(), vosti_verify::solver::Answer::Unsat);
}
