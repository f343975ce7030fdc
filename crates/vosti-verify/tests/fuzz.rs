//! A sample of the fuzzer (`cargo run -p vosti-verify --example fuzz` runs all of it). A mutant that is proved must run
//! invariant, and a mutant whose change keeps every result must be proved.

mod common;

use vosti_contract::Dtype;
use vosti_test_tools::filetests;
use vosti_verify::mutate::mutants;
use vosti_verify::mutate_contract::contracts;
use vosti_verify::problem::Statement;
use vosti_verify::{Problem, replay, verify};

#[test]
fn what_is_proved_of_mutants_runs_invariant() {
    let Some(mut solver) = common::solver() else { return };
    let (mut proved, mut refused, mut turn) = (0, 0, 0);
    for name in ["embed", "linear", "linear_add", "rmsnorm", "gather", "rope_q", "store_kv", "attend"] {
        let case = common::case(filetests::one(name));
        let base = case.problem.as_ref().unwrap();
        for mutant in mutants(&base.kernel) {
            turn += 1;
            if turn % 37 != 0 {
                continue;
            }
            let problem = base.with_kernel(mutant.kernel);
            let report = verify(&problem, &mut solver).unwrap();
            if report.verdict.is_proved() {
                proved += 1;
                assert_eq!(replay::search(&problem, &problem, 0..12), replay::Outcome::Same, "{name}: {}", mutant.what);
            } else {
                refused += 1;
                assert!(!mutant.neutral, "{name}: {} changes nothing, {}", mutant.what, report.verdict);
            }
        }
    }
    assert!(proved >= 10 && refused >= 10, "{proved} proved, {refused} refused");
}

/// A proof for all dimensions rests on their ranges and conditions, so mutants of contracts change these.
#[test]
fn what_is_proved_under_changed_ranges_and_conditions_runs_invariant() {
    let Some(mut solver) = common::solver() else { return };
    let (mut proved, mut refused, mut turn) = (0, 0, 0);
    for name in ["any_store_kv_ragged", "any_rope_q_ragged", "any_attend_combine_ragged", "any_linear"] {
        let case = common::case(filetests::one(name));
        let (_, text) = vosti_contract::contract::block(&case.source).unwrap();
        for mutant in contracts(&Statement { text, act: Dtype::Bf16 }) {
            if !(mutant.what.contains("<=") || mutant.what.contains("..")) {
                continue;
            }
            turn += 1;
            if turn % 5 != 0 {
                continue;
            }
            let Ok(problem) = Problem::of_statement(name, &case.ttir, mutant.statement) else {
                refused += 1;
                continue;
            };
            if verify(&problem, &mut solver).unwrap().verdict.is_proved() {
                proved += 1;
                assert_eq!(replay::search(&problem, &problem, 0..12), replay::Outcome::Same, "{name}: {}", mutant.what);
            } else {
                refused += 1;
            }
        }
    }
    assert!(proved >= 5 && refused >= 10, "{proved} proved, {refused} refused");
}
