//! The solver of the tests, and their kernels.

use vosti_test_tools::filetests::FileTest;
use vosti_verify::solver::WANTED;
use vosti_verify::{Cache, Case, Solver, find_z3};

/// A solver without recorded answers. `None` without z3; where tools are required, that fails the test.
pub fn solver() -> Option<Solver> {
    let solver = Solver::new(find_z3(), Cache::none());
    let how = format!("pip install z3-solver=={WANTED}");
    vosti_test_tools::have(!solver.version().is_empty(), "z3", &how).then_some(solver)
}

/// The case of a file test.
#[allow(dead_code, reason = "not every test reads them")]
pub fn case(test: FileTest) -> Case {
    Case::of(&test.path(), test.source, test.ttir)
}
