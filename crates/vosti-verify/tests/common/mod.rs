//! The solver of the tests.

use vosti_verify::solver::WANTED;
use vosti_verify::{Cache, Solver, find_z3};

/// A solver that remembers nothing. `None` without z3, which fails the test where tools are required.
pub fn solver() -> Option<Solver> {
    let solver = Solver::new(find_z3(), Cache::none());
    let how = format!("pip install z3-solver=={WANTED}");
    vosti_test_tools::have(!solver.version().is_empty(), "z3", &how).then_some(solver)
}
