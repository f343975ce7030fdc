//! `filetests/pass` is proved, `filetests/broken` is not: each broken kernel differs from a proved sibling in its mistake and
//! fails at the obligation that it names. Where it says so, two replayed runs have different bits.

mod common;

use std::path::Path;
use vosti_test_tools::filetests;
use vosti_verify::{Case, ProblemError, Verdict, replay, verify, verify_or_refute};

const REPLAYS: u64 = 60;

fn cases(folder: &str) -> Vec<Case> {
    filetests::folder(folder).into_iter().map(common::case).collect()
}

#[test]
fn every_text_is_of_a_kernel_and_every_kernel_has_its_text() {
    let all = filetests::read().unwrap();
    let mut texts = filetests::texts().unwrap();
    for test in all {
        texts.remove(&test.key());
        if let Err(ProblemError::Untied { kernel, why, .. }) = common::case(test).problem {
            panic!("{kernel}: {why}; run `cargo xtask filetests`");
        }
    }
    assert!(texts.is_empty(), "texts of no kernel: run `cargo xtask filetests`: {:?}", texts.keys());
}

#[test]
fn good_kernels_are_proved_and_their_replays_agree() {
    let Some(mut solver) = common::solver() else { return };
    for case in cases("pass") {
        let problem = case.problem.as_ref().unwrap_or_else(|e| panic!("{}: {e}", case.name));
        let report = verify(problem, &mut solver).unwrap();
        assert_eq!(report.verdict, Verdict::Proved, "{}", case.name);
        assert_eq!(replay::search(problem, problem, 0..20), replay::Outcome::Same, "{}", case.name);
    }
}

#[test]
fn broken_kernels_fail_at_the_obligation_they_name() {
    let Some(mut solver) = common::solver() else { return };
    let all = cases("broken");
    assert!(all.len() >= 230);
    let (mut differing, mut wrong) = (0, vec![]);
    for case in all {
        let fails = case.note("fails").unwrap_or_else(|| panic!("{} names no obligation", case.name));
        // `contracts_and_texts_that_make_no_problem_are_refused_with_the_recorded_message` compares why.
        let Ok(problem) = &case.problem else {
            let refused = case.problem.as_ref().err().map(|error| error.obligation().to_string());
            assert_eq!(Some(fails), refused.as_deref(), "{}", case.name);
            continue;
        };
        let report = verify_or_refute(problem, problem, REPLAYS, &mut solver).unwrap();
        let failure = report.verdict.failure().unwrap_or_else(|| panic!("{} was proved", case.name));
        assert_eq!(failure.obligation.to_string(), fails, "{}: {failure}", case.name);
        let refuted = matches!(report.verdict, Verdict::Refuted { .. });
        if refuted != (case.note("replay") == Some("differs")) {
            wrong.push(format!("{}: {}", case.name, report.verdict));
        }
        differing += usize::from(refuted);
    }
    assert!(wrong.is_empty(), "replays differ, or do not, against the notes:\n{}", wrong.join("\n"));
    assert!(differing >= 150, "{differing} broken kernels have a replayed pair of runs");
}

/// A stale text or another mistake than the named one is refused too, but with another message.
#[test]
fn contracts_and_texts_that_make_no_problem_are_refused_with_the_recorded_message() {
    let refusals: String = (cases("broken").iter())
        .filter_map(|case| case.problem.as_ref().err())
        .map(|error| format!("{error}\n"))
        .collect();
    let recorded = include_str!("refusals.txt");
    for (fresh, recorded) in refusals.lines().zip(recorded.lines()) {
        assert_eq!(
            fresh, recorded,
            "compare the message with the mistake that the file names, then edit tests/refusals.txt"
        );
    }
    assert_eq!(refusals, recorded, "tests/refusals.txt has other kernels:\n{refusals}");
}

#[test]
fn broken_kernels_differ_from_a_passing_sibling_in_few_lines() {
    let passing = filetests::folder("pass");
    for case in cases("broken") {
        let sibling = case.note("sibling").unwrap();
        let good = &passing.iter().find(|test| test.name == sibling).unwrap().source;
        let broken: Vec<&str> =
            case.source.lines().filter(|l| !l.starts_with("#: ") || l.starts_with("#: types: ")).collect();
        let good: Vec<&str> = good.lines().collect();
        let new = broken.iter().filter(|l| !good.contains(l)).count();
        let gone = good.iter().filter(|l| !broken.contains(l)).count();
        assert!((1..=8).contains(&(new + gone)), "{}: {new} new lines, {gone} gone", case.name);
    }
}

#[test]
fn a_text_says_that_it_was_made_from_each_helper_that_its_python_imports() {
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels");
    let mut helped = 0;
    for case in ["pass", "broken", "pairs"].into_iter().flat_map(cases) {
        let helpers = case.source.lines().filter_map(|l| l.strip_prefix("from ")?.split(' ').next());
        for helper in helpers.map(|name| format!("{name}.py")) {
            if kernels.join(&helper).exists() {
                let said = |l: &str| l.starts_with("// made-from ") && l.ends_with(&format!("/{helper}"));
                assert!(case.ttir.lines().any(said), "{} says nothing of {helper}", case.name);
                helped += 1;
            }
        }
    }
    assert!(helped >= 19, "{helped}");
}
