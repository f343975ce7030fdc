//! Two specialisations of one kernel against each other: other row tiles are proved equal under listed
//! assumptions, another order of sums is refused.

mod common;

use std::path::Path;
use vosti_verify::{Assumption, Case, Obligation, Verdict, Verification, verify_or_refute};

fn pair(left: &str, right: &str) -> Option<Verification> {
    let mut solver = common::solver()?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../filetests/pairs");
    let read = |name: &str| Case::read(&folder.join(format!("{name}.py"))).unwrap();
    let (left, right) = (read(left), read(right));
    let (left, right) = (left.problem.as_ref().unwrap(), right.problem.as_ref().unwrap());
    Some(verify_or_refute(left, right, 20, &mut solver).unwrap())
}

#[test]
fn row_tiles_of_two_heights_give_the_same_bits() {
    for (left, right) in [("linear_bm16", "linear_bm32"), ("rmsnorm_bm4", "rmsnorm_bm8"), ("attend_bq4", "attend_bq8")]
    {
        let Some(verification) = pair(left, right) else { return };
        assert_eq!(verification.verdict, Verdict::Proved, "{left} {right}");
        let heights = [Assumption::DotHeightIndependent, Assumption::ReduceHeightIndependent];
        assert!(heights.iter().any(|h| verification.assumptions.contains(h)), "{:?}", verification.assumptions);
    }
}

#[test]
fn another_order_of_sums_is_refused_at_the_first_difference() {
    let pairs = [
        (
            "linear_bm16",
            "linear_bk32",
            Obligation::Alignment,
            "dot sums 16 products at a time in one run and 32 in the other",
        ),
        // The mask of an iteration is that of other keys.
        (
            "attend_bq4",
            "attend_backwards",
            Obligation::Guard,
            "a mask or branch may be taken in one run and not in the other",
        ),
    ];
    for (left, right, obligation, why) in pairs {
        let Some(verification) = pair(left, right) else { return };
        let failure = verification.verdict.failure().unwrap_or_else(|| panic!("{left} {right} were proved"));
        assert_eq!((failure.obligation, failure.why.as_str()), (obligation, why), "{left} {right}");
    }
}
