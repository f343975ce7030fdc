//! The solver of the tests.

use vosti_verify::solver::WANTED;
use vosti_verify::{Cache, Solver, find_z3};

/// A solver without recorded answers. `None` without z3; where tools are required, that fails the test.
pub fn solver() -> Option<Solver> {
    let solver = Solver::new(find_z3(), Cache::none());
    let how = format!("pip install z3-solver=={WANTED}");
    vosti_test_tools::have(!solver.version().is_empty(), "z3", &how).then_some(solver)
}
